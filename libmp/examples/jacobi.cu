// The mean of 27 cells, again and again: the device side of jacobi.rs, compiled for a GPU or for the host by
//   nvcc -std=c++17 -arch=native -fatbin -I kernels/include -o jacobi.fatbin libmp/examples/jacobi.cu
//   c++ -std=c++20 -O2 -shared -fPIC -pthread -I kernels/include -o jacobi.so -x c++ libmp/examples/jacobi.cu
#include <mp/mp.cuh>

// A step from `in` to `out`, which point at cell (0, 0, 0) and have a ghost around. A block for each tile.
MP_KERNEL void jacobi(mp::Exchange<26> halo, mp::Tiles tiles, const double* in, double* out, std::int64_t row, std::int64_t plane) {
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

#if !defined(__CUDACC__)
#include <mp/host/launch.hpp>

extern "C" void jacobi_on_host(const mp::Exchange<26>* halo, const mp::Tiles* tiles, const double* in, double* out,
                               std::int64_t row, std::int64_t plane) {
    mp::host::launch(tiles->count(), 2, jacobi, *halo, *tiles, in, out, row, plane);
}
#endif
