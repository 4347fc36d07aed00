/* SPDX-License-Identifier: BSD-3-Clause */
/* owner.h - which thread uses a context: one at a time may. It is looked at where ROPEWAY_LOG is
 * debug or finer, and under ROPEWAY_CHECK, by each call; else by none, and no call pays for it. */
#ifndef ROPEWAY_MSG_OWNER_H
#define ROPEWAY_MSG_OWNER_H

#include "ropeway.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct owner {
	_Atomic pid_t thread;                   /* whose call was the last; 0: none yet */
	_Atomic bool said_passed_on, said_both; /* each is said once */
};

/* A call of this thread: says it, with both threads' IDs, where another one has used the context
 * before, or is inside it. `from`: where the call returns to; the site of findings, where it is no
 * function of this library. False: the context is of the process that has forked this one. For
 * msg_is_ours alone. */
__attribute__((cold)) bool owner_look(rpw_context *c, const void *from);
/* A call that a callback may not make, inside one: an error that says so, or that it is another
 * thread that is inside. `what`: "rpw_context_progress". */
int owner_inside(rpw_context *c, const char *what, const char *then);

#endif
