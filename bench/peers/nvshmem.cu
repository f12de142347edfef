// NVSHMEM as a peer of `mp-perf compare`: one of two processes that measure what they are told, a line at a time. It is
// no benchmark of its own: mp-perf starts both, says which measurement is next, and puts it between its own, so that all
// players see the same machine. Built by tools/build-nvshmem-peer.
//
//   nvshmem-peer PE GPU          PE 0 prints "id HEX"; PE 1 reads that line; both print "ready VERSION"
//   p 8 ROUNDS 1                 one thread: nvshmem_uint64_p, nvshmem_uint64_wait_until; µs one way
//   put SIZE ROUNDS THREADS      one block: nvshmemx_putmem_signal_block, nvshmem_signal_wait_until; µs one way
//   stream SIZE ROUNDS 0         putmem_signal_on_stream, signal_wait_until_on_stream; µs one way, then µs of the CPU a round
//   barrier_kernel 0 ROUNDS 1    nvshmem_barrier_all by one thread; µs
//   barrier_stream 0 ROUNDS 0    nvshmemx_barrier_all_on_stream; µs
//   exchange SIZE ROUNDS BLOCKS  both put and signal at once, then wait, each block its share; µs
//   bandwidth SIZE ROUNDS BLOCKS nvshmemx_putmem_nbi_block of 1024 threads from PE 0 to PE 1, then quiet; GB/s
//
// Each is answered with "ok NUMBER…" (PE 1: zeros) or "error TEXT". The end of the input ends the process.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

namespace {

constexpr size_t heap_bytes = 64 << 20;
constexpr int most_blocks = 64;
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

// What the two processes have: a place to land, a source, a signal; and the time a kernel took.
struct State {
    int pe;
    char *landing, *source;
    uint64_t *signal;
    uint64_t *time;
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

double barriers_on_stream(State &state, int rounds) {
    double elapsed = 0;
    for (int done = 0; done < rounds; done += batch) {
        int count = rounds - done < batch ? rounds - done : batch;
        nvshmem_barrier_all();
        auto begin = std::chrono::steady_clock::now();
        for (int round = 0; round < count; round++) nvshmemx_barrier_all_on_stream(state.stream);
        check(cudaStreamSynchronize(state.stream), "waiting for the stream");
        elapsed += seconds_since(begin);
    }
    return elapsed * 1e6 / rounds;
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

// Kernels that wait for one another are launched so that NVSHMEM knows of them.
void launch(const void *kernel, int blocks, int threads, void **arguments, State &state) {
    int code = nvshmemx_collective_launch(kernel, dim3(blocks), dim3(threads), arguments, 0, state.stream);
    if (code != 0) fail("nvshmemx_collective_launch returned " + std::to_string(code));
}

void measure(State &state, const std::string &what, size_t size, int rounds, int width) {
    double answer[2] = {0, 0};
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
    } else if (what == "stream") {
        streams(state, size, rounds, answer);
    } else if (what == "barrier_kernel") {
        void *arguments[] = {&rounds, &state.time};
        launch(reinterpret_cast<const void *>(play_barrier), 1, 1, arguments, state);
        answer[0] = kernel_us(state, rounds);
    } else if (what == "barrier_stream") {
        answer[0] = barriers_on_stream(state, rounds);
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
    if (count != 3) fail("usage: nvshmem-peer PE GPU");
    State state{};
    state.pe = std::atoi(arguments[1]);
    check(cudaSetDevice(std::atoi(arguments[2])), "choosing the GPU");
    nvshmemx_uniqueid_t id = identification(state.pe);
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    if (nvshmemx_set_attr_uniqueid_args(state.pe, 2, &id, &attributes) != 0) fail("nvshmemx_set_attr_uniqueid_args failed");
    if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0) fail("nvshmemx_init_attr failed");
    if (nvshmem_n_pes() != 2) fail("this needs 2 PEs, there are " + std::to_string(nvshmem_n_pes()));
    state.landing = static_cast<char *>(nvshmem_malloc(heap_bytes));
    state.source = static_cast<char *>(nvshmem_malloc(heap_bytes));
    state.signal = static_cast<uint64_t *>(nvshmem_calloc(16 * most_blocks, sizeof(uint64_t)));
    if (!state.landing || !state.source || !state.signal) fail("no room in the symmetric heap");
    if (nvshmem_ptr(state.landing, 1 - state.pe) == nullptr) fail("the two GPUs cannot reach each other's memory");
    check(cudaMemset(state.source, 7, heap_bytes), "filling the source");
    check(cudaMalloc(&state.time, sizeof(uint64_t)), "allocating");
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
        if (size > heap_bytes || rounds < 1 || width < 0) fail("a size, a number of rounds or a width is out of range");
        measure(state, what, size, rounds, width);
    }
    nvshmem_free(state.landing);
    nvshmem_free(state.source);
    nvshmem_free(state.signal);
    nvshmem_finalize();
    return 0;
}
