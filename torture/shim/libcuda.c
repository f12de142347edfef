// A CUDA driver that cannot be initialised, for machines without a GPU: found through LD_LIBRARY_PATH as libcuda.so. It has
// the entry points that gdsync looks for, and every one of them fails with CUDA_ERROR_UNKNOWN (999).
#define FAILS(call) \
    int call(void) { return 999; }

FAILS(cuInit)
FAILS(cuDeviceGetCount)
FAILS(cuStreamBatchMemOp_v2)
FAILS(cuStreamWriteValue32_v2)
FAILS(cuStreamWriteValue64_v2)
FAILS(cuStreamWaitValue64_v2)
FAILS(cuFuncLoad)
FAILS(cuMemHostRegister_v2)
FAILS(cuIpcOpenMemHandle_v2)
FAILS(cuStreamBeginCapture_v2)
FAILS(cuGraphInstantiateWithFlags)
FAILS(cuDevicePrimaryCtxRelease_v2)
FAILS(cuEventElapsedTime_v2)

int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}

int cuGetErrorString(int error, const char** text) {
    (void)error;
    *text = "a driver that fails on purpose";
    return 0;
}
