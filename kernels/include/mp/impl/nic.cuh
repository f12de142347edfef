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
#include "../signal.cuh"

namespace mp {
namespace impl {

// Data up to so many bytes travel inside the queue's entry: the source is read once, by this GPU, and is free at once.
constexpr std::uint64_t inline_bytes = 512;
// Bytes of the largest entry; a message that is longer takes several.
constexpr std::uint64_t entry_bytes = std::uint64_t{1} << 30;
// Polls between two looks at the queue: whether a request has failed, which no signal will say.
constexpr unsigned polls_between_queues = 1024;

template <class T>
MP_DEVICE T* at(std::uint64_t address) {
    return reinterpret_cast<T*>(address);
}

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

// Posts a batch by one doorbell. When it returns ok the group may write the source again, after a barrier. A full queue
// is waited for.
template <class Group>
MP_COLD PostStatus post_batch(Group group, std::uint64_t queue, const Batch batch, const WaitBounds bounds) {
    if (batch.bytes == 0 && batch.has_word == 0) return PostStatus::ok;
    const QueuePair qp = *at<const QueuePair>(queue);
    const bool inlined = batch.bytes <= inline_bytes;
    unsigned blocks = batch.has_word != 0;
    if (batch.bytes > 0 && inlined)
        blocks += wqe_blocks(2 + inline_octowords(unsigned(batch.bytes)));
    else
        blocks += unsigned((batch.bytes + entry_bytes - 1) / entry_bytes);
    const auto encode = [&](SendRing ring, std::uint16_t index) {
        // One completion a batch, with its last entry: it frees all of it.
        const std::uint8_t last = notify_always;
        const std::uint8_t data = batch.has_word != 0 ? notify_on_error : last;
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
    };
    const Posted posted = post(group, qp, blocks, encode, bounds);
    if (posted.status != PostStatus::ok || inlined) return posted.status;
    // Its last entry has one block.
    return wait_completed(group, qp, posted.position + blocks - 1, bounds);
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

MP_DEVICE WaitBounds bounds_of(const Message& message) { return {message.abort, message.timeout_ns}; }

// Where the message of an epoch is, or goes, from the beginning of its slots.
MP_DEVICE std::uint64_t slot_offset(const NicEnd& end, std::uint64_t epoch) {
    return end.slots == 0 ? 0 : (epoch - 1) % end.slots * end.stride;
}

// Raises the signal of the other end.
template <class Group>
MP_COLD WaitResult raise_by_nic(Group group, const Message& message, std::uint64_t epoch) {
    const NicEnd end = *at<const NicEnd>(message.nic);
    const Batch batch = {0, 0, {0, 0}, 0, 1, {end.theirs, end.theirs_key}, epoch};
    return result_of(post_batch(group, end.queue, batch, bounds_of(message)), epoch);
}

// Sends the message of an epoch, for which there is room.
template <class Group>
MP_COLD WaitResult send_by_nic(Group group, const Message& message, std::uint64_t epoch) {
    const NicEnd end = *at<const NicEnd>(message.nic);
    const RemoteAddress to = {end.target + slot_offset(end, epoch), end.target_key};
    const Batch batch = {message.memory, message.len, to, end.memory_key, 1, {end.theirs, end.theirs_key}, epoch};
    return result_of(post_batch(group, end.queue, batch, bounds_of(message)), epoch);
}

// Sends part `index` of `count` without making it known.
template <class Group>
MP_COLD WaitResult send_part_by_nic(Group group, const Message& message, std::uint64_t epoch, const Part part) {
    const NicEnd end = *at<const NicEnd>(message.nic);
    const std::uint64_t each = message.len / part.count;
    const std::uint64_t longer = message.len % part.count;  // so many have a byte more
    const std::uint64_t first = each * part.index + (part.index < longer ? part.index : longer);
    const std::uint64_t bytes = each + (part.index < longer ? 1 : 0);
    const RemoteAddress to = {end.target + slot_offset(end, epoch) + first, end.target_key};
    const Batch batch = {message.memory + first, bytes, to, end.memory_key, 0, {0, 0}, 0};
    return result_of(post_batch(group, end.queue, batch, bounds_of(message)), epoch);
}

}  // namespace impl
}  // namespace mp
