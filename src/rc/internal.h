/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the files of rc/ share and nobody else sees.
 *
 * qp.c        states, attributes, posting, and the entry points, which only dispatch
 * requester.c sends requests: RC, UC, UD
 * completer.c takes the responses to an RC requester, ACKs and NAKs; retries
 * responder.c takes RC requests and executes them
 * answers.c   sends what the responder owes
 * datagram.c  takes UC and UD packets
 * rcv.c       fills receive WQEs: RC, UC, UD
 * silence.c   does what a requester does that hears nothing
 * stopped.c   does the WRITEs to a peer whose process is stopped
 * window.c    what a QP has of its peer's window
 * finish.c    completions, failed WQEs, flushing
 * forget.c, scatter.c, batch.c: what several of those need
 */
#ifndef ROPEWAY_RC_INTERNAL_H
#define ROPEWAY_RC_INTERNAL_H

#include "rc/rc.h"

enum {
	RPWI_READ_CHUNK_PKTS = 32,
	RPWI_READ_CHUNK_BYTES = 131072,
	RPWI_ACKREQ_EVERY = 16,
	/* a message of so many bytes at most waits for others, behind so many that are sent; behind
	 * one where so many are posted in a row */
	RPWI_GATHER_BYTES = 1024,
	RPWI_GATHER_BEHIND = 4,
	RPWI_GATHER_BURST = 8,
};
#define RPWI_ACK_HOLD_NS 20000ull /* an ACK is held so long at most, for a reply to take it along */
#define RPWI_PROBE_NS 500000000ull    /* attr.timeout 0: see completer.c */
enum { RPWI_UNWINDOWED_PKTS = 4096 }; /* in flight at most where there is no window */

/* qp->msg: the message being received */
enum rpwi_msg { RPWI_MSG_NONE, RPWI_MSG_SEND, RPWI_MSG_WRITE };

enum { RPWI_AETH_CREDITS_NONE = 0x1f }; /* IB 9.7.7.2: no end-to-end flow control */
static inline uint8_t rpwi_aeth(enum rpwi_aeth_kind kind, unsigned value)
{
	return (uint8_t)(kind << 5 | (value & 0x1f));
}

/* Free-running 32-bit numbers: PSNs as qp_struct.h keeps them, and ring indices. */
static inline bool rpwi_before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

static inline struct rpwi_swqe *rpwi_sq_at(const struct rpwi_qp *qp, uint32_t i)
{
	return &qp->sq[i & qp->sq_mask];
}
static inline bool rpwi_qp_is_rc(const struct rpwi_qp *qp) { return qp->type == IBV_QPT_RC; }

/* In cold places alone. */
static inline void rpwi_tell(struct rpwi_qp *qp, enum rpwi_told what, const struct rpwi_pkt *p)
{
	if (RPWI_UNLIKELY(qp->ops->told))
		qp->ops->told(qp, what, p, NULL);
}

/* The reasons for the general way that are over (RPWI_SLOW_*). */
static inline void rpwi_slow_end(struct rpwi_qp *qp, unsigned reasons)
{
	qp->slow &= (uint8_t)~reasons;
}
static inline void rpwi_qp_rnr_over(struct rpwi_qp *qp)
{
	qp->rnr_deadline_ns = RPWI_NEVER;
	rpwi_slow_end(qp, RPWI_SLOW_RNR);
}
static inline void rpwi_qp_enter(struct rpwi_qp *qp, enum ibv_qp_state state)
{
	qp->state = state;
	if (qp->state_to)
		*qp->state_to = (uint8_t)state;
	rpwi_slow_end(qp, RPWI_SLOW_STATE);
	if (state != IBV_QPS_RTS || !rpwi_qp_is_rc(qp))
		qp->slow |= RPWI_SLOW_STATE;
}
static inline bool rpwi_qp_receives(const struct rpwi_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE;
}
/* Its response fills the SGEs of its WQE. */
static inline bool rpwi_op_fetches(unsigned wr_opcode)
{
	return rpwi_op_needs_response(wr_opcode) && wr_opcode != RPWI_WR_ATOMIC_WRITE;
}

/* The facts about each work request opcode. */
struct rpwi_wr_info {
	uint8_t types;         /* of QPs that have it: a bit each, by enum ibv_qp_type */
	bool inline_ok, local; /* local: LOCAL_INV, BIND_MW, which send nothing */
	uint8_t wc_opcode;
	uint8_t first, middle, last, only; /* enum rpwi_op; READ and atomics use only `only` */
};
enum { RPWI_WR_OPCODES = RPWI_WR_ATOMIC_WRITE + 1 };

/* batch.c */
extern const struct rpwi_wr_info rpwi_wr_info[RPWI_WR_OPCODES];
/* May a packet to `av` go into this batch? The first one sets the destination. */
bool rpwi_txb_accepts(struct rpwi_txb *b, const struct rpwi_av *av);

/* qp.c */
/* rpwi_qp_post_send without its short way, which must come to the same. */
int rpwi_qp_post_any(struct rpwi_qp *qp, const struct ibv_send_wr *wr, const struct rpwi_av *ud_av);

/* finish.c */
/* An operation of this kind is complete: `good`, or with an error. */
static inline void rpwi_qp_count(
	struct rpwi_qp *qp, enum rpwi_counted kind, uint32_t bytes, bool good)
{
	if (RPWI_UNLIKELY(qp->counted & kind))
		qp->ops->count(qp, kind, bytes, good);
}
void rpwi_qp_complete_send(
	struct rpwi_qp *qp, const struct rpwi_swqe *w, enum ibv_wc_status status);
void rpwi_qp_complete_recv(struct rpwi_qp *qp, struct ibv_wc *wc, bool solicited);
/* The WQE at sq_head fails with `status`; ERR (RC) or SQE, and what follows is flushed. */
void rpwi_qp_fail_send(struct rpwi_qp *qp, enum ibv_wc_status status);
/* To ERR, flushing. `answer`: what the responder still has to say (responses queued, a NAK) is
 * said. */
void rpwi_qp_enter_err(struct rpwi_qp *qp, bool answer);

/* requester.c */
void rpwi_req_tx(struct rpwi_qp *qp, struct rpwi_txb *b, unsigned pkts_max, uint64_t now_ns);
bool rpwi_req_tx_short(
	struct rpwi_qp *qp, struct rpwi_short *out, uint32_t len_max, uint64_t now_ns);
enum rpwi_req_state { RPWI_REQ_IDLE, RPWI_REQ_BLOCKED, RPWI_REQ_READY };
enum rpwi_req_state rpwi_req_state(const struct rpwi_qp *qp);
void rpwi_req_reset(struct rpwi_qp *qp, uint32_t psn);
void rpwi_req_go_back(struct rpwi_qp *qp); /* to una */
/* sq_head went on: complete local operations, the WQE that failed before it was sent, a drain of
 * SQD. */
void rpwi_req_retired(struct rpwi_qp *qp);
void rpwi_req_sent(struct rpwi_qp *qp); /* UC, UD: the batch is with the kernel */
void rpwi_req_fault(struct rpwi_qp *qp, uint32_t psn);
uint64_t rpwi_req_ack_wait_ns(const struct rpwi_qp *qp);
void rpwi_req_count_wait(struct rpwi_qp *qp); /* before timeouts_in_row counts it */
/* something was sent or heard: the silence begins anew */
void rpwi_req_arm_probe(struct rpwi_qp *qp, uint64_t now_ns);
void rpwi_req_probe(struct rpwi_qp *qp, uint64_t now_ns); /* it has lasted long enough */

/* window.c; of a QP that has a window, qp->cc */
enum {
	RPWI_WINDOW_LENT = 1,
	RPWI_WINDOW_SILENT = 2,
	RPWI_WINDOW_SLOW = 4,
	RPWI_WINDOW_YIELDS = 8,
	RPWI_FEW_PKTS = 4,
};
uint32_t rpwi_window_room_now(const struct rpwi_qp *qp);
static inline uint32_t rpwi_window_room(const struct rpwi_qp *qp)
{
	return RPWI_LIKELY(!qp->window) ? rpwi_cc_room(qp->cc) : rpwi_window_room_now(qp);
}
/* How many may be in flight, of the QPs that count or of this one alone. */
uint32_t rpwi_window_cwnd(const struct rpwi_qp *qp);
/* Is it the window, and not the QP's own limit, that has no room for so many? */
bool rpwi_window_is_in_the_way(const struct rpwi_qp *qp, uint32_t need);
/* May a message of one packet go without room? */
bool rpwi_window_lends(const struct rpwi_qp *qp);
/* The message that goes next has no room, if this is one that is lent a place. */
void rpwi_window_lend(struct rpwi_qp *qp);
/* `pkts` go, and nxt has not gone on yet. It was not as a rule. */
void rpwi_window_sent(struct rpwi_qp *qp, uint32_t pkts);
/* So many of those in flight are no longer, without an acknowledgement; nxt and una are as before.
 * Also where there is no window. */
void rpwi_window_forget(struct rpwi_qp *qp, uint32_t pkts);
/* So many have been acknowledged, and una has gone on. It was not as a rule. */
void rpwi_window_acked(struct rpwi_qp *qp, uint32_t pkts, uint64_t now_ns);
void rpwi_window_silent(struct rpwi_qp *qp, uint64_t now_ns);
void rpwi_window_timed_out(struct rpwi_qp *qp, uint64_t now_ns);
/* From now on it is that one. */
void rpwi_window_move(struct rpwi_qp *qp, struct rpwi_cc *cc);

/* stopped.c */
/* Silence: if the peer's process is stopped, the WRITEs that it has not taken are done in its
 * memory. True: all before PSN *upto is done now. */
bool rpwi_stopped_look(struct rpwi_qp *qp, uint32_t *upto);
/* A WRITE that nothing is under way before is done, without a PSN, if the peer is still stopped.
 * False: by packets. */
bool rpwi_stopped_write(struct rpwi_qp *qp, const struct rpwi_swqe *w);

/* completer.c */
/* All before `upto` is done, though the peer, which is stopped, has acknowledged none of it. */
void rpwi_cpl_placed(struct rpwi_qp *qp, uint32_t upto, uint64_t now_ns);
void rpwi_cpl_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns);
void rpwi_cpl_timeout(struct rpwi_qp *qp, uint64_t now_ns);

/* scatter.c */
/* What a READ or an atomic brings, into the WQE's SGEs, `off` bytes on: 0, -EACCES or -EFAULT. */
int rpwi_cpl_scatter(struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t off,
	const uint8_t *data, uint32_t len);

/* forget.c */
void rpwi_req_forget(struct rpwi_qp *qp);   /* nothing is in flight any more */
void rpwi_resp_silence(struct rpwi_qp *qp); /* nor is any answer owed */

/* responder.c */
void rpwi_resp_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns);
int rpwi_resp_alloc(struct rpwi_qp *qp, uint32_t max_dest_rd_atomic);
void rpwi_resp_reset(struct rpwi_qp *qp, uint32_t psn);

/* answers.c */
static inline void rpwi_resp_owe_nak(struct rpwi_qp *qp, uint8_t syndrome, uint32_t psn)
{
	qp->slow |= RPWI_SLOW_NAK;
	qp->nak_syndrome = syndrome;
	qp->nak_psn = psn;
}
/* The request is refused for good: NAK, ERR. `recv_status`: how the receive WQE being filled
 * completes; where there is none, an event tells (IB table 58). */
void rpwi_resp_refuse(
	struct rpwi_qp *qp, enum rpwi_nak code, uint32_t psn, enum ibv_wc_status recv_status);
bool rpwi_resp_has_answers(const struct rpwi_qp *qp);
void rpwi_resp_tx(struct rpwi_qp *qp, struct rpwi_txb *b, uint64_t now_ns);
/* an ACK or NAK is to go, now */
bool rpwi_resp_ack_due(const struct rpwi_qp *qp, bool hold_ack, uint64_t now_ns);
void rpwi_resp_tx_ack(struct rpwi_qp *qp, struct rpwi_txb *b);
void rpwi_resp_lead_by_ack(struct rpwi_qp *qp, struct rpwi_short *s);

/* rcv.c */
void rpwi_resp_comm_est(struct rpwi_qp *qp);
/* a receive WQE into qp->rcv, if it has none; false when there is none */
bool rpwi_rcv_take(struct rpwi_qp *qp);
/* 0, -EMSGSIZE, -EACCES, -EFAULT */
int rpwi_rcv_scatter(struct rpwi_qp *qp, const void *data, uint32_t len);
void rpwi_rcv_done(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint32_t byte_len);
void rpwi_rcv_fail(struct rpwi_qp *qp, enum ibv_wc_status status);
/* Does a packet's payload have the length that its place in the message demands (IB 9.7.4.1.6)? And
 * does its operation continue what is being received? */
bool rpwi_rcv_length_ok(const struct rpwi_qp *qp, const struct rpwi_pkt *p);
bool rpwi_rcv_follows(const struct rpwi_qp *qp, const struct rpwi_pkt *p);

/* datagram.c */
void rpwi_uc_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p);
void rpwi_ud_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p, const struct rpwi_rxmeta *meta);

/* One more packet at the end of the batch, headers encoded; the caller adds its payload. */
static inline struct rpwi_txpkt *rpwi_txb_add(struct rpwi_txb *b)
{
	struct rpwi_txpkt *t = &b->pkt[b->npkt++];
	t->iov_first = (uint16_t)b->niov;
	t->iov_count = 0;
	t->stays = false;
	t->pad = 0;
	t->payload_len = 0;
	return t;
}
static inline unsigned rpwi_txb_room(const struct rpwi_txb *b)
{
	unsigned max = RPWI_MIN(b->pkt_max, (unsigned)RPWI_TXB_PKTS);
	return b->npkt < max ? max - b->npkt : 0;
}

#endif
