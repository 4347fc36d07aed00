/* SPDX-License-Identifier: BSD-3-Clause */
/* comp_cntr_test.c - completion counters of rdma-core 65, declared as its verbs.h has them: what is
 * counted, by which QP, and what is refused. With an argument, `udp` or `auto`: by which wire. */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum {
	SEND = 1,
	RECV = 2,
	READ = 4,
	REMOTE_READ = 8,
	WRITE = 16,
	REMOTE_WRITE = 32,
	ALL = SEND | RECV | READ | WRITE,
};
static const unsigned kinds[] = {SEND, RECV, READ, WRITE};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };
enum { WRS, BYTES };
enum { LONG = 300000, HALF = PAIR_BUF / 2 };

struct ibv_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters, supported_qp_attach_ops;
};
struct ibv_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};
struct ibv_comp_cntr_init_attr {
	uint32_t comp_mask, type, flags;
};
struct ibv_qp_attach_comp_cntr_attr {
	uint32_t comp_mask, op_mask;
};
int _ibv_query_comp_cntr_caps(struct ibv_context *c, struct ibv_comp_cntr_caps *caps, size_t size);
struct ibv_comp_cntr *ibv_create_comp_cntr(
	struct ibv_context *c, struct ibv_comp_cntr_init_attr *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *c);
int ibv_set_comp_cntr(struct ibv_comp_cntr *c, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *c, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *c, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *c, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *c, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *c, uint64_t *value);
int ibv_qp_attach_comp_cntr(
	struct ibv_qp *qp, struct ibv_comp_cntr *c, struct ibv_qp_attach_comp_cntr_attr *attr);
int ibv_query_port_speed(struct ibv_context *c, uint32_t port, uint64_t *speed);

static struct pair p;

static void begin_pair(void)
{
	p = (struct pair){.timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	p.ctx = pair_open_loopback();
	p.pd = ibv_alloc_pd(p.ctx);
	side_make(&p, &p.a, 0xfffff0);
	side_make(&p, &p.b, 0x123456);
}
static void connect_pair(void)
{
	side_connect_to(&p, &p.a, p.b.qp->qp_num, p.b.psn);
	side_connect_to(&p, &p.b, p.a.qp->qp_num, p.a.psn);
}

/* The QPs go first: what they are attached to cannot be destroyed before. */
static void end_pair(struct ibv_comp_cntr **counters, unsigned n)
{
	assert_int_equal(ibv_destroy_qp(p.a.qp), 0);
	assert_int_equal(ibv_destroy_qp(p.b.qp), 0);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(ibv_destroy_comp_cntr(counters[i]), 0);
	p.a.qp = p.b.qp = NULL;
	pair_free(&p);
}

static struct ibv_comp_cntr *make(unsigned type)
{
	struct ibv_comp_cntr_init_attr a = {.type = type};
	struct ibv_comp_cntr *c = ibv_create_comp_cntr(p.ctx, &a);
	assert_non_null(c);
	assert_true(c->context == p.ctx);
	return c;
}

static int attach(struct side *s, struct ibv_comp_cntr *c, uint32_t ops)
{
	struct ibv_qp_attach_comp_cntr_attr a = {.op_mask = ops};
	return ibv_qp_attach_comp_cntr(s->qp, c, &a);
}

static uint64_t count(struct ibv_comp_cntr *c)
{
	uint64_t n = ~0ull;
	assert_int_equal(ibv_read_comp_cntr(c, &n), 0);
	return n;
}
static uint64_t errors(struct ibv_comp_cntr *c)
{
	uint64_t n = ~0ull;
	assert_int_equal(ibv_read_err_comp_cntr(c, &n), 0);
	return n;
}

/* What a posts; `signaled` or counted alone. */
static void post(enum ibv_wr_opcode op, uint32_t len, bool signaled)
{
	struct ibv_sge s = {(uintptr_t)p.a.buf, len, p.a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s,
				   .num_sge = 1,
				   .opcode = op,
				   .send_flags = signaled ? IBV_SEND_SIGNALED : 0},
			   *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf + HALF;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
}

static void done(struct side *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(side_done(s), IBV_WC_SUCCESS);
}

static const struct {
	enum ibv_wr_opcode op;
	int here, there; /* the kinds that it counts as */
} rows[] = {
	{IBV_WR_SEND, SEND, RECV},
	{IBV_WR_SEND_WITH_IMM, SEND, RECV},
	{IBV_WR_RDMA_WRITE, WRITE, 0},
	{IBV_WR_RDMA_WRITE_WITH_IMM, WRITE, RECV},
	{IBV_WR_RDMA_READ, READ, 0},
};

/* Each kind by a counter of its own at both ends, of requests or bytes. */
static void counts(unsigned type, uint32_t len)
{
	struct ibv_comp_cntr *all[2 * KINDS], **a = all, **b = all + KINDS;
	uint64_t want_a[KINDS] = {0}, want_b[KINDS] = {0};
	unsigned of = type == BYTES ? len : 1;
	begin_pair();
	for (unsigned k = 0; k < KINDS; k++) {
		assert_int_equal(attach(&p.a, a[k] = make(type), kinds[k]), 0);
		assert_int_equal(attach(&p.b, b[k] = make(type), kinds[k]), 0);
	}
	connect_pair();
	for (unsigned i = 0; i < 40; i++) {
		unsigned r = i % (sizeof(rows) / sizeof(*rows));
		IN_CASE("row", r);
		if (rows[r].there & RECV)
			pair_recv(&p.b, 0, len, i);
		post(rows[r].op, len, true);
		done(&p.a, 1);
		if (rows[r].there & RECV)
			done(&p.b, 1);
		for (unsigned k = 0; k < KINDS; k++) {
			want_a[k] += rows[r].here & kinds[k] ? of : 0;
			want_b[k] += rows[r].there & kinds[k] ? of : 0;
			IN_CASE("kind", kinds[k]);
			assert_int_equal(count(a[k]), want_a[k]);
			assert_int_equal(count(b[k]), want_b[k]);
			assert_int_equal(errors(a[k]) + errors(b[k]), 0);
		}
	}
	for (unsigned k = 0; k < 2 * KINDS; k++) {
		errno = 0;
		assert_int_equal(ibv_destroy_comp_cntr(all[k]), EBUSY);
		assert_int_equal(errno, EBUSY);
	}
	end_pair(all, 2 * KINDS);
}

static void requests_are_counted_by_kind(void **state)
{
	counts(WRS, 8);
	counts(WRS, LONG);
}
static void or_their_bytes(void **state)
{
	counts(BYTES, 8);
	counts(BYTES, LONG);
	counts(BYTES, 0);
}

/* A QP whose requests are not all signaled, in INIT. */
static void make_quiet(struct side *s)
{
	assert_int_equal(ibv_destroy_qp(s->qp), 0);
	struct ibv_qp_init_attr init = {.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 128,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	s->qp = ibv_create_qp(p.pd, &init);
	assert_non_null(s->qp);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	assert_int_equal(
		ibv_modify_qp(s->qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

static void what_is_not_signaled_counts_too(void **state)
{
	struct ibv_comp_cntr *c[1];
	struct ibv_wc wc;
	begin_pair();
	make_quiet(&p.a);
	assert_int_equal(attach(&p.a, c[0] = make(WRS), WRITE), 0);
	connect_pair();
	for (unsigned i = 1; i <= 100; i++)
		post(IBV_WR_RDMA_WRITE, i, i == 100);
	done(&p.a, 1);
	assert_int_equal(count(c[0]), 100);
	assert_false(pair_poll(p.a.cq, &wc, 0));
	end_pair(c, 1);
}

static void one_counts_for_many(void **state)
{
	struct ibv_comp_cntr *c[1];
	begin_pair();
	assert_int_equal(attach(&p.a, c[0] = make(WRS), SEND | WRITE), 0);
	assert_int_equal(attach(&p.b, c[0], RECV), 0);
	connect_pair();
	pair_recv(&p.b, 0, 64, 0);
	post(IBV_WR_SEND, 64, true);
	post(IBV_WR_RDMA_WRITE, 64, true);
	post(IBV_WR_RDMA_READ, 64, true);
	done(&p.a, 3);
	done(&p.b, 1);
	assert_int_equal(count(c[0]), 3);
	end_pair(c, 1);
}

static void failures_and_flushes_are_errors(void **state)
{
	struct ibv_comp_cntr *c[2];
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	begin_pair();
	assert_int_equal(attach(&p.a, c[0] = make(WRS), SEND | WRITE | READ), 0);
	assert_int_equal(attach(&p.b, c[1] = make(WRS), RECV), 0);
	connect_pair();
	for (unsigned i = 0; i < 5; i++)
		pair_recv(&p.b, 0, 64, i);
	post(IBV_WR_SEND, 64, true);
	done(&p.a, 1);
	done(&p.b, 1);
	assert_int_equal(pair_write_to(&p, 3, 64, (uintptr_t)p.b.buf, p.b.mr->rkey ^ 0x100),
		IBV_WC_REM_ACCESS_ERR);
	post(IBV_WR_SEND, 64, true);
	assert_int_equal(side_done(&p.a), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(count(c[0]), 1);
	assert_int_equal(errors(c[0]), 2);
	assert_int_equal(ibv_modify_qp(p.b.qp, &err, IBV_QP_STATE), 0);
	assert_int_equal(count(c[1]), 1);
	assert_int_equal(errors(c[1]), 4);
	end_pair(c, 2);
}

static void a_program_sets_and_adds(void **state)
{
	begin_pair();
	struct ibv_comp_cntr *c = make(WRS);
	assert_int_equal(count(c) + errors(c), 0);
	assert_int_equal(ibv_set_comp_cntr(c, UINT64_MAX), 0);
	assert_int_equal(ibv_set_err_comp_cntr(c, 7), 0);
	assert_true(count(c) == UINT64_MAX && errors(c) == 7);
	assert_int_equal(ibv_inc_comp_cntr(c, 3), 0); /* it wraps */
	assert_int_equal(ibv_inc_err_comp_cntr(c, 30), 0);
	assert_true(count(c) == 2 && errors(c) == 37);
	end_pair(&c, 1);
}

static void fails_with(int rc, int error)
{
	assert_int_equal(rc, error);
	assert_int_equal(errno, error);
	errno = 0;
}

static void what_cannot_be_is_refused(void **state)
{
	struct ibv_comp_cntr_init_attr a = {.type = 2};
	struct ibv_qp_attach_comp_cntr_attr masked = {.comp_mask = 1, .op_mask = SEND};
	struct ibv_comp_cntr_caps caps = {0};
	uint64_t n;
	begin_pair();
	assert_int_equal(_ibv_query_comp_cntr_caps(p.ctx, &caps, sizeof(caps)), 0);
	assert_true(caps.max_value == UINT64_MAX && caps.max_counters == 65536 &&
		    caps.supported_qp_attach_ops == ALL);
	caps.max_counters = 5;
	assert_int_equal(_ibv_query_comp_cntr_caps(p.ctx, &caps, 8), 0); /* an older program */
	assert_int_equal(caps.max_counters, 5);
	assert_null(ibv_create_comp_cntr(p.ctx, &a));
	assert_int_equal(errno, EOPNOTSUPP);
	a = (struct ibv_comp_cntr_init_attr){.flags = 1};
	assert_null(ibv_create_comp_cntr(p.ctx, &a));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_comp_cntr(NULL, &a));
	struct ibv_comp_cntr *c = make(WRS), *d = make(WRS), *both[] = {c, d};
	struct ibv_comp_cntr stranger = {p.ctx, c->handle};
	fails_with(attach(&p.a, c, 0), EINVAL);
	fails_with(attach(&p.a, c, REMOTE_READ), EOPNOTSUPP);
	fails_with(attach(&p.a, c, SEND | REMOTE_WRITE), EOPNOTSUPP);
	fails_with(ibv_qp_attach_comp_cntr(p.a.qp, c, &masked), EINVAL);
	fails_with(attach(&p.a, NULL, SEND), EINVAL);
	fails_with(attach(&p.a, &stranger, SEND), ENOENT);
	fails_with(ibv_read_comp_cntr(&stranger, &n), ENOENT);
	fails_with(ibv_destroy_comp_cntr(&stranger), ENOENT);
	fails_with(ibv_destroy_comp_cntr(NULL), EINVAL);
	assert_int_equal(attach(&p.a, c, SEND | READ), 0);
	fails_with(attach(&p.a, d, READ | WRITE), EBUSY);
	assert_int_equal(attach(&p.a, d, WRITE), 0);
	connect_pair();
	fails_with(attach(&p.a, d, RECV), EINVAL); /* in RTS */
	end_pair(both, 2);
}

static void a_port_says_how_fast_it_is(void **state)
{
	uint64_t speed = 0;
	begin_pair();
	assert_int_equal(ibv_query_port_speed(p.ctx, 1, &speed), 0);
	assert_in_range(speed, 1, 8000);
	fails_with(ibv_query_port_speed(p.ctx, 2, &speed), EINVAL);
	end_pair(NULL, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_are_counted_by_kind),
		cmocka_unit_test(or_their_bytes),
		cmocka_unit_test(what_is_not_signaled_counts_too),
		cmocka_unit_test(one_counts_for_many),
		cmocka_unit_test(failures_and_flushes_are_errors),
		cmocka_unit_test(a_program_sets_and_adds),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(a_port_says_how_fast_it_is),
	};
	if (argc > 1)
		setenv("ROPEWAY_WIRE", argv[1], 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
