/* SPDX-License-Identifier: BSD-3-Clause */
/* find.c - which libraries: the ropeway that answers for this process, and the distribution's
 * libibverbs.
 *
 * A process may have two of ours: the drop-in (libropeway-verbs.so) and the versioned library
 * (libibverbs.so.1), say preloaded and needed by the program. Then the one that the loader took
 * first is the device of both, and the other hands every call on to it. The order in which the
 * loader has them never changes, so both come to the same answer.
 */
#include "preload/loaded.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

/* What ours export, and no other library. */
static const char mark[] = "ropeway_path_word";

static bool is_ropeway(const struct link_map *m)
{
	struct rpwi_loaded o;
	return rpwi_loaded_read(m, &o) && rpwi_loaded_find(m, &o, mark, NULL);
}

static const struct link_map *self, *first;
static pthread_once_t look_once = PTHREAD_ONCE_INIT;

/* By an address within: patchelf, which makes wheels, moves the dynamic section. */
static void look(void)
{
	Dl_info info;
	struct link_map *here = NULL;
	if (!dladdr1(mark, &info, (void **)&here, RTLD_DL_LINKMAP) || !here)
		return;
	self = here;
	for (const struct link_map *m = _r_debug.r_map; m && !first; m = m->l_next)
		if (m == self || is_ropeway(m))
			first = m;
}

bool rpwi_handed_on(void)
{
	pthread_once(&look_once, look);
	return first && first != self;
}

void *rpwi_first_symbol(const char *name)
{
	struct rpwi_loaded o;
	return rpwi_handed_on() && rpwi_loaded_read(first, &o)
		       ? rpwi_loaded_find(first, &o, name, NULL)
		       : NULL;
}

/* ---- the distribution's library ---- */

static void *library;
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

/* A handle of it. NULL: it cannot be opened, or, *ours, is a ropeway itself. */
static void *open_other(const char *name, bool *ours)
{
	struct link_map *m = NULL;
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	*ours = handle && (dlinfo(handle, RTLD_DI_LINKMAP, &m) || is_ropeway(m));
	if (*ours) {
		dlclose(handle);
		handle = NULL;
	}
	return handle;
}

/* By path, in the folders in which the loader looks: those of LD_LIBRARY_PATH, and its own. By path
 * it takes a second object of one name. */
static void *open_by_path(void)
{
	bool ours;
	char path[PATH_MAX];
	Dl_serinfo size, *info = NULL;
	void *handle = NULL, *main_program = dlopen(NULL, RTLD_LAZY);
	if (!main_program)
		return NULL;
	if (!dlinfo(main_program, RTLD_DI_SERINFOSIZE, &size) && (info = malloc(size.dls_size))) {
		*info = size;
		if (dlinfo(main_program, RTLD_DI_SERINFO, info))
			info->dls_cnt = 0;
		for (unsigned i = 0; i < info->dls_cnt && !handle; i++) {
			int n = snprintf(path, sizeof(path), "%s/libibverbs.so.1",
				info->dls_serpath[i].dls_name);
			if (n > 0 && (size_t)n < sizeof(path) && path[0] == '/')
				handle = open_other(path, &ours);
		}
	}
	free(info);
	dlclose(main_program);
	return handle;
}

static void open_library(void)
{
	bool ours;
	rpwi_handed_on();
	rpwi_inside_real++;
	library = open_other("libibverbs.so.1", &ours);
	if (ours)
		library = open_by_path();
	if (!library)
		rpwi_debug("the only libibverbs.so.1 here is ours: software devices only");
	dlerror(); /* that there is none is not the program's business */
	rpwi_inside_real--;
}

void *rpwi_distribution(void)
{
	pthread_once(&library_once, open_library);
	return library;
}
