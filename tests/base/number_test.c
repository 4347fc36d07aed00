/* SPDX-License-Identifier: BSD-3-Clause */
/* number_test.c - base/number.h: which word was meant by one that is none. */
#include "lib/test.h"

#include "base/base.h"
#include "base/number.h"

static void near_words(void **state)
{
	static const char *const names[] = {
		"json", "listen", "key-file", "links", "run", "once", "transport", NULL};
	static const struct {
		const char *word, *meant;
	} meant[] = {
		{"jsno", "json"},  /* swapped */
		{"jsn", "json"},   /* missing */
		{"jason", "json"}, /* too many */
		{"joson", "json"}, /* an insertion */
		{"keyfiel", "key-file"},
		{"lsiten", "listen"},
		{"lsietns", NULL}, /* three slips */
		{"rnu", "run"},
		{"rum", "run"},
		{"rot", NULL}, /* two slips of three letters */
		{"oncee", "once"},
		{"transportation", "transport"},
		{"trans", "transport"},
		{"li", "listen"},
		{"", NULL},
		{"something-that-is-much-longer-than-any-name-of-an-option-may-be", NULL},
	};

	for (size_t i = 0; i < RPWI_ARRAY_LEN(meant); i++) {
		IN_CASE("row", i);
		const char *got = rpwi_word_near(meant[i].word, names);
		if (!got != !meant[i].meant || (got && strcmp(got, meant[i].meant) != 0))
			fail_msg("'%s': '%s', not '%s'", meant[i].word, got ? got : "",
				meant[i].meant ? meant[i].meant : "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(near_words),
	};
	return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
