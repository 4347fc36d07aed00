/* SPDX-License-Identifier: BSD-3-Clause */
/* posts.c - work requests that a queue takes or refuses, and what a queue that is flushed says. */
#include "probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	SGE_5,
	SGE_NEGATIVE,
	INLINE_65,
	INLINE_READ,
	OPCODE_99,
	ATOMIC_4,
	ATOMIC_16,
	TSO,
	FLAG_NONE,
	UNSIGNALED_SIG_ALL,
	INLINE_BAD_LKEY,
	SEND_INV_NONE,
	DRIVER
};

/* One request that is odd, on a pair that is well: b is the type of the QPs. */
static void ask_odd(const struct question *q)
{
	struct how how = {.type = (enum ibv_qp_type)q->b};
	struct side a, b;
	struct ibv_sge sge[5];
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
		.sg_list = sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED};
	int rc;

	make_pair(&a, &b, &how);
	for (int i = 0; i < 5; i++)
		sge[i] =
			(struct ibv_sge){.addr = (uintptr_t)a.buf, .length = 8, .lkey = a.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)b.buf;
	wr.wr.rdma.rkey = b.mr->rkey;
	switch (q->a) {
	case SGE_5:
		wr.num_sge = 33;
		break;
	case SGE_NEGATIVE:
		wr.num_sge = -1;
		break;
	case INLINE_65:
		wr.send_flags |= IBV_SEND_INLINE;
		sge[0].length = 2000;
		break;
	case INLINE_READ:
		wr.opcode = IBV_WR_RDMA_READ;
		wr.send_flags |= IBV_SEND_INLINE;
		break;
	case OPCODE_99:
		wr.opcode = 99;
		break;
	case ATOMIC_4:
	case ATOMIC_16:
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
		wr.wr.atomic.rkey = b.mr->rkey;
		sge[0].length = q->a == ATOMIC_4 ? 4 : 16;
		break;
	case TSO:
		wr.opcode = IBV_WR_TSO;
		break;
	case DRIVER:
		wr.opcode = IBV_WR_DRIVER1;
		break;
	case FLAG_NONE:
		wr.send_flags |= 1 << 20;
		break;
	case UNSIGNALED_SIG_ALL:
		wr.send_flags = 0;
		break;
	case INLINE_BAD_LKEY:
		wr.send_flags |= IBV_SEND_INLINE;
		sge[0].lkey = 0x77777700;
		break;
	default:
		wr.opcode = IBV_WR_SEND_WITH_INV;
		wr.invalidate_rkey = 0x77777700;
		MUST(!post_receive(&b, 0, 64));
	}
	rc = post_wr(&a, &wr);
	say_rc("ibv_post_send", rc);
	if (!rc)
		say_completion("completion", a.cq, false);
	say("QP %s", state_word(state_of(a.qp)));
	if (q->a == SEND_INV_NONE)
		say_completion("receive", b.cq, false);
}

/* A service that the QP does not have: a is the opcode, b the type. */
static void ask_service(const struct question *q)
{
	struct ibv_send_wr wr = {
		.opcode = (enum ibv_wr_opcode)q->a, .send_flags = IBV_SEND_SIGNALED};
	struct how how = {.type = (enum ibv_qp_type)q->b};
	struct side a, b;

	make_pair(&a, &b, &how);
	if (q->b == IBV_QPT_UD) {
		wr.wr.ud.ah = make_ah();
		wr.wr.ud.remote_qpn = b.qp->qp_num;
		wr.wr.ud.remote_qkey = 0x11111111;
	}
	say_rc("ibv_post_send", post_wr(&a, &wr));
}

static void ask_list(const struct question *q)
{
	struct ibv_send_wr wr[3] = {{.next = &wr[1]}, {.next = &wr[2]}, {.next = NULL}},
			   *bad = NULL;
	struct side a, b;
	struct ibv_wc wc;
	int rc, n = 0;

	(void)q;
	make_pair(&a, &b, NULL);
	for (int i = 0; i < 3; i++) {
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].wr.rdma.rkey = b.mr->rkey;
		wr[i].wr.rdma.remote_addr = (uintptr_t)b.buf;
	}
	wr[1].num_sge = 40;
	wr[1].sg_list = calloc(40, sizeof(*wr[1].sg_list));
	rc = ibv_post_send(a.qp, wr, &bad);
	say_rc("ibv_post_send", rc);
	say("bad_wr is the %s", bad == &wr[0]   ? "first"
				: bad == &wr[1] ? "second"
						: "none of them");
	while (poll_for(a.cq, &wc, 300))
		n++;
	say("%d completed", n);
}

static void ask_full(const struct question *q)
{
	struct how how = {.stop = IBV_QPS_INIT};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct side a, b;
	unsigned n = 0;
	int rc = 0;

	make_pair(&a, &b, &how);
	MUST(!ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init));
	if (q->a) {
		while (n < 1000 && !(rc = post_receive(&a, 0, 8)))
			n++;
		say("receives: %s", n == attr.cap.max_recv_wr  ? "as many as ibv_query_qp says"
				    : n > attr.cap.max_recv_wr ? "more than ibv_query_qp says"
							       : "fewer than ibv_query_qp says");
	} else {
		/* A peer in INIT answers nothing, so each request stays. */
		MUST(!to_state(a.qp, IBV_QPS_RESET));
		climb(a.qp, b.qp->qp_num, IBV_QPS_RTS);
		while (n < 1000 &&
			!(rc = post(&a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)b.buf, b.mr->rkey)))
			n++;
		say("requests: %s", n == attr.cap.max_send_wr  ? "as many as ibv_query_qp says"
				    : n > attr.cap.max_send_wr ? "more than ibv_query_qp says"
							       : "fewer than ibv_query_qp says");
	}
	say_rc("then", rc);
}

static void ask_receive_sge(const struct question *q)
{
	struct ibv_sge sge[40] = {{0}};
	struct ibv_recv_wr *bad = NULL, wr = {.sg_list = sge, .num_sge = (int)q->a};
	struct side a, b;

	make_pair(&a, &b, NULL);
	say_rc("ibv_post_recv", ibv_post_recv(a.qp, &wr, &bad));
	say("bad_wr %s", bad == &wr ? "set" : "not set");
}

/* What else is in the sender's local memory: a is what is wrong. */
enum { BAD_LKEY, OUTSIDE, OTHER_PD, NOT_WRITABLE, READ_INTO_READ_ONLY, TOO_LONG };

static void ask_local(const struct question *q)
{
	struct side a, b;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED};
	int rc;

	make_pair(&a, &b, NULL);
	sge = (struct ibv_sge){.addr = (uintptr_t)a.buf, .length = 64, .lkey = a.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)b.buf;
	wr.wr.rdma.rkey = b.mr->rkey;
	if (q->a == BAD_LKEY) {
		sge.lkey = 0x77777700;
	} else if (q->a == OUTSIDE) {
		sge.addr += BUF - 32;
	} else if (q->a == OTHER_PD) {
		struct ibv_pd *other = ibv_alloc_pd(ctx);
		struct ibv_mr *mr;

		MUST(other && (mr = ibv_reg_mr(other, a.buf, BUF, ALL_ACCESS)));
		sge.lkey = mr->lkey;
	} else if (q->a == TOO_LONG) {
		sge.length = 0xffffffff;
	} else {
		struct ibv_mr *mr = ibv_reg_mr(pd, a.buf, BUF, 0);

		MUST(mr);
		sge.lkey = mr->lkey;
		wr.opcode = q->a == READ_INTO_READ_ONLY ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	}
	rc = post_wr(&a, &wr);
	say_rc("ibv_post_send", rc);
	if (!rc)
		say_completion("completion", a.cq, false);
	say("own QP %s, the peer's %s", state_word(state_of(a.qp)), state_word(state_of(b.qp)));
	say_events("events", 300);
}

/* A receive into memory that it may not use. */
static void ask_receive_local(const struct question *q)
{
	struct side a, b;
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	struct ibv_mr *mr;
	int rc;

	make_pair(&a, &b, NULL);
	sge = (struct ibv_sge){.addr = (uintptr_t)b.buf, .length = 64, .lkey = b.mr->lkey};
	if (q->a == BAD_LKEY) {
		sge.lkey = 0x77777700;
	} else if (q->a == OUTSIDE) {
		sge.addr += BUF - 32;
	} else {
		MUST(mr = ibv_reg_mr(pd, b.buf, BUF, 0));
		sge.lkey = mr->lkey;
	}
	rc = ibv_post_recv(b.qp, &wr, &bad);
	say_rc("ibv_post_recv", rc);
	MUST(!post(&a, IBV_WR_SEND, 0, 48, 0, 0));
	say_completion("SEND", a.cq, false);
	say_completion("receive", b.cq, false);
	say("receiver %s", state_word(state_of(b.qp)));
	say_events("events", 300);
}

/* ---- flushed ---- */

static void ask_flush(const struct question *q)
{
	struct ibv_wc wc;
	struct side a, b;

	make_pair(&a, &b, NULL);
	if (q->a)
		MUST(!post_receive(&a, 0, 64));
	MUST(!to_state(a.qp, IBV_QPS_ERR));
	if (!q->a)
		MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)b.buf, b.mr->rkey));
	memset(&wc, 0, sizeof(wc));
	if (!poll_for(a.cq, &wc, 1000)) {
		say("no completion");
		return;
	}
	say("%s, wr_id %s, qp_num %s, opcode %d, byte_len %u, vendor_err %u, flags %#x",
		status_word(wc.status), wc.wr_id == (q->a ? 0x4ec : 0x5e4d) ? "right" : "wrong",
		wc.qp_num == a.qp->qp_num ? "right" : "wrong", wc.opcode, wc.byte_len,
		wc.vendor_err, wc.wc_flags);
}

static void ask_flush_many(const struct question *q)
{
	struct ibv_wc wc;
	struct side a, b;
	int n = 0, flushed = 0;

	(void)q;
	make_pair(&a, &b, NULL);
	for (int i = 0; i < 8; i++)
		MUST(!post_receive(&a, 0, 64));
	MUST(!to_state(a.qp, IBV_QPS_ERR));
	for (int i = 0; i < 8; i++)
		MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)b.buf, b.mr->rkey));
	while (poll_for(a.cq, &wc, 300)) {
		n++;
		flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
	}
	say("%d of 16 completed, %d flushed", n, flushed);
	say_events("events", 200);
}

static void ask_flush_unsignaled(const struct question *q)
{
	struct how how = {.unsignaled = true};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	struct side a, b;

	(void)q;
	make_pair(&a, &b, &how);
	MUST(!to_state(a.qp, IBV_QPS_ERR));
	MUST(!post_wr(&a, &wr));
	say_completion("an unsignaled request", a.cq, false);
}

/* Without data there is nothing that a key could protect. */
static void ask_failed_unsignaled(const struct question *q)
{
	struct how how = {.unsignaled = true};
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
	struct side a, b;

	(void)q;
	make_pair(&a, &b, &how);
	sge = (struct ibv_sge){.addr = (uintptr_t)a.buf, .length = 8, .lkey = a.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)b.buf;
	wr.wr.rdma.rkey = 0x77777700;
	MUST(!post_wr(&a, &wr));
	say_completion("an unsignaled request", a.cq, false);
}

static void ask_unsignaled(const struct question *q)
{
	struct how how = {.unsignaled = true};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	struct ibv_wc wc;
	struct side a, b;
	int n = 0, rc = 0;

	(void)q;
	make_pair(&a, &b, &how);
	wr.wr.rdma.rkey = b.mr->rkey;
	wr.wr.rdma.remote_addr = (uintptr_t)b.buf;
	/* Nothing signaled: the send queue is never freed. */
	while (n < 200 && !(rc = post_wr(&a, &wr))) {
		n++;
		sleep_ms(10);
	}
	say("%s", n == 200 ? "200 requests were posted" : "the queue is full");
	say_rc("then", rc);
	say("completions: %s", ibv_poll_cq(a.cq, 1, &wc) ? "some" : "none");
}

#define SERVICE(type, opcode) \
	{ \
		"post.service." #type "_" #opcode, #opcode " posted to a " #type " QP", \
			ask_service, IBV_WR_##opcode, IBV_QPT_##type \
	}

const struct question post_questions[] = {{"post.sge", "33 SGEs", ask_odd, SGE_5, IBV_QPT_RC},
	{"post.sge_negative", "-1 SGEs", ask_odd, SGE_NEGATIVE, IBV_QPT_RC},
	{"post.inline_long", "2000 bytes inline on a QP for 64", ask_odd, INLINE_65, IBV_QPT_RC},
	{"post.inline_read", "READ inline", ask_odd, INLINE_READ, IBV_QPT_RC},
	{"post.inline_lkey", "WRITE inline with an lkey that is none", ask_odd, INLINE_BAD_LKEY,
		IBV_QPT_RC},
	{"post.opcode", "an opcode that is none", ask_odd, OPCODE_99, IBV_QPT_RC},
	{"post.atomic_4", "FETCH_AND_ADD with 4 bytes of room", ask_odd, ATOMIC_4, IBV_QPT_RC},
	{"post.atomic_16", "FETCH_AND_ADD with 16 bytes of room", ask_odd, ATOMIC_16, IBV_QPT_RC},
	{"post.tso", "TSO on an RC QP", ask_odd, TSO, IBV_QPT_RC},
	{"post.driver", "a driver's opcode", ask_odd, DRIVER, IBV_QPT_RC},
	{"post.flag", "a send flag that is none", ask_odd, FLAG_NONE, IBV_QPT_RC},
	{"post.sig_all", "no SIGNALED flag with sq_sig_all", ask_odd, UNSIGNALED_SIG_ALL,
		IBV_QPT_RC},
	{"post.send_inv", "SEND_WITH_INV of a key that is none", ask_odd, SEND_INV_NONE,
		IBV_QPT_RC},
	SERVICE(UC, RDMA_READ), SERVICE(UC, ATOMIC_CMP_AND_SWP), SERVICE(UC, SEND_WITH_INV),
	SERVICE(UC, LOCAL_INV), SERVICE(UD, RDMA_WRITE), SERVICE(UD, RDMA_READ),
	SERVICE(UD, ATOMIC_FETCH_AND_ADD), SERVICE(UD, LOCAL_INV),
	{"post.list", "a list of three whose second is wrong", ask_list, 0, 0},
	{"post.full", "send requests too many", ask_full, 0, 0},
	{"receive.full", "receives too many", ask_full, 1, 0},
	{"receive.sge", "a receive with 33 SGEs", ask_receive_sge, 33, 0},
	{"receive.sge_negative", "a receive with -1 SGEs", ask_receive_sge, -1, 0},
	{"local.lkey", "WRITE from an lkey that is none", ask_local, BAD_LKEY, 0},
	{"local.outside", "WRITE from beyond the region", ask_local, OUTSIDE, 0},
	{"local.pd", "WRITE from a region of another PD", ask_local, OTHER_PD, 0},
	{"local.not_writable", "WRITE from a region without LOCAL_WRITE", ask_local, NOT_WRITABLE,
		0},
	{"local.read", "READ into a region without LOCAL_WRITE", ask_local, READ_INTO_READ_ONLY, 0},
	{"local.long", "WRITE of 4 GiB - 1", ask_local, TOO_LONG, 0},
	{"receive.lkey", "a receive with an lkey that is none", ask_receive_local, BAD_LKEY, 0},
	{"receive.outside", "a receive beyond the region", ask_receive_local, OUTSIDE, 0},
	{"receive.not_writable", "a receive into a region without LOCAL_WRITE", ask_receive_local,
		NOT_WRITABLE, 0},
	{"flush.send", "a request flushed", ask_flush, 0, 0},
	{"flush.receive", "a receive flushed", ask_flush, 1, 0},
	{"flush.many", "16 of both kinds flushed", ask_flush_many, 0, 0},
	{"flush.unsignaled", "an unsignaled request flushed", ask_flush_unsignaled, 0, 0},
	{"unsignaled.failed", "an unsignaled request that fails", ask_failed_unsignaled, 0, 0},
	{"unsignaled.all", "unsignaled requests without end", ask_unsignaled, 0, 0}, {0}};
