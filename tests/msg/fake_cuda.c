/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_cuda.c - a CUDA driver library for machines without a GPU. Its device memory cannot be
 * touched by the CPU at the address that programs see (PROT_NONE); what is there is in a second
 * mapping, of the library's own. Copies on a stream are done late: not before the second look at an
 * event, or when the stream is waited for; so who does not wait reads or sends old bytes. */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
typedef unsigned long long dev;

enum {
	ALLOCATIONS = 64,
	OPS = 256,
	EVENTS = 256,
	ERROR = 1,
	INVALID_CONTEXT = 201,
	NOT_READY = 600,
	LAUNCH_FAILED = 719
};
static struct {
	char *seen, *real;
	size_t len;
	int fd;
} allocation[ALLOCATIONS];
struct stream {
	struct op {
		char *to, *from;
		size_t len;
		struct event *event;
	} op[OPS];
	unsigned n;
};
struct event {
	bool done;
	unsigned looks;
	struct stream *on;
};
static int context_a;
static void *current[16];
static int depth;

/* What tests ask and tell. */
API unsigned long fake_copies, fake_pinned, fake_streams, fake_events;
API long fake_fail_after = -1; /* so many copies go well, then each fails */
/* Peer memory: the software device reaches what is allocated now at the address that programs see.
 * The driver gives dma-bufs. How far a GPU sees what devices write without being flushed. */
API long fake_peer, fake_dmabuf, fake_ordering;
API unsigned long fake_flushes;

static char *real_of(const void *p, size_t len)
{
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocation[i].seen && (char *)p >= allocation[i].seen &&
			(char *)p + len <= allocation[i].seen + allocation[i].len)
			return allocation[i].real + ((char *)p - allocation[i].seen);
	return NULL;
}

API int cuInit(unsigned flags) { return flags ? ERROR : 0; }
API int cuGetErrorName(int result, const char **name)
{
	*name = result == LAUNCH_FAILED     ? "CUDA_ERROR_LAUNCH_FAILED"
		: result == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
					    : "CUDA_ERROR_INVALID_VALUE";
	return 0;
}
API int cuMemAlloc_v2(dev *out, size_t len)
{
	for (int i = 0; i < ALLOCATIONS; i++)
		if (!allocation[i].seen) {
			int fd = memfd_create("fake GPU", MFD_CLOEXEC);
			size_t room = (len + 4095) & ~(size_t)4095;
			if (fd < 0 || ftruncate(fd, (off_t)room))
				return ERROR;
			allocation[i].seen = mmap(NULL, room,
				fake_peer ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, fd, 0);
			allocation[i].real =
				mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			allocation[i].len = len;
			allocation[i].fd = fd;
			*out = (dev)(uintptr_t)allocation[i].seen;
			return 0;
		}
	return ERROR;
}
API int cuMemFree_v2(dev p)
{
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocation[i].seen == (char *)(uintptr_t)p) {
			size_t room = (allocation[i].len + 4095) & ~(size_t)4095;
			munmap(allocation[i].seen, room);
			munmap(allocation[i].real, room);
			close(allocation[i].fd);
			allocation[i].seen = NULL;
			return 0;
		}
	return ERROR;
}
API int cuPointerGetAttribute(void *out, int what, dev p)
{
	for (int i = 0; i < ALLOCATIONS; i++) {
		dev start = (dev)(uintptr_t)allocation[i].seen;
		if (!start || p < start || p >= start + allocation[i].len)
			continue;
		if (what == 1)
			*(void **)out = &context_a;
		else if (what == 2)
			*(unsigned *)out = 2;
		else if (what == 9)
			*(int *)out = 0;
		else if (what == 11)
			*(dev *)out = start;
		else if (what == 12)
			*(size_t *)out = allocation[i].len;
		else
			return ERROR;
		return 0;
	}
	return ERROR;
}
API int cuDeviceGet(int *device, int ordinal) { return *device = 0, ordinal ? ERROR : 0; }
API int cuDevicePrimaryCtxRetain(void **context, int device)
{
	return *context = &context_a, device ? ERROR : 0;
}
API int cuCtxPushCurrent_v2(void *context)
{
	if (context != &context_a || depth == 16)
		return INVALID_CONTEXT;
	current[depth++] = context;
	return 0;
}
API int cuCtxPopCurrent_v2(void **context)
{
	if (!depth)
		return INVALID_CONTEXT;
	*context = current[--depth];
	return 0;
}
API int cuMemHostAlloc(void **p, size_t len, unsigned flags)
{
	(void)flags;
	if (!depth)
		return INVALID_CONTEXT;
	fake_pinned++;
	return posix_memalign(p, 4096, len) ? ERROR : 0;
}
API int cuMemFreeHost(void *p)
{
	if (!depth)
		return INVALID_CONTEXT;
	fake_pinned--;
	free(p);
	return 0;
}
API int cuStreamCreate(void **out, unsigned flags)
{
	if (!depth || flags != 1)
		return INVALID_CONTEXT;
	fake_streams++;
	return (*out = calloc(1, sizeof(struct stream))) ? 0 : ERROR;
}
API int cuStreamDestroy_v2(void *s)
{
	fake_streams--;
	free(s);
	return depth ? 0 : INVALID_CONTEXT;
}
static void run_until(struct stream *s, const struct event *last)
{
	unsigned i = 0;
	for (bool on = true; i < s->n && on; i++) {
		if (s->op[i].event) {
			s->op[i].event->done = true;
			on = s->op[i].event != last;
		} else {
			memcpy(s->op[i].to, s->op[i].from, s->op[i].len);
			if (s->op[i].len && getenv("FAKE_CUDA_WRONG"))
				s->op[i].to[s->op[i].len / 2] ^= 1;
		}
	}
	memmove(s->op, s->op + i, (s->n - i) * sizeof(s->op[0]));
	s->n -= i;
}
API int cuStreamSynchronize(void *s)
{
	if (!depth)
		return INVALID_CONTEXT;
	run_until(s, NULL);
	return 0;
}
static int copy(struct stream *s, char *to, char *from, size_t len)
{
	if (!depth)
		return INVALID_CONTEXT;
	if (!to || !from || s->n == OPS)
		return ERROR;
	if (fake_fail_after == 0)
		return LAUNCH_FAILED;
	if (fake_fail_after > 0)
		fake_fail_after--;
	fake_copies++;
	s->op[s->n++] = (struct op){to, from, len, NULL};
	return 0;
}
API int cuMemcpyHtoDAsync_v2(dev to, const void *from, size_t len, void *s)
{
	return copy(s, real_of((void *)(uintptr_t)to, len), (char *)from, len);
}
API int cuMemcpyDtoHAsync_v2(void *to, dev from, size_t len, void *s)
{
	return copy(s, to, real_of((void *)(uintptr_t)from, len), len);
}
API int cuEventCreate(void **out, unsigned flags)
{
	if (!depth || flags != 2)
		return INVALID_CONTEXT;
	fake_events++;
	return (*out = calloc(1, sizeof(struct event))) ? 0 : ERROR;
}
API int cuEventDestroy_v2(void *e)
{
	fake_events--;
	free(e);
	return depth ? 0 : INVALID_CONTEXT;
}
API int cuEventRecord(void *event, void *stream)
{
	struct event *e = event;
	struct stream *s = stream;
	if (!depth || s->n == OPS)
		return ERROR;
	*e = (struct event){.on = s};
	s->op[s->n++] = (struct op){.event = e};
	return 0;
}
API int cuEventQuery(void *event)
{
	struct event *e = event;
	if (!depth)
		return INVALID_CONTEXT;
	if (!e->done && ++e->looks < 2)
		return NOT_READY;
	if (!e->done)
		run_until(e->on, e);
	return 0;
}
API int cuCtxGetCurrent(void **context) { return *context = depth ? current[depth - 1] : NULL, 0; }
API int cuDevicePrimaryCtxRelease_v2(int device) { return device ? ERROR : 0; }
API int cuDeviceGetAttribute(int *out, int what, int device)
{
	*out = what == 117 ? 1 : (int)fake_ordering;
	return device || what < 117 || what > 118 ? ERROR : 0;
}
API int cuMemGetHandleForAddressRange(
	void *handle, dev p, size_t len, int type, unsigned long long flags)
{
	for (int i = 0; fake_dmabuf && type == 1 && !flags && i < ALLOCATIONS; i++)
		if (allocation[i].seen == (char *)(uintptr_t)p &&
			len <= ((allocation[i].len + 4095) & ~(size_t)4095))
			return (*(int *)handle = fcntl(allocation[i].fd, F_DUPFD_CLOEXEC, 0)) < 0
				       ? ERROR
				       : 0;
	return ERROR;
}
/* What a device writes is not there before the flush: for a transport that pretends, too. Its own
 * reads see it, since they push the writes before them. */
enum { WRITES = 1024 };
static struct write {
	char *to, *bytes;
	size_t len;
} writes[WRITES];
static unsigned write_count;
static void writes_land(void)
{
	for (unsigned i = 0; i < write_count; i++) {
		memcpy(writes[i].to, writes[i].bytes, writes[i].len);
		free(writes[i].bytes);
	}
	write_count = 0;
}
API int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	if (!depth || target || scope != 100)
		return INVALID_CONTEXT;
	fake_flushes++;
	writes_land();
	return 0;
}
API void fake_device_writes(void *to, const void *from, size_t len)
{
	if (write_count == WRITES || fake_ordering)
		writes_land();
	writes[write_count] = (struct write){real_of(to, len), malloc(len ? len : 1), len};
	memcpy(writes[write_count++].bytes, from, len);
	if (fake_ordering)
		writes_land();
}
API const void *fake_device_reads(const void *from, size_t len)
{
	writes_land();
	return real_of(from, len);
}
/* For tests: the bytes of device memory. */
API void *fake_bytes(dev p, size_t len) { return real_of((void *)(uintptr_t)p, len); }
