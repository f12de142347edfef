// The coarsest levels in one launch of one block: the steps of a cycle (src/cycle.rs) that are theirs, one after the other.
#include "bottom.cuh"

namespace hpgmg {

// Whether there is code for levels of the usual sizes each: the others' would take minutes to compile.
__host__ __device__ constexpr bool is_special(int op) { return op == FV2 || op == FV4; }

template <int OPERATOR>
__device__ __noinline__ void solve_bottom(const Resident& r, int l, const double* rhs, bool zero) {
    sized<is_special(OPERATOR)>(r.levels[l].n, [&](auto as) {
        using L = typename decltype(as)::Type;
        if (zero) set(L(r.levels[l]), r.levels[l].u, nullptr);
        const int iterations = r.bottom == BICGSTAB ? bicgstab<OPERATOR, L>(r, l, rhs)
                               : r.bottom == CG     ? conjugate_gradients<OPERATOR, L>(r, l, rhs)
                                                    : relaxation<OPERATOR, L>(r, l, rhs);
        if (threadIdx.x == 0) *r.iterations += iterations;
    });
}

template <int RULE, bool WRAPPED, bool SPECIAL>
__device__ __noinline__ void prolong_block(const Level& from, const Level& fine, int rule, bool add) {
    sized<SPECIAL>(from.n, [&](auto as) {
        const typename decltype(as)::Type coarse(from);
        if (WRAPPED) {
            wrap_box(coarse, coarse.u, reach_of_rule(RULE));
        } else {
            fill_box(coarse, coarse.u, rule, reach_of_rule(RULE));
        }
        each_cell(coarse, [&](int i, int j, int k) {
            double children[2][2][2];
            interpolate<RULE>([&](int di, int dj, int dk) { return coarse.u[coarse.at(i + di, j + dj, k + dk)]; },
                               children);
            for (int child = 0; child < 8; child++) {
                const int pi = child & 1, pj = child >> 1 & 1, pk = child >> 2;
                double* to = fine.u + fine.at(2 * i + pi, 2 * j + pj, 2 * k + pk);
                const double value = children[pk][pj][pi];
                *to = add ? *to + value : value;
            }
        });
    });
}

__device__ void restrict_block(const Level& fine, const double* from, const Level& coarse) {
    each_cell(coarse, [&](int i, int j, int k) {
        coarse.r[coarse.at(i, j, k)] = mean_of_eight<false>(fine, from, i, j, k);
    });
}

// How corrections and solutions come from a coarser level, as Rule::of_operator says.
__host__ __device__ constexpr int correction_of(int op) {
    return stencil_of(op) == P7 ? CONSTANT : stencil_of(op) == P27 ? POINTS_QUADRATIC : AVERAGES_QUADRATIC;
}
__host__ __device__ constexpr int solution_of(int op) {
    return stencil_of(op) == P7    ? POINTS_LINEAR
           : stencil_of(op) == P27 ? POINTS_QUADRATIC
           : stencil_of(op) == FV4 ? AVERAGES_QUARTIC
                                   : AVERAGES_QUADRATIC;
}

template <int OPERATOR>
__device__ __forceinline__ void resident(const Resident& r) {
    for (int at = 0; at < r.count; at++) {
        const ResidentStep step = r.steps[at];
        const int l = step.level;
        const double* const rhs = r.levels[l].r;
        switch (step.op) {
            case OP_SMOOTH:
                sized<is_special(OPERATOR)>(r.levels[l].n, [&](auto as) {
                    smooth_block<OPERATOR, typename decltype(as)::Type>(r, l, rhs, step.zero);
                });
                break;
            case OP_RESTRICT_RESIDUAL:
                sized<is_special(OPERATOR)>(r.levels[l].n, [&](auto as) { residual_in_temp<OPERATOR, typename decltype(as)::Type>(r, l, rhs); });
                restrict_block(r.levels[l], r.levels[l].temp, r.levels[l + 1]);
                break;
            case OP_RESTRICT:
                restrict_block(r.levels[l], rhs, r.levels[l + 1]);
                break;
            case OP_CORRECT:
                prolong_block<correction_of(OPERATOR), wraps(OPERATOR), is_special(OPERATOR)>(
                    r.levels[l + 1], r.levels[l], r.levels[l + 1].correct, true);
                break;
            case OP_REPLACE:
                prolong_block<solution_of(OPERATOR), wraps(OPERATOR), is_special(OPERATOR)>(
                    r.levels[l + 1], r.levels[l], r.levels[l + 1].replace, false);
                break;
            default:
                solve_bottom<OPERATOR>(r, l, rhs, step.zero);
        }
    }
    // For passes of other kernels over the first level.
    fill<OPERATOR>(r.levels[r.first], r.levels[r.first].u);
}

}  // namespace hpgmg

#define HPGMG_RESIDENT(name, OPERATOR)                                                                      \
    extern "C" __global__ void __launch_bounds__(hpgmg::RESIDENT_THREADS)                                   \
        hpgmg_##name##_resident(const __grid_constant__ hpgmg::Resident r) {                                \
        hpgmg::resident<OPERATOR>(r);                                                                       \
    }
HPGMG_RESIDENT(fv4, hpgmg::FV4)
HPGMG_RESIDENT(fv2, hpgmg::FV2)
