/* SPDX-License-Identifier: BSD-3-Clause */
/* packet.c - see packet.h. Reads what was checked or made here; nothing depends on what it
 * finds. */
#include "explain/packet.h"

#include "wire/mad.h"

#include <stdio.h>

enum { FLOWS = 64, TEXT_LEN = 200 };

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
		{RPWI_CM_REQ, "ConnectRequest (REQ)"},
		{RPWI_CM_MRA, "MsgRcptAck (MRA)"},
		{RPWI_CM_REJ, "ConnectReject (REJ)"},
		{RPWI_CM_REP, "ConnectReply (REP)"},
		{RPWI_CM_RTU, "ReadyToUse (RTU)"},
		{RPWI_CM_DREQ, "DisconnectRequest (DREQ)"},
		{RPWI_CM_DREP, "DisconnectReply (DREP)"},
		{RPWI_CM_SIDR_REQ, "ServiceIDReq (SIDR_REQ)"},
		{RPWI_CM_SIDR_REP, "ServiceIDRep (SIDR_REP)"},
		{RPWI_CM_LAP, "LoadAlternatePath (LAP)"},
		{RPWI_CM_APR, "AlternatePathResponse (APR)"},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(names); i++)
		if (names[i].attr == attr)
			return names[i].name;
	return "message";
}

static int mtu_bytes(unsigned mtu) { return mtu >= 1 && mtu <= 5 ? 128 << mtu : 0; }

/* What a reader looks for in each CM message. */
static void cm_detail(const struct rpwi_cm_msg *m, char *out, size_t len)
{
	switch (m->attr) {
	case RPWI_CM_REQ:
		snprintf(out, len, " port %u, QPN 0x%06x, expects PSN 0x%06x, path MTU %d",
			(unsigned)(m->req.service_id & 0xffff), m->req.qpn, m->req.starting_psn,
			mtu_bytes(m->req.path_mtu));
		break;
	case RPWI_CM_REP:
		snprintf(out, len, " QPN 0x%06x, expects PSN 0x%06x", m->rep.qpn,
			m->rep.starting_psn);
		break;
	case RPWI_CM_REJ:
		snprintf(
			out, len, " reason %u, %s", m->rej.reason, rpwi_cm_rej_name(m->rej.reason));
		break;
	case RPWI_CM_SIDR_REQ:
		snprintf(out, len, " port %u", (unsigned)(m->sidr_req.service_id & 0xffff));
		break;
	case RPWI_CM_SIDR_REP:
		snprintf(out, len, " status %u, QPN 0x%06x", m->sidr_rep.status, m->sidr_rep.qpn);
		break;
	default:
		out[0] = '\0';
	}
}

static void cm_text(const uint8_t *mad, size_t mad_len, char *out, size_t len)
{
	struct rpwi_cm_msg m;
	char detail[TEXT_LEN / 2];
	if (rpwi_cm_decode(mad, mad_len, &m)) {
		snprintf(out, len, "management datagram, %zu bytes, not of the connection manager",
			mad_len);
		return;
	}
	cm_detail(&m, detail, sizeof(detail));
	snprintf(out, len, "CM %s%s", cm_name(m.attr), detail);
}

static void ack_detail(const struct rpwi_pkt *p, char *out, size_t len)
{
	unsigned value = p->syndrome & 0x1f;
	switch (rpwi_aeth_kind(p->syndrome)) {
	case RPWI_AETH_NAK:
		snprintf(out, len, ": %s", value < RPWI_NAK_COUNT ? rpwi_nak_name[value] : "?");
		break;
	case RPWI_AETH_RNR_NAK:
		snprintf(out, len, ": RNR, wait code %u", value);
		break;
	case RPWI_AETH_RESERVED:
		snprintf(out, len, ": reserved syndrome 0x%02x", p->syndrome);
		break;
	default:
		snprintf(out, len, ", MSN %u", p->msn);
	}
}

static void detail_of(const struct rpwi_pkt *p, char *out, size_t len)
{
	unsigned op = rpwi_pkt_op(p);
	size_t n = 0;
	out[0] = '\0';
	if (rpwi_op_has(op, RPWI_F_AETH))
		ack_detail(p, out, len);
	n = strlen(out);
	if (rpwi_op_has(op, RPWI_F_PAYLOAD))
		n += (size_t)snprintf(out + n, len - n, ", %u B", p->payload_len);
	if (rpwi_op_has(op, RPWI_F_RETH | RPWI_F_ATOMICETH) && n < len)
		n += (size_t)snprintf(out + n, len - n, ", rkey 0x%x", p->rkey);
	if (rpwi_op_has(op, RPWI_F_RETH) && n < len)
		snprintf(out + n, len - n, ", length %u", p->dma_len);
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

void rpwi_explain_packet(
	const struct rpwi_flow *flow, enum rpwi_explain_kind kind, const uint8_t *data, size_t len)
{
	struct rpwi_pkt p;
	char text[TEXT_LEN], detail[TEXT_LEN / 2];
	if (rpwi_pkt_decode(data, len, &p)) {
		rpwi_explain(kind, "%zu bytes, not RoCEv2", len);
		return;
	}
	if (p.dqpn == RPWI_GSI_QPN && rpwi_pkt_svc(&p) == RPWI_SVC_UD) {
		cm_text(p.payload, p.payload_len, text, sizeof(text));
		rpwi_explain(kind, "%s", text);
		return;
	}
	bool again = kind != RPWI_EXPLAIN_RX && rpwi_pkt_svc(&p) == RPWI_SVC_RC &&
		     rpwi_op_is_request(rpwi_pkt_op(&p)) && sent_before(flow, &p);
	if (kind == RPWI_EXPLAIN_RX)
		count_facts(&p);
	detail_of(&p, detail, sizeof(detail));
	bool nak = rpwi_op_has(rpwi_pkt_op(&p), RPWI_F_AETH) &&
		   (rpwi_aeth_kind(p.syndrome) & RPWI_AETH_RNR_NAK); /* that or NAK */
	const char *name = nak ? "RC NAK" : rpwi_opcode_name(p.opcode);
	rpwi_explain(kind, "%s PSN 0x%06x%s%s%s", name, p.psn, detail, again ? ", again" : "",
		kind == RPWI_EXPLAIN_LOST ? ": lost on purpose" : "");
}
