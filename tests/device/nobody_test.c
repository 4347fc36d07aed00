/* SPDX-License-Identifier: BSD-3-Clause */
/* nobody_test.c - how long a request to a QP that does not take it lasts, on one host. Where the QP
 * is none, or in ERR, the least that IB allows, (retry_cnt + 1) T; where it may become ready or its
 * process may go on, nearly four times that (IB 9.7.6.1.3), and it is served until then.
 *
 * nobody_test [ROUNDS]: all of it; or a process that is stopped, so many times (patience.py). */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

enum { TIMEOUT = 13, RETRY = 3, LEN = 64 }; /* 33.5 ms: 134 at least, 470 as a rule */
static const double LEAST = 4.096e-6 * (1 << TIMEOUT) * (RETRY + 1);

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state, .port_num = 1, .qp_access_flags = 15};
	int mask = IBV_QP_STATE;
	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	assert_int_equal(ibv_modify_qp(qp, &a, mask), 0);
}

/* A WRITE of side s to such a QP: seconds until it has failed for want of an answer. */
static double fails_after(struct side *s, struct side *peer)
{
	struct ibv_wc wc;
	double start = now();
	assert_int_equal(
		pair_send(s, IBV_WR_RDMA_WRITE, 0, LEN, (uintptr_t)peer->buf, peer->mr->rkey), 0);
	assert_true(pair_poll(s->cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	return now() - start;
}

static void begin_pair(struct pair *p)
{
	pair_make(p, TIMEOUT, RETRY, 7);
	pattern_fill(p->a.buf, LEN, 1);
	assert_int_equal(pair_write_to(p, 1, LEN, (uintptr_t)p->b.buf, p->b.mr->rkey), 0);
	assert_true(pattern_holds(p->b.buf, LEN, 1));
}

/* On a loaded machine it may be later. */
static void soon(double s)
{
	assert_true(s >= LEAST * 0.999);
	assert_true(s < 2.5 * LEAST);
}

static void a_qp_that_is_in_err_is_not_waited_for(void **state)
{
	struct pair p;
	begin_pair(&p);
	to(p.b.qp, IBV_QPS_ERR);
	soon(fails_after(&p.a, &p.b));
	pair_free(&p);
}

static void a_qp_that_is_no_more_is_not_waited_for(void **state)
{
	struct pair p;
	begin_pair(&p);
	struct ibv_qp_init_attr qa = {.send_cq = p.b.cq,
		.recv_cq = p.b.cq,
		.cap = {1, 1, 1, 1, 0},
		.qp_type = IBV_QPT_RC};
	assert_int_equal(ibv_destroy_qp(p.b.qp), 0);
	soon(fails_after(&p.a, &p.b));
	p.b.qp = ibv_create_qp(p.pd, &qa);
	pair_free(&p);
}

/* It may be ready in time. */
static void a_qp_that_is_not_ready_yet_is(void **state)
{
	for (int init = 0; init < 2; init++) {
		struct pair p;
		begin_pair(&p);
		to(p.b.qp, IBV_QPS_RESET);
		if (init)
			to(p.b.qp, IBV_QPS_INIT);
		assert_true(fails_after(&p.a, &p.b) >= 3.4 * LEAST);
		pair_free(&p);
	}
}

/* Side b, which was reset, is connected to it again, and takes the packets that were not
 * answered. */
static void a_qp_that_becomes_ready_gets_it(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	begin_pair(&p);
	to(p.b.qp, IBV_QPS_RESET);
	pattern_fill(p.a.buf, LEN, 2);
	p.b.psn = p.a.psn;
	assert_int_equal(
		pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, LEN, (uintptr_t)p.b.buf, p.b.mr->rkey), 0);
	usleep((useconds_t)(2.2 * LEAST * 1e6));
	assert_false(pair_poll(p.a.cq, &wc, 0));
	to(p.b.qp, IBV_QPS_INIT);
	/* the first WRITE took one PSN */
	side_connect_to(&p, &p.b, p.a.qp->qp_num, p.a.psn + 1);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(pattern_holds(p.b.buf, LEN, 2));
	pair_free(&p);
}

/* ---- two processes: the attributes of peers.c, 67 ms and 7 retries ---- */

static const double LEAST14 = 4.096e-6 * (1 << 14) * 8;

/* The peer's process does what it is told with its QP. */
static void peer_does(int sock)
{
	struct end e;
	char what;
	end_make(&e, sock);
	while (read(sock, &what, 1) == 1) {
		if (what == 'e')
			to(e.s.qp, IBV_QPS_ERR);
		else if (what == 'd')
			assert_int_equal(ibv_destroy_qp(e.s.qp), 0);
		else if (what == 'r')
			pair_recv(&e.s, 0, LEN, 0);
		else if (what == 'h')
			what = pattern_holds(e.s.buf, LEN, 3) ? 'y' : 'n';
		say(&e, &what, 1);
	}
	_exit(0);
}

static char tell(const struct end *e, char what)
{
	say(e, &what, 1);
	hear(e, &what, 1);
	return what;
}

static pid_t two(struct end *e)
{
	int sock;
	pid_t pid = peer_fork(&sock);
	if (!pid)
		peer_does(sock);
	end_make(e, sock);
	/* by UDP at first, then over a lane */
	for (int i = 0; i < 20; i++) {
		struct ibv_wc wc;
		pattern_fill(e->s.buf, LEN, 2);
		assert_int_equal(
			pair_send(&e->s, IBV_WR_RDMA_WRITE, 0, LEN, e->peer.addr, e->peer.rkey), 0);
		assert_true(pair_poll(e->s.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		usleep(1000);
	}
	return pid;
}

static void end_two(struct end *e, pid_t pid)
{
	int status;
	end_free(e);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void another_process_says_what_its_qps_are(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct end e;
		struct ibv_wc wc;
		pid_t pid = two(&e);
		assert_int_equal(tell(&e, "ed"[i]), "ed"[i]);
		double start = now();
		assert_int_equal(pair_send(&e.s, IBV_WR_SEND, 0, LEN, 0, 0), 0);
		assert_true(pair_poll(e.s.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		assert_true(now() - start >= LEAST14 * 0.999);
		assert_true(now() - start < 2.5 * LEAST14);
		end_two(&e, pid);
	}
}

/* A SEND to a process that is stopped for one and a half times the least, and then goes on. */
static void a_process_that_is_stopped_for_a_while_is_waited_for(void **state)
{
	struct end e;
	struct ibv_wc wc;
	pid_t pid = two(&e);
	pattern_fill(e.s.buf, LEN, 3);
	assert_int_equal(tell(&e, 'r'), 'r');
	stop(pid);
	assert_int_equal(pair_send(&e.s, IBV_WR_SEND, 0, LEN, 0, 0), 0);
	bool early = pair_poll(e.s.cq, &wc, (int)(1500 * LEAST14));
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_false(early);
	assert_true(pair_poll(e.s.cq, &wc, 10000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(tell(&e, 'h'), 'y');
	end_two(&e, pid);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_qp_that_is_in_err_is_not_waited_for),
		cmocka_unit_test(a_qp_that_is_no_more_is_not_waited_for),
		cmocka_unit_test(a_qp_that_is_not_ready_yet_is),
		cmocka_unit_test(a_qp_that_becomes_ready_gets_it),
		cmocka_unit_test(another_process_says_what_its_qps_are),
		cmocka_unit_test(a_process_that_is_stopped_for_a_while_is_waited_for),
	};
	const struct CMUnitTest stopped[] = {
		cmocka_unit_test(a_process_that_is_stopped_for_a_while_is_waited_for),
	};
	int rc = 0;
	if (argc == 1)
		return cmocka_run_group_tests(tests, NULL, NULL);
	for (int i = atoi(argv[1]); i > 0 && !rc; i--)
		rc = cmocka_run_group_tests(stopped, NULL, NULL);
	return rc;
}
