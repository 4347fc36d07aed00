/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two contexts in one thread, connected. */
#ifndef TESTS_MSG_PAIR_H
#define TESTS_MSG_PAIR_H

#include "lib/test.h"
#include "base/base.h"
#include "lib/pattern.h"
#include "ropeway.h"

struct pair {
	rpw_context *a, *b; /* a connects, b listens */
	rpw_listener *l;
	rpw_endpoint *ea, *eb;
};

static unsigned pair_timeout_ms; /* 0: the default */

static inline void pair_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	((struct pair *)arg)->eb = ep;
}

static inline void both(struct pair *p)
{
	rpw_context_progress(p->a);
	rpw_context_progress(p->b);
}

/* The step is done again while the condition holds, for 20 s at most: what is waited for may take
 * rests by the clock. */
#define WHILE_IN_TIME(condition) \
	for (uint64_t until_ns = rpwi_now_ns() + 20 * RPWI_NS_PER_S; \
		(condition) && rpwi_now_ns() < until_ns;)

/* Progress both sides until r is complete; its status. */
static inline int finish(struct pair *p, rpw_request *r, rpw_completion *done)
{
	if (!r)
		return RPW_OK;
	WHILE_IN_TIME (rpw_request_test(r, NULL) == RPW_IN_PROGRESS)
		both(p);
	int status = rpw_request_test(r, done);
	assert_int_not_equal(status, RPW_IN_PROGRESS);
	rpw_request_destroy(r);
	return status;
}

static inline void pair_open_with(
	struct pair *p, const char *transports, const rpw_context_options *given)
{
	memset(p, 0, sizeof(*p));
	rpw_context_options o = {.size = sizeof(o)};
	if (given)
		o = *given;
	o.transports = transports;
	assert_int_equal(rpw_context_create(&o, &p->a), 0);
	assert_int_equal(rpw_context_create(&o, &p->b), 0);
	assert_int_equal(rpw_listener_create(p->b, "127.0.0.1:0", pair_accept, p, &p->l), 0);
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p->l));
	rpw_request *r;
	rpw_endpoint_options co = {.size = sizeof(co), .timeout_ms = pair_timeout_ms};
	assert_int_equal(rpw_endpoint_create(p->a, address, &co, &p->ea, &r), RPW_IN_PROGRESS);
	assert_int_equal(finish(p, r, NULL), RPW_OK);
	WHILE_IN_TIME (!p->eb)
		both(p);
	assert_non_null(p->eb);
}
static inline void pair_open(struct pair *p, const char *transports)
{
	pair_open_with(p, transports, NULL);
}

static inline void pair_close(struct pair *p)
{
	rpw_endpoint_destroy(p->ea);
	rpw_endpoint_destroy(p->eb);
	rpw_listener_destroy(p->l);
	rpw_context_destroy(p->a);
	rpw_context_destroy(p->b);
}

#endif
