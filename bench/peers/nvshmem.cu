// NVSHMEM as a peer of `mp-perf compare`: one of PES processes, each on its own GPU, that measure what they are told, a line
// at a time. It is no benchmark of its own: mp-perf starts all, says which measurement is next, and puts it between its own, so
// that all players see the same machine. Built by tools/build-nvshmem-peer.
//
//   nvshmem-peer PE PES GPU      PE 0 prints "id HEX"; the others read that line; all print "ready VERSION"
//
// Of all PEs:
//   barrier_kernel 0 ROUNDS 1    nvshmem_barrier_all by one thread; µs
//   barrier_stream 0 ROUNDS IN_GRAPH    nvshmemx_barrier_all_on_stream, in replays of a graph of so many if that is not 0; µs
//   reduce_kernel SIZE ROUNDS THREADS   nvshmemx_double_sum_reduce_block, SIZE bytes; µs
//   reduce SIZE ROUNDS IN_GRAPH, gather, all_to_all   on a stream, SIZE bytes of result, as barriers; µs
//
// Between two PEs, and refused where there are more:
//   p 8 ROUNDS 1                 one thread: nvshmem_uint64_p, nvshmem_uint64_wait_until; µs one way
//   put SIZE ROUNDS THREADS      one block: nvshmemx_putmem_signal_block, nvshmem_signal_wait_until; µs one way
//   stream SIZE ROUNDS 0         putmem_signal_on_stream, signal_wait_until_on_stream; µs one way, then µs of the CPU a round
//   exchange SIZE ROUNDS BLOCKS  both put and signal at once, then wait, each block its share; µs
//   bandwidth SIZE ROUNDS BLOCKS nvshmemx_putmem_nbi_block of 1024 threads from PE 0 to PE 1, then quiet; GB/s
//   get SIZE ROUNDS THREADS      PE 0: nvshmemx_getmem_block by one block; µs
//   fetch_add 8 ROUNDS 1         PE 0: nvshmem_uint64_atomic_fetch_add by one thread; µs
//   words THREADS ROUNDS BLOCKS  PE 0: nvshmem_uint64_p by every thread, each to its own word, then quiet; millions a second
//   stencil COLUMNS TURNS RANKS LINES LEVELS   `dcuda stencil` by one kernel; seconds, and the sum of this PE's result
//
// Each is answered with "ok NUMBER…" (PEs but 0: zeros, but for the stencil) or "error TEXT". The end of the input ends the process.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#include "nvshmem_stencil.cuh"

namespace {

constexpr size_t heap_bytes = 64 << 20;
constexpr int most_blocks = 64;
constexpr int most_stamps = 256;
// As in mp-perf: rows of words, and bytes that gets go through.
constexpr size_t rows = 64, spread = 32 << 20;
constexpr int untimed = 100;
// Rounds of a stream that are enqueued before they are waited for, as in mp-perf's own measurements.
constexpr int batch = 300;

[[noreturn]] void fail(const std::string &text) {
    std::printf("error %s\n", text.c_str());
    std::fflush(stdout);
    std::_Exit(1);
}

void check(cudaError_t code, const char *what) {
    if (code != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(code));
}

// What each process has: a place to land, a source, signals, a counter; and the time a kernel took.
struct State {
    int pe, pes;
    char *landing, *source;
    uint64_t *signal;
    uint64_t *time;
    uint64_t *counter;
    cudaStream_t stream;
    // The highest signal so far: each measurement goes on from there.
    uint64_t base;
};

__device__ uint64_t now() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

// PE 0 sends first.
__global__ void play_p(uint64_t *signal, uint64_t base, int rounds, int pe, uint64_t *time) {
    uint64_t begin = 0;
    for (int round = 1; round <= untimed + rounds; round++) {
        if (round == untimed + 1) begin = now();
        if (pe == 0) nvshmem_uint64_p(signal, base + round, 1);
        nvshmem_uint64_wait_until(signal, NVSHMEM_CMP_GE, base + round);
        if (pe == 1) nvshmem_uint64_p(signal, base + round, 0);
    }
    *time = now() - begin;
}

__global__ void play_put(char *landing, const char *source, size_t size, uint64_t *signal, uint64_t base, int rounds, int pe,
                         uint64_t *time) {
    uint64_t begin = 0;
    for (int round = 1; round <= untimed + rounds; round++) {
        if (round == untimed + 1) begin = now();
        if (pe == 0) nvshmemx_putmem_signal_block(landing, source, size, signal, base + round, NVSHMEM_SIGNAL_SET, 1);
        if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, base + round);
        __syncthreads();
        if (pe == 1) nvshmemx_putmem_signal_block(landing, source, size, signal, base + round, NVSHMEM_SIGNAL_SET, 0);
    }
    if (threadIdx.x == 0) *time = now() - begin;
}

// Signals are 128 bytes apart; the two halves of the landing are used in turn.
__global__ void play_exchange(char *landing, const char *source, size_t size, uint64_t *signals, uint64_t base, int rounds, int pe,
                              uint64_t *time) {
    size_t each = (size / gridDim.x + 15) / 16 * 16, at = each * blockIdx.x;
    size_t share = at >= size ? 0 : (size - at < each ? size - at : each);
    uint64_t *signal = signals + 16 * blockIdx.x;
    uint64_t begin = 0;
    for (int round = 1; round <= untimed + rounds; round++) {
        if (round == untimed + 1) begin = now();
        char *to = landing + round % 2 * size + at;
        nvshmemx_putmem_signal_block(to, source + at, share, signal, base + round, NVSHMEM_SIGNAL_SET, 1 - pe);
        if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, base + round);
        __syncthreads();
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *time = now() - begin;
}

__global__ void play_barrier(int rounds, uint64_t *time) {
    uint64_t begin = 0;
    for (int round = 1; round <= untimed + rounds; round++) {
        if (round == untimed + 1) begin = now();
        nvshmem_barrier_all();
    }
    *time = now() - begin;
}

__global__ void play_bandwidth(char *landing, const char *source, size_t size, int rounds) {
    size_t share = size / gridDim.x / 16 * 16;
    size_t at = share * blockIdx.x;
    if (blockIdx.x == gridDim.x - 1) share = size - at;
    for (int round = 0; round < rounds; round++) nvshmemx_putmem_nbi_block(landing + at, source + at, share, 1);
    __syncthreads();
    if (threadIdx.x == 0) nvshmem_quiet();
}

// PE 0's alone. Each get is of another place, so that none comes from a cache.
__global__ void play_get(char *landing, const char *source, size_t size, int rounds, uint64_t *time) {
    uint64_t begin = 0;
    size_t step = size < 128 ? 128 : size, at = 0;
    for (int round = 1; round <= untimed + rounds; round++) {
        if (round == untimed + 1) begin = now();
        at = at + step < spread ? at + step : 0;
        nvshmemx_getmem_block(landing, source + at, size, 1);
    }
    if (threadIdx.x == 0) *time = now() - begin;
}

__global__ void play_fetch_add(uint64_t *word, int rounds, uint64_t *time) {
    uint64_t begin = 0, sum = 0;
    for (int round = 1; round <= untimed + rounds; round++) {
        if (round == untimed + 1) begin = now();
        sum += nvshmem_uint64_atomic_fetch_add(word, 1, 1);
    }
    // The sum is used, so that every addition is waited for.
    *time = now() - begin + (sum == 0);
}

// Into rows of all threads' words in turn: the compiler makes one store of several to the same place.
__global__ void play_words(uint64_t *words, int rounds, uint64_t *stamps) {
    uint64_t began = now();
    size_t row = size_t(gridDim.x) * blockDim.x;
    uint64_t *mine = words + size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    for (int round = 1; round <= rounds; round++) nvshmem_uint64_p(mine + round % rows * row, round, 1);
    nvshmem_quiet();
    __syncthreads();
    if (threadIdx.x != 0) return;
    stamps[2 * blockIdx.x] = began;
    stamps[2 * blockIdx.x + 1] = now();
}

__global__ void play_reduce(double *to, const double *from, size_t count, int rounds, uint64_t *time) {
    uint64_t begin = 0;
    for (int round = 1; round <= untimed + rounds; round++) {
        if (round == untimed + 1) begin = now();
        nvshmemx_double_sum_reduce_block(NVSHMEM_TEAM_WORLD, to, from, count);
    }
    if (threadIdx.x == 0) *time = now() - begin;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Waits for the kernel; microseconds of a round by its clock.
double kernel_us(State &state, int rounds) {
    check(cudaGetLastError(), "launching");
    check(cudaStreamSynchronize(state.stream), "running the kernel");
    uint64_t ns = 0;
    check(cudaMemcpy(&ns, state.time, sizeof ns, cudaMemcpyDeviceToHost), "reading the time");
    state.base += untimed + rounds;
    return ns * 1e-3 / rounds;
}

void streams(State &state, size_t size, int rounds, double answer[2]) {
    double elapsed = 0, enqueued = 0;
    for (int done = 0; done < rounds; done += batch) {
        int count = rounds - done < batch ? rounds - done : batch;
        nvshmem_barrier_all();
        auto begin = std::chrono::steady_clock::now();
        for (int round = 0; round < count; round++) {
            uint64_t value = ++state.base;
            if (state.pe == 0)
                nvshmemx_putmem_signal_on_stream(state.landing, state.source, size, state.signal, value,
                                                 NVSHMEM_SIGNAL_SET, 1, state.stream);
            nvshmemx_signal_wait_until_on_stream(state.signal, NVSHMEM_CMP_GE, value, state.stream);
            if (state.pe == 1)
                nvshmemx_putmem_signal_on_stream(state.landing, state.source, size, state.signal, value,
                                                 NVSHMEM_SIGNAL_SET, 0, state.stream);
        }
        enqueued += seconds_since(begin);
        check(cudaStreamSynchronize(state.stream), "waiting for the stream");
        elapsed += seconds_since(begin);
    }
    answer[0] = elapsed * 0.5e6 / rounds;
    answer[1] = enqueued * 1e6 / rounds;
}

// Microseconds of a round on the stream, and of the CPU. `in_graph` not 0: so many rounds are captured first, once they have been played as
// they are, and their graph is replayed.
template <class Play>
void on_stream(State &state, int rounds, int in_graph, double answer[2], const Play &play) {
    cudaGraphExec_t graph = nullptr;
    if (in_graph != 0) {
        for (int round = 0; round < in_graph; round++) play();
        check(cudaStreamSynchronize(state.stream), "waiting for the stream");
        cudaGraph_t captured = nullptr;
        check(cudaStreamBeginCapture(state.stream, cudaStreamCaptureModeThreadLocal), "capturing");
        for (int round = 0; round < in_graph; round++) play();
        check(cudaStreamEndCapture(state.stream, &captured), "ending the capture");
        check(cudaGraphInstantiate(&graph, captured, 0), "instantiating the graph");
        check(cudaGraphDestroy(captured), "destroying what was captured");
        check(cudaGraphLaunch(graph, state.stream), "launching the graph");
        check(cudaStreamSynchronize(state.stream), "waiting for the stream");
    }
    int each = in_graph == 0 ? 1 : in_graph, launches = (rounds + each - 1) / each;
    nvshmem_barrier_all();
    auto begin = std::chrono::steady_clock::now();
    for (int launch = 0; launch < launches; launch++) {
        if (graph != nullptr) check(cudaGraphLaunch(graph, state.stream), "launching the graph");
        else play();
    }
    answer[1] = seconds_since(begin) * 1e6 / (launches * each);
    check(cudaStreamSynchronize(state.stream), "waiting for the stream");
    answer[0] = seconds_since(begin) * 1e6 / (launches * each);
    if (graph != nullptr) check(cudaGraphExecDestroy(graph), "destroying the graph");
}

double bandwidth(State &state, size_t size, int rounds, int blocks) {
    if (state.pe != 0) return 0;
    cudaEvent_t events[2];
    for (auto &event : events) check(cudaEventCreate(&event), "creating an event");
    check(cudaEventRecord(events[0], state.stream), "recording an event");
    play_bandwidth<<<blocks, 1024, 0, state.stream>>>(state.landing, state.source, size, rounds);
    check(cudaGetLastError(), "launching");
    check(cudaEventRecord(events[1], state.stream), "recording an event");
    check(cudaStreamSynchronize(state.stream), "running the kernel");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events[0], events[1]), "reading the events");
    for (auto event : events) check(cudaEventDestroy(event), "destroying an event");
    return double(size) * rounds / (ms * 1e6);
}

// Millions of words a second.
double words(State &state, int threads, int rounds, int blocks) {
    if (state.pe != 0) return 0;
    if (blocks < 1 || blocks > most_stamps || threads < 1 || size_t(threads) * blocks * 8 * rows > heap_bytes)
        fail("words of too many blocks or threads");
    play_words<<<blocks, threads, 0, state.stream>>>(reinterpret_cast<uint64_t *>(state.landing), rounds, state.time);
    check(cudaGetLastError(), "launching");
    check(cudaStreamSynchronize(state.stream), "running the kernel");
    uint64_t stamps[2 * most_stamps];
    check(cudaMemcpy(stamps, state.time, 2 * sizeof(uint64_t) * blocks, cudaMemcpyDeviceToHost), "reading the times");
    uint64_t began = stamps[0], ended = stamps[1];
    for (int block = 1; block < blocks; block++) {
        if (stamps[2 * block] < began) began = stamps[2 * block];
        if (stamps[2 * block + 1] > ended) ended = stamps[2 * block + 1];
    }
    return double(rounds) * threads * blocks * 1e3 / double(ended - began);
}

// A collective on the stream.
void collective(State &state, const std::string &what, size_t size) {
    auto *to = reinterpret_cast<double *>(state.landing);
    auto *from = reinterpret_cast<const double *>(state.source);
    // Of a gathered or exchanged result a share is each PE's: a word at least.
    size_t count = size / sizeof(double), pes = size_t(state.pes), share = count < pes ? 1 : count / pes;
    int code;
    if (what == "reduce") code = nvshmemx_double_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, to, from, count, state.stream);
    else if (what == "gather") code = nvshmemx_double_fcollect_on_stream(NVSHMEM_TEAM_WORLD, to, from, share, state.stream);
    else code = nvshmemx_double_alltoall_on_stream(NVSHMEM_TEAM_WORLD, to, from, share, state.stream);
    if (code != 0) fail(what + " on a stream returned " + std::to_string(code));
}

// Kernels that wait for one another are launched so that NVSHMEM knows of them.
void launch(const void *kernel, int blocks, int threads, void **arguments, State &state) {
    int code = nvshmemx_collective_launch(kernel, dim3(blocks), dim3(threads), arguments, 0, state.stream);
    if (code != 0) fail("nvshmemx_collective_launch returned " + std::to_string(code));
}

void only_two(const State &state, const std::string &what) {
    if (state.pes != 2) fail(what + " is between 2 PEs, there are " + std::to_string(state.pes));
}

void measure(State &state, const std::string &what, size_t size, int rounds, int width) {
    double answer[2] = {0, 0};
    for (const char *one : {"p", "put", "stream", "exchange", "bandwidth", "get", "fetch_add", "words"})
        if (what == one) only_two(state, what);
    nvshmem_barrier_all();
    if (what == "p") {
        void *arguments[] = {&state.signal, &state.base, &rounds, &state.pe, &state.time};
        launch(reinterpret_cast<const void *>(play_p), 1, 1, arguments, state);
        answer[0] = kernel_us(state, rounds) / 2;
    } else if (what == "put") {
        void *arguments[] = {&state.landing, &state.source, &size, &state.signal, &state.base, &rounds, &state.pe, &state.time};
        launch(reinterpret_cast<const void *>(play_put), 1, width, arguments, state);
        answer[0] = kernel_us(state, rounds) / 2;
    } else if (what == "exchange") {
        if (width < 1 || width > most_blocks || 2 * size > heap_bytes) fail("an exchange with too many blocks or bytes");
        void *arguments[] = {&state.landing, &state.source, &size, &state.signal, &state.base, &rounds, &state.pe, &state.time};
        launch(reinterpret_cast<const void *>(play_exchange), width, 1024, arguments, state);
        answer[0] = kernel_us(state, rounds);
    } else if (what == "get" || what == "fetch_add") {
        if (state.pe == 0) {
            if (what == "get") play_get<<<1, width, 0, state.stream>>>(state.landing, state.source, size, rounds, state.time);
            else play_fetch_add<<<1, 1, 0, state.stream>>>(state.counter, rounds, state.time);
            answer[0] = kernel_us(state, rounds);
        }
    } else if (what == "words") {
        answer[0] = words(state, int(size), rounds, width);
    } else if (what == "reduce_kernel") {
        auto *to = reinterpret_cast<double *>(state.landing);
        auto *from = reinterpret_cast<const double *>(state.source);
        size_t count = size / sizeof(double);
        void *arguments[] = {&to, &from, &count, &rounds, &state.time};
        launch(reinterpret_cast<const void *>(play_reduce), 1, width, arguments, state);
        answer[0] = kernel_us(state, rounds);
    } else if (what == "reduce" || what == "gather" || what == "all_to_all") {
        on_stream(state, rounds, width, answer, [&] { collective(state, what, size); });
    } else if (what == "stream") {
        streams(state, size, rounds, answer);
    } else if (what == "barrier_kernel") {
        void *arguments[] = {&rounds, &state.time};
        launch(reinterpret_cast<const void *>(play_barrier), 1, 1, arguments, state);
        answer[0] = kernel_us(state, rounds);
    } else if (what == "barrier_stream") {
        on_stream(state, rounds, width, answer, [&] { nvshmemx_barrier_all_on_stream(state.stream); });
    } else if (what == "bandwidth") {
        answer[0] = bandwidth(state, size, rounds, width);
    } else {
        fail("no measurement is called " + what);
    }
    nvshmem_barrier_all();
    if (state.pe != 0) answer[0] = answer[1] = 0;
    std::printf("ok %.6f %.6f\n", answer[0], answer[1]);
    std::fflush(stdout);
}

// From the beginning to the end of so many iterations. The memory is that of the last one, if it is as large.
void diffuse(State &state, programs::Stencil all) {
    static size_t room = 0;
    static void *fields = nullptr;
    static uint64_t *signals = nullptr;
    static uint64_t before = 0;
    const size_t words = 5 * all.levels * (all.ranks * all.lines + 2) * all.columns;
    const size_t bytes = words * sizeof(double), signal_bytes = all.ranks * stencil::sides * stencil::apart;
    if (room != bytes + signal_bytes) {
        if (fields) nvshmem_free(fields), nvshmem_free(signals);
        fields = nvshmem_malloc(bytes);
        signals = static_cast<uint64_t *>(nvshmem_calloc(signal_bytes, 1));
        if (!fields || !signals) fail("no room in the symmetric heap for " + std::to_string(bytes) + " bytes");
        room = bytes + signal_bytes;
        before = 0;
    }
    all.fields = reinterpret_cast<uint64_t>(fields);
    stencil::begin<<<1024, 256, 0, state.stream>>>(all);
    check(cudaMemsetAsync(state.time, 0, sizeof(uint64_t), state.stream), "clearing the sum");
    check(cudaStreamSynchronize(state.stream), "filling the fields");
    nvshmem_barrier_all();
    auto began = std::chrono::steady_clock::now();
    void *arguments[] = {&all, &signals, &before};
    launch(reinterpret_cast<const void *>(stencil::play), int(all.ranks), 128, arguments, state);
    check(cudaStreamSynchronize(state.stream), "running the stencil");
    const double seconds = seconds_since(began);
    before += 2 * all.turns;
    stencil::sum<<<1024, 256, 0, state.stream>>>(all, reinterpret_cast<unsigned long long *>(state.time));
    check(cudaStreamSynchronize(state.stream), "summing the result");
    unsigned long long sum = 0;
    check(cudaMemcpy(&sum, state.time, sizeof sum, cudaMemcpyDeviceToHost), "reading the sum");
    nvshmem_barrier_all();
    std::printf("ok %.9f %llu\n", seconds, sum);
    std::fflush(stdout);
}

// The identification travels as hexadecimal digits.
nvshmemx_uniqueid_t identification(int pe) {
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    auto *bytes = reinterpret_cast<unsigned char *>(&id);
    if (pe == 0) {
        if (nvshmemx_get_uniqueid(&id) != 0) fail("nvshmemx_get_uniqueid failed");
        std::printf("id ");
        for (size_t i = 0; i < sizeof id; i++) std::printf("%02x", bytes[i]);
        std::printf("\n");
        std::fflush(stdout);
        return id;
    }
    char word[8] = {};
    if (std::scanf("%7s", word) != 1 || std::strcmp(word, "id") != 0) fail("expected the line \"id HEX\"");
    for (size_t i = 0; i < sizeof id; i++) {
        unsigned byte;
        if (std::scanf("%2x", &byte) != 1) fail("the identification is too short");
        bytes[i] = static_cast<unsigned char>(byte);
    }
    return id;
}

} // namespace

int main(int count, char **arguments) {
    if (count != 4) fail("usage: nvshmem-peer PE PES GPU");
    State state{};
    state.pe = std::atoi(arguments[1]);
    state.pes = std::atoi(arguments[2]);
    if (state.pes < 2 || state.pe < 0 || state.pe >= state.pes)
        fail("PE " + std::to_string(state.pe) + " of " + std::to_string(state.pes) + ": expected 2 PEs or more, numbered from 0");
    check(cudaSetDevice(std::atoi(arguments[3])), "choosing the GPU");
    nvshmemx_uniqueid_t id = identification(state.pe);
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    if (nvshmemx_set_attr_uniqueid_args(state.pe, state.pes, &id, &attributes) != 0) fail("nvshmemx_set_attr_uniqueid_args failed");
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0) fail("nvshmemx_init_attr failed");
    if (nvshmem_n_pes() != state.pes)
        fail("expected " + std::to_string(state.pes) + " PEs, there are " + std::to_string(nvshmem_n_pes()));
    state.landing = static_cast<char *>(nvshmem_malloc(heap_bytes));
    state.source = static_cast<char *>(nvshmem_malloc(heap_bytes));
    state.signal = static_cast<uint64_t *>(nvshmem_calloc(16 * most_blocks, sizeof(uint64_t)));
    state.counter = static_cast<uint64_t *>(nvshmem_calloc(1, sizeof(uint64_t)));
    if (!state.landing || !state.source || !state.signal || !state.counter) fail("no room in the symmetric heap");
    for (int pe = 0; pe < state.pes; pe++)
        if (nvshmem_ptr(state.landing, pe) == nullptr) fail("this GPU cannot reach the memory of PE " + std::to_string(pe));
    check(cudaMemset(state.source, 7, heap_bytes), "filling the source");
    check(cudaMalloc(&state.time, 2 * most_stamps * sizeof(uint64_t)), "allocating");
    check(cudaStreamCreateWithFlags(&state.stream, cudaStreamNonBlocking), "creating a stream");
    char version[NVSHMEM_MAX_NAME_LEN] = {};
    int major = 0, minor = 0, patch = 0;
    nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    std::snprintf(version, sizeof version, "NVSHMEM %d.%d.%d", major, minor, patch);
    std::printf("ready %s\n", version);
    std::fflush(stdout);
    char what[32];
    unsigned long long size;
    int rounds, width;
    while (std::scanf("%31s %llu %d %d", what, &size, &rounds, &width) == 4) {
        if (std::strcmp(what, "stencil") == 0) {
            only_two(state, what);
            unsigned long long lines, levels;
            if (std::scanf("%llu %llu", &lines, &levels) != 2) fail("a stencil without lines or levels");
            if (size < 1 || rounds < 0 || width < 1 || lines < 1 || levels < 1) fail("a number of the stencil is out of range");
            programs::Stencil all{};
            all.columns = size, all.lines = lines, all.levels = levels, all.ranks = width;
            all.devices = 2, all.device = state.pe, all.turns = rounds;
            diffuse(state, all);
            continue;
        }
        if (size > heap_bytes || rounds < 1 || width < 0) fail("a size, a number of rounds or a width is out of range");
        measure(state, what, size, rounds, width);
    }
    nvshmem_free(state.landing);
    nvshmem_free(state.source);
    nvshmem_free(state.signal);
    nvshmem_free(state.counter);
    nvshmem_finalize();
    return 0;
}
