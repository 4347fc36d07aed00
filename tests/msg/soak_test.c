/* SPDX-License-Identifier: BSD-3-Clause */
/* soak_test.c - random operations of random sizes, both ways at once, by a seed; every
 * byte that is reported done is checked. */
#include "msg_test.h"

enum { SOAK_WINDOW = 48, SOAK_TAGS = 5 };

struct soak_side {
	rpw_context *c;
	rpw_endpoint *ep;
	struct {
		rpw_request *r;
		char *buf;
		size_t len;
		uint64_t seed;
	} send[SOAK_WINDOW], recv[SOAK_WINDOW];
	/* of each tag, in order: the number seeds the pattern */
	uint64_t sent[SOAK_TAGS], received[SOAK_TAGS];
	uint64_t sends, receives, ops;
	char *region, *theirs;
	rpw_memory *m;
	rpw_rkey *k;
	uint64_t added, id;
	rpw_request *rma;
	char *rma_buf;
	size_t rma_len;
	uint64_t rma_seed;
	bool rma_get;
};
static struct rng soak_rng;
static uint64_t soak_random(void) { return rng_next(&soak_rng); }

static size_t soak_size(void)
{
	switch (soak_random() % 8) {
	case 0:
		return 0;
	case 1:
	case 2:
	case 3:
		return soak_random() % 64;
	case 4:
	case 5:
		return soak_random() % 4096;
	case 6:
		return soak_random() % 20000;
	default:
		return soak_random() % 200000;
	}
}
static uint64_t soak_seed(uint64_t side, uint64_t tag, uint64_t n)
{
	return side << 56 | tag << 40 | n;
}
/* Both sides know the size of the n-th message of a tag from its seed. */
static size_t soak_size_of(uint64_t seed)
{
	struct rng keep = soak_rng;
	soak_rng.state = seed;
	size_t n = soak_size();
	soak_rng = keep;
	return n;
}

static void soak_send(struct soak_side *s)
{
	for (int i = 0; i < SOAK_WINDOW; i++) {
		if (s->send[i].r && rpw_request_test(s->send[i].r, NULL) != RPW_IN_PROGRESS) {
			assert_int_equal(rpw_request_test(s->send[i].r, NULL), RPW_OK);
			rpw_request_destroy(s->send[i].r);
			s->send[i].r = NULL;
			free(s->send[i].buf);
		}
		if (s->send[i].r || soak_random() % 3 || s->sends == s->ops)
			continue;
		uint64_t tag = soak_random() % SOAK_TAGS,
			 seed = soak_seed(s->id, tag, s->sent[tag]++);
		size_t n = soak_size_of(seed);
		char *buf = malloc(n + 1);
		pattern_fill(buf, n, seed);
		s->sends++;
		int rc = rpw_send(s->ep, buf, n, tag, &s->send[i].r);
		assert_true(rc >= 0);
		s->send[i].buf = buf;
		if (!rc)
			free(buf);
	}
}

static void soak_recv(struct soak_side *s, uint64_t tags_left[SOAK_TAGS])
{
	for (int i = 0; i < SOAK_WINDOW; i++) {
		if (s->recv[i].r && rpw_request_test(s->recv[i].r, NULL) != RPW_IN_PROGRESS) {
			rpw_completion done = RPW_COMPLETION_INIT;
			assert_int_equal(rpw_request_test(s->recv[i].r, &done), RPW_OK);
			size_t expect = soak_size_of(s->recv[i].seed);
			assert_int_equal(done.length, expect);
			assert_int_equal(
				pattern_wrong(s->recv[i].buf, expect, s->recv[i].seed), expect);
			rpw_request_destroy(s->recv[i].r);
			free(s->recv[i].buf);
			s->recv[i].r = NULL;
			s->receives++;
		}
		if (s->recv[i].r || soak_random() % 3)
			continue;
		uint64_t tag = soak_random() % SOAK_TAGS;
		if (s->received[tag] >= tags_left[tag])
			continue;
		uint64_t seed = soak_seed(!s->id, tag, s->received[tag]++);
		s->recv[i].seed = seed;
		size_t room = soak_size_of(seed) + soak_random() % 100;
		s->recv[i].buf = malloc(room + 1);
		assert_int_equal(
			rpw_recv(s->c, soak_random() % 2 ? s->ep : NULL, s->recv[i].buf, room, tag,
				soak_random() % 4 ? UINT64_MAX : 0xffff, &s->recv[i].r),
			RPW_IN_PROGRESS);
	}
}

/* One transfer or atomic at a time: what it says is checked by a get of the same place. */
static void soak_rma(struct soak_side *s)
{
	if (s->rma) {
		int status = rpw_request_test(s->rma, NULL);
		if (status == RPW_IN_PROGRESS)
			return;
		assert_int_equal(status, RPW_OK);
		rpw_request_destroy(s->rma);
		s->rma = NULL;
		if (s->rma_get) {
			assert_int_equal(
				pattern_wrong(s->rma_buf, s->rma_len, s->rma_seed), s->rma_len);
			s->rma_get = false;
			return;
		}
		if (s->rma_len) {
			memset(s->rma_buf, 0, s->rma_len);
			assert_int_equal(rpw_endpoint_fence(s->ep), RPW_OK);
			if (rpw_get(s->ep, s->rma_buf, s->rma_len, s->k, 64, &s->rma) == RPW_OK)
				assert_int_equal(pattern_wrong(s->rma_buf, s->rma_len, s->rma_seed),
					s->rma_len);
			else
				s->rma_get = true;
			return;
		}
	}
	if (soak_random() % 4 == 0) {
		static uint64_t before[2];
		s->rma_len = 0;
		s->added += 3;
		assert_true(rpw_fetch_add(s->ep, 3, s->k, 0, &before[s->id], &s->rma) >= 0);
		return;
	}
	s->rma_len = soak_size();
	s->rma_seed = soak_random();
	pattern_fill(s->rma_buf, s->rma_len, s->rma_seed);
	if (rpw_put(s->ep, s->rma_buf, s->rma_len, s->k, 64, &s->rma) == RPW_OK)
		s->rma = NULL;
}

static void soak_open(
	struct soak_side *s, rpw_context *c, rpw_endpoint *ep, uint64_t id, uint64_t ops)
{
	*s = (struct soak_side){.c = c, .ep = ep, .id = id, .ops = ops};
	assert_int_equal(rpw_memory_allocate(c, 256 * 1024, 7, &s->m), 0);
	memset(rpw_memory_address(s->m), 0, 64);
	s->rma_buf = malloc(256 * 1024);
}
static void soak_key(struct soak_side *s, const struct soak_side *peer)
{
	uint8_t packed[RPW_RKEY_BYTES_MAX];
	int n = rpw_rkey_pack(peer->m, packed, sizeof(packed));
	assert_true(n > 0);
	assert_int_equal(rpw_rkey_unpack(s->ep, packed, (size_t)n, &s->k), 0);
}

static void soak_run(struct pair *p, uint64_t seed, uint64_t ops)
{
	struct soak_side s[2];
	soak_rng.state = seed;
	soak_open(&s[0], p->a, p->ea, 0, ops);
	soak_open(&s[1], p->b, p->eb, 1, ops);
	soak_key(&s[0], &s[1]);
	soak_key(&s[1], &s[0]);
	long idle = 0;
	while (s[0].receives < ops || s[1].receives < ops) {
		uint64_t before = s[0].receives + s[1].receives;
		for (int i = 0; i < 2; i++) {
			soak_send(&s[i]);
			soak_recv(&s[i], s[!i].sent);
			soak_rma(&s[i]);
			rpw_context_progress(s[i].c);
		}
		idle = s[0].receives + s[1].receives == before ? idle + 1 : 0;
		if (idle > 3000000) {
			fail_msg("the soak is stuck: received %llu and %llu of %llu",
				(unsigned long long)s[0].receives,
				(unsigned long long)s[1].receives, (unsigned long long)ops);
		}
	}
	for (int i = 0; i < 2; i++) {
		rpw_request *r;
		finish(p, s[i].rma, NULL);
		for (int k = 0; k < SOAK_WINDOW; k++)
			if (s[i].send[k].r) {
				assert_int_equal(finish(p, s[i].send[k].r, NULL), RPW_OK);
				free(s[i].send[k].buf);
			}
		assert_true(rpw_endpoint_flush(s[i].ep, &r) >= 0);
		assert_int_equal(finish(p, r, NULL), RPW_OK);
	}
	for (int i = 0; i < 2; i++) {
		/* Each fetch-and-add happened once. */
		assert_int_equal(*(uint64_t *)rpw_memory_address(s[i].m), s[!i].added);
		rpw_rkey_destroy(s[i].k);
		free(s[i].rma_buf);
	}
	for (int i = 0; i < 2; i++)
		rpw_memory_destroy(s[i].m);
}

static void soak(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	soak_run(&p, test_seed(20261121), 4000);
	pair_close(&p);
}

#ifdef MSG_FAKE
static void soak_with_misbehaviour(void **state)
{
	FOR_SEEDS (seeds, 5) {
		uint64_t seed = seeds.seed;
		struct pair p;
		fake = (struct fake_knobs){.rng = {seed},
			.again_percent = 20,
			.late_percent = 30,
			.eager_max = 1500,
			.frame_max = 2048};
		rpw_context_options o = {
			.size = sizeof(o), .unexpected_bytes_max = seed & 1 ? 64 * 1024 : 0};
		pair_open_with(&p, transport, &o);
		soak_run(&p, seed, 2000);
		pair_close(&p);
	}
}

static void soak_with_broken_paths(void **state)
{
	if (strcmp(transport, "fake_b"))
		return;
	unsigned breaks = 0, placed = 0;
	FOR_SEEDS (seeds, 10) {
		uint64_t seed = seeds.seed;
		struct pair p;
		fake = (struct fake_knobs){.rng = {seed},
			.again_percent = 10,
			.late_percent = 30,
			.eager_max = 6000,
			.frame_max = 8192,
			.placed_max = seed & 1 ? 60000 : 0};
		pair_open_with(&p, "fake_b", NULL);
		fake.break_permille = 5;
		soak_run(&p, seed, 1500);
		fake.break_permille = 0;
		breaks += fake.breaks;
		placed += fake.placed;
		pair_close(&p);
	}
	assert_true(breaks > 20);
	assert_true(placed > 20);
}
#endif

int soak_tests(void)
{
	static const struct CMUnitTest tests[] = {
		CASE(soak),
#ifdef MSG_FAKE
		CASE(soak_with_misbehaviour),
		CASE(soak_with_broken_paths),
#endif
	};
	return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
