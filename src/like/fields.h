/* SPDX-License-Identifier: BSD-3-Clause */
/* fields.h - what each key takes. Private to like/. */
#ifndef ROPEWAY_LIKE_FIELDS_H
#define ROPEWAY_LIKE_FIELDS_H

#include "like/like.h"

enum like_kind {
	LIKE_NUMBER, /* the smaller one holds */
	LIKE_MTU,    /* likewise, of 256, 512, 1024, 2048, 4096 */
	LIKE_PLACE,  /* of the GID table: the profile's holds */
	LIKE_RANK,   /* one of `words`, the lower one holds */
	LIKE_SET,    /* of `words`: what both have */
};
struct like_word {
	const char *name;
	uint64_t value;
};
struct like_field {
	const char *name;
	enum like_kind kind;
	uint64_t ours;
	uint64_t least, most;          /* of a PLACE */
	const struct like_word *words; /* up to a NULL */
	const char *prefix;            /* that words may have */
};
extern const struct like_field like_fields[RPWI_LIKE_KEYS];

/* The text of a profile that is built in, or NULL: made of profiles/ by embed.py. */
const char *like_text(const char *name);

#endif
