// The mean of 27 cells, again and again: the device side of jacobi3d.rs.
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>

// A step from `in` to `out`, which point at cell (0, 0, 0) and have a ghost around. A block for each tile.
MP_KERNEL void jacobi3d(mp::Exchange<26> halo, mp::Tiles tiles, const double* in, double* out, std::int64_t row, std::int64_t plane) {
    const mp::Tile tile = halo.tile(tiles, mp::block_rank());
    if (!halo.enter(mp::block(), tile)) return;
    const int x = tile.end[0] - tile.first[0], y = tile.end[1] - tile.first[1], z = tile.end[2] - tile.first[2];
    for (int i = int(mp::thread_rank()); i < x * y * z; i += int(mp::block_threads())) {
        const std::int64_t at = tile.first[0] + i % x + (tile.first[1] + i / x % y) * row + (tile.first[2] + i / (x * y)) * plane;
        double sum = 0.0;
        for (int c = -1; c <= 1; ++c)
            for (int b = -1; b <= 1; ++b)
                for (int a = -1; a <= 1; ++a) sum += in[at + a + b * row + c * plane];
        out[at] = sum / 27.0;
    }
    halo.store(mp::block(), tile);
    halo.leave(mp::block(), tile);
}
MP_HOST_KERNEL(jacobi3d)
