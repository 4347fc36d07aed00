/* SPDX-License-Identifier: BSD-3-Clause */
/* tls_feed.c - what the socket brought goes through TLS: first the handshake, and how it fails,
 * then records. It never reads a socket. It takes no lock: a struct boot belongs to one thread at a
 * time.
 */
#include "boot/tls.h"

#include <errno.h>
#include <stdio.h>

#include "ropeway.h"

/* ---- how it fails ---- */

static void connecting_failed(struct boot_conn *c)
{
	struct tls *s = c->tls->session;
	const char *file = c->b->key->file, *alert;
	char why[300];
	if (tls_no_access(s))
		snprintf(why, sizeof(why),
			"it has no key, this side has one (%.150s): both need the same, or neither "
			"has one",
			file);
	else if (tls_was_refused(s, &alert))
		snprintf(why, sizeof(why),
			"it refused the key in %.150s: the listening side has another one, both "
			"need the same (TLS alert: %s)",
			file, alert);
	else {
		snprintf(
			why, sizeof(why), "TLS with the key in %.150s fails: %s", file, tls_why(s));
		tls_alert(s);
		boot_conn_flush(c);
	}
	boot_dial_refused(c, RPW_ERR_REFUSED, why);
}

static void stranger_failed(struct boot_conn *c)
{
	const struct boot_tls *t = c->tls;
	char why[300];
	const char *alert;
	if (tls_was_refused(t->session, &alert))
		snprintf(why, sizeof(why),
			"it does not accept this side's TLS handshake (alert: %s): something "
			"between "
			"the two may change what is sent",
			alert);
	else if (tls_offered(t->session))
		snprintf(why, sizeof(why), "its key is not the one in %.150s (%s)", c->b->key->file,
			tls_why(t->session));
	else
		snprintf(why, sizeof(why), "it speaks TLS, but has no ropeway key (%s)",
			tls_why(t->session));
	boot_stranger_count(c, tls_offered(t->session), why);
	tls_alert(t->session);
	boot_conn_flush(c);
	boot_conn_linger(c);
}

/* Its first byte is of no TLS record. A ropeway without a key is told that it needs one; it
 * understands an alert. */
static void not_tls(struct boot_conn *c, const uint8_t *p, size_t len)
{
	struct boot_prelude_fields f;
	enum boot_prelude what = boot_prelude_decode(p, len, &f);
	char why[300];
	if (c->dial || what == BOOT_PRELUDE_STRANGER) {
		boot_greet_not_ropeway(c, p, len);
		return;
	}
	snprintf(why, sizeof(why),
		"it has no key, this side has one (%.150s): both need the same, or neither has one",
		c->b->key->file);
	boot_stranger_count(c, true, why);
	if (!boot_conn_put(c, tls_no_access_alert, sizeof(tls_no_access_alert)))
		boot_conn_flush(c);
	boot_conn_linger(c);
}

/* ---- the handshake, and after it ---- */

static void handshake(struct boot_conn *c)
{
	int rc = tls_handshake(c->tls->session);
	if (rc == -EAGAIN) {
		boot_conn_flush(c);
	} else if (!rc) {
		boot_conn_move(c, CONN_HELLO);
		if (c->dial)
			boot_greet(c);
		else
			boot_conn_flush(c);
	} else if (c->dial) {
		connecting_failed(c);
	} else {
		stranger_failed(c);
	}
}

int boot_tls_start(struct boot_conn *c)
{
	int rc = boot_tls_new(c);
	if (!rc && c->dial)
		handshake(c);
	return rc;
}

/* Is it still this session that goes on? */
static bool lives(const struct boot_conn *c, const struct boot_tls *t)
{
	return c->tls == t && (c->state == CONN_HELLO || c->state == CONN_OPEN);
}

/* The peer is told, too: all that it would see is the end. */
static void record_failed(struct boot_conn *c, int err)
{
	char why[200];
	snprintf(why, sizeof(why), "TLS: %s",
		err == EBADMSG ? tls_why(c->tls->session) : strerror(err));
	if (err == EBADMSG) {
		tls_alert(c->tls->session);
		boot_conn_flush(c);
	}
	boot_conn_broken(c, err == ENOMEM ? RPW_ERR_NO_MEMORY : RPW_ERR_PROTOCOL, "%s", why);
}

static void records(struct boot_conn *c)
{
	struct boot_tls *t = c->tls;
	uint8_t plain[TLS_RECORD_MAX];
	while (lives(c, t)) {
		size_t before = t->in_len;
		ssize_t n = tls_recv(t->session, plain, sizeof(plain));
		if (n == -EAGAIN && (!t->in_len || t->in_len == before))
			break;
		if (n == -EAGAIN) /* a record that was TLS's own: new keys */
			continue;
		if (n > 0)
			boot_conn_take(c, plain, (size_t)n); /* t may be gone after it */
		else if (n == 0)
			boot_conn_lost(c, 0);
		else
			record_failed(c, (int)-n);
	}
	if (lives(c, t) && c->out.len) /* TLS may have had to answer: new keys */
		boot_conn_flush(c);
}

void boot_tls_feed(struct boot_conn *c, const uint8_t *p, size_t len)
{
	struct boot_tls *t = c->tls;
	if (c->state == CONN_LINGER)
		return;
	if (!t->began && (p[0] < 0x14 || p[0] > 0x17)) {
		not_tls(c, p, len);
		return;
	}
	t->began = true;
	t->in = p;
	t->in_len = len;
	if (c->state == CONN_TLS)
		handshake(c);
	if (lives(c, t))
		records(c);
}
