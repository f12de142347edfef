// Legs of a cycle over whole levels of 24, 32, 48 and 64 cells a side (leg.cuh), each one launch of blocks that run together.
#include "leg.cuh"

namespace hpgmg {
using Share24 = Share<24, 4, 4, LEG_THREADS_24>;
using Share32 = Share<32, 4, 2, LEG_THREADS_32>;
using Share48 = Share<48, 6, 4, LEG_THREADS_48>;
using Share64 = Share<64, 8, 4, LEG_THREADS_64>;
}  // namespace hpgmg

#define HPGMG_LEG(N)                                                                                        \
    static_assert(hpgmg::Share##N::BLOCKS == hpgmg::LEG_BLOCKS_##N, "as the host launches");                \
    static_assert(hpgmg::Share##N::BYTES == hpgmg::LEG_BYTES_##N, "as the host asks for");                  \
    extern "C" __global__ void __launch_bounds__(hpgmg::LEG_THREADS_##N, 1)                                 \
        hpgmg_fv4_leg_##N(const __grid_constant__ hpgmg::Level level, const __grid_constant__ hpgmg::Level coarse, \
                          const __grid_constant__ hpgmg::Leg leg) {                                         \
        hpgmg::run_leg<hpgmg::Share##N>(hpgmg::Sized<N>(level), coarse, leg);                               \
    }
HPGMG_LEG(24)
HPGMG_LEG(32)
HPGMG_LEG(48)
HPGMG_LEG(64)
