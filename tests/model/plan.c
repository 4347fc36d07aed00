/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c - see plan.h. */
#include "plan.h"

#include <string.h>

/* The n-th number that belongs to a `cut`. */
static uint32_t hash(uint32_t cut, uint32_t n)
{
	return (uint32_t)(rng_mix((uint64_t)cut << 32 | n) >> 16);
}

struct span plan_round(const struct script *s, unsigned round)
{
	uint32_t lo = 0, hi = s->nops;
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		if (s->op[mid].round < round)
			lo = mid + 1;
		else
			hi = mid;
	}
	struct span span = {s->op + lo, 0};
	while (lo + span.n < s->nops && span.op[span.n].round == round)
		span.n++;
	return span;
}

struct fate plan_fate(const struct script *s, struct span ops, unsigned round, unsigned conn)
{
	struct fate f = {.bad_dir = -1, .killed = -1};
	const struct conn *c = &s->conn[conn];
	for (unsigned i = 0; i < s->nhappenings; i++) {
		const struct happening *h = &s->happening[i];
		if (h->round != round)
			continue;
		if (h->event == EV_KILL) {
			f.killed = s->conn[h->conn].proc[h->side];
			f.dies |= c->proc[0] == f.killed || c->proc[1] == f.killed;
		}
		if (h->conn == conn && h->event != EV_STOP) {
			f.h = h;
			f.dies = true;
		}
	}
	for (uint32_t i = 0; i < ops.n && !f.h; i++)
		if (ops.op[i].conn == conn && ops.op[i].bad) {
			f.bad_dir = ops.op[i].dir;
			f.dies = true;
		}
	return f;
}

/* READs since the last fence, whose bytes a WRITE behind them must not change: a responder may be
 * asked again (IB 9.7.5.1.3), and then reads what is there at that time. */
struct reads {
	unsigned n;
	struct piece p[32];
};

static bool must_fence(struct reads *r, const struct step *p)
{
	bool changes = p->kind == K_WRITE || p->kind == K_WRITE_IMM || p->kind == K_CAS ||
		       p->kind == K_ADD || p->kind == K_AWRITE;
	bool fence = p->flags & F_FENCE || p->kind == K_SEND_INV;
	for (unsigned i = 0; changes && !fence && i < r->n; i++)
		fence = p->to < r->p[i].at + r->p[i].len && r->p[i].at < p->to + p->len;
	if (fence)
		r->n = 0;
	if (p->kind == K_READ) {
		if (r->n == sizeof(r->p) / sizeof(r->p[0])) {
			r->n = 0;
			fence = true; /* it is as good here as later */
		}
		r->p[r->n++] = (struct piece){p->to, p->len};
	}
	return fence;
}

static uint32_t gap(uint32_t cut, unsigned i) { return hash(cut, 300 + i) % 9; }

/* Room for a receive, with gaps between its pieces in which nothing may be written. */
static void add_receive(struct stream *st, struct step *p, uint32_t room)
{
	unsigned m = st->msgs++;
	p->msg = (uint16_t)m;
	st->step_of[m] = (uint16_t)(p - st->step);
	st->rx_at[m] = st->rx_used + hash(p->cut, 400) % 32;
	st->rx_room[m] = room;
	st->rx_cut[m] = p->cut;
	if (!st->shared)
		st->rx_used = st->rx_at[m] + room + SGE_MAX * 8 + 16;
}

void plan_stream(
	struct stream *st, const struct script *s, struct span ops, unsigned conn, unsigned dir)
{
	const struct conn *c = &s->conn[conn];
	unsigned rc = c->type == IBV_QPT_RC, round = ops.n ? ops.op[0].round : 0;
	struct reads reads = {0};
	bool window = c->window[!dir];
	unsigned quiet = 0, mine = 0;
	uint32_t most = 0, same_room = 0;
	*st = (struct stream){.conn = c,
		.conn_number = (uint16_t)conn,
		.round = (uint16_t)round,
		.dir = (uint8_t)dir,
		.seed = rng_mix(s->seed ^ rng_mix((uint64_t)round << 16 | conn << 4 | dir)),
		.shared = c->srq[!dir]};
	/* what may be lost leaves its receive to the next message, whichever that is */
	for (uint32_t i = 0; i < ops.n; i++) {
		if (ops.op[i].conn != conn || ops.op[i].dir != dir)
			continue;
		mine++;
		if (!rc && ops.op[i].len > same_room && kind_is_send(ops.op[i].kind))
			same_room = ops.op[i].len;
	}
	if (c->type == IBV_QPT_UD)
		same_room += GRH;
	for (uint32_t i = 0; i < ops.n && st->n < STREAM_MAX; i++) {
		const struct op *o = &ops.op[i];
		if (o->conn != conn || o->dir != dir)
			continue;
		struct step *p = &st->step[st->n];
		*p = (struct step){.kind = o->kind,
			.flags = o->flags,
			.nsge = o->nsge,
			.bad = o->bad,
			.msg = NO_MSG,
			.len = o->nsge ? o->len : 0,
			.cut = o->cut,
			.to = o->to,
			.room = o->room};
		if (p->kind == K_SEND_INV && (c->window[!dir] != 2 || !window))
			p->kind = K_SEND;
		if (!window || p->bad)
			p->flags &= (uint8_t)~F_WINDOW;
		if (p->kind == K_SEND_INV)
			window = false;
		/* its completion says that what was before it has come, or is lost */
		bool last = c->type == IBV_QPT_UC && --mine == 0;
		if (last && p->kind == K_WRITE)
			p->kind = K_WRITE_IMM;
		if (kind_takes_receive(p->kind)) {
			uint32_t room = !rc ? same_room : kind_is_send(p->kind) ? p->room : 0;
			if (!st->shared &&
				st->rx_used + (room + 256) * (rc || last ? 1 : 2) > RX_LEN) {
				if (c->type != IBV_QPT_UC)
					continue; /* the generator leaves room; UD has no WRITE */
				p->kind = K_WRITE;
			} else {
				add_receive(st, p, room);
			}
		}
		p->sink_top = st->sink_used;
		if (p->kind == K_READ || kind_is_atomic(p->kind)) {
			p->sink_at = st->sink_used + hash(p->cut, 500) % 8;
			st->sink_used = p->sink_at + p->len + SGE_MAX * 8 + 8;
		}
		if (p->flags & F_SINK && (!kind_has_payload(p->kind) || p->sink_top < p->len))
			p->flags &= (uint8_t)~F_SINK;
		if (p->flags & F_SINK)
			p->flags = (uint8_t)((p->flags | F_FENCE) & ~F_INLINE);
		if (must_fence(&reads, p))
			p->flags |= F_FENCE;
		quiet = p->flags & F_SIGNALED ? 0 : quiet + 1;
		if (quiet == UNSIGNALED_MAX || p->bad)
			p->flags |= F_SIGNALED, quiet = 0;
		/* unique, and nowhere near a small number */
		p->imm = (uint32_t)rng_mix(st->seed + st->n) << 10 | st->n;
		most = p->len > most ? p->len : most;
		st->n++;
	}
	if (st->n)
		st->step[st->n - 1].flags |= F_SIGNALED;
	st->tx_len = 2 * most + 256 < TX_LEN ? 2 * most + 256 : TX_LEN;
	for (st->bad = 0; st->bad < st->n && !st->step[st->bad].bad; st->bad++)
		;
}

static unsigned split(uint32_t cut, unsigned n, uint32_t len, struct piece *out)
{
	for (unsigned i = 0; i < n; i++) {
		uint32_t d = hash(cut, i);
		out[i].len = i + 1 == n ? len : d % 4 ? d / 4 % (len + 1) : 0;
		len -= out[i].len;
	}
	return n;
}

unsigned plan_gather(const struct stream *st, const struct step *p, struct piece *out)
{
	uint32_t limit = p->flags & F_SINK ? p->sink_top : st->tx_len;
	unsigned n = split(p->cut, p->nsge, p->len, out);
	for (unsigned i = 0; i < n; i++)
		out[i].at = hash(p->cut, 100 + i) % (limit - out[i].len + 1);
	return n;
}

static unsigned in_order(uint32_t cut, unsigned n, uint32_t len, uint32_t at, struct piece *out)
{
	split(cut, n, len, out);
	for (unsigned i = 0; i < n; i++) {
		out[i].at = at;
		at += out[i].len + gap(cut, i);
	}
	return n;
}

unsigned plan_scatter(const struct step *p, struct piece *out)
{
	return in_order(p->cut, p->nsge, p->len, p->sink_at, out);
}

unsigned plan_receive(const struct stream *st, unsigned msg, struct piece *out)
{
	uint32_t cut = st->rx_cut[msg] ^ 0x5bd1e995u, room = st->rx_room[msg];
	unsigned n = 1 + hash(cut, 200) % 8;
	if (n > SGE_MAX)
		n = room ? 1 : 0;
	return in_order(cut, n, room, st->rx_at[msg], out);
}
