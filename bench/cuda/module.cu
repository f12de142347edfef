// The one module of this crate. A new file of kernels is included here, its kernels are named in NAMES (src/kernels.rs).
#include "../peers/floor.cu"
#include "exchange.cu"
#include "litmus.cu"
#include "one_sided.cu"
#include "perf.cu"
#include "perf_load.cu"
#include "pingpong.cu"
#include "waiting.cu"
