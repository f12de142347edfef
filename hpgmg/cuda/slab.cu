// The kernels of grid.cu over a rank's part of a level, a slab or a box: blocks at its borders take their turns with the neighbours,
// which get them as ghosts. x is read by ordinary loads, because peers write its ghosts while the kernel runs.
#include "slab.cuh"

namespace hpgmg {

// As any_pair. Beyond a box whose domain wraps around there are ghosts everywhere, beyond a slab only along k.
template <int OPERATOR, int STEP, bool ZERO, class M, class L>
__device__ __forceinline__ void pair_of_part(const M& m, const L& level, const Pass& pass, int k, double& even, double& odd) {
    if (wraps(OPERATOR) && !M::ALL_ROWS) {
        pair<OPERATOR, STEP, ZERO, false, Inside>(level, pass, m.t, m.j, k, even, odd);
    } else {
        any_pair<OPERATOR, STEP, ZERO, false>(level, pass, m.t, m.j, k, even, odd);
    }
}

template <int OPERATOR, int STEP, bool ZERO, class Part, class L>
__device__ __forceinline__ void pass_part(const L& level, const Pass& pass, const Part& part) {
    const March<Part> m(part, pass.planes, pass.tiles);
    if (!m.enter()) return;
    const bool mine = m.has_row(level.n);
    for (int k = m.k; k < m.end; k++) {
        double even = 0.0, odd = 0.0;
        if (mine) pair_of_part<OPERATOR, STEP, ZERO>(m, level, pass, k, even, odd);
        m.template store<wraps(OPERATOR)>(level, pass.out, m.t, m.j, k, even, odd, 1);
    }
    m.leave();
}

// As residual_restrict.
template <int OPERATOR, class Part>
__device__ __forceinline__ void residual_restrict_part(const Level& level, const Level& coarse, const Pass& pass,
                                                       const Part& part) {
    __shared__ double sums[2][2][4][BLOCK_PAIRS];
    const March<Part> m(part, 2 * pass.planes, pass.tiles);
    if (!m.enter()) return;
    const int a = threadIdx.y, b = threadIdx.z, i = threadIdx.x;
    const bool mine = m.has_row(level.n);
    int turn = 0;
    for (int k = m.k; k < m.end; k += 2, turn ^= 1) {
        if (mine) {
            double even, odd;
            pair_of_part<OPERATOR, RESIDUAL, false>(m, level, pass, k + b, even, odd);
            sums[turn][b][a][i] = even + odd;
        }
        __syncthreads();
        if (mine && b == 0 && a % 2 == 0) {
            const double sum = (sums[turn][0][a][i] + sums[turn][0][a + 1][i]) + (sums[turn][1][a][i] + sums[turn][1][a + 1][i]);
            pass.out[coarse.at(m.t, m.j / 2, k / 2)] = 0.125 * sum;
        }
    }
    m.leave();
}

// As residual_norm, of this rank's cells.
template <int OPERATOR, class Part>
__device__ __forceinline__ void residual_norm_part(const Level& level, const Pass& pass, const Part& part,
                                                   unsigned long long* largest) {
    const March<Part> m(part, pass.planes, pass.tiles);
    if (!m.enter()) return;
    unsigned long long mine = 0;
    if (m.has_row(level.n)) {
        for (int k = m.k; k < m.end; k++) {
            double even, odd;
            pair_of_part<OPERATOR, RESIDUAL, false>(m, level, pass, k, even, odd);
            mine = max(mine, max(bits(even), bits(odd)));
        }
    }
    raise(largest, mine);
    m.leave();
}

// As prolong; the part is one of the coarse level.
template <int RULE, bool ADD, bool WRAPPED, class Part>
__device__ __forceinline__ void prolong_part(const Level& coarse, const Level& fine, const double* from, double* to,
                                             const Part& part) {
    __shared__ TileOfChildren<RULE> tile;
    const March<Part> m(part, TILE, gridDim.z, 2);
    if (!m.enter()) return;
    const int i0 = m.pair(), j0 = min(m.row(), max(coarse.n - TILE, 0)), k0 = min(m.k, max(coarse.n - TILE, 0));
    const int i = i0 + threadIdx.x, j = j0 + threadIdx.y, k = k0 + threadIdx.z;
    const bool mine = m.has(i, j, k, coarse.n);
    double before[2][2][2] = {};
    if (ADD && mine) load_children(fine, to, i, j, k, before);
    tile.coarse.template fill<TILE_THREADS, WRAPPED>(coarse, from, ADD ? coarse.correct : coarse.replace, i0, j0, k0, thread_of_tile(), m);
    tile.interpolate(thread_of_tile(), TILE_THREADS);
    double children[2][2][2] = {};
    if (mine) tile.children(threadIdx.x, threadIdx.y, threadIdx.z, children);
    if (__any_sync(~0u, mine)) {
        store_children<ADD>(j, k, before, children, [&](int fine_j, int fine_k, double even, double odd) {
            m.template store<WRAPPED>(fine, to, i, fine_j, fine_k, even, odd, 2);
        });
    }
    m.leave();
}

}  // namespace hpgmg

#define HPGMG_PART_PASS(name, PART, OPERATOR, STEP, ZERO)                                                   \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, (ZERO ? 2 : 1) * PASS_BLOCKS)                \
        hpgmg_##name(const __grid_constant__ Level level, const __grid_constant__ Pass pass,                \
                     const __grid_constant__ PART part) {                                                   \
        pass_part<OPERATOR, STEP, ZERO>(level, pass, part);                                                 \
    }
#define HPGMG_PART_OPERATOR(name, PART, OPERATOR)                                                           \
    HPGMG_PART_PASS(name##_gsrb, PART, OPERATOR, GSRB, false)                                               \
    HPGMG_PART_PASS(name##_gsrb_zero, PART, OPERATOR, GSRB, true)                                           \
    HPGMG_PART_PASS(name##_weighted, PART, OPERATOR, WEIGHTED, false)                                       \
    HPGMG_PART_PASS(name##_weighted_zero, PART, OPERATOR, WEIGHTED, true)                                   \
    HPGMG_PART_PASS(name##_chebyshev, PART, OPERATOR, CHEBYSHEV, false)                                     \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS) hpgmg_##name##_residual_restrict(                  \
        const __grid_constant__ Level level, const __grid_constant__ Level coarse,                          \
        const __grid_constant__ Pass pass, const __grid_constant__ PART part) {                             \
        residual_restrict_part<OPERATOR>(level, coarse, pass, part);                                        \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS) hpgmg_##name##_residual_norm(                      \
        const __grid_constant__ Level level, const __grid_constant__ Pass pass, unsigned long long* largest, \
        const __grid_constant__ PART part) {                                                                \
        residual_norm_part<OPERATOR>(level, pass, part, largest);                                           \
    }
#define HPGMG_PARTS_OPERATOR(name, OPERATOR)          \
    HPGMG_PART_OPERATOR(name##_slab, Slab, OPERATOR)  \
    HPGMG_PART_OPERATOR(name##_box, Brick, OPERATOR)
HPGMG_PARTS_OPERATOR(fv4, FV4)
HPGMG_PARTS_OPERATOR(fv2, FV2)

// As the columns of grid.cu.
#ifdef __CUDACC__
#define HPGMG_SLAB_COLUMN_GSRB(name, LEVEL)                                                                 \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)                                         \
        hpgmg_fv4_slab_column_gsrb##name(const __grid_constant__ Level level, const __grid_constant__ Pass pass, \
                                         const __grid_constant__ Slab slab) {                               \
        __shared__ Ring ring;                                                                               \
        const March<Slab> m(slab, pass.planes, gridDim.z);                                                  \
        if (!m.enter()) return;                                                                             \
        const auto here = LEVEL;                                                                            \
        gsrb_planes(here, pass, ring, m.k, m.end, [&](const auto& column, int k, double even, double odd) { \
            m.store<false>(here, pass.out, column.t, column.j, k, even, odd, 1);                            \
        });                                                                                                 \
        m.leave();                                                                                          \
    }
HPGMG_SLAB_COLUMN_GSRB(, level)
HPGMG_SLAB_COLUMN_GSRB(_64, Sized<64>(level))
HPGMG_SLAB_COLUMN_GSRB(_128, Sized<128>(level))
HPGMG_SLAB_COLUMN_GSRB(_256, Sized<256>(level))
HPGMG_SLAB_COLUMN_GSRB(_512, Sized<512>(level))

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)
    hpgmg_fv4_slab_column_residual_restrict(const __grid_constant__ Level level, const __grid_constant__ Level coarse,
                                            const __grid_constant__ Pass pass, const __grid_constant__ Slab slab) {
    __shared__ Ring ring;
    __shared__ PairSums sums;
    const March<Slab> m(slab, pass.planes, gridDim.z);
    if (!m.enter()) return;
    residual_restrict_planes(level, coarse, pass, ring, sums, m.k, m.end);
    m.leave();
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, PASS_BLOCKS)
    hpgmg_fv4_slab_column_residual_norm(const __grid_constant__ Level level, const __grid_constant__ Pass pass,
                                        unsigned long long* largest, const __grid_constant__ Slab slab) {
    __shared__ Ring ring;
    const March<Slab> m(slab, pass.planes, gridDim.z);
    if (!m.enter()) return;
    raise(largest, residual_largest(level, pass, ring, m.k, m.end));
    m.leave();
}
#endif

#define HPGMG_PART_PROLONG(name, PART, RULE, ADD, WRAPPED)                                                  \
    extern "C" __global__ void __launch_bounds__(TILE_THREADS, tile_blocks(ADD))                            \
        hpgmg_##name(const __grid_constant__ Level coarse, const __grid_constant__ Level fine,              \
                     const double* from, double* to, const __grid_constant__ PART part) {                   \
        prolong_part<RULE, ADD, WRAPPED>(coarse, fine, from, to, part);                                     \
    }
#define HPGMG_PARTS_PROLONG(name, RULE, ADD, WRAPPED)             \
    HPGMG_PART_PROLONG(slab_##name, Slab, RULE, ADD, WRAPPED)     \
    HPGMG_PART_PROLONG(box_##name, Brick, RULE, ADD, WRAPPED)
HPGMG_PARTS_PROLONG(correct, AVERAGES_QUADRATIC, true, false)
HPGMG_PARTS_PROLONG(replace_quadratic, AVERAGES_QUADRATIC, false, false)
HPGMG_PARTS_PROLONG(replace_quartic, AVERAGES_QUARTIC, false, false)
