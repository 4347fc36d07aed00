/* SPDX-License-Identifier: BSD-3-Clause */
/* order.h - what two ends of a connection must agree on and do in time: the attributes of
 * ibv_modify_qp, and a receive before the SEND that needs it.
 *
 * Where the peer's QP is of this process both sides' attributes are compared. Else packets say what
 * is wrong, and a rule speaks only where nothing but the mistake explains them: a lost packet, a
 * late copy or a stranger's packet is no mistake of the program.
 *
 * RPWI_LOCK_CHECK is taken inside, but where it says otherwise.
 */
#ifndef ROPEWAY_CHECK_ORDER_H
#define ROPEWAY_CHECK_ORDER_H

#include <infiniband/verbs.h>

#include "check/check.h"
#include "rc/rc.h"

struct check_cq;
struct check_qp;
struct check_wr;

/* A QP, since it was in RESET. */
struct check_order {
	struct rpwi_site rtr_at, rts_at, qkey_at, access_at;
	uint32_t rq_psn, sq_psn; /* as the program set them */
	uint32_t connects;       /* so often has it come to RTR */
	bool rtr, rts;
	bool by_cm;    /* its attributes are those that rdma_cm made */
	uint16_t told; /* a bit for each of the rules from RECV_LATE to READS_BEYOND */
	/* a message came without a receive: when, and how often it was tried. 0: none waits */
	uint64_t late_ns;
	uint32_t late_tries;
	bool late_first; /* there had never been a receive */
	bool late_told;  /* and this one has been reported */
	bool posting;    /* the receive for it is being posted */
	bool looking;    /* a receive was posted, and the device looks for its message */
	/* nothing was accepted yet: the lowest PSN that came, and how often */
	uint32_t ahead_psn, ahead_times;
	uint32_t strangers; /* packets of another address */
	uint32_t unasked;   /* NAKs of a PSN that was not sent */
	/* the peer has no receive for what is sent from this PSN on, since then */
	uint32_t rnr_una;
	uint64_t rnr_ns;
};

/* ---- attributes ---- */

/* ibv_modify_qp was successful. */
void check_modified(const struct ibv_qp *qp, const struct ibv_qp_attr *a, int mask);
/* What rdma_init_qp_attr gives is not the program's: but `active`, who calls rdma_connect, says the
 * retry count. The newest 64 connections are known. */
void check_cm_gave(uint32_t dest_qpn, uint32_t rq_psn, bool active);
/* An address was refused for its own GID index. */
void check_gid_refused(unsigned index, const char *why);

/* ---- as it happens ---- */

void check_told(struct rpwi_qp *t, enum rpwi_told what, const struct rpwi_pkt *p,
	const struct rpwi_flow *from);
/* A send fails since the peer has not answered. */
void check_unanswered(const struct rpwi_qp *t);
/* A receive is about to be posted. True: look at once for what has come before, as a NIC would have
 * done, and then call check_looked. */
bool check_receive_comes(const struct ibv_qp *qp);
/* Likewise; true: call check_srq_received after it. */
bool check_srq_receive_comes(const struct ibv_srq *srq);
void check_srq_received(const struct ibv_srq *srq);
void check_looked(const struct ibv_qp *qp);
/* A CQ had no room for a completion. */
void check_overran(const struct ibv_cq *cq, uint32_t qpn, uint32_t room);
/* A receive completes into a CQ that is armed for solicited ones alone. */
void check_unsolicited(const struct ibv_cq *cq, bool solicited);
/* The program waits, perhaps for ever: now and then. */
void check_tick(uint64_t now_ns);

/* ---- for the other files; the lock is held ---- */
void check_reads(struct check_qp *q, const struct check_wr *w); /* a READ or an atomic is posted */
void check_received(struct check_qp *q, const struct check_wr *w); /* a receive is filled */
void check_cq_waited(struct check_cq *cq);                         /* it is polled, or goes */
void check_order_ends(struct check_qp *q);                         /* destroyed or reset */
/* order.c and late.c */
/* The QP of the other end, which has this one as its peer, too; NULL: it is not of this process. */
struct check_qp *check_partner(const struct check_qp *q);
/* True the first time: each of these rules speaks once of a connection. */
bool check_tells(struct check_qp *q, enum rpwi_check_rule rule);
void check_order_told(struct check_qp *q, enum rpwi_told what, const struct rpwi_pkt *p,
	const struct rpwi_flow *from);
void check_late_ends(struct check_qp *q);

#endif
