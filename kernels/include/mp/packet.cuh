// Messages as packets: 12 bytes of data and the low 32 bits of the epoch in one 16-byte store. Data that carries its own
// epoch needs no fence before a flag, which over NVLink costs a round trip; it costs a third more bytes instead. The
// inner format of small messages; who may overwrite a slot, and when, its caller arranges. A slot is written once in every
// few epochs, so what it held before is never 2^32 epochs old unless it was never written: epoch 0 is nobody's.
#pragma once

#include "copy.cuh"
#include "signal.cuh"

namespace mp {

static_assert(sizeof(Packet) == packet_size);

// Packets of a message of `bytes` bytes, which are less than 2^32: a division by 32 bits takes a few instructions, one by 64
// tens of them, on the way of every message. One without bytes is one packet.
MP_HOST_DEVICE std::uint32_t packets_of(std::uint64_t bytes) {
    const auto count = static_cast<std::uint32_t>(bytes);
    return count == 0 ? 1 : (count - 1) / packet_bytes + 1;
}

namespace impl {

// Twelve bytes of a message; as a packet the last word shares 64 bits with the epoch.
struct Piece {
    std::uint32_t words[3];
};
MP_DEVICE Packet packet_with(const Piece& piece, std::uint64_t epoch) {
    return {piece.words[0] | std::uint64_t{piece.words[1]} << 32,
            static_cast<std::uint32_t>(epoch) | std::uint64_t{piece.words[2]} << 32};
}
MP_DEVICE Piece piece_in(const Packet& packet) {
    return {{static_cast<std::uint32_t>(packet.data), static_cast<std::uint32_t>(packet.data >> 32),
             static_cast<std::uint32_t>(packet.epoch >> 32)}};
}
MP_DEVICE bool is_of(const Packet& packet, std::uint64_t epoch) {
    return static_cast<std::uint32_t>(packet.epoch) == static_cast<std::uint32_t>(epoch);
}
// The epoch of a packet that was found instead of `expected`: the last one before it with these bits.
MP_DEVICE std::uint64_t epoch_of(const Packet& packet, std::uint64_t expected) {
    const auto behind = static_cast<std::uint32_t>(expected) - static_cast<std::uint32_t>(packet.epoch);
    return behind > expected ? 0 : expected - behind;
}

// So many pieces of a message are moved word by word, the rest byte by byte.
MP_DEVICE std::uint32_t pieces_in_words(const void* memory, std::uint32_t bytes) {
    if (address_of(memory) % 4 != 0) return 0;
    return bytes % 4 == 0 ? packets_of(bytes) : bytes / packet_bytes;
}

// Piece `index` of a message, the last one filled up with zeros.
MP_DEVICE Piece piece_of(const void* from, std::uint32_t bytes, std::uint32_t index) {
    const auto* words = static_cast<const std::uint32_t*>(from) + 3 * index;
    const std::uint32_t left = bytes - packet_bytes * index;
    return {{left > 0 ? words[0] : 0, left > 4 ? words[1] : 0, left > 8 ? words[2] : 0}};
}
MP_DEVICE void set_piece(void* to, std::uint32_t bytes, std::uint32_t index, const Piece& piece) {
    auto* words = static_cast<std::uint32_t*>(to) + 3 * index;
    const std::uint32_t left = bytes - packet_bytes * index;
    if (left > 0) words[0] = piece.words[0];
    if (left > 4) words[1] = piece.words[1];
    if (left > 8) words[2] = piece.words[2];
}

// The same, byte by byte.
MP_COLD Piece piece_of_bytes(const void* from, std::uint32_t bytes, std::uint32_t index) {
    const std::uint32_t at = packet_bytes * index;
    Piece piece = {};
    for (std::uint32_t i = 0; i < packet_bytes && at + i < bytes; ++i)
        piece.words[i / 4] |= std::uint32_t{static_cast<const unsigned char*>(from)[at + i]} << (8 * (i % 4));
    return piece;
}
MP_COLD void set_bytes(void* to, std::uint32_t bytes, std::uint32_t index, const Piece piece) {
    const std::uint32_t at = packet_bytes * index;
    for (std::uint32_t i = 0; i < packet_bytes && at + i < bytes; ++i)
        static_cast<unsigned char*>(to)[at + i] = static_cast<unsigned char>(piece.words[i / 4] >> (8 * (i % 4)));
}

// One thread's wait for a packet that `is` what it waits for. `packet` is the last one found: after a failure `seen_in`
// says which epoch it has, which is not on the way of a packet that comes.
template <class Is, class SeenIn>
MP_DEVICE WaitResult wait_slot(const Packet* slot, const Is& is, const SeenIn& seen_in, Packet& packet,
                               const WaitBounds& bounds) {
    const auto look = [slot] { return load_packet(slot); };
    const auto found = wait_until(look, look, is, bounds);
    packet = found.seen;
    WaitResult result = {found.status, 0, found.waited_ns};
    if (result.failed()) result.seen = seen_in(packet);
    return result;
}

// One thread's wait for a packet with all 64 bits of the epoch. `data` is valid after ok.
MP_DEVICE WaitResult wait_packet(const Packet* slot, std::uint64_t epoch, std::uint64_t& data,
                                 const WaitBounds& bounds) {
    Packet packet = {};
    const WaitResult result = wait_slot(
        slot, [epoch](const Packet& found) { return found.epoch == epoch; },
        [](const Packet& found) { return found.epoch; }, packet, bounds);
    data = packet.data;
    return result;
}

// One thread's wait for a packet of a message. Out of line, since who calls it has waited for a while.
MP_COLD WaitResult wait_message(const Packet* slot, std::uint64_t epoch, const WaitBounds bounds) {
    Packet packet = {};
    return wait_slot(
        slot, [epoch](const Packet& found) { return is_of(found, epoch); },
        [epoch](const Packet& found) { return epoch_of(found, epoch); }, packet, bounds);
}

// A thread's part of messages of which no thread of the group has more than two pieces, its rank's and the one a group further,
// all in whole words. What there is of it is worked out once, and the rest before what is waited for, so that nothing of it is
// on the way of a packet.
struct Share {
    // Bytes of the message from the thread's first piece on, and from one of its pieces to the next; `far` if no thread has two.
    std::int32_t bytes;
    std::int32_t apart;

    // The message does not go in shares; there is no piece for this thread.
    static constexpr std::int32_t no_shares = -2;
    static constexpr std::int32_t no_piece = -1;
    static constexpr std::int32_t far = 0x7fffffff;

    template <class Group>
    MP_DEVICE Share(Group group, bool as_packets, std::uint64_t memory, std::uint64_t len) {
        const std::uint32_t count = packets_of(len);
        const std::uint32_t left = static_cast<std::uint32_t>(len) - packet_bytes * group.rank();
        bytes = group.rank() < count ? static_cast<std::int32_t>(left) : no_piece;
        if (!as_packets || (memory | len) % 4 != 0 || count > packets_a_thread * group.size()) bytes = no_shares;
        apart = count > group.size() ? static_cast<std::int32_t>(packet_bytes * group.size()) : far;
        keep(bytes);
        keep(apart);
    }

    // The same in all threads of the group.
    MP_DEVICE bool serves() const { return bytes != no_shares; }

    // The thread's first piece in a message's memory.
    template <class Group>
    MP_DEVICE static std::uint32_t* words_of(Group group, std::uint64_t memory) {
        auto* words = reinterpret_cast<std::uint32_t*>(memory) + packet_bytes / 4 * group.rank();
        keep(words);
        return words;
    }

    // A packet for each of the thread's pieces: the first to `slot`, the next a group further.
    template <class Group>
    MP_DEVICE void store_packets(Group group, Packet* slot, const std::uint32_t* words, std::uint64_t epoch) const {
        is_one() ? store_some<1>(group, slot, words, epoch) : store_some<packets_a_thread>(group, slot, words, epoch);
    }

    // Waits a while for the packets of the thread's pieces; false if one has not come. Otherwise the pieces are written.
    template <class Group>
    MP_DEVICE bool take_packets(Group group, const Packet* slot, std::uint32_t* words, std::uint64_t epoch) const {
        return is_one() ? take_some<1>(group, slot, words, epoch) : take_some<packets_a_thread>(group, slot, words, epoch);
    }

private:
    MP_DEVICE bool is_one() const { return apart == far; }
    // The empty message has a first piece, too.
    MP_DEVICE bool has_piece(std::uint32_t k) const { return k == 0 ? bytes >= 0 : bytes > apart; }

    // All are loaded before the first is on its way.
    template <std::uint32_t most, class Group>
    MP_DEVICE void store_some(Group group, Packet* slot, const std::uint32_t* words, std::uint64_t epoch) const {
        Piece found[most];
        bool has[most];
        MP_UNROLL
        for (std::uint32_t k = 0; k < most; ++k) {
            has[k] = has_piece(k);
            if (has[k]) found[k] = load(words, k);
        }
        MP_UNROLL
        for (std::uint32_t k = 0; k < most; ++k)
            if (has[k]) store_packet(slot + k * group.size(), packet_with(found[k], epoch));
    }

    template <std::uint32_t most, class Group>
    MP_DEVICE bool take_some(Group group, const Packet* slot, std::uint32_t* words, std::uint64_t epoch) const {
        bool missing = has_piece(0);
        for (int polled = 0; missing && polled < polls_of_shares; ++polled) {
            Packet packets[most];
            MP_UNROLL
            for (std::uint32_t k = 0; k < most; ++k)
                packets[k] = k == 0 || has_piece(k) ? load_packet(slot + k * group.size()) : Packet{0, epoch};
            missing = false;
            MP_UNROLL
            for (std::uint32_t k = 0; k < most; ++k) missing |= !is_of(packets[k], epoch);
            if (missing) {
                pause();
            } else {
                MP_UNROLL
                for (std::uint32_t k = 0; k < most; ++k)
                    if (k == 0 || has_piece(k)) store(words, k, piece_in(packets[k]));
            }
        }
        return !missing;
    }

    MP_DEVICE std::int32_t left(std::uint32_t k) const { return k == 0 ? bytes : bytes - apart; }
    MP_DEVICE Piece load(const std::uint32_t* words, std::uint32_t k) const {
        const std::uint32_t* from = words + k * static_cast<std::uint32_t>(apart) / 4;
        return {{left(k) > 0 ? from[0] : 0, left(k) > 4 ? from[1] : 0, left(k) > 8 ? from[2] : 0}};
    }
    MP_DEVICE void store(std::uint32_t* words, std::uint32_t k, const Piece& piece) const {
        std::uint32_t* to = words + k * static_cast<std::uint32_t>(apart) / 4;
        if (left(k) > 0) to[0] = piece.words[0];
        if (left(k) > 4) to[1] = piece.words[1];
        if (left(k) > 8) to[2] = piece.words[2];
    }
};

// Packets of a thread that are on their way at once.
constexpr std::uint32_t packets_in_flight = 4;

// Looks at several packets at once for a while, then waits for one after another, and again until a look finds all there. Both are told by the
// caller: whether all are, and how its waits ended. They stay when they have come.
template <class Look, class Wait>
MP_DEVICE WaitResult wait_together(const Look& look, const Wait& wait_each, std::uint64_t epoch) {
    for (;;) {
        MP_NO_UNROLL
        for (int polled = 0; polled < polls_of_shares; ++polled) {
            if (look()) return {ok, epoch, 0};
            pause();
        }
        const WaitResult result = wait_each();
        if (result.failed()) return result;
    }
}

// A thread's packets `first`, `first + stride` … of `count`, as many as there are and at most packets_in_flight: waits for them.
// Their pieces are valid after ok.
MP_DEVICE WaitResult wait_pieces(const Packet* slots, std::uint32_t first, std::uint32_t stride, std::uint32_t count,
                                 std::uint64_t epoch, Piece (&pieces)[packets_in_flight], const WaitBounds& bounds) {
    const auto look = [&] {
        Packet packets[packets_in_flight];
        MP_UNROLL
        for (std::uint32_t k = 0; k < packets_in_flight; ++k)
            packets[k] = first + k * stride < count ? load_packet(slots + first + k * stride) : Packet{0, epoch};
        bool missing = false;
        MP_UNROLL
        for (std::uint32_t k = 0; k < packets_in_flight; ++k) {
            missing |= !is_of(packets[k], epoch);
            pieces[k] = piece_in(packets[k]);
        }
        return !missing;
    };
    // They stay until their slot is free, and are loaded again, so that no piece is kept meanwhile.
    const auto wait_each = [&] {
        WaitResult result = {ok, epoch, 0};
        for (std::uint32_t i = first; !result.failed() && i < count && i <= first + (packets_in_flight - 1) * stride; i += stride)
            result = wait_message(slots + i, epoch, bounds);
        return result;
    };
    return wait_together(look, wait_each, epoch);
}

}  // namespace impl

// Writes a message as packets of `epoch`, the threads of the group one packet each in turn. Relaxed at system scope:
// whoever sees the epoch in a packet has its data and knows nothing of other packets.
template <class Group>
MP_DEVICE void store_packets(Group group, Packet* slots, const void* from, std::uint64_t bytes, std::uint64_t epoch) {
    using namespace impl;
    const std::uint32_t count = packets_of(bytes), stride = group.size(), length = static_cast<std::uint32_t>(bytes);
    const std::uint32_t in_words = pieces_in_words(from, length);
    for (std::uint32_t i = group.rank(); i < in_words; i += packets_in_flight * stride) {
        Piece pieces[packets_in_flight];
        MP_UNROLL
        for (std::uint32_t k = 0; k < packets_in_flight; ++k)
            if (i + k * stride < in_words) pieces[k] = piece_of(from, length, i + k * stride);
        MP_UNROLL
        for (std::uint32_t k = 0; k < packets_in_flight; ++k)
            if (i + k * stride < in_words) store_packet(slots + i + k * stride, packet_with(pieces[k], epoch));
    }
    for (std::uint32_t i = in_words + group.rank(); i < count; i += stride)
        store_packet(slots + i, packet_with(piece_of_bytes(from, length, i), epoch));
}

// Waits for all packets of `epoch` and writes the message to `to`, each thread its own packets, a few at a time. The result is
// this thread's; a vote of the group is the caller's. After ok of all threads and a barrier the message is there for the group.
template <class Group>
MP_DEVICE WaitResult load_packets(Group group, const Packet* slots, void* to, std::uint64_t bytes, std::uint64_t epoch,
                                  const WaitBounds& bounds) {
    using namespace impl;
    const std::uint32_t count = packets_of(bytes), stride = group.size(), length = static_cast<std::uint32_t>(bytes);
    const std::uint32_t in_words = pieces_in_words(to, length);
    for (std::uint32_t i = group.rank(); i < in_words; i += packets_in_flight * stride) {
        Piece pieces[packets_in_flight];
        const WaitResult result = wait_pieces(slots, i, stride, in_words, epoch, pieces, bounds);
        if (result.failed()) return result;
        MP_UNROLL
        for (std::uint32_t k = 0; k < packets_in_flight; ++k)
            if (i + k * stride < in_words) set_piece(to, length, i + k * stride, pieces[k]);
    }
    for (std::uint32_t i = in_words + group.rank(); i < count; i += stride) {
        const WaitResult result = wait_message(slots + i, epoch, bounds);
        if (result.failed()) return result;
        set_bytes(to, length, i, piece_in(load_packet(slots + i)));
    }
    return {ok, epoch, 0};
}

}  // namespace mp
