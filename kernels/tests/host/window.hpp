// Windows of memory of this process, as the host makes them.
#pragma once

#include <cstdint>
#include <mp/window.cuh>
#include <span>

#include "check.hpp"

// The handle of a window of these shares.
inline mp::Window window_of(std::span<const mp::WindowPart> parts) {
    mp::Window window = {};
    window.parts = address(parts.data());
    window.ranks = parts.size();
    for (std::size_t rank = 0; rank < parts.size() && rank < mp::near_ranks; ++rank)
        if (parts[rank].nic == 0) window.near[rank] = {parts[rank].memory, parts[rank].bytes, parts[rank].signals};
    return window;
}
