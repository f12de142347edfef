// Device ranks: each block of a cooperative launch is a rank of a world that spans the blocks of all devices (dCUDA, SC16). Ranks put to and
// get from each other's windows, and the target of either can be notified: it waits for notifications by window, source and tag, any of
// which may be any, in the order in which they have come. The host makes the world and launches it (crate dranks). Not here: more ranks
// than blocks that run at once; the host refuses them.
//
// Every call is made by all threads of the block with the same arguments, and begins and ends with a barrier of the block where data or a
// result crosses threads. Places in windows are in bytes here, in elements in dcuda.cuh.
//
// Order. A notification comes behind all that its rank has put to the target, or got from it, before; notifications of one rank to
// another come in the order in which they were sent. Who has waited for one sees what it came behind, and also what its
// sender had been notified of. Nothing is said of what another rank puts at the same time, nor of data that no notification covers.
// To a device behind a NIC all of that holds, too: what a rank puts there and the notifications behind it go by one queue, in order.
// What was put by others must not be read through the non-coherent path (`__ldg`, `const __restrict__`) in the same launch.
//
// Every call ends: by the world's time limit, or the one given, and when the world is lost. The first failure of a device goes
// into its RankReport. A rank that waits, whatever for, takes in what comes to itself meanwhile, so that two that send to each other
// without waiting both get on; what its queue has no room for stays in the rings, and holds its senders back.
#pragma once

#include "copy.cuh"
#include "reduction.cuh"
#include "signal.cuh"
#include "window.cuh"

namespace mp {

// Who meets, or opens a window together: all ranks, or those of one device.
enum class Team : std::uint32_t { world, device };

// Wildcards, and what a wait has instead of them.
constexpr std::uint32_t any_window = ~std::uint32_t{0};
constexpr std::uint32_t any_source = ~std::uint32_t{0};
constexpr std::uint32_t any_tag = ~std::uint32_t{0};

// What is waited for.
struct Wanted {
    std::uint32_t window = any_window;
    std::uint32_t source = any_source;
    std::uint32_t tag = any_tag;
};

// One that has come.
struct Notification {
    std::uint32_t window;
    std::uint32_t source;
    std::uint32_t tag;
};

namespace impl {
struct Desk;
}

// A rank, as its block uses it. Each thread has its own, or the block one in shared memory; what changes is in the device's memory, and what
// the leader reads at each call in the block's own, too.
struct Rank {
    impl::Desk* all;      // the world, in the block's own memory
    std::uint32_t rank;   // in the world
    std::uint32_t local;  // on its device: the number of its block
};

// The bounds of calls that are given none: the world's time limit.
MP_DEVICE WaitBounds bounds_of(const Rank& self);

}  // namespace mp

#include "impl/ranks_log.cuh"
#include "impl/ranks_meet.cuh"

namespace mp {

// Makes the block a rank of the world, of one at a time. The grid has exactly the world's ranks of a device.
MP_DEVICE Rank join(const Ranks& ranks) {
    const Rank self = {block_memory<impl::Desk>(), ranks.first + block_rank(), block_rank()};
    block().sync();
    if (block().leads()) {
        static_cast<Ranks&>(*self.all) = ranks;
        impl::forget_routes(*self.all);
        impl::lay_out(*self.all, self.local);
        store(&impl::state_of(self)->phase, std::uint64_t{rank_joined}, relaxed, system);
    }
    block().sync();
    return self;
}

MP_DEVICE WaitBounds bounds_of(const Rank& self) { return {self.all->abort, self.all->timeout_ns}; }
MP_DEVICE std::uint32_t rank_in(const Rank& self, Team team) { return team == Team::world ? self.rank : self.local; }
MP_DEVICE std::uint32_t size_of(const Rank& self, Team team) {
    return team == Team::world ? self.all->size : self.all->per_device;
}

// Where bytes `at` … `at + bytes` of a rank's share of a window are; null if they are not all in it, or behind a NIC.
MP_DEVICE void* address_in(const Rank& self, std::uint32_t window, std::uint32_t rank, std::uint64_t at, std::uint64_t bytes) {
    if (window >= 2 * rank_windows || rank >= size_of(self, Team::world)) return nullptr;
    const std::uint32_t device = impl::device_of(*self.all, rank);
    if (impl::is_far(*self.all, device)) return nullptr;
    return impl::at<void>(impl::place_in(impl::share_of(*self.all, device, window, rank), at, bytes));
}

// Copies to a rank's share of a window. Nothing is copied if source and destination are the same memory, which is how ranks of one device
// exchange halos; ranges that overlap otherwise are refused. `from` may be written again after `flush`, or a barrier of the block. The
// target knows of it by a notification, or a barrier. Refused with bad_argument outside of the window; then nothing is written.
[[nodiscard]] MP_DEVICE WaitStatus put(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at,
                                       const void* from, std::uint64_t bytes) {
    if (impl::is_in_place(self, window, target, at, from, bytes)) return ok;
    return impl::transfer(self, {rank_put, window, target, 0, at, const_cast<void*>(from), bytes, impl::Tells::none}).status;
}

// Copies from a rank's share of a window: loads, over the link if need be. The bytes are there for the block after `flush`. For the rest as put.
[[nodiscard]] MP_DEVICE WaitStatus get(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at, void* to,
                                       std::uint64_t bytes) {
    if (impl::is_in_place(self, window, target, at, to, bytes)) return ok;
    return impl::transfer(self, {rank_get, window, target, 0, at, to, bytes, impl::Tells::none}).status;
}

// The same of rows: the first to byte `at` of the share, or from there. Rows do not overlap, as those that are one array's columns do not.
// Nothing is copied if all of them are where they go to.
[[nodiscard]] MP_DEVICE WaitStatus put(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at,
                                       const void* from, const Rows& rows) {
    return impl::transfer_rows(self, {rank_put, window, target, 0, at, const_cast<void*>(from), 0, impl::Tells::none}, rows).status;
}
[[nodiscard]] MP_DEVICE WaitStatus get(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at, void* to,
                                       const Rows& rows) {
    return impl::transfer_rows(self, {rank_get, window, target, 0, at, to, 0, impl::Tells::none}, rows).status;
}

// put, and then a notification of the target: (window, this rank, tag). A full ring is waited for; if it stays full, the bytes have
// been written and the target has not been notified: timed_out, or no_room if this rank's own queue is full as well.
MP_DEVICE WaitResult put_notify(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at, const void* from,
                                std::uint64_t bytes, std::uint32_t tag) {
    return impl::transfer(self, {rank_put, window, target, tag, at, const_cast<void*>(from), bytes, impl::Tells::target});
}

// get, and then a notification of the target: its bytes have been read, and it may write them again.
MP_DEVICE WaitResult get_notify(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at, void* to,
                                std::uint64_t bytes, std::uint32_t tag) {
    return impl::transfer(self, {rank_get, window, target, tag, at, to, bytes, impl::Tells::target});
}

// The same of rows: one notification for all of them.
MP_DEVICE WaitResult put_notify(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at, const void* from,
                                const Rows& rows, std::uint32_t tag) {
    return impl::transfer_rows(self, {rank_put, window, target, tag, at, const_cast<void*>(from), 0, impl::Tells::target}, rows);
}
MP_DEVICE WaitResult get_notify(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at, void* to,
                                const Rows& rows, std::uint32_t tag) {
    return impl::transfer_rows(self, {rank_get, window, target, tag, at, to, 0, impl::Tells::target}, rows);
}

// put to one rank, and then a notification of every rank of its device: for data that they share, which crosses the link once.
MP_DEVICE WaitResult put_notify_all(const Rank& self, std::uint32_t window, std::uint32_t target, std::uint64_t at,
                                    const void* from, std::uint64_t bytes, std::uint32_t tag) {
    return impl::transfer(self, {rank_put, window, target, tag, at, const_cast<void*>(from), bytes, impl::Tells::device});
}

// Waits for `count` notifications that match, and takes them: the earliest, as this rank has taken them in; all others stay, in order. With
// 0 it is over at once. After ok the block sees what they came behind (acquire), and `out`, if it is given, has them in order.
// Otherwise nothing is taken: timed_out, aborted; no_room if the queue is full of others and another one waits to come in, of
// which waiting for those frees; bad_argument for more than the queue holds, or what no notification has. `seen`: how many there were.
MP_DEVICE WaitResult wait_notifications(const Rank& self, const Wanted& wanted, std::uint32_t count, Notification* out = nullptr) {
    return impl::take(self, wanted, count, out, true, [&] { return impl::Patience{bounds_of(self), true, true}; });
}
// The same within bounds of its own: then that it was too late, or found no room, is the caller's affair and not in the report.
MP_DEVICE WaitResult wait_notifications(const Rank& self, const Wanted& wanted, std::uint32_t count, const WaitBounds& bounds,
                                        Notification* out = nullptr) {
    return impl::take(self, wanted, count, out, true, [&] { return impl::Patience{bounds, true, false}; });
}

// The same without waiting: `seen` is `count` if they were there and have been taken; if there are fewer, `seen` is how many, and all stay.
MP_DEVICE WaitResult test_notifications(const Rank& self, const Wanted& wanted, std::uint32_t count, Notification* out = nullptr) {
    return impl::take(self, wanted, count, out, false, [] { return impl::Patience{{0, 0}, false, false}; });
}

// Ends when all that this rank has put and got has happened here: sources may be written again, what was got is there for the block.
// Fails only with a NIC that does.
MP_DEVICE WaitResult flush(const Rank& self) {
    if (MP_RARELY(self.all->far != 0)) return impl::drain_far(*self.all, 0, self.all->devices, impl::Drain::in_use);
    block().sync();
    if (block().leads()) impl::fence_for(acq_rel, self.all->devices == 1);
    block().sync();
    return {ok, 0, 0};
}

// Waits for all ranks of the team to come; who leaves sees what each did before. When one does not come within the time limit the
// call fails, with that rank in the report, and all later barriers of this rank fail likewise.
MP_DEVICE WaitResult barrier(const Rank& self, Team team) { return impl::meet(self, team, rank_barrier); }

// Opens `bytes` bytes from `base` on, in the device's memory, to the ranks of the team, each of which calls with its own; shares may differ in
// length, overlap, and have no bytes. `window` gets its number, the same for all of the team. It ends with a barrier. no_room: all
// RANK_WINDOWS windows of the team are open; bad_argument: not in the device's memory, the share has no bytes then.
MP_DEVICE WaitResult win_create(const Rank& self, Team team, const void* base, std::uint64_t bytes, std::uint32_t& window) {
    return impl::create(self, team, base, bytes, window);
}

// Closes a window, with a barrier: afterwards nobody of the team uses it, its number may be given again, and notifications of it that
// nobody has waited for are gone.
MP_DEVICE WaitResult win_free(const Rank& self, std::uint32_t window) { return impl::free(self, window); }

// ---- collectives that notify ----------------------------------------------------------------------------------
//
// Nobody waits in them: who takes part computes on, and takes their notifications, of the window and the tag, when it needs them. All ranks of
// the window's team call, those of kernels; a rank calls the next one of a window when it has taken the notifications of the last. Who has taken all of
// them sees what every rank did before its call.

// How many notifications a rank gets of one in which all take part: one from each device of the window's team.
MP_DEVICE std::uint32_t parts_of(const Rank& self, std::uint32_t window) {
    return impl::team_of(window) == Team::world ? self.all->devices : 1;
}

// A barrier that nobody waits in: over for whoever has taken `parts_of` notifications.
MP_DEVICE WaitResult barrier_notify(const Rank& self, std::uint32_t window, std::uint32_t tag) {
    if (window >= 2 * rank_windows || !impl::is_tag(tag)) return impl::refuse_collective(self, window, tag, 0, 0);
    bool last = false;
    const WaitResult came = impl::come(self, window, last);
    return !last || came.failed() ? came : impl::put_to_team(self, window, 0, nullptr, 0, tag);
}

// By one rank, without the others' call: puts to byte `at` of the share of every rank of the window's team, this one too, and notifies each once. Where
// shares of one device are the same memory the bytes go there once. By every rank, each to a place of its own, it gathers.
MP_DEVICE WaitResult broadcast_notify(const Rank& self, std::uint32_t window, std::uint64_t at, const void* from, std::uint64_t bytes,
                                      std::uint32_t tag) {
    if (window >= 2 * rank_windows || !impl::is_tag(tag)) return impl::refuse_collective(self, window, tag, at, bytes);
    return impl::put_to_team(self, window, at, from, bytes, tag);
}

// Combines `count` numbers of every rank, at byte `from` of its share, by an operation of reduction.cuh: each device's go to byte `to` and on of every
// share, those of the first device first, `count` for each; `parts_of` notifications say so. What is left to the one who takes them is to combine
// so many numbers. In the order of ranks, so that all get the same bits.
template <class T, class Operation>
MP_DEVICE WaitResult reduce_notify(const Rank& self, std::uint32_t window, std::uint64_t from, std::uint64_t to, std::uint64_t count,
                                   Operation operation, std::uint32_t tag) {
    if (window >= 2 * rank_windows || !impl::is_tag(tag) || count > ~std::uint64_t{0} / sizeof(T) / 64)
        return impl::refuse_collective(self, window, tag, from, count);
    bool last = false;
    const WaitResult came = impl::come(self, window, last);
    return !last || came.failed() ? came : impl::reduce_of_device<T>(self, window, from, to, count, operation, tag);
}

// Says that this rank is done, so that others that wait for it learn why. No barrier.
MP_DEVICE void finish(const Rank& self) {
    block().sync();
    if (block().leads()) store(&impl::state_of(self)->phase, std::uint64_t{rank_finished}, relaxed, system);
}

// Writes a line into the device's log: a text of up to 63 bytes with a `{}` for each of up to six numbers. Never waits: if the host
// does not read, lines are lost, and counted.
template <class... Values>
MP_DEVICE void print(const Rank& self, const char* text, Values... values) {
    static_assert(sizeof...(Values) <= 6, "print: at most six values");
    if (block().leads() && self.all->log != 0) impl::write_line(self, text, values...);
}

}  // namespace mp
