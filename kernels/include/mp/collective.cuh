// Collectives of kernels: barrier and all-reduce of the ranks, one group of threads a rank. Every rank sends to every
// other directly, so they are for few ranks and short vectors. Runs are counted in the GPU's memory; two runs of one
// collective do not overlap.
//
// Ranks that map each other's memory send packets. Where some are reached through a NIC, all put and signal in a window
// (impl/nic_collective.cuh), with the same contract, results and bits; a wait may also end with `path_failed` then, when a request
// to a rank has failed. What a run of a kernel began, streams and the host may go on with: they count the same runs.
#pragma once

#include "impl/nic_collective.cuh"
#include "message.cuh"

namespace mp {

// How a barrier orders memory. `sync` orders nothing of the user's: who leaves it knows that all have come. `release`
// makes what each group wrote before, anywhere, visible to all groups after; over NVLink it costs a round trip more.
struct sync_only_t {};
constexpr sync_only_t sync_only = {};

namespace impl {

// A run writes packets into one of two turns. A rank that has finished run n has what all others sent for it, so they have
// finished run n - 1 and nobody reads the turn of n - 1 any more, which n + 1 overwrites.
MP_DEVICE Packet* turn_in(std::uint64_t inbox, const Collective& collective, std::uint64_t from, std::uint64_t epoch) {
    const std::uint64_t len = collective.len == 0 ? 1 : collective.len;
    return at<Packet>(inbox) + (epoch % 2 * collective.ranks + from) * len;
}
MP_DEVICE Packet* turn_of(const Collective& collective, std::uint64_t rank, std::uint64_t from, std::uint64_t epoch) {
    return turn_in(at<const std::uint64_t>(collective.inboxes)[rank], collective, from, epoch);
}

// The end of a run: the vote of the group over its threads' waits.
template <class Group>
MP_DEVICE WaitResult end_of_run(Group group, const Collective& collective, std::uint64_t epoch,
                                const WaitResult& result) {
    if (group.any(result.failed())) return failed_apart(group, collective.report, epoch, result);
    if (group.leads()) *at<std::uint64_t>(collective.state) = epoch;
    return {ok, epoch, 0};
}

// With release and acquire the barrier orders memory, with relaxed and relaxed it does not.
template <class Group, class Announced, class Heard>
MP_DEVICE WaitResult barrier_of(Group group, const Collective& collective, Announced announced, Heard heard) {
    const auto* inboxes = at<const std::uint64_t>(collective.inboxes);
    const std::uint64_t first = group.rank() < collective.ranks ? group.rank() : collective.rank;
    group.sync();
    // Asked for at once: the last acquire has emptied the cache, and one after the other they would take twice as long.
    std::uint64_t epoch = *at<std::uint64_t>(collective.state) + 1;
    std::uint64_t theirs = inboxes[first];
    std::uint64_t mine = inboxes[collective.rank];
    keep(epoch);
    keep(theirs);
    keep(mine);
    WaitResult result = {ok, epoch, 0};
    for (std::uint64_t rank = group.rank(); rank < collective.ranks; rank += group.size()) {
        if (rank != first) theirs = inboxes[rank];
        if (rank != collective.rank)
            store(&turn_in(theirs, collective, collective.rank, epoch)->epoch, epoch, announced, system);
    }
    for (std::uint64_t rank = group.rank(); rank < collective.ranks && !result.failed(); rank += group.size())
        if (rank != collective.rank)
            result = wait_alone(&turn_in(mine, collective, rank, epoch)->epoch, epoch, bounds_of(collective), heard);
    return end_of_run(group, collective, epoch, result);
}

}  // namespace impl

// Ends when every rank's group has called it, or the bounds end it. What every group wrote before, in whatever memory, is
// visible to every group after (release and acquire at system scope, a barrier of the group before and after).
template <class Group>
MP_DEVICE WaitResult barrier(Group group, const Collective& collective) {
    if (MP_RARELY(collective.nic != 0)) return impl::barrier_by_nic(group, collective.nic, impl::bounds_of(collective), true);
    return impl::barrier_of(group, collective, release, acquire);
}

// The same without ordering what the groups wrote, beyond their own barrier.
template <class Group>
MP_DEVICE WaitResult barrier(Group group, const Collective& collective, sync_only_t) {
    if (MP_RARELY(collective.nic != 0)) return impl::barrier_by_nic(group, collective.nic, impl::bounds_of(collective), false);
    return impl::barrier_of(group, collective, relaxed, relaxed);
}

namespace impl {

// The bits of a value, in the lower half of a value of 4 bytes.
template <class T>
MP_DEVICE std::uint64_t bits_of(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "all-reduce: elements of 4 or 8 bytes");
    union {
        std::uint64_t bits;
        T value;
    } both = {0};
    both.value = value;
    return both.bits;
}
template <class T>
MP_DEVICE T from_bits(std::uint64_t bits) {
    union {
        std::uint64_t bits;
        T value;
    } both = {bits};
    return both.value;
}

// Whether `left` is the larger; of floating-point zeros +0 is.
template <class T>
MP_DEVICE bool is_larger(T left, T right) {
    if constexpr (T(0.5) != T(0))
        return left > right || (left == right && bits_of(left) < bits_of(right));
    else
        return left > right;
}

}  // namespace impl

// What an all-reduce combines with, as ReduceOp of libmp. Ranks are combined in rank order on every rank, so all get the same
// bits. Sums of integers wrap around.
struct sum_t {
    template <class T>
    MP_DEVICE T operator()(T left, T right) const {
        if constexpr (T(0.5) != T(0))
            return left + right;
        else
            return static_cast<T>(static_cast<std::uint64_t>(left) + static_cast<std::uint64_t>(right));
    }
};
// A NaN of any rank is the result; -0 is smaller than +0.
struct min_t {
    template <class T>
    MP_DEVICE T operator()(T left, T right) const {
        if (left != left) return left;
        return right != right || impl::is_larger(left, right) ? right : left;
    }
};
struct max_t {
    template <class T>
    MP_DEVICE T operator()(T left, T right) const {
        if (left != left) return left;
        return right != right || impl::is_larger(right, left) ? right : left;
    }
};

namespace impl {

// More elements than the collective has room for.
template <class Group>
MP_COLD WaitResult too_many(Group group, std::uint64_t to_report, std::uint64_t count, std::uint64_t len) {
    return refuse(group, to_report, out_of_range, 0, count, len);
}

}  // namespace impl

// Combines `count` values of all ranks element by element, in place; at most the collective's len, else `out_of_range`, reported.
// T: float, double, or an integer of 32 or 64 bits. What the group wrote into `values` before is what is combined, and after
// ok every thread of the group sees the result. Nothing else is ordered.
template <class Group, class T, class Operation>
MP_DEVICE WaitResult all_reduce(Group group, const Collective& collective, T* values, std::uint64_t count,
                                Operation operation) {
    if (MP_RARELY(count > collective.len)) return impl::too_many(group, collective.report, count, collective.len);
    if (MP_RARELY(collective.nic != 0)) return impl::all_reduce_by_nic(group, collective.nic, impl::bounds_of(collective), values, count, operation);
    group.sync();
    const std::uint64_t epoch = *impl::at<std::uint64_t>(collective.state) + 1;
    WaitResult result = {ok, epoch, 0};
    for (std::uint64_t i = group.rank(); i < count && !result.failed(); i += group.size()) {
        const Packet packet = {impl::bits_of(values[i]), epoch};
        for (std::uint64_t rank = 0; rank < collective.ranks; ++rank)
            if (rank != collective.rank) store_packet(impl::turn_of(collective, rank, collective.rank, epoch) + i, packet);
    }
    for (std::uint64_t i = group.rank(); i < count && !result.failed(); i += group.size()) {
        T combined = values[i];
        for (std::uint64_t rank = 0; rank < collective.ranks && !result.failed(); ++rank) {
            std::uint64_t bits = impl::bits_of(values[i]);
            if (rank != collective.rank)
                result = impl::wait_packet(impl::turn_of(collective, collective.rank, rank, epoch) + i, epoch, bits,
                                           impl::bounds_of(collective));
            const T theirs = impl::from_bits<T>(bits);
            combined = rank == 0 ? theirs : operation(combined, theirs);
        }
        if (!result.failed()) values[i] = combined;
    }
    return impl::end_of_run(group, collective, epoch, result);
}

}  // namespace mp
