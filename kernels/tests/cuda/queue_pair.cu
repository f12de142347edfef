// Kernels that post to a send queue by themselves: for the tests of mp/qp.cuh, on the GPU and, as OS threads, on the host.
#pragma once

#include <mp/qp.cuh>

#include "pattern.cuh"

namespace mp {

// Which threads make one call of mp::post_each.
enum PostFlavour : std::uint32_t { post_by_thread = 0, post_by_warp = 1, post_by_block = 2 };

// One in eight entries, by its place in the queue, asks for a completion.
MP_DEVICE std::uint8_t signal_some(std::uint16_t index) {
    return index % 8 == 0 ? notify_always : notify_on_error;
}

template <class Group>
MP_DEVICE void write_words(Group group, const QueuePair& qp, RemoteAddress to, std::uint64_t seed, std::uint32_t count,
                           const WaitBounds& bounds, std::uint32_t* results) {
    const std::uint64_t thread = std::uint64_t{block_rank()} * block_threads() + thread_rank();
    PostStatus worst = PostStatus::ok;
    for (std::uint32_t i = 0; i < count && worst == PostStatus::ok; ++i) {
        const std::uint64_t word = thread * count + i;
        const std::uint64_t value = pattern(seed, word);
        const auto encode = [&](SendRing ring, std::uint16_t index) {
            const RemoteAddress there = {to.address + 8 * word, to.rkey};
            encode_write_inline(ring, index, signal_some(index), there, &value, 8);
        };
        worst = post_each(group, qp, 1, encode, bounds).status;
    }
    results[thread] = std::uint32_t(worst);
}

}  // namespace mp

// Every thread of the grid writes `count` words of the peer's memory, thread after thread, by an inline RDMA write each:
// word w gets mp::pattern(seed, w). results[thread] is a PostStatus. Nobody waits for completions: the host does.
MP_KERNEL void mp_qp_write_words(mp::QueuePair qp, mp::RemoteAddress to, std::uint64_t seed, std::uint32_t count,
                                 std::uint32_t flavour, mp::WaitBounds bounds, std::uint32_t* results) {
    switch (flavour) {
    case mp::post_by_thread:
        mp::write_words(mp::thread(), qp, to, seed, count, bounds, results);
        break;
    case mp::post_by_warp:
        mp::write_words(mp::warp(), qp, to, seed, count, bounds, results);
        break;
    default:
        mp::write_words(mp::block(), qp, to, seed, count, bounds, results);
    }
}

// One thread rings blocks [begin, end), which the CPU has prepared. result[0] is a PostStatus.
MP_KERNEL void mp_qp_ring(mp::QueuePair qp, std::uint64_t begin, std::uint64_t end, mp::WaitBounds bounds,
                          std::uint32_t* result) {
    if (mp::block_rank() == 0 && mp::thread_rank() == 0) {
        result[0] = std::uint32_t(mp::ring(mp::thread(), qp, begin, end, bounds));
    }
}

// One block fills `words` words at `from` with mp::pattern(seed, k), writes them to the peer's memory at `to` by an RDMA
// write, reads them from there into `into` by an RDMA read, waits, and compares, `rounds` times with a new seed each.
// results: a PostStatus; rounds done; words that differed.
MP_KERNEL void mp_qp_round_trip(mp::QueuePair qp, std::uint64_t* from, std::uint32_t from_key, mp::RemoteAddress to,
                                std::uint64_t* into, std::uint32_t into_key, std::uint32_t words, std::uint64_t seed,
                                std::uint32_t rounds, mp::WaitBounds bounds, std::uint32_t* results) {
    if (mp::block_rank() != 0) return;
    const mp::DataSegment source = {reinterpret_cast<std::uint64_t>(from), from_key, 8 * words};
    const mp::DataSegment target = {reinterpret_cast<std::uint64_t>(into), into_key, 8 * words};
    std::uint32_t wrong = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
        for (std::uint32_t k = mp::thread_rank(); k < words; k += mp::block_threads()) {
            from[k] = mp::pattern(seed + round, k);
        }
        const auto write = [&](mp::SendRing ring, std::uint16_t index) {
            mp::encode_write(ring, index, mp::notify_on_error, to, &source, 1);
        };
        mp::Posted posted = mp::post(mp::block(), qp, 1, write, bounds);
        const auto read = [&](mp::SendRing ring, std::uint16_t index) {
            mp::encode_read(ring, index, mp::notify_always, to, &target, 1);
        };
        if (posted.status == mp::PostStatus::ok) posted = mp::post(mp::block(), qp, 1, read, bounds);
        if (posted.status == mp::PostStatus::ok) {
            posted.status = mp::wait_completed(mp::block(), qp, posted.position, bounds);
        }
        if (posted.status != mp::PostStatus::ok) {
            if (mp::thread_rank() == 0) results[0] = std::uint32_t(posted.status);
            return;
        }
        bool differs = false;
        for (std::uint32_t k = mp::thread_rank(); k < words; k += mp::block_threads()) {
            // Volatile: the NIC wrote it; a copy from an earlier round in a register would not do.
            if (*const_cast<volatile std::uint64_t*>(into + k) != mp::pattern(seed + round, k)) differs = true;
        }
        wrong += mp::block().any(differs);
        if (mp::thread_rank() == 0) results[1] = round + 1;
    }
    if (mp::thread_rank() == 0) results[2] = wrong;
}
