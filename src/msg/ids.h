/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.h - numbers given to peers: an index and a generation, so that a late or forged one names nothing. */
#ifndef ROPEWAY_MSG_IDS_H
#define ROPEWAY_MSG_IDS_H

#include "base/base.h"

struct slot {
	void *what;
	uint32_t generation, next_free;
};
struct slots {
	struct slot *v;
	uint32_t n, used, free_head;
};

uint64_t slots_add(struct slots *s, void *what); /* 0: no memory */
void *slots_get(const struct slots *s, uint64_t number);
void slots_del(struct slots *s, uint64_t number);
uint64_t msg_random(void);

#endif
