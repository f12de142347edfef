// What the types of the fields in layout.cuh and resident.cuh are in kernels; in Rust all addresses are numbers (device.rs).
#pragma once
#include <mp/mp.cuh>

namespace hpgmg {

using Values = double*;
using ReadOnly = const double*;
using Counter = std::uint64_t*;
using BlockSignals = mp::BlockSignals;
using Turns = mp::Exchange<2>;
using TurnsAround = mp::Exchange<26>;

}  // namespace hpgmg
