// The storm's kernel on the CPU: a thread for every end. For machines without a GPU.
#include <mp/host/launch.hpp>
#include <system_error>

#include "storm.cuh"

// Plays all ends at once and returns when they are done; 1 if the machine has not enough threads, and then nothing ran.
extern "C" int torture_storm_on_host(const storm::End* ends, std::uint64_t count, std::uint64_t launch,
                                     storm::Tally* tally) {
    const auto kernel = [=] { storm::play(mp::thread(), ends[mp::block_rank()], launch, tally); };
    try {
        mp::host::launch(static_cast<unsigned>(count), 1, kernel);
        return 0;
    } catch (const std::system_error&) {
        return 1;
    }
}
