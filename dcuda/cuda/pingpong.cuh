// Messages back and forth between pairs of ranks, all pairs at once.
#pragma once

#include "common.cuh"

namespace programs {

// A rank and its partner.
class Pair {
public:
    MP_DEVICE Pair(const Rank& self, const Pairs& all) : self_(self), all_(all) {
        const uint32_t ranks = mp::size_of(self, all.across != 0 ? mp::Team::world : mp::Team::device);
        const uint32_t mine = all.across != 0 ? self.rank : self.local, half = ranks / 2;
        first_ = mine < half;
        partner_ = self.rank - mine + (first_ ? mine + half : mine - half);
        out_ = at<uint64_t>(all.memory + 16 + self.local * 2 * all.room);
        in_ = at<uint64_t>(all.memory + 16 + self.local * 2 * all.room + all.room);
    }

    MP_DEVICE bool send(uint64_t turn) const {
        if (all_.check != 0) {
            // The one before has been put by all threads.
            mp::block().sync();
            each(all_.bytes / 8, [&](uint64_t i) { out_[i] = word(self_.rank, turn, i); });
        }
        return !mp::put_notify(self_, 0, partner_, all_.room, out_, all_.bytes, 1).failed();
    }

    MP_DEVICE bool receive(uint64_t turn) const {
        if (mp::wait_notifications(self_, {0, partner_, 1}, 1).failed()) return false;
        if (all_.check != 0)
            each(all_.bytes / 8, [&](uint64_t i) {
                if (in_[i] != word(partner_, turn, i)) mp::add(at<uint64_t>(all_.memory + 8), uint64_t{1}, mp::relaxed, mp::gpu);
            });
        return true;
    }

    // What nobody waits for before the end, and every wait has to pass over.
    MP_DEVICE bool leave() const {
        for (uint64_t i = 0; i < all_.pending; ++i)
            if (mp::put_notify(self_, 0, partner_, all_.room, out_, 0, 2).failed()) return false;
        return true;
    }

    MP_DEVICE bool take_left() const {
        return all_.pending == 0 || !mp::wait_notifications(self_, {0, partner_, 2}, all_.pending).failed();
    }

    MP_DEVICE bool play(uint64_t turn) const {
        return first_ ? send(turn) && receive(turn) : receive(turn) && send(turn);
    }

private:
    MP_DEVICE static uint64_t word(uint64_t rank, uint64_t turn, uint64_t i) {
        return (rank + 1) * 0x9e3779b97f4a7c15u + turn * 1000003u + i;
    }

    const Rank& self_;
    const Pairs& all_;
    bool first_;
    uint32_t partner_;
    uint64_t *out_, *in_;
};

}  // namespace programs

// Window 0: the memory of a rank. The nanoseconds are those from the barrier before the first message to the one behind the last.
DCUDA_KERNEL dcuda_pingpong(mp::Ranks ranks, programs::Pairs all) {
    const mp::Rank self = mp::join(ranks);
    const programs::Pair pair(self, all);
    // A turn that is not timed takes what was left into the queues.
    if (!pair.leave() || (all.pending > 0 && !pair.play(all.turns))) return;
    if (mp::barrier(self, mp::Team::world).failed()) return;
    const std::uint64_t began = mp::clock_ns();
    for (std::uint64_t turn = 0; turn < all.turns; ++turn)
        if (!pair.play(turn)) return;
    if (mp::barrier(self, mp::Team::world).failed()) return;
    if (!pair.take_left()) return;
    if (self.rank == 0 && mp::block().leads()) *programs::at<std::uint64_t>(all.memory) = mp::clock_ns() - began;
    mp::finish(self);
}
