// The kernels of all programs as OS threads, each called by its name. For machines without a GPU.
#include <cstring>
#include <mp/host/launch.hpp>
#include <system_error>

#include "matrix.cuh"
#include "overlap.cuh"
#include "particles.cuh"
#include "pingpong.cuh"
#include "stencil.cuh"

namespace {

struct Launch {
    const mp::Ranks* ranks;
    const void* args;
    unsigned blocks;
    unsigned threads;
};

// A kernel of ranks, and one of blocks.
template <class Args, void (*kernel)(mp::Ranks, Args)>
void run(const Launch& launch) {
    mp::host::launch(launch.blocks, launch.threads, kernel, *launch.ranks, *static_cast<const Args*>(launch.args));
}
template <class Args, void (*kernel)(Args)>
void run(const Launch& launch) {
    mp::host::launch(launch.blocks, launch.threads, kernel, *static_cast<const Args*>(launch.args));
}

const struct {
    const char* name;
    void (*run)(const Launch&);
} kernels[] = {
    {"dcuda_matrix", run<programs::Matrix, dcuda_matrix>},
    {"dcuda_matrix_stage", run<programs::Matrix, dcuda_matrix_stage>},
    {"dcuda_overlap", run<programs::Overlap, dcuda_overlap>},
    {"dcuda_overlap_stage", run<programs::Overlap, dcuda_overlap_stage>},
    {"dcuda_particles", run<programs::Particles, dcuda_particles>},
    {"dcuda_particles_stage", run<programs::Particles, dcuda_particles_stage>},
    {"dcuda_pingpong", run<programs::Pairs, dcuda_pingpong>},
    {"dcuda_stencil", run<programs::Stencil, dcuda_stencil>},
    {"dcuda_stencil_phase", run<programs::Stencil, dcuda_stencil_phase>},
    {"dcuda_waiting", run<programs::Overlap, dcuda_waiting>},
};

}  // namespace

// Runs a kernel to its end. 1: there is none of that name; 2: the machine has not so many threads, and nothing ran.
extern "C" int dcuda_on_host(const char* name, const mp::Ranks* ranks, const void* args, unsigned blocks, unsigned threads) {
    for (const auto& kernel : kernels) {
        if (std::strcmp(kernel.name, name) != 0) continue;
        try {
            kernel.run({ranks, args, blocks, threads});
            return 0;
        } catch (const std::system_error&) {
            return 2;
        }
    }
    return 1;
}
