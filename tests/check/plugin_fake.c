/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin_fake.c - a network plugin of v8 and v10 that moves nothing: connect takes two calls, and
 * every request is done at its second test. PLUGIN_FAKE=size|negative|no-comm makes it
 * wrong, slow: isend takes 200 ms. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ncclnet/abi/tables.h"

struct comm {
	int unused;
};
struct request {
	int tests, n;
	int sizes[8];
};

static int is(const char *what)
{
	const char *how = getenv("PLUGIN_FAKE");
	return how && !strcmp(how, what);
}

static int init8(nccl_logger log) { return 0; }
static int init10(nccl_logger log, nccl_profiler profiler) { return 0; }
static int devices(int *n)
{
	*n = 1;
	return 0;
}
static int properties8(int dev, struct nccl_net_properties_v8 *p)
{
	*p = (struct nccl_net_properties_v8){.name = (char *)"fake0",
		.ptr_support = NCCL_PTR_HOST,
		.speed = 1,
		.max_comms = 8,
		.max_recvs = 8};
	return 0;
}
static int properties10(int dev, struct nccl_net_properties_v10 *p)
{
	*p = (struct nccl_net_properties_v10){.name = (char *)"fake0",
		.ptr_support = NCCL_PTR_HOST,
		.speed = 1,
		.max_comms = 8,
		.max_recvs = 8};
	return 0;
}
static int listen(int dev, void *handle, void **comm)
{
	memset(handle, 0x11, 128);
	*comm = is("no-comm") ? NULL : calloc(1, sizeof(struct comm));
	return 0;
}
static int dial(void *handle, void **comm)
{
	char *calls = handle; /* its state, as plugins have it there */
	*comm = ++*calls == 0x12 ? NULL : calloc(1, sizeof(struct comm));
	return 0;
}
static int connect8(int dev, void *handle, void **comm, struct nccl_net_device_handle **d)
{
	return dial(handle, comm);
}
static int connect10(int dev, struct nccl_net_comm_config *config, void *handle, void **comm,
	struct nccl_net_device_handle **d)
{
	return dial(handle, comm);
}
static int accept(void *listening, void **comm, struct nccl_net_device_handle **d)
{
	*comm = calloc(1, sizeof(struct comm));
	return 0;
}
static int reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	*mhandle = malloc(1);
	return 0;
}
static int dereg(void *comm, void *mhandle)
{
	free(mhandle);
	return 0;
}
static int post(int n, const int *sizes, void **request)
{
	struct request *r = calloc(1, sizeof(*r));
	r->n = n;
	for (int i = 0; i < n; i++)
		r->sizes[i] = sizes[i];
	*request = r;
	return 0;
}
static int isend8(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	if (is("slow"))
		usleep(200000);
	return post(1, &size, request);
}
static int irecv8(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	return post(n, sizes, request);
}
static int isend10(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *ph, void **request)
{
	int bytes = (int)size;
	return post(1, &bytes, request);
}
static int irecv10(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
	void **ph, void **request)
{
	int bytes[8] = {0};
	for (int i = 0; i < n; i++)
		bytes[i] = (int)sizes[i];
	return post(n, bytes, request);
}
static int iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	*request = NULL;
	return 0;
}
static int test(void *request, int *done, int *sizes)
{
	struct request *r = request;
	*done = r->tests++ > 0;
	for (int i = 0; *done && sizes && i < r->n; i++) {
		sizes[i] = r->sizes[i];
		if (is("size"))
			sizes[i]++;
		if (is("negative"))
			sizes[i] = -1;
	}
	return 0; /* requests stay: a caller may test one again */
}
static int end(void *comm)
{
	free(comm);
	return 0;
}

__attribute__((visibility("default"))) const struct nccl_net_v8 ncclNetPlugin_v8 = {.name = "fake",
	.init = init8,
	.devices = devices,
	.getProperties = properties8,
	.listen = listen,
	.connect = connect8,
	.accept = accept,
	.regMr = reg,
	.deregMr = dereg,
	.isend = isend8,
	.irecv = irecv8,
	.iflush = iflush,
	.test = test,
	.closeSend = end,
	.closeRecv = end,
	.closeListen = end};
__attribute__((visibility("default")))
const struct nccl_net_v10 ncclNetPlugin_v10 = {.name = "fake",
	.init = init10,
	.devices = devices,
	.getProperties = properties10,
	.listen = listen,
	.connect = connect10,
	.accept = accept,
	.regMr = reg,
	.deregMr = dereg,
	.isend = isend10,
	.irecv = irecv10,
	.iflush = iflush,
	.test = test,
	.closeSend = end,
	.closeRecv = end,
	.closeListen = end};
