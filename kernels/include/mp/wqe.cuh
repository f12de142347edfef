// Work-queue entries and doorbells of an mlx5 send queue, as a kernel (or the host) writes them: the mirror of
// gdsync's Rust module `wqe`, byte for byte (test mlx5_cuda_header). It is formats only: which slot to write, when
// it is free, and in which order entry, doorbell record and doorbell must become visible is the queue pair's
// business. Nothing here orders anything: all stores are plain.
//
// An entry is a sequence of 16-byte octowords that starts on a 64-byte basic block; integers are big-endian; the index
// counts blocks modulo 2^16 whatever the size of the ring. Source: <infiniband/mlx5dv.h>, rdma-core 44.
#pragma once

#include <cstdint>

#include "platform.cuh"

namespace mp {

// ---- byte order -----------------------------------------------------------------------------------------------
// CPUs and GPUs that CUDA runs on are little-endian.

MP_HOST_DEVICE std::uint32_t big_endian(std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(value, 0, 0x0123);
#else
    return __builtin_bswap32(value);
#endif
}

MP_HOST_DEVICE std::uint64_t big_endian(std::uint64_t value) {
    return std::uint64_t{big_endian(std::uint32_t(value))} << 32 | big_endian(std::uint32_t(value >> 32));
}

// ---- segments -------------------------------------------------------------------------------------------------

// Sixteen bytes of a queue, written with one store.
struct alignas(16) Octoword {
    std::uint32_t word[4];
};
static_assert(sizeof(Octoword) == 16);

enum class WqeOpcode : std::uint8_t {
    nop = 0x00,
    write = 0x08,
    write_imm = 0x09,
    send = 0x0a,
    send_imm = 0x0b,
    read = 0x10,
    compare_swap = 0x11,
    fetch_add = 0x12,
    dump = 0x23,
};

// Flags of a control segment; combine one fence mode, one completion mode and `solicited` with |.
enum WqeFlags : std::uint8_t {
    notify_on_error = 0,              // unsignaled
    notify_on_first_error = 1 << 2,   // unsignaled, one error completion for the queue
    notify_always = 2 << 2,           // signaled (MLX5_WQE_CTRL_CQ_UPDATE)
    notify_with_event = 3 << 2,       // signaled, with an event
    solicited = 1 << 1,               // the receiver's completion raises an event there
    fence_initiator_small = 1 << 5,   // after local invalidations and registrations
    fence_reads_and_atomics = 2 << 5, // after reads and atomics
    fence_strong = 3 << 5,            // after everything
    fence_full = 4 << 5,              // what IBV_SEND_FENCE becomes (MLX5_WQE_CTRL_FENCE)
};

// One piece of local memory: `length` bytes, 1 to 2^31. (The hardware reads 0 as 2^31: leave an empty piece out.)
struct DataSegment {
    std::uint64_t address;
    std::uint32_t lkey;
    std::uint32_t length;
};

// A place in the peer's memory.
struct RemoteAddress {
    std::uint64_t address;
    std::uint32_t rkey;
};

constexpr unsigned block_octowords = 4;      // of a 64-byte basic block
constexpr unsigned max_entry_octowords = 63; // the size field has six bits

// Basic blocks of an entry: what the producer index advances by.
MP_HOST_DEVICE constexpr unsigned wqe_blocks(unsigned octowords) {
    return (octowords + block_octowords - 1) / block_octowords;
}

// Control segment, first of every entry. `qpn` has 24 bits; `octowords` is the size of the whole entry, 1 to 63.
MP_HOST_DEVICE Octoword ctrl_segment(WqeOpcode opcode, std::uint32_t qpn, std::uint16_t index, unsigned octowords,
                                     std::uint8_t flags, std::uint32_t imm = 0) {
    return {{big_endian(std::uint32_t{index} << 8 | std::uint32_t(opcode)), big_endian(qpn << 8 | octowords),
             std::uint32_t{flags} << 24, big_endian(imm)}};
}

MP_HOST_DEVICE Octoword remote_segment(RemoteAddress remote) {
    return {{big_endian(std::uint32_t(remote.address >> 32)), big_endian(std::uint32_t(remote.address)),
             big_endian(remote.rkey), 0}};
}

MP_HOST_DEVICE Octoword data_segment(DataSegment data) {
    return {{big_endian(data.length & 0x7fffffff), big_endian(data.lkey), big_endian(std::uint32_t(data.address >> 32)),
             big_endian(std::uint32_t(data.address))}};
}

MP_HOST_DEVICE Octoword atomic_segment(std::uint64_t swap_or_add, std::uint64_t compare) {
    return {{big_endian(std::uint32_t(swap_or_add >> 32)), big_endian(std::uint32_t(swap_or_add)),
             big_endian(std::uint32_t(compare >> 32)), big_endian(std::uint32_t(compare))}};
}

// Octowords of an inline segment of `length` bytes: its 4-byte head, the data, zeros.
MP_HOST_DEVICE constexpr unsigned inline_octowords(unsigned length) {
    return (4 + length + 15) / 16;
}

// Octoword `k` of that segment. `data` may have any alignment.
MP_HOST_DEVICE Octoword inline_octoword(const void* data, unsigned length, unsigned k) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    Octoword out{{0, 0, 0, 0}};
    for (unsigned w = 0; w < 4; ++w) {
        const unsigned at = 16 * k + 4 * w;
        if (at == 0) {
            out.word[w] = big_endian(length | 0x80000000u);
            continue;
        }
        for (unsigned b = 0; b < 4 && at + b - 4 < length; ++b) {
            out.word[w] |= std::uint32_t{bytes[at + b - 4]} << (8 * b);
        }
    }
    return out;
}

// ---- entries --------------------------------------------------------------------------------------------------

// The ring of a send queue of queue pair `qpn`: 2^n basic blocks, at most 32768 (the index of a completion has 16
// bits).
struct SendRing {
    Octoword* octowords;
    std::uint32_t octoword_mask; // 4 * blocks - 1
    std::uint32_t qpn;
};

// The writer of one entry, octoword by octoword, with the wrap of the ring. The control segment comes last, because it
// holds the size: begin, put segments, finish. The caller owns the entry's blocks.
struct WqeWriter {
    SendRing ring;
    std::uint16_t index;
    unsigned octowords;

    MP_HOST_DEVICE WqeWriter(SendRing queue, std::uint16_t first_block)
        : ring(queue), index(first_block), octowords(1) {}

    MP_HOST_DEVICE void store(unsigned k, Octoword value) const {
        Octoword* to = ring.octowords + ((std::uint32_t{index} * block_octowords + k) & ring.octoword_mask);
#if defined(__CUDA_ARCH__)
        *reinterpret_cast<uint4*>(to) = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
#else
        *to = value;
#endif
    }

    MP_HOST_DEVICE WqeWriter& put(Octoword segment) {
        store(octowords++, segment);
        return *this;
    }

    MP_HOST_DEVICE WqeWriter& put(const DataSegment* segments, unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            put(data_segment(segments[i]));
        }
        return *this;
    }

    MP_HOST_DEVICE WqeWriter& put_inline(const void* data, unsigned length) {
        for (unsigned k = 0; k < inline_octowords(length); ++k) {
            put(inline_octoword(data, length, k));
        }
        return *this;
    }

    // Writes the control segment. Returns the basic blocks of the entry.
    MP_HOST_DEVICE unsigned finish(WqeOpcode opcode, std::uint8_t flags, std::uint32_t imm = 0) const {
        store(0, ctrl_segment(opcode, ring.qpn, index, octowords, flags, imm));
        return wqe_blocks(octowords);
    }
};

// Whole entries at block `index`. Each returns the basic blocks it took. `count` data segments, or `length` inline
// bytes, must fit an entry of 63 octowords.

MP_HOST_DEVICE unsigned encode_nop(SendRing ring, std::uint16_t index, std::uint8_t flags) {
    return WqeWriter(ring, index).finish(WqeOpcode::nop, flags);
}

MP_HOST_DEVICE unsigned encode_send(SendRing ring, std::uint16_t index, std::uint8_t flags, const DataSegment* from,
                                    unsigned count) {
    return WqeWriter(ring, index).put(from, count).finish(WqeOpcode::send, flags);
}

MP_HOST_DEVICE unsigned encode_send_imm(SendRing ring, std::uint16_t index, std::uint8_t flags, const DataSegment* from,
                                        unsigned count, std::uint32_t imm) {
    return WqeWriter(ring, index).put(from, count).finish(WqeOpcode::send_imm, flags, imm);
}

MP_HOST_DEVICE unsigned encode_send_inline(SendRing ring, std::uint16_t index, std::uint8_t flags, const void* data,
                                           unsigned length) {
    return WqeWriter(ring, index).put_inline(data, length).finish(WqeOpcode::send, flags);
}

MP_HOST_DEVICE unsigned encode_send_imm_inline(SendRing ring, std::uint16_t index, std::uint8_t flags, const void* data,
                                               unsigned length, std::uint32_t imm) {
    return WqeWriter(ring, index).put_inline(data, length).finish(WqeOpcode::send_imm, flags, imm);
}

MP_HOST_DEVICE unsigned encode_write(SendRing ring, std::uint16_t index, std::uint8_t flags, RemoteAddress to,
                                     const DataSegment* from, unsigned count) {
    return WqeWriter(ring, index).put(remote_segment(to)).put(from, count).finish(WqeOpcode::write, flags);
}

MP_HOST_DEVICE unsigned encode_write_imm(SendRing ring, std::uint16_t index, std::uint8_t flags, RemoteAddress to,
                                         const DataSegment* from, unsigned count, std::uint32_t imm) {
    return WqeWriter(ring, index).put(remote_segment(to)).put(from, count).finish(WqeOpcode::write_imm, flags, imm);
}

MP_HOST_DEVICE unsigned encode_write_inline(SendRing ring, std::uint16_t index, std::uint8_t flags, RemoteAddress to,
                                            const void* data, unsigned length) {
    return WqeWriter(ring, index).put(remote_segment(to)).put_inline(data, length).finish(WqeOpcode::write, flags);
}

MP_HOST_DEVICE unsigned encode_write_imm_inline(SendRing ring, std::uint16_t index, std::uint8_t flags,
                                                RemoteAddress to, const void* data, unsigned length,
                                                std::uint32_t imm) {
    return WqeWriter(ring, index)
        .put(remote_segment(to))
        .put_inline(data, length)
        .finish(WqeOpcode::write_imm, flags, imm);
}

MP_HOST_DEVICE unsigned encode_read(SendRing ring, std::uint16_t index, std::uint8_t flags, RemoteAddress from,
                                    const DataSegment* into, unsigned count) {
    return WqeWriter(ring, index).put(remote_segment(from)).put(into, count).finish(WqeOpcode::read, flags);
}

// The old value of the remote word goes to the 8 bytes at `into`, under `lkey`.
MP_HOST_DEVICE unsigned encode_fetch_add(SendRing ring, std::uint16_t index, std::uint8_t flags, RemoteAddress word,
                                         std::uint64_t add, std::uint64_t into, std::uint32_t lkey) {
    return WqeWriter(ring, index)
        .put(remote_segment(word))
        .put(atomic_segment(add, 0))
        .put(data_segment({into, lkey, 8}))
        .finish(WqeOpcode::fetch_add, flags);
}

MP_HOST_DEVICE unsigned encode_compare_swap(SendRing ring, std::uint16_t index, std::uint8_t flags, RemoteAddress word,
                                            std::uint64_t compare, std::uint64_t swap, std::uint64_t into,
                                            std::uint32_t lkey) {
    return WqeWriter(ring, index)
        .put(remote_segment(word))
        .put(atomic_segment(swap, compare))
        .put(data_segment({into, lkey, 8}))
        .finish(WqeOpcode::compare_swap, flags);
}

MP_HOST_DEVICE unsigned encode_dump(SendRing ring, std::uint16_t index, std::uint8_t flags, DataSegment from) {
    return WqeWriter(ring, index).put(data_segment(from)).finish(WqeOpcode::dump, flags);
}

// ---- receives and doorbells -----------------------------------------------------------------------------------

// What ends the list of a receive entry that has room for more segments: length 0 under MLX5_INVALID_LKEY.
MP_HOST_DEVICE Octoword receive_terminator() {
    return {{0, big_endian(std::uint32_t{0x100}), 0, 0}};
}

// Writes a receive at `entry`, which has room for `stride` segments.
MP_HOST_DEVICE void encode_receive(Octoword* entry, unsigned stride, const DataSegment* into, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        entry[i] = data_segment(into[i]);
    }
    if (count < stride) {
        entry[count] = receive_terminator();
    }
}

constexpr unsigned doorbell_record_receive = 0; // word of a doorbell record (MLX5_RCV_DBR)
constexpr unsigned doorbell_record_send = 1;    // word of a doorbell record (MLX5_SND_DBR)
constexpr unsigned doorbell_uar_offset = 0x800; // first doorbell register of a UAR page

// A word of a doorbell record: filled up to, excluding, `next`.
MP_HOST_DEVICE std::uint32_t doorbell_record_word(std::uint16_t next) {
    return big_endian(std::uint32_t{next});
}

// The 64-bit value to store to the doorbell register, from the same index.
MP_HOST_DEVICE std::uint64_t doorbell_value(std::uint32_t qpn, std::uint16_t next) {
    return big_endian(std::uint64_t{next} << 40 | std::uint64_t{qpn & 0xffffff} << 8);
}

} // namespace mp
