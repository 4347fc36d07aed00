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

static bool hide_version(int v)
{
	char name[32];
	Dl_info info;
	ElfW(Sym) *sym = NULL;
	snprintf(name, sizeof(name), "ncclNetPlugin_v%d", v);
	/* any address of this library leads to its handle */
	if (!dladdr((const void *)(uintptr_t)hide_version, &info))
		return false;
	void *self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	void *table = self ? dlsym(self, name) : NULL;
	bool found = table && dladdr1(table, &info, (void **)&sym, RTLD_DL_SYMENT) && sym;
	if (self)
		dlclose(self);
	return found && hide(sym);
}

#define FOR_EACH_VERSION(X) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define DECLARE(v) void trace_prepare_v##v(void);
FOR_EACH_VERSION(DECLARE)

static void prepare(int v)
{
#define CASE(v) \
	case v: \
		trace_prepare_v##v(); \
		break;
	switch (v) {
		FOR_EACH_VERSION(CASE)
	}
}

static int load(const char *path)
{
	unsigned found = 0;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		rpwi_error("plugin trace: cannot load ROPEWAY_TRACE_PLUGIN: %s", dlerror());
		return -ENOENT;
	}
	for (int v = TRACE_V_FIRST; v <= NCCL_NET_V_LAST; v++) {
		char name[32];
		snprintf(name, sizeof(name), "ncclNetPlugin_v%d", v);
		trace_tables[v] = dlsym(library, name);
		found += trace_tables[v] != NULL;
		if (trace_tables[v])
			prepare(v);
	}
	if (!found)
		rpwi_error("plugin trace: %s is no network plugin of v5 to v12: it exports no "
			   "ncclNetPlugin_v<N>",
			path);
	return found ? 0 : -ENOTSUP;
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("ROPEWAY_TRACE_PLUGIN"), *lines = getenv("ROPEWAY_TRACE");
	trace_lines = lines && strcmp(lines, "0") != 0;
	rpwi_check_init();
	if (!path)
		rpwi_error("plugin trace: ROPEWAY_TRACE_PLUGIN is not set: it names the plugin "
			   "that is traced; ropeway plugin trace prints what to set");
	else
		load(path);
	for (int v = TRACE_V_FIRST; v <= NCCL_NET_V_LAST; v++)
		if (!trace_tables[v] && !hide_version(v))
			rpwi_error("plugin trace: cannot hide ncclNetPlugin_v%d, which the plugin "
				   "does not have: do not use it",
				v);
}
