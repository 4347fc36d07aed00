/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - what kinds of memory a device takes, and registration of it. All that is about GPUs
 * goes here. */
#include "nccl/plugin.h"

#include <stdio.h>
#include <stdlib.h>

/* An mhandle. */
struct plugin_memory {
	struct rpwi_list all;
	struct plugin_comm *comm;
	void *data;
	size_t size;
	int type;
	rpw_memory *gpu; /* of a GPU */
};

/* ---- what a device takes: asked of its RDMA devices once ---- */

static struct {
	pthread_mutex_t lock;
	struct {
		bool asked;
		int types;
		char missing[400]; /* why no more than host memory */
	} of[PLUGIN_DEVICES_MAX];
	atomic_flag staged_said; /* that a path copies memory of GPUs through the host */
} support = {.lock = PTHREAD_MUTEX_INITIALIZER, .staged_said = ATOMIC_FLAG_INIT};

/* By its address means: by a dma-buf that the messaging library gets from the driver, or by peer
 * memory. */
static int ask(const struct plugin_device *d, char *missing, size_t missing_len)
{
	char list[512];
	rpw_context_options o = {.size = sizeof(o),
		.transports = plugin_transports(d, "verbs", list, sizeof(list)),
		.rdma_devices = d->rdma};
	rpw_context *c;
	snprintf(missing, missing_len, "NCCL_IB_DISABLE or NCCL_IB_HCA leave it no RDMA device");
	if (d->no_rdma)
		return NCCL_PTR_HOST;
	int ways = rpw_context_create(&o, &c);
	bool made = !ways;
	if (made)
		ways = rpw_memory_direct(c);
	snprintf(missing, missing_len, "%s",
		ways > 0 ? "its RDMA devices take no dma-buf" : rpw_last_error());
	if (made)
		rpw_context_destroy(c);
	if (ways <= 0)
		return NCCL_PTR_HOST;
	return NCCL_PTR_HOST | NCCL_PTR_CUDA | (ways & RPW_DIRECT_DMABUF ? NCCL_PTR_DMABUF : 0);
}

static void types_say(const struct plugin_device *d, int types, const char *missing)
{
	if (types & NCCL_PTR_DMABUF)
		plugin_info("%s: GPU memory by its address and by dma-buf", d->name);
	else if (types & NCCL_PTR_CUDA)
		plugin_info("%s: GPU memory by its address", d->name);
	else
		plugin_info("%s: GPU memory has to be copied to the host by NCCL: %s", d->name,
			missing);
}

int plugin_ptr_support(const struct plugin_device *d)
{
	size_t i = (size_t)(d - plugin_device(0));
	pthread_mutex_lock(&support.lock);
	if (!support.of[i].asked) {
		support.of[i].types = ask(d, support.of[i].missing, sizeof(support.of[i].missing));
		support.of[i].asked = true;
		types_say(d, support.of[i].types, support.of[i].missing);
	}
	int types = support.of[i].types;
	pthread_mutex_unlock(&support.lock);
	return types;
}

static const char *missing_for(const struct plugin_device *d)
{
	return support.of[d - plugin_device(0)].missing;
}

/* Of a path that fell back: what copies then are the GPU's engines, in no order that CUDA
 * promises. */
static void staged_say(const struct plugin_comm *c)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	if (rpw_endpoint_info(c->ep, &i) || !strcmp(i.transport, "verbs") ||
		atomic_flag_test_and_set(&support.staged_said))
		return;
	plugin_warn("memory of GPUs goes to and from peer %s by %s, copied through host memory "
		    "(%s): a receive fills in no certain order then, and NCCL's "
		    "LL128 relies on one; set "
		    "NCCL_PROTO=^LL128",
		c->peer, i.transport, i.why);
}

/* Host memory needs no registration: memory sent by a device is registered by the transport, which
 * knows how long to keep that. Memory of a GPU may be read and written by the peer, so that
 * messages find it registered. With the comm context's lock held. 0, or enum nccl_result with a
 * line. */
static int memory_open(struct plugin_memory *m, uint64_t offset, int fd)
{
	const unsigned access = RPW_REMOTE_READ | RPW_REMOTE_WRITE;
	rpw_context *c = m->comm->cc->c;
	if (m->type == NCCL_PTR_HOST || !m->size)
		return NCCL_SUCCESS;
	int status =
		fd < 0 ? rpw_memory_register(c, m->data, m->size, RPW_MEMORY_CUDA, access, &m->gpu)
		       : rpw_memory_register_dmabuf(
				 c, m->data, m->size, fd, offset, access, &m->gpu);
	if (!status) {
		staged_say(m->comm);
		return NCCL_SUCCESS;
	}
	plugin_warn("%zu bytes of a GPU at %p cannot be registered: %s", m->size, m->data,
		rpw_last_error());
	return plugin_result(status);
}
static void memory_close(struct plugin_memory *m) { rpw_memory_destroy(m->gpu); }

static const struct {
	int type;
	const char *name;
} types[] = {{NCCL_PTR_HOST, "host"}, {NCCL_PTR_CUDA, "CUDA"}, {NCCL_PTR_DMABUF, "dma-buf"}};

/* With a descriptor the type is NCCL_PTR_CUDA, too: how it is to be reached is another question
 * than what it is. */
static int check_type(const struct plugin_comm *c, int type, bool dmabuf)
{
	if (dmabuf && type == NCCL_PTR_CUDA)
		type = NCCL_PTR_DMABUF;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(types); i++) {
		if (types[i].type != type)
			continue;
		if (plugin_ptr_support(c->device) & type)
			return NCCL_SUCCESS;
		plugin_warn("memory type %d (%s) cannot be registered on device %s, which says so "
			    "in ptrSupport (0x%x): %s",
			type, types[i].name, c->device->name, plugin_ptr_support(c->device),
			missing_for(c->device));
		return NCCL_INVALID_ARGUMENT;
	}
	plugin_warn("unknown memory type %d: NCCL_PTR_HOST is %d, NCCL_PTR_CUDA %d, "
		    "NCCL_PTR_DMABUF %d; are the caller and the table of the same plugin API "
		    "version?",
		type, NCCL_PTR_HOST, NCCL_PTR_CUDA, NCCL_PTR_DMABUF);
	return NCCL_INVALID_ARGUMENT;
}

static int check_range(const void *data, size_t size)
{
	if (size <= PTRDIFF_MAX && size <= UINTPTR_MAX - (uintptr_t)data && (data || !size))
		return NCCL_SUCCESS;
	plugin_warn("regMr was given %zd bytes at %p", (ssize_t)size, data);
	return NCCL_INVALID_ARGUMENT;
}

int plugin_reg_dmabuf(int abi, void *comm, void *data, size_t size, int type, uint64_t offset,
	int fd, void **mhandle)
{
	struct plugin_comm *c = comm;
	*mhandle = NULL;
	int rc = plugin_comm_check(comm, -1, abi, "regMr");
	if (!rc)
		rc = check_type(c, type, fd >= 0);
	if (!rc)
		rc = check_range(data, size);
	if (rc)
		return rc;
	struct plugin_memory *m = calloc(1, sizeof(*m));
	if (!m) {
		plugin_warn("no memory to register memory");
		return NCCL_SYSTEM_ERROR;
	}
	*m = (struct plugin_memory){.comm = c, .data = data, .size = size, .type = type};
	comm_context_enter(c->cc);
	rc = memory_open(m, offset, fd);
	if (!rc)
		rpwi_list_add_tail(&c->memories, &m->all);
	comm_context_leave(c->cc);
	if (rc)
		free(m);
	else
		*mhandle = m;
	return rc;
}

int plugin_reg(int abi, void *comm, void *data, size_t size, int type, void **mhandle)
{
	return plugin_reg_dmabuf(abi, comm, data, size, type, 0, -1, mhandle);
}

static void memory_free(struct plugin_memory *m)
{
	memory_close(m);
	rpwi_list_del(&m->all);
	free(m);
}

static struct plugin_memory *find(struct plugin_comm *c, const void *mhandle)
{
	for (struct rpwi_list *n = c->memories.next; n != &c->memories; n = n->next)
		if (RPWI_CONTAINER_OF(n, struct plugin_memory, all) == mhandle)
			return RPWI_CONTAINER_OF(n, struct plugin_memory, all);
	return NULL;
}

int plugin_dereg(int abi, void *comm, void *mhandle)
{
	struct plugin_comm *c = comm;
	int rc = plugin_comm_check(comm, -1, abi, "deregMr");
	if (rc || !mhandle)
		return rc;
	comm_context_enter(c->cc);
	struct plugin_memory *m = find(c, mhandle);
	if (m)
		memory_free(m);
	comm_context_leave(c->cc);
	if (m)
		return NCCL_SUCCESS;
	plugin_warn("deregMr was given %p, which regMr of this comm did not give", mhandle);
	return NCCL_INVALID_ARGUMENT;
}

void plugin_memories_free(struct plugin_comm *c)
{
	while (!rpwi_list_empty(&c->memories))
		memory_free(
			RPWI_CONTAINER_OF(rpwi_list_pop(&c->memories), struct plugin_memory, all));
}
