/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_order.c - mistakes about what two ends must agree on, and what has to come first. */
#include "planted.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

static void recv_late(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7});
	if (!bad)
		expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	wait_ms(20);
	if (bad)
		expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

/* The device may not have looked at the message yet. */
static void recv_late_by_little(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7});
	if (!bad)
		expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	if (bad)
		expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

static void recv_late_never(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 1});
	struct ibv_wc wc;
	if (!bad)
		expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	expect(poll_one(p.a.cq, &wc) == (bad ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_SUCCESS),
		"a send that ends");
	if (!bad)
		poll_good(p.b.cq);
	pair_close(&p);
}

static void recv_late_shared(bool bad)
{
	struct pair p = {0};
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
	pair_device(&p);
	struct ibv_srq *srq = ibv_create_srq(p.pd, &init);
	expect(srq, "a SRQ");
	const struct wish w = {.rnr_retry_1 = 1 + 7, .srq = srq};
	pair_begin(&p, &w);
	pair_connect(&p, &w);
	struct ibv_sge sge = {(uintptr_t)p.b.buf, 64, p.b.mr->lkey};
	struct ibv_recv_wr *none, wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};
	if (!bad)
		expect(!ibv_post_srq_recv(srq, &wr, &none), "a receive");
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	wait_ms(20);
	if (bad)
		expect(!ibv_post_srq_recv(srq, &wr, &none), "a receive");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_drop(&p);
	expect(!ibv_destroy_srq(srq), "the SRQ to go");
	pair_end(&p);
}

static void recv_ran_out(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7});
	expect(!recv_at(&p.b, 1, 0, 64) && (bad || !recv_at(&p.b, 2, 64, 64)), "receives");
	for (uint64_t i = 1; i < 3; i++)
		expect(!send_at(&p.a, i, i * 64, 64, IBV_SEND_SIGNALED), "a send");
	wait_ms(20);
	if (bad)
		expect(!recv_at(&p.b, 2, 64, 64), "a receive");
	for (int i = 0; i < 2; i++) {
		poll_good(p.a.cq);
		poll_good(p.b.cq);
	}
	pair_close(&p);
}

static void rnr_forever(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7, .min_rnr_1 = 1 + 20});
	if (!bad)
		expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	if (bad) {
		wait_ms(5500);
		expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	}
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

/* ---- attributes ---- */

static void exchange(const struct wish *w)
{
	struct pair p = pair_open(w);
	expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

/* What `a` expects of `b` is wrong, and what it sends is right. */
static void psn_mismatch(bool bad) { exchange(&(struct wish){.psn_xor = bad ? 0x10 : 0}); }
static void mtu_mismatch(bool bad) { exchange(&(struct wish){.mtu = bad ? IBV_MTU_512 : 0}); }
static void timeout_0(bool bad) { exchange(&(struct wish){.timeout_1 = bad ? 1 : 1 + 14}); }
static void retry_0(bool bad)
{
	exchange(&(struct wish){.retry_1 = bad ? 1 : 1 + 3, .timeout_1 = 1 + 20});
}
static void min_rnr_0(bool bad) { exchange(&(struct wish){.min_rnr_1 = bad ? 1 : 1 + 12}); }

static void qpn_mismatch(bool bad)
{
	struct pair p = pair_open(&(struct wish){.dest_qpn_xor = bad ? 0x40 : 0});
	struct ibv_wc wc;
	expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	expect(poll_one(p.a.cq, &wc) == (bad ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS),
		"a send that ends");
	if (!bad)
		poll_good(p.b.cq);
	pair_close(&p);
}

/* The other QP takes it, and answers its own peer. */
static void qpn_mismatch_other(bool bad)
{
	struct pair other = pair_open(&(struct wish){0}), p = {0};
	struct wish w = {0};
	struct ibv_wc wc;
	pair_begin(&p, &w);
	if (bad)
		w.dest_qpn_xor = p.b.qp->qp_num ^ other.b.qp->qp_num;
	pair_connect(&p, &w);
	expect(!write_at(&p.a, 1, 0, 64, bad ? &other.b : &p.b, 0, IBV_SEND_SIGNALED), "a WRITE");
	expect(poll_one(p.a.cq, &wc) == (bad ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS),
		"a WRITE that ends");
	pair_close(&p);
	pair_close(&other);
}

static void rd_atomic(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rd_atomic_1 = bad ? 1 + 8 : 1 + 4});
	expect(!read_at(&p.a, 1, 0, 64, &p.b, 64), "a READ");
	poll_good(p.a.cq);
	pair_close(&p);
}

static void reads_beyond(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rd_atomic_1 = bad ? 1 + 2 : 1 + 4});
	struct ibv_sge sge[4];
	struct ibv_send_wr *none, wr[4] = {0};
	for (unsigned i = 0; i < 4; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)p.a.buf + i * 64, 64, p.a.mr->lkey};
		wr[i].wr_id = i;
		wr[i].opcode = IBV_WR_RDMA_READ;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].next = i < 3 ? &wr[i + 1] : NULL;
		wr[i].wr.rdma.remote_addr = (uintptr_t)p.b.buf + 4096;
		wr[i].wr.rdma.rkey = p.b.mr->rkey;
	}
	expect(!ibv_post_send(p.a.qp, wr, &none), "four READs");
	for (int i = 0; i < 4; i++)
		poll_good(p.a.cq);
	pair_close(&p);
}

/* Nothing completes, and the program looks. */
static void poll_in_vain(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (unsigned i = 0; i < 30; i++) {
		wait_ms(10);
		expect(!ibv_poll_cq(cq, 1, &wc), "nothing");
	}
}

static void reads_none(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rd_atomic_1 = bad ? 1 : 1 + 1});
	struct ibv_wc wc;
	expect(!read_at(&p.a, 1, 0, 64, &p.b, 64), "a READ");
	expect(poll_one(p.a.cq, &wc) == (bad ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS),
		"a READ that ends as it has to");
	pair_close(&p);
}

/* A datagram of 64 bytes, with that Q_Key and into a receive of `room` bytes; comes: it does. */
static void datagram(uint32_t to_qkey, uint32_t room, bool comes)
{
	struct pair p = pair_open(&(struct wish){.type = IBV_QPT_UD});
	struct ibv_ah_attr to = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = p.gid, .sgid_index = 1, .hop_limit = 1}};
	struct ibv_ah *ah = ibv_create_ah(p.pd, &to);
	expect(ah, "an address handle");
	struct ibv_sge sge = {(uintptr_t)p.a.buf, 64, p.a.mr->lkey};
	struct ibv_send_wr *none,
		wr = {.wr_id = 1,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.wr.ud = {.ah = ah, .remote_qpn = p.b.qp->qp_num, .remote_qkey = to_qkey}};
	expect(!recv_at(&p.b, 1, 0, room), "a receive");
	expect(!ibv_post_send(p.a.qp, &wr, &none), "a send");
	poll_good(p.a.cq);
	if (comes)
		poll_good(p.b.cq);
	else
		poll_in_vain(p.b.cq);
	expect(!ibv_destroy_ah(ah), "the handle to go");
	pair_close(&p);
}

static void qkey(bool bad) { datagram(bad ? 0x22222222 : 0x11111111, 128, !bad); }
/* The 40 bytes of the GRH were forgotten. */
static void recv_short(bool bad) { datagram(0x11111111, bad ? 64 : 64 + 40, !bad); }

/* None fits, whatever comes: it is seen at the post. The twin: one that is no buffer, in ERR. */
static void recv_short_post(bool bad)
{
	struct pair p = pair_open(&(struct wish){.type = IBV_QPT_UD});
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_wc wc;
	if (bad)
		expect(!recv_at(&p.b, 1, 0, 39), "a receive");
	expect(!ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE), "ERR");
	expect(!recv_at(&p.b, 2, 0, 0), "a marker");
	for (int i = 0; i < 1 + bad; i++)
		expect(poll_one(p.b.cq, &wc) == IBV_WC_WR_FLUSH_ERR, "a flush");
	pair_close(&p);
}

/* To a group or, when `bad`, to the QP itself: a datagram that no receive takes. */
static void datagram_untaken(bool bad, bool is_short)
{
	struct pair p = pair_open(&(struct wish){.type = IBV_QPT_UD});
	union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 7, 7, 7}};
	struct ibv_ah_attr to = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = bad ? p.gid : group, .sgid_index = 1, .hop_limit = 1}};
	struct ibv_ah *ah = ibv_create_ah(p.pd, &to);
	expect(ah && !ibv_attach_mcast(p.b.qp, &group, 0), "a group");
	expect(!is_short || !recv_at(&p.b, 1, 0, 64), "a receive");
	struct ibv_sge sge = {(uintptr_t)p.a.buf, 64, p.a.mr->lkey};
	struct ibv_send_wr *none, wr = {.wr_id = 1,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .wr.ud = {.ah = ah,
						  .remote_qpn = bad ? p.b.qp->qp_num : 0xffffff,
						  .remote_qkey = 0x11111111}};
	expect(!ibv_post_send(p.a.qp, &wr, &none), "a send");
	poll_good(p.a.cq);
	poll_in_vain(p.b.cq);
	expect(!ibv_detach_mcast(p.b.qp, &group, 0) && !ibv_destroy_ah(ah), "the group to go");
	pair_close(&p);
}

/* No receive was ever posted: to a group that is nobody's mistake. */
static void recv_late_group(bool bad) { datagram_untaken(bad, false); }
/* Others may send longer ones to a group. */
static void recv_short_group(bool bad) { datagram_untaken(bad, true); }

/* ---- RESET ---- */

static void again(struct pair *p)
{
	struct half *half[] = {&p->a, &p->b};
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
		expect(!ibv_modify_qp(half[i]->qp, &attr, IBV_QP_STATE), "RESET");
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
		expect(!ibv_modify_qp(half[i]->qp, &attr,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				       IBV_QP_ACCESS_FLAGS),
			"INIT");
	}
}

/* Receives that were posted once for all. With one posted again, the second message finds none. */
static void reset_drops(bool bad)
{
	const struct wish w = {.rnr_retry_1 = 1 + 7};
	struct pair p = pair_open(&w);
	expect(!recv_at(&p.b, 1, 0, 64) && !recv_at(&p.b, 2, 64, 64), "receives");
	again(&p);
	if (!bad)
		expect(!recv_at(&p.b, 3, 0, 64), "a receive");
	pair_connect(&p, &w);
	for (uint64_t i = 0; i < 2; i++)
		expect(!send_at(&p.a, i, i * 64, 64, IBV_SEND_SIGNALED), "a send");
	wait_ms(20);
	for (uint64_t i = 0; i < 1 + bad; i++)
		expect(!recv_at(&p.b, 4 + i, 64 + i * 64, 64), "a receive");
	for (int i = 0; i < 2; i++) {
		poll_good(p.a.cq);
		poll_good(p.b.cq);
	}
	pair_close(&p);
}

/* A send to a peer that is not ready. The twin does not use the QP again. */
static void reset_drops_send(bool bad)
{
	static const struct wish w;
	struct pair p = {0};
	pair_begin(&p, &w);
	half_connect(&p, &p.a, p.b.qp->qp_num, true, &w);
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	wait_ms(5);
	again(&p);
	if (bad)
		pair_connect(&p, &w);
	pair_close(&p);
}

static void gid_type(bool bad)
{
	struct pair p = pair_open(&(struct wish){.type = IBV_QPT_UD});
	struct ibv_ah_attr to = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = p.gid, .sgid_index = bad ? 14 : 1, .hop_limit = 1}};
	struct ibv_ah *ah = ibv_create_ah(p.pd, &to);
	expect(!ah == bad, "an address handle, or none");
	expect(!ah || !ibv_destroy_ah(ah), "the handle to go");
	pair_close(&p);
}

/* ---- CQs ---- */

static void cq_overrun(bool bad)
{
	struct pair p = pair_open(&(struct wish){.cqe = 4, .recvs = 12});
	struct ibv_wc wc;
	for (unsigned i = 0; i < 12; i++) {
		expect(!recv_at(&p.b, i, i * 64, 64), "a receive");
		expect(!send_at(&p.a, i, i * 64, 64, IBV_SEND_SIGNALED), "a send");
		poll_good(p.a.cq);
		if (!bad)
			poll_good(p.b.cq);
	}
	while (bad && ibv_poll_cq(p.b.cq, 1, &wc) > 0)
		;
	pair_close(&p);
}

static void solicited_never(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct pollfd fd = {.fd = p.b.channel->fd, .events = POLLIN};
	expect(!ibv_req_notify_cq(p.b.cq, 1), "to be armed");
	for (unsigned i = 0; i < 2; i++) {
		expect(!recv_at(&p.b, i, i * 64, 64), "a receive");
		unsigned flags = i && !bad ? IBV_SEND_SOLICITED : 0;
		expect(!send_at(&p.a, i, i * 64, 64, IBV_SEND_SIGNALED | flags), "a send");
		poll_good(p.a.cq);
	}
	expect(poll(&fd, 1, 1300) == !bad, "an event, or none");
	if (!bad) {
		struct ibv_cq *cq;
		void *context;
		expect(!ibv_get_cq_event(p.b.channel, &cq, &context), "the event");
		ibv_ack_cq_events(cq, 1);
	}
	poll_good(p.b.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

/* A program that polls anyway is not in need of the event. */
static void solicited_polled(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_wc wc;
	expect(!ibv_req_notify_cq(p.b.cq, 1) && !recv_at(&p.b, 1, 0, 64), "to be armed");
	for (unsigned i = 0; i < (bad ? 1 : 4); i++)
		expect(!ibv_poll_cq(p.b.cq, 1, &wc), "nothing yet");
	expect(!send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	poll_good(p.a.cq);
	wait_ms(1300);
	poll_good(p.b.cq);
	pair_close(&p);
}

const struct planted planted_order[] = {
	{"recv-late", NULL, recv_late},
	{"recv-late", "recv-late-by-little", recv_late_by_little},
	{"recv-late", "recv-late-never", recv_late_never},
	{"recv-late", "recv-late-shared", recv_late_shared},
	{"recv-late", "recv-late-group", recv_late_group},
	{"recv-ran-out", NULL, recv_ran_out},
	{"psn-mismatch", NULL, psn_mismatch},
	{"qpn-mismatch", NULL, qpn_mismatch},
	{"qpn-mismatch", "qpn-mismatch-other", qpn_mismatch_other},
	{"mtu-mismatch", NULL, mtu_mismatch},
	{"timeout-0", NULL, timeout_0},
	{"retry-0", NULL, retry_0},
	{"rnr-forever", NULL, rnr_forever},
	{"min-rnr-0", NULL, min_rnr_0},
	{"rd-atomic", NULL, rd_atomic},
	{"reads-beyond", NULL, reads_beyond},
	{"reads-none", NULL, reads_none},
	{"qkey", NULL, qkey},
	{"recv-short", NULL, recv_short},
	{"recv-short", "recv-short-post", recv_short_post},
	{"recv-short", "recv-short-group", recv_short_group},
	{"reset-drops", NULL, reset_drops},
	{"reset-drops", "reset-drops-send", reset_drops_send},
	{"gid-type", NULL, gid_type},
	{"cq-overrun", NULL, cq_overrun},
	{"solicited-never", NULL, solicited_never},
	{"solicited-never", "solicited-polled", solicited_polled},
	{0},
};
