/* SPDX-License-Identifier: BSD-3-Clause */
/* parse.c - reads a profile: one key a line, every mistake with its line and column. The format is
 * docs/like.md's. Nothing is taken before all of it is understood; no memory but the stack's is. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/lines.h"
#include "base/number.h"
#include "like/fields.h"

struct parser {
	struct rpwi_lines in;
	struct rpwi_like *out;
	uint64_t seen; /* bits by key: of lines of this text */
	bool based;    /* it goes on from a profile that is built in */
};

/* ---- words and mistakes ---- */

#define fail(p, ...) rpwi_lines_fail(&(p)->in, __VA_ARGS__)
static void expected(struct parser *p, const char *what) { rpwi_lines_expected(&p->in, what); }
static void next(struct parser *p) { rpwi_lines_next_word(&p->in); }

/* ---- values ---- */

static bool number(const char *word, uint64_t *v)
{
	char *end;
	if (word[0] == '0' && (word[1] == 'x' || word[1] == 'X')) {
		errno = 0;
		*v = strtoull(word + 2, &end, 16);
		return isxdigit((unsigned char)word[2]) && !*end && !errno;
	}
	const char *e = rpwi_number(word, v);
	return e && !*e;
}

static const struct like_word *find(const struct like_field *f, const char *word)
{
	size_t skip = f->prefix && !strncasecmp(word, f->prefix, strlen(f->prefix))
			      ? strlen(f->prefix)
			      : 0;
	for (const struct like_word *w = f->words; w->name; w++)
		if (!strcasecmp(w->name, word + skip) || !strcasecmp(w->name, word))
			return w;
	return NULL;
}

static void expected_word(struct parser *p, const struct like_field *f)
{
	const char *near = NULL;
	size_t most = 2; /* that much is alike by chance */
	for (const struct like_word *w = f->words; w->name && *p->in.word; w++)
		if (rpwi_alike(p->in.word, w->name) > most) {
			most = rpwi_alike(p->in.word, w->name);
			near = w->name;
		}
	if (near)
		fail(p, "expected a word of %s, not '%s': did you mean %s?", f->name, p->in.word,
			near);
	else if (f->kind == LIKE_SET)
		expected(p, "words, as in docs/like.md, a number, or NONE");
	else
		expected(p, "NONE, HCA or GLOB");
}

static uint64_t set(struct parser *p, const struct like_field *f)
{
	uint64_t bits = 0, more = 0;
	if (!strcasecmp(p->in.word, "NONE")) {
		next(p);
		return 0;
	}
	do {
		const struct like_word *w = find(f, p->in.word);
		if (w)
			bits |= w->value;
		else if (number(p->in.word, &more))
			bits |= more;
		else
			expected_word(p, f);
		next(p);
	} while (*p->in.word && !p->in.failed);
	return bits;
}

static uint64_t one_number(struct parser *p, const struct like_field *f)
{
	uint64_t v = 0;
	bool good = number(p->in.word, &v);
	if (!good)
		expected(p, "a number, as in 16, 0x10, 10^6 or 64K");
	else if (f->kind == LIKE_MTU && (v & (v - 1) || v < 256 || v > 4096))
		expected(p, "256, 512, 1024, 2048 or 4096");
	else if (f->kind == LIKE_PLACE && (v < f->least || v > f->most))
		fail(p, "expected a number from %llu to %llu, not '%s'",
			(unsigned long long)f->least, (unsigned long long)f->most, p->in.word);
	next(p);
	return v;
}

static uint64_t rank(struct parser *p, const struct like_field *f)
{
	const struct like_word *w = find(f, p->in.word);
	if (!w)
		expected_word(p, f);
	next(p);
	return w ? w->value : 0;
}

static uint64_t narrower(const struct like_field *f, uint64_t a, uint64_t b)
{
	if (f->kind == LIKE_SET)
		return a & b;
	return f->kind == LIKE_PLACE ? b : RPWI_MIN(a, b);
}

static void value(struct parser *p, enum rpwi_like_key key)
{
	const struct like_field *f = &like_fields[key];
	uint64_t v;
	if (f->kind == LIKE_SET)
		v = set(p, f);
	else if (f->kind == LIKE_RANK)
		v = rank(p, f);
	else
		v = one_number(p, f);
	if (*p->in.word)
		expected(p, "the end of the line");
	p->seen |= 1ull << key;
	p->out->given |= 1ull << key;
	p->out->said[key] = v;
	p->out->has[key] = narrower(f, rpwi_like_whole.has[key], v);
}

/* ---- lines ---- */

static void expected_key(struct parser *p)
{
	const char *near = NULL;
	size_t most = 4;
	for (unsigned k = 0; k < RPWI_LIKE_KEYS; k++)
		if (rpwi_alike(p->in.word, like_fields[k].name) > most) {
			most = rpwi_alike(p->in.word, like_fields[k].name);
			near = like_fields[k].name;
		}
	if (near)
		fail(p, "expected a key, not '%s': did you mean %s?", p->in.word, near);
	else
		expected(p, "a key, as in max_qp (docs/like.md lists them)");
}

static int find_key(const char *word)
{
	for (int k = 0; k < RPWI_LIKE_KEYS; k++)
		if (!strcmp(like_fields[k].name, word))
			return k;
	return -1;
}

/* about = TEXT: to the end of the line, as it is. */
static void about(struct parser *p)
{
	size_t n = 0;
	while (p->in.at < p->in.end && (*p->in.at == ' ' || *p->in.at == '\t'))
		p->in.at++;
	for (; !rpwi_lines_ends(&p->in) && isprint((unsigned char)*p->in.at); p->in.at++)
		if (n + 1 < sizeof(p->out->about))
			p->out->about[n++] = *p->in.at;
	while (n && p->out->about[n - 1] == ' ')
		n--;
	p->out->about[n] = '\0';
	next(p);
	if (!n)
		expected(p, "what the profile is of, in a few words");
}

static void base(struct parser *p)
{
	p->based = true;
	next(p);
	const char *text = like_text(p->in.word);
	if (!text) {
		expected(p, "the name of a profile (`ropeway devices --help` lists them)");
		return;
	}
	/* those that are built in have no such line, and no mistake */
	char why[RPWI_WHY_LEN];
	if (rpwi_like_parse(text, strlen(text), p->out, why, sizeof(why)))
		fail(p, "%s: %s", p->in.word, why);
	next(p);
	if (*p->in.word)
		expected(p, "the end of the line");
}

static void one_line(struct parser *p)
{
	next(p);
	if (p->in.failed || !*p->in.word)
		return;
	bool is_about = !strcmp(p->in.word, "about"), is_base = !strcmp(p->in.word, "like");
	int key = find_key(p->in.word);
	if (key < 0 && !is_about && !is_base)
		expected_key(p);
	else if (key >= 0 && p->seen >> key & 1)
		fail(p, "'%s' has a value already", p->in.word);
	else if (is_base && (p->seen || p->based))
		fail(p, "'like' stands before all other keys, and once");
	if (p->in.failed)
		return;
	next(p);
	if (strcmp(p->in.word, "=")) {
		expected(p, "'='");
	} else if (is_about) {
		about(p);
	} else if (is_base) {
		base(p);
	} else {
		next(p);
		if (*p->in.word)
			value(p, (enum rpwi_like_key)key);
		else
			expected(p, "a value");
	}
}

int rpwi_like_parse(const char *text, size_t len, struct rpwi_like *out, char *why, size_t why_len)
{
	struct rpwi_like made = rpwi_like_whole;
	struct parser p = {.in = rpwi_lines_begin(text, len, '=', why, why_len), .out = &made};
	if (len > RPWI_LIKE_FILE_MAX)
		fail(&p, "a profile of more than %d bytes", RPWI_LIKE_FILE_MAX);
	for (; rpwi_lines_go_on(&p.in); rpwi_lines_next_line(&p.in))
		one_line(&p);
	if (!p.in.failed && !p.seen && !p.based) {
		p.in.word_at = p.in.line_at;
		fail(&p, "expected lines of KEY = VALUE, and there is none");
	}
	if (p.in.failed)
		return -EINVAL;
	*out = made;
	return 0;
}
