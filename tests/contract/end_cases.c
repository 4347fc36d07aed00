/* SPDX-License-Identifier: BSD-3-Clause */
/* end_cases.c - the contract of the end: closing, the peer's closing, the peer's death; what can
 * still be done, and in which order one hears of it. */
#include "contract.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What was called, in its order. */
static char order[4096];
static void note(const char *what)
{
	size_t n = strlen(order);
	snprintf(order + n, sizeof(order) - n, "%s ", what);
}
static int closed_status;
static void on_closed(rpw_endpoint *ep, int status, void *arg)
{
	CHECK(!information_of(ep).connected);
	IS(information_of(ep).status, status);
	closed_status = status;
	note((const char *)arg);
}
static void on_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	(void)r, (void)done;
	note((const char *)arg);
}
static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	(void)ep, (void)header, (void)header_len, (void)data, (void)len, (void)arg;
	note("am");
}
static void on_notify(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	(void)ep, (void)data, (void)len, (void)arg;
	note("notify");
}

static void all_posted(struct pair *p, rpw_request *r[POSTINGS])
{
	for (int what = 0; what < POSTINGS; what++) {
		r[what] = NULL;
		CHECK(post(p, what, p->ea, &r[what]) >= 0);
	}
}

static void this_side_closes(void)
{
	struct pair p;
	rpw_request *r[POSTINGS], *peers = NULL;
	static unsigned char big[1 << 20];
	pair_open(&p);
	pair_memory(&p);
	*order = 0;
	rpw_endpoint_on_close(p.ea, on_closed, (void *)"a");
	rpw_endpoint_on_close(p.eb, on_closed, (void *)"b");
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 99, ALL, &peers), RPW_IN_PROGRESS);
	for (int i = 0; i < 8; i++)
		CHECK(rpw_send(p.ea, big, sizeof(big), 98, NULL) >= 0);
	all_posted(&p, r);
	rpw_rkey_destroy(p.k);
	p.k = NULL;
	rpw_endpoint_destroy(p.ea);
	/* All that was under way is over now, and can be asked and freed still. */
	for (int what = 0; what < POSTINGS; what++)
		if (r[what]) {
			int status = rpw_request_test(r[what], NULL);
			CHECK(status == RPW_OK || status == RPW_ERR_CANCELED);
			CHECK(what < RECV || status == RPW_ERR_CANCELED);
			IS(rpw_request_wait(r[what], -1, NULL), status);
			IS(rpw_request_cancel(r[what]), RPW_OK);
			rpw_request_destroy(r[what]);
		}
	IS(statistics_of(p.a).requests, 0);
	IS(statistics_of(p.a).endpoints, 0);
	/* The peer is told; the one who closed is not. */
	IS(pair_finish(&p, peers, NULL), RPW_ERR_PEER_GONE);
	UNTIL(&p, *order);
	settle(&p);
	IS(strcmp(order, "b "), 0);
	IS(closed_status, RPW_ERR_PEER_GONE);
	p.ea = NULL;
	pair_close(&p);
}

static void shutdown_is_an_orderly_end(void)
{
	struct pair p;
	rpw_request *r = NULL, *s = NULL, *in = NULL, *peers = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	static unsigned char big[300001], got[sizeof(big)], word[8];
	pair_open(&p);
	pair_memory(&p);
	*order = 0;
	closed_status = 77;
	rpw_endpoint_on_close(p.ea, on_closed, (void *)"a");
	rpw_endpoint_on_close(p.eb, on_closed, (void *)"b");
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 99, ALL, &peers), RPW_IN_PROGRESS);
	IS(rpw_recv(p.b, p.eb, got, sizeof(got), 2, ALL, &in), RPW_IN_PROGRESS);
	pattern_fill(big, sizeof(big), 5);
	CHECK(rpw_put(p.ea, big, REGION, p.k, 0, NULL) >= 0);
	CHECK(rpw_send(p.ea, big, sizeof(big), 2, NULL) >= 0);
	CHECK(rpw_send(p.ea, big, 8, 3, NULL) >= 0);
	CHECK(rpw_endpoint_shutdown(p.ea, &r) >= 0);
	/* Nothing but receives may follow, from then on. */
	for (int what = 0; what < RECV; what++)
		REFUSED(post(&p, what, p.ea, &s), RPW_ERR_INVALID, "rpw_endpoint_shutdown");
	CHECK(!s);
	REFUSED(rpw_endpoint_shutdown(p.ea, &s), RPW_ERR_INVALID, "rpw_endpoint_shutdown");
	if (r)
		IS(pair_finish(&p, r, NULL), RPW_OK);
	/* The peer has everything, hears of the end after it, and that it was in order. */
	IS(pair_finish(&p, in, &done), RPW_OK);
	IS(done.length, sizeof(big));
	CHECK(pattern_right(got, sizeof(got), 5));
	CHECK(pattern_right(p.region, REGION, 5));
	UNTIL(&p, strlen(order) == 4);
	IS(strcmp(order, "b a "), 0);
	IS(closed_status, RPW_OK);
	HAS(information_of(p.eb).why, "in order");
	IS(pair_finish(&p, peers, NULL), RPW_ERR_PEER_GONE);
	SAYS("in order");
	IS(rpw_recv(p.b, p.eb, word, 8, 3, ALL, &in), RPW_IN_PROGRESS);
	IS(pair_finish(&p, in, NULL), RPW_OK);
	CHECK(pattern_right(word, 8, 5));
	/* It is an end: nothing can be sent there. */
	REFUSED(rpw_send(p.eb, word, 8, 1, NULL), RPW_ERR_PEER_GONE, "in order");
	pair_close(&p);
}

/* Each has sent before it knew of the other's wish: nothing of it is lost. */
static void both_sides_may_shut_down(void)
{
	enum { N = 50 };
	struct pair p;
	rpw_request *r[2] = {NULL, NULL};
	static unsigned char out[2][N][40];
	unsigned char word[40];
	pair_open(&p);
	*order = 0;
	rpw_endpoint_on_close(p.ea, on_closed, (void *)"x");
	rpw_endpoint_on_close(p.eb, on_closed, (void *)"x");
	for (int i = 0; i < N; i++)
		for (int side = 0; side < 2; side++) {
			pattern_fill(out[side][i], 40, (uint64_t)(side * N + i));
			CHECK(rpw_send(side ? p.eb : p.ea, out[side][i], 40, (uint64_t)i, NULL) >=
				0);
		}
	CHECK(rpw_endpoint_shutdown(p.ea, &r[0]) >= 0);
	CHECK(rpw_endpoint_shutdown(p.eb, &r[1]) >= 0);
	for (int side = 0; side < 2; side++)
		if (r[side])
			IS(pair_finish(&p, r[side], NULL), RPW_OK);
	UNTIL(&p, strlen(order) == 4);
	IS(closed_status, RPW_OK);
	for (int i = 0; i < N; i++)
		for (int side = 0; side < 2; side++) {
			rpw_request *in = NULL;
			IS(rpw_recv(side ? p.a : p.b, side ? p.ea : p.eb, word, 40, (uint64_t)i,
				   ALL, &in),
				RPW_IN_PROGRESS);
			IS(pair_finish(&p, in, NULL), RPW_OK);
			CHECK(pattern_right(word, 40, (uint64_t)(side * N + i)));
		}
	pair_close(&p);
}

/* The one is done long before the other, whose message is too large to be taken before it has its
 * receive: the end waits for it. */
static void the_later_shutdown_is_waited_for(void)
{
	static unsigned char big[3000001], got[sizeof(big)];
	struct pair p;
	rpw_request *ra = NULL, *rb = NULL, *in = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	pair_open(&p);
	*order = 0;
	closed_status = 77;
	rpw_endpoint_on_close(p.ea, on_closed, (void *)"a");
	rpw_endpoint_on_close(p.eb, on_closed, (void *)"b");
	pattern_fill(big, sizeof(big), 9);
	CHECK(rpw_send(p.eb, big, sizeof(big), 1, NULL) >= 0);
	CHECK(rpw_endpoint_shutdown(p.eb, &rb) >= 0);
	CHECK(rpw_endpoint_shutdown(p.ea, &ra) >= 0);
	if (ra)
		IS(pair_finish(&p, ra, NULL), RPW_OK);
	settle(&p);
	IS(strlen(order), 0); /* b's is not over */
	IS(rpw_request_test(rb, NULL), RPW_IN_PROGRESS);
	IS(rpw_recv(p.a, p.ea, got, sizeof(got), 1, ALL, &in), RPW_IN_PROGRESS);
	IS(pair_finish(&p, in, &done), RPW_OK);
	IS(done.length, sizeof(big));
	CHECK(pattern_right(got, sizeof(got), 9));
	IS(pair_finish(&p, rb, NULL), RPW_OK);
	UNTIL(&p, strlen(order) == 4);
	IS(closed_status, RPW_OK);
	pair_close(&p);
}

/* Whoever is gone before it is done is heard of as gone, by both. */
static void a_shutdown_that_the_peer_does_not_hear(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	pair_memory(&p);
	rpw_endpoint_on_close(p.ea, on_closed, (void *)"a");
	CHECK(rpw_put(p.ea, outgoing, sizeof(outgoing), p.k, 0, NULL) >= 0);
	CHECK(rpw_send(p.ea, outgoing, 1, 1, NULL) >= 0);
	CHECK(rpw_endpoint_shutdown(p.ea, &r) >= 0);
	rpw_context_destroy(p.b);
	p.b = NULL;
	p.eb = NULL;
	p.l = NULL;
	p.m = NULL;
	if (r)
		IS(pair_finish(&p, r, NULL), RPW_ERR_PEER_GONE);
	IS(closed_status, RPW_ERR_PEER_GONE);
	pair_close(&p);
}

static void what_the_peer_had_sent_can_be_received(void)
{
	struct pair p;
	enum { N = 40 };
	unsigned char word[8];
	pair_open(&p);
	for (int i = 0; i < N; i++) {
		pattern_fill(word, 8, (uint64_t)i);
		rpw_request *s = NULL;
		int rc = rpw_send(p.eb, word, 8, (uint64_t)i, &s);
		IS(ended(&p, rc, s), RPW_OK);
	}
	rpw_endpoint_destroy(p.eb);
	p.eb = NULL;
	UNTIL(&p, information_of(p.ea).status != RPW_OK);
	IS(information_of(p.ea).status, RPW_ERR_PEER_GONE);
	HAS(information_of(p.ea).why, "closed");
	/* From it, from any, by probe, in any order. */
	for (int i = N - 1; i >= 0; i--) {
		rpw_completion done = RPW_COMPLETION_INIT;
		rpw_request *r = NULL;
		IS(rpw_probe(p.a, i & 1 ? p.ea : NULL, (uint64_t)i, ALL, &done), RPW_OK);
		IS(done.length, 8);
		IS(rpw_recv(p.a, i & 2 ? p.ea : NULL, word, 8, (uint64_t)i, ALL, &r),
			RPW_IN_PROGRESS);
		IS(rpw_request_test(r, &done), RPW_OK);
		CHECK(done.from == p.ea);
		CHECK(pattern_right(word, 8, (uint64_t)i));
		rpw_request_destroy(r);
	}
	/* No more of it will come: that is said, rather than waited for. */
	REFUSED(rpw_probe(p.a, p.ea, 0, 0, NULL), RPW_ERR_PEER_GONE, "closed");
	IS(rpw_probe(p.a, NULL, 0, 0, NULL), RPW_IN_PROGRESS);
	pair_close(&p);
}

static void peer_is_named_once(rpw_endpoint *ep)
{
	const char *peer = information_of(ep).peer, *at = strstr(rpw_last_error(), peer);
	CHECK(at && !strstr(at + 1, peer));
}

static void nothing_can_be_posted_after_the_end(void)
{
	struct pair p;
	pair_open(&p);
	pair_memory(&p);
	rpw_endpoint_destroy(p.eb);
	p.eb = NULL;
	UNTIL(&p, information_of(p.ea).status != RPW_OK);
	for (int what = 0; what < POSTINGS; what++) {
		rpw_request *r = NULL;
		if (what == FLUSH) { /* nothing was left that the peer had not taken */
			IS(post(&p, what, p.ea, &r), RPW_OK);
			CHECK(!r);
			continue;
		}
		REFUSED(post(&p, what, p.ea, &r), RPW_ERR_PEER_GONE, "has ended");
		SAYS("closed"); /* why */
		CHECK(!r);
		REFUSED(post(&p, what, p.ea, NULL), RPW_ERR_PEER_GONE, "has ended");
	}
	REFUSED(rpw_endpoint_fence(p.ea), RPW_ERR_PEER_GONE, "has ended");
	peer_is_named_once(p.ea);
	IS(statistics_of(p.a).requests, 0);
	/* What is known of it, is known still. */
	HAS(information_of(p.ea).transport, transport_name());
	CHECK(*information_of(p.ea).peer);
	pair_close(&p);
}

static void the_end_comes_last(void)
{
	/* Whoever hears of the end has heard of everything else: messages, notifications, the ends
	 * of requests. */
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	pair_memory(&p);
	*order = 0;
	rpw_context_on_am(p.b, 1, on_am, NULL);
	rpw_context_on_notify(p.b, on_notify, NULL);
	rpw_endpoint_on_close(p.eb, on_closed, (void *)"closed");
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, on_done, (void *)"received");
	rpw_request_destroy(r);
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 2, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, on_done, (void *)"ended");
	rpw_request_destroy(r);
	/* a sends and closes while b looks away. */
	CHECK(rpw_put_notify(p.ea, outgoing, sizeof(outgoing), p.k, 0, 1, NULL) >= 0);
	UNTIL(&p, statistics_of(p.a).requests == 0);
	CHECK(rpw_send(p.ea, outgoing, 8, 1, NULL) >= 0);
	CHECK(rpw_am_send(p.ea, 1, NULL, 0, outgoing, 8, NULL) >= 0);
	rpw_rkey_destroy(p.k);
	p.k = NULL;
	rpw_endpoint_destroy(p.ea);
	p.ea = NULL;
	UNTIL(&p, strstr(order, "closed"));
	settle(&p);
	printf("# %s\n", order);
	CHECK(strstr(order, "notify"));
	CHECK(strstr(order, "received"));
	CHECK(strstr(order, "am"));
	CHECK(strstr(order, "ended closed "));
	IS(strlen(strstr(order, "closed ")), 7); /* last, and once */
	pair_close(&p);
}

static void closes_it(rpw_endpoint *ep, int status, void *arg)
{
	struct pair *p = (struct pair *)arg;
	IS(status, RPW_ERR_PEER_GONE);
	REFUSED(rpw_send(ep, outgoing, 8, 1, NULL), RPW_ERR_PEER_GONE, "has ended");
	REFUSED(rpw_context_progress(p->b), RPW_ERR_INVALID, "callback");
	rpw_endpoint_destroy(ep);
	note("closes");
	p->eb = NULL;
}

static void an_end_may_be_answered_by_closing(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	*order = 0;
	rpw_endpoint_on_close(p.eb, on_closed, (void *)"replaced");
	rpw_endpoint_on_close(p.eb, closes_it, &p);
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 2, ALL, &r), RPW_IN_PROGRESS);
	rpw_endpoint_destroy(p.ea);
	p.ea = NULL;
	UNTIL(&p, !p.eb);
	IS(statistics_of(p.b).endpoints, 0); /* before the progress that called back returned */
	settle(&p);
	IS(strcmp(order, "closes "), 0);
	IS(rpw_request_test(r, NULL), RPW_ERR_PEER_GONE);
	rpw_request_destroy(r);
	pair_close(&p);
}

static void who_asks_after_the_end_is_told_at_once(void)
{
	struct pair p;
	pair_open(&p);
	*order = 0;
	rpw_endpoint_destroy(p.ea);
	p.ea = NULL;
	UNTIL(&p, information_of(p.eb).status != RPW_OK);
	rpw_endpoint_on_close(p.eb, on_closed, (void *)"late");
	IS(strcmp(order, "late "), 0);
	settle(&p);
	IS(strcmp(order, "late "), 0);
	/* Taken back before it happens. */
	pair_close(&p);
	pair_open(&p);
	rpw_endpoint_on_close(p.eb, on_closed, (void *)"never");
	rpw_endpoint_on_close(p.eb, NULL, NULL);
	rpw_endpoint_destroy(p.ea);
	p.ea = NULL;
	UNTIL(&p, information_of(p.eb).status != RPW_OK);
	settle(&p);
	IS(strcmp(order, "late "), 0);
	pair_close(&p);
}

static void flush_before_close_loses_nothing(void)
{
	struct pair p;
	rpw_request *f = NULL, *r = NULL;
	static unsigned char big[300000], into[300000];
	pair_open(&p);
	pair_memory(&p);
	pattern_fill(big, sizeof(big), 8);
	CHECK(rpw_send(p.ea, big, sizeof(big), 1, NULL) >= 0);
	CHECK(rpw_put(p.ea, big, REGION, p.k, 0, NULL) >= 0);
	IS(rpw_recv(p.b, NULL, into, sizeof(into), 1, ALL, &r), RPW_IN_PROGRESS);
	int rc = rpw_endpoint_flush(p.ea, &f);
	IS(ended(&p, rc, f), RPW_OK);
	rpw_rkey_destroy(p.k);
	p.k = NULL;
	rpw_endpoint_destroy(p.ea);
	p.ea = NULL;
	IS(pair_finish(&p, r, NULL), RPW_OK);
	CHECK(pattern_right(into, sizeof(into), 8));
	CHECK(pattern_right(p.region, REGION, 8));
	pair_close(&p);
}

/* ---- the peer's death ---- */

static void doomed(int port_pipe)
{
	rpw_context *c = context_open();
	rpw_endpoint *ep = NULL;
	char address[64];
	pair_listen(c, &ep, address);
	CHECK(write(port_pipe, address, sizeof(address)) == sizeof(address));
	while (!ep)
		rpw_context_progress(c);
	rpw_send(ep, "last words", 11, 5, NULL);
	for (;;)
		rpw_context_progress(c);
}

static void the_peer_dies(void)
{
	struct pair p;
	rpw_request *r[POSTINGS], *words = NULL;
	int pipes[2];
	char address[64], in[16] = "";
	static unsigned char big[1 << 20];
	memset(&p, 0, sizeof(p));
	IS(pipe(pipes), 0);
	pid_t pid = fork();
	if (!pid)
		doomed(pipes[1]);
	CHECK(read(pipes[0], address, sizeof(address)) == sizeof(address));
	p.a = context_open();
	*order = 0;
	IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, NULL), RPW_IN_PROGRESS);
	rpw_endpoint_on_close(p.ea, on_closed, (void *)"gone");
	IS(rpw_recv(p.a, p.ea, in, sizeof(in), 5, ALL, &words), RPW_IN_PROGRESS);
	IS(rpw_request_wait(words, -1, NULL), RPW_OK);
	IS(strcmp(in, "last words"), 0);
	rpw_request_destroy(words);
	for (int what = 0; what < POSTINGS; what++) {
		r[what] = NULL;
		if (!posting_needs_key(what))
			CHECK(post(&p, what, p.ea, &r[what]) >= 0);
	}
	for (int i = 0; i < 4; i++)
		CHECK(rpw_send(p.ea, big, sizeof(big), 98, NULL) >= 0);
	kill(pid, SIGKILL);
	/* Every operation ends; a wait without limit comes back. */
	for (int what = 0; what < POSTINGS; what++)
		if (r[what]) {
			int status = rpw_request_wait(r[what], -1, NULL);
			CHECK(status == RPW_OK || status == RPW_ERR_PEER_GONE);
			CHECK(what < RECV || status == RPW_ERR_PEER_GONE);
			rpw_request_destroy(r[what]);
		}
	UNTIL(&p, *order);
	IS(closed_status, RPW_ERR_PEER_GONE);
	IS(strcmp(order, "gone "), 0);
	IS(information_of(p.ea).status, RPW_ERR_PEER_GONE);
	CHECK(*information_of(p.ea).why);
	IS(statistics_of(p.a).requests, 0);
	waitpid(pid, NULL, 0);
	pair_close(&p);
}

/* ---- fork ---- */

static unsigned descriptors(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void talk(struct pair *p)
{
	for (int back = 0; back < 2; back++) {
		rpw_request *r = NULL, *s = NULL;
		pattern_fill(outgoing, sizeof(outgoing), 50 + (uint64_t)back);
		memset(incoming, 0, sizeof(incoming));
		IS(rpw_recv(back ? p->a : p->b, NULL, incoming, sizeof(incoming), 5, ALL, &r),
			RPW_IN_PROGRESS);
		int rc = rpw_send(back ? p->eb : p->ea, outgoing, sizeof(outgoing), 5, &s);
		IS(pair_finish(p, r, NULL), RPW_OK);
		IS(ended(p, rc, s), RPW_OK);
		CHECK(pattern_right(incoming, sizeof(incoming), 50 + (uint64_t)back));
	}
}

/* Each call is refused by name, whichever way the child was made. */
static void refused_in_child(struct pair *p, rpw_request *waits)
{
	static const char sentence[] = "make one after fork";
	rpw_request *r = NULL;
	rpw_listener *l = NULL;
	rpw_endpoint *ep = NULL;
	rpw_memory *m = NULL;
	rpw_rkey *k = NULL;
	void *obj = NULL;
	size_t len = 0;
	char word[64], key[RPW_RKEY_BYTES_MAX];
	uint64_t before = 0;
#define NOT_HERE(call) REFUSED(call, RPW_ERR_INVALID, sentence)
	NOT_HERE(rpw_send(p->ea, "x", 1, 1, &r));
	snprintf(word, sizeof(word),
		"this context belongs to process %d, this is its child %d: ", (int)getppid(),
		(int)getpid());
	SAYS(word);
	NOT_HERE(rpw_send(p->ea, outgoing, sizeof(outgoing), 1, &r));
	NOT_HERE(rpw_send_obj(p->ea, "x", 1, &r));
	NOT_HERE(rpw_am_send(p->ea, 1, NULL, 0, "x", 1, &r));
	NOT_HERE(rpw_recv(p->a, p->ea, word, 1, 1, ALL, &r));
	NOT_HERE(rpw_recv_iov(p->a, NULL, NULL, 0, 1, ALL, &r));
	NOT_HERE(rpw_recv_obj(p->a, p->ea, NULL, NULL, &obj, &len, &r));
	NOT_HERE(rpw_probe(p->a, NULL, 0, 0, NULL));
	NOT_HERE(rpw_put(p->ea, "x", 1, p->k, 0, &r));
	NOT_HERE(rpw_get(p->ea, word, 1, p->k, 0, &r));
	NOT_HERE(rpw_fetch_add(p->ea, 1, p->k, 0, &before, &r));
	NOT_HERE(rpw_endpoint_flush(p->ea, &r));
	NOT_HERE(rpw_endpoint_fence(p->ea));
	NOT_HERE(rpw_context_progress(p->a));
	NOT_HERE(rpw_request_wait(waits, 0, NULL));
	NOT_HERE(rpw_request_wait_all(p->b, &waits, 1, 0));
	NOT_HERE(rpw_request_cancel(waits));
	NOT_HERE(rpw_context_arm(p->a));
	NOT_HERE(rpw_context_fd(p->a));
	NOT_HERE(rpw_context_on_am(p->a, 1, NULL, NULL));
	NOT_HERE(rpw_listener_create(p->a, "127.0.0.1:0", (rpw_accept_fn)abort, NULL, &l));
	NOT_HERE(rpw_endpoint_create(p->a, "127.0.0.1:1", NULL, &ep, &r));
	NOT_HERE(rpw_memory_allocate(p->a, 100, 0, &m));
	NOT_HERE(rpw_rkey_pack(p->m, key, sizeof(key)));
	NOT_HERE(rpw_rkey_unpack(p->ea, key, sizeof(key), &k));
	CHECK(!r && !l && !ep && !m && !k);
}

static void in_child(struct pair *p, rpw_request *waits, int how, unsigned were)
{
	struct pair own;
	/* what a device or a plugin has stays until the child ends */
	bool goes = strcmp(contract_transport, "verbs") && !transport_is_hosted();
	refused_in_child(p, waits);
	if (how == 1) {
		rpw_endpoint_destroy(p->ea);
		rpw_listener_destroy(p->l);
		rpw_memory_destroy(p->m);
		rpw_context_destroy(p->a);
		rpw_context_destroy(p->b);
		if (goes)
			IS(descriptors(), were);
	}
	/* One of its own does as ever, beside what is the parent's. */
	if (how == 2 && goes) {
		pair_open(&own);
		talk(&own);
		pair_close(&own);
		refused_in_child(p, waits);
	}
	_exit(0);
}

/* A forked child is refused; what it destroys is its own copy: the parent's connections and memory
 * stay what they are. */
static void a_context_belongs_to_its_process(void)
{
	struct pair p;
	static unsigned char got[REGION];
	rpw_request *waits = NULL, *g = NULL;
	rpw_context *first = context_open(); /* what a process opens once and keeps is there */
	rpw_context_destroy(first);
	pair_open(&p);
	pair_close(&p);
	unsigned were = descriptors();
	pair_open(&p);
	pair_memory(&p);
	pattern_fill(p.region, REGION, 7);
	for (int i = 0; i < 40; i++) /* so that what is polled often is in no epoll set */
		talk(&p);
	IS(rpw_recv(p.b, NULL, outgoing, 1, 99, ALL, &waits), RPW_IN_PROGRESS);
	for (int how = 0; how < 4; how++) {
		int status = 0;
		fflush(NULL);
		pid_t pid = how == 3 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0,
					       0) /* pthread_atfork does not hear of it */
				     : fork();
		if (!pid)
			in_child(&p, waits, how, were);
		IS(waitpid(pid, &status, 0), pid);
		IS(status, 0);
		settle(&p);
		IS(information_of(p.ea).connected, 1);
		IS(information_of(p.eb).connected, 1);
		int busy = 1;
		for (int i = 0; busy && i < 10000; i++) {
			/* the sets that are slept on are what they were */
			both(&p);
			busy = rpw_context_arm(p.a) | rpw_context_arm(p.b);
		}
		IS(busy, 0);
		talk(&p);
		int rc = rpw_get(p.ea, got, REGION, p.k, 0, &g);
		IS(ended(&p, rc, g), RPW_OK);
		CHECK(pattern_right(got, REGION, 7));
	}
	IS(rpw_request_cancel(waits), RPW_OK);
	rpw_request_destroy(waits);
	pair_close(&p);
	IS(descriptors(), were);
}

/* ---- whose message it was ---- */

static int from_told, from_status;
static rpw_endpoint *from_seen;
static void on_from(rpw_request *r, const rpw_completion *done, void *arg)
{
	from_told++;
	from_status = done->status;
	from_seen = done->from;
	rpw_request_destroy(r);
	(void)arg;
}

/* A large message is on its way into its receive when the receiver destroys the endpoint. */
static void a_callback_does_not_name_an_endpoint_that_is_gone(void)
{
	enum { LONG = 16 << 20 };
	char *out = (char *)calloc(1, LONG), *in = (char *)calloc(1, LONG);
	CHECK(out && in);
	for (int rounds = 0; rounds < 12; rounds++) {
		struct pair p;
		rpw_request *r = NULL, *s = NULL;
		pair_open(&p);
		from_told = 0;
		IS(rpw_recv(p.b, NULL, in, LONG, 1, ALL, &r), RPW_IN_PROGRESS);
		rpw_request_on_done(r, on_from, NULL);
		CHECK(rpw_send(p.ea, out, LONG, 1, &s) >= 0);
		for (int i = 0; i < rounds; i++) {
			rpw_context_progress(p.a);
			rpw_context_progress(p.b);
		}
		if (!from_told) {
			rpw_endpoint_destroy(p.eb);
			p.eb = NULL;
			/* without a message yet it goes on waiting: it is for any endpoint */
			for (int i = 0; i < 3; i++)
				rpw_context_progress(p.b);
			if (from_told) {
				IS(from_status, RPW_ERR_CANCELED);
				CHECK(from_seen == NULL);
			}
		}
		rpw_request_destroy(s);
		pair_close(&p);
		IS(from_told, 1);
	}
	free(out);
	free(in);
}

const struct contract_case end_cases[] = {
	{"a_callback_does_not_name_an_endpoint_that_is_gone",
		a_callback_does_not_name_an_endpoint_that_is_gone, true,
		"rpw_endpoint_destroy rpw_request_on_done"},
	{"a_context_belongs_to_its_process", a_context_belongs_to_its_process, true,
		"rpw_context_destroy rpw_context_progress rpw_send rpw_recv rpw_get "
		"rpw_endpoint_create rpw_listener_create rpw_memory_allocate"},
	{"this_side_closes", this_side_closes, true,
		"rpw_endpoint_destroy rpw_endpoint_on_close rpw_request_test rpw_request_wait "
		"rpw_request_cancel rpw_request_destroy " POSTED},
	{"shutdown_is_an_orderly_end", shutdown_is_an_orderly_end, true,
		"rpw_endpoint_shutdown rpw_endpoint_on_close rpw_endpoint_info " POSTED},
	{"both_sides_may_shut_down", both_sides_may_shut_down, true,
		"rpw_endpoint_shutdown rpw_endpoint_on_close"},
	{"the_later_shutdown_is_waited_for", the_later_shutdown_is_waited_for, true,
		"rpw_endpoint_shutdown rpw_endpoint_on_close rpw_recv"},
	{"a_shutdown_that_the_peer_does_not_hear", a_shutdown_that_the_peer_does_not_hear, true,
		"rpw_endpoint_shutdown"},
	{"what_the_peer_had_sent_can_be_received", what_the_peer_had_sent_can_be_received, true,
		"rpw_endpoint_destroy rpw_recv rpw_probe rpw_endpoint_info"},
	{"nothing_can_be_posted_after_the_end", nothing_can_be_posted_after_the_end, true,
		"rpw_endpoint_fence " POSTED},
	{"the_end_comes_last", the_end_comes_last, true,
		"rpw_endpoint_on_close rpw_context_on_notify rpw_request_on_done "
		"rpw_context_on_am"},
	{"an_end_may_be_answered_by_closing", an_end_may_be_answered_by_closing, true,
		"rpw_endpoint_on_close rpw_endpoint_destroy"},
	{"who_asks_after_the_end_is_told_at_once", who_asks_after_the_end_is_told_at_once, true,
		"rpw_endpoint_on_close"},
	{"flush_before_close_loses_nothing", flush_before_close_loses_nothing, true,
		"rpw_endpoint_flush rpw_endpoint_destroy"},
	{"the_peer_dies", the_peer_dies, true,
		"rpw_request_wait rpw_endpoint_on_close rpw_endpoint_info"},
	{NULL, NULL, false, NULL},
};
