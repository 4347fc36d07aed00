/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_frame.c - frames and credits.
 *
 * A frame is one SEND: type, length of the head, the credits granted so far, then head and body.
 * Small ones are posted inline; the rest go through a registered buffer, which is free again at the
 * completion. Inline ones need no completion of their own: one in VERBS_SQ_SIGNAL asks for it, and
 * reports those before it (RC completes in order).
 */
#include "tran/verbs/verbs_priv.h"

enum { WINDOW_STEP_MAX = 1024, ROOM_FOR_CONTROL = 2, HELLO_BYTES = 8 };
_Static_assert((int)HELLO_BYTES <= (int)VERBS_RMA_QP_BYTES, "the longest of our own frames");

/* ---- credits ---- */

static uint32_t credits(const struct verbs_ep *ep) { return ep->peer_granted - ep->sent; }
static uint32_t owed(const struct verbs_ep *ep)
{
	int32_t n = (int32_t)(ep->received + ep->window - ep->granted);
	return n > 0 ? (uint32_t)n : 0; /* its window may have shrunk */
}

/* The endpoint is busy: its window doubles while the plane has receives to spare; when it has none,
 * it gives half of what it has back. */
static void window_adapt(struct verbs_ep *ep)
{
	struct verbs_plane *p = ep->p;
	if (ep->window < VERBS_WINDOW_MAX && p->rx_busy + ep->window <= VERBS_RX_BUSY_MAX &&
		verbs_rx_of(p, p->eps) + ep->window <= p->srq_max) {
		p->rx_busy += ep->window;
		ep->window *= 2;
		rpwi_verbs_rx_fill(p);
	} else if (p->rx_busy + VERBS_WINDOW_IDLE > VERBS_RX_BUSY_MAX &&
		   ep->window > VERBS_WINDOW_IDLE) {
		ep->window /= 2;
		p->rx_busy -= ep->window;
	}
}

static uint32_t grant(struct verbs_ep *ep)
{
	if (ep->received_data >= ep->window / 2)
		window_adapt(ep);
	ep->received_data = 0;
	ep->granted += owed(ep);
	return ep->granted;
}

/* Half a window of data; or so many of all kinds that the peer is about to have no credit to send
 * with. Not for frames of our own kinds alone, or two sides would thank each other for ever. */
static bool grant_due(const struct verbs_ep *ep)
{
	return ep->received_data >= ep->window / 2 ||
	       (ep->received_data && owed(ep) + 1 >= ep->window);
}

static bool can_send(const struct verbs_ep *ep)
{
	return credits(ep) >= 2 && verbs_sq_room(&ep->sq) > ROOM_FOR_CONTROL;
}

/* ---- sending ---- */

static void header_write(
	struct verbs_ep *ep, uint8_t *out, enum verbs_frame_type type, size_t head_len)
{
	out[0] = (uint8_t)type;
	out[1] = 0;
	out[2] = (uint8_t)head_len;
	out[3] = (uint8_t)(head_len >> 8);
	rpwi_put_le32(out + 4, grant(ep));
}

static int post_inline(struct verbs_ep *ep, const uint8_t *buf, size_t len, bool signal)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = (uint32_t)len};
	struct ibv_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE | (signal ? IBV_SEND_SIGNALED : 0)};
	return verbs_post(&ep->sq, &wr, VERBS_SQE_PLAIN, NULL);
}

static int post_slot(struct verbs_ep *ep, struct verbs_slot *s, size_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)s->buf, .length = (uint32_t)len, .lkey = s->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	int rc = verbs_post(&ep->sq, &wr, VERBS_SQE_SLOT, s);
	if (rc)
		verbs_slot_put(&ep->p->tx, s);
	return rc;
}

static void gather(
	uint8_t *out, const void *head, size_t head_len, const struct iovec *iov, int iovcnt)
{
	memcpy(out, head, head_len);
	out += head_len;
	for (int i = 0; i < iovcnt; i++) {
		if (!iov[i].iov_len)
			continue;
		memcpy(out, iov[i].iov_base, iov[i].iov_len);
		out += iov[i].iov_len;
	}
}

static int later(struct verbs_ep *ep)
{
	ep->want_room = true;
	return RPWI_LATER;
}

int rpwi_verbs_send(struct tran_ep *base, const void *head, size_t head_len,
	const struct iovec *iov, int iovcnt, size_t body_len)
{
	struct verbs_ep *ep = verbs_ep_of(base);
	uint8_t small[VERBS_INLINE_MAX];
	size_t len = VERBS_HEADER_BYTES + head_len + body_len;
	if (head_len > TRAN_HEAD_MAX || body_len > VERBS_FRAME_MAX)
		return rpwi_fail(RPW_ERR_INVALID,
			"verbs: a frame of %zu and %zu bytes, %d and %d are the most", head_len,
			body_len, TRAN_HEAD_MAX, VERBS_FRAME_MAX);
	if (RPWI_UNLIKELY(ep->state != VERBS_EP_UP))
		return ep->state == VERBS_EP_FAILED ? tran_path_over(base) : later(ep);
	if (!can_send(ep))
		return later(ep);
	struct verbs_slot *s = NULL;
	bool inlined = len <= RPWI_MIN(ep->p->inline_max, sizeof(small));
	if (!inlined && !(s = rpwi_verbs_slot_get(ep->p, &ep->p->tx, VERBS_TX_SLOTS_MAX))) {
		/* Other endpoints' frames hold them all: nothing of ours comes back to wake us. */
		verbs_todo(ep);
		return later(ep);
	}
	uint8_t *out = inlined ? small : s->buf;
	header_write(ep, out, VERBS_FRAME_DATA, head_len);
	gather(out + VERBS_HEADER_BYTES, head, head_len, iov, iovcnt);
	int rc = inlined ? post_inline(ep, out, len, false) : post_slot(ep, s, len);
	ep->sent += !rc;
	return rc;
}

bool rpwi_verbs_control(struct verbs_ep *ep, enum verbs_frame_type type)
{
	uint8_t buf[VERBS_HEADER_BYTES + VERBS_RMA_QP_BYTES];
	size_t len = VERBS_HEADER_BYTES;
	if (!credits(ep) || !verbs_sq_room(&ep->sq))
		return false;
	header_write(ep, buf, type, 0);
	if (type == VERBS_FRAME_HELLO) {
		rpwi_put_le32(buf + len, ep->peer_nonce);
		rpwi_put_le32(buf + len + 4, ep->t->nonce);
		len += HELLO_BYTES;
	} else if (type == VERBS_FRAME_RMA_QP) {
		rpwi_verbs_rma_qp_body(ep, buf + len);
		len += VERBS_RMA_QP_BYTES;
	}
	int rc;
	if (len <= ep->p->inline_max) {
		/* its completion ends the endpoint */
		rc = post_inline(ep, buf, len, type == VERBS_FRAME_BYE);
	} else {
		struct verbs_slot *s = rpwi_verbs_slot_get(ep->p, &ep->p->tx, VERBS_TX_SLOTS_MAX);
		if (!s)
			return false;
		memcpy(s->buf, buf, len);
		rc = post_slot(ep, s, len);
	}
	ep->sent += !rc;
	return !rc;
}

/* A frame of credits, padded to the MTU: one that knows nothing of this takes no notice. */
void rpwi_verbs_say_wide(struct verbs_ep *ep)
{
	if (ep->wide_said || !credits(ep) || !verbs_sq_room(&ep->sq))
		return;
	struct verbs_slot *s = rpwi_verbs_slot_get(ep->p, &ep->p->tx, VERBS_TX_SLOTS_MAX);
	size_t len = (size_t)128 << ep->mtu;
	if (!s)
		return;
	header_write(ep, s->buf, VERBS_FRAME_CREDIT, 0);
	memset(s->buf + VERBS_HEADER_BYTES, 0, len - VERBS_HEADER_BYTES);
	ep->wide_said = !post_slot(ep, s, len);
	ep->sent += ep->wide_said;
}

/* ---- receiving ---- */

static void hello_came(struct verbs_ep *ep, const uint8_t *body, size_t len)
{
	if (len != HELLO_BYTES || rpwi_get_le32(body) != ep->t->nonce ||
		rpwi_get_le32(body + 4) != ep->peer_nonce) {
		rpwi_verbs_ep_fail(ep, RPW_ERR_PROTOCOL,
			"the greeting on %s is not of the process whose handle came",
			ep->base.path);
		return;
	}
	if (ep->state != VERBS_EP_STARTING)
		return;
	/* Our first may have found nobody; this one is out of order there then, which brings
	 * both. */
	if (!ep->greeted)
		rpwi_verbs_control(ep, VERBS_FRAME_HELLO);
	ep->greeted = true;
	if (!ep->wide_due)
		rpwi_verbs_ep_up(ep);
	else
		rpwi_verbs_say_wide(ep);
}

static void credit_came(struct verbs_ep *ep, size_t len)
{
	if (ep->state != VERBS_EP_STARTING || len < (size_t)128 << ep->mtu)
		return;
	if (ep->greeted)
		rpwi_verbs_ep_up(ep);
}

static void data_came(struct verbs_ep *ep, const uint8_t *buf, size_t len, size_t head_len)
{
	if (head_len > TRAN_HEAD_MAX || head_len > len - VERBS_HEADER_BYTES) {
		rpwi_verbs_ep_fail(ep, RPW_ERR_PROTOCOL,
			"a frame of %zu bytes came whose head is said to have %zu", len, head_len);
		return;
	}
	ep->received_data++;
	if (ep->state == VERBS_EP_STARTING)
		rpwi_verbs_ep_up(ep);
	if (ep->state != VERBS_EP_UP)
		return;
	const uint8_t *head = buf + VERBS_HEADER_BYTES;
	ep->t->base.up->frame(ep->base.user, head, head_len, head + head_len,
		len - VERBS_HEADER_BYTES - head_len);
}

void rpwi_verbs_frame_came(struct verbs_ep *ep, const uint8_t *buf, size_t len)
{
	if (len < VERBS_HEADER_BYTES) {
		rpwi_verbs_ep_fail(ep, RPW_ERR_PROTOCOL,
			"a frame of %zu bytes came, %u is the least", len, VERBS_HEADER_BYTES);
		return;
	}
	uint32_t granted = rpwi_get_le32(buf + 4);
	if (++ep->received - ep->granted - 1 < WINDOW_STEP_MAX) {
		rpwi_verbs_ep_fail(ep, RPW_ERR_PROTOCOL,
			"the peer sent more frames than it was granted (%u)", ep->granted);
		return;
	}
	if (granted - ep->peer_granted > WINDOW_STEP_MAX ||
		granted - ep->sent > 2 * WINDOW_STEP_MAX) {
		rpwi_verbs_ep_fail(ep, RPW_ERR_PROTOCOL,
			"the peer grants %u frames after %u: an impossible number", granted,
			ep->peer_granted);
		return;
	}
	ep->peer_granted = granted;
	if (ep->state == VERBS_EP_CLOSING) { /* only its credits count */
		ep->bye_heard |= buf[0] == VERBS_FRAME_BYE;
		return;
	}
	switch (buf[0]) {
	case VERBS_FRAME_HELLO:
		hello_came(ep, buf + VERBS_HEADER_BYTES, len - VERBS_HEADER_BYTES);
		break;
	case VERBS_FRAME_DATA:
		data_came(ep, buf, len, (size_t)buf[2] | (size_t)buf[3] << 8);
		break;
	case VERBS_FRAME_CREDIT:
		credit_came(ep, len);
		break;
	case VERBS_FRAME_RMA_QP:
		if (ep->state == VERBS_EP_UP)
			rpwi_verbs_rma_qp_came(
				ep, buf + VERBS_HEADER_BYTES, len - VERBS_HEADER_BYTES);
		break;
	case VERBS_FRAME_BYE:
		ep->bye_heard = true;
		rpwi_verbs_ep_fail(ep, RPW_ERR_PEER_GONE, "the peer closed its endpoint");
		break;
	default:
		rpwi_verbs_ep_fail(ep, RPW_ERR_PROTOCOL,
			"a frame of type %u came, which does not exist", buf[0]);
	}
	if (ep->state == VERBS_EP_UP &&
		(ep->want_room || grant_due(ep) || (ep->rma_qp && ep->rma_qp->say)))
		verbs_todo(ep);
}

void rpwi_verbs_ep_work(struct verbs_ep *ep)
{
	if (ep->state != VERBS_EP_UP)
		return;
	if (ep->rma_qp && ep->rma_qp->say && rpwi_verbs_control(ep, VERBS_FRAME_RMA_QP))
		ep->rma_qp->say = false;
	/* without room: when some is retired, or credits come */
	if (grant_due(ep))
		rpwi_verbs_control(ep, VERBS_FRAME_CREDIT);
	rpwi_verbs_ops_pump(ep);
	if (ep->state == VERBS_EP_UP && ep->want_room && can_send(ep)) {
		ep->want_room = false;
		ep->t->base.up->room(ep->base.user);
	}
}
