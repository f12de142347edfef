// The coarsest levels in one launch of one block: a V-cycle of them, or the part of an F-cycle that they are.
#include "bottom.cuh"

namespace hpgmg {

// As in layout.rs.
static_assert(sizeof(Level) == 232 && sizeof(Pass) == 64 && sizeof(Resident) == RESIDENT_LEVELS * 232 + 48);

template <int OPERATOR>
__device__ __noinline__ void solve_bottom(const Resident& r, const double* rhs) {
    sized(r.coarsest().n, [&](auto as) {
        using L = typename decltype(as)::Type;
        set(L(r.coarsest()), r.coarsest().u, nullptr);
        const int iterations = r.bottom == BICGSTAB ? bicgstab<OPERATOR, L>(r, rhs)
                               : r.bottom == CG     ? conjugate_gradients<OPERATOR, L>(r, rhs)
                                                    : relaxation<OPERATOR, L>(r, rhs);
        if (threadIdx.x == 0) *r.iterations += iterations;
    });
}

template <int REACH>
__device__ __noinline__ void prolong_block(const Level& from, const Level& fine, int rule, bool add) {
    sized(from.n, [&](auto as) {
        const typename decltype(as)::Type coarse(from);
        fill_box(coarse, coarse.u, rule, REACH);
        each_cell(coarse, [&](int i, int j, int k) {
            double children[2][2][2];
            interpolate<REACH>([&](int di, int dj, int dk) { return coarse.u[coarse.at(i + di, j + dj, k + dk)]; },
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

template <int OPERATOR>
__device__ void v_cycle(const Resident& r, int from, bool zero) {
    auto rhs = [&](int l) { return l == r.first ? r.rhs : r.levels[l].r; };
    const int bottom = r.count - 1;
    for (int l = from; l < bottom; l++) {
        sized(r.levels[l].n, [&](auto as) {
            using L = typename decltype(as)::Type;
            smooth_block<OPERATOR, L>(r, l, rhs(l), zero || l > from);
            residual_in_temp<OPERATOR, L>(r, l, rhs(l));
        });
        restrict_block(r.levels[l], r.levels[l].temp, r.levels[l + 1]);
    }
    solve_bottom<OPERATOR>(r, rhs(bottom));
    for (int l = bottom - 1; l >= from; l--) {
        prolong_block<1>(r.levels[l + 1], r.levels[l], r.levels[l + 1].correct, true);
        sized(r.levels[l].n, [&](auto as) {
            smooth_block<OPERATOR, typename decltype(as)::Type>(r, l, rhs(l), false);
        });
    }
}

template <int OPERATOR>
__device__ void f_cycle(const Resident& r) {
    const int bottom = r.count - 1;
    for (int l = r.first; l < bottom; l++) {
        restrict_block(r.levels[l], l == r.first ? r.rhs : r.levels[l].r, r.levels[l + 1]);
    }
    solve_bottom<OPERATOR>(r, bottom == r.first ? r.rhs : r.levels[bottom].r);
    for (int l = bottom - 1; l >= r.first; l--) {
        const Level& coarse = r.levels[l + 1];
        if (r.quartic) {
            prolong_block<2>(coarse, r.levels[l], coarse.replace, false);
        } else {
            prolong_block<1>(coarse, r.levels[l], coarse.replace, false);
        }
        v_cycle<OPERATOR>(r, l, false);
    }
}

template <int OPERATOR>
__device__ __forceinline__ void resident(const Resident& r) {
    if (r.full) {
        f_cycle<OPERATOR>(r);
    } else {
        v_cycle<OPERATOR>(r, r.first, r.zero);
    }
    // For passes of other kernels over the first level.
    fill<OPERATOR>(r.levels[r.first], r.levels[r.first].u);
}

}  // namespace hpgmg

extern "C" __global__ void __launch_bounds__(hpgmg::RESIDENT_THREADS) hpgmg_fv4_resident(const __grid_constant__ hpgmg::Resident r) {
    hpgmg::resident<hpgmg::FV4>(r);
}

extern "C" __global__ void __launch_bounds__(hpgmg::RESIDENT_THREADS) hpgmg_fv2_resident(const __grid_constant__ hpgmg::Resident r) {
    hpgmg::resident<hpgmg::FV2>(r);
}
