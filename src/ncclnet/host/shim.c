/* SPDX-License-Identifier: BSD-3-Clause */
/* shim.c - calls through the table of one version of the plugin API, V; meson.build compiles it
 * once for each. Every difference between the versions is here, as a condition on V. Facts:
 * ncclnet/abi/tables.h. */
#include "ncclnet/host/host.h"

#include <limits.h>

#include "ncclnet/abi/tables.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
typedef struct CAT(nccl_net_v, V) table_v;
typedef struct CAT(nccl_net_properties_v, V) properties_v;
#define T ((const table_v *)table)
#define SLOT(call) (1u << (offsetof(table_v, call) / sizeof(void *)))

static const char *shim_name(const void *table) { return T->name; }

static int shim_init(const void *table, void **ctx, nccl_logger log)
{
	*ctx = NULL;
#if V >= 11
	struct nccl_net_comm_config config = {.traffic_class = -1};
	return T->init(ctx, 0, &config, log, NULL);
#elif V == 10
	return T->init(log, NULL);
#else
	return T->init(log);
#endif
}

static int shim_devices(const void *table, int *ndev) { return T->devices(ndev); }

static int shim_properties(const void *table, int dev, struct ncclnet_properties *p)
{
	/* A table under the name of another version writes more: not over our stack. */
	union {
		properties_v v;
		char room[256];
	} own = {.room = {0}};
	int rc = T->getProperties(dev, &own.v);
	if (rc)
		return rc;
	const properties_v v = own.v;
	*p = (struct ncclnet_properties){.name = v.name,
		.pci_path = v.pci_path,
		.guid = v.guid,
		.ptr_support = v.ptr_support,
		.speed = v.speed,
		.port = v.port,
		.max_comms = v.max_comms,
		.max_recvs = 1,
		.v_props = {.ndevs = 1, .devs = {dev}},
		.max_multi_request_size = 1,
		.rail_id = -1,
		.plane_id = -1};
#if V >= 5
	p->latency = v.latency;
	p->max_recvs = v.max_recvs;
#endif
#if V >= 7
	p->device_type = v.device_type;
	p->device_version = v.device_version;
#endif
#if V >= 8
	p->reg_is_global = v.reg_is_global;
#endif
#if V >= 9
	p->force_flush = v.force_flush;
	p->v_props.ndevs = v.v_props.ndevs;
	memcpy(p->v_props.devs, v.v_props.devs, sizeof(v.v_props.devs));
	p->max_p2p_bytes = v.max_p2p_bytes;
	p->max_coll_bytes = v.max_coll_bytes;
#endif
#if V >= 11
	p->max_multi_request_size = v.max_multi_request_size;
#endif
#if V >= 12
	p->rail_id = v.rail_id;
	p->plane_id = v.plane_id;
#endif
	return rc;
}

static int shim_listen(const void *table, void *ctx, int dev, void *handle, void **listen_comm)
{
#if V >= 11
	return T->listen(ctx, dev, handle, listen_comm);
#else
	return T->listen(dev, handle, listen_comm);
#endif
}

static int shim_connect(const void *table, void *ctx, int dev, void *handle, void **send_comm,
	struct nccl_net_device_handle **device)
{
#if V >= 11
	return T->connect(ctx, dev, handle, send_comm, device);
#elif V == 10
	struct nccl_net_comm_config config = {.traffic_class = -1};
	return T->connect(dev, &config, handle, send_comm, device);
#elif V >= 7
	return T->connect(dev, handle, send_comm, device);
#else
	return T->connect(dev, handle, send_comm);
#endif
}

static int shim_accept(const void *table, void *listen_comm, void **recv_comm,
	struct nccl_net_device_handle **device)
{
#if V >= 7
	return T->accept(listen_comm, recv_comm, device);
#else
	return T->accept(listen_comm, recv_comm);
#endif
}

static int shim_reg(
	const void *table, void *comm, void *data, size_t size, int type, void **mhandle)
{
#if V < 8
	if (size > INT_MAX)
		return NCCL_INVALID_ARGUMENT;
	return T->regMr(comm, data, (int)size, type, mhandle);
#else
	return T->regMr(comm, data, size, type, mhandle);
#endif
}

static int shim_reg_dmabuf(const void *table, void *comm, void *data, size_t size, int type,
	uint64_t offset, int fd, void **mhandle)
{
#if V >= 6
	return T->regMrDmaBuf ? T->regMrDmaBuf(comm, data, size, type, offset, fd, mhandle)
			      : NCCLNET_ABSENT;
#else
	return NCCLNET_ABSENT;
#endif
}

static int shim_dereg(const void *table, void *comm, void *mhandle)
{
	return T->deregMr(comm, mhandle);
}

static int shim_isend(const void *table, void *comm, void *data, size_t size, int tag,
	void *mhandle, void **request)
{
#if V < 9
	if (size > INT_MAX)
		return NCCL_INVALID_ARGUMENT;
#endif
#if V >= 10
	return T->isend(comm, data, size, tag, mhandle, NULL, request);
#elif V == 9
	return T->isend(comm, data, size, tag, mhandle, request);
#elif V >= 5
	return T->isend(comm, data, (int)size, tag, mhandle, request);
#else
	return T->isend(comm, data, (int)size, mhandle, request);
#endif
}

static int shim_irecv(const void *table, void *comm, int n, void **data, const size_t *sizes,
	const int *tags, void **mhandles, void **request)
{
#if V >= 9
	size_t own[NCCL_NET_GROUP_MAX];
#else
	int own[NCCL_NET_GROUP_MAX];
#endif
	if (n < 1 || n > (V >= 5 ? NCCL_NET_GROUP_MAX : 1))
		return NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < n; i++) {
		if (V < 9 && sizes[i] > INT_MAX)
			return NCCL_INVALID_ARGUMENT;
		own[i] = sizes[i];
	}
#if V >= 10
	void *phandles[NCCL_NET_GROUP_MAX] = {NULL};
	return T->irecv(comm, n, data, own, (int *)tags, mhandles, phandles, request);
#elif V >= 5
	return T->irecv(comm, n, data, own, (int *)tags, mhandles, request);
#else
	return T->irecv(comm, data[0], own[0], mhandles[0], request);
#endif
}

static int shim_iflush(const void *table, void *comm, int n, void **data, const int *sizes,
	void **mhandles, void **request)
{
#if V >= 5
	return T->iflush(comm, n, data, (int *)sizes, mhandles, request);
#else
	return n == 1 ? T->iflush(comm, data[0], sizes[0], mhandles[0], request)
		      : NCCL_INVALID_ARGUMENT;
#endif
}

static int shim_test(const void *table, void *request, int *done, int *sizes)
{
	return T->test(request, done, sizes);
}
static int shim_close_send(const void *table, void *comm) { return T->closeSend(comm); }
static int shim_close_recv(const void *table, void *comm) { return T->closeRecv(comm); }
static int shim_close_listen(const void *table, void *comm) { return T->closeListen(comm); }

static int shim_irecv_consumed(const void *table, void *comm, int n, void *request)
{
#if V >= 7
	return T->irecvConsumed ? T->irecvConsumed(comm, n, request) : NCCLNET_ABSENT;
#else
	return NCCLNET_ABSENT;
#endif
}

static int shim_make_vdevice(const void *table, int *dev, const struct nccl_net_vdevice_v12 *v)
{
#if V >= 12
	struct nccl_net_vdevice_v12 own = *v;
#elif V >= 9
	struct nccl_net_vdevice_v9 own = {.ndevs = v->ndevs};
	if (v->ndevs > 4)
		return NCCL_INVALID_ARGUMENT;
	memcpy(own.devs, v->devs, sizeof(own.devs));
#endif
#if V >= 9
	return T->makeVDevice ? T->makeVDevice(dev, &own) : NCCLNET_ABSENT;
#else
	return NCCLNET_ABSENT;
#endif
}

static int shim_finalize(const void *table, void *ctx)
{
#if V >= 11
	return T->finalize ? T->finalize(ctx) : NCCLNET_ABSENT;
#else
	return NCCLNET_ABSENT;
#endif
}

extern const struct ncclnet_calls CAT(ncclnet_calls_v, V);
const struct ncclnet_calls CAT(ncclnet_calls_v, V) = {
	.name = shim_name,
	.init = shim_init,
	.devices = shim_devices,
	.properties = shim_properties,
	.listen = shim_listen,
	.connect = shim_connect,
	.accept = shim_accept,
	.reg = shim_reg,
	.reg_dmabuf = shim_reg_dmabuf,
	.dereg = shim_dereg,
	.isend = shim_isend,
	.irecv = shim_irecv,
	.iflush = shim_iflush,
	.test = shim_test,
	.close_send = shim_close_send,
	.close_recv = shim_close_recv,
	.close_listen = shim_close_listen,
	.irecv_consumed = shim_irecv_consumed,
	.make_vdevice = shim_make_vdevice,
	.finalize = shim_finalize,
	.slots = sizeof(table_v) / sizeof(void *),
	.optional_slots = 0
#if V >= 6
			  | SLOT(regMrDmaBuf)
#endif
#if V >= 7
			  | SLOT(getDeviceMr) | SLOT(irecvConsumed)
#endif
#if V >= 9
			  | SLOT(makeVDevice)
#endif
#if V >= 11
			  | SLOT(setNetAttr)
#endif
		,
};
