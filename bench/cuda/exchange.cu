// What a stencil code does between two passes, and nothing else: both GPUs send each other a halo at the same time and wait for the
// other's. With libmp's device headers, as a program would write it.

#include <mp/mp.cuh>

// Each block exchanges its share of the halo with the same block of the other side: `ends` has the block's send and its receive,
// one after the other. Block 0 writes the nanoseconds of the timed rounds to `time`, unless a wait fails.
extern "C" __global__ void __launch_bounds__(1024)
    exchange(const mp::Message* ends, std::uint64_t untimed, std::uint64_t rounds, std::uint64_t* time) {
    const mp::Send send = {ends[2 * mp::block_rank()]};
    const mp::Recv recv = {ends[2 * mp::block_rank() + 1]};
    mp::Sender sender(mp::block(), send);
    mp::Receiver receiver(mp::block(), recv);
    std::uint64_t began = 0;
    bool failed = false;
    for (std::uint64_t round = 0; round < untimed + rounds && !failed; ++round) {
        if (round == untimed) began = mp::clock_ns();
        receiver.post(mp::block());
        failed = sender.send(mp::block()).failed() || receiver.recv(mp::block()).failed();
    }
    sender.close(mp::block());
    receiver.close(mp::block());
    if (mp::block_rank() == 0 && mp::thread_rank() == 0) *time = failed ? 0 : mp::clock_ns() - began;
}

// The same by puts into the other's window and a signal, for larger halos: each block puts its share of `bytes`, by a signal of its
// own (signals are `stride` bytes apart); landings are used in turn, so that a halo may still be read while the next one arrives.
// A wait that fails is in `report`.
extern "C" __global__ void __launch_bounds__(1024)
    exchange_puts(std::uint64_t source, std::uint64_t target, std::uint64_t bytes, std::uint64_t mine, std::uint64_t peer,
                  std::uint64_t stride, std::uint64_t base, std::uint64_t untimed, std::uint64_t rounds, mp::WaitBounds bounds,
                  mp::WaitReport* report, std::uint64_t* time) {
    const std::uint64_t each = (bytes / mp::grid_blocks() + 15) / 16 * 16;
    const std::uint64_t at = each * mp::block_rank();
    const std::uint64_t share = at >= bytes ? 0 : (bytes - at < each ? bytes - at : each);
    const auto* here = mp::impl::at<const std::uint64_t>(mine + stride * mp::block_rank());
    auto* there = mp::impl::at<std::uint64_t>(peer + stride * mp::block_rank());
    std::uint64_t began = 0;
    for (std::uint64_t round = 0; round < untimed + rounds; ++round) {
        if (round == untimed) began = mp::clock_ns();
        const std::uint64_t landing = target + round % 2 * bytes + at;
        mp::copy(mp::block(), mp::impl::at<void>(landing), mp::impl::at<const void>(source + at), share);
        mp::signal(mp::block(), there, base + round + 1);
        const mp::WaitResult result = mp::wait(mp::block(), here, base + round + 1, bounds);
        if (result.failed()) {
            if (mp::thread_rank() == 0) mp::report(report, base + round + 1, result);
            return;
        }
    }
    if (mp::block_rank() == 0 && mp::thread_rank() == 0) *time = mp::clock_ns() - began;
}
