/* tls_priv.h - what key.c, tls.c and tls_record.c share, and nobody else sees: GnuTLS. */
#ifndef ROPEWAY_BOOT_TLS_PRIV_H
#define ROPEWAY_BOOT_TLS_PRIV_H

#include "boot/tls.h"

#include <gnutls/gnutls.h>

#define BOOT_PSK_IDENTITY "ropeway" /* says nothing about the key */

struct boot_key {
	gnutls_psk_client_credentials_t client;
	gnutls_psk_server_credentials_t server;
	unsigned len;
	unsigned char bytes[512];
	char file[];
};

/* ---- tls_record.c ---- */
enum { BOOT_TLS_SEND_MAX = BOOT_MESSAGE_MAX + 64, BOOT_TLS_PLAIN_MAX = 16384 + 256 };
_Static_assert(BOOT_TLS_SEND_MAX >= BOOT_FRAME_HEAD + BOOT_MESSAGE_MAX && BOOT_TLS_SEND_MAX >= (int)BOOT_HELLO_MAX, "each goes as one record");

struct boot_tls_direction {
	uint8_t key[32], iv[12], key_len;
	uint64_t seq; /* the number of the next record */
};
struct boot_tls_keys {
	gnutls_cipher_algorithm_t cipher;
	struct boot_tls_direction in, out;
};
/* Those of a session whose handshake is over. */
bool boot_tls_keys_take(gnutls_session_t s, struct boot_tls_keys *k);
int boot_tls_record_send(struct boot_conn *c, struct boot_tls_keys *k, const void *p, size_t len); /* into the queue: 0 or -errno */
void boot_tls_record_bye(struct boot_conn *c, struct boot_tls_keys *k);
/* How long the record that begins at p is, as far as is known; -1: it is none. */
ssize_t boot_tls_record_need(const uint8_t *p, size_t len);
/* A whole one: its content is dealt with, which may end the connection in any way. -EBADMSG: it is not of the peer's. */
int boot_tls_record_take(struct boot_conn *c, struct boot_tls_keys *k, const uint8_t *record, size_t len);

/* ---- tls.c ---- */

/* GnuTLS asks the listening side for the key. */
int boot_tls_server_key(gnutls_session_t s, const char *identity, gnutls_datum_t *key);

#endif
