// Messages as packets: 8 bytes of data and the epoch in one 16-byte store. Data that carries its own epoch needs no fence
// before a flag, which over NVLink costs a round trip; it costs twice the bytes instead. The inner format of small
// messages and of collectives; who may overwrite a slot, and when, its caller arranges.
#pragma once

#include "copy.cuh"
#include "signal.cuh"

namespace mp {

// Packets of a message of `bytes` bytes; one without bytes is one packet.
MP_HOST_DEVICE std::uint64_t packets_of(std::uint64_t bytes) { return bytes == 0 ? 1 : (bytes + 7) / 8; }

namespace impl {

// Bytes 8·index … of a message, the last ones filled up with zeros.
MP_DEVICE std::uint64_t word_of(const void* from, std::uint64_t bytes, std::uint64_t index) {
    const std::uint64_t at = 8 * index;
    if (at + 8 <= bytes && address_of(from) % 8 == 0) return static_cast<const std::uint64_t*>(from)[index];
    std::uint64_t word = 0;
    for (std::uint64_t i = 0; i < 8 && at + i < bytes; ++i)
        word |= std::uint64_t{static_cast<const unsigned char*>(from)[at + i]} << (8 * i);
    return word;
}

MP_DEVICE void set_word(void* to, std::uint64_t bytes, std::uint64_t index, std::uint64_t word) {
    const std::uint64_t at = 8 * index;
    if (at + 8 <= bytes && address_of(to) % 8 == 0) {
        static_cast<std::uint64_t*>(to)[index] = word;
        return;
    }
    for (std::uint64_t i = 0; i < 8 && at + i < bytes; ++i)
        static_cast<unsigned char*>(to)[at + i] = static_cast<unsigned char>(word >> (8 * i));
}

// One thread's wait for one packet. `data` is valid after ok.
MP_DEVICE WaitResult wait_packet(const Packet* slot, std::uint64_t epoch, std::uint64_t& data,
                                 const WaitBounds& bounds) {
    const auto poll = [slot, epoch, &data](std::uint64_t& seen) {
        const Packet packet = load_packet(slot);
        data = packet.data;
        seen = packet.epoch;
        return seen == epoch;
    };
    return wait_for(poll, bounds);
}

// Packets a thread polls at once: the second is on its way here while the first is looked at.
constexpr int packets_in_flight = 4;

}  // namespace impl

// Writes a message as packets of `epoch`, the threads of the group one packet each in turn. Relaxed at system scope:
// whoever sees the epoch in a packet has its data and knows nothing of other packets.
template <class Group>
MP_DEVICE void store_packets(Group group, Packet* slots, const void* from, std::uint64_t bytes, std::uint64_t epoch) {
    const std::uint64_t count = packets_of(bytes);
    const std::uint64_t stride = group.size();
    for (std::uint64_t i = group.rank(); i < count; i += impl::packets_in_flight * stride) {
        std::uint64_t words[impl::packets_in_flight];
        MP_UNROLL
        for (int k = 0; k < impl::packets_in_flight; ++k)
            if (i + k * stride < count) words[k] = impl::word_of(from, bytes, i + k * stride);
        MP_UNROLL
        for (int k = 0; k < impl::packets_in_flight; ++k)
            if (i + k * stride < count) store_packet(slots + i + k * stride, {words[k], epoch});
    }
}

// Waits for all packets of `epoch` and writes the message to `to`, each thread its own packets. The result is this thread's;
// a vote of the group is the caller's. After ok of all threads and a barrier the message is there for the group.
template <class Group>
MP_DEVICE WaitResult load_packets(Group group, const Packet* slots, void* to, std::uint64_t bytes, std::uint64_t epoch,
                                  const WaitBounds& bounds) {
    const std::uint64_t count = packets_of(bytes);
    const std::uint64_t stride = group.size();
    for (std::uint64_t i = group.rank(); i < count; i += impl::packets_in_flight * stride) {
        std::uint64_t words[impl::packets_in_flight];
        const auto poll = [=, &words](std::uint64_t& seen) {
            bool all = true;
            MP_UNROLL
            for (int k = 0; k < impl::packets_in_flight; ++k)
                if (i + k * stride < count) {
                    const Packet packet = load_packet(slots + i + k * stride);
                    words[k] = packet.data;
                    if (packet.epoch != epoch) {
                        all = false;
                        seen = packet.epoch;
                    }
                }
            if (all) seen = epoch;
            return all;
        };
        const WaitResult result = impl::wait_for(poll, bounds);
        if (result.failed()) return result;
        MP_UNROLL
        for (int k = 0; k < impl::packets_in_flight; ++k)
            if (i + k * stride < count) impl::set_word(to, bytes, i + k * stride, words[k]);
    }
    return {ok, epoch, 0};
}

}  // namespace mp
