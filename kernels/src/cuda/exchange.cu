// A phase of a halo exchange as a launch of its own: for programs whose kernels do not communicate, and waits ahead of kernels
// whose blocks must not wait.
#pragma once

#include <mp/mp.cuh>

namespace mp {
namespace exchanging {

// What a launch does.
constexpr std::uint32_t starts = 1;  // copies borders and signals, or posts the puts
constexpr std::uint32_t waits = 2;   // waits for the neighbours, and brings what they sent to the ghosts

// Block `part` of those for neighbour `n`. Few enough blocks for all to run at once.
MP_DEVICE void run(const ExchangeHead& head, const ExchangeLink& link, int n, Part part, std::uint32_t what) {
    if (link.state == 0) return;
    auto* state = impl::at<ExchangeState>(link.state);
    const std::uint64_t before = state->epoch;
    bool last = part.index == 0 && thread_rank() == 0, ok = true;
    if ((what & starts) != 0) {
        // The neighbour has read what it got last.
        if (thread_rank() == 0 && state->seen < before) ok = impl::reached(head, link, n, before);
        if (block_any(!ok)) return;
        const ExchangeCopy& send = impl::route_in(head.sends, n)->send;
        if (send.to != 0) impl::copy_box(block(), send, part);
        block_barrier();
        last = thread_rank() == 0 && impl::finished(head, link, n, part.count);
    }
    if ((what & waits) == 0) return;
    const std::uint64_t expected = before + ((what & starts) != 0);
    const ExchangeCopy& unpack = impl::route_in(head.reads, n)->unpack;
    const bool unpacks = head.unpacks != 0 && unpack.to != 0;
    // Nothing is left to be done by the others.
    if (last || (unpacks && thread_rank() == 0)) ok = impl::reached(head, link, n, expected);
    if (last && ok) state->seen = expected;
    if (!unpacks || block_any(!ok)) return;
    impl::copy_box(block(), unpack, part);
}

}  // namespace exchanging
}  // namespace mp

// `blocks` blocks for each neighbour.
MP_KERNEL void MP_BLOCK_OF(256) mp_exchange(mp::Exchange<26> exchange, std::uint32_t what, std::uint32_t blocks) {
    mp::begin_in_turn();
    const std::uint32_t n = mp::block_rank() / blocks;
    mp::exchanging::run(exchange.head, exchange.links[n], int(n), {mp::block_rank() % blocks, blocks}, what);
}
