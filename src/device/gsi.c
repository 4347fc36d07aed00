/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi.c - QP 1 of the process: the CM engine, the packets that it is given, and its time. Whose a
 * management datagram is: gsi_route.c.
 *
 * A request for a service that nobody of this host has claimed is rejected (REJ 8) by whichever
 * process it lands at, so that its sender learns at once what it would otherwise learn from a
 * minute of silence. That needs an engine; in a process that has none, one is made for it.
 *
 * Peers that die without a word: alive.c. A process that ends by exit() says so itself.
 */

#include "device/alive.h"
#include "device/devices.h"
#include "device/farewell.h"
#include "device/fact.h"
#include "device/fault.h"
#include "device/gsi.h"
#include "device/gsi_priv.h"
#include "device/progress.h"
#include "device/tally.h"
#include "explain/verbs.h"

static struct {
	struct rpwi_gsi_user user;
	struct rpwi_cm *cm;
	unsigned refs;
	uint16_t prefix;
	bool sweep; /* addresses changed: unused ports may be of some that are gone */
	/* slots of the process that this one was forked from: its connections are not ours to speak
	 * for */
	uint64_t parents[64];
	bool exiting;
} gsi;

static bool bit_get(const uint64_t *set, unsigned i) { return set[i / 64] >> i % 64 & 1; }
static void bit_set(uint64_t *set, unsigned i) { set[i / 64] |= 1ull << i % 64; }

void rpwi_gsi_attach(const struct rpwi_gsi_user *u) { gsi.user = *u; }

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
	gsi_send_begin(random32(NULL) & RPWI_PSN_MASK);
	return 0;
}

static void engine_free(void)
{
	if (!gsi.cm)
		return;
	rpwi_cm_free(gsi.cm);
	gsi.cm = NULL;
}

int gsi_engine_get(struct rpwi_cm **out)
{
	int rc = engine_make();
	if (rc)
		return rc;
	gsi.refs++;
	*out = gsi.cm;
	return 0;
}

/* It stays as long as a device is open: it knows who is in TIMEWAIT. */
void gsi_engine_put(void) { gsi.refs--; }

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

void gsi_hca_gone(void)
{
	engine_free();
	gsi_send_ports_sweep(true);
	gsi.sweep = false;
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
		.local = rx->flow.dst, .remote = rx->flow.src, .hop_limit = GSI_HOP_LIMIT};
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

/* How long a QP waits for an answer: see docs/decisions/probes.md. */
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
	rpwi_fact(RPWI_FACT_PEER_GONE, q->t.qpn, 1, NULL);
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
	uint64_t at = alive_deadline();
	if (gsi.user.deadline)
		at = RPWI_MIN(at, gsi.user.deadline(NULL));
	if (!gsi.cm || gsi.exiting)
		return at;
	return gsi.sweep ? 0 : RPWI_MIN(at, rpwi_cm_deadline(gsi.cm));
}

void gsi_timer(uint64_t now_ns)
{
	alive_timer(now_ns);
	if (gsi.cm && rpwi_cm_deadline(gsi.cm) <= now_ns)
		rpwi_cm_timer(gsi.cm, now_ns);
	if (gsi.user.deadline && gsi.user.deadline(NULL) <= now_ns)
		gsi.user.timer(NULL, now_ns);
	if (gsi.sweep)
		gsi_send_ports_sweep(false);
	gsi.sweep = false;
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
