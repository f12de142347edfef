// The kernels of all programs, in one fatbin.
#include "stencil.cuh"
