// Signals: a 64-bit counter that only grows and lives in the memory of whoever waits on it. Either one writer sets it, or any
// number of them add to it. Every wait is `signal >= expected` (unsigned), so nothing is ever reset. Here: raising a signal,
// reading it, and waiting for it with an end. It moves no data and knows no peers; what a wait was for, its caller knows.
#pragma once

#include <type_traits>

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

// How what a word holds is compared with a value: by its type, with or without sign.
#define MP_COMPARISON(name, expression)                                   \
    struct name##_t {                                                     \
        template <class T>                                                \
        MP_HOST_DEVICE bool operator()(T word, T value) const {           \
            return expression;                                            \
        }                                                                 \
    };                                                                    \
    constexpr name##_t name = {};
MP_COMPARISON(eq, word == value)
MP_COMPARISON(ne, word != value)
MP_COMPARISON(gt, word > value)
MP_COMPARISON(ge, word >= value)
MP_COMPARISON(lt, word < value)
MP_COMPARISON(le, word <= value)
// The word has one of these bits at least.
MP_COMPARISON(any_bit, (word & value) != 0)
#undef MP_COMPARISON

// Reads the signal. Acquire at system scope: this thread (only it) then sees what came before that value was released.
MP_DEVICE std::uint64_t read_signal(const std::uint64_t* word) { return load(word, acquire, system); }

namespace impl {

// Cycles between two looks at the clock: 33 to 48 µs at the clocks of sm_80 to sm_100.
constexpr std::uint64_t look_every_cycles = 1u << 16;

// How often one of the threads that wait reads the host's abort word for all of the GPU.
constexpr std::uint64_t abort_every_ns = 1'000'000;
// Whether waits are to end, by the word that a relay stands for. Looks at no memory but the GPU's own, unless it is time.
MP_DEVICE bool relayed(AbortRelay& relay, std::uint64_t now_ns) {
    std::uint64_t seen = load(&relay.seen, relaxed, gpu);
    const std::uint64_t next_ns = load(&relay.next_ns, relaxed, gpu);
    if (seen == 0 && now_ns >= next_ns && compare_swap(&relay.next_ns, next_ns, now_ns + abort_every_ns, gpu, relaxed) == next_ns) {
        seen = load(reinterpret_cast<const std::uint64_t*>(relay.word), relaxed, system);
        // Also 0, since what was not does not become it again.
        store(&relay.seen, seen, relaxed, gpu);
    }
    return seen != 0;
}
MP_DEVICE bool is_aborted(std::uint64_t abort, std::uint64_t now_ns) {
    if constexpr (aborts_by_relay) return relayed(*reinterpret_cast<AbortRelay*>(abort), now_ns);
    return load(reinterpret_cast<const std::uint64_t*>(abort), relaxed, system) != 0;
}

// What one look at the clock, and at what aborts, found.
struct Found {
    std::uint64_t began_ns;
    std::uint64_t waited_ns;
    WaitStatus status;
};
// `before`: what the look before this one found; nothing is all zero.
MP_DEVICE Found look_now(const WaitBounds& bounds, const Found& before) {
    const std::uint64_t now_ns = clock_ns();
    Found found = {now_ns, 0, ok};
    if (before.began_ns != 0) found = {before.began_ns, now_ns - before.began_ns, ok};
    if (found.waited_ns >= bounds.timeout_ns) found.status = timed_out;
    if (bounds.abort != 0 && is_aborted(bounds.abort, now_ns)) found.status = aborted;
    return found;
}

MP_COLD Found look_at(const WaitBounds bounds, const Found before) { return look_now(bounds, before); }

// The rare part of a wait, kept out of its loop: when it began and whether it has to end.
struct Look {
    Found found = {};

    MP_DEVICE WaitStatus at(const WaitBounds& bounds) {
        found = look_at(bounds, found);
        return found.status;
    }
};

// How a wait ended, and what its last look saw.
template <class Seen>
struct Waited {
    Seen seen;
    WaitStatus status;
    std::uint64_t waited_ns;  // 0 after ok
};

// Rounds of polls_between_clocks polls, a poll being some 0.15 µs, in which a thread that waits disturbs others so that it loses no
// time, and those after which it sleeps between two polls, and then longer each time: who computes on the multiprocessor needs its turns,
// and a microsecond is little after the third of a millisecond that it takes to get to the longest.
constexpr int rounds_eager = 4;
constexpr unsigned rounds_awake = 4, least_doze_ns = 100, most_doze_ns = 1600;

// The rounds of a long wait: how long it sleeps between two polls of the next one, and when it looks at the clock.
struct Rounds {
    std::uint64_t looked = clock_cycles();
    unsigned number = 0, doze_ns = 0;

    // One is over: whether it is time for a look.
    MP_DEVICE bool next() {
        if (++number % rounds_awake == 0 && doze_ns < most_doze_ns) doze_ns = doze_ns == 0 ? least_doze_ns : 2 * doze_ns;
        const std::uint64_t now = clock_cycles();
        if (now - looked < look_every_cycles) return false;
        looked = now;
        return true;
    }
};

// The rest of wait_until, after its first polls. What comes late is looked for by `glance`, which disturbs nobody: an acquire
// empties the cache that other blocks of the multiprocessor compute from.
template <class See, class Glance, class Is>
MP_COLD auto wait_long(const See see, const Glance glance, const Is is, const WaitBounds bounds) -> Waited<decltype(see())> {
    Found found = {};
    for (Rounds rounds;;) {
        // A loop: what waits shall not fill the instruction cache of what computes.
        MP_NO_UNROLL
        for (int polled = 0; polled < polls_between_clocks; ++polled) {
            const auto glanced = glance();
            if (is(glanced)) {
                if constexpr (std::is_same_v<See, Glance>) return {glanced, ok, 0};
                const auto seen = see();
                if (is(seen)) return {seen, ok, 0};
            }
            if (rounds.doze_ns == 0)
                pause();
            else
                doze(rounds.doze_ns);
        }
        if (!rounds.next()) continue;
        // Not called: whoever calls this should not have to keep registers for two.
        found = look_now(bounds, found);
        if (found.status == ok) continue;
        // This thread may have been off the processor past its deadline: the last look decides, not the schedule.
        const auto seen = see();
        if (found.status == timed_out && is(seen)) return {seen, ok, 0};
        return {seen, found.status, found.waited_ns};
    }
}

// One thread's wait until `is` is true of what `see` returns. `glance` returns the same, relaxed, for whoever waits long; or is
// `see`. All three should hold values only: what they refer to does not stay in registers.
template <class See, class Glance, class Is>
MP_DEVICE auto wait_until(const See see, const Glance glance, const Is is, const WaitBounds& bounds) -> Waited<decltype(see())> {
    // Where no look disturbs others less than another, the rest of the wait is as good.
    constexpr int rounds = std::is_same_v<See, Glance> ? 1 : rounds_eager;
    MP_NO_UNROLL
    for (int round = 0; round < rounds; ++round) {
        MP_UNROLL
        for (int polled = 0; polled < polls_between_clocks; ++polled) {
            const auto seen = see();
            if (is(seen)) return {seen, ok, 0};
            pause();
        }
    }
    return wait_long(see, glance, is, bounds);
}

// What a poll saw, and whether that is what is waited for.
struct Polled {
    std::uint64_t seen;
    bool there;
};
struct IsThere {
    MP_DEVICE bool operator()(const Polled& polled) const { return polled.there; }
};
constexpr IsThere is_there = {};

// Looks by `poll(seen)`, for as long as that is there.
template <class Poll>
MP_DEVICE auto look_by(const Poll& poll) {
    return [&poll] {
        Polled polled = {0, false};
        polled.there = poll(polled.seen);
        return polled;
    };
}

// One thread's wait for `poll(seen)`, which looks once, says whether what is waited for is there and writes what it saw.
template <class Poll>
MP_DEVICE WaitResult wait_for(const Poll& poll, const WaitBounds& bounds) {
    const auto look = look_by(poll);
    const auto result = wait_until(look, look, is_there, bounds);
    return {result.status, result.seen.seen, result.waited_ns};
}

// Words are read without their sign, half a word with the word that it is in.
template <class T, class Order>
MP_DEVICE T read_word(const T* word, Order order) {
    static_assert(std::is_integral_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8),
                  "a word that is waited for has 16, 32 or 64 bits");
    if constexpr (sizeof(T) == 2) {
        const auto at = reinterpret_cast<std::uintptr_t>(word);
        const std::uint32_t both = load(reinterpret_cast<const std::uint32_t*>(at & ~std::uintptr_t{3}), order, system);
        return static_cast<T>(both >> (at % 4 * 8));
    } else {
        using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
        return static_cast<T>(load(reinterpret_cast<const Bits*>(word), order, system));
    }
}

// One thread's wait until a word compares so. `order` is relaxed only where nothing is read because of it: each acquire empties
// the multiprocessor's cache, and what the group reads next comes from further away.
template <class T, class Compare, class Order = acquire_t>
MP_DEVICE WaitResult wait_word(const T* word, Compare compare, T value, const WaitBounds& bounds, Order order = {}) {
    const auto glance = [word] { return read_word(word, relaxed); };
    const auto is = [compare, value](T seen) { return compare(seen, value); };
    const auto result = [&] {
        if constexpr (std::is_same_v<Order, relaxed_t>)
            return wait_until(glance, glance, is, bounds);
        else
            return wait_until([word, order] { return read_word(word, order); }, glance, is, bounds);
    }();
    return {result.status, static_cast<std::uint64_t>(result.seen), result.waited_ns};
}
template <class Order = acquire_t>
MP_DEVICE WaitResult wait_alone(const std::uint64_t* word, std::uint64_t expected, const WaitBounds& bounds,
                                Order order = {}) {
    return wait_word(word, ge, expected, bounds, order);
}

}  // namespace impl

// Waits until the word, of 16, 32 or 64 bits with or without sign, compares so with `value`, and at most until the bounds end it.
// Acquire at system scope, then a barrier of the group: after ok, every thread of the group sees what came before the value was
// released. After a failure nothing is ordered and the data must not be read. A value that passes between two looks is
// not seen: what is waited for should stay until somebody who has waited changes it.
//
// The leader polls the word and nothing else; once every 2^16 cycles it looks at what aborts (WaitBounds) and at the deadline. So a
// wait outlasts its deadline by up to two such looks, and an abort by a millisecond more,
// and a word that is right in time is taken without regard to the abort word. All threads return the same status. The first
// polls acquire; whoever waits longer polls relaxed, after some more with short sleeps between, and acquires at the end.
template <class Group, class T, class Compare>
MP_DEVICE WaitResult wait(Group group, const T* word, Compare compare, T value, const WaitBounds& bounds) {
    WaitResult result = {ok, static_cast<std::uint64_t>(value), 0};
    if (group.leads()) result = impl::wait_word(word, compare, value, bounds);
    // The vote is the barrier; the words of a failure cross only when there is one.
    if (group.any(result.failed())) result = group.broadcast(result);
    return result;
}

// Waits until the signal is at least `expected`: the same with `ge`.
template <class Group>
MP_DEVICE WaitResult wait(Group group, const std::uint64_t* word, std::uint64_t expected, const WaitBounds& bounds) {
    return wait(group, word, ge, expected, bounds);
}

// Whether the word compares so now. Acquire at system scope, for this thread only.
template <class T, class Compare>
MP_DEVICE bool test(const T* word, Compare compare, T value) {
    return compare(impl::read_word(word, acquire), value);
}

// Words that are waited for together: `count` of them, `stride` bytes apart, each compared with `value`, or with its own in
// `values` if there are any. Those whose `skipped` is not 0, if there is such a list, are passed over.
template <class T>
struct Words {
    const T* first;
    std::uint64_t count;
    T value;
    const T* values = nullptr;
    std::uint64_t stride = sizeof(T);
    const int* skipped = nullptr;

    MP_DEVICE const T* word(std::uint64_t i) const {
        return reinterpret_cast<const T*>(reinterpret_cast<std::uint64_t>(first) + i * stride);
    }
    MP_DEVICE T wanted(std::uint64_t i) const { return values == nullptr ? value : values[i]; }
    MP_DEVICE bool counts(std::uint64_t i) const { return skipped == nullptr || skipped[i] == 0; }
};

// Waits until each of the words has compared so, as wait; the threads of the group share the list. With none it is over at once.
template <class Group, class T, class Compare>
MP_DEVICE WaitResult wait_all(Group group, const Words<T>& words, Compare compare, const WaitBounds& bounds) {
    WaitResult result = {ok, 0, 0};
    for (std::uint64_t i = group.rank(); i < words.count && !result.failed(); i += group.size())
        if (words.counts(i)) result = impl::wait_word(words.word(i), compare, words.wanted(i), bounds);
    if (!group.any(result.failed())) return {ok, words.count, 0};
    // A thread that is through does not know how those that are not ended.
    const bool ended = group.any(result.status == aborted);
    result.status = ended ? aborted : timed_out;
    return result;
}

// How a wait for one of several words ended: which one it was, or the number of words after a failure.
struct [[nodiscard]] AnyResult {
    WaitResult result;
    std::uint64_t index;

    MP_DEVICE bool failed() const { return result.failed(); }
};

// Waits until one of the words compares so, as wait; the first of those that do from word `from` on, around the list. With none
// it is over at once, ok, and the index is the number of words.
template <class Group, class T, class Compare>
MP_DEVICE AnyResult wait_any(Group group, const Words<T>& words, Compare compare, const WaitBounds& bounds,
                             std::uint64_t from = 0) {
    AnyResult any = {{ok, 0, 0}, words.count};
    if (group.leads()) {
        const auto look = [&words, compare, from](auto order) {
            bool none = true;
            for (std::uint64_t step = 0; step < words.count; ++step) {
                const std::uint64_t i = (from + step) % words.count;
                if (!words.counts(i)) continue;
                none = false;
                if (compare(impl::read_word(words.word(i), order), words.wanted(i))) return i;
            }
            return none ? words.count : ~std::uint64_t{0};
        };
        const auto see = [look] { return look(acquire); };
        const auto glance = [look] { return look(relaxed); };
        const auto found = impl::wait_until(see, glance, [](std::uint64_t index) { return index != ~std::uint64_t{0}; }, bounds);
        any = {{found.status, 0, found.waited_ns}, found.status == ok ? found.seen : words.count};
    }
    return group.broadcast(any);
}

}  // namespace mp
