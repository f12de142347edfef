// Atomic operations on the memory of a rank behind a NIC, of every kind and width: a NIC has two, fetch_add and compare_swap, of
// 64 bits. Not to be included by itself; atomic.cuh says what they mean.
#pragma once

#include "nic_window.cuh"

namespace mp {
namespace impl {

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

// The bits of a value, and the value of bits.
template <class T>
MP_DEVICE BitsOf<T> to_bits(T value) {
    union {
        T value;
        BitsOf<T> bits;
    } both = {value};
    return both.bits;
}
template <class T>
MP_DEVICE T of_bits(BitsOf<T> bits) {
    union {
        BitsOf<T> bits;
        T value;
    } both = {bits};
    return both.value;
}

// Leaves a word as it is: to read it.
struct keeps_t {
    template <class T>
    MP_DEVICE T operator()(T held, T) const {
        return held;
    }
};
constexpr keeps_t keeps = {};

// A word in the eight aligned bytes around it.
template <class T>
struct Around {
    std::uint64_t word;
    unsigned shift;

    MP_DEVICE explicit Around(std::uint64_t there) : word(there & ~std::uint64_t{7}), shift(unsigned(there & 7) * 8) {}

    MP_DEVICE T in(std::uint64_t bits) const { return of_bits<T>(static_cast<BitsOf<T>>(bits >> shift)); }
    MP_DEVICE std::uint64_t with(std::uint64_t bits, T value) const {
        const std::uint64_t mask = std::uint64_t{static_cast<BitsOf<T>>(~BitsOf<T>{0})} << shift;
        return (bits & ~mask) | std::uint64_t{to_bits(value)} << shift;
    }
};

// Replaces what a word holds by next(what it holds), by trying until nobody came between. False: refused, or a request failed.
template <class T, class Next>
MP_DEVICE bool update_by_nic(const Window& window, const WindowPart& share, std::uint64_t there, const Next& next, T& before) {
    const Around<T> around(there);
    if (around.word < share.memory || around.word + 8 > share.memory + share.bytes) {
        (void)refuse(thread(), window.report, not_atomic, there - share.memory, sizeof(T), share.bytes);
        return false;
    }
    std::uint64_t held = 0;
    if (!atomic_by_nic(window, share, around.word, NicAtomic::fetch_add, 0, 0, held)) return false;
    for (;;) {
        before = around.in(held);
        const T after = next(before);
        if (to_bits(after) == to_bits(before)) return true;
        const std::uint64_t guess = held;
        if (!atomic_by_nic(window, share, around.word, NicAtomic::compare_swap, around.with(guess, after), guess, held)) return false;
        if (held == guess) return true;
    }
}

template <class T, class Kind>
MP_DEVICE bool fetch_by_nic(const Window& window, const WindowPart& share, std::uint64_t there, Kind kind, T value, T& before) {
    if constexpr (std::is_same_v<Kind, plus_t> && std::is_integral_v<T> && sizeof(T) == 8) {
        std::uint64_t held = 0;
        const bool done = atomic_by_nic(window, share, there, NicAtomic::fetch_add, to_bits(value), 0, held);
        if (done) before = of_bits<T>(held);
        return done;
    } else {
        return update_by_nic<T>(window, share, there, [&](T held) { return kind(held, value); }, before);
    }
}

template <class T>
MP_DEVICE bool compare_swap_by_nic(const Window& window, const WindowPart& share, std::uint64_t there, T expected, T value, T& before) {
    if constexpr (sizeof(T) == 8) {
        std::uint64_t held = 0;
        const auto kind = NicAtomic::compare_swap;
        const bool done = atomic_by_nic(window, share, there, kind, to_bits(value), to_bits(expected), held);
        if (done) before = of_bits<T>(held);
        return done;
    } else {
        return update_by_nic<T>(window, share, there, [&](T held) { return held == expected ? value : held; }, before);
    }
}

}  // namespace impl
}  // namespace mp
