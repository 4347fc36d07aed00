/* SPDX-License-Identifier: BSD-3-Clause */
/* turns.c - a thousand who connect at once do it a few at a time where each costs memory; a lookup
 * without an answer keeps nobody waiting for long. It owns the two lists of turns, and never starts
 * a try: dial.c does. It takes no lock: a struct boot belongs to one thread at a time.
 */
#include "boot/boot_priv.h"

void boot_turn_end(struct boot_dial *d)
{
	d->c->b->nturns -= d->turn == TURN_HAS;
	d->turn = TURN_NONE;
	rpwi_list_del(&d->turn_link);
}

bool boot_turn_is_free(struct boot *b, uint64_t now_ns)
{
	if (b->nturns < TURNS_MAX)
		return true;
	struct boot_dial *oldest = RPWI_CONTAINER_OF(b->turns.next, struct boot_dial, turn_link);
	if (oldest->turn_until_ns > now_ns)
		return false;
	boot_turn_end(oldest);
	return true;
}

bool boot_turn_take(struct boot_dial *d)
{
	struct boot *b = d->c->b;
	uint64_t now_ns = rpwi_now_ns();
	boot_turn_end(d);
	if (!b->key)
		return true;
	d->turn = boot_turn_is_free(b, now_ns) ? TURN_HAS : TURN_WAITS;
	d->turn_until_ns = now_ns + TURN_MS * RPWI_NS_PER_MS;
	b->nturns += d->turn == TURN_HAS;
	rpwi_list_add_tail(d->turn == TURN_HAS ? &b->turns : &b->turn_queue, &d->turn_link);
	return d->turn == TURN_HAS;
}
