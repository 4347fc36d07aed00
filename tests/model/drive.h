/* SPDX-License-Identifier: BSD-3-Clause */
/* drive.h - the driver: runs a script in processes of its own, and makes failing ones short. It
 * opens no device itself. */
#ifndef TESTS_MODEL_DRIVE_H
#define TESTS_MODEL_DRIVE_H

#include "side.h"

struct result {
	bool ok;
	char why[1400];
	struct tally tally;
	double seconds;
};

/* drive.c */
bool drive(const struct script *s, const struct limits *l, uint64_t salt, unsigned deadline_s,
	struct result *r);
double drive_now(void);

/* shrink.c: the shortest script found within so many seconds that fails, too */
struct script *shrink(
	const struct script *s, const struct limits *l, double seconds, struct result *last);

/* net.c: two network namespaces, connected; false: why not */
bool net_make(char *why, size_t room);
bool net_enter(unsigned which);
extern const char *const net_device[2];

#endif
