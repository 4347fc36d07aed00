/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots, against a plain table of who is where: taken, found, hidden, given back, at random. */
#include "lib/test.h"
#include "base/slots.h"

enum { MOST = 100, STEPS = 100000 };

static void as_a_plain_table(void **state)
{
	struct rpwi_slots s = {0};
	char things[MOST];
	void *there[MOST] = {0};
	uint32_t generation[MOST] = {0}, taken = 0;
	bool is_taken[MOST] = {0};
	struct rng rng = {test_seed(1)};
	for (int step = 0; step < STEPS; step++) {
		uint32_t at = (uint32_t)rng_below(&rng, MOST);
		uint64_t what = rng_below(&rng, 5);
		if (what < 3) {
			bool room = rpwi_slots_reserve(&s, MOST);
			assert_int_equal(room, taken < MOST);
			if (!room)
				continue;
			uint32_t i = rpwi_slots_take(&s, &things[at]);
			assert_true(i < MOST && !is_taken[i]);
			assert_int_equal(s.at[i].generation, generation[i]);
			is_taken[i] = true;
			there[i] = &things[at];
			taken++;
		} else if (is_taken[at] && what == 3) {
			rpwi_slots_hide(&s, at);
			there[at] = NULL;
		} else if (is_taken[at]) {
			rpwi_slots_give(&s, at);
			there[at] = NULL;
			is_taken[at] = false;
			generation[at]++;
			taken--;
		}
		assert_int_equal(s.used, taken);
		assert_ptr_equal(rpwi_slots_find(&s, at), there[at]);
		assert_null(rpwi_slots_find(&s, MOST + at));
	}
	rpwi_slots_fini(&s);
	assert_null(rpwi_slots_find(&s, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_a_plain_table)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
