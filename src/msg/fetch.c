/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch.c - large messages, the receiver's side: the stretches that are fetched out of the sender's
 * memory, and what its sender says of an offer that has been seen: withdrawn, or described for
 * another path. */
#include "msg/endpoint.h"
#include "msg/objects.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/transfer.h"
#include "msg/unexpected.h"

#include <stdlib.h>

/* The stretches in which both the sender's pieces and ours are contiguous. */
static bool stretches_make(rpw_request *r, struct rts *rts, size_t want)
{
	struct iovec one, *iov = req_iov(r, &one);
	size_t most = rts->pieces + (size_t)r->iovcnt;
	r->xfer = most == 2 ? &r->one : malloc(most * sizeof(*r->xfer));
	if (!r->xfer)
		return false;
	unsigned remote = 0;
	int local = 0;
	for (size_t at_remote = 0, at_local = 0;
		want && remote < rts->pieces && local < r->iovcnt;) {
		size_t n = RPWI_MIN(
			RPWI_MIN(rts->piece[remote].len - at_remote, iov[local].iov_len - at_local),
			want);
		if (n)
			r->xfer[r->xfers++] =
				(struct xfer){.local = (char *)iov[local].iov_base + at_local,
					.offset = at_remote,
					.len = n,
					.desc = &rts->piece[remote].desc};
		want -= n;
		at_remote += n;
		at_local += n;
		if (at_remote == rts->piece[remote].len) {
			remote++;
			at_remote = 0;
		}
		if (at_local == iov[local].iov_len) {
			local++;
			at_local = 0;
		}
	}
	return true;
}

/* It is on the list already. */
void rndv_fetch_parked(rpw_request *r, size_t room)
{
	r->parked = false;
	if (!stretches_make(r, r->rts, RPWI_MIN(r->rts->len, room)))
		r->worst = RPW_ERR_NO_MEMORY;
	transfer_go(r);
}

static struct unexpected *unexpected_find(
	rpw_endpoint *ep, uint64_t number, struct rpwi_list **list)
{
	struct rpwi_list *lists[] = {&ep->unexpected, &ep->objects, &ep->ams};
	for (size_t k = 0; k < RPWI_ARRAY_LEN(lists); k++)
		RPWI_LIST_EACH (struct unexpected, u, lists[k], in_endpoint) {
			if (u->rts ? u->rts->number == number : u->number && u->number == number) {
				*list = lists[k];
				return u;
			}
		}
	return NULL;
}

/* Its sender wants it back: if nobody has begun to take it, it never came. */
void rndv_withdrawn(rpw_endpoint *ep, uint64_t number)
{
	struct rpwi_list *list;
	struct unexpected *u = unexpected_find(ep, number, &list);
	if (!u)
		return;
	uint32_t units = u->units;
	if (list == &ep->unexpected)
		unexpected_free(u, false);
	else
		unexpected_release(u);
	link_reply(
		&ep->link, FRAME_DONE, done_word(DONE_FETCHED, RPW_ERR_CANCELED), number, NULL, 0);
	credit_return(&ep->link, units);
}

static struct rts *rts_find(rpw_endpoint *ep, uint64_t number, rpw_request **fetching)
{
	RPWI_LIST_EACH (rpw_request, r, &ep->fetching, link) {
		if (r->rts && r->rts->number == number) {
			*fetching = r;
			return r->rts;
		}
	}
	struct rpwi_list *list;
	struct unexpected *u = unexpected_find(ep, number, &list);
	return u ? u->rts : NULL;
}

void rndv_described(rpw_endpoint *ep, const void *body, size_t len)
{
	/* its DONE, sent on an earlier path, crossed this description: nothing is left to
	 * describe */
	if (!len)
		return;
	rpw_request *fetching = NULL;
	struct rts *now = rndv_parse(body, len),
		   *have = now ? rts_find(ep, now->number, &fetching) : NULL;
	if (!now || (have && (now->len != have->len || now->pieces != have->pieces)))
		ep_breach(ep, "a description of %zu bytes that does not fit its message", len);
	else if (have) {
		for (unsigned i = 0; i < have->pieces; i++)
			have->piece[i] = now->piece[i];
		have->stale = false;
		if (fetching)
			transfer_go(fetching);
	}
	free(now);
}
