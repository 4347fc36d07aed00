/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - registration of memory. */
#include "nccl/plugin.h"

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

static struct {
	atomic_flag said;
} staged = {ATOMIC_FLAG_INIT};

/* Of a path that fell back: what copies then are the GPU's engines, in no order that CUDA
 * promises. */
static void staged_say(const struct plugin_comm *c)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	if (rpw_endpoint_info(c->ep, &i) || !strcmp(i.transport, "verbs") ||
		atomic_flag_test_and_set(&staged.said))
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
	plugin_warn("%zu bytes of a GPU at %s cannot be registered: %s", m->size, RPWI_AT(m->data),
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
			plugin_gpu_missing(c->device));
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
	plugin_warn("regMr was given %zd bytes at %s", (ssize_t)size, RPWI_AT(data));
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
	RPWI_LIST_EACH (struct plugin_memory, m, &c->memories, all)
		if (m == mhandle)
			return m;
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
	plugin_warn(
		"deregMr was given %s, which regMr of this comm did not give", RPWI_AT(mhandle));
	return NCCL_INVALID_ARGUMENT;
}

void plugin_memories_free(struct plugin_comm *c)
{
	while (!rpwi_list_empty(&c->memories))
		memory_free(
			RPWI_CONTAINER_OF(rpwi_list_pop(&c->memories), struct plugin_memory, all));
}
