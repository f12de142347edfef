// The half-sweep of fv4 on large levels: a block marches through planes with the iterate around its tile in shared memory,
// in a ring of planes of which the next is copied in while one is computed. Every value of x comes from the second-level
// cache once per block instead of once per row and plane that reads it.
#pragma once
#include "pass.cuh"

namespace hpgmg {

// A block's tile of a plane: so many rows of so many pairs of cells, a thread each.
constexpr int MARCH_ROWS = 8, MARCH_PAIRS = 32;
constexpr int MARCH_THREADS = MARCH_ROWS * MARCH_PAIRS;

struct Ring {
    static constexpr int PLANES = 6;              // k-2 .. k+2, and the next
    static constexpr int SIDE = MARCH_PAIRS + 4;  // of a row and colour: pairs -2 .. 33
    static constexpr int ROW = 2 * SIDE;
    static constexpr int ROWS = MARCH_ROWS + 2 * GHOSTS;
    static constexpr int PLANE = ROWS * ROW;

    double cells[PLANES][PLANE];

    __device__ __forceinline__ double* plane(int k) { return cells[static_cast<unsigned>(k + PLANES) % PLANES]; }
};

__device__ __forceinline__ void copy_async(double* shared, const double* global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

__device__ __forceinline__ void copied() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// x around the cell that a thread updates, from the ring.
struct Around {
    const double* planes[5];  // k-2 .. k+2
    int own, other;           // offsets in a plane, as in Point
    int odd;
    // `di` to `dk` are constants.
    __device__ __forceinline__ double operator()(int di, int dj, int dk) const {
        const int shift = di == 0 ? 0 : di == 2 ? 1 : di == -2 ? -1 : di == 1 ? odd : odd - 1;
        return planes[dk + 2][(((di + dj + dk) & 1) ? other : own) + shift + dj * Ring::ROW];
    }
};

// A block's tile and the planes [k, end) that it marches through.
template <class L>
struct Marcher {
    const L& level;
    const double* x;
    Ring& ring;
    const int t0, j0, thread;

    __device__ __forceinline__ Marcher(const L& level, const double* x, Ring& ring, int t0, int j0)
        : level(level), x(x), ring(ring), t0(t0), j0(j0), thread(threadIdx.x + MARCH_PAIRS * threadIdx.y) {}

    // Starts copying plane k of the domain.
    __device__ __forceinline__ void load(int k) const {
        constexpr int CHUNKS = Ring::PLANE / 2, SIDE = Ring::SIDE / 2;
        double* to = ring.plane(k);
        const double* from = x + level.row(j0 - GHOSTS, k) + t0 - 2;
#pragma unroll
        for (int turn = 0; turn < (CHUNKS + MARCH_THREADS - 1) / MARCH_THREADS; turn++) {
            const int chunk = thread + turn * MARCH_THREADS;
            const int side = chunk / SIDE, at = 2 * (chunk % SIDE);
            if (chunk < CHUNKS) copy_async(to + 2 * chunk, from + side * level.half + at);
        }
    }

    // Ghost rows beyond the domain in plane k, from the rows inside.
    __device__ __forceinline__ void extend_rows(int k) const {
        double* plane = ring.plane(k);
        for (int item = thread; item < GHOSTS * Ring::ROW; item += MARCH_THREADS) {
            const int layer = item / Ring::ROW, at = item % Ring::ROW;
            for (int high = 0; high < 2; high++) {
                if (high ? j0 + MARCH_ROWS != level.n : j0 != 0) continue;
                // Along j the colour of a cell changes, and the halves of the row with it.
                const int row = high ? GHOSTS + MARCH_ROWS + layer : GHOSTS - 1 - layer, step = high ? -1 : 1;
                const int first = high ? GHOSTS + MARCH_ROWS - 1 : GHOSTS;
                const int flipped = at < Ring::SIDE ? at + Ring::SIDE : at - Ring::SIDE;
                double sum = 0.0;
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    const int from = first + m * step;
                    sum += TAPS[1 + 2 * level.boundary + layer][m] * plane[from * Ring::ROW + ((row - from) & 1 ? flipped : at)];
                }
                plane[row * Ring::ROW + at] = sum;
            }
        }
    }

    // The two ghost planes beyond plane k, the first (step 1) or last (step -1) of the domain, from that and the next three.
    __device__ __forceinline__ void extend_planes(int k, int step) const {
        for (int at = thread; at < Ring::PLANE; at += MARCH_THREADS) {
            const int flipped = at % Ring::ROW < Ring::SIDE ? at + Ring::SIDE : at - Ring::SIDE;
            double cells[4];
#pragma unroll
            for (int m = 0; m < 4; m++) cells[m] = ring.plane(k + m * step)[m & 1 ? flipped : at];
#pragma unroll
            for (int layer = 0; layer < GHOSTS; layer++) {
                double sum = 0.0;
#pragma unroll
                for (int m = 0; m < 4; m++) sum += TAPS[1 + 2 * level.boundary + layer][m] * cells[m];
                // cells[0] lies one plane inward of layer 0, two of layer 1.
                ring.plane(k - (layer + 1) * step)[layer == 0 ? flipped : at] = sum;
            }
        }
    }

    // Calls f(k, around) for the planes [k, end); `around` is for the cell of the pair that half-sweep `sweep` updates.
    template <class F>
    __device__ __forceinline__ void march(int first, int end, int sweep, F f) const {
        const bool beside = j0 == 0 || j0 + MARCH_ROWS == level.n;
        // The ghosts in front of the domain are sums of planes 0 to 3.
        const int ahead = first == 0 ? 3 : 2;
        for (int k = max(first - 2, 0); k <= first + ahead; k++) load(k);
        copied();
        __syncthreads();
        if (beside) {
            for (int k = max(first - 2, 0); k <= first + ahead; k++) extend_rows(k);
            __syncthreads();
        }
        if (first == 0) extend_planes(0, 1);
        const int own = (threadIdx.y + GHOSTS) * Ring::ROW + 2 + threadIdx.x;
        for (int k = first; k < end; k++) {
            copied();
            __syncthreads();
            if (beside && k > first && k + 2 < level.n) {
                extend_rows(k + 2);
                __syncthreads();
            }
            if (k == level.n - 2) {
                extend_planes(level.n - 1, -1);
                __syncthreads();
            }
            // The plane in whose place it goes was read by all before the barrier.
            if (k + 3 < min(end + 2, level.n) && k + 3 > first + ahead) load(k + 3);
            Around around;
#pragma unroll
            for (int dk = -2; dk <= 2; dk++) around.planes[dk + 2] = ring.plane(k + dk);
            const int j = j0 + threadIdx.y, odd = (sweep + j + k) & 1, colour = (odd + j + k) & 1;
            around.odd = odd;
            around.own = own + colour * Ring::SIDE;
            around.other = own + (1 - colour) * Ring::SIDE;
            f(k, around);
        }
    }
};

template <class L>
__device__ __forceinline__ void gsrb_march(const L& level, const Pass& pass, Ring& ring) {
    const int t0 = blockIdx.x * MARCH_PAIRS, j0 = blockIdx.y * MARCH_ROWS;
    const int first = blockIdx.z * pass.planes, end = min(first + pass.planes, level.n);
    const int t = t0 + threadIdx.x, j = j0 + threadIdx.y;
    const Marcher<L> marcher(level, pass.x, ring, t0, j0);
    marcher.march(first, end, pass.sweep, [&](int k, const Around& x) {
        const Point p(level, t, x.odd, j, k);
        const double kept = x.planes[2][x.other];
        const double c = x(0, 0, 0);
        const double updated = c + __ldg(level.dinv + p.own) * (__ldg(pass.rhs + p.own) - apply<FV4>(level, p, x));
        store_row(level, pass.out, t, j, k, x.odd ? kept : updated, x.odd ? updated : kept);
    });
}

}  // namespace hpgmg
