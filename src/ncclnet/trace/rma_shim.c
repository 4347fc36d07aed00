/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_shim.c - one table of one-sided operations, whose calls go to the plugin's table of the same
 * name and version: GIN and V say which; meson.build compiles it once for each. The differences
 * between the tables are here, as in ncclnet/abi/rma_table.h. */
#include <string.h>

#include "base/base.h"
#include "ncclnet/trace/trace.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#if GIN
#define TABLE CAT(ncclGinPlugin_v, V)
#define PREPARE CAT(trace_prepare_gin_v, V)
typedef struct CAT(nccl_gin_v, V) table_v;
enum { CODE = TRACE_GIN + V };
#else
#define TABLE CAT(ncclRmaPlugin_v, V)
#define PREPARE CAT(trace_prepare_rma_v, V)
typedef struct CAT(nccl_rma_v, V) table_v;
enum { CODE = TRACE_RMA + V };
#endif
#if V >= 13
typedef struct nccl_net_properties_v12 properties_v;
#else
typedef struct nccl_net_properties_v11 properties_v;
#endif
#define T ((const table_v *)trace_tables[CODE])
#define BEGIN(name, comm) \
	struct trace_call c; \
	trace_begin(&c, CODE, name, comm, __builtin_return_address(0))

void PREPARE(void);

static int shim_init(void **instance, uint64_t comm_id, nccl_logger log)
{
	BEGIN("init", NULL);
	int rc = T->init(instance, comm_id, log);
	PREPARE(); /* again: plugins fill in what is optional in init */
	return trace_end(&c, rc, "instance %s", RPWI_AT(*instance));
}
static int shim_finalize(void *instance)
{
	BEGIN("finalize", NULL);
	return trace_end(&c, T->finalize(instance), "instance %s", RPWI_AT(instance));
}
static int shim_devices(int *ndev)
{
	BEGIN("devices", NULL);
	int rc = T->devices(ndev);
	return trace_end(&c, rc, "%d", *ndev);
}
static int shim_properties(int dev, properties_v *p)
{
	BEGIN("getProperties", NULL);
	int rc = T->getProperties(dev, p);
	if (!rc)
		trace_device(CODE, dev, p->ptr_support, p->max_recvs, false);
	return trace_end(&c, rc, "device %d", dev);
}
#if V >= 16
static int shim_rma_properties(void *coll, struct nccl_rma_properties *p)
{
	BEGIN("getRmaProperties", coll);
	return trace_end(&c, T->getRmaProperties(coll, p), "comm %s", RPWI_AT(coll));
}
#endif

/* ---- comms ---- */

static int shim_listen(void *instance, int dev, void *handle, void **comm)
{
	BEGIN("listen", NULL);
	int rc = T->listen(instance, dev, handle, comm);
	trace_listen_done(&c, rc, dev, handle, *comm);
	return trace_end(&c, rc, "device %d, comm %s", dev, RPWI_AT(*comm));
}

#if V == 12
#define CONNECT_PARAMS int connections, int queue_depth,
#define CONNECT connections, queue_depth,
#else
#define CONNECT_PARAMS
#define CONNECT
#endif
static int shim_connect(void *instance, void **handles, int ranks, int rank,
	CONNECT_PARAMS void *listen, void **coll)
{
	BEGIN("connect", NULL);
	trace_coll_begin(&c, handles, ranks, rank, listen);
	int rc = T->connect(instance, handles, ranks, rank, CONNECT listen, coll);
	trace_coll_done(&c, rc, ranks, listen, *coll);
	return trace_end(&c, rc, "rank %d of %d, comm %s", rank, ranks, RPWI_AT(*coll));
}

#if V >= 14
#define CONTEXT_PARAMS struct nccl_rma_config *config, void **ctx
#define CONTEXT config, ctx
#elif V == 13
#define CONTEXT_PARAMS \
	struct nccl_gin_config_v13 *config, void **ctx, struct nccl_net_device_handle **device
#define CONTEXT config, ctx, device
#elif V == 12
#define CONTEXT_PARAMS \
	int signals, int counters, int contexts, void **ctx, struct nccl_net_device_handle **device
#define CONTEXT signals, counters, contexts, ctx, device
#else
#define CONTEXT_PARAMS int signals, int counters, void **ctx, struct nccl_net_device_handle **device
#define CONTEXT signals, counters, ctx, device
#endif
static int shim_context(void *coll, CONTEXT_PARAMS)
{
	BEGIN("createContext", coll);
	int rc = T->createContext(coll, CONTEXT);
	trace_context_done(&c, rc, *ctx);
	return trace_end(&c, rc, "comm %s, context %s", RPWI_AT(coll), RPWI_AT(*ctx));
}
static int shim_context_destroy(void *ctx)
{
	BEGIN("destroyContext", NULL);
	trace_context_end(&c, ctx);
	return trace_end(&c, T->destroyContext(ctx), "context %s", RPWI_AT(ctx));
}
static int shim_close_coll(void *coll)
{
	BEGIN("closeColl", coll);
	return trace_close(&c, TRACE_COLL, T->closeColl, coll);
}
static int shim_close_listen(void *comm)
{
	BEGIN("closeListen", comm);
	return trace_close(&c, TRACE_LISTEN, T->closeListen, comm);
}

/* ---- registrations ---- */

#if V >= 14
#define REG_PARAM
#define REG
#else
#define REG_PARAM , void **gin_handle
#define REG , gin_handle
#endif
static int shim_reg(
	void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle REG_PARAM)
{
	BEGIN("regMrSym", coll);
	trace_reg_begin(&c, type);
	int rc = T->regMrSym(coll, data, size, type, flags, mhandle REG);
	trace_reg_done(&c, rc, data, size, type, *mhandle);
	return trace_end(&c, rc, "comm %s, %zu bytes at %s, type %d, mhandle %s", RPWI_AT(coll),
		size, RPWI_AT(data), type, RPWI_AT(*mhandle));
}
static int shim_reg_dmabuf(void *coll, void *data, size_t size, int type, uint64_t offset, int fd,
	uint64_t flags, void **mhandle REG_PARAM)
{
	BEGIN("regMrSymDmaBuf", coll);
	trace_reg_begin(&c, type);
	int rc = T->regMrSymDmaBuf(coll, data, size, type, offset, fd, flags, mhandle REG);
	trace_reg_done(&c, rc, data, size, type, *mhandle);
	return trace_end(&c, rc, "comm %s, %zu bytes at %s, mhandle %s", RPWI_AT(coll), size,
		RPWI_AT(data), RPWI_AT(*mhandle));
}
static int shim_dereg(void *coll, void *mhandle)
{
	BEGIN("deregMrSym", coll);
	trace_dereg_begin(&c, mhandle);
	return trace_end(&c, T->deregMrSym(coll, mhandle), "comm %s, mhandle %s", RPWI_AT(coll),
		RPWI_AT(mhandle));
}

/* ---- operations ---- */

#if V >= 13
#define CTX_PARAMS void *ctx, int index
#define CTX ctx, index
#define COLL trace_coll_of(ctx)
#else
#define CTX_PARAMS void *ctx
#define CTX ctx
#define COLL ctx
#endif
#if V >= 15
#define LAST_PARAMS uint32_t options,
#define LAST options,
#elif V == 12
#define LAST_PARAMS int index,
#define LAST index,
#else
#define LAST_PARAMS
#define LAST
#endif
#if V >= 14
#define STRONG_PARAM bool strong,
#define STRONG strong,
#else
#define STRONG_PARAM
#define STRONG
#endif
#define OP_PARAMS uint64_t from_at, void *from, size_t size, uint64_t to_at, void *to, uint32_t rank
#define OP from_at, from, size, to_at, to, rank

static int shim_iput(CTX_PARAMS, OP_PARAMS, LAST_PARAMS void **request)
{
	BEGIN("iput", COLL);
	trace_op_begin(&c, &(struct trace_op){from, to, NULL, from_at, to_at, size, rank, false});
	int rc = T->iput(CTX, OP, LAST request);
	trace_op_posted(&c, rc, *request);
	return trace_end(&c, rc, "comm %s, %zu bytes to rank %u, request %s", RPWI_AT(c.comm), size,
		rank, RPWI_AT(*request));
}
static int shim_iput_signal(CTX_PARAMS, OP_PARAMS, uint64_t signal_at, void *signal, uint64_t value,
	uint32_t kind, STRONG_PARAM LAST_PARAMS void **request)
{
	BEGIN("iputSignal", COLL);
	trace_op_begin(&c, &(struct trace_op){from, to, signal, from_at, to_at, size, rank, false});
	int rc = T->iputSignal(CTX, OP, signal_at, signal, value, kind, STRONG LAST request);
	trace_op_posted(&c, rc, *request);
	return trace_end(&c, rc, "comm %s, %zu bytes to rank %u, operation %u of %llu, request %s",
		RPWI_AT(c.comm), size, rank, kind, (unsigned long long)value, RPWI_AT(*request));
}
#if V >= 13
static int shim_iget(CTX_PARAMS, OP_PARAMS, LAST_PARAMS void **request)
{
	BEGIN("iget", COLL);
	trace_op_begin(&c, &(struct trace_op){from, to, NULL, from_at, to_at, size, rank, true});
	int rc = T->iget(CTX, OP, LAST request);
	trace_op_posted(&c, rc, *request);
	return trace_end(&c, rc, "comm %s, %zu bytes from rank %u, request %s", RPWI_AT(c.comm),
		size, rank, RPWI_AT(*request));
}
static int shim_iflush(CTX_PARAMS, void *mhandle, uint32_t rank, void **request)
{
	BEGIN("iflush", COLL);
	int rc = T->iflush(CTX, mhandle, rank, request);
	/* none: there is nothing to flush */
	if (*request)
		trace_op_posted(&c, rc, *request);
	return trace_end(
		&c, rc, "comm %s, rank %u, request %s", RPWI_AT(c.comm), rank, RPWI_AT(*request));
}
#endif
static int shim_test(void *coll, void *request, int *done)
{
	BEGIN("test", coll);
	trace_test_begin(&c, request);
	int rc = T->test(coll, request, done);
	trace_test_done(&c, rc, request, *done, NULL);
	return *done || rc ? trace_end(&c, rc, "request %s, done %d", RPWI_AT(request), *done) : rc;
}
/* Called over and over: no lines, until something is wrong. */
static int shim_progress(void *ctx)
{
	int rc = T->progress(ctx);
	if (!rc)
		return rc;
	BEGIN("progress", NULL);
	return trace_end(&c, rc, "context %s", RPWI_AT(ctx));
}
static int shim_query(void *ctx, bool *failed)
{
	int rc = T->queryLastError(ctx, failed);
	if (!rc && !*failed)
		return rc;
	BEGIN("queryLastError", NULL);
	return trace_end(&c, rc, "context %s has failed", RPWI_AT(ctx));
}

extern table_v TABLE;
RPWI_EXPORT table_v TABLE = {
	.init = shim_init,
	.devices = shim_devices,
	.getProperties = shim_properties,
	.listen = shim_listen,
	.connect = shim_connect,
	.regMrSym = shim_reg,
	.deregMrSym = shim_dereg,
	.closeColl = shim_close_coll,
	.closeListen = shim_close_listen,
	.iput = shim_iput,
	.iputSignal = shim_iput_signal,
	.test = shim_test,
	.finalize = shim_finalize,
#if V >= 13
	.iget = shim_iget,
#endif
#if V >= 16
	.getRmaProperties = shim_rma_properties,
#endif
};

/* What the plugin leaves out is left out here, too. */
void PREPARE(void)
{
	table_v *t = &TABLE;
	t->name = T->name;
	t->createContext = T->createContext ? shim_context : NULL;
	t->destroyContext = T->destroyContext ? shim_context_destroy : NULL;
	t->regMrSymDmaBuf = T->regMrSymDmaBuf ? shim_reg_dmabuf : NULL;
	t->progress = T->progress ? shim_progress : NULL;
	t->queryLastError = T->queryLastError ? shim_query : NULL;
#if V >= 13
	t->iflush = T->iflush ? shim_iflush : NULL;
#endif
}
