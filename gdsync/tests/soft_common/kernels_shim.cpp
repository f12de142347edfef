// The kernels of queue_pair.cu as OS threads, for the test soft_kernels.
#include <mp/host/launch.hpp>

#include "../../../kernels/tests/cuda/queue_pair.cu"

extern "C" {

void shim_write_words(const mp::QueuePair* qp, const mp::RemoteAddress* to, std::uint64_t seed, std::uint32_t count,
                      std::uint32_t flavour, const mp::WaitBounds* bounds, std::uint32_t* results, std::uint32_t blocks,
                      std::uint32_t threads) {
    mp::host::launch(blocks, threads, mp_qp_write_words, *qp, *to, seed, count, flavour, *bounds, results);
}

void shim_ring(const mp::QueuePair* qp, std::uint64_t begin, std::uint64_t end, const mp::WaitBounds* bounds,
               std::uint32_t* result) {
    mp::host::launch(1, 1, mp_qp_ring, *qp, begin, end, *bounds, result);
}

void shim_round_trip(const mp::QueuePair* qp, std::uint64_t* from, std::uint32_t from_key, const mp::RemoteAddress* to,
                     std::uint64_t* into, std::uint32_t into_key, std::uint32_t words, std::uint64_t seed,
                     std::uint32_t rounds, const mp::WaitBounds* bounds, std::uint32_t* results,
                     std::uint32_t threads) {
    mp::host::launch(1, threads, mp_qp_round_trip, *qp, from, from_key, *to, into, into_key, words, seed, rounds,
                     *bounds, results);
}
}
