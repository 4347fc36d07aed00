/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.c - keeps the guard's handler (base/guard.h) in front of the program's: once it is
 * installed, what the program sets for SIGSEGV and SIGBUS becomes the handler that the guard passes
 * faults on to. Before that, and for every other signal, the calls go straight on. And tells the
 * guard of threads that block these two.
 *
 * The functions carry their public names as assembler names, so that no declaration of the C
 * library (macros, attributes, aliases) is in their way.
 */
#include "preload/next.h"
#include "preload/preload.h"

#include "base/guard.h"

#include <signal.h>

typedef void handler_fn(int);

/* A sanitizer's runtime sets its handlers here before it can be entered from instrumented code,
 * such as the guard's in a sanitized build: the guard is not asked before a device is opened. */
static bool armed;
static bool is_armed(void) { return __atomic_load_n(&armed, __ATOMIC_ACQUIRE); }
void rpwi_signals_arm(void)
{
	if (is_armed())
		return;
	rpwi_guard_masks_hooked();
	__atomic_store_n(&armed, true, __ATOMIC_RELEASE);
}
static bool guarded(int signo)
{
	return (signo == SIGSEGV || signo == SIGBUS) && is_armed() && rpwi_guard_installed();
}

RPWI_HOOK(int, hook_sigaction, sigaction,
	(int signo, const struct sigaction *act, struct sigaction *old))
{
	if (guarded(signo)) {
		int rc = rpwi_guard_sigaction(signo, act, old);
		if (!rc)
			return 0;
		return rpwi_minus(-rc);
	}
	return RPWI_NEXT(hook_sigaction, sigaction)(signo, act, old);
}

/* What a guarded signal() does: sigaction with the flags of that flavour; the handler before. */
static handler_fn *set(int signo, handler_fn *handler, int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;
	sigemptyset(&act.sa_mask);
	if (!(flags & SA_NODEFER))
		sigaddset(&act.sa_mask, signo);
	if (rpwi_guard_sigaction(signo, &act, &old)) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return old.sa_handler;
}

enum { BSD_FLAGS = SA_RESTART, SYSV_FLAGS = (int)(SA_RESETHAND | SA_NODEFER) };

#define HOOK_SIGNAL(hook, name, flags) \
	RPWI_HOOK(handler_fn *, hook, name, (int signo, handler_fn *handler)) \
	{ \
		return guarded(signo) ? set(signo, handler, flags) \
				      : RPWI_NEXT(hook, name)(signo, handler); \
	}
HOOK_SIGNAL(hook_signal, signal, BSD_FLAGS)
HOOK_SIGNAL(hook_bsd_signal, bsd_signal, BSD_FLAGS)
HOOK_SIGNAL(hook_ssignal, ssignal, BSD_FLAGS)
HOOK_SIGNAL(hook_sysv_signal, sysv_signal, SYSV_FLAGS)
HOOK_SIGNAL(hook_sysv_signal2, __sysv_signal, SYSV_FLAGS)

/* POSIX.1-2001 sigset: SIG_HOLD blocks and leaves the disposition; anything else sets it and
 * unblocks. Returns SIG_HOLD if the signal was blocked. */
RPWI_HOOK(handler_fn *, hook_sigset, sigset, (int signo, handler_fn *disposition))
{
	if (!guarded(signo))
		return RPWI_NEXT(hook_sigset, sigset)(signo, disposition);
	sigset_t one, had;
	sigemptyset(&one);
	sigaddset(&one, signo);
	struct sigaction old;
	rpwi_guard_sigaction(signo, NULL, &old);
	if (disposition != SIG_HOLD)
		set(signo, disposition, 0);
	sigprocmask(disposition == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &one, &had);
	return sigismember(&had, signo) ? SIG_HOLD : old.sa_handler;
}

RPWI_HOOK(int, hook_sigignore, sigignore, (int signo))
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	return hook_sigaction(signo, &ignore, NULL);
}

/* ---- masks: the guard has to know which threads block its signals ---- */

typedef int mask_fn(int how, const sigset_t *set, sigset_t *old);

static int set_mask(mask_fn *next, int how, const sigset_t *set, sigset_t *old)
{
	sigset_t want; /* old may be the same place */
	if (!set || !is_armed())
		return next(how, set, old);
	want = *set;
	int rc = next(how, set, old);
	if (!rc)
		rpwi_guard_mask_set(how, &want);
	return rc;
}

RPWI_HOOK(int, hook_pthread_sigmask, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old))
{
	return set_mask(RPWI_NEXT(hook_pthread_sigmask, pthread_sigmask), how, set, old);
}

RPWI_HOOK(int, hook_sigprocmask, sigprocmask, (int how, const sigset_t *set, sigset_t *old))
{
	return set_mask(RPWI_NEXT(hook_sigprocmask, sigprocmask), how, set, old);
}

/* The older calls are few: by way of the one above. */
static int mask_one(int how, int signo)
{
	sigset_t one;
	sigemptyset(&one);
	return sigaddset(&one, signo) ? -1 : hook_sigprocmask(how, &one, NULL);
}

RPWI_HOOK(int, hook_sighold, sighold, (int signo)) { return mask_one(SIG_BLOCK, signo); }
RPWI_HOOK(int, hook_sigrelse, sigrelse, (int signo)) { return mask_one(SIG_UNBLOCK, signo); }

static int mask_bsd(int how, int mask)
{
	sigset_t want, had;
	int bits = 0;
	sigemptyset(&want);
	for (int signo = 1; signo < 32; signo++)
		if ((unsigned)mask >> (signo - 1) & 1)
			sigaddset(&want, signo);
	if (hook_sigprocmask(how, &want, &had))
		return -1;
	for (int signo = 1; signo < 32; signo++)
		if (sigismember(&had, signo) == 1)
			bits |= (int)(1u << (signo - 1));
	return bits;
}

RPWI_HOOK(int, hook_sigblock, sigblock, (int mask)) { return mask_bsd(SIG_BLOCK, mask); }
RPWI_HOOK(int, hook_sigsetmask, sigsetmask, (int mask)) { return mask_bsd(SIG_SETMASK, mask); }
