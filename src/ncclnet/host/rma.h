/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h - loads somebody's plugin for NCCL's one-sided operations and calls it, whatever table it
 * has: ncclRmaPlugin_v13 to v16, ncclGinPlugin_v11 to v13. As with struct ncclnet (host.h), one
 * table is chosen when it is loaded and used for every call.
 *
 * Each call gives what the plugin gave (enum nccl_result), or NCCLNET_ABSENT where its version has
 * no such call, cannot say what is asked (a weak signal before v14, options before v15, a second
 * context in GIN v11), or the plugin left it NULL. Outputs are set to NULL (0) before the call.
 *
 * Threads: as the plugin's API says. */
#ifndef ROPEWAY_NCCLNET_RMA_H
#define ROPEWAY_NCCLNET_RMA_H

#include "ncclnet/abi/rma.h"
#include "ncclnet/host/host.h"

/* A put, or with `signals` a put with a signal; or a get: `from` is the peer's then. Handles are
 * what regMrSym gave. */
struct ncclnet_rma_op {
	uint64_t from_off, to_off;
	void *from, *to;
	size_t size;
	uint32_t rank, options;
	bool signals, weak;
	uint32_t signal_op; /* enum nccl_rma_signal */
	uint64_t signal_off, value;
	void *signal;
};

/* One shim for each table. `coll` and `ctx`: each uses what its version passes. */
struct ncclnet_rma_calls {
	const char *(*name)(const void *table);
	int (*init)(const void *table, void **instance, nccl_logger log);
	int (*devices)(const void *table, int *ndev);
	int (*rma_properties)(const void *table, void *coll, struct nccl_rma_properties *p);
	int (*properties)(const void *table, int dev, struct nccl_net_properties_v12 *p);
	int (*listen)(const void *table, void *instance, int dev, void *handle, void **listen_comm);
	int (*connect)(const void *table, void *instance, void **handles, int ranks, int rank,
		int contexts, void *listen_comm, void **coll);
	int (*context)(const void *table, void *coll, int contexts, void **ctx);
	int (*reg)(const void *table, void *coll, void *data, size_t size, int type, uint64_t flags,
		void **mhandle);
	int (*reg_dmabuf)(const void *table, void *coll, void *data, size_t size, int type,
		uint64_t offset, int fd, uint64_t flags, void **mhandle);
	int (*dereg)(const void *table, void *coll, void *mhandle);
	int (*context_destroy)(const void *table, void *ctx);
	int (*close_coll)(const void *table, void *coll);
	int (*close_listen)(const void *table, void *listen_comm);
	int (*put)(const void *table, void *coll, void *ctx, int index,
		const struct ncclnet_rma_op *op, void **request);
	int (*get)(const void *table, void *coll, void *ctx, int index,
		const struct ncclnet_rma_op *op, void **request);
	int (*flush)(const void *table, void *coll, void *ctx, int index, void *mhandle,
		uint32_t rank, void **request);
	int (*test)(const void *table, void *coll, void *request, int *done);
	int (*progress)(const void *table, void *coll, void *ctx);
	int (*query)(const void *table, void *coll, void *ctx, bool *failed);
	int (*finalize)(const void *table, void *instance);
	unsigned slots;          /* how many pointers its table has, the name included */
	unsigned optional_slots; /* bit i: slot i may be NULL */
};

struct ncclnet_rma {
	void *library;
	bool gin;
	int abi; /* gin 11 to 13, otherwise 13 to 16 */
	const void *table;
	const struct ncclnet_rma_calls *calls;
};

/* "RMA v16", "GIN v11", "rma16": which table; NULL or "": the one that the newest NCCL takes. 0, or
 * as ncclnet_load, with `why`. */
int ncclnet_rma_load(
	const char *path, const char *which, struct ncclnet_rma *out, char *why, size_t why_len);
/* All tables that there are, by name ("RMA v16"), the newest first; NULL after the last. */
const char *ncclnet_rma_table_name(unsigned i);

#endif
