// The kernels of all examples, compiled together: for GPUs by nvcc, for the CPU by the host's compiler.
#include "device_ranks.cu"
#include "jacobi2d.cu"
#include "jacobi3d.cu"
#include "ring.cu"
#include "seismic.cu"
#include "stencil.cu"
#include "visits.cu"
