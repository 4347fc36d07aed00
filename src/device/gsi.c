/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi.c - QP 1 of the process: the CM engine, the packets that it sends and is given, and its time.
 * Whose a management datagram is: gsi_route.c.
 *
 * A request for a service that nobody of this host has claimed is rejected (REJ 8) by whichever
 * process it lands at, so that its sender learns at once what it would otherwise learn from a
 * minute of silence. That needs an engine; in a process that has none, one is made for it.
 *
 * Peers that die without a word: alive.c. A process that ends by exit() says so itself.
 */
#include <errno.h>
#include <stdlib.h>

#include "device/alive.h"
#include "device/farewell.h"
#include "device/fault.h"
#include "device/gsi.h"
#include "device/path.h"
#include "device/tally.h"
#include "explain/verbs.h"

enum {
	HOP_LIMIT = 64,
};
static const uint64_t LIST_FRESH_NS = 200 * RPWI_NS_PER_MS;

/* A local address from which MADs go. */
struct gport {
	struct rpwi_addr addr;
	struct dport *port; /* NULL: free */
	unsigned refs;
	/* opened to answer a request that was handed over to us; stays until the engine goes */
	bool on_demand;
};

static struct {
	struct rpwi_gsi_user user;
	struct rpwi_cm *cm;
	unsigned refs;
	uint16_t prefix;
	struct gport port[DEV_PORTS_MAX];
	bool sweep; /* addresses changed: unused ports may be of some that are gone */
	uint32_t psn;
	struct rpwi_txb txb;
	/* slots of the process that this one was forked from: its connections are not ours to speak
	 * for */
	uint64_t parents[64];
	bool exiting;
} gsi;

static bool bit_get(const uint64_t *set, unsigned i) { return set[i / 64] >> i % 64 & 1; }
static void bit_set(uint64_t *set, unsigned i) { set[i / 64] |= 1ull << i % 64; }

void rpwi_gsi_lock(void)
{
	static uint64_t renewed_ns;
	atomic_fetch_add_explicit(&hca_here.commands, 1, memory_order_relaxed);
	hca_lock();
	uint64_t now = hca_here.opens ? 0 : rpwi_now_ns();
	/* the service thread keeps the list of devices, or it was read a moment ago: it takes
	 * longer than most commands */
	if (hca_here.opens || (renewed_ns && now - renewed_ns < LIST_FRESH_NS))
		return;
	renewed_ns = now;
	hca_unlock();
	dev_list_renew();
	hca_lock();
}

void rpwi_gsi_unlock(void)
{
	hca_unlock();
	atomic_fetch_sub_explicit(&hca_here.commands, 1, memory_order_relaxed);
}

uint64_t rpwi_gsi_now(void) { return rpwi_now_ns(); }
void rpwi_gsi_attach(const struct rpwi_gsi_user *u) { gsi.user = *u; }

/* ---- addresses ---- */

static bool same_addr(const struct rpwi_addr *a, const struct rpwi_addr *b)
{
	return rpwi_addr_eq(a, b) && (!a->scope || !b->scope || a->scope == b->scope);
}

void rpwi_gsi_gid(const struct rpwi_addr *a, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (a->family == 4) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, a->bytes, 4);
	} else {
		memcpy(gid, a->bytes, 16);
	}
}

struct rpwi_addr rpwi_gsi_addr(const uint8_t gid[16])
{
	struct rpwi_addr a;
	union ibv_gid raw;
	memcpy(raw.raw, gid, sizeof(raw.raw));
	gid_to_addr(&raw, 0, &a);
	return a;
}

/* A GID that is `a` itself is better than one that is carried by it (the made-up link-local one of
 * lo). */
static const struct dev *dev_of(const struct rpwi_addr *a, unsigned *index)
{
	const struct dev *carrier = NULL;
	uint8_t raw[16];
	rpwi_gsi_gid(a, raw);
	for (const struct dev *d = dev_first(); d; d = d->next)
		for (unsigned i = 0; d->present && i < d->net.gid_count; i++) {
			const struct rpwi_gid *g = &d->net.gid[i];
			if (!g->usable || !same_addr(&g->addr, a))
				continue;
			if (!memcmp(g->raw, raw, 16)) {
				*index = i;
				return d;
			}
			if (!carrier) {
				carrier = d;
				*index = i;
			}
		}
	return carrier;
}

/* What serves connections within this host where the loopback interface's device is hidden: the
 * first device that programs see, by an address of the family if it has one. */
static const struct dev *stand_in(unsigned family, unsigned *index)
{
	const struct dev *best = NULL;
	bool best_fits = false;
	for (const struct dev *d = dev_first(); d; d = d->next)
		for (unsigned i = 0; d->present && !d->net.hidden && i < d->net.gid_count; i++) {
			const struct rpwi_gid *g = &d->net.gid[i];
			bool fits = g->addr.family == family;
			if (!d->net.up || !g->usable || g->addr.scope ||
				(best && (fits == best_fits ? d->place >= best->place : !fits)))
				continue;
			best = d;
			best_fits = fits;
			*index = i;
		}
	return best;
}

int rpwi_gsi_local(const struct rpwi_addr *local, struct rpwi_gsi_local *out)
{
	unsigned index = 0;
	const struct dev *d = dev_of(local, &index);
	bool stands_in = d && d->net.hidden;
	if (stands_in)
		d = d->net.loopback ? stand_in(local->family, &index) : NULL;
	if (!d)
		return -EADDRNOTAVAIL;
	*out = (struct rpwi_gsi_local){.device = (struct ibv_device *)(uintptr_t)&d->ibv,
		.stands_in = stands_in,
		.guid = rpwi_dev_get_guid(&d->ibv),
		.index = d->index,
		.gid_index = index,
		.mtu = (uint8_t)dev_mtu(d),
		.ifindex = d->net.ifindex};
	memcpy(out->gid, d->net.gid[index].raw, 16);
	return 0;
}

unsigned rpwi_gsi_addresses(struct rpwi_addr *out, unsigned max)
{
	unsigned n = 0;
	for (const struct dev *d = dev_first(); d; d = d->next)
		for (unsigned i = 0; d->present && i < d->net.gid_count && n < max; i++) {
			const struct rpwi_gid *g = &d->net.gid[i];
			bool known = !g->usable || (d->net.hidden && !d->net.loopback);
			for (unsigned k = 0; k < n && !known; k++)
				known = rpwi_addr_eq(&out[k], &g->addr) &&
					out[k].scope == g->addr.scope;
			if (!known)
				out[n++] = g->addr;
		}
	return n;
}

bool gsi_is_own(const struct rpwi_addr *a)
{
	unsigned index;
	return (a->family == 4 && a->bytes[0] == 127) || dev_of(a, &index);
}

/* The made-up link-local GID of lo is carried by another address: see io.h. */
static struct rpwi_addr carrier_of(const struct rpwi_addr *a)
{
	if (a->family == 6)
		for (const struct dev *d = dev_first(); d; d = d->next)
			for (unsigned i = 0; d->present && i < d->net.gid_count; i++)
				if (!memcmp(d->net.gid[i].raw, a->bytes, 16) &&
					(!a->scope || (int)a->scope == d->net.ifindex))
					return d->net.gid[i].addr;
	return *a;
}

/* ---- ports ---- */

static struct gport *port_find(const struct rpwi_addr *a)
{
	for (unsigned i = 0; i < DEV_PORTS_MAX; i++)
		if (gsi.port[i].port && same_addr(&gsi.port[i].addr, a))
			return &gsi.port[i];
	return NULL;
}

static struct gport *port_new(const struct rpwi_addr *a, char *why, size_t why_len, int *err)
{
	struct gport *p = gsi.port;
	while (p < gsi.port + DEV_PORTS_MAX && p->port)
		p++;
	if (p == gsi.port + DEV_PORTS_MAX) {
		*err = -ENOSPC;
		snprintf(
			why, why_len, "more than %d local addresses in use at once", DEV_PORTS_MAX);
		return NULL;
	}
	struct dport *d = port_get(a, false, why, why_len, err);
	if (!d)
		return NULL;
	*p = (struct gport){.addr = *a, .port = d};
	return p;
}

int rpwi_gsi_port_get(const struct rpwi_addr *local, char *why, size_t why_len)
{
	struct rpwi_addr a = carrier_of(local);
	struct gport *p = port_find(&a);
	int err = -ENETDOWN;
	if (!hca_here.steer) {
		snprintf(why, why_len, "no device is open");
		return err;
	}
	if (!p)
		p = port_new(&a, why, why_len, &err);
	if (!p)
		return err;
	p->refs++;
	return 0;
}

static void ports_sweep(bool all)
{
	for (unsigned i = 0; i < DEV_PORTS_MAX; i++) {
		struct gport *p = &gsi.port[i];
		if (!p->port || (!all && (p->refs || p->on_demand)))
			continue;
		port_put(p->port);
		p->port = NULL;
	}
	gsi.sweep = false;
}

/* An unused one stays open: a program that connects again and again would otherwise leave and join
 * the port group each time, and all members learn their places anew. */
void rpwi_gsi_port_put(const struct rpwi_addr *local)
{
	struct rpwi_addr a = carrier_of(local);
	struct gport *p = port_find(&a);
	if (p && p->refs)
		p->refs--;
}

/* Requests for a claim on all addresses come by hand-over for addresses that nobody here has
 * opened. */
static struct gport *port_to_send(const struct rpwi_addr *local)
{
	struct gport *p = port_find(local);
	char why[RPWI_WHY_LEN] = "";
	int err = -EADDRNOTAVAIL;
	if (p)
		return p;
	p = hca_here.steer && gsi_is_own(local) ? port_new(local, why, sizeof(why), &err) : NULL;
	if (p)
		p->on_demand = true;
	else
		rpwi_debug("a CM message cannot be sent: %s", *why ? why : strerror(-err));
	return p;
}

/* ---- what the engine asks for ---- */

static uint32_t random32(void *user) { return (uint32_t)rpwi_random64(); }

/* A message of a connection that this process has only a copy of. The first field of every message
 * is the sender's communication ID (IB 12.6), but of SIDR_REP, which has the asker's. */
static bool is_parents(const uint8_t *mad)
{
	uint16_t attr;
	uint32_t id;
	uint64_t service_id;
	if (!rpwi_cm_peek(mad, RPWI_MAD_LEN, &attr, &id, &service_id) || attr == RPWI_CM_SIDR_REP)
		return false;
	return bit_get(gsi.parents, gsi_slot_of_id(rpwi_get_be32(mad + RPWI_MAD_HDR_LEN)));
}

/* One packet of its own. `payload` of it may be NULL. */
static void add_packet(struct rpwi_txb *b, const struct rpwi_pkt *pkt)
{
	struct rpwi_txpkt *t = &b->pkt[b->npkt++];
	t->hdr_len = (uint16_t)rpwi_pkt_encode(pkt, t->hdr);
	t->pad = 0;
	t->payload_len = (uint16_t)pkt->payload_len;
	t->iov_first = (uint16_t)b->niov;
	t->iov_count = pkt->payload_len ? 1 : 0;
	if (pkt->payload_len)
		b->iov[b->niov++] = (struct rpwi_iov){pkt->payload, pkt->payload_len};
}

/* Slot 0: the port group chooses who gets it. */
static void send_packet(const struct rpwi_addr *local, const struct rpwi_addr *remote,
	uint8_t hop_limit, uint8_t tclass, const struct rpwi_pkt *pkt, uint16_t slot)
{
	struct rpwi_av av = {.flow = {.src = carrier_of(local),
				     .dst = carrier_of(remote),
				     .dport = RPWI_UDP_PORT},
		.hop_limit = hop_limit ? hop_limit : HOP_LIMIT,
		.tclass = tclass};
	unsigned sent;
	struct gport *p = port_to_send(&av.flow.src);
	if (!p) {
		hca_here.n.mads_unsent++;
		return;
	}
	av.loopback_zone = gsi_is_own(&av.flow.dst);
	av.port = p->port->io;
	rpwi_txb_reset(&gsi.txb);
	gsi.txb.av = &av;
	add_packet(&gsi.txb, pkt);
	int rc = slot && av.loopback_zone
			 ? rpwi_port_send_to_slot(p->port->io, &gsi.txb, slot, &sent)
			 : rpwi_port_send(p->port->io, &gsi.txb, &sent);
	if (rc)
		path_refused(&hca_here, p->port->io, &av, 0, rc);
	if (rc && rc != -EREMOTEIO) {
		hca_here.n.mads_unsent++;
		rpwi_debug("a management packet was not sent: %s", strerror(-rc));
	}
}

void gsi_send_packet(const struct rpwi_addr *local, const struct rpwi_addr *remote,
	uint8_t hop_limit, uint8_t tclass, const struct rpwi_pkt *pkt)
{
	send_packet(local, remote, hop_limit, tclass, pkt, 0);
}

static struct rpwi_pkt packet_of(const uint8_t *mad, uint32_t dqpn)
{
	uint32_t psn = gsi.psn;
	gsi.psn = rpwi_psn_add(gsi.psn, 1);
	return (struct rpwi_pkt){.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
		.migreq = true,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = dqpn,
		.psn = psn,
		.qkey = RPWI_GSI_QKEY,
		.sqpn = RPWI_GSI_QPN,
		.payload = mad,
		.payload_len = RPWI_MAD_LEN};
}

void gsi_send_mad_to(const struct rpwi_addr *local, const struct rpwi_addr *remote, uint32_t dqpn,
	const uint8_t *mad)
{
	struct rpwi_pkt pkt = packet_of(mad, dqpn);
	gsi_send_packet(local, remote, 0, 0, &pkt);
}

void gsi_send(const struct rpwi_cm_path *path, const uint8_t *mad)
{
	if (RPWI_UNLIKELY(rpwi_plan_on) && fault_cm_tx(path, mad))
		return;
	struct rpwi_pkt pkt = packet_of(mad, RPWI_GSI_QPN);
	send_packet(&path->local, &path->remote, path->hop_limit, path->traffic_class, &pkt,
		gsi_slot_of_receiver(mad));
	struct rpwi_qp_stats *n = tally_at(dev_first(), &path->local);
	n->tx_packets++;
	n->tx_bytes += RPWI_MAD_LEN;
}

static void send_mad(void *user, const struct rpwi_cm_path *path, const uint8_t *mad)
{
	if (!is_parents(mad))
		gsi_send(path, mad);
}

/* What landed here and nobody has claimed comes to this engine too: only the program's own services
 * are the program's to decide on. */
static struct rpwi_cm_conn *request(void *user, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
{
	enum { SIDR_UNSUPPORTED_SERVICE = 1 }; /* IB 12.11.2 */
	uint64_t service_id = sidr ? m->sidr_req.service_id : m->req.service_id;
	*reason = sidr ? SIDR_UNSUPPORTED_SERVICE : RPWI_REJ_INVALID_SERVICE_ID;
	bool ours = gsi.refs && gsi.user.request &&
		    rpwi_steer_owns_service(hca_here.steer, service_id, &path->local);
	return ours ? gsi.user.request(NULL, path, m, sidr, reason) : NULL;
}

static void incoming(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m)
{
	gsi.user.incoming(NULL, c, m);
}
static void event(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_event *ev)
{
	gsi.user.event(NULL, c, ev);
}

static void moved(
	void *user, struct rpwi_cm_conn *c, enum rpwi_cm_state from, enum rpwi_cm_state to)
{
	uint64_t now_ns = rpwi_now_ns();
	if (!gsi_is_own(&c->path.remote) && ledger_cm(c, to, now_ns))
		service_wake();
	if (to != RPWI_CM_IDLE && to != RPWI_CM_TIMEWAIT)
		alive_wanted(now_ns);
}

static const struct rpwi_cm_ops cm_ops = {
	.send = send_mad,
	.request = request,
	.incoming = incoming,
	.event = event,
	.random = random32,
	.moved = moved,
};

/* ---- the engine ---- */

static int engine_make(void)
{
	struct rpwi_cm *cm;
	if (gsi.cm)
		return 0;
	gsi.prefix = hca_here.slots[0];
	int rc = rpwi_cm_new(&cm, &cm_ops, NULL, gsi.prefix);
	if (rc)
		return rc;
	gsi.cm = cm;
	gsi.psn = random32(NULL) & RPWI_PSN_MASK;
	return 0;
}

static void engine_free(void)
{
	if (!gsi.cm)
		return;
	rpwi_cm_free(gsi.cm);
	gsi.cm = NULL;
}

/* The peers of a process that ends are told, while there is somebody to tell them. */
static void destroy_one(struct rpwi_cm_conn *c, void *arg)
{
	rpwi_cm_destroy(c, *(const uint64_t *)arg);
}

void gsi_exit(void)
{
	uint64_t now = rpwi_now_ns();
	if (!gsi.cm || !gsi.refs)
		return;
	rpwi_cm_each(gsi.cm, destroy_one, &now);
	gsi.exiting = true;
}

/* A child of a fork that goes on with what it inherited: see place_leave_to_parent. */
static void serve_again(void)
{
	if (RPWI_UNLIKELY(hca_here.opens && !hca_here.service_running))
		service_start();
}

int rpwi_gsi_get(struct rpwi_cm **out)
{
	int rc = hca_get();
	if (rc)
		return rc;
	serve_again();
	rc = engine_make();
	if (rc) {
		hca_put();
		return rc;
	}
	gsi.refs++;
	*out = gsi.cm;
	return 0;
}

void rpwi_gsi_put(void)
{
	gsi.refs--; /* the engine stays as long as a device is open: it knows who is in TIMEWAIT */
	hca_put();
}

void gsi_hca_gone(void)
{
	gsi_defer_forget();
	engine_free();
	ports_sweep(true);
}

/* hca.c gave this process a place of its own, after a fork. */
void gsi_left_to_parent(void)
{
	if (!gsi.cm)
		return;
	bit_set(gsi.parents, gsi.prefix);
	gsi.prefix = hca_here.slots[0];
	gsi.parents[gsi.prefix / 64] &= ~(1ull << gsi.prefix % 64);
	rpwi_cm_set_prefix(gsi.cm, gsi.prefix);
}

void gsi_addresses_changed(void)
{
	gsi.sweep = true;
	if (!gsi.refs || gsi.exiting || !gsi.user.addresses_changed)
		return;
	gsi.user.addresses_changed(NULL);
}

/* ---- claims ---- */

int rpwi_gsi_claim(uint64_t service_id, const struct rpwi_addr *addr)
{
	return hca_here.steer ? rpwi_steer_claim_service(hca_here.steer, service_id, addr)
			      : -ENETDOWN;
}

void rpwi_gsi_unclaim(uint64_t service_id, const struct rpwi_addr *addr)
{
	if (hca_here.steer)
		rpwi_steer_unclaim_service(hca_here.steer, service_id, addr);
}

/* ---- receiving ---- */

void gsi_feed(const struct rpwi_cm_path *path, const uint8_t *mad, size_t len, uint64_t now_ns)
{
	if (gsi.exiting || engine_make() || gsi_answer_for_gone(path, mad, len))
		return;
	rpwi_cm_rx(gsi.cm, path, mad, len, now_ns);
}

bool gsi_ask(const struct rpwi_rx *rx, const struct rpwi_pkt *pkt, uint64_t now_ns)
{
	if (RPWI_UNLIKELY(rpwi_plan_on) && rpwi_plan_silent(0, now_ns))
		return true;
	return gsi_well_formed(pkt) &&
	       alive_rx(&rx->flow.dst, &rx->flow.src, pkt->payload, pkt->payload_len, now_ns);
}

void gsi_rx(const struct rpwi_rx *rx, const struct rpwi_pkt *pkt, uint64_t now_ns)
{
	struct hca *h = &hca_here;
	struct rpwi_cm_path path = {
		.local = rx->flow.dst, .remote = rx->flow.src, .hop_limit = HOP_LIMIT};
	if (pkt->dqpn != RPWI_GSI_QPN) {
		h->n.qp0++; /* subnet management (IB 14.2): there is none on Ethernet */
		return;
	}
	if (!gsi_well_formed(pkt)) {
		h->n.mads_dropped++;
		rpwi_debug("packet for QP 1 is not a MAD (opcode 0x%02x, Q_Key 0x%08x, %u bytes): "
			   "dropped",
			pkt->opcode, pkt->qkey, pkt->payload_len);
		return;
	}
	if (gsi.exiting || engine_make()) {
		h->n.mads_dropped++;
		return;
	}
	h->n.mads++;
	if (gsi_ask(rx, pkt, now_ns))
		return;
	struct rpwi_qp_stats *n = tally_at(dev_first(), &path.local);
	n->rx_packets++;
	n->rx_bytes += pkt->payload_len;
	rpwi_gsi_gid(&path.local, path.local_gid);
	rpwi_gsi_gid(&path.remote, path.remote_gid);
	if (RPWI_UNLIKELY(rpwi_plan_on) && fault_cm_rx(&path, pkt->payload, pkt->payload_len))
		return;
	gsi_feed(&path, pkt->payload, pkt->payload_len, now_ns);
}

/* ---- whether peers still exist: what alive.c asks, and does ---- */

static bool is_connected(const struct dqp *q)
{
	return q->t.type == IBV_QPT_RC && q->t.av.flow.dst.family &&
	       (q->t.state == IBV_QPS_RTR || q->t.state == IBV_QPS_RTS ||
		       q->t.state == IBV_QPS_SQD);
}

static unsigned slot_of_peer(const struct dqp *q)
{
	return (q->t.attr.dest_qp_num & RPWI_QPN_MASK) >> RPWI_SLOT_SHIFT;
}

/* The slot of a connection's peer; 0: nothing to look after. */
static unsigned slot_of_conn(const struct rpwi_cm_conn *c)
{
	unsigned slot = gsi_slot_of_id(c->remote_id);
	bool over = c->state == RPWI_CM_IDLE || c->state == RPWI_CM_TIMEWAIT || c->sidr;
	return over || slot > RPWI_SLOT_MAX || bit_get(gsi.parents, gsi_slot_of_id(c->local_id))
		       ? 0
		       : slot;
}

static void each_qp(void (*fn)(struct dqp *q, void *arg), void *arg)
{
	struct hca *h = &hca_here;
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (h->qps[i][j] && is_connected(h->qps[i][j]))
				fn(h->qps[i][j], arg);
}

static void each_conn(void (*fn)(struct rpwi_cm_conn *c, void *arg), void *arg)
{
	if (!gsi.cm || gsi.exiting)
		return;
	rpwi_cm_each(gsi.cm, fn, arg);
}

struct each {
	void (*fn)(const struct alive_peer *p, void *arg);
	void *arg;
};

static void note_qp(struct dqp *q, void *arg)
{
	const struct each *e = arg;
	if (q->peer)
		q->peer->is_ropeway |= alive_answers(&q->peer->addr);
	const struct alive_peer p = {.local = &q->t.av.flow.src,
		.remote = &q->t.av.flow.dst,
		.slot = slot_of_peer(q),
		.seen = q->heard_ns,
		.heard_ns = q->heard_ns};
	e->fn(&p, e->arg);
}

static void note_conn(struct rpwi_cm_conn *c, void *arg)
{
	const struct each *e = arg;
	const struct alive_peer p = {.local = &c->path.local,
		.remote = &c->path.remote,
		.slot = slot_of_conn(c),
		.seen = true};
	if (p.slot)
		e->fn(&p, e->arg);
}

static void each_peer(void (*fn)(const struct alive_peer *p, void *arg), void *arg)
{
	struct each e = {fn, arg};
	each_qp(note_qp, &e);
	each_conn(note_conn, &e);
}

static const uint64_t TOLD_NS = 900 * RPWI_NS_PER_MS;

struct ending {
	const struct alive_gone *g;
	unsigned n;
};

/* A slot is one process's at every address of this host: a connection of rdma_cm by 127.0.0.1 has
 * its QPs on another device where lo's is hidden. */
static bool same_host(const struct rpwi_addr *a, const struct rpwi_addr *b)
{
	return rpwi_addr_eq(a, b) || (gsi_is_own(a) && gsi_is_own(b));
}

/* How long a QP waits for an answer: see "When a peer is silent" in ARCHITECTURE. */
static uint64_t patience(const struct dqp *q)
{
	uint64_t t = q->t.timeout_ns;
	return t ? 2 * t + 4 * t * q->t.attr.retry_cnt : RPWI_NEVER;
}

static void end_qp(struct dqp *q, void *arg)
{
	struct ending *e = arg;
	const struct alive_gone *g = e->g;
	if (slot_of_peer(q) != g->slot || !same_host(&q->t.av.flow.dst, g->remote) ||
		(g->silent_ns != RPWI_NEVER && patience(q) > g->silent_ns) ||
		(q->told_ns && g->now_ns - q->told_ns < TOLD_NS))
		return;
	e->n++;
	qp_hold(q);
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_fact(RPWI_FACT_PEER_GONE, q->t.qpn, 1);
	q->peer_gone = g->silent_ns == RPWI_NEVER; /* else the path tells more */
	rpwi_qp_peer_gone(&q->t);
	send_kick(q, true, g->now_ns);
}

static void end_conn(struct rpwi_cm_conn *c, void *arg)
{
	struct ending *e = arg;
	unsigned slot = slot_of_conn(c);
	if (!slot || slot != e->g->slot || !same_host(&c->path.remote, e->g->remote))
		return;
	e->n++;
	struct dqp *q = c->local.qpn ? qp_lookup(c->local.qpn) : NULL;
	if (q)
		q->told_ns = e->g->now_ns;
	rpwi_cm_peer_gone(c, e->g->now_ns);
}

/* Connections first: a program that hears DISCONNECTED ends its QP itself, as on any device. It has
 * TOLD_NS for that; then a later look ends it, lest who waits for a receive waits for ever. */
static unsigned end_peers(const struct alive_gone *g)
{
	struct ending e = {.g = g};
	each_conn(end_conn, &e);
	each_qp(end_qp, &e);
	return e.n;
}

static bool is_own_slot(unsigned slot)
{
	return rpwi_steer_owns(hca_here.steer, slot << RPWI_SLOT_SHIFT);
}
static bool slot_exists(unsigned slot)
{
	return is_own_slot(slot) || rpwi_steer_slot_exists(hca_here.steer, (uint16_t)slot);
}
static uint64_t emptied(void) { return hca_here.emptied; }
static uint16_t own_slot(void) { return hca_here.slots[0]; }
static uint16_t helper_slot(bool *is_us)
{
	*is_us = farewell_is_helper;
	return farewell_is_helper ? own_slot() : farewell_helper_slot();
}

static const struct alive_world world = {.each = each_peer,
	.is_here = gsi_is_own,
	.is_own = is_own_slot,
	.exists = slot_exists,
	.emptied = emptied,
	.send = gsi_send_mad_to,
	.gone = end_peers,
	.own_slot = own_slot,
	.helper_slot = helper_slot};

void gsi_begin(void) { alive_begin(&world); }

/* ---- time ---- */

uint64_t gsi_deadline(void)
{
	uint64_t at = RPWI_MIN(gsi_defer_deadline(), alive_deadline());
	if (gsi.user.deadline)
		at = RPWI_MIN(at, gsi.user.deadline(NULL));
	if (!gsi.cm || gsi.exiting)
		return at;
	return gsi.sweep ? 0 : RPWI_MIN(at, rpwi_cm_deadline(gsi.cm));
}

void gsi_timer(uint64_t now_ns)
{
	gsi_defer_timer(now_ns);
	alive_timer(now_ns);
	if (gsi.cm && rpwi_cm_deadline(gsi.cm) <= now_ns)
		rpwi_cm_timer(gsi.cm, now_ns);
	if (gsi.user.deadline && gsi.user.deadline(NULL) <= now_ns)
		gsi.user.timer(NULL, now_ns);
	if (gsi.sweep)
		ports_sweep(false);
}

void rpwi_gsi_kick(void)
{
	struct hca *h = &hca_here;
	serve_again();
	if (atomic_load_explicit(&h->service_sleeps, memory_order_relaxed) &&
		gsi_deadline() < h->service_wake_ns)
		service_wake();
}

/* ---- statistics ---- */

void gsi_stats_print(FILE *to)
{
	if (!gsi.cm)
		return;
	const struct rpwi_cm_stats *s = rpwi_cm_stats(gsi.cm);
	const struct hca_counters *n = &hca_here.n;
	const struct {
		const char *name;
		uint64_t v;
	} rows[] = {
		{"CM messages received", n->mads},
		{"of them malformed", s->bad_mads},
		{"of them for no connection", s->stray},
		{"duplicates", s->duplicates},
		{"requests for no service", s->no_service},
		{"CM messages sent again", s->retries},
		{"CM time-outs", s->timeouts},
		{"not sent", n->mads_unsent},
		{"handed to another process", n->mads_handed_over},
		{"answered for one that ended", n->mads_for_gone},
		{"no MADs, dropped", n->mads_dropped},
		{"for QP 0, ignored", n->qp0},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++)
		fprintf(to, "  cm: %-28s %llu\n", rows[i].name, (unsigned long long)rows[i].v);
	for (unsigned a = 0; a < RPWI_ARRAY_LEN(s->tx); a++)
		if (s->tx[a] || s->rx[a])
			fprintf(to, "  cm: %-9s sent %llu, received %llu\n", rpwi_cm_attr_name(a),
				(unsigned long long)s->tx[a], (unsigned long long)s->rx[a]);
}
