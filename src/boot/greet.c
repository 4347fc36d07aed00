/* SPDX-License-Identifier: BSD-3-Clause */
/* greet.c - the two hellos, once bytes can be sent: ours, and the answer to the peer's when it is
 * good, when it refuses ours, and when it is none. It never reads a socket, and decodes nothing
 * itself: hello.c does. It takes no lock: a struct boot belongs to one thread at a time.
 */
#include "boot/tls.h"

#include <stdarg.h>
#include <stdio.h>

#include "ropeway.h"

void boot_greet(struct boot_conn *c)
{
	uint8_t hello[BOOT_HELLO_MAX];
	size_t len = boot_hello_encode(
		c->dial ? BOOT_HELLO_CONNECTOR : BOOT_HELLO_LISTENER, &c->b->own, hello);
	if (boot_conn_say(c, hello, len))
		boot_conn_broken(c, RPW_ERR_NO_MEMORY, "no memory for a hello");
	else
		boot_conn_flush(c);
}

static void refuse(struct boot_conn *c, enum boot_refusal reason, const char *why)
{
	uint8_t refusal[BOOT_HELLO_MAX];
	boot_stranger_count(c, true, why);
	if (!boot_conn_say(c, refusal, boot_refusal_encode(reason, refusal)))
		boot_conn_flush(c);
	boot_conn_linger(c);
}

/* The peer speaks ropeway, but cannot be spoken with: each side says why, to its people and to the
 * other. */
static void mismatch(struct boot_conn *c, enum boot_refusal reason, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void mismatch(struct boot_conn *c, enum boot_refusal reason, const char *fmt, ...)
{
	char why[200];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (c->dial)
		boot_dial_refused(c, RPW_ERR_REFUSED, why);
	else
		refuse(c, reason, why);
}

void boot_greet_not_ropeway(struct boot_conn *c, const uint8_t *p, size_t len)
{
	const char *what = boot_protocol_guess(p, len);
	char why[200], bytes[3 * 8 + 1] = "";
	for (size_t i = 0; i < RPWI_MIN(len, 8u); i++)
		snprintf(bytes + 3 * i, 4, "%02x ", p[i]);
	if (what)
		snprintf(why, sizeof(why), "it speaks %s, not ropeway: is the port right?", what);
	else
		snprintf(why, sizeof(why),
			"it does not speak ropeway (its first bytes: %s): is the port right?",
			bytes);
	if (c->dial) {
		boot_dial_refused(c, RPW_ERR_PROTOCOL, why);
		return;
	}
	boot_stranger_count(c, false, why);
	boot_conn_bury(c);
}

/* This side has no key. A peer with one is told so, by an alert, which it understands; it does not
 * learn more. */
static void speaks_tls(struct boot_conn *c)
{
	static const char why[] = "it speaks TLS: is that a ropeway with a key? This side has none "
				  "(ROPEWAY_KEY_FILE); both need the same, or neither has one";
	if (c->dial) {
		boot_dial_refused(c, RPW_ERR_REFUSED, why);
		return;
	}
	boot_stranger_count(c, false, why);
	if (!boot_conn_put(c, tls_no_access_alert, sizeof(tls_no_access_alert)))
		boot_conn_flush(c);
	boot_conn_linger(c);
}

/* Is the beginning of a hello acceptable? */
ssize_t boot_greet_len(struct boot_conn *c, const uint8_t *p, size_t len)
{
	struct boot_prelude_fields f;
	switch (boot_prelude_decode(p, len, &f)) {
	case BOOT_PRELUDE_MORE:
		return BOOT_PRELUDE_LEN;
	case BOOT_PRELUDE_STRANGER:
		if (!c->tls && len >= 2 && (p[0] == 0x15 || p[0] == 0x16) && p[1] == 0x03)
			speaks_tls(c);
		else
			boot_greet_not_ropeway(c, p, len);
		return -1;
	case BOOT_PRELUDE_BAD:
		mismatch(c, BOOT_REFUSED_HELLO,
			"its hello begins like ropeway's, but the rest differs");
		return -1;
	case BOOT_PRELUDE_GOOD:
		break;
	}
	if (f.kind == (c->dial ? BOOT_HELLO_CONNECTOR : BOOT_HELLO_LISTENER) ||
		(!c->dial && f.kind == BOOT_HELLO_REFUSAL)) {
		mismatch(c, BOOT_REFUSED_HELLO,
			"it sent this side's own hello: does it echo its input?");
		return -1;
	}
	if (f.kind != BOOT_HELLO_REFUSAL && f.version != BOOT_VERSION) {
		mismatch(c, BOOT_REFUSED_VERSION,
			"it speaks version %u of ropeway's control path, this side version %d: "
			"install the same ropeway on both",
			f.version, BOOT_VERSION);
		return -1;
	}
	if (f.kind != BOOT_HELLO_REFUSAL && f.byte_order != BOOT_LITTLE_ENDIAN) {
		mismatch(c, BOOT_REFUSED_BYTE_ORDER,
			"its machine is big-endian, this one little-endian: ropeway shares memory "
			"as it is, and cannot convert");
		return -1;
	}
	return BOOT_PRELUDE_LEN + (ssize_t)f.body_len;
}

static void refused_by_peer(struct boot_conn *c, const uint8_t *p, size_t len)
{
	unsigned reason = len >= BOOT_PRELUDE_LEN + 2 ? rpwi_get_be16(p + BOOT_PRELUDE_LEN) : 0;
	char why[200];
	switch (reason) {
	case BOOT_REFUSED_VERSION:
		snprintf(why, sizeof(why),
			"it speaks version %u of ropeway's control path, this side version %d: "
			"install the same ropeway on both",
			rpwi_get_be16(p + 10), BOOT_VERSION);
		break;
	case BOOT_REFUSED_BYTE_ORDER:
		snprintf(why, sizeof(why),
			"its machine has another byte order: ropeway shares memory as it is, and "
			"cannot convert");
		break;
	default:
		snprintf(why, sizeof(why), "it refused our hello (reason %u)", reason);
		break;
	}
	boot_dial_refused(c, RPW_ERR_REFUSED, why);
}

void boot_greet_came(struct boot_conn *c, const uint8_t *p, size_t len)
{
	struct tran_facts facts;
	const char *why;
	if (p[9] == BOOT_HELLO_REFUSAL) {
		refused_by_peer(c, p, len);
		return;
	}
	if (boot_hello_decode(p + BOOT_PRELUDE_LEN, len - BOOT_PRELUDE_LEN, &facts, &why)) {
		mismatch(c, BOOT_REFUSED_HELLO, "%s", why);
		return;
	}
	if (c->dial && !boot_dial_meant(c, &facts))
		return;
	memcpy(facts.address, c->peer.address, sizeof(facts.address));
	c->peer = facts;
	snprintf(c->text, sizeof(c->text), "%s:%u %s", facts.hostname, facts.pid, c->where);
	boot_conn_timer(c, RPWI_NEVER);
	if (c->dial) {
		boot_conn_dial_done(c);
		boot_conn_move(c, CONN_OPEN);
		c->b->up->connected(c->user, NULL);
		return;
	}
	boot_greet(c);
	if (c->state != CONN_HELLO)
		return;
	void *listener_user = c->listener->user;
	boot_stranger_leaves(c);
	boot_conn_move(c, CONN_OPEN);
	c->b->up->accepted(c->b->user, listener_user, c);
}
