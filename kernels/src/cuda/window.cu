// Atomic operations, and additions to signals, as stream operations.
#pragma once

#include <mp/mp.cuh>

namespace mp {

template <class T>
MP_DEVICE bool atomic_by(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint32_t kind, std::uint64_t value,
                         std::uint64_t expected, std::uint64_t& before) {
    const auto number = [](std::uint64_t bits) { return impl::of_bits<T>(static_cast<impl::BitsOf<T>>(bits)); };
    T held = 0;
    bool done = true;
    if (kind == atomic_kind_fetch) {
        done = atomic_fetch(window, rank, at, held);
    } else if (kind == atomic_kind_swap) {
        done = swap(window, rank, at, number(value), held);
    } else if (kind == atomic_kind_add) {
        done = fetch_add(window, rank, at, number(value), held);
    } else if constexpr (std::is_integral_v<T>) {
        switch (kind) {
        case atomic_kind_and: done = fetch_and(window, rank, at, number(value), held); break;
        case atomic_kind_or: done = fetch_or(window, rank, at, number(value), held); break;
        case atomic_kind_xor: done = fetch_xor(window, rank, at, number(value), held); break;
        case atomic_kind_min: done = fetch_min(window, rank, at, number(value), held); break;
        case atomic_kind_max: done = fetch_max(window, rank, at, number(value), held); break;
        default: done = compare_swap(window, rank, at, number(expected), number(value), held);
        }
    }
    before = impl::to_bits(held);
    return done;
}

}  // namespace mp

// One thread adds to a signal of a rank, which a NIC changes. What is refused, and what fails, is in the window's report.
MP_KERNEL void mp_window_signal_add(const __grid_constant__ mp::Window window, std::uint64_t rank, std::uint64_t signal, std::uint64_t value) {
    mp::begin_in_turn();
    if (mp::block_rank() == 0 && mp::thread_rank() == 0) (void)mp::signal_add(mp::thread(), window, rank, signal, value);
}

// One thread changes the word of an mp::Element at byte `at` of a rank by an mp::AtomicKind. What it held goes to `into`, with as many
// bytes, unless that is null. What is refused, and what fails, is in the window's report.
MP_KERNEL void mp_atomic(const __grid_constant__ mp::Window window, std::uint64_t rank, std::uint64_t at, std::uint32_t kind, std::uint32_t element,
                         std::uint64_t value, std::uint64_t expected, void* into) {
    mp::begin_in_turn();
    if (mp::block_rank() != 0 || mp::thread_rank() != 0) return;
    std::uint64_t before = 0;
    bool done = false;
    switch (element) {
    case mp::element_f64: done = mp::atomic_by<double>(window, rank, at, kind, value, expected, before); break;
    case mp::element_f32: done = mp::atomic_by<float>(window, rank, at, kind, value, expected, before); break;
    case mp::element_u64: done = mp::atomic_by<std::uint64_t>(window, rank, at, kind, value, expected, before); break;
    case mp::element_i64: done = mp::atomic_by<std::int64_t>(window, rank, at, kind, value, expected, before); break;
    case mp::element_u32: done = mp::atomic_by<std::uint32_t>(window, rank, at, kind, value, expected, before); break;
    default: done = mp::atomic_by<std::int32_t>(window, rank, at, kind, value, expected, before); break;
    }
    if (!done || into == nullptr) return;
    if (element == mp::element_f32 || element == mp::element_u32 || element == mp::element_i32)
        mp::store(static_cast<std::uint32_t*>(into), static_cast<std::uint32_t>(before), mp::relaxed, mp::system);
    else
        mp::store(static_cast<std::uint64_t*>(into), before, mp::relaxed, mp::system);
}
