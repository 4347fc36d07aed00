/* SPDX-License-Identifier: BSD-3-Clause */
/* object_cases.c - the contract of objects, active messages and notifications. */
#include "contract.h"

/* ---- objects ---- */

static struct {
	int times;
	size_t asked;
	void *gave;
	bool refuse;
} allocator;
static void *alloc_counted(size_t len, void *arg)
{
	CHECK(arg == &allocator);
	allocator.times++;
	allocator.asked = len;
	return allocator.gave = allocator.refuse ? NULL : malloc(len ? len : 1);
}

static const size_t object_sizes[] = {1, 700, 400000};
static unsigned char object[400000];

static void an_object_lies_in_the_memory_that_was_given(void)
{
	struct pair p;
	pair_open(&p);
	for (int k = 0; k < 6; k++) {
		size_t n = object_sizes[k / 2];
		bool early = k & 1;
		rpw_request *s = NULL, *r = NULL;
		rpw_completion done = RPW_COMPLETION_INIT;
		void *in = &in;
		size_t len = 99;
		pattern_fill(object, n, (uint64_t)k);
		memset(&allocator, 0, sizeof(allocator));
		if (early) {
			IS(rpw_send_obj(p.ea, object, n, &s), RPW_IN_PROGRESS);
			settle(&p);
			/* done is when the other has taken it */
			IS(rpw_request_test(s, NULL), RPW_IN_PROGRESS);
		}
		IS(rpw_recv_obj(p.b, p.eb, alloc_counted, &allocator, &in, &len, &r),
			RPW_IN_PROGRESS);
		if (!early) {
			/* Not filled yet, and nothing is asked for before the size is known. */
			CHECK(!in);
			IS(len, 0);
			settle(&p);
			IS(allocator.times, 0);
			IS(rpw_send_obj(p.ea, object, n, &s), RPW_IN_PROGRESS);
		}
		IS(pair_finish(&p, r, &done), RPW_OK);
		IS(pair_finish(&p, s, NULL), RPW_OK);
		IS(allocator.times, 1);
		IS(allocator.asked, n);
		CHECK(in == allocator.gave);
		IS(len, n);
		IS(done.length, n);
		CHECK(done.from == p.eb);
		CHECK(pattern_right(in, n, (uint64_t)k));
		free(in);
	}
	pair_close(&p);
}

static void an_allocator_may_refuse(void)
{
	struct pair p;
	pair_open(&p);
	for (int k = 0; k < 6; k++) {
		size_t n = object_sizes[k / 2];
		bool early = k & 1;
		rpw_request *s = NULL, *r = NULL;
		void *in = NULL;
		size_t len = 0;
		memset(&allocator, 0, sizeof(allocator));
		allocator.refuse = true;
		if (early) {
			IS(rpw_send_obj(p.ea, object, n, &s), RPW_IN_PROGRESS);
			settle(&p);
		}
		IS(rpw_recv_obj(p.b, p.eb, alloc_counted, &allocator, &in, &len, &r),
			RPW_IN_PROGRESS);
		if (!early)
			IS(rpw_send_obj(p.ea, object, n, &s), RPW_IN_PROGRESS);
		/* Both sides hear of it; nothing was filled; the next object is as good as ever. */
		IS(pair_finish(&p, r, NULL), RPW_ERR_NO_MEMORY);
		IS(pair_finish(&p, s, NULL), RPW_ERR_NO_MEMORY);
		CHECK(!in);
		IS(len, 0);
		IS(rpw_recv_obj(p.b, p.eb, NULL, NULL, &in, &len, &r), RPW_IN_PROGRESS);
		pattern_fill(object, n, (uint64_t)k + 60);
		IS(rpw_send_obj(p.ea, object, n, &s), RPW_IN_PROGRESS);
		IS(pair_finish(&p, r, NULL), RPW_OK);
		IS(pair_finish(&p, s, NULL), RPW_OK);
		CHECK(pattern_right(in, n, (uint64_t)k + 60));
		free(in);
	}
	pair_close(&p);
}

/* An allocator is a callback: it may post, close, and not progress. */
static struct {
	struct pair *p;
	void *second;
	size_t second_len;
	rpw_request *second_req;
	bool close;
} nested;
static void *alloc_nested(size_t len, void *arg)
{
	(void)arg;
	REFUSED(rpw_context_progress(nested.p->b), RPW_ERR_INVALID, "callback");
	if (nested.close)
		rpw_endpoint_destroy(nested.p->eb);
	else
		IS(rpw_recv_obj(nested.p->b, nested.p->eb, NULL, NULL, &nested.second,
			   &nested.second_len, &nested.second_req),
			RPW_IN_PROGRESS);
	return malloc(len);
}

static void an_allocator_may_post_and_close(void)
{
	for (int k = 0; k < 8; k++) {
		bool early = k & 1, large = k & 2;
		struct pair p;
		size_t n = large ? sizeof(object) : 100, len = 0;
		rpw_request *r = NULL, *s[2] = {NULL, NULL};
		void *first = NULL;
		static unsigned char other[100];
		pair_open(&p);
		memset(&nested, 0, sizeof(nested));
		nested.p = &p;
		nested.close = k & 4;
		pattern_fill(object, n, 80);
		pattern_fill(other, sizeof(other), 81);
		if (!early)
			IS(rpw_recv_obj(p.b, p.eb, alloc_nested, NULL, &first, &len, &r),
				RPW_IN_PROGRESS);
		IS(rpw_send_obj(p.ea, object, n, &s[0]), RPW_IN_PROGRESS);
		IS(rpw_send_obj(p.ea, other, sizeof(other), &s[1]), RPW_IN_PROGRESS);
		if (early) {
			settle(&p);
			IS(rpw_recv_obj(p.b, p.eb, alloc_nested, NULL, &first, &len, &r),
				RPW_IN_PROGRESS);
		}
		if (nested.close) {
			int status = pair_finish(&p, r, NULL);
			CHECK(status == RPW_OK || status == RPW_ERR_CANCELED);
			UNTIL(&p, statistics_of(p.b).endpoints == 0);
			status = pair_finish(&p, s[0], NULL);
			CHECK(status == RPW_OK || status == RPW_ERR_PEER_GONE);
			IS(pair_finish(&p, s[1], NULL), RPW_ERR_PEER_GONE);
			p.eb = NULL;
		} else {
			/* The receive that was posted inside gets the next object. */
			IS(pair_finish(&p, r, NULL), RPW_OK);
			IS(pair_finish(&p, nested.second_req, NULL), RPW_OK);
			IS(pair_finish(&p, s[0], NULL), RPW_OK);
			IS(pair_finish(&p, s[1], NULL), RPW_OK);
			IS(len, n);
			IS(nested.second_len, sizeof(other));
			CHECK(pattern_right(first, n, 80));
			CHECK(pattern_right(nested.second, sizeof(other), 81));
			free(nested.second);
		}
		free(first);
		pair_close(&p);
	}
}

static void objects_come_in_order_and_apart_from_messages(void)
{
	struct pair p;
	enum { N = 30 };
	rpw_request *s[N], *r[N], *m = NULL;
	void *in[N];
	size_t len[N];
	static unsigned char out[N][3000];
	pair_open(&p);
	for (int i = 0; i < N; i++) {
		pattern_fill(out[i], sizeof(out[i]), (uint64_t)i);
		IS(rpw_send_obj(p.ea, out[i], i % 3 ? (size_t)i : sizeof(out[i]), &s[i]),
			RPW_IN_PROGRESS);
	}
	/* A receive of any tag does not take them. */
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 0, 0, &m), RPW_IN_PROGRESS);
	for (int i = 0; i < N; i++)
		IS(rpw_recv_obj(p.b, p.eb, NULL, NULL, &in[i], &len[i], &r[i]), RPW_IN_PROGRESS);
	for (int i = 0; i < N; i++) {
		IS(pair_finish(&p, r[i], NULL), RPW_OK);
		IS(pair_finish(&p, s[i], NULL), RPW_OK);
		IS(len[i], i % 3 ? i : (int)sizeof(out[i]));
		CHECK(pattern_right(in[i], len[i], (uint64_t)i));
		free(in[i]);
	}
	IS(rpw_request_test(m, NULL), RPW_IN_PROGRESS);
	rpw_request_cancel(m);
	rpw_request_destroy(m);
	pair_close(&p);
}

static void object_over(rpw_request *r, const rpw_completion *done, void *arg)
{
	*(int *)arg = done->status;
	rpw_request_destroy(r);
}

/* Two endpoints of a connect to b, and b takes what comes, from whichever. */
static void objects_from_any_endpoint(void)
{
	struct pair p;
	char address[64];
	rpw_endpoint *out[2], *at[2] = {NULL, NULL};
	rpw_request *r[4], *s = NULL;
	void *in[4];
	size_t len[4];
	rpw_completion done = RPW_COMPLETION_INIT;
	pair_open(&p);
	out[0] = p.ea;
	at[0] = p.eb;
	rpw_listener *l = pair_listen(p.b, &at[1], address);
	IS(rpw_endpoint_create(p.a, address, NULL, &out[1], &s), RPW_IN_PROGRESS);
	IS(pair_finish(&p, s, NULL), RPW_OK);
	UNTIL(&p, at[1]);
	for (size_t k = 0; k < 2; k++) {
		/* Of the receives that an object may go to, the one that was posted first: 0 and 2
		 * for any, 1 and 3 for the first endpoint. */
		size_t n = object_sizes[k + 1];
		static const struct {
			int by, to;
		} sent[4] = {{0, 0}, {1, 2}, {0, 1}, {0, 3}};
		for (int i = 0; i < 4; i++)
			IS(rpw_recv_obj(
				   p.b, i & 1 ? at[0] : NULL, NULL, NULL, &in[i], &len[i], &r[i]),
				RPW_IN_PROGRESS);
		for (int i = 0; i < 4; i++) {
			pattern_fill(object, n, (uint64_t)i);
			IS(rpw_send_obj(out[sent[i].by], object, n, &s), RPW_IN_PROGRESS);
			int to = sent[i].to;
			IS(pair_finish(&p, r[to], &done), RPW_OK);
			IS(pair_finish(&p, s, NULL), RPW_OK);
			CHECK(done.from == at[sent[i].by]);
			IS(len[to], n);
			CHECK(pattern_right(in[to], n, (uint64_t)i));
			free(in[to]);
		}
		/* What came before its receive: the oldest, wherever it is from; a receive for one
		 * endpoint leaves the other's where it is. */
		static const int by[4] = {1, 0, 1, 0}, from[4] = {0, 1, 1, 0};
		rpw_request *sends[4];
		static unsigned char early[4][400000];
		for (int i = 0; i < 4; i++) {
			pattern_fill(early[i], n, (uint64_t)i + 10);
			IS(rpw_send_obj(out[by[i]], early[i], n, &sends[i]), RPW_IN_PROGRESS);
			settle(&p);
		}
		/* 1 of endpoint 0; then 0, 2 of endpoint 1 and 3 of endpoint 0, as they came. */
		static const uint64_t which[4] = {11, 10, 12, 13};
		for (int i = 0; i < 4; i++) {
			IS(rpw_recv_obj(p.b, i ? NULL : at[0], NULL, NULL, &in[i], &len[i], &r[i]),
				RPW_IN_PROGRESS);
			IS(pair_finish(&p, r[i], &done), RPW_OK);
			CHECK(done.from == at[from[i]]);
			CHECK(pattern_right(in[i], n, which[i]));
			free(in[i]);
		}
		for (int i = 0; i < 4; i++)
			IS(pair_finish(&p, sends[i], NULL), RPW_OK);
	}
	/* One for any endpoint outlives each of them; it can be canceled, and ends with its
	 * context. */
	for (int i = 0; i < 3; i++)
		IS(rpw_recv_obj(p.b, NULL, NULL, NULL, &in[i], &len[i], &r[i]), RPW_IN_PROGRESS);
	rpw_endpoint_destroy(out[1]);
	settle(&p);
	IS(rpw_request_test(r[0], NULL), RPW_IN_PROGRESS);
	rpw_request_cancel(r[0]);
	IS(rpw_request_test(r[0], NULL), RPW_ERR_CANCELED);
	rpw_request_destroy(r[0]);
	IS(rpw_send_obj(p.ea, object, 8, &s), RPW_IN_PROGRESS);
	IS(pair_finish(&p, r[1], NULL), RPW_OK);
	IS(pair_finish(&p, s, NULL), RPW_OK);
	free(in[1]);
	int last = 77;
	rpw_request_on_done(r[2], object_over, &last);
	rpw_endpoint_destroy(at[1]);
	rpw_listener_destroy(l);
	pair_close(&p);
	IS(last, RPW_ERR_CANCELED);
}

/* ---- active messages ---- */

static struct {
	int n[2];
	rpw_endpoint *from;
	void *arg;
	unsigned char header[RPW_AM_HEADER_MAX];
	size_t header_len;
	unsigned char data[400000];
	size_t len;
} am;
static void am_take(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	am.n[0]++;
	am.from = ep;
	am.arg = arg;
	am.header_len = header_len;
	am.len = len;
	memcpy(am.header, header, header_len);
	memcpy(am.data, data, len);
}
static void am_other(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	(void)ep, (void)header, (void)header_len, (void)data, (void)len, (void)arg;
	am.n[1]++;
}

static void active_messages_reach_their_handler(void)
{
	struct pair p;
	unsigned char header[RPW_AM_HEADER_MAX];
	pair_open(&p);
	REFUSED(rpw_context_on_am(p.b, RPW_AM_IDS, am_take, NULL), RPW_ERR_INVALID, "0 to 255");
	REFUSED(rpw_am_send(p.ea, RPW_AM_IDS, NULL, 0, NULL, 0, NULL), RPW_ERR_INVALID, "0 to 255");
	REFUSED(rpw_am_send(p.ea, 1, header, RPW_AM_HEADER_MAX + 1, NULL, 0, NULL), RPW_ERR_INVALID,
		"at most 256");
	memset(&am, 0, sizeof(am));
	IS(rpw_context_on_am(p.b, 0, am_take, &p), RPW_OK);
	IS(rpw_context_on_am(p.b, RPW_AM_IDS - 1, am_other, NULL), RPW_OK);
	/* Header and data of every length, both their own copies when the call has returned or is
	 * done. */
	static const size_t headers[] = {0, 1, RPW_AM_HEADER_MAX},
			    lengths[] = {0, 3, 2000, sizeof(am.data)};
	static unsigned char data[sizeof(am.data)];
	int n = 0;
	for (int h = 0; h < 3; h++)
		for (int k = 0; k < 4; k++) {
			rpw_request *s = NULL;
			pattern_fill(header, headers[h], (uint64_t)h + 7);
			pattern_fill(data, lengths[k], (uint64_t)k);
			int rc = rpw_am_send(p.ea, 0, header, headers[h], data, lengths[k], &s);
			memset(header, 0, sizeof(header));
			UNTIL(&p, am.n[0] > n);
			IS(ended(&p, rc, s), RPW_OK);
			IS(am.n[0], ++n);
			CHECK(am.from == p.eb);
			CHECK(am.arg == &p);
			IS(am.header_len, headers[h]);
			IS(am.len, lengths[k]);
			CHECK(pattern_right(am.header, am.header_len, (uint64_t)h + 7));
			CHECK(pattern_right(am.data, am.len, (uint64_t)k));
		}
	IS(am.n[1], 0);
	/* The last id is one of its own; a handler can be replaced; one without a handler is
	 * dropped, and its sender does not wait for anybody. */
	rpw_request *s = NULL;
	int rc = rpw_am_send(p.ea, RPW_AM_IDS - 1, NULL, 0, NULL, 0, &s);
	IS(ended(&p, rc, s), RPW_OK);
	UNTIL(&p, am.n[1] == 1);
	IS(rpw_context_on_am(p.b, 0, am_other, NULL), RPW_OK);
	CHECK(rpw_am_send(p.ea, 0, NULL, 0, NULL, 0, NULL) >= 0);
	UNTIL(&p, am.n[1] == 2);
	IS(rpw_context_on_am(p.b, 0, NULL, NULL), RPW_OK);
	for (int k = 0; k < 4; k++) {
		s = NULL;
		rc = rpw_am_send(p.ea, 0, NULL, 0, data, lengths[k], &s);
		IS(ended(&p, rc, s), RPW_OK);
	}
	CHECK(rpw_am_send(p.ea, RPW_AM_IDS - 1, NULL, 0, NULL, 0, NULL) >= 0);
	UNTIL(&p, am.n[1] == 3);
	IS(am.n[0], n);
	pair_close(&p);
}

static struct {
	struct pair *p;
	int n;
} inside;
static void am_does_things(rpw_endpoint *ep, const void *header, size_t header_len,
	const void *data, size_t len, void *arg)
{
	rpw_request *r = NULL;
	(void)header, (void)header_len, (void)data, (void)len, (void)arg;
	inside.n++;
	REFUSED(rpw_context_progress(inside.p->b), RPW_ERR_INVALID, "callback");
	CHECK(rpw_am_send(ep, 2, NULL, 0, outgoing, 8, NULL) >= 0);
	IS(rpw_recv(inside.p->b, ep, incoming, 8, 1, ALL, &r), RPW_IN_PROGRESS);
	REFUSED(rpw_request_wait(r, 0, NULL), RPW_ERR_INVALID, "callback");
	rpw_request_cancel(r);
	rpw_request_destroy(r);
	IS(rpw_context_on_am(inside.p->b, 1, NULL, NULL), RPW_OK); /* itself */
	if (inside.n == 2)
		rpw_endpoint_destroy(ep);
}

static void what_a_handler_may_do(void)
{
	static unsigned char big[300000];
	for (int large = 0; large < 2; large++) {
		struct pair p;
		pair_open(&p);
		memset(&inside, 0, sizeof(inside));
		memset(&am, 0, sizeof(am));
		inside.p = &p;
		rpw_context_on_am(p.a, 2, am_other, NULL);
		for (int i = 1; i <= 2; i++) {
			rpw_context_on_am(p.b, 1, am_does_things, NULL);
			CHECK(rpw_am_send(p.ea, 1, NULL, 0, big, large ? sizeof(big) : 10, NULL) >=
				0);
			UNTIL(&p, inside.n == i);
			settle(&p);
		}
		CHECK(am.n[1] >= 1);
		IS(statistics_of(p.b).endpoints, 0);
		p.eb = NULL;
		pair_close(&p);
	}
}

/* ---- notifications ---- */

static struct {
	int n;
	uint64_t data[32];
	size_t len[32];
	rpw_endpoint *from;
	const unsigned char *region;
	rpw_memory *release;
} told;
static void on_notify(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	CHECK(arg == &told);
	CHECK(told.n < 32);
	told.from = ep;
	told.data[told.n] = data;
	told.len[told.n++] = len;
	if (told.region) /* the bytes are there before the word of them */
		CHECK(pattern_right(told.region, len, data));
	if (told.release)
		rpw_memory_destroy(told.release);
	told.release = NULL;
}

static void a_notification_follows_its_bytes(void)
{
	struct pair p;
	pair_open(&p);
	pair_memory(&p);
	memset(&told, 0, sizeof(told));
	static unsigned char out[REGION];
	/* Before anybody listens for them they are dropped. */
	CHECK(rpw_put_notify(p.ea, out, 8, p.k, 0, 1, NULL) >= 0);
	UNTIL(&p, statistics_of(p.a).requests == 0);
	settle(&p);
	rpw_context_on_notify(p.b, on_notify, &told);
	told.region = p.region;
	static const size_t sizes[] = {8, REGION, 1, 0, 3000};
	for (int i = 0; i < 20; i++) {
		size_t n = sizes[i % 5];
		rpw_request *r = NULL;
		pattern_fill(out, n, (uint64_t)i << 33);
		int rc = rpw_put_notify(p.ea, out, n, p.k, 0, (uint64_t)i << 33, &r);
		IS(ended(&p, rc, r), RPW_OK);
		UNTIL(&p, told.n > i);
		CHECK(told.data[i] == (uint64_t)i << 33);
		IS(told.len[i], n);
		CHECK(told.from == p.eb);
	}
	/* Several at once; flush waits for them too. */
	told.n = 0;
	told.region = NULL;
	for (int i = 0; i < 20; i++)
		CHECK(rpw_put_notify(p.ea, out, 8, p.k, (uint64_t)i * 8, (uint64_t)i, NULL) >= 0);
	rpw_request *f = NULL;
	int rc = rpw_endpoint_flush(p.ea, &f);
	IS(ended(&p, rc, f), RPW_OK);
	IS(told.n, 20);
	uint64_t seen = 0; /* in any order, each once */
	for (int i = 0; i < 20; i++)
		seen |= (uint64_t)1 << told.data[i];
	CHECK(seen == ((uint64_t)1 << 20) - 1);
	/* The memory may be given back inside. */
	told.n = 0;
	told.release = p.m;
	p.m = NULL;
	CHECK(rpw_put_notify(p.ea, out, 8, p.k, 0, 5, NULL) >= 0);
	UNTIL(&p, told.n == 1);
	/* Taken back. */
	rpw_context_on_notify(p.b, NULL, NULL);
	pair_close(&p);
}

const struct contract_case object_cases[] = {
	{"an_object_lies_in_the_memory_that_was_given", an_object_lies_in_the_memory_that_was_given,
		true, "rpw_send_obj rpw_recv_obj"},
	{"an_allocator_may_refuse", an_allocator_may_refuse, true, "rpw_send_obj rpw_recv_obj"},
	{"an_allocator_may_post_and_close", an_allocator_may_post_and_close, true,
		"rpw_recv_obj rpw_endpoint_destroy rpw_context_progress"},
	{"objects_from_any_endpoint", objects_from_any_endpoint, true,
		"rpw_recv_obj rpw_send_obj rpw_request_cancel"},
	{"objects_come_in_order_and_apart_from_messages",
		objects_come_in_order_and_apart_from_messages, true,
		"rpw_send_obj rpw_recv_obj rpw_recv"},
	{"active_messages_reach_their_handler", active_messages_reach_their_handler, true,
		"rpw_context_on_am rpw_am_send"},
	{"what_a_handler_may_do", what_a_handler_may_do, true,
		"rpw_context_on_am rpw_am_send rpw_context_progress rpw_request_wait "
		"rpw_endpoint_destroy"},
	{"a_notification_follows_its_bytes", a_notification_follows_its_bytes, true,
		"rpw_put_notify rpw_context_on_notify rpw_endpoint_flush rpw_memory_destroy"},
	{NULL, NULL, false, NULL},
};
