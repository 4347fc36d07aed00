/* SPDX-License-Identifier: BSD-3-Clause */
/* tls.h - TLS 1.3 with a pre-shared key, by GnuTLS: the one place that knows it, and opens it
 * (library.h). The control path (boot) and the streams of the tcp transport are filtered by it.
 * GnuTLS sees no socket: bytes go and come by two functions of the caller's, which behave as send()
 * and recv() of a non-blocking socket do.
 *
 * TLS rather than a cipher of our own around each message: authentication of both sides, forward
 * secrecy, record limits and key updates are done right, and others can read what it is. Of TLS 1.3
 * only what is keyed by the pre-shared key and a fresh exchange: no certificates, no tickets, no
 * early data, nothing older, so nothing to be talked down to.
 */
#ifndef ROPEWAY_TLS_TLS_H
#define ROPEWAY_TLS_TLS_H

#include <sys/types.h>

#include "base/base.h"

enum {
	TLS_KEY_MAX = 512,
	TLS_RECORD_MAX = 16384, /* bytes of the caller's in one record */
	TLS_OVERHEAD = 64,      /* what a record is longer than they, at most */
	TLS_WHY_MAX = 256,
};

struct tls_domain; /* what sessions share: priorities, the listening side's credentials */
struct tls;        /* a session: 15 KB while it is idle */

struct tls_io {
	/* how many were taken; -1 with errno */
	ssize_t (*push)(void *user, const void *p, size_t len);
	/* how many came; 0: the end; -1 with errno */
	ssize_t (*pull)(void *user, void *to, size_t room);
	/* the listening side: bytes of the key of who calls itself so; 0: nobody does */
	size_t (*key_of)(void *user, const char *identity, uint8_t key[TLS_KEY_MAX]);
};

/* Opens GnuTLS, once for a process. 0, or -ENOENT, and why it cannot be. */
int tls_open(char *why, size_t why_len);

int tls_domain_new(struct tls_domain **out); /* 0, -ENOENT (tls_open) or -ENOMEM */
void tls_domain_free(struct tls_domain *d);

/* The side that calls, with its key under a name that goes in the clear; the one that is called. 0
 * or -ENOMEM. `io` and `user` outlive it. */
int tls_client(struct tls_domain *d, const struct tls_io *io, void *user, const char *identity,
	const uint8_t *key, size_t len, struct tls **out);
int tls_server(struct tls_domain *d, const struct tls_io *io, void *user, struct tls **out);
void tls_free(struct tls *t);

/* 0: done; -EAGAIN: not yet; -EBADMSG: it cannot be, tls_why says why. */
int tls_handshake(struct tls *t);
/* How many bytes, at most one record's; 0: the peer said that this is the end; -EAGAIN; -EPIPE: the
 * end, and the peer did not say so; -EBADMSG: not of the peer's making, or something that it must
 * not send (tls_why); else what pull failed with. */
ssize_t tls_recv(struct tls *t, void *to, size_t room);
/* At most one record's worth is taken; -EAGAIN: none. Bytes that were taken may still wait in the
 * session for push to take it: tls_waits. Else what push failed with. */
ssize_t tls_send(struct tls *t, const void *p, size_t len);
bool tls_pending(const struct tls *t); /* what tls_recv has for the caller without asking pull */
bool tls_waits(const struct tls *t);
int tls_flush(struct tls *t); /* 0: nothing waits any more; -EAGAIN, or what push failed with */
void tls_bye(struct tls *t);

/* RFC 5705: bytes that only the two ends of this session can make. 0 or -EINVAL (no handshake
 * yet). */
int tls_export(const struct tls *t, const char *label, const void *context, size_t context_len,
	uint8_t *out, size_t len);

const char *tls_why(struct tls *t); /* of the last failure, in words */
/* ... it was an alert of the peer's: its name */
bool tls_was_refused(const struct tls *t, const char **alert);
bool tls_no_access(const struct tls *t); /* ... namely "access denied": see tls_no_access_alert */
/* the listening side: the peer named an identity that has a key; what fails then is the key */
bool tls_offered(const struct tls *t);
void tls_alert(struct tls *t); /* say to the peer why the handshake failed */

/* What a side says that cannot speak TLS to one that can: "access denied", in the clear. */
extern const uint8_t tls_no_access_alert[7];

#endif
