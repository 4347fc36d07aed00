/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of options: what each kind takes and refuses, what was meant by a word that is no
 * option, presets and operands, and the help that is made of a table. */
#include "lib/test.h"
#include "cli/cli.h"
#include "cli/options.h"

struct all {
	bool flag, listed[3];
	const char *text, *file, *address, *choice, *several[2], *optional;
	unsigned number;
	int version;
	uint64_t any, size;
	double real;
	struct cli_sizes sizes;
};
static const char *const words[] = {"red", "green", "blue", NULL};
static const struct cli_option option[] = {
	{"flag", 'f', CLI_FLAG, NULL, "a flag", CLI_INTO(struct all, flag)},
	{"no-flag", 0, CLI_UNSET, NULL, "not it", CLI_INTO(struct all, flag)},
	{"no-text", 0, CLI_UNSET, NULL, "not it", CLI_INTO(struct all, text)},
	{"number", 'n', CLI_NUMBER, "N", "a number", .least = 3, .most = 4000000000.0,
		.preset = "7", CLI_INTO(struct all, number)},
	{"any", 0, CLI_NUMBER, "N", "any number", CLI_INTO(struct all, any)},
	{"version-of", 0, CLI_NUMBER, "vN", "with a prefix", .prefix = "v", .least = 4, .most = 12,
		CLI_INTO(struct all, version)},
	{"real", 0, CLI_REAL, "S", "with a fraction", .unit = "seconds", .least = 0.5, .most = 2,
		CLI_INTO(struct all, real)},
	{"size", 's', CLI_SIZE, "SIZE", "bytes", .least = 2, .most = 1 << 20,
		CLI_INTO(struct all, size)},
	{"sizes", 0, CLI_SIZES, "LIST", "sizes", .most = 1 << 20, .preset = "1,2",
		CLI_INTO(struct all, sizes)},
	{"text", 't', CLI_TEXT, "TEXT", "a text", CLI_INTO(struct all, text)},
	{"file", 0, CLI_FILE, "FILE", "a file", CLI_INTO(struct all, file)},
	{"address", 0, CLI_ADDRESS, "ADDRESS", "an address", CLI_INTO(struct all, address)},
	{"choice", 0, CLI_CHOICE, "COLOR", "one", .words = words, CLI_INTO(struct all, choice)},
	{"choices", 0, CLI_CHOICES, "COLORS", "some", .words = words, CLI_INTO(struct all, listed)},
	{"several", 0, CLI_TEXT, "TEXT", "two of them", CLI_INTO(struct all, several)},
	{"optional-and-with-a-long-name", 'o', CLI_FILE, "FILE",
		"with or without a value, and with so much to say about it that there have to be "
		"three lines, since two lines of 80 columns are not enough for "
		"all of it",
		.bare = "-", CLI_INTO(struct all, optional)},
	{},
};
static const struct cli_command command = {
	.name = "some command",
	.usage = "[OPTIONS] A [B]\n--flag and quite a number of further words so that this line of "
		 "the usage has to be broken as well",
	.about = "One paragraph, which is longer than a line of eighty columns and therefore has "
		 "to be broken somewhere.\n\nAnother one.",
	.option = option,
	.after = "The end.",
	.operands_least = 1,
	.operands_most = 2,
	.missing = "no A",
};

static const struct cli_option *named(const char *name)
{
	const struct cli_option *o = option;

	while (strcmp(o->name, name) != 0)
		o++;
	return o;
}

static int take(const char *name, const char *text, struct all *into)
{
	return cli_value_take(named(name), text, into);
}

static void refused(const char *name, const char *const *texts)
{
	static const struct all nothing;

	for (; *texts; texts++) {
		struct all a = {0};
		if (!take(name, *texts, &a))
			fail_msg("--%s took '%s'", name, *texts);
		assert_memory_equal(&a, &nothing, sizeof(a));
	}
}
#define REFUSED(name, ...) refused(name, (const char *const[]){__VA_ARGS__, NULL})

static void numbers(void **state)
{
	struct all a = {0};

	assert_int_equal(take("number", "3", &a), 0);
	assert_int_equal(a.number, 3);
	assert_int_equal(take("number", "4000000000", &a), 0);
	assert_int_equal(a.number, 4000000000u);
	assert_int_equal(take("number", "0x10", &a), 0);
	assert_int_equal(a.number, 16);
	assert_int_equal(take("number", "010", &a), 0);
	assert_int_equal(a.number, 10);
	REFUSED("number", "", "2", "4000000001", "18446744073709551619", "-3", "+3", " 3", "3 ",
		"3x", "x", "3.5", "0x");
	assert_int_equal(take("any", "18446744073709551615", &a), 0);
	assert_int_equal(a.any, UINT64_MAX);
	REFUSED("any", "18446744073709551616", "-1", "");
	assert_int_equal(take("version-of", "v8", &a), 0);
	assert_int_equal(a.version, 8);
	assert_int_equal(take("version-of", "12", &a), 0);
	assert_int_equal(a.version, 12);
	REFUSED("version-of", "v", "v3", "v13", "vv8", "V8");
	assert_int_equal(take("real", ".5", &a), 0);
	assert_true(a.real >= 0.5 && a.real <= 0.5);
	REFUSED("real", "", ".", "0.49", "2.1", "nan", "inf", "-1", " 1", "1s");
}

static void sizes(void **state)
{
	static const uint64_t listed[] = {0, 8, 1024}, range[] = {8, 32, 128, 300};
	char most[4 * CLI_SIZES_MAX + 8] = "8";
	struct all a = {0};

	assert_int_equal(take("size", "1M", &a), 0);
	assert_int_equal(a.size, 1 << 20);
	assert_int_equal(take("size", "2", &a), 0);
	REFUSED("size", "", "0", "1", "2M", "x", "1K2", "-2", "0x10");
	assert_int_equal(take("sizes", "0,8,1K", &a), 0);
	assert_int_equal(a.sizes.n, 3);
	assert_memory_equal(a.sizes.size, listed, sizeof(listed));
	assert_int_equal(take("sizes", "8..300", &a), 0);
	assert_int_equal(a.sizes.n, 4);
	assert_memory_equal(a.sizes.size, range, sizeof(range));
	assert_int_equal(take("sizes", "8..8,9", &a), 0);
	assert_int_equal(a.sizes.n, 2);
	REFUSED("sizes", "", "8,", ",8", "9..8", "0..8", "8..", "..8", "8..2M", "8,x", "8;9");
	for (unsigned i = 1; i < CLI_SIZES_MAX; i++)
		strcat(most, ",8");
	assert_int_equal(take("sizes", most, &a), 0);
	assert_int_equal(a.sizes.n, CLI_SIZES_MAX);
	REFUSED("sizes", strcat(most, ",8"));
}

static void words_and_texts(void **state)
{
	struct all a = {0};

	assert_int_equal(take("choice", "green", &a), 0);
	assert_ptr_equal(a.choice, words[1]);
	REFUSED("choice", "", "gree", "greenish", "all");
	assert_int_equal(take("choices", "blue,red", &a), 0);
	assert_true(a.listed[0] && !a.listed[1] && a.listed[2]);
	assert_int_equal(take("choices", "all", &a), 0);
	assert_true(a.listed[1]);
	REFUSED("choices", "", "red,", "red,pink", "none");
	assert_int_equal(take("text", "", &a), 0);
	REFUSED("file", "");
	assert_int_equal(take("several", "a", &a), 0);
	assert_int_equal(take("several", "b", &a), 0);
	assert_string_equal(a.several[1], "b");
	assert_int_not_equal(take("several", "c", &a), 0);
}

static void addresses(void **state)
{
	static const char *const good[] = {
		":0", ":65535", "host:1", "1.2.3.4:80", "[::1]:80", "[fe80::1%lo]:80"};
	struct all a = {0};

	for (size_t i = 0; i < RPWI_ARRAY_LEN(good); i++) {
		IN_CASE("row", i);
		assert_int_equal(take("address", good[i], &a), 0);
		assert_string_equal(a.address, good[i]);
	}
	REFUSED("address", "", "80", "host", "host:", ":65536", ":123456", ":-1", ": 1", "::1",
		"::1:80", "[::1:80", "[::1]", "[:80", "host:80x");
}

static void what_is_expected(void **state)
{
	static const struct {
		const char *name, *text;
	} told[] = {
		{"number", "a number from 3 to 4000000000"},
		{"any", "a number from 0 up"},
		{"version-of", "v4 to v12"},
		{"real", "a number of seconds from 0.5 to 2"},
		{"size", "a size from 2 to 1M, in bytes or with a suffix K, M or G"},
		{"sizes", "sizes from 0 to 1M, as in 8,4096,1M or 8..8M"},
		{"file", "the name of a file"},
		{"address", "HOST:PORT, [IPV6]:PORT or :PORT, with a port up to 65535"},
		{"choice", "red, green or blue"},
		{"choices", "a list of red, green and blue; or all"},
		{"several", "a text, at most 2 times"},
	};
	char out[CLI_EXPECTED_LEN];

	for (size_t i = 0; i < RPWI_ARRAY_LEN(told); i++) {
		IN_CASE("row", i);
		assert_string_equal(cli_value_expected(named(told[i].name), out), told[i].text);
	}
}

static int parse(struct all *a, int *argc, char ***argv)
{
	for (*argc = 0; (*argv)[*argc]; ++*argc)
		;
	return cli_options_parse(&command, a, argc, argv);
}
#define PARSE(...) parse(&a, &argc, (argv = (char *[]){"some command", __VA_ARGS__, NULL}, &argv))

static void presets_and_operands(void **state)
{
	struct all a = {0};
	char **argv;
	int argc;

	assert_int_equal(PARSE("x"), CLI_GO_ON);
	assert_int_equal(argc, 1);
	assert_string_equal(argv[0], "x");
	assert_int_equal(a.number, 7);
	assert_int_equal(a.sizes.n, 2);
	assert_false(a.flag);
	assert_int_equal(PARSE("x", "-fn9", "--text", "t", "-o", "y"), CLI_GO_ON);
	assert_true(a.flag);
	assert_int_equal(a.number, 9);
	assert_string_equal(a.text, "t");
	assert_string_equal(a.optional, "-"); /* its value stands behind a "=", or there is none */
	assert_int_equal(argc, 2);
	assert_string_equal(argv[1], "y");
	assert_int_equal(PARSE("--no-flag", "--no-text", "--optional-and-with-a-long-name=z", "--",
				 "--flag"),
		CLI_GO_ON);
	assert_false(a.flag);
	assert_null(a.text);
	assert_string_equal(a.optional, "z");
	assert_string_equal(argv[0], "--flag");
	assert_int_equal(PARSE("--fla", "x"), CLI_GO_ON); /* an abbreviation */
	assert_true(a.flag);
	cli_options_set(&command, "sizes", "5..80", &a);
	assert_int_equal(a.sizes.n, 3);
	assert_int_equal(PARSE("-f"), CLI_USAGE);
	assert_int_equal(PARSE("x", "y", "z"), CLI_USAGE);
	assert_int_equal(PARSE("x", "-n"), CLI_USAGE);
	assert_int_equal(PARSE("x", "--flag=1"), CLI_USAGE);
	assert_int_equal(PARSE("x", "--flags"), CLI_USAGE);
	assert_int_equal(PARSE("x", "-\xff"), CLI_USAGE);
	assert_int_equal(PARSE("x", "--no"), CLI_USAGE);
	assert_int_equal(PARSE("x", "--"
				    "a-name-without-end-that-is-longer-than-any-word-has-room"),
		CLI_USAGE);
}

static void the_help_has_every_row_and_80_columns(void **state)
{
	char *text = NULL, row[64];
	size_t len;
	FILE *f = open_memstream(&text, &len);

	cli_options_help(&command, f);
	fclose(f);
	assert_non_null(strstr(
		text, "Usage: some command [OPTIONS] A [B]\n       some command --flag and"));
	assert_non_null(strstr(text, "\n\nAnother one.\n\n  -f, --flag  "));
	assert_non_null(strstr(text, "a number (default 7)\n"));
	assert_non_null(strstr(text, "\n  -o, --optional-and-with-a-long-name[=FILE]\n      "));
	assert_non_null(strstr(text, "\n  -h, --help  "));
	assert_non_null(strstr(text, "\n  -V, --version  "));
	assert_non_null(strstr(text, "\n\nThe end.\n"));
	for (const struct cli_option *o = option; o->name; o++) {
		snprintf(row, sizeof(row), "--%s%s", o->name, o->bare ? "[" : o->value ? " " : "");
		assert_non_null(strstr(text, row));
	}
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
		if (strcspn(line, "\n") > 80 ||
			(strcspn(line, "\n") && line[strcspn(line, "\n") - 1] == ' '))
			fail_msg("%.*s", (int)strcspn(line, "\n"), line);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers),
		cmocka_unit_test(sizes),
		cmocka_unit_test(words_and_texts),
		cmocka_unit_test(addresses),
		cmocka_unit_test(what_is_expected),
		cmocka_unit_test(presets_and_operands),
		cmocka_unit_test(the_help_has_every_row_and_80_columns),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
