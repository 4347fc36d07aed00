/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_ibverbs.c - a libibverbs with two devices and reference counts that a test can read. It has
 * the calls of an old library: newer ones are absent. */
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_get_device_list
#undef ibv_query_port

#define EXPORT __attribute__((visibility("default")))

static struct ibv_device devices[2] = {
	{.name = "fake_0", .node_type = IBV_NODE_CA}, {.name = "fake_1", .node_type = IBV_NODE_CA}};
static struct ibv_context contexts[2];
static struct ibv_pd pd;
static int references[2];

EXPORT int fake_references(int device);
EXPORT int fake_references(int device) { return references[device]; }

/* How often the calls on contexts and PDs arrived here. */
static int calls;
EXPORT int fake_calls(void);
EXPORT int fake_calls(void) { return calls; }

/* What providers begin with. FAKE_OLD: it gives nothing. */
EXPORT void *_verbs_init_and_alloc_context(struct ibv_device *device, int fd, size_t size,
	struct verbs_context *offset, uint32_t driver_id);
EXPORT void *_verbs_init_and_alloc_context(struct ibv_device *device, int fd, size_t size,
	struct verbs_context *offset, uint32_t driver_id)
{
	char *all = getenv("FAKE_OLD") ? NULL : calloc(1, size);
	struct verbs_context *v = all ? (void *)(all + (uintptr_t)offset) : NULL;
	if (!v)
		return NULL;
	v->context.device = device;
	v->context.cmd_fd = fd;
	v->context.abi_compat = (void *)UINTPTR_MAX;
	v->sz = sizeof(*v);
	v->priv = calloc(1, 64);
	return all;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list = calloc(3, sizeof(*list));
	for (int i = 0; i < 2; i++) {
		list[i] = &devices[i];
		references[i]++;
	}
	if (num)
		*num = 2;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	for (int i = 0; list[i]; i++)
		references[list[i] - devices]--;
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }
EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return 0xfa4e00 + (unsigned)(device - devices);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *c = &contexts[device - devices];
	references[device - devices]++;
	c->device = device;
	return c;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	references[context->device - devices]--;
	return 0;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	calls++;
	pd.context = context;
	return &pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *p)
{
	calls++;
	return p == &pd ? 0 : 22;
}

EXPORT int ibv_query_port(
	struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	calls++;
	return port == 1 ? 0 : 22;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event) { calls++; }
EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status) { return "fake status"; }
EXPORT int ibv_fork_init(void) { return 0; }

EXPORT const char *ibv_get_sysfs_path(void);
EXPORT const char *ibv_get_sysfs_path(void) { return "/fake/sys"; }
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	strncpy(buf, "fake", size);
	return 4;
}

EXPORT int ibv_of_tomorrow(void);
EXPORT int ibv_of_tomorrow(void) { return 0; }

/* ---- what drivers call ---- */

static int registered;
EXPORT int fake_registered(void);
EXPORT int fake_registered(void) { return registered; }
EXPORT void verbs_register_driver_34(const char *ops);
EXPORT void verbs_register_driver_34(const char *ops) { registered += !strcmp(ops, "fake driver"); }

EXPORT long ibv_cmd_create_cq(
	long a, long b, long c, long d, long e, long f, long g, long h, long i);
EXPORT long ibv_cmd_create_cq(
	long a, long b, long c, long d, long e, long f, long g, long h, long i)
{
	return ((((((((a * 10 + b) * 10 + c) * 10 + d) * 10 + e) * 10 + f) * 10 + g) * 10 + h) *
			10 +
		i);
}
