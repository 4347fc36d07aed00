/* guard.c - see guard.h. Owns the SIGSEGV and SIGBUS dispositions once a device is open. */
#include "base/guard.h"

#include "base/base.h"
#include "base/lock.h"
#include "base/copy.h"

#include <errno.h>

/* glibc's other name of sigaction: the drop-in interposes the usual one. */
extern int __sigaction(int signo, const struct sigaction *act, struct sigaction *old);

struct guard_frame {
	sigjmp_buf env;
	struct guard_frame *outer;
};

static __thread struct guard_frame *volatile armed __attribute__((tls_model("initial-exec")));

static bool installed;
static struct sigaction next_segv, next_bus; /* what the program has, or had before us */

static struct sigaction *next_for(int signo) { return signo == SIGSEGV ? &next_segv : &next_bus; }

static void on_fault(int signo, siginfo_t *info, void *uctx)
{
	struct guard_frame *f = armed;
	if (f && info->si_code > 0) { /* a real fault, not one sent by kill() */
		armed = f->outer;
		siglongjmp(f->env, 1);
	}
	const struct sigaction *n = next_for(signo);
	if (n->sa_flags & SA_SIGINFO) {
		n->sa_sigaction(signo, info, uctx);
	} else if (n->sa_handler == SIG_IGN && info->si_code <= 0) {
		return;
	} else if (n->sa_handler == SIG_DFL || n->sa_handler == SIG_IGN) {
		/* Not ours: give the default back and return; the instruction faults again and ends the program as without us. */
		struct sigaction dfl = {.sa_handler = SIG_DFL};
		__sigaction(signo, &dfl, NULL);
		if (info->si_code <= 0)
			raise(signo);
	} else {
		n->sa_handler(signo);
	}
}

int rpwi_guard_install(void)
{
	int rc = 0;
	rpwi_lock(RPWI_LOCK_GUARD);
	if (!installed) {
		/* SA_NODEFER: the handler leaves by siglongjmp without restoring a mask. */
		struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
		sigemptyset(&sa.sa_mask);
		if (__sigaction(SIGSEGV, &sa, &next_segv) || __sigaction(SIGBUS, &sa, &next_bus))
			rc = -errno;
		else
			__atomic_store_n(&installed, true, __ATOMIC_RELEASE);
	}
	rpwi_unlock(RPWI_LOCK_GUARD);
	return rc;
}

bool rpwi_guard_installed(void) { return __atomic_load_n(&installed, __ATOMIC_ACQUIRE); }

int rpwi_guard_sigaction(int signo, const struct sigaction *act, struct sigaction *old)
{
	if (signo != SIGSEGV && signo != SIGBUS)
		return -EINVAL;
	rpwi_lock(RPWI_LOCK_GUARD);
	struct sigaction *n = next_for(signo), had = *n;
	if (act)
		*n = *act;
	if (old)
		*old = had;
	rpwi_unlock(RPWI_LOCK_GUARD);
	return 0;
}

static int copy(void *dst, const void *src, size_t n, bool up)
{
	struct guard_frame f;
	f.outer = armed;
	if (sigsetjmp(f.env, 0))
		return -EFAULT;
	armed = &f;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (up)
		rpwi_copy_up(dst, src, n);
	else
		memcpy(dst, src, n);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	armed = f.outer;
	return 0;
}

int rpwi_guard_copy(void *dst, const void *src, size_t n) { return copy(dst, src, n, false); }
int rpwi_guard_copy_up(void *dst, const void *src, size_t n) { return copy(dst, src, n, true); }

int rpwi_guard_call(void (*fn)(void *arg), void *arg)
{
	struct guard_frame f;
	f.outer = armed;
	if (sigsetjmp(f.env, 0))
		return -EFAULT;
	armed = &f;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	fn(arg);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	armed = f.outer;
	return 0;
}
