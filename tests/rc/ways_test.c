/* SPDX-License-Identifier: BSD-3-Clause */
/* Each short way beside the general one, from the same state: the packets, the completions and each
 * byte of the queue pair afterwards are the same, or the short way has declined and changed
 * nothing. The states are random: in each state of the QP, full queues, windows of every size,
 * packets lost, READs and RNR NAKs under way, ACKs and NAKs owed. TEST_ROUNDS: how many. */
#include <malloc.h>

#include "rc/internal.h"
#include "wire_pair.h"

enum { SQ = 8, SGES = 2, INL = 16, LEN_MAX = 3 * MTU, SHORT = 8, BIG_WINDOW = 4096 };

static unsigned long shorts, declined, posts, rows, reads, states[IBV_QPS_ERR + 1], slow[8];

static struct rng rng;
static uint32_t chance(uint32_t n) { return (uint32_t)rng_below(&rng, n); }

/* ---- a state, kept ---- */

struct kept {
	struct rpwi_qp qp;
	struct rpwi_rq rq;
	struct rpwi_cc cc;
	unsigned nwc, nrecv, nsolicited, nevent;
	uint32_t inv_key;
	int binds;
	size_t arena_len, res_len, ring_len, sges_len;
	uint8_t *arena, *res, *ring, *sges;
	struct ibv_wc wc[64];
	uint8_t mem[256]; /* from AT on: what READs bring */
};

static void keep_block(uint8_t **to, size_t *len, const void *from)
{
	*len = from ? malloc_usable_size((void *)(uintptr_t)from) : 0;
	*to = realloc(*to, *len + 1);
	if (*len)
		memcpy(*to, from, *len);
}

/* What no packet of a WQE has is whatever was there before; and so is what is complete, and what
 * fills up a completion: compilers copy that or do not. */
static void without_leftovers(struct kept *k)
{
	const size_t end = offsetof(struct ibv_wc, dlid_path_bits) + 1;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(k->wc); i++)
		memset((char *)&k->wc[i] + end, 0, sizeof(k->wc[i]) - end);
	struct rpwi_swqe *sq = (struct rpwi_swqe *)(void *)k->arena;
	for (uint32_t i = 0; i < SQ; i++) {
		struct rpwi_swqe *w = &sq[(k->qp.sq_tail + i) & k->qp.sq_mask];
		if (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_RDMA_WRITE)
			w->imm_be = 0;
		if (i < SQ - (k->qp.sq_tail - k->qp.sq_head))
			memset(w, 0, offsetof(struct rpwi_swqe, sge));
	}
}

/* `since`: completions from there on are kept, too. */
static void keep(struct kept *k, unsigned since)
{
	const struct side *s = &S[0];
	k->qp = s->qp;
	k->rq = s->rq;
	k->cc = s->cc;
	k->nwc = s->nwc;
	k->nrecv = s->nrecv;
	k->nsolicited = s->nsolicited;
	k->nevent = s->nevent;
	k->inv_key = s->inv_key;
	k->binds = s->binds;
	keep_block(&k->arena, &k->arena_len, s->qp.arena);
	keep_block(&k->res, &k->res_len, s->qp.res);
	keep_block(&k->ring, &k->ring_len, s->rq.ring);
	keep_block(&k->sges, &k->sges_len, s->rq.sges);
	assert_true(s->nwc - since <= RPWI_ARRAY_LEN(k->wc));
	memcpy(k->wc, s->wc + since, (s->nwc - since) * sizeof(*k->wc));
	memcpy(k->mem, s->mem + AT, sizeof(k->mem));
}

static void bring_back(const struct kept *k)
{
	struct side *s = &S[0];
	s->qp = k->qp;
	s->rq = k->rq;
	s->cc = k->cc;
	s->nwc = k->nwc;
	s->nrecv = k->nrecv;
	s->nsolicited = k->nsolicited;
	s->nevent = k->nevent;
	s->inv_key = k->inv_key;
	s->binds = k->binds;
	memcpy(s->qp.arena, k->arena, k->arena_len);
	if (k->res_len)
		memcpy(s->qp.res, k->res, k->res_len);
	memcpy(s->rq.ring, k->ring, k->ring_len);
	memcpy(s->rq.sges, k->sges, k->sges_len);
	memcpy(s->mem + AT, k->mem, sizeof(k->mem));
}

static void alike(struct kept *a, struct kept *b, unsigned since)
{
	without_leftovers(a);
	without_leftovers(b);
	assert_memory_equal(&a->qp, &b->qp, sizeof(a->qp));
	assert_memory_equal(&a->rq, &b->rq, sizeof(a->rq));
	assert_int_equal(a->nwc, b->nwc);
	assert_int_equal(a->nevent, b->nevent);
	assert_int_equal(a->inv_key, b->inv_key);
	assert_int_equal(a->binds, b->binds);
	assert_memory_equal(a->arena, b->arena, a->arena_len);
	if (a->res_len)
		assert_memory_equal(a->res, b->res, a->res_len);
	assert_memory_equal(a->ring, b->ring, a->ring_len);
	assert_memory_equal(a->wc, b->wc, (a->nwc - since) * sizeof(*a->wc));
	assert_memory_equal(a->mem, b->mem, sizeof(a->mem));
}

static struct kept before, one, other;

/* ---- what goes out ---- */

struct packets {
	unsigned n;
	struct {
		unsigned hdr_len, payload_len;
		uint8_t hdr[RPWI_HDR_MAX];
		uint64_t sum;
	} p[RPWI_TXB_PKTS];
};

static uint64_t sum_of(const void *data, uint32_t len, uint64_t sum)
{
	const uint8_t *d = data;
	for (uint32_t i = 0; i < len; i++)
		sum = (sum ^ d[i]) * 0x100000001b3ull;
	return sum;
}

static void packets_of(const struct rpwi_txb *b, struct packets *out)
{
	out->n = b->npkt;
	for (unsigned i = 0; i < b->npkt; i++) {
		const struct rpwi_txpkt *t = &b->pkt[i];
		uint64_t sum = 0;
		for (unsigned v = 0; v < t->iov_count; v++)
			sum = sum_of(
				b->iov[t->iov_first + v].base, b->iov[t->iov_first + v].len, sum);
		out->p[i].hdr_len = t->hdr_len;
		out->p[i].payload_len = t->payload_len;
		memcpy(out->p[i].hdr, t->hdr, t->hdr_len);
		out->p[i].sum = sum;
	}
}

static void same_packets(const struct packets *a, const struct packets *b)
{
	assert_int_equal(a->n, b->n);
	for (unsigned i = 0; i < a->n; i++) {
		assert_int_equal(a->p[i].hdr_len, b->p[i].hdr_len);
		assert_int_equal(a->p[i].payload_len, b->p[i].payload_len);
		assert_memory_equal(a->p[i].hdr, b->p[i].hdr, a->p[i].hdr_len);
		assert_int_equal(a->p[i].sum, b->p[i].sum);
	}
}

static void general(struct packets *out)
{
	rpwi_txb_reset(txb);
	rpwi_qp_tx(&S[0].qp, txb, false, now);
	packets_of(txb, out);
}

/* ---- the ways ---- */

/* Into a line of a lane, without a batch. */
static void short_beside_batch(void)
{
	static struct packets want;
	struct rpwi_short s;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(slow); i++)
		slow[i] += S[0].qp.slow >> i & 1;
	if (S[0].qp.sq_cur == S[0].qp.sq_tail && chance(2))
		post(0, chance(2) ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 8, AT, chance(SHORT + 1), RAT,
			SIG | (chance(3) ? 0 : IBV_SEND_INLINE));
	unsigned since = S[0].nwc;
	keep(&before, since);
	bool taken = rpwi_qp_tx_short(&S[0].qp, &s, SHORT, now);
	keep(&one, since);
	if (!taken) {
		declined++;
		alike(&before, &one, since);
		return;
	}
	shorts++;
	struct rpwi_cc cc = S[0].cc;
	bring_back(&before);
	general(&want);
	keep(&other, since);
	alike(&other, &one, since);
	assert_memory_equal(&cc, &S[0].cc, sizeof(cc));
	assert_int_equal(want.n, 1u + s.led);
	assert_int_equal(want.p[s.led].hdr_len, s.hdr_len);
	assert_memory_equal(want.p[s.led].hdr, s.hdr, s.hdr_len);
	assert_int_equal(want.p[s.led].payload_len, s.len);
	assert_int_equal(want.p[s.led].sum, sum_of(s.data, s.len, 0));
	if (s.led) {
		assert_int_equal(rpwi_get_be24(want.p[0].hdr + 9), s.ack_psn);
		assert_memory_equal(want.p[0].hdr + RPWI_BTH_LEN, s.aeth, 4);
	}
	bring_back(&before);
}

/* A row of short messages in a window of any size, and each by itself where that has less room. */
static void row_beside_each(void)
{
	static struct packets want, got;
	unsigned since = S[0].nwc;
	struct rpwi_qp *q = &S[0].qp;
	if (!q->cc || q->window)
		return;
	keep(&before, since);
	q->cc->cwnd = q->cc->cwnd_max = q->cc->inflight + BIG_WINDOW;
	general(&got);
	keep(&one, since);
	bring_back(&before);
	q->cc->cwnd = q->cc->cwnd_max = q->cc->inflight + RPWI_TXB_PKTS - 1;
	general(&want);
	keep(&other, since);
	same_packets(&want, &got);
	alike(&other, &one, since);
	rows += want.n > 1;
	bring_back(&before);
}

static void random_wr(struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
		IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV,
		(enum ibv_wr_opcode)RPWI_WR_ATOMIC_WRITE, (enum ibv_wr_opcode)77};
	enum ibv_wr_opcode op = ops[chance(RPWI_ARRAY_LEN(ops))];
	*wr = (struct ibv_send_wr){.wr_id = chance(1000), .opcode = op, .sg_list = sge};
	wr->num_sge = chance(8) ? 1 : (int)chance(SGES + 2);
	for (int i = 0; i < wr->num_sge; i++)
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)S[0].mem + AT + 8 * chance(8),
			.length = chance(3)   ? SHORT
				  : chance(2) ? chance(SHORT + 1)
					      : chance(LEN_MAX),
			.lkey = chance(30) ? KEY : KEY_BAD};
	wr->send_flags = (chance(2) ? IBV_SEND_SIGNALED : 0) | (chance(6) ? 0 : IBV_SEND_INLINE) |
			 (chance(8) ? 0 : IBV_SEND_FENCE) | (chance(6) ? 0 : IBV_SEND_SOLICITED);
	wr->imm_data = chance(UINT32_MAX);
	wr->wr.rdma.remote_addr = (uintptr_t)S[1].mem + RAT;
	wr->wr.rdma.rkey = KEY;
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = (uintptr_t)S[1].mem + RAT;
		wr->wr.atomic.rkey = KEY;
	}
}

/* Stays posted. */
static void plain_beside_any(void)
{
	struct ibv_sge sge[SGES + 2];
	struct ibv_send_wr wr;
	unsigned since = S[0].nwc;
	random_wr(&wr, sge);
	keep(&before, since);
	int want = rpwi_qp_post_any(&S[0].qp, &wr, NULL);
	keep(&other, since);
	bring_back(&before);
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), want);
	keep(&one, since);
	alike(&other, &one, since);
	posts += !want;
}

/* READs of a QP that is quiet, all at once or in their turn. Of some the peer's memory cannot be
 * read: those go by packets. */
static void reads_beside_turns(void)
{
	static struct packets want, got;
	unsigned since = S[0].nwc, n = 1 + chance(3);
	if (!rpwi_qp_is_quiet(&S[0].qp))
		return;
	struct ibv_sge sge[SGES + 2];
	struct ibv_send_wr wr;
	keep(&before, since);
	for (unsigned i = 0; i < n; i++) {
		random_wr(&wr, sge);
		wr.opcode = IBV_WR_RDMA_READ;
		wr.send_flags &= ~(unsigned)IBV_SEND_INLINE;
		wr.wr.rdma.remote_addr += 8 * chance(4);
		for (int k = 0; k < wr.num_sge; k++)
			sge[k].length = chance(2 * SHORT);
		rpwi_qp_post_send(&S[0].qp, &wr, NULL);
	}
	struct kept posted = before;
	before = (struct kept){0};
	keep(&before, since);
	got.n = 0;
	if (!rpwi_qp_read_alone(&S[0].qp))
		general(&got);
	else
		reads++;
	keep(&one, since);
	bring_back(&before);
	general(&want);
	keep(&other, since);
	same_packets(&want, &got);
	alike(&other, &one, since);
	bring_back(&posted);
	free(before.arena);
	free(before.res);
	free(before.ring);
	free(before.sges);
	before = posted;
}

static const uint8_t *read_some(
	struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, uint32_t len, void *into)
{
	bool may = rkey == KEY && addr % 32 != 24 && !into;
	return may ? (const uint8_t *)(uintptr_t)addr : NULL;
}

/* ---- random states ---- */

static void lose_one(void)
{
	if (wire_n)
		take_off(chance(wire_n));
}

static bool change_state(void)
{
	static const enum ibv_qp_state to[] = {IBV_QPS_SQD, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR};
	struct ibv_qp_attr a = {.qp_state = to[chance(RPWI_ARRAY_LEN(to))]};
	if (a.qp_state == IBV_QPS_ERR && chance(20))
		return true;
	rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE, NULL, now);
	return true;
}

static void step(void)
{
	switch (chance(12)) {
	case 0:
	case 1:
		emit_held(0, chance(2));
		break;
	case 2:
	case 3:
		emit_held(1, chance(2));
		break;
	case 4:
	case 5:
		flush_wire();
		break;
	case 6:
		if (!chance(3))
			lose_one();
		break;
	case 7:
		now += chance(30000);
		if (!chance(10))
			tick();
		break;
	case 8:
		post(1, chance(2) ? IBV_WR_SEND : IBV_WR_RDMA_READ, 5, AT, SHORT, RAT, SIG);
		break;
	case 9:
		if (rpwi_rq_count(&S[0].rq) < 8)
			post_recv(0, 6, AT, 64);
		break;
	case 10:
		if (S[1].qp.state != IBV_QPS_ERR && rpwi_rq_count(&S[1].rq) < 8)
			post_recv(1, 7, RAT + 4096, LEN_MAX);
		break;
	default:
		if (!chance(12))
			change_state();
	}
}

/* The word of reasons, where another field says the same. */
static void slow_is_as_the_state(const struct rpwi_qp *q)
{
	bool sends = q->type == IBV_QPT_RC && q->state == IBV_QPS_RTS;
	assert_int_equal(!(q->slow & RPWI_SLOW_STATE), sends);
	assert_int_equal(!(q->slow & RPWI_SLOW_RNR), q->rnr_deadline_ns == RPWI_NEVER);
}

/* New, or straight into one of the states before RTS. */
static void a_new_pair(void)
{
	struct config c = CONFIG(.send_wr = SQ, .sge = SGES, .inl = INL,
		.cwnd = 1 + chance(8 * RPWI_TXB_PKTS), .rd = chance(5), .recv_wr = 8,
		.timeout = chance(4) ? 14 : 0);
	static struct rpwi_qp_ops some;
	unsigned upto = chance(12);
	wire_n = 0;
	fate = NULL;
	for (int i = 0; i < 2; i++) {
		make(i, &c);
		if (i || upto)
			assert_int_equal(to_init(i, &c), 0);
		if (i || upto > 1)
			assert_int_equal(to_rtr(i, &c), 0);
		if (i || upto > 2)
			assert_int_equal(to_rts(i, &c), 0);
	}
	some = *S[0].qp.ops;
	some.peer_read = read_some;
	S[0].qp.ops = &some;
}

static void each_short_way_equals_the_general_one(void **unused)
{
	enum { STEPS = 1000000 };
	unsigned long steps = test_rounds(STEPS);
	rng.state = test_seed(1);
	now = 1000000;
	a_new_pair();
	for (unsigned long i = 0; i < steps; i++) {
		if (!chance(200) || S[0].nwc > WCS - 100 || S[1].nwc > WCS - 100 ||
			S[0].nevent > EVENTS - 10 || S[1].nevent > EVENTS - 10 ||
			wire_n > WIRE / 2 || (S[0].qp.state == IBV_QPS_ERR && !chance(20))) {
			unpair();
			a_new_pair();
		}
		states[S[0].qp.state]++;
		switch (chance(4)) {
		case 0:
			plain_beside_any();
			break;
		case 1:
			row_beside_each();
			break;
		case 2:
			reads_beside_turns();
			break;
		default:
			short_beside_batch();
		}
		step();
		slow_is_as_the_state(&S[0].qp);
		slow_is_as_the_state(&S[1].qp);
	}
	unpair();
	print_message(
		"# %lu short messages, %lu declined; %lu posts, %lu rows, %lu lists of READs; "
		"RESET %lu, INIT %lu, RTR %lu, RTS %lu, SQD %lu, ERR %lu\n",
		shorts, declined, posts, rows, reads, states[IBV_QPS_RESET], states[IBV_QPS_INIT],
		states[IBV_QPS_RTR], states[IBV_QPS_RTS], states[IBV_QPS_SQD], states[IBV_QPS_ERR]);
	if (steps < STEPS)
		return;
	assert_true(
		shorts > 10000 && declined > 10000 && posts > 10000 && rows > 1000 && reads > 1000);
	for (int s = IBV_QPS_RESET; s <= IBV_QPS_ERR; s++)
		assert_true(states[s] > 1000 || s == IBV_QPS_SQE); /* of UC and UD alone */
	/* two have tests of their own: a peer that is stopped, and what a fault script loses */
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(slow); i++)
		if (slow[i] < 100 && !((RPWI_SLOW_PEER | RPWI_SLOW_LOST) >> i & 1))
			fail_msg("RPWI_SLOW 1 << %u was met %lu times", i, slow[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_short_way_equals_the_general_one),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
