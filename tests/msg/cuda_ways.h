/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_ways.h - the ways in which each test of cuda_test.c is run, and what stands before and after
 * it. Included once. */
#ifndef ROPEWAY_TESTS_CUDA_WAYS_H
#define ROPEWAY_TESTS_CUDA_WAYS_H

#include "cuda_gpu.h"
#include "pair.h"

#ifdef MSG_FAKE
#include "fake.h"
enum way { STAGED, PEER, WAYS };
static const char *const transports[] = {"fake_a", "fake_b,fake_a", NULL};
#else
enum way { STAGED, PEER, DMABUF, WAYS };
static const char *const transports[] = {"shm", "tcp", NULL};
#endif
static const char *const way_names[] = {"staged", "by peer memory", "by dma-buf"};
#define ALL UINT64_MAX

static const char *transport;
static enum way way;

#ifdef MSG_FAKE
static void fake_gpu(void)
{
	fake.gpu_write = way == PEER ? cuda.device_writes : NULL;
	fake.gpu_read = cuda.device_reads;
}
#endif

static int quiet(void **state)
{
#ifdef MSG_FAKE
	fake = (struct fake_knobs){.rng = {0x5eed}, .eager_max = 2048, .frame_max = 8192};
	fake_gpu();
#else
	*cuda.dmabuf = way == DMABUF;
#endif
	*cuda.peer = way == PEER;
	*cuda.ordering = 0;
	*cuda.fail_after = -1;
	return 0;
}
static int nothing_left(void **state)
{
	assert_int_equal(*cuda.pinned, 0);
	assert_int_equal(*cuda.streams, 0);
	assert_int_equal(*cuda.events, 0);
	return 0;
}

static unsigned run(const char *over, enum way by, const struct CMUnitTest *tests, size_t count)
{
	char name[64];
	transport = over;
	way = by;
	snprintf(name, sizeof(name), "%s, %s", over, way_names[by]);
	return (unsigned)_cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

#endif
