/* SPDX-License-Identifier: BSD-3-Clause */
/* loaded.c - see loaded.h. The layout is that of the ELF specification and of glibc's DT_GNU_HASH.
 */
#include "preload/loaded.h"

bool rpwi_same_text(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* The loader leaves some objects' addresses relative. */
static const void *address(const struct link_map *m, ElfW(Addr) at)
{
	return (const void *)(at < m->l_addr ? at + m->l_addr : at);
}

bool rpwi_loaded_read(const struct link_map *m, struct rpwi_loaded *o)
{
	*o = (struct rpwi_loaded){0};
	for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++) {
		const void *at = address(m, d->d_un.d_ptr);
		if (d->d_tag == DT_SYMTAB)
			o->symbols = at;
		else if (d->d_tag == DT_STRTAB)
			o->strings = at;
		else if (d->d_tag == DT_GNU_HASH)
			o->hash = at;
		else if (d->d_tag == DT_VERSYM)
			o->versions = at;
		else if (d->d_tag == DT_VERDEF)
			o->definitions = at;
		else if (d->d_tag == DT_RELA)
			o->relocations = at;
		else if (d->d_tag == DT_JMPREL)
			o->plt = at;
		else if (d->d_tag == DT_RELASZ)
			o->relocations_len = d->d_un.d_val;
		else if (d->d_tag == DT_PLTRELSZ)
			o->plt_len = d->d_un.d_val;
	}
	return o->symbols && o->strings && o->hash;
}

/* The GNU hash section: 4 words of header, a Bloom filter, buckets, then for each symbol its hash,
 * the low bit set at the end of a chain. */
void *rpwi_loaded_find(
	const struct link_map *m, const struct rpwi_loaded *o, const char *name, unsigned *version)
{
	enum { NOT_DEFAULT = 0x8000 };
	uint32_t h = 5381;
	for (const char *c = name; *c; c++)
		h = h * 33 + (uint8_t)*c;
	uint32_t nbuckets = o->hash[0], first = o->hash[1], bloom_words = o->hash[2];
	const uint32_t *buckets = o->hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = buckets + nbuckets;
	uint32_t i = nbuckets ? buckets[h % nbuckets] : 0;
	for (; i >= first && i; i++) {
		uint32_t have = chain[i - first];
		const rpwi_elf_symbol *s = &o->symbols[i];
		unsigned v = o->versions ? o->versions[i] : 0;
		if ((have | 1) == (h | 1) && s->st_shndx != SHN_UNDEF && !(v & NOT_DEFAULT) &&
			ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
			rpwi_same_text(o->strings + s->st_name, name)) {
			if (version)
				*version = v;
			return (void *)(m->l_addr + s->st_value);
		}
		if (have & 1)
			break;
	}
	return NULL;
}

static const char *version_name(const struct rpwi_loaded *o, unsigned index)
{
	const ElfW(Verdef) *d = o->definitions;
	while (d) {
		const ElfW(Verdaux) *first = (const void *)((const char *)d + d->vd_aux);
		if (d->vd_ndx == index)
			return o->strings + first->vda_name;
		d = d->vd_next ? (const void *)((const char *)d + d->vd_next) : NULL;
	}
	return "";
}

void rpwi_loaded_each(const struct rpwi_loaded *o,
	void (*see)(void *arg, const char *name, const char *version), void *arg)
{
	enum { INDEX = 0x7fff };
	uint32_t nbuckets = o->hash[0], first = o->hash[1], bloom_words = o->hash[2];
	const uint32_t *buckets = o->hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = buckets + nbuckets;
	for (uint32_t b = 0; b < nbuckets; b++) {
		uint32_t i = buckets[b];
		if (i < first)
			continue;
		do {
			const rpwi_elf_symbol *s = &o->symbols[i];
			if (s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_FUNC)
				see(arg, o->strings + s->st_name,
					o->versions ? version_name(o, o->versions[i] & INDEX) : "");
		} while (!(chain[i++ - first] & 1));
	}
}

bool rpwi_loaded_needs(const struct link_map *m, const struct rpwi_loaded *o, const char *library)
{
	for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_NEEDED && rpwi_same_text(o->strings + d->d_un.d_val, library))
			return true;
	return false;
}
