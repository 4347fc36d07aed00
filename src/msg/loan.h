/* SPDX-License-Identifier: BSD-3-Clause */
/* loan.h - loans: memory of an endpoint that the program fills, and its peer reads; views: the
 * peer's loans, and other messages that the program reads where they are. */
#ifndef ROPEWAY_MSG_LOAN_H
#define ROPEWAY_MSG_LOAN_H

#include "msg/objects.h"

/* ---- loan.c: the owner ---- */

enum loan_kind { LOAN_PRIVATE, LOAN_SHARED, LOAN_SHARED_WRITABLE, LOAN_KINDS };
enum loan_state {
	LOAN_FREE,
	LOAN_HELD,    /* the program's */
	LOAN_SENDING, /* its send is under way */
	LOAN_SENT,    /* the peer's, until its word has the number */
};
struct loan_slot {
	struct rpwi_list in; /* its class's free or sent, or its endpoint's held */
	struct loan_pool *pool;
	uint64_t number, since_ms;
	uint8_t state;
};

/* A slot for so many bytes; NULL: the last error says why not. *again: there may be one later. */
struct loan_slot *loan_take(rpw_endpoint *ep, size_t bytes, enum loan_kind kind, bool *again);
/* A slot with a copy of a message that is to be sent, where the peer reads it. NULL: none is free,
 * or the path has none. */
struct loan_slot *loan_of_copy(rpw_endpoint *ep, const struct iovec *iov, int iovcnt, size_t len);
enum loan_kind loan_kind_of(const rpw_endpoint *ep, unsigned flags);
uint8_t *loan_address(const struct loan_slot *s);
size_t loan_room(const struct loan_slot *s);
bool loan_is_writable(const struct loan_slot *s); /* by the peer */
bool loan_is_of(const struct loan_slot *s, const rpw_endpoint *ep);
/* The peer can see it: it goes as a frame of a fixed size. */
bool loan_is_shared(const struct loan_slot *s);
struct loan_body loan_describe(const struct loan_slot *s, size_t len);
void loan_passed(struct loan_slot *s);              /* it is the peer's */
void loan_free(struct loan_slot *s);                /* it is nobody's. Its pool may go */
void loan_hold(struct loan_slot *s);                /* it is the program's */
void loan_hold_again(struct loan_slot *s);          /* its send was not posted */
void loan_say_full(rpw_endpoint *ep, size_t bytes); /* says who holds what, as the last error */
size_t loan_bytes_out(rpw_endpoint *ep);            /* bytes on loan */
/* With the endpoint, also in a forked child. Loans and views that the program holds stay. */
void loan_all_end(rpw_endpoint *ep);
/* A slow send of one: as proto.begin. */
int loan_begin(rpw_request *r);

/* ---- view.c: the receiver ---- */

/* A message in a pool of the peer's, checked. */
struct loan_come {
	struct tran_seen *seen; /* with a reference */
	const struct tran_loan_ops *ops;
	uint64_t number, len;
	uint32_t slot;
};
static inline uint8_t *loan_come_data(const struct loan_come *m)
{
	return m->seen->data + m->seen->slot_bytes * m->slot;
}
/* 0, or an error: `body` names no loan of the peer's, or there is no memory. */
int loan_come_make(rpw_endpoint *ep, const void *body, size_t len, struct loan_come *out);
void loan_come_give_back(const struct loan_come *m);

int view_check(const rpw_view *v, const char *call); /* 0, or RPW_ERR_INVALID */
/* Fill the program's view: with a loan, whose reference it takes; or with memory of `owned`, which
 * goes by free(). False: no memory; nothing was taken. */
bool view_of_loan(rpw_endpoint *ep, rpw_view *out, const struct loan_come *m);
bool view_of_memory(rpw_endpoint *ep, rpw_view *out, void *owned, void *data, size_t len);
/* A receive gets memory of its own for its message, in its buffer from now on, and it makes a view
 * of that. False: no memory. */
bool view_room(rpw_request *r, size_t len);
bool view_own(rpw_request *r, rpw_endpoint *ep, size_t len);
/* A message that could have been a loan was received: as a view, or not. The peer is told when that
 * has changed. */
void view_wanted(rpw_endpoint *ep, size_t len, bool view);
void view_endpoint_gone(rpw_endpoint *ep);
void view_context_gone(rpw_context *c); /* those that are left go on by themselves */

#endif
