// Notifications of device ranks, sent and waited for. Not to be included by itself.
//
// Notifications come by rings, one for each source device and target rank, in the target's memory. A sender takes the ring's next ticket by
// an atomic on a word of its own device, and stores a packet: the label, and the ticket after it as epoch. How far the target has read it
// stores into the senders' device. So no atomic crosses a link. A ticket is only taken when its slot is free: who gives up leaves no hole.
//
// The target's leader takes what has come out of the rings into the rank's queue, in which a label is matched: what fits one pattern may
// have come before what fits another. The queue is a ring of words that nobody else writes or reads.
#pragma once

#include "ranks_world.cuh"

namespace mp {
namespace impl {

// What has come to a rank and was not waited for yet, in order. By the leader.
struct Queue {
    std::uint64_t* words;
    std::uint32_t room;   // for so many
    std::uint32_t held;
    std::uint64_t first;  // its number

    MP_DEVICE std::uint64_t& operator[](std::uint32_t number) const { return words[(static_cast<std::uint32_t>(first) + number) & (room - 1)]; }
};
MP_DEVICE Queue queue_of(const Desk& all) {
    return {at<std::uint64_t>(all.queue_at), all.spill, all.queued, all.queue_first};
}

// How looks for notifications ended: several may be so.
constexpr std::uint32_t came_taken = 1;    // As many as were wanted, and they are out of the queue.
constexpr std::uint32_t came_full = 2;     // The queue has no room for what has come.
constexpr std::uint32_t came_read = 4;     // Half a ring was read: its senders are to be told.
constexpr std::uint32_t came_others = 8;   // Those that are wanted are in the queue, with others among them, or to be said which.
struct Came {
    std::uint32_t matched;  // of those in the queue
    std::uint32_t how;
};

// Whether a device is to be told how far its ring has been read: whenever another half of it has, so that a full one has been read by then.
MP_DEVICE bool is_to_be_told(std::uint32_t slots, std::uint64_t next, std::uint64_t told) {
    const std::uint32_t half = slots / 2;
    return (next ^ told) >= (half == 0 ? 1 : half);
}

// The device from which what is waited for comes; `nobody` if it may come from any.
MP_DEVICE std::uint32_t home_of(Desk& all, const Wanted& wanted, bool waits) {
    if (!waits || all.devices == 1 || wanted.source == any_source) return nobody;
    // Mostly somebody whom this rank notifies, too.
    const Route& route = route_at(all, wanted.window, wanted.source);
    return leads_to(route, wanted.window, wanted.source) ? route.device : device_of(all, wanted.source);
}
// Looks at the ring of that device for each look at another one, for which somebody may wait who sends.
constexpr std::uint32_t looks_at_home = 8;
// Looks at all rings before the clock is looked at, if it is.
MP_DEVICE std::uint32_t looks_of(bool waits) { return waits ? polls_between_clocks : 1; }

// Looks at all rings so many times, with so much sleep between two, and takes what has come into the queue, until `wanted` match; of those that are in
// the queue `matched` do. If nothing else is in it, they are taken out at once, unless they are to stay; the last one need not go in. By the
// leader. It calls nothing, and nor does who calls it before it has ended, so that all it works with stays in registers; what is
// only wanted if something has come is not kept there. While nothing comes it is a load and a few instructions a look, since others compute beside it.
MP_DEVICE Came take_in(Desk& all, const Filter& filter, std::uint32_t matched, std::uint32_t wanted, bool stay, std::uint32_t home,
                       std::uint32_t looks, unsigned doze_ns) {
    const std::uint32_t devices = all.devices, slots = all.slots, held_before = all.queued;
    const auto* rings = at<const Packet>(all.rings_at);
    // Where enough may be found before all have been looked at, no device is always the last.
    std::uint32_t turn = devices == 1 ? 0 : all.turn;
    std::uint32_t device = home < devices ? home : turn;
    std::uint32_t how = 0, held = held_before;
    std::uint64_t next = next_of(all, device);
    const auto place = [=](std::uint32_t device, std::uint64_t number) {
        return rings + (std::uint64_t{device} * slots + (static_cast<std::uint32_t>(number) & (slots - 1)));
    };
    const auto behind = [devices](std::uint32_t turn) { return turn + 1 == devices ? 0 : turn + 1; };
    // Mostly what comes is the last that is waited for, and nothing else: then as little as there is to do.
    const auto is_last = [&](const Packet& packet) {
        return filter.takes(packet.data) && matched + 1 == wanted && matched == held && !stay;
    };
    const auto take_last = [&](std::uint64_t number, std::uint64_t before) {
        fence_for(acquire, devices == 1);
        set_next(all, device, number + 1);
        if (devices != 1) all.turn = behind(turn);
        if (MP_RARELY(held_before != 0)) set_queue(all, all.queue_first, 0);
        return Came{wanted, is_to_be_told(slots, number + 1, before) ? came_taken | came_read : came_taken};
    };
    const Packet* slot = place(device, next);
    MP_NO_UNROLL
    for (std::uint32_t left = looks * devices;;) {
        Packet packet = load_packet(slot);
        if (packet.epoch == next + 1) {
            if (is_last(packet)) return take_last(next, next);
            const std::uint64_t before = next;
            MP_NO_UNROLL
            do {
                if (held == all.spill) {
                    how = came_full;
                    break;
                }
                queue_of(all)[held++] = packet.data;
                matched += filter.takes(packet.data);
                ++next;
                if (matched == wanted) {
                    how = came_others;
                    break;
                }
                slot = place(device, next);
                packet = load_packet(slot);
                if (packet.epoch == next + 1 && is_last(packet)) return take_last(next, before);
            } while (packet.epoch == next + 1);
            set_next(all, device, next);
            if (is_to_be_told(slots, next, before)) how |= came_read;
        }
        if (how != 0) break;
        if (doze_ns == 0)
            pause();
        else
            doze(doze_ns);
        if (--left == 0) break;
        if (devices == 1) continue;
        const bool aside = home >= devices || left % looks_at_home == 0;
        if (aside) turn = behind(turn);
        const std::uint32_t other = aside ? turn : home;
        if (other == device) continue;
        device = other;
        next = next_of(all, device);
        slot = place(device, next);
    }
    if (devices != 1) all.turn = behind(turn);
    if (held != held_before) set_queue(all, all.queue_first, held);
    return {matched, how};
}
// The same, called.
MP_COLD Came take_more_in(Desk& all, const Filter filter, std::uint32_t matched, std::uint32_t wanted, bool stay,
                          std::uint32_t home, std::uint32_t looks, unsigned doze_ns) {
    return take_in(all, filter, matched, wanted, stay, home, looks, doze_ns);
}

// Tells devices how far their rings have been read, where that is time.
MP_COLD void tell_read(Desk& all, std::uint32_t local) {
    for (std::uint32_t device = 0; device < all.devices; ++device) {
        RankPosition& position = position_of(all, device);
        const std::uint64_t next = position.next;
        if (!is_to_be_told(all.slots, next, position.told)) continue;
        position.told = next;
        // The slots have been read before they are given back.
        (void)raise_in(all, device, all.tails + (all.first + local) * sizeof(std::uint64_t), next);
    }
}

// Takes all in. False if there was no room for all.
MP_COLD bool take_all_in(Desk& all, std::uint32_t local) {
    for (;;) {
        const Came came = take_more_in(all, {~std::uint64_t{0}, ~std::uint64_t{0}}, 0, ~std::uint32_t{0}, true, nobody, 1, 0);
        if ((came.how & came_read) != 0) tell_read(all, local);
        if ((came.how & came_full) != 0) return false;
        if (came.how == 0) return true;
    }
}

// Waits for `is`, which looks at a word, and takes in meanwhile what comes. By the leader. `full`: its queue was at the last look. Not unrolled, as
// wait_for is: what it polls are calls.
template <class Is>
MP_DEVICE WaitResult wait_taking_in(const Rank& self, const WaitBounds& bounds, bool& full, const Is& is) {
    const auto poll = [&](std::uint64_t&) {
        if (is()) return true;
        full = !take_all_in(*self.all, self.local);
        return false;
    };
    const auto look = look_by(poll);
    const auto waited = wait_long(look, look, is_there, bounds);
    const WaitResult result = {waited.status, waited.seen.seen, waited.waited_ns};
    if (result.status == timed_out && full) return {no_room, result.seen, result.waited_ns};
    return result;
}

// A place in the ring to a rank, which nobody else has if the result is ok, and how many the target was seen to have read.
struct Ticket {
    WaitResult result;
    std::uint64_t number;
    std::uint64_t read;
};

// Takes the next place in a ring of `slots`, the first `read` of which are known to have been read. False if none is free, as far as that
// says. `next`: what may be the next; then the place, or what the head was. The slot is written behind the branch that sees it free.
MP_DEVICE bool ask_ticket(std::uint64_t* head, std::uint32_t slots, std::uint64_t read, std::uint64_t& next) {
    MP_NO_UNROLL
    while (next - read < slots) {
        const std::uint64_t found = compare_swap(head, next, next + 1, gpu, relaxed);
        if (found == next) return true;
        next = found;
    }
    return false;
}

// Waits until the ring to a rank has a free slot, and takes it. By the leader. `next` and `read`: what may still be so.
MP_COLD Ticket take_ticket(const Rank self, std::uint32_t target, std::uint64_t label, std::uint64_t next, std::uint64_t read) {
    const Ranks& all = *self.all;
    const RingEnds ends = ends_to(all, target);
    bool full = false;
    const WaitResult result = wait_taking_in(self, bounds_of(self), full, [&] {
        if (ask_ticket(ends.head, all.slots, read, next)) return true;
        next = load(ends.head, relaxed, gpu);
        read = load(ends.tail, relaxed, system);
        return ask_ticket(ends.head, all.slots, read, next);
    });
    if (result.failed()) {
        const Notification what = notification_of(label);
        report_rank(all, self.rank, {result.status, rank_notify, target, what.window, what.tag, nobody, static_cast<std::uint32_t>(full), 1,
                                     0, result.waited_ns});
    }
    return {result, next, read};
}

// A place in a ring of `slots`.
MP_DEVICE Packet* slot_in(std::uint64_t ring, std::uint32_t slots, std::uint64_t number) {
    return at<Packet>(ring) + (static_cast<std::uint32_t>(number) & (slots - 1));
}

// Stores the packet of a ticket in a ring to a rank of a device.
MP_COLD WaitResult send_packet(const Rank self, std::uint32_t device, std::uint64_t ring, const Ticket& ticket, std::uint64_t label) {
    const Ranks& all = *self.all;
    WaitResult result = ticket.result;
    Packet* slot = slot_in(ring, all.slots, ticket.number);
    if (!is_far(all, device)) {
        store_packet(slot, {label, ticket.number + 1});
        return result;
    }
    // The epoch goes behind the label.
    const std::uint64_t place = address_of(slot) - opened_by(all.controls, device).memory;
    result.status = write_far(all, device, place, &label, sizeof label, place + offsetof(Packet, epoch), ticket.number + 1);
    const Notification what = notification_of(label);
    if (result.failed()) report_rank(all, self.rank, {result.status, rank_notify, nobody, what.window, what.tag, nobody, 0, 1, 0, 0});
    return result;
}

// Notifies the rank of a route whose ring looks full, or which is far. By the leader, who has fenced.
MP_COLD WaitResult notify_slowly(const Rank self, Route& route, std::uint64_t next, std::uint64_t label) {
    const Ticket ticket = take_ticket(self, route.rank, label, next, route.read);
    if (ticket.result.failed()) return ticket.result;
    route.next = ticket.number + 1;
    route.read = ticket.read;
    return send_packet(self, route.device, route.ring, ticket, label);
}

// Notifies a rank of a device, without a route. By the leader, who has fenced.
MP_COLD WaitResult notify_one(const Rank self, std::uint32_t device, std::uint32_t local, std::uint64_t label) {
    const Ranks& all = *self.all;
    const Ticket ticket = take_ticket(self, first_of(all, device) + local, label, all.slots, 0);
    return ticket.result.failed() ? ticket.result : send_packet(self, device, ring_to(all, device, local), ticket, label);
}
// Notifies all ranks of a device.
MP_COLD WaitResult notify_device(const Rank self, std::uint32_t device, std::uint64_t label) {
    const std::uint32_t ranks = first_of(*self.all, device + 1) - first_of(*self.all, device);
    WaitResult result = {ok, 0, 0};
    for (std::uint32_t local = 0; local < ranks && !result.failed(); ++local) result = notify_one(self, device, local, label);
    return result;
}

// How long a call looks for notifications, and whether a failure goes into the report.
struct Patience {
    WaitBounds bounds;
    bool waits;
    bool reports;
};

// What a look at the queue has found.
struct Looked {
    std::uint32_t looked;   // at so many
    std::uint32_t matched;  // of those
    std::uint32_t first;    // Of those that match, or how many were looked at if none does.
};
// Looks through the queue, until `count` match.
MP_COLD Looked look_through(const Queue queue, const Filter filter, std::uint32_t count) {
    constexpr std::uint32_t at_once = 16;  // loads under way
    Looked found = {0, 0, 0};
    MP_NO_UNROLL
    while (found.looked < queue.held && found.matched < count) {
        std::uint64_t labels[at_once];
        // Behind the last one is what was there before, which nobody looks at.
        MP_UNROLL
        for (std::uint32_t k = 0; k < at_once; ++k) labels[k] = queue[found.looked + k];
        std::uint32_t takes = 0;
        MP_UNROLL
        for (std::uint32_t k = 0; k < at_once; ++k) takes |= static_cast<std::uint32_t>(filter.takes(labels[k])) << k;
        const std::uint32_t rest = queue.held - found.looked;
        if (rest < at_once) takes &= (1u << rest) - 1;
        if (takes == 0) {
            found.looked += rest < at_once ? rest : at_once;
            if (found.matched == 0) found.first = found.looked;
            continue;
        }
        MP_NO_UNROLL
        for (std::uint32_t k = 0; k < at_once && k < rest && found.matched < count; ++k, ++found.looked)
            if ((takes >> k & 1) != 0 && found.matched++ == 0) found.first = found.looked;
    }
    return found;
}

// Takes `count` that match out of the first `looked` of the queue, the last of which does and the first of which is not before `first`. What is before
// them moves up, or what is behind them down, whichever is less. Returns the queue's new first.
MP_COLD std::uint64_t take_out(const Queue queue, const Filter filter, const Looked found, std::uint32_t count, Notification* out) {
    if (queue.held - found.first < found.looked) {
        std::uint32_t kept = found.first, taken = 0;
        MP_NO_UNROLL
        for (std::uint32_t i = found.first; i < queue.held; ++i) {
            const std::uint64_t label = queue[i];
            if (i >= found.looked || !filter.takes(label))
                queue[kept++] = label;
            else if (out != nullptr)
                out[taken++] = notification_of(label);
        }
        return queue.first;
    }
    for (std::uint32_t looked = found.looked, kept = looked, left = count; looked-- > 0;) {
        const std::uint64_t label = queue[looked];
        if (!filter.takes(label))
            queue[--kept] = label;
        else if (--left, out != nullptr)
            out[left] = notification_of(label);
    }
    return queue.first + count;
}

MP_DEVICE bool is_known(const Ranks& all, const Wanted& wanted, std::uint32_t count) {
    return (wanted.window == any_window || wanted.window < 2 * rank_windows) && (wanted.source == any_source || wanted.source < all.size) &&
           (wanted.tag == any_tag || is_tag(wanted.tag)) && count <= all.spill;
}

// The beginning of a wait, and mostly all of it: what is wanted is the first of the queue, or it comes soon, and nothing else before it. By the leader.
MP_COLD Came take_soon(Desk& all, const Wanted wanted, std::uint32_t count, bool stay, bool waits) {
    if (!is_known(all, wanted, count)) return {0, 0};
    const Filter filter = filter_of(wanted);
    const Queue queue = queue_of(all);
    // More are looked through elsewhere, many at once.
    constexpr std::uint32_t few = 8;
    if (queue.held > few) return {0, 0};
    std::uint32_t matched = 0, looked = 0;
    MP_NO_UNROLL
    for (; looked < queue.held && matched < count; ++looked) matched += filter.takes(queue[looked]);
    if (matched < count) return take_in(all, filter, matched, count, stay, home_of(all, wanted, waits), looks_of(waits), 0);
    if (looked != count || stay) return {matched, came_others};
    set_queue(all, queue.first + count, queue.held - count);
    fence_for(acquire, all.devices == 1);
    return {matched, came_taken};
}

// The rest of a wait whose beginning ended so. By the leader.
MP_COLD WaitResult take_later(const Rank self, const Wanted wanted, std::uint32_t count, Notification* out, const Patience patience) {
    Desk& all = *self.all;
    const Filter filter = filter_of(wanted);
    Looked found = look_through(queue_of(all), filter, count);
    WaitResult result = {ok, count, 0};
    Found clock = {};
    bool full = false;
    for (Rounds rounds; found.matched < count;) {
        const Came came = take_more_in(all, filter, found.matched, count, out != nullptr, home_of(all, wanted, patience.waits),
                                       looks_of(patience.waits), rounds.doze_ns);
        if ((came.how & came_read) != 0) tell_read(all, self.local);
        if ((came.how & came_taken) != 0) return result;
        found.matched = came.matched;
        found.looked = all.queued;
        full = (came.how & came_full) != 0;
        if (found.matched == count || full) break;
        // Not all rings have been looked at: there may be more.
        if (came.how != 0) continue;
        if (!patience.waits) break;
        // Also after a deadline, past which this thread may have been off the processor: the last look decides.
        result = {clock.status, found.matched, clock.waited_ns};
        if (result.failed()) break;
        if (rounds.next()) clock = look_now(patience.bounds, clock);
    }
    if (found.matched == count) {
        const Queue queue = queue_of(all);
        // First, so that it does not wait for what is stored below.
        fence_for(acquire, all.devices == 1);
        // If nothing was before them, nothing moves.
        const std::uint64_t first = found.looked != count || out != nullptr ? take_out(queue, filter, found, count, out) : queue.first + count;
        set_queue(all, first, queue.held - count);
        return {ok, count, 0};
    }
    if (full) result.status = no_room;
    result.seen = found.matched;
    // A wildcard is all ones, as nobody is.
    if (patience.reports && result.failed())
        report_rank(all, self.rank, {result.status, rank_wait, wanted.source, wanted.window, wanted.tag, nobody, static_cast<std::uint32_t>(full),
                                     count, found.matched, result.waited_ns});
    return result;
}
MP_COLD WaitResult take_rest(const Rank self, const Wanted wanted, std::uint32_t count, Notification* out, const Patience patience, const Came came) {
    Desk& all = *self.all;
    if (!is_known(all, wanted, count)) return refuse_rank(self, rank_wait, wanted.source, wanted.window, wanted.tag, count, all.spill, count);
    WaitResult result = {ok, count, 0};
    if (block().leads()) {
        if ((came.how & came_read) != 0) tell_read(all, self.local);
        if ((came.how & came_taken) == 0) result = take_later(self, wanted, count, out, patience);
    }
    if (block().any(result.failed() || result.seen != count)) return block().broadcast(result);
    return {ok, count, 0};
}

// `patience` gives it, if the beginning of a wait was not all of it; whether it `waits` is known before.
template <class GivePatience>
MP_DEVICE WaitResult take(const Rank& self, const Wanted& wanted, std::uint32_t count, Notification* out, bool waits,
                          const GivePatience& patience) {
    if (count == 0) return {ok, 0, 0};
    Came came = {count, came_taken};
    if (block().leads()) came = take_soon(*self.all, wanted, count, out != nullptr, waits);
    // The vote is the barrier.
    if (MP_RARELY(block().any_uniform(came.how != came_taken))) return take_rest(self, wanted, count, out, patience(), came);
    return {ok, count, 0};
}

}  // namespace impl
}  // namespace mp
