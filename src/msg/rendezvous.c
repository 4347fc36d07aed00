/* SPDX-License-Identifier: BSD-3-Clause */
/* rendezvous.c - how a large message comes: fetched as its RTS describes it, put where we invite it
 * to (rndv_put.c), or pulled in chunks (pipeline_pull.c: it is in a GPU, or is to get there). Here
 * is the choice, and what a change of path does to all of it: until the sender has described its
 * message anew the fetch is stale, and waits. */
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/rndv.h"
#include "msg/transfer.h"

#include <stdlib.h>

static void staged_instead(rpw_request *r, rpw_endpoint *ep)
{
	rndv_rtr_drop(r);
	direct_drop(r);
	if (r->xfer != &r->one)
		free(r->xfer);
	r->xfer = NULL;
	r->xfers = r->at_xfer = r->under_way = 0;
	r->at_byte = 0;
	pipeline_fetch(r, ep, r->len);
}

/* Before any of it is fetched: false when it comes otherwise. */
static bool fetch_ready(rpw_request *r, rpw_endpoint *ep)
{
	if (RPWI_UNLIKELY(r->gpu || direct_lost(r))) {
		if (direct_lost(r) || (r->gpu && !direct_fetch(r, ep))) {
			staged_instead(r, ep);
			return false;
		}
		for (unsigned i = 0; i < r->xfers && r->direct; i++)
			r->xfer[i].mem = r->direct;
	}
	return !rndv_put_invite(r);
}

static void fetch_done(rpw_request *r)
{
	if (RPWI_UNLIKELY(r->direct != NULL))
		r->worst = direct_landed(r, r->worst);
	rndv_fetched(r);
}

static const struct transfer_role fetch_role = {fetch_ready, fetch_done, NULL};

/* r gets the message, rts is its; done.tag is the caller's. */
void rndv_fetch(rpw_request *r, rpw_endpoint *ep, struct rts *rts, size_t room)
{
	r->plain = false;
	r->role = &fetch_role;
	r->rts = rts;
	r->done.length = rts->len;
	r->done.from = ep;
	r->worst = 0;
	r->where = AT_FETCH;
	rpwi_list_add_tail(&ep->fetching, &r->link);
	if (RPWI_UNLIKELY(!rts->pieces || (r->gpu && !direct_fetch(r, ep))))
		pipeline_fetch(r, ep, room);
	else
		rndv_fetch_parked(r, room);
}

void rndv_path_gone(rpw_endpoint *ep)
{
	pipeline_path_gone(ep);
	RPWI_LIST_EACH (rpw_request, r, &ep->active_list, active) {
		rndv_put_path_gone(r);
		if (r->rndv)
			rndv_unregister(r);
		direct_path_gone(r);
		if (proto_of(r)->path_gone)
			proto_of(r)->path_gone(r);
		transfer_restart(r);
	}
	RPWI_LIST_EACH (rpw_request, r, &ep->fetching, link) {
		rndv_rtr_drop(r);
		direct_drop(r);
		transfer_restart(r);
	}
	struct rpwi_list *lists[] = {&ep->unexpected, &ep->objects, &ep->ams};
	for (size_t k = 0; k < RPWI_ARRAY_LEN(lists); k++)
		RPWI_LIST_EACH (struct unexpected, u, lists[k], in_endpoint)
			if (u->rts)
				u->rts->stale = true;
	ep->settle_under_way = 0;
}
