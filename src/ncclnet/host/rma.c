/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - which tables of NCCL's one-sided interface there are, and loading one. */
#include "ncclnet/host/rma.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

extern const struct ncclnet_rma_calls ncclnet_rma_calls_v13, ncclnet_rma_calls_v14,
	ncclnet_rma_calls_v15, ncclnet_rma_calls_v16, ncclnet_rma_calls_gin_v11,
	ncclnet_rma_calls_gin_v12, ncclnet_rma_calls_gin_v13;

/* In the order in which the newest NCCL looks for them. */
static const struct {
	const char *name;
	bool gin;
	int abi;
	const struct ncclnet_rma_calls *calls;
} tables[] = {
	{"RMA v16", false, 16, &ncclnet_rma_calls_v16},
	{"RMA v15", false, 15, &ncclnet_rma_calls_v15},
	{"RMA v14", false, 14, &ncclnet_rma_calls_v14},
	{"RMA v13", false, 13, &ncclnet_rma_calls_v13},
	{"GIN v13", true, 13, &ncclnet_rma_calls_gin_v13},
	{"GIN v12", true, 12, &ncclnet_rma_calls_gin_v12},
	{"GIN v11", true, 11, &ncclnet_rma_calls_gin_v11},
};

const char *ncclnet_rma_table_name(unsigned i)
{
	return i < RPWI_ARRAY_LEN(tables) ? tables[i].name : NULL;
}

/* "rma16" is "RMA v16". */
static bool is_name(const char *which, const char *name)
{
	for (; *name; name++) {
		if (tolower((unsigned char)*which) == tolower((unsigned char)*name))
			which++;
		else if (*name != ' ' && *name != 'v')
			return false;
	}
	return !*which;
}

/* As NCCL does before and after init: the name, then all that it calls without asking. */
static bool complete(const void *table, const struct ncclnet_rma_calls *calls, unsigned *slot)
{
	for (unsigned i = 0; i < calls->slots; i++) {
		const void *p;
		memcpy(&p, (const char *)table + i * sizeof(p), sizeof(p));
		*slot = i;
		if (!p && !(calls->optional_slots >> i & 1))
			return false;
	}
	return true;
}

int ncclnet_rma_load(
	const char *path, const char *which, struct ncclnet_rma *out, char *why, size_t why_len)
{
	char symbol[32];
	bool any = !which || !*which;
	unsigned slot;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *first = dlerror();
		snprintf(why, why_len, "%s", first ? first : "dlopen failed");
		return -ENOENT;
	}
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(tables); i++) {
		if (!any && !is_name(which, tables[i].name))
			continue;
		snprintf(symbol, sizeof(symbol), "nccl%sPlugin_v%d", tables[i].gin ? "Gin" : "Rma",
			tables[i].abi);
		const void *table = dlsym(library, symbol);
		if (!table)
			continue;
		if (!complete(table, tables[i].calls, &slot)) {
			snprintf(why, why_len,
				"%s of %.200s: pointer %u of %u is NULL, and NCCL calls it without "
				"asking: is the table of another version?",
				symbol, path, slot, tables[i].calls->slots);
			return -EINVAL;
		}
		*out = (struct ncclnet_rma){.library = library,
			.gin = tables[i].gin,
			.abi = tables[i].abi,
			.table = table,
			.calls = tables[i].calls};
		return 0;
	}
	snprintf(why, why_len, "%.200s exports no %s", path,
		any ? "table of RMA v13 to v16 or GIN v11 to v13" : which);
	dlclose(library);
	return -ENOTSUP;
}
