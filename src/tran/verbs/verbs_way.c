/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_way.c - what a context has learned of the way to a host: the MTU that passes. A queue pair
 * cannot change its MTU while it works, so the next one begins with less. No verbs calls. */
#include "tran/verbs/verbs_priv.h"

enum { MTU_LEAST = 1, MTU_MOST = 5, WAY_S = 600 /* then more is tried again */ };

static struct verbs_way *way_find(struct verbs *t, const uint8_t *host, uint64_t now_ns)
{
	for (struct verbs_way *w = t->way; w < t->way + VERBS_WAYS_MAX; w++)
		if (w->until_ns > now_ns && !memcmp(w->host, host, sizeof(w->host)))
			return w;
	return NULL;
}

uint8_t rpwi_verbs_way_mtu(struct verbs *t, const uint8_t *host)
{
	const struct verbs_way *w = way_find(t, host, rpwi_now_ns());
	return w ? w->mtu_max : MTU_MOST;
}

bool rpwi_verbs_way_narrow(struct verbs *t, const uint8_t *host, uint8_t from, unsigned bytes)
{
	uint64_t now_ns = rpwi_now_ns();
	struct verbs_way *w = way_find(t, host, now_ns), *oldest = t->way;
	uint8_t to = from - 1;
	while (bytes && to >= MTU_LEAST && 128u << to > bytes)
		to--;
	if (to < MTU_LEAST || from > MTU_MOST)
		return false;
	for (struct verbs_way *k = t->way; !w && k < t->way + VERBS_WAYS_MAX; k++)
		if (k->until_ns < oldest->until_ns)
			oldest = k;
	w = w ? w : oldest;
	*w = (struct verbs_way){
		.mtu_max = to, .again = true, .until_ns = now_ns + WAY_S * RPWI_NS_PER_S};
	memcpy(w->host, host, sizeof(w->host));
	return true;
}

bool rpwi_verbs_way_again(struct tran *base, const struct tran_facts *peer)
{
	struct verbs_way *w = way_find(verbs_of(base), peer->host_id, rpwi_now_ns());
	bool again = w && w->again;
	if (w)
		w->again = false;
	return again;
}
