/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - libropeway-check.so.0: hooks of free, of other calls that take memory away, and of
 * fork, for `ropeway run --check` (check/hooks.h). A library of its own, so that a run without
 * --check has no hook in its allocator; docs/decisions/check.md says more.
 *
 * The hooks run before constructors, in signal handlers and inside of the allocator: they call the
 * function behind them, and the checker's, which takes no lock and no memory either.
 */
#include "base/base.h"
#include "check/hooks.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>

static struct {
	void (*free)(void *p);
	void *(*realloc)(void *p, size_t n);
	void *(*reallocarray)(void *p, size_t n, size_t each);
	int (*munmap)(void *addr, size_t len);
	void *(*mremap)(void *addr, size_t len, size_t now, int flags, ...);
	int (*madvise)(void *addr, size_t len, int advice);
	pid_t (*fork)(void);
	size_t (*usable)(void *p);
	bool is_libc; /* the allocator */
} next;
/* dlsym may free the text that dlerror kept. */
static __thread bool finding __attribute__((tls_model("initial-exec")));

static void find(void)
{
	finding = true;
	next.realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	next.reallocarray = (void *(*)(void *, size_t, size_t))dlsym(RTLD_NEXT, "reallocarray");
	next.munmap = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
	next.mremap = (void *(*)(void *, size_t, size_t, int, ...))dlsym(RTLD_NEXT, "mremap");
	next.madvise = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
	next.fork = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
	next.usable = (size_t(*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
	void *libc = dlsym(RTLD_NEXT, "__libc_free"), *at = dlsym(RTLD_NEXT, "free");
	next.is_libc = libc && libc == at;
	__atomic_store_n(&next.free, (void (*)(void *))at, __ATOMIC_RELEASE);
	finding = false;
}

static inline void found(void)
{
	if (RPWI_UNLIKELY(!__atomic_load_n(&next.free, __ATOMIC_ACQUIRE)))
		find();
}

/* A block of its own mapping is unmapped by free: the size in front of each block says so
 * (IS_MMAPPED of glibc). */
static bool is_mapping(const void *p)
{
	enum { IS_MMAPPED = 2 };
	return next.is_libc && ((const size_t *)p)[-1] & IS_MMAPPED;
}

static inline bool is_watched(void)
{
	return RPWI_UNLIKELY(__atomic_load_n(&ropeway_check_hooks.lost, __ATOMIC_ACQUIRE) != NULL);
}

static void block_lost(void *p, size_t len, bool mapping, const void *pc)
{
	ropeway_check_hooks.lost(p, len, mapping ? RPWI_UNMAPPED : RPWI_FREED, pc);
}

/* The assembler's names alone are the public ones. */
#define HOOK(result, hook, name, params) \
	RPWI_EXPORT result hook params __asm__(#name); \
	result hook params

/* The checker hears of unmapped memory behind the call: a registration cache, whose hooks lie
 * further down, deregisters within. */
HOOK(void, hook_free, free, (void *p))
{
	if (RPWI_UNLIKELY(finding))
		return; /* a few bytes, once */
	found();
	bool watched = p && is_watched() && next.usable, mapping = watched && is_mapping(p);
	size_t len = watched ? next.usable(p) : 0;
	if (watched && !mapping)
		block_lost(p, len, false, __builtin_return_address(0));
	next.free(p);
	if (mapping)
		block_lost(p, len, true, __builtin_return_address(0));
}

/* The block's new place is known only behind the call. */
static void *moved(void *from, void *to, size_t len, bool mapping, const void *pc)
{
	if (len && to && to != from)
		block_lost(from, len, mapping, pc);
	return to;
}

HOOK(void *, hook_realloc, realloc, (void *p, size_t n))
{
	found();
	bool watched = p && is_watched() && next.usable;
	size_t len = watched ? next.usable(p) : 0;
	bool mapping = watched && is_mapping(p);
	void *pc = __builtin_return_address(0);
	if (watched && !n) /* it is free */
		block_lost(p, len, mapping, pc);
	return moved(p, next.realloc(p, n), len, mapping, pc);
}

HOOK(void *, hook_reallocarray, reallocarray, (void *p, size_t n, size_t each))
{
	found();
	bool watched = p && is_watched() && next.usable;
	size_t len = watched ? next.usable(p) : 0;
	bool mapping = watched && is_mapping(p);
	return moved(p, next.reallocarray(p, n, each), len, mapping, __builtin_return_address(0));
}

HOOK(int, hook_munmap, munmap, (void *addr, size_t len))
{
	found();
	int rc = next.munmap(addr, len);
	if (!rc && is_watched())
		ropeway_check_hooks.lost(addr, len, RPWI_UNMAPPED, __builtin_return_address(0));
	return rc;
}

HOOK(void *, hook_mremap, mremap, (void *addr, size_t len, size_t now, int flags, ...))
{
	va_list ap;
	va_start(ap, flags);
	void *to = flags & MREMAP_FIXED ? va_arg(ap, void *) : NULL;
	va_end(ap);
	found();
	/* its new place is known only then */
	void *got = next.mremap(addr, len, now, flags, to);
	size_t gone = got == addr ? 0 : len;
	if (got == addr && now < len) {
		addr = (char *)addr + now;
		gone = len - now;
	}
	if (got != MAP_FAILED && gone && is_watched())
		ropeway_check_hooks.lost(addr, gone, RPWI_REMAPPED, __builtin_return_address(0));
	return got;
}

HOOK(int, hook_madvise, madvise, (void *addr, size_t len, int advice))
{
	found();
	int rc = next.madvise(addr, len, advice);
	if (!rc && is_watched() && (advice == MADV_DONTNEED || advice == MADV_REMOVE))
		ropeway_check_hooks.lost(addr, len,
			advice == MADV_REMOVE ? RPWI_REMOVED : RPWI_DONTNEED,
			__builtin_return_address(0));
	return rc;
}

HOOK(pid_t, hook_fork, fork, (void))
{
	found();
	void (*forks)(const void *pc, const void *frame) =
		__atomic_load_n(&ropeway_check_hooks.forks, __ATOMIC_ACQUIRE);
	if (forks)
		forks(__builtin_return_address(0), __builtin_frame_address(0));
	return next.fork();
}

/* The library is linked so that this is its own free, whichever the program calls. */
RPWI_EXPORT struct rpwi_check_hooks ropeway_check_hooks = {.free = (void *)hook_free};

__attribute__((constructor)) static void begins(void) { found(); }
