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
#include "box.cuh"

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

// The first rank of a device; of the one behind the last, how many there are.
MP_DEVICE std::uint32_t first_of(const Ranks& all, std::uint32_t device) { return fixed(at<const std::uint32_t>(all.firsts)[device]); }
MP_DEVICE std::uint32_t device_of(const Ranks& all, std::uint32_t rank) {
    std::uint32_t device = 0;
    while (rank >= first_of(all, device + 1)) ++device;
    return device;
}

// A device's control memory and its memory, at addresses of this device, or of its own if it is behind a NIC.
MP_DEVICE const WindowPart& opened_by(std::uint64_t parts, std::uint32_t device) { return at<const WindowPart>(parts)[device]; }
MP_DEVICE std::uint64_t control_of(const Ranks& all, std::uint32_t device) {
    return device == all.device ? all.control : fixed(opened_by(all.controls, device).memory);
}
MP_DEVICE std::uint64_t memory_of(const Ranks& all, std::uint32_t device) {
    return device == all.device ? all.memory : fixed(opened_by(all.memories, device).memory);
}
MP_DEVICE bool is_far(const Ranks& all, std::uint32_t device) {
    return all.far != 0 && fixed(opened_by(all.controls, device).nic) != 0;
}

// Windows of the world have the lower numbers. As this device knows it.
MP_DEVICE RankPart* part_in(const Ranks& all, std::uint32_t window, std::uint32_t rank) {
    return at<RankPart>(all.control + all.parts) + std::uint64_t{window} * all.size + rank;
}

// A rank's share of a window.
struct RankShare {
    std::uint64_t memory;  // 0: there is none
    std::uint64_t bytes;
};
MP_DEVICE RankShare share_of(const Ranks& all, std::uint32_t device, std::uint32_t window, std::uint32_t rank) {
    const RankPart* part = part_in(all, window, rank);
    const std::uint64_t behind = part->behind;
    return {behind == 0 ? 0 : memory_of(all, device) + behind - 1, part->bytes};
}
// Where bytes `first` … `first + bytes` of a share are, or 0.
template <class Share>
MP_DEVICE std::uint64_t place_in(const Share& share, std::uint64_t first, std::uint64_t bytes) {
    const std::uint64_t memory = share.memory, length = share.bytes;
    return memory == 0 || first > length || bytes > length - first ? 0 : memory + first;
}

// ---- devices behind a NIC -------------------------------------------------------------------------------------

// Requests go by one of a few queues, which the block's number chooses: what a rank asks for is done in order. What is below is for a
// leader, if it takes no group.

// The devices' memories as a window of libmp, for what is behind a NIC: requests are given the row of the table that they are for.
MP_DEVICE Window window_over(const Ranks& all, std::uint64_t parts) {
    return {parts, all.devices, all.device, 0, all.abort, all.timeout_ns, all.nic_report, {}};
}

// Writes `bytes` bytes, of the thread's own memory too, and then a word, at these places of a device's control memory.
MP_COLD WaitStatus write_far(const Ranks& all, std::uint32_t device, std::uint64_t to, const void* from, std::uint64_t bytes,
                             std::uint64_t word, std::uint64_t value) {
    const WindowPart& part = opened_by(all.controls, device);
    const bool posted = put_by_nic(thread(), window_over(all, all.controls), part, block_rank(), part.memory + to, from, bytes,
                                   part.memory + word, value);
    return posted ? ok : path_failed;
}

// Reads a word at a place of a device's control memory. 0 if that fails.
MP_COLD std::uint64_t read_far(const Ranks& all, std::uint32_t device, std::uint64_t word) {
    std::uint64_t value = 0;
    const WindowPart& part = opened_by(all.controls, device);
    const bool got = get_by_nic(thread(), window_over(all, all.controls), part, part.memory + word, &value, Rows{8, 1, 0, 0});
    return got ? value : 0;
}

// Waits until what this device has asked for has happened, or does not need its memory any more.
MP_COLD WaitResult drain_far(const Ranks& all, std::uint32_t device, std::uint32_t devices, Drain how) {
    return drain(block(), window_over(all, all.memories), device, devices, 0, how);
}

// ---- words of other devices -----------------------------------------------------------------------------------

// Raises a word at a place of a device's control memory, behind what this rank has written and put there; `fenced` behind a fence of its own.
template <class Order = release_t>
MP_DEVICE WaitStatus raise_in(const Ranks& all, std::uint32_t device, std::uint64_t word, std::uint64_t value, Order order = {}) {
    if (MP_RARELY(is_far(all, device))) return write_far(all, device, 0, nullptr, 0, word, value);
    store(at<std::uint64_t>(control_of(all, device) + word), value, order, system);
    return ok;
}
// What a word of a rank's state holds, at this place of it.
MP_COLD std::uint64_t state_in(const Ranks& all, std::uint32_t rank, std::uint64_t word) {
    const std::uint32_t device = device_of(all, rank);
    const std::uint64_t place = all.states + (rank - first_of(all, device)) * sizeof(RankState) + word;
    if (is_far(all, device)) return read_far(all, device, place);
    return load(at<const std::uint64_t>(control_of(all, device) + place), relaxed, system);
}

// The words of the ring from this device to a rank: how many were sent, and how many the target has read.
struct RingEnds {
    std::uint64_t* head;
    const std::uint64_t* tail;
};
MP_DEVICE RingEnds ends_to(const Ranks& all, std::uint32_t target) {
    return {at<std::uint64_t>(all.control + all.heads) + target, at<const std::uint64_t>(all.control + all.tails) + target};
}

// What a put to a rank's share of a window needs to know. The block keeps it near: what lies in the device's memory is a microsecond's third
// away once the cache has been emptied, as every acquire does.
struct Route {
    std::uint64_t memory;  // the share; 0: there is none
    std::uint64_t bytes;
    std::uint64_t ring;  // from this device to the rank
    // The leader's: a ticket that may be the next, and how many the target is known to have read.
    std::uint64_t next;
    std::uint64_t read;
    std::uint32_t window;
    std::uint32_t rank;
    std::uint32_t device;
    std::uint32_t far;  // not 0: behind a NIC
};
constexpr unsigned desk_routes = 8;

// The world as a block keeps it in memory of its own.
struct Desk : Ranks {
    Route routes[desk_routes];
    // For the leader: the place in a ring that was taken for it, or if it was not, what the ring's head was.
    std::uint64_t found;
    std::uint32_t has_ticket;
};

MP_DEVICE RankState* state_of(const Rank& self) { return at<RankState>(self.all->control + self.all->states) + self.local; }

MP_DEVICE void forget_routes(Desk& desk) {
    for (Route& route : desk.routes) route = {0, 0, 0, 0, 0, nobody, nobody, 0, 0};
}

// The ring from this device to a rank of another.
MP_DEVICE std::uint64_t ring_to(const Ranks& all, std::uint32_t device, std::uint32_t local) {
    return control_of(all, device) + all.rings + (std::uint64_t{local} * all.devices + all.device) * all.slots * sizeof(Packet);
}

MP_COLD void look_up(Desk& all, Route& route, std::uint32_t window, std::uint32_t rank) {
    route = {0, 0, 0, 0, 0, window, rank, 0, 0};
    if (window >= 2 * rank_windows || rank >= all.size) return;
    const RingEnds ends = ends_to(all, rank);
    route.device = device_of(all, rank);
    route.far = is_far(all, route.device);
    const RankShare share = share_of(all, route.device, window, rank);
    route.memory = share.memory;
    route.bytes = share.bytes;
    route.ring = ring_to(all, route.device, rank - first_of(all, route.device));
    route.next = load(ends.head, relaxed, gpu);
    route.read = load(ends.tail, relaxed, system);
}

// By all threads of the block. Two neighbours have a route each, for each of four windows.
MP_DEVICE Route& route_to(const Rank& self, std::uint32_t window, std::uint32_t rank) {
    Route& route = self.all->routes[(2 * window + (rank >> 1 & 1)) % desk_routes];
    if (MP_RARELY(route.window != window || route.rank != rank)) {
        block().sync();
        if (block().leads()) look_up(*self.all, route, window, rank);
        block().sync();
    }
    return route;
}

// Whether these bytes of a share are the memory `mine`, as far as the block has that near.
MP_DEVICE bool is_in_place(const Rank& self, std::uint32_t window, std::uint32_t rank, std::uint64_t first, const void* mine,
                           std::uint64_t bytes) {
    const Route& route = self.all->routes[(2 * window + (rank >> 1 & 1)) % desk_routes];
    return route.window == window && route.rank == rank && route.far == 0 && place_in(route, first, bytes) == address_of(mine) && mine != nullptr;
}

// The leader's fence: at the scope of whoever is in the world, or of the ranks of one device.
template <class Order>
MP_DEVICE void fence_for(Order order, bool one_device) {
    if (one_device)
        fence(order, gpu);
    else
        fence(order, system);
}

// ---- failures -------------------------------------------------------------------------------------------------

struct RankFailure {
    WaitStatus status;
    RankCall call;
    std::uint32_t peer, window, tag, missing, full;
    std::uint64_t wanted, have, waited_ns;
};

MP_COLD void report_rank(const Ranks& all, std::uint32_t rank, const RankFailure failure) {
    auto* slot = at<RankReport>(all.control + all.report);
    if (fetch(&slot->claimed, replace, std::uint32_t{1}, gpu, relaxed) != 0) return;
    std::uint32_t missing = failure.missing;
    // Who is waited for alone is missing if it will not come. Of a world that is lost nobody is asked: its memory may be gone.
    if (failure.status == timed_out && missing == nobody && failure.peer < all.size) missing = failure.peer;
    slot->phase = missing == nobody ? 0 : static_cast<std::uint32_t>(state_in(all, missing, offsetof(RankState, phase)));
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
MP_COLD WaitResult refuse_rank(const Rank self, RankCall call, std::uint32_t peer, std::uint32_t window, std::uint32_t tag,
                               std::uint64_t first, std::uint64_t size, std::uint64_t bytes) {
    if (block().leads())
        report_rank(*self.all, self.rank, {bad_argument, call, peer, window, tag, nobody, 0, first, size, bytes});
    return {bad_argument, size, 0};
}

// ---- notifications --------------------------------------------------------------------------------------------

// Who looks for notifications: the first warp of a block, each lane of which looks at a slot of its own; or the leader alone, while it waits
// for something else.
struct Lanes {
    std::uint32_t count;  // 32 or 1

    MP_DEVICE bool looks() const { return thread_rank() < count; }
    MP_DEVICE std::uint32_t rank() const { return count == 1 ? 0 : lane(); }
    // Bits of the lanes below this one.
    MP_DEVICE std::uint32_t below() const { return (1u << rank()) - 1; }
    MP_DEVICE std::uint32_t ballot(bool mine) const { return count == 1 ? mine : warp_ballot(mine); }
    MP_DEVICE void sync() const {
        if (count != 1) warp_barrier();
    }
};
constexpr Lanes leader_alone = {1};

// Slots of a ring that are looked at at once, at most, in bits: a notification seldom comes alone, and these are two sectors of memory.
constexpr std::uint32_t most_ahead_bits = 2;

// What has come to a rank, as far as it was looked at: the same in all lanes.
struct Inbox {
    Lanes lanes;
    std::uint32_t first;    // in the queue
    std::uint32_t held;     // in it
    std::uint32_t matched;  // of those
    bool room;              // for all that have come
    bool half_read;         // a ring, of which its sender has not been told

    MP_DEVICE bool goes_on(std::uint32_t enough) const { return matched < enough && room && !half_read; }
};
MP_DEVICE Inbox inbox_of(const RankState& state, const Lanes lanes) {
    return {lanes, static_cast<std::uint32_t>(state.first), static_cast<std::uint32_t>(state.count), 0, true, false};
}
MP_DEVICE std::uint64_t* queue_of(const Ranks& all, std::uint32_t local) {
    return at<std::uint64_t>(all.control + all.queues) + std::uint64_t{local} * all.spill;
}
MP_DEVICE RankPosition* positions_of(const Ranks& all, std::uint32_t local) {
    return at<RankPosition>(all.control + all.positions) + std::uint64_t{local} * all.devices;
}

// Takes what has come into the queue, until `enough` match or a ring is half read; looks so many times at most. It calls nothing, so that all
// of it is in registers, and what is read again at each look but for the packets lies in the multiprocessor's cache.
MP_COLD Inbox take_in(const Ranks& all, std::uint32_t local, Inbox inbox, const Filter filter, std::uint32_t enough, int looks) {
    const Lanes lanes = inbox.lanes;
    const std::uint32_t devices = all.devices, slots = all.slots, below = lanes.below();
    std::uint32_t bits = 0;
    while (bits < most_ahead_bits && devices << (bits + 1) <= lanes.count) ++bits;
    // This lane looks at the ring of a device, at the slot that is so far ahead of what was taken.
    const std::uint32_t ahead = lanes.rank() & ((1u << bits) - 1), first_lane = lanes.rank() - ahead, rings = lanes.count >> bits;
    // No device is always the last.
    const std::uint32_t turn = devices == 1 ? 0 : inbox.first % devices;
    for (;;) {
        MP_NO_UNROLL
        for (std::uint32_t begin = 0; begin < devices && inbox.goes_on(enough); begin += rings) {
            const std::uint32_t number = begin + (first_lane >> bits), turned = number + turn;
            const std::uint32_t device = number >= devices ? 0 : turned < devices ? turned : turned - devices;
            RankPosition* position = positions_of(all, local) + device;
            const Packet* ring = at<const Packet>(all.control + all.rings) + (std::uint64_t{local} * devices + device) * slots;
            MP_NO_UNROLL
            do {
                const std::uint64_t next = position->next, epoch = number < devices ? next + ahead + 1 : ~std::uint64_t{0};
                const Packet* slot = ring + ((static_cast<std::uint32_t>(next) + ahead) & (slots - 1));
                Packet packet = load_packet(slot);
                std::uint32_t come = lanes.ballot(packet.epoch == epoch);
                MP_NO_UNROLL
                for (; come == 0 && rings >= devices && looks > 1; --looks) {
                    pause();
                    packet = load_packet(slot);
                    come = lanes.ballot(packet.epoch == epoch);
                }
                if (come == 0) break;
                // What is behind a gap waits for it, what is beyond enough stays, and what there is no room for, too.
                const std::uint32_t up_to_this = (2u << ahead) - 1;
                const bool in_row = (come >> first_lane & up_to_this) == up_to_this;
                const std::uint32_t matches = lanes.ballot(in_row && filter.takes(packet.data));
                const std::uint32_t wanted = lanes.ballot(in_row && inbox.matched + bits_in(matches & below) < enough);
                const std::uint32_t room = all.spill - inbox.held;
                const bool mine = (wanted >> lanes.rank() & 1) != 0 && bits_in(wanted & below) < room;
                const std::uint32_t taken = lanes.ballot(mine);
                if (mine)
                    queue_of(all, local)[(inbox.first + inbox.held + bits_in(taken & below)) & (all.spill - 1)] = packet.data;
                inbox.held += bits_in(taken);
                inbox.matched += bits_in(matches & taken);
                inbox.room = taken == wanted;
                const std::uint64_t now = next + bits_in(taken >> first_lane & ((1u << (1u << bits)) - 1));
                const bool half_read = now - position->told >= (slots + 1) / 2;
                inbox.half_read |= lanes.ballot(half_read) != 0;
                lanes.sync();
                if (ahead == 0 && now != next) position->next = now;
                lanes.sync();
            } while (inbox.goes_on(enough));
        }
        if (!inbox.goes_on(enough) || --looks <= 0) return inbox;
    }
}

// Gives back rings that have been read by half: a full ring has been read by then. Lanes that have looked meet before and behind it.
MP_COLD void give_back(const Ranks& all, std::uint32_t local, Inbox& inbox) {
    inbox.lanes.sync();
    for (std::uint32_t device = inbox.lanes.rank(); device < all.devices; device += inbox.lanes.count) {
        RankPosition& position = positions_of(all, local)[device];
        if (position.next - position.told < (all.slots + 1) / 2) continue;
        position.told = position.next;
        (void)raise_in(all, device, all.tails + (all.first + local) * sizeof(std::uint64_t), position.next);
    }
    inbox.half_read = false;
    inbox.lanes.sync();
}

// The same, giving back what was read.
MP_DEVICE void take_all_of(const Ranks& all, std::uint32_t local, Inbox& inbox, const Filter filter, std::uint32_t enough, int looks) {
    for (;;) {
        inbox = take_in(all, local, inbox, filter, enough, looks);
        if (!inbox.half_read || inbox.matched == enough) return;
        give_back(all, local, inbox);
    }
}
// Takes all in. By the leader. False if there was no room for all.
MP_COLD bool take_all_in(const Ranks& all, std::uint32_t local) {
    RankState* state = at<RankState>(all.control + all.states) + local;
    Inbox inbox = inbox_of(*state, leader_alone);
    take_all_of(all, local, inbox, {~std::uint64_t{0}, ~std::uint64_t{0}}, ~std::uint32_t{0}, 1);
    state->count = inbox.held;
    return inbox.room;
}

// One thread's wait for `poll(seen)`. Not unrolled, as wait_for is: the polls of a rank are calls.
template <class Poll>
MP_DEVICE WaitResult wait_calling(const Poll& poll, const WaitBounds& bounds) {
    const auto look = look_by(poll);
    const auto waited = wait_long(look, look, is_there, bounds);
    return {waited.status, waited.seen.seen, waited.waited_ns};
}

// Waits for `is`, which looks at a word, and takes in meanwhile what comes. By the leader. `full`: its queue was at the last look.
template <class Is>
MP_DEVICE WaitResult wait_taking_in(const Rank& self, const WaitBounds& bounds, bool& full, const Is& is) {
    const WaitResult result = wait_calling(
        [&](std::uint64_t&) {
            if (is()) return true;
            full = !take_all_in(*self.all, self.local);
            return false;
        },
        bounds);
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

// Takes `count` that match out of the first `looked` of the queue, the last of which does; what was between them moves up.
MP_COLD void take_out(const Ranks& all, std::uint32_t local, std::uint32_t first, const Filter filter, std::uint32_t looked, std::uint32_t count,
                      Notification* out) {
    const auto queued = [&](std::uint32_t number) -> std::uint64_t& { return queue_of(all, local)[(first + number) & (all.spill - 1)]; };
    for (std::uint32_t kept = looked, left = count; looked-- > 0;) {
        const std::uint64_t label = queued(looked);
        if (!filter.takes(label))
            queued(--kept) = label;
        else if (--left, out != nullptr)
            out[left] = notification_of(label);
    }
}

// Looks through what lies in the queue, until `count` match. How far.
MP_COLD std::uint32_t look_through(const Ranks& all, std::uint32_t local, Inbox& inbox, const Filter filter, std::uint32_t count) {
    const Lanes lanes = inbox.lanes;
    std::uint32_t looked = 0;
    MP_NO_UNROLL
    while (looked < inbox.held && inbox.matched < count) {
        const std::uint32_t mine = looked + lanes.rank();
        const std::uint64_t label = queue_of(all, local)[(inbox.first + mine) & (all.spill - 1)];
        const std::uint32_t matches = lanes.ballot(mine < inbox.held && filter.takes(label));
        const std::uint32_t wanted = lanes.ballot(inbox.matched + bits_in(matches & lanes.below()) < count);
        inbox.matched += bits_in(matches & wanted);
        looked += bits_in(wanted);
    }
    return looked < inbox.held ? looked : inbox.held;
}

// The rest of a wait that was not short. By the leader.
MP_COLD WaitResult take_late(const Ranks& all, std::uint32_t local, Inbox& inbox, const Filter filter, std::uint32_t count,
                             const WaitBounds bounds) {
    inbox.lanes = leader_alone;
    return wait_calling(
        [&](std::uint64_t&) {
            take_all_of(all, local, inbox, filter, count, 1);
            return inbox.matched == count || !inbox.room;
        },
        bounds);
}

// Looks of a wait before it is one with clocks and bounds.
constexpr int first_looks = 4 * polls_between_clocks;

MP_CALL WaitResult take(const Rank self, const Wanted wanted, std::uint32_t count, Notification* out, const Patience patience) {
    if (count == 0) return {ok, 0, 0};
    const Ranks& all = *self.all;
    const bool known = (wanted.window == any_window || wanted.window < 2 * rank_windows) &&
                       (wanted.source == any_source || wanted.source < all.size) &&
                       (wanted.tag == any_tag || is_tag(wanted.tag)) && count <= all.spill;
    if (MP_RARELY(!known)) return refuse_rank(self, rank_wait, wanted.source, wanted.window, wanted.tag, count, all.spill, count);
    WaitResult result = {ok, count, 0};
    const Lanes lanes = {block_threads() < looking_lanes ? 1 : looking_lanes};
    if (lanes.looks()) {
        const Filter filter = filter_of(wanted);
        RankState* state = state_of(self);
        Inbox inbox = inbox_of(*state, lanes);
        // What lies in the queue is looked at once, and what comes when it comes.
        std::uint32_t looked = inbox.held == 0 ? 0 : look_through(all, self.local, inbox, filter, count);
        if (inbox.matched < count) {
            take_all_of(all, self.local, inbox, filter, count, patience.waits ? first_looks : 1);
            if (block().leads() && patience.waits && inbox.matched < count && inbox.room) {
                // A copy, so that the words above stay in registers.
                Inbox late = inbox;
                result = take_late(all, self.local, late, filter, count, patience.bounds);
                inbox = late;
            }
            looked = inbox.held;
        }
        // The leader knows. By whoever has seen one come, and first, so that it does not wait for what is stored below.
        const bool enough = (lanes.ballot(inbox.matched == count) & 1) != 0;
        if (enough) fence_for(acquire, all.devices == 1);
        if (MP_RARELY(inbox.half_read)) give_back(all, self.local, inbox);
        lanes.sync();
        if (block().leads()) {
            if (enough) {
                result = {ok, count, 0};
                // Out of the queue; what was before them moves up. If nothing was, nothing moves.
                if (looked != count || out != nullptr) take_out(all, self.local, inbox.first, filter, looked, count, out);
                inbox.held -= count;
                state->first += count;
            } else {
                result.seen = inbox.matched;
                if (!inbox.room) result.status = no_room;
            }
            state->count = inbox.held;
            // A wildcard is all ones, as nobody is.
            if (patience.reports && result.failed())
                report_rank(all, self.rank, {result.status, rank_wait, wanted.source, wanted.window, wanted.tag, nobody,
                                             static_cast<std::uint32_t>(!inbox.room), count, inbox.matched, result.waited_ns});
        }
    }
    // The vote is the barrier; the words cross only where they are not known.
    if (block().any(result.failed() || result.seen != count)) return block().broadcast(result);
    return {ok, count, 0};
}

// ---- data -----------------------------------------------------------------------------------------------------

// Who is told when data have been moved.
enum class Tells : std::uint32_t { none, target, device };

struct Transfer {
    RankCall call;
    std::uint32_t window;
    std::uint32_t target;
    std::uint32_t tag;
    std::uint64_t first;
    void* mine;
    std::uint64_t bytes;
    Tells tells;
};

// The same of a device behind a NIC, of rows; `theirs` is an address of that device.
MP_COLD WaitResult transfer_far(const Rank self, Route& route, const Transfer what, std::uint64_t theirs, const Rows rows) {
    const Ranks& all = *self.all;
    const Window window = window_over(all, all.memories);
    const WindowPart& part = opened_by(all.memories, route.device);
    block().sync();
    bool moved = true;
    if (rows.bytes != 0 && rows.count != 0) {
        if (what.call == rank_get)
            moved = get_by_nic(block(), window, part, theirs, what.mine, rows);
        else if (rows.count == 1)
            moved = put_by_nic(block(), window, part, block_rank(), theirs, what.mine, rows.bytes, 0, 0);
        else
            moved = put_rows_by_nic(block(), window, part, theirs, what.mine, rows);
    }
    WaitResult result = {moved ? ok : path_failed, what.tells != Tells::none, 0};
    // What has been got may be written there again: it is here by then.
    if (moved && what.call == rank_get && what.tells != Tells::none) result = drain_far(all, route.device, 1, Drain::in_use);
    if (block().any(result.failed())) {
        if (block().leads())
            report_rank(all, self.rank, {path_failed, what.call, what.target, what.window, what.tag, nobody, 0, what.first, route.bytes, 0});
        return {path_failed, 0, 0};
    }
    if (what.tells == Tells::none) return result;
    const std::uint64_t label = label_of(self.rank, what.window, what.tag);
    if (block().leads()) result = what.tells == Tells::target ? notify_slowly(self, route, route.next, label) : notify_device(self, route.device, label);
    if (block().any(result.failed())) return block().broadcast(result);
    return {ok, 1, 0};
}

MP_CALL WaitResult transfer(const Rank self, const Transfer what) {
    const Ranks& all = *self.all;
    Route& route = route_to(self, what.window, what.target);
    const bool tells = what.tells != Tells::none, leads = block().leads();
    const std::uint64_t theirs = place_in(route, what.first, what.bytes), own = address_of(what.mine);
    const std::uint64_t apart = theirs > own ? theirs - own : own - theirs;
    const bool far = route.far != 0;
    if (MP_RARELY(theirs == 0 || (apart != 0 && apart < what.bytes && !far) || (tells && !is_tag(what.tag))))
        return refuse_rank(self, what.call, what.target, what.window, tells ? what.tag : nobody, what.first, route.bytes, what.bytes);
    if (MP_RARELY(far)) return transfer_far(self, route, what, theirs, Rows{what.bytes, 1, 0, 0});
    if (apart != 0 && what.bytes != 0) {
        block().sync();
        if (what.call == rank_put)
            copy(block(), at<void>(theirs), what.mine, what.bytes);
        else
            copy(block(), what.mine, at<void>(theirs), what.bytes);
    }
    WaitResult result = {ok, tells, 0};
    if (!tells) return result;
    block().sync();
    if (leads) fence_for(release, route.device == all.device);
    // Beside the fence: by another warp if there is one, because a fence waits for what its own has asked, and not before, because who has a
    // later place in the ring is not heard until this one is. Others may have taken the one that is guessed.
    if (what.tells == Tells::target && thread_rank() == (block_threads() > 32 ? 32 : 0)) {
        std::uint64_t next = route.next;
        self.all->has_ticket = ask_ticket(all, what.target, route.read, next);
        self.all->found = next;
    }
    block().sync();
    if (leads) {
        const std::uint64_t next = self.all->found, label = label_of(self.rank, what.window, what.tag);
        if (what.tells == Tells::device) {
            result = notify_device(self, route.device, label);
        } else if (self.all->has_ticket != 0) {
            store_packet(slot_in(all, route.ring, next), {label, next + 1});
            route.next = next + 1;
        } else {
            result = notify_slowly(self, route, next, label);
        }
    }
    if (block().any(result.failed())) return block().broadcast(result);
    return {ok, 1, 0};
}

// Whether rows from one place on meet rows from another, which is not the same.
MP_DEVICE bool rows_meet(std::uint64_t theirs, std::uint64_t there, std::uint64_t own, std::uint64_t here, const Rows& rows) {
    if (theirs >= own + here || own >= theirs + there) return false;
    // Columns of one array lie beside each other.
    if (rows.there != rows.here || rows.there == 0) return true;
    const std::uint64_t beside = (theirs > own ? theirs - own : own - theirs) % rows.there;
    return beside < rows.bytes || beside + rows.bytes > rows.there;
}

// The same of rows, which are moved here; `what` says of none how many bytes there are.
MP_CALL WaitResult transfer_rows(const Rank self, Transfer what, const Rows rows) {
    Route& route = route_to(self, what.window, what.target);
    const std::uint64_t there = extent_of(rows.bytes, rows.count, rows.there), here = extent_of(rows.bytes, rows.count, rows.here);
    const std::uint64_t theirs = place_in(route, what.first, there), own = address_of(what.mine);
    const bool far = route.far != 0, same = there == 0 || (theirs == own && !far && (rows.there == rows.here || rows.count == 1));
    const bool tangled = rows.count > 1 && (rows.there < rows.bytes || rows.here < rows.bytes);
    if (MP_RARELY(theirs == 0 || tangled || (!same && !far && rows_meet(theirs, there, own, here, rows)) ||
                  (what.tells != Tells::none && !is_tag(what.tag))))
        return refuse_rank(self, what.call, what.target, what.window, what.tells == Tells::none ? nobody : what.tag, what.first, route.bytes,
                           there);
    if (MP_RARELY(far)) return transfer_far(self, route, what, theirs, rows);
    if (!same) {
        block().sync();
        if (what.call == rank_put)
            copy_rows(block(), theirs, rows.there, own, rows.here, rows, Part{});
        else
            copy_rows(block(), own, rows.here, theirs, rows.there, rows, Part{});
    }
    if (what.tells == Tells::none) return {ok, 0, 0};
    return transfer(self, what);
}

// ---- meeting --------------------------------------------------------------------------------------------------

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
MP_CALL WaitResult meet(const Rank self, Team team, RankCall call) {
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

MP_CALL WaitResult create(const Rank self, Team team, const void* base, std::uint64_t bytes, std::uint32_t& window) {
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

MP_CALL WaitResult free(const Rank self, std::uint32_t window) {
    const Ranks& all = *self.all;
    RankState* state = state_of(self);
    const Team team = window < rank_windows ? Team::world : Team::device;
    bool open = false;
    block().sync();
    if (block().leads()) forget_routes(*self.all);
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
            more = !take_all_in(all, self.local);
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
    const Ranks& all = *self.all;
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
