/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.h - what a direction of a connection does in a round, with all that follows from its
 * operations: each side works out both directions. */
#ifndef TESTS_MODEL_PLAN_H
#define TESTS_MODEL_PLAN_H

#include "model.h"

enum { STREAM_MAX = 512, NO_MSG = 0xffff };

struct step {
	uint8_t kind, flags, nsge, bad;
	uint16_t msg; /* it takes the receive with that number; NO_MSG: none */
	uint32_t len, cut, to, room, imm;
	uint32_t sink_at;  /* where READs and atomics put what they get */
	uint32_t sink_top; /* what is below has been read before */
	uint64_t compare;  /* of a CAS: image_apply works it out */
};

struct stream {
	const struct conn *conn;
	uint16_t conn_number, round;
	uint8_t dir;
	uint64_t seed;
	unsigned n, msgs, bad; /* bad: the step that fails; n: none */
	uint32_t tx_len, sink_used, rx_used;
	bool shared; /* its receives come from a SRQ */
	struct step step[STREAM_MAX];
	uint16_t step_of[STREAM_MAX]; /* by message */
	uint32_t rx_at[STREAM_MAX], rx_room[STREAM_MAX], rx_cut[STREAM_MAX];
};

struct piece {
	uint32_t at, len;
};

/* Operations of the round, which lie together, sorted by connection. */
struct span {
	const struct op *op;
	uint32_t n;
};
struct span plan_round(const struct script *s, unsigned round);
void plan_stream(
	struct stream *st, const struct script *s, struct span ops, unsigned conn, unsigned dir);

/* Where the bytes of a message come from (in the pattern or the sink), where a READ's go, and where
 * those of a receive do. Returns how many pieces. */
unsigned plan_gather(const struct stream *st, const struct step *p, struct piece *out);
unsigned plan_scatter(const struct step *p, struct piece *out);
unsigned plan_receive(const struct stream *st, unsigned msg, struct piece *out);

/* Does the connection end in this round: by a happening, or by a request that fails? */
struct fate {
	bool dies;
	int bad_dir;               /* -1: no request fails */
	const struct happening *h; /* of the connection itself, or NULL */
	int killed;                /* the process that is killed in this round, or -1 */
};
struct fate plan_fate(const struct script *s, struct span ops, unsigned round, unsigned conn);

static inline bool kind_is_send(uint8_t k) { return k <= K_SEND_INV; }
static inline bool kind_takes_receive(uint8_t k) { return kind_is_send(k) || k == K_WRITE_IMM; }
static inline bool kind_is_atomic(uint8_t k) { return k == K_CAS || k == K_ADD; }
static inline bool kind_has_payload(uint8_t k) { return k <= K_WRITE_IMM || k == K_AWRITE; }

#endif
