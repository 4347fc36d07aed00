/* SPDX-License-Identifier: BSD-3-Clause */
/* loaded.h - what the loader keeps of the objects of this process: their symbols by name. Calls
 * nothing outside, so that it serves before a sanitizer's runtime has started (resolve.c).
 */
#ifndef ROPEWAY_PRELOAD_LOADED_H
#define ROPEWAY_PRELOAD_LOADED_H

#include "base/base.h"

#include <elf.h>
#include <link.h>

typedef ElfW(Sym) rpwi_elf_symbol;
/* The tables of one loaded object that a look-up needs. They are the object's. */
struct rpwi_loaded {
	const rpwi_elf_symbol *symbols;
	const char *strings;
	const uint32_t *hash; /* DT_GNU_HASH */
	const uint16_t
		*versions; /* DT_VERSYM: an index for each symbol; NULL where there are none */
	const void *definitions;       /* DT_VERDEF: the names of the versions; or NULL */
	const void *relocations, *plt; /* DT_RELA, DT_JMPREL */
	size_t relocations_len, plt_len;
};
/* False for an object without symbols. */
bool rpwi_loaded_read(const struct link_map *m, struct rpwi_loaded *o);
/* The function `name` that the object defines, in its default version, or NULL. *version, unless
 * NULL: the version's index in the object, 0 or 1 if the symbol has none. */
void *rpwi_loaded_find(
	const struct link_map *m, const struct rpwi_loaded *o, const char *name, unsigned *version);
/* Each function that the object defines, with its version's name, or "". */
void rpwi_loaded_each(const struct rpwi_loaded *o,
	void (*see)(void *arg, const char *name, const char *version), void *arg);
/* Does it name `library` among those it needs? */
bool rpwi_loaded_needs(const struct link_map *m, const struct rpwi_loaded *o, const char *library);

bool rpwi_same_text(const char *a, const char *b);

#endif
