/* A program as for NVSHMEM: relaxation on a ring of cells, with the halo put cell by cell and in blocks, a transposition by several calls, and
   reductions, each checked against what one PE would compute alone. */
#include "kernel.h"

#include <nvshmem.h>
#include <nvshmemx.h>

#include <vector>

enum { CELLS = 48, STEPS = 25, THREADS = 16 };

static int me, n, right, left;

/* The cells of a PE are 1 to CELLS, its neighbours' 0 and CELLS + 1. */
__global__ void relax_by_cells(float *to, const float *from, int left, int right) {
    for (int i = 1 + (int)mp::thread_rank(); i <= CELLS; i += (int)mp::block_threads()) {
        const float value = 0.25f * from[i - 1] + 0.5f * from[i] + 0.25f * from[i + 1];
        to[i] = value;
        if (i == 1) nvshmem_float_p(to + CELLS + 1, value, left);
        if (i == CELLS) nvshmem_float_p(to, value, right);
    }
}
__global__ void relax_by_blocks(float *to, const float *from, int left, int right) {
    for (int i = 1 + (int)mp::thread_rank(); i <= CELLS; i += (int)mp::block_threads())
        to[i] = 0.25f * from[i - 1] + 0.5f * from[i] + 0.25f * from[i + 1];
    mp::block().sync();
    nvshmemx_float_put_nbi_block(to + CELLS + 1, to + 1, 1, left);
    nvshmemx_float_put_nbi_block(to, to + CELLS, 1, right);
}
/* The neighbours know that this step is done, and this PE that theirs are. */
__global__ void meet_neighbours(uint64_t *steps, uint64_t step, int left, int right) {
    nvshmem_quiet();
    nvshmemx_signal_op(steps, step, NVSHMEM_SIGNAL_SET, right);
    nvshmemx_signal_op(steps + 1, step, NVSHMEM_SIGNAL_SET, left);
    nvshmem_uint64_wait_until_all(steps, 2, nullptr, NVSHMEM_CMP_GE, step);
}

static float first(int cell) { return (float)((cell * 37) % 101); }

static void relax(bool by_blocks) {
    float *a = (float *)nvshmem_malloc((CELLS + 2) * sizeof(float)), *b = (float *)nvshmem_malloc((CELLS + 2) * sizeof(float));
    uint64_t *steps = (uint64_t *)nvshmem_calloc(2, sizeof *steps);
    const int cells = n * CELLS;
    std::vector<float> all(cells), next(cells);
    for (int i = 0; i < cells; ++i) all[i] = first(i);
    for (int i = 0; i < CELLS + 2; ++i) hold(&a[i], first((me * CELLS + i - 1 + cells) % cells));
    nvshmem_barrier_all();
    for (int step = 1; step <= STEPS; ++step) {
        if (by_blocks) {
            LAUNCH(relax_by_blocks, 1, THREADS, b, a, left, right);
            LAUNCH(meet_neighbours, 1, 1, steps, (uint64_t)step, left, right);
        } else {
            LAUNCH(relax_by_cells, 1, THREADS, b, a, left, right);
            nvshmemx_barrier_all_on_stream(0);
        }
        std::swap(a, b);
        for (int i = 0; i < cells; ++i)
            next[i] = 0.25f * all[(i + cells - 1) % cells] + 0.5f * all[i] + 0.25f * all[(i + 1) % cells];
        std::swap(all, next);
    }
    /* The last barrier is on a stream, of which the host's barrier knows nothing. */
    finish_streams();
    nvshmem_barrier_all();
    float mine[CELLS + 2];
    nvshmem_float_get(mine, a, CELLS + 2, me);
    for (int i = 0; i < CELLS + 2; ++i) CHECK(mine[i] == all[(me * CELLS + i - 1 + cells) % cells]);
    nvshmem_free(steps);
    nvshmem_free(b);
    nvshmem_free(a);
}

__global__ void fetch_columns(double *to, const double *from, int pes, int me) {
    for (int pe = (int)mp::thread_rank(); pe < pes; pe += (int)mp::block_threads()) {
        double value;
        nvshmem_getmem(&value, from + me, sizeof value, pe);
        to[pe] = value;
    }
}
/* Row `me` of a matrix becomes column `me`. */
static void transpose() {
    double *rows = (double *)nvshmem_malloc(n * sizeof *rows), *columns = (double *)nvshmem_calloc(n, sizeof *columns);
    for (int way = 0; way < 4; ++way) {
        for (int i = 0; i < n; ++i) hold(&rows[i], 1000.0 * way + 100.0 * me + i);
        nvshmem_barrier_all();
        switch (way) {
            case 0: CHECK(nvshmemx_alltoallmem_on_stream(NVSHMEM_TEAM_WORLD, columns, rows, sizeof *rows, 0) == 0); break;
            case 1: CHECK(nvshmem_alltoallmem(NVSHMEM_TEAM_WORLD, columns, rows, sizeof *rows) == 0); break;
            case 2: LAUNCH(fetch_columns, 1, 4, columns, rows, n, me); break;
            default:
                for (int pe = 0; pe < n; ++pe) nvshmemx_double_put_on_stream(columns + me, rows + pe, 1, pe, 0);
                nvshmemx_barrier_all_on_stream(0);
        }
        finish_streams();
        for (int pe = 0; pe < n; ++pe) CHECK(held(&columns[pe]) == 1000.0 * way + 100.0 * pe + me);
        nvshmem_barrier_all();
    }
    nvshmem_free(columns);
    nvshmem_free(rows);
}

/* Also with the values on the device. */
static void reduce() {
    double mine = me + 1, sum = 0;
    int largest = 0, least = me + 5;
    CHECK(nvshmem_double_sum_reduce(NVSHMEM_TEAM_WORLD, &sum, &mine, 1) == 0 && sum == n * (n + 1) / 2);
    CHECK(nvshmem_int_max_reduce(NVSHMEM_TEAM_WORLD, &largest, &me, 1) == 0 && largest == n - 1);
    CHECK(nvshmem_int_min_reduce(NVSHMEM_TEAM_WORLD, &least, &least, 1) == 0 && least == 5);
    long *values = (long *)nvshmem_malloc(2 * sizeof *values);
    hold(&values[0], 10L + me);
    CHECK(nvshmem_long_sum_reduce(NVSHMEM_TEAM_WORLD, values + 1, values, 1) == 0);
    CHECK(held(&values[1]) == 10L * n + n * (n - 1) / 2);
    CHECK(nvshmem_broadcastmem(NVSHMEM_TEAM_WORLD, values, values, sizeof *values, n - 1) == 0 && held(values) == 10L + n - 1);
    nvshmem_barrier_all();
    CHECK(nvshmem_long_atomic_fetch_add(values + 1, 0, me) == held(&values[1]));
    nvshmem_free(values);
}

__global__ void send(int *dest, uint64_t *signal, int *wrong, int pe) {
    int value = 5;
    nvshmem_putmem_signal(dest, &value, sizeof value, signal, 1, NVSHMEM_SIGNAL_ADD, pe);
    if (nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, 1) != 1 || nvshmem_int_g(dest, nvshmem_my_pe()) != 5) *wrong = 1;
}
static void signals() {
    int *dest = (int *)nvshmem_calloc(2, sizeof *dest), *wrong = (int *)nvshmem_calloc(1, sizeof *wrong);
    uint64_t *signal = (uint64_t *)nvshmem_calloc(1, sizeof *signal);
    LAUNCH(send, 1, 1, dest, signal, wrong, right);
    CHECK(held(wrong) == 0);
    nvshmem_barrier_all();
    nvshmemx_putmem_signal_on_stream(dest + 1, dest, sizeof *dest, signal, 2, NVSHMEM_SIGNAL_SET, left, 0);
    nvshmemx_signal_wait_until_on_stream(signal, NVSHMEM_CMP_EQ, 2, 0);
    finish_streams();
    CHECK(held(dest + 1) == 5);
    nvshmem_barrier_all();
    nvshmem_free(signal);
    nvshmem_free(wrong);
    nvshmem_free(dest);
}

/* A PE alone, with memory of its own that is not symmetric. */
__global__ void within(float *cells, int me) {
    if (mp::thread_rank() == 0) nvshmem_float_p(cells, 3.0f, me);
    mp::block().sync();
    nvshmemx_float_put_nbi_block(cells + 1, cells, 1, me);
    nvshmemx_float_get_block(cells + 2, cells + 1, 1, me);
    if (mp::thread_rank() == 0) nvshmem_float_put(cells + 3, cells + 2, 1, me);
    if (mp::thread_rank() == 0) cells[4] = 2.0f * nvshmem_float_g(cells + 3, me);
}
static void alone() {
    float got[5];
#if defined(__CUDACC__)
    float *cells;
    CHECK(cudaMalloc((void **)&cells, sizeof got) == cudaSuccess);
    LAUNCH(within, 1, THREADS, cells, me);
    CHECK(cudaMemcpy(got, cells, sizeof got, cudaMemcpyDefault) == cudaSuccess && cudaFree(cells) == cudaSuccess);
#else
    LAUNCH(within, 1, THREADS, got, me);
#endif
    for (int i = 0; i < 4; ++i) CHECK(got[i] == 3.0f);
    CHECK(got[4] == 6.0f);
}

int main() {
    setenv("NVSHMEM_SYMMETRIC_SIZE", "3m", 1);
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    CHECK(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_MPI_COMM, &attributes) == 0);
    me = nvshmem_my_pe(), n = nvshmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    CHECK(nvshmem_malloc(4 << 20) == nullptr);
    relax(false);
    relax(true);
    transpose();
    reduce();
    signals();
    alone();
    printf("PE %d of %d is through\n", me, n);
    nvshmem_finalize();
    return 0;
}
