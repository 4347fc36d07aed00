/* SPDX-License-Identifier: BSD-3-Clause */
/* data.c - what arrives, and the completions of both sides. Every byte is compared. */
#include "probe.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 5000 };

/* a: the opcode; b: the length. */
static void ask_move(const struct question *q)
{
	enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)q->a;
	bool is_write = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool is_read = opcode == IBV_WR_RDMA_READ;
	bool takes = !is_read && opcode != IBV_WR_RDMA_WRITE;
	uint32_t n = (uint32_t)q->b;
	struct side a, b;
	struct ibv_wc wc;
	uint8_t *to;

	make_pair(&a, &b, NULL);
	to = is_read ? a.buf : is_write ? b.buf + PAGE : b.buf;
	pattern_fill(is_read ? b.buf + PAGE : a.buf, n, 21);
	if (takes)
		MUST(!post_receive(&b, 0, 8192));
	MUST(!post(&a, opcode, 0, n, (uintptr_t)b.buf + PAGE, b.mr->rkey));
	if (!poll_for(a.cq, &wc, 3000)) {
		say("no completion");
		return;
	}
	say("sender: %s %s%s, flags %#x", status_word(wc.status), opcode_word(wc.opcode),
		is_read && wc.byte_len == n ? ", byte_len right" : "", wc.wc_flags);
	if (takes && poll_for(b.cq, &wc, 3000))
		say_wc(&wc);
	if (!pattern_holds(to, n, 21) || to[n])
		wrong_bytes(opcode_word(wc.opcode));
}

/* The value before comes back, in the host's order; a: the opcode. */
static void ask_atomic(const struct question *q)
{
	struct side a, b;
	uint64_t value = 5;
	struct ibv_wc wc;

	make_pair(&a, &b, NULL);
	memcpy(b.buf, &value, 8);
	MUST(!post(&a, (enum ibv_wr_opcode)q->a, 0, 8, (uintptr_t)b.buf, b.mr->rkey));
	if (!poll_for(a.cq, &wc, 3000)) {
		say("no completion");
		return;
	}
	say("%s %s, %u bytes", status_word(wc.status), opcode_word(wc.opcode), wc.byte_len);
	memcpy(&value, a.buf, 8);
	say("before: %llu", (unsigned long long)value);
	memcpy(&value, b.buf, 8);
	say("after: %llu", (unsigned long long)value);
}

static void ask_swap_unequal(const struct question *q)
{
	struct side a, b;
	uint64_t value = 6;

	(void)q;
	make_pair(&a, &b, NULL);
	memcpy(b.buf, &value, 8);
	MUST(!post(&a, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8, (uintptr_t)b.buf, b.mr->rkey));
	say_completion("swap", a.cq, false);
	memcpy(&value, a.buf, 8);
	say("before: %llu", (unsigned long long)value);
	memcpy(&value, b.buf, 8);
	say("after: %llu", (unsigned long long)value);
}

/* Several elements on both sides, none of them at the others' bounds. */
static void ask_gather(const struct question *q)
{
	struct side a, b;
	struct ibv_sge from[4], to[4];
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
		.sg_list = from,
		.num_sge = 4,
		.send_flags = IBV_SEND_SIGNALED};
	struct ibv_recv_wr *bad, rwr = {.sg_list = to, .num_sge = 4};
	static const uint32_t in[] = {1000, 0, 3, 2001}, out[] = {7, 1500, 0, 4000};
	uint8_t got[LONG];
	uint32_t n = 0, m = 0;

	(void)q;
	make_pair(&a, &b, NULL);
	for (int i = 0; i < 4; i++) {
		from[i] = (struct ibv_sge){.addr = (uintptr_t)a.buf + (size_t)i * 8192 + 1,
			.length = in[i],
			.lkey = a.mr->lkey};
		to[i] = (struct ibv_sge){.addr = (uintptr_t)b.buf + (size_t)i * 8192 + 3,
			.length = out[i],
			.lkey = b.mr->lkey};
		n += in[i];
	}
	pattern_fill(got, n, 33);
	for (int i = 0; i < 4; i++) {
		memcpy(a.buf + (size_t)i * 8192 + 1, got + m, in[i]);
		m += in[i];
	}
	MUST(!ibv_post_recv(b.qp, &rwr, &bad));
	MUST(!post_wr(&a, &wr));
	say_completion("SEND", a.cq, false);
	say_completion("receive", b.cq, true);
	m = 0;
	memset(got, 0, sizeof(got));
	for (int i = 0; i < 4 && m < n; i++) {
		uint32_t k = out[i] < n - m ? out[i] : n - m;

		memcpy(got + m, b.buf + (size_t)i * 8192 + 3, k);
		m += k;
	}
	if (!pattern_holds(got, n, 33))
		wrong_bytes("gather and scatter");
}

static void ask_inline(const struct question *q)
{
	struct side a, b;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};

	(void)q;
	make_pair(&a, &b, NULL);
	pattern_fill(a.buf, 64, 5);
	sge = (struct ibv_sge){.addr = (uintptr_t)a.buf, .length = 64};
	MUST(!post_receive(&b, 0, 64));
	say_rc("post", post_wr(&a, &wr));
	memset(a.buf, 0, 64);
	say_completion("SEND", a.cq, false);
	if (!pattern_holds(b.buf, 64, 5))
		wrong_bytes("inline data that was overwritten after the post");
}

/* A 0-byte READ or WRITE needs no key. */
static void ask_zero(const struct question *q)
{
	struct side a, b;

	make_pair(&a, &b, NULL);
	MUST(!post(&a, (enum ibv_wr_opcode)q->a, 0, 0, 0, q->b ? 0x77777700 : b.mr->rkey));
	say_completion("completion", a.cq, true);
}

static void ask_to_itself(const struct question *q)
{
	static const struct how usual;
	struct side a;

	(void)q;
	open_device();
	make_side(&a, &usual);
	climb(a.qp, a.qp->qp_num, IBV_QPS_RTS);
	pattern_fill(a.buf, 64, 8);
	MUST(!post_receive(&a, PAGE, 64));
	MUST(!post(&a, IBV_WR_SEND, 0, 64, 0, 0));
	say_completion("one", a.cq, false);
	say_completion("other", a.cq, false);
	if (!pattern_holds(a.buf + PAGE, 64, 8))
		wrong_bytes("a QP connected to itself");
}

/* Completions of one queue come in the order of the requests. */
static void ask_order(const struct question *q)
{
	struct side a, b;
	struct ibv_wc wc;
	bool right = true;

	(void)q;
	make_pair(&a, &b, NULL);
	for (int i = 0; i < 12; i++) {
		struct ibv_sge sge = {.addr = (uintptr_t)a.buf, .length = 64, .lkey = a.mr->lkey};
		struct ibv_send_wr wr = {.wr_id = (uint64_t)i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE};

		wr.wr.rdma.remote_addr = (uintptr_t)b.buf;
		wr.wr.rdma.rkey = b.mr->rkey;
		MUST(!post_wr(&a, &wr));
	}
	for (int i = 0; i < 12; i++)
		right &= poll_for(a.cq, &wc, 3000) && wc.wr_id == (uint64_t)i;
	say("in order: %s", right ? "yes" : "no");
}

static void ask_comm_est(const struct question *q)
{
	static const struct how usual;
	struct side a, b;

	(void)q;
	open_device();
	make_side(&a, &usual);
	make_side(&b, &usual);
	climb(a.qp, b.qp->qp_num, IBV_QPS_RTS);
	climb(b.qp, a.qp->qp_num, IBV_QPS_RTR);
	MUST(!post_receive(&b, 0, 64));
	MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	say_completion("SEND to a QP in RTR", a.cq, false);
	say_completion("receive", b.cq, false);
	say_events("events", 300);
}

/* By the calls of ibv_qp_ex. */
static void ask_new_calls(const struct question *q)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC,
		.cap = {8, 8, 2, 2, 0},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND};
	static const struct how usual;
	struct ibv_qp_ex *qpx;
	struct ibv_qp *qp;
	struct side b;
	struct ibv_cq *cq;

	(void)q;
	open_device();
	make_side(&b, &usual);
	init.pd = pd;
	init.send_cq = init.recv_cq = cq = make_cq(16);
	MUST(qp = ibv_create_qp_ex(ctx, &init));
	climb(qp, b.qp->qp_num, IBV_QPS_RTS);
	climb(b.qp, qp->qp_num, IBV_QPS_RTS);
	qpx = ibv_qp_to_qp_ex(qp);
	pattern_fill(b.buf, 100, 4);
	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qpx, b.mr->rkey, (uintptr_t)b.buf + PAGE);
	ibv_wr_set_sge(qpx, b.mr->lkey, (uintptr_t)b.buf, 100);
	say_rc("ibv_wr_complete", ibv_wr_complete(qpx));
	say_completion("WRITE", cq, false);
	if (!pattern_holds(b.buf + PAGE, 100, 4))
		wrong_bytes("ibv_wr_rdma_write");
	ibv_wr_start(qpx);
	ibv_wr_rdma_write(qpx, b.mr->rkey, (uintptr_t)b.buf + PAGE);
	ibv_wr_abort(qpx);
	say("aborted: %s", poll_for(cq, &(struct ibv_wc){0}, 200) ? "completed" : "nothing");
	ibv_wr_start(qpx);
	for (int i = 0; i < 40; i++)
		ibv_wr_rdma_write(qpx, b.mr->rkey, (uintptr_t)b.buf + PAGE);
	say_rc("40 on a queue of 8", ibv_wr_complete(qpx));
}

static void ask_new_calls_lack(const struct question *q)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC,
		.cap = {8, 8, 2, 2, 0},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE};
	struct ibv_qp *qp;

	(void)q;
	open_device();
	init.pd = pd;
	init.send_cq = init.recv_cq = make_cq(16);
	MUST(qp = ibv_create_qp_ex(ctx, &init));
	climb(qp, qp->qp_num, IBV_QPS_RTS);
	/* Not asked for at creation. */
	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	ibv_wr_send(ibv_qp_to_qp_ex(qp));
	say_rc("ibv_wr_complete", ibv_wr_complete(ibv_qp_to_qp_ex(qp)));
}

#define MOVE(opcode, length) \
	{ \
		"data." #opcode "_" #length, #opcode " of " #length " bytes", ask_move, \
			IBV_WR_##opcode, length \
	}

const struct question data_questions[] = {MOVE(SEND, 0), MOVE(SEND, 16), MOVE(SEND, 5000),
	MOVE(SEND_WITH_IMM, 0), MOVE(SEND_WITH_IMM, 5000), MOVE(RDMA_WRITE, 16),
	MOVE(RDMA_WRITE, 5000), MOVE(RDMA_WRITE_WITH_IMM, 0), MOVE(RDMA_WRITE_WITH_IMM, 16),
	MOVE(RDMA_WRITE_WITH_IMM, 5000), MOVE(RDMA_READ, 16), MOVE(RDMA_READ, 5000),
	{"data.write_0", "WRITE of 0 bytes", ask_zero, IBV_WR_RDMA_WRITE, 0},
	{"data.write_0_key", "WRITE of 0 bytes with a key that is none", ask_zero,
		IBV_WR_RDMA_WRITE, 1},
	{"data.read_0", "READ of 0 bytes", ask_zero, IBV_WR_RDMA_READ, 0},
	{"data.read_0_key", "READ of 0 bytes with a key that is none", ask_zero, IBV_WR_RDMA_READ,
		1},
	{"data.swap", "COMPARE_AND_SWAP", ask_atomic, IBV_WR_ATOMIC_CMP_AND_SWP, 0},
	{"data.add", "FETCH_AND_ADD", ask_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 0},
	{"data.swap_unequal", "COMPARE_AND_SWAP of another value", ask_swap_unequal, 0, 0},
	{"data.gather", "four elements to four elements", ask_gather, 0, 0},
	{"data.inline", "inline data", ask_inline, 0, 0},
	{"data.itself", "a QP connected to itself", ask_to_itself, 0, 0},
	{"data.order", "completions of READ and WRITE in turns", ask_order, 0, 0},
	{"data.comm_est", "a SEND to a QP in RTR", ask_comm_est, 0, 0},
	{"data.ibv_wr", "WRITE by ibv_wr_rdma_write", ask_new_calls, 0, 0},
	{"data.ibv_wr_lacking", "ibv_wr_send of a QP made without it", ask_new_calls_lack, 0, 0},
	{0}};
