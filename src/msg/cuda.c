/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.c - the CUDA driver API, as far as msg needs it. Declarations are our own, after the driver
 * API's documentation: results are ints (0 success, 600 not ready), device pointers are 64 bits
 * wide, handles are pointers. */
#include "msg/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "ropeway.h"

enum {
	CUDA_NOT_READY = 600,
	POINTER_CONTEXT = 1,
	POINTER_MEMORY_TYPE = 2,
	POINTER_ORDINAL = 9,
	POINTER_RANGE_START = 11,
	POINTER_RANGE_SIZE = 12,
	MEMORY_TYPE_DEVICE = 2,
	HOST_PORTABLE = 1,
	STREAM_NON_BLOCKING = 1,
	EVENT_DISABLE_TIMING = 2,
	DEVICE_RDMA_FLUSH_OPTIONS = 117, /* a mask; since 11.3 */
	DEVICE_RDMA_WRITES_ORDERING = 118,
	RDMA_FLUSH_BY_HOST = 1,
	/* the GPU that has the memory sees the writes, unasked or after a flush */
	RDMA_SCOPE_OWNER = 100,
	RDMA_TARGET_CURRENT = 0,
	RANGE_DMABUF = 1, /* since 11.7 */
	PROBE_BYTES = 64 << 10,
};
typedef unsigned long long device_ptr;

static struct {
	int (*init)(unsigned flags);
	int (*error_name)(int result, const char **name);
	int (*pointer_get)(void *out, int attribute, device_ptr p);
	int (*device_get)(int *device, int ordinal);
	int (*primary_retain)(void **context, int device);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*host_alloc)(void **p, size_t len, unsigned flags);
	int (*host_free)(void *p);
	int (*to_device)(device_ptr to, const void *from, size_t len, void *stream);
	int (*to_host)(void *to, device_ptr from, size_t len, void *stream);
	int (*stream_new)(void **stream, unsigned flags);
	int (*stream_free)(void *stream);
	int (*stream_wait)(void *stream);
	int (*event_new)(void **event, unsigned flags);
	int (*event_record)(void *event, void *stream);
	int (*event_query)(void *event);
	int (*event_free)(void *event);
	/* NULL where the driver is too old for them */
	int (*device_attribute)(int *out, int attribute, int device);
	int (*flush_writes)(int target, int scope);
	int (*range_handle)(
		void *handle, device_ptr p, size_t len, int type, unsigned long long flags);
	int (*mem_alloc)(device_ptr *p, size_t len);
	int (*mem_free)(device_ptr p);
	int (*current)(void **context);
	int (*primary_release)(int device);
} cu;

struct symbol {
	const char *name;
	void *fn;
};
static const struct symbol symbols[] = {
	{"cuInit", &cu.init},
	{"cuGetErrorName", &cu.error_name},
	{"cuPointerGetAttribute", &cu.pointer_get},
	{"cuDeviceGet", &cu.device_get},
	{"cuDevicePrimaryCtxRetain", &cu.primary_retain},
	{"cuCtxPushCurrent_v2", &cu.push},
	{"cuCtxPopCurrent_v2", &cu.pop},
	{"cuMemHostAlloc", &cu.host_alloc},
	{"cuMemFreeHost", &cu.host_free},
	{"cuMemcpyHtoDAsync_v2", &cu.to_device},
	{"cuMemcpyDtoHAsync_v2", &cu.to_host},
	{"cuStreamCreate", &cu.stream_new},
	{"cuStreamDestroy_v2", &cu.stream_free},
	{"cuStreamSynchronize", &cu.stream_wait},
	{"cuEventCreate", &cu.event_new},
	{"cuEventRecord", &cu.event_record},
	{"cuEventQuery", &cu.event_query},
	{"cuEventDestroy_v2", &cu.event_free},
};
static const struct symbol optional[] = {
	{"cuDeviceGetAttribute", &cu.device_attribute},
	{"cuFlushGPUDirectRDMAWrites", &cu.flush_writes},
	{"cuMemGetHandleForAddressRange", &cu.range_handle},
	{"cuMemAlloc_v2", &cu.mem_alloc},
	{"cuMemFree_v2", &cu.mem_free},
	{"cuCtxGetCurrent", &cu.current},
	{"cuDevicePrimaryCtxRelease_v2", &cu.primary_release},
};

static struct {
	pthread_once_t once;
	char missing[256]; /* why the driver cannot be used; "" when it can */
} opened = {.once = PTHREAD_ONCE_INIT};

static const char *error_name(int result)
{
	const char *name = NULL;
	return cu.error_name && !cu.error_name(result, &name) && name ? name : "an unknown error";
}

static void driver_open(void)
{
	const char *file = secure_getenv("ROPEWAY_CUDA_LIBRARY");
	file = file && *file ? file : "libcuda.so.1";
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(opened.missing, sizeof(opened.missing),
			"the CUDA driver library cannot be opened (%s)", dlerror());
		return;
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(symbols); i++) {
		void *fn = dlsym(library, symbols[i].name);
		if (!fn) {
			snprintf(opened.missing, sizeof(opened.missing),
				"%s has no %s: it is not a CUDA driver library of version 4 or "
				"later",
				file, symbols[i].name);
			return;
		}
		memcpy(symbols[i].fn, &fn, sizeof(fn));
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(optional); i++) {
		void *fn = dlsym(library, optional[i].name);
		memcpy(optional[i].fn, &fn, sizeof(fn));
	}
	int result = cu.init(0);
	if (result)
		snprintf(opened.missing, sizeof(opened.missing),
			"the CUDA driver cannot be started: %s", error_name(result));
}

static int driver(void)
{
	pthread_once(&opened.once, driver_open);
	if (!*opened.missing)
		return 0;
	return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
		"memory of a GPU cannot be registered: %s; install the NVIDIA driver, or copy to "
		"host memory first",
		opened.missing);
}

static int failed(int result, const char *what)
{
	return rpwi_fail(RPW_ERR_SYSTEM, "%s failed: %s (%d), says the CUDA driver", what,
		error_name(result), result);
}

/* Everything of a GPU happens with its context current; the program's own is put back. */
static int enter(const struct gpu *g) { return cu.push(g->context); }
static void leave(void)
{
	void *ignored;
	cu.pop(&ignored);
}

static int context_of(device_ptr p, void **context)
{
	int ordinal = 0, device = 0, result;
	*context = NULL;
	if (!cu.pointer_get(context, POINTER_CONTEXT, p) && *context)
		return 0;
	/* Memory of a pool or of cuMemCreate belongs to no context: the device's primary one will
	 * do. */
	result = cu.pointer_get(&ordinal, POINTER_ORDINAL, p);
	if (!result)
		result = cu.device_get(&device, ordinal);
	return result ? result : cu.primary_retain(context, device);
}

/* What a NIC writes into a GPU's memory and what it writes into the host's take different ways, so
 * a completion that the processor has seen says nothing about what the GPU sees (GPUDirect RDMA's
 * documentation; PCI Express orders posted writes only towards one destination). The driver says
 * whether that GPU needs a flush, and flushes. Where it can do neither: no direct access. */
static void direct_find(struct gpu *g, device_ptr p)
{
	int ordinal = 0, device = 0, ordering = 0, options = 0;
	if (!cu.device_attribute || cu.pointer_get(&ordinal, POINTER_ORDINAL, p) ||
		cu.device_get(&device, ordinal) ||
		cu.device_attribute(&ordering, DEVICE_RDMA_WRITES_ORDERING, device))
		return;
	g->flush = ordering < RDMA_SCOPE_OWNER;
	g->direct = !g->flush ||
		    (cu.flush_writes &&
			    !cu.device_attribute(&options, DEVICE_RDMA_FLUSH_OPTIONS, device) &&
			    options & RDMA_FLUSH_BY_HOST);
}

int gpu_of(struct rpwi_list *gpus, const void *addr, size_t len, struct gpu **out)
{
	if (driver())
		return RPW_ERR_NOT_SUPPORTED;
	device_ptr p = (device_ptr)(uintptr_t)addr, start = 0;
	size_t size = 0;
	unsigned type = 0;
	int result = cu.pointer_get(&type, POINTER_MEMORY_TYPE, p);
	if (result || type != MEMORY_TYPE_DEVICE)
		return rpwi_fail(RPW_ERR_INVALID,
			"%s is not memory of a GPU (the CUDA driver says: %s): register host "
			"memory as RPW_MEMORY_HOST",
			RPWI_AT(addr), result ? error_name(result) : "host memory");
	if (!cu.pointer_get(&start, POINTER_RANGE_START, p) &&
		!cu.pointer_get(&size, POINTER_RANGE_SIZE, p) &&
		(p < start || p - start > size || len > size - (p - start)))
		return rpwi_fail(RPW_ERR_INVALID,
			"%zu bytes at %s are more than the GPU's allocation has: %zu from there on",
			len, RPWI_AT(addr), (size_t)(size - (p - start)));
	void *context = NULL;
	result = context_of(p, &context);
	if (result)
		return failed(result, "finding the context of GPU memory");
	RPWI_LIST_EACH (struct gpu, known, gpus, all)
		if (known->context == context) {
			*out = known;
			return 0;
		}
	struct gpu *g = calloc(1, sizeof(*g));
	if (!g)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a GPU");
	g->context = context;
	direct_find(g, p);
	result = enter(g);
	if (!result) {
		for (int i = 0; i < 2 && !result; i++)
			result = cu.stream_new(&g->stream[i], STREAM_NON_BLOCKING);
		leave();
	}
	if (result) {
		free(g);
		return failed(result, "making a stream");
	}
	rpwi_list_add_tail(gpus, &g->all);
	*out = g;
	return 0;
}

void gpu_free(struct gpu *g)
{
	if (!enter(g)) {
		cu.stream_free(g->stream[GPU_OUT]);
		cu.stream_free(g->stream[GPU_IN]);
		leave();
	}
	rpwi_list_del(&g->all);
	free(g);
}

void *gpu_pinned_new(struct gpu *g, size_t len)
{
	void *p = NULL;
	if (enter(g))
		return NULL;
	if (cu.host_alloc(&p, len, HOST_PORTABLE))
		p = NULL;
	leave();
	return p;
}

void gpu_pinned_free(struct gpu *g, void *p)
{
	if (enter(g))
		return;
	cu.host_free(p);
	leave();
}

static int copy_start(struct gpu *g, enum gpu_direction way, void *device, void *host, size_t len)
{
	device_ptr p = (device_ptr)(uintptr_t)device;
	return way == GPU_OUT ? cu.to_host(host, p, len, g->stream[way])
			      : cu.to_device(p, host, len, g->stream[way]);
}

static const char *const copy_names[] = {
	[GPU_OUT] = "a copy out of a GPU", [GPU_IN] = "a copy into a GPU"};

int gpu_copy_begin(
	struct gpu *g, enum gpu_direction way, void *device, void *host, size_t len, void **event)
{
	int result = enter(g);
	if (result)
		return failed(result, "using a GPU's context");
	if (!*event)
		result = cu.event_new(event, EVENT_DISABLE_TIMING);
	if (!result)
		result = copy_start(g, way, device, host, len);
	if (!result)
		result = cu.event_record(*event, g->stream[way]);
	leave();
	return result ? failed(result, copy_names[way]) : 0;
}

int gpu_copy_look(struct gpu *g, void *event)
{
	int result = enter(g);
	if (!result) {
		result = cu.event_query(event);
		leave();
	}
	if (result == CUDA_NOT_READY)
		return 1;
	return result ? failed(result, "a copy of GPU memory") : 0;
}

void gpu_copy_wait(struct gpu *g, enum gpu_direction way)
{
	if (enter(g))
		return;
	cu.stream_wait(g->stream[way]);
	leave();
}

void gpu_event_free(struct gpu *g, void *event)
{
	if (enter(g))
		return;
	cu.event_free(event);
	leave();
}

int gpu_copy(struct gpu *g, enum gpu_direction way, void *device, void *host, size_t len)
{
	int result = enter(g);
	if (result)
		return failed(result, "using a GPU's context");
	result = copy_start(g, way, device, host, len);
	if (!result)
		result = cu.stream_wait(g->stream[way]);
	leave();
	return result ? failed(result, copy_names[way]) : 0;
}

/* Contexts share nothing, but may share memory. */
static struct {
	pthread_mutex_t lock;
} changes = {.lock = PTHREAD_MUTEX_INITIALIZER};

int gpu_change(struct gpu *g, void *device, uint64_t (*change)(uint64_t before, const void *arg),
	const void *arg, uint64_t *before)
{
	pthread_mutex_lock(&changes.lock);
	int rc = gpu_copy(g, GPU_OUT, device, before, sizeof(*before));
	uint64_t after = rc ? 0 : change(*before, arg);
	if (!rc && after != *before)
		rc = gpu_copy(g, GPU_IN, device, &after, sizeof(after));
	pthread_mutex_unlock(&changes.lock);
	return rc;
}

/* ---- for devices that reach the memory by themselves ---- */

int gpu_flush(struct gpu *g)
{
	if (!g->flush)
		return 0;
	int result = enter(g);
	if (!result) {
		result = cu.flush_writes(RDMA_TARGET_CURRENT, RDMA_SCOPE_OWNER);
		leave();
	}
	return result ? failed(result, "making a device's writes visible to a GPU "
				       "(cuFlushGPUDirectRDMAWrites)")
		      : 0;
}

int gpu_dmabuf(struct gpu *g, const void *addr, size_t len, uint64_t *offset)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr & ~(page - 1),
		  to = ((uintptr_t)addr + len + page - 1) & ~(page - 1);
	int fd = -1;
	if (!cu.range_handle || enter(g))
		return -1;
	if (cu.range_handle(&fd, (device_ptr)from, to - from, RANGE_DMABUF, 0))
		fd = -1;
	leave();
	*offset = (uintptr_t)addr - from;
	return fd;
}

int gpu_sample(struct gpu_sample *s)
{
	device_ptr p = 0;
	void *ignored;
	*s = (struct gpu_sample){.len = PROBE_BYTES};
	if (driver())
		return RPW_ERR_NOT_SUPPORTED;
	if (!cu.mem_alloc || !cu.mem_free || !cu.current || !cu.primary_release)
		return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
			"the CUDA driver is too old to say what its GPUs can");
	int result = cu.current(&s->context);
	if (!result && !s->context) {
		result = cu.device_get(&s->device, 0);
		result = result ? result : cu.primary_retain(&s->context, s->device);
		s->retained = !result;
	}
	result = result ? result : cu.push(s->context);
	if (!result) {
		result = cu.mem_alloc(&p, PROBE_BYTES);
		cu.pop(&ignored);
	}
	s->addr = (void *)(uintptr_t)p;
	if (!result)
		return 0;
	gpu_sample_free(s);
	return failed(result, "allocating memory of a GPU, to see whether devices reach it,");
}

void gpu_sample_free(struct gpu_sample *s)
{
	void *ignored;
	if (s->addr && !cu.push(s->context)) {
		cu.mem_free((device_ptr)(uintptr_t)s->addr);
		cu.pop(&ignored);
	}
	if (s->retained)
		cu.primary_release(s->device);
}
