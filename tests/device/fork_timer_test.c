/* SPDX-License-Identifier: BSD-3-Clause */
/* fork_timer_test.c - a program whose timer's handler forks, under load, with a period that is
 * shorter than what fork would wait for a lock (base/lock.c): it gets on, whatever instruction the
 * handler interrupts. fork_test.c has what the children may do. */
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum { BYTES = 64, FORKS = 600, LIMIT_S = 90 };

static volatile sig_atomic_t forks;
static struct pair p;

static void on_alarm(int signo)
{
	int status;
	pid_t pid = fork();
	if (!pid)
		_exit(0);
	if (pid > 0)
		waitpid(pid, &status, 0);
	forks++;
}

static void too_long(int signo)
{
	static const char text[] =
		"no message went through for long: the timer's forks take all of it\n";
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

/* Who looks whether it gets on: the program itself may not come to it. */
static void watched_by_a_parent(int period_us)
{
	volatile uint64_t sent = 0;
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval every = {.it_interval.tv_usec = period_us, .it_value.tv_usec = period_us};
	struct ibv_wc wc;
	pair_make(&p, 18, 7, 7);
	forks = 0;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	while (forks < FORKS) {
		assert_int_equal(pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, BYTES, (uintptr_t)p.b.buf,
					 p.b.mr->rkey),
			0);
		int n;
		while (!(n = ibv_poll_cq(p.a.cq, 1, &wc)))
			;
		assert_int_equal(n, 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		sent++;
	}
	setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
	/* at least as many as forks: else some handlers followed each other for ever */
	print_message("%d forks every %d us, %llu messages\n", FORKS, period_us,
		(unsigned long long)sent);
	assert_true(sent > FORKS / 10);
	pair_free(&p);
}

static void with_a_period(int period_us)
{
	int status, rest;
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		/* a signal that no alarm of the test's own takes the place of */
		signal(SIGTERM, too_long);
		watched_by_a_parent(period_us);
		exit(0);
	}
	for (rest = LIMIT_S * 100; rest && waitpid(pid, &status, WNOHANG) != pid; rest--)
		usleep(10000);
	if (!rest) {
		kill(pid, SIGTERM);
		waitpid(pid, &status, 0);
	}
	assert_int_equal(status, 0);
}

static void a_timer_of_10_ms_that_forks(void **state) { with_a_period(10000); }
static void a_timer_of_1_ms_that_forks(void **state) { with_a_period(1000); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_timer_of_10_ms_that_forks),
		cmocka_unit_test(a_timer_of_1_ms_that_forks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
