/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_posts.c - mistakes in posting, and in what becomes of completions. */
#include "planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void round_trip(struct pair *p)
{
	expect(!recv_at(&p->b, 100, 0, 64), "a receive");
	expect(!send_at(&p->a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	poll_good(p->a.cq);
	poll_good(p->b.cq);
}

/* An atomic at an odd address, which no rule is about. */
static void fail_one(struct pair *p)
{
	struct ibv_sge sge = {(uintptr_t)p->a.buf, 8, p->a.mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 7,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					 .send_flags = IBV_SEND_SIGNALED};
	wr.wr.atomic.remote_addr = (uintptr_t)p->b.buf + 1;
	wr.wr.atomic.rkey = p->b.mr->rkey;
	expect(!ibv_post_send(p->a.qp, &wr, &bad), "a post");
}

static void error_ignored(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_wc wc;
	fail_one(&p);
	expect(poll_one(p.a.cq, &wc) == IBV_WC_REM_INV_REQ_ERR, "an error");
	for (int i = 0; i < 4 && bad; i++)
		send_at(&p.a, 8 + (uint64_t)i, 0, 64, IBV_SEND_SIGNALED);
	for (int i = 0; i < 4 && bad; i++)
		poll_one(p.a.cq, &wc);
	pair_close(&p);
}

static void error_unread(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_wc wc;
	fail_one(&p);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_qp_init_attr init;
	for (int i = 0; i < 1000 && bad && attr.qp_state != IBV_QPS_ERR; i++) {
		wait_ms(10);
		expect(!ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE, &init), "its state");
	}
	if (!bad)
		expect(poll_one(p.a.cq, &wc) == IBV_WC_REM_INV_REQ_ERR, "an error");
	pair_close(&p);
}

static void never_signaled(bool bad)
{
	struct pair p = pair_open(&(struct wish){.some_signaled = true, .sends = 8});
	for (unsigned i = 0; i < 20; i++) {
		bool signals = !bad && i % 4 == 3;
		expect(!write_at(
			       &p.a, i, i * 64, 64, &p.b, i * 64, signals ? IBV_SEND_SIGNALED : 0),
			"a post");
		if (signals)
			poll_good(p.a.cq);
		wait_ms(5);
	}
	pair_close(&p);
}

static void sq_overflow(bool bad)
{
	struct pair p = pair_open(&(struct wish){.sends = 8});
	for (unsigned i = 0; i < 20; i++) {
		expect(!write_at(&p.a, i, i * 64, 64, &p.b, i * 64, IBV_SEND_SIGNALED), "a post");
		if (!bad)
			poll_good(p.a.cq);
		wait_ms(5);
	}
	pair_close(&p);
}

static void rq_overflow(bool bad)
{
	struct pair p = pair_open(&(struct wish){.recvs = 4});
	for (unsigned i = 0; i < 12; i++) {
		expect(!recv_at(&p.b, i, i * 64, 64), "a receive");
		expect(!send_at(&p.a, i, i * 64, 64, IBV_SEND_SIGNALED), "a send");
		poll_good(p.a.cq);
		wait_ms(5);
		if (!bad)
			poll_good(p.b.cq);
	}
	pair_close(&p);
}

static void cq_small(bool bad)
{
	struct pair p = pair_open(&(struct wish){.cqe = bad ? 4 : 16, .recvs = 12});
	for (unsigned i = 0; i < 6; i++)
		expect(!recv_at(&p.b, i, i * 64, 64), "a receive");
	pair_close(&p);
}

static void inline_luck(bool bad)
{
	struct pair p = pair_open(&(struct wish){.inlines = bad ? 0 : 16});
	expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!send_at(&p.a, 1, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE), "a send");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

/* The device refuses it; drivers may have room for more than was asked for. */
static void sge_luck(bool bad)
{
	struct pair p = pair_open(&(struct wish){.sges = bad ? 1 : 2});
	struct ibv_sge sge[2] = {
		{(uintptr_t)p.a.buf, 8, p.a.mr->lkey}, {(uintptr_t)p.a.buf + 64, 8, p.a.mr->lkey}};
	struct ibv_send_wr *refused, wr = {.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 2};
	expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!ibv_post_send(p.a.qp, &wr, &refused) == !bad,
		"what a post of two elements returns");
	if (!bad) {
		poll_good(p.a.cq);
		poll_good(p.b.cq);
	}
	pair_close(&p);
}

static void wr_id_twice(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	expect(!recv_at(&p.b, 1, 64, 64) && !recv_at(&p.b, bad ? 1 : 2, 128, 64), "two receives");
	round_trip(&p);
	pair_close(&p);
}

static void buffer_changed(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7});
	/* no receive: the message waits, and the buffer with it */
	expect(!send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED), "a send");
	wait_ms(2);
	if (bad)
		p.a.buf[17]++;
	expect(!recv_at(&p.b, 1, 0, 4096), "a receive");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

static void buffer_changed_late(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	expect(!recv_at(&p.b, 1, 0, 4096), "a receive");
	expect(!send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED), "a send");
	poll_good(p.b.cq);
	wait_ms(50);
	if (bad)
		p.a.buf[17]++;
	poll_good(p.a.cq);
	p.a.buf[18]++;
	pair_close(&p);
}

const struct planted planted_posts[] = {
	{"error-ignored", NULL, error_ignored},
	{"error-unread", NULL, error_unread},
	{"never-signaled", NULL, never_signaled},
	{"sq-overflow", NULL, sq_overflow},
	{"rq-overflow", NULL, rq_overflow},
	{"cq-small", NULL, cq_small},
	{"inline-luck", NULL, inline_luck},
	{"sge-luck", NULL, sge_luck},
	{"wr-id-twice", NULL, wr_id_twice},
	{"buffer-changed", NULL, buffer_changed},
	{"buffer-changed-late", NULL, buffer_changed_late},
	{0},
};
