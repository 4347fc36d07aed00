/* SPDX-License-Identifier: BSD-3-Clause */
/* loan_test.c - loans and views: what is passed on, how they meet ordinary receives and messages,
 * who has which memory until when, and misuse. Over transports that show no memory the same calls
 * go by the ordinary path. */
#include "msg_test.h"

#include <stdlib.h>

static const size_t sizes[] = {
	0, 1, 8, 64, 65, 257, 1024, 1025, 4096, 8193, 65536, 100001, 1 << 20, (3 << 20) + 5};

static bool shares(void) { return !strcmp(transport, "shm") || !strcmp(transport, "fake_a"); }

static size_t out_of(rpw_endpoint *ep)
{
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	assert_int_equal(rpw_endpoint_info(ep, &i), RPW_OK);
	return i.loan_bytes;
}
static size_t views_of(rpw_endpoint *ep)
{
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	assert_int_equal(rpw_endpoint_info(ep, &i), RPW_OK);
	return i.view_bytes;
}

static rpw_loaned lend(rpw_endpoint *ep, size_t n, uint64_t seed)
{
	rpw_loaned l = RPW_LOANED_INIT;
	assert_int_equal(rpw_loan(ep, n, 0, 0, &l), RPW_OK);
	assert_true(l.length >= n);
	assert_int_equal((uintptr_t)l.data % 64, 0);
	pattern_fill(l.data, n, seed);
	return l;
}

static rpw_request *lend_and_send(rpw_endpoint *ep, size_t n, uint64_t tag)
{
	rpw_request *s = NULL;
	rpw_loaned l = lend(ep, n, tag);
	int rc = rpw_send_loan(ep, &l, n, tag, &s);
	assert_true(rc == RPW_OK || rc == RPW_IN_PROGRESS);
	assert_null(l.data);
	return s;
}

static void expect(const rpw_view *v, size_t n, uint64_t seed)
{
	assert_int_equal(v->length, n);
	assert_non_null(v->data);
	assert_int_equal(pattern_wrong(v->data, n, seed), n);
}

static void view_wait(struct pair *p, rpw_context *c, uint64_t tag, rpw_view *v)
{
	rpw_request *r = NULL;
	assert_int_equal(rpw_recv_view(c, NULL, tag, ALL, v, &r), RPW_IN_PROGRESS);
	assert_int_equal(finish(p, r, NULL), RPW_OK);
}

/* Loaned or not, into a view or a buffer, posted or early. */
static void every_message_meets_every_receive(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	char *buf = malloc(4 << 20), *in = malloc(4 << 20);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(sizes); i++)
		for (unsigned way = 0; way < 16; way++) {
			size_t n = sizes[i];
			uint64_t tag = i * 16 + way;
			bool loaned = way & 1, early = way & 2, view = way & 4, back = way & 8;
			IN_CASE("bytes", n);
			IN_CASE("way", way);
			rpw_endpoint *from = back ? p.eb : p.ea;
			rpw_context *to = back ? p.a : p.b;
			rpw_request *s = NULL, *r = NULL;
			rpw_view v = RPW_VIEW_INIT;
			rpw_completion done = RPW_COMPLETION_INIT;
			for (int turn = early; turn < 2 + early; turn++)
				if (turn == 1 && loaned)
					s = lend_and_send(from, n, tag);
				else if (turn == 1) {
					pattern_fill(buf, n, tag);
					assert_true(rpw_send(from, buf, n, tag, &s) >= 0);
					for (int k = 0; early && k < 50; k++)
						both(&p);
				} else if (view)
					assert_int_equal(rpw_recv_view(to, NULL, tag, ALL, &v, &r),
						RPW_IN_PROGRESS);
				else
					assert_int_equal(rpw_recv(to, NULL, in, n, tag, ALL, &r),
						RPW_IN_PROGRESS);
			assert_int_equal(finish(&p, r, &done), RPW_OK);
			assert_int_equal(done.length, n);
			assert_int_equal(done.tag, tag);
			assert_ptr_equal(done.from, back ? p.ea : p.eb);
			assert_int_equal(finish(&p, s, NULL), RPW_OK);
			if (view) {
				expect(&v, n, tag);
				if (loaned || n <= 1024 ||
					n > 65536) /* others: as the peer asked */
					assert_int_equal(v.loaned, loaned && shares());
				assert_int_equal(v.writable, !(loaned && shares()));
				if (v.loaned)
					assert_int_equal((uintptr_t)v.data % 64, 0);
				assert_int_equal(rpw_view_release(&v), RPW_OK);
				assert_null(v.data);
			} else
				assert_int_equal(pattern_wrong(in, n, tag), n);
			assert_int_equal(out_of(from), 0);
			assert_int_equal(views_of(back ? p.ea : p.eb), 0);
		}
	free(buf);
	free(in);
	pair_close(&p);
}

/* What one side says of itself has come. */
static void told(struct pair *p)
{
	for (int k = 0; k < 50; k++)
		both(p);
}

/* An ordinary message, and its view. */
static rpw_view sent_and_viewed(struct pair *p, size_t n, uint64_t tag)
{
	rpw_view v = RPW_VIEW_INIT;
	rpw_request *s = NULL;
	char *buf = malloc(n);
	pattern_fill(buf, n, tag);
	struct iovec pieces[] = {{buf, n / 3}, {buf + n / 3, n - n / 3}};
	assert_true((tag % 2 ? rpw_send(p->ea, buf, n, tag, &s)
			     : rpw_send_iov(p->ea, pieces, 2, tag, &s)) >= 0);
	view_wait(p, p->b, tag, &v);
	assert_int_equal(finish(p, s, NULL), RPW_OK);
	free(buf);
	expect(&v, n, tag);
	told(p);
	return v;
}

/* The first one tells the sender that its peer reads messages where they lie. Those that are kept
 * delay none of the others: these are copied when half of the endpoint's bytes are out. */
static void ordinary_messages_are_read_where_they_lie(void **state)
{
	enum { N = 40, BYTES = 2000, MOST = 64 << 10 };
	struct pair p;
	rpw_view v[N];
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	o.loan_bytes_max = MOST;
	pair_open_with(&p, transport, &o);
	for (unsigned i = 0; i < N; i++) {
		v[i] = sent_and_viewed(&p, BYTES, i);
		bool there = shares() && i && out_of(p.ea) <= MOST / 2 - 4096;
		if (!i || !shares() || there)
			assert_int_equal(v[i].loaned, there);
		assert_true(v[i].writable);
		assert_int_equal((uintptr_t)v[i].data % 16, 0);
		assert_true(out_of(p.ea) <= MOST / 2);
	}
	assert_false(v[N - 1].loaned);
	/* what the program asks for is there all the same */
	rpw_loaned l = lend(p.ea, MOST / 4, 1);
	assert_int_equal(rpw_loan_return(&l), RPW_OK);
	for (unsigned i = 0; i < N; i++) {
		unsigned at = (i * 7) % N; /* any order */
		expect(&v[at], BYTES, at);
		assert_int_equal(rpw_view_release(&v[at]), RPW_OK);
	}
	v[0] = sent_and_viewed(&p, BYTES, N);
	assert_int_equal(v[0].loaned, shares());
	assert_int_equal(rpw_view_release(&v[0]), RPW_OK);
	assert_int_equal(out_of(p.ea), 0);
	pair_close(&p);
}

/* A receive that copies ends it: two copies would be one too many. */
static void who_copies_gets_no_loans(void **state)
{
	enum { BYTES = 2000 };
	static char in[BYTES], out[BYTES];
	struct pair p;
	pair_open(&p, transport);
	for (uint64_t i = 0; i < 20; i++) {
		rpw_request *r = NULL, *s = NULL;
		rpw_view v = RPW_VIEW_INIT;
		bool view = i % 5 < 3;
		pattern_fill(out, BYTES, i);
		if (view)
			assert_int_equal(rpw_recv_view(p.b, NULL, i, ALL, &v, &r), RPW_IN_PROGRESS);
		else
			assert_int_equal(
				rpw_recv(p.b, NULL, in, BYTES, i, ALL, &r), RPW_IN_PROGRESS);
		assert_true(rpw_send(p.ea, out, BYTES, i, &s) >= 0);
		size_t lent = out_of(p.ea);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
		/* of five: copied, lent, lent, lent and copied, copied */
		if (shares())
			assert_int_equal(lent > 0, i % 5 >= 1 && i % 5 <= 3);
		else
			assert_int_equal(lent, 0);
		if (view) {
			expect(&v, BYTES, i);
			assert_int_equal(v.loaned, lent > 0);
			assert_int_equal(rpw_view_release(&v), RPW_OK);
		} else
			assert_int_equal(pattern_wrong(in, BYTES, i), BYTES);
		told(&p);
	}
	pair_close(&p);
}

static void a_loan_is_matched_in_the_order_sent(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	enum { N = 200 };
	static rpw_view v[N];
	static rpw_request *s[N], *r[N];
	static uint64_t out[N][700];
	for (unsigned i = 0; i < N; i++) {
		size_t n = 8 + i * 28;
		pattern_fill(out[i], RPWI_MIN(n, sizeof(out[i])), 5);
		if (i % 3)
			s[i] = lend_and_send(p.ea, n, 5);
		else
			assert_true(
				rpw_send(p.ea, out[i], RPWI_MIN(n, sizeof(out[i])), 5, &s[i]) >= 0);
	}
	for (unsigned i = 0; i < N; i++) {
		v[i] = (rpw_view)RPW_VIEW_INIT;
		assert_int_equal(rpw_recv_view(p.b, i & 1 ? p.eb : NULL, 5, i % 5 ? ALL : 0xff,
					 &v[i], &r[i]),
			RPW_IN_PROGRESS);
	}
	for (unsigned i = 0; i < N; i++) {
		size_t n = 8 + i * 28;
		assert_int_equal(finish(&p, r[i], NULL), RPW_OK);
		expect(&v[i], i % 3 ? n : RPWI_MIN(n, sizeof(out[i])), 5);
		assert_int_equal(finish(&p, s[i], NULL), RPW_OK);
	}
	for (unsigned i = N; i-- > 0;)
		assert_int_equal(rpw_view_release(&v[i]), RPW_OK);
	assert_int_equal(out_of(p.ea), 0);
	pair_close(&p);
}

static void a_loan_longer_than_the_buffer_is_cut(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	char in[100];
	rpw_request *r = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	assert_int_equal(rpw_recv(p.b, NULL, in, sizeof(in), 1, ALL, &r), RPW_IN_PROGRESS);
	rpw_request *s = lend_and_send(p.ea, 5000, 1);
	assert_int_equal(finish(&p, r, &done), RPW_ERR_TRUNCATED);
	assert_int_equal(done.length, 5000);
	assert_int_equal(pattern_wrong(in, sizeof(in), 1), sizeof(in));
	finish(&p, s, NULL);
	assert_int_equal(out_of(p.ea), 0);
	pair_close(&p);
}

static void the_bound_is_told_with_who_holds_what(void **state)
{
	struct pair p;
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	o.loan_bytes_max = 1 << 20;
	pair_open_with(&p, transport, &o);
	rpw_loaned l[16], more = RPW_LOANED_INIT;
	rpw_view v[16];
	unsigned n = 0, seen = 0;
	for (; n < 16; n++) {
		l[n] = (rpw_loaned)RPW_LOANED_INIT;
		assert_int_equal(rpw_loan(p.ea, 65536, 0, 0, &l[n]), RPW_OK);
	}
	assert_int_equal(out_of(p.ea), 1 << 20);
	assert_int_equal(rpw_loan(p.ea, 1, 0, 0, &more), RPW_ERR_LIMIT);
	assert_non_null(strstr(rpw_last_error(), "this program holds 1048576 bytes in 16 loans"));
	assert_int_equal(rpw_loan(p.ea, (1 << 20) + 1, 0, -1, &more), RPW_ERR_LIMIT);
	for (unsigned i = 0; i < 8; i++) {
		rpw_request *s = NULL;
		assert_true(rpw_send_loan(p.ea, &l[i], 65536, i, &s) >= 0);
		v[i] = (rpw_view)RPW_VIEW_INIT;
		view_wait(&p, p.b, i, &v[i]);
		finish(&p, s, NULL);
		seen += v[i].loaned;
	}
	assert_int_equal(seen, shares() ? 8 : 0);
	assert_int_equal(views_of(p.eb), seen * 65536);
	assert_int_equal(out_of(p.ea), shares() ? 1 << 20 : 8 * 65536);
	if (shares()) {
		double before_s = pair_now_s();
		assert_int_equal(rpw_loan(p.ea, 1, 0, 30, &more), RPW_ERR_LIMIT);
		assert_true(pair_now_s() - before_s >= 0.029);
		assert_non_null(strstr(rpw_last_error(), "the peer holds 524288 bytes in 8 loans"));
		assert_int_equal(rpw_view_release(&v[3]), RPW_OK);
		assert_int_equal(rpw_loan(p.ea, 65536, 0, 1000, &more), RPW_OK);
		assert_int_equal(rpw_loan_return(&more), RPW_OK);
	}
	for (unsigned i = 0; i < 8; i++)
		if (v[i].data)
			assert_int_equal(rpw_view_release(&v[i]), RPW_OK);
	for (unsigned i = 8; i < 16; i++)
		assert_int_equal(rpw_loan_return(&l[i]), RPW_OK);
	assert_int_equal(out_of(p.ea), 0);
	/* all of it for another size: pools that nobody uses make room */
	assert_int_equal(rpw_loan(p.ea, 1 << 20, 0, 0, &more), RPW_OK);
	assert_int_equal(rpw_loan_return(&more), RPW_OK);
	assert_int_equal(rpw_loan(p.ea, 100, 0, 0, &more), RPW_OK);
	assert_int_equal(rpw_loan_return(&more), RPW_OK);
	pair_close(&p);
}

static void misuse_is_refused_by_name(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	rpw_request *s = NULL, *r = NULL;
	rpw_loaned l = RPW_LOANED_INIT, copy, small = {.size = 4};
	rpw_view v = RPW_VIEW_INIT, twin, little = {.size = 4};
	assert_int_equal(rpw_loan(NULL, 1, 0, 0, &l), RPW_ERR_INVALID);
	assert_int_equal(rpw_loan(p.ea, 1, 0, 0, NULL), RPW_ERR_INVALID);
	assert_int_equal(rpw_loan(p.ea, 1, 0, 0, &small), RPW_ERR_INVALID);
	assert_int_equal(rpw_loan(p.ea, 1, 8, 0, &l), RPW_ERR_INVALID);
	assert_int_equal(rpw_loan(p.ea, SIZE_MAX, 0, 0, &l), RPW_ERR_LIMIT);
	assert_null(l.data);
	assert_int_equal(rpw_send_loan(p.ea, &l, 0, 0, &s), RPW_ERR_INVALID);
	assert_int_equal(rpw_loan_return(&l), RPW_ERR_INVALID);
	assert_int_equal(rpw_loan_return(NULL), RPW_ERR_INVALID);
	l = copy = lend(p.ea, 1000, 1);
	assert_int_equal(rpw_send_loan(NULL, &l, 1, 0, &s), RPW_ERR_INVALID);
	assert_int_equal(rpw_send_loan(p.eb, &l, 1, 0, &s), RPW_ERR_INVALID);
	assert_non_null(strstr(rpw_last_error(), "of another endpoint"));
	assert_int_equal(rpw_send_loan(p.ea, &l, l.length + 1, 0, &s), RPW_ERR_INVALID);
	assert_ptr_equal(l.data, copy.data);
	assert_true(rpw_send_loan(p.ea, &l, 1000, 1, &s) >= 0);
	assert_int_equal(rpw_send_loan(p.ea, &copy, 1000, 1, NULL), RPW_ERR_INVALID);
	assert_non_null(strstr(rpw_last_error(), "was sent or returned before"));
	assert_int_equal(rpw_loan_return(&copy), RPW_ERR_INVALID);
	assert_int_equal(rpw_recv_view(p.b, NULL, 1, ALL, NULL, &r), RPW_ERR_INVALID);
	assert_int_equal(rpw_recv_view(p.b, NULL, 1, ALL, &little, &r), RPW_ERR_INVALID);
	assert_int_equal(rpw_recv_view(p.b, p.ea, 1, ALL, &v, &r), RPW_ERR_INVALID);
	assert_int_equal(rpw_recv_view(NULL, NULL, 1, ALL, &v, &r), RPW_ERR_INVALID);
	assert_int_equal(rpw_view_release(&v), RPW_ERR_INVALID);
	assert_int_equal(rpw_view_release(NULL), RPW_ERR_INVALID);
	view_wait(&p, p.b, 1, &v);
	finish(&p, s, NULL);
	twin = v;
	assert_int_equal(rpw_view_release(&v), RPW_OK);
	assert_int_equal(rpw_view_release(&v), RPW_ERR_INVALID);
	assert_int_equal(rpw_view_release(&twin), RPW_ERR_INVALID);
	assert_non_null(strstr(rpw_last_error(), "was released before"));
	pair_close(&p);
}

/* What is held stays: the loan after its endpoint, the view after everything. */
static void memory_stays_until_it_is_given_back(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	rpw_view v = RPW_VIEW_INIT, w = RPW_VIEW_INIT;
	rpw_request *s = lend_and_send(p.ea, 70000, 1), *t = lend_and_send(p.ea, 300, 2);
	view_wait(&p, p.b, 1, &v);
	view_wait(&p, p.b, 2, &w);
	finish(&p, s, NULL);
	finish(&p, t, NULL);
	rpw_loaned l = lend(p.ea, 5000, 3), k = lend(p.eb, 100, 4);
	rpw_endpoint_destroy(p.ea);
	p.ea = NULL;
	expect(&v, 70000, 1);
	for (int i = 0; i < 100; i++)
		both(&p);
	rpw_context_destroy(p.a);
	p.a = NULL;
	expect(&v, 70000, 1);
	assert_int_equal(rpw_view_release(&w), RPW_OK);
	assert_int_equal(pattern_wrong(l.data, 5000, 3), 5000);
	assert_int_equal(rpw_loan(p.eb, 1, 0, 0, &(rpw_loaned)RPW_LOANED_INIT), RPW_ERR_PEER_GONE);
	rpw_endpoint_destroy(p.eb);
	p.eb = NULL;
	pair_close(&p);
	expect(&v, 70000, 1);
	assert_int_equal(pattern_wrong(k.data, 100, 4), 100);
	pattern_fill(l.data, 5000, 9);
	assert_int_equal(rpw_loan_return(&l), RPW_OK);
	assert_int_equal(rpw_loan_return(&k), RPW_OK);
	assert_int_equal(rpw_view_release(&v), RPW_OK);
#ifdef MSG_FAKE
	assert_int_equal(fake_pools(), 0);
#endif
}

static void a_writable_loan_can_be_written(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	rpw_loaned l = RPW_LOANED_INIT;
	rpw_view v = RPW_VIEW_INIT;
	rpw_request *s = NULL;
	assert_int_equal(rpw_loan(p.ea, 4096, RPW_LOAN_WRITABLE, 0, &l), RPW_OK);
	pattern_fill(l.data, 4096, 7);
	assert_true(rpw_send_loan(p.ea, &l, 4096, 7, &s) >= 0);
	view_wait(&p, p.b, 7, &v);
	finish(&p, s, NULL);
	expect(&v, 4096, 7);
	assert_true(v.writable);
	memset(v.data, 1, 4096);
	assert_int_equal(rpw_view_release(&v), RPW_OK);
	assert_int_equal(out_of(p.ea), 0);
	pair_close(&p);
}

static void receives_of_views_are_canceled_and_end(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	rpw_view v = RPW_VIEW_INIT;
	rpw_request *r = NULL;
	assert_int_equal(rpw_recv_view(p.b, NULL, 1, ALL, &v, &r), RPW_IN_PROGRESS);
	assert_int_equal(rpw_request_cancel(r), RPW_OK);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_CANCELED);
	assert_null(v.data);
	assert_int_equal(rpw_recv_view(p.b, p.eb, 1, ALL, &v, &r), RPW_IN_PROGRESS);
	rpw_request *s = lend_and_send(p.ea, 500, 2);
	finish(&p, s, NULL);
	rpw_request *f = NULL;
	assert_true(rpw_endpoint_flush(p.ea, &f) >= 0);
	finish(&p, f, NULL);
	rpw_endpoint_destroy(p.ea);
	p.ea = NULL;
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_PEER_GONE);
	/* what came whole can still be received */
	view_wait(&p, p.b, 2, &v);
	expect(&v, 500, 2);
	assert_int_equal(rpw_view_release(&v), RPW_OK);
	pair_close(&p);
}

/* A model: what is on loan, what is on the way, what is viewed; at every step they add up. */
static void many_random_steps_as_the_model_says(void **state)
{
	enum { STEPS = 3000, MOST = 40 };
	struct pair p;
	struct rng rng = {0x10a5};
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	o.loan_bytes_max = 4 << 20;
	pair_open_with(&p, transport, &o);
	rpw_loaned held[MOST];
	rpw_view view[MOST];
	uint64_t seed[MOST], sent = 0, received = 0;
	size_t len_of[MOST], len[1024];
	char *outs[1024] = {NULL};
	unsigned holds = 0, views = 0;
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned what = rng_next(&rng) % 6;
		rpw_request *s = NULL;
		if (what == 0 && holds < MOST) {
			rpw_loaned l = RPW_LOANED_INIT;
			size_t n = rng_next(&rng) % 100000;
			int rc = rpw_loan(p.ea, n, rng_next(&rng) % 4 == 0, 0, &l);
			if (rc == RPW_OK) {
				memset(l.data, (int)step, n);
				held[holds++] = l;
			} else
				assert_int_equal(rc, RPW_ERR_LIMIT);
		} else if (what == 1 && holds && sent - received < RPWI_ARRAY_LEN(len)) {
			unsigned i = rng_next(&rng) % holds;
			size_t n = rng_next(&rng) % (held[i].length + 1);
			pattern_fill(held[i].data, n, sent);
			len[sent % RPWI_ARRAY_LEN(len)] = n;
			assert_true(rpw_send_loan(p.ea, &held[i], n, 1, &s) >= 0);
			rpw_request_destroy(s);
			held[i] = held[--holds];
			sent++;
		} else if (what == 1 && sent - received < RPWI_ARRAY_LEN(len)) {
			size_t n = rng_next(&rng) % (rng_next(&rng) % 2 ? 3000 : 70000);
			char *out = malloc(n + 1);
			pattern_fill(out, n, sent);
			len[sent % RPWI_ARRAY_LEN(len)] = n;
			assert_true(rpw_send(p.ea, out, n, 1, &s) >= 0);
			rpw_request_destroy(s);
			free(outs[sent % RPWI_ARRAY_LEN(len)]); /* received long ago */
			outs[sent++ % RPWI_ARRAY_LEN(len)] = out;
		} else if (what == 2 && holds) {
			unsigned i = rng_next(&rng) % holds;
			assert_int_equal(rpw_loan_return(&held[i]), RPW_OK);
			held[i] = held[--holds];
		} else if (what == 3 && received < sent && views < MOST) {
			view[views] = (rpw_view)RPW_VIEW_INIT;
			view_wait(&p, p.b, 1, &view[views]);
			len_of[views] = len[received % RPWI_ARRAY_LEN(len)];
			seed[views++] = received++;
		} else if (what == 4 && views) {
			unsigned i = rng_next(&rng) % views;
			expect(&view[i], len_of[i], seed[i]);
			assert_int_equal(rpw_view_release(&view[i]), RPW_OK);
			view[i] = view[--views];
			seed[i] = seed[views];
			len_of[i] = len_of[views];
		} else if (what == 5 && received < sent && rng_next(&rng) % 4 == 0) {
			size_t n = len[received % RPWI_ARRAY_LEN(len)];
			char *in = malloc(n + 1);
			rpw_request *r = NULL;
			assert_int_equal(rpw_recv(p.b, NULL, in, n, 1, ALL, &r), RPW_IN_PROGRESS);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(in, n, received), n);
			received++;
			free(in);
		}
		size_t bytes = 0;
		for (unsigned i = 0; i < holds; i++)
			bytes += held[i].length;
		assert_true(out_of(p.ea) >= bytes);
		assert_true(out_of(p.ea) <= o.loan_bytes_max);
	}
	for (; views; views--) {
		expect(&view[views - 1], len_of[views - 1], seed[views - 1]);
		assert_int_equal(rpw_view_release(&view[views - 1]), RPW_OK);
	}
	for (; holds; holds--)
		assert_int_equal(rpw_loan_return(&held[holds - 1]), RPW_OK);
	for (; received < sent; received++) {
		view_wait(&p, p.b, 1, &view[0]);
		expect(&view[0], len[received % RPWI_ARRAY_LEN(len)], received);
		assert_int_equal(rpw_view_release(&view[0]), RPW_OK);
	}
	/* a send of private memory is over when it was acknowledged */
	rpw_request *f = NULL;
	assert_true(rpw_endpoint_flush(p.ea, &f) >= 0);
	finish(&p, f, NULL);
	assert_int_equal(out_of(p.ea), 0);
	assert_int_equal(views_of(p.eb), 0);
	pair_close(&p);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(outs); i++)
		free(outs[i]);
}

int loan_tests(void)
{
	const struct CMUnitTest tests[] = {
		CASE(every_message_meets_every_receive),
		CASE(ordinary_messages_are_read_where_they_lie),
		CASE(who_copies_gets_no_loans),
		CASE(a_loan_is_matched_in_the_order_sent),
		CASE(a_loan_longer_than_the_buffer_is_cut),
		CASE(the_bound_is_told_with_who_holds_what),
		CASE(misuse_is_refused_by_name),
		CASE(memory_stays_until_it_is_given_back),
		CASE(a_writable_loan_can_be_written),
		CASE(receives_of_views_are_canceled_and_end),
		CASE(many_random_steps_as_the_model_says),
	};
	return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
