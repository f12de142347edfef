// Communication that is a launch of its own: copies into peers' memory with signals, waits, and agreeing on the largest
// values. Everything counts phases as in slab.cuh.
#include "slab.cuh"

namespace hpgmg {

constexpr int MAX_PEERS = 7;
constexpr int AGREED = 4;  // values at most

// Elements for one peer. Both addresses are multiples of 16 bytes, the number is even.
struct Route {
    const double2* from;
    double2* to;
    long long pairs;
    Link link;
};

struct Exchange {
    Route routes[MAX_PEERS];
    Bounds bounds;
};

struct Agree {
    Link links[MAX_PEERS];
    std::uint64_t* outbox[MAX_PEERS];       // this rank's two times AGREED words in the peer's memory
    const std::uint64_t* inbox[MAX_PEERS];  // the peer's in this rank's
    unsigned long long* values;             // of this rank; then the largest of all ranks
    unsigned long long* results;            // memory of the host, for these and `others` more values
    unsigned long long* rounds;             // times agreed so far
    Bounds bounds;
    int peers, count, others, unused;
};

}  // namespace hpgmg

// Copies to the peers, one each row of blocks; the last block for a peer signals it and waits until the peer has done the
// same here. When the launch is over everything has arrived.
extern "C" __global__ void __launch_bounds__(256) hpgmg_exchange(const __grid_constant__ hpgmg::Exchange exchange) {
    using namespace hpgmg;
    const Route& route = exchange.routes[blockIdx.y];
    for (long long at = blockIdx.x * 256 + threadIdx.x; at < route.pairs; at += gridDim.x * 256) route.to[at] = route.from[at];
    __syncthreads();
    if (threadIdx.x == 0 && finished(route.link, exchange.bounds, gridDim.x)) {
        reached(route.link, exchange.bounds, route.link.pair->epoch);
    }
}

// Waits until the neighbours have finished as many phases as this rank has; counts nothing. A thread each.
extern "C" __global__ void __launch_bounds__(32) hpgmg_await(const __grid_constant__ hpgmg::Slab slab) {
    using namespace hpgmg;
    const Link& link = slab.links[threadIdx.x];
    if (link.pair) reached(link, slab.bounds, link.pair->epoch);
}

// Waits as hpgmg_await, and copies what the neighbours have stored into receive buffers to the ghosts that it is for. A row
// of blocks for each; few enough for all to run at once. Counts nothing.
extern "C" __global__ void __launch_bounds__(256) hpgmg_unpack(const __grid_constant__ hpgmg::Exchange exchange) {
    using namespace hpgmg;
    const Route& route = exchange.routes[blockIdx.y];
    const bool arrived = threadIdx.x != 0 || reached(route.link, exchange.bounds, route.link.pair->epoch);
    if (!__syncthreads_and(arrived)) return;
    for (long long at = blockIdx.x * 256 + threadIdx.x; at < route.pairs; at += gridDim.x * 256) route.to[at] = route.from[at];
}

// The largest of the ranks' values, bit patterns of non-negative numbers. A thread for each peer. Two places for each
// peer in turn: who is in the next round may still be read in this one. The results go to the host from here: a copy
// behind a launch that waits would hold up the copies of other ranks on the same GPU.
extern "C" __global__ void __launch_bounds__(32) hpgmg_agree(const __grid_constant__ hpgmg::Agree agree) {
    using namespace hpgmg;
    const int peer = threadIdx.x, place = (*agree.rounds & 1) * AGREED;
    unsigned long long largest[AGREED] = {};
    for (int value = 0; value < agree.count; value++) largest[value] = agree.values[value];
    if (peer < agree.peers) {
        for (int value = 0; value < agree.count; value++) {
            mp::store(agree.outbox[peer] + place + value, std::uint64_t{largest[value]}, mp::relaxed, mp::system);
        }
        const Link& link = agree.links[peer];
        if (finished(link, agree.bounds, 1) && reached(link, agree.bounds, link.pair->epoch)) {
            for (int value = 0; value < agree.count; value++) {
                const std::uint64_t theirs = mp::load(agree.inbox[peer] + place + value, mp::relaxed, mp::system);
                largest[value] = max(largest[value], static_cast<unsigned long long>(theirs));
            }
        }
    }
    __syncwarp();
    for (int value = 0; value < agree.count; value++) {
        for (int step = 16; step > 0; step /= 2) largest[value] = max(largest[value], __shfl_xor_sync(~0u, largest[value], step));
        if (peer == 0) agree.values[value] = agree.results[value] = largest[value];
    }
    if (peer != 0) return;
    for (int value = agree.count; value < agree.count + agree.others; value++) agree.results[value] = agree.values[value];
    *agree.rounds += 1;
}

// As in layout.rs.
static_assert(sizeof(hpgmg::Slab) == 120 && sizeof(hpgmg::Exchange) == 7 * 56 + 24 && sizeof(hpgmg::Agree) == 7 * 48 + 64);
