/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_wire.h - what the programs say to each other, byte by byte, all numbers in network byte
 * order (big-endian).
 *
 *   a message, by SEND
 *      0        4         6       8        12
 *      | magic  | version | type  | length | body of `length` bytes ...
 *      MR:   | address (8) | rkey (4) | length (4) |      where the peer may write, or read
 *      DONE: no body: "I have written (read) all that I wanted"
 *      TEXT: 1 to 200 bytes of text
 *
 *   the hello in the private data of a connection request, its reply or its rejection
 *      0        4         6      7        8
 *      | magic  | version | mode | reason |     reason: 0 but in a rejection. These 8 bytes stay
 *                                               the same in every version.
 *
 *   the 4 KiB that are written or read: a region proves by itself that it arrived whole
 *      0                 256        264                        4088       4096
 *      | text, then 0s   | seed (8) | pattern made of the seed | checksum of all before it (8) |
 *
 * Never a raw struct: its padding, its byte order and its size belong to one compiler on one
 * machine. And never believed before it was checked: whoever reaches the port can send anything.
 */
#ifndef LEARN_PEER_WIRE_H
#define LEARN_PEER_WIRE_H

#include "common.h"

enum {
	WIRE_VERSION = 1,
	WIRE_HEADER_BYTES = HEADER_BYTES,
	WIRE_MR_BYTES = 16,
	WIRE_TEXT_BYTES_MAX = 200,
	WIRE_MESSAGE_BYTES_MAX = WIRE_HEADER_BYTES + WIRE_TEXT_BYTES_MAX,
	WIRE_HELLO_BYTES = 8,
	REGION_BYTES = 4096, /* of the memory that is written or read */
};

enum wire_type { WIRE_MR = 1, WIRE_DONE, WIRE_TEXT };

struct remote_memory {
	uint64_t address;
	uint32_t rkey, length;
};

struct message {
	enum wire_type type;
	struct remote_memory memory;        /* of an MR */
	char text[WIRE_TEXT_BYTES_MAX + 1]; /* of a TEXT: printable, ends with 0 */
};

/* Why a message is not one of ours. */
enum wire_fault {
	FAULT_NONE,
	FAULT_TOO_SHORT,
	FAULT_MAGIC,
	FAULT_VERSION,
	FAULT_TYPE,
	FAULT_LENGTH, /* the length it claims is not the length it has, or not that of its type */
	FAULT_MEMORY, /* the memory it offers is not as large as agreed, or wraps around */
	FAULT_TEXT,
};
const char *wire_fault_text(enum wire_fault fault);

/* Each writes a whole message and returns its length. */
size_t wire_put_mr(uint8_t out[WIRE_MESSAGE_BYTES_MAX], const struct remote_memory *memory);
size_t wire_put_done(uint8_t out[WIRE_MESSAGE_BYTES_MAX]);
size_t wire_put_text(uint8_t out[WIRE_MESSAGE_BYTES_MAX], const char *text);
enum wire_fault wire_get(const uint8_t *in, size_t bytes, struct message *m);

enum mode { MODE_WRITE = 1, MODE_READ, MODE_TEXT };
enum reason { REASON_NONE, REASON_MODE, REASON_VERSION, REASON_HELLO, REASON_RESOURCES };

struct hello {
	unsigned version; /* of the side that speaks */
	enum mode mode;
	enum reason reason;
};

const char *mode_name(enum mode mode);
void wire_put_hello(uint8_t out[WIRE_HELLO_BYTES], enum mode mode, enum reason reason);
/* false: not a hello. Its version may be another than ours. */
bool wire_get_hello(const void *in, size_t bytes, struct hello *hello);

/* Fill a region; `seed` is another one each time. Returns the checksum. */
uint64_t region_fill(uint8_t region[REGION_BYTES], const char *text, uint64_t seed);
/* Does it hold what some region_fill() wrote, each byte of it? *checksum is what it was computed to
 * be. */
bool region_check(const uint8_t region[REGION_BYTES], uint64_t *checksum);

#endif
