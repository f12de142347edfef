// Stream operations on messages: a list of steps in one launch. The list means what it would mean with a launch for each
// step; the epochs are in the GPU's memory, so the same launch can be replayed by a graph.
#pragma once

#include <mp/mp.cuh>

namespace mp {

// By value, so that a launch needs no memory of its own: under the 4 KiB that kernel parameters may take everywhere.
constexpr unsigned max_steps = 16;
struct StepList {
    Step steps[max_steps];
};
static_assert(sizeof(StepList) == max_steps * 88);

namespace steps {

// Whether blocks other than the first have to do with a step.
MP_DEVICE bool shared_by_blocks(const Step& step) { return step.message.inbox == 0 && step.kind != step_post; }

// A barrier of the grid, whose blocks all run at once. `met` counts the blocks that came, for ever.
MP_DEVICE WaitResult meet(std::uint64_t* met, const WaitBounds& bounds) {
    block_barrier();
    WaitResult result = {ok, 0, 0};
    if (thread_rank() == 0) {
        const std::uint64_t blocks = grid_blocks();
        const std::uint64_t before = fetch_add(met, std::uint64_t{1}, gpu);
        const std::uint64_t all = (before / blocks + 1) * blocks;
        const auto poll = [met, all](std::uint64_t& seen) {
            seen = load(met, acquire, gpu);
            return seen >= all;
        };
        result = impl::wait_for(poll, bounds);
    }
    if (block_any(result.failed())) result = block_broadcast(result);
    return result;
}

MP_DEVICE WaitResult run(const Step& step, Part part) {
    switch (step.kind) {
    case step_post:
        if (part.index == 0) post(block(), Recv{step.message});
        return {ok, 0, 0};
    case step_send: return send(block(), Send{step.message}, part);
    default: return recv(block(), Recv{step.message}, part);
    }
}

}  // namespace steps
}  // namespace mp

// Runs `count` steps in order. With several blocks, which must all fit on the GPU at once, `met` is a word for their
// barriers, of this stream's launches of this many blocks only; 0 at first. Ends at the first wait that fails, which is then in
// that message's report.
MP_KERNEL void mp_steps(mp::StepList list, std::uint32_t count, std::uint64_t* met) {
    const mp::Part part = {mp::block_rank(), mp::grid_blocks()};
    for (std::uint32_t i = 0; i < count; ++i) {
        const mp::Step& step = list.steps[i];
        // A wait of all blocks for a message in one piece leaves each of them behind it; everything else must be over for all.
        if (i > 0 && part.count > 1 &&
            !(list.steps[i - 1].kind == mp::step_recv && mp::steps::shared_by_blocks(list.steps[i - 1]) &&
              step.message.state != list.steps[i - 1].message.state)) {
            if (mp::steps::meet(met, {step.message.abort, step.message.timeout_ns}).failed()) return;
        }
        if (mp::steps::run(step, part).failed()) return;
    }
}
