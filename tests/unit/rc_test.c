/* The transport: two QPs and a wire between them in memory, on which each test drops, repeats and reorders what it wants. Time is a number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>

#include "rc/rc.h"

enum {
	MEM = 1 << 20,
	WCS = 4096,
	EVENTS = 64,
	WIRE = 8192,
	KEY = 0x100,
	KEY_BAD = 0xbad,
	QPN0 = 0x11,
	QPN1 = 0x22,
	MTU = 1024,
	PSN0 = 0xffffe0,
	PSN1 = 0x000123
};

struct side {
	struct rpwi_qp qp;
	struct rpwi_rq rq;
	struct rpwi_cc cc;
	struct rpwi_flow rx_flow;
	uint8_t *mem;
	int key_access;             /* of KEY, which covers mem */
	uint64_t hole_at, hole_len; /* addresses that are not mapped */
	uint32_t inv_key;           /* last invalidated */
	bool inv_remote;
	int inv_rc, bind_rc, binds;
	struct ibv_wc wc[WCS];
	unsigned nwc, nrecv, nsolicited;
	bool wc_recv[WCS];
	enum ibv_event_type event[EVENTS];
	unsigned nevent;
};

struct wpkt {
	int to;
	size_t len;
	uint8_t raw[RPWI_PACKET_MAX];
};

static struct side S[2];
static struct wpkt *wire;
static unsigned wire_n;
static uint64_t now;
static struct rpwi_txb *txb;
static int (*fate)(const struct wpkt *w, const struct rpwi_pkt *p); /* 0 deliver, 1 drop, 2 twice */
static unsigned fate_n;

/* ---- surroundings of a QP ---- */

static struct side *side_of(const struct rpwi_qp *qp) { return qp->user; }

static bool in_mem(const struct side *s, uint64_t addr, uint64_t len)
{
	uint64_t base = (uintptr_t)s->mem;
	return addr >= base && len <= MEM && addr - base <= MEM - len;
}

static bool in_hole(const struct side *s, uint64_t addr, uint64_t len) { return s->hole_len && addr < s->hole_at + s->hole_len && s->hole_at < addr + len; }

static int mem_check(struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote)
{
	const struct side *s = side_of(qp);
	return key == KEY && in_mem(s, addr, len) && !(access & ~s->key_access) ? 0 : -EACCES;
}

static int mem_write(struct rpwi_qp *qp, uint32_t key, uint64_t addr, const void *src, uint32_t len, bool remote)
{
	if (mem_check(qp, key, addr, len, remote ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE, remote))
		return -EACCES;
	if (in_hole(side_of(qp), addr, len))
		return -EFAULT;
	memcpy((void *)(uintptr_t)addr, src, len);
	return 0;
}

static int mem_read(struct rpwi_qp *qp, uint32_t key, uint64_t addr, void *dst, uint32_t len, bool remote)
{
	if (mem_check(qp, key, addr, len, remote ? IBV_ACCESS_REMOTE_READ : 0, remote))
		return -EACCES;
	if (in_hole(side_of(qp), addr, len))
		return -EFAULT;
	memcpy(dst, (void *)(uintptr_t)addr, len);
	return 0;
}

static const void *mem_map(struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint32_t len)
{
	return mem_check(qp, key, addr, len, 0, false) || in_hole(side_of(qp), addr, len) ? NULL : (void *)(uintptr_t)addr;
}

static int mem_atomic(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, bool cmp_swap, uint64_t compare, uint64_t swap_add, uint64_t *orig)
{
	if (mem_check(qp, rkey, addr, 8, IBV_ACCESS_REMOTE_ATOMIC, true))
		return -EACCES;
	uint64_t *p = (uint64_t *)(uintptr_t)addr;
	*orig = *p;
	*p = cmp_swap ? (*p == compare ? swap_add : *p) : *p + swap_add;
	return 0;
}

static int invalidate(struct rpwi_qp *qp, uint32_t key, bool remote)
{
	struct side *s = side_of(qp);
	s->inv_key = key;
	s->inv_remote = remote;
	return s->inv_rc;
}

static int bind_mw(struct rpwi_qp *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	side_of(qp)->binds++;
	return side_of(qp)->bind_rc;
}

static void complete(struct rpwi_qp *qp, bool recv, const struct ibv_wc *wc, bool solicited)
{
	struct side *s = side_of(qp);
	assert_true(s->nwc < WCS);
	assert_int_equal(wc->qp_num, qp->qpn);
	s->wc_recv[s->nwc] = recv;
	s->wc[s->nwc++] = *wc;
	s->nrecv += recv;
	s->nsolicited += recv && solicited;
}

static void event(struct rpwi_qp *qp, enum ibv_event_type type)
{
	struct side *s = side_of(qp);
	assert_true(s->nevent < EVENTS);
	s->event[s->nevent++] = type;
}

static const struct rpwi_qp_ops ops = {
	.mem_check = mem_check,
	.mem_write = mem_write,
	.mem_read = mem_read,
	.mem_map = mem_map,
	.mem_atomic = mem_atomic,
	.invalidate = invalidate,
	.bind_mw = bind_mw,
	.complete = complete,
	.event = event,
};

/* ---- making a pair ---- */

static void fill(struct side *s, uint32_t salt)
{
	uint64_t x = 0x9e3779b97f4a7c15ull * (salt + 1);
	for (size_t i = 0; i < MEM; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(s->mem + i, &x, 8);
	}
}

static struct rpwi_av av_between(int me)
{
	struct rpwi_av av = {.hop_limit = 64};
	av.flow.src = (struct rpwi_addr){.family = 4, .bytes = {10, 0, 0, (uint8_t)(1 + me)}};
	av.flow.dst = (struct rpwi_addr){.family = 4, .bytes = {10, 0, 0, (uint8_t)(2 - me)}};
	av.flow.sport = 0xc001;
	av.flow.dport = RPWI_UDP_PORT;
	return av;
}

struct config {
	enum ibv_qp_type type;
	uint32_t send_wr, recv_wr, sge, inl, rd, cwnd;
	bool sig_all, srq;
	int timeout, retry, rnr_retry, rnr_timer, access;
};
#pragma GCC diagnostic ignored "-Woverride-init" /* of the defaults, on purpose */
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
#define CONFIG(...) \
	(struct config) \
	{ \
		.type = IBV_QPT_RC, .send_wr = 64, .recv_wr = 64, .sge = 4, .inl = 256, .rd = 4, .cwnd = 64, .timeout = 14, .retry = 7, .rnr_retry = 3, \
		.rnr_timer = 12, .access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC, __VA_ARGS__ \
	}

static void make(int i, const struct config *c)
{
	struct side *s = &S[i];
	uint8_t *mem = s->mem;

	memset(s, 0, sizeof(*s));
	s->mem = mem;
	fill(s, (uint32_t)i);
	s->key_access = c->access | IBV_ACCESS_LOCAL_WRITE;
	assert_int_equal(rpwi_rq_init(&s->rq, c->recv_wr, c->sge, c->srq), 0);
	rpwi_cc_init(&s->cc, c->cwnd, c->cwnd);
	struct rpwi_qp_init init = {
		.ops = &ops,
		.user = s,
		.type = c->type,
		.qpn = i ? QPN1 : QPN0,
		.sq_sig_all = c->sig_all,
		.rq = &s->rq,
		.cap = {.max_send_wr = c->send_wr, .max_recv_wr = c->recv_wr, .max_send_sge = c->sge, .max_recv_sge = c->sge, .max_inline_data = c->inl},
	};
	assert_int_equal(rpwi_qp_init(&s->qp, &init), 0);
	s->rx_flow = av_between(!i).flow;
}

static int to_init(int i, const struct config *c)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)c->access, .qkey = 0x5151 + (unsigned)i};
	return rpwi_qp_modify(
		&S[i].qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (c->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS), NULL, now);
}

static int to_rtr(int i, const struct config *c)
{
	struct rpwi_av av = av_between(i);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = i ? QPN0 : QPN1,
		.rq_psn = i ? PSN0 : PSN1,
		.max_dest_rd_atomic = (uint8_t)c->rd,
		.min_rnr_timer = (uint8_t)c->rnr_timer};
	int mask = IBV_QP_STATE;

	av.cc = &S[i].cc;
	if (c->type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	else
		S[i].qp.attr.path_mtu = IBV_MTU_1024;
	if (c->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return rpwi_qp_modify(&S[i].qp, &a, mask, &av, now);
}

static int to_rts(int i, const struct config *c)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
		.sq_psn = i ? PSN1 : PSN0,
		.timeout = (uint8_t)c->timeout,
		.retry_cnt = (uint8_t)c->retry,
		.rnr_retry = (uint8_t)c->rnr_retry,
		.max_rd_atomic = (uint8_t)c->rd};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (c->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return rpwi_qp_modify(&S[i].qp, &a, mask, NULL, now);
}

static void pair(struct config c)
{
	wire_n = fate_n = 0;
	fate = NULL;
	now = 1000000;
	for (int i = 0; i < 2; i++) {
		make(i, &c);
		assert_int_equal(to_init(i, &c), 0);
		assert_int_equal(to_rtr(i, &c), 0);
		assert_int_equal(to_rts(i, &c), 0);
	}
}

static void unpair(void)
{
	for (int i = 0; i < 2; i++) {
		rpwi_qp_fini(&S[i].qp);
		rpwi_rq_fini(&S[i].rq);
		assert_int_equal(S[i].cc.inflight, 0); /* whatever happened, nothing is left in the window */
	}
}

static int setup(void **state)
{
	wire = malloc(WIRE * sizeof(*wire));
	txb = malloc(sizeof(*txb));
	txb->scratch = malloc(RPWI_TXB_SCRATCH);
	S[0].mem = aligned_alloc(4096, MEM);
	S[1].mem = aligned_alloc(4096, MEM);
	return 0;
}

static int teardown(void **state)
{
	free(wire);
	free(txb->scratch);
	free(txb);
	free(S[0].mem);
	free(S[1].mem);
	return 0;
}

/* ---- posting ---- */

static int post(int i, enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len, uint32_t roff, unsigned flags)
{
	struct ibv_sge sge = {.addr = (uintptr_t)S[i].mem + off, .length = len, .lkey = KEY};
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1, .send_flags = flags, .imm_data = htobe32(0xabcd0000u | (uint32_t)id)};
	if (op == IBV_WR_SEND_WITH_INV || op == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = 0x7000 + (uint32_t)id;
	wr.wr.rdma.remote_addr = (uintptr_t)S[!i].mem + roff;
	wr.wr.rdma.rkey = KEY;
	return rpwi_qp_post_send(&S[i].qp, &wr, NULL);
}

static int post_atomic(int i, bool cas, uint64_t id, uint32_t off, uint32_t roff, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = {.addr = (uintptr_t)S[i].mem + off, .length = 8, .lkey = KEY};
	struct ibv_send_wr wr = {.wr_id = id,
		.opcode = cas ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED};
	wr.wr.atomic.remote_addr = (uintptr_t)S[!i].mem + roff;
	wr.wr.atomic.rkey = KEY;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	return rpwi_qp_post_send(&S[i].qp, &wr, NULL);
}

static void post_recv_key(int i, uint64_t id, uint32_t off, uint32_t len, uint32_t key)
{
	struct ibv_sge sge = {.addr = (uintptr_t)S[i].mem + off, .length = len, .lkey = key};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	assert_int_equal(rpwi_rq_post(&S[i].rq, &wr), 0);
	rpwi_qp_recv_posted(&S[i].qp);
}

static void post_recv(int i, uint64_t id, uint32_t off, uint32_t len) { post_recv_key(i, id, off, len, KEY); }

/* ---- the wire ---- */

static void put_on_wire(int to, const struct rpwi_txb *b, unsigned k)
{
	const struct rpwi_txpkt *t = &b->pkt[k];
	assert_true(wire_n < WIRE);
	struct wpkt *w = &wire[wire_n++];
	w->to = to;
	memcpy(w->raw, t->hdr, t->hdr_len);
	w->len = t->hdr_len;
	uint32_t payload = 0;
	for (unsigned v = 0; v < t->iov_count; v++) {
		memcpy(w->raw + w->len, b->iov[t->iov_first + v].base, b->iov[t->iov_first + v].len);
		w->len += b->iov[t->iov_first + v].len;
		payload += (uint32_t)b->iov[t->iov_first + v].len;
	}
	assert_int_equal(payload, t->payload_len);
	memset(w->raw + w->len, 0, t->pad + RPWI_ICRC_LEN);
	w->len += t->pad + RPWI_ICRC_LEN;
}

/* Everything that side i may send now, onto the wire. */
static unsigned emit_held(int i, bool hold_ack)
{
	unsigned n = 0;
	for (int guard = 0; rpwi_qp_tx_ready(&S[i].qp, hold_ack, now); guard++) {
		assert_true(guard < 1000); /* "ready" must mean progress */
		rpwi_txb_reset(txb);
		rpwi_qp_tx(&S[i].qp, txb, hold_ack, now);
		assert_true(txb->npkt <= RPWI_TXB_PKTS && txb->niov <= RPWI_TXB_IOVS && txb->scratch_used <= RPWI_TXB_SCRATCH);
		for (unsigned k = 0; k < txb->npkt; k++)
			put_on_wire(!i, txb, k);
		n += txb->npkt;
		rpwi_qp_tx_done(&S[i].qp);
	}
	return n;
}

static unsigned emit(int i) { return emit_held(i, false); }

static struct rpwi_pkt decoded(const struct wpkt *w)
{
	struct rpwi_pkt p;
	assert_int_equal(rpwi_pkt_decode(w->raw, w->len, &p), 0);
	return p;
}

static void rx(int to, const struct rpwi_pkt *p)
{
	struct rpwi_rxmeta meta = {.flow = &S[to].rx_flow, .ttl = 61, .tos = 4};
	rpwi_qp_rx(&S[to].qp, p, &meta, now);
}

static void deliver(const struct wpkt *w)
{
	struct rpwi_pkt p = decoded(w);
	assert_int_equal(p.dqpn, S[w->to].qp.qpn);
	rx(w->to, &p);
}

static void take_off(unsigned k)
{
	memmove(&wire[k], &wire[k + 1], (wire_n - k - 1) * sizeof(*wire));
	wire_n--;
}

/* Deliver what is on the wire, in order, each packet as `fate` says. */
static void flush_wire(void)
{
	unsigned n = wire_n;
	for (unsigned k = 0; k < n; k++) {
		struct rpwi_pkt p = decoded(&wire[k]);
		int f = fate ? fate(&wire[k], &p) : 0;
		for (int times = f == 1 ? 0 : f == 2 ? 2 : 1; times; times--)
			deliver(&wire[k]);
	}
	memmove(wire, wire + n, (wire_n - n) * sizeof(*wire));
	wire_n -= n;
}

/* Until both are quiet; time stands still. */
static void settle(void)
{
	for (int guard = 0; guard < 100000; guard++) {
		unsigned n = emit(0) + emit(1);
		now += 1000;
		if (!n && !wire_n)
			return;
		flush_wire();
	}
	fail_msg("the two never get quiet");
}

/* The earliest deadline passes. False when there is none. */
static bool tick(void)
{
	uint64_t at = RPWI_MIN(rpwi_qp_deadline(&S[0].qp), rpwi_qp_deadline(&S[1].qp));
	if (at == RPWI_NEVER)
		return false;
	now = RPWI_MAX(now, at);
	rpwi_qp_timer(&S[0].qp, now);
	rpwi_qp_timer(&S[1].qp, now);
	return true;
}

static void settle_timed(void)
{
	for (int guard = 0; guard < 10000; guard++) {
		settle();
		if (!tick())
			return;
	}
	fail_msg("timers never end");
}

static void expect_wc(int i, unsigned k, uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode op)
{
	assert_true(k < S[i].nwc);
	assert_int_equal(S[i].wc[k].wr_id, id);
	assert_int_equal(S[i].wc[k].status, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(S[i].wc[k].opcode, op);
}

static void same(uint32_t off0, uint32_t off1, uint32_t len) { assert_memory_equal(S[0].mem + off0, S[1].mem + off1, len); }

enum { AT = 0x1000, RAT = 0x80000 }; /* where in memory tests put things */
#define SIG IBV_SEND_SIGNALED

/* ---- tests: operations without loss ---- */

static const uint32_t sizes[] = {0, 1, 3, MTU - 1, MTU, MTU + 1, 2 * MTU, 5 * MTU + 7, 33 * MTU, 200 * MTU + 1};

static void write_of_every_size_arrives(void **state)
{
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(sizes); k++) {
		pair(CONFIG());
		uint8_t after = S[1].mem[RAT + sizes[k]];
		assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 7, AT, sizes[k], RAT, SIG), 0);
		settle();
		assert_int_equal(S[0].nwc, 1);
		expect_wc(0, 0, 7, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		same(AT, RAT, sizes[k]);
		assert_int_equal(S[1].mem[RAT + sizes[k]], after);
		assert_int_equal(S[1].nwc, 0);
		unpair();
	}
}

static void send_with_immediate_and_invalidate_fill_the_completion(void **state)
{
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(sizes); k++) {
		pair(CONFIG());
		for (int m = 0; m < 4; m++)
			post_recv(1, 100 + (uint64_t)m, RAT, MEM - RAT);
		assert_int_equal(post(0, IBV_WR_SEND, 1, AT, sizes[k], 0, SIG | IBV_SEND_SOLICITED), 0);
		settle();
		same(AT, RAT, sizes[k]);
		fill(&S[0], 77);
		assert_int_equal(post(0, IBV_WR_SEND_WITH_IMM, 2, AT, sizes[k], 0, SIG), 0);
		settle();
		same(AT, RAT, sizes[k]);
		assert_int_equal(post(0, IBV_WR_SEND_WITH_INV, 3, AT, sizes[k], 0, SIG), 0);
		assert_int_equal(post(0, IBV_WR_RDMA_WRITE_WITH_IMM, 4, AT, sizes[k], RAT + 64, SIG), 0);
		settle();
		same(AT, RAT + 64, sizes[k]);
		assert_int_equal(S[1].nwc, 4);
		for (unsigned m = 0; m < 4; m++) {
			expect_wc(0, m, m + 1, IBV_WC_SUCCESS, m < 3 ? IBV_WC_SEND : IBV_WC_RDMA_WRITE);
			expect_wc(1, m, m + 100, IBV_WC_SUCCESS, m < 3 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
			assert_int_equal(S[1].wc[m].byte_len, sizes[k]);
		}
		assert_int_equal(S[1].nsolicited, 1);
		assert_int_equal(S[1].wc[0].wc_flags, 0);
		assert_int_equal(S[1].wc[1].wc_flags, IBV_WC_WITH_IMM);
		assert_int_equal(S[1].wc[1].imm_data, htobe32(0xabcd0002));
		assert_int_equal(S[1].wc[2].wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(S[1].wc[2].invalidated_rkey, 0x7003);
		assert_int_equal(S[1].inv_key, 0x7003);
		assert_true(S[1].inv_remote);
		assert_int_equal(S[1].wc[3].imm_data, htobe32(0xabcd0004));
		unpair();
	}
}

static void read_of_every_size_arrives(void **state)
{
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(sizes); k++) {
		pair(CONFIG());
		assert_int_equal(post(0, IBV_WR_RDMA_READ, 9, AT, sizes[k], RAT, SIG), 0);
		settle();
		assert_int_equal(S[0].nwc, 1);
		expect_wc(0, 0, 9, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
		assert_int_equal(S[0].wc[0].byte_len, sizes[k]);
		same(AT, RAT, sizes[k]);
		unpair();
	}
}

static unsigned longest_read;
static int watch_reads(const struct wpkt *w, const struct rpwi_pkt *p)
{
	if (rpwi_pkt_op(p) == RPWI_OP_READ_REQ)
		longest_read = RPWI_MAX(longest_read, p->dma_len);
	assert_true(S[0].cc.inflight <= S[0].cc.cwnd);
	return 0;
}

static void reads_are_cut_to_the_window(void **state)
{
	pair(CONFIG(.cwnd = 10));
	longest_read = 0;
	fate = watch_reads;
	assert_int_equal(post(0, IBV_WR_RDMA_READ, 9, AT, 100 * MTU, RAT, SIG), 0);
	settle();
	expect_wc(0, 0, 9, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	same(AT, RAT, 100 * MTU);
	assert_int_equal(longest_read, 10 * MTU);
	unpair();
}

static void scattered_and_gathered_bytes_keep_their_order(void **state)
{
	pair(CONFIG());
	static const uint32_t cut[] = {1, 1500, 0, 2599};
	struct ibv_sge from[4], to[4];
	uint32_t at = AT, rat = RAT, total = 0;
	uint8_t want[8192];

	for (int k = 0; k < 4; k++) {
		from[k] = (struct ibv_sge){.addr = (uintptr_t)S[0].mem + at, .length = cut[k], .lkey = KEY};
		to[k] = (struct ibv_sge){.addr = (uintptr_t)S[1].mem + rat, .length = cut[3 - k], .lkey = KEY};
		memcpy(want + total, S[0].mem + at, cut[k]);
		total += cut[k];
		at += 5000;
		rat += 7000;
	}
	struct ibv_recv_wr rwr = {.wr_id = 1, .sg_list = to, .num_sge = 4};
	assert_int_equal(rpwi_rq_post(&S[1].rq, &rwr), 0);
	struct ibv_send_wr wr = {.wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = from, .num_sge = 4, .send_flags = SIG};
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	settle();
	expect_wc(1, 0, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	uint32_t seen = 0;
	for (int k = 0; k < 4; k++) {
		assert_memory_equal((void *)(uintptr_t)to[k].addr, want + seen, to[k].length);
		seen += to[k].length;
	}
	/* and a READ into several SGEs */
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = (uintptr_t)S[1].mem + 3;
	wr.wr.rdma.rkey = KEY;
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	settle();
	seen = 3;
	for (int k = 0; k < 4; k++) {
		assert_memory_equal((void *)(uintptr_t)from[k].addr, S[1].mem + seen, from[k].length);
		seen += from[k].length;
	}
	unpair();
}

static void inline_data_is_taken_at_post(void **state)
{
	pair(CONFIG());
	uint8_t data[] = "taken at post";
	struct ibv_sge sge = {.addr = (uintptr_t)data, .length = sizeof(data)};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = SIG | IBV_SEND_INLINE};
	wr.wr.rdma.remote_addr = (uintptr_t)S[1].mem + RAT;
	wr.wr.rdma.rkey = KEY;
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	memcpy(data, "changed after", sizeof(data));
	settle();
	assert_string_equal((char *)S[1].mem + RAT, "taken at post");
	sge.length = 257;
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), EINVAL);
	unpair();
}

static void atomics_return_what_was_there(void **state)
{
	pair(CONFIG());
	uint64_t *remote = (uint64_t *)(S[1].mem + RAT), *local = (uint64_t *)(S[0].mem + AT);

	*remote = 41;
	assert_int_equal(post_atomic(0, false, 1, AT, RAT, 5, 0), 0);
	assert_int_equal(post_atomic(0, true, 2, AT + 8, RAT, 46, 1000), 0);
	assert_int_equal(post_atomic(0, true, 3, AT + 16, RAT, 46, 2000), 0);
	settle();
	assert_int_equal(local[0], 41);
	assert_int_equal(local[1], 46);
	assert_int_equal(local[2], 1000);
	assert_int_equal(*remote, 1000);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
	assert_int_equal(S[0].wc[1].byte_len, 8);
	assert_int_equal(post_atomic(0, true, 4, AT, RAT + 4, 0, 0), 0); /* misaligned */
	settle();
	expect_wc(0, 3, 4, IBV_WC_REM_INV_REQ_ERR, 0);
	assert_int_equal(S[1].event[S[1].nevent - 1], IBV_EVENT_QP_REQ_ERR);
	unpair();
}

static void unsignaled_requests_retire_in_silence(void **state)
{
	pair(CONFIG(.send_wr = 4));
	for (int round = 0; round < 5; round++) {
		for (int k = 0; k < 3; k++)
			assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, 0), 0);
		assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG), 0);
		assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG), ENOMEM);
		settle();
		assert_int_equal(S[0].nwc, round + 1);
		expect_wc(0, (unsigned)round, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}
	unpair();
	pair(CONFIG(.sig_all = true));
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, 0), 0);
	settle();
	assert_int_equal(S[0].nwc, 1);
	unpair();
}

static void one_ack_covers_a_batch_and_can_be_held(void **state)
{
	pair(CONFIG());
	for (int k = 0; k < 5; k++)
		post(0, IBV_WR_RDMA_WRITE, (uint64_t)k, AT, 10, RAT, SIG);
	assert_int_equal(emit(0), 5);
	flush_wire();
	assert_true(rpwi_qp_ack_owed(&S[1].qp));
	assert_false(rpwi_qp_tx_ready(&S[1].qp, true, now));
	assert_int_equal(emit_held(1, true), 0);
	/* with a request, it goes along, before it */
	post(1, IBV_WR_RDMA_WRITE, 9, AT, 10, RAT, SIG);
	assert_int_equal(emit_held(1, true), 2);
	assert_int_equal(rpwi_pkt_op(&(struct rpwi_pkt){.opcode = wire[0].raw[0]}), RPWI_OP_ACK);
	assert_int_equal(txb->ack, 1);
	settle();
	assert_int_equal(S[0].nwc, 5);
	/* held no longer than its time */
	post(0, IBV_WR_RDMA_WRITE, 6, AT, 10, RAT, SIG);
	emit(0);
	flush_wire();
	assert_int_equal(emit_held(1, true), 0);
	now += 20000;
	assert_int_equal(emit_held(1, true), 1);
	settle();
	assert_int_equal(S[0].nwc, 6);
	unpair();
}

static void ack_comes_after_the_responses_before_it(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 1, AT, 3 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	emit(0);
	flush_wire();
	assert_int_equal(emit(1), 4);
	assert_int_equal(decoded(&wire[0]).opcode, RPWI_OP_READ_RESP_FIRST);
	assert_int_equal(decoded(&wire[1]).opcode, RPWI_OP_READ_RESP_MIDDLE);
	assert_int_equal(decoded(&wire[2]).opcode, RPWI_OP_READ_RESP_LAST);
	assert_int_equal(decoded(&wire[3]).opcode, RPWI_OP_ACK);
	settle();
	assert_int_equal(S[0].nwc, 2);
	/* and a response acknowledges what was before it: no ACK of its own */
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_READ, 4, AT, 10, RAT, SIG);
	emit(0);
	flush_wire();
	assert_int_equal(emit(1), 1);
	settle();
	assert_int_equal(S[0].nwc, 4);
	unpair();
}

static void window_opens_steadily(void **state)
{
	pair(CONFIG(.cwnd = 40));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 200 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 40);
	assert_true(rpwi_qp_blocked(&S[0].qp));
	unsigned asked = 0;
	for (unsigned k = 0; k < wire_n; k++)
		asked += decoded(&wire[k]).ackreq;
	assert_int_equal(asked, 3); /* packets 16 and 32, and the last that the window let out */
	assert_true(decoded(&wire[39]).ackreq);
	settle();
	assert_int_equal(S[0].nwc, 1);
	same(AT, RAT, 200 * MTU);
	unpair();
}

/* ---- tests: loss ---- */

static uint32_t victim_psn;
static unsigned victim_op, victims;
static int drop_victim(const struct wpkt *w, const struct rpwi_pkt *p)
{
	if (victims && rpwi_pkt_op(p) == victim_op && (victim_psn == UINT32_MAX || p->psn == victim_psn)) {
		victims--;
		return 1;
	}
	return 0;
}

static void doom(unsigned op, uint32_t psn, unsigned times)
{
	victim_op = op;
	victim_psn = psn;
	victims = times;
	fate = drop_victim;
}

static uint32_t psn_of(uint32_t first, uint32_t n) { return rpwi_psn_add(first, n); }

static void a_gap_gets_one_nak_and_is_filled(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_WRITE_MIDDLE, psn_of(PSN0, 5), 1);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 60 * MTU, RAT, SIG);
	settle();
	assert_int_equal(victims, 0);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 60 * MTU);
	assert_int_equal(S[1].qp.stats.seq_nak_tx, 1);
	assert_int_equal(S[0].qp.stats.seq_nak_rx, 1);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	assert_int_equal(S[0].cc.losses, 1);
	assert_true(S[0].cc.cwnd < 64);
	unpair();
}

static void a_lost_last_packet_waits_for_the_time_out(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_WRITE_LAST, UINT32_MAX, 3);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 3 * MTU, RAT, SIG);
	settle();
	assert_int_equal(S[0].nwc, 0);
	uint64_t wait = rpwi_qp_deadline(&S[0].qp) - now;
	assert_true(wait > (4096ull << 14) && wait <= 4 * (4096ull << 14));
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 3 * MTU);
	assert_true(S[0].qp.stats.timeouts >= 1);
	unpair();
}

/* One WRITE there and back, so that the round trip is known; then one of so many packets, all under way. */
static void under_way(unsigned packets)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	settle();
	post(0, IBV_WR_RDMA_WRITE, 2, AT, packets * MTU, RAT, SIG);
	assert_int_equal(emit(0), packets);
}

/* The silence ends in one small packet: a duplicate of what was acknowledged last. */
static void expect_a_probe(uint32_t psn)
{
	unsigned before = wire_n;
	uint64_t probes = S[0].qp.stats.probes;
	assert_true(tick());
	assert_int_equal(emit(0), 1);
	struct rpwi_pkt p = decoded(&wire[before]);
	assert_int_equal(p.opcode, RPWI_SVC_RC | RPWI_OP_SEND_ONLY);
	assert_int_equal(p.psn, psn);
	assert_int_equal(p.payload_len, 0);
	assert_true(p.ackreq);
	assert_int_equal(S[0].qp.stats.probes, probes + 1);
}

static void a_silence_costs_one_probe_and_repeats_nothing(void **state)
{
	under_way(20);
	for (int k = 0; k < 3; k++) /* a peer that does not run: each silence is longer */
		expect_a_probe(PSN0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits, 0);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	assert_int_equal(S[1].qp.epsn, S[0].qp.nxt);
	same(AT, RAT, 20 * MTU);
	unpair();
}

/* [from, 20) of the twenty is lost: the probe's answer says how far the peer got. */
static void lose_from(unsigned from)
{
	under_way(20);
	wire_n = from;
	flush_wire();
	settle();
	uint32_t una = S[0].qp.una;
	expect_a_probe((una - 1) & RPWI_PSN_MASK);
	settle();
	if (S[0].nwc == 1) { /* that was new: the next one says that there is no more */
		assert_true(S[0].qp.una != una);
		expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
		settle();
	}
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits, 20 - from);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	assert_int_equal(S[0].qp.retry_left, 7);
	same(AT, RAT, 20 * MTU);
	unpair();
}

static void a_lost_tail_is_found_by_a_probe(void **state)
{
	lose_from(0);
	lose_from(16);
	lose_from(17);
	lose_from(19);
}

static void a_lost_ack_is_found_by_a_probe(void **state)
{
	under_way(20);
	doom(RPWI_OP_ACK, UINT32_MAX, 1);
	for (int k = 0; k < 5 && victims; k++) {
		flush_wire();
		emit(1);
	}
	settle();
	assert_int_equal(S[0].nwc, 1);
	expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits, 0);
	unpair();
}

static void a_lost_nak_is_found_by_a_probe(void **state)
{
	under_way(20);
	take_off(0);
	doom(RPWI_OP_ACK, UINT32_MAX, 1);
	settle();
	assert_int_equal(S[1].qp.stats.seq_nak_tx, 1);
	assert_int_equal(victims, 0);
	expect_a_probe(PSN0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits, 20);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	unpair();
}

/* The answer to a probe that was not needed comes when another is under way: it is no answer to that one. */
static void a_late_answer_to_a_probe_is_none_to_the_next(void **state)
{
	struct wpkt late;
	under_way(2);
	expect_a_probe(PSN0);
	late = wire[2];
	wire_n = 2;
	settle(); /* all of it is acknowledged, the probe not yet answered */
	assert_int_equal(S[0].nwc, 2);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 3 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 3);
	wire_n = 0; /* they take their time */
	deliver(&late);
	assert_int_equal(emit(1), 1);
	struct wpkt answer = wire[0];
	wire_n = 0;
	expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
	deliver(&answer);
	assert_int_equal(emit(0), 0);
	assert_int_equal(S[0].qp.stats.retransmits, 0);
	settle(); /* its own answer counts: they were lost */
	assert_int_equal(S[0].qp.stats.retransmits, 3);
	expect_wc(0, 2, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

/* The peer goes on in parts: what it says to the first probe covers all that was sent before that one. */
static void an_answer_to_the_first_probe_is_none_to_the_second(void **state)
{
	enum { FIRST = 20, PART = 18, MORE = 5 };
	struct wpkt sent[FIRST + 1 + MORE + 1];
	under_way(FIRST);
	expect_a_probe(PSN0);
	for (unsigned i = 0; i < PART; i++)
		deliver(&wire[i]);
	memcpy(sent, wire, sizeof(*sent) * (FIRST + 1));
	wire_n = 0;
	emit(1);
	settle();
	assert_int_not_equal(S[0].qp.una & RPWI_PSN_MASK, (PSN0 + 1) & RPWI_PSN_MASK);
	assert_int_equal(S[0].nwc, 1);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, MORE * MTU, RAT, SIG);
	assert_int_equal(emit(0), MORE);
	expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
	memcpy(sent + FIRST + 1, wire, sizeof(*sent) * (MORE + 1));
	wire_n = 0;
	for (unsigned i = PART; i < RPWI_ARRAY_LEN(sent); i++) {
		deliver(&sent[i]);
		emit(1); /* each is answered by itself, and heard before the next comes */
		flush_wire();
		emit(0);
	}
	settle();
	assert_int_equal(S[0].qp.stats.retransmits, 0);
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 2, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void lost_read_responses_are_found_by_a_probe(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	settle();
	doom(RPWI_OP_READ_RESP_LAST, UINT32_MAX, 1);
	post(0, IBV_WR_RDMA_READ, 2, AT, 5 * MTU, RAT, SIG);
	settle();
	assert_int_equal(S[0].nwc, 1);
	expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	same(AT, RAT, 5 * MTU);
	unpair();
}

/* A deadline that is seen late: this process did not run, and the answers wait in its socket. */
static void a_process_that_did_not_run_reads_before_it_repeats(void **state)
{
	under_way(20);
	now += 500000000; /* longer than the ACK time-out */
	rpwi_qp_timer(&S[0].qp, now);
	assert_int_equal(emit(0), 0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits + S[0].qp.stats.probes + S[0].qp.stats.timeouts, 0);
	unpair();
}

static void after_a_time_out_a_few_packets_go_first(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 60 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 60);
	wire_n = 0;
	tick();
	unsigned n = emit(0);
	assert_in_range(n, 1, 8);
	assert_true(decoded(&wire[n - 1]).ackreq);
	settle();
	assert_int_equal(S[0].nwc, 1);
	same(AT, RAT, 60 * MTU);
	unpair();
}

static void a_lost_ack_makes_no_message_arrive_twice(void **state)
{
	pair(CONFIG());
	post_recv(1, 100, RAT, 4096);
	post_recv(1, 101, RAT + 4096, 4096);
	doom(RPWI_OP_ACK, UINT32_MAX, 2);
	post(0, IBV_WR_SEND, 1, AT, 3000, 0, SIG);
	settle_timed();
	assert_int_equal(S[0].nwc, 1);
	assert_int_equal(S[1].nwc, 1);
	assert_true(S[1].qp.stats.rx_duplicate > 0);
	same(AT, RAT, 3000);
	unpair();
}

static struct rpwi_pkt last_read;
static int drop_victim_and_note_reads(const struct wpkt *w, const struct rpwi_pkt *p)
{
	if (rpwi_pkt_op(p) == RPWI_OP_READ_REQ)
		last_read = *p;
	return drop_victim(w, p);
}

static void a_read_resumes_at_the_first_missing_packet(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_READ_RESP_MIDDLE, psn_of(PSN0, 7), 1);
	fate = drop_victim_and_note_reads;
	post(0, IBV_WR_RDMA_READ, 1, AT, 20 * MTU + 5, RAT, SIG);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	same(AT, RAT, 20 * MTU + 5);
	assert_int_equal(last_read.psn, psn_of(PSN0, 7));
	assert_int_equal(last_read.va, (uintptr_t)S[1].mem + RAT + 7 * MTU);
	assert_int_equal(last_read.dma_len, 13 * MTU + 5);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	assert_int_equal(S[0].qp.retry_left, 7);
	unpair();
}

static void an_ack_that_passes_over_a_read_means_its_responses_were_lost(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_READ_RESP_ONLY, UINT32_MAX, 1);
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT + 64, 10, RAT + 64, SIG);
	settle();
	assert_int_equal(S[0].nwc, 2);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	same(AT, RAT, 10);
	unpair();
}

static void a_lost_read_request_is_asked_again(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_READ_REQ, UINT32_MAX, 1);
	post(0, IBV_WR_RDMA_READ, 1, AT, 40 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT + 64, 10, RAT + 64, SIG);
	settle_timed();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(S[1].qp.stats.seq_nak_tx, 1);
	unpair();
}

static void an_atomic_whose_response_was_lost_is_not_done_twice(void **state)
{
	pair(CONFIG());
	uint64_t *remote = (uint64_t *)(S[1].mem + RAT), *local = (uint64_t *)(S[0].mem + AT);
	*remote = 100;
	doom(RPWI_OP_ATOMIC_ACK, UINT32_MAX, 3);
	post_atomic(0, false, 1, AT, RAT, 1, 0);
	post_atomic(0, false, 2, AT + 8, RAT, 1, 0);
	settle_timed();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(*remote, 102);
	assert_int_equal(local[0], 100);
	assert_int_equal(local[1], 101);
	unpair();
}

static void swapped_packets_are_put_right(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 4 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 4);
	struct wpkt *third = malloc(sizeof(*third));
	*third = wire[2];
	wire[2] = wire[1];
	wire[1] = *third;
	free(third);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 4 * MTU);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	unpair();
}

static void no_answer_at_all_ends_with_retry_exceeded(void **state)
{
	pair(CONFIG(.retry = 3));
	doom(RPWI_OP_WRITE_ONLY, UINT32_MAX, 1000);
	uint64_t start = now;
	post_recv(0, 50, AT, 10);
	for (uint64_t k = 1; k <= 3; k++)
		post(0, IBV_WR_RDMA_WRITE, k, AT, 10, RAT, k == 2 ? 0 : SIG);
	settle_timed();
	assert_int_equal(S[0].qp.state, IBV_QPS_ERR);
	assert_int_equal(S[0].qp.stats.timeouts, 4); /* the first attempt and three retries */
	assert_true(now - start <= 4 * 4 * (4096ull << 14) + RPWI_NS_PER_MS);
	assert_int_equal(S[0].nwc, 4);
	expect_wc(0, 0, 1, IBV_WC_RETRY_EXC_ERR, 0);
	expect_wc(0, 1, 2, IBV_WC_WR_FLUSH_ERR, 0); /* unsignaled too */
	expect_wc(0, 2, 3, IBV_WC_WR_FLUSH_ERR, 0);
	expect_wc(0, 3, 50, IBV_WC_WR_FLUSH_ERR, 0);
	assert_true(S[0].wc_recv[3] && !S[0].wc_recv[2]);
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 9, AT, 10, RAT, 0), 0);
	expect_wc(0, 4, 9, IBV_WC_WR_FLUSH_ERR, 0);
	post_recv(0, 51, AT, 10);
	expect_wc(0, 5, 51, IBV_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(rpwi_qp_deadline(&S[0].qp), RPWI_NEVER);
	unpair();
}

static void without_a_time_out_a_lost_packet_is_still_repaired(void **state)
{
	pair(CONFIG(.timeout = 0, .retry = 0));
	doom(RPWI_OP_WRITE_ONLY, UINT32_MAX, 20);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void answers_to_the_first_attempt_cost_no_retries(void **state)
{
	pair(CONFIG(.rd = 2));
	doom(RPWI_OP_READ_RESP_ONLY, UINT32_MAX, 1);
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT + 64, 10, RAT + 64, SIG);
	emit(0);
	flush_wire();
	emit(1);
	struct rpwi_pkt ack = decoded(&wire[1]);
	assert_int_equal(rpwi_pkt_op(&ack), RPWI_OP_ACK);
	for (int k = 0; k < 20; k++) { /* as for a WRITE that arrived again and again */
		rx(0, &ack);
		for (unsigned n = emit(0); n; n--)
			take_off(wire_n - 1);
	}
	assert_int_equal(S[0].qp.retry_left, 6);
	wire_n = 0;
	settle_timed();
	assert_int_equal(S[0].nwc, 2);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	/* the same for a sequence NAK that the network doubled */
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 4 * MTU, RAT, SIG);
	emit(0);
	take_off(0);
	flush_wire();
	emit(1);
	struct rpwi_pkt nak = decoded(&wire[0]);
	assert_int_equal(nak.syndrome, 0x60);
	wire_n = 0;
	for (int k = 0; k < 20; k++) {
		rx(0, &nak);
		emit(0);
	}
	assert_int_equal(S[0].qp.retry_left, 6);
	assert_int_equal(wire_n, 4);
	settle();
	expect_wc(0, 2, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 4 * MTU);
	unpair();
}

/* ---- tests: receiver not ready ---- */

static void after_rnr_one_packet_asks_whether_it_is_ready_now(void **state)
{
	pair(CONFIG(.rnr_retry = 7));
	for (uint64_t k = 0; k < 20; k++)
		post(0, IBV_WR_SEND, k, AT + 64 * (uint32_t)k, 10, 0, SIG);
	settle();
	for (int k = 0; k < 3; k++) {
		assert_true(tick());
		assert_int_equal(emit(0), 1);
		assert_false(rpwi_qp_blocked(&S[0].qp));
		assert_true(decoded(&wire[0]).ackreq);
		settle();
	}
	for (uint64_t k = 0; k < 20; k++)
		post_recv(1, k, RAT + 64 * (uint32_t)k, 64);
	settle_timed();
	assert_int_equal(S[0].nwc, 20);
	for (uint32_t k = 0; k < 20; k++)
		same(AT + 64 * k, RAT + 64 * k, 10);
	assert_int_equal(S[1].qp.stats.rnr_nak_tx, 4);
	unpair();
}

static void a_send_waits_for_a_receive(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_SEND, 1, AT, 3 * MTU, 0, SIG);
	post(0, IBV_WR_SEND, 2, AT, 5, 0, SIG);
	settle();
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(S[1].qp.stats.rnr_nak_tx, 1);
	assert_int_equal(S[1].qp.stats.seq_nak_tx, 0);
	assert_int_equal(S[0].cc.inflight, 0);
	uint64_t wait = rpwi_qp_deadline(&S[0].qp) - now;
	assert_in_range(wait, 600000, 640000); /* code 12: 0.64 ms, less what has passed */
	post_recv(1, 100, RAT, 4096);
	post_recv(1, 101, RAT + 8192, 4096);
	settle_timed();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(S[1].nwc, 2);
	same(AT, RAT, 3 * MTU);
	unpair();
}

static void a_write_with_immediate_waits_at_its_last_packet(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, AT, 3 * MTU, RAT, SIG);
	settle();
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(S[1].qp.stats.rnr_nak_tx, 1);
	post_recv(1, 100, 0, 0);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(1, 0, 100, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(S[1].wc[0].byte_len, 3 * MTU);
	same(AT, RAT, 3 * MTU);
	unpair();
}

static void rnr_retries_end(void **state)
{
	pair(CONFIG(.rnr_retry = 3));
	post(0, IBV_WR_SEND, 1, AT, 5, 0, SIG);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_RNR_RETRY_EXC_ERR, 0);
	assert_int_equal(S[1].qp.stats.rnr_nak_tx, 4);
	unpair();
	pair(CONFIG(.rnr_retry = 7, .rnr_timer = 0));
	post(0, IBV_WR_SEND, 1, AT, 5, 0, SIG);
	for (int k = 0; k < 50; k++) {
		settle();
		assert_in_range(rpwi_qp_deadline(&S[0].qp) - now, 655000000, 655360000);
		tick();
	}
	post_recv(1, 100, RAT, 10);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	unpair();
}

/* ---- tests: refusals ---- */

static void expect_refused(enum ibv_wc_status status, int remote_event)
{
	settle_timed();
	assert_int_equal(S[0].qp.state, IBV_QPS_ERR);
	assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
	expect_wc(0, 0, 1, status, 0);
	expect_wc(0, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
	if (remote_event >= 0)
		assert_int_equal(S[1].event[S[1].nevent - 1], remote_event);
	else
		for (unsigned k = 0; k < S[1].nevent; k++)
			assert_true(S[1].event[k] != IBV_EVENT_QP_ACCESS_ERR && S[1].event[k] != IBV_EVENT_QP_REQ_ERR);
	unpair();
}

static void bad_remote_memory_is_an_access_error(void **state)
{
	static const enum ibv_wr_opcode op[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	for (int k = 0; k < 2; k++) {
		pair(CONFIG());
		uint8_t *before = malloc(MEM);
		memcpy(before, S[1].mem, MEM);
		S[1].key_access &= ~(k ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE); /* the region does not allow it */
		post(0, op[k], 1, AT, 5000, RAT, SIG);
		post(0, op[k], 2, AT, 10, RAT, SIG);
		expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		pair(CONFIG());
		post(0, op[k], 1, AT, 5000, MEM - 4999, SIG); /* one byte too far */
		post(0, op[k], 2, AT, 10, RAT, SIG);
		expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		assert_memory_equal(before, S[1].mem, MEM);
		pair(CONFIG(.access = IBV_ACCESS_REMOTE_ATOMIC)); /* the QP does not allow it */
		post(0, op[k], 1, AT, 5000, RAT, SIG);
		post(0, op[k], 2, AT, 10, RAT, SIG);
		expect_refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		assert_memory_equal(before, S[1].mem, MEM);
		free(before);
	}
}

static void a_refusal_comes_after_the_responses_before_it(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 7, AT, 20 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, MEM - 5, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	settle_timed();
	expect_wc(0, 0, 7, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	expect_wc(0, 1, 1, IBV_WC_REM_ACCESS_ERR, 0);
	expect_wc(0, 2, 2, IBV_WC_WR_FLUSH_ERR, 0);
	unpair();
}

static void unmapped_remote_memory_is_an_access_error(void **state)
{
	pair(CONFIG());
	S[1].hole_at = (uintptr_t)S[1].mem + RAT + 9000;
	S[1].hole_len = 1;
	post(0, IBV_WR_RDMA_READ, 1, AT, 20 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	same(AT, RAT, 8 * MTU); /* what came before the hole */
	pair(CONFIG());
	S[1].hole_at = (uintptr_t)S[1].mem + RAT + 9000;
	S[1].hole_len = 1;
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 20 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void a_write_of_nothing_needs_no_key(void **state)
{
	pair(CONFIG());
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = SIG};
	wr.wr.rdma.rkey = KEY_BAD;
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void a_receive_that_is_too_small_fails_on_both_sides(void **state)
{
	pair(CONFIG());
	post_recv(1, 100, RAT, 2 * MTU + 9);
	post_recv(1, 101, RAT, 4096);
	post(0, IBV_WR_SEND, 1, AT, 2 * MTU + 10, 0, SIG);
	post(0, IBV_WR_SEND, 2, AT, 1, 0, SIG);
	settle_timed();
	assert_int_equal(S[1].nwc, 2);
	expect_wc(1, 0, 100, IBV_WC_LOC_LEN_ERR, 0);
	expect_wc(1, 1, 101, IBV_WC_WR_FLUSH_ERR, 0);
	expect_refused(IBV_WC_REM_INV_REQ_ERR, -1);
}

static void a_receive_with_a_bad_key_is_a_remote_operation_error(void **state)
{
	pair(CONFIG());
	post_recv_key(1, 100, RAT, 4096, KEY_BAD);
	post(0, IBV_WR_SEND, 1, AT, 10, 0, SIG);
	post(0, IBV_WR_SEND, 2, AT, 1, 0, SIG);
	settle_timed();
	expect_wc(1, 0, 100, IBV_WC_LOC_PROT_ERR, 0);
	expect_refused(IBV_WC_REM_OP_ERR, -1);
}

static void a_bad_local_key_fails_after_what_was_before_it(void **state)
{
	pair(CONFIG());
	struct ibv_sge sge = {.addr = (uintptr_t)S[0].mem, .length = 10, .lkey = KEY_BAD};
	struct ibv_send_wr wr = {.wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 5000, RAT, SIG);
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG);
	emit(0);
	assert_int_equal(S[0].nwc, 0);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 1, 2, IBV_WC_LOC_PROT_ERR, 0);
	expect_wc(0, 2, 3, IBV_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(S[0].qp.state, IBV_QPS_ERR);
	unpair();
}

static void local_memory_that_goes_away_is_a_protection_error(void **state)
{
	pair(CONFIG(.cwnd = 8));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 60 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	emit(0);
	S[0].hole_at = (uintptr_t)S[0].mem + AT + 20 * MTU;
	S[0].hole_len = 1;
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_LOC_PROT_ERR, 0);
	expect_wc(0, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
	unpair();
	/* and when only the send finds out */
	pair(CONFIG());
	S[0].qp.read_chunk_pkts = 32;
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_READ, 2, AT, 40 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10 * MTU, RAT, SIG);
	rpwi_txb_reset(txb);
	rpwi_qp_tx(&S[0].qp, txb, false, now);
	assert_int_equal(txb->npkt, 13); /* two requests for the READ */
	for (unsigned k = 0; k < 8; k++)
		put_on_wire(1, txb, k);
	rpwi_qp_tx_fault(&S[0].qp, txb, 8, now);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	expect_wc(0, 2, 3, IBV_WC_LOC_PROT_ERR, 0);
	unpair();
}

/* Requests that no ropeway sends. */
static struct rpwi_pkt forged(unsigned op, uint32_t psn, const uint8_t *payload, uint32_t len)
{
	return (struct rpwi_pkt){.opcode = (uint8_t)op,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = QPN1,
		.psn = psn,
		.ackreq = true,
		.payload = payload,
		.payload_len = len,
		.va = (uintptr_t)S[1].mem + RAT,
		.rkey = KEY,
		.dma_len = len};
}

static void invalid_requests_are_refused(void **state)
{
	uint8_t data[2 * MTU];
	memset(data, 0x5a, sizeof(data));
	struct {
		const char *what;
		struct rpwi_pkt p[2];
		unsigned n;
	} bad[] = {
		{"MIDDLE first", {forged(RPWI_OP_WRITE_MIDDLE, PSN0, data, MTU)}, 1},
		{"SEND in a WRITE", {forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU), forged(RPWI_OP_SEND_LAST, psn_of(PSN0, 1), data, 10)}, 2},
		{"FIRST in a WRITE", {forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU), forged(RPWI_OP_WRITE_FIRST, psn_of(PSN0, 1), data, MTU)}, 2},
		{"READ in a WRITE", {forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU), forged(RPWI_OP_READ_REQ, psn_of(PSN0, 1), NULL, 0)}, 2},
		{"short FIRST", {forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU - 4)}, 1},
		{"long ONLY", {forged(RPWI_OP_WRITE_ONLY, PSN0, data, MTU + 4)}, 1},
		{"empty LAST", {forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU), forged(RPWI_OP_WRITE_LAST, psn_of(PSN0, 1), data, 0)}, 2},
		{"more than the RETH", {forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU), forged(RPWI_OP_WRITE_LAST, psn_of(PSN0, 1), data, 101)}, 2},
		{"less than the RETH", {forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU), forged(RPWI_OP_WRITE_LAST, psn_of(PSN0, 1), data, 99)}, 2},
		{"ONLY that is not all", {forged(RPWI_OP_WRITE_ONLY, PSN0, data, 64)}, 1},
		{"READ of too much", {forged(RPWI_OP_READ_REQ, PSN0, NULL, 0)}, 1},
	};
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(bad); k++) {
		pair(CONFIG());
		bool multi = bad[k].n == 2;
		bad[k].p[0].dma_len = multi || rpwi_pkt_op(&bad[k].p[0]) == RPWI_OP_WRITE_FIRST ? MTU + 100 : bad[k].p[0].dma_len;
		if (!strcmp(bad[k].what, "ONLY that is not all"))
			bad[k].p[0].dma_len = 65;
		if (!strcmp(bad[k].what, "READ of too much"))
			bad[k].p[0].dma_len = (1u << 31) + 1;
		for (unsigned n = 0; n < bad[k].n; n++)
			rx(1, &bad[k].p[n]);
		if (S[1].qp.state != IBV_QPS_ERR)
			fail_msg("accepted: %s", bad[k].what);
		assert_int_equal(S[1].event[S[1].nevent - 1], IBV_EVENT_QP_REQ_ERR);
		assert_int_equal(emit(1), 1);
		struct rpwi_pkt nak = decoded(&wire[0]);
		assert_int_equal(nak.syndrome, 0x61);
		assert_int_equal(nak.psn, bad[k].p[bad[k].n - 1].psn);
		wire_n = 0;
		unpair();
	}
}

static void more_reads_than_agreed_are_refused(void **state)
{
	pair(CONFIG(.rd = 2));
	for (uint32_t k = 0; k < 3; k++) {
		struct rpwi_pkt p = forged(RPWI_OP_READ_REQ, psn_of(PSN0, k), NULL, 0);
		p.dma_len = 8;
		rx(1, &p);
	}
	assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
	assert_int_equal(emit(1), 3);
	assert_int_equal(decoded(&wire[2]).syndrome, 0x61);
	wire_n = 0;
	unpair();
	pair(CONFIG(.rd = 0));
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	settle();
	expect_wc(0, 0, 1, IBV_WC_LOC_QP_OP_ERR, 0);
	unpair();
}

static void a_bad_read_response_fails_the_read(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	emit(0);
	wire_n = 0;
	uint8_t data[16];
	memset(data, 0x77, sizeof(data));
	uint8_t before[16];
	memcpy(before, S[0].mem + AT, 16);
	struct rpwi_pkt p = forged(RPWI_OP_READ_RESP_ONLY, PSN0, data, 12);
	p.dqpn = QPN0;
	p.syndrome = 0x1f;
	rx(0, &p);
	expect_wc(0, 0, 1, IBV_WC_BAD_RESP_ERR, 0);
	assert_memory_equal(S[0].mem + AT, before, 16);
	unpair();
}

static void answers_to_nothing_and_strangers_change_nothing(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 3 * MTU, RAT, SIG);
	emit(0);
	struct rpwi_pkt p = forged(RPWI_OP_ACK, psn_of(PSN0, 3), NULL, 0);
	p.syndrome = 0x1f;
	rx(0, &p); /* never sent */
	p.psn = psn_of(PSN0, 0xffffff);
	p.syndrome = 0x61;
	rx(0, &p); /* before all */
	assert_int_equal(S[0].qp.stats.rx_out_of_order, 1);
	assert_int_equal(S[0].qp.stats.rx_duplicate, 1);
	struct rpwi_flow other = S[0].rx_flow;
	other.src.bytes[3] = 99;
	struct rpwi_rxmeta meta = {.flow = &other};
	p.psn = psn_of(PSN0, 2);
	rpwi_qp_rx(&S[0].qp, &p, &meta, now);
	assert_int_equal(S[0].qp.stats.rx_wrong_peer, 1);
	p.pkey = 0x1234;
	rx(0, &p);
	assert_int_equal(S[0].qp.stats.rx_wrong_peer, 2);
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(S[0].qp.state, IBV_QPS_RTS);
	p.pkey = RPWI_PKEY_DEFAULT;
	p.syndrome = 0x47; /* a reserved kind */
	rx(0, &p);
	p.syndrome = 0x7f; /* a reserved NAK: acknowledges what is before it, and no more */
	rx(0, &p);
	assert_int_equal(S[0].qp.state, IBV_QPS_RTS);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void a_replay_must_ask_for_the_same_bytes(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 1, AT, 4 * MTU, RAT, SIG);
	settle();
	struct rpwi_pkt p = forged(RPWI_OP_READ_REQ, psn_of(PSN0, 1), NULL, 0);
	p.va += MTU;
	p.dma_len = 2 * MTU;
	rx(1, &p);
	assert_int_equal(emit(1), 2);
	assert_int_equal(decoded(&wire[0]).opcode, RPWI_OP_READ_RESP_FIRST);
	assert_int_equal(decoded(&wire[0]).psn, psn_of(PSN0, 1));
	assert_int_equal(decoded(&wire[1]).opcode, RPWI_OP_READ_RESP_LAST);
	assert_memory_equal(decoded(&wire[0]).payload, S[1].mem + RAT + MTU, MTU);
	wire_n = 0;
	p.va += 1;
	rx(1, &p);
	assert_int_equal(emit(1), 0);
	p.va -= 1;
	p.dma_len = 3 * MTU + 1;
	rx(1, &p);
	assert_int_equal(emit(1), 0);
	assert_int_equal(S[1].qp.state, IBV_QPS_RTS);
	unpair();
}

/* ---- tests: order ---- */

static void a_fence_waits_for_reads(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT + 64, SIG | IBV_SEND_FENCE);
	assert_int_equal(emit(0), 1);
	settle();
	assert_int_equal(S[0].nwc, 2);
	assert_memory_equal(S[1].mem + RAT + 64, S[1].mem + RAT, 10); /* what was read is what was written */
	unpair();
}

static void no_more_reads_than_agreed_are_outstanding(void **state)
{
	pair(CONFIG(.rd = 2));
	for (uint64_t k = 0; k < 5; k++)
		post(0, IBV_WR_RDMA_READ, k, AT + 64 * (uint32_t)k, 10, RAT + 64 * (uint32_t)k, SIG);
	assert_int_equal(emit(0), 2);
	assert_false(rpwi_qp_blocked(&S[0].qp));
	settle();
	assert_int_equal(S[0].nwc, 5);
	for (uint32_t k = 0; k < 5; k++)
		same(AT + 64 * k, RAT + 64 * k, 10);
	unpair();
}

static void local_operations_complete_in_their_turn(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_BIND_MW, 2, 0, 0, 0, SIG);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG);
	post(0, IBV_WR_LOCAL_INV, 4, 0, 0, 0, SIG);
	post(0, IBV_WR_RDMA_WRITE, 5, AT, 10, RAT, SIG);
	assert_int_equal(emit(0), 2);
	assert_int_equal(S[0].binds, 1);
	assert_int_equal(S[0].inv_key, 0); /* not while a resend might need it */
	assert_int_equal(S[0].nwc, 0);
	settle();
	assert_int_equal(S[0].nwc, 5);
	for (unsigned k = 0; k < 5; k++)
		expect_wc(0, k, k + 1, IBV_WC_SUCCESS, k == 1 ? IBV_WC_BIND_MW : k == 3 ? IBV_WC_LOCAL_INV : IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].inv_key, 0x7004);
	S[0].bind_rc = -EINVAL;
	post(0, IBV_WR_RDMA_WRITE, 6, AT, 10, RAT, SIG);
	post(0, IBV_WR_BIND_MW, 7, 0, 0, 0, SIG);
	settle();
	expect_wc(0, 5, 6, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 6, 7, IBV_WC_MW_BIND_ERR, 0);
	unpair();
}

static void sqd_finishes_what_is_in_flight_and_holds_the_rest(void **state)
{
	pair(CONFIG(.cwnd = 4));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 20 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	emit(0);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, NULL, now), 0);
	rpwi_qp_query(&S[0].qp, &a);
	assert_true(a.sq_draining);
	assert_int_equal(S[0].nevent, 0);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].nwc, 1);
	assert_int_equal(S[0].nevent, 1);
	assert_int_equal(S[0].event[0], IBV_EVENT_SQ_DRAINED);
	rpwi_qp_query(&S[0].qp, &a);
	assert_false(a.sq_draining);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE, NULL, now), 0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void reset_forgets_without_completions(void **state)
{
	pair(CONFIG());
	post_recv(0, 9, AT, 10);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 20 * MTU, RAT, SIG);
	emit(0);
	wire_n = 0;
	assert_int_equal(S[0].cc.inflight, 20);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE, NULL, now), 0);
	assert_int_equal(S[0].cc.inflight, 0);
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(rpwi_rq_count(&S[0].rq), 0);
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG), EINVAL);
	unpair();
}

static void the_first_packet_in_rtr_is_an_event(void **state)
{
	struct config c = CONFIG();
	pair(c);
	rpwi_qp_fini(&S[1].qp);
	rpwi_rq_fini(&S[1].rq);
	make(1, &c);
	assert_int_equal(to_init(1, &c), 0);
	assert_int_equal(to_rtr(1, &c), 0);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	settle();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(S[1].nevent, 1);
	assert_int_equal(S[1].event[0], IBV_EVENT_COMM_EST);
	unpair();
}

/* ---- tests: modify ---- */

static int modify(int i, enum ibv_qp_state to, int mask)
{
	struct rpwi_av av = av_between(i);
	struct ibv_qp_attr a = {.qp_state = to,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = QPN1,
		.cur_qp_state = S[i].qp.state,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1};
	return rpwi_qp_modify(&S[i].qp, &a, mask, &av, now);
}

static void every_required_attribute_is_required(void **state)
{
	static const struct {
		enum ibv_qp_type type;
		int need[3];
	} rules[] = {
		{IBV_QPT_RC, {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
				     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
				     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC}},
		{IBV_QPT_UC,
			{IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, IBV_QP_SQ_PSN}},
		{IBV_QPT_UD, {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN}},
	};
	static const enum ibv_qp_state next[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

	for (unsigned r = 0; r < 3; r++) {
		struct config c = CONFIG(.type = rules[r].type);
		make(0, &c);
		assert_int_equal(modify(0, IBV_QPS_RTR, IBV_QP_STATE | rules[r].need[1]), EINVAL);
		assert_int_equal(modify(0, IBV_QPS_ERR, IBV_QP_STATE), EINVAL); /* not from RESET */
		for (unsigned s = 0; s < 3; s++) {
			for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
				if (rules[r].need[s] & bit)
					assert_int_equal(modify(0, next[s], IBV_QP_STATE | (rules[r].need[s] & ~bit)), EINVAL);
			}
			assert_int_equal(modify(0, next[s], IBV_QP_STATE | IBV_QP_CAP | rules[r].need[s]), EINVAL);
			assert_int_equal(modify(0, next[s], IBV_QP_STATE | rules[r].need[s]), 0);
			assert_int_equal(S[0].qp.state, next[s]);
		}
		assert_int_equal(modify(0, IBV_QPS_INIT, IBV_QP_STATE | rules[r].need[0]), EINVAL);
		assert_int_equal(modify(0, IBV_QPS_RTS, rules[r].type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS), 0);
		assert_int_equal(modify(0, IBV_QPS_SQE, IBV_QP_STATE), EINVAL);
		assert_int_equal(modify(0, IBV_QPS_ERR, IBV_QP_STATE), 0);
		assert_int_equal(modify(0, IBV_QPS_RTS, IBV_QP_STATE), EINVAL);
		assert_int_equal(modify(0, IBV_QPS_RESET, IBV_QP_STATE), 0);
		rpwi_qp_fini(&S[0].qp);
		rpwi_rq_fini(&S[0].rq);
	}
}

static void values_out_of_range_are_refused(void **state)
{
	struct config c = CONFIG();
	pair(c);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = 32};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_MIN_RNR_TIMER, NULL, now), EINVAL);
	a.min_rnr_timer = 31;
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_MIN_RNR_TIMER, NULL, now), 0);
	rpwi_qp_query(&S[0].qp, &a);
	assert_int_equal(a.min_rnr_timer, 31);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.sq_psn, PSN0);
	assert_int_equal(a.dest_qp_num, QPN1);
	a.cur_qp_state = IBV_QPS_SQD;
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE, NULL, now), EINVAL);
	unpair();
}

/* ---- tests: SRQ ---- */

static void a_srq_tells_its_limit_and_the_last_wqe(void **state)
{
	pair(CONFIG(.srq = true));
	for (uint64_t k = 0; k < 4; k++)
		post_recv(1, 100 + k, RAT + 4096 * (uint32_t)k, 4096);
	S[1].rq.limit = 3;
	post(0, IBV_WR_SEND, 1, AT, 10, 0, SIG);
	settle();
	assert_int_equal(S[1].nevent, 0);
	post(0, IBV_WR_SEND, 2, AT, 10, 0, SIG);
	post(0, IBV_WR_SEND, 3, AT, 10, 0, SIG);
	settle();
	assert_int_equal(S[1].nevent, 1); /* once */
	assert_int_equal(S[1].event[0], IBV_EVENT_SRQ_LIMIT_REACHED);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	assert_int_equal(rpwi_qp_modify(&S[1].qp, &a, IBV_QP_STATE, NULL, now), 0);
	assert_int_equal(S[1].event[1], IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(rpwi_rq_count(&S[1].rq), 1);
	assert_int_equal(S[1].nwc, 3);
	unpair();
}

static void resizing_a_queue_keeps_what_is_posted(void **state)
{
	struct rpwi_rq rq;
	assert_int_equal(rpwi_rq_init(&rq, 5, 2, true), 0);
	struct ibv_sge sge[2] = {{.length = 1}, {.length = 2}};
	struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = 2};
	rq.head = rq.tail = 6; /* as after some use */
	for (uint64_t k = 0; k < 5; k++) {
		wr.wr_id = k;
		sge[0].addr = 1000 + k;
		assert_int_equal(rpwi_rq_post(&rq, &wr), 0);
	}
	assert_int_equal(rpwi_rq_post(&rq, &wr), -ENOMEM);
	assert_int_equal(rpwi_rq_resize(&rq, 4), -EINVAL);
	assert_int_equal(rpwi_rq_resize(&rq, 20), 0);
	assert_int_equal(rpwi_rq_count(&rq), 5);
	for (uint64_t k = 0; k < 5; k++) {
		const struct rpwi_rwqe *w = &rq.ring[rq.head++ & rq.mask];
		assert_int_equal(w->wr_id, k);
		assert_int_equal(w->sge[0].addr, 1000 + k);
		assert_int_equal(w->len, 3);
	}
	wr.num_sge = 3;
	assert_int_equal(rpwi_rq_post(&rq, &wr), -EINVAL);
	rpwi_rq_fini(&rq);
}

/* ---- tests: UC ---- */

static void uc_moves_messages_without_acks(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UC));
	post_recv(1, 100, RAT, MEM - RAT);
	post_recv(1, 101, 0, 0);
	post(0, IBV_WR_SEND, 1, AT, 150 * MTU + 3, 0, SIG);
	assert_int_equal(emit(0), 151);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	settle();
	assert_int_equal(S[1].qp.stats.tx_packets, 0);
	expect_wc(1, 0, 100, IBV_WC_SUCCESS, IBV_WC_RECV);
	same(AT, RAT, 150 * MTU + 3);
	fill(&S[0], 5);
	post(0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, AT, 5000, RAT, SIG);
	settle();
	expect_wc(1, 1, 101, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	same(AT, RAT, 5000);
	assert_int_equal(post(0, IBV_WR_RDMA_READ, 2, AT, 5000, RAT, SIG), EINVAL);
	assert_int_equal(post(0, IBV_WR_SEND_WITH_INV, 2, AT, 5000, RAT, SIG), EINVAL);
	assert_int_equal(rpwi_qp_deadline(&S[0].qp), RPWI_NEVER);
	unpair();
}

static void uc_completes_only_what_has_left(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UC));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	rpwi_txb_reset(txb);
	rpwi_qp_tx(&S[0].qp, txb, false, now);
	assert_int_equal(txb->npkt, 1);
	assert_int_equal(S[0].nwc, 0);
	assert_true(rpwi_qp_tx_ready(&S[0].qp, false, now));
	rpwi_qp_tx_done(&S[0].qp);
	assert_int_equal(S[0].nwc, 1);
	assert_false(rpwi_qp_tx_ready(&S[0].qp, false, now));
	unpair();
}

static void uc_drops_a_message_with_a_gap(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UC));
	for (int lost = 0; lost < 3; lost++) {
		post_recv(1, 100, RAT, 4096);
		post(0, IBV_WR_SEND, 1, AT, 3 * MTU, 0, SIG);
		emit(0);
		take_off((unsigned)lost);
		settle();
		assert_int_equal(S[1].nwc, (unsigned)lost);
		post(0, IBV_WR_SEND, 2, AT + 9, 2 * MTU, 0, SIG);
		settle();
		assert_int_equal(S[1].nwc, (unsigned)lost + 1);
		assert_int_equal(S[1].wc[lost].byte_len, 2 * MTU);
		same(AT + 9, RAT, 2 * MTU);
	}
	post(0, IBV_WR_SEND, 3, AT, 10, 0, SIG); /* no receive: dropped, and nothing breaks */
	settle();
	assert_int_equal(S[1].qp.stats.rx_no_rwqe, 1);
	assert_int_equal(S[1].qp.state, IBV_QPS_RTS);
	unpair();
}

static void uc_send_error_stops_only_the_send_side(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UC));
	struct ibv_sge sge = {.addr = (uintptr_t)S[0].mem, .length = 10, .lkey = KEY_BAD};
	struct ibv_send_wr wr = {.wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
	post_recv(0, 50, AT, 64);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	rpwi_qp_post_send(&S[0].qp, &wr, NULL);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG);
	settle();
	assert_int_equal(S[0].qp.state, IBV_QPS_SQE);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 1, 2, IBV_WC_LOC_PROT_ERR, 0);
	expect_wc(0, 2, 3, IBV_WC_WR_FLUSH_ERR, 0);
	post(1, IBV_WR_SEND, 4, RAT, 10, 0, SIG);
	settle();
	expect_wc(0, 3, 50, IBV_WC_SUCCESS, IBV_WC_RECV);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE, NULL, now), 0);
	post(0, IBV_WR_RDMA_WRITE, 5, AT, 10, RAT, SIG);
	settle();
	expect_wc(0, 4, 5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 10);
	unpair();
}

/* ---- tests: UD ---- */

static int post_ud(int i, uint64_t id, uint32_t off, uint32_t len, uint32_t qkey, const struct rpwi_av *av)
{
	struct ibv_sge sge = {.addr = (uintptr_t)S[i].mem + off, .length = len, .lkey = KEY};
	struct ibv_send_wr wr = {.wr_id = id, .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &sge, .num_sge = 1, .send_flags = SIG, .imm_data = 0x11223344};
	wr.wr.ud.remote_qpn = i ? QPN0 : QPN1;
	wr.wr.ud.remote_qkey = qkey;
	return rpwi_qp_post_send(&S[i].qp, &wr, av);
}

static void ud_receives_say_where_they_come_from(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UD));
	struct rpwi_av av = av_between(0);
	post_recv(1, 100, RAT, 40 + MTU);
	post_recv(1, 101, RAT + 4096, 40 + MTU);
	assert_int_equal(post_ud(0, 1, AT, MTU + 1, 0x5152, &av), EINVAL);
	assert_int_equal(post_ud(0, 1, AT, MTU - 3, 0x5152, &av), 0);
	assert_int_equal(post_ud(0, 2, AT, 10, 0x9999, &av), 0);
	settle();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(S[1].nwc, 1);
	assert_int_equal(S[1].qp.stats.rx_bad_qkey, 1);
	expect_wc(1, 0, 100, IBV_WC_SUCCESS, IBV_WC_RECV);
	assert_int_equal(S[1].wc[0].byte_len, 40 + MTU - 3);
	assert_int_equal(S[1].wc[0].wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	assert_int_equal(S[1].wc[0].imm_data, 0x11223344);
	assert_int_equal(S[1].wc[0].src_qp, QPN0);
	assert_int_equal(S[1].wc[0].sl, 10);
	same(AT, RAT + 40, MTU - 3);
	const uint8_t *ip = S[1].mem + RAT + 20;
	assert_int_equal(ip[0], 0x45);
	assert_int_equal(ip[8], 61);
	assert_memory_equal(ip + 12, S[1].rx_flow.src.bytes, 4);
	assert_memory_equal(ip + 16, S[1].rx_flow.dst.bytes, 4);
	uint32_t sum = 0;
	for (int k = 0; k < 20; k += 2)
		sum += rpwi_get_be16(ip + k);
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
	/* IPv6, and the QP's own Q_Key */
	S[1].rx_flow.src = (struct rpwi_addr){.family = 6, .bytes = {0xfd, 1, [15] = 7}};
	S[1].rx_flow.dst = (struct rpwi_addr){.family = 6, .bytes = {0xfd, 1, [15] = 9}};
	S[1].qp.attr.qkey = S[0].qp.attr.qkey;
	assert_int_equal(post_ud(0, 3, AT, 10, 0x80000000, &av), 0);
	settle();
	expect_wc(1, 1, 101, IBV_WC_SUCCESS, IBV_WC_RECV);
	assert_int_equal(S[1].mem[RAT + 4096] >> 4, 6);
	assert_memory_equal(S[1].mem + RAT + 4096 + 8, S[1].rx_flow.src.bytes, 16);
	assert_memory_equal(S[1].mem + RAT + 4096 + 24, S[1].rx_flow.dst.bytes, 16);
	assert_int_equal(S[1].wc[1].sl, 0);
	unpair();
}

static void a_ud_batch_has_one_destination(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UD));
	struct rpwi_av av[2] = {av_between(0), av_between(0)};
	av[1].flow.dst.bytes[3] = 77;
	for (uint64_t k = 0; k < 6; k++)
		assert_int_equal(post_ud(0, k, AT, 10, 0x5152, &av[k / 2 % 2]), 0);
	for (int k = 0; k < 3; k++) {
		rpwi_txb_reset(txb);
		rpwi_qp_tx(&S[0].qp, txb, false, now);
		assert_int_equal(txb->npkt, 2);
		assert_memory_equal(&txb->av->flow, &av[k % 2].flow, sizeof(av[0].flow));
	}
	rpwi_qp_tx_done(&S[0].qp);
	assert_int_equal(S[0].nwc, 6);
	unpair();
}

static void a_ud_receive_without_room_fails(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UD));
	struct rpwi_av av = av_between(0);
	post_recv(1, 100, RAT, 40 + 9);
	post_ud(0, 1, AT, 10, 0x5152, &av);
	settle();
	expect_wc(1, 0, 100, IBV_WC_LOC_LEN_ERR, 0);
	assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
	unpair();
}

/* ---- tests: windows ---- */

static void the_window_shrinks_on_loss_and_grows_again(void **state)
{
	struct rpwi_cc cc;
	rpwi_cc_init(&cc, 64, 64);
	rpwi_cc_on_send(&cc, 64);
	rpwi_cc_on_rtt(&cc, 100000);
	rpwi_cc_on_loss(&cc, false, 1000000);
	assert_int_equal(cc.cwnd, 32);
	rpwi_cc_on_loss(&cc, false, 1050000); /* the same round trip */
	assert_int_equal(cc.cwnd, 32);
	rpwi_cc_on_loss(&cc, false, 1200000);
	assert_int_equal(cc.cwnd, 16);
	assert_int_equal(rpwi_cc_room(&cc), 0);
	rpwi_cc_on_ack(&cc, 50, 1300000);
	assert_true(cc.cwnd > 16 && cc.cwnd <= 20); /* additive */
	rpwi_cc_on_loss(&cc, true, 2000000);
	assert_int_equal(cc.cwnd, 4);
	assert_int_equal(cc.inflight, 14);
	rpwi_cc_on_forget(&cc, 14);
	for (int k = 0; k < 1000; k++) {
		uint32_t room = rpwi_cc_room(&cc);
		rpwi_cc_on_send(&cc, room);
		rpwi_cc_on_ack(&cc, room, 3000000);
	}
	assert_int_equal(cc.cwnd, 64);
	assert_int_equal(cc.inflight, 0);
}

/* ---- a small storm: all operations, both ways, a bad wire; the simulator under tests/sim does it at length ---- */

static uint64_t rng;
static uint32_t rnd(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)((rng >> 11) % n);
}

struct want {
	enum ibv_wr_opcode op;
	uint32_t off, roff, len;
	uint64_t add;
};

static void storm(uint64_t seed)
{
	enum { OPS = 40, SLOT = 16384, PCT = 10 };
	static struct want want[2][OPS];
	static uint8_t *shadow[2];
	unsigned posted[2] = {0}, sends[2] = {0};
	uint64_t sum[2] = {0};

	rng = seed * 0x9e3779b97f4a7c15ull + 1;
	pair(CONFIG(.send_wr = 16, .recv_wr = 64, .rd = 1 + rnd(5), .cwnd = 4 + rnd(60), .rnr_retry = 7, .rnr_timer = 1));
	for (int i = 0; i < 2; i++) {
		memset(S[i].mem + MEM - 8, 0, 8); /* the counter */
		shadow[i] = malloc(MEM);
		memcpy(shadow[i], S[i].mem, MEM);
	}
	/* Each operation k of side i has slot k: the first half of memory is a source, the second half a target; OPS slots of 8 KiB fit each. */
	for (long guard = 0;; guard++) {
		if (guard > 200000)
			fail_msg("seed %lu hangs", (unsigned long)seed);
		for (int i = 0; i < 2; i++) {
			if (posted[i] < OPS && rnd(3) == 0) {
				static const enum ibv_wr_opcode all[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
					IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
				struct want w = {.op = all[rnd(6)],
					.off = posted[i] * 8192,
					.roff = MEM / 2 + posted[i] * 8192,
					.len = rnd(4) ? rnd(8192) : rnd(64),
					.add = 1 + rnd(1000)};
				int rc;
				if (w.op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
					rc = post_atomic(i, false, posted[i], MEM / 2 + OPS * 8192 + posted[i] * 8, MEM - 8, w.add, 0);
				} else {
					if (w.op == IBV_WR_RDMA_READ) { /* from the peer's source half into an own area behind all slots */
						w.len = RPWI_MIN(w.len, 2048u);
						w.off = MEM / 2 + OPS * 8192 + 512 + posted[i] * 2048;
						w.roff = posted[i] * 8192;
					}
					rc = post(i, w.op, posted[i], w.off, w.len, w.roff, SIG | (rnd(8) ? 0 : IBV_SEND_FENCE));
				}
				if (!rc) {
					if (w.op == IBV_WR_ATOMIC_FETCH_AND_ADD)
						sum[!i] += w.add;
					want[i][posted[i]++] = w;
				}
			}
			/* receives, sometimes late */
			unsigned need = 0;
			for (unsigned k = 0; k < posted[!i]; k++)
				need += want[!i][k].op == IBV_WR_SEND || want[!i][k].op == IBV_WR_SEND_WITH_IMM || want[!i][k].op == IBV_WR_RDMA_WRITE_WITH_IMM;
			if (sends[i] < need && rnd(2)) {
				/* the k-th receive belongs to the k-th such operation: its slot */
				unsigned seen = 0, k = 0;
				for (; k < posted[!i]; k++)
					if ((want[!i][k].op == IBV_WR_SEND || want[!i][k].op == IBV_WR_SEND_WITH_IMM ||
						    want[!i][k].op == IBV_WR_RDMA_WRITE_WITH_IMM) &&
						seen++ == sends[i])
						break;
				post_recv(i, 1000 + k, MEM / 2 + k * 8192, 8192);
				sends[i]++;
			}
			emit_held(i, rnd(2));
		}
		now += 1 + rnd(3000);
		/* some of the wire, badly */
		unsigned n = wire_n ? rnd(wire_n + 1) : 0;
		for (unsigned m = 0; m < n && wire_n; m++) {
			unsigned k = rnd(100) < PCT ? rnd(RPWI_MIN(wire_n, 4u)) : 0;
			uint32_t dice = rnd(100);
			if (dice >= PCT)
				deliver(&wire[k]);
			if (dice < PCT || dice >= 2 * PCT)
				take_off(k);
		}
		bool done = posted[0] == OPS && posted[1] == OPS && S[0].nwc - S[0].nrecv == OPS && S[1].nwc - S[1].nrecv == OPS && S[0].nrecv == sends[0] &&
			    S[1].nrecv == sends[1];
		if (done && !wire_n && !rpwi_qp_ack_owed(&S[0].qp) && !rpwi_qp_ack_owed(&S[1].qp))
			break;
		if (!wire_n && rnd(4) == 0)
			tick();
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(S[i].qp.state, IBV_QPS_RTS);
		unsigned send_seen = 0;
		for (unsigned k = 0; k < S[i].nwc; k++) {
			assert_int_equal(S[i].wc[k].status, IBV_WC_SUCCESS);
			if (!S[i].wc_recv[k]) {
				assert_int_equal(S[i].wc[k].wr_id, send_seen);
				send_seen++;
			} else {
				const struct want *w = &want[!i][S[i].wc[k].wr_id - 1000];
				assert_int_equal(S[i].wc[k].byte_len, w->len);
			}
		}
		assert_int_equal(*(uint64_t *)(S[i].mem + MEM - 8), sum[i]);
		for (unsigned k = 0; k < OPS; k++) {
			const struct want *w = &want[i][k];
			uint8_t *mine = S[i].mem, *theirs = S[!i].mem;
			if (w->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
				continue;
			if (w->op == IBV_WR_RDMA_READ) {
				assert_memory_equal(mine + w->off, shadow[!i] + w->roff, w->len);
				continue;
			}
			assert_memory_equal(theirs + w->roff, shadow[i] + w->off, w->len);
			assert_memory_equal(theirs + w->roff + w->len, shadow[!i] + w->roff + w->len, 8192 - w->len); /* and not a byte more */
			assert_memory_equal(mine + k * 8192, shadow[i] + k * 8192, 8192);
		}
		assert_int_equal(S[i].cc.inflight, S[i].qp.nxt - S[i].qp.una);
	}
	free(shadow[0]);
	free(shadow[1]);
	unpair();
}

static void storms(void **state)
{
	const char *one = getenv("RC_SEED");
	uint64_t first = one ? strtoull(one, NULL, 0) : 1, last = one ? first : 300;
	for (uint64_t seed = first; seed <= last; seed++) {
		if (one)
			print_message("# seed %lu\n", (unsigned long)seed);
		storm(seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_of_every_size_arrives),
		cmocka_unit_test(send_with_immediate_and_invalidate_fill_the_completion),
		cmocka_unit_test(read_of_every_size_arrives),
		cmocka_unit_test(reads_are_cut_to_the_window),
		cmocka_unit_test(scattered_and_gathered_bytes_keep_their_order),
		cmocka_unit_test(inline_data_is_taken_at_post),
		cmocka_unit_test(atomics_return_what_was_there),
		cmocka_unit_test(unsignaled_requests_retire_in_silence),
		cmocka_unit_test(one_ack_covers_a_batch_and_can_be_held),
		cmocka_unit_test(ack_comes_after_the_responses_before_it),
		cmocka_unit_test(window_opens_steadily),
		cmocka_unit_test(a_gap_gets_one_nak_and_is_filled),
		cmocka_unit_test(a_lost_last_packet_waits_for_the_time_out),
		cmocka_unit_test(a_silence_costs_one_probe_and_repeats_nothing),
		cmocka_unit_test(a_lost_tail_is_found_by_a_probe),
		cmocka_unit_test(a_lost_ack_is_found_by_a_probe),
		cmocka_unit_test(a_lost_nak_is_found_by_a_probe),
		cmocka_unit_test(a_late_answer_to_a_probe_is_none_to_the_next),
		cmocka_unit_test(an_answer_to_the_first_probe_is_none_to_the_second),
		cmocka_unit_test(lost_read_responses_are_found_by_a_probe),
		cmocka_unit_test(a_process_that_did_not_run_reads_before_it_repeats),
		cmocka_unit_test(after_a_time_out_a_few_packets_go_first),
		cmocka_unit_test(a_lost_ack_makes_no_message_arrive_twice),
		cmocka_unit_test(a_read_resumes_at_the_first_missing_packet),
		cmocka_unit_test(an_ack_that_passes_over_a_read_means_its_responses_were_lost),
		cmocka_unit_test(a_lost_read_request_is_asked_again),
		cmocka_unit_test(an_atomic_whose_response_was_lost_is_not_done_twice),
		cmocka_unit_test(swapped_packets_are_put_right),
		cmocka_unit_test(no_answer_at_all_ends_with_retry_exceeded),
		cmocka_unit_test(without_a_time_out_a_lost_packet_is_still_repaired),
		cmocka_unit_test(answers_to_the_first_attempt_cost_no_retries),
		cmocka_unit_test(after_rnr_one_packet_asks_whether_it_is_ready_now),
		cmocka_unit_test(a_send_waits_for_a_receive),
		cmocka_unit_test(a_write_with_immediate_waits_at_its_last_packet),
		cmocka_unit_test(rnr_retries_end),
		cmocka_unit_test(bad_remote_memory_is_an_access_error),
		cmocka_unit_test(a_refusal_comes_after_the_responses_before_it),
		cmocka_unit_test(unmapped_remote_memory_is_an_access_error),
		cmocka_unit_test(a_write_of_nothing_needs_no_key),
		cmocka_unit_test(a_receive_that_is_too_small_fails_on_both_sides),
		cmocka_unit_test(a_receive_with_a_bad_key_is_a_remote_operation_error),
		cmocka_unit_test(a_bad_local_key_fails_after_what_was_before_it),
		cmocka_unit_test(local_memory_that_goes_away_is_a_protection_error),
		cmocka_unit_test(invalid_requests_are_refused),
		cmocka_unit_test(more_reads_than_agreed_are_refused),
		cmocka_unit_test(a_bad_read_response_fails_the_read),
		cmocka_unit_test(answers_to_nothing_and_strangers_change_nothing),
		cmocka_unit_test(a_replay_must_ask_for_the_same_bytes),
		cmocka_unit_test(a_fence_waits_for_reads),
		cmocka_unit_test(no_more_reads_than_agreed_are_outstanding),
		cmocka_unit_test(local_operations_complete_in_their_turn),
		cmocka_unit_test(sqd_finishes_what_is_in_flight_and_holds_the_rest),
		cmocka_unit_test(reset_forgets_without_completions),
		cmocka_unit_test(the_first_packet_in_rtr_is_an_event),
		cmocka_unit_test(every_required_attribute_is_required),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(a_srq_tells_its_limit_and_the_last_wqe),
		cmocka_unit_test(resizing_a_queue_keeps_what_is_posted),
		cmocka_unit_test(uc_moves_messages_without_acks),
		cmocka_unit_test(uc_completes_only_what_has_left),
		cmocka_unit_test(uc_drops_a_message_with_a_gap),
		cmocka_unit_test(uc_send_error_stops_only_the_send_side),
		cmocka_unit_test(ud_receives_say_where_they_come_from),
		cmocka_unit_test(a_ud_batch_has_one_destination),
		cmocka_unit_test(a_ud_receive_without_room_fails),
		cmocka_unit_test(the_window_shrinks_on_loss_and_grows_again),
		cmocka_unit_test(storms),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
