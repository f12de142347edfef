// Windows in kernels: put, get, signals and atomics on the memory of any rank, freely addressed or prepared by the host. The
// host opens the window (libmp, Window); signals lie in the memory of the GPU that waits for them, and are those of the host and
// of streams. Not here: messages, which are matched and need no addresses.
//
// Offsets are bytes and checked against the peer's size: an access outside does nothing and returns false. Ranks and signals
// are checked likewise. The window's report says what was refused, and the host's next synchronisation fails with it.
//
// A rank behind a NIC is reached by requests (impl/nic_window.cuh), which are executed in order: what was put to a rank comes
// before a signal to it. A put from this rank's own share, and of up to 512 bytes from anywhere, is one request; of more, one for
// each 512 bytes. A call whose request cannot be posted, or fails, returns false, and the window's report says why.
#pragma once

#include "copy.cuh"
#include "impl/nic_window.cuh"
#include "message.cuh"

namespace mp {

// The share of a rank; null if there is no such rank.
MP_DEVICE const WindowPart* part_of(const Window& window, std::uint64_t rank) {
    return rank < window.ranks ? impl::at<const WindowPart>(window.parts) + rank : nullptr;
}

namespace impl {

// A place in a rank's share: an address of this GPU, or of the rank if it is `far`, behind a NIC; 0 if there is none.
struct Place {
    std::uint64_t address;
    const WindowPart* far;
};
MP_DEVICE Place place_in(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    const WindowPart* part = part_of(window, rank);
    if (part == nullptr || at > part->bytes || bytes > part->bytes - at) return {0, nullptr};
    return {part->memory + at, part->nic != 0 ? part : nullptr};
}
MP_DEVICE Place signal_place_in(const Window& window, std::uint64_t rank, std::uint64_t signal) {
    const WindowPart* part = part_of(window, rank);
    if (part == nullptr || signal >= window.signals) return {0, nullptr};
    return {part->signals + signal * signal_stride, part->nic != 0 ? part : nullptr};
}

// A call for which there is no place. True if it has nothing to do; what was refused goes into the window's report.
template <class Group>
MP_COLD bool no_place(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    const WindowPart* part = part_of(window, rank);
    const bool inside = part != nullptr && at <= part->bytes && bytes <= part->bytes - at;
    if (part == nullptr)
        (void)refuse(group, window.report, no_such_rank, rank, 1, window.ranks);
    else if (!inside)
        (void)refuse(group, window.report, out_of_range, at, bytes, part->bytes);
    return inside && bytes == 0;
}
// The same of a call that then raises a signal.
template <class Group>
MP_COLD bool signal_alone(Group group, const Window& window, std::uint64_t rank, std::uint64_t first, std::uint64_t bytes,
                          const Place word, std::uint64_t value) {
    if (!no_place(group, window, rank, first, bytes)) return false;
    if (word.far != nullptr) return put_by_nic(group, window, *word.far, 0, nullptr, 0, word.address, value);
    mp::signal(group, at<std::uint64_t>(word.address), value);
    return true;
}
template <class Group>
MP_COLD WaitStatus no_signal(Group group, const Window& window, std::uint64_t rank, std::uint64_t signal) {
    if (part_of(window, rank) == nullptr) return refuse(group, window.report, no_such_rank, rank, 1, window.ranks).status;
    return refuse(group, window.report, no_such_signal, signal, 1, window.signals).status;
}

// Where the 64-bit word at byte `at` of a rank is.
MP_DEVICE Place word_in(const Window& window, std::uint64_t rank, std::uint64_t at) {
    return at % 8 == 0 ? place_in(window, rank, at, 8) : Place{0, nullptr};
}
MP_COLD bool no_word(const Window& window, std::uint64_t rank, std::uint64_t at) {
    if (at % 8 == 0) return no_place(thread(), window, rank, at, 8);
    (void)refuse(thread(), window.report, not_atomic, at, 8, 0);
    return false;
}

}  // namespace impl

// Where bytes `at` … `at + bytes` of a rank's share are; null if they are not all in it, or behind a NIC. Loads and stores
// through it are ordered by signals only.
MP_DEVICE void* address_in(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    const impl::Place place = impl::place_in(window, rank, at, bytes);
    return place.far == nullptr ? impl::at<void>(place.address) : nullptr;
}

// Signal number `signal` of a rank; null if there is none, or it is behind a NIC.
MP_DEVICE std::uint64_t* signal_in(const Window& window, std::uint64_t rank, std::uint64_t signal) {
    const impl::Place place = impl::signal_place_in(window, rank, signal);
    return place.far == nullptr ? impl::at<std::uint64_t>(place.address) : nullptr;
}

// Copies to a rank. Two puts are in no order; a signal after them (put_signal, signal) orders all of the group's. `from` may
// be written again when the call has returned in the threads that read it: after a barrier of the group. Blocks may share
// one put by parts.
template <class Group>
[[nodiscard]] MP_DEVICE bool put(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from,
                   std::uint64_t bytes, Part part = Part{}) {
    const impl::Place to = impl::place_in(window, rank, at, bytes);
    if (MP_RARELY(to.address == 0)) return impl::no_place(group, window, rank, at, bytes);
    if (MP_RARELY(to.far != nullptr)) {
        const impl::Span span = impl::span_of(bytes, part);
        const auto* first = static_cast<const unsigned char*>(from) + span.first;
        return impl::put_by_nic(group, window, *to.far, to.address + span.first, first, span.bytes, 0, 0);
    }
    copy(group, impl::at<void>(to.address), from, bytes, part);
    return true;
}

// Copies from a rank: loads over the link, so slower than a put. The bytes are there for the group after a barrier. Through
// a NIC into this rank's own share it is one request; elsewhere the bytes come by a small buffer, one group at a time.
template <class Group>
[[nodiscard]] MP_DEVICE bool get(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, void* to,
                   std::uint64_t bytes, Part part = Part{}) {
    const impl::Place from = impl::place_in(window, rank, at, bytes);
    if (MP_RARELY(from.address == 0)) return impl::no_place(group, window, rank, at, bytes);
    if (MP_RARELY(from.far != nullptr)) {
        const impl::Span span = impl::span_of(bytes, part);
        auto* first = static_cast<unsigned char*>(to) + span.first;
        return impl::get_by_nic(group, window, *from.far, from.address + span.first, first, span.bytes);
    }
    copy(group, to, impl::at<const void>(from.address), bytes, part);
    return true;
}

// Raises a rank's signal to `value`, larger than what it holds. Release at system scope after a barrier of the group: who
// waits for it sees everything the group wrote before, wherever; through a NIC, everything the group put to that rank. One rank
// raises a signal.
template <class Group>
[[nodiscard]] MP_DEVICE bool signal(Group group, const Window& window, std::uint64_t rank, std::uint64_t signal,
                                    std::uint64_t value) {
    const impl::Place word = impl::signal_place_in(window, rank, signal);
    if (MP_RARELY(word.address == 0)) return impl::no_signal(group, window, rank, signal) == ok;
    if (MP_RARELY(word.far != nullptr)) return impl::put_by_nic(group, window, *word.far, 0, nullptr, 0, word.address, value);
    mp::signal(group, impl::at<std::uint64_t>(word.address), value);
    return true;
}

// Adds `value` to a rank's signal, to which any number of ranks may add; nobody sets it. The order is that of `signal`: who has
// waited for the sum of all sees what each has written or put to that rank before.
template <class Group>
[[nodiscard]] MP_DEVICE bool signal_add(Group group, const Window& window, std::uint64_t rank, std::uint64_t signal,
                                        std::uint64_t value) {
    const impl::Place word = impl::signal_place_in(window, rank, signal);
    if (MP_RARELY(word.address == 0)) return impl::no_signal(group, window, rank, signal) == ok;
    if (MP_RARELY(word.far != nullptr)) return impl::add_by_nic(group, window, *word.far, word.address, value);
    mp::signal_add(group, impl::at<std::uint64_t>(word.address), value);
    return true;
}

// put, then signal_add: who sees the sum sees the bytes. Nothing is done if either is out of range.
template <class Group>
[[nodiscard]] MP_DEVICE bool put_signal_add(Group group, const Window& window, std::uint64_t rank, std::uint64_t at,
                                            const void* from, std::uint64_t bytes, std::uint64_t signal,
                                            std::uint64_t value) {
    if (MP_RARELY(impl::signal_place_in(window, rank, signal).address == 0))
        return impl::no_signal(group, window, rank, signal) == ok;
    return put(group, window, rank, at, from, bytes) && signal_add(group, window, rank, signal, value);
}

// put, then signal: who sees the signal sees the bytes. Nothing is done if either is out of range.
template <class Group>
[[nodiscard]] MP_DEVICE bool put_signal(Group group, const Window& window, std::uint64_t rank, std::uint64_t at,
                                        const void* from, std::uint64_t bytes, std::uint64_t signal, std::uint64_t value) {
    const impl::Place to = impl::place_in(window, rank, at, bytes);
    const impl::Place word = impl::signal_place_in(window, rank, signal);
    if (MP_RARELY(word.address == 0)) return impl::no_signal(group, window, rank, signal) == ok;
    if (MP_RARELY(to.address == 0))
        return impl::signal_alone(group, window, rank, at, bytes, word, value);
    if (MP_RARELY(to.far != nullptr)) return impl::put_by_nic(group, window, *to.far, to.address, from, bytes, word.address, value);
    copy(group, impl::at<void>(to.address), from, bytes);
    mp::signal(group, impl::at<std::uint64_t>(word.address), value);
    return true;
}

// The same by several blocks with a part each; the last one signals. `arrived` as for last_block.
[[nodiscard]] MP_DEVICE bool put_signal(Block group, const Window& window, std::uint64_t rank, std::uint64_t at,
                                        const void* from, std::uint64_t bytes, std::uint64_t signal, std::uint64_t value,
                                        Part part, std::uint64_t* arrived) {
    const impl::Place word = impl::signal_place_in(window, rank, signal);
    if (MP_RARELY(word.address == 0)) return impl::no_signal(group, window, rank, signal) == ok;
    const bool put = mp::put(group, window, rank, at, from, bytes, part);
    // A part that could not be put is never signalled.
    if (!put || !last_block(arrived, part.count)) return put;
    if (MP_RARELY(word.far != nullptr)) return impl::put_by_nic(group, window, *word.far, 0, nullptr, 0, word.address, value);
    if (group.leads()) store(impl::at<std::uint64_t>(word.address), value, release, system);
    return true;
}

// Waits until this rank's signal has reached `value`, as mp::wait; a failure goes into the window's report. For a signal that
// does not exist nobody waits: `no_such_signal`.
template <class Group>
MP_DEVICE WaitResult wait(Group group, const Window& window, std::uint64_t signal, std::uint64_t value) {
    const std::uint64_t* word = signal_in(window, window.rank, signal);
    if (MP_RARELY(word == nullptr)) return {impl::no_signal(group, window, window.rank, signal), window.signals, 0};
    const WaitResult result = wait(group, word, value, WaitBounds{window.abort, window.timeout_ns});
    if (result.failed() && group.leads()) report(impl::at<WaitReport>(window.report), value, result);
    return result;
}

// One thread changes the 64-bit word at byte `at` (a multiple of 8) of a rank, as one step for everybody; acquire and
// release at system scope. What it held goes to `before`. Between GPUs the link must have native atomics. Through a NIC a GPU's
// own memory has no atomics (put the window into pinned memory), which is refused as what lies outside; and one thread at a
// time does them.
[[nodiscard]] MP_DEVICE bool fetch_add(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t value,
                         std::uint64_t& before) {
    const impl::Place there = impl::word_in(window, rank, at);
    if (MP_RARELY(there.address == 0)) return impl::no_word(window, rank, at);
    if (MP_RARELY(there.far != nullptr))
        return impl::atomic_by_nic(window, *there.far, there.address, impl::AtomicKind::fetch_add, value, 0, before);
    before = mp::fetch_add(impl::at<std::uint64_t>(there.address), value, system);
    return true;
}
[[nodiscard]] MP_DEVICE bool swap(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t value,
                    std::uint64_t& before) {
    const impl::Place there = impl::word_in(window, rank, at);
    if (MP_RARELY(there.address == 0)) return impl::no_word(window, rank, at);
    if (MP_RARELY(there.far != nullptr)) {
        // A NIC has no swap: what the word holds is guessed until the guess was right.
        const auto swap_if = impl::AtomicKind::compare_swap;
        for (std::uint64_t guess = 0;; guess = before) {
            if (!impl::atomic_by_nic(window, *there.far, there.address, swap_if, value, guess, before)) return false;
            if (before == guess) return true;
        }
    }
    before = mp::swap(impl::at<std::uint64_t>(there.address), value, system);
    return true;
}
[[nodiscard]] MP_DEVICE bool compare_swap(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t expected,
                            std::uint64_t value, std::uint64_t& before) {
    const impl::Place there = impl::word_in(window, rank, at);
    if (MP_RARELY(there.address == 0)) return impl::no_word(window, rank, at);
    if (MP_RARELY(there.far != nullptr)) {
        const auto swap_if = impl::AtomicKind::compare_swap;
        return impl::atomic_by_nic(window, *there.far, there.address, swap_if, value, expected, before);
    }
    before = mp::compare_swap(impl::at<std::uint64_t>(there.address), expected, value, system);
    return true;
}

namespace impl {

// A part of a prepared get through a NIC; the last one counts the start.
template <class Group>
MP_DEVICE WaitResult get_by_nic(Group group, const Message& message, Part part) {
    auto* state = at<MessageState>(message.state);
    group.sync();
    const std::uint64_t epoch = state->epoch + 1;
    const WaitStatus status = get_part_by_nic(group, message.nic, epoch, part);
    if (status == ok && (part.count == 1 || last_block(&state->arrived, part.count)) && group.leads()) state->epoch = epoch;
    return {status, epoch, 0};
}

}  // namespace impl

// ---- prepared by the host --------------------------------------------------------------------------------------
// The same objects the host and streams start, counted in this GPU's memory: start number n of a put raises its signal to n.
// Two starts of one object do not overlap.

// Puts the region, then raises the signal if there is one, which orders what the group put and wrote before. The region may be
// written again when the call has returned, in the group after a barrier.
template <class Group>
MP_DEVICE WaitResult put(Group group, const Put& put) {
    return send(group, put.send);
}
// The same by several blocks, each of which calls it with its part; the last one signals. As send.
MP_DEVICE WaitResult put(Block group, const Put& put, Part part) { return send(group, put.send, part); }

// Waits for the signal: wait number n until it is at least n. Acquire at system scope, as mp::wait.
template <class Group>
MP_DEVICE WaitResult wait(Group group, const SignalWait& wait) {
    return recv(group, wait.recv);
}

// Gets into the region what the rank's share holds. It is there for the group when the call has returned, after a barrier.
template <class Group>
MP_DEVICE WaitResult get(Group group, const Get& get) {
    const Message& message = get.send.message;
    if (MP_RARELY(message.nic != 0)) return impl::get_by_nic(group, message, Part{});
    return send(group, get.send);
}
// The same by several blocks, each of which calls it with its part; all of it is there after they have met.
MP_DEVICE WaitResult get(Block group, const Get& get, Part part) {
    const Message& message = get.send.message;
    if (MP_RARELY(message.nic != 0)) return impl::get_by_nic(group, message, part);
    return send(group, get.send, part);
}

}  // namespace mp
