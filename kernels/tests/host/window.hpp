// Windows of memory of this process, as the host makes them.
#pragma once

#include <cstdint>
#include <mp/atomic.cuh>
#include <span>

#include "check.hpp"

// A share that is mapped.
inline mp::WindowPart mapped(std::uint64_t memory, std::uint64_t bytes, std::uint64_t signals = 0) {
    return {memory, bytes, signals, 0, 0, bytes};
}

// One behind a NIC.
inline mp::WindowPart behind(const mp::NicPart& nic, std::uint64_t memory, std::uint64_t bytes, std::uint64_t signals) {
    return {memory, bytes, signals, address(&nic), address(&nic), 0};
}

// The handle of a window of these shares.
inline mp::Window window_of(std::span<const mp::WindowPart> parts) {
    mp::Window window = {};
    window.parts = address(parts.data());
    window.ranks = parts.size();
    for (std::size_t rank = 0; rank < parts.size() && rank < mp::near_ranks; ++rank)
        if (const mp::WindowPart& part = parts[rank]; part.nic == 0)
            window.near[rank] = {part.memory, part.bytes, part.signals, part.atomic_bytes, part.atomic_nic == 0 ? part.signals : 0};
    return window;
}
