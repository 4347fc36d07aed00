/* SPDX-License-Identifier: BSD-3-Clause */
/* account_words.h - the table of concepts that the account explains; shared by account.c and account_words.c only. */
#ifndef ROPEWAY_BASE_ACCOUNT_WORDS_H
#define ROPEWAY_BASE_ACCOUNT_WORDS_H

#include "base/base.h"

struct rpwi_account_word {
	const char *word, *en, *zh;
};
extern const struct rpwi_account_word rpwi_account_words[];
extern const unsigned rpwi_account_word_count;

#endif
