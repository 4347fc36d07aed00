/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two contexts of the messaging library in one thread, connected. C11 and C++17. Who
 * includes it defines PAIR_MUST(condition) first: it ends the test when the condition is false. */
#ifndef TESTS_LIB_PAIR_H
#define TESTS_LIB_PAIR_H

#include <ropeway.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/pattern.h"

struct pair {
	rpw_context *a, *b; /* a connects, b listens */
	rpw_listener *l;
	rpw_endpoint *ea, *eb;
	rpw_memory *m; /* NULL, or b's, with all rights */
	rpw_rkey *k;   /* to it, a's */
	unsigned char *region;
};

static inline double pair_now_s(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}
/* The step is done again while the condition holds, for a minute at most: what is waited for may
 * take rests by the clock, and Linux 6.18 was seen to leave a session without a core for 12 s while
 * another one kept both. */
#define WHILE_IN_TIME(condition) \
	for (double until_s = pair_now_s() + 60; (condition) && pair_now_s() < until_s;)

static inline void both(struct pair *p)
{
	if (p->a)
		rpw_context_progress(p->a);
	if (p->b)
		rpw_context_progress(p->b);
}

/* Progress both until it is complete; its status. The request is freed. */
static inline int pair_finish(struct pair *p, rpw_request *r, rpw_completion *done)
{
	PAIR_MUST(r);
	WHILE_IN_TIME (rpw_request_test(r, NULL) == RPW_IN_PROGRESS)
		both(p);
	int status = rpw_request_test(r, done);
	PAIR_MUST(status != RPW_IN_PROGRESS);
	rpw_request_destroy(r);
	return status;
}

static inline void pair_accept(rpw_listener *l, rpw_endpoint *ep, void *eb)
{
	(void)l;
	*(rpw_endpoint **)eb = ep;
}
/* On a free port of loopback; its endpoints go to *eb. */
static inline rpw_listener *pair_listen(rpw_context *c, rpw_endpoint **eb, char address[64])
{
	rpw_listener *l = NULL;
	PAIR_MUST(rpw_listener_create(c, "127.0.0.1:0", pair_accept, eb, &l) == RPW_OK);
	PAIR_MUST(rpw_listener_port(l) > 0);
	snprintf(address, 64, "127.0.0.1:%d", rpw_listener_port(l));
	return l;
}

/* Endpoint options may be NULL. */
static inline void pair_open_as(
	struct pair *p, const rpw_context_options *o, const rpw_endpoint_options *eo)
{
	char address[64];
	rpw_request *r = NULL;
	memset(p, 0, sizeof(*p));
	PAIR_MUST(rpw_context_create(o, &p->a) == RPW_OK);
	PAIR_MUST(rpw_context_create(o, &p->b) == RPW_OK);
	p->l = pair_listen(p->b, &p->eb, address);
	PAIR_MUST(rpw_endpoint_create(p->a, address, eo, &p->ea, &r) == RPW_IN_PROGRESS);
	PAIR_MUST(pair_finish(p, r, NULL) == RPW_OK);
	WHILE_IN_TIME (!p->eb)
		both(p);
	PAIR_MUST(p->eb);
}

static inline void pair_close(struct pair *p)
{
	rpw_rkey_destroy(p->k);
	rpw_endpoint_destroy(p->ea);
	rpw_endpoint_destroy(p->eb);
	rpw_memory_destroy(p->m);
	rpw_listener_destroy(p->l);
	rpw_context_destroy(p->a);
	rpw_context_destroy(p->b);
}

#endif
