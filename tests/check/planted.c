/* SPDX-License-Identifier: BSD-3-Clause */
/* planted.c - programs with one mistake each: `planted CASE bad|good`; without arguments the list,
 * a line each: CASE RULE. */
#include "planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct planted *const all[] = {planted_posts, planted_memory, planted_far,
	planted_race, planted_ends, planted_order, planted_apart};

static const char *name_of(const struct planted *p) { return p->name ? p->name : p->rule; }

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "peer")) {
		apart_peer(atoi(argv[2]));
		return 0;
	}
	if (argc > 2 && !strcmp(argv[1], "first-cause")) {
		planted_first_cause(!strcmp(argv[2], "bad"));
		return 0;
	}
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		for (const struct planted *p = all[i]; p->run; p++) {
			if (argc < 3)
				printf("%s %s\n", name_of(p), p->rule);
			else if (!strcmp(name_of(p), argv[1])) {
				p->run(!strcmp(argv[2], "bad"));
				return 0;
			}
		}
	return argc < 3 ? 0 : 2;
}
