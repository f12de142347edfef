// Heat on a plate, a step a launch: the device side of stencil_kernel.rs, compiled by
//   nvcc -std=c++17 -arch=native -fmad=false -fatbin -I kernels/include -o stencil_kernel.fatbin libmp/examples/stencil_kernel.cu
// (no fused multiply-adds: the bits are those of the CPU).
#include <mp/mp.cuh>

// The way to a neighbour. Where there is none the edge of the plate is.
struct Halo {
    mp::Send send;  // the own row at the edge
    mp::Recv recv;  // the neighbour's, into the row beyond the edge
    std::uint64_t there;
};

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

// One step of rows 1 to `rows` of a strip, halo 0 above and halo 1 below it. One block posts and sends for each halo, then come
// those that compute what needs no neighbour, and one for each halo waits for its row and computes the one beside it.
MP_KERNEL void stencil(Halo above, Halo below, const double* from, double* to, std::uint64_t rows, std::uint64_t side) {
    const mp::Roles roles = {2, mp::grid_blocks() - 4, 2};
    const mp::Duty duty = roles.of(mp::block_rank());
    const Halo& halo = duty.part.index == 0 ? above : below;
    switch (duty.role) {
    case mp::Role::send:
        if (halo.there == 0) return;
        mp::post(mp::block(), halo.recv);
        (void)mp::send(mp::block(), halo.send);  // the host hears of a failure
        break;
    case mp::Role::compute:
        for (std::uint64_t row = 2 + duty.part.index; row < rows; row += duty.part.count)
            stencil_row(from, to, row, side);
        break;
    case mp::Role::receive:
        // A strip of one row has two neighbours and needs both rows, which the first takes.
        if (rows == 1 && duty.part.index == 1) return;
        if (halo.there != 0 && mp::recv(mp::block(), halo.recv).failed()) return;
        if (rows == 1 && below.there != 0 && mp::recv(mp::block(), below.recv).failed()) return;
        stencil_row(from, to, duty.part.index == 0 ? 1 : rows, side);
        break;
    }
}
