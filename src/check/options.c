/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - see options.h. Nothing of a spec is taken before all of it is understood. */
#include "check/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"

enum { WORD_MAX = 64, EXITCODE_MAX = 255, COLUMNS_LEAST = 20, COLUMNS_MOST = 1000 };

/* A piece of the spec. */
struct text {
	const char *at;
	size_t len;
};

struct parser {
	const char *at; /* of the spec */
	struct rpwi_check_options *o;
	char *why;
	size_t why_len;
};

static bool is(const struct text *t, const char *word)
{
	return t->len == strlen(word) && !memcmp(t->at, word, t->len);
}

__attribute__((format(printf, 2, 3))) static int fail(const struct parser *p, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(p->why, p->why_len, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* "unknown WHAT 'x': did you mean 'y'?" */
static int unknown(
	const struct parser *p, const char *what, const struct text *t, const char *const *names)
{
	char word[WORD_MAX];
	snprintf(word, sizeof(word), "%.*s", (int)RPWI_MIN(t->len, sizeof(word) - 1), t->at);
	const char *near = rpwi_word_near(word, names);
	if (near)
		return fail(p, "unknown %s '%s': did you mean '%s'?", what, word, near);
	return fail(p, "unknown %s '%s'", what, word);
}

/* ---- rules ---- */

enum group_kind { ALL, NONE, DEFAULT, HUNDRED };
static const struct {
	const char *name;
	enum group_kind kind;
	unsigned hundred;
} group[] = {
	{"all", ALL, 0},
	{"none", NONE, 0},
	{"default", DEFAULT, 0},
	{"posts", HUNDRED, 1},
	{"order", HUNDRED, 2},
	{"race", HUNDRED, 4},
	{"plugin", HUNDRED, 5},
	{"rpw", HUNDRED, 6},
};

static void turn_group(struct rpwi_check_options *o, size_t g, bool on)
{
	for (unsigned r = 0; r < RPWI_RULES; r++) {
		if (group[g].kind == ALL)
			o->on[r] = on;
		else if (group[g].kind == NONE)
			o->on[r] = false;
		else if (group[g].kind == DEFAULT)
			o->on[r] = on != rpwi_rules[r].off;
		else if (rpwi_rules[r].number / 100 == group[g].hundred)
			o->on[r] = on;
	}
}

static int unknown_rule(const struct parser *p, const struct text *t)
{
	const char *names[RPWI_RULES + RPWI_ARRAY_LEN(group) + 1];
	size_t n = 0;
	for (; n < RPWI_RULES; n++)
		names[n] = rpwi_rules[n].name;
	for (size_t g = 0; g < RPWI_ARRAY_LEN(group); g++)
		names[n++] = group[g].name;
	names[n] = NULL;
	return unknown(p, "rule", t, names);
}

static int take_rule(const struct parser *p, struct text t)
{
	bool on = !t.len || t.at[0] != '-';
	t.at += !on;
	t.len -= !on;
	for (size_t g = 0; g < RPWI_ARRAY_LEN(group); g++) {
		if (!is(&t, group[g].name))
			continue;
		if (!on && group[g].kind != HUNDRED)
			return fail(p, "'-%s' turns nothing off: 'none' turns all rules off",
				group[g].name);
		turn_group(p->o, g, on);
		return 0;
	}
	enum rpwi_check_rule r = rpwi_rule_named(t.at, t.len);
	if (r == RPWI_RULES)
		return unknown_rule(p, &t);
	p->o->on[r] = on;
	return 0;
}

static int take_rules(const struct parser *p, const struct text *value)
{
	const char *end = value->at + value->len;
	for (const char *at = value->at; at < end;) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		struct text t = {at, (size_t)((comma ? comma : end) - at)};
		int rc = t.len ? take_rule(p, t) : 0;
		if (rc)
			return rc;
		at += t.len + 1;
	}
	return 0;
}

/* ---- the other keys ---- */

static int number(const struct parser *p, const char *key, const struct text *value, unsigned least,
	unsigned most, uint64_t *n)
{
	const char *end = rpwi_digits(value->at, n);
	if (!value->len || end != value->at + value->len || *n < least || *n > most)
		return fail(p, "%s: expected a number from %u to %u, not '%.*s'", key, least, most,
			(int)RPWI_MIN(value->len, (size_t)WORD_MAX), value->at);
	return 0;
}

static int take_halt(const struct parser *p, const struct text *value)
{
	uint64_t n = 0;
	int rc = number(p, "halt", value, 0, 1, &n);
	p->o->halt = n;
	return rc;
}

static int take_exitcode(const struct parser *p, const struct text *value)
{
	uint64_t n = 0;
	int rc = number(p, "exitcode", value, 0, EXITCODE_MAX, &n);
	p->o->exitcode = (int)n;
	return rc;
}

static int take_columns(const struct parser *p, const struct text *value)
{
	uint64_t n = 0;
	int rc = number(p, "columns", value, COLUMNS_LEAST, COLUMNS_MOST, &n);
	p->o->columns = (unsigned)n;
	return rc;
}

static int take_color(const struct parser *p, const struct text *value)
{
	static const char *const name[] = {"auto", "always", "never", NULL};
	for (unsigned i = 0; name[i]; i++)
		if (is(value, name[i])) {
			p->o->color = (enum rpwi_check_color)i;
			return 0;
		}
	return unknown(p, "color", value, name);
}

static int take_file(const struct parser *p, const char *key, const struct text *value, char *to)
{
	if (!value->len || value->len >= RPWI_CHECK_PATH)
		return fail(p, "%s: expected the name of a file, of at most %d bytes", key,
			RPWI_CHECK_PATH - 1);
	memcpy(to, value->at, value->len);
	to[value->len] = '\0';
	return 0;
}

static int take_log(const struct parser *p, const struct text *value)
{
	return take_file(p, "log", value, p->o->log);
}

static int take_suppress(const struct parser *p, const struct text *value)
{
	return take_file(p, "suppress", value, p->o->suppress);
}

static const struct {
	const char *name;
	int (*take)(const struct parser *p, const struct text *value);
} keys[] = {
	{"rules", take_rules},
	{"halt", take_halt},
	{"exitcode", take_exitcode},
	{"log", take_log},
	{"suppress", take_suppress},
	{"color", take_color},
	{"columns", take_columns},
};

/* ---- the whole ---- */

static int take(const struct parser *p, const struct text *key, const struct text *value)
{
	const char *names[RPWI_ARRAY_LEN(keys) + 1];
	for (size_t k = 0; k < RPWI_ARRAY_LEN(keys); k++) {
		if (is(key, keys[k].name))
			return keys[k].take(p, value);
		names[k] = keys[k].name;
	}
	names[RPWI_ARRAY_LEN(keys)] = NULL;
	return unknown(p, "setting", key, names);
}

static int take_list(const struct parser *p, const struct text *value)
{
	for (size_t k = 0; k < RPWI_ARRAY_LEN(keys); k++)
		if (is(value, keys[k].name))
			return fail(
				p, "%s needs a value, as in %s=...", keys[k].name, keys[k].name);
	return take_rules(p, value);
}

/* KEY=VALUE or LIST, up to a colon, which is passed. */
static int take_word(struct parser *p)
{
	struct text key = {p->at, strcspn(p->at, "=:")};
	bool list = key.at[key.len] != '=';
	struct text value = {key.at + (list ? 0 : key.len + 1), 0};
	char quote = value.at[0];
	if (!list && (quote == '\'' || quote == '"')) {
		value.at++;
		const char *end = strchr(value.at, quote);
		if (!end || (end[1] && end[1] != ':'))
			return fail(p, "%.*s: expected another %c, and then a colon or nothing",
				(int)RPWI_MIN(key.len, (size_t)WORD_MAX), key.at, quote);
		value.len = (size_t)(end - value.at);
		p->at = end + 1;
	} else {
		value.len = strcspn(value.at, ":");
		p->at = value.at + value.len;
	}
	p->at += *p->at == ':';
	return list ? take_list(p, &value) : take(p, &key, &value);
}

static void set_defaults(struct rpwi_check_options *o)
{
	*o = (struct rpwi_check_options){.exitcode = RPWI_CHECK_EXITCODE};
	for (unsigned r = 0; r < RPWI_RULES; r++)
		o->on[r] = !rpwi_rules[r].off;
}

int rpwi_check_options_read(
	const char *spec, struct rpwi_check_options *o, char *why, size_t why_len)
{
	struct parser p = {.at = spec, .o = o, .why = why, .why_len = why_len};
	int rc = 0;
	set_defaults(o);
	if (!strcmp(spec, "0"))
		memset(o->on, 0, sizeof(o->on));
	else if (strcmp(spec, "1") != 0)
		while (*p.at && !rc)
			rc = take_word(&p);
	if (rc)
		set_defaults(o);
	o->any = memchr(o->on, true, sizeof(o->on));
	return rc;
}
