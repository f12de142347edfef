/*
 * What calls of kernels cost between two GPUs, in the names of NVSHMEM: a put with a signal and its wait, one way, of a thread and of a block; a
 * barrier; and the bandwidth of a put by a whole GPU. Compiled with this library's nvshmem.h or with NVIDIA's, so that both run the same
 * source. PE 0 prints a line for each: the call, bytes, and microseconds, of the bandwidth GB/s; medians of several rounds.
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nvshmem.h>
#include <nvshmemx.h>

namespace {

constexpr int ROUNDS = 15, TIMES = 1000, THREADS = 512;
constexpr std::size_t LARGEST = std::size_t(64) << 20;

void check(cudaError_t result) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "kernels: %s\n", cudaGetErrorString(result));
    std::exit(1);
}

// PE 0 sends and PE 1 answers, numbers from `first` on. The whole block calls; where only one thread sends it has no more.
template <bool BLOCK>
__global__ void __launch_bounds__(THREADS, 1)
    ping_pong(char* to, char* from, std::size_t bytes, std::uint64_t* signal, int me, std::uint64_t first, int times) {
    const auto send = [&](std::uint64_t number) {
        if (BLOCK) {
            nvshmemx_putmem_signal_block(to, from, bytes, signal, number, NVSHMEM_SIGNAL_SET, 1 - me);
        } else {
            nvshmem_putmem_signal(to, from, bytes, signal, number, NVSHMEM_SIGNAL_SET, 1 - me);
        }
    };
    const auto wait = [&](std::uint64_t number) {
        if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, number);
        __syncthreads();
    };
    for (int turn = 0; turn < times; turn++) {
        if (me == 0) send(first + turn);
        wait(first + turn);
        if (me == 1) send(first + turn);
    }
}

__global__ void barriers(int times) {
    for (int turn = 0; turn < times; turn++) nvshmem_barrier_all();
}

__global__ void __launch_bounds__(THREADS, 1) put(char* to, char* from, std::size_t each, int other) {
    const std::size_t at = blockIdx.x * each;
    nvshmemx_putmem_nbi_block(to + at, from + at, each, other);
    __syncthreads();
    if (threadIdx.x == 0) nvshmem_quiet();
}

// Microseconds of what `launch` enqueues, the median.
template <class F>
double measure(F launch) {
    cudaEvent_t events[2];
    for (cudaEvent_t& event : events) check(cudaEventCreate(&event));
    float times[ROUNDS];
    for (int round = -3; round < ROUNDS; round++) {
        nvshmem_barrier_all();
        check(cudaEventRecord(events[0]));
        launch();
        check(cudaEventRecord(events[1]));
        check(cudaDeviceSynchronize());
        if (round >= 0) check(cudaEventElapsedTime(&times[round], events[0], events[1]));
    }
    for (cudaEvent_t& event : events) check(cudaEventDestroy(event));
    std::sort(times, times + ROUNDS);
    return 1e3 * times[ROUNDS / 2];
}

void launch_together(const void* kernel, int threads, void** arguments) {
    if (nvshmemx_collective_launch(kernel, 1, threads, arguments, 0, 0) == 0) return;
    std::fprintf(stderr, "kernels: a kernel was not launched\n");
    std::exit(1);
}

}  // namespace

int main() {
    nvshmem_init();
    int me = nvshmem_my_pe(), times = TIMES, devices = 0;
    if (nvshmem_n_pes() != 2) {
        std::fprintf(stderr, "kernels: %d PEs, expected 2\n", nvshmem_n_pes());
        nvshmem_global_exit(1);
    }
    check(cudaGetDeviceCount(&devices));
    // Here it is that already; NVIDIA's wants to be told before memory is asked for.
    check(cudaSetDevice(me % devices));
    char* to = static_cast<char*>(nvshmem_malloc(LARGEST));
    char* from = static_cast<char*>(nvshmem_malloc(LARGEST));
    auto* signal = static_cast<std::uint64_t*>(nvshmem_calloc(1, sizeof(std::uint64_t)));
    if (to == nullptr || from == nullptr || signal == nullptr) return 1;
    check(cudaMemset(from, 1, LARGEST));
    std::uint64_t first = 1;
    const auto line = [&](const char* call, std::size_t bytes, double value) {
        if (me == 0) std::printf("%s %zu %.3f\n", call, bytes, value);
    };
    for (const bool block : {false, true}) {
        for (std::size_t bytes = 8; bytes <= (block ? 1 << 20 : 512); bytes *= 8) {
            const double took = measure([&] {
                void* arguments[] = {&to, &from, &bytes, &signal, &me, &first, &times};
                launch_together(reinterpret_cast<const void*>(block ? &ping_pong<true> : &ping_pong<false>), block ? THREADS : 1, arguments);
                first += std::uint64_t(times);
            });
            line(block ? "putmem_signal_block" : "putmem_signal", bytes, took / (2 * TIMES));
        }
    }
    void* arguments[] = {&times};
    const double meet = measure([&] { launch_together(reinterpret_cast<const void*>(&barriers), 1, arguments); });
    line("barrier_all", 0, meet / TIMES);
    for (std::size_t bytes = 1 << 20; bytes <= LARGEST; bytes *= 8) {
        const double took = measure([&] {
            const std::size_t each = bytes / 128;
            if (me == 0) put<<<128, THREADS>>>(to, from, each, 1);
            check(cudaGetLastError());
        });
        line("putmem_nbi_block, GB/s", bytes, double(bytes) / took / 1e3);
    }
    nvshmem_barrier_all();
    nvshmem_free(signal);
    nvshmem_free(from);
    nvshmem_free(to);
    nvshmem_finalize();
    return 0;
}
