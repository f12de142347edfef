// The kernels that tests of gdsync launch on a GPU; on the host they are OS threads. Compiled by
//   nvcc -std=c++17 -arch=native -fatbin -I kernels/include -o FOLDER/gdsync.fatbin kernels/tests/cuda/module.cu
// and found in the folder that TEST_KERNELS names.
#include "message_passing.cu"
#include "queue_pair.cu"
