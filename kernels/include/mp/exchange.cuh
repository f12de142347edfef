// The halo exchange inside kernels: a rank and up to 26 neighbours, each of which reads the other's border as its ghosts. Every
// launch that reads or writes ghosts is one phase, and a pair of neighbours counts its phases in its GPUs' memory:
//
//     __global__ void sweep(mp::Exchange<26> halo, mp::Tiles tiles, const double* in, double* out) {
//         const mp::Tile tile = halo.tile(tiles, mp::block_rank());    // this block's cells, and whose border they are
//         if (!halo.enter(mp::block(), tile)) return;                  // the neighbours have finished their last phase; bounded
//         relax(in, out, tile);
//         halo.store(mp::block(), tile);                               // into their ghosts, or what is sent
//         halo.leave(mp::block(), tile);                               // the last block of a border signals, or posts one put
//     }
//
// One signal says both "your ghosts are there" and "you may overwrite mine". So a launch must not write the field whose ghosts it
// reads: two fields in turn do. No block waits for another of its launch that has not started, and none signals after a wait
// for something that the neighbour does later, so launches need no room to run at once, and two GPUs cannot block each other.
// Ranks that share a GPU must not let blocks wait that fill it: there the host enqueues a wait ahead of the launch.
//
// The host (libmp::exchange) says which fields there are, whose ghosts a launch reads and which field it writes. Over a NIC a
// border goes by one put from the field itself or from a send buffer, into the ghosts or into a receive buffer that entering
// blocks copy from; nothing of that is seen in a kernel.
#pragma once

#include "copy.cuh"
#include "impl/exchange.cuh"
#include "layout.cuh"

namespace mp {

// A regular cut of a box of cells into tiles, one a block; numbers along the first axis go first.
struct Tiles {
    int first[3];  // cell
    int end[3];    // behind the last
    int each[3];   // cells of a tile along each axis

    MP_HOST_DEVICE int along(int axis) const { return (end[axis] - first[axis] + each[axis] - 1) / each[axis]; }
    MP_HOST_DEVICE unsigned count() const { return unsigned(along(0) * along(1) * along(2)); }
};

// One of them. What enter, store and leave want of whatever is passed for it, also of a type of the user's own: whether this
// block has to do with the border of neighbour `n`, and how many blocks of the launch have.
struct Tile {
    int first[3];
    int end[3];
    std::uint32_t borders;
    Tiles tiles;
    const ExchangeRoute* routes;

    MP_DEVICE bool touches(int n) const { return borders >> n & 1; }
    MP_DEVICE unsigned blocks(int n) const {
        const impl::Box box = impl::box_of(routes[n]);
        unsigned blocks = 1;
        for (int axis = 0; axis < 3; ++axis) {
            const int low = impl::larger(box.first[axis], tiles.first[axis]) - tiles.first[axis];
            const int high = impl::smaller(box.end[axis], tiles.end[axis]) - 1 - tiles.first[axis];
            blocks *= unsigned(high / tiles.each[axis] - low / tiles.each[axis] + 1);
        }
        return blocks;
    }
};

// A launch's view, for at most N neighbours; made by the host, passed by value as the kernel's parameter.
template <int N = 26>
struct Exchange {
    ExchangeHead head;
    ExchangeLink links[N];

    // The tile of a block. It touches the borders that it has cells of; a launch whose stencil reads further than its borders
    // are deep needs a type of its own instead. Orders nothing.
    MP_DEVICE Tile tile(const Tiles& tiles, unsigned block) const {
        Tile tile = {{}, {}, 0, tiles, impl::at<const ExchangeRoute>(head.sends)};
        for (int axis = 0; axis < 3; ++axis) {
            const int number = int(block) % tiles.along(axis);
            block /= unsigned(tiles.along(axis));
            tile.first[axis] = tiles.first[axis] + number * tiles.each[axis];
            tile.end[axis] = impl::smaller(tiles.end[axis], tile.first[axis] + tiles.each[axis]);
        }
        for (int n = 0; n < int(head.count); ++n)
            if (!impl::common(impl::box_of(tile.routes[n]), tile).is_empty()) tile.borders |= std::uint32_t{1} << n;
        return tile;
    }

    // Waits until the neighbours whose borders the block touches have finished as many phases as this rank, and brings their ghosts
    // to where they are read. Acquire at system scope, then a barrier of the group. False: a wait of this exchange has failed,
    // here or in another block; the reason is in the report of the neighbour, and nothing is to be read or written.
    template <class Group, class Part>
    MP_DEVICE bool enter(Group group, const Part& part) const {
        if (head.waits == 0 || !touches_any(part)) return true;
        bool ok = true;
        if (group.leads()) {
            MP_EXCHANGE_UNROLL
            for (int n = 0; n < N; ++n)
                if (part.touches(n)) ok = impl::reached(head, links[n], n, impl::at<ExchangeState>(links[n].state)->epoch) && ok;
        }
        if (group.any(!ok)) return false;
        if (MP_RARELY(head.unpacks != 0)) {
            for (int n = 0; n < N; ++n)
                if (part.touches(n) &&
                    !impl::unpack(group, head.reads, n, links[n].state, head.failed, links[n].report, head.bounds))
                    return false;
        }
        return true;
    }

    // Copies the cells of the tile that are borders from the field written to where the neighbours have them. After a barrier of
    // the group: what its threads wrote into the field is copied. Ordered by leave.
    template <class Group>
    MP_DEVICE void store(Group group, const Tile& tile) const {
        if (tile.borders == 0) return;
        group.sync();
        for (int n = 0; n < N; ++n)
            if (tile.touches(n) && links[n].twin != 0)
                impl::store_cells(group, tile.routes[n], links[n].twin, impl::common(impl::box_of(tile.routes[n]), tile));
    }

    // Where neighbour `n` has cell (0, 0, 0) of the field written, for kernels that store cells of its border there as they
    // compute them; strides are the neighbour's, or those of the border alone if that is what is sent. Null: there is nothing to
    // be stored.
    template <class T>
    MP_DEVICE T* twin(int n) const {
        return impl::at<T>(links[n].twin);
    }

    // The group's part of the phase is done. The last group that touches a border counts the phase and signals the neighbour, or
    // posts the put: release at system scope of what all of them wrote.
    template <class Group, class Part>
    MP_DEVICE void leave(Group group, const Part& part) const {
        if (!touches_any(part)) return;
        group.sync();
        if (!group.leads()) return;
        MP_EXCHANGE_UNROLL
        for (int n = 0; n < N; ++n)
            if (part.touches(n)) impl::finished(head, links[n], n, part.blocks(n));
    }

    template <class Part>
    MP_DEVICE static bool touches_any(const Part& part) {
        bool any = false;
        MP_EXCHANGE_UNROLL
        for (int n = 0; n < N; ++n) any = any || part.touches(n);
        return any;
    }
};
static_assert(sizeof(Tiles) == 36 && sizeof(Exchange<26>) == 56 + 26 * 40 && sizeof(Exchange<2>) == 56 + 2 * 40);

}  // namespace mp
