/* SPDX-License-Identifier: BSD-3-Clause */
/* threads_test.c - several threads of one program, and programs that fork: nothing is lost, nothing
 * is torn, nothing stays behind.
 *
 * Under ThreadSanitizer (script/test --stage tsan) this is also what looks for races in the
 * device.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "lib/descriptors.h"
#include "pair.h"

enum { THREADS = 4, MSG = 3000, MSGS = 150, WAIT_MS = 60000 };

/* ThreadSanitizer cannot follow a child of fork that starts threads: it ends it ("dup thread with
 * used id"). */
#ifdef __SANITIZE_THREAD__
#define SKIP_UNDER_TSAN() skip()
#else
#define SKIP_UNDER_TSAN() (void)0
#endif

static void *must(bool ok) { return ok ? NULL : (void *)1; }

/* ---- each its own pair ---- */

struct writer {
	pthread_t thread;
	struct pair *p;
	struct side *from, *to;
	uint64_t seed;
};

static void *write_and_check(void *arg)
{
	struct writer *w = arg;
	struct ibv_wc wc;
	uint8_t want[MSG];
	for (uint64_t i = 0; i < MSGS; i++) {
		uint64_t at = i % 16 * 4096;
		pattern_fill(w->from->buf + at, MSG, w->seed + i);
		memcpy(want, w->from->buf + at, MSG);
		if (pair_send(w->from, IBV_WR_RDMA_WRITE, at, MSG, (uintptr_t)w->to->buf + at,
			    w->to->mr->rkey))
			return must(false);
		if (!pair_poll(w->from->cq, &wc, WAIT_MS) || wc.status)
			return must(false);
		/* Read back into another place: an atomic or a READ orders, memory alone does
		 * not. */
		if (pair_send(w->from, IBV_WR_RDMA_READ, PAIR_BUF / 2 + at, MSG,
			    (uintptr_t)w->to->buf + at, w->to->mr->rkey))
			return must(false);
		if (!pair_poll(w->from->cq, &wc, WAIT_MS) || wc.status)
			return must(false);
		if (memcmp(w->from->buf + PAIR_BUF / 2 + at, want, MSG))
			return must(false);
	}
	return NULL;
}

static void threads_with_a_pair_each(void **state)
{
	struct pair p[THREADS];
	struct writer w[THREADS];
	for (int i = 0; i < THREADS; i++) {
		pair_make(&p[i], 14, 7, 7);
		w[i] = (struct writer){
			.p = &p[i], .from = &p[i].a, .to = &p[i].b, .seed = (uint64_t)i << 32};
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&w[i].thread, NULL, write_and_check, &w[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		void *bad;
		assert_int_equal(pthread_join(w[i].thread, &bad), 0);
		assert_null(bad);
	}
	for (int i = 0; i < THREADS; i++)
		pair_free(&p[i]);
}

/* ---- one CQ and one QP for all ---- */

struct shared {
	struct pair p;
	_Atomic unsigned posted, sent, received, bad;
	_Atomic uint64_t sum;
	_Atomic bool stop;
};
enum { SHARED_MSGS = 2000 };

static void take(struct shared *s, struct ibv_cq *cq)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(cq, 4, wc);
	for (int i = 0; i < n; i++) {
		if (wc[i].status)
			s->bad++;
		if (wc[i].opcode & IBV_WC_RECV) {
			s->sum += wc[i].imm_data;
			pair_recv(&s->p.b, wc[i].wr_id, 64, wc[i].wr_id);
			s->received++;
		} else {
			s->sent++;
		}
	}
	if (n < 0)
		s->bad++;
}

static void *poll_both(void *arg)
{
	struct shared *s = arg;
	while (!s->stop) {
		take(s, s->p.a.cq);
		take(s, s->p.b.cq);
	}
	return NULL;
}

/* Posts with a number each; a full queue is tried again. */
static void *post_numbers(void *arg)
{
	struct shared *s = arg;
	for (unsigned i; (i = s->posted++) < SHARED_MSGS;) {
		struct ibv_sge sge = {
			.addr = (uintptr_t)s->p.a.buf, .length = 64, .lkey = s->p.a.mr->lkey};
		struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND_WITH_IMM,
						 .sg_list = &sge,
						 .num_sge = 1,
						 .imm_data = i + 1};
		while (ibv_post_send(s->p.a.qp, &wr, &bad) && !s->stop)
			usleep(100);
	}
	return NULL;
}

static void threads_share_a_qp_and_its_cq(void **state)
{
	static struct shared s;
	pthread_t t[4];
	memset(&s, 0, sizeof(s));
	pair_make(&s.p, 14, 7, 7);
	for (uint64_t i = 0; i < 100; i++)
		pair_recv(&s.p.b, i * 64, 64, i * 64);
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			pthread_create(&t[i], NULL, i < 2 ? poll_both : post_numbers, &s), 0);
	for (int i = 0; i < WAIT_MS && (s.received < SHARED_MSGS || s.sent < SHARED_MSGS) && !s.bad;
		i++)
		usleep(1000);
	s.stop = true;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(s.bad, 0);
	assert_int_equal(s.sent, SHARED_MSGS);
	assert_int_equal(s.received, SHARED_MSGS);
	/* each number once */
	assert_int_equal(s.sum, (uint64_t)SHARED_MSGS * (SHARED_MSGS + 1) / 2);
	pair_free(&s.p);
}

/* ---- one posts and polls, another makes the CQ larger and smaller ---- */

struct resizer {
	struct ibv_cq *cq;
	_Atomic bool stop;
	_Atomic unsigned times;
	_Atomic bool failed;
};

static void *resize_on(void *arg)
{
	struct resizer *r = arg;
	for (; !r->stop; r->times++)
		if (ibv_resize_cq(r->cq, 64 << r->times % 3)) {
			r->failed = true;
			return must(false);
		}
	return NULL;
}

static void a_cq_that_fills_changes_its_size(void **state)
{
	enum { WRITES = 20000, UNDER_WAY = 32, TIMES = 11 };
	struct pair p;
	pthread_t t;
	struct ibv_wc wc[8];
	unsigned posted = 0, done = 0;
	pair_make(&p, 14, 7, 7);
	struct resizer r = {.cq = p.a.cq};
	assert_int_equal(pthread_create(&t, NULL, resize_on, &r), 0);
	/* and until the other thread has had its turn, which it may have to wait for */
	while (done < WRITES || (r.times < TIMES && !r.failed) || posted != done) {
		while ((posted < WRITES || (r.times < TIMES && !r.failed)) &&
			posted - done < UNDER_WAY) {
			struct ibv_sge sge = {
				.addr = (uintptr_t)p.a.buf, .length = 8, .lkey = p.a.mr->lkey};
			struct ibv_send_wr *bad,
				wr = {.wr_id = posted,
					.opcode = IBV_WR_RDMA_WRITE,
					.sg_list = &sge,
					.num_sge = 1,
					.send_flags = IBV_SEND_SIGNALED,
					.wr.rdma = {.remote_addr = (uintptr_t)p.b.buf,
						.rkey = p.b.mr->rkey}};
			assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
			posted++;
		}
		int n = ibv_poll_cq(p.a.cq, 8, wc);
		assert_true(n >= 0);
		for (int i = 0; i < n; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			assert_int_equal(wc[i].wr_id, done++);
		}
	}
	r.stop = true;
	void *bad;
	assert_int_equal(pthread_join(t, &bad), 0);
	assert_null(bad);
	pair_free(&p);
}

/* ---- one waits for events, another posts, a third makes and destroys ---- */

struct waiter {
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int expected, got, bad;
};

static void *wait_for_events(void *arg)
{
	struct waiter *w = arg;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *ctx;
	while (w->got < w->expected) {
		if (ibv_get_cq_event(w->channel, &cq, &ctx) || cq != w->cq || ctx != w) {
			w->bad++;
			break;
		}
		ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(cq, 0))
			w->bad++;
		for (int n; (n = ibv_poll_cq(cq, 1, &wc)) > 0; w->got++)
			w->bad += wc.status != IBV_WC_SUCCESS;
	}
	return NULL;
}

static void *churn(void *arg)
{
	_Atomic bool *stop = arg;
	uint64_t seed = 77;
	for (int i = 0; !*stop && i < 500; i++) {
		struct pair p;
		struct ibv_wc wc;
		pair_make(&p, 14, 7, 7);
		pattern_fill(p.a.buf, 100, ++seed);
		if (pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, 100, (uintptr_t)p.b.buf, p.b.mr->rkey) ||
			!pair_poll(p.a.cq, &wc, WAIT_MS) || wc.status)
			return must(false);
		/* Destroyed with work under way. */
		for (int k = 0; k < 20; k++)
			if (pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, 100, (uintptr_t)p.b.buf,
				    p.b.mr->rkey))
				return must(false);
		pair_free(&p);
		int n;
		ibv_free_device_list(ibv_get_device_list(&n));
	}
	return NULL;
}

static void one_waits_while_others_post_and_destroy(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	struct waiter w = {.expected = 300};
	pthread_t waits, churns;
	_Atomic bool stop = false;
	void *bad;
	pair_make(&p, 14, 7, 7);
	/* A pair whose receiving CQ has a channel: side b anew. */
	side_free(&p.b);
	p.b = (struct side){0};
	w.channel = ibv_create_comp_channel(p.ctx);
	assert_non_null(w.channel);
	side_make(&p, &p.b, 5);
	struct ibv_cq *plain = p.b.cq;
	assert_int_equal(ibv_destroy_qp(p.b.qp), 0);
	assert_int_equal(ibv_destroy_cq(plain), 0);
	p.b.cq = w.cq = ibv_create_cq(p.ctx, 512, &w, w.channel, 0);
	struct ibv_qp_init_attr init = {.send_cq = w.cq,
		.recv_cq = w.cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 512,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	p.b.qp = ibv_create_qp(p.pd, &init);
	assert_non_null(p.b.qp);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	assert_int_equal(
		ibv_modify_qp(p.b.qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	side_connect_to(&p, &p.b, p.a.qp->qp_num, p.a.psn);
	a.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_INIT;
	assert_int_equal(
		ibv_modify_qp(p.a.qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	side_connect_to(&p, &p.a, p.b.qp->qp_num, p.b.psn);
	for (int i = 0; i < w.expected; i++)
		pair_recv(&p.b, 0, 64, (uint64_t)i);
	assert_int_equal(ibv_req_notify_cq(w.cq, 0), 0);

	assert_int_equal(pthread_create(&waits, NULL, wait_for_events, &w), 0);
	assert_int_equal(pthread_create(&churns, NULL, churn, &stop), 0);
	for (int i = 0; i < w.expected; i++) {
		assert_int_equal(pair_send(&p.a, IBV_WR_SEND, 0, 64, 0, 0), 0);
		assert_true(pair_poll(p.a.cq, &wc, WAIT_MS));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_int_equal(pthread_join(waits, NULL), 0);
	stop = true;
	assert_int_equal(pthread_join(churns, &bad), 0);
	assert_null(bad);
	assert_int_equal(w.bad, 0);
	assert_int_equal(w.got, w.expected);
	side_free(&p.a);
	side_free(&p.b);
	assert_int_equal(ibv_destroy_comp_channel(w.channel), 0);
	assert_int_equal(ibv_dealloc_pd(p.pd), 0);
	assert_int_equal(ibv_close_device(p.ctx), 0);
}

/* ---- fork ---- */

static bool exchange(struct pair *p, uint64_t seed)
{
	struct ibv_wc wc;
	pattern_fill(p->a.buf, 50000, seed);
	if (pair_send(&p->a, IBV_WR_RDMA_WRITE, 0, 50000, (uintptr_t)p->b.buf, p->b.mr->rkey) ||
		!pair_poll(p->a.cq, &wc, WAIT_MS) || wc.status)
		return false;
	return pattern_holds(p->b.buf, 50000, seed);
}

/* As a daemon does: the parent connects, the child goes on, the parent ends. */
static void the_child_goes_on(void **state)
{
	int status;
	SKIP_UNDER_TSAN();
	pid_t parent = fork();
	if (!parent) {
		struct pair p;
		int tells[2];
		char ok = 'n';
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pair_make(&p, 14, 7, 7);
		if (!exchange(&p, 1) || pipe(tells))
			_exit(2);
		pid_t child = fork();
		if (!child) {
			usleep(100000); /* the parent of this one is gone by now */
			for (uint64_t i = 2; i < 20; i++)
				if (!exchange(&p, i))
					_exit(1);
			pair_free(&p);
			if (write(tells[1], "y", 1) != 1)
				_exit(1);
			_exit(0);
		}
		/* Its own end must not be what the test waits for: a grandchild reads. */
		if (fork())
			_exit(0);
		struct pollfd pf = {.fd = tells[0], .events = POLLIN};
		if (poll(&pf, 1, WAIT_MS) == 1 && read(tells[0], &ok, 1) != 1)
			ok = 'n';
		_exit(ok == 'y' ? 0 : 1);
	}
	assert_int_equal(waitpid(parent, &status, 0), parent);
	assert_int_equal(status, 0);
	/* The grandchild that reads is adopted by us (PR_SET_CHILD_SUBREAPER), as is the one that
	 * exchanges. */
	for (int left = 2; left; left--) {
		assert_true(waitpid(-1, &status, 0) > 0);
		assert_int_equal(status, 0);
	}
}

/* The other way round: children come and go, by exec, by _exit and by exit, while the parent's data
 * moves. */
static void the_parent_goes_on(void **state)
{
	struct pair p;
	int status;
	pair_make(&p, 14, 7, 7);
	for (uint64_t i = 0; i < 12; i++) {
		pid_t pid = fork();
		if (!pid) {
			if (i % 2)
				_exit(0);
			execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
		assert_true(exchange(&p, 100 + i));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_true(exchange(&p, 200 + i));
	}
	pair_free(&p);
}

/* A child that opens the device for itself while its parent has it open: neither takes the other's
 * packets, and no QPN is given out twice. */
static void parent_and_child_each_have_a_device(void **state)
{
	struct pair p, own;
	int status, tells[2];
	uint32_t qpn;
	SKIP_UNDER_TSAN();
	pair_make(&p, 14, 7, 7);
	assert_true(exchange(&p, 300));
	assert_int_equal(pipe(tells), 0);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pair_make(&own, 14, 7, 7);
		qpn = own.a.qp->qp_num;
		if (write(tells[1], &qpn, sizeof(qpn)) != sizeof(qpn))
			_exit(1);
		for (uint64_t i = 0; i < 100; i++)
			if (!exchange(&own, 400 + i))
				_exit(1);
		pair_free(&own);
		pair_free(&p); /* the copies: the parent's pair lives on */
		_exit(0);
	}
	close(tells[1]);
	pair_make(&own, 14, 7, 7);
	assert_int_equal(read(tells[0], &qpn, sizeof(qpn)), sizeof(qpn));
	assert_int_not_equal(qpn, own.a.qp->qp_num);
	for (uint64_t i = 0; i < 100; i++) {
		assert_true(exchange(&p, 600 + i));
		assert_true(exchange(&own, 700 + i));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(exchange(&p, 900));
	pair_free(&own);
	pair_free(&p);
	close(tells[0]);
}

/* A peer remembers the QPs of a process that has ended for a while (TIMEWAIT). A new process that
 * happens to get the same slot must not begin with the same numbers: it would be refused (REJ
 * 10). */
static void processes_begin_at_different_numbers(void **state)
{
	enum { PROCESSES = 8, INDEX = (1 << 12) - 1 };
	uint32_t qpn[PROCESSES];
	bool differ = false;
	int status, tells[2];
	SKIP_UNDER_TSAN();
	assert_int_equal(pipe(tells), 0);
	for (int i = 0; i < PROCESSES; i++) {
		pid_t pid = fork();
		if (!pid) {
			struct pair p;
			pair_make(&p, 14, 7, 7);
			uint32_t own = p.a.qp->qp_num;
			pair_free(&p);
			_exit(write(tells[1], &own, sizeof(own)) != sizeof(own));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(read(tells[0], &qpn[i], sizeof(qpn[i])), sizeof(qpn[i]));
		differ |= (qpn[i] & INDEX) != (qpn[0] & INDEX);
	}
	assert_true(differ);
	close(tells[0]);
	close(tells[1]);
}

/* ---- nothing stays behind ---- */

/* The service thread may have one open for a moment: to ask who holds the port, say. */
static bool open_fds_at_most(unsigned n)
{
	for (int i = 0; i < 5000 && open_descriptors() > n; i++)
		usleep(1000);
	return open_descriptors() <= n;
}

static void opening_and_closing_leaks_no_descriptor(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	pair_free(&p);
	unsigned before = open_descriptors();
	for (int i = 0; i < 50; i++) {
		pair_make(&p, 14, 7, 7);
		assert_true(i % 10 || exchange(&p, (uint64_t)i));
		pair_free(&p);
	}
	for (int i = 0; i < 150; i++)
		assert_int_equal(ibv_close_device(pair_open_loopback()), 0);
	assert_true(open_fds_at_most(before));
}

static void a_thousand_objects_come_and_go(void **state)
{
	enum { N = 1000 };
	static struct ibv_qp *qp[N];
	static struct ibv_cq *cq[N];
	static struct ibv_mr *mr[N];
	struct ibv_context *c = pair_open_loopback();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	uint8_t *buf = malloc(N * 64);
	for (int round = 0; round < 3; round++) {
		IN_CASE("round", round);
		unsigned before = open_descriptors();
		for (int i = 0; i < N; i++) {
			cq[i] = ibv_create_cq(c, 4, NULL, NULL, 0);
			mr[i] = ibv_reg_mr(pd, buf + 64 * i, 64, IBV_ACCESS_LOCAL_WRITE);
			struct ibv_qp_init_attr init = {.send_cq = cq[i],
				.recv_cq = cq[i],
				.qp_type = IBV_QPT_RC,
				.cap = {.max_send_wr = 2,
					.max_recv_wr = 2,
					.max_send_sge = 1,
					.max_recv_sge = 1}};
			qp[i] = ibv_create_qp(pd, &init);
			assert_non_null(cq[i]);
			assert_non_null(mr[i]);
			assert_non_null(qp[i]);
			for (int k = 0; k < i; k += 97)
				assert_int_not_equal(qp[k]->qp_num, qp[i]->qp_num);
		}
		for (int i = 0; i < N; i++) {
			int k = (i * 7 + round) % N; /* in another order */
			assert_int_equal(ibv_destroy_qp(qp[k]), 0);
			assert_int_equal(ibv_destroy_cq(cq[k]), 0);
			assert_int_equal(ibv_dereg_mr(mr[k]), 0);
		}
		assert_true(open_fds_at_most(before));
	}
	free(buf);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(c), 0);
}

int main(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cq_that_fills_changes_its_size), /* one thread posts so far */
		cmocka_unit_test(threads_with_a_pair_each),
		cmocka_unit_test(threads_share_a_qp_and_its_cq),
		cmocka_unit_test(one_waits_while_others_post_and_destroy),
		cmocka_unit_test(the_child_goes_on),
		cmocka_unit_test(the_parent_goes_on),
		cmocka_unit_test(parent_and_child_each_have_a_device),
		cmocka_unit_test(processes_begin_at_different_numbers),
		cmocka_unit_test(opening_and_closing_leaks_no_descriptor),
		cmocka_unit_test(a_thousand_objects_come_and_go),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
