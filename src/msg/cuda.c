/* cuda.c - the CUDA driver API, as far as staging needs it. Declarations are our own, after the driver API's documentation: results are ints (0 success, 600 not ready), device pointers are
 * 64 bits wide, handles are pointers. */
#include "msg/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
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
} cu;

static const struct {
	const char *name;
	void *fn;
} symbols[] = {
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

static char missing[256]; /* why the driver cannot be used; "" when it can */

static const char *error_name(int result)
{
	const char *name = NULL;
	return cu.error_name && !cu.error_name(result, &name) && name ? name : "an unknown error";
}

static void driver_open(void)
{
	const char *file = getenv("ROPEWAY_CUDA_LIBRARY");
	file = file && *file ? file : "libcuda.so.1";
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(missing, sizeof(missing), "the CUDA driver library cannot be opened (%s)", dlerror());
		return;
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(symbols); i++) {
		void *fn = dlsym(library, symbols[i].name);
		if (!fn) {
			snprintf(missing, sizeof(missing), "%s has no %s: it is not a CUDA driver library of version 4 or later", file, symbols[i].name);
			return;
		}
		memcpy(symbols[i].fn, &fn, sizeof(fn));
	}
	int result = cu.init(0);
	if (result)
		snprintf(missing, sizeof(missing), "the CUDA driver cannot be started: %s", error_name(result));
}

static int failed(int result, const char *what)
{
	return rpwi_fail(RPW_ERR_SYSTEM, "%s failed: %s (%d), says the CUDA driver", what, error_name(result), result);
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
	/* Memory of a pool or of cuMemCreate belongs to no context: the device's primary one will do. */
	result = cu.pointer_get(&ordinal, POINTER_ORDINAL, p);
	if (!result)
		result = cu.device_get(&device, ordinal);
	return result ? result : cu.primary_retain(context, device);
}

int gpu_of(struct rpwi_list *gpus, const void *addr, size_t len, struct gpu **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, driver_open);
	if (*missing)
		return rpwi_fail(
			RPW_ERR_NOT_SUPPORTED, "memory of a GPU cannot be registered: %s; install the NVIDIA driver, or copy to host memory first", missing);
	device_ptr p = (device_ptr)(uintptr_t)addr, start = 0;
	size_t size = 0;
	unsigned type = 0;
	int result = cu.pointer_get(&type, POINTER_MEMORY_TYPE, p);
	if (result || type != MEMORY_TYPE_DEVICE)
		return rpwi_fail(RPW_ERR_INVALID, "%p is not memory of a GPU (the CUDA driver says: %s): register host memory as RPW_MEMORY_HOST", addr,
			result ? error_name(result) : "host memory");
	if (!cu.pointer_get(&start, POINTER_RANGE_START, p) && !cu.pointer_get(&size, POINTER_RANGE_SIZE, p) &&
		(p < start || p - start > size || len > size - (p - start)))
		return rpwi_fail(
			RPW_ERR_INVALID, "%zu bytes at %p are more than the GPU's allocation has: %zu from there on", len, addr, (size_t)(size - (p - start)));
	void *context = NULL;
	result = context_of(p, &context);
	if (result)
		return failed(result, "finding the context of GPU memory");
	for (struct rpwi_list *l = gpus->next; l != gpus; l = l->next) {
		*out = RPWI_CONTAINER_OF(l, struct gpu, all);
		if ((*out)->context == context)
			return 0;
	}
	struct gpu *g = calloc(1, sizeof(*g));
	if (!g)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a GPU");
	g->context = context;
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

static int copy_start(struct gpu *g, enum gpu_way way, void *device, void *host, size_t len)
{
	device_ptr p = (device_ptr)(uintptr_t)device;
	return way == GPU_OUT ? cu.to_host(host, p, len, g->stream[way]) : cu.to_device(p, host, len, g->stream[way]);
}

int gpu_copy_begin(struct gpu *g, enum gpu_way way, void *device, void *host, size_t len, void **event)
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
	return result ? failed(result, way == GPU_OUT ? "a copy out of a GPU" : "a copy into a GPU") : 0;
}

int gpu_copy_look(struct gpu *g, void *event)
{
	int result = enter(g);
	if (!result) {
		result = cu.event_query(event);
		leave();
	}
	return result == CUDA_NOT_READY ? 1 : result ? failed(result, "a copy of GPU memory") : 0;
}

void gpu_copy_wait(struct gpu *g, enum gpu_way way)
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

int gpu_copy(struct gpu *g, enum gpu_way way, void *device, void *host, size_t len)
{
	int result = enter(g);
	if (result)
		return failed(result, "using a GPU's context");
	result = copy_start(g, way, device, host, len);
	if (!result)
		result = cu.stream_wait(g->stream[way]);
	leave();
	return result ? failed(result, way == GPU_OUT ? "a copy out of a GPU" : "a copy into a GPU") : 0;
}
