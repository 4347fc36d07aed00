/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.h - numbers given to peers: an index and a generation, so that a late or forged one names
 * nothing. */
#ifndef ROPEWAY_MSG_IDS_H
#define ROPEWAY_MSG_IDS_H

#include "base/slots.h"

uint64_t ids_add(struct rpwi_slots *s, void *what); /* 0: no memory */
void *ids_get(const struct rpwi_slots *s, uint64_t number);
void ids_del(struct rpwi_slots *s, uint64_t number);
uint64_t msg_random(void);

#endif
