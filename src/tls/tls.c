/* SPDX-License-Identifier: BSD-3-Clause */
/* tls.c - see tls.h. */
#include "tls/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tls/library.h"

/* Hashes of 256 bits: that is what an external key is bound to. */
#define PRIORITIES \
	"NONE:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK:+GROUP-X25519:+GROUP-SECP256R1:+AES-128-GCM:+" \
	"CHACHA20-POLY1305:+AEAD:+SIGN-ALL:+CTYPE-ALL"

enum { HANDSHAKE_MAX = 4096 };

static const struct tls_library *const g = &tls_gnutls;

const uint8_t tls_no_access_alert[7] = {
	0x15, 0x03, 0x03, 0, 2, GNUTLS_AL_FATAL, GNUTLS_A_ACCESS_DENIED};

struct tls_domain {
	gnutls_priority_t priorities;
	gnutls_psk_server_credentials_t server;
};

struct tls {
	gnutls_session_t session;
	gnutls_psk_client_credentials_t client;
	const struct tls_io *io;
	void *user;
	int io_errno; /* of push or pull, the last */
	int error;    /* of GnuTLS, the last that ended something */
	bool offered, waits, done;
	char why[160]; /* of tls_why */
};

/* ---- what GnuTLS asks for ---- */

static int server_key(gnutls_session_t s, const char *identity, gnutls_datum_t *out)
{
	struct tls *t = g->gnutls_session_get_ptr(s);
	uint8_t key[TLS_KEY_MAX];
	size_t len = t->io->key_of(t->user, identity, key);
	if (!len)
		return -1;
	t->offered = true;
	out->size = (unsigned)len;
	out->data = (*g->gnutls_malloc)(len);
	if (out->data)
		memcpy(out->data, key, len);
	explicit_bzero(key, sizeof key);
	return out->data ? 0 : -1;
}

static ssize_t io_end(struct tls *t, ssize_t n)
{
	t->io_errno = n < 0 ? errno : 0;
	if (n < 0)
		g->gnutls_transport_set_errno(t->session, errno);
	return n;
}
static ssize_t push(gnutls_transport_ptr_t ptr, const void *p, size_t len)
{
	struct tls *t = ptr;
	return io_end(t, t->io->push(t->user, p, len));
}
static ssize_t pull(gnutls_transport_ptr_t ptr, void *to, size_t room)
{
	struct tls *t = ptr;
	return io_end(t, t->io->pull(t->user, to, room));
}
static int pull_timeout(gnutls_transport_ptr_t ptr, unsigned ms) { return 1; }

/* ---- made and freed ---- */

int tls_domain_new(struct tls_domain **out)
{
	char why[TLS_WHY_MAX];
	if (tls_open(why, sizeof why))
		return -ENOENT;
	struct tls_domain *d = calloc(1, sizeof *d);
	if (!d)
		return -ENOMEM;
	if (g->gnutls_priority_init(&d->priorities, PRIORITIES, NULL) ||
		g->gnutls_psk_allocate_server_credentials(&d->server)) {
		tls_domain_free(d);
		return -ENOMEM;
	}
	g->gnutls_psk_set_server_credentials_function(d->server, server_key);
	*out = d;
	return 0;
}

void tls_domain_free(struct tls_domain *d)
{
	if (!d)
		return;
	if (d->server)
		g->gnutls_psk_free_server_credentials(d->server);
	if (d->priorities)
		g->gnutls_priority_deinit(d->priorities);
	free(d);
}

static int open_as(struct tls *t, const struct tls_domain *d, unsigned side, void *credentials)
{
	if (g->gnutls_init(
		    &t->session, side | GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS | GNUTLS_NO_SIGNAL)) {
		t->session = NULL;
		return -ENOMEM;
	}
	if (g->gnutls_priority_set(t->session, d->priorities) ||
		g->gnutls_credentials_set(t->session, GNUTLS_CRD_PSK, credentials))
		return -ENOMEM;
	g->gnutls_session_set_ptr(t->session, t);
	g->gnutls_transport_set_ptr(t->session, t);
	g->gnutls_transport_set_push_function(t->session, push);
	g->gnutls_transport_set_pull_function(t->session, pull);
	g->gnutls_transport_set_pull_timeout_function(t->session, pull_timeout);
	g->gnutls_handshake_set_max_packet_length(t->session, HANDSHAKE_MAX);
	return 0;
}

int tls_client(struct tls_domain *d, const struct tls_io *io, void *user, const char *identity,
	const uint8_t *key, size_t len, struct tls **out)
{
	struct tls *t = calloc(1, sizeof *t);
	const gnutls_datum_t bytes = {(unsigned char *)key, (unsigned)len};
	if (!t)
		return -ENOMEM;
	*t = (struct tls){.io = io, .user = user};
	if (g->gnutls_psk_allocate_client_credentials(&t->client) ||
		g->gnutls_psk_set_client_credentials(
			t->client, identity, &bytes, GNUTLS_PSK_KEY_RAW) ||
		open_as(t, d, GNUTLS_CLIENT, t->client)) {
		tls_free(t);
		return -ENOMEM;
	}
	*out = t;
	return 0;
}

int tls_server(struct tls_domain *d, const struct tls_io *io, void *user, struct tls **out)
{
	struct tls *t = calloc(1, sizeof *t);
	if (!t)
		return -ENOMEM;
	*t = (struct tls){.io = io, .user = user};
	if (open_as(t, d, GNUTLS_SERVER, d->server)) {
		tls_free(t);
		return -ENOMEM;
	}
	*out = t;
	return 0;
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	if (t->session)
		g->gnutls_deinit(t->session);
	if (t->client)
		g->gnutls_psk_free_client_credentials(t->client);
	free(t);
}

/* ---- the session ---- */

static bool try_again(int rc) { return rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED; }

/* What ended it, as the callers of tls.h know it. */
static int ended(struct tls *t, int rc)
{
	t->error = rc;
	if (rc == GNUTLS_E_PREMATURE_TERMINATION)
		return -EPIPE;
	if ((rc == GNUTLS_E_PULL_ERROR || rc == GNUTLS_E_PUSH_ERROR) && t->io_errno)
		return -t->io_errno;
	return rc == GNUTLS_E_MEMORY_ERROR ? -ENOMEM : -EBADMSG;
}

int tls_handshake(struct tls *t)
{
	int rc;
	do
		rc = g->gnutls_handshake(t->session);
	while (rc < 0 && !try_again(rc) && !g->gnutls_error_is_fatal(rc));
	/* PRIORITIES leave nothing else; were it otherwise, it must not pass */
	if (!rc && (g->gnutls_protocol_get_version(t->session) != GNUTLS_TLS1_3 ||
			   g->gnutls_auth_get_type(t->session) != GNUTLS_CRD_PSK))
		rc = GNUTLS_E_INSUFFICIENT_CREDENTIALS;
	if (try_again(rc))
		return -EAGAIN;
	t->done = !rc;
	return rc ? ended(t, rc) : 0;
}

ssize_t tls_recv(struct tls *t, void *to, size_t room)
{
	ssize_t n;
	do
		n = g->gnutls_record_recv(t->session, to, room);
	/* each has taken a record */
	while (n < 0 && !try_again((int)n) && !g->gnutls_error_is_fatal((int)n));
	if (n >= 0)
		return n;
	return try_again((int)n) ? -EAGAIN : ended(t, (int)n);
}

bool tls_pending(const struct tls *t) { return g->gnutls_record_check_pending(t->session) > 0; }
bool tls_waits(const struct tls *t) { return t->waits; }

int tls_flush(struct tls *t)
{
	if (!t->waits)
		return 0;
	ssize_t n = g->gnutls_record_send(t->session, NULL, 0);
	if (n < 0 && try_again((int)n))
		return -EAGAIN;
	t->waits = false;
	return n < 0 ? ended(t, (int)n) : 0;
}

ssize_t tls_send(struct tls *t, const void *p, size_t len)
{
	int rc = tls_flush(t);
	if (rc)
		return rc;
	len = RPWI_MIN(len, (size_t)TLS_RECORD_MAX);
	ssize_t n = g->gnutls_record_send(t->session, p, len);
	if (n >= 0)
		return n;
	if (!try_again((int)n))
		return ended(t, (int)n);
	t->waits = true; /* GnuTLS has it, sealed */
	return (ssize_t)len;
}

void tls_bye(struct tls *t)
{
	if (t->done)
		g->gnutls_bye(t->session, GNUTLS_SHUT_WR);
}

int tls_export(const struct tls *t, const char *label, const void *context, size_t context_len,
	uint8_t *out, size_t len)
{
	return t->done && !g->gnutls_prf_rfc5705(t->session, strlen(label), label, context_len,
				  context, len, (char *)out)
		       ? 0
		       : -EINVAL;
}

/* ---- how it failed ---- */

bool tls_was_refused(const struct tls *t, const char **alert)
{
	if (t->error != GNUTLS_E_FATAL_ALERT_RECEIVED)
		return false;
	*alert = g->gnutls_alert_get_name(g->gnutls_alert_get(t->session)) ?: "of an unknown kind";
	return true;
}

bool tls_no_access(const struct tls *t)
{
	return t->error == GNUTLS_E_FATAL_ALERT_RECEIVED &&
	       g->gnutls_alert_get(t->session) == GNUTLS_A_ACCESS_DENIED;
}

const char *tls_why(struct tls *t)
{
	const char *alert;
	if (t->error == GNUTLS_E_DECRYPTION_FAILED)
		return "a record that is not of the peer's making, or was changed on its way";
	if (tls_was_refused(t, &alert))
		snprintf(t->why, sizeof t->why, "the peer says: %s", alert);
	else
		snprintf(t->why, sizeof t->why, "%s", g->gnutls_strerror(t->error));
	return t->why;
}

bool tls_offered(const struct tls *t) { return t->offered; }

void tls_alert(struct tls *t) { g->gnutls_alert_send_appropriate(t->session, t->error); }
