/* SPDX-License-Identifier: BSD-3-Clause */
/* verdict.c - what a case says of a plugin: that it failed, was skipped, or did something worth a
 * note. Called by all cases; it calls none. Also the run of one stream that most cases are. */
#include "ncclnet/check/conform_priv.h"

#include <stdarg.h>
#include <stdio.h>

bool conform_judge(struct conform *c, enum conform_verdict verdict, int quirk, const char *fmt, ...)
{
	va_list ap;
	if (verdict <= c->verdict && (verdict || *c->text))
		return false;
	c->verdict = verdict;
	c->quirk = quirk;
	va_start(ap, fmt);
	vsnprintf(c->text, sizeof(c->text), fmt, ap);
	va_end(ap);
	return false;
}

bool conform_stream(struct conform *c, struct stream *t, int receiver)
{
	struct side *s = c->s;
	struct end e;
	t->e = &e;
	bool ok =
		end_open(s, &e, receiver, stream_bytes(t)) && streams_run(s, t, 1) && side_meet(s);
	if (ok)
		end_close(s, &e);
	return ok;
}

void conform_refused(struct conform *c, const struct stream *t)
{
	if (t->limit && t->limit < NCCL_NET_MAX_REQUESTS) /* beyond, NCCL does not ask */
		conform_quirk(c, NCCLNET_FEW_REQUESTS,
			"%s gives %d (%s) with %u under way; NCCL has up to %d", end_call(t->e),
			t->refused, ncclnet_result_name(t->refused), t->limit,
			NCCL_NET_MAX_REQUESTS);
}
