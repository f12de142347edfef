// One row of a plate, a step later: what the kernels of stencil.cu and of device_ranks.cu compute.
#pragma once

#include <mp/group.cuh>

// One row of `to` from three of `from`; cells beyond the left and right edge are cold.
MP_DEVICE void stencil_row(const double* from, double* to, std::uint64_t row, std::uint64_t side) {
    for (std::uint64_t column = mp::thread_rank(); column < side; column += mp::block_threads()) {
        const std::uint64_t at = row * side + column;
        const double left = column == 0 ? 0.0 : from[at - 1];
        const double right = column == side - 1 ? 0.0 : from[at + 1];
        const double around = left + right + from[at - side] + from[at + side];
        to[at] = from[at] + 0.2 * (around - 4.0 * from[at]);
    }
}
