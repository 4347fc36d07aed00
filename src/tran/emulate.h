/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate.h - put, get, atomics and flush above a transport that has frames only, or frames and
 * bulk data: its `mem` and `rma` are these. The peer's emulation checks each access against what
 * was registered there and answers; so memory moves when that side makes progress.
 *
 * What a transport with these owes:
 *   open, close       emulate_open (it may fail), emulate_close
 *   ep_close          emulate_ep_close, when it moves none of the endpoint's bulk data any more; it
 *                     may come sooner, when the path has broken
 *   up->frame         by emulate_frame_up instead
 *   up->room          emulate_room before it; its `send` that said RPWI_LATER may have been the
 *                     emulation's
 *   bulk data         each message that went ends with emulate_moved: 0, RPW_ERR_ACCESS (cut, here
 *                     or there), or another status of its own
 *
 * On the wire: frames whose head begins with TRAN_OWN_HEADS or more, little-endian as all of msg's.
 *   ask   kind bulk 0[2] id slot 0[4] key offset len     get; put: the body is the bytes, or none
 *                                                        and bulk 1: they come as bulk data of that
 *                                                        id; atomics: body operand compare
 *   done  kind answer 0[2] id value                      body: the bytes of a get without bulk. The
 *                                                        bytes of one with bulk come as bulk data
 *                                                        of that id, and no done; a refusal is a
 *                                                        done
 * An id is the asker's: the index of its window, and a number that rises. The bulk data of a put
 * has it with EMULATED_PUT.
 *
 * Bounds: EMULATED_WINDOW requests of one side that are not answered; a peer that asks for more is
 * in breach, and so none of it costs memory. Operations that wait for their turn: EMULATED_OPS_MAX,
 * then RPWI_LATER. Threads: as the transport's. */
#ifndef ROPEWAY_TRAN_EMULATE_H
#define ROPEWAY_TRAN_EMULATE_H

#include "tran/tran.h"

enum {
	EMULATED_SMALL = 64, /* requests in frames, of one side and not answered */
	/* the same of those with bulk data: a side sends its puts, and what it was asked for, and
	 * that once more */
	EMULATED_BULK = TRAN_BULK_MOST / 3,
	EMULATED_WINDOW = EMULATED_SMALL + EMULATED_BULK,
	EMULATED_OPS_MAX = 65536,
};
#define EMULATED_PUT 0x80000000u

extern const struct tran_mem_ops emulated_mem;
extern const struct tran_rma_ops emulated_rma;

int emulate_open(struct tran *t); /* 0 or an error */
void emulate_close(struct tran *t);
void emulate_ep_close(struct tran_ep *ep);
/* What could not be sent. */
void emulate_room(struct tran_ep *ep);
void emulate_moved(struct tran_ep *ep, void *cookie, int status);
void emulate_frame(
	struct tran_ep *ep, const void *head, size_t head_len, const void *body, size_t body_len);

/* up->place, by this. */
static inline void *emulate_place_up(
	struct tran_ep *ep, const void *head, size_t head_len, size_t body_len)
{
	const struct tran_up *up = ep->tran->up;
	return up->place && head_len && *(const uint8_t *)head < TRAN_OWN_HEADS
		       ? up->place(ep->user, head, head_len, body_len)
		       : NULL;
}

static inline bool emulate_frame_up(
	struct tran_ep *ep, const void *head, size_t head_len, const void *body, size_t body_len)
{
	if (RPWI_LIKELY(!head_len || *(const uint8_t *)head < TRAN_OWN_HEADS))
		return ep->tran->up->frame(ep->user, head, head_len, body, body_len);
	emulate_frame(ep, head, head_len, body, body_len);
	return true;
}

#endif
