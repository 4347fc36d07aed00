/* SPDX-License-Identifier: BSD-3-Clause */
/* Guarded copies: holes, protected pages, truncated files, and a program that has fault handlers of
 * its own. */
#include "lib/test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/guard.h"

enum { PAGE = 4096 };

/* cmocka sets handlers of its own around each test; each test puts the guard's back first. */
/* past TSan's, as guard.c goes */
extern int __sigaction(int signo, const struct sigaction *act, struct sigaction *old);
static struct sigaction guard_segv, guard_bus;
static void arm(void)
{
	__sigaction(SIGSEGV, &guard_segv, NULL);
	__sigaction(SIGBUS, &guard_bus, NULL);
}

static uint8_t *pages(size_t n)
{
	uint8_t *p =
		mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	for (size_t i = 0; i < n * PAGE; i++)
		p[i] = (uint8_t)(i * 13 + i / 251);
	return p;
}

static void copies_what_is_there(void **state)
{
	arm();
	uint8_t *a = pages(2), *b = pages(2);
	memset(b, 0, 2 * PAGE);
	assert_int_equal(rpwi_guard_copy(b + 1, a + 3, 5000), 0);
	assert_memory_equal(b + 1, a + 3, 5000);
	assert_int_equal(b[0], 0);
	assert_int_equal(b[5001], 0);
	munmap(a, 2 * PAGE);
	munmap(b, 2 * PAGE);
}

static void unmapped_memory_is_efault(void **state)
{
	arm();
	uint8_t *a = pages(3), *b = pages(3);
	munmap(a + PAGE, PAGE);
	assert_int_equal(rpwi_guard_copy(a + PAGE, b, 8), -EFAULT);
	assert_int_equal(rpwi_guard_copy(b, a + PAGE, 8), -EFAULT);
	assert_int_equal(rpwi_guard_copy(b, a + PAGE - 100, 200), -EFAULT); /* runs into the hole */
	assert_int_equal(rpwi_guard_copy(a + PAGE - 100, b, 200), -EFAULT);
	for (int i = 0; i < 1000; i++) /* no state is left behind */
		assert_int_equal(rpwi_guard_copy(b, a + PAGE, PAGE), -EFAULT);
	assert_int_equal(rpwi_guard_copy(b, a, PAGE), 0);
	assert_memory_equal(a, b, PAGE);
	munmap(a, 3 * PAGE);
	munmap(b, 3 * PAGE);
}

static void protected_memory_is_efault(void **state)
{
	arm();
	uint8_t *a = pages(1), *b = pages(1);
	mprotect(a, PAGE, PROT_NONE);
	assert_int_equal(rpwi_guard_copy(a, b, PAGE), -EFAULT);
	assert_int_equal(rpwi_guard_copy(b, a, 1), -EFAULT);
	mprotect(a, PAGE, PROT_READ);
	assert_int_equal(rpwi_guard_copy(a, b, 1), -EFAULT);
	assert_int_equal(rpwi_guard_copy(b, a, PAGE), 0);
	munmap(a, PAGE);
	munmap(b, PAGE);
}

/* A mapping past the end of its file: SIGBUS, not SIGSEGV. */
static void truncated_file_is_efault(void **state)
{
	arm();
	char name[] = "/tmp/ropeway-guard-XXXXXX";
	int fd = mkstemp(name);
	unlink(name);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	uint8_t *a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), b[16];
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(rpwi_guard_copy(b, a, sizeof(b)), -EFAULT);
	assert_int_equal(rpwi_guard_copy(a, b, sizeof(b)), -EFAULT);
	munmap(a, PAGE);
	close(fd);
}

static void touch(void *arg) { *(volatile uint8_t *)arg = 1; }

struct nested {
	uint8_t *bad;
	int inner;
};
static void copy_inside(void *arg)
{
	struct nested *n = arg;
	uint8_t b = 7;
	n->inner = rpwi_guard_copy(n->bad, &b, 1);
	touch(n->bad);
}

static void calls_are_guarded_and_nest(void **state)
{
	arm();
	uint8_t *a = pages(1);
	assert_int_equal(rpwi_guard_call(touch, a), 0);
	assert_int_equal(a[0], 1);
	mprotect(a, PAGE, PROT_NONE);
	assert_int_equal(rpwi_guard_call(touch, a), -EFAULT);
	struct nested n = {.bad = a};
	assert_int_equal(rpwi_guard_call(copy_inside, &n), -EFAULT);
	assert_int_equal(n.inner, -EFAULT);
	munmap(a, PAGE);
}

static volatile sig_atomic_t program_faults;
static void *volatile program_addr;
static void program_handler(int signo, siginfo_t *info, void *uctx)
{
	program_faults++;
	program_addr = info->si_addr;
	/* as a garbage collector or a user-space pager does */
	mprotect(info->si_addr, PAGE, PROT_READ | PROT_WRITE);
}

static void the_program_keeps_its_own_faults(void **state)
{
	arm();
	uint8_t *mine = pages(1), *ours = pages(1), b[8];
	struct sigaction sa = {.sa_sigaction = program_handler, .sa_flags = SA_SIGINFO}, old, now;
	assert_int_equal(rpwi_guard_sigaction(SIGSEGV, &sa, &old), 0);
	assert_int_equal(rpwi_guard_sigaction(SIGSEGV, NULL, &now), 0);
	assert_ptr_equal(now.sa_sigaction, program_handler);
	mprotect(mine, PAGE, PROT_NONE);
	mprotect(ours, PAGE, PROT_NONE);
	program_faults = 0;
	/* inside a guarded copy: not the program's */
	assert_int_equal(rpwi_guard_copy(b, ours, 8), -EFAULT);
	assert_int_equal(program_faults, 0);
	*(volatile uint8_t *)mine = 42; /* its own: handled, restarted */
	assert_int_equal(program_faults, 1);
	assert_ptr_equal(program_addr, mine);
	assert_int_equal(mine[0], 42);
	assert_int_equal(rpwi_guard_copy(b, ours, 8), -EFAULT);
	assert_int_equal(program_faults, 1);
	assert_int_equal(rpwi_guard_sigaction(SIGSEGV, &old, NULL), 0);
	assert_int_equal(rpwi_guard_sigaction(SIGINT, &old, NULL), -EINVAL);
	munmap(mine, PAGE);
	munmap(ours, PAGE);
}

static void *volatile nowhere = (void *)8;

/* How a child of ours ends that faults without a handler, or is sent the signal. */
static int child_signal(bool raised)
{
	pid_t pid = fork();
	if (!pid) {
		if (raised)
			raise(SIGSEGV);
		else
			touch(nowhere);
		_exit(0);
	}
	int st;
	assert_int_equal(waitpid(pid, &st, 0), pid);
	return WIFSIGNALED(st) ? WTERMSIG(st) : -1;
}

static void without_a_handler_a_fault_still_kills(void **state)
{
	arm();
	struct sigaction dfl = {.sa_handler = SIG_DFL}, old;
	assert_int_equal(rpwi_guard_sigaction(SIGSEGV, &dfl, &old), 0);
	assert_int_equal(child_signal(false), SIGSEGV);
	assert_int_equal(child_signal(true), SIGSEGV);
	assert_int_equal(rpwi_guard_sigaction(SIGSEGV, &old, NULL), 0);
}

/* ---- threads that block the signals ---- */

static sigset_t both(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	sigaddset(&set, SIGBUS);
	return set;
}

static void a_thread_that_blocks_the_signals_gets_efault(void **state)
{
	arm();
	uint8_t *a = pages(1), *b = pages(1);
	sigset_t set = both(), had, now;
	mprotect(a, PAGE, PROT_NONE);
	pthread_sigmask(SIG_BLOCK, &set, &had);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(rpwi_guard_copy(a, b, 8), -EFAULT);
	assert_int_equal(rpwi_guard_copy(b, b + 100, 100), 0);
	assert_int_equal(rpwi_guard_call(touch, a), -EFAULT);
	struct nested n = {.bad = a};
	assert_int_equal(rpwi_guard_call(copy_inside, &n), -EFAULT);
	assert_int_equal(n.inner, -EFAULT);
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	assert_true(sigismember(&now, SIGSEGV) && sigismember(&now, SIGBUS));
	pthread_sigmask(SIG_SETMASK, &had, NULL);
	assert_int_equal(rpwi_guard_copy(a, b, 8), -EFAULT);
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	assert_false(sigismember(&now, SIGSEGV) || sigismember(&now, SIGBUS));
	munmap(a, PAGE), munmap(b, PAGE);
}

/* Sent while it is blocked, it goes on waiting for whoever takes it, however many copies there
 * are. */
static void a_signal_that_waits_goes_on_waiting(void **state)
{
	arm();
	uint8_t *a = pages(1), b[8];
	sigset_t set = both(), had;
	siginfo_t info;
	struct timespec none = {0};
	mprotect(a, PAGE, PROT_NONE);
	pthread_sigmask(SIG_BLOCK, &set, &had);
	kill(getpid(), SIGSEGV);
	assert_int_equal(sigqueue(getpid(), SIGBUS, (union sigval){.sival_int = 4711}), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(rpwi_guard_copy(b, a, 8), -EFAULT);
	sigset_t one;
	sigemptyset(&one);
	sigaddset(&one, SIGSEGV);
	assert_int_equal(sigtimedwait(&one, &info, &none), SIGSEGV);
	assert_int_equal(info.si_code, SI_USER);
	assert_int_equal(info.si_pid, getpid());
	assert_int_equal(sigtimedwait(&set, &info, &none), SIGBUS);
	assert_int_equal(info.si_code, SI_QUEUE);
	assert_int_equal(info.si_value.sival_int, 4711);
	assert_int_equal(pthread_kill(pthread_self(), SIGSEGV), 0);
	assert_int_equal(rpwi_guard_copy(b, a, 8), -EFAULT);
	assert_int_equal(sigtimedwait(&set, &info, &none), SIGSEGV);
	assert_int_equal(info.si_code, SI_USER); /* glibc's word for SI_TKILL */
	assert_int_equal(sigtimedwait(&set, &info, &none), -1);
	pthread_sigmask(SIG_SETMASK, &had, NULL);
	munmap(a, PAGE);
}

/* ---- the flags and the mask of the program's handler; each in a child, which dies of it or says
 * what it saw ---- */

static volatile sig_atomic_t entered, blocked_inside, other_blocked;
static void note_mask(int signo)
{
	sigset_t now;
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	entered++;
	blocked_inside = sigismember(&now, SIGSEGV);
	other_blocked = sigismember(&now, SIGUSR2);
	mprotect(nowhere, PAGE, PROT_READ | PROT_WRITE);
}
static void come_back(int signo)
{
	if (++entered > 3)
		_exit(entered);
}

static void *volatile hole = (void *)8;
static void touch_in_handler(int signo) { touch(hole); }

static int in_child(void (*what)(void))
{
	pid_t pid = fork();
	if (!pid) {
		alarm(10);
		what();
		_exit(0);
	}
	int st;
	assert_int_equal(waitpid(pid, &st, 0), pid);
	return WIFSIGNALED(st) ? -WTERMSIG(st) : WEXITSTATUS(st);
}

static void resethand_then_fault(void)
{
	struct sigaction sa = {.sa_handler = come_back, .sa_flags = (int)SA_RESETHAND};
	rpwi_guard_sigaction(SIGSEGV, &sa, NULL);
	touch(hole);
}

static void resethand_is_seen(void)
{
	struct sigaction sa = {.sa_handler = come_back, .sa_flags = (int)SA_RESETHAND}, old;
	rpwi_guard_sigaction(SIGSEGV, &sa, NULL);
	raise(SIGSEGV);
	rpwi_guard_sigaction(SIGSEGV, NULL, &old);
	_exit(old.sa_handler == SIG_DFL && entered == 1 ? 7 : 8);
}

static void a_handler_that_is_to_be_reset_runs_once(void **state)
{
	arm();
	assert_int_equal(in_child(resethand_then_fault), -SIGSEGV);
	assert_int_equal(in_child(resethand_is_seen), 7);
}

static void fault_with(int flags)
{
	struct sigaction sa = {.sa_handler = note_mask, .sa_flags = flags};
	sigaddset(&sa.sa_mask, SIGUSR2);
	nowhere = pages(1);
	mprotect(nowhere, PAGE, PROT_NONE);
	rpwi_guard_sigaction(SIGSEGV, &sa, NULL);
	touch(nowhere);
	sigset_t now;
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	_exit(entered | blocked_inside << 1 | other_blocked << 2 | sigismember(&now, SIGSEGV) << 3 |
		sigismember(&now, SIGUSR2) << 4);
}
static void fault_plain(void) { fault_with(0); }
static void fault_nodefer(void) { fault_with(SA_NODEFER); }
static void fault_again(void)
{
	struct sigaction sa = {.sa_handler = touch_in_handler};
	rpwi_guard_sigaction(SIGSEGV, &sa, NULL);
	touch(hole);
}

static void a_handler_has_its_mask(void **state)
{
	arm();
	assert_int_equal(in_child(fault_plain), 1 | 2 | 4);
	assert_int_equal(in_child(fault_nodefer), 1 | 4);
	assert_int_equal(in_child(fault_again), -SIGSEGV);
}

/* What such a child sets is its own: its memory is not. */
static void a_vfork_child_leaves_the_handlers_alone(void **state)
{
	arm();
	struct sigaction mine = {.sa_handler = come_back}, old, now;
	static const struct sigaction dfl = {.sa_handler = SIG_DFL};
	assert_int_equal(rpwi_guard_sigaction(SIGSEGV, &mine, &old), 0);
	pid_t pid = vfork();
	if (!pid)
		_exit(rpwi_guard_sigaction(SIGSEGV, &dfl, NULL));
	int st;
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
	assert_int_equal(rpwi_guard_sigaction(SIGSEGV, &old, &now), 0);
	assert_ptr_equal(now.sa_handler, come_back);
}

static void *thread_copies(void *arg)
{
	uint8_t b[64];
	for (int i = 0; i < 20000; i++)
		if (rpwi_guard_copy(b, arg, sizeof(b)) != -EFAULT)
			return (void *)1;
	return NULL;
}

static void threads_fault_apart(void **state)
{
	arm();
	uint8_t *a = pages(1), *b = pages(1), *c = pages(1);
	pthread_t t;
	void *failed;
	mprotect(a, PAGE, PROT_NONE);
	assert_int_equal(pthread_create(&t, NULL, thread_copies, a), 0);
	for (int i = 0; i < 20000; i++)
		assert_int_equal(rpwi_guard_copy(b, c, PAGE), 0);
	pthread_join(t, &failed);
	assert_null(failed);
	assert_memory_equal(b, c, PAGE);
	munmap(a, PAGE), munmap(b, PAGE), munmap(c, PAGE);
}

static void installing_again_changes_nothing(void **state)
{
	struct sigaction now;
	arm();
	assert_int_equal(rpwi_guard_install(), 0);
	assert_true(rpwi_guard_installed());
	__sigaction(SIGSEGV, NULL, &now);
	assert_ptr_equal(now.sa_sigaction, guard_segv.sa_sigaction);
}

/* From here on each change of a mask is told, so short copies need no question and no frame. The
 * last tests: it stays so. */
static void words_are_guarded_without_a_frame(void **state)
{
	arm();
	uint8_t *a = pages(2), *b = pages(2), none[128] = {0};
	rpwi_guard_masks_hooked();
	assert_int_equal(rpwi_guard_copy(b, a, 1), 0); /* this thread's mask is known now */
	for (size_t n = 8; n <= 128; n += 8)
		for (size_t shift = 0; shift < 8; shift++) {
			memset(b, 0, 512);
			assert_int_equal(rpwi_guard_copy(b + 64, a + shift, n), 0);
			assert_memory_equal(b + 64, a + shift, n);
			assert_int_equal(rpwi_guard_copy_up(b + 64 + shift, a + 3, n), 0);
			assert_memory_equal(b + 64 + shift, a + 3, n);
			assert_memory_equal(b, none, 64);
			assert_memory_equal(b + 64 + shift + n, none, 64);
		}
	mprotect(a + PAGE, PAGE, PROT_NONE);
	for (size_t n = 8; n <= 128; n += 8) {
		assert_int_equal(rpwi_guard_copy(a + PAGE, b, n), -EFAULT);
		assert_int_equal(rpwi_guard_copy_up(b, a + PAGE, n), -EFAULT);
		assert_int_equal(rpwi_guard_copy_up(b, a + PAGE - 1, n), -EFAULT);
		/* up to the hole, and not one word into it */
		memset(a + PAGE - 128, 0, 128);
		assert_int_equal(rpwi_guard_copy_up(a + PAGE - n + 8, b, n), -EFAULT);
		assert_memory_equal(a + PAGE - n + 8, b, n - 8);
	}
	/* a frame around it is not taken for its own */
	struct nested n = {.bad = a + PAGE};
	assert_int_equal(rpwi_guard_call(copy_inside, &n), -EFAULT);
	assert_int_equal(n.inner, -EFAULT);
	munmap(a, 2 * PAGE);
	munmap(b, 2 * PAGE);
}

static void words_of_a_thread_that_blocks_the_signals(void **state)
{
	arm();
	uint8_t *a = pages(1), b[16] = {0};
	sigset_t set = both(), had;
	mprotect(a, PAGE, PROT_NONE);
	pthread_sigmask(SIG_BLOCK, &set, &had);
	rpwi_guard_mask_set(SIG_BLOCK, &set); /* as the drop-in tells it */
	assert_int_equal(rpwi_guard_copy(a, b, 8), -EFAULT);
	pthread_sigmask(SIG_SETMASK, &had, NULL);
	rpwi_guard_mask_set(SIG_SETMASK, &had);
	assert_int_equal(rpwi_guard_copy(a, b, 8), -EFAULT);
	munmap(a, PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_what_is_there),
		cmocka_unit_test(unmapped_memory_is_efault),
		cmocka_unit_test(protected_memory_is_efault),
		cmocka_unit_test(truncated_file_is_efault),
		cmocka_unit_test(calls_are_guarded_and_nest),
		cmocka_unit_test(the_program_keeps_its_own_faults),
		cmocka_unit_test(without_a_handler_a_fault_still_kills),
		cmocka_unit_test(a_thread_that_blocks_the_signals_gets_efault),
		cmocka_unit_test(a_signal_that_waits_goes_on_waiting),
		cmocka_unit_test(a_handler_that_is_to_be_reset_runs_once),
		cmocka_unit_test(a_handler_has_its_mask),
		cmocka_unit_test(a_vfork_child_leaves_the_handlers_alone),
		cmocka_unit_test(threads_fault_apart),
		cmocka_unit_test(installing_again_changes_nothing),
		cmocka_unit_test(words_are_guarded_without_a_frame),
		cmocka_unit_test(words_of_a_thread_that_blocks_the_signals),
	};
	if (rpwi_guard_install())
		return 1;
	__sigaction(SIGSEGV, NULL, &guard_segv);
	__sigaction(SIGBUS, NULL, &guard_bus);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
