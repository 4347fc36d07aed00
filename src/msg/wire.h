/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.h - what msg puts on a path: the head of each frame, and the bodies that have a form.
 * Little-endian (boot's hello refuses another byte order).
 *
 * Frames of one direction are numbered by counting (a path keeps order and loses nothing); only
 * CREDIT, PART and RTR are not counted, since sending them twice or not at all does no harm. A
 * frame that costs memory at the receiver until it is matched is paid for in units: see
 * credit.c. */
#ifndef ROPEWAY_MSG_WIRE_H
#define ROPEWAY_MSG_WIRE_H

#include <string.h>

#include "ropeway.h"
#include "tran/tran.h"

struct frame_head {
	uint8_t type, flags;
	uint16_t ack;    /* how many counted frames have come, modulo 2^16 */
	uint32_t credit; /* up to which unit the receiver of this frame may send */
	uint64_t tag;    /* what it is, by type: below */
};
_Static_assert(sizeof(struct frame_head) == 16, "two 8-byte messages fit into a cache line");

/* Made in two registers: a transport copies it 8 bytes at a time, and a load that straddles smaller
 * stores waits for them (rpwi_copy_small). */
static inline struct frame_head frame_head_make(
	unsigned type, unsigned flags, uint64_t ack, uint32_t credit, uint64_t tag)
{
	const uint64_t words[2] = {(type & 0xff) | (uint64_t)(flags & 0xff) << 8 |
					   (ack & 0xffff) << 16 | (uint64_t)credit << 32,
		tag};
	struct frame_head h;
	memcpy(&h, words, sizeof(h));
	return h;
}

enum frame_type {
	FRAME_TAG = 1,  /* a tagged message: tag; body */
	FRAME_OBJECT,   /* tag: the sender's number of it; body */
	FRAME_AM,       /* tag: am_word; the head goes on with the program's header; body */
	FRAME_RTS,      /* flags: enum rts_kind; body: struct rts_body */
	FRAME_DONE,     /* flags: done_word; tag: the number of a request that is over, or wanted */
	FRAME_WITHDRAW, /* tag: the number of an RTS or an OBJECT that its sender wants to cancel */
	FRAME_NOTIFY,   /* tag: the program's 64 bits; body: u64, how long the put was */
	FRAME_FLUSH,    /* tag: a number; answered by DONE */
	FRAME_ATOMIC,   /* tag: the sender's number; body: struct atomic_body; answered by DONE */
	/* Of memory in GPUs: pipeline.c. */
	FRAME_PULL, /* tag: the number of an RTS (or PUT) that is to come as chunks */
	/* the head goes on with struct ask_body; body: struct rts_body, of the bytes that are to
	 * get there; answered by DONE */
	FRAME_PUT,
	FRAME_GET, /* tag: the asker's number; body: struct ask_body; answered by an RTS, or DONE */
	FRAME_LOAN, /* a tagged message that lies in a pool: tag; body: struct loan_body */
	FRAME_COUNTED_LAST = FRAME_LOAN,
	/* for the sake of its head; flags: credit_flags; tag: so many units are waited for, or 0 */
	FRAME_CREDIT,
	/* the beginning of a body that this path does not take whole, since it was made for
	 * another: the frame that it is of follows. tag: at which byte of the body */
	FRAME_PART,
	/* ready to receive: tag: the number of an RTS whose message may be put; body: struct
	 * rts_body, of where to, with the receiver's number */
	FRAME_RTR,
	FRAME_TYPES,
};
/* Flags of TAG, OBJECT and AM. */
enum {
	FRAME_ACK_SOON = 0x80, /* the sender's buffer is in use until it is acknowledged */
	FRAME_PARTED = 0x40,   /* the first bytes of the body came before, in PARTs */
};
/* Of CREDIT: the receiver reads messages where they lie (a loan may carry them), or copies them. 0:
 * as before. */
enum credit_flags { CREDIT_VIEWS = 1, CREDIT_COPIES };
enum rts_kind {
	RTS_TAG,    /* a message; tag: its tag */
	RTS_OBJECT, /* tag: 0 */
	RTS_AM,     /* tag: am_word */
	/* a new path: what the RTS of that number offers, described for it; without a body when it
	 * has been taken meanwhile */
	RTS_AGAIN,
	RTS_CHUNK, /* tag: the number of the message that is pulled; its next stretch */
	RTS_GOT,   /* tag: the number of a GET, which it answers */
	RTS_KINDS
};
/* What is over: in the upper bits of a DONE's flags, above -status. */
enum done_kind {
	DONE_FETCHED, /* of an RTS, OBJECT, PUT or GET: its memory is free */
	DONE_FLUSHED,
	DONE_ATOMIC, /* body: u64, the value before */
	DONE_CHUNKS, /* no more of them */
	/* after a put; the number in an RTR: the message is there, or has to be fetched */
	DONE_PLACED,
	DONE_KINDS
};
enum { DONE_STATUS_BITS = 5 };
_Static_assert(-RPW_ERR_EXPIRED < 1 << DONE_STATUS_BITS && DONE_KINDS <= 8, "both fit");
static inline unsigned done_word(enum done_kind kind, int status)
{
	return (unsigned)kind << DONE_STATUS_BITS | (unsigned)-status;
}

/* An active message's id and the length of its header, in a tag. */
static inline uint64_t am_word(unsigned id, size_t header_len)
{
	return id | (uint64_t)header_len << 8;
}

enum { RTS_PIECES_MAX = 16, RTS_BODY_MAX = 24 + RTS_PIECES_MAX * (9 + TRAN_DESC_MAX) + 256 };
/* Without pieces, or with one whose description is empty (since the path has changed): it cannot be
 * fetched, only pulled. Followed by `pieces` times: u64 length, u8 n, n bytes of the description;
 * then am_header_len bytes. */
struct rts_body {
	uint64_t number, len;
	uint16_t pieces, am_header_len;
	uint32_t zero;
};
_Static_assert(sizeof(struct rts_body) == 24, "no padding on the wire");

/* Where a loaned message is: a pool of its sender's, which its transport has shown. `number` goes
 * into the slot's word when the message is given back. */
struct loan_body {
	uint32_t pool, generation, slot, zero;
	uint64_t number, len;
};
_Static_assert(sizeof(struct loan_body) == 32, "no padding on the wire");

struct ask_body {
	uint64_t region, secret, offset, len; /* region and secret: from the remote key */
};
_Static_assert(sizeof(struct ask_body) == 32, "no padding on the wire");

struct atomic_body {
	/* region and secret: from the remote key */
	uint64_t region, secret, offset, operand, compare;
	uint32_t op, zero;
};
_Static_assert(sizeof(struct atomic_body) == 48, "no padding on the wire");

/* Over boot. Each message ends with the CRC-32 of the bytes before. `attempt` tells late words
 * about an earlier path from those about this one. */
enum boot_type { SAY_CHOICE = 1, SAY_ANSWER, SAY_READY, SAY_BROKEN, SAY_NO_PATH, SAY_BYE };
enum { SAY_VERSION = 6 };
enum { SAY_ORDERLY = 1 }; /* of BYE: the program shut the endpoint down, or its peer had */
/* of BROKEN: the next path by this transport will be made otherwise. Said to those alone whose
 * transport has shown that it may be (verbs: that it greets in full width) */
enum { SAY_AGAIN = 2 };
/* CHOICE, ANSWER; followed by text (why, or why not) and the transport's handle */
struct say_path {
	uint16_t version, attempt;
	int32_t status; /* ANSWER: 0 or why not */
	uint64_t message_tag, control_tag, domain;
	uint64_t received; /* counted frames so far */
	uint32_t credit;
	uint16_t text_len, handle_len;
	char transport[16];
};
_Static_assert(sizeof(struct say_path) == 64, "no padding on the wire");
struct say_word { /* READY, BROKEN, NO_PATH, BYE; followed by text */
	uint16_t version, attempt;
	uint16_t text_len, flags;
	uint64_t sent, received; /* BYE: so many counted frames were sent, and have come */
};
_Static_assert(sizeof(struct say_word) == 24, "no padding on the wire");

/* A packed remote key: followed by `descs` times: char name[8], u8 n, n bytes; then the CRC-32 of
 * it all. */
enum {
	RKEY_MAGIC = 0x4b575052,
	RKEY_VERSION = 1,
	/* of access: in a GPU; descriptions for transports that reach it by themselves */
	RKEY_DEVICE = 0x80
};
struct rkey_head {
	uint32_t magic;
	uint16_t version;
	uint8_t descs, access;
	uint64_t domain, region, secret, len;
};
_Static_assert(sizeof(struct rkey_head) == 40, "no padding on the wire");

#endif
