// The operator fv4 on large levels: a block marches through planes with x around its tile in shared memory, in a ring of
// planes of which the next is copied in while one is computed. Every value of x then comes from the second-level cache
// once for a block and plane, not once for every row and plane that reads it; the coefficients, read by fewer cells, stay
// with the first-level cache (in shared memory too they left no room for it and were slower). For levels of a multiple
// of 64 cells a side.
#pragma once
#include "pass.cuh"

namespace hpgmg {

// A block's tile of a plane: so many rows of so many pairs of cells, a thread each.
struct Ring {
    static constexpr int PLANES = 6;              // k-2 .. k+2, and the next
    static constexpr int SIDE = BLOCK_PAIRS + 4;  // of a row and colour: pairs -2 .. 33
    static constexpr int ROW = 2 * SIDE;
    static constexpr int ROWS = BLOCK_ROWS + 2 * GHOSTS;
    static constexpr int PLANE = ROWS * ROW;

    double cells[PLANES][PLANE];

    __device__ __forceinline__ double* plane(int k) { return cells[static_cast<unsigned>(k + PLANES) % PLANES]; }
};

// A block's column of tiles, by blockIdx.x and .y, and this thread's place in it.
template <class L>
struct Column {
    const L& level;
    const double* x;
    Ring& ring;
    const int t0, j0;  // first pair and row of the tile
    const int t, j;    // of the thread
    const int thread;
    const int place;  // of its pairs in a plane of the ring, colour 0

    __device__ __forceinline__ Column(const L& level, const double* x, Ring& ring)
        : level(level), x(x), ring(ring), t0(blockIdx.x * BLOCK_PAIRS), j0(blockIdx.y * BLOCK_ROWS), t(t0 + threadIdx.x),
          j(j0 + threadIdx.y), thread(threadIdx.x + BLOCK_PAIRS * threadIdx.y),
          place((threadIdx.y + GHOSTS) * Ring::ROW + 2 + threadIdx.x) {}

    // Starts copying plane k of the domain.
    __device__ __forceinline__ void load(int k) const {
        constexpr int CHUNKS = Ring::PLANE / 2, SIDE = Ring::SIDE / 2;
        double* to = ring.plane(k);
        const double* from = x + level.row(j0 - GHOSTS, k) + t0 - 2;
#pragma unroll
        for (int turn = 0; turn < (CHUNKS + BLOCK_THREADS - 1) / BLOCK_THREADS; turn++) {
            const int chunk = thread + turn * BLOCK_THREADS;
            const int side = chunk / SIDE, at = 2 * (chunk % SIDE);
            if (chunk < CHUNKS) copy_two(to + 2 * chunk, from + side * level.half + at);
        }
    }

    // Ghost rows beyond the domain in plane k, from the rows inside.
    __device__ __forceinline__ void extend_rows(int k) const {
        double* const first = ring.plane(k) + GHOSTS * Ring::ROW;
        auto extend = [&](double* row, int inward) {
            extend_row<Ring::SIDE, BLOCK_THREADS>(level.boundary, row, row + Ring::SIDE, inward, thread);
        };
        if (j0 == 0) extend(first, Ring::ROW);
        if (j0 + BLOCK_ROWS == level.n) extend(first + (BLOCK_ROWS - 1) * Ring::ROW, -Ring::ROW);
    }

    // The two ghost planes beyond plane k, the first (step 1) or last (step -1) of the domain.
    __device__ __forceinline__ void extend_planes(int k, int step) const {
        hpgmg::extend_planes<Ring::SIDE, Ring::PLANE, BLOCK_THREADS>(level.boundary, k, step, thread, [&](int k) { return ring.plane(k); });
    }

    // Calls f(k) for the planes [first, end) while x around plane k is in the ring; all threads of the block together. Both
    // are even: the last two planes of the domain are never apart.
    template <class F>
    __device__ __forceinline__ void march(int first, int end, F f) const {
        const bool beside = j0 == 0 || j0 + BLOCK_ROWS == level.n;
        // The ghosts in front of the domain are sums of planes 0 to 3.
        const int ahead = first == 0 ? 3 : 2;
        const int last = min(end + 1, level.n - 1);  // that is read
        const int begin = max(first - 2, 0), loaded = min(first + ahead, last);
        for (int k = begin; k <= loaded; k++) load(k);
        copied();
        __syncthreads();
        if (beside) {
            for (int k = begin; k <= loaded; k++) extend_rows(k);
            __syncthreads();
        }
        if (first == 0) extend_planes(0, 1);
        for (int k = first; k < end; k++) {
            copied();
            __syncthreads();
            if (beside && k + 2 <= last && k + 2 > loaded) {
                extend_rows(k + 2);
                __syncthreads();
            }
            if (k == level.n - 2) {
                extend_planes(level.n - 1, -1);
                __syncthreads();
            }
            // All have read the plane in whose place it goes before the barrier above.
            if (k + 3 <= last && k + 3 > loaded) load(k + 3);
            f(k);
        }
    }
};

// x around a cell, from the ring.
struct Around {
    const double* planes[5];  // k-2 .. k+2
    int own, other;           // offsets in a plane, as in Point
    int odd;

    template <class C>
    __device__ __forceinline__ Around(const C& column, const Point& p, int k) : odd(p.odd) {
#pragma unroll
        for (int dk = -2; dk <= 2; dk++) planes[dk + 2] = column.ring.plane(k + dk);
        const int colour = (p.i + p.j + p.k) & 1;
        own = column.place + colour * Ring::SIDE;
        other = column.place + (1 - colour) * Ring::SIDE;
    }
    // `di` to `dk` are constants.
    __device__ __forceinline__ double operator()(int di, int dj, int dk) const {
        const int shift = di == 0 ? 0 : di == 2 ? 1 : di == -2 ? -1 : di == 1 ? odd : odd - 1;
        return planes[dk + 2][(((di + dj + dk) & 1) ? other : own) + shift + dj * Ring::ROW];
    }
    // The other cell of the pair.
    __device__ __forceinline__ double beside() const { return planes[2][other]; }
};

// New values of a pair by half-sweep `sweep`.
template <class L>
__device__ __forceinline__ void gsrb_pair(const L& level, const Pass& pass, const Column<L>& column, int k, double& even,
                                          double& odd) {
    const Point p(level, column.t, (pass.sweep + column.j + k) & 1, column.j, k);
    const Around x(column, p, k);
    const double kept = x.beside();
    const double updated = x(0, 0, 0) + __ldg(level.dinv + p.own) * (__ldg(pass.rhs + p.own) - apply<FV4>(level, p, x));
    even = p.odd ? kept : updated;
    odd = p.odd ? updated : kept;
}

template <class L>
__device__ __forceinline__ void residual_pair(const L& level, const Pass& pass, const Column<L>& column, int k, double& even,
                                              double& odd) {
    even = odd = 0.0;
    // One cell after the other: both at once need too many registers.
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        const Point p(level, column.t, side, column.j, k);
        const double residual = __ldg(pass.rhs + p.own) - apply<FV4>(level, p, Around(column, p, k));
        (side ? odd : even) = residual;
    }
}

// A half-sweep over the planes [first, end); `store(column, k, even, odd)` as store_row.
template <class L, class Store>
__device__ __forceinline__ void gsrb_planes(const L& level, const Pass& pass, Ring& ring, int first, int end, Store store) {
    const Column<L> column(level, pass.x, ring);
    column.march(first, end, [&](int k) {
        double even, odd;
        gsrb_pair(level, pass, column, k, even, odd);
        store(column, k, even, odd);
    });
}

// Means of the residuals onto the coarser level. `first` is even.
struct PairSums {
    double of[2][BLOCK_ROWS][BLOCK_PAIRS];
};

template <class L>
__device__ __forceinline__ void residual_restrict_planes(const L& level, const Level& coarse, const Pass& pass, Ring& ring,
                                                         PairSums& sums, int first, int end) {
    const Column<L> column(level, pass.x, ring);
    const int i = threadIdx.x, a = threadIdx.y;
    column.march(first, end, [&](int k) {
        double even, odd;
        residual_pair(level, pass, column, k, even, odd);
        sums.of[k & 1][a][i] = even + odd;
        if (!(k & 1)) return;
        __syncthreads();
        if (a % 2 == 0) {
            const double sum = (sums.of[0][a][i] + sums.of[0][a + 1][i]) + (sums.of[1][a][i] + sums.of[1][a + 1][i]);
            pass.out[coarse.at(column.t, column.j / 2, k / 2)] = 0.125 * sum;
        }
    });
}

// max |residual| of this thread's cells, as bits.
template <class L>
__device__ __forceinline__ unsigned long long residual_largest(const L& level, const Pass& pass, Ring& ring, int first,
                                                               int end) {
    const Column<L> column(level, pass.x, ring);
    unsigned long long mine = 0;
    column.march(first, end, [&](int k) {
        double even, odd;
        residual_pair(level, pass, column, k, even, odd);
        mine = max(mine, max(bits(even), bits(odd)));
    });
    return mine;
}

}  // namespace hpgmg
