// The kernels of all programs, in one fatbin.
#include "matrix.cuh"
#include "overlap.cuh"
#include "particles.cuh"
#include "pingpong.cuh"
#include "stencil.cuh"
