/*
 * A stencil of nine points on a plane that is cut in both directions: rows of a halo are put in one piece, columns by strided puts of the host, all
 * on memory of the device. Compared with what one PE computes alone, bit by bit, where the plane is small enough.
 *
 *   stencil2d [ROWS COLUMNS [STEPS]]      of each PE; 256 256 100
 */
#include "device.h"

#include <cmath>
#include <vector>

/* Planes of more cells are not computed again by each PE. */
constexpr long CHECKED = 4 << 20;

/* Powers of two: their products are exact, and whether a compiler joins them with the sums makes no difference. */
constexpr double CENTRE = 0.25, BESIDE = 0.125, CORNER = 0.0625;

/* One step of rows 1 … rows and columns 1 … columns; `pitch` values are from one row to the next. */
MP_HOST_DEVICE double weigh(const double *at, long pitch) {
    const double beside = at[-1] + at[1] + at[-pitch] + at[pitch];
    const double corners = at[-pitch - 1] + at[-pitch + 1] + at[pitch - 1] + at[pitch + 1];
    return CENTRE * at[0] + BESIDE * beside + CORNER * corners;
}
KERNEL void step(double *to, const double *from, long rows, long columns) {
    const long pitch = columns + 2;
    for (long i = first_index(); i < rows * columns; i += index_step()) {
        const long at = (1 + i / columns) * pitch + 1 + i % columns;
        to[at] = weigh(from + at, pitch);
    }
}

static double first(long row, long column) { return (double)((row * 7919 + column * 104729) % 1009) / 1009; }

/* Where this PE is on the plane. */
static long down, across, row, column;

/* The PE so far away, or -1 past the edge. */
static int neighbour(long rows_down, long columns_right) {
    const long r = row + rows_down, c = column + columns_right;
    return r < 0 || r >= down || c < 0 || c >= across ? -1 : (int)(r * across + c);
}

/* How many halos each of the four neighbours has put here. */
static uint64_t *come;

/* Tells the neighbours in one direction that what was put is there, and waits for theirs: side `2 * direction` is that of the lower number. */
static void meet(int direction, int lower, int higher, uint64_t number) {
    /* What is on the device and words of the host are ordered by quiet alone. */
    shmem_quiet();
    if (lower >= 0) shmem_uint64_p(&come[2 * direction + 1], number, lower);
    if (higher >= 0) shmem_uint64_p(&come[2 * direction], number, higher);
    if (lower >= 0) shmem_uint64_wait_until(&come[2 * direction], SHMEM_CMP_GE, number);
    if (higher >= 0) shmem_uint64_wait_until(&come[2 * direction + 1], SHMEM_CMP_GE, number);
}

/* Rows first, then columns with the corners that have come with the rows. */
static void exchange(double *plane, long rows, long columns, uint64_t number) {
    const long pitch = columns + 2;
    const int above = neighbour(-1, 0), below = neighbour(1, 0), left = neighbour(0, -1), right = neighbour(0, 1);
    if (above >= 0) shmem_double_put_nbi(plane + (rows + 1) * pitch + 1, plane + pitch + 1, (size_t)columns, above);
    if (below >= 0) shmem_double_put_nbi(plane + 1, plane + rows * pitch + 1, (size_t)columns, below);
    meet(0, above, below, number);
    if (left >= 0) shmem_double_iput(plane + columns + 1, plane + 1, pitch, pitch, (size_t)rows + 2, left);
    if (right >= 0) shmem_double_iput(plane, plane + columns, pitch, pitch, (size_t)rows + 2, right);
    meet(1, left, right, number);
}

/* The whole plane by this PE alone; false if its own part differs in a bit. */
static bool is_right(const std::vector<double> &mine, long rows, long columns, long steps) {
    const long height = down * rows + 2, width = across * columns + 2;
    std::vector<double> from((size_t)(height * width)), to;
    for (long r = 0; r < height; ++r)
        for (long c = 0; c < width; ++c) from[(size_t)(r * width + c)] = first(r, c);
    to = from;
    for (long s = 0; s < steps; ++s) {
        for (long r = 1; r < height - 1; ++r)
            for (long c = 1; c < width - 1; ++c) to[(size_t)(r * width + c)] = weigh(&from[(size_t)(r * width + c)], width);
        std::swap(from, to);
    }
    for (long r = 1; r <= rows; ++r)
        for (long c = 1; c <= columns; ++c)
            if (mine[(size_t)(r * (columns + 2) + c)] != from[(size_t)((row * rows + r) * width + column * columns + c)]) return false;
    return true;
}

int main(int count, char **words) {
    start();
    const int me = shmem_my_pe(), n = shmem_n_pes();
    const long rows = argument(count, words, 1, 256, 1), columns = argument(count, words, 2, rows, 1), steps = argument(count, words, 3, 100, 1);
    for (down = (long)std::sqrt((double)n); n % down != 0;) --down;
    across = n / down, row = me / across, column = me % across;
    const long cells = (rows + 2) * (columns + 2);
    double *from = device<double>(cells), *to = device<double>(cells);
    come = (uint64_t *)shmem_calloc(4, sizeof *come);
    need(come != nullptr, "the heap is too small: set SHMEM_SYMMETRIC_SIZE");

    std::vector<double> plane((size_t)cells);
    for (long r = 0; r < rows + 2; ++r)
        for (long c = 0; c < columns + 2; ++c) plane[(size_t)(r * (columns + 2) + c)] = first(row * rows + r, column * columns + c);
    /* The edge of the whole plane stays as it is, in both. */
    shmem_double_put(from, plane.data(), (size_t)cells, me);
    shmem_double_put(to, plane.data(), (size_t)cells, me);
    shmem_barrier_all();

    const double began = seconds();
    for (long s = 1; s <= steps; ++s) {
        LAUNCH(step, to, from, rows, columns);
        exchange(to, rows, columns, (uint64_t)s);
        std::swap(from, to);
    }
    shmem_barrier_all();
    const double took = seconds() - began;

    static int wrong, wrongs;
    const bool checked = n * rows * columns <= CHECKED;
    shmem_double_get(plane.data(), from, (size_t)cells, me);
    wrong = checked && !is_right(plane, rows, columns, steps);
    shmem_int_sum_reduce(SHMEM_TEAM_WORLD, &wrongs, &wrong, 1);
    if (me == 0)
        printf("stencil2d: %ld x %ld PEs of %ld x %ld cells, %ld steps: %.2f us a step, %s\n", down, across, rows, columns, steps,
               1e6 * took / (double)steps, !checked ? "not checked" : wrongs == 0 ? "right" : "WRONG");
    const int status = wrongs;
    shmem_finalize();
    return status != 0;
}
