/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_table.h - the table of one version of NCCL's interface for one-sided operations; included by
 * rma.h for each, and by nothing else. Every difference between the versions is here. RMA_V: 11 to
 * 13 are the tables that NCCL calls GIN (13 also RMA), 14 to 16 those that it calls RMA. */
#if RMA_V >= 13
#define RMA_CTX_ARGS void *ctx, int index
#else
#define RMA_CTX_ARGS void *coll
#endif
struct RMA_TABLE {
	const char *name;
	int (*init)(void **instance, uint64_t comm_id, nccl_logger log);
	int (*devices)(int *ndev);
#if RMA_V >= 16
	int (*getRmaProperties)(void *coll, struct nccl_rma_properties *props);
#endif
#if RMA_V >= 13
	int (*getProperties)(int dev, struct nccl_net_properties_v12 *props);
#else
	int (*getProperties)(int dev, struct nccl_net_properties_v11 *props);
#endif
	int (*listen)(void *instance, int dev, void *handle, void **listen_comm);
#if RMA_V == 12
	int (*connect)(void *instance, void **handles, int nranks, int rank, int connections,
		int queue_depth, void *listen_comm, void **coll);
#else
	int (*connect)(void *instance, void **handles, int nranks, int rank, void *listen_comm,
		void **coll);
#endif
#if RMA_V >= 14
	int (*createContext)(void *coll, struct nccl_rma_config *config, void **ctx);
#elif RMA_V == 13
	int (*createContext)(void *coll, struct nccl_gin_config_v13 *config, void **ctx,
		struct nccl_net_device_handle **device);
#elif RMA_V == 12
	int (*createContext)(void *coll, int signals, int counters, int contexts, void **ctx,
		struct nccl_net_device_handle **device);
#else
	int (*createContext)(void *coll, int signals, int counters, void **ctx,
		struct nccl_net_device_handle **device);
#endif
#if RMA_V >= 14
	int (*regMrSym)(
		void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle);
	int (*regMrSymDmaBuf)(void *coll, void *data, size_t size, int type, uint64_t offset,
		int fd, uint64_t flags, void **mhandle);
#else
	int (*regMrSym)(void *coll, void *data, size_t size, int type, uint64_t flags,
		void **mhandle, void **gin_handle);
	int (*regMrSymDmaBuf)(void *coll, void *data, size_t size, int type, uint64_t offset,
		int fd, uint64_t flags, void **mhandle, void **gin_handle);
#endif
	int (*deregMrSym)(void *coll, void *mhandle);
	int (*destroyContext)(void *ctx);
	int (*closeColl)(void *coll);
	int (*closeListen)(void *listen_comm);
#if RMA_V >= 15
	int (*iput)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, uint32_t options, void **request);
	int (*iputSignal)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, uint64_t signal_off, void *signal, uint64_t value,
		uint32_t op, bool strong, uint32_t options, void **request);
	int (*iget)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, uint32_t options, void **request);
#elif RMA_V == 14
	int (*iput)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, void **request);
	int (*iputSignal)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, uint64_t signal_off, void *signal, uint64_t value,
		uint32_t op, bool strong, void **request);
	int (*iget)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, void **request);
#elif RMA_V == 13
	int (*iput)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, void **request);
	int (*iputSignal)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, uint64_t signal_off, void *signal, uint64_t value,
		uint32_t op, void **request);
	int (*iget)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, void **request);
#elif RMA_V == 12
	int (*iput)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, int index, void **request);
	int (*iputSignal)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, uint64_t signal_off, void *signal, uint64_t value,
		uint32_t op, int index, void **request);
#else
	int (*iput)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, void **request);
	int (*iputSignal)(RMA_CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
		void *to, uint32_t rank, uint64_t signal_off, void *signal, uint64_t value,
		uint32_t op, void **request);
#endif
#if RMA_V >= 13
	int (*iflush)(RMA_CTX_ARGS, void *mhandle, uint32_t rank, void **request);
#endif
	int (*test)(void *coll, void *request, int *done);
	/* v11 and v12 give it the coll comm; both may be NULL */
	int (*progress)(void *ctx);
	int (*queryLastError)(void *ctx, bool *failed);
	int (*finalize)(void *instance);
};
_Static_assert(sizeof(struct RMA_TABLE) == RMA_TABLE_BYTES, "as in NCCL's library");
#undef RMA_CTX_ARGS
#undef RMA_V
#undef RMA_TABLE
#undef RMA_TABLE_BYTES
