/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.c - keeps the guard's handler (base/guard.h) in front of the program's: once it is
 * installed, what the program sets for SIGSEGV and SIGBUS becomes the handler that the guard passes
 * faults on to. Before that, and for every other signal, the calls go straight on. And tells the
 * guard of threads that block these two.
 *
 * The functions carry their public names as assembler names, so that no declaration of the C
 * library (macros, attributes, aliases) is in their way.
 */
#include "preload/preload.h"

#include "base/guard.h"

#include <signal.h>

typedef void handler_fn(int);

RPWI_EXPORT int hook_sigaction(
	int signo, const struct sigaction *act, struct sigaction *old) __asm__("sigaction");
RPWI_EXPORT handler_fn *hook_signal(int signo, handler_fn *handler) __asm__("signal");
RPWI_EXPORT handler_fn *hook_bsd_signal(int signo, handler_fn *handler) __asm__("bsd_signal");
RPWI_EXPORT handler_fn *hook_ssignal(int signo, handler_fn *handler) __asm__("ssignal");
RPWI_EXPORT handler_fn *hook_sysv_signal(int signo, handler_fn *handler) __asm__("sysv_signal");
RPWI_EXPORT handler_fn *hook_sysv_signal2(int signo, handler_fn *handler) __asm__("__sysv_signal");
RPWI_EXPORT handler_fn *hook_sigset(int signo, handler_fn *disposition) __asm__("sigset");
RPWI_EXPORT int hook_sigignore(int signo) __asm__("sigignore");
RPWI_EXPORT int hook_pthread_sigmask(int how, const sigset_t *set, sigset_t *old) __asm__(
	"pthread_sigmask");
RPWI_EXPORT int hook_sigprocmask(int how, const sigset_t *set, sigset_t *old) __asm__(
	"sigprocmask");
RPWI_EXPORT int hook_sighold(int signo) __asm__("sighold");
RPWI_EXPORT int hook_sigrelse(int signo) __asm__("sigrelse");
RPWI_EXPORT int hook_sigblock(int mask) __asm__("sigblock");
RPWI_EXPORT int hook_sigsetmask(int mask) __asm__("sigsetmask");

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

int hook_sigaction(int signo, const struct sigaction *act, struct sigaction *old)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);
	if (guarded(signo)) {
		int rc = rpwi_guard_sigaction(signo, act, old);
		if (!rc)
			return 0;
		errno = -rc;
		return -1;
	}
	if (!next)
		next = (__typeof__(next))rpwi_next("sigaction");
	return next(signo, act, old);
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

typedef handler_fn *signal_fn(int signo, handler_fn *handler);

static handler_fn *forward(signal_fn **next, const char *name, int signo, handler_fn *handler)
{
	if (!*next)
		*next = (signal_fn *)rpwi_next(name);
	return (*next)(signo, handler);
}

enum { BSD_FLAGS = SA_RESTART, SYSV_FLAGS = (int)(SA_RESETHAND | SA_NODEFER) };

handler_fn *hook_signal(int signo, handler_fn *handler)
{
	static signal_fn *next;
	return guarded(signo) ? set(signo, handler, BSD_FLAGS)
			      : forward(&next, "signal", signo, handler);
}

handler_fn *hook_bsd_signal(int signo, handler_fn *handler)
{
	static signal_fn *next;
	return guarded(signo) ? set(signo, handler, BSD_FLAGS)
			      : forward(&next, "bsd_signal", signo, handler);
}

handler_fn *hook_ssignal(int signo, handler_fn *handler)
{
	static signal_fn *next;
	return guarded(signo) ? set(signo, handler, BSD_FLAGS)
			      : forward(&next, "ssignal", signo, handler);
}

handler_fn *hook_sysv_signal(int signo, handler_fn *handler)
{
	static signal_fn *next;
	return guarded(signo) ? set(signo, handler, SYSV_FLAGS)
			      : forward(&next, "sysv_signal", signo, handler);
}

handler_fn *hook_sysv_signal2(int signo, handler_fn *handler)
{
	static signal_fn *next;
	return guarded(signo) ? set(signo, handler, SYSV_FLAGS)
			      : forward(&next, "__sysv_signal", signo, handler);
}

/* POSIX.1-2001 sigset: SIG_HOLD blocks and leaves the disposition; anything else sets it and
 * unblocks. Returns SIG_HOLD if the signal was blocked. */
handler_fn *hook_sigset(int signo, handler_fn *disposition)
{
	static signal_fn *next;
	if (!guarded(signo))
		return forward(&next, "sigset", signo, disposition);
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

int hook_sigignore(int signo)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	return hook_sigaction(signo, &ignore, NULL);
}

/* ---- masks: the guard has to know which threads block its signals ---- */

typedef int mask_fn(int how, const sigset_t *set, sigset_t *old);

static int set_mask(mask_fn **next, const char *name, int how, const sigset_t *set, sigset_t *old)
{
	sigset_t want; /* old may be the same place */
	if (!*next)
		*next = (mask_fn *)rpwi_next(name);
	if (!set || !is_armed())
		return (*next)(how, set, old);
	want = *set;
	int rc = (*next)(how, set, old);
	if (!rc)
		rpwi_guard_mask_set(how, &want);
	return rc;
}

int hook_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	static mask_fn *next;
	return set_mask(&next, "pthread_sigmask", how, set, old);
}

int hook_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	static mask_fn *next;
	return set_mask(&next, "sigprocmask", how, set, old);
}

/* The older calls are few: by way of the one above. */
static int mask_one(int how, int signo)
{
	sigset_t one;
	sigemptyset(&one);
	return sigaddset(&one, signo) ? -1 : hook_sigprocmask(how, &one, NULL);
}

int hook_sighold(int signo) { return mask_one(SIG_BLOCK, signo); }
int hook_sigrelse(int signo) { return mask_one(SIG_UNBLOCK, signo); }

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

int hook_sigblock(int mask) { return mask_bsd(SIG_BLOCK, mask); }
int hook_sigsetmask(int mask) { return mask_bsd(SIG_SETMASK, mask); }
