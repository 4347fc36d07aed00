/* SPDX-License-Identifier: BSD-3-Clause */
/* helpers.c - helper threads: they move comm contexts with long messages under way, beside NCCL's
 * proxy thread, which is one for all comms of a rank, sends and receives.
 *
 * What costs time in a long message is copying, and over TCP the kernel's work in a send or a
 * receive. With one thread the two directions of an all_reduce take turns; a helper takes the comm
 * contexts that the proxy thread is not in. A thread in one moves all of it, and its requests are
 * done by callback, so the proxy thread finds them without the lock.
 *
 * A helper spins while something moves and for IDLE_NS after that, then sleeps until the proxy
 * thread has moved something. It is there for cores that nobody else wants: where it gets less than
 * SHARE_LEAST of one it rests for a while, and where a process may use few it does not begin.
 *
 * Locks: the helpers' lock is the last that is waited for. They only try a comm context's, with
 * theirs held, so one that has left their list has no helper in it once its lock was had. */
#include "nccl/plugin.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/born.h"
#include "base/thread.h"
#include "base/turn.h"

enum {
	HELPERS_MAX = 8,
	CPUS_ONE = 8, /* from so many on one: two ranks and what else they have leave some */
	CPUS_TWO = 16,
	ROUNDS = 4,  /* then whoever wants to post gets in */
	PAUSES = 64, /* between two looks in vain: about 1 us */
	IDLE_NS = 200 * 1000,
	LOOK_NS = 2 * 1000 * 1000, /* what share of a core it had is looked at so often */
	SHARE_LEAST = 75,          /* percent */
	REST_NS = 50 * 1000 * 1000,
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t woken;
	struct rpwi_list contexts; /* the next one to look at is first */
	unsigned count;
	pthread_t thread[HELPERS_MAX];
	unsigned threads;
	uint64_t born;
	bool begun, stop;
	_Atomic bool asleep; /* one of them, or all */
} helpers = {.lock = PTHREAD_MUTEX_INITIALIZER, .contexts = {&helpers.contexts, &helpers.contexts}};

/* ---- a helper ---- */

/* What it got of a core. */
struct share {
	uint64_t since_ns, cpu_ns;
};

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * RPWI_NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct share share_begin(uint64_t now_ns) { return (struct share){now_ns, cpu_ns()}; }

/* Others want the core. */
static bool crowded(struct share *s, uint64_t now_ns)
{
	if (now_ns - s->since_ns < LOOK_NS)
		return false;
	struct share now = share_begin(now_ns);
	bool few = (now.cpu_ns - s->cpu_ns) * 100 < (now.since_ns - s->since_ns) * SHARE_LEAST;
	*s = now;
	return few;
}

static bool may_move(const struct comm_context *l)
{
	return (atomic_load_explicit(&l->long_ones, memory_order_relaxed) ||
		       atomic_load_explicit(&l->owes, memory_order_relaxed)) &&
	       !atomic_load_explicit(&l->wanted, memory_order_relaxed);
}

/* Not one that nobody has used for a while: the progress thread sleeps on it. */
static bool try_enter(struct comm_context *l)
{
	if (pthread_mutex_trylock(&l->lock))
		return false;
	if (l->armed) {
		pthread_mutex_unlock(&l->lock);
		return false;
	}
	l->uses++;
	return true;
}

/* Until nothing moves, when acknowledgements have gone: the proxy thread has left that to us. */
static bool move(struct comm_context *l)
{
	int rounds = 0, n = 1;
	for (; n > 0 && rounds < ROUNDS; rounds++) {
		n = rpw_context_progress(l->c);
		if (atomic_load_explicit(&l->wanted, memory_order_relaxed))
			break;
	}
	atomic_store_explicit(&l->owes, n > 0, memory_order_relaxed);
	return n > 0 || rounds > 1;
}

/* One look at each, with the helpers' lock held, which is given away meanwhile. True: something
 * moved. */
static bool pass(void)
{
	bool moved = false;
	for (unsigned left = helpers.count; left && !rpwi_list_empty(&helpers.contexts); left--) {
		struct comm_context *l =
			RPWI_CONTAINER_OF(helpers.contexts.next, struct comm_context, helped);
		rpwi_list_del(&l->helped);
		rpwi_list_add_tail(&helpers.contexts, &l->helped);
		if (!may_move(l) || !try_enter(l))
			continue;
		pthread_mutex_unlock(&helpers.lock);
		moved |= move(l);
		comm_context_leave(l); /* which may be gone from here on */
		pthread_mutex_lock(&helpers.lock);
	}
	return moved;
}

static void let_others_in(void)
{
	pthread_mutex_unlock(&helpers.lock);
	for (int i = 0; i < PAUSES; i++)
		rpwi_turn_pause();
	pthread_mutex_lock(&helpers.lock);
}

static void sleep_until_moved(void)
{
	atomic_store(&helpers.asleep, true);
	while (atomic_load(&helpers.asleep) && !helpers.stop)
		pthread_cond_wait(&helpers.woken, &helpers.lock);
}

static void rest(uint64_t until_ns)
{
	const struct timespec until = {.tv_sec = (time_t)(until_ns / RPWI_NS_PER_S),
		.tv_nsec = (long)(until_ns % RPWI_NS_PER_S)};
	while (!helpers.stop &&
		pthread_cond_timedwait(&helpers.woken, &helpers.lock, &until) != ETIMEDOUT)
		;
}

static void *helper_run(void *unused)
{
	uint64_t now_ns = rpwi_now_ns(), moved_ns = now_ns;
	struct share share = share_begin(now_ns);
	pthread_mutex_lock(&helpers.lock);
	while (!helpers.stop) {
		bool moved = pass();
		now_ns = rpwi_now_ns();
		if (moved)
			moved_ns = now_ns;
		bool rests = crowded(&share, now_ns);
		if (!rests && now_ns - moved_ns < IDLE_NS) {
			if (!moved)
				let_others_in();
			continue;
		}
		if (rests)
			rest(now_ns + REST_NS);
		else
			sleep_until_moved();
		moved_ns = rpwi_now_ns();
		share = share_begin(moved_ns);
	}
	pthread_mutex_unlock(&helpers.lock);
	return NULL;
}

/* ---- their number ---- */

static unsigned threads_usual(void)
{
	cpu_set_t cpus; /* too small for the kernel's: there are more than 1,024 */
	int n = sched_getaffinity(0, sizeof(cpus), &cpus) ? CPUS_TWO : CPU_COUNT(&cpus);
	return (n >= CPUS_ONE) + (n >= CPUS_TWO);
}

static unsigned threads_wanted(void)
{
	const char *text = getenv("ROPEWAY_NCCL_THREADS");
	char *end = NULL;
	if (!text || !*text)
		return threads_usual();
	long n = strtol(text, &end, 10);
	if (!*end && n >= 0 && n <= HELPERS_MAX)
		return (unsigned)n;
	plugin_warn("ROPEWAY_NCCL_THREADS=%s: expected helper threads, 0 to %d; using %u", text,
		HELPERS_MAX, threads_usual());
	return threads_usual();
}

/* They run where the thread may that calls: NCCL's proxy thread, near the GPU. */
static void begin(void)
{
	pthread_condattr_t monotonic;
	int rc = 0;
	unsigned n = threads_wanted();
	helpers.begun = true;
	helpers.stop = false;
	helpers.born = rpwi_born();
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&helpers.woken, &monotonic);
	pthread_condattr_destroy(&monotonic);
	for (helpers.threads = 0; !rc && helpers.threads < n;) {
		rc = rpwi_thread_start(&helpers.thread[helpers.threads], NULL, helper_run, NULL);
		if (!rc)
			pthread_setname_np(helpers.thread[helpers.threads++], "rpw-helper");
	}
	if (rc)
		plugin_warn("%u of %u helper threads could be started: %s; `ulimit -u` is the "
			    "usual limit, ROPEWAY_NCCL_THREADS how many are wanted",
			helpers.threads, n, strerror(rc));
	else if (n)
		plugin_info("%u helper thread%s for long messages (ROPEWAY_NCCL_THREADS)", n,
			n == 1 ? "" : "s");
}

/* ---- for the others ---- */

void helpers_take(struct comm_context *l)
{
	atomic_fetch_add_explicit(&l->long_ones, 1, memory_order_relaxed);
	if (RPWI_LIKELY(l->listed))
		return;
	l->listed = true;
	pthread_mutex_lock(&helpers.lock);
	if (!helpers.begun)
		begin();
	if (helpers.threads && rpwi_is_ours(helpers.born)) {
		rpwi_list_add_tail(&helpers.contexts, &l->helped);
		helpers.count++;
		atomic_store_explicit(&l->is_helped, true, memory_order_relaxed);
	}
	pthread_mutex_unlock(&helpers.lock);
}

void helpers_leave(struct comm_context *l)
{
	if (!atomic_load_explicit(&l->is_helped, memory_order_relaxed) ||
		!rpwi_is_ours(helpers.born))
		return;
	pthread_mutex_lock(&helpers.lock);
	rpwi_list_del(&l->helped);
	helpers.count--;
	pthread_mutex_unlock(&helpers.lock);
	pthread_mutex_lock(&l->lock); /* one may be in there still */
	pthread_mutex_unlock(&l->lock);
}

void helpers_wake(void)
{
	if (RPWI_LIKELY(!atomic_load_explicit(&helpers.asleep, memory_order_relaxed)) ||
		!atomic_exchange(&helpers.asleep, false))
		return;
	pthread_mutex_lock(&helpers.lock);
	pthread_cond_broadcast(&helpers.woken);
	pthread_mutex_unlock(&helpers.lock);
}

void helpers_stop(void)
{
	if (!helpers.begun || !rpwi_is_ours(helpers.born))
		return;
	pthread_mutex_lock(&helpers.lock);
	helpers.stop = true;
	pthread_cond_broadcast(&helpers.woken);
	pthread_mutex_unlock(&helpers.lock);
	for (unsigned i = 0; i < helpers.threads; i++)
		pthread_join(helpers.thread[i], NULL);
	pthread_mutex_lock(&helpers.lock);
	helpers.threads = 0;
	helpers.begun = false;
	pthread_cond_destroy(&helpers.woken);
	pthread_mutex_unlock(&helpers.lock);
}
