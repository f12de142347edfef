// The kernels of kernels.cu and of the example kernel_ring as OS threads, for the test device_kernels.
#include <mp/host/launch.hpp>

#include "../../examples/kernel_ring.cu"
#include "kernels.cu"

using std::uint32_t;
using std::uint64_t;

extern "C" {

void shim_ring(const mp::Send* send, const mp::Recv* recv, uint64_t cells, uint64_t turns, uint64_t* done,
               uint32_t threads) {
    mp::host::launch(1, threads, ring, *send, *recv, cells, turns, done);
}

void shim_exchange(const mp::Send* send, const mp::Recv* recv, uint64_t me, uint64_t peer, uint64_t words,
                   uint64_t rounds, uint64_t first, uint32_t flavour, uint64_t* results, uint32_t threads) {
    mp::host::launch(1, threads, test_exchange, *send, *recv, me, peer, words, rounds, first, flavour, results);
}

void shim_parts(const mp::Send* send, const mp::Recv* recv, uint64_t* results, uint32_t blocks, uint32_t threads) {
    mp::host::launch(blocks, threads, test_parts, *send, *recv, results);
}

void shim_windows(const mp::Window* window, uint64_t* elsewhere, uint64_t words, uint64_t rounds, uint32_t atomics,
                  uint64_t* results, uint32_t threads) {
    mp::host::launch(1, threads, test_windows, *window, elsewhere, words, rounds, atomics, results);
}

void shim_contexts(const mp::Collective* barrier, const mp::Window* window, uint64_t* mine, uint64_t* counter, uint64_t words,
                   uint64_t rounds, uint64_t* results, uint32_t blocks, uint32_t threads) {
    mp::host::launch(blocks, threads, test_contexts, *barrier, *window, mine, counter, words, rounds, results);
}

void shim_put(const mp::Window* window, uint64_t rank, const uint64_t* from, uint64_t bytes, uint64_t* results,
              uint32_t threads) {
    mp::host::launch(1, threads, test_put, *window, rank, from, bytes, results);
}

void shim_put_rate(const mp::Window* window, uint64_t rank, uint64_t bytes, uint64_t count, uint64_t* stamps, uint64_t* results,
                   uint32_t blocks, uint32_t threads) {
    mp::host::launch(blocks, threads, test_put_rate, *window, rank, bytes, count, stamps, results);
}

void shim_prepared(const mp::Put* put, const mp::SignalWait* arrived, const mp::Put* take, const mp::SignalWait* taken,
                   const mp::Get* get, uint64_t* out, const uint64_t* share, const uint64_t* back, uint64_t me,
                   uint64_t words, uint64_t rounds, uint64_t* results, uint32_t threads) {
    mp::host::launch(1, threads, test_prepared, *put, *arrived, *take, *taken, *get, out, share, back, me, words, rounds,
                     results);
}

void shim_refusals(const mp::Window* window, uint64_t bytes, uint32_t which, uint64_t* results, uint32_t threads) {
    mp::host::launch(1, threads, test_refusals, *window, bytes, which, results);
}

void shim_collectives(const mp::Collective* barrier, const mp::Collective* reduce, const mp::Window* window, uint64_t* scratch,
                      uint64_t count, uint64_t rounds, uint32_t flavour, uint64_t* results, uint32_t threads) {
    mp::host::launch(1, threads, test_collectives, *barrier, *reduce, *window, scratch, count, rounds, flavour, results);
}

void shim_reduce(const mp::Collective* barrier, const mp::Collective* reduces, double* values, uint64_t count, uint64_t* results,
                 uint32_t threads) {
    mp::host::launch(1, threads, test_reduce, *barrier, *reduces, values, count, results);
}

void shim_kind(const mp::Collective* all, uint32_t kind, uint64_t root, const double* from, double* to, uint64_t count,
               const mp::Extent* given, const mp::Extent* taken, uint64_t* results, uint32_t blocks, uint32_t threads) {
    mp::host::launch(blocks, threads, test_kind, *all, kind, root, from, to, count, given, taken, results);
}
}
