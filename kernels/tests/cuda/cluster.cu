// Blocks of a cluster that store to each other, turn by turn, and check what has come.
#pragma once

#include <mp/mp.cuh>

#include "pattern.cuh"

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
#define TEST_CLUSTER __cluster_dims__(4, 1, 1)
#else
#define TEST_CLUSTER
#endif

namespace test {

// What comes from the blocks in front and behind, of turns with even and with odd numbers.
struct Ghosts {
    std::uint64_t cells[2][2][32];
};

}  // namespace test

// Plays `turns` turns in a cluster of four blocks of at most 32 threads: each thread stores a word to the blocks in front and behind,
// around the end, and checks those of theirs that have come here. In turns that are multiples of 16 only threads of block 0 do, and what they have
// stored is seen behind a barrier of the cluster. Adds to results: [0] the words found wrong, [1] turns of blocks.
MP_KERNEL void TEST_CLUSTER mp_arrivals(std::uint64_t turns, std::uint64_t* results) {
    const std::uint32_t blocks = mp::grid_blocks(), mine = mp::block_rank(), i = mp::thread_rank();
    test::Ghosts* const ghosts = mp::block_memory<test::Ghosts>();
    if (i == 0) mp::Arrivals::begin();
    mp::cluster_barrier();
    const std::uint32_t front = (mine + blocks - 1) % blocks, behind = (mine + 1) % blocks;
    std::uint64_t wrong = 0;
    std::uint32_t turn = 0;
    for (std::uint32_t played = 0; played < turns; ++played) {
        auto& cells = ghosts->cells[turn & 1];
        if (played % 16 == 0) {
            // All that came before has been read.
            mp::cluster_barrier();
            if (mine == 0)
                for (std::uint32_t block = 0; block < blocks; ++block)
                    *mp::of_cluster_block(&cells[0][i], block) = mp::pattern(played, blocks * 32 + i);
            mp::cluster_barrier();
            wrong += cells[0][i] != mp::pattern(played, blocks * 32 + i);
            mp::cluster_barrier();
            continue;
        }
        mp::Arrivals::store(&cells[1][i], front, turn, mp::pattern(played, mine * 32 + i));
        mp::Arrivals::store(&cells[0][i], behind, turn, mp::pattern(played, mine * 32 + i));
        const mp::Arrivals arrivals(turn);
        if (i == 0) arrivals.expect(2 * mp::block_threads() * 8);
        arrivals.wait();
        wrong += cells[0][i] != mp::pattern(played, front * 32 + i);
        wrong += cells[1][i] != mp::pattern(played, behind * 32 + i);
        ++turn;
    }
    // No block ends while others may store to it.
    mp::cluster_barrier();
    if (wrong != 0) mp::add(results, wrong, mp::relaxed, mp::system);
    if (i == 0) mp::add(results + 1, turns, mp::relaxed, mp::system);
}
