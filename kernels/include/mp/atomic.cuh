// Atomic operations on the words of windows, in kernels. One thread changes the word at byte `at` of a rank, a multiple of its size, as
// one step for everybody who uses these, the host's (libmp, Window) or a NIC's. T: std::uint32_t, std::uint64_t, std::int32_t,
// std::int64_t; to add, replace and read also float and double. Integers wrap around.
//
// Order: acquire and release at system scope; of those without `before`, after which the thread goes on at once, release: who
// waits for the word sees what this thread wrote before, through a NIC what it put to that rank. With `relaxed` behind the other
// arguments nothing but the word is ordered, which over NVLink takes half of the time.
//
// Where: between GPUs, and between a GPU and memory of the host, the link must have native atomics (gdsync, Topology). Of words that a
// NIC changes for other ranks, which signals are in a window that a NIC reaches, the owner's kernels have its NIC do it, too: a GPU's
// operations are not one with the NIC's. A rank that maps such words and whose GPU has no native atomics there is refused. Through a
// NIC a GPU's own memory has none (put the window into pinned memory), which is refused as not_atomic, and the NIC has two, of 64
// bits: fetch_add and compare_swap of such words are one request, all others are made of them, by trying, on the eight
// aligned bytes around the word, which must be in the share.
#pragma once

#include "impl/nic_atomic.cuh"
#include "window.cuh"

namespace mp {

namespace impl {

// A type that is not worked out from this argument.
template <class T>
struct Exactly {
    using type = T;
};
template <class T>
using As = typename Exactly<T>::type;

// The compiler has the threads of a warp that do the same to one word do it once, by votes and shuffles. To one that is alone they are only
// time: its value is not taken for that of all.
template <class T, class Kind, class Order>
MP_DEVICE T fetch_by_lane(T* word, Kind kind, T value, Order order) {
    if constexpr (std::is_integral_v<T>) {
        if (is_alone()) return fetch(word, kind, static_cast<T>(value + static_cast<T>(lane() / 32)), system, order);
    }
    return fetch(word, kind, value, system, order);
}

// What a word held, if it was changed: by value, so that the caller's stays in a register.
template <class T>
struct Fetched {
    T before;
    bool done;

    MP_DEVICE bool to(T& word) const {
        if (done) word = before;
        return done;
    }
};
// Atomic operations by a NIC, or refused. `by_nic` is told the share and the address.
template <class T, class ByNic>
MP_DEVICE Fetched<T> word_rest(const Window& window, std::uint64_t rank, std::uint64_t at, const ByNic& by_nic) {
    const WindowPart share = whole_atomic_part(window, rank);
    const Place there = word_in(share, at, sizeof(T));
    Fetched<T> fetched = {T{}, there.is_there};
    if (there.is_there)
        fetched.done = by_nic(share, there.address, fetched.before);
    else
        (void)no_word(window, rank, at, sizeof(T));
    return fetched;
}
template <class T, class Kind>
MP_COLD Fetched<T> fetch_rest(const Window& window, std::uint64_t rank, std::uint64_t at, Kind kind, T value) {
    return word_rest<T>(window, rank, at, [&](const WindowPart& share, std::uint64_t there, T& before) {
        return fetch_by_nic(window, share, there, kind, value, before);
    });
}
template <class T>
MP_COLD Fetched<T> compare_swap_rest(const Window& window, std::uint64_t rank, std::uint64_t at, T expected, T value) {
    return word_rest<T>(window, rank, at, [&](const WindowPart& share, std::uint64_t there, T& before) {
        return compare_swap_by_nic(window, share, there, expected, value, before);
    });
}

// One thread changes the word of `T` at byte `at` of a rank.
template <class T, class Kind, class Order>
MP_DEVICE bool fetch_in(const Window& window, std::uint64_t rank, std::uint64_t at, Kind kind, T value, T& before, Order order) {
    const Place there = atomic_word(window, rank, at, sizeof(T));
    if (MP_RARELY(!there.is_there)) return fetch_rest(window, rank, at, kind, value).to(before);
    if constexpr (std::is_same_v<Kind, replace_t> && !std::is_integral_v<T>) {
        using Bits = BitsOf<T>;
        before = of_bits<T>(fetch(impl::at<Bits>(there.address), kind, to_bits(value), system, order));
    } else {
        before = fetch_by_lane(impl::at<T>(there.address), kind, value, order);
    }
    return true;
}
template <class T, class Kind, class Order>
MP_DEVICE bool change_in(const Window& window, std::uint64_t rank, std::uint64_t at, Kind kind, T value, Order order) {
    const Place there = atomic_word(window, rank, at, sizeof(T));
    if (MP_RARELY(!there.is_there)) return fetch_rest(window, rank, at, kind, value).done;
    if constexpr (std::is_same_v<Kind, replace_t>)
        store(impl::at<BitsOf<T>>(there.address), to_bits(value), order, system);
    else
        change(impl::at<T>(there.address), kind, value, system, order);
    return true;
}

}  // namespace impl

// What the word held goes to `before`.
#define MP_FETCH(name, kind)                                                                                             \
    template <class T, class Order = acq_rel_t>                                                                          \
    [[nodiscard]] MP_DEVICE bool name(const Window& window, std::uint64_t rank, std::uint64_t at, impl::As<T> value,     \
                                      T& before, Order order = {}) {                                                     \
        return impl::fetch_in<T>(window, rank, at, kind, value, before, order);                                          \
    }
MP_FETCH(fetch_add, plus)
MP_FETCH(fetch_and, bit_and)
MP_FETCH(fetch_or, bit_or)
MP_FETCH(fetch_xor, bit_xor)
MP_FETCH(fetch_min, lesser)
MP_FETCH(fetch_max, greater)
MP_FETCH(swap, replace)
#undef MP_FETCH

// The same without what it held.
#define MP_CHANGE(name, kind)                                                                                            \
    template <class T, class Order = release_t>                                                                          \
    [[nodiscard]] MP_DEVICE bool name(const Window& window, std::uint64_t rank, std::uint64_t at, T value,               \
                                      Order order = {}) {                                                                \
        return impl::change_in(window, rank, at, kind, value, order);                                                    \
    }
MP_CHANGE(atomic_add, plus)
MP_CHANGE(atomic_and, bit_and)
MP_CHANGE(atomic_or, bit_or)
MP_CHANGE(atomic_xor, bit_xor)
MP_CHANGE(atomic_min, lesser)
MP_CHANGE(atomic_max, greater)
MP_CHANGE(atomic_set, replace)
#undef MP_CHANGE

// Reads the word: what it holds goes to `held`. Acquire, or relaxed.
template <class T, class Order = acquire_t>
[[nodiscard]] MP_DEVICE bool atomic_fetch(const Window& window, std::uint64_t rank, std::uint64_t at, T& held, Order order = {}) {
    const impl::Place there = impl::mapped_word(window, rank, at, sizeof(T));
    if (MP_RARELY(!there.is_there)) return impl::fetch_rest(window, rank, at, impl::keeps, T{}).to(held);
    held = impl::of_bits<T>(load(impl::at<const impl::BitsOf<T>>(there.address), order, system));
    return true;
}

// Replaces the word, of an integer, by `value` if it is `expected`. What it held goes to `before`.
template <class T, class Order = acq_rel_t>
[[nodiscard]] MP_DEVICE bool compare_swap(const Window& window, std::uint64_t rank, std::uint64_t at, impl::As<T> expected,
                                          impl::As<T> value, T& before, Order order = {}) {
    const impl::Place there = impl::atomic_word(window, rank, at, sizeof(T));
    if (MP_RARELY(!there.is_there)) return impl::compare_swap_rest<T>(window, rank, at, expected, value).to(before);
    before = mp::compare_swap(impl::at<T>(there.address), expected, value, system, order);
    return true;
}

}  // namespace mp
