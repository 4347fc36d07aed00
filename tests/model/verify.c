/* SPDX-License-Identifier: BSD-3-Clause */
/* verify.c - after a round: every byte of this process against the model. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "side.h"

static void see(struct side *m, enum choice c) { m->tally->choice[c]++; }

#define WRONG(m, e, form, ...) \
	fail(m, "connection %u side %u: " form, (e)->number, (e)->side, ##__VA_ARGS__)

static void same(struct side *m, struct end *e, const char *what, const uint8_t *is,
	const uint8_t *should, size_t n)
{
	char why[300];
	m->tally->bytes += n;
	if (!bytes_same(what, is, should, n, why, sizeof(why)))
		WRONG(m, e, "%s", why);
}

static void all(struct side *m, struct end *e, const char *what, const uint8_t *is, uint8_t should,
	size_t n)
{
	char why[300];
	m->tally->bytes += n;
	if (!bytes_all(what, is, should, n, why, sizeof(why)))
		WRONG(m, e, "%s", why);
}

/* How much of an area this round may have touched. */
static size_t used_of(const struct end *e, enum mr which)
{
	switch (which) {
	case MR_TX:
		return e->out.tx_len;
	case MR_SINK:
		return e->out.sink_used + 32;
	case MR_RX:
		return e->in.rx_used + 32;
	default:
		return TGT_LEN;
	}
}

/* Nothing of a QP that is gone may be written, from the moment on at which the call returned. What
 * was there is kept, and painted over: the receives first, and soon, since what is written late
 * should find the paint. */
void verify_dead(struct side *m, struct end *e)
{
	(void)m;
	for (unsigned i = MR_KINDS; i-- > 0;) {
		memcpy(e->guarded[i], e->mem[i], used_of(e, i));
		memset(e->mem[i], GONE, used_of(e, i));
	}
}

static const uint8_t *held(const struct end *e, enum mr which)
{
	return e->state == DEAD ? e->guarded[which] : e->mem[which];
}

static void sender(struct side *m, struct end *e)
{
	const struct stream *st = &e->out;
	const uint8_t *tx = held(e, MR_TX), *sink = held(e, MR_SINK);
	static uint8_t flat_is[MSG_MAX], flat_new[MSG_MAX], flat_old[MSG_MAX];
	struct piece pc[SGE_MAX];
	same(m, e, "what was sent", tx, e->im_out.tx, st->tx_len);
	/* the image has all that could have come; what need not have come is taken as it is */
	for (uint32_t i = e->pub->good; e->fate.dies && i < st->n; i++) {
		const struct step *p = &st->step[i];
		if (p->kind != K_READ && !kind_is_atomic(p->kind))
			continue;
		unsigned n = 1;
		uint32_t at = 0;
		pc[0] = (struct piece){p->sink_at, 8};
		if (p->kind == K_READ)
			n = plan_scatter(p, pc);
		memset(flat_old, BLANK, p->len);
		for (unsigned k = 0; k < n; k++) {
			memcpy(flat_is + at, sink + pc[k].at, pc[k].len);
			memcpy(flat_new + at, e->im_out.sink + pc[k].at, pc[k].len);
			memcpy(e->im_out.sink + pc[k].at, sink + pc[k].at, pc[k].len);
			at += pc[k].len;
		}
		if (i >= st->bad) /* refused; it may have been copied in parts, up to the bound */
			memcpy(flat_new, flat_old, p->len);
		if (i == st->bad && p->bad == BAD_BOUNDS && p->to < TGT_LEN)
			memcpy(flat_new, e->im_out.tgt + p->to, TGT_LEN - p->to);
		int got = bytes_mixed(flat_is, flat_old, flat_new, p->len,
			e->fate.killed >= 0 ? 1 : 128u << e->conn->mtu, GONE);
		if (!got)
			WRONG(m, e,
				"step %u, a %s (%s) of %u bytes that did not complete: its "
				"sink has neither what it had nor what was read",
				i, kind_names[p->kind], bad_names[p->bad], p->len);
		if (got > 1)
			see(m, CH_SINK_EARLY);
	}
	same(m, e, "where READs go", sink, e->im_out.sink, used_of(e, MR_SINK));
	if (m->round % 4 == 0 || e->fate.dies)
		all(m, e, "beside where READs go", e->mem[MR_SINK] + used_of(e, MR_SINK), BLANK,
			SINK_LEN + 64 - used_of(e, MR_SINK));
}

/* A message's receive, from the model or as it is; false: it had no message. */
static void place(const struct stream *st, unsigned receive, const uint8_t *from, uint32_t len,
	uint32_t skip, uint8_t *model)
{
	struct piece pc[SGE_MAX];
	unsigned n = plan_receive(st, receive, pc);
	for (unsigned i = 0; i < n && len; i++) {
		uint32_t off = skip < pc[i].len ? skip : pc[i].len;
		uint32_t k = pc[i].len - off < len ? pc[i].len - off : len;
		skip -= off;
		memcpy(model + pc[i].at + off, from, k);
		from += k;
		len -= k;
	}
}

static uint32_t flatten(const struct stream *st, unsigned receive, const uint8_t *mem, uint8_t *to)
{
	struct piece pc[SGE_MAX];
	unsigned n = plan_receive(st, receive, pc);
	uint32_t at = 0;
	for (unsigned i = 0; i < n; i++) {
		memcpy(to + at, mem + pc[i].at, pc[i].len);
		at += pc[i].len;
	}
	return at;
}

static uint8_t model_rx[RX_LEN + 64], flat[MSG_MAX + 4096], blank[MSG_MAX + 4096];

/* A receive that did not complete, of a QP that has ended. */
static void open_receive(struct side *m, struct end *e, unsigned k, const uint8_t *rx)
{
	const struct stream *st = &e->in;
	const struct step *p = &st->step[st->step_of[k]];
	uint32_t room = flatten(st, k, rx, flat), len = p->len < room ? p->len : room;
	if (kind_is_send(p->kind)) {
		int got = bytes_mixed(flat, blank, e->im_in.msg, len,
			e->fate.killed >= 0 ? 1 : 128u << e->conn->mtu, GONE);
		if (!got)
			WRONG(m, e,
				"receive %u did not complete, and has neither what it had nor "
				"what was sent",
				k);
		if (got > 1)
			see(m, got == 2 ? CH_RX_EARLY : CH_RX_STALE);
		place(st, k, flat, len, 0, model_rx);
	}
}

/* UC: bytes of messages that never came whole may lie in receives that waited for the next. And of
 * a QP that ended completions may have gone with it (UD, too), be it of what came twice. */
static bool partly(struct side *m, struct end *e, unsigned receive, const uint8_t *rx)
{
	const struct stream *st = &e->in;
	uint32_t room = flatten(st, receive, rx, flat);
	static uint8_t ok[MSG_MAX + 4096], should[MSG_MAX + 4096];
	uint32_t skip = e->conn->type == IBV_QPT_UD ? GRH : 0;
	memset(ok, 0, room);
	memset(should, BLANK, room);
	memset(ok, skip != 0, skip);
	struct piece pc[SGE_MAX];
	unsigned n = plan_receive(st, receive, pc);
	uint32_t at = 0;
	for (unsigned i = 0; i < n; at += pc[i++].len)
		memcpy(should + at, model_rx + pc[i].at, pc[i].len);
	for (uint32_t i = skip; i < room; i++)
		ok[i] = flat[i] == should[i];
	for (unsigned k = 0; k < st->msgs; k++) {
		const struct step *p = &st->step[st->step_of[k]];
		if ((e->got[k] && !m->sh->doubles) || !kind_is_send(p->kind))
			continue;
		image_payload(&e->im_in, st, p);
		for (uint32_t i = 0; i < p->len && i + skip < room; i++)
			ok[i + skip] |= flat[i + skip] == e->im_in.msg[i];
	}
	if (memchr(ok, 0, room))
		return false;
	place(st, receive, flat, room, 0, model_rx);
	return true;
}

static void slot_holds(struct side *m, struct end *e, unsigned k, uint32_t slot)
{
	const struct step *p = &e->in.step[e->in.step_of[k]];
	uint8_t *at = m->srq_mem + (size_t)(slot % SRQ_SLOTS) * SLOT;
	uint32_t grh = e->conn->type == IBV_QPT_UD ? GRH : 0;
	uint32_t len = kind_is_send(p->kind) ? p->len : 0;
	same(m, e, "a receive of the SRQ", at + grh, e->im_in.msg, len);
	all(m, e, "behind a message in a SRQ's receive", at + grh + len, BLANK, SLOT - grh - len);
	memset(at, BLANK, len + grh);
}

/* The program asked for it: packets of WRITEs may be placed before earlier ones. */
static bool writes_unordered(void)
{
	const char *way = getenv("ROPEWAY_WRITES");
	return way && !strcmp(way, "unordered");
}

/* What the peer's requests did to the target: exactly all before `good`, and of those up to
 * `posted` a prefix, the last perhaps in part. Where WRITEs have no order, any bytes of them, also
 * as they were when the QP had ended. */
static void cut_target(struct side *m, struct end *e, const uint8_t *tgt, uint32_t good)
{
	struct stream *st = &e->in;
	struct image *im = &e->im_in;
	uint32_t posted = atomic_load(&e->peer->posted);
	uint32_t mtu = e->fate.killed >= 0 ? 8 : 128u << e->conn->mtu;
	static uint8_t known[TGT_LEN];
	size_t differ = 0;
	posted = posted < st->bad ? posted : st->bad;
	for (size_t i = 0; i < TGT_LEN; i++) {
		known[i] = tgt[i] == im->tgt[i];
		differ += !known[i];
	}
	if (!differ)
		return;
	for (uint32_t i = good; i < posted; i++) {
		struct step *p = &st->step[i];
		bool changes = p->kind == K_WRITE || p->kind == K_WRITE_IMM ||
			       p->kind == K_AWRITE || kind_is_atomic(p->kind);
		if (!changes) {
			image_apply(im, st, p);
			continue;
		}
		static uint8_t was[MSG_MAX];
		memcpy(was, im->tgt + p->to, p->len);
		image_apply(im, st, p);
		for (uint32_t k = 0; k < p->len; k += mtu) {
			uint32_t n = p->len - k < mtu ? p->len - k : mtu;
			for (uint32_t b = k; b < k + n; b++) {
				differ -= tgt[p->to + b] != was[b];
				differ += tgt[p->to + b] != im->tgt[p->to + b];
				known[p->to + b] |= tgt[p->to + b] == im->tgt[p->to + b] ||
						    tgt[p->to + b] == GONE;
			}
			if (!differ) {
				see(m, k + n < p->len ? CH_CUT_WITHIN : CH_CUT);
				return;
			}
		}
	}
	if (writes_unordered() && !memchr(known, 0, TGT_LEN)) {
		see(m, CH_CUT_WITHIN);
		return;
	}
	WRONG(m, e,
		"the target is as after none of the requests %u to %u of the peer, whose QP "
		"ended: %zu bytes differ from all of them",
		good, posted, differ);
}

/* UC: a WRITE may not have come, or not all of its packets. */
static bool uc_target(struct side *m, struct end *e, const uint8_t *tgt, const uint8_t *before)
{
	const struct stream *st = &e->in;
	static uint8_t ok[TGT_LEN];
	for (size_t i = 0; i < TGT_LEN; i++)
		ok[i] = tgt[i] == before[i];
	for (unsigned i = 0; i < st->n; i++) {
		const struct step *p = &st->step[i];
		if (p->kind != K_WRITE && p->kind != K_WRITE_IMM)
			continue;
		image_payload(&e->im_in, st, p);
		for (uint32_t k = 0; k < p->len; k++)
			ok[p->to + k] |= tgt[p->to + k] == e->im_in.msg[k];
	}
	see(m, CH_UC_WRITE);
	const uint8_t *bad = memchr(ok, 0, TGT_LEN);
	if (bad)
		WRONG(m, e, "the target: at %zu is %02x, which was not there and nobody wrote",
			(size_t)(bad - ok), tgt[bad - ok]);
	return true;
}

static void receiver(struct side *m, struct end *e)
{
	struct stream *st = &e->in;
	struct image *im = &e->im_in;
	const uint8_t *tgt = held(e, MR_TGT), *rx = held(e, MR_RX);
	bool rc = e->conn->type == IBV_QPT_RC, ud = e->conn->type == IBV_QPT_UD;
	uint32_t upto = st->bad, used = st->rx_used + 32, rdone = e->rdone;
	static uint8_t before[TGT_LEN], surely[TGT_LEN];
	/* what was received came after all that was before it */
	if (e->fate.dies && rc) {
		upto = atomic_load(&e->peer->good);
		if (rdone && st->step_of[rdone - 1] + 1u > upto)
			upto = st->step_of[rdone - 1] + 1u;
		upto = upto < st->bad ? upto : st->bad;
	}
	if (!rc)
		memcpy(before, im->tgt, TGT_LEN);
	memset(model_rx, BLANK, used);
	for (unsigned i = 0; i < st->n; i++) {
		struct step *p = &st->step[i];
		bool payload = false;
		if (i == upto)
			memcpy(surely, im->tgt, e->fate.dies ? TGT_LEN : 0);
		if (i < st->bad)
			payload = image_apply(im, st, p);
		if (p->msg == NO_MSG || !rc)
			continue;
		if (!payload)
			image_payload(im, st, p);
		if (p->msg < rdone && st->shared)
			slot_holds(m, e, p->msg, e->slot_of[p->msg]);
		else if (p->msg < rdone && kind_is_send(p->kind))
			place(st, p->msg, im->msg, p->len, 0, model_rx);
		else if (e->fate.dies && !st->shared)
			open_receive(m, e, p->msg, rx);
	}
	for (uint32_t k = 0; !rc && k < rdone; k++) {
		const struct step *p = &st->step[st->step_of[e->msg_of[k]]];
		image_payload(im, st, p);
		if (st->shared)
			slot_holds(m, e, e->msg_of[k], e->slot_of[k]);
		else if (kind_is_send(p->kind))
			place(st, k, im->msg, p->len, ud ? GRH : 0, model_rx);
		if (ud && !st->shared) { /* the GRH's first half is nobody's on IPv4 */
			static uint8_t grh[SLOT * 2];
			flatten(st, k, rx, grh);
			place(st, k, grh, GRH, 0, model_rx);
		}
	}
	if (!st->shared) {
		if (!rc && (!ud || e->fate.dies) && memcmp(rx, model_rx, used))
			for (unsigned k = 0; k < st->msgs && (k <= rdone || e->fate.dies); k++)
				if (partly(m, e, k, rx))
					see(m, CH_UC_PARTLY);
		same(m, e, "receives", rx, model_rx, used);
		if (m->round % 4 == 0 || e->fate.dies)
			all(m, e, "beside receives", e->mem[MR_RX] + used, BLANK,
				RX_LEN + 64 - used);
	}
	if (e->fate.dies && rc) {
		if (upto < st->n)
			memcpy(im->tgt, surely, TGT_LEN);
		cut_target(m, e, tgt, upto);
	} else if (rc || !memcmp(tgt, im->tgt, TGT_LEN) || !uc_target(m, e, tgt, before)) {
		same(m, e, "the target", tgt, im->tgt, TGT_LEN);
	}
	if (!rc)
		memcpy(im->tgt, tgt, TGT_LEN);
	all(m, e, "behind the target", e->mem[MR_TGT] + TGT_LEN, BLANK, 64);
}

static bool leaves(struct end *e, unsigned k, const uint8_t *at)
{
	const struct step *p = &e->in.step[e->in.step_of[k]];
	uint32_t skip = e->conn->type == IBV_QPT_UD ? GRH : 0;
	uint32_t len = kind_is_send(p->kind) ? p->len : 0;
	image_payload(&e->im_in, &e->in, p);
	return (!len || bytes_mixed(at + skip, blank, e->im_in.msg, len,
				e->fate.killed >= 0 ? 1 : 128u << e->conn->mtu, GONE)) &&
	       !memcmp(at + skip + len, blank, SLOT - skip - len);
}

/* Is it what a further message of a QP that ended would leave there? Its completion may have gone
 * with the QP. */
static bool of_an_ended(struct side *m, const uint8_t *at)
{
	struct end *best = NULL;
	unsigned nearest = UINT32_MAX;
	for (unsigned i = 0; i < m->nends; i++) {
		struct end *e = m->end[i];
		for (unsigned k = e->lost_next; e->fate.dies && e->in.shared && k < e->in.msgs; k++)
			if ((!e->got[k] || m->sh->doubles) && k - e->lost_next < nearest &&
				leaves(e, k, at)) {
				best = e;
				nearest = k - e->lost_next;
			}
	}
	if (best && best->conn->type == IBV_QPT_RC)
		best->lost_next += nearest + 1;
	else if (best)
		best->got[best->lost_next + nearest] = 1;
	return best;
}

/* A datagram may come after all was quiet. */
static bool comes_late(struct side *m, uint32_t s)
{
	for (unsigned tries = 0; tries < 200 && !m->slot[s % SRQ_SLOTS].done; tries++) {
		for (unsigned i = 0; i < m->s->cqs; i++)
			poll_some(m, i, 32);
		usleep(100);
	}
	return m->slot[s % SRQ_SLOTS].done;
}

/* A QP had taken it, and ended: what is there is of the message that it was receiving. */
static void flushed_slot(struct side *m, uint32_t s)
{
	struct slot *slot = &m->slot[s % SRQ_SLOTS];
	struct end *e = slot->flushed;
	uint8_t *at = m->srq_mem + (size_t)(s % SRQ_SLOTS) * SLOT;
	if (memcmp(at, blank, SLOT) && (e->rdone >= e->in.msgs || !leaves(e, e->rdone, at)))
		WRONG(m, e, "slot %u of the SRQ was flushed, and has more than message %u of %u", s,
			e->rdone, e->in.msgs);
	memset(at, BLANK, SLOT);
	slot->flushed = NULL;
}

/* Receives of the SRQ that no completion told of. */
static void srq_rest(struct side *m)
{
	uint32_t first = m->srq_first, taken = first; /* those before it were taken */
	for (unsigned i = 0; i < m->nends; i++)
		m->end[i]->lost_next = m->end[i]->conn->type == IBV_QPT_RC ? m->end[i]->rdone : 0;
	for (uint32_t s = first; s != m->srq_posted; s++)
		if (m->slot[s % SRQ_SLOTS].done ||
			memcmp(m->srq_mem + (size_t)(s % SRQ_SLOTS) * SLOT, blank, SLOT))
			taken = s + 1;
	for (uint32_t s = first; s != m->srq_posted; s++) {
		uint8_t *at = m->srq_mem + (size_t)(s % SRQ_SLOTS) * SLOT;
		char why[300];
		if (m->slot[s % SRQ_SLOTS].flushed)
			flushed_slot(m, s);
		if (m->slot[s % SRQ_SLOTS].done)
			continue;
		m->tally->bytes += SLOT;
		*why = 0;
		bool untouched = bytes_all("a receive of the SRQ that did not complete", at, BLANK,
			SLOT, why, sizeof(why));
		/* they are taken in order: what those behind it are done after was taken, too */
		if (untouched && s - first >= taken - first)
			continue;
		/* one that was taken last, and left as it was, shows only in a later round */
		if (untouched && m->srq_doubt)
			m->srq_doubt--;
		else if (comes_late(m, s))
			; /* a datagram; identify() has held it against what was sent */
		else if (!of_an_ended(m, at)) {
			size_t n = strlen(why);
			for (unsigned i = 0; i < m->nends && n < sizeof(why) - 60; i++)
				if (m->end[i]->in.shared)
					n += (size_t)snprintf(why + n, sizeof(why) - n,
						"; %u.%u %s %u of %u", m->end[i]->number,
						m->end[i]->side,
						m->end[i]->fate.dies ? "ended," : "has",
						m->end[i]->rdone, m->end[i]->in.msgs);
			fail(m, "slot %u of the SRQ is no message's: %s", s, why);
		}
		if (!m->slot[s % SRQ_SLOTS].done) {
			m->slot[s % SRQ_SLOTS].done = 1;
			m->srq_lost++;
			see(m, CH_SRQ_LOST);
		}
		memset(at, BLANK, SLOT);
	}
	for (unsigned i = 0; i < m->nends; i++) {
		const struct end *e = m->end[i];
		m->srq_doubt += e->fate.dies && e->in.shared && e->lost_next < e->in.msgs;
	}
	while (m->srq_first != m->srq_posted && m->slot[m->srq_first % SRQ_SLOTS].done)
		m->srq_first++;
}

void verify_round(struct side *m)
{
	memset(blank, BLANK, sizeof(blank));
	for (unsigned i = 0; i < m->nends; i++) {
		struct end *e = m->end[i];
		sender(m, e);
		receiver(m, e);
		m->tally->ops += e->out.n + e->in.msgs;
		for (unsigned k = 0; k < MR_KINDS && e->state == DEAD; k++) {
			static const char *const what[MR_KINDS] = {
				"memory sent from, after its QP was gone",
				"memory read into, after its QP was gone",
				"a target, after its QP was gone",
				"memory of receives, after their QP was gone"};
			all(m, e, what[k], e->mem[k], GONE, used_of(e, k));
		}
	}
	srq_rest(m);
}
