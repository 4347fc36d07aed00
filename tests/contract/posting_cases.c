/* SPDX-License-Identifier: BSD-3-Clause */
/* posting_cases.c - what holds of every call that posts: arguments that are none, nothing to send,
 * fences, flushes. */
#include "contract.h"

static void every_call_needs_its_endpoint(void)
{
	struct pair p;
	pair_open(&p);
	pair_memory(&p);
	rpw_statistics before = statistics_of(p.a);
	for (int what = 0; what < RECV; what++) { /* of a receive NULL is any endpoint */
		rpw_request *r = NULL;
		REFUSED(post(&p, what, NULL, &r), RPW_ERR_INVALID, "endpoint");
		CHECK(!r);
	}
	REFUSED(rpw_endpoint_fence(NULL), RPW_ERR_INVALID, "endpoint");
	REFUSED(rpw_rkey_unpack(NULL, "x", 1, &p.k), RPW_ERR_INVALID, "endpoint");
	rpw_endpoint_on_close(NULL, NULL, NULL);
	rpw_endpoint_destroy(NULL);
	IS(statistics_of(p.a).requests, before.requests);
	pair_close(&p);
}

static void every_buffer_has_bytes(void)
{
	struct pair p;
	pair_open(&p);
	pair_memory(&p);
	void *obj = NULL;
	size_t len = 0;
	rpw_request *r = NULL;
	uint64_t word = 0;
	rpw_transfer t = RPW_TRANSFER_INIT;
	t.key = p.k;
	t.len = 1;
	struct iovec hole[2] = {{outgoing, 4}, {NULL, 4}}, one = {outgoing, 4};
	REFUSED(rpw_send(p.ea, NULL, 1, 1, &r), RPW_ERR_INVALID, "1 bytes");
	REFUSED(rpw_send_iov(p.ea, hole, 2, 1, &r), RPW_ERR_INVALID, "piece 1");
	REFUSED(rpw_send_iov(p.ea, NULL, 1, 1, &r), RPW_ERR_INVALID, "1 pieces");
	REFUSED(rpw_send_iov(p.ea, &one, -1, 1, &r), RPW_ERR_INVALID, "-1 pieces");
	REFUSED(rpw_send_iov(p.ea, &one, 100000, 1, &r), RPW_ERR_INVALID, "100000 pieces");
	SAYS("1024"); /* how many there may be */
	REFUSED(rpw_recv(p.a, p.ea, NULL, 1, 1, ALL, &r), RPW_ERR_INVALID, "buffer");
	REFUSED(rpw_recv_iov(p.a, p.ea, hole, 2, 1, ALL, &r), RPW_ERR_INVALID, "piece 1");
	REFUSED(rpw_recv_iov(p.a, p.ea, &one, -1, 1, ALL, &r), RPW_ERR_INVALID, "-1 pieces");
	REFUSED(rpw_send_obj(p.ea, NULL, 1, &r), RPW_ERR_INVALID, "buffer");
	REFUSED(rpw_recv_obj(p.a, p.ea, NULL, NULL, NULL, &len, &r), RPW_ERR_INVALID, "buf");
	REFUSED(rpw_recv_obj(p.a, p.ea, NULL, NULL, &obj, NULL, &r), RPW_ERR_INVALID, "len");
	REFUSED(rpw_am_send(p.ea, 1, NULL, 1, outgoing, 1, &r), RPW_ERR_INVALID, "rpw_am_send");
	REFUSED(rpw_am_send(p.ea, 1, NULL, 0, NULL, 1, &r), RPW_ERR_INVALID, "rpw_am_send");
	REFUSED(rpw_put(p.ea, NULL, 1, p.k, 0, &r), RPW_ERR_INVALID, "without a buffer");
	REFUSED(rpw_get(p.ea, NULL, 1, p.k, 0, &r), RPW_ERR_INVALID, "without a buffer");
	REFUSED(rpw_put_notify(p.ea, NULL, 1, p.k, 0, 1, &r), RPW_ERR_INVALID, "without a buffer");
	REFUSED(rpw_transfer_batch(p.ea, &t, 1, &r), RPW_ERR_INVALID, "no buffer");
	REFUSED(rpw_transfer_batch(p.ea, NULL, 1, &r), RPW_ERR_INVALID,
		"the array of transfers is NULL");
	REFUSED(rpw_fetch_add(p.ea, 1, p.k, 0, NULL, &r), RPW_ERR_INVALID, "before");
	REFUSED(rpw_compare_swap(p.ea, 1, 1, p.k, 0, NULL, &r), RPW_ERR_INVALID, "before");
	REFUSED(rpw_put(p.ea, outgoing, 1, NULL, 0, &r), RPW_ERR_INVALID, "remote key");
	REFUSED(rpw_get(p.ea, outgoing, 1, NULL, 0, &r), RPW_ERR_INVALID, "remote key");
	REFUSED(rpw_put_notify(p.ea, outgoing, 1, NULL, 0, 1, &r), RPW_ERR_INVALID, "remote key");
	REFUSED(rpw_fetch_add(p.ea, 1, NULL, 0, &word, &r), RPW_ERR_INVALID, "remote key");
	REFUSED(rpw_compare_swap(p.ea, 1, 1, NULL, 0, &word, &r), RPW_ERR_INVALID, "remote key");
	t.key = NULL;
	t.buf = outgoing;
	REFUSED(rpw_transfer_batch(p.ea, &t, 1, &r), RPW_ERR_INVALID, "remote key");
	CHECK(!r);
	IS(statistics_of(p.a).requests, 0);
	pair_close(&p);
}

static struct {
	int n;
	size_t len, header_len;
	uint64_t data;
} came;
static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	(void)ep, (void)header, (void)data, (void)arg;
	came.n++;
	came.len = len;
	came.header_len = header_len;
}
static void on_notify(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	(void)ep, (void)arg;
	came.n++;
	came.data = data;
	came.len = len;
}

static void nothing_can_be_sent_too(void)
{
	struct pair p;
	rpw_request *r = NULL, *s = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	rpw_transfer none = RPW_TRANSFER_INIT;
	struct iovec empty = {NULL, 0};
	pair_open(&p);
	pair_memory(&p);
	none.key = p.k;
	/* A message, in one piece, in an empty one, in none; with and without a buffer. */
	for (int how = 0; how < 4; how++) {
		s = NULL;
		int rc = how == 0   ? rpw_send(p.ea, NULL, 0, 1, &s)
			 : how == 1 ? rpw_send(p.ea, outgoing, 0, 1, &s)
			 : how == 2 ? rpw_send_iov(p.ea, &empty, 1, 1, &s)
				    : rpw_send_iov(p.ea, NULL, 0, 1, &s);
		if (how & 1)
			IS(rpw_recv(p.b, NULL, NULL, 0, 1, ALL, &r), RPW_IN_PROGRESS);
		else
			IS(rpw_recv_iov(p.b, NULL, NULL, 0, 1, ALL, &r), RPW_IN_PROGRESS);
		IS(pair_finish(&p, r, &done), RPW_OK);
		IS(done.length, 0);
		IS(ended(&p, rc, s), RPW_OK);
	}
	/* An object: its receiver gets memory all the same, to free. */
	void *obj = NULL;
	size_t len = 1;
	IS(rpw_recv_obj(p.b, p.eb, NULL, NULL, &obj, &len, &r), RPW_IN_PROGRESS);
	int rc = rpw_send_obj(p.ea, NULL, 0, &s);
	IS(pair_finish(&p, r, &done), RPW_OK);
	IS(ended(&p, rc, s), RPW_OK);
	CHECK(obj != NULL);
	IS(len, 0);
	IS(done.length, 0);
	free(obj);
	/* An active message without header and data. */
	IS(rpw_context_on_am(p.b, 1, on_am, NULL), RPW_OK);
	memset(&came, 0xff, sizeof(came));
	came.n = 0;
	s = NULL;
	rc = rpw_am_send(p.ea, 1, NULL, 0, NULL, 0, &s);
	UNTIL(&p, came.n);
	IS(ended(&p, rc, s), RPW_OK);
	IS(came.len + came.header_len, 0);
	/* Transfers: at the beginning, and at the very end of the memory. */
	memset(p.region, 0x77, REGION);
	for (uint64_t at = 0; at <= REGION; at += REGION) {
		s = NULL;
		rc = rpw_put(p.ea, NULL, 0, p.k, at, &s);
		IS(ended(&p, rc, s), RPW_OK);
		s = NULL;
		rc = rpw_get(p.ea, NULL, 0, p.k, at, &s);
		IS(ended(&p, rc, s), RPW_OK);
		REFUSED(rpw_put(p.ea, NULL, 0, p.k, at + REGION + 1, &s), RPW_ERR_ACCESS,
			"8192 bytes");
	}
	s = NULL;
	rc = rpw_transfer_batch(p.ea, &none, 1, &s);
	IS(ended(&p, rc, s), RPW_OK);
	s = NULL;
	rc = rpw_transfer_batch(p.ea, NULL, 0, &s);
	IS(ended(&p, rc, s), RPW_OK);
	/* A notification alone. */
	rpw_context_on_notify(p.b, on_notify, NULL);
	came.n = 0;
	s = NULL;
	rc = rpw_put_notify(p.ea, NULL, 0, p.k, 0, 0xfeedface01234567u, &s);
	UNTIL(&p, came.n);
	IS(ended(&p, rc, s), RPW_OK);
	CHECK(came.data == 0xfeedface01234567u);
	IS(came.len, 0);
	for (int i = 0; i < REGION; i++)
		IS(p.region[i], 0x77);
	pair_close(&p);
}

/* ---- flush and fence ---- */

static void flush_of_nothing(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	/* It ends when the peer has been asked; several at once, from both sides. */
	for (int i = 0; i < 3; i++) {
		rpw_request *f[4];
		for (int k = 0; k < 4; k++) {
			f[k] = NULL;
			CHECK(rpw_endpoint_flush(k & 1 ? p.eb : p.ea, &f[k]) >= 0);
		}
		for (int k = 0; k < 4; k++)
			IS(ended(&p, f[k] ? RPW_IN_PROGRESS : RPW_OK, f[k]), RPW_OK);
	}
	CHECK(rpw_endpoint_flush(p.ea, NULL) >= 0);
	IS(rpw_endpoint_fence(p.ea), RPW_OK);
	UNTIL(&p, statistics_of(p.a).requests == 0);
	(void)r;
	pair_close(&p);
}

static void flush_says_that_it_took_effect(void)
{
	struct pair p;
	rpw_request *f = NULL;
	pair_open(&p);
	pair_memory(&p);
	memset(&came, 0, sizeof(came));
	rpw_context_on_am(p.b, 1, on_am, NULL);
	static unsigned char big[REGION];
	for (uint64_t seed = 1; seed < 20; seed++) {
		size_t n = seed % 3 ? 8 : sizeof(big);
		pattern_fill(big, n, seed);
		CHECK(rpw_put(p.ea, big, n, p.k, 0, NULL) >= 0);
		CHECK(rpw_am_send(p.ea, 1, NULL, 0, outgoing, 1, NULL) >= 0);
		f = NULL;
		int rc = rpw_endpoint_flush(p.ea, &f);
		IS(ended(&p, rc, f), RPW_OK);
		/* On the peer's side, without another look at it. */
		CHECK(pattern_right(p.region, n, seed));
		IS(came.n, (int)seed);
	}
	pair_close(&p);
}

static void a_fence_keeps_the_order(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	pair_memory(&p);
	static unsigned char first[REGION], second[REGION], back[REGION];
	for (uint64_t seed = 1; seed < 20; seed++) {
		/* The later put is the one that stays; the get after the fence sees it. */
		size_t n = seed % 2 ? REGION : 16;
		pattern_fill(first, n, seed);
		pattern_fill(second, n, seed + 1000);
		CHECK(rpw_put(p.ea, first, n, p.k, 0, NULL) >= 0);
		IS(rpw_endpoint_fence(p.ea), RPW_OK);
		CHECK(rpw_put(p.ea, second, n, p.k, 0, NULL) >= 0);
		IS(rpw_endpoint_fence(p.ea), RPW_OK);
		r = NULL;
		int rc = rpw_get(p.ea, back, n, p.k, 0, &r);
		IS(ended(&p, rc, r), RPW_OK);
		CHECK(pattern_right(back, n, seed + 1000));
	}
	pair_close(&p);
}

const struct contract_case posting_cases[] = {
	{"every_call_needs_its_endpoint", every_call_needs_its_endpoint, true,
		"rpw_endpoint_fence rpw_rkey_unpack rpw_endpoint_on_close rpw_endpoint_destroy "
		"rpw_send rpw_send_iov rpw_send_obj rpw_am_send "
		"rpw_endpoint_flush rpw_put rpw_get "
		"rpw_put_notify "
		"rpw_fetch_add rpw_compare_swap rpw_transfer_batch rpw_recv_obj"},
	{"every_buffer_has_bytes", every_buffer_has_bytes, true,
		"rpw_send rpw_send_iov rpw_send_obj rpw_am_send rpw_put rpw_get rpw_put_notify "
		"rpw_fetch_add rpw_compare_swap rpw_transfer_batch rpw_recv "
		"rpw_recv_iov "
		"rpw_recv_obj"},
	{"nothing_can_be_sent_too", nothing_can_be_sent_too, true,
		"rpw_send rpw_send_iov rpw_send_obj rpw_am_send rpw_put rpw_get rpw_put_notify "
		"rpw_transfer_batch rpw_recv rpw_recv_iov rpw_recv_obj"},
	{"flush_of_nothing", flush_of_nothing, true, "rpw_endpoint_flush rpw_endpoint_fence"},
	{"flush_says_that_it_took_effect", flush_says_that_it_took_effect, true,
		"rpw_endpoint_flush rpw_put rpw_am_send"},
	{"a_fence_keeps_the_order", a_fence_keeps_the_order, true,
		"rpw_endpoint_fence rpw_put rpw_get"},
	{NULL, NULL, false, NULL},
};
