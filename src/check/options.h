/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - ROPEWAY_CHECK, which `ropeway run --check[=SPEC]` sets: which rules are on, and what
 * becomes of a finding. Words between colons, as the sanitizers of compilers have them:
 *
 *   LIST          the same as rules=LIST
 *   rules=LIST    names or numbers between commas, from left to right, which change the
 *                 defaults: NAME turns a rule on, -NAME off; so do groups: all, none, default,
 *                 posts (1xx), order (2xx), race (4xx), plugin (5xx),
 *                 rpw (6xx)
 *   halt=0|1      1: the program ends at the first error (default 0)
 *   exitcode=N    of a run with findings (default 86)
 *   log=FILE      lines of JSON; a %p becomes the process ID. Default: text to standard error
 *   suppress=FILE findings that are not to be reported (docs/check.md)
 *   color=auto|always|never, columns=N     of the text
 *
 * A value may stand between single or double quotes: then it may have a colon. Of two settings of a
 * key the last one wins. "" and "1": the defaults; "0": no rule is on. No memory, no lock.
 */
#ifndef ROPEWAY_CHECK_OPTIONS_H
#define ROPEWAY_CHECK_OPTIONS_H

#include "check/rules.h"

enum { RPWI_CHECK_PATH = 1024, RPWI_CHECK_EXITCODE = 86 };

enum rpwi_check_color { RPWI_CHECK_COLOR_AUTO, RPWI_CHECK_COLOR_ALWAYS, RPWI_CHECK_COLOR_NEVER };

struct rpwi_check_options {
	bool on[RPWI_RULES];
	bool any; /* is one of them on? */
	bool halt;
	int exitcode;
	enum rpwi_check_color color;
	unsigned columns; /* 0: not given */
	/* As given, or ""; %p is not replaced. */
	char log[RPWI_CHECK_PATH], suppress[RPWI_CHECK_PATH];
};

/* 0; or -EINVAL, `why` is a sentence, and `o` has the defaults. */
int rpwi_check_options_read(
	const char *spec, struct rpwi_check_options *o, char *why, size_t why_len);

#endif
