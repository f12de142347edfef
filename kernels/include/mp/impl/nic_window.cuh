// Windows of ranks behind a NIC: what window.cuh does instead of loads and stores of a rank's share. Not to be included by
// itself. Offsets have been checked. Out of line, as nic.cuh.
//
// The NIC reads and writes registered memory only: of this rank that is its own share of the window. What is put from elsewhere
// travels inside entries, inline_bytes in each; what is got to elsewhere, and results of atomics, come by `bounce`.
#pragma once

#include "nic.cuh"

namespace mp {
namespace impl {

MP_DEVICE WaitBounds bounds_of(const Window& window) { return {window.abort, window.timeout_ns}; }

// Whether the range is in the own share.
MP_DEVICE bool is_own(const NicPart& part, const void* memory, std::uint64_t bytes) {
    const std::uint64_t offset = address_of(memory) - part.own;  // wraps for what lies before
    return offset <= part.own_bytes && bytes <= part.own_bytes - offset;
}

// The failure is the window's report; whether there was none.
template <class Group>
MP_DEVICE bool succeeded(Group group, const Window& window, PostStatus status, std::uint64_t expected) {
    const WaitResult result = result_of(status, expected);
    if (result.failed() && group.leads()) report(at<WaitReport>(window.report), expected, result);
    return !result.failed();
}

// Puts, then writes a word of the rank if there is one. `to` and `word` are addresses of the rank.
template <class Group>
MP_COLD bool put_by_nic(Group group, const Window& window, const WindowPart& share, std::uint64_t to, const void* from,
                        std::uint64_t bytes, std::uint64_t word, std::uint64_t value) {
    const auto& nic = *at<const NicPart>(share.nic);
    const std::uint64_t step = is_own(nic, from, bytes) ? bytes : inline_bytes;
    PostStatus status = PostStatus::ok;
    std::uint64_t done = 0;
    do {
        const std::uint64_t left = bytes - done;
        const std::uint64_t now = left < step ? left : step;
        const std::uint32_t last = word != 0 && now == left;
        const Batch batch = {address_of(from) + done, now,  {to + done, nic.memory_key}, nic.own_key, last,
                             {word, nic.signals_key}, value};
        status = post_batch(group, nic.queue, batch, bounds_of(window));
        done += now;
    } while (status == PostStatus::ok && done < bytes);
    return succeeded(group, window, status, value);
}

// Adds to a signal of the rank. What it held goes behind the bounce memory, where nobody looks.
template <class Group>
MP_COLD bool add_by_nic(Group group, const Window& window, const WindowPart& share, std::uint64_t word, std::uint64_t value) {
    const auto& nic = *at<const NicPart>(share.nic);
    const QueuePair qp = *at<const QueuePair>(nic.queue);
    const auto encode = [&](SendRing ring, std::uint16_t index) {
        const RemoteAddress signal = {word, nic.signals_key};
        encode_fetch_add(ring, index, notify_always, signal, value, nic.bounce + bounce_bytes, nic.bounce_key);
    };
    return succeeded(group, window, post(group, qp, 1, encode, bounds_of(window)).status, value);
}

// Takes the bounce memory for the group.
template <class Group>
MP_DEVICE PostStatus take_bounce(Group group, NicPart& nic, const WaitBounds& bounds) {
    Posted taken = {0, PostStatus::ok, 0};
    if (group.leads()) {
        const auto poll = [&nic](std::uint64_t&) { return try_lock(&nic.lock); };
        const WaitResult result = wait_for(poll, bounds);
        if (result.failed()) taken.status = result.status == aborted ? PostStatus::aborted : PostStatus::timed_out;
    }
    return group.broadcast(taken).status;
}

template <class Group>
MP_COLD bool get_by_nic(Group group, const Window& window, const WindowPart& share, std::uint64_t from, void* to,
                        std::uint64_t bytes) {
    auto& nic = *at<NicPart>(share.nic);
    const WaitBounds bounds = bounds_of(window);
    if (bytes == 0) return true;
    if (is_own(nic, to, bytes)) {
        group.sync();
        const RemoteAddress there = {from, nic.memory_key};
        return succeeded(group, window, read_by_nic(group, nic.queue, there, address_of(to), nic.own_key, bytes, bounds), 0);
    }
    PostStatus status = take_bounce(group, nic, bounds);
    if (status == PostStatus::ok) {
        for (std::uint64_t done = 0; done < bytes && status == PostStatus::ok; done += bounce_bytes) {
            const std::uint64_t left = bytes - done;
            const std::uint64_t now = left < bounce_bytes ? left : bounce_bytes;
            const RemoteAddress there = {from + done, nic.memory_key};
            status = read_by_nic(group, nic.queue, there, nic.bounce, nic.bounce_key, now, bounds);
            if (status == PostStatus::ok) copy(group, at<unsigned char>(address_of(to) + done), at<void>(nic.bounce), now);
            group.sync();  // nobody still reads the bounce memory
        }
        if (group.leads()) unlock(&nic.lock);
    }
    return succeeded(group, window, status, 0);
}

// One thread's atomic operation on the word at `there` of the rank: adds, or replaces the word if it holds `compare`.
enum class AtomicKind { fetch_add, compare_swap };
MP_COLD bool atomic_by_nic(const Window& window, const WindowPart& share, std::uint64_t there, AtomicKind kind,
                           std::uint64_t value, std::uint64_t compare, std::uint64_t& before) {
    auto& nic = *at<NicPart>(share.nic);
    if (nic.atomics == 0) {
        (void)refuse(thread(), window.report, not_atomic, there - share.memory, 8, share.bytes);
        return false;
    }
    const WaitBounds bounds = bounds_of(window);
    PostStatus status = take_bounce(thread(), nic, bounds);
    if (status == PostStatus::ok) {
        const QueuePair qp = *at<const QueuePair>(nic.queue);
        const RemoteAddress word = {there, nic.memory_key};
        const auto encode = [&](SendRing ring, std::uint16_t index) {
            if (kind == AtomicKind::fetch_add)
                encode_fetch_add(ring, index, notify_always, word, value, nic.bounce, nic.bounce_key);
            else
                encode_compare_swap(ring, index, notify_always, word, compare, value, nic.bounce, nic.bounce_key);
        };
        const Posted posted = post(thread(), qp, 1, encode, bounds);
        status = posted.status;
        if (status == PostStatus::ok) status = wait_completed(thread(), qp, posted.position, bounds);
        if (status == PostStatus::ok) before = load(at<const std::uint64_t>(nic.bounce), relaxed, system);
        unlock(&nic.lock);
    }
    return succeeded(thread(), window, status, value);
}

}  // namespace impl
}  // namespace mp
