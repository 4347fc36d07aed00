/* SPDX-License-Identifier: BSD-3-Clause */
/* qp.h - queue pairs and shared receive queues: made, changed, posted to. Private to device/. */
#ifndef ROPEWAY_DEVICE_QP_H
#define ROPEWAY_DEVICE_QP_H

#include "device/hca.h"
#include "device/ports.h"

/* qpn.c; the lock is held */
int qpn_alloc(struct dqp *q, uint32_t *qpn);
void qpn_free(uint32_t qpn);

/* qp.c */
extern const struct rpwi_qp_ops device_qp_ops;
void qp_to_error(struct dqp *q, uint64_t now_ns); /* by the device itself; the lock is held */
struct ibv_qp *dev_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *attr);

/* post.c */
int dev_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int dev_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int dev_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
/* The address that a UD QP's SEND names; NULL: none, or it is nothing else. 0, or -errno: it cannot
 * be sent to. */
static inline int post_av(
	const struct dqp *q, const struct ibv_send_wr *wr, const struct rpwi_av **av)
{
	*av = NULL;
	bool sends = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
	if (q->t.type != IBV_QPT_UD || !sends || !wr->wr.ud.ah)
		return 0;
	struct dah *ah = RPWI_CONTAINER_OF(wr->wr.ud.ah, struct dah, ibv);
	*av = &ah->av;
	return RPWI_LIKELY(ah->port) ? 0 : ah_reach(ah);
}

/* build.c */
void build_attach(struct dqp *q);

/* srq.c */
int dev_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *dev_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr);

#endif
