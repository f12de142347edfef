// What device ranks do together: barriers, windows, collectives that notify. Not to be included by itself.
#pragma once

#include "ranks_data.cuh"

namespace mp {
namespace impl {

MP_DEVICE std::uint64_t* meeting_of(const Ranks& all, MeetingWord which) {
    return at<std::uint64_t>(all.control + all.meetings + which * signal_stride);
}

// The first rank that has not come to so many barriers.
MP_COLD std::uint32_t missing_in(const Ranks& all, Team team, std::uint64_t rounds) {
    const std::uint32_t first = team == Team::world ? 0 : all.first;
    const std::uint32_t end = team == Team::world ? all.size : first + all.per_device;
    const std::uint64_t word = team == Team::world ? offsetof(RankState, world_barriers) : offsetof(RankState, device_barriers);
    for (std::uint32_t rank = first; rank < end; ++rank)
        if (state_in(all, rank, word) < rounds) return rank;
    return nobody;
}

// Ranks of a device count; the last one tells the other devices, waits for them and lets its own go.
MP_COLD WaitResult meet(const Rank self, Team team, RankCall call) {
    const Ranks& all = *self.all;
    const WaitBounds bounds = {all.abort, all.timeout_ns};
    WaitResult result = {ok, 0, 0};
    const bool world = team == Team::world;
    block().sync();
    // What this rank has asked of NICs has happened before it comes.
    if (MP_RARELY(world && all.far != 0)) result = drain_far(all, 0, all.devices, Drain::posted);
    if (block().leads()) {
        RankState* state = state_of(self);
        std::uint64_t* rounds = world ? &state->world_barriers : &state->device_barriers;
        const std::uint64_t round = *rounds + 1;
        std::uint64_t* open = meeting_of(all, world ? world_open : device_open);
        bool full = false;
        if (state->broken != 0) {
            result.status = static_cast<WaitStatus>(state->broken);
        } else if (result.failed()) {
            state->broken = result.status;
            report_rank(all, self.rank, {result.status, call, nobody, nobody, nobody, nobody, 0, round, round - 1, result.waited_ns});
        } else {
            store(rounds, round, relaxed, system);
            const std::uint64_t here = fetch_add(meeting_of(all, world ? world_here : device_here), std::uint64_t{1}, gpu) + 1;
            if (here < round * all.per_device) {
                result = wait_taking_in(self, bounds, full, [&] { return load(open, relaxed, gpu) >= round; });
                (void)load(open, acquire, gpu);
            } else {
                // Of one device all are here. Otherwise one fence is ahead of what all devices are told.
                const std::uint32_t devices = world && all.devices > 1 ? all.devices : 0;
                const std::uint64_t word = all.arrived + all.device * sizeof(std::uint64_t);
                if (devices != 0) fence(release, system);
                for (std::uint32_t device = 0; device < devices; ++device) (void)raise_in(all, device, word, round, fenced);
                const auto* arrived = at<const std::uint64_t>(all.control + all.arrived);
                for (std::uint32_t device = 0; device < devices && !result.failed(); ++device) {
                    result = wait_taking_in(self, bounds, full, [&] { return load(arrived + device, relaxed, system) >= round; });
                    (void)load(arrived + device, acquire, system);
                }
                if (!result.failed()) store(open, round, release, gpu);
            }
            if (result.failed()) {
                state->broken = result.status;
                const std::uint32_t missing = result.status == aborted ? nobody : missing_in(all, team, round);
                report_rank(all, self.rank, {result.status, call, nobody, nobody, nobody, missing, static_cast<std::uint32_t>(full),
                                             round, round - 1, result.waited_ns});
            }
        }
        result.seen = round;
    }
    return block().broadcast(result);
}

// Says to all devices of the team where this rank's share of a window is. What fails, the barrier behind it says.
MP_DEVICE void publish(const Rank& self, Team team, std::uint32_t window, const RankPart& part) {
    const Ranks& all = *self.all;
    const std::uint64_t place = address_of(part_in(all, window, self.rank)) - all.control;
    for (std::uint32_t device = 0; device < all.devices; ++device) {
        if (team == Team::device && device != all.device) continue;
        (void)raise_in(all, device, place + offsetof(RankPart, behind), part.behind);
        (void)raise_in(all, device, place + offsetof(RankPart, bytes), part.bytes);
    }
}

MP_COLD WaitResult create(const Rank self, Team team, const void* base, std::uint64_t bytes, std::uint32_t& window) {
    const Ranks& all = *self.all;
    struct Created {
        std::uint32_t number;
        WaitStatus status;
    } created = {nobody, ok};
    const std::uint64_t first = address_of(base) - all.memory;
    const bool inside = bytes == 0 || (address_of(base) >= all.memory && first <= all.bytes && bytes <= all.bytes - first);
    block().sync();
    if (block().leads()) {
        forget_routes(*self.all);
        RankState* state = state_of(self);
        std::uint64_t& taken = team == Team::world ? state->world_windows : state->device_windows;
        std::uint32_t number = 0;
        while (number < rank_windows && (taken >> number & 1) != 0) ++number;
        if (number == rank_windows) {
            created.status = no_room;
            report_rank(all, self.rank, {no_room, rank_create, nobody, nobody, nobody, nobody, 0, rank_windows + 1, rank_windows, 0});
        } else {
            taken |= std::uint64_t{1} << number;
            created.number = number + (team == Team::world ? 0 : rank_windows);
            // Of an empty share, and of one that is refused, no byte is ever reached; all the same somebody may put nothing there.
            publish(self, team, created.number, {1 + (inside && bytes != 0 ? first : 0), inside ? bytes : 0});
        }
    }
    created = block().broadcast(created);
    window = created.number;
    if (created.status != ok) return {created.status, rank_windows, 0};
    const WaitResult met = meet(self, team, rank_create);
    if (met.failed() || inside) return met;
    return refuse_rank(self, rank_create, nobody, window, nobody, first, all.bytes, bytes);
}

MP_COLD WaitResult free(const Rank self, std::uint32_t window) {
    Desk& all = *self.all;
    RankState* state = state_of(self);
    const Team team = window < rank_windows ? Team::world : Team::device;
    bool open = false;
    block().sync();
    if (block().leads()) forget_routes(all);
    if (block().leads() && window < 2 * rank_windows)
        open = ((window < rank_windows ? state->world_windows : state->device_windows) >> window % rank_windows & 1) != 0;
    if (!block().any(open)) return refuse_rank(self, rank_free, nobody, window, nobody, 0, 0, 0);
    const WaitResult met = meet(self, team, rank_free);
    if (met.failed()) return met;
    WaitResult result = met;
    if (block().leads()) {
        const Filter filter = filter_of({window, any_source, any_tag});
        // All that were sent are here, if not all in the queue.
        for (bool more = true; more;) {
            more = !take_all_in(all, self.local);
            const Queue queue = queue_of(all);
            std::uint32_t kept = 0;
            for (std::uint32_t i = 0; i < queue.held; ++i) {
                const std::uint64_t label = queue[i];
                if (!filter.takes(label)) queue[kept++] = label;
            }
            if (kept == queue.held && more) {
                result.status = no_room;
                report_rank(all, self.rank, {no_room, rank_free, nobody, window, nobody, nobody, 1, 0, kept, 0});
                more = false;
            }
            set_queue(all, queue.first, kept);
        }
        publish(self, team, window, {0, 0});
        (team == Team::world ? state->world_windows : state->device_windows) &= ~(std::uint64_t{1} << window % rank_windows);
    }
    return block().broadcast(result);
}

// ---- collectives that notify ----------------------------------------------------------------------------------

MP_DEVICE Team team_of(std::uint32_t window) { return window < rank_windows ? Team::world : Team::device; }
MP_DEVICE WaitResult refuse_collective(const Rank& self, std::uint32_t window, std::uint32_t tag, std::uint64_t at, std::uint64_t bytes) {
    return refuse_rank(self, rank_put, nobody, window, tag, at, window < 2 * rank_windows ? part_in(*self.all, window, self.rank)->bytes : 0,
                       bytes);
}

// Counts this rank of a window's team. `last` of its device: then all of that have come, and what they did before is seen. Nobody waits.
MP_COLD WaitResult come(const Rank self, std::uint32_t window, bool& last) {
    const Ranks& all = *self.all;
    WaitResult result = {ok, 0, 0};
    block().sync();
    // What this rank has asked of NICs has happened before it comes.
    if (MP_RARELY(all.far != 0 && team_of(window) == Team::world)) result = drain_far(all, 0, all.devices, Drain::posted);
    bool mine = false;
    if (block().leads() && !result.failed()) {
        fence(release, system);
        const std::uint64_t here = fetch_add(at<std::uint64_t>(all.control + all.calls) + window, std::uint64_t{1}, gpu) + 1;
        mine = here % all.per_device == 0;
        if (mine) fence(acquire, system);
    }
    last = block().any(mine);
    return result;
}

// Puts to the share of every rank of a window's team, once where several are the same memory, and notifies each.
MP_COLD WaitResult put_to_team(const Rank self, std::uint32_t window, std::uint64_t first, const void* from, std::uint64_t bytes,
                               std::uint32_t tag) {
    const Ranks& all = *self.all;
    const bool world = team_of(window) == Team::world;
    const std::uint32_t begin = world ? 0 : all.first, end = world ? all.size : all.first + all.per_device;
    WaitResult result = {ok, 0, 0};
    std::uint64_t before = 0;
    for (std::uint32_t rank = begin; rank < end && !result.failed(); ++rank) {
        const RankPart* part = part_in(all, window, rank);
        const std::uint64_t place = part->behind;
        const bool same = rank > begin && place == before && rank != first_of(all, device_of(all, rank)) && first + bytes <= part->bytes;
        before = place;
        result = transfer(self, {rank_put, window, rank, tag, same ? 0 : first, const_cast<void*>(from), same ? 0 : bytes, Tells::target});
    }
    return result;
}

template <class T, class Operation>
MP_COLD WaitResult reduce_of_device(const Rank self, std::uint32_t window, std::uint64_t from, std::uint64_t to, std::uint64_t count,
                                    const Operation operation, std::uint32_t tag) {
    const Ranks& all = *self.all;
    const std::uint64_t bytes = count * sizeof(T), mine = to + (team_of(window) == Team::world ? all.device * bytes : 0);
    // Into this rank's own share, and from there to those of the others.
    T* sums = at<T>(place_in(share_of(all, all.device, window, self.rank), mine, bytes));
    bool outside = sums == nullptr;
    for (std::uint32_t local = 0; local < all.per_device; ++local)
        outside = outside || place_in(share_of(all, all.device, window, all.first + local), from, bytes) == 0;
    if (outside) return refuse_collective(self, window, tag, from, bytes);
    for (std::uint64_t i = thread_rank(); i < count; i += block_threads()) {
        T sum = at<const T>(share_of(all, all.device, window, all.first).memory + from)[i];
        for (std::uint32_t local = 1; local < all.per_device; ++local)
            sum = operation(sum, at<const T>(share_of(all, all.device, window, all.first + local).memory + from)[i]);
        sums[i] = sum;
    }
    block().sync();
    return put_to_team(self, window, mine, sums, bytes, tag);
}

}  // namespace impl
}  // namespace mp
