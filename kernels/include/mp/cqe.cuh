// Completions of an mlx5 queue, as a kernel (or the host) reads them: the mirror of gdsync's Rust module `wqe`
// (test mlx5_cuda_header). Formats and arithmetic only; whoever polls loads the tail (an acquiring load at system
// scope) before anything else of the completion.
//
// Source: <infiniband/mlx5dv.h>, rdma-core 44: mlx5_cqe64, mlx5_err_cqe.
#pragma once

#include <cstdint>

#include "wqe.cuh"

namespace mp {

enum class CqeOpcode : std::uint8_t {
    request = 0,
    received_write_imm = 1,
    received_send = 2,
    received_send_imm = 3,
    received_send_invalidate = 4,
    resize = 5,
    no_packet = 6,
    signature_error = 12,
    request_error = 13,
    receive_error = 14,
    invalid = 15,
};

// Why a request failed (MLX5_CQE_SYNDROME_*). A completion may hold a number that is not listed.
enum class Syndrome : std::uint8_t {
    local_length = 0x01,
    local_qp_operation = 0x02,
    local_protection = 0x04,
    flushed = 0x05,
    memory_window_bind = 0x06,
    bad_response = 0x10,
    local_access = 0x11,
    remote_invalid_request = 0x12,
    remote_access = 0x13,
    remote_operation = 0x14,
    transport_retry_exceeded = 0x15,
    receiver_not_ready_retry_exceeded = 0x16,
    remote_aborted = 0x22,
};

constexpr unsigned cqe_bytes = 64;
constexpr unsigned cqe_tail_offset = 56;
// The eight bytes before the tail: of an error completion they end with its syndrome.
constexpr unsigned cqe_error_offset = 48;

// The last eight bytes of a completion, loaded as one 64-bit word: all that a waiter needs, in one access.
struct CqeTail {
    std::uint64_t word;

    // A number of CqeOpcode, or one that is none.
    MP_HOST_DEVICE CqeOpcode opcode() const { return CqeOpcode(word >> 60); }
    MP_HOST_DEVICE bool owner() const { return word >> 56 & 1; }
    // 0, or what must be off: data in the completion (1, 2), compression (3).
    MP_HOST_DEVICE unsigned format() const { return word >> 58 & 3; }
    // Whether the sender asked for an event.
    MP_HOST_DEVICE bool solicited() const { return word >> 57 & 1; }
    // Index of the completed entry: its first block in a send queue, its number in a receive queue.
    MP_HOST_DEVICE std::uint16_t index() const { return std::uint16_t((word >> 32 & 0xff) << 8 | (word >> 40 & 0xff)); }
    MP_HOST_DEVICE std::uint32_t qpn() const { return big_endian(std::uint32_t(word)) & 0xffffff; }
    // Opcode field of the completed entry.
    MP_HOST_DEVICE std::uint8_t wqe_opcode() const { return std::uint8_t(word); }
    MP_HOST_DEVICE bool is_error() const {
        return opcode() == CqeOpcode::request_error || opcode() == CqeOpcode::receive_error;
    }
    // Whether this is completion number `consumer` (from 0, never wrapped) of a ring of `slots` slots (a power of
    // two): its opcode is one and its owner bit is that of the pass.
    MP_HOST_DEVICE bool is_completion(std::uint64_t consumer, std::uint64_t slots) const {
        return opcode() != CqeOpcode::invalid && owner() == ((consumer & slots) != 0);
    }
};

// Why, of an error completion: its eight bytes before the tail, loaded as one word. In a queue where completions overwrite
// each other they are those of this completion only if the tail is the same before and after.
MP_HOST_DEVICE Syndrome cqe_syndrome(std::uint64_t word) { return Syndrome(word >> 56); }

// The fields before the tail. `cqe` points to the completion's 64 bytes.
MP_HOST_DEVICE std::uint32_t cqe_word(const void* cqe, unsigned offset) {
    return big_endian(*reinterpret_cast<const std::uint32_t*>(static_cast<const char*>(cqe) + offset));
}
MP_HOST_DEVICE std::uint32_t cqe_user_index(const void* cqe) { return cqe_word(cqe, 32) & 0xffffff; }
MP_HOST_DEVICE std::uint32_t cqe_imm(const void* cqe) { return cqe_word(cqe, 36); }
MP_HOST_DEVICE std::uint32_t cqe_byte_count(const void* cqe) { return cqe_word(cqe, 44); }
// Of an error completion.
MP_HOST_DEVICE std::uint8_t cqe_vendor_syndrome(const void* cqe) { return cqe_word(cqe, 52) >> 8 & 0xff; }

constexpr std::uint64_t max_blocks_in_flight = 32768;

// How many basic blocks of a send queue are passed, rebuilt from the 16 bits of a collapsed completion: `known` is a
// count read earlier, `wqe_counter` the index in the completion. One more than the index of the last completed entry's
// first block: that entry and all before it are complete. A counter behind `known`, as an overtaken reader sees it,
// changes nothing. Right while no more than max_blocks_in_flight are in flight. An untouched slot holds 0xffff.
MP_HOST_DEVICE std::uint64_t collapsed_progress(std::uint64_t known, std::uint16_t wqe_counter) {
    const std::uint64_t ahead = std::uint16_t(wqe_counter + 1 - std::uint16_t(known));
    return ahead > max_blocks_in_flight ? known : known + ahead;
}

// ---- doorbells of a completion queue --------------------------------------------------------------------------

// The word of its doorbell record that frees all slots before completion number `consumer`.
MP_HOST_DEVICE std::uint32_t cq_record_word(std::uint64_t consumer) {
    return big_endian(std::uint32_t(consumer) & 0xffffff);
}

// The arm word of its doorbell record; `sequence` counts how often it was armed.
MP_HOST_DEVICE std::uint32_t cq_arm_word(std::uint64_t consumer, std::uint32_t sequence, bool solicited_only) {
    return big_endian((sequence & 3) << 28 | std::uint32_t{solicited_only} << 24 |
                      (std::uint32_t(consumer) & 0xffffff));
}

// The value for its register at UAR + 0x20, stored after the arm word.
MP_HOST_DEVICE std::uint64_t cq_arm_value(std::uint32_t cqn, std::uint32_t arm_word) {
    return std::uint64_t{big_endian(cqn & 0xffffff)} << 32 | arm_word;
}

} // namespace mp
