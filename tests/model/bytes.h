/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.h - the bytes of a direction as they must be: what its steps leave in the sender's sink,
 * in the target and in the receives. */
#ifndef TESTS_MODEL_BYTES_H
#define TESTS_MODEL_BYTES_H

#include "plan.h"

/* What the specification leaves open, as narrow as can be, and how often it was seen. */
enum choice {
	CH_CUT,        /* a QP ended: a WRITE took place, though its completion never came */
	CH_CUT_WITHIN, /* ... and a WRITE took place in part: whole packets, the first ones */
	CH_SINK_EARLY, /* a READ or atomic that never completed had put bytes into its sink */
	CH_RX_EARLY,   /* a receive that never completed had got bytes of its own message */
	CH_RX_STALE,   /* ... fetched after the sender's QP was gone */
	CH_FLUSH_PEER, /* a QP's requests were flushed since its peer refused or ended */
	CH_RETRY_EXC,  /* ... or failed by themselves, since nobody answered */
	CH_UC_LOST,    /* a SEND or WRITE with immediate over UC did not arrive */
	CH_UC_WRITE,   /* a WRITE over UC did not arrive, or in part */
	CH_UC_PARTLY,  /* a SEND over UC arrived in part, and its receive waited for the next */
	CH_UD_LOST,    /* a datagram did not arrive */
	CH_UD_ORDER,   /* or later than one behind it */
	CH_UD_TWICE,   /* or twice: only with injected duplicates */
	CH_AFTER_END,  /* a completion of a QP was polled after it was destroyed */
	CH_SRQ_LOST,   /* a receive of a SRQ was taken by a QP that ended before its message did */
	CHOICES
};
extern const char *const choice_names[CHOICES];

struct tally {
	uint64_t ops, bytes, completions, choice[CHOICES];
};

struct image {
	uint8_t *tx, *sink, *tgt, *msg; /* msg: the payload of the step applied last */
};
void image_make(struct image *im);
/* A new round, or a new pair of QPs. */
void image_round(struct image *im, const struct stream *st);
void image_target(struct image *im, uint64_t seed);
/* What comes of the step; true: it has put its payload into msg. */
bool image_apply(struct image *im, const struct stream *st, struct step *p);
/* The payload alone. */
void image_payload(struct image *im, const struct stream *st, const struct step *p);

/* Each byte of `at` is `old` or `new`, and so are whole packets of `mtu` bytes; `stale` (0: no) is
 * allowed as well. 0: not so; 1: all old; 2: some is new; 3: some is stale. */
int bytes_mixed(const uint8_t *at, const uint8_t *old, const uint8_t *new_, uint32_t len,
	uint32_t mtu, uint8_t stale);
/* Says where they differ; true: nowhere. */
bool bytes_same(const char *what, const uint8_t *is, const uint8_t *should, size_t n, char *why,
	size_t room);
bool bytes_all(
	const char *what, const uint8_t *is, uint8_t should, size_t n, char *why, size_t room);

#endif
