// What device ranks put and get, and the notifications behind it. Not to be included by itself.
#pragma once

#include "box.cuh"
#include "ranks_notify.cuh"

namespace mp {
namespace impl {

// Notifies whoever is to be told, where that is not one rank of whose ring a place is taken already. `next`: what may be the next one.
MP_COLD WaitResult notify_rest(const Rank self, Route& route, const Transfer what, std::uint64_t next) {
    const std::uint64_t label = label_of(self.rank, what.window, what.tag);
    WaitResult result = {ok, 1, 0};
    if (block().leads())
        result = what.tells == Tells::target ? notify_slowly(self, route, next, label) : notify_device(self, route.device, label);
    if (block().any(result.failed())) return block().broadcast(result);
    return {ok, 1, 0};
}

// A call for a device behind a NIC, of rows; `theirs` is an address of that device.
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
    return notify_rest(self, route, what, route.next);
}

// What keeps a call from going its common way, if anything does. All of the route is loaded at once, not from one condition to the next.
MP_DEVICE Left left_of(const Route& route, const Transfer& what) {
    std::uint64_t memory = route.memory, length = route.bytes;
    std::uint32_t far = route.far;
    const bool leads = leads_to(route, what.window, what.target);
    keep(memory);
    keep(length);
    keep(far);
    const std::uint64_t theirs = place_in(RankShare{memory, length}, what.first, what.bytes), own = address_of(what.mine);
    const std::uint64_t apart = theirs > own ? theirs - own : own - theirs;
    const bool refused = theirs == 0 || (apart != 0 && apart < what.bytes && far == 0) || (what.tells != Tells::none && !is_tag(what.tag));
    return !leads ? Left::route : refused ? Left::refusal : far != 0 ? Left::far : Left::nothing;
}

// Fences what the block has put or got, and notifies the target; nothing of that is there yet if something else is left than `nothing`. `checked`: nothing
// keeps the call from it.
MP_DEVICE Left tell(Desk& all, std::uint32_t rank, Route& route, const Transfer& what, bool checked) {
    // Ahead of the barrier, so that nothing is between it and what is asked of the device's memory.
    std::uint64_t ring = route.ring, head = address_of(ends_to(all, what.target).head), next = route.next, read = route.read;
    std::uint32_t slots = all.slots;
    keep(ring);
    keep(head);
    keep(next);
    keep(read);
    keep(slots);
    block().sync();
    if (block().leads()) fence_for(release, route.device == all.device);
    // Beside the fence: by another warp if there is one, because a fence waits for what its own has asked, and not before, because who has a
    // later place in the ring is not heard until this one is. Others may have taken the one that is guessed.
    if (thread_rank() == (block_threads() > 32 ? 32 : 0)) {
        Left left = checked ? Left::nothing : left_of(route, what);
        if (left == Left::nothing && !(what.tells == Tells::target && ask_ticket(at<std::uint64_t>(head), slots, read, next)))
            left = Left::notification;
        if (left == Left::nothing) route.next = next + 1;
        all.slot = address_of(slot_in(ring, slots, next));
        all.packet = {label_of(rank, what.window, what.tag), next + 1};
        all.left = left;
    }
    block().sync();
    // Read by all: a vote less. It is written next behind the first barrier above.
    std::uint64_t slot = all.slot;
    keep(slot);
    const Packet packet = all.packet;
    const Left left = all.left;
    if (left == Left::nothing && block().leads()) store_packet(at<Packet>(slot), packet);
    return left;
}
MP_COLD Left tell_late(Desk& all, std::uint32_t rank, Route& route, const Transfer& what) { return tell(all, rank, route, what, true); }

// The whole call if it is short: what has at most a word for each thread, to memory that is mapped. If there is nothing to move, the fence does not
// wait for the checks.
MP_DEVICE Left transfer_short(Desk& all, std::uint32_t rank, const Transfer& what) {
    Route& route = route_at(all, what.window, what.target);
    const bool tells = what.tells != Tells::none, checks = what.bytes != 0 || !tells;
    if (checks) {
        const Left left = left_of(route, what);
        if (left != Left::nothing) return left;
        const std::uint64_t theirs = route.memory + what.first, own = address_of(what.mine);
        if (theirs != own && what.bytes != 0) {
            const bool puts = what.call == rank_put;
            block().sync();
            if (!copy_short(turn_of(block(), Part{}), at<void>(puts ? theirs : own), at<const void>(puts ? own : theirs), what.bytes))
                return Left::copy;
        }
    }
    return tells ? tell(all, rank, route, what, checks) : Left::nothing;
}

// The same, called. It calls nothing, so that all it works with stays in registers.
MP_COLD Left transfer_soon(Desk& all, std::uint32_t rank, const Transfer what) {
    const Left left = transfer_short(all, rank, what);
    if (MP_RARELY(left != Left::nothing) && block().leads()) all.call = what;
    return left;
}

// The rest of a call of which this is left.
MP_COLD WaitResult transfer_rest(const Rank self, Left left) {
    Desk& all = *self.all;
    block().sync();
    const Transfer what = all.call;
    // All have read it before it is written again.
    block().sync();
    Route& route = route_to(self, what.window, what.target);
    if (left == Left::route) left = transfer_soon(all, self.rank, what);
    const bool tells = what.tells != Tells::none;
    const WaitResult done = {ok, tells, 0};
    if (left == Left::refusal)
        return refuse_rank(self, what.call, what.target, what.window, tells ? what.tag : nobody, what.first, route.bytes, what.bytes);
    const std::uint64_t theirs = place_in(route, what.first, what.bytes);
    if (left == Left::far) return transfer_far(self, route, what, theirs, Rows{what.bytes, 1, 0, 0});
    if (left == Left::copy) {
        if (what.call == rank_put)
            copy_long(turn_of(block(), Part{}), at<void>(theirs), what.mine, what.bytes);
        else
            copy_long(turn_of(block(), Part{}), what.mine, at<const void>(theirs), what.bytes);
        left = tells ? tell_late(all, self.rank, route, what) : Left::nothing;
    }
    return left == Left::nothing ? done : notify_rest(self, route, what, all.packet.epoch - 1);
}

MP_DEVICE WaitResult transfer(const Rank& self, const Transfer& what) {
    const Left left = transfer_soon(*self.all, self.rank, what);
    if (MP_RARELY(uniform(left != Left::nothing))) return transfer_rest(self, left);
    return {ok, what.tells != Tells::none, 0};
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
MP_COLD WaitResult transfer_rows(const Rank self, Transfer what, const Rows rows) {
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

}  // namespace impl
}  // namespace mp
