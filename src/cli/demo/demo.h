/* SPDX-License-Identifier: BSD-3-Clause */
/* demo.h - what the demo's orchestrator (demo.c) and its two processes (peer.c) share. */
#ifndef ROPEWAY_CLI_DEMO_H
#define ROPEWAY_CLI_DEMO_H

#include "cli/cli.h"

/* ---- file.c ---- */
struct demo_file {
	int fd;
	uint8_t *map;
	uint64_t size;
	char name[256]; /* empty: it has no name, and is gone when the last process closes it */
};
/* The first of $TMPDIR, /tmp, /var/tmp that has room for `bytes` and can be written to. NULL with
 * `why` filled. */
const char *rpwi_demo_dir(uint64_t bytes, char *why, size_t why_len);
/* A file of `size` bytes, mapped (its blocks reserved, so that a full disk is an error here and not
 * SIGBUS later); named only if `keep_name` is given. 0 or -errno. */
int rpwi_demo_file_make(struct demo_file *f, const char *dir, uint64_t size, const char *keep_name);
void rpwi_demo_file_close(struct demo_file *f);
/* Fill with pseudo-random bytes in which every 8 bytes depend on their position. */
void rpwi_demo_file_fill(const struct demo_file *f, uint64_t seed);

/* ---- peer.c ---- */
/* A line of a step: "  sender    posts ...", over a bar that stands there. */
void rpwi_demo_step(const char *who, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
