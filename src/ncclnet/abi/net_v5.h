/* SPDX-License-Identifier: BSD-3-Clause */
/* net_v5.h - version 5 of the network plugin API, NCCL 2.12: `ncclNetPlugin_v5`. Tags, receives of
 * several buffers at once, connect and accept that do not block: NULL for the comm means "call
 * again". */
#ifndef ROPEWAY_NCCLNET_ABI_NET_V5_H
#define ROPEWAY_NCCLNET_ABI_NET_V5_H

#include "ncclnet/abi/net.h"

struct nccl_net_properties_v5 {
	char *name, *pci_path;
	uint64_t guid;
	int ptr_support; /* enum nccl_ptr */
	int speed;       /* Mbit/s */
	int port;
	float latency; /* us */
	int max_comms;
	int max_recvs;
};

struct nccl_net_v5 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *ndev);
	int (*getProperties)(int dev, struct nccl_net_properties_v5 *props);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(int dev, void *handle, void **send_comm);
	int (*accept)(void *listen_comm, void **recv_comm);
	int (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
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
};

_Static_assert(sizeof(struct nccl_net_properties_v5) == 48 && sizeof(struct nccl_net_v5) == 128,
	"NCCL's net_v5.h");

#endif
