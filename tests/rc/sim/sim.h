/* SPDX-License-Identifier: BSD-3-Clause */
/* sim.h - the simulator: queue pairs of rc.h on two hosts, a link between them that harms packets,
 * virtual time, one seed.
 *
 * sim.c     the settings that a seed stands for, the event loop, the command line
 * link.c    packets under way: loss, duplication, reordering, delay, corruption
 * memory.c  registered memory and what may be done to it when; patterns
 * traffic.c what the programs on both sides post, and the check of every completion
 * failure.c requests made to fail and peers that die: what may complete how, then
 */
#ifndef ROPEWAY_SIM_H
#define ROPEWAY_SIM_H

#include "lib/pattern.h"
#include "rc/rc.h"
#include "wire/icrc.h"

/* What may go wrong for good, in one request of one end or, with DEATH, to a whole connection: see
 * failure.c. */
enum sim_failure {
	SIM_NO_FAILURE,
	SIM_BAD_RKEY,
	SIM_OUT_OF_BOUNDS,
	SIM_MISALIGNED,
	SIM_BAD_LKEY,
	SIM_TOO_LONG,
	SIM_DEATH,
	SIM_FAILURES
};

/* What a seed stands for; each may be set on the command line instead. */
struct sim_config {
	uint64_t seed, messages; /* messages: altogether, over all QPs */
	double loss, dup, reorder, corrupt, late;
	double stall; /* how often a program is slow to post receives: RNR */
	/* hosts stop for 5 ms to so long now and then: their packets wait, their timers are late */
	uint64_t stop_ns;
	uint64_t delay_ns, jitter_ns;
	unsigned conns;
	uint32_t mtu, size_max, sq_depth, rq_depth, sge_max, inline_max, cwnd_max, rd_atomic,
		queue_max;
	uint8_t timeout, min_rnr_timer;
	enum ibv_qp_type type;
	enum sim_failure failure; /* what goes wrong for good in this run, once */
	bool srq, one_way, sig_all, trace, timers_first;
};

enum {
	SIM_CONNS_MAX = 4,
	SIM_ENDS_MAX = 2 * SIM_CONNS_MAX,
	SIM_SGE_MAX = 4,
	SIM_SLOT_GAP = 16,
	SIM_HOT_WORDS = 4,
	SIM_QKEY = 0x11223344
};

/* One message as its sender knows it. */
struct sim_op {
	uint64_t id, pattern;
	enum ibv_wr_opcode opcode;
	uint32_t len, imm, inv_key;
	uint64_t remote_off;
	uint64_t compare, swap_add, expect_orig;
	bool signaled, solicited, is_inline, hot, executed, bad, after_failure;
	unsigned nsge, slot;
	struct {
		uint32_t off, len;
	} piece[SIM_SGE_MAX]; /* in the slot */
};

enum sim_use { SIM_LOCAL, SIM_RECV, SIM_REMOTE, SIM_USES };
struct sim_region {
	uint8_t *bytes;
	uint32_t len;
	uint64_t iova;
	uint32_t lkey, rkey;
	int access;
};

struct sim_recv {
	bool posted;
	uint64_t serial;
	unsigned nsge;
	uint32_t total;
	uint8_t junk;
	struct {
		uint32_t off, len;
	} piece[SIM_SGE_MAX];
};

struct sim_world;
struct sim_host {
	struct rpwi_cc cc; /* towards the other host */
	struct rpwi_addr addr;
	struct rpwi_rq srq;
	struct sim_region srq_region;
	struct sim_recv *srq_recv;
	uint64_t stop_from_ns, stop_to_ns; /* the stop that is, or that comes next */
};

/* One QP and the program behind it. */
struct sim_end {
	struct rpwi_qp qp;
	struct sim_world *w;
	struct sim_host *host;
	struct sim_end *peer;
	unsigned index;
	struct rpwi_av av;
	struct rpwi_rq own_rq, *rq;
	struct sim_region own_recv_region, *recv_region;
	struct sim_recv *own_recv, *recv;
	struct sim_region region[SIM_USES]; /* SIM_RECV unused: own_recv_region */
	uint8_t *shadow;    /* what region[SIM_REMOTE] has to hold, hot words as of the last post */
	struct sim_op *ops; /* ring: [op_head, op_tail) posted and not known complete */
	/* op_exec: next whose effect on the peer's receive queue is expected */
	uint64_t op_head, op_tail, op_exec;
	uint64_t to_post;
	uint64_t recv_posted, recv_done; /* of the QP's own queue: first in, first out */
	/* UC, UD: all that was ever posted; deliveries are looked up in it */
	struct sim_op *history;
	uint64_t history_len, history_next, delivered;
	uint64_t broken_at_ns;   /* when the first request or receive of it failed; RPWI_NEVER */
	uint64_t quiet_since_ns; /* since when it waits for the next completion */
	struct {
		uint64_t off, len;
	} * uncertain;
	unsigned uncertain_count; /* flushed WRITEs that may have happened */
	bool send_failed;         /* a request of it did */
	bool dead;                /* the link loses all of this connection */
	bool app_scheduled, held;
	uint64_t hold_until_ns;
	uint64_t last_arrival_ns; /* at the peer, for the order of what is not reordered */
	unsigned in_link;
};

struct sim_packet {
	struct sim_packet *next;
	struct sim_end *to;
	struct rpwi_flow flow;
	uint32_t len;
	uint8_t bytes[RPWI_PACKET_MAX];
};
struct sim_event {
	uint64_t at_ns, order;
	struct sim_packet *packet;
	struct sim_end *app;
};

struct sim_counts {
	uint64_t packets, lost, duplicated, reordered, corrupted, late, overflowed, shorts,
		retransmits, probes, stops, timeouts, rnr, seq_naks, messages, bytes, undelivered,
		failures, flushed;
};

struct sim_world {
	struct sim_config cfg;
	struct rng rng_link, rng_app, rng_setup, rng_stop;
	uint64_t now_ns, order, last_progress_ns;
	struct sim_end *victim;         /* whose request fails */
	uint64_t fail_at;               /* its number */
	uint64_t death_at_ns, death_ns; /* when the connection dies: planned, done */
	struct sim_host host[2];
	struct sim_end *ends; /* 2 * conns: 2i on host 0, 2i + 1 on host 1 */
	unsigned nends;
	struct sim_event *heap;
	size_t nheap, heap_cap;
	struct sim_packet *free_packets;
	struct rpwi_txb *txb;
	uint32_t serial; /* of regions */
	unsigned turn, stops;
	struct sim_counts n;
};

/* End the run: prints what went wrong and how to replay it; does not return. */
void sim_fail(struct sim_world *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));

/* link.c */
void sim_schedule(struct sim_world *w, uint64_t at_ns, struct sim_packet *p, struct sim_end *app);
struct sim_event sim_next_event(struct sim_world *w);
void sim_link_send(struct sim_end *from, const struct rpwi_txb *b);
bool sim_link_send_short(struct sim_end *e); /* if it has but one message, and that is one packet */
/* false: it was bad and is dropped */
bool sim_link_receive(struct sim_end *to, struct sim_packet *p);
void sim_packet_free(struct sim_world *w, struct sim_packet *p);

/* memory.c */
void *sim_alloc(size_t n); /* zeroed, aligned to 64; all of it is given back by sim_alloc_reset */
void sim_alloc_reset(void);
extern const struct rpwi_qp_ops sim_ops;
struct sim_region sim_region_make(struct sim_world *w, unsigned host, uint32_t len, int access);

/* traffic.c */
void sim_app_step(struct sim_end *e);
void sim_app_wake(struct sim_end *e);
void sim_on_complete(struct rpwi_qp *qp, bool recv, const struct ibv_wc *wc, bool solicited);
void sim_on_event(struct rpwi_qp *qp, enum ibv_event_type type);
bool sim_end_done(const struct sim_end *e);
uint8_t sim_junk_of(unsigned slot); /* what a receive slot holds where nothing was received */
static inline uint32_t sim_recv_size(const struct sim_config *c)
{
	return c->size_max + (c->type == IBV_QPT_UD ? RPWI_GRH_LEN : 0);
}
static inline uint32_t sim_slot_size(const struct sim_config *c)
{
	return sim_recv_size(c) + (SIM_SGE_MAX + 1) * SIM_SLOT_GAP;
}
void sim_check_at_end(struct sim_world *w);
void sim_check_landing(
	struct sim_end *e, struct sim_recv *r, const struct sim_op *op, uint32_t slot);

/* failure.c */
void sim_failure_plan(struct sim_world *w);
/* is the request about to be made the one that is to fail? */
bool sim_failure_due(const struct sim_end *e);
void sim_failure_make(struct sim_end *e, struct sim_op *op, struct ibv_send_wr *wr);
void sim_failure_tick(struct sim_world *w);
void sim_failed_send(struct sim_end *e, const struct ibv_wc *wc);
void sim_failed_recv(struct sim_end *e, const struct ibv_wc *wc);
void sim_failure_check_at_end(struct sim_end *e);
static inline bool sim_broken(const struct sim_end *e) { return e->broken_at_ns != RPWI_NEVER; }

/* datagram.c: UC and UD, where what was sent may be lost, or come twice or in another order where
 * the link does that. */
void sim_datagram_posted(struct sim_end *e, const struct sim_op *op);
void sim_datagram_received(struct sim_end *e, const struct ibv_wc *wc, bool solicited);
struct sim_op *sim_datagram_write(struct sim_end *by, uint64_t off, const void *src, uint32_t len);
void sim_datagram_check_at_end(struct sim_end *e);
static inline bool sim_is_rc(const struct sim_world *w) { return w->cfg.type == IBV_QPT_RC; }

static inline struct sim_op *sim_op_at(const struct sim_end *e, uint64_t i)
{
	return &e->ops[i % e->w->cfg.sq_depth];
}
/* The oldest request that may still have effects: what a QP in error has flushed may be under
 * way. */
static inline uint64_t sim_op_oldest(const struct sim_end *e)
{
	uint64_t depth = e->w->cfg.sq_depth;
	return !sim_broken(e) ? e->op_head : e->op_tail > depth ? e->op_tail - depth : 0;
}

static inline bool sim_is_read(enum ibv_wr_opcode o) { return o == IBV_WR_RDMA_READ; }
static inline bool sim_is_write(enum ibv_wr_opcode o)
{
	return o == IBV_WR_RDMA_WRITE || o == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static inline bool sim_is_send(enum ibv_wr_opcode o)
{
	return o == IBV_WR_SEND || o == IBV_WR_SEND_WITH_IMM || o == IBV_WR_SEND_WITH_INV;
}
static inline bool sim_is_atomic(enum ibv_wr_opcode o)
{
	return o == IBV_WR_ATOMIC_CMP_AND_SWP || o == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
static inline bool sim_is_atomic_write(enum ibv_wr_opcode o)
{
	return (int)o == RPWI_WR_ATOMIC_WRITE;
}
/* What names a place in the target's memory. */
static inline bool sim_is_remote(enum ibv_wr_opcode o)
{
	return sim_is_write(o) || sim_is_read(o) || sim_is_atomic(o) || sim_is_atomic_write(o);
}
static inline bool sim_has_imm(enum ibv_wr_opcode o)
{
	return o == IBV_WR_SEND_WITH_IMM || o == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static inline bool sim_takes_recv(enum ibv_wr_opcode o)
{
	return sim_is_send(o) || o == IBV_WR_RDMA_WRITE_WITH_IMM;
}

#endif
