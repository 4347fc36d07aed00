/* SPDX-License-Identifier: BSD-3-Clause */
/* choice_test.c - the words of ROPEWAY_DEVICES that are about real devices. Those of ours are in
 * tests/io/offer_test.c. */
#include "base/choice.h"
#include "lib/test.h"

#include <stdlib.h>

static void set(const char *list, const char *older)
{
	setenv("ROPEWAY_DEVICES", list ? list : "", 1);
	if (older)
		setenv("ROPEWAY_FIRST", older, 1);
	else
		unsetenv("ROPEWAY_FIRST");
}

static void each_word_means_one_thing(void **state)
{
	static const struct {
		const char *list;
		bool software, first, any, mana, mlx, ours;
	} row[] = {
		{"", false, false, false, false, false, false},
		{" ,, ", false, false, false, false, false, false},
		{"lo,all,auto,mana_0", false, false, false, false, false, false},
		{"software", true, false, true, true, true, false},
		{"softwares,^", false, false, true, false, false, false},
		{"first", false, true, false, false, false, false},
		{"firs,first2,^first", false, false, true, false, false, false},
		{"^mana_0", false, false, true, true, false, false},
		{"lo ^mana_0,^rpw_lo,first", false, true, true, true, false, true},
		{"^mana_,^ana_0,^mana_00", false, false, true, false, false, false},
		{"software,^rpw_lo", true, false, true, true, true, true},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(row); i++) {
		set(row[i].list, NULL);
		assert_int_equal(rpwi_choice_software(), row[i].software);
		assert_int_equal(rpwi_choice_first(), row[i].first);
		assert_int_equal(rpwi_choice_hides_any(), row[i].any);
		assert_int_equal(rpwi_choice_hides("mana_0"), row[i].mana);
		assert_int_equal(rpwi_choice_hides("mlx5_0"), row[i].mlx);
		assert_int_equal(rpwi_choice_hides("rpw_lo"), row[i].ours);
	}
}

static void the_older_name_is_a_word(void **state)
{
	set("lo", "software");
	assert_true(rpwi_choice_first());
	assert_false(rpwi_choice_software());
	assert_false(rpwi_choice_hides_any());
	set("lo", "hardware");
	assert_false(rpwi_choice_first());
}

static void a_word_is_put_before_the_others(void **state)
{
	set(NULL, NULL);
	assert_false(rpwi_choice_names());
	assert_int_equal(rpwi_choice_add("first"), 0);
	assert_string_equal(rpwi_choice(), "first");
	assert_false(rpwi_choice_names());
	assert_int_equal(rpwi_choice_add("all"), 0);
	assert_string_equal(rpwi_choice(), "all,first");
	assert_true(rpwi_choice_names());
	unsetenv("ROPEWAY_DEVICES");
	assert_null(rpwi_choice());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_word_means_one_thing),
		cmocka_unit_test(the_older_name_is_a_word),
		cmocka_unit_test(a_word_is_put_before_the_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
