// What the programs' kernels have in common: how they are declared, who does which of many things, where memory is. No program.
#pragma once

#include <mp/ranks.cuh>

#include "layout.cuh"

#if defined(__CUDACC__)
// Eight blocks of 128 threads fit on a multiprocessor: 1056 ranks on an H200.
#define DCUDA_KERNEL extern "C" __global__ void __launch_bounds__(128, 8)
#else
#define DCUDA_KERNEL inline void
#endif

namespace programs {

using mp::Rank;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

// Each of so many things, by one thread of the block.
template <class Do>
MP_DEVICE void each(uint64_t count, const Do& what) {
    for (uint64_t i = mp::thread_rank(); i < count; i += mp::block_threads()) what(i);
}

template <class T = double>
MP_DEVICE T* at(uint64_t address) {
    return reinterpret_cast<T*>(address);
}

}  // namespace programs
