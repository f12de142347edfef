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

// A ghost of `layer` beyond a border, from the four cells next to it, the nearest first.
__device__ __forceinline__ double extended(int rule, int layer, const double (&cells)[4]) {
    double sum = 0.0;
#pragma unroll
    for (int m = 0; m < 4; m++) sum += TAPS[1 + 2 * rule + layer][m] * cells[m];
    return sum;
}

// The two ghosts of a line of cells, which are of one colour and the other in turn, `inward` elements apart. The first cell is `same`,
// and `other` has its place among those of the other colour.
__device__ __forceinline__ void extend_line(int rule, double* same, double* other, int inward) {
    double cells[4];
#pragma unroll
    for (int m = 0; m < 4; m++) cells[m] = (m & 1 ? other : same)[m * inward];
    other[-inward] = extended(rule, 0, cells);
    same[-2 * inward] = extended(rule, 1, cells);
}

// The two ghost rows beyond a row of a plane, SIDE elements of either colour, from which the next rows lie `inward` further. By thread
// number `thread` of THREADS.
template <int SIDE, int THREADS>
__device__ __forceinline__ void extend_row(int rule, double* row0, double* row1, int inward, int thread) {
    for (int item = thread; item < 2 * SIDE; item += THREADS) {
        const bool second = item >= SIDE;
        const int at = second ? item - SIDE : item;
        extend_line(rule, (second ? row1 : row0) + at, (second ? row0 : row1) + at, inward);
    }
}

// The two ghost planes beyond plane k, the first (step 1) or the last (step -1) of the domain, from that and the next three: planes of PLANE
// elements, in whose rows SIDE elements of one colour lie before those of the other. `plane(k)` is where a plane lies.
template <int SIDE, int PLANE, int THREADS, class P>
__device__ __forceinline__ void extend_planes(int rule, int k, int step, int thread, const P& plane) {
    for (int at = thread; at < PLANE; at += THREADS) {
        // Along k the colour of a cell changes, and the halves of the row with it.
        const int flipped = at % (2 * SIDE) < SIDE ? at + SIDE : at - SIDE;
        double cells[4];
#pragma unroll
        for (int m = 0; m < 4; m++) cells[m] = plane(k + m * step)[m & 1 ? flipped : at];
        // cells[0] lies one plane inward of layer 0, two of layer 1.
        plane(k - step)[flipped] = extended(rule, 0, cells);
        plane(k - 2 * step)[at] = extended(rule, 1, cells);
    }
}

// Stores the cells 2t and 2t+1 of row (j, k); where the row ends also its ghosts. Called by whole warps whose lanes hold
// consecutive t of one row, with the cells next to a boundary in one warp (the host's launch sees to it).
template <bool WRAPPED = false, class L>
__device__ __forceinline__ void store_row(const L& level, double* out, int t, int j, int k, double even, double odd) {
    const int last = level.n / 2 - 1;
    // Places of t in the half of the cells of even i, and in the other.
    const int q = (j + k) & 1, at = level.row(j, k) + t;
    const int same = at + q * level.half, other = at + (1 - q) * level.half;
    const bool mine = t <= last && level.has(j) && level.has(k);
    if (mine) {
        out[same] = even;
        out[other] = odd;
    }
    if (WRAPPED) {
        if (mine && t == 0) {
            out[same + last + 1] = even;
            out[other + last + 1] = odd;
        }
        if (mine && t == last) {
            out[same - t - 1] = even;
            out[other - t - 1] = odd;
        }
        return;
    }
    // Most warps of longer rows hold neither end.
    if (last >= 32 && !__any_sync(~0u, t == 0 || t == last)) return;
    const double even_up = __shfl_down_sync(~0u, even, 1), odd_up = __shfl_down_sync(~0u, odd, 1);
    const double even_down = __shfl_up_sync(~0u, even, 1), odd_down = __shfl_up_sync(~0u, odd, 1);
    if (mine && t == 0) {
        out[other - 1] = ghost(level.boundary, 0, even, odd, even_up, odd_up);
        out[same - 1] = ghost(level.boundary, 1, even, odd, even_up, odd_up);
    }
    if (mine && t == last) {
        out[same + 1] = ghost(level.boundary, 0, odd, even, odd_down, even_down);
        out[other + 1] = ghost(level.boundary, 1, odd, even, odd_down, even_down);
    }
}

}  // namespace hpgmg
