/* SPDX-License-Identifier: BSD-3-Clause */
/* reason.c - why an endpoint is of no use: the sentence that its owner and its requests get. */
#include "msg/endpoint.h"
#include "msg/objects.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void ep_keep(char **where, const char *text)
{
	char *copy = strdup(text);
	if (copy) {
		free(*where);
		*where = copy;
	}
}

void ep_say_why(rpw_endpoint *ep, const char *why) { ep_keep(&ep->fail_text, why ? why : ""); }

void ep_breach(rpw_endpoint *ep, const char *fmt, ...)
{
	char what[256], text[480];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	snprintf(text, sizeof(text), "peer %s broke the protocol by %s: %s",
		ep->peer ? ep->peer : "?", ep->link.ops ? ep->link.ops->name : "the control path",
		what);
	ep->status = RPW_ERR_PROTOCOL;
	ep_say_why(ep, text);
	rpwi_fail(RPW_ERR_PROTOCOL, "%s", text);
	msg_todo(ep, TODO_FAIL);
}
