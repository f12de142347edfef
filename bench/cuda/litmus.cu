// Litmus tests: whether messages, puts and signals keep the orders that mp/*.cuh promises, on many channels at once. Two sides
// play; block b of one has a channel with block b of the other, both ways, and every round of it is one repetition. What is
// sent is filled anew, poisoned as soon as it may be written again, checked word by word where it arrives, and poisoned
// there before its place is offered again. No timing.
#pragma once

#include <mp/mp.cuh>

#include "../../kernels/tests/cuda/pattern.cuh"

namespace mp {
namespace litmus {

// No word of any pattern.
constexpr std::uint64_t poison = 0xdeaddeaddeaddead;

// Which order a run of `mp_litmus_puts` is about.
enum Order : std::uint32_t {
    // Two puts, then a signal: both are there when the signal is.
    two_puts_then_signal = 0,
    // One put_signal.
    put_with_signal = 1,
    // Stores to the own memory, then a signal: who has waited for it reads them with a get. And what was read has been read
    // when the answering signal is seen.
    signal_then_wait = 2,
    // On purpose wrong: the signal first, then, later, the put. A run that finds nothing wrong here finds nothing anywhere.
    signal_before_put = 3,
};

// Different in each channel, round and direction.
MP_DEVICE std::uint64_t seed_of(std::uint64_t round, std::uint64_t side) {
    return ((2 * round + side) << 16) | block_rank();
}

MP_DEVICE void fill(std::uint64_t* words, std::uint64_t count, std::uint64_t seed) {
    for (std::uint64_t i = thread_rank(); i < count; i += block_threads()) words[i] = pattern(seed, i);
}

MP_DEVICE void spoil(std::uint64_t* words, std::uint64_t count) {
    for (std::uint64_t i = thread_rank(); i < count; i += block_threads()) words[i] = poison;
}

// Words of this thread that are not the pattern; poisons them all.
MP_DEVICE std::uint64_t check_and_spoil(std::uint64_t* words, std::uint64_t count, std::uint64_t seed) {
    std::uint64_t wrong = 0;
    for (std::uint64_t i = thread_rank(); i < count; i += block_threads()) {
        wrong += words[i] != pattern(seed, i);
        words[i] = poison;
    }
    return wrong;
}

// Time enough for a signal to be seen.
MP_DEVICE void late() {
    const std::uint64_t began = clock_cycles();
    while (clock_cycles() - began < 8192) pause();
}

MP_DEVICE void tally(std::uint64_t played, std::uint64_t wrong, std::uint64_t* rounds, std::uint64_t* mismatches) {
    if (thread_rank() == 0) add(rounds, played, relaxed, gpu);
    if (wrong != 0) add(mismatches, wrong, relaxed, gpu);
}

}  // namespace litmus
}  // namespace mp

// Messages, block b with sends[b] and recvs[b]: the source is poisoned when the send has returned (send completion), the
// buffer before it is posted again (buffer reuse), and the messages of a pair come in order. `base` is the number of rounds
// played before with these pairs; `side` 0 and 1 are the two players. Adds the rounds whose message arrived to *rounds and
// the words found wrong to *mismatches; ends at the first failed wait, which is then in that message's report.
MP_KERNEL void MP_BLOCK_OF(512) mp_litmus_messages(const mp::Send* sends, const mp::Recv* recvs, std::uint64_t base,
                                                   std::uint64_t count, std::uint32_t side, std::uint64_t* rounds,
                                                   std::uint64_t* mismatches) {
    const mp::Send send = sends[mp::block_rank()];
    const mp::Recv recv = recvs[mp::block_rank()];
    mp::Sender sender(mp::block(), send);
    mp::Receiver receiver(mp::block(), recv);
    auto* source = mp::buffer_of<std::uint64_t>(send);
    auto* buffer = mp::buffer_of<std::uint64_t>(recv);
    const std::uint64_t words = send.message.len / 8;
    std::uint64_t wrong = 0, round = 0;
    receiver.post(mp::block());
    for (; round < count; ++round) {
        mp::litmus::fill(source, words, mp::litmus::seed_of(base + round, side));
        if (sender.send(mp::block()).failed()) break;
        mp::block_barrier();
        mp::litmus::spoil(source, words);
        if (receiver.recv(mp::block()).failed()) break;
        wrong += mp::litmus::check_and_spoil(buffer, words, mp::litmus::seed_of(base + round, 1 - side));
        if (round + 1 < count) receiver.post(mp::block());
    }
    sender.close(mp::block());
    receiver.close(mp::block());
    mp::litmus::tally(round, wrong, rounds, mismatches);
}

// Puts and signals through a window of two ranks, whose share has 2 * `bytes` bytes and two signals for each block; `source`
// has as much. `order` is a litmus::Order, the rest as above, with the failure in the window's report. Signals count from
// `base` on.
MP_KERNEL void MP_BLOCK_OF(512) mp_litmus_puts(const __grid_constant__ mp::Window window, std::uint64_t landing, std::uint64_t source,
                                               std::uint64_t bytes, std::uint64_t base, std::uint64_t count,
                                               std::uint32_t order, std::uint64_t* rounds, std::uint64_t* mismatches) {
    using namespace mp::litmus;
    const std::uint64_t channel = mp::block_rank(), side = window.rank, peer = 1 - side;
    const std::uint64_t at = 2 * bytes * channel, data = 2 * channel, answer = data + 1;
    auto* from = mp::impl::at<std::uint64_t>(source + at);
    auto* here = mp::impl::at<std::uint64_t>(landing + at);
    const std::uint64_t words = (order == put_with_signal ? 1 : 2) * bytes / 8;
    const auto put = [&](std::uint64_t offset) {
        (void)mp::put(mp::block(), window, peer, at + offset, mp::impl::at<const void>(source + at + offset), bytes);
    };
    std::uint64_t wrong = 0, round = 0;
    for (; round < count; ++round) {
        const std::uint64_t value = base + round + 1;
        // In the pull, the own share is what is offered.
        auto* offered = order == signal_then_wait ? here : from;
        auto* arrived = order == signal_then_wait ? from : here;
        fill(offered, words, seed_of(value, side));
        mp::block_barrier();
        switch (order) {
        case two_puts_then_signal:
            put(bytes);
            put(0);
            (void)mp::signal(mp::block(), window, peer, data, value);
            break;
        case put_with_signal:
            (void)mp::put_signal(mp::block(), window, peer, at, from, bytes, data, value);
            break;
        case signal_then_wait: (void)mp::signal(mp::block(), window, peer, data, value); break;
        default:
            (void)mp::signal(mp::block(), window, peer, data, value);
            late();
            put(0);
            put(bytes);
        }
        if (order != signal_then_wait) {
            (void)mp::flush(mp::block(), window, peer);
            spoil(from, words);
        }
        if (mp::wait(mp::block(), window, data, value).failed()) break;
        if (order == signal_then_wait) {
            (void)mp::get(mp::block(), window, peer, at, arrived, 2 * bytes);
            (void)mp::flush(mp::block(), window, peer);
        }
        wrong += check_and_spoil(arrived, words, seed_of(value, peer));
        (void)mp::signal(mp::block(), window, peer, answer, value);
        if (mp::wait(mp::block(), window, answer, value).failed()) break;
        // The peer has read it.
        if (order == signal_then_wait) spoil(offered, words);
    }
    tally(round, wrong, rounds, mismatches);
}
