/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate_test.c - the emulation of remote memory above a transport in memory, of which a seed says
 * when it has no room, and which of the bulk data moves next; and against a peer that lies. */
#include <errno.h>

#include "emulated_frames.h"
#include "lib/test.h"
#include "pair.h"
#include "ropeway.h"
#include "tran/emulate.h"

enum {
	FRAME_MOST = 2000,
	BULK_MIN = 500,
	BULK_MOST = 5000,
	QUEUE = 64,
	REGION = 64 * 1024,
	LINE = 128
};

struct sent {
	uint8_t head[TRAN_HEAD_MAX], body[FRAME_MOST];
	size_t head_len, len;
};
struct tran_bulk {
	struct rpwi_list link; /* of its side's */
	struct side_of *side;
	bool sends, gone, cut;
	uint32_t id;
	uint8_t *buf;
	size_t len;
	void *cookie;
};
static struct side_of {
	struct tran t;
	struct tran_ep ep;
	struct sent queue[QUEUE]; /* from the peer */
	unsigned first, count;
	struct rpwi_list bulks;
	bool wants_room;
	char why[128]; /* of a breach */
} side[2];
static struct rng rng;
static bool make_fails, peer_is_gone;
static bool raw; /* side 0 is a bare peer: what side 1 sends stays in its queue */

static unsigned up_to(unsigned n) { return (unsigned)rng_below(&rng, n); }
static struct side_of *of(struct tran_ep *ep) { return RPWI_CONTAINER_OF(ep, struct side_of, ep); }
static struct side_of *peer_of(const struct side_of *s) { return &side[s == side]; }

/* ---- the transport ---- */

static int fake_send(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov,
	int iovcnt, size_t len)
{
	struct side_of *s = of(ep), *to = peer_of(s);
	if (peer_is_gone)
		return tran_path_over(ep);
	assert_true(head_len <= TRAN_HEAD_MAX && len <= FRAME_MOST && iovcnt <= 1);
	if (to->count == QUEUE || (!raw && !up_to(4))) {
		s->wants_room = true;
		return RPWI_LATER;
	}
	struct sent *f = &to->queue[(to->first + to->count++) % QUEUE];
	memcpy(f->head, head, head_len);
	f->head_len = head_len;
	f->len = len;
	if (len)
		memcpy(f->body, iov->iov_base, len);
	return 0;
}
static int fake_make(struct tran_ep *ep, bool sends, void *buf, size_t len, struct tran_home *home,
	void *cookie, struct tran_bulk **out)
{
	if (make_fails)
		return rpwi_fail(RPW_ERR_SYSTEM, "no bulk data, on purpose");
	struct tran_bulk *b = calloc(1, sizeof(*b));
	unsigned n = 0;
	assert_true(len >= BULK_MIN && len <= BULK_MOST && (buf || !sends));
	assert_true(!home || ((uint8_t *)buf >= (uint8_t *)home->addr &&
				     (uint8_t *)buf + len <= (uint8_t *)home->addr + home->len));
	*b = (struct tran_bulk){
		.side = of(ep), .sends = sends, .buf = buf, .len = len, .cookie = cookie};
	rpwi_list_add_tail(&of(ep)->bulks, &b->link);
	for (struct rpwi_list *l = of(ep)->bulks.next; l != &of(ep)->bulks; l = l->next)
		n += RPWI_CONTAINER_OF(l, struct tran_bulk, link)->sends == sends;
	assert_true(n <= TRAN_BULK_MOST);
	*out = b;
	return 0;
}
static void fake_go(struct tran_bulk *b, uint32_t id)
{
	b->gone = true;
	b->id = id;
}
static void fake_cut(struct tran_bulk *b)
{
	assert_true(b->gone && !b->cut);
	b->cut = true;
	b->buf = NULL;
}
static void fake_drop(struct tran_bulk *b)
{
	rpwi_list_del(&b->link);
	free(b);
}
static void fake_breach(struct tran_ep *ep, const struct rpwi_error *e)
{
	snprintf(of(ep)->why, sizeof(of(ep)->why), "%s", e->text);
}
static const struct tran_bulk_ops bulk_ops = {
	.make = fake_make, .go = fake_go, .cut = fake_cut, .drop = fake_drop};
static const struct tran_ops with_bulk = {.name = "fake",
	.send = fake_send,
	.mem = &emulated_mem,
	.rma = &emulated_rma,
	.bulk = &bulk_ops,
	.breach = fake_breach};
static const struct tran_ops frames_only = {.name = "fake",
	.send = fake_send,
	.mem = &emulated_mem,
	.rma = &emulated_rma,
	.breach = fake_breach};

static struct tran_bulk *other_end(const struct tran_bulk *b)
{
	struct rpwi_list *all = &peer_of(b->side)->bulks;
	for (struct rpwi_list *l = all->next; l != all; l = l->next) {
		struct tran_bulk *o = RPWI_CONTAINER_OF(l, struct tran_bulk, link);
		if (o->gone && o->sends != b->sends && o->id == b->id)
			return o;
	}
	return NULL;
}
static void moved(struct tran_bulk *b, int status)
{
	struct side_of *s = b->side;
	void *cookie = b->cookie;
	fake_drop(b);
	emulate_moved(&s->ep, cookie, status);
}
static void bulk_move(struct side_of *s)
{
	struct rpwi_list *l = s->bulks.next;
	for (unsigned skip = up_to(2 * TRAN_BULK_MOST); skip && l != &s->bulks; skip--)
		l = l->next;
	struct tran_bulk *b = l == &s->bulks ? NULL : RPWI_CONTAINER_OF(l, struct tran_bulk, link),
			 *o = b && b->gone && b->sends ? other_end(b) : NULL;
	if (!o)
		return;
	assert_int_equal(b->len, o->len);
	if (b->buf && o->buf)
		memcpy(o->buf, b->buf, b->len);
	int status = b->cut ? RPW_ERR_ACCESS : 0;
	moved(o, o->cut ? RPW_ERR_ACCESS : status);
	moved(b, status);
}
static void progress(void)
{
	for (int i = 0; i < 2; i++) {
		struct side_of *s = &side[i];
		if (s->count && !(raw && i == 0)) {
			struct sent f = s->queue[s->first];
			s->first = (s->first + 1) % QUEUE;
			s->count--;
			assert_true(emulate_frame_up(&s->ep, f.head, f.head_len, f.body, f.len));
		}
		if (!up_to(3))
			bulk_move(s);
		if (s->wants_room && !up_to(2)) {
			s->wants_room = false;
			emulate_room(&s->ep);
		}
	}
}

/* ---- the program ---- */

struct op {
	bool posted, done;
	int status;
	void (*then)(void);
};
static void up_done(void *user, void *cookie, const struct rpwi_error *e)
{
	int status = e ? e->status : 0;
	struct op *op = cookie;
	assert_true(op->posted && !op->done);
	op->done = true;
	op->status = status;
	if (op->then)
		op->then();
}
static bool up_frame(void *user, const void *head, size_t head_len, const void *body, size_t len)
{
	fail_msg("a frame of nobody's");
	return true;
}
static const struct tran_up up = {.done = up_done, .frame = up_frame};

static void begin(const struct tran_ops *ops, uint64_t seed)
{
	rng.state = seed;
	for (int i = 0; i < 2; i++) {
		struct side_of *s = &side[i];
		memset(s, 0, sizeof(*s));
		s->t = (struct tran){.ops = ops, .up = &up};
		s->ep = (struct tran_ep){
			.tran = &s->t, .user = s, .limits = {.frame_max = FRAME_MOST}};
		if (ops->bulk) {
			s->ep.limits.bulk_min = BULK_MIN;
			s->ep.limits.bulk_max = BULK_MOST;
		}
		rpwi_list_init(&s->bulks);
		assert_int_equal(emulate_open(&s->t), 0);
	}
}
static void end(void)
{
	for (int i = 0; i < 2; i++) {
		while (!rpwi_list_empty(&side[i].bulks))
			fake_drop(RPWI_CONTAINER_OF(side[i].bulks.next, struct tran_bulk, link));
		emulate_ep_close(&side[i].ep);
		emulate_close(&side[i].t);
	}
	raw = make_fails = peer_is_gone = false;
}
static void transfer(struct side_of *s, bool put, const struct tran_desc *d, uint64_t offset,
	void *local, size_t len, struct op *op)
{
	op->posted = true;
	assert_int_equal(emulated_rma.transfer(&s->ep, put, d, offset, local, len, NULL, op), 0);
}
static void until(const struct op *op)
{
	for (long n = 0; !op->done; n++) {
		assert_true(n < 10000000);
		progress();
		assert_string_equal(side[0].why, "");
		assert_string_equal(side[1].why, "");
	}
}

/* Both sides put, get and add at once, in any sizes; every byte is where it belongs, and every add
 * counted once. */
static void all_sizes_at_once(const struct tran_ops *ops, uint64_t seed)
{
	enum { OPS = 60, MOST = 3 * BULK_MOST };
	static uint8_t region[2][REGION + 8], out[2][OPS][MOST], in[2][OPS][MOST];
	struct op put[2][OPS] = {{{0}}}, get[2][OPS] = {{{0}}}, add[2][OPS] = {{{0}}},
		  flush[2] = {{0}};
	uint64_t before[2][OPS], total;
	size_t len[OPS], at = 0;
	struct tran_mem *m[2];
	begin(ops, seed);
	for (int i = 0; i < 2; i++) {
		memset(region[i], 0, sizeof(region[i]));
		/* to be got; below is to be put */
		pattern_fill(region[i] + REGION / 2, REGION / 2, seed + (unsigned)i);
		assert_int_equal(emulated_mem.add(&side[i].t, region[i], sizeof(region[i]),
					 TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &m[i]),
			0);
	}
	for (int k = 0; k < OPS; k++) {
		len[k] = up_to(3) ? up_to(400) : up_to(MOST);
		if (at + len[k] > REGION / 2)
			len[k] = 0;
		for (int i = 0; i < 2; i++) {
			const struct tran_desc *d = &m[!i]->desc;
			pattern_fill_from(out[i][k], len[k], seed + 100 + (unsigned)k, at);
			add[i][k].posted = true;
			transfer(&side[i], true, d, at, out[i][k], len[k], &put[i][k]);
			transfer(&side[i], false, d, REGION / 2 + at, in[i][k], len[k], &get[i][k]);
			assert_int_equal(emulated_rma.atomic(&side[i].ep, TRAN_FETCH_ADD, d, REGION,
						 (uint64_t)k + 1, 0, &before[i][k], &add[i][k]),
				0);
		}
		at += len[k];
		for (unsigned n = up_to(20); n; n--)
			progress();
	}
	for (int i = 0; i < 2; i++) {
		flush[i].posted = true;
		assert_int_equal(emulated_rma.flush(&side[i].ep, &flush[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		until(&flush[i]);
		for (int k = 0; k < OPS; k++) {
			assert_true(put[i][k].done && add[i][k].done); /* flushed */
			until(&get[i][k]);
			assert_true(!put[i][k].status && !get[i][k].status && !add[i][k].status);
		}
		memcpy(&total, region[!i] + REGION, 8);
		assert_int_equal(total, OPS * (OPS + 1) / 2);
		at = 0;
		for (int k = 0; k < OPS; at += len[k++]) {
			assert_true(pattern_holds_from(in[i][k], len[k], seed + (unsigned)!i, at));
			assert_true(pattern_holds_from(
				region[!i] + at, len[k], seed + 100 + (unsigned)k, at));
		}
	}
	for (int i = 0; i < 2; i++)
		emulated_mem.del(&side[i].t, m[i]);
	end();
}
static void every_byte_is_where_it_belongs(void **state)
{
	FOR_SEEDS (s, 150) {
		all_sizes_at_once(&with_bulk, s.seed);
		all_sizes_at_once(&frames_only, s.seed);
	}
}

/* Memory that is released while it is read and written: done or refused; nothing of it is touched
 * afterwards. */
static void released_memory_is_let_alone(void **state)
{
	enum { OPS = 30, LEN = 4000 };
	static uint8_t region[OPS * LEN], was[OPS * LEN], local[OPS][LEN];
	unsigned refused = 0, done = 0;
	FOR_SEEDS (s, 300) {
		struct op op[OPS] = {{0}};
		struct tran_mem *m;
		begin(s.seed % 2 ? &with_bulk : &frames_only, s.seed);
		pattern_fill(region, sizeof(region), 1);
		assert_int_equal(emulated_mem.add(&side[1].t, region, sizeof(region),
					 TRAN_READ | TRAN_WRITE, &m),
			0);
		struct tran_desc d = m->desc;
		for (int k = 0; k < OPS; k++) {
			pattern_fill_from(local[k], LEN, 2, (size_t)k * LEN);
			transfer(&side[0], k % 2, &d, (size_t)k * LEN, local[k], LEN, &op[k]);
		}
		for (unsigned n = up_to(200); n; n--)
			progress();
		emulated_mem.del(&side[1].t, m);
		memcpy(was, region, sizeof(was));
		for (int k = 0; k < OPS; k++) {
			until(&op[k]);
			assert_true(op[k].status == 0 || op[k].status == RPW_ERR_ACCESS);
			*(op[k].status ? &refused : &done) += 1;
			if (!op[k].status && k % 2 == 0)
				assert_true(pattern_holds_from(local[k], LEN, 1, (size_t)k * LEN));
		}
		assert_memory_equal(region, was, sizeof(was));
		end();
	}
	assert_true(refused > 500 && done > 500);
}

/* ---- against a peer that lies ---- */

enum { GET = TRAN_OWN_HEADS, PUT, ADD, SWAP, DONE };

static void hear(const void *head, size_t head_len, const void *body, size_t len)
{
	emulate_frame_up(&side[1].ep, head, head_len, body, len);
}

static struct tran_mem *bare(void *region, size_t len, unsigned access, struct ask *good)
{
	struct tran_mem *m;
	begin(&with_bulk, 1);
	raw = true;
	assert_int_equal(emulated_mem.add(&side[1].t, region, len, access, &m), 0);
	*good = (struct ask){.kind = GET, .len = 8};
	memcpy(&good->slot, m->desc.bytes + 4, 4);
	memcpy(&good->key, m->desc.bytes + 8, 8);
	return m;
}

static void a_forged_request_gets_no_access(void **state)
{
	static uint64_t region[64], was[64];
	struct ask good;
	pattern_fill(region, sizeof(region), 5);
	memcpy(was, region, sizeof(was));
	static const struct {
		uint8_t kind;
		unsigned access;
		uint32_t slot;
		uint64_t key, offset, len;
	} rows[] = {{GET, TRAN_READ, 0, 1, 0, 8}, {GET, TRAN_READ, 1000, 0, 0, 8},
		{GET, TRAN_READ, UINT32_MAX, 0, 0, 8}, {GET, TRAN_WRITE, 0, 0, 0, 8},
		{GET, TRAN_READ, 0, 0, 505, 8}, {GET, TRAN_READ, 0, 0, 0, 499},
		{GET, TRAN_READ, 0, 0, UINT64_MAX - 3, 8}, {PUT, TRAN_READ, 0, 0, 0, 8},
		{PUT, TRAN_WRITE, 0, ~0ull, 0, 8}, {PUT, TRAN_WRITE, 0, 0, 510, 8},
		{PUT, TRAN_WRITE, 0, 0, 1ull << 63, 8}, {ADD, TRAN_READ | TRAN_WRITE, 0, 0, 0, 8},
		{ADD, TRAN_ATOMIC, 0, 0, 4, 8}, {SWAP, TRAN_ATOMIC, 0, 0, 505, 8}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		IN_CASE("row", i);
		uint8_t body[500] = {0};
		struct done d;
		struct tran_mem *m =
			bare(region, i == 5 ? 498 : sizeof(region), rows[i].access, &good);
		struct ask a = good;
		a.kind = rows[i].kind;
		a.slot += rows[i].slot;
		a.key ^= rows[i].key;
		a.offset = rows[i].offset;
		a.len = rows[i].len;
		hear(&a, sizeof(a), body, a.kind == GET ? 0 : a.kind == PUT ? a.len : 16);
		assert_string_equal(side[1].why, "");
		assert_int_equal(side[0].count, 1);
		memcpy(&d, side[0].queue[0].head, sizeof(d));
		if (d.kind != DONE || d.answer != 1 || d.id != a.id || side[0].queue[0].len)
			fail_msg("row %zu: kind %x, answer %u, %zu bytes", i, d.kind, d.answer,
				side[0].queue[0].len);
		emulated_mem.del(&side[1].t, m);
		end();
	}
	assert_memory_equal(region, was, sizeof(was));
}

static void what_does_not_add_up_is_a_breach(void **state)
{
	static uint64_t region[1024];
	uint8_t body[FRAME_MOST] = {0};
	struct ask good;
	static const struct {
		const char *why;
		uint8_t kind, bulk;
		uint32_t id;
		uint64_t len;
		size_t head_len, body_len;
	} rows[] = {{"add up", DONE + 1, 0, 0, 8, sizeof(struct ask), 0},
		{"add up", GET, 0, 0, 8, sizeof(struct ask) - 1, 0},
		{"add up", DONE, 0, 0, 0, 15, 0},
		{"not asked", DONE, 0, 0, 0, sizeof(struct done), 0},
		{"number", GET, 0, EMULATED_SMALL, 8, sizeof(struct ask), 0},
		{"number", GET, 0, EMULATED_WINDOW, 8, sizeof(struct ask), 0},
		{"number", GET, 1, 0, 1000, sizeof(struct ask), 0},
		{"number", GET, 2, EMULATED_SMALL, 1000, sizeof(struct ask), 0},
		{"number", GET, 0, EMULATED_PUT_ID, 8, sizeof(struct ask), 0},
		{"more than", GET, 0, 0, BULK_MIN, sizeof(struct ask), 0},
		{"more than", GET, 1, EMULATED_SMALL, TRAN_BULK_LEN_MAX + 1, sizeof(struct ask), 0},
		{"more than", GET, 1, EMULATED_SMALL, UINT64_MAX, sizeof(struct ask), 0},
		{"more than", GET, 1, EMULATED_SMALL, 0, sizeof(struct ask), 0},
		{"more than", ADD, 0, 0, 4, sizeof(struct ask), 16},
		{"more than", ADD, 1, EMULATED_SMALL, 8, sizeof(struct ask), 16},
		{"as long", GET, 0, 0, 8, sizeof(struct ask), 8},
		{"as long", PUT, 0, 0, 8, sizeof(struct ask), 7},
		{"as long", PUT, 1, EMULATED_SMALL, 600, sizeof(struct ask), 600},
		{"as long", SWAP, 0, 0, 8, sizeof(struct ask), 15}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		IN_CASE("row", i);
		struct tran_mem *m =
			bare(region, sizeof(region), TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &good);
		struct ask a = good;
		a.kind = rows[i].kind;
		a.bulk = rows[i].bulk;
		a.id = rows[i].id;
		a.len = rows[i].len;
		hear(&a, rows[i].head_len, body, rows[i].body_len);
		if (!strstr(side[1].why, rows[i].why))
			fail_msg("row %zu: \"%s\"", i, side[1].why);
		emulated_mem.del(&side[1].t, m);
		end();
	}
}

/* Asks and does not read: no more than the window, in frames and in bulk data. */
static void a_peer_that_only_asks_is_stopped(void **state)
{
	static uint8_t region[BULK_MOST];
	struct ask good;
	for (int bulk = 0; bulk < 2; bulk++) {
		struct tran_mem *m = bare(region, sizeof(region), TRAN_READ, &good);
		side[0].count = QUEUE; /* it has no room for answers */
		unsigned n = bulk ? EMULATED_BULK : EMULATED_SMALL;
		for (unsigned i = 0; i <= n * (1 + (unsigned)bulk); i++) {
			/* a get with bulk data may be followed before this side was told
				 * that its bytes have gone */
			struct ask a = good;
			assert_string_equal(side[1].why, "");
			a.bulk = (uint8_t)bulk;
			a.len = bulk ? BULK_MOST : 8;
			a.id = (bulk ? EMULATED_SMALL : 0) + i % n;
			hear(&a, sizeof(a), NULL, 0);
		}
		assert_non_null(strstr(side[1].why, "more requests"));
		emulated_mem.del(&side[1].t, m);
		end();
	}
}

/* Who has all bytes of a get may use its number again; this side may not have been told yet that
 * they have gone. */
static void asked_again_before_it_was_told(void **state)
{
	static uint8_t region[BULK_MOST];
	struct ask a;
	struct tran_mem *m = bare(region, sizeof(region), TRAN_READ, &a);
	a.bulk = 1;
	a.len = BULK_MOST;
	a.id = EMULATED_SMALL;
	hear(&a, sizeof(a), NULL, 0);
	struct tran_bulk *first = RPWI_CONTAINER_OF(side[1].bulks.next, struct tran_bulk, link);
	a.offset = 0;
	hear(&a, sizeof(a), NULL, 0);
	assert_string_equal(side[1].why, "");
	struct tran_bulk *second = RPWI_CONTAINER_OF(side[1].bulks.prev, struct tran_bulk, link);
	assert_true(first != second && second->gone);
	moved(first, 0);
	a.kind = PUT; /* its bytes may come right behind */
	hear(&a, sizeof(a), NULL, 0);
	first = RPWI_CONTAINER_OF(side[1].bulks.prev, struct tran_bulk, link);
	assert_true(first != second && first->gone && !first->sends);
	assert_string_equal(side[1].why, "");
	moved(second, 0);
	moved(first, 0);
	emulated_mem.del(&side[1].t, m);
	end();
}

/* A put's buffer is in use until its bytes have gone, whatever the peer says; a get is done with
 * its bytes, not by a word. */
static void an_answer_does_not_come_before_the_bytes(void **state)
{
	static uint8_t local[BULK_MOST];
	struct ask a;
	struct tran_mem *m = bare(local, sizeof(local), TRAN_READ, &a);
	for (int get = 0; get < 2; get++) {
		struct op op = {0};
		transfer(&side[1], !get, &m->desc, 0, local, sizeof(local), &op);
		assert_int_equal(side[0].count, get + 1);
		memcpy(&a, side[0].queue[get].head, sizeof(a));
		assert_true(a.bulk && a.kind == (get ? GET : PUT));
		struct done d = {.kind = DONE, .id = a.id};
		hear(&d, sizeof(d), NULL, 0);
		assert_false(op.done);
		assert_true(get == !!side[1].why[0]);
	}
	emulated_mem.del(&side[1].t, m);
	end();
}

/* An operation ends where it is posted, and in its up-call the next one finds that the path is
 * gone: the first was told, the other never is. */
static struct op then_op;
static struct tran_mem *then_mem;
static uint8_t then_local[BULK_MOST];
static void post_another(void)
{
	make_fails = false;
	peer_is_gone = true;
	transfer(&side[1], true, &then_mem->desc, 0, then_local, sizeof(then_local), &then_op);
}
static void what_was_told_is_not_refused_too(void **state)
{
	struct op op = {.then = post_another};
	struct ask a;
	then_mem = bare(then_local, sizeof(then_local), TRAN_READ | TRAN_WRITE, &a);
	make_fails = true;
	transfer(&side[1], true, &then_mem->desc, 0, then_local, sizeof(then_local), &op);
	assert_true(op.done && op.status == RPW_ERR_SYSTEM && then_op.posted && !then_op.done);
	assert_int_equal(emulated_rma.transfer(
				 &side[1].ep, true, &then_mem->desc, 0, then_local, 8, NULL, &op),
		RPW_ERR_PEER_GONE);
	emulated_mem.del(&side[1].t, then_mem);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_is_where_it_belongs),
		cmocka_unit_test(released_memory_is_let_alone),
		cmocka_unit_test(a_forged_request_gets_no_access),
		cmocka_unit_test(what_does_not_add_up_is_a_breach),
		cmocka_unit_test(a_peer_that_only_asks_is_stopped),
		cmocka_unit_test(asked_again_before_it_was_told),
		cmocka_unit_test(an_answer_does_not_come_before_the_bytes),
		cmocka_unit_test(what_was_told_is_not_refused_too),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
