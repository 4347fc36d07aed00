/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.h - what has to be mounted and written so that the kernel's /sys and /dev also have the
 * files of our devices, for programs that no preload reaches. The files are those of the table in
 * src/tree, as they are when the plan is made.
 *
 * sysfs takes no new names, so a folder that lacks one of ours is covered: a tmpfs is mounted over
 * it, which gets what the folder had, mounted one by one (links are copied), and then our names.
 */
#ifndef ROPEWAY_CLI_PLAN_H
#define ROPEWAY_CLI_PLAN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rpwi_plan_step;
struct rpwi_plan {
	struct rpwi_plan_step *step;
	unsigned n;
	uint64_t hash; /* of all steps: two of one hash show the same */
};
/* Looks at the kernel's folders and the interfaces; changes nothing. 0, or -errno and `why`. End
 * with rpwi_plan_free in any case. */
int rpwi_plan_make(struct rpwi_plan *p, char *why, size_t why_len);
/* Carries it out in this process's mount namespace. Each mount has this source in
 * /proc/self/mountinfo. 0, or -errno and what cannot be done; then a part of it may be. */
int rpwi_plan_lay(const struct rpwi_plan *p, const char *source, char *what, size_t what_len);
/* What is made last: who sees it sees all. NULL: nothing is made. */
const char *rpwi_plan_last(const struct rpwi_plan *p);
/* The path of the next counter from step *at on, which becomes the one behind it; NULL: none. */
const char *rpwi_plan_counter(const struct rpwi_plan *p, unsigned *at);
void rpwi_plan_free(struct rpwi_plan *p);
/* A file that is there from now on; 0 or -errno. */
int rpwi_plan_write(const char *path, const char *text, size_t len, mode_t mode);

#endif
