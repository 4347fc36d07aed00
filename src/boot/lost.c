/* SPDX-License-Identifier: BSD-3-Clause */
/* lost.c - a connection that cannot go on: for its state it is another try, a stranger that left,
 * or the end that the callee is told. It never decides that a connection cannot go on. It takes no
 * lock: a struct boot belongs to one thread at a time.
 */
#include "boot/boot_priv.h"

#include <stdarg.h>
#include <stdio.h>

#include "ropeway.h"

void boot_conn_broken(struct boot_conn *c, int status, const char *fmt, ...)
{
	char why[300];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (c->state == CONN_LINGER) {
		boot_conn_bury(c);
	} else if (c->dial) {
		boot_dial_failed(
			c, status == RPW_ERR_PEER_GONE ? RPW_ERR_UNREACHABLE : status, why);
	} else if (c->state != CONN_OPEN) {
		/* it has the key: something changed the bytes */
		boot_stranger_count(
			c, c->state == CONN_HELLO && c->tls && status == RPW_ERR_PROTOCOL, why);
		boot_conn_bury(c);
	} else {
		boot_conn_detach(c);
		boot_conn_timer(c, RPWI_NEVER);
		boot_conn_move(c, CONN_ENDED);
		rpwi_debug("boot: %s: %s", c->text, why);
		c->b->up->gone(c->user, &(struct rpwi_error){status, 0, why});
	}
}

void boot_conn_lost(struct boot_conn *c, int err)
{
	if (err)
		boot_conn_broken(c, RPW_ERR_PEER_GONE, "the connection broke: %s", strerror(err));
	else
		boot_conn_broken(c, RPW_ERR_PEER_GONE, "%s",
			c->state == CONN_OPEN
				? "the peer closed the connection, or its process ended"
				: "it closed the connection before its hello");
}
