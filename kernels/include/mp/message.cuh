// Messages of a kernel: send and receive on what the host has prepared (libmp, `prepare_device`). The same counters serve
// kernels, streams and replayed graphs: a start reads the epoch from the GPU's memory and advances it there, so nothing
// needs the host between starts. No matching happens here: a handle is one end of one pair.
//
// Two formats, chosen when the pair was made. Small messages travel as packets into slots of the receiver, which it
// copies from; a slot is free again when the receiver has said so. Larger ones go straight into the posted buffer, after
// its credit and before its arrival.
//
// All blocks that share a start work on the same handle; two starts of one handle do not overlap.
#pragma once

#include "copy.cuh"
#include "layout.cuh"
#include "packet.cuh"
#include "report.cuh"

namespace mp {

// Slots of packets a receiver has for one pair: how many small messages may be on their way or not yet taken.
constexpr std::uint64_t packet_slots = 4;

namespace impl {

MP_DEVICE WaitBounds bounds_of(const Message& message) { return {message.abort, message.timeout_ns}; }

template <class T>
MP_DEVICE T* at(std::uint64_t address) {
    return reinterpret_cast<T*>(address);
}

MP_DEVICE Packet* slot_of(const Message& message, std::uint64_t epoch) {
    return at<Packet>(message.inbox) + (epoch - 1) % packet_slots * packets_of(message.len);
}

// The failure is the handle's report and every thread's result.
template <class Group>
MP_DEVICE WaitResult failed_at(Group group, const Message& message, std::uint64_t expected, const WaitResult& result) {
    if (group.leads()) report(at<WaitReport>(message.report), expected, result);
    return result;
}

}  // namespace impl

// "The last block signals": every block that shares a piece of work calls it at its end; true in the block that came
// last, in all its threads, which then sees what all the others wrote (acquire at GPU scope; passed on by a release of
// any scope). `arrived` is a word of this GPU's memory, 0 before and after.
MP_DEVICE bool last_block(std::uint64_t* arrived, unsigned blocks) {
    block_barrier();
    bool last = true;
    if (blocks > 1) {
        if (thread_rank() == 0) {
            last = fetch_add(arrived, std::uint64_t{1}, gpu) == blocks - 1;
            if (last) store(arrived, std::uint64_t{0}, relaxed, gpu);
        } else {
            last = false;
        }
        last = block_any(last);
    }
    return last;
}

// Sends the message: waits until there is room for it (a slot, or the posted buffer), at most until the handle's bounds
// end that, moves it and makes it known. What the group wrote into the source before the call is what is sent; the source
// may be written again when the call returns, in the group after a barrier. The receiver sees the message and, if it
// went in one piece, everything this group wrote or saw before (release at system scope); packets order nothing but
// themselves.
template <class Group>
MP_DEVICE WaitResult send(Group group, const Send& send) {
    const Message& message = send.message;
    auto* state = impl::at<MessageState>(message.state);
    group.sync();
    const std::uint64_t epoch = state->epoch + 1;
    const auto* from = impl::at<const void>(message.memory);
    if (message.inbox != 0) {
        std::uint64_t room = state->room;
        if (room < epoch) {
            const std::uint64_t needed = epoch > packet_slots ? epoch - packet_slots : 0;
            const WaitResult result = wait(group, impl::at<std::uint64_t>(message.mine), needed, impl::bounds_of(message));
            if (result.failed()) return impl::failed_at(group, message, needed, result);
            room = result.seen + packet_slots;  // of threads that do not lead: at least the needed
        }
        store_packets(group, impl::slot_of(message, epoch), from, message.len, epoch);
        group.sync();
        if (group.leads()) {
            state->epoch = epoch;
            state->room = room;
        }
        return {ok, epoch, 0};
    }
    const WaitResult result = wait(group, impl::at<std::uint64_t>(message.mine), epoch, impl::bounds_of(message));
    if (result.failed()) return impl::failed_at(group, message, epoch, result);
    copy(group, impl::at<void>(message.target), from, message.len);
    signal(group, impl::at<std::uint64_t>(message.theirs), epoch);
    if (group.leads()) state->epoch = epoch;
    return {ok, epoch, 0};
}

// The same by several blocks, each of which calls it with its part: each waits for the room itself and copies its share,
// and the last one signals. Between two starts of the handle the blocks must have met (the end of the kernel, or a
// barrier of the grid). Packets are sent by part 0.
MP_DEVICE WaitResult send(Block group, const Send& send, Part part) {
    const Message& message = send.message;
    if (part.count == 1 || message.inbox != 0) {
        if (part.index != 0) return {ok, 0, 0};
        return mp::send(group, send);
    }
    auto* state = impl::at<MessageState>(message.state);
    group.sync();
    const std::uint64_t epoch = state->epoch + 1;
    const WaitResult result = wait(group, impl::at<std::uint64_t>(message.mine), epoch, impl::bounds_of(message));
    if (result.failed()) return impl::failed_at(group, message, epoch, result);
    copy(group, impl::at<void>(message.target), impl::at<const void>(message.memory), message.len, part);
    if (last_block(&state->arrived, part.count) && group.leads()) {
        store(impl::at<std::uint64_t>(message.theirs), epoch, release, system);
        state->epoch = epoch;
    }
    return {ok, epoch, 0};
}

// Posts the buffer: from here on the peer may write it. What the group read from it before has been read (release at
// system scope, after a barrier of the group). For packets there is nothing to do: the peer never writes the buffer.
// One post to one recv.
template <class Group>
MP_DEVICE void post(Group group, const Recv& recv) {
    const Message& message = recv.message;
    if (message.inbox != 0) return;
    auto* state = impl::at<MessageState>(message.state);
    group.sync();
    if (group.leads()) {
        const std::uint64_t posted = state->room + 1;
        state->room = posted;
        store(impl::at<std::uint64_t>(message.theirs), posted, release, system);
    }
}

// Waits for the next message, at most until the handle's bounds end that. After ok the message is in the buffer for every
// thread of the group, and for one that was not packets so is everything that the sender released with it (acquire
// at system scope). After a failure the buffer must not be read.
template <class Group>
MP_DEVICE WaitResult recv(Group group, const Recv& recv) {
    const Message& message = recv.message;
    auto* state = impl::at<MessageState>(message.state);
    group.sync();
    const std::uint64_t epoch = state->epoch + 1;
    WaitResult result;
    if (message.inbox != 0) {
        result = load_packets(group, impl::slot_of(message, epoch), impl::at<void>(message.memory), message.len, epoch,
                              impl::bounds_of(message));
        if (group.any(result.failed())) {
            // Each thread waited for packets of its own. One of those that failed reports; the status is common.
            report(impl::at<WaitReport>(message.report), epoch, result);
            result.status = group.any(result.status == aborted) ? aborted : timed_out;
            return result;
        }
    } else {
        result = wait(group, impl::at<std::uint64_t>(message.mine), epoch, impl::bounds_of(message));
        if (result.failed()) return impl::failed_at(group, message, epoch, result);
    }
    if (group.leads()) {
        state->epoch = epoch;
        // The slot is free: its packets have been read, since the vote came after. Were this store to overtake a read, the
        // read would find a later epoch, not other data.
        if (message.inbox != 0) store(impl::at<std::uint64_t>(message.theirs), epoch, relaxed, system);
    }
    return {ok, epoch, 0};
}

// The same by several blocks, each of which calls it with its part: each waits itself and then sees the message, and the
// last one advances the epoch. As with send, the blocks must meet before the next. Packets are taken by part 0, and
// the other parts return at once, without having seen anything.
MP_DEVICE WaitResult recv(Block group, const Recv& recv, Part part) {
    const Message& message = recv.message;
    if (part.count == 1 || message.inbox != 0) {
        if (part.index != 0) return {ok, 0, 0};
        return mp::recv(group, recv);
    }
    auto* state = impl::at<MessageState>(message.state);
    group.sync();
    const std::uint64_t epoch = state->epoch + 1;
    const WaitResult result = wait(group, impl::at<std::uint64_t>(message.mine), epoch, impl::bounds_of(message));
    if (result.failed()) return impl::failed_at(group, message, epoch, result);
    if (last_block(&state->arrived, part.count) && group.leads()) state->epoch = epoch;
    return {ok, epoch, 0};
}

}  // namespace mp
