/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate_priv.h - the structs of the emulation, and what its files call in each other.
 *
 * From the bottom to the top: each file calls only files that come before it.
 *
 *   emulate_state.c  what a transport and an endpoint have of it
 *   emulate_serve.c  registered memory, and the side that answers
 *   emulate_ask.c    operations: the side that asks, and goes by hand
 *   emulate.c        what the transport tells: frames, moved bulk data, room, the end */
#ifndef ROPEWAY_TRAN_EMULATE_PRIV_H
#define ROPEWAY_TRAN_EMULATE_PRIV_H

#include <unistd.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/slots.h"
#include "ropeway.h"
#include "tran/emulate.h"
#include "tran/place.h"

enum answer { OK, NO_ACCESS, FAILED, ANSWERS };
enum { INDEX_BITS = 7, MAGIC = 0x454d5052 };
_Static_assert(EMULATED_WINDOW <= 1 << INDEX_BITS, "an index fits");
_Static_assert(EMULATED_SMALL == 64, "small_used has a bit for each");

struct ask {
	uint8_t kind, bulk, more, zero;
	uint32_t id, slot, zero2;
	uint64_t key, offset, len;
};
_Static_assert(sizeof(struct ask) == 40, "no padding on the wire");
struct done {
	uint8_t kind, answer, zero[2];
	uint32_t id;
	uint64_t value;
};
_Static_assert(sizeof(struct done) == 16, "no padding on the wire");
struct operands {
	uint64_t operand, compare;
};
struct desc {
	uint32_t magic, slot;
	uint64_t key;
};

struct region {
	struct tran_mem base;
	struct tran_home home;
	uint32_t slot;
	uint64_t key;
	struct rpwi_list moving; /* of struct serve: bulk data into or out of it */
};

struct op {
	struct rpwi_list waiting; /* has parts that are not asked for yet, or goes by hand */
	struct rpwi_list posted;  /* of e->gets or e->ordered */
	struct rpwi_error error;
	unsigned chunks;    /* asked for, not answered */
	struct chunk *open; /* of a put, with more bytes to come; NULL: none */
	size_t part;        /* goes into one frame */
	size_t arrived;     /* of a get, from its begin */
	struct emulated_move m;
};

/* A request of ours that is not answered yet. */
struct chunk {
	struct op *op; /* NULL: free */
	uint32_t id, len;
	char *local;
	struct tran_bulk *bulk; /* under way */
	bool answered;
};

/* A request of the peer's that is not answered yet. */
struct serve {
	struct rpwi_list owed;   /* of e->owed: its answer waits for room */
	struct rpwi_list moving; /* of its region */
	struct tran_bulk *bulk;
	struct ask ask; /* of a get, its rest */
	size_t part;    /* of it, in one frame */
	uint64_t value;
	uint8_t answer;
	bool busy;
};

struct emulated_ep {
	struct tran_ep *ep;
	unsigned ops, small, bulks; /* chunks */
	uint64_t small_used;        /* a bit for each of chunk[0] to chunk[EMULATED_SMALL - 1] */
	uint32_t number, next_bulk;
	bool broken; /* the transport took a frame no more */
	bool pumping;
	struct op *beginning; /* which is being posted; NULL once it is over */
	struct rpwi_list waiting[2], gets,
		/* waiting: small ones, bulk ones; all that is not done; ordered: puts, atomics and
		 * flushes, as they were posted */
		ordered, by_hand;
	struct rpwi_list owed;
	/* Of gets that went on by hand: what still comes for them. It never ends. */
	struct op nobody;
	unsigned answers, answers_seen, ticks;
	struct chunk chunk[EMULATED_WINDOW];
	/* the second for a number with bulk data: a peer that has all bytes of a get asks again,
	 * maybe before this side is told that they have gone */
	struct serve serve[EMULATED_WINDOW + EMULATED_BULK];
};

struct emulated {
	struct rpwi_slots regions;
	pid_t pid;
	uint8_t *bounce; /* small bytes of registered memory, on their way */
	size_t room;
	struct rpwi_list kept; /* operations that are over, for the next */
	unsigned kept_count;
};

/* The endpoint's state, made when it is first needed; NULL: no memory. */
struct emulated_ep *emulate_of(struct tran_ep *ep);

void emulate_asked(struct tran_ep *ep, const struct ask *a, const void *body, size_t body_len);
/* The bulk data of a request of the peer's has gone or come. */
void emulate_served(struct emulated_ep *e, struct serve *s, int status);
/* Answers that waited for room. False: some still do. */
bool emulate_serve_room(struct emulated_ep *e);

void emulate_answered(struct tran_ep *ep, const struct done *d, const void *body, size_t len);
/* The bulk data of a request of ours has gone or come. */
void emulate_chunk_moved(struct emulated_ep *e, struct chunk *c, int status);
/* Ask for what waits, as long as there is room. */
void emulate_pump(struct emulated_ep *e);
/* Operations end, and nobody hears of it. */
void emulate_ask_close(struct emulated_ep *e);

/* So much goes in one frame. */
static inline size_t emulate_frame_most(const struct tran_ep *ep)
{
	return ep->limits.bulk_max ? RPWI_MIN(ep->limits.bulk_min - 1, ep->limits.frame_max)
				   : ep->limits.frame_max;
}

/* The same of a part of an operation of `len`. */
static inline size_t emulate_part_most(const struct tran_ep *ep, size_t len)
{
	const struct tran_reach_ops *reach = ep->tran->ops->reach;
	return reach ? reach->piece(len) : emulate_frame_most(ep);
}

static inline int emulate_send(
	struct emulated_ep *e, const void *head, size_t head_len, const void *body, size_t len)
{
	const struct tran_ops *ops = e->ep->tran->ops;
	struct iovec iov = {(void *)body, len};
	int rc;
	if (ops->reach)
		rc = ops->reach->send(e->ep, head, head_len, body, len);
	else
		rc = ops->send(e->ep, head, head_len, &iov, len ? 1 : 0, len);
	if (rc < 0)
		e->broken = true;
	return rc;
}

static inline void emulate_breach(struct tran_ep *ep, const char *why)
{
	ep->tran->ops->breach(ep, &(struct rpwi_error){RPW_ERR_PROTOCOL, 0, why});
}

/* Bytes that came, to where they belong: 0 or -EFAULT. */
static inline int emulate_place(const struct tran *t, void *to, const void *from, size_t n)
{
	if (!t->ops->reach)
		return tran_place(t->emulated->pid, to, from, n, t->polled);
	if (t->polled)
		rpwi_copy_up(to, from, n);
	else
		rpwi_copy(to, from, n);
	return 0;
}

#endif
