/* SPDX-License-Identifier: BSD-3-Clause */
/* way.c - see way.h. A socket hears of every change to links, addresses, routes, rules and
 * neighbors, and is read before an answer is used again, so changes until then count. The
 * system's hop limits change without a word, so an answer holds for a second at most. */
#include "device/way.h"

#include <unistd.h>

#include "base/lock.h"

enum { WAYS = 64 };
#define WAY_NS RPWI_NS_PER_S

static struct {
	struct way way[WAYS]; /* by address */
	uint32_t turn;        /* of answers that hold; never 0 */
	int changes_fd;
} ways = {.turn = 1, .changes_fd = -1};

static struct way *place_of(const struct rpwi_addr *to)
{
	uint32_t mix = to->scope;
	for (unsigned i = 0; i < sizeof(to->bytes); i += 4)
		mix = (mix ^ rpwi_get_le32(to->bytes + i)) * 0x9e3779b1u;
	return &ways.way[mix >> 16 & (WAYS - 1)];
}

static bool is_to(const struct way *w, const struct rpwi_addr *to)
{
	return rpwi_addr_eq(&w->to, to) && w->to.scope == to->scope;
}

/* Has anything changed? Without a socket that hears of changes nothing is kept. */
static bool changed(void)
{
	if (RPWI_LIKELY(ways.changes_fd >= 0))
		return rpwi_netdev_watch_read(ways.changes_fd);
	ways.changes_fd = rpwi_netdev_ways_open();
	return true;
}

static void next_turn(void)
{
	if (!++ways.turn)
		ways.turn = 1;
}

const struct way *way_to(const struct rpwi_addr *to)
{
	struct way *w = place_of(to);
	uint64_t now_ns = rpwi_now_ns();
	rpwi_shield();
	if (changed())
		next_turn();
	if (w->turn == ways.turn && now_ns < w->until_ns && is_to(w, to))
		return w;
	*w = (struct way){.to = *to, .route = rpwi_netdev_route(to), .turn = ways.turn};
	w->hops = rpwi_netdev_hops(to, &w->route);
	w->until_ns = now_ns + WAY_NS;
	return w;
}

void way_found(const struct rpwi_addr *to, uint32_t turn)
{
	struct way *w = place_of(to);
	if (w->turn == turn && is_to(w, to))
		w->found = true;
}

void way_forget_all(void)
{
	if (ways.changes_fd >= 0)
		close(ways.changes_fd);
	ways.changes_fd = -1;
	next_turn();
}
