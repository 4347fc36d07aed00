/* SPDX-License-Identifier: BSD-3-Clause */
/* tally.h - where this process's devices count: in the memory that all processes of the user share
 * (io/counters.h), so that the tree and `ropeway top` show what all have counted. A QP counts
 * straight into a row of its own there, or where there is none into its device's part.
 *
 * The HCA's lock is held.
 */
#ifndef ROPEWAY_DEVICE_TALLY_H
#define ROPEWAY_DEVICE_TALLY_H

#include "device/hca.h"
#include "io/counters.h"

void tally_begin(const struct hca *h); /* the process has a place */
void tally_end(struct hca *h);         /* it has none any more */
/* In a child that takes a place of its own: what it inherited counts nowhere any more. */
void tally_left_to_parent(struct hca *h);
/* In a child that goes on with what it inherited. */
void tally_is_forked(void);
void tally_context(struct dctx *c);    /* it is new */
void tally_qp(struct dqp *q);          /* likewise */
void tally_qp_connects(struct dqp *q); /* it has another peer, or none */
void tally_qp_gone(struct dqp *q);
/* Does it count with nobody else, so that its own lock will do? */
static inline bool tally_is_own(const struct dqp *q) { return q->row; }
/* Of that one of the devices that has the address: never NULL. */
struct rpwi_qp_stats *tally_at(const struct dev *devices, const struct rpwi_addr *local);
/* Adds what this process has counted, all its devices together. */
void tally_sum(struct rpwi_qp_stats *sum);

/* One resource more, or less. A child that has not yet shown whether it goes on with what it
 * inherited may destroy its copies: while its parent lives that is none less. */
#define tally_one(ctx, what, d) \
	tally_resource(&to_dctx(ctx)->tally->res.what, (d), hca_here.forked_from)
void tally_resource(_Atomic uint64_t *count, int d, pid_t forked_from);

#endif
