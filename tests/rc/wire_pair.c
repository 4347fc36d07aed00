/* SPDX-License-Identifier: BSD-3-Clause */
/* wire_pair.c - see wire_pair.h: the surroundings of a QP, a pair of them, and the wire. */
#include "wire_pair.h"

struct side S[2];
struct wpkt *wire;
unsigned wire_n;
uint64_t now;
struct rpwi_txb *txb;
int (*fate)(const struct wpkt *w, const struct rpwi_pkt *p);

/* ---- surroundings of a QP ---- */

static struct side *side_of(const struct rpwi_qp *qp) { return qp->user; }

static bool in_mem(const struct side *s, uint64_t addr, uint64_t len)
{
	uint64_t base = (uintptr_t)s->mem;
	return addr >= base && len <= MEM && addr - base <= MEM - len;
}

static bool in_hole(const struct side *s, uint64_t addr, uint64_t len)
{
	return s->hole_len && addr < s->hole_at + s->hole_len && s->hole_at < addr + len;
}

static int mem_check(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote)
{
	const struct side *s = side_of(qp);
	return key == KEY && in_mem(s, addr, len) && !(access & ~s->key_access) ? 0 : -EACCES;
}

static int mem_write(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, const void *src, uint32_t len, bool remote)
{
	if (mem_check(qp, key, addr, len, remote ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE,
		    remote))
		return -EACCES;
	if (in_hole(side_of(qp), addr, len))
		return -EFAULT;
	memcpy((void *)(uintptr_t)addr, src, len);
	return 0;
}

static int mem_receive(
	struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, const void *src, uint32_t len)
{
	return mem_write(qp, lkey, addr, src, len, false);
}

static int mem_read(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, void *dst, uint32_t len, bool remote)
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
	return mem_check(qp, key, addr, len, 0, false) || in_hole(side_of(qp), addr, len)
		       ? NULL
		       : (void *)(uintptr_t)addr;
}

static int mem_atomic(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, bool cmp_swap,
	uint64_t compare, uint64_t swap_add, uint64_t *orig)
{
	if (mem_check(qp, rkey, addr, 8, IBV_ACCESS_REMOTE_ATOMIC, true))
		return -EACCES;
	uint64_t *p = (uint64_t *)(uintptr_t)addr;
	*orig = *p;
	*p = cmp_swap ? (*p == compare ? swap_add : *p) : *p + swap_add;
	return 0;
}

static int mem_atomic_write(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, const void *value)
{
	if (mem_check(qp, rkey, addr, 8, IBV_ACCESS_REMOTE_WRITE, true))
		return -EACCES;
	if (in_hole(side_of(qp), addr, 8))
		return -EFAULT;
	side_of(qp)->atomic_writes++;
	memcpy((void *)(uintptr_t)addr, value, 8);
	return 0;
}

static int invalidate(struct rpwi_qp *qp, uint32_t key, bool remote)
{
	struct side *s = side_of(qp);
	s->inv_key = key;
	s->inv_remote = remote;
	return s->inv_rc;
}

static bool peer_rejects(struct rpwi_qp *qp) { return side_of(qp)->rejected; }

static int bind_mw(struct rpwi_qp *qp, const struct rpwi_bind *b)
{
	side_of(qp)->binds++;
	side_of(qp)->bound = *b;
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

/* All READs go by packets. */
static void *no_sink(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len, bool remote)
{
	return NULL;
}

static const uint8_t *no_peer_read(
	struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, uint32_t len, void *into)
{
	return NULL;
}

static const struct rpwi_qp_ops ops = {
	.mem_sink = no_sink,
	.peer_read = no_peer_read,
	.mem_check = mem_check,
	.mem_write = mem_write,
	.mem_receive = mem_receive,
	.mem_read = mem_read,
	.mem_map = mem_map,
	.mem_atomic = mem_atomic,
	.mem_atomic_write = mem_atomic_write,
	.peer_rejects = peer_rejects,
	.invalidate = invalidate,
	.bind_mw = bind_mw,
	.complete = complete,
	.event = event,
};

/* ---- making a pair ---- */

void fill(struct side *s, uint32_t salt) { pattern_fill(s->mem, MEM, salt); }

struct rpwi_av av_between(int me)
{
	struct rpwi_av av = {.hop_limit = 64};
	av.flow.src = (struct rpwi_addr){.family = 4, .bytes = {10, 0, 0, (uint8_t)(1 + me)}};
	av.flow.dst = (struct rpwi_addr){.family = 4, .bytes = {10, 0, 0, (uint8_t)(2 - me)}};
	av.flow.sport = 0xc001;
	av.flow.dport = RPWI_UDP_PORT;
	return av;
}

void make(int i, const struct config *c)
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
		.cap = {.max_send_wr = c->send_wr,
			.max_recv_wr = c->recv_wr,
			.max_send_sge = c->sge,
			.max_recv_sge = c->sge,
			.max_inline_data = c->inl},
	};
	assert_int_equal(rpwi_qp_init(&s->qp, &init), 0);
	s->rx_flow = av_between(!i).flow;
}

int to_init(int i, const struct config *c)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = (unsigned)c->access,
		.qkey = 0x5151 + (unsigned)i};
	return rpwi_qp_modify(&S[i].qp, &a,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(c->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS),
		NULL, now);
}

int to_rtr(int i, const struct config *c)
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

int to_rts(int i, const struct config *c)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
		.sq_psn = i ? PSN1 : PSN0,
		.timeout = (uint8_t)c->timeout,
		.retry_cnt = (uint8_t)c->retry,
		.rnr_retry = (uint8_t)c->rnr_retry,
		.max_rd_atomic = (uint8_t)c->rd};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (c->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return rpwi_qp_modify(&S[i].qp, &a, mask, NULL, now);
}

void pair(struct config c)
{
	wire_n = 0;
	fate = NULL;
	now = 1000000;
	for (int i = 0; i < 2; i++) {
		make(i, &c);
		assert_int_equal(to_init(i, &c), 0);
		assert_int_equal(to_rtr(i, &c), 0);
		assert_int_equal(to_rts(i, &c), 0);
	}
}

void unpair(void)
{
	for (int i = 0; i < 2; i++) {
		rpwi_qp_fini(&S[i].qp);
		rpwi_rq_fini(&S[i].rq);
		/* whatever happened, nothing is left in the window */
		assert_int_equal(S[i].cc.inflight, 0);
	}
}

int wire_pair_setup(void **state)
{
	wire = malloc(WIRE * sizeof(*wire));
	txb = malloc(sizeof(*txb));
	txb->scratch = malloc(RPWI_TXB_SCRATCH);
	S[0].mem = aligned_alloc(4096, MEM);
	S[1].mem = aligned_alloc(4096, MEM);
	return 0;
}

int wire_pair_teardown(void **state)
{
	free(wire);
	free(txb->scratch);
	free(txb);
	free(S[0].mem);
	free(S[1].mem);
	return 0;
}

/* ---- posting ---- */

int post(int i, enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len, uint32_t roff,
	unsigned flags)
{
	struct ibv_sge sge = {.addr = (uintptr_t)S[i].mem + off, .length = len, .lkey = KEY};
	struct ibv_send_wr wr = {.wr_id = id,
		.opcode = op,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = flags,
		.imm_data = htobe32(0xabcd0000u | (uint32_t)id)};
	if (op == IBV_WR_SEND_WITH_INV || op == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = 0x7000 + (uint32_t)id;
	wr.wr.rdma.remote_addr = (uintptr_t)S[!i].mem + roff;
	wr.wr.rdma.rkey = KEY;
	struct ibv_mw mw = {.rkey = 0x5500 + (uint32_t)id};
	if (op == IBV_WR_BIND_MW) /* gone when its turn comes: the keys are what counts */
		wr.bind_mw.mw = &mw;
	return rpwi_qp_post_send(&S[i].qp, &wr, NULL);
}

int post_atomic(int i, bool cas, uint64_t id, uint32_t off, uint32_t roff, uint64_t compare_add,
	uint64_t swap)
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

void post_recv_key(int i, uint64_t id, uint32_t off, uint32_t len, uint32_t key)
{
	struct ibv_sge sge = {.addr = (uintptr_t)S[i].mem + off, .length = len, .lkey = key};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	assert_int_equal(rpwi_rq_post(&S[i].rq, &wr), 0);
	rpwi_qp_recv_posted(&S[i].qp);
}

void post_recv(int i, uint64_t id, uint32_t off, uint32_t len)
{
	post_recv_key(i, id, off, len, KEY);
}

/* ---- the wire ---- */

void put_on_wire(int to, const struct rpwi_txb *b, unsigned k)
{
	const struct rpwi_txpkt *t = &b->pkt[k];
	assert_true(wire_n < WIRE);
	struct wpkt *w = &wire[wire_n++];
	w->to = to;
	memcpy(w->raw, t->hdr, t->hdr_len);
	w->len = t->hdr_len;
	uint32_t payload = 0;
	for (unsigned v = 0; v < t->iov_count; v++) {
		memcpy(w->raw + w->len, b->iov[t->iov_first + v].base,
			b->iov[t->iov_first + v].len);
		w->len += b->iov[t->iov_first + v].len;
		payload += (uint32_t)b->iov[t->iov_first + v].len;
	}
	assert_int_equal(payload, t->payload_len);
	memset(w->raw + w->len, 0, t->pad + RPWI_ICRC_LEN);
	w->len += t->pad + RPWI_ICRC_LEN;
}

unsigned emit_held(int i, bool hold_ack)
{
	unsigned n = 0;
	for (int guard = 0; rpwi_qp_tx_ready(&S[i].qp, hold_ack, now); guard++) {
		assert_true(guard < 1000); /* "ready" must mean progress */
		rpwi_txb_reset(txb);
		rpwi_qp_tx(&S[i].qp, txb, hold_ack, now);
		assert_true(txb->npkt <= RPWI_TXB_PKTS && txb->niov <= RPWI_TXB_IOVS &&
			    txb->scratch_used <= RPWI_TXB_SCRATCH);
		for (unsigned k = 0; k < txb->npkt; k++)
			put_on_wire(!i, txb, k);
		n += txb->npkt;
		rpwi_qp_tx_done(&S[i].qp);
	}
	return n;
}

unsigned emit(int i) { return emit_held(i, false); }

struct rpwi_pkt decoded(const struct wpkt *w)
{
	struct rpwi_pkt p;
	assert_int_equal(rpwi_pkt_decode(w->raw, w->len, &p), 0);
	return p;
}

void rx(int to, const struct rpwi_pkt *p)
{
	struct rpwi_rxmeta meta = {.flow = &S[to].rx_flow, .ttl = 61, .tos = 4};
	rpwi_qp_rx(&S[to].qp, p, &meta, now);
}

void deliver(const struct wpkt *w)
{
	struct rpwi_pkt p = decoded(w);
	assert_int_equal(p.dqpn, S[w->to].qp.qpn);
	rx(w->to, &p);
}

void take_off(unsigned k)
{
	memmove(&wire[k], &wire[k + 1], (wire_n - k - 1) * sizeof(*wire));
	wire_n--;
}

void flush_wire(void)
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

void settle(void)
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

bool tick(void)
{
	uint64_t at = RPWI_MIN(rpwi_qp_deadline(&S[0].qp), rpwi_qp_deadline(&S[1].qp));
	if (at == RPWI_NEVER)
		return false;
	now = RPWI_MAX(now, at);
	rpwi_qp_timer(&S[0].qp, now);
	rpwi_qp_timer(&S[1].qp, now);
	return true;
}

void settle_timed(void)
{
	for (int guard = 0; guard < 10000; guard++) {
		settle();
		if (!tick())
			return;
	}
	fail_msg("timers never end");
}

void expect_wc(int i, unsigned k, uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode op)
{
	assert_true(k < S[i].nwc);
	assert_int_equal(S[i].wc[k].wr_id, id);
	assert_int_equal(S[i].wc[k].status, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(S[i].wc[k].opcode, op);
}

void same(uint32_t off0, uint32_t off1, uint32_t len)
{
	assert_memory_equal(S[0].mem + off0, S[1].mem + off1, len);
}

static uint32_t victim_psn;
static unsigned victim_op;
unsigned victims;
int drop_victim(const struct wpkt *w, const struct rpwi_pkt *p)
{
	if (victims && rpwi_pkt_op(p) == victim_op &&
		(victim_psn == UINT32_MAX || p->psn == victim_psn)) {
		victims--;
		return 1;
	}
	return 0;
}

void doom(unsigned op, uint32_t psn, unsigned times)
{
	victim_op = op;
	victim_psn = psn;
	victims = times;
	fate = drop_victim;
}

uint32_t psn_of(uint32_t first, uint32_t n) { return rpwi_psn_add(first, n); }

struct rpwi_pkt forged(unsigned op, uint32_t psn, const uint8_t *payload, uint32_t len)
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
