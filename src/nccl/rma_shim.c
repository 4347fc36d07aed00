/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_shim.c - the table of one version of NCCL's one-sided interface: GIN and V say which;
 * meson.build compiles it once for each. Every difference between the versions is here, as a
 * condition on V. Facts: ncclnet/abi/rma.h. */
#include "nccl/rma.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#if GIN
#define API (PLUGIN_API_GIN + V)
#define EXPORTED CAT(ncclGinPlugin_v, V)
typedef struct CAT(nccl_gin_v, V) table_v;
#else
#define API (PLUGIN_API_RMA + V)
#define EXPORTED CAT(ncclRmaPlugin_v, V)
typedef struct CAT(nccl_rma_v, V) table_v;
#endif
#if V >= 13
typedef struct nccl_net_properties_v12 properties_v;
#else
typedef struct nccl_net_properties_v11 properties_v;
#endif

static int shim_init(void **instance, uint64_t comm_id, nccl_logger log)
{
	return rma_init(API, log, instance);
}
static int shim_devices(int *ndev) { return rma_devices(API, ndev); }
static int shim_finalize(void *instance) { return plugin_finalize(API, instance); }

/* The device type is that of NCCL's own backends for a host: its GIN proxy works with them. */
static int shim_properties(int dev, properties_v *p)
{
	const struct plugin_device *d = plugin_device(dev);
	if (!d)
		return plugin_no_device(dev);
	*p = (properties_v)
	{
		.name = (char *)d->name, .pci_path = d->pci_path, .guid = d->guid,
		.ptr_support = rma_ptr_support(), .speed = d->speed, .port = 0, .latency = 0,
		.max_comms = PLUGIN_COMMS_MAX, .max_recvs = PLUGIN_RECVS_MAX,
		.device_type = NCCL_NET_DEVICE_GIN_PROXY,
		.max_p2p_bytes = (size_t)1 << PLUGIN_BYTES_MAX_LOG2,
		.max_coll_bytes = (size_t)1 << PLUGIN_BYTES_MAX_LOG2, .max_multi_request_size = 1,
#if V >= 13
		.rail_id = -1, .plane_id = -1,
#endif
	};
	p->v_props.ndevs = RPWI_MIN(d->parts.ndevs, (int)RPWI_ARRAY_LEN(p->v_props.devs));
	memcpy(p->v_props.devs, d->parts.devs, (size_t)p->v_props.ndevs * sizeof(int));
	return NCCL_SUCCESS;
}

#if V >= 16
/* Several connections have no order among each other. */
static int shim_rma_properties(void *coll, struct nccl_rma_properties *p)
{
	p->flushes_all_puts_on_any_signal = false;
	return rma_comm_check(coll, API, "getRmaProperties");
}
#endif

static int shim_listen(void *instance, int dev, void *handle, void **listen_comm)
{
	return plugin_listen(API, dev, handle, listen_comm);
}
#if V == 12
static int shim_connect(void *instance, void **handles, int ranks, int rank, int connections,
	int queue_depth, void *listen_comm, void **coll)
{
	return rma_connect(API, handles, ranks, rank, connections, listen_comm, coll);
}
#else
static int shim_connect(
	void *instance, void **handles, int ranks, int rank, void *listen_comm, void **coll)
{
	return rma_connect(API, handles, ranks, rank, 1, listen_comm, coll);
}
#endif

#if V >= 14
static int shim_context(void *coll, struct nccl_rma_config *config, void **ctx)
{
	return rma_context_create(API, coll, config->contexts, config->traffic_class, ctx);
}
#elif V == 13
static int shim_context(void *coll, struct nccl_gin_config_v13 *config, void **ctx,
	struct nccl_net_device_handle **device)
{
	if (device)
		*device = NULL;
	return rma_context_create(API, coll, config->contexts, config->traffic_class, ctx);
}
#elif V == 12
static int shim_context(void *coll, int signals, int counters, int contexts, void **ctx,
	struct nccl_net_device_handle **device)
{
	if (device)
		*device = NULL;
	return rma_context_create(API, coll, contexts, -1, ctx);
}
#else
static int shim_context(
	void *coll, int signals, int counters, void **ctx, struct nccl_net_device_handle **device)
{
	if (device)
		*device = NULL;
	return rma_context_create(API, coll, 1, -1, ctx);
}
#endif
static int shim_context_destroy(void *ctx) { return rma_context_destroy(API, ctx); }

#if V >= 14
static int shim_reg(void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle)
{
	return rma_reg(API, coll, data, size, type, flags, mhandle);
}
static int shim_reg_dmabuf(void *coll, void *data, size_t size, int type, uint64_t offset, int fd,
	uint64_t flags, void **mhandle)
{
	return rma_reg_dmabuf(API, coll, mhandle);
}
#else
/* NCCL's proxy gives the second one to kernels, and back to us as an mhandle. */
static int shim_reg(void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle,
	void **gin_handle)
{
	int rc = rma_reg(API, coll, data, size, type, flags, mhandle);
	*gin_handle = *mhandle;
	return rc;
}
static int shim_reg_dmabuf(void *coll, void *data, size_t size, int type, uint64_t offset, int fd,
	uint64_t flags, void **mhandle, void **gin_handle)
{
	*gin_handle = NULL;
	return rma_reg_dmabuf(API, coll, mhandle);
}
#endif
static int shim_dereg(void *coll, void *mhandle) { return rma_dereg(API, coll, mhandle); }
static int shim_close_coll(void *coll) { return rma_close(API, coll); }
static int shim_close_listen(void *comm) { return plugin_close(API, comm, PLUGIN_LISTEN); }

#if V >= 13
#define CTX_ARGS void *ctx, int nth
#define LAST_ARGS
#elif V == 12
#define CTX_ARGS void *ctx
#define LAST_ARGS int nth,
#else
#define CTX_ARGS void *ctx
#define LAST_ARGS
enum { nth = 0 };
#endif
#if V >= 15
#define OPTION_ARGS uint32_t options,
#else
#define OPTION_ARGS
enum { options = 0 };
#endif
#if V >= 14
#define STRONG_ARGS bool strong,
#else
#define STRONG_ARGS
enum { strong = true }; /* all are */
#endif

static int shim_iput(CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
	void *to, uint32_t rank, OPTION_ARGS LAST_ARGS void **request)
{
	return rma_put(API, ctx, nth,
		&(struct rma_op){.call = "iput",
			.from_off = from_off,
			.from = from,
			.size = size,
			.to_off = to_off,
			.to = to,
			.rank = rank,
			.options = options},
		request);
}
/* Without a destination it is the signal alone. */
static int shim_iput_signal(CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
	void *to, uint32_t rank, uint64_t signal_off, void *signal, uint64_t value, uint32_t op,
	STRONG_ARGS OPTION_ARGS LAST_ARGS void **request)
{
	return rma_put(API, ctx, nth,
		&(struct rma_op){.call = "iputSignal",
			.from_off = from_off,
			.from = from,
			.size = to ? size : 0,
			.to_off = to_off,
			.to = to,
			.rank = rank,
			.options = options,
			.signals = true,
			.strong = strong,
			.signal_off = signal_off,
			.signal = signal,
			.value = value,
			.op = op},
		request);
}
#if V >= 13
static int shim_iget(CTX_ARGS, uint64_t from_off, void *from, size_t size, uint64_t to_off,
	void *to, uint32_t rank, OPTION_ARGS void **request)
{
	return rma_get(API, ctx, nth,
		&(struct rma_op){.call = "iget",
			.from_off = from_off,
			.from = from,
			.size = size,
			.to_off = to_off,
			.to = to,
			.rank = rank,
			.options = options},
		request);
}
static int shim_iflush(CTX_ARGS, void *mhandle, uint32_t rank, void **request)
{
	return rma_flush(API, ctx, nth, mhandle, rank, request);
}
#endif
static int shim_test(void *coll, void *request, int *done)
{
	return rma_test(API, coll, request, done);
}
static int shim_progress(void *ctx) { return rma_progress(API, ctx); }
static int shim_query(void *ctx, bool *failed) { return rma_query(API, ctx, failed); }

extern const table_v EXPORTED;
RPWI_EXPORT const table_v EXPORTED = {
	.name = "ropeway",
	.init = shim_init,
	.devices = shim_devices,
#if V >= 16
	.getRmaProperties = shim_rma_properties,
#endif
	.getProperties = shim_properties,
	.listen = shim_listen,
	.connect = shim_connect,
	.createContext = shim_context,
	.regMrSym = shim_reg,
	.regMrSymDmaBuf = shim_reg_dmabuf,
	.deregMrSym = shim_dereg,
	.destroyContext = shim_context_destroy,
	.closeColl = shim_close_coll,
	.closeListen = shim_close_listen,
	.iput = shim_iput,
	.iputSignal = shim_iput_signal,
#if V >= 13
	.iget = shim_iget,
	.iflush = shim_iflush,
#endif
	.test = shim_test,
	.progress = shim_progress,
	.queryLastError = shim_query,
	.finalize = shim_finalize,
};
