/* SPDX-License-Identifier: BSD-3-Clause */
/* rest_test.c - the verbs that few programs use: shared PDs, time stamps, ATOMIC WRITE; and the
 * service thread's time slice. Through the drop-in, as a program sees it. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum { RW = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

enum { ATOMIC_WRITE = 15 };

/* ---- shared PDs ---- */

static void what_another_context_made_is_imported_by_its_descriptor(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_pd *pd = ibv_alloc_pd(p.ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, p.b.buf, 8192, RW);
	int fd = fcntl(p.ctx->cmd_fd, F_DUPFD_CLOEXEC, 0);
	assert_true(fd >= 0);
	struct ibv_context *ctx = ibv_import_device(fd);
	assert_non_null(ctx);
	assert_int_equal(ctx->cmd_fd, fd);
	struct ibv_pd *shared = ibv_import_pd(ctx, pd->handle);
	assert_non_null(shared);
	struct ibv_mr *seen = ibv_import_mr(shared, mr->handle);
	assert_non_null(seen);
	assert_true(seen->rkey == mr->rkey && seen->lkey == mr->lkey && seen->length == 8192);
	assert_null(seen->addr);
	/* A pair whose one side lives in the imported PD: its lkey is good there, and its rkey for
	 * the peer. */
	struct pair q = {.ctx = ctx, .pd = shared, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	side_make(&q, &q.a, 1);
	side_make(&q, &q.b, 2);
	side_connect_to(&q, &q.a, q.b.qp->qp_num, 2);
	side_connect_to(&q, &q.b, q.a.qp->qp_num, 1);
	assert_int_equal(
		pair_write_to(&q, 4, 8192, (uintptr_t)p.b.buf, seen->rkey), IBV_WC_SUCCESS);
	assert_true(pattern_holds(p.b.buf, 8192, 4));
	/* Not theirs to end; and nothing of it is made any more once its owner has let it go. */
	assert_int_equal(ibv_dereg_mr(seen), EINVAL);
	assert_int_equal(ibv_dealloc_pd(shared), EINVAL);
	assert_int_equal(ibv_rereg_mr(seen, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW),
		IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	side_free(&q.a);
	side_free(&q.b);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	errno = 0;
	assert_null(ibv_reg_mr(shared, p.b.buf, 8192, RW));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_alloc_mw(shared, IBV_MW_TYPE_1));
	assert_null(ibv_import_pd(ctx, shared->handle));
	assert_int_equal(errno, ENOENT);
	assert_null(ibv_import_mr(shared, seen->handle));
	assert_int_equal(errno, ENOENT);
	ibv_unimport_mr(seen);
	ibv_unimport_pd(shared);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed with its context */
	pair_free(&p);
}

static void only_ones_own_is_imported(void **state)
{
	struct ibv_context *a = pair_open_loopback(), *b = pair_open_loopback();
	struct ibv_pd *pd = ibv_alloc_pd(a);
	errno = 0;
	assert_null(ibv_import_pd(b, pd->handle)); /* another group */
	assert_int_equal(errno, ENOENT);
	/* The descriptor says whose it is; another's is told from ours. */
	char bytes[256];
	ssize_t n = pread(a->cmd_fd, bytes, sizeof(bytes), 0);
	assert_true(n > 32);
	assert_int_equal(pwrite(a->cmd_fd, bytes, 1, 0), -1);
	bytes[16] ^= 1;
	int forged = memfd_create("forged", MFD_CLOEXEC);
	assert_int_equal(write(forged, bytes, (size_t)n), n);
	assert_null(ibv_import_device(forged));
	assert_int_equal(errno, EOPNOTSUPP);
	close(forged);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(a) | ibv_close_device(b), 0);
}

/* ---- CQs ---- */

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;
	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void completions_are_stamped_when_they_come(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_cq_init_attr_ex want = {.cqe = 4,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(p.ctx, &want);
	assert_non_null(ex);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ex), *plain = p.a.cq;
	struct ibv_qp *old = p.a.qp;
	/* side a anew, with that CQ */
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
	p.a.qp = ibv_create_qp(p.pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	assert_int_equal(
		ibv_modify_qp(p.a.qp, &attr,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	struct pair q = p;
	side_make(&q, &q.b, 77);
	side_connect_to(&q, &q.a, q.b.qp->qp_num, 77);
	side_connect_to(&q, &q.b, q.a.qp->qp_num, q.a.psn);
	uint64_t from = clock_ns(CLOCK_MONOTONIC), wall = clock_ns(CLOCK_REALTIME), last = from;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(
			pair_send(&q.a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)q.b.buf, q.b.mr->rkey),
			0);
		usleep(2000);
	}
	/* The CQ grows, and the stamps go along. By then all four have come. */
	usleep(300000);
	assert_int_equal(ibv_resize_cq(cq, 64), 0);
	usleep(50000);
	uint64_t late = clock_ns(CLOCK_MONOTONIC), late_wall = clock_ns(CLOCK_REALTIME);
	struct ibv_poll_cq_attr none = {0};
	assert_int_equal(ibv_start_poll(ex, &none), 0);
	for (int i = 0; i < 4; i++) {
		uint64_t ts = ibv_wc_read_completion_ts(ex),
			 at = ibv_wc_read_completion_wallclock_ns(ex);
		assert_int_equal(ex->status, IBV_WC_SUCCESS);
		/* when it came, not when it was polled: 50 ms lie between */
		assert_true(ts >= last && ts + 50000000 <= late);
		assert_true(at >= wall && at + 50000000 <= late_wall);
		assert_true(i == 0 || ts > last);
		last = ts;
		assert_int_equal(ibv_next_poll(ex), i == 3 ? ENOENT : 0);
	}
	ibv_end_poll(ex);
	none.comp_mask = 1;
	assert_int_equal(ibv_start_poll(ex, &none), EINVAL);
	/* The device's clock is theirs. */
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct ibv_device_attr_ex dev;
	assert_int_equal(ibv_query_rt_values_ex(p.ctx, &v), 0);
	uint64_t raw = (uint64_t)v.raw_clock.tv_sec * 1000000000 + (uint64_t)v.raw_clock.tv_nsec;
	assert_true(raw >= late && raw <= clock_ns(CLOCK_MONOTONIC));
	v.comp_mask = 1u << 31;
	assert_int_equal(ibv_query_rt_values_ex(p.ctx, &v), EINVAL);
	assert_int_equal(ibv_query_device_ex(p.ctx, NULL, &dev), 0);
	assert_int_equal(dev.hca_core_clock, 1000000); /* kHz */
	assert_true(dev.completion_timestamp_mask == UINT64_MAX);
	side_free(&q.b);
	assert_int_equal(ibv_destroy_qp(p.a.qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	p.a.qp = old;
	p.a.cq = plain;
	pair_free(&p);
}

static int cq_ex_errno(struct ibv_context *c, struct ibv_cq_init_attr_ex a)
{
	errno = 0;
	assert_null(ibv_create_cq_ex(c, &a));
	return errno;
}

static void a_cq_that_cannot_be_is_refused(void **state)
{
	struct ibv_context *c = pair_open_loopback();
	assert_int_equal(cq_ex_errno(c, (struct ibv_cq_init_attr_ex){.cqe = 0}), EINVAL);
	assert_int_equal(cq_ex_errno(c, (struct ibv_cq_init_attr_ex){.cqe = 1u << 31}), EINVAL);
	assert_int_equal(cq_ex_errno(c, (struct ibv_cq_init_attr_ex){.cqe = 8,
						.wc_flags = IBV_WC_EX_WITH_CVLAN}),
		EOPNOTSUPP);
	assert_int_equal(cq_ex_errno(c, (struct ibv_cq_init_attr_ex){.cqe = 8,
						.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
						.flags = 1 << 7}),
		EINVAL);
	/* One vector for each processor, and no more. */
	assert_int_equal(c->num_comp_vectors, sysconf(_SC_NPROCESSORS_CONF));
	for (int v = 0; v < c->num_comp_vectors; v++) {
		struct ibv_cq *cq = ibv_create_cq(c, 8, NULL, NULL, v);
		assert_non_null(cq);
		struct ibv_modify_cq_attr m = {.attr_mask = IBV_CQ_ATTR_MODERATE << 1};
		assert_int_equal(ibv_modify_cq(cq, &m), EINVAL);
		assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
		assert_int_equal(ibv_destroy_cq(cq), 0);
	}
	errno = 0;
	assert_null(ibv_create_cq(c, 8, NULL, NULL, c->num_comp_vectors));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq(c, 8, NULL, NULL, -1));
	assert_int_equal(ibv_close_device(c), 0);
}

/* ---- events that wait for more completions (ibv_modify_cq(3)) ---- */

static bool event_comes(struct ibv_comp_channel *ch, int ms)
{
	struct pollfd f = {.fd = ch->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;
	if (poll(&f, 1, ms) != 1)
		return false;
	assert_int_equal(ibv_get_cq_event(ch, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void send_and_see(struct pair *p, int n)
{
	for (int i = 0; i < n; i++) {
		assert_int_equal(pair_send(&p->a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p->b.buf,
					 p->b.mr->rkey),
			0);
		assert_int_equal(side_done(&p->a), IBV_WC_SUCCESS);
	}
}

static void watched_pair(struct pair *p)
{
	*p = (struct pair){.timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	p->ctx = pair_open_loopback();
	p->pd = ibv_alloc_pd(p->ctx);
	p->channel = ibv_create_comp_channel(p->ctx);
	side_make(p, &p->a, 1);
	side_make(p, &p->b, 2);
	side_connect_to(p, &p->a, p->b.qp->qp_num, p->b.psn);
	side_connect_to(p, &p->b, p->a.qp->qp_num, p->a.psn);
}

static void watched_free(struct pair *p)
{
	side_free(&p->a);
	side_free(&p->b);
	assert_int_equal(ibv_destroy_comp_channel(p->channel), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
	assert_int_equal(ibv_close_device(p->ctx), 0);
}

/* As with a kernel's channel, also for who does not take the events (async-rdma). */
static void each_event_is_an_edge(void **state)
{
	struct pair p;
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	watched_pair(&p);
	int fd = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(fd, EPOLL_CTL_ADD, p.channel->fd, &e), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(epoll_wait(fd, &e, 1, 0), 0);
		assert_int_equal(ibv_req_notify_cq(p.a.cq, 0), 0);
		send_and_see(&p, 1);
		assert_int_equal(epoll_wait(fd, &e, 1, 5000), 1);
	}
	for (int i = 0; i < 3; i++)
		assert_true(event_comes(p.channel, 0));
	assert_false(event_comes(p.channel, 0));
	close(fd);
	watched_free(&p);
}

static void an_event_waits_for_count_or_period(void **state)
{
	struct pair p;
	struct ibv_device_attr_ex d;
	watched_pair(&p);
	assert_int_equal(ibv_query_device_ex(p.ctx, NULL, &d), 0);
	struct ibv_modify_cq_attr m = {
		.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {4, d.cq_mod_caps.max_cq_period}};
	assert_int_equal(d.cq_mod_caps.max_cq_count, UINT16_MAX);
	/* The first three are nobody's business; on a busy machine the period ends meanwhile, now
	 * and then. */
	bool early = true;
	for (int i = 0; i < 20 && early; i++) {
		m.moderate.cq_count = 4;
		assert_int_equal(ibv_modify_cq(p.a.cq, &m), 0);
		assert_int_equal(ibv_req_notify_cq(p.a.cq, 0), 0);
		send_and_see(&p, 3);
		early = event_comes(p.channel, 0);
		if (!early)
			send_and_see(&p, 1);
		if (early || event_comes(p.channel, 5000))
			continue;
		fail_msg("no event after the fourth completion");
	}
	assert_false(early);
	/* One alone: when the period is over. */
	assert_int_equal(ibv_req_notify_cq(p.a.cq, 0), 0);
	send_and_see(&p, 1);
	assert_true(event_comes(p.channel, 5000));
	/* What waits when the rule goes is said at once; without a rule each one is. */
	assert_int_equal(ibv_req_notify_cq(p.a.cq, 0), 0);
	send_and_see(&p, 1);
	m.moderate.cq_count = 0;
	assert_int_equal(ibv_modify_cq(p.a.cq, &m), 0);
	assert_true(event_comes(p.channel, 0));
	assert_int_equal(ibv_req_notify_cq(p.a.cq, 0), 0);
	send_and_see(&p, 1);
	assert_true(event_comes(p.channel, 0));
	assert_false(event_comes(p.channel, 0));
	watched_free(&p);
}

/* ---- ATOMIC WRITE ---- */

static void an_atomic_write_puts_eight_bytes(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	pattern_fill(p.b.buf, PAIR_BUF, 1);
	/* behind a long WRITE, and inline */
	pattern_fill(p.a.buf, PAIR_BUF, 2);
	assert_int_equal(
		pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, 65536, (uintptr_t)p.b.buf + 64, p.b.mr->rkey),
		0);
	assert_int_equal(pair_send(&p.a, (enum ibv_wr_opcode)ATOMIC_WRITE, 65536, 8,
				 (uintptr_t)p.b.buf, p.b.mr->rkey),
		0);
	assert_int_equal(side_done(&p.a), IBV_WC_SUCCESS);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, 9);
	assert_memory_equal(p.b.buf, p.a.buf + 65536, 8);
	assert_memory_equal(p.b.buf + 64, p.a.buf, 65536);
	assert_int_equal(pair_send(&p.a, (enum ibv_wr_opcode)ATOMIC_WRITE, 0, 12,
				 (uintptr_t)p.b.buf, p.b.mr->rkey),
		EINVAL);
	assert_int_equal(pair_send(&p.a, (enum ibv_wr_opcode)ATOMIC_WRITE, 0, 8,
				 (uintptr_t)p.b.buf + 4, p.b.mr->rkey),
		0);
	assert_int_equal(side_done(&p.a), IBV_WC_REM_INV_REQ_ERR);
	assert_memory_equal(p.b.buf, p.a.buf + 65536, 8);
	pair_free(&p);
}

/* ---- the hop limit of a connection is its route's ---- */

static void a_connection_has_its_routes_hops(void **state)
{
	struct pair p;
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	unsigned system = 0;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_default_ttl", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%u", &system), 1);
	fclose(f);
	pair_make(&p, 14, 7, 7); /* which asks for 1, as ibv_rc_pingpong does */
	assert_int_equal(ibv_query_qp(p.a.qp, &a, IBV_QP_AV, &init), 0);
	assert_int_equal(a.ah_attr.grh.hop_limit, system);
	pair_free(&p);
}

/* ---- an access flag that is none ---- */

static void an_access_flag_that_is_none_is_refused(void **state)
{
	enum { NONE = 1 << 18, FLUSH = 3 << 8 };
	struct pair p;
	struct ibv_qp_attr a = {.qp_access_flags = IBV_ACCESS_REMOTE_READ | NONE};
	pair_make(&p, 14, 7, 7);
	assert_int_equal(ibv_modify_qp(p.a.qp, &a, IBV_QP_ACCESS_FLAGS), EINVAL);
	a.qp_access_flags = IBV_ACCESS_REMOTE_READ | FLUSH | IBV_ACCESS_RELAXED_ORDERING;
	assert_int_equal(ibv_modify_qp(p.a.qp, &a, IBV_QP_ACCESS_FLAGS), 0);
	pair_free(&p);
}

/* ---- the service thread ---- */

/* How the kernel schedules a thread, as its system calls say it. */
struct slice {
	uint32_t size, policy;
	uint64_t flags, nice_and_priority, runtime_ns, deadline_ns, period_ns;
};

static struct slice slice_of(int tid)
{
	struct slice s = {0};
	assert_int_equal(syscall(SYS_sched_getattr, tid, &s, sizeof(s), 0), 0);
	return s;
}

static int service_tid(void)
{
	char path[64], name[16];
	DIR *tasks = opendir("/proc/self/task");
	int tid = 0;
	assert_non_null(tasks);
	for (struct dirent *e; !tid && (e = readdir(tasks));) {
		snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", e->d_name);
		FILE *f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f) && !strcmp(name, "ropeway\n"))
			tid = atoi(e->d_name);
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return tid;
}

/* Kernels that have no slice of a thread's own say 0, or the same of all threads. */
static void only_the_service_thread_has_a_short_slice(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct slice own = slice_of(0), its = {0};
	for (int i = 0; i < 1000 && !(service_tid() && (its = slice_of(service_tid())).runtime_ns);
		i++)
		usleep(1000);
	assert_int_not_equal(service_tid(), 0);
	assert_int_equal(its.policy, own.policy);
	assert_int_equal(its.nice_and_priority, own.nice_and_priority);
	assert_true(own.policy || its.runtime_ns <= own.runtime_ns);
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_another_context_made_is_imported_by_its_descriptor),
		cmocka_unit_test(only_ones_own_is_imported),
		cmocka_unit_test(completions_are_stamped_when_they_come),
		cmocka_unit_test(a_cq_that_cannot_be_is_refused),
		cmocka_unit_test(each_event_is_an_edge),
		cmocka_unit_test(an_event_waits_for_count_or_period),
		cmocka_unit_test(an_atomic_write_puts_eight_bytes),
		cmocka_unit_test(a_connection_has_its_routes_hops),
		cmocka_unit_test(an_access_flag_that_is_none_is_refused),
		cmocka_unit_test(only_the_service_thread_has_a_short_slice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
