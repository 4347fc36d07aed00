/* path.c - frames on the path that an endpoint has: numbered, logged where the path may break, sent again on the next one, acknowledged, dispatched.
 *
 * Exactly once: both sides count the frames of each direction. A breakable path's sender keeps each counted frame until the peer has said that it came (16 bits in every head, or an
 * ACK). When the path has broken both sides close it, tell each other over boot how many have come, and the sender goes on with the first that has not. Small bodies are copied for
 * that; longer ones stay in the program's buffer, and their request completes with the acknowledgement. */
#include "msg/msg.h"
#include "msg/stage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static bool counted(enum frame_type type) { return type <= FRAME_COUNTED_LAST; }
/* The body is made anew for each path. */
static bool described(enum frame_type type)
{
	return type == FRAME_RTS || type == FRAME_DESCRIBE || type == FRAME_CHUNK || type == FRAME_PUT || type == FRAME_GOT;
}

/* ---- sending ---- */

static void path_lost(rpw_endpoint *ep, int rc)
{
	rpwi_debug("%s: the path by %s took no frame: %s", ep->peer ? ep->peer : "peer", ep->ops->name, strerror(-rc));
	msg_todo(ep, TODO_PATH);
}

static struct logged *log_new(
	const struct frame_head *h, const void *extra, size_t extra_len, const struct iovec *iov, int iovcnt, size_t len, rpw_request *keeper)
{
	size_t copied = keeper ? 0 : len;
	struct logged *l = malloc(sizeof(*l) + extra_len + copied);
	if (!l)
		return NULL;
	l->head = *h;
	l->extra = (uint16_t)extra_len;
	l->len = (uint32_t)copied;
	l->r = keeper;
	l->kept = keeper && !described(h->type);
	memcpy(l->body, extra, extra_len);
	iov_gather(iov, iovcnt, 0, l->body + extra_len, copied);
	return l;
}

static bool log_is_full(const rpw_endpoint *ep) { return ep->log_bytes >= LOG_BYTES_MAX || ep->log_frames >= LOG_FRAMES_MAX; }

/* The first of the log. */
static void logged_drop(rpw_endpoint *ep)
{
	struct logged *l = RPWI_CONTAINER_OF(rpwi_list_pop(&ep->log), struct logged, link);
	if (ep->resending == &l->link) {
		ep->resending = rpwi_list_empty(&ep->log) ? NULL : ep->log.next;
		ep->resent = 0;
	}
	ep->log_bytes -= l->len;
	ep->log_frames--;
	ep->log_kept -= l->kept;
	rpw_request *r = l->r;
	if (r)
		r->logged = NULL;
	if (r && r->where == AT_LOG)
		req_complete(r, RPW_OK);
	free(l);
}

void path_log_free(rpw_endpoint *ep)
{
	while (!rpwi_list_empty(&ep->log)) {
		struct logged *l = RPWI_CONTAINER_OF(ep->log.next, struct logged, link);
		if (l->r)
			l->r->logged = NULL;
		l->r = NULL;
		logged_drop(ep);
	}
}

/* keeper: its buffer holds the body until it is acknowledged; then it becomes AT_LOG. An RTS has a keeper too, since it is described anew when it is sent again. */
int path_frame(rpw_endpoint *ep, enum frame_type type, unsigned flags, uint64_t tag, const void *extra, size_t extra_len, const struct iovec *iov, int iovcnt,
	size_t len, rpw_request *keeper)
{
	if (ep->state != EP_UP || ep->resending || ep->path_broken)
		return -EAGAIN;
	struct {
		struct frame_head h;
		uint8_t extra[RPW_AM_HEADER_MAX];
	} f;
	f.h = frame_head_make(type, flags, ep->rx_count, ep->rx_limit, tag);
	memcpy(f.extra, extra, extra_len);
	struct logged *l = NULL;
	bool keeps = false;
	if (ep->breakable && counted(type)) {
		if (log_is_full(ep))
			return -EAGAIN; /* an acknowledgement is due: it comes each ACK_FRAMES or ACK_BYTES */
		keeps = keeper && (len > LOG_COPY_MAX || described(type));
		if (keeps && !described(type))
			f.h.flags |= FRAME_ACK_SOON;
		l = log_new(&f.h, extra, extra_len, iov, iovcnt, len, keeps ? keeper : NULL);
		if (!l)
			return -ENOMEM;
	}
	int rc = ep->ops->send(ep->te, &f, sizeof(f.h) + extra_len, iov, iovcnt, len);
	if (RPWI_UNLIKELY(rc)) {
		free(l);
		if (rc != -EAGAIN)
			path_lost(ep, rc);
		return -EAGAIN;
	}
	ep->rx_told = f.h.credit;
	ep->ack_said = ep->rx_count;
	ep->unacked_bytes = 0;
	if (counted(type))
		ep->tx_count++;
	if (l) {
		rpwi_list_add_tail(&ep->log, &l->link);
		ep->log_bytes += l->len;
		ep->log_frames++;
		ep->log_kept += l->kept;
		if (keeps)
			keeper->logged = l;
		if (keeps && !described(type))
			keeper->where = AT_LOG;
	}
	return 0;
}

void path_uncounted(rpw_endpoint *ep, enum frame_type type, uint64_t tag)
{
	static const struct iovec nothing;
	if (ep->ops && !path_frame(ep, type, 0, tag, "", 0, &nothing, 0, 0, NULL))
		return;
	if (type == FRAME_ACK)
		ep->ack_owed = true;
	else if (type == FRAME_CREDIT)
		ep->credit_owed = true;
	else
		ep->need_said = false; /* whoever waits asks again */
}

void path_ack_now(rpw_endpoint *ep)
{
	rpwi_list_del(&ep->late);
	if (ep->breakable && ep->state == EP_UP && ep->rx_count != ep->ack_said)
		path_uncounted(ep, FRAME_ACK, 0);
}

int path_late_acks(rpw_context *c)
{
	int n = 0;
	for (; !rpwi_list_empty(&c->late); n++)
		path_ack_now(RPWI_CONTAINER_OF(c->late.next, rpw_endpoint, late));
	return n;
}

void path_reply(rpw_endpoint *ep, enum frame_type type, unsigned flags, uint64_t tag, const void *body, size_t len)
{
	if (ep->state == EP_FAILED)
		return;
	struct iovec iov = {(void *)body, len};
	if (ep->ops && rpwi_list_empty(&ep->replies) && !path_frame(ep, type, flags, tag, "", 0, &iov, len ? 1 : 0, len, NULL))
		return;
	struct reply *p = ep->reply_count < REPLIES_MAX ? malloc(sizeof(*p)) : NULL;
	if (!p) {
		ep_breach(ep, "it asks, and takes no answers: %zu are owed to it", ep->reply_count);
		return;
	}
	p->type = (uint8_t)type;
	p->flags = (uint8_t)flags;
	p->tag = tag;
	p->len = (uint32_t)len;
	if (len)
		memcpy(p->body, body, len);
	rpwi_list_add_tail(&ep->replies, &p->link);
	ep->reply_count++;
	ep->fast = false;
}

static bool replies_go(rpw_endpoint *ep)
{
	while (!rpwi_list_empty(&ep->replies)) {
		struct reply *p = RPWI_CONTAINER_OF(ep->replies.next, struct reply, link);
		struct iovec iov = {p->body, p->len};
		if (path_frame(ep, p->type, p->flags, p->tag, "", 0, &iov, p->len ? 1 : 0, p->len, NULL))
			return false;
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&ep->replies), struct reply, link));
		ep->reply_count--;
	}
	return true;
}

/* ---- the next path: what did not arrive goes again ---- */

/* n bytes of a logged body, from `at` on, in one piece. The memory to be freed, if any was needed. */
static bool logged_piece(const struct logged *l, size_t at, size_t n, struct iovec *one, void **flat)
{
	*flat = NULL;
	*one = (struct iovec){0};
	if (!n)
		return true;
	if (!l->r) {
		*one = (struct iovec){(uint8_t *)l->body + l->extra + at, n};
		return true;
	}
	if (l->r->iovcnt == 1) {
		*one = (struct iovec){l->r->buf + at, n};
		return true;
	}
	*flat = malloc(n);
	*one = (struct iovec){*flat, n};
	return *flat && iov_gather(l->r->iov, l->r->iovcnt, at, *flat, n) == n;
}

static int send_again(rpw_endpoint *ep, const struct frame_head *h, const struct logged *l, size_t at, size_t n)
{
	struct {
		struct frame_head h;
		uint8_t extra[RPW_AM_HEADER_MAX];
	} f;
	size_t extra = h->type == FRAME_PART ? 0 : l->extra;
	uint8_t rts[RTS_BODY_MAX];
	struct iovec one;
	void *flat = NULL;
	f.h = *h;
	f.h.ack = (uint16_t)ep->rx_count;
	f.h.credit = ep->rx_limit;
	memcpy(f.extra, l->body, extra);
	if (described(h->type) && l->r) {
		n = rndv_describe(l->r, rts);
		one = (struct iovec){rts, n};
	} else if (!logged_piece(l, at, n, &one, &flat))
		return -ENOMEM;
	int rc = ep->ops->send(ep->te, &f, sizeof(f.h) + extra, &one, n ? 1 : 0, n);
	free(flat);
	return rc;
}

/* A body that was made for a path with larger frames goes in parts, the last of them with the frame itself. */
static int resend(rpw_endpoint *ep, struct logged *l)
{
	size_t len = !l->r ? l->len : described(l->head.type) ? 0 : l->r->len, most = ep->te->limits.frame_max;
	struct frame_head h = {.type = FRAME_PART};
	int rc = 0;
	len = RPWI_MAX(len, ep->resent); /* a peer that says FIN between the parts of an object has ended its request, and nothing of it is left */
	for (; !rc && len - ep->resent > most; ep->resent += rc ? 0 : most) {
		h.tag = ep->resent;
		rc = send_again(ep, &h, l, ep->resent, most);
	}
	h = l->head;
	h.flags |= ep->resent ? FRAME_PARTED : 0;
	if (!rc)
		rc = send_again(ep, &h, l, ep->resent, len - ep->resent);
	if (!rc)
		ep->resent = 0;
	else if (rc == -ENOMEM) {
		ep->status = RPW_ERR_NO_MEMORY;
		ep_say_why(ep, "no memory to send again what the path before has not delivered");
		msg_todo(ep, TODO_FAIL);
	} else if (rc != -EAGAIN)
		path_lost(ep, rc);
	return rc;
}

static bool resends_go(rpw_endpoint *ep)
{
	while (ep->resending) {
		struct logged *l = RPWI_CONTAINER_OF(ep->resending, struct logged, link);
		if (resend(ep, l))
			return false;
		ep->resending = l->link.next == &ep->log ? NULL : l->link.next;
	}
	/* A path that does not break does not acknowledge either. */
	if (!ep->breakable && !rpwi_list_empty(&ep->log))
		path_acknowledged(ep, ep->tx_count);
	return true;
}

void path_resume(rpw_endpoint *ep, uint64_t peer_received)
{
	path_acknowledged(ep, peer_received);
	ep->resent = 0;
	ep->resending = rpwi_list_empty(&ep->log) ? NULL : ep->log.next;
	ep->ack_owed = ep->credit_owed = true;
	ep->need_said = false;
	uint64_t in_log = ep->log_frames;
	/* What the peer already knows as an RTS, it can fetch by the new path only if it is described for it. Those still in the log are, when they are sent again. */
	rndv_describe_all(ep);
	rpwi_debug("%s: goes on by %s; %llu frames are sent again", ep->peer, ep->ops->name, (unsigned long long)in_log);
	msg_todo(ep, TODO_SEND | TODO_AM); /* whose turn it became while there was no path has it now */
}

void path_acknowledged(rpw_endpoint *ep, uint64_t count)
{
	bool was_full = log_is_full(ep); /* then a flush or a description may wait, which are in no queue */
	while (ep->acked < count && !rpwi_list_empty(&ep->log)) {
		ep->acked++;
		logged_drop(ep);
	}
	ep->acked = count;
	if (was_full || !rpwi_list_empty(&ep->queue) || !rpwi_list_empty(&ep->replies))
		msg_todo(ep, TODO_SEND);
}

/* ---- everything that may go now ---- */

static int begin(rpw_request *r)
{
	static int (*const begin_of[])(rpw_request *) = {
		[REQ_SEND] = tag_send_begin,
		[REQ_OBJECT] = object_send_begin,
		[REQ_AM] = am_send_begin,
		[REQ_RMA] = rma_begin,
		[REQ_ATOMIC] = rma_atomic_begin,
		[REQ_FLUSH] = rma_flush_begin,
		[REQ_FENCE] = rma_fence_begin,
		[REQ_CHUNK] = stage_chunk_begin,
		[REQ_SERVE_GET] = stage_got_begin,
	};
	return begin_of[r->kind](r);
}

int path_begin(rpw_request *r) { return begin(r); }

static void queue_go(rpw_endpoint *ep)
{
	while (!rpwi_list_empty(&ep->queue)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->queue.next, rpw_request, link);
		rpwi_list_del(&r->link);
		r->where = AT_NONE;
		int rc = begin(r);
		if (rc == -EAGAIN) {
			r->where = AT_QUEUE;
			r->link.next = ep->queue.next;
			r->link.prev = &ep->queue;
			ep->queue.next->prev = &r->link;
			ep->queue.next = &r->link;
			return;
		}
	}
}

static void fetches_go(rpw_endpoint *ep)
{
	for (struct rpwi_list *n = ep->fetching.next, *next; n != &ep->fetching; n = next) {
		next = n->next;
		rma_go(RPWI_CONTAINER_OF(n, rpw_request, link));
	}
}

void path_work(rpw_endpoint *ep)
{
	if (!resends_go(ep) || !rndv_describe_go(ep))
		return;
	if (ep->credit_owed) {
		ep->credit_owed = false;
		path_uncounted(ep, FRAME_CREDIT, 0);
	}
	if (ep->ack_owed) {
		ep->ack_owed = false;
		path_uncounted(ep, FRAME_ACK, 0);
	}
	if (replies_go(ep)) {
		fetches_go(ep);
		stage_work(ep);
		queue_go(ep);
	}
	rma_settle(ep);
	rma_flush_look(ep);
	ep_refresh(ep);
}

/* ---- what comes ---- */

static void on_tag(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	tag_arrived(ep, h->tag, body, len);
}
static void on_object(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	object_arrived(ep, h->tag, body, len);
}
static void on_am(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	am_arrived(ep, h->tag, extra, extra_len, body, len);
}
static bool pays(rpw_endpoint *ep, uint32_t units)
{
	ep->rx_used += units;
	if (RPWI_LIKELY((int32_t)(ep->rx_limit - ep->rx_used) >= 0))
		return true;
	ep_breach(ep, "it sent more than it was granted (%u units)", ep->window);
	return false;
}
static void on_rts(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	struct rts *rts = rndv_parse(body, len);
	if (!rts) {
		ep_breach(ep, "an RTS of %zu bytes that does not add up", len);
		return;
	}
	uint32_t units = credit_units_rts(rts->pieces, rts->am_header_len);
	if (!pays(ep, units))
		free(rts);
	else if (h->flags == RTS_TAG)
		tag_offered(ep, h->tag, rts, units);
	else if (h->flags == RTS_OBJECT)
		object_offered(ep, rts, units);
	else if (h->flags == RTS_AM)
		am_offered(ep, h->tag, rts, units);
	else {
		free(rts);
		ep_breach(ep, "an RTS of kind %u", h->flags);
	}
}
/* The other offers: those of staging. */
static void on_offer(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	struct rts *rts = rndv_parse(body, len);
	if (!rts)
		ep_breach(ep, "an offer of %zu bytes that does not add up", len);
	else if (h->type == FRAME_CHUNK)
		stage_chunk(ep, h->tag, rts);
	else if (h->type == FRAME_PUT)
		stage_put_arrived(ep, extra, extra_len, rts);
	else
		stage_got(ep, h->tag, rts);
}
static void on_pull(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	stage_pulled(ep, h->tag);
}
static void on_stop(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	stage_stopped(ep, h->tag, h->flags);
}
static void on_get(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	stage_get_arrived(ep, h->tag, body, len);
}
static void on_fin(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	rndv_finished(ep, h->tag, h->flags);
}
static void on_withdraw(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	rndv_withdrawn(ep, h->tag);
}
static void on_describe(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	rndv_described(ep, body, len);
}
static void on_invite(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	landing_invited(ep, h->tag, body, len);
}
static void on_placed(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	landing_placed(ep, h->tag, h->flags);
}
/* The peer has waited for its device; the GPU has its own idea of when bytes are there. */
static bool puts_landed(rpw_endpoint *ep)
{
	int status = RPWI_LIKELY(rpwi_list_empty(&ep->c->gpus)) ? 0 : direct_flush(ep->c);
	if (status) {
		ep->status = status;
		ep_say_why(ep, rpwi_fail_text());
		msg_todo(ep, TODO_FAIL);
	}
	return !status;
}
static void on_notify(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	uint64_t n;
	if (len != sizeof(n)) {
		ep_breach(ep, "a notification with %zu bytes", len);
		return;
	}
	memcpy(&n, body, sizeof(n));
	if (!puts_landed(ep))
		return;
	if (ep->c->notify_fn) {
		ep->c->notify_fn(ep, h->tag, (size_t)n, ep->c->notify_arg);
	}
}
static void on_flush(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	if (puts_landed(ep))
		path_reply(ep, FRAME_FLUSHED, 0, h->tag, NULL, 0);
}
static void on_flushed(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	rpw_request *r = slots_get(&ep->c->numbers, h->tag);
	if (r && r->ep == ep && r->kind == REQ_FLUSH) {
		r->answered = true;
		msg_todo(ep, TODO_SEND);
	}
}
static void on_atomic(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	rma_atomic_arrived(ep, h->tag, body, len);
}
static void on_atomic_done(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	rma_atomic_done(ep, h->tag, h->flags, body, len);
}
static void on_head_only(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len) {}
/* Bounded by what the peer may have waiting here: the frame that follows pays for it. */
static void on_part(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	size_t now = ep->parts.len;
	if (h->tag != now || !len || (int32_t)(ep->rx_limit - ep->rx_used - credit_units(now + len)) < 0) {
		ep_breach(ep, "part of a body, %zu bytes at %llu behind %zu, which is out of order or more than it was granted", len,
			(unsigned long long)h->tag, now);
		return;
	}
	uint8_t *p = realloc(ep->parts.p, now + len);
	if (!p) {
		ep->status = RPW_ERR_NO_MEMORY;
		ep_say_why(ep, "no memory for a message that came in parts");
		msg_todo(ep, TODO_FAIL);
		return;
	}
	memcpy(p + now, body, len);
	ep->parts.p = p;
	ep->parts.len = now + len;
}
static void on_need(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	credit_needed(ep, h->tag);
}

static const struct {
	void (*fn)(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len);
	bool pays; /* for its body */
} handlers[FRAME_TYPES] = {
	[FRAME_TAG] = {on_tag, true},
	[FRAME_OBJECT] = {on_object, true},
	[FRAME_AM] = {on_am, true},
	[FRAME_RTS] = {on_rts, false},
	[FRAME_FIN] = {on_fin, false},
	[FRAME_WITHDRAW] = {on_withdraw, false},
	[FRAME_DESCRIBE] = {on_describe, false},
	[FRAME_NOTIFY] = {on_notify, false},
	[FRAME_FLUSH] = {on_flush, false},
	[FRAME_FLUSHED] = {on_flushed, false},
	[FRAME_ATOMIC] = {on_atomic, false},
	[FRAME_ATOMIC_DONE] = {on_atomic_done, false},
	[FRAME_PULL] = {on_pull, false},
	[FRAME_CHUNK] = {on_offer, false},
	[FRAME_STOP] = {on_stop, false},
	[FRAME_PUT] = {on_offer, false},
	[FRAME_GET] = {on_get, false},
	[FRAME_GOT] = {on_offer, false},
	[FRAME_PLACED] = {on_placed, false},
	[FRAME_INVITE] = {on_invite, false},
	[FRAME_CREDIT] = {on_head_only, false},
	[FRAME_NEED] = {on_need, false},
	[FRAME_ACK] = {on_head_only, false},
	[FRAME_PART] = {on_part, false},
};

static uint64_t ack_frames(const rpw_context *c)
{
	unsigned share = ACK_FRAMES_ALL / RPWI_MAX(c->stat.endpoints, 1u);
	return RPWI_MAX(RPWI_MIN(share, (unsigned)ACK_FRAMES), (unsigned)ACK_FRAMES_LEAST);
}

/* Breakable paths: what the peer has, and whether to tell it what we have. */
static bool acknowledge(rpw_endpoint *ep, const struct frame_head *h, size_t len)
{
	/* What the control path said (at a change of path, in a BYE) may be ahead of frames that are still under way. Fewer than 2^15 frames are unacknowledged. */
	int16_t more = (int16_t)(h->ack - (uint16_t)ep->acked);
	uint64_t count = ep->acked + (uint64_t)RPWI_MAX(more, 0);
	if (count > ep->tx_count) {
		ep_breach(ep, "it acknowledges %llu frames, %llu were sent", (unsigned long long)count, (unsigned long long)ep->tx_count);
		return false;
	}
	if (count != ep->acked)
		path_acknowledged(ep, count);
	if (!counted(h->type))
		return true;
	ep->unacked_bytes += len;
	if (ep->rx_count - ep->ack_said >= ack_frames(ep->c) || ep->unacked_bytes >= ACK_BYTES) {
		ep->ack_owed = true;
		msg_todo(ep, TODO_SEND);
	} else if ((h->flags & FRAME_ACK_SOON) && h->type != FRAME_RTS && rpwi_list_empty(&ep->late))
		rpwi_list_add_tail(&ep->c->late, &ep->late); /* an answer of the program's may carry it for nothing */
	return true;
}

static inline void frame_came(rpw_endpoint *ep, const struct frame_head *h, unsigned type, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	if ((type == FRAME_TAG || handlers[type].pays) && !pays(ep, credit_units(len)))
		return;
	if (type == FRAME_TAG)
		tag_arrived(ep, h->tag, body, len);
	else
		handlers[type].fn(ep, h, extra, extra_len, body, len);
}

void path_parts_free(rpw_endpoint *ep)
{
	free(ep->parts.p);
	ep->parts.p = NULL;
	ep->parts.len = 0;
}

/* The last bytes of a body that came in parts. */
static void whole_frame_came(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	if (h->type > FRAME_AM || !(h->flags & FRAME_PARTED)) {
		ep_breach(ep, "a frame of type %u between the parts of a body", h->type);
		return;
	}
	struct frame_head part = {.type = FRAME_PART, .tag = ep->parts.len};
	if (len)
		on_part(ep, &part, NULL, 0, body, len);
	if (!(ep->todo & TODO_FAIL))
		frame_came(ep, h, h->type, extra, extra_len, ep->parts.p, ep->parts.len);
	path_parts_free(ep);
}

/* `type` is the head's; where it is known when this is compiled, little is left. */
static inline __attribute__((always_inline)) void take(
	rpw_endpoint *ep, const struct frame_head *h, unsigned type, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	if (counted(type))
		ep->rx_count++;
	if ((int32_t)(h->credit - ep->tx_limit) > 0) {
		ep->tx_limit = h->credit;
		ep->need_said = false;
		if (RPWI_UNLIKELY(!rpwi_list_empty(&ep->queue)))
			msg_todo(ep, TODO_SEND);
	}
	if (ep->breakable && !acknowledge(ep, h, len))
		return;
	if (RPWI_UNLIKELY(ep->parts.p && type != FRAME_PART))
		whole_frame_came(ep, h, extra, extra_len, body, len);
	else
		frame_came(ep, h, type, extra, extra_len, body, len);
	if (RPWI_UNLIKELY(ep->bye_heard) && ep->rx_count >= ep->peer_sent)
		msg_todo(ep, TODO_FAIL);
}

void path_up_frame(void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	rpw_endpoint *ep = user;
	struct frame_head h;
	if (RPWI_UNLIKELY(ep->state != EP_UP)) {
		if (ep->state != EP_CHOOSING || !ep->self_ready)
			return;
		connect_peer_talks(ep);
	}
	if (RPWI_UNLIKELY(ep->todo & (TODO_FAIL | TODO_CLOSE)))
		return;
	if (RPWI_UNLIKELY(head_len < sizeof(h))) {
		ep_breach(ep, "a frame with a head of %zu bytes", head_len);
		return;
	}
	memcpy(&h, head, sizeof(h));
	const uint8_t *extra = (const uint8_t *)head + sizeof(h);
	if (RPWI_LIKELY(h.type == FRAME_TAG))
		take(ep, &h, FRAME_TAG, extra, head_len - sizeof(h), body, body_len);
	else if (RPWI_UNLIKELY(h.type >= FRAME_TYPES || !handlers[h.type].fn))
		ep_breach(ep, "a frame of type %u", h.type);
	else
		take(ep, &h, h.type, extra, head_len - sizeof(h), body, body_len);
}

void path_up_room(void *user)
{
	rpw_endpoint *ep = user;
	msg_todo(ep, TODO_SEND);
}

void path_up_failed(void *user, int status, const char *why)
{
	rpw_endpoint *ep = user;
	rpwi_debug("%s: the path by %s broke: %s", ep->peer ? ep->peer : "peer", ep->ops->name, why);
	ep->path_broken = true;
	if (status == RPW_ERR_PEER_GONE && !ep->breakable) {
		ep->status = status;
		ep_say_why(ep, why);
		connect_await_word(ep);
	} else if (ep->bye_heard || ep->gone_heard)
		msg_todo(ep, TODO_FAIL);
	else if (status == RPW_ERR_PROTOCOL && (ep->ops->caps & TRAN_SEALS) && boot_has_key(ep->c->boot)) {
		/* Somebody between the two changes what is sent: no other path mends that, and it is to be heard of. */
		char text[480];
		snprintf(text, sizeof(text), "what came from %s by %s was changed on its way, or is not of its making: %.300s", ep->peer, ep->ops->name, why);
		ep->status = status;
		ep_say_why(ep, text);
		rpwi_fail(status, "%s", text);
		msg_todo(ep, TODO_FAIL);
	} else
		msg_todo(ep, TODO_PATH);
}
