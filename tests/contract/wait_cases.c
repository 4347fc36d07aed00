/* SPDX-License-Identifier: BSD-3-Clause */
/* wait_cases.c - the contract of waiting: how long, for how many, what wakes, and what it says. */
#include "contract.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

static void time_outs_of_wait(void)
{
	struct pair p;
	rpw_request *r = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	pair_open(&p);
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	/* 0 looks, and goes on at once; so does a short one; the request is still under way. */
	static const int short_ms[] = {0, 1, 30};
	for (int i = 0; i < 3; i++) {
		REFUSED(rpw_request_wait(r, short_ms[i], NULL), RPW_ERR_EXPIRED, "still under way");
		REFUSED(rpw_request_wait_all(p.b, &r, 1, short_ms[i]), RPW_ERR_EXPIRED,
			"still under way");
		IS(rpw_request_test(r, NULL), RPW_IN_PROGRESS);
	}
	/* -1 has no limit; the other side runs in a thread of its own, and begins later. */
	struct driver d;
	pattern_fill(outgoing, sizeof(outgoing), 9);
	CHECK(rpw_send(p.ea, outgoing, sizeof(outgoing), 1, NULL) >= 0);
	driver_start(&d, p.a);
	IS(rpw_request_wait(r, -1, &done), RPW_OK);
	IS(done.length, sizeof(outgoing));
	CHECK(pattern_right(incoming, sizeof(incoming), 9));
	IS(rpw_request_wait(r, -1, NULL), RPW_OK);
	IS(rpw_request_wait(r, 0, NULL), RPW_OK);
	rpw_request_destroy(r);
	driver_stop(&d);
	/* 0 progresses: what has come is taken. */
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 2, ALL, &r), RPW_IN_PROGRESS);
	CHECK(rpw_send(p.ea, outgoing, sizeof(outgoing), 2, NULL) >= 0);
	int rc;
	while ((rc = rpw_request_wait(r, 0, &done)) == RPW_ERR_EXPIRED)
		rpw_context_progress(p.a);
	IS(rc, RPW_OK);
	IS(done.length, sizeof(outgoing));
	rpw_request_destroy(r);
	pair_close(&p);
}

/* One call posts and waits, whatever the call that posts gives. */
static void finish_posts_and_waits(void)
{
	struct pair p;
	rpw_request *r = NULL, *s = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	struct driver d;
	pair_open(&p);
	pattern_fill(outgoing, sizeof(outgoing), 3);
	/* Nothing was posted: as it is. */
	REFUSED(rpw_finish(rpw_send(p.ea, NULL, 1, 1, &r), &r, -1, &done), RPW_ERR_INVALID,
		"1 bytes");
	REFUSED(rpw_finish(RPW_IN_PROGRESS, NULL, -1, &done), RPW_ERR_INVALID, "must not be NULL");
	/* It is still under way, and there to be waited for again. */
	REFUSED(rpw_finish(
			rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), &r, 10, &done),
		RPW_ERR_EXPIRED, "still under way");
	CHECK(r != NULL);
	driver_start(&d, p.b);
	IS(rpw_finish(rpw_send(p.ea, outgoing, sizeof(outgoing), 1, &s), &s, -1, &done), RPW_OK);
	CHECK(!s);
	IS(done.status, RPW_OK);
	/* Small: complete already, where there is room. */
	IS(rpw_finish(rpw_send(p.ea, outgoing, 8, 2, &s), &s, -1, &done), RPW_OK);
	CHECK(!s);
	IS(done.status, RPW_OK);
	driver_stop(&d);
	IS(rpw_finish(RPW_IN_PROGRESS, &r, -1, &done), RPW_OK);
	CHECK(!r);
	IS(done.length, sizeof(outgoing));
	IS(done.tag, 1);
	CHECK(pattern_right(incoming, sizeof(incoming), 3));
	/* One that has failed is gone, too, and its sentence is there. */
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 9, ALL, &r), RPW_IN_PROGRESS);
	IS(rpw_request_cancel(r), RPW_OK);
	IS(rpw_finish(RPW_IN_PROGRESS, &r, -1, NULL), RPW_ERR_CANCELED);
	CHECK(!r);
	SAYS("canceled");
	/* A completion without its size is no completion: nothing is waited for. */
	rpw_completion old = {0, 5, 6, 7, NULL};
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 10, ALL, &r), RPW_IN_PROGRESS);
	REFUSED(rpw_finish(RPW_IN_PROGRESS, &r, -1, &old), RPW_ERR_INVALID, "RPW_COMPLETION_INIT");
	REFUSED(rpw_request_wait(r, -1, &old), RPW_ERR_INVALID, "RPW_COMPLETION_INIT");
	REFUSED(rpw_request_test(r, &old), RPW_ERR_INVALID, "RPW_COMPLETION_INIT");
	REFUSED(rpw_probe(p.b, NULL, 10, ALL, &old), RPW_ERR_INVALID, "RPW_COMPLETION_INIT");
	IS(old.status, 5);
	CHECK(r != NULL);
	rpw_request_destroy(r);
	pair_close(&p);
}

static void *send_later(void *arg)
{
	struct pair *p = (struct pair *)arg;
	usleep(100000); /* by then the other sleeps */
	CHECK(rpw_send(p->ea, outgoing, sizeof(outgoing), 1, NULL) >= 0);
	for (int i = 0; i < 20000; i++)
		if (!rpw_context_progress(p->a))
			usleep(10);
	return NULL;
}

static void a_wait_that_sleeps_is_woken(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pthread_t t;
	pair_open(&p);
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	IS(pthread_create(&t, NULL, send_later, &p), 0);
	IS(rpw_request_wait(r, -1, NULL), RPW_OK);
	IS(pthread_join(t, NULL), 0);
	rpw_request_destroy(r);
	pair_close(&p);
}

static void *wake_later(void *arg)
{
	usleep(100000);
	rpw_context_wake((rpw_context *)arg);
	return NULL;
}

static void *wake_often(void *arg)
{
	for (int i = 0; i < 20000; i++)
		rpw_context_wake((rpw_context *)arg);
	return NULL;
}

static void wake_ends_what_sleeps(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pthread_t t;
	pair_open(&p);
	rpw_context_wake(NULL);
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	/* A wait that sleeps, and one that begins later: several wakes are one. */
	IS(pthread_create(&t, NULL, wake_later, p.b), 0);
	REFUSED(rpw_request_wait(r, -1, NULL), RPW_ERR_EXPIRED, "rpw_context_wake was called");
	IS(pthread_join(t, NULL), 0);
	rpw_context_wake(p.b);
	rpw_context_wake(p.b);
	errno = 33;
	rpw_context_wake(p.b);
	IS(errno, 33);
	REFUSED(rpw_request_wait_all(p.b, &r, 1, -1), RPW_ERR_EXPIRED,
		"rpw_context_wake was called");
	REFUSED(rpw_request_wait(r, 1, NULL), RPW_ERR_EXPIRED, "not done within 1 ms");
	/* A loop of the program's own. */
	struct pollfd fd = {rpw_context_fd(p.b), POLLIN, 0};
	while (rpw_context_progress(p.b) > 0 || rpw_context_arm(p.b) == RPW_IN_PROGRESS)
		;
	IS(poll(&fd, 1, 0), 0);
	IS(pthread_create(&t, NULL, wake_later, p.b), 0);
	while (!poll(&fd, 1, 10000))
		; /* a deadline of the library's */
	IS(pthread_join(t, NULL), 0);
	IS(rpw_context_arm(p.b), RPW_IN_PROGRESS);
	while (rpw_context_progress(p.b) > 0 || rpw_context_arm(p.b) == RPW_IN_PROGRESS)
		;
	IS(poll(&fd, 1, 0), 0);
	/* None is lost while others are noticed: the last one, too, ends a wait. */
	IS(pthread_create(&t, NULL, wake_often, p.b), 0);
	for (int woken = 0; woken < 100 && rpw_request_wait(r, 0, NULL) == RPW_ERR_EXPIRED; woken++)
		;
	IS(pthread_join(t, NULL), 0);
	rpw_context_wake(p.b);
	REFUSED(rpw_request_wait(r, -1, NULL), RPW_ERR_EXPIRED, "rpw_context_wake was called");
	/* What is done is done: no wake takes that away. */
	CHECK(rpw_send(p.ea, outgoing, sizeof(outgoing), 1, NULL) >= 0);
	UNTIL(&p, rpw_request_test(r, NULL) != RPW_IN_PROGRESS);
	rpw_context_wake(p.b);
	IS(rpw_request_wait(r, -1, NULL), RPW_OK);
	rpw_request_destroy(r);
	pair_close(&p);
}

static void a_wait_gives_the_status_of_its_request(void)
{
	struct pair p;
	rpw_request *r = NULL, *s = NULL;
	rpw_completion done = RPW_COMPLETION_INIT;
	pair_open(&p);
	pattern_fill(outgoing, sizeof(outgoing), 4);
	IS(rpw_recv(p.b, NULL, incoming, 10, 1, ALL, &r), RPW_IN_PROGRESS);
	int rc = rpw_send(p.ea, outgoing, sizeof(outgoing), 1, &s);
	IS(ended(&p, rc, s), RPW_OK);
	settle(&p);
	IS(rpw_request_wait(r, -1, &done), RPW_ERR_TRUNCATED);
	IS(done.status, RPW_ERR_TRUNCATED);
	IS(done.length, sizeof(outgoing)); /* the message's; as much as fits was written */
	CHECK(pattern_right(incoming, 10, 4));
	rpw_request_destroy(r);
	pair_close(&p);
}

static void waiting_for_several(void)
{
	struct pair p;
	rpw_request *r[5];
	struct driver d;
	pair_open(&p);
	IS(rpw_request_wait_all(p.b, NULL, 0, 0), RPW_OK);
	REFUSED(rpw_request_wait_all(p.b, NULL, 3, 0), RPW_ERR_INVALID, "rpw_request_wait_all");
	static unsigned char in[5][64];
	/* What a call had completed already has no request: NULL is complete. */
	memset(r, 0, sizeof(r));
	IS(rpw_request_wait_all(p.b, r, 5, -1), RPW_OK);
	for (int i = 0; i < 5; i++)
		if (i != 2)
			IS(rpw_recv(p.b, NULL, in[i], i == 3 ? 5 : sizeof(in[i]), (uint64_t)i, ALL,
				   &r[i]),
				RPW_IN_PROGRESS);
	for (int i = 4; i >= 0; i--) {
		pattern_fill(outgoing, sizeof(outgoing), (uint64_t)i);
		rpw_request *s = NULL;
		int rc = i == 2 ? RPW_OK
				: rpw_send(p.ea, outgoing, sizeof(outgoing), (uint64_t)i, &s);
		IS(ended(&p, rc, s), RPW_OK);
	}
	driver_start(&d, p.a);
	/* the first status that is not RPW_OK, when all are complete */
	IS(rpw_request_wait_all(p.b, r, 5, -1), RPW_ERR_TRUNCATED);
	driver_stop(&d);
	for (int i = 0; i < 5; i++) {
		if (i == 2)
			continue;
		IS(rpw_request_test(r[i], NULL), i == 3 ? RPW_ERR_TRUNCATED : RPW_OK);
		CHECK(pattern_right(in[i], i == 3 ? 5 : sizeof(in[i]), (uint64_t)i));
		rpw_request_destroy(r[i]);
	}
	pair_close(&p);
}

static void a_wait_for_a_connection_says_what_is_in_the_way(void)
{
	rpw_context *c = context_open();
	rpw_endpoint *ep = NULL, *other = NULL;
	rpw_request *r = NULL;
	char address[64];
	rpw_listener *l = pair_listen(c, &other, address);
	rpw_listener_destroy(l); /* now nobody is there */
	IS(rpw_endpoint_create(c, address, NULL, &ep, &r), RPW_IN_PROGRESS);
	REFUSED(rpw_request_wait(r, 300, NULL), RPW_ERR_EXPIRED,
		"still under way; so far: connecting to ");
	SAYS("refused, ");
	SAYS(address);
	rpw_request_cancel(r);
	while (rpw_request_test(r, NULL) == RPW_IN_PROGRESS)
		rpw_context_progress(c);
	REFUSED(rpw_request_test(r, NULL), RPW_ERR_CANCELED, "connecting was canceled");
	rpw_request_destroy(r);
	rpw_context_destroy(c);
}

const struct contract_case wait_cases[] = {
	{"a_wait_for_a_connection_says_what_is_in_the_way",
		a_wait_for_a_connection_says_what_is_in_the_way, false,
		"rpw_last_error rpw_request_wait rpw_endpoint_create"},
	{"finish_posts_and_waits", finish_posts_and_waits, true, "rpw_finish rpw_probe"},
	{"time_outs_of_wait", time_outs_of_wait, true, "rpw_request_wait rpw_request_wait_all"},
	{"a_wait_that_sleeps_is_woken", a_wait_that_sleeps_is_woken, true, "rpw_request_wait"},
	{"wake_ends_what_sleeps", wake_ends_what_sleeps, true,
		"rpw_context_wake rpw_request_wait rpw_request_wait_all rpw_context_arm "
		"rpw_context_fd"},
	{"a_wait_gives_the_status_of_its_request", a_wait_gives_the_status_of_its_request, true,
		"rpw_request_wait"},
	{"waiting_for_several", waiting_for_several, true, "rpw_request_wait_all"},
	{NULL, NULL, false, NULL},
};
