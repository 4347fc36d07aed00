/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h - `ropeway run --check`: stays the parent of the program, and shows what the checker
 * writes into the report as it is found. */
#ifndef ROPEWAY_CLI_WATCH_H
#define ROPEWAY_CLI_WATCH_H

#include <limits.h>

#include "check/options.h"

struct rpwi_watch {
	struct rpwi_check_options how; /* how.any: there is something to check */
	const char *spec;
	char file[PATH_MAX]; /* the report */
	int fd;              /* of it, or -1 */
	bool own;            /* of this run alone, in a temporary folder */
};

/* Reads a SPEC and makes the report. 0; or -errno and a sentence. */
int rpwi_watch_prepare(struct rpwi_watch *w, const char *spec, char *why, size_t why_len);
/* Starts argv, shows its findings, and gives the exit status of the run. If the program was ended
 * by a signal, this process ends by the same one. `cannot_run` gives the status where argv[0]
 * cannot be executed. */
int rpwi_watch_run(struct rpwi_watch *w, char **argv, int (*cannot_run)(const char *, int));

#endif
