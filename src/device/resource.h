/* SPDX-License-Identifier: BSD-3-Clause */
/* resource.h - the verbs objects of this process, as the kernel's resource tracking lists a
 * device's: what `rdma res` shows. Read only; nothing is kept for it.
 */
#ifndef ROPEWAY_DEVICE_RESOURCE_H
#define ROPEWAY_DEVICE_RESOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum rpwi_resource_kind {
	RPWI_RES_PD,
	RPWI_RES_CQ,
	RPWI_RES_QP,
	RPWI_RES_CM_ID,
	RPWI_RES_MR,
	RPWI_RES_CTX,
	RPWI_RES_SRQ,
	RPWI_RES_KINDS,
};

/* One object. What its kind does not have is 0. */
struct rpwi_resource {
	enum rpwi_resource_kind kind;
	uint32_t id;          /* a QPN for a QP; else a number of its own in this process */
	uint32_t pid;         /* whose it is */
	uint32_t pd, cq, ctx; /* the ids of those that it belongs to */
	uint64_t users;       /* objects that use it: PD, CQ */
	uint32_t cqe;         /* CQ: entries */
	uint32_t lkey, rkey;  /* MR */
	uint64_t length;      /* MR: bytes */
	uint8_t type, state;  /* QP: enum ibv_qp_type, ibv_qp_state. CM_ID: the kernel's states */
	bool connects;        /* QP: it has a peer, and the next three */
	uint32_t remote_qpn, rq_psn, sq_psn; /* QP; sq_psn of UD too */
	uint32_t qpn, port_space; /* CM_ID: of its QP, 0 for none; enum rdma_ucm_port_space */
	struct sockaddr_storage src, dst; /* CM_ID */
};

/* One object, the HCA's lock held: it must not block and makes no call of the device. False ends
 * it. */
typedef bool rpwi_resource_visit(void *arg, const struct rpwi_resource *r);

/* All objects of a kind on the device of that name, but CM_ID, which are ucma's. 0; -EBUSY where a
 * handler has interrupted this thread in the middle of a call of the device. */
int rpwi_dev_resources(
	const char *device, enum rpwi_resource_kind kind, rpwi_resource_visit *visit, void *arg);
/* enum ibv_device_cap_flags of every device */
uint64_t rpwi_dev_caps(void);

#endif
