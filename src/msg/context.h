/* SPDX-License-Identifier: BSD-3-Clause */
/* context.h - waiting, for calls that wait for something else than a request. */
#ifndef ROPEWAY_MSG_CONTEXT_H
#define ROPEWAY_MSG_CONTEXT_H

#include "msg/objects.h"

struct context_wait {
	uint64_t deadline_ns, spin_until_ns;
};
void context_wait_begin(struct context_wait *w, int timeout_ms);
/* A round of progress; after a spin it sleeps first, look_ns at most. 0; RPWI_LATER: time is up, so
 * look for the last time; or an error, also of rpw_context_wake. */
int context_wait_step(rpw_context *c, struct context_wait *w, uint64_t look_ns);

#endif
