/* SPDX-License-Identifier: BSD-3-Clause */
/* packet.c - see packet.h. Owns the table of operations and the layout of every header; knows no
 * connection and no state. */
#include "wire/encode.h"

_Static_assert(RPWI_BTH_LEN + ATOMICETH_LEN <= RPWI_HDR_MAX, "the longest header chain fits");
_Static_assert(RPWI_BTH_LEN + RETH_LEN + IMM_LEN <= RPWI_HDR_MAX, "the longest header chain fits");
_Static_assert(RPWI_BTH_LEN % 4 == 0 && RPWI_ICRC_LEN % 4 == 0,
	"whole packets are multiples of four bytes");

/* Kinds shared by several rows below. */
#define REQ (RPWI_F_VALID | RPWI_F_REQUEST)
#define RESP (RPWI_F_VALID | RPWI_F_RESPONSE)
#define SEND (REQ | RPWI_F_SEND | RPWI_F_PAYLOAD)
#define WRITE (REQ | RPWI_F_WRITE | RPWI_F_PAYLOAD)
#define READRESP (RESP | RPWI_F_READRESP | RPWI_F_PAYLOAD)
#define FIRST RPWI_F_FIRST
#define LAST RPWI_F_LAST
#define ONLY (RPWI_F_FIRST | RPWI_F_LAST)

/* IB table 38 (opcodes) and 9.4 (which headers follow). */
const struct rpwi_op_info rpwi_op_info[RPWI_OP_COUNT] = {
	[RPWI_OP_SEND_FIRST] = {"SEND_FIRST", SEND | FIRST},
	[RPWI_OP_SEND_MIDDLE] = {"SEND_MIDDLE", SEND},
	[RPWI_OP_SEND_LAST] = {"SEND_LAST", SEND | LAST},
	[RPWI_OP_SEND_LAST_IMM] = {"SEND_LAST_IMM", SEND | LAST | RPWI_F_IMM},
	[RPWI_OP_SEND_ONLY] = {"SEND_ONLY", SEND | ONLY},
	[RPWI_OP_SEND_ONLY_IMM] = {"SEND_ONLY_IMM", SEND | ONLY | RPWI_F_IMM},
	[RPWI_OP_WRITE_FIRST] = {"WRITE_FIRST", WRITE | FIRST | RPWI_F_RETH},
	[RPWI_OP_WRITE_MIDDLE] = {"WRITE_MIDDLE", WRITE},
	[RPWI_OP_WRITE_LAST] = {"WRITE_LAST", WRITE | LAST},
	[RPWI_OP_WRITE_LAST_IMM] = {"WRITE_LAST_IMM", WRITE | LAST | RPWI_F_IMM},
	[RPWI_OP_WRITE_ONLY] = {"WRITE_ONLY", WRITE | ONLY | RPWI_F_RETH},
	[RPWI_OP_WRITE_ONLY_IMM] = {"WRITE_ONLY_IMM", WRITE | ONLY | RPWI_F_RETH | RPWI_F_IMM},
	[RPWI_OP_READ_REQ] = {"READ_REQ", REQ | ONLY | RPWI_F_READ | RPWI_F_RETH},
	[RPWI_OP_READ_RESP_FIRST] = {"READ_RESP_FIRST", READRESP | FIRST | RPWI_F_AETH},
	[RPWI_OP_READ_RESP_MIDDLE] = {"READ_RESP_MIDDLE", READRESP},
	[RPWI_OP_READ_RESP_LAST] = {"READ_RESP_LAST", READRESP | LAST | RPWI_F_AETH},
	[RPWI_OP_READ_RESP_ONLY] = {"READ_RESP_ONLY", READRESP | ONLY | RPWI_F_AETH},
	[RPWI_OP_ACK] = {"ACK", RESP | ONLY | RPWI_F_AETH},
	[RPWI_OP_ATOMIC_ACK] = {"ATOMIC_ACK", RESP | ONLY | RPWI_F_AETH | RPWI_F_ATOMICACK},
	[RPWI_OP_CMP_SWAP] = {"CMP_SWAP", REQ | ONLY | RPWI_F_ATOMIC | RPWI_F_ATOMICETH},
	[RPWI_OP_FETCH_ADD] = {"FETCH_ADD", REQ | ONLY | RPWI_F_ATOMIC | RPWI_F_ATOMICETH},
	[RPWI_OP_SEND_LAST_INV] = {"SEND_LAST_INV", SEND | LAST | RPWI_F_IETH},
	[RPWI_OP_SEND_ONLY_INV] = {"SEND_ONLY_INV", SEND | ONLY | RPWI_F_IETH},
	[RPWI_OP_ATOMIC_WRITE] = {"ATOMIC_WRITE",
		REQ | ONLY | RPWI_F_ATOMICWRITE | RPWI_F_RETH | RPWI_F_PAYLOAD},
};

#define NAMES(svc) \
	{ \
		svc " SEND_FIRST", svc " SEND_MIDDLE", svc " SEND_LAST", svc " SEND_LAST_IMM", \
			svc " SEND_ONLY", svc " SEND_ONLY_IMM", svc " WRITE_FIRST", \
			svc " WRITE_MIDDLE", svc " WRITE_LAST", svc " WRITE_LAST_IMM", \
			svc " WRITE_ONLY", svc " WRITE_ONLY_IMM", svc " READ_REQ", \
			svc " READ_RESP_FIRST", svc " READ_RESP_MIDDLE", svc " READ_RESP_LAST", \
			svc " READ_RESP_ONLY", svc " ACK", svc " ATOMIC_ACK", svc " CMP_SWAP", \
			svc " FETCH_ADD", NULL, svc " SEND_LAST_INV", svc " SEND_ONLY_INV", NULL, \
			NULL, NULL, NULL, NULL, svc " ATOMIC_WRITE" \
	}
static const char *const rc_names[RPWI_OP_COUNT] = NAMES("RC"),
			 *const uc_names[RPWI_OP_COUNT] = NAMES("UC"),
			 *const ud_names[RPWI_OP_COUNT] = NAMES("UD");

const char *const rpwi_nak_name[RPWI_NAK_COUNT] = {
	[RPWI_NAK_PSN_SEQ] = "PSN sequence error",
	[RPWI_NAK_INV_REQ] = "invalid request",
	[RPWI_NAK_REM_ACCESS] = "remote access error",
	[RPWI_NAK_REM_OP] = "remote operational error",
	[RPWI_NAK_INV_RD] = "invalid RD request",
};

/* Which operations a service has (IB table 38): UC neither reads, answers nor invalidates; UD sends
 * single packets. */
static bool service_has(unsigned svc, unsigned op)
{
	if (!rpwi_op_has(op, RPWI_F_VALID))
		return false;
	switch (svc) {
	case RPWI_SVC_RC:
		return true;
	case RPWI_SVC_UC:
		return rpwi_op_has(op, RPWI_F_SEND | RPWI_F_WRITE) && !rpwi_op_has(op, RPWI_F_IETH);
	case RPWI_SVC_UD:
		return op == RPWI_OP_SEND_ONLY || op == RPWI_OP_SEND_ONLY_IMM;
	default:
		return false;
	}
}

const char *rpwi_opcode_name(uint8_t opcode)
{
	unsigned svc = opcode & RPWI_SVC_MASK, op = opcode & 0x1f;
	if (!service_has(svc, op))
		return "?";
	if (svc == RPWI_SVC_UD)
		return ud_names[op];
	return (svc == RPWI_SVC_UC ? uc_names : rc_names)[op];
}

/* Few packets have one of these: the extended headers but RETH and AETH. */
#define SELDOM (RPWI_F_ATOMICETH | RPWI_F_ATOMICACK | RPWI_F_IMM | RPWI_F_IETH)

static size_t headers_len(unsigned svc, unsigned op)
{
	uint32_t f = rpwi_op_info[op].flags;
	size_t n = RPWI_BTH_LEN;
	n += svc == RPWI_SVC_UD ? DETH_LEN : 0;
	n += f & RPWI_F_RETH ? RETH_LEN : 0;
	n += f & RPWI_F_AETH ? AETH_LEN : 0;
	if (RPWI_LIKELY(!(f & SELDOM)))
		return n;
	n += f & RPWI_F_ATOMICETH ? ATOMICETH_LEN : 0;
	n += f & RPWI_F_ATOMICACK ? ATOMICACK_LEN : 0;
	n += f & RPWI_F_IMM ? IMM_LEN : 0;
	n += f & RPWI_F_IETH ? IETH_LEN : 0;
	return n;
}

/* A word at a time, here and in encode_bth: a word that is read again as a whole is best written
 * so. */
static void decode_bth(const uint8_t *d, struct rpwi_pkt *p)
{
	uint32_t first = rpwi_get_be32(d), second = rpwi_get_be32(d + BTH_ECN),
		 third = rpwi_get_be32(d + BTH_ACKREQ);
	uint8_t flags = (uint8_t)(first >> 16), ecn = (uint8_t)(second >> 24);
	p->opcode = (uint8_t)(first >> 24);
	p->pad = flags >> BTH_PAD_SHIFT & BTH_PAD_MASK;
	p->solicited = flags & BTH_SE;
	p->migreq = flags & BTH_M;
	p->pkey = (uint16_t)first;
	p->fecn = ecn & BTH_FECN;
	p->becn = ecn & BTH_BECN;
	p->dqpn = second & RPWI_QPN_MASK;
	p->ackreq = third >> 24 & BTH_A;
	p->psn = third & RPWI_PSN_MASK;
}

/* The extended headers, in the order in which they follow each other. The caller has checked that
 * they are all there. */
static void decode_extended(const uint8_t *d, unsigned svc, uint32_t f, struct rpwi_pkt *p)
{
	if (svc == RPWI_SVC_UD) {
		p->qkey = rpwi_get_be32(d);
		p->sqpn = rpwi_get_be24(d + 5);
		d += DETH_LEN;
	}
	if (f & RPWI_F_RETH) {
		p->va = rpwi_get_be64(d);
		p->rkey = rpwi_get_be32(d + 8);
		p->dma_len = rpwi_get_be32(d + 12);
		d += RETH_LEN;
	}
	if (f & RPWI_F_AETH) {
		p->syndrome = d[0];
		p->msn = rpwi_get_be24(d + 1);
		d += AETH_LEN;
	}
	if (RPWI_LIKELY(!(f & SELDOM)))
		return;
	if (f & RPWI_F_ATOMICETH) {
		p->va = rpwi_get_be64(d);
		p->rkey = rpwi_get_be32(d + 8);
		p->swap_add = rpwi_get_be64(d + 12);
		p->compare = rpwi_get_be64(d + 20);
		d += ATOMICETH_LEN;
	}
	if (f & RPWI_F_ATOMICACK) {
		p->atomic_orig = rpwi_get_be64(d);
		d += ATOMICACK_LEN;
	}
	if (f & RPWI_F_IMM) {
		memcpy(&p->imm_be, d, IMM_LEN);
		d += IMM_LEN;
	}
	if (f & RPWI_F_IETH)
		p->inv_rkey = rpwi_get_be32(d);
}

/* The headers; `len` bytes are there. */
static int decode_headers(const uint8_t *data, size_t len, struct rpwi_pkt *out)
{
	rpwi_pkt_clear(out);
	if (len < RPWI_BTH_LEN)
		return RPWI_DECODE_SHORT;
	/* IB 9.2.5: transport header version 0 is the only one */
	if (data[BTH_FLAGS] & BTH_TVER_MASK)
		return RPWI_DECODE_VERSION;
	decode_bth(data, out);
	unsigned svc = rpwi_pkt_svc(out), op = rpwi_pkt_op(out);
	if (!service_has(svc, op))
		return RPWI_DECODE_OPCODE;
	out->hdr_len = (uint16_t)headers_len(svc, op);
	if (len < out->hdr_len)
		return RPWI_DECODE_SHORT;
	decode_extended(data + RPWI_BTH_LEN, svc, rpwi_op_info[op].flags, out);
	return RPWI_DECODE_OK;
}

/* The headers are decoded; `rest` bytes of payload and pad follow them. */
static int decode_payload(const uint8_t *payload, size_t rest, struct rpwi_pkt *out)
{
	uint32_t f = rpwi_op_info[rpwi_pkt_op(out)].flags;
	/* IB 9.2.4: the pad makes the packet a multiple of four bytes */
	if (rest < out->pad || rest % 4)
		return RPWI_DECODE_PAD;
	if (rest - out->pad > (f & RPWI_F_PAYLOAD ? RPWI_MTU_MAX : 0))
		return RPWI_DECODE_TOO_LONG;
	if (rest == out->pad && out->pad) /* nothing to pad: four minus nothing is not 1..3 */
		return RPWI_DECODE_PAD;
	out->payload = payload;
	out->payload_len = (uint32_t)(rest - out->pad);
	return RPWI_DECODE_OK;
}

int rpwi_pkt_decode(const uint8_t *data, size_t len, struct rpwi_pkt *out)
{
	if (len < RPWI_BTH_LEN + RPWI_ICRC_LEN) {
		rpwi_pkt_clear(out);
		return RPWI_DECODE_SHORT;
	}
	int rc = decode_headers(data, len - RPWI_ICRC_LEN, out);
	return rc ? rc
		  : decode_payload(data + out->hdr_len, len - RPWI_ICRC_LEN - out->hdr_len, out);
}

int rpwi_pkt_decode_parts(const uint8_t *hdr, size_t hdr_len, const uint8_t *payload,
	size_t payload_len, struct rpwi_pkt *out)
{
	int rc = decode_headers(hdr, hdr_len, out);
	if (rc)
		return rc;
	if (out->hdr_len != hdr_len)
		return RPWI_DECODE_SHORT;
	return decode_payload(payload, payload_len + out->pad, out);
}

int rpwi_pkt_decode_next(const uint8_t *hdr, size_t hdr_len, const uint8_t *payload,
	size_t payload_len, struct rpwi_alike *last)
{
	struct rpwi_pkt *p = &last->pkt;
	if (RPWI_LIKELY(last->known && hdr_len == p->hdr_len && payload_len == last->payload_len &&
			!memcmp(hdr, last->bth, sizeof(last->bth)))) {
		uint32_t third = rpwi_get_be32(hdr + BTH_ACKREQ);
		p->ackreq = third >> 24 & BTH_A;
		p->psn = third & RPWI_PSN_MASK;
		p->payload = payload;
		p->payload_len = (uint32_t)payload_len;
		p->more = 0;
		p->placed = false;
		if (hdr_len > RPWI_BTH_LEN)
			decode_extended(hdr + RPWI_BTH_LEN, rpwi_pkt_svc(p),
				rpwi_op_info[rpwi_pkt_op(p)].flags, p);
		return RPWI_DECODE_OK;
	}
	int rc = rpwi_pkt_decode_parts(hdr, hdr_len, payload, payload_len, p);
	last->known = !rc;
	if (RPWI_UNLIKELY(rc))
		return rc;
	memcpy(last->bth, hdr, sizeof(last->bth));
	last->payload_len = (uint32_t)payload_len;
	return RPWI_DECODE_OK;
}

bool rpwi_opcode_may_have_more(uint8_t opcode)
{
	unsigned op = opcode & 0x1f;
	return (opcode & RPWI_SVC_MASK) == RPWI_SVC_RC &&
	       rpwi_op_has(op, RPWI_F_SEND | RPWI_F_WRITE) && !rpwi_op_has(op, RPWI_F_LAST);
}

void rpwi_pkt_follow(uint8_t bth[RPWI_BTH_LEN], unsigned n)
{
	uint8_t *op = bth + BTH_OPCODE;
	if (n && *op == (RPWI_SVC_RC | RPWI_OP_SEND_FIRST))
		*op = RPWI_SVC_RC | RPWI_OP_SEND_MIDDLE;
	else if (n && *op == (RPWI_SVC_RC | RPWI_OP_WRITE_FIRST))
		*op = RPWI_SVC_RC | RPWI_OP_WRITE_MIDDLE;
	rpwi_put_be24(bth + BTH_PSN, rpwi_psn_add(rpwi_get_be24(bth + BTH_PSN), n));
}

bool rpwi_pkt_ask_ack(uint8_t bth[RPWI_BTH_LEN], bool ask)
{
	bool asked = bth[BTH_ACKREQ] & BTH_A;
	bth[BTH_ACKREQ] = (uint8_t)((bth[BTH_ACKREQ] & ~BTH_A) | (ask ? BTH_A : 0));
	return asked;
}

int32_t rpwi_pkt_peek_qpn(const uint8_t *data, size_t len)
{
	return len < RPWI_BTH_LEN ? -1 : (int32_t)rpwi_get_be24(data + BTH_DQPN);
}

bool rpwi_pkt_is_ack(const uint8_t *data, size_t len)
{
	return len == RPWI_BTH_LEN + AETH_LEN + RPWI_ICRC_LEN &&
	       data[BTH_OPCODE] == (RPWI_SVC_RC | RPWI_OP_ACK) &&
	       !(data[BTH_FLAGS] >> BTH_PAD_SHIFT & BTH_PAD_MASK) &&
	       rpwi_aeth_kind(data[RPWI_BTH_LEN]) == RPWI_AETH_ACK;
}

size_t rpwi_pkt_encode(const struct rpwi_pkt *p, uint8_t *buf)
{
	assert(service_has(rpwi_pkt_svc(p), rpwi_pkt_op(p)));
	return rpwi_pkt_encode_here(p, buf);
}
