/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_fail.c - an endpoint is over: noted, and told to msg by the next progress. */
#include "tran/ncclnet/nt_priv.h"

#include <stdarg.h>
#include <stdio.h>

void nt_ep_fail(struct nt_ep *ep, int status, const char *fmt, ...)
{
	va_list ap;
	if (ep->state == NT_EP_FAILED || ep->state == NT_LEAVING)
		return;
	char why[320];
	va_start(ap, fmt);
	vsnprintf(why, sizeof why, fmt, ap);
	va_end(ap);
	rpwi_debug("ncclnet: %s", why);
	rpwi_error_keep(&ep->error, &(struct rpwi_error){status, 0, why});
	ep->state = NT_EP_FAILED;
	ep->base.closed = true;
	rpwi_list_add_tail(&nt_of_ep(ep)->failing, &ep->failing);
}

void nt_ep_breach(struct tran_ep *tran_ep, const struct rpwi_error *e)
{
	struct nt_ep *ep = (struct nt_ep *)tran_ep;
	if (e->status != RPW_ERR_PROTOCOL)
		nt_ep_fail(ep, e->status, "%s", e->text);
	else
		nt_ep_fail(ep, e->status,
			"%s sent %s over plugin %s v%d: are both ropeways whole, and is the "
			"plugin?",
			ep->peer, e->text, ep->out.load->name, ep->out.load->n->abi);
}

void nt_ep_lost(struct nt_ep *ep, const struct nt_queue *l)
{
	if (ep->state != NT_UP || ep->deadline_ns != RPWI_NEVER)
		return;
	snprintf(ep->lost_why, sizeof ep->lost_why,
		"plugin %s v%d: the connection to %s broke: %s gave %d (%s)", l->load->name,
		l->load->n->abi, ep->peer, l->error_call, l->error, ncclnet_result_name(l->error));
	ep->deadline_ns = rpwi_now_ns() + NT_LOST_MS * RPWI_NS_PER_MS;
}
