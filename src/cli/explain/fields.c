/* SPDX-License-Identifier: BSD-3-Clause */
/* fields.c - a packet's name, its first facts, and every field of its headers. Values only: what a
 * field means is told by the page, in two languages. */
#include "cli/explain/explain.h"

#include "explain/packet.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

const char *rpwi_explain_addr(const struct rpwi_addr *a, char out[CLI_GID_LEN])
{
	if (!inet_ntop(a->family == 6 ? AF_INET6 : AF_INET, a->bytes, out, CLI_GID_LEN))
		out[0] = '\0';
	return out;
}

bool rpwi_explain_cm(const struct ex_pkt *k, struct rpwi_cm_msg *m)
{
	return ex_is_cm(k) && k->raw_len >= k->p.hdr_len + RPWI_MAD_LEN &&
	       !rpwi_cm_decode(k->raw + k->p.hdr_len, RPWI_MAD_LEN, m);
}

static const char *foreign_name(const struct ex_pkt *k)
{
	return k->foreign == EX_CNP ? "CNP" : "RC FLUSH";
}

const char *rpwi_explain_label(const struct ex_pkt *k, char out[64])
{
	struct rpwi_cm_msg m;
	if (k->foreign)
		snprintf(out, 64, "%s", foreign_name(k));
	else if (k->undecoded)
		snprintf(out, 64, "opcode 0x%02x", k->p.opcode);
	else if (ex_is_cm(k))
		snprintf(
			out, 64, "CM %s", rpwi_explain_cm(k, &m) ? rpwi_cm_attr_name(m.attr) : "?");
	else
		snprintf(out, 64, "%s", rpwi_explain_packet_name(&k->p));
	return out;
}

const char *rpwi_explain_detail(const struct ex_pkt *k, char out[160])
{
	struct rpwi_cm_msg m;
	if (k->marks & EX_GAP) {
		snprintf(out, 160, k->gap_to == k->p.psn ? "PSN 0x%06x" : "PSN 0x%06x..0x%06x",
			k->p.psn, k->gap_to);
		return out;
	}
	if (ex_is_cm(k)) {
		out[0] = '\0';
		if (rpwi_explain_cm(k, &m))
			rpwi_explain_packet_cm(&m, out);
		return out;
	}
	if (k->foreign == EX_CNP) {
		out[0] = '\0';
		return out;
	}
	if (k->foreign) {
		snprintf(out, 160, "PSN 0x%06x, %u B", k->p.psn, k->p.dma_len);
		return out;
	}
	if (k->undecoded) {
		snprintf(out, 160, "%u B", k->len);
		return out;
	}
	return rpwi_explain_packet_detail(&k->p, out);
}

/* ---- fields ---- */

struct out {
	ex_field_fn *fn;
	void *arg;
	const char *group;
};

static void put(const struct out *o, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void put(const struct out *o, const char *key, const char *fmt, ...)
{
	char value[600];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	o->fn(o->arg, o->group, key, value);
}

static void put_bytes(const struct out *o, const char *key, const uint8_t *b, size_t len)
{
	char text[600];
	size_t used = 0;
	while (len && !b[len - 1]) /* the rest is padding */
		len--;
	for (size_t i = 0; i < len && used + 4 < sizeof(text); i++)
		used += (size_t)snprintf(
			text + used, sizeof(text) - used, i && i % 4 == 0 ? " %02x" : "%02x", b[i]);
	text[used] = '\0';
	put(o, key, "%s", used ? text : "0");
}

static void put_gid(const struct out *o, const char *key, const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	char text[INET6_ADDRSTRLEN] = "";
	if (!memcmp(gid, mapped, 12))
		inet_ntop(AF_INET, gid + 12, text, sizeof(text));
	else
		inet_ntop(AF_INET6, gid, text, sizeof(text));
	put(o, key, "%s", text);
}

static void ip_fields(struct out *o, const struct ex_pkt *k)
{
	char a[CLI_GID_LEN], b[CLI_GID_LEN];
	o->group = k->flow.src.family == 6 ? "IPv6" : "IPv4";
	put(o, "ip_src", "%s", rpwi_explain_addr(&k->flow.src, a));
	put(o, "ip_dst", "%s", rpwi_explain_addr(&k->flow.dst, b));
	put(o, "ip_ttl", "%u", k->ttl);
	if (k->tos)
		put(o, "ip_tos", "0x%02x", k->tos);
	if (k->flow.src.family != 6)
		put(o, "ip_id", "0x%04x", k->ip_id);
	o->group = "UDP";
	put(o, "udp_src", "%u", k->flow.sport);
	put(o, "udp_dst", "%u", k->flow.dport);
}

static void bth_fields(struct out *o, const struct ex_pkt *k)
{
	const struct rpwi_pkt *p = &k->p;
	o->group = "BTH";
	put(o, "opcode", "0x%02x %s", p->opcode,
		k->foreign ? foreign_name(k) : rpwi_opcode_name(p->opcode));
	put(o, "solicited", "%d", p->solicited);
	put(o, "migreq", "%d", p->migreq);
	put(o, "pad", "%u", p->pad);
	put(o, "pkey", "0x%04x", p->pkey);
	if (p->fecn || p->becn)
		put(o, "ecn", "FECN %d, BECN %d", p->fecn, p->becn);
	put(o, "dqpn", "0x%06x", p->dqpn);
	put(o, "ackreq", "%d", p->ackreq);
	put(o, "psn", "0x%06x (%u)", p->psn, p->psn);
}

static void aeth_fields(struct out *o, const struct rpwi_pkt *p)
{
	unsigned value = p->syndrome & 31;
	o->group = "AETH";
	switch (rpwi_aeth_kind(p->syndrome)) {
	case RPWI_AETH_ACK:
		if (value == 31)
			put(o, "syndrome", "0x%02x ACK", p->syndrome);
		else
			put(o, "syndrome", "0x%02x ACK, credits code %u", p->syndrome, value);
		break;
	case RPWI_AETH_RNR_NAK:
		put(o, "syndrome", "0x%02x RNR NAK, %.2f ms", p->syndrome,
			rpwi_explain_packet_rnr_ms(value));
		break;
	case RPWI_AETH_NAK:
		put(o, "syndrome", "0x%02x NAK, %s", p->syndrome,
			value < RPWI_NAK_COUNT ? rpwi_nak_name[value] : "?");
		break;
	default:
		put(o, "syndrome", "0x%02x reserved", p->syndrome);
	}
	put(o, "msn", "%u", p->msn);
}

static void extended_fields(struct out *o, const struct rpwi_pkt *p)
{
	unsigned op = rpwi_pkt_op(p);
	if (rpwi_pkt_svc(p) == RPWI_SVC_UD) {
		o->group = "DETH";
		put(o, "qkey", "0x%08x", p->qkey);
		put(o, "sqpn", "0x%06x", p->sqpn);
	}
	if (rpwi_op_has(op, RPWI_F_RETH)) {
		o->group = "RETH";
		put(o, "va", "0x%016" PRIx64, p->va);
		put(o, "rkey", "0x%08x", p->rkey);
		put(o, "dma_len", "%u", p->dma_len);
	}
	if (rpwi_op_has(op, RPWI_F_ATOMICETH)) {
		o->group = "AtomicETH";
		put(o, "va", "0x%016" PRIx64, p->va);
		put(o, "rkey", "0x%08x", p->rkey);
		put(o, "swap_add", "0x%" PRIx64, p->swap_add);
		if (op == RPWI_OP_CMP_SWAP)
			put(o, "compare", "0x%" PRIx64, p->compare);
	}
	if (rpwi_op_has(op, RPWI_F_AETH))
		aeth_fields(o, p);
	if (rpwi_op_has(op, RPWI_F_ATOMICACK)) {
		o->group = "AtomicAckETH";
		put(o, "atomic_orig", "0x%" PRIx64, p->atomic_orig);
	}
	if (rpwi_op_has(op, RPWI_F_IMM)) {
		o->group = "ImmDt";
		put(o, "imm", "0x%08x", rpwi_get_be32(&p->imm_be));
	}
	if (rpwi_op_has(op, RPWI_F_IETH)) {
		o->group = "IETH";
		put(o, "inv_rkey", "0x%08x", p->inv_rkey);
	}
}

/* IB A19: the placement (global visibility, persistence) and the flushed range. */
static void flush_fields(struct out *o, const struct rpwi_pkt *p)
{
	static const char *const what[] = {"the range", "the memory region", "2", "3"};
	o->group = "FETH";
	put(o, "feth_type", "%s%s%s", p->imm_be & 1 ? "global visibility" : "",
		(p->imm_be & 3) == 3 ? ", " : "", p->imm_be & 2 ? "persistence" : "");
	put(o, "feth_what", "%s", what[p->imm_be >> 4 & 3]);
	o->group = "RETH";
	put(o, "va", "0x%016" PRIx64, p->va);
	put(o, "rkey", "0x%08x", p->rkey);
	put(o, "dma_len", "%u", p->dma_len);
}

static void put_timeout(const struct out *o, const char *key, unsigned code)
{
	put(o, key, code ? "%u (%.3f ms)" : "%u", code, 0.004096 * (double)(1ull << (code & 31)));
}

static void req_fields(struct out *o, const struct rpwi_cm_msg *m)
{
	static const char *const transport[] = {"RC", "UC", "RD", "XRC"};
	put(o, "comm_id", "0x%08x", m->local_comm_id);
	put(o, "service_id", "0x%016" PRIx64, m->req.service_id);
	put_bytes(o, "ca_guid", m->req.ca_guid, 8);
	put(o, "cm_qpn", "0x%06x", m->req.qpn);
	put(o, "start_psn", "0x%06x (%u)", m->req.starting_psn, m->req.starting_psn);
	put(o, "transport", "%s", transport[m->req.transport & 3]);
	put(o, "resp_res", "%u", m->req.responder_resources);
	put(o, "init_depth", "%u", m->req.initiator_depth);
	put(o, "retry", "%u", m->req.retry_count);
	put(o, "rnr_retry", "%u", m->req.rnr_retry_count);
	put(o, "cm_retries", "%u", m->req.max_cm_retries);
	put_timeout(o, "cm_timeout", m->req.remote_cm_response_timeout);
	put(o, "path_mtu", "%u", rpwi_explain_packet_mtu(m->req.path_mtu));
	put(o, "cm_pkey", "0x%04x", m->req.pkey);
	put_gid(o, "gid_local", m->req.primary.local_gid);
	put_gid(o, "gid_remote", m->req.primary.remote_gid);
	put_timeout(o, "ack_timeout", m->req.primary.local_ack_timeout);
}

static void cma_fields(struct out *o, const struct rpwi_cm_msg *m)
{
	struct rpwi_cma_hdr h;
	char text[CLI_GID_LEN];
	if (rpwi_cma_hdr_decode(m->pdata, m->pdata_len, &h)) {
		put_bytes(o, "private_data", m->pdata, m->pdata_len);
		return;
	}
	o->group = "CMA";
	put(o, "cma_src", "%s", rpwi_explain_addr(&h.src, text));
	put(o, "cma_dst", "%s", rpwi_explain_addr(&h.dst, text));
	put(o, "cma_port", "%u", h.src_port);
	put_bytes(o, "private_data", m->pdata + RPWI_CMA_HDR_LEN,
		(size_t)m->pdata_len - RPWI_CMA_HDR_LEN);
}

static void cm_fields(struct out *o, const struct ex_pkt *k)
{
	struct rpwi_cm_msg m;
	o->group = "MAD";
	if (!rpwi_explain_cm(k, &m))
		return;
	put(o, "mad_class", "7 (communication management)");
	put(o, "mad_attr", "0x%04x %s", m.attr, rpwi_cm_attr_name(m.attr));
	put(o, "mad_tid", "0x%016" PRIx64, m.tid);
	o->group = rpwi_cm_attr_name(m.attr);
	switch (m.attr) {
	case RPWI_CM_REQ:
		req_fields(o, &m);
		cma_fields(o, &m);
		return;
	case RPWI_CM_SIDR_REQ:
		put(o, "request_id", "0x%08x", m.local_comm_id);
		put(o, "service_id", "0x%016" PRIx64, m.sidr_req.service_id);
		cma_fields(o, &m);
		return;
	case RPWI_CM_SIDR_REP:
		put(o, "request_id", "0x%08x", m.local_comm_id);
		put(o, "sidr_status", "%u", m.sidr_rep.status);
		put(o, "cm_qpn", "0x%06x", m.sidr_rep.qpn);
		put(o, "qkey", "0x%08x", m.sidr_rep.qkey);
		break;
	default:
		put(o, "comm_id", "0x%08x", m.local_comm_id);
		put(o, "peer_comm_id", "0x%08x", m.remote_comm_id);
	}
	if (m.attr == RPWI_CM_REP) {
		put(o, "cm_qpn", "0x%06x", m.rep.qpn);
		put(o, "start_psn", "0x%06x (%u)", m.rep.starting_psn, m.rep.starting_psn);
		put(o, "resp_res", "%u", m.rep.responder_resources);
		put(o, "init_depth", "%u", m.rep.initiator_depth);
		put(o, "rnr_retry", "%u", m.rep.rnr_retry_count);
		put_bytes(o, "ca_guid", m.rep.ca_guid, 8);
	} else if (m.attr == RPWI_CM_REJ) {
		put(o, "rej_msg", "%s",
			m.rej.msg_rejected == 0   ? "REQ"
			: m.rej.msg_rejected == 1 ? "REP"
						  : "no message");
		put(o, "rej_reason", "%u %s", m.rej.reason, rpwi_cm_rej_name(m.rej.reason));
	} else if (m.attr == RPWI_CM_MRA) {
		put_timeout(o, "service_timeout", m.mra.service_timeout);
	} else if (m.attr == RPWI_CM_DREQ) {
		put(o, "dreq_qpn", "0x%06x", m.dreq.remote_qpn);
	}
	put_bytes(o, "private_data", m.pdata, m.pdata_len);
}

void rpwi_explain_fields(const struct ex_pkt *k, ex_field_fn *fn, void *arg)
{
	struct out o = {.fn = fn, .arg = arg};
	if (k->marks & EX_GAP)
		return;
	ip_fields(&o, k);
	bth_fields(&o, k);
	if (!k->undecoded)
		extended_fields(&o, &k->p);
	if (k->foreign == EX_FLUSH)
		flush_fields(&o, &k->p);
	if (ex_is_cm(k))
		cm_fields(&o, k);
	if (!k->undecoded && k->p.payload_len && !ex_is_cm(k)) {
		o.group = "payload";
		put(&o, "payload_len", "%u", k->p.payload_len);
	}
	if (!k->cut && k->len >= RPWI_BTH_LEN + RPWI_ICRC_LEN) {
		o.group = "ICRC";
		put(&o, "icrc", k->marks & EX_BAD_ICRC ? "wrong" : "right");
	}
}
