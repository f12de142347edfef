// A leg of a cycle in one launch: on one level a correction, a call of GSRB and the restricted residual, each where it is asked
// for. All blocks run at once; each has its share of the level with the ghosts around it, and the coefficients there, in shared memory
// through all of the leg, and after each half-sweep it meets the blocks around it and fetches what they changed. So a half-sweep is no
// launch, and the coefficients come from memory once. A block that is ahead may store the next half-sweep while those around it still fetch: of the
// other colour, and ghosts along i, so these are not fetched. For fv4 on levels whose size the compiler knows. The sums are those of
// grid.cu, in the same order.
#pragma once
#include "column.cuh"
#include "transfer.cuh"

// The shared memory that a launch asks for, of blocks that run together. On the host in tests/host/cuda.hpp.
#ifdef __CUDACC__
#define HPGMG_BLOCKS_SHARED(name) extern __shared__ double name[]
#endif

namespace hpgmg {

// The rows and planes of a block of a level of N cells a side, with ghosts, as a level of its own: rows in halves by colour.
template <int N, int ROWS_, int PLANES_, int THREADS_>
struct Share {
    static constexpr int n = N, ROWS = ROWS_, PLANES = PLANES_, THREADS = THREADS_, PAIRS = N / 2;
    static constexpr int BLOCKS = (N / ROWS) * (N / PLANES);
    // Pairs of cells of a thread, the next this many planes further.
    static constexpr int EACH = PAIRS * ROWS * PLANES / THREADS, STEP = PLANES / EACH;
    // Two pairs at either end, of which the inner are ghosts and the outer keep copies of 16 bytes aligned.
    static constexpr int half = PAIRS + 4, PITCH = 2 * half;
    static constexpr int ALL_ROWS = ROWS + 2 * GHOSTS, ALL_PLANES = PLANES + 2 * GHOSTS;
    static constexpr int PLANE = ALL_ROWS * PITCH, VOLUME = ALL_PLANES * PLANE;
    // u and the coefficients.
    static constexpr int BYTES = 4 * VOLUME * static_cast<int>(sizeof(double));
    static_assert(PAIRS % 2 == 0 && ROWS % 2 == 0 && PLANES % 2 == 0 && PAIRS * ROWS * PLANES % THREADS == 0 && PLANES % EACH == 0);

    const Sized<N>& level;
    const double scale;
    const int boundary;
    const int j0, k0;  // the first row and plane

    __device__ __forceinline__ explicit Share(const Sized<N>& level)
        : level(level), scale(level.scale), boundary(level.boundary), j0(blockIdx.x % (N / ROWS) * ROWS),
          k0(blockIdx.x / (N / ROWS) * PLANES) {}

    __device__ __forceinline__ static int pitch() { return PITCH; }
    __device__ __forceinline__ static int plane() { return PLANE; }
    __device__ __forceinline__ int row(int j, int k) const { return 2 + (j - j0 + GHOSTS) * PITCH + (k - k0 + GHOSTS) * PLANE; }
    __device__ __forceinline__ static bool has(int i) { return static_cast<unsigned>(i) < static_cast<unsigned>(N); }

    // Starts copying 16 bytes, the pairs `pair` - 2 and `pair` - 1, of a colour, row and plane counted from the first ghost.
    __device__ __forceinline__ void copy(double* to, const double* from, int colour, int pair, int row, int plane) const {
        const int there = level.row(j0 - GHOSTS, k0 - GHOSTS) + row * level.pitch() + plane * level.plane() + colour * level.half;
        copy_two(to + colour * half + row * PITCH + plane * PLANE + pair, from + there + pair - 2);
    }
    // All of a vector here that is at most `reach` rows and planes around the share.
    __device__ __forceinline__ void load(double* to, const double* from, int reach) const {
        const int rows = ROWS + 2 * reach, planes = PLANES + 2 * reach;
        for (int item = threadIdx.x; item < half * rows * planes; item += THREADS) {
            const int side = item / (half / 2), row = side / 2 % rows, plane = side / (2 * rows);
            copy(to, from, side & 1, 2 * (item % (half / 2)), row + GHOSTS - reach, plane + GHOSTS - reach);
        }
    }
    // What other blocks changed around the share, of one colour.
    __device__ __forceinline__ void fetch(double* to, const double* from, int colour) const {
        constexpr int CHUNKS = PAIRS / 2;
        for (int item = threadIdx.x; item < CHUNKS * ALL_ROWS * ALL_PLANES; item += THREADS) {
            const int chunk = item % CHUNKS, row = item / CHUNKS % ALL_ROWS, plane = item / (CHUNKS * ALL_ROWS);
            if (!has_row(row) || !has_plane(plane)) copy(to, from, colour, 2 * chunk + 2, row, plane);
        }
    }
    // The ghosts along i of the rows here, after some of their cells have changed.
    __device__ __forceinline__ void extend_rows(double* x) const {
        for (int item = threadIdx.x; item < 2 * ALL_ROWS * ALL_PLANES; item += THREADS) {
            const int top = item & 1, row = item / 2 % ALL_ROWS, plane = item / (2 * ALL_ROWS);
            // Pairs of cells: the first of them is that at the end of the row.
            const int q = (j0 + row + k0 + plane + top) & 1, inward = top ? -1 : 1;
            double* const end = x + row * PITCH + plane * PLANE + (top ? PAIRS + 1 : 2);
            double *const near = end + q * half, *const next = end + (1 - q) * half;
            const double cells[4] = {*near, *next, near[inward], next[inward]};
            next[-inward] = extended(boundary, 0, cells);
            // Of rows of other blocks only the nearest are read.
            if (has_row(row) && has_plane(plane)) near[-inward] = extended(boundary, 1, cells);
        }
    }
    __device__ __forceinline__ static bool has_row(int row) { return row >= GHOSTS && row < GHOSTS + ROWS; }
    __device__ __forceinline__ static bool has_plane(int plane) { return plane >= GHOSTS && plane < GHOSTS + PLANES; }

    // The two ghosts beyond a cell at the border, `inward` of which the next ones lie. Where the colour of a cell changes the
    // halves of its row do.
    __device__ __forceinline__ void extend(double* cell, int flip, int inward) const { extend_line(boundary, cell, cell + flip, inward); }
    // Waits for copies and fills the ghosts beyond the domain; those along i are here if what is here was not `changed`. For all threads.
    __device__ __forceinline__ void complete(double* x, bool changed) const {
        copied();
        __syncthreads();
        if (changed) {
            extend_rows(x);
            __syncthreads();
        }
        const bool low_j = j0 == 0, high_j = j0 + ROWS == N, low_k = k0 == 0, high_k = k0 + PLANES == N;
        auto flip = [](int at) { return at < half ? half : -half; };
        if (low_j || high_j) {
            for (int item = threadIdx.x; item < PITCH * ALL_PLANES; item += THREADS) {
                double* const column = x + item % PITCH + item / PITCH * PLANE;
                if (low_j) extend(column + GHOSTS * PITCH, flip(item % PITCH), PITCH);
                if (high_j) extend(column + (GHOSTS + ROWS - 1) * PITCH, flip(item % PITCH), -PITCH);
            }
            __syncthreads();
        }
        if (low_k || high_k) {
            for (int item = threadIdx.x; item < PLANE; item += THREADS) {
                if (low_k) extend(x + item + GHOSTS * PLANE, flip(item % PITCH), PLANE);
                if (high_k) extend(x + item + (GHOSTS + PLANES - 1) * PLANE, flip(item % PITCH), -PLANE);
            }
            __syncthreads();
        }
    }
};

// The blocks whose rows and planes border on this one's, and this one.
template <class S>
struct BlocksAround {
    static constexpr unsigned COUNT = 9;
    __device__ __forceinline__ unsigned operator()(unsigned n) const {
        constexpr int ROWS = S::n / S::ROWS, PLANES = S::n / S::PLANES;
        const int row = static_cast<int>(blockIdx.x) % ROWS + static_cast<int>(n) % 3 - 1;
        const int plane = static_cast<int>(blockIdx.x) / ROWS + static_cast<int>(n) / 3 - 1;
        const bool has = row >= 0 && row < ROWS && plane >= 0 && plane < PLANES;
        return has ? row + ROWS * plane : S::BLOCKS;
    }
};

template <class S>
struct SharedCoefficients {
    const double* beta;
    const Point& p;
    __device__ __forceinline__ double operator()(int axis, int di, int dj, int dk) const {
        return beta[axis * S::VOLUME + p.at(di, dj, dk)];
    }
};

// A thread's pair of cells.
struct LegPair {
    int t, j, k;
    double rhs[2], weight[2];  // by colour

    // What becomes of the cell of one colour whose value in x is `old`: its residual.
    template <class S>
    __device__ __forceinline__ double residual(const S& share, const double* x, const double* beta, int colour) const {
        const Point p(share, t, (colour + j + k) & 1, j, k);
        const Inside<false> around(share, x, p);
        double ax = divergence<FV4>(share, around, Faces<SharedCoefficients<S>>{SharedCoefficients<S>{beta, p}});
        const auto& level = share.level;
        if (level.alpha) ax += level.a * __ldg(level.alpha + level.row(j, k) + t + colour * level.half) * around(0, 0, 0);
        return (colour ? rhs[1] : rhs[0]) - ax;
    }
};

template <class S>
__device__ __forceinline__ void run_leg(const Sized<S::n>& level, const Level& coarse, const Leg& leg) {
    HPGMG_BLOCKS_SHARED(values);
    // One that fails says so to the host, and those behind it fail soon: no branch here.
    mp::Meetings meetings(leg.signals, BlocksAround<S>::COUNT, BlocksAround<S>{});
    const S share(level);
    double *const x = values, *const beta = values + S::VOLUME;
    if (leg.zero) {
        for (int at = threadIdx.x; at < S::VOLUME; at += S::THREADS) x[at] = 0.0;
    } else {
        share.load(x, level.u, GHOSTS);
    }
#pragma unroll
    for (int axis = 0; axis < 3; axis++) share.load(beta + axis * S::VOLUME, level.beta[axis], 1);
    LegPair pairs[S::EACH];
#pragma unroll
    for (int m = 0; m < S::EACH; m++) {
        LegPair& pair = pairs[m];
        pair.t = threadIdx.x % S::PAIRS;
        pair.j = share.j0 + threadIdx.x / S::PAIRS % S::ROWS;
        pair.k = share.k0 + threadIdx.x / (S::PAIRS * S::ROWS) + m * S::STEP;
#pragma unroll
        for (int colour = 0; colour < 2; colour++) {
            const int at = level.row(pair.j, pair.k) + pair.t + colour * level.half;
            pair.rhs[colour] = __ldg(leg.rhs + at);
            pair.weight[colour] = __ldg(level.dinv + at);
        }
    }
    // A cell, here and where other blocks fetch it.
    auto store = [&](double* to, int t, int j, int k, int colour, double value) {
        x[share.row(j, k) + t + colour * S::half] = value;
        to[level.row(j, k) + t + colour * level.half] = value;
    };
    // Where what comes first goes, of a start that other blocks may still be reading: not where that is. All of what comes next goes there.
    double* first = leg.zero ? level.u : level.temp;
    if (leg.correct) {
        __shared__ Tile<1, S::PAIRS, S::ROWS / 2, S::PLANES / 2> tile;
        constexpr int PAIRS = S::PAIRS, ROWS = S::ROWS / 2, CELLS = PAIRS * ROWS * (S::PLANES / 2);
        static_assert(CELLS <= S::THREADS, "a thread a cell");
        tile.template fill<S::THREADS>(coarse, coarse.u, coarse.correct, 0, share.j0 / 2, share.k0 / 2, threadIdx.x);
        if (threadIdx.x < CELLS) {
            const int cell = threadIdx.x, i = cell % PAIRS, j = cell / PAIRS % ROWS, k = cell / (PAIRS * ROWS);
            double children[2][2][2];
            interpolate<1>([&](int di, int dj, int dk) { return tile.cells[k + 1 + dk][j + 1 + dj][i + 1 + di]; }, children);
#pragma unroll
            for (int child = 0; child < 8; child++) {
                const int pi = child & 1, fine_j = share.j0 + 2 * j + (child >> 1 & 1), fine_k = share.k0 + 2 * k + child / 4;
                const int colour = (pi + fine_j + fine_k) & 1;
                const double value = x[share.row(fine_j, fine_k) + i + colour * S::half] + children[child / 4][child >> 1 & 1][pi];
                store(first, i, fine_j, fine_k, colour, value);
            }
        }
        (void)meetings.meet();
        share.fetch(x, first, 0);
        share.fetch(x, first, 1);
        first = level.u;
    }
    for (int sweep = 0; sweep < 6; sweep++) {
        const int colour = sweep & 1;
        const bool from_zero = leg.zero && sweep == 0;
        if (sweep > 0) {
            (void)meetings.meet();
            share.fetch(x, sweep == 1 ? first : level.u, 1 - colour);
        }
        share.complete(x, sweep > 0 || leg.correct);
        double updated[S::EACH];
#pragma unroll
        for (int m = 0; m < S::EACH; m++) {
            const LegPair& pair = pairs[m];
            const double* const own = x + share.row(pair.j, pair.k) + pair.t;
            const double residual = from_zero ? (colour ? pair.rhs[1] : pair.rhs[0]) : pair.residual(share, x, beta, colour);
            updated[m] = own[colour * S::half] + (colour ? pair.weight[1] : pair.weight[0]) * residual;
        }
        // All have read what is changed.
        __syncthreads();
#pragma unroll
        for (int m = 0; m < S::EACH; m++) {
            const LegPair& pair = pairs[m];
            store(sweep == 0 ? first : level.u, pair.t, pair.j, pair.k, colour, updated[m]);
            if (sweep < 5) continue;
            // With the ghosts that other kernels read.
            const bool odd = (colour + pair.j + pair.k) & 1;
            const double kept = x[share.row(pair.j, pair.k) + pair.t + (1 - colour) * S::half];
            store_row(level, level.u, pair.t, pair.j, pair.k, odd ? kept : updated[m], odd ? updated[m] : kept);
        }
    }
    if (!leg.restrict) return;
    (void)meetings.meet();
    share.fetch(x, level.u, 1);
    share.complete(x, true);
    double sums[S::EACH];
#pragma unroll
    for (int m = 0; m < S::EACH; m++) {
        const LegPair& pair = pairs[m];
        const int even = (pair.j + pair.k) & 1;
        sums[m] = pair.residual(share, x, beta, even);
        sums[m] += pair.residual(share, x, beta, 1 - even);
    }
    // In place of x.
    __syncthreads();
    auto place = [&](int t, int j, int k) { return x + t + S::PAIRS * (j + S::ROWS * k); };
#pragma unroll
    for (int m = 0; m < S::EACH; m++) *place(pairs[m].t, pairs[m].j - share.j0, pairs[m].k - share.k0) = sums[m];
    __syncthreads();
    for (int cell = threadIdx.x; cell < S::PAIRS * (S::ROWS / 2) * (S::PLANES / 2); cell += S::THREADS) {
        const int i = cell % S::PAIRS, j = cell / S::PAIRS % (S::ROWS / 2), k = cell / (S::PAIRS * (S::ROWS / 2));
        auto pair_of_rows = [&](int dk) { return *place(i, 2 * j, 2 * k + dk) + *place(i, 2 * j + 1, 2 * k + dk); };
        coarse.r[coarse.at(i, share.j0 / 2 + j, share.k0 / 2 + k)] = 0.125 * (pair_of_rows(0) + pair_of_rows(1));
    }
}

}  // namespace hpgmg
