/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.h - lines for people. */
#ifndef ROPEWAY_MSG_TRACE_H
#define ROPEWAY_MSG_TRACE_H

#include "msg/objects.h"

void trace_line(rpw_endpoint *ep, const char *what, uint64_t number, uint64_t tag, size_t len);
static inline void trace_send(rpw_endpoint *ep, uint64_t tag, size_t len)
{
	if (RPWI_UNLIKELY(ep->c->debug))
		trace_line(ep, "Send", ep->c->stat.sent, tag, len);
}
static inline void trace_recv(rpw_endpoint *ep, uint64_t tag, size_t len)
{
	if (RPWI_UNLIKELY(ep->c->debug))
		trace_line(ep, "Recv", ep->c->stat.received, tag, len);
}

#endif
