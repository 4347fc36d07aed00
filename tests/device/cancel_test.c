/* SPDX-License-Identifier: BSD-3-Clause */
/* cancel_test.c - a thread that is canceled (pthread_cancel) in a call of the device: the call is
 * finished, and the device serves the other threads. With an argument, `udp` or `auto`: by which
 * wire.
 *
 * The cancellation waits already when the call begins, so it acts at the first cancellation point
 * that the call leaves open: nothing here depends on when a thread runs. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum { SERVED_WITHIN_S = 20, LEN = 4096, ROUNDS = 40, EVENT_WAIT_MS = 30 };

static struct pair p;
static struct side other; /* a QP that no test minds */

/* What is held for ever keeps the test from its end: that is said by its name, not by meson's time
 * limit. */
static const char *now_in = "";
static void too_long(int sig)
{
	static const char text[] = "\na thread was canceled, and the device served nobody after: ";
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	(void)!write(STDERR_FILENO, now_in, strlen(now_in));
	(void)!write(STDERR_FILENO, "\n", 1);
	_exit(1);
}

static void still_served(void)
{
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			pair_write_to(&p, 7, 64, (uintptr_t)p.b.buf, p.b.mr->rkey), IBV_WC_SUCCESS);
}

struct job {
	const char *name;
	void (*call)(void);
	bool waits; /* for what does not come: it is canceled */
};
static bool finished;

static void *canceled_in(void *arg)
{
	const struct job *j = arg;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	j->call();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	finished = true;
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	pthread_testcancel();
	return NULL;
}

/* ---- the calls ---- */

static void call_post_send(void)
{
	pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, LEN, (uintptr_t)p.b.buf, p.b.mr->rkey);
}
static void call_post_read(void)
{
	pair_send(&p.a, IBV_WR_RDMA_READ, 0, 64, (uintptr_t)p.b.buf, p.b.mr->rkey);
}
static void call_poll(void)
{
	struct ibv_wc wc;
	for (int i = 0; i < 200; i++)
		ibv_poll_cq(p.a.cq, 1, &wc);
}
static void call_post_recv(void) { pair_recv(&p.b, 0, 64, 1); }
static void call_req_notify(void) { ibv_req_notify_cq(other.cq, 0); }

static void call_objects(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(p.ctx);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(p.ctx);
	struct ibv_cq *cq = ibv_create_cq(p.ctx, 16, NULL, ch, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, p.a.buf, LEN, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);
	struct ibv_qp_init_attr qa = {.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &qa);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 17};
	assert_int_equal(
		ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		0);
	a.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	struct ibv_ah_attr av = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};
	assert_int_equal(ibv_query_gid(p.ctx, 1, 1, &av.grh.dgid), 0);
	struct ibv_ah *ah = ibv_create_ah(pd, &av);
	assert_non_null(ah);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void call_modify(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	assert_int_equal(ibv_modify_qp(other.qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(other.qp, &a, IBV_QP_STATE), 0);
}

static void call_device(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_device_attr da;
	struct ibv_port_attr pa;
	assert_non_null(c);
	assert_int_equal(ibv_query_device(c, &da), 0);
	assert_int_equal(ibv_query_port(c, 1, &pa), 0);
	assert_int_equal(ibv_close_device(c), 0);
	ibv_free_device_list(list);
}

static void call_cq_event(void)
{
	struct ibv_cq *cq;
	void *ctx;
	ibv_get_cq_event(p.channel, &cq, &ctx);
}
static void call_async_event(void)
{
	struct ibv_async_event e;
	ibv_get_async_event(p.ctx, &e);
}

static const struct job jobs[] = {
	{"ibv_post_send, WRITE", call_post_send, false},
	{"ibv_post_send, READ", call_post_read, false},
	{"ibv_poll_cq", call_poll, false},
	{"ibv_post_recv", call_post_recv, false},
	{"ibv_req_notify_cq", call_req_notify, false},
	{"objects made and destroyed", call_objects, false},
	{"ibv_modify_qp", call_modify, false},
	{"ibv_open_device", call_device, false},
	{"ibv_get_cq_event", call_cq_event, true},
	{"ibv_get_async_event", call_async_event, true},
};

static void empty(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (pair_poll(cq, &wc, 200))
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void a_call_is_finished_and_the_device_serves_on(void **state)
{
	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		IN_CASE("row", i);
		pthread_t t;
		now_in = jobs[i].name;
		alarm(SERVED_WITHIN_S);
		finished = false;
		assert_int_equal(
			pthread_create(&t, NULL, canceled_in, (void *)(uintptr_t)&jobs[i]), 0);
		assert_int_equal(pthread_join(t, NULL), 0);
		print_message("%s: %s\n", now_in, finished ? "finished" : "canceled");
		if (finished == jobs[i].waits)
			fail_msg("%s was %s", now_in, finished ? "finished" : "canceled");
		empty(p.a.cq);
		still_served();
	}
	alarm(0);
}

/* ---- a thread in the middle of what it waits for, at any time ---- */

static void *waits(void *arg)
{
	struct ibv_cq *cq;
	void *ctx;
	struct ibv_wc wc;
	for (;;) {
		ibv_req_notify_cq(p.b.cq, 0);
		if (!ibv_get_cq_event(p.channel, &cq, &ctx))
			ibv_ack_cq_events(cq, 1);
		while (ibv_poll_cq(p.b.cq, 1, &wc) > 0)
			;
	}
	return NULL;
}
static void *polls(void *arg)
{
	struct ibv_wc wc;
	for (;;) {
		ibv_poll_cq(p.b.cq, 1, &wc);
		pthread_testcancel();
	}
	return NULL;
}

static void canceled_at_any_time(void *(*run)(void *))
{
	for (int i = 0; i < ROUNDS; i++) {
		IN_CASE("round", i);
		pthread_t t;
		alarm(SERVED_WITHIN_S);
		assert_int_equal(pthread_create(&t, NULL, run, NULL), 0);
		for (int k = 0; k < 5 + i; k++)
			still_served();
		usleep((unsigned)(i * 37));
		assert_int_equal(pthread_cancel(t), 0);
		assert_int_equal(pthread_join(t, NULL), 0);
		still_served();
	}
	alarm(0);
}

static void a_thread_that_waits_for_events_ends(void **state)
{
	now_in = "ibv_get_cq_event, at any time";
	canceled_at_any_time(waits);
}
static void a_thread_that_polls_ends(void **state)
{
	now_in = "ibv_poll_cq, at any time";
	canceled_at_any_time(polls);
}

/* Who waited is not counted as one that makes progress any more: the service thread does. */
static void afterwards_requests_are_served_without_a_poll(void **state)
{
	struct ibv_wc wc;
	now_in = "the service thread";
	alarm(SERVED_WITHIN_S);
	usleep(EVENT_WAIT_MS * 1000);
	p.a.buf[0] = 42;
	assert_int_equal(
		pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, 1, (uintptr_t)p.b.buf + 9, p.b.mr->rkey), 0);
	for (int i = 0; i < 1000 && *(volatile uint8_t *)&p.b.buf[9] != 42; i++)
		usleep(1000);
	assert_int_equal(p.b.buf[9], 42);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	alarm(0);
}

static int make(void **state)
{
	p = (struct pair){.timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	p.ctx = pair_open_loopback();
	p.pd = ibv_alloc_pd(p.ctx);
	p.channel = ibv_create_comp_channel(p.ctx);
	side_make(&p, &p.a, 100);
	side_make(&p, &p.b, 200);
	side_make(&p, &other, 300);
	side_connect_to(&p, &p.a, p.b.qp->qp_num, p.b.psn);
	side_connect_to(&p, &p.b, p.a.qp->qp_num, p.a.psn);
	side_connect_to(&p, &other, p.a.qp->qp_num, p.a.psn);
	signal(SIGALRM, too_long);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_is_finished_and_the_device_serves_on),
		cmocka_unit_test(a_thread_that_waits_for_events_ends),
		cmocka_unit_test(a_thread_that_polls_ends),
		cmocka_unit_test(afterwards_requests_are_served_without_a_poll),
	};
	if (argc > 1)
		setenv("ROPEWAY_WIRE", argv[1], 1);
	return cmocka_run_group_tests(tests, make, NULL);
}
