/* SPDX-License-Identifier: BSD-3-Clause */
/* faults.c - requests that the peer refuses or does not answer: the status on each side, the state
 * of each QP, the events. */
#include "probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void say_outcome(struct side *a, struct side *b)
{
	struct ibv_wc wc;

	say_completion("requester", a->cq, false);
	if (poll_for(b->cq, &wc, 300))
		say("responder: %s", status_word(wc.status));
	else
		say("responder: no completion");
	say("QPs %s and %s", state_word(state_of(a->qp)), state_word(state_of(b->qp)));
	say_events("events", 300);
}

/* a: the opcode; b: what is wrong. */
enum {
	KEY,
	BEYOND,
	NO_ACCESS_MR,
	NO_ACCESS_QP,
	MISALIGNED,
	OTHER_PD,
	SHORT_RECEIVE,
	NO_READS,
	KEY_BYTE
};

static void ask_access(const struct question *q)
{
	enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)q->a;
	bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct how how = {.access = q->b == NO_ACCESS_QP ? -1 : 0,
		.mr_access = q->b == NO_ACCESS_MR ? -1 : 0,
		.rd_atomic = q->b == NO_READS ? -1 : 0};
	struct side a, b;
	uint64_t at;
	uint32_t key;

	make_pair(&a, &b, &how);
	at = (uintptr_t)b.buf;
	key = b.mr->rkey;
	if (q->b == KEY)
		key = 0x77777700;
	else if (q->b == KEY_BYTE)
		key ^= 0x55;
	else if (q->b == BEYOND)
		at += BUF - 4;
	else if (q->b == MISALIGNED)
		at += 4;
	else if (q->b == OTHER_PD) {
		struct ibv_pd *other = ibv_alloc_pd(ctx);
		struct ibv_mr *mr;

		MUST(other && (mr = ibv_reg_mr(other, b.buf, BUF, ALL_ACCESS)));
		key = mr->rkey;
	} else if (q->b == SHORT_RECEIVE) {
		MUST(!post_receive(&b, 0, 16));
	}
	/* One receive that is flushed tells more of the responder than none. */
	if (q->b != SHORT_RECEIVE)
		MUST(!post_receive(&b, PAGE, 64));
	say_rc("post", post(&a, opcode, 0, atomic ? 8 : 64, at, key));
	say_outcome(&a, &b);
}

/* Nobody answers: a is the peer's state (or -1: its QP is gone). */
static void ask_silence(const struct question *q)
{
	struct how how = {.timeout = 12, .retry_cnt = 2, .stop = IBV_QPS_INIT};
	struct side a, b;
	struct ibv_wc wc;
	uint32_t qpn;

	make_pair(&a, &b, &how);
	qpn = b.qp->qp_num;
	MUST(!to_rtr(a.qp, qpn, &how) && !to_rts(a.qp, &how));
	if (q->a < 0)
		MUST(!ibv_destroy_qp(b.qp));
	else
		MUST(!to_state(b.qp, (enum ibv_qp_state)q->a));
	MUST(!post_receive(&a, 0, 64));
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 16, (uintptr_t)b.buf, b.mr->rkey));
	if (!poll_for(a.cq, &wc, 20000)) {
		say("no completion within 20 s");
		return;
	}
	say("%s, vendor_err %u", status_word(wc.status), wc.vendor_err);
	say("the receive posted here: %s",
		poll_for(a.cq, &wc, 500) ? status_word(wc.status) : "not flushed");
	say("QP %s", state_word(state_of(a.qp)));
	say_events("events", 300);
}

/* 4.096 us * 2^timeout for each of retry_cnt + 1 tries is the specification's least, and four times
 * that its most: with timeout a and retry_cnt b. */
static void ask_retry_time(const struct question *q)
{
	struct how how = {
		.timeout = (int)q->a, .retry_cnt = q->b ? (int)q->b : -1, .stop = IBV_QPS_INIT};
	double least = 4.096e-6 * (double)(1 << q->a) * (double)(q->b + 1), began, took;
	struct side a, b;
	struct ibv_wc wc;

	make_pair(&a, &b, &how);
	MUST(!to_rtr(a.qp, b.qp->qp_num, &how) && !to_rts(a.qp, &how));
	began = now();
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 16, (uintptr_t)b.buf, b.mr->rkey));
	if (!poll_for(a.cq, &wc, 30000)) {
		say("no completion within 30 s");
		return;
	}
	took = now() - began;
	say("%s after %s", status_word(wc.status),
		took < 0.9 * least   ? "less than the least time"
		: took < 4.6 * least ? "1 to 4 times the least time"
				     : "more than 4 times the least time");
}

static void ask_no_timeout(const struct question *q)
{
	struct how how = {.timeout = -1, .retry_cnt = 1, .stop = IBV_QPS_INIT};
	struct side a, b;
	struct ibv_wc wc;

	(void)q;
	make_pair(&a, &b, &how);
	MUST(!to_rtr(a.qp, b.qp->qp_num, &how) && !to_rts(a.qp, &how));
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 16, (uintptr_t)b.buf, b.mr->rkey));
	say("%s", poll_for(a.cq, &wc, 4000) ? status_word(wc.status) : "nothing within 4 s");
}

/* No receive: rnr_retry a, the responder's timer b. */
static void ask_rnr(const struct question *q)
{
	struct how how = {
		.rnr_retry = q->a ? (int)q->a : -1, .min_rnr_timer = q->b ? (int)q->b : -1};
	struct side a, b;
	struct ibv_wc wc;
	double began;

	make_pair(&a, &b, &how);
	began = now();
	MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	if (!poll_for(a.cq, &wc, 4000)) {
		say("no completion within 4 s");
	} else {
		double took = now() - began;

		if (q->b == 0)
			say("%s after %s", status_word(wc.status),
				took < 0.6   ? "less than 0.65 s"
				: took < 1.6 ? "0.65 s or more"
					     : "much more");
		else
			say("%s", status_word(wc.status));
	}
	say("QPs %s and %s", state_word(state_of(a.qp)), state_word(state_of(b.qp)));
	say_events("events", 300);
}

static void ask_rnr_late(const struct question *q)
{
	struct side a, b;

	(void)q;
	make_pair(&a, &b, NULL);
	pattern_fill(a.buf, 64, 2);
	MUST(!post(&a, IBV_WR_SEND, 0, 64, 0, 0));
	sleep_ms(300);
	MUST(!post_receive(&b, 0, 64));
	say_completion("SEND", a.cq, false);
	say_completion("receive", b.cq, false);
	if (!pattern_holds(b.buf, 64, 2))
		wrong_bytes("a receive posted late");
}

static void ask_imm_no_receive(const struct question *q)
{
	struct how how = {.rnr_retry = -1};
	struct side a, b;

	(void)q;
	make_pair(&a, &b, &how);
	pattern_fill(a.buf, 64, 2);
	MUST(!post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 64, (uintptr_t)b.buf, b.mr->rkey));
	say_completion("WRITE_WITH_IMM", a.cq, false);
	sleep_ms(100);
	say("bytes %s", pattern_holds(b.buf, 64, 2) ? "written" : "not written");
}

/* What follows a request that fails. */
static void ask_after(const struct question *q)
{
	struct side a, b;
	struct ibv_wc wc;
	char words[200] = "";

	(void)q;
	make_pair(&a, &b, NULL);
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 16, (uintptr_t)b.buf, b.mr->rkey));
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 16, (uintptr_t)b.buf, 0x77777700));
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 64, 16, (uintptr_t)b.buf + 64, b.mr->rkey));
	MUST(!post(&a, IBV_WR_RDMA_READ, 64, 16, (uintptr_t)b.buf + 64, b.mr->rkey));
	while (poll_for(a.cq, &wc, 500)) {
		strcat(words, *words ? ", " : "");
		strcat(words, status_word(wc.status));
	}
	say("%s", words);
}

/* The peer's QP is at fault, and so is ours: what do they say of the next request from there? */
static void ask_peer_in_error(const struct question *q)
{
	struct how how = {.timeout = 12, .retry_cnt = 2};
	struct side a, b;
	struct ibv_wc wc;

	(void)q;
	make_pair(&a, &b, &how);
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 16, (uintptr_t)b.buf, 0x77777700));
	say_completion("first", a.cq, false);
	say_rc("a request of the responder: post",
		post(&b, IBV_WR_RDMA_WRITE, 0, 16, (uintptr_t)a.buf, a.mr->rkey));
	say("%s", poll_for(b.cq, &wc, 4000) ? status_word(wc.status) : "no completion");
}

/* PSNs that do not fit: the first request is out of order. */
static void ask_psn(const struct question *q)
{
	struct how how = {.timeout = 12, .retry_cnt = 2, .stop = IBV_QPS_INIT};
	struct ibv_qp_attr attr;
	struct side a, b;
	int mask;

	make_pair(&a, &b, &how);
	mask = step(IBV_QPT_RC, IBV_QPS_RTR, a.qp->qp_num, &attr);
	attr.rq_psn = (uint32_t)q->a;
	MUST(!ibv_modify_qp(b.qp, &attr, mask));
	MUST(!to_rts(b.qp, &how));
	MUST(!to_rtr(a.qp, b.qp->qp_num, &how) && !to_rts(a.qp, &how));
	pattern_fill(a.buf, 64, 6);
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)b.buf, b.mr->rkey));
	say_completion("WRITE", a.cq, false);
	say("bytes %s", pattern_holds(b.buf, 64, 6) ? "written" : "not written");
	say("QPs %s and %s", state_word(state_of(a.qp)), state_word(state_of(b.qp)));
}

/* Path MTUs that differ: a SEND of 600 bytes from a side of 1024 to one of 256. */
static void ask_mtu(const struct question *q)
{
	struct how how = {.timeout = 12, .retry_cnt = 2, .stop = IBV_QPS_INIT};
	struct ibv_qp_attr attr;
	struct side a, b;
	int mask;

	make_pair(&a, &b, &how);
	mask = step(IBV_QPT_RC, IBV_QPS_RTR, a.qp->qp_num, &attr);
	attr.path_mtu = IBV_MTU_256;
	if (q->a) {
		attr.dest_qp_num = b.qp->qp_num;
		MUST(!ibv_modify_qp(a.qp, &attr, mask));
		MUST(!to_rtr(b.qp, a.qp->qp_num, &how));
	} else {
		MUST(!ibv_modify_qp(b.qp, &attr, mask));
		MUST(!to_rtr(a.qp, b.qp->qp_num, &how));
	}
	MUST(!to_rts(a.qp, &how) && !to_rts(b.qp, &how));
	MUST(!post_receive(&b, 0, 4096));
	MUST(!post(&a, IBV_WR_SEND, 0, 600, 0, 0));
	say_outcome(&a, &b);
}

#define ACCESS(op, fault, text) \
	{ \
		"access." #op "_" #fault, #op ": " text, ask_access, IBV_WR_##op, fault \
	}

const struct question fault_questions[] = {ACCESS(RDMA_WRITE, KEY, "a key that is none"),
	ACCESS(RDMA_WRITE, KEY_BYTE, "the key of another generation"),
	ACCESS(RDMA_WRITE, BEYOND, "beyond the region"),
	ACCESS(RDMA_WRITE, NO_ACCESS_MR, "a region without the right"),
	ACCESS(RDMA_WRITE, NO_ACCESS_QP, "a QP without the right"),
	ACCESS(RDMA_WRITE, OTHER_PD, "a region of another PD"),
	ACCESS(RDMA_WRITE_WITH_IMM, KEY, "a key that is none"),
	ACCESS(RDMA_READ, KEY, "a key that is none"),
	ACCESS(RDMA_READ, BEYOND, "beyond the region"),
	ACCESS(RDMA_READ, NO_ACCESS_MR, "a region without the right"),
	ACCESS(RDMA_READ, NO_ACCESS_QP, "a QP without the right"),
	ACCESS(RDMA_READ, NO_READS, "max_rd_atomic 0"),
	ACCESS(ATOMIC_FETCH_AND_ADD, KEY, "a key that is none"),
	ACCESS(ATOMIC_FETCH_AND_ADD, NO_ACCESS_MR, "a region without the right"),
	ACCESS(ATOMIC_FETCH_AND_ADD, NO_ACCESS_QP, "a QP without the right"),
	ACCESS(ATOMIC_FETCH_AND_ADD, MISALIGNED, "an address that is no multiple of 8"),
	ACCESS(ATOMIC_CMP_AND_SWP, MISALIGNED, "an address that is no multiple of 8"),
	ACCESS(SEND, SHORT_RECEIVE, "a receive that is too short"),
	{"silence.RESET", "WRITE to a QP in RESET", ask_silence, IBV_QPS_RESET, 0},
	{"silence.ERR", "WRITE to a QP in ERR", ask_silence, IBV_QPS_ERR, 0},
	{"silence.gone", "WRITE to a QP that is gone", ask_silence, -1, 0},
	{"retry.12_2", "the time until a request fails: timeout 12, retry_cnt 2", ask_retry_time,
		12, 2},
	{"retry.14_7", "the time until a request fails: timeout 14, retry_cnt 7", ask_retry_time,
		14, 7},
	{"retry.16_0", "the time until a request fails: timeout 16, retry_cnt 0", ask_retry_time,
		16, 0},
	{"retry.5_1", "the time until a request fails: timeout 5, retry_cnt 1", ask_retry_time, 5,
		1},
	{"retry.no_timeout", "timeout 0", ask_no_timeout, 0, 0},
	{"rnr.0", "rnr_retry 0", ask_rnr, 0, 1}, {"rnr.1", "rnr_retry 1, timer 1", ask_rnr, 1, 1},
	{"rnr.1_timer_0", "rnr_retry 1, timer 0", ask_rnr, 1, 0},
	{"rnr.7", "rnr_retry 7", ask_rnr, 7, 1},
	{"rnr.late", "a receive posted after the SEND", ask_rnr_late, 0, 0},
	{"rnr.imm", "WRITE_WITH_IMM without a receive", ask_imm_no_receive, 0, 0},
	{"after.failure", "the requests after one that fails", ask_after, 0, 0},
	{"after.responder", "a request of the QP that refused one", ask_peer_in_error, 0, 0},
	{"psn.ahead", "a responder that expects a later PSN", ask_psn, 200, 0},
	{"psn.behind", "a responder that expects an earlier PSN", ask_psn, 50, 0},
	{"mtu.smaller", "SEND of 600 bytes to a QP with path MTU 256", ask_mtu, 0, 0},
	{"mtu.larger", "SEND of 600 bytes from a QP with path MTU 256", ask_mtu, 1, 0}, {0}};
