/* SPDX-License-Identifier: BSD-3-Clause */
/* net_v4.h - version 4 of the network plugin API, NCCL 2.8 to 2.11: `ncclNetPlugin_v4`. The oldest
 * that can be hosted: one buffer a receive, no tags, handles of 64 bytes; connect and accept may
 * block. */
#ifndef ROPEWAY_NCCLNET_ABI_NET_V4_H
#define ROPEWAY_NCCLNET_ABI_NET_V4_H

#include "ncclnet/abi/net.h"

struct nccl_net_properties_v4 {
	char *name, *pci_path;
	uint64_t guid;
	int ptr_support; /* enum nccl_ptr */
	int speed;       /* Mbit/s */
	int port;
	int max_comms;
};

struct nccl_net_v4 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *ndev);
	int (*getProperties)(int dev, struct nccl_net_properties_v4 *props);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(int dev, void *handle, void **send_comm);
	int (*accept)(void *listen_comm, void **recv_comm);
	int (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
	int (*deregMr)(void *comm, void *mhandle);
	int (*isend)(void *send_comm, void *data, int size, void *mhandle, void **request);
	int (*irecv)(void *recv_comm, void *data, int size, void *mhandle, void **request);
	int (*iflush)(void *recv_comm, void *data, int size, void *mhandle, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*closeSend)(void *send_comm);
	int (*closeRecv)(void *recv_comm);
	int (*closeListen)(void *listen_comm);
};

_Static_assert(sizeof(struct nccl_net_properties_v4) == 40 && sizeof(struct nccl_net_v4) == 128,
	"NCCL's net_v4.h");

#endif
