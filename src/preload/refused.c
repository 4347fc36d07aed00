/* SPDX-License-Identifier: BSD-3-Clause */
/* refused.c - see refused.h. Which calls the installed libraries have is read from their dynamic
 * symbols; the calls of versions that are newer than this code are a kind of their own. Runs in the
 * command alone. */
#include "preload/refused.h"

#include "device/refused.h"
#include "preload/loaded.h"
#include "preload/preload.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static void *libraries[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_libraries(void)
{
	libraries[0] = rpwi_distribution();
	libraries[1] = libraries[0] ? dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_LOCAL) : NULL;
	dlerror(); /* that there is none is not the program's business */
}

static bool is_exported(const char *name)
{
	rpwi_inside_real++;
	bool found = (libraries[0] && dlsym(libraries[0], name)) ||
		     (libraries[1] && dlsym(libraries[1], name));
	dlerror();
	rpwi_inside_real--;
	return found;
}

static void add(struct ropeway_refused *r, const char *name)
{
	size_t len = strlen(r->calls), room = sizeof(r->calls) - len;
	enum { MORE = sizeof(", ...") };
	if (strlen(name) + 2 + MORE < room)
		snprintf(r->calls + len, room, "%s%s", len ? ", " : "", name);
	else if (len < 3 || strcmp(r->calls + len - 3, "...") != 0)
		snprintf(r->calls + len, room, ", ...");
}

/* Those of a row's lists that there are. */
static void add_list(struct ropeway_refused *r, const char *list, bool exported)
{
	char name[64];
	for (const char *at = list; *at;) {
		size_t len = strcspn(at, ",");
		snprintf(name, sizeof(name), "%.*s", (int)len, at);
		if (!exported || is_exported(name))
			add(r, name);
		at += len;
		at += strspn(at, ", ");
	}
}

/* One of a version that this code does not know, and not for drivers. */
static void see(void *arg, const char *name, const char *version)
{
	static const struct {
		const char *node;
		int known;
	} nodes[] = {{"IBVERBS_1.", RPWI_IBVERBS_KNOWN}, {"RDMACM_1.", RPWI_RDMACM_KNOWN}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(nodes); i++) {
		size_t len = strlen(nodes[i].node);
		if (!strncmp(version, nodes[i].node, len) && atoi(version + len) > nodes[i].known &&
			rpwi_call_find(name) < 0)
			add(arg, name);
	}
}

static void add_newer(struct ropeway_refused *r)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(libraries); i++) {
		struct link_map *m;
		struct rpwi_loaded o;
		if (libraries[i] && !dlinfo(libraries[i], RTLD_DI_LINKMAP, &m) &&
			rpwi_loaded_read(m, &o))
			rpwi_loaded_each(&o, see, r);
	}
}

RPWI_EXPORT bool ropeway_refused(unsigned n, struct ropeway_refused *out)
{
	pthread_once(&once, open_libraries);
	for (unsigned i = 0; libraries[0] && i <= RPWI_REFUSED_KINDS; i++) {
		*out = (struct ropeway_refused){0};
		if (i < RPWI_REFUSED_KINDS) {
			const struct rpwi_refused_row *row = &rpwi_refused_rows[i];
			out->lacks = row->lacks;
			out->instead = row->instead;
			add_list(out, row->exported, true);
			add_list(out, row->inlined, false);
		} else {
			out->lacks = "calls newer than this ropeway";
			out->instead = "a newer ropeway may have them";
			add_newer(out);
		}
		if (*out->calls && !n--)
			return true;
	}
	return false;
}
