// Every kernel in one translation unit; their names are listed in src/cuda/module.rs.
#include "grid.cu"
#include "resident.cu"
