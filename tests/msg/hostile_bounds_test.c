/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile_bounds_test.c - what a peer can make this side allocate, over the transport and the
 * control path in memory (fake.h), into which it injects what no peer of good will sends.
 * Allocation is counted by the allocator itself; the bounds are those of docs/trust.md.
 */
#include <zlib.h>

#include "boot/boot.h"
#include "fake.h"
#include "msg/connect.h"
#include "msg/objects.h"
#include "msg/rndv.h"
#include "allocated.h"
#include "pair.h"

#define ALL UINT64_MAX
enum { POOL = 1 << 20, KIB = 1024 };

static size_t resident(void)
{
	size_t total = 0, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	assert_int_equal(fscanf(f, "%zu %zu", &total, &pages), 2);
	fclose(f);
	return pages * 4096;
}

static void open_pair(struct pair *p)
{
	rpw_context_options o = {.size = sizeof(o), .unexpected_bytes_max = POOL};
	fake = (struct fake_knobs){.rng = {5}, .eager_max = 2048, .frame_max = 8192};
	pair_open_with(p, "fake_a", &o);
}

static const char *why_of(rpw_endpoint *ep, int *status)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	rpw_endpoint_info(ep, &i);
	*status = i.status;
	return i.why;
}

static size_t put_rts(uint8_t *body, uint64_t number, uint64_t len)
{
	struct rts_body h = {.number = number, .len = len, .pieces = 1};
	uint64_t nobody = 0xdeadbeef;
	memcpy(body, &h, sizeof(h));
	memcpy(body + 24, &len, 8);
	body[32] = 8;
	memcpy(body + 33, &nobody, 8);
	return 41;
}

struct flood {
	const char *name;
	uint8_t type, flags;
	size_t len; /* 0 with an RTS: of its body */
	uint64_t tag;
};
static const struct flood floods[] = {
	{"messages of 0 bytes", FRAME_TAG, 0, 0, 1},
	{"messages of 64 bytes", FRAME_TAG, 0, 64, 1},
	{"messages of 2 KiB", FRAME_TAG, 0, 2048, 1},
	{"large messages announced", FRAME_RTS, RTS_TAG, 0, 1},
	{"objects of 8 bytes", FRAME_OBJECT, 0, 8, 1},
	{"large objects announced", FRAME_RTS, RTS_OBJECT, 0, 0},
};

static size_t one_of(const struct flood *f, uint64_t i)
{
	static uint8_t body[8192];
	struct frame_head h = {.type = f->type, .flags = f->flags, .tag = f->tag + i};
	size_t len = f->type == FRAME_RTS ? put_rts(body, i + 1, 1 << 20) : f->len;
	fake_inject(fake_made_by(false), &h, sizeof(h), body, (unsigned)len);
	return len;
}

/* Without a receive for any of them, and without asking what it was granted. */
static void floods_end_the_endpoint_that_sends_them(void **state)
{
	for (size_t k = 0; k < RPWI_ARRAY_LEN(floods); k++) {
		IN_CASE("row", k);
		struct pair p;
		int status = RPW_OK;
		open_pair(&p);
		size_t before = allocated(), most = 0;
		for (uint64_t i = 0; i < 100000 && !status; i++) {
			one_of(&floods[k], i);
			rpw_context_progress(p.b);
			most = RPWI_MAX(most, grown(before));
			why_of(p.eb, &status);
		}
		assert_int_equal(status, RPW_ERR_PROTOCOL);
		assert_non_null(strstr(why_of(p.eb, &status), "more than it was granted"));
		assert_non_null(strstr(why_of(p.eb, &status), "fakehost"));
		if (most > 128 * KIB)
			fail_msg("%s: %zu bytes were allocated for a window of %d KiB",
				floods[k].name, most, 16);
		pair_close(&p);
	}
}

/* The peer keeps to what it was granted, and asks for more as often as it likes: so it gets at last
 * all that one may have. */
static void what_one_peer_can_fill(void **state)
{
	for (size_t k = 0; k < RPWI_ARRAY_LEN(floods); k++) {
		IN_CASE("row", k);
		struct pair p;
		int status = RPW_OK;
		rpw_statistics s = {.size = sizeof(s)};
		open_pair(&p);
		size_t before = allocated();
		uint64_t n = 0;
		for (int quiet = 0; quiet < 100 && !status; quiet++) {
			struct frame_head need = {.type = FRAME_CREDIT, .tag = 64};
			fake_inject(fake_made_by(false), &need, sizeof(need), NULL, 0);
			rpw_context_progress(p.b);
			uint32_t units = floods[k].type == FRAME_RTS ? credit_units_rts(1, 0)
								     : credit_units(floods[k].len);
			while ((int32_t)(p.eb->link.rx_limit - p.eb->link.rx_used - units) >= 0) {
				one_of(&floods[k], n++);
				rpw_context_progress(p.b);
				quiet = 0;
			}
			rpw_context_progress(p.a);
			why_of(p.eb, &status);
		}
		assert_int_equal(status, RPW_OK);
		assert_true(n > 100);
		size_t most = grown(before);
		rpw_context_statistics(p.b, &s);
		if (most > 3 * POOL || s.unexpected_bytes > POOL)
			fail_msg("%s: %llu of them, %zu bytes were allocated, %llu are bodies; %d "
				 "is the bound",
				floods[k].name, (unsigned long long)n, most,
				(unsigned long long)s.unexpected_bytes, POOL);
		print_message("%s: %llu of them took %.2f of unexpected_bytes_max\n",
			floods[k].name, (unsigned long long)n, (double)most / POOL);
		pair_close(&p);
	}
}

static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	fail_msg("an active message that nobody sent");
}

static void announced_sizes_cost_nothing(void **state)
{
	static const uint64_t sizes[] = {POOL + 1, 1ull << 32, 1ull << 40, (1ull << 62), INT64_MAX};
	static const uint64_t absurd[] = {(uint64_t)INT64_MAX + 1, UINT64_MAX};
	struct pair p;
	int status;
	open_pair(&p);
	rpw_context_on_am(p.b, 3, on_am, NULL);
	size_t before = allocated();
	for (size_t i = 0; i < RPWI_ARRAY_LEN(sizes); i++) {
		IN_CASE("bytes", sizes[i]);
		uint8_t body[64];
		struct frame_head h = {.type = FRAME_RTS, .flags = RTS_AM, .tag = am_word(3, 0)};
		size_t len = put_rts(body, 77 + i, sizes[i]);
		fake_inject(fake_made_by(false), &h, sizeof(h), body, (unsigned)len);
		rpw_context_progress(p.b);
		assert_true(grown(before) < 64 * KIB);
		assert_int_equal(p.b->am_bytes, 0);
	}
	why_of(p.eb, &status);
	assert_int_equal(status, RPW_OK); /* each was refused, and the endpoint goes on */
	pair_close(&p);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(absurd); i++) {
		IN_CASE("row", i);
		uint8_t body[64];
		open_pair(&p);
		struct frame_head h = {.type = FRAME_RTS, .flags = RTS_AM, .tag = am_word(3, 0)};
		size_t len = put_rts(body, 5, absurd[i]);
		fake_inject(fake_made_by(false), &h, sizeof(h), body, (unsigned)len);
		rpw_context_progress(p.b);
		assert_non_null(strstr(why_of(p.eb, &status), "does not add up"));
		assert_int_equal(status, RPW_ERR_PROTOCOL);
		pair_close(&p);
	}
}

static size_t asked;
static void *no_room(size_t len, void *arg)
{
	asked = len;
	return NULL;
}

/* The receiver's allocator is asked, and may say no; malloc gives addresses, and memory only for
 * bytes that come. */
static void objects_of_a_huge_announced_size(void **state)
{
	struct pair p;
	rpw_request *r;
	void *buf;
	size_t len;
	open_pair(&p);
	assert_int_equal(rpw_recv_obj(p.b, p.eb, no_room, NULL, &buf, &len, &r), RPW_IN_PROGRESS);
	uint8_t body[64];
	struct frame_head h = {.type = FRAME_RTS, .flags = RTS_OBJECT};
	size_t n = put_rts(body, 9, 1ull << 45);
	fake_inject(fake_made_by(false), &h, sizeof(h), body, (unsigned)n);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_NO_MEMORY);
	assert_true(asked == 1ull << 45);
#ifndef __SANITIZE_ADDRESS__
	size_t before = resident();
	assert_int_equal(rpw_recv_obj(p.b, p.eb, NULL, NULL, &buf, &len, &r), RPW_IN_PROGRESS);
	n = put_rts(body, 10, 1ull << 30);
	fake_inject(fake_made_by(false), &h, sizeof(h), body, (unsigned)n);
	int status = finish(&p, r, NULL);
	/* what it described is not there */
	assert_true(status == RPW_ERR_PEER_GONE || status == RPW_ERR_NO_MEMORY);
	assert_null(buf);
	assert_true(resident() < before + 16 * KIB * KIB);
#endif
	pair_close(&p);
}

/* It asks and asks, and takes no answers. */
static void answers_that_nobody_takes(void **state)
{
	static const uint8_t types[] = {FRAME_FLUSH, FRAME_ATOMIC};
	for (size_t k = 0; k < RPWI_ARRAY_LEN(types); k++) {
		IN_CASE("row", k);
		struct pair p;
		int status = RPW_OK;
		struct atomic_body b = {.region = 1};
		open_pair(&p);
		size_t before = allocated(), most = 0;
		fake.again_percent = 100;
		for (int i = 0; i < 20000 && !status; i++) {
			struct frame_head h = {.type = types[k], .tag = (uint64_t)i};
			fake_inject(fake_made_by(false), &h, sizeof(h), &b,
				types[k] == FRAME_ATOMIC ? sizeof(b) : 0);
			rpw_context_progress(p.b);
			most = RPWI_MAX(most, grown(before));
			why_of(p.eb, &status);
		}
		fake.again_percent = 0;
		assert_int_equal(status, RPW_ERR_PROTOCOL);
		assert_non_null(strstr(why_of(p.eb, &status), "does not read its replies"));
		if (most > 2 * KIB * KIB)
			fail_msg("%zu bytes of answers", most);
		pair_close(&p);
	}
}

/* A message that cannot be fetched as it is described is pulled, and comes as chunks; of which it
 * sends ever more, each of a byte, and lets none of them be fetched. */
static void chunks_that_nobody_can_fetch(void **state)
{
	static char room[1 << 20];
	struct pair p;
	rpw_request *r;
	int status = RPW_OK;
	uint64_t n = 0;
	open_pair(&p);
	assert_int_equal(rpw_recv(p.b, p.eb, room, sizeof(room), 1, ALL, &r), RPW_IN_PROGRESS);
	struct rts_body offer = {.number = 5, .len = sizeof(room)};
	struct frame_head h = {.type = FRAME_RTS, .flags = RTS_TAG, .tag = 1};
	fake_inject(fake_made_by(false), &h, sizeof(h), &offer, sizeof(offer));
	rpw_context_progress(p.b);
	size_t before = allocated(), most = 0;
	fake.again_percent = 100;
	for (; n < 20000 && !status; n++) {
		uint8_t body[64];
		h = (struct frame_head){.type = FRAME_RTS, .flags = RTS_CHUNK, .tag = 5};
		size_t len = put_rts(body, 100 + n, 1);
		fake_inject(fake_made_by(false), &h, sizeof(h), body, (unsigned)len);
		rpw_context_progress(p.b);
		most = RPWI_MAX(most, grown(before));
		why_of(p.eb, &status);
	}
	fake.again_percent = 0;
	assert_int_equal(status, RPW_ERR_PROTOCOL);
	assert_non_null(strstr(why_of(p.eb, &status), "a chunk of 1 bytes"));
	if (most > 64 * KIB)
		fail_msg("%zu bytes for %llu chunks", most, (unsigned long long)n);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_PROTOCOL);
	pair_close(&p);
}

/* ---- what goes again on the next path, whose frames are smaller: in parts, between which its peer
 * talks ---- */

enum { LONG_BODY = 8000 };

static void inject_fin(struct pair *p, uint64_t number)
{
	struct frame_head h = {.type = FRAME_DONE,
		.tag = number,
		.ack = (uint16_t)p->ea->link.acked,
		.credit = p->ea->link.tx_limit};
	fake_inject(fake_made_by(true), &h, sizeof(h), NULL, 0);
}
static void inject_ack(struct pair *p, uint64_t number)
{
	struct frame_head h = {.type = FRAME_CREDIT,
		.ack = (uint16_t)(p->ea->link.acked + 1),
		.credit = p->ea->link.tx_limit};
	fake_inject(fake_made_by(true), &h, sizeof(h), NULL, 0);
}

/* An object and a short message are lost with their path. While the object goes again its peer says
 * something of it that cannot be so: this side must not send what is behind the bodies. */
static void talks_between_parts(uint64_t seed, void (*talk)(struct pair *p, uint64_t number))
{
	static uint8_t body[LONG_BODY], short_body[32];
	struct pair p;
	rpw_request *r[2] = {NULL, NULL};
	bool talked = false;
	pattern_fill(body, sizeof(body), seed);
	fake = (struct fake_knobs){.rng = {seed}, .eager_max = 8192, .frame_max = 8192};
	pair_open_with(&p, "fake_b", NULL);
	fake.late_percent = 100;
	assert_int_equal(rpw_send_obj(p.ea, body, sizeof(body), &r[0]), RPW_IN_PROGRESS);
	assert_true(rpw_send(p.ea, short_body, sizeof(short_body), 1, &r[1]) >= 0);
	fake.frame_max = 512;
	fake.break_permille = 1000;
	rpw_context_progress(p.a);
	fake.break_permille = fake.late_percent = 0;
	fake.again_percent = 40;
	for (int i = 0; i < 4000; i++) {
		assert_in_range(p.ea->link.resent, 0, sizeof(body));
		if (p.ea->link.resent && !talked) {
			talk(&p, r[0]->number);
			talked = true;
		}
		both(&p);
	}
	assert_true(talked);
	assert_int_not_equal(rpw_request_test(r[0], NULL), RPW_IN_PROGRESS);
	for (int i = 0; i < 2; i++)
		rpw_request_destroy(r[i]);
	fake.again_percent = 0;
	pair_close(&p);
}

static void words_between_the_parts_of_a_body(void **state)
{
	FOR_SEEDS (s, 20) {
		talks_between_parts(s.seed, inject_fin);
		talks_between_parts(s.seed, inject_ack);
	}
}

/* ---- peers that connect, and choose no path ---- */

static unsigned told_too_many, told_gone;
static void stranger_accepted(void *user, void *listener_user, struct boot_conn *c) {}
static void stranger_connected(void *user, const struct rpwi_error *e)
{
	assert_int_equal(e ? e->status : 0, 0);
}
static void stranger_message(void *user, unsigned type, const uint8_t *data, size_t len)
{
	struct say_word w;
	assert_int_equal(type, SAY_BYE);
	memcpy(&w, data, sizeof(w));
	char text[200] = "";
	memcpy(text, data + sizeof(w), RPWI_MIN(w.text_len, sizeof(text) - 1));
	told_too_many += strstr(text, "too many peers") != NULL;
}
static void stranger_gone(void *user, const struct rpwi_error *e) { told_gone++; }
static const struct boot_up stranger_up = {
	stranger_accepted, stranger_connected, stranger_message, stranger_gone, NULL};

/* How many there are, when so many ms have passed. */
static size_t endpoints_in(struct pair *p, struct boot *b, unsigned ms)
{
	for (uint64_t end = rpwi_now_ns() + ms * RPWI_NS_PER_MS; rpwi_now_ns() < end;) {
		rpw_context_progress(p->b);
		boot_progress(b);
	}
	rpw_statistics s = {.size = sizeof(s)};
	rpw_context_statistics(p->b, &s);
	return s.endpoints;
}

static void peers_that_choose_no_path(void **state)
{
	enum { MANY = ARRIVING_MAX + 200 };
	static struct boot_conn *conn[MANY];
	struct boot *b;
	struct tran_facts facts;
	struct pair p;
	open_pair(&p);
	boot_own_facts(&facts);
	assert_int_equal(boot_new(&stranger_up, NULL, &facts, NULL, &b), 0);
	char address[64];
	snprintf(address, sizeof(address), "h:%d", rpw_listener_port(p.l));
	size_t before = allocated();
	told_too_many = told_gone = 0;
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(boot_connect(b, address, 60000, NULL, &conn[i]), 0);
		boot_progress(b);
		rpw_context_progress(p.b);
	}
	const size_t most = ARRIVING_MAX + 1; /* with the one that is connected */
	assert_int_equal(endpoints_in(&p, b, 200), most);
	if (grown(before) > MANY * 4 * KIB)
		fail_msg("%zu bytes for each of them", (grown(before)) / MANY);
	/* The endpoint that stands is not the worse for it. */
	uint64_t in = 0, out = 0x1234567890abcdef;
	rpw_request *r;
	rpw_recv(p.b, p.eb, &in, 8, 1, ALL, &r);
	assert_int_equal(rpw_send(p.ea, &out, 8, 1, NULL), RPW_OK);
	assert_int_equal(finish(&p, r, NULL), RPW_OK);
	assert_int_equal(in, out);
	/* Those that found no room wait for it, and are told nothing. */
	assert_int_equal(told_too_many + told_gone, 0);
	for (int i = 0; i < MANY - ARRIVING_MAX; i++)
		boot_close(conn[i]);
	assert_int_equal(endpoints_in(&p, b, 200), most);
	for (int i = MANY - ARRIVING_MAX; i < MANY; i++)
		boot_close(conn[i]);
	assert_int_equal(endpoints_in(&p, b, 200), 1);
	assert_int_equal(told_too_many + told_gone, 0);
	boot_free(b);
	pair_close(&p);
}

/* Each endpoint takes at least 2 KiB of the pool: then the next one is refused, by name. */
static void endpoints_beyond_the_pool(void **state)
{
	struct pair p;
	open_pair(&p);
	char address[64];
	snprintf(address, sizeof(address), "h:%d", rpw_listener_port(p.l));
	int status = RPW_OK, n = 0;
	for (; status == RPW_OK && n < 2 * POOL / (WINDOW_LEAST * UNIT_BYTES); n++) {
		rpw_endpoint *ep;
		rpw_request *r;
		rpw_context *c;
		rpw_context_options o = {.size = sizeof(o),
			.transports = "fake_a",
			.unexpected_bytes_max = 64 * (size_t)POOL};
		static rpw_context *other;
		if (!other)
			assert_int_equal(rpw_context_create(&o, &other), 0);
		c = other;
		assert_int_equal(rpw_endpoint_create(c, address, NULL, &ep, &r), RPW_IN_PROGRESS);
		for (int i = 0; i < 100 && rpw_request_test(r, NULL) == RPW_IN_PROGRESS; i++) {
			rpw_context_progress(c);
			rpw_context_progress(p.b);
		}
		status = rpw_request_test(r, NULL);
		rpw_request_destroy(r);
		if (status) {
			int why;
			assert_non_null(strstr(why_of(ep, &why), "unexpected_bytes_max"));
			rpw_context_destroy(other);
			other = NULL;
		}
	}
	assert_int_equal(status, RPW_ERR_REFUSED);
	assert_true(n > 50);
	pair_close(&p);
}

/* Words of the control path in another version, or garbled. */
static void words_of_another_version(void **state)
{
	for (int garbled = 0; garbled < 2; garbled++) {
		struct pair p;
		int status;
		uint8_t m[sizeof(struct say_word) + 4];
		open_pair(&p);
		struct say_word w = {.version = 9};
		memcpy(m, &w, sizeof(w));
		uint32_t crc = (uint32_t)crc32(0, m, sizeof(w)) + (uint32_t)garbled;
		memcpy(m + sizeof(w), &crc, 4);
		fake_say(true, SAY_READY, m, sizeof(m));
		for (int i = 0; i < 1000000 && why_of(p.eb, &status) && !status; i++)
			both(&p);
		const char *why = why_of(p.eb, &status);
		assert_int_equal(status, RPW_ERR_PROTOCOL);
		assert_non_null(
			strstr(why, garbled ? "garbled" : "version 9 (this side speaks 6)"));
		assert_non_null(strstr(why, "fakehost"));
		pair_close(&p);
	}
}

static int quiet(void **state)
{
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(floods_end_the_endpoint_that_sends_them, quiet),
		cmocka_unit_test_setup(what_one_peer_can_fill, quiet),
		cmocka_unit_test_setup(announced_sizes_cost_nothing, quiet),
		cmocka_unit_test_setup(objects_of_a_huge_announced_size, quiet),
		cmocka_unit_test_setup(answers_that_nobody_takes, quiet),
		cmocka_unit_test_setup(chunks_that_nobody_can_fetch, quiet),
		cmocka_unit_test_setup(words_between_the_parts_of_a_body, quiet),
		cmocka_unit_test_setup(peers_that_choose_no_path, quiet),
		cmocka_unit_test_setup(endpoints_beyond_the_pool, quiet),
		cmocka_unit_test_setup(words_of_another_version, quiet),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
