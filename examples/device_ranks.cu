// Heat on a plate, computed by blocks that are ranks: the device side of device_ranks.rs.
#include <mp/host/launch.hpp>
#include <mp/ranks.cuh>

#include "plate.cuh"

// ANCHOR: kernel
// Each rank has `lines` rows of the plate, twice, with a row more above and below. All steps in one launch: a rank computes, puts its edge rows
// into its neighbours' windows, and waits until as many have come.
MP_KERNEL void plate_of_ranks(mp::Ranks ranks, double* plates, std::uint64_t lines, std::uint64_t side, std::uint64_t steps) {
    const mp::Rank self = mp::join(ranks);
    const std::uint32_t size = mp::size_of(self, mp::Team::world);
    const std::uint64_t row = side * sizeof(double), plate = (lines + 2) * row;
    double* mine = plates + self.local * 2 * (lines + 2) * side;
    std::uint32_t window = 0;
    if (mp::win_create(self, mp::Team::world, mine, 2 * plate, window).failed()) return;
    const std::uint32_t neighbours = (self.rank > 0) + (self.rank + 1 < size);
    for (std::uint64_t step = 0; step < steps; ++step) {
        const std::uint64_t other = 1 - step % 2;
        const double* from = mine + step % 2 * (lines + 2) * side;
        double* to = mine + other * (lines + 2) * side;
        for (std::uint64_t line = 1; line <= lines; ++line) stencil_row(from, to, line, side);
        const std::uint32_t tag = std::uint32_t(other);  // a neighbour may be one step ahead
        if (self.rank > 0 &&
            mp::put_notify(self, window, self.rank - 1, other * plate + (lines + 1) * row, to + side, row, tag).failed())
            return;
        if (self.rank + 1 < size &&
            mp::put_notify(self, window, self.rank + 1, other * plate, to + lines * side, row, tag).failed())
            return;
        if (mp::wait_notifications(self, {window, mp::any_source, tag}, neighbours).failed()) return;
    }
    mp::finish(self);
}
// ANCHOR_END: kernel
MP_HOST_KERNEL(plate_of_ranks)
