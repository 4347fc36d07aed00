/* SPDX-License-Identifier: BSD-3-Clause */
/* planted.h - the planted programs: each case is one mistake, and a twin without it. */
#ifndef ROPEWAY_TESTS_CHECK_PLANTED_H
#define ROPEWAY_TESTS_CHECK_PLANTED_H

#include "pair.h"

/* A case of a rule: bad: with the mistake. */
struct planted {
	const char *rule, *name; /* name: NULL as the rule */
	void (*run)(bool bad);
};
extern const struct planted planted_posts[], planted_memory[], planted_far[], planted_race[],
	planted_ends[], planted_order[], planted_apart[];
void planted_first_cause(bool bad); /* of no finding */

/* `planted peer FD`: the other process of planted_apart.c. */
void apart_peer(int sock);

#endif
