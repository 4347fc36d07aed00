/* SPDX-License-Identifier: BSD-3-Clause */
/* send_test.c - messages: tags and masks, order, truncation, scatter lists, objects, active
 * messages, and what is kept until a receive is posted. */
#include "msg_test.h"

static const size_t sizes[] = {0, 1, 7, 8, 63, 64, 65, 1000, 1024, 1025, 2048, 2049, 4096, 5000,
	8192, 8193, 65536, 100001, 1 << 20, (3 << 20) + 5};

static void sizes_both_ways_posted_and_early(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	char *out = malloc(4 << 20), *in = malloc(4 << 20);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int early = 0; early < 2; early++)
			for (int back = 0; back < 2; back++) {
				IN_CASE("bytes", sizes[i]);
				IN_CASE("early", early);
				IN_CASE("back", back);
				size_t n = sizes[i];
				uint64_t tag = i * 4 + (uint64_t)early * 2 + (uint64_t)back;
				rpw_context *to = back ? p.a : p.b;
				rpw_endpoint *from = back ? p.eb : p.ea;
				rpw_request *s = NULL, *r = NULL;
				rpw_completion done = RPW_COMPLETION_INIT;
				pattern_fill(out, n, tag);
				memset(in, 0x5a, n + 16);
				if (!early)
					assert_int_equal(rpw_recv(to, NULL, in, n, tag, ALL, &r),
						RPW_IN_PROGRESS);
				int rc = rpw_send(from, out, n, tag, &s);
				assert_true(rc == RPW_OK || rc == RPW_IN_PROGRESS);
				if (early) {
					while (rpw_probe(to, NULL, tag, ALL, &done) ==
						RPW_IN_PROGRESS)
						both(&p);
					assert_int_equal(done.length, n);
					assert_int_equal(done.tag, tag);
					assert_int_equal(rpw_recv(to, back ? p.ea : p.eb, in, n,
								 tag, ALL, &r),
						RPW_IN_PROGRESS);
				}
				assert_int_equal(finish(&p, r, &done), RPW_OK);
				assert_int_equal(done.length, n);
				assert_int_equal(done.tag, tag);
				assert_ptr_equal(done.from, back ? p.ea : p.eb);
				assert_int_equal(finish(&p, s, NULL), RPW_OK);
				assert_int_equal(pattern_wrong(in, n, tag), n);
				assert_int_equal((uint8_t)in[n], 0x5a);
			}
	free(out);
	free(in);
	pair_close(&p);
}

static void order_of_one_tag(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	enum { N = 300 };
	static uint64_t in[N][700];
	static rpw_request *r[N], *s[N];
	static uint64_t out[N][700];
	/* Short and long ones alternate: an RTS must not be overtaken. */
	for (int i = 0; i < N; i++) {
		size_t n = i % 3 == 1 ? sizeof(out[i]) : 8;
		pattern_fill(out[i], n, (uint64_t)i);
		int rc = rpw_send(p.ea, out[i], n, 5, &s[i]);
		assert_true(rc >= 0);
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(rpw_recv(p.b, i & 1 ? p.eb : NULL, in[i], sizeof(in[i]), 5,
					 i % 5 ? ALL : 0xff, &r[i]),
			RPW_IN_PROGRESS);
	for (int i = 0; i < N; i++) {
		rpw_completion done = RPW_COMPLETION_INIT;
		assert_int_equal(finish(&p, r[i], &done), RPW_OK);
		assert_int_equal(done.length, i % 3 == 1 ? sizeof(out[i]) : 8);
		assert_int_equal(pattern_wrong(in[i], done.length, (uint64_t)i), done.length);
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
	}
	pair_close(&p);
}

static void earliest_receive_that_matches(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	/* Twenty masks: more than there are classes. The receives that match tag 0x5: numbers 3
	 * (mask), 4 (any), 7. */
	uint64_t in[24] = {0}, v = 0;
	rpw_request *r[24];
	for (int i = 0; i < 24; i++) {
		uint64_t tag = (uint64_t)1 << (i + 8), mask = ~(uint64_t)0 << (i + 1);
		if (i == 3)
			tag = 0x5, mask = 0xf;
		if (i == 4 || i == 23)
			tag = 0, mask = 0;
		if (i == 7)
			tag = 0x5, mask = ALL;
		rpw_recv(p.b, i & 1 ? p.eb : NULL, &in[i], 8, tag, mask, &r[i]);
	}
	static const int expect[] = {3, 4, 7, 23};
	for (int k = 0; k < 4; k++) {
		v = 1000 + (uint64_t)k;
		rpw_request *s;
		rpw_send(p.ea, &v, 8, 5, &s);
		finish(&p, s, NULL);
		assert_int_equal(finish(&p, r[expect[k]], NULL), RPW_OK);
		assert_int_equal(in[expect[k]], v);
		r[expect[k]] = NULL;
	}
	for (int i = 0; i < 24; i++)
		if (r[i]) {
			assert_int_equal(rpw_request_test(r[i], NULL), RPW_IN_PROGRESS);
			rpw_request_cancel(r[i]);
			assert_int_equal(rpw_request_test(r[i], NULL), RPW_ERR_CANCELED);
			rpw_request_destroy(r[i]);
		}
	pair_close(&p);
}

static void truncation(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	static const size_t lengths[] = {100, 100000};
	for (int k = 0; k < 2; k++) {
		char *out = malloc(lengths[k]), in[64];
		pattern_fill(out, lengths[k], 9);
		memset(in, 1, sizeof(in));
		rpw_request *r, *s;
		rpw_completion done = RPW_COMPLETION_INIT;
		rpw_recv(p.b, NULL, in, 40, 1, ALL, &r);
		rpw_send(p.ea, out, lengths[k], 1, &s);
		assert_int_equal(finish(&p, r, &done), RPW_ERR_TRUNCATED);
		assert_int_equal(done.length, lengths[k]);
		assert_int_equal(pattern_wrong(in, 40, 9), 40);
		assert_int_equal(in[40], 1);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		free(out);
	}
	pair_close(&p);
}

static void scatter_lists(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	for (int big = 0; big < 3; big++) {
		/* 3, 7 and 40 pieces; 40 long ones are more than an RTS describes. */
		int pieces = big == 2 ? 40 : big ? 7 : 3;
		size_t each = big ? 5001 : 11, total = (size_t)pieces * each;
		struct iovec out[40], in[40];
		char *src = malloc(total), *dst = calloc(1, total + 1);
		pattern_fill(src, total, (uint64_t)big);
		for (int i = 0; i < pieces; i++)
			out[i] = (struct iovec){src + (size_t)i * each, each};
		size_t first = total / 3;
		in[0] = (struct iovec){dst, first};
		in[1] = (struct iovec){NULL, 0};
		in[2] = (struct iovec){dst + first, total - first};
		rpw_request *r, *s;
		assert_int_equal(rpw_recv_iov(p.b, p.eb, in, 3, 4, ALL, &r), RPW_IN_PROGRESS);
		assert_true(rpw_send_iov(p.ea, out, pieces, 4, &s) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		assert_int_equal(pattern_wrong(dst, total, (uint64_t)big), total);
		free(src);
		free(dst);
	}
	struct iovec bad = {NULL, 5};
	assert_int_equal(rpw_send_iov(p.ea, &bad, 1, 4, NULL), RPW_ERR_INVALID);
	assert_int_equal(rpw_send_iov(p.ea, &bad, -1, 4, NULL), RPW_ERR_INVALID);
	pair_close(&p);
}

static void *alloc_or_not(size_t len, void *arg)
{
	*(size_t *)arg = len;
	return len == 13 ? NULL : malloc(len ? len : 1);
}

static void objects(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	static const size_t lengths[] = {0, 5, 3000, 200000};
	for (int early = 0; early < 2; early++)
		for (size_t i = 0; i < 4; i++) {
			char *out = malloc(lengths[i] + 1);
			void *in;
			size_t n, asked = 99;
			rpw_request *s = NULL, *r = NULL;
			pattern_fill(out, lengths[i], i + 50);
			if (early)
				assert_int_equal(
					rpw_send_obj(p.ea, out, lengths[i], &s), RPW_IN_PROGRESS);
			for (int k = 0; early && k < 50; k++)
				both(&p);
			assert_int_equal(rpw_recv_obj(p.b, p.eb, i & 1 ? NULL : alloc_or_not,
						 &asked, &in, &n, &r),
				RPW_IN_PROGRESS);
			if (!early)
				assert_int_equal(
					rpw_send_obj(p.ea, out, lengths[i], &s), RPW_IN_PROGRESS);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			assert_int_equal(n, lengths[i]);
			if (!(i & 1))
				assert_int_equal(asked, lengths[i]);
			assert_int_equal(pattern_wrong(in, n, i + 50), n);
			free(in);
			free(out);
		}
	/* Refused by the allocator: both sides hear it. */
	void *in;
	size_t n, asked;
	rpw_request *s, *r;
	rpw_recv_obj(p.b, p.eb, alloc_or_not, &asked, &in, &n, &r);
	rpw_send_obj(p.ea, "thirteen byte", 13, &s);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_NO_MEMORY);
	assert_int_equal(finish(&p, s, NULL), RPW_ERR_NO_MEMORY);
	pair_close(&p);
}

struct am_log {
	int n;
	uint64_t seed;
	bool replies;
	uint64_t reply[64]; /* the requests' until they are complete */
};
static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct am_log *log = arg;
	uint64_t h[2];
	assert_int_equal(header_len, sizeof(h));
	memcpy(h, header, sizeof(h));
	assert_int_equal(h[0], log->n);
	assert_int_equal(h[1], len);
	assert_int_equal(pattern_wrong(data, len, h[0] + log->seed), len);
	if (log->replies) {
		log->reply[log->n] = h[0];
		assert_true(rpw_send(ep, &log->reply[log->n], 8, 77, NULL) >= 0);
	}
	log->n++;
}

static void active_messages_in_order(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	struct am_log log = {.seed = 31, .replies = true};
	rpw_context_on_am(p.b, 9, on_am, &log);
	static const size_t lengths[] = {0, 8, 100000, 16, 5000, 300000, 1, 2048};
	enum { N = 64 };
	rpw_request *s[N];
	char *out[N];
	for (int i = 0; i < N; i++) {
		size_t n = lengths[i % 8];
		uint64_t h[2] = {(uint64_t)i, n};
		out[i] = malloc(n + 1);
		pattern_fill(out[i], n, (uint64_t)i + log.seed);
		assert_true(rpw_am_send(p.ea, 9, h, sizeof(h), out[i], n, &s[i]) >= 0);
	}
	for (int i = 0; i < N; i++) {
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
		free(out[i]);
	}
	for (int i = 0; i < N; i++) {
		uint64_t got = 99;
		rpw_request *r;
		rpw_recv(p.a, p.ea, &got, 8, 77, ALL, &r);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(got, i);
	}
	assert_int_equal(log.n, N);
	assert_int_equal(rpw_am_send(p.ea, 256, NULL, 0, NULL, 0, NULL), RPW_ERR_INVALID);
	assert_int_equal(rpw_am_send(p.ea, 1, "x", 257, NULL, 0, NULL), RPW_ERR_INVALID);
	pair_close(&p);
}

#ifndef MSG_FAKE
/* Who sends faster than receives are posted fills the ring, not the receiver's memory, and each
 * message is copied once. */
static void a_round_ends_with_what_nobody_waits_for(void **state)
{
	enum { N = 6, POSTED = 2, BYTES = 2048 };
	static uint8_t out[N][BYTES], in[N][BYTES];
	struct pair p;
	rpw_request *r[N];
	rpw_statistics st = {.size = sizeof(st)};
	if (strcmp(transport, "shm") != 0)
		skip();
	pair_open(&p, transport);
	for (unsigned i = 0; i < POSTED; i++)
		assert_int_equal(
			rpw_recv(p.b, p.eb, in[i], BYTES, 3, UINT64_MAX, &r[i]), RPW_IN_PROGRESS);
	for (uint64_t i = 0; i < N; i++) {
		pattern_fill(out[i], BYTES, i);
		assert_int_equal(rpw_send(p.ea, out[i], BYTES, 3, NULL), RPW_OK);
	}
	/* It ends when the last posted receive is full, too: the program can post again before
	 * anything has to be kept. */
	for (unsigned i = 0; i < 1000 && rpw_request_test(r[POSTED - 1], NULL) == RPW_IN_PROGRESS;
		i++)
		rpw_context_progress(p.b);
	rpw_context_statistics(p.b, &st);
	assert_int_equal(st.received, POSTED);
	assert_int_equal(st.unexpected, 0);
	for (unsigned i = 0; i < 1000 && !st.unexpected; i++) {
		rpw_context_progress(p.b);
		rpw_context_statistics(p.b, &st);
	}
	assert_int_equal(st.unexpected, 1);
	for (unsigned i = POSTED; i < N; i++)
		assert_int_equal(
			rpw_recv(p.b, p.eb, in[i], BYTES, 3, UINT64_MAX, &r[i]), RPW_IN_PROGRESS);
	for (uint64_t i = 0; i < N; i++) {
		assert_int_equal(finish(&p, r[i], NULL), RPW_OK);
		assert_int_equal(pattern_wrong(in[i], BYTES, i), BYTES);
	}
	rpw_context_statistics(p.b, &st);
	assert_int_equal(st.unexpected, 1);
	pair_close(&p);
}
#endif

static void unexpected_memory_is_bounded(void **state)
{
	struct pair p;
	rpw_context_options o = {.size = sizeof(o), .unexpected_bytes_max = 256 * 1024};
	pair_open_with(&p, transport, &o);
	enum { N = 20000 };
	static uint64_t out[N][16];
	rpw_request **s = calloc(N, sizeof(*s));
	for (int i = 0; i < N; i++) {
		pattern_fill(out[i], sizeof(out[i]), (uint64_t)i);
		assert_true(rpw_send(p.ea, out[i], sizeof(out[i]), (uint64_t)(i % 7), &s[i]) >= 0);
		if (i % 64 == 0)
			both(&p);
	}
	for (int i = 0; i < 3000; i++)
		both(&p);
	rpw_statistics st = {.size = sizeof(st)};
	rpw_context_statistics(p.b, &st);
	assert_true(st.unexpected_bytes <= 256 * 1024);
	assert_true(st.unexpected_bytes > 0);
	rpw_context_statistics(p.a, &st);
	assert_true(st.waited_for_room > 0);
	/* All of them arrive all the same. */
	int next[7] = {0, 1, 2, 3, 4, 5, 6};
	for (int i = 0; i < N; i++) {
		uint64_t in[16];
		rpw_request *r;
		rpw_recv(p.b, p.eb, in, sizeof(in), (uint64_t)(i % 7), ALL, &r);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(pattern_wrong(in, sizeof(in), (uint64_t)next[i % 7]), sizeof(in));
		next[i % 7] += 7;
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
	free(s);
	pair_close(&p);
}

static void many_posted_receives(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	enum { N = 100000 };
	uint64_t *in = calloc(N, 8);
	rpw_request **r = calloc(N, sizeof(*r)), *s;
	for (int i = 0; i < N; i++)
		rpw_recv(p.b, i & 1 ? p.eb : NULL, &in[i], 8, i % 3 ? (uint64_t)i : 1, ALL, &r[i]);
	for (int i = N - 1; i >= 0; i--) {
		if (i % 3 == 0 || i == 1)
			continue;
		uint64_t v = rng_mix((uint64_t)i);
		rpw_send(p.ea, &v, 8, (uint64_t)i, &s);
		if (s || i % 16 == 0)
			assert_int_equal(finish(&p, s, NULL), RPW_OK), both(&p);
	}
	for (int i = 0; i < N; i++) {
		if (i % 3 == 0 || i == 1)
			rpw_request_cancel(r[i]);
		int status = finish(&p, r[i], NULL);
		assert_int_equal(status, i % 3 == 0 || i == 1 ? RPW_ERR_CANCELED : RPW_OK);
		if (!status)
			assert_int_equal(in[i], rng_mix((uint64_t)i));
	}
	free(in);
	free(r);
	pair_close(&p);
}

int send_tests(void)
{
	static const struct CMUnitTest tests[] = {
		CASE(sizes_both_ways_posted_and_early),
		CASE(order_of_one_tag),
		CASE(earliest_receive_that_matches),
		CASE(truncation),
		CASE(scatter_lists),
		CASE(objects),
		CASE(active_messages_in_order),
#ifndef MSG_FAKE
		CASE(a_round_ends_with_what_nobody_waits_for),
#endif
		CASE(unexpected_memory_is_bounded),
		CASE(many_posted_receives),
	};
	return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
