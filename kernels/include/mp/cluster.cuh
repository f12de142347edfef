// Clusters: blocks of one launch that start together, close to one another, and reach each other's shared memory. A GPU has them from
// sm_90 on, for kernels that are launched as clusters of so many blocks (__cluster_dims__); for code of older GPUs and in other kernels
// a block is a cluster by itself. On the host all blocks of a launch are one.
//
// Arrivals are stores that are counted where they arrive. So nobody waits for stores that are on their way, but each block for those that
// it needs:
//
//     mp::Arrivals::begin();                                               // one thread of each block
//     mp::cluster_barrier();
//     for (int turn = 0; turn < turns; ++turn) {
//         mp::Arrivals::store(ghosts + i, next_block, turn, border[i]);    // each thread its cells
//         const mp::Arrivals arrivals(turn);
//         if (mp::thread_rank() == 0) arrivals.expect(bytes_of_ghosts);    // that come to this block in this turn
//         arrivals.wait();                                                 // each thread that reads them
//     }
//     mp::cluster_barrier();                                               // no block ends while others store to it
#pragma once

#include "platform.cuh"

namespace mp {

// Where block `block` of the cluster has in its shared memory what this block has at `shared`. Behind a cluster_barrier: all
// blocks have started; and no block may end before the last access.
template <class T>
MP_DEVICE T* of_cluster_block(T* shared, std::uint32_t block);

// Every thread of the cluster waits for all others. What each wrote before, in shared memory or not, is seen by all after, in the cluster.
MP_DEVICE void cluster_barrier();

// What comes to this block in one turn. Turns follow each other from 0 on; a block may be one turn ahead of those that store to it
// and of those that it stores to, as it is if they store to each other and each waits for the other's.
class Arrivals {
public:
    // By one thread of each block, ahead of a cluster_barrier and of all turns. Once in a launch.
    MP_DEVICE static void begin();

    // Stores eight bytes where block `block` of the cluster has in its shared memory what this block has at `to`. Ordered for
    // whoever waits for that block's arrivals of this turn, there.
    template <class T>
    MP_DEVICE static void store(T* to, std::uint32_t block, std::uint32_t turn, T value);

    MP_DEVICE explicit Arrivals(std::uint32_t turn);

    // By one thread of the block, in every turn: so many bytes come in this one. Orders nothing.
    MP_DEVICE void expect(std::uint32_t bytes) const;

    // Waits until all of them have come, and for `expect`. Acquire at the scope of the cluster, for each thread that calls. Within a cluster
    // nobody is late but by a mistake of the kernel's: after half a minute it fails (halt).
    MP_DEVICE void wait() const;

private:
    std::uint32_t turn_;
#if defined(__CUDACC__)
    std::uint32_t counter_;
#endif
};

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900

namespace impl {

MP_DEVICE std::uint32_t shared_address(const void* shared) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)); }
MP_DEVICE std::uint32_t shared_address_of(const void* shared, std::uint32_t block) {
    std::uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(shared)), "r"(block));
    return at;
}
// Counts of bytes, of turns with even and with odd numbers.
MP_DEVICE std::uint64_t* arrivals_counter(std::uint32_t turn) {
    __shared__ std::uint64_t counters[2];
    return counters + (turn & 1);
}

}  // namespace impl

template <class T>
MP_DEVICE T* of_cluster_block(T* shared, std::uint32_t block) {
    return static_cast<T*>(__cluster_map_shared_rank(shared, block));
}

MP_DEVICE void cluster_barrier() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

// PTX ISA 9.0, mbarrier and st.async.
MP_DEVICE void Arrivals::begin() {
    for (std::uint32_t turn = 0; turn < 2; ++turn)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(impl::shared_address(impl::arrivals_counter(turn))) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

template <class T>
MP_DEVICE void Arrivals::store(T* to, std::uint32_t block, std::uint32_t turn, T value) {
    static_assert(sizeof(T) == 8, "Arrivals: eight bytes");
    union {
        T value;
        std::uint64_t bits;
    } word = {value};
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     impl::shared_address_of(to, block)),
                 "l"(word.bits), "r"(impl::shared_address_of(impl::arrivals_counter(turn), block))
                 : "memory");
}

MP_DEVICE Arrivals::Arrivals(std::uint32_t turn) : turn_(turn), counter_(impl::shared_address(impl::arrivals_counter(turn))) {}

MP_DEVICE void Arrivals::expect(std::uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(counter_), "r"(bytes) : "memory");
}

MP_DEVICE void Arrivals::wait() const {
    constexpr std::uint64_t half_a_minute = std::uint64_t{1} << 36;  // of cycles
    const auto have_come = [this] {
        std::uint32_t come;
        asm volatile(
            "{\n\t.reg .pred come;\n\t"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 come, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, come;\n\t}"
            : "=r"(come)
            : "r"(counter_), "r"(turn_ / 2 & 1)
            : "memory");
        return come != 0;
    };
    if (have_come()) return;
    const std::uint64_t began = clock_cycles();
    while (!have_come())
        if (MP_RARELY(clock_cycles() - began > half_a_minute)) halt();
}

#elif defined(__CUDACC__)

template <class T>
MP_DEVICE T* of_cluster_block(T* shared, std::uint32_t) {
    return shared;
}
MP_DEVICE void cluster_barrier() { block_barrier(); }
// There is no other block to store to, and nothing comes.
MP_DEVICE void Arrivals::begin() {}
template <class T>
MP_DEVICE void Arrivals::store(T*, std::uint32_t, std::uint32_t, T) {
    halt();
}
MP_DEVICE Arrivals::Arrivals(std::uint32_t turn) : turn_(turn), counter_(0) {}
MP_DEVICE void Arrivals::expect(std::uint32_t bytes) const {
    if (bytes != 0) halt();
}
MP_DEVICE void Arrivals::wait() const {}

#else

template <class T>
MP_DEVICE T* of_cluster_block(T* shared, std::uint32_t block) {
    host::Block* const mine = host::this_thread.block;
    const auto place = reinterpret_cast<unsigned char*>(shared) - mine->memory.data();
    return reinterpret_cast<T*>(mine->cluster->blocks[block]->memory.data() + place);
}

MP_DEVICE void cluster_barrier() {
    block_barrier();
    if (thread_rank() == 0 && host::this_thread.block != nullptr) {
        host::Cluster& cluster = *host::this_thread.block->cluster;
        const std::uint64_t met = load(&cluster.met, relaxed, gpu);
        if (fetch_add(&cluster.here, std::uint64_t{1}, gpu) + 1 == cluster.blocks.size()) {
            store(&cluster.here, std::uint64_t{0}, relaxed, gpu);
            store(&cluster.met, met + 1, release, gpu);
        } else {
            while (load(&cluster.met, acquire, gpu) == met) pause();
        }
    }
    block_barrier();
}

MP_DEVICE void Arrivals::begin() {}

template <class T>
MP_DEVICE void Arrivals::store(T* to, std::uint32_t block, std::uint32_t turn, T value) {
    static_assert(sizeof(T) == 8, "Arrivals: eight bytes");
    *of_cluster_block(to, block) = value;
    host::this_thread.block->cluster->blocks[block]->arriving[turn & 1].come(8);
}

MP_DEVICE Arrivals::Arrivals(std::uint32_t turn) : turn_(turn) {}

MP_DEVICE void Arrivals::expect(std::uint32_t bytes) const { host::this_thread.block->arriving[turn_ & 1].expect(bytes); }

MP_DEVICE void Arrivals::wait() const {
    while (host::this_thread.block->arriving[turn_ & 1].over() <= turn_ / 2) pause();
}

#endif

}  // namespace mp
