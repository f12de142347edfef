// Heat on a plate that is cut along both axes, a step a launch, with the exchange of borders inside: the device side of jacobi2d.rs.
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>

// ANCHOR: kernel
// A step from `in` to `out`, which point at cell (0, 0) and have a ghost around. A block for each tile.
MP_KERNEL void jacobi2d(mp::Exchange<4> halo, mp::Tiles tiles, const double* in, double* out, std::int64_t row) {
    const mp::Tile tile = halo.tile(tiles, mp::block_rank());   // this block's cells, and whose borders they are
    if (!halo.enter(mp::block(), tile)) return;                 // the neighbours have finished their last step; bounded
    const int width = tile.end[0] - tile.first[0], height = tile.end[1] - tile.first[1];
    for (int i = int(mp::thread_rank()); i < width * height; i += int(mp::block_threads())) {
        const std::int64_t at = tile.first[0] + i % width + (tile.first[1] + i / width) * row;
        const double around = in[at - 1] + in[at + 1] + in[at - row] + in[at + row];
        out[at] = in[at] + 0.2 * (around - 4.0 * in[at]);
    }
    halo.store(mp::block(), tile);                              // into the neighbours' ghosts, or what is sent to them
    halo.leave(mp::block(), tile);                              // the last block of a border tells the neighbour
}
// ANCHOR_END: kernel
MP_HOST_KERNEL(jacobi2d)
