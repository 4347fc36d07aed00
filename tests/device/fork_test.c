/* SPDX-License-Identifier: BSD-3-Clause */
/* fork_test.c - a signal handler that forks, in a program that polls and posts all the time.
 * Neither process may hang; the parent's messages stay right; the child either has a device or is
 * told by name why it has none, whether it stays in the handler or returns to what was
 * interrupted. */
#include "pair.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "lib/test.h"

enum { FORKS = 400, BYTES = 3000, CHILD_S = 10, PARENT_S = 60, PERIOD_US = 1500 };

static struct pair p;
static volatile sig_atomic_t forks, failed, refused, in_child, paused;
static pid_t kids[FORKS];

/* Here a failed step is the exit status: what it was. */
static void step(bool ok, int number)
{
	if (!ok)
		_exit(number);
}

/* In the child: opens the device. 1: has one, 0: was refused. */
static int open_or_refused(void)
{
	int n = -1;
	errno = 0;
	struct ibv_context *c = ibv_open_device(p.ctx->device);
	if (c) {
		step(ibv_get_device_list(&n) != NULL && n > 0, 10);
		step(ibv_alloc_pd(c) != NULL, 11);
		return 1;
	}
	step(errno == EIO, 12);
	return 0;
}

/* Every call says EIO, none hangs and none touches what is half changed. */
static void all_refused(void)
{
	struct ibv_wc wc;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_recv_wr recv = {.wr_id = 1}, *bad_recv;
	step(ibv_poll_cq(p.a.cq, 1, &wc) == -EIO, 20);
	step(pair_send(&p.a, IBV_WR_SEND, 0, 8, 0, 0) == EIO, 21);
	step(ibv_post_recv(p.a.qp, &recv, &bad_recv) == EIO, 22);
	step(ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE, &init) == EIO, 23);
	step(!ibv_get_device_list(NULL) && errno == EIO, 24);
	step(!ibv_reg_mr(p.pd, p.a.buf, 8, 0) && errno == EIO, 25);
	step(ibv_destroy_qp(p.a.qp) == EIO, 26);
	step(ibv_req_notify_cq(p.a.cq, 0) == EIO, 27);
	step(ibv_close_device(p.ctx) == -1 && errno == EIO, 28);
}

/* What a child does that is not refused, or after its handler has returned. */
static void child_goes_on(void)
{
	if (open_or_refused())
		_exit(0);
	all_refused();
	_exit(100);
}

/* glibc's fork waits for malloc's lock, for good if the handler interrupted malloc. The loop below
 * does not call it, but the device may, for a child that introduces itself: the more children live,
 * the more of them do. */
static bool may_be_in_malloc(const ucontext_t *u)
{
	struct dl_find_object of_malloc, interrupted;
#if defined(__x86_64__)
	void *at = (void *)u->uc_mcontext.gregs[REG_RIP];
#else
	void *at = (void *)u->uc_mcontext.pc;
#endif
	return !_dl_find_object((void *)(uintptr_t)&malloc, &of_malloc) &&
	       !_dl_find_object(at, &interrupted) &&
	       interrupted.dlfo_link_map == of_malloc.dlfo_link_map;
}

static void on_alarm(int signo, siginfo_t *info, void *context)
{
	int was = errno, n = forks;
	if (in_child || paused || n >= FORKS || may_be_in_malloc(context))
		return;
	pid_t pid = fork();
	if (pid < 0) {
		failed = errno;
	} else if (!pid) {
		in_child = 1;
		signal(SIGALRM, SIG_DFL);
		setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_sec = CHILD_S}}, NULL);
		sigset_t alarm;
		sigemptyset(&alarm);
		sigaddset(&alarm, SIGALRM);
		sigprocmask(SIG_UNBLOCK, &alarm, NULL);
		switch (n % 4) {
		case 0:
			_exit(0);
		case 1:
			if (!open_or_refused()) {
				all_refused();
				_exit(100);
			}
			_exit(0);
		case 2:
			execl("/bin/true", "true", (char *)NULL);
			_exit(30);
		default:
			/* To what was interrupted; the loop below goes on there. Not where that is
			 * no change: the rest of the call would be one that uses the parent's QPs,
			 * which makes them the child's (device/hca.c), and what the child takes
			 * from them until it ends is lost to the parent. */
			if (!ibv_get_device_list(NULL) && errno == EIO)
				return;
			child_goes_on();
		}
	}
	kids[n] = pid;
	forks = n + 1;
	errno = was;
}

static void reap(void)
{
	paused = 1;
	for (int i = 0; i < FORKS; i++) {
		int status = -1;
		if (kids[i] <= 0)
			continue;
		step(waitpid(kids[i], &status, 0) == kids[i], 40);
		kids[i] = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 100) {
			refused++;
		} else if (status) {
			fprintf(stderr, "fork %d (%d): status 0x%x\n", i, i % 4, (unsigned)status);
			failed = 1;
		}
	}
}

static void traffic_with_forks(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip(); /* ThreadSanitizer ends a child that starts a thread */
#endif
	uint64_t seed = 1;
	pair_make(&p, 14, 7, 7);
	struct sigaction sa = {.sa_sigaction = on_alarm, .sa_flags = SA_RESTART | SA_SIGINFO};
	sigemptyset(&sa.sa_mask);
	assert_int_equal(sigaction(SIGALRM, &sa, NULL), 0);
	struct itimerval every = {.it_interval.tv_usec = PERIOD_US, .it_value.tv_usec = PERIOD_US};
	setitimer(ITIMER_REAL, &every, NULL);
	for (; forks < FORKS && !failed; seed++) {
		struct ibv_wc wc;
		int got = 0;
		pattern_fill(p.a.buf, BYTES, seed);
		/* Not pair_recv: a child that was forked inside of it may be refused there. */
		struct ibv_sge sge = {(uintptr_t)p.b.buf, BYTES, p.b.mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = seed, .sg_list = &sge, .num_sge = 1};
		if (ibv_post_recv(p.b.qp, &wr, &bad) && !in_child)
			failed = 6;
		if (in_child)
			child_goes_on();
		if (pair_send(&p.a, IBV_WR_SEND, 0, BYTES, 0, 0) && !in_child)
			failed = 2;
		for (bool a = false, b = false; !(a && b) && !failed;) {
			if (in_child)
				child_goes_on();
			got = ibv_poll_cq(p.a.cq, 1, &wc);
			a |= got > 0;
			if (in_child)
				child_goes_on();
			failed |= got < 0 || (got > 0 && wc.status) ? 3 : 0;
			got = ibv_poll_cq(p.b.cq, 1, &wc);
			b |= got > 0;
			if (in_child)
				child_goes_on();
			failed |= got < 0 || (got > 0 && wc.status) ? 4 : 0;
		}
		if (!failed && !pattern_holds(p.b.buf, BYTES, seed))
			failed = 5;
	}
	setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
	reap();
	printf("# %d forks during %llu messages, %d children were refused\n", (int)forks,
		(unsigned long long)seed, (int)refused);
	assert_int_equal(failed, 0);
	assert_true(refused > 0); /* else no fork met a section, and this test has shown nothing */
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(traffic_with_forks)};
	pid_t pid = fork();
	if (!pid)
		_exit(cmocka_run_group_tests_name("fork", tests, NULL, NULL));
	for (int ms = 0; ms < PARENT_S * 1000; ms += 10) {
		int status;
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status != 0;
		usleep(10000);
	}
	fprintf(stderr, "fork_test: it hangs\n");
	kill(pid, SIGKILL);
	return 1;
}
