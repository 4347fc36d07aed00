/* SPDX-License-Identifier: BSD-3-Clause */
/* users.h - can this test become other users? Root of a user namespace of one user cannot. */
#ifndef TESTS_LIB_USERS_H
#define TESTS_LIB_USERS_H

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* `missed`: what was not tried, where it cannot. */
static inline bool users_can_be_others(const char *missed)
{
	unsigned from, to, count = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	if (f && fscanf(f, "%u %u %u", &from, &to, &count) != 3)
		count = 0;
	if (f)
		fclose(f);
	if (!geteuid() && count > 60000)
		return true;
	fprintf(stderr, "SKIPPED: only root can be other users: %s\n", missed);
	return false;
}

#endif
