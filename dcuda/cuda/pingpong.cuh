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
        out_ = at<uint64_t>(all.memory + pairs_ahead + self.local * 2 * all.room);
        in_ = at<uint64_t>(all.memory + pairs_ahead + self.local * 2 * all.room + all.room);
    }

    // `checks`: what is sent is written before, and what has come is compared.
    template <bool checks>
    MP_DEVICE bool send(uint64_t turn) const {
        if constexpr (checks) {
            // The one before has been put by all threads.
            mp::block().sync();
            each(all_.bytes / 8, [&](uint64_t i) { out_[i] = word(self_.rank, turn, i); });
        }
        return !mp::put_notify(self_, 0, partner_, all_.room, out_, all_.bytes, 1).failed();
    }

    template <bool checks>
    MP_DEVICE bool receive(uint64_t turn) const {
        if (mp::wait_notifications(self_, {0, partner_, 1}, 1).failed()) return false;
        if constexpr (checks)
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

    template <bool checks>
    MP_DEVICE bool play(uint64_t turn) const {
        return first_ ? send<checks>(turn) && receive<checks>(turn) : receive<checks>(turn) && send<checks>(turn);
    }

    // Turns of which nothing is checked, some at a time: what counts them lies in local memory, whose cache each wait empties.
    MP_DEVICE bool play_on(uint64_t turns) const {
        constexpr int at_a_time = 4;
        uint64_t left = turns;
        for (; left >= at_a_time; left -= at_a_time) {
            bool plays = true;
            MP_UNROLL
            for (int k = 0; k < at_a_time; ++k) plays = plays && play<false>(0);
            if (!plays) return false;
        }
        for (; left > 0; --left)
            if (!play<false>(0)) return false;
        return true;
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
    if (!pair.leave() || (all.pending > 0 && !pair.play<false>(0))) return;
    if (mp::barrier(self, mp::Team::world).failed()) return;
    const std::uint64_t began = mp::clock_ns();
    if (all.check == 0) {
        if (!pair.play_on(all.turns)) return;
    } else {
        for (std::uint64_t turn = 0; turn < all.turns; ++turn)
            if (!pair.play<true>(turn)) return;
    }
    if (mp::barrier(self, mp::Team::world).failed()) return;
    if (!pair.take_left()) return;
    if (self.rank == 0 && mp::block().leads()) *programs::at<std::uint64_t>(all.memory) = mp::clock_ns() - began;
    mp::finish(self);
}
