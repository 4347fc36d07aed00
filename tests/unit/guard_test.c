/* Guarded copies: holes, protected pages, truncated files, and a program that has fault handlers of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/guard.h"

enum { PAGE = 4096 };

/* cmocka sets handlers of its own around each test; each test puts the guard's back first. */
extern int __sigaction(int signo, const struct sigaction *act, struct sigaction *old); /* past TSan's, as guard.c goes */
static struct sigaction guard_segv, guard_bus;
static void arm(void)
{
	__sigaction(SIGSEGV, &guard_segv, NULL);
	__sigaction(SIGBUS, &guard_bus, NULL);
}

static uint8_t *pages(size_t n)
{
	uint8_t *p = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
	mprotect(info->si_addr, PAGE, PROT_READ | PROT_WRITE); /* as a garbage collector or a user-space pager does */
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
	assert_int_equal(rpwi_guard_copy(b, ours, 8), -EFAULT); /* inside a guarded copy: not the program's */
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
		cmocka_unit_test(threads_fault_apart),
		cmocka_unit_test(installing_again_changes_nothing),
	};
	if (rpwi_guard_install())
		return 1;
	__sigaction(SIGSEGV, NULL, &guard_segv);
	__sigaction(SIGBUS, NULL, &guard_bus);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
