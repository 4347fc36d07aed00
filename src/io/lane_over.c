/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_over.c - the writer of a lane does what the reader does not come to, because its process is
 * stopped (SIGSTOP, a debugger): RDMA WRITEs. Here: which packets those are, and how the reader
 * hears of it.
 *
 * The writer says PLACING of their slots and that it is over, and then looks whether all threads of
 * the other process are stopped, and whether the reader was in no turn, before and after. If both
 * hold there was a moment, after it had said so, at which no thread ran and none was taking
 * packets; all that a thread that does not run had stored is seen by others (stopped.c), and it
 * sees all of theirs when it goes on.
 * So whoever takes packets later finds PLACING, and waits for what comes of it. Otherwise all is
 * said to stand again. No fence is needed in the reader's turns.
 *
 * Packets that were sent twice must not be there: the first may have been taken. The caller knows
 * (rc/stopped.c).
 */
#include "io/lane_ring.h"

static struct lane_slot *slot_at(const struct lane_writer *w, uint64_t pos)
{
	return &w->mem->slot[pos % LANE_SLOTS];
}

static void say(struct lane_slot *s, enum lane_said what)
{
	atomic_store_explicit(&s->said, what, memory_order_release);
}

static enum lane_said said(const struct lane_slot *s)
{
	return (enum lane_said)atomic_load_explicit(&s->said, memory_order_relaxed);
}

static void set_over(struct lane_writer *w)
{
	uint32_t over = atomic_load_explicit(&w->mem->over, memory_order_relaxed);
	atomic_store_explicit(&w->mem->over, over + 1, memory_order_release);
}

enum what { OTHERS, WRITES, REQUESTS, NOT_KNOWN };
/* What the slot has for that QP, from `una` on. */
static enum what what_is(const struct lane_slot *s, uint32_t dqpn, uint32_t una, uint32_t *psn)
{
	if (s->kind == LANE_DATAGRAM)
		return NOT_KNOWN;
	unsigned op = s->data[0] & ~RPWI_SVC_MASK;
	*psn = rpwi_get_be24(s->data + 9);
	if (rpwi_get_be24(s->data + 5) != dqpn || (s->data[0] & RPWI_SVC_MASK) != RPWI_SVC_RC ||
		(op >= RPWI_OP_READ_RESP_FIRST && op <= RPWI_OP_ATOMIC_ACK) ||
		rpwi_psn_diff(*psn, una) < 0)
		return OTHERS;
	return op == RPWI_OP_WRITE_FIRST || op == RPWI_OP_WRITE_MIDDLE ||
			       op == RPWI_OP_WRITE_LAST || op == RPWI_OP_WRITE_ONLY
		       ? WRITES
		       : REQUESTS;
}

/* Says PLACING of those; false: this cannot be done. */
static bool claim(struct lane_writer *w, uint32_t dqpn, uint32_t una, uint32_t *from)
{
	for (uint64_t at = w->taken; at != w->pos; at++) {
		struct lane_slot *s = slot_at(w, at);
		uint32_t psn;
		enum what is = what_is(s, dqpn, una, &psn);
		if (is == NOT_KNOWN)
			return false;
		if (is == REQUESTS)
			return true;
		if (is == OTHERS || said(s) == LANE_PLACED)
			continue;
		if (said(s) != LANE_STANDS)
			return false;
		say(s, LANE_PLACING);
		if (*from == LANE_NONE)
			*from = psn;
	}
	return true;
}

bool rpwi_lane_writer_take_over(struct lane_writer *w, uint32_t dqpn, uint32_t una, uint32_t *from,
	bool (*stopped)(void *arg), void *arg)
{
	*from = LANE_NONE;
	uint32_t turn = atomic_load_explicit(&w->mem->turn, memory_order_acquire);
	if ((turn & 1) || w->held != w->pos)
		return false;
	rpwi_lane_writer_look(w);
	/* Before the first one is taken, older packets may still be in a socket (lane.c). */
	if (w->broken || !w->taken)
		return false;
	set_over(w);
	bool good = claim(w, dqpn, una, from);
	atomic_thread_fence(memory_order_seq_cst);
	if (good && stopped(arg) &&
		atomic_load_explicit(&w->mem->turn, memory_order_acquire) == turn)
		return true;
	rpwi_lane_writer_give_over(w, dqpn, LANE_NONE);
	return false;
}

void rpwi_lane_writer_give_over(struct lane_writer *w, uint32_t dqpn, uint32_t upto)
{
	for (uint64_t at = w->taken; at != w->pos; at++) {
		struct lane_slot *s = slot_at(w, at);
		if (said(s) != LANE_PLACING || rpwi_get_be24(s->data + 5) != dqpn)
			continue;
		bool done =
			upto != LANE_NONE && rpwi_psn_diff(rpwi_get_be24(s->data + 9), upto) < 0;
		say(s, done ? LANE_PLACED : LANE_STANDS);
	}
	set_over(w);
}
