/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.c - making and destroying: completion queues, queue pairs, SRQs, address handles, groups.
 */
#include "probe.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* ---- completion queues ---- */

static void ask_cqe(const struct question *q)
{
	struct ibv_cq *cq;

	open_device();
	cq = ibv_create_cq(ctx, (int)q->a, NULL, NULL, (int)q->b);
	if (cq)
		say("%d", cq->cqe);
	else
		say_made("ibv_create_cq", cq);
}

static void ask_resize(const struct question *q)
{
	struct ibv_cq *cq;

	open_device();
	cq = make_cq(60);
	say_rc("ibv_resize_cq", ibv_resize_cq(cq, (int)q->a));
	say("%d entries", cq->cqe);
}

/* Two completions wait. */
static void ask_resize_full(const struct question *q)
{
	struct side a, b;
	struct ibv_wc wc;

	(void)q;
	make_pair(&a, &b, NULL);
	for (int i = 0; i < 5; i++)
		MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)b.buf, b.mr->rkey));
	sleep_ms(300);
	say_rc("to 2 entries with 5 completions in it", ibv_resize_cq(a.cq, 2));
	say_rc("to 20", ibv_resize_cq(a.cq, 20));
	for (int i = 0; i < 5; i++)
		MUST(poll_for(a.cq, &wc, 1000) && wc.status == IBV_WC_SUCCESS);
	say("all 5 are there");
}

static void ask_cq_ex(const struct question *q)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = (uint64_t)q->a};

	open_device();
	if (q->b) {
		attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
		attr.flags = (uint32_t)q->b;
	}
	say_made("ibv_create_cq_ex", ibv_create_cq_ex(ctx, &attr));
}

static void ask_cq_ex_poll(const struct question *q)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_poll_cq_attr poll_attr = {0};
	struct ibv_cq_ex *cq;

	(void)q;
	open_device();
	cq = ibv_create_cq_ex(ctx, &attr);
	if (!cq) {
		say_made("ibv_create_cq_ex", cq);
		return;
	}
	say_rc("ibv_start_poll of an empty one", ibv_start_poll(cq, &poll_attr));
}

static void ask_overflow(const struct question *q)
{
	struct how how = {.cqe = 1};
	struct side a, b;
	struct ibv_wc wc;
	int n = 0, room, before;

	(void)q;
	make_pair(&a, &b, &how);
	room = a.cq->cqe;
	/* One more than there is room for, though never more than the send queue takes. */
	for (int i = 0; i < room + 4; i++) {
		int rc = post(&a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)b.buf, b.mr->rkey);

		if (rc) {
			say_rc("posting", rc);
			break;
		}
		sleep_ms(20);
	}
	sleep_ms(200);
	say_events("events", 300);
	before = state_of(a.qp);
	while (n < 100 && ibv_poll_cq(a.cq, 1, &wc) == 1)
		n++;
	say("completions %s", n == room  ? "as many as it has entries"
			      : n > room ? "more"
					 : "fewer");
	say("when they are taken, ibv_poll_cq %s",
		ibv_poll_cq(a.cq, 1, &wc) < 0 ? "fails" : "finds none");
	say("QP %s", state_word(before));
	say_rc("posting afterwards",
		post(&a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)b.buf, b.mr->rkey));
	sleep_ms(200);
	n = ibv_poll_cq(a.cq, 1, &wc);
	say("its completion: %s", n == 1 ? status_word(wc.status) : "none");
}

static bool event_within(struct side *s, int ms)
{
	struct pollfd p = {.fd = s->channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (poll(&p, 1, ms) != 1 || ibv_get_cq_event(s->channel, &cq, &context))
		return false;
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* a: the flags of the SEND; b: solicited only. */
static void ask_event(const struct question *q)
{
	struct side a, b;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	make_pair(&a, &b, NULL);
	MUST(!post_receive(&b, 0, 64));
	MUST(!ibv_req_notify_cq(b.cq, (int)q->b));
	sge = (struct ibv_sge){.addr = (uintptr_t)a.buf, .length = 16, .lkey = a.mr->lkey};
	wr = (struct ibv_send_wr){
		.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = (unsigned)q->a};
	MUST(!post_wr(&a, &wr));
	say("event: %s", event_within(&b, 400) ? "yes" : "no");
}

static void ask_event_late(const struct question *q)
{
	struct side a, b;

	(void)q;
	make_pair(&a, &b, NULL);
	MUST(!post_receive(&b, 0, 64));
	MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	sleep_ms(200);
	say_rc("ibv_req_notify_cq", ibv_req_notify_cq(b.cq, 0));
	say("event for a completion that was there before: %s",
		event_within(&b, 400) ? "yes" : "no");
}

static void ask_event_once(const struct question *q)
{
	struct side a, b;

	(void)q;
	make_pair(&a, &b, NULL);
	for (int i = 0; i < 3; i++)
		MUST(!post_receive(&b, 0, 64));
	MUST(!ibv_req_notify_cq(b.cq, 0));
	for (int i = 0; i < 3; i++)
		MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	say("first: %s", event_within(&b, 400) ? "yes" : "no");
	say("second: %s", event_within(&b, 300) ? "yes" : "no");
}

/* Solicited only: a failed SEND (a 1) or a flushed receive. */
static void ask_event_error(const struct question *q)
{
	struct side a, b;
	struct ibv_wc wc;

	make_pair(&a, &b, NULL);
	MUST(!post_receive(&a, 0, 64));
	MUST(!ibv_req_notify_cq(a.cq, 1));
	if (q->a)
		MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 16, (uintptr_t)b.buf, 0x77));
	else
		MUST(!to_state(a.qp, IBV_QPS_ERR));
	say("event: %s", event_within(&a, 600) ? "yes" : "no");
	if (poll_for(a.cq, &wc, 1000))
		say("%s", status_word(wc.status));
}

static void ask_vector(const struct question *q)
{
	open_device();
	say_made("ibv_create_cq",
		ibv_create_cq(ctx, 8, NULL, NULL, q->a ? ctx->num_comp_vectors : -1));
}

/* ---- what is in use ---- */

static void ask_busy_pd(const struct question *q)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	const void *made = NULL;

	open_device();
	switch (q->a) {
	case 0:
		made = ibv_reg_mr(pd, pages(PAGE), PAGE, IBV_ACCESS_LOCAL_WRITE);
		break;
	case 1:
		made = make_qp(make_cq(4), IBV_QPT_RC);
		break;
	case 2:
		made = make_ah();
		break;
	case 3:
		made = ibv_create_srq(pd, &srq);
		break;
	default:
		made = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	}
	MUST(made);
	errno = 0;
	say_rc("ibv_dealloc_pd", ibv_dealloc_pd(pd));
	say("errno %s", errno_word(errno));
}

static void ask_busy_cq(const struct question *q)
{
	struct side a;
	struct how how = {.srq = true};

	open_device();
	make_side(&a, &how);
	switch (q->a) {
	case 0:
		say_rc("ibv_destroy_cq", ibv_destroy_cq(a.cq));
		break;
	case 1:
		say_rc("ibv_destroy_comp_channel", ibv_destroy_comp_channel(a.channel));
		break;
	default:
		say_rc("ibv_destroy_srq", ibv_destroy_srq(a.srq));
	}
}

static void ask_busy_close(const struct question *q)
{
	(void)q;
	open_device();
	make_qp(make_cq(4), IBV_QPT_RC);
	say_rc("ibv_close_device", ibv_close_device(ctx));
}

static void ask_destroy_posted(const struct question *q)
{
	struct side a, b;
	struct ibv_wc wc;

	(void)q;
	make_pair(&a, &b, NULL);
	for (int i = 0; i < 4; i++)
		MUST(!post_receive(&b, 0, 64));
	MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	sleep_ms(300);
	say_rc("ibv_destroy_qp", ibv_destroy_qp(b.qp));
	say("its completions: %s", ibv_poll_cq(b.cq, 1, &wc) == 1 ? "left" : "gone");
}

static void ask_reset_purges(const struct question *q)
{
	struct side a, b;
	struct ibv_wc wc;

	(void)q;
	make_pair(&a, &b, NULL);
	MUST(!post_receive(&b, 0, 64));
	MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	sleep_ms(300);
	say_rc("to RESET", to_state(b.qp, IBV_QPS_RESET));
	say("its completions: %s", ibv_poll_cq(b.cq, 1, &wc) == 1 ? "left" : "gone");
}

/* ---- queue pairs ---- */

static void say_caps(const struct ibv_qp_cap *c)
{
	say("%u %u WRs, %u %u SGEs, %u inline", c->max_send_wr, c->max_recv_wr, c->max_send_sge,
		c->max_recv_sge, c->max_inline_data);
}

static const struct ibv_qp_cap caps[] = {{10, 10, 1, 1, 16}, {10, 10, 6, 1, 100}, {0, 0, 0, 0, 0},
	{1, 1, 1, 1, 0}, {100, 100, 2, 2, 0}, {16, 16, 32, 32, 0}, {16, 16, 33, 1, 0},
	{16, 16, 1, 33, 0}, {16, 16, 1, 1, 512}, {16, 16, 1, 1, 1024}, {1048577, 1, 1, 1, 0},
	{1, 1048577, 1, 1, 0}};

static void ask_caps(const struct question *q)
{
	struct ibv_qp_init_attr init = {.qp_type = (enum ibv_qp_type)q->b, .cap = caps[q->a]}, got;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;

	open_device();
	init.send_cq = init.recv_cq = make_cq(16);
	qp = ibv_create_qp(pd, &init);
	if (!qp) {
		say_made("ibv_create_qp", qp);
		return;
	}
	say_caps(&init.cap);
	MUST(!ibv_query_qp(qp, &attr, IBV_QP_CAP, &got));
	if (memcmp(&attr.cap, &init.cap, sizeof(attr.cap))) {
		say("ibv_query_qp");
		say_caps(&attr.cap);
	}
}

static void ask_type(const struct question *q)
{
	struct ibv_qp_init_attr init = {.qp_type = (enum ibv_qp_type)q->a, .cap = {4, 4, 1, 1, 0}};

	open_device();
	init.send_cq = init.recv_cq = make_cq(16);
	say_made("ibv_create_qp", ibv_create_qp(pd, &init));
}

static void ask_type_ex(const struct question *q)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = (enum ibv_qp_type)q->b,
		.cap = {4, 4, 1, 1, 0},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = (uint64_t)q->a};

	open_device();
	init.pd = pd;
	init.send_cq = init.recv_cq = make_cq(16);
	say_made("ibv_create_qp_ex", ibv_create_qp_ex(ctx, &init));
}

static void ask_create_flags(const struct question *q)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_UD,
		.cap = {4, 4, 1, 1, 0},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = (uint32_t)q->a};

	open_device();
	init.pd = pd;
	init.send_cq = init.recv_cq = make_cq(16);
	say_made("ibv_create_qp_ex", ibv_create_qp_ex(ctx, &init));
}

static void ask_fresh(const struct question *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct ibv_qp *qp;

	(void)q;
	open_device();
	qp = make_qp(make_cq(4), IBV_QPT_RC);
	memset(&a, 0xee, sizeof(a));
	say_rc("ibv_query_qp", ibv_query_qp(qp, &a, 0x1fffff, &init));
	say("%s, cur %s, mtu %d, access %#x, port %u, timeout %u, retry %u, rnr %u",
		state_word(a.qp_state), state_word(a.cur_qp_state), a.path_mtu, a.qp_access_flags,
		a.port_num, a.timeout, a.retry_cnt, a.rnr_retry);
	say("sq_sig_all %d, type %d, srq %s", init.sq_sig_all, init.qp_type,
		init.srq ? "set" : "none");
}

static void ask_qpn(const struct question *q)
{
	struct ibv_cq *cq;
	bool same = false, special = false;
	uint32_t seen[16];

	(void)q;
	open_device();
	cq = make_cq(4);
	for (int i = 0; i < 16; i++) {
		seen[i] = make_qp(cq, IBV_QPT_RC)->qp_num;
		special |= seen[i] < 2 || seen[i] >= 0xffffff;
		for (int j = 0; j < i; j++)
			same |= seen[i] == seen[j];
	}
	say("of 16 QPs: two with one number: %s; 0, 1 or 0xffffff: %s", same ? "yes" : "no",
		special ? "yes" : "no");
}

static void ask_open_qp(const struct question *q)
{
	struct ibv_qp_open_attr a = {.comp_mask = IBV_QP_OPEN_ATTR_NUM, .qp_num = 17};

	(void)q;
	open_device();
	say_made("ibv_open_qp", ibv_open_qp(ctx, &a));
}

static void ask_other_pd_srq(const struct question *q)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_pd *other;

	(void)q;
	open_device();
	MUST(other = ibv_alloc_pd(ctx));
	MUST(init.srq = ibv_create_srq(other, &srq));
	init.send_cq = init.recv_cq = make_cq(16);
	say_made("ibv_create_qp", ibv_create_qp(pd, &init));
}

/* ---- shared receive queues ---- */

static const struct ibv_srq_attr srqs[] = {
	{10, 1, 0}, {0, 1, 0}, {10, 0, 0}, {10, 33, 0}, {10000000, 1, 0}, {10, 1, 5}, {100, 4, 0}};

static void ask_srq(const struct question *q)
{
	struct ibv_srq_init_attr init = {.attr = srqs[q->a]};
	struct ibv_srq_attr attr;
	struct ibv_srq *srq;

	open_device();
	srq = ibv_create_srq(pd, &init);
	if (!srq) {
		say_made("ibv_create_srq", srq);
		return;
	}
	say("%u WRs, %u SGEs, limit %u", init.attr.max_wr, init.attr.max_sge, init.attr.srq_limit);
	MUST(!ibv_query_srq(srq, &attr));
	say("ibv_query_srq: %u, %u, %u", attr.max_wr, attr.max_sge, attr.srq_limit);
}

static struct ibv_srq *make_srq(unsigned wr)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = wr, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	MUST(srq);
	return srq;
}

static void ask_srq_modify(const struct question *q)
{
	struct ibv_srq_attr attr = {.max_wr = (uint32_t)q->a, .srq_limit = (uint32_t)q->a}, got;
	struct ibv_srq *srq;

	open_device();
	srq = make_srq(10);
	say_rc("ibv_modify_srq", ibv_modify_srq(srq, &attr, (int)q->b));
	MUST(!ibv_query_srq(srq, &got));
	say("then %u WRs, limit %u", got.max_wr, got.srq_limit);
}

static void ask_srq_limit(const struct question *q)
{
	struct how how = {.srq = true};
	struct ibv_srq_attr attr = {.srq_limit = (uint32_t)q->a};
	struct side a, b;

	make_pair(&a, &b, &how);
	for (int i = 0; i < 3; i++)
		MUST(!post_receive(&b, 0, 64));
	say_rc("ibv_modify_srq", ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT));
	say_events("at once", 300);
	MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	say_events("after one receive", 400);
	MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	say_events("after two", 400);
	MUST(!ibv_query_srq(b.srq, &attr));
	say("limit then %u", attr.srq_limit);
}

static void ask_srq_full(const struct question *q)
{
	struct ibv_recv_wr *bad, wr = {.num_sge = 0};
	struct ibv_srq_attr attr;
	struct ibv_srq *srq;
	unsigned n = 0;
	int rc = 0;

	(void)q;
	open_device();
	srq = make_srq(10);
	MUST(!ibv_query_srq(srq, &attr));
	while (n < 1000 && !(rc = ibv_post_srq_recv(srq, &wr, &bad)))
		n++;
	say("%s as ibv_query_srq says", n == attr.max_wr  ? "as many"
					: n < attr.max_wr ? "fewer"
							  : "more");
	say_rc("then", rc);
}

static void ask_srq_sge(const struct question *q)
{
	struct ibv_sge sge[2] = {{0}};
	struct ibv_recv_wr *bad, wr = {.num_sge = 2, .sg_list = sge};

	(void)q;
	open_device();
	say_rc("ibv_post_srq_recv", ibv_post_srq_recv(make_srq(10), &wr, &bad));
}

static void ask_srq_post_recv(const struct question *q)
{
	struct how how = {.srq = true};
	struct ibv_recv_wr *bad, wr = {.num_sge = 0};
	struct side a;

	(void)q;
	open_device();
	make_side(&a, &how);
	MUST(!to_init(a.qp, ALL_ACCESS));
	say_rc("ibv_post_recv", ibv_post_recv(a.qp, &wr, &bad));
}

static void ask_srq_error(const struct question *q)
{
	struct how how = {.srq = true};
	struct side a, b;
	struct ibv_wc wc;

	(void)q;
	make_pair(&a, &b, &how);
	MUST(!post_receive(&b, 0, 64));
	MUST(!to_state(b.qp, IBV_QPS_ERR));
	say_events("events", 400);
	say("receives of the SRQ: %s", ibv_poll_cq(b.cq, 1, &wc) == 1 ? "flushed" : "kept");
}

static void ask_srq_caps(const struct question *q)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {10, 10, 1, 1, 0}};

	(void)q;
	open_device();
	init.send_cq = init.recv_cq = make_cq(16);
	init.srq = make_srq(10);
	MUST(ibv_create_qp(pd, &init));
	say_caps(&init.cap);
}

static void ask_srq_xrc(const struct question *q)
{
	struct ibv_srq_init_attr_ex a = {.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = (enum ibv_srq_type)q->a};

	open_device();
	a.pd = pd;
	say_made("ibv_create_srq_ex", ibv_create_srq_ex(ctx, &a));
}

static void ask_srq_num(const struct question *q)
{
	uint32_t n;

	(void)q;
	open_device();
	say_rc("ibv_get_srq_num", ibv_get_srq_num(make_srq(4), &n));
}

/* ---- address handles ---- */

enum { NO_GRH, PORT_0, PORT_2, SGID_99, ABSENT_HOST, NO_ROUTE, GROUP, IPV6_ZERO, STATIC_RATE };

static void set_ip4(union ibv_gid *g, uint32_t address)
{
	memset(g, 0, sizeof(*g));
	g->raw[10] = g->raw[11] = 0xff;
	memcpy(g->raw + 12, &address, 4);
}

static void spoil_ah(struct ibv_ah_attr *a, long how)
{
	*a = (struct ibv_ah_attr){.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}};
	switch (how) {
	case NO_GRH:
		a->is_global = 0;
		break;
	case PORT_0:
		a->port_num = 0;
		break;
	case PORT_2:
		a->port_num = 2;
		break;
	case SGID_99:
		a->grh.sgid_index = 99;
		break;
	case ABSENT_HOST:
		set_ip4(&a->grh.dgid, absent.sin_addr.s_addr);
		break;
	case NO_ROUTE:
		set_ip4(&a->grh.dgid, htonl(0xcb007105));
		break;
	case GROUP:
		set_ip4(&a->grh.dgid, htonl(0xef070707));
		break;
	case IPV6_ZERO:
		memset(&a->grh.dgid, 0, sizeof(a->grh.dgid));
		break;
	default:
		a->static_rate = 31;
	}
}

static void ask_ah(const struct question *q)
{
	struct ibv_ah_attr a;

	open_device();
	spoil_ah(&a, q->a);
	say_made("ibv_create_ah", ibv_create_ah(pd, &a));
}

static void ask_ah_rtr(const struct question *q)
{
	struct ibv_qp_attr a;
	struct ibv_qp *qp;
	int mask;

	open_device();
	qp = make_qp(make_cq(4), IBV_QPT_RC);
	MUST(!to_init(qp, ALL_ACCESS));
	mask = step(IBV_QPT_RC, IBV_QPS_RTR, qp->qp_num, &a);
	spoil_ah(&a.ah_attr, q->a);
	say_rc("ibv_modify_qp", ibv_modify_qp(qp, &a, mask));
}

/* ---- groups ---- */

static void ask_attach(const struct question *q)
{
	union ibv_gid group;
	struct ibv_qp *qp;

	open_device();
	qp = make_qp(make_cq(4), q->b ? IBV_QPT_RC : IBV_QPT_UD);
	set_ip4(&group, htonl(q->a ? 0xef070707 : 0x0a090003));
	say_rc("ibv_attach_mcast", ibv_attach_mcast(qp, &group, 0));
}

static void ask_attach_life(const struct question *q)
{
	union ibv_gid group;
	struct ibv_qp *qp;

	(void)q;
	open_device();
	qp = make_qp(make_cq(4), IBV_QPT_UD);
	MUST(!to_init(qp, 0));
	set_ip4(&group, htonl(0xef070707));
	say_rc("attach", ibv_attach_mcast(qp, &group, 0));
	say_rc("again", ibv_attach_mcast(qp, &group, 0));
	say_rc("destroy", ibv_destroy_qp(qp));
	say_rc("detach", ibv_detach_mcast(qp, &group, 0));
	say_rc("detach again", ibv_detach_mcast(qp, &group, 0));
}

const struct question object_questions[] = {
	{"cq.cqe_negative", "a CQ of -1 entries", ask_cqe, -1, 0},
	{"cq.cqe_0", "a CQ of 0 entries", ask_cqe, 0, 0},
	{"cq.cqe_1", "a CQ of 1 entry", ask_cqe, 1, 0},
	{"cq.cqe_10", "a CQ of 10 entries", ask_cqe, 10, 0},
	{"cq.cqe_100", "a CQ of 100 entries", ask_cqe, 100, 0},
	{"cq.cqe_1000", "a CQ of 1000 entries", ask_cqe, 1000, 0},
	{"cq.cqe_32767", "a CQ of 32767 entries", ask_cqe, 32767, 0},
	{"cq.cqe_32768", "a CQ of 32768 entries", ask_cqe, 32768, 0},
	{"cq.cqe_5000000", "a CQ of 5,000,000 entries", ask_cqe, 5000000, 0},
	{"cq.vector_negative", "completion vector -1", ask_vector, 0, 0},
	{"cq.vector_beyond", "a completion vector too many", ask_vector, 1, 0},
	{"cq.resize_up", "ibv_resize_cq to 200 entries", ask_resize, 200, 0},
	{"cq.resize_down", "ibv_resize_cq to 10 entries", ask_resize, 10, 0},
	{"cq.resize_0", "ibv_resize_cq to 0 entries", ask_resize, 0, 0},
	{"cq.resize_full", "ibv_resize_cq of one that has completions", ask_resize_full, 0, 0},
	{"cq.ex_standard", "ibv_create_cq_ex, the usual fields", ask_cq_ex, IBV_WC_STANDARD_FLAGS,
		0},
	{"cq.ex_timestamp", "ibv_create_cq_ex with time stamps", ask_cq_ex,
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0},
	{"cq.ex_wallclock", "ibv_create_cq_ex with the wall clock", ask_cq_ex,
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, 0},
	{"cq.ex_single", "ibv_create_cq_ex for one thread", ask_cq_ex, IBV_WC_STANDARD_FLAGS,
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED},
	{"cq.ex_overrun", "ibv_create_cq_ex, overruns ignored", ask_cq_ex, IBV_WC_STANDARD_FLAGS,
		IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN},
	{"cq.ex_poll", "ibv_start_poll", ask_cq_ex_poll, 0, 0},
	{"cq.overflow", "a CQ that overflows", ask_overflow, 0, 0},
	{"cq.event", "an event for a receive", ask_event, 0, 0},
	{"cq.event_unsolicited", "solicited events: a SEND without the flag", ask_event, 0, 1},
	{"cq.event_solicited", "solicited events: a SEND with it", ask_event, IBV_SEND_SOLICITED,
		1},
	{"cq.event_late", "arming a CQ that has a completion", ask_event_late, 0, 0},
	{"cq.event_once", "three completions for one ibv_req_notify_cq", ask_event_once, 0, 0},
	{"cq.event_failed", "solicited events: a request that fails", ask_event_error, 1, 0},
	{"cq.event_flushed", "solicited events: a receive that is flushed", ask_event_error, 0, 0},
	{"busy.pd_mr", "ibv_dealloc_pd with a region", ask_busy_pd, 0, 0},
	{"busy.pd_qp", "ibv_dealloc_pd with a QP", ask_busy_pd, 1, 0},
	{"busy.pd_ah", "ibv_dealloc_pd with an address handle", ask_busy_pd, 2, 0},
	{"busy.pd_srq", "ibv_dealloc_pd with an SRQ", ask_busy_pd, 3, 0},
	{"busy.pd_mw", "ibv_dealloc_pd with a window", ask_busy_pd, 4, 0},
	{"busy.cq", "ibv_destroy_cq with a QP", ask_busy_cq, 0, 0},
	{"busy.channel", "ibv_destroy_comp_channel with a CQ", ask_busy_cq, 1, 0},
	{"busy.srq", "ibv_destroy_srq with a QP", ask_busy_cq, 2, 0},
	{"busy.close", "ibv_close_device with a QP", ask_busy_close, 0, 0},
	{"busy.qp_posted", "ibv_destroy_qp with receives posted and a completion unread",
		ask_destroy_posted, 0, 0},
	{"busy.reset", "RESET with a completion unread", ask_reset_purges, 0, 0},
	{"qp.caps_usual", "QP sizes 10 10 1 1 16", ask_caps, 0, IBV_QPT_RC},
	{"qp.caps_inline", "QP sizes 10 10 6 1 100", ask_caps, 1, IBV_QPT_RC},
	{"qp.caps_0", "QP sizes all 0", ask_caps, 2, IBV_QPT_RC},
	{"qp.caps_1", "QP sizes 1 1 1 1 0", ask_caps, 3, IBV_QPT_RC},
	{"qp.caps_100", "QP sizes 100 100 2 2 0", ask_caps, 4, IBV_QPT_RC},
	{"qp.caps_ud", "QP sizes 10 10 1 1 16, UD", ask_caps, 0, IBV_QPT_UD},
	{"qp.caps_sge_32", "32 SGEs", ask_caps, 5, IBV_QPT_RC},
	{"qp.caps_send_sge_33", "33 SGEs to send", ask_caps, 6, IBV_QPT_RC},
	{"qp.caps_recv_sge_33", "33 SGEs to receive", ask_caps, 7, IBV_QPT_RC},
	{"qp.caps_inline_512", "512 bytes inline", ask_caps, 8, IBV_QPT_RC},
	{"qp.caps_inline_1024", "1024 bytes inline", ask_caps, 9, IBV_QPT_RC},
	{"qp.caps_send_wr", "1,048,577 send WRs", ask_caps, 10, IBV_QPT_RC},
	{"qp.caps_recv_wr", "1,048,577 receive WRs", ask_caps, 11, IBV_QPT_RC},
	{"qp.type_raw", "a raw packet QP", ask_type, IBV_QPT_RAW_PACKET, 0},
	{"qp.type_xrc", "an XRC send QP", ask_type, IBV_QPT_XRC_SEND, 0},
	{"qp.type_driver", "a driver QP", ask_type, IBV_QPT_DRIVER, 0},
	{"qp.type_none", "a QP type that is none", ask_type, 77, 0},
	{"qp.ex_all", "ibv_create_qp_ex with each RC operation", ask_type_ex, 0x1ff, IBV_QPT_RC},
	{"qp.ex_tso", "ibv_create_qp_ex with TSO", ask_type_ex, IBV_QP_EX_WITH_TSO, IBV_QPT_RC},
	{"qp.ex_ud_write", "ibv_create_qp_ex, UD with WRITE", ask_type_ex,
		IBV_QP_EX_WITH_RDMA_WRITE, IBV_QPT_UD},
	{"qp.ex_atomic_write", "ibv_create_qp_ex with ATOMIC WRITE", ask_type_ex, 1 << 12,
		IBV_QPT_RC},
	{"qp.flag_loopback", "create flag BLOCK_SELF_MCAST_LB", ask_create_flags,
		IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, 0},
	{"qp.flag_scatter", "create flag SCATTER_FCS", ask_create_flags, IBV_QP_CREATE_SCATTER_FCS,
		0},
	{"qp.fresh", "ibv_query_qp of a new QP", ask_fresh, 0, 0},
	{"qp.numbers", "QP numbers", ask_qpn, 0, 0}, {"qp.open", "ibv_open_qp", ask_open_qp, 0, 0},
	{"qp.srq_other_pd", "a QP with an SRQ of another PD", ask_other_pd_srq, 0, 0},
	{"qp.srq_caps", "sizes of a QP with an SRQ", ask_srq_caps, 0, 0},
	{"srq.usual", "an SRQ of 10 WRs, 1 SGE", ask_srq, 0, 0},
	{"srq.wr_0", "an SRQ of 0 WRs", ask_srq, 1, 0},
	{"srq.sge_0", "an SRQ of 0 SGEs", ask_srq, 2, 0},
	{"srq.sge_33", "an SRQ of 33 SGEs", ask_srq, 3, 0},
	{"srq.wr_many", "an SRQ of 10,000,000 WRs", ask_srq, 4, 0},
	{"srq.limit_at_first", "an SRQ with a limit from the start", ask_srq, 5, 0},
	{"srq.100", "an SRQ of 100 WRs, 4 SGEs", ask_srq, 6, 0},
	{"srq.resize_up", "an SRQ made larger", ask_srq_modify, 100, IBV_SRQ_MAX_WR},
	{"srq.resize_down", "an SRQ made smaller", ask_srq_modify, 4, IBV_SRQ_MAX_WR},
	{"srq.limit_beyond", "an SRQ limit above its size", ask_srq_modify, 1000, IBV_SRQ_LIMIT},
	{"srq.modify_nothing", "ibv_modify_srq of nothing", ask_srq_modify, 4, 0},
	{"srq.limit", "SRQ limit 3 with 3 receives", ask_srq_limit, 3, 0},
	{"srq.limit_late", "SRQ limit 2 with 3 receives", ask_srq_limit, 2, 0},
	{"srq.limit_above", "SRQ limit 5 with 3 receives", ask_srq_limit, 5, 0},
	{"srq.full", "receives too many for an SRQ", ask_srq_full, 0, 0},
	{"srq.post_sge", "a receive with an SGE too many for an SRQ", ask_srq_sge, 0, 0},
	{"srq.post_recv", "ibv_post_recv to a QP with an SRQ", ask_srq_post_recv, 0, 0},
	{"srq.error", "a QP with an SRQ in ERR", ask_srq_error, 0, 0},
	{"srq.ex_xrc", "an XRC SRQ", ask_srq_xrc, IBV_SRQT_XRC, 0},
	{"srq.ex_tm", "an SRQ with tag matching", ask_srq_xrc, IBV_SRQT_TM, 0},
	{"srq.ex_basic", "ibv_create_srq_ex", ask_srq_xrc, IBV_SRQT_BASIC, 0},
	{"srq.number", "ibv_get_srq_num", ask_srq_num, 0, 0},
	{"ah.no_grh", "an address handle without a GRH", ask_ah, NO_GRH, 0},
	{"ah.port_0", "an address handle of port 0", ask_ah, PORT_0, 0},
	{"ah.port_2", "an address handle of port 2", ask_ah, PORT_2, 0},
	{"ah.sgid_99", "an address handle of an empty GID index", ask_ah, SGID_99, 0},
	{"ah.absent", "an address handle to a host that does not answer", ask_ah, ABSENT_HOST, 0},
	{"ah.no_route", "an address handle to where no route goes", ask_ah, NO_ROUTE, 0},
	{"ah.group", "an address handle to a group", ask_ah, GROUP, 0},
	{"ah.zero", "an address handle to GID ::", ask_ah, IPV6_ZERO, 0},
	{"ah.rate", "an address handle with static rate 31", ask_ah, STATIC_RATE, 0},
	{"ah.rtr_no_grh", "RTR without a GRH", ask_ah_rtr, NO_GRH, 0},
	{"ah.rtr_port_2", "RTR with an address of port 2", ask_ah_rtr, PORT_2, 0},
	{"ah.rtr_port_0", "RTR with an address of port 0", ask_ah_rtr, PORT_0, 0},
	{"ah.rtr_sgid_99", "RTR with an empty GID index", ask_ah_rtr, SGID_99, 0},
	{"ah.rtr_absent", "RTR to a host that does not answer", ask_ah_rtr, ABSENT_HOST, 0},
	{"ah.rtr_no_route", "RTR to where no route goes", ask_ah_rtr, NO_ROUTE, 0},
	{"ah.rtr_group", "RTR to a group", ask_ah_rtr, GROUP, 0},
	{"ah.rtr_zero", "RTR to GID ::", ask_ah_rtr, IPV6_ZERO, 0},
	{"group.rc", "ibv_attach_mcast of an RC QP", ask_attach, 1, 1},
	{"group.host", "ibv_attach_mcast to a host's address", ask_attach, 0, 0},
	{"group.reset", "ibv_attach_mcast of a QP in RESET", ask_attach, 1, 0},
	{"group.life", "attach twice, destroy attached, detach twice", ask_attach_life, 0, 0}, {0}};
