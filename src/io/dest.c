/* SPDX-License-Identifier: BSD-3-Clause */
/* dest.c - what a name (near/name.h) stands for: the owner of a slot, or a claimed service. */
#include "io/io_priv.h"

#include <stdio.h>

bool rpwi_dest_eq(const struct io_dest *a, const struct io_dest *b)
{
	return a->slot == b->slot &&
	       (a->slot ||
		       (a->service_id == b->service_id && a->shared == b->shared &&
			       rpwi_addr_eq(&a->addr, &b->addr) && a->addr.scope == b->addr.scope));
}

/* Slots are numbered for all users of the network namespace, whatever numbers a user namespace
 * gives to them: two processes of one port group never have the same. Services are each user's own,
 * but those of users who share. */
const char *rpwi_dest_name(const struct io_dest *d, char name[RPWI_NAME_MAX])
{
	char text[IO_ADDR_TEXT] = "*", scope[16] = "", whose[16] = "shared";
	if (d->slot) {
		snprintf(name, RPWI_NAME_MAX, "ropeway/slot/%u", d->slot);
		return name;
	}
	if (d->addr.family)
		rpwi_addr_text(&d->addr, text);
	if (d->addr.scope)
		snprintf(scope, sizeof(scope), "%%%u", d->addr.scope);
	if (!d->shared)
		snprintf(whose, sizeof(whose), "%u", rpwi_who_uid());
	snprintf(name, RPWI_NAME_MAX, "ropeway/%s/service/%llx/%s%s", whose,
		(unsigned long long)d->service_id, text, scope);
	return name;
}
