/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.h - the data path: what a verbs program does, one function for each step, in the order in
 * which they are called.
 *
 *     device -> PD -> MR -> CQ -> QP: RESET -> INIT -> RTR -> RTS -> post, poll -> everything
 *     closed, in reverse order
 *
 * Any failure here ends the program, with a line that says what to do.
 */
#ifndef LEARN_STEPS_H
#define LEARN_STEPS_H

#include <infiniband/verbs.h>

#include "exchange.h"

struct rdma {
	const struct options *opt;
	struct cm_con_data_t local, remote; /* what each side tells the other */
	struct ibv_context *context;        /* the opened device */
	struct ibv_port_attr port;
	union ibv_gid gid;
	enum ibv_mtu mtu;                                     /* this side's */
	struct ibv_pd *pd;                                    /* protection domain */
	char *send_buffer[QPS_MAX], *receive_buffer[QPS_MAX]; /* of each QP, in one block each */
	struct ibv_mr *send_mr, *receive_mr;                  /* memory regions */
	struct ibv_cq *cq;                                    /* completion queue */
	struct ibv_qp *qp[QPS_MAX];                           /* queue pairs */
};

/* What a completion is for; it comes back in wr_id. */
enum work { WORK_RECEIVE, WORK_SEND };

struct completion {
	enum work work;
	unsigned qp;
	uint32_t bytes; /* of a receive */
};

/* Steps 1 to 5: device, PD, MR, CQ, QPs in RESET. */
void init_rdma_resources(struct rdma *r);
void modify_qp_to_init(struct rdma *r);
void post_receives(struct rdma *r); /* one on each QP */
/* Fill in r->local; print both, once r->remote is there. */
void con_data_describe(struct rdma *r);
void con_data_show(const struct rdma *r);
void modify_qp_to_rtr(struct rdma *r);
void modify_qp_to_rts(struct rdma *r);
/* Send the first `bytes` of the QP's send buffer. */
void post_send(struct rdma *r, unsigned qp, uint32_t bytes);
/* Poll until one operation is complete, 5 s at most, and look now and then whether the peer is
 * still there. */
struct completion poll_completion(struct rdma *r, struct exchange *x);
void close_rdma_resources(struct rdma *r);

#endif
