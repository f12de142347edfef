// Collectives of kernels: one group of threads a rank, or for large blocks several blocks a rank. They are those that the host and
// streams start, in any mixture: one object for all kinds, whose runs are counted in the GPU's memory. Every rank calls the same
// kinds with the same sizes, roots and operations in the same order; two runs do not overlap.
//
// Every rank gives every other a block, maybe empty, directly, so they are for few ranks. Blocks of up to some KiB are packets
// (impl/collective.cuh), larger ones go through lanes: all within one group, or shared by blocks that each call it with a Part.
// Where some ranks are reached through a NIC, all put and signal in a window (impl/nic_collective.cuh), with the same contract,
// results and bits; a wait may also end with `path_failed` then, when a request to a rank has failed.
//
// A call takes what the group wrote before, and after ok its results are there for every thread of the group; what another part
// took is there when its block has returned. Nothing else is ordered, but by a barrier. A block that is larger than the collective
// has room for is refused: `out_of_range`, reported. What each rank says must be what all say: packets carry no length, so a
// rank that says another waits until its bounds end it, or takes what is there.
//
// `from` and `to` do not overlap, or a rank's own block of `from` is where its own block of `to` is, and the same of all other
// blocks that it gives: a result in place.
#pragma once

#include "impl/nic_collective.cuh"

namespace mp {

// How a barrier orders memory. `sync` orders nothing of the user's: who leaves it knows that all have come. `release`
// makes what each group wrote before, anywhere, visible to all groups after; over NVLink it costs a round trip more.
struct sync_only_t {};
constexpr sync_only_t sync_only = {};

// Barriers that a group meets at again and again in one kernel, their count in a register meanwhile, as Sender: it is read from
// memory once. Made and closed by all threads of the group; between that nobody else runs the collective.
class Barrier {
public:
    template <class Group>
    MP_DEVICE Barrier(Group group, const Collective& collective) : collective_(collective) {
        first_ = next(group, group.rank());
        // What lies between two barriers is what a barrier takes longer than its memory: where the first rank is, is worked out here.
        const auto me = static_cast<std::uint32_t>(collective.rank);
        mine_ = impl::inbox_of(collective, me);
        if (first_ < ranks()) there_ = impl::met_in(impl::inbox_of(collective, first_), me);
        group.sync();  // the last run of the group itself
    }

    // As mp::barrier.
    template <class Group>
    MP_DEVICE WaitResult wait(Group group) {
        if (MP_RARELY(collective_.nic != 0)) return impl::barrier_by_nic(group, collective_.state, impl::bounds_of(collective_), true);
        return meet(group, fenced, acquire);
    }
    template <class Group>
    MP_DEVICE WaitResult wait(Group group, sync_only_t) {
        if (MP_RARELY(collective_.nic != 0)) return impl::barrier_by_nic(group, collective_.state, impl::bounds_of(collective_), false);
        return meet(group, relaxed, relaxed);
    }

    // Writes the count back. Then others may run the collective, after a barrier of the group.
    template <class Group>
    MP_DEVICE void close(Group group) {
        // Without a meeting others of the group may still be about to read it.
        if (group.leads() && knows_) impl::at<CollectiveState>(collective_.state)->met = met_;
    }

private:
    // With `fenced` and acquire it orders memory, with relaxed and relaxed it does not. Who adds to a word has said that it is there before it
    // knows how often it has been: the count comes from memory while the first additions are on their way.
    template <class Group, class Announced, class Heard>
    MP_DEVICE WaitResult meet(Group group, Announced announced, Heard heard) {
        if (MP_RARELY(last_.failed())) return last_;
        const auto me = static_cast<std::uint32_t>(collective_.rank);
        const bool adds = collective_.adds != 0 && !knows_;
        group.sync();
        if (!adds) know();
        if (first_ < ranks()) {
            std::uint64_t* word = there_;
            impl::keep(word);
            // One for all ranks.
            if (!std::is_same_v<Heard, relaxed_t>) fence(release, system);
            for (std::uint32_t rank = first_;;) {
                if (adds)
                    add(word, std::uint64_t{1}, announced, system);
                else
                    store(word, met_ + 1, announced, system);
                rank = next(group, rank + group.size());
                if (rank >= ranks()) break;
                word = impl::met_in(impl::inbox_of(collective_, rank), me);
            }
        }
        know();
        const std::uint64_t number = met_ + 1;
        WaitResult result = {ok, number, 0};
        MP_NO_UNROLL
        for (std::uint32_t rank = first_; rank < ranks() && !result.failed(); rank = next(group, rank + group.size()))
            result = impl::wait_alone(impl::met_in(mine_, rank), number, impl::bounds_of(collective_), heard);
        if (group.any_uniform(result.failed())) {
            impl::take_back(group, collective_.state, met_);
            return last_ = impl::failed_apart(group, collective_.report, number, result);
        }
        met_ = number;
        return {ok, number, 0};
    }

    // Reads the count, once.
    MP_DEVICE void know() {
        if (!knows_) met_ = impl::at<const CollectiveState>(collective_.state)->met;
        knows_ = true;
    }
    MP_DEVICE std::uint32_t ranks() const { return static_cast<std::uint32_t>(collective_.ranks); }
    // A rank that a thread tells and hears: this one is not among them.
    template <class Group>
    MP_DEVICE std::uint32_t next(Group group, std::uint32_t rank) const {
        return rank == static_cast<std::uint32_t>(collective_.rank) ? rank + group.size() : rank;
    }

    const Collective& collective_;
    std::uint32_t first_ = 0;         // the thread's first rank
    bool knows_ = false;              // how many have been
    std::uint64_t* there_ = nullptr;  // its word at that rank
    std::uint64_t mine_ = 0;          // the own inbox
    std::uint64_t met_ = 0;
    WaitResult last_ = {ok, 0, 0};
};

// Ends when every rank's group has called it, or the bounds end it. What every group wrote before, in whatever memory, is
// visible to every group after (release and acquire at system scope, a barrier of the group before and after).
template <class Group>
MP_DEVICE WaitResult barrier(Group group, const Collective& collective) {
    Barrier barrier(group, collective);
    const WaitResult result = barrier.wait(group);
    barrier.close(group);
    return result;
}

// The same without ordering what the groups wrote, beyond their own barrier.
template <class Group>
MP_DEVICE WaitResult barrier(Group group, const Collective& collective, sync_only_t) {
    Barrier barrier(group, collective);
    const WaitResult result = barrier.wait(group, sync_only);
    barrier.close(group);
    return result;
}

namespace impl {

// What does not go by the first rings: more than there is room for, more than they carry, through a NIC.
template <class Group, class Take>
MP_COLD WaitResult run_otherwise(Group group, std::uint64_t state, const WaitBounds bounds, const Blocks gives, const Blocks takes,
                                 std::uint64_t most, const Take take, const Part part) {
    const Collective& collective = at<const CollectiveState>(state)->collective;
    if (most > collective.bytes) return refuse(group, collective.report, out_of_range, 0, most, collective.bytes);
    if (collective.nic == 0) return run_by_shares(group, state, bounds, gives, takes, most, take, part);
    if (part.index != 0) return {ok, 0, 0};
    return run_by_nic(group, state, bounds, gives, takes, most, take);
}

// A run whose largest block on any rank has `most` bytes, which are the same on all ranks.
template <class Group, class Take>
MP_DEVICE WaitResult run(Group group, const Collective& collective, const Blocks& gives, const Blocks& takes, std::uint64_t most,
                         const Take& take, const Part& part) {
    if (MP_RARELY(most > 8 * collective.len || collective.nic != 0))
        return run_otherwise(group, collective.state, bounds_of(collective), gives, takes, most, take, part);
    if (part.index != 0) return {ok, 0, 0};
    return run_by_packets(group, collective, gives, takes, RingShare{0, 0, words_of(most)}, take);
}

MP_DEVICE Blocks one_block(const void* memory, std::uint64_t bytes, std::uint64_t first, std::uint64_t end) {
    return {address_of(memory), 0, bytes, bytes, 0, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end)};
}
MP_DEVICE Blocks row_of_blocks(const void* memory, std::uint64_t bytes, std::uint64_t first, std::uint64_t end) {
    return {address_of(memory), bytes, bytes, end * bytes, 0, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end)};
}

// The two halves of a large all-reduce of three and more ranks, each of which combines a part of the values: it gives the others
// theirs, and then what it has combined. What is combined in a ring or a lane is gathered in the same, so that a block of threads
// waits for no other.
struct AllReduceHalves {
    Blocks apart, mine, combined, whole;

    MP_DEVICE AllReduceHalves(const Collective& collective, const void* from, void* to, std::uint64_t bytes) {
        const std::uint64_t ranks = collective.ranks;
        const std::uint64_t each = ((bytes + ranks - 1) / ranks + 15) / 16 * 16, first = collective.rank * each;
        const std::uint64_t left = first < bytes ? bytes - first : 0;
        const auto end = static_cast<std::uint32_t>(ranks);
        apart = {address_of(from), each, each, bytes, 0, 0, end};
        mine = combined = one_block(static_cast<const unsigned char*>(to) + first, left < each ? left : each, 0, ranks);
        whole = {address_of(to), each, each, bytes, 0, 0, end};
    }
};
MP_DEVICE bool goes_in_halves(const Collective& collective, std::uint64_t bytes) {
    return collective.ranks > 2 && collective.nic == 0 && bytes > 8 * collective.len && bytes <= collective.bytes;
}
template <class Group, class Take>
MP_COLD WaitResult all_reduce_in_halves(Group group, std::uint64_t state, const WaitBounds bounds, const void* from, void* to,
                                        std::uint64_t bytes, const Take take, const Part part) {
    const AllReduceHalves halves(at<const CollectiveState>(state)->collective, from, to, bytes);
    const std::uint64_t most = halves.apart.bytes;
    const WaitResult result = run_by_shares(group, state, bounds, halves.apart, halves.mine, most, take, part);
    return result.failed() ? result : run_by_shares(group, state, bounds, halves.combined, halves.whole, most, PlaceBytes{}, part);
}

}  // namespace impl

// Gives every rank the `bytes` bytes of `root`.
template <class Group>
MP_DEVICE WaitResult broadcast(Group group, const Collective& collective, std::uint64_t root, void* memory, std::uint64_t bytes,
                               Part part = Part{}) {
    const std::uint64_t end = collective.rank == root ? collective.ranks : 0;
    const auto takes = impl::one_block(memory, bytes, root, root + 1);
    return impl::run(group, collective, impl::one_block(memory, bytes, 0, end), takes, bytes, impl::PlaceBytes{}, part);
}

// Gives every rank the `bytes` bytes of all, in rank order at `to`.
template <class Group>
MP_DEVICE WaitResult all_gather(Group group, const Collective& collective, const void* from, void* to, std::uint64_t bytes,
                                Part part = Part{}) {
    const auto gives = impl::one_block(from, bytes, 0, collective.ranks);
    return impl::run(group, collective, gives, impl::row_of_blocks(to, bytes, 0, collective.ranks), bytes, impl::PlaceBytes{}, part);
}

// The same at rank `root`; the others' `to` is not used.
template <class Group>
MP_DEVICE WaitResult gather(Group group, const Collective& collective, std::uint64_t root, const void* from, void* to,
                            std::uint64_t bytes, Part part = Part{}) {
    const std::uint64_t end = collective.rank == root ? collective.ranks : 0;
    const auto gives = impl::one_block(from, bytes, root, root + 1);
    return impl::run(group, collective, gives, impl::row_of_blocks(to, bytes, 0, end), bytes, impl::PlaceBytes{}, part);
}

// Gives each rank `bytes` bytes of those at `from` of rank `root`, in rank order; the others' `from` is not used.
template <class Group>
MP_DEVICE WaitResult scatter(Group group, const Collective& collective, std::uint64_t root, const void* from, void* to,
                             std::uint64_t bytes, Part part = Part{}) {
    const std::uint64_t end = collective.rank == root ? collective.ranks : 0;
    const auto gives = impl::row_of_blocks(from, bytes, 0, end);
    return impl::run(group, collective, gives, impl::one_block(to, bytes, root, root + 1), bytes, impl::PlaceBytes{}, part);
}

// Gives each rank `bytes` bytes at `from`, and takes as many of each to `to`, both in rank order.
template <class Group>
MP_DEVICE WaitResult all_to_all(Group group, const Collective& collective, const void* from, void* to, std::uint64_t bytes,
                                Part part = Part{}) {
    const auto gives = impl::row_of_blocks(from, bytes, 0, collective.ranks);
    return impl::run(group, collective, gives, impl::row_of_blocks(to, bytes, 0, collective.ranks), bytes, impl::PlaceBytes{}, part);
}

// The same with blocks of any size and place: `given` and `taken` have an Extent for each rank, in this GPU's memory. What a rank gives
// another is as long as what the other takes from it.
template <class Group>
MP_DEVICE WaitResult all_to_all_v(Group group, const Collective& collective, const void* from, const Extent* given, void* to,
                                  const Extent* taken, Part part = Part{}) {
    const auto end = static_cast<std::uint32_t>(collective.ranks);
    const Blocks gives = {impl::address_of(from), 0, 0, 0, impl::address_of(given), 0, end};
    const Blocks takes = {impl::address_of(to), 0, 0, 0, impl::address_of(taken), 0, end};
    const std::uint64_t most_given = impl::most_of(gives, end), most_taken = impl::most_of(takes, end);
    const std::uint64_t most = most_given < most_taken ? most_taken : most_given;
    // How they go is what all ranks know: by the room there is.
    return impl::run(group, collective, gives, takes, most > collective.bytes ? most : collective.bytes, impl::PlaceBytes{}, part);
}

// Combines `count` values of all ranks element by element in rank order; every rank gets the same bits. T: float, double, f16, bf16,
// or an integer of 32 or 64 bits.
template <class Group, class T, class Operation>
MP_DEVICE WaitResult all_reduce(Group group, const Collective& collective, const T* from, T* to, std::uint64_t count,
                                Operation operation, Part part = Part{}) {
    const impl::Combine<T, Operation> take = {operation};
    const std::uint64_t bytes = count * sizeof(T);
    if (MP_RARELY(impl::goes_in_halves(collective, bytes)))
        return impl::all_reduce_in_halves(group, collective.state, impl::bounds_of(collective), from, to, bytes, take, part);
    const auto gives = impl::one_block(from, bytes, 0, collective.ranks);
    return impl::run(group, collective, gives, impl::one_block(to, bytes, 0, collective.ranks), bytes, take, part);
}
// In place.
template <class Group, class T, class Operation>
MP_DEVICE WaitResult all_reduce(Group group, const Collective& collective, T* values, std::uint64_t count, Operation operation) {
    return all_reduce(group, collective, values, values, count, operation);
}

// The same for rank `root` alone; the others' `to` is not used.
template <class Group, class T, class Operation>
MP_DEVICE WaitResult reduce(Group group, const Collective& collective, std::uint64_t root, const T* from, T* to,
                            std::uint64_t count, Operation operation, Part part = Part{}) {
    const std::uint64_t bytes = count * sizeof(T), end = collective.rank == root ? collective.ranks : 0;
    const auto gives = impl::one_block(from, bytes, root, root + 1);
    return impl::run(group, collective, gives, impl::one_block(to, bytes, 0, end), bytes, impl::Combine<T, Operation>{operation}, part);
}

// Combines what each rank has for this one: `count` values of each at `from`, for the ranks in order.
template <class Group, class T, class Operation>
MP_DEVICE WaitResult reduce_scatter(Group group, const Collective& collective, const T* from, T* to, std::uint64_t count,
                                    Operation operation, Part part = Part{}) {
    const std::uint64_t bytes = count * sizeof(T);
    const auto gives = impl::row_of_blocks(from, bytes, 0, collective.ranks);
    return impl::run(group, collective, gives, impl::one_block(to, bytes, 0, collective.ranks), bytes,
                     impl::Combine<T, Operation>{operation}, part);
}

// Combines the values of the ranks up to this one, itself included.
template <class Group, class T, class Operation>
MP_DEVICE WaitResult scan(Group group, const Collective& collective, const T* from, T* to, std::uint64_t count,
                          Operation operation, Part part = Part{}) {
    const std::uint64_t bytes = count * sizeof(T);
    const auto gives = impl::one_block(from, bytes, collective.rank, collective.ranks);
    const auto takes = impl::one_block(to, bytes, 0, collective.rank + 1);
    return impl::run(group, collective, gives, takes, bytes, impl::Combine<T, Operation>{operation}, part);
}

}  // namespace mp
