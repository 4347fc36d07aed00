/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two contexts in one thread, connected. */
#ifndef TESTS_MSG_PAIR_H
#define TESTS_MSG_PAIR_H

#include "lib/test.h"
#define PAIR_MUST(condition) assert_true(condition)
#include "base/base.h"
#include "lib/pair.h"

static unsigned pair_timeout_ms; /* 0: the default */

/* NULL: it was done at once. */
static inline int finish(struct pair *p, rpw_request *r, rpw_completion *done)
{
	return r ? pair_finish(p, r, done) : RPW_OK;
}

static inline void pair_open_with(
	struct pair *p, const char *transports, const rpw_context_options *given)
{
	rpw_context_options o = {.size = sizeof(o)};
	const rpw_endpoint_options eo = {.size = sizeof(eo), .timeout_ms = pair_timeout_ms};
	if (given)
		o = *given;
	o.transports = transports;
	pair_open_as(p, &o, &eo);
}
static inline void pair_open(struct pair *p, const char *transports)
{
	pair_open_with(p, transports, NULL);
}

#endif
