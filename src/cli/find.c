/* SPDX-License-Identifier: BSD-3-Clause */
/* find.c - what belongs to a program of ours: beside it where it was built, else where
 * `meson install` put it, as seen from the program: a moved tree works too. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int rpwi_cli_find(const char *const places[2], const char *name, char path[PATH_MAX])
{
	char self[PATH_MAX], place[2 * PATH_MAX], dir[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return -errno;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < 2; i++) {
		snprintf(place, sizeof(place), "%s%s", self, places[i]);
		if (realpath(place, dir) &&
			snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX &&
			!access(path, R_OK))
			return 0;
	}
	return -ENOENT;
}
