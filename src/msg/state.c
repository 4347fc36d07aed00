/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c - the states of an endpoint, and what makes it go from one to another. Nobody else
 * assigns them. Beside them, flags say what has been heard so far: of a path that comes up, which
 * side is ready (self_ready, peer_ready); of an end, whose word it was (bye_heard, gone_heard). */
#include "msg/endpoint.h"
#include "msg/objects.h"

/* The next state; 0 (EP_NEW): this event has no meaning in that state. */
static const uint8_t next[EP_STATES][EP_EVENTS] = {
	[EP_NEW] = {[EP_DIALS] = EP_BOOT, [EP_ARRIVES] = EP_CHOOSING, [EP_ENDS] = EP_FAILED},
	[EP_BOOT] = {[EP_TALKS] = EP_CHOOSING, [EP_ENDS] = EP_FAILED},
	[EP_CHOOSING] = {[EP_PATH_UP] = EP_UP, [EP_ENDS] = EP_FAILED},
	[EP_UP] = {[EP_PATH_LOST] = EP_CHOOSING, [EP_ENDS] = EP_FAILED},
	[EP_FAILED] = {0},
};

static bool connecting(unsigned state) { return state == EP_BOOT || state == EP_CHOOSING; }
static bool arriving(const rpw_endpoint *ep, unsigned state)
{
	return !ep->active && !ep->accepted && (state == EP_CHOOSING || state == EP_UP);
}

bool ep_move(rpw_endpoint *ep, enum ep_event event)
{
	rpw_context *c = ep->c;
	unsigned from = ep->state, to = next[from][event];
	if (!to)
		return false;
	c->connecting += (unsigned)connecting(to) - (unsigned)connecting(from);
	c->arriving += (unsigned)arriving(ep, to) - (unsigned)arriving(ep, from);
	ep->state = (uint8_t)to;
	if (to == EP_UP && !ep->path_broken)
		link_open(&ep->link);
	else if (to == EP_FAILED)
		link_end(&ep->link);
	else
		link_close(&ep->link);
	if (to == EP_FAILED)
		ep->next.deadline_ns = RPWI_NEVER;
	return true;
}
