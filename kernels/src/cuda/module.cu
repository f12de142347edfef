// The one module of this crate: every kernel that streams and operations launch in one translation unit, so that one fatbin
// holds them and the host loads them all when it opens a device. A new file of kernels is included here and named in KERNELS
// (src/lib.rs), and begins with mp::begin_in_turn, so that a stream may launch it early.
#include "collective.cu"
#include "exchange.cu"
#include "queue.cu"
#include "signal.cu"
#include "steps.cu"
#include "window.cu"
