/* SPDX-License-Identifier: BSD-3-Clause */
/* receives_test.c - receives that do not fit, and whose they are: a shared queue's protection
 * domain, messages longer than their receive, a WRITE with immediate data and a bad key. With an
 * argument, `udp` or `auto`: by which wire. */
#include <endian.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum { QKEY = 17, GRH = 40, LEN = 1000, SOON_MS = 5000, NOTHING_MS = 100 };
enum { TAKES = 1, SENDS = 2, TAKES_NEXT = 3 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_mr *mr; /* of pd, all of buf */
static uint8_t buf[1 << 16];

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	enum ibv_qp_type type;
};
static struct end from, to;

static int begin(void **state)
{
	ctx = pair_open_loopback();
	pd = ibv_alloc_pd(ctx);
	assert_int_equal(ibv_query_gid(ctx, 1, 1, &gid), 0);
	mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(mr);
	return 0;
}

static void end_make(struct end *e, enum ibv_qp_type type, struct ibv_pd *srq_pd)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_init_attr qa = {.qp_type = type,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
	*e = (struct end){.type = type, .cq = ibv_create_cq(ctx, 32, NULL, NULL, 0)};
	if (srq_pd)
		qa.srq = e->srq = ibv_create_srq(srq_pd, &sa);
	qa.send_cq = qa.recv_cq = e->cq;
	e->qp = ibv_create_qp(pd, &qa);
	assert_non_null(e->qp);
}

static void end_up(struct end *e, const struct end *peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.qkey = QKEY};
	bool ud = e->type == IBV_QPT_UD, rc = e->type == IBV_QPT_RC;
	assert_int_equal(ibv_modify_qp(e->qp, &a,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
		0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 64}}};
	int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	    reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	assert_int_equal(
		ibv_modify_qp(e->qp, &a, IBV_QP_STATE | (ud ? 0 : connected) | (rc ? reliable : 0)),
		0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = 1,
		.max_rd_atomic = 1};
	reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	assert_int_equal(
		ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | (rc ? reliable : 0)), 0);
}

static void pair_up(enum ibv_qp_type type, struct ibv_pd *srq_pd)
{
	end_make(&from, type, NULL);
	end_make(&to, type, srq_pd);
	end_up(&from, &to);
	end_up(&to, &from);
}

static void end_free(struct end *e)
{
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
}
static void pair_down(void)
{
	end_free(&from);
	end_free(&to);
}

static void take(uint64_t wr_id, size_t at, uint32_t len, uint32_t lkey)
{
	struct ibv_sge s = {(uintptr_t)buf + at, len, lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &s, .num_sge = 1}, *bad;
	if (to.srq)
		assert_int_equal(ibv_post_srq_recv(to.srq, &wr, &bad), 0);
	else
		assert_int_equal(ibv_post_recv(to.qp, &wr, &bad), 0);
}

static void post(struct ibv_send_wr *wr, uint32_t len)
{
	struct ibv_sge s = {(uintptr_t)buf, len, mr->lkey};
	struct ibv_send_wr *bad;
	wr->wr_id = SENDS;
	wr->sg_list = &s;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(from.qp, wr, &bad), 0);
}

static void gives(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	assert_true(pair_poll(cq, &wc, SOON_MS));
	assert_int_equal(wc.wr_id, wr_id);
	assert_string_equal(ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}
static void gives_nothing(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	assert_false(pair_poll(cq, &wc, NOTHING_MS));
}

/* ---- a shared queue in a domain of its own (IB 10.2.9) ---- */

static void srq_of_another_domain(enum ibv_qp_type type, bool buffer_is_the_queues)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_mr *theirs = ibv_reg_mr(other, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
	pair_up(type, other);
	pattern_fill(buf, LEN, 3);
	memset(buf + 8192, 0, LEN + GRH);
	take(TAKES, 8192, LEN + GRH, buffer_is_the_queues ? theirs->lkey : mr->lkey);
	struct ibv_ah *ah = NULL;
	if (type == IBV_QPT_UD) {
		struct ibv_ah_attr av = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 64}};
		ah = wr.wr.ud.ah = ibv_create_ah(pd, &av);
		wr.wr.ud.remote_qpn = to.qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	post(&wr, LEN);
	bool answers = type == IBV_QPT_RC;
	gives(to.cq, TAKES, buffer_is_the_queues ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
	gives(from.cq, SENDS,
		answers && !buffer_is_the_queues ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS);
	assert_true(pattern_holds(buf + 8192 + (ah ? GRH : 0), LEN, 3) == buffer_is_the_queues);
	if (ah)
		assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_down();
	assert_int_equal(ibv_dereg_mr(theirs), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void a_shared_receive_is_checked_against_its_queues_domain(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	for (int i = 0; i < 3; i++) {
		srq_of_another_domain(types[i], true);
		srq_of_another_domain(types[i], false);
	}
}

/* ---- longer than the receive (IB 9.9.3, classes D and E) ---- */

static void a_message_too_long(enum ibv_qp_type type, bool shared)
{
	struct ibv_ah_attr av = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 64}};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
	size_t lead = type == IBV_QPT_UD ? GRH : 0;
	pair_up(type, shared ? pd : NULL);
	if (type == IBV_QPT_UD) {
		wr.wr.ud.ah = ibv_create_ah(pd, &av);
		wr.wr.ud.remote_qpn = to.qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	pattern_fill(buf, LEN, 4);
	memset(buf + 8192, 0, 2 * LEN);
	take(TAKES, 8192, 140, mr->lkey);
	post(&wr, LEN);
	gives(from.cq, SENDS, IBV_WC_SUCCESS);
	if (shared)
		gives(to.cq, TAKES, IBV_WC_LOC_LEN_ERR);
	else
		gives_nothing(to.cq);
	assert_int_equal(buf[8192 + 140], 0);
	/* The receiver goes on: with the same receive, or the next one of the shared queue. */
	if (shared)
		take(TAKES_NEXT, 8192, 140, mr->lkey);
	post(&wr, 100);
	gives(from.cq, SENDS, IBV_WC_SUCCESS);
	gives(to.cq, shared ? TAKES_NEXT : TAKES, IBV_WC_SUCCESS);
	assert_true(pattern_holds(buf + 8192 + lead, 100, 4));
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	assert_int_equal(ibv_query_qp(to.qp, &a, IBV_QP_STATE, &init), 0);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	if (wr.wr.ud.ah && type == IBV_QPT_UD)
		assert_int_equal(ibv_destroy_ah(wr.wr.ud.ah), 0);
	pair_down();
}

static void a_datagram_longer_than_its_receive_ends_no_receiver(void **state)
{
	a_message_too_long(IBV_QPT_UD, false);
	a_message_too_long(IBV_QPT_UD, true);
}
static void nor_does_a_message_of_a_uc_peer(void **state)
{
	a_message_too_long(IBV_QPT_UC, false);
	a_message_too_long(IBV_QPT_UC, true);
}

/* ---- WRITE with immediate data: its receive fails by itself (IB 9.9.3, class C) ---- */

static void write_imm(uint32_t rkey, bool shared, bool has_right)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.wr.rdma = {.remote_addr = (uintptr_t)buf, .rkey = rkey}};
	struct ibv_qp_attr none = {.qp_access_flags = 0};
	pair_up(IBV_QPT_RC, shared ? pd : NULL);
	if (!has_right)
		assert_int_equal(ibv_modify_qp(to.qp, &none, IBV_QP_ACCESS_FLAGS), 0);
	take(TAKES, 8192, 140, mr->lkey);
	take(TAKES_NEXT, 8192, 140, mr->lkey);
	post(&wr, LEN);
	gives(from.cq, SENDS, has_right ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR);
	gives(to.cq, TAKES, IBV_WC_LOC_ACCESS_ERR);
	if (!shared)
		gives(to.cq, TAKES_NEXT, IBV_WC_WR_FLUSH_ERR);
	pair_down();
}
static void a_write_with_immediate_and_a_bad_key_fails_its_receive(void **state)
{
	write_imm(0xdeadbeef, false, true);
	write_imm(0xdeadbeef, true, true);
	write_imm(mr->rkey, false, false);
}

/* ---- whom to answer ---- */

static void an_answer_has_the_class_and_hops_of_what_came(void **state)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
	struct ibv_ah_attr to_it = {.is_global = 1,
				   .port_num = 1,
				   .grh = {.dgid = gid,
					   .sgid_index = 1,
					   .hop_limit = 77,
					   .traffic_class = 0x28}},
			   back;
	struct ibv_wc wc;
	pair_up(IBV_QPT_UD, NULL);
	struct ibv_ah *ah = wr.wr.ud.ah = ibv_create_ah(pd, &to_it);
	wr.wr.ud.remote_qpn = to.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	take(TAKES, 8192, LEN + GRH, mr->lkey);
	post(&wr, LEN);
	assert_true(pair_poll(to.cq, &wc, SOON_MS));
	assert_int_equal(ibv_init_ah_from_wc(ctx, 1, &wc, (void *)(buf + 8192), &back), 0);
	assert_true(back.is_global && back.port_num == 1 && back.grh.sgid_index == 1);
	assert_memory_equal(back.grh.dgid.raw, gid.raw, 16);
	assert_int_equal(back.grh.traffic_class, 0x28);
	assert_int_equal(back.grh.hop_limit, 77);
	assert_true(!back.sl && !back.dlid && !back.grh.flow_label);
	gives(from.cq, SENDS, IBV_WC_SUCCESS);
	/* by IPv6 */
	struct ibv_grh six = {.version_tclass_flow = htobe32(6u << 28 | 0x2cu << 20 | 0x12345),
		.next_hdr = 17,
		.hop_limit = 9,
		.sgid = {.raw = {0xfd, 7, [15] = 5}}};
	assert_int_equal(ibv_query_gid(ctx, 1, 0, &six.dgid), 0);
	assert_int_equal(ibv_init_ah_from_wc(ctx, 1, &wc, &six, &back), 0);
	assert_memory_equal(back.grh.dgid.raw, six.sgid.raw, 16);
	assert_true(back.grh.traffic_class == 0x2c && back.grh.hop_limit == 9);
	assert_int_equal(back.grh.flow_label, 0x12345);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	pair_down();
}

/* ---- QPs made and destroyed one after another, on a busy machine ---- */

enum { BUSY = 3, ROUNDS = 60 };
static pid_t busy[BUSY];

/* Forked before there are threads; they wait until they are wanted. */
static void busy_make(void)
{
	for (int i = 0; i < BUSY; i++) {
		busy[i] = fork();
		if (busy[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		raise(SIGSTOP);
		for (;;)
			getppid();
	}
}

/* With the last QP its port closes, and the next one opens it anew: what is sent then belongs to
 * the new socket, though the service thread may not have run since. UC repeats nothing. */
static void a_port_opened_again_loses_nothing(void **state)
{
	for (int i = 0; i < BUSY; i++)
		kill(busy[i], SIGCONT);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
		pair_up(IBV_QPT_UC, NULL);
		usleep(1000); /* it waits in poll */
		take(TAKES, 8192, LEN, mr->lkey);
		post(&wr, LEN);
		gives(to.cq, TAKES, IBV_WC_SUCCESS);
		gives(from.cq, SENDS, IBV_WC_SUCCESS);
		pair_down();
	}
	for (int i = 0; i < BUSY; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], NULL, 0);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_shared_receive_is_checked_against_its_queues_domain),
		cmocka_unit_test(a_datagram_longer_than_its_receive_ends_no_receiver),
		cmocka_unit_test(nor_does_a_message_of_a_uc_peer),
		cmocka_unit_test(a_write_with_immediate_and_a_bad_key_fails_its_receive),
		cmocka_unit_test(an_answer_has_the_class_and_hops_of_what_came),
		cmocka_unit_test(a_port_opened_again_loses_nothing),
	};
	busy_make();
	if (argc > 1)
		setenv("ROPEWAY_WIRE", argv[1], 1);
	return cmocka_run_group_tests(tests, begin, NULL);
}
