/* SPDX-License-Identifier: BSD-3-Clause */
/* closed_test.c - what is said of a peer that is gone: its process may have ended, or live on
 * without a device. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

static int log_fd, stderr_fd;

/* All that is written to standard error from now on. */
static void log_begin(void)
{
	log_fd = memfd_create("log", MFD_CLOEXEC);
	stderr_fd = dup(2);
	assert_true(log_fd >= 0 && stderr_fd >= 0 && dup2(log_fd, 2) == 2);
}

static void log_end(char *text, size_t room)
{
	assert_int_equal(dup2(stderr_fd, 2), 2);
	ssize_t n = pread(log_fd, text, room - 1, 0);
	assert_true(n >= 0);
	text[n] = 0;
	close(log_fd);
	close(stderr_fd);
}

/* As end_make, with a time-out that is longer than it takes to miss the peer. */
static void patient(struct end *e, int sock)
{
	char c = 0;
	*e = (struct end){.sock = sock, .p = {.timeout = 20, .retry_cnt = 7, .rnr_retry = 7}};
	e->p.ctx = pair_open_loopback();
	e->p.pd = ibv_alloc_pd(e->p.ctx);
	side_make(&e->p, &e->s, 1000);
	struct info me = {.qpn = e->s.qp->qp_num, .psn = e->s.psn};
	say(e, &me, sizeof(me));
	hear(e, &e->peer, sizeof(e->peer));
	side_connect_to(&e->p, &e->s, e->peer.qpn, e->peer.psn);
	say(e, &c, 1);
	hear(e, &c, 1);
}

static void peer(int sock)
{
	struct end e;
	char c;
	patient(&e, sock);
	int kept = dup(sock);
	usleep(1500000); /* once a second it is looked after, and only then missed */
	end_free(&e);
	assert_int_equal(write(kept, "c", 1), 1);
	_exit(read(kept, &c, 1) == 1 ? 0 : 1);
}

/* ibv_close_device at the other end: its process does not end before this one has its
 * completion. */
static void test_a_device_that_is_closed_is_not_a_process_that_has_ended(void **state)
{
	(void)state;
	struct end e;
	struct ibv_wc wc;
	char text[8192], c;
	int sock, status;
	pid_t pid = peer_fork(&sock);
	if (!pid)
		peer(sock);
	log_begin();
	patient(&e, sock);
	/* there is no receive for it: it waits */
	assert_int_equal(pair_send(&e.s, IBV_WR_SEND, 0, 64, 0, 0), 0);
	hear(&e, &c, 1);
	assert_true(pair_poll(e.s.cq, &wc, 20000));
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	log_end(text, sizeof(text));
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	say(&e, &c, 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	end_free(&e);
	if (!strstr(text, "has ended or has closed its device"))
		fail_msg("expected a line that says both, got: %s", text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_device_that_is_closed_is_not_a_process_that_has_ended),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
