/* SPDX-License-Identifier: BSD-3-Clause */
/* match_test.c - the table of queues by key, against a list that is searched from its beginning. */
#include "lib/test.h"
#include "msg/match.h"

enum { NODES = 3000, STEPS = 60000 };

static struct rng rng;
static uint64_t roll(void) { return rng_next(&rng) >> 33; }

/* Each node in the order in which it was added; 0: is not in the table. */
static struct match_node node[NODES];
static uint64_t added[NODES], clock_now;

static int oldest(uint64_t tag, uint64_t source)
{
	int found = -1;
	for (int i = 0; i < NODES; i++)
		if (added[i] && node[i].tag == tag && node[i].source == source &&
			(found < 0 || added[i] < added[found]))
			found = i;
	return found;
}

static void add(struct match_table *t, int i, uint64_t tag, uint64_t source)
{
	match_add(t, &node[i], tag, source);
	added[i] = ++clock_now;
}

static void del(struct match_table *t, int i)
{
	match_del(t, &node[i]);
	memset(&node[i], 0xa5, sizeof(node[i]));
	added[i] = 0;
}

static void expect(struct match_table *t, uint64_t tag, uint64_t source)
{
	struct match_node *n = match_first(t, tag, source);
	int want = oldest(tag, source);
	assert_int_equal(n ? n - node : -1, want);
}

/* `tags` few: long queues; many: long chains, and a table that grows. Near the ends of their range
 * too, where one that was never asked for must not be found. */
static void random_steps(uint64_t seed, unsigned tags, unsigned full)
{
	struct match_table t;
	unsigned in = 0;
	rng.state = test_seed(seed);
	memset(added, 0, sizeof(added));
	assert_true(match_init(&t, roll() << 32 | roll()));
	expect(&t, 0, 0);
	for (unsigned step = 0; step < STEPS / (full > 100 ? 20 : 1); step++) {
		uint64_t tag = roll() % tags * (roll() % 8 ? 1 : 0x0100000000000001ull),
			 source = 1 + roll() % 3;
		int i = (int)(roll() % NODES);
		expect(&t, tag, source);
		if (!added[i] && roll() % full >= in) {
			add(&t, i, tag, source);
			in++;
		} else if (roll() % 2 && (i = oldest(tag, source)) >= 0) {
			del(&t, i);
			in--;
			expect(&t, tag, source); /* the next of those, at once */
		} else if (i >= 0 && added[i]) {
			del(&t, i); /* from the middle of a queue */
			in--;
		}
		if (roll() % 4 == 0)
			expect(&t, roll() % tags, 1 + roll() % 3);
	}
	for (int i = 0; i < NODES; i++)
		if (added[i])
			del(&t, i);
	assert_int_equal(t.leaders, 0);
	match_fini(&t);
}

static void one_tag(void **unused) { random_steps(1, 1, 40); }
static void few_tags(void **unused) { random_steps(2, 5, 100); }
static void many_tags(void **unused) { random_steps(3, 100000, NODES); }

static void last_of_a_key_goes_and_comes_back(void **unused)
{
	struct match_table t;
	memset(added, 0, sizeof(added));
	assert_true(match_init(&t, 12345));
	for (int k = 0; k < 1000; k++) {
		add(&t, 0, 7, 2);
		expect(&t, 8, 2);
		expect(&t, 7, 2);
		del(&t, 0);
		expect(&t, 7, 2);
		/* One more than ever before: some time the table grows under what is remembered. */
		add(&t, 2 + k, 1000 + (uint64_t)k, 1);
		add(&t, 0, 7, 2);
		del(&t, 0);
		add(&t, 1, 7, 2);
		expect(&t, 7, 2);
		expect(&t, 8, 2);
		del(&t, 1);
	}
	for (int k = 0; k < 1000; k++)
		expect(&t, 1000 + (uint64_t)k, 1);
	match_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_tag),
		cmocka_unit_test(few_tags),
		cmocka_unit_test(many_tags),
		cmocka_unit_test(last_of_a_key_goes_and_comes_back),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
