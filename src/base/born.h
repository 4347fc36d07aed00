/* SPDX-License-Identifier: BSD-3-Clause */
/* born.h - was this made by this process, or by one that has forked since? */
#ifndef ROPEWAY_BASE_BORN_H
#define ROPEWAY_BASE_BORN_H

#include "base/base.h"

extern uint64_t *rpwi_born_at;

/* The number of this process: objects made here keep it. */
uint64_t rpwi_born(void);
static inline bool rpwi_is_ours(uint64_t born)
{
	return RPWI_LIKELY(__atomic_load_n(rpwi_born_at, __ATOMIC_RELAXED) == born);
}

#endif
