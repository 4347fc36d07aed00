/* tls.c - see tls.h. */
#include "boot/tls_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "ropeway.h"

/* TLS 1.3, and of it only what is keyed by the pre-shared key and a fresh exchange: no certificates, no tickets. Hashes of 256 bits: that is what an external key is bound to. */
#define PRIORITIES "NONE:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK:+GROUP-X25519:+GROUP-SECP256R1:+AES-128-GCM:+CHACHA20-POLY1305:+AEAD:+SIGN-ALL:+CTYPE-ALL"

enum { HANDSHAKE_MAX = 4096 };

const uint8_t boot_tls_no_key_alert[7] = {0x15, 0x03, 0x03, 0, 2, GNUTLS_AL_FATAL, GNUTLS_A_ACCESS_DENIED};

struct boot_tls {
	gnutls_session_t session;  /* until the handshake is over */
	struct boot_tls_keys keys; /* since then */
	struct boot_bytes record;  /* of which a part has come */
	struct boot_conn *c;
	const uint8_t *in; /* what boot_tls_feed was given and GnuTLS has not taken */
	size_t in_len;
	bool began;   /* the peer's first byte came */
	bool offered; /* the peer knows our identity: what fails then is the key */
};

/* ---- what GnuTLS asks for ---- */

int boot_tls_server_key(gnutls_session_t s, const char *identity, gnutls_datum_t *key)
{
	struct boot_tls *t = gnutls_session_get_ptr(s);
	const struct boot_key *k = t->c->b->key;
	if (strcmp(identity, BOOT_PSK_IDENTITY))
		return -1;
	t->offered = true;
	key->data = gnutls_malloc(k->len);
	if (!key->data)
		return -1;
	key->size = k->len;
	memcpy(key->data, k->bytes, k->len);
	return 0;
}

static ssize_t push(gnutls_transport_ptr_t ptr, const void *p, size_t len)
{
	struct boot_tls *t = ptr;
	if (!boot_conn_put(t->c, p, len))
		return (ssize_t)len;
	gnutls_transport_set_errno(t->session, ENOMEM);
	return -1;
}

static ssize_t pull(gnutls_transport_ptr_t ptr, void *to, size_t room)
{
	struct boot_tls *t = ptr;
	size_t n = RPWI_MIN(room, t->in_len);
	if (!n) {
		gnutls_transport_set_errno(t->session, EAGAIN);
		return -1;
	}
	memcpy(to, t->in, n);
	t->in += n;
	t->in_len -= n;
	return (ssize_t)n;
}

static int pull_timeout(gnutls_transport_ptr_t ptr, unsigned ms) { return ((struct boot_tls *)ptr)->in_len > 0; }

/* ---- made and freed ---- */

static void handshake(struct boot_conn *c);

int boot_tls_start(struct boot_conn *c)
{
	struct boot_tls *t = calloc(1, sizeof(*t));
	const struct boot_key *k = c->b->key;
	bool connecting = c->dial != NULL;
	if (!t)
		return -ENOMEM;
	t->c = c;
	int rc = gnutls_init(&t->session, (connecting ? GNUTLS_CLIENT : GNUTLS_SERVER) | GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS | GNUTLS_NO_SIGNAL);
	if (rc) {
		free(t);
		return -ENOMEM;
	}
	rc = gnutls_priority_set_direct(t->session, PRIORITIES, NULL);
	rc = rc ? rc : gnutls_credentials_set(t->session, GNUTLS_CRD_PSK, connecting ? (void *)k->client : (void *)k->server);
	if (rc) {
		rpwi_warn("TLS cannot be set up: %s", gnutls_strerror(rc));
		boot_tls_free(t);
		return -ENOMEM;
	}
	gnutls_session_set_ptr(t->session, t);
	gnutls_transport_set_ptr(t->session, t);
	gnutls_transport_set_push_function(t->session, push);
	gnutls_transport_set_pull_function(t->session, pull);
	gnutls_transport_set_pull_timeout_function(t->session, pull_timeout);
	gnutls_handshake_set_max_packet_length(t->session, HANDSHAKE_MAX);
	c->tls = t;
	if (connecting)
		handshake(c);
	return 0;
}

void boot_tls_free(struct boot_tls *t)
{
	if (!t)
		return;
	if (t->session)
		gnutls_deinit(t->session);
	boot_bytes_free(&t->record);
	explicit_bzero(&t->keys, sizeof(t->keys));
	free(t);
}

/* ---- how it fails ---- */

static void connecting_failed(struct boot_conn *c, int rc)
{
	const struct boot_tls *t = c->tls;
	const char *file = boot_key_file(c->b->key);
	char why[300];
	if (rc == GNUTLS_E_FATAL_ALERT_RECEIVED && gnutls_alert_get(t->session) == GNUTLS_A_ACCESS_DENIED)
		snprintf(why, sizeof(why), "it has no key, this side has one (%.150s): both need the same, or neither has one", file);
	else if (rc == GNUTLS_E_FATAL_ALERT_RECEIVED)
		snprintf(why, sizeof(why), "it refused the key in %.150s: the listening side has another one, both need the same (TLS alert: %s)", file,
			gnutls_alert_get_name(gnutls_alert_get(t->session)));
	else
		snprintf(why, sizeof(why), "TLS with the key in %.150s fails: %s", file, gnutls_strerror(rc));
	boot_dial_refused(c, RPW_ERR_REFUSED, why);
}

static void stranger_failed(struct boot_conn *c, int rc)
{
	const struct boot_tls *t = c->tls;
	char why[300];
	if (t->offered)
		snprintf(why, sizeof(why), "its key is not the one in %.150s (%s)", boot_key_file(c->b->key), gnutls_strerror(rc));
	else
		snprintf(why, sizeof(why), "it speaks TLS, but has no ropeway key (%s)", gnutls_strerror(rc));
	boot_stranger_count(c, t->offered, why);
	gnutls_alert_send_appropriate(t->session, rc);
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
	snprintf(why, sizeof(why), "it has no key, this side has one (%.150s): both need the same, or neither has one", boot_key_file(c->b->key));
	boot_stranger_count(c, true, why);
	if (!boot_conn_put(c, boot_tls_no_key_alert, sizeof(boot_tls_no_key_alert)))
		boot_conn_flush(c);
	boot_conn_linger(c);
}

/* ---- the handshake, and after it ---- */

static void handshake(struct boot_conn *c)
{
	struct boot_tls *t = c->tls;
	int rc;
	do
		rc = gnutls_handshake(t->session);
	while (rc < 0 && rc != GNUTLS_E_AGAIN && !gnutls_error_is_fatal(rc));
	if (!rc && (gnutls_protocol_get_version(t->session) != GNUTLS_TLS1_3 || gnutls_auth_get_type(t->session) != GNUTLS_CRD_PSK))
		rc = GNUTLS_E_INSUFFICIENT_CREDENTIALS; /* PRIORITIES leave nothing else; were it otherwise, it must not pass */
	if (!rc && !boot_tls_keys_take(t->session, &t->keys))
		rc = GNUTLS_E_INTERNAL_ERROR;
	if (rc == GNUTLS_E_AGAIN) {
		boot_conn_flush(c);
	} else if (!rc) {
		gnutls_deinit(t->session);
		t->session = NULL;
		boot_conn_move(c, CONN_HELLO);
		if (c->dial)
			boot_conn_hello(c);
		else
			boot_conn_flush(c);
	} else if (c->dial) {
		connecting_failed(c, rc);
	} else {
		stranger_failed(c, rc);
	}
}

/* Is it still this session that goes on? */
static bool lives(const struct boot_conn *c, const struct boot_tls *t)
{
	return c->tls == t && (c->state == CONN_TLS || c->state == CONN_HELLO || c->state == CONN_OPEN);
}

static int record_take(struct boot_conn *c, struct boot_tls *t, const uint8_t *p, size_t len)
{
	int rc = boot_tls_record_take(c, &t->keys, p, len);
	if (rc)
		boot_conn_broken(c, rc == -ENOMEM ? RPW_ERR_NO_MEMORY : RPW_ERR_PROTOCOL, "TLS: a record %s",
			rc == -EBADMSG ? "that is not of the peer's making, or was changed on its way"
				       : "cannot be opened: the keys are used up, or no memory is left");
	return rc;
}

/* Whole records are opened where they lie; only a part of one is kept. */
static void records(struct boot_conn *c)
{
	struct boot_tls *t = c->tls;
	while (lives(c, t)) {
		bool kept = t->record.len > 0;
		const uint8_t *at = kept ? t->record.p : t->in;
		size_t have = kept ? t->record.len : t->in_len;
		ssize_t need = boot_tls_record_need(at, have);
		if (need < 0) {
			boot_conn_broken(c, RPW_ERR_PROTOCOL, "TLS: what came is no record of TLS 1.3");
			return;
		}
		if (have >= (size_t)need) {
			struct boot_bytes whole = t->record;
			t->record = (struct boot_bytes){0};
			t->in += kept ? 0 : need;
			t->in_len -= kept ? 0 : (size_t)need;
			int rc = record_take(c, t, at, (size_t)need); /* t may be gone after it */
			boot_bytes_free(&whole);
			if (rc)
				return;
			continue;
		}
		size_t more = kept ? RPWI_MIN(t->in_len, (size_t)need - have) : t->in_len;
		if (!more)
			return;
		if (boot_bytes_add(&t->record, t->in, more)) {
			boot_conn_broken(c, RPW_ERR_NO_MEMORY, "no memory for its control message");
			return;
		}
		t->in += more;
		t->in_len -= more;
	}
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
	if (lives(c, t) && c->state != CONN_TLS)
		records(c);
}

int boot_tls_send(struct boot_conn *c, const void *p, size_t len) { return boot_tls_record_send(c, &c->tls->keys, p, len); }

void boot_tls_bye(struct boot_conn *c) { boot_tls_record_bye(c, &c->tls->keys); }
