// What messages, puts and barriers cost inside a kernel, and whether they keep their promises: games of two sides for
// mp-perf and for the litmus tests. One block a side, but for the bandwidth.
#pragma once

#include <mp/mp.cuh>

#include "../../kernels/tests/cuda/pattern.cuh"
#include "layout.cuh"

namespace mp {

namespace perf {

// What a receiver leaves in its buffer: no word of any pattern that is played.
constexpr std::uint64_t poison = 0xdeaddeaddeaddead;

MP_DEVICE std::uint64_t words_of(const Message& message) { return message.len / 8; }

MP_DEVICE void fill(const Message& message, std::uint64_t seed) {
    auto* words = impl::at<std::uint64_t>(message.memory);
    for (std::uint64_t i = thread_rank(); i < words_of(message); i += block_threads()) words[i] = pattern(seed, i);
}

MP_DEVICE std::uint64_t count_wrong_and_poison(const Message& message, std::uint64_t seed) {
    auto* words = impl::at<std::uint64_t>(message.memory);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = thread_rank(); i < words_of(message); i += block_threads()) {
        wrong += words[i] != pattern(seed, i);
        words[i] = poison;
    }
    return wrong;
}

// Cycles of each timed round and the time of all of them, by the leader. What it does not need in between waits in memory,
// since the registers of a watch would be in the way of what it watches.
struct Watch {
    std::uint32_t* samples;
    PingPongTime* time;
    std::uint32_t last = 0;

    MP_DEVICE void begin() {
        if (thread_rank() != 0) return;
        time->ns = clock_ns();
        const std::uint64_t now = clock_cycles();
        time->cycles = now;
        last = static_cast<std::uint32_t>(now);
    }
    MP_DEVICE void round(std::uint64_t number) {
        if (thread_rank() != 0 || samples == nullptr) return;
        const auto now = static_cast<std::uint32_t>(clock_cycles());
        samples[number] = now - last;
        last = now;
    }
    // A failed game has no time.
    MP_DEVICE void end(bool failed) {
        if (thread_rank() != 0) return;
        const std::uint64_t cycles = clock_cycles(), ns = clock_ns();
        *time = failed ? PingPongTime{} : PingPongTime{ns - time->ns, cycles - time->cycles};
    }
};

// Rounds, fewer than 2^32, of what returns whether it went well, the last `timed` of them timed as a whole: between two of those is nothing
// of the watch's, as a peer's loop has nothing there.
template <class Round>
MP_DEVICE void play_together(const Round& play, std::uint64_t untimed, std::uint64_t timed, Watch& watch) {
    const auto before = static_cast<std::uint32_t>(untimed), count = static_cast<std::uint32_t>(timed);
    bool goes = true;
    for (std::uint32_t round = 0; round < before && goes; ++round) goes = play();
    watch.begin();
    for (std::uint32_t round = 0; round < count && goes; ++round) goes = play();
    watch.end(!goes);
}

// A ping-pong of messages with `turns` pairs in each direction, used in turn. The serving side is one message ahead, so that
// it sends by its last pair first.
template <int turns, bool checks>
MP_DEVICE void play_messages(const Send* sends, const Recv* recvs, const PingPong& game, Watch& watch,
                             std::uint64_t* mismatches) {
    const bool serves = game.serves != 0;
    std::uint64_t wrong = 0;
    Sender senders[] = {{block(), sends[0]}, {block(), sends[turns - 1]}};
    Receiver receivers[] = {{block(), recvs[0]}, {block(), recvs[turns - 1]}};
    MP_UNROLL
    for (int turn = 0; turn < turns; ++turn) receivers[turn].post(block());
    const std::uint64_t rounds = game.untimed_rounds + game.timed_rounds;
    bool failed = false;
    // Both wait for a message and then send one; the serving side has sent one before, and not after the last.
    if (checks && serves) fill(sends[turns - 1].message, 2 * game.base + 1);
    if (serves) failed = senders[turns - 1].send(block()).failed();
    for (std::uint64_t first = 0; first < rounds && !failed; first += turns) {
        if (first == game.untimed_rounds) watch.begin();
        MP_UNROLL
        for (int turn = 0; turn < turns; ++turn) {  // unrolled, so that the counters stay in registers
            const std::uint64_t round = first + turn;
            failed = failed || receivers[turn].recv(block()).failed();
            if (failed) break;
            if (checks) {
                const std::uint64_t seed = 2 * (game.base + round);
                wrong += count_wrong_and_poison(recvs[turn].message, seed + !serves);
                fill(sends[turn].message, seed + (serves ? 3 : 0));
            }
            if (!serves || round + 1 < rounds) failed = senders[turn].send(block()).failed();
            if (round + turns < rounds) receivers[turn].post(block());
            if (round >= game.untimed_rounds) watch.round(round - game.untimed_rounds);
        }
    }
    MP_UNROLL
    for (int turn = 0; turn < turns; ++turn) {
        senders[turn].close(block());
        receivers[turn].close(block());
    }
    watch.end(failed);
    if (checks && wrong != 0) add(mismatches, wrong, relaxed, gpu);
}

MP_DEVICE void play_barriers(const Collective& collective, std::uint64_t untimed, std::uint64_t timed, bool ordered, Watch& watch) {
    Barrier barrier(block(), collective);
    const auto meet = [&] { return !(ordered ? barrier.wait(block()) : barrier.wait(block(), sync_only)).failed(); };
    play_together(meet, untimed, timed, watch);
    barrier.close(block());
}

// Sums of what the last one gave; of zeros, as memory begins, zeros.
MP_DEVICE void play_all_reduces(const Collective& collective, double* values, std::uint64_t count, std::uint64_t untimed,
                                std::uint64_t timed, Watch& watch) {
    const auto reduce = [&] { return !all_reduce(block(), collective, values, count, sum_t{}).failed(); };
    play_together(reduce, untimed, timed, watch);
}

// What a ping-pong of puts is played with.
struct Puts {
    PingPong game;
    std::uint64_t source, target, landing, bytes;
    WaitBounds bounds;
    WaitReport* report;
    std::uint64_t* mismatches;
};

// A ping-pong of puts, each followed by a signal. As with messages both sides wait and then put, and the serving one is one ahead.
template <bool checks>
MP_DEVICE void play_puts(const Puts& puts, Watch& watch) {
    const PingPong& game = puts.game;
    const bool serves = game.serves != 0;
    std::uint64_t wrong = 0;
    Message from = {}, here = {};
    from.memory = puts.source;
    here.memory = puts.landing;
    from.len = here.len = puts.bytes;
    const auto put = [&](std::uint64_t at, std::uint64_t bytes) {
        copy(block(), impl::at<void>(puts.target + at), impl::at<const void>(puts.source + at), bytes);
    };
    const auto play = [&](std::uint64_t value) {
        const std::uint64_t half = checks ? puts.bytes / 2 / 16 * 16 : 0;
        if (checks) put(0, half);
        put(half, puts.bytes - half);
        signal(block(), impl::at<std::uint64_t>(game.peer), value);
    };
    const std::uint64_t rounds = game.untimed_rounds + game.timed_rounds;
    if (checks && serves) fill(from, 2 * (game.base + 1) + 1);
    block_barrier();
    if (serves) play(game.base + 1);
    for (std::uint64_t round = 0; round < rounds; ++round) {
        if (round == game.untimed_rounds) watch.begin();
        const std::uint64_t value = game.base + round + 1;
        const WaitResult result = wait(block(), impl::at<const std::uint64_t>(game.mine), value, puts.bounds);
        if (result.failed()) {
            if (thread_rank() == 0) report(puts.report, value, result);
            return watch.end(true);
        }
        if (checks) {
            wrong += count_wrong_and_poison(here, 2 * value + !serves);
            fill(from, 2 * (value + serves) + serves);
            block_barrier();
        }
        if (!serves || round + 1 < rounds) play(value + serves);
        if (round >= game.untimed_rounds) watch.round(round - game.untimed_rounds);
    }
    watch.end(false);
    if (wrong != 0) add(puts.mismatches, wrong, relaxed, gpu);
}

}  // namespace perf
}  // namespace mp

// A ping-pong of messages with two pairs in each direction. game.base is the number of rounds played before with these pairs;
// it and both numbers of rounds are even; mine and peer are not used. The serving side is one message ahead, so it gets its
// sends in the other order. Ends at the first failed wait, without a time.
MP_KERNEL void MP_BLOCK_OF(512) mp_perf_messages(mp::PerfPairs pairs, mp::PingPong game, std::uint32_t* samples,
                                                 mp::PingPongTime* time) {
    mp::perf::Watch watch = {samples, time};
    mp::perf::play_messages<2, false>(pairs.sends, pairs.recvs, game, watch, nullptr);
}

// The same with one pair, for messages that go as packets: there is no buffer to post.
MP_KERNEL void MP_BLOCK_OF(512) mp_perf_packets(mp::Send send, mp::Recv recv, mp::PingPong game, std::uint32_t* samples,
                                                mp::PingPongTime* time) {
    mp::perf::Watch watch = {samples, time};
    mp::perf::play_messages<1, false>(&send, &recv, game, watch, nullptr);
}

// A ping-pong of puts of `bytes` bytes, each followed by a signal. `checks` not 0: each put is two of a half (data, data,
// signal, and both are there when the signal is), each side fills what it puts with the pattern of the round, checks and
// poisons what arrives, and adds the words found wrong to *mismatches. The target is the peer's `landing`.
MP_KERNEL void MP_BLOCK_OF(1024) mp_perf_puts(mp::PingPong game, std::uint64_t source, std::uint64_t target,
                                              std::uint64_t landing, std::uint64_t bytes, std::uint32_t checks,
                                              mp::WaitBounds bounds, mp::WaitReport* report, std::uint32_t* samples,
                                              mp::PingPongTime* time, std::uint64_t* mismatches) {
    mp::perf::Watch watch = {samples, time};
    const mp::perf::Puts puts = {game, source, target, landing, bytes, bounds, report, mismatches};
    if (checks != 0)
        mp::perf::play_puts<true>(puts, watch);
    else
        mp::perf::play_puts<false>(puts, watch);
}

// Copies `bytes` bytes to a peer `rounds` times, all blocks sharing each copy. Block b writes when it began and when its
// stores had arrived to stamps[2b] and stamps[2b + 1], in nanoseconds.
MP_KERNEL void MP_BLOCK_OF(1024) mp_perf_bandwidth(std::uint64_t target, std::uint64_t source, std::uint64_t bytes,
                                                   std::uint64_t rounds, std::uint64_t* stamps) {
    const std::uint64_t began = mp::clock_ns();
    const mp::Part part = {mp::block_rank(), mp::grid_blocks()};
    for (std::uint64_t round = 0; round < rounds; ++round)
        mp::copy(mp::block(), mp::impl::at<void>(target), mp::impl::at<const void>(source), bytes, part);
    mp::fence(mp::release, mp::system);
    mp::block_barrier();
    if (mp::thread_rank() == 0) {
        stamps[2 * mp::block_rank()] = began;
        stamps[2 * mp::block_rank() + 1] = mp::clock_ns();
    }
}

// Barriers one after another; `ordered` not 0: each orders memory.
MP_KERNEL void mp_perf_barrier(const __grid_constant__ mp::Collective collective, std::uint64_t untimed, std::uint64_t timed,
                               std::uint32_t ordered, mp::PingPongTime* time) {
    mp::perf::Watch watch = {nullptr, time};
    mp::perf::play_barriers(collective, untimed, timed, ordered != 0, watch);
}

// All-reduces of `count` values, one after another, by one block.
MP_KERNEL void MP_BLOCK_OF(512) mp_perf_all_reduce(const __grid_constant__ mp::Collective collective, double* values, std::uint64_t count,
                                                   std::uint64_t untimed, std::uint64_t timed, mp::PingPongTime* time) {
    mp::perf::Watch watch = {nullptr, time};
    mp::perf::play_all_reduces(collective, values, count, untimed, timed, watch);
}
