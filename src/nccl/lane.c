/* SPDX-License-Identifier: BSD-3-Clause */
/* lane.c - a lane is a context of the messaging library and its lock; the keeper is the one thread that moves lanes on which nobody polls.
 *
 * NCCL stops calling test as soon as nothing is outstanding, but a lane may still have to move: bytes that the kernel did not take, acknowledgements and credit that the peer waits for, a connection that comes in,
 * the answer to a flush. So every KEEPER_MS the keeper looks at the lanes, progresses those that nobody has used since it looked last, and those that then have nothing to do it arms: their descriptors
 * are in its epoll set. When all are armed it sleeps. Whoever uses an armed lane wakes it once; while NCCL polls it costs a look every KEEPER_MS.
 *
 * Locks: life, then keeper's lock, then a lane's, which the keeper only tries: a user who holds a lane never waits for it. */
#include "nccl/plugin.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { KEEPER_MS = 20, BUSY_MS = 1, EVENTS_MAX = 64, ROUNDS_MAX = 64 };

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER; /* held while it is started and stopped */
static struct {
	pthread_mutex_t lock;
	struct rpwi_list lanes;
	uint64_t next_id;
	unsigned count;
	pthread_t thread;
	int epfd, wakefd;
	_Atomic bool stop;
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER, .lanes = {&keeper.lanes, &keeper.lanes}, .epfd = -1, .wakefd = -1};

/* ---- the keeper ---- */

static void wake(void)
{
	uint64_t one = 1;
	ssize_t ignored = write(keeper.wakefd, &one, sizeof(one));
	(void)ignored;
}

/* Moves it until it has nothing to do, and arms it. */
static void keep(struct plugin_lane *l)
{
	l->now = false;
	for (int i = 0; i < ROUNDS_MAX && rpw_progress(l->c) > 0; i++)
		;
	if (rpw_context_arm(l->c))
		return;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = l->id};
	l->armed = !epoll_ctl(keeper.epfd, EPOLL_CTL_MOD, rpw_context_fd(l->c), &ev);
}

/* How long until the next look, ms. Not quiet yet: by the clock, and not by the number of looks, since another lane may be the reason for this one. */
static int look(struct plugin_lane *l, uint64_t now_ns)
{
	if (pthread_mutex_trylock(&l->lock))
		return KEEPER_MS; /* in use */
	bool called = l->now || (l->armed && l->fired);
	int again = -1;
	if (l->uses != l->seen) {
		l->seen = l->uses;
		l->quiet_ns = now_ns + KEEPER_MS * RPWI_NS_PER_MS;
	}
	if (l->fired)
		l->armed = l->fired = false;
	if (!l->armed && !called && now_ns < l->quiet_ns) {
		again = (int)((l->quiet_ns - now_ns) / RPWI_NS_PER_MS) + 1;
	} else if (!l->armed) {
		keep(l);
		again = l->armed ? -1 : BUSY_MS;
	}
	pthread_mutex_unlock(&l->lock);
	return again;
}

static void note_fired(uint64_t id)
{
	for (struct rpwi_list *n = keeper.lanes.next; n != &keeper.lanes; n = n->next) {
		struct plugin_lane *l = RPWI_CONTAINER_OF(n, struct plugin_lane, all);
		if (l->id == id)
			l->fired = true;
	}
}

static int look_at_all(const struct epoll_event *ev, int n)
{
	unsigned next = UINT32_MAX;
	uint64_t now_ns = rpwi_now_ns();
	pthread_mutex_lock(&keeper.lock);
	for (int i = 0; i < n; i++)
		if (ev[i].data.u64)
			note_fired(ev[i].data.u64);
	for (struct rpwi_list *p = keeper.lanes.next; p != &keeper.lanes; p = p->next)
		next = RPWI_MIN(next, (unsigned)look(RPWI_CONTAINER_OF(p, struct plugin_lane, all), now_ns)); /* -1 is the longest */
	pthread_mutex_unlock(&keeper.lock);
	return (int)next;
}

static void *keeper_run(void *unused)
{
	struct epoll_event ev[EVENTS_MAX];
	int again = 0;
	while (!atomic_load(&keeper.stop)) {
		int n = epoll_wait(keeper.epfd, ev, EVENTS_MAX, again);
		for (int i = 0; i < n; i++) {
			uint64_t drained;
			if (!ev[i].data.u64 && read(keeper.wakefd, &drained, sizeof(drained)) < 0 && errno != EAGAIN)
				rpwi_debug("nccl: the keeper's descriptor cannot be read: %s", strerror(errno));
		}
		again = look_at_all(ev, n);
	}
	return NULL;
}

static void keeper_close(void)
{
	if (keeper.epfd >= 0)
		close(keeper.epfd);
	if (keeper.wakefd >= 0)
		close(keeper.wakefd);
	keeper.epfd = keeper.wakefd = -1;
}

static int keeper_start(void)
{
	sigset_t all, before;
	struct epoll_event ev = {.events = EPOLLIN};
	keeper.epfd = epoll_create1(EPOLL_CLOEXEC);
	keeper.wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	atomic_store(&keeper.stop, false);
	int rc = keeper.epfd < 0 || keeper.wakefd < 0 || epoll_ctl(keeper.epfd, EPOLL_CTL_ADD, keeper.wakefd, &ev) ? errno : 0;
	sigfillset(&all); /* NCCL's program handles its signals in threads of its own */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (!rc)
		rc = pthread_create(&keeper.thread, NULL, keeper_run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		keeper_close();
		plugin_warn(
			"the thread that keeps idle connections alive cannot be started: %s; `ulimit -u` and `ulimit -n` are the usual limits", strerror(rc));
		return RPW_ERR_SYSTEM;
	}
	pthread_setname_np(keeper.thread, "ropeway-keeper");
	return 0;
}

static void keeper_stop(void)
{
	atomic_store(&keeper.stop, true);
	wake();
	pthread_join(keeper.thread, NULL);
	keeper_close();
}

/* Programs that exit with connections open: what the libraries' own exit handlers take down is not progressed any more. */
static void __attribute__((destructor)) at_exit(void)
{
	if (pthread_mutex_trylock(&life))
		return;
	if (keeper.count && !atomic_load(&keeper.stop))
		keeper_stop();
	pthread_mutex_unlock(&life);
}

/* ---- lanes ---- */

/* Other people's plugins are no transport of our own: the one that ROPEWAY_TRANSPORT names may be this one, and there would be no end. */
const char *plugin_transports(const struct plugin_device *d, const char *automatic, char *list, size_t len)
{
	const char *own = secure_getenv("ROPEWAY_NCCL_TRANSPORT"), *all = secure_getenv("ROPEWAY_TRANSPORT");
	bool chosen = own && *own;
	const char *from = chosen ? own : all && *all ? all : d->no_rdma ? "shm,tcp" : automatic;
	size_t n = 0;
	*list = 0;
	for (const char *p = from; *p; p += *p ? 1 : 0) {
		size_t k = strcspn(p, ",");
		bool hosted = !chosen && !strncmp(p, "ncclnet", 7), verbs = k == 5 && !memcmp(p, "verbs", 5);
		if (!hosted && !(verbs && d->no_rdma) && n + k + 2 < len)
			n += (size_t)snprintf(list + n, len - n, "%s%.*s", n ? "," : "", (int)k, p);
		p += k;
	}
	return n || !d->no_rdma ? list : "shm,tcp";
}

/* "": as the messaging library chooses by itself. Memory of GPUs goes directly by verbs only, while shared memory would be the choice within a host. */
static int lane_open(struct plugin_lane *l, const struct plugin_device *d)
{
	char list[512];
	const char *automatic = plugin_ptr_support(d) & NCCL_PTR_CUDA ? "verbs,shm,tcp" : "";
	/* polled: NCCL's kernels look into receive buffers before test says anything. */
	rpw_context_options o = {.size = sizeof(o), .transports = plugin_transports(d, automatic, list, sizeof(list)), .rdma_devices = d->rdma, .polled = true};
	return rpw_context_create(&o, &l->c);
}

static int lane_add(struct plugin_lane *l)
{
	pthread_mutex_lock(&life);
	int rc = keeper.count ? 0 : keeper_start();
	if (!rc) {
		pthread_mutex_lock(&keeper.lock);
		l->id = ++keeper.next_id;
		struct epoll_event ev = {.events = EPOLLONESHOT, .data.u64 = l->id};
		rc = epoll_ctl(keeper.epfd, EPOLL_CTL_ADD, rpw_context_fd(l->c), &ev) ? RPW_ERR_SYSTEM : 0;
		if (!rc) {
			rpwi_list_add_tail(&keeper.lanes, &l->all);
			keeper.count++;
		}
		pthread_mutex_unlock(&keeper.lock);
	}
	pthread_mutex_unlock(&life);
	return rc;
}

int plugin_lane_new(const struct plugin_device *d, struct plugin_lane **out)
{
	struct plugin_lane *l = calloc(1, sizeof(*l));
	int rc = l ? lane_open(l, d) : RPW_ERR_NO_MEMORY;
	if (rc) {
		plugin_warn("no context for a connection on %s: %s; %s", d->name, l ? rpw_last_error() : "out of memory", plugin_advice(rc));
		free(l);
		return rc;
	}
	pthread_mutex_init(&l->lock, NULL);
	l->users = 1;
	rc = lane_add(l);
	if (rc) {
		rpw_context_destroy(l->c);
		pthread_mutex_destroy(&l->lock);
		free(l);
		return rc;
	}
	*out = l;
	return 0;
}

static inline void used(struct plugin_lane *l)
{
	l->uses++;
	if (RPWI_UNLIKELY(l->armed)) {
		l->armed = false;
		wake();
	}
}

void plugin_lane_enter(struct plugin_lane *l)
{
	pthread_mutex_lock(&l->lock);
	used(l);
}

bool plugin_lane_try(struct plugin_lane *l)
{
	if (pthread_mutex_trylock(&l->lock))
		return false;
	used(l);
	return true;
}

void plugin_lane_leave_to_keeper(struct plugin_lane *l)
{
	l->now = true;
	pthread_mutex_unlock(&l->lock);
	wake();
}

void plugin_lane_drop(struct plugin_lane *l)
{
	pthread_mutex_lock(&l->lock);
	bool last = !--l->users;
	pthread_mutex_unlock(&l->lock);
	if (!last)
		return;
	pthread_mutex_lock(&life);
	pthread_mutex_lock(&keeper.lock);
	rpwi_list_del(&l->all);
	epoll_ctl(keeper.epfd, EPOLL_CTL_DEL, rpw_context_fd(l->c), NULL);
	bool none = !--keeper.count;
	pthread_mutex_unlock(&keeper.lock);
	if (none && !atomic_load(&keeper.stop))
		keeper_stop();
	pthread_mutex_unlock(&life);
	rpw_context_destroy(l->c);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
