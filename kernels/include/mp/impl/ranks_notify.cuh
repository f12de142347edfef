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

// Where notifications come in to a rank, in words that its leader keeps in registers while it looks.
struct Inbox {
    RankState* state;
    RankPosition* positions;     // one for each device
    const Packet* rings;         // the same
    std::uint64_t* queue;
    std::uint32_t slots, spill;  // of a ring, of the queue
    bool one_device;             // in the world
    bool room;                   // for all that have come
    std::uint64_t first;         // in the queue
    std::uint32_t held;          // in it
    std::uint32_t matched;       // of those

    MP_DEVICE std::uint64_t& queued(std::uint32_t number) const { return queue[(static_cast<std::uint32_t>(first) + number) & (spill - 1)]; }
};
MP_DEVICE Inbox inbox_of(const Ranks& all, std::uint32_t local) {
    RankState* state = at<RankState>(all.control + all.states) + local;
    return {state,
            at<RankPosition>(all.control + all.positions) + std::uint64_t{local} * all.devices,
            at<const Packet>(all.control + all.rings) + std::uint64_t{local} * all.devices * all.slots,
            at<std::uint64_t>(all.control + all.queues) + std::uint64_t{local} * all.spill,
            all.slots,
            all.spill,
            all.devices == 1,
            true,
            state->first,
            static_cast<std::uint32_t>(state->count),
            0};
}

// What a look at the rings has found: a label that has come from a device. Nothing, if no rings are left to be looked at.
struct Come {
    std::uint64_t label;
    std::uint32_t device;
    std::uint32_t left;
};
// Looks at so many rings, one after the other and round again, until there is something in one; between two it sleeps for so long. It calls
// nothing, so that all it works with stays in registers, and what waits long takes few instructions of the multiprocessor. What it reads again at
// each look lies in the cache, but for the packets.
MP_COLD Come look(const RankPosition* positions, const Packet* rings, std::uint32_t slots, std::uint32_t devices, std::uint32_t device,
                  std::uint32_t left, unsigned doze_ns) {
    MP_NO_UNROLL
    for (; left > 0; --left) {
        const std::uint64_t next = positions[device].next;
        const Packet packet = load_packet(rings + std::uint64_t{device} * slots + (static_cast<std::uint32_t>(next) & (slots - 1)));
        if (packet.epoch == next + 1) return {packet.data, device, left};
        device = device + 1 == devices ? 0 : device + 1;
        if (doze_ns == 0)
            pause();
        else
            doze(doze_ns);
    }
    return {0, device, 0};
}

// The first slots of the ring of a device have been read, up to `next`.
MP_DEVICE void give_back(const Ranks& all, std::uint32_t local, const Inbox& inbox, std::uint32_t device, std::uint64_t told, std::uint64_t next) {
    inbox.positions[device].next = next;
    // Half a ring at once: a full ring has been read by then. The slots have been read before they are given back.
    if (next - told < (inbox.slots + 1) / 2) return;
    inbox.positions[device].told = next;
    (void)raise_in(all, device, all.tails + (all.first + local) * sizeof(std::uint64_t), next);
}

// Looks at all rings so many times, with so much sleep between two, and takes what has come into the queue, until `enough` match. By the leader.
MP_DEVICE void take_in(const Ranks& all, std::uint32_t local, Inbox& inbox, const Filter filter, std::uint32_t enough, std::uint32_t looks,
                       unsigned doze_ns) {
    const std::uint32_t devices = inbox.one_device ? 1 : all.devices;
    // Where enough may be found before all have been looked at, no device is always the last.
    Come come = {0, inbox.one_device ? 0 : static_cast<std::uint32_t>(clock_cycles()) % devices, looks * devices};
    MP_NO_UNROLL
    while (inbox.matched < enough) {
        come = look(inbox.positions, inbox.rings, inbox.slots, devices, come.device, come.left, doze_ns / devices);
        if (come.left == 0) return;
        const Packet* ring = inbox.rings + std::uint64_t{come.device} * inbox.slots;
        const RankPosition began = inbox.positions[come.device];
        std::uint64_t next = began.next;
        MP_NO_UNROLL
        for (Packet packet = {come.label, next + 1}; packet.epoch == next + 1;) {
            inbox.room = inbox.held < inbox.spill;
            if (!inbox.room) break;
            inbox.queued(inbox.held++) = packet.data;
            inbox.matched += filter.takes(packet.data);
            ++next;
            if (inbox.matched == enough) break;
            packet = load_packet(ring + (static_cast<std::uint32_t>(next) & (inbox.slots - 1)));
        }
        give_back(all, local, inbox, come.device, began.told, next);
        if (!inbox.room) return;
        come.device = come.device + 1 == devices ? 0 : come.device + 1;
        --come.left;
    }
}
// Takes all in. False if there was no room for all.
MP_COLD bool take_all_in(const Ranks& all, std::uint32_t local) {
    Inbox inbox = inbox_of(all, local);
    take_in(all, local, inbox, {~std::uint64_t{0}, ~std::uint64_t{0}}, ~std::uint32_t{0}, 1, 0);
    inbox.state->count = inbox.held;
    return inbox.room;
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

// Takes the next place in the ring to a rank, of whose slots the first `read` are known to have been read. False if none is free, as far as that
// says. `next`: what may be the next; then the place, or what the head was. The slot is written behind the branch that sees it free.
MP_DEVICE bool ask_ticket(const Ranks& all, std::uint32_t target, std::uint64_t read, std::uint64_t& next) {
    std::uint64_t* head = ends_to(all, target).head;
    MP_NO_UNROLL
    while (next - read < all.slots) {
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
        if (ask_ticket(all, target, read, next)) return true;
        next = load(ends.head, relaxed, gpu);
        read = load(ends.tail, relaxed, system);
        return ask_ticket(all, target, read, next);
    });
    if (result.failed()) {
        const Notification what = notification_of(label);
        report_rank(all, self.rank, {result.status, rank_notify, target, what.window, what.tag, nobody, static_cast<std::uint32_t>(full), 1,
                                     0, result.waited_ns});
    }
    return {result, next, read};
}

// A place in a ring.
MP_DEVICE Packet* slot_in(const Ranks& all, std::uint64_t ring, std::uint64_t number) {
    return at<Packet>(ring) + (static_cast<std::uint32_t>(number) & (all.slots - 1));
}

// Stores the packet of a ticket in a ring to a rank of a device.
MP_COLD WaitResult send_packet(const Rank self, std::uint32_t device, std::uint64_t ring, const Ticket& ticket, std::uint64_t label) {
    const Ranks& all = *self.all;
    WaitResult result = ticket.result;
    Packet* slot = slot_in(all, ring, ticket.number);
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
// Looks on through a queue that is not short, until `count` match.
MP_COLD Looked look_on(const Inbox inbox, const Filter filter, std::uint32_t count, Looked found) {
    constexpr std::uint32_t at_once = 16;  // loads under way
    MP_NO_UNROLL
    while (found.looked < inbox.held && found.matched < count) {
        std::uint64_t labels[at_once];
        // Behind the last one is what was there before, which nobody looks at.
        MP_UNROLL
        for (std::uint32_t k = 0; k < at_once; ++k) labels[k] = inbox.queued(found.looked + k);
        std::uint32_t takes = 0;
        MP_UNROLL
        for (std::uint32_t k = 0; k < at_once; ++k) takes |= static_cast<std::uint32_t>(filter.takes(labels[k])) << k;
        const std::uint32_t rest = inbox.held - found.looked;
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
MP_COLD std::uint64_t take_out(const Inbox inbox, const Filter filter, const Looked found, std::uint32_t count, Notification* out) {
    if (inbox.held - found.first < found.looked) {
        std::uint32_t kept = found.first, taken = 0;
        MP_NO_UNROLL
        for (std::uint32_t i = found.first; i < inbox.held; ++i) {
            const std::uint64_t label = inbox.queued(i);
            if (i >= found.looked || !filter.takes(label))
                inbox.queued(kept++) = label;
            else if (out != nullptr)
                out[taken++] = notification_of(label);
        }
        return inbox.first;
    }
    for (std::uint32_t looked = found.looked, kept = looked, left = count; looked-- > 0;) {
        const std::uint64_t label = inbox.queued(looked);
        if (!filter.takes(label))
            inbox.queued(--kept) = label;
        else if (--left, out != nullptr)
            out[left] = notification_of(label);
    }
    return inbox.first + count;
}

// The rest of a wait that was not short.
MP_COLD WaitResult take_late(const Ranks& all, std::uint32_t local, Inbox& inbox, const Filter filter, std::uint32_t count,
                             const WaitBounds bounds) {
    Found found = {};
    for (Rounds rounds;;) {
        // Also after a deadline, past which this thread may have been off the processor: the last look decides.
        take_in(all, local, inbox, filter, count, polls_between_clocks, rounds.doze_ns);
        if (inbox.matched == count || !inbox.room) return {ok, inbox.matched, 0};
        if (found.status != ok) return {found.status, inbox.matched, found.waited_ns};
        if (rounds.next()) found = look_now(bounds, found);
    }
}

MP_COLD WaitResult take(const Rank self, const Wanted wanted, std::uint32_t count, Notification* out, const Patience patience) {
    if (count == 0) return {ok, 0, 0};
    const Ranks& all = *self.all;
    const bool known = (wanted.window == any_window || wanted.window < 2 * rank_windows) &&
                       (wanted.source == any_source || wanted.source < all.size) &&
                       (wanted.tag == any_tag || is_tag(wanted.tag)) && count <= all.spill;
    if (MP_RARELY(!known)) return refuse_rank(self, rank_wait, wanted.source, wanted.window, wanted.tag, count, all.spill, count);
    WaitResult result = {ok, count, 0};
    if (block().leads()) {
        const Filter filter = filter_of(wanted);
        Inbox inbox = inbox_of(all, self.local);
        // What lies in the queue is looked at once, and what comes when it comes.
        constexpr std::uint32_t few = 8;
        Looked found = {0, 0, 0};
        MP_NO_UNROLL
        for (; found.looked < inbox.held && found.looked < few && found.matched < count; ++found.looked) {
            found.matched += filter.takes(inbox.queued(found.looked));
            found.first += found.matched == 0;
        }
        if (found.looked < inbox.held && found.matched < count) found = look_on(inbox, filter, count, found);
        inbox.matched = found.matched;
        if (inbox.matched < count) {
            take_in(all, self.local, inbox, filter, count, patience.waits ? polls_between_clocks : 1, 0);
            if (patience.waits && inbox.matched < count && inbox.room) {
                // A copy, so that the words above stay in registers.
                Inbox late = inbox;
                result = take_late(all, self.local, late, filter, count, patience.bounds);
                inbox = late;
            }
            found.looked = inbox.held;
        }
        if (inbox.matched == count) {
            // First, so that it does not wait for what is stored below.
            fence_for(acquire, inbox.one_device);
            result = {ok, count, 0};
            // Out of the queue. If nothing was before them, nothing moves.
            inbox.first = found.looked != count || out != nullptr ? take_out(inbox, filter, found, count, out) : inbox.first + count;
            inbox.held -= count;
            inbox.state->first = inbox.first;
        } else {
            result.seen = inbox.matched;
            if (!inbox.room) result.status = no_room;
        }
        inbox.state->count = inbox.held;
        // A wildcard is all ones, as nobody is.
        if (patience.reports && result.failed())
            report_rank(all, self.rank, {result.status, rank_wait, wanted.source, wanted.window, wanted.tag, nobody,
                                         static_cast<std::uint32_t>(!inbox.room), count, inbox.matched, result.waited_ns});
    }
    // The vote is the barrier; the words cross only where they are not known.
    if (block().any(result.failed() || result.seen != count)) return block().broadcast(result);
    return {ok, count, 0};
}

}  // namespace impl
}  // namespace mp
