/* SPDX-License-Identifier: BSD-3-Clause */
/* One short message without a batch: the same packets as with one, and only where it is all that is
 * to be sent. */
#include "wire_pair.h"

enum { MOST = 8 };

/* What the lane would carry, onto the wire: the ACK that leads it, then itself. */
static void put_short(const struct rpwi_short *s)
{
	static const uint8_t ack_bth[8] = {
		RPWI_SVC_RC | RPWI_OP_ACK, 0x40, 0xff, 0xff, 0, 0, 0, QPN1};
	struct rpwi_txpkt *t = txb->pkt;
	txb->npkt = txb->niov = 0;
	if (s->led) {
		memcpy(t->hdr, ack_bth, sizeof(ack_bth));
		rpwi_put_be32(t->hdr + 8, s->ack_psn);
		memcpy(t->hdr + 12, s->aeth, 4);
		t->hdr_len = 16;
		t->payload_len = t->pad = t->iov_count = 0;
		put_on_wire(1, txb, txb->npkt++);
		t++;
	}
	memcpy(t->hdr, s->hdr, s->hdr_len);
	t->hdr_len = s->hdr_len;
	t->payload_len = s->len;
	t->pad = (uint8_t)(-s->len & 3);
	t->iov_first = 0;
	t->iov_count = s->len > 0;
	txb->iov[0] = (struct rpwi_iov){s->data, s->len};
	put_on_wire(1, txb, txb->npkt++);
}

/* Side 1 has sent something that is to be acknowledged. */
static void owe_an_ack(uint64_t id)
{
	post_recv(0, id, RAT, 64);
	assert_int_equal(post(1, IBV_WR_SEND, id, AT, 8, 0, SIG), 0);
	emit(1);
	flush_wire();
	assert_true(rpwi_qp_ack_owed(&S[0].qp));
	assert_true(rpwi_qp_rests(&S[0].qp, now));
}

struct message {
	enum ibv_wr_opcode op;
	uint32_t len;
	unsigned flags;
	bool led;
};

/* Sends it, by a batch or without; what went is copied. */
static void send_it(const struct message *m, bool by_batch, struct wpkt went[2])
{
	unsigned n = 1u + m->led;

	pair(CONFIG());
	for (int r = 0; r < 2; r++)
		post_recv(1, 100, RAT, 64);
	if (m->led)
		owe_an_ack(7);
	assert_int_equal(post(0, m->op, 9, AT, m->len, RAT, m->flags), 0);
	assert_false(rpwi_qp_rests(&S[0].qp, now));
	if (by_batch) {
		emit(0);
	} else {
		struct rpwi_short s;
		assert_true(rpwi_qp_tx_short(&S[0].qp, &s, MOST, now));
		put_short(&s);
		assert_false(rpwi_qp_tx_ready(&S[0].qp, false, now));
	}
	assert_int_equal(wire_n, n);
	memcpy(went, wire, n * sizeof(*went));
	settle();
	bool send = m->op != IBV_WR_RDMA_WRITE && m->op != IBV_WR_RDMA_WRITE_WITH_IMM;
	expect_wc(0, m->led, 9, IBV_WC_SUCCESS, send ? IBV_WC_SEND : IBV_WC_RDMA_WRITE);
	same(AT, RAT, m->len);
	unpair();
}

static void alike(const struct message *m)
{
	struct wpkt want[2], got[2];

	send_it(m, true, want);
	send_it(m, false, got);
	for (int k = 0; k <= m->led; k++) {
		assert_int_equal(want[k].len, got[k].len);
		assert_memory_equal(want[k].raw, got[k].raw, want[k].len);
	}
}

static void the_packets_are_those_of_a_batch(void **state)
{
	static const enum ibv_wr_opcode op[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};
	static const unsigned flags[] = {SIG, SIG | IBV_SEND_INLINE, SIG | IBV_SEND_SOLICITED};

	for (unsigned o = 0; o < RPWI_ARRAY_LEN(op); o++)
		for (uint32_t len = 0; len <= MOST; len++)
			for (unsigned f = 0; f < RPWI_ARRAY_LEN(flags); f++) {
				alike(&(struct message){op[o], len, flags[f], false});
				alike(&(struct message){op[o], len, flags[f], true});
			}
}

/* Not by this way, and nothing has changed: a batch sends it. */
static void refused(void)
{
	struct rpwi_short s;
	assert_false(rpwi_qp_tx_short(&S[0].qp, &s, MOST, now));
}

static void what_is_not_alone_or_not_short_is_left(void **state)
{
	pair(CONFIG());
	refused(); /* nothing posted */
	post(0, IBV_WR_RDMA_WRITE, 1, AT, MOST + 1, RAT, SIG);
	refused();
	settle();
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 8, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 8, RAT, SIG);
	refused();
	settle();
	post(0, IBV_WR_RDMA_READ, 4, AT, 8, RAT, SIG);
	refused();
	settle();
	post(0, IBV_WR_RDMA_WRITE, 5, AT, 8, RAT, SIG | IBV_SEND_FENCE);
	refused();
	settle();
	post_atomic(0, false, 6, AT, RAT, 1, 0);
	refused();
	settle();
	assert_int_equal(S[0].nwc, 6);
	for (unsigned k = 0; k < 6; k++)
		assert_int_equal(S[0].wc[k].status, IBV_WC_SUCCESS);
	unpair();

	/* the window is used up */
	pair(CONFIG(.cwnd = 1));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 8, RAT, SIG);
	emit(0);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 8, RAT, SIG);
	assert_true(rpwi_qp_blocked(&S[0].qp));
	refused();
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();

	/* a NAK is owed */
	pair(CONFIG());
	assert_int_equal(post(1, IBV_WR_SEND, 1, AT, 8, 0, SIG), 0);
	emit(1);
	flush_wire();
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 8, RAT, SIG);
	refused();
	unpair();

	/* or an answer */
	pair(CONFIG());
	assert_int_equal(post(1, IBV_WR_RDMA_READ, 1, AT, 8, RAT, SIG), 0);
	emit(1);
	flush_wire();
	assert_false(rpwi_qp_rests(&S[0].qp, now));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 8, RAT, SIG);
	refused();
	settle();
	expect_wc(1, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	unpair();

	pair(CONFIG(.type = IBV_QPT_UC));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 8, RAT, SIG);
	refused();
	assert_false(rpwi_qp_rests(&S[0].qp, now));
	settle();
	unpair();
}

static void memory_that_is_not_the_programs_fails_as_with_a_batch(void **state)
{
	struct rpwi_short s;
	struct ibv_sge sge = {.addr = (uintptr_t)S[0].mem, .length = 8, .lkey = KEY_BAD};
	struct ibv_send_wr wr = {.wr_id = 1,
		.opcode = IBV_WR_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = SIG};

	pair(CONFIG());
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	refused();
	settle();
	expect_wc(0, 0, 1, IBV_WC_LOC_PROT_ERR, 0);
	unpair();

	/* it is gone when it is copied: the ACK goes alone */
	pair(CONFIG());
	owe_an_ack(7);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 8, RAT, SIG);
	assert_true(rpwi_qp_tx_short(&S[0].qp, &s, MOST, now));
	assert_true(s.led);
	assert_false(rpwi_qp_ack_owed(&S[0].qp));
	rpwi_txb_reset(txb);
	rpwi_qp_tx_short_fault(&S[0].qp, &s, txb);
	assert_int_equal(txb->npkt, 1);
	put_on_wire(1, txb, 0);
	assert_int_equal(decoded(wire).psn, s.ack_psn);
	flush_wire();
	expect_wc(1, 0, 7, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect_wc(0, 1, 2, IBV_WC_LOC_PROT_ERR, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].cc.inflight, 0);
	unpair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_packets_are_those_of_a_batch),
		cmocka_unit_test(what_is_not_alone_or_not_short_is_left),
		cmocka_unit_test(memory_that_is_not_the_programs_fails_as_with_a_batch),
	};
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
