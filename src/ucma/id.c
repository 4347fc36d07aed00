/* SPDX-License-Identifier: BSD-3-Clause */
/* id.c - an rdma_cm id: from address to route to connection, and what librdmacm asks of it on the
 * way. */
#include "check/order.h"
#include "device/fact.h"
#include "ucma/ucma_priv.h"

#include <stdlib.h>

/* ---- handles ---- */

static struct {
	struct id *at[IDS_MAX]; /* by handle */
	uint32_t hint;
	uint64_t serials;
} ids;

static bool handle_give(struct id *id)
{
	for (uint32_t i = 0; i < IDS_MAX; i++) {
		uint32_t h = (ids.hint + i) % IDS_MAX;
		if (ids.at[h])
			continue;
		ids.at[h] = id;
		id->handle = h;
		ids.hint = h + 1;
		return true;
	}
	rpwi_error("more than %d rdma_cm ids", IDS_MAX);
	return false;
}

struct id *id_find(struct channel *ch, uint32_t handle, int *err)
{
	struct id *id = handle < IDS_MAX ? ids.at[handle] : NULL;
	bool there = id && !id->listener;
	*err = there ? -EINVAL : -ENOENT;
	if (!there || id->ch != ch)
		return NULL;
	*err = 0;
	return id;
}

static uint32_t random_psn(void) { return (uint32_t)rpwi_random64() & RPWI_PSN_MASK; }

struct id *id_new(struct channel *ch, uint16_t ps, uint8_t qp_type, uint64_t uid)
{
	struct id *id = calloc(1, sizeof(*id));
	if (!id || !handle_give(id)) {
		free(id);
		return NULL;
	}
	id->ch = ch;
	id->serial = ++ids.serials << 16 | id->handle; /* IDS_MAX handles */
	id->ps = ps;
	id->qp_type = qp_type;
	id->uid = uid;
	id->qkey = UDP_QKEY;
	id->seq_num = random_psn();
	id->ack_timeout = ACK_TIMEOUT_DEFAULT;
	rpwi_list_init(&id->link);
	rpwi_list_init(&id->listen_link);
	rpwi_list_init(&id->claim_link);
	rpwi_list_init(&id->mcasts);
	rpwi_list_init(&id->asking);
	rpwi_list_add_tail(&ch->ids, &id->link);
	return id;
}

uint64_t id_service(const struct id *id, uint16_t port) { return (uint64_t)id->ps << 16 | port; }

static bool is_ud(const struct id *id) { return id->qp_type == IBV_QPT_UD; }

/* A listener goes, and the requests that its program has taken are still to be answered: a repeated
 * one now would ask for a service that nobody has, and be rejected by another process of this
 * host. */
static void defer_requests(const struct id *listener)
{
	uint64_t service = id_service(listener, listener->src.port);
	for (uint32_t i = 0; i < IDS_MAX; i++)
		if (ids.at[i] && ids.at[i]->has_conn && ids.at[i]->conn.service_id == service)
			rpwi_cm_defer(&ids.at[i]->conn, rpwi_gsi_now());
}

void id_free(struct id *id)
{
	events_of_id_drop(id);
	multicast_id_end(id);
	if (id->state == ID_LISTEN && !is_ud(id))
		defer_requests(id);
	listen_end(id);
	rpwi_list_del(&id->asking);
	if (id->has_conn && id->conn.state == RPWI_CM_ESTABLISHED)
		rpwi_fact(RPWI_FACT_DISCONNECT, id->conn.local.qpn, 1, "destroyed its rdma_cm id");
	if (id->has_conn)
		rpwi_cm_destroy(&id->conn, rpwi_gsi_now());
	real_end(id);
	listen_claim_drop(id);
	if (id->port.family)
		rpwi_gsi_port_put(&id->port);
	rpwi_list_del(&id->link);
	ids.at[id->handle] = NULL;
	if (id->handle < ids.hint)
		ids.hint = id->handle;
	free(id);
}

int id_use_port(struct id *id, const struct rpwi_addr *local)
{
	char why[RPWI_WHY_LEN] = "";
	if (id->port.family)
		return 0;
	int rc = rpwi_gsi_port_get(local, why, sizeof(why));
	if (rc) {
		rpwi_error("rdma_cm: cannot use UDP port 4791: %s", why);
		return rc;
	}
	id->port = *local;
	return 0;
}

/* ---- addresses ---- */

static const struct rpwi_addr any_of_family[] = {[4] = {.family = 4}, [6] = {.family = 6}};

static int id_take_device(struct id *id, const struct rpwi_addr *local)
{
	/* The kernel's cma_acquire_dev_by_src_ip: that port space is of InfiniBand's interfaces. */
	if (id->ps == RDMA_PS_IPOIB)
		return -EINVAL;
	int rc = rpwi_gsi_local(local, &id->dev);
	if (!rc)
		rc = channel_engine(id->ch);
	return rc ? rc : id_use_port(id, local);
}

int id_bind(struct id *id, const struct endpoint *e)
{
	if (id->state != ID_IDLE)
		return -EINVAL;
	struct endpoint was = id->src;
	int rc = addr_is_any(&e->addr) ? channel_engine(id->ch) : id_take_device(id, &e->addr);
	if (rc)
		return rc;
	/* As the kernel: an address of the loopback interface, which no device has, is bound to
	 * none of the others. libfabric would take the one that it is bound to for the only one. */
	if (id->dev.stands_in)
		id->dev = (struct rpwi_gsi_local){0};
	id->src = *e;
	rc = listen_claim_take(id, e->port);
	if (rc) {
		id->src = was;
		return rc;
	}
	id->state = ID_BOUND;
	return 0;
}

static void resolved(struct id *id, int status)
{
	id->state = status ? ID_BOUND : ID_ADDR_RESOLVED;
	event_new(id, status ? EV_ADDR_ERROR : EV_ADDR_RESOLVED, status);
}

int id_resolve_addr(struct id *id, const struct endpoint *src, const struct endpoint *dst)
{
	struct rpwi_addr local, to = dst->addr;
	char text[64];
	if (id->state == ID_IDLE && src->addr.family && (!addr_is_any(&src->addr) || src->port)) {
		int rc = id_bind(id, src);
		if (rc)
			return rc;
	}
	if (id->state != ID_IDLE && id->state != ID_BOUND)
		return -EINVAL;
	if (addr_is_any(&to))
		to = to.family == 4 ? (struct rpwi_addr){.family = 4, .bytes = {127, 0, 0, 1}}
				    : (struct rpwi_addr){.family = 6, .bytes = {[15] = 1}};
	int rc = addr_route(
		id->src.addr.family ? &id->src.addr : &any_of_family[to.family], &to, &local);
	if (rc)
		return rc;
	rc = id_take_device(id, &local);
	if (rc) {
		rpwi_warn("rdma_resolve_addr to %s: no software device has the local address of "
			  "that route; `ropeway devices` lists them",
			endpoint_text(dst, text));
		event_new(id, EV_ADDR_ERROR, rc == -EADDRNOTAVAIL ? -ENODEV : rc);
		return 0;
	}
	id->src.addr = local;
	if (!id->src.port)
		id->src.port = listen_port_ephemeral();
	id->dst = (struct endpoint){.addr = to, .port = dst->port};
	resolve_begin(id, resolved);
	return 0;
}

int id_resolve_route(struct id *id)
{
	if (id->state != ID_ADDR_RESOLVED)
		return -EINVAL;
	struct rpwi_gsi_local dev;
	/* The MTU depends on whom we talk to. */
	int rc = rpwi_gsi_local(&id->src.addr, &dev);
	if (rc) {
		event_new(id, EV_ROUTE_ERROR, -ENODEV);
		return 0;
	}
	id->dev = dev;
	id->state = ID_ROUTE_RESOLVED;
	event_new(id, EV_ROUTE_RESOLVED, 0);
	return 0;
}

/* ---- connecting ---- */

/* Services that took a connection of ours a moment ago. Their programs may close a listener and
 * open it anew between two connections of ours (perftest does), and be slower at it than we are:
 * see gsi_defer.c for the other side of this. */
enum { RECENT_MAX = 16 };
static const uint64_t recent_ns = 2 * RPWI_NS_PER_S, patience_ns = RPWI_NS_PER_S;
static struct {
	struct {
		struct rpwi_addr addr;
		uint64_t service_id, at_ns;
	} of[RECENT_MAX];
	unsigned next;
} recent;

static void recent_add(const struct rpwi_cm_conn *c)
{
	recent.of[recent.next].addr = c->path.remote;
	recent.of[recent.next].service_id = c->service_id;
	recent.of[recent.next].at_ns = rpwi_gsi_now();
	recent.next = (recent.next + 1) % RECENT_MAX;
}

static bool recent_has(const struct rpwi_addr *addr, uint64_t service_id)
{
	for (unsigned i = 0; i < RECENT_MAX; i++)
		if (recent.of[i].service_id == service_id &&
			rpwi_addr_eq(&recent.of[i].addr, addr) &&
			rpwi_gsi_now() - recent.of[i].at_ns < recent_ns)
			return true;
	return false;
}

static void conn_param_take(
	struct id *id, const struct rdma_ucm_conn_param *p, struct rpwi_cm_param *out)
{
	id->retry_count = RPWI_MIN(p->retry_count, (uint8_t)7);
	id->rnr_retry_count = RPWI_MIN(p->rnr_retry_count, (uint8_t)7);
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
	*out = (struct rpwi_cm_param){.qpn = p->qp_num & RPWI_QPN_MASK,
		.starting_psn = id->seq_num,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.retry_count = id->retry_count,
		.rnr_retry_count = id->rnr_retry_count,
		.ack_timeout = id->ack_timeout,
		.flow_control = p->flow_control,
		.srq = p->srq};
}

/* Both ends of a connection within this host may be on one device and one of its addresses. */
static void id_peer_gid(const struct id *id, uint8_t gid[16])
{
	if (id->dev.stands_in)
		memcpy(gid, id->dev.gid, sizeof(id->dev.gid));
	else
		rpwi_gsi_gid(&id->dst.addr, gid);
}

int id_connect(struct id *id, const struct rdma_ucm_conn_param *p)
{
	struct rpwi_cma_hdr hdr = {
		.src = id->src.addr, .dst = id->dst.addr, .src_port = id->src.port};
	uint8_t pdata[RPWI_CMA_HDR_LEN + RDMA_MAX_PRIVATE_DATA], guid[8];
	struct rpwi_cm_param param;
	if (id->state != ID_ROUTE_RESOLVED || !p->valid)
		return -EINVAL;
	struct rpwi_cm_path path = {.local = id->src.addr,
		.remote = id->dst.addr,
		.mtu = id->dev.mtu,
		.traffic_class = id->tos,
		.hop_limit = 64};
	memcpy(path.local_gid, id->dev.gid, sizeof(path.local_gid));
	id_peer_gid(id, path.remote_gid);
	rpwi_cma_hdr_encode(&hdr, pdata);
	memcpy(pdata + RPWI_CMA_HDR_LEN, p->private_data, p->private_data_len);
	size_t len = RPWI_CMA_HDR_LEN + (size_t)p->private_data_len;
	memcpy(guid, &id->dev.guid, sizeof(guid));
	conn_param_take(id, p, &param);
	if (!id->has_conn)
		rpwi_cm_conn_init(id->ch->cm, &id->conn, id);
	id->has_conn = true;
	id->conn.patient_until_ns = recent_has(&id->dst.addr, id_service(id, id->dst.port))
					    ? rpwi_gsi_now() + patience_ns
					    : 0;
	int rc = is_ud(id) ? rpwi_cm_sidr_request(&id->conn, &path, id_service(id, id->dst.port),
				     pdata, len, SIDR_TIMEOUT_MS, RPWI_CM_RETRIES, rpwi_gsi_now())
			   : rpwi_cm_connect(&id->conn, &path, id_service(id, id->dst.port), guid,
				     &param, pdata, len, rpwi_gsi_now());
	if (rc)
		return rc;
	rpwi_fact(RPWI_FACT_CONNECTING, param.qpn, 1, NULL);
	id->state = ID_CONNECT;
	rpwi_gsi_kick();
	return 0;
}

int id_accept(struct id *id, const struct rdma_ucm_conn_param *p)
{
	uint8_t guid[8];
	struct rpwi_cm_param param;
	int rc;
	if (id->state != ID_CONNECT || !id->has_conn)
		return -EINVAL;
	memcpy(guid, &id->dev.guid, sizeof(guid));
	if (!p) {
		rc = rpwi_cm_establish(&id->conn, NULL, 0, rpwi_gsi_now());
		if (!rc) {
			recent_add(&id->conn);
			rpwi_fact(RPWI_FACT_ESTABLISHED, id->conn.local.qpn, 1, NULL);
		}
	} else if (is_ud(id)) {
		if (p->qkey)
			id->qkey = p->qkey;
		rc = rpwi_cm_sidr_reply(&id->conn, 0, p->qp_num & RPWI_QPN_MASK, id->qkey,
			p->private_data, p->private_data_len, rpwi_gsi_now());
	} else {
		conn_param_take(id, p, &param);
		rpwi_fact(RPWI_FACT_ACCEPTING, param.qpn, 1, NULL);
		rc = rpwi_cm_accept(&id->conn, guid, &param, p->private_data, p->private_data_len,
			rpwi_gsi_now());
		/* An acceptance that fails is a rejection, as the kernel's rdma_accept has it: the
		 * peer would wait for an answer that never comes. */
		if (rc && id->conn.state == RPWI_CM_REQ_RCVD)
			id_reject(id, 0, NULL, 0);
	}
	rpwi_gsi_kick();
	return rc;
}

int id_reject(struct id *id, uint8_t reason, const void *pdata, size_t len)
{
	if (!id->has_conn)
		return -EINVAL;
	uint64_t now_ns = rpwi_gsi_now();
	if (!reason)
		reason = RPWI_REJ_CONSUMER_DEFINED;
	int rc = is_ud(id) ? rpwi_cm_sidr_reply(&id->conn, 2, 0, 0, pdata, len, now_ns)
			   : rpwi_cm_reject(&id->conn, reason, NULL, 0, pdata, len, now_ns);
	rpwi_gsi_kick();
	return rc;
}

/* As the kernel has it: a request for what is over already is no error. */
int id_disconnect(struct id *id)
{
	if (!id->has_conn)
		return -EINVAL;
	if (id->conn.state == RPWI_CM_ESTABLISHED)
		rpwi_fact(RPWI_FACT_DISCONNECT, id->conn.local.qpn, 1, NULL);
	int rc = rpwi_cm_disconnect(&id->conn, rpwi_gsi_now());
	if (rc)
		rpwi_debug("cm id %u: disconnect in state %s", id->handle,
			rpwi_cm_state_name[id->conn.state]);
	rpwi_gsi_kick();
	return 0;
}

int id_notify(struct id *id, unsigned event)
{
	if (!id->has_conn)
		return -EINVAL;
	return event == IBV_EVENT_COMM_EST ? rpwi_cm_comm_established(&id->conn, rpwi_gsi_now())
					   : 0;
}

/* ---- what the CM tells ---- */

static void event_pdata(uint8_t *to, __u8 *to_len, const struct rpwi_cm_event *ev)
{
	if (ev->pdata_len)
		memcpy(to, ev->pdata, ev->pdata_len);
	*to_len = ev->pdata_len;
}

/* A peer's resources are our depth, and the other way round (IB 12.7.29, 12.7.30). */
static void event_conn(struct event *e, const struct rpwi_cm_param *remote)
{
	struct rdma_ucm_conn_param *c = &e->resp.param.conn;
	c->responder_resources = remote->initiator_depth;
	c->initiator_depth = remote->responder_resources;
	c->flow_control = remote->flow_control;
	c->retry_count = remote->retry_count;
	c->rnr_retry_count = remote->rnr_retry_count;
	c->srq = remote->srq;
	c->qp_num = remote->qpn;
}

static void connection_over(struct id *id, int status)
{
	if (id->state != ID_CONNECT)
		return;
	id->state = ID_DISCONNECT;
	/* a DREQ's 220 bytes, and a DREP's 224, are not told: as in the kernel */
	event_new(id, EV_DISCONNECTED, status);
}

static void sidr_answered(struct id *id, const struct rpwi_cm_event *ev)
{
	struct event *e =
		event_new(id, ev->sidr.status ? EV_UNREACHABLE : EV_ESTABLISHED, ev->sidr.status);
	if (!e)
		return;
	event_pdata(e->resp.param.ud.private_data, &e->resp.param.ud.private_data_len, ev);
	if (ev->sidr.status)
		return;
	id->qkey = ev->sidr.qkey;
	e->resp.param.ud.qp_num = ev->sidr.qpn;
	e->resp.param.ud.qkey = ev->sidr.qkey;
	id_ah_attr(id, &e->resp.param.ud.ah_attr);
}

/* The summary of an account tells how a connection began and ended. */
static void account_event(const struct rpwi_cm_conn *conn, const struct rpwi_cm_event *ev)
{
	static const struct {
		bool set;
		enum rpwi_explain_fact fact;
	} facts[] = {
		[RPWI_CM_EV_ESTABLISHED] = {true, RPWI_FACT_ESTABLISHED},
		[RPWI_CM_EV_REJ] = {true, RPWI_FACT_REJECTED},
		[RPWI_CM_EV_REQ_ERROR] = {true, RPWI_FACT_UNREACHABLE},
		[RPWI_CM_EV_REP_ERROR] = {true, RPWI_FACT_UNREACHABLE},
		[RPWI_CM_EV_DREQ] = {true, RPWI_FACT_DISCONNECTED},
		[RPWI_CM_EV_PEER_GONE] = {true, RPWI_FACT_PEER_GONE},
	};
	if (ev->type < RPWI_ARRAY_LEN(facts) && facts[ev->type].set)
		rpwi_fact(facts[ev->type].fact, conn->local.qpn,
			ev->type == RPWI_CM_EV_REJ ? ev->reason : 1u, NULL);
}

void cm_event(void *user, struct rpwi_cm_conn *conn, const struct rpwi_cm_event *ev)
{
	struct id *id = RPWI_CONTAINER_OF(conn, struct id, conn);
	struct event *e;
	account_event(conn, ev);
	if (!id->uid) /* its program has not accepted it yet: the acceptance will fail */
		return;
	switch (ev->type) {
	case RPWI_CM_EV_REP:
		e = event_new(id, EV_CONNECT_RESPONSE, 0);
		if (!e)
			return;
		event_conn(e, &conn->remote);
		e->resp.param.conn.retry_count = 0; /* REP has none */
		event_pdata(
			e->resp.param.conn.private_data, &e->resp.param.conn.private_data_len, ev);
		break;
	case RPWI_CM_EV_ESTABLISHED:
		event_new(id, EV_ESTABLISHED, 0);
		break;
	case RPWI_CM_EV_REJ:
		e = event_new(id, EV_REJECTED, ev->reason);
		if (e)
			event_pdata(e->resp.param.conn.private_data,
				&e->resp.param.conn.private_data_len, ev);
		break;
	case RPWI_CM_EV_REQ_ERROR:
	case RPWI_CM_EV_REP_ERROR:
	case RPWI_CM_EV_SIDR_REQ_ERROR:
		event_new(id, EV_UNREACHABLE, -ETIMEDOUT);
		break;
	case RPWI_CM_EV_DREQ_ERROR:
		connection_over(id, -ETIMEDOUT);
		break;
	case RPWI_CM_EV_DREQ:
	case RPWI_CM_EV_DREP:
		connection_over(id, 0);
		break;
	case RPWI_CM_EV_PEER_GONE:
		/* What the peer's kernel would have sent for it: DREQ, or REJ; to the sender of a
		 * REP, because nobody knows its communication ID any more. */
		if (conn->state == RPWI_CM_TIMEWAIT)
			connection_over(id, 0);
		else
			event_new(id, EV_REJECTED,
				conn->passive ? RPWI_REJ_INVALID_COMM_ID
					      : RPWI_REJ_CONSUMER_DEFINED);
		break;
	case RPWI_CM_EV_TIMEWAIT_EXIT:
		event_new(id, EV_TIMEWAIT_EXIT, 0);
		break;
	case RPWI_CM_EV_SIDR_REP:
		sidr_answered(id, ev);
		break;
	}
}

/* ---- what librdmacm asks ---- */

int id_set_option(struct id *id, unsigned level, unsigned name, const void *value, size_t len)
{
	uint8_t byte;
	int number;
	/* paths that a subnet manager gave: RoCE has none */
	if (level != RDMA_OPTION_ID)
		return level == RDMA_OPTION_IB ? -EINVAL : -ENOSYS;
	bool wants_byte = name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT;
	if (name > RDMA_OPTION_ID_ACK_TIMEOUT)
		return -ENOSYS;
	if (len != (wants_byte ? sizeof(byte) : sizeof(number)))
		return -EINVAL;
	if (!value)
		return -EFAULT;
	memcpy(wants_byte ? (void *)&byte : (void *)&number, value, len);
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		id->tos = byte;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		if (number && id->state != ID_IDLE && !id->reuseaddr)
			return -EINVAL;
		id->reuseaddr = number;
		return 0;
	case RDMA_OPTION_ID_AFONLY:
		if (id->state != ID_IDLE && id->state != ID_BOUND)
			return -EINVAL;
		id->afonly = number;
		return 0;
	default:
		if (is_ud(id) || byte > 31)
			return -EINVAL;
		id->ack_timeout = byte;
		return 0;
	}
}

static uint8_t hop_limit(const struct id *id)
{
	return id->has_conn && id->conn.path.hop_limit ? id->conn.path.hop_limit : 64;
}
static uint8_t path_mtu(const struct id *id)
{
	return id->has_conn && id->conn.path.mtu ? id->conn.path.mtu : id->dev.mtu;
}
static uint8_t traffic_class(const struct id *id)
{
	return id->has_conn ? id->conn.path.traffic_class : id->tos;
}

void id_query_route(const struct id *id, struct rdma_ucm_query_route_resp *r)
{
	memset(r, 0, sizeof(*r));
	endpoint_write(&id->src, &r->src_addr);
	endpoint_write(&id->dst, &r->dst_addr);
	if (!id->dev.device)
		return;
	r->node_guid = id->dev.guid;
	r->port_num = 1;
	r->ibdev_index = (uint32_t)id->dev.index;
	struct ib_user_path_rec *p = &r->ib_route[0];
	memcpy(p->sgid, id->dev.gid, sizeof(p->sgid));
	if (id->dst.addr.family)
		id_peer_gid(id, p->dgid);
	p->pkey = __builtin_bswap16(RPWI_PKEY_DEFAULT);
	if (id->state != ID_ROUTE_RESOLVED && id->state != ID_CONNECT && id->state != ID_DISCONNECT)
		return;
	r->num_paths = 1;
	p->hop_limit = hop_limit(id);
	p->traffic_class = traffic_class(id);
	p->reversible = 1;
	p->numb_path = 1;
	p->mtu_selector = p->rate_selector = p->packet_life_time_selector = 2; /* exactly */
	p->mtu = path_mtu(id);
	p->rate = IBV_RATE_100_GBPS;
	p->packet_life_time = id->ack_timeout ? id->ack_timeout - 1 : 0;
}

void id_ah_attr(const struct id *id, struct ib_uverbs_ah_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->is_global = 1;
	a->port_num = 1;
	id_peer_gid(id, a->grh.dgid);
	a->grh.sgid_index = (uint8_t)id->dev.gid_index;
	a->grh.hop_limit = hop_limit(id);
	a->grh.traffic_class = traffic_class(id);
	a->grh.flow_label = id->has_conn ? id->conn.path.flow_label : 0;
}

static int init_attr_init(const struct id *id, struct ib_uverbs_qp_attr *a)
{
	a->qp_attr_mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	a->port_num = 1;
	if (is_ud(id)) {
		a->qp_attr_mask |= IBV_QP_QKEY;
		a->qkey = id->qkey;
		return 0;
	}
	a->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
	if (!id->has_conn)
		return 0;
	a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->responder_resources)
		a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return 0;
}

static bool knows_peer(const struct id *id)
{
	switch (id->conn.state) {
	case RPWI_CM_REQ_RCVD:
	case RPWI_CM_REP_SENT:
	case RPWI_CM_RTU_WAIT:
	case RPWI_CM_REP_RCVD:
	case RPWI_CM_ESTABLISHED:
		return id->has_conn;
	default:
		return false;
	}
}

/* What the peer's reply grants counts, as the kernel has it; the program asked for it (IB 12.7.29,
 * 12.7.30). */
static uint8_t our_responder_resources(const struct id *id)
{
	return id->conn.passive ? id->responder_resources : id->conn.remote.initiator_depth;
}
static uint8_t our_initiator_depth(const struct id *id)
{
	return id->conn.passive ? id->initiator_depth : id->conn.remote.responder_resources;
}

static int init_attr_rtr(const struct id *id, struct ib_uverbs_qp_attr *a)
{
	if (!knows_peer(id))
		return -EINVAL;
	a->qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	id_ah_attr(id, &a->ah_attr);
	a->path_mtu = path_mtu(id);
	a->dest_qp_num = id->conn.remote.qpn;
	/* REQ and REP say from which PSN on the peer is to send (IB 12.7.31) */
	a->rq_psn = id->seq_num;
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_cm_gave(a->dest_qp_num, a->rq_psn, !id->conn.passive);
	if (id->qp_type == IBV_QPT_RC) {
		a->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		a->max_dest_rd_atomic = our_responder_resources(id);
		a->min_rnr_timer = 0;
	}
	return 0;
}

static int init_attr_rts(const struct id *id, struct ib_uverbs_qp_attr *a)
{
	if (!knows_peer(id))
		return -EINVAL;
	a->qp_attr_mask |= IBV_QP_SQ_PSN;
	a->sq_psn = id->conn.remote.starting_psn;
	if (id->qp_type == IBV_QPT_RC) {
		a->qp_attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_MAX_QP_RD_ATOMIC;
		a->timeout = id->conn.passive ? id->conn.remote.ack_timeout : id->ack_timeout;
		a->retry_cnt = id->conn.passive ? id->conn.remote.retry_count : id->retry_count;
		a->rnr_retry = id->conn.remote.rnr_retry_count;
		a->max_rd_atomic = our_initiator_depth(id);
	}
	return 0;
}

int id_init_qp_attr(const struct id *id, unsigned state, struct ib_uverbs_qp_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->qp_state = state;
	a->qp_attr_mask = IBV_QP_STATE;
	if (!id->dev.device)
		return -EINVAL;
	switch (state) {
	case IBV_QPS_INIT:
		return init_attr_init(id, a);
	case IBV_QPS_RTR:
		return init_attr_rtr(id, a);
	case IBV_QPS_RTS:
		return init_attr_rts(id, a);
	default:
		return -EINVAL;
	}
}
