// The one module of this crate: every kernel in one translation unit, so that one fatbin holds them and the host loads
// them all when it opens a device. A new file of kernels is included here and named in KERNELS (src/lib.rs).
#include "collective.cu"
#include "litmus.cu"
#include "message_passing.cu"
#include "pattern.cu"
#include "perf.cu"
#include "perf_load.cu"
#include "pingpong.cu"
#include "queue_pair.cu"
#include "signal.cu"
#include "steps.cu"
