// Data, then signal; wait, then data: the kernels of cuda/message_passing.cu and of mp-perf on host threads. The
// memory here is a CPU's, so what a broken order shows is mostly ThreadSanitizer's report: run it with --tsan too.
#include <mp/host/launch.hpp>
#include <thread>

#include "../../../bench/cuda/pingpong.cu"
#include "../cuda/message_passing.cu"
#include "check.hpp"

using std::uint64_t;

namespace {

constexpr uint64_t minute_ns = 60'000'000'000;

struct Outcome {
    uint64_t mismatches = 0;
    uint64_t written = 0;
    uint64_t read = 0;
    mp::WaitReport report = {};
};

// A writer of `writers` threads and a reader of `readers` play `rounds` rounds with a buffer of `words`.
Outcome play(unsigned writers, unsigned readers, uint64_t words, uint64_t rounds, uint64_t base) {
    std::vector<uint64_t> data(words);
    uint64_t ready = base;
    uint64_t taken = base;
    Outcome outcome;
    const mp::WaitBounds bounds = {.abort = 0, .timeout_ns = minute_ns};
    {
        std::jthread other([&] {
            mp::host::launch(1, writers, mp_message_passing, 1, data.data(), words, &taken, &ready, base, rounds, bounds,
                             &outcome.report, &outcome.mismatches, &outcome.written);
        });
        mp::host::launch(1, readers, mp_message_passing, 0, data.data(), words, &ready, &taken, base, rounds, bounds,
                         &outcome.report, &outcome.mismatches, &outcome.read);
    }
    CHECK_THAT(outcome.report.status, ==, 0u);
    CHECK_THAT(ready, ==, base + rounds);
    CHECK_THAT(taken, ==, base + rounds);
    return outcome;
}

struct Bounce {
    mp::PingPongTime serving = {};
    mp::PingPongTime answering = {};
    mp::WaitReport report = {};
    uint64_t left = 0;
    uint64_t right = 0;
};

template <class Kernel>
Bounce bounce(Kernel kernel, uint64_t base, uint64_t untimed, uint64_t timed) {
    Bounce result;
    result.left = result.right = base;
    const mp::WaitBounds bounds = {.abort = 0, .timeout_ns = minute_ns};
    mp::PingPong serves = {};
    serves.mine = address(&result.left);
    serves.peer = address(&result.right);
    serves.base = base;
    serves.untimed_rounds = untimed;
    serves.timed_rounds = timed;
    serves.serves = 1;
    mp::PingPong answers = serves;
    answers.mine = serves.peer;
    answers.peer = serves.mine;
    answers.serves = 0;
    std::jthread other(
        [&] { mp::host::launch(1, 1, kernel, serves, bounds, &result.report, &result.serving); });
    mp::host::launch(1, 1, kernel, answers, bounds, &result.report, &result.answering);
    other.join();
    return result;
}

}  // namespace

CASE(one_thread_passes_messages_to_another) {
    const Outcome outcome = play(1, 1, 16, 3000, 0);
    CHECK_THAT(outcome.mismatches, ==, 0u);
    CHECK_THAT(outcome.written, ==, 3000u);
    CHECK_THAT(outcome.read, ==, 3000u);
}

CASE(what_every_thread_of_a_block_wrote_is_there_after_one_signal) {
    const Outcome outcome = play(8, 8, 64, 300, 0);
    CHECK_THAT(outcome.mismatches, ==, 0u);
    CHECK_THAT(outcome.written, ==, 300u);
    CHECK_THAT(outcome.read, ==, 300u);
}

CASE(blocks_of_different_sizes_pass_messages) {
    CHECK_THAT(play(5, 3, 17, 200, 0).mismatches, ==, 0u);
    CHECK_THAT(play(1, 6, 1, 200, 0).mismatches, ==, 0u);
}

CASE(counters_go_on_from_where_they_are) {
    // Replaying a captured graph goes on like this; the second base is past the sign bit.
    CHECK_THAT(play(2, 2, 8, 100, 12345).mismatches, ==, 0u);
    CHECK_THAT(play(2, 2, 8, 100, (uint64_t{1} << 63) - 50).mismatches, ==, 0u);
}

CASE(the_reader_notices_words_that_are_not_the_pattern) {
    // The litmus test can fail: the buffer is checked against the pattern of another round.
    std::vector<uint64_t> data(8, 0);
    uint64_t ready = 1;
    uint64_t taken = 0;
    uint64_t mismatches = 0;
    uint64_t rounds = 0;
    for (uint64_t i = 0; i < data.size(); ++i) data[i] = mp::pattern(1, i);
    data[3] = mp::pattern(0, 3);
    data[7] = 0;
    const mp::WaitBounds bounds = {.abort = 0, .timeout_ns = minute_ns};
    mp::WaitReport* none = nullptr;
    mp::host::launch(1, 2, mp_message_passing, 0, data.data(), 8, &ready, &taken, 0, 1, bounds, none, &mismatches, &rounds);
    CHECK_THAT(mismatches, ==, 2u);
    CHECK_THAT(rounds, ==, 1u);
    CHECK_THAT(taken, ==, 1u);
}

CASE(a_reader_whose_writer_never_comes_reports_and_ends) {
    std::vector<uint64_t> data(4, 0);
    uint64_t ready = 40;
    uint64_t taken = 40;
    uint64_t mismatches = 0;
    uint64_t rounds = 0;
    mp::WaitReport report = {};
    const mp::WaitBounds bounds = {.abort = 0, .timeout_ns = 1'000'000};
    mp::host::launch(1, 4, mp_message_passing, 0, data.data(), 4, &ready, &taken, 40, 9, bounds, &report, &mismatches,
                     &rounds);
    CHECK_THAT(report.status, ==, static_cast<unsigned>(mp::timed_out));
    CHECK_THAT(report.expected, ==, 41u);
    CHECK_THAT(report.seen, ==, 40u);
    CHECK_THAT(rounds, ==, 0u);
    CHECK_THAT(mismatches, ==, 0u);
    CHECK_THAT(taken, ==, 40u);
}

CASE(a_bounded_ping_pong_goes_both_ways_and_is_timed) {
    const Bounce result = bounce(mp_pingpong_bounded, 7, 20, 500);
    CHECK_THAT(result.left, ==, 527u);
    CHECK_THAT(result.right, ==, 527u);
    CHECK_THAT(result.report.status, ==, 0u);
    CHECK_THAT(result.serving.ns, >, 0u);
    CHECK_THAT(result.answering.ns, >, 0u);
    CHECK_THAT(result.serving.cycles, >, 0u);
}

CASE(an_unbounded_ping_pong_plays_the_same_game) {
    const Bounce result = bounce(mp_pingpong_unbounded, 7, 20, 500);
    CHECK_THAT(result.left, ==, 527u);
    CHECK_THAT(result.right, ==, 527u);
    CHECK_THAT(result.serving.ns, >, 0u);
}

CASE(a_bounded_ping_pong_without_a_partner_reports_the_round_and_writes_no_time) {
    uint64_t left = 100;
    uint64_t right = 100;
    mp::WaitReport report = {};
    mp::PingPongTime time = {.ns = 77, .cycles = 78};
    mp::PingPong serves = {};
    serves.mine = address(&left);
    serves.peer = address(&right);
    serves.base = 100;
    serves.timed_rounds = 5;
    serves.serves = 1;
    const mp::WaitBounds bounds = {.abort = 0, .timeout_ns = 1'000'000};
    mp::host::launch(1, 1, mp_pingpong_bounded, serves, bounds, &report, &time);
    CHECK_THAT(report.status, ==, static_cast<unsigned>(mp::timed_out));
    CHECK_THAT(report.expected, ==, 101u);
    CHECK_THAT(report.seen, ==, 100u);
    CHECK_THAT(right, ==, 101u);
    CHECK_THAT(time.ns, ==, 77u);
    CHECK_THAT(time.cycles, ==, 78u);
}
