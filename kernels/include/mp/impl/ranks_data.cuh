// What device ranks put and get, and the notifications behind it. Not to be included by itself.
#pragma once

#include "box.cuh"
#include "ranks_notify.cuh"

namespace mp {
namespace impl {

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

MP_COLD WaitResult transfer(const Rank self, const Transfer what) {
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
