// Ghosts beyond the domain, of homogeneous Dirichlet boundaries or of a domain that wraps around: along i written by the warp that computed the row, along j and k
// extrapolated where they are read. Section 4.3 of the HPGMG-FV description; order of the sums as on the CPU: along i, then j, then k.
#pragma once
#include "level.cuh"

namespace hpgmg {

// Weights of x1, x2, ... inward: of a cell inside, then by rule of the layer next to the domain and the one beyond.
__constant__ double TAPS[9][4] = {
    {1.0},
    {-1.0},
    {},
    {-2.5, 0.5},
    {},
    {-77.0 / 12.0, 43.0 / 12.0, -17.0 / 12.0, 3.0 / 12.0},
    {-505.0 / 12.0, 335.0 / 12.0, -145.0 / 12.0, 27.0 / 12.0},
    {-2.0, 1.0 / 3.0},
    {},
};

// Cells inside that a rule reads.
__device__ __forceinline__ int cells_of(int rule) { return rule == QUARTIC ? 4 : rule == LINEAR ? 1 : 2; }

// A cell along one axis as a sum of four cells inside, first, first + step, ...: itself, or its extrapolation.
struct Taps {
    int first, step, row;

    __device__ __forceinline__ Taps(int i, int n, int rule) {
        const bool low = i < 0, high = i >= n;
        first = low ? 0 : high ? n - 1 : i;
        step = low ? 1 : high ? -1 : 0;
        row = low || high ? 1 + 2 * rule + (low ? -1 - i : i - n) : 0;
    }
    __device__ __forceinline__ double weight(int m) const { return TAPS[row][m]; }
};

// Ghost of `layer` from the four values next to the boundary; those that the rule does not use are any numbers.
__device__ __forceinline__ double ghost(int rule, int layer, double x1, double x2, double x3, double x4) {
    const double* w = TAPS[1 + 2 * rule + layer];
    return ((w[0] * x1 + w[1] * x2) + w[2] * x3) + w[3] * x4;
}

// Stores the cells 2t and 2t+1 of row (j, k); where the row ends also its ghosts. Called by whole warps whose lanes hold
// consecutive t of one row, with the cells next to a boundary in one warp (the host's launch sees to it).
template <bool WRAPPED = false, class L>
__device__ __forceinline__ void store_row(const L& level, double* out, int t, int j, int k, double even, double odd) {
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
    if (WRAPPED) {
        if (mine && t == 0) {
            same[last + 1] = even;
            other[last + 1] = odd;
        }
        if (mine && t == last) {
            same[-1] = even;
            other[-1] = odd;
        }
        return;
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
