// Levels of 16, 8, 4, 2 and 1 cells a side, or of 12, 6 and 3, that stay in shared memory through all steps of a launch. A block has the levels
// of 8 cells and fewer; the largest is cut into pairs of planes over the blocks of a cluster, each with copies of the two planes next to
// its own, which the neighbours write. Rows are not halved by colour here: places around a cell are at constant
// distances, and with their two ghosts at either end no two lanes of a warp that updates a colour want the same bank.
//
// A thread has one cell of each level, and through a call of the smoother its coefficients in registers. A level of one block is worked on by
// no more threads than it has work for, so the coarsest is a warp's and needs no barrier. The sums are those of pass.cuh and
// bottom.cuh, in the same order.
#pragma once
#include "pass.cuh"
#include "resident.cuh"
#include "transfer.cuh"

namespace hpgmg {

// A level of N cells a side over BLOCKS blocks.
template <int N, int BLOCKS>
struct Shape {
    static constexpr int n = N, PLANES = N / BLOCKS;
    static constexpr int PITCH = N + 2 * GHOSTS, PLANE = PITCH * PITCH, VOLUME = PLANE * (PLANES + 2 * GHOSTS);
    // Of this block.
    static constexpr int CELLS = N * N * PLANES;
    static constexpr bool SPREAD = BLOCKS > 1;
    // That work on it: one for every cell and every ghost, as far as there are; of one that is spread all, since they meet those of other blocks.
    static constexpr int LARGER = CELLS > 6 * N * (N + 2) ? CELLS : 6 * N * (N + 2);
    static constexpr int THREADS = SPREAD ? RESIDENT_THREADS : N < 4 ? 32 : (LARGER + 31) / 32 * 32;
    // Doubles of shared memory: u twice, the coefficients, of its cells the right-hand side and the weights of the smoother, and those of
    // cells in the ghosts of either layer. A multiple of eight: from where the next level then begins, places are found in fewer instructions.
    static constexpr int SIZE = (5 * VOLUME + 2 * CELLS + 8 + 7) / 8 * 8;
    static_assert(CELLS <= RESIDENT_THREADS, "a thread a cell");
};

// Where a level begins in shared memory.
template <int N>
constexpr int HELD_OFFSET = HELD_OFFSET<N / 2> + Shape<N / 2, 1>::SIZE;
template <>
constexpr int HELD_OFFSET<2> = 0;
template <>
constexpr int HELD_OFFSET<3> = 0;
// The level of one cell, which fv4 does not have, lies behind the others of one block: these are where they would be without it.
template <>
constexpr int HELD_OFFSET<1> = HELD_OFFSET<8> + Shape<8, 1>::SIZE;
template <>
constexpr int HELD_OFFSET<16> = HELD_OFFSET<1> + Shape<1, 1>::SIZE;
static_assert(8 * HELD_OFFSET<16> == HELD_BYTES_ALONE, "as the host asks for");
static_assert(8 * (HELD_OFFSET<16> + Shape<16, HELD_BLOCKS>::SIZE) == HELD_BYTES, "as the host asks for");
static_assert(8 * (HELD_OFFSET<12> + Shape<12, HELD_BLOCKS_3>::SIZE) == HELD_BYTES_3, "as the host asks for");

// This block's number in its cluster.
__device__ __forceinline__ int block_of_cluster() { return blockIdx.x; }

// The shared memory that a launch asks for, and a meeting of the first THREADS threads of a block. On the host in tests/host/cuda.hpp.
#ifdef __CUDACC__
extern __shared__ double held_values[];
__device__ __forceinline__ double* held_shared() { return held_values; }
template <int THREADS>
__device__ __forceinline__ void meet_first() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
#endif

template <int N, int BLOCKS>
struct Held : Shape<N, BLOCKS> {
    using S = Shape<N, BLOCKS>;
    static constexpr int COUNT = BLOCKS;
    const Level& level;
    const double scale;
    const int first;  // plane of this block

    __device__ __forceinline__ explicit Held(const Level& level)
        : level(level), scale(level.scale), first(S::SPREAD ? S::PLANES * block_of_cluster() : 0) {}

    __device__ __forceinline__ static double* base() { return held_shared() + HELD_OFFSET<N>; }
    __device__ __forceinline__ static double* u(int turn = 0) { return base() + (turn & 1) * S::VOLUME; }
    __device__ __forceinline__ static double* beta(int axis) { return base() + (2 + axis) * S::VOLUME; }
    __device__ __forceinline__ static double* r() { return base() + 5 * S::VOLUME; }
    __device__ __forceinline__ static double* weights() { return r() + S::CELLS; }
    __device__ __forceinline__ static double* taps(int layer) { return weights() + S::CELLS + 4 * layer; }

    __device__ __forceinline__ int at(int i, int j, int k) const {
        return i + GHOSTS + S::PITCH * (j + GHOSTS) + S::PLANE * (k - first + GHOSTS);
    }
    // In right-hand side and weights.
    __device__ __forceinline__ int cell(int i, int j, int k) const { return i + N * (j + N * (k - first)); }

    // Waits for the other threads that work on this block's part.
    static __device__ __forceinline__ void meet() {
        if (S::THREADS == RESIDENT_THREADS) {
            __syncthreads();
        } else if (S::THREADS == 32) {
            __syncwarp();
        } else {
            meet_first<S::THREADS>();
        }
    }
    // And for those of all blocks.
    static __device__ __forceinline__ void meet_all() {
        if (S::SPREAD) {
            mp::cluster_barrier();
        } else {
            meet();
        }
    }
};

// Values that a block of a cluster sends to the two next to it, turn by turn: each is counted where it arrives, so that nobody waits for stores which
// are on their way, but for those that it needs. A block that has all of a neighbour's values of a turn knows that the neighbour has read
// all that it reads in that turn.
template <class L>
struct HeldTurns {
    int turn;  // of this launch

    static __device__ __forceinline__ bool has_low() { return block_of_cluster() > 0; }
    static __device__ __forceinline__ bool has_high() { return block_of_cluster() < L::COUNT - 1; }

    // Before a meeting of the cluster.
    static __device__ __forceinline__ void begin() {
        if (L::SPREAD && threadIdx.x == 0) mp::Arrivals::begin();
    }
    // Sends what this block has at `at` of a vector. Each of its cells is sent once in a turn.
    __device__ __forceinline__ void send(double* at, double value) const {
        constexpr int SHIFT = L::PLANES * L::PLANE;
        if (L::SPREAD && has_low()) mp::Arrivals::store(at + SHIFT, block_of_cluster() - 1, turn, value);
        if (L::SPREAD && has_high()) mp::Arrivals::store(at - SHIFT, block_of_cluster() + 1, turn, value);
    }
    // Ends the turn: waits for the threads of this block, and for the neighbours' values.
    __device__ __forceinline__ void meet() {
        if (!L::SPREAD) return L::meet();
        const mp::Arrivals arrivals(turn);
        if (threadIdx.x == 0) {
            const unsigned bytes = (has_low() + has_high()) * (L::CELLS * sizeof(double));
            arrivals.expect(bytes);
        }
        L::meet();
        arrivals.wait();
        turn++;
    }
};

// A thread's cell.
template <class L>
struct HeldCell {
    int i, j, k, colour;
    int own, compact;  // in vectors of shared memory, with ghosts and without
    bool has;

    // Of a level that is smoothed: those of one colour first.
    __device__ __forceinline__ explicit HeldCell(const L& held) {
        static_assert(L::n % 2 == 0, "as many cells of each colour");
        constexpr int N = L::n, HALF = L::CELLS / 2;
        const int cell = threadIdx.x % HALF;
        has = threadIdx.x < L::CELLS;
        colour = threadIdx.x / HALF & 1;
        j = cell / (N / 2) % N;
        k = cell / (N / 2 * N) + held.first;
        i = 2 * (cell % (N / 2)) + ((colour + j + k) & 1);
        own = held.at(i, j, k);
        compact = held.cell(i, j, k);
    }
    // Of the level that is solved, which one block has: number `compact`.
    __device__ __forceinline__ HeldCell(const L& held, int compact) : compact(compact) {
        constexpr int N = L::n;
        has = threadIdx.x < L::CELLS;
        i = compact % N, j = compact / N % N, k = compact / (N * N);
        colour = (i + j + k) & 1;
        own = held.at(i, j, k);
    }
};

// x and coefficients around it. `di` to `dk` are constants.
template <class L>
struct HeldAround {
    const double* x;
    __device__ __forceinline__ double operator()(int di, int dj, int dk) const { return x[di + L::PITCH * dj + L::PLANE * dk]; }
};
template <class L>
struct HeldCoefficients {
    int own;
    __device__ __forceinline__ double operator()(int axis, int di, int dj, int dk) const {
        return L::beta(axis)[own + di + L::PITCH * dj + L::PLANE * dk];
    }
};

// Ghosts beyond the cell at `base`, from it and those which lie `inward` of it.
struct HeldGhost {
    int base, inward;
};

// The ghosts that the operator reads, in this block's planes and the inner copies next to them: which they are does not change from
// one half-sweep to the next. Those at edges of the domain come about from ghosts in the same way.
template <int OPERATOR, class L>
struct HeldGhosts {
    static constexpr int N = L::n;
    static constexpr int SIDE = N * (L::PLANES + (L::SPREAD ? 2 : 0)), SIDES = 4 * SIDE;  // along i and j
    static constexpr int COUNT = SIDES + N * N * (L::SPREAD ? 1 : 2);                     // and along k
    static constexpr int COLUMNS = 4 * L::PLANES;                                         // edges along k
    static constexpr int EDGES = OPERATOR == FV4 ? COLUMNS + 4 * N * (L::SPREAD ? 1 : 2) : 0;
    static constexpr int TURNS = (COUNT + L::THREADS - 1) / L::THREADS, EDGE_TURNS = (EDGES + L::THREADS - 1) / L::THREADS;
    // Cells that the rule of the operator may read.
    static constexpr int USED = OPERATOR == FV4 && N >= 4 ? 4 : N >= 2 ? 2 : 1;

    HeldGhost ghosts[TURNS], edges[EDGE_TURNS + 1];

    __device__ __forceinline__ explicit HeldGhosts(const L& held) {
        // The side of the domain along k at which this block is; -1: none.
        const int end = !L::SPREAD ? 0 : held.first == 0 ? 0 : held.first + L::PLANES == N ? 1 : -1;
        // Edges need the ghosts of all the planes that they come about from.
        const int first = held.first - (!L::SPREAD ? 0 : end == 0 ? 0 : end == 1 ? 2 : 1);
        auto inner = [](int high) { return high ? N - 1 : 0; };
        auto inward = [](int high, int step) { return high ? -step : step; };
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            int item = threadIdx.x + turn * L::THREADS;
            HeldGhost& g = ghosts[turn];
            g = {-1, 0};
            if (item < SIDES) {
                const int side = item / SIDE, high = side & 1, along = item % N, k = first + item % SIDE / N;
                if (side < 2) {
                    g = {held.at(inner(high), along, k), inward(high, 1)};
                } else {
                    g = {held.at(along, inner(high), k), inward(high, L::PITCH)};
                }
                continue;
            }
            item -= SIDES;
            const int high = L::SPREAD ? end : item / (N * N);
            if (item >= COUNT - SIDES || high < 0) continue;
            g = {held.at(item % N, item / N % N, inner(high)), inward(high, L::PLANE)};
        }
#pragma unroll
        for (int turn = 0; turn < EDGE_TURNS; turn++) {
            const int item = threadIdx.x + turn * L::THREADS, row = item - COLUMNS, high_k = L::SPREAD ? end : row / (4 * N);
            // `base`: the ghost next to the edge.
            HeldGhost& g = edges[turn];
            g = {-1, 0};
            if (item < COLUMNS) {
                const int high_i = item & 1, high_j = item >> 1 & 1;
                g = {held.at(inner(high_i), inner(high_j), held.first + item / 4) - inward(high_i, 1), inward(high_j, L::PITCH)};
            } else if (item < EDGES && high_k >= 0) {
                const int side = row / N & 3, high = side & 1, along = row % N, k = inner(high_k);
                const int cell = side < 2 ? held.at(along, inner(high), k) : held.at(inner(high), along, k);
                g = {cell - inward(high, side < 2 ? L::PITCH : 1), inward(high_k, L::PLANE)};
            }
        }
    }

    // The ghost of a layer beyond `cells`.
    static __device__ __forceinline__ double beyond(const double (&cells)[USED], int layer) {
        const double* const taps = L::taps(layer);
        double sum = taps[0] * cells[0];
#pragma unroll
        for (int m = 1; m < USED; m++) sum += taps[m] * cells[m];
        return sum;
    }
    // All cells are loaded before a ghost is stored, which for all that the compiler knows is one of them.
    static __device__ __forceinline__ void extend(double* x, const HeldGhost& ghost, bool both) {
        if (ghost.base < 0) return;
        double* const from = x + ghost.base;
        double cells[USED];
#pragma unroll
        for (int m = 0; m < USED; m++) cells[m] = from[m * ghost.inward];
        const double near = beyond(cells, 0), far = both ? beyond(cells, 1) : 0.0;
        from[-ghost.inward] = near;
        if (both) from[-2 * ghost.inward] = far;
    }

    // Of x, seen by the threads of this block.
    __device__ __forceinline__ void fill(double* x) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) extend(x, ghosts[turn], OPERATOR == FV4);
        L::meet();
        if (EDGES == 0) return;
#pragma unroll
        for (int turn = 0; turn < EDGE_TURNS; turn++) extend(x, edges[turn], false);
        L::meet();
    }
};

// What a thread keeps of its cell.
template <int OPERATOR, class L>
struct HeldRow {
    const HeldCell<L>& cell;
    const HeldFaces faces;
    const double alpha;  // with its factor; 0 for Poisson
    const bool helmholtz;

    __device__ __forceinline__ HeldRow(const L& held, const HeldCell<L>& cell)
        : cell(cell), faces(HeldCoefficients<L>{cell.own}, OPERATOR == FV4),
          alpha(held.level.alpha ? held.level.a * __ldg(held.level.alpha + held.level.at(cell.i, cell.j, cell.k)) : 0.0),
          helmholtz(held.level.alpha) {}

    // A x.
    __device__ __forceinline__ double apply(const L& held, const double* x) const {
        const HeldAround<L> around{x + cell.own};
        double ax = divergence<OPERATOR>(held, around, faces);
        if (helmholtz) ax += alpha * around(0, 0, 0);
        return ax;
    }
};

// One call of a smoother, of six turns from `turn` on.
template <int OPERATOR, int STEP, class L>
__device__ __forceinline__ void smooth_held(const Resident& r, int l, const L& held, bool zero, int turn) {
    const Level& level = r.levels[l];
    const HeldCell<L> cell(held);
    const HeldGhosts<OPERATOR, L> ghosts(held);
    const HeldRow<OPERATOR, L> row(held, cell);
    const bool l1 = STEP == WEIGHTED && r.smoother == SMOOTH_L1_JACOBI;
    const double weight = L::weights()[cell.compact], rhs = L::r()[cell.compact];
    HeldTurns<L> turns{turn};
    // Kept: it would be worked out from the thread's number, which has to be asked for.
    int colour = cell.has ? cell.colour : -1;
    asm volatile("" : "+r"(colour));
    double previous = 0.0;
#pragma unroll 1
    for (int sweep = 0; sweep < 6; sweep++) {
        double* const from = L::u(sweep);
        const bool from_zero = zero && sweep == 0;
        if (!from_zero) ghosts.fill(from);
        double x = from_zero ? 0.0 : from[cell.own];
        const double before = x;
        if (STEP == GSRB ? colour == (sweep & 1) : cell.has) {
            const double ax = from_zero ? 0.0 : row.apply(held, from);
            const double scale = STEP == CHEBYSHEV ? level.c2[sweep] : l1 ? 1.0 : 2.0 / 3.0;
            const double last = STEP == CHEBYSHEV ? level.c1[sweep] : 0.0;
            x = stepped<STEP>(x, rhs - ax, weight, scale, last, sweep == 0, [&] { return previous; });
        }
        previous = before;
        if (cell.has) {
            double* const to = L::u(sweep + 1) + cell.own;
            *to = x;
            turns.send(to, x);
        }
        turns.meet();
    }
}

template <int OPERATOR, class L>
__device__ __noinline__ void smooth_level(const Resident& r, int l, bool zero, int turn) {
    if (threadIdx.x < L::THREADS) {
        const L held(r.levels[l]);
        switch (r.smoother) {
            case SMOOTH_GSRB: smooth_held<OPERATOR, GSRB>(r, l, held, zero, turn); break;
            case SMOOTH_CHEBYSHEV: smooth_held<OPERATOR, CHEBYSHEV>(r, l, held, zero, turn); break;
            default: smooth_held<OPERATOR, WEIGHTED>(r, l, held, zero, turn);
        }
    }
    __syncthreads();
}

// r of the next level = means of eight values, `value(i, j, k)` of this block's cells.
template <class Coarse, class L, class F>
__device__ __forceinline__ void means_held(const L& held, F value) {
    constexpr int half = L::n / 2;
    for (int cell = threadIdx.x; cell < half * half * (L::PLANES / 2); cell += L::THREADS) {
        const int i = cell % half, j = cell / half % half, k = cell / (half * half) + held.first / 2;
        auto pair = [&](int dj, int dk) {
            return value(2 * i, 2 * j + dj, 2 * k + dk) + value(2 * i + 1, 2 * j + dj, 2 * k + dk);
        };
        double* const to = Coarse::r() + i + half * (j + half * k);
        *(L::SPREAD ? mp::of_cluster_block(to, 0) : to) = 0.125 * ((pair(0, 0) + pair(1, 0)) + (pair(0, 1) + pair(1, 1)));
    }
}

template <int OPERATOR, class L, class Coarse>
__device__ __noinline__ void residual_restrict_level(const Resident& r, int l) {
    if (threadIdx.x < L::THREADS) {
        const L held(r.levels[l]);
        const HeldCell<L> cell(held);
        const HeldGhosts<OPERATOR, L> ghosts(held);
        ghosts.fill(L::u());
        double* const residuals = L::u(1);
        if (cell.has) {
            const HeldRow<OPERATOR, L> row(held, cell);
            residuals[cell.own] = L::r()[cell.compact] - row.apply(held, L::u());
        }
        L::meet();
        means_held<Coarse>(held, [&](int i, int j, int k) { return residuals[held.at(i, j, k)]; });
        L::meet_all();
    }
    __syncthreads();
}

template <class L, class Coarse>
__device__ __forceinline__ void restrict_level(const Resident& r, int l) {
    const L held(r.levels[l]);
    if (threadIdx.x < L::THREADS) {
        means_held<Coarse>(held, [&](int i, int j, int k) { return L::r()[held.cell(i, j, k)]; });
        L::meet_all();
    }
    __syncthreads();
}

// Ghosts of u along AXIS to DEPTH, by `rule`: of cells, and of the ghosts along the axes before.
template <int DEPTH, int AXIS, class L>
__device__ __forceinline__ void fill_along(const L& held, int rule) {
    constexpr int n = L::n, WIDE = n + 2 * DEPTH, ACROSS = AXIS > 0 ? WIDE : n, UP = AXIS > 1 ? WIDE : n, USED = n < 4 ? n : 4;
    constexpr int STEP = AXIS == 0 ? 1 : AXIS == 1 ? L::PITCH : L::PLANE;
    double weights[DEPTH][USED];
#pragma unroll
    for (int layer = 0; layer < DEPTH; layer++) {
#pragma unroll
        for (int m = 0; m < USED; m++) weights[layer][m] = TAPS[1 + 2 * rule + layer][m];
    }
    for (int item = threadIdx.x; item < 2 * ACROSS * UP; item += RESIDENT_THREADS) {
        const bool high = item >= ACROSS * UP;
        const int line = high ? item - ACROSS * UP : item, inward = high ? -STEP : STEP, first = high ? n - 1 : 0;
        const int a = line % ACROSS - (AXIS > 0 ? DEPTH : 0), b = line / ACROSS - (AXIS > 1 ? DEPTH : 0);
        double* const from = L::u() + (AXIS == 0 ? held.at(first, a, b) : AXIS == 1 ? held.at(a, first, b) : held.at(a, b, first));
        double cells[USED];
#pragma unroll
        for (int m = 0; m < USED; m++) cells[m] = from[m * inward];
#pragma unroll
        for (int layer = 0; layer < DEPTH; layer++) {
            double sum = 0.0;
#pragma unroll
            for (int m = 0; m < USED; m++) sum += weights[layer][m] * cells[m];
            from[-(1 + layer) * inward] = sum;
        }
    }
    __syncthreads();
}

// u of the finer level L = that of the next, interpolated, or with that added. All blocks of a level that is spread take part; the
// next level is the first block's.
template <int REACH, class L, class Coarse>
__device__ __noinline__ void prolong_level(const Resident& r, int l, int rule, bool add, int turn) {
    const L held(r.levels[l]);
    const Coarse coarse(r.levels[l + 1]);
    if (!L::SPREAD || block_of_cluster() == 0) {
        fill_along<REACH, 0>(coarse, rule);
        fill_along<REACH, 1>(coarse, rule);
        fill_along<REACH, 2>(coarse, rule);
    }
    // The planes that this block's are made of.
    if (L::SPREAD) {
        mp::cluster_barrier();
        if (block_of_cluster() != 0) {
            const int begin = coarse.at(-GHOSTS, -GHOSTS, held.first / 2 - REACH);
            const int end = coarse.at(-GHOSTS, -GHOSTS, (held.first + L::PLANES) / 2 + REACH);
            const double* const there = mp::of_cluster_block(Coarse::u(), 0);
            for (int at = begin + threadIdx.x; at < end; at += RESIDENT_THREADS) Coarse::u()[at] = there[at];
        }
        __syncthreads();
    }
    // Two children a thread.
    HeldTurns<L> turns{turn};
    constexpr int half = L::n / 2;
    if (threadIdx.x < L::CELLS / 2) {
        const int i = threadIdx.x % half, j = threadIdx.x / half % L::n, k = threadIdx.x / (half * L::n) + held.first;
        const double* const centre = Coarse::u() + coarse.at(i, j / 2, k / 2);
        double children[2];
        interpolate_two<REACH>([&](int di, int dj, int dk) { return centre[di + Coarse::PITCH * dj + Coarse::PLANE * dk]; }, j & 1, k & 1,
                               children);
        double* const to = L::u() + held.at(2 * i, j, k);
#pragma unroll
        for (int child = 0; child < 2; child++) {
            const double value = add ? to[child] + children[child] : children[child];
            to[child] = value;
            turns.send(to + child, value);
        }
    }
    if (L::SPREAD) {
        turns.meet();
    } else {
        __syncthreads();
    }
}

// BiCGStab of krylov/bicgstab.rs for 1, 8 or 27 cells, by one warp: a lane has a cell, its values in registers, and what lanes are left have
// the first ones again.
template <int OPERATOR, class L>
__device__ __noinline__ void solve_held(const Resident& r, int l, bool zero) {
    constexpr int N = L::n, CELLS = L::CELLS;
    static_assert(L::THREADS == 32 && CELLS <= 32, "of one warp");
    const L held(r.levels[l]);
    const HeldCell<L> cell(held, threadIdx.x % CELLS);
    const int i = cell.i, number = cell.compact;
    const HeldGhosts<OPERATOR, L> ghosts(held);
    const HeldRow<OPERATOR, L> row(held, cell);
    const double diagonal = L::weights()[number], rhs = L::r()[number];
    double* const operand = L::u();
    // A v.
    auto applied = [&](double v) {
        __syncwarp();
        if (cell.has) operand[cell.own] = v;
        __syncwarp();
        ghosts.fill(operand);
        return row.apply(held, operand);
    };
    // Row by row, then over the rows.
    auto dot = [&](double x, double y) {
        const double mine = x * y;
        double sums = 0.0, sum = 0.0;
        // A row is a cell, and the only one.
        if (N == 1) return sum + mine;
        if (N == 2) {
            const double beside = __shfl_xor_sync(~0u, mine, 1);
            sums = (0.0 + (i ? beside : mine)) + (i ? mine : beside);
        } else {
#pragma unroll
            for (int m = 0; m < N; m++) sums += __shfl_sync(~0u, mine, number - i + m);
        }
#pragma unroll
        for (int from = 0; from < CELLS; from += N) sum += __shfl_sync(~0u, sums, from);
        return sum;
    };
    auto norm = [&](double x) {
        unsigned long long largest = bits(x);
#pragma unroll
        for (int step = N > 2 ? 16 : CELLS / 2; step > 0; step /= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, step));
        return __longlong_as_double(largest);
    };
    auto solve = [&](double& x) {
        const double r0 = rhs - applied(x);
        double residual = r0, search = r0;
        double r_r0 = dot(residual, r0);
        const double start = norm(residual);
        if (r_r0 == 0.0 || start == 0.0) return 0;
        auto converged = [&](double norm) { return norm == 0.0 || norm < r.reduction * start; };
#pragma unroll 1
        for (int iteration = 1; iteration <= r.max_iterations; iteration++) {
            const double q = diagonal * search, ap = applied(q);
            const double ap_r0 = dot(ap, r0);
            const double alpha = r_r0 / ap_r0;
            if (ap_r0 == 0.0 || isinf(alpha)) return iteration;
            x = 1.0 * x + alpha * q;
            const double s = residual + -alpha * ap;
            if (converged(norm(s))) return iteration;
            const double t = diagonal * s, as = applied(t);
            const double as_as = dot(as, as), as_s = dot(as, s);
            const double omega = as_s / as_as;
            if (as_as == 0.0 || omega == 0.0 || isinf(omega)) return iteration;
            x = 1.0 * x + omega * t;
            residual = s + -omega * as;
            if (converged(norm(residual))) return iteration;
            const double next = dot(residual, r0);
            const double beta = (next / r_r0) * (alpha / omega);
            if (next == 0.0 || isinf(beta)) return iteration;
            search = 1.0 * search + -omega * ap;
            search = beta * search + 1.0 * residual;
            r_r0 = next;
        }
        return r.max_iterations;
    };
    double x = zero ? 0.0 : operand[cell.own];
    const int iterations = solve(x);
    __syncwarp();
    if (cell.has) operand[cell.own] = x;
    if (threadIdx.x == 0) *r.iterations += iterations;
}

// Calls f(i, j, plane) for every cell of so many planes of SIDE x SIDE: a thread has the same place in each of its planes.
template <int SIDE, class F>
__device__ __forceinline__ void each_of_planes(int planes, F f) {
    constexpr int AT_ONCE = RESIDENT_THREADS / (SIDE * SIDE);
    const int place = threadIdx.x % (SIDE * SIDE), i = place % SIDE, j = place / SIDE;
    if (threadIdx.x >= AT_ONCE * SIDE * SIDE) return;
    for (int plane = threadIdx.x / (SIDE * SIDE); plane < planes; plane += AT_ONCE) f(i, j, plane);
}

// Starts copying the coefficients and weights of a level; of the first that is worked on u and right-hand side, too. LAST: it is solved, not smoothed.
template <class L, bool LAST>
__device__ __forceinline__ void load_level(const Resident& r, int l) {
    const L held(r.levels[l]);
    const Level& level = r.levels[l];
    each_of_planes<L::n + 2>(L::PLANES + 2, [&](int i, int j, int plane) {
        const int to = held.at(i - 1, j - 1, held.first + plane - 1), from = level.at(i - 1, j - 1, held.first + plane - 1);
#pragma unroll
        for (int axis = 0; axis < 3; axis++) copy_one(L::beta(axis) + to, level.beta[axis] + from);
    });
    const double* const weights = !LAST && r.smoother == SMOOTH_L1_JACOBI ? level.l1inv : level.dinv;
    each_of_planes<L::n>(L::PLANES, [&](int i, int j, int plane) {
        const int to = held.cell(i, j, held.first + plane), from = level.at(i, j, held.first + plane);
        copy_one(L::weights() + to, weights + from);
        if (l == r.first) copy_one(L::r() + to, level.r + from);
    });
    if (threadIdx.x < 8) L::taps(0)[threadIdx.x] = TAPS[1 + 2 * level.boundary + threadIdx.x / 4][threadIdx.x % 4];
    // u by stores, which tools that look for races see.
    if (l != r.first || r.steps[0].op == OP_RESTRICT || r.steps[0].zero) return;
    each_of_planes<L::n>(L::PLANES + 2 * GHOSTS, [&](int i, int j, int plane) {
        const int k = held.first + plane - GHOSTS;
        if (k >= 0 && k < L::n) L::u()[held.at(i, j, k)] = level.u[level.at(i, j, k)];
    });
}

// u of the first level that is worked on, with the ghosts along i that passes of other kernels read.
template <class L>
__device__ __forceinline__ void save_level(const Resident& r, int l) {
    const L held(r.levels[l]);
    const Level& level = r.levels[l];
    for (int item = threadIdx.x; item < L::PITCH * L::n * L::PLANES; item += RESIDENT_THREADS) {
        const int i = item % L::PITCH - GHOSTS, j = item / L::PITCH % L::n, k = held.first + item / (L::PITCH * L::n);
        const double* const row = L::u() + held.at(0, j, k);
        const int layer = i < 0 ? -1 - i : i - L::n, first = i < 0 ? 0 : L::n - 1, inward = i < 0 ? 1 : -1;
        auto inside = [&](int m) { return m < L::n ? row[first + m * inward] : 0.0; };
        level.u[level.at(i, j, k)] =
            layer < 0 ? row[i] : ghost(level.boundary, layer, inside(0), inside(1), inside(2), inside(3));
    }
}

}  // namespace hpgmg
