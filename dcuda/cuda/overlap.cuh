// A computation and then an exchange of packets of 1 KiB with two neighbours, again and again; either can be left out, by an argument, so that
// the code is the same. The computation does not need what is exchanged.
#pragma once

#include <cmath>

#include "common.cuh"

namespace programs {

// A rank's memory: what it sends; what comes in even iterations, from before and from behind, and in odd ones; the sum of all that came;
// square roots; what is copied, and where to.
class Worker {
public:
    // Rank `local` of a device of the world.
    MP_DEVICE Worker(const mp::Ranks& world, uint32_t local, const Overlap& all)
        : all_(all), mine_(at(all.memory) + local * all.words), rank_(world.first + local), local_(local), each_device_(world.per_device) {
        const uint32_t devices = world.devices, device = world.device;
        before_ = all.across != 0 ? (device + devices - 1) % devices * each_device_ + local : rank_ - 1;
        behind_ = all.across != 0 ? (device + 1) % devices * each_device_ + local : rank_ + 1;
        has_before_ = all.across != 0 || rank_ > 0;
        has_behind_ = all.across != 0 || rank_ + 1 < world.size;
    }

    // Either uses all of a multiprocessor by half of its ranks, so that there is something to hide behind: square roots, as many at once as
    // the pipeline for doubles takes; or copies with several loads under way. The roots are a / √a: Newton's method for the inverse, which
    // needs no division, from 1 / a on.
    MP_DEVICE void compute(uint64_t turn) const {
        if (all_.roots != 0) {
            each(packet, [&](uint64_t i) {
                double half[roots_at_once], inverse[roots_at_once];
                MP_UNROLL
                for (uint64_t k = 0; k < roots_at_once; ++k) {
                    const double square = 2.0 + static_cast<double>(rank_) + static_cast<double>(k * packet + i);
                    half[k] = 0.5 * square;
                    inverse[k] = 1.0 / square;
                }
                for (uint64_t unit = 0; unit < all_.units; ++unit) {
                    MP_UNROLL
                    for (uint64_t k = 0; k < roots_at_once; ++k)
                        inverse[k] *= std::fma(-half[k] * inverse[k], inverse[k], 1.5);
                }
                MP_UNROLL
                for (uint64_t k = 0; k < roots_at_once; ++k) roots()[k * packet + i] = 2.0 * half[k] * inverse[k];
            });
        } else {
            uint64_t first = turn * all_.units * packet % all_.copied, left = all_.units * packet;
            while (left > 0) {
                const uint64_t count = left < all_.copied - first ? left : all_.copied - first;
                mp::copy(mp::block(), target() + first, source() + first, count * sizeof(double));
                first = first + count == all_.copied ? 0 : first + count;
                left -= count;
            }
        }
    }

    MP_DEVICE bool exchange(const Rank& self, uint64_t turn) const {
        const auto parity = static_cast<uint32_t>(turn % 2);
        fill(turn);
        const uint64_t bytes = packet * sizeof(double), first = (1 + 2 * parity) * bytes;
        if (has_before_ && mp::put_notify(self, 0, before_, first + bytes, mine_, bytes, parity).failed()) return false;
        if (has_behind_ && mp::put_notify(self, 0, behind_, first, mine_, bytes, parity).failed()) return false;
        const uint32_t count = has_before_ + has_behind_;
        if (mp::wait_notifications(self, {0, mp::any_source, parity}, count).failed()) return false;
        take(turn);
        return true;
    }

    // The form on streams: what goes to neighbours on this device is stored there, the rest is for messages.
    MP_DEVICE void give(uint64_t turn) const {
        fill(turn);
        if (all_.across != 0) return;
        const uint64_t first = (1 + 2 * (turn % 2)) * packet;
        each(packet, [&](uint64_t i) {
            if (local_ > 0) mine_[first + packet + i - all_.words] = mine_[i];
            if (local_ + 1 < each_device_) mine_[first + i + all_.words] = mine_[i];
        });
    }
    MP_DEVICE void take(uint64_t turn) const {
        const double* came = mine_ + (1 + 2 * (turn % 2)) * packet;
        each(packet, [&](uint64_t i) { sum()[i] += came[i] + came[packet + i]; });
    }

private:
    // Whole numbers, of which no sum is rounded.
    MP_DEVICE static double word(uint64_t rank, uint64_t turn, uint64_t i) { return static_cast<double>(7 * rank + 3 * turn + i); }
    MP_DEVICE void fill(uint64_t turn) const {
        each(packet, [&](uint64_t i) { mine_[i] = word(rank_, turn, i); });
    }
    MP_DEVICE double* sum() const { return mine_ + 5 * packet; }
    MP_DEVICE double* roots() const { return mine_ + 6 * packet; }
    MP_DEVICE double* source() const { return mine_ + (6 + roots_at_once) * packet; }
    MP_DEVICE double* target() const { return source() + all_.copied; }

    const Overlap& all_;
    double* mine_;
    uint32_t rank_, local_, each_device_;
    uint32_t before_, behind_;
    bool has_before_, has_behind_;
};

}  // namespace programs

// Window 0: the memory of a rank.
DCUDA_KERNEL dcuda_overlap(mp::Ranks ranks, programs::Overlap all) {
    const mp::Rank self = mp::join(ranks);
    const programs::Worker worker(ranks, self.local, all);
    if (mp::barrier(self, mp::Team::world).failed()) return;
    const std::uint64_t began = mp::clock_ns();
    for (std::uint64_t turn = 0; turn < all.turns; ++turn) {
        if (all.units != 0) worker.compute(turn);
        if (all.exchanges != 0 && !worker.exchange(self, turn)) return;
    }
    if (mp::barrier(self, mp::Team::world).failed()) return;
    if (self.rank == 0 && mp::block().leads()) *programs::at<std::uint64_t>(all.time) = mp::clock_ns() - began;
    mp::finish(self);
}

// One stage of iteration `turns`, for the form on streams.
DCUDA_KERNEL dcuda_overlap_stage(mp::Ranks ranks, programs::Overlap all) {
    const programs::Worker worker(ranks, mp::block_rank(), all);
    if (all.stage == 0) {
        if (all.units != 0) worker.compute(all.turns);
        if (all.exchanges != 0) worker.give(all.turns);
    } else {
        worker.take(all.turns);
    }
}

// What waiting costs others. Of eight ranks of a multiprocessor the first that comes computes, an eighth of the device's; with `exchanges` all wait
// until the last of these is done. Nanoseconds of each that computes go to words from `time` on. Behind those of all ranks are counts, zero at the
// beginning: of ranks that compute, of those that are done, of each multiprocessor's ranks. They are counted, since blocks are not given out in
// turns: on an H100 the first 64 fill eight multiprocessors.
DCUDA_KERNEL dcuda_waiting(mp::Ranks ranks, programs::Overlap all) {
    const mp::Rank self = mp::join(ranks);
    const programs::Worker worker(ranks, self.local, all);
    const std::uint32_t each_device = self.all->per_device, most = each_device / 8;
    auto* times = programs::at<std::uint64_t>(all.time);
    std::uint64_t *computing = times + each_device, *done = computing + 1, *sharing = computing + 2;
    const auto counted = [](std::uint64_t* count) { return mp::fetch_add(count, std::uint64_t{1}, mp::gpu, mp::relaxed); };
    const bool leads = mp::block().leads();
    const bool computes = mp::block().any(leads && counted(sharing + mp::multiprocessor() % each_device) % 8 == 0 && counted(computing) < most);
    if (mp::barrier(self, mp::Team::world).failed()) return;
    if (computes) {
        const std::uint64_t began = mp::clock_ns();
        for (std::uint64_t turn = 0; turn < all.turns; ++turn) worker.compute(turn);
        mp::block().sync();
        if (leads) times[self.local] = mp::clock_ns() - began;
        const bool is_last = mp::block().any(leads && counted(done) + 1 == most);
        if (is_last && all.exchanges != 0 && mp::put_notify_all(self, 0, self.rank, 0, programs::at(all.memory), 0, 0).failed()) return;
    }
    if (all.exchanges != 0 && mp::wait_notifications(self, {0, mp::any_source, mp::any_tag}, 1).failed()) return;
    mp::finish(self);
}
