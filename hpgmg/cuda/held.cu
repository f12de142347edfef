// The coarsest levels in one launch of one cluster, or where there are no clusters of one block, in shared memory: steps of a cycle
// (src/cycle.rs) over levels of 16, 8, 4 and 2 cells a side. What other hierarchies need is in resident.cu.
#include "held.cuh"

namespace hpgmg {

template <int OPERATOR, class L, class Coarse>
__device__ __forceinline__ void step_held(const Resident& r, const ResidentStep& step) {
    const int l = step.level;
    switch (step.op) {
        case OP_SMOOTH: return smooth_level<OPERATOR, L>(r, l, step.zero);
        case OP_RESTRICT_RESIDUAL: return residual_restrict_level<OPERATOR, L, Coarse>(r, l);
        case OP_RESTRICT: return restrict_level<L, Coarse>(r, l);
        case OP_CORRECT: return prolong_level<1, L, Coarse>(r, l, r.levels[l + 1].correct, true);
        default: break;
    }
    if (r.quartic) {
        prolong_level<2, L, Coarse>(r, l, r.levels[l + 1].replace, false);
    } else {
        prolong_level<1, L, Coarse>(r, l, r.levels[l + 1].replace, false);
    }
}

template <int OPERATOR, int BLOCKS>
__device__ __forceinline__ void held(const Resident& r) {
    using L16 = Held<16, HELD_BLOCKS>;
    using L8 = Held<8, 1>;
    using L4 = Held<4, 1>;
    using L2 = Held<2, 1>;
    const bool lead = BLOCKS == 1 || block_of_cluster() == 0;
    for (int l = r.first; l < RESIDENT_LEVELS && r.levels[l].n; l++) {
        switch (r.levels[l].n) {
            case 16:
                if (BLOCKS > 1) load_level<L16>(r, l);
                break;
            case 8:
                if (lead) load_level<L8>(r, l);
                break;
            case 4:
                if (lead) load_level<L4>(r, l);
                break;
            default:
                if (lead) load_level<L2>(r, l);
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    // All blocks have begun: the others' shared memory may be written.
    if (BLOCKS > 1) meet_cluster();
    for (int at = 0; at < r.count; at++) {
        const ResidentStep step = r.steps[at];
        const int n = r.levels[step.level].n;
        if (BLOCKS > 1 && n == 16) {
            step_held<OPERATOR, L16, L8>(r, step);
        } else if (lead) {
            if (n == 8) {
                step_held<OPERATOR, L8, L4>(r, step);
            } else if (n == 4) {
                step_held<OPERATOR, L4, L2>(r, step);
            } else {
                if (threadIdx.x < L2::THREADS) solve_held<OPERATOR>(r, step.level, step.zero);
                __syncthreads();
            }
        }
    }
    switch (r.levels[r.first].n) {
        case 16:
            if (BLOCKS > 1) save_level<OPERATOR, L16>(r, r.first);
            break;
        case 8:
            if (lead) save_level<OPERATOR, L8>(r, r.first);
            break;
        case 4:
            if (lead) save_level<OPERATOR, L4>(r, r.first);
            break;
        default:
            if (lead) save_level<OPERATOR, L2>(r, r.first);
    }
    // No block ends while others may still reach into its shared memory.
    if (BLOCKS > 1) meet_cluster();
}

}  // namespace hpgmg

#if __CUDA_ARCH__ >= 900
#define HPGMG_CLUSTER __cluster_dims__(hpgmg::HELD_BLOCKS, 1, 1)
#else
#define HPGMG_CLUSTER
#endif

extern "C" __global__ void __launch_bounds__(hpgmg::RESIDENT_THREADS) HPGMG_CLUSTER
    hpgmg_fv4_held(const __grid_constant__ hpgmg::Resident r) {
    hpgmg::held<hpgmg::FV4, hpgmg::HELD_BLOCKS>(r);
}

extern "C" __global__ void __launch_bounds__(hpgmg::RESIDENT_THREADS) HPGMG_CLUSTER
    hpgmg_fv2_held(const __grid_constant__ hpgmg::Resident r) {
    hpgmg::held<hpgmg::FV2, hpgmg::HELD_BLOCKS>(r);
}

extern "C" __global__ void __launch_bounds__(hpgmg::RESIDENT_THREADS) hpgmg_fv4_held_alone(const __grid_constant__ hpgmg::Resident r) {
    hpgmg::held<hpgmg::FV4, 1>(r);
}

extern "C" __global__ void __launch_bounds__(hpgmg::RESIDENT_THREADS) hpgmg_fv2_held_alone(const __grid_constant__ hpgmg::Resident r) {
    hpgmg::held<hpgmg::FV2, 1>(r);
}
