/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_frame.c - batches: frames and announcements, each one message of the comm for frames, from and
 * into slots that are registered once. Eight receives are always posted. Frames go out at once
 * while at most one batch is under way, and gathers in the next one otherwise, so that small frames
 * share the cost of a message when there are many.
 *
 * A batch says its own length, since some plugins give no sizes (NCCLNET_NO_SIZES), and its number:
 * a slot that was not written, or messages out of order, are noticed.
 */
#include "tran/ncclnet/nt_priv.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

enum { UNDER_WAY_GATHER = 2, BUFFERS_LEN = 2 * NT_REQUESTS * NT_SLOT_LEN };

static uint8_t *out_slot(const struct nt_ep *ep, uint32_t n)
{
	return ep->buffers + (size_t)(n % NT_REQUESTS) * NT_SLOT_LEN;
}
static uint8_t *in_slot(const struct nt_ep *ep, uint32_t n)
{
	return ep->buffers + (size_t)(NT_REQUESTS + n % NT_REQUESTS) * NT_SLOT_LEN;
}

static void receive(struct nt_ep *ep)
{
	while (nt_queue_under_way(&ep->in) < NT_REQUESTS &&
		nt_queue_post(
			&ep->in, in_slot(ep, ep->in.posted), NT_SLOT_LEN, ep->in_reg->mhandle)) {
	}
}

int nt_frame_open(struct nt_ep *ep)
{
	ep->buffers =
		mmap(NULL, BUFFERS_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ep->buffers == MAP_FAILED) {
		ep->buffers = NULL;
		return -ENOMEM;
	}
	ep->out_reg = nt_queue_register(&ep->out, NULL, out_slot(ep, 0), BUFFERS_LEN / 2);
	ep->in_reg = nt_queue_register(&ep->in, NULL, in_slot(ep, 0), BUFFERS_LEN / 2);
	if (!ep->out_reg || !ep->in_reg)
		return -EIO;
	receive(ep);
	return ep->in.error ? -EIO : 0;
}

void nt_frame_close(struct nt_ep *ep)
{
	nt_queue_close(&ep->out);
	nt_queue_close(&ep->in);
	if (ep->buffers)
		munmap(ep->buffers, BUFFERS_LEN);
	ep->buffers = NULL;
}

/* ---- what goes ---- */

static void seal(struct nt_ep *ep)
{
	uint8_t *p = out_slot(ep, ep->fill);
	rpwi_put_be32(p, (uint32_t)ep->filled);
	rpwi_put_be32(p + 4, ep->fill);
	ep->filled = 0;
	ep->fill++;
}

uint8_t *nt_frame_reserve(struct nt_ep *ep, size_t len)
{
	if (ep->filled && ep->filled + len > NT_SLOT_LEN)
		seal(ep);
	if (ep->fill - ep->done == NT_REQUESTS)
		return NULL;
	if (!ep->filled)
		ep->filled = NT_BATCH_LEN;
	uint8_t *p = out_slot(ep, ep->fill) + ep->filled;
	ep->filled += len;
	return p;
}

void nt_frame_flush(struct nt_ep *ep)
{
	while (!ep->corked) {
		for (; ep->post != ep->fill; ep->post++) {
			uint8_t *p = out_slot(ep, ep->post);
			if (!nt_queue_post(&ep->out, p, rpwi_get_be32(p), ep->out_reg->mhandle))
				return;
			nt_queue_poll(&ep->out, 1); /* plugins without a thread move in test only */
		}
		if (ep->filled <= NT_BATCH_LEN || ep->post - ep->done >= UNDER_WAY_GATHER)
			return;
		seal(ep);
	}
}

int nt_send(struct tran_ep *tran_ep, const void *head, size_t head_len, const struct iovec *iov,
	int iovcnt, size_t body_len)
{
	struct nt_ep *ep = (struct nt_ep *)tran_ep;
	if (ep->state != NT_UP)
		return tran_path_over(&ep->base);
	if (head_len > TRAN_HEAD_MAX || body_len > NT_FRAME_MAX)
		return rpwi_fail(RPW_ERR_INVALID,
			"ncclnet: a frame of %zu and %zu bytes, %d and %d are the most", head_len,
			body_len, TRAN_HEAD_MAX, NT_FRAME_MAX);
	uint8_t *p = nt_frame_reserve(ep, NT_ITEM_LEN + head_len + body_len);
	if (!p) {
		ep->want_room = true;
		return RPWI_LATER;
	}
	nt_put_item(p, &(struct nt_item){
			       .kind = NT_FRAME, .head_len = (uint16_t)head_len, .len = body_len});
	p += NT_ITEM_LEN;
	if (head_len)
		memcpy(p, head, head_len);
	p += head_len;
	for (int i = 0; i < iovcnt; i++) {
		if (iov[i].iov_len)
			memcpy(p, iov[i].iov_base, iov[i].iov_len);
		p += iov[i].iov_len;
	}
	nt_frame_flush(ep);
	return 0;
}

bool nt_frame_idle(const struct nt_ep *ep)
{
	return ep->filled <= NT_BATCH_LEN && ep->done == ep->fill;
}

/* ---- what comes ---- */

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
			nt_ep_left(ep);
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

unsigned nt_frame_progress(struct nt_ep *ep)
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
			receive(ep);
	}
	if (!n && !ep->leave_heard)
		receive(ep);
	if (ep->out.posted != ep->out.taken) {
		nt_queue_poll(&ep->out, NT_REQUESTS);
		for (; nt_queue_oldest(&ep->out); n++) {
			nt_queue_take(&ep->out);
			ep->done++;
		}
	}
	return n;
}
