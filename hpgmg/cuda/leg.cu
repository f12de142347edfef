// Legs of a cycle over whole levels of 32 and 64 cells a side (leg.cuh), each one launch of blocks that run together.
#include "leg.cuh"

namespace hpgmg {
using Share32 = Share<32, 4, 2, LEG_THREADS_32>;
using Share64 = Share<64, 8, 4, LEG_THREADS_64>;
static_assert(Share32::BLOCKS == LEG_BLOCKS && Share64::BLOCKS == LEG_BLOCKS, "as the host launches");
static_assert(Share32::BYTES == LEG_BYTES_32 && Share64::BYTES == LEG_BYTES_64, "as the host asks for");
}  // namespace hpgmg

#define HPGMG_LEG(N)                                                                                        \
    extern "C" __global__ void __launch_bounds__(hpgmg::LEG_THREADS_##N, 1)                                 \
        hpgmg_fv4_leg_##N(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::Level coarse, \
                          const __grid_constant__ hpgmg::Leg leg) {                                         \
        hpgmg::run_leg<hpgmg::Share##N>(hpgmg::Sized<N>(level), coarse, leg);                               \
    }
HPGMG_LEG(32)
HPGMG_LEG(64)
