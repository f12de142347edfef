// Meetings of the blocks of a launch, on host threads: what they order, and how they end when somebody stays away.
#include <mp/host/launch.hpp>
#include <thread>
#include <vector>

#include "../cuda/meeting.cu"
#include "check.hpp"

using std::uint64_t;

namespace {

constexpr uint64_t millisecond_ns = 1'000'000, minute_ns = 60'000 * millisecond_ns;
constexpr unsigned nobody = ~0u;

// The signals of so many blocks and their report.
struct Signals {
    std::vector<uint64_t> words;
    mp::WaitReport report = {};
    mp::WaitBounds bounds;

    Signals(unsigned blocks, uint64_t timeout_ns, const uint64_t* abort = nullptr)
        : words(blocks), bounds{reinterpret_cast<uint64_t>(abort), timeout_ns} {}
    mp::BlockSignals handle() {
        return {reinterpret_cast<uint64_t>(words.data()), bounds, reinterpret_cast<uint64_t>(&report)};
    }
};

struct Results {
    uint64_t wrong = 0, turns = 0;
};

// One launch.
Results play(Signals& signals, unsigned threads, bool all, unsigned absent, uint64_t words, uint64_t first, uint64_t turns) {
    const unsigned blocks = unsigned(signals.words.size());
    std::vector<uint64_t> data(2 * blocks * words);
    uint64_t results[2] = {};
    mp::host::launch(blocks, threads, mp_meetings, signals.handle(), unsigned(all), absent, data.data(), words, first, turns, results);
    return {results[0], results[1]};
}

}  // namespace

CASE(blocks_that_meet_see_what_those_they_name_have_written) {
    for (const bool all : {false, true}) {
        for (const unsigned threads : {5u, 7u}) {
            Signals signals(5, minute_ns);
            // The second launch goes on where the first ended.
            for (uint64_t launch = 0; launch < 2; ++launch) {
                const Results results = play(signals, threads, all, nobody, 8, 50 * launch, 50);
                CHECK_THAT(results.wrong, ==, 0u);
                CHECK_THAT(results.turns, ==, 5u * 50);
            }
            CHECK_THAT(signals.report.status, ==, 0u);
            for (const uint64_t came : signals.words) CHECK_THAT(came, ==, 100u);
        }
    }
}

CASE(a_block_that_stays_away_ends_the_meetings_of_all_that_wait_for_one_another) {
    Signals signals(4, 20 * millisecond_ns);
    Results results = play(signals, 2, false, 1, 4, 0, 50);
    // Two wait for block 1 in vain; block 3 meets both of them once, and then waits for one of these in vain or hears of it.
    CHECK_THAT(results.wrong, ==, 0u);
    CHECK_THAT(results.turns, <=, 1u);
    CHECK_THAT(signals.report.status, ==, unsigned(mp::timed_out));
    CHECK_THAT(signals.report.expected, ==, signals.report.seen + 1);
    CHECK_THAT(signals.report.waited_ns, >=, 20 * millisecond_ns);
    // Whoever has failed does not wait again.
    results = play(signals, 2, false, nobody, 4, 0, 50);
    CHECK_THAT(results.wrong, ==, 0u);
    CHECK_THAT(results.turns, ==, 0u);
}

CASE(an_abort_ends_meetings) {
    uint64_t abort = 0;
    Signals signals(2, 60 * minute_ns, &abort);
    std::jthread aborter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        mp::store(&abort, uint64_t{1}, mp::release, mp::system);
    });
    const Results results = play(signals, 2, true, 0, 4, 0, 3);
    CHECK_THAT(results.turns, ==, 0u);
    CHECK_THAT(signals.report.status, ==, unsigned(mp::aborted));
}

CASE(numbers_that_no_block_has_are_nobodys) {
    Signals signals(1, 0);
    mp::host::launch(1, 2, [](mp::BlockSignals all) {
        const auto beside = [](std::uint32_t n) { return mp::block_rank() - 1 + 2 * n; };
        CHECK_THAT(mp::Meetings(all, 2, beside).meet(), ==, true);
        CHECK_THAT(mp::Meetings(all, 0, beside).meet(), ==, true);
    }, signals.handle());
    CHECK_THAT(signals.words[0], ==, 2u);
}

CASE(more_blocks_than_a_block_has_threads_are_refused) {
    Signals signals(3, minute_ns);
    const Results results = play(signals, 2, true, nobody, 4, 0, 5);
    CHECK_THAT(results.turns, ==, 0u);
    CHECK_THAT(signals.report.status, ==, unsigned(mp::bad_argument));
    CHECK_THAT(signals.report.expected, ==, 3u);
    CHECK_THAT(signals.report.seen, ==, 2u);
}
