/* SPDX-License-Identifier: BSD-3-Clause */
/* states.c - the states of a queue pair: which steps, with which attributes, and what is posted in
 * each. */
#include "probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The state in which a QP must be for the step to `to`. */
static enum ibv_qp_state before(enum ibv_qp_state to)
{
	return to == IBV_QPS_INIT ? IBV_QPS_RESET : to == IBV_QPS_RTR ? IBV_QPS_INIT : IBV_QPS_RTR;
}

static struct ibv_qp *qp_in(enum ibv_qp_type type, enum ibv_qp_state state)
{
	struct ibv_qp *qp = make_qp(make_cq(16), type);

	climb(qp, qp->qp_num, state);
	return qp;
}

/* a: the target; b: the attribute left out. */
static void ask_without(const struct question *q)
{
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	int mask;

	open_device();
	qp = qp_in(IBV_QPT_RC, before((enum ibv_qp_state)q->a));
	mask = step(IBV_QPT_RC, (enum ibv_qp_state)q->a, qp->qp_num, &attr);
	say_rc("ibv_modify_qp", ibv_modify_qp(qp, &attr, mask & ~(int)q->b));
}

/* a: the target; b: an attribute beside the required ones. */
static void ask_with(const struct question *q)
{
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	int mask;

	open_device();
	qp = qp_in(IBV_QPT_RC, before((enum ibv_qp_state)q->a));
	mask = step(IBV_QPT_RC, (enum ibv_qp_state)q->a, qp->qp_num, &attr);
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	attr.min_rnr_timer = 2;
	attr.cur_qp_state = before((enum ibv_qp_state)q->a);
	attr.path_mig_state = IBV_MIG_MIGRATED;
	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_port_num = 1;
	attr.qkey = 5;
	say_rc("ibv_modify_qp", ibv_modify_qp(qp, &attr, mask | (int)q->b));
}

/* An RTS QP is changed: b. */
static void ask_in_rts(const struct question *q)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
		.cur_qp_state = IBV_QPS_RTS,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.min_rnr_timer = 2,
		.timeout = 10,
		.retry_cnt = 3,
		.rnr_retry = 3,
		.path_mtu = IBV_MTU_512,
		.max_rd_atomic = 2,
		.max_dest_rd_atomic = 2,
		.sq_psn = 7,
		.rq_psn = 7,
		.dest_qp_num = 17,
		.port_num = 1,
		.path_mig_state = IBV_MIG_MIGRATED,
		.rate_limit = 1000,
		.qkey = 5,
		.alt_port_num = 1};

	open_device();
	say_rc("ibv_modify_qp", ibv_modify_qp(qp_in(IBV_QPT_RC, IBV_QPS_RTS), &attr, (int)q->b));
}

/* a: from; b: to. With all that a step to it wants. */
static void ask_step(const struct question *q)
{
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	int mask;

	open_device();
	qp = qp_in(IBV_QPT_RC, (enum ibv_qp_state)q->a);
	mask = step(IBV_QPT_RC, (enum ibv_qp_state)q->b, qp->qp_num, &attr);
	say_rc("ibv_modify_qp", ibv_modify_qp(qp, &attr, mask));
	say("then %s", state_word(state_of(qp)));
}

/* a: what is wrong; b: its value. */
enum {
	PORT,
	PKEY,
	MTU,
	RD,
	DEST_RD,
	RNR_TIMER,
	TIMEOUT,
	RETRY,
	RNR_RETRY,
	DEST_QPN,
	SQ_PSN,
	RQ_PSN,
	CUR_STATE,
	ACCESS,
	SL
};

static void ask_value(const struct question *q)
{
	static const enum ibv_qp_state to[] = {[PORT] = IBV_QPS_INIT,
		[PKEY] = IBV_QPS_INIT,
		[ACCESS] = IBV_QPS_INIT,
		[MTU] = IBV_QPS_RTR,
		[DEST_RD] = IBV_QPS_RTR,
		[RNR_TIMER] = IBV_QPS_RTR,
		[DEST_QPN] = IBV_QPS_RTR,
		[RQ_PSN] = IBV_QPS_RTR,
		[CUR_STATE] = IBV_QPS_RTR,
		[SL] = IBV_QPS_RTR,
		[RD] = IBV_QPS_RTS,
		[TIMEOUT] = IBV_QPS_RTS,
		[RETRY] = IBV_QPS_RTS,
		[RNR_RETRY] = IBV_QPS_RTS,
		[SQ_PSN] = IBV_QPS_RTS};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a, got;
	struct ibv_qp *qp;
	int mask, rc;

	open_device();
	qp = qp_in(IBV_QPT_RC, before(to[q->a]));
	mask = step(IBV_QPT_RC, to[q->a], qp->qp_num, &a);
	if (q->a == PORT)
		a.port_num = (uint8_t)q->b;
	else if (q->a == PKEY)
		a.pkey_index = (uint16_t)q->b;
	else if (q->a == MTU)
		a.path_mtu = (enum ibv_mtu)q->b;
	else if (q->a == RD)
		a.max_rd_atomic = (uint8_t)q->b;
	else if (q->a == DEST_RD)
		a.max_dest_rd_atomic = (uint8_t)q->b;
	else if (q->a == RNR_TIMER)
		a.min_rnr_timer = (uint8_t)q->b;
	else if (q->a == TIMEOUT)
		a.timeout = (uint8_t)q->b;
	else if (q->a == RETRY)
		a.retry_cnt = (uint8_t)q->b;
	else if (q->a == RNR_RETRY)
		a.rnr_retry = (uint8_t)q->b;
	else if (q->a == DEST_QPN)
		a.dest_qp_num = (uint32_t)q->b;
	else if (q->a == SQ_PSN)
		a.sq_psn = (uint32_t)q->b;
	else if (q->a == RQ_PSN)
		a.rq_psn = (uint32_t)q->b;
	else if (q->a == ACCESS)
		a.qp_access_flags = (unsigned)q->b;
	else if (q->a == SL)
		a.ah_attr.sl = (uint8_t)q->b;
	else
		a.cur_qp_state = (enum ibv_qp_state)q->b;
	rc = ibv_modify_qp(qp, &a, mask | (q->a == CUR_STATE ? IBV_QP_CUR_STATE : 0));
	say_rc("ibv_modify_qp", rc);
	if (rc)
		return;
	MUST(!ibv_query_qp(qp, &got, 0x1fffff, &init));
	if (q->a == RD)
		say("max_rd_atomic %u", got.max_rd_atomic);
	else if (q->a == DEST_RD)
		say("max_dest_rd_atomic %u", got.max_dest_rd_atomic);
	else if (q->a == MTU)
		say("path_mtu %d", got.path_mtu);
	else if (q->a == TIMEOUT)
		say("timeout %u", got.timeout);
	else if (q->a == RNR_TIMER)
		say("min_rnr_timer %u", got.min_rnr_timer);
	else if (q->a == RETRY)
		say("retry_cnt %u", got.retry_cnt);
	else if (q->a == RNR_RETRY)
		say("rnr_retry %u", got.rnr_retry);
	else if (q->a == DEST_QPN)
		say("dest_qp_num %#x", got.dest_qp_num);
	else if (q->a == SQ_PSN)
		say("sq_psn %#x", got.sq_psn);
	else if (q->a == RQ_PSN)
		say("rq_psn %#x", got.rq_psn);
	else if (q->a == ACCESS)
		say("access %#x", got.qp_access_flags);
	else if (q->a == SL)
		say("sl %u", got.ah_attr.sl);
	else if (q->a == PKEY)
		say("pkey_index %u", got.pkey_index);
}

static void ask_ud_step(const struct question *q)
{
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	int mask;

	open_device();
	qp = qp_in((enum ibv_qp_type)q->a, IBV_QPS_RESET);
	mask = step(qp->qp_type, IBV_QPS_INIT, 0, &attr);
	attr.qkey = 0x80000001;
	say_rc("ibv_modify_qp",
		ibv_modify_qp(qp, &attr, (mask | (int)q->b) & ~(q->b ? 0 : IBV_QP_QKEY)));
}

static void ask_qkey_high(const struct question *q)
{
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	int mask;

	(void)q;
	open_device();
	qp = qp_in(IBV_QPT_UD, IBV_QPS_RESET);
	mask = step(IBV_QPT_UD, IBV_QPS_INIT, 0, &attr);
	attr.qkey = 0x80001234;
	say_rc("ibv_modify_qp", ibv_modify_qp(qp, &attr, mask));
}

/* ---- what ibv_query_qp says ---- */

static void query_in(enum ibv_qp_state state, struct ibv_qp_attr *a)
{
	struct ibv_qp_init_attr init;

	open_device();
	MUST(!ibv_query_qp(qp_in(IBV_QPT_RC, state), a, 0x1fffff, &init));
}

static void ask_query_states(const struct question *q)
{
	struct ibv_qp_attr a;

	query_in((enum ibv_qp_state)q->a, &a);
	/* Not sq_draining: rxe says it until a work queue has run. */
	say("%s, cur %s, en_sqd_async_notify %u", state_word(a.qp_state),
		state_word(a.cur_qp_state), a.en_sqd_async_notify);
}

static void ask_query_timers(const struct question *q)
{
	struct ibv_qp_attr a;

	(void)q;
	query_in(IBV_QPS_RTS, &a);
	say("timeout %u, retry_cnt %u, rnr_retry %u, min_rnr_timer %u, path_mtu %d", a.timeout,
		a.retry_cnt, a.rnr_retry, a.min_rnr_timer, a.path_mtu);
}

static void ask_query_psns(const struct question *q)
{
	struct ibv_qp_attr a;

	(void)q;
	query_in(IBV_QPS_RTS, &a);
	say("sq_psn %u, rq_psn %u, dest_qp_num %s", a.sq_psn, a.rq_psn,
		a.dest_qp_num ? "set" : "0");
}

static void ask_query_access(const struct question *q)
{
	struct ibv_qp_attr a;

	(void)q;
	query_in(IBV_QPS_RTS, &a);
	say("access %#x, max_rd_atomic %u, max_dest_rd_atomic %u, qkey %#x", a.qp_access_flags,
		a.max_rd_atomic, a.max_dest_rd_atomic, a.qkey);
}

static void ask_query_av(const struct question *q)
{
	struct ibv_qp_attr a;

	(void)q;
	query_in(IBV_QPS_RTS, &a);
	say("is_global %u, port %u, sl %u, dlid %u, src_path_bits %u, static_rate %u",
		a.ah_attr.is_global, a.ah_attr.port_num, a.ah_attr.sl, a.ah_attr.dlid,
		a.ah_attr.src_path_bits, a.ah_attr.static_rate);
	say("dgid %s, sgid_index %s, flow_label %u, traffic_class %u",
		memcmp(&a.ah_attr.grh.dgid, &gid, 16) ? "another" : "right",
		a.ah_attr.grh.sgid_index == gid_index ? "right" : "another",
		a.ah_attr.grh.flow_label, a.ah_attr.grh.traffic_class);
}

static void ask_query_hops(const struct question *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct ibv_qp *qp;
	int mask;

	open_device();
	qp = qp_in(IBV_QPT_RC, IBV_QPS_INIT);
	mask = step(IBV_QPT_RC, IBV_QPS_RTR, qp->qp_num, &a);
	a.ah_attr.grh.hop_limit = (uint8_t)q->a;
	a.ah_attr.grh.traffic_class = 0x28;
	a.ah_attr.grh.flow_label = 5;
	MUST(!ibv_modify_qp(qp, &a, mask));
	MUST(!ibv_query_qp(qp, &a, IBV_QP_AV, &init));
	say("hop_limit %u, traffic_class %#x, flow_label %u", a.ah_attr.grh.hop_limit,
		a.ah_attr.grh.traffic_class, a.ah_attr.grh.flow_label);
}

static void ask_query_alt(const struct question *q)
{
	struct ibv_qp_attr a;

	(void)q;
	query_in(IBV_QPS_RTS, &a);
	say("path_mig_state %d, alt_port_num %u, alt_timeout %u, alt_pkey_index %u",
		a.path_mig_state, a.alt_port_num, a.alt_timeout, a.alt_pkey_index);
}

static void ask_query_mask(const struct question *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	open_device();
	memset(&a, 0xee, sizeof(a));
	say_rc("ibv_query_qp", ibv_query_qp(qp_in(IBV_QPT_RC, IBV_QPS_RTS), &a, (int)q->a, &init));
	say("state %s", a.qp_state == IBV_QPS_RTS ? "filled in" : "not");
}

static void ask_query_ud(const struct question *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	(void)q;
	open_device();
	MUST(!ibv_query_qp(qp_in(IBV_QPT_UD, IBV_QPS_RTS), &a, 0x1fffff, &init));
	say("%s, qkey %#x, port %u, pkey_index %u, sq_psn %u, path_mtu %d", state_word(a.qp_state),
		a.qkey, a.port_num, a.pkey_index, a.sq_psn, a.path_mtu);
}

/* After RESET nothing is left of what was set. */
static void ask_query_reset(const struct question *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct ibv_qp *qp;

	(void)q;
	open_device();
	qp = qp_in(IBV_QPT_RC, IBV_QPS_RTS);
	MUST(!to_state(qp, IBV_QPS_RESET));
	MUST(!ibv_query_qp(qp, &a, 0x1fffff, &init));
	say("%s, timeout %u, retry_cnt %u, path_mtu %d, access %#x, dest_qp_num %s, port %u",
		state_word(a.qp_state), a.timeout, a.retry_cnt, a.path_mtu, a.qp_access_flags,
		a.dest_qp_num ? "left" : "0", a.port_num);
}

/* ---- posting in each state ---- */

static void ask_post_in(const struct question *q)
{
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_send_wr *bad = NULL,
			   wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;
	int rc;

	open_device();
	qp = make_qp(cq = make_cq(16), (enum ibv_qp_type)q->b);
	climb(qp, qp->qp_num, (enum ibv_qp_state)q->a);
	if (q->b == IBV_QPT_UD) {
		wr.wr.ud.ah = make_ah();
		wr.wr.ud.remote_qpn = qp->qp_num;
		wr.wr.ud.remote_qkey = 0x11111111;
	}
	rc = ibv_post_send(qp, &wr, &bad);
	say_rc("ibv_post_send", rc);
	if (rc)
		say("bad_wr %s", bad == &wr ? "set" : "not set");
	if (q->a == IBV_QPS_ERR || q->a == IBV_QPS_SQD)
		say("%s", poll_for(cq, &wc, 400) ? status_word(wc.status) : "no completion");
}

static void ask_receive_in(const struct question *q)
{
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_recv_wr *bad = NULL, wr = {.wr_id = 1};
	struct ibv_wc wc;

	open_device();
	qp = make_qp(cq = make_cq(16), IBV_QPT_RC);
	climb(qp, qp->qp_num, (enum ibv_qp_state)q->a);
	say_rc("ibv_post_recv", ibv_post_recv(qp, &wr, &bad));
	if (q->a == IBV_QPS_ERR)
		say("%s", poll_for(cq, &wc, 400) ? status_word(wc.status) : "no completion");
}

/* Posted in SQD, completed in RTS. */
static void ask_sqd(const struct question *q)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct side a, b;
	int rc;

	(void)q;
	make_pair(&a, &b, NULL);
	rc = ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
	say_rc("to SQD", rc);
	if (rc)
		return;
	say_events("events", 300);
	say_rc("WRITE posted", post(&a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)b.buf, b.mr->rkey));
	sleep_ms(200);
	say_rc("to RTS", to_state(a.qp, IBV_QPS_RTS));
	say_completion("WRITE", a.cq, false);
}

/* A pair that was reset and connected anew works. */
static void ask_again(const struct question *q)
{
	struct side a, b;

	(void)q;
	make_pair(&a, &b, NULL);
	MUST(!post_receive(&b, 0, 64));
	MUST(!to_state(a.qp, IBV_QPS_RESET) && !to_state(b.qp, IBV_QPS_RESET));
	climb(a.qp, b.qp->qp_num, IBV_QPS_RTS);
	climb(b.qp, a.qp->qp_num, IBV_QPS_RTS);
	MUST(!post_receive(&b, PAGE, 64));
	pattern_fill(a.buf, 32, 9);
	MUST(!post(&a, IBV_WR_SEND, 0, 32, 0, 0));
	say_completion("SEND", a.cq, false);
	say_completion("receive", b.cq, false);
	say("into the receive posted %s RESET",
		pattern_holds(b.buf + PAGE, 32, 9) ? "after" : "before");
}

#define WITHOUT(to, attr) \
	{ \
		"modify." #to ".without_" #attr, #to " without IBV_QP_" #attr, ask_without, \
			IBV_QPS_##to, IBV_QP_##attr \
	}
#define WITH(to, attr) \
	{ \
		"modify." #to ".with_" #attr, #to " with IBV_QP_" #attr, ask_with, IBV_QPS_##to, \
			IBV_QP_##attr \
	}
#define IN_RTS(attr) \
	{ \
		"modify.in_RTS." #attr, "in RTS, IBV_QP_" #attr " alone", ask_in_rts, 0, \
			IBV_QP_##attr \
	}
#define STEP(from, to) \
	{ \
		"step." #from "_" #to, #from " to " #to, ask_step, IBV_QPS_##from, IBV_QPS_##to \
	}
#define POST(state, type) \
	{ \
		"post.in." #type "_" #state, "ibv_post_send in " #state ", " #type, ask_post_in, \
			IBV_QPS_##state, IBV_QPT_##type \
	}
#define RECEIVE(state) \
	{ \
		"receive.in." #state, "ibv_post_recv in " #state, ask_receive_in, IBV_QPS_##state, \
			0 \
	}

const struct question state_questions[] = {WITHOUT(INIT, PKEY_INDEX), WITHOUT(INIT, PORT),
	WITHOUT(INIT, ACCESS_FLAGS), WITHOUT(RTR, AV), WITHOUT(RTR, PATH_MTU),
	WITHOUT(RTR, DEST_QPN), WITHOUT(RTR, RQ_PSN), WITHOUT(RTR, MAX_DEST_RD_ATOMIC),
	WITHOUT(RTR, MIN_RNR_TIMER), WITHOUT(RTS, TIMEOUT), WITHOUT(RTS, RETRY_CNT),
	WITHOUT(RTS, RNR_RETRY), WITHOUT(RTS, SQ_PSN), WITHOUT(RTS, MAX_QP_RD_ATOMIC),
	WITH(INIT, QKEY), WITH(INIT, TIMEOUT), WITH(RTR, ACCESS_FLAGS), WITH(RTR, PKEY_INDEX),
	WITH(RTR, ALT_PATH), WITH(RTR, TIMEOUT), WITH(RTR, CUR_STATE), WITH(RTS, CUR_STATE),
	WITH(RTS, ACCESS_FLAGS), WITH(RTS, MIN_RNR_TIMER), WITH(RTS, PATH_MIG_STATE),
	WITH(RTS, PATH_MTU), WITH(RTS, RATE_LIMIT), IN_RTS(ACCESS_FLAGS), IN_RTS(MIN_RNR_TIMER),
	IN_RTS(TIMEOUT), IN_RTS(RETRY_CNT), IN_RTS(RNR_RETRY), IN_RTS(PATH_MTU), IN_RTS(SQ_PSN),
	IN_RTS(RQ_PSN), IN_RTS(DEST_QPN), IN_RTS(PORT), IN_RTS(MAX_QP_RD_ATOMIC),
	IN_RTS(PATH_MIG_STATE), IN_RTS(RATE_LIMIT), IN_RTS(QKEY), IN_RTS(CUR_STATE),
	{"modify.nothing", "in RTS, an empty mask", ask_in_rts, 0, 0},
	{"modify.mask", "in RTS, a mask bit that is none", ask_in_rts, 0, 1 << 30},
	STEP(RESET, RTR), STEP(RESET, RTS), STEP(RESET, ERR), STEP(RESET, RESET), STEP(INIT, INIT),
	STEP(INIT, RTS), STEP(INIT, ERR), STEP(INIT, RESET), STEP(RTR, INIT), STEP(RTR, RTR),
	STEP(RTR, SQD), STEP(RTS, INIT), STEP(RTS, RTR), STEP(RTS, SQD), STEP(RTS, RESET),
	STEP(SQD, RTR), STEP(ERR, RTS), STEP(ERR, INIT), STEP(ERR, RESET), STEP(ERR, ERR),
	{"value.port_0", "INIT, port 0", ask_value, PORT, 0},
	{"value.port_2", "INIT, port 2", ask_value, PORT, 2},
	{"value.pkey_1", "INIT, P_Key index 1", ask_value, PKEY, 1},
	{"value.access_unknown", "INIT, an access flag that is none", ask_value, ACCESS, 1 << 18},
	{"value.access_local", "INIT, LOCAL_WRITE alone", ask_value, ACCESS,
		IBV_ACCESS_LOCAL_WRITE},
	{"value.access_0", "INIT, no access", ask_value, ACCESS, 0},
	{"value.access_relaxed", "INIT, RELAXED_ORDERING", ask_value, ACCESS,
		IBV_ACCESS_RELAXED_ORDERING},
	{"value.mtu_0", "RTR, path MTU 0", ask_value, MTU, 0},
	{"value.mtu_6", "RTR, path MTU 6", ask_value, MTU, 6},
	{"value.mtu_4096", "RTR, path MTU 4096 on a port of 1024", ask_value, MTU, IBV_MTU_4096},
	{"value.dest_rd_0", "RTR, max_dest_rd_atomic 0", ask_value, DEST_RD, 0},
	{"value.dest_rd_3", "RTR, max_dest_rd_atomic 3", ask_value, DEST_RD, 3},
	{"value.dest_rd_129", "RTR, max_dest_rd_atomic 129", ask_value, DEST_RD, 129},
	{"value.rnr_timer_0", "RTR, min_rnr_timer 0", ask_value, RNR_TIMER, 0},
	{"value.rnr_timer_32", "RTR, min_rnr_timer 32", ask_value, RNR_TIMER, 32},
	{"value.dest_qpn", "RTR, a destination QPN of 25 bits", ask_value, DEST_QPN, 0x1000001},
	{"value.rq_psn", "RTR, a PSN of 25 bits", ask_value, RQ_PSN, 0x1000005},
	{"value.sl_16", "RTR, SL 16", ask_value, SL, 16},
	{"value.cur_state", "RTR, a current state that is not", ask_value, CUR_STATE, IBV_QPS_RTS},
	{"value.rd_0", "RTS, max_rd_atomic 0", ask_value, RD, 0},
	{"value.rd_3", "RTS, max_rd_atomic 3", ask_value, RD, 3},
	{"value.rd_129", "RTS, max_rd_atomic 129", ask_value, RD, 129},
	{"value.timeout_0", "RTS, timeout 0", ask_value, TIMEOUT, 0},
	{"value.timeout_1", "RTS, timeout 1", ask_value, TIMEOUT, 1},
	{"value.timeout_12", "RTS, timeout 12", ask_value, TIMEOUT, 12},
	{"value.timeout_31", "RTS, timeout 31", ask_value, TIMEOUT, 31},
	{"value.timeout_32", "RTS, timeout 32", ask_value, TIMEOUT, 32},
	{"value.retry_8", "RTS, retry_cnt 8", ask_value, RETRY, 8},
	{"value.rnr_retry_8", "RTS, rnr_retry 8", ask_value, RNR_RETRY, 8},
	{"value.sq_psn", "RTS, a PSN of 25 bits", ask_value, SQ_PSN, 0x1000005},
	{"value.qkey_high", "INIT of a UD QP, Q_Key 0x80001234", ask_qkey_high, 0, 0},
	{"value.ud_no_qkey", "INIT of a UD QP without a Q_Key", ask_ud_step, IBV_QPT_UD, 0},
	{"value.ud_access", "INIT of a UD QP with access flags", ask_ud_step, IBV_QPT_UD,
		IBV_QP_ACCESS_FLAGS},
	{"query.RESET", "ibv_query_qp in RESET", ask_query_states, IBV_QPS_RESET, 0},
	{"query.INIT", "ibv_query_qp in INIT", ask_query_states, IBV_QPS_INIT, 0},
	{"query.RTR", "ibv_query_qp in RTR", ask_query_states, IBV_QPS_RTR, 0},
	{"query.RTS", "ibv_query_qp in RTS", ask_query_states, IBV_QPS_RTS, 0},
	{"query.SQD", "ibv_query_qp in SQD", ask_query_states, IBV_QPS_SQD, 0},
	{"query.ERR", "ibv_query_qp in ERR", ask_query_states, IBV_QPS_ERR, 0},
	{"query.timers", "ibv_query_qp, timers", ask_query_timers, 0, 0},
	{"query.psns", "ibv_query_qp, PSNs", ask_query_psns, 0, 0},
	{"query.access", "ibv_query_qp, access", ask_query_access, 0, 0},
	{"query.av", "ibv_query_qp, address vector", ask_query_av, 0, 0},
	{"query.hops_0", "ibv_query_qp after hop limit 0", ask_query_hops, 0, 0},
	{"query.hops_1", "ibv_query_qp after hop limit 1", ask_query_hops, 1, 0},
	{"query.hops_255", "ibv_query_qp after hop limit 255", ask_query_hops, 255, 0},
	{"query.alt", "ibv_query_qp, alternate path", ask_query_alt, 0, 0},
	{"query.mask_0", "ibv_query_qp, an empty mask", ask_query_mask, 0, 0},
	{"query.mask_none", "ibv_query_qp, a mask bit that is none", ask_query_mask, 1 << 30, 0},
	{"query.ud", "ibv_query_qp of a UD QP", ask_query_ud, 0, 0},
	{"query.after_reset", "ibv_query_qp after RESET", ask_query_reset, 0, 0}, POST(RESET, RC),
	POST(INIT, RC), POST(RTR, RC), POST(SQD, RC), POST(ERR, RC), POST(RESET, UD),
	POST(INIT, UD), POST(RTR, UD), POST(ERR, UD), POST(INIT, UC), POST(ERR, UC), RECEIVE(RESET),
	RECEIVE(INIT), RECEIVE(RTR), RECEIVE(RTS), RECEIVE(SQD), RECEIVE(ERR),
	{"step.drain", "SQD with a request for the event, a WRITE posted, RTS", ask_sqd, 0, 0},
	{"step.reconnect", "a pair that was RESET and connected again", ask_again, 0, 0}, {0}};
