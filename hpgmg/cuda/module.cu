// Every kernel in one translation unit; their names are listed in src/cuda/kernels.rs.
#include "grid.cu"
#include "slab.cu"
#include "resident.cu"
#include "held.cu"
#include "leg.cu"
#include "sweep.cu"
#include "residual.cu"
#include "general.cu"
