// A kernel that communicates by itself, compiled by the host compiler and run on threads; the host side is mp.h. Two ranks.
#include <mp.h>
#include <mp/mp.cuh>
#include <mp/host/launch.hpp>

#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

static_assert(MP_VERSION >= MP_MAKE_VERSION(0, 1, 0), "the header has a version");

// One block: every turn it sends its edge, waits for the neighbour's, and makes the next edge of that.
MP_KERNEL void turns(mp::Send send, mp::Recv recv, int count) {
    auto* edge = mp::buffer_of<std::uint64_t>(send);
    const auto* ghost = mp::buffer_of<std::uint64_t>(recv);
    for (int turn = 0; turn < count; ++turn) {
        mp::post(mp::block(), recv);
        if (mp::send(mp::block(), send).failed()) return;
        if (mp::recv(mp::block(), recv).failed()) return;
        edge[mp::thread_rank()] = ghost[mp::thread_rank()] + 1;
        mp::block_barrier();
    }
}

static bool done(mp_status status) {
    if (status != MP_OK) std::fprintf(stderr, "%s: %s\n", mp_status_name(status), mp_last_error());
    return status == MP_OK;
}

static bool rank(mp_world* world) {
    constexpr unsigned threads = 4;
    constexpr int count = 6;
    const mp_comm* comm = mp_world_comm(world);
    const int me = mp_rank(comm), other = 1 - me;
    const std::size_t bytes = threads * sizeof(std::uint64_t);
    mp_region *edge, *ghost;
    mp_op *to, *from;
    mp::Send send;
    mp::Recv recv;
    bool good = done(mp_region_alloc(comm, MP_HOST, bytes, &edge)) && done(mp_region_alloc(comm, MP_HOST, bytes, &ghost)) &&
                done(mp_send_prepare(comm, other, edge, 0, bytes, 0, &to)) &&
                done(mp_recv_prepare(comm, other, ghost, 0, bytes, 0, &from)) &&
                done(mp_op_handle(to, &send, sizeof send)) && done(mp_op_handle(from, &recv, sizeof recv));
    if (!good) return false;
    const std::vector<std::uint64_t> first(threads, 100 * static_cast<std::uint64_t>(me));
    good = done(mp_region_write(edge, 0, first.data(), bytes));
    mp::host::launch(1, threads, turns, send, recv, count);
    std::vector<std::uint64_t> last(threads);
    good = good && done(mp_region_read(edge, 0, last.data(), bytes)) && done(mp_barrier(comm));
    // An even number of turns: what comes back is this rank's own, one more each turn.
    for (const std::uint64_t value : last) good = good && value == 100 * static_cast<std::uint64_t>(me) + count;
    good = done(mp_op_free(to)) && done(mp_op_free(from)) && good;
    good = done(mp_region_free(edge)) && done(mp_region_free(ghost)) && good;
    return done(mp_finish(world)) && good;
}

int main() {
    mp_world* worlds[2];
    if (mp_version_number() != MP_VERSION || !done(mp_init_threads(2, worlds))) return 1;
    bool good[2] = {};
    std::thread other([&] { good[1] = rank(worlds[1]); });
    good[0] = rank(worlds[0]);
    other.join();
    std::puts(good[0] && good[1] ? "both ranks are right" : "a rank is wrong");
    return good[0] && good[1] ? 0 : 1;
}
