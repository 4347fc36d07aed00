/* SPDX-License-Identifier: BSD-3-Clause */
/* overlap.h - requests in flight on the same bytes (rules 103 and 117). The lock is held. */
#ifndef ROPEWAY_CHECK_OVERLAP_H
#define ROPEWAY_CHECK_OVERLAP_H

#include "check/queue.h"

extern bool check_overlap_shares; /* a send was posted whose bytes a receive owned */
/* A request is posted: looks whether others own its bytes, and owns those that it will write. */
void check_overlap_post(struct check_qp *q, struct check_queue *of, struct check_wr *w);
/* Owners of [addr, addr + len) in turn, until one returns false. */
void check_owners_each(uint64_t addr, uint64_t len,
	bool (*fn)(struct check_qp *q, struct check_queue *of, struct check_wr *w, void *arg),
	void *arg);

#endif
