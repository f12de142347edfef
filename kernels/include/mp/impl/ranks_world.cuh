// The world as a rank of a device sees it: labels of notifications, where devices' memory and words and shares of windows are, what failures say.
// Not to be included by itself. Functions are out of line here and in the other ranks_*.cuh where they are long: one copy of each in a kernel, not
// one wherever it is called, as a rank needs its registers for what it computes, and its calls are few.
#pragma once

#include "../ranks.cuh"

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
constexpr unsigned desk_routes = 8, desk_devices = 8;

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

// What is left of a call.
enum class Left : std::uint32_t { nothing, route, refusal, far, copy, notification };

// The world as a block keeps it in memory of its own.
struct Desk : Ranks {
    Route routes[desk_routes];
    // For the leader: what is left of a notification, or the place in a ring that was taken for it and what goes there. If none was taken,
    // the epoch says what the ring's head was.
    std::uint64_t slot;
    Packet packet;
    Left left;
    // The call of which something is left. Whoever calls would keep it in local memory meanwhile, and the fence waits for what is stored there.
    Transfer call;
    // The leader's: the device whose ring it looks at next. And what the rank's state and positions say of its queue and of what it has read; those are
    // in the device's memory, which is far away after an acquire. Both are written.
    std::uint32_t turn;
    std::uint32_t queued;
    std::uint64_t queue_first;
    std::uint64_t read[desk_devices];  // of the first devices
    // Where the rank's state, its positions, its rings and its queue are.
    std::uint64_t state_at, positions_at, rings_at, queue_at;
};
// Eight blocks of a multiprocessor have 16 KiB for it, with the 64 bytes of `block` and the 1 KiB that each has anyway; with more the cache is 16 KiB smaller,
// which costs a stencil 3 %.
static_assert(sizeof(Desk) <= 960);

MP_DEVICE RankState* state_of(const Rank& self) { return at<RankState>(self.all->state_at); }

// How far a rank has read the ring from a device. By the leader, as what follows.
MP_DEVICE RankPosition& position_of(const Desk& all, std::uint32_t device) { return at<RankPosition>(all.positions_at)[device]; }
MP_DEVICE std::uint64_t next_of(const Desk& all, std::uint32_t device) {
    return device < desk_devices ? all.read[device] : position_of(all, device).next;
}
MP_DEVICE void set_next(Desk& all, std::uint32_t device, std::uint64_t next) {
    position_of(all, device).next = next;
    if (device < desk_devices) all.read[device] = next;
}

// The rank's queue has these from now on.
MP_DEVICE void set_queue(Desk& all, std::uint64_t first, std::uint32_t held) {
    auto* state = at<RankState>(all.state_at);
    state->first = all.queue_first = first;
    state->count = all.queued = held;
}

// What the leader finds at its desk when its kernel begins.
MP_DEVICE void lay_out(Desk& all, std::uint32_t local) {
    const std::uint64_t rings = std::uint64_t{local} * all.devices;
    all.state_at = all.control + all.states + local * sizeof(RankState);
    all.positions_at = all.control + all.positions + rings * sizeof(RankPosition);
    all.rings_at = all.control + all.rings + rings * all.slots * sizeof(Packet);
    all.queue_at = all.control + all.queues + std::uint64_t{local} * all.spill * sizeof(std::uint64_t);
    all.turn = 0;
    const auto* state = at<const RankState>(all.state_at);
    all.queue_first = state->first;
    all.queued = static_cast<std::uint32_t>(state->count);
    for (std::uint32_t device = 0; device < all.devices && device < desk_devices; ++device)
        all.read[device] = position_of(all, device).next;
}

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

// Two neighbours have a route each, for each of four windows.
MP_DEVICE Route& route_at(Desk& all, std::uint32_t window, std::uint32_t rank) { return all.routes[(2 * window + (rank >> 1 & 1)) % desk_routes]; }
MP_DEVICE bool leads_to(const Route& route, std::uint32_t window, std::uint32_t rank) { return route.window == window && route.rank == rank; }
// By all threads of the block.
MP_DEVICE Route& route_to(const Rank& self, std::uint32_t window, std::uint32_t rank) {
    Route& route = route_at(*self.all, window, rank);
    if (MP_RARELY(!leads_to(route, window, rank))) {
        block().sync();
        if (block().leads()) look_up(*self.all, route, window, rank);
        block().sync();
    }
    return route;
}

// Whether these bytes of a share are the memory `mine`, as far as the block has that near.
MP_DEVICE bool is_in_place(const Rank& self, std::uint32_t window, std::uint32_t rank, std::uint64_t first, const void* mine,
                           std::uint64_t bytes) {
    const Route& route = route_at(*self.all, window, rank);
    return leads_to(route, window, rank) && route.far == 0 && place_in(route, first, bytes) == address_of(mine) && mine != nullptr;
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

}  // namespace impl
}  // namespace mp
