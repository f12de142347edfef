// Clusters on host threads, whose blocks are those of a launch: stores to other blocks, barriers, and arrivals.
#include <mp/host/launch.hpp>

#include "../cuda/cluster.cu"
#include "check.hpp"

CASE(what_blocks_of_a_cluster_store_to_each_other_arrives_in_its_turn) {
    for (const unsigned threads : {1u, 7u}) {
        std::uint64_t results[2] = {};
        mp::host::launch(4, threads, mp_arrivals, 100, results);
        CHECK_THAT(results[0], ==, 0u);
        CHECK_THAT(results[1], ==, 400u);
    }
}
