/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_test.c - messages and transfers between memory of GPUs and of hosts, all ways round, over a
 * fake driver (fake_cuda.c) whose memory the CPU cannot touch and whose copies are late. Each is
 * run staged, and where the transport may reach such memory by itself, so: over fakes, and over
 * verbs ("cuda_test verbs"), where the software device does, by address and by dma-buf. */
#include <unistd.h>

#include "cuda_ways.h"
#include "pair.h"

static const size_t sizes[] = {
	1, 8, 2048, 4096, 4097, 65536, (512 << 10) - 1, 512 << 10, (512 << 10) + 1, (4 << 20) + 77};
enum { NSIZES = sizeof(sizes) / sizeof(*sizes) };

static void messages_of_all_sizes(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	for (int ways = 1; ways < 4; ways++) { /* bit 0: from a GPU, bit 1: into one */
		struct buffer out = buffer_new(p.a, ways & 1, 0), in = buffer_new(p.b, ways & 2, 0);
		for (unsigned i = 0; i < NSIZES; i++)
			for (int early = 0; early < 2; early++) {
				size_t n = sizes[i];
				uint64_t tag = i * 8 + (unsigned)ways * 2 + (unsigned)early;
				rpw_request *s = NULL, *r = NULL;
				rpw_completion done = RPW_COMPLETION_INIT;
				pattern_fill(bytes(&out, n), n, tag);
				memset(bytes(&in, n + 16), 0x5a, n + 16);
				if (!early)
					assert_int_equal(
						rpw_recv(p.b, p.eb, in.at, ROOM, tag, ALL, &r),
						RPW_IN_PROGRESS);
				assert_true(rpw_send(p.ea, out.at, n, tag, &s) >= 0);
				if (early) {
					while (rpw_probe(p.b, NULL, tag, ALL, &done) ==
						RPW_IN_PROGRESS)
						both(&p);
					assert_int_equal(done.length, n);
					assert_int_equal(
						rpw_recv(p.b, NULL, in.at, ROOM, tag, ALL, &r),
						RPW_IN_PROGRESS);
				}
				assert_int_equal(finish(&p, r, &done), RPW_OK);
				assert_int_equal(done.length, n);
				assert_int_equal(pattern_wrong(bytes(&in, n), n, tag), n);
				assert_int_equal((uint8_t)bytes(&in, n + 1)[n], 0x5a);
				assert_int_equal(finish(&p, s, NULL), RPW_OK);
			}
		buffer_free(&out);
		buffer_free(&in);
	}
	pair_close(&p);
}

static void many_at_once_and_too_long(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	enum { N = 6, LEN = 700001 };
	struct buffer out = buffer_new(p.a, true, 0), in = buffer_new(p.b, true, 0);
	rpw_request *s[N], *r[N];
	for (int i = 0; i < N; i++) {
		pattern_fill(bytes(&out, ROOM) + (size_t)i * LEN, LEN, (uint64_t)i);
		memset(bytes(&in, ROOM) + (size_t)i * LEN, 0x5a, LEN);
		/* The third is longer than its receive. */
		rpw_recv(p.b, NULL, in.at + (size_t)i * LEN, i == 2 ? LEN / 2 : LEN, (uint64_t)i,
			ALL, &r[i]);
	}
	for (int i = N; i-- > 0;)
		assert_true(rpw_send(p.ea, out.at + (size_t)i * LEN, LEN, (uint64_t)i, &s[i]) >= 0);
	for (int i = 0; i < N; i++) {
		rpw_completion done = RPW_COMPLETION_INIT;
		assert_int_equal(finish(&p, r[i], &done), i == 2 ? RPW_ERR_TRUNCATED : RPW_OK);
		assert_int_equal(done.length, LEN);
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
		size_t right = i == 2 ? LEN / 2 : LEN;
		assert_int_equal(
			pattern_wrong(bytes(&in, ROOM) + (size_t)i * LEN, right, (uint64_t)i),
			right);
		for (size_t k = right; k < LEN; k++)
			assert_int_equal((uint8_t)bytes(&in, ROOM)[(size_t)i * LEN + k], 0x5a);
	}
	buffer_free(&out);
	buffer_free(&in);
	pair_close(&p);
}

static struct buffer object_memory;
static void *object_alloc(size_t len, void *arg) { return len <= ROOM ? object_memory.at : NULL; }
static uint64_t am_wrong;
static unsigned am_came;
static void am_take(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	uint64_t seed;
	memcpy(&seed, header, 8);
	am_wrong += pattern_wrong(data, len, seed) != len;
	am_came++;
}

static void objects_and_active_messages(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	struct buffer out = buffer_new(p.a, true, 0);
	object_memory = buffer_new(p.b, true, 0);
	rpw_context_on_am(p.b, 7, am_take, NULL);
	am_wrong = am_came = 0;
	for (unsigned i = 0; i < NSIZES; i++) {
		size_t n = sizes[i], len;
		uint64_t seed = 500 + i;
		void *got;
		rpw_request *s = NULL, *r = NULL;
		pattern_fill(bytes(&out, n), n, seed);
		memset(bytes(&object_memory, n), 0, n);
		assert_int_equal(rpw_recv_obj(p.b, p.eb, object_alloc, NULL, &got, &len, &r),
			RPW_IN_PROGRESS);
		assert_true(rpw_send_obj(p.ea, out.at, n, &s) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		assert_ptr_equal(got, object_memory.at);
		assert_int_equal(len, n);
		assert_int_equal(pattern_wrong(bytes(&object_memory, n), n, seed), n);
		assert_true(rpw_am_send(p.ea, 7, &seed, 8, out.at, n, &s) >= 0);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		WHILE_IN_TIME (am_came <= i)
			both(&p);
	}
	assert_int_equal(am_came, NSIZES);
	assert_int_equal(am_wrong, 0);
	buffer_free(&out);
	buffer_free(&object_memory);
	pair_close(&p);
}

static uint64_t told, told_len;
static void note(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	told = data;
	told_len = len;
}

static void puts_and_gets(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	rpw_context_on_notify(p.b, note, NULL);
	for (int ways = 1; ways < 4; ways++) {
		struct buffer here = buffer_new(p.a, ways & 1, 0),
			      there = buffer_new(p.b, ways & 2, RPW_REMOTE_READ | RPW_REMOTE_WRITE);
		uint8_t packed[RPW_RKEY_BYTES_MAX];
		rpw_rkey *k;
		int len = rpw_rkey_pack(there.m, packed, sizeof(packed));
		assert_true(len > 0);
		assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)len, &k), RPW_OK);
		for (unsigned i = 0; i < NSIZES; i++) {
			size_t n = sizes[i];
			uint64_t seed = (unsigned)ways * 100 + i;
			rpw_request *r = NULL;
			pattern_fill(bytes(&here, n), n, seed);
			memset(bytes(&there, ROOM), 0x5a, ROOM);
			told = 0;
			assert_true(rpw_put_notify(p.ea, here.at, n, k, 5, seed, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_true(rpw_endpoint_flush(p.ea, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(told, seed);
			assert_int_equal(told_len, n);
			assert_int_equal(pattern_wrong(bytes(&there, ROOM) + 5, n, seed), n);
			assert_int_equal((uint8_t)bytes(&there, ROOM)[4], 0x5a);
			assert_int_equal((uint8_t)bytes(&there, ROOM)[5 + n], 0x5a);
			memset(bytes(&here, n), 0, n);
			assert_true(rpw_get(p.ea, here.at, n, k, 5, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(bytes(&here, n), n, seed), n);
		}
		/* A batch, of both kinds, one of them fenced off from a put to the same place. */
		rpw_request *r = NULL;
		pattern_fill(bytes(&here, ROOM), 3 << 20, 77);
		rpw_transfer t[] = {{sizeof(*t), false, here.at, 1 << 20, k, 0},
			{sizeof(*t), false, here.at + (1 << 20), 1 << 20, k, 1 << 20},
			{sizeof(*t), false, here.at + (2 << 20), 1 << 20, k, 2 << 20}};
		assert_true(rpw_transfer_batch(p.ea, t, 3, &r) >= 0);
		assert_int_equal(rpw_endpoint_fence(p.ea), RPW_OK);
		rpw_request *last = NULL;
		assert_true(rpw_put(p.ea, here.at + (1 << 20), 1 << 20, k, 0, &last) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(finish(&p, last, NULL), RPW_OK);
		assert_true(rpw_endpoint_flush(p.ea, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_memory_equal(bytes(&there, ROOM), bytes(&here, ROOM) + (1 << 20), 1 << 20);
		assert_memory_equal(
			bytes(&there, ROOM) + (1 << 20), bytes(&here, ROOM) + (1 << 20), 2 << 20);
		rpw_rkey_destroy(k);
		buffer_free(&here);
		buffer_free(&there);
	}
	pair_close(&p);
}

/* By the processor of the side that has it: no transport can. */
static void atomics_count(void **state)
{
	struct pair p;
	uint8_t packed[RPW_RKEY_BYTES_MAX];
	uint64_t before[3] = {0}, *at;
	rpw_request *r[3] = {NULL};
	rpw_rkey *k;
	pair_open(&p, transport);
	struct buffer d = buffer_new(p.b, true, RPW_REMOTE_ATOMIC);
	int len = rpw_rkey_pack(d.m, packed, sizeof(packed));
	assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)len, &k), RPW_OK);
	at = (uint64_t *)(void *)(bytes(&d, ROOM) + 4096);
	*at = 40;
	assert_true(rpw_fetch_add(p.ea, 2, k, 4096, &before[0], &r[0]) >= 0);
	assert_true(rpw_compare_swap(p.ea, 42, 7, k, 4096, &before[1], &r[1]) >= 0);
	assert_true(rpw_compare_swap(p.ea, 42, 9, k, 4096, &before[2], &r[2]) >= 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(finish(&p, r[i], NULL), RPW_OK);
	assert_int_equal(*at, 7);
	assert_true(before[0] == 40 && before[1] == 42 && before[2] == 7);
	assert_int_equal(rpw_fetch_add(p.ea, 1, k, ROOM - 4, &before[0], &r[0]), RPW_ERR_ACCESS);
	rpw_rkey_destroy(k);
	buffer_free(&d);
	pair_close(&p);
}

static void refused_by_name(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	rpw_memory *m;
	char host[64];
	assert_int_equal(rpw_memory_register(p.a, host, sizeof(host), RPW_MEMORY_CUDA, 0, &m),
		RPW_ERR_INVALID);
	assert_non_null(strstr(rpw_last_error(), "is not memory of a GPU"));
	struct buffer d = buffer_new(p.b, true, RPW_REMOTE_READ | RPW_REMOTE_ATOMIC),
		      mine = buffer_new(p.a, true, 0);
	assert_int_equal(
		rpw_memory_register(p.b, d.at + 8, ROOM, RPW_MEMORY_CUDA, 0, &m), RPW_ERR_INVALID);
	assert_non_null(strstr(rpw_last_error(), "more than the GPU's allocation has"));
	uint8_t packed[RPW_RKEY_BYTES_MAX];
	rpw_rkey *k;
	int len = rpw_rkey_pack(d.m, packed, sizeof(packed));
	assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)len, &k), RPW_OK);
	rpw_request *r = NULL;
	assert_int_equal(rpw_put(p.ea, host, sizeof(host), k, 0, &r), RPW_ERR_ACCESS);
	struct iovec two[] = {{host, 8}, {mine.at, 8}};
	assert_int_equal(rpw_send_iov(p.ea, two, 2, 1, &r), RPW_ERR_NOT_SUPPORTED);
	assert_int_equal(rpw_recv_iov(p.a, NULL, two, 2, 1, ALL, &r), RPW_ERR_NOT_SUPPORTED);
	/* Memory that is released is reached no more. */
	rpw_memory_destroy(d.m);
	d.m = NULL;
	int rc = rpw_get(p.ea, mine.at, 100000, k, 0, &r);
	assert_int_equal(rc < 0 ? rc : finish(&p, r, NULL), RPW_ERR_ACCESS);
	rpw_rkey_destroy(k);
	buffer_free(&d);
	buffer_free(&mine);
	pair_close(&p);
}

/* What goes by itself is copied by nobody, and is flushed where that GPU needs it before anybody is
 * told. */
static void nobody_copies_what_is_direct(void **state)
{
	if (way == STAGED || !strcmp(transport, "fake_a"))
		return;
	for (int ordered = 0; ordered < 2; ordered++) {
		struct pair p;
		*cuda.ordering = ordered * 100;
		pair_open(&p, transport);
		rpw_context_on_notify(p.b, note, NULL);
		const unsigned all = RPW_REMOTE_READ | RPW_REMOTE_WRITE;
		struct buffer out = buffer_new(p.a, true, all),
			      in = buffer_new(p.b, true, ordered ? all : 0);
		uint8_t packed[RPW_RKEY_BYTES_MAX];
		rpw_rkey *k = NULL;
		if (ordered) {
			int len = rpw_rkey_pack(in.m, packed, sizeof(packed));
			assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)len, &k), RPW_OK);
		}
		unsigned long copies = *cuda.copies, flushes = *cuda.flushes;
		for (size_t n = 1, i = 0; n + 3 * i < ROOM; n *= 3, i++) {
			rpw_request *s = NULL, *r = NULL;
			pattern_fill(bytes(&out, ROOM) + 3 * i, n, i);
			memset(bytes(&in, ROOM), 0x5a, ROOM);
			rpw_recv(p.b, NULL, in.at + i, ROOM - i, 3, ALL, &r);
			assert_true(rpw_send(p.ea, out.at + 3 * i, n, 3, &s) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(bytes(&in, ROOM) + i, n, i), n);
			assert_int_equal((uint8_t)bytes(&in, ROOM)[i + n], 0x5a);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			if (!k)
				continue;
			pattern_fill(bytes(&out, ROOM), n, 100 + i);
			told = 0;
			assert_true(rpw_put_notify(p.ea, out.at, n, k, i, i + 1, &s) >= 0);
			WHILE_IN_TIME (!told)
				both(&p);
			assert_int_equal(told, i + 1);
			assert_int_equal(pattern_wrong(bytes(&in, ROOM) + i, n, 100 + i), n);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			memset(bytes(&out, ROOM), 0, n);
			assert_true(rpw_get(p.ea, out.at, n, k, i, &s) >= 0);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(bytes(&out, ROOM), n, 100 + i), n);
		}
		/* Flushed, not notified. */
		rpw_request *s = NULL;
		for (size_t n = 1; k && n <= 4096; n *= 4) {
			pattern_fill(bytes(&out, n), n, n);
			assert_true(rpw_put(p.ea, out.at, n, k, 0, &s) >= 0);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_true(rpw_endpoint_flush(p.ea, &s) >= 0);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(bytes(&in, n), n, n), n);
			assert_true(rpw_get(p.ea, out.at + 9, n, k, 0, &s) >= 0);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(bytes(&out, ROOM) + 9, n, n), n);
		}
		assert_int_equal(*cuda.copies, copies);
		assert_int_equal(*cuda.flushes > flushes, !ordered);
		rpw_rkey_destroy(k);
		buffer_free(&out);
		buffer_free(&in);
		pair_close(&p);
	}
}

/* One side's memory is direct, the other's is staged or of the host: whoever can, does. */
static void one_side_only(void **state)
{
	for (int side = 0; side < 2 && way != STAGED; side++) {
		struct pair p;
		pair_open(&p, transport);
		*cuda.ordering = 100;
		struct buffer out = buffer_new(p.a, true, side ? RPW_REMOTE_READ : 0);
		uint8_t packed[RPW_RKEY_BYTES_MAX];
		/* so it is registered now */
		assert_true(rpw_rkey_pack(out.m, packed, sizeof(packed)) > 0);
		*cuda.peer = *cuda.dmabuf = 0;
		struct buffer in = buffer_new(p.b, true, RPW_REMOTE_WRITE | RPW_REMOTE_READ);
		rpw_rkey *k;
		int len = rpw_rkey_pack(in.m, packed, sizeof(packed));
		assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)len, &k), RPW_OK);
		for (unsigned i = 0; i < NSIZES; i++) {
			size_t n = sizes[i];
			rpw_request *s = NULL, *r = NULL;
			for (int back = 0; back < 2; back++) {
				struct buffer *from = back ? &in : &out, *to = back ? &out : &in;
				pattern_fill(bytes(from, n), n, i * 2 + (unsigned)back);
				memset(bytes(to, n), 0x5a, n);
				rpw_recv(back ? p.a : p.b, NULL, to->at, ROOM, 3, ALL, &r);
				assert_true(rpw_send(back ? p.eb : p.ea, from->at, n, 3, &s) >= 0);
				assert_int_equal(finish(&p, r, NULL), RPW_OK);
				assert_int_equal(finish(&p, s, NULL), RPW_OK);
				assert_int_equal(
					pattern_wrong(bytes(to, n), n, i * 2 + (unsigned)back), n);
			}
			pattern_fill(bytes(&out, n), n, 50 + i);
			assert_true(rpw_put(p.ea, out.at, n, k, 1, &s) >= 0);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_true(rpw_endpoint_flush(p.ea, &s) >= 0);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(bytes(&in, ROOM) + 1, n, 50 + i), n);
		}
		rpw_rkey_destroy(k);
		buffer_free(&out);
		buffer_free(&in);
		pair_close(&p);
		quiet(state);
	}
}

/* The question that can be asked before there is any connection. */
static void what_devices_can(void **state)
{
	rpw_context *c;
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	assert_int_equal(rpw_context_create(&o, &c), 0);
	bool can = way != STAGED && strcmp(transport, "fake_a") != 0;
	assert_int_equal(rpw_memory_direct(c), !can          ? 0
					       : way == PEER ? RPW_DIRECT_PEER
							     : RPW_DIRECT_DMABUF);
	if (!can && strncmp(transport, "fake", 4) != 0)
		assert_non_null(strstr(rpw_last_error(), strcmp(transport, "verbs")
								 ? "reached by RDMA devices only"
								 : "a NIC is needed"));
#ifndef MSG_FAKE
	*cuda.peer = *cuda.dmabuf = 1;
	assert_int_equal(rpw_memory_direct(c),
		strcmp(transport, "verbs") ? 0 : RPW_DIRECT_PEER | RPW_DIRECT_DMABUF);
#endif
	rpw_context_destroy(c);
}

#ifndef MSG_FAKE
/* The program has the dma-buf, the driver gives none; it is closed, and part of the memory is
 * meant. */
static void a_dma_buf_of_the_program(void **state)
{
	enum { FROM = 8192, LEN = 1 << 20 };
	struct pair p;
	pair_open(&p, transport);
	struct buffer out = buffer_new(p.a, true, 0), in = buffer_new(p.b, true, 0);
	rpw_memory_destroy(out.m);
	out.m = NULL;
	int fd = -1;
	*cuda.dmabuf = 1;
	assert_int_equal(cuda.handle(&fd, (uintptr_t)out.at, ROOM, 1, 0), 0);
	*cuda.dmabuf = 0;
	rpw_memory *m;
	assert_int_equal(
		rpw_memory_register_dmabuf(p.a, out.at + FROM, LEN, fd, FROM, RPW_REMOTE_READ, &m),
		RPW_OK);
	assert_ptr_equal(rpw_memory_address(m), out.at + FROM);
	close(fd);
	unsigned long copies = *cuda.copies, mine = 0;
	for (size_t n = 5000; n <= LEN; n += LEN - 5000) {
		rpw_request *s = NULL, *r = NULL;
		char *to = malloc(LEN);
		pattern_fill(bytes(&out, ROOM) + FROM, n, n);
		rpw_recv(p.b, NULL, to, LEN, 3, ALL, &r);
		assert_true(rpw_send(p.ea, out.at + FROM, n, 3, &s) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		assert_int_equal(pattern_wrong(to, n, n), n);
		free(to);
		mine = *cuda.copies - copies;
	}
	assert_int_equal(mine > 0, strcmp(transport, "verbs") != 0);
	rpw_memory_destroy(m);
	buffer_free(&out);
	buffer_free(&in);
	pair_close(&p);
}
#endif

/* A list of many pieces of the host goes into a GPU. */
static void lists_of_the_host(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	enum { N = 40, EACH = 30001 };
	struct buffer in = buffer_new(p.b, true, 0);
	char *out = malloc((size_t)N * EACH);
	struct iovec iov[N];
	for (int count = 5; count <= N; count += N - 5) {
		pattern_fill(out, (size_t)N * EACH, (uint64_t)count);
		for (int i = 0; i < count; i++)
			iov[i] = (struct iovec){out + (size_t)i * EACH, EACH};
		rpw_request *s = NULL, *r = NULL;
		rpw_recv(p.b, NULL, in.at, ROOM, 3, ALL, &r);
		assert_true(rpw_send_iov(p.ea, iov, count, 3, &s) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		assert_int_equal(
			pattern_wrong(bytes(&in, ROOM), (size_t)count * EACH, (uint64_t)count),
			(size_t)count * EACH);
	}
	free(out);
	buffer_free(&in);
	pair_close(&p);
}

static void into_lists_of_the_host(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	enum { N = 40, EACH = 30001 };
	struct buffer out = buffer_new(p.a, true, 0);
	char *in = malloc((size_t)N * EACH + 1);
	struct iovec iov[N];
	for (int count = 2; count <= N; count += 19) {
		size_t room = (size_t)count * EACH;
		pattern_fill(bytes(&out, ROOM), room + 100, (uint64_t)count);
		memset(in, 0x5a, room + 1);
		for (int i = 0; i < count; i++)
			iov[i] = (struct iovec){in + (size_t)i * EACH, EACH};
		for (size_t len = 7000; len <= room + 100; len += (room + 100 - 7000) / 2) {
			IN_CASE("len", len);
			/* the last is longer than the lists */
			rpw_request *s = NULL, *r = NULL;
			rpw_recv_iov(p.b, NULL, iov, count, 3, ALL, &r);
			assert_true(rpw_send(p.ea, out.at, len, 3, &s) >= 0);
			assert_int_equal(
				finish(&p, r, NULL), len > room ? RPW_ERR_TRUNCATED : RPW_OK);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			size_t right = len > room ? room : len;
			assert_int_equal(pattern_wrong(in, right, (uint64_t)count), right);
			assert_int_equal((uint8_t)in[right], 0x5a);
			memset(in, 0x5a, room + 1);
		}
	}
	free(in);
	buffer_free(&out);
	pair_close(&p);
}

/* The GPU fails in the middle, on either side: both learn it, nobody hangs, and the endpoint goes
 * on. */
static void a_gpu_that_fails(void **state)
{
	if (way != STAGED)
		return; /* it is not asked for anything */
	for (int side = 0; side < 2; side++)
		for (long after = 0; after < 12; after += 3) {
			struct pair p;
			pair_open(&p, transport);
			struct buffer out = buffer_new(p.a, !side, 0),
				      in = buffer_new(p.b, side, 0);
			rpw_request *s = NULL, *r = NULL;
			size_t n = 4 << 20;
			pattern_fill(bytes(&out, n), n, 1);
			*cuda.fail_after = after;
			rpw_recv(p.b, NULL, in.at, ROOM, 3, ALL, &r);
			assert_true(rpw_send(p.ea, out.at, n, 3, &s) >= 0);
			int there = finish(&p, r, NULL), here = finish(&p, s, NULL);
			*cuda.fail_after = -1;
			if (after < 8) {
				assert_int_equal(there, RPW_ERR_SYSTEM);
				assert_int_equal(here, RPW_ERR_SYSTEM);
			} else
				assert_int_equal(there, RPW_OK);
			char small[8] = "alive", got[8] = "";
			rpw_recv(p.b, NULL, got, 8, 4, ALL, &r);
			assert_true(rpw_send(p.ea, small, 8, 4, &s) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_string_equal(got, "alive");
			buffer_free(&out);
			buffer_free(&in);
			pair_close(&p);
		}
}

/* Closed in the middle, at every point: what was posted ends, and no memory is touched
 * afterwards. */
static void closed_in_the_middle(void **state)
{
	for (int rounds = 0; rounds < 60; rounds++) {
		IN_CASE("round", rounds);
		struct pair p;
		pair_open(&p, transport);
		struct buffer out = buffer_new(p.a, true, 0), in = buffer_new(p.b, true, 0);
		rpw_request *s = NULL, *r = NULL;
		size_t n = 4 << 20;
		rpw_recv(p.b, NULL, in.at, ROOM, 3, ALL, &r);
		assert_true(rpw_send(p.ea, out.at, n, 3, &s) >= 0);
		for (int i = 0; i < rounds; i++)
			both(&p);
		rpw_endpoint_destroy(rounds & 1 ? p.ea : p.eb);
		*(rounds & 1 ? &p.ea : &p.eb) = NULL;
		memset(bytes(&in, ROOM), 0x5a, ROOM);
		WHILE_IN_TIME (rpw_request_test(s, NULL) == RPW_IN_PROGRESS)
			both(&p);
		rpw_request_destroy(s);
		for (long i = 0; i < 200000 && rpw_request_test(r, NULL) == RPW_IN_PROGRESS &&
				 (p.eb || rounds & 1);
			i++)
			both(&p);
		rpw_request_destroy(r);
		const char *left = bytes(&in, ROOM);
		if (!(rounds & 1))
			assert_true(left[0] == 0x5a && !memcmp(left, left + 1, ROOM - 1));
		buffer_free(&out);
		buffer_free(&in);
		pair_close(&p);
	}
}

#ifdef MSG_FAKE
/* The path breaks again and again: nothing is lost or comes twice. */
static void over_a_path_that_breaks(void **state)
{
	unsigned breaks = 0;
	FOR_SEEDS (seeds, 40) {
		uint64_t seed = seeds.seed;
		fake = (struct fake_knobs){.rng = {seed},
			.eager_max = 2048,
			.frame_max = 8192,
			.again_percent = 10,
			.late_percent = 30,
			.break_permille = 40};
		fake_gpu();
		struct pair p;
		pair_open(&p, "fake_b,fake_a");
		/* From a GPU into one, and between one and the host. */
		struct buffer out = buffer_new(p.a, seed % 3 != 1, 0),
			      in = buffer_new(
				      p.b, seed % 3 != 2, RPW_REMOTE_WRITE | RPW_REMOTE_READ);
		enum { N = 3, LEN = 1400000 };
		rpw_request *s[N], *r[N], *put = NULL;
		uint8_t packed[RPW_RKEY_BYTES_MAX];
		rpw_rkey *k;
		int len = rpw_rkey_pack(in.m, packed, sizeof(packed));
		assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)len, &k), RPW_OK);
		for (int i = 0; i < N; i++) {
			pattern_fill(
				bytes(&out, ROOM) + (size_t)i * LEN, LEN, seed * 10 + (uint64_t)i);
			rpw_recv(p.b, NULL, in.at + (size_t)i * LEN, LEN, (uint64_t)i, ALL, &r[i]);
			assert_true(rpw_send(p.ea, out.at + (size_t)i * LEN, LEN, (uint64_t)i,
					    &s[i]) >= 0);
		}
		assert_true(rpw_put(p.ea, out.at, 500000, k, (uint64_t)N * LEN, &put) >= 0);
		for (int i = 0; i < N; i++) {
			assert_int_equal(finish(&p, r[i], NULL), RPW_OK);
			assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
			assert_int_equal(pattern_wrong(bytes(&in, ROOM) + (size_t)i * LEN, LEN,
						 seed * 10 + (uint64_t)i),
				LEN);
		}
		breaks += fake.breaks;
		assert_int_equal(finish(&p, put, NULL), RPW_OK);
		assert_true(rpw_endpoint_flush(p.ea, &put) >= 0);
		assert_int_equal(finish(&p, put, NULL), RPW_OK);
		assert_int_equal(
			pattern_wrong(bytes(&in, ROOM) + (size_t)N * LEN, 500000, seed * 10),
			500000);
		rpw_rkey_destroy(k);
		buffer_free(&out);
		buffer_free(&in);
		pair_close(&p);
	}
	assert_true(breaks > 12); /* so it was tried */
}
#endif

int main(int argc, char **argv)
{
	if (!cuda_open())
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(messages_of_all_sizes, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(many_at_once_and_too_long, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(objects_and_active_messages, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(puts_and_gets, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(atomics_count, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(refused_by_name, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(what_devices_can, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(nobody_copies_what_is_direct, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(one_side_only, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(lists_of_the_host, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(into_lists_of_the_host, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(a_gpu_that_fails, quiet, nothing_left),
		cmocka_unit_test_setup_teardown(closed_in_the_middle, quiet, nothing_left),
#ifndef MSG_FAKE
		cmocka_unit_test_setup_teardown(a_dma_buf_of_the_program, quiet, nothing_left),
#else
		cmocka_unit_test_setup_teardown(over_a_path_that_breaks, quiet, nothing_left),
#endif
	};
	const size_t count = sizeof(tests) / sizeof(*tests);
	unsigned failed = 0;
	for (int i = 0; argc < 2 && transports[i]; i++)
		failed += run(transports[i], STAGED, tests, count);
	for (enum way by = argc < 2 ? WAYS : STAGED; by < WAYS; by++)
		failed += run(argv[1], by, tests, count);
#ifdef MSG_FAKE
	failed += run("fake_b,fake_a", PEER, tests, count);
#endif
	if (!*cuda.copies)
		return fprintf(stderr, "nothing was copied by the driver\n"), 1;
	return failed ? 1 : 0;
}
