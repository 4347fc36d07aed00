/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_reference_table.c - one table of rma_reference.c: GIN and V say which; meson.build compiles
 * it once for each. */
#include <string.h>

#include "base/base.h"
#include "rma_reference.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#if GIN
#define TABLE CAT(ncclGinPlugin_v, V)
typedef struct CAT(nccl_gin_v, V) table_v;
#else
#define TABLE CAT(ncclRmaPlugin_v, V)
typedef struct CAT(nccl_rma_v, V) table_v;
#endif
#if V >= 13
typedef struct nccl_net_properties_v12 properties_v;
#else
typedef struct nccl_net_properties_v11 properties_v;
#endif
enum { GIN_PROXY = 2, VERSION = V + 100 * GIN };

static int init(void **instance, uint64_t comm_id, nccl_logger log)
{
	return rma_ref_init(instance);
}
static int finalize(void *instance) { return rma_ref_finalize(); }

static int devices(int *n)
{
	*n = rma_is_mutant("no-devices") ? 0 : 1;
	return NCCL_SUCCESS;
}

static int properties(int dev, properties_v *p)
{
	static char name[] = "reference";
	if (dev && !rma_is_mutant("any-device"))
		return NCCL_INVALID_ARGUMENT;
	memset(p, 0, sizeof(*p));
	p->name = name;
	p->pci_path = name;
	p->ptr_support = NCCL_PTR_HOST;
	p->speed = 10000;
	p->max_comms = 1000;
	p->max_recvs = rma_is_mutant("no-receives") ? 0 : 1;
	p->device_type = V <= 13 && !rma_is_mutant("host-type") ? GIN_PROXY : 0;
	p->max_p2p_bytes = p->max_coll_bytes = 1 << 30;
	if (rma_is_mutant("wide-properties"))
		((char *)p)[sizeof(*p)] = 1;
	return NCCL_SUCCESS;
}

static int listen_on(void *instance, int dev, void *handle, void **listener)
{
	return rma_ref_listen(VERSION, handle, listener);
}

#if V == 12
static int connect_to(void *instance, void **handles, int ranks, int rank, int connections,
	int queue_depth, void *listener, void **coll)
#else
static int connect_to(
	void *instance, void **handles, int ranks, int rank, void *listener, void **coll)
#endif
{
	return rma_ref_connect(VERSION, handles, ranks, rank, coll);
}

/* A context is its comm. */
#if V >= 14
static int context(void *coll, struct nccl_rma_config *config, void **ctx)
#elif V == 13
static int context(void *coll, struct nccl_gin_config_v13 *config, void **ctx,
	struct nccl_net_device_handle **device)
#elif V == 12
static int context(void *coll, int signals, int counters, int contexts, void **ctx,
	struct nccl_net_device_handle **device)
#else
static int context(
	void *coll, int signals, int counters, void **ctx, struct nccl_net_device_handle **device)
#endif
{
	*ctx = coll;
	return NCCL_SUCCESS;
}
static int context_end(void *ctx) { return NCCL_SUCCESS; }

#if V >= 14
static int reg(void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle)
#else
static int reg(void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle,
	void **gin_handle)
#endif
{
	return rma_ref_reg(coll, data, size, type, flags, mhandle);
}

#if V >= 13
#define CTX_PARAMS void *coll, int index
#else
#define CTX_PARAMS void *coll
#endif
#if V >= 15
#define OPTIONS_PARAM uint32_t options,
#define OPTIONS options
#else
#define OPTIONS_PARAM
#define OPTIONS 0
#endif
#if V == 12
#define INDEX_PARAM int index,
#else
#define INDEX_PARAM
#endif
#if V >= 14
#define STRONG_PARAM bool strong,
#else
#define STRONG_PARAM
#endif
static int put(CTX_PARAMS, uint64_t from_at, void *from, size_t size, uint64_t to_at, void *to,
	uint32_t rank, OPTIONS_PARAM INDEX_PARAM void **request)
{
	struct rma_ref_op op = {.from = from,
		.to = to,
		.from_at = from_at,
		.to_at = to_at,
		.size = size,
		.rank = rank,
		.options = OPTIONS};
	return rma_ref_post(coll, &op, request);
}
static int put_signal(CTX_PARAMS, uint64_t from_at, void *from, size_t size, uint64_t to_at,
	void *to, uint32_t rank, uint64_t signal_at, void *signal, uint64_t value, uint32_t kind,
	STRONG_PARAM OPTIONS_PARAM INDEX_PARAM void **request)
{
	struct rma_ref_op op = {.from = from,
		.to = to,
		.signal = signal,
		.from_at = from_at,
		.to_at = to_at,
		.size = size,
		.signal_at = signal_at,
		.value = value,
		.rank = rank,
		.op = kind,
		.options = OPTIONS,
		.signals = true};
	return rma_ref_post(coll, &op, request);
}
#if V >= 13
static int get(CTX_PARAMS, uint64_t from_at, void *from, size_t size, uint64_t to_at, void *to,
	uint32_t rank, OPTIONS_PARAM void **request)
{
	struct rma_ref_op op = {.from = from,
		.to = to,
		.from_at = from_at,
		.to_at = to_at,
		.size = size,
		.rank = rank,
		.options = OPTIONS,
		.gets = true};
	return rma_ref_post(coll, &op, request);
}
/* What is done is there. */
static int flush(CTX_PARAMS, void *mhandle, uint32_t rank, void **request)
{
	*request = NULL;
	return NCCL_SUCCESS;
}
#endif
#if V >= 16
static int claims(void *coll, struct nccl_rma_properties *p)
{
	p->flushes_all_puts_on_any_signal = false;
	if (rma_is_mutant("wide-claims"))
		((char *)p)[1] = 0;
	return NCCL_SUCCESS;
}
#endif

static char name[] = "Reference";
extern table_v TABLE;
RPWI_EXPORT table_v TABLE = {
	.name = name,
	.init = init,
	.devices = devices,
	.getProperties = properties,
	.listen = listen_on,
	.connect = connect_to,
	.createContext = context,
	.regMrSym = reg,
	.deregMrSym = rma_ref_dereg,
	.destroyContext = context_end,
	.closeColl = rma_ref_close,
	.closeListen = rma_ref_close_listen,
	.iput = put,
	.iputSignal = put_signal,
	.test = rma_ref_test,
	.progress = rma_ref_progress,
	.queryLastError = rma_ref_query,
	.finalize = finalize,
#if V >= 13
	.iget = get,
	.iflush = flush,
#endif
#if V >= 16
	.getRmaProperties = claims,
#endif
};

__attribute__((constructor)) static void begin(void)
{
	if (rma_is_mutant("null-name"))
		TABLE.name = "";
	if (rma_is_mutant("null-put"))
		TABLE.iput = NULL;
#if V >= 13
	if (rma_is_mutant("null-flush"))
		TABLE.iflush = NULL;
#endif
}
