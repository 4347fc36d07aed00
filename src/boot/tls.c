/* SPDX-License-Identifier: BSD-3-Clause */
/* tls.c - the TLS session of a connection: made, freed, its outgoing bytes. It queues what TLS
 * sends and never touches a socket; incoming bytes are tls_feed.c's. It takes no lock: a struct
 * boot belongs to one thread at a time.
 */
#include "boot/tls.h"

#include <errno.h>
#include <stdlib.h>

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
	if (!boot_bytes_add(&t->c->out, p, len))
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

int boot_tls_new(struct boot_conn *c)
{
	struct boot_tls *t = calloc(1, sizeof(*t));
	const struct boot_key *k = c->b->key;
	if (!t)
		return -ENOMEM;
	t->c = c;
	if (c->dial ? tls_client(k->tls, &io, t, BOOT_PSK_IDENTITY, k->bytes, k->len, &t->session)
		    : tls_server(k->tls, &io, t, &t->session)) {
		free(t);
		return -ENOMEM;
	}
	c->tls = t;
	return 0;
}

void boot_tls_free(struct boot_tls *t)
{
	if (!t)
		return;
	tls_free(t->session);
	free(t);
}

int boot_tls_send(struct boot_conn *c, const void *p, size_t len)
{
	ssize_t n = tls_send(c->tls->session, p, len);
	if (n < 0)
		return (int)n;
	return n == (ssize_t)len ? 0 : -EMSGSIZE;
}

void boot_tls_bye(struct boot_conn *c) { tls_bye(c->tls->session); }

int boot_tls_export(const struct boot_tls *t, const char *label, const void *context,
	size_t context_len, uint8_t *out, size_t len)
{
	return tls_export(t->session, label, context, context_len, out, len);
}
