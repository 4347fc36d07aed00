/* tls.h - the pre-shared key, and TLS 1.3 with it: a filter between the bytes of a socket and those of hellos and messages. GnuTLS never sees the socket: what it sends goes to the
 * connection's queue, what it receives is what was read.
 *
 * TLS rather than a cipher of our own around each message: authentication of both sides, forward secrecy, record limits and key updates are done right, and others can read what it is.
 */
#ifndef ROPEWAY_BOOT_TLS_H
#define ROPEWAY_BOOT_TLS_H

#include "boot/boot_priv.h"

enum { BOOT_TLS_OVERHEAD = 64 }; /* at most, for each message */

/* Reads the file: one line, hexadecimal (an even number of digits, 32 at least) or text of 16 characters at least. 0, or enum rpw_status with the reason by rpwi_fail. */
int boot_key_load(const char *file, struct boot_key **out);
void boot_key_free(struct boot_key *k);
const char *boot_key_file(const struct boot_key *k);

/* 0 or -ENOMEM. The connecting side's first bytes are queued. */
int boot_tls_start(struct boot_conn *c);
void boot_tls_free(struct boot_tls *t);
/* Bytes of the socket's; what is in them goes to boot_conn_take. May end the connection in any way. */
void boot_tls_feed(struct boot_conn *c, const uint8_t *p, size_t len);
/* A whole message into the queue: 0 or -errno. */
int boot_tls_send(struct boot_conn *c, const void *p, size_t len);
void boot_tls_bye(struct boot_conn *c);

/* What a side says when exactly one of the two has a key, and the other side can understand: a TLS alert, "access denied", in the clear. */
extern const uint8_t boot_tls_no_key_alert[7];

#endif
