/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_batch.c - batches that come: taken apart, and their items given to their receivers. */
#include "tran/ncclnet/nt_priv.h"

static void left(struct nt_ep *ep)
{
	ep->leave_heard = true;
	nt_frame_goodbye(ep);
	nt_ep_fail(ep, RPW_ERR_UNREACHABLE, "the peer closed its side of the ncclnet endpoint");
}

static const char *item_take(struct nt_ep *ep, const struct nt_item *i, const uint8_t *more)
{
	if (i->kind == NT_BULK)
		return nt_bulk_announced(ep, i);
	emulate_frame_up(&ep->base, more, i->head_len, more + i->head_len, (size_t)i->len);
	return NULL;
}

static const char *batch_take(struct nt_ep *ep, const uint8_t *p, size_t len)
{
	const char *why = NULL;
	for (size_t at = NT_BATCH_LEN; at < len;) {
		struct nt_item i;
		size_t more;
		if (nt_get_item(p + at, len - at, &i, &more, &why))
			return why;
		at += NT_ITEM_LEN;
		if (i.kind == NT_LEAVE)
			left(ep);
		/* what comes after ep_close, or after a failure, is for nobody */
		else if (ep->state == NT_UP)
			why = item_take(ep, &i, p + at);
		if (why)
			return why;
		at += more;
	}
	return NULL;
}

static void take(struct nt_ep *ep, const struct nt_request *r)
{
	const uint8_t *p = r->data;
	uint32_t len = rpwi_get_be32(p), number = rpwi_get_be32(p + 4);
	const char *why = NULL;
	if (len < NT_BATCH_LEN || len > NT_SLOT_LEN || (r->size > 0 && (uint32_t)r->size != len))
		why = "a batch that is not as long as it says";
	else if (number != ep->in_number++)
		why = "a batch out of order";
	else
		why = batch_take(ep, p, len);
	if (why)
		nt_ep_breach(&ep->base, &(struct rpwi_error){RPW_ERR_PROTOCOL, 0, why});
}

unsigned nt_batch_progress(struct nt_ep *ep)
{
	unsigned n = 0;
	/* One by one: behind a goodbye comes nothing but the end of the connection, which is no
	 * failure. */
	while (!ep->leave_heard && (ep->state == NT_UP || ep->state == NT_LEAVING) &&
		n < 2 * NT_REQUESTS && nt_queue_poll(&ep->in, 1)) {
		take(ep, nt_queue_oldest(&ep->in));
		nt_queue_take(&ep->in);
		n++;
		if (!ep->leave_heard)
			nt_frame_receive(ep);
	}
	if (!n && !ep->leave_heard)
		nt_frame_receive(ep);
	if (ep->out.posted != ep->out.taken) {
		nt_queue_poll(&ep->out, NT_REQUESTS);
		for (; nt_queue_oldest(&ep->out); n++) {
			nt_queue_take(&ep->out);
			ep->done++;
		}
	}
	return n;
}
