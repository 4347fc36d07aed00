/* SPDX-License-Identifier: BSD-3-Clause */
/* qp_struct.h - struct rpwi_qp, in the open so that the device can embed it. Included by rc.h only.
 *
 * PSNs are kept here as free-running 32-bit numbers and cut to 24 bits where they meet a header:
 * then a message of 2^23 packets needs no thought about wrapping, and `rpwi_psn_diff(pkt->psn,
 * qp->una)` gives the signed distance of an arriving PSN.
 *
 * The send queue is one ring with three cursors: [sq_head, sq_cur) is sent and not yet complete,
 * sq_cur is being sent, [sq_cur, sq_tail) waits. The same in PSNs: [una, nxt) is in flight, [nxt,
 * psn_max) was sent once and is to be sent again. What a QP has in its peer's window is always nxt
 * - una: a READ takes as many PSNs as it has response packets.
 */
#ifndef ROPEWAY_RC_QP_STRUCT_H
#define ROPEWAY_RC_QP_STRUCT_H

/* A send WQE is POSTED until its first packet; LOCAL_INV and BIND_MW go from there to DONE. FAILED:
 * completes with `sq_fail_status` once all before it are complete. */
enum rpwi_swqe_phase { RPWI_SWQE_POSTED, RPWI_SWQE_STARTED, RPWI_SWQE_DONE, RPWI_SWQE_FAILED };

/* A responder resource: a READ or atomic executed, kept for replays (IB 9.7.5.1.3). Those in
 * [res_cur, res_tail) may have responses to send. */
struct rpwi_res {
	uint32_t psn, npsn; /* as first requested */
	/* responses of the last request for it: first PSN, next to send, one past the last */
	uint32_t begin, next, stop;
	uint32_t rkey, len, left; /* left: bytes still to send of [next, stop) */
	uint64_t va, next_va;
	uint64_t atomic_orig;
	uint32_t msn;
	bool atomic, atomic_write, replay;
};

/* The receive WQE being filled. */
struct rpwi_rcv {
	bool have;
	uint8_t doom;             /* of its WQE */
	uint32_t nsge, len, done; /* done: bytes scattered */
	uint32_t sge_i, sge_off;
	uint64_t wr_id;
	struct ibv_sge *sge; /* a copy: the slot of a SRQ is free again once taken */
};

/* Why a QP cannot send in one of the fast ways (rpwi_qp.slow). Each is set and cleared where the
 * state behind it changes, so that who sends asks for all of them at once. The general way asks for
 * each where it matters. */
enum {
	RPWI_SLOW_STATE = 1,      /* it is not RC, or not in RTS: it may have no peer */
	RPWI_SLOW_RNR = 1 << 1,   /* nothing goes before rnr_deadline_ns, after a RNR NAK */
	RPWI_SLOW_ONE = 1 << 2,   /* then one packet, and no more until it is taken */
	RPWI_SLOW_PROBE = 1 << 3, /* a probe is to go first (silence.c) */
	RPWI_SLOW_PEER = 1 << 4,  /* it is stopped: WRITEs are done in its memory (stopped.c) */
	RPWI_SLOW_LOST = 1 << 5,  /* what goes from lost_psn on is lost (RPWI_DOOM_SILENT) */
	RPWI_SLOW_TWICE = 1 << 6, /* the first packet goes twice, after time-outs in a row */
	RPWI_SLOW_NAK = 1 << 7,   /* a NAK is to go first */
};

struct rpwi_qp {
	/* ---- for everybody ---- */
	void *user;
	const struct rpwi_qp_ops *ops;
	enum ibv_qp_state state; /* rpwi_qp_enter sets it */
	uint8_t slow;            /* of RPWI_SLOW_*; 0 as a rule */
	uint8_t counted;         /* of RPWI_COUNT_*: what goes to ops->count; 0 as a rule */
	enum ibv_qp_type type;
	uint32_t qpn;
	/* bytes, of attr.path_mtu. UD: the device puts its port's MTU into attr.path_mtu after
	 * rpwi_qp_init */
	uint32_t mtu;
	struct rpwi_rq *rq;
	struct rpwi_cc *cc; /* av.cc; NULL: no window */

	/* ---- send queue and requester ---- */
	struct rpwi_swqe *sq;
	uint32_t sq_mask, sq_max, sq_head, sq_cur, sq_tail;
	uint32_t una, nxt, psn_max;
	uint32_t once; /* what was sent from this PSN on was sent once */
	/* READ and atomic requests outstanding, free-running, into rd_end */
	uint32_t rd_head, rd_next, rd_tail;
	/* a READ goes out as requests of at most so many response packets */
	uint32_t read_chunk_pkts;
	uint32_t since_ackreq;
	/* highest PSN that passed over the missing response since the last go-back */
	uint32_t implied_psn;
	uint32_t rtt_psn;
	uint32_t probe_end;            /* nxt when the last probe was sent; */
	uint32_t probe_first_end;      /* when the first of those `asked` was */
	uint64_t rtt_start_ns, rtt_ns; /* of the sample that is running; smoothed, 0 unknown */
	uint64_t deaf_until_ns;        /* NAKs until then report a loss that was gone back for */
	uint64_t ack_deadline_ns;      /* means something while nxt != una */
	/* likewise: the silence after which it asks how far the peer got (completer.c) */
	uint64_t probe_deadline_ns;
	uint64_t silent_from_ns, asks_ns; /* nothing has come since then; the next probe is due */
	uint64_t rnr_deadline_ns;         /* RPWI_NEVER but with RPWI_SLOW_RNR */
	uint64_t timeout_ns;              /* 4.096 us * 2^attr.timeout; 0 none */
	uint8_t retry_left, rnr_left, timeouts_in_row;
	uint8_t window;         /* RPWI_WINDOW_*, exceptions (window.c); 0 as a rule */
	uint8_t sq_fail_status; /* enum ibv_wc_status of the FAILED WQE */
	bool sig_all, implied, rtt_running, sq_failed, sqd_notify;
	/* to the last probe there was none so far; to so many there was, and una has not moved
	 * since */
	uint8_t probes, answers;
	uint8_t silences; /* in a row, while it counts in the window (window.c) */
	/* probes since una was behind probe_end; those before, whose answers may still come */
	uint8_t asked, stale;
	bool probing;  /* one is under way, and una is before probe_end */
	bool acked;    /* a SEND or WRITE has been, by an ACK */
	bool late;     /* a deadline was seen late: the process did not run */
	bool rejected; /* at the last time-out in a row it was known that nobody is there */
	/* The peer took WRITEs to all of [wrote_va, wrote_end) by this R_Key. */
	uint32_t wrote_rkey;
	uint64_t wrote_va, wrote_end;

	/* ---- responder ---- */
	uint32_t epsn, msn; /* expected PSN */
	uint32_t ack_pkts;  /* request packets since an ACK was last sent */
	uint64_t ack_since_ns;
	uint32_t nak_psn;
	uint8_t nak_syndrome, msg; /* msg: what message is being received (internal.h) */
	/* nak_sent: of this gap; none more until the expected PSN comes */
	bool ack_owed, nak_sent;
	bool comm_est, last_wqe_told;
	uint8_t scripted; /* 1 + the syndrome of rpwi_qp_answer_next */
	struct rpwi_rcv rcv;
	uint64_t write_va;
	uint32_t write_rkey, write_len, write_left;
	struct rpwi_res *res;
	/* res_count: of those in the ring that may be replayed */
	uint32_t res_mask, res_cur, res_tail, res_count;

	/* ---- the rest ---- */
	struct rpwi_av av;       /* RC and UC: the peer, copied at RTR */
	struct ibv_qp_attr attr; /* as set; rpwi_qp_query fills what moves */
	struct rpwi_qp_bounds bounds;
	uint32_t plain_max; /* bytes of a SEND or WRITE that is in order whatever else is asked */
	struct rpwi_qp_stats stats;
	/* where it counts: `stats`, or where the device says; and where others look up its state,
	 * or NULL */
	struct rpwi_qp_stats *n;
	uint8_t *state_to;
	uint32_t resent;    /* retransmits of this QP */
	uint32_t slow_pkts; /* in flight at most, while it is slow (window.c) */
	void *arena; /* sq, its SGEs, inline data, UD address vectors, rcv.sge: one allocation */
	/* one past the last PSN of each outstanding READ or atomic request */
	uint32_t rd_end[RPWI_RD_ATOMIC_MAX];
	uint32_t lost_psn;
};

_Static_assert(sizeof(struct rpwi_qp) < 2048, "an idle QP must stay small");

#endif
