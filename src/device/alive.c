/* SPDX-License-Identifier: BSD-3-Clause */
/* alive.c - see alive.h.
 *
 * What a silence means. Nothing, for as long as the attributes of a QP allow: its process may be in
 * a debugger, or the path may be slow. What means something:
 * - an answer that the slot is nobody's: whoever of that host answers knows it from the kernel;
 * - twice in a row "port unreachable" and nothing between: no ropeway is left on that host;
 * - eight questions without an answer, to a host that has had a helper answer before: a helper is
 *   stopped by nobody, so the host or the path is gone. A QP whose attributes allow more silence is
 *   left alone until then, one with `timeout` 0 for ever.
 * A host that has never answered is no ropeway's, or an older one's: it is asked every half minute.
 */
#include "device/alive.h"

#include <stdlib.h>

#include "device/farewell.h"
#include "explain/verbs.h"
#include "wire/ask.h"

enum {
	HOSTS_MAX = 1024,
	DEAF_AFTER = 5, /* questions to a host that has never answered */
	SILENT_S = 8,
	REFUSED_MAX = 2,
	SLOT_WORDS = (RPWI_SLOT_MAX + 64) / 64,
};
static const uint64_t LOOK_NS = RPWI_NS_PER_S, DEAF_NS = 30 * RPWI_NS_PER_S,
		      FIRST_LOOK_NS = 100 * RPWI_NS_PER_MS;

struct slots {
	uint64_t w[SLOT_WORDS];
};

/* A host with peers; `remote` is this one where that is_here. */
struct host {
	struct rpwi_list link;
	struct rpwi_addr local, remote;
	bool here;
	struct slots want; /* that there are peers in, this round */
	struct slots seen; /* that have been there */
	struct slots asked;
	bool any;
	uint64_t tid, asked_ns, heard_ns;
	unsigned unanswered, refused, asks;
	bool answers, has_helper;
	uint16_t helper_slot;
};

static struct {
	struct rpwi_list hosts;
	unsigned nhosts;
	uint64_t look_ns;
} alive = {.hosts = {&alive.hosts, &alive.hosts}, .look_ns = RPWI_NEVER};

static bool has(const struct slots *s, unsigned slot) { return s->w[slot / 64] >> slot % 64 & 1; }
static void add(struct slots *s, unsigned slot) { s->w[slot / 64] |= 1ull << slot % 64; }

/* ---- who is looked after ---- */

static struct host *host_find(const struct rpwi_addr *remote)
{
	for (struct rpwi_list *l = alive.hosts.next; l != &alive.hosts; l = l->next) {
		struct host *h = RPWI_CONTAINER_OF(l, struct host, link);
		if (rpwi_addr_eq(&h->remote, remote))
			return h;
	}
	return NULL;
}

static struct host *host_of(const struct rpwi_addr *local, const struct rpwi_addr *remote)
{
	static struct host *last;
	if (!alive.nhosts)
		last = NULL;
	if (last && rpwi_addr_eq(&last->remote, remote))
		return last;
	struct host *h = host_find(remote);
	if (!h && alive.nhosts < HOSTS_MAX && (h = calloc(1, sizeof(*h)))) {
		h->local = *local;
		h->remote = *remote;
		h->here = gsi_is_own(remote);
		rpwi_list_add_tail(&alive.hosts, &h->link);
		alive.nhosts++;
	}
	last = h;
	return h;
}

static void host_forget(struct host *h)
{
	rpwi_list_del(&h->link);
	free(h);
	alive.nhosts--;
}

static bool is_connected(const struct dqp *q)
{
	return q->t.type == IBV_QPT_RC && q->t.av.flow.dst.family &&
	       (q->t.state == IBV_QPS_RTR || q->t.state == IBV_QPS_RTS ||
		       q->t.state == IBV_QPS_SQD);
}

static unsigned slot_of_qp(const struct dqp *q)
{
	return (q->t.attr.dest_qp_num & RPWI_QPN_MASK) >> RPWI_SLOT_SHIFT;
}

/* The slot of a connection's peer; 0: nothing to look after. */
static unsigned slot_of_conn(const struct rpwi_cm_conn *c)
{
	unsigned slot = gsi_slot_of_id(c->remote_id);
	bool over = c->state == RPWI_CM_IDLE || c->state == RPWI_CM_TIMEWAIT || c->sidr;
	return over || slot > RPWI_SLOT_MAX || gsi_is_parents(c) ? 0 : slot;
}

static bool slot_is_looked_after(unsigned slot)
{
	return slot >= 1 && slot <= RPWI_SLOT_MAX &&
	       !rpwi_steer_owns(hca_here.steer, slot << RPWI_SLOT_SHIFT);
}

static void each_qp(void (*fn)(struct dqp *q, void *arg), void *arg)
{
	struct hca *h = &hca_here;
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (h->qps[i][j] && is_connected(h->qps[i][j]))
				fn(h->qps[i][j], arg);
}

static void note_qp(struct dqp *q, void *arg)
{
	uint64_t now = *(uint64_t *)arg;
	unsigned slot = slot_of_qp(q);
	struct host *h;
	if (!slot_is_looked_after(slot) || !(h = host_of(&q->t.av.flow.src, &q->t.av.flow.dst)))
		return;
	h->any = true;
	add(&h->want, slot);
	if (q->heard_ns) /* it has been there, whatever comes now */
		add(&h->seen, slot);
	if (q->heard_ns && now - q->heard_ns < LOOK_NS) {
		h->heard_ns = now;
		add(&h->asked, slot); /* need not be */
	}
}

static void note_conn(struct rpwi_cm_conn *c, void *arg)
{
	unsigned slot = slot_of_conn(c);
	struct host *h;
	if (!slot_is_looked_after(slot) || !(h = host_of(&c->path.local, &c->path.remote)))
		return;
	h->any = true;
	add(&h->want, slot);
	add(&h->seen, slot); /* its messages came from there */
}

/* ---- what is done about one that has ended ---- */

struct gone {
	const struct rpwi_addr *remote;
	unsigned slot;      /* 0: all */
	uint64_t silent_ns; /* of those whose attributes allow less; RPWI_NEVER: it is certain */
	uint64_t now_ns;
	unsigned n;
};

/* How long a QP waits for an answer: see "When a peer is silent" in ARCHITECTURE. */
static uint64_t patience(const struct dqp *q)
{
	uint64_t t = q->t.timeout_ns;
	return t ? 2 * t + 4 * t * q->t.attr.retry_cnt : RPWI_NEVER;
}

static void end_qp(struct dqp *q, void *arg)
{
	struct gone *g = arg;
	if (!rpwi_addr_eq(&q->t.av.flow.dst, g->remote) || (g->slot && slot_of_qp(q) != g->slot) ||
		(g->silent_ns != RPWI_NEVER && patience(q) > g->silent_ns))
		return;
	g->n++;
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_fact(RPWI_FACT_PEER_GONE, q->t.qpn, 1);
	rpwi_qp_peer_gone(&q->t);
	progress_qp_kick(q, true, g->now_ns);
}

static void end_conn(struct rpwi_cm_conn *c, void *arg)
{
	struct gone *g = arg;
	unsigned slot = slot_of_conn(c);
	if (!slot || !rpwi_addr_eq(&c->path.remote, g->remote) || (g->slot && slot != g->slot))
		return;
	g->n++;
	rpwi_cm_peer_gone(c, g->now_ns);
}

/* Connections first: whoever hears DISCONNECTED may end its QP himself. */
static void tell_gone(const struct host *h, unsigned slot, uint64_t silent_ns, uint64_t now_ns)
{
	struct gone g = {
		.remote = &h->remote, .slot = slot, .silent_ns = silent_ns, .now_ns = now_ns};
	gsi_each(end_conn, &g);
	each_qp(end_qp, &g);
	hca_here.n.peers_gone += g.n != 0;
}

/* ---- this host ---- */

static void look_here(struct host *h, uint64_t now_ns)
{
	for (unsigned slot = 1; slot <= RPWI_SLOT_MAX; slot++) {
		if (!has(&h->want, slot))
			continue;
		if (rpwi_steer_slot_exists(hca_here.steer, (uint16_t)slot))
			add(&h->seen, slot);
		else if (has(&h->seen, slot))
			tell_gone(h, slot, RPWI_NEVER, now_ns);
	}
}

/* ---- other hosts ---- */

static void send_question(struct host *h, struct rpwi_ask *a)
{
	uint8_t mad[RPWI_MAD_LEN];
	uint32_t to = h->helper_slot && h->unanswered % 2 == 0
			      ? (uint32_t)h->helper_slot << RPWI_SLOT_SHIFT
			      : RPWI_GSI_QPN;
	rpwi_ask_encode(a, mad);
	gsi_send_mad_to(&h->local, &h->remote, to, mad);
	hca_here.n.asked++;
	a->n = 0;
}

static void ask(struct host *h, uint64_t now_ns)
{
	struct rpwi_ask a = {.tid = rpwi_random64(), .from_slot = hca_here.slots[0]};
	/* at first also while it is heard from: is there a helper? */
	bool any = false, all = !h->has_helper && h->asks < DEAF_AFTER;
	if (!h->answers && h->unanswered >= DEAF_AFTER && now_ns - h->asked_ns < DEAF_NS)
		return;
	for (unsigned slot = 1; slot <= RPWI_SLOT_MAX; slot++) {
		bool quiet = has(&h->want, slot) && (all || !has(&h->asked, slot));
		if (!quiet)
			continue;
		any = true;
		a.slot[a.n++] = (uint16_t)slot;
		if (a.n == RPWI_ASK_SLOTS)
			send_question(h, &a);
	}
	if (!any)
		return;
	h->asked = h->want;
	if (a.n)
		send_question(h, &a);
	h->tid = a.tid;
	h->asked_ns = now_ns;
	h->asks++;
	h->unanswered++;
}

static void look_there(struct host *h, uint64_t now_ns)
{
	uint64_t silent = h->heard_ns ? now_ns - h->heard_ns : 0;
	if (h->heard_ns == now_ns)
		h->refused = 0;
	if (h->refused >= REFUSED_MAX) {
		h->refused = 0;
		tell_gone(h, 0, RPWI_NEVER, now_ns);
		return;
	}
	if (h->has_helper && h->unanswered >= SILENT_S && silent >= SILENT_S * RPWI_NS_PER_S)
		tell_gone(h, 0, silent, now_ns);
	ask(h, now_ns);
}

static void answer(
	const struct rpwi_addr *local, const struct rpwi_addr *remote, struct rpwi_ask *a)
{
	uint8_t mad[RPWI_MAD_LEN];
	uint32_t to = (uint32_t)a->from_slot << RPWI_SLOT_SHIFT;
	a->answer = true;
	a->by_helper = farewell_is_helper;
	a->helper_slot = farewell_is_helper ? hca_here.slots[0] : farewell_helper_slot();
	memset(a->there, 0, sizeof(a->there));
	for (unsigned i = 0; i < a->n; i++)
		if (a->slot[i] &&
			(rpwi_steer_owns(hca_here.steer, (uint32_t)a->slot[i] << RPWI_SLOT_SHIFT) ||
				rpwi_steer_slot_exists(hca_here.steer, a->slot[i])))
			a->there[i / 8] |= (uint8_t)(1u << i % 8);
	a->from_slot = hca_here.slots[0];
	rpwi_ask_encode(a, mad);
	gsi_send_mad_to(local, remote, to, mad);
}

static void answered(struct host *h, const struct rpwi_ask *a, uint64_t now_ns)
{
	hca_here.n.ask_answers++;
	h->answers = true;
	h->unanswered = h->refused = 0;
	h->heard_ns = now_ns;
	h->has_helper |= a->by_helper;
	h->helper_slot = a->helper_slot;
	for (unsigned i = 0; i < a->n; i++) {
		unsigned slot = a->slot[i];
		if (!has(&h->asked, slot))
			continue;
		if (a->there[i / 8] >> i % 8 & 1)
			add(&h->seen, slot);
		else if (has(&h->seen, slot))
			tell_gone(h, slot, RPWI_NEVER, now_ns);
	}
}

bool alive_rx(const struct rpwi_addr *local, const struct rpwi_addr *remote, const uint8_t *mad,
	uint64_t now_ns)
{
	struct rpwi_ask a;
	if (rpwi_ask_decode(mad, RPWI_MAD_LEN, &a))
		return false;
	struct host *h = a.answer ? host_find(remote) : NULL;
	if (!a.answer)
		answer(local, remote, &a);
	else if (h && !h->here && h->tid && h->tid == a.tid)
		answered(h, &a, now_ns);
	return true;
}

bool alive_rx_slot(const struct rpwi_rx *rx, const struct rpwi_pkt *pkt, uint64_t now_ns)
{
	return !(pkt->dqpn & (RPWI_SLOT_QPNS - 1)) && gsi_well_formed(pkt) &&
	       alive_rx(&rx->flow.dst, &rx->flow.src, pkt->payload, now_ns);
}

void alive_refused(const struct rpwi_addr *remote)
{
	struct host *h = host_find(remote);
	if (h && !h->here)
		h->refused++;
}

/* ---- time ---- */

/* Soon: only who has been seen there can be missed. */
void alive_wanted(void) { alive.look_ns = RPWI_MIN(alive.look_ns, rpwi_now_ns() + FIRST_LOOK_NS); }

uint64_t alive_deadline(void) { return alive.look_ns; }

void alive_timer(uint64_t now_ns)
{
	struct rpwi_list *l, *next;
	if (alive.look_ns > now_ns)
		return;
	for (l = alive.hosts.next; l != &alive.hosts; l = l->next) {
		struct host *h = RPWI_CONTAINER_OF(l, struct host, link);
		h->any = false;
		memset(&h->want, 0, sizeof(h->want));
		memset(&h->asked, 0, sizeof(h->asked));
	}
	each_qp(note_qp, &now_ns);
	gsi_each(note_conn, NULL);
	for (l = alive.hosts.next; l != &alive.hosts; l = next) {
		struct host *h = RPWI_CONTAINER_OF(l, struct host, link);
		next = l->next;
		if (!h->any)
			host_forget(h);
		else if (h->here)
			look_here(h, now_ns);
		else
			look_there(h, now_ns);
	}
	alive.look_ns = alive.nhosts ? now_ns + LOOK_NS : RPWI_NEVER;
}

void alive_forget(void)
{
	while (!rpwi_list_empty(&alive.hosts))
		host_forget(RPWI_CONTAINER_OF(alive.hosts.next, struct host, link));
	alive.look_ns = RPWI_NEVER;
}
