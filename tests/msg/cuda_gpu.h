/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_gpu.h - the fake driver (fake_cuda.c) as tests see it, and buffers in its memory. */
#ifndef TESTS_MSG_CUDA_GPU_H
#define TESTS_MSG_CUDA_GPU_H

#include "pair.h"

enum { ROOM = 5 << 20 };

struct cuda {
	int (*alloc)(unsigned long long *, size_t);
	int (*free)(unsigned long long);
	void *(*bytes)(unsigned long long, size_t);
	unsigned long *copies, *pinned, *streams, *events, *flushes;
	long *fail_after, *peer, *dmabuf, *ordering;
	void (*device_writes)(void *to, const void *from, size_t len);
	const void *(*device_reads)(const void *from, size_t len);
	int (*handle)(
		void *handle, unsigned long long p, size_t len, int type, unsigned long long flags);
};
extern struct cuda cuda;
/* False: ROPEWAY_CUDA_LIBRARY cannot be loaded, and it has been said. */
bool cuda_open(void);

/* A buffer, on the GPU or not. */
struct buffer {
	char *at;
	bool device;
	rpw_memory *m;
};

char *bytes(const struct buffer *b, size_t len);
struct buffer buffer_new(rpw_context *c, bool device, unsigned access);
void buffer_free(struct buffer *b);

#endif
