/* tls_priv.h - what key.c and tls.c share, and nobody else sees: GnuTLS. */
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

/* GnuTLS asks the listening side for the key. */
int boot_tls_server_key(gnutls_session_t s, const char *identity, gnutls_datum_t *key);

#endif
