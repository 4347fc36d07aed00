/* SPDX-License-Identifier: BSD-3-Clause */
/* export.h - for a small plugin of the tests: its calls, written once, exported as
 * ncclNetPlugin_v<V>. Included once for each V after the file's own static functions, all named
 * plugin_...; what V does not have is not called, and the compiler says so unless the function is
 * marked unused. Facts: src/ncclnet/abi/tables.h.
 *
 * 	int plugin_init(nccl_logger log);
 * 	int plugin_devices(int *ndev);
 * 	int plugin_listen(int dev, void *handle, void **comm);
 * 	int plugin_connect(int dev, void *handle, void **comm);
 * 	int plugin_accept(void *listen_comm, void **comm);
 * 	int plugin_reg(void *comm, void *data, size_t size, int type, void **mhandle);
 * 	int plugin_dereg(void *comm, void *mhandle);
 * 	int plugin_isend(void *comm, void *data, size_t size, int tag, void *mhandle,
 * 		void **request);
 * 	int plugin_irecv(void *comm, int n, void **data, const size_t *sizes, int *tags,
 * 		void **mhandles, void **request);
 * 	int plugin_iflush(void *comm, int n, void **data, int *sizes, void **mhandles,
 * 		void **request);
 * 	int plugin_test(void *request, int *done, int *sizes);
 * 	int plugin_close(void *comm);
 * 	int plugin_close_listen(void *listen_comm);
 * 	const struct plugin_properties plugin_properties;
 * 	#define PLUGIN_NAME "..."
 */
#ifndef TESTS_NCCL_EXPORT_H
#define TESTS_NCCL_EXPORT_H

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define VN(name) CAT(name##_v, V)
enum { V4_MOST_WAIT_MS = 30000 }; /* connect and accept of v4 come back with a comm */

#ifdef QUIRKS
#define TABLE_CONST
#define CONNECT(dev, handle, comm, device) quirk_connect_device(dev, handle, comm, device)
#define ACCEPT(listen_comm, comm, device) quirk_accept_device(listen_comm, comm, device)
#else
#define TABLE_CONST const
#define CONNECT(dev, handle, comm, device) plugin_connect(dev, handle, comm)
#define ACCEPT(listen_comm, comm, device) plugin_accept(listen_comm, comm)
#endif

#endif

static int VN(properties)(int dev, struct VN(nccl_net_properties) * p)
{
#if V >= 9 && defined(QUIRKS)
	struct VN(nccl_net_properties) before = *p;
#endif
	memset(p, 0, sizeof(*p));
	p->name = (char *)plugin_properties.name;
	p->guid = (uint64_t)dev;
#ifdef QUIRKS /* quirk.c */
	if (has("hca")) {
		p->name = (char *)"quirk_0";
		p->port = 1;
	}
	p->ptr_support = has("nohost") ? NCCL_PTR_CUDA : NCCL_PTR_HOST;
#if V >= 7
	p->device_type =
		has("unpack") || has("device") ? NCCL_NET_DEVICE_UNPACK : NCCL_NET_DEVICE_HOST;
#endif
#if V >= 9
	p->force_flush = has("flush");
#endif
#else
	p->ptr_support = NCCL_PTR_HOST;
#endif
	p->speed = plugin_properties.speed;
	p->max_comms = plugin_properties.max_comms;
#if V >= 5
	p->max_recvs = plugin_properties.max_recvs;
#endif
#if V >= 9
	p->v_props.ndevs = 1;
	p->v_props.devs[0] = dev;
	p->max_p2p_bytes = p->max_coll_bytes = plugin_properties.max_bytes;
#endif
#if V >= 9 && defined(QUIRKS)
	if (has("novprops"))
		p->v_props = before.v_props;
#endif
#if V >= 11
	p->max_multi_request_size = 1;
#endif
#if V >= 12
	p->rail_id = p->plane_id = -1;
#endif
	return NCCL_SUCCESS;
}

#if V == 4
static int connect_v4(int dev, void *handle, void **comm)
{
	int rc = NCCL_SUCCESS;
	*comm = NULL;
	for (int i = 0; !rc && !*comm && i < V4_MOST_WAIT_MS; i++)
		if (!(rc = plugin_connect(dev, handle, comm)) && !*comm)
			usleep(1000);
	return rc || *comm ? rc : NCCL_REMOTE_ERROR;
}

static int accept_v4(void *listen_comm, void **comm)
{
	int rc = NCCL_SUCCESS;
	*comm = NULL;
	for (int i = 0; !rc && !*comm && i < V4_MOST_WAIT_MS; i++)
		if (!(rc = plugin_accept(listen_comm, comm)) && !*comm)
			usleep(1000);
	return rc || *comm ? rc : NCCL_REMOTE_ERROR;
}

static int isend_v4(void *comm, void *data, int size, void *mhandle, void **request)
{
	return size < 0 ? NCCL_INVALID_ARGUMENT
			: plugin_isend(comm, data, (size_t)size, 0, mhandle, request);
}

static int irecv_v4(void *comm, void *data, int size, void *mhandle, void **request)
{
	size_t whole = (size_t)size;
	int tag = 0;
	return size < 0 ? NCCL_INVALID_ARGUMENT
			: plugin_irecv(comm, 1, &data, &whole, &tag, &mhandle, request);
}

static int iflush_v4(void *comm, void *data, int size, void *mhandle, void **request)
{
	return plugin_iflush(comm, 1, &data, &size, &mhandle, request);
}
#endif

#if V >= 5 && V < 9
static int VN(isend)(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	return size < 0 ? NCCL_INVALID_ARGUMENT
			: plugin_isend(comm, data, (size_t)size, tag, mhandle, request);
}

static int VN(irecv)(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t whole[NCCL_NET_GROUP_MAX];
	*request = NULL;
	if (n < 1 || n > NCCL_NET_GROUP_MAX)
		return NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < n; i++) {
		if (sizes[i] < 0)
			return NCCL_INVALID_ARGUMENT;
		whole[i] = (size_t)sizes[i];
	}
	return plugin_irecv(comm, n, data, whole, tags, mhandles, request);
}
#elif V == 9
static int irecv_v9(
	void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
	return plugin_irecv(comm, n, data, sizes, tags, mhandles, request);
}
#elif V >= 10
static int VN(isend)(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	return plugin_isend(comm, data, size, tag, mhandle, request);
}

static int VN(irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
	void **phandles, void **request)
{
	return plugin_irecv(comm, n, data, sizes, tags, mhandles, request);
}
#endif

#if V < 8
static int VN(reg)(void *comm, void *data, int size, int type, void **mhandle)
{
	return size < 0 ? NCCL_INVALID_ARGUMENT
			: plugin_reg(comm, data, (size_t)size, type, mhandle);
}
#endif

#if V >= 7 && V != 10
#if V >= 11
static int VN(init)(void **ctx, uint64_t comm_id, struct nccl_net_comm_config *config,
	nccl_logger log, nccl_profiler profiler)
{
	*ctx = NULL;
	return plugin_init(log);
}
static int VN(finalize)(void *ctx) { return NCCL_SUCCESS; }
static int VN(listen)(void *ctx, int dev, void *handle, void **comm)
{
	return plugin_listen(dev, handle, comm);
}
static int VN(connect)(
	void *ctx, int dev, void *handle, void **comm, struct nccl_net_device_handle **device)
{
	return CONNECT(dev, handle, comm, device);
}
#else
static int VN(connect)(int dev, void *handle, void **comm, struct nccl_net_device_handle **device)
{
	return CONNECT(dev, handle, comm, device);
}
#endif
#elif V == 10
static int init_v10(nccl_logger log, nccl_profiler profiler) { return plugin_init(log); }
static int connect_v10(int dev, struct nccl_net_comm_config *config, void *handle, void **comm,
	struct nccl_net_device_handle **device)
{
	return CONNECT(dev, handle, comm, device);
}
#endif
#if V >= 7
static int VN(accept)(void *listen_comm, void **comm, struct nccl_net_device_handle **device)
{
	return ACCEPT(listen_comm, comm, device);
}
#endif

extern TABLE_CONST struct VN(nccl_net) VN(ncclNetPlugin);
__attribute__((visibility("default"))) TABLE_CONST struct VN(nccl_net) VN(ncclNetPlugin) = {
	.name = PLUGIN_NAME,
	.devices = plugin_devices,
	.getProperties = VN(properties),
	.deregMr = plugin_dereg,
	.test = plugin_test,
	.closeSend = plugin_close,
	.closeRecv = plugin_close,
	.closeListen = plugin_close_listen,
	.irecv = VN(irecv),
#if V >= 10
	.init = VN(init),
#else
	.init = plugin_init,
#endif
#if V >= 11
	.listen = VN(listen),
	.finalize = VN(finalize),
#else
	.listen = plugin_listen,
#endif
#if V == 4 || V >= 7
	.connect = VN(connect),
	.accept = VN(accept),
#else
	.connect = plugin_connect,
	.accept = plugin_accept,
#endif
#if V < 8
	.regMr = VN(reg),
#else
	.regMr = plugin_reg,
#endif
#if V == 9
	.isend = plugin_isend,
#else
	.isend = VN(isend),
#endif
#if V >= 7 && defined(QUIRKS)
	.irecvConsumed = quirk_consumed,
#endif
#if V == 4
	.iflush = iflush_v4,
#else
	.iflush = plugin_iflush,
#endif
};
#ifdef QUIRKS
__attribute__((constructor)) static void VN(late)(void)
{
	late_table(&VN(ncclNetPlugin), sizeof(VN(ncclNetPlugin)));
}
#endif
#undef V
