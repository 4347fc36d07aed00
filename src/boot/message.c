/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c - from bytes to whole messages. What the peer sent is kept only while a message is
 * incomplete, and never more than one of it. It never reads a socket. It takes no lock: a struct
 * boot belongs to one thread at a time.
 */
#include "boot/boot_priv.h"

#include "ropeway.h"

/* How long the item that begins at p is, as far as its bytes tell; -1: it cannot be, and was dealt
 * with. */
static ssize_t item_len(struct boot_conn *c, const uint8_t *p, size_t len)
{
	if (c->state == CONN_HELLO)
		return boot_greet_len(c, p, len);
	if (len < BOOT_FRAME_HEAD)
		return BOOT_FRAME_HEAD;
	uint32_t body = rpwi_get_be32(p);
	if (body <= BOOT_MESSAGE_MAX)
		return BOOT_FRAME_HEAD + (ssize_t)body;
	boot_conn_broken(c, RPW_ERR_PROTOCOL,
		"it sent a control message of %u bytes; %d are the most", body, BOOT_MESSAGE_MAX);
	return -1;
}

static void item_came(struct boot_conn *c, const uint8_t *p, size_t len)
{
	if (c->state == CONN_HELLO)
		boot_greet_came(c, p, len);
	else
		c->b->up->message(
			c->user, rpwi_get_be32(p + 4), p + BOOT_FRAME_HEAD, len - BOOT_FRAME_HEAD);
}

void boot_conn_take(struct boot_conn *c, const uint8_t *p, size_t len)
{
	while (c->state == CONN_HELLO || c->state == CONN_OPEN) {
		bool kept = c->in.len > 0;
		const uint8_t *at = kept ? c->in.p : p;
		size_t have = kept ? c->in.len : len;
		ssize_t need = item_len(c, at, have);
		if (need < 0)
			return;
		if (have >= (size_t)need) {
			/* may close it: its memory stays until the end of progress */
			item_came(c, at, (size_t)need);
			if (kept)
				boot_bytes_free(&c->in);
			p += kept ? 0 : need;
			len -= kept ? 0 : (size_t)need;
			continue;
		}
		size_t more = kept ? RPWI_MIN(len, (size_t)need - have) : len;
		if (!more)
			return;
		if (boot_bytes_add(&c->in, p, more)) {
			boot_conn_broken(c, RPW_ERR_NO_MEMORY, "no memory for its control message");
			return;
		}
		p += more;
		len -= more;
	}
}
