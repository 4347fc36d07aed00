/* SPDX-License-Identifier: BSD-3-Clause */
/* What NCCL's headers need of CUDA for its IB transport with host memory: types, and calls
 * that fail. */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
typedef struct CUstream_st *cudaStream_t, *CUstream;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUuserObject_st *cudaUserObject_t;
typedef struct CUctx_st *CUcontext;
typedef int cudaError_t;
typedef int CUresult;
typedef int CUdevice;
typedef int cudaStreamCaptureMode;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef void (*cudaHostFn_t)(void *);
struct cudaIpcMemHandle_t {
	char reserved[64];
};
struct int4 {
	int x, y, z, w;
};
struct ulong2 {
	unsigned long x, y;
};
enum {
	cudaSuccess = 0,
	cudaStreamCaptureModeRelaxed = 2,
	cudaHostAllocMapped = 2,
	cudaMemcpyDefault = 4,
	cudaMemcpyDeviceToDevice = 3,
	cudaStreamNonBlocking = 1
};
#define CUDART_VERSION 11000
#define CUDA_VERSION 11000
static inline const char *cudaGetErrorString(cudaError_t) { return "stub"; }
static inline cudaError_t cudaGetLastError() { return 0; }
static inline cudaError_t cudaGetDevice(int *d)
{
	*d = 0;
	return 0;
}
static inline cudaError_t cudaDriverGetVersion(int *v)
{
	*v = 0;
	return 1;
}
static inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return 0; }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, int) { return 1; }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return 1; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return 1; }
static inline cudaError_t cudaFreeHost(void *) { return 1; }
static inline cudaError_t cudaFree(void *) { return 1; }
template <typename T> cudaError_t cudaMalloc(T **, size_t) { return 1; }
static inline cudaError_t cudaHostAlloc(void **, size_t, int) { return 1; }
static inline cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t)
{
	return 1;
}
static inline cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t) { return 1; }
static inline cudaError_t cudaMemcpy(void *, const void *, size_t, int) { return 1; }
static inline cudaError_t cudaMemset(void *, int, size_t) { return 1; }
typedef int CUmemAllocationHandleType;
typedef int CUdriverProcAddressQueryResult;
struct dim3 {
	unsigned x, y, z;
};
enum { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
static inline cudaError_t cudaDeviceGetAttribute(int *v, int, int)
{
	*v = 0;
	return 1;
}
static inline cudaError_t cudaDeviceGetPCIBusId(char *, int, int) { return 1; }
