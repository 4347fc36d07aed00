/* SPDX-License-Identifier: BSD-3-Clause */
/* gen.c - a script from a seed. Deletion of any of its operations leaves a script that is as valid:
 * what depends on others (which operation is the last, where a READ puts its bytes) is worked out
 * when it is run (plan.c). */
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* The lengths of a round: mostly one magnitude, since short and long messages meet other code. */
enum size { TINY, SMALL, MIDDLE, LARGE, BULK, ANY };

static uint32_t some_length(struct rng *r, enum size size)
{
	static const uint32_t most[] = {64, 512, 8192, MSG_MAX, 40960};
	if (size == ANY) {
		uint32_t d = rng_below(r, 100);
		size = d < 50 ? TINY : d < 75 ? SMALL : d < 94 ? MIDDLE : LARGE;
	}
	if (size == BULK && rng_below(r, 8)) /* where payloads may go by reference */
		return 16384 + rng_below(r, 24577);
	switch (rng_below(r, 8)) {
	case 0: /* around a power of two, where limits are */
		for (;;) {
			uint32_t n = 1u << rng_below(r, 18);
			n += rng_below(r, 5) - 2u;
			if (n <= most[size])
				return n;
		}
	case 1:
		return size == TINY ? 8 : rng_below(r, 65);
	default:
		return rng_below(r, most[size] + 1);
	}
}

static void some_conn(struct rng *r, struct script *s, struct conn *c, const struct limits *l)
{
	uint32_t d = rng_below(r, 10);
	c->type = !l->unreliable || d < 6 || !s->conns ? IBV_QPT_RC
		  : d < 8                              ? IBV_QPT_UC
						       : IBV_QPT_UD;
	c->proc[0] = (uint8_t)rng_below(r, s->procs);
	/* now and then both sides are of one process */
	c->proc[1] =
		(uint8_t)((c->proc[0] + (rng_one_in(r, 12) ? 0 : 1 + rng_below(r, s->procs - 1u))) %
			  s->procs);
	for (int k = 0; k < 2; k++) {
		c->srq[k] = c->type != IBV_QPT_UC && rng_one_in(r, 4);
		c->ex[k] = (uint8_t)rng_below(r, 2);
		c->window[k] = c->type == IBV_QPT_RC ? (uint8_t)rng_below(r, 3) : 0;
	}
	c->mtu = (uint8_t)(s->wire == WIRE_VETH ? 1 + rng_below(r, 3) : 1 + rng_below(r, 5));
	c->gid = rng_one_in(r, 4) ? 2 : 1;
	c->late =
		(uint8_t)(rng_one_in(r, c->type == IBV_QPT_RC ? 2 : 12) ? 1 + rng_below(r, 15) : 0);
}

/* What a script has more of than others: faults of one kind need company of one kind. */
struct taste {
	bool sends, ends; /* mostly SENDs; in most rounds QPs end */
	bool storm;       /* long SENDs to one process, which drops its QPs under them */
};

static uint8_t some_kind(struct rng *r, uint8_t type, const struct taste *taste)
{
	if (taste->sends && rng_below(r, 8))
		return K_SEND;
	static const uint8_t rc[] = {K_SEND, K_SEND, K_SEND, K_SEND_IMM, K_SEND_INV, K_WRITE,
		K_WRITE, K_WRITE, K_WRITE_IMM, K_READ, K_READ, K_READ, K_CAS, K_ADD, K_AWRITE,
		K_WINDOW};
	static const uint8_t uc[] = {K_SEND, K_SEND_IMM, K_WRITE, K_WRITE_IMM};
	static const uint8_t ud[] = {K_SEND, K_SEND_IMM};
	return type == IBV_QPT_RC   ? rc[rng_below(r, sizeof(rc))]
	       : type == IBV_QPT_UC ? uc[rng_below(r, sizeof(uc))]
				    : ud[rng_below(r, sizeof(ud))];
}

static bool is_send(uint8_t kind) { return kind <= K_SEND_INV; }
static bool is_atomic(uint8_t kind) { return kind == K_CAS || kind == K_ADD || kind == K_AWRITE; }

static struct op some_op(struct rng *r, const struct conn *c, const struct taste *taste,
	unsigned dir, enum size size, uint32_t *rx, uint32_t *sink)
{
	struct op o = {.dir = (uint8_t)dir,
		.kind = some_kind(r, c->type, taste),
		.cut = (uint32_t)rng_next(r)};
	uint32_t most = MSG_MAX;
	if (is_send(o.kind) && c->srq[!dir])
		most = SLOT;
	if (c->type == IBV_QPT_UD)
		most = c->srq[!dir] ? 2048 : 128u << c->mtu;
	if (c->type == IBV_QPT_UD && most > 128u << c->mtu)
		most = 128u << c->mtu;
	if (c->type == IBV_QPT_UC && is_send(o.kind))
		most = 8192; /* each of its receives has room for the longest */
	do
		o.len = some_length(r, size);
	while (o.len > most);
	if (is_atomic(o.kind))
		o.len = 8;
	if (o.kind == K_WINDOW)
		o.len = 0;
	if (o.kind == K_READ && *sink < o.len + SGE_MAX * 16)
		o.len = *sink > 256 ? rng_below(r, 64) : 0;
	if (is_send(o.kind) && *rx < o.len + 2048)
		o.len = *rx > 4096 ? rng_below(r, 64) : 0;
	o.nsge = (uint8_t)(is_atomic(o.kind) || rng_one_in(r, 2) ? 1 : 1 + rng_below(r, SGE_MAX));
	if (!o.len && rng_one_in(r, 2))
		o.nsge = 0;
	if (o.kind == K_READ || is_atomic(o.kind))
		*sink -= *sink < o.len + SGE_MAX * 16 ? 0 : o.len + SGE_MAX * 16;
	if (is_send(o.kind)) {
		o.room = o.len + (rng_one_in(r, 2) ? 0 : rng_below(r, 1000));
		*rx -= *rx < o.room + 256 ? 0 : o.room + 256;
	}
	o.to = is_atomic(o.kind) ? rng_below(r, TGT_LEN / 8) * 8
				 : rng_below(r, TGT_LEN - o.len + 1);
	if (is_atomic(o.kind) && rng_one_in(r, 2))
		o.to = rng_below(r, 4) * 8; /* so that they meet */
	o.flags =
		(uint8_t)((rng_one_in(r, 3) ? 0 : F_SIGNALED) | (rng_one_in(r, 12) ? F_FENCE : 0) |
			  (rng_one_in(r, 8) ? F_SOLICITED : 0));
	if (o.kind <= K_WRITE_IMM && o.len <= INLINE_MAX && rng_one_in(r, 3))
		o.flags |= F_INLINE;
	if (c->type == IBV_QPT_RC && o.kind <= K_WRITE_IMM && rng_one_in(r, 10))
		o.flags |= F_SINK | F_FENCE;
	if (rng_one_in(r, 2))
		o.flags |= F_WINDOW;
	return o;
}

static void spoil(struct rng *r, const struct conn *c, struct op *o)
{
	o->bad = (uint8_t)(1 + rng_below(r, BAD_KINDS - 1));
	o->flags |= F_SIGNALED;
	o->flags &= (uint8_t) ~(F_WINDOW | F_INLINE | F_SINK);
	if (o->bad == BAD_SHORT || o->bad == BAD_RECV_LKEY) {
		if (c->srq[!o->dir]) {
			o->bad = BAD_RKEY;
		} else {
			o->kind = K_SEND;
			o->len += o->len < 2;
			o->nsge += !o->nsge;
			o->room = o->len;
			if (o->bad == BAD_SHORT) /* often by one byte */
				o->room = rng_one_in(r, 2) ? o->len - 1 : rng_below(r, o->len);
			return;
		}
	}
	if (o->bad == BAD_LKEY && (o->kind <= K_READ) && o->len && o->nsge)
		return;
	if (o->bad == BAD_LKEY)
		o->bad = BAD_RKEY;
	if (o->kind < K_WRITE || o->kind > K_AWRITE)
		o->kind = K_WRITE, o->room = 0;
	if (o->kind == K_WRITE_IMM) /* R10: what becomes of its receive is not decided */
		o->kind = K_WRITE;
	o->len += !o->len;
	o->nsge += !o->nsge;
	if (o->kind >= K_CAS)
		o->len = 8;
	if (o->bad == BAD_BOUNDS)
		o->to = o->kind >= K_CAS ? TGT_LEN : TGT_LEN - o->len + 1 + rng_below(r, 9);
}

static void happen(struct rng *r, struct script *s, const struct limits *l, unsigned round,
	unsigned conn, uint32_t first, bool *killed)
{
	struct conn *c = &s->conn[conn];
	if (s->nhappenings == sizeof(s->happening) / sizeof(s->happening[0]))
		return;
	if (l->wrong && c->type == IBV_QPT_RC && rng_one_in(r, 2) && s->nops > first) {
		spoil(r, c, &s->op[first + rng_below(r, s->nops - first)]);
		return;
	}
	if (!l->events)
		return;
	struct happening h = {.round = (uint16_t)round,
		.conn = (uint8_t)conn,
		.side = (uint8_t)rng_below(r, 2),
		.at = (uint16_t)rng_below(r, s->nops - first + 1),
		.event = (uint8_t)(EV_DESTROY + rng_below(r, 3)),
		.waits = rng_one_in(r, 40)};
	if (rng_one_in(r, 6) && c->proc[0] != c->proc[1])
		h.event = EV_STOP;
	if (!*killed && rng_one_in(r, 24) && c->proc[0] != c->proc[1]) {
		h.event = EV_KILL;
		*killed = true;
	}
	s->happening[s->nhappenings++] = h;
}

/* A process drops all of its connections at once, in the middle of their traffic. */
static void happen_together(struct rng *r, struct script *s, const uint32_t *count, unsigned p)
{
	unsigned event = EV_DESTROY + rng_below(r, 2);
	uint16_t at = (uint16_t)rng_below(r, 30);
	for (unsigned c = 0; c < s->conns; c++) {
		const struct conn *k = &s->conn[c];
		if (!count[c] || (k->proc[0] != p && k->proc[1] != p) ||
			s->nhappenings == sizeof(s->happening) / sizeof(s->happening[0]))
			continue;
		s->happening[s->nhappenings++] = (struct happening){.round = s->rounds,
			.conn = (uint8_t)c,
			.side = k->proc[1] == p,
			.at = at,
			.event = (uint8_t)event,
			.together = 1};
	}
}

struct script *gen_script(uint64_t seed, enum wire wire, const struct limits *l)
{
	struct rng r = {rng_mix(seed * 31 + wire)};
	struct script *s = script_new(l->ops + 4096);
	s->seed = seed;
	s->wire = (uint8_t)wire;
	s->procs = (uint8_t)(wire == WIRE_VETH || rng_one_in(&r, 2) ? 2 : 2 + rng_below(&r, 3));
	s->threads = (uint8_t)(rng_one_in(&r, 3) ? 1 + rng_below(&r, 3) : 1);
	s->cqs = (uint8_t)(1 + rng_below(&r, 3));
	unsigned conns = 3 + rng_below(&r, 7);
	for (; s->conns < conns; s->conns++)
		some_conn(&r, s, &s->conn[s->conns], l);
	bool killed = false;
	struct taste taste = {.sends = rng_one_in(&r, 3), .ends = rng_one_in(&r, 3)};
	if (l->events && rng_one_in(&r, 6)) {
		taste = (struct taste){true, true, true};
		for (unsigned c = 0; c < conns; c++) {
			s->conn[c].mtu = s->wire == WIRE_VETH ? 3 : 5;
			s->conn[c].srq[0] = s->conn[c].srq[1] = s->conn[c].late = 0;
		}
	}
	while (s->nops < l->ops) {
		unsigned each = 10 + rng_below(&r, rng_one_in(&r, 3) ? 240 : 60);
		enum size size = (enum size)rng_below(&r, 6);
		if (taste.storm || (taste.sends && taste.ends && !rng_one_in(&r, 3)))
			size = rng_one_in(&r, 8) ? LARGE : BULK;
		if (size == LARGE || size == BULK)
			each = 5 + each / (size == LARGE ? 8 : 4);
		unsigned slots[PROCS_MAX] = {0};
		bool together = l->events && taste.ends && (taste.storm || rng_one_in(&r, 3));
		unsigned p = rng_below(&r, s->procs);
		uint32_t count[CONNS_MAX] = {0};
		for (unsigned c = 0; c < s->conns; c++) {
			uint32_t first = s->nops;
			for (unsigned dir = 0; dir < 2; dir++) {
				unsigned n = rng_one_in(&r, 6) ? 0 : 1 + rng_below(&r, each);
				if (taste.storm)
					n = s->conn[c].proc[!dir] == p ? 24 : rng_below(&r, 3);
				uint32_t rx = RX_LEN - 8192, sink = SINK_LEN - 8192;
				unsigned to = s->conn[c].proc[!dir];
				for (unsigned i = 0; i < n && s->nops < s->room; i++) {
					struct op o = some_op(
						&r, &s->conn[c], &taste, dir, size, &rx, &sink);
					o.round = s->rounds;
					o.conn = (uint8_t)c;
					if (is_send(o.kind) || o.kind == K_WRITE_IMM)
						slots[to] += s->conn[c].srq[!dir];
					if (slots[to] > SRQ_MOST)
						break;
					s->op[s->nops++] = o;
				}
			}
			count[c] = s->nops - first;
			if (s->nops > first && !together && s->nops < s->room &&
				rng_one_in(&r, taste.ends ? 2 : 10))
				happen(&r, s, l, s->rounds, c, first, &killed);
		}
		if (together)
			happen_together(&r, s, count, p);
		s->rounds++;
	}
	return s;
}
