/* SPDX-License-Identifier: BSD-3-Clause */
/* net_v8.h - version 8 of the network plugin API, NCCL 2.20 to 2.23: `ncclNetPlugin_v8`. regMr
 * takes a size_t; regIsGlobal. */
#ifndef ROPEWAY_NCCLNET_ABI_NET_V8_H
#define ROPEWAY_NCCLNET_ABI_NET_V8_H

#include "ncclnet/abi/net.h"

struct nccl_net_properties_v8 {
	char *name, *pci_path;
	uint64_t guid;
	int ptr_support; /* enum nccl_ptr */
	int reg_is_global;
	int speed; /* Mbit/s */
	int port;
	float latency; /* us */
	int max_comms;
	int max_recvs;
	int device_type; /* enum nccl_net_device_type */
	int device_version;
};

struct nccl_net_v8 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *ndev);
	int (*getProperties)(int dev, struct nccl_net_properties_v8 *props);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(
		int dev, void *handle, void **send_comm, struct nccl_net_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_net_device_handle **device);
	int (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
	int (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
		void **mhandle);
	int (*deregMr)(void *comm, void *mhandle);
	int (*isend)(void *send_comm, void *data, int size, int tag, void *mhandle, void **request);
	int (*irecv)(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mhandles,
		void **request);
	int (*iflush)(
		void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*closeSend)(void *send_comm);
	int (*closeRecv)(void *recv_comm);
	int (*closeListen)(void *listen_comm);
	int (*getDeviceMr)(void *comm, void *mhandle, void **device_mhandle);
	int (*irecvConsumed)(void *recv_comm, int n, void *request);
};

_Static_assert(sizeof(struct nccl_net_properties_v8) == 64 && sizeof(struct nccl_net_v8) == 152,
	"NCCL's net_v8.h");
_Static_assert(offsetof(struct nccl_net_properties_v8, reg_is_global) == 28, "where NCCL has them");

#endif
