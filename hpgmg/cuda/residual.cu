// Residuals over large levels (residual.cuh), for machines that copy tiles by themselves; the host launches them nowhere else.
#include "residual.cuh"

namespace hpgmg {
using Residuals = ResidualTiles<RESIDUAL_ROWS, 2>;
static_assert(Residuals::BYTES == RESIDUAL_BYTES && Residuals::ALL_WARPS == RESIDUAL_WARPS, "as the host launches");
}  // namespace hpgmg

extern "C" __global__ void __launch_bounds__(32 * hpgmg::RESIDUAL_WARPS, 1)
    hpgmg_fv4_tiled_residual_restrict(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::Level coarse,
                                      const __grid_constant__ hpgmg::TileMaps maps, const __grid_constant__ hpgmg::Pass pass) {
    HPGMG_TILES_SHARED(tiles);
    HPGMG_BY_TILES(hpgmg::tiled_residual_restrict<hpgmg::Residuals>(level, coarse, maps, pass, tiles);)
}

extern "C" __global__ void __launch_bounds__(32 * hpgmg::RESIDUAL_WARPS, 1)
    hpgmg_fv4_tiled_residual_norm(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::TileMaps maps,
                                  const __grid_constant__ hpgmg::Pass pass, unsigned long long* largest) {
    HPGMG_TILES_SHARED(tiles);
    HPGMG_BY_TILES(hpgmg::raise(largest, hpgmg::tiled_residual_largest<hpgmg::Residuals>(level, maps, pass, tiles));)
}
