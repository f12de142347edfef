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

#include "report.cuh"
#include "signal.cuh"

namespace mp {

// The part that this block has in the meetings of its launch. Every thread of the block has one, and makes every call. Nothing here is a
// call of a function, nor is it much: kernels whose blocks meet need all registers, and are larger than what a multiprocessor keeps of them.
template <class Of>
class Meetings {
public:
    // The block is to meet the blocks `of(n)`, n from 0 to `count` - 1; numbers that no block of the grid has are nobody's. More than the block
    // has threads are refused: then every meeting fails. Reads how often the block has come in launches before. Orders nothing.
    MP_DEVICE Meetings(const BlockSignals& all, std::uint32_t count, const Of& of)
        : all_(all), rank_(thread_rank()), mine_(signal(block_rank())), number_(std::int64_t(load(mine_, relaxed, gpu))),
          other_(nullptr) {
        if (rank_ < count) {
            const std::uint32_t other = of(rank_);
            if (other < grid_blocks()) other_ = signal(other);
        }
        if (count <= block_threads()) return;
        if (rank_ == 0) tell(count, {bad_argument, block_threads(), 0});
        number_ = broken;
    }

    // Waits until each of those blocks has come to as many meetings as this one. Release and acquire at GPU scope and a barrier of the
    // block: what they wrote before this meeting is seen after it by every thread of this block. False, for all threads: one has not come in
    // time, or waits were aborted; then nothing is ordered, and the report that the signals came with says why. Each later meeting fails soon,
    // here, in the blocks that would wait for this one, and in launches to come.
    [[nodiscard]] MP_DEVICE bool meet() {
        ++number_;
        block_barrier();
        if (rank_ == 0) store(mine_, std::uint64_t(number_), release, gpu);
        impl::Found found = {};
        // What decides is the same in all threads, as the compiler can tell: a branch on what one has read costs much behind it.
        do {
            int looks = looks_between_clocks;
            while (block_any(is_late()) && --looks > 0)
                if (rank_ == 0) pause();
            if (!MP_RARELY(looks == 0)) return true;
        } while (!block_any(does_not_come(found)));
        number_ = broken;
        if (rank_ == 0) store(mine_, std::uint64_t(broken), relaxed, gpu);
        return false;
    }

private:
    // What the signal of a block says whose meeting has failed: less than any count, and so is what it counts on from there.
    static constexpr std::int64_t broken = -1 - INT64_MAX;
    static constexpr int looks_between_clocks = 64;

    MP_DEVICE std::uint64_t* signal(std::uint32_t block) const { return reinterpret_cast<std::uint64_t*>(all_.signals) + block; }

    // Whether the block that this thread looks for has yet to come; or this one will never meet it.
    MP_DEVICE bool is_late() const {
        return other_ != nullptr && (std::int64_t(load(other_, acquire, gpu)) < number_ || number_ < 0);
    }
    // Whether it is of no use to look any longer. `found`: what the clock said before.
    MP_DEVICE bool does_not_come(impl::Found& found) const {
        if (other_ == nullptr) return false;
        found = impl::look_now(all_.bounds, found);
        // After the clock: who comes in time has come.
        const std::uint64_t seen = load(other_, relaxed, gpu);
        if (number_ < 0 || std::int64_t(seen) < 0) return true;
        if (found.status == ok || std::int64_t(seen) >= number_) return false;
        tell(std::uint64_t(number_), {found.status, seen, found.waited_ns});
        return true;
    }
    MP_DEVICE void tell(std::uint64_t expected, const WaitResult& result) const {
        if (all_.report != 0) impl::write_report_here(reinterpret_cast<WaitReport*>(all_.report), expected, result);
    }

    const BlockSignals& all_;
    const std::uint32_t rank_;
    std::uint64_t* const mine_;
    std::int64_t number_;
    const std::uint64_t* other_;  // null: this thread looks for nobody
};

}  // namespace mp
