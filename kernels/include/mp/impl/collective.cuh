// The engine of collectives over mapped memory: every rank gives every other a block, maybe empty, and what comes is placed or
// combined in rank order. Not to be included by itself. What a collective is – who gives what to whom – is in `Blocks`; here is
// how blocks travel.
//
// Blocks that are not large are packets: one round of stores, no fence. An inbox has rings of packets for each rank that writes there:
// small blocks go by the first, others by as many as have a share of their words, each served by a block of threads. A run
// has as many packets of a ring as its largest block needs, whether a block goes there or not: so all ranks know where the next run
// begins. What is overwritten has been taken: who hears all others in a run knows that they have taken all before it, and a ring is
// as large as two runs, so an all-reduce pays one comparison for it. A run in which not all hear all has each rank
// tell the others at its end up to where it has taken, in a word for each pair, which they look at when a ring has come round:
// who only gives is ahead by a ring. A barrier takes no packets: each rank counts its own in a word at every other. A tree, which
// would spare packets, is not worth its steps with the few ranks that map each other.
//
// Large blocks go in pieces through lanes. A lane has slots for each pair of ranks, in the memory of who takes, and one word each
// way with both its counters: pieces sent, and pieces taken from the other. The pieces of a run are as large as its largest
// block asks for, at most a slot; piece i of every block is lane i % lanes's. A block of
// threads serves one lane after another, in order, and blocks share them by parts: whatever blocks a rank has, and whoever
// runs on it, the least lane that is not through is served on all ranks, so none waits for good. A word is released once a
// step for both: the pieces just written, and the slots just read.
#pragma once

#include "../message.cuh"
#include "../reduction.cuh"

namespace mp {
namespace impl {

MP_DEVICE WaitBounds bounds_of(const Collective& collective) { return {collective.abort, collective.timeout_ns}; }

// A block, as an address; without bytes there is none.
struct BlockAt {
    std::uint64_t address;
    std::uint64_t bytes;
};
MP_DEVICE BlockAt block_of(const Blocks& blocks, std::uint64_t rank) {
    if (rank < blocks.first || rank >= blocks.end) return {blocks.memory, 0};
    if (blocks.table != 0) {
        const Extent row = at<const Extent>(blocks.table)[rank];
        return {blocks.memory + row.at, row.bytes};
    }
    const std::uint64_t first = rank * blocks.stride;
    const std::uint64_t left = first < blocks.total ? blocks.total - first : 0;
    return {blocks.memory + first, blocks.bytes < left ? blocks.bytes : left};
}

// Bytes of the largest block.
MP_DEVICE std::uint64_t most_of(const Blocks& blocks, std::uint64_t ranks) {
    if (blocks.table == 0) return blocks.first < blocks.end ? blocks.bytes : 0;
    std::uint64_t most = 0;
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
        const std::uint64_t bytes = block_of(blocks, rank).bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

// Whether there is something for, or of, every rank from byte `first` of the blocks on.
MP_DEVICE bool is_of_all(const Blocks& blocks, std::uint64_t ranks, std::uint64_t first) {
    return blocks.table == 0 && blocks.bytes > first && blocks.first == 0 && blocks.end == ranks &&
           blocks.stride * (ranks - 1) + first < blocks.total;
}

// Words of blocks: `left` bytes from `from` on, at most 8, filled up with zeros.
template <class T>
MP_DEVICE std::uint64_t load_word(const void* from, std::uint64_t left) {
    const auto* elements = static_cast<const T*>(from);
    if constexpr (sizeof(T) == 8) return bits_of(*elements);
    std::uint64_t word = 0;
    MP_UNROLL
    for (unsigned i = 0; i < 8 / sizeof(T); ++i)
        if (i * sizeof(T) < left) word |= bits_of(elements[i]) << (8 * sizeof(T) * i % 64);
    return word;
}
template <class T>
MP_DEVICE void store_word(void* to, std::uint64_t left, std::uint64_t word) {
    auto* elements = static_cast<T*>(to);
    if constexpr (sizeof(T) == 8) {
        *elements = from_bits<T>(word);
    } else {
        MP_UNROLL
        for (unsigned i = 0; i < 8 / sizeof(T); ++i)
            if (i * sizeof(T) < left) elements[i] = from_bits<T>(word >> 8 * sizeof(T) * i);
    }
}
// Bytes, which are mostly whole words.
MP_COLD std::uint64_t load_bytes(const void* from, std::uint64_t left) { return load_word<unsigned char>(from, left); }
MP_COLD void store_bytes(void* to, std::uint64_t left, std::uint64_t word) { store_word<unsigned char>(to, left, word); }
template <class T>
MP_DEVICE std::uint64_t load_of(std::uint64_t from, std::uint64_t left) {
    if constexpr (sizeof(T) == 1) {
        if (from % 8 == 0 && left >= 8) return *at<const std::uint64_t>(from);
        return load_bytes(at<const void>(from), left);
    } else {
        return load_word<T>(at<const void>(from), left);
    }
}
template <class T>
MP_DEVICE void store_at(std::uint64_t to, std::uint64_t left, std::uint64_t word) {
    if constexpr (sizeof(T) == 1) {
        if (to % 8 == 0 && left >= 8)
            *at<std::uint64_t>(to) = word;
        else
            store_bytes(at<void>(to), left, word);
    } else {
        store_word<T>(at<void>(to), left, word);
    }
}

// ---- packets ----------------------------------------------------------------------------------------------------

// Bytes of an inbox that all ranks' rings with one number have, and where those are.
MP_DEVICE std::uint64_t ring_bytes(const Collective& collective) { return collective.ranks * (collective.ring * packet_size + lane_stride); }
MP_DEVICE std::uint64_t ring_in(std::uint64_t inbox, const Collective& collective, std::uint64_t number) {
    return inbox + number * ring_bytes(collective);
}

// At their beginning are two words of each rank: up to where it has taken what is in its own, and, of the first rings, the barriers that
// it has come to.
MP_DEVICE std::uint64_t* taken_in(std::uint64_t ring, std::uint64_t from) { return at<std::uint64_t>(ring + from * lane_stride); }
MP_DEVICE std::uint64_t* met_in(std::uint64_t inbox, std::uint64_t from) { return taken_in(inbox, from) + 1; }

// Behind them a packet of the ring of rank `from`.
MP_DEVICE Packet* packet_in(std::uint64_t ring, const Collective& collective, std::uint64_t from, std::uint64_t position) {
    return at<Packet>(ring + collective.ranks * lane_stride) + from * collective.ring + (position & (collective.ring - 1));
}
MP_DEVICE std::uint64_t inbox_of(const Collective& collective, std::uint64_t rank) {
    return rank < near_ranks ? collective.near[rank] : fixed(at<const std::uint64_t>(collective.inboxes)[rank]);
}
MP_DEVICE RingState* state_of(const Collective& collective, std::uint64_t number) {
    return number == 0 ? &at<CollectiveState>(collective.state)->ring : at<RingState>(collective.states) + (number - 1);
}

// A barrier that has failed is not counted, `met` were before it: who comes to it again says so again. Whoever heard of this rank meanwhile has
// passed.
template <class Group>
MP_COLD void take_back(Group group, std::uint64_t state, std::uint64_t met) {
    const Collective& collective = at<const CollectiveState>(state)->collective;
    for (std::uint64_t rank = group.rank(); rank < collective.ranks; rank += group.size())
        if (rank != collective.rank) store(met_in(inbox_of(collective, rank), collective.rank), met, relaxed, system);
}

// The words of every block that go by the rings of one number.
struct RingShare {
    std::uint64_t ring;
    std::uint64_t first;
    std::uint64_t words;
};

// Where a run is in them.
struct RingRun {
    std::uint64_t number;
    std::uint64_t position;
    std::uint64_t end;
};

// A packet that rank `from` sends to `rank`.
MP_DEVICE Packet* packet_of(const Collective& collective, std::uint64_t rank, std::uint64_t from, const RingShare& share, std::uint64_t position) {
    return packet_in(ring_in(inbox_of(collective, rank), collective, share.ring), collective, from, position);
}

// The end of a run: the vote of the group over its threads' waits. The state changes behind it, when all have read it. `together`: all
// ranks have heard all.
template <class Group>
MP_DEVICE WaitResult end_of_run(Group group, const Collective& collective, const RingShare& share, const RingRun& run, bool together,
                                const WaitResult& result) {
    if (group.any_uniform(result.failed())) return failed_apart(group, collective.report, run.number, result);
    if (group.leads()) {
        RingState* state = state_of(collective, share.ring);
        state->runs = run.number;
        state->position = run.end;
        if (together) state->heard = run.position;
    }
    if (!together)
        for (std::uint64_t rank = group.rank(); rank < collective.ranks; rank += group.size())
            if (rank != collective.rank) {
                const std::uint64_t ring = ring_in(inbox_of(collective, rank), collective, share.ring);
                store(taken_in(ring, collective.rank), run.end, relaxed, system);
            }
    return {ok, run.number, 0};
}

// Waits until all others have taken what is before `position`.
template <class Group>
MP_COLD WaitResult hear_taken(Group group, std::uint64_t memory, const WaitBounds bounds, std::uint64_t number, std::uint64_t position) {
    const Collective& collective = at<const CollectiveState>(memory)->collective;
    RingState* state = state_of(collective, number);
    const std::uint64_t run = state->runs, ring = ring_in(inbox_of(collective, collective.rank), collective, number);
    WaitResult result = {ok, run, 0};
    for (std::uint64_t rank = group.rank(); rank < collective.ranks && !result.failed(); rank += group.size())
        if (rank != collective.rank) result = wait_alone(taken_in(ring, rank), position, bounds, relaxed);
    if (group.any_uniform(result.failed())) return failed_apart(group, collective.report, run, result);
    if (group.leads()) state->heard = position;
    return {ok, run, 0};
}

// Word `i` of the share of the block that `rank` gets, if it is so long.
template <class T>
MP_DEVICE void send_word(const Collective& collective, const Blocks& gives, std::uint64_t rank, std::uint64_t i, const RingShare& share,
                         const RingRun& run) {
    const BlockAt block = block_of(gives, rank);
    const std::uint64_t first = 8 * (share.first + i);
    if (first >= block.bytes) return;
    Packet* packet = packet_of(collective, rank, collective.rank, share, run.position + i);
    store_packet(packet, {load_of<T>(block.address + first, block.bytes - first), run.number});
}

// Ranks whose packets are looked at at once.
constexpr std::uint32_t ranks_at_once = 4;

// One thread's wait for word `i` of a share from rank `rank` and those behind it, at most `ranks_at_once` and before `end`; but not from this
// one.
MP_DEVICE WaitResult take_words(const Collective& collective, std::uint32_t rank, std::uint32_t end, const RingShare& share, const RingRun& run,
                                std::uint32_t i, std::uint64_t (&words)[ranks_at_once]) {
    const auto me = static_cast<std::uint32_t>(collective.rank);
    const Packet* slots[ranks_at_once] = {};
    MP_UNROLL
    for (std::uint32_t k = 0; k < ranks_at_once; ++k) {
        if (rank + k >= end || rank + k == me) continue;
        slots[k] = packet_of(collective, me, rank + k, share, run.position + i);
        keep(slots[k]);
    }
    const auto look = [&] {
        bool missing = false;
        MP_UNROLL
        for (std::uint32_t k = 0; k < ranks_at_once; ++k) {
            if (slots[k] == nullptr) continue;
            const Packet packet = load_packet(slots[k]);
            missing |= packet.epoch != run.number;
            words[k] = packet.data;
        }
        return !missing;
    };
    const auto wait_each = [&] {
        WaitResult result = {ok, run.number, 0};
        MP_NO_UNROLL
        for (std::uint32_t from = rank; !result.failed() && from < end && from - rank < ranks_at_once; ++from) {
            std::uint64_t word = 0;
            if (from == me) continue;
            result = wait_packet(packet_of(collective, me, from, share, run.position + i), run.number, word, bounds_of(collective));
        }
        return result;
    };
    return wait_together(look, wait_each, run.number);
}

// One thread's combination of word `i` of a share, of ranks `first` to before `end`; `own`: this one's. Valid if all have come. In a kernel
// of the user's one rank after the other: the operation is known, and what is next is near.
template <class Take>
MP_DEVICE std::uint64_t combine_of_ranks(const Collective& collective, std::uint32_t first, std::uint32_t end, const RingShare& share,
                                         const RingRun& run, std::uint32_t i, std::uint64_t own, const Take& take, WaitResult& result) {
    const auto me = static_cast<std::uint32_t>(collective.rank);
    std::uint64_t combined = 0;
    MP_NO_UNROLL
    for (std::uint32_t rank = first; rank < end && !result.failed(); ++rank) {
        std::uint64_t word = own;
        if (rank != me) result = wait_packet(packet_of(collective, me, rank, share, run.position + i), run.number, word, bounds_of(collective));
        combined = rank == first ? word : take(combined, word);
    }
    return combined;
}
// In a stream's kernel several at once, of which many threads wait for many words; the operation is chosen once for them.
MP_DEVICE std::uint64_t combine_of_ranks(const Collective& collective, std::uint32_t first, std::uint32_t end, const RingShare& share,
                                         const RingRun& run, std::uint32_t i, std::uint64_t own, const AnyCombine& take, WaitResult& result) {
    std::uint64_t combined = 0;
    MP_NO_UNROLL
    for (std::uint32_t rank = first; rank < end && !result.failed(); rank += ranks_at_once) {
        std::uint64_t words[ranks_at_once];
        MP_UNROLL
        for (std::uint64_t& word : words) word = own;
        result = take_words(collective, rank, end, share, run, i, words);
        with_combine(take.element, take.reduction, [&](auto chosen) {
            if (rank == first) combined = words[0];
            MP_UNROLL
            for (std::uint32_t k = 0; k < ranks_at_once; ++k)
                if (rank + k > first && rank + k < end) combined = chosen(combined, words[k]);
        });
    }
    return combined;
}

// The share of blocks that goes by one number's rings: at least one word of the longest, and at most `len`.
template <class Group, class Take>
MP_DEVICE WaitResult run_by_packets(Group group, const Collective& collective, const Blocks& gives, const Blocks& takes,
                                    const RingShare& share, const Take& take) {
    using T = typename Take::Element;
    const RingState* state = state_of(collective, share.ring);
    const std::uint64_t me = collective.rank, ranks = collective.ranks, words = share.words;
    // What is placed has a thread for each word of each rank, what is combined one for a word of all.
    const auto of = static_cast<std::uint32_t>(ranks), all = static_cast<std::uint32_t>(Take::places ? words * ranks : words);
    group.sync();
    const RingRun run = {state->runs + 1, state->position, state->position + words};
    WaitResult result = {ok, run.number, 0};
    if (MP_RARELY(run.end > state->heard + collective.ring)) {
        result = hear_taken(group, collective.state, bounds_of(collective), share.ring, run.end - collective.ring);
        if (result.failed()) return result;
    }
    if constexpr (Take::places) {
        for (std::uint32_t i = group.rank(); i < all; i += group.size())
            if (i % of != me) send_word<T>(collective, gives, i % of, i / of, share, run);
    } else {
        // Through the ranks in loops, not one behind the other: a stream's kernel runs each instruction once, and has to fetch it first.
        MP_NO_UNROLL
        for (std::uint32_t i = group.rank(); i < all; i += group.size()) {
            MP_NO_UNROLL
            for (std::uint32_t rank = 0; rank < of; ++rank)
                if (rank != me) send_word<T>(collective, gives, rank, i, share, run);
        }
    }
    // Worked out while packets are on their way.
    const bool together = is_of_all(takes, ranks, 8 * share.first) && is_of_all(gives, ranks, 8 * share.first);
    if constexpr (Take::places) {
        // What a thread overwrites it has sent.
        for (std::uint32_t i = group.rank(); i < all && !result.failed(); i += group.size()) {
            const std::uint64_t rank = i % of, first = 8 * (share.first + i / of);
            const BlockAt to = block_of(takes, rank);
            if (first >= to.bytes) continue;
            std::uint64_t word = 0;
            if (rank == me) {
                const std::uint64_t own = block_of(gives, me).address;
                if (own == to.address) continue;
                word = load_of<T>(own + first, to.bytes - first);
            } else {
                result = wait_packet(packet_of(collective, me, rank, share, run.position + i / of), run.number, word, bounds_of(collective));
            }
            if (!result.failed()) store_at<T>(to.address + first, to.bytes - first, word);
        }
    } else {
        // What is combined is one block.
        const std::uint64_t taken = takes.first < takes.end ? takes.bytes : 0;
        MP_NO_UNROLL
        for (std::uint32_t i = group.rank(); i < all && 8 * (share.first + i) < taken && !result.failed(); i += group.size()) {
            const std::uint64_t first = 8 * (share.first + i), left = taken - first;
            const std::uint64_t own = load_of<T>(block_of(gives, me).address + first, left);
            const std::uint64_t combined = combine_of_ranks(collective, takes.first, takes.end, share, run, i, own, take, result);
            if (!result.failed()) store_at<T>(takes.memory + first, left, combined);
        }
    }
    return end_of_run(group, collective, share, run, together, result);
}

// Words of blocks of at most `most` bytes; without bytes there is one.
MP_DEVICE std::uint64_t words_of(std::uint64_t most) { return most == 0 ? 1 : (most - 1) / 8 + 1; }

// The share of blocks of so many words that goes by the rings of one number, none if they are not needed: as few rings as carry them, or more,
// so that the blocks of threads have as much to do.
MP_DEVICE RingShare share_of(const Collective& collective, std::uint64_t words, std::uint64_t ring) {
    std::uint64_t each = words;
    if (words > collective.len) {
        each = (words - 1) / collective.rings + 1;
        if (each < least_share) each = least_share;
    }
    const std::uint64_t first = ring * each, left = first < words ? words - first : 0;
    return {ring, first, left < each ? left : each};
}

// Blocks of at most `most` bytes on any rank by as many rings as carry them; `part` of these.
template <class Group, class Take>
MP_DEVICE WaitResult run_by_rings(Group group, const Collective& collective, const Blocks& gives, const Blocks& takes, std::uint64_t most,
                                  const Take& take, const Part& part) {
    WaitResult result = {ok, 0, 0};
    MP_NO_UNROLL
    for (std::uint64_t ring = part.index; !result.failed(); ring += part.count) {
        const RingShare share = share_of(collective, words_of(most), ring);
        if (share.words == 0) break;
        result = run_by_packets(group, collective, gives, takes, share, take);
    }
    return result;
}

// ---- lanes ------------------------------------------------------------------------------------------------------

// A step takes what was sent so many steps before: what is on its way meanwhile is nobody's wait. More steps are more rounds in which a block
// of threads only gives or only takes: with two an all-reduce of 64 MiB takes four H200 3 % longer.
constexpr std::uint64_t lane_lag = 1;
static_assert(lane_lag < lane_slots, "a slot is free again when its turn comes");

// Behind the rings of an inbox: the words, by lane and the rank that writes them.
MP_DEVICE std::uint64_t lanes_in(std::uint64_t inbox, const Collective& collective) {
    return ring_in(inbox, collective, collective.rings);
}
MP_DEVICE std::uint64_t* lane_word(std::uint64_t inbox, const Collective& collective, std::uint64_t lane, std::uint64_t from) {
    return at<std::uint64_t>(lanes_in(inbox, collective) + (lane * collective.ranks + from) * lane_stride);
}
// Behind them the slots, by lane and the rank that writes them, which is not `to`.
MP_DEVICE std::uint64_t lane_slot(std::uint64_t inbox, const Collective& collective, std::uint64_t lane, std::uint64_t from,
                                  std::uint64_t to, std::uint32_t number) {
    const std::uint64_t pair = lane * (collective.ranks - 1) + (from - (from > to));
    const std::uint64_t slot = pair * lane_slots + number % lane_slots;
    return lanes_in(inbox, collective) + collective.lanes * collective.ranks * lane_stride + slot * collective.piece;
}
MP_DEVICE LaneCounters& counters_of(const Collective& collective, std::uint64_t lane, std::uint64_t rank) {
    return at<LaneCounters>(collective.counters)[lane * collective.ranks + rank];
}

// Bytes of the pieces of a run whose largest block has `most` bytes on any rank: as large as there is room for, or less, so that
// all lanes have as much to do.
MP_DEVICE std::uint64_t piece_for(const Collective& collective, std::uint64_t most) {
    const std::uint64_t round = collective.lanes * collective.piece, rounds = most == 0 ? 1 : (most - 1) / round + 1;
    const std::uint64_t share = most == 0 ? 0 : (most - 1) / (rounds * collective.lanes) + 1;
    const std::uint64_t piece = (share + least_piece - 1) / least_piece * least_piece;
    return piece == 0 || piece > collective.piece ? collective.piece : piece;
}

// The part of a block from byte `first` on that is one piece.
MP_DEVICE BlockAt piece_of(const BlockAt& block, std::uint64_t first, std::uint64_t piece) {
    const std::uint64_t left = first < block.bytes ? block.bytes - first : 0;
    return {block.address + first, left < piece ? left : piece};
}

// One thread's wait for a rank's word: until it has freed a slot if there is something to `send`, and sent a piece if there is
// something to `take`.
MP_DEVICE WaitResult wait_lane(const std::uint64_t* word, const LaneCounters& counters, bool send, bool take,
                               const WaitBounds& bounds) {
    const std::uint32_t freed = counters.sent + 1 - lane_slots, sent = counters.taken + 1;
    const auto poll = [&](std::uint64_t& seen) {
        seen = load(word, acquire, system);
        const auto has_sent = static_cast<std::uint32_t>(seen), has_freed = static_cast<std::uint32_t>(seen >> 32);
        return (!send || static_cast<std::int32_t>(has_freed - freed) >= 0) && (!take || static_cast<std::int32_t>(has_sent - sent) >= 0);
    };
    return wait_for(poll, bounds);
}

// Where the pieces of the ranks are that are taken: this rank's own where it gives it from, the others' in a lane or in rows.
struct Sources {
    const Collective* collective;
    std::uint64_t own;
    std::uint64_t inbox;  // of the lane; 0: rows
    std::uint64_t lane;
    std::uint64_t rows;

    MP_DEVICE std::uint64_t of(std::uint64_t rank) const {
        if (rank == collective->rank) return own;
        if (inbox == 0) return rows + rank * collective->len * 8;
        return lane_slot(inbox, *collective, lane, rank, collective->rank, counters_of(*collective, lane, rank).taken);
    }
};

// Combines words with those of the next rank. An operation that is known when the kernel runs is chosen once for all of them.
template <int count, class Take>
MP_DEVICE void combine_words(std::uint64_t (&combined)[count], const std::uint64_t (&theirs)[count], const Take& take) {
    MP_UNROLL
    for (int k = 0; k < count; ++k) combined[k] = take(combined[k], theirs[k]);
}
template <int count>
MP_DEVICE void combine_words(std::uint64_t (&combined)[count], const std::uint64_t (&theirs)[count], const AnyCombine& take) {
    with_combine(take.element, take.reduction, [&](auto chosen) { combine_words(combined, theirs, chosen); });
}

// Combines `flight` times 16 bytes a thread of ranks `first` to before `end`, from `i` on in rounds; where it stopped.
// The next rank's are loaded while one's are combined.
template <int flight, class Group, class Take>
MP_DEVICE std::uint64_t combine_rounds(Group group, Wide* to, std::uint64_t count, std::uint64_t i, std::uint32_t first,
                                       std::uint32_t end, const Sources& sources, const Take& take) {
    const std::uint64_t stride = group.size();
    for (; i + (flight - 1) * stride < count; i += flight * stride) {
        const auto load = [&](std::uint32_t rank, std::uint64_t (&words)[2 * flight]) {
            const auto* from = at<const Wide>(sources.of(rank));
            MP_UNROLL
            for (int k = 0; k < flight; ++k) {
                const Wide wide = from[i + k * stride];
                words[2 * k] = wide.words[0];
                words[2 * k + 1] = wide.words[1];
            }
        };
        std::uint64_t combined[2 * flight], theirs[2 * flight];
        load(first, combined);
        if (first + 1 < end) load(first + 1, theirs);
        for (std::uint32_t rank = first + 1; rank < end; ++rank) {
            std::uint64_t next[2 * flight] = {};
            if (rank + 1 < end) load(rank + 1, next);
            combine_words(combined, theirs, take);
            MP_UNROLL
            for (int k = 0; k < 2 * flight; ++k) theirs[k] = next[k];
        }
        MP_UNROLL
        for (int k = 0; k < flight; ++k) to[i + k * stride] = {{combined[2 * k], combined[2 * k + 1]}};
    }
    return i;
}

// Combines `bytes` bytes of the ranks into `to`, in rank order.
template <class Group, class Take>
MP_COLD void combine_pieces(Group group, std::uint64_t to, std::uint64_t bytes, std::uint32_t first, std::uint32_t end,
                            const Sources& sources, const Take take) {
    using T = typename Take::Element;
    std::uint64_t done = 0;
    if ((to | sources.own) % sizeof(Wide) == 0) {
        const std::uint64_t count = bytes / sizeof(Wide);
        const std::uint64_t i = combine_rounds<copies_in_flight>(group, at<Wide>(to), count, group.rank(), first, end, sources, take);
        (void)combine_rounds<1>(group, at<Wide>(to), count, i, first, end, sources, take);
        done = count * sizeof(Wide);
    }
    for (std::uint64_t i = done + 8 * group.rank(); i < bytes; i += std::uint64_t{8} * group.size()) {
        std::uint64_t combined = 0;
        for (std::uint32_t rank = first; rank < end; ++rank) {
            const std::uint64_t word = load_of<T>(sources.of(rank) + i, bytes - i);
            combined = rank == first ? word : take(combined, word);
        }
        store_at<T>(to + i, bytes - i, combined);
    }
}

// Takes the bytes from `first` on of all blocks, at most `most` of each.
template <class Group, class Take>
MP_DEVICE void take_pieces(Group group, const Blocks& takes, std::uint64_t first, std::uint64_t most, const Sources& sources,
                           const Take& take) {
    const auto bytes_of = [first, most](const BlockAt& block) {
        const std::uint64_t left = first < block.bytes ? block.bytes - first : 0;
        return left < most ? left : most;
    };
    if constexpr (Take::places) {
        for (std::uint32_t rank = takes.first; rank < takes.end; ++rank) {
            const BlockAt to = block_of(takes, rank);
            const std::uint64_t bytes = bytes_of(to), from = bytes != 0 ? sources.of(rank) : 0;
            if (bytes != 0 && to.address + first != from) copy(group, at<void>(to.address + first), at<const void>(from), bytes);
        }
    } else if (takes.first < takes.end) {
        const std::uint64_t bytes = bytes_of(block_of(takes, takes.first));
        if (bytes != 0) combine_pieces(group, takes.memory + first, bytes, takes.first, takes.end, sources, take);
    }
}

template <class Group, class Take>
MP_DEVICE WaitResult run_lane(Group group, const Collective& collective, const WaitBounds& bounds, const Blocks& gives,
                              const Blocks& takes, std::uint64_t most_given, std::uint64_t most_taken, std::uint64_t piece,
                              std::uint64_t lane, const Take& take) {
    const std::uint64_t me = collective.rank, ranks = collective.ranks;
    const auto* inboxes = at<const std::uint64_t>(collective.inboxes);
    const std::uint64_t stride = collective.lanes * piece;
    for (std::uint64_t step = 0;; ++step) {
        const std::uint64_t given = lane * piece + step * stride;
        // Wraps before the lag is over.
        const bool lagged = step >= lane_lag;
        const std::uint64_t taken = lagged ? given - lane_lag * stride : 0;
        if (given >= most_given && (lagged ? taken : lane * piece) >= most_taken) return {ok, 0, 0};
        const auto gives_now = [&](std::uint64_t rank) { return piece_of(block_of(gives, rank), given, piece); };
        const auto takes_now = [&](std::uint64_t rank) { return lagged && piece_of(block_of(takes, rank), taken, piece).bytes != 0; };
        WaitResult result = {ok, 0, 0};
        for (std::uint64_t rank = group.rank(); rank < ranks && !result.failed(); rank += group.size()) {
            const bool gets = gives_now(rank).bytes != 0;
            if (rank != me && (gets || takes_now(rank)))
                result = wait_lane(lane_word(inboxes[me], collective, lane, rank), counters_of(collective, lane, rank), gets, takes_now(rank), bounds);
        }
        if (group.any_uniform(result.failed())) return failed_apart(group, collective.report, step, result);
        // Each rank and lane begins with another one, or all ranks would write to the same at a time: a fifth of the bandwidth of four.
        const auto others = static_cast<std::uint32_t>(ranks - 1), begin = static_cast<std::uint32_t>(lane);
        for (std::uint32_t turn = 0; turn < others; ++turn) {
            const std::uint64_t next = me + 1 + (begin + turn) % others, rank = next < ranks ? next : next - ranks;
            const BlockAt given_now = gives_now(rank);
            if (given_now.bytes == 0) continue;
            const std::uint64_t slot = lane_slot(inboxes[rank], collective, lane, me, rank, counters_of(collective, lane, rank).sent);
            copy(group, at<void>(slot), at<const void>(given_now.address), given_now.bytes);
        }
        if (lagged) {
            const Sources sources = {&collective, block_of(gives, me).address + taken, inboxes[me], lane, 0};
            take_pieces(group, takes, taken, piece, sources, take);
        }
        group.sync();
        for (std::uint64_t rank = group.rank(); rank < ranks; rank += group.size()) {
            const bool sent = gives_now(rank).bytes != 0, took = takes_now(rank);
            if (rank == me || (!sent && !took)) continue;
            LaneCounters& counters = counters_of(collective, lane, rank);
            counters.sent += sent;
            counters.taken += took;
            const std::uint64_t word = counters.sent | std::uint64_t{counters.taken} << 32;
            store(lane_word(inboxes[rank], collective, lane, me), word, release, system);
        }
    }
}

// Blocks of any size, of which the largest has `most` bytes on any rank, by lanes; `part` of them.
template <class Group, class Take>
MP_COLD WaitResult run_by_lanes(Group group, std::uint64_t state, const WaitBounds bounds, const Blocks gives, const Blocks takes,
                                std::uint64_t most, const Take take, const Part part) {
    const Collective& collective = at<const CollectiveState>(state)->collective;
    const std::uint64_t most_given = most_of(gives, collective.ranks), most_taken = most_of(takes, collective.ranks);
    const std::uint64_t here = most_given < most_taken ? most_taken : most_given, piece = piece_for(collective, most);
    WaitResult result = {ok, 0, 0};
    group.sync();
    for (std::uint64_t lane = part.index; lane < collective.lanes && lane * piece < here && !result.failed(); lane += part.count)
        result = run_lane(group, collective, bounds, gives, takes, most_given, most_taken, piece, lane, take);
    group.sync();
    return result;
}

// Blocks of which the largest has `most` bytes on any rank: by rings, if they carry them, else by lanes.
template <class Group, class Take>
MP_COLD WaitResult run_by_shares(Group group, std::uint64_t state, const WaitBounds bounds, const Blocks gives, const Blocks takes,
                                 std::uint64_t most, const Take take, const Part part) {
    const Collective& collective = at<const CollectiveState>(state)->collective;
    if (words_of(most) <= collective.rings * collective.len) return run_by_rings(group, collective, gives, takes, most, take, part);
    return run_by_lanes(group, state, bounds, gives, takes, most, take, part);
}

}  // namespace impl
}  // namespace mp
