/* SPDX-License-Identifier: BSD-3-Clause */
/* words.h - the table of concepts that the account explains; shared by trace.c and words.c only. */
#ifndef ROPEWAY_EXPLAIN_WORDS_H
#define ROPEWAY_EXPLAIN_WORDS_H

#include "base/base.h"

struct rpwi_explain_word {
	const char *word, *en, *zh;
};
extern const struct rpwi_explain_word rpwi_explain_words[];
extern const unsigned rpwi_explain_word_count;

#endif
