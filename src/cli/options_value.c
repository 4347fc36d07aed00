/* SPDX-License-Identifier: BSD-3-Clause */
/* options_value.c - see options.h: the value of an option, by its kind. Every text is a user's:
 * nothing of it is taken before all of it is understood. */
#include "cli/options.h"

#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static bool in_bounds(const struct cli_option *o, double v)
{
	return v >= o->least && (!(o->most > 0) || v <= o->most);
}

/* ---- numbers ---- */

static int store(const struct cli_option *o, void *to, uint64_t v)
{
	assert(o->width == sizeof(uint64_t) ||
		(o->width == sizeof(uint32_t) && o->most > 0 && o->most <= UINT32_MAX));
	if (o->width == sizeof(uint64_t))
		memcpy(to, &v, sizeof(v));
	else
		memcpy(to, &(uint32_t){(uint32_t)v}, sizeof(uint32_t));
	return 0;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int take_number(const struct cli_option *o, const char *text, void *to)
{
	size_t skip =
		o->prefix && !strncmp(text, o->prefix, strlen(o->prefix)) ? strlen(o->prefix) : 0;
	bool hex = !strncasecmp(text + skip, "0x", 2);
	char *end;

	if (!is_digit(text[skip])) /* strtoull would take blanks and signs */
		return -EINVAL;
	errno = 0;
	uint64_t v = strtoull(text + skip, &end, hex ? 16 : 10);
	return errno || *end || !in_bounds(o, (double)v) ? -EINVAL : store(o, to, v);
}

static int take_real(const struct cli_option *o, const char *text, void *to)
{
	char *end;
	double v = strtod(text, &end);

	if ((!is_digit(text[0]) && text[0] != '.') || end == text || *end || !in_bounds(o, v))
		return -EINVAL;
	memcpy(to, &v, sizeof(v));
	return 0;
}

/* ---- sizes ---- */

static int read_size(const struct cli_option *o, const char *text, uint64_t *v)
{
	if (!strcmp(text, "0"))
		*v = 0;
	else if (rpwi_cli_parse_size(text, v))
		return -EINVAL;
	return in_bounds(o, (double)*v) ? 0 : -EINVAL;
}

static int take_size(const struct cli_option *o, const char *text, void *to)
{
	uint64_t v;

	return read_size(o, text, &v) ? -EINVAL : store(o, to, v);
}

static int add_size(struct cli_sizes *s, uint64_t size)
{
	if (s->n == CLI_SIZES_MAX)
		return -EINVAL;
	s->size[s->n++] = size;
	return 0;
}

/* "8", or "8..8M" by powers of 4, the last one included. */
static int add_sizes(const struct cli_option *o, char *word, struct cli_sizes *s)
{
	char *dots = strstr(word, "..");
	uint64_t from, to;

	if (!dots)
		return read_size(o, word, &from) ?: add_size(s, from);
	*dots = '\0';
	if (read_size(o, word, &from) || read_size(o, dots + 2, &to) || !from || from > to)
		return -EINVAL;
	for (; from < to; from *= 4)
		if (add_size(s, from))
			return -EINVAL;
	return add_size(s, to);
}

/* ---- lists ---- */

/* Each word between commas. 0, or what `fn` gave. */
static int for_each_word(const char *list,
	int (*fn)(const struct cli_option *o, char *word, void *arg), const struct cli_option *o,
	void *arg)
{
	char *copy = strdup(list), *at = copy, *word;
	int rc = copy ? 0 : -ENOMEM;

	while (!rc && (word = strsep(&at, ",")))
		rc = fn(o, word, arg);
	free(copy);
	return rc;
}

static int sizes_word(const struct cli_option *o, char *word, void *arg)
{
	return add_sizes(o, word, arg);
}

static int take_sizes(const struct cli_option *o, const char *text, void *to)
{
	struct cli_sizes s = {.n = 0};
	int rc = for_each_word(text, sizes_word, o, &s);

	assert(o->width == sizeof(s));
	if (!rc)
		memcpy(to, &s, sizeof(s));
	return rc;
}

static int choices_word(const struct cli_option *o, char *word, void *arg)
{
	bool *set = arg, known = false;

	for (size_t i = 0; o->words[i]; i++)
		if (!strcmp(word, o->words[i]) || !strcmp(word, "all"))
			set[i] = known = true;
	return known ? 0 : -EINVAL;
}

static int take_choices(const struct cli_option *o, const char *text, void *to)
{
	bool set[CLI_OPTIONS_MAX] = {false};

	assert(o->width <= sizeof(set));
	int rc = for_each_word(text, choices_word, o, set);
	if (!rc)
		memcpy(to, set, o->width);
	return rc;
}

static int take_choice(const struct cli_option *o, const char *text, void *to)
{
	for (size_t i = 0; o->words[i]; i++)
		if (!strcmp(text, o->words[i])) {
			memcpy(to, &o->words[i], sizeof(o->words[i]));
			return 0;
		}
	return -EINVAL;
}

/* ---- texts ---- */

/* Into the first place that is free; where there is one alone, the last text counts. */
static int take_text(const struct cli_option *o, const char *text, void *to)
{
	const char **place = to, **end = place + o->width / sizeof(*place);

	assert(o->width && o->width % sizeof(*place) == 0);
	while (end - place > 1 && *place)
		place++;
	if (*place && o->width > sizeof(*place))
		return -EINVAL;
	*place = text;
	return 0;
}

/* The syntax alone, as the listener splits it: HOST may be anything that a name service knows. */
static bool is_address(const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;

	if (!digits || digits > 5 || colon[1 + digits] || strtoul(colon + 1, NULL, 10) > UINT16_MAX)
		return false;
	return *text == '[' ? colon > text + 1 && colon[-1] == ']'
			    : !memchr(text, ':', (size_t)(colon - text));
}

int cli_value_take(const struct cli_option *o, const char *text, void *into)
{
	void *to = (char *)into + o->at;

	switch (o->kind) {
	case CLI_FLAG:
		*(bool *)to = true;
		return 0;
	case CLI_UNSET:
		memset(to, 0, o->width);
		return 0;
	case CLI_NUMBER:
		return take_number(o, text, to);
	case CLI_REAL:
		return take_real(o, text, to);
	case CLI_SIZE:
		return take_size(o, text, to);
	case CLI_SIZES:
		return take_sizes(o, text, to);
	case CLI_TEXT:
		return take_text(o, text, to);
	case CLI_FILE:
		return *text ? take_text(o, text, to) : -EINVAL;
	case CLI_ADDRESS:
		return is_address(text) ? take_text(o, text, to) : -EINVAL;
	case CLI_CHOICE:
		return take_choice(o, text, to);
	case CLI_CHOICES:
		return take_choices(o, text, to);
	}
	return -EINVAL;
}

/* ---- what was expected ---- */

/* "tag, put or get" */
static const char *words_text(const char *const *words, const char *last, char *out, size_t len)
{
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; words[i] && used < len; i++) {
		const char *before = words[i + 1] ? ", " : last;
		used += (size_t)snprintf(out + used, len - used, "%s%s", i ? before : "", words[i]);
	}
	return out;
}

/* As it can be typed: "64M". */
static const char *size_text(double bytes, char out[CLI_SIZE_LEN])
{
	static const char suffix[] = "\0KMGT";
	uint64_t n = (uint64_t)bytes;
	unsigned k = 0;

	for (; n && n % 1024 == 0 && suffix[k + 1]; k++)
		n /= 1024;
	snprintf(out, CLI_SIZE_LEN, "%" PRIu64 "%.1s", n, suffix + k);
	return out;
}

static void expect_number(const struct cli_option *o, char *out)
{
	char of[32] = "";

	if (o->unit)
		snprintf(of, sizeof(of), " of %s", o->unit);
	if (o->prefix)
		snprintf(out, CLI_EXPECTED_LEN, "%s%.15g to %s%.15g", o->prefix, o->least,
			o->prefix, o->most);
	else if (o->most > 0)
		snprintf(out, CLI_EXPECTED_LEN, "a number%s from %.15g to %.15g", of, o->least,
			o->most);
	else
		snprintf(out, CLI_EXPECTED_LEN, "a number%s from %.15g up", of, o->least);
}

static void expect_size(const struct cli_option *o, char *out)
{
	bool many = o->kind == CLI_SIZES;
	const char *what = many ? "sizes" : "a size";
	const char *as = many ? "as in 8,4096,1M or 8..8M" : "in bytes or with a suffix K, M or G";
	char least[CLI_SIZE_LEN], most[CLI_SIZE_LEN];

	if (o->most > 0)
		snprintf(out, CLI_EXPECTED_LEN, "%s from %s to %s, %s", what,
			size_text(o->least, least), size_text(o->most, most), as);
	else
		snprintf(out, CLI_EXPECTED_LEN, "%s from %s up, %s", what,
			size_text(o->least, least), as);
}

const char *cli_value_expected(const struct cli_option *o, char out[CLI_EXPECTED_LEN])
{
	char words[CLI_EXPECTED_LEN - 40];
	size_t most = o->width / sizeof(char *);

	snprintf(out, CLI_EXPECTED_LEN, "no value");
	switch (o->kind) {
	case CLI_FLAG:
	case CLI_UNSET:
		break;
	case CLI_NUMBER:
	case CLI_REAL:
		expect_number(o, out);
		break;
	case CLI_SIZE:
	case CLI_SIZES:
		expect_size(o, out);
		break;
	case CLI_TEXT:
	case CLI_FILE:
		snprintf(out, CLI_EXPECTED_LEN,
			o->kind == CLI_FILE ? "the name of a file" : "a text");
		if (most > 1)
			snprintf(out + strlen(out), CLI_EXPECTED_LEN - strlen(out),
				", at most %zu times", most);
		break;
	case CLI_ADDRESS:
		snprintf(out, CLI_EXPECTED_LEN,
			"HOST:PORT, [IPV6]:PORT or :PORT, with a port up to %d", UINT16_MAX);
		break;
	case CLI_CHOICE:
		snprintf(out, CLI_EXPECTED_LEN, "%s",
			words_text(o->words, " or ", words, sizeof(words)));
		break;
	case CLI_CHOICES:
		snprintf(out, CLI_EXPECTED_LEN, "a list of %s; or all",
			words_text(o->words, " and ", words, sizeof(words)));
		break;
	}
	return out;
}
