/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.h - the queues as the checker knows them: the requests in flight, where they were posted,
 * the contents of their buffers, and whether the program has seen how they ended.
 *
 * A send queue is a ring with three cursors: [head, done) has completed in the device and was not
 * polled yet, [done, tail) is in flight. A slot becomes free when a completion behind it is polled,
 * as in a driver. A shared receive queue completes in any order, so its requests have a phase
 * each.
 *
 * The device tells: made and gone, before a post and after it, a completion as it is made, and one
 * as the program gets it. RPWI_LOCK_CHECK is taken inside; the objects are known by their address.
 */
#ifndef ROPEWAY_CHECK_QUEUE_H
#define ROPEWAY_CHECK_QUEUE_H

#include <infiniband/verbs.h>

#include "check/check.h"
#include "check/order.h"
#include "rc/rc.h"

/* Of a request are watched; of them so many are looked up by address (owned.h). */
enum { CHECK_SGES = 8, CHECK_OWNED_SGES = 2 };

enum check_phase { CHECK_POSTED, CHECK_DONE, CHECK_POLLED };

struct check_wr {
	uint64_t wr_id, posted_ns, raddr;
	struct rpwi_site site;
	uint32_t rkey, len;
	union {
		uint32_t sum; /* of its buffers when it was posted; of one that only reads them */
		uint32_t node[CHECK_OWNED_SGES]; /* of one that writes (owned.c) */
	};
	uint8_t opcode;          /* enum ibv_wr_opcode; of a send queue */
	uint8_t flags;           /* enum ibv_send_flags */
	uint8_t phase;           /* enum check_phase */
	uint8_t status;          /* enum ibv_wc_status, from CHECK_DONE on */
	uint8_t nsge;            /* of `sge` */
	bool summed, told, owns; /* told: there is a finding about its memory; owns: `node` */
	uint32_t race_at;        /* of race.c: the process's clock at the post */
	struct ibv_sge sge[CHECK_SGES];
};
_Static_assert(sizeof(struct check_wr) <= 256, "the bound that check.h promises");

struct check_queue {
	struct check_wr *ring; /* NULL: not watched */
	uint32_t mask, max;    /* max: what the program asked for */
	uint32_t head, done, tail;
	uint32_t gone; /* sends before it are done, with a completion or without */
	bool is_send, shared;
	uint16_t ids[64]; /* so many in flight, by a hash of wr_id */
	bool ids_told, shares_told;
	uint8_t overlaps_told;
};

/* With so many polls in vain a program does not rely on the event. */
enum { CHECK_POLLS = 3 };

/* What completes into a CQ. */
struct check_cq {
	struct check_cq *next;
	const struct ibv_cq *ibv;
	uint32_t cqe, outstanding; /* cqe: asked for */
	struct rpwi_site made;
	bool inherited; /* by this process, in a fork; so the others */
	/* for the rules about events (events.c) */
	bool armed, armed_solicited, polled_empty;
	bool risky;              /* armed after a poll that found nothing, and not polled since */
	uint32_t unheard;        /* completions of before it was armed, and not polled since */
	uint64_t unheard_ns;     /* so long since the last poll */
	struct rpwi_site arm_at; /* of the last ibv_req_notify_cq */
	struct rpwi_site got_at; /* of the last ibv_get_cq_event */
	/* receives that came unsolicited, while only a solicited one makes an event (order.c): */
	uint64_t unsolicited_ns; /* the first one since the last poll; 0: none */
	uint32_t unsolicited;
	uint8_t polls; /* in vain, since it was armed for those; at most CHECK_POLLS */
	bool solicited_seen, overran;
};

struct check_srq {
	struct check_srq *next;
	const struct ibv_srq *ibv;
	uint32_t sge_max;
	bool inherited;
	uint32_t late; /* messages that wait for a receive, */
	bool posting;  /* and one is being posted for them */
	struct rpwi_site made;
	struct check_queue q;
};

struct check_qp {
	struct check_qp *next;
	const struct ibv_qp *ibv;
	const struct rpwi_qp *t; /* the device's */
	struct ibv_qp_cap asked;
	struct rpwi_site made;
	struct check_queue sq, rq;
	struct check_srq *srq; /* or NULL */
	struct check_cq *scq, *rcq;
	bool inherited;
	pthread_mutex_t posting; /* of the sends: the ring's order is the device's */
	/* the first completion with an error that was polled, and requests posted since */
	uint8_t failed; /* enum ibv_wc_status, or 0 */
	uint32_t posts_since;
	uint64_t failed_wr_id;
	struct rpwi_site failed_at;
	/* counts of race.c: posted here, polled here, and of the peer's operations and messages
	 * that came */
	struct {
		uint32_t sends, ops, sends_polled, ops_polled, recvs, arrived, came;
	} race;
	/* by RESET, where the first of them was posted, and where it was reset; recvs: 0 from the
	 * next receive on */
	struct {
		uint32_t recvs, sends;
		struct rpwi_site recv_at, send_at, at;
	} dropped;
	uint32_t told; /* bits of enum rpwi_cause_kind: the report has it */
	struct check_order order;
};

/* ---- objects. Made: the program has them; asked: before it was rounded up ---- */
void check_cq_made(const struct ibv_cq *cq, uint32_t cqe);
void check_cq_resized(const struct ibv_cq *cq, uint32_t cqe);
void check_cq_gone(const struct ibv_cq *cq);
void check_srq_made(const struct ibv_srq *srq, const struct ibv_srq_attr *asked, uint32_t room);
void check_srq_gone(const struct ibv_srq *srq);
void check_qp_made(const struct ibv_qp *qp, const struct rpwi_qp *t, const struct ibv_qp_cap *asked,
	const struct ibv_qp_cap *got);
void check_qp_gone(const struct ibv_qp *qp);
void check_qp_reset(const struct ibv_qp *qp); /* its requests are dropped without completions */

/* ---- requests ---- */

/* Before the device gets them; and after: `bad` is the first that it did not take, NULL: it took
 * all. What check_sends_begin gives is passed on; NULL: they are not checked. */
struct check_qp *check_sends_begin(const struct ibv_qp *qp, const struct ibv_send_wr *wr);
void check_sends_end(struct check_qp *q, const struct ibv_send_wr *bad, int rc);
void check_recvs_begin(const struct ibv_qp *qp, const struct ibv_recv_wr *wr);
void check_recvs_end(const struct ibv_qp *qp, const struct ibv_recv_wr *bad);
void check_srq_recvs_begin(const struct ibv_srq *srq, const struct ibv_recv_wr *wr);
void check_srq_recvs_end(const struct ibv_srq *srq, const struct ibv_recv_wr *bad);
/* A SEND or WRITE is done, whether or not it makes a completion: in the order of the posts. */
void check_retires(const struct rpwi_qp *t, bool good);
/* The device makes a completion; the program gets some. The lock of the HCA may be held. */
void check_completes(const struct rpwi_qp *t, bool recv, const struct ibv_wc *wc);
void check_polled(const struct ibv_cq *cq, const struct ibv_wc *wc, int n);

/* ---- access.c: keys that do not do ---- */

struct check_access;
/* It completed with a protection error. The lock is held. */
void check_local_refused(struct check_qp *q, struct check_queue *of, struct check_wr *w);
/* The region is no more; requests may be in flight that refer to it. */
void check_mr_gone(uint32_t key);
/* The peer of that QP was refused. */
void check_remote_refused(uint32_t qpn, const struct check_access *a);
/* qp_access_flags refuse a request of the peer. The lock is held. */
void check_flags_refuse(struct check_qp *q, const struct rpwi_pkt *p);
/* This QP was refused by a peer of another process: its region of that key, NULL: it has none. */
struct check_region;
uint32_t check_rkey_of(uint32_t qpn, uint64_t wr_id); /* 0: nothing is left to say */
void check_peer_refused(uint32_t qpn, uint64_t wr_id, const struct check_region *region);
/* The same as check_remote_refused by a window, which the device knows all about. */
void check_window_refused(
	uint32_t qpn, const struct check_access *a, enum rpwi_check_rule rule, const char *why);

/* A window of type 2 is still bound when it is bound again, or its region is to go. */
void check_window_left(uint32_t qpn, uint32_t key, bool again);
/* A bind was refused by its region. */
void check_bind_refused(uint32_t qpn, const struct check_access *a);

/* ---- for the other files; the lock is held ---- */
/* dropped.c: the QP is reset. What that has dropped is missed: a message comes, and no receive was
 * posted since; or the QP sends again. False: nothing was dropped. */
void check_drops(struct check_qp *q);
bool check_receives_missed(struct check_qp *q);
void check_sends_missed(struct check_qp *q);
struct check_qp *check_qp_find(const struct ibv_qp *qp);
struct check_qp *check_qpn_find(uint32_t qpn);
bool check_qpn_was(uint32_t qpn); /* false: this process has certainly never had it */
struct check_cq *check_cq_find(const struct ibv_cq *cq);
struct check_srq *check_srq_find(const struct ibv_srq *srq);
/* A finding about a QP, and about a request of it (or NULL), which is its first site. */
struct rpwi_finding check_finding(
	enum rpwi_check_rule rule, const struct check_qp *q, const struct check_wr *w);
const char *check_op_name(const struct check_queue *q, const struct check_wr *w);
void check_queue_fini(struct check_queue *q); /* the lock is not held */
void check_qp_take_out(struct check_qp *q);   /* of the table */
void check_cq_take_out(struct check_cq *c);
/* Errors of its requests that the program has not polled; then all of them go. */
void check_unread(struct check_qp *q);
void check_queues_drop(struct check_qp *q);
/* All objects that there are were made by the parent. */
void check_objects_inherit(void);
/* The oldest request that the device has not completed; NULL: there is none. */
const struct check_wr *check_oldest(const struct check_queue *q);
/* The first request in `phase` with this number, from `from` on; NULL: it is not known. */
struct check_wr *check_with_id(
	const struct check_queue *q, uint32_t from, uint64_t wr_id, enum check_phase phase);
/* All QPs in turn, all CQs. */
void check_qps_each(void (*fn)(struct check_qp *q, void *arg), void *arg);
void check_cqs_each(void (*fn)(struct check_cq *cq, void *arg), void *arg);

static inline bool check_makes_completion(const struct check_qp *q, const struct check_wr *w)
{
	return q->t->sig_all || w->flags & IBV_SEND_SIGNALED;
}
/* The first send that the device has not done: an unsignaled one completes unseen. */
static inline uint32_t check_sending_from(const struct check_qp *q)
{
	uint32_t left = q->t->sq_tail - q->t->sq_head, n = q->sq.tail - q->sq.done;
	return q->sq.tail - RPWI_MIN(left, n);
}

#endif
