/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_gpu.c - see cuda_gpu.h. */
#include "cuda_gpu.h"

#include <dlfcn.h>

struct cuda cuda;

bool cuda_open(void)
{
	void *l = dlopen(getenv("ROPEWAY_CUDA_LIBRARY"), RTLD_NOW);
	if (!l) {
		fprintf(stderr, "ROPEWAY_CUDA_LIBRARY: %s\n", dlerror());
		return false;
	}
	cuda.alloc = (int (*)(unsigned long long *, size_t))dlsym(l, "cuMemAlloc_v2");
	cuda.free = (int (*)(unsigned long long))dlsym(l, "cuMemFree_v2");
	cuda.bytes = (void *(*)(unsigned long long, size_t))dlsym(l, "fake_bytes");
	cuda.copies = dlsym(l, "fake_copies");
	cuda.pinned = dlsym(l, "fake_pinned");
	cuda.streams = dlsym(l, "fake_streams");
	cuda.events = dlsym(l, "fake_events");
	cuda.fail_after = dlsym(l, "fake_fail_after");
	cuda.flushes = dlsym(l, "fake_flushes");
	cuda.peer = dlsym(l, "fake_peer");
	cuda.dmabuf = dlsym(l, "fake_dmabuf");
	cuda.ordering = dlsym(l, "fake_ordering");
	cuda.device_writes = (void (*)(void *, const void *, size_t))dlsym(l, "fake_device_writes");
	cuda.handle = (int (*)(void *, unsigned long long, size_t, int, unsigned long long))dlsym(
		l, "cuMemGetHandleForAddressRange");
	cuda.device_reads = (const void *(*)(const void *, size_t))dlsym(l, "fake_device_reads");
	return true;
}

char *bytes(const struct buffer *b, size_t len)
{
	return b->device ? cuda.bytes((uintptr_t)b->at, len) : b->at;
}
struct buffer buffer_new(rpw_context *c, bool device, unsigned access)
{
	struct buffer b = {.device = device};
	if (device) {
		unsigned long long p;
		assert_int_equal(cuda.alloc(&p, ROOM), 0);
		b.at = (char *)(uintptr_t)p;
	} else
		b.at = malloc(ROOM);
	if (device || access)
		assert_int_equal(rpw_memory_register(c, b.at, ROOM,
					 device ? RPW_MEMORY_CUDA : RPW_MEMORY_HOST, access, &b.m),
			RPW_OK);
	return b;
}
void buffer_free(struct buffer *b)
{
	rpw_memory_destroy(b->m);
	if (b->device)
		cuda.free((uintptr_t)b->at);
	else
		free(b->at);
}
