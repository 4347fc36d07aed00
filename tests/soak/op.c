/* SPDX-License-Identifier: BSD-3-Clause */
/* op.c - the operations of a side: their buffers, and how each ends. */
#include "soak.h"

#include <unistd.h>

/* ---- buffers ---- */

void spread_make(struct spread *s, size_t len, int pieces)
{
	enum { GAP = 16 };
	*s = (struct spread){.room = len + (size_t)(pieces + 1) * GAP,
		.len = len,
		.poison = rng_mix2(me.rng.state, 77),
		.n = pieces};
	s->mem = malloc(s->room);
	if (!s->mem)
		wrong("no memory for a buffer of %zu bytes", s->room);
	pattern_fill(s->mem, s->room, s->poison);
	size_t at = GAP, left = len;
	for (int i = 0; i < pieces; i++) {
		size_t n = i + 1 == pieces ? left
			   : chance(4)     ? rnd(left + 1)
					   : rnd(2 * left / (size_t)(pieces - i) + 1);
		n = n < left ? n : left;
		s->v[i] = (struct iovec){s->mem + at, n};
		at += n + GAP;
		left -= n;
	}
	me.under_way += s->room;
}

void spread_free(struct spread *s)
{
	if (!s->mem)
		return;
	/* Whoever still reads it sends rubbish; whoever still writes it is seen by ASan, or hits
	 * unmapped memory. */
	pattern_fill(s->mem, s->room, ~s->poison);
	free(s->mem);
	me.under_way -= s->room;
	s->mem = NULL;
}

void spread_fill(struct spread *s, uint64_t key)
{
	size_t at = 0;
	for (int i = 0; i < s->n; at += s->v[i].iov_len, i++)
		pattern_fill_from(s->v[i].iov_base, s->v[i].iov_len, key, at);
}

const char *spread_wrong(const struct spread *s, size_t len, uint64_t key)
{
	static char text[160];
	size_t at = 0;
	const char *end = s->mem;
	for (int i = 0; i <= s->n; i++) {
		size_t gap = (size_t)((i < s->n ? (char *)s->v[i].iov_base : s->mem + s->room) -
				      end),
		       bad = pattern_wrong_from(end, gap, s->poison, (size_t)(end - s->mem));
		if (bad != gap) {
			snprintf(text, sizeof(text),
				"byte %zu between pieces %d and %d (of %d) of its buffer was "
				"overwritten",
				bad, i - 1, i, s->n);
			return text;
		}
		if (i == s->n)
			break;
		char *p = s->v[i].iov_base;
		size_t n = s->v[i].iov_len, valid = at >= len ? 0 : len - at < n ? len - at : n;
		bad = pattern_wrong_from(p, valid, key, at);
		if (bad != valid) {
			snprintf(text, sizeof(text), "byte %zu of %zu is 0x%02x; 0x%02x was sent",
				at + bad, len, (uint8_t)p[bad], pattern_byte(key, at + bad));
			return text;
		}
		bad = pattern_wrong_from(
			p + valid, n - valid, s->poison, (size_t)(p + valid - s->mem));
		if (bad != n - valid) {
			snprintf(text, sizeof(text),
				"byte %zu was overwritten, beyond the %zu of the message",
				at + valid + bad, len);
			return text;
		}
		at += n;
		end = p + n;
	}
	return NULL;
}

/* ---- operations under way ---- */

/* For people: " with side 1", or nothing. */
static const char *with_whom(const struct op *o)
{
	static char text[24];
	if (!o->p)
		return "";
	snprintf(text, sizeof(text), " with side %u", o->p->id);
	return text;
}

static const char *const names[OP_KINDS] = {"send", "receive", "send of an object",
	"receive of an object", "active message", "put", "get", "atomic", "flush"};

struct op *op_new(enum op_kind kind, struct peer *p)
{
	if (me.ops >= OPS_MAX)
		return NULL;
	struct op *o = me.op;
	while (o->used)
		o++;
	*o = (struct op){
		.used = true, .kind = kind, .p = p, .began_ns = now_ns(), .order = me.next_order++};
	me.ops++;
	atomic_fetch_add(&totals->operations, 1);
	return o;
}

void op_free(struct op *o)
{
	spread_free(&o->s);
	for (unsigned i = 0; i < o->transfers; i++)
		free(o->t[i].want);
	free(o->obj_mem);
	o->used = false;
	me.ops--;
}

bool must_end(const struct peer *p)
{
	const struct public *s = &arena->side[p->id];
	return s->dying || s->closed > me.session || arena->cut[me.id][p->id];
}
bool excused(const struct peer *p) { return me.closing || must_end(p); }

bool ended_with_endpoint(const struct op *o, int status)
{
	if (status == RPW_ERR_CANCELED && (o->cancel_asked || me.closing))
		return true;
	bool explained = o->p && excused(o->p);
	for (unsigned i = 0; !o->p && i < config.sides; i++)
		explained |= i != me.id && excused(&me.peer[i]);
	/* Whoever closes may release its memory, too. */
	if (explained && status == RPW_ERR_ACCESS &&
		(o->kind == OP_PUT || o->kind == OP_GET || o->kind == OP_CHANGE))
		return true;
	if (explained && (status == RPW_ERR_PEER_GONE || status == RPW_ERR_UNREACHABLE ||
				 status == RPW_ERR_TIMEOUT))
		return true;
	wrong("a %s%s ended with %s: %s", names[o->kind], with_whom(o), rpw_status_name(status),
		rpw_last_error());
}

static void on_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct op *o = arg;
	if (o->calls++)
		wrong("the callback of a %s was called %u times", names[o->kind], o->calls);
	o->done = *done;
	close_here();
}

bool op_posted(struct op *o, int rc, const char *what)
{
	if (rc == RPW_IN_PROGRESS && !o->r) {
		o->orphan = true;
		return true;
	}
	if (rc == RPW_IN_PROGRESS) {
		if (chance(5)) {
			o->with_callback = true;
			rpw_request_on_done(o->r, on_done, o);
		} else if (o->kind != OP_FLUSH && o->kind != OP_CHANGE && o->kind != OP_GET &&
			   o->kind != OP_RECV && o->kind != OP_RECV_OBJECT &&
			   o->kind != OP_OBJECT && chance(40)) {
			rpw_request_destroy(o->r); /* it goes on by itself */
			o->r = NULL;
			o->orphan = true;
		}
		return true;
	}
	if (rc < 0)
		ended_with_endpoint(o, rc);
	if (rc < 0)
		return false;
	if (o->r)
		wrong("%s was complete at once, and gave a request", what);
	o->done.status = RPW_OK;
	return true;
}

void op_done(struct op *o)
{
	if (o->kind == OP_PUT || o->kind == OP_GET || o->kind == OP_CHANGE || o->kind == OP_FLUSH)
		remote_done(o);
	else
		message_done(o);
	op_free(o);
}

bool op_is_receive(const struct op *o) { return o->kind == OP_RECV || o->kind == OP_RECV_OBJECT; }

/* Objects come in the order of their receives, and have nothing else to be told by. */
static bool has_turn(const struct op *o)
{
	for (const struct op *b = me.op; o->kind == OP_RECV_OBJECT && b < me.op + OPS_MAX; b++)
		if (b->used && b->kind == OP_RECV_OBJECT && b->p == o->p && b->order < o->order)
			return false;
	return true;
}

/* Complete: what comes of it. */
void op_look(struct op *o)
{
	if (o->orphan || !has_turn(o))
		return;
	if (o->r) {
		rpw_completion done = RPW_COMPLETION_INIT;
		int status = rpw_request_test(o->r, &done);
		if (status == RPW_IN_PROGRESS || (o->with_callback && !o->calls)) {
			if (now_ns() - o->began_ns < config.deadline_s * 1000000000ull ||
				(op_is_receive(o) && !o->cancel_asked && !(o->p && o->p->lost)))
				return;
			wrong("a %s%s has not ended in %u s%s%s", names[o->kind], with_whom(o),
				config.deadline_s,
				o->cancel_asked ? ", although it was canceled" : "",
				o->p && o->p->lost ? ", although its endpoint has" : "");
		}
		if (o->with_callback &&
			(o->done.status != status || o->done.length != done.length ||
				o->done.tag != done.tag))
			wrong("the callback of a %s was told otherwise than rpw_request_test",
				names[o->kind]);
		o->done = done;
		rpw_request_destroy(o->r);
		o->r = NULL;
	}
	op_done(o);
}
