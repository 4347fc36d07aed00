/* SPDX-License-Identifier: BSD-3-Clause */
/* listen.c - listeners: ports claimed, requests that come in. */
#include "ucma/ucma_priv.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- ports ---- */

enum { PORT_TRIES = 200 };

/* A service ID that this process has claimed for one address, or all, and the ids that share it:
 * those that may_share lets. */
struct claim {
	struct claim *next;
	uint64_t service_id;
	struct rpwi_addr addr; /* family 0: all */
	struct rpwi_list ids;
};
static struct claim *claims;

static struct {
	unsigned first, last, next;
} ports; /* ephemeral */

/* Of the range that the host, or this network namespace, has for all ephemeral ports, as the
 * kernel's rdma_cm has it (Documentation/networking/ip-sysctl): whoever keeps a service's port out
 * of that range keeps it from us. Read once. */
uint16_t listen_port_ephemeral(void)
{
	if (!ports.next) {
		ports.first = 32768; /* Linux's own */
		ports.last = 60999;
		FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
		unsigned from, to;
		if (f && fscanf(f, "%u %u", &from, &to) == 2 && from && from <= to &&
			to <= UINT16_MAX) {
			ports.first = from;
			ports.last = to;
		}
		if (f)
			fclose(f);
		ports.next =
			ports.first + (unsigned)(rpwi_random64() % (ports.last - ports.first + 1));
	}
	ports.next = ports.next >= ports.last ? ports.first : ports.next + 1;
	return (uint16_t)ports.next;
}

static struct claim *claim_find(uint64_t service_id, const struct rpwi_addr *addr)
{
	for (struct claim *c = claims; c; c = c->next)
		if (c->service_id == service_id && rpwi_addr_eq(&c->addr, addr))
			return c;
	return NULL;
}

/* Two that have all addresses, each of its own family. */
static bool of_other_families(const struct id *a, const struct id *b)
{
	return a->afonly && b->afonly && a->src.addr.family != b->src.addr.family;
}

/* As the kernel's cma_check_port has it. */
static bool may_share(const struct claim *c, const struct id *id)
{
	for (struct rpwi_list *l = c->ids.next; l != &c->ids; l = l->next) {
		const struct id *other = RPWI_CONTAINER_OF(l, struct id, claim_link);
		if (!(id->reuseaddr && other->reuseaddr) && !of_other_families(id, other))
			return false;
	}
	return true;
}

static int claim_one(struct id *id, uint16_t port)
{
	struct rpwi_addr addr = {0};
	if (!addr_is_any(&id->src.addr))
		addr = id->src.addr;
	/* as the kernel tells the two apart: nobody has all addresses beside another */
	int taken = addr_is_any(&id->src.addr) ? -EADDRNOTAVAIL : -EADDRINUSE;
	uint64_t service = id_service(id, port);
	struct claim *c = claim_find(service, &addr);
	if (c && !may_share(c, id))
		return taken;
	if (!c) {
		int rc = rpwi_gsi_claim(service, &addr);
		if (rc)
			return rc == -EADDRINUSE ? taken : rc;
		c = calloc(1, sizeof(*c));
		if (!c) {
			rpwi_gsi_unclaim(service, &addr);
			return -ENOMEM;
		}
		c->service_id = service;
		c->addr = addr;
		rpwi_list_init(&c->ids);
		c->next = claims;
		claims = c;
	}
	rpwi_list_add_tail(&c->ids, &id->claim_link);
	id->claim = c;
	id->src.port = port;
	return 0;
}

int listen_claim_take(struct id *id, uint16_t port)
{
	if (port)
		return claim_one(id, port);
	for (int i = 0; i < PORT_TRIES; i++) {
		int rc = claim_one(id, listen_port_ephemeral());
		if (rc != -EADDRINUSE && rc != -EADDRNOTAVAIL)
			return rc;
	}
	return -EADDRNOTAVAIL;
}

void listen_claim_drop(struct id *id)
{
	struct claim *c = id->claim;
	id->claim = NULL;
	if (!c)
		return;
	rpwi_list_del(&id->claim_link);
	if (!rpwi_list_empty(&c->ids))
		return;
	rpwi_gsi_unclaim(c->service_id, &c->addr);
	for (struct claim **at = &claims; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	free(c);
}

/* ---- listening ---- */

static struct rpwi_list listeners = {&listeners, &listeners};

static struct id *listener_find(uint64_t service_id, const struct rpwi_addr *local)
{
	struct id *found = NULL;
	for (struct rpwi_list *l = listeners.next; l != &listeners; l = l->next) {
		struct id *id = RPWI_CONTAINER_OF(l, struct id, listen_link);
		if (id_service(id, id->src.port) != service_id)
			continue;
		if (rpwi_addr_eq(&id->src.addr, local))
			return id;
		if (addr_is_any(&id->src.addr) &&
			(!id->afonly || id->src.addr.family == local->family))
			found = id;
	}
	return found;
}

static bool has_port(const struct id *id, const struct rpwi_addr *a)
{
	for (unsigned i = 0; i < id->nports; i++)
		if (rpwi_addr_eq(&id->ports[i], a))
			return true;
	return false;
}

/* Every local address that can be had, now; more when more come (cm_addresses_changed). One that
 * cannot be opened does not keep the others from being listened on. */
static int listen_on_all(struct id *id)
{
	struct rpwi_addr all[LISTENER_PORTS_MAX];
	char why[RPWI_WHY_LEN];
	snprintf(why, sizeof(why), "no interface that is up has an %saddress",
		!id->afonly                ? ""
		: id->src.addr.family == 6 ? "IPv6 "
					   : "IPv4 ");
	unsigned n = rpwi_gsi_addresses(all, LISTENER_PORTS_MAX);
	int rc = -EADDRNOTAVAIL;
	if (!id->ports && !(id->ports = calloc(LISTENER_PORTS_MAX, sizeof(*id->ports))))
		return -ENOMEM;
	for (unsigned i = 0; i < n && id->nports < LISTENER_PORTS_MAX; i++) {
		if (has_port(id, &all[i]) || (id->afonly && id->src.addr.family != all[i].family))
			continue;
		rc = rpwi_gsi_port_get(&all[i], why, sizeof(why));
		if (rc)
			rpwi_info("rdma_listen on all addresses: not on one of them: %s", why);
		else
			id->ports[id->nports++] = all[i];
	}
	if (id->nports || id->real == REAL_BESIDE)
		return 0;
	rpwi_error("rdma_listen: %s", why);
	return rc;
}

int id_listen(struct id *id, int backlog)
{
	struct endpoint any = {.addr = {.family = 4}};
	if (id->state == ID_IDLE) {
		int rc = id_bind(id, &any);
		if (rc)
			return rc;
	}
	if (id->state != ID_BOUND)
		return -EINVAL;
	/* Two that share an address may not both listen on it. */
	for (struct rpwi_list *l = listeners.next; l != &listeners; l = l->next) {
		const struct id *other = RPWI_CONTAINER_OF(l, struct id, listen_link);
		if (other->claim == id->claim && !of_other_families(id, other))
			return -EADDRINUSE;
	}
	int rc = addr_is_any(&id->src.addr) ? listen_on_all(id) : id_use_port(id, &id->src.addr);
	if (rc)
		return rc;
	id->backlog = backlog > 0 && backlog < BACKLOG_MAX ? backlog : BACKLOG_MAX;
	id->state = ID_LISTEN;
	rpwi_list_add_tail(&listeners, &id->listen_link);
	return 0;
}

void listen_end(struct id *id)
{
	rpwi_list_del(&id->listen_link);
	for (unsigned i = 0; i < id->nports; i++)
		rpwi_gsi_port_put(&id->ports[i]);
	free(id->ports);
	id->ports = NULL;
	id->nports = 0;
}

void cm_addresses_changed(void *user)
{
	for (struct rpwi_list *l = listeners.next; l != &listeners; l = l->next) {
		struct id *id = RPWI_CONTAINER_OF(l, struct id, listen_link);
		if (addr_is_any(&id->src.addr))
			listen_on_all(id);
	}
}

/* ---- requests ---- */

enum { SIDR_UNSUPPORTED = 1, SIDR_REJECTED = 2 };

/* The device of a request that came by the loopback interface is the one that the peer has chosen:
 * its GID is in the request, and the peer will take packets from that alone. */
static int device_of_request(const struct rpwi_cm_path *path, const struct rpwi_cm_msg *m,
	bool sidr, struct rpwi_gsi_local *dev)
{
	int rc = rpwi_gsi_local(&path->local, dev);
	if (rc || sidr || !addr_is_loopback(&path->local) ||
		!memcmp(m->req.primary.remote_gid, dev->gid, sizeof(dev->gid)))
		return rc;
	struct rpwi_addr wanted = rpwi_gsi_addr(m->req.primary.remote_gid);
	rc = addr_is_loopback(&wanted) ? -EADDRNOTAVAIL : rpwi_gsi_local(&wanted, dev);
	dev->stands_in = true;
	if (rc)
		rpwi_warn("rdma_cm: a request from this host is for a device that is hidden here: "
			  "give both programs the same ROPEWAY_DEVICES");
	return rc;
}

struct rpwi_cm_conn *cm_request(void *user, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
{
	struct rpwi_cma_hdr hdr;
	uint64_t service = sidr ? m->sidr_req.service_id : m->req.service_id;
	struct id *l = listener_find(service, &path->local);
	bool ud_listener = l && l->qp_type == IBV_QPT_UD;
	*reason = sidr ? SIDR_UNSUPPORTED : RPWI_REJ_INVALID_SERVICE_ID;
	if (!l || ud_listener != sidr || rpwi_cma_hdr_decode(m->pdata, m->pdata_len, &hdr))
		return NULL;
	/* Not a rejection: the peer asks again, and by then there may be room. */
	*reason = RPWI_CM_NO_ANSWER;
	if (!l->backlog) {
		rpwi_debug("cm id %u: the backlog is full: the peer must repeat its request",
			l->handle);
		return NULL;
	}
	*reason = sidr ? SIDR_REJECTED : RPWI_REJ_CONSUMER_DEFINED;
	struct id *child = id_new(l->ch, l->ps, l->qp_type, 0);
	if (!child || channel_engine(child->ch) || device_of_request(path, m, sidr, &child->dev) ||
		id_use_port(child, &path->local)) {
		if (child)
			id_free(child);
		return NULL;
	}
	l->backlog--;
	child->listener = l;
	child->state = ID_CONNECT;
	child->has_conn = true;
	child->tos = l->tos;
	child->src = (struct endpoint){.addr = path->local, .port = l->src.port};
	child->dst = (struct endpoint){.addr = path->remote, .port = hdr.src_port};
	if (!sidr) {
		/* Until the program says otherwise: what the peer asked for. */
		child->responder_resources = m->req.initiator_depth;
		child->initiator_depth = m->req.responder_resources;
	}
	return &child->conn;
}

void cm_incoming(void *user, struct rpwi_cm_conn *conn, const struct rpwi_cm_msg *m)
{
	struct id *child = RPWI_CONTAINER_OF(conn, struct id, conn);
	struct event *e = event_new(child->listener, EV_CONNECT_REQUEST, 0);
	if (!e)
		return; /* the peer's request times out; the connection goes with its listener */
	e->child = child;
	e->resp.id = child->handle;
	const uint8_t *pdata = m->pdata + RPWI_CMA_HDR_LEN;
	uint8_t len = (uint8_t)(m->pdata_len - RPWI_CMA_HDR_LEN);
	if (conn->sidr) {
		memcpy(e->resp.param.ud.private_data, pdata, len);
		e->resp.param.ud.private_data_len = len;
		return;
	}
	struct rdma_ucm_conn_param *c = &e->resp.param.conn;
	memcpy(c->private_data, pdata, len);
	c->private_data_len = len;
	c->responder_resources = conn->remote.initiator_depth;
	c->initiator_depth = conn->remote.responder_resources;
	c->flow_control = conn->remote.flow_control;
	c->retry_count = conn->remote.retry_count;
	c->rnr_retry_count = conn->remote.rnr_retry_count;
	c->srq = conn->remote.srq;
	c->qp_num = conn->remote.qpn;
}
