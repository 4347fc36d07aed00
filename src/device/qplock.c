/* SPDX-License-Identifier: BSD-3-Clause */
/* qplock.c - see qplock.h. */
#include "device/qplock.h"

#include <assert.h>

#include "base/base.h"

struct qplock qplock_here;

/* No holder of a QP's lock waits for another of them but who has the HCA's, too; so their order
 * does not matter. To try, and to wait with a limit, is what tools that look for a wrong order
 * (TSan) take for that. */
void qplock_take(enum rpwi_lock l)
{
	enum { A_WHILE_MS = 1000 };
	assert(rpwi_lock_is_mine(RPWI_LOCK_HCA));
	if (rpwi_lock_is_mine(l) || RPWI_LIKELY(rpwi_lock_try(l)))
		return;
	while (!rpwi_lock_within(l, A_WHILE_MS))
		;
}

void qplock_take_all(void)
{
	if (!qplock_is_split())
		return;
	for (unsigned i = 0; i < qplock_here.used; i++)
		qplock_take(RPWI_LOCK_QPS + i);
}

void qplock_release(uint64_t held)
{
	for (; held; held &= held - 1)
		rpwi_unlock((enum rpwi_lock)__builtin_ctzll(held));
}

/* The one that the fewest have. */
enum rpwi_lock qplock_choose(void)
{
	unsigned at = 0;
	for (unsigned i = 1; i < RPWI_QPS_LOCKS; i++)
		if (qplock_here.users[i] < qplock_here.users[at])
			at = i;
	qplock_here.users[at]++;
	qplock_here.used = RPWI_MAX(qplock_here.used, at + 1);
	return RPWI_LOCK_QPS + at;
}

void qplock_give_back(enum rpwi_lock l) { qplock_here.users[l - RPWI_LOCK_QPS]--; }

/* Again and again: from now on QPs have locks of their own. A program whose threads take turns now
 * and then, or has one that posts, needs none and pays for none. */
void qplock_poster_changes(void)
{
	enum { SPLIT_AT = 16 };
	qplock_here.poster = &rpwi_locks_mine;
	if (!qplock_is_split() && ++qplock_here.posters >= SPLIT_AT)
		atomic_store_explicit(&qplock_here.split, true, memory_order_release);
}
