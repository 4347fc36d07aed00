/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - the memory that a program and the formatter of its explain log share (near/memory.h), and
 * the words of the socket between them. trace.h tells who does what when.
 *
 * The program writes all of it but words_told, under its lock; the formatter reads it while the
 * program waits for an answer, or when the program has ended. It trusts no number and no end of a
 * text there: a program that goes astray may write anything. */
#ifndef ROPEWAY_EXPLAIN_LOG_H
#define ROPEWAY_EXPLAIN_LOG_H

#include "explain/trace.h"

enum {
	RPWI_EXPLAIN_TEXT = 320,
	RPWI_EXPLAIN_SHAPES = 256,
	RPWI_EXPLAIN_QPS = 64, /* in the summary by themselves; more are added up */
	RPWI_EXPLAIN_LAYOUT = 1,
};

/* One byte from the program, and one back when its lines are written. The first comes with the
 * descriptor of the memory. */
enum rpwi_explain_word {
	RPWI_EXPLAIN_BEGIN = 'b',
	RPWI_EXPLAIN_SHOW = 's',
	RPWI_EXPLAIN_END = 'e'
};

/* A shape is a text without its numbers. */
struct rpwi_explain_shape {
	uint64_t hash; /* 0: free */
	uint32_t kind, shown;
	uint64_t folded, folded_at; /* folded_at: the event that was the first of them */
	char first[RPWI_EXPLAIN_TEXT], last[RPWI_EXPLAIN_TEXT]; /* of the folded ones */
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
	/* the event to be shown: its number, what it is, and polls in vain since the one before */
	uint64_t events, us, vain;
	uint32_t kind;
	char text[RPWI_EXPLAIN_TEXT];
	uint64_t all_vain;
	struct rpwi_explain_shape shape[RPWI_EXPLAIN_SHAPES];
	uint32_t nshapes, nfolded, nqp, qp_at; /* qp_at: the one that was asked for last */
	struct rpwi_explain_facts qp[RPWI_EXPLAIN_QPS + 1]; /* the last one: all other QPs */
};

/* Digits, or 0x and hex digits, that s begins with. */
static inline size_t rpwi_explain_number(const char *s)
{
	if (s[0] == '0' && s[1] == 'x')
		return 2 + strspn(s + 2, "0123456789abcdefABCDEF");
	return strspn(s, "0123456789");
}

#endif
