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

void nt_frame_receive(struct nt_ep *ep)
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
	nt_frame_receive(ep);
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

void nt_frame_goodbye(struct nt_ep *ep)
{
	if (ep->leave_placed)
		return;
	uint8_t *p = nt_frame_reserve(ep, NT_ITEM_LEN);
	ep->leave_owed = !p;
	if (!p)
		return;
	nt_put_item(p, &(struct nt_item){.kind = NT_LEAVE});
	ep->leave_placed = true;
	nt_frame_flush(ep);
}
