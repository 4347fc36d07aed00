/* SPDX-License-Identifier: BSD-3-Clause */
/* net_v12.h - version 12 of the network plugin API, NCCL 2.30: `ncclNetPlugin_v12`. Virtual devices
 * of up to 8; railId and planeId. */
#ifndef ROPEWAY_NCCLNET_ABI_NET_V12_H
#define ROPEWAY_NCCLNET_ABI_NET_V12_H

#include "ncclnet/abi/net.h"

struct nccl_net_properties_v12 {
	char *name, *pci_path;
	uint64_t guid;
	int ptr_support; /* enum nccl_ptr */
	int reg_is_global;
	int force_flush;
	int speed; /* Mbit/s */
	int port;
	float latency; /* us */
	int max_comms;
	int max_recvs;
	int device_type; /* enum nccl_net_device_type */
	int device_version;
	struct nccl_net_vdevice_v12 v_props;
	size_t max_p2p_bytes, max_coll_bytes;
	int max_multi_request_size;
	int16_t rail_id, plane_id; /* -1: not known */
};

struct nccl_net_v12 {
	const char *name;
	int (*init)(void **ctx, uint64_t comm_id, struct nccl_net_comm_config *config,
		nccl_logger log, nccl_profiler profiler);
	int (*devices)(int *ndev);
	int (*getProperties)(int dev, struct nccl_net_properties_v12 *props);
	int (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
	int (*connect)(void *ctx, int dev, void *handle, void **send_comm,
		struct nccl_net_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_net_device_handle **device);
	int (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
	int (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
		void **mhandle);
	int (*deregMr)(void *comm, void *mhandle);
	int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle,
		void *phandle, void **request);
	int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
		void **phandles, void **request);
	int (*iflush)(
		void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*closeSend)(void *send_comm);
	int (*closeRecv)(void *recv_comm);
	int (*closeListen)(void *listen_comm);
	int (*getDeviceMr)(void *comm, void *mhandle, void **device_mhandle);
	int (*irecvConsumed)(void *recv_comm, int n, void *request);
	int (*makeVDevice)(int *dev, struct nccl_net_vdevice_v12 *props);
	int (*finalize)(void *ctx);
	int (*setNetAttr)(void *ctx, struct nccl_net_attr *attr);
};

_Static_assert(sizeof(struct nccl_net_properties_v12) == 128 && sizeof(struct nccl_net_v12) == 176,
	"NCCL's net_v12.h");
_Static_assert(offsetof(struct nccl_net_properties_v12, reg_is_global) == 28 &&
		       offsetof(struct nccl_net_properties_v12, force_flush) == 32,
	"where NCCL has them");

#endif
