/* SPDX-License-Identifier: BSD-3-Clause */
/* mcast.h - multicast groups of the device: which QPs are attached to which (IB 10.5), and the
 * receivers of an arriving datagram. The HCA's lock is held over all but the verbs. Private to
 * device/.
 */
#ifndef ROPEWAY_DEVICE_MCAST_H
#define ROPEWAY_DEVICE_MCAST_H

#include "device/hca.h"

/* 0; -EINVAL: the GID is no group's, or the QP not UD; -ENOMEM: too many, as kernel rxe answers; or
 * another -errno, with the reason in the log. Attached already: 0, and nothing more. */
int mcast_attach(struct dqp *q, const union ibv_gid *gid);
int mcast_detach(struct dqp *q, const union ibv_gid *gid); /* -EINVAL: it is not attached */
/* Is there a group to receive from in this round? While polls find nothing, now and then. */
bool mcast_due(bool all);
struct group;
/* A batch of datagrams, and to which group; NULL: nothing is there. */
struct group *mcast_recv(struct rpwi_rx *rx);
/* Is it a datagram for a group? Counted, either way. */
bool mcast_takes(const struct rpwi_pkt *pkt);
/* One of its datagrams could not be read. */
void mcast_broken(const struct group *g);
/* The next QP, from *at on, that gets a datagram of this group from `src`; NULL: no more. */
struct dqp *mcast_next_qp(const struct group *g, unsigned *at, const struct rpwi_pkt *pkt,
	const struct rpwi_addr *src);
/* A packet for QP 0xffffff that came to an address of a host: dropped, counted. */
void mcast_by_unicast(void);
void mcast_context_gone(const struct dctx *c); /* its QPs are detached */
void mcast_hca_gone(void);                     /* all groups end */
void mcast_left_to_parent(void);               /* after a fork, in the child: it has none */
void mcast_stats_print(FILE *to);

#endif
