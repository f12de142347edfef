// The litmus kernels of mp-perf with few repetitions, two sides as launches that run at once. That the headers keep
// their orders on this machine, and that the kernels notice when an order is not kept.
#include <array>
#include <mp/host/launch.hpp>
#include <thread>
#include <vector>

#include "../../../bench/cuda/litmus.cu"
#include "check.hpp"
#include "window.hpp"

using std::uint64_t;

namespace {

constexpr uint64_t minute_ns = 60'000'000'000;

struct Tally {
    uint64_t rounds = 0, wrong = 0;
};

// One way of one channel.
struct Pair {
    std::vector<uint64_t> source, buffer;
    std::vector<mp::Packet> inbox;
    mp::MessageState sender = {}, receiver = {};
    mp::WaitReport report = {};
    uint64_t credit = 0, arrival = 0;

    Pair(uint64_t words, bool packets) : source(words), buffer(words) {
        if (packets) inbox.resize(mp::packet_slots * mp::packets_of(8 * words));
    }
    mp::Message end(const void* memory, const void* target, uint64_t& mine, uint64_t& theirs, mp::MessageState& state) {
        mp::Message message = {};
        message.memory = address(memory);
        message.len = 8 * source.size();
        message.inbox = inbox.empty() ? 0 : address(inbox.data());
        message.target = inbox.empty() ? address(target) : 0;
        message.mine = address(&mine);
        message.theirs = address(&theirs);
        message.state = address(&state);
        message.timeout_ns = minute_ns;
        message.report = address(&report);
        return message;
    }
    mp::Send send() { return {end(source.data(), buffer.data(), credit, arrival, sender)}; }
    mp::Recv recv() { return {end(buffer.data(), nullptr, arrival, credit, receiver)}; }
};

void play_messages(uint64_t words, bool packets, uint64_t rounds) {
    constexpr unsigned channels = 3;
    std::array<std::vector<std::unique_ptr<Pair>>, 2> pairs;
    std::array<std::vector<mp::Send>, 2> sends;
    std::array<std::vector<mp::Recv>, 2> recvs;
    for (unsigned channel = 0; channel < channels; ++channel)
        for (unsigned side = 0; side < 2; ++side) {
            Pair& pair = *pairs[side].emplace_back(std::make_unique<Pair>(words, packets));
            sends[side].push_back(pair.send());
            recvs[1 - side].push_back(pair.recv());
        }
    // Twice: the second run goes on where the first ended.
    for (uint64_t base : {uint64_t{0}, rounds}) {
        std::array<Tally, 2> tallies;
        const auto play = [&](unsigned side, unsigned threads) {
            mp::host::launch(channels, threads, mp_litmus_messages, static_cast<const mp::Send*>(sends[side].data()),
                             static_cast<const mp::Recv*>(recvs[side].data()), base, rounds, std::uint32_t{side},
                             &tallies[side].rounds, &tallies[side].wrong);
        };
        std::jthread other([&] { play(1, 1); });
        play(0, 3);
        other.join();
        for (const Tally& tally : tallies) {
            CHECK_THAT(tally.rounds, ==, channels * rounds);
            CHECK_THAT(tally.wrong, ==, 0u);
        }
    }
}

// Words found wrong by both sides.
uint64_t play_puts(mp::litmus::Order order, uint64_t bytes, uint64_t rounds) {
    constexpr unsigned channels = 3;
    std::array<std::vector<uint64_t>, 2> landings, sources, signals;
    std::array<mp::WindowPart, 2> parts;
    std::array<Tally, 2> tallies;
    for (unsigned side = 0; side < 2; ++side) {
        landings[side].resize(2 * bytes / 8 * channels);
        sources[side] = landings[side];
        signals[side].resize(2 * channels * mp::signal_stride / 8);
        parts[side] = mapped(address(landings[side].data()), 2 * bytes * channels, address(signals[side].data()));
    }
    const auto play = [&](unsigned side, unsigned threads) {
        mp::WaitReport report = {};
        mp::Window window = window_of(parts);
        window.rank = side;
        window.signals = 2 * channels;
        window.timeout_ns = minute_ns;
        window.report = address(&report);
        mp::host::launch(channels, threads, mp_litmus_puts, window, address(landings[side].data()),
                         address(sources[side].data()), bytes, uint64_t{0}, rounds,
                         static_cast<std::uint32_t>(order), &tallies[side].rounds, &tallies[side].wrong);
        CHECK_THAT(report.status, ==, 0u);
    };
    std::jthread other([&] { play(1, 2); });
    play(0, 3);
    other.join();
    for (const Tally& tally : tallies) CHECK_THAT(tally.rounds, ==, channels * rounds);
    return tallies[0].wrong + tallies[1].wrong;
}

}  // namespace

CASE(litmus_of_messages_on_many_channels) {
    play_messages(1, true, 100);
    play_messages(20, true, 50);
    play_messages(20, false, 50);
}

CASE(litmus_of_puts_and_signals_on_many_channels) {
    using namespace mp::litmus;
    for (const Order order : {two_puts_then_signal, put_with_signal, signal_then_wait})
        for (const uint64_t bytes : {8, 80}) CHECK_THAT(play_puts(order, bytes, 50), ==, 0u);
}

// A data race on purpose, so not for ThreadSanitizer.
CASE(litmus_notices_a_signal_that_comes_before_its_put) {
#if !defined(__SANITIZE_THREAD__)
    CHECK_THAT(play_puts(mp::litmus::signal_before_put, 80, 200), >, 0u);
#endif
}
