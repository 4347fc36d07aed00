/* SPDX-License-Identifier: BSD-3-Clause */
/* icrc.c - see icrc.h. Owns the pseudo header that the ICRC covers and the algebra that recovers an
 * IPv4 ID. */
#include "wire/icrc.h"

#include "base/copy.h"
#include "wire/crc32.h"

enum {
	IPV4_LEN = 20,
	IPV4_ID = 4,
	IPV6_LEN = 40,
	UDP_LEN = 8,
	PROTO_UDP = 17,
	IPV4_DF = 0x4000,
	/* behind the headers, to be covered by the same call: a call takes 15 to 20 ns, even for a
	 * byte */
	SHORT_BYTES = 64,
	BTH_RESV8A = 4,
	PSEUDO_MAX = IPV6_LEN + UDP_LEN,
};

/* zlib's CRC-32 of 8 bytes 0xff, which stand for the LRH of InfiniBand (A17.3.3): its raw state is
 * 0xdebb20e3, its value the complement. All ways take and give values, so a run continues
 * with what the last one returned. */
static const uint32_t CRC_OF_LRH = ~0xdebb20e3u;

static size_t put_ipv4(uint8_t *b, const struct rpwi_flow *flow, size_t udp_len)
{
	b[0] = 0x45;
	b[1] = 0xff;
	rpwi_put_be16(b + 2, (uint16_t)(IPV4_LEN + udp_len));
	rpwi_put_be16(b + IPV4_ID, 0);
	rpwi_put_be16(b + 6, IPV4_DF);
	b[8] = 0xff;
	b[9] = PROTO_UDP;
	rpwi_put_be16(b + 10, 0xffff);
	memcpy(b + 12, flow->src.bytes, 4);
	memcpy(b + 16, flow->dst.bytes, 4);
	return IPV4_LEN;
}

static size_t put_ipv6(uint8_t *b, const struct rpwi_flow *flow, size_t udp_len)
{
	rpwi_put_be32(b, 0x6fffffff);
	rpwi_put_be16(b + 4, (uint16_t)udp_len);
	b[6] = PROTO_UDP;
	b[7] = 0xff;
	memcpy(b + 8, flow->src.bytes, 16);
	memcpy(b + 24, flow->dst.bytes, 16);
	return IPV6_LEN;
}

/* What each bit of the IPv4 ID adds to the CRC before the BTH: a constant, whatever the other bits
 * are, since a CRC is linear. */
static const uint32_t id_bit[16] = {0x9b73ead4, 0xed96d3e9, 0x005ca193, 0x00b94326, 0x0172864c,
	0x02e50c98, 0x05ca1930, 0x0b943260, 0x81256527, 0xd93bcc0f, 0x69069e5f, 0xd20d3cbe,
	0x7f6b7f3d, 0xfed6fe7a, 0x26dcfab5, 0x4db9f56a};
/* What has to be added there to cover, later, another bit of resv8a than the packet has. */
static const uint32_t resv_bit[8] = {0xdb710641, 0x6d930ac3, 0xdb261586, 0x6d3d2d4d, 0xda7a5a9a,
	0x6f85b375, 0xdf0b66ea, 0x6567cb95};

static uint32_t sum_of(const uint32_t *of_bit, unsigned bits)
{
	uint32_t sum = 0;
	for (; bits; bits &= bits - 1)
		sum ^= of_bit[__builtin_ctz(bits)];
	return sum;
}

/* IP and UDP as the ICRC sees them, with ID 0, and so that a resv8a of 0 counts as ones. */
static uint32_t crc_of_beginning(const struct rpwi_flow *flow, size_t len)
{
	uint8_t b[PSEUDO_MAX];
	size_t udp_len = UDP_LEN + len;
	size_t n = flow->src.family == 6 ? put_ipv6(b, flow, udp_len) : put_ipv4(b, flow, udp_len);
	rpwi_put_be16(b + n, flow->sport);
	rpwi_put_be16(b + n + 2, flow->dport);
	rpwi_put_be16(b + n + 4, (uint16_t)udp_len);
	rpwi_put_be16(b + n + 6, 0xffff);
	return rpwi_crc32(CRC_OF_LRH, b, n + UDP_LEN) ^ sum_of(resv_bit, 0xff);
}

/* The CRC to begin with at the BTH of a packet with so many bytes of UDP payload. */
static uint32_t begin(
	struct rpwi_icrc_run *run, uint16_t ip_id, const uint8_t *bth, size_t payload_len)
{
	if (RPWI_UNLIKELY(run->len != payload_len)) {
		run->crc = crc_of_beginning(run->flow, payload_len);
		run->len = payload_len;
	}
	uint32_t crc = run->crc ^ sum_of(resv_bit, bth[BTH_RESV8A]);
	return run->flow->src.family == 4 ? crc ^ sum_of(id_bit, ip_id) : crc;
}

uint32_t rpwi_icrc_next_whole(
	struct rpwi_icrc_run *run, uint16_t ip_id, const uint8_t *data, size_t len)
{
	return rpwi_crc32(begin(run, ip_id, data, len + RPWI_ICRC_LEN), data, len);
}

uint32_t rpwi_icrc_next(struct rpwi_icrc_run *run, uint16_t ip_id, const uint8_t *hdr,
	size_t hdr_len, const struct rpwi_iov *parts, unsigned nparts, unsigned pad)
{
	static const uint8_t zero[4];
	size_t len = hdr_len + pad;
	assert(hdr_len >= RPWI_BTH_LEN && hdr_len <= RPWI_HDR_MAX && pad < 4);
	for (unsigned i = 0; i < nparts; i++)
		len += parts[i].len;
	if (len <= hdr_len + SHORT_BYTES) {
		uint8_t b[RPWI_HDR_MAX + SHORT_BYTES];
		size_t n = hdr_len;
		rpwi_copy_small(b, hdr, hdr_len);
		for (unsigned i = 0; i < nparts; n += parts[i++].len)
			rpwi_copy_small(b + n, parts[i].base, parts[i].len);
		for (; n < len; n++)
			b[n] = 0;
		return rpwi_icrc_next_whole(run, ip_id, b, len);
	}
	uint32_t crc = begin(run, ip_id, hdr, len + RPWI_ICRC_LEN);
	crc = rpwi_crc32(crc, hdr, hdr_len);
	for (unsigned i = 0; i < nparts; i++)
		if (parts[i].len)
			crc = rpwi_crc32(crc, parts[i].base, parts[i].len);
	return pad ? rpwi_crc32(crc, zero, pad) : crc;
}

uint32_t rpwi_icrc(const struct rpwi_flow *flow, uint16_t ip_id, const uint8_t *hdr, size_t hdr_len,
	const struct rpwi_iov *parts, unsigned nparts, unsigned pad)
{
	struct rpwi_icrc_run run = {.flow = flow};
	return rpwi_icrc_next(&run, ip_id, hdr, hdr_len, parts, nparts, pad);
}

/* Polynomials modulo P = 0x104c11db7 over GF(2), bit-reversed as the CRC has them: bit 31 is x^0,
 * bit 0 is x^31. */
static const uint32_t POLY_REFLECTED = 0xedb88320;
static const uint32_t POLY_ONE = 0x80000000u;

static uint32_t poly_mul(uint32_t a, uint32_t b)
{
	uint32_t r = 0;
	for (int i = 31; i >= 0; i--) {
		r ^= b & -(a >> i & 1);
		b = b >> 1 ^ (POLY_REFLECTED & -(b & 1)); /* b times x */
	}
	return r;
}

/* x^(-8n): the factor that takes n zero bytes off the end of a CRC. The constant term of P is 1, so
 * x has an inverse. */
static uint32_t poly_unshift_bytes(size_t n)
{
	/* x^-1 = (P - 1) / x; reflected: a step of the CRC backwards from POLY_ONE. */
	uint32_t base = POLY_ONE, r = POLY_ONE;
	for (int i = 0; i < 8; i++)
		base = base & 0x80000000u ? (base ^ POLY_REFLECTED) << 1 | 1 : base << 1;
	for (; n; n >>= 1, base = poly_mul(base, base))
		if (n & 1)
			r = poly_mul(r, base);
	return r;
}

enum { SLOTS = 8 };
/* A flow has few packet lengths; a multiplier costs a dozen multiplications. */
static __thread struct {
	size_t n;
	uint32_t mul;
} cache[SLOTS] __attribute__((tls_model("initial-exec")));

static uint32_t unshift_cached(size_t n)
{
	unsigned slot = (unsigned)(n >> 2) % SLOTS; /* lengths are multiples of four */
	if (cache[slot].n != n) {
		cache[slot].mul = poly_unshift_bytes(n);
		cache[slot].n = n;
	}
	return cache[slot].mul;
}

/* Is `diff`, of the CRC received and the CRC computed, one that another ID makes? The CRC of two
 * bytes d0 d1 and n zero bytes after them, from state 0, is the state d0 | d1 << 8 shifted by n + 2
 * bytes; so shift back, and the rest must be those two bytes. */
static bool id_from_diff(uint32_t diff, size_t bytes_after_id, uint16_t *id_diff)
{
	uint32_t s = poly_mul(diff, unshift_cached(bytes_after_id + 2));
	*id_diff = __builtin_bswap16((uint16_t)s);
	return s <= UINT16_MAX;
}

/* Of the CRC computed and the one received, of a packet of a length that there may be. */
static uint32_t diff_next(
	struct rpwi_icrc_run *run, const uint8_t *data, size_t len, uint16_t ip_id)
{
	size_t body = len - RPWI_ICRC_LEN;
	return rpwi_icrc_next_whole(run, ip_id, data, body) ^ rpwi_get_le32(data + body);
}

static uint32_t diff_of(
	const struct rpwi_flow *flow, const uint8_t *data, size_t len, uint16_t ip_id)
{
	struct rpwi_icrc_run run = {.flow = flow};
	return diff_next(&run, data, len, ip_id);
}

static bool may_have_icrc(size_t len)
{
	return len >= RPWI_BTH_LEN + RPWI_ICRC_LEN && len <= UINT16_MAX - IPV4_LEN - UDP_LEN;
}

enum rpwi_icrc_verdict rpwi_icrc_check_next(
	struct rpwi_icrc_run *run, const uint8_t *data, size_t len, uint16_t *ip_id)
{
	uint16_t id_diff;
	if (!may_have_icrc(len))
		return RPWI_ICRC_BAD;
	uint32_t diff = diff_next(run, data, len, *ip_id);
	if (RPWI_LIKELY(!diff))
		return RPWI_ICRC_OK;
	if (run->flow->src.family == 6)
		return RPWI_ICRC_BAD;
	if (!id_from_diff(diff, IPV4_LEN - IPV4_ID - 2 + UDP_LEN + len - RPWI_ICRC_LEN, &id_diff))
		return RPWI_ICRC_BAD;
	*ip_id ^= id_diff;
	return RPWI_ICRC_OK_ID;
}

enum rpwi_icrc_verdict rpwi_icrc_check(
	const struct rpwi_flow *flow, const uint8_t *data, size_t len, uint16_t *ip_id)
{
	struct rpwi_icrc_run run = {.flow = flow};
	return rpwi_icrc_check_next(&run, data, len, ip_id);
}

/* As id_from_diff, for a field of up to four bytes: the difference that it has to have, its first
 * byte lowest. `after` bytes follow the field. */
static uint32_t field_diff(uint32_t diff, size_t after, unsigned width)
{
	return poly_mul(diff, poly_unshift_bytes(after + width));
}

bool rpwi_icrc_is_one_bit(
	const struct rpwi_flow *flow, const uint8_t *data, size_t len, uint16_t ip_id)
{
	if (!may_have_icrc(len))
		return false;
	uint32_t diff = diff_of(flow, data, len, ip_id), s = POLY_REFLECTED;
	if (!(diff & (diff - 1))) /* of the ICRC itself */
		return true;
	/* what the last bit does, the one before it, and so on */
	for (size_t bits = 8 * (len - RPWI_ICRC_LEN); bits && s != diff; bits--) {
		s = s >> 1 ^ (POLY_REFLECTED & -(s & 1));
		if (bits == 1)
			return false;
	}
	return s == diff;
}

bool rpwi_icrc_solve_port(const struct rpwi_flow *flow, const uint8_t *data, size_t len,
	uint16_t ip_id, uint16_t *sport)
{
	if (!may_have_icrc(len))
		return false;
	uint32_t d = field_diff(diff_of(flow, data, len, ip_id),
		UDP_LEN - sizeof(*sport) + len - RPWI_ICRC_LEN, sizeof(*sport));
	*sport = flow->sport ^ __builtin_bswap16((uint16_t)d);
	return d <= UINT16_MAX;
}

bool rpwi_icrc_solve_addr(const struct rpwi_flow *flow, const uint8_t *data, size_t len,
	uint16_t ip_id, bool of_dst, struct rpwi_addr *addr)
{
	enum { ADDR_LEN = 4 };
	if (!may_have_icrc(len) || flow->src.family != 4)
		return false;
	uint32_t d = field_diff(diff_of(flow, data, len, ip_id),
		(of_dst ? 0 : ADDR_LEN) + UDP_LEN + len - RPWI_ICRC_LEN, ADDR_LEN);
	*addr = of_dst ? flow->dst : flow->src;
	for (int i = 0; i < ADDR_LEN; i++, d >>= 8)
		addr->bytes[i] ^= (uint8_t)d;
	return true;
}
