/* SPDX-License-Identifier: BSD-3-Clause */
/* turn_test.c - when a program that polls in vain gives its turn away (base/turn.h). */
#include "lib/test.h"
#include "base/turn.h"

/* How many looks in vain until a yield; the yield is not done. */
static unsigned looks(struct rpwi_turn *t)
{
	unsigned n = 1;
	while (!rpwi_turn_ends(t, false))
		assert_true(n++ < 10 * RPWI_TURN_MOST);
	return n;
}

static void nobody_gives_up_who_finds(void **state)
{
	(void)state;
	struct rpwi_turn t = {0};
	for (int i = 0; i < 10 * RPWI_TURN_MOST; i++)
		assert_false(rpwi_turn_ends(&t, i % RPWI_TURN_MOST == RPWI_TURN_MOST - 1));
	assert_int_equal(looks(&t), RPWI_TURN_MOST);
}

static void who_brought_something_runs_after_each_look(void **state)
{
	(void)state;
	struct rpwi_turn t = {.every = RPWI_TURN_MOST, .was_taken = true};
	assert_false(rpwi_turn_ends(&t, true));
	assert_int_equal(looks(&t), 1);
	/* somebody ran, and nothing came of it */
	t.was_taken = true;
	t.every = 4;
	t.in_vain = 0;
	assert_int_equal(looks(&t), 4);
}

static void yields_in_vain_grow_rare(void **state)
{
	(void)state;
	struct rpwi_turn t = {.every = 1};
	unsigned last = 0;
	for (int i = 0; i < 12; i++) {
		unsigned n = looks(&t);
		assert_true(n >= last);
		last = n;
		rpwi_turn_give(&t);
		t.was_taken = false;
	}
	assert_int_equal(last, RPWI_TURN_MOST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_gives_up_who_finds),
		cmocka_unit_test(who_brought_something_runs_after_each_look),
		cmocka_unit_test(yields_in_vain_grow_rare),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
