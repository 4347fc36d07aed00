/* tls.c - see tls.h. */
#include "boot/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "ropeway.h"

struct boot_tls {
	struct tls *session;
	struct boot_conn *c;
	const uint8_t *in; /* what boot_tls_feed was given and TLS has not taken */
	size_t in_len;
	bool began; /* the peer's first byte came */
};

/* ---- what TLS asks for ---- */

static size_t key_of(void *user, const char *identity, uint8_t key[TLS_KEY_MAX])
{
	const struct boot_tls *t = user;
	const struct boot_key *k = t->c->b->key;
	if (strcmp(identity, BOOT_PSK_IDENTITY))
		return 0;
	memcpy(key, k->bytes, k->len);
	return k->len;
}

static ssize_t push(void *user, const void *p, size_t len)
{
	const struct boot_tls *t = user;
	if (!boot_conn_put(t->c, p, len))
		return (ssize_t)len;
	errno = ENOMEM;
	return -1;
}

static ssize_t pull(void *user, void *to, size_t room)
{
	struct boot_tls *t = user;
	size_t n = RPWI_MIN(room, t->in_len);
	if (!n) {
		errno = EAGAIN; /* the end of the socket is its reader's to see */
		return -1;
	}
	memcpy(to, t->in, n);
	t->in += n;
	t->in_len -= n;
	return (ssize_t)n;
}

static const struct tls_io io = {.push = push, .pull = pull, .key_of = key_of};

/* ---- made and freed ---- */

static void handshake(struct boot_conn *c);

int boot_tls_start(struct boot_conn *c)
{
	struct boot_tls *t = calloc(1, sizeof(*t));
	const struct boot_key *k = c->b->key;
	if (!t)
		return -ENOMEM;
	t->c = c;
	if (c->dial ? tls_client(k->tls, &io, t, BOOT_PSK_IDENTITY, k->bytes, k->len, &t->session) : tls_server(k->tls, &io, t, &t->session)) {
		free(t);
		return -ENOMEM;
	}
	c->tls = t;
	if (c->dial)
		handshake(c);
	return 0;
}

void boot_tls_free(struct boot_tls *t)
{
	if (!t)
		return;
	tls_free(t->session);
	free(t);
}

/* ---- how it fails ---- */

static void connecting_failed(struct boot_conn *c)
{
	struct tls *s = c->tls->session;
	const char *file = c->b->key->file, *alert;
	char why[300];
	if (tls_no_access(s))
		snprintf(why, sizeof(why), "it has no key, this side has one (%.150s): both need the same, or neither has one", file);
	else if (tls_was_refused(s, &alert))
		snprintf(why, sizeof(why), "it refused the key in %.150s: the listening side has another one, both need the same (TLS alert: %s)", file, alert);
	else {
		snprintf(why, sizeof(why), "TLS with the key in %.150s fails: %s", file, tls_why(s));
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
		snprintf(why, sizeof(why), "it does not take this side's TLS handshake (alert: %s): something between the two may change what is sent", alert);
	else if (tls_offered(t->session))
		snprintf(why, sizeof(why), "its key is not the one in %.150s (%s)", c->b->key->file, tls_why(t->session));
	else
		snprintf(why, sizeof(why), "it speaks TLS, but has no ropeway key (%s)", tls_why(t->session));
	boot_stranger_count(c, tls_offered(t->session), why);
	tls_alert(t->session);
	boot_conn_flush(c);
	boot_conn_linger(c);
}

/* Its first byte is of no TLS record. A ropeway without a key is told that it needs one; it understands an alert. */
static void not_tls(struct boot_conn *c, const uint8_t *p, size_t len)
{
	struct boot_prelude_fields f;
	enum boot_prelude what = boot_prelude_decode(p, len, &f);
	char why[300];
	if (c->dial || what == BOOT_PRELUDE_STRANGER) {
		boot_conn_not_ropeway(c, p, len);
		return;
	}
	snprintf(why, sizeof(why), "it has no key, this side has one (%.150s): both need the same, or neither has one", c->b->key->file);
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
			boot_conn_hello(c);
		else
			boot_conn_flush(c);
	} else if (c->dial) {
		connecting_failed(c);
	} else {
		stranger_failed(c);
	}
}

/* Is it still this session that goes on? */
static bool lives(const struct boot_conn *c, const struct boot_tls *t) { return c->tls == t && (c->state == CONN_HELLO || c->state == CONN_OPEN); }

/* The peer is told, too: all that it would see is the end. */
static void record_failed(struct boot_conn *c, int err)
{
	char why[200];
	snprintf(why, sizeof(why), "TLS: %s", err == EBADMSG ? tls_why(c->tls->session) : strerror(err));
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

int boot_tls_send(struct boot_conn *c, const void *p, size_t len)
{
	ssize_t n = tls_send(c->tls->session, p, len);
	return n == (ssize_t)len ? 0 : n < 0 ? (int)n : -EMSGSIZE;
}

void boot_tls_bye(struct boot_conn *c) { tls_bye(c->tls->session); }

int boot_tls_export(const struct boot_tls *t, const char *label, const void *context, size_t context_len, uint8_t *out, size_t len)
{
	return tls_export(t->session, label, context, context_len, out, len);
}
