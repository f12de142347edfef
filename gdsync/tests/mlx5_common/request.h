/* What the test's random generator hands to an encoder under test: one request, flat, the same for C, C++ and Rust
 * (struct FlatRequest in mod.rs). Which fields count depends on the opcode. */
#include <stdint.h>

struct flat_segment {
    uint64_t address;
    uint32_t lkey;
    uint32_t length;
};

struct flat_request {
    uint32_t qpn;
    uint16_t index;
    uint8_t opcode; /* MLX5_OPCODE_* */
    uint8_t fm_ce_se;
    uint32_t imm;
    uint32_t rkey;
    uint64_t raddr;
    uint64_t swap_or_add;
    uint64_t compare;
    uint32_t segments;
    uint32_t is_inline;
    uint32_t inline_length;
    uint32_t optimised; /* use mlx5dv's vector variants where there are any */
    struct flat_segment segment[62];
    uint8_t data[992];
};

/* A completion, read field by field. */
struct flat_completion {
    uint32_t qpn;
    uint32_t user_index;
    uint32_t imm;
    uint32_t byte_count;
    uint16_t index;
    uint8_t opcode;
    uint8_t owner;
    uint8_t solicited;
    uint8_t format;
    uint8_t wqe_opcode;
    uint8_t syndrome;
    uint8_t vendor;
    uint8_t pad[3];
};
