// The storm's kernels on a GPU.
#include "storm.cuh"

namespace {
constexpr unsigned threads = 256;
}

// The first `of_blocks` ends are played by a block each, the next by a warp each, as many as a block has. All blocks, and
// those of the other ranks on this GPU, must be resident at once.
MP_KERNEL void __launch_bounds__(threads, 2)
    torture_storm(const storm::End* ends, std::uint64_t count, std::uint64_t of_blocks,
                  std::uint64_t launch, storm::Tally* tally) {
    const std::uint64_t block = mp::block_rank();
    if (block < of_blocks) {
        storm::play(mp::block(), ends[block], launch, tally);
        return;
    }
    const std::uint64_t end = of_blocks + (block - of_blocks) * (threads / 32) + mp::thread_rank() / 32;
    if (end < count) storm::play(mp::warp(), ends[end], launch, tally);
}
