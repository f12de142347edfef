// Whole sweeps over large levels (sweep.cuh), for machines that copy tiles by themselves; the host launches them nowhere else.
#include "sweep.cuh"

template <class L>
__device__ __forceinline__ void sweep_level(const L& level, const hpgmg::TileMaps& maps, const hpgmg::Pass& pass) {
    HPGMG_TILES_SHARED(tiles);
    const int first = blockIdx.z * pass.planes, end = min(first + pass.planes, level.n);
    HPGMG_BY_TILES(hpgmg::sweep_planes(level, maps, pass, tiles, first, end);)
}

#define HPGMG_SWEEP(name, LEVEL)                                                                            \
    extern "C" __global__ void __launch_bounds__(hpgmg::SWEEP_THREADS, 1)                                   \
        hpgmg_fv4_sweep##name(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::TileMaps maps, \
                              const __grid_constant__ hpgmg::Pass pass) {                                   \
        sweep_level(LEVEL, maps, pass);                                                                         \
    }
HPGMG_SWEEP(, hpgmg::Level(level))
HPGMG_SWEEP(_128, hpgmg::Sized<128>(level))
HPGMG_SWEEP(_256, hpgmg::Sized<256>(level))
HPGMG_SWEEP(_512, hpgmg::Sized<512>(level))
