// What exchange.cuh is made of: boxes, phases with one neighbour, and the parts of receive buffers. Not to be included by
// itself.
#pragma once

#include "../copy.cuh"
#include "../report.cuh"
#include "../signal.cuh"
#include "box.cuh"
#include "nic.cuh"

// Few neighbours are few instructions and no loop.
#if defined(__CUDACC__)
#define MP_EXCHANGE_UNROLL _Pragma("unroll (N <= 4 ? N : 1)")
#else
#define MP_EXCHANGE_UNROLL
#endif

namespace mp {
namespace impl {

MP_DEVICE int smaller(int one, int other) { return one < other ? one : other; }
MP_DEVICE int larger(int one, int other) { return one < other ? other : one; }

struct Box {
    int first[3];
    int end[3];

    MP_DEVICE bool is_empty() const { return first[0] >= end[0] || first[1] >= end[1] || first[2] >= end[2]; }
};
MP_DEVICE Box box_of(const ExchangeRoute& route) {
    return {{route.first0, route.first1, route.first2}, {route.end0, route.end1, route.end2}};
}
// What is in both.
template <class Cells>
MP_DEVICE Box common(Box box, const Cells& cells) {
    for (int axis = 0; axis < 3; ++axis) {
        box.first[axis] = larger(box.first[axis], cells.first[axis]);
        box.end[axis] = smaller(box.end[axis], cells.end[axis]);
    }
    return box;
}

template <class Word, class Group>
MP_DEVICE void store_words(Group group, const ExchangeRoute& route, std::uint64_t twin, const Box& box) {
    const std::uint64_t words = route.cell / sizeof(Word), row = words * unsigned(box.end[0] - box.first[0]);
    const std::uint64_t rows = unsigned(box.end[1] - box.first[1]), all = row * rows * unsigned(box.end[2] - box.first[2]);
    const auto along = [&](std::uint64_t i) { return std::int64_t(i % row * sizeof(Word)) + std::int64_t(box.first[0]) * route.cell; };
    for (std::uint64_t i = group.rank(); i < all; i += group.size()) {
        const std::int64_t y = box.first[1] + std::int64_t(i / row % rows), z = box.first[2] + std::int64_t(i / row / rows);
        const std::uint64_t x = std::uint64_t(along(i));
        *at<Word>(twin + x + std::uint64_t(y) * route.twin_row + std::uint64_t(z) * route.twin_plane) =
            *at<const Word>(route.cells + x + std::uint64_t(y) * route.row + std::uint64_t(z) * route.plane);
    }
}

// Cells of a field, to where a neighbour has them.
template <class Group>
MP_COLD void store_cells(Group group, const ExchangeRoute& route, std::uint64_t twin, const Box box) {
    const std::uint64_t steps = route.cell | route.cells | route.row | route.plane | twin | route.twin_row | route.twin_plane;
    by_words(steps, [&](auto word) { store_words<decltype(word)>(group, route, twin, box); });
}

MP_DEVICE const ExchangeRoute* route_in(std::uint64_t routes, int n) { return at<const ExchangeRoute>(routes) + n; }

// Kernels that have a NIC's neighbour only now and then should not pay for it in registers: what follows reads the queue pair and
// the route where they are, in memory.
MP_COLD WaitResult reached_by_nic(std::uint64_t routes, int n, std::uint64_t mine, std::uint64_t epoch, const WaitBounds bounds) {
    const QueuePair& qp = *at<const QueuePair>(route_in(routes, n)->queue);
    unsigned polls = 0;
    bool lost = false;
    const auto poll = [&](std::uint64_t& seen) {
        seen = load(at<const std::uint64_t>(mine), acquire, system);
        if (seen >= epoch) return true;
        if (++polls % polls_between_queues == 0) lost = has_failed(qp);
        return lost;
    };
    const WaitResult result = wait_for(poll, bounds);
    if (result.status == ok && result.seen < epoch) return {path_failed, result.seen, 0};
    return result;
}

// A wait of the exchange has ended so: nothing is waited for or signalled any more.
MP_DEVICE bool failed(std::uint64_t word, std::uint64_t report, std::uint64_t epoch, const WaitResult& result) {
    if (!result.failed()) return false;
    store(at<std::uint32_t>(word), std::uint32_t{1}, relaxed, gpu);
    mp::report(at<WaitReport>(report), epoch, result);
    return true;
}

// One thread's wait until neighbour `n` has finished `epoch` phases. Acquire at system scope.
MP_DEVICE bool reached(const ExchangeHead& head, const ExchangeLink& link, int n, std::uint64_t epoch) {
    if (load(at<const std::uint32_t>(head.failed), relaxed, gpu) != 0) return false;
    const WaitResult result = MP_RARELY(link.theirs == 0) ? reached_by_nic(head.sends, n, link.mine, epoch, head.bounds)
                                                          : wait_alone(at<const std::uint64_t>(link.mine), epoch, head.bounds);
    return !failed(head.failed, link.report, epoch, result);
}

// Posts the put and the signal behind it; the neighbour's next signal says that what is put has been read.
MP_COLD WaitResult signal_by_nic(std::uint64_t routes, int n, std::uint64_t epoch, const WaitBounds bounds) {
    const ExchangeRoute& route = *route_in(routes, n);
    const QueuePair& qp = *at<const QueuePair>(route.queue);
    const unsigned puts = unsigned((route.put_bytes + entry_bytes - 1) / entry_bytes);
    const auto encode = [&](SendRing ring, std::uint16_t index) {
        for (unsigned put = 0; put < puts; ++put) {
            const std::uint64_t done = put * entry_bytes, left = route.put_bytes - done;
            const DataSegment part = {route.put_from + done, route.from_key, std::uint32_t(left < entry_bytes ? left : entry_bytes)};
            index += encode_write(ring, index, notify_on_error, {route.put_to + done, route.to_key}, &part, 1);
        }
        encode_write_inline(ring, index, notify_always, {route.signal, route.signal_key}, &epoch, 8);
    };
    return result_of(post(thread(), qp, puts + 1, encode, bounds).status, epoch);
}

// One thread's, after a barrier of its block: the block has finished its part of the phase with neighbour `n`. The last of
// `blocks` counts the phase, signals the neighbour (release at system scope, of everything the blocks wrote) and gets true.
MP_DEVICE bool finished(const ExchangeHead& head, const ExchangeLink& link, int n, unsigned blocks) {
    auto* state = at<ExchangeState>(link.state);
    if (fetch_add(&state->arrived, std::uint64_t{1}, gpu) != blocks - 1) return false;
    state->arrived = 0;
    if (head.unpacks != 0) state->claimed = state->unpacked = 0;
    const std::uint64_t epoch = state->epoch + 1;
    state->epoch = epoch;
    if (load(at<const std::uint32_t>(head.failed), relaxed, gpu) != 0) return false;
    if (MP_RARELY(link.theirs == 0)) return !failed(head.failed, link.report, epoch, signal_by_nic(head.sends, n, epoch, head.bounds));
    store(at<std::uint64_t>(link.theirs), epoch, release, system);
    return true;
}

// Parts in which blocks copy a receive buffer to the ghosts.
MP_DEVICE unsigned parts_of(const ExchangeCopy& box) {
    const std::uint64_t parts = box.row * box.rows * box.planes / 4096;
    return parts < 1 ? 1 : parts > 64 ? 64 : unsigned(parts);
}

// All threads of a group that has entered: brings what neighbour `n` has sent to the ghosts. The groups that enter take parts in
// turn, and each waits for the parts that others have taken: those have started. False: that wait failed.
template <class Group>
MP_COLD bool unpack(Group group, std::uint64_t reads, int n, std::uint64_t states, std::uint64_t failures, std::uint64_t reports,
                    const WaitBounds bounds) {
    const ExchangeCopy& box = route_in(reads, n)->unpack;
    if (box.to == 0) return true;
    auto* state = at<ExchangeState>(states);
    const unsigned parts = parts_of(box);
    for (;;) {
        std::uint64_t turn = 0;
        if (group.leads()) turn = fetch_add(&state->claimed, std::uint64_t{1}, gpu);
        turn = group.broadcast(turn);
        if (turn >= parts) break;
        copy_singly(group, box, {unsigned(turn), parts});
        group.sync();
        if (group.leads()) fetch_add(&state->unpacked, std::uint64_t{1}, gpu);
    }
    bool ok = true;
    if (group.leads()) {
        const auto poll = [&](std::uint64_t& seen) {
            seen = load(&state->unpacked, acquire, gpu);
            return seen >= parts;
        };
        ok = !failed(failures, reports, parts, wait_for(poll, bounds));
    }
    return !group.any(!ok);
}

}  // namespace impl
}  // namespace mp
