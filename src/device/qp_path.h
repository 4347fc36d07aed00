/* SPDX-License-Identifier: BSD-3-Clause */
/* qp_path.h - how the packets of a QP get to its peer: through memory, if the peer is a process of
 * this host (near), by UDP to one peer (udp; paced, where no acknowledgement paces it), or by UDP
 * to a multicast group (group).
 *
 * A path is chosen when it is first asked for, and again after a lane has come or gone
 * (qp_path_changes). A choice that can change by itself is made each time: the next WQE of a UD QP
 * names its own peer, and a peer of this host without a lane may have one by now.
 *
 * Who sends asks no more than the table says. A one-copy WRITE is one more function of it, beside
 * `send`; a loaned message is a payload that `room` finds a place for; a shorter short path is
 * another function of it. None of them adds a question to those that do not use it.
 *
 * The locks of the HCA and of the QP are held. */
#ifndef ROPEWAY_DEVICE_QP_PATH_H
#define ROPEWAY_DEVICE_QP_PATH_H

#include "device/hca.h"
#include "explain/trace.h"

struct qp_path_ops {
	/* How many packets the next batch may have; 0: none, the QP waits. Tells `b` its bounds. */
	unsigned (*room)(struct dqp *q, struct rpwi_txb *b);
	/* NULL, or: so many of these were not sent. */
	void (*unused)(unsigned pkts);
	/* 0, -EFAULT as of rpwi_port_send, or another -errno, which is dealt with. */
	int (*send)(struct dqp *q, struct rpwi_txb *b, unsigned *sent);
	enum rpwi_explain_fact fact; /* what `explain` says of it */
};
extern const struct qp_path_ops qp_path_near;

/* Before a lane comes or goes; all QPs' locks are taken, and stay so until it has. */
void qp_path_changes(void);
void qp_path_choose(struct dqp *q);
/* May a WRITE of this QP, by UDP, go as several? */
bool qp_path_may_split(const struct dqp *q);

static inline const struct qp_path_ops *qp_path(struct dqp *q)
{
	if (RPWI_UNLIKELY(q->path.turn != hca_here.path_turn))
		qp_path_choose(q);
	return q->path.ops;
}

/* The lane to the process of the peer; NULL: another path. */
static inline struct rpwi_lane *qp_lane(struct dqp *q)
{
	return qp_path(q) == &qp_path_near ? q->path.lane : NULL;
}

#endif
