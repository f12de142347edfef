// What the benchmark does not use: the operators 7pt and 27pt, and domains that wrap around. The kernels are those of grid.cu, slab.cu
// and resident.cu with other stencils, ghosts and transfers. And the mean of a solution, which a periodic operator does not see.
//
// A mean is the CPU's, bit by bit (vectors.rs): cells are added up row by row in each box, rows in the order of the box, boxes in the
// order of their numbers. Ranks add up the rows that they have, and each gets the others' sums.
#include "slab.cuh"

HPGMG_OPERATOR(p27, P27)
HPGMG_OPERATOR(fv4_wrapped, FV4 | WRAPS)
HPGMG_OPERATOR(fv2_wrapped, FV2 | WRAPS)
HPGMG_OPERATOR(p27_wrapped, P27 | WRAPS)
HPGMG_PARTS_OPERATOR(p27, P27)
HPGMG_PARTS_OPERATOR(fv4_wrapped, FV4 | WRAPS)
HPGMG_PARTS_OPERATOR(fv2_wrapped, FV2 | WRAPS)
HPGMG_PARTS_OPERATOR(p27_wrapped, P27 | WRAPS)
HPGMG_RESIDENT(p7, hpgmg::P7)
HPGMG_RESIDENT(p27, hpgmg::P27)
HPGMG_RESIDENT(p7_wrapped, hpgmg::P7 | hpgmg::WRAPS)
HPGMG_RESIDENT(fv4_wrapped, hpgmg::FV4 | hpgmg::WRAPS)
HPGMG_RESIDENT(fv2_wrapped, hpgmg::FV2 | hpgmg::WRAPS)
HPGMG_RESIDENT(p27_wrapped, hpgmg::P27 | hpgmg::WRAPS)

HPGMG_PROLONG(correct_constant, CONSTANT, true, false)
HPGMG_PROLONG(replace_linear, POINTS_LINEAR, false, false)
HPGMG_PROLONG(correct_points, POINTS_QUADRATIC, true, false)
HPGMG_PROLONG(replace_points, POINTS_QUADRATIC, false, false)
HPGMG_PROLONG(wrapped_correct, AVERAGES_QUADRATIC, true, true)
HPGMG_PROLONG(wrapped_replace_quadratic, AVERAGES_QUADRATIC, false, true)
HPGMG_PROLONG(wrapped_replace_quartic, AVERAGES_QUARTIC, false, true)
HPGMG_PROLONG(wrapped_correct_constant, CONSTANT, true, true)
HPGMG_PROLONG(wrapped_replace_linear, POINTS_LINEAR, false, true)
HPGMG_PROLONG(wrapped_correct_points, POINTS_QUADRATIC, true, true)
HPGMG_PROLONG(wrapped_replace_points, POINTS_QUADRATIC, false, true)
HPGMG_PARTS_PROLONG(correct_constant, CONSTANT, true, false)
HPGMG_PARTS_PROLONG(replace_linear, POINTS_LINEAR, false, false)
HPGMG_PARTS_PROLONG(correct_points, POINTS_QUADRATIC, true, false)
HPGMG_PARTS_PROLONG(replace_points, POINTS_QUADRATIC, false, false)
HPGMG_PARTS_PROLONG(wrapped_correct, AVERAGES_QUADRATIC, true, true)
HPGMG_PARTS_PROLONG(wrapped_replace_quadratic, AVERAGES_QUADRATIC, false, true)
HPGMG_PARTS_PROLONG(wrapped_replace_quartic, AVERAGES_QUARTIC, false, true)
HPGMG_PARTS_PROLONG(wrapped_correct_constant, CONSTANT, true, true)
HPGMG_PARTS_PROLONG(wrapped_replace_linear, POINTS_LINEAR, false, true)
HPGMG_PARTS_PROLONG(wrapped_correct_points, POINTS_QUADRATIC, true, true)
HPGMG_PARTS_PROLONG(wrapped_replace_points, POINTS_QUADRATIC, false, true)

// x in place, and the number at pass.rhs added. Ghosts of x follow.
HPGMG_PASS(shift, FV2 | WRAPS, SHIFT, false)
HPGMG_PART_PASS(slab_shift, Slab, FV2 | WRAPS, SHIFT, false)
HPGMG_PART_PASS(box_shift, Brick, FV2 | WRAPS, SHIFT, false)

// Sums of the rows, cut where boxes of `box` cells a side end, of a part of x: in the order of boxes and of the rows in each.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    hpgmg_sum_rows(const __grid_constant__ Level level, const double* x, double* sums, const __grid_constant__ Extent extent, int box) {
    const Place p(extent);
    const int side = level.n / box;
    if (!p.mine) return;
    for (int k = p.k; k < p.end; k++) {
        double sum = 0.0;
        for (int i = p.t * box; i < (p.t + 1) * box; i++) sum += x[level.at(i, p.j, k)];
        const int number = p.t + side * (p.j / box + side * (k / box));
        sums[(std::int64_t(number) * box + k % box) * box + p.j % box] = sum;
    }
}

// totals[number of a block] = the sum of so many values, `count` for each block.
extern "C" __global__ void __launch_bounds__(256) hpgmg_sum_boxes(const double* sums, double* totals, int count) {
    constexpr int CHUNK = 2048;
    __shared__ double values[CHUNK];
    const double* const mine = sums + std::int64_t(blockIdx.x) * count;
    double total = 0.0;
    for (int first = 0; first < count; first += CHUNK) {
        const int here = min(CHUNK, count - first);
        for (int at = threadIdx.x; at < here; at += 256) values[at] = mine[first + at];
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int at = 0; at < here; at++) total += values[at];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

// shift = -(sum of the values) / cells.
extern "C" __global__ void __launch_bounds__(32) hpgmg_mean(const double* totals, double* shift, int count, double cells) {
    if (threadIdx.x != 0) return;
    double total = 0.0;
    for (int at = 0; at < count; at++) total += totals[at];
    *shift = -(total / cells);
}
