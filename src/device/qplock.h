/* SPDX-License-Identifier: BSD-3-Clause */
/* qplock.h - the locks of QPs (base/lock.h has the mutexes, hca.h the rule): which QP has which,
 * and when they begin to be taken at all. Private to device/. */
#ifndef ROPEWAY_DEVICE_QPLOCK_H
#define ROPEWAY_DEVICE_QPLOCK_H

#include <stdatomic.h>

#include "base/lock.h"

/* Changed under the HCA's lock. */
extern struct qplock {
	/* several threads post: QPs have locks of their own. For good */
	_Atomic bool split;
	const void *poster;             /* the thread that posted last, while that is not so */
	unsigned posters;               /* how often it was another than before */
	unsigned users[RPWI_QPS_LOCKS]; /* QPs of each lock */
	unsigned used;                  /* of those, that have had any: the first ones */
} qplock_here;

static inline bool qplock_is_split(void)
{
	return atomic_load_explicit(&qplock_here.split, memory_order_acquire);
}

/* The HCA's lock is held over all of these. */

/* From now on until qplock_release; again and again. */
void qplock_take(enum rpwi_lock l);
/* All of them: state read with any QP's lock may be changed. */
void qplock_take_all(void);
void qplock_release(uint64_t held); /* bits of rpwi_locks_mine */
/* For a new QP; and one goes. */
enum rpwi_lock qplock_choose(void);
void qplock_give_back(enum rpwi_lock l);
/* This thread posts, and the one before it was another. */
void qplock_poster_changes(void);

#endif
