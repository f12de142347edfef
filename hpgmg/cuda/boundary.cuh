// Ghosts of homogeneous Dirichlet boundaries: extrapolated where they are read, or, along i, by the warp that computed
// the row. Section 4.3 of the HPGMG-FV description; order of the sums as on the CPU: along i, then j, then k.
#pragma once
#include "level.cuh"

namespace hpgmg {

// Weights of x1, x2, ... inward: by rule, layer next to the domain and the one beyond. None: the ghost is zero.
__constant__ double WEIGHTS[3][2][4] = {
    {{-1.0}, {}},
    {{-2.5, 0.5}, {}},
    {{-77.0 / 12.0, 43.0 / 12.0, -17.0 / 12.0, 3.0 / 12.0}, {-505.0 / 12.0, 335.0 / 12.0, -145.0 / 12.0, 27.0 / 12.0}},
};
__constant__ double ONE[1] = {1.0};

__device__ __forceinline__ int weights_of(int rule, int layer) {
    return rule == QUARTIC ? 4 : (layer > 0 ? 0 : (rule == QUADRATIC ? 2 : 1));
}

// The cells along one axis that a cell, inside or outside, is a sum of.
struct Support {
    int first, step, count;
    const double* weights;

    __device__ __forceinline__ Support(int i, int n, int rule) {
        if (static_cast<unsigned>(i) < static_cast<unsigned>(n)) {
            first = i;
            step = 0;
            count = 1;
            weights = ONE;
        } else {
            const int layer = i < 0 ? -1 - i : i - n;
            first = i < 0 ? 0 : n - 1;
            step = i < 0 ? 1 : -1;
            count = weights_of(rule, layer);
            weights = WEIGHTS[rule][layer];
        }
    }
};

// The value of x at a cell at most two layers outside, from cells inside.
template <bool READ_ONLY>
__device__ __noinline__ double extrapolate(const double* x, const Level& level, int rule, int i, int j, int k) {
    const Support along_i(i, level.n, rule), along_j(j, level.n, rule), along_k(k, level.n, rule);
    double sum_k = 0.0;
    for (int c = 0; c < along_k.count; c++) {
        double sum_j = 0.0;
        for (int b = 0; b < along_j.count; b++) {
            double sum_i = 0.0;
            for (int a = 0; a < along_i.count; a++) {
                const int from = level.at(along_i.first + a * along_i.step, along_j.first + b * along_j.step,
                                          along_k.first + c * along_k.step);
                sum_i += along_i.weights[a] * load<READ_ONLY>(x + from);
            }
            sum_j += along_j.weights[b] * sum_i;
        }
        sum_k += along_k.weights[c] * sum_j;
    }
    return sum_k;
}

// Ghost of `layer` from the four values next to the boundary.
__device__ __forceinline__ double ghost(int rule, int layer, double x1, double x2, double x3, double x4) {
    const double* w = WEIGHTS[rule][layer];
    const int count = weights_of(rule, layer);
    double sum = 0.0;
    if (count > 0) sum += w[0] * x1;
    if (count > 1) sum += w[1] * x2;
    if (count > 2) sum = (sum + w[2] * x3) + w[3] * x4;
    return sum;
}

// Stores the cells 2t and 2t+1 of row (j, k); where the row ends also its ghosts. Called by whole warps whose lanes hold
// consecutive t of one row, with the cells next to a boundary in one warp (the host's launch sees to it).
__device__ __forceinline__ void store_row(const Level& level, double* out, int t, int j, int k, double even, double odd) {
    const int q = (j + k) & 1;
    const int last = level.n / 2 - 1;
    const int row = level.row(j, k);
    double* same = out + row + q * level.half;         // cells of even i
    double* other = out + row + (1 - q) * level.half;  // cells of odd i
    const bool mine = t <= last && level.has(j) && level.has(k);
    if (mine) {
        same[t] = even;
        other[t] = odd;
    }
    const double even_up = __shfl_down_sync(~0u, even, 1), odd_up = __shfl_down_sync(~0u, odd, 1);
    const double even_down = __shfl_up_sync(~0u, even, 1), odd_down = __shfl_up_sync(~0u, odd, 1);
    if (mine && t == 0) {
        other[-1] = ghost(level.boundary, 0, even, odd, even_up, odd_up);
        same[-1] = ghost(level.boundary, 1, even, odd, even_up, odd_up);
    }
    if (mine && t == last) {
        same[t + 1] = ghost(level.boundary, 0, odd, even, odd_down, even_down);
        other[t + 1] = ghost(level.boundary, 1, odd, even, odd_down, even_down);
    }
}

}  // namespace hpgmg
