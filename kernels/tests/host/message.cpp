// Messages and windows of mp/*.cuh on host threads: the kernels of src/cuda/steps.cu and those of mp-perf,
// ranks as launches that run at once. Meant for ThreadSanitizer as well.
#include <array>
#include <mp/host/launch.hpp>
#include <thread>
#include <utility>

#include "../../../bench/cuda/perf.cu"
#include "../../../bench/cuda/perf_load.cu"
#include "../../src/cuda/steps.cu"
#include "check.hpp"
#include "window.hpp"

using std::uint64_t;

namespace {

constexpr uint64_t minute_ns = 60'000'000'000;

// Both ends of a pair of prepared operations.
struct Pair {
    std::vector<unsigned char> source, buffer;
    std::vector<mp::Packet> inbox;
    mp::MessageState sender = {}, receiver = {};
    mp::WaitReport send_report = {}, recv_report = {};
    uint64_t credit = 0, arrival = 0;

    Pair(uint64_t bytes, bool packets, uint64_t shift = 0) : source(bytes + shift + 8), buffer(bytes + shift + 8) {
        len = bytes;
        from = shift;
        if (packets) inbox.resize(mp::packet_slots * mp::packets_of(bytes));
    }
    mp::Send send(uint64_t timeout_ns = minute_ns) {
        mp::Message end = common(timeout_ns);
        end.memory = address(source.data() + from);
        end.target = inbox.empty() ? address(buffer.data() + from) : 0;
        end.mine = address(&credit);
        end.theirs = address(&arrival);
        end.state = address(&sender);
        end.report = address(&send_report);
        return {end};
    }
    mp::Recv recv(uint64_t timeout_ns = minute_ns) {
        mp::Message end = common(timeout_ns);
        end.memory = address(buffer.data() + from);
        end.mine = address(&arrival);
        end.theirs = address(&credit);
        end.state = address(&receiver);
        end.report = address(&recv_report);
        return {end};
    }
    uint64_t len, from;

private:
    mp::Message common(uint64_t timeout_ns) {
        mp::Message end = {};
        end.len = len;
        end.inbox = inbox.empty() ? 0 : address(inbox.data());
        end.timeout_ns = timeout_ns;
        return end;
    }
};

// The game of mp_perf_messages, and with one pair that of mp_perf_packets: each side fills what it sends with the pattern of
// the round, and checks and poisons what it receives.
template <int turns>
void checked_messages(mp::PerfPairs pairs, mp::PingPong game, std::uint32_t* samples, mp::PingPongTime* time,
                      uint64_t* mismatches) {
    mp::perf::Watch watch = {samples, time};
    mp::perf::play_messages<turns, true>(pairs.sends, pairs.recvs, game, watch, mismatches);
}

// Two sides bounce checked messages of `bytes` bytes, by `turns` pairs in each direction.
template <int turns>
void bounce(unsigned left_threads, unsigned right_threads, uint64_t bytes, bool packets, uint64_t rounds) {
    std::array<std::unique_ptr<Pair>, 4> pairs;
    for (auto& pair : pairs) pair = std::make_unique<Pair>(bytes, packets);
    const mp::PerfPairs left = {{pairs[turns - 1]->send(), pairs[0]->send()}, {pairs[2]->recv(), pairs[3]->recv()}};
    const mp::PerfPairs right = {{pairs[2]->send(), pairs[3]->send()}, {pairs[0]->recv(), pairs[1]->recv()}};
    mp::PingPong serving = {};
    serving.untimed_rounds = 2;
    serving.timed_rounds = rounds - 2;
    serving.serves = 1;
    mp::PingPong answering = serving;
    answering.serves = 0;
    std::vector<std::uint32_t> samples(rounds);
    mp::PingPongTime left_time = {}, right_time = {};
    uint64_t wrong = 0;
    std::jthread other([&] {
        mp::host::launch(1, left_threads, checked_messages<turns>, left, serving, samples.data(), &left_time, &wrong);
    });
    std::uint32_t* none = nullptr;
    mp::host::launch(1, right_threads, checked_messages<turns>, right, answering, none, &right_time, &wrong);
    other.join();
    CHECK_THAT(wrong, ==, 0u);
    CHECK_THAT(left_time.ns, >, 0u);
    CHECK_THAT(right_time.ns, >, 0u);
    CHECK_THAT(pairs[0]->sender.epoch, ==, (rounds + turns - 1) / turns);
    CHECK_THAT(pairs[turns + 1]->receiver.epoch, ==, rounds / turns);
    for (auto& pair : pairs) CHECK(pair->send_report.status == 0 && pair->recv_report.status == 0);
}

// A list of steps of one side, run `times` times by a grid.
void run_steps(std::vector<mp::Step> steps, unsigned blocks, unsigned threads, unsigned times) {
    mp::StepList<mp::max_steps> list = {};
    mp::StepList<mp::few_steps> few = {};
    const auto count = static_cast<std::uint32_t>(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) list.steps[i] = few.steps[i] = steps[i];
    for (unsigned i = 0; i < times; ++i)
        if (i % 2 == 0)
            mp::host::launch(blocks, threads, mp_steps, list, count, uint64_t{0});
        else
            mp::host::launch(blocks, threads, mp_steps_few, few, count, uint64_t{0});
}

// What one block took for all, and a buffer that all have read, needs a meeting before the next step.
mp::Step step(const mp::Message& message, mp::StepKind kind, mp::Meeting meet = mp::meet_none) {
    return {message, kind, meet};
}

void ring_of_steps(uint64_t bytes, bool packets, unsigned blocks) {
    // Rank 0 sends what it got, one more in each byte; rank 1 sends back what it got.
    Pair there(bytes, packets), back(bytes, packets);
    there.source.assign(there.source.size(), 1);
    // What arrives is what the next message is made of.
    mp::Send forward = back.send();
    forward.message.memory = address(there.buffer.data());
    mp::Send again = there.send();
    again.message.memory = address(back.buffer.data());
    back.buffer.assign(back.buffer.size(), 7);
    const unsigned times = 6;
    std::jthread other([&] {
        run_steps({step(there.recv().message, mp::step_post), step(there.recv().message, mp::step_recv),
                   step(forward.message, mp::step_send, packets ? mp::meet_all : mp::meet_none)},
                  blocks, 3, times);
    });
    run_steps({step(back.recv().message, mp::step_post), step(again.message, mp::step_send),
               step(back.recv().message, mp::step_recv)},
              blocks, 3, times);
    other.join();
    for (uint64_t i = 0; i < bytes; ++i) CHECK(there.buffer[i] == 7 && back.buffer[i] == 7);
    CHECK_THAT(back.receiver.epoch, ==, uint64_t{times});
    CHECK_THAT(there.sender.epoch, ==, uint64_t{times});
    CHECK_THAT(there.receiver.meetings, ==, packets && blocks > 1 ? times : 0);
    CHECK_THAT(there.sender.arrived + back.receiver.arrived, ==, 0u);
}

}  // namespace

CASE(messages_as_packets_arrive_whole_and_in_order) {
    bounce<2>(1, 1, 8, true, 600);
    bounce<2>(4, 3, 8 * 13, true, 200);
    bounce<1>(1, 1, 8, true, 600);
    // A share of nine for a thread, on both sides or on one.
    bounce<1>(9, 12, 8 * 13, true, 200);
    bounce<1>(10, 4, 8 * 13, true, 200);
}

CASE(messages_in_one_piece_arrive_whole_and_in_order) {
    bounce<2>(1, 1, 8, false, 600);
    bounce<2>(4, 3, 8 * 129, false, 200);
}

CASE(messages_of_any_length_and_alignment_arrive) {
    for (const bool packets : {true, false})
        for (const uint64_t shift : {0, 1, 8})
            for (const uint64_t bytes : {0, 1, 7, 8, 9, 31, 200}) {
                Pair pair(bytes, packets, shift);
                for (uint64_t i = 0; i < pair.source.size(); ++i) pair.source[i] = static_cast<unsigned char>(i * 7 + 1);
                const mp::Send send = pair.send();
                const mp::Recv recv = pair.recv();
                std::jthread other([&] {
                    mp::host::launch(1, 2, +[](mp::Send send) { CHECK(!mp::send(mp::block(), send).failed()); }, send);
                });
                mp::host::launch(1, 3, +[](mp::Recv recv) {
                    mp::post(mp::block(), recv);
                    CHECK(!mp::recv(mp::block(), recv).failed());
                }, recv);
                other.join();
                for (uint64_t i = 0; i < pair.buffer.size(); ++i) {
                    const bool inside = i >= shift && i < shift + bytes;
                    CHECK(pair.buffer[i] == (inside ? pair.source[i] : 0));
                }
            }
}

CASE(a_sender_of_packets_waits_when_all_slots_are_taken) {
    Pair pair(8, true);
    const mp::Send send = pair.send(2'000'000);
    for (uint64_t i = 0; i < mp::packet_slots; ++i) CHECK(!mp::send(mp::thread(), send).failed());
    const mp::WaitResult full = mp::send(mp::thread(), send);
    CHECK_THAT(full.status, ==, mp::timed_out);
    CHECK_THAT(pair.send_report.expected, ==, 1u);
    CHECK_THAT(pair.send_report.seen, ==, 0u);
    CHECK(!mp::recv(mp::thread(), pair.recv()).failed());
    CHECK(!mp::send(mp::thread(), send).failed());
    CHECK_THAT(pair.sender.epoch, ==, mp::packet_slots + 1);
}

CASE(a_send_in_one_piece_waits_for_the_posted_buffer) {
    Pair pair(100, false);
    CHECK_THAT(mp::send(mp::thread(), pair.send(1'000'000)).status, ==, mp::timed_out);
    CHECK_THAT(pair.arrival, ==, 0u);
    mp::post(mp::thread(), pair.recv());
    CHECK(!mp::send(mp::thread(), pair.send()).failed());
    CHECK_THAT(pair.arrival, ==, 1u);
}

CASE(a_message_that_never_comes_is_a_failure_of_every_thread_and_reported) {
    for (const bool packets : {true, false}) {
        Pair pair(40, packets);
        static std::atomic<unsigned> failed;
        failed = 0;
        mp::host::launch(1, 5, +[](mp::Recv recv) {
            mp::post(mp::block(), recv);
            failed += mp::recv(mp::block(), recv).status == mp::timed_out;
        }, pair.recv(1'000'000));
        CHECK_THAT(failed.load(), ==, 5u);
        CHECK_THAT(pair.recv_report.status, ==, static_cast<unsigned>(mp::timed_out));
        CHECK_THAT(pair.recv_report.expected, ==, 1u);
        CHECK_THAT(pair.receiver.epoch, ==, 0u);
    }
}

CASE(an_abort_ends_sends_and_receives) {
    uint64_t abort = 1;
    Pair pair(40, true);
    mp::Recv recv = pair.recv();
    recv.message.abort = address(&abort);
    CHECK_THAT(mp::recv(mp::thread(), recv).status, ==, mp::aborted);
    Pair other(40, false);
    mp::Send send = other.send();
    send.message.abort = address(&abort);
    CHECK_THAT(mp::send(mp::thread(), send).status, ==, mp::aborted);
}

CASE(lists_of_steps_mean_what_their_steps_mean_one_after_another) {
    ring_of_steps(64, true, 1);
    ring_of_steps(64, false, 1);
}

CASE(blocks_share_a_list_of_steps) {
    ring_of_steps(64 * 16, false, 3);
    ring_of_steps(200, true, 2);
}

CASE(puts_are_there_when_the_signal_is) {
    for (const uint64_t bytes : {8, 32, 480}) {
        std::vector<uint64_t> left(bytes / 8), right(bytes / 8), at_left(bytes / 8), at_right(bytes / 8);
        uint64_t for_left = 10, for_right = 10, wrong = 0;
        mp::PingPong serving = {};
        serving.mine = address(&for_left);
        serving.peer = address(&for_right);
        serving.base = 10;
        serving.timed_rounds = 150;
        serving.serves = 1;
        mp::PingPong answering = serving;
        answering.mine = serving.peer;
        answering.peer = serving.mine;
        answering.serves = 0;
        const mp::WaitBounds bounds = {0, minute_ns};
        mp::WaitReport report = {};
        mp::PingPongTime time = {}, other_time = {};
        std::uint32_t* none = nullptr;
        std::jthread other([&] {
            mp::host::launch(1, 4, mp_perf_puts, serving, address(left.data()), address(at_right.data()),
                             address(at_left.data()), bytes, 1u, bounds, &report, none, &time, &wrong);
        });
        mp::host::launch(1, 2, mp_perf_puts, answering, address(right.data()), address(at_left.data()),
                         address(at_right.data()), bytes, 1u, bounds, &report, none, &other_time, &wrong);
        other.join();
        CHECK_THAT(wrong, ==, 0u);
        CHECK_THAT(report.status, ==, 0u);
        CHECK_THAT(for_left, ==, 160u);
        CHECK_THAT(time.ns, >, 0u);
    }
}

CASE(a_window_refuses_what_lies_outside) {
    std::vector<uint64_t> mine(4), theirs(6), signals_mine(16), signals_theirs(16);
    const mp::WindowPart parts[2] = {mapped(address(mine.data()), 32, address(signals_mine.data())),
                                     mapped(address(theirs.data()), 48, address(signals_theirs.data()))};
    mp::Window window = window_of(parts);
    window.signals = 2;
    window.timeout_ns = 1'000'000;
    mp::WaitReport report = {};
    window.report = address(&report);
    // What the report says of the last refusal: for the first one again.
    const auto reported = [&](mp::WaitStatus status, uint64_t first, uint64_t count, uint64_t size) {
        const mp::WaitReport said = std::exchange(report, {});
        return said.status == status && said.expected == first && said.waited_ns == count && said.seen == size;
    };
    const uint64_t source[6] = {1, 2, 3, 4, 5, 6};
    const auto one = mp::thread();
    CHECK(mp::put(one, window, 1, 0, source, 48));
    CHECK(!mp::put(one, window, 1, 8, source, 48) && reported(mp::out_of_range, 8, 48, 48));
    CHECK(!mp::put(one, window, 1, ~uint64_t{0}, source, 8) && reported(mp::out_of_range, ~uint64_t{0}, 8, 48));
    CHECK(!mp::put(one, window, 2, 0, source, 8) && reported(mp::no_such_rank, 2, 1, 2));
    CHECK(mp::put_signal(one, window, 1, 40, source, 8, 1, 9));
    CHECK(!mp::put_signal(one, window, 1, 0, source, 8, 2, 9) && reported(mp::no_such_signal, 2, 1, 2));
    CHECK(!mp::put_signal(one, window, 1, 48, source, 8, 1, 9) && reported(mp::out_of_range, 48, 8, 48));
    CHECK(!mp::signal(one, window, 0, 2, 1) && reported(mp::no_such_signal, 2, 1, 2));
    CHECK(!mp::signal(one, window, 7, 0, 1) && reported(mp::no_such_rank, 7, 1, 2));
    CHECK_THAT(theirs[5], ==, 1u);
    CHECK_THAT(theirs[0], ==, 1u);
    CHECK_THAT(signals_theirs[8], ==, 9u);
    uint64_t got[2] = {};
    CHECK(mp::get(one, window, 1, 8, got, 16) && got[0] == 2 && got[1] == 3);
    CHECK(!mp::get(one, window, 0, 24, got, 16) && reported(mp::out_of_range, 24, 16, 32));
    uint64_t before = 0;
    CHECK(mp::fetch_add(window, 1, 16, 10, before) && before == 3 && theirs[2] == 13);
    CHECK(mp::compare_swap(window, 1, 16, 12, 1, before) && before == 13 && theirs[2] == 13);
    CHECK(mp::compare_swap(window, 1, 16, 13, 1, before) && before == 13 && theirs[2] == 1);
    CHECK(mp::swap(window, 1, 16, 77, before) && before == 1 && theirs[2] == 77);
    CHECK(!mp::fetch_add(window, 1, 12, 1, before) && reported(mp::not_atomic, 12, 8, 0));
    CHECK(!mp::swap(window, 1, 48, 1, before) && reported(mp::out_of_range, 48, 8, 48));
    CHECK(!mp::compare_swap(window, 3, 0, 1, 1, before) && reported(mp::no_such_rank, 3, 1, 2));
    signals_mine[8] = 5;
    CHECK(!mp::wait(one, window, 1, 5).failed() && report.status == mp::ok);
    CHECK_THAT(mp::wait(one, window, 1, 6).status, ==, mp::timed_out);
    CHECK_THAT(std::exchange(report, {}).expected, ==, 6u);
    CHECK_THAT(mp::wait(one, window, 2, 0).status, ==, mp::no_such_signal);
    CHECK(reported(mp::no_such_signal, 2, 1, 2));
    CHECK(!mp::wait(one, window, 1, mp::lt, 6).failed() && !mp::wait(one, window, 1, mp::any_bit, 4).failed());
    CHECK_THAT(mp::wait(one, window, 1, mp::ne, 5).status, ==, mp::timed_out);
    CHECK_THAT(std::exchange(report, {}).expected, ==, 5u);
    // Any word of the own share.
    reinterpret_cast<std::int32_t*>(mine.data())[3] = -7;
    CHECK(!mp::wait(one, window, mp::word(12), mp::le, std::int32_t{-7}).failed());
    CHECK_THAT(mp::wait(one, window, mp::word(12), mp::eq, std::int32_t{7}).status, ==, mp::timed_out);
    CHECK_THAT(std::exchange(report, {}).status, ==, static_cast<unsigned>(mp::timed_out));
    CHECK_THAT(mp::wait(one, window, mp::word(12), mp::eq, uint64_t{7}).status, ==, mp::not_atomic);
    CHECK(reported(mp::not_atomic, 12, 8, 0));
    CHECK_THAT(mp::wait(one, window, mp::word(32), mp::eq, uint64_t{7}).status, ==, mp::out_of_range);
    CHECK(reported(mp::out_of_range, 32, 8, 32));
    CHECK(mp::signal(one, window, 1, mp::word(8), 6) && theirs[1] == 6);
    CHECK(mp::signal_add(one, window, 1, mp::word(8), 5) && theirs[1] == 11);
    CHECK(mp::put_signal(one, window, 1, 16, source, 8, mp::word(24), 8) && theirs[2] == 1 && theirs[3] == 8);
    CHECK(mp::put_signal_add(one, window, 1, 16, source + 1, 8, mp::word(24), 8) && theirs[2] == 2 && theirs[3] == 16);
    CHECK(!mp::signal(one, window, 1, mp::word(12), 6) && reported(mp::not_atomic, 12, 8, 0));
    CHECK(!mp::put_signal(one, window, 1, 0, source, 8, mp::word(48), 6) && reported(mp::out_of_range, 48, 8, 48));
    CHECK(!mp::signal_add(one, window, 2, mp::word(0), 6) && reported(mp::no_such_rank, 2, 1, 2));
    CHECK_THAT(theirs[0], ==, 1u);
    // Several signals together.
    signals_mine[0] = 2;
    CHECK(!mp::wait_all(one, window, mp::signals_in(window, 0, 2, 2), mp::ge).failed());
    CHECK_THAT(mp::wait_any(one, window, mp::signals_in(window, 0, 2, 3), mp::ge).index, ==, 1u);
    CHECK(mp::wait_any(one, window, mp::signals_in(window, 0, 2, 9), mp::ge).failed() && report.expected == 9);
    report = {};
    CHECK_THAT(mp::signals_in(window, 1, 2, 1).count, ==, 0u);
}

namespace {

// Every operation on a word of `T` at byte 8 of rank 1, against the plain one.
template <class T>
void change_each(const mp::Window& window, T* word) {
    T before = 0;
    *word = 12;
    CHECK(mp::fetch_add(window, 1, 8, T(-5), before) && before == 12 && *word == 7);
    CHECK(mp::fetch_and(window, 1, 8, T(13), before) && before == 7 && *word == 5);
    CHECK(mp::fetch_or(window, 1, 8, T(8), before) && before == 5 && *word == 13);
    CHECK(mp::fetch_xor(window, 1, 8, T(9), before) && before == 13 && *word == 4);
    CHECK(mp::fetch_min(window, 1, 8, T(-1), before) && before == 4 && *word == (T(-1) < T(4) ? T(-1) : T(4)));
    CHECK(mp::fetch_max(window, 1, 8, T(-1), before) && *word == T(-1));
    CHECK(mp::swap(window, 1, 8, T(6), before) && before == T(-1) && *word == 6);
    CHECK(mp::compare_swap(window, 1, 8, T(5), T(1), before) && before == 6 && *word == 6);
    CHECK(mp::compare_swap(window, 1, 8, T(6), T(1), before) && before == 6 && *word == 1);
    CHECK(mp::atomic_add(window, 1, 8, T(6)) && *word == 7);
    CHECK(mp::atomic_and(window, 1, 8, T(3)) && *word == 3);
    CHECK(mp::atomic_or(window, 1, 8, T(4)) && *word == 7);
    CHECK(mp::atomic_xor(window, 1, 8, T(1)) && *word == 6);
    CHECK(mp::atomic_max(window, 1, 8, T(9)) && *word == 9);
    CHECK(mp::atomic_min(window, 1, 8, T(2)) && *word == 2);
    CHECK(mp::atomic_set(window, 1, 8, T(-3)) && *word == T(-3));
    CHECK(mp::atomic_fetch(window, 1, 8, before) && before == T(-3));
    // The same without an order.
    CHECK(mp::fetch_add(window, 1, 8, T(5), before, mp::relaxed) && before == T(-3) && *word == 2);
    CHECK(mp::compare_swap(window, 1, 8, T(2), T(9), before, mp::relaxed) && before == 2 && *word == 9);
    CHECK(mp::compare_swap(window, 1, 8, T(2), T(1), before, mp::relaxed) && before == 9 && *word == 9);
    CHECK(mp::swap(window, 1, 8, T(4), before, mp::relaxed) && before == 9 && *word == 4);
    CHECK(mp::atomic_xor(window, 1, 8, T(1), mp::relaxed) && *word == 5);
    CHECK(mp::atomic_set(window, 1, 8, T(6), mp::relaxed) && *word == 6);
    CHECK(mp::atomic_fetch(window, 1, 8, before, mp::relaxed) && before == 6);
}

template <class T>
void change_each_float(const mp::Window& window, T* word) {
    T before = 0;
    *word = T(1.5);
    CHECK(mp::fetch_add(window, 1, 8, T(0.25), before) && before == T(1.5) && *word == T(1.75));
    CHECK(mp::atomic_add(window, 1, 8, T(-2)) && *word == T(-0.25));
    CHECK(mp::swap(window, 1, 8, T(3.5), before) && before == T(-0.25) && *word == T(3.5));
    CHECK(mp::atomic_set(window, 1, 8, T(0.125)) && *word == T(0.125));
    CHECK(mp::atomic_fetch(window, 1, 8, before) && before == T(0.125));
}

}  // namespace

CASE(words_of_a_window_are_changed_in_every_way_and_width) {
    alignas(8) unsigned char memory[24] = {};
    const mp::WindowPart parts[2] = {mapped(address(memory), 24), mapped(address(memory), 24)};
    mp::WaitReport report = {};
    mp::Window window = window_of(parts);
    window.timeout_ns = 1'000'000;
    window.report = address(&report);
    change_each(window, reinterpret_cast<std::uint32_t*>(memory + 8));
    change_each(window, reinterpret_cast<std::int32_t*>(memory + 8));
    change_each(window, reinterpret_cast<uint64_t*>(memory + 8));
    change_each(window, reinterpret_cast<std::int64_t*>(memory + 8));
    change_each_float(window, reinterpret_cast<float*>(memory + 8));
    change_each_float(window, reinterpret_cast<double*>(memory + 8));
    std::uint32_t before = 0;
    CHECK(mp::fetch_add(window, 1, 20, 3u, before));
    CHECK(!mp::fetch_add(window, 1, 22, 3u, before) && report.status == mp::out_of_range);
    report = {};
    CHECK(!mp::atomic_or(window, 1, 18, 3u) && report.status == mp::not_atomic && report.waited_ns == 4);
}

namespace {

// At byte 8, where it is one access, and at byte 5, where it is bytes.
template <class T>
void put_and_get(const mp::Window& window, unsigned char* memory, T value) {
    for (const uint64_t at : {8, 5}) {
        std::memset(memory, 0x77, 24);
        T got = {};
        CHECK(mp::put_value(window, 1, at, value) && std::memcmp(memory + at, &value, sizeof value) == 0);
        CHECK(memory[at - 1] == 0x77 && memory[at + sizeof value] == 0x77);
        CHECK(mp::get_value(window, 1, at, got) && got == value);
    }
}

}  // namespace

CASE(values_of_a_window_are_put_and_got_by_a_thread) {
    alignas(8) unsigned char memory[24] = {};
    const mp::WindowPart parts[2] = {mapped(address(memory), 24), mapped(address(memory), 24)};
    mp::WaitReport report = {};
    mp::Window window = window_of(parts);
    window.timeout_ns = 1'000'000;
    window.report = address(&report);
    put_and_get(window, memory, std::uint8_t{200});
    put_and_get(window, memory, std::int16_t{-300});
    put_and_get(window, memory, 1.5f);
    put_and_get(window, memory, -2.25);
    put_and_get(window, memory, ~uint64_t{5});
    double got = 0;
    CHECK(!mp::put_value(window, 1, 17, 1.0) && report.status == mp::out_of_range);
    report = {};
    CHECK(!mp::get_value(window, 2, 0, got) && report.status == mp::no_such_rank);
}

CASE(what_many_threads_add_at_once_is_all_there_and_all_they_got_is_different) {
    constexpr unsigned blocks = 4, threads = 8, times = 40, all = blocks * threads * times;
    struct {
        uint64_t sum;
        std::uint32_t half, flags;
        double real;
        std::int32_t low;
    } words = {0, 0, 0, 0, 0};
    const mp::WindowPart part = mapped(address(&words), sizeof words);
    mp::Window window = window_of({&part, 1});
    std::vector<std::atomic<int>> got(all);
    const auto offset = [&](auto& word) { return address(&word) - address(&words); };
    mp::host::launch(blocks, threads, [&] {
        const unsigned mine = mp::block_rank() * threads + mp::thread_rank();
        uint64_t before = 0;
        for (unsigned time = 0; time < times; ++time) {
            (void)mp::fetch_add(window, 0, offset(words.sum), 1, before);
            got[before] += 1;
            (void)mp::atomic_add(window, 0, offset(words.half), 3u);
            (void)mp::atomic_add(window, 0, offset(words.real), 0.5);
            (void)mp::atomic_min(window, 0, offset(words.low), -std::int32_t(mine * times + time));
        }
        (void)mp::atomic_or(window, 0, offset(words.flags), 1u << mine);
    });
    for (const auto& times_got : got) CHECK_THAT(times_got.load(), ==, 1);
    CHECK_THAT(words.sum, ==, all);
    CHECK_THAT(words.half, ==, 3 * all);
    CHECK_THAT(words.real, ==, 0.5 * all);
    CHECK_THAT(words.low, ==, -std::int32_t(all - 1));
    CHECK_THAT(words.flags, ==, ~0u);
}

CASE(ranks_that_the_handle_has_no_room_for_are_reached_by_the_table) {
    constexpr unsigned ranks = mp::near_ranks + 2;
    std::vector<uint64_t> words(ranks), signals(8 * ranks);
    std::vector<mp::WindowPart> parts;
    for (unsigned rank = 0; rank < ranks; ++rank) parts.push_back(mapped(address(&words[rank]), 8, address(&signals[8 * rank])));
    mp::WaitReport report = {};
    mp::Window window = window_of(parts);
    window.signals = 1;
    window.report = address(&report);
    for (uint64_t rank = 0; rank < ranks; ++rank) {
        const uint64_t source = 100 + rank;
        uint64_t before = 0;
        CHECK(mp::put_signal(mp::thread(), window, rank, 0, &source, 8, 0, 7));
        CHECK(mp::fetch_add(window, rank, 0, uint64_t{1}, before));
        CHECK_THAT(before, ==, source);
        CHECK(mp::part_of(window, rank) == &parts[rank]);
    }
    for (unsigned rank = 0; rank < ranks; ++rank) CHECK(words[rank] == 101 + rank && signals[8 * rank] == 7);
    CHECK_THAT(report.status, ==, 0u);
    for (uint64_t rank : {uint64_t{ranks}, ~uint64_t{0}}) {
        CHECK(!mp::put(mp::thread(), window, rank, 0, &rank, 8) && !mp::put(mp::thread(), window, rank, 0, &rank, 0));
        CHECK_THAT(std::exchange(report, {}).status, ==, uint32_t{mp::no_such_rank});
        CHECK(!mp::signal(mp::thread(), window, rank, 0, 1));
        CHECK_THAT(std::exchange(report, {}).status, ==, uint32_t{mp::no_such_rank});
        CHECK(mp::part_of(window, rank) == nullptr);
    }
    // Neither does the handle's own room lead anywhere, where there are fewer.
    window = window_of({parts.data(), 2});
    window.report = address(&report);
    CHECK(!mp::put(mp::thread(), window, 2, 0, &words[0], 0));
    CHECK_THAT(std::exchange(report, {}).status, ==, uint32_t{mp::no_such_rank});
}

CASE(no_bytes_and_a_signal_go_to_a_rank_without_memory) {
    std::vector<uint64_t> signals(8);
    const mp::WindowPart part = mapped(0, 0, address(signals.data()));
    mp::WaitReport report = {};
    mp::Window window = window_of({&part, 1});
    window.signals = 1;
    window.report = address(&report);
    CHECK(mp::put(mp::thread(), window, 0, 0, nullptr, 0) && mp::get(mp::thread(), window, 0, 0, nullptr, 0));
    CHECK(mp::put_signal(mp::thread(), window, 0, 0, nullptr, 0, 0, 3));
    CHECK_THAT(signals[0], ==, 3u);
    CHECK_THAT(report.status, ==, 0u);
}

namespace {

template <class Group>
void start_prepared(Group group, const mp::Put& put, const mp::SignalWait& wait, const mp::Get& get) {
    CHECK(!mp::put(group, put).failed());
    CHECK(!mp::wait(group, wait).failed());
    CHECK(!mp::get(group, get).failed());
}

}  // namespace

// Puts, gets and waits that the host has prepared, by a thread, a warp, a block and as parts of several blocks.
CASE(prepared_puts_gets_and_waits_count_their_starts) {
    std::vector<uint64_t> here(40), there(40), back(40);
    uint64_t signal = 0;
    mp::MessageState states[3] = {};
    uint64_t full = ~uint64_t{0}, nobody = 0;
    mp::Message put = {};
    put.len = 320;
    put.memory = address(here.data());
    put.target = address(there.data());
    put.mine = address(&full);
    put.theirs = address(&signal);
    put.state = address(&states[0]);
    put.timeout_ns = minute_ns;
    mp::Message get = put;
    get.memory = address(there.data());
    get.target = address(back.data());
    get.theirs = address(&nobody);
    get.state = address(&states[1]);
    mp::Message wait = {};
    wait.mine = address(&signal);
    wait.theirs = address(&nobody);
    wait.state = address(&states[2]);
    wait.timeout_ns = minute_ns;
    const mp::Put prepared_put = {{put}};
    const mp::Get prepared_get = {{get}};
    const mp::SignalWait prepared_wait = {{wait}};
    for (uint64_t round = 1; round <= 15; ++round) {
        here.assign(40, round);
        if (round % 5 == 0) {
            mp::host::launch(1, 3, [&] { start_prepared(mp::block(), prepared_put, prepared_wait, prepared_get); });
        } else if (round % 5 == 1) {
            mp::host::launch(1, 32, [&] { start_prepared(mp::warp(), prepared_put, prepared_wait, prepared_get); });
        } else if (round % 5 == 2) {
            start_prepared(mp::thread(), prepared_put, prepared_wait, prepared_get);
        } else if (round % 5 == 3) {
            mp::host::launch(3, 2, +[](mp::Put put) {
                CHECK(!mp::put(mp::block(), put, {mp::block_rank(), mp::grid_blocks()}).failed());
            }, prepared_put);
            CHECK(!mp::wait(mp::thread(), prepared_wait).failed());
            mp::host::launch(3, 2, +[](mp::Get get) {
                CHECK(!mp::get(mp::block(), get, {mp::block_rank(), mp::grid_blocks()}).failed());
            }, prepared_get);
        } else {
            run_steps({step(put, mp::step_send), step(wait, mp::step_recv), step(get, mp::step_send, mp::meet_all)}, 2, 4, 1);
        }
        CHECK(there == here && back == here);
        CHECK_THAT(signal, ==, round);
        for (const mp::MessageState& state : states) CHECK_THAT(state.epoch, ==, round);
    }
}

CASE(the_last_block_of_several_sees_what_the_others_wrote) {
    static std::vector<uint64_t> written;
    static uint64_t arrived, signal;
    arrived = signal = 0;
    for (uint64_t round = 1; round <= 20; ++round) {
        written.assign(4, 0);
        mp::host::launch(4, 2, +[](uint64_t round) {
            if (mp::thread_rank() == 1) written[mp::block_rank()] = round;
            if (!mp::last_block(&arrived, 4)) return;
            for (const uint64_t word : written) CHECK_THAT(word, ==, round);
            if (mp::thread_rank() == 0) mp::store(&signal, round, mp::release, mp::system);
        }, round);
        CHECK_THAT(signal, ==, round);
    }
}

// A word says what a launch has done, when all blocks have: then all of the message is there.
CASE(the_last_block_of_a_launch_tells_that_all_have_done_their_parts) {
    const uint64_t bytes = 4096;
    Pair pair(bytes, false);
    mp::MessageState telling = {};
    uint64_t told = 0;
    mp::Message tell = {};
    tell.theirs = address(&told);
    tell.state = address(&telling);
    for (uint64_t round = 1; round <= 20; ++round) {
        pair.source.assign(pair.source.size(), static_cast<unsigned char>(round));
        mp::post(mp::thread(), pair.recv());
        std::jthread launch([&] {
            run_steps({step(pair.send().message, mp::step_send), step(tell, mp::step_post, mp::meet_last)}, 4, 2, 1);
        });
        while (mp::load(&told, mp::acquire, mp::system) < round) std::this_thread::yield();
        for (uint64_t i = 0; i < bytes; ++i) CHECK_THAT(pair.buffer[i], ==, round);
        launch.join();
        CHECK_THAT(told, ==, round);
        CHECK_THAT(pair.sender.meeting + pair.sender.arrived, ==, 0u);
        CHECK(!mp::recv(mp::thread(), pair.recv()).failed());
    }
}

// What a CPU sends is fetched from its memory, by one block; it may send again when the receiver says so.
CASE(a_message_of_a_cpu_is_fetched_and_said_to_be) {
    for (const unsigned blocks : {1u, 2u}) {
        Pair pair(100, false);
        std::vector<unsigned char> stage(100);
        mp::Recv recv = pair.recv();
        recv.message.target = address(stage.data());
        for (uint64_t epoch = 1; epoch <= 5; ++epoch) {
            stage.assign(100, static_cast<unsigned char>(epoch));
            mp::store(&pair.arrival, epoch, mp::release, mp::system);
            run_steps({step(recv.message, mp::step_post), step(recv.message, mp::step_recv)}, blocks, 3, 1);
            for (uint64_t i = 0; i < 100; ++i) CHECK_THAT(pair.buffer[i], ==, epoch);
            CHECK_THAT(pair.credit, ==, epoch);
            CHECK_THAT(pair.receiver.epoch, ==, epoch);
            CHECK_THAT(pair.receiver.room, ==, 0u);
        }
    }
}

// The epoch of a packet has 32 bits on the way and 64 in the counters.
CASE(packets_go_on_past_32_bits_of_the_epoch) {
    Pair pair(40, true);
    const uint64_t before = (uint64_t{1} << 32) - 3;
    pair.sender.epoch = pair.receiver.epoch = pair.credit = before;
    pair.sender.room = before;
    for (uint64_t message = 1; message <= 6; ++message) {
        pair.source.assign(pair.source.size(), static_cast<unsigned char>(message));
        CHECK(!mp::send(mp::thread(), pair.send()).failed());
        CHECK(!mp::recv(mp::thread(), pair.recv()).failed());
        for (uint64_t i = 0; i < 40; ++i) CHECK_THAT(pair.buffer[i], ==, message);
    }
    CHECK_THAT(pair.receiver.epoch, ==, before + 6);
    CHECK_THAT(mp::recv(mp::thread(), pair.recv(1'000'000)).status, ==, mp::timed_out);
    CHECK_THAT(pair.recv_report.expected, ==, before + 7);
    CHECK_THAT(pair.recv_report.seen, ==, before + 3);
}

CASE(messages_in_a_row_and_beside_a_computation_arrive) {
    for (const bool packets : {true, false}) {
        Pair one(40, packets), other(40, packets);
        const mp::Message sends[2] = {one.send().message, other.send().message};
        const mp::Message recvs[2] = {one.recv().message, other.recv().message};
        uint64_t stamps[4] = {};
        std::jthread sending([&] {
            mp::host::launch(2, 2, mp_perf_rate, sends, 1u, uint64_t{3}, uint64_t{20}, static_cast<uint64_t*>(nullptr));
        });
        mp::host::launch(2, 3, mp_perf_rate, recvs, 0u, uint64_t{3}, uint64_t{20}, stamps);
        sending.join();
        CHECK_THAT(one.receiver.epoch, ==, 23u);
        CHECK(stamps[0] > 0 && stamps[1] > stamps[0] && stamps[3] > stamps[2]);
        for (const std::uint32_t bound : {0u, 1u}) {
            // The same pair both ways is an exchange of one with itself.
            std::vector<double> words(16, 2.0);
            mp::host::launch(3, 2, mp_perf_fused, other.send(), other.recv(), 2u, bound, uint64_t{5}, words.data(),
                             uint64_t{16});
            // 2 is what the computation leaves as it is.
            for (const double word : words) CHECK_THAT(word, ==, 2.0);
        }
        CHECK_THAT(other.receiver.epoch, ==, 25u);
    }
}
