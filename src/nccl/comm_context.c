/* SPDX-License-Identifier: BSD-3-Clause */
/* comm_context.c - a comm context is a context of the messaging library and its lock; the progress
 * thread is the one thread that moves comm contexts on which nobody polls.
 *
 * NCCL stops calling test as soon as nothing is outstanding, but a comm context may still have to
 * move: bytes that the kernel did not take, acknowledgements and credit that the peer waits for, a
 * connection that comes in, the answer to a flush. So every PROGRESS_MS the progress thread looks
 * at the comm contexts (PASSIVE_MS at those of coll comms), progresses those that nobody has used
 * since it looked last, and those that then have nothing to do it arms: their descriptors are in
 * its epoll set. When all are armed it sleeps. Whoever uses an armed comm context wakes it once;
 * while NCCL polls it costs a look every PROGRESS_MS.
 *
 * What a closed comm still waits for is a tail of its comm context: the thread gives back the share
 * that the comm had, and ends where that was the last one.
 *
 * Locks: life, then progress thread's lock, then a comm context's, which the progress thread only
 * tries: a user who holds a comm context never waits for it. Helper threads (helpers.c): theirs is
 * the last. */
#include "nccl/plugin.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/born.h"
#include "base/thread.h"

enum {
	PROGRESS_MS = 20,
	PASSIVE_MS = 1,
	BUSY_MS = 1,
	SOON_MS = 2,
	EVENTS_MAX = 64,
	ROUNDS_MAX = 64
};
enum { WAKE, SOON }; /* in the set, beside the IDs of comm contexts */

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER; /* held while it is started and stopped */
static struct {
	pthread_mutex_t lock;
	struct rpwi_list contexts;
	uint64_t next_id;
	_Atomic unsigned count;
	_Atomic unsigned tails; /* of all */
	pthread_t thread;
	bool running;  /* with `life` held */
	uint64_t born; /* the thread is not there in a forked child */
	int epfd, wakefd, soonfd;
	_Atomic bool soon; /* soonfd is set */
	_Atomic bool stop;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER,
	.contexts = {&progress.contexts, &progress.contexts},
	.epfd = -1,
	.wakefd = -1,
	.soonfd = -1};

/* ---- the progress thread ---- */

static void wake(void)
{
	uint64_t one = 1;
	ssize_t ignored = write(progress.wakefd, &one, sizeof(one));
	(void)ignored;
}

/* In a moment. At once it would take the core of the caller, who mostly goes on polling. */
static void wake_soon(void)
{
	const struct itimerspec at = {.it_value.tv_nsec = SOON_MS * (long)RPWI_NS_PER_MS};
	if (!atomic_exchange(&progress.soon, true))
		timerfd_settime(progress.soonfd, 0, &at, NULL);
}

static void drain(int fd)
{
	uint64_t drained;
	if (read(fd, &drained, sizeof(drained)) < 0 && errno != EAGAIN)
		rpwi_debug("nccl: the progress's descriptor cannot be read: %s", strerror(errno));
}

/* Moves it until it has nothing to do, and arms it. */
static void keep(struct comm_context *l)
{
	l->now = false;
	for (int i = 0; i < ROUNDS_MAX && rpw_context_progress(l->c) > 0; i++)
		;
	if (rpw_context_arm(l->c))
		return;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = l->id};
	l->armed = !epoll_ctl(progress.epfd, EPOLL_CTL_MOD, rpw_context_fd(l->c), &ev);
}

/* Those that are over (*any) give their share back. How long until the next has to be, ms. */
static int tails_look(struct comm_context *l, uint64_t now_ns, bool *any)
{
	uint64_t next_ns = RPWI_NEVER;
	for (struct rpwi_list *p = l->tails.next, *next; p != &l->tails; p = next) {
		struct comm_tail *t = RPWI_CONTAINER_OF(p, struct comm_tail, link);
		uint64_t until_ns = t->until_ns;
		next = p->next;
		rpwi_list_del(p);
		if (t->over(t, now_ns)) {
			*any = true;
			l->users--;
			atomic_fetch_sub(&progress.tails, 1);
			continue;
		}
		next_ns = RPWI_MIN(next_ns, until_ns);
		rpwi_list_add_tail(next, p); /* back where it was */
	}
	if (next_ns == RPWI_NEVER)
		return -1;
	return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / RPWI_NS_PER_MS) + 1;
}

/* So long it counts as in use. */
static unsigned quiet_ms(const struct comm_context *l)
{
	return l->passive ? PASSIVE_MS : PROGRESS_MS;
}

/* How long until the next look, ms. Not quiet yet: by the clock, and not by the number of looks,
 * since another comm context may be the reason for this one. */
static int look(struct comm_context *l, uint64_t now_ns)
{
	if (pthread_mutex_trylock(&l->lock))
		return (int)quiet_ms(l); /* in use */
	bool called = l->now || (l->armed && l->fired);
	int again = -1;
	if (l->uses != l->seen) {
		l->seen = l->uses;
		l->quiet_ns = now_ns + quiet_ms(l) * RPWI_NS_PER_MS;
	}
	if (l->fired)
		l->armed = l->fired = false;
	/* nobody polls for a tail */
	if (!l->armed && !called && now_ns < l->quiet_ns && rpwi_list_empty(&l->tails)) {
		again = (int)((l->quiet_ns - now_ns) / RPWI_NS_PER_MS) + 1;
	} else if (!l->armed) {
		keep(l);
		if (!l->armed)
			again = l->passive ? 0 : BUSY_MS;
	}
	if (!rpwi_list_empty(&l->tails)) {
		bool any = false;
		again = (int)RPWI_MIN((unsigned)again, (unsigned)tails_look(l, now_ns, &any));
		l->tailed_off = !l->users;
		if (any && l->users) { /* ends are to be sent */
			l->armed = false;
			again = 0;
		}
	}
	pthread_mutex_unlock(&l->lock);
	return again;
}

static void note_fired(uint64_t id)
{
	RPWI_LIST_EACH (struct comm_context, l, &progress.contexts, all)
		if (l->id == id)
			l->fired = true;
}

/* With the progress thread's lock held: nobody finds it any more. */
static void forget(struct comm_context *l)
{
	rpwi_list_del(&l->all);
	epoll_ctl(progress.epfd, EPOLL_CTL_DEL, rpw_context_fd(l->c), NULL);
	progress.count--;
}

static void context_free(struct comm_context *l)
{
	helpers_leave(l);
	rpw_context_destroy(l->c);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static int look_at_all(const struct epoll_event *ev, int n)
{
	unsigned next = UINT32_MAX;
	uint64_t now_ns = rpwi_now_ns();
	struct rpwi_list unused;
	rpwi_list_init(&unused);
	pthread_mutex_lock(&progress.lock);
	for (int i = 0; i < n; i++)
		if (ev[i].data.u64 > SOON)
			note_fired(ev[i].data.u64);
	/* -1 is the longest */
	RPWI_LIST_EACH_SAFE (struct comm_context, l, after, &progress.contexts, all) {
		next = RPWI_MIN(next, (unsigned)look(l, now_ns));
		if (l->tailed_off) {
			forget(l);
			rpwi_list_add_tail(&unused, &l->all);
		}
	}
	pthread_mutex_unlock(&progress.lock);
	while (!rpwi_list_empty(&unused))
		context_free(RPWI_CONTAINER_OF(rpwi_list_pop(&unused), struct comm_context, all));
	return (int)next;
}

static void progress_close(void)
{
	if (progress.epfd >= 0)
		close(progress.epfd);
	if (progress.wakefd >= 0)
		close(progress.wakefd);
	if (progress.soonfd >= 0)
		close(progress.soonfd);
	progress.epfd = progress.wakefd = progress.soonfd = -1;
}

/* The last comm context went with its tail: nobody is there to stop the thread. */
static bool retire(void)
{
	if (pthread_mutex_trylock(&life))
		return false; /* somebody begins, or stops it */
	bool alone = !progress.count && !atomic_load(&progress.stop);
	if (alone) {
		helpers_stop();
		progress.running = false;
		progress_close();
		pthread_detach(pthread_self());
	}
	pthread_mutex_unlock(&life);
	return alone;
}

static void *progress_run(void *unused)
{
	struct epoll_event ev[EVENTS_MAX];
	int again = 0;
	while (!atomic_load(&progress.stop)) {
		int n = epoll_wait(progress.epfd, ev, EVENTS_MAX, again);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.u64 == WAKE)
				drain(progress.wakefd);
			if (ev[i].data.u64 == SOON) {
				drain(progress.soonfd);
				atomic_store(&progress.soon, false);
			}
		}
		again = look_at_all(ev, n);
		if (!progress.count && retire())
			break;
		if (!progress.count)
			again = BUSY_MS;
	}
	return NULL;
}

static int progress_start(void)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = WAKE},
			   soon = {.events = EPOLLIN, .data.u64 = SOON};
	progress.epfd = epoll_create1(EPOLL_CLOEXEC);
	progress.wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	progress.soonfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	atomic_store(&progress.stop, false);
	atomic_store(&progress.soon, false);
	int rc = progress.epfd < 0 || progress.wakefd < 0 || progress.soonfd < 0 ||
				 epoll_ctl(progress.epfd, EPOLL_CTL_ADD, progress.wakefd, &ev) ||
				 epoll_ctl(progress.epfd, EPOLL_CTL_ADD, progress.soonfd, &soon)
			 ? errno
			 : 0;
	if (!rc)
		rc = rpwi_thread_start(&progress.thread, NULL, progress_run, NULL);
	if (rc) {
		progress_close();
		plugin_warn("the thread that keeps idle connections alive cannot be started: %s; "
			    "`ulimit -u` and `ulimit -n` are the usual limits",
			strerror(rc));
		return RPW_ERR_SYSTEM;
	}
	pthread_setname_np(progress.thread, "rpw-progress");
	progress.running = true;
	progress.born = rpwi_born();
	return 0;
}

static void progress_stop(void)
{
	atomic_store(&progress.stop, true);
	wake();
	pthread_join(progress.thread, NULL);
	helpers_stop();
	progress_close();
	progress.running = false;
}

/* Without the thread, which a program's end has stopped. */
static void tails_finish(void)
{
	uint64_t until_ns = rpwi_now_ns() + PLUGIN_CLOSE_MS * RPWI_NS_PER_MS;
	bool any;
	while (atomic_load(&progress.tails) && rpwi_is_ours(progress.born) &&
		rpwi_now_ns() < until_ns)
		RPWI_LIST_EACH (struct comm_context, l, &progress.contexts, all) {
			if (rpwi_list_empty(&l->tails) || pthread_mutex_trylock(&l->lock))
				continue;
			rpw_context_progress(l->c);
			tails_look(l, rpwi_now_ns(), &any);
			pthread_mutex_unlock(&l->lock);
		}
}

void comm_context_settle(void)
{
	uint64_t until_ns = rpwi_now_ns() + PLUGIN_CLOSE_MS * RPWI_NS_PER_MS;
	while (atomic_load(&progress.tails) && rpwi_is_ours(progress.born) &&
		rpwi_now_ns() < until_ns)
		usleep(100);
}

/* Programs that exit with connections open: what the libraries' own exit handlers take down is not
 * progressed any more. */
static void __attribute__((destructor)) at_exit(void)
{
	if (pthread_mutex_trylock(&life))
		return;
	if (progress.running && !atomic_load(&progress.stop)) {
		progress_stop();
		tails_finish();
	}
	pthread_mutex_unlock(&life);
}

/* ---- comm contexts ---- */

/* "": as the messaging library chooses by itself. Memory of GPUs goes directly by verbs only, while
 * shared memory would be the choice within a host. */
static int cc_open(struct comm_context *l, const struct plugin_device *d)
{
	char list[512];
	const char *automatic = plugin_ptr_support(d) & NCCL_PTR_CUDA ? "verbs,shm,tcp" : "";
	/* polled: NCCL's kernels look into receive buffers before test says anything; at what is
	 * put only after its signal. */
	rpw_context_options o = {.size = sizeof(o),
		.transports = plugin_transports(d, automatic, list, sizeof(list)),
		.rdma_devices = d->rdma,
		.polled = !l->passive};
	return rpw_context_create(&o, &l->c);
}

static int cc_add(struct comm_context *l)
{
	pthread_mutex_lock(&life);
	int rc = progress.running ? 0 : progress_start();
	if (!rc) {
		pthread_mutex_lock(&progress.lock);
		l->id = SOON + ++progress.next_id;
		struct epoll_event ev = {.events = EPOLLONESHOT, .data.u64 = l->id};
		rc = epoll_ctl(progress.epfd, EPOLL_CTL_ADD, rpw_context_fd(l->c), &ev)
			     ? RPW_ERR_SYSTEM
			     : 0;
		if (!rc) {
			rpwi_list_add_tail(&progress.contexts, &l->all);
			progress.count++;
		}
		pthread_mutex_unlock(&progress.lock);
	}
	pthread_mutex_unlock(&life);
	return rc;
}

int comm_context_new(const struct plugin_device *d, bool passive, struct comm_context **out)
{
	struct comm_context *l = calloc(1, sizeof(*l));
	if (l)
		l->passive = passive;
	int rc = l ? cc_open(l, d) : RPW_ERR_NO_MEMORY;
	if (rc) {
		plugin_warn("no context for a connection on %s: %s; %s", d->name,
			l ? rpw_last_error() : "out of memory", plugin_advice(rc));
		free(l);
		return rc;
	}
	pthread_mutex_init(&l->lock, NULL);
	l->users = 1;
	rpwi_list_init(&l->tails);
	rc = cc_add(l);
	if (rc) {
		context_free(l);
		return rc;
	}
	*out = l;
	return 0;
}

bool comm_context_has(const void *coll)
{
	bool has = false;
	pthread_mutex_lock(&progress.lock);
	RPWI_LIST_EACH (struct comm_context, l, &progress.contexts, all)
		has |= coll && atomic_load(&l->coll) == coll;
	pthread_mutex_unlock(&progress.lock);
	return has;
}

static inline void used(struct comm_context *l)
{
	l->uses++;
	if (RPWI_UNLIKELY(l->armed)) {
		l->armed = false;
		wake();
	}
}

void comm_context_enter(struct comm_context *l)
{
	pthread_mutex_lock(&l->lock);
	used(l);
}

bool comm_context_try(struct comm_context *l)
{
	if (pthread_mutex_trylock(&l->lock))
		return false;
	used(l);
	return true;
}

bool comm_context_enter_to_post(struct comm_context *l)
{
	if (!atomic_load_explicit(&l->is_helped, memory_order_relaxed)) {
		comm_context_enter(l);
		return true;
	}
	bool in = comm_context_try(l);
	atomic_store_explicit(&l->wanted, !in, memory_order_relaxed);
	return in;
}

void comm_context_leave_to_progress(struct comm_context *l)
{
	l->now = true;
	/* Until this is unlocked the progress thread forgets none, so it does not end, and close
	 * what wakes it. */
	pthread_mutex_lock(&progress.lock);
	pthread_mutex_unlock(&l->lock);
	wake();
	pthread_mutex_unlock(&progress.lock);
}

void comm_context_leave_begun(struct comm_context *l)
{
	pthread_mutex_unlock(&l->lock);
	wake_soon();
}

void comm_context_leave_tail(struct comm_context *l, struct comm_tail *t)
{
	rpwi_list_add_tail(&l->tails, &t->link);
	atomic_fetch_add(&progress.tails, 1);
	comm_context_leave_to_progress(l);
}

void comm_context_drop(struct comm_context *l)
{
	pthread_mutex_lock(&l->lock);
	bool last = !--l->users;
	pthread_mutex_unlock(&l->lock);
	if (!last)
		return;
	pthread_mutex_lock(&life);
	pthread_mutex_lock(&progress.lock);
	forget(l);
	bool none = !progress.count;
	pthread_mutex_unlock(&progress.lock);
	if (none && progress.running && !atomic_load(&progress.stop))
		progress_stop();
	pthread_mutex_unlock(&life);
	context_free(l);
}
