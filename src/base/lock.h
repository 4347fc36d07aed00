/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.h - the locks of the process, and what fork does with them. There is one of each, but for
 * the queue pairs': each QP belongs to one of RPWI_QPS_LOCKS (device/hca.h).
 *
 * Each thread notes which it holds. So fork takes those that other threads may hold (their state is
 * then whole in the child), and never waits for the thread that calls it: fork is called in signal
 * handlers, which may interrupt a poll. A child that was forked in the middle of what its own
 * thread was doing has half of a change. It is told so by name: rpwi_fork_broken is set, and every
 * call of the device refuses. Its handler may return: the interrupted call then ends on the child's
 * own copy, without a packet sent or received.
 *
 * Not in this table, and never waited for by fork:
 * - a CQ's ring (cq.h): the child sees by a number that its holder was another process; its own
 *   thread's section counts as held (RPWI_LOCK_CQ);
 * - a QP between ibv_wr_start and ibv_wr_complete, the mutex and condition of ibv_qp, ibv_cq,
 *   ibv_srq (events acknowledged): the program's, as with libibverbs;
 * - the messaging library's, its transports' and the NCCL plugin's: no handler of theirs takes one
 *   at fork.
 *
 * A thread may be canceled (pthread_cancel), and the cancellation acts at the system calls that
 * POSIX names: read, write, poll, recvmsg, close and the like. No thread may end so with one of
 * these locks: rpwi_shield, before such a call, puts the cancellation off until the last of them is
 * given back. Locks under which such calls are the rule do it themselves (rpwi_lock_shields); the
 * data path, which makes them now and then, does it where it makes them. A change that must be done
 * as a whole, lock or not, has a RPWI_WHOLE.
 *
 * What glibc's fork takes itself (malloc's locks, the list of open FILEs) can be held by the
 * interrupted code, and fork then waits for ever, in any program with two threads.
 */
#ifndef ROPEWAY_LOCK_H
#define ROPEWAY_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { RPWI_QPS_LOCKS = 32 };

/* In the order in which they are taken. */
enum rpwi_lock {
	RPWI_LOCK_LISTS,   /* preload/devices.c: the lists of devices given out */
	RPWI_LOCK_DEVICES, /* device/devices.c: the devices, the open contexts */
	RPWI_LOCK_HCA,     /* all of the transport: device/hca.h */
	/* queue pairs, from here on: a thread has one of them; one with the HCA's lock, several, in
	 * any order */
	RPWI_LOCK_QPS,
	/* ucma/channel.c: who uses a channel */
	RPWI_LOCK_CHANNELS = RPWI_LOCK_QPS + RPWI_QPS_LOCKS,
	RPWI_LOCK_EVENTS,  /* device: the lists of events of completion channels and contexts */
	RPWI_LOCK_BUILDS,  /* device/build.c: the pool of ibv_wr_* lists */
	RPWI_LOCK_GUARD,   /* base/guard.c: the program's handlers */
	RPWI_LOCK_TAP,     /* io/pcapng.c */
	RPWI_LOCK_PLAN,    /* fault/plan.c */
	RPWI_LOCK_EXPLAIN, /* explain/trace.c */
	RPWI_LOCK_CHECK,   /* check/check.h; it shields itself where it makes system calls */
	RPWI_LOCKS,
	RPWI_LOCK_CQ = RPWI_LOCKS, /* no mutex: the section of a CQ's ring */
};
/* Each in a cache line of its own: threads with a QP each share none. */
struct rpwi_lock_line {
	_Alignas(64) pthread_mutex_t mutex;
};
extern struct rpwi_lock_line rpwi_locks[RPWI_LOCKS];

/* Bits of this thread, set before a lock is asked for and after it was got: a signal may come in
 * between. */
extern __thread struct rpwi_locks_of {
	uint64_t wanted, held;
} rpwi_locks_mine __attribute__((tls_model("initial-exec")));

_Static_assert(RPWI_LOCK_CQ < 64, "a bit for each");
#define RPWI_LOCKS_QPS (((1ull << RPWI_QPS_LOCKS) - 1) << RPWI_LOCK_QPS)

static inline bool rpwi_lock_is_mine(enum rpwi_lock l) { return rpwi_locks_mine.wanted >> l & 1; }

static inline void rpwi_lock_enter(enum rpwi_lock l)
{
	rpwi_locks_mine.wanted |= 1ull << l;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void rpwi_lock_leave(enum rpwi_lock l)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	rpwi_locks_mine.wanted &= ~(1ull << l);
}

static inline void rpwi_lock_got(enum rpwi_lock l)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	rpwi_locks_mine.held |= 1ull << l;
}

/* A bit of `held`: the cancellation of this thread is off, and was on before. */
#define RPWI_LOCK_SHIELD (1ull << 63)
void rpwi_shield_raise(void);
void rpwi_shield_drop(void);

/* Before a system call at which pthread_cancel acts, where a lock may be held. */
static inline void rpwi_shield(void)
{
	uint64_t held = rpwi_locks_mine.held;
	if (held && !(held & RPWI_LOCK_SHIELD))
		rpwi_shield_raise();
}

/* From here to the end of the block the thread is not canceled. */
static inline int rpwi_whole_begin(void)
{
	int was;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	return was;
}
static inline void rpwi_whole_end(const int *was) { pthread_setcancelstate(*was, NULL); }
#define RPWI_WHOLE \
	__attribute__((cleanup(rpwi_whole_end), unused)) const int rpwi_whole = rpwi_whole_begin()

static inline bool rpwi_lock_shields(enum rpwi_lock l)
{
	return l <= RPWI_LOCK_DEVICES || l == RPWI_LOCK_EVENTS ||
	       (l >= RPWI_LOCK_TAP && l != RPWI_LOCK_CHECK);
}

static inline void rpwi_lock(enum rpwi_lock l)
{
	rpwi_lock_enter(l);
	pthread_mutex_lock(&rpwi_locks[l].mutex);
	rpwi_lock_got(l);
	if (rpwi_lock_shields(l))
		rpwi_shield();
}

/* False, too, when it is this thread's already. */
static inline bool rpwi_lock_try(enum rpwi_lock l)
{
	if (rpwi_lock_is_mine(l))
		return false;
	rpwi_lock_enter(l);
	if (!pthread_mutex_trylock(&rpwi_locks[l].mutex)) {
		rpwi_lock_got(l);
		return true;
	}
	rpwi_lock_leave(l);
	return false;
}
bool rpwi_lock_within(enum rpwi_lock l, unsigned ms); /* as try, but waits */

static inline void rpwi_unlock(enum rpwi_lock l)
{
	rpwi_locks_mine.held &= ~(1ull << l);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&rpwi_locks[l].mutex);
	rpwi_lock_leave(l);
	if (RPWI_LOCK_SHIELD == rpwi_locks_mine.held)
		rpwi_shield_drop();
}

/* ---- fork ---- */

/* This process was forked by a signal handler that had interrupted a section of one of these locks,
 * or its parent was such a one. */
extern bool rpwi_fork_broken;
/* Says so, once. EIO, which is in errno, too. */
int rpwi_fork_refuse(const char *call);
/* A descriptor that is shared with the parent leads nowhere from now on. -1 is none. */
void rpwi_fork_mute(int fd);
/* From now on fork is as told above; `child` runs in each child, the locks still held. A function
 * that is known already is not taken twice. -ENOMEM. */
int rpwi_fork_watch(void (*child)(void));

#endif
