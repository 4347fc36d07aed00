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

void ep_doom_by(rpw_endpoint *ep, const struct rpwi_error *e)
{
	rpwi_error_keep(&ep->error, e);
	msg_todo(ep, TODO_FAIL);
}

void ep_doom(rpw_endpoint *ep, int status, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ep_doom_by(ep, &(struct rpwi_error){status, 0, text});
}

int ep_has_ended(const rpw_endpoint *ep)
{
	const char *why = text_or(ep_end_text(ep), "closed"), *peer = text_or(ep->peer, "?");
	if (strstr(why, peer))
		return rpwi_fail(ep->error.status, "this endpoint has ended: %s", why);
	return rpwi_fail(ep->error.status, "endpoint to %s has ended: %s", peer, why);
}

void ep_breach(rpw_endpoint *ep, const char *fmt, ...)
{
	char what[256], text[480];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	snprintf(text, sizeof(text), "peer %s broke the protocol by %s: %s", text_or(ep->peer, "?"),
		ep->link.ops ? ep->link.ops->name : "the control path", what);
	rpwi_fail(RPW_ERR_PROTOCOL, "%s", text);
	ep_doom_by(ep, rpwi_last_error());
}
