/* SPDX-License-Identifier: BSD-3-Clause */
/* remote.c - puts, gets, batches, notifications, atomics, flush, fence.
 *
 * On every side each peer has an area that it alone writes, between canaries. The writer keeps an
 * image of it, which gets are held against; the owner makes the same image out of the writer's
 * ledger at the end of each round, and compares every byte. Transfers that are not ordered never
 * overlap here, since nothing is promised then; what a fence or a flush orders may. Words for
 * atomics are written by all sides: each value that was there before an addition of 1 is told once,
 * sums add up, and what was swapped makes one chain. */
#include "soak.h"

#include <unistd.h>

static size_t area_at(unsigned from) { return from * (size_t)(CANARY + AREA) + CANARY; }
static size_t words_at(void) { return area_at(config.sides); }
static size_t region_len(void) { return words_at() + WORDS * 8 + CANARY; }
static uint64_t region_key(unsigned owner)
{
	return rng_mix2(rng_mix2(config.seed, config.life), (uint64_t)me.session << 8 | owner);
}
static uint64_t put_key(unsigned from, unsigned to, unsigned i) { return way_key(from, to, 20, i); }

static void *memory(size_t n)
{
	void *p = malloc(n);
	if (!p)
		wrong("no memory for %zu bytes", n);
	return p;
}

/* ---- the region ---- */

void remote_open(void)
{
	struct public *own = &arena->side[me.id];
	size_t n = region_len();
	uint64_t key = region_key(me.id);
	if (chance(2)) {
		if (rpw_memory_allocate(me.c, n,
			    RPW_REMOTE_WRITE | RPW_REMOTE_READ | RPW_REMOTE_ATOMIC, &me.memory))
			wrong("rpw_memory_allocate: %s", rpw_last_error());
		me.base = rpw_memory_address(me.memory);
		me.around = NULL;
	} else {
		me.around = memory(n + 2 * CANARY);
		me.base = me.around + CANARY;
		pattern_fill_from(me.around, CANARY, key, 1 << 30);
		pattern_fill_from(me.base + n, CANARY, key, 1 << 29);
		if (rpw_memory_register(me.c, me.base, n, RPW_MEMORY_HOST,
			    RPW_REMOTE_WRITE | RPW_REMOTE_READ | RPW_REMOTE_ATOMIC, &me.memory))
			wrong("rpw_memory_register: %s", rpw_last_error());
	}
	pattern_fill(me.base, n, key);
	memcpy(own->words_were, me.base + words_at(), sizeof(own->words_were));
	own->key_len = rpw_rkey_pack(me.memory, own->key, sizeof(own->key));
	if (own->key_len <= 0)
		wrong("rpw_rkey_pack: %s", rpw_last_error());
	EACH_PEER(p)
	{
		p->image = memory(AREA);
		p->expect = memory(AREA);
		p->known = memory(AREA);
		pattern_fill_from(p->image, AREA, region_key(p->id), area_at(me.id));
		pattern_fill_from(p->expect, AREA, key, area_at(p->id));
		memset(p->known, 1, AREA);
	}
}

void remote_close(void)
{
	EACH_PEER(p)
	{
		rpw_rkey_destroy(p->key);
		p->key = NULL;
	}
	if (chance(2) || me.around)
		rpw_memory_destroy(me.memory); /* else the context does */
	free(me.around);
	me.around = NULL;
	me.memory = NULL;
}

void remote_round(struct peer *p)
{
	for (unsigned i = 0; i < p->out->puts; i++)
		p->out->put[i] = (struct put){0};
	for (unsigned i = 0; i < p->out->changes; i++)
		p->out->change[i] = (struct change){0};
	p->out->puts = p->out->changes = 0;
	p->fenced = 0;
	memset(p->notified, 0, sizeof(p->notified));
}

static bool key_ready(struct peer *p)
{
	const struct public *s = &arena->side[p->id];
	if (!p->key && !p->lost && p->ep &&
		rpw_rkey_unpack(p->ep, s->key, (size_t)s->key_len, &p->key))
		wrong("rpw_rkey_unpack: %s", rpw_last_error());
	return p->key && !p->lost && p->ep;
}

/* ---- transfers ---- */

static bool overlap(size_t a, size_t a_len, size_t b, size_t b_len)
{
	return a_len && b_len && a < b + b_len && b < a + a_len;
}

/* What was posted, may take effect after what is posted now, and touches the same bytes. */
static bool puts_conflict(const struct peer *p, size_t offset, size_t len, unsigned first)
{
	for (unsigned i = first; i < p->out->puts; i++) {
		const struct put *u = &p->out->put[i];
		if (u->state != STATE_OK && (i >= p->fenced || u->notify) &&
			overlap(offset, len, u->offset, u->len))
			return true;
	}
	return false;
}
static bool gets_conflict(const struct peer *p, size_t offset, size_t len)
{
	for (const struct op *o = me.op; o < me.op + OPS_MAX; o++)
		for (unsigned i = 0; o->used && o->p == p && i < o->transfers; i++)
			if (o->t[i].is_get && overlap(offset, len, o->t[i].offset, o->t[i].len))
				return true;
	return false;
}

static bool place(struct peer *p, bool is_get, size_t *offset, size_t *len)
{
	*len = size_of(rnd(UINT64_MAX));
	*offset = rnd(chance(3) ? 2000 < AREA - *len ? 2000 : AREA - *len + 1 : AREA - *len + 1);
	if (*len > UNDER_WAY_MAX - (me.under_way < UNDER_WAY_MAX ? me.under_way : UNDER_WAY_MAX))
		return false;
	if (puts_conflict(p, *offset, *len, 0) && chance(2) && !is_get) {
		int rc = rpw_endpoint_fence(p->ep);
		if (rc < 0 && !excused(p))
			wrong("rpw_endpoint_fence: %s", rpw_last_error());
		if (rc < 0)
			return false;
		p->fenced = p->out->puts;
		atomic_fetch_add(&totals->fences, 1);
	}
	return !puts_conflict(p, *offset, *len, 0) && (is_get || !gets_conflict(p, *offset, *len));
}

static void transfer_add(struct peer *p, struct op *o, char *local, bool is_get, size_t offset,
	size_t len, bool notify)
{
	unsigned k = o->transfers++;
	o->t[k] = (typeof(o->t[k])){.is_get = is_get, .local = local, .offset = offset, .len = len};
	if (is_get) {
		o->t[k].want = memory(len ? len : 1);
		memcpy(o->t[k].want, p->image + offset, len);
		return;
	}
	unsigned i = p->out->puts;
	struct put *u = &p->out->put[i];
	u->key = put_key(me.id, p->id, i);
	u->offset = offset;
	u->len = (uint32_t)len;
	u->notify = notify;
	u->state = STATE_POSTED;
	p->out->puts = i + 1;
	pattern_fill(local, len, u->key);
	pattern_fill(p->image + offset, len, u->key);
}

static uint64_t notify_data(unsigned i, uint64_t key) { return rng_mix(key + 9) << 32 | i; }

/* A put, a get or several of them. */
static void transfers(struct peer *p, unsigned n, bool notify)
{
	struct op *o = p->out->puts + n >= PUTS_MAX ? NULL : op_new(OP_PUT, p);
	if (!o)
		return;
	size_t offset[TRANSFERS_MAX], len[TRANSFERS_MAX], total = 0;
	bool is_get[TRANSFERS_MAX];
	unsigned have = 0;
	for (unsigned i = 0; i < n; i++) {
		is_get[have] = !notify && chance(2);
		bool good = place(p, is_get[have], &offset[have], &len[have]) &&
			    total + len[have] < UNDER_WAY_MAX / 4;
		for (unsigned k = 0; good && k < have; k++)
			good = !overlap(offset[k], len[k], offset[have], len[have]);
		total += good ? len[have] : 0;
		have += good;
	}
	if (!have) {
		op_free(o);
		return;
	}
	spread_make(&o->s, total, 1);
	char *at = o->s.v[0].iov_base;
	rpw_transfer t[TRANSFERS_MAX];
	unsigned first = p->out->puts;
	for (unsigned i = 0; i < have; at += len[i], i++) {
		transfer_add(p, o, at, is_get[i], offset[i], len[i], notify);
		t[i] = (rpw_transfer){
			sizeof(*t), is_get[i], at, len[i], p->key, area_at(me.id) + offset[i]};
	}
	o->index = first;
	bool gets = false;
	for (unsigned i = 0; i < have; i++)
		gets |= is_get[i];
	if (gets)
		o->kind = OP_GET;
	bool quiet = !gets && chance(20);
	bool over = config.mutant == MUTANT_OVERRUN && !me.id && have == 1 && !is_get[0] &&
		    chance(2) && offset[0] + len[0] < AREA;
	rpw_request **req = quiet ? NULL : &o->r;
	int rc = notify ? rpw_put_notify(p->ep, t[0].buf, t[0].len, p->key, t[0].offset,
				  notify_data(first, p->out->put[first].key), req)
		 : have > 1 || chance(4) ? rpw_transfer_batch(p->ep, t, have, req)
		 : is_get[0] ? rpw_get(p->ep, t[0].buf, t[0].len, p->key, t[0].offset, req)
			     : rpw_put(p->ep, t[0].buf, t[0].len + over, p->key, t[0].offset, req);
	if (config.mutant == MUTANT_NOTIFY_TWICE && notify && !me.id && chance(4))
		rpw_put_notify(p->ep, t[0].buf, t[0].len, p->key, t[0].offset,
			notify_data(first, p->out->put[first].key), NULL);
	atomic_fetch_add(notify     ? &totals->notifies
			 : have > 1 ? &totals->batches
			 : gets     ? &totals->gets
				    : &totals->puts,
		1);
	atomic_fetch_add(&totals->bytes, total);
	if (!op_posted(o, rc, "transfer")) {
		op_free(o);
	} else if (rc == RPW_OK) {
		o->done.status = RPW_OK;
		remote_done(o);
		op_free(o);
	}
}

/* What must be refused, here and now. */
static void trespass(struct peer *p)
{
	char byte = 1;
	uint64_t before;
	size_t n = region_len();
	if (rpw_put(p->ep, &byte, 1, p->key, n, NULL) != RPW_ERR_ACCESS ||
		rpw_get(p->ep, &byte, 2, p->key, n - 1, NULL) != RPW_ERR_ACCESS ||
		rpw_put(p->ep, &byte, 2, p->key, UINT64_MAX, NULL) != RPW_ERR_ACCESS ||
		rpw_fetch_add(p->ep, 1, p->key, n - 4, &before, NULL) != RPW_ERR_ACCESS)
		wrong("a transfer outside of the registered memory was not refused: %s",
			rpw_last_error());
}

/* ---- atomics ---- */

static void change(struct peer *p)
{
	/* what a word of theirs was when this side looked last */
	static uint64_t seen[SIDES_MAX][WORDS];
	static uint64_t since[SIDES_MAX];
	unsigned i = p->out->changes, w = (unsigned)rnd(WORDS);
	struct op *o = i >= ATOMICS_MAX ? NULL : op_new(OP_CHANGE, p);
	if (!o)
		return;
	uint64_t now = (config.life << 40) + ((uint64_t)me.session << 8) + me.round + 1;
	if (since[p->id] != now)
		memcpy(seen[p->id], arena->side[p->id].words_were, sizeof(seen[p->id]));
	since[p->id] = now;
	struct change *a = &p->out->change[i];
	*a = (struct change){.word = w,
		.swap = w % 3 == 2,
		.operand = w % 3 ? rnd(UINT64_MAX) : 1,
		.compare = seen[p->id][w]};
	a->state = STATE_POSTED;
	p->out->changes = i + 1;
	o->index = i;
	atomic_fetch_add(&totals->atomics, 1);
	uint64_t at = words_at() + w * 8;
	int rc = a->swap ? rpw_compare_swap(
				   p->ep, a->compare, a->operand, p->key, at, &o->before, &o->r)
			 : rpw_fetch_add(p->ep, a->operand, p->key, at, &o->before, &o->r);
	static uint64_t scrap;
	if (config.mutant == MUTANT_ADD_TWICE && !a->swap && !me.id && chance(4))
		rpw_fetch_add(p->ep, a->operand, p->key, at, &scrap, NULL);
	seen[p->id][w] = chance(2) ? a->operand : seen[p->id][w];
	if (!op_posted(o, rc, "atomic")) {
		a->state = STATE_FAILED;
		op_free(o);
	} else if (rc == RPW_OK) {
		a->before = o->before;
		a->state = STATE_OK;
		op_free(o);
	}
}

static void changed(struct op *o)
{
	struct change *a = &o->p->out->change[o->index];
	if (o->done.status)
		ended_with_endpoint(o, o->done.status);
	a->before = o->before;
	if (!o->done.status)
		a->state = STATE_OK;
}

/* ---- flush ---- */

void remote_flush(struct peer *p)
{
	struct op *o = p->lost || !p->ep ? NULL : op_new(OP_FLUSH, p);
	if (!o)
		return;
	o->index = p->out->puts;
	atomic_fetch_add(&totals->flushes, 1);
	int rc = rpw_endpoint_flush(p->ep, &o->r);
	if (!op_posted(o, rc, "flush")) {
		op_free(o);
	} else if (rc == RPW_OK) {
		remote_done(o);
		op_free(o);
	}
}

static void flushed(struct op *o)
{
	if (o->done.status) {
		ended_with_endpoint(o, o->done.status);
		return;
	}
	for (const struct op *b = me.op; b < me.op + OPS_MAX; b++)
		if (b->used && b->order < o->order && b->p == o->p && b->kind != OP_RECV &&
			b->kind != OP_RECV_OBJECT && b->r &&
			rpw_request_test(b->r, NULL) == RPW_IN_PROGRESS)
			wrong("a flush to side %u was done before what was posted before it "
			      "(operation kind %d)",
				o->p->id, (int)b->kind);
	for (unsigned i = 0; i < o->index; i++)
		if (o->p->out->put[i].state == STATE_POSTED)
			o->p->out->put[i].state = STATE_OK;
}

static void got(const struct op *o, unsigned i)
{
	const uint8_t *is = (const uint8_t *)o->t[i].local, *want = o->t[i].want;
	size_t len = o->t[i].len, k = 0, bad = 0;
	if (!len || !memcmp(is, want, len))
		return;
	while (is[k] == want[k])
		k++;
	for (size_t m = k; m < len; m++)
		bad += is[m] != want[m];
	wrong("a get of %zu bytes at %zu of side %u: byte %zu is 0x%02x, 0x%02x was there; %zu are "
	      "wrong, from there on",
		len, o->t[i].offset, o->p->id, k, is[k], want[k], bad);
}

void remote_done(struct op *o)
{
	if (o->kind == OP_FLUSH) {
		flushed(o);
		return;
	}
	if (o->kind == OP_CHANGE) {
		changed(o);
		return;
	}
	if (o->done.status) {
		ended_with_endpoint(o, o->done.status);
		return;
	}
	for (unsigned i = 0; i < o->transfers; i++)
		if (o->t[i].is_get)
			got(o, i);
}

void remote_random(struct peer *p)
{
	if (!key_ready(p))
		return;
	unsigned what = (unsigned)rnd(100);
	if (what < 45)
		transfers(p, 1, false);
	else if (what < 58)
		transfers(p, 2 + (unsigned)rnd(TRANSFERS_MAX - 1), false);
	else if (what < 73)
		transfers(p, 1, true);
	else if (what < 98)
		change(p);
	else
		trespass(p);
}

/* ---- the owner's side ---- */

void remote_notified(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	struct peer *p = rpw_endpoint_user(ep);
	unsigned i = (unsigned)(data & 0xffffffff);
	if (arg != &me || !p || i >= p->in->puts || !p->in->put[i].notify ||
		data != notify_data(i, put_key(p->id, me.id, i)) || len != p->in->put[i].len)
		wrong("a notification 0x%llx, %zu bytes, that side %u did not send",
			(unsigned long long)data, len, p ? p->id : 99);
	if (p->notified[i])
		wrong("notification %u of side %u came twice", i, p->id);
	p->notified[i] = true;
	size_t bad = pattern_wrong(
		me.base + area_at(p->id) + p->in->put[i].offset, len, put_key(p->id, me.id, i));
	if (bad != len)
		wrong("notification %u of side %u came before byte %zu of its %zu", i, p->id, bad,
			len);
	close_here();
}

bool remote_missing(const struct peer *p)
{
	for (unsigned i = 0; current(p) && i < p->in->puts; i++)
		if (p->in->put[i].notify && p->in->put[i].state == STATE_OK && !p->notified[i])
			return true;
	return false;
}

static void canary_check(const char *at, size_t len, uint64_t key, size_t from, const char *what)
{
	size_t bad = pattern_wrong_from(at, len, key, from);
	if (bad != len)
		wrong("byte %zu of the canary %s was overwritten", bad, what);
}

void remote_check(struct peer *p)
{
	const char *area = me.base + area_at(p->id);
	uint64_t key = region_key(me.id);
	canary_check(area - CANARY, CANARY, key, area_at(p->id) - CANARY, "before an area");
	bool certain = true;
	for (unsigned i = 0; current(p) && i < p->in->puts; i++) {
		const struct put *u = &p->in->put[i];
		bool flushed_one = u->state == STATE_OK;
		if (!p->lost && !flushed_one)
			wrong("put %u of side %u was never flushed", i, p->id);
		if (u->offset > AREA || u->len > AREA - u->offset)
			continue; /* half written when its side was killed */
		if (flushed_one)
			pattern_fill(p->expect + u->offset, u->len, u->key);
		certain &= flushed_one;
		memset(p->known + u->offset, flushed_one, u->len);
		if (flushed_one && u->notify && !p->lost && !p->notified[i])
			wrong("notification %u of side %u was lost", i, p->id);
	}
	if (certain && !memcmp(area, p->expect, AREA))
		return;
	for (size_t k = 0; k < AREA; k++)
		if (p->known[k] && (uint8_t)area[k] != p->expect[k])
			wrong("byte %zu of the area of side %u is 0x%02x, 0x%02x was put there", k,
				p->id, (uint8_t)area[k], p->expect[k]);
}

/* Of word w, all that was done to it by all, in two kinds: certainly, or perhaps. */
static unsigned collect(unsigned w, const struct change **out, unsigned *perhaps)
{
	unsigned n = 0;
	*perhaps = 0;
	EACH_PEER(p)
	for (unsigned i = 0; current(p) && i < p->in->changes; i++) {
		const struct change *a = &p->in->change[i];
		if (a->word != w || a->state == STATE_NONE)
			continue;
		if (a->state == STATE_OK)
			out[n++] = a;
		else
			++*perhaps;
	}
	return n;
}

static void check_ones(unsigned w, uint64_t was, uint64_t is, const struct change **a, unsigned n,
	unsigned perhaps)
{
	static uint8_t seen[SIDES_MAX * ATOMICS_MAX];
	memset(seen, 0, sizeof(seen));
	if (is - was < n || is - was > n + perhaps)
		wrong("word %u was %llu, and %u to %u times 1 was added: it is %llu", w,
			(unsigned long long)was, n, n + perhaps, (unsigned long long)is);
	for (unsigned i = 0; i < n; i++)
		if (a[i]->before - was >= n + perhaps || seen[a[i]->before - was]++)
			wrong("word %u: value %llu, counted from where it was, was told as the one "
			      "before %s",
				w, (unsigned long long)(a[i]->before - was), "twice, or never was");
}

static void check_swaps(unsigned w, uint64_t was, uint64_t is, const struct change **a, unsigned n)
{
	uint64_t at = was;
	for (unsigned steps = 0;; steps++) {
		unsigned i = 0;
		while (i < n && !(a[i]->before == a[i]->compare && a[i]->compare == at &&
					a[i]->operand != at))
			i++;
		if (i == n)
			break;
		if (steps > n)
			wrong("word %u: what was swapped goes in a circle", w);
		at = a[i]->operand;
	}
	unsigned good = 0;
	for (unsigned i = 0; i < n; i++)
		good += a[i]->before == a[i]->compare;
	if (at != is)
		wrong("word %u: %u swaps lead from 0x%llx to 0x%llx; it is 0x%llx", w, good,
			(unsigned long long)was, (unsigned long long)at, (unsigned long long)is);
}

void remote_check_words(void)
{
	static const struct change *a[SIDES_MAX * ATOMICS_MAX];
	struct public *own = &arena->side[me.id];
	const uint64_t *words = (const uint64_t *)(me.base + words_at());
	for (unsigned w = 0; w < WORDS; w++) {
		unsigned perhaps, n = collect(w, a, &perhaps);
		uint64_t sum = 0;
		for (unsigned i = 0; i < n; i++)
			sum += a[i]->operand;
		if (w % 3 == 0)
			check_ones(w, own->words_were[w], words[w], a, n, perhaps);
		else if (w % 3 == 1 && !perhaps && words[w] != own->words_were[w] + sum)
			wrong("word %u has 0x%llx; what was there and what was added makes 0x%llx",
				w, (unsigned long long)words[w],
				(unsigned long long)(own->words_were[w] + sum));
		else if (w % 3 == 2 && !perhaps)
			check_swaps(w, own->words_were[w], words[w], a, n);
		own->words_were[w] = words[w];
	}
	uint64_t key = region_key(me.id);
	canary_check(me.base + words_at() - CANARY, CANARY, key, words_at() - CANARY,
		"before the words");
	canary_check(me.base + words_at() + WORDS * 8, CANARY, key, words_at() + WORDS * 8,
		"behind the words");
	if (me.around) {
		canary_check(me.around, CANARY, key, 1 << 30, "before the registered memory");
		canary_check(me.base + region_len(), CANARY, key, 1 << 29,
			"behind the registered memory");
	}
}
