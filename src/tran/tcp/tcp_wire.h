/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_wire.h - the bytes of tran_tcp: the handle that boot carries, the greeting of each stream,
 * and the header before everything that follows. Pure: encode, decode, check.
 *
 * All numbers are big-endian. A stream begins with a greeting from the side that connected; then,
 * in both directions, come headers of 16 bytes, each followed by what its kind says. Stream 0
 * carries the frames of all endpoints between two contexts, told apart by their numbers, and words
 * about endpoints; one stream is enough for everything. Others carry large bulk data: of what it is
 * frames have told (tran/emulate.h), or will on a stream that was slower. They are greeted back.
 *
 *   handle    "RPTH" version flags port number nonce[16] count address[count][17]   an address:
 *             family 4 or 6, 16 bytes
 *   greeting  "RPTG" version stream number nonce[16]    of an endpoint of the side that listens: on
 *                                                       stream 0 one that waits, else the founder.
 *                                                       Back: the founder's on the other side
 *   attach    header, own number, nonce[16]             id: the endpoint at the receiver whose
 *                                                       nonce this is; from the side that connected
 *   attached  header, nonce[16]                         id and nonce: of the endpoint that asked.
 *                                                       The one attached first on this stream
 *                                                       is the founder
 *   leave     header                                    id: the endpoint at the receiver; of the
 *                                                       sender's side nothing more will come, or
 *                                                       (answer 1) it does not wait for that one
 *   frame     header, head[head_len], body[len]         id: the endpoint at the receiver. Frames to
 *                                                       one that was closed are of no meaning
 *   bulk      header, its id[4], body[len], an end      id: the endpoint at the receiver. Answer 1:
 *                                                       its memory is gone, len is 0, and there is
 *                                                       no body and no end
 *   end       header                                    of the body before it; its answer says
 *                                                       whether the memory was still there when the
 *                                                       last byte left
 *   open      header                                    please connect one more stream (to the side
 *                                                       that connects)
 */
#ifndef ROPEWAY_TRAN_TCP_WIRE_H
#define ROPEWAY_TRAN_TCP_WIRE_H

#include "base/base.h"
#include "tran/tran.h"

enum {
	TCP_VERSION = 5, /* 5: a kind for long frames */
	TCP_NONCE_LEN = 16,
	TCP_ADDRESSES_MAX = 16,
	TCP_HANDLE_FIXED = 4 + 2 + 2 + 2 + 4 + TCP_NONCE_LEN + 2,
	TCP_ADDRESS_LEN = 17,
	TCP_GREETING_LEN = 4 + 2 + 2 + 4 + TCP_NONCE_LEN,
	TCP_HEADER_LEN = 16,
	TCP_BULK_ID_LEN = 4,
	TCP_ATTACH_LEN = 4 + TCP_NONCE_LEN,
	TCP_FRAME_MAX = 128 * 1024, /* body of a frame */
	/* of a context whose memory is polled: longer ones are long frames, which lose nothing
	 * there, since all of it is copied from a buffer */
	TCP_POLLED_FRAME_MAX = 24 * 1024,
	TCP_LONG_MAX = 1024 * 1024, /* of a long one */
	TCP_BULK_MAX = 1024 * 1024, /* of one message of bulk data */
	TCP_STREAMS_MAX = 4,
};
_Static_assert(
	TCP_HANDLE_FIXED + TCP_ADDRESSES_MAX * TCP_ADDRESS_LEN <= TRAN_HANDLE_MAX, "a handle fits");

enum tcp_kind {
	TCP_FRAME = 0xa1,
	TCP_BULK = 0xa2,
	TCP_END = 0xa3,
	TCP_OPEN = 0xa4,
	TCP_ATTACH = 0xa5,
	TCP_ATTACHED = 0xa6,
	TCP_LEAVE = 0xa7,
	TCP_LONG = 0xa8, /* a frame whose body is put into its place as it comes */
};

/* Not enum rpw_status, whose values may grow. */
enum tcp_answer { TCP_OK = 0, TCP_NO_ACCESS = 1 };

struct tcp_header {
	uint8_t kind;
	uint8_t answer;    /* of bulk data, of its end, of a close */
	uint16_t head_len; /* of a frame */
	uint32_t id;       /* the endpoint's number at the receiver */
	uint32_t len;      /* frame: body; bulk: body */
};

static inline void tcp_put_header(uint8_t *p, const struct tcp_header *h)
{
	p[0] = h->kind;
	p[1] = h->answer;
	rpwi_put_be16(p + 2, h->head_len);
	rpwi_put_be32(p + 4, h->id);
	rpwi_put_be64(p + 8, h->len);
}

struct tcp_limit {
	uint16_t head_max;
	uint8_t answer_max;
	bool id;
	uint64_t value_max;
};

static inline const char *tcp_beyond(
	const struct tcp_limit *l, const struct tcp_header *h, uint64_t value)
{
	if (h->head_len > l->head_max)
		return "a head longer than any";
	if (h->answer > l->answer_max)
		return "an unknown answer";
	if (value > l->value_max)
		return "a length beyond the limit";
	return h->id && !l->id ? "an id where none belongs" : NULL;
}

/* 0, or -1 with *why: nothing like this comes from a peer that keeps to the rules. */
static inline int tcp_get_header(const uint8_t *p, struct tcp_header *h, const char **why)
{
	uint64_t value = rpwi_get_be64(p + 8);
	*h = (struct tcp_header){.kind = p[0],
		.answer = p[1],
		.head_len = rpwi_get_be16(p + 2),
		.id = rpwi_get_be32(p + 4),
		.len = (uint32_t)value};
	static const struct tcp_limit limits[] = {
		{TRAN_HEAD_MAX, 0, true, TCP_FRAME_MAX},
		{0, TCP_NO_ACCESS, true, TCP_BULK_MAX},
		{0, TCP_NO_ACCESS, true, 0},
		{0, 0, false, 0},
		{0, 0, true, 0},
		{0, 0, true, 0},
		{0, TCP_NO_ACCESS, true, 0},
		{TRAN_HEAD_MAX, 0, true, TCP_LONG_MAX},
	};
	_Static_assert(RPWI_ARRAY_LEN(limits) == TCP_LONG - TCP_FRAME + 1, "one row for each kind");
	if (h->kind < TCP_FRAME || h->kind > TCP_LONG) {
		*why = "an unknown kind of header";
		return -1;
	}
	*why = tcp_beyond(&limits[h->kind - TCP_FRAME], h, value);
	return *why ? -1 : 0;
}

/* Bytes that follow the header and must be there before it can be acted on; the body of a long
 * frame, or of bulk data, is not among them. */
static inline size_t tcp_more_len(const struct tcp_header *h)
{
	switch (h->kind) {
	case TCP_FRAME:
		return (size_t)h->head_len + h->len;
	case TCP_LONG:
		return h->head_len;
	case TCP_BULK:
		return TCP_BULK_ID_LEN;
	case TCP_ATTACH:
		return TCP_ATTACH_LEN;
	case TCP_ATTACHED:
		return TCP_NONCE_LEN;
	default:
		return 0;
	}
}

struct tcp_address {
	uint8_t family; /* 4 or 6 */
	uint8_t bytes[16];
};
struct tcp_handle {
	uint16_t port; /* 0: this side connects */
	uint32_t number;
	uint8_t nonce[TCP_NONCE_LEN];
	unsigned count;
	struct tcp_address address[TCP_ADDRESSES_MAX];
};
struct tcp_greeting {
	uint16_t stream; /* 0 is the one that carries frames */
	uint32_t number;
	uint8_t nonce[TCP_NONCE_LEN];
};

/* In constant time: a wrong byte tells nothing of the right ones. */
static inline bool tcp_nonce_differs(const uint8_t *a, const uint8_t *b)
{
	unsigned wrong = 0;
	for (unsigned i = 0; i < TCP_NONCE_LEN; i++)
		wrong |= a[i] ^ b[i];
	return wrong;
}

size_t tcp_put_handle(uint8_t *p, const struct tcp_handle *h);
/* 0, or -1 with a sentence. */
int tcp_get_handle(const uint8_t *p, size_t len, struct tcp_handle *h, char *why, size_t why_len);
void tcp_put_greeting(uint8_t *p, const struct tcp_greeting *g);
int tcp_get_greeting(const uint8_t *p, struct tcp_greeting *g);

#endif
