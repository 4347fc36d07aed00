/* SPDX-License-Identifier: BSD-3-Clause */
/* orphan.h - a program of ours that is started from inside a stranger's process, and is nobody's
 * child there: the child that makes it gives no signal and has ended before the start returns, so
 * no SIGCHLD comes and no wait(2) without __WCLONE sees it. The kernel gives it to init, or to a
 * process that adopts orphans (PR_SET_CHILD_SUBREAPER, or pid 1 of a container).
 *
 * It has a session of its own, / as its folder, no signal blocked or ignored, and no descriptors
 * but those named here. Starting it takes about a millisecond.
 *
 * Threads: any. */
#ifndef ROPEWAY_BASE_ORPHAN_H
#define ROPEWAY_BASE_ORPHAN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct rpwi_orphan {
	const char *path;
	char *const *argv, *const *envp;
	/* its descriptor 0, and its descriptors 1 and 2: 3 or more here; -1: /dev/null */
	int in, out;
};
/* 0 or -errno; -ENOENT: the process has more rights than its starter, and starts nothing. */
int rpwi_orphan_start(const struct rpwi_orphan *o);
/* The first of these places that has a program: absolute, or as seen from the folder of the library
 * that this is part of, there only if it is a file of root, of ours, or of the library's owner. */
bool rpwi_orphan_find(const char *const *place, size_t places, char path[PATH_MAX]);

#endif
