/* SPDX-License-Identifier: BSD-3-Clause */
/* net_v7.h - version 7 of the network plugin API, NCCL 2.19: `ncclNetPlugin_v7`. Device handles,
 * getDeviceMr, irecvConsumed. */
#ifndef ROPEWAY_NCCLNET_ABI_NET_V7_H
#define ROPEWAY_NCCLNET_ABI_NET_V7_H

#include "ncclnet/abi/net.h"

struct nccl_net_properties_v7 {
	char *name, *pci_path;
	uint64_t guid;
	int ptr_support; /* enum nccl_ptr */
	int speed;       /* Mbit/s */
	int port;
	float latency; /* us */
	int max_comms;
	int max_recvs;
	int device_type; /* enum nccl_net_device_type */
	int device_version;
};

struct nccl_net_v7 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *ndev);
	int (*getProperties)(int dev, struct nccl_net_properties_v7 *props);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(
		int dev, void *handle, void **send_comm, struct nccl_net_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_net_device_handle **device);
	int (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
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

_Static_assert(sizeof(struct nccl_net_properties_v7) == 56 && sizeof(struct nccl_net_v7) == 152,
	"NCCL's net_v7.h");

#endif
