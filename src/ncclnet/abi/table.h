/* SPDX-License-Identifier: BSD-3-Clause */
/* table.h - the table and the properties of one version of the plugin API, NCCL_V; included by
 * tables.h for each, and by nothing else. Every difference between the versions is here, as a
 * condition on NCCL_V. */
struct NCCL_PROPERTIES {
	char *name, *pci_path;
	uint64_t guid;
	int ptr_support; /* enum nccl_ptr */
#if NCCL_V >= 8
	int reg_is_global;
#endif
#if NCCL_V >= 9
	int force_flush;
#endif
	int speed; /* Mbit/s */
	int port;
#if NCCL_V >= 5
	float latency; /* us */
	int max_comms;
	int max_recvs;
#else
	int max_comms;
#endif
#if NCCL_V >= 7
	int device_type; /* enum nccl_net_device_type */
	int device_version;
#endif
#if NCCL_V >= 9
	NCCL_VDEVICE v_props;
	size_t max_p2p_bytes, max_coll_bytes;
#endif
#if NCCL_V >= 11
	int max_multi_request_size;
#endif
#if NCCL_V >= 12
	int16_t rail_id, plane_id; /* -1: not known */
#endif
};

struct NCCL_NET {
	const char *name;
#if NCCL_V >= 11
	int (*init)(void **ctx, uint64_t comm_id, struct nccl_net_comm_config *config,
		nccl_logger log, nccl_profiler profiler);
#elif NCCL_V == 10
	int (*init)(nccl_logger log, nccl_profiler profiler);
#else
	int (*init)(nccl_logger log);
#endif
	int (*devices)(int *ndev);
	int (*getProperties)(int dev, struct NCCL_PROPERTIES *props);
#if NCCL_V >= 11
	int (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
	int (*connect)(void *ctx, int dev, void *handle, void **send_comm,
		struct nccl_net_device_handle **device);
#else
	int (*listen)(int dev, void *handle, void **listen_comm);
#if NCCL_V == 10
	int (*connect)(int dev, struct nccl_net_comm_config *config, void *handle, void **send_comm,
		struct nccl_net_device_handle **device);
#elif NCCL_V >= 7
	int (*connect)(
		int dev, void *handle, void **send_comm, struct nccl_net_device_handle **device);
#else
	int (*connect)(int dev, void *handle, void **send_comm);
#endif
#endif
#if NCCL_V >= 7
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_net_device_handle **device);
#else
	int (*accept)(void *listen_comm, void **recv_comm);
#endif
#if NCCL_V >= 8
	int (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
#else
	int (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
#endif
#if NCCL_V >= 6
	int (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
		void **mhandle);
#endif
	int (*deregMr)(void *comm, void *mhandle);
#if NCCL_V >= 10
	int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle,
		void *phandle, void **request);
	int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
		void **phandles, void **request);
#elif NCCL_V == 9
	int (*isend)(
		void *send_comm, void *data, size_t size, int tag, void *mhandle, void **request);
	int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
		void **request);
#elif NCCL_V >= 5
	int (*isend)(void *send_comm, void *data, int size, int tag, void *mhandle, void **request);
	int (*irecv)(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mhandles,
		void **request);
#else
	int (*isend)(void *send_comm, void *data, int size, void *mhandle, void **request);
	int (*irecv)(void *recv_comm, void *data, int size, void *mhandle, void **request);
#endif
#if NCCL_V >= 5
	int (*iflush)(
		void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
#else
	int (*iflush)(void *recv_comm, void *data, int size, void *mhandle, void **request);
#endif
	int (*test)(void *request, int *done, int *sizes);
	int (*closeSend)(void *send_comm);
	int (*closeRecv)(void *recv_comm);
	int (*closeListen)(void *listen_comm);
#if NCCL_V >= 7
	int (*getDeviceMr)(void *comm, void *mhandle, void **device_mhandle);
	int (*irecvConsumed)(void *recv_comm, int n, void *request);
#endif
#if NCCL_V >= 9
	int (*makeVDevice)(int *dev, NCCL_VDEVICE *props);
#endif
#if NCCL_V >= 11
	int (*finalize)(void *ctx);
	int (*setNetAttr)(void *ctx, struct nccl_net_attr *attr);
#endif
};

_Static_assert(sizeof(struct NCCL_PROPERTIES) == NCCL_PROPERTIES_BYTES, "NCCL's net_v<V>.h");
_Static_assert(sizeof(struct NCCL_NET) == NCCL_NET_BYTES, "NCCL's net_v<V>.h");
#if NCCL_V >= 8
_Static_assert(offsetof(struct NCCL_PROPERTIES, reg_is_global) == 28, "where NCCL has it");
#endif
#if NCCL_V >= 9
_Static_assert(offsetof(struct NCCL_PROPERTIES, force_flush) == 32, "where NCCL has it");
#endif
#undef NCCL_V
#undef NCCL_NET
#undef NCCL_NET_BYTES
#undef NCCL_PROPERTIES
#undef NCCL_PROPERTIES_BYTES
