// The encoders and decoders of mp/wqe.cuh and mp/cqe.cuh, compiled by the host compiler, behind the interface that
// mlx5dv_shim.c has too. Built by the test mlx5_cuda_header.
#include <cstddef>
#include <cstring>

#include "mp/cqe.cuh"
#include "mp/wqe.cuh"

extern "C" {
#include "request.h"

// Writes the entry into a ring of ring_bytes; returns its basic blocks, 0 for an opcode it does not know.
std::uint32_t shim_encode(const flat_request* r, std::uint8_t* ring, std::size_t ring_bytes) {
    const mp::SendRing queue{reinterpret_cast<mp::Octoword*>(ring), std::uint32_t(ring_bytes / 16 - 1), r->qpn};
    mp::DataSegment segments[62];
    for (std::uint32_t i = 0; i < r->segments; ++i) {
        segments[i] = {r->segment[i].address, r->segment[i].lkey, r->segment[i].length};
    }
    const mp::RemoteAddress remote{r->raddr, r->rkey};
    const auto flags = r->fm_ce_se;
    const auto index = r->index;
    const auto count = r->segments;
    const auto length = r->inline_length;
    switch (static_cast<mp::WqeOpcode>(r->opcode)) {
    case mp::WqeOpcode::nop:
        return encode_nop(queue, index, flags);
    case mp::WqeOpcode::send:
        return r->is_inline ? encode_send_inline(queue, index, flags, r->data, length)
                            : encode_send(queue, index, flags, segments, count);
    case mp::WqeOpcode::send_imm:
        return r->is_inline ? encode_send_imm_inline(queue, index, flags, r->data, length, r->imm)
                            : encode_send_imm(queue, index, flags, segments, count, r->imm);
    case mp::WqeOpcode::write:
        return r->is_inline ? encode_write_inline(queue, index, flags, remote, r->data, length)
                            : encode_write(queue, index, flags, remote, segments, count);
    case mp::WqeOpcode::write_imm:
        return r->is_inline ? encode_write_imm_inline(queue, index, flags, remote, r->data, length, r->imm)
                            : encode_write_imm(queue, index, flags, remote, segments, count, r->imm);
    case mp::WqeOpcode::read:
        return encode_read(queue, index, flags, remote, segments, count);
    case mp::WqeOpcode::fetch_add:
        return encode_fetch_add(queue, index, flags, remote, r->swap_or_add, segments[0].address, segments[0].lkey);
    case mp::WqeOpcode::compare_swap:
        return encode_compare_swap(queue, index, flags, remote, r->compare, r->swap_or_add, segments[0].address,
                                   segments[0].lkey);
    case mp::WqeOpcode::dump:
        return encode_dump(queue, index, flags, segments[0]);
    }
    return 0;
}

void shim_encode_receive(const flat_segment* from, std::uint32_t count, std::uint32_t stride, std::uint8_t* entry) {
    mp::DataSegment segments[62];
    for (std::uint32_t i = 0; i < count; ++i) {
        segments[i] = {from[i].address, from[i].lkey, from[i].length};
    }
    mp::encode_receive(reinterpret_cast<mp::Octoword*>(entry), stride, segments, count);
}

void shim_decode_completion(const void* cqe, flat_completion* out) {
    mp::CqeTail tail;
    std::memcpy(&tail.word, static_cast<const char*>(cqe) + mp::cqe_tail_offset, sizeof tail.word);
    *out = {};
    out->opcode = static_cast<std::uint8_t>(tail.opcode());
    out->owner = tail.owner();
    out->qpn = tail.qpn();
    out->wqe_opcode = tail.wqe_opcode();
    out->index = tail.index();
    out->user_index = mp::cqe_user_index(cqe);
    if (tail.is_error()) {
        std::uint64_t error;
        std::memcpy(&error, static_cast<const char*>(cqe) + mp::cqe_error_offset, sizeof error);
        out->syndrome = static_cast<std::uint8_t>(mp::cqe_syndrome(error));
        out->vendor = mp::cqe_vendor_syndrome(cqe);
        return;
    }
    out->solicited = tail.solicited();
    out->format = tail.format();
    out->imm = mp::cqe_imm(cqe);
    out->byte_count = mp::cqe_byte_count(cqe);
}

std::uint8_t shim_is_completion(std::uint8_t op_own, std::uint64_t consumer, std::uint64_t slots) {
    return mp::CqeTail{std::uint64_t{op_own} << 56}.is_completion(consumer, slots);
}
std::uint64_t shim_progress(std::uint64_t known, std::uint16_t counter) {
    return mp::collapsed_progress(known, counter);
}
std::uint32_t shim_record_word(std::uint16_t next) { return mp::doorbell_record_word(next); }
std::uint64_t shim_doorbell(std::uint32_t qpn, std::uint16_t next) { return mp::doorbell_value(qpn, next); }
std::uint32_t shim_cq_record_word(std::uint64_t consumer) { return mp::cq_record_word(consumer); }
std::uint32_t shim_cq_arm_word(std::uint64_t consumer, std::uint32_t sequence, std::uint8_t solicited_only) {
    return mp::cq_arm_word(consumer, sequence, solicited_only);
}
std::uint64_t shim_cq_arm_value(std::uint32_t cqn, std::uint32_t arm_word) { return mp::cq_arm_value(cqn, arm_word); }
}
