/* SPDX-License-Identifier: BSD-3-Clause */
/* tls.h - the pre-shared key, and TLS with it (tls/tls.h): a filter between the bytes of a socket
 * and those of hellos and messages. What TLS sends goes to the connection's queue, what it receives
 * is what was read.
 */
#ifndef ROPEWAY_BOOT_TLS_H
#define ROPEWAY_BOOT_TLS_H

#include "boot/boot_priv.h"
#include "tls/tls.h"

#define BOOT_PSK_IDENTITY "ropeway" /* says nothing about the key */

struct boot_key {
	struct tls_domain *tls;
	size_t len;
	uint8_t bytes[TLS_KEY_MAX];
	char file[];
};

/* ---- key.c ---- */
/* Reads the file: one line, hexadecimal (an even number of digits, 32 at least) or text of 16
 * characters at least. 0, or enum rpw_status with the reason by rpwi_fail. */
int boot_key_load(const char *file, struct boot_key **out);
void boot_key_free(struct boot_key *k);

struct boot_tls {
	struct tls *session;
	struct boot_conn *c;
	const uint8_t *in; /* what boot_tls_feed was given and TLS has not taken */
	size_t in_len;
	bool began; /* the peer's first byte came */
};

/* ---- tls.c ---- */
int boot_tls_new(struct boot_conn *c); /* 0 or -ENOMEM */
void boot_tls_free(struct boot_tls *t);
/* A whole message into the queue: 0 or -errno. */
int boot_tls_send(struct boot_conn *c, const void *p, size_t len);
void boot_tls_bye(struct boot_conn *c);
int boot_tls_export(const struct boot_tls *t, const char *label, const void *context,
	size_t context_len, uint8_t *out, size_t len);

/* ---- tls_feed.c ---- */
/* 0 or -ENOMEM. The connecting side's first bytes are queued. */
int boot_tls_start(struct boot_conn *c);
/* Bytes of the socket's; their contents go to boot_conn_take. May end the connection in any way. */
void boot_tls_feed(struct boot_conn *c, const uint8_t *p, size_t len);

#endif
