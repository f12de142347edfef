/* The oracle: entries and completions by the inline functions and structs of <infiniband/mlx5dv.h>. Segments for which
 * the header has no function are filled through its structs. Built by the test mlx5_oracle. */
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <stddef.h>
#include <string.h>

#include "request.h"

/* Not in mlx5dv.h of rdma-core 44; MLX5_OPCODE_DUMP of the Linux kernel. */
enum { OPCODE_DUMP = 0x23 };

static uint8_t *put_data(uint8_t *at, const struct flat_segment *segment, int optimised) {
    struct mlx5_wqe_data_seg *data = (void *)at;
#ifdef __SSE3__
    if (optimised)
        mlx5dv_x86_set_data_seg(data, segment->length & 0x7fffffff, segment->lkey, segment->address);
    else
#endif
        mlx5dv_set_data_seg(data, segment->length & 0x7fffffff, segment->lkey, segment->address);
    (void)optimised;
    return at + sizeof *data;
}

static uint8_t *put_payload(uint8_t *at, const struct flat_request *r) {
    if (!r->is_inline) {
        for (uint32_t i = 0; i < r->segments; i++)
            at = put_data(at, &r->segment[i], r->optimised);
        return at;
    }
    struct mlx5_wqe_inl_data_seg *head = (void *)at;
    head->byte_count = htobe32(r->inline_length | MLX5_INLINE_SEG);
    memcpy(head + 1, r->data, r->inline_length);
    size_t size = sizeof *head + r->inline_length;
    return at + (size + 15) / 16 * 16;
}

static uint8_t *put_remote(uint8_t *at, const struct flat_request *r) {
    struct mlx5_wqe_raddr_seg *remote = (void *)at;
    remote->raddr = htobe64(r->raddr);
    remote->rkey = htobe32(r->rkey);
    remote->reserved = 0;
    return at + sizeof *remote;
}

static uint8_t *put_atomic(uint8_t *at, const struct flat_request *r) {
    struct mlx5_wqe_atomic_seg *atomic = (void *)at;
    atomic->swap_add = htobe64(r->swap_or_add);
    atomic->compare = htobe64(r->compare);
    return at + sizeof *atomic;
}

/* Writes the entry into a ring of ring_bytes; returns its size in octowords, 0 for an opcode it does not know. */
uint32_t shim_encode(const struct flat_request *r, uint8_t *ring, size_t ring_bytes) {
    uint8_t entry[1024] __attribute__((aligned(16))) = {0};
    uint8_t *end = entry + sizeof(struct mlx5_wqe_ctrl_seg);
    uint32_t imm = 0;
    switch (r->opcode) {
    case MLX5_OPCODE_NOP:
        break;
    case MLX5_OPCODE_SEND_IMM:
        imm = htobe32(r->imm); /* fallthrough */
    case MLX5_OPCODE_SEND:
        end = put_payload(end, r);
        break;
    case MLX5_OPCODE_RDMA_WRITE_IMM:
        imm = htobe32(r->imm); /* fallthrough */
    case MLX5_OPCODE_RDMA_WRITE:
    case MLX5_OPCODE_RDMA_READ:
        end = put_payload(put_remote(end, r), r);
        break;
    case MLX5_OPCODE_ATOMIC_CS:
    case MLX5_OPCODE_ATOMIC_FA:
        end = put_payload(put_atomic(put_remote(end, r), r), r);
        break;
    case OPCODE_DUMP:
        end = put_payload(end, r);
        break;
    default:
        return 0;
    }
    uint8_t octowords = (uint8_t)((end - entry) / 16);
    struct mlx5_wqe_ctrl_seg *ctrl = (void *)entry;
#ifdef __SSE3__
    if (r->optimised)
        mlx5dv_x86_set_ctrl_seg(ctrl, r->index, r->opcode, 0, r->qpn, r->fm_ce_se, octowords, 0, imm);
    else
#endif
        mlx5dv_set_ctrl_seg(ctrl, r->index, r->opcode, 0, r->qpn, r->fm_ce_se, octowords, 0, imm);
    size_t start = (size_t)r->index << MLX5_SEND_WQE_SHIFT;
    for (size_t i = 0; i < (size_t)octowords * 16; i++)
        ring[(start + i) & (ring_bytes - 1)] = entry[i];
    return octowords;
}

/* A receive of `count` segments in an entry of `stride`, as libmlx5's post_recv leaves it. */
void shim_encode_receive(const struct flat_segment *segments, uint32_t count, uint32_t stride, uint8_t *entry) {
    struct mlx5_wqe_data_seg *data = (void *)entry;
    for (uint32_t i = 0; i < count; i++)
        mlx5dv_set_data_seg(&data[i], segments[i].length & 0x7fffffff, segments[i].lkey, segments[i].address);
    if (count < stride) {
        data[count].byte_count = 0;
        data[count].lkey = htobe32(MLX5_INVALID_LKEY);
        data[count].addr = 0;
    }
}

void shim_decode_completion(const void *bytes, struct flat_completion *out) {
    struct mlx5_cqe64 cqe;
    struct mlx5_err_cqe error;
    memcpy(&cqe, bytes, sizeof cqe);
    memcpy(&error, bytes, sizeof error);
    memset(out, 0, sizeof *out);
    out->opcode = mlx5dv_get_cqe_opcode(&cqe);
    out->owner = mlx5dv_get_cqe_owner(&cqe);
    if (out->opcode == MLX5_CQE_REQ_ERR || out->opcode == MLX5_CQE_RESP_ERR) {
        out->qpn = be32toh(error.s_wqe_opcode_qpn) & 0xffffff;
        out->wqe_opcode = be32toh(error.s_wqe_opcode_qpn) >> 24;
        out->user_index = be32toh(error.srqn) & 0xffffff;
        out->index = be16toh(error.wqe_counter);
        out->syndrome = error.syndrome;
        out->vendor = error.vendor_err_synd;
        return;
    }
    out->solicited = mlx5dv_get_cqe_se(&cqe);
    out->format = mlx5dv_get_cqe_format(&cqe);
    out->qpn = be32toh(cqe.sop_drop_qpn) & 0xffffff;
    out->wqe_opcode = be32toh(cqe.sop_drop_qpn) >> 24;
    out->user_index = be32toh(cqe.srqn_uidx) & 0xffffff;
    out->imm = be32toh(cqe.imm_inval_pkey);
    out->byte_count = be32toh(cqe.byte_cnt);
    out->index = be16toh(cqe.wqe_counter);
}

/* Offsets and sizes of the segments without a function, for a comparison with the Rust structs. */
#define FIELD(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)
const uint32_t shim_layout[] = {
    sizeof(struct mlx5_wqe_raddr_seg),    FIELD(mlx5_wqe_raddr_seg, raddr),
    FIELD(mlx5_wqe_raddr_seg, rkey),      FIELD(mlx5_wqe_raddr_seg, reserved),
    sizeof(struct mlx5_wqe_atomic_seg),   FIELD(mlx5_wqe_atomic_seg, swap_add),
    FIELD(mlx5_wqe_atomic_seg, compare),  sizeof(struct mlx5_wqe_inl_data_seg),
    FIELD(mlx5_wqe_inl_data_seg, byte_count), sizeof(struct mlx5_wqe_ctrl_seg),
    FIELD(mlx5_wqe_ctrl_seg, opmod_idx_opcode), FIELD(mlx5_wqe_ctrl_seg, qpn_ds),
    FIELD(mlx5_wqe_ctrl_seg, signature),  FIELD(mlx5_wqe_ctrl_seg, dci_stream_channel_id),
    FIELD(mlx5_wqe_ctrl_seg, fm_ce_se),   FIELD(mlx5_wqe_ctrl_seg, imm),
    sizeof(struct mlx5_wqe_data_seg),     sizeof(struct mlx5_cqe64),
    sizeof(struct mlx5_err_cqe),
};
const uint32_t shim_layout_length = sizeof shim_layout / sizeof shim_layout[0];

/* Numbers of the header that the Rust module writes out. */
const uint32_t shim_constants[] = {
    MLX5_OPCODE_NOP,          MLX5_OPCODE_SEND_INVAL,   MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM,
    MLX5_OPCODE_SEND,         MLX5_OPCODE_SEND_IMM,     MLX5_OPCODE_TSO,        MLX5_OPCODE_RDMA_READ,
    MLX5_OPCODE_ATOMIC_CS,    MLX5_OPCODE_ATOMIC_FA,    MLX5_OPCODE_ATOMIC_MASKED_CS,
    MLX5_OPCODE_ATOMIC_MASKED_FA, MLX5_OPCODE_FMR,      MLX5_OPCODE_LOCAL_INVAL, MLX5_OPCODE_CONFIG_CMD,
    MLX5_OPCODE_SET_PSV,      MLX5_OPCODE_UMR,          MLX5_OPCODE_TAG_MATCHING, MLX5_OPCODE_FLOW_TBL_ACCESS,
    MLX5_OPCODE_MMO,
};
const uint32_t shim_constants_length = sizeof shim_constants / sizeof shim_constants[0];

const uint32_t shim_syndromes[] = {
    MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,        MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
    MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,          MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
    MLX5_CQE_SYNDROME_MW_BIND_ERR,             MLX5_CQE_SYNDROME_BAD_RESP_ERR,
    MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR,        MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
    MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,       MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
    MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
    MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR,
};
const uint32_t shim_syndromes_length = sizeof shim_syndromes / sizeof shim_syndromes[0];
