/* SPDX-License-Identifier: BSD-3-Clause */
/* Packet formats: every opcode there and back, every rule of decoding broken once. */
#include "lib/test.h"
#include "wire/packet.h"

/* Written down apart from packet.c's table, from IB table 38 and the header sizes of 9.3. */
static const struct {
	uint8_t opcode;
	uint16_t hdr_len;
	bool payload;
	const char *name;
} expected[] = {
	{0x00, 12, true, "RC SEND_FIRST"},
	{0x01, 12, true, "RC SEND_MIDDLE"},
	{0x02, 12, true, "RC SEND_LAST"},
	{0x03, 16, true, "RC SEND_LAST_IMM"},
	{0x04, 12, true, "RC SEND_ONLY"},
	{0x05, 16, true, "RC SEND_ONLY_IMM"},
	{0x06, 28, true, "RC WRITE_FIRST"},
	{0x07, 12, true, "RC WRITE_MIDDLE"},
	{0x08, 12, true, "RC WRITE_LAST"},
	{0x09, 16, true, "RC WRITE_LAST_IMM"},
	{0x0a, 28, true, "RC WRITE_ONLY"},
	{0x0b, 32, true, "RC WRITE_ONLY_IMM"},
	{0x0c, 28, false, "RC READ_REQ"},
	{0x0d, 16, true, "RC READ_RESP_FIRST"},
	{0x0e, 12, true, "RC READ_RESP_MIDDLE"},
	{0x0f, 16, true, "RC READ_RESP_LAST"},
	{0x10, 16, true, "RC READ_RESP_ONLY"},
	{0x11, 16, false, "RC ACK"},
	{0x12, 24, false, "RC ATOMIC_ACK"},
	{0x13, 40, false, "RC CMP_SWAP"},
	{0x14, 40, false, "RC FETCH_ADD"},
	{0x16, 16, true, "RC SEND_LAST_INV"},
	{0x17, 16, true, "RC SEND_ONLY_INV"},
	{0x1d, 28, true, "RC ATOMIC_WRITE"},
	{0x20, 12, true, "UC SEND_FIRST"},
	{0x21, 12, true, "UC SEND_MIDDLE"},
	{0x22, 12, true, "UC SEND_LAST"},
	{0x23, 16, true, "UC SEND_LAST_IMM"},
	{0x24, 12, true, "UC SEND_ONLY"},
	{0x25, 16, true, "UC SEND_ONLY_IMM"},
	{0x26, 28, true, "UC WRITE_FIRST"},
	{0x27, 12, true, "UC WRITE_MIDDLE"},
	{0x28, 12, true, "UC WRITE_LAST"},
	{0x29, 16, true, "UC WRITE_LAST_IMM"},
	{0x2a, 28, true, "UC WRITE_ONLY"},
	{0x2b, 32, true, "UC WRITE_ONLY_IMM"},
	{0x64, 20, true, "UD SEND_ONLY"},
	{0x65, 24, true, "UD SEND_ONLY_IMM"},
};

static int find(unsigned opcode)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(expected); i++)
		if (expected[i].opcode == opcode)
			return (int)i;
	return -1;
}

/* A packet with a different value in each field. */
static struct rpwi_pkt sample(uint8_t opcode, uint32_t payload_len)
{
	return (struct rpwi_pkt){
		.opcode = opcode,
		.pad = (uint8_t)(-payload_len & 3),
		.solicited = true,
		.ackreq = true,
		.becn = true,
		.pkey = 0x9abc,
		.dqpn = 0x123456,
		.psn = 0xfedcba,
		.va = 0x1122334455667788,
		.rkey = 0x99aabbcc,
		.dma_len = 0x0d0e0f10,
		.swap_add = 0x0102030405060708,
		.compare = 0xf1f2f3f4f5f6f7f8,
		.syndrome = 0x63,
		.msn = 0x0a0b0c,
		.atomic_orig = 0xa1a2a3a4a5a6a7a8,
		.imm_be = 0x44332211,
		.inv_rkey = 0x51525354,
		.qkey = 0x80010000,
		.sqpn = 0x00c0de,
		.payload_len = payload_len,
	};
}

static void check_fields(const struct rpwi_pkt *p, const struct rpwi_pkt *q)
{
	unsigned op = rpwi_pkt_op(p);
	assert_int_equal(q->opcode, p->opcode);
	assert_int_equal(q->pad, p->pad);
	assert_int_equal(q->solicited, p->solicited);
	assert_int_equal(q->ackreq, p->ackreq);
	assert_int_equal(q->fecn, p->fecn);
	assert_int_equal(q->becn, p->becn);
	assert_true(q->migreq);
	assert_int_equal(q->pkey, p->pkey);
	assert_int_equal(q->dqpn, p->dqpn);
	assert_int_equal(q->psn, p->psn);
	bool reth = rpwi_op_has(op, RPWI_F_RETH), atomic = rpwi_op_has(op, RPWI_F_ATOMICETH),
	     aeth = rpwi_op_has(op, RPWI_F_AETH);
	assert_true(q->va == (reth || atomic ? p->va : 0));
	assert_int_equal(q->rkey, reth || atomic ? p->rkey : 0);
	assert_int_equal(q->dma_len, reth ? p->dma_len : 0);
	assert_true(q->swap_add == (atomic ? p->swap_add : 0));
	assert_true(q->compare == (atomic ? p->compare : 0));
	assert_int_equal(q->syndrome, aeth ? p->syndrome : 0);
	assert_int_equal(q->msn, aeth ? p->msn : 0);
	assert_true(q->atomic_orig == (rpwi_op_has(op, RPWI_F_ATOMICACK) ? p->atomic_orig : 0));
	assert_int_equal(q->imm_be, rpwi_op_has(op, RPWI_F_IMM) ? p->imm_be : 0);
	assert_int_equal(q->inv_rkey, rpwi_op_has(op, RPWI_F_IETH) ? p->inv_rkey : 0);
	bool ud = rpwi_pkt_svc(p) == RPWI_SVC_UD;
	assert_int_equal(q->qkey, ud ? p->qkey : 0);
	assert_int_equal(q->sqpn, ud ? p->sqpn : 0);
}

static void every_opcode_round_trips(void **state)
{
	static const uint32_t lens[] = {0, 1, 2, 3, 4, 255, 256, 1024, 4095, 4096};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(expected); i++)
		for (unsigned l = 0; l < (expected[i].payload ? RPWI_ARRAY_LEN(lens) : 1); l++) {
			IN_CASE("bytes", lens[l]);
			uint8_t buf[RPWI_PACKET_MAX];
			struct rpwi_pkt p = sample(expected[i].opcode, lens[l]), q;
			size_t h = rpwi_pkt_encode(&p, buf),
			       n = h + lens[l] + p.pad + RPWI_ICRC_LEN;
			assert_int_equal(h, expected[i].hdr_len);
			for (size_t k = h; k < n; k++)
				buf[k] = (uint8_t)(k * 7 + i);
			assert_int_equal(rpwi_pkt_decode(buf, n, &q), RPWI_DECODE_OK);
			assert_int_equal(q.hdr_len, h);
			assert_int_equal(q.payload_len, lens[l]);
			assert_ptr_equal(q.payload, buf + h);
			check_fields(&p, &q);
			assert_int_equal(rpwi_pkt_peek_qpn(buf, n), 0x123456);
		}
}

static void bytes_are_where_the_specification_has_them(void **state)
{
	static const uint8_t write_only_imm[] = {0x0b, 0x80 | 0x40 | 0x10, 0x9a, 0xbc, 0x40, 0x12,
		0x34, 0x56, 0x80, 0xfe, 0xdc, 0xba, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
		0x99, 0xaa, 0xbb, 0xcc, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x22, 0x33, 0x44};
	static const uint8_t cmp_swap[] = {0x13, 0x80 | 0x40, 0x9a, 0xbc, 0x40, 0x12, 0x34, 0x56,
		0x80, 0xfe, 0xdc, 0xba, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa,
		0xbb, 0xcc, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0xf1, 0xf2, 0xf3, 0xf4,
		0xf5, 0xf6, 0xf7, 0xf8};
	static const uint8_t atomic_ack[] = {0x12, 0x80 | 0x40, 0x9a, 0xbc, 0x40, 0x12, 0x34, 0x56,
		0x80, 0xfe, 0xdc, 0xba, 0x63, 0x0a, 0x0b, 0x0c, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6,
		0xa7, 0xa8};
	static const uint8_t ud_imm[] = {0x65, 0x80 | 0x40, 0x9a, 0xbc, 0x40, 0x12, 0x34, 0x56,
		0x80, 0xfe, 0xdc, 0xba, 0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0xc0, 0xde, 0x11, 0x22,
		0x33, 0x44};
	static const struct {
		uint8_t opcode;
		uint32_t payload;
		const uint8_t *bytes;
		size_t len;
	} rows[] = {
		{0x0b, 7, write_only_imm, sizeof(write_only_imm)},
		{0x13, 0, cmp_swap, sizeof(cmp_swap)},
		{0x12, 0, atomic_ack, sizeof(atomic_ack)},
		{0x65, 0, ud_imm, sizeof(ud_imm)},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		IN_CASE("row", i);
		uint8_t buf[RPWI_HDR_MAX];
		struct rpwi_pkt p = sample(rows[i].opcode, rows[i].payload);
		assert_int_equal(rpwi_pkt_encode(&p, buf), rows[i].len);
		assert_memory_equal(buf, rows[i].bytes, rows[i].len);
	}
}

static void unknown_opcodes_are_refused_and_known_ones_named(void **state)
{
	for (unsigned op = 0; op < 256; op++) {
		uint8_t buf[128] = {(uint8_t)op, 0x40};
		struct rpwi_pkt q;
		int i = find(op),
		    rc = rpwi_pkt_decode(buf, i < 0 ? sizeof(buf) : expected[i].hdr_len + 4u, &q);
		assert_int_equal(rc, i < 0 ? RPWI_DECODE_OPCODE : RPWI_DECODE_OK);
		assert_string_equal(rpwi_opcode_name((uint8_t)op), i < 0 ? "?" : expected[i].name);
	}
}

/* Every shorter piece of a packet is refused, and nothing after its end is read (the piece is
 * malloc'ed to size, for ASan). */
static void truncated_packets_are_refused(void **state)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(expected); i++) {
		IN_CASE("row", i);
		uint8_t buf[RPWI_HDR_MAX + 8] = {0};
		struct rpwi_pkt p = sample(expected[i].opcode, 0), q;
		size_t h = rpwi_pkt_encode(&p, buf);
		for (size_t n = 0; n < h + RPWI_ICRC_LEN; n++) {
			uint8_t *piece = malloc(n ? n : 1);
			memcpy(piece, buf, n);
			assert_int_equal(rpwi_pkt_decode(piece, n, &q), RPWI_DECODE_SHORT);
			assert_int_equal(
				rpwi_pkt_peek_qpn(piece, n), n < RPWI_BTH_LEN ? -1 : 0x123456);
			free(piece);
		}
	}
}

static int decode_one(uint8_t opcode, uint8_t flags, size_t rest)
{
	static uint8_t buf[2 * RPWI_PACKET_MAX];
	struct rpwi_pkt q;
	memset(buf, 0, sizeof(buf));
	buf[0] = opcode;
	buf[1] = flags;
	return rpwi_pkt_decode(buf, expected[find(opcode)].hdr_len + rest + RPWI_ICRC_LEN, &q);
}

static void garbled_packets_are_refused(void **state)
{
	for (uint8_t v = 1; v < 16; v++)
		assert_int_equal(decode_one(0x04, v, 0), RPWI_DECODE_VERSION);
	/* pad without anything to pad */
	assert_int_equal(decode_one(0x04, 0x30, 0), RPWI_DECODE_PAD);
	assert_int_equal(decode_one(0x04, 0x10, 1), RPWI_DECODE_PAD); /* not a multiple of four */
	assert_int_equal(decode_one(0x04, 0x00, 5), RPWI_DECODE_PAD);
	assert_int_equal(decode_one(0x04, 0x30, 4), RPWI_DECODE_OK);
	assert_int_equal(decode_one(0x04, 0x00, 4096), RPWI_DECODE_OK);
	assert_int_equal(decode_one(0x04, 0x10, 4100), RPWI_DECODE_TOO_LONG);
	assert_int_equal(decode_one(0x04, 0x30, 4100), RPWI_DECODE_TOO_LONG);
	/* an ACK carries nothing */
	assert_int_equal(decode_one(0x11, 0x00, 4), RPWI_DECODE_TOO_LONG);
	assert_int_equal(decode_one(0x11, 0x20, 4), RPWI_DECODE_TOO_LONG);
	assert_int_equal(decode_one(0x0c, 0x00, 64), RPWI_DECODE_TOO_LONG);
}

/* Runs of packets that are alike, and each that is not, come out as if each were decoded alone. */
static void packets_like_the_last_one_decode_as_any(void **state)
{
	struct rpwi_alike last = {0};
	static uint8_t payload[RPWI_MTU_MAX];
	struct rng rng = {test_seed(1)};
	unsigned bad = 0, again = 0;

	for (unsigned n = 0; n < 200000; n++) {
		uint8_t hdr[RPWI_HDR_MAX], before[8];
		static struct rpwi_pkt p;
		static uint32_t len;
		size_t h;
		uint64_t random = rng_next(&rng);
		unsigned draw = (unsigned)(random >> 33);
		if (!(draw % 8)) {
			unsigned i = draw / 8 % RPWI_ARRAY_LEN(expected);
			len = expected[i].payload ? draw / 512 % 17 : 0;
			p = sample(expected[i].opcode, len);
			p.dqpn = draw / 4096 % 3 + 2;
			p.solicited = draw & 64;
			p.becn = draw & 128;
		}
		p.psn = draw & RPWI_PSN_MASK;
		p.ackreq = draw & 256;
		p.va = random;
		p.rkey = draw;
		p.imm_be = draw * 3;
		p.syndrome = (uint8_t)draw;
		p.msn = draw >> 8 & RPWI_PSN_MASK;
		h = rpwi_pkt_encode(&p, hdr);
		if (!(draw / 1024 % 10)) {
			hdr[draw % h] ^= (uint8_t)(draw >> 3); /* or what else may come */
			hdr[1] |= 0x40;                        /* M, as check_fields wants it */
			h -= draw / 64 % 8 == 1;
		}
		struct rpwi_pkt want, *got = &last.pkt;
		int rc = rpwi_pkt_decode_parts(hdr, h, payload, len, &want);
		memcpy(before, last.bth, sizeof(before));
		again += last.known && !memcmp(before, hdr, sizeof(before));
		assert_int_equal(rpwi_pkt_decode_next(hdr, h, payload, len, &last), rc);
		bad += rc != 0;
		if (rc)
			continue;
		check_fields(&want, got);
		assert_int_equal(got->hdr_len, want.hdr_len);
		assert_int_equal(got->payload_len, want.payload_len);
		assert_ptr_equal(got->payload, payload);
		assert_int_equal(got->more, 0);
		assert_int_equal(got->placed, 0);
		got->more = 3; /* as whoever takes it may have it */
		got->placed = true;
		got->payload_len *= 4;
	}
	assert_true(bad > 1000);
	assert_true(again > 100000);
}

static void psn_arithmetic_wraps(void **state)
{
	assert_int_equal(rpwi_psn_add(0xffffff, 1), 0);
	assert_int_equal(rpwi_psn_add(0xfffff0, 0x20), 0x10);
	assert_int_equal(rpwi_psn_diff(0, 0xffffff), 1);
	assert_int_equal(rpwi_psn_diff(0xffffff, 0), -1);
	assert_int_equal(rpwi_psn_diff(0x800000, 1), 0x7fffff);
	assert_int_equal(rpwi_psn_diff(0x800000, 0), -0x800000);
	assert_int_equal(rpwi_psn_diff(5, 5), 0);
}

static void syndromes_have_kinds(void **state)
{
	assert_int_equal(rpwi_aeth_kind(0x1f), RPWI_AETH_ACK);
	assert_int_equal(rpwi_aeth_kind(0x2c), RPWI_AETH_RNR_NAK);
	assert_int_equal(rpwi_aeth_kind(0x40), RPWI_AETH_RESERVED);
	assert_int_equal(rpwi_aeth_kind(0x60), RPWI_AETH_NAK);
	for (int i = 0; i < RPWI_NAK_COUNT; i++)
		assert_non_null(rpwi_nak_name[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_opcode_round_trips),
		cmocka_unit_test(bytes_are_where_the_specification_has_them),
		cmocka_unit_test(unknown_opcodes_are_refused_and_known_ones_named),
		cmocka_unit_test(truncated_packets_are_refused),
		cmocka_unit_test(garbled_packets_are_refused),
		cmocka_unit_test(packets_like_the_last_one_decode_as_any),
		cmocka_unit_test(psn_arithmetic_wraps),
		cmocka_unit_test(syndromes_have_kinds),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
