// A computation and then an exchange of packets of 1 KiB with two neighbours, again and again; either can be left out, by an argument, so that
// the code is the same. The computation does not need what is exchanged.
#pragma once

#include "common.cuh"

namespace programs {

// A rank's memory: what it sends; what comes in even iterations, from before and from behind, and in odd ones; the sum of all that came;
// square roots; what is copied, and where to.
class Worker {
public:
    static constexpr uint64_t packet = 128;

    MP_DEVICE Worker(const Rank& self, const Overlap& all)
        : self_(self), all_(all), mine_(at(all.memory) + self.local * all.words) {
        const uint32_t size = mp::size_of(self, mp::Team::world), devices = self.all->devices, each_device = self.all->per_device;
        const uint32_t device = self.all->device;
        before_ = all.across != 0 ? (device + devices - 1) % devices * each_device + self.local : self.rank - 1;
        behind_ = all.across != 0 ? (device + 1) % devices * each_device + self.local : self.rank + 1;
        has_before_ = all.across != 0 || self.rank > 0;
        has_behind_ = all.across != 0 || self.rank + 1 < size;
    }

    // Square roots by the method of Newton, a division a step; or doubles that are copied.
    MP_DEVICE void compute(uint64_t turn) const {
        if (all_.roots != 0) {
            each(packet, [&](uint64_t i) {
                const double square = 2.0 + static_cast<double>(self_.rank) + static_cast<double>(i);
                double root = square;
                for (uint64_t unit = 0; unit < all_.units; ++unit) root = 0.5 * (root + square / root);
                roots()[i] = root;
            });
        } else {
            uint64_t first = turn * all_.units * packet % all_.copied;
            for (uint64_t unit = 0; unit < all_.units; ++unit) {
                each(packet, [&](uint64_t i) { target()[first + i] = source()[first + i]; });
                first = first + packet == all_.copied ? 0 : first + packet;
            }
        }
    }

    MP_DEVICE bool exchange(uint64_t turn) const {
        const auto parity = static_cast<uint32_t>(turn % 2);
        each(packet, [&](uint64_t i) { mine_[i] = word(self_.rank, turn, i); });
        const uint64_t bytes = packet * sizeof(double), first = (1 + 2 * parity) * bytes;
        if (has_before_ && mp::put_notify(self_, 0, before_, first + bytes, mine_, bytes, parity).failed()) return false;
        if (has_behind_ && mp::put_notify(self_, 0, behind_, first, mine_, bytes, parity).failed()) return false;
        const uint32_t count = has_before_ + has_behind_;
        if (mp::wait_notifications(self_, {0, mp::any_source, parity}, count).failed()) return false;
        const double* came = mine_ + (1 + 2 * parity) * packet;
        each(packet, [&](uint64_t i) { sum()[i] += came[i] + came[packet + i]; });
        return true;
    }

private:
    // Whole numbers, of which no sum is rounded.
    MP_DEVICE static double word(uint64_t rank, uint64_t turn, uint64_t i) { return static_cast<double>(7 * rank + 3 * turn + i); }
    MP_DEVICE double* sum() const { return mine_ + 5 * packet; }
    MP_DEVICE double* roots() const { return mine_ + 6 * packet; }
    MP_DEVICE double* source() const { return mine_ + 7 * packet; }
    MP_DEVICE double* target() const { return source() + all_.copied; }

    const Rank& self_;
    const Overlap& all_;
    double* mine_;
    uint32_t before_, behind_;
    bool has_before_, has_behind_;
};

}  // namespace programs

// Window 0: the memory of a rank.
DCUDA_KERNEL dcuda_overlap(mp::Ranks ranks, programs::Overlap all) {
    const mp::Rank self = mp::join(ranks);
    const programs::Worker worker(self, all);
    if (mp::barrier(self, mp::Team::world).failed()) return;
    const std::uint64_t began = mp::clock_ns();
    for (std::uint64_t turn = 0; turn < all.turns; ++turn) {
        if (all.units != 0) worker.compute(turn);
        if (all.exchanges != 0 && !worker.exchange(turn)) return;
    }
    if (mp::barrier(self, mp::Team::world).failed()) return;
    if (self.rank == 0 && mp::block().leads()) *programs::at<std::uint64_t>(all.time) = mp::clock_ns() - began;
    mp::finish(self);
}

// What waiting costs others: the first eighth of a device's ranks compute; the others wait until one of these is done or, without
// `exchanges`, finish at once. Nanoseconds of each that computes, in words from `time` on. One of eight blocks of each multiprocessor computes, since
// blocks are given out in turns.
DCUDA_KERNEL dcuda_waiting(mp::Ranks ranks, programs::Overlap all) {
    const mp::Rank self = mp::join(ranks);
    const programs::Worker worker(self, all);
    const std::uint32_t each_device = self.all->per_device, computing = each_device / 8;
    if (mp::barrier(self, mp::Team::world).failed()) return;
    if (self.local < computing) {
        const std::uint64_t began = mp::clock_ns();
        for (std::uint64_t turn = 0; turn < all.turns; ++turn) worker.compute(turn);
        mp::block().sync();
        if (mp::block().leads()) programs::at<std::uint64_t>(all.time)[self.local] = mp::clock_ns() - began;
        for (std::uint32_t other = self.local + computing; all.exchanges != 0 && other < each_device; other += computing)
            if (mp::put_notify(self, 0, self.rank - self.local + other, 0, programs::at(all.memory), 0, 0).failed()) return;
    } else if (all.exchanges != 0 && mp::wait_notifications(self, {0, mp::any_source, mp::any_tag}, 1).failed()) {
        return;
    }
    mp::finish(self);
}
