// The send queue of a queue pair, used by kernels: reserve a place, build the entry, publish in the order of the queue,
// ring once for many, wait for completions. Whose NIC reads the queue makes no difference here: an mlx5 adapter or the
// software NIC, the bytes are the same (wqe.cuh, cqe.cuh). It makes no queue pairs and registers no memory: the host
// does, and passes a QueuePair by value to the kernel (gdsync: QueuePair::device_view).
//
// Who may post: any thread of any block of kernels of one GPU. The CPU and streams may ring what the CPU has prepared
// (reserved) at the same time: entries are rung in the order of their places, whoever rings. Places are given out by
// the CPU or by kernels, in turns: while a kernel may post, the CPU must not prepare (unless the link between them has
// native atomics).
//
// How it works: places come from one counter in memory that the CPU sees too. A thread whose entry is written marks its
// place as ready, in memory of the GPU. Whoever finds the lock free rings for all entries that are ready without a gap:
// one doorbell record, one doorbell. Nobody waits for the lock: who does not get it waits for its entry to be rung.
//
// Order: everything that the posting group wrote before the call is visible to the NIC before it reads the entry
// (entry and data → mark, released at GPU scope → the ringer's acquire → doorbell record → doorbell → published
// counter, each released at system scope). What a completed request read or wrote is visible to the group after
// wait_completed.
//
// Ends: every wait is bounded by WaitBounds. A queue whose peer is lost ends by itself: the NIC completes the request
// with an error, and every call returns `failed` from then on.
#pragma once

#include "cqe.cuh"
#include "group.cuh"
#include "impl/qp_atomics.cuh"
#include "layout.cuh"
#include "platform.cuh"
#include "signal.cuh"
#include "wqe.cuh"

namespace mp {

// How a call on a queue pair ended.
enum class [[nodiscard]] PostStatus : std::uint32_t {
    ok = 0,
    aborted = 1,    // the abort word was set first
    timed_out = 2,  // the deadline passed first
    failed = 3,     // a request of this queue failed (QueuePairState::failure says how); nothing more will execute
    too_large = 4,  // the entries have more blocks than may be posted at once; nothing was posted
};

// Where an entry stands: its first block, counted from 0 and never wrapped.
struct [[nodiscard]] Posted {
    std::uint64_t position;
    PostStatus status;
    std::uint32_t pad;
};

MP_DEVICE SendRing send_ring(const QueuePair& qp) {
    return {reinterpret_cast<Octoword*>(qp.send_queue), qp.blocks * block_octowords - 1, qp.qpn};
}

namespace impl {

MP_DEVICE std::uint64_t* word_at(std::uint64_t address) { return reinterpret_cast<std::uint64_t*>(address); }

MP_DEVICE QueuePairState* state_of(const QueuePair& qp) { return reinterpret_cast<QueuePairState*>(qp.state); }

// The mark of the entry that begins at `position`: where the entries marked with it end. Marks of earlier passes over
// the ring are not past `position`.
MP_DEVICE std::uint64_t* mark_of(const QueuePair& qp, std::uint64_t position) {
    return word_at(qp.state + sizeof(QueuePairState)) + (position & (qp.blocks - 1));
}

// Marks passed in one ring, so that the holder of the lock serves others as well as itself, but not for ever.
constexpr unsigned marks_a_ring = 512;

// Rings what is ready. The caller holds the lock.
MP_DEVICE void ring_ready(const QueuePair& qp) {
    QueuePairState* state = state_of(qp);
    std::uint64_t begin = load(&state->published, relaxed, gpu);
    std::uint64_t end = load(mark_of(qp, begin), acquire, gpu);
    if (end <= begin) {
        // The next entry is not one of ours that is ready: the CPU or a stream may have rung it, and more.
        const std::uint64_t elsewhere = load(word_at(qp.published), acquire, system);
        if (elsewhere <= begin) return;
        begin = elsewhere;
        store(&state->published, begin, release, gpu);
        end = load(mark_of(qp, begin), acquire, gpu);
        if (end <= begin) return;
    }
    for (unsigned mark = 1; mark < marks_a_ring; ++mark) {
        const std::uint64_t next = load(mark_of(qp, end), acquire, gpu);
        if (next <= end) break;
        end = next;
    }
    store(reinterpret_cast<std::uint32_t*>(qp.send_record), doorbell_record_word(std::uint16_t(end)), release, system);
    store(word_at(qp.doorbell), doorbell_value(qp.qpn, std::uint16_t(end)), release, system);
    store(word_at(qp.published), end, release, system);
    store(&state->rings, load(&state->rings, relaxed, gpu) + 1, relaxed, gpu);
    store(&state->published, end, release, gpu);
}

// Looks at the completion. The caller holds the lock. The count in it is rebuilt from the 16 bits of the completion
// against one that the CPU also writes: no more than the queue's blocks, at most 32768, are ever ahead of it, because
// nobody fills a block before it.
MP_DEVICE void look_at_completion(const QueuePair& qp) {
    QueuePairState* state = state_of(qp);
    const std::uint64_t here = load(&state->completed, relaxed, gpu);
    const std::uint64_t elsewhere = load(word_at(qp.completed), relaxed, system);
    const CqeTail tail{load(word_at(qp.completion + cqe_tail_offset), acquire, system)};
    const std::uint64_t known = elsewhere > here ? elsewhere : here;
    std::uint64_t now = known;
    if (tail.is_error()) {
        const Syndrome syndrome = cqe_syndrome(load(word_at(qp.completion + cqe_error_offset), acquire, system));
        // Overwritten meanwhile: the next look sees by what.
        if (load(word_at(qp.completion + cqe_tail_offset), relaxed, system) != tail.word) return;
        // Entries before the one that failed are complete. One that was flushed may have overwritten that, and any number of
        // flushed ones before it: of those before it nothing is known, and what is not known to be complete never will be.
        if (syndrome != Syndrome::flushed) {
            const std::uint64_t past = collapsed_progress(known, tail.index());
            now = past > known ? past - 1 : known;
        }
        if (load(&state->failure, relaxed, gpu) == 0)
            store(&state->failure, 0x100 | std::uint64_t(syndrome), release, gpu);
    } else if (tail.opcode() == CqeOpcode::request) {
        now = collapsed_progress(known, tail.index());
    }
    if (now > elsewhere) store(word_at(qp.completed), now, relaxed, system);
    if (now > here) store(&state->completed, now, release, gpu);
}

// What a wait is for.
enum class Until { room, rung, completed };

MP_DEVICE bool reached(const QueuePair& qp, Until what, std::uint64_t target) {
    const QueuePairState* state = state_of(qp);
    const std::uint64_t* counter = what == Until::rung ? &state->published : &state->completed;
    return load(counter, acquire, gpu) >= target;
}

// One thread waits until the counter has reached `target`, doing what there is to do for everybody when the lock is
// free. Acquire at GPU scope of what the last holder of the lock saw at system scope.
MP_DEVICE PostStatus until(const QueuePair& qp, Until what, std::uint64_t target, const WaitBounds& bounds) {
    QueuePairState* state = state_of(qp);
    Look look;
    std::uint64_t looked = 0;
    for (;;) {
        if (reached(qp, what, target)) return PostStatus::ok;
        if (load(&state->lock, relaxed, gpu) == 0 && try_lock(&state->lock)) {
            ring_ready(qp);
            if (what != Until::rung || load(&state->published, relaxed, gpu) < target) look_at_completion(qp);
            unlock(&state->lock);
            if (reached(qp, what, target)) return PostStatus::ok;
        }
        pause();
        if (load(&state->failure, relaxed, gpu) != 0) {
            return reached(qp, what, target) ? PostStatus::ok : PostStatus::failed;
        }
        const std::uint64_t now = clock_cycles();
        if (looked == 0) {
            looked = now;
        } else if (now - looked >= look_every_cycles) {
            looked = now;
            const WaitStatus status = look.at(bounds);
            if (status != mp::ok) {
                if (reached(qp, what, target)) return PostStatus::ok;
                return status == mp::aborted ? PostStatus::aborted : PostStatus::timed_out;
            }
        }
    }
}

// Marks [begin, end) as ready, after which anybody rings it, and waits until somebody has.
MP_DEVICE PostStatus publish(const QueuePair& qp, std::uint64_t begin, std::uint64_t end, const WaitBounds& bounds) {
    store(mark_of(qp, begin), end, release, gpu);
    return until(qp, Until::rung, end, bounds);
}

// Blocks that may be reserved at once: a completion tells the first block of an entry and frees its other blocks (up to
// 15) only together with the next one's.
MP_DEVICE unsigned most_at_once(const QueuePair& qp) { return qp.blocks - (wqe_blocks(max_entry_octowords) - 1); }

// Waits for room for the blocks before `end`.
MP_DEVICE PostStatus room_until(const QueuePair& qp, std::uint64_t end, const WaitBounds& bounds) {
    if (end <= qp.blocks) return PostStatus::ok;
    return until(qp, Until::room, end - qp.blocks, bounds);
}

// post, whose entries the leader writes by write(SendRing, position): before they are published. What it returns but ok ends the
// call, and the place is never rung.
template <class Group, class Write>
MP_DEVICE Posted post_by(Group group, const QueuePair& qp, unsigned blocks, Write write, const WaitBounds& bounds) {
    if (blocks > most_at_once(qp)) return {0, PostStatus::too_large, 0};
    group.sync();
    Posted posted = {0, PostStatus::ok, 0};
    if (group.leads()) {
        const std::uint64_t begin = reserve(word_at(qp.reserved), blocks);
        posted.position = begin;
        posted.status = room_until(qp, begin + blocks, bounds);
        if (posted.status == PostStatus::ok) posted.status = write(send_ring(qp), begin);
        if (posted.status == PostStatus::ok) posted.status = publish(qp, begin, begin + blocks, bounds);
    }
    return group.broadcast(posted);
}

// Posts `count` entries, or chains of entries, of `blocks` blocks each with one reservation and one publication: the threads of the
// group write them in turn by write(SendRing, position, number), whose failure ends the call as that of post_by. The leader calls
// tell(position) before they are published, with the first one's position, which is that of the result.
template <class Group, class Write, class Tell>
MP_DEVICE Posted post_many(Group group, const QueuePair& qp, unsigned count, unsigned blocks, Write write, Tell tell,
                           const WaitBounds& bounds) {
    const std::uint64_t all = std::uint64_t{blocks} * count;
    if (all > most_at_once(qp)) return {0, PostStatus::too_large, 0};
    Posted posted = {0, PostStatus::ok, 0};
    if (group.leads()) {
        posted.position = reserve(word_at(qp.reserved), all);
        posted.status = room_until(qp, posted.position + all, bounds);
    }
    posted = group.broadcast(posted);
    if (posted.status != PostStatus::ok) return posted;
    PostStatus worst = PostStatus::ok;
    for (unsigned number = group.rank(); number < count && worst == PostStatus::ok; number += group.size())
        worst = write(send_ring(qp), posted.position + std::uint64_t{blocks} * number, number);
    // Its barrier: all have written theirs.
    if (group.any(worst != PostStatus::ok)) {
        const bool ended = group.any(worst == PostStatus::aborted), failed = group.any(worst == PostStatus::failed);
        posted.status = failed ? PostStatus::failed : ended ? PostStatus::aborted : PostStatus::timed_out;
        return posted;
    }
    if (group.leads()) {
        tell(posted.position);
        posted.status = publish(qp, posted.position, posted.position + all, bounds);
    }
    return group.broadcast(posted);
}

}  // namespace impl

// Posts one entry of `blocks` basic blocks, which the leader of the group writes by encode(SendRing ring, std::uint16_t
// index), as with the encode_… functions of wqe.cuh. Returns when the entry is rung, to every thread of the group. What
// the group wrote before is visible to the NIC. A full queue is back-pressure: the call waits for room, which only
// completions make: signal (notify_always) at least one entry in every half queue.
//
// After `aborted` or `timed_out` the place stays reserved and may never be rung: nobody can post to the queue any more.
// The position is that of the entry, for wait_completed.
template <class Group, class Encode>
MP_DEVICE Posted post(Group group, const QueuePair& qp, unsigned blocks, Encode encode, const WaitBounds& bounds) {
    const auto write = [&encode](SendRing ring, std::uint64_t position) {
        encode(ring, std::uint16_t(position));
        return PostStatus::ok;
    };
    return impl::post_by(group, qp, blocks, write, bounds);
}

// Posts one entry of `blocks` blocks for each thread of the group, with one reservation and one publication: every
// thread writes its own by encode(ring, index). They stand in the order of the threads' ranks. For the rest as post;
// the position is that of the calling thread's entry.
template <class Group, class Encode>
MP_DEVICE Posted post_each(Group group, const QueuePair& qp, unsigned blocks, Encode encode,
                           const WaitBounds& bounds) {
    const auto write = [&encode](SendRing ring, std::uint64_t position, unsigned) {
        encode(ring, std::uint16_t(position));
        return PostStatus::ok;
    };
    Posted posted = impl::post_many(group, qp, group.size(), blocks, write, [](std::uint64_t) {}, bounds);
    posted.position += std::uint64_t{blocks} * group.rank();
    return posted;
}

// Rings entries that the CPU has prepared, blocks [begin, end), once each (Prepared::blocks). Returns when they are rung:
// entries before them, of whomever, are rung first. What the group wrote before is visible to the NIC.
template <class Group>
MP_DEVICE PostStatus ring(Group group, const QueuePair& qp, std::uint64_t begin, std::uint64_t end,
                          const WaitBounds& bounds) {
    group.sync();
    Posted posted = {begin, PostStatus::ok, 0};
    if (group.leads()) posted.status = impl::publish(qp, begin, end, bounds);
    return group.broadcast(posted).status;
}

// Waits until the entry at `position` is complete, whoever posted it: then all before it are, too. After a failure of the
// queue entries that nobody has seen complete count as failed: an adapter overwrites what it said of them. Acquire at system
// scope, then a barrier of the group: every thread of it sees what the NIC wrote. An entry that is not signaled is
// complete when a later one is. After anything but ok nothing is ordered.
template <class Group>
MP_DEVICE PostStatus wait_completed(Group group, const QueuePair& qp, std::uint64_t position, const WaitBounds& bounds) {
    Posted posted = {position, PostStatus::ok, 0};
    if (group.leads()) {
        posted.status = impl::until(qp, impl::Until::completed, position + 1, bounds);
        // What the holder of the lock acquired is this thread's by acquire at GPU scope; the NIC is outside the GPU.
        fence(acquire, system);
    }
    return group.broadcast(posted).status;
}

}  // namespace mp
