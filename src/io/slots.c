/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.c - what a steer has, for the files below it (steer.c is on top of them). */
#include "io/steer_priv.h"

unsigned rpwi_steer_slots(const struct rpwi_steer *s, uint16_t *slots, unsigned max)
{
	for (unsigned i = 0; i < s->nslots && i < max; i++)
		slots[i] = s->slot[i];
	return s->nslots;
}

uint64_t rpwi_steer_inode(const struct rpwi_steer *s) { return s->inode; }

bool rpwi_steer_owns(const struct rpwi_steer *s, uint32_t qpn)
{
	return owns_slot(s, rpwi_slot_of(qpn));
}
int rpwi_steer_fd(const struct rpwi_steer *s) { return s->lines ? rpwi_lines_fd(s->lines) : -1; }
struct rpwi_lines *rpwi_steer_lines(struct rpwi_steer *s) { return s->lines; }
struct rpwi_pace *rpwi_steer_pace(struct rpwi_steer *s) { return s->pace; }
struct rpwi_lanes *rpwi_steer_lanes(const struct rpwi_steer *s) { return s->lanes; }
struct rpwi_handover *rpwi_steer_handover(struct rpwi_steer *s) { return s->over; }

int rpwi_steer_tell(struct rpwi_steer *s, const struct io_dest *to, struct io_msg *m,
	const struct iovec *data, unsigned parts)
{
	return s->lines ? rpwi_message_send(s->lines, to, m, data, parts) : -ENETDOWN;
}
