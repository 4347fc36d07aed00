/* SPDX-License-Identifier: BSD-3-Clause */
/* place.c - where a header field stands in a packet, counted from its BTH: for the page, which
 * shows the bytes beside the fields. Headers: IB 9.2 to 9.4, FETH: IB A19; messages of the
 * connection manager: IB 12.6 and 12.11.2, behind a DETH and the header of the management datagram
 * (24 bytes). */
#include "cli/explain/explain.h"

enum {
	DETH_LEN = 8,
	FETH_LEN = 4,
	MAD_AT = RPWI_BTH_LEN + DETH_LEN,
	CM_AT = MAD_AT + RPWI_MAD_HDR_LEN,
	REQ_PRIVATE = 140,
	SIDR_REQ_PRIVATE = 16,
};

/* In the group: a header, or a message. A group of NULL is any message. */
static const struct {
	const char *group, *key;
	uint8_t at, len;
} fields[] = {{"BTH", "opcode", 0, 1}, {"BTH", "solicited", 1, 1}, {"BTH", "migreq", 1, 1},
	{"BTH", "pad", 1, 1}, {"BTH", "pkey", 2, 2}, {"BTH", "ecn", 4, 1}, {"BTH", "dqpn", 5, 3},
	{"BTH", "ackreq", 8, 1}, {"BTH", "psn", 9, 3}, {"DETH", "qkey", 0, 4},
	{"DETH", "sqpn", 5, 3}, {"RETH", "va", 0, 8}, {"RETH", "rkey", 8, 4},
	{"RETH", "dma_len", 12, 4}, {"AtomicETH", "va", 0, 8}, {"AtomicETH", "rkey", 8, 4},
	{"AtomicETH", "swap_add", 12, 8}, {"AtomicETH", "compare", 20, 8},
	{"AETH", "syndrome", 0, 1}, {"AETH", "msn", 1, 3}, {"AtomicAckETH", "atomic_orig", 0, 8},
	{"ImmDt", "imm", 0, 4}, {"IETH", "inv_rkey", 0, 4}, {"FETH", "feth_type", 0, FETH_LEN},
	{"FETH", "feth_what", 0, FETH_LEN}, {"MAD", "mad_class", 1, 1}, {"MAD", "mad_tid", 8, 8},
	{"MAD", "mad_attr", 16, 2}, {"CMA", "cma_port", 2, 2}, {"CMA", "cma_src", 4, 16},
	{"CMA", "cma_dst", 20, 16}, {"CMA", "private_data", RPWI_CMA_HDR_LEN, UINT8_MAX},
	{"REQ", "service_id", 8, 8}, {"REQ", "ca_guid", 16, 8}, {"REQ", "cm_qpn", 32, 3},
	{"REQ", "resp_res", 35, 1}, {"REQ", "init_depth", 39, 1}, {"REQ", "cm_timeout", 43, 1},
	{"REQ", "transport", 43, 1}, {"REQ", "start_psn", 44, 3}, {"REQ", "retry", 47, 1},
	{"REQ", "cm_pkey", 48, 2}, {"REQ", "path_mtu", 50, 1}, {"REQ", "rnr_retry", 50, 1},
	{"REQ", "cm_retries", 51, 1}, {"REQ", "gid_local", 56, 16}, {"REQ", "gid_remote", 72, 16},
	{"REQ", "ack_timeout", 95, 1}, {"REQ", "private_data", REQ_PRIVATE, UINT8_MAX},
	{"REP", "cm_qpn", 12, 3}, {"REP", "start_psn", 20, 3}, {"REP", "resp_res", 24, 1},
	{"REP", "init_depth", 25, 1}, {"REP", "rnr_retry", 27, 1}, {"REP", "ca_guid", 28, 8},
	{"REP", "private_data", 36, UINT8_MAX}, {"REJ", "rej_msg", 8, 1},
	{"REJ", "rej_reason", 10, 2}, {"REJ", "private_data", 84, UINT8_MAX},
	{"MRA", "service_timeout", 9, 1}, {"MRA", "private_data", 10, UINT8_MAX},
	{"DREQ", "dreq_qpn", 8, 3}, {"DREQ", "private_data", 12, UINT8_MAX},
	{"RTU", "private_data", 8, UINT8_MAX}, {"DREP", "private_data", 8, UINT8_MAX},
	{"SIDR_REQ", "service_id", 8, 8}, {"SIDR_REQ", "private_data", SIDR_REQ_PRIVATE, UINT8_MAX},
	{"SIDR_REP", "sidr_status", 4, 1}, {"SIDR_REP", "cm_qpn", 8, 3},
	{"SIDR_REP", "qkey", 20, 4}, {"SIDR_REP", "private_data", 96, UINT8_MAX},
	{NULL, "comm_id", 0, 4}, {NULL, "peer_comm_id", 4, 4}, {NULL, "request_id", 0, 4}};

/* Those behind BTH and DETH, in their order. */
static const struct {
	const char *group;
	unsigned has;
	uint8_t len;
} headers[] = {{"RETH", RPWI_F_RETH, 16}, {"AtomicETH", RPWI_F_ATOMICETH, 28},
	{"AETH", RPWI_F_AETH, 4}, {"AtomicAckETH", RPWI_F_ATOMICACK, 8}, {"ImmDt", RPWI_F_IMM, 4},
	{"IETH", RPWI_F_IETH, 4}};

static unsigned group_of_cm(const struct ex_pkt *k, const char *group)
{
	struct rpwi_cm_msg m;
	if (!strcmp(group, "MAD"))
		return MAD_AT;
	if (strcmp(group, "CMA") != 0)
		return CM_AT;
	bool is_req = rpwi_explain_cm(k, &m) && m.attr == RPWI_CM_REQ;
	return CM_AT + (is_req ? REQ_PRIVATE : SIDR_REQ_PRIVATE);
}

static unsigned group_at(const struct ex_pkt *k, const char *group)
{
	unsigned op = rpwi_pkt_op(&k->p), at = RPWI_BTH_LEN;
	if (!strcmp(group, "BTH"))
		return 0;
	if (k->foreign)
		return !strcmp(group, "FETH") ? at : at + FETH_LEN;
	if (!strcmp(group, "DETH"))
		return at;
	if (ex_is_cm(k))
		return group_of_cm(k, group);
	at += rpwi_pkt_svc(&k->p) == RPWI_SVC_UD ? DETH_LEN : 0;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(headers) && strcmp(headers[i].group, group) != 0; i++)
		at += rpwi_op_has(op, headers[i].has) ? headers[i].len : 0;
	return at;
}

static bool is_in(const char *group, const char *of)
{
	return of ? !strcmp(group, of)
		  : strcmp(group, "BTH") != 0 && strcmp(group, "DETH") != 0 &&
			       strcmp(group, "MAD") != 0;
}

struct ex_place rpwi_explain_place(const struct ex_pkt *k, const char *group, const char *key)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(fields); i++) {
		if (strcmp(fields[i].key, key) != 0 || !is_in(group, fields[i].group))
			continue;
		unsigned at = group_at(k, group) + fields[i].at;
		if (at >= k->raw_len)
			break;
		return (struct ex_place){at, RPWI_MIN(fields[i].len, k->raw_len - at)};
	}
	return (struct ex_place){0};
}
