// Signals: a 64-bit counter that only grows and lives in the memory of whoever waits on it. Either one writer sets it, or any
// number of them add to it. Every wait is `signal >= expected` (unsigned), so nothing is ever reset. Here: raising a signal,
// reading it, and waiting for it with an end. It moves no data and knows no peers; what a wait was for, its caller knows.
#pragma once

#include "group.cuh"
#include "layout.cuh"
#include "platform.cuh"

namespace mp {

// How one call ended.
struct [[nodiscard]] WaitResult {
    WaitStatus status;
    // A value the signal has reached: what the last poll read. In threads other than the leader of a warp or block it
    // is `expected` after a wait that ended ok.
    std::uint64_t seen;
    // After a failure: nanoseconds from the first look at the clock to the end. 0 after ok.
    std::uint64_t waited_ns;

    MP_DEVICE bool failed() const { return status != ok; }
};

// Raises the signal to `value`, which must be larger than what it holds. Release at system scope, after a barrier of the
// group: whoever acquires the value sees everything that any thread of the group wrote before the call. The barrier
// and the release are all it takes: a release by one thread covers what the barrier let it see.
// The leader's fence is that of the release store, so it is paid once for the group.
template <class Group>
MP_DEVICE void signal(Group group, std::uint64_t* word, std::uint64_t value) {
    group.sync();
    if (group.leads()) store(word, value, release, system);
}

// Adds to the signal, as any number of others may at the same time. For the rest as `signal`: whoever acquires a value that this
// has become part of sees what the group wrote before. On host memory only where the link has native atomics.
template <class Group>
MP_DEVICE void signal_add(Group group, std::uint64_t* word, std::uint64_t value) {
    group.sync();
    if (group.leads()) add(word, value, release, system);
}

// Reads the signal. Acquire at system scope: this thread (only it) then sees what came before that value was released.
MP_DEVICE std::uint64_t read_signal(const std::uint64_t* word) { return load(word, acquire, system); }

namespace impl {

// Cycles between two looks at the deadline and the abort word: 33 to 48 µs at the clocks of sm_80 to sm_100. A look may
// cross PCIe, which takes a microsecond or two; polls in between read only the signal.
constexpr std::uint64_t look_every_cycles = 1u << 16;

// What one look at the clock and the abort word found.
struct Found {
    std::uint64_t began_ns;
    std::uint64_t waited_ns;
    WaitStatus status;
};
MP_COLD Found look_at(const WaitBounds bounds, std::uint64_t began_ns) {
    const std::uint64_t now_ns = clock_ns();
    Found found = {began_ns == 0 ? now_ns : began_ns, 0, ok};
    found.waited_ns = now_ns - found.began_ns;
    const auto* abort = reinterpret_cast<const std::uint64_t*>(bounds.abort);
    if (abort != nullptr && load(abort, relaxed, system) != 0)
        found.status = aborted;
    else if (found.waited_ns >= bounds.timeout_ns)
        found.status = timed_out;
    return found;
}

// The rare part of a wait, kept out of its loop: when it began and whether it has to end.
struct Look {
    std::uint64_t began_ns = 0;  // 0: not yet
    std::uint64_t waited_ns = 0;

    MP_DEVICE WaitStatus at(const WaitBounds& bounds) {
        const Found found = look_at(bounds, began_ns);
        began_ns = found.began_ns;
        waited_ns = found.waited_ns;
        return found.status;
    }
};

// One thread's wait for `poll(seen)`, which looks once, says whether what is waited for is there and writes what it saw.
template <class Poll>
MP_DEVICE WaitResult wait_for(const Poll& poll, const WaitBounds& bounds) {
    std::uint64_t seen = 0;
    Look look;
    std::uint64_t looked = 0;  // 0: the clock was not read yet
    for (;;) {
        MP_UNROLL
        for (int polled = 0; polled < polls_between_clocks; ++polled) {
            if (poll(seen)) return {ok, seen, 0};
            pause();
        }
        const std::uint64_t now = clock_cycles();
        if (looked == 0) {
            looked = now;
        } else if (now - looked >= look_every_cycles) {
            looked = now;
            const WaitStatus status = look.at(bounds);
            if (status == aborted) return {aborted, seen, look.waited_ns};
            if (status == timed_out) {
                // This thread may have been off the processor past its deadline: the poll decides, not the schedule.
                const bool there = poll(seen);
                return {there ? ok : timed_out, seen, there ? 0 : look.waited_ns};
            }
        }
    }
}

// One thread's wait for a signal. `order` is relaxed only where nothing is read because of it: each acquire empties the
// multiprocessor's cache, and what the group reads next comes from further away.
template <class Order = acquire_t>
MP_DEVICE WaitResult wait_alone(const std::uint64_t* word, std::uint64_t expected, const WaitBounds& bounds,
                                Order order = {}) {
    const auto poll = [word, expected, order](std::uint64_t& seen) {
        seen = load(word, order, system);
        return seen >= expected;
    };
    return wait_for(poll, bounds);
}

}  // namespace impl

// Waits until the signal is at least `expected`, and at most until the bounds end it. Acquire at system scope, then
// a barrier of the group: after ok, every thread of the group sees what came before the value was released. After a
// failure nothing is ordered and the data must not be read.
//
// The leader polls the signal and nothing else; once every 2^16 cycles it looks at the abort word (any value but 0
// aborts; it may lie in pinned host memory) and at the deadline. So a wait outlasts its bounds by up to two such looks,
// and a signal that is there in time is taken without regard to the abort word. All threads return the same status.
template <class Group>
MP_DEVICE WaitResult wait(Group group, const std::uint64_t* word, std::uint64_t expected, const WaitBounds& bounds) {
    WaitResult result = {ok, expected, 0};
    if (group.leads()) result = impl::wait_alone(word, expected, bounds);
    // The vote is the barrier; the words of a failure cross only when there is one.
    if (group.any(result.failed())) result = group.broadcast(result);
    return result;
}

}  // namespace mp
