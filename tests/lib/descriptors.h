/* SPDX-License-Identifier: BSD-3-Clause */
/* descriptors.h - how many descriptors this process has open, one for the count itself included:
 * for tests that nothing stays behind. */
#ifndef TESTS_LIB_DESCRIPTORS_H
#define TESTS_LIB_DESCRIPTORS_H

#include <dirent.h>
#include <stdlib.h>

static inline unsigned open_descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	if (!d)
		abort();
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

#endif
