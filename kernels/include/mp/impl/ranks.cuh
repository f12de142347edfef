// What is behind ranks.cuh. Not to be included by itself.
//
// Notifications come by rings, one for each source device and target rank, in the target's memory. A sender takes the ring's next ticket by
// an atomic on a word of its own device, and stores a packet: the label, and the ticket after it as epoch. How far the target has read it
// stores into the senders' device. So no atomic crosses a link. A ticket is only taken when its slot is free: who gives up leaves no hole.
//
// The target's leader takes what has come out of the rings into the rank's queue, in which a label is matched: what fits one pattern may
// have come before what fits another. The queue is a ring of words that nobody else writes or reads.
#pragma once

#include "../ranks.cuh"

// One copy of each in a kernel, not one wherever it is called: a rank needs its registers for what it computes, and its calls are few.
#define MP_CALL MP_COLD

namespace mp {
namespace impl {

constexpr std::uint32_t window_shift = tag_bits, source_shift = tag_bits + window_bits;
constexpr std::uint32_t nobody = ~std::uint32_t{0};
static_assert(nobody == any_source && nobody == any_window && nobody == any_tag, "a report says any and none alike");
static_assert(rank_bits + window_bits + tag_bits == 64, "a label is a word");

MP_DEVICE bool is_tag(std::uint32_t tag) { return tag >> tag_bits == 0; }
MP_DEVICE std::uint64_t label_of(std::uint32_t source, std::uint32_t window, std::uint32_t tag) {
    return std::uint64_t{source} << source_shift | std::uint64_t{window} << window_shift | tag;
}
MP_DEVICE Notification notification_of(std::uint64_t label) {
    return {static_cast<std::uint32_t>(label >> window_shift) & ((1u << window_bits) - 1),
            static_cast<std::uint32_t>(label >> source_shift), static_cast<std::uint32_t>(label) & ((1u << tag_bits) - 1)};
}

// The labels that a wait takes: those that have `value` where the mask is.
struct Filter {
    std::uint64_t value;
    std::uint64_t mask;

    MP_DEVICE bool takes(std::uint64_t label) const { return ((label ^ value) & mask) == 0; }
};
MP_DEVICE Filter filter_of(const Wanted& wanted) {
    Filter filter = {0, 0};
    const auto field = [&filter](bool any, std::uint64_t value, std::uint32_t bits, std::uint32_t shift) {
        if (any) return;
        filter.value |= value << shift;
        filter.mask |= ((std::uint64_t{1} << bits) - 1) << shift;
    };
    field(wanted.source == any_source, wanted.source, rank_bits, source_shift);
    field(wanted.window == any_window, wanted.window, window_bits, window_shift);
    field(wanted.tag == any_tag, wanted.tag, tag_bits, 0);
    return filter;
}

// ---- places ---------------------------------------------------------------------------------------------------

MP_DEVICE std::uint64_t control_of(const Ranks& all, std::uint32_t device) {
    return device == all.device ? all.control : fixed(at<const std::uint64_t>(all.controls)[device]);
}
MP_DEVICE RankState* state_in(const Ranks& all, std::uint32_t rank) {
    const std::uint32_t device = rank / all.per_device;
    return at<RankState>(control_of(all, device) + all.states) + (rank - device * all.per_device);
}
MP_DEVICE RankState* state_of(const Rank& self) { return at<RankState>(self.all.control + self.all.states) + self.local; }
MP_DEVICE std::uint32_t size_of_world(const Ranks& all) { return all.devices * all.per_device; }

// Windows of the world have the lower numbers.
MP_DEVICE RankPart* part_in(const Ranks& all, std::uint32_t device, std::uint32_t window, std::uint32_t rank) {
    return at<RankPart>(control_of(all, device) + all.parts) + std::uint64_t{window} * size_of_world(all) + rank;
}
MP_DEVICE std::uint64_t place_of(const Rank& self, std::uint32_t window, std::uint32_t rank, std::uint64_t first, std::uint64_t bytes) {
    if (window >= 2 * rank_windows || rank >= size_of_world(self.all)) return 0;
    const RankPart* part = part_in(self.all, self.all.device, window, rank);
    const std::uint64_t memory = part->memory, length = part->bytes;
    if (memory == 0 || first > length || bytes > length - first) return 0;
    return memory + first;
}

// The leader's fence: at the scope of whoever is in the world.
MP_DEVICE void fence_for(const Rank& self) {
    if (self.all.devices == 1)
        fence(gpu);
    else
        fence(system);
}

// ---- failures -------------------------------------------------------------------------------------------------

struct RankFailure {
    WaitStatus status;
    RankCall call;
    std::uint32_t peer, window, tag, missing, full;
    std::uint64_t wanted, have, waited_ns;
};

MP_COLD void report_rank(const Ranks all, std::uint32_t rank, const RankFailure failure) {
    auto* slot = at<RankReport>(all.control + all.report);
    if (fetch(&slot->claimed, replace, std::uint32_t{1}, gpu, relaxed) != 0) return;
    std::uint32_t missing = failure.missing;
    // Who is waited for alone is missing if it will not come. Of a world that is lost nobody is asked: its memory may be gone.
    if (failure.status == timed_out && missing == nobody && failure.peer < size_of_world(all)) missing = failure.peer;
    slot->phase = missing == nobody ? 0 : static_cast<std::uint32_t>(load(&state_in(all, missing)->phase, relaxed, system));
    slot->call = failure.call;
    slot->rank = rank;
    slot->peer = failure.peer;
    slot->window = failure.window;
    slot->tag = failure.tag;
    slot->missing = missing;
    slot->full = failure.full;
    slot->wanted = failure.wanted;
    slot->have = failure.have;
    slot->waited_ns = failure.waited_ns;
    store(&slot->status, static_cast<std::uint32_t>(failure.status), release, system);
}

// A call that is refused, for `bytes` bytes from `first` on of `size`.
MP_COLD WaitResult refuse_rank(const Rank& self, RankCall call, std::uint32_t peer, std::uint32_t window, std::uint32_t tag,
                               std::uint64_t first, std::uint64_t size, std::uint64_t bytes) {
    if (block().leads())
        report_rank(self.all, self.rank, {bad_argument, call, peer, window, tag, nobody, 0, first, size, bytes});
    return {bad_argument, size, 0};
}

// ---- notifications --------------------------------------------------------------------------------------------

// Takes what has come into the queue. False if there is more than it has room for. By the leader.
MP_COLD bool take_in(const Ranks& all, std::uint32_t local) {
    RankState* state = at<RankState>(all.control + all.states) + local;
    auto* queue = at<std::uint64_t>(all.control + all.queues) + std::uint64_t{local} * all.spill;
    auto* positions = at<RankPosition>(all.control + all.positions) + std::uint64_t{local} * all.devices;
    const auto* rings = at<const Packet>(all.control + all.rings) + std::uint64_t{local} * all.devices * all.slots;
    const std::uint64_t first = state->first, before = state->count;
    std::uint64_t count = before;
    bool room = true;
    for (std::uint32_t device = 0; device < all.devices; ++device) {
        const Packet* ring = rings + std::uint64_t{device} * all.slots;
        const std::uint64_t began = positions[device].next;
        std::uint64_t next = began;
        for (;; ++next, ++count) {
            const Packet packet = load_packet(ring + (next & (all.slots - 1)));
            if (packet.epoch != next + 1) break;
            room = count < all.spill;
            if (!room) break;
            queue[(first + count) & (all.spill - 1)] = packet.data;
        }
        if (next == began) continue;
        positions[device].next = next;
        // Half a ring at once: a full ring has been read by then. The slots have been read before they are given back.
        if (next - positions[device].told < (all.slots + 1) / 2) continue;
        positions[device].told = next;
        auto* tails = at<std::uint64_t>(control_of(all, device) + all.tails);
        store(tails + all.device * all.per_device + local, next, release, system);
    }
    if (count != before) state->count = count;
    return room;
}

// Waits for `is`, which looks at a word, and takes in meanwhile what comes. By the leader. `full`: its queue was at the last look.
template <class Is>
MP_DEVICE WaitResult wait_taking_in(const Rank& self, const WaitBounds& bounds, bool& full, const Is& is) {
    const WaitResult result = wait_for(
        [&](std::uint64_t&) {
            if (is()) return true;
            full = !take_in(self.all, self.local);
            return false;
        },
        bounds);
    if (result.status == timed_out && full) return {no_room, result.seen, result.waited_ns};
    return result;
}

// One thread's notification of a rank; what it comes behind has been fenced.
MP_DEVICE WaitResult notify_one(const Rank& self, std::uint32_t target, std::uint64_t label, const WaitBounds& bounds) {
    const Ranks& all = self.all;
    auto* head = at<std::uint64_t>(all.control + all.heads) + target;
    const auto* tail = at<const std::uint64_t>(all.control + all.tails) + target;
    std::uint64_t ticket = 0;
    // The slot is written behind the branch that saw it free.
    const auto claim = [&] {
        std::uint64_t next = load(head, relaxed, gpu);
        while (next - load(tail, relaxed, system) < all.slots) {
            ticket = next;
            next = compare_swap(head, ticket, ticket + 1, gpu, relaxed);
            if (next == ticket) return true;
        }
        return false;
    };
    if (!claim()) {
        bool full = false;
        const WaitResult result = wait_taking_in(self, bounds, full, claim);
        if (result.failed()) {
            const Notification what = notification_of(label);
            report_rank(all, self.rank, {result.status, rank_notify, target, what.window, what.tag, nobody,
                                         static_cast<std::uint32_t>(full), 1, 0, result.waited_ns});
            return result;
        }
    }
    const std::uint32_t device = target / all.per_device, local = target - device * all.per_device;
    auto* ring = at<Packet>(control_of(all, device) + all.rings) + (std::uint64_t{local} * all.devices + all.device) * all.slots;
    store_packet(ring + (ticket & (all.slots - 1)), {label, ticket + 1});
    return {ok, 1, 0};
}

MP_CALL WaitResult notify(const Rank& self, std::uint32_t first, std::uint32_t count, std::uint64_t label, const WaitBounds& bounds) {
    WaitResult result = {ok, 0, 0};
    block().sync();
    if (block().leads()) {
        if (first / self.all.per_device == self.all.device)
            fence(gpu);
        else
            fence(system);
        for (std::uint32_t i = 0; i < count && !result.failed(); ++i) result = notify_one(self, first + i, label, bounds);
    }
    return block().broadcast(result);
}

// How long a call looks for notifications, and whether a failure goes into the report.
struct Patience {
    WaitBounds bounds;
    bool waits;
    bool reports;
};

MP_CALL WaitResult take(const Rank& self, const Wanted wanted, std::uint32_t count, Notification* out, const Patience patience) {
    if (count == 0) return {ok, 0, 0};
    const Ranks& all = self.all;
    const bool known = (wanted.window == any_window || wanted.window < 2 * rank_windows) &&
                       (wanted.source == any_source || wanted.source < size_of_world(all)) &&
                       (wanted.tag == any_tag || is_tag(wanted.tag)) && count <= all.spill;
    if (MP_RARELY(!known)) return refuse_rank(self, rank_wait, wanted.source, wanted.window, wanted.tag, count, all.spill, count);
    WaitResult result = {ok, 0, 0};
    if (block().leads()) {
        RankState* state = state_of(self);
        auto* queue = at<std::uint64_t>(all.control + all.queues) + std::uint64_t{self.local} * all.spill;
        const Filter filter = filter_of(wanted);
        const std::uint64_t first = state->first, mask = all.spill - 1;
        std::uint64_t looked = 0, found = 0;
        bool stuck = false;
        const auto poll = [&](std::uint64_t& seen) {
            const bool room = take_in(all, self.local);
            for (const std::uint64_t held = state->count; looked < held && found < count; ++looked)
                found += filter.takes(queue[(first + looked) & mask]);
            seen = found;
            stuck = !room && found < count;
            return stuck || found == count;
        };
        if (patience.waits)
            result = wait_for(poll, patience.bounds);
        else
            (void)poll(result.seen);
        result.seen = found;
        if (found == count) {
            result.status = ok;
            // Out of the queue; what was before them moves up.
            std::uint64_t kept = looked, left = count;
            while (looked-- > 0) {
                const std::uint64_t label = queue[(first + looked) & mask];
                if (!filter.takes(label))
                    queue[(first + --kept) & mask] = label;
                else if (--left, out != nullptr)
                    out[left] = notification_of(label);
            }
            state->first = first + count;
            state->count -= count;
            fence_for(self);
        } else if (stuck) {
            result.status = no_room;
        }
        // A wildcard is all ones, as nobody is.
        if (patience.reports && result.failed())
            report_rank(all, self.rank, {result.status, rank_wait, wanted.source, wanted.window, wanted.tag, nobody,
                                         static_cast<std::uint32_t>(stuck), count, found, result.waited_ns});
    }
    return block().broadcast(result);
}

// ---- data -----------------------------------------------------------------------------------------------------

MP_CALL WaitStatus transfer(const Rank& self, RankCall call, std::uint32_t window, std::uint32_t target, std::uint64_t first,
                              void* mine, std::uint64_t bytes) {
    const std::uint64_t theirs = place_of(self, window, target, first, bytes), own = address_of(mine);
    const std::uint64_t apart = theirs > own ? theirs - own : own - theirs;
    if (MP_RARELY(theirs == 0 || (apart != 0 && apart < bytes))) {
        const bool known = window < 2 * rank_windows && target < size_of_world(self.all);
        const std::uint64_t size = known ? part_in(self.all, self.all.device, window, target)->bytes : 0;
        return refuse_rank(self, call, target, window, nobody, first, size, bytes).status;
    }
    if (apart == 0) return ok;
    block().sync();
    if (call == rank_put)
        copy(block(), at<void>(theirs), mine, bytes);
    else
        copy(block(), mine, at<void>(theirs), bytes);
    return ok;
}

// ---- meeting --------------------------------------------------------------------------------------------------

MP_DEVICE std::uint64_t* meeting_of(const Ranks& all, MeetingWord which) {
    return at<std::uint64_t>(all.control + all.meetings + which * signal_stride);
}

// The first rank that has not come to so many barriers.
MP_COLD std::uint32_t missing_in(const Ranks& all, Team team, std::uint64_t rounds) {
    const std::uint32_t first = team == Team::world ? 0 : all.device * all.per_device;
    const std::uint32_t end = team == Team::world ? size_of_world(all) : first + all.per_device;
    for (std::uint32_t rank = first; rank < end; ++rank) {
        const RankState* state = state_in(all, rank);
        if (load(team == Team::world ? &state->world_barriers : &state->device_barriers, relaxed, system) < rounds) return rank;
    }
    return nobody;
}

// Ranks of a device count; the last one tells the other devices, waits for them and lets its own go.
MP_CALL WaitResult meet(const Rank& self, Team team, RankCall call) {
    const Ranks& all = self.all;
    const WaitBounds bounds = {all.abort, all.timeout_ns};
    WaitResult result = {ok, 0, 0};
    block().sync();
    if (block().leads()) {
        RankState* state = state_of(self);
        const bool world = team == Team::world;
        std::uint64_t* rounds = world ? &state->world_barriers : &state->device_barriers;
        const std::uint64_t round = *rounds + 1;
        std::uint64_t* open = meeting_of(all, world ? world_open : device_open);
        bool full = false;
        if (state->broken != 0) {
            result.status = static_cast<WaitStatus>(state->broken);
        } else {
            store(rounds, round, relaxed, system);
            const std::uint64_t here = fetch_add(meeting_of(all, world ? world_here : device_here), std::uint64_t{1}, gpu) + 1;
            if (here < round * all.per_device) {
                result = wait_taking_in(self, bounds, full, [&] { return load(open, relaxed, gpu) >= round; });
                (void)load(open, acquire, gpu);
            } else {
                for (std::uint32_t device = 0; world && device < all.devices; ++device)
                    store(at<std::uint64_t>(control_of(all, device) + all.arrived) + all.device, round, release, system);
                const auto* arrived = at<const std::uint64_t>(all.control + all.arrived);
                for (std::uint32_t device = 0; world && device < all.devices && !result.failed(); ++device) {
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

// Says to all devices of the team where this rank's share of a window is: so far from the beginning of its device's memory, or nowhere.
constexpr std::uint64_t nowhere = ~std::uint64_t{0};
MP_DEVICE void publish(const Rank& self, Team team, std::uint32_t window, std::uint64_t first, std::uint64_t bytes) {
    const Ranks& all = self.all;
    for (std::uint32_t device = 0; device < all.devices; ++device) {
        if (team == Team::device && device != all.device) continue;
        const std::uint64_t view = device == all.device ? all.memory : fixed(at<const std::uint64_t>(all.views)[device]);
        RankPart* part = part_in(all, device, window, self.rank);
        store(&part->memory, first == nowhere ? 0 : view + first, relaxed, system);
        store(&part->bytes, bytes, relaxed, system);
    }
}

MP_CALL WaitResult create(const Rank& self, Team team, const void* base, std::uint64_t bytes, std::uint32_t& window) {
    const Ranks& all = self.all;
    struct Created {
        std::uint32_t number;
        WaitStatus status;
    } created = {nobody, ok};
    const std::uint64_t first = address_of(base) - all.memory;
    const bool inside = bytes == 0 || (address_of(base) >= all.memory && first <= all.bytes && bytes <= all.bytes - first);
    block().sync();
    if (block().leads()) {
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
            publish(self, team, created.number, inside && bytes != 0 ? first : 0, inside ? bytes : 0);
        }
    }
    created = block().broadcast(created);
    window = created.number;
    if (created.status != ok) return {created.status, rank_windows, 0};
    const WaitResult met = meet(self, team, rank_create);
    if (met.failed() || inside) return met;
    return refuse_rank(self, rank_create, nobody, window, nobody, first, all.bytes, bytes);
}

MP_CALL WaitResult free(const Rank& self, std::uint32_t window) {
    const Ranks& all = self.all;
    RankState* state = state_of(self);
    const Team team = window < rank_windows ? Team::world : Team::device;
    bool open = false;
    if (block().leads() && window < 2 * rank_windows)
        open = ((window < rank_windows ? state->world_windows : state->device_windows) >> window % rank_windows & 1) != 0;
    if (!block().any(open)) return refuse_rank(self, rank_free, nobody, window, nobody, 0, 0, 0);
    const WaitResult met = meet(self, team, rank_free);
    if (met.failed()) return met;
    WaitResult result = met;
    if (block().leads()) {
        auto* queue = at<std::uint64_t>(all.control + all.queues) + std::uint64_t{self.local} * all.spill;
        const Filter filter = filter_of({window, any_source, any_tag});
        // All that were sent are here, if not all in the queue.
        for (bool more = true; more;) {
            more = !take_in(all, self.local);
            std::uint64_t kept = 0;
            for (std::uint64_t i = 0; i < state->count; ++i) {
                const std::uint64_t label = queue[(state->first + i) & (all.spill - 1)];
                if (!filter.takes(label)) queue[(state->first + kept++) & (all.spill - 1)] = label;
            }
            if (kept == state->count && more) {
                result.status = no_room;
                report_rank(all, self.rank, {no_room, rank_free, nobody, window, nobody, nobody, 1, 0, kept, 0});
                more = false;
            }
            state->count = kept;
        }
        publish(self, team, window, nowhere, 0);
        (team == Team::world ? state->world_windows : state->device_windows) &= ~(std::uint64_t{1} << window % rank_windows);
    }
    return block().broadcast(result);
}

// ---- log ------------------------------------------------------------------------------------------------------

template <class T>
MP_DEVICE void set_value(LogLine* line, unsigned& which, T value) {
    static_assert(std::is_arithmetic_v<T>, "print: values are numbers");
    std::uint64_t bits = 0, kind = 0;
    if constexpr (std::is_floating_point_v<T>) {
        const double wide = value;
        memcpy(&bits, &wide, sizeof bits);
        kind = 2;
    } else {
        bits = static_cast<std::uint64_t>(value);  // with its sign
        kind = std::is_signed_v<T> ? 1 : 0;
    }
    line->values[which] = bits;
    line->kinds |= static_cast<std::uint32_t>(kind) << (8 + 2 * which);
    ++which;
}

template <class... Values>
MP_DEVICE void write_line(const Rank& self, const char* text, Values... values) {
    const Ranks& all = self.all;
    std::uint64_t* head = meeting_of(all, log_head);
    std::uint64_t ticket = load(head, relaxed, gpu);
    for (;;) {
        if (ticket - load(at<const std::uint64_t>(all.log_read), acquire, system) >= all.log_lines) {
            add(meeting_of(all, log_lost), std::uint64_t{1}, relaxed, gpu);
            return;
        }
        const std::uint64_t seen = compare_swap(head, ticket, ticket + 1, gpu);
        if (seen == ticket) break;
        ticket = seen;
    }
    LogLine* line = at<LogLine>(all.log) + (ticket & (all.log_lines - 1));
    line->rank = self.rank;
    line->kinds = sizeof...(values);
    auto* to = reinterpret_cast<char*>(line->text);
    unsigned length = 0;
    for (; length + 1 < sizeof line->text && text[length] != 0; ++length) to[length] = text[length];
    to[length] = 0;
    unsigned which = 0;
    (set_value(line, which, values), ...);
    (void)which;
    store(&line->number, ticket + 1, release, system);
}

}  // namespace impl
}  // namespace mp

#undef MP_CALL
