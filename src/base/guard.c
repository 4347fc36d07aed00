/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c - see guard.h. Owns the SIGSEGV and SIGBUS dispositions once a device is open. */
#include "base/guard.h"

#include "base/base.h"
#include "base/copy.h"
#include "base/lock.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* glibc's other name of sigaction: the drop-in interposes the usual one. */
extern int __sigaction(int signo, const struct sigaction *act, struct sigaction *old);

struct guard_frame {
	sigjmp_buf env;
	struct guard_frame *outer;
	uint64_t mask; /* the thread's, if it had to be changed */
	bool opened;
	siginfo_t info[2]; /* of window_open */
};

static __thread struct guard_frame *volatile armed __attribute__((tls_model("initial-exec")));

/* ---- what the program has for these signals, or had before us ---- */

/* Read in a signal handler while another thread changes it: a change goes into the next entry, and
 * then counts. */
enum { ENTRIES = 8, RESET = 1 };
static struct chain {
	struct sigaction act[ENTRIES];
	/* the entry's number << 1, and RESET: SA_RESETHAND has made it SIG_DFL */
	_Atomic uint64_t now;
} chains[2];

static bool installed;
static pid_t own_pid;

static struct chain *chain_of(int signo) { return &chains[signo == SIGBUS]; }

/* What counts now, and its number. */
static uint64_t chain_read(struct chain *c, struct sigaction *out)
{
	uint64_t was, is = atomic_load_explicit(&c->now, memory_order_acquire);
	do {
		was = is;
		*out = c->act[(was >> 1) % ENTRIES];
		atomic_thread_fence(memory_order_acquire);
		is = atomic_load_explicit(&c->now, memory_order_acquire);
	} while ((is >> 1) - (was >> 1) >= ENTRIES - 1);
	if (was & RESET)
		out->sa_handler = SIG_DFL;
	return was;
}

/* RPWI_LOCK_GUARD is held. */
static void chain_write(struct chain *c, const struct sigaction *act)
{
	uint64_t next = (atomic_load_explicit(&c->now, memory_order_relaxed) >> 1) + 1;
	c->act[next % ENTRIES] = *act;
	atomic_store_explicit(&c->now, next << 1, memory_order_release);
}

/* ---- the thread's signal mask ---- */

/* A fault whose signal is blocked ends the process, whatever the handler. So a guarded copy of a
 * thread that blocks one of the two opens its mask meanwhile. Which threads do is learned by one
 * system call for each, and kept up to date by the drop-in's hooks, where there are any
 * (rpwi_guard_masks_hooked). */
enum { KNOWN = 1, BLOCKED = 2 };
static __thread uint8_t mask_state __attribute__((tls_model("initial-exec")));
static bool masks_hooked;

/* The kernel's sets, one bit for each signal: sigset_t is 128 bytes, and the calls for it are
 * hooked. */
static uint64_t bit(int signo) { return 1ull << (signo - 1); }
static void kernel_mask(int how, uint64_t set, uint64_t *old)
{
	syscall(SYS_rt_sigprocmask, how, &set, old, sizeof(set));
}

static uint64_t kernel_set(const sigset_t *set)
{
	uint64_t k = 0;
	for (int signo = 1; signo < NSIG; signo++)
		if (sigismember(set, signo) == 1)
			k |= bit(signo);
	return k;
}

/* Signals that somebody sent (kill, sigqueue) and that came while the mask was open: they are sent
 * again behind it. Standard signals: one of each. */
static __thread struct window {
	unsigned depth;
	bool came[2];
	/* Two: in the frame that opened it. Here they would be static TLS, of which a program that
	 * loads the drop-in late has 512 bytes for all libraries. */
	siginfo_t *info;
} window __attribute__((tls_model("initial-exec")));

static void window_close(uint64_t mask)
{
	bool last = window.depth == 1;
	if (last)
		kernel_mask(SIG_SETMASK, mask, NULL);
	window.depth--;
	for (int i = 0; i < 2 && last; i++) {
		siginfo_t *info = &window.info[i];
		if (!window.came[i])
			continue;
		window.came[i] = false;
		if (info->si_code == SI_TKILL)
			syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid),
				info->si_signo, info);
		else
			syscall(SYS_rt_sigqueueinfo, getpid(), info->si_signo, info);
	}
}

static __attribute__((noinline)) bool window_open(struct guard_frame *f)
{
	uint64_t *mask = &f->mask;
	const uint64_t both = bit(SIGSEGV) | bit(SIGBUS);
	if (!(mask_state & KNOWN) || !masks_hooked) {
		kernel_mask(SIG_BLOCK, 0, mask);
		mask_state = KNOWN | (*mask & both ? BLOCKED : 0);
		if (mask_state == KNOWN)
			return false;
	}
	if (!window.depth)
		window.info = f->info;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	window.depth++;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	kernel_mask(SIG_UNBLOCK, both, mask);
	return true;
}

static inline void guard_begin(struct guard_frame *f)
{
	f->outer = armed;
	f->opened = RPWI_UNLIKELY(mask_state != KNOWN || !masks_hooked) && window_open(f);
}

static inline void guard_arm(struct guard_frame *f)
{
	armed = f;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void guard_end(struct guard_frame *f)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	armed = f->outer;
	if (RPWI_UNLIKELY(f->opened))
		window_close(f->mask);
}

void rpwi_guard_masks_hooked(void) { masks_hooked = true; }

/* A thread that opens its mask in a signal handler gets the old one back behind it: then nothing is
 * known. */
void rpwi_guard_mask_set(int how, const sigset_t *set)
{
	bool names = sigismember(set, SIGSEGV) == 1 || sigismember(set, SIGBUS) == 1;
	/* a child of vfork, whose mask is its own and whose memory is not */
	if (getpid() != own_pid)
		return;
	if (names && how != SIG_UNBLOCK)
		mask_state |= BLOCKED;
	else if ((names || how == SIG_SETMASK) && mask_state != KNOWN)
		mask_state = 0;
}

/* ---- a few words ---- */

/* n bytes, 8 at a time and upwards: what most messages of 8 bytes are copied by. A fault between
 * rpwi_guard_words and rpwi_guard_words_fault goes on at the latter, as the kernel's exception
 * tables have it, so nothing is saved before the copy: 70 instructions less. */
#ifdef __has_feature
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#if defined(__x86_64__) && !SANITIZED /* those see no assembly */
enum { WORDS_BYTES_MAX = 64 };
#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN int rpwi_guard_words(void *dst, const void *src, size_t n);
HIDDEN extern const char rpwi_guard_words_fault[];
__asm__(".pushsection .text\n"
	".p2align 4\n"
	".globl rpwi_guard_words, rpwi_guard_words_fault\n"
	".hidden rpwi_guard_words, rpwi_guard_words_fault\n"
	".type rpwi_guard_words, @function\n"
	"rpwi_guard_words:\n"
	"	.cfi_startproc\n"
	"	xorl %ecx, %ecx\n"
	"1:	movq (%rsi,%rcx), %rax\n"
	"	movq %rax, (%rdi,%rcx)\n"
	"	addq $8, %rcx\n"
	"	cmpq %rcx, %rdx\n"
	"	jne 1b\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	"rpwi_guard_words_fault:\n"
	"	movl $-14, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size rpwi_guard_words, . - rpwi_guard_words\n"
	".popsection\n");
_Static_assert(EFAULT == 14, "what the copy says");

static inline bool are_words(const void *dst, size_t n)
{
	return n - 1 < WORDS_BYTES_MAX && !(((uintptr_t)dst | n) % 8) &&
	       RPWI_LIKELY(mask_state == KNOWN && masks_hooked);
}

static bool words_faulted(void *uctx)
{
	greg_t *pc = &((ucontext_t *)uctx)->uc_mcontext.gregs[REG_RIP];
	uintptr_t end = (uintptr_t)rpwi_guard_words_fault, begin = (uintptr_t)rpwi_guard_words;
	if ((uintptr_t)*pc - begin >= end - begin)
		return false;
	*pc = (greg_t)end;
	return true;
}
#else
static inline bool are_words(const void *dst, size_t n) { return false; }
static inline int rpwi_guard_words(void *dst, const void *src, size_t n) { return -EFAULT; }
static inline bool words_faulted(void *uctx) { return false; }
#endif

/* ---- faults ---- */

static void on_fault(int signo, siginfo_t *info, void *uctx)
{
	struct guard_frame *f = armed;
	bool sent = info->si_code <= 0; /* by somebody, and not a real fault */
	if (!sent && words_faulted(uctx))
		return;
	if (f && !sent) {
		armed = f->outer;
		siglongjmp(f->env, 1);
	}
	if (sent && window.depth) {
		window.came[signo == SIGBUS] = true;
		window.info[signo == SIGBUS] = *info;
		return;
	}
	struct chain *c = chain_of(signo);
	struct sigaction n;
	uint64_t was;
	do
		was = chain_read(c, &n);
	while (n.sa_flags & SA_RESETHAND && n.sa_handler != SIG_DFL && n.sa_handler != SIG_IGN &&
		!atomic_compare_exchange_weak(&c->now, &was, was | RESET));
	if (n.sa_handler == SIG_IGN && sent)
		return;
	if (n.sa_handler == SIG_DFL || n.sa_handler == SIG_IGN) {
		/* Not ours: give the default back and return; the instruction faults again and ends
		 * the program as without us. */
		struct sigaction dfl = {.sa_handler = SIG_DFL};
		__sigaction(signo, &dfl, NULL);
		if (sent)
			raise(signo);
		return;
	}
	/* As the kernel would: signals blocked on top are unblocked when this handler returns, or
	 * stay blocked where the program's jumps out of it. */
	kernel_mask(SIG_BLOCK, kernel_set(&n.sa_mask) | (n.sa_flags & SA_NODEFER ? 0 : bit(signo)),
		NULL);
	mask_state = 0;
	if (n.sa_flags & SA_SIGINFO)
		n.sa_sigaction(signo, info, uctx);
	else
		n.sa_handler(signo);
}

static void after_fork_child(void) { own_pid = getpid(); }

int rpwi_guard_install(void)
{
	int rc = 0;
	rpwi_lock(RPWI_LOCK_GUARD);
	if (!installed) {
		/* SA_NODEFER: the handler leaves by siglongjmp without restoring a mask. */
		struct sigaction sa = {.sa_sigaction = on_fault,
					 .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER},
				 had[2];
		sigemptyset(&sa.sa_mask);
		own_pid = getpid();
		rc = rpwi_fork_watch(after_fork_child);
		for (int i = 0; i < 2 && !rc; i++) {
			/* Before ours counts: it may be asked at once. */
			int signo = i ? SIGBUS : SIGSEGV;
			rc = __sigaction(signo, NULL, &had[i]) ? -errno : 0;
			if (!rc) {
				chain_write(&chains[i], &had[i]);
				rc = __sigaction(signo, &sa, NULL) ? -errno : 0;
			}
		}
		if (!rc)
			__atomic_store_n(&installed, true, __ATOMIC_RELEASE);
	}
	rpwi_unlock(RPWI_LOCK_GUARD);
	return rc;
}

bool rpwi_guard_installed(void) { return __atomic_load_n(&installed, __ATOMIC_ACQUIRE); }

int rpwi_guard_sigaction(int signo, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction want, had;
	uint64_t mask;
	if (signo != SIGSEGV && signo != SIGBUS)
		return -EINVAL;
	/* a child of vfork has handlers of its own, and these are its parent's */
	if (getpid() != own_pid)
		return __sigaction(signo, act, old) ? -errno : 0;
	if (act)
		want = *act;
	/* sigaction may be called in signal handlers: none may find the lock taken by the thread
	 * that it interrupts. */
	kernel_mask(SIG_BLOCK, ~0ull, &mask);
	rpwi_lock(RPWI_LOCK_GUARD);
	chain_read(chain_of(signo), &had);
	if (act)
		chain_write(chain_of(signo), &want);
	rpwi_unlock(RPWI_LOCK_GUARD);
	kernel_mask(SIG_SETMASK, mask, NULL);
	if (old)
		*old = had;
	return 0;
}

/* ---- what is guarded ---- */

static int copy(void *dst, const void *src, size_t n, bool up)
{
	struct guard_frame f;
	guard_begin(&f);
	if (sigsetjmp(f.env, 0)) {
		guard_end(&f);
		return -EFAULT;
	}
	guard_arm(&f);
	if (up)
		rpwi_copy_up(dst, src, n);
	else
		rpwi_copy(dst, src, n);
	guard_end(&f);
	return 0;
}

int rpwi_guard_copy(void *dst, const void *src, size_t n)
{
	return are_words(dst, n) ? rpwi_guard_words(dst, src, n) : copy(dst, src, n, false);
}

int rpwi_guard_copy_up(void *dst, const void *src, size_t n)
{
	return are_words(dst, n) ? rpwi_guard_words(dst, src, n) : copy(dst, src, n, true);
}

int rpwi_guard_call(void (*fn)(void *arg), void *arg)
{
	struct guard_frame f;
	guard_begin(&f);
	if (sigsetjmp(f.env, 0)) {
		guard_end(&f);
		return -EFAULT;
	}
	guard_arm(&f);
	fn(arg);
	guard_end(&f);
	return 0;
}
