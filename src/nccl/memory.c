/* memory.c - what kinds of memory a device takes, and registration of it. All that is about GPUs goes here. */
#include "nccl/plugin.h"

#include <stdlib.h>

/* An mhandle. */
struct plugin_memory {
	struct rpwi_list all;
	struct plugin_comm *comm;
	void *data;
	size_t size;
	int type;
};

int plugin_ptr_support(const struct plugin_device *d) { return NCCL_PTR_HOST; }

/* Host memory needs no registration: what goes by a device is registered by the transport, which knows how long to keep that. With the lane's lock held. 0, or enum nccl_result with a line. */
static int memory_open(struct plugin_memory *m, uint64_t offset, int fd) { return NCCL_SUCCESS; }
static void memory_close(struct plugin_memory *m) {}

static const struct {
	int type;
	const char *name;
} types[] = {{NCCL_PTR_HOST, "host"}, {NCCL_PTR_CUDA, "CUDA"}, {NCCL_PTR_DMABUF, "dma-buf"}};

static int check_type(const struct plugin_comm *c, int type)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(types); i++) {
		if (types[i].type != type)
			continue;
		if (plugin_ptr_support(c->device) & type)
			return NCCL_SUCCESS;
		plugin_warn("memory type %d (%s) cannot be registered on device %s, which says so in ptrSupport (0x%x)", type, types[i].name, c->device->name,
			plugin_ptr_support(c->device));
		return NCCL_INVALID_ARGUMENT;
	}
	plugin_warn("unknown memory type %d: NCCL_PTR_HOST is %d, NCCL_PTR_CUDA %d, NCCL_PTR_DMABUF %d; are the caller and the table of the same plugin API "
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

int plugin_reg_dmabuf(int abi, void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle)
{
	struct plugin_comm *c = comm;
	*mhandle = NULL;
	int rc = plugin_comm_check(comm, -1, abi, "regMr");
	if (!rc)
		rc = check_type(c, type);
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
	plugin_lane_enter(c->lane);
	rc = memory_open(m, offset, fd);
	if (!rc)
		rpwi_list_add_tail(&c->memories, &m->all);
	plugin_lane_leave(c->lane);
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
	plugin_lane_enter(c->lane);
	struct plugin_memory *m = find(c, mhandle);
	if (m)
		memory_free(m);
	plugin_lane_leave(c->lane);
	if (m)
		return NCCL_SUCCESS;
	plugin_warn("deregMr was given %p, which regMr of this comm did not give", mhandle);
	return NCCL_INVALID_ARGUMENT;
}

void plugin_memories_free(struct plugin_comm *c)
{
	while (!rpwi_list_empty(&c->memories))
		memory_free(RPWI_CONTAINER_OF(rpwi_list_pop(&c->memories), struct plugin_memory, all));
}
