/* SPDX-License-Identifier: BSD-3-Clause */
/* rx.c - received MADs: whose each is, and what it is to that connection. A message is believed
 * only if it names our communication ID, comes from the address of the connection's peer, and names
 * the peer's ID and our QP where it must; else it is counted as stray. What no connection answers,
 * is answered here.
 */
#include "cm/internal.h"

struct rx {
	struct rpwi_cm *cm;
	const struct rpwi_cm_path *path;
	const struct rpwi_cm_msg *m;
	uint64_t now_ns;
};

static void stray(const struct rx *r, const char *why)
{
	r->cm->stats.stray++;
	rpwi_debug("cm: %s for 0x%08x from 0x%08x ignored: %s", rpwi_cm_attr_name(r->m->attr),
		r->m->remote_comm_id, r->m->local_comm_id, why);
}

static void answer_rej(const struct rx *r, uint16_t reason, uint8_t rejected)
{
	struct rpwi_cm_msg rej;
	rpwi_cm_build_rej(r->m, reason, rejected, &rej);
	rpwi_cm_send_msg(r->cm, r->path, &rej);
}

static void answer_sidr(const struct rx *r, uint16_t status)
{
	struct rpwi_cm_msg rep;
	rpwi_cm_build_sidr_rep(r->m, (uint8_t)RPWI_MIN(status, (uint16_t)CM_SIDR_STATUS_MAX), &rep);
	rpwi_cm_send_msg(r->cm, r->path, &rep);
}

static bool conn_take(const struct rx *r, struct rpwi_cm_conn *c, enum cm_input in)
{
	if (rpwi_cm_conn_input(c, in, &(struct cm_args){.m = r->m}, r->now_ns))
		return true;
	stray(r, rpwi_cm_state_name[c->state]);
	return false;
}

/* ---- Requests ---- */

/* The peer uses again what we know as another connection's: it has forgotten that one. It is told
 * now (REJ 10), the old connection's program by the disconnect that begins there (IB
 * 12.9.8.3.1). */
static void stale(const struct rx *r, struct rpwi_cm_node *old)
{
	answer_rej(r, RPWI_REJ_STALE_CONN, CM_REJECTED_REQ);
	if (!old->lingers)
		rpwi_cm_conn_input(
			rpwi_cm_node_conn(old), CM_IN_STALE, &(struct cm_args){0}, r->now_ns);
}

/* A connection that is over stands in no new one's way. TIMEWAIT keeps a QP's owner from using it
 * again too soon (IB 12.9.8.4); that its peer waits, too, is of no use to anybody: late packets of
 * the old connection name the QP on this side, and that is another one. So the peer's QP and ID
 * are forgotten when they come again, as the kernel's cm forgets them on its way into TIMEWAIT.
 * Else more connections in that time than the peer has QPNs, and the next is refused. */
static bool yields(struct rpwi_cm_node *old)
{
	if (!old->lingers && rpwi_cm_node_conn(old)->state != RPWI_CM_TIMEWAIT)
		return false;
	rpwi_cm_forget(old);
	return true;
}

/* Who is connected, or about to be, to this QP of the peer. */
static struct rpwi_cm_node *holder_of(const struct rx *r, uint32_t qpn, const uint8_t guid[8])
{
	struct rpwi_cm_node *n;
	do
		n = rpwi_cm_find_qp(r->cm, qpn, guid, &r->path->remote);
	while (n && yields(n));
	return n;
}

/* True when the request has been dealt with: we know its ID. The transaction ID tells a repetition
 * from a new life of the peer. */
static bool known_request(const struct rx *r, bool sidr)
{
	struct rpwi_cm_node *n =
		rpwi_cm_find_id(r->cm, r->m->local_comm_id, &r->path->remote, sidr);
	if (!n)
		return false;
	if (n->lingers) {
		struct cm_linger *l = rpwi_cm_node_linger(n);
		if (l->tid == r->m->tid) {
			rpwi_cm_linger_rx(r->cm, l, r->m, r->now_ns);
			return true;
		}
		rpwi_cm_linger_drop(r->cm, l);
		return false;
	}
	struct rpwi_cm_conn *c = rpwi_cm_node_conn(n);
	if (c->tid == r->m->tid)
		conn_take(r, c, sidr ? CM_IN_SIDR_REQ_AGAIN : CM_IN_REQ_AGAIN);
	else if (sidr)
		stray(r, "its request ID is in use");
	else if (yields(n))
		return false;
	else
		stale(r, n);
	return true;
}

/* What this engine does not carry, whoever listens. 0, or the reason to refuse. */
static uint16_t req_refused(const struct rpwi_cm_msg *m)
{
	enum { TRANSPORT_RD = 2, MTU_256 = 1, MTU_4096 = 5 };
	if (m->req.transport == TRANSPORT_RD)
		return RPWI_REJ_INVALID_TRANSPORT_TYPE;
	if (m->req.path_mtu < MTU_256 || m->req.path_mtu > MTU_4096)
		return RPWI_REJ_INVALID_MTU;
	return 0;
}

/* Of a request, the path that it asks for lies between where it came from and where it arrived. */
static struct rpwi_cm_path requested_path(const struct rx *r, bool sidr)
{
	struct rpwi_cm_path p = *r->path;
	if (!sidr) {
		p.mtu = r->m->req.path_mtu;
		p.traffic_class = r->m->req.primary.traffic_class;
		p.hop_limit = r->m->req.primary.hop_limit;
		p.sl = r->m->req.primary.sl;
		p.flow_label = r->m->req.primary.flow_label;
	}
	return p;
}

/* Ask for storage, and begin. Gives 0, or the reason (a SIDR status) to refuse. */
static uint16_t begin(const struct rx *r, bool sidr)
{
	uint16_t reason = sidr ? CM_SIDR_NO_SERVICE : RPWI_REJ_INVALID_SERVICE_ID;
	struct rpwi_cm_path path = requested_path(r, sidr);

	if (!rpwi_cm_id_left(r->cm))
		return sidr ? CM_SIDR_REJECTED : RPWI_REJ_NO_RESOURCES;
	struct rpwi_cm_conn *c = r->cm->ops->request(r->cm->user, &path, r->m, sidr, &reason);
	if (!c) {
		bool nobody = reason == (sidr ? CM_SIDR_NO_SERVICE : RPWI_REJ_INVALID_SERVICE_ID);
		r->cm->stats.no_service += nobody;
		if (reason == RPWI_CM_NO_ANSWER)
			return 0;
		if (!reason)
			reason = sidr ? CM_SIDR_REJECTED : RPWI_REJ_CONSUMER_DEFINED;
		return reason;
	}
	rpwi_cm_conn_init(r->cm, c, c->user);
	rpwi_cm_conn_requested(c, &path, r->m, r->now_ns);
	return 0;
}

static void rx_req(const struct rx *r)
{
	if (known_request(r, false))
		return;
	uint16_t reason = req_refused(r->m);
	struct rpwi_cm_node *old = reason ? NULL : holder_of(r, r->m->req.qpn, r->m->req.ca_guid);
	if (old) {
		stale(r, old);
		return;
	}
	if (!reason)
		reason = begin(r, false);
	if (reason)
		answer_rej(r, reason, CM_REJECTED_REQ);
}

static void rx_sidr_req(const struct rx *r)
{
	if (known_request(r, true))
		return;
	uint16_t status = begin(r, true);
	if (status)
		answer_sidr(r, status);
}

/* ---- Messages that name one of our connections ---- */

/* Does the message name the peer's communication ID? Before a REP we do not know it; a REJ of a REQ
 * need not name one (the peer may have made none). */
static bool names_peer(const struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m)
{
	bool unknown = c->state == RPWI_CM_REQ_SENT || c->state == RPWI_CM_REP_WAIT ||
		       c->state == RPWI_CM_IDLE;
	return unknown || c->remote_id == m->local_comm_id;
}

/* The node that a message is for, if it is its peer's. */
static struct rpwi_cm_node *receiver(const struct rx *r, uint32_t id)
{
	struct rpwi_cm_node *n = rpwi_cm_id_find(r->cm, id);
	return n && rpwi_addr_eq(&n->remote, &r->path->remote) ? n : NULL;
}

/* No connection of ours ever had, or still has, the ID that the message names. */
static bool is_unknown(const struct rx *r)
{
	return rpwi_cm_id_is_ours(r->cm, r->m->remote_comm_id) &&
	       !rpwi_cm_id_find(r->cm, r->m->remote_comm_id);
}

/* The connection, or NULL when the message has been dealt with, or is nobody's. */
static struct rpwi_cm_conn *receiver_conn(const struct rx *r)
{
	struct rpwi_cm_node *n = receiver(r, r->m->remote_comm_id);
	if (!n) {
		stray(r, is_unknown(r) ? "no such connection" : "not from the connection's peer");
		return NULL;
	}
	if (n->sidr) {
		stray(r, "that is a SIDR request");
		return NULL;
	}
	if (n->lingers) {
		if (n->remote_id == r->m->local_comm_id)
			rpwi_cm_linger_rx(r->cm, rpwi_cm_node_linger(n), r->m, r->now_ns);
		else
			stray(r, "it does not name the peer's ID");
		return NULL;
	}
	if (!names_peer(rpwi_cm_node_conn(n), r->m)) {
		stray(r, "it does not name the peer's ID");
		return NULL;
	}
	return rpwi_cm_node_conn(n);
}

static void rx_mra(const struct rx *r)
{
	struct rpwi_cm_conn *c = receiver_conn(r);
	if (!c)
		return;
	if (r->m->mra.msg_mraed != (c->passive ? CM_REJECTED_REP : CM_REJECTED_REQ))
		stray(r, "an MRA of something else");
	else
		conn_take(r, c, CM_IN_MRA);
}

/* A REJ because of a time-out may name only its sender, who never had an answer: by its ID and CA
 * GUID (IB 12.6.7.2). */
static struct rpwi_cm_conn *rejected_by_sender(const struct rx *r)
{
	const struct rpwi_cm_msg *m = r->m;
	if (m->remote_comm_id || m->rej.reason != RPWI_REJ_TIMEOUT || m->rej.ari_len < 8)
		return NULL;
	struct rpwi_cm_node *n = rpwi_cm_find_id(r->cm, m->local_comm_id, &r->path->remote, false);
	return n && !n->lingers && !memcmp(n->remote_ca_guid, m->rej.ari, 8) ? rpwi_cm_node_conn(n)
									     : NULL;
}

static void rx_rej(const struct rx *r)
{
	struct rpwi_cm_conn *c = rejected_by_sender(r);
	if (!c && r->m->remote_comm_id)
		c = receiver_conn(r);
	else if (!c)
		stray(r, "no such connection");
	if (c && !rpwi_cm_conn_asks_again(c, r->m->rej.reason, r->now_ns))
		conn_take(r, c,
			r->m->rej.reason == RPWI_REJ_STALE_CONN ? CM_IN_REJ_STALE : CM_IN_REJ);
}

/* The first REP of a connection names QP and ID of a peer that we may know as another's. */
static bool rep_is_stale(const struct rx *r)
{
	struct rpwi_cm_node *n =
		rpwi_cm_find_id(r->cm, r->m->local_comm_id, &r->path->remote, false);
	return (n && !yields(n)) || holder_of(r, r->m->rep.qpn, r->m->rep.ca_guid);
}

static void rx_rep(const struct rx *r)
{
	bool unknown = is_unknown(r);
	struct rpwi_cm_conn *c = receiver_conn(r);
	if (unknown) {
		/* Nobody waits for it any more; its sender need not either. */
		answer_rej(r, RPWI_REJ_INVALID_COMM_ID, CM_REJECTED_REP);
		return;
	}
	if (!c)
		return;
	if (c->passive)
		stray(r, "this side is the passive one");
	else if (c->state != RPWI_CM_REQ_SENT && c->state != RPWI_CM_REP_WAIT)
		conn_take(r, c, CM_IN_REP);
	else if (rep_is_stale(r))
		conn_take(r, c, CM_IN_REP_STALE);
	else
		rpwi_cm_conn_replied(c, r->m, r->now_ns);
}

static void rx_rtu(const struct rx *r)
{
	struct rpwi_cm_conn *c = receiver_conn(r);
	if (!c)
		return;
	if (c->passive)
		conn_take(r, c, CM_IN_RTU);
	else
		stray(r, "this side is the active one");
}

static void rx_dreq(const struct rx *r)
{
	bool unknown = is_unknown(r);
	struct rpwi_cm_msg drep;
	struct rpwi_cm_conn *c = receiver_conn(r);
	if (unknown) {
		/* The connection is over, and its record as well (IB 12.9.8.3.3): the peer wants to
		 * hear just that. */
		rpwi_cm_build_drep(r->m, &drep);
		rpwi_cm_send_msg(r->cm, r->path, &drep);
		return;
	}
	if (!c)
		return;
	if (r->m->dreq.remote_qpn != c->local.qpn) {
		stray(r, "it names another QP");
		return;
	}
	/* Only a side that is established disconnects: our REP has arrived, and the RTU was lost or
	 * overtaken. */
	if (c->state == RPWI_CM_REP_SENT || c->state == RPWI_CM_RTU_WAIT) {
		struct rpwi_cm_node *n = &c->node;
		uint32_t id = c->local_id;
		rpwi_cm_conn_input(c, CM_IN_COMM_ESTABLISHED, &(struct cm_args){0}, r->now_ns);
		if (rpwi_cm_id_find(r->cm, id) != n)
			return; /* destroyed by the event's callback; our DREQ is under way */
	}
	c->dreq_tid = r->m->tid; /* the DREP's; of our own DREQ it is in the message that is kept */
	conn_take(r, c, CM_IN_DREQ);
}

static void rx_drep(const struct rx *r)
{
	struct rpwi_cm_conn *c = receiver_conn(r);
	if (c)
		conn_take(r, c, CM_IN_DREP);
}

static void rx_sidr_rep(const struct rx *r)
{
	struct rpwi_cm_node *n = receiver(r, r->m->local_comm_id);
	struct rpwi_cm_conn *c = n && n->sidr && !n->lingers ? rpwi_cm_node_conn(n) : NULL;
	uint16_t reason =
		r->m->sidr_rep.status == CM_SIDR_NO_SERVICE ? RPWI_REJ_INVALID_SERVICE_ID : 0;
	if (!c)
		stray(r, "no such request");
	else if (!rpwi_cm_conn_asks_again(c, reason, r->now_ns))
		conn_take(r, c, CM_IN_SIDR_REP);
}

static void rx_unspoken(const struct rx *r) { stray(r, "path migration is not supported"); }

void rpwi_cm_rx(struct rpwi_cm *cm, const struct rpwi_cm_path *path, const uint8_t *mad, size_t len,
	uint64_t now_ns)
{
	static void (*const handlers[0x20])(const struct rx *r) = {
		[RPWI_CM_REQ] = rx_req,
		[RPWI_CM_MRA] = rx_mra,
		[RPWI_CM_REJ] = rx_rej,
		[RPWI_CM_REP] = rx_rep,
		[RPWI_CM_RTU] = rx_rtu,
		[RPWI_CM_DREQ] = rx_dreq,
		[RPWI_CM_DREP] = rx_drep,
		[RPWI_CM_SIDR_REQ] = rx_sidr_req,
		[RPWI_CM_SIDR_REP] = rx_sidr_rep,
		[RPWI_CM_LAP] = rx_unspoken,
		[RPWI_CM_APR] = rx_unspoken,
	};
	struct rpwi_cm_msg m;
	int err = rpwi_cm_decode(mad, len, &m);
	if (err) {
		cm->stats.bad_mads++;
		rpwi_debug("cm: a MAD of %zu bytes ignored: %s", len, strerror(-err));
		return;
	}
	cm->stats.rx[m.attr]++;
	handlers[m.attr](&(struct rx){cm, path, &m, now_ns});
}
