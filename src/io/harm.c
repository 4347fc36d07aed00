/* SPDX-License-Identifier: BSD-3-Clause */
/* harm.c - what a fault script (fault/) does to a packet on its way out. Decides and changes bytes;
 * sends nothing. */
#include "fault/fault.h"
#include "io/port_priv.h"

/* Another key than the program's, and an ICRC that is right: so it is the peer who refuses. */
static void spoil_key(struct later *l)
{
	struct rpwi_pkt p;
	if (rpwi_pkt_decode(l->data, l->len, &p) || p.hdr_len > l->len - RPWI_ICRC_LEN ||
		!rpwi_op_has(rpwi_pkt_op(&p), RPWI_F_RETH | RPWI_F_ATOMICETH))
		return;
	/* RETH and AtomicETH begin alike: an address, then the key (IB 9.3.3, 9.3.4) */
	l->data[RPWI_BTH_LEN + 8] ^= 0x5a;
	struct rpwi_iov rest = {l->data + p.hdr_len, l->len - RPWI_ICRC_LEN - p.hdr_len};
	uint32_t icrc = rpwi_icrc(&l->flow, 0, l->data, p.hdr_len, &rest, 1, 0);
	rpwi_put_le32(l->data + l->len - RPWI_ICRC_LEN, icrc);
}

static uint64_t payload_of(const struct later *l)
{
	struct rpwi_pkt p;
	return rpwi_pkt_decode(l->data, l->len, &p) ? 0 : p.payload_len;
}

void rpwi_harm(struct later *l, struct rpwi_fault_verdict *v)
{
	uint64_t now = rpwi_now_ns();
	if (rpwi_plan_port_down(now)) {
		v->drop = true;
		return;
	}
	if (!l->qp) /* of the CM: those have lines of their own (device/fault.c) */
		return;
	struct rpwi_fate f = rpwi_plan_ask(&(struct rpwi_occasion){.subject = RPWI_SUBJ_TX,
		.detail = l->data[0] & 0x1f,
		.state = RPWI_ANY,
		.qp = l->qp,
		.bytes = payload_of(l)});
	if (f.bad_key)
		spoil_key(l);
	v->drop |= f.drop;
	v->dup |= f.dup;
	v->hold |= f.hold;
	v->delay_ns += f.delay_ns;
	if (f.corrupt) {
		v->corrupt = true;
		v->corrupt_bit = (uint32_t)(f.draw % (l->len * 8));
	}
}
