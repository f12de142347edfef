// A kernel that communicates by itself: the device side of ring.rs.
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>

// One rank of a ring, one block. Every turn it posts its ghost, sends its edge to the right, waits for what comes from the
// left, and makes the next edge of it. *turns_done counts them; fewer than `turns`: a wait failed, and the host's next
// synchronise says which and why.
MP_KERNEL void ring(mp::Send send, mp::Recv recv, std::uint64_t cells, std::uint64_t turns, std::uint64_t* turns_done) {
    auto* edge = mp::buffer_of<std::uint64_t>(send);
    const auto* ghost = mp::buffer_of<std::uint64_t>(recv);
    // The counters of both ends stay in registers for the loop.
    mp::Sender right(mp::block(), send);
    mp::Receiver left(mp::block(), recv);
    std::uint64_t turn = 0;
    for (; turn < turns; ++turn) {
        left.post(mp::block());
        if (right.send(mp::block()).failed()) break;
        if (left.recv(mp::block()).failed()) break;
        for (std::uint64_t i = mp::thread_rank(); i < cells; i += mp::block_threads()) edge[i] = ghost[i] + 1;
        // The next send begins with a barrier of the block: it sees the whole edge.
    }
    right.close(mp::block());
    left.close(mp::block());
    if (mp::thread_rank() == 0) *turns_done = turn;
}
MP_HOST_KERNEL(ring)
