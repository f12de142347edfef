// The bounded wait and its report: every way a wait can end.
#include <atomic>
#include <chrono>
#include <limits>
#include <mp/host/launch.hpp>
#include <thread>
#include <vector>

#include "../../src/cuda/signal.cu"
#include "check.hpp"

using std::uint64_t;

namespace {

constexpr uint64_t millisecond_ns = 1'000'000;
constexpr uint64_t minute_ns = 60'000 * millisecond_ns;
constexpr uint64_t largest = std::numeric_limits<uint64_t>::max();

mp::WaitBounds within(uint64_t timeout_ns, const uint64_t* abort = nullptr) {
    return {.abort = reinterpret_cast<uint64_t>(abort), .timeout_ns = timeout_ns};
}

void raise(uint64_t* word, uint64_t value) { mp::store(word, value, mp::release, mp::system); }

mp::WaitResult wait(const uint64_t* word, uint64_t expected, const mp::WaitBounds& bounds) {
    return mp::wait(mp::thread(), word, expected, bounds);
}

}  // namespace

CASE(a_signal_that_is_already_there_ends_the_wait_at_once) {
    const uint64_t word = 5;
    const mp::WaitResult result = wait(&word, 5, within(0));
    CHECK_THAT(result.status, ==, mp::ok);
    CHECK_THAT(result.seen, ==, 5u);
    CHECK_THAT(result.waited_ns, ==, 0u);
}

CASE(a_signal_past_the_expected_value_satisfies_the_wait) {
    const uint64_t word = 9;
    const mp::WaitResult result = wait(&word, 5, within(0));
    CHECK_THAT(result.status, ==, mp::ok);
    CHECK_THAT(result.seen, ==, 9u);
}

CASE(values_are_compared_without_sign_and_without_wrapping) {
    const uint64_t zero = 0;
    const uint64_t half = uint64_t{1} << 63;
    const uint64_t most = largest;
    CHECK_THAT(wait(&zero, 0, within(0)).status, ==, mp::ok);
    CHECK_THAT(wait(&half, half - 1, within(0)).status, ==, mp::ok);
    CHECK_THAT(wait(&half, half + 1, within(0)).status, ==, mp::timed_out);
    CHECK_THAT(wait(&most, 1, within(0)).status, ==, mp::ok);
    CHECK_THAT(wait(&most, largest, within(0)).status, ==, mp::ok);
    CHECK_THAT(wait(&zero, largest, within(0)).status, ==, mp::timed_out);
}

CASE(a_signal_raised_during_the_wait_ends_it) {
    uint64_t word = 0;
    std::jthread writer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        raise(&word, 3);
    });
    const mp::WaitResult result = wait(&word, 3, within(minute_ns));
    CHECK_THAT(result.status, ==, mp::ok);
    CHECK_THAT(result.seen, ==, 3u);
}

CASE(a_value_short_of_the_expected_one_does_not_end_the_wait) {
    uint64_t word = 0;
    std::jthread writer([&] {
        for (uint64_t value = 1; value <= 20; ++value) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            raise(&word, value);
        }
    });
    const mp::WaitResult result = wait(&word, 20, within(minute_ns));
    CHECK_THAT(result.status, ==, mp::ok);
    CHECK_THAT(result.seen, ==, 20u);
}

CASE(a_wait_times_out_not_before_its_timeout_and_says_what_it_saw) {
    const uint64_t word = 4;
    const uint64_t before = mp::clock_ns();
    const mp::WaitResult result = wait(&word, 5, within(20 * millisecond_ns));
    const uint64_t took = mp::clock_ns() - before;
    CHECK_THAT(result.status, ==, mp::timed_out);
    CHECK_THAT(result.seen, ==, 4u);
    CHECK_THAT(result.waited_ns, >=, 20 * millisecond_ns);
    CHECK_THAT(took, >=, result.waited_ns);
    CHECK_THAT(took, <, minute_ns);
}

CASE(a_timeout_of_zero_still_polls_for_one_interval) {
    uint64_t word = 0;
    const uint64_t before = mp::clock_ns();
    CHECK_THAT(wait(&word, 1, within(0)).status, ==, mp::timed_out);
    CHECK_THAT(mp::clock_ns() - before, >=, mp::impl::look_every_cycles);
}

// On a busy machine a poll takes as long as others keep the CPU that it gives away.
CASE(an_abort_is_seen_after_a_few_polls_however_long_each_takes) {
    const uint64_t abort = 1;
    int polls = 0;
    const auto slow = [&polls](uint64_t&) {
        ++polls;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return false;
    };
    CHECK_THAT(mp::impl::wait_for(slow, within(minute_ns, &abort)).status, ==, mp::aborted);
    CHECK_THAT(polls, <=, 4);
}

CASE(the_abort_word_ends_a_wait_that_is_under_way) {
    const uint64_t word = 6;
    uint64_t abort = 0;
    std::jthread watchdog([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        raise(&abort, 1);
    });
    const mp::WaitResult result = wait(&word, 7, within(minute_ns, &abort));
    CHECK_THAT(result.status, ==, mp::aborted);
    CHECK_THAT(result.seen, ==, 6u);
    CHECK_THAT(result.waited_ns, <, minute_ns);
}

CASE(an_abort_word_set_before_ends_the_wait_too) {
    const uint64_t word = 6;
    const uint64_t abort = largest;
    const mp::WaitResult result = wait(&word, 7, within(minute_ns, &abort));
    CHECK_THAT(result.status, ==, mp::aborted);
    CHECK_THAT(result.seen, ==, 6u);
}

CASE(abort_is_reported_before_a_timeout_that_has_passed_as_well) {
    const uint64_t word = 0;
    const uint64_t abort = 1;
    CHECK_THAT(wait(&word, 1, within(0, &abort)).status, ==, mp::aborted);
}

CASE(a_signal_that_is_there_counts_even_when_the_abort_word_is_set) {
    const uint64_t word = 1;
    const uint64_t abort = 1;
    CHECK_THAT(wait(&word, 1, within(minute_ns, &abort)).status, ==, mp::ok);
}

// What a GPU's kernels look at instead of the word.
CASE(a_relay_reads_the_word_once_a_while_for_all_that_wait) {
    constexpr uint64_t every = mp::impl::abort_every_ns;
    uint64_t word = 0;
    mp::AbortRelay relay = {reinterpret_cast<uint64_t>(&word), 0, 0};
    CHECK(!mp::impl::relayed(relay, 5 * every));
    CHECK_THAT(relay.next_ns, ==, 6 * every);
    // Who comes before it is time does not read it; of those who come then one does, for all.
    word = 7;
    CHECK(!mp::impl::relayed(relay, 6 * every - 1));
    std::atomic<int> readers = 0;
    {
        std::vector<std::jthread> waits;
        for (int number = 0; number < 4; ++number)
            waits.emplace_back([&] {
                const uint64_t next = mp::load(&relay.next_ns, mp::relaxed, mp::gpu);
                if (mp::impl::relayed(relay, 6 * every) && next == 6 * every) ++readers;
            });
    }
    CHECK_THAT(readers.load(), >=, 1);
    CHECK_THAT(relay.next_ns, ==, 7 * every);
    CHECK_THAT(relay.seen, ==, 7u);
    word = 0;
    CHECK(mp::impl::relayed(relay, 0));
}

CASE(an_abort_word_that_stays_zero_is_no_abort) {
    const uint64_t word = 0;
    const uint64_t abort = 0;
    CHECK_THAT(wait(&word, 1, within(5 * millisecond_ns, &abort)).status, ==, mp::timed_out);
}

CASE(every_thread_of_a_block_learns_how_the_wait_ended) {
    constexpr unsigned threads = 40;  // more than a warp
    uint64_t word = 2;
    std::vector<mp::WaitResult> results(threads);
    const auto kernel = [&](uint64_t expected, mp::WaitBounds bounds) {
        results[mp::thread_rank()] = mp::wait(mp::block(), &word, expected, bounds);
    };
    mp::host::launch(1, threads, kernel, 3, within(millisecond_ns));
    for (const auto& result : results) {
        CHECK_THAT(result.status, ==, mp::timed_out);
        CHECK_THAT(result.seen, ==, 2u);
        CHECK_THAT(result.waited_ns, ==, results[0].waited_ns);
    }
    mp::host::launch(1, threads, kernel, 1, within(minute_ns));
    for (unsigned i = 0; i < threads; ++i) {
        CHECK_THAT(results[i].status, ==, mp::ok);
        CHECK_THAT(results[i].seen, ==, i == 0 ? 2u : 1u);
    }
}

CASE(blocks_and_warps_wait_one_after_another_without_mixing_their_results) {
    // Failures and successes in turn, so that what one wait broadcasts would be seen if the next read it.
    uint64_t word = 10;
    std::atomic<unsigned> wrong = 0;
    const auto kernel = [&] {
        for (uint64_t round = 0; round < 20; ++round) {
            const bool fails = round % 2 == 0;
            const uint64_t expected = fails ? 11 + round : 10;
            const auto in_block = mp::wait(mp::block(), &word, expected, within(0));
            const auto in_warp = mp::wait(mp::warp(), &word, expected, within(0));
            wrong += in_block.status != (fails ? mp::timed_out : mp::ok);
            wrong += in_warp.status != (fails ? mp::timed_out : mp::ok);
            wrong += fails && (in_block.seen != 10 || in_warp.seen != 10);
        }
    };
    mp::host::launch(2, 64, kernel);
    CHECK_THAT(wrong.load(), ==, 0u);
}

CASE(every_thread_of_blocks_and_warps_has_the_status_of_its_wait) {
    uint64_t word = 0;
    std::vector<std::uint32_t> results(2 * 32, 99);
    const auto all_wait = [&](auto group) {
        mp::host::launch(2, 32, [&] {
            const mp::WaitResult result = mp::wait(group(), &word, 1, within(0));
            results[mp::block_rank() * mp::block_threads() + mp::thread_rank()] = result.status;
        });
    };
    all_wait(mp::block);
    for (const auto result : results) CHECK_THAT(result, ==, static_cast<unsigned>(mp::timed_out));
    raise(&word, 1);
    all_wait(mp::warp);
    for (const auto result : results) CHECK_THAT(result, ==, static_cast<unsigned>(mp::ok));
}

CASE(the_store_and_wait_kernels_meet) {
    uint64_t word = 0;
    mp::WaitReport report = {};
    {
        std::jthread waiter(
            [&] { mp::host::launch(2, 3, mp_signal_wait, &word, 8, mp::compare_ge, within(minute_ns), &report); });
        mp::host::launch(2, 3, mp_signal_store, &word, 8);
    }
    CHECK_THAT(word, ==, 8u);
    CHECK_THAT(report.status, ==, 0u);
    CHECK_THAT(report.claimed, ==, 0u);
}

CASE(a_failed_wait_kernel_reports_what_it_expected_and_saw) {
    uint64_t word = 3;
    uint64_t abort = 0;
    mp::WaitReport report = {};
    {
        std::jthread watchdog([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            raise(&abort, 1);
        });
        mp::host::launch(1, 1, mp_signal_wait, &word, 4, mp::compare_ge, within(minute_ns, &abort), &report);
    }
    CHECK_THAT(report.status, ==, static_cast<unsigned>(mp::aborted));
    CHECK_THAT(report.expected, ==, 4u);
    CHECK_THAT(report.seen, ==, 3u);
    CHECK_THAT(report.waited_ns, <, minute_ns);
}

CASE(the_wait_kernel_compares_in_every_way) {
    const auto holds = [](uint64_t word, mp::Comparison comparison, uint64_t value) {
        mp::WaitReport report = {};
        mp::host::launch(1, 1, mp_signal_wait, &word, value, comparison, within(0), &report);
        CHECK_THAT(report.expected, ==, report.status == mp::ok ? 0 : value);
        return report.status == mp::ok;
    };
    // What 1, 2 and 4 are to 2.
    const struct {
        mp::Comparison comparison;
        bool less, same, more;
    } ways[] = {{mp::compare_eq, false, true, false}, {mp::compare_ne, true, false, true}, {mp::compare_gt, false, false, true},
                {mp::compare_ge, false, true, true},  {mp::compare_lt, true, false, false}, {mp::compare_le, true, true, false},
                {mp::compare_any_bit, false, true, false}};
    for (const auto& way : ways) {
        CHECK_THAT(holds(1, way.comparison, 2), ==, way.less);
        CHECK_THAT(holds(2, way.comparison, 2), ==, way.same);
        CHECK_THAT(holds(4, way.comparison, 2), ==, way.more);
    }
}

CASE(the_first_failure_stays_in_the_report) {
    mp::WaitReport report = {};
    mp::report(&report, 10, {mp::ok, 12, 0});
    CHECK_THAT(report.claimed, ==, 0u);
    mp::report(&report, 10, {mp::timed_out, 9, 500});
    mp::report(&report, 20, {mp::aborted, 19, 600});
    CHECK_THAT(report.status, ==, static_cast<unsigned>(mp::timed_out));
    CHECK_THAT(report.expected, ==, 10u);
    CHECK_THAT(report.seen, ==, 9u);
    CHECK_THAT(report.waited_ns, ==, 500u);
    mp::report(nullptr, 20, {mp::aborted, 19, 600});  // no slot: nothing happens
}

CASE(of_many_failures_at_once_one_is_reported_whole) {
    for (int repeat = 0; repeat < 20; ++repeat) {
        mp::WaitReport report = {};
        const auto kernel = [&] {
            const uint64_t mine = mp::block_rank() + 1;
            mp::report(&report, mine * 1000, {mp::timed_out, mine * 100, mine * 10});
        };
        {
            // The host reads while the kernel writes: a status other than 0 means that the rest is there.
            std::jthread host([&] {
                const uint64_t end = mp::clock_ns() + minute_ns;
                while (mp::load(&report.status, mp::acquire, mp::system) == 0 && mp::clock_ns() < end) mp::pause();
                CHECK_THAT(report.expected, ==, report.seen * 10);
                CHECK_THAT(report.seen, ==, report.waited_ns * 10);
            });
            mp::host::launch(8, 1, kernel);
        }
        CHECK_THAT(report.expected, ==, report.seen * 10);
        CHECK_THAT(report.seen, ==, report.waited_ns * 10);
    }
}

namespace {

// What a wait says at once: ok, or timed_out.
template <class T, class Compare>
bool holds(T word, Compare compare, T value) {
    const mp::WaitResult result = mp::wait(mp::thread(), &word, compare, value, within(0));
    CHECK_THAT(mp::test(&word, compare, value), ==, result.status == mp::ok);
    CHECK_THAT(result.seen, ==, static_cast<uint64_t>(word));
    return result.status == mp::ok;
}

template <class T>
void compare_each(T low, T high) {
    CHECK(holds(low, mp::eq, low) && !holds(low, mp::eq, high));
    CHECK(holds(low, mp::ne, high) && !holds(low, mp::ne, low));
    CHECK(holds(high, mp::gt, low) && !holds(low, mp::gt, low) && !holds(low, mp::gt, high));
    CHECK(holds(high, mp::ge, low) && holds(low, mp::ge, low) && !holds(low, mp::ge, high));
    CHECK(holds(low, mp::lt, high) && !holds(low, mp::lt, low) && !holds(high, mp::lt, low));
    CHECK(holds(low, mp::le, high) && holds(low, mp::le, low) && !holds(high, mp::le, low));
    CHECK(holds(T(6), mp::any_bit, T(3)) && !holds(T(4), mp::any_bit, T(3)) && !holds(T(4), mp::any_bit, T(0)));
}

}  // namespace

CASE(words_of_either_width_are_compared_by_their_type) {
    compare_each<uint64_t>(1, largest);
    compare_each<std::uint32_t>(1, ~0u);
    compare_each<std::int64_t>(-1, 1);
    compare_each<std::int32_t>(-1, 1);
    CHECK(holds<uint64_t>(uint64_t{1} << 40, mp::any_bit, uint64_t{1} << 40));
}

CASE(half_a_word_is_waited_for_whatever_the_other_half_holds) {
    alignas(4) std::int16_t halves[2] = {-1, -1};
    for (int half : {0, 1}) {
        halves[1 - half] = 7;
        halves[half] = -5;
        CHECK(mp::test(&halves[half], mp::lt, std::int16_t{0}));
        CHECK(!mp::test(reinterpret_cast<std::uint16_t*>(&halves[half]), mp::lt, std::uint16_t{7}));
        const auto both = (std::uint32_t{9} << 16 * half) | (std::uint32_t{0xffff} << 16 * (1 - half));
        std::jthread writer([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            mp::store(reinterpret_cast<std::uint32_t*>(halves), both, mp::release, mp::system);
        });
        CHECK_THAT(mp::wait(mp::thread(), &halves[half], mp::eq, std::int16_t{9}, within(minute_ns)).status, ==, mp::ok);
    }
}

CASE(a_wait_that_lasts_acquires_at_its_end) {
    // Long enough for the first polls to be over; what came before the release is there.
    uint64_t word = 0, data = 0;
    for (uint64_t round = 1; round <= 10; ++round) {
        std::jthread writer([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            data = round;
            raise(&word, round);
        });
        const mp::WaitResult result = mp::wait(mp::thread(), &word, mp::gt, round - 1, within(minute_ns));
        CHECK_THAT(result.status, ==, mp::ok);
        CHECK_THAT(data, ==, round);
    }
}

CASE(a_word_that_shrinks_ends_the_wait_for_less) {
    std::uint32_t word = 100;
    std::jthread writer([&] {
        for (int value = 99; value >= 10; --value) mp::store(&word, std::uint32_t(value), mp::release, mp::system);
    });
    CHECK_THAT(mp::wait(mp::thread(), &word, mp::lt, 20u, within(minute_ns)).status, ==, mp::ok);
}

CASE(all_of_a_list_are_waited_for_by_the_threads_of_a_group) {
    constexpr uint64_t count = 7;
    // Eight words apart, as the signals of a window.
    std::vector<uint64_t> words(count * 8), data(count);
    const mp::Words<uint64_t> list = {words.data(), count, 3, nullptr, 64, nullptr};
    std::atomic<int> wrong = 0;
    std::vector<std::jthread> writers;
    for (uint64_t i = 0; i < count; ++i)
        writers.emplace_back([&, i] {
            std::this_thread::sleep_for(std::chrono::microseconds(300 * (count - i)));
            data[i] = i + 1;
            raise(&words[8 * i], 3);
        });
    mp::host::launch(1, 3, [&] {
        wrong += mp::wait_all(mp::block(), list, mp::ge, within(minute_ns)).failed();
        for (uint64_t i = 0; i < count; ++i) wrong += data[i] != i + 1;
    });
    writers.clear();
    CHECK_THAT(wrong.load(), ==, 0);
    // One that is missing, unless it is passed over.
    words[8 * 4] = 2;
    std::vector<mp::WaitStatus> ended(4);
    mp::host::launch(1, 4, [&] {
        ended[mp::thread_rank()] = mp::wait_all(mp::block(), list, mp::ge, within(millisecond_ns)).status;
    });
    for (const auto status : ended) CHECK_THAT(status, ==, mp::timed_out);
    ended.assign(32, mp::ok);
    mp::host::launch(1, 32, [&] {
        ended[mp::thread_rank()] = mp::wait_all(mp::warp(), list, mp::ge, within(millisecond_ns)).status;
        if (mp::wait_all(mp::warp(), list, mp::ge, within(minute_ns, &list.value)).status != mp::aborted) ++wrong;
    });
    for (const auto status : ended) CHECK_THAT(status, ==, mp::timed_out);
    CHECK_THAT(wrong.load(), ==, 0);
    const int skipped[count] = {0, 0, 0, 0, 1, 0, 0};
    mp::Words<uint64_t> but_one = list;
    but_one.skipped = skipped;
    CHECK_THAT(mp::wait_all(mp::thread(), but_one, mp::ge, within(0)).status, ==, mp::ok);
    // Each with its own value.
    const uint64_t values[count] = {3, 3, 3, 3, 2, 3, 3};
    mp::Words<uint64_t> own = list;
    own.values = values;
    CHECK_THAT(mp::wait_all(mp::thread(), own, mp::eq, within(0)).status, ==, mp::ok);
    const uint64_t abort = 1;
    CHECK_THAT(mp::wait_all(mp::thread(), list, mp::gt, within(minute_ns, &abort)).status, ==, mp::aborted);
    CHECK_THAT(mp::wait_all(mp::thread(), mp::Words<uint64_t>{nullptr, 0, 9}, mp::ge, within(0)).status, ==, mp::ok);
}

CASE(one_of_a_list_ends_the_wait_and_is_named) {
    std::int32_t words[5] = {0, 0, 0, -4, 0};
    const mp::Words<std::int32_t> list = {words, 5, 0};
    const mp::AnyResult below = mp::wait_any(mp::thread(), list, mp::lt, within(minute_ns));
    CHECK(!below.failed() && below.index == 3);
    // From another word on the first one found is another one.
    words[1] = -1;
    CHECK_THAT(mp::wait_any(mp::thread(), list, mp::lt, within(0)).index, ==, 1u);
    CHECK_THAT(mp::wait_any(mp::thread(), list, mp::lt, within(0), 2).index, ==, 3u);
    CHECK_THAT(mp::wait_any(mp::thread(), list, mp::lt, within(0), 4).index, ==, 1u);
    // Every thread hears which; what came before it is there.
    std::uint32_t late[3] = {0, 0, 0};
    uint64_t data = 0;
    std::atomic<int> wrong = 0;
    std::jthread writer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        data = 17;
        mp::store(&late[2], 5u, mp::release, mp::system);
    });
    mp::host::launch(1, 5, [&] {
        const auto any = mp::wait_any(mp::block(), mp::Words<std::uint32_t>{late, 3, 5}, mp::eq, within(minute_ns));
        wrong += any.failed() || any.index != 2 || data != 17;
    });
    CHECK_THAT(wrong.load(), ==, 0);
    const auto none = mp::wait_any(mp::thread(), mp::Words<std::uint32_t>{late, 3, 6}, mp::eq, within(millisecond_ns));
    CHECK(none.result.status == mp::timed_out && none.index == 3);
    mp::host::launch(1, 32, [&] {
        const mp::Words<std::uint32_t> words = {late, 3, 5};
        const auto found = mp::wait_any(mp::warp(), words, mp::eq, within(0)), above = mp::wait_any(mp::warp(), words, mp::gt, within(0));
        wrong += found.failed() || found.index != 2 || above.result.status != mp::timed_out || above.index != 3;
    });
    CHECK_THAT(wrong.load(), ==, 0);
    const int all[3] = {1, 1, 1};
    const mp::Words<std::uint32_t> skipped = {late, 3, 6, nullptr, 4, all};
    CHECK(!mp::wait_any(mp::thread(), skipped, mp::eq, within(0)).failed());
    CHECK_THAT(mp::wait_any(mp::thread(), skipped, mp::eq, within(0)).index, ==, 3u);
}
