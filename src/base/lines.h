/* SPDX-License-Identifier: BSD-3-Clause */
/* lines.h - text of lines that are words between blanks, up to a '#': fault scripts and profiles.
 * The first mistake is kept, as LINE:COLUMN: and a sentence. No memory, no lock. */
#ifndef ROPEWAY_BASE_LINES_H
#define ROPEWAY_BASE_LINES_H

#include "base/base.h"

enum { RPWI_LINES_WORD_MAX = 64 };

struct rpwi_lines {
	const char *at, *end; /* of the text */
	const char *line_at;
	unsigned line;
	char mark;                      /* a word of its own wherever it stands */
	char word[RPWI_LINES_WORD_MAX]; /* the one that `at` is behind; empty: the line has ended */
	const char *word_at;
	bool failed;
	char *why;
	size_t why_len;
};

/* At the beginning of a text; `why` gets the mistake. */
struct rpwi_lines rpwi_lines_begin(
	const char *text, size_t len, char mark, char *why, size_t why_len);
/* Is there a line, and no mistake so far? */
static inline bool rpwi_lines_go_on(const struct rpwi_lines *l)
{
	return l->at < l->end && !l->failed;
}
void rpwi_lines_next_line(struct rpwi_lines *l);
void rpwi_lines_next_word(struct rpwi_lines *l);
/* Does the line end here? */
bool rpwi_lines_ends(const struct rpwi_lines *l);
/* A mistake at the word. */
void rpwi_lines_fail(struct rpwi_lines *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The word stands in the place of the expected one. */
void rpwi_lines_expected(struct rpwi_lines *l, const char *what);

#endif
