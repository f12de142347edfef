// Messages of a kernel: send and receive on what the host has prepared (libmp, `prepare_device`). The same counters serve
// kernels, streams and replayed graphs: a start reads the epoch from the GPU's memory and advances it there, so nothing
// needs the host between starts. No matching happens here: a handle is one end of one pair.
//
// Three formats, chosen when the pair was made. Small messages travel as packets into slots of the receiver, which it
// copies from; a slot is free again when the receiver has said so. Larger ones go straight into the posted buffer, after
// its credit and before its arrival. What a CPU sends, which does not reach the memory of a GPU, waits in the sender's
// memory until the receiver fetches it: a receive with a `target`.
//
// Where the peer's memory is not mapped, what would be stored there is a request to a NIC (impl/nic.cuh): the message into
// the posted buffer or a slot, then the signal, in one batch; a credit likewise. The handle says so, and nothing else
// changes. A request that fails ends the waits of both ends with `path_failed`.
//
// All blocks that share a start work on the same handle; two starts of one handle do not overlap.
#pragma once

#include "copy.cuh"
#include "impl/nic.cuh"
#include "layout.cuh"
#include "packet.cuh"
#include "report.cuh"

namespace mp {

// The region that a send reads or a receive fills; orders nothing.
template <class T>
MP_DEVICE T* buffer_of(const Send& send) {
    return reinterpret_cast<T*>(send.message.memory);
}
template <class T>
MP_DEVICE T* buffer_of(const Recv& recv) {
    return reinterpret_cast<T*>(recv.message.memory);
}

namespace impl {

// Whether the peer never writes the buffer: it need not be posted, and one part of a group of blocks takes the message.
MP_DEVICE bool is_taken(const Message& message) { return message.inbox != 0 || message.target != 0; }

// Whether messages go as packets over mapped memory.
MP_DEVICE bool sends_packets(const Message& message) { return message.inbox != 0 && message.nic == 0; }

MP_DEVICE Packet* slot_of(const Message& message, std::uint64_t epoch) {
    return at<Packet>(message.inbox) + (epoch - 1) % packet_slots * packets_of(message.len);
}

// The failure is the handle's report and every thread's result.
template <class Group>
MP_DEVICE WaitResult failed_at(Group group, std::uint64_t to_report, std::uint64_t expected, const WaitResult& result) {
    if (group.leads()) report(at<WaitReport>(to_report), expected, result);
    return result;
}

// Tells the sender that a slot is free, after a vote of the group: its packets have been read. Were the store to overtake a
// read, the read would find a later epoch, not other data.
template <class Group>
MP_DEVICE void free_slot(Group group, std::uint64_t theirs, std::uint64_t epoch) {
    if (group.leads()) store(at<std::uint64_t>(theirs), epoch, relaxed, system);
}

// The end of a wait of which each thread had a part, after the vote has found failures: one of those that failed reports,
// and the status is common.
template <class Group>
MP_COLD WaitResult failed_apart(Group group, std::uint64_t to_report, std::uint64_t expected, WaitResult result) {
    report(at<WaitReport>(to_report), expected, result);
    result.status = group.any(result.status == aborted) ? aborted : timed_out;
    return result;
}

// What is not a share a thread, or takes longer, is out of line and by values: inlined, its registers would be spilled in
// the loops of those who pass shares, and it is long enough not to feel a call.

// `seen` of the result is what this thread knows to be taken, as `taken` was before.
template <class Group>
MP_COLD WaitResult send_packets(Group group, Packet* slot, std::uint64_t from, std::uint64_t bytes, std::uint64_t mine,
                                std::uint64_t to_report, std::uint64_t epoch, std::uint64_t taken,
                                const WaitBounds bounds) {
    // What the group wrote is there for all of it, and all hear whether everybody knows of room.
    if (group.any(epoch - taken > packet_slots)) {
        taken = epoch - packet_slots;
        const WaitResult result = wait(group, at<const std::uint64_t>(mine), taken, bounds);
        if (result.failed()) return failed_at(group, to_report, taken, result);
    }
    store_packets(group, slot, at<const void>(from), bytes, epoch);
    if (epoch - taken == packet_slots) taken = load(at<const std::uint64_t>(mine), relaxed, system);
    return {ok, taken, 0};
}

template <class Group>
MP_COLD WaitResult recv_packets(Group group, const Packet* slot, std::uint64_t to, std::uint64_t bytes,
                                std::uint64_t theirs, std::uint64_t to_report, std::uint64_t epoch,
                                const WaitBounds bounds) {
    const WaitResult result = load_packets(group, slot, at<void>(to), bytes, epoch, bounds);
    if (group.any(result.failed())) return failed_apart(group, to_report, epoch, result);
    free_slot(group, theirs, epoch);
    return {ok, epoch, 0};
}

// Messages in one piece.

template <class Group>
MP_COLD WaitResult send_whole(Group group, std::uint64_t target, std::uint64_t from, std::uint64_t bytes,
                              std::uint64_t mine, std::uint64_t theirs, std::uint64_t to_report, std::uint64_t epoch,
                              const WaitBounds bounds) {
    const WaitResult posted = wait(group, at<const std::uint64_t>(mine), epoch, bounds);
    if (posted.failed()) return failed_at(group, to_report, epoch, posted);
    copy(group, at<void>(target), at<const void>(from), bytes);
    signal(group, at<std::uint64_t>(theirs), epoch);
    return {ok, epoch, 0};
}

template <class Group>
MP_COLD WaitResult recv_whole(Group group, std::uint64_t target, std::uint64_t to, std::uint64_t bytes,
                              std::uint64_t mine, std::uint64_t theirs, std::uint64_t to_report, std::uint64_t epoch,
                              const WaitBounds bounds) {
    const WaitResult arrived = wait(group, at<const std::uint64_t>(mine), epoch, bounds);
    if (arrived.failed()) return failed_at(group, to_report, epoch, arrived);
    if (target == 0) return {ok, epoch, 0};
    copy(group, at<void>(to), at<const void>(target), bytes);
    // Its barrier: all of it is there for the group, and has been read when the sender hears so.
    signal(group, at<std::uint64_t>(theirs), epoch);
    return {ok, epoch, 0};
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

// A send that a group starts again and again in one kernel, its counters in registers meanwhile. Made and closed by all
// threads of the group; between that nobody else starts the handle.
class Sender {
public:
    template <class Group>
    MP_DEVICE Sender(Group group, const Send& send)
        : message_(send.message), share_(group, impl::sends_packets(message_), message_.memory, message_.len),
          words_(impl::Share::words_of(group, message_.memory)) {
        group.sync();  // the last start of the group itself
        const auto* state = impl::at<const MessageState>(message_.state);
        epoch_ = state->epoch;
        taken_ = state->room;
        aim(group);
    }

    // As mp::send.
    template <class Group>
    MP_DEVICE WaitResult send(Group group) {
        const std::uint64_t epoch = epoch_ + 1;
        WaitResult result = {ok, epoch, 0};
        if (!send_shares(group, epoch)) result = send_otherwise(group, epoch);
        if (!result.failed()) {
            result.seen = epoch_ = epoch;
            aim(group);
        }
        return result;
    }

    // Writes the counters back. Then others may start the handle, after a barrier of the group.
    template <class Group>
    MP_DEVICE void close(Group group) {
        group.sync();
        if (!group.leads()) return;
        auto* state = impl::at<MessageState>(message_.state);
        state->epoch = epoch_;
        state->room = taken_;
    }

private:
    // Where this thread's share of the next message goes: worked out when the last one is on its way.
    template <class Group>
    MP_DEVICE void aim(Group group) {
        if (!share_.serves()) return;
        slot_ = impl::slot_of(message_, epoch_ + 1) + group.rank();
        impl::keep(slot_);
    }

    // Sends the message in shares, if it goes in shares and all threads know of room for it.
    template <class Group>
    MP_DEVICE bool send_shares(Group group, std::uint64_t epoch) {
        if (!share_.serves()) return false;
        const std::uint32_t under_way = static_cast<std::uint32_t>(epoch) - static_cast<std::uint32_t>(taken_);
        // What the group wrote is there for all of it.
        if (MP_RARELY(group.any(under_way > packet_slots))) return false;
        share_.store_packets(group, slot_, words_, epoch);
        // What the receiver has taken meanwhile is asked now, when the message is on its way, not before the next.
        if (under_way == packet_slots) taken_ = load(impl::at<const std::uint64_t>(message_.mine), relaxed, system);
        return true;
    }

    template <class Group>
    MP_DEVICE WaitResult send_otherwise(Group group, std::uint64_t epoch) {
        if (impl::sends_packets(message_)) {
            const WaitResult result =
                impl::send_packets(group, impl::slot_of(message_, epoch), message_.memory, message_.len, message_.mine,
                                   message_.report, epoch, taken_, impl::bounds_of(message_));
            if (!result.failed()) taken_ = result.seen;
            return result;
        }
        if (message_.nic == 0)
            return impl::send_whole(group, message_.target, message_.memory, message_.len, message_.mine,
                                    message_.theirs, message_.report, epoch, impl::bounds_of(message_));
        return {impl::send_by_nic(group, message_.nic, epoch), epoch_, 0};
    }

    const Message& message_;
    impl::Share share_;
    const std::uint32_t* words_;
    Packet* slot_ = nullptr;
    std::uint64_t epoch_;
    std::uint64_t taken_;  // of packets, the last epoch that this thread knows to be taken
};

// Sends the message: waits until there is room for it (a slot, or the posted buffer), at most until the handle's bounds
// end that, moves it and makes it known. What the group wrote into the source before the call is what is sent; the source
// may be written again when the call returns, in the group after a barrier. The receiver sees the message and, if it
// went in one piece, everything this group wrote or saw before (release at system scope); packets order nothing but
// themselves.
template <class Group>
MP_DEVICE WaitResult send(Group group, const Send& send) {
    Sender sender(group, send);
    const WaitResult result = sender.send(group);
    sender.close(group);
    return result;
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
    if (MP_RARELY(message.nic != 0)) {
        WaitStatus status = impl::send_part_by_nic(group, message.nic, epoch, part);
        if (status == ok && last_block(&state->arrived, part.count)) {
            status = impl::raise_by_nic(group, message.nic, epoch);
            if (status == ok && group.leads()) state->epoch = epoch;
        }
        return {status, epoch, 0};
    }
    const WaitResult result = wait(group, impl::at<std::uint64_t>(message.mine), epoch, impl::bounds_of(message));
    if (result.failed()) return impl::failed_at(group, message.report, epoch, result);
    copy(group, impl::at<void>(message.target), impl::at<const void>(message.memory), message.len, part);
    if (last_block(&state->arrived, part.count) && group.leads()) {
        store(impl::at<std::uint64_t>(message.theirs), epoch, release, system);
        state->epoch = epoch;
    }
    return {ok, epoch, 0};
}

// A receive that a group posts and takes again and again in one kernel, as Sender.
class Receiver {
public:
    template <class Group>
    MP_DEVICE Receiver(Group group, const Recv& recv)
        : message_(recv.message), share_(group, impl::sends_packets(message_), message_.memory, message_.len) {
        group.sync();
        epoch_ = impl::at<const MessageState>(message_.state)->epoch;
    }

    // As mp::post.
    template <class Group>
    MP_DEVICE void post(Group group) {
        if (impl::is_taken(message_)) return;
        if (ahead_ == not_posted)
            ahead_ = static_cast<std::uint32_t>(impl::at<const MessageState>(message_.state)->room - epoch_);
        group.sync();
        ++ahead_;
        // A failure is reported, and the wait for the message finds it, too.
        if (MP_RARELY(message_.nic != 0))
            (void)impl::raise_by_nic(group, message_.nic, epoch_ + ahead_);
        else if (group.leads())
            store(impl::at<std::uint64_t>(message_.theirs), epoch_ + ahead_, release, system);
    }

    // As mp::recv.
    template <class Group>
    MP_DEVICE WaitResult recv(Group group) {
        const std::uint64_t epoch = epoch_ + 1;
        group.sync();  // nobody still reads the last message
        WaitResult result = {ok, epoch, 0};
        if (!recv_shares(group, epoch)) result = recv_otherwise(group, epoch);
        if (!result.failed()) {
            result.seen = epoch_ = epoch;
            if (ahead_ != not_posted) --ahead_;
        }
        return result;
    }

    // As Sender::close. Who has not posted leaves alone what others post meanwhile.
    template <class Group>
    MP_DEVICE void close(Group group) {
        group.sync();
        if (!group.leads()) return;
        auto* state = impl::at<MessageState>(message_.state);
        state->epoch = epoch_;
        if (ahead_ != not_posted) state->room = epoch_ + ahead_;
    }

private:
    // Takes the message in shares, if it goes in shares and all of it comes soon.
    template <class Group>
    MP_DEVICE bool recv_shares(Group group, std::uint64_t epoch) {
        if (!share_.serves()) return false;
        const Packet* slot = impl::slot_of(message_, epoch) + group.rank();
        auto* words = impl::Share::words_of(group, message_.memory);
        const bool missing = !share_.take_packets(group, slot, words, epoch);
        if (group.any(missing)) return false;
        impl::free_slot(group, message_.theirs, epoch);
        return true;
    }

    template <class Group>
    MP_DEVICE WaitResult recv_otherwise(Group group, std::uint64_t epoch) {
        if (impl::sends_packets(message_))
            return impl::recv_packets(group, impl::slot_of(message_, epoch), message_.memory, message_.len, message_.theirs,
                                      message_.report, epoch, impl::bounds_of(message_));
        if (message_.nic == 0)
            return impl::recv_whole(group, message_.target, message_.memory, message_.len, message_.mine,
                                    message_.theirs, message_.report, epoch, impl::bounds_of(message_));
        return {impl::recv_by_nic(group, message_.nic, epoch), epoch_, 0};
    }

    const Message& message_;
    impl::Share share_;
    std::uint64_t epoch_;
    // How often the buffer was posted beyond the messages taken, once this object has posted it.
    std::uint32_t ahead_ = not_posted;
    static constexpr std::uint32_t not_posted = ~std::uint32_t{0};
};

// Posts the buffer: from here on the peer may write it. What the group read from it before has been read (release at
// system scope, after a barrier of the group). For packets, and from a CPU, there is nothing to do: the peer never writes
// the buffer. One post to one recv; another block may do it than the one that receives.
template <class Group>
MP_DEVICE void post(Group group, const Recv& recv) {
    const Message& message = recv.message;
    if (impl::is_taken(message)) return;
    group.sync();
    auto* state = impl::at<MessageState>(message.state);
    // The leader's number counts.
    std::uint64_t posted = 0;
    if (group.leads()) state->room = posted = state->room + 1;
    if (MP_RARELY(message.nic != 0))
        (void)impl::raise_by_nic(group, message.nic, posted);
    else if (group.leads())
        store(impl::at<std::uint64_t>(message.theirs), posted, release, system);
}

// Waits for the next message, at most until the handle's bounds end that. After ok the message is in the buffer for every
// thread of the group, and for one that was not packets so is everything that the sender released with it (acquire
// at system scope). After a failure the buffer must not be read.
template <class Group>
MP_DEVICE WaitResult recv(Group group, const Recv& recv) {
    Receiver receiver(group, recv);
    const WaitResult result = receiver.recv(group);
    receiver.close(group);
    return result;
}

// The same by several blocks, each of which calls it with its part: each waits itself and then sees the message, and the
// last one advances the epoch. As with send, the blocks must meet before the next. Packets, and messages of a CPU, are
// taken by part 0, and the other parts return at once, without having seen anything.
MP_DEVICE WaitResult recv(Block group, const Recv& recv, Part part) {
    const Message& message = recv.message;
    if (part.count == 1 || impl::is_taken(message)) {
        if (part.index != 0) return {ok, 0, 0};
        return mp::recv(group, recv);
    }
    auto* state = impl::at<MessageState>(message.state);
    group.sync();
    const std::uint64_t epoch = state->epoch + 1;
    WaitResult result = {ok, epoch, 0};
    if (MP_RARELY(message.nic != 0)) {
        result.status = impl::recv_by_nic(group, message.nic, epoch);
        if (result.failed()) return result;
    } else {
        result = wait(group, impl::at<std::uint64_t>(message.mine), epoch, impl::bounds_of(message));
        if (result.failed()) return impl::failed_at(group, message.report, epoch, result);
    }
    if (last_block(&state->arrived, part.count) && group.leads()) state->epoch = epoch;
    return {ok, epoch, 0};
}

}  // namespace mp
