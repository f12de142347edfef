// Heat on a plate that is cut into strips of rows: the kernels of stencil_host.rs, stencil_stream.rs and stencil_kernel.rs. A strip has a
// row more above and below, its neighbours' or the cold frame.
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>

#include "plate.cuh"

// ANCHOR: sweep
// One step of rows 1 to `rows`. It knows nothing of communication.
MP_KERNEL void sweep(const double* from, double* to, std::uint64_t rows, std::uint64_t side) {
    for (std::uint64_t row = 1 + mp::block_rank(); row <= rows; row += mp::grid_blocks()) stencil_row(from, to, row, side);
}
// ANCHOR_END: sweep
MP_HOST_KERNEL(sweep)

// ANCHOR: stencil
// The way to a neighbour. Where there is none the edge of the plate is.
struct Halo {
    mp::Send send;  // the own row at the edge
    mp::Recv recv;  // the neighbour's, into the row beyond the edge
    std::uint64_t there;
};

// One step, communication included, with halo 0 above and halo 1 below the strip. One block posts and sends for each halo, then come
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
// ANCHOR_END: stencil
MP_HOST_KERNEL(stencil)
