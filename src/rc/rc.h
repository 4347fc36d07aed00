/* SPDX-License-Identifier: BSD-3-Clause */
/* rc.h - the transport: queue pairs of types RC, UC and UD, sans-I/O.
 *
 * A QP here makes no system call, reads no clock, allocates nothing after rpwi_qp_init. Packets and
 * time come in as arguments (rpwi_qp_rx, rpwi_qp_timer); packets go out into a batch (rpwi_qp_tx),
 * completions and events through struct rpwi_qp_ops; the next deadline is asked for
 * (rpwi_qp_deadline). So it runs alike under the device and in the simulator.
 *
 * Threads: none of it locks; the caller holds its lock over every call with the same QP, its CC and
 * its RQ. Sources: IB spec vol. 1 chapters 9 (transport), 10 (QP states, 10.3; completion and flush
 * rules, 10.7-10.8) and 11 (verbs).
 */
#ifndef ROPEWAY_RC_H
#define ROPEWAY_RC_H

#include <infiniband/verbs.h>

#include "wire/counts.h"
#include "wire/packet.h"

struct rpwi_qp;

/* By number: rdma-core before 44 has no names for them. */
enum { RPWI_WR_ATOMIC_WRITE = 15, RPWI_WC_ATOMIC_WRITE = 9, RPWI_ATOMIC_WRITE_LEN = 8 };

/* ---- What a work request does, by its opcode. ---- */
static inline bool rpwi_op_needs_response(unsigned wr_opcode)
{
	return wr_opcode == IBV_WR_RDMA_READ || wr_opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       wr_opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr_opcode == RPWI_WR_ATOMIC_WRITE;
}
static inline bool rpwi_op_sends(unsigned wr_opcode)
{
	return wr_opcode == IBV_WR_SEND || wr_opcode == IBV_WR_SEND_WITH_IMM ||
	       wr_opcode == IBV_WR_SEND_WITH_INV;
}
static inline bool rpwi_op_writes(unsigned wr_opcode)
{
	return wr_opcode == IBV_WR_RDMA_WRITE || wr_opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
/* It uses a receive of the peer. */
static inline bool rpwi_op_wants_receive(unsigned wr_opcode)
{
	return rpwi_op_sends(wr_opcode) || wr_opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
/* It names memory of the peer. */
static inline bool rpwi_op_is_one_sided(unsigned wr_opcode)
{
	return rpwi_op_writes(wr_opcode) || rpwi_op_needs_response(wr_opcode);
}

/* ---- Receive queue (rq.c): a QP's own, or a SRQ shared by several QPs. A bounded ring of receive
 * WQEs. ---- */
struct rpwi_rwqe {
	uint64_t wr_id;
	uint16_t nsge;
	uint8_t doom; /* what it completes with instead, by rpwi_rq_doom; 0: nothing */
	uint32_t len; /* sum of the SGEs */
	struct ibv_sge *sge;
};
struct rpwi_rq {
	uint32_t wr_max, sge_max;  /* wr_max is as given; the ring is the next power of two */
	uint32_t mask, head, tail; /* free-running: tail - head are posted */
	struct rpwi_rwqe *ring;
	struct ibv_sge *sges;
	bool shared;    /* SRQ */
	uint32_t limit; /* SRQ limit, 0 not armed */
};
/* 0 or -ENOMEM/-EINVAL */
int rpwi_rq_init(struct rpwi_rq *rq, uint32_t wr_max, uint32_t sge_max, bool shared);
void rpwi_rq_fini(struct rpwi_rq *rq);
/* keeps what is posted; -EINVAL if it would not fit */
int rpwi_rq_resize(struct rpwi_rq *rq, uint32_t wr_max);
/* one WR; 0, -ENOMEM full, -EINVAL too many SGEs */
int rpwi_rq_post(struct rpwi_rq *rq, const struct ibv_recv_wr *wr);
static inline uint32_t rpwi_rq_count(const struct rpwi_rq *rq) { return rq->tail - rq->head; }

/* ---- Congestion window (cc.c): one for each peer process, shared by all QPs towards it; in
 * packets. Who counts there, and who does not: window.c. ---- */
struct rpwi_cc {
	uint32_t cwnd, cwnd_max, ssthresh;
	/* request packets, and READ response packets awaited, not yet acknowledged */
	uint32_t inflight;
	uint32_t lent, lent_max;    /* likewise, beside those */
	uint32_t acked_partial;     /* for additive increase */
	uint64_t recovery_until_ns; /* at most one reduction in a round trip */
	uint64_t srtt_ns;
	uint64_t rtt_min_ns; /* the shortest; 0: not known */
	/* a QP without an answer for so long counts no more, if others have one (window.c). By the
	 * shortest round trip: one slow answer makes the mean long */
	uint64_t silence_ns;
	/* something was acknowledged; a QP stopped counting, for want of that */
	uint64_t heard_ns, silent_ns;
	uint64_t losses;
	/* rpwi_qp_may_gather: posts since nothing was under way, up to RPWI_GATHER_BURST; whether
	 * there were as many the time before */
	uint8_t burst;
	bool bursts;
};
/* How many packets may be under way to one peer: what a socket of the default size holds (measured:
 * 6 batches of 60 KiB, 184 datagrams of 1 KiB, 512 small ones), in proportion where ours, and so
 * probably the peer's, is larger. Loss makes it smaller. */
uint32_t rpwi_cc_window(unsigned mtu_bytes, size_t rcvbuf_bytes);
void rpwi_cc_init(struct rpwi_cc *cc, uint32_t cwnd_initial, uint32_t cwnd_max);
void rpwi_cc_at_most(struct rpwi_cc *cc, uint32_t cwnd_max); /* smaller, perhaps, from now on */
static inline uint32_t rpwi_cc_room(const struct rpwi_cc *cc)
{
	return cc->inflight < cc->cwnd ? cc->cwnd - cc->inflight : 0;
}
static inline void rpwi_cc_on_send(struct rpwi_cc *cc, uint32_t pkts) { cc->inflight += pkts; }
void rpwi_cc_on_ack(struct rpwi_cc *cc, uint32_t pkts, uint64_t now_ns);
/* no longer in flight, but not acknowledged: go-back, reset, error */
void rpwi_cc_on_forget(struct rpwi_cc *cc, uint32_t pkts);
void rpwi_cc_on_loss(struct rpwi_cc *cc, uint64_t now_ns);
void rpwi_cc_on_rtt(struct rpwi_cc *cc, uint64_t sample_ns);

/* What IBV_WR_BIND_MW asks for. Keys, not objects: the program may have freed those when its turn
 * comes. */
struct rpwi_bind {
	uint32_t mw_key, new_key, mr_key; /* of the window: as it is, and then */
	unsigned access;
	uint64_t addr, length;
};

/* Which operations a counter counts: the bits of op_mask of ibv_qp_attach_comp_cntr(3), of
 * rdma-core 65. */
enum rpwi_counted {
	RPWI_COUNT_SEND = 1,
	RPWI_COUNT_RECV = 1 << 1,
	RPWI_COUNT_READ = 1 << 2,
	RPWI_COUNT_WRITE = 1 << 4,
	RPWI_COUNT_ALL = RPWI_COUNT_SEND | RPWI_COUNT_RECV | RPWI_COUNT_READ | RPWI_COUNT_WRITE,
	RPWI_COUNTED = 5 /* bits */
};

/* What goes wrong, or is in the way, where no completion says so, or none says why: for a checker.
 * The packet is the one that was looked at. */
enum rpwi_told {
	/* at the end that takes requests */
	RPWI_TOLD_NO_RECEIVE, /* none is posted: RNR NAK over RC, dropped over UC and UD */
	RPWI_TOLD_PSN_AHEAD,  /* of the one expected (RC) */
	RPWI_TOLD_PSN_BEHIND,
	RPWI_TOLD_PACKET_LENGTH, /* not what path_mtu and the place in the message demand */
	RPWI_TOLD_RD_ATOMIC,     /* a READ or an atomic beyond max_dest_rd_atomic */
	RPWI_TOLD_QP_ACCESS,     /* qp_access_flags do not permit it */
	RPWI_TOLD_QKEY,
	RPWI_TOLD_NO_ROOM,    /* a datagram is longer than its receive (UD): dropped */
	RPWI_TOLD_WRONG_PEER, /* from another address than the peer's */
	/* at the end that made the request */
	RPWI_TOLD_RNR_NAK, /* and it will be tried again, or fails */
	RPWI_TOLD_UNASKED, /* an answer to a PSN that it has not sent, or not yet */
};

/* ---- What a QP needs from its surroundings. All calls come from inside rpwi_qp_* calls, must not
 * block, and must not call back into the QP. ---- */
struct rpwi_qp_ops {
	/* Is [addr, addr+len) of `key` good for `access` (IBV_ACCESS_*; 0: local read) for this
	 * QP's PD and state? remote: key is an rkey (memory windows included), else an lkey. len 0
	 * is always good for remote WRITE/READ. 0, or -EACCES. */
	int (*mem_check)(struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access,
		bool remote);
	/* Copy into / out of registered memory, checking again; -EACCES, or -EFAULT if it is no
	 * longer mapped: nothing else may be changed. */
	int (*mem_write)(struct rpwi_qp *qp, uint32_t key, uint64_t addr, const void *src,
		uint32_t len, bool remote);
	/* Of a receive WQE out of a shared queue: the key is checked against the queue's PD, not
	 * the QP's (IB 10.2.9). */
	int (*mem_receive)(
		struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, const void *src, uint32_t len);
	int (*mem_read)(struct rpwi_qp *qp, uint32_t key, uint64_t addr, void *dst, uint32_t len,
		bool remote);
	/* Where in this process's address space [addr, addr+len) of a checked lkey lies (a MR's
	 * iova need not be its address): for sending without a copy. NULL if the key went away, or
	 * the memory is not readable now. */
	const void *(*mem_map)(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len);
	/* Atomic on 8 aligned bytes, atomic with respect to this host's CPU too; *orig gets the old
	 * value in host order. -EACCES/-EFAULT. */
	int (*mem_atomic)(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, bool cmp_swap,
		uint64_t compare, uint64_t swap_add, uint64_t *orig);
	/* ATOMIC WRITE: 8 bytes, as they lie in `value`, to an aligned place in one store, after
	 * all that was placed before. The key needs remote write. -EACCES/-EFAULT. */
	int (*mem_atomic_write)(
		struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, const void *value);
	/* Where [addr, addr+len) of a key lies, for the kernel to fill it in no order: of a checked
	 * lkey, with what a READ or a SEND brings, or with bytes that are replaced when it comes
	 * again; of an rkey, with a WRITE whose order its owner does not want. NULL: only mem_write
	 * will do. */
	void *(*mem_sink)(
		struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint32_t len, bool remote);
	/* [addr, addr + len) of the peer's registered memory, read now and without the peer's help;
	 * its rights and bounds are checked as the peer would. `into` (from mem_sink) gets it, also
	 * where it turns out afterwards that it is not to be used; without `into` it is in memory
	 * of the device, good until the next call, and len is RPWI_PEER_READ_MAX at most. Where it
	 * is; NULL: not so, ask by packets. */
	const uint8_t *(*peer_read)(
		struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, uint32_t len, void *into);
	/* The peer's process is stopped, and until give_over its memory may be written: *from is
	 * the PSN (24 bits) of the first packet of a WRITE from PSN `una` on that the peer has not
	 * taken, RPWI_NO_PSN: there is none. No packet of them was sent twice. NULL, or false: not
	 * so. */
	bool (*take_over)(struct rpwi_qp *qp, uint32_t una, uint32_t *from);
	/* In between: the pieces, one after the other, into [addr, ...) of the peer's registered
	 * memory, whose rights and bounds are checked as the peer would; the last 8 bytes are seen
	 * last. False: not so, and some of it may be there. */
	bool (*peer_write)(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr,
		const struct rpwi_iov *parts, unsigned n);
	/* The peer will find all packets before PSN `upto` done, when it goes on; RPWI_NO_PSN: none
	 * of them. */
	void (*give_over)(struct rpwi_qp *qp, uint32_t upto);
	/* After a time-out: is it known that nobody at the other end will take what is sent (there
	 * is no such QP, it is in ERR, no such port)? False where it only is not known, or where it
	 * may yet become ready. NULL: never known. */
	bool (*peer_rejects)(struct rpwi_qp *qp);
	/* SEND with invalidate, IBV_WR_LOCAL_INV; 0 or -EINVAL/-EACCES */
	int (*invalidate)(struct rpwi_qp *qp, uint32_t key, bool remote);
	int (*bind_mw)(struct rpwi_qp *qp, const struct rpwi_bind *b);
	/* A completion; wc->qp_num and so on are filled. `solicited`: the message had its SE bit
	 * set, or this is an error. */
	void (*complete)(struct rpwi_qp *qp, bool recv, const struct ibv_wc *wc, bool solicited);
	/* An operation of a kind in qp->counted is complete, `good` or with an error. NULL: no QP
	 * counts. */
	void (*count)(struct rpwi_qp *qp, enum rpwi_counted kind, uint32_t bytes, bool good);
	void (*event)(struct rpwi_qp *qp,
		/* COMM_EST, QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR, SQ_DRAINED, QP_LAST_WQE_REACHED,
		 * SRQ_LIMIT_REACHED */
		enum ibv_event_type type);
	/* As it is found, before anything is done about it. `from`: with RPWI_TOLD_WRONG_PEER and
	 * RPWI_TOLD_QKEY, else NULL. NULL: nobody wants to know. */
	void (*told)(struct rpwi_qp *qp, enum rpwi_told what, const struct rpwi_pkt *p,
		const struct rpwi_flow *from);
};

/* ---- Where the payloads of SENDs and WRITEs that have yet to be received will go. ---- */
/* Of one RC QP, whose receive queue is not shared. A look ahead, which changes nothing; it holds
 * until that QP receives something else, or something is done to it. */
struct rpwi_places {
	struct rpwi_qp *qp; /* NULL: nothing can be said */
	uint32_t psn, wqe;  /* of the next packet; of the next message */
	bool writes;        /* those of WRITEs, too */
	bool within;        /* a message: a WRITE, or a SEND, of whose WQE: */
	bool write;
	uint32_t rkey;
	uint64_t va;
	const struct ibv_sge *sge;
	uint32_t left, nsge, off; /* bytes; SGEs; into the first of them */
	uintptr_t late,
		late_end; /* of WRITEs, what will be placed after all that is placed ahead */
};
/* `writes`: the program does not look at WRITEs before they are complete. */
void rpwi_places_begin(struct rpwi_places *at, struct rpwi_qp *qp, bool writes);
/* The one of the packet that comes next. NULL: it is not known (then nor are those of the rest), in
 * two pieces, or a message's last, whose bytes shall be seen after all others. */
void *rpwi_places_next(struct rpwi_places *at, const struct rpwi_pkt *p);
/* That place is not used after all: nothing that belongs there, too, is placed before it. */
void rpwi_places_late(struct rpwi_places *at, const void *to, uint32_t len);

/* ---- Send queue entry. ---- */
struct rpwi_swqe {
	/* What a SEND or WRITE needs is one cache line. */
	_Alignas(64) uint64_t wr_id;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;  /* enum ibv_send_flags */
	uint8_t phase;  /* requester's own */
	uint8_t doom;   /* by rpwi_qp_doom; 0: none */
	bool split;     /* a WRITE that goes as WRITE ONLYs */
	uint16_t nsge;
	uint32_t len;
	uint32_t psn_first, npsn;
	uint32_t rkey;
	uint64_t raddr;
	uint32_t imm_be, inv_rkey;
	struct ibv_sge *sge; /* sge_max of them in the QP's arena */
	uint8_t *inl; /* inline_max bytes in the arena; used when flags has IBV_SEND_INLINE */
	union {
		struct {
			uint64_t compare_add, swap;
		};
		struct { /* UD; av is copied into `ud_av` of the QP's ring */
			struct rpwi_av *av;
			uint32_t dqpn, dqkey;
		};
	};
	struct rpwi_bind bind;
};

enum { RPWI_NO_PSN = 1 << 24 };

enum rpwi_qp_limits {
	RPWI_RD_ATOMIC_MAX = 128,
	RPWI_SGE_MAX = 32,
	RPWI_INLINE_MAX = 1024,
	RPWI_QP_WR_MAX = 32768,
	RPWI_PEER_READ_MAX = 1 << 16,
	RPWI_PEER_SINK_MIN = 1 << 13, /* what is shorter goes by the device's memory */
	RPWI_PEER_SINK_MAX = 1 << 20
};

#define RPWI_MSG_MAX (1u << 31) /* IB 9.2.8 */

/* What a QP may do, less than the transport can where its device has less. */
struct rpwi_qp_bounds {
	uint32_t message, send; /* bytes of any message; of a SEND */
	uint32_t opcodes; /* bits by enum ibv_wr_opcode; of atomics those that it executes, too */
	uint16_t sge_rd;  /* SGEs of a READ */
	uint8_t rd_atomic_out, rd_atomic_in; /* outstanding READs and atomics: asked; answered */
	uint8_t mtu;                         /* enum ibv_mtu */
};

struct rpwi_qp_init {
	const struct rpwi_qp_ops *ops;
	void *user;
	enum ibv_qp_type type; /* IBV_QPT_RC, UC, UD */
	uint32_t qpn;
	struct ibv_qp_cap cap; /* max_send_wr and so on, already rounded by the caller */
	bool sq_sig_all;
	struct rpwi_rq *rq;                  /* the QP's own or the SRQ's; owned by the caller */
	const struct rpwi_qp_bounds *bounds; /* copied; NULL: the transport's own */
};

/* Private to rc/ beyond `user`, `qpn`, `type`, `state`, `stats`, `attr`; embed it in the device's
 * QP, so that a QP is one allocation. */
#include "rc/qp_struct.h"

/* Allocate the rings and come up in RESET. 0 or -ENOMEM/-EINVAL. */
int rpwi_qp_init(struct rpwi_qp *qp, const struct rpwi_qp_init *init);
/* Forget everything without completions (as ibv_destroy_qp does). Accepts a half-made QP. */
void rpwi_qp_fini(struct rpwi_qp *qp);
/* ibv_modify_qp: checks the transition and the required and optional attributes for the type (IB
 * table 91 and following), then does it. 0, -EINVAL (the reason is in a debug log line) or -ENOMEM.
 * ERR flushes: send WQEs in order, then receive WQEs (own RQ only; with a SRQ the event
 * LAST_WQE_REACHED). RESET drops all without completions. `av` is the resolved address vector when
 * mask has IBV_QP_AV, else NULL; it is copied. now_ns is used for timers. */
int rpwi_qp_modify(struct rpwi_qp *qp, const struct ibv_qp_attr *attr, int mask,
	const struct rpwi_av *av, uint64_t now_ns);
void rpwi_qp_query(const struct rpwi_qp *qp, struct ibv_qp_attr *attr);

/* The process of the peer is known to have ended: the oldest send WQE fails with
 * IBV_WC_RETRY_EXC_ERR, as it would after its time-outs, what else is posted is flushed;
 * IBV_EVENT_QP_FATAL. RC; nothing in RESET, INIT and ERR. */
void rpwi_qp_peer_gone(struct rpwi_qp *qp);

/* Post one send WR (the caller walks the list). Copies SGEs, or the data itself with
 * IBV_SEND_INLINE. In ERR the WR is flushed at once. `ud_av`: for UD, the resolved address
 * (copied), else NULL. 0; -ENOMEM full; -EINVAL bad opcode for the type, state RESET/INIT/RTR, too
 * many SGEs, inline too long, length over 2^31. */
int rpwi_qp_post_send(
	struct rpwi_qp *qp, const struct ibv_send_wr *wr, const struct rpwi_av *ud_av);
/* The same, but for the state and the room: would it be taken? 0 or -EINVAL. */
int rpwi_qp_check_wr(
	const struct rpwi_qp *qp, const struct ibv_send_wr *wr, const struct rpwi_av *ud_av);
/* Is what is posted kept for later, not flushed? */
static inline bool rpwi_qp_keeps_posts(const struct rpwi_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}
/* Is nothing posted, under way or owed? Then READs posted now may be done by the next call. RC. */
bool rpwi_qp_is_quiet(const struct rpwi_qp *qp);
/* Do the READs that are posted, and nothing else, out of the peer's memory: without a packet, a
 * timer or the window, so whoever has the QP to itself may call it. True: all of them are done and
 * completed. False: from the first one left on, which may have failed, rpwi_qp_tx is to do it. */
bool rpwi_qp_read_alone(struct rpwi_qp *qp);
/* ---- Fault scripts (`ropeway run --fault FILE`). ---- */
/* The work request posted last fails with `status` when its turn comes, after those before it; it
 * is not sent. RPWI_DOOM_SILENT: it is sent to nobody, with all that follows, until the retries are
 * used up; of an RC QP that has an ACK time-out. Before it can have been sent. */
enum { RPWI_DOOM_SILENT = 0x80 };
void rpwi_qp_doom(struct rpwi_qp *qp, uint8_t status);
/* Likewise the receive posted last: what would fill it completes it with `status`, and a RC peer
 * hears that the operation failed here. */
void rpwi_rq_doom(struct rpwi_rq *rq, uint8_t status);
/* The next request of RC that comes in its turn is answered with that syndrome (a NAK, or RNR NAK)
 * instead. */
void rpwi_qp_answer_next(struct rpwi_qp *qp, uint8_t syndrome);

/* Tell the QP that its RQ got entries or state changed: in ERR, flush them. Called after
 * rpwi_rq_post on the QP's own RQ. */
void rpwi_qp_recv_posted(struct rpwi_qp *qp);

/* One packet for this QP: decoded, ICRC checked, dqpn == qp->qpn. `from` is the flow as received
 * (src the peer, dst ours); a packet from another address than the QP's peer is counted and dropped
 * (RC, UC). ttl/tos are for the GRH of a UD receive. */
struct rpwi_rxmeta {
	const struct rpwi_flow *flow;
	uint8_t ttl, tos;
};
void rpwi_qp_rx(struct rpwi_qp *qp, const struct rpwi_pkt *pkt, const struct rpwi_rxmeta *meta,
	uint64_t now_ns);

/* Append what the QP may send now to the batch: first READ and atomic responses, then the ACK or
 * NAK owed, then requests (as the window allows), all to one destination (a UD batch ends where the
 * destination changes). Leaves what does not fit for the next call. hold_ack: leave a plain ACK for
 * later unless requests go out in this call (then it goes with them); NAKs and ACKs whose time has
 * come are never held. */
void rpwi_qp_tx(struct rpwi_qp *qp, struct rpwi_txb *b, bool hold_ack, uint64_t now_ns);
/* What rpwi_qp_tx comes to for an RC QP that has one message to send, of one packet with at most
 * `len_max` bytes in one piece, and perhaps a plain ACK before it: without a batch. False: nothing
 * was done, it is rpwi_qp_tx's. rpwi_qp_sends_short is to be asked before anything about the peer,
 * which a QP of another type or in another state may not have. */
static inline bool rpwi_qp_sends_short(const struct rpwi_qp *qp) { return !qp->slow; }
bool rpwi_qp_tx_short(
	struct rpwi_qp *qp, struct rpwi_short *out, uint32_t len_max, uint64_t now_ns);
/* As rpwi_qp_tx_fault, of that. The ACK that was to lead it goes into the batch. */
void rpwi_qp_tx_short_fault(struct rpwi_qp *qp, const struct rpwi_short *s, struct rpwi_txb *b);
/* The batch that rpwi_qp_tx filled has been handed to the kernel: the UC and UD WQEs in it complete
 * now (until then their memory is being read). Nothing for RC. The next rpwi_qp_tx does it too, and
 * rpwi_qp_tx_ready says true until one of them has been called. */
void rpwi_qp_tx_done(struct rpwi_qp *qp);
/* Would rpwi_qp_tx append something now? With hold_ack: beside a plain ACK. False too when only the
 * window is in the way: see rpwi_qp_blocked. */
bool rpwi_qp_tx_ready(const struct rpwi_qp *qp, bool hold_ack, uint64_t now_ns);
bool rpwi_qp_ack_owed(const struct rpwi_qp *qp);
/* Over RC, in RTS: nothing is to be sent but, perhaps, an ACK that may wait for company. */
bool rpwi_qp_rests(const struct rpwi_qp *qp, uint64_t now_ns);
/* True when it has requests to send and nothing but the congestion window of its peer keeps
 * them. */
bool rpwi_qp_blocked(const struct rpwi_qp *qp);
/* Others wait for the window, and it is not its turn: until it is told otherwise it takes nothing
 * of it, but what is lent (window.c). */
void rpwi_qp_yields(struct rpwi_qp *qp, bool yields);
/* Its turn has come; it was last heard of then. */
void rpwi_qp_turn_begins(struct rpwi_qp *qp, uint64_t heard_ns);
/* May what was posted last wait for more, so that all of it leaves as one batch? It is short, the
 * peer has others whose acknowledgement is awaited, this QP's own are fewer than a batch, and no
 * ACK is owed that it could take along. A lone message, and the first few of many, never wait. To
 * be asked once after each post: it counts them. */
enum { RPWI_GATHER_MAX = 48 }; /* no more wait at a time: then the peer can begin */
bool rpwi_qp_may_gather(struct rpwi_qp *qp);
/* The next time rpwi_qp_timer has something to do (ACK time-out, RNR wait), or RPWI_NEVER. */
uint64_t rpwi_qp_deadline(const struct rpwi_qp *qp);
void rpwi_qp_timer(struct rpwi_qp *qp, uint64_t now_ns);
/* Has it been waiting for an answer, in vain for now? */
bool rpwi_qp_is_silent(const struct rpwi_qp *qp);

/* For pacing by the device: where the next request goes (UD: the next WQE's; UC, RC: the peer),
 * NULL/0 when there is none; and the bytes a full packet carries. */
const struct rpwi_av *rpwi_qp_next_av(const struct rpwi_qp *qp);
uint32_t rpwi_qp_next_dqpn(const struct rpwi_qp *qp);
unsigned rpwi_qp_mtu(const struct rpwi_qp *qp);
/* May it stand for some packets of its message (p->more)? It does where it is the request that
 * comes next; else each is taken by itself. */
bool rpwi_qp_takes_more(const struct rpwi_qp *qp, const struct rpwi_pkt *p);
/* The batch's packet `index` could not be sent because its payload is not mapped any more: that
 * request fails with IBV_WC_LOC_PROT_ERR (a response is never affected: it was copied), after those
 * before it; the QP goes to ERR (RC) or SQE (UC, UD). Called instead of rpwi_qp_tx_done. */
void rpwi_qp_tx_fault(
	struct rpwi_qp *qp, const struct rpwi_txb *b, unsigned index, uint64_t now_ns);

#endif
