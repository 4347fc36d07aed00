/* SPDX-License-Identifier: BSD-3-Clause */
/* hooks.h - between libropeway-check.so.0 (hooks/memory.c) and the checker: the library has hooks
 * of free, munmap, fork and the like, and calls the functions that the checker has put in here.
 * Until then, and in every run without --check, which does not load it, nothing is called.
 */
#ifndef ROPEWAY_CHECK_HOOKS_H
#define ROPEWAY_CHECK_HOOKS_H

#include <stdbool.h>
#include <stddef.h>

/* How memory is lost. FREED: the allocator may give it to others; UNMAPPED, and what follows: its
 * pages are others from now on. */
enum rpwi_loss { RPWI_FREED, RPWI_UNMAPPED, RPWI_REMAPPED, RPWI_DONTNEED, RPWI_REMOVED };

struct rpwi_check_hooks {
	/* Before free, behind the others. Any thread, signal handlers and the allocator included:
	 * no lock, no allocation. pc: the return address of the program's call. */
	void (*lost)(const void *addr, size_t len, enum rpwi_loss how, const void *pc);
	/* Before a fork. */
	void (*forks)(const void *pc, const void *frame);
	void *free; /* the library's own: does the program call that? */
};
/* The library's; found by name. */
extern struct rpwi_check_hooks ropeway_check_hooks;

#endif
