// Between levels: means of eight cells, and interpolation as tensor product. Section 7 of the HPGMG-FV description; the
// order of the sums is that of transfer/interpolation.rs: along k, then j, then i.
#pragma once
#include "boundary.cuh"

namespace hpgmg {

// One-dimensional rules, as in transfer/interpolation.rs. Those of cell averages have the number of coarse cells that they read on
// either side.
enum Interpolation { CONSTANT = 0, AVERAGES_QUADRATIC = 1, AVERAGES_QUARTIC = 2, POINTS_LINEAR = 3, POINTS_QUADRATIC = 4 };

__host__ __device__ constexpr int reach_of_rule(int rule) { return rule == CONSTANT ? 0 : rule == AVERAGES_QUARTIC ? 2 : 1; }

// Weights of coarse cells -REACH..REACH for the even child; the odd child mirrors them.
template <int RULE>
__device__ __forceinline__ double weight(int child, int m) {
    const double quadratic[3] = {0.125, 1.0, -0.125};
    const double quartic[5] = {-3.0 / 128.0, 22.0 / 128.0, 1.0, -22.0 / 128.0, 3.0 / 128.0};
    const double linear[3] = {0.25, 0.75, 0.0};
    const double of_points[3] = {5.0 / 32.0, 30.0 / 32.0, -3.0 / 32.0};
    const int at = child ? 2 * reach_of_rule(RULE) - m : m;
    return RULE == CONSTANT             ? 1.0
           : RULE == AVERAGES_QUADRATIC ? quadratic[at]
           : RULE == AVERAGES_QUARTIC   ? quartic[at]
           : RULE == POINTS_LINEAR      ? linear[at]
                                        : of_points[at];
}

// The eight children of a coarse cell: fine[k][j][i]. `coarse(di, dj, dk)` is the coarse value that far from it.
template <int RULE, class Coarse>
__device__ __forceinline__ void interpolate(const Coarse& coarse, double (&fine)[2][2][2]) {
    constexpr int REACH = reach_of_rule(RULE), WIDTH = 2 * REACH + 1;
    double lines[2][2][WIDTH];
#pragma unroll
    for (int a = 0; a < WIDTH; a++) {
        double planes[2][WIDTH];
#pragma unroll
        for (int b = 0; b < WIDTH; b++) {
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                const double value = coarse(a - REACH, b - REACH, c - REACH);
#pragma unroll
                for (int child = 0; child < 2; child++) {
                    const double term = weight<RULE>(child, c) * value;
                    planes[child][b] = c == 0 ? term : planes[child][b] + term;
                }
            }
        }
#pragma unroll
        for (int pk = 0; pk < 2; pk++) {
#pragma unroll
            for (int pj = 0; pj < 2; pj++) {
                double sum = weight<RULE>(pj, 0) * planes[pk][0];
#pragma unroll
                for (int b = 1; b < WIDTH; b++) sum += weight<RULE>(pj, b) * planes[pk][b];
                lines[pk][pj][a] = sum;
            }
        }
    }
#pragma unroll
    for (int pk = 0; pk < 2; pk++) {
#pragma unroll
        for (int pj = 0; pj < 2; pj++) {
#pragma unroll
            for (int pi = 0; pi < 2; pi++) {
                double sum = weight<RULE>(pi, 0) * lines[pk][pj][0];
#pragma unroll
                for (int a = 1; a < WIDTH; a++) sum += weight<RULE>(pi, a) * lines[pk][pj][a];
                fine[pk][pj][pi] = sum;
            }
        }
    }
}

// Two of the children, those next to each other along i which are number pj along j and pk along k, the same bits.
template <int RULE, class Coarse>
__device__ __forceinline__ void interpolate_two(const Coarse& coarse, int pj, int pk, double (&fine)[2]) {
    constexpr int REACH = reach_of_rule(RULE), WIDTH = 2 * REACH + 1;
    double along_j[WIDTH], along_k[WIDTH], lines[WIDTH];
#pragma unroll
    for (int m = 0; m < WIDTH; m++) {
        along_j[m] = pj ? weight<RULE>(1, m) : weight<RULE>(0, m);
        along_k[m] = pk ? weight<RULE>(1, m) : weight<RULE>(0, m);
    }
#pragma unroll
    for (int a = 0; a < WIDTH; a++) {
#pragma unroll
        for (int b = 0; b < WIDTH; b++) {
            double plane = along_k[0] * coarse(a - REACH, b - REACH, -REACH);
#pragma unroll
            for (int c = 1; c < WIDTH; c++) plane += along_k[c] * coarse(a - REACH, b - REACH, c - REACH);
            lines[a] = b == 0 ? along_j[b] * plane : lines[a] + along_j[b] * plane;
        }
    }
#pragma unroll
    for (int pi = 0; pi < 2; pi++) {
        fine[pi] = weight<RULE>(pi, 0) * lines[0];
#pragma unroll
        for (int a = 1; a < WIDTH; a++) fine[pi] += weight<RULE>(pi, a) * lines[a];
    }
}

// All cells are in memory.
struct All {
    static constexpr bool ALL_ROWS = true;
    __device__ __forceinline__ static constexpr int low(int) { return 0; }
    __device__ __forceinline__ static constexpr int high(int) { return 1 << 30; }
};

// Coarse cells that a block interpolates from, so many along i, j and k, and the neighbours that the rule reads.
template <int REACH, int I = 32, int J = TILE, int K = TILE>
struct Tile {
    static constexpr int ROW = I + 2 * REACH, ROWS = J + 2 * REACH, PLANES = K + 2 * REACH, CELLS = ROW * ROWS * PLANES;
    double cells[PLANES][ROWS][ROW];

    // Fills the tile whose first cell is (i0, j0, k0): from the cells of x inside the domain that `here` says are in memory, then
    // outside along i, j and k in turn. Other cells hold nothing that is used. By thread number `thread` of THREADS.
    // WRAPPED: from where the cells are that those outside are, at once; along j and k only if all of them are inside.
    // Where the tile ends inside, nothing is outside along that axis.
    template <int THREADS, bool WRAPPED = false, class Here = All>
    __device__ __forceinline__ void fill(const Level& level, const double* x, int rule, int i0, int j0, int k0, int thread,
                                         const Here& here_is = {}) {
        const bool all_planes = here_is.high(2) - here_is.low(2) > 2 * level.n;
        auto around = [&](int at) { return at < 0 ? at + level.n : at >= level.n ? at - level.n : at; };
        auto in = [&](int axis, int at) { return at >= here_is.low(axis) && at < here_is.high(axis); };
        auto ends_inside = [&](int axis, int first, int count) {
            return level.has(first) && level.has(first + count - 1) && in(axis, first) && in(axis, first + count - 1);
        };
        // What is inside, row by row: a warp has the same row of several planes, and a lane the same place in it, so that little is computed.
        constexpr int WARPS = THREADS / 32, AT_ONCE = WARPS < 8 ? WARPS : 8, STEP = WARPS / AT_ONCE, TURNS = (PLANES + STEP - 1) / STEP;
        const int warp = thread / 32, lane = thread % 32, i = i0 - REACH + lane, c0 = warp / AT_ONCE;
        const bool has_i = lane < ROW && level.has(i) && in(0, i), has_more = lane + 32 < ROW && level.has(i + 32) && in(0, i + 32);
        for (int b = warp % AT_ONCE; !WRAPPED && c0 < STEP && b < ROWS; b += AT_ONCE) {
            const int j = j0 - REACH + b, k = k0 - REACH + c0, row = level.row(j, k) + (i >> 1);
            if (!level.has(j) || !in(1, j)) continue;
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                const int c = c0 + turn * STEP, at = row + turn * STEP * level.plane() + ((i + j + k + turn * STEP) & 1) * level.half;
                if (c >= PLANES || !level.has(k + turn * STEP) || !in(2, k + turn * STEP)) continue;
                if (has_i) copy_one(&cells[c][b][lane], x + at);
                if (has_more) copy_one(&cells[c][b][lane + 32], x + at + 16);
            }
        }
        for (int cell = thread; WRAPPED && cell < CELLS; cell += THREADS) {
            const int a = cell % ROW, b = cell / ROW % ROWS, c = cell / (ROW * ROWS);
            const bool all_rows = Here::ALL_ROWS || here_is.high(1) - here_is.low(1) > 2 * level.n;
            const int ii = around(i0 - REACH + a), j = j0 - REACH + b, k = k0 - REACH + c;
            const int jj = all_rows ? around(j) : j, kk = all_planes ? around(k) : k;
            const bool row = all_rows ? level.has(jj) : in(1, jj), plane = all_planes ? level.has(kk) : in(2, kk);
            if (level.has(ii) && row && plane) copy_one(&cells[c][b][a], x + level.at(ii, jj, kk));
        }
        copied();
        __syncthreads();
        if (WRAPPED) return;
        if (!ends_inside(0, i0 - REACH, ROW)) extend<0, THREADS>(level, rule, i0, j0, k0, thread, in);
        if (!ends_inside(1, j0 - REACH, ROWS)) extend<1, THREADS>(level, rule, i0, j0, k0, thread, in);
        if (!ends_inside(2, k0 - REACH, PLANES)) extend<2, THREADS>(level, rule, i0, j0, k0, thread, in);
    }

private:
    // The two cells beyond either end of the domain along an axis, as far as they are in the tile; along those before it they are there. `in` as in
    // `fill`: cells that are not in memory are made of nothing that is used.
    template <int AXIS, int THREADS, class In>
    __device__ __forceinline__ void extend(const Level& level, int rule, int i0, int j0, int k0, int thread, const In& in) {
        constexpr int A = AXIS == 0 ? 4 : ROW, B = AXIS == 1 ? 4 : ROWS, C = AXIS == 2 ? 4 : PLANES, LONG = AXIS == 0 ? ROW : AXIS == 1 ? ROWS : PLANES;
        const int first = (AXIS == 0 ? i0 : AXIS == 1 ? j0 : k0) - REACH;
        for (int item = thread; item < A * B * C; item += THREADS) {
            const int a = item % A, b = item / A % B, c = item / (A * B), layer = AXIS == 0 ? a : AXIS == 1 ? b : c;
            const int at = layer < 2 ? layer - 2 : level.n + layer - 2, here = at - first, j = j0 - REACH + b, k = k0 - REACH + c;
            if (here < 0 || here >= LONG) continue;
            if (AXIS < 1 && !(level.has(j) && in(1, j))) continue;
            if (AXIS < 2 && !(level.has(k) && in(2, k))) continue;
            const Taps taps(at, level.n, rule);
            double sum = 0.0;
            for (int m = 0; m < cells_of(rule); m++) {
                const int from = taps.first + m * taps.step - first;
                sum += taps.weight(m) * (AXIS == 0 ? cells[c][b][from] : AXIS == 1 ? cells[c][from][a] : cells[from][b][a]);
            }
            (AXIS == 0 ? cells[c][b][here] : AXIS == 1 ? cells[c][here][a] : cells[here][b][a]) = sum;
        }
        __syncthreads();
    }
};

// Interpolates along one axis: two children of each of COUNT cells in turn, from these cells and REACH more at either end, which lie
// `step` elements apart, as the children do by `child_step`.
template <int RULE, int COUNT>
__device__ __forceinline__ void interpolate_along(const double* cells, int step, double* children, int child_step) {
    constexpr int REACH = reach_of_rule(RULE), WIDTH = 2 * REACH + 1;
    double values[COUNT + 2 * REACH];
#pragma unroll
    for (int m = 0; m < COUNT + 2 * REACH; m++) values[m] = cells[m * step];
#pragma unroll
    for (int cell = 0; cell < COUNT; cell++) {
#pragma unroll
        for (int child = 0; child < 2; child++) {
            double sum = weight<RULE>(child, 0) * values[cell];
#pragma unroll
            for (int m = 1; m < WIDTH; m++) sum += weight<RULE>(child, m) * values[cell + m];
            children[(2 * cell + child) * child_step] = sum;
        }
    }
}

// A tile that is interpolated from by a block: along k and then along j once for all cells that need it, along i by the thread of a cell.
template <int RULE>
struct TileOfChildren {
    using Coarse = Tile<reach_of_rule(RULE)>;
    // The second takes the place of the cells.
    union {
        Coarse coarse;
        double along_j[2 * TILE][2 * TILE][Coarse::ROW];
    };
    double along_k[2 * TILE][Coarse::ROWS][Coarse::ROW];

    // When `coarse` is full; by all of `threads` threads.
    __device__ __forceinline__ void interpolate(int thread, int threads) {
        for (int item = thread; item < Coarse::ROWS * Coarse::ROW; item += threads) {
            const int b = item / Coarse::ROW, a = item % Coarse::ROW;
            interpolate_along<RULE, TILE>(&coarse.cells[0][b][a], Coarse::ROWS * Coarse::ROW, &along_k[0][b][a], Coarse::ROWS * Coarse::ROW);
        }
        __syncthreads();
        for (int item = thread; item < 2 * TILE * Coarse::ROW; item += threads) {
            const int c = item / Coarse::ROW, a = item % Coarse::ROW;
            interpolate_along<RULE, TILE>(&along_k[c][0][a], Coarse::ROW, &along_j[c][0][a], Coarse::ROW);
        }
        __syncthreads();
    }
    // The eight children of a cell of the tile: fine[k][j][i].
    __device__ __forceinline__ void children(int i, int j, int k, double (&fine)[2][2][2]) const {
#pragma unroll
        for (int pk = 0; pk < 2; pk++) {
#pragma unroll
            for (int pj = 0; pj < 2; pj++) interpolate_along<RULE, 1>(&along_j[2 * k + pk][2 * j + pj][i], 1, fine[pk][pj], 1);
        }
    }
};

// Sum of the cells 2t and 2t+1 of row (j, k).
template <bool READ_ONLY>
__device__ __forceinline__ double sum_of_pair(const Level& level, const double* x, int t, int j, int k) {
    const double* at = x + level.row(j, k) + t;
    return load<READ_ONLY>(at) + load<READ_ONLY>(at + level.half);
}

// Mean of the eight fine cells under coarse cell (i, j, k).
template <bool READ_ONLY>
__device__ __forceinline__ double mean_of_eight(const Level& fine, const double* x, int i, int j, int k) {
    return 0.125 *
           ((sum_of_pair<READ_ONLY>(fine, x, i, 2 * j, 2 * k) + sum_of_pair<READ_ONLY>(fine, x, i, 2 * j + 1, 2 * k)) +
            (sum_of_pair<READ_ONLY>(fine, x, i, 2 * j, 2 * k + 1) +
             sum_of_pair<READ_ONLY>(fine, x, i, 2 * j + 1, 2 * k + 1)));
}

}  // namespace hpgmg
