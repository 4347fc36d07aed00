/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.h - the first bytes of a connection, before anything is trusted: encode and decode, no
 * sockets.
 *
 *   0  8  magic: 0x93 "ropeway"
 *   8  1  byte order of the sender's machine: 1 little-endian, 2 big-endian (the data path shares
 *         memory as it is)
 *   9  1  kind: enum boot_hello_kind
 *  10  2  version that the sender speaks, big-endian as all numbers here
 *  12  4  bytes of the body, at most BOOT_HELLO_BODY_MAX
 *  16     body
 *
 * These 16 bytes are the same in all versions, so that another version can be refused by name. The
 * body of a hello is fields: tag, length, bytes (see `fields` in hello.c); unknown tags are passed
 * over, so that a later version may add some. The body of a refusal is a reason, two bytes. A kind
 * for each side: a service that echoes is not taken for a peer.
 */
#ifndef ROPEWAY_BOOT_HELLO_H
#define ROPEWAY_BOOT_HELLO_H

#include "tran/tran.h"

enum {
	BOOT_VERSION = 1,
	BOOT_PRELUDE_LEN = 16,
	BOOT_HELLO_BODY_MAX = 512,
	BOOT_HELLO_MAX = BOOT_PRELUDE_LEN + BOOT_HELLO_BODY_MAX,
	BOOT_LITTLE_ENDIAN = 1,
	BOOT_BIG_ENDIAN = 2,
	BOOT_FRAME_HEAD = 8, /* after the hellos: length and type of a message, four bytes each */
};
enum boot_hello_kind { BOOT_HELLO_CONNECTOR = 1, BOOT_HELLO_LISTENER = 2, BOOT_HELLO_REFUSAL = 3 };
enum boot_refusal { BOOT_REFUSED_VERSION = 1, BOOT_REFUSED_BYTE_ORDER = 2, BOOT_REFUSED_HELLO = 3 };

/* What the first bytes are. */
enum boot_prelude {
	BOOT_PRELUDE_GOOD,
	BOOT_PRELUDE_MORE,     /* nothing wrong so far */
	BOOT_PRELUDE_STRANGER, /* not ropeway */
	BOOT_PRELUDE_BAD,      /* ropeway's magic, then nonsense */
};
struct boot_prelude_fields {
	uint8_t byte_order, kind;
	uint16_t version;
	uint32_t body_len;
};
enum boot_prelude boot_prelude_decode(
	const uint8_t *p, size_t len, struct boot_prelude_fields *out);

/* Both give the number of bytes written to `out`, which has room for BOOT_HELLO_MAX. Facts that are
 * no plain text are sent with '?' in them. */
size_t boot_hello_encode(enum boot_hello_kind kind, const struct tran_facts *own, uint8_t *out);
size_t boot_refusal_encode(enum boot_refusal reason, uint8_t *out);
/* 0, or -1 with `why` a static sentence. `address` of the facts is left empty: the socket knows
 * it. */
int boot_hello_decode(const uint8_t *body, size_t len, struct tran_facts *out, const char **why);

/* What a stranger speaks, as far as its first bytes tell: "HTTP", "TLS", ... or NULL. */
const char *boot_protocol_guess(const uint8_t *p, size_t len);

#endif
