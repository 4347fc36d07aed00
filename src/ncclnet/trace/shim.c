/* SPDX-License-Identifier: BSD-3-Clause */
/* shim.c - the table of one version of the plugin API, V, whose calls go to the plugin's table of
 * the same version; meson.build compiles it once for each. Every difference between the versions is
 * here, as a condition on V. Facts: ncclnet/abi/tables.h. */
#include <string.h>

#include "base/base.h"
#include "ncclnet/abi/tables.h"
#include "ncclnet/trace/trace.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
typedef struct CAT(nccl_net_v, V) table_v;
typedef struct CAT(nccl_net_properties_v, V) properties_v;
#define T ((const table_v *)trace_tables[V])
#define BEGIN(name, comm) \
	struct trace_call c; \
	trace_begin(&c, V, name, comm, __builtin_return_address(0))

void CAT(trace_prepare_v, V)(void);

#if V >= 9
typedef size_t size_v;
#else
typedef int size_v;
#endif

#if V >= 11
static int shim_init(void **ctx, uint64_t comm_id, struct nccl_net_comm_config *config,
	nccl_logger log, nccl_profiler profiler)
{
	BEGIN("init", NULL);
	int rc = T->init(ctx, comm_id, config, log, profiler);
	CAT(trace_prepare_v, V)(); /* again: plugins fill in what is optional in init */
	return trace_end(&c, rc, "context %s", RPWI_AT(*ctx));
}
static int shim_finalize(void *ctx)
{
	BEGIN("finalize", NULL);
	return trace_end(
		&c, T->finalize ? T->finalize(ctx) : NCCL_SUCCESS, "context %s", RPWI_AT(ctx));
}
static int shim_set_attr(void *ctx, struct nccl_net_attr *attr)
{
	BEGIN("setNetAttr", NULL);
	return trace_end(&c, T->setNetAttr ? T->setNetAttr(ctx, attr) : NCCL_SUCCESS, "context %s",
		RPWI_AT(ctx));
}
#elif V == 10
static int shim_init(nccl_logger log, nccl_profiler profiler)
{
	BEGIN("init", NULL);
	int rc = T->init(log, profiler);
	CAT(trace_prepare_v, V)(); /* again: plugins fill in what is optional in init */
	return trace_end(&c, rc, "%s", "");
}
#else
static int shim_init(nccl_logger log)
{
	BEGIN("init", NULL);
	int rc = T->init(log);
	CAT(trace_prepare_v, V)(); /* again: plugins fill in what is optional in init */
	return trace_end(&c, rc, "%s", "");
}
#endif

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
#if V >= 8
		trace_device(V, dev, p->ptr_support, p->max_recvs, p->reg_is_global);
#else
		trace_device(V, dev, p->ptr_support, p->max_recvs, false);
#endif
	return trace_end(&c, rc, "device %d", dev);
}

#if V >= 11
#define CTX_PARAM void *ctx,
#define CTX ctx,
#else
#define CTX_PARAM
#define CTX
#endif
static int shim_listen(CTX_PARAM int dev, void *handle, void **comm)
{
	BEGIN("listen", NULL);
	int rc = T->listen(CTX dev, handle, comm);
	trace_listen_done(&c, rc, dev, handle, *comm);
	return trace_end(&c, rc, "device %d, comm %s", dev, RPWI_AT(*comm));
}

#if V >= 7
#define DEVICE_PARAM , struct nccl_net_device_handle **device
#define DEVICE , device
#else
#define DEVICE_PARAM
#define DEVICE
#endif
#if V == 10
#define CONFIG_PARAM struct nccl_net_comm_config *config,
#define CONFIG config,
#else
#define CONFIG_PARAM
#define CONFIG
#endif
static int shim_connect(CTX_PARAM int dev, CONFIG_PARAM void *handle, void **comm DEVICE_PARAM)
{
	BEGIN("connect", NULL);
	trace_connect_begin(&c, handle);
	int rc = T->connect(CTX dev, CONFIG handle, comm DEVICE);
	trace_connect_done(&c, rc, dev, handle, *comm);
	return trace_end(&c, rc, "device %d, comm %s", dev, RPWI_AT(*comm));
}

static int shim_accept(void *listen_comm, void **comm DEVICE_PARAM)
{
	BEGIN("accept", listen_comm);
	int rc = T->accept(listen_comm, comm DEVICE);
	trace_accept_done(&c, rc, *comm);
	return trace_end(&c, rc, "comm %s", RPWI_AT(*comm));
}

#if V >= 8
static int shim_reg(void *comm, void *data, size_t size, int type, void **mhandle)
#else
static int shim_reg(void *comm, void *data, int size, int type, void **mhandle)
#endif
{
	BEGIN("regMr", comm);
	trace_reg_begin(&c, type);
	int rc = T->regMr(comm, data, size, type, mhandle);
	trace_reg_done(&c, rc, data, (size_t)size, type, *mhandle);
	return trace_end(&c, rc, "comm %s, %zu bytes at %s, type %d, mhandle %s", RPWI_AT(comm),
		(size_t)size, RPWI_AT(data), type, RPWI_AT(*mhandle));
}

#if V >= 6
static int shim_reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle)
{
	BEGIN("regMrDmaBuf", comm);
	trace_reg_begin(&c, type);
	int rc = T->regMrDmaBuf(comm, data, size, type, offset, fd, mhandle);
	trace_reg_done(&c, rc, data, size, type, *mhandle);
	return trace_end(&c, rc, "comm %s, %zu bytes at %s, mhandle %s", RPWI_AT(comm), size,
		RPWI_AT(data), RPWI_AT(*mhandle));
}
#endif

static int shim_dereg(void *comm, void *mhandle)
{
	BEGIN("deregMr", comm);
	trace_dereg_begin(&c, mhandle);
	return trace_end(&c, T->deregMr(comm, mhandle), "comm %s, mhandle %s", RPWI_AT(comm),
		RPWI_AT(mhandle));
}

#if V >= 10
#define PHANDLE_PARAM void *phandle,
#define PHANDLES_PARAM void **phandles,
#define PHANDLE phandle,
#define PHANDLES phandles,
#else
#define PHANDLE_PARAM
#define PHANDLES_PARAM
#define PHANDLE
#define PHANDLES
#endif
static int shim_isend(
	void *comm, void *data, size_v size, int tag, void *mhandle, PHANDLE_PARAM void **request)
{
	BEGIN("isend", comm);
	size_t bytes = (size_t)size;
	trace_send_begin(&c, data, bytes, mhandle);
	int rc = T->isend(comm, data, size, tag, mhandle, PHANDLE request);
	trace_posted(&c, rc, *request, false, 1, &bytes, false);
	return trace_end(&c, rc, "comm %s, %zu bytes at %s, tag %d, mhandle %s, request %s",
		RPWI_AT(comm), bytes, RPWI_AT(data), tag, RPWI_AT(mhandle), RPWI_AT(*request));
}

static int shim_irecv(void *comm, int n, void **data, size_v *sizes, int *tags, void **mhandles,
	PHANDLES_PARAM void **request)
{
	BEGIN("irecv", comm);
	size_t bytes[NCCL_NET_GROUP_MAX] = {0};
	for (int i = 0; i < RPWI_MIN(n, (int)NCCL_NET_GROUP_MAX); i++)
		bytes[i] = (size_t)sizes[i];
	trace_recv_begin(&c, n, data, bytes, mhandles);
	int rc = T->irecv(comm, n, data, sizes, tags, mhandles, PHANDLES request);
	trace_posted(&c, rc, *request, true, n, bytes, V >= 9);
	return trace_end(&c, rc, "comm %s, %d of %zu bytes at %s, tag %d, request %s",
		RPWI_AT(comm), n, bytes[0], RPWI_AT(n > 0 ? data[0] : NULL), n > 0 ? tags[0] : 0,
		RPWI_AT(*request));
}

static int shim_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	BEGIN("iflush", comm);
	int rc = T->iflush(comm, n, data, sizes, mhandles, request);
	/* none: there is nothing to flush */
	if (*request)
		trace_posted(&c, rc, *request, false, 0, NULL, false);
	return trace_end(&c, rc, "comm %s, %d, request %s", RPWI_AT(comm), n, RPWI_AT(*request));
}

static int shim_test(void *request, int *done, int *sizes)
{
	BEGIN("test", NULL);
	trace_test_begin(&c, request);
	int rc = T->test(request, done, sizes);
	trace_test_done(&c, rc, request, *done, sizes);
	return *done || rc ? trace_end(&c, rc, "request %s, done %d, %d bytes", RPWI_AT(request),
				     *done, sizes && *done ? sizes[0] : 0)
			   : rc;
}

static int shim_close_send(void *comm)
{
	BEGIN("closeSend", comm);
	return trace_close(&c, TRACE_SEND, T->closeSend, comm);
}
static int shim_close_recv(void *comm)
{
	BEGIN("closeRecv", comm);
	return trace_close(&c, TRACE_RECV, T->closeRecv, comm);
}
static int shim_close_listen(void *comm)
{
	BEGIN("closeListen", comm);
	return trace_close(&c, TRACE_LISTEN, T->closeListen, comm);
}

#if V >= 7
static int shim_device_mr(void *comm, void *mhandle, void **device_mhandle)
{
	BEGIN("getDeviceMr", comm);
	return trace_end(
		&c, T->getDeviceMr(comm, mhandle, device_mhandle), "comm %s", RPWI_AT(comm));
}
static int shim_consumed(void *comm, int n, void *request)
{
	BEGIN("irecvConsumed", comm);
	return trace_end(&c, T->irecvConsumed(comm, n, request), "comm %s", RPWI_AT(comm));
}
#endif
#if V >= 9
typedef __typeof__(((properties_v *)0)->v_props) vdevice_v;
static int shim_join(int *dev, vdevice_v *v)
{
	BEGIN("makeVDevice", NULL);
	return trace_end(&c, T->makeVDevice(dev, v), "device %d", *dev);
}
#endif

/* What the plugin leaves out is left out here, too: NCCL asks for it before it calls. */
extern table_v CAT(ncclNetPlugin_v, V);
RPWI_EXPORT table_v CAT(ncclNetPlugin_v, V) = {
	.init = shim_init,
	.devices = shim_devices,
	.getProperties = shim_properties,
	.listen = shim_listen,
	.connect = shim_connect,
	.accept = shim_accept,
	.regMr = shim_reg,
	.deregMr = shim_dereg,
	.isend = shim_isend,
	.irecv = shim_irecv,
	.iflush = shim_iflush,
	.test = shim_test,
	.closeSend = shim_close_send,
	.closeRecv = shim_close_recv,
	.closeListen = shim_close_listen,
};

/* Plugins fill in the rest of their tables in init (host.c), so NULL means little before. */
void CAT(trace_prepare_v, V)(void)
{
	table_v *t = &CAT(ncclNetPlugin_v, V);
	t->name = T->name;
#if V >= 6
	t->regMrDmaBuf = T->regMrDmaBuf ? shim_reg_dmabuf : NULL;
#endif
#if V >= 7
	t->getDeviceMr = T->getDeviceMr ? shim_device_mr : NULL;
	t->irecvConsumed = T->irecvConsumed ? shim_consumed : NULL;
#endif
#if V >= 9
	t->makeVDevice = T->makeVDevice ? shim_join : NULL;
#endif
#if V >= 11
	t->finalize = T->finalize ? shim_finalize : NULL;
	t->setNetAttr = T->setNetAttr ? shim_set_attr : NULL;
#endif
}
