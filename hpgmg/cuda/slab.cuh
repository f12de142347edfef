// A rank's slab of a level, and its turns with the ranks next to it. Indices are those of the whole level: a rank's
// pointers are shifted so that its planes lie where the index says.
//
// Every launch that reads or writes ghost planes is one phase of the pair of ranks; a pair counts its phases. Blocks at
// a border wait until the neighbour has finished its part of the phase before, read ghosts, write the neighbour's, and
// the last of them signals. The same signal says "what you will read is there" and "what I read you may overwrite":
// vectors alternate from phase to phase, and a vector's ghosts are read by nobody but these blocks. No send is behind
// a wait for something that the peer does after it, so two GPUs cannot block each other. Ranks that share a GPU must not
// let blocks wait that fill it: then a launch of `hpgmg_await` waits before, and `wait` is 0.
#pragma once
#include <mp/mp.cuh>

#include "level.cuh"

namespace hpgmg {

// What this rank knows of its phases with one peer; in its own memory, touched by its own kernels only.
struct Pair {
    unsigned long long epoch;  // phases finished
    unsigned arrived;          // blocks that have finished the one under way
    unsigned unused;
};

struct Link {
    Pair* pair;                    // null: there is no such peer
    std::uint64_t* theirs;         // this rank's signal in the peer's memory
    const std::uint64_t* mine;     // the peer's in this rank's
    mp::WaitReport* report;        // where a wait that failed is told
};

// Of all waits of a rank.
struct Bounds {
    mp::WaitBounds wait;
    std::uint32_t* failed;  // not 0 once a wait has failed: nothing is waited for or signalled any more
};

struct Slab {
    Link links[2];    // with the ranks below and above along k
    double* peers[2];  // the vector written, in their memory: its ghosts, or a receive buffer so shifted
    Bounds bounds;
    int first, end;  // this rank's planes; of interpolation those of the coarse level
    int wait;        // blocks at the borders wait themselves
    int held;        // planes beyond the slab in memory: 2, or all of a level that every rank has
};

// One thread's wait until the peer has finished `epoch` phases. Acquire at system scope.
__device__ __forceinline__ bool reached(const Link& link, const Bounds& bounds, unsigned long long epoch) {
    if (mp::load(bounds.failed, mp::relaxed, mp::gpu) != 0) return false;
    const mp::WaitResult result = mp::wait(mp::thread(), link.mine, epoch, bounds.wait);
    if (!result.failed()) return true;
    mp::store(bounds.failed, std::uint32_t{1}, mp::relaxed, mp::gpu);
    mp::report(link.report, epoch, result);
    return false;
}

// One thread's, after a barrier of its block: the block has finished its part of the phase. The last of `blocks` counts the
// phase, signals the peer (release at system scope, of everything the blocks wrote) and gets true.
__device__ __forceinline__ bool finished(const Link& link, const Bounds& bounds, unsigned blocks) {
    __threadfence();
    if (atomicAdd(&link.pair->arrived, 1u) != blocks - 1) return false;
    __threadfence();
    link.pair->arrived = 0;
    const unsigned long long epoch = link.pair->epoch + 1;
    link.pair->epoch = epoch;
    if (mp::load(bounds.failed, mp::relaxed, mp::gpu) != 0) return false;
    mp::store(link.theirs, std::uint64_t{epoch}, mp::release, mp::system);
    return true;
}

// The planes [k, end) of a block, of which each marches through `each`; in a band blocks at the two borders come first.
struct March {
    int t, j, k, end;
    int blocks[2];    // that touch each border
    bool touches[2];  // of these this one

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
        touches[0] = slab.links[0].pair && tile < low;
        touches[1] = slab.links[1].pair && tile >= first_high;
        blocks[0] = across * low;
        blocks[1] = across * (tiles - first_high);
    }

    // All threads of the block: waits for the neighbours of the borders that it touches. False: not to be waited for.
    __device__ __forceinline__ bool enter(const Slab& slab) const {
        if (!slab.wait || !(touches[0] || touches[1])) return true;
        bool ok = true;
        if (mp::thread_rank() == 0) {
            for (int side = 0; side < 2; side++) {
                if (touches[side]) ok = reached(slab.links[side], slab.bounds, slab.links[side].pair->epoch) && ok;
            }
        }
        return __syncthreads_and(ok);
    }

    // All threads of the block, after its work.
    __device__ __forceinline__ void leave(const Slab& slab) const {
        if (!(touches[0] || touches[1])) return;
        __syncthreads();
        if (mp::thread_rank() != 0) return;
        for (int side = 0; side < 2; side++) {
            if (touches[side]) finished(slab.links[side], slab.bounds, blocks[side]);
        }
    }

    // Whether plane `k` of a vector whose planes are [first, end) here is a ghost of the neighbour on that side.
    __device__ __forceinline__ static bool sends(const Slab& slab, int side, int k, int first, int end) {
        return slab.peers[side] && (side == 0 ? k < first + GHOSTS : k >= end - GHOSTS);
    }
};

}  // namespace hpgmg
