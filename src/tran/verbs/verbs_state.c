/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_state.c - an endpoint is up, or has failed: msg is told, once. */
#include "tran/verbs/verbs_priv.h"

#include <stdarg.h>
#include <stdio.h>

void rpwi_verbs_ep_up(struct verbs_ep *ep)
{
	ep->state = VERBS_EP_UP;
	rpwi_list_del(&ep->in_starting);
	rpwi_debug("verbs: %s to QPN 0x%06x is up", ep->base.path, ep->remote.qpn);
	ep->t->base.up->ready(ep->base.user, NULL);
}

void rpwi_verbs_ep_fail(struct verbs_ep *ep, int status, const char *fmt, ...)
{
	char why[600];
	enum verbs_ep_state was = ep->state;
	va_list args;
	if (was == VERBS_EP_FAILED)
		return;
	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	ep->state = VERBS_EP_FAILED;
	rpwi_debug("verbs: %s: %s", ep->base.path, why);
	if (was == VERBS_EP_CLOSING)
		return; /* nobody wants to know; it is freed by the next progress */
	rpwi_list_del(&ep->in_starting);
	rpwi_list_del(&ep->in_todo);
	/* What is posted comes back, and the peer's requests are not answered any more; one who
	 * said good-bye still waits for the answer to that. */
	if (ep->sq.qp && !ep->bye_heard)
		ep->p->v->ibv_modify_qp(
			ep->sq.qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE);
	rpwi_fail(status, "verbs: %s", why);
	const struct tran_up *up = ep->t->base.up;
	(was == VERBS_EP_UP ? up->failed : up->ready)(
		ep->base.user, &(struct rpwi_error){status, 0, why});
}
