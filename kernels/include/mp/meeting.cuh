// Blocks of one launch that meet: all of them run at once (a cooperative launch, gdsync's launch_together), and each has a signal
// in the memory of their GPU, which says how often it has come. So a block waits for those blocks that it names and for no others:
//
//     __global__ void relax(mp::BlockSignals signals, double* x, int times) {
//         const auto beside = [](std::uint32_t n) { return mp::block_rank() - 1 + 2 * n; };  // the blocks in front and behind
//         mp::Meetings meetings(signals, 2, beside);
//         for (int time = 0; time < times; ++time) {
//             half_sweep(x, time);
//             if (!meetings.meet()) return;                                                  // bounded
//         }
//     }
//
// A block may be one meeting ahead of a block that it meets, so what the next step writes there must not be what that one still reads.
// Launches that share signals follow one another on the stream that the signals were made for (gdsync::Stream::block_signals) and have
// as many blocks each.
#pragma once

#include "copy.cuh"
#include "report.cuh"
#include "signal.cuh"

namespace mp {

namespace impl {

// What the signal of a block says whose meeting has failed: less than any count.
constexpr std::int64_t broken = -1 - INT64_MAX;

// The signal of the n-th block that is met; null: it is nobody's.
template <class Of>
MP_DEVICE std::uint64_t* met_signal(const BlockSignals& all, const Of& of, std::uint32_t n) {
    const std::uint32_t block = of(n);
    return block < grid_blocks() ? at<std::uint64_t>(all.signals) + block : nullptr;
}

// The rest of a block's wait for those that are late, and for those that nobody has looked at yet. False: one does not come.
template <class Of>
MP_COLD bool meet_late(const BlockSignals all, const Of of, std::uint32_t count, std::int64_t number) {
    bool failed = false;
    for (std::uint32_t n = thread_rank(); n < count; n += block_threads()) {
        const std::uint64_t* const word = met_signal(all, of, n);
        if (word == nullptr) continue;
        const auto see = [word] { return load(word, acquire, gpu); };
        const auto glance = [word] { return load(word, relaxed, gpu); };
        const auto is = [number](std::uint64_t seen) { return std::int64_t(seen) >= number || std::int64_t(seen) == broken; };
        const auto waited = wait_long(see, glance, is, all.bounds);
        report(at<WaitReport>(all.report), std::uint64_t(number), {waited.status, waited.seen, waited.waited_ns});
        if (waited.status != ok || std::int64_t(waited.seen) == broken) failed = true;
    }
    failed = block_any(failed);
    if (failed && thread_rank() == 0) store(at<std::uint64_t>(all.signals) + block_rank(), std::uint64_t(broken), relaxed, gpu);
    return !failed;
}

}  // namespace impl

// The part that this block has in the meetings of its launch. Every thread of the block has one, and makes every call.
template <class Of>
class Meetings {
public:
    // The block is to meet the blocks `of(n)`, n from 0 to `count` - 1; numbers that no block of the grid has are nobody's. Reads how often
    // the block has come in launches before. Orders nothing.
    MP_DEVICE Meetings(const BlockSignals& all, std::uint32_t count, const Of& of)
        : all_(all), of_(of), count_(count), rank_(thread_rank()), mine_(impl::at<std::uint64_t>(all.signals) + block_rank()),
          number_(std::int64_t(load(mine_, relaxed, gpu))),
          other_(rank_ < count ? impl::met_signal(all, of, rank_) : nullptr), many_(count > block_threads()) {}

    // Waits until each of those blocks has come to as many meetings as this one. Release and acquire at GPU scope and a barrier of the
    // block: what they wrote before this meeting is seen after it by every thread of this block. False, for all threads: one has not come in
    // time, or waits were aborted; then nothing is ordered, each later meeting fails at once, here and in the blocks that would wait for
    // this one, and the report that the signals came with says why.
    [[nodiscard]] MP_DEVICE bool meet() {
        if (number_ == impl::broken) return false;
        ++number_;
        block_barrier();
        if (rank_ == 0) store(mine_, std::uint64_t(number_), release, gpu);
        // All vote after each look: kernels whose blocks meet are larger than what a multiprocessor keeps of them, and this is little.
        int looked = 0;
        while (block_any(other_ != nullptr && std::int64_t(load(other_, acquire, gpu)) < number_) && ++looked < looks)
            if (rank_ == 0) pause();
        if (MP_RARELY(looked == looks || many_) && !impl::meet_late(all_, of_, count_, number_)) number_ = impl::broken;
        return number_ != impl::broken;
    }

private:
    // So many, blocks are late that have the same to do.
    static constexpr int looks = 64;

    const BlockSignals& all_;
    const Of of_;
    const std::uint32_t count_, rank_;
    std::uint64_t* const mine_;
    std::int64_t number_;
    const std::uint64_t* const other_;  // the first that this thread looks at
    const bool many_;                   // threads that would have to look at several
};

}  // namespace mp
