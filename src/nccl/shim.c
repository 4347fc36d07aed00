/* SPDX-License-Identifier: BSD-3-Clause */
/* shim.c - the table of one version of the plugin API, V; meson.build compiles it once for each.
 * Every difference between the versions is here, as a condition on V. Facts: ncclnet/abi/tables.h.
 */
#include "nccl/plugin.h"

#include "ncclnet/abi/tables.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
typedef struct CAT(nccl_net_v, V) table_v;
typedef struct CAT(nccl_net_properties_v, V) properties_v;

#if V >= 11
static int shim_init(void **ctx, uint64_t comm_id, struct nccl_net_comm_config *config,
	nccl_logger log, nccl_profiler profiler)
{
	return plugin_init(V, log, (struct plugin_ctx **)ctx);
}
static int shim_finalize(void *ctx)
{
	int rc = plugin_finalize(V, ctx);
	if (!rc)
		comm_context_settle();
	return rc;
}
/* Hints on how many peers and flows there will be: nothing here depends on them. */
static int shim_set_attr(void *ctx, struct nccl_net_attr *attr) { return NCCL_SUCCESS; }
#elif V == 10
static int shim_init(nccl_logger log, nccl_profiler profiler) { return plugin_init(V, log, NULL); }
#else
static int shim_init(nccl_logger log) { return plugin_init(V, log, NULL); }
#endif

static int shim_devices(int *ndev)
{
	*ndev = plugin_devices();
	return NCCL_SUCCESS;
}

static int shim_properties(int dev, properties_v *p)
{
	const struct plugin_device *d = plugin_device(dev);
	if (!d)
		return plugin_no_device(dev);
	*p = (properties_v)
	{
		.name = (char *)d->name, .pci_path = d->pci_path, .guid = d->guid,
		.ptr_support = plugin_ptr_support(d), .speed = d->speed, .port = 0, .latency = 0,
		.max_comms = PLUGIN_COMMS_MAX, .max_recvs = PLUGIN_RECVS_MAX,
#if V >= 7
		.device_type = NCCL_NET_DEVICE_HOST,
#endif
#if V >= 9
		.max_p2p_bytes = (size_t)1 << PLUGIN_BYTES_MAX_LOG2,
		.max_coll_bytes = (size_t)1 << PLUGIN_BYTES_MAX_LOG2,
#endif
#if V >= 11
		.max_multi_request_size = 1,
#endif
#if V >= 12
		.rail_id = -1, .plane_id = -1,
#endif
	};
#if V < 6
	p->ptr_support &= ~NCCL_PTR_DMABUF; /* there is no regMrDmaBuf */
#endif
#if V >= 9
	p->v_props.ndevs = RPWI_MIN(d->parts.ndevs, (int)RPWI_ARRAY_LEN(p->v_props.devs));
	memcpy(p->v_props.devs, d->parts.devs, (size_t)p->v_props.ndevs * sizeof(int));
#endif
	return NCCL_SUCCESS;
}

#if V >= 11
static int shim_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
	return plugin_listen(V, dev, handle, listen_comm);
}
static int shim_connect(
	void *ctx, int dev, void *handle, void **send_comm, struct nccl_net_device_handle **device)
{
	return plugin_connect(V, dev, handle, send_comm);
}
#else
static int shim_listen(int dev, void *handle, void **listen_comm)
{
	return plugin_listen(V, dev, handle, listen_comm);
}
#if V == 10
static int shim_connect(int dev, struct nccl_net_comm_config *config, void *handle,
	void **send_comm, struct nccl_net_device_handle **device)
{
	return plugin_connect(V, dev, handle, send_comm);
}
#elif V >= 7
static int shim_connect(
	int dev, void *handle, void **send_comm, struct nccl_net_device_handle **device)
{
	return plugin_connect(V, dev, handle, send_comm);
}
#else
static int shim_connect(int dev, void *handle, void **send_comm)
{
	return plugin_connect(V, dev, handle, send_comm);
}
#endif
#endif

/* The device handle is for devices that kernels on the GPU work with themselves; of
 * NCCL_NET_DEVICE_HOST it is left alone. */
#if V >= 7
static int shim_accept(void *listen_comm, void **recv_comm, struct nccl_net_device_handle **device)
{
	return plugin_accept(V, listen_comm, recv_comm);
}
#else
static int shim_accept(void *listen_comm, void **recv_comm)
{
	return plugin_accept(V, listen_comm, recv_comm);
}
#endif

#if V >= 8
static int shim_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	return plugin_reg(V, comm, data, size, type, mhandle);
}
#else
static int shim_reg(void *comm, void *data, int size, int type, void **mhandle)
{
	return plugin_reg(V, comm, data, size < 0 ? SIZE_MAX : (size_t)size, type, mhandle);
}
#endif
#if V >= 6
static int shim_reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle)
{
	return plugin_reg_dmabuf(V, comm, data, size, type, offset, fd, mhandle);
}
#endif
static int shim_dereg(void *comm, void *mhandle) { return plugin_dereg(V, comm, mhandle); }

#if V >= 10
static int shim_isend(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	return plugin_isend(V, comm, data, size, tag, mhandle, request);
}
static int shim_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
	void **phandles, void **request)
{
	return plugin_irecv(V, comm, n, data, sizes, tags, mhandles, request);
}
#elif V == 9
static int shim_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return plugin_isend(V, comm, data, size, tag, mhandle, request);
}
static int shim_irecv(
	void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
	return plugin_irecv(V, comm, n, data, sizes, tags, mhandles, request);
}
#else
static int shim_isend(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	return plugin_isend(V, comm, data, (size_t)size, tag, mhandle, request);
}
static int shim_irecv(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t own[PLUGIN_RECVS_MAX];
	for (int i = 0; i < RPWI_MIN(n, (int)PLUGIN_RECVS_MAX); i++)
		own[i] = (size_t)sizes[i]; /* one below 0 is too large, and refused */
	return plugin_irecv(V, comm, n, data, own, tags, mhandles, request);
}
#endif
static int shim_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	return plugin_iflush(V, comm, n, data, sizes, mhandles, request);
}
static int shim_test(void *request, int *done, int *sizes)
{
	return plugin_test(V, request, done, sizes);
}
static int shim_close_send(void *comm) { return plugin_close(V, comm, PLUGIN_SEND); }
static int shim_close_recv(void *comm) { return plugin_close(V, comm, PLUGIN_RECV); }
static int shim_close_listen(void *comm) { return plugin_close(V, comm, PLUGIN_LISTEN); }
#if V >= 9
typedef __typeof__(((properties_v *)0)->v_props) vdevice_v;
static int shim_join(int *dev, vdevice_v *v)
{
	if (!v || v->ndevs > (int)RPWI_ARRAY_LEN(v->devs))
		return plugin_join(dev, 0, NULL);
	return plugin_join(dev, v->ndevs, v->devs);
}
#endif

/* Kernels on the GPU do not work with it: no getDeviceMr, no irecvConsumed. */
extern const table_v CAT(ncclNetPlugin_v, V);
RPWI_EXPORT const table_v CAT(ncclNetPlugin_v, V) = {
	.name = "ropeway",
	.init = shim_init,
	.devices = shim_devices,
	.getProperties = shim_properties,
	.listen = shim_listen,
	.connect = shim_connect,
	.accept = shim_accept,
	.regMr = shim_reg,
#if V >= 6
	.regMrDmaBuf = shim_reg_dmabuf,
#endif
	.deregMr = shim_dereg,
	.isend = shim_isend,
	.irecv = shim_irecv,
	.iflush = shim_iflush,
	.test = shim_test,
	.closeSend = shim_close_send,
	.closeRecv = shim_close_recv,
	.closeListen = shim_close_listen,
#if V >= 9
	.makeVDevice = shim_join,
#endif
#if V >= 11
	.finalize = shim_finalize,
	.setNetAttr = shim_set_attr,
#endif
};
