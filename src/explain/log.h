/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - the memory that a program and the formatter of its explain log share (near/memory.h), and
 * the words of the socket between them. trace.h tells who does what when.
 *
 * The program puts lines, and the formatter writes them. The rest but words_told is the program's,
 * under its lock; the formatter reads it at the end. It trusts no number and no end of a text: a
 * program that goes astray may write anything. */
#ifndef ROPEWAY_EXPLAIN_LOG_H
#define ROPEWAY_EXPLAIN_LOG_H

#include "explain/trace.h"

#include <stdatomic.h>

enum {
	RPWI_EXPLAIN_TEXT = 320,
	RPWI_EXPLAIN_SHAPES = 256,
	RPWI_EXPLAIN_QPS = 64, /* in the summary by themselves; more are added up */
	RPWI_EXPLAIN_LINES = 64,
	RPWI_EXPLAIN_LAYOUT = 1,
};

/* One byte from the program; all but RPWI_EXPLAIN_SHOW are answered by one byte when everything is
 * written. The first comes with the descriptor of the memory. */
enum rpwi_explain_word {
	RPWI_EXPLAIN_BEGIN = 'b',
	RPWI_EXPLAIN_SHOW = 's',
	RPWI_EXPLAIN_WAIT = 'w',
	RPWI_EXPLAIN_END = 'e',
};

/* An event; or, if `folded` is not 0, so many of one shape (a text without its numbers). */
struct rpwi_explain_line {
	uint32_t kind;
	uint64_t folded, us, vain; /* vain: polls in vain since the event before */
	char first[RPWI_EXPLAIN_TEXT], last[RPWI_EXPLAIN_TEXT]; /* last: of the folded ones */
};

struct rpwi_explain_shape {
	uint64_t hash; /* 0: free */
	uint32_t shown;
	uint64_t folded_at; /* the event that was the first of the folded ones */
	struct rpwi_explain_line line;
};

struct rpwi_explain_facts {
	uint32_t qpn, failed; /* failed: first enum ibv_wc_status */
	uint64_t n[RPWI_FACT_COUNT];
};

struct rpwi_explain_log {
	uint32_t layout;
	int32_t pid;
	uint32_t is_child;
	char program[64];
	struct timespec began;
	uint64_t words_told; /* bits of the formatter's; a forked child goes on with its parent's */
	/* of the lines put so far, line n at n % RPWI_EXPLAIN_LINES, so many are written */
	_Atomic uint32_t put, written;
	struct rpwi_explain_line line[RPWI_EXPLAIN_LINES];
	uint64_t events, vain;
	uint64_t all_vain;
	struct rpwi_explain_shape shape[RPWI_EXPLAIN_SHAPES];
	uint32_t nshapes, nfolded, nqp, qp_at; /* qp_at: the one that was asked for last */
	struct rpwi_explain_facts qp[RPWI_EXPLAIN_QPS + 1]; /* the last one: all other QPs */
};

/* The shape whose folding began first. */
static inline struct rpwi_explain_shape *rpwi_explain_folded(struct rpwi_explain_log *log)
{
	struct rpwi_explain_shape *first = NULL;
	for (unsigned i = 0; i < RPWI_EXPLAIN_SHAPES; i++) {
		struct rpwi_explain_shape *s = &log->shape[i];
		if (s->line.folded && (!first || s->folded_at < first->folded_at))
			first = s;
	}
	return first;
}

/* Digits, or 0x and hex digits, that s begins with. */
static inline size_t rpwi_explain_number(const char *s)
{
	if (s[0] == '0' && s[1] == 'x')
		return 2 + strspn(s + 2, "0123456789abcdefABCDEF");
	return strspn(s, "0123456789");
}

#endif
