/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.c - dlsym and dlvsym, so that programs which load libibverbs by hand (NCCL, ctypes, Rust,
 * UCX) get our calls.
 *
 * The entry points are in trampoline.S: they ask rpwi_hook_dlsym or rpwi_hook_dlvsym for a
 * replacement, and where there is none jump to glibc's function with the caller's return address
 * still on the stack, because glibc finds out from it what RTLD_NEXT and RTLD_DEFAULT mean.
 * (Another C library than glibc: no hooks.)
 *
 * These functions run before everything: a sanitizer's runtime looks up the functions it wraps
 * while it starts. So they call nothing that could be wrapped, and this file, like signals.c and
 * files.c, is never instrumented itself (meson.build).
 */
#include "preload/loaded.h"
#include "preload/preload.h"

#include <dlfcn.h>

typedef void *dlsym_fn(void *handle, const char *name);
typedef void *dlvsym_fn(void *handle, const char *name, const char *version);

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

/* glibc's own, which trampoline.S jumps to. */
extern dlsym_fn *rpwi_next_dlsym;
extern dlvsym_fn *rpwi_next_dlvsym;
dlsym_fn *rpwi_next_dlsym;
dlvsym_fn *rpwi_next_dlvsym;

void *rpwi_hook_dlsym(void *handle, const char *name);
void *rpwi_hook_dlvsym(void *handle, const char *name, const char *version);

static bool starts_with(const char *s, const char *prefix)
{
	while (*prefix && *s == *prefix)
		s++, prefix++;
	return !*prefix;
}

static const char *base_name(const char *path)
{
	const char *base = path;
	for (; *path; path++)
		if (*path == '/')
			base = path + 1;
	return base;
}

/* glibc's dlsym cannot be asked for itself: our own definition of it would be found. It is in libc
 * since 2.34, in libdl before. */
static void *find_in_libc(const char *name)
{
	for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
		struct rpwi_loaded o;
		const char *base = base_name(m->l_name);
		if (!starts_with(base, "libc.so.") && !starts_with(base, "libdl.so."))
			continue;
		void *p = rpwi_loaded_read(m, &o) ? rpwi_loaded_find(m, &o, name, NULL) : NULL;
		if (p)
			return p;
	}
	return NULL;
}

static void find_next(void)
{
	if (__atomic_load_n(&rpwi_next_dlvsym, __ATOMIC_ACQUIRE))
		return;
	rpwi_next_dlsym = (dlsym_fn *)find_in_libc("dlsym");
	__atomic_store_n(&rpwi_next_dlvsym, (dlvsym_fn *)find_in_libc("dlvsym"), __ATOMIC_RELEASE);
	if (!rpwi_next_dlsym || !rpwi_next_dlvsym)
		__builtin_trap(); /* a glibc without dlsym: the caller could not go on either */
}

/* RTLD_NEXT is about the caller, and RTLD_DEFAULT without a version finds our definitions by
 * itself. */
void *rpwi_hook_dlsym(void *handle, const char *name)
{
	find_next();
	if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || rpwi_inside_real)
		return NULL;
	int call = rpwi_call_find(name);
	if (call < 0)
		return NULL;
	/* Whatever the handle is of: ours only where the answer would have been the real library's
	 * call. */
	void *found = rpwi_next_dlsym(handle, name);
	return found && found == rpwi_call_real(call) ? rpwi_call_ours(call) : NULL;
}

void *rpwi_hook_dlvsym(void *handle, const char *name, const char *version)
{
	find_next();
	if (handle == RTLD_NEXT || rpwi_inside_real)
		return NULL;
	int call = rpwi_call_find(name);
	if (call < 0)
		return NULL;
	/* Ours carry no version, so glibc does not find them when it is asked for one, even with
	 * RTLD_DEFAULT. Compatibility calls (IBVERBS_1.0) are not in our table. */
	void *found = rpwi_next_dlvsym(handle, name, version);
	return found && found == rpwi_call_real(call) ? rpwi_call_ours(call) : NULL;
}

/* Called from here, RTLD_NEXT is what follows the drop-in. */
void *rpwi_next(const char *name)
{
	find_next();
	return rpwi_next_dlsym(RTLD_NEXT, name);
}

#else

void *rpwi_next(const char *name) { return dlsym(RTLD_NEXT, name); }

#endif

/* The drop-in stands in front of the C library for every object: nothing to do. */
void rpwi_reach(void) {}
