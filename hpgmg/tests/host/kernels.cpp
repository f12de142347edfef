// The kernels over levels for the host compiler: for src/cuda/host.rs.
#include "cuda.hpp"
#include "tiles.hpp"

#include "grid.cu"
#include "slab.cu"
#include "resident.cu"
#include "held.cu"
#include "leg.cu"
#include "sweep.cu"
#include "residual.cu"
#include "general.cu"

#define PLAYED(kernel, together)                                                                       \
    extern "C" int kernel##_on_host(unsigned, unsigned, void* const* arguments, std::size_t* sizes) {  \
        return emulated::launch(kernel, arguments, sizes, together);                                   \
    }
#define ON_HOST(kernel) PLAYED(kernel, false)
#define TOGETHER_ON_HOST(kernel) PLAYED(kernel, true)
#define OPERATOR_ON_HOST(name)         \
    ON_HOST(name##_gsrb)               \
    ON_HOST(name##_gsrb_zero)          \
    ON_HOST(name##_weighted)           \
    ON_HOST(name##_weighted_zero)      \
    ON_HOST(name##_chebyshev)          \
    ON_HOST(name##_residual_restrict)  \
    ON_HOST(name##_residual_norm)
#define ALL_ON_HOST(name)                \
    OPERATOR_ON_HOST(hpgmg_##name)        \
    OPERATOR_ON_HOST(hpgmg_##name##_slab) \
    OPERATOR_ON_HOST(hpgmg_##name##_box)
ALL_ON_HOST(fv4)
ALL_ON_HOST(fv2)
ALL_ON_HOST(p27)
ALL_ON_HOST(fv4_wrapped)
ALL_ON_HOST(fv2_wrapped)
ALL_ON_HOST(p27_wrapped)
ON_HOST(hpgmg_fv4_gsrb_16)

#define TRANSFERS_ON_HOST(name)              \
    ON_HOST(name##_correct)                  \
    ON_HOST(name##_replace_quadratic)        \
    ON_HOST(name##_replace_quartic)          \
    ON_HOST(name##_correct_constant)         \
    ON_HOST(name##_replace_linear)           \
    ON_HOST(name##_correct_points)           \
    ON_HOST(name##_replace_points)
TRANSFERS_ON_HOST(hpgmg)
TRANSFERS_ON_HOST(hpgmg_slab)
TRANSFERS_ON_HOST(hpgmg_box)
TRANSFERS_ON_HOST(hpgmg_wrapped)
TRANSFERS_ON_HOST(hpgmg_slab_wrapped)
TRANSFERS_ON_HOST(hpgmg_box_wrapped)

ON_HOST(hpgmg_fv4_resident)
ON_HOST(hpgmg_fv2_resident)
ON_HOST(hpgmg_p7_resident)
ON_HOST(hpgmg_p27_resident)
ON_HOST(hpgmg_fv4_wrapped_resident)
ON_HOST(hpgmg_fv2_wrapped_resident)
ON_HOST(hpgmg_p7_wrapped_resident)
ON_HOST(hpgmg_p27_wrapped_resident)

#define HELD_ON_HOST(name)          \
    TOGETHER_ON_HOST(name##_held)   \
    ON_HOST(name##_held_alone)      \
    TOGETHER_ON_HOST(name##_held_3)
HELD_ON_HOST(hpgmg_fv4)
HELD_ON_HOST(hpgmg_fv2)

#define TILES_ON_HOST(name, tiled)          \
    ON_HOST(name##_sweep)                  \
    ON_HOST(name##_sweep_128)              \
    ON_HOST(name##_sweep_256)              \
    ON_HOST(name##_sweep_512)              \
    ON_HOST(tiled##_residual_restrict)     \
    ON_HOST(tiled##_residual_norm)
TILES_ON_HOST(hpgmg_fv4, hpgmg_fv4_tiled)
TILES_ON_HOST(hpgmg_fv4_slab, hpgmg_fv4_slab_tiled)

TOGETHER_ON_HOST(hpgmg_fv4_leg_24)
TOGETHER_ON_HOST(hpgmg_fv4_leg_32)
TOGETHER_ON_HOST(hpgmg_fv4_leg_48)
TOGETHER_ON_HOST(hpgmg_fv4_leg_64)

ON_HOST(hpgmg_restrict)
ON_HOST(hpgmg_norm)
ON_HOST(hpgmg_tell)
ON_HOST(hpgmg_shift)
ON_HOST(hpgmg_slab_shift)
ON_HOST(hpgmg_box_shift)
ON_HOST(hpgmg_copy)
ON_HOST(hpgmg_sum_rows)
ON_HOST(hpgmg_sum_boxes)
ON_HOST(hpgmg_mean)
