/* SPDX-License-Identifier: BSD-3-Clause */
/* credit.c - flow control: what a peer may have waiting here, in units of UNIT_BYTES. The windows
 * of all links of a context come out of one pool (unexpected_bytes_max), so memory for messages
 * that nobody has asked for yet is bounded by it, whatever the peers do.
 *
 * A window slides: each frame that costs memory uses credit_units(body) of it, and gives them back
 * when it has been matched. Each frame of the other direction says how far the window reaches; only
 * when none goes that way and half of the window is to be told, or the peer waits, a CREDIT
 * is sent. A window that is used grows while the pool has room. */
#include "msg/link/link.h"

bool credit_open(struct link *l)
{
	struct link_group *g = l->group;
	uint32_t want =
		RPWI_MIN((uint32_t)WINDOW_FIRST, RPWI_MAX(g->pool / 16, (uint32_t)WINDOW_LEAST));
	if (g->pool_free < g->pool / 4)
		want = WINDOW_LEAST;
	if (g->pool_free < want)
		return false;
	g->pool_free -= want;
	l->window = l->rx_limit = l->rx_told = want;
	l->rx_used = 0;
	return true;
}

static void grow(struct link *l, uint32_t wanted)
{
	struct link_group *g = l->group;
	uint32_t more = RPWI_MAX(l->window, wanted);
	if (more > WINDOW_MOST - l->window)
		more = WINDOW_MOST - l->window;
	if (g->pool_free < g->pool / 4 || more > g->pool_free / 4)
		return;
	g->pool_free -= more;
	l->window += more;
	l->rx_limit += more;
}

void credit_tell(struct link *l)
{
	if (!l->open)
		return;
	if (!l->needed)
		grow(l, 0);
	l->needed = 0;
	link_say(l, 0);
}

/* The peer waits for room. It is told as soon as there is any, not only at half of a window: what
 * it waits with may be the message that this side waits for. */
void credit_needed(struct link *l, uint64_t units)
{
	grow(l, (uint32_t)RPWI_MIN(units, (uint64_t)WINDOW_MOST));
	l->needed = (uint32_t)RPWI_MAX(RPWI_MIN(units, (uint64_t)WINDOW_MOST), 1);
	if (l->rx_limit != l->rx_told || l->rx_limit - l->rx_used >= l->needed)
		credit_tell(l);
}

void credit_need(struct link *l, uint32_t units)
{
	l->group->waited_for_room++;
	if (l->need_said)
		return;
	l->need_said = true;
	link_say(l, units);
}

void credit_overdrawn(struct link *l)
{
	link_breach(l, "it sent more than it was granted (%u units)", l->window);
}
