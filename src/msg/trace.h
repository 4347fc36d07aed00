/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.h - messages are counted, with a line for people where they want one. */
#ifndef ROPEWAY_MSG_TRACE_H
#define ROPEWAY_MSG_TRACE_H

#include "msg/objects.h"

void trace_line(rpw_endpoint *ep, const char *what, uint64_t number, uint64_t tag, size_t len);
static inline void trace_sent(rpw_endpoint *ep, uint64_t tag, size_t len)
{
	ep->c->stat.sent++;
	ep->c->stat.bytes_sent += len;
	if (RPWI_UNLIKELY(ep->c->debug))
		trace_line(ep, "Send", ep->c->stat.sent, tag, len);
}
/* c: ep->c, which its caller has at hand. `debug` is read anew: else gcc keeps the counter for the
 * line, which costs an instruction. */
static inline void trace_received(rpw_context *c, rpw_endpoint *ep, uint64_t tag, size_t len)
{
	c->stat.received++;
	c->stat.bytes_received += len;
	if (RPWI_UNLIKELY(ep->c->debug))
		trace_line(ep, "Recv", ep->c->stat.received, tag, len);
}

#endif
