// Messages whose other end is behind a NIC: what message.cuh does instead of loads and stores of the peer's memory. Not to be
// included by itself. The protocol is the same – credits, arrivals, epochs, slots – and so is the waiting side, which
// polls its own memory; only what changes the peer's memory is a request in the send queue of qp.cuh.
//
// Order: the requests of one batch, and batches of one queue, are executed in order by the NIC, so whoever sees the word
// that a batch ends with sees its data. What the group wrote before is visible to the NIC (qp.cuh).
//
// All of it is out of line: the way over mapped memory pays one test for it.
#pragma once

#include "../copy.cuh"
#include "../layout.cuh"
#include "../qp.cuh"
#include "../report.cuh"
#include "../signal.cuh"

namespace mp {
namespace impl {

// Bytes of the largest entry; a message that is longer takes several.
constexpr std::uint64_t entry_bytes = std::uint64_t{1} << 30;
// Polls between two looks at the queue: whether a request has failed, which no signal will say.
constexpr unsigned polls_between_queues = 1024;

// A batch: data, then a word; either may be missing.
struct Batch {
    std::uint64_t from;
    std::uint64_t bytes;  // 0: no data
    RemoteAddress to;
    std::uint32_t from_key;
    std::uint32_t has_word;
    RemoteAddress word;
    std::uint64_t value;
};

// Where the last entry of a post is, for quiet and, if it uses memory of this rank beyond the post, for flush. One thread, before
// the entry is published: who knows of the post waits for it.
MP_DEVICE void count_posted(const QueuePair& qp, std::uint64_t last, bool uses_memory) {
    raise_to(&state_of(qp)->posted, last + 1);
    if (uses_memory) raise_to(&state_of(qp)->in_use, last + 1);
}

// Posts a batch by one doorbell, and does not wait for it: the position is that of its last entry. Data of up to inline_bytes are
// read by then, others are until the entry is complete. A full queue is waited for.
template <class Group>
MP_COLD Posted start_batch(Group group, std::uint64_t queue, const Batch batch, const WaitBounds bounds) {
    const QueuePair qp = *at<const QueuePair>(queue);
    const bool inlined = batch.bytes <= inline_bytes;
    unsigned last_blocks = 1, blocks = batch.has_word != 0;
    if (batch.bytes > 0 && inlined) {
        const unsigned data = wqe_blocks(2 + inline_octowords(unsigned(batch.bytes)));
        if (blocks == 0) last_blocks = data;
        blocks += data;
    } else {
        blocks += unsigned((batch.bytes + entry_bytes - 1) / entry_bytes);
    }
    const auto write = [&](SendRing ring, std::uint64_t position) {
        auto index = std::uint16_t(position);
        // One completion a batch, with its last entry: it frees all of it.
        const std::uint8_t last = notify_always;
        const std::uint8_t data = batch.has_word != 0 ? std::uint8_t(notify_on_error) : last;
        if (batch.bytes > 0 && inlined) {
            index += encode_write_inline(ring, index, data, batch.to, at<const void>(batch.from), unsigned(batch.bytes));
        } else {
            for (std::uint64_t done = 0; done < batch.bytes; done += entry_bytes) {
                const std::uint64_t left = batch.bytes - done;
                const DataSegment part = {batch.from + done, batch.from_key,
                                          std::uint32_t(left < entry_bytes ? left : entry_bytes)};
                const std::uint8_t flags = left <= entry_bytes ? data : std::uint8_t(notify_on_error);
                index += encode_write(ring, index, flags, {batch.to.address + done, batch.to.rkey}, &part, 1);
            }
        }
        if (batch.has_word != 0) encode_write_inline(ring, index, last, batch.word, &batch.value, 8);
        count_posted(qp, position + blocks - last_blocks, !inlined);
        return PostStatus::ok;
    };
    Posted posted = post_by(group, qp, blocks, write, bounds);
    posted.position += blocks - last_blocks;
    return posted;
}

// The same, and waits until the group may write the source again, after a barrier.
template <class Group>
MP_COLD PostStatus post_batch(Group group, std::uint64_t queue, const Batch batch, const WaitBounds bounds) {
    if (batch.bytes == 0 && batch.has_word == 0) return PostStatus::ok;
    const Posted posted = start_batch(group, queue, batch, bounds);
    if (posted.status != PostStatus::ok || batch.bytes <= inline_bytes) return posted.status;
    return wait_completed(group, *at<const QueuePair>(queue), posted.position, bounds);
}

// Posts reads into registered memory, and does not wait for them. The position is that of the last, of at least one byte.
template <class Group>
MP_COLD Posted start_read(Group group, std::uint64_t queue, const RemoteAddress from, std::uint64_t into,
                          std::uint32_t into_key, std::uint64_t bytes, const WaitBounds bounds) {
    const QueuePair qp = *at<const QueuePair>(queue);
    Posted posted = {0, PostStatus::ok, 0};
    for (std::uint64_t done = 0; done < bytes && posted.status == PostStatus::ok; done += entry_bytes) {
        const std::uint64_t left = bytes - done;
        const DataSegment part = {into + done, into_key, std::uint32_t(left < entry_bytes ? left : entry_bytes)};
        const auto write = [&](SendRing ring, std::uint64_t position) {
            encode_read(ring, std::uint16_t(position), notify_always, {from.address + done, from.rkey}, &part, 1);
            count_posted(qp, position, true);
            return PostStatus::ok;
        };
        posted = post_by(group, qp, 1, write, bounds);
    }
    return posted;
}

// Reads into registered memory, and waits until it is there.
template <class Group>
MP_COLD PostStatus read_by_nic(Group group, std::uint64_t queue, const RemoteAddress from, std::uint64_t into,
                               std::uint32_t into_key, std::uint64_t bytes, const WaitBounds bounds) {
    if (bytes == 0) return PostStatus::ok;
    const Posted posted = start_read(group, queue, from, into, into_key, bytes, bounds);
    if (posted.status != PostStatus::ok) return posted.status;
    return wait_completed(group, *at<const QueuePair>(queue), posted.position, bounds);
}

// The end of a wait that a call on a queue was.
MP_DEVICE WaitResult result_of(PostStatus status, std::uint64_t expected) {
    switch (status) {
    case PostStatus::ok: return {ok, expected, 0};
    case PostStatus::aborted: return {aborted, 0, 0};
    case PostStatus::timed_out: return {timed_out, 0, 0};
    default: return {path_failed, 0, 0};
    }
}

// Whether a request of the queue has failed. One thread.
MP_COLD bool has_failed(const QueuePair& qp) {
    QueuePairState* state = state_of(qp);
    if (load(&state->failure, relaxed, gpu) == 0 && try_lock(&state->lock)) {
        look_at_completion(qp);
        unlock(&state->lock);
    }
    return load(&state->failure, relaxed, gpu) != 0;
}

// One thread's wait for a word that the peer's NIC writes; a failed request of the queue to the peer ends it, too.
MP_COLD WaitResult wait_beside(const std::uint64_t* word, std::uint64_t expected, std::uint64_t queue,
                               const WaitBounds bounds) {
    const QueuePair qp = *at<const QueuePair>(queue);
    unsigned polls = 0;
    bool failed = false;
    const auto poll = [&](std::uint64_t& seen) {
        seen = load(word, acquire, system);
        if (seen >= expected) return true;
        if (++polls % polls_between_queues == 0) failed = has_failed(qp);
        return failed;
    };
    const WaitResult result = wait_for(poll, bounds);
    if (result.status == ok && result.seen < expected) return {path_failed, result.seen, 0};
    return result;
}

// What follows takes the address of a NicEnd and nothing of the handle, which then stays where it is: among the kernel's
// parameters. A failure is in the handle's report, and the status is every thread's.

MP_DEVICE WaitBounds bounds_of(const Message& message) { return {message.abort, message.timeout_ns}; }

template <class Group>
MP_DEVICE WaitStatus status_of(Group group, const NicEnd& end, std::uint64_t expected, const WaitResult& result) {
    if (result.failed() && group.leads()) report(at<WaitReport>(end.message.report), expected, result);
    return result.status;
}

// Waits for the own signal.
template <class Group>
MP_DEVICE WaitStatus wait_by_nic(Group group, const NicEnd& end, std::uint64_t expected) {
    WaitResult result = {ok, expected, 0};
    if (group.leads())
        result = wait_beside(at<const std::uint64_t>(end.message.mine), expected, end.queue, bounds_of(end.message));
    if (group.any(result.failed())) result = group.broadcast(result);
    return status_of(group, end, expected, result);
}

// Waits until the message of an epoch may go: its buffer was posted, or its slot is free.
template <class Group>
MP_DEVICE WaitStatus wait_for_room(Group group, const NicEnd& end, std::uint64_t epoch) {
    return epoch > end.slots ? wait_by_nic(group, end, epoch - end.slots) : ok;
}

// Where the message of an epoch is, or goes, from the beginning of the slots.
MP_DEVICE std::uint64_t slot_offset(const NicEnd& end, std::uint64_t epoch) {
    return end.slots == 0 ? 0 : (epoch - 1) % end.slots * end.stride;
}

// Raises the signal of the other end: the buffer was posted, a slot is free, all parts have been sent.
template <class Group>
MP_COLD WaitStatus raise_by_nic(Group group, std::uint64_t nic, std::uint64_t epoch) {
    const NicEnd& end = *at<const NicEnd>(nic);
    const Batch batch = {0, 0, {0, 0}, 0, end.theirs != 0, {end.theirs, end.theirs_key}, epoch};
    const PostStatus status = post_batch(group, end.queue, batch, bounds_of(end.message));
    return status_of(group, end, epoch, result_of(status, epoch));
}

// Where a part of so many bytes begins, and how many it has.
struct Span {
    std::uint64_t first;
    std::uint64_t bytes;
};
MP_DEVICE Span span_of(std::uint64_t bytes, const Part& part) {
    const std::uint64_t each = bytes / part.count;
    const std::uint64_t longer = bytes % part.count;  // so many have a byte more
    return {each * part.index + (part.index < longer ? part.index : longer), each + (part.index < longer ? 1 : 0)};
}

// Gets a part of what a prepared get is for.
template <class Group>
MP_COLD WaitStatus get_part_by_nic(Group group, std::uint64_t nic, std::uint64_t epoch, const Part part) {
    const NicEnd& end = *at<const NicEnd>(nic);
    const Span span = span_of(end.message.len, part);
    const RemoteAddress from = {end.target + span.first, end.target_key};
    const PostStatus status = read_by_nic(group, end.queue, from, end.message.memory + span.first, end.memory_key, span.bytes,
                                          bounds_of(end.message));
    return status_of(group, end, epoch, result_of(status, epoch));
}

// Sends the message of an epoch.
template <class Group>
MP_COLD WaitStatus send_by_nic(Group group, std::uint64_t nic, std::uint64_t epoch) {
    const NicEnd& end = *at<const NicEnd>(nic);
    const WaitStatus room = wait_for_room(group, end, epoch);
    if (room != ok) return room;
    const RemoteAddress to = {end.target + slot_offset(end, epoch), end.target_key};
    const Batch batch = {end.message.memory, end.message.len, to, end.memory_key, end.theirs != 0, {end.theirs, end.theirs_key},
                         epoch};
    const PostStatus status = post_batch(group, end.queue, batch, bounds_of(end.message));
    return status_of(group, end, epoch, result_of(status, epoch));
}

// Sends a part without making it known.
template <class Group>
MP_COLD WaitStatus send_part_by_nic(Group group, std::uint64_t nic, std::uint64_t epoch, const Part part) {
    const NicEnd& end = *at<const NicEnd>(nic);
    const WaitStatus room = wait_for_room(group, end, epoch);
    if (room != ok) return room;
    const Span span = span_of(end.message.len, part);
    const RemoteAddress to = {end.target + slot_offset(end, epoch) + span.first, end.target_key};
    const Batch batch = {end.message.memory + span.first, span.bytes, to, end.memory_key, 0, {0, 0}, 0};
    const PostStatus status = post_batch(group, end.queue, batch, bounds_of(end.message));
    return status_of(group, end, epoch, result_of(status, epoch));
}

// Waits for the message of an epoch, and takes it out of its slot if it has one.
template <class Group>
MP_COLD WaitStatus recv_by_nic(Group group, std::uint64_t nic, std::uint64_t epoch) {
    const NicEnd& end = *at<const NicEnd>(nic);
    const WaitStatus status = wait_by_nic(group, end, epoch);
    if (status != ok || end.message.target == 0) return status;
    const std::uint64_t slot = end.message.target + slot_offset(end, epoch);
    copy(group, at<void>(end.message.memory), at<const void>(slot), end.message.len);
    // Its barrier: all of it is there for the group, and has been read when the sender hears so.
    return raise_by_nic(group, nic, epoch);
}

}  // namespace impl
}  // namespace mp
