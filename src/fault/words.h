/* SPDX-License-Identifier: BSD-3-Clause */
/* words.h - the names of a script. Private to fault/. */
#ifndef ROPEWAY_FAULT_WORDS_H
#define ROPEWAY_FAULT_WORDS_H

#include "fault/fault.h"

struct words_entry {
	const char *name;
	int value;
};
/* Tables end with a NULL. */
extern const struct words_entry words_errnos[], words_statuses[], words_events[], words_opcodes[],
	words_messages[], words_reasons[], words_naks[], words_states[], words_cm_events[],
	words_calls[];
/* Upper or lower case alike; `prefix` may stand before it or not, or is NULL. False: no such
 * name. */
bool words_find(const struct words_entry *table, const char *prefix, const char *word, int *value);
/* The name of a table's that `word` is nearest to; NULL: to none. */
const char *words_near(const struct words_entry *table, const char *word);

#endif
