/* SPDX-License-Identifier: BSD-3-Clause */
/* packet.c - see packet.h. Reads what was checked or made here; nothing depends on what it
 * finds. */
#include "explain/packet.h"

#include <stdio.h>

enum { FLOWS = 64 };

/* The highest PSN sent as a request towards each QP: a packet not above it is sent again. Only for
 * the words; under the lock over io. */
static struct flow_psn {
	struct rpwi_addr dst;
	uint32_t dqpn, psn;
	bool used;
} flows[FLOWS];

static bool sent_before(const struct rpwi_flow *f, const struct rpwi_pkt *p)
{
	struct flow_psn *s = &flows[(p->dqpn * 2654435761u >> 16) % FLOWS];
	if (!s->used || s->dqpn != p->dqpn || !rpwi_addr_eq(&s->dst, &f->dst)) {
		*s = (struct flow_psn){.dst = f->dst, .dqpn = p->dqpn, .psn = p->psn, .used = true};
		return false;
	}
	int32_t ahead = rpwi_psn_diff(p->psn, s->psn);
	/* A READ takes a PSN for each packet of its answer, so what follows it is far ahead; a QP
	 * that begins anew is anywhere. */
	if (ahead > 0 || ahead < -(1 << 20)) {
		s->psn = p->psn;
		return false;
	}
	return true;
}

static const char *cm_name(uint16_t attr)
{
	static const struct {
		uint16_t attr;
		const char *name;
	} names[] = {
		{RPWI_CM_REQ, "ConnectRequest"},
		{RPWI_CM_MRA, "MsgRcptAck"},
		{RPWI_CM_REJ, "ConnectReject"},
		{RPWI_CM_REP, "ConnectReply"},
		{RPWI_CM_RTU, "ReadyToUse"},
		{RPWI_CM_DREQ, "DisconnectRequest"},
		{RPWI_CM_DREP, "DisconnectReply"},
		{RPWI_CM_SIDR_REQ, "ServiceIDReq"},
		{RPWI_CM_SIDR_REP, "ServiceIDRep"},
		{RPWI_CM_LAP, "LoadAlternatePath"},
		{RPWI_CM_APR, "AlternatePathResponse"},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(names); i++)
		if (names[i].attr == attr)
			return names[i].name;
	return "message";
}

/* The time-out codes of RNR NAKs, in units of 10 us (IB table 45). */
double rpwi_explain_packet_rnr_ms(unsigned code)
{
	static const uint32_t units[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128,
		192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
		24576, 32768, 49152};
	return units[code & 31] / 100.0;
}

unsigned rpwi_explain_packet_mtu(unsigned code)
{
	return code >= 1 && code <= 5 ? 128u << code : 0;
}

static bool is_nak(const struct rpwi_pkt *p)
{
	return rpwi_op_has(rpwi_pkt_op(p), RPWI_F_AETH) &&
	       rpwi_aeth_kind(p->syndrome) != RPWI_AETH_ACK;
}

const char *rpwi_explain_packet_name(const struct rpwi_pkt *p)
{
	if (!is_nak(p))
		return rpwi_opcode_name(p->opcode);
	switch (rpwi_aeth_kind(p->syndrome)) {
	case RPWI_AETH_RNR_NAK:
		return "RC RNR NAK";
	case RPWI_AETH_NAK:
		return "RC NAK";
	default:
		return "RC ACK";
	}
}

const char *rpwi_explain_packet_cm(const struct rpwi_cm_msg *m, char out[RPWI_EXPLAIN_DETAIL])
{
	switch (m->attr) {
	case RPWI_CM_REQ:
		snprintf(out, RPWI_EXPLAIN_DETAIL, "port %u, QPN 0x%06x",
			(unsigned)(m->req.service_id & 0xffff), m->req.qpn);
		break;
	case RPWI_CM_REP:
		snprintf(out, RPWI_EXPLAIN_DETAIL, "QPN 0x%06x", m->rep.qpn);
		break;
	case RPWI_CM_REJ:
		snprintf(out, RPWI_EXPLAIN_DETAIL, "reason %u: %s", m->rej.reason,
			rpwi_cm_rej_name(m->rej.reason));
		break;
	case RPWI_CM_SIDR_REQ:
		snprintf(out, RPWI_EXPLAIN_DETAIL, "port %u",
			(unsigned)(m->sidr_req.service_id & 0xffff));
		break;
	case RPWI_CM_SIDR_REP:
		snprintf(out, RPWI_EXPLAIN_DETAIL, "status %u, QPN 0x%06x", m->sidr_rep.status,
			m->sidr_rep.qpn);
		break;
	default:
		out[0] = '\0';
	}
	return out;
}

const char *rpwi_explain_packet_detail(const struct rpwi_pkt *p, char out[RPWI_EXPLAIN_DETAIL])
{
	unsigned op = rpwi_pkt_op(p);
	size_t n = (size_t)snprintf(out, RPWI_EXPLAIN_DETAIL, "PSN 0x%06x", p->psn);
	if (rpwi_op_has(op, RPWI_F_AETH) && rpwi_aeth_kind(p->syndrome) == RPWI_AETH_NAK)
		n += (size_t)snprintf(out + n, RPWI_EXPLAIN_DETAIL - n, ", %s",
			(p->syndrome & 31) < RPWI_NAK_COUNT ? rpwi_nak_name[p->syndrome & 31]
							    : "?");
	else if (is_nak(p) && rpwi_aeth_kind(p->syndrome) == RPWI_AETH_RNR_NAK)
		n += (size_t)snprintf(out + n, RPWI_EXPLAIN_DETAIL - n, ", wait %.2f ms",
			rpwi_explain_packet_rnr_ms(p->syndrome));
	else if (is_nak(p))
		n += (size_t)snprintf(out + n, RPWI_EXPLAIN_DETAIL - n,
			", reserved syndrome 0x%02x", p->syndrome);
	if (rpwi_op_has(op, RPWI_F_READ))
		n += (size_t)snprintf(
			out + n, RPWI_EXPLAIN_DETAIL - n, ", %u B wanted", p->dma_len);
	else if (rpwi_op_has(op, RPWI_F_PAYLOAD))
		n += (size_t)snprintf(out + n, RPWI_EXPLAIN_DETAIL - n, ", %u B", p->payload_len);
	if (rpwi_op_has(op, RPWI_F_RETH) && rpwi_op_has(op, RPWI_F_FIRST) &&
		!rpwi_op_has(op, RPWI_F_LAST))
		snprintf(out + n, RPWI_EXPLAIN_DETAIL - n, " of %u B", p->dma_len);
	return out;
}

static void count_facts(const struct rpwi_pkt *p)
{
	if (!rpwi_op_has(rpwi_pkt_op(p), RPWI_F_AETH))
		return;
	if (rpwi_aeth_kind(p->syndrome) == RPWI_AETH_NAK)
		rpwi_explain_fact(RPWI_FACT_NAK_SEEN, p->dqpn, 1);
	else if (rpwi_aeth_kind(p->syndrome) == RPWI_AETH_RNR_NAK)
		rpwi_explain_fact(RPWI_FACT_RNR_SEEN, p->dqpn, 1);
}

static void write_mad(enum rpwi_explain_kind kind, const struct rpwi_pkt *p)
{
	struct rpwi_cm_msg m;
	char detail[RPWI_EXPLAIN_DETAIL], more[64] = "";
	if (rpwi_cm_decode(p->payload, p->payload_len, &m)) {
		rpwi_explain(kind, "management datagram, %u bytes, not of the connection manager",
			p->payload_len);
		return;
	}
	if (m.attr == RPWI_CM_REQ)
		snprintf(more, sizeof(more), ", expects PSN 0x%06x, path MTU %u",
			m.req.starting_psn, rpwi_explain_packet_mtu(m.req.path_mtu));
	else if (m.attr == RPWI_CM_REP)
		snprintf(more, sizeof(more), ", expects PSN 0x%06x", m.rep.starting_psn);
	rpwi_explain_packet_cm(&m, detail);
	rpwi_explain(kind, "CM %s (%s)%s%s%s", cm_name(m.attr), rpwi_cm_attr_name(m.attr),
		*detail ? " " : "", detail, more);
}

void rpwi_explain_packet(
	const struct rpwi_flow *flow, enum rpwi_explain_kind kind, const uint8_t *data, size_t len)
{
	struct rpwi_pkt p;
	char detail[RPWI_EXPLAIN_DETAIL], more[32] = "";
	if (rpwi_pkt_decode(data, len, &p)) {
		rpwi_explain(kind, "%zu bytes, not RoCEv2", len);
		return;
	}
	if (p.dqpn == RPWI_GSI_QPN && rpwi_pkt_svc(&p) == RPWI_SVC_UD) {
		write_mad(kind, &p);
		return;
	}
	bool again = kind != RPWI_EXPLAIN_RX && rpwi_pkt_svc(&p) == RPWI_SVC_RC &&
		     rpwi_op_is_request(rpwi_pkt_op(&p)) && sent_before(flow, &p);
	if (kind == RPWI_EXPLAIN_RX)
		count_facts(&p);
	if (rpwi_op_has(rpwi_pkt_op(&p), RPWI_F_RETH | RPWI_F_ATOMICETH))
		snprintf(more, sizeof(more), ", rkey 0x%x", p.rkey);
	else if (rpwi_op_has(rpwi_pkt_op(&p), RPWI_F_AETH) && !is_nak(&p))
		snprintf(more, sizeof(more), ", MSN %u", p.msn);
	rpwi_explain(kind, "%s %s%s%s%s", rpwi_explain_packet_name(&p),
		rpwi_explain_packet_detail(&p, detail), more, again ? ", again" : "",
		kind == RPWI_EXPLAIN_LOST ? ": lost on purpose" : "");
}
