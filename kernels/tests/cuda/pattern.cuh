// The test pattern: word `index` of a buffer filled with `seed`. Its twin in Rust is mp_kernels::pattern.
// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), so that a shifted, torn or stale word never looks right.
#pragma once

#include <mp/platform.cuh>

namespace mp {

MP_HOST_DEVICE std::uint64_t pattern(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t z = seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

}  // namespace mp
