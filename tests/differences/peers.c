/* SPDX-License-Identifier: BSD-3-Clause */
/* peers.c - the device that has our address, and two queue pairs on it that are each other's peers:
 * what most questions start from. See probe.h. */
#include "probe.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct ibv_context *ctx;
struct ibv_pd *pd;
int gid_index;
union ibv_gid gid;

/* The index of the RoCEv2 GID that is our IPv4 address; -1 where the device has none. */
static int find_gid(struct ibv_context *c)
{
	struct ibv_gid_entry entries[64];
	ssize_t n = ibv_query_gid_table(c, entries, 64, 0);
	uint8_t want[16] = {[10] = 0xff, [11] = 0xff};

	memcpy(want + 12, &host.sin_addr, 4);
	for (ssize_t i = 0; i < n; i++)
		if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
			!memcmp(entries[i].gid.raw, want, 16))
			return (int)entries[i].gid_index;
	return -1;
}

void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i] && !ctx; i++) {
		struct ibv_context *c = ibv_open_device(list[i]);

		gid_index = c ? find_gid(c) : -1;
		if (gid_index >= 0)
			ctx = c;
		else if (c)
			ibv_close_device(c);
	}
	MUST(ctx);
	MUST(!ibv_query_gid(ctx, 1, gid_index, &gid));
	MUST(pd = ibv_alloc_pd(ctx));
}

bool poll_for(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	double until = now() + ms / 1000.0;

	do {
		int n = ibv_poll_cq(cq, 1, wc);

		if (n)
			return n > 0;
		sleep_ms(1);
	} while (now() < until);
	return false;
}

/* In the order of their numbers: which of two comes first is the threads' affair. */
void say_events(const char *name, int ms)
{
	struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN};
	unsigned seen[32] = {0};
	struct ibv_async_event e;
	char text[200] = "";

	while (poll(&p, 1, ms) == 1 && !ibv_get_async_event(ctx, &e)) {
		if (e.event_type < 32)
			seen[e.event_type]++;
		ibv_ack_async_event(&e);
	}
	for (unsigned i = 0; i < 32; i++)
		if (seen[i]) {
			size_t len = strlen(text);

			snprintf(text + len, sizeof(text) - len, "%s%s%s", len ? " " : "",
				event_word(i), seen[i] > 1 ? " more than once" : "");
		}
	say("%s: %s", name, *text ? text : "none");
}

uint8_t *pages(size_t bytes)
{
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(at != MAP_FAILED);
	memset(at, 0, bytes);
	return at;
}

/* ---- queue pairs ---- */

struct ibv_cq *make_cq(int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, cqe, NULL, NULL, 0);

	MUST(cq);
	return cq;
}

struct ibv_qp *make_qp(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	MUST(qp);
	return qp;
}

static int or_usual(int value, int usual) { return value < 0 ? 0 : value ? value : usual; }

void make_side(struct side *s, const struct how *how)
{
	int access = how->mr_access < 0 ? IBV_ACCESS_LOCAL_WRITE
		     : how->mr_access   ? how->mr_access
					: ALL_ACCESS;

	*s = (struct side){.buf = pages(BUF)};
	MUST(s->channel = ibv_create_comp_channel(ctx));
	MUST(s->cq = ibv_create_cq(ctx, or_usual(how->cqe, 64), NULL, s->channel, 0));
	MUST(s->mr = ibv_reg_mr(pd, s->buf, BUF, access));
	struct ibv_qp_init_attr init = {.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = how->type ? how->type : IBV_QPT_RC,
		.sq_sig_all = !how->unsignaled,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64}};
	if (how->srq) {
		struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 4}};

		MUST(s->srq = ibv_create_srq(pd, &srq));
		init.srq = s->srq;
	}
	MUST(s->qp = ibv_create_qp(pd, &init));
}

int step(enum ibv_qp_type type, enum ibv_qp_state to, uint32_t peer, struct ibv_qp_attr *attr)
{
	static const struct how usual;
	bool rc = type == IBV_QPT_RC, connected = rc || type == IBV_QPT_UC;

	*attr = (struct ibv_qp_attr){.qp_state = to};
	switch (to) {
	case IBV_QPS_INIT:
		attr->port_num = 1;
		attr->qp_access_flags = ALL_ACCESS;
		attr->qkey = 0x11111111;
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
	case IBV_QPS_RTR:
		attr->path_mtu = IBV_MTU_1024;
		attr->dest_qp_num = peer;
		attr->rq_psn = 100;
		attr->max_dest_rd_atomic = (uint8_t)or_usual(usual.rd_atomic, 4);
		attr->min_rnr_timer = 1;
		attr->ah_attr = (struct ibv_ah_attr){.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}};
		return !connected ? IBV_QP_STATE
				  : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN |
					    (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
						: 0);
	case IBV_QPS_RTS:
		attr->sq_psn = 100;
		attr->timeout = 14;
		attr->retry_cnt = 7;
		attr->rnr_retry = 7;
		attr->max_rd_atomic = 4;
		return IBV_QP_STATE | IBV_QP_SQ_PSN |
		       (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_MAX_QP_RD_ATOMIC
			   : 0);
	default:
		return IBV_QP_STATE;
	}
}

int to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr;
	int mask = step(qp->qp_type, IBV_QPS_INIT, 0, &attr);

	attr.qp_access_flags = (unsigned)access;
	return ibv_modify_qp(qp, &attr, mask);
}

int to_rtr(struct ibv_qp *qp, uint32_t peer, const struct how *how)
{
	struct ibv_qp_attr attr;
	int mask = step(qp->qp_type, IBV_QPS_RTR, peer, &attr);

	attr.max_dest_rd_atomic = (uint8_t)or_usual(how->rd_atomic, 4);
	attr.min_rnr_timer = (uint8_t)or_usual(how->min_rnr_timer, 1);
	return ibv_modify_qp(qp, &attr, mask);
}

int to_rts(struct ibv_qp *qp, const struct how *how)
{
	struct ibv_qp_attr attr;
	int mask = step(qp->qp_type, IBV_QPS_RTS, 0, &attr);

	attr.timeout = (uint8_t)or_usual(how->timeout, 14);
	attr.retry_cnt = (uint8_t)or_usual(how->retry_cnt, 7);
	attr.rnr_retry = (uint8_t)or_usual(how->rnr_retry, 7);
	attr.max_rd_atomic = (uint8_t)or_usual(how->rd_atomic, 4);
	return ibv_modify_qp(qp, &attr, mask);
}

int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void climb(struct ibv_qp *qp, uint32_t peer, enum ibv_qp_state state)
{
	static const struct how usual;

	if (state == IBV_QPS_RESET)
		return;
	MUST(!to_init(qp, ALL_ACCESS));
	if (state != IBV_QPS_INIT && state != IBV_QPS_ERR)
		MUST(!to_rtr(qp, peer, &usual));
	if (state == IBV_QPS_RTS || state == IBV_QPS_SQD)
		MUST(!to_rts(qp, &usual));
	if (state == IBV_QPS_ERR || state == IBV_QPS_SQD)
		MUST(!to_state(qp, state));
}

static void bring_up(struct side *s, const struct side *peer, const struct how *how)
{
	enum ibv_qp_state stop = how->stop ? how->stop : IBV_QPS_RTS;

	MUST(!to_init(s->qp, or_usual(how->access, ALL_ACCESS)));
	if (stop >= IBV_QPS_RTR)
		MUST(!to_rtr(s->qp, peer->qp->qp_num, how));
	if (stop >= IBV_QPS_RTS)
		MUST(!to_rts(s->qp, how));
}

void make_pair(struct side *a, struct side *b, const struct how *how)
{
	static const struct how usual;

	how = how ? how : &usual;
	open_device();
	make_side(a, how);
	make_side(b, how);
	bring_up(a, b, how);
	bring_up(b, a, how);
}

enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	MUST(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* ---- posting ---- */

int post_wr(struct side *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send(s->qp, wr, &bad);
}

int post(struct side *s, enum ibv_wr_opcode opcode, size_t offset, uint32_t len,
	uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->buf + offset, .length = len, .lkey = s->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 0x5e4d,
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = len ? 1 : 0,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(0xabcdef01)};

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote_addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 7;
	} else {
		wr.wr.rdma.remote_addr = remote_addr;
		wr.wr.rdma.rkey = rkey;
	}
	return post_wr(s, &wr);
}

int post_receive(struct side *s, size_t offset, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->buf + offset, .length = len, .lkey = s->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = 0x4ec, .sg_list = &sge, .num_sge = len ? 1 : 0};

	return s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
}

/* What a completion says beside its status, as far as it is valid. */
void say_wc(const struct ibv_wc *wc)
{
	say("receiver: %s %s, %u bytes, flags %#x, vendor_err %u, src_qp %s, slid %u, sl %u, "
	    "pkey_index %u",
		status_word(wc->status), opcode_word(wc->opcode), wc->byte_len, wc->wc_flags,
		wc->vendor_err, wc->src_qp ? "set" : "0", wc->slid, wc->sl, wc->pkey_index);
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		say("immediate %s", ntohl(wc->imm_data) == 0xabcdef01 ? "right" : "wrong");
}

void say_completion(const char *name, struct ibv_cq *cq, bool whole)
{
	struct ibv_wc wc;

	memset(&wc, 0, sizeof(wc));
	if (!poll_for(cq, &wc, 3000))
		say("%s: no completion", name);
	else if (!whole || wc.status != IBV_WC_SUCCESS)
		say("%s: %s", name, status_word(wc.status));
	else
		say("%s: %s, %u bytes, flags %#x", name, opcode_word(wc.opcode), wc.byte_len,
			wc.wc_flags);
}

struct ibv_ah *make_ah(void)
{
	struct ibv_ah_attr attr = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);

	MUST(ah);
	return ah;
}
