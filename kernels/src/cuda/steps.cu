// Stream operations on messages: a list of steps in one launch. The list means what it would mean with a launch for each
// step; the epochs are in the GPU's memory, so the same launch can be replayed by a graph.
#pragma once

#include <mp/mp.cuh>

namespace mp {

// By value, so that a launch needs no memory of its own: under the 4 KiB that kernel parameters may take everywhere.
template <unsigned count>
struct StepList {
    Step steps[count];
};
static_assert(sizeof(StepList<max_steps>) == max_steps * sizeof(Step) && sizeof(StepList<max_steps>) < 4096);

namespace steps {

// A barrier of the grid, whose blocks all run at once. The counters are those of an end that is in no other launch now.
MP_DEVICE WaitResult meet(MessageState* state, const WaitBounds& bounds) {
    block_barrier();
    WaitResult result = {ok, 0, 0};
    if (thread_rank() == 0) {
        const std::uint64_t before = load(&state->meetings, relaxed, gpu);
        if (fetch_add(&state->meeting, std::uint64_t{1}, gpu) == grid_blocks() - 1) {
            store(&state->meeting, std::uint64_t{0}, relaxed, gpu);
            store(&state->meetings, before + 1, release, gpu);
        } else {
            const auto poll = [state, before](std::uint64_t& seen) {
                seen = load(&state->meetings, acquire, gpu);
                return seen != before;
            };
            result = impl::wait_for(poll, bounds);
        }
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
    case step_get: return get(block(), Get{Send{step.message}}, part);
    default: return recv(block(), Recv{step.message}, part);
    }
}

// Runs `count` steps in order, each block its part of each; blocks that share the list must all fit on the GPU at once. Ends
// at the first wait that fails, which is then in that message's report. `seen` (0: none) is the address of a word in this GPU's
// memory that says that the abort word has ended a wait: lists behind it do nothing, because what they would send may be made
// of what never came.
MP_DEVICE void run_all(const Step* steps, std::uint32_t count, std::uint64_t seen) {
    const Part part = {block_rank(), grid_blocks()};
    const Message& first = steps[0].message;
    if (seen != 0) {
        const std::uint64_t ended = load(impl::at<const std::uint64_t>(seen), relaxed, gpu);
        if (part.index == 0) {
            // The first step reads it, too: both are on their way at once.
            std::uint64_t epoch = impl::at<const MessageState>(first.state)->epoch;
            impl::keep(epoch);
        }
        if (ended != 0) return;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        Part takes = part;
        if (steps[i].meet != meet_none && part.count > 1) {
            auto* state = impl::at<MessageState>(first.state);
            if (steps[i].meet == meet_all) {
                if (meet(state, impl::bounds_of(first)).failed()) return;
            } else {
                if (!last_block(&state->meeting, part.count)) return;
                takes = {0, 1};
            }
        }
        const WaitResult result = run(steps[i], takes);
        if (result.failed()) {
            if (result.status == aborted && seen != 0 && thread_rank() == 0)
                store(impl::at<std::uint64_t>(seen), std::uint64_t{1}, relaxed, gpu);
            return;
        }
    }
}

}  // namespace steps
}  // namespace mp

// Copies `count` pieces, each by a warp: what a message in several pieces has to do besides its steps. Orders nothing: a step behind it
// in the stream tells the other end.
MP_KERNEL void MP_BLOCK_OF(256) mp_pieces(const mp::MessagePiece* pieces, std::uint64_t count) {
    mp::begin_in_turn();
    const std::uint64_t warps = mp::grid_blocks() * (mp::block().size() / 32);
    for (std::uint64_t i = mp::block_rank() * (mp::block().size() / 32) + mp::thread_rank() / 32; i < count; i += warps)
        mp::copy(mp::warp(), mp::impl::at<void>(pieces[i].to), mp::impl::at<const void>(pieces[i].from), pieces[i].bytes);
}

// A list of up to few_steps or max_steps; see run_all.
MP_KERNEL void MP_BLOCK_OF(512) mp_steps_few(mp::StepList<mp::few_steps> list, std::uint32_t count, std::uint64_t seen) {
    mp::begin_in_turn();
    mp::steps::run_all(list.steps, count, seen);
}
MP_KERNEL void MP_BLOCK_OF(512) mp_steps(mp::StepList<mp::max_steps> list, std::uint32_t count, std::uint64_t seen) {
    mp::begin_in_turn();
    mp::steps::run_all(list.steps, count, seen);
}
