/* SPDX-License-Identifier: BSD-3-Clause */
/* owned.h - memory that the device may write at any moment: buffers of posted receives, targets of
 * READs and atomics, from the post until the program has polled the completion. Found by address.
 * The lock is held.
 *
 * Cost: a range is one node of 24 bytes (same range, same kind: the same node, counted), in a hash
 * table by its first granule. Granules grow by 4, from 64 bytes to 4 GiB, and a range has the
 * smallest that it fits in. So a post puts in one node, and a look goes through two or three
 * buckets for each size that is in use, whatever the number and the length of the requests in
 * flight. A look at more granules than half of the table has buckets goes through the table
 * instead. Sends are not in it: they are looked up against it.
 */
#ifndef ROPEWAY_CHECK_OWNED_H
#define ROPEWAY_CHECK_OWNED_H

#include "check/queue.h"

/* Room for the requests of one more queue, before it is used; and of one that is no more, for the
 * next. The lock is not held. */
void check_owned_room(uint32_t requests);
void check_owned_room_less(uint32_t requests);
/* The first range on these bytes, by its number; 0: none. `bad`: one of that kind (read: the target
 * of a READ or an atomic) that begins elsewhere. */
struct check_owners {
	uint32_t first, bad;
	bool read;
};
struct check_owners check_owned_look(uint64_t addr, uint64_t len, bool read);
bool check_owned_is_on(uint32_t node, uint64_t addr, uint64_t len);
/* One more; its number, or 0. */
uint32_t check_owned_put(uint64_t addr, uint32_t len, bool read);
/* The request was polled, or dropped. */
void check_owned_leave(struct check_wr *w);

#endif
