/* SPDX-License-Identifier: BSD-3-Clause */
/* request_cases.c - the contract of requests: testing, canceling, letting go, being called. */
#include "contract.h"

#include <errno.h>
#include <unistd.h>

static void null_is_no_request(void)
{
	REFUSED(rpw_request_test(NULL, NULL), RPW_ERR_INVALID, "rpw_request_test");
	SAYS("RPW_OK was complete"); /* what it most likely was */
	REFUSED(rpw_request_wait(NULL, 0, NULL), RPW_ERR_INVALID, "rpw_request_wait");
	REFUSED(rpw_request_cancel(NULL), RPW_ERR_INVALID, "rpw_request_cancel");
	rpw_request_destroy(NULL);
	rpw_request_on_done(NULL, NULL, NULL);
}

static void testing_does_not_progress(void)
{
	struct pair p;
	rpw_request *r = NULL, *s = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	pair_open(&p);
	memset(&done, 0x5a, sizeof(done));
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 0, 0, &r), RPW_IN_PROGRESS);
	IS(rpw_request_test(r, &done), RPW_IN_PROGRESS);
	IS(done.status, RPW_IN_PROGRESS);
	pattern_fill(outgoing, sizeof(outgoing), 3);
	int rc = rpw_send(p.ea, outgoing, 60, 77, &s);
	for (int i = 0; i < 1000; i++) {
		rpw_context_progress(p.a);
		IS(rpw_request_test(r, NULL), RPW_IN_PROGRESS);
	}
	while (rpw_request_test(r, &done) == RPW_IN_PROGRESS)
		both(&p);
	/* Complete: it stays so, and says the same each time. */
	for (int i = 0; i < 3; i++) {
		IS(rpw_request_test(r, &done), RPW_OK);
		IS(done.status, RPW_OK);
		IS(done.length, 60);
		IS(done.tag, 77);
		CHECK(done.from == p.eb);
	}
	IS(rpw_request_wait(r, 0, &done), RPW_OK);
	IS(rpw_request_cancel(r), RPW_OK); /* too late */
	IS(rpw_request_test(r, NULL), RPW_OK);
	rpw_request_destroy(r);
	IS(ended(&p, rc, s), RPW_OK);
	pair_close(&p);
}

static void what_a_completion_says_of_a_send(void)
{
	struct pair p;
	rpw_completion done = RPW_COMPLETION_INIT;
	static unsigned char big[300000];
	static unsigned char into[300000];
	pair_open(&p);
	rpw_request *s = NULL, *r = NULL;
	IS(rpw_send(p.ea, big, sizeof(big), 5, &s), RPW_IN_PROGRESS);
	IS(rpw_recv(p.b, NULL, into, sizeof(into), 5, ALL, &r), RPW_IN_PROGRESS);
	IS(pair_finish(&p, s, &done), RPW_OK);
	IS(done.length, sizeof(big));
	IS(done.tag, 5);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	pair_close(&p);
}

/* ---- cancelling ---- */

static void cancel_of_what_has_not_begun(void)
{
	/* Before the connection stands everything waits in the queue, and can be taken out of
	 * it. */
	struct pair p;
	rpw_request *r[POSTINGS], *c = NULL;
	char address[64];
	memset(&p, 0, sizeof(p));
	p.a = context_open();
	p.b = context_open();
	p.l = pair_listen(p.b, &p.eb, address);
	IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, &c), RPW_IN_PROGRESS);
	for (int what = 0; what < POSTINGS; what++) {
		r[what] = NULL;
		if (posting_needs_key(what))
			continue;
		IS(post(&p, what, p.ea, &r[what]), RPW_IN_PROGRESS);
		IS(rpw_request_cancel(r[what]), RPW_OK);
		IS(rpw_request_test(r[what], NULL), RPW_ERR_CANCELED);
		IS(rpw_request_cancel(r[what]), RPW_OK); /* again: it stays as it is */
		rpw_request_destroy(r[what]);
	}
	IS(pair_finish(&p, c, NULL), RPW_OK);
	UNTIL(&p, p.eb);
	/* Nothing of it arrives. */
	settle(&p);
	IS(rpw_probe(p.b, NULL, 0, 0, NULL), RPW_IN_PROGRESS);
	IS(statistics_of(p.b).received, 0);
	IS(statistics_of(p.a).requests, 0);
	pair_close(&p);
}

static void cancel_of_what_is_under_way(void)
{
	struct pair p;
	pair_open(&p);
	pair_memory(&p);
	for (int what = 0; what < POSTINGS; what++) {
		rpw_request *r = NULL;
		int rc = post(&p, what, p.ea, &r);
		CHECK(rc >= 0);
		if (r)
			IS(rpw_request_cancel(r), RPW_OK);
		/* It completes: canceled, or, when it was too late, as it would have. An object
		 * that nobody takes can only be canceled. */
		int status = ended(&p, rc, r);
		CHECK(status == RPW_OK || status == RPW_ERR_CANCELED);
		CHECK(what < RECV || status == RPW_ERR_CANCELED);
		CHECK(what != SEND_OBJ || status == RPW_ERR_CANCELED);
	}
	/* The endpoint is as good as before; what was canceled is not received. */
	rpw_request *r = NULL, *s = NULL;
	settle(&p);
	while (rpw_probe(p.b, NULL, 0, 0, NULL) == RPW_OK)
		IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 0, 0, NULL), RPW_OK);
	pattern_fill(outgoing, sizeof(outgoing), 12);
	memset(incoming, 0, sizeof(incoming));
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	int rc = rpw_send(p.ea, outgoing, sizeof(outgoing), 1, &s);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	IS(ended(&p, rc, s), RPW_OK);
	CHECK(pattern_right(incoming, sizeof(incoming), 12));
	pair_close(&p);
}

static void cancel_of_a_large_message(void)
{
	struct pair p;
	rpw_request *s = NULL, *o = NULL, *r = NULL;
	static unsigned char big[1 << 20], into[1 << 20];
	pair_open(&p);
	/* Offered, and not taken: both kinds are withdrawn, and their buffers are the program's
	 * again. */
	IS(rpw_send(p.ea, big, sizeof(big), 1, &s), RPW_IN_PROGRESS);
	IS(rpw_send_obj(p.ea, big, sizeof(big), &o), RPW_IN_PROGRESS);
	UNTIL(&p, rpw_probe(p.b, NULL, 1, ALL, NULL) == RPW_OK);
	IS(rpw_request_cancel(s), RPW_OK);
	IS(rpw_request_cancel(o), RPW_OK);
	IS(pair_finish(&p, s, NULL), RPW_ERR_CANCELED);
	IS(pair_finish(&p, o, NULL), RPW_ERR_CANCELED);
	IS(rpw_probe(p.b, NULL, 1, ALL, NULL), RPW_IN_PROGRESS);
	/* The next one of that tag is the next one. */
	pattern_fill(big, sizeof(big), 31);
	IS(rpw_send(p.ea, big, sizeof(big), 1, &s), RPW_IN_PROGRESS);
	IS(rpw_recv(p.b, NULL, into, sizeof(into), 1, ALL, &r), RPW_IN_PROGRESS);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	IS(pair_finish(&p, s, NULL), RPW_OK);
	CHECK(pattern_right(into, sizeof(into), 31));
	pair_close(&p);
}

static void cancel_makes_way_for_what_is_behind(void)
{
	/* Sends that the peer has no room for hold up what is behind them; canceled, they do
	 * not. */
	struct pair p;
	rpw_context_options o = options_of(contract_transport);
	enum { N = 4000 };
	static rpw_request *s[N];
	rpw_request *put = NULL;
	o.unexpected_bytes_max = 64 * 1024;
	pair_open_as(&p, &o, NULL);
	pair_memory(&p);
	for (int i = 0; i < N; i++) {
		s[i] = NULL;
		CHECK(rpw_send(p.ea, outgoing, sizeof(outgoing), (uint64_t)i, &s[i]) >= 0);
	}
	pattern_fill(incoming, sizeof(incoming), 41);
	IS(rpw_put(p.ea, incoming, sizeof(incoming), p.k, 0, &put), RPW_IN_PROGRESS);
	settle(&p);
	IS(rpw_request_test(put, NULL), RPW_IN_PROGRESS);
	for (int i = 0; i < N; i++)
		if (s[i]) {
			rpw_request_cancel(s[i]);
			int status = pair_finish(&p, s[i], NULL);
			CHECK(status == RPW_OK || status == RPW_ERR_CANCELED);
		}
	IS(pair_finish(&p, put, NULL), RPW_OK);
	rpw_request *f = NULL;
	int rc = rpw_endpoint_flush(p.ea, &f);
	IS(ended(&p, rc, f), RPW_OK);
	CHECK(pattern_right(p.region, sizeof(incoming), 41));
	pair_close(&p);
}

/* ---- letting go ---- */

static void a_request_that_is_let_go_goes_on(void)
{
	struct pair p;
	rpw_request *r = NULL;
	static unsigned char big[300000], into[300000];
	pair_open(&p);
	pattern_fill(big, sizeof(big), 51);
	/* Each side frees its request at once, or asks for none. */
	IS(rpw_send(p.ea, big, sizeof(big), 1, &r), RPW_IN_PROGRESS);
	rpw_request_destroy(r);
	IS(rpw_send(p.ea, big, sizeof(big), 2, NULL), RPW_IN_PROGRESS);
	for (uint64_t tag = 1; tag <= 2; tag++) {
		memset(into, 0, sizeof(into));
		if (tag == 1) {
			IS(rpw_recv(p.b, NULL, into, sizeof(into), tag, ALL, &r), RPW_IN_PROGRESS);
			rpw_request_destroy(r);
			/* it may be there already */
		} else
			CHECK(rpw_recv(p.b, NULL, into, sizeof(into), tag, ALL, NULL) >= 0);
		UNTIL(&p,
			statistics_of(p.a).requests == 2 - tag && statistics_of(p.b).requests == 0);
		CHECK(pattern_right(into, sizeof(into), 51));
	}
	pair_close(&p);
}

static void nothing_is_left_of_what_asked_for_no_request(void)
{
	struct pair p;
	pair_open(&p);
	pair_memory(&p);
	for (int what = 0; what < POSTINGS; what++) {
		int rc = post(&p, what, p.ea, NULL);
		CHECK(rc == RPW_OK || rc == RPW_IN_PROGRESS);
	}
	/* The object needs its receiver, the receives their messages. */
	void *obj = NULL;
	size_t len = 0;
	CHECK(rpw_recv_obj(p.b, p.eb, NULL, NULL, &obj, &len, NULL) >= 0);
	CHECK(rpw_send_obj(p.eb, outgoing, 10, NULL) >= 0);
	for (int i = 0; i < 2; i++)
		CHECK(rpw_send(p.eb, outgoing, 10, 1, NULL) >= 0);
	UNTIL(&p, statistics_of(p.a).requests + statistics_of(p.b).requests == 0);
	IS(len, sizeof(outgoing));
	IS(incoming_obj_len, 10);
	free(obj);
	free(incoming_obj);
	pair_close(&p);
}

/* ---- being called ---- */

static struct {
	int times, status;
	size_t length;
	rpw_request *r;
} called;
static void on_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	CHECK(arg == &called);
	called.times++;
	called.status = done->status;
	called.length = done->length;
	called.r = r;
}

static void called_when_done(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	memset(&called, 0, sizeof(called));
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, on_done, &called);
	CHECK(rpw_send(p.ea, outgoing, 33, 1, NULL) >= 0);
	UNTIL(&p, called.times);
	IS(called.times, 1);
	IS(called.status, RPW_OK);
	IS(called.length, 33);
	CHECK(called.r == r);
	/* It is the program's still. At once, now that it is complete. */
	rpw_request_on_done(r, on_done, &called);
	IS(called.times, 2);
	IS(rpw_request_test(r, NULL), RPW_OK);
	rpw_request_destroy(r);
	/* Of a request that was let go. */
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 2, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, on_done, &called);
	rpw_request_destroy(r);
	CHECK(rpw_send(p.ea, outgoing, 34, 2, NULL) >= 0);
	UNTIL(&p, called.times == 3);
	IS(called.length, 34);
	/* Waiting calls it too. */
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 3, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, on_done, &called);
	CHECK(rpw_send(p.ea, outgoing, 35, 3, NULL) >= 0);
	settle(&p);
	IS(rpw_request_wait(r, -1, NULL), RPW_OK);
	IS(called.times, 4);
	IS(called.length, 35);
	rpw_request_destroy(r);
	pair_close(&p);
}

static void a_callback_can_be_taken_back(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	memset(&called, 0, sizeof(called));
	/* Before it is complete, and when it is but the callback waits for the next
	 * rpw_context_progress. */
	for (int late = 0; late < 2; late++) {
		IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
		rpw_request_on_done(r, on_done, &called);
		if (late)
			rpw_request_cancel(r);
		rpw_request_on_done(r, NULL, NULL);
		rpw_request_cancel(r);
		settle(&p);
		IS(called.times, 0);
		IS(rpw_request_test(r, NULL), RPW_ERR_CANCELED);
		rpw_request_destroy(r);
	}
	/* Another in its place: only that one is called. */
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, on_done, NULL);
	rpw_request_on_done(r, on_done, &called);
	rpw_request_cancel(r);
	IS(called.times, 0);
	settle(&p);
	IS(called.times, 1);
	IS(called.status, RPW_ERR_CANCELED);
	rpw_request_destroy(r);
	IS(statistics_of(p.b).requests, 0);
	pair_close(&p);
}

static int chain;
static void posts_the_next(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct pair *p = (struct pair *)arg;
	rpw_request *other = NULL;
	IS(done->status, RPW_OK);
	rpw_request_destroy(r); /* its own request */
	REFUSED(rpw_context_progress(p->b), RPW_ERR_INVALID, "callback");
	if (++chain == 10) {
		rpw_endpoint_destroy(p->eb);
		p->eb = NULL;
		return;
	}
	IS(rpw_recv(p->b, p->eb, incoming, sizeof(incoming), 3, ALL, &other), RPW_IN_PROGRESS);
	REFUSED(rpw_request_wait(other, 0, NULL), RPW_ERR_INVALID, "callback");
	REFUSED(rpw_request_wait(other, -1, NULL), RPW_ERR_INVALID, "callback");
	REFUSED(rpw_request_wait_all(p->b, &other, 1, -1), RPW_ERR_INVALID, "callback");
	rpw_request_cancel(other);
	rpw_request_destroy(other);
	IS(rpw_recv(p->b, p->eb, incoming, sizeof(incoming), 1, ALL, &other), RPW_IN_PROGRESS);
	CHECK(rpw_send(p->eb, outgoing, 8, 2, NULL) >= 0);
	IS(rpw_probe(p->b, NULL, 5, ALL, NULL), RPW_IN_PROGRESS);
	rpw_request_on_done(other, posts_the_next, p);
}

static void what_a_callback_may_do(void)
{
	struct pair p;
	rpw_request *r = NULL, *a = NULL;
	pair_open(&p);
	chain = 0;
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, posts_the_next, &p);
	for (int i = 0; i < 10; i++) {
		unsigned char word[8];
		if (i)
			IS(rpw_recv(p.a, p.ea, word, 8, 2, ALL, &a), RPW_IN_PROGRESS);
		CHECK(rpw_send(p.ea, outgoing, 8, 1, NULL) >= 0);
		if (a)
			IS(pair_finish(&p, a, NULL), RPW_OK);
	}
	UNTIL(&p, chain == 10);
	settle(&p);
	/* Closed inside: it is gone when rpw_context_progress has returned. */
	IS(statistics_of(p.b).endpoints, 0);
	pair_close(&p);
}

static void at_once(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct pair *p = (struct pair *)arg;
	(void)r;
	(void)done;
	/* As in any callback. */
	REFUSED(rpw_context_progress(p->b), RPW_ERR_INVALID, "callback");
	rpw_endpoint_destroy(p->eb);
	CHECK(rpw_send(p->eb, outgoing, 8, 1, NULL) >= 0); /* it closes later */
	p->eb = NULL;
}

static void a_callback_at_once_is_a_callback(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_cancel(r);
	rpw_request_on_done(r, at_once, &p);
	rpw_request_destroy(r);
	CHECK(!p.eb);
	rpw_context_progress(p.b);
	IS(statistics_of(p.b).endpoints, 0);
	pair_close(&p);
}

/* ---- why it failed ---- */

static struct {
	char said[256];
	int n;
} told;
static void tell(rpw_request *r, const rpw_completion *done, void *arg)
{
	(void)r;
	(void)done;
	(void)arg;
	snprintf(told.said, sizeof(told.said), "%s", rpw_last_error());
	told.n++;
}

/* Whatever failed before or since: each completion that is not good has its own sentence, as often
 * as it is asked for. */
static void a_completion_has_its_own_sentence(void)
{
	struct pair p;
	rpw_request *cut, *canceled, *refused = NULL, *heard, *lost[3], *bad[2];
	static unsigned char big[300000], small[60];
	pair_open(&p);
	pair_memory(&p);
	IS(rpw_recv(p.b, NULL, incoming, 2, 1, ALL, &cut), RPW_IN_PROGRESS);
	IS(rpw_recv(p.b, NULL, small, sizeof(small), 2, ALL, &heard), RPW_IN_PROGRESS);
	rpw_request_on_done(heard, tell, NULL);
	CHECK(rpw_send(p.ea, "moose", 5, 1, NULL) >= 0);
	CHECK(rpw_send(p.ea, big, sizeof(big), 2, NULL) >= 0);
	UNTIL(&p, rpw_request_test(cut, NULL) != RPW_IN_PROGRESS && told.n);
	HAS(told.said, "the message has 300000 bytes, the buffer 60");
	rpw_request_destroy(heard);
	IS(rpw_recv(p.b, NULL, small, sizeof(small), 3, ALL, &canceled), RPW_IN_PROGRESS);
	IS(rpw_request_cancel(canceled), RPW_OK);
	/* Memory that is there no more. */
	rpw_memory_destroy(p.m);
	p.m = NULL;
	int rc = rpw_get(p.ea, big, 4096, p.k, 0, &refused);
	CHECK(rc == RPW_IN_PROGRESS || rc == RPW_ERR_ACCESS);
	if (refused)
		UNTIL(&p, rpw_request_test(refused, NULL) != RPW_IN_PROGRESS);
	for (int i = 0; i < 2; i++) {
		REFUSED(rpw_request_test(cut, NULL), RPW_ERR_TRUNCATED,
			"the message has 5 bytes, the buffer 2");
		REFUSED(rpw_request_wait(canceled, 100, NULL), RPW_ERR_CANCELED,
			"canceled by rpw_request_cancel");
		if (refused)
			REFUSED(rpw_request_test(refused, NULL), RPW_ERR_ACCESS, "4096 bytes");
		REFUSED(rpw_request_wait(cut, 100, NULL), RPW_ERR_TRUNCATED,
			"the message has 5 bytes, the buffer 2");
	}
	bad[0] = cut;
	bad[1] = canceled;
	REFUSED(rpw_request_wait_all(p.b, bad, 2, 100), RPW_ERR_TRUNCATED,
		"the message has 5 bytes, the buffer 2");
	rpw_request_destroy(refused);
	rpw_request_destroy(cut);
	rpw_request_destroy(canceled);
	/* The end of an endpoint is the reason of all that ends with it. */
	for (int i = 0; i < 3; i++)
		IS(rpw_recv(p.a, p.ea, small, sizeof(small), 9, ALL, &lost[i]), RPW_IN_PROGRESS);
	rpw_endpoint_destroy(p.eb);
	p.eb = NULL;
	UNTIL(&p, rpw_request_test(lost[2], NULL) != RPW_IN_PROGRESS);
	for (int i = 0; i < 3; i++) {
		REFUSED(rpw_request_test(lost[i], NULL), RPW_ERR_PEER_GONE, "closed the endpoint");
		rpw_request_destroy(lost[i]);
	}
	pair_close(&p);
}

const struct contract_case request_cases[] = {
	{"a_completion_has_its_own_sentence", a_completion_has_its_own_sentence, true,
		"rpw_last_error rpw_request_test rpw_request_wait rpw_request_wait_all "
		"rpw_request_on_done rpw_request_cancel"},
	{"null_is_no_request", null_is_no_request, false,
		"rpw_request_test rpw_request_wait rpw_request_cancel rpw_request_destroy "
		"rpw_request_on_done"},
	{"testing_does_not_progress", testing_does_not_progress, true,
		"rpw_request_test rpw_request_wait rpw_request_cancel"},
	{"what_a_completion_says_of_a_send", what_a_completion_says_of_a_send, true,
		"rpw_request_test rpw_send"},
	{"cancel_of_what_has_not_begun", cancel_of_what_has_not_begun, true,
		"rpw_request_cancel rpw_send rpw_send_iov rpw_send_obj rpw_am_send "
		"rpw_endpoint_flush rpw_recv rpw_recv_iov rpw_recv_obj"},
	{"cancel_of_what_is_under_way", cancel_of_what_is_under_way, true,
		"rpw_request_cancel " POSTED},
	{"cancel_of_a_large_message", cancel_of_a_large_message, true,
		"rpw_request_cancel rpw_send rpw_send_obj"},
	{"cancel_makes_way_for_what_is_behind", cancel_makes_way_for_what_is_behind, true,
		"rpw_request_cancel rpw_put"},
	{"a_request_that_is_let_go_goes_on", a_request_that_is_let_go_goes_on, true,
		"rpw_request_destroy"},
	{"nothing_is_left_of_what_asked_for_no_request",
		nothing_is_left_of_what_asked_for_no_request, true, "rpw_request_destroy " POSTED},
	{"called_when_done", called_when_done, true, "rpw_request_on_done rpw_request_destroy"},
	{"a_callback_can_be_taken_back", a_callback_can_be_taken_back, true, "rpw_request_on_done"},
	{"what_a_callback_may_do", what_a_callback_may_do, true,
		"rpw_request_on_done rpw_context_progress rpw_request_wait rpw_request_wait_all "
		"rpw_endpoint_destroy rpw_request_destroy"},
	{"a_callback_at_once_is_a_callback", a_callback_at_once_is_a_callback, true,
		"rpw_request_on_done rpw_endpoint_destroy"},
	{NULL, NULL, false, NULL},
};
