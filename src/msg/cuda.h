/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.h - memory of NVIDIA GPUs, through the driver library (libcuda.so.1), which is opened at run
 * time: nothing of CUDA is needed to build ropeway or to run it without a GPU. ROPEWAY_CUDA_LIBRARY
 * names another file (tests). Threads: as the context that uses it. */
#ifndef ROPEWAY_MSG_CUDA_H
#define ROPEWAY_MSG_CUDA_H

#include "base/base.h"

/* One CUDA context, and two streams of ours in it: copies to the host, copies to the device. */
struct gpu {
	struct rpwi_list all; /* of the rpw_context */
	void *context;
	void *stream[2]; /* enum gpu_direction */
	bool direct;     /* devices may write into its memory, and be waited for; */
	bool flush;      /* ... what they wrote has to be flushed before it is there */
	bool exposed;    /* peers were told how to write into it by themselves */
};
enum gpu_direction { GPU_OUT, GPU_IN };

/* The GPU whose memory this is, found in `gpus` or added to it. 0 or enum rpw_status, said by
 * rpwi_fail. */
int gpu_of(struct rpwi_list *gpus, const void *addr, size_t len, struct gpu **out);
void gpu_free(struct gpu *g);
/* Page-locked memory that all GPUs can copy from and to. NULL: none. */
void *gpu_pinned_new(struct gpu *g, size_t len);
void gpu_pinned_free(struct gpu *g, void *p);
/* Begin a copy between device and page-locked memory; *event (made when NULL) tells when it is
 * done. 0 or enum rpw_status. */
int gpu_copy_begin(
	struct gpu *g, enum gpu_direction way, void *device, void *host, size_t len, void **event);
int gpu_copy_look(struct gpu *g, void *event); /* 0 done, 1 under way, or enum rpw_status */
void gpu_copy_wait(struct gpu *g, enum gpu_direction way);
void gpu_event_free(struct gpu *g, void *event);
/* A copy that is done on return. 0 or enum rpw_status. */
int gpu_copy(struct gpu *g, enum gpu_direction way, void *device, void *host, size_t len);

/* Reads 8 bytes of device memory into *before, and writes what `change` makes of them, unless it is
 * what was there. One such at a time in this process; kernels may write between the two. 0 or enum
 * rpw_status. */
int gpu_change(struct gpu *g, void *device, uint64_t (*change)(uint64_t before, const void *arg),
	const void *arg, uint64_t *before);

/* What devices have written into its memory, as far as their completions are known, is there for
 * whatever runs on it from now on. 0 or enum rpw_status. */
int gpu_flush(struct gpu *g);
/* A descriptor (the caller's) of a dma-buf that has the memory from *offset on; -1: the driver
 * gives none. */
int gpu_dmabuf(struct gpu *g, const void *addr, size_t len, uint64_t *offset);
/* A little memory of the GPU that is current, or else of the first, to try things with. 0 or enum
 * rpw_status. */
struct gpu_sample {
	void *addr;
	size_t len;
	void *context;
	int device;
	bool retained;
};
int gpu_sample(struct gpu_sample *s);
void gpu_sample_free(struct gpu_sample *s);

#endif
