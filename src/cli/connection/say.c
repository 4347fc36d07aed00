/* SPDX-License-Identifier: BSD-3-Clause */
/* say.c - what a step says, why the run fails, and until when a step may take. */
#include "cli/connection/connection.h"

#include <stdarg.h>
#include <stdio.h>

int connection_fail(struct connection *c, const char *fmt, ...)
{
	va_list ap;
	if (c->failed)
		return -1;
	c->failed = true;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	return -1;
}

static void say(const struct connection *c, const char *end, const char *fmt, va_list ap)
{
	char text[600];
	vsnprintf(text, sizeof(text), fmt, ap);
	printf("  %d  %s%s\n", c->step, text, end);
}

void connection_say(const struct connection *c, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say(c, "", fmt, ap);
	va_end(ap);
}

int connection_call(const struct connection *c, int rc, const char *fmt, ...)
{
	char end[64];
	va_list ap;
	snprintf(end, sizeof(end), ", rc %d (%s)", rc, ncclnet_result_name(rc));
	va_start(ap, fmt);
	say(c, end, fmt, ap);
	va_end(ap);
	return rc ? -1 : 0;
}

void connection_deadline(struct connection *c, unsigned timeout_ms, const char *doing)
{
	atomic_store(&c->doing, doing);
	atomic_store(&c->deadline_ns, rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS);
}

const char *connection_table(int abi)
{
	for (unsigned i = 0; ncclnet_rma_table_name(i); i++) {
		const char *name = ncclnet_rma_table_name(i);
		int version = abi & (CONNECTION_RMA - 1);
		char brief[16];
		snprintf(brief, sizeof(brief), *name == 'G' ? "gin%d" : "v%d", version);
		if (abi - version == (*name == 'G' ? CONNECTION_GIN : CONNECTION_RMA) &&
			rma_table(brief) == name)
			return name;
	}
	return NULL;
}
