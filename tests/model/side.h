/* SPDX-License-Identifier: BSD-3-Clause */
/* side.h - a process of the model: its device, its ends of connections, and what it has seen of
 * them. */
#ifndef TESTS_MODEL_SIDE_H
#define TESTS_MODEL_SIDE_H

#include <pthread.h>
#include <sys/types.h>

#include "bytes.h"

enum { CQS_MAX = 3, THREADS_MAX = 4, SRQ_SLOTS = 2048, SRQ_EXTRA = 24, MR_KINDS = 4 };
enum mr { MR_TX, MR_SINK, MR_TGT, MR_RX };

/* What the ends of a connection tell each other. */
struct pub {
	uint32_t qpn, psn, rkey, window_rkey, rx_rkey, stale_rkey;
	uint64_t addr, rx_addr;
	union ibv_gid gid;
	/* steps posted; surely done; the end of this connection has begun; it is to be made anew */
	_Atomic uint32_t posted, good, gone, again;
	_Atomic uint32_t finished, received, flushed; /* for the report of one that is stuck */
};

struct shared {
	_Atomic uint32_t failed;
	char why[1200];
	_Atomic uint32_t arrived[PROCS_MAX]; /* at which meeting */
	_Atomic uint32_t progress[PROCS_MAX], armed_stop[PROCS_MAX], armed_kill[PROCS_MAX];
	_Atomic uint32_t round[PROCS_MAX];
	struct pub pub[CONNS_MAX][2];
	struct tally tally[PROCS_MAX];
	struct limits limits;
	uint64_t salt; /* for what is not the script's: who polls when */
	char device[PROCS_MAX][32];
	uint8_t lossy, doubles; /* the wire: packets are lost, and doubled, on purpose */
	uint8_t sockets;        /* it goes through sockets, which may overflow */
	uint32_t deadline_s;
	struct script script; /* last: its operations follow */
};

enum state { ALIVE, ERRED, DEAD };

struct end {
	const struct conn *conn;
	unsigned number, side, thread;
	struct pub *pub, *peer;
	struct fate fate;
	/* objects */
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;
	struct ibv_ah *ah;
	struct ibv_mr *mr[MR_KINDS];
	struct ibv_mw *window, *scratch;
	uint32_t window_key, scratch_key;
	bool window_bound, scratch_bound;
	unsigned scq, rcq;
	uint8_t *mem[MR_KINDS], *guarded[MR_KINDS]; /* the second is a copy, made at its death */
	/* the plan */
	struct stream out, in;
	struct image im_out, im_in;
	uint8_t *base; /* the target of `out` before the round */
	/* this round */
	_Atomic uint8_t state; /* enum state */
	bool fresh, acted, armed;
	uint64_t until_ns; /* when it does something about its peer's end */
	_Atomic uint32_t posted, sdone, rposted, rdone, rflushed;
	_Atomic bool failed, rfailed;
	uint32_t next_msg;                /* UC */
	uint16_t msg_of[STREAM_MAX * 2];  /* by receive: UC and UD */
	uint32_t slot_of[STREAM_MAX * 2]; /* by message: SRQ */
	uint8_t got[STREAM_MAX];
	uint32_t last_slot, lost_next;
	bool srq_slot_flushed;
};

struct slot {
	uint8_t done;
	struct end *flushed; /* it completed so, with this QP */
};

struct side {
	struct shared *sh;
	struct script *s;
	unsigned me, meetings;
	struct rng rng;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq[CQS_MAX];
	pthread_mutex_t cq_lock[CQS_MAX];
	struct ibv_srq *srq;
	struct ibv_mr *srq_mr;
	uint8_t *srq_mem;
	struct slot slot[SRQ_SLOTS];
	_Atomic uint32_t srq_posted;
	uint32_t srq_target, srq_first; /* first: the oldest that may be posted */
	_Atomic uint32_t srq_done;
	uint32_t srq_lost, srq_doubt; /* lost with a QP that ended; perhaps lost */
	unsigned nends, round;
	struct end *end[2 * CONNS_MAX];
	struct tally *tally;
	bool again; /* it was killed, and meets the others at the end of a round */
};

/* Ends the process, and so the run. */
_Noreturn void fail(struct side *m, const char *form, ...) __attribute__((format(printf, 2, 3)));
void meet(struct side *m, bool poll);

/* verbs.c */
void side_open(struct side *m);
void end_objects(struct side *m, struct end *e);
void end_make_qp(struct side *m, struct end *e);
void end_connect(struct side *m, struct end *e);
void end_rts(struct side *m, struct end *e, uint8_t timeout);
void end_windows(struct side *m, struct end *e, struct rng *r);
void end_drop(struct side *m, struct end *e);
int end_to_state(struct end *e, enum ibv_qp_state state);

/* post.c */
void post_sends(struct side *m, struct end *e, unsigned n, struct rng *r);
void post_receives(struct side *m, struct end *e, unsigned n);
void post_srq(struct side *m, unsigned n);

/* done.c: completions */
enum { ID_SRQ = 0xff };
static inline uint64_t id_of(
	unsigned conn, unsigned side, unsigned recv, unsigned round, uint32_t i)
{
	return (uint64_t)conn << 56 | (uint64_t)side << 52 | (uint64_t)recv << 48 |
	       (uint64_t)(round & 0xffff) << 32 | i;
}
unsigned poll_some(struct side *m, unsigned cq, unsigned n);
bool end_finished(const struct end *e);

/* verify.c */
void verify_round(struct side *m);
void verify_dead(struct side *m, struct end *e); /* remembers what is there, then repaints it */

/* run.c */
int side_run(struct shared *sh, unsigned me, bool again);

#endif
