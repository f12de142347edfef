// Kernels over one level, a warp per 32 pairs of cells of a row, blocks marching through planes. Bytes of a GSRB
// half-sweep of fv4 per cell: x 8, coefficients 24, right-hand side and diagonal of one colour 4 + 4, result 8: 48.
#ifdef __CUDACC__
#include "column.cuh"
#endif
#include "pass.cuh"
#include "transfer.cuh"

namespace hpgmg {

__device__ __forceinline__ void raise(unsigned long long* largest, unsigned long long mine) {
    for (int step = 16; step > 0; step /= 2) mine = max(mine, __shfl_xor_sync(~0u, mine, step));
    if (threadIdx.x == 0 && mine > *static_cast<volatile unsigned long long*>(largest)) atomicMax(largest, mine);
}

struct Place {
    int t, j, k, end;
    bool mine;
    __device__ __forceinline__ explicit Place(const Extent& extent)
        : t(extent.first[0] + blockIdx.x * BLOCK_PAIRS + threadIdx.x), j(extent.first[1] + blockIdx.y * blockDim.y + threadIdx.y),
          k(extent.first[2] + blockIdx.z * extent.each), end(min(extent.end[2], k + extent.each)),
          mine(t < extent.end[0] && j < extent.end[1]) {}
    // Band by band of rows, so that the planes of one are still in the second-level cache when the next block along k
    // reads them.
    __device__ __forceinline__ Place(const Pass& pass, int n, int each)
        : t(blockIdx.x * BLOCK_PAIRS + threadIdx.x),
          j((blockIdx.z / pass.tiles * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y),
          k(blockIdx.z % pass.tiles * each), end(min(n, k + each)), mine(2 * t < n && j < n) {}
};

template <int OPERATOR, int STEP, bool ZERO, class L>
__device__ __forceinline__ void pass_level(const L& level, const Pass& pass) {
    const Place p(pass, level.n, pass.planes);
    for (int k = p.k; k < p.end; k++) {
        double even = 0.0, odd = 0.0;
        if (p.mine) any_pair<OPERATOR, STEP, ZERO>(level, pass, p.t, p.j, k, even, odd);
        store_row<wraps(OPERATOR)>(level, pass.out, p.t, p.j, k, even, odd);
    }
}

// Means of the residuals onto the coarser level: pass.out is a vector of it. A thread does a pair of cells; four of them
// make a coarse cell. Blocks are 32 x 4 x 2.
template <int OPERATOR>
__device__ __forceinline__ void residual_restrict(const Level& level, const Level& coarse, const Pass& pass) {
    __shared__ double sums[2][2][4][BLOCK_PAIRS];
    const Place p(pass, level.n, 2 * pass.planes);
    const int a = threadIdx.y, b = threadIdx.z, i = threadIdx.x;
    int turn = 0;
    for (int k = p.k; k < p.end; k += 2, turn ^= 1) {
        if (p.mine) {
            double even, odd;
            any_pair<OPERATOR, RESIDUAL, false>(level, pass, p.t, p.j, k + b, even, odd);
            sums[turn][b][a][i] = even + odd;
        }
        // Two buffers: the next turn writes the other while slow threads still read this one.
        __syncthreads();
        if (b == 0 && a % 2 == 0 && p.t < coarse.n && p.j / 2 < coarse.n) {
            const double sum = (sums[turn][0][a][i] + sums[turn][0][a + 1][i]) + (sums[turn][1][a][i] + sums[turn][1][a + 1][i]);
            pass.out[coarse.at(p.t, p.j / 2, k / 2)] = 0.125 * sum;
        }
    }
}

// max |residual|.
template <int OPERATOR>
__device__ __forceinline__ void residual_norm(const Level& level, const Pass& pass, unsigned long long* largest) {
    const Place p(pass, level.n, pass.planes);
    unsigned long long mine = 0;
    if (p.mine) {
        for (int k = p.k; k < p.end; k++) {
            double even, odd;
            any_pair<OPERATOR, RESIDUAL, false>(level, pass, p.t, p.j, k, even, odd);
            mine = max(mine, max(bits(even), bits(odd)));
        }
    }
    raise(largest, mine);
}

// Blocks that interpolate are BLOCK_PAIRS x TILE x TILE.
constexpr int TILE_THREADS = BLOCK_PAIRS * TILE * TILE;
// Those that a multiprocessor runs at once: what is added to is kept in registers meanwhile.
__host__ __device__ constexpr int tile_blocks(bool add) { return add ? 2 : 3; }
__device__ __forceinline__ int thread_of_tile() { return threadIdx.x + BLOCK_PAIRS * (threadIdx.y + TILE * threadIdx.z); }

// The eight children of coarse cell (i, j, k), [k][j][i], as they are before something is added to them: loaded early, for they are waited for.
__device__ __forceinline__ void load_children(const Level& fine, const double* from, int i, int j, int k, double (&children)[2][2][2]) {
#pragma unroll
    for (int row = 0; row < 4; row++) {
        const int pj = row & 1, pk = row >> 1, fine_j = 2 * j + pj, fine_k = 2 * k + pk, q = (fine_j + fine_k) & 1;
        const double* const at = from + fine.row(fine_j, fine_k) + i;
        children[pk][pj][0] = at[q * fine.half];
        children[pk][pj][1] = at[(1 - q) * fine.half];
    }
}
// Calls store(fine_j, fine_k, even, odd) for the rows of the children, or of the sums with those `before`.
template <bool ADD, class Store>
__device__ __forceinline__ void store_children(int j, int k, const double (&before)[2][2][2], const double (&children)[2][2][2], const Store& store) {
#pragma unroll
    for (int row = 0; row < 4; row++) {
        const int pj = row & 1, pk = row >> 1;
        const double even = children[pk][pj][0], odd = children[pk][pj][1];
        store(2 * j + pj, 2 * k + pk, ADD ? before[pk][pj][0] + even : even, ADD ? before[pk][pj][1] + odd : odd);
    }
}

// fine = P coarse, or fine += P coarse.
template <int RULE, bool ADD, bool WRAPPED = false>
__device__ __forceinline__ void prolong(const Level& coarse, const Level& fine, const double* from, double* to) {
    __shared__ TileOfChildren<RULE> tile;
    // The last tiles along j and k begin early enough to hold the cells that the ghosts are sums of.
    const int i0 = blockIdx.x * BLOCK_PAIRS, j0 = min(blockIdx.y * TILE, max(coarse.n - TILE, 0)),
              k0 = min(blockIdx.z * TILE, max(coarse.n - TILE, 0));
    const int i = i0 + threadIdx.x, j = j0 + threadIdx.y, k = k0 + threadIdx.z;
    const bool mine = i < coarse.n && j < coarse.n && k < coarse.n && j >= blockIdx.y * TILE && k >= blockIdx.z * TILE;
    double before[2][2][2] = {};
    if (ADD && mine) load_children(fine, to, i, j, k, before);
    tile.coarse.template fill<TILE_THREADS, WRAPPED>(coarse, from, ADD ? coarse.correct : coarse.replace, i0, j0, k0, thread_of_tile());
    tile.interpolate(thread_of_tile(), TILE_THREADS);
    double children[2][2][2] = {};
    if (mine) tile.children(threadIdx.x, threadIdx.y, threadIdx.z, children);
    // A warp is one row of coarse cells: all of it is `mine` along j and k or nothing.
    if (!__any_sync(~0u, mine)) return;
    store_children<ADD>(j, k, before, children, [&](int fine_j, int fine_k, double even, double odd) {
        store_row<WRAPPED>(fine, to, i, fine_j, fine_k, even, odd);
    });
}

}  // namespace hpgmg

using namespace hpgmg;

// Blocks of a pass that a multiprocessor runs at once.
constexpr int PASS_BLOCKS = 2;
#define HPGMG_PASS(name, OPERATOR, STEP, ZERO)                                                              \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)                                 \
        hpgmg_##name(const __grid_constant__ Level level, const __grid_constant__ Pass pass) {              \
        pass_level<OPERATOR, STEP, ZERO>(level, pass);                                                      \
    }
#define HPGMG_OPERATOR(name, OPERATOR)                                                                      \
    HPGMG_PASS(name##_gsrb, OPERATOR, GSRB, false)                                                          \
    HPGMG_PASS(name##_gsrb_zero, OPERATOR, GSRB, true)                                                      \
    HPGMG_PASS(name##_weighted, OPERATOR, WEIGHTED, false)                                                  \
    HPGMG_PASS(name##_weighted_zero, OPERATOR, WEIGHTED, true)                                              \
    HPGMG_PASS(name##_chebyshev, OPERATOR, CHEBYSHEV, false)                                                \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)                                                    \
        hpgmg_##name##_residual_restrict(const __grid_constant__ Level level,                               \
                                         const __grid_constant__ Level coarse,                              \
                                         const __grid_constant__ Pass pass) {                               \
        residual_restrict<OPERATOR>(level, coarse, pass);                                                   \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)                                 \
        hpgmg_##name##_residual_norm(const __grid_constant__ Level level,                                   \
                                     const __grid_constant__ Pass pass, unsigned long long* largest) {      \
        residual_norm<OPERATOR>(level, pass, largest);                                                      \
    }

// A half-sweep for levels of one size: offsets are constants of the instructions.
#define HPGMG_SIZED(N)                                                                                      \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)                                 \
        hpgmg_fv4_gsrb_##N(const __grid_constant__ Level level, const __grid_constant__ Pass pass) {        \
        pass_level<FV4, GSRB, false>(Sized<N>(level), pass);                                                \
    }
HPGMG_SIZED(16)

// Passes of large levels, column by column; not on the host, which has no asynchronous copies.
#ifdef __CUDACC__
#define HPGMG_COLUMN_GSRB(name, LEVEL)                                                                      \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)                                         \
        hpgmg_fv4_column_gsrb##name(const __grid_constant__ Level level, const __grid_constant__ Pass pass) { \
        __shared__ Ring ring;                                                                               \
        const int first = blockIdx.z * pass.planes, end = min(first + pass.planes, level.n);                \
        const auto here = LEVEL;                                                                            \
        gsrb_planes(here, pass, ring, first, end, [&](const auto& column, int k, double even, double odd) { \
            store_row(here, pass.out, column.t, column.j, k, even, odd);                                    \
        });                                                                                                 \
    }
HPGMG_COLUMN_GSRB(, level)
HPGMG_COLUMN_GSRB(_64, Sized<64>(level))
HPGMG_COLUMN_GSRB(_128, Sized<128>(level))
HPGMG_COLUMN_GSRB(_256, Sized<256>(level))
HPGMG_COLUMN_GSRB(_512, Sized<512>(level))

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)
    hpgmg_fv4_column_residual_restrict(const __grid_constant__ Level level, const __grid_constant__ Level coarse,
                                       const __grid_constant__ Pass pass) {
    __shared__ Ring ring;
    __shared__ PairSums sums;
    const int first = blockIdx.z * pass.planes, end = min(first + pass.planes, level.n);
    residual_restrict_planes(level, coarse, pass, ring, sums, first, end);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)
    hpgmg_fv4_column_residual_norm(const __grid_constant__ Level level, const __grid_constant__ Pass pass,
                                   unsigned long long* largest) {
    __shared__ Ring ring;
    const int first = blockIdx.z * pass.planes, end = min(first + pass.planes, level.n);
    raise(largest, residual_largest(level, pass, ring, first, end));
}
#endif

HPGMG_OPERATOR(fv4, FV4)
HPGMG_OPERATOR(fv2, FV2)

#define HPGMG_PROLONG(name, RULE, ADD, WRAPPED)                                                             \
    extern "C" __global__ void __launch_bounds__(TILE_THREADS, tile_blocks(ADD))                            \
        hpgmg_##name(const __grid_constant__ Level coarse, const __grid_constant__ Level fine,              \
                     const double* from, double* to) {                                                      \
        prolong<RULE, ADD, WRAPPED>(coarse, fine, from, to);                                                \
    }
HPGMG_PROLONG(correct, AVERAGES_QUADRATIC, true, false)
HPGMG_PROLONG(replace_quadratic, AVERAGES_QUADRATIC, false, false)
HPGMG_PROLONG(replace_quartic, AVERAGES_QUARTIC, false, false)

// to = means of from; where `largest` is given also max |from|.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    hpgmg_restrict(const __grid_constant__ Level fine, const __grid_constant__ Level coarse, const double* from, double* to,
                   const __grid_constant__ Extent extent, unsigned long long* largest) {
    const Place p(extent);
    unsigned long long mine = 0;
    if (p.mine) {
        for (int k = p.k; k < p.end; k++) {
            double sums[2][2];
#pragma unroll
            for (int b = 0; b < 2; b++) {
#pragma unroll
                for (int a = 0; a < 2; a++) {
                    const double* at = from + fine.row(2 * p.j + a, 2 * k + b) + p.t;
                    const double red = __ldg(at), black = __ldg(at + fine.half);
                    mine = max(mine, max(bits(red), bits(black)));
                    sums[b][a] = red + black;
                }
            }
            to[coarse.at(p.t, p.j, k)] = 0.125 * ((sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]));
        }
    }
    if (largest) raise(largest, mine);
}

// max |x|, or max |x - means of fine| where `fine` is given (a vector of level `finer`).
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    hpgmg_norm(const __grid_constant__ Level level, const __grid_constant__ Level finer, const double* x, const double* fine,
               const __grid_constant__ Extent extent, unsigned long long* largest) {
    const Place p(extent);
    unsigned long long mine = 0;
    if (p.mine) {
        for (int k = p.k; k < p.end; k++) {
            for (int i = 2 * p.t; i < min(level.n, 2 * p.t + 2); i++) {
                double value = __ldg(x + level.at(i, p.j, k));
                if (fine) value = value - mean_of_eight<true>(finer, fine, i, p.j, k);
                mine = max(mine, bits(value));
            }
        }
    }
    raise(largest, mine);
}

// A box of elements, to another place; by all threads of the grid.
extern "C" __global__ void __launch_bounds__(256) hpgmg_copy(const __grid_constant__ Copy copy) {
    const std::int64_t plane = copy.row * copy.rows, all = plane * copy.planes;
    for (std::int64_t at = blockIdx.x * blockDim.x + threadIdx.x; at < all; at += gridDim.x * blockDim.x) {
        const std::int64_t x = at % copy.row, y = at / copy.row % copy.rows, z = at / plane;
        copy.to[x + y * copy.to_strides[0] + z * copy.to_strides[1]] = copy.from[x + y * copy.from_strides[0] + z * copy.from_strides[1]];
    }
}

// The scalars, to memory of the host: a copy behind a launch that waits would hold up the copies of other ranks on the same GPU.
extern "C" __global__ void __launch_bounds__(32)
    hpgmg_tell(const unsigned long long* values, unsigned long long* results, int count) {
    if (int(threadIdx.x) < count) results[threadIdx.x] = values[threadIdx.x];
}
