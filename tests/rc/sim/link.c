/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c - packets under way between the two hosts: a heap of events in virtual time, and the harm
 * done to packets on it. Knows bytes and flows, no queue pair's insides but one: see mercy().
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- The heap, ordered by time, then by when it was scheduled. ---- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void sim_schedule(struct sim_world *w, uint64_t at_ns, struct sim_packet *p, struct sim_end *app)
{
	struct sim_event e = {.at_ns = at_ns, .order = w->order++, .packet = p, .app = app};
	if (w->nheap == w->heap_cap) {
		w->heap_cap = w->heap_cap ? 2 * w->heap_cap : 256;
		w->heap = realloc(w->heap, w->heap_cap * sizeof(*w->heap));
	}
	size_t i = w->nheap++;
	for (; i && before(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = e;
}

struct sim_event sim_next_event(struct sim_world *w)
{
	struct sim_event top = w->heap[0], last = w->heap[--w->nheap];
	size_t i = 0;
	for (;;) {
		size_t c = 2 * i + 1;
		if (c >= w->nheap)
			break;
		if (c + 1 < w->nheap && before(&w->heap[c + 1], &w->heap[c]))
			c++;
		if (!before(&w->heap[c], &last))
			break;
		w->heap[i] = w->heap[c];
		i = c;
	}
	w->heap[i] = last;
	return top;
}

/* ---- Packets ---- */

static struct sim_packet *packet_new(struct sim_world *w)
{
	struct sim_packet *p = w->free_packets;
	if (!p)
		return malloc(sizeof(*p));
	w->free_packets = p->next;
	return p;
}

void sim_packet_free(struct sim_world *w, struct sim_packet *p)
{
	p->next = w->free_packets;
	w->free_packets = p;
}

static void trace(const struct sim_end *e, const struct sim_packet *p, const char *what)
{
	struct rpwi_pkt d;
	if (!e->w->cfg.trace)
		return;
	int rc = rpwi_pkt_decode(p->bytes, p->len, &d);
	fprintf(stderr, "%12llu ns  end %u %-9s %-22s psn %06x%s", (unsigned long long)e->w->now_ns,
		e->index, what, rc ? "?" : rpwi_opcode_name(d.opcode), d.psn, d.ackreq ? " A" : "");
	if (!rc && rpwi_op_has(rpwi_pkt_op(&d), RPWI_F_AETH))
		fprintf(stderr, " syndrome %02x msn %06x", d.syndrome, d.msn);
	if (!rc && rpwi_op_has(rpwi_pkt_op(&d), RPWI_F_RETH))
		fprintf(stderr, " va %llx len %u", (unsigned long long)d.va, d.dma_len);
	fprintf(stderr, " payload %u\n", d.payload_len);
}

/* The bytes as they go onto the wire: headers, pieces, pad, ICRC. */
static void flatten(const struct rpwi_txb *b, const struct rpwi_txpkt *t,
	const struct rpwi_flow *flow, struct sim_packet *p)
{
	const struct rpwi_iov *iov = b->iov + t->iov_first;
	uint8_t *at = p->bytes;
	memcpy(at, t->hdr, t->hdr_len);
	at += t->hdr_len;
	for (unsigned i = 0; i < t->iov_count; i++) {
		memcpy(at, iov[i].base, iov[i].len);
		at += iov[i].len;
	}
	memset(at, 0, t->pad);
	at += t->pad;
	rpwi_put_le32(at, rpwi_icrc(flow, 0, t->hdr, t->hdr_len, iov, t->iov_count, t->pad));
	p->len = (uint32_t)(at + RPWI_ICRC_LEN - p->bytes);
	p->flow = *flow;
}

/* What the transport may put into a batch, whatever the other side says. */
static void check_txpkt(struct sim_end *e, const struct rpwi_txb *b, const struct rpwi_txpkt *t)
{
	size_t sum = 0;
	if (t->hdr_len < RPWI_BTH_LEN || t->hdr_len > RPWI_HDR_MAX ||
		(unsigned)t->iov_first + t->iov_count > b->niov)
		sim_fail(e->w, "end %u: a packet with %u header bytes and pieces %u..%u of %u",
			e->index, t->hdr_len, t->iov_first, t->iov_first + t->iov_count, b->niov);
	for (unsigned i = 0; i < t->iov_count; i++)
		sum += b->iov[t->iov_first + i].len;
	if (sum != t->payload_len || sum > e->w->cfg.mtu || (sum + t->pad) % 4 || t->pad > 3)
		sim_fail(e->w, "end %u: a packet of %zu bytes said to be %u, pad %u, MTU %u",
			e->index, sum, t->payload_len, t->pad, e->w->cfg.mtu);
}

/* A QP gives up after retry_cnt time-outs in a row, as it should. To see whether a run ends well,
 * the link spares a connection that is close to that. */
static bool mercy(const struct sim_end *e)
{
	return sim_is_rc(e->w) && (e->qp.retry_left <= 2 || e->peer->qp.retry_left <= 2);
}

static void deliver_at(struct sim_end *from, struct sim_packet *p, uint64_t at_ns)
{
	p->to = from->peer;
	from->in_link++;
	sim_schedule(from->w, at_ns, p, NULL);
}

static void corrupt(struct sim_world *w, struct sim_packet *p)
{
	/* Up to three bits: the CRC finds every such error at these lengths, so none may ever get
	 * through. */
	for (uint64_t n = rng_between(&w->rng_link, 1, 3); n; n--) {
		uint64_t bit = rng_below(&w->rng_link, (uint64_t)p->len * 8);
		p->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	w->n.corrupted++;
}

static void send_one(struct sim_end *e, struct sim_packet *p)
{
	struct sim_world *w = e->w;
	const struct sim_config *c = &w->cfg;
	bool spare = mercy(e);
	bool lose = rng_chance(&w->rng_link, c->loss), dup = rng_chance(&w->rng_link, c->dup),
	     reorder = rng_chance(&w->rng_link, c->reorder);
	bool harm = rng_chance(&w->rng_link, c->corrupt), late = rng_chance(&w->rng_link, c->late);
	uint64_t at_ns = w->now_ns + c->delay_ns +
			 (c->jitter_ns ? rng_below(&w->rng_link, c->jitter_ns) : 0);
	w->n.packets++;
	if (e->dead || e->peer->dead) {
		trace(e, p, "DEAD");
		sim_packet_free(w, p);
		return;
	}
	if (!spare && (lose || (c->queue_max && e->in_link >= c->queue_max))) {
		lose ? w->n.lost++ : w->n.overflowed++;
		trace(e, p, lose ? "LOST" : "OVERFLOW");
		sim_packet_free(w, p);
		return;
	}
	trace(e, p, "sends");
	if (dup) {
		struct sim_packet *q = packet_new(w);
		memcpy(q, p, offsetof(struct sim_packet, bytes) + p->len);
		w->n.duplicated++;
		deliver_at(e, q, at_ns + rng_below(&w->rng_link, 4 * c->delay_ns));
	}
	if (harm && !spare)
		corrupt(w, p);
	if (late && !spare) {
		w->n.late++;
		/* after time-outs: a ghost */
		at_ns += rng_between(&w->rng_link, RPWI_NS_PER_MS / 2, 60 * RPWI_NS_PER_MS);
	} else if (reorder) {
		w->n.reordered++;
		at_ns += rng_below(&w->rng_link, 4 * (c->delay_ns + c->jitter_ns));
	} else {
		at_ns = RPWI_MAX(at_ns, e->last_arrival_ns);
		e->last_arrival_ns = at_ns;
	}
	deliver_at(e, p, at_ns);
}

void sim_link_send(struct sim_end *from, const struct rpwi_txb *b)
{
	if (b->npkt > RPWI_TXB_PKTS || b->niov > RPWI_TXB_IOVS ||
		b->scratch_used > RPWI_TXB_SCRATCH || !b->av)
		sim_fail(from->w, "end %u: a batch of %u packets, %u pieces, %zu scratch bytes",
			from->index, b->npkt, b->niov, b->scratch_used);
	for (unsigned i = 0; i < b->npkt; i++) {
		struct sim_packet *p = packet_new(from->w);
		check_txpkt(from, b, &b->pkt[i]);
		flatten(b, &b->pkt[i], &b->av->flow, p);
		send_one(from, p);
	}
}

bool sim_link_receive(struct sim_end *to, struct sim_packet *p)
{
	struct sim_world *w = to->w;
	struct rpwi_pkt d;
	uint16_t id = 0;
	to->peer->in_link--;
	if (to->dead || to->peer->dead)
		return false;
	if (rpwi_icrc_check(&p->flow, p->bytes, p->len, &id) != RPWI_ICRC_OK) {
		trace(to, p, "BAD ICRC");
		return false;
	}
	int rc = rpwi_pkt_decode(p->bytes, p->len, &d);
	if (rc || d.dqpn != to->qp.qpn)
		sim_fail(w,
			"end %u: a packet with a right ICRC does not decode (%d) or is for QP %x, "
			"not %x",
			to->index, rc, d.dqpn, to->qp.qpn);
	trace(to, p, "gets");
	struct rpwi_rxmeta meta = {.flow = &p->flow, .ttl = 64};
	rpwi_qp_rx(&to->qp, &d, &meta, w->now_ns);
	return true;
}

/* One message without a batch, as a lane carries it; for the link it is one. */
bool sim_link_send_short(struct sim_end *e)
{
	struct sim_world *w = e->w;
	struct rpwi_short s;
	struct rpwi_txb *b = w->txb;
	if (!rpwi_qp_tx_short(&e->qp, &s, RPWI_MTU_MAX, w->now_ns))
		return false;
	rpwi_txb_reset(b);
	b->av = &e->qp.av;
	if (s.led) {
		const struct rpwi_pkt ack = {.opcode = RPWI_SVC_RC | RPWI_OP_ACK,
			.pkey = RPWI_PKEY_DEFAULT,
			.dqpn = e->qp.attr.dest_qp_num,
			.psn = s.ack_psn,
			.syndrome = s.aeth[0],
			.msn = rpwi_get_be24(s.aeth + 1)};
		struct rpwi_txpkt *t = &b->pkt[b->npkt++];
		*t = (struct rpwi_txpkt){0};
		t->hdr_len = (uint16_t)rpwi_pkt_encode(&ack, t->hdr);
	}
	struct rpwi_txpkt *t = &b->pkt[b->npkt++];
	*t = (struct rpwi_txpkt){.hdr_len = s.hdr_len,
		.pad = (uint8_t)(-s.len & 3),
		.payload_len = s.len,
		.iov_count = s.len > 0};
	memcpy(t->hdr, s.hdr, s.hdr_len);
	b->iov[0] = (struct rpwi_iov){s.data, s.len};
	b->niov = t->iov_count;
	sim_link_send(e, b);
	w->n.shorts++;
	return true;
}
