/* SPDX-License-Identifier: BSD-3-Clause */
/* data.c - messages: sizes, order, groups, how many are under way, and what test says of them. Role
 * 1 sends and role 0 receives, where not both do. */
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"
#include "ncclnet/check/conform_priv.h"

enum { ROUNDS = 6, GROUP_PITCH = 4096, FULL_REQUESTS = NCCL_NET_MAX_REQUESTS, GUARD = 0xee };

static const size_t mixed_sizes[] = {1, 8, 24, 100, 4096, 3, 65536, 17, 20001};
static const size_t few_bytes[] = {200};

#define STREAM(n_, window_, sizes_, salt_, ...) \
	((struct stream){.n = n_, \
		.window = window_, \
		.sizes = sizes_, \
		.sizes_n = RPWI_ARRAY_LEN(sizes_), \
		.salt = salt_, \
		##__VA_ARGS__})

/* ---- one connection, one stream ---- */

void case_messages(struct conform *c)
{
	for (int receiver = 0; receiver < 2; receiver++) {
		struct stream t = STREAM(60, 8, mixed_sizes, 1 + (uint64_t)receiver);
		if (!conform_stream(c, &t, receiver))
			return;
	}
}

/* The sender posts all that it may before there is a receive, the receiver all that it may before
 * it tests: the plugin has to say "again" to one of them, or hold 40. */
void case_request(struct conform *c)
{
	struct side *s = c->s;
	struct end e;
	struct stream t = STREAM(80, 40, few_bytes, 3, .e = &e, .may_refuse = true);
	if (!end_open(s, &e, 0, stream_bytes(&t)))
		return;
	s->n->stale = true;
	bool ok = (!e.sends || stream_post(s, &t) >= 0) && side_meet(s) &&
		  stream_post(s, &t) >= 0 && streams_run(s, &t, 1) && side_meet(s);
	s->n->stale = false;
	conform_refused(c, &t);
	if (ok)
		end_close(s, &e);
}

void case_zero(struct conform *c)
{
	static const size_t sizes[] = {0, 0, 5, 0, 70000, 0, 0, 1};
	struct stream t = STREAM(40, 8, sizes, 4);
	conform_stream(c, &t, 0);
}

void case_sizes(struct conform *c)
{
	struct stream t = STREAM(36, 4, mixed_sizes, 5);
	if (!conform_stream(c, &t, 0))
		return;
	if (t.not_sent)
		conform_quirk(c, NCCLNET_NO_SIZES,
			"test says other sizes than were sent, of %u sends of %u (first %d): NCCL "
			"does not look at a send's",
			t.not_sent, t.n, t.said);
	else if (!t.left_alone)
		return;
	else if (c->s->role == 0)
		conform_quirk(c, NCCLNET_NO_SIZES,
			"test leaves the size of a receive alone, of %u of %u: NCCL has put 0 "
			"there",
			t.left_alone, t.n);
	else
		conform_quirk(
			c, -1, "test leaves the size of a send alone: NCCL does not look at it");
}

void case_sizes_null(struct conform *c)
{
	struct stream t = STREAM(8, 4, mixed_sizes, 6, .no_sizes = true);
	c->s->n->stale = true;
	conform_stream(c, &t, 0);
	c->s->n->stale = false;
}

void case_short(struct conform *c)
{
	static const size_t sizes[] = {0, 1, 4095, 70000, 33};
	struct stream t = STREAM(20, 4, sizes, 7, .extra = 100000);
	conform_stream(c, &t, 0);
}

void case_patterns(struct conform *c)
{
	size_t sizes[] = {4097, 262144, 524288, 1048579, 4194304, 16777217, c->o->size_most};
	unsigned n = RPWI_ARRAY_LEN(sizes);
	while (n > 1 && sizes[n - 2] >= c->o->size_most)
		n--;
	sizes[n - 1] = c->o->size_most;
	struct stream t = {.n = n + 2, .window = 2, .sizes = sizes, .sizes_n = n, .salt = 8};
	if (!conform_stream(c, &t, 0))
		return;
	if (c->o->size_most >> 20)
		conform_note(c, "to %zu MiB", c->o->size_most >> 20);
	else
		conform_note(c, "to %zu bytes", c->o->size_most);
}

/* Of one size, so that nothing but the contents tells them apart; a pause now and then, so that
 * both fast paths and slow ones are taken. */
void case_order(struct conform *c)
{
	static const size_t sizes[][1] = {{64}, {9000}, {300000}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(sizes); i++) {
		struct stream t = STREAM(i < 2 ? 400 : 40, 8, sizes[i], 10 + i);
		if (!conform_stream(c, &t, 0))
			return;
	}
}

/* ---- truncation ---- */

void case_truncation(struct conform *c)
{
	struct side *s = c->s;
	struct end e;
	void *request = NULL;
	char told = 't';
	int sizes[NCCL_NET_GROUP_MAX] = {0}, outcome = 0;
	size_t sent = 100000, room = 1000;
	if (!end_open(s, &e, 0, sent))
		return;
	memset(e.memory, GUARD, sent);
	if (e.sends)
		side_fill(e.memory, sent, 70);
	uint64_t until = rpwi_now_ns() + s->timeout_ms * RPWI_NS_PER_MS / 2;
	while (!request && !outcome && rpwi_now_ns() < until)
		outcome = -end_post(s, &e, e.memory, e.sends ? sent : room, 0, &request);
	if (!request && !outcome)
		outcome = -1;
	while (e.sends && request && !outcome && !side_heard(s, 0))
		outcome = end_wait(s, request, sizes, 1);
	if (e.sends) {
		side_take(s, &told, 1);
		return;
	}
	if (!outcome)
		outcome = end_wait(c->s, request, sizes, s->timeout_ms / 2);
	if (outcome > 0)
		conform_fail(c,
			"a message of %zu bytes into a receive of %zu is done, with success and a "
			"size of %d",
			sent, room, sizes[0]);
	else if (!outcome)
		conform_fail(c,
			"a message of %zu bytes into a receive of %zu is neither done nor an error "
			"within %u ms",
			sent, room, s->timeout_ms / 2);
	for (size_t i = room; i < sent; i++)
		if ((unsigned char)e.memory[i] != GUARD) {
			conform_fail(c,
				"a message of %zu bytes into a receive of %zu wrote byte %zu", sent,
				room, i);
			break;
		}
	side_give(s, &told, 1);
}

/* ---- groups ---- */

static int group_most(const struct conform *c)
{
	return RPWI_MIN(c->s->p.max_recvs, (int)NCCL_NET_GROUP_MAX);
}

static bool no_groups(struct conform *c)
{
	if (group_most(c) > 1)
		return false;
	conform_skip(c, "maxRecvs is %d", c->s->p.max_recvs);
	return true;
}

static size_t group_size(unsigned round, int slot)
{
	return (round * 397u + (unsigned)slot * 211u) % (GROUP_PITCH - SIDE_GUARD_BYTES);
}
static uint64_t group_pattern(unsigned round, int slot)
{
	return (50ull << 32) + round * 16u + (unsigned)slot;
}

/* The slots of a grouped receive, one after the other in an end's memory. */
struct slots {
	void *data[NCCL_NET_GROUP_MAX], *mhandles[NCCL_NET_GROUP_MAX];
	size_t rooms[NCCL_NET_GROUP_MAX];
};

static struct slots slots_of(const struct end *e, size_t first, int n, size_t pitch, size_t room)
{
	struct slots of = {.rooms = {0}};
	for (int i = 0; i < n; i++) {
		of.data[i] = e->memory + (first + (size_t)i) * pitch;
		of.rooms[i] = room;
		of.mhandles[i] = e->mhandle;
	}
	return of;
}

static int slots_post(struct side *s, const struct end *e, struct slots *of, int n, const int *tags,
	void **request)
{
	return SIDE_CALL(s, "irecv",
		ncclnet_irecv(
			s->n, e->link.recv, n, of->data, of->rooms, tags, of->mhandles, request));
}

/* A request of a group's is over: `what` it was. */
static bool await_done(struct side *s, void *request, int *sizes, const char *what)
{
	int done = end_wait(s, request, sizes, s->timeout_ms);
	if (!done)
		return side_fail(s, "%s is not done within %u ms", what, s->timeout_ms);
	return side_result(s, done < 0 ? -done : 0, "test of %s", what);
}

static bool group_receive(struct conform *c, struct end *e, unsigned round, int n, const int *tags)
{
	struct side *s = c->s;
	struct slots of = slots_of(e, 0, n, GROUP_PITCH, GROUP_PITCH - SIDE_GUARD_BYTES);
	void *request = NULL;
	int sizes[NCCL_NET_GROUP_MAX] = {0};
	unsigned looks = 0;
	memset(e->memory, GUARD, (size_t)n * GROUP_PITCH);
	while (!request) {
		int rc = slots_post(s, e, &of, n, tags, &request);
		if (!side_result(s, rc, "irecv of a group of %d", n) ||
			(!request && !s->idle(s, &looks)))
			return false;
	}
	if (!await_done(s, request, sizes, "a receive of a group") ||
		!end_received(s, e, request, n, of.data, of.rooms))
		return false;
	for (int i = 0; i < n; i++) {
		size_t want = group_size(round, i),
		       wrong = side_wrong(of.data[i], want, group_pattern(round, i));
		if ((size_t)sizes[i] != want)
			return conform_fail(c,
				"slot %d of a group of %d, tag %d: %zu bytes were sent with this "
				"tag, and test says %d",
				i, n, tags[i], want, sizes[i]);
		if (wrong != want)
			return conform_fail(c,
				"slot %d of a group of %d, tag %d: byte %zu of %zu is wrong", i, n,
				tags[i], wrong, want);
	}
	return true;
}

/* order: which slot's message goes first, second, ... */
static bool group_send(
	struct conform *c, struct end *e, unsigned round, int n, const int *tags, const int *order)
{
	struct side *s = c->s;
	void *request[NCCL_NET_GROUP_MAX] = {NULL};
	int sizes[NCCL_NET_GROUP_MAX];
	for (int i = 0; i < n; i++) {
		int slot = order[i];
		char *data = e->memory + slot * GROUP_PITCH;
		side_fill(data, group_size(round, slot), group_pattern(round, slot));
		if (!end_post_all(s, e, data, group_size(round, slot), tags[slot], &request[i]))
			return false;
	}
	for (int i = 0; i < n; i++)
		if (!await_done(s, request[i], sizes, "a send into a group"))
			return false;
	return true;
}

/* step: coprime to n or not, it is made a permutation by looking for the next free one. */
static void permute(int n, unsigned round, int *order)
{
	bool used[NCCL_NET_GROUP_MAX] = {false};
	for (int i = 0; i < n; i++) {
		int at = (int)((unsigned)(n - 1 - i) +
				 rpwi_scatter(round * 8u + (unsigned)i) * (round > 0)) &
			 (NCCL_NET_GROUP_MAX - 1);
		for (at %= n; used[at];)
			at = (at + 1) % n;
		used[at] = true;
		order[i] = at;
	}
}

static void groups(struct conform *c, bool same_tags)
{
	struct end e;
	int most = group_most(c), tags[NCCL_NET_GROUP_MAX], order[NCCL_NET_GROUP_MAX];
	if (no_groups(c) || !end_open(c->s, &e, 0, NCCL_NET_GROUP_MAX * GROUP_PITCH))
		return;
	for (unsigned round = 0; round < ROUNDS * 2; round++) {
		int n = round < ROUNDS ? most : 1 + (int)round % most;
		for (int i = 0; i < n; i++)
			tags[i] = same_tags ? 5 + i / 2 : 1000 + (int)round * 100 - i * 7;
		permute(n, round, order);
		/* Of equal tags the slots are filled in their order, so these messages go in that
		 * order. */
		for (int i = 0; i < n && same_tags; i++)
			order[i] = i;
		side_step(c->s);
		if (e.sends ? !group_send(c, &e, round, n, tags, order)
			    : !group_receive(c, &e, round, n, tags))
			return;
		if (!side_meet(c->s))
			return;
	}
	if (!same_tags)
		conform_note(c, "of up to %d", most);
	end_close(c->s, &e);
}

void case_group(struct conform *c) { groups(c, false); }
void case_same_tag(struct conform *c) { groups(c, true); }

/* ---- how many under way ---- */

/* Posts until it is refused for long, without a test: a number. */
static int post_without_test(struct conform *c, struct stream *t)
{
	uint64_t until = 0;
	for (;;) {
		unsigned before = t->posted;
		if (stream_post(c->s, t) < 0)
			return -1;
		if (t->posted == t->n || t->posted - t->done == t->window || t->limit)
			return (int)t->posted;
		uint64_t now = rpwi_now_ns();
		if (t->posted != before || !until)
			until = now + conform_linger_ms(c) * RPWI_NS_PER_MS;
		if (now > until)
			return (int)t->posted;
		usleep(200);
	}
}

/* 32 grouped receives, and the sends for all of their slots, each in a place of its own. */
enum { FULL_PITCH = 256, FULL_SENDS = NCCL_NET_MAX_REQUESTS * NCCL_NET_GROUP_MAX };
struct full {
	struct end e;
	int most; /* slots of a group */
	void *request[FULL_SENDS];
	unsigned posted, done, all;
};

static struct slots full_slots(const struct full *f, unsigned group)
{
	return slots_of(&f->e, (size_t)group * (unsigned)f->most, f->most, FULL_PITCH, FULL_PITCH);
}

static int full_post(struct side *s, struct full *f)
{
	unsigned i = f->posted;
	int tags[NCCL_NET_GROUP_MAX];
	if (f->e.sends) {
		char *data = f->e.memory + (size_t)i * FULL_PITCH;
		side_fill(data, FULL_PITCH, (21ull << 32) + i);
		return end_post(s, &f->e, data, FULL_PITCH, 40 + (int)i % f->most, &f->request[i]);
	}
	struct slots of = full_slots(f, i);
	for (int k = 0; k < f->most; k++)
		tags[k] = 40 + k;
	return slots_post(s, &f->e, &of, f->most, tags, &f->request[i]);
}

/* 1: done, 0: not yet; negative: failed. */
static int full_test(struct side *s, struct full *f)
{
	unsigned i = f->done;
	int done = 0, sizes[NCCL_NET_GROUP_MAX], rc = end_test(s, f->request[i], &done, sizes);
	if (!side_result(s, rc, "test of request %u of %u", i, f->all))
		return -1;
	if (!done || f->e.sends)
		return done != 0;
	struct slots of = full_slots(f, i);
	if (!end_received(s, &f->e, f->request[i], f->most, of.data, of.rooms))
		return -1;
	for (int k = 0; k < f->most; k++) {
		unsigned message = i * (unsigned)f->most + (unsigned)k;
		if (side_wrong(of.data[k], FULL_PITCH, (21ull << 32) + message) != FULL_PITCH) {
			side_fail(s, "slot %d of group %u of %u under way is wrong", k, i, f->all);
			return -1;
		}
	}
	return 1;
}

/* Without tests as far as it goes; then all. */
static bool full_run(struct conform *c, struct full *f)
{
	struct side *s = c->s;
	uint64_t until = rpwi_now_ns() + conform_linger_ms(c) * RPWI_NS_PER_MS;
	unsigned looks = 0;
	side_step(s);
	while (f->done < f->all) {
		bool moved = false;
		if (f->posted < f->all) {
			int rc = full_post(s, f);
			if (rc)
				return conform_fail(c, "%s gives %d (%s) with %u under way",
					end_call(&f->e), rc, ncclnet_result_name(rc),
					f->posted - f->done);
			moved = f->request[f->posted] != NULL;
			f->posted += moved;
		}
		if (f->posted < f->all && until && (moved || rpwi_now_ns() < until)) {
			usleep(moved ? 0 : 100);
			continue;
		}
		if (f->posted < f->all && until)
			conform_quirk(c, NCCLNET_FEW_REQUESTS,
				"%s: %u at once, then it says again until one is done; NCCL may "
				"ask for %u and tries again",
				f->e.sends ? "sends into groups" : "grouped receives", f->posted,
				f->all);
		until = 0;
		int rc = f->done < f->posted ? full_test(s, f) : 0;
		f->done += rc > 0;
		if (rc < 0 || (!rc && !moved && !s->idle(s, &looks)))
			return conform_fail(c, "%s; %u of %u were done", s->text, f->done, f->all);
	}
	return true;
}

static void full_groups(struct conform *c)
{
	struct full *f = calloc(1, sizeof(*f));
	if (!f || !end_open(c->s, &f->e, 0, (size_t)FULL_SENDS * FULL_PITCH)) {
		free(f);
		return;
	}
	f->most = group_most(c);
	f->all = (unsigned)(f->e.sends ? FULL_REQUESTS * f->most : FULL_REQUESTS);
	if (full_run(c, f) && side_meet(c->s))
		end_close(c->s, &f->e);
	free(f);
}

/* The receiver first, so that a sender whose messages wait for receives finds them. */
void case_under_way(struct conform *c)
{
	struct side *s = c->s;
	struct end e;
	struct stream t = STREAM(
		2 * FULL_REQUESTS, FULL_REQUESTS, few_bytes, 20, .e = &e, .may_refuse = true);
	if (!end_open(c->s, &e, 0, stream_bytes(&t)))
		return;
	s->until += s->timeout_ms * RPWI_NS_PER_MS;
	int there = 0;
	if (!e.sends) {
		there = post_without_test(c, &t);
		if (there < 0 || !side_give(s, &there, sizeof(there)))
			return;
	} else {
		if (!side_take(s, &there, sizeof(there)))
			return;
		there = post_without_test(c, &t);
	}
	if (there < 0)
		return;
	if (there < FULL_REQUESTS && !t.limit)
		conform_quirk(c, NCCLNET_FEW_REQUESTS,
			"%s: %d at once, then it says again until one is done; NCCL asks for %d "
			"and tries again",
			e.sends ? "sends" : "receives", there, FULL_REQUESTS);
	bool ok = streams_run(s, &t, 1) && side_meet(s);
	conform_refused(c, &t);
	if (!ok)
		return;
	end_close(s, &e);
	if (group_most(c) > 1)
		full_groups(c);
}

/* ---- the order of tests ---- */

/* `backwards`: this side tests its newest request first, and nothing else meanwhile. */
static bool test_newest(struct conform *c, struct stream *t, bool backwards)
{
	struct side *s = c->s;
	uint64_t until = rpwi_now_ns() + conform_linger_ms(c) * RPWI_NS_PER_MS;
	unsigned looks = 0;
	while (t->posted < t->n)
		if (stream_post(c->s, t) < 0 || (t->posted < t->n && !s->idle(s, &looks)))
			return false;
	for (unsigned i = t->n; backwards && i-- > 0;) {
		int rc = 0;
		void *request = t->request[i % t->window];
		int done = 0, sizes[NCCL_NET_GROUP_MAX];
		while (!rc && !done && rpwi_now_ns() < until) {
			rc = end_test(s, request, &done, sizes);
			usleep(rc || done ? 0 : 50);
		}
		if (!rc && done) {
			void *data = stream_at(t, i);
			size_t size = stream_size(t, i);
			if (!t->e->sends && !end_received(s, t->e, request, 1, &data, &size))
				return false;
			t->request[i % t->window] = NULL;
			continue;
		}
		if (rc)
			conform_quirk(c, NCCLNET_FIFO_TEST,
				"test of a newer %s than the oldest gives %d (%s); NCCL tests each "
				"connection's in order",
				t->e->sends ? "send" : "receive", rc, ncclnet_result_name(rc));
		else
			conform_quirk(c, NCCLNET_FIFO_TEST,
				"a newer %s is not done before the oldest is tested; NCCL tests "
				"each connection's in order",
				t->e->sends ? "send" : "receive");
		break;
	}
	return true;
}

/* Those that are left, in order. */
static bool test_rest(struct conform *c, struct stream *t)
{
	unsigned looks = 0;
	for (unsigned i = 0; i < t->n; i++) {
		int rc = 0;
		while (t->request[i % t->window] && !rc) {
			rc = stream_test(c->s, t, i);
			if (rc < 0 || (!rc && !c->s->idle(c->s, &looks)))
				return conform_fail(c, "%s", c->s->text);
		}
	}
	return true;
}

void case_test_order(struct conform *c)
{
	for (int backwards = 0; backwards < 2; backwards++) {
		struct end e;
		struct stream t = STREAM(8, 8, few_bytes, 30 + (uint64_t)backwards, .e = &e);
		if (!end_open(c->s, &e, 0, stream_bytes(&t)))
			return;
		side_step(c->s);
		if (!test_newest(c, &t, c->s->role == backwards))
			return;
		if (!test_rest(c, &t))
			return;
		for (unsigned i = 0; i < t.n && !e.sends; i++) {
			size_t wrong =
				side_wrong(stream_at(&t, i), few_bytes[0], (t.salt << 32) + i);
			if (wrong != few_bytes[0]) {
				conform_fail(c,
					"message %u: byte %zu is wrong after tests from the newest "
					"on",
					i, wrong);
				return;
			}
		}
		if (!side_meet(c->s))
			return;
		end_close(c->s, &e);
	}
}

/* ---- flush ---- */

void case_flush(struct conform *c)
{
	struct side *s = c->s;
	struct end e;
	struct stream t = STREAM(1, 1, few_bytes, 33, .e = &e);
	if (!end_open(c->s, &e, 0, stream_bytes(&t)) || !streams_run(c->s, &t, 1))
		return;
	if (!e.sends) {
		void *data = e.memory, *request = (void *)0x5a5a5a5a5a5a5a50;
		int size = (int)few_bytes[0];
		s->n->stale = true;
		int rc = SIDE_CALL(s, "iflush",
			ncclnet_iflush(s->n, e.link.recv, 1, &data, &size, &e.mhandle, &request));
		s->n->stale = false;
		bool gpu = c->s->p.ptr_support & (NCCL_PTR_CUDA | NCCL_PTR_DMABUF);
		if (rc && gpu)
			conform_fail(c, "iflush gives %d (%s)", rc, ncclnet_result_name(rc));
		else if (rc)
			conform_note(c,
				"iflush gives %d: NCCL flushes memory of GPUs only, and it has "
				"none",
				rc);
		else if (request == (void *)0x5a5a5a5a5a5a5a50)
			conform_fail(c, "iflush says success and leaves *request as it was");
		else if (request && end_wait(c->s, request, NULL, s->timeout_ms / 2) <= 0)
			conform_fail(c, "a flush is not done within %u ms", s->timeout_ms / 2);
	}
	if (side_meet(s))
		end_close(c->s, &e);
}
