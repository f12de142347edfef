// Barrier and all-reduce of ranks some of which are behind a NIC: what collective.cuh does with packets in mapped memory, by
// puts and signals of a window. Not to be included by itself. Every rank has a signal at every other, which it raises twice a
// run, and for an all-reduce a place in every other's share.
//
// A queue is executed in order, but queues to different ranks are not: hearing that a rank has come says that what it put here
// has arrived, not what it put elsewhere. So a barrier that orders memory has two rounds: after the first a rank knows that
// what all have put to it is there, after the second that all know.
#pragma once

#include "../window.cuh"

namespace mp {
namespace impl {

MP_DEVICE WaitBounds bounds_of(const Collective& collective) { return {collective.abort, collective.timeout_ns}; }
MP_DEVICE const Window& window_of(const Collective& collective) { return at<const NicCollective>(collective.nic)->window; }

MP_DEVICE std::uint64_t next_run(const Collective& collective) {
    return *at<std::uint64_t>(collective.state) + 1;
}

// A run in two turns, as with packets: a rank that has heard all others of run n knows that nobody reads the turn of n - 1 any
// more, which n + 1 overwrites. Where the words of a rank are in a share.
MP_DEVICE std::uint64_t turn_offset(const Collective& collective, std::uint64_t from, std::uint64_t run) {
    return (run % 2 * collective.ranks + from) * collective.len * 8;
}

// The number of a run's first or last round.
MP_DEVICE std::uint64_t first_round(std::uint64_t run) { return 2 * run - 1; }
MP_DEVICE std::uint64_t last_round(std::uint64_t run) { return 2 * run; }

// Puts `bytes` to byte `offset` of every other rank's share, then raises this rank's signals to `round`. The result is every
// thread's.
template <class Group>
MP_COLD WaitResult tell_all(Group group, const Collective& collective, const WaitBounds bounds, std::uint64_t offset,
                            const void* from, std::uint64_t bytes, std::uint64_t round) {
    const Window& window = window_of(collective);
    for (std::uint64_t rank = 0; rank < window.ranks; ++rank) {
        if (rank == window.rank) continue;
        const WindowPart& share = *part_of(window, rank);
        const std::uint64_t word = share.signals + window.rank * signal_stride;
        if (share.nic == 0) {
            copy(group, at<void>(share.memory + offset), from, bytes);
            mp::signal(group, at<std::uint64_t>(word), round);
            continue;
        }
        const auto& nic = *at<const NicPart>(share.nic);
        std::uint64_t done = 0;
        do {
            // The values are not registered: they go inside the entries.
            const std::uint64_t left = bytes - done;
            const std::uint64_t now = left < inline_bytes ? left : inline_bytes;
            const Batch batch = {address_of(from) + done, now, {share.memory + offset + done, nic.memory_key}, 0, now == left,
                                 {word, nic.signals_key}, round};
            const PostStatus status = post_batch(group, nic.queue, batch, bounds);
            if (status != PostStatus::ok) return result_of(status, round);
            done += now;
        } while (done < bytes);
    }
    return {ok, round, 0};
}

// Waits for the signals of all others, a thread for each; what ended a wait of one is every thread's.
template <class Group>
MP_COLD WaitResult hear_all(Group group, const Collective& collective, const WaitBounds bounds, std::uint64_t round) {
    const Window& window = window_of(collective);
    const std::uint64_t signals = part_of(window, window.rank)->signals;
    WaitResult result = {ok, round, 0};
    for (std::uint64_t rank = group.rank(); rank < window.ranks && !result.failed(); rank += group.size()) {
        if (rank == window.rank) continue;
        const auto* word = at<const std::uint64_t>(signals + rank * signal_stride);
        const WindowPart& share = *part_of(window, rank);
        result = share.nic == 0 ? wait_alone(word, round, bounds)
                                : wait_beside(word, round, at<const NicPart>(share.nic)->queue, bounds);
    }
    if (group.any(result.failed())) {
        const bool lost = group.any(result.status == path_failed);
        const bool ended = group.any(result.status == aborted);
        report(at<WaitReport>(collective.report), round, result);
        result.status = lost ? path_failed : ended ? aborted : timed_out;
    }
    return result;
}

// Ends a run that went well.
template <class Group>
MP_DEVICE WaitResult end_of_nic_run(Group group, const Collective& collective, std::uint64_t run) {
    if (group.leads()) *at<std::uint64_t>(collective.state) = run;
    return {ok, run, 0};
}

// A failure of tell_all goes into the report, as hear_all's.
template <class Group>
MP_DEVICE WaitResult told(Group group, const Collective& collective, std::uint64_t round, const WaitResult& result) {
    if (result.failed() && group.leads()) report(at<WaitReport>(collective.report), round, result);
    return result;
}

// One round of signals without data.
template <class Group>
MP_DEVICE WaitResult meet(Group group, const Collective& collective, const WaitBounds& bounds, std::uint64_t round) {
    const WaitResult result = told(group, collective, round, tell_all(group, collective, bounds, 0, nullptr, 0, round));
    return result.failed() ? result : hear_all(group, collective, bounds, round);
}

// What follows takes the address of a NicCollective, and of the handle only what ends waits: it then stays where it is, among
// the kernel's parameters.

// The barrier; one that orders memory has two rounds.
template <class Group>
MP_COLD WaitResult barrier_by_nic(Group group, std::uint64_t nic, const WaitBounds bounds, bool ordered) {
    const Collective& collective = at<const NicCollective>(nic)->collective;
    group.sync();
    const std::uint64_t run = next_run(collective);
    WaitResult result = {ok, run, 0};
    if (ordered) result = meet(group, collective, bounds, first_round(run));
    if (!result.failed()) result = meet(group, collective, bounds, last_round(run));
    return result.failed() ? result : end_of_nic_run(group, collective, run);
}

template <class Group, class T, class Operation>
MP_COLD WaitResult all_reduce_by_nic(Group group, std::uint64_t nic, const WaitBounds bounds, T* values, std::uint64_t count,
                                     Operation operation) {
    const Collective& collective = at<const NicCollective>(nic)->collective;
    group.sync();
    const Window& window = window_of(collective);
    const std::uint64_t run = next_run(collective), round = last_round(run);
    const std::uint64_t place = turn_offset(collective, window.rank, run);
    WaitResult result = tell_all(group, collective, bounds, place, values, count * sizeof(T), round);
    if (told(group, collective, round, result).failed()) return result;
    result = hear_all(group, collective, bounds, round);
    if (result.failed()) return result;
    const std::uint64_t share = part_of(window, window.rank)->memory;
    for (std::uint64_t i = group.rank(); i < count; i += group.size()) {
        T combined = values[i];
        for (std::uint64_t rank = 0; rank < window.ranks; ++rank) {
            const T* row = at<const T>(share + turn_offset(collective, rank, run));
            const T theirs = rank == window.rank ? values[i] : row[i];
            combined = rank == 0 ? theirs : operation(combined, theirs);
        }
        values[i] = combined;
    }
    // Nobody's values are sent again before all of the group have combined theirs.
    group.sync();
    return end_of_nic_run(group, collective, run);
}

}  // namespace impl
}  // namespace mp
