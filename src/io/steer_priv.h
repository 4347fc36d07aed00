/* SPDX-License-Identifier: BSD-3-Clause */
/* steer_priv.h - struct rpwi_steer, for steer.c and slots.c alone. */
#ifndef ROPEWAY_IO_STEER_PRIV_H
#define ROPEWAY_IO_STEER_PRIV_H

#include "io/io_priv.h"

struct rpwi_steer {
	uint16_t slot[IO_SLOTS_MAX];
	unsigned nslots;
	uint64_t inode;     /* of the first slot's listener */
	uint64_t owned[64]; /* a bit for each slot */
	struct rpwi_lines *lines;
	struct rpwi_claims *claims;
	struct rpwi_pace *pace;
	struct rpwi_handover *over;
	struct rpwi_lanes *lanes;
};

static inline bool owns_slot(const struct rpwi_steer *s, unsigned slot)
{
	return s->owned[slot / 64] >> slot % 64 & 1;
}

#endif
