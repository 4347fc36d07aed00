/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c - see lock.h. Owns the process's atfork handlers. */
#include "base/lock.h"

#include "base/base.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rpwi_lock_line rpwi_locks[RPWI_LOCKS] = {
	/* all others are PTHREAD_MUTEX_INITIALIZER: zeros */
	[RPWI_LOCK_HCA] = {PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP},
};
__thread struct rpwi_locks_of rpwi_locks_mine;
bool rpwi_fork_broken;

bool rpwi_lock_within(enum rpwi_lock l, unsigned ms)
{
	struct timespec until;
	if (rpwi_lock_is_mine(l))
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)(ms * RPWI_NS_PER_MS);
	until.tv_sec += until.tv_nsec / (long)RPWI_NS_PER_S;
	until.tv_nsec %= (long)RPWI_NS_PER_S;
	rpwi_lock_enter(l);
	if (!pthread_mutex_timedlock(&rpwi_locks[l].mutex, &until)) {
		rpwi_lock_got(l);
		return true;
	}
	rpwi_lock_leave(l);
	return false;
}

/* ---- cancellation ---- */

void rpwi_shield_raise(void)
{
	int was;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	if (was == PTHREAD_CANCEL_ENABLE)
		rpwi_locks_mine.held |= RPWI_LOCK_SHIELD;
}

/* It acts at the program's next cancellation point, not here (the type is deferred). */
void rpwi_shield_drop(void)
{
	rpwi_locks_mine.held &= ~RPWI_LOCK_SHIELD;
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

/* ---- fork ---- */

enum {
	CHILDREN_MAX = 8,
	/* In a handler that interrupted a section: so long at most for all that other threads have,
	 * and then not again for a while. A timer of a shorter period would else have its next
	 * signal wait at the end of each, and the program would never come to its next
	 * instruction. */
	WAIT_MS = 20,
	WAIT_AGAIN_MS = 10 * WAIT_MS,
};
static struct {
	bool watched, refusal_said;
	void (*child[CHILDREN_MAX])(void);
	pthread_mutex_t lock; /* registering only: no handler takes it */
} handlers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What this thread had before it called fork, and what fork took for it; again for a fork by a
 * handler that interrupts these functions. */
enum { NESTED_MAX = 4 };
struct forking {
	uint64_t before, taken, mine; /* mine: of those before, what it had got */
};
static __thread struct forks {
	unsigned depth;
	uint64_t waited_ns; /* when that ended last */
	struct forking at[NESTED_MAX + 1];
} forks __attribute__((tls_model("initial-exec")));

static struct forking *innermost(void)
{
	return &forks.at[RPWI_MIN(forks.depth, (unsigned)NESTED_MAX)];
}

/* Asked for and not yet noted as got, the lock may be this thread's since the last instruction: its
 * mutex knows, but for an instruction or two. */
static bool has_it_already(enum rpwi_lock l)
{
#ifdef __GLIBC__
	return __atomic_load_n(&rpwi_locks[l].mutex.__data.__owner, __ATOMIC_RELAXED) ==
	       (int)syscall(SYS_gettid);
#else
	return false;
#endif
}

/* This thread has a lock, for which another may wait who has this one: so not without an end. */
static bool take_within(struct forking *f, enum rpwi_lock l, uint64_t until_ns)
{
	uint64_t bit = 1ull << l, now = rpwi_now_ns();
	bool got = false;
	if (f->before & bit && has_it_already(l)) {
		f->mine |= bit;
		return false;
	}
	rpwi_locks_mine.wanted &= ~bit;
	if (rpwi_lock_try(l)) {
		got = true;
	} else if (now < until_ns) {
		got = rpwi_lock_within(l, (unsigned)((until_ns - now) / RPWI_NS_PER_MS) + 1);
		forks.waited_ns = rpwi_now_ns();
	}
	rpwi_locks_mine.wanted |= f->before & bit;
	return got;
}

static void before_fork(void)
{
	forks.depth++;
	struct forking *f = innermost();
	*f = (struct forking){.before = rpwi_locks_mine.wanted, .mine = rpwi_locks_mine.held};
	uint64_t now = f->before ? rpwi_now_ns() : 0, until = now + WAIT_MS * RPWI_NS_PER_MS;
	if (forks.waited_ns && now - forks.waited_ns < WAIT_AGAIN_MS * RPWI_NS_PER_MS)
		until = 0;
	for (enum rpwi_lock l = 0; l < RPWI_LOCKS; l++) {
		uint64_t bit = 1ull << l;
		if (!f->before) {
			f->taken |= bit;
			rpwi_lock(l);
		} else if (!(rpwi_locks_mine.held & bit) && take_within(f, l, until)) {
			f->taken |= bit;
		}
	}
}

static void after_fork(void)
{
	struct forking *f = innermost();
	for (int l = RPWI_LOCKS - 1; l >= 0; l--)
		if (f->taken >> l & 1)
			rpwi_unlock((enum rpwi_lock)l);
	rpwi_locks_mine.wanted = f->before;
	forks.depth--;
}

static void after_fork_child(void)
{
	struct forking *f = innermost();
	rpwi_fork_broken |= f->before != 0;
	for (enum rpwi_lock l = 0; l < RPWI_LOCKS; l++)
		if (!((f->taken | f->mine) >> l & 1)) /* a thread's that is not here */
			pthread_mutex_init(&rpwi_locks[l].mutex, NULL);
	for (int i = 0; i < CHILDREN_MAX && handlers.child[i]; i++)
		handlers.child[i]();
	after_fork();
}

int rpwi_fork_refuse(const char *call)
{
	if (!handlers.refusal_said)
		rpwi_error("%s refused: a signal handler forked this process while its thread was "
			   "inside a call of the device, which left half of a change here; "
			   "exec a program, or fork outside of signal handlers",
			call);
	handlers.refusal_said = true;
	return errno = EIO;
}

void rpwi_fork_mute(int fd)
{
	int null = fd < 0 ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (null < 0)
		return;
	dup3(null, fd, O_CLOEXEC);
	close(null);
}

int rpwi_fork_watch(void (*child)(void))
{
	int rc = 0, i = 0;
	pthread_mutex_lock(&handlers.lock);
	while (i < CHILDREN_MAX && handlers.child[i] && handlers.child[i] != child)
		i++;
	if (i == CHILDREN_MAX ||
		(!handlers.watched && pthread_atfork(before_fork, after_fork, after_fork_child))) {
		rc = -ENOMEM;
	} else {
		handlers.watched = true;
		handlers.child[i] = child;
	}
	pthread_mutex_unlock(&handlers.lock);
	return rc;
}
