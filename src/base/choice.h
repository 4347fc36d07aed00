/* SPDX-License-Identifier: BSD-3-Clause */
/* choice.h - ROPEWAY_DEVICES: which devices programs see, ours and real ones. The words of the
 * list, between commas or spaces:
 *
 *   NAME      this device of ours, or this interface's; those that no word names are hidden
 *   all       each of ours
 *   ^NAME     hides this device, ours or real, or this interface's
 *   software  hides each real device
 *   first     ours are listed before real ones
 *   auto      is for `ropeway run`, which puts a ^NAME in its place for each real device that does
 *             not work; it means nothing here, where nothing is tried
 *
 * ROPEWAY_FIRST=software is the older name of the word `first`. Real devices are hidden by no other
 * mechanism. Asked in signal handlers and in a vfork's child: no memory, no lock.
 */
#ifndef ROPEWAY_BASE_CHOICE_H
#define ROPEWAY_BASE_CHOICE_H

#include "base/base.h"

enum rpwi_choice_kind {
	RPWI_CHOICE_NAME,
	RPWI_CHOICE_ALL,
	RPWI_CHOICE_EXCEPT,
	RPWI_CHOICE_SOFTWARE,
	RPWI_CHOICE_FIRST,
	RPWI_CHOICE_AUTO,
};
struct rpwi_choice_word {
	enum rpwi_choice_kind kind;
	const char *name; /* of NAME and EXCEPT, not terminated */
	size_t len;
	const char *text; /* the word as it is in the list, and its length */
	size_t text_len;
};

/* Those that name no device, up to a NULL. */
extern const char *const rpwi_choice_words[];
/* The list, or NULL: there is none, or it has no word. */
const char *rpwi_choice(void);
/* The next word of a list, which is moved on. False: there is none. */
bool rpwi_choice_next(const char **list, struct rpwi_choice_word *w);
bool rpwi_choice_has(const char *list, enum rpwi_choice_kind kind);
bool rpwi_choice_is(const struct rpwi_choice_word *w, const char *name);
/* May this word be about real devices? */
bool rpwi_choice_is_real(const struct rpwi_choice_word *w);
/* Is there a word that says which of ours are seen? */
bool rpwi_choice_names(void);
/* Puts a word before those that there are, for this process and those that it starts. With memory.
 * 0 or -ENOMEM. */
int rpwi_choice_add(const char *word);

/* Is a device of that name ours? Others are real. */
static inline bool rpwi_choice_is_ours(const char *device) { return !strncmp(device, "rpw_", 4); }

/* ---- real devices ---- */

/* Is none seen? */
bool rpwi_choice_software(void);
/* Are ours listed before them? */
bool rpwi_choice_first(void);
/* May one be hidden? */
bool rpwi_choice_hides_any(void);
/* Is the one of that name? Of ours (rpw_...) only if the list says ^NAME. */
bool rpwi_choice_hides(const char *device);

#endif
