// A whole sweep of GSRB for fv4 in one pass over a large level. A block has a tile of 64 cells by 8 rows and marches through planes:
// a warp for each row updates the cells of colour 0 of one plane, others those of colour 1 of a plane behind it, so that x,
// coefficients, right-hand side and diagonal come from memory once for both. Cells of colour 0 next to the tile are updated as well:
// blocks need nothing of each other. The planes around lie in shared memory, in rings (x by colour, as each is needed for other
// times), into which one warp has whole tiles copied (cp.async.bulk.tensor, PTX ISA). Nobody waits for all: a barrier of its own for each
// step and plane says what is there and what is done, so that loads, sums and copies of different warps overlap. The sums are those of two
// half-sweeps, in the same order. For levels of a multiple of 64 cells a side, of at least 128.
//
// Who waits for what, of plane k: colour 0 for the copy of k+2 and for colour 1 of k-4; colour 1 for colour 0 of k+1, with its ghosts;
// the copy for step s, which brings plane s+2 of x and s+1 of the coefficients, for colour 0 of s-3 and colour 1 of s-5.
#pragma once
#include "tiles.cuh"
namespace hpgmg {

struct Sweep {
    static constexpr int ROWS = SWEEP_ROWS, PAIRS = 32;  // of a tile
    // A warp for each row of colour 0 and one for the cells next to those rows, one for each row of colour 1, and one that copies.
    static constexpr int FIRST_ROWS = ROWS + 2, FIRST_WARPS = FIRST_ROWS + 1, SECOND_WARPS = ROWS;
    static constexpr int FIRST = 32 * FIRST_WARPS, SECOND = 32 * SECOND_WARPS, THREADS = FIRST + SECOND + 32;
    // Steps that a copy is ahead of colour 0, and of colour 1; that of colour 0 before colour 1, whose place it takes.
    static constexpr int AHEAD = 2, BACK = 5, NEW = 5;
    // A row of one colour from pair -2 on, of x and of coefficients; rows of x from -3 on, of coefficients from -2 on.
    static constexpr int SIDE = SWEEP_X_PAIRS, X_ROWS = SWEEP_X_ROWS, X_PLANE = 512;
    static constexpr int B_SIDE = SWEEP_BETA_PAIRS, B_PITCH = 2 * B_SIDE, B_ROWS = SWEEP_BETA_ROWS, B_PLANE = B_ROWS * B_PITCH;
    // Planes in the rings: x of colour 0 as it was, as it has become (NEW), x of colour 1; coefficients across the planes, and along k.
    static constexpr int OLD = 5 + AHEAD, OTHER = 4 + BACK, ACROSS = 2 + BACK, ALONG = 1 + BACK;
    static constexpr int OLD_AT = 0, NEW_AT = OLD * X_PLANE, OTHER_AT = NEW_AT + NEW * X_PLANE, BETA_AT = OTHER_AT + OTHER * X_PLANE,
                         ALONG_AT = BETA_AT + 2 * ACROSS * B_PLANE, END = ALONG_AT + ALONG * B_PLANE;
    static constexpr int BYTES = 8 * END + 5 * PlaneBarriers::BYTES;
    // Bytes that a step copies.
    static constexpr int X_BYTES = 8 * X_ROWS * SIDE, STAGE = 2 * X_BYTES + 3 * 8 * B_PLANE;
};
static_assert(Sweep::BYTES == SWEEP_BYTES && Sweep::THREADS == SWEEP_THREADS, "as the host launches");
static_assert(Sweep::X_BYTES <= 8 * Sweep::X_PLANE && Sweep::B_PLANE % 16 == 0, "tiles are copied to multiples of 128 bytes");

// x around a cell of a plane, and coefficients: by the places of their planes, of the cell in them, and of that in a row that differs by
// one cell.
struct SweepAround {
    const char* shared;
    const Turning<5, -2, Sweep::X_PLANE>& own;
    const Turning<3, -1, Sweep::X_PLANE>& other;
    int at, beside;
    __device__ __forceinline__ double operator()(int di, int dj, int dk) const {
        const int plane = ((di + dj + dk) & 1) ? other[dk] : own[dk];
        const int shift = di == 2 || di == 0 ? di / 2 : di == 1 ? 0 : -1;
        return *reinterpret_cast<const double*>(shared + plane + (di & 1 ? beside : at) + 8 * (shift + dj * Sweep::SIDE));
    }
};
struct SweepCoefficients {
    const char* shared;
    const Turning<3, -1, Sweep::B_PLANE>& across;
    const Turning<2, 0, Sweep::B_PLANE>& along;
    int own, other, own_beside, other_beside;
    __device__ __forceinline__ double operator()(int axis, int di, int dj, int dk) const {
        const int plane = axis == 2 ? along[dk] : across[dk];
        const int shift = di == 2 || di == 0 ? di / 2 : di == 1 ? 0 : -1;
        const int at = ((di + dj + dk) & 1) ? (di & 1 ? other_beside : other) : (di & 1 ? own_beside : own);
        return *reinterpret_cast<const double*>(shared + plane + at +
                                                8 * (shift + dj * Sweep::B_PITCH + (axis == 1 ? Sweep::ACROSS * Sweep::B_PLANE : 0)));
    }
};

// What a block knows of its tile and planes.
template <class L>
struct Sweeper : Sweep {
    const L& level;
    const Pass& pass;
    double* const shared;
    const int t0, j0;       // first pair and row of the tile
    const int first, end;   // planes that are stored
    const int begin, last;  // planes of colour 0
    const bool low, high, beside, at_side;
    const PlaneBarriers bars, seconds;  // colour 1 begins with another plane than the others

    __device__ __forceinline__ Sweeper(const L& level, const Pass& pass, double* shared, int first, int end)
        : level(level), pass(pass), shared(shared), t0(blockIdx.x * PAIRS), j0(blockIdx.y * ROWS), first(first), end(end),
          begin(max(first - 1, 0)), last(min(end, level.n - 1)), low(first == 0), high(end == level.n),
          beside(j0 == 0 || j0 + ROWS == level.n), at_side(beside || t0 == 0 || t0 + PAIRS == level.n / 2), bars{shared_at(shared + END), begin},
          seconds{bars.at, first} {}

    // Barriers of planes, eight each: copied; ghost rows added; colour 0 done; its ghosts added; colour 1 done.
    enum { FULL, READY, FIRST_DONE, FRESH, SECOND_DONE };
    __device__ __forceinline__ const PlaneBarriers& of(int which) const { return which == SECOND_DONE ? seconds : bars; }
    __device__ __forceinline__ void wait(int which, int k) const { of(which).wait(which, k); }
    __device__ __forceinline__ void arrive(int which, int k) const { of(which).arrive(which, k); }
    __device__ __forceinline__ void wait_copied(int k) const {
        wait(FULL, k);
        if (beside) wait(READY, k);
    }
    __device__ __forceinline__ void wait_first(int k) const {
        wait(FULL, k);
        wait(at_side ? FRESH : FIRST_DONE, k);
    }

    // Planes in the rings; x of a cell lies at `place` of them.
    __device__ __forceinline__ double* old_at(int k) const { return in_ring<OLD, X_PLANE>(shared + OLD_AT, k); }
    __device__ __forceinline__ double* new_at(int k) const { return in_ring<NEW, X_PLANE>(shared + NEW_AT, k); }
    __device__ __forceinline__ double* other_at(int k) const { return in_ring<OTHER, X_PLANE>(shared + OTHER_AT, k); }
    __device__ __forceinline__ double* beta_at(int axis, int k) const {
        return axis < 2 ? in_ring<ACROSS, B_PLANE>(shared + BETA_AT + axis * ACROSS * B_PLANE, k)
                        : in_ring<ALONG, B_PLANE>(shared + ALONG_AT, k);
    }
    __device__ __forceinline__ int place(int t, int j) const { return (j - j0 + 3) * SIDE + 2 + t - t0; }

    // Ghost rows beyond the domain.
    __device__ __forceinline__ void extend_rows(double* x0, double* x1, int lane) const {
        const bool top = j0 != 0;
        const int at = ((top ? ROWS - 1 : 0) + 3) * SIDE;
        extend_row<SIDE, 32>(level.boundary, x0 + at, x1 + at, top ? -SIDE : SIDE, lane);
    }
    // The ghost planes beyond the last plane of the domain (`top`) or the first, from the next four; IS_NEW: of what colour 0 has become.
    // Colour 1 reads of it but the nearest.
    template <int THREADS, bool IS_NEW>
    __device__ __forceinline__ void extend_planes(bool top, int thread) const {
        const int k = top ? level.n - 1 : 0, step = top ? -1 : 1;
        for (int layer = 0; layer < GHOSTS; layer++) {
            const int to = k - (layer + 1) * step;
            for (int item = thread; item < 2 * X_PLANE; item += THREADS) {
                const int at = item % X_PLANE, colour = item / X_PLANE;
                if (IS_NEW && colour == 0 && layer == 1) continue;
                double cells[4];
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    const int from = k + m * step;
                    cells[m] = ((colour + m + layer + 1) & 1 ? other_at(from) : IS_NEW ? new_at(from) : old_at(from))[at];
                }
                (colour ? other_at(to) : IS_NEW ? new_at(to) : old_at(to))[at] = extended(level.boundary, layer, cells);
            }
        }
    }
    // Ghosts of plane k when colour 0 is new there, of either colour.
    __device__ __forceinline__ void extend_new(int k, int lane) const {
        double *const x0 = new_at(k), *const x1 = other_at(k);
        const int j = j0 - 1 + lane;
        if (lane < FIRST_ROWS && level.has(j)) {
            for (int top = 0; top < 2; top++) {
                if (top ? t0 + PAIRS != level.n / 2 : t0 != 0) continue;
                // Pairs of cells: the first of them is that at the end of the row.
                const int q = (j + k + top) & 1, at = place(top ? level.n / 2 - 1 : 0, j), inward = top ? -1 : 1;
                double *const near = q ? x1 : x0, *const next = q ? x0 : x1;
                const double cells[4] = {near[at], next[at], near[at + inward], next[at + inward]};
                next[at - inward] = extended(level.boundary, 0, cells);
                near[at - inward] = extended(level.boundary, 1, cells);
            }
        }
        if (!beside) return;
        __syncwarp();
        extend_rows(x0, x1, lane);
    }

    // The warp that copies, and adds ghosts to what is new.
    __device__ __forceinline__ void serve(const TileMaps& maps, int lane) const {
        auto load_x = [&](int k, unsigned bar) {
            copy_tile(shared_at(old_at(k)), &maps.x, t0, 0, j0 - 3 + GHOSTS, in_maps(pass, k), bar);
            copy_tile(shared_at(other_at(k)), &maps.x, t0, 1, j0 - 3 + GHOSTS, in_maps(pass, k), bar);
        };
        auto load_beta = [&](int axis, int k, unsigned bar) { copy_tile(shared_at(beta_at(axis, k)), &maps.beta[axis], t0, 2 * (j0 - 2 + GHOSTS), in_maps(pass, k), bar); };
        auto load = [&](int s) {
            const unsigned at = bars.of(FULL, s);
            const bool with_x = s + 2 < level.n;
            bar_expect(at, with_x ? STAGE : STAGE - 2 * X_BYTES);
            if (with_x) load_x(s + 2, at);
#pragma unroll
            for (int axis = 0; axis < 3; axis++) load_beta(axis, s + 1, at);
        };
        if (lane == 0) {
            const unsigned at = bars.of(FULL, begin);
            bar_expect(at, 5 * 2 * X_BYTES + 8 * 8 * B_PLANE);
            for (int k = begin - 2; k <= begin + 2; k++) load_x(k, at);
            for (int axis = 0; axis < 3; axis++)
                for (int k = axis == 2 ? begin : begin - 1; k <= begin + 1; k++) load_beta(axis, k, at);
            for (int s = begin + 1; s <= begin + AHEAD; s++) load(s);
        }
        int next = begin + 1 + AHEAD;
        for (int k = begin; k <= last; k++) {
            wait(FIRST_DONE, k);
            if (at_side) {
                wait(FULL, k);
                extend_new(k, lane);
                to_async();
                __syncwarp();
                if (lane == 0) arrive(FRESH, k);
            }
            // As far ahead as is free; not for what waits for ghosts that are still to come.
            for (; next <= min(k + 1 + AHEAD, last); next++) {
                if (next - BACK >= first) {
                    if (max(next - BACK + 1, low ? 3 : 0) > k) break;
                    wait(SECOND_DONE, next - BACK);
                }
                if (lane == 0) load(next);
            }
        }
    }
    // The warps of a colour, plane by plane; `number` of the thread among theirs. `store(t, j, k, even, odd)` as store_row.
    template <bool IS_FIRST, class Store>
    __device__ __forceinline__ void smooth(int number, const Store& store) const {
        constexpr int COLOUR = IS_FIRST ? 0 : 1;
        constexpr int OWN_AT = IS_FIRST ? OLD_AT : OTHER_AT, OWN = IS_FIRST ? OLD : OTHER, BESIDE_AT = IS_FIRST ? OTHER_AT : NEW_AT, BESIDE = IS_FIRST ? OTHER : NEW;
        const int n = level.n, lane = number % 32;
        // Cells of colour 0 next to the rows: on the right those of even i, on the left those of odd i.
        const bool edge = IS_FIRST && number >= 32 * FIRST_ROWS;
        const int column = edge ? PAIRS : lane, step = edge ? PAIRS + 1 : 0;
        const int j = IS_FIRST ? j0 - 1 + (edge ? lane : number / 32) : j0 + number / 32;
        // Bit p: there is a cell in planes where that is the one of parity p of its pair.
        int valid = 3;
        if (edge) valid = lane >= FIRST_ROWS ? 0 : (t0 + PAIRS < n / 2 ? 1 : 0) | (t0 > 0 ? 2 : 0);
        if (IS_FIRST && !level.has(j)) valid = 0;
        const int start = IS_FIRST ? begin : first, stop = IS_FIRST ? last + 1 : end;
        int odd = (COLOUR + j + start) & 1, there = level.row(j, start) + t0 + column + COLOUR * level.half;
        const int place = 8 * this->place(t0 + column, j), beta_place = 8 * ((j - j0 + 2) * B_PITCH + 2 + column);
        Turning<5, -2, X_PLANE> own(OWN_AT, OWN, start);
        Turning<3, -1, X_PLANE> other(BESIDE_AT, BESIDE, start);
        Turning<1, 0, X_PLANE> fresh(NEW_AT, NEW, start);
        Turning<3, -1, B_PLANE> across(BETA_AT, ACROSS, start);
        Turning<2, 0, B_PLANE> along(ALONG_AT, ALONG, start);
        char* const bytes = reinterpret_cast<char*>(shared);
        double rhs = 0.0, weight = 0.0;
        auto prefetch = [&](int there, int odd) {
            if (IS_FIRST && !(valid >> odd & 1)) return;
            const int at = there - (IS_FIRST ? odd * step : 0);
            rhs = __ldg(pass.rhs + at);
            weight = __ldg(level.dinv + at);
        };
        prefetch(there, odd);
        // A warp whose row lies beyond the domain extends those before it there.
        const bool extends = IS_FIRST && !edge && !level.has(j);
        int ready = begin;
        auto make_ready = [&](int plane) {
            for (; ready <= min(plane, last); ready++) {
                wait(FULL, ready);
                for (int k = ready == begin ? begin - 2 : ready + 2; k <= ready + 2; k++) {
                    if (level.has(k)) extend_rows(old_at(k), other_at(k), lane);
                }
                to_async();
                __syncwarp();
                if (lane == 0) arrive(READY, ready);
            }
        };
        if (extends) make_ready(low ? begin + 1 : begin);
        for (int k = start; k < stop; k++) {
            if (IS_FIRST) {
                wait_copied(k);
                if (low && k == 0) {
                    wait_copied(1);
                    extend_planes<FIRST, false>(false, number);
                    to_async();
                    meet<1, FIRST>();
                }
                // Before the ghosts of plane n - 3 become those of new values.
                if (high && k == n - 3) {
                    if (n - 6 >= first) wait(SECOND_DONE, n - 6);
                    meet<1, FIRST>();
                    extend_planes<FIRST, false>(true, number);
                    to_async();
                    meet<1, FIRST>();
                }
                if (k - NEW + 1 >= first) wait(SECOND_DONE, k - NEW + 1);
            } else {
                wait_first(min(k + 1, last));
                if (low && k == 0) {
                    wait_first(2);
                    wait_first(3);
                    extend_planes<SECOND, true>(false, number);
                    to_async();
                    meet<2, SECOND>();
                }
                if (high && k == n - 2) {
                    meet<2, SECOND>();
                    extend_planes<SECOND, true>(true, number);
                    to_async();
                    meet<2, SECOND>();
                }
            }
            const double mine = rhs, scale = weight;
            if (k + 1 < stop) prefetch(there + level.plane(), odd ^ 1);
            const int left = IS_FIRST ? 8 * odd * step : 0, right = 8 * odd - left;
            if (!IS_FIRST || (valid >> odd & 1)) {
                const SweepAround x{bytes, own, other, place - left, place + right};
                const double value = x(0, 0, 0);
                constexpr int same = 8 * COLOUR * B_SIDE, flipped = 8 * B_SIDE - same;
                const int near = beta_place - left, beside = beta_place + right;
                const SweepCoefficients beta{bytes, across, along, near + same, near + flipped, beside + same, beside + flipped};
                double ax = divergence<FV4>(level, x, Faces<SweepCoefficients>{beta});
                if (level.alpha) ax += level.a * __ldg(level.alpha + there - (IS_FIRST ? odd * step : 0)) * value;
                const double updated = value + scale * (mine - ax);
                if (IS_FIRST) {
                    *reinterpret_cast<double*>(bytes + fresh[0] + place - left) = updated;
                } else {
                    const double kept = *reinterpret_cast<const double*>(bytes + other[0] + place);
                    __syncwarp();
                    if (lane == 0) arrive(SECOND_DONE, k);
                    store(t0 + column, j, k, odd ? kept : updated, odd ? updated : kept);
                }
            }
            if (IS_FIRST) {
                __syncwarp();
                if (lane == 0) arrive(FIRST_DONE, k);
                if (extends) make_ready(k + 1);
                fresh.next(NEW_AT, NEW);
            }
            own.next(OWN_AT, OWN);
            other.next(BESIDE_AT, BESIDE);
            across.next(BETA_AT, ACROSS);
            along.next(ALONG_AT, ALONG);
            odd ^= 1;
            there += level.plane();
        }
    }
};

// New values of x of the planes [first, end), at least four; both are even. Of the planes around them three of x are read and two of the
// coefficients, and of right-hand side and diagonal one. By all threads of the block; `store(t, j, k, even, odd)` as store_row.
template <class L, class Store>
__device__ __forceinline__ void sweep_planes(const L& level, const TileMaps& maps, const Pass& pass, double* shared, int first, int end,
                                             const Store& store) {
    using S = Sweeper<L>;
    const S s(level, pass, shared, first, end);
    if (threadIdx.x == 0) {
        s.bars.init(S::FULL, 1);
        s.bars.init(S::READY, 1);
        s.bars.init(S::FIRST_DONE, S::FIRST_WARPS);
        s.bars.init(S::FRESH, 1);
        s.bars.init(S::SECOND_DONE, S::SECOND_WARPS);
        bars_ready();
    }
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp < S::FIRST_WARPS) {
        s.template smooth<true>(threadIdx.x, store);
    } else if (warp < S::FIRST_WARPS + S::SECOND_WARPS) {
        s.template smooth<false>(threadIdx.x - S::FIRST, store);
    } else {
        s.serve(maps, lane);
    }
}
}  // namespace hpgmg
