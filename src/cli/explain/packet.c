/* SPDX-License-Identifier: BSD-3-Clause */
/* packet.c - a datagram of a capture, or the headers of an event, become a packet: decoded as far
 * as it can be, its bytes kept for its fields. */
#include "cli/explain/explain.h"

#include "base/hash.h"
#include "wire/icrc.h"

#include <stdlib.h>

/* A packet that was not captured as a whole is decoded as if the rest of it were zeros. */
static int decode(const struct ex_datagram *d, struct rpwi_pkt *p)
{
	static uint8_t whole[UINT16_MAX + 1];
	if (d->len == d->wire_len)
		return rpwi_pkt_decode(d->payload, d->len, p);
	memset(whole, 0, sizeof(whole));
	memcpy(whole, d->payload, d->len);
	return rpwi_pkt_decode(whole, RPWI_MIN(d->wire_len, (uint32_t)sizeof(whole)), p);
}

static void decode_bth_alone(const struct ex_datagram *d, struct rpwi_pkt *p)
{
	const uint8_t *b = d->payload;
	*p = (struct rpwi_pkt){.opcode = b[0],
		.pkey = rpwi_get_be16(b + 2),
		.dqpn = rpwi_get_be24(b + 5),
		.psn = rpwi_get_be24(b + 9)};
}

/* A congestion notification is a BTH and 16 bytes of zero (IB A17.9.3); a FLUSH has an FETH of 4
 * bytes and a RETH (IB A19), and takes a PSN as a WRITE does. */
static enum ex_foreign foreign(const struct ex_datagram *d, struct rpwi_pkt *p)
{
	enum { CNP = RPWI_SVC_CNP | 1, FLUSH = RPWI_SVC_RC | 0x1c, FETH = 4, RETH = 16 };
	const uint8_t *b = d->payload;
	if (d->len < RPWI_BTH_LEN + 16)
		return EX_NOT_FOREIGN;
	p->becn = b[4] & 0x40;
	p->fecn = b[4] & 0x80;
	p->ackreq = b[8] & 0x80;
	if (b[0] == CNP && d->wire_len == RPWI_BTH_LEN + 16 + RPWI_ICRC_LEN)
		return EX_CNP;
	if (b[0] != FLUSH || d->wire_len != RPWI_BTH_LEN + FETH + RETH + RPWI_ICRC_LEN ||
		d->len < RPWI_BTH_LEN + FETH + RETH)
		return EX_NOT_FOREIGN;
	b += RPWI_BTH_LEN;
	p->imm_be = rpwi_get_be32(b); /* no packet has both */
	p->va = rpwi_get_be64(b + FETH);
	p->rkey = rpwi_get_be32(b + FETH + 8);
	p->dma_len = rpwi_get_be32(b + FETH + 12);
	return EX_FLUSH;
}

/* Headers and ICRC tell two packets apart; the rest is in the ICRC. */
static uint32_t key_of(const struct ex_datagram *d)
{
	uint64_t h = rpwi_hash(RPWI_HASH, d->payload, RPWI_MIN(d->len, (uint32_t)RPWI_HDR_MAX));
	h = rpwi_hash(h, d->flow.src.bytes, 16);
	h = rpwi_hash(h, d->flow.dst.bytes, 16);
	if (d->len == d->wire_len && d->len >= RPWI_ICRC_LEN)
		h = rpwi_hash(h, d->payload + d->len - RPWI_ICRC_LEN, RPWI_ICRC_LEN);
	return (uint32_t)(h ^ h >> 32);
}

static bool keep_bytes(struct ex_pkt *k, const struct ex_datagram *d)
{
	size_t want = ex_is_cm(k) ? (size_t)k->p.hdr_len + RPWI_MAD_LEN : EX_KEEP_BYTES;
	k->raw_len = (uint16_t)RPWI_MIN(want, (size_t)d->len);
	k->raw = malloc(k->raw_len ? k->raw_len : 1);
	if (k->raw)
		memcpy(k->raw, d->payload, k->raw_len);
	return k->raw;
}

bool rpwi_explain_packet_of(struct ex_pkt *k, const struct ex_datagram *d)
{
	k->flow = d->flow;
	k->ttl = d->ttl;
	k->tos = d->tos;
	k->ip_id = d->ip_id;
	k->len = d->wire_len;
	k->cut = d->len < d->wire_len;
	k->key = key_of(d);
	if (decode(d, &k->p)) {
		decode_bth_alone(d, &k->p);
		k->undecoded = true;
		k->foreign = foreign(d, &k->p);
	}
	k->p.payload = NULL;
	uint16_t id = d->ip_id;
	if (!k->cut && d->len >= RPWI_BTH_LEN + RPWI_ICRC_LEN &&
		rpwi_icrc_check(&d->flow, d->payload, d->len, &id) == RPWI_ICRC_BAD)
		k->marks |= EX_BAD_ICRC;
	return keep_bytes(k, d);
}

void rpwi_explain_pkt_free(struct ex_pkt *k)
{
	free(k->raw);
	free(k->comment);
	k->raw = NULL;
	k->comment = NULL;
}
