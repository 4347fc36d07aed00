/* SPDX-License-Identifier: BSD-3-Clause */
/* faults_test.c - two processes: one is killed or stopped while data moves. What the other one
 * sees, and that it sees all of it. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

struct info {
	uint32_t qpn, psn, rkey;
	uint64_t addr;
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct side s;
	struct info peer;
};

static void end_make(struct end *e, int sock, uint8_t timeout, uint8_t retry_cnt)
{
	struct pair p = {.timeout = timeout, .retry_cnt = retry_cnt, .rnr_retry = 7};
	e->ctx = pair_open_loopback();
	e->pd = ibv_alloc_pd(e->ctx);
	p.ctx = e->ctx;
	p.pd = e->pd;
	side_make(&p, &e->s, 1000);
	struct info me = {e->s.qp->qp_num, e->s.psn, e->s.mr->rkey, (uintptr_t)e->s.buf};
	assert_int_equal(write(sock, &me, sizeof(me)), sizeof(me));
	assert_int_equal(recv(sock, &e->peer, sizeof(e->peer), MSG_WAITALL), sizeof(e->peer));
	side_connect_to(&p, &e->s, e->peer.qpn, e->peer.psn);
	char ready = 1;
	assert_int_equal(write(sock, &ready, 1), 1);
	assert_int_equal(read(sock, &ready, 1), 1);
}

/* The passive side: it makes its end, then waits: the service thread answers. */
static pid_t passive(int *sock, uint8_t timeout, uint8_t retry_cnt)
{
	int sv[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	pid_t pid = fork();
	if (!pid) {
		struct end e;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sv[0]);
		end_make(&e, sv[1], timeout, retry_cnt);
		char c;
		if (read(sv[1], &c, 1) < 0)
			_exit(1);
		_exit(0);
	}
	close(sv[1]);
	*sock = sv[0];
	return pid;
}

static void end_free(struct end *e)
{
	side_free(&e->s);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
}

/* Every request ends: the first with RETRY_EXC (or success, for what got through), all after it
 * flushed, in order. */
static void a_killed_peer_ends_every_request(void **state)
{
	struct end e;
	struct ibv_wc wc;
	int sock, done = 0, failed = 0, status;
	pid_t pid = passive(&sock, 14, 2);
	end_make(&e, sock, 14, 2);
	enum { N = 100 };
	int posted = 0;
	for (int i = 0; i < N; i++, posted++)
		assert_int_equal(
			pair_send(&e.s, IBV_WR_RDMA_WRITE, 0, 65536, e.peer.addr, e.peer.rkey), 0);
	assert_true(pair_poll(e.s.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	done++;
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 20; i++) /* at least these were posted after the death */
		if (!pair_send(&e.s, IBV_WR_RDMA_WRITE, 0, 65536, e.peer.addr, e.peer.rkey))
			posted++;
	for (; done < posted; done++) {
		assert_true(pair_poll(e.s.cq, &wc, 10000));
		if (wc.status == IBV_WC_SUCCESS) {
			assert_int_equal(failed, 0);
			continue;
		}
		assert_int_equal(wc.status, failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
		failed++;
	}
	assert_true(failed >= 20);
	assert_false(pair_poll(e.s.cq, &wc, 20));
	end_free(&e);
	close(sock);
}

/* Stopped for less than the retries last: nothing is lost. timeout 14 is 67 ms, 7 retries. */
static void a_stopped_peer_loses_no_connection(void **state)
{
	struct end e;
	struct ibv_wc wc;
	int sock, status;
	pid_t pid = passive(&sock, 14, 7);
	end_make(&e, sock, 14, 7);
	pattern_fill(e.s.buf, 65536, 21);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid); /* it may run on for a moment */
	assert_true(WIFSTOPPED(status));
	assert_int_equal(pair_send(&e.s, IBV_WR_RDMA_WRITE, 0, 65536, e.peer.addr, e.peer.rkey), 0);
	assert_false(pair_poll(e.s.cq, &wc, 400));
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_true(pair_poll(e.s.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	memset(e.s.buf, 0, 65536);
	assert_int_equal(pair_send(&e.s, IBV_WR_RDMA_READ, 0, 65536, e.peer.addr, e.peer.rkey), 0);
	assert_true(pair_poll(e.s.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(pattern_holds(e.s.buf, 65536, 21));
	assert_int_equal(write(sock, "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	end_free(&e);
	close(sock);
}

/* A passive target that never calls verbs is served by its service thread, also after a fork by its
 * program. */
static void a_passive_target_is_served(void **state)
{
	struct end e;
	struct ibv_wc wc;
	int sock, status;
	pid_t pid = passive(&sock, 14, 7);
	end_make(&e, sock, 14, 7);
	for (uint64_t i = 0; i < 50; i++) {
		pattern_fill(e.s.buf, 10000, i);
		assert_int_equal(
			pair_send(&e.s, IBV_WR_RDMA_WRITE, 0, 10000, e.peer.addr + i, e.peer.rkey),
			0);
		assert_true(pair_poll(e.s.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		memset(e.s.buf, 0, 10000);
		assert_int_equal(
			pair_send(&e.s, IBV_WR_RDMA_READ, 0, 10000, e.peer.addr + i, e.peer.rkey),
			0);
		assert_true(pair_poll(e.s.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_true(pattern_holds(e.s.buf, 10000, i));
	}
	assert_int_equal(write(sock, "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	end_free(&e);
	close(sock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_passive_target_is_served),
		cmocka_unit_test(a_killed_peer_ends_every_request),
		cmocka_unit_test(a_stopped_peer_loses_no_connection),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
