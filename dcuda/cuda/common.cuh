// What the programs' kernels have in common: how they are declared. No program.
#pragma once

#include <mp/ranks.cuh>

#include "threads.cuh"

#if defined(__CUDACC__)
// Eight blocks of 128 threads fit on a multiprocessor: 1056 ranks on an H200.
#define DCUDA_KERNEL extern "C" __global__ void __launch_bounds__(128, 8)
#else
#define DCUDA_KERNEL inline void
#endif

namespace programs {

using mp::Rank;

}  // namespace programs
