/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_table.c - finding the two libraries: libibverbs.so.1 where it shows devices, else
 * libropeway-verbs.so.0 beside libropeway.so, in `lib` beside the module of a wheel, or where the
 * loader finds it (ROPEWAY_VERBS_LIB names another). So a plain program has the software device
 * without a preload. A library that was opened stays open: its devices have threads and handlers of
 * their own. */
#include "base/choice.h"
#include "tran/tran.h"
#include "tran/verbs/verbs_table.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

enum need { NEEDED, OPTIONAL };

static const struct {
	const char *name;
	enum need need;
	size_t slot;
} calls[] = {
#define X(n, need) {#n, need, offsetof(struct verbs_table, n)},
	VERBS_CALLS(X)
#undef X
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_table tables[VERBS_SOURCES];
static bool loaded[VERBS_SOURCES];

/* The structs of verbs.h are those of IBVERBS_1.1; 1.0 has calls of the same name for older ones.
 * The software device's calls carry no version. */
static void *symbol(void *library, const char *name)
{
	void *p = dlvsym(library, name, "IBVERBS_1.1");
	return p ? p : dlsym(library, name);
}

static bool fill(
	struct verbs_table *v, void *library, const char *source, char *why, size_t why_len)
{
	struct verbs_table t = {.source = source, .library = library};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(calls); i++) {
		void *p = symbol(library, calls[i].name);
		/* The drop-in may stand in for that library: any call that is no verb is the
		 * drop-in's. */
		if (!p && !strncmp(calls[i].name, "ropeway_", 8))
			p = dlsym(RTLD_DEFAULT, calls[i].name);
		if (!p && calls[i].need == NEEDED) {
			snprintf(why, why_len,
				"%s has no %s: it is older than what is needed (rdma-core 15)",
				source, calls[i].name);
			return false;
		}
		memcpy((char *)&t + calls[i].slot, &p, sizeof(p));
	}
	*v = t;
	return true;
}

static const char *env_library(void)
{
	const char *v = secure_getenv("ROPEWAY_VERBS_LIB");
	return v && *v ? v : NULL;
}

/* Beside the object that this code is in: libropeway.so, or a program. Of a program the linker
 * knows what its starter called it (argv[0]): not where it has rights that its starter lacks. */
static void *open_beside(const char *name)
{
	char path[PATH_MAX];
	Dl_info info;
	if (getauxval(AT_SECURE) || !dladdr((void *)rpwi_verbs_table, &info) || !info.dli_fname)
		return NULL;
	const char *slash = strrchr(info.dli_fname, '/');
	int dir = slash ? (int)(slash - info.dli_fname) : 0;
	if (!slash || snprintf(path, sizeof(path), "%.*s/%s", dir, info.dli_fname, name) >=
			      (int)sizeof(path))
		return NULL;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_software(char *why, size_t why_len)
{
	static const char *const names[] = {
		"libropeway-verbs.so.0", "libropeway-verbs.so", "lib/libropeway-verbs.so.0"};
	void *library = NULL;
	if (env_library()) {
		library = dlopen(env_library(), RTLD_NOW | RTLD_LOCAL);
		if (!library)
			snprintf(
				why, why_len, "$ROPEWAY_VERBS_LIB cannot be loaded: %s", dlerror());
		return library;
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(names) && !library; i++)
		library = open_beside(names[i]);
	if (!library)
		library = dlopen(names[0], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		snprintf(why, why_len,
			"there is no RDMA device (libibverbs shows none), and the software device "
			"cannot be loaded (%s): install libropeway-verbs.so.0, or set "
			"ROPEWAY_VERBS_LIB",
			dlerror());
	return library;
}

static bool load(enum verbs_source source, char *why, size_t why_len)
{
	if (source == VERBS_SOFTWARE) {
		void *library = open_software(why, why_len);
		return library &&
		       fill(&tables[source], library, "libropeway-verbs.so", why, why_len);
	}
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(why, why_len, "there is no libibverbs.so.1 here");
		return false;
	}
	return fill(&tables[source], library, "libibverbs.so.1", why, why_len);
}

const struct verbs_table *rpwi_verbs_table(enum verbs_source source, char *why, size_t why_len)
{
	if (source == VERBS_REAL && env_library()) {
		snprintf(why, why_len, "ROPEWAY_VERBS_LIB asks for the software device");
		return NULL;
	}
	pthread_mutex_lock(&lock);
	if (!loaded[source])
		loaded[source] = load(source, why, why_len);
	bool have = loaded[source];
	pthread_mutex_unlock(&lock);
	return have ? &tables[source] : NULL;
}

bool rpwi_verbs_listed(const char *names, const char *device)
{
	return (!*names || tran_lists(names, device)) && !rpwi_choice_hides(device);
}

int rpwi_verbs_devices(const struct verbs_table *v, const char *names, int *software)
{
	int n = 0, listed = 0;
	struct ibv_device **list = v->ibv_get_device_list(&n);
	*software = 0;
	if (!list)
		return 0;
	for (int i = 0; i < n; i++) {
		const char *name = v->ibv_get_device_name(list[i]);
		bool wanted = rpwi_verbs_listed(names, name);
		listed += wanted;
		*software += wanted && rpwi_choice_is_ours(name);
	}
	v->ibv_free_device_list(list);
	return listed;
}
