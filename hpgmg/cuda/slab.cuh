// A rank's part of a level, a slab or a box, and its turns with the ranks around it: a halo exchange (mp/exchange.cuh) of which every
// launch that reads or writes ghosts is one phase. Indices are those of the whole level: a rank's pointers are shifted so that
// its cells lie where the index says. March is what a block does of a part: the kernels are written once for both.
#pragma once
#include "level.cuh"

namespace hpgmg {

// Blocks along k go from both ends inwards: those that others wait for come first in their band of rows.
__device__ __forceinline__ int tile_of(int tiles) {
    const int turn = blockIdx.z % tiles;
    return turn % 2 ? tiles - 1 - turn / 2 : turn / 2;
}
__device__ __forceinline__ int band_of(int tiles) { return blockIdx.z / tiles * gridDim.y + blockIdx.y; }

// The planes [k, end) of a block, of which each marches through `each`; `tiles` blocks along k in each band of rows.
template <class Part>
struct March;

// Of whole planes; neighbour 0 is the rank below along k, 1 that above. Twins are shifted as pointers are, and a row goes there as it
// is computed.
template <>
struct March<Slab> {
    const Slab& slab;
    int t, j, k, end;
    int blocks_at[2];     // that touch each border
    bool is_at[2];        // of these this one

    __device__ __forceinline__ March(const Slab& slab, int each, int tiles, int scale = 1)
        : slab(slab), t(blockIdx.x * BLOCK_PAIRS + threadIdx.x), j(band_of(tiles) * blockDim.y + threadIdx.y) {
        const int planes = slab.end - slab.first, tile = tile_of(tiles);
        const int across = gridDim.x * gridDim.y * (gridDim.z / tiles);
        // Below: tiles that begin within these planes of the border; above: that end within them. What is interpolated lies in fewer.
        const int deep = scale == 1 ? slab.depth : GHOSTS;
        const int low = min(tiles, (deep + each - 1) / each), first_high = max(planes - deep, 0) / each;
        k = slab.first + tile * each;
        end = min(slab.end, k + each);
        is_at[0] = slab.halo.links[0].state && tile < low;
        is_at[1] = slab.halo.links[1].state && tile >= first_high;
        blocks_at[0] = across * low;
        blocks_at[1] = across * (tiles - first_high);
    }

    // What the exchange asks.
    __device__ __forceinline__ bool touches(int side) const { return is_at[side]; }
    __device__ __forceinline__ unsigned blocks(int side) const { return blocks_at[side]; }

    // All threads of the block, before its work and after it.
    __device__ __forceinline__ bool enter() const { return slab.halo.enter(mp::block(), *this); }
    __device__ __forceinline__ void leave() const { slab.halo.leave(mp::block(), *this); }

    // Where interpolation begins, and whether cell (i, j, k) of a level of n cells a side is this block's.
    __device__ __forceinline__ int row() const { return blockIdx.y * TILE; }
    __device__ __forceinline__ int pair() const { return blockIdx.x * BLOCK_PAIRS; }
    __device__ __forceinline__ bool has(int i, int j, int k, int n) const {
        return i < n && j < n && j >= row() && k >= this->k && k < end;
    }
    __device__ __forceinline__ bool has_row(int n) const { return 2 * t < n && j < n; }
    // The cells that are here.
    __device__ __forceinline__ int low(int axis) const { return axis == 2 ? slab.first - slab.held : 0; }
    __device__ __forceinline__ int high(int axis) const { return axis == 2 ? slab.end + slab.held : 1 << 30; }
    // Around the domain all rows are here, and ghost planes.
    static constexpr bool ALL_ROWS = true;

    // A row of a vector whose planes are `scale` times the slab's: here and in the neighbours whose ghost it is.
    template <bool WRAPPED, class L>
    __device__ __forceinline__ void store(const L& level, double* out, int t, int j, int k, double even, double odd, int scale) const {
        store_row<WRAPPED>(level, out, t, j, k, even, odd);
        for (int side = 0; side < 2; side++) {
            const bool border = side == 0 ? k < scale * slab.first + slab.depth : k >= scale * slab.end - slab.depth;
            if (is_at[side] && border && slab.halo.links[side].twin)
                store_row<WRAPPED>(level, slab.halo.template twin<double>(side), t, j, k, even, odd);
        }
    }
};

// Of a box; the exchange counts pairs of cells of one colour along i, two for each row. What neighbours have as ghosts the block copies
// to them when it has computed all of its cells.
template <>
struct March<Brick> {
    const Brick& brick;
    int t, j, k, end;
    // Rows and planes of a block, which tile along k this is, and how many cells of the vector written are one of the brick.
    int rows_each, planes_each, tile, scale;

    __device__ __forceinline__ March(const Brick& brick, int each, int tiles, int scale = 1)
        : brick(brick), rows_each(blockDim.y), planes_each(each), tile(tile_of(tiles)), scale(scale) {
        t = pair() + threadIdx.x;
        j = brick.first[1] + band_of(tiles) * rows_each + threadIdx.y;
        k = brick.first[2] + tile * each;
        end = min(brick.end[2], k + each);
    }

    __device__ __forceinline__ bool enter() const { return !is_near() || brick.halo.enter(mp::block(), here()); }
    __device__ __forceinline__ void leave() const {
        if (!is_near()) return;
        const mp::Tile part = here();
        brick.halo.store(mp::block(), part);
        brick.halo.leave(mp::block(), part);
    }

    __device__ __forceinline__ int row() const { return j - threadIdx.y; }
    __device__ __forceinline__ int pair() const { return brick.first[0] * scale / 2 + blockIdx.x * BLOCK_PAIRS; }
    __device__ __forceinline__ bool has(int i, int j, int k, int) const {
        return i < brick.end[0] && j < brick.end[1] && j >= row() && k >= this->k && k < end;
    }
    __device__ __forceinline__ bool has_row(int) const { return 2 * t < brick.end[0] && j < brick.end[1]; }
    __device__ __forceinline__ int low(int axis) const { return brick.first[axis] - brick.held[axis]; }
    __device__ __forceinline__ int high(int axis) const { return brick.end[axis] + brick.held[axis]; }
    static constexpr bool ALL_ROWS = false;

    template <bool WRAPPED, class L>
    __device__ __forceinline__ void store(const L& level, double* out, int t, int j, int k, double even, double odd, int scale) const {
        // Past the last pair of a level nothing is stored.
        const bool mine = 2 * t < scale * brick.end[0] && j < scale * brick.end[1];
        store_row<WRAPPED>(level, out, mine ? t : level.n, j, k, even, odd);
    }

private:
    // Whether the block may have border cells.
    __device__ __forceinline__ bool is_near() const {
        if (brick.halo.head.count == 0) return false;
        const int x = blockIdx.x, y = row() - brick.first[1], z = k - brick.first[2];
        return x == 0 || x + 1 == gridDim.x || y < GHOSTS || y + rows_each > brick.end[1] - brick.first[1] - GHOSTS ||
               z < GHOSTS || z + planes_each > brick.end[2] - brick.first[2] - GHOSTS;
    }
    // Pairs of cells along i, two rows of a colour each for a row, and planes.
    __device__ __forceinline__ mp::Tile here() const {
        mp::Tiles tiles = {{}, {}, {BLOCK_PAIRS, 2 * scale * rows_each, scale * planes_each}};
        for (int axis = 0; axis < 3; ++axis) {
            const int cells = axis == 1 ? 2 * scale : scale, pairs = axis == 0 ? 2 : 1;
            tiles.first[axis] = brick.first[axis] * cells / pairs;
            tiles.end[axis] = brick.end[axis] * cells / pairs;
        }
        const unsigned row_of_tiles = (row() - brick.first[1]) / rows_each + tiles.along(1) * tile;
        mp::Tile part = brick.halo.tile(tiles, blockIdx.x + tiles.along(0) * row_of_tiles);
        // The first and the last pair of a row have ghosts beyond the domain, which go with them.
        if (blockIdx.x == 0) part.first[0] -= 1;
        if (blockIdx.x + 1 == gridDim.x) part.end[0] += 1;
        return part;
    }
};

}  // namespace hpgmg
