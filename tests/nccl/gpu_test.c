/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_test.c - our plugin and memory of GPUs, over the software device and a driver that pretends
 * (tests/msg/fake_cuda.c): what it advertises is what the devices can, no more and no less, and
 * what it takes nobody copies. Arguments: the plugin, and how the devices reach the memory: "not",
 * "peer", "dmabuf"; "staged": they could, and are not used. A process finds that out once, so each
 * way is a process. */
#include "nccl_pair.h"

#include <dlfcn.h>
#include <unistd.h>

enum { ROOM = 3 << 20 };

const char *plugin_path;

static struct {
	int (*alloc)(unsigned long long *, size_t);
	int (*free)(unsigned long long);
	int (*handle)(
		void *handle, unsigned long long p, size_t len, int type, unsigned long long flags);
	void *(*bytes)(unsigned long long, size_t);
	unsigned long *copies, *flushes;
	long *peer, *dmabuf;
} cuda;
static bool by_address, by_dmabuf;
static const int some_versions[] = {5, 6, 9, 12};

static void *gpu_new(void)
{
	unsigned long long p;
	assert_int_equal(cuda.alloc(&p, ROOM), 0);
	return (void *)(uintptr_t)p;
}
static uint8_t *real(void *p) { return cuda.bytes((uintptr_t)p, ROOM); }

static void advertised_as_it_is(void **unused)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(some_versions); i++) {
		IN_CASE("version", some_versions[i]);
		struct pair p;
		struct ncclnet_properties props;
		int abi = some_versions[i];
		pair_load(&p, abi);
		OK(ncclnet_properties(p.n, 0, &props));
		bool any = by_address || by_dmabuf;
		assert_int_equal(
			props.ptr_support, NCCL_PTR_HOST | (any ? NCCL_PTR_CUDA : 0) |
						   (by_dmabuf && abi > 5 ? NCCL_PTR_DMABUF : 0));
		pair_close(&p);
	}
}

static void registered(struct pair *p, void *comm, void *data, int fd, void **mhandle)
{
	if (fd < 0)
		OK(ncclnet_reg(p->n, comm, data, ROOM, NCCL_PTR_CUDA, mhandle));
	else
		OK(ncclnet_reg_dmabuf(p->n, comm, data, ROOM, NCCL_PTR_CUDA, 0, fd, mhandle));
	assert_non_null(*mhandle);
}

static void refused_with_what_is_missing(struct pair *p, void *data)
{
	void *mhandle = data;
	if (!by_address && !by_dmabuf)
		REFUSED(ncclnet_reg(p->n, p->send, data, ROOM, NCCL_PTR_CUDA, &mhandle),
			NCCL_INVALID_ARGUMENT, "a NIC is needed");
	if (!by_dmabuf && p->n->abi > 5)
		REFUSED(ncclnet_reg_dmabuf(
				p->n, p->send, data, ROOM, NCCL_PTR_CUDA, 0, 0, &mhandle),
			NCCL_INVALID_ARGUMENT, by_address ? "take no dma-buf" : "a NIC is needed");
	assert_true(mhandle == data || !mhandle);
}

static void nobody_copies(void **unused)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(some_versions); i++) {
		IN_CASE("version", some_versions[i]);
		struct pair p;
		void *from = gpu_new(), *to = gpu_new(), *from_handle = NULL, *to_handle = NULL;
		int fd = -1;
		pair_open(&p, some_versions[i]);
		refused_with_what_is_missing(&p, from);
		if (by_dmabuf && some_versions[i] > 5)
			assert_int_equal(cuda.handle(&fd, (uintptr_t)from, ROOM, 1, 0), 0);
		if (by_address || by_dmabuf) {
			registered(&p, p.send, from, fd, &from_handle);
			registered(&p, p.recv, to, -1, &to_handle);
		}
		if (fd >= 0)
			close(fd); /* as NCCL does */
		unsigned long copies = *cuda.copies, flushes = *cuda.flushes;
		for (size_t size = 0; from_handle && size < ROOM; size = size * 9 + 1) {
			IN_CASE("size", size);
			int sent[NCCL_NET_GROUP_MAX] = {-1}, got[NCCL_NET_GROUP_MAX] = {-1},
			    flush_size = (int)size;
			unsigned seed = ++p.seed;
			pattern_fill(real(from), size, seed);
			memset(real(to), 0x5a, ROOM);
			void *r = pair_irecv(&p, to, ROOM, 3), *s = pair_isend(&p, from, size, 3);
			pair_wait_two(&p, s, r, sent, got);
			assert_int_equal(got[0], (int)size);
			OK(ncclnet_iflush(p.n, p.recv, 1, &to, &flush_size, &to_handle, &r));
			assert_null(r); /* nothing to wait for: it was flushed before it was told */
			pair_verify(real(to), size, seed);
			assert_int_equal(real(to)[size], 0x5a);
		}
		assert_int_equal(*cuda.copies, copies);
		assert_int_equal(*cuda.flushes > flushes, from_handle != NULL);
		/* the other is left for close */
		if (from_handle)
			OK(ncclnet_dereg(p.n, p.send, from_handle));
		pair_message(&p, 100000, 1);
		pair_close(&p);
		cuda.free((uintptr_t)from);
		cuda.free((uintptr_t)to);
	}
}

/* NCCL is told what it must not do then. */
static void staged_is_said(void **unused)
{
	struct pair p;
	void *data = gpu_new(), *mhandle = NULL;
	pair_open(&p, 12);
	*pair_warned = 0;
	registered(&p, p.recv, data, -1, &mhandle);
	assert_non_null(strstr(pair_warned, "by shm"));
	assert_non_null(strstr(pair_warned, "NCCL_PROTO=^LL128"));
	pair_close(&p);
	cuda.free((uintptr_t)data);
}

int main(int argc, char **argv)
{
	void *l = dlopen(getenv("ROPEWAY_CUDA_LIBRARY"), RTLD_NOW);
	if (!l || argc < 3) {
		fprintf(stderr,
			"usage: %s PLUGIN.so not|peer|dmabuf|staged, with ROPEWAY_CUDA_LIBRARY: "
			"%s\n",
			argv[0], l ? "" : dlerror());
		return 2;
	}
	bool staged = !strcmp(argv[2], "staged"); /* another path is preferred to the devices' */
	by_address = staged || !strcmp(argv[2], "peer");
	by_dmabuf = !strcmp(argv[2], "dmabuf");
	cuda.alloc = (int (*)(unsigned long long *, size_t))dlsym(l, "cuMemAlloc_v2");
	cuda.free = (int (*)(unsigned long long))dlsym(l, "cuMemFree_v2");
	cuda.handle = (int (*)(void *, unsigned long long, size_t, int, unsigned long long))dlsym(
		l, "cuMemGetHandleForAddressRange");
	cuda.bytes = (void *(*)(unsigned long long, size_t))dlsym(l, "fake_bytes");
	cuda.copies = dlsym(l, "fake_copies");
	cuda.flushes = dlsym(l, "fake_flushes");
	*(long *)dlsym(l, "fake_peer") = by_address;
	*(long *)dlsym(l, "fake_dmabuf") = by_dmabuf;
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(advertised_as_it_is), cmocka_unit_test(nobody_copies)};
	const struct CMUnitTest staged_tests[] = {cmocka_unit_test(staged_is_said)};
	if (staged)
		setenv("ROPEWAY_NCCL_TRANSPORT", "shm,verbs", 1);
	return staged ? pair_main(2, argv, staged_tests, 1)
		      : pair_main(2, argv, tests, RPWI_ARRAY_LEN(tests));
}
