/* SPDX-License-Identifier: BSD-3-Clause */
/* launch.h - how to start a program with the drop-in preloaded: for `ropeway run`. Depends on
 * nothing but base. */
#ifndef ROPEWAY_CLI_LAUNCH_H
#define ROPEWAY_CLI_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

/* What an executable is, as far as a preload is concerned. */
struct rpwi_launch {
	/* the executable that the kernel starts: found in PATH; of a script its interpreter */
	char program[4096];
	bool is_elf;    /* of this machine's word size; otherwise nothing below is known */
	bool is_static; /* no dynamic loader: a preload has no effect */
	/* set-user-ID, set-group-ID or with file capabilities: the loader ignores a preload whose
	 * path has a slash */
	bool is_privileged;
};
/* Look at `program`, as execvp would find it. 0, or -errno (-ENOENT: no such program, -EACCES: not
 * executable). */
int rpwi_launch_inspect(const char *program, struct rpwi_launch *out);

/* The LD_PRELOAD for it: what the user has in `have` (or NULL), then `library` (an absolute path,
 * without what splits the list: link.h). 0 or -ENAMETOOLONG. */
int rpwi_launch_preload(const char *library, const char *have, char *out, size_t len);

/* The ASAN_OPTIONS for it. ASan's runtime, where it is a shared library, refuses to start behind a
 * preload unless told that this is meant. Preloading the runtime itself first would do too, but
 * every child of the program would get it: shells that report leaks, and with TSan's runtime
 * children that crash. The other runtimes do not ask. Set for every program, since one that is not
 * built with ASan may start one that is. What the user has in `have` (or NULL) prevails. 0 or
 * -ENAMETOOLONG. */
int rpwi_launch_asan_options(const char *have, char *out, size_t len);

#endif
