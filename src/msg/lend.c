/* SPDX-License-Identifier: BSD-3-Clause */
/* lend.c - the calls of who lends: a loan is taken, sent, or returned. */
#include "msg/checked.h"
#include "msg/context.h"
#include "msg/endpoint.h"
#include "msg/loan.h"
#include "msg/request.h"
#include "msg/trace.h"

enum { LOANED_SIZE_MIN = sizeof(rpw_loaned), LOOK_NS = 1000000 };

static int loaned_check(const rpw_loaned *l, const char *call)
{
	if (!l)
		return msg_wrong(call, "the loan is NULL");
	if (l->size < LOANED_SIZE_MIN)
		return rpwi_fail(RPW_ERR_INVALID,
			"%s: rpw_loaned.size is %zu, at least %d is needed: begin with "
			"RPW_LOANED_INIT",
			call, l->size, LOANED_SIZE_MIN);
	return RPW_OK;
}

/* The slot of a loan that the program holds; NULL: it does not. */
static struct loan_slot *slot_of(const rpw_loaned *l)
{
	struct loan_slot *s = l->holder;
	return s && s->number == l->number && s->state == LOAN_HELD ? s : NULL;
}

/* ---- taking ---- */

/* Why no loan of the endpoint can be had, whatever there is. */
static int endpoint_refuses(rpw_endpoint *ep)
{
	if (ep->state == EP_FAILED)
		return ep_has_ended(ep);
	if (ep->shut)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_endpoint_shutdown was called for the endpoint to %s: nothing can be "
			"loaned after it",
			text_or(ep->peer, "?"));
	return RPW_OK;
}

/* Nobody is woken when the peer gives a loan back: so it looks again and again. */
static int take_waiting(
	rpw_endpoint *ep, size_t bytes, unsigned flags, int timeout_ms, struct loan_slot **out)
{
	struct context_wait w;
	context_wait_begin(&w, timeout_ms);
	for (;;) {
		bool again;
		int rc = context_wait_step(ep->c, &w, LOOK_NS);
		if (rc && rc != RPWI_LATER)
			return rc;
		int refused = endpoint_refuses(ep);
		if (refused)
			return refused;
		*out = loan_take(ep, bytes, loan_kind_of(ep, flags), &again);
		if (*out)
			return RPW_OK;
		if (!again)
			return rpwi_last_error()->status;
		if (rc == RPWI_LATER) { /* time is up */
			loan_say_full(ep, bytes);
			return RPW_ERR_LIMIT;
		}
	}
}

int rpw_loan(rpw_endpoint *ep, size_t bytes, unsigned flags, int timeout_ms, rpw_loaned *out)
{
	if (!ep)
		return msg_wrong("rpw_loan", "the endpoint is NULL");
	if (RPWI_UNLIKELY(loaned_check(out, "rpw_loan")))
		return RPW_ERR_INVALID;
	if (flags & ~(unsigned)RPW_LOAN_WRITABLE)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_loan: flags 0x%x has other bits than those of rpw_loan_flags", flags);
	if (RPWI_UNLIKELY(!msg_is_ours(ep->c)))
		return msg_inherited(ep->c);
	bool again;
	int rc = endpoint_refuses(ep);
	if (rc)
		return rc;
	struct loan_slot *s = loan_take(ep, bytes, loan_kind_of(ep, flags), &again);
	if (RPWI_UNLIKELY(!s)) {
		if (!again)
			return rpwi_last_error()->status;
		if (!timeout_ms) {
			loan_say_full(ep, bytes);
			return RPW_ERR_LIMIT;
		}
		rc = take_waiting(ep, bytes, flags, timeout_ms, &s);
		if (rc)
			return rc;
	}
	out->data = loan_address(s);
	out->length = loan_room(s);
	out->holder = s;
	out->number = s->number;
	return RPW_OK;
}

/* ---- sending ---- */

static int send_wrong(
	const rpw_endpoint *ep, const rpw_loaned *loan, const struct loan_slot *s, size_t len)
{
	if (!s)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_send_loan: this loan was sent or returned before, or never filled");
	if (!loan_is_of(s, ep))
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_send_loan: this loan is of another endpoint: send it there, or return "
			"it");
	return rpwi_fail(RPW_ERR_INVALID, "rpw_send_loan: %zu bytes of a loan that has %zu", len,
		loan->length);
}

/* The general way: it waits, or its memory is private. Where nothing is posted it is the program's
 * again. */
static int send_slow(
	rpw_endpoint *ep, struct loan_slot *s, size_t len, uint64_t tag, rpw_request **req)
{
	rpw_request *r = req_new(ep->c, ep, REQ_SEND, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->buf = (char *)loan_address(s);
	r->len = len;
	r->tag = r->done.tag = tag;
	r->done.length = len;
	r->lent = s;
	s->state = LOAN_SENDING;
	int rc = ep_post(ep, r, req);
	if (rc < 0)
		loan_hold_again(s);
	return rc;
}

/* The short way, which equals loan_begin where nothing waits: no request, no allocation. */
static bool send_fast(rpw_endpoint *ep, struct loan_slot *s, size_t len, uint64_t tag)
{
	const uint32_t units = credit_units(sizeof(struct loan_body));
	if (RPWI_UNLIKELY(!ep->link.fast || !loan_is_shared(s) || !credit_has(&ep->link, units)))
		return false;
	struct frame_head h =
		frame_head_make(FRAME_LOAN, 0, ep->link.rx_count, ep->link.rx_limit, tag);
	struct loan_body body = loan_describe(s, len);
	struct iovec iov = {&body, sizeof(body)};
	if (RPWI_UNLIKELY(ep->link.ops->send(ep->link.te, &h, sizeof(h), &iov, 1, sizeof(body))))
		return false;
	ep->link.rx_told = ep->link.rx_limit;
	ep->link.tx_used += units;
	ep->link.tx_count++;
	ep->c->stat.sent++;
	ep->c->stat.bytes_sent += len;
	loan_passed(s);
	return true;
}

int rpw_send_loan(rpw_endpoint *ep, rpw_loaned *loan, size_t len, uint64_t tag, rpw_request **req)
{
	if (RPWI_UNLIKELY(!ep))
		return msg_wrong("rpw_send_loan", "the endpoint is NULL");
	if (RPWI_UNLIKELY(loaned_check(loan, "rpw_send_loan")))
		return RPW_ERR_INVALID;
	if (RPWI_UNLIKELY(!msg_is_ours(ep->c)))
		return msg_inherited(ep->c);
	struct loan_slot *s = slot_of(loan);
	if (RPWI_UNLIKELY(!s || !loan_is_of(s, ep) || len > loan->length || len > loan_room(s)))
		return send_wrong(ep, loan, s, len);
	int rc = RPW_OK;
	if (RPWI_LIKELY(send_fast(ep, s, len, tag))) {
		if (req)
			*req = NULL;
	} else
		rc = send_slow(ep, s, len, tag, req);
	if (rc < 0)
		return rc;
	if (RPWI_UNLIKELY(rpwi_check_on && !loan_is_writable(s)))
		checked_loan_sent(loan_address(s), len);
	loan->data = loan->holder = NULL;
	return rc;
}

int rpw_loan_return(rpw_loaned *loan)
{
	if (loaned_check(loan, "rpw_loan_return"))
		return RPW_ERR_INVALID;
	struct loan_slot *s = slot_of(loan);
	if (!s)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_loan_return: this loan was sent or returned before, or never filled");
	loan->data = loan->holder = NULL;
	loan_free(s);
	return RPW_OK;
}
