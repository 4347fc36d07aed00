/* SPDX-License-Identifier: BSD-3-Clause */
/* The ICRC: against packets made by another program, against a bitwise CRC written here, and the
 * recovery of the IPv4 ID. */
#include "bitwise.h"
#include "lib/test.h"
#include "wire/icrc.h"

/* Whole IPv4 packets built by Scapy 2.5 (scapy.contrib.roce), which computes the ICRC on its
 * own. */
static const char *const scapy_packets[] = {
	/* ACK, IP ID 0x1234, TOS 2, TTL 64 */
	"45020030123440004011a733c0a80001c0a80002c00012b7001c00001140ffff00000011000002221f000005eb"
	"4374bc",
	/* SEND ONLY of 13 bytes with a pad of 3, IP ID 0, TTL 1 */
	"4500003c00004000011161a90a0102030a010204c12312b7002800000470ffff00abcdef80fffffe0102030405"
	"060708090a0b0c0d000000d97a34a5",
	/* READ REQUEST with BECN set, IP ID 0xfffe, TTL 7 */
	"4500003cfffe400007115baa0a0102030a010204c12312b7002800000c40ffff40abcdef80fffffe0011223344"
	"556677cafe123400001000013ee738",
};

struct parsed {
	struct rpwi_flow flow;
	uint16_t ip_id;
	uint8_t data[128];
	size_t len;
};

static struct parsed parse(const char *hex)
{
	struct parsed p = {.flow = {.src = {.family = 4}, .dst = {.family = 4}}};
	uint8_t raw[160];
	size_t n = strlen(hex) / 2;
	for (size_t i = 0; i < n; i++) {
		unsigned v;
		assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
		raw[i] = (uint8_t)v;
	}
	memcpy(p.flow.src.bytes, raw + 12, 4);
	memcpy(p.flow.dst.bytes, raw + 16, 4);
	p.ip_id = rpwi_get_be16(raw + 4);
	p.flow.sport = rpwi_get_be16(raw + 20);
	p.flow.dport = rpwi_get_be16(raw + 22);
	p.len = n - 28;
	memcpy(p.data, raw + 28, p.len);
	return p;
}

/* An ICRC that shares nothing with icrc.c: the pseudo header laid out flat, a CRC of one bit at a
 * time. */
static uint32_t reference_icrc(
	const struct rpwi_flow *f, uint16_t id, const uint8_t *data, size_t len)
{
	uint8_t h[8 + 40 + 8], bth[12];
	size_t n = 8;
	unsigned udp = (unsigned)(8 + len);
	memset(h, 0xff, sizeof(h)); /* all that is not set below counts as ones */
	if (f->src.family == 4) {
		h[8] = 0x45;
		h[10] = (uint8_t)((udp + 20) >> 8), h[11] = (uint8_t)(udp + 20);
		h[12] = (uint8_t)(id >> 8), h[13] = (uint8_t)id;
		h[14] = 0x40, h[15] = 0;
		h[17] = 17;
		memcpy(h + 20, f->src.bytes, 4);
		memcpy(h + 24, f->dst.bytes, 4);
		n += 20;
	} else {
		h[8] = 0x6f;
		h[12] = (uint8_t)(udp >> 8), h[13] = (uint8_t)udp;
		h[14] = 17;
		memcpy(h + 16, f->src.bytes, 16);
		memcpy(h + 32, f->dst.bytes, 16);
		n += 40;
	}
	h[n] = (uint8_t)(f->sport >> 8), h[n + 1] = (uint8_t)f->sport;
	h[n + 2] = (uint8_t)(f->dport >> 8), h[n + 3] = (uint8_t)f->dport;
	h[n + 4] = (uint8_t)(udp >> 8), h[n + 5] = (uint8_t)udp;
	memcpy(bth, data, 12);
	bth[4] = 0xff;
	uint32_t s = bitwise_crc(0xffffffff, h, n + 8);
	s = bitwise_crc(s, bth, 12);
	return ~bitwise_crc(s, data + 12, len - 16);
}

static struct rng rng = {1};
static uint32_t rnd(void) { return (uint32_t)rng_next(&rng); }

static struct rpwi_flow random_flow(int family)
{
	struct rpwi_flow f = {.src = {.family = (uint8_t)family},
		.dst = {.family = (uint8_t)family},
		.sport = (uint16_t)rnd(),
		.dport = 4791};
	for (int i = 0; i < (family == 4 ? 4 : 16); i++)
		f.src.bytes[i] = (uint8_t)rnd(), f.dst.bytes[i] = (uint8_t)rnd();
	return f;
}

static void state_after_the_lrh_is_as_known(void **state)
{
	uint8_t ones[8];
	memset(ones, 0xff, 8);
	assert_int_equal(bitwise_crc(0xffffffff, ones, 8), 0xdebb20e3);
}

static void agrees_with_scapy(void **state)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(scapy_packets); i++) {
		IN_CASE("row", i);
		struct parsed p = parse(scapy_packets[i]);
		struct rpwi_iov part = {p.data + 12, p.len - 16};
		assert_int_equal(rpwi_icrc(&p.flow, p.ip_id, p.data, 12, &part, 1, 0),
			rpwi_get_le32(p.data + p.len - 4));
		assert_int_equal(reference_icrc(&p.flow, p.ip_id, p.data, p.len),
			rpwi_get_le32(p.data + p.len - 4));
		uint16_t id = p.ip_id;
		assert_int_equal(rpwi_icrc_check(&p.flow, p.data, p.len, &id), RPWI_ICRC_OK);
		assert_int_equal(id, p.ip_id);
		id = (uint16_t)~p.ip_id;
		assert_int_equal(rpwi_icrc_check(&p.flow, p.data, p.len, &id), RPWI_ICRC_OK_ID);
		assert_int_equal(id, p.ip_id);
	}
}

/* However a payload is cut into pieces, and whatever its length and pad. */
static void agrees_with_the_reference_in_pieces(void **state)
{
	for (int round = 0; round < 3000; round++) {
		IN_CASE("round", round);
		uint8_t data[RPWI_PACKET_MAX];
		struct rpwi_flow f = random_flow(round & 1 ? 4 : 6);
		uint16_t id = (uint16_t)rnd();
		size_t hdr = 12 + 4 * (rnd() % 8), pay = rnd() % 4097, pad = -pay & 3,
		       len = hdr + pay + pad + 4, at = 0;
		unsigned n = 0;
		struct rpwi_iov parts[4];
		for (size_t i = 0; i < len; i++)
			data[i] = (uint8_t)rnd();
		memset(data + hdr + pay, 0, pad);
		for (; n < 3; n++) {
			size_t k = rnd() % (pay - at + 1);
			parts[n] = (struct rpwi_iov){data + hdr + at, k};
			at += k;
		}
		parts[n++] = (struct rpwi_iov){data + hdr + at, pay - at};
		assert_int_equal(rpwi_icrc(&f, id, data, hdr, parts, n, (unsigned)pad),
			reference_icrc(&f, id, data, len));
	}
}

static void put_reference(const struct rpwi_flow *f, uint16_t id, uint8_t *data, size_t len)
{
	rpwi_put_le32(data + len - 4, reference_icrc(f, id, data, len));
}

/* Whatever came before in the run: other lengths, opcodes, flags, P_Keys, any ID, any resv8a. */
static void a_run_is_one_packet_after_the_other(void **state)
{
	enum { LENGTHS = 4 };
	for (int family = 4; family <= 6; family += 2) {
		struct rpwi_flow f = random_flow(family);
		struct rpwi_icrc_run run = {.flow = &f};
		uint8_t data[RPWI_PACKET_MAX];
		size_t lengths[LENGTHS];
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)rnd();
		for (size_t i = 0; i < LENGTHS; i++)
			lengths[i] = 12 + 4 * (rnd() % (i % 2 ? 30 : 1000));
		for (int round = 0; round < 20000; round++) {
			IN_CASE("round", round);
			size_t len = lengths[rnd() % LENGTHS], at = rnd() % (len - 12 + 1),
			       hdr = RPWI_MIN(12 + at, (size_t)RPWI_HDR_MAX);
			uint16_t id = (uint16_t)(rnd() % 2 ? rnd() % 64 : rnd()), came = id;
			rpwi_put_le32(data + 8, rnd());
			if (rnd() % 4 == 0)
				data[rnd() % 5] = (uint8_t)rnd();
			uint32_t want = reference_icrc(&f, id, data, len + 4);
			struct rpwi_iov parts[] = {{data + hdr, (len - hdr) / 2},
				{data + hdr + (len - hdr) / 2, len - hdr - (len - hdr) / 2}};
			assert_int_equal(rpwi_icrc_next(&run, id, data, hdr, parts, 2, 0), want);
			assert_int_equal(rpwi_icrc_next_whole(&run, id, data, len), want);
			rpwi_put_le32(data + len, want);
			assert_int_equal(
				rpwi_icrc_check_next(&run, data, len + 4, &came), RPWI_ICRC_OK);
			data[len + rnd() % 4] ^= (uint8_t)(1 + rnd() % 255);
			assert_int_equal(rpwi_icrc_check_next(&run, data, len + 4, &came),
				rpwi_icrc_check(&f, data, len + 4, &id));
			assert_int_equal(came, id);
		}
	}
}

static void recovers_the_id_at_every_length(void **state)
{
	static uint8_t data[RPWI_PACKET_MAX + 64];
	struct rpwi_flow f = random_flow(4);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rnd();
	for (size_t len = 16; len <= RPWI_PACKET_MAX; len += 4) {
		IN_CASE("len", len);
		uint16_t want = (uint16_t)rnd(), id = (uint16_t)rnd();
		enum rpwi_icrc_verdict v = want == id ? RPWI_ICRC_OK : RPWI_ICRC_OK_ID;
		put_reference(&f, want, data, len);
		assert_int_equal(rpwi_icrc_check(&f, data, len, &id), v);
		assert_int_equal(id, want);
		assert_int_equal(rpwi_icrc_check(&f, data, len, &id), RPWI_ICRC_OK);
	}
}

static void recovers_every_id(void **state)
{
	uint8_t data[64];
	struct rpwi_flow f = random_flow(4);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rnd();
	for (unsigned want = 0; want < 65536; want += 1 + want % 5) {
		uint16_t id = 0;
		put_reference(&f, (uint16_t)want, data, sizeof(data));
		assert_int_equal(rpwi_icrc_check(&f, data, sizeof(data), &id),
			want ? RPWI_ICRC_OK_ID : RPWI_ICRC_OK);
		assert_int_equal(id, want);
	}
}

/* No single flipped bit of this packet looks like another ID. (Errors at large do, once in 65,536:
 * the 16 bits of strength that are left.) */
static void flipped_bits_are_bad(void **state)
{
	uint8_t data[300];
	for (int family = 4; family <= 6; family += 2) {
		struct rpwi_flow f = random_flow(family);
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)rnd();
		put_reference(&f, 77, data, sizeof(data));
		for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
			uint16_t id = 77;
			if (bit / 8 == 4) /* resv8a is not covered */
				continue;
			data[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(
				rpwi_icrc_check(&f, data, sizeof(data), &id), RPWI_ICRC_BAD);
			assert_int_equal(id, 77);
			data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		uint16_t id = 77;
		assert_int_equal(rpwi_icrc_check(&f, data, sizeof(data), &id), RPWI_ICRC_OK);
	}
}

static void random_garbage_is_nearly_always_bad(void **state)
{
	uint8_t data[100];
	struct rpwi_flow f = random_flow(4);
	int passed = 0;
	for (int round = 0; round < 200000; round++) {
		uint16_t id = 0;
		for (size_t i = 0; i < sizeof(data); i += 4)
			rpwi_put_le32(data + i, rnd());
		passed += rpwi_icrc_check(&f, data, sizeof(data), &id) != RPWI_ICRC_BAD;
	}
	/* 3 expected; the numbers are seeded, so this is a fact, not chance */
	assert_in_range(passed, 0, 15);
}

static void another_flow_is_bad(void **state)
{
	struct parsed p = parse(scapy_packets[0]);
	uint16_t id = p.ip_id;
	p.flow.sport ^= 1;
	assert_int_equal(rpwi_icrc_check(&p.flow, p.data, p.len, &id), RPWI_ICRC_BAD);
	p.flow.sport ^= 1;
	p.flow.src.bytes[3] ^= 0x80;
	assert_int_equal(rpwi_icrc_check(&p.flow, p.data, p.len, &id), RPWI_ICRC_BAD);
	p.flow.src.bytes[3] ^= 0x80;
	assert_int_equal(rpwi_icrc_check(&p.flow, p.data, 12, &id), RPWI_ICRC_BAD);
	assert_int_equal(rpwi_icrc_check(&p.flow, p.data, p.len, &id), RPWI_ICRC_OK);
}

/* As behind a NAT: what was changed is found, of every length, in packets that are right
 * otherwise. */
static void what_a_nat_changed_is_solved_for(void **state)
{
	uint8_t data[RPWI_PACKET_MAX];
	for (size_t len = RPWI_BTH_LEN + RPWI_ICRC_LEN; len <= sizeof(data); len += 52) {
		IN_CASE("len", len);
		struct rpwi_flow sent = {.src = {.family = 4, .bytes = {192, 168, 7, (uint8_t)len}},
			.dst = {.family = 4, .bytes = {10, 77, (uint8_t)(len >> 8), 2}},
			.sport = (uint16_t)(0xc000 + len),
			.dport = RPWI_UDP_PORT};
		struct rpwi_addr a;
		uint16_t port;
		for (size_t i = 0; i < len; i++)
			data[i] = (uint8_t)rnd();
		struct rpwi_iov body = {data + RPWI_BTH_LEN, len - RPWI_BTH_LEN - RPWI_ICRC_LEN};
		rpwi_put_le32(data + len - RPWI_ICRC_LEN,
			rpwi_icrc(&sent, 3, data, RPWI_BTH_LEN, &body, 1, 0));
		struct rpwi_flow came = sent;
		came.sport = 2345;
		assert_true(rpwi_icrc_solve_port(&came, data, len, 3, &port));
		assert_int_equal(port, sent.sport);
		came = sent;
		memcpy(came.src.bytes, (const uint8_t[]){203, 0, 113, 9}, 4);
		assert_true(rpwi_icrc_solve_addr(&came, data, len, 3, false, &a));
		assert_true(rpwi_addr_eq(&a, &sent.src));
		came = sent;
		memcpy(came.dst.bytes, (const uint8_t[]){172, 16, 0, 1}, 4);
		assert_true(rpwi_icrc_solve_addr(&came, data, len, 3, true, &a));
		assert_true(rpwi_addr_eq(&a, &sent.dst));
		assert_false(rpwi_icrc_solve_addr(&came, data, 8, 3, true, &a));
	}
}

/* IPv6: the port alone can be solved for. Random damage fits one as seldom as chance has it. */
static void random_damage_seldom_fits_a_port(void **state)
{
	enum { TRIES = 200000, EXPECTED = TRIES >> 16 };
	uint8_t data[100];
	struct rpwi_flow f = {.src = {.family = 6}, .dst = {.family = 6}, .sport = 1};
	struct rpwi_addr a;
	uint16_t port;
	int n = 0;
	for (int i = 0; i < TRIES; i++) {
		for (size_t k = 0; k < sizeof(data); k++)
			data[k] = (uint8_t)rnd();
		n += rpwi_icrc_solve_port(&f, data, sizeof(data), 0, &port);
	}
	assert_in_range(n, 0, EXPECTED * 5);
	assert_false(rpwi_icrc_solve_addr(&f, data, sizeof(data), 0, false, &a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_nat_changed_is_solved_for),
		cmocka_unit_test(random_damage_seldom_fits_a_port),
		cmocka_unit_test(state_after_the_lrh_is_as_known),
		cmocka_unit_test(agrees_with_scapy),
		cmocka_unit_test(agrees_with_the_reference_in_pieces),
		cmocka_unit_test(a_run_is_one_packet_after_the_other),
		cmocka_unit_test(recovers_the_id_at_every_length),
		cmocka_unit_test(recovers_every_id),
		cmocka_unit_test(flipped_bits_are_bad),
		cmocka_unit_test(random_garbage_is_nearly_always_bad),
		cmocka_unit_test(another_flow_is_bad),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
