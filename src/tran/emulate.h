/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate.h - put, get, atomics and flush above a transport that has frames only, or frames and
 * bulk data: its `mem` and `rma` are these. The peer's emulation checks each access against what
 * was registered there and answers; so memory moves when that side makes progress. A transport that
 * sometimes reaches the peer's memory by itself (tran_ops.reach) begins each operation, and hands
 * over to emulate_begin what it cannot finish at once.
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
 *   ask   kind bulk more 0 id slot 0[4] key offset len   get; put: the body is the bytes, or none
 *                                                        and bulk 1: they come as bulk data of that
 *                                                        id; atomics: body operand compare
 *   done  kind answer 0[2] id value                      body: the bytes of a get without bulk. The
 *                                                        bytes of one with bulk come as bulk data
 *                                                        of that id, and no done; a refusal is a
 *                                                        done
 * With `reach` a get's bytes may come in several dones, and a put's go in several asks of one id,
 * `more` in all but the last, which is answered for all.
 * An id is the asker's: the index of its window, and a number that rises. The bulk data of a put
 * has it with EMULATED_PUT_ID.
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
	/* of one get or put, with `reach`: in several frames, others between them */
	EMULATED_SPAN = 256 * 1024,
};
enum emulated_kind {
	EMULATED_GET = TRAN_OWN_HEADS,
	EMULATED_PUT,
	EMULATED_ADD,
	EMULATED_SWAP,
	EMULATED_DONE,
	EMULATED_FLUSH = EMULATED_DONE /* asks for nothing */
};
/* What is to be done with memory of the peer's. */
struct emulated_move {
	enum emulated_kind kind;
	bool by_hand; /* reach->step is to be called */
	uint32_t slot;
	uint64_t key, offset;
	char *local;
	size_t len, done;           /* done: moved by hand, or asked for */
	const struct tran_mem *mem; /* that has `local` in it; NULL: not known */
	uint64_t operand, compare, *before;
	void *cookie;
};
#define EMULATED_PUT_ID 0x80000000u

extern const struct tran_mem_ops emulated_mem;
extern const struct tran_rma_ops emulated_rma;

int emulate_open(struct tran *t); /* 0 or an error */
void emulate_close(struct tran *t);
void emulate_ep_close(struct tran_ep *ep);
/* For a transport with `reach`: 0, RPWI_LATER, or an error; as transfer. */
int emulate_begin(struct tran_ep *ep, const struct emulated_move *m);
/* The next bytes of one of those that go by hand, in turn. How many. */
size_t emulate_step(struct tran_ep *ep);
bool emulate_can_step(const struct tran_ep *ep);
/* Nothing is asked for that an answer is awaited to. */
bool emulate_is_idle(const struct tran_ep *ep);
/* To be called now and then: after `patience` calls without an answer gets go on by hand. */
void emulate_tick(struct tran_ep *ep, unsigned patience);
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
