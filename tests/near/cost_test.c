/* SPDX-License-Identifier: BSD-3-Clause */
/* cost_test.c - which of two ways is gone, when their costs change. */
#include "lib/test.h"
#include "near/cost.h"

/* Both ways by their true costs, in ns for 64 KiB; how often the second was gone in `n`. A way that
 * has not been gone just before is four times as slow. */
struct two {
	uint32_t first, second, known_first, known_second;
	unsigned asked;
	int last;
};
static unsigned goes(struct two *t, unsigned n)
{
	unsigned seconds = 0;
	for (unsigned i = 0; i < n; i++) {
		int second = rpwi_cost_second(t->known_first, t->known_second, t->asked++);
		uint32_t *known = second ? &t->known_second : &t->known_first;
		uint64_t ns = second ? t->second : t->first;
		*known = rpwi_cost_learn(*known, t->last == second ? ns : 4 * ns, RPWI_COST_BYTES);
		t->last = second;
		seconds += (unsigned)second;
	}
	return seconds;
}

static void the_cheaper_way_is_gone_also_after_a_change(void **state)
{
	static const uint32_t costs[][2] = {
		{7000, 6000}, {6000, 7000}, {25000, 6000}, {1500, 6000}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(costs); i++)
		for (size_t k = 0; k < RPWI_ARRAY_LEN(costs); k++) {
			IN_CASE("row", k);
			struct two t = {.first = costs[i][0], .second = costs[i][1], .last = 2};
			goes(&t, 2000);
			unsigned n = goes(&t, 10000);
			assert_true(costs[i][1] < costs[i][0] ? n > 9500 : n < 500);
			assert_true(n > 0 && n < 10000); /* the other is looked at, too */
			t.first = costs[k][0];           /* the processes were moved */
			t.second = costs[k][1];
			goes(&t, 20000);
			n = goes(&t, 10000);
			assert_true(costs[k][1] < costs[k][0] ? n > 9500 : n < 500);
		}
}

static void what_cannot_be_gone_is_not(void **state)
{
	for (unsigned asked = 0; asked < 2000; asked++) {
		assert_false(rpwi_cost_second(5, RPWI_COST_NEVER, asked));
		assert_false(rpwi_cost_second(0, RPWI_COST_NEVER, asked));
		assert_true(rpwi_cost_second(RPWI_COST_NEVER, 5, asked));
	}
}

/* A process that lost its CPU in the middle. */
static void one_slow_sample_changes_little(void **state)
{
	uint32_t known = rpwi_cost_learn(0, 5000, RPWI_COST_BYTES);
	assert_int_equal(known, 5001);
	assert_true(rpwi_cost_learn(known, 10000000, RPWI_COST_BYTES) < 5500);
	assert_true(rpwi_cost_learn(known, 1u << 31, 8) < 5500);
	assert_int_equal(rpwi_cost_learn(known, 500, 8192), (5001 + 4001 + 1) / 2);
}

static void a_sample_is_taken_one_time_in_four(void **state)
{
	unsigned chance = 1, n = 0;
	_Atomic uint32_t cost = 0;
	for (unsigned i = 0; i < 4000; i++)
		n += rpwi_cost_by_chance(&chance);
	assert_true(n > 800 && n < 1200);
	rpwi_cost_sampled(&cost, 0, RPWI_COST_BYTES);
	assert_int_equal(cost, 0);
	rpwi_cost_sampled(&cost, rpwi_now_ns() - 5000, RPWI_COST_BYTES);
	assert_true(cost > 5000);
	cost = RPWI_COST_NEVER; /* it can be gone again */
	rpwi_cost_sampled(&cost, rpwi_now_ns() - 5000, RPWI_COST_BYTES);
	assert_true(cost > 5000 && cost != RPWI_COST_NEVER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_cheaper_way_is_gone_also_after_a_change),
		cmocka_unit_test(what_cannot_be_gone_is_not),
		cmocka_unit_test(one_slow_sample_changes_little),
		cmocka_unit_test(a_sample_is_taken_one_time_in_four),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
