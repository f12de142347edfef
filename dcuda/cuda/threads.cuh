// What needs neither ranks nor windows: who does which of many things, where memory is.
#pragma once

#include <mp/platform.cuh>

#include "layout.cuh"

namespace programs {

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
