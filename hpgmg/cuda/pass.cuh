// One pass of the operator over a pair of cells: residual or one step of a smoother, out of place.
#pragma once
#include "stencil.cuh"

namespace hpgmg {

constexpr int BLOCK_THREADS = BLOCK_PAIRS * BLOCK_ROWS;

// SHIFT: x in place, and the number at `rhs` added.
enum Step { APPLY, RESIDUAL, GSRB, WEIGHTED, CHEBYSHEV, SHIFT };

// Largest magnitude, as bits: those of non-negative numbers are ordered as the numbers are, and those of NaN above all.
__device__ __forceinline__ unsigned long long bits(double value) { return __double_as_longlong(fabs(value)); }

// x after a step of a smoother. Chebyshev: `last` is the weight of the step before, which came from `previous()`; the first has none.
template <int STEP, class F>
__device__ __forceinline__ double stepped(double x, double residual, double weight, double scale, double last, bool first,
                                          const F& previous) {
    if (STEP == GSRB) return x + weight * residual;
    if (STEP == WEIGHTED || first) return x + scale * weight * residual;
    return x + last * (x - previous()) + scale * weight * residual;
}

template <int OPERATOR, int STEP, bool ZERO, bool READ_ONLY, template <bool> class Around, class L>
__device__ __forceinline__ double update(const L& level, const Pass& pass, const Point& p) {
    double x = 0.0, ax = 0.0;
    if (!ZERO) {
        const Around<READ_ONLY> around(level, pass.x, p);
        x = around(0, 0, 0);
        ax = apply<OPERATOR>(level, p, around);
    }
    if (STEP == APPLY) return ax;
    const double residual = load<READ_ONLY>(pass.rhs + p.own) - ax;
    if (STEP == RESIDUAL) return residual;
    const double weight = __ldg((STEP == WEIGHTED ? pass.weight : level.dinv) + p.own);
    return stepped<STEP>(x, residual, weight, pass.scale, pass.last, pass.sweep == 0, [&] { return pass.out[p.own]; });
}

// New values of the cells 2t and 2t+1 of row (j, k).
template <int OPERATOR, int STEP, bool ZERO, bool READ_ONLY, template <bool> class Around, class L>
__device__ __forceinline__ void pair(const L& level, const Pass& pass, int t, int j, int k, double& even, double& odd) {
    if (STEP == SHIFT) {
        const Point p(level, t, 0, j, k);
        even = pass.x[p.own] + *pass.rhs;
        odd = pass.x[p.other] + *pass.rhs;
    } else if (STEP == GSRB) {
        // Cells with (i + j + k + sweep) % 2 == 0 are updated, the others copied.
        const Point p(level, t, (pass.sweep + j + k) & 1, j, k);
        const double kept = ZERO ? 0.0 : load<READ_ONLY>(pass.x + p.other);
        // The last pair of a row of odd length may be one cell and a ghost.
        const double updated = p.i < level.n ? update<OPERATOR, STEP, ZERO, READ_ONLY, Around>(level, pass, p) : 0.0;
        even = p.odd ? kept : updated;
        odd = p.odd ? updated : kept;
    } else {
        even = odd = 0.0;
        // One cell after the other: both at once need too many registers.
#pragma unroll 1
        for (int side = 0; side < 2; side++) {
            const Point p(level, t, side, j, k);
            if (p.i >= level.n) break;
            const double updated = update<OPERATOR, STEP, ZERO, READ_ONLY, Around>(level, pass, p);
            (side ? odd : even) = updated;
        }
    }
}

// The same for any row, ghosts along j and k found where they are read. READ_ONLY: no peer writes x meanwhile.
template <int OPERATOR, int STEP, bool ZERO, bool READ_ONLY = true, class L>
__device__ __forceinline__ void any_pair(const L& level, const Pass& pass, int t, int j, int k, double& even,
                                         double& odd) {
    if (ZERO || STEP == SHIFT || is_inside<OPERATOR>(level, j, k)) {
        pair<OPERATOR, STEP, ZERO, READ_ONLY, Inside>(level, pass, t, j, k, even, odd);
    } else if (wraps(OPERATOR)) {
        pair<OPERATOR, STEP, ZERO, READ_ONLY, Wrapped>(level, pass, t, j, k, even, odd);
    } else if (OPERATOR != FV4) {
        pair<OPERATOR, STEP, ZERO, READ_ONLY, BesideOfTwo>(level, pass, t, j, k, even, odd);
    } else {
        pair<OPERATOR, STEP, ZERO, READ_ONLY, Beside>(level, pass, t, j, k, even, odd);
    }
}

}  // namespace hpgmg
