// Collectives of ranks some of which are behind a NIC: what impl/collective.cuh does with packets in mapped memory, by puts and
// signals of a window. Not to be included by itself. Every rank has a signal at every other, which it raises twice a run, and
// a row in every other's share for each of two turns; what is longer than a row takes several runs. One group of threads.
//
// A queue is executed in order, but queues to different ranks are not: hearing that a rank has come says that what it put here
// has arrived, not what it put elsewhere. So a barrier that orders memory has two rounds: after the first a rank knows that
// what all have put to it is there, after the second that all know. Signals and values go by the first context; what was put by
// others is waited for before.
#pragma once

#include "../window.cuh"
#include "collective.cuh"

namespace mp {
namespace impl {

// What is behind a NIC takes the address of the state, and of the handle only what ends waits: the handle then stays where it
// is, among the kernel's parameters.

MP_DEVICE std::uint64_t row_bytes(const Collective& collective) { return 8 * collective.len; }

// Where the row of a rank is in a share, from its beginning; behind all rows is one that puts are made from.
MP_DEVICE std::uint64_t row_offset(const Collective& collective, std::uint64_t from, std::uint64_t run) {
    return (run % 2 * collective.ranks + from) * row_bytes(collective);
}
MP_DEVICE std::uint64_t outgoing_row(const Collective& collective) { return 2 * collective.ranks * row_bytes(collective); }

// The number of a run's first or last round.
MP_DEVICE std::uint64_t first_round(std::uint64_t run) { return 2 * run - 1; }
MP_DEVICE std::uint64_t last_round(std::uint64_t run) { return 2 * run; }

// Gives every other rank its block's bytes from `first` on, as far as they fill a row, then raises this rank's signals to `round`.
// The result is every thread's.
template <class Group>
MP_COLD WaitResult tell_all(Group group, const CollectiveState& state, const WaitBounds bounds, const Blocks gives,
                            std::uint64_t first, std::uint64_t run, std::uint64_t round) {
    const Window& window = state.window;
    const std::uint64_t row = row_bytes(state.collective), offset = row_offset(state.collective, window.rank, run);
    const std::uint64_t outgoing = part_of(window, window.rank)->memory + outgoing_row(state.collective);
    for (std::uint64_t rank = 0; rank < window.ranks; ++rank) {
        if (rank == window.rank) continue;
        const WindowPart& share = *part_of(window, rank);
        const std::uint64_t word = share.signals + window.rank * signal_stride;
        const BlockAt block = block_of(gives, rank);
        const std::uint64_t left = first < block.bytes ? block.bytes - first : 0;
        const std::uint64_t bytes = left < row ? left : row;
        std::uint64_t from = block.address + first;
        if (share.nic == 0) {
            copy(group, at<void>(share.memory + offset), at<const void>(from), bytes);
            mp::signal(group, at<std::uint64_t>(word), round);
            continue;
        }
        const auto& nic = *at<const NicPart>(share.nic);
        if (bytes > inline_bytes) {
            // The values are not registered, and too many to go inside the entry.
            group.sync();
            copy(group, at<void>(outgoing), at<const void>(from), bytes);
            group.sync();
            from = outgoing;
        }
        const Batch batch = {from, bytes, {share.memory + offset, nic.memory_key}, nic.own_key, 1, {word, nic.signals_key}, round};
        const PostStatus status = post_batch(group, nic.queue, batch, bounds);
        if (status != PostStatus::ok) return result_of(status, round);
    }
    return {ok, round, 0};
}

// Waits for the signals of the others that are `awaited`, a thread for each; what ended a wait of one is every thread's.
template <class Group, class Awaited>
MP_DEVICE WaitResult hear(Group group, const CollectiveState& state, const WaitBounds& bounds, std::uint64_t round, const Awaited& awaited) {
    const Window& window = state.window;
    const std::uint64_t signals = part_of(window, window.rank)->signals;
    WaitResult result = {ok, round, 0};
    for (std::uint64_t rank = group.rank(); rank < window.ranks && !result.failed(); rank += group.size()) {
        if (rank == window.rank || !awaited(rank)) continue;
        const auto* word = at<const std::uint64_t>(signals + rank * signal_stride);
        const WindowPart& share = *part_of(window, rank);
        result = share.nic == 0 ? wait_alone(word, round, bounds)
                                : wait_beside(word, round, at<const NicPart>(share.nic)->queue, bounds);
    }
    if (group.any(result.failed())) {
        const bool lost = group.any(result.status == path_failed);
        const bool ended = group.any(result.status == aborted);
        report(at<WaitReport>(state.collective.report), round, result);
        result.status = lost ? path_failed : ended ? aborted : timed_out;
    }
    return result;
}
template <class Group>
MP_COLD WaitResult hear_all(Group group, const CollectiveState& state, const WaitBounds bounds, std::uint64_t round) {
    return hear(group, state, bounds, round, [](std::uint64_t) { return true; });
}

// A failure of tell_all goes into the report, as hear's.
template <class Group>
MP_DEVICE WaitResult told(Group group, const CollectiveState& state, std::uint64_t round, const WaitResult& result) {
    if (result.failed() && group.leads()) report(at<WaitReport>(state.collective.report), round, result);
    return result;
}

// Ends a run that went well.
template <class Group>
MP_DEVICE WaitResult end_of_nic_run(Group group, CollectiveState& state, std::uint64_t run, bool heard) {
    if (group.leads()) {
        state.ring.runs = run;
        if (heard) state.ring.heard = run;
    }
    return {ok, run, 0};
}

// One round of signals without data.
template <class Group>
MP_DEVICE WaitResult meet(Group group, const CollectiveState& state, const WaitBounds& bounds, std::uint64_t run, std::uint64_t round) {
    const WaitResult result = told(group, state, round, tell_all(group, state, bounds, Blocks{}, 0, run, round));
    return result.failed() ? result : hear_all(group, state, bounds, round);
}

// The barrier; one that orders memory has two rounds.
template <class Group>
MP_COLD WaitResult barrier_by_nic(Group group, std::uint64_t memory, const WaitBounds bounds, bool ordered) {
    auto& state = *at<CollectiveState>(memory);
    group.sync();
    const std::uint64_t run = state.ring.runs + 1;
    WaitResult result = {ok, run, 0};
    if (ordered) {
        const Window& window = state.window;
        result = told(group, state, first_round(run), drain(group, window, 0, window.ranks, 1, Drain::posted));
        if (!result.failed()) result = meet(group, state, bounds, run, first_round(run));
    }
    if (!result.failed()) result = meet(group, state, bounds, run, last_round(run));
    return result.failed() ? result : end_of_nic_run(group, state, run, true);
}

// The bytes of the largest block of any rank, of which each knows its own: a run of its own.
template <class Group>
MP_COLD WaitResult agree_by_nic(Group group, std::uint64_t memory, const WaitBounds bounds, std::uint64_t mine, std::uint64_t& most) {
    auto& state = *at<CollectiveState>(memory);
    const Collective& collective = state.collective;
    const std::uint64_t share = part_of(state.window, collective.rank)->memory, said = share + outgoing_row(collective);
    group.sync();
    const std::uint64_t run = state.ring.runs + 1, round = last_round(run);
    WaitResult result = {ok, round, 0};
    if (state.ring.heard != state.ring.runs) result = hear_all(group, state, bounds, last_round(run - 1));
    if (result.failed()) return result;
    if (group.leads()) *at<std::uint64_t>(said) = mine;
    group.sync();
    const Blocks word = {said, 0, sizeof mine, sizeof mine, 0, 0, static_cast<std::uint32_t>(collective.ranks)};
    result = told(group, state, round, tell_all(group, state, bounds, word, 0, run, round));
    if (!result.failed()) result = hear_all(group, state, bounds, round);
    if (result.failed()) return result;
    most = mine;
    for (std::uint64_t rank = 0; rank < collective.ranks; ++rank) {
        if (rank == collective.rank) continue;
        const std::uint64_t theirs = *at<const std::uint64_t>(share + row_offset(collective, rank, run));
        most = theirs > most ? theirs : most;
    }
    // The run does not end before all of the group have read it.
    group.sync();
    return end_of_nic_run(group, state, run, true);
}

// Blocks of at most `most` bytes: a run for each row. Every rank says the same `most`; of blocks in a table it is the room there is, and
// the ranks agree on how many rows they have.
template <class Group, class Take>
MP_COLD WaitResult run_by_nic(Group group, std::uint64_t memory, const WaitBounds bounds, const Blocks gives, const Blocks takes,
                              std::uint64_t most, const Take take) {
    auto& state = *at<CollectiveState>(memory);
    const Collective& collective = state.collective;
    const std::uint64_t row = row_bytes(collective);
    const std::uint64_t share = part_of(state.window, collective.rank)->memory;
    std::uint64_t first = 0;
    WaitResult result = {ok, 0, 0};
    if (gives.table != 0 && most > row && collective.ranks > 1) {
        const std::uint64_t given = most_of(gives, collective.ranks), taken = most_of(takes, collective.ranks);
        result = agree_by_nic(group, memory, bounds, given < taken ? taken : given, most);
        if (result.failed() || most == 0) return result;
    }
    do {
        group.sync();
        const std::uint64_t run = state.ring.runs + 1, round = last_round(run);
        if (state.ring.heard != state.ring.runs) {
            result = hear_all(group, state, bounds, last_round(run - 1));
            if (result.failed()) return result;
        }
        result = told(group, state, round, tell_all(group, state, bounds, gives, first, run, round));
        if (result.failed()) return result;
        result = hear(group, state, bounds, round, [&](std::uint64_t rank) { return block_of(takes, rank).bytes > first; });
        if (result.failed()) return result;
        const Sources sources = {&collective, block_of(gives, collective.rank).address + first, 0, 0, share + row_offset(collective, 0, run)};
        take_pieces(group, takes, first, row, sources, take);
        // Nobody's values are sent again, or the run ended, before all of the group have taken theirs.
        group.sync();
        result = end_of_nic_run(group, state, run, is_of_all(takes, collective.ranks, first));
        first += row;
    } while (first < most);
    group.sync();
    return result;
}

}  // namespace impl
}  // namespace mp
