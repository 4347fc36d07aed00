/* SPDX-License-Identifier: BSD-3-Clause */
/* options_test.c - ROPEWAY_CHECK: what each word sets, and what is said of a wrong one. */
#include "lib/test.h"

#include "base/base.h"
#include "check/options.h"

#include <stdio.h>

static struct rpwi_check_options o;

static void read_well(const char *spec)
{
	char why[RPWI_WHY_LEN] = "";
	if (rpwi_check_options_read(spec, &o, why, sizeof(why)))
		fail_msg("'%s': %s", spec, why);
}

static unsigned rules_on(void)
{
	unsigned n = 0;
	for (unsigned r = 0; r < RPWI_RULES; r++)
		n += o.on[r];
	assert_int_equal(o.any, n > 0);
	return n;
}

static unsigned by_default(void)
{
	unsigned n = 0;
	for (unsigned r = 0; r < RPWI_RULES; r++)
		n += !rpwi_rules[r].off;
	return n;
}

static void nothing_said_is_the_defaults(void **state)
{
	static const char *const same[] = {"", "1", "default", "rules=", ":", "all,default", ","};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(same); i++) {
		IN_CASE("spec", i);
		read_well(same[i]);
		assert_int_equal(rules_on(), by_default());
		assert_false(o.on[RPWI_RULE_RACE]);
		assert_true(o.on[RPWI_RULE_RECV_LATE]);
		assert_false(o.halt);
		assert_int_equal(o.exitcode, 86);
		assert_int_equal(o.color, RPWI_CHECK_COLOR_AUTO);
		assert_int_equal(o.columns, 0);
		assert_string_equal(o.log, "");
		assert_string_equal(o.suppress, "");
	}
}

static void rules_go_on_and_off_from_left_to_right(void **state)
{
	read_well("0");
	assert_int_equal(rules_on(), 0);
	read_well("none");
	assert_int_equal(rules_on(), 0);
	read_well("all");
	assert_int_equal(rules_on(), RPWI_RULES);
	read_well("race,-leak");
	assert_int_equal(rules_on(), by_default());
	assert_true(o.on[RPWI_RULE_RACE]);
	assert_false(o.on[RPWI_RULE_LEAK]);
	read_well("none,recv-late,103");
	assert_int_equal(rules_on(), 2);
	assert_true(o.on[RPWI_RULE_RECV_LATE] && o.on[RPWI_RULE_BUFFER_REPOSTED]);
	read_well("none,order,-201");
	assert_true(o.on[RPWI_RULE_CM_UNDRAINED] && o.on[RPWI_RULE_PSN_MISMATCH]);
	assert_false(o.on[RPWI_RULE_RECV_LATE] || o.on[RPWI_RULE_FIRST_CAUSE] ||
		     o.on[RPWI_RULE_ERROR_IGNORED]);
	read_well("-posts");
	assert_false(o.on[RPWI_RULE_ERROR_IGNORED] || o.on[RPWI_RULE_SOLICITED_NEVER]);
	assert_true(o.on[RPWI_RULE_RECV_LATE]);
	read_well("none:rules=rpw:-rpw-leak");
	assert_int_equal(rules_on(), 4);
}

static void settings_stand_between_colons(void **state)
{
	read_well("race,-leak:halt=1:exitcode=0:log=/tmp/r.%p:suppress=s.txt:color=always:columns="
		  "100");
	assert_true(o.on[RPWI_RULE_RACE] && !o.on[RPWI_RULE_LEAK] && o.halt);
	assert_int_equal(o.exitcode, 0);
	assert_string_equal(o.log, "/tmp/r.%p");
	assert_string_equal(o.suppress, "s.txt");
	assert_int_equal(o.color, RPWI_CHECK_COLOR_ALWAYS);
	assert_int_equal(o.columns, 100);
	read_well("halt=1:halt=0:exitcode=1:exitcode=2:");
	assert_false(o.halt);
	assert_int_equal(o.exitcode, 2);
	read_well("log='/tmp/a:b=\"c\"':halt=1");
	assert_string_equal(o.log, "/tmp/a:b=\"c\"");
	assert_true(o.halt);
	read_well("log=\"it's\"");
	assert_string_equal(o.log, "it's");
}

static void a_mistake_is_named_and_changes_nothing(void **state)
{
	static const struct {
		const char *spec, *why;
	} bad[] = {
		{"recv-lat", "unknown rule 'recv-lat': did you mean 'recv-late'?"},
		{"raec", "unknown rule 'raec': did you mean 'race'?"},
		{"-leek", "unknown rule 'leek': did you mean 'leak'?"},
		{"xyzzy", "unknown rule 'xyzzy'"},
		{"999", "unknown rule '999'"},
		{"1,leak", "unknown rule '1'"},
		{"-", "unknown rule ''"},
		{"-none", "'-none' turns nothing off: 'none' turns all rules off"},
		{"halt", "halt needs a value, as in halt=..."},
		{"hlat=1", "unknown setting 'hlat': did you mean 'halt'?"},
		{"=1", "unknown setting ''"},
		{"halt=2", "halt: expected a number from 0 to 1, not '2'"},
		{"halt=", "halt: expected a number from 0 to 1, not ''"},
		{"exitcode=256", "exitcode: expected a number from 0 to 255, not '256'"},
		{"exitcode=-1", "exitcode: expected a number from 0 to 255, not '-1'"},
		{"columns=5", "columns: expected a number from 20 to 1000, not '5'"},
		{"color=allways", "unknown color 'allways': did you mean 'always'?"},
		{"log=", "log: expected the name of a file, of at most 1023 bytes"},
		{"log='a", "log: expected another ', and then a colon or nothing"},
		{"log='a'b", "log: expected another ', and then a colon or nothing"},
	};
	char why[RPWI_WHY_LEN];
	for (size_t i = 0; i < RPWI_ARRAY_LEN(bad); i++) {
		char spec[128];
		IN_CASE("spec", i);
		snprintf(spec, sizeof(spec), "none:exitcode=3:%s", bad[i].spec);
		assert_int_equal(rpwi_check_options_read(spec, &o, why, sizeof(why)), -EINVAL);
		assert_string_equal(why, bad[i].why);
		assert_int_equal(rules_on(), by_default());
		assert_int_equal(o.exitcode, 86);
	}
}

static void a_name_of_a_file_has_a_bound(void **state)
{
	char spec[RPWI_CHECK_PATH + 8], why[RPWI_WHY_LEN];
	for (int len = RPWI_CHECK_PATH - 1; len <= RPWI_CHECK_PATH; len++) {
		memset(spec, 'x', sizeof(spec));
		memcpy(spec, "log=", 4);
		spec[4 + len] = '\0';
		int rc = rpwi_check_options_read(spec, &o, why, sizeof(why));
		assert_int_equal(rc, len < RPWI_CHECK_PATH ? 0 : -EINVAL);
		assert_int_equal(strlen(o.log), rc ? 0 : len);
	}
}

/* What programs suppress by. */
static void each_rule_has_a_name_and_a_number_of_its_own(void **state)
{
	for (unsigned r = 0; r < RPWI_RULES; r++) {
		const struct rpwi_rule_info *info = &rpwi_rules[r];
		char number[8];
		IN_CASE("rule", r);
		assert_non_null(info->name);
		assert_true(!r || info->number > rpwi_rules[r - 1].number);
		assert_int_equal(rpwi_rule_named(info->name, strlen(info->name)), r);
		int len = snprintf(number, sizeof(number), "%u", info->number);
		assert_int_equal(rpwi_rule_named(number, (size_t)len), r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said_is_the_defaults),
		cmocka_unit_test(rules_go_on_and_off_from_left_to_right),
		cmocka_unit_test(settings_stand_between_colons),
		cmocka_unit_test(a_mistake_is_named_and_changes_nothing),
		cmocka_unit_test(a_name_of_a_file_has_a_bound),
		cmocka_unit_test(each_rule_has_a_name_and_a_number_of_its_own),
	};
	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
