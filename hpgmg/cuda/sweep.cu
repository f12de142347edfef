// Whole sweeps over large levels (sweep.cuh), or over a rank's planes of one, for machines that copy tiles by themselves; the host launches
// them nowhere else.
#include "slab.cuh"
#include "sweep.cuh"

namespace hpgmg {

template <class L>
__device__ __forceinline__ void sweep_level(const L& level, const TileMaps& maps, const Pass& pass, double* shared) {
    const int first = blockIdx.z * pass.planes, end = min(first + pass.planes, level.n);
    sweep_planes(level, maps, pass, shared, first, end,
                 [&](int t, int j, int k, double even, double odd) { store_row(level, pass.out, t, j, k, even, odd); });
}

template <class L>
__device__ __forceinline__ void sweep_slab(const L& level, const TileMaps& maps, const Pass& pass, const Slab& slab, double* shared) {
    const March<Slab> m(slab, pass.planes, gridDim.z);
    if (!m.enter()) return;
    from_others();
    sweep_planes(level, maps, pass, shared, m.k, m.end,
                 [&](int t, int j, int k, double even, double odd) { m.store<false>(level, pass.out, t, j, k, even, odd, 1); });
    m.leave();
}

}  // namespace hpgmg

#define HPGMG_SWEEP(name, LEVEL)                                                                            \
    extern "C" __global__ void __launch_bounds__(hpgmg::SWEEP_THREADS, 1)                                   \
        hpgmg_fv4_sweep##name(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::TileMaps maps, \
                              const __grid_constant__ hpgmg::Pass pass) {                                   \
        HPGMG_TILES_SHARED(tiles);                                                                          \
        HPGMG_BY_TILES(hpgmg::sweep_level(LEVEL, maps, pass, tiles);)                                       \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(hpgmg::SWEEP_THREADS, 1)                                   \
        hpgmg_fv4_slab_sweep##name(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::TileMaps maps, \
                                   const __grid_constant__ hpgmg::Pass pass, const __grid_constant__ hpgmg::Slab slab) { \
        HPGMG_TILES_SHARED(tiles);                                                                          \
        HPGMG_BY_TILES(hpgmg::sweep_slab(LEVEL, maps, pass, slab, tiles);)                                  \
    }
HPGMG_SWEEP(, hpgmg::Level(level))
HPGMG_SWEEP(_128, hpgmg::Sized<128>(level))
HPGMG_SWEEP(_256, hpgmg::Sized<256>(level))
HPGMG_SWEEP(_512, hpgmg::Sized<512>(level))
