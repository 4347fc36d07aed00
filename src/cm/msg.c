/* SPDX-License-Identifier: BSD-3-Clause */
/* msg.c - what each message says of a connection. Pure: nothing is sent or changed here. */
#include "cm/internal.h"

enum {
	/* where the caller has no opinion; 0 and 1 would mean that the peer is on this subnet (IB
	 * 12.7.21) */
	HOP_LIMIT = 64,
	LID_PERMISSIVE = 0xffff, /* RoCE has no LIDs */
	RATE_10_GBPS = 3,
	/* 4.096 us * 2^15 = 134 ms: a program's process, not a card, acknowledges */
	TARGET_ACK_DELAY = 15,
};

static void build_req(const struct rpwi_cm_conn *c, struct rpwi_cm_msg *m)
{
	const struct rpwi_cm_path *p = &c->path;
	struct rpwi_cm_req_path *pri = &m->req.primary;

	m->remote_comm_id = 0;
	m->req.service_id = c->service_id;
	memcpy(m->req.ca_guid, c->local_ca_guid, 8);
	m->req.qkey = c->local.qkey;
	m->req.qpn = c->local.qpn;
	m->req.starting_psn = c->local.starting_psn;
	m->req.responder_resources = c->local.responder_resources;
	m->req.initiator_depth = c->local.initiator_depth;
	m->req.remote_cm_response_timeout = m->req.local_cm_response_timeout =
		RPWI_CM_RESPONSE_TIMEOUT;
	m->req.flow_control = c->local.flow_control;
	m->req.srq = c->local.srq;
	m->req.retry_count = c->local.retry_count;
	m->req.rnr_retry_count = c->local.rnr_retry_count;
	m->req.max_cm_retries = RPWI_CM_RETRIES;
	m->req.path_mtu = p->mtu;
	m->req.pkey = RPWI_PKEY_DEFAULT;
	pri->local_lid = pri->remote_lid = LID_PERMISSIVE;
	memcpy(pri->local_gid, p->local_gid, 16);
	memcpy(pri->remote_gid, p->remote_gid, 16);
	pri->flow_label = p->flow_label;
	pri->packet_rate = RATE_10_GBPS;
	pri->traffic_class = p->traffic_class;
	pri->hop_limit = p->hop_limit > 1 ? p->hop_limit : HOP_LIMIT;
	pri->sl = p->sl;
	pri->local_ack_timeout = c->local.ack_timeout;
}

static void build_rep(const struct rpwi_cm_conn *c, struct rpwi_cm_msg *m)
{
	m->rep.qkey = c->local.qkey;
	m->rep.qpn = c->local.qpn;
	m->rep.starting_psn = c->local.starting_psn;
	m->rep.responder_resources = c->local.responder_resources;
	m->rep.initiator_depth = c->local.initiator_depth;
	m->rep.target_ack_delay = TARGET_ACK_DELAY;
	m->rep.flow_control = c->local.flow_control;
	m->rep.srq = c->local.srq;
	m->rep.rnr_retry_count = c->local.rnr_retry_count;
	memcpy(m->rep.ca_guid, c->local_ca_guid, 8);
}

/* Which of the peer's messages a REJ or MRA of ours is about (IB 12.6.6.1, 12.6.7.1). */
static uint8_t about(const struct rpwi_cm_conn *c)
{
	switch (c->state) {
	case RPWI_CM_REQ_RCVD:
		return CM_REJECTED_REQ;
	case RPWI_CM_REP_RCVD:
		return CM_REJECTED_REP;
	default:
		return CM_REJECTED_OTHER;
	}
}

static void build_rej(const struct rpwi_cm_conn *c, const struct cm_args *a, struct rpwi_cm_msg *m)
{
	/* A REP that has just come, and cannot be: its sender is not in the connection yet. */
	bool rep = a->m && a->m->attr == RPWI_CM_REP;
	if (rep)
		m->remote_comm_id = a->m->local_comm_id;
	m->rej.msg_rejected = rep ? CM_REJECTED_REP : about(c);
	m->rej.reason = a->reason;
	m->rej.ari_len = (uint8_t)RPWI_MIN(a->ari_len, sizeof(m->rej.ari));
	if (m->rej.ari_len)
		memcpy(m->rej.ari, a->ari, m->rej.ari_len);
	if (a->reason == RPWI_REJ_TIMEOUT && !m->rej.ari_len) {
		/* IB 12.6.7.2: for a time-out, who is speaking: the peer may have to find the
		 * connection by that and our ID. Where we have heard of no ID of the peer's, our
		 * own addition: what the request was for, since on a host of several ropeways that
		 * alone says whose it is (rpwi_cm_peek). */
		m->rej.ari_len = sizeof(c->local_ca_guid);
		memcpy(m->rej.ari, c->local_ca_guid, sizeof(c->local_ca_guid));
		if (!c->remote_id && !c->sidr) {
			rpwi_put_be64(m->rej.ari + m->rej.ari_len, c->service_id);
			m->rej.ari_len += 8;
		}
	}
}

void rpwi_cm_build(
	const struct rpwi_cm_conn *c, uint16_t attr, const struct cm_args *a, struct rpwi_cm_msg *m)
{
	memset(m, 0, sizeof(*m));
	m->attr = attr;
	m->tid = c->tid;
	m->local_comm_id = c->local_id;
	m->remote_comm_id = c->remote_id;
	switch (attr) {
	case RPWI_CM_REQ:
		build_req(c, m);
		break;
	case RPWI_CM_MRA:
		m->mra.msg_mraed = about(c);
		m->mra.service_timeout = RPWI_CM_MRA_TIMEOUT;
		break;
	case RPWI_CM_REJ:
		build_rej(c, a, m);
		break;
	case RPWI_CM_REP:
		build_rep(c, m);
		break;
	case RPWI_CM_DREQ:
		m->tid = c->dreq_tid;
		m->dreq.remote_qpn = c->remote.qpn;
		break;
	case RPWI_CM_DREP:
		m->tid = c->dreq_tid;
		break;
	case RPWI_CM_SIDR_REQ:
		m->sidr_req.pkey = RPWI_PKEY_DEFAULT;
		m->sidr_req.service_id = c->service_id;
		break;
	case RPWI_CM_SIDR_REP:
		m->local_comm_id = c->remote_id;
		m->sidr_rep.status = a->status;
		m->sidr_rep.qpn = a->qpn;
		m->sidr_rep.qkey = a->qkey;
		m->sidr_rep.service_id = c->service_id;
		break;
	default:
		break;
	}
	m->pdata_len = (uint8_t)RPWI_MIN(a->pdata_len, sizeof(m->pdata));
	if (m->pdata_len)
		memcpy(m->pdata, a->pdata, m->pdata_len);
}

/* An answer goes back with the two IDs exchanged; a REQ names none of ours. */
static void answer(const struct rpwi_cm_msg *to, uint16_t attr, struct rpwi_cm_msg *m)
{
	memset(m, 0, sizeof(*m));
	m->attr = attr;
	m->tid = to->tid;
	m->local_comm_id = to->remote_comm_id;
	m->remote_comm_id = to->local_comm_id;
}

void rpwi_cm_build_rej(
	const struct rpwi_cm_msg *to, uint16_t reason, uint8_t rejected, struct rpwi_cm_msg *m)
{
	answer(to, RPWI_CM_REJ, m);
	m->rej.msg_rejected = rejected;
	m->rej.reason = reason;
}

void rpwi_cm_build_drep(const struct rpwi_cm_msg *to, struct rpwi_cm_msg *m)
{
	answer(to, RPWI_CM_DREP, m);
}

void rpwi_cm_build_sidr_rep(const struct rpwi_cm_msg *to, uint8_t status, struct rpwi_cm_msg *m)
{
	answer(to, RPWI_CM_SIDR_REP, m);
	m->local_comm_id = to->local_comm_id; /* the request ID */
	m->sidr_rep.status = status;
	m->sidr_rep.service_id = to->sidr_req.service_id;
}
