/* SPDX-License-Identifier: BSD-3-Clause */
/* scoped_test.c - two processes, each in a sandbox whose abstract Unix sockets are its own
 * (Landlock, Linux 6.12): whatever comes of their packets, the log says what is in the way. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

/* Of linux/landlock.h, which this distribution's headers do not have yet. */
enum { CREATE_RULESET = 444, RESTRICT_SELF = 446, ABI_WITH_SCOPES = 6, SCOPE_ABSTRACT = 1 };

/* False: this kernel has none. */
static bool in_a_sandbox_of_its_own(void)
{
	struct {
		uint64_t fs, net, scoped;
	} rules = {.scoped = SCOPE_ABSTRACT};
	if (syscall(CREATE_RULESET, NULL, 0, 1) < ABI_WITH_SCOPES)
		return false;
	int fd = (int)syscall(CREATE_RULESET, &rules, sizeof(rules), 0);
	return fd >= 0 && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(RESTRICT_SELF, fd, 0);
}

static void side(int sock, int log)
{
	struct pair p = {.timeout = 10, .retry_cnt = 1, .rnr_retry = 7};
	struct side s;
	struct info me, peer;
	struct end e = {.sock = sock};
	struct ibv_wc wc;
	dup2(log, STDERR_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!in_a_sandbox_of_its_own())
		_exit(77);
	p.ctx = pair_open_loopback();
	p.pd = ibv_alloc_pd(p.ctx);
	side_make(&p, &s, 1000);
	me = (struct info){s.qp->qp_num, s.psn, s.mr->rkey, (uintptr_t)s.buf};
	say(&e, &me, sizeof(me));
	hear(&e, &peer, sizeof(peer));
	side_connect_to(&p, &s, peer.qpn, peer.psn);
	say(&e, "r", 1);
	char ready;
	hear(&e, &ready, 1);
	/* done, or not: that is the kernel's choice of a socket */
	pair_send(&s, IBV_WR_RDMA_WRITE, 0, 64, peer.addr, peer.rkey);
	pair_poll(s.cq, &wc, 5000);
	say(&e, "e", 1);
	hear(&e, &ready, 1);
	_exit(0);
}

static void the_log_says_that_a_sandbox_is_in_the_way(void **state)
{
	int sv[2], log = memfd_create("log", 0), status, skipped = 0;
	static char text[1 << 16];
	pid_t pid[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			close(sv[!i]);
			side(sv[i], log);
		}
	}
	close(sv[0]);
	close(sv[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		skipped += WIFEXITED(status) && WEXITSTATUS(status) == 77;
	}
	if (skipped) {
		print_message(
			"SKIPPED: this kernel does not scope abstract sockets (Linux 6.12)\n");
		skip();
	}
	ssize_t n = pread(log, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	const char *at = strstr(text, "LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET");
	if (!at)
		fail_msg("the log has no word of the sandbox: %s", text);
	/* once in each of the two */
	at = strstr(at + 1, "LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET");
	assert_true(!at || !strstr(at + 1, "LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_log_says_that_a_sandbox_is_in_the_way),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
