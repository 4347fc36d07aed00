/* SPDX-License-Identifier: BSD-3-Clause */
/* stranger.c - the books about strangers: each is counted and logged once, and gives its listener a
 * place back when it leaves. It never closes a connection; that is its caller's. It takes no lock:
 * a struct boot belongs to one thread at a time.
 */
#include "boot/boot_priv.h"

void boot_stranger_count(struct boot_conn *c, bool people, const char *why)
{
	enum rpwi_log_level level = people ? RPWI_LOG_WARN : RPWI_LOG_INFO;
	unsigned left_out;
	if (c->counted)
		return;
	c->counted = true;
	c->b->strangers++;
	if (!rpwi_log_on(level) || !boot_may_log(c->b, &left_out))
		return;
	if (left_out)
		rpwi_log(level, "refused a connection from %s: %s (and %u before it, not logged)",
			c->where, why, left_out);
	else
		rpwi_log(level, "refused a connection from %s: %s", c->where, why);
}

void boot_stranger_leaves(struct boot_conn *c)
{
	if (!c->listener)
		return;
	if (c->listener->nstrangers-- == BOOT_STRANGERS_MAX &&
		c->listener->paused_until_ns != RPWI_NEVER) {
		c->listener->paused_until_ns = 0; /* a place is free: accept again */
		boot_deadline_lower(c->b, 0);
	}
	c->listener = NULL;
	rpwi_list_del(&c->stranger);
}
