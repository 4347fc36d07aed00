/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.h - the software HCA, and the lock that its objects (objects.h) live under. Private to
 * device/.
 *
 * One process has one `struct hca` (the name `hca_here`), whatever number of devices and contexts
 * it opens: one service thread, one set of ports, one QPN space.
 *
 * The lock rule: the HCA's lock (RPWI_LOCK_HCA, base/lock.h) is held over everything that touches
 * transport state (QPs, RQs, MRs, peers, ports, timers). The program's data path takes it in
 * post_send, post_recv and in poll_cq when it makes progress there (try-lock: if somebody else is
 * making progress, poll_cq only looks at its CQ).
 *
 * Once several threads post (qplock.h, which stays), each QP has a lock beside that, one of
 * RPWI_QPS_LOCKS, and calls that need nothing but the QP take it alone: receives are posted so, and
 * READs out of the peer's memory are done so (rpwi_qp_read_alone). A holder of the HCA's lock takes
 * it before it touches a QP's queues (qp_hold), and keeps it until it gives that one back. State
 * that is read with any QP's lock and seldom changed (keys, lanes and their other ends) is changed
 * with all of them (qplock_take_all). So nobody waits for the HCA's lock who has a QP's alone.
 *
 * A CQ's ring has a spin lock of its own (producer: under the HCA's lock or a QP's, and without it
 * where there is but one of them and no event; consumers: the program), taken after those, never
 * before them. A completion channel's and a context's event
 * lists are under RPWI_LOCK_EVENTS, innermost of all.
 *
 * The error rule: functions give 0 or -errno, here as in rc/, cm/ and io/. What a verb is called by
 * gives what the verb does (errno, or NULL or -1 with errno set), and turns it round itself.
 */
#ifndef ROPEWAY_DEVICE_HCA_H
#define ROPEWAY_DEVICE_HCA_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "device/objects.h"

struct hca_counters {
	uint64_t icrc_errors, decode_errors, no_qp, handed_over, rx_batches, rx_packets, tx_batches;
	uint64_t inline_polls, inline_empty, service_wakeups, cq_overflows, pace_stalls;
	uint64_t mads, mads_handed_over, mads_dropped, mads_unsent, mads_for_gone, qp0;
	uint64_t path[RPWI_PATH_KINDS], path_held, icmp_unbelieved;
};

struct hca {
	unsigned opens;
	/* another in each forked child: what its parent's threads held is free there */
	uint32_t generation;
	struct rpwi_list contexts;
	struct rpwi_steer *steer;
	struct rpwi_lanes *lanes; /* the steer's */
	uint32_t path_turn;       /* another when a lane has come or gone; never 0 */
	/* ROPEWAY_WRITES=unordered: nobody in this process looks at a WRITE before its end */
	bool writes_unordered;
	int steer_fd, watch_fd, wake_fd;

	/* QPNs */
	uint16_t slots[64];
	unsigned nslots;
	struct dqp **qps[64]; /* RPWI_SLOT_QPNS each */
	uint32_t next_idx;

	/* keys */
	struct dkey **keys;
	uint32_t keys_cap, keys_used; /* keys_cap: a power of two, at least twice keys_used */

	struct dport port[DEV_PORTS_MAX];
	unsigned nports;
	struct rpwi_list peers, waited;
	struct rpwi_list tx_list, held, touched;
	/* all of tx_list waits for room in lanes, whose readers wake us */
	bool all_stuck;
	struct rpwi_heap timers; /* of struct dqp */
	/* sent by UDP in this round of progress, about, while one is `awaited` */
	uint32_t round_bytes;
	/* the QP whose lone message went last by UDP, if it has no answer yet, and how many rounds
	 * of progress it may still be waited for */
	struct dqp *awaited;
	unsigned awaited_rounds;
	struct rpwi_txb txb;

	/* service thread */
	pthread_t service;
	_Atomic bool service_running;
	_Atomic unsigned idle_ports; /* that wait to be closed by it */
	/* the last user is on its way out, without the lock while it waits for the thread */
	bool closing;
	/* this process is a child that has not yet shown whether it goes on with what it inherited;
	 * else 0 */
	pid_t forked_from;
	_Atomic bool stop;
	/* counts up while the program polls in vain: then progress is its own */
	_Atomic uint32_t empty_polls;
	_Atomic uint32_t any_polls;
	_Atomic int commands;      /* of the CM, that have the lock or wait for it */
	_Atomic int waiters;       /* threads that make progress inside rpwi_dev_get_cq_event */
	uint64_t emptied;          /* rounds that found nothing, in the lanes and in all sockets */
	_Atomic int lane_sleepers; /* threads that packets in memory do not wake by themselves */
	_Atomic bool held_any;
	_Atomic uint64_t say_at_ns; /* the first event of a CQ that waits is due; 0: none does */
	_Atomic unsigned gathered;  /* posts that wait in tx_list for more of their kind */
	_Atomic uint32_t gathers;   /* counts up with each of those */
	/* so many posts more do not wait; how often it came to that, less what was forgiven for
	 * so many batches that were full */
	uint32_t gather_pause, gather_pauses, gather_full;
	_Atomic bool service_sleeps; /* in ppoll on the sockets */
	uint64_t service_wake_ns;    /* when it will wake by itself */
	_Atomic uint64_t stream_ns;  /* when a batch of a stream last came in */

	struct { /* of progress (progress.c) */
		unsigned n;
		unsigned by_lanes; /* so many more look at sockets seldom: packets came by lanes */
		bool more_handed;  /* other processes handed something over in the last one */
	} rounds;
	/* so many objects of each kind were made: their numbers in fault scripts, and of PDs */
	uint32_t made[LIVE_KINDS];
	uint32_t groups;          /* of contexts (context.c), likewise */
	uint64_t nonce;           /* the process's, for those who import from it; 0: none yet */
	uint64_t qpn_key;         /* of the order of QPNs (qpn.c); 0: none yet */
	uint64_t list_renewed_ns; /* the list of devices was read by a command of the CM */
	uint8_t *zeros;           /* what regions without memory read (mr.c) */
	struct hca_counters n;
	struct rpwi_qp_stats gone;         /* what is in no tally any more */
	struct rpwi_port_stats ports_gone; /* and of closed ports */
	struct rpwi_lane_stats lanes_gone; /* and of lanes, when the HCA was last closed */
};
extern struct hca hca_here;

/* Of verbs off the data path: the thread is not canceled before it is given back (base/lock.h). */
static inline void hca_lock(void)
{
	rpwi_lock(RPWI_LOCK_HCA);
	rpwi_shield();
}
static inline void hca_unlock(void)
{
	uint64_t held = rpwi_locks_mine.held & (RPWI_LOCKS_QPS | RPWI_LOCK_SHIELD);
	if (RPWI_UNLIKELY(held))
		qplock_release(held & RPWI_LOCKS_QPS);
	rpwi_unlock(RPWI_LOCK_HCA);
}
/* With the lock held: is it an object that lives? False: the lock is given back. */
static inline bool hca_lock_live(enum live_kind kind, const void *object)
{
	hca_lock();
	if (live_is(kind, object))
		return true;
	hca_unlock();
	return false;
}
/* Not either where a handler interrupted what this thread does with a QP. */
static inline bool hca_try(void)
{
	return !(rpwi_locks_mine.wanted & RPWI_LOCKS_QPS) && rpwi_lock_try(RPWI_LOCK_HCA);
}

/* The HCA's lock is held: from now on until it is given back, the QP's too. Again and again. */
static inline void qp_hold(const struct dqp *q)
{
	if (RPWI_UNLIKELY(qplock_is_split()))
		qplock_take(q->lock);
}

/* NULL and errno, in a child that has to refuse (base/lock.h). */
static inline void *dev_refuse(const char *call) { return rpwi_none(rpwi_fork_refuse(call)); }

/* hca.c; the lock is held */
int hca_get(void); /* first open: steer, service thread. 0 or -errno */
void hca_put(void);
void hca_lane_stats_add(struct rpwi_lane_stats *sum);

/* here.c */
void service_wake(void);
struct dqp *qp_lookup(uint32_t qpn);

/* happen.c */
extern const struct fault_ops hca_fault_ops; /* fault.h */

#endif
