/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c - the plugin behind the tracer: loaded before NCCL looks for tables here, and the versions
 * that it lacks are taken out of this library's own symbols, so NCCL does not find them either. */
#include "base/base.h"
#include "check/check.h"
#include "ncclnet/trace/trace.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the symbols ---- */

/* What the loader's search takes for a symbol that is not defined (ELF gABI, chapter 4). The
 * page is the file's, mapped for this process alone. */
static bool hide(ElfW(Sym) * sym)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)sym & ~(page - 1),
		  to = ((uintptr_t)(sym + 1) + page - 1) & ~(page - 1);
	if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE))
		return false;
	sym->st_shndx = SHN_UNDEF;
	sym->st_value = 0;
	return !mprotect((void *)from, to - from, PROT_READ);
}

static bool hide_table(const char *name)
{
	Dl_info info;
	ElfW(Sym) *sym = NULL;
	/* any address of this library leads to its handle */
	if (!dladdr((const void *)(uintptr_t)hide_table, &info))
		return false;
	void *self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	void *table = self ? dlsym(self, name) : NULL;
	bool found = table && dladdr1(table, &info, (void **)&sym, RTLD_DL_SYMENT) && sym;
	if (self)
		dlclose(self);
	return found && hide(sym);
}

/* ---- the tables ---- */

/* clang-format off: a line for each */
#define FOR_EACH_TABLE(X) \
	X(Net, v5, 5) \
	X(Net, v6, 6) \
	X(Net, v7, 7) \
	X(Net, v8, 8) \
	X(Net, v9, 9) \
	X(Net, v10, 10) \
	X(Net, v11, 11) \
	X(Net, v12, 12) \
	X(Gin, gin_v11, TRACE_GIN + 11) \
	X(Gin, gin_v12, TRACE_GIN + 12) \
	X(Gin, gin_v13, TRACE_GIN + 13) \
	X(Rma, rma_v13, TRACE_RMA + 13) \
	X(Rma, rma_v14, TRACE_RMA + 14) \
	X(Rma, rma_v15, TRACE_RMA + 15) \
	X(Rma, rma_v16, TRACE_RMA + 16)
/* clang-format on */
#define DECLARE(kind, which, table) void trace_prepare_##which(void);
FOR_EACH_TABLE(DECLARE)
#define ROW(kind, which, table) {#kind, table, trace_prepare_##which},
static const struct {
	const char *kind;
	int table;
	void (*prepare)(void);
} tables[] = {FOR_EACH_TABLE(ROW)};

static const char *symbol(unsigned i, char out[32])
{
	snprintf(out, 32, "nccl%sPlugin_v%d", tables[i].kind, tables[i].table % TRACE_RMA);
	return out;
}

static int load(const char *path)
{
	unsigned found = 0;
	char name[32];
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		rpwi_error("plugin trace: cannot load ROPEWAY_TRACE_PLUGIN: %s", dlerror());
		return -ENOENT;
	}
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(tables); i++) {
		const void *table = dlsym(library, symbol(i, name));
		trace_tables[tables[i].table] = table;
		found += table != NULL;
		if (table)
			tables[i].prepare();
	}
	if (!found)
		rpwi_error("plugin trace: %s is no plugin of NCCL: it exports no "
			   "ncclNetPlugin_v<N> of v5 to v12, no ncclRmaPlugin_v<N> of v13 to v16 "
			   "and no ncclGinPlugin_v<N> of v11 to v13",
			path);
	return found ? 0 : -ENOTSUP;
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("ROPEWAY_TRACE_PLUGIN"), *lines = getenv("ROPEWAY_TRACE");
	char name[32];
	trace_lines = lines && strcmp(lines, "0") != 0;
	rpwi_check_init();
	if (!path)
		rpwi_error("plugin trace: ROPEWAY_TRACE_PLUGIN is not set: it names the plugin "
			   "that is traced; ropeway plugin trace prints what to set");
	else
		load(path);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(tables); i++)
		if (!trace_tables[tables[i].table] && !hide_table(symbol(i, name)))
			rpwi_error("plugin trace: cannot hide %s, which the plugin does not have: "
				   "do not use it",
				name);
}
