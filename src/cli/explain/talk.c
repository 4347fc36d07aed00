/* SPDX-License-Identifier: BSD-3-Clause */
/* talk.c - which packets belong together. Connections are found by communication IDs, their QPs by
 * what REQ and REP say; RC QPs that were connected otherwise by their acknowledgements, which carry
 * a PSN of the other direction; UD by its two QPNs. Owns the tables of the search, which live only
 * here. */
#include "cli/explain/explain.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"

enum {
	HEADS = 1 << 14,
	FLOW_TRIES = 4,
	FLOW_SCAN = 4096,
	CHAIN_MAX = 256,
	FLOWS_MAX = EX_TALKS_MAX * 2,
	FLOW_BIT = 1u << 30
};

/* ---- an index from a key to ends of talks, the newest first ---- */

struct node {
	uint64_t key;
	uint32_t talk, next; /* next: position + 1 */
	uint8_t side;
};
struct index {
	uint32_t head[HEADS];
	struct node *node;
	uint32_t used, room;
};

enum tag { TAG_COMM = 1, TAG_SIDR, TAG_QP, TAG_UD, TAG_FLOW };

static uint64_t mix_addr(uint64_t h, const struct rpwi_addr *a)
{
	return rpwi_mix(rpwi_mix(rpwi_mix(h, a->family), rpwi_get_be64(a->bytes)),
		rpwi_get_be64(a->bytes + 8));
}
static uint64_t key_of(enum tag tag, const struct rpwi_addr *a, uint32_t id)
{
	return rpwi_mix(mix_addr(rpwi_mix(0, tag), a), id);
}

static int index_add(struct index *x, uint64_t key, uint32_t talk, uint8_t side)
{
	if (x->used == x->room) {
		uint32_t room = x->room ? x->room * 2 : 1024;
		struct node *more = realloc(x->node, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		x->node = more;
		x->room = room;
	}
	uint32_t *head = &x->head[key % HEADS];
	x->node[x->used] = (struct node){.key = key, .talk = talk, .side = side, .next = *head};
	*head = ++x->used;
	return 0;
}
static const struct node *index_next(const struct index *x, uint64_t key, uint32_t at)
{
	for (unsigned n = 0; at && x->node && n < CHAIN_MAX; n++, at = x->node[at - 1].next)
		if (x->node[at - 1].key == key)
			return &x->node[at - 1];
	return NULL;
}
static const struct node *index_find(const struct index *x, uint64_t key)
{
	return index_next(x, key, x->head[key % HEADS]);
}

/* ---- talks ---- */

/* One direction between two addresses towards a QPN, not yet known to belong to a talk. */
struct flow {
	struct rpwi_addr src, dst;
	uint32_t dqpn;
	unsigned svc, tries;
	bool has_request;
	uint32_t psn_low, psn_high;
	uint32_t mate; /* + 1 */
	uint32_t talk;
	uint8_t side; /* of its sender */
};

struct search {
	struct ex_model *m;
	struct index index;
	struct flow *flow;
	uint32_t flows, flows_room;
};

static struct ex_talk *talk_new(
	struct ex_model *m, enum ex_kind kind, const struct rpwi_flow *f, uint32_t *id)
{
	if (m->talks == EX_TALKS_MAX)
		return NULL;
	if (m->talks == m->talks_room) {
		uint32_t room = m->talks_room ? m->talks_room * 2 : 64;
		struct ex_talk *more = realloc(m->talk, room * sizeof(*more));
		if (!more) {
			m->out_of_memory = true;
			return NULL;
		}
		m->talk = more;
		m->talks_room = room;
	}
	*id = m->talks++;
	struct ex_talk *t = &m->talk[*id];
	*t = (struct ex_talk){.kind = kind};
	t->end[0].addr = f->src;
	t->end[1].addr = f->dst;
	return t;
}

static void set_qpn(struct search *s, uint32_t id, uint8_t side, uint32_t qpn)
{
	struct ex_end *e = &s->m->talk[id].end[side];
	if (e->has_qpn && e->qpn == qpn)
		return;
	e->qpn = qpn;
	e->has_qpn = true;
	if (index_add(&s->index, key_of(TAG_QP, &e->addr, qpn), id, side))
		s->m->out_of_memory = true;
}

static void set_comm_id(struct search *s, uint32_t id, uint8_t side, uint32_t comm_id)
{
	struct ex_end *e = &s->m->talk[id].end[side];
	if (e->has_comm_id || !comm_id)
		return;
	e->comm_id = comm_id;
	e->has_comm_id = true;
	if (index_add(&s->index, key_of(TAG_COMM, &e->addr, comm_id), id, side))
		s->m->out_of_memory = true;
}

/* ---- messages of the connection manager ---- */

static bool end_is(const struct ex_end *e, const struct rpwi_addr *a, uint32_t comm_id)
{
	return rpwi_addr_eq(&e->addr, a) && (!e->has_comm_id || !comm_id || e->comm_id == comm_id);
}

/* By the receiver's communication ID, else by the sender's. The sender's side, or -1. */
static int find_connection(
	struct search *s, const struct ex_pkt *k, const struct rpwi_cm_msg *m, uint32_t *id)
{
	const struct {
		const struct rpwi_addr *addr, *other;
		uint32_t comm_id, others;
		bool is_sender;
	} ways[] = {{&k->flow.dst, &k->flow.src, m->remote_comm_id, m->local_comm_id, false},
		{&k->flow.src, &k->flow.dst, m->local_comm_id, m->remote_comm_id, true}};
	for (size_t w = 0; w < RPWI_ARRAY_LEN(ways); w++) {
		uint64_t key = key_of(TAG_COMM, ways[w].addr, ways[w].comm_id);
		if (!ways[w].comm_id)
			continue;
		for (const struct node *n = index_find(&s->index, key); n;
			n = index_next(&s->index, key, n->next)) {
			const struct ex_talk *t = &s->m->talk[n->talk];
			if (!end_is(&t->end[n->side], ways[w].addr, ways[w].comm_id) ||
				!end_is(&t->end[1 - n->side], ways[w].other, ways[w].others))
				continue;
			*id = n->talk;
			return ways[w].is_sender ? n->side : 1 - n->side;
		}
	}
	return -1;
}

static void take_req(struct ex_talk *t, const struct rpwi_cm_msg *m)
{
	t->has_cm = t->paired = true;
	t->kind = m->req.transport == 1 ? EX_UC : EX_RC;
	t->port = (uint16_t)m->req.service_id;
	t->port_space = (uint8_t)(m->req.service_id >> 16);
	/* "Starting PSN" is the one with which the other side shall begin (IB 12.7.31). */
	t->first_psn[1] = m->req.starting_psn;
	t->has_psn[1] = true;
	if (m->req.path_mtu >= 1 && m->req.path_mtu <= 5)
		t->mtu = 128u << m->req.path_mtu;
}

static void on_connection(struct search *s, struct ex_pkt *k, const struct rpwi_cm_msg *m)
{
	uint32_t id;
	int side = find_connection(s, k, m, &id);
	/* A communication ID that is used again, for another QP, is another connection. */
	if (m->attr == RPWI_CM_REQ && side >= 0 &&
		(side != 0 || s->m->talk[id].end[0].qpn != m->req.qpn ||
			s->m->talk[id].first_psn[1] != m->req.starting_psn))
		side = -1;
	if (side < 0) {
		struct ex_talk *t = talk_new(s->m, EX_RC, &k->flow, &id);
		if (!t)
			return;
		t->has_cm = true;
		side = 0;
	}
	k->talk = id;
	k->side = (uint8_t)side;
	set_comm_id(s, id, (uint8_t)side, m->local_comm_id);
	if (m->attr != RPWI_CM_REQ)
		set_comm_id(s, id, (uint8_t)(1 - side), m->remote_comm_id);
	if (m->attr == RPWI_CM_REQ) {
		take_req(&s->m->talk[id], m);
		set_qpn(s, id, 0, m->req.qpn);
	} else if (m->attr == RPWI_CM_REP) {
		set_qpn(s, id, (uint8_t)side, m->rep.qpn);
		s->m->talk[id].first_psn[1 - side] = m->rep.starting_psn;
		s->m->talk[id].has_psn[1 - side] = true;
	}
}

static void on_sidr(struct search *s, struct ex_pkt *k, const struct rpwi_cm_msg *m)
{
	bool request = m->attr == RPWI_CM_SIDR_REQ;
	const struct node *n = index_find(&s->index,
		key_of(TAG_SIDR, request ? &k->flow.src : &k->flow.dst, m->local_comm_id));
	uint32_t id;
	if (n) {
		k->talk = n->talk;
		k->side = request ? 0 : 1;
		return;
	}
	struct ex_talk *t = talk_new(s->m, EX_SIDR, &k->flow, &id);
	if (!t)
		return;
	t->has_cm = t->paired = true;
	uint64_t service_id = request ? m->sidr_req.service_id : m->sidr_rep.service_id;
	t->port = (uint16_t)service_id;
	t->port_space = (uint8_t)(service_id >> 16);
	k->talk = id;
	if (!request) { /* the request was before the capture */
		t->end[0].addr = k->flow.dst;
		t->end[1].addr = k->flow.src;
		k->side = 1;
	}
	if (index_add(&s->index, key_of(TAG_SIDR, &t->end[0].addr, m->local_comm_id), id, 0))
		s->m->out_of_memory = true;
}

/* ---- QPs whose connection was not seen ---- */

static struct flow *flow_of(struct search *s, const struct ex_pkt *k, uint32_t *id)
{
	/* a congestion notification is for the QP that it names */
	unsigned svc = k->foreign ? RPWI_SVC_RC : rpwi_pkt_svc(&k->p);
	uint64_t key = rpwi_mix(
		rpwi_mix(mix_addr(mix_addr(rpwi_mix(0, TAG_FLOW), &k->flow.src), &k->flow.dst),
			k->p.dqpn),
		svc);
	for (const struct node *n = index_find(&s->index, key); n && s->flow;
		n = index_next(&s->index, key, n->next)) {
		struct flow *f = &s->flow[n->talk];
		*id = n->talk;
		if (f->dqpn == k->p.dqpn && f->svc == svc && rpwi_addr_eq(&f->src, &k->flow.src) &&
			rpwi_addr_eq(&f->dst, &k->flow.dst))
			return f;
	}
	if (s->flows == FLOWS_MAX)
		return NULL;
	if (s->flows == s->flows_room) {
		uint32_t room = s->flows_room ? s->flows_room * 2 : 64;
		struct flow *more = realloc(s->flow, room * sizeof(*more));
		if (!more) {
			s->m->out_of_memory = true;
			return NULL;
		}
		s->flow = more;
		s->flows_room = room;
	}
	*id = s->flows;
	if (index_add(&s->index, key, s->flows, 0)) {
		s->m->out_of_memory = true;
		return NULL;
	}
	struct flow *f = &s->flow[s->flows++];
	*f = (struct flow){.src = k->flow.src,
		.dst = k->flow.dst,
		.dqpn = k->p.dqpn,
		.svc = svc,
		.talk = EX_NO_TALK};
	return f;
}

static bool is_reverse(const struct flow *a, const struct flow *b)
{
	return a != b && a->svc == b->svc && rpwi_addr_eq(&a->src, &b->dst) &&
	       rpwi_addr_eq(&a->dst, &b->src);
}

static void mate(struct search *s, uint32_t a, uint32_t b)
{
	s->flow[a].mate = b + 1;
	s->flow[b].mate = a + 1;
}

/* A response carries a PSN of the requests that it answers: they are the other direction (IB
 * 9.7.5.1.1). */
static void find_mate(struct search *s, uint32_t id, const struct ex_pkt *k)
{
	struct flow *f = &s->flow[id];
	if (f->mate || f->tries++ >= FLOW_TRIES)
		return;
	for (uint32_t i = s->flows > FLOW_SCAN ? s->flows - FLOW_SCAN : 0; i < s->flows; i++) {
		const struct flow *g = &s->flow[i];
		if (!g->mate && g->has_request && is_reverse(f, g) &&
			rpwi_psn_diff(k->p.psn, g->psn_low) >= 0 &&
			rpwi_psn_diff(k->p.psn, g->psn_high) <= 0) {
			mate(s, id, i);
			return;
		}
	}
}

static void note_request(struct flow *f, const struct ex_pkt *k)
{
	uint32_t more = rpwi_op_has(rpwi_pkt_op(&k->p), RPWI_F_READ) ? k->p.dma_len / 256 : 0;
	uint32_t high = rpwi_psn_add(k->p.psn, RPWI_MIN(more, 1u << 20));
	if (!f->has_request) {
		f->psn_low = k->p.psn;
		f->psn_high = high;
	} else {
		if (rpwi_psn_diff(k->p.psn, f->psn_low) < 0)
			f->psn_low = k->p.psn;
		if (rpwi_psn_diff(high, f->psn_high) > 0)
			f->psn_high = high;
	}
	f->has_request = true;
}

static void on_data(struct search *s, struct ex_pkt *k)
{
	uint64_t key = key_of(TAG_QP, &k->flow.dst, k->p.dqpn);
	for (const struct node *n = index_find(&s->index, key); n;
		n = index_next(&s->index, key, n->next)) {
		const struct ex_talk *t = &s->m->talk[n->talk];
		if (t->end[n->side].qpn != k->p.dqpn ||
			!rpwi_addr_eq(&t->end[n->side].addr, &k->flow.dst) ||
			!rpwi_addr_eq(&t->end[1 - n->side].addr, &k->flow.src))
			continue;
		k->talk = n->talk;
		k->side = 1 - n->side;
		return;
	}
	uint32_t id;
	struct flow *f = flow_of(s, k, &id);
	if (!f)
		return;
	k->talk = FLOW_BIT | id;
	if (k->undecoded && k->foreign != EX_FLUSH)
		return;
	if (ex_is_request(k))
		note_request(f, k);
	else
		find_mate(s, id, k);
}

static void on_ud(struct search *s, struct ex_pkt *k)
{
	uint64_t a = key_of(TAG_UD, &k->flow.src, k->p.sqpn),
		 b = key_of(TAG_UD, &k->flow.dst, k->p.dqpn),
		 key = rpwi_mix(RPWI_MIN(a, b), RPWI_MAX(a, b));
	const struct node *n = index_find(&s->index, key);
	uint32_t id;
	if (n) {
		const struct ex_end *e = &s->m->talk[n->talk].end[0];
		k->talk = n->talk;
		k->side = e->qpn == k->p.sqpn && rpwi_addr_eq(&e->addr, &k->flow.src) ? 0 : 1;
		return;
	}
	struct ex_talk *t = talk_new(s->m, EX_UD, &k->flow, &id);
	if (!t)
		return;
	t->paired = true;
	t->end[0].qpn = k->p.sqpn;
	t->end[1].qpn = k->p.dqpn;
	t->end[0].has_qpn = t->end[1].has_qpn = true;
	k->talk = id;
	if (index_add(&s->index, key, id, 0))
		s->m->out_of_memory = true;
}

/* The one flow without a mate that goes the other way; false where there is none, or more. */
static bool only_reverse(const struct search *s, uint32_t i, uint32_t *found)
{
	unsigned candidates = 0;
	for (uint32_t j = 0; j < s->flows; j++) {
		if (s->flow[j].mate || !is_reverse(&s->flow[i], &s->flow[j]))
			continue;
		*found = j;
		candidates++;
	}
	return candidates == 1;
}

/* What no acknowledgement has paired: if each is the only one that the other can belong to. */
static void pair_leftovers(struct search *s)
{
	for (uint32_t i = 0; i < s->flows && s->flows <= FLOW_SCAN; i++) {
		uint32_t found, back;
		if (!s->flow[i].mate && only_reverse(s, i, &found) &&
			only_reverse(s, found, &back) && back == i)
			mate(s, i, found);
	}
}

static void talks_of_flows(struct search *s)
{
	static const struct {
		unsigned svc;
		enum ex_kind kind;
	} kinds[] = {{RPWI_SVC_RC, EX_RC}, {RPWI_SVC_UC, EX_UC}, {RPWI_SVC_UD, EX_UD}};
	for (uint32_t i = 0; i < s->flows; i++) {
		struct flow *f = &s->flow[i], *g = f->mate ? &s->flow[f->mate - 1] : NULL;
		if (f->talk != EX_NO_TALK)
			continue;
		enum ex_kind kind = EX_OTHER;
		for (size_t n = 0; n < RPWI_ARRAY_LEN(kinds); n++)
			if (kinds[n].svc == f->svc)
				kind = kinds[n].kind;
		struct rpwi_flow way = {.src = f->src, .dst = f->dst};
		uint32_t id;
		struct ex_talk *t = talk_new(s->m, kind, &way, &id);
		if (!t)
			continue;
		f->talk = id;
		f->side = 0;
		t->end[1].qpn = f->dqpn;
		t->end[1].has_qpn = true;
		if (g) {
			g->talk = id;
			g->side = 1;
			t->end[0].qpn = g->dqpn;
			t->end[0].has_qpn = true;
			t->paired = true;
		}
	}
}

/* ---- all together ---- */

static void assign(struct search *s, struct ex_pkt *k)
{
	struct rpwi_cm_msg m;
	k->talk = EX_NO_TALK;
	if (ex_is_cm(k) && rpwi_explain_cm(k, &m)) {
		if (m.attr == RPWI_CM_SIDR_REQ || m.attr == RPWI_CM_SIDR_REP)
			on_sidr(s, k, &m);
		else
			on_connection(s, k, &m);
	} else if (!k->undecoded && rpwi_pkt_svc(&k->p) == RPWI_SVC_UD) {
		on_ud(s, k);
	} else {
		on_data(s, k);
	}
}

int rpwi_explain_add_row(struct ex_talk *t, uint32_t pkt)
{
	if (t->rows == t->rows_room) {
		uint32_t room = t->rows_room ? t->rows_room * 2 : 16;
		uint32_t *more = realloc(t->row, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		t->row = more;
		t->rows_room = room;
	}
	t->row[t->rows++] = pkt;
	return 0;
}

int rpwi_explain_talks(struct ex_model *m)
{
	struct search *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->m = m;
	for (uint32_t i = 0; i < m->pkts && !m->out_of_memory; i++)
		assign(s, &m->pkt[i]);
	pair_leftovers(s);
	talks_of_flows(s);
	for (uint32_t i = 0; i < m->pkts && !m->out_of_memory; i++) {
		struct ex_pkt *k = &m->pkt[i];
		if (k->talk != EX_NO_TALK && k->talk & FLOW_BIT) {
			if (!s->flow)
				continue;
			const struct flow *f = &s->flow[k->talk & ~(uint32_t)FLOW_BIT];
			k->talk = f->talk;
			k->side = f->side;
		}
		if (k->talk != EX_NO_TALK && rpwi_explain_add_row(&m->talk[k->talk], i))
			m->out_of_memory = true;
	}
	free(s->index.node);
	free(s->flow);
	free(s);
	return m->out_of_memory ? -ENOMEM : 0;
}
