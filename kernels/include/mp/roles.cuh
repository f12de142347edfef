// Roles of the blocks of a fused kernel: some send, some compute, some wait for what others send. Dealt out so that a block that
// waits never holds the place of one that others wait for: senders first, then those that compute, and last those that
// receive. What a sender itself waits for (room, a posted buffer) its peer's senders and earlier receives give, never a
// receive of the same launch; so post buffers from sending blocks, or a launch ahead.
#pragma once

#include "copy.cuh"

namespace mp {

enum class Role : std::uint32_t { send, compute, receive };

// What one block does, and which part of it.
struct Duty {
    Role role;
    Part part;
};

// How many blocks have each role; together the blocks of the grid.
struct Roles {
    std::uint32_t senders;
    std::uint32_t computers;
    std::uint32_t receivers;

    MP_HOST_DEVICE std::uint32_t blocks() const { return senders + computers + receivers; }

    // The duty of the block that is number `turn` of blocks(). Orders nothing.
    MP_HOST_DEVICE Duty of(std::uint32_t turn) const {
        if (turn < senders) return {Role::send, {turn, senders}};
        if (turn < senders + computers) return {Role::compute, {turn - senders, computers}};
        return {Role::receive, {turn - senders - computers, receivers}};
    }
};

// The turn of this block: the order in which blocks really started, whatever the hardware makes of their numbers. `started` is a
// word of this GPU's memory, 0 at first, used by launches of one grid size after one another only. All threads of the
// block call; it is an atomic and two barriers. Where blocks are known to start in order of their numbers, or all fit at once,
// block_rank() does instead.
MP_DEVICE std::uint32_t turn_of_block(std::uint64_t* started) {
    std::uint64_t turn = 0;
    if (thread_rank() == 0) turn = fetch_add(started, std::uint64_t{1}, gpu) % grid_blocks();
    return static_cast<std::uint32_t>(block_broadcast(turn));
}

}  // namespace mp
