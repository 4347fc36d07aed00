/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.c - the process's one HCA, made for the first and ended with the last that needs it, and what
 * fork means for it; contexts are context.c's. */
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/guard.h"
#include "device/alive.h"
#include "device/board.h"
#include "device/farewell.h"
#include "device/fault.h"
#include "device/gsi_priv.h"
#include "device/mcast.h"
#include "device/ports.h"
#include "device/progress.h"
#include "device/tally.h"
#include "device/way.h"
#include "wire/crc32.h"

static struct {
	pid_t own_pid;
	bool watched;
} forks;

static void after_fork_child(void)
{
	service_atfork_child();
	way_forget_all();
	if (rpwi_fork_broken)
		rpwi_lanes_leave(hca_here.lanes);
	hca_here.generation++;
	hca_here.forked_from = hca_here.opens ? forks.own_pid : 0;
	forks.own_pid = getpid();
}

/* The process's place among those that share port 4791, its descriptors and its service thread. */
static int place_take(void)
{
	struct hca *h = &hca_here;
	char why[RPWI_WHY_LEN];
	int rc = rpwi_steer_open(&h->steer);
	if (rc) {
		snprintf(why, sizeof(why), "%s", strerror(-rc));
		if (rc == -ENOSPC)
			rpwi_steer_explain_full(why, sizeof(why));
		rpwi_error("cannot claim a place among the processes that share UDP port 4791: %s",
			why);
		return rc;
	}
	h->lanes = rpwi_steer_lanes(h->steer);
	h->steer_fd = rpwi_steer_fd(h->steer);
	h->nslots = rpwi_steer_slots(h->steer, h->slots, RPWI_ARRAY_LEN(h->slots));
	h->next_idx = (uint32_t)rpwi_random64() % RPWI_SLOT_QPNS;
	h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->wake_fd < 0)
		return -errno;
	tally_begin(h);
	board_open(h->lanes, h->slots[0]);
	rpwi_lanes_place_by(h->lanes, receive_place);
	gsi_begin();
	h->watch_fd = rpwi_netdev_watch_open();
	return h->watch_fd < 0 ? h->watch_fd : service_start();
}

static void descriptors_close(void)
{
	struct hca *h = &hca_here;
	if (h->wake_fd >= 0)
		close(h->wake_fd);
	if (h->watch_fd >= 0)
		close(h->watch_fd);
	way_forget_all();
	h->steer_fd = h->watch_fd = h->wake_fd = -1;
}

/* The entries are the parent's. */
static void copies_forget_ledger(void)
{
	for (unsigned i = 0; i < hca_here.nslots; i++)
		for (unsigned j = 0; hca_here.qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (hca_here.qps[i][j])
				hca_here.qps[i][j]->ledger = NULL;
}

/* What fork means. At fork it is unknown which of the two goes on, so the child keeps its copies
 * of the sockets, without a thread that would read from them:
 * - it execs or ends: they close with it, and the parent has noticed nothing;
 * - it calls verbs on what it inherited, as a daemon whose parent has ended: from the first such
 *   call on, packets are its own (service_start);
 * - it opens a device while its parent lives: it is a process like any other, and this function
 *   gives it a place of its own. What it inherited stays the
 *   parent's: the child's copies send nothing and get nothing, and may be destroyed.
 * Both going on with the same QPs is what no device can do (ibv_fork_init(3)). */
static int place_leave_to_parent(void)
{
	struct hca *h = &hca_here;
	char why[RPWI_WHY_LEN];
	h->forked_from = 0;
	rpwi_io_atfork_child();
	mcast_left_to_parent();
	board_left_to_parent();
	farewell_close();
	alive_forget();
	copies_forget_ledger();
	tally_left_to_parent(h);
	descriptors_close();
	/* Not freed: the copies of QPs and address handles point to the old ports, and those to the
	 * old steer. */
	for (unsigned i = 0; i < h->nslots; i++)
		h->qps[i] = NULL;
	h->nslots = 0;
	h->steer = NULL;
	h->lanes = NULL;
	int rc = place_take();
	for (unsigned i = 0; i < h->nports && !rc; i++)
		if (h->port[i].refs &&
			rpwi_port_open(h->steer, &h->port[i].addr, rpwi_port_is_mute(h->port[i].io),
				&h->port[i].io, why, sizeof(why)))
			rpwi_warn("after a fork: %s", why);
	if (!rc)
		gsi_left_to_parent();
	return rc;
}

/* What a device would do after its program's end: acknowledge what has come, and take leave of the
 * peers of its connections. */
static void at_exit(void)
{
	enum { LOCK_MS = 200, ROUNDS = 8 };
	/* Whoever holds the lock may never give it back: it may be this thread, that calls exit in
	 * a signal handler. */
	if (rpwi_fork_broken || rpwi_locks_mine.wanted & RPWI_LOCKS_QPS ||
		!rpwi_lock_within(RPWI_LOCK_HCA, LOCK_MS))
		return;
	if (hca_here.opens && !hca_here.forked_from) {
		send_held(rpwi_now_ns());
		gsi_exit();
		/* What lies in our sockets for other processes of this host goes to them, and not
		 * down with us. */
		for (int i = 0; i < ROUNDS && progress_run(true); i++)
			;
	}
	hca_unlock();
}

static bool writes_unordered(void)
{
	const char *way = getenv("ROPEWAY_WRITES");
	if (way && !strcmp(way, "unordered"))
		return true;
	if (way && *way && strcmp(way, "ordered") != 0)
		rpwi_warn(
			"ROPEWAY_WRITES: invalid value '%s': expected ordered or unordered; using "
			"ordered",
			way);
	return false;
}

int hca_get(void)
{
	struct hca *h = &hca_here;
	int rc;
	/* for rdma_cm alone, too: a listener on all addresses opens no device */
	fault_begin(&hca_fault_ops);
	rpwi_plan_wake = service_wake;
	while (h->closing) {
		hca_unlock();
		sched_yield();
		hca_lock();
	}
	if (h->opens++) {
		rc = h->forked_from && h->forked_from == getppid() ? place_leave_to_parent() : 0;
		if (rc)
			goto fail;
		return 0;
	}
	if (!h->txb.scratch && !(h->txb.scratch = aligned_alloc(4096, RPWI_TXB_SCRATCH))) {
		rc = -ENOMEM;
		goto fail;
	}
	if (!forks.watched) {
		rc = rpwi_fork_watch(after_fork_child);
		if (rc)
			goto fail;
		forks.own_pid = getpid();
		atexit(at_exit);
		forks.watched = true;
		const char *crc = rpwi_crc32_choose(rpwi_now_ns);
		rpwi_debug("ICRCs are computed by %s", crc);
	}
	rpwi_tap_init();
	h->writes_unordered = writes_unordered();
	rc = rpwi_guard_install();
	if (rc)
		goto fail;
	rc = place_take();
	if (!rc)
		return 0;
fail:
	hca_put();
	return rc;
}

void hca_lane_stats_add(struct rpwi_lane_stats *sum)
{
	struct rpwi_lane_stats s = {0};
	rpwi_lanes_stats(hca_here.lanes, &s);
	sum->tx_packets += s.tx_packets;
	sum->tx_refs += s.tx_refs;
	sum->rx_packets += s.rx_packets;
	sum->rx_lost += s.rx_lost;
	sum->wakes += s.wakes;
	sum->stalls += s.stalls;
}

void hca_put(void)
{
	struct hca *h = &hca_here;
	if (--h->opens)
		return;
	h->closing = true;
	service_stop();
	h->closing = false;
	gsi_defer_forget();
	gsi_hca_gone();
	ports_tend(true, receive_for_others);
	mcast_hca_gone();
	alive_forget();
	farewell_close();
	descriptors_close();
	hca_lane_stats_add(&h->lanes_gone);
	tally_end(h);
	board_close();
	if (h->steer)
		rpwi_steer_close(h->steer);
	h->steer = NULL;
	h->lanes = NULL;
	h->forked_from = 0;
	for (unsigned i = 0; i < h->nslots; i++) {
		free(h->qps[i]);
		h->qps[i] = NULL;
	}
	h->nslots = 0;
	rpwi_tap_flush();
}
