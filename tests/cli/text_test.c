/* SPDX-License-Identifier: BSD-3-Clause */
/* What others wrote, as a terminal may have it: rpwi_cli_printable. */
#include "lib/test.h"
#include "cli/cli.h"

static void assert_shown(const char *text, const char *expected)
{
	char out[64], same[64];

	assert_string_equal(rpwi_cli_printable(text, out, sizeof(out)), expected);
	snprintf(same, sizeof(same), "%s", text);
	assert_string_equal(rpwi_cli_printable(same, same, sizeof(same)), expected);
}

static void what_can_be_read_stays(void **state)
{
	assert_shown("", "");
	assert_shown("a file, 100% ~", "a file, 100% ~");
	assert_shown("\xc2\xa0 Gr\xc3\xbc\xc3\x9f \xe7\xbb\xb3 \xf0\x9f\xaa\xa2 \xf4\x8f\xbf\xbf",
		"\xc2\xa0 Gr\xc3\xbc\xc3\x9f \xe7\xbb\xb3 \xf0\x9f\xaa\xa2 \xf4\x8f\xbf\xbf");
}

static void controls_do_not(void **state)
{
	assert_shown("a\x1b[31mb\nc\td\x7f"
		     "e",
		"a?[31mb?c?d?e");
	assert_shown("\xc2\x80 \xc2\x9b"
		     "31m \xc2\x9f",
		"? ?31m ?"); /* C1: U+009B is CSI */
	assert_shown("\x9b"
		     "31m",
		"?31m"); /* and to a terminal of Latin-1 it is one byte */
	assert_shown("a\xe2\x80\xaegpj.exe \xe2\x81\xa6 \xe2\x80\xa8", "a?gpj.exe ? ?");
}

static void what_is_not_utf8_does_not(void **state)
{
	/* overlong */
	assert_shown("\xc0\x9b \xc1\xbf \xe0\x82\x9b \xf0\x80\x82\x9b", "?? ?? ??? ????");
	/* a surrogate, beyond U+10FFFF, no first byte */
	assert_shown("\xed\xa0\x80 \xf4\x90\x80\x80 \xf8\x88", "??? ???? ??");
	assert_shown("\xe7\xbb"
		     "a \xe7",
		"??a ?"); /* cut short */
}

static void it_is_cut_between_characters(void **state)
{
	char out[8];

	for (size_t len = 1; len <= sizeof(out); len++) {
		IN_CASE("len", len);
		memset(out, 'x', sizeof(out));
		rpwi_cli_printable("\xe7\xbb\xb3\xe7\xbb\xb3\xe7\xbb\xb3", out, len);
		assert_int_equal(strlen(out), (len - 1) / 3 * 3);
		assert_memory_equal(out, "\xe7\xbb\xb3\xe7\xbb\xb3", strlen(out));
	}
}

static void a_word_for_a_shell_is_quoted_where_it_needs_it(void **state)
{
	static const char *const row[][2] = {{"build/ropeway", "build/ropeway"}, {"", "''"},
		{"my tree/ropeway", "'my tree/ropeway'"}, {"it's", "'it'\\''s'"},
		{"$(x)", "'$(x)'"}, {"'", "''\\'''"}};
	char out[32];
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		assert_string_equal(rpwi_cli_shell_word(row[i][0], out, sizeof(out)), row[i][1]);
	/* a part of a command would be another command */
	for (size_t len = 4; len < 24; len++) {
		const char *got = rpwi_cli_shell_word("my tree/a", out, len);
		assert_true(strlen(got) < len);
		assert_true(!strcmp(got, "...") || !strcmp(got, "'my tree/a'"));
	}
	assert_string_equal(rpwi_cli_shell_word("a/b/c/d", out, 7), "...");
}

static void what_is_too_wide_ends_with_dots(void **state)
{
	static const struct {
		const char *text, *shown;
		unsigned columns, used;
	} cases[] = {
		{"name", "name", 4, 4}, {"names", "n...", 4, 4}, {"names", "na", 2, 2},
		{"names", "", 0, 0},
		/* two columns each */
		{"\xe7\xbb\xb3\xe7\xbb\xb3", "\xe7\xbb\xb3\xe7\xbb\xb3", 4, 4},
		{"\xe7\xbb\xb3\xe7\xbb\xb3\xe7\xbb\xb3", "\xe7\xbb\xb3...", 5, 5},
		{"\xe7\xbb\xb3\xe7\xbb\xb3\xe7\xbb\xb3", "...", 4, 3},
		{"e\xcc\x81t", "e\xcc\x81t", 2, 2}, /* a mark takes none */
	};
	char out[32];

	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		assert_int_equal(
			rpwi_cli_columns(cases[i].text, out, sizeof(out), cases[i].columns),
			cases[i].used);
		assert_string_equal(out, cases[i].shown);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_can_be_read_stays),
		cmocka_unit_test(controls_do_not),
		cmocka_unit_test(what_is_not_utf8_does_not),
		cmocka_unit_test(it_is_cut_between_characters),
		cmocka_unit_test(a_word_for_a_shell_is_quoted_where_it_needs_it),
		cmocka_unit_test(what_is_too_wide_ends_with_dots),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
