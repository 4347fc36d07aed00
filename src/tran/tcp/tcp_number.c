/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_number.c - endpoints by their numbers: given, found, and what a caller that names one has to
 * know. It never changes an endpoint but for its number. It takes no lock: a transport is used by
 * one thread at a time.
 */
#include "tran/tcp/tcp_priv.h"

int tcp_ep_number(struct tcp *t, struct tcp_ep *ep)
{
	enum { GENERATIONS = UINT32_MAX / TCP_ENDPOINTS_MAX };
	if (!rpwi_slots_reserve(&t->eps, TCP_ENDPOINTS_MAX))
		return rpwi_fail(RPW_ERR_LIMIT,
			"tcp: no room for one more endpoint beside %u (%d are the most)",
			t->eps.used, TCP_ENDPOINTS_MAX);
	uint32_t i = rpwi_slots_take(&t->eps, ep);
	/* never 0 */
	ep->number = (t->eps.at[i].generation % GENERATIONS + 1) * TCP_ENDPOINTS_MAX + i;
	return 0;
}

void tcp_ep_unnumber(struct tcp *t, struct tcp_ep *ep)
{
	rpwi_slots_give(&t->eps, ep->number % TCP_ENDPOINTS_MAX);
}

struct tcp_ep *tcp_ep_find(struct tcp *t, uint32_t number)
{
	struct tcp_ep *ep = rpwi_slots_find(&t->eps, number % TCP_ENDPOINTS_MAX);
	return ep && ep->number == number ? ep : NULL;
}

bool tcp_ep_waits(const struct tcp_ep *ep, const uint8_t *nonce)
{
	return ep && !tcp_nonce_differs(ep->nonce, nonce) && !ep->active &&
	       (ep->state == TCP_EP_MADE || ep->state == TCP_EP_STARTED);
}

const uint8_t *tcp_bundle_secret(struct tcp *t, uint32_t number, unsigned index)
{
	if (!index) {
		const struct tcp_ep *ep = number ? tcp_ep_find(t, number) : NULL;
		return ep && ep->keyed && !ep->active && ep->state <= TCP_EP_STARTED ? ep->secret
										     : NULL;
	}
	RPWI_LIST_EACH (const struct tcp_bundle, b, &t->bundles, link)
		if (!b->connector && b->keyed && b->state == TCP_BUNDLE_UP &&
			b->founder[1].number && b->founder[1].number == number)
			return b->secret;
	return NULL;
}
