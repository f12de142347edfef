// Windows of memory of this process, as the host makes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mp/window.cuh>
#include <span>

#include "check.hpp"

// The handle of a window of these shares.
inline mp::Window window_of(std::span<const mp::WindowPart> parts) {
    mp::Window window = {};
    window.parts = address(parts.data());
    window.ranks = parts.size();
    std::ranges::copy(parts.first(std::min(parts.size(), std::size_t{mp::near_ranks})), window.near);
    return window;
}
