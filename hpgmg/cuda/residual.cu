// Residuals over large levels (residual.cuh), or over a rank's planes of one, for machines that copy tiles by themselves; the host launches
// them nowhere else.
#include "residual.cuh"
#include "slab.cuh"

namespace hpgmg {
using Residuals = ResidualTiles<RESIDUAL_ROWS, 2>;
static_assert(Residuals::BYTES == RESIDUAL_BYTES && Residuals::ALL_WARPS == RESIDUAL_WARPS, "as the host launches");

// Calls f(first, end) with the planes of this block.
template <class F>
__device__ __forceinline__ void by_planes(const Level& level, const Pass& pass, F f) {
    const int first = blockIdx.z * pass.planes;
    f(first, min(first + pass.planes, level.n));
}
template <class F>
__device__ __forceinline__ void by_planes(const Slab& slab, const Pass& pass, F f) {
    const March<Slab> m(slab, pass.planes, gridDim.z);
    if (!m.enter()) return;
    from_others();
    f(m.k, m.end);
    m.leave();
}
}  // namespace hpgmg

#define HPGMG_TILED_RESIDUALS(name, PART, ...)                                                              \
    extern "C" __global__ void __launch_bounds__(32 * hpgmg::RESIDUAL_WARPS, 1)                             \
        hpgmg_fv4_##name##_residual_restrict(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::Level coarse, \
                                             const __grid_constant__ hpgmg::TileMaps maps,                  \
                                             const __grid_constant__ hpgmg::Pass pass __VA_OPT__(,) __VA_ARGS__) { \
        HPGMG_TILES_SHARED(tiles);                                                                          \
        HPGMG_BY_TILES(hpgmg::by_planes(PART, pass, [&](int first, int end) {                               \
            hpgmg::tiled_residual_restrict<hpgmg::Residuals>(level, coarse, maps, pass, tiles, first, end); \
        });)                                                                                                \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(32 * hpgmg::RESIDUAL_WARPS, 1)                             \
        hpgmg_fv4_##name##_residual_norm(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::TileMaps maps, \
                                         const __grid_constant__ hpgmg::Pass pass,                          \
                                         unsigned long long* largest __VA_OPT__(,) __VA_ARGS__) {           \
        HPGMG_TILES_SHARED(tiles);                                                                          \
        HPGMG_BY_TILES(hpgmg::by_planes(PART, pass, [&](int first, int end) {                               \
            hpgmg::raise(largest, hpgmg::tiled_residual_largest<hpgmg::Residuals>(level, maps, pass, tiles, first, end)); \
        });)                                                                                                \
    }
HPGMG_TILED_RESIDUALS(tiled, level)
HPGMG_TILED_RESIDUALS(slab_tiled, slab, const __grid_constant__ hpgmg::Slab slab)
