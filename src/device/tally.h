/* SPDX-License-Identifier: BSD-3-Clause */
/* tally.h - where this process's devices count: in the memory that all processes of the user share
 * (io/counters.h), so that the tree shows what all have counted. A QP counts straight into its
 * device's part of it.
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
void tally_context(struct dctx *c); /* it is new */
void tally_qp(struct dqp *q);       /* likewise */
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
