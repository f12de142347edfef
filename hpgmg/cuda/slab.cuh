// A rank's slab of a level, and its turns with the ranks next to it: a halo exchange (mp/exchange.cuh) of which every launch that
// reads or writes ghost planes is one phase. Indices are those of the whole level: a rank's pointers, and the twins of the
// exchange, are shifted so that its planes lie where the index says. Neighbour 0 is the rank below along k, 1 that above.
#pragma once
#include "level.cuh"

namespace hpgmg {

// The planes [k, end) of a block, of which each marches through `each`; in a band blocks at the two borders come first.
struct March {
    int t, j, k, end;
    int blocks_at[2];     // that touch each border
    bool is_at[2];        // of these this one

    // `tiles` blocks along k in each band of rows.
    __device__ __forceinline__ March(const Slab& slab, int each, int tiles)
        : t(blockIdx.x * 32 + threadIdx.x),
          j((blockIdx.z / tiles * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y) {
        const int planes = slab.end - slab.first, turn = blockIdx.z % tiles;
        const int tile = turn % 2 ? tiles - 1 - turn / 2 : turn / 2;
        const int across = gridDim.x * gridDim.y * (gridDim.z / tiles);
        // Below: tiles that begin within two planes of the border; above: that end within two.
        const int low = min(tiles, (GHOSTS + each - 1) / each), first_high = max(planes - GHOSTS, 0) / each;
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
    __device__ __forceinline__ bool enter(const Slab& slab) const { return slab.halo.enter(mp::block(), *this); }
    __device__ __forceinline__ void leave(const Slab& slab) const { slab.halo.leave(mp::block(), *this); }

    // Whether plane `k` of a vector whose planes are [first, end) here is a ghost of the neighbour on that side.
    __device__ __forceinline__ static bool sends(const Slab& slab, int side, int k, int first, int end) {
        return slab.halo.links[side].twin && (side == 0 ? k < first + GHOSTS : k >= end - GHOSTS);
    }
};

}  // namespace hpgmg
