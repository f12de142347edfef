// Windows in kernels: put, get, signals and atomics on the memory of any rank, freely addressed. The host opens the window
// (libmp, DeviceWindow); signals lie in the memory of the GPU that waits for them. Not here: messages, which are matched
// and need no addresses.
//
// Offsets are bytes and checked against the peer's size: an access outside does nothing and returns false. Signals are
// checked likewise.
#pragma once

#include "copy.cuh"
#include "message.cuh"

namespace mp {

// Bytes between two signals: a cache line.
constexpr std::uint64_t signal_stride = 64;

// The share of a rank; null if there is no such rank.
MP_DEVICE const WindowPart* part_of(const Window& window, std::uint64_t rank) {
    return rank < window.ranks ? impl::at<const WindowPart>(window.parts) + rank : nullptr;
}

// Where bytes `at` … `at + bytes` of a rank's share are; null if they are not all in it. Loads and stores through it are
// ordered by signals only.
MP_DEVICE void* address_in(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    const WindowPart* part = part_of(window, rank);
    if (part == nullptr || at > part->bytes || bytes > part->bytes - at) return nullptr;
    return impl::at<unsigned char>(part->memory) + at;
}

// Signal number `signal` of a rank; null if there is none.
MP_DEVICE std::uint64_t* signal_in(const Window& window, std::uint64_t rank, std::uint64_t signal) {
    const WindowPart* part = part_of(window, rank);
    if (part == nullptr || signal >= window.signals) return nullptr;
    return impl::at<std::uint64_t>(part->signals + signal * signal_stride);
}

// Copies to a rank. Two puts are in no order; a signal after them (put_signal, signal) orders all of the group's. `from` may
// be written again when the call has returned in the threads that read it: after a barrier of the group. Blocks may share
// one put by parts.
template <class Group>
MP_DEVICE bool put(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from,
                   std::uint64_t bytes, Part part = Part{}) {
    void* to = address_in(window, rank, at, bytes);
    if (to == nullptr) return false;
    copy(group, to, from, bytes, part);
    return true;
}

// Copies from a rank: loads over the link, so slower than a put. The bytes are there for the group after a barrier.
template <class Group>
MP_DEVICE bool get(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, void* to,
                   std::uint64_t bytes, Part part = Part{}) {
    const void* from = address_in(window, rank, at, bytes);
    if (from == nullptr) return false;
    copy(group, to, from, bytes, part);
    return true;
}

// Raises a rank's signal to `value`, larger than what it holds. Release at system scope after a barrier of the group: who
// waits for it sees everything the group wrote before, wherever. One rank raises a signal.
template <class Group>
MP_DEVICE bool signal(Group group, const Window& window, std::uint64_t rank, std::uint64_t signal, std::uint64_t value) {
    std::uint64_t* word = signal_in(window, rank, signal);
    if (word == nullptr) return false;
    mp::signal(group, word, value);
    return true;
}

// put, then signal: who sees the signal sees the bytes. Nothing is done if either is out of range.
template <class Group>
MP_DEVICE bool put_signal(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from,
                          std::uint64_t bytes, std::uint64_t signal, std::uint64_t value) {
    void* to = address_in(window, rank, at, bytes);
    std::uint64_t* word = signal_in(window, rank, signal);
    if (to == nullptr || word == nullptr) return false;
    copy(group, to, from, bytes);
    mp::signal(group, word, value);
    return true;
}

// The same by several blocks with a part each; the last one signals. `arrived` as for last_block.
MP_DEVICE bool put_signal(Block group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from,
                          std::uint64_t bytes, std::uint64_t signal, std::uint64_t value, Part part,
                          std::uint64_t* arrived) {
    void* to = address_in(window, rank, at, bytes);
    std::uint64_t* word = signal_in(window, rank, signal);
    if (to == nullptr || word == nullptr) return false;
    copy(group, to, from, bytes, part);
    if (last_block(arrived, part.count) && group.leads()) store(word, value, release, system);
    return true;
}

// Waits until this rank's signal has reached `value`, as mp::wait; a failure goes into the window's report. A signal that
// does not exist is a wait that timed out.
template <class Group>
MP_DEVICE WaitResult wait(Group group, const Window& window, std::uint64_t signal, std::uint64_t value) {
    const std::uint64_t* word = signal_in(window, window.rank, signal);
    if (word == nullptr) return {timed_out, 0, 0};
    const WaitResult result = wait(group, word, value, WaitBounds{window.abort, window.timeout_ns});
    if (result.failed() && group.leads()) report(impl::at<WaitReport>(window.report), value, result);
    return result;
}

// One thread changes the 64-bit word at byte `at` (a multiple of 8) of a rank, as one step for everybody; acquire and
// release at system scope. What it held goes to `before`. Between GPUs the link must have native atomics.
MP_DEVICE bool fetch_add(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t value,
                         std::uint64_t& before) {
    auto* word = static_cast<std::uint64_t*>(address_in(window, rank, at, 8));
    if (word == nullptr || at % 8 != 0) return false;
    before = fetch_add(word, value, system);
    return true;
}
MP_DEVICE bool swap(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t value,
                    std::uint64_t& before) {
    auto* word = static_cast<std::uint64_t*>(address_in(window, rank, at, 8));
    if (word == nullptr || at % 8 != 0) return false;
    before = swap(word, value, system);
    return true;
}
MP_DEVICE bool compare_swap(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t expected,
                            std::uint64_t value, std::uint64_t& before) {
    auto* word = static_cast<std::uint64_t*>(address_in(window, rank, at, 8));
    if (word == nullptr || at % 8 != 0) return false;
    before = compare_swap(word, expected, value, system);
    return true;
}

}  // namespace mp
