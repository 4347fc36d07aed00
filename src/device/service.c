/* SPDX-License-Identifier: BSD-3-Clause */
/* service.c - the thread that makes progress while the program does not, and how the two find out
 * who of them does.
 *
 * The sockets have one owner at a time: while polls in vain show that the program spins, or a
 * thread waits in ibv_get_cq_event, the service thread sleeps on a tick, not on the sockets, and
 * takes over after a tick without polls. While they are its own it sleeps on them, or, where the
 * next packet is due (spin.h), looks at them without a pause.
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check/order.h"
#include "device/board.h"
#include "device/devices.h"
#include "device/farewell.h"
#include "device/path.h"
#include "device/pollset.h"
#include "device/ports.h"
#include "device/progress.h"
#include "device/spin.h"
#include "device/tally.h"

enum {
	SPIN_POLLS = 32, /* so many polls in vain within a tick mean that the program spins */
	STREAM_SPIN_NS = 50000,
	TICK_NS = 200000,
	SLICE_NS = 100000, /* the least that the kernel grants */
	/* after short messages that waited for the service thread so many do not wait, twice as
	 * many after the next */
	GATHER_PAUSE = 1024,
	GATHER_PAUSES_MAX = 20,
	/* who has not polled for so long at the end of a tick has stopped */
	POLLS_SEEN_NS = 30000,
	/* at most, by the service thread; a few times that where the machine is busy */
	ACK_HOLD_NS = 20000,
	CHECK_NS = 500000000, /* between looks of the checker */
	SERVICE_SLEEP_MAX_MS = 60000,
	ALL_ROUNDS = 8,
	YIELD_ROUNDS = 4, /* awake: the core is offered to others once in so many rounds */
	LEFT_TO_CHILD_MS = 10,
};

void service_wait_begin(void) { atomic_fetch_add(&hca_here.waiters, 1); }
void service_wait_end(void) { atomic_fetch_sub(&hca_here.waiters, 1); }

/* The program counts there what it does; does it do so now? */
static bool counts_now(const _Atomic uint32_t *at, uint32_t seen)
{
	uint64_t until = rpwi_now_ns() + POLLS_SEEN_NS;
	while (atomic_load_explicit(at, memory_order_relaxed) == seen) {
		if (rpwi_now_ns() > until)
			return false;
		sched_yield();
	}
	return true;
}

/* The program has posted; if it does not go on, and polls no more or finds what it polls for, it
 * cannot know that some of that waits. It will not wait so often again. */
static void tend_gathered(void)
{
	struct hca *h = &hca_here;
	uint32_t seen = atomic_load_explicit(&h->gathers, memory_order_relaxed);
	if (!atomic_load_explicit(&h->gathered, memory_order_relaxed) ||
		counts_now(&h->gathers, seen) || !hca_try())
		return;
	if (atomic_load_explicit(&h->gathered, memory_order_relaxed) &&
		atomic_load_explicit(&h->gathers, memory_order_relaxed) == seen) {
		h->gather_pause = GATHER_PAUSE << h->gather_pauses;
		h->gather_pauses += h->gather_pauses < GATHER_PAUSES_MAX;
		send_run(rpwi_now_ns());
	}
	hca_unlock();
}

static bool program_owns(void)
{
	struct hca *h = &hca_here;
	return atomic_load_explicit(&h->waiters, memory_order_relaxed) > 0 ||
	       atomic_load_explicit(&h->empty_polls, memory_order_relaxed) >= SPIN_POLLS;
}

/* What the thread does next, and keeps from one to the other. */
enum next { LEFT, TICK, ROUND, SPIN, SLEEP };
struct service {
	/* what it sleeps on: the sockets, then what wakes it, then changes of addresses */
	struct pollfd fds[2 * DEV_PORTS_MAX + 5];
	unsigned n;      /* of those */
	unsigned polled; /* sockets that poll has just looked at; 0: it has not */
	/* After poll only what it found is read, until that is empty; but now and then everything,
	 * for a stream may go on for long. */
	struct pollset_ready ready;
	unsigned rounds;
	uint32_t seen_polls, seen_calls; /* of the program: by the last tick, by the last round */
	struct spin spin;
	bool spins;     /* it waits awake */
	enum next next; /* what the last round leads to; ROUND: nothing */
	uint64_t now_ns, until_ns;
};

/* The lock is not held. */
static enum next decide(struct service *s)
{
	enum next next = s->next;
	s->next = ROUND;
	if (next != ROUND)
		return next;
	if (RPWI_UNLIKELY(board_is_the_childs()))
		return LEFT;
	return program_owns() ? TICK : ROUND;
}

/* The child has a service thread of its own, and the same sockets and lanes: what this one took
 * would be answered from memory that is nobody's any more. */
static void leave_to_child(void)
{
	const struct timespec ts = {.tv_nsec = LEFT_TO_CHILD_MS * RPWI_NS_PER_MS};
	nanosleep(&ts, NULL);
}

static void tend(void)
{
	struct hca *h = &hca_here;
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_tick(rpwi_now_ns());
	if (RPWI_UNLIKELY(farewell_deadline() != RPWI_NEVER) &&
		farewell_deadline() <= rpwi_now_ns())
		farewell_tend(rpwi_now_ns());
	if (RPWI_UNLIKELY(atomic_load_explicit(&h->idle_ports, memory_order_relaxed)) &&
		hca_try()) {
		ports_tend(false, receive_for_others);
		hca_unlock();
	}
}

/* A tick of sleep while the program owns the sockets. True when it still does. */
static bool tick_sleep(struct service *s)
{
	struct hca *h = &hca_here;
	struct pollfd wake = {.fd = h->wake_fd, .events = POLLIN};
	struct timespec ts = {.tv_nsec = TICK_NS};
	ppoll(&wake, 1, &ts, NULL);
	if (wake.revents) {
		uint64_t n;
		if (read(h->wake_fd, &n, sizeof(n)) < 0)
			return false;
	}
	tend_gathered();
	if (atomic_load_explicit(&h->waiters, memory_order_relaxed) > 0)
		return true;
	uint32_t polls = atomic_load_explicit(&h->any_polls, memory_order_relaxed);
	bool polled = polls != s->seen_polls;
	s->seen_polls = polls;
	return polled &&
	       atomic_load_explicit(&h->empty_polls, memory_order_relaxed) >= SPIN_POLLS &&
	       counts_now(&h->any_polls, polls);
}

static void tick(struct service *s)
{
	bool owned = program_owns();
	s->ready = pollset_all_ready;
	s->polled = 0;
	tend();
	if (!tick_sleep(s) && owned)
		atomic_store_explicit(&hca_here.empty_polls, 0, memory_order_relaxed);
}

/* Never queue for the lock: its holder makes progress or is about to, and would have to wake this
 * thread at each unlock. Commands to the CM do not, and are short. */
static bool round_lock(void)
{
	if (hca_try())
		return true;
	if (!atomic_load_explicit(&hca_here.commands, memory_order_relaxed))
		return false;
	hca_lock();
	return true;
}

/* The sockets, and until when it may sleep on them. */
static void round_watch(struct service *s)
{
	struct hca *h = &hca_here;
	s->n = pollset_fill(h, s->fds);
	s->fds[s->n++] = (struct pollfd){.fd = h->wake_fd, .events = POLLIN};
	s->fds[s->n++] = (struct pollfd){.fd = h->watch_fd, .events = POLLIN};
	s->until_ns = RPWI_MIN(progress_deadline(), farewell_deadline());
	s->until_ns = RPWI_MIN(s->until_ns, ports_deadline());
	if (!rpwi_list_empty(&h->held))
		s->until_ns = RPWI_MIN(s->until_ns, s->now_ns + ACK_HOLD_NS);
	if (RPWI_UNLIKELY(rpwi_check_on)) /* what waits in vain wakes nobody */
		s->until_ns = RPWI_MIN(s->until_ns, s->now_ns + CHECK_NS);
	h->service_wake_ns = s->until_ns;
}

static enum next round_leads_to(struct service *s, bool got)
{
	struct hca *h = &hca_here;
	bool held = !rpwi_list_empty(&h->held);
	s->spins = !held && !got && spin_goes_on(&s->spin, s->now_ns);
	/* In the middle of a stream the next batch is microseconds away, and to sleep and be woken
	 * takes longer than that. */
	s->spins = s->spins || (!held && s->now_ns - atomic_load_explicit(
							     &h->stream_ns, memory_order_relaxed) <=
						 STREAM_SPIN_NS);
	if (got && !held)
		return ROUND;
	if (s->spins)
		return SPIN;
	return pollset_sleep(h) ? SLEEP : ROUND;
}

static void round_make(struct service *s)
{
	struct hca *h = &hca_here;
	tend();
	if (!round_lock()) {
		s->next = TICK;
		return;
	}
	if (atomic_load_explicit(&h->stop, memory_order_relaxed)) {
		/* a tick may have taken the wake-up that was meant for poll */
		hca_unlock();
		return;
	}
	if (s->polled) {
		if (RPWI_UNLIKELY(pollset_path_spoke(s->fds, s->polled)))
			path_heard(h);
		s->ready = pollset_read(h, s->fds, s->polled);
	}
	s->polled = 0;
	bool all = ++s->rounds % ALL_ROUNDS == 0;
	if (all)
		s->ready = pollset_all_ready;
	/* A program that polls memory answers soon: its reply takes the ACK along, and then the
	 * peer gets both where it polls. A program that has made no call of late does not: its ACK
	 * goes at once. */
	uint32_t calls = atomic_load_explicit(&h->any_polls, memory_order_relaxed);
	bool active = calls != s->seen_calls;
	s->seen_calls = calls;
	if (!rpwi_list_empty(&h->held))
		send_held(rpwi_now_ns());
	/* Awake, it looks where packets come from; now and then everywhere. */
	bool got =
		progress_round(!s->spins || all, active, s->spins ? pollset_all_ready : s->ready);
	s->now_ns = rpwi_now_ns();
	if (got)
		spin_packet(&s->spin, s->now_ns);
	round_watch(s);
	s->next = round_leads_to(s, got);
	atomic_store(&h->service_sleeps, s->next == SLEEP);
	hca_unlock();
}

static void spin_once(struct service *s)
{
	if (s->rounds % YIELD_ROUNDS)
		return;
	sched_yield();
	spin_yielded(&s->spin, s->now_ns, rpwi_now_ns());
}

static void sleep_once(struct service *s)
{
	struct hca *h = &hca_here;
	const struct pollfd *wake = &s->fds[s->n - 2], *watch = &s->fds[s->n - 1];
	struct timespec ts = pollset_timeout(s->until_ns, SERVICE_SLEEP_MAX_MS * RPWI_NS_PER_MS);
	if (ppoll(s->fds, s->n, &ts, NULL) >= 0)
		s->polled = s->n - 2;
	pollset_awake(h);
	atomic_store(&h->service_sleeps, false);
	h->n.service_wakeups++;
	if (wake->revents & POLLIN) {
		uint64_t v;
		if (read(h->wake_fd, &v, sizeof(v)) < 0)
			rpwi_debug("service thread: %s", strerror(errno));
	}
	if ((watch->revents & POLLIN) && rpwi_netdev_watch_read(h->watch_fd))
		dev_refresh();
}

/* How the kernel schedules a thread, in the first layout of its system calls; not every libc
 * declares it. */
struct slice {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

/* Since Linux 6.12 the scheduler lets a thread with a short slice run as soon as it wakes, unless
 * it has had its share; and a sched_yield puts it off for no longer than its slice. With the usual
 * one, threads that spin on all cores delay each wake-up by milliseconds. It gets no larger share.
 * Older kernels ignore this. */
static void ask_for_short_slice(void)
{
	struct slice s = {0};
	if (syscall(SYS_sched_getattr, 0, &s, sizeof(s), 0) || s.policy != SCHED_OTHER)
		return;
	s.runtime_ns = SLICE_NS;
	if (syscall(SYS_sched_setattr, 0, &s, 0))
		rpwi_debug("service thread: no short time slice: %s", strerror(errno));
}

static void *service_main(void *arg)
{
	uint32_t seen = atomic_load(&hca_here.any_polls);
	struct service s = {
		.ready = pollset_all_ready, .seen_polls = seen, .seen_calls = seen, .next = ROUND};
	prctl(PR_SET_TIMERSLACK, 1ul); /* 50 us by default: more than an ACK may wait */
	ask_for_short_slice();
	/* it is already counted among the sleepers, and wakes at once when it is to stop */
	while (s.next == SLEEP || !atomic_load_explicit(&hca_here.stop, memory_order_relaxed))
		switch (decide(&s)) {
		case LEFT:
			leave_to_child();
			break;
		case TICK:
			tick(&s);
			break;
		case ROUND:
			round_make(&s);
			break;
		case SPIN:
			spin_once(&s);
			break;
		case SLEEP:
			sleep_once(&s);
			break;
		}
	return NULL;
}

int service_start(void)
{
	struct hca *h = &hca_here;
	sigset_t all, old;
	rpwi_shield();
	/* The program's signals are not ours to take; faults of our own copies are. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_store(&h->stop, false);
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	int rc = pthread_create(&h->service, &attr, service_main, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		rpwi_error("cannot start the service thread: %s; RDMA requests from peers are "
			   "served only while the program polls",
			strerror(rc));
		return -rc;
	}
	pthread_setname_np(h->service, "ropeway");
	h->service_running = true;
	if (h->forked_from) {
		board_is_forked();
		tally_is_forked();
		farewell_is_forked();
		rpwi_steer_inherit(h->steer);
	}
	h->forked_from = 0;
	return 0;
}

/* The lock is held on entry and on return, but not while the thread ends. */
void service_stop(void)
{
	struct hca *h = &hca_here;
	if (!h->service_running)
		return;
	atomic_store(&h->stop, true);
	service_wake();
	h->service_running = false;
	hca_unlock();
	pthread_join(h->service, NULL);
	hca_lock();
}

/* A thread does not survive fork: it is started again by the next call on the data path. See
 * place_leave_to_parent in hca.c for the sockets. */
void service_atfork_child(void)
{
	hca_here.service_running = false;
	hca_here.waiters = hca_here.commands = 0;
	hca_here.service_sleeps = false;
	hca_here.lane_sleepers = 0;
}
