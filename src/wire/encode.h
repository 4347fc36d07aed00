/* SPDX-License-Identifier: BSD-3-Clause */
/* encode.h - the layout of every header, and rpwi_pkt_encode (packet.h) to be compiled where it is
 * called: of a struct rpwi_pkt made on the spot nothing is left then but the words of the headers.
 * For what is sent with each message; all else calls rpwi_pkt_encode. */
#ifndef ROPEWAY_ENCODE_H
#define ROPEWAY_ENCODE_H

#include "wire/packet.h"

/* Header sizes and field offsets (IB 9.2 and 9.3). */
enum {
	BTH_OPCODE = 0,
	BTH_FLAGS = 1,
	BTH_ECN = 4,
	BTH_DQPN = 5,
	BTH_ACKREQ = 8,
	BTH_PSN = 9,
	BTH_SE = 0x80,
	BTH_M = 0x40,
	BTH_PAD_SHIFT = 4,
	BTH_PAD_MASK = 3,
	BTH_TVER_MASK = 0x0f,
	BTH_FECN = 0x80,
	BTH_BECN = 0x40,
	BTH_A = 0x80,
	DETH_LEN = 8,
	RETH_LEN = 16,
	ATOMICETH_LEN = 28,
	AETH_LEN = 4,
	ATOMICACK_LEN = 8,
	IMM_LEN = 4,
	IETH_LEN = 4,
};

static inline void encode_bth(const struct rpwi_pkt *p, uint8_t *b)
{
	uint32_t flags = (p->solicited ? BTH_SE : 0) | BTH_M |
			 (uint32_t)(p->pad & BTH_PAD_MASK) << BTH_PAD_SHIFT;
	uint32_t ecn = p->fecn ? BTH_FECN : 0;
	ecn |= p->becn ? BTH_BECN : 0;
	uint32_t ask = p->ackreq ? BTH_A : 0;
	rpwi_put_be32(b, (uint32_t)p->opcode << 24 | flags << 16 | p->pkey);
	rpwi_put_be32(b + BTH_ECN, ecn << 24 | (p->dqpn & RPWI_QPN_MASK));
	rpwi_put_be32(b + BTH_ACKREQ, ask << 24 | (p->psn & RPWI_PSN_MASK));
}

__attribute__((always_inline)) static inline size_t rpwi_pkt_encode_here(
	const struct rpwi_pkt *p, uint8_t *buf)
{
	unsigned svc = rpwi_pkt_svc(p);
	assert((p->payload_len + p->pad) % 4 == 0);
	uint32_t f = rpwi_op_info[rpwi_pkt_op(p)].flags;
	uint8_t *b = buf + RPWI_BTH_LEN;
	encode_bth(p, buf);
	if (svc == RPWI_SVC_UD) {
		rpwi_put_be32(b, p->qkey);
		rpwi_put_be32(b + 4, p->sqpn & RPWI_QPN_MASK);
		b += DETH_LEN;
	}
	if (f & RPWI_F_RETH) {
		rpwi_put_be64(b, p->va);
		rpwi_put_be32(b + 8, p->rkey);
		rpwi_put_be32(b + 12, p->dma_len);
		b += RETH_LEN;
	}
	if (f & RPWI_F_ATOMICETH) {
		rpwi_put_be64(b, p->va);
		rpwi_put_be32(b + 8, p->rkey);
		rpwi_put_be64(b + 12, p->swap_add);
		rpwi_put_be64(b + 20, p->compare);
		b += ATOMICETH_LEN;
	}
	if (f & RPWI_F_AETH) {
		rpwi_put_be32(b, (uint32_t)p->syndrome << 24 | (p->msn & RPWI_PSN_MASK));
		b += AETH_LEN;
	}
	if (f & RPWI_F_ATOMICACK) {
		rpwi_put_be64(b, p->atomic_orig);
		b += ATOMICACK_LEN;
	}
	if (f & RPWI_F_IMM) {
		memcpy(b, &p->imm_be, IMM_LEN);
		b += IMM_LEN;
	}
	if (f & RPWI_F_IETH) {
		rpwi_put_be32(b, p->inv_rkey);
		b += IETH_LEN;
	}
	return (size_t)(b - buf);
}

#endif
