/* SPDX-License-Identifier: BSD-3-Clause */
/* net.h - what all versions of NCCL's network plugin API share: result codes, kinds of memory, the
 * logger, device handles. Facts of the interface (NCCL's public plugin headers), in our own words.
 *
 * A plugin exports one table for each version that it speaks, `ncclNetPlugin_v<N>`. NCCL takes the
 * highest that it knows, and uses that one for everything: handles, comms, requests and
 * registrations of one table mean nothing to another. net_v<N>.h have the tables; their sizes are
 * asserted there.
 */
#ifndef ROPEWAY_NCCLNET_ABI_NET_H
#define ROPEWAY_NCCLNET_ABI_NET_H

#include <stddef.h>
#include <stdint.h>

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_UNHANDLED_CUDA_ERROR = 1,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6,
};

enum {
	NCCL_NET_V_FIRST = 4,
	NCCL_NET_V_LAST = 12,
	NCCL_NET_HANDLE_BYTES = 128, /* from v5 on */
	NCCL_NET_HANDLE_BYTES_V4 = 64,
	NCCL_NET_MAX_REQUESTS = 32, /* under way for each comm and each of maxRecvs */
	NCCL_NET_GROUP_MAX = 8,     /* of one irecv: NCCL's NCCL_PROXY_MAX_SUBS */
};
/* NCCL passes this in *request of an irecv (v9 on) whose size it does not need to know; of no
 * meaning else, and always to be overwritten. */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION ((void *)1)

enum nccl_ptr { NCCL_PTR_HOST = 1, NCCL_PTR_CUDA = 2, NCCL_PTR_DMABUF = 4 };

enum nccl_log_level {
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION,
	NCCL_LOG_WARN,
	NCCL_LOG_INFO,
	NCCL_LOG_ABORT,
	NCCL_LOG_TRACE
};
/* Bits; NCCL_DEBUG_SUBSYS chooses. */
enum nccl_log_subsys {
	NCCL_SUBSYS_INIT = 1,
	NCCL_SUBSYS_NET = 16,
	NCCL_SUBSYS_ENV = 128,
	NCCL_SUBSYS_ALL = -1
};
typedef void (*nccl_logger)(
	int level, unsigned long subsys, const char *file, int line, const char *fmt, ...);
/* v10 on: tells the profiler of steps of a send or receive. */
typedef int (*nccl_profiler)(void **event, int type, void *phandle, int64_t plugin, void *extra);

enum nccl_net_device_type {
	NCCL_NET_DEVICE_HOST = 0,
	NCCL_NET_DEVICE_UNPACK = 1,
	NCCL_NET_DEVICE_GIN_PROXY = 2,
	NCCL_NET_DEVICE_GIN_GDAKI = 3
};
/* v7 on: what a kernel on the GPU needs of a comm, where the device is one that it works with
 * itself (UNPACK: GPUDirect-TCPX). */
struct nccl_net_device_handle {
	int type, version;
	void *handle;
	size_t size;
	int needs_proxy_progress;
};
_Static_assert(sizeof(struct nccl_net_device_handle) == 32, "NCCL's net_device.h");

/* v10 on. */
struct nccl_net_comm_config {
	int traffic_class; /* -1: none was asked for */
};
/* v11 on. Hints; -1: not known. */
struct nccl_net_comm_attr {
	int32_t max_concurrent_peers, min_concurrent_peers, max_flows_per_peer, min_flows_per_peer;
};
struct nccl_net_attr {
	struct nccl_net_comm_attr send, recv;
	uint32_t op, algo, proto;
};
_Static_assert(sizeof(struct nccl_net_attr) == 44, "NCCL's net_v11.h");

/* v9 on: physical devices that are used as one. */
struct nccl_net_vdevice_v9 {
	int ndevs, devs[4];
};
struct nccl_net_vdevice_v12 {
	int ndevs, devs[8];
};

#endif
