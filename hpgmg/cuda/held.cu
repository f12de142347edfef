// The coarsest levels in one launch of one cluster, or where there are no clusters of one block, in shared memory: steps of a cycle
// (src/cycle.rs) over levels of 16, 8, 4 and 2 cells a side, of fv2 also 1, or of 12, 6 and 3. What other hierarchies need is in resident.cu.
#include "held.cuh"

namespace hpgmg {

template <int OPERATOR, class L, class Coarse>
__device__ __forceinline__ void step_held(const Resident& r, const ResidentStep& step, int turn) {
    const int l = step.level;
    switch (step.op) {
        case OP_SMOOTH: return smooth_level<OPERATOR, L>(r, l, step.zero, turn);
        case OP_RESTRICT_RESIDUAL: return residual_restrict_level<OPERATOR, L, Coarse>(r, l);
        case OP_RESTRICT: return restrict_level<L, Coarse>(r, l);
        case OP_CORRECT: return prolong_level<1, L, Coarse>(r, l, r.levels[l + 1].correct, true, turn);
        default: break;
    }
    if (r.quartic) {
        prolong_level<2, L, Coarse>(r, l, r.levels[l + 1].replace, false, turn);
    } else {
        prolong_level<1, L, Coarse>(r, l, r.levels[l + 1].replace, false, turn);
    }
}

// A step of the level of n cells a side, which is L or coarser. `turn`: of blocks that share the first level.
template <int OPERATOR, class L>
__device__ __forceinline__ void step_of(const Resident& r, const ResidentStep& step, int, int) {
    if (block_of_cluster() != 0) return;
    if (threadIdx.x < L::THREADS) solve_held<OPERATOR, L>(r, step.level, step.zero);
    __syncthreads();
}
template <int OPERATOR, class L, class Coarse, class... Coarser>
__device__ __forceinline__ void step_of(const Resident& r, const ResidentStep& step, int n, int turn) {
    if (n != L::n) return step_of<OPERATOR, Coarse, Coarser...>(r, step, n, turn);
    if (L::SPREAD || block_of_cluster() == 0) step_held<OPERATOR, L, Coarse>(r, step, turn);
}

// Starts loading what this block has of the levels from number `l` on, the first of which is L or coarser.
template <class L, class... Coarser>
__device__ __forceinline__ void load_levels(const Resident& r, int l) {
    const int n = r.levels[l].n;
    if (n == L::n && (L::SPREAD || block_of_cluster() == 0)) {
        load_level<L, sizeof...(Coarser) == 0>(r, l);
    }
    if (l == r.first && n == L::n) started();
    if constexpr (sizeof...(Coarser) > 0) load_levels<Coarser...>(r, l + (n == L::n));
}
template <class L, class... Coarser>
__device__ __forceinline__ void save_levels(const Resident& r, int l) {
    if (r.levels[l].n != L::n) {
        if constexpr (sizeof...(Coarser) > 0) save_levels<Coarser...>(r, l);
    } else if (L::SPREAD || block_of_cluster() == 0) {
        save_level<L>(r, l);
    }
}

// The levels are L and coarser ones, each of half as many cells a side as the one before.
template <int OPERATOR, class L, class... Coarser>
__device__ __forceinline__ void held(const Resident& r) {
    load_levels<L, Coarser...>(r, r.first);
    // The coarser levels may still be on their way.
    bool has_all = false;
    int turn = 0;
    HeldTurns<L>::begin();
    copied_before_last();
    __syncthreads();
    // All blocks have begun: the others' shared memory may be written.
    if (L::SPREAD) mp::cluster_barrier();
    for (int at = 0; at < r.count; at++) {
        const ResidentStep step = r.steps[at];
        if (!has_all && step.level != r.first) {
            copied();
            __syncthreads();
            has_all = true;
        }
        step_of<OPERATOR, L, Coarser...>(r, step, r.levels[step.level].n, turn);
        if (step.level == r.first) turn += step.op == OP_SMOOTH ? 6 : step.op == OP_CORRECT || step.op == OP_REPLACE;
    }
    save_levels<L, Coarser...>(r, r.first);
    // No block ends while others may still reach into its shared memory.
    if (L::SPREAD) mp::cluster_barrier();
}

}  // namespace hpgmg

// By a cluster: the first level is cut over its blocks. None shares a multiprocessor with another, so that it may use all registers there: for
// two the compiler would spill some.
#if __CUDA_ARCH__ >= 900
#define HPGMG_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define HPGMG_CLUSTER(blocks)
#endif
#define HPGMG_HELD(name, OPERATOR, CLUSTER, ...)                                                            \
    extern "C" __global__ void __launch_bounds__(hpgmg::RESIDENT_THREADS, 1) CLUSTER                        \
        hpgmg_##name(const __grid_constant__ hpgmg::Resident r) {                                           \
        using namespace hpgmg;                                                                              \
        held<OPERATOR, __VA_ARGS__>(r);                                                                     \
    }
// With the levels of 2^n cells that are one block's.
#define HPGMG_HELD_OPERATOR(name, OPERATOR, ...)                                                            \
    HPGMG_HELD(name##_held, OPERATOR, HPGMG_CLUSTER(hpgmg::HELD_BLOCKS), Held<16, HELD_BLOCKS>, __VA_ARGS__) \
    HPGMG_HELD(name##_held_alone, OPERATOR, , __VA_ARGS__)                                                  \
    HPGMG_HELD(name##_held_3, OPERATOR, HPGMG_CLUSTER(hpgmg::HELD_BLOCKS_3), Held<12, HELD_BLOCKS_3>, Held<6, 1>, Held<3, 1>)
HPGMG_HELD_OPERATOR(fv4, FV4, Held<8, 1>, Held<4, 1>, Held<2, 1>)
HPGMG_HELD_OPERATOR(fv2, FV2, Held<8, 1>, Held<4, 1>, Held<2, 1>, Held<1, 1>)
