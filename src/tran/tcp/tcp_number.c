/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_number.c - endpoints by their numbers: given, found, and what a caller that names one has to know. It never changes an endpoint but for its number. It takes no lock: a transport is
 * used by one thread at a time.
 */
#include "tran/tcp/tcp_priv.h"

#include <errno.h>
#include <stdlib.h>

int tcp_ep_number(struct tcp *t, struct tcp_ep *ep)
{
	unsigned slot = t->ep_count < t->ep_room ? t->ep_hint : t->ep_room;
	while (slot < t->ep_room && t->ep[slot].ep)
		slot = slot + 1 == t->ep_room ? 0 : slot + 1; /* one is free: ep_count says so */
	if (slot == t->ep_room) {
		unsigned room = t->ep_room ? 2 * t->ep_room : 16;
		struct tcp_slot *more =
			room > TCP_ENDPOINTS_MAX ? NULL : realloc(t->ep, room * sizeof *more);
		if (!more)
			return -ENOMEM;
		memset(more + t->ep_room, 0, (room - t->ep_room) * sizeof *more);
		t->ep = more;
		t->ep_room = room;
	}
	struct tcp_slot *at = &t->ep[slot];
	at->ep = ep;
	at->generation = at->generation % (UINT32_MAX / TCP_ENDPOINTS_MAX) + 1; /* never 0 */
	t->ep_count++;
	t->ep_hint = slot + 1 < t->ep_room ? slot + 1 : 0;
	ep->number = at->generation * TCP_ENDPOINTS_MAX + slot;
	return 0;
}

void tcp_ep_unnumber(struct tcp *t, struct tcp_ep *ep)
{
	unsigned slot = ep->number % TCP_ENDPOINTS_MAX;
	t->ep[slot].ep = NULL;
	t->ep_count--;
	t->ep_hint = slot;
}

struct tcp_ep *tcp_ep_find(struct tcp *t, uint32_t number)
{
	unsigned slot = number % TCP_ENDPOINTS_MAX;
	struct tcp_ep *ep = slot < t->ep_room ? t->ep[slot].ep : NULL;
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
	for (struct rpwi_list *l = t->bundles.next; l != &t->bundles; l = l->next) {
		const struct tcp_bundle *b = RPWI_CONTAINER_OF(l, struct tcp_bundle, link);
		if (!b->connector && b->keyed && b->state == TCP_BUNDLE_UP &&
			b->founder[1].number && b->founder[1].number == number)
			return b->secret;
	}
	return NULL;
}
