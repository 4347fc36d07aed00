/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_priv.h - what the cases of one-sided plugins share: a comm of all sides that stays from one
 * case to the next, with memory, and the operations on it. */
#ifndef ROPEWAY_NCCLNET_RMA_PRIV_H
#define ROPEWAY_NCCLNET_RMA_PRIV_H

#include "ncclnet/check/conform_priv.h"
#include "ncclnet/drive/rma.h"

enum {
	RMA_SIGNALS = 512,    /* words at the start of the window */
	RMA_AREA = 1 << 20,   /* behind them, of each rank that writes here */
	RMA_PER_RECEIVE = 32, /* requests in flight for each receive of a group */
	RMA_SOURCE = RMA_AREA + 4096,
};

struct rma_checked {
	struct rma_side r;
	bool initialized;
	/* all sides, RMA_CONTEXTS contexts; `window` is written to, `source` is put from */
	struct rma_comm world;
	struct rma_mem window, source;
	unsigned signals; /* words that cases have taken: all sides alike */
	uint64_t number;  /* of patterns: all sides alike */
};

/* The world is up: opened by the first case that needs it. */
bool rma_world(struct conform *c);
/* n words of the window that no case has used: the offset of the first. */
uint64_t rma_take(struct conform *c, unsigned n);
static inline uint64_t *rma_word(const struct conform *c, uint64_t offset)
{
	return (uint64_t *)(void *)(c->rma->window.at + offset);
}
/* Where rank `by` writes to. */
static inline uint64_t rma_area(int by)
{
	return RMA_SIGNALS * sizeof(uint64_t) + (uint64_t)by * RMA_AREA;
}
static inline int rma_me(const struct conform *c) { return c->s->role; }
static inline int rma_ranks(const struct conform *c) { return c->o->ranks; }
static inline int rma_next(const struct conform *c) { return (rma_me(c) + 1) % rma_ranks(c); }
static inline int rma_before(const struct conform *c)
{
	return (rma_me(c) + rma_ranks(c) - 1) % rma_ranks(c);
}
static inline bool rma_met(struct conform *c) { return rma_meet(&c->rma->r, &c->rma->world); }
/* A put from the source to our area at `rank`; and with an increment of a word there. */
struct ncclnet_rma_op rma_op(const struct conform *c, int rank, size_t size);
struct ncclnet_rma_op rma_signaled(const struct conform *c, int rank, size_t size, uint64_t word);
/* A signal alone. */
struct ncclnet_rma_op rma_signal(const struct conform *c, int rank, uint64_t word);
/* A number of its own for what `by` puts to `to` as piece `n` of this case. */
static inline uint64_t rma_salt(const struct conform *c, int by, int to, uint64_t n)
{
	return c->rma->number << 40 | (uint64_t)by << 36 | (uint64_t)to << 32 | n;
}
/* The next case's patterns are others. */
static inline void rma_renumber(struct conform *c) { c->rma->number++; }
/* Fails with the place, if memory is not that pattern. */
bool rma_is(struct conform *c, const char *what, const void *at, size_t size, uint64_t salt);
/* A signaled put of `size` bytes to the next rank, verified: does this comm work? */
bool rma_exchange(struct conform *c, struct rma_comm *m, size_t size);
/* What went wrong is what was to be seen. */
static inline void rma_forgive(struct conform *c)
{
	c->s->why = NULL;
	c->s->waited = false;
}
bool rma_prepare(struct conform *c, unsigned flags);

void case_rma_load(struct conform *c);
void case_rma_table(struct conform *c);
void case_rma_iflush(struct conform *c);
void case_rma_name(struct conform *c);
void case_rma_init(struct conform *c);
void case_rma_devices(struct conform *c);
void case_rma_properties(struct conform *c);
void case_rma_outside(struct conform *c);
void case_rma_type(struct conform *c);
void case_rma_listen(struct conform *c);
void case_rma_connect(struct conform *c);
void case_rma_ranks(struct conform *c);
void case_rma_claims(struct conform *c);
void case_rma_reg(struct conform *c);
void case_rma_reg_order(struct conform *c);
void case_rma_reg_twice(struct conform *c);
void case_rma_reg_type(struct conform *c);
void case_rma_put(struct conform *c);
void case_rma_large(struct conform *c);
void case_rma_self(struct conform *c);
void case_rma_ends(struct conform *c);
void case_rma_signal_only(struct conform *c);
void case_rma_signals(struct conform *c);
void case_rma_signal_window(struct conform *c);
void case_rma_source(struct conform *c);
void case_rma_get(struct conform *c);
void case_rma_more(struct conform *c);
void case_rma_strong(struct conform *c);
void case_rma_weak(struct conform *c);
void case_rma_sums(struct conform *c);
void case_rma_in_flight(struct conform *c);
void case_rma_beyond(struct conform *c);
void case_rma_wrong_rank(struct conform *c);
void case_rma_mixed(struct conform *c);
void case_rma_killed(struct conform *c);
void case_rma_close_busy(struct conform *c);
void case_rma_dereg_busy(struct conform *c);
void case_rma_finalize(struct conform *c);

#endif
