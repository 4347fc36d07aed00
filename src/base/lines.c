/* SPDX-License-Identifier: BSD-3-Clause */
/* lines.c - see lines.h. */
#include "base/lines.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

struct rpwi_lines rpwi_lines_begin(
	const char *text, size_t len, char mark, char *why, size_t why_len)
{
	return (struct rpwi_lines){.at = text,
		.end = text + len,
		.line_at = text,
		.word_at = text,
		.line = 1,
		.mark = mark,
		.why = why,
		.why_len = why_len};
}

void rpwi_lines_fail(struct rpwi_lines *l, const char *fmt, ...)
{
	va_list ap;
	if (l->failed)
		return;
	l->failed = true;
	int n = snprintf(
		l->why, l->why_len, "%u:%u: ", l->line, (unsigned)(l->word_at - l->line_at) + 1);
	va_start(ap, fmt);
	if (n >= 0 && (size_t)n < l->why_len)
		vsnprintf(l->why + n, l->why_len - (size_t)n, fmt, ap);
	va_end(ap);
}

void rpwi_lines_expected(struct rpwi_lines *l, const char *what)
{
	if (*l->word)
		rpwi_lines_fail(l, "expected %s, not '%s'", what, l->word);
	else
		rpwi_lines_fail(l, "expected %s, and the line ends", what);
}

bool rpwi_lines_ends(const struct rpwi_lines *l)
{
	return l->at == l->end || *l->at == '\n' || *l->at == '#';
}

void rpwi_lines_next_line(struct rpwi_lines *l)
{
	const char *nl = memchr(l->at, '\n', (size_t)(l->end - l->at));
	l->at = l->line_at = nl ? nl + 1 : l->end;
	l->line++;
}

void rpwi_lines_next_word(struct rpwi_lines *l)
{
	size_t n = 0;
	while (l->at < l->end && (*l->at == ' ' || *l->at == '\t' || *l->at == '\r'))
		l->at++;
	l->word_at = l->at;
	l->word[0] = '\0';
	if (rpwi_lines_ends(l))
		return;
	bool is_mark = *l->at == l->mark;
	do {
		if (!isprint((unsigned char)*l->at)) {
			rpwi_lines_fail(l, "a character that is not printable ASCII (0x%02x)",
				(unsigned char)*l->at);
			return;
		}
		if (n + 1 == RPWI_LINES_WORD_MAX) {
			rpwi_lines_fail(
				l, "a word of more than %d characters", RPWI_LINES_WORD_MAX - 1);
			return;
		}
		l->word[n++] = *l->at++;
	} while (!is_mark && !rpwi_lines_ends(l) && !isspace((unsigned char)*l->at) &&
		 *l->at != l->mark);
	l->word[n] = '\0';
}
