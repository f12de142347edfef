// What messages cost under load: many in a row, and beside computation. For mp-perf's message-rate and overlap.
#pragma once

#include <mp/mp.cuh>

// Messages one after another: block b sends, or posts and receives, `untimed + timed` messages of the end `ends[b]`. The
// receiving side writes when block b had the last untimed message and the last one to stamps[2b] and stamps[2b + 1], in
// nanoseconds; a block whose wait fails writes none.
MP_KERNEL void MP_BLOCK_OF(1024) mp_perf_rate(const mp::Message* ends, std::uint32_t sends, std::uint64_t untimed,
                                              std::uint64_t timed, std::uint64_t* stamps) {
    const mp::Message end = ends[mp::block_rank()];
    if (sends != 0) {
        const mp::Send handle = {end};
        mp::Sender sender(mp::block(), handle);
        for (std::uint64_t message = 0; message < untimed + timed; ++message)
            if (sender.send(mp::block()).failed()) break;
        sender.close(mp::block());
        return;
    }
    const mp::Recv handle = {end};
    mp::Receiver receiver(mp::block(), handle);
    std::uint64_t began = 0;
    bool failed = false;
    for (std::uint64_t message = 0; message < untimed + timed && !failed; ++message) {
        if (message == untimed) began = mp::clock_ns();
        receiver.post(mp::block());
        failed = receiver.recv(mp::block()).failed();
    }
    receiver.close(mp::block());
    if (failed || mp::thread_rank() != 0) return;
    stamps[2 * mp::block_rank()] = began;
    stamps[2 * mp::block_rank() + 1] = mp::clock_ns();
}

namespace mp {
namespace perf {

// A computation whose length `amount` sets. Bound by arithmetic: so many dependent multiply-adds a thread. Bound by memory: so
// many elements a thread of this block's part of `words`, each read, changed and written.
constexpr std::uint32_t bound_by_memory = 1;
MP_DEVICE void work(std::uint32_t bound, std::uint64_t amount, double* words, std::uint64_t count, Part part) {
    const std::uint64_t stride = std::uint64_t{block_threads()} * part.count;
    const std::uint64_t first = std::uint64_t{block_threads()} * part.index + thread_rank();
    if (bound == bound_by_memory) {
        std::uint64_t at = first;
        for (std::uint64_t step = 0; step < amount; ++step) {
            words[at] = 0.5 * words[at] + 1.0;
            at += stride;
            if (at >= count) at = first;
        }
        return;
    }
    double value = words[first];
    for (std::uint64_t step = 0; step < amount; ++step) value = 0.5 * value + 1.0;
    words[first] = value;
}

}  // namespace perf
}  // namespace mp

// The computation by itself, all blocks sharing it. `count` is at least the number of threads.
MP_KERNEL void MP_BLOCK_OF(512) mp_perf_work(std::uint32_t bound, std::uint64_t amount, double* words,
                                             std::uint64_t count) {
    mp::perf::work(bound, amount, words, count, {mp::block_rank(), mp::grid_blocks()});
}

// The computation and an exchange of messages in one kernel: the first `exchanging` blocks post, send and receive, each its part,
// the others compute. No block of the first waits for one of the others, so the launch ends however many fit at once.
MP_KERNEL void MP_BLOCK_OF(512) mp_perf_fused(mp::Send send, mp::Recv recv, std::uint32_t exchanging,
                                              std::uint32_t bound, std::uint64_t amount, double* words,
                                              std::uint64_t count) {
    const unsigned block = mp::block_rank();
    if (block < exchanging) {
        const mp::Part part = {block, exchanging};
        if (block == 0) mp::post(mp::block(), recv);
        if (mp::send(mp::block(), send, part).failed()) return;
        (void)mp::recv(mp::block(), recv, part);
        return;
    }
    mp::perf::work(bound, amount, words, count, {block - exchanging, mp::grid_blocks() - exchanging});
}
