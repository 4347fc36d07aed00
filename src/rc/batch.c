/* SPDX-License-Identifier: BSD-3-Clause */
/* batch.c - what every file that puts packets into a batch has to know: which packets there are for
 * a work request, and which go to one destination. */
#include "rc/internal.h"

enum { RC = 1 << IBV_QPT_RC, UC = 1 << IBV_QPT_UC, UD = 1 << IBV_QPT_UD };

/* IB 11.4.1.1: which operations a service type has. SEND with invalidate is RC's alone on the wire
 * (IB table 38). */
const struct rpwi_wr_info rpwi_wr_info[RPWI_WR_OPCODES] = {
	[IBV_WR_SEND] = {.types = RC | UC | UD,
		.inline_ok = true,
		.wc_opcode = IBV_WC_SEND,
		.first = RPWI_OP_SEND_FIRST,
		.middle = RPWI_OP_SEND_MIDDLE,
		.last = RPWI_OP_SEND_LAST,
		.only = RPWI_OP_SEND_ONLY},
	[IBV_WR_SEND_WITH_IMM] = {.types = RC | UC | UD,
		.inline_ok = true,
		.wc_opcode = IBV_WC_SEND,
		.first = RPWI_OP_SEND_FIRST,
		.middle = RPWI_OP_SEND_MIDDLE,
		.last = RPWI_OP_SEND_LAST_IMM,
		.only = RPWI_OP_SEND_ONLY_IMM},
	[IBV_WR_SEND_WITH_INV] = {.types = RC,
		.inline_ok = true,
		.wc_opcode = IBV_WC_SEND,
		.first = RPWI_OP_SEND_FIRST,
		.middle = RPWI_OP_SEND_MIDDLE,
		.last = RPWI_OP_SEND_LAST_INV,
		.only = RPWI_OP_SEND_ONLY_INV},
	[IBV_WR_RDMA_WRITE] = {.types = RC | UC,
		.inline_ok = true,
		.wc_opcode = IBV_WC_RDMA_WRITE,
		.first = RPWI_OP_WRITE_FIRST,
		.middle = RPWI_OP_WRITE_MIDDLE,
		.last = RPWI_OP_WRITE_LAST,
		.only = RPWI_OP_WRITE_ONLY},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {.types = RC | UC,
		.inline_ok = true,
		.wc_opcode = IBV_WC_RDMA_WRITE,
		.first = RPWI_OP_WRITE_FIRST,
		.middle = RPWI_OP_WRITE_MIDDLE,
		.last = RPWI_OP_WRITE_LAST_IMM,
		.only = RPWI_OP_WRITE_ONLY_IMM},
	[IBV_WR_RDMA_READ] = {.types = RC, .wc_opcode = IBV_WC_RDMA_READ, .only = RPWI_OP_READ_REQ},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {.types = RC,
		.wc_opcode = IBV_WC_COMP_SWAP,
		.only = RPWI_OP_CMP_SWAP},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {.types = RC,
		.wc_opcode = IBV_WC_FETCH_ADD,
		.only = RPWI_OP_FETCH_ADD},
	[RPWI_WR_ATOMIC_WRITE] = {.types = RC,
		.inline_ok = true,
		.wc_opcode = RPWI_WC_ATOMIC_WRITE,
		.only = RPWI_OP_ATOMIC_WRITE},
	[IBV_WR_LOCAL_INV] = {.types = RC | UC, .local = true, .wc_opcode = IBV_WC_LOCAL_INV},
	[IBV_WR_BIND_MW] = {.types = RC | UC, .local = true, .wc_opcode = IBV_WC_BIND_MW},
};

static bool same_flow(const struct rpwi_flow *a, const struct rpwi_flow *b)
{
	return rpwi_addr_eq(&a->dst, &b->dst) && rpwi_addr_eq(&a->src, &b->src) &&
	       a->dst.scope == b->dst.scope && a->sport == b->sport && a->dport == b->dport;
}

bool rpwi_txb_accepts(struct rpwi_txb *b, const struct rpwi_av *av)
{
	if (!b->av)
		b->av = av;
	return b->av == av ||
	       (b->av->port == av->port && b->av->hop_limit == av->hop_limit &&
		       b->av->tclass == av->tclass && b->av->flow_label == av->flow_label &&
		       same_flow(&b->av->flow, &av->flow));
}
