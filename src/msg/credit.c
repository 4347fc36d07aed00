/* credit.c - flow control: what a peer may have waiting here, in units of UNIT_BYTES. All endpoints' windows come out of one pool (unexpected_bytes_max), so memory for messages that
 * nobody has asked for yet is bounded by it, whatever the peers do.
 *
 * A window slides: each frame that costs memory uses credit_units(body) of it, and gives them back when it has been matched. Each frame of the other direction says how far the window
 * reaches; only when none goes that way and half of the window is to be told, or the peer has said NEED, a CREDIT is sent. A window that is used grows while the pool has room. */
#include "msg/msg.h"

bool credit_open(rpw_endpoint *ep)
{
	rpw_context *c = ep->c;
	uint32_t want = RPWI_MIN((uint32_t)WINDOW_FIRST, RPWI_MAX(c->pool / 16, (uint32_t)WINDOW_LEAST));
	if (c->pool_free < c->pool / 4)
		want = WINDOW_LEAST;
	if (c->pool_free < want)
		return false;
	c->pool_free -= want;
	ep->window = ep->rx_limit = ep->rx_told = want;
	ep->rx_used = 0;
	return true;
}

void credit_close(rpw_endpoint *ep)
{
	ep->c->pool_free += ep->window;
	ep->window = 0;
}

static void grow(rpw_endpoint *ep, uint32_t wanted)
{
	rpw_context *c = ep->c;
	uint32_t more = RPWI_MAX(ep->window, wanted);
	if (more > WINDOW_MOST - ep->window)
		more = WINDOW_MOST - ep->window;
	if (c->pool_free < c->pool / 4 || more > c->pool_free / 4)
		return;
	c->pool_free -= more;
	ep->window += more;
	ep->rx_limit += more;
}

void credit_tell(rpw_endpoint *ep)
{
	if (ep->state != EP_UP)
		return;
	if (!ep->needed)
		grow(ep, 0);
	ep->needed = 0;
	path_uncounted(ep, FRAME_CREDIT, 0);
}

/* The peer waits for room. It is told as soon as there is any, not only at half of a window: what it waits with may be the message that this side waits for. */
void credit_needed(rpw_endpoint *ep, uint64_t units)
{
	grow(ep, (uint32_t)RPWI_MIN(units, (uint64_t)WINDOW_MOST));
	ep->needed = (uint32_t)RPWI_MAX(RPWI_MIN(units, (uint64_t)WINDOW_MOST), 1);
	if (ep->rx_limit != ep->rx_told || ep->rx_limit - ep->rx_used >= ep->needed)
		credit_tell(ep);
}

void credit_need(rpw_endpoint *ep, uint32_t units)
{
	ep->c->stat.waited_for_room++;
	if (ep->need_said)
		return;
	ep->need_said = true;
	path_uncounted(ep, FRAME_NEED, units);
}
