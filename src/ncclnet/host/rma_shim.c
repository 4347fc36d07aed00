/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_shim.c - calls through one table of NCCL's one-sided interface: GIN and V say which;
 * meson.build compiles it once for each. */
#include "ncclnet/host/rma.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#if GIN
#define CALLS CAT(ncclnet_rma_calls_gin_v, V)
typedef struct CAT(nccl_gin_v, V) table_v;
#else
#define CALLS CAT(ncclnet_rma_calls_v, V)
typedef struct CAT(nccl_rma_v, V) table_v;
#endif
#define T ((const table_v *)table)
#define SLOT(call) (1u << (offsetof(table_v, call) / sizeof(void *)))
#if V >= 13
#define CTX ctx, nth
#else
#define CTX coll
#endif

static const char *shim_name(const void *table) { return T->name; }
static int shim_init(const void *table, void **instance, nccl_logger log)
{
	*instance = NULL;
	return T->init(instance, 0, log);
}
static int shim_devices(const void *table, int *ndev)
{
	*ndev = 0;
	return T->devices(ndev);
}
static int shim_rma_properties(const void *table, void *coll, struct nccl_rma_properties *p)
{
	*p = (struct nccl_rma_properties){false};
#if V >= 16
	return T->getRmaProperties(coll, p);
#else
	return NCCLNET_ABSENT;
#endif
}
static int shim_properties(const void *table, int dev, struct nccl_net_properties_v12 *p)
{
	memset(p, 0, sizeof(*p));
#if V >= 13
	return T->getProperties(dev, p);
#else
	struct nccl_net_properties_v11 own = {0};
	int rc = T->getProperties(dev, &own);
	*p = (struct nccl_net_properties_v12){.name = own.name,
		.pci_path = own.pci_path,
		.guid = own.guid,
		.ptr_support = own.ptr_support,
		.speed = own.speed,
		.max_comms = own.max_comms,
		.max_recvs = own.max_recvs,
		.device_type = own.device_type,
		.max_p2p_bytes = own.max_p2p_bytes,
		.rail_id = -1,
		.plane_id = -1};
	return rc;
#endif
}
static int shim_listen(const void *table, void *instance, int dev, void *handle, void **listen_comm)
{
	*listen_comm = NULL;
	memset(handle, 0, NCCL_RMA_HANDLE_BYTES);
	return T->listen(instance, dev, handle, listen_comm);
}
static int shim_connect(const void *table, void *instance, void **handles, int ranks, int rank,
	int contexts, void *listen_comm, void **coll)
{
	*coll = NULL;
#if V == 12
	return T->connect(instance, handles, ranks, rank, contexts, 0, listen_comm, coll);
#else
	return V == 11 && contexts > 1
		       ? NCCLNET_ABSENT
		       : T->connect(instance, handles, ranks, rank, listen_comm, coll);
#endif
}
/* Of v11 and v12 only devices that a GPU drives have any: their proxies pass the coll comm. */
static int shim_context(const void *table, void *coll, int contexts, void **ctx)
{
	*ctx = NULL;
#if V >= 14
	struct nccl_rma_config config = {
		.contexts = contexts, .traffic_class = -1, .rank_stride = 1};
	return T->createContext(coll, &config, ctx);
#elif V == 13
	struct nccl_net_device_handle *device = NULL;
	struct nccl_gin_config_v13 config = {.contexts = contexts, .traffic_class = -1};
	return T->createContext(coll, &config, ctx, &device);
#else
	return NCCL_SUCCESS;
#endif
}
static int shim_reg(const void *table, void *coll, void *data, size_t size, int type,
	uint64_t flags, void **mhandle)
{
	*mhandle = NULL;
#if V >= 14
	return T->regMrSym(coll, data, size, type, flags, mhandle);
#else
	void *gin_handle = NULL, *own = NULL;
	int rc = T->regMrSym(coll, data, size, type, flags, &own, &gin_handle);
	*mhandle = own;
	return rc;
#endif
}
static int shim_reg_dmabuf(const void *table, void *coll, void *data, size_t size, int type,
	uint64_t offset, int fd, uint64_t flags, void **mhandle)
{
	*mhandle = NULL;
	if (!T->regMrSymDmaBuf)
		return NCCLNET_ABSENT;
#if V >= 14
	return T->regMrSymDmaBuf(coll, data, size, type, offset, fd, flags, mhandle);
#else
	void *gin_handle = NULL;
	return T->regMrSymDmaBuf(coll, data, size, type, offset, fd, flags, mhandle, &gin_handle);
#endif
}
static int shim_dereg(const void *table, void *coll, void *mhandle)
{
	return T->deregMrSym(coll, mhandle);
}
static int shim_context_destroy(const void *table, void *ctx)
{
	return ctx ? T->destroyContext(ctx) : NCCL_SUCCESS;
}
static int shim_close_coll(const void *table, void *coll) { return T->closeColl(coll); }
static int shim_close_listen(const void *table, void *comm) { return T->closeListen(comm); }

#if V >= 15
#define OPTIONS op->options,
#define CAN_OPTIONS true
#else
#define OPTIONS
#define CAN_OPTIONS false
#endif
#if V >= 14
#define STRONG !op->weak,
#define CAN_WEAK true
#else
#define STRONG
#define CAN_WEAK false
#endif
#if V == 12
#define NTH nth,
#else
#define NTH
#endif
static int shim_put(const void *table, void *coll, void *ctx, int nth,
	const struct ncclnet_rma_op *op, void **request)
{
	*request = NULL;
	if ((op->options && !CAN_OPTIONS) || (op->weak && !CAN_WEAK) || (V == 11 && nth))
		return NCCLNET_ABSENT;
	if (!op->signals)
		return T->iput(CTX, op->from_off, op->from, op->size, op->to_off, op->to, op->rank,
			OPTIONS NTH request);
	return T->iputSignal(CTX, op->from_off, op->from, op->size, op->to_off, op->to, op->rank,
		op->signal_off, op->signal, op->value, op->signal_op, STRONG OPTIONS NTH request);
}
static int shim_get(const void *table, void *coll, void *ctx, int nth,
	const struct ncclnet_rma_op *op, void **request)
{
	*request = NULL;
#if V >= 13
	if (op->options && !CAN_OPTIONS)
		return NCCLNET_ABSENT;
	return T->iget(CTX, op->from_off, op->from, op->size, op->to_off, op->to, op->rank,
		OPTIONS request);
#else
	return NCCLNET_ABSENT;
#endif
}
static int shim_flush(const void *table, void *coll, void *ctx, int nth, void *mhandle,
	uint32_t rank, void **request)
{
	*request = NULL;
#if V >= 13
	return T->iflush ? T->iflush(CTX, mhandle, rank, request) : NCCLNET_ABSENT;
#else
	return NCCLNET_ABSENT;
#endif
}
static int shim_test(const void *table, void *coll, void *request, int *done)
{
	*done = 0;
	return T->test(coll, request, done);
}
static int shim_progress(const void *table, void *coll, void *ctx)
{
	if (!T->progress)
		return NCCLNET_ABSENT;
	return T->progress(V >= 13 ? ctx : coll);
}
static int shim_query(const void *table, void *coll, void *ctx, bool *failed)
{
	*failed = false;
	if (!T->queryLastError)
		return NCCLNET_ABSENT;
	return T->queryLastError(V >= 13 ? ctx : coll, failed);
}
static int shim_finalize(const void *table, void *instance) { return T->finalize(instance); }

extern const struct ncclnet_rma_calls CALLS;
const struct ncclnet_rma_calls CALLS = {.name = shim_name,
	.init = shim_init,
	.devices = shim_devices,
	.rma_properties = shim_rma_properties,
	.properties = shim_properties,
	.listen = shim_listen,
	.connect = shim_connect,
	.context = shim_context,
	.reg = shim_reg,
	.reg_dmabuf = shim_reg_dmabuf,
	.dereg = shim_dereg,
	.context_destroy = shim_context_destroy,
	.close_coll = shim_close_coll,
	.close_listen = shim_close_listen,
	.put = shim_put,
	.get = shim_get,
	.flush = shim_flush,
	.test = shim_test,
	.progress = shim_progress,
	.query = shim_query,
	.finalize = shim_finalize,
	.slots = sizeof(table_v) / sizeof(void *),
	.optional_slots = SLOT(regMrSymDmaBuf) | SLOT(progress) | SLOT(queryLastError)
#if V >= 13
			  | SLOT(iflush)
#endif
#if V < 13
			  | SLOT(createContext) | SLOT(destroyContext)
#endif
};
