// Whole sweeps over large levels (sweep.cuh), for GPUs that copy tiles by themselves; the host launches them nowhere else.
#include "sweep.cuh"

#if __CUDA_ARCH__ >= 900
#define HPGMG_SWEEP_PLANES(LEVEL)                                                                           \
    extern __shared__ __align__(128) double sweep_shared[];                                                 \
    const int first = blockIdx.z * pass.planes, end = min(first + pass.planes, level.n);                    \
    const auto here = LEVEL;                                                                                \
    hpgmg::sweep_planes(here, maps, pass, sweep_shared, first, end);
#else
#define HPGMG_SWEEP_PLANES(LEVEL)
#endif

#define HPGMG_SWEEP(name, LEVEL)                                                                            \
    extern "C" __global__ void __launch_bounds__(hpgmg::SWEEP_THREADS, 1)                                   \
        hpgmg_fv4_sweep##name(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::SweepMaps maps, \
                              const __grid_constant__ hpgmg::Pass pass) {                                   \
        HPGMG_SWEEP_PLANES(LEVEL)                                                                           \
    }
HPGMG_SWEEP(, hpgmg::Level(level))
HPGMG_SWEEP(_128, hpgmg::Sized<128>(level))
HPGMG_SWEEP(_256, hpgmg::Sized<256>(level))
HPGMG_SWEEP(_512, hpgmg::Sized<512>(level))
