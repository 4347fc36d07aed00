/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.h - a fault script (fault/fault.h) at work on the device: every hook asks rpwi_plan_on
 * first. The HCA's lock is held for all of it. Private to device/. */
#ifndef ROPEWAY_DEVICE_FAULT_H
#define ROPEWAY_DEVICE_FAULT_H

#include "device/hca.h"
#include "fault/fault.h"

/* What it needs of the rest of the device, which is above it. */
struct fault_ops {
	struct dkey *(*key)(uint32_t key);
	void (*push)(struct dcq *cq, const struct ibv_wc *wc, bool solicited);
	void (*to_error)(struct dqp *q, uint64_t now_ns);
	void (*send)(const struct rpwi_cm_path *path, const uint8_t *mad);
	void (*feed)(
		const struct rpwi_cm_path *path, const uint8_t *mad, size_t len, uint64_t now_ns);
	void (*happen)(const struct rpwi_happening *h);
	void (*wake)(void);
};
void fault_begin(const struct fault_ops *o); /* no lock is needed */

/* In the place of rpwi_qp_post_send and rpwi_rq_post; q is NULL for a SRQ. 0 or -errno. */
int fault_post_send(struct dqp *q, const struct ibv_send_wr *wr, const struct rpwi_av *av);
int fault_post_recv(struct dqp *q, struct rpwi_rq *rq, const struct ibv_recv_wr *wr);
/* A packet for q: true where it is lost. */
bool fault_rx(
	struct dqp *q, const struct rpwi_pkt *pkt, const struct rpwi_rxmeta *meta, uint64_t now_ns);
/* A completion of q: true where it is kept, because it, or one before it in its CQ, is late. */
bool fault_complete(struct dqp *q, bool recv, const struct ibv_wc *wc, bool solicited);
/* What is kept for a CQ of a QP that is destroyed or reset goes too. */
void fault_forget(const struct dcq *cq, uint32_t qpn);
/* A CM message to send, or one that came: true where it is lost, or kept for later. */
bool fault_cm_tx(const struct rpwi_cm_path *path, const uint8_t *mad);
bool fault_cm_rx(const struct rpwi_cm_path *path, const uint8_t *mad, size_t len);
/* Events due at a time, and packets kept. RPWI_NEVER: nothing. */
uint64_t fault_deadline(void);
void fault_timer(uint64_t now_ns);

#endif
