// The kernels of grid.cu over a rank's slab: blocks at its borders take their turns with the neighbours and store into
// their ghost planes. x is read by ordinary loads, because peers write its ghosts while the kernel runs.
#include "slab.cuh"

namespace hpgmg {

// A row of the vector written: here and in the neighbours whose ghost it is.
template <bool WRAPPED = false, class L>
__device__ __forceinline__ void store_shared(const L& level, const Slab& slab, int first, int end, double* out, int t, int j,
                                             int k, double even, double odd) {
    store_row<WRAPPED>(level, out, t, j, k, even, odd);
    for (int side = 0; side < 2; side++) {
        if (March::sends(slab, side, k, first, end)) store_row<WRAPPED>(level, slab.halo.twin<double>(side), t, j, k, even, odd);
    }
}

template <int OPERATOR, int STEP, bool ZERO, class L>
__device__ __forceinline__ void pass_slab(const L& level, const Pass& pass, const Slab& slab) {
    const March m(slab, pass.planes, pass.tiles);
    if (!m.enter(slab)) return;
    const bool mine = 2 * m.t < level.n && m.j < level.n;
    for (int k = m.k; k < m.end; k++) {
        double even = 0.0, odd = 0.0;
        if (mine) any_pair<OPERATOR, STEP, ZERO, false>(level, pass, m.t, m.j, k, even, odd);
        store_shared<wraps(OPERATOR)>(level, slab, slab.first, slab.end, pass.out, m.t, m.j, k, even, odd);
    }
    m.leave(slab);
}

// As residual_restrict.
template <int OPERATOR>
__device__ __forceinline__ void residual_restrict_slab(const Level& level, const Level& coarse, const Pass& pass,
                                                       const Slab& slab) {
    __shared__ double sums[2][2][4][32];
    const March m(slab, 2 * pass.planes, pass.tiles);
    if (!m.enter(slab)) return;
    const int a = threadIdx.y, b = threadIdx.z, i = threadIdx.x;
    int turn = 0;
    for (int k = m.k; k < m.end; k += 2, turn ^= 1) {
        if (2 * m.t < level.n && m.j < level.n) {
            double even, odd;
            any_pair<OPERATOR, RESIDUAL, false, false>(level, pass, m.t, m.j, k + b, even, odd);
            sums[turn][b][a][i] = even + odd;
        }
        __syncthreads();
        if (b == 0 && a % 2 == 0 && m.t < coarse.n && m.j / 2 < coarse.n) {
            const double sum = (sums[turn][0][a][i] + sums[turn][0][a + 1][i]) + (sums[turn][1][a][i] + sums[turn][1][a + 1][i]);
            pass.out[coarse.at(m.t, m.j / 2, k / 2)] = 0.125 * sum;
        }
    }
    m.leave(slab);
}

// As residual_norm, of this rank's planes.
template <int OPERATOR>
__device__ __forceinline__ void residual_norm_slab(const Level& level, const Pass& pass, const Slab& slab,
                                                   unsigned long long* largest) {
    const March m(slab, pass.planes, pass.tiles);
    if (!m.enter(slab)) return;
    unsigned long long mine = 0;
    if (2 * m.t < level.n && m.j < level.n) {
        for (int k = m.k; k < m.end; k++) {
            double even, odd;
            any_pair<OPERATOR, RESIDUAL, false, false>(level, pass, m.t, m.j, k, even, odd);
            mine = max(mine, max(bits(even), bits(odd)));
        }
    }
    raise(largest, mine);
    m.leave(slab);
}

// As prolong; slab.first to slab.end are coarse planes.
template <int RULE, bool ADD, bool WRAPPED = false>
__device__ __forceinline__ void prolong_slab(const Level& coarse, const Level& fine, const double* from, double* to,
                                             const Slab& slab) {
    constexpr int REACH = reach_of_rule(RULE);
    __shared__ Tile<REACH> tile;
    const March m(slab, TILE, gridDim.z);
    if (!m.enter(slab)) return;
    const int i0 = blockIdx.x * 32, j0 = min(blockIdx.y * TILE, max(coarse.n - TILE, 0)), k0 = min(m.k, max(coarse.n - TILE, 0));
    tile.template fill<false, WRAPPED>(coarse, from, ADD ? coarse.correct : coarse.replace, i0, j0, k0, thread_of_tile(),
                                       TILE_THREADS, slab.first - slab.held, slab.end + slab.held);
    const int i = i0 + threadIdx.x, j = j0 + threadIdx.y, k = k0 + threadIdx.z;
    const bool mine = i < coarse.n && j < coarse.n && j >= blockIdx.y * TILE && k >= m.k && k < m.end;
    double children[2][2][2] = {};
    if (mine) {
        interpolate<RULE>(
            [&](int di, int dj, int dk) {
                return tile.cells[threadIdx.z + REACH + dk][threadIdx.y + REACH + dj][threadIdx.x + REACH + di];
            },
            children);
    }
    if (__any_sync(~0u, mine)) {
#pragma unroll
        for (int pk = 0; pk < 2; pk++) {
#pragma unroll
            for (int pj = 0; pj < 2; pj++) {
                double even = children[pk][pj][0], odd = children[pk][pj][1];
                const int fine_j = 2 * j + pj, fine_k = 2 * k + pk;
                if (ADD && mine) {
                    const int at = fine.row(fine_j, fine_k) + i, q = (fine_j + fine_k) & 1;
                    even = to[at + q * fine.half] + even;
                    odd = to[at + (1 - q) * fine.half] + odd;
                }
                store_shared<WRAPPED>(fine, slab, 2 * slab.first, 2 * slab.end, to, i, fine_j, fine_k, even, odd);
            }
        }
    }
    m.leave(slab);
}

}  // namespace hpgmg

#define HPGMG_SLAB_PASS(name, OPERATOR, STEP, ZERO, LEVEL)                                                  \
    extern "C" __global__ void __launch_bounds__(PASS_THREADS, (ZERO ? 2 : 1) * PASS_BLOCKS)                \
        hpgmg_##name(const __grid_constant__ Level level, const __grid_constant__ Pass pass,                \
                     const __grid_constant__ Slab slab) {                                                   \
        pass_slab<OPERATOR, STEP, ZERO>(LEVEL, pass, slab);                                                 \
    }
#define HPGMG_SLAB_OPERATOR(name, OPERATOR)                                                                 \
    HPGMG_SLAB_PASS(name##_slab_gsrb, OPERATOR, GSRB, false, level)                                         \
    HPGMG_SLAB_PASS(name##_slab_gsrb_zero, OPERATOR, GSRB, true, level)                                     \
    HPGMG_SLAB_PASS(name##_slab_weighted, OPERATOR, WEIGHTED, false, level)                                 \
    HPGMG_SLAB_PASS(name##_slab_weighted_zero, OPERATOR, WEIGHTED, true, level)                             \
    HPGMG_SLAB_PASS(name##_slab_chebyshev, OPERATOR, CHEBYSHEV, false, level)                               \
    extern "C" __global__ void __launch_bounds__(256, 2) hpgmg_##name##_slab_residual_restrict(             \
        const __grid_constant__ Level level, const __grid_constant__ Level coarse,                          \
        const __grid_constant__ Pass pass, const __grid_constant__ Slab slab) {                             \
        residual_restrict_slab<OPERATOR>(level, coarse, pass, slab);                                        \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 2) hpgmg_##name##_slab_residual_norm(                 \
        const __grid_constant__ Level level, const __grid_constant__ Pass pass, unsigned long long* largest, \
        const __grid_constant__ Slab slab) {                                                                \
        residual_norm_slab<OPERATOR>(level, pass, slab, largest);                                           \
    }
HPGMG_SLAB_OPERATOR(fv4, FV4)
HPGMG_SLAB_OPERATOR(fv2, FV2)

// As the columns of grid.cu.
#ifdef __CUDACC__
#define HPGMG_SLAB_COLUMN_GSRB(name, LEVEL)                                                                 \
    extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)                                         \
        hpgmg_fv4_slab_column_gsrb##name(const __grid_constant__ Level level, const __grid_constant__ Pass pass, \
                                         const __grid_constant__ Slab slab) {                               \
        __shared__ Ring ring;                                                                               \
        const March m(slab, pass.planes, gridDim.z);                                                        \
        if (!m.enter(slab)) return;                                                                         \
        const auto here = LEVEL;                                                                            \
        gsrb_planes(here, pass, ring, m.k, m.end, [&](const auto& column, int k, double even, double odd) { \
            store_shared(here, slab, slab.first, slab.end, pass.out, column.t, column.j, k, even, odd);     \
        });                                                                                                 \
        m.leave(slab);                                                                                      \
    }
HPGMG_SLAB_COLUMN_GSRB(, level)
HPGMG_SLAB_COLUMN_GSRB(_64, Sized<64>(level))
HPGMG_SLAB_COLUMN_GSRB(_128, Sized<128>(level))
HPGMG_SLAB_COLUMN_GSRB(_256, Sized<256>(level))
HPGMG_SLAB_COLUMN_GSRB(_512, Sized<512>(level))

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    hpgmg_fv4_slab_column_residual_restrict(const __grid_constant__ Level level, const __grid_constant__ Level coarse,
                                            const __grid_constant__ Pass pass, const __grid_constant__ Slab slab) {
    __shared__ Ring ring;
    __shared__ PairSums sums;
    const March m(slab, pass.planes, gridDim.z);
    if (!m.enter(slab)) return;
    residual_restrict_planes(level, coarse, pass, ring, sums, m.k, m.end);
    m.leave(slab);
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    hpgmg_fv4_slab_column_residual_norm(const __grid_constant__ Level level, const __grid_constant__ Pass pass,
                                        unsigned long long* largest, const __grid_constant__ Slab slab) {
    __shared__ Ring ring;
    const March m(slab, pass.planes, gridDim.z);
    if (!m.enter(slab)) return;
    raise(largest, residual_largest(level, pass, ring, m.k, m.end));
    m.leave(slab);
}
#endif

#define HPGMG_SLAB_PROLONG(name, RULE, ADD, WRAPPED)                                                        \
    extern "C" __global__ void __launch_bounds__(TILE_THREADS)                                              \
        hpgmg_slab_##name(const __grid_constant__ Level coarse, const __grid_constant__ Level fine,         \
                          const double* from, double* to, const __grid_constant__ Slab slab) {              \
        prolong_slab<RULE, ADD, WRAPPED>(coarse, fine, from, to, slab);                                     \
    }
HPGMG_SLAB_PROLONG(correct, AVERAGES_QUADRATIC, true, false)
HPGMG_SLAB_PROLONG(replace_quadratic, AVERAGES_QUADRATIC, false, false)
HPGMG_SLAB_PROLONG(replace_quartic, AVERAGES_QUARTIC, false, false)
