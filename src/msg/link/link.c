/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c - frames kept until acknowledged, frames that go again on the next path, answers that
 * wait, and bodies that come in parts. */
#include "msg/link/link.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A counted frame on a path that may break, until the peer has acknowledged it. */
struct link_kept {
	struct rpwi_list link;
	struct frame_head head;
	uint16_t extra;         /* of the head, beyond frame_head: the first bytes of body */
	bool anew : 1;          /* the body is made anew for each path */
	bool borrowed : 1;      /* the body is, or was, its owner's */
	bool pooled : 1;        /* goes to group->spare */
	uint32_t len;           /* of body here, or of the owner's */
	struct link_keep *keep; /* NULL: copied, or its owner has forgotten it */
	uint8_t body[];
};

/* What most frames need, a line of a core's cache each. */
enum { POOLED_BYTES = 64, POOLED_BODY = POOLED_BYTES - sizeof(struct link_kept), CHUNK = 63 };
struct link_chunk {
	_Alignas(POOLED_BYTES) struct link_chunk *next;
	_Alignas(POOLED_BYTES) uint8_t kept[CHUNK][POOLED_BYTES];
};

/* An answer that did not go at once. */
struct reply {
	struct rpwi_list link;
	uint8_t type, flags;
	uint64_t tag;
	uint32_t len;
	uint8_t body[REPLY_BODY_MAX];
};

/* A head, as it goes. */
struct head {
	struct frame_head h;
	uint8_t extra[LINK_EXTRA_MAX];
};

static const struct iovec nothing;

void link_init(struct link *l, struct link_group *group)
{
	*l = (struct link){.group = group};
	struct rpwi_list *lists[] = {&l->queue, &l->replies, &l->log, &l->late};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	group->links++;
}

void link_breach(struct link *l, const char *fmt, ...)
{
	char what[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	l->group->up->breach(l, what);
}

/* ---- what is kept ---- */

static bool spares_make(struct link_group *g)
{
	struct link_chunk *c = aligned_alloc(_Alignof(struct link_chunk), sizeof(*c));
	if (!c)
		return false;
	c->next = g->chunks;
	g->chunks = c;
	for (int i = 0; i < CHUNK; i++) {
		struct link_kept *k = (struct link_kept *)c->kept[i];
		k->link.next = g->spare;
		g->spare = &k->link;
	}
	return true;
}

/* The one that was freed last is in the cache. */
static struct link_kept *kept_of(struct link_group *g, size_t body)
{
	bool pooled = body <= POOLED_BODY;
	struct link_kept *k;
	if (RPWI_LIKELY(pooled)) {
		if (RPWI_UNLIKELY(!g->spare) && !spares_make(g))
			return NULL;
		k = RPWI_CONTAINER_OF(g->spare, struct link_kept, link);
		g->spare = k->link.next;
	} else {
		k = malloc(sizeof(*k) + body);
	}
	if (k)
		k->pooled = pooled;
	return k;
}

static void kept_free(struct link_group *g, struct link_kept *k)
{
	if (!k || !k->pooled) {
		free(k);
		return;
	}
	k->link.next = g->spare;
	g->spare = &k->link;
}

void link_group_fini(struct link_group *g)
{
	for (struct link_chunk *c = g->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	g->chunks = NULL;
	g->spare = NULL;
}

static struct link_kept *kept_new(struct link_group *g, const struct frame *f,
	const struct frame_head *h, struct link_keep *keep)
{
	size_t copied = keep ? 0 : f->len;
	struct link_kept *k = kept_of(g, f->extra_len + copied);
	if (!k)
		return NULL;
	k->head = *h;
	k->extra = (uint16_t)f->extra_len;
	k->anew = keep && f->anew;
	k->borrowed = keep && !f->anew;
	k->len = (uint32_t)f->len;
	k->keep = keep;
	uint8_t *to = k->body;
	if (f->extra_len)
		memcpy(to, f->extra, f->extra_len);
	to += f->extra_len;
	for (int i = 0; copied && i < f->iovcnt; to += f->iov[i++].iov_len)
		memcpy(to, f->iov[i].iov_base, f->iov[i].iov_len);
	return k;
}

static bool log_is_full(const struct link *l)
{
	return l->log_bytes >= LOG_BYTES_MAX || l->log_frames >= LOG_FRAMES_MAX;
}

static size_t copied_bytes(const struct link_kept *k)
{
	return k->anew || k->borrowed ? 0 : k->len;
}

static void log_add(struct link *l, struct link_kept *k)
{
	rpwi_list_add_tail(&l->log, &k->link);
	l->log_bytes += copied_bytes(k);
	l->log_frames++;
	l->log_kept += k->borrowed;
	if (k->keep)
		k->keep->in = k;
}

/* The first of the log. */
static void log_drop(struct link *l)
{
	struct link_kept *k = RPWI_CONTAINER_OF(rpwi_list_pop(&l->log), struct link_kept, link);
	if (l->resending == &k->link) {
		l->resending = rpwi_list_empty(&l->log) ? NULL : l->log.next;
		l->resent = 0;
	}
	l->log_bytes -= copied_bytes(k);
	l->log_frames--;
	l->log_kept -= k->borrowed;
	struct link_keep *keep = k->keep;
	kept_free(l->group, k);
	if (keep) {
		keep->in = NULL;
		l->group->up->delivered(keep);
	}
}

void link_forget(struct link_keep *keep)
{
	if (keep->in)
		keep->in->keep = NULL;
	keep->in = NULL;
}

/* ---- sending ---- */

static int kept_until_acknowledged(
	struct link *l, const struct frame *f, struct frame_head *h, struct link_kept **out)
{
	/* an acknowledgement is due: it comes each ACK_FRAMES or ACK_BYTES */
	if (log_is_full(l))
		return RPWI_LATER;
	struct link_keep *keep = f->keep && (f->anew || f->len > LOG_COPY_MAX) ? f->keep : NULL;
	if (keep && !f->anew)
		h->flags |= FRAME_ACK_SOON;
	*out = kept_new(l->group, f, h, keep);
	return *out ? 0 : RPW_ERR_NO_MEMORY;
}

static void head_said(struct link *l, const struct frame_head *h)
{
	l->rx_told = h->credit;
	l->ack_said = l->rx_count;
	l->unacked_bytes = 0;
}

int link_send(struct link *l, const struct frame *f)
{
	if (!l->open || l->resending)
		return RPWI_LATER;
	struct head head;
	head.h = frame_head_make(f->type, f->flags, l->rx_count, l->rx_limit, f->tag);
	if (f->extra_len)
		memcpy(head.extra, f->extra, f->extra_len);
	struct link_kept *k = NULL;
	bool counted = frame_is_counted(f->type);
	int rc = l->breakable && counted ? kept_until_acknowledged(l, f, &head.h, &k) : 0;
	if (rc)
		return rc;
	const struct iovec *iov = f->iovcnt ? f->iov : &nothing;
	l->te->under_way = l->log_frames;
	l->te->stays = k && k->borrowed && f->stays;
	rc = l->ops->send(l->te, &head, sizeof(head.h) + f->extra_len, iov, f->iovcnt, f->len);
	l->te->under_way = 0;
	l->te->stays = false;
	if (RPWI_UNLIKELY(rc)) {
		kept_free(l->group, k);
		if (rc != RPWI_LATER)
			l->group->up->lost(l);
		return RPWI_LATER;
	}
	head_said(l, &head.h);
	l->tx_count += counted;
	l->tx_used += f->units;
	if (k)
		log_add(l, k);
	return 0;
}

void link_say(struct link *l, uint32_t need)
{
	if (!link_send(l, &(struct frame){.type = FRAME_CREDIT, .tag = need}))
		return;
	if (need)
		l->need_said = false; /* whoever waits asks again */
	else
		l->head_owed = true;
}

void link_ack_now(struct link *l)
{
	rpwi_list_del(&l->late);
	if (l->breakable && l->open && l->rx_count != l->ack_said)
		link_say(l, 0);
}

int link_late_acks(struct link_group *group)
{
	int n = 0;
	for (; !rpwi_list_empty(&group->late); n++)
		link_ack_now(RPWI_CONTAINER_OF(group->late.next, struct link, late));
	return n;
}

/* ---- answers ---- */

void link_reply(
	struct link *l, unsigned type, unsigned flags, uint64_t tag, const void *body, size_t len)
{
	if (l->ended)
		return;
	struct iovec iov = {(void *)body, len};
	struct frame f = {.type = (uint8_t)type,
		.flags = (uint8_t)flags,
		.tag = tag,
		.iov = &iov,
		.iovcnt = len ? 1 : 0,
		.len = len};
	if (rpwi_list_empty(&l->replies) && !link_send(l, &f))
		return;
	struct reply *p = l->reply_count < REPLIES_MAX ? malloc(sizeof(*p)) : NULL;
	if (!p) {
		link_breach(l, "the peer does not read its replies (%zu pending)", l->reply_count);
		return;
	}
	p->type = f.type;
	p->flags = f.flags;
	p->tag = tag;
	p->len = (uint32_t)len;
	if (len)
		memcpy(p->body, body, len);
	rpwi_list_add_tail(&l->replies, &p->link);
	l->reply_count++;
	l->fast = false;
}

static bool replies_go(struct link *l)
{
	while (!rpwi_list_empty(&l->replies)) {
		struct reply *p = RPWI_CONTAINER_OF(l->replies.next, struct reply, link);
		struct iovec iov = {p->body, p->len};
		struct frame f = {.type = p->type,
			.flags = p->flags,
			.tag = p->tag,
			.iov = &iov,
			.iovcnt = p->len ? 1 : 0,
			.len = p->len};
		if (link_send(l, &f))
			return false;
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&l->replies), struct reply, link));
		l->reply_count--;
	}
	return true;
}

bool link_work(struct link *l)
{
	if (l->head_owed) {
		l->head_owed = false;
		link_say(l, 0);
	}
	return replies_go(l);
}

/* ---- the next path: frames that did not arrive go again ---- */

static int send_again(
	struct link *l, const struct frame_head *h, const struct link_kept *k, size_t at, size_t n)
{
	struct head head = {.h = *h};
	struct link_body body;
	body.iov = (struct iovec){(void *)(k->body + k->extra + at), n};
	body.flat = NULL;
	size_t extra = h->type == FRAME_PART ? 0 : k->extra;
	head.h.ack = (uint16_t)l->rx_count;
	head.h.credit = l->rx_limit;
	memcpy(head.extra, k->body, extra);
	if (k->keep && k->anew)
		l->group->up->anew(k->keep, &body);
	else if (k->keep && n && !l->group->up->body(k->keep, at, n, &body))
		return RPW_ERR_NO_MEMORY;
	int rc = l->ops->send(l->te, &head, sizeof(head.h) + extra, &body.iov,
		body.iov.iov_len ? 1 : 0, body.iov.iov_len);
	free(body.flat);
	return rc;
}

/* How long a body is that goes again; nothing is left of one whose owner has forgotten it. */
static size_t length_again(const struct link_kept *k)
{
	return k->anew || (k->borrowed && !k->keep) ? 0 : k->len;
}

/* A body that was made for a path with larger frames goes in parts, the last of them with the frame
 * itself. */
static int resend(struct link *l, struct link_kept *k)
{
	/* A peer that says DONE between the parts of an object has ended its request, and nothing
	 * of it is left. */
	size_t len = RPWI_MAX(length_again(k), l->resent), most = l->te->limits.frame_max;
	struct frame_head h = {.type = FRAME_PART};
	int rc = 0;
	for (; !rc && len - l->resent > most; l->resent += rc ? 0 : most) {
		h.tag = l->resent;
		rc = send_again(l, &h, k, l->resent, most);
	}
	h = k->head;
	h.flags |= l->resent ? FRAME_PARTED : 0;
	if (!rc)
		rc = send_again(l, &h, k, l->resent, len - l->resent);
	if (!rc)
		l->resent = 0;
	else if (rc == RPW_ERR_NO_MEMORY)
		l->group->up->no_memory(
			l, "no memory to send again what the path before has not delivered");
	else if (rc != RPWI_LATER)
		l->group->up->lost(l);
	return rc;
}

bool link_resend(struct link *l)
{
	while (l->resending) {
		struct link_kept *k = RPWI_CONTAINER_OF(l->resending, struct link_kept, link);
		if (resend(l, k))
			return false;
		l->resending = k->link.next == &l->log ? NULL : k->link.next;
	}
	/* A path that does not break does not acknowledge either. */
	if (!l->breakable && !rpwi_list_empty(&l->log))
		link_acknowledged(l, l->tx_count);
	return true;
}

void link_resume(struct link *l, uint64_t peer_received)
{
	link_acknowledged(l, peer_received);
	l->resent = 0;
	l->resending = rpwi_list_empty(&l->log) ? NULL : l->log.next;
	l->head_owed = true;
	l->need_said = false;
}

void link_acknowledged(struct link *l, uint64_t count)
{
	bool was_full = log_is_full(l); /* then the owner may wait with what is in no queue */
	while (l->acked < count && !rpwi_list_empty(&l->log)) {
		l->acked++;
		log_drop(l);
	}
	l->acked = count;
	if (was_full || !rpwi_list_empty(&l->queue) || !rpwi_list_empty(&l->replies))
		l->group->up->work(l);
}

void link_close(struct link *l)
{
	l->open = l->fast = false;
	l->resending = NULL;
	link_parts_free(l);
}

void link_end(struct link *l)
{
	link_close(l);
	l->ended = true;
	RPWI_LIST_EACH (struct link_kept, k, &l->log, link)
		if (k->keep)
			link_forget(k->keep);
	while (!rpwi_list_empty(&l->log))
		log_drop(l);
	while (!rpwi_list_empty(&l->replies))
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&l->replies), struct reply, link));
	l->reply_count = 0;
}

void link_fini(struct link *l)
{
	rpwi_list_del(&l->late);
	l->group->pool_free += l->window;
	l->window = 0;
	l->group->links--;
}

/* ---- what comes ---- */

static uint64_t ack_frames(const struct link_group *g)
{
	unsigned share = ACK_FRAMES_ALL / RPWI_MAX(g->links, 1u);
	return RPWI_MAX(RPWI_MIN(share, (unsigned)ACK_FRAMES), (unsigned)ACK_FRAMES_LEAST);
}

/* Paths that may break: what the peer has, and whether to tell it what we have. */
bool link_took_acknowledged(struct link *l, const struct frame_head *h, size_t len)
{
	/* What the control path said (at a change of path, in a BYE) may be ahead of frames that
	 * are still under way. Fewer than 2^15 frames are unacknowledged. */
	int16_t more = (int16_t)(h->ack - (uint16_t)l->acked);
	uint64_t count = l->acked + (uint64_t)RPWI_MAX(more, 0);
	if (count > l->tx_count) {
		link_breach(l, "it acknowledges %llu frames, %llu were sent",
			(unsigned long long)count, (unsigned long long)l->tx_count);
		return false;
	}
	if (count != l->acked)
		link_acknowledged(l, count);
	if (!frame_is_counted(h->type))
		return true;
	l->unacked_bytes += len;
	if (l->rx_count - l->ack_said >= ack_frames(l->group) || l->unacked_bytes >= ACK_BYTES) {
		l->head_owed = true;
		l->group->up->work(l);
	} else if ((h->flags & FRAME_ACK_SOON) && h->type <= FRAME_AM && rpwi_list_empty(&l->late))
		rpwi_list_add_tail(&l->group->late,
			&l->late); /* an answer of the program's may carry it for nothing */
	return true;
}

/* Bounded by what the peer may have waiting here: the frame that follows pays for it. */
void link_part(struct link *l, const struct frame_head *h, const void *body, size_t len)
{
	size_t now = l->parts.len;
	if (h->tag != now || !len ||
		(int32_t)(l->rx_limit - l->rx_used - credit_units(now + len)) < 0) {
		link_breach(l,
			"part of a body, %zu bytes at %llu behind %zu, which is out of order or "
			"more than it was granted",
			len, (unsigned long long)h->tag, now);
		return;
	}
	uint8_t *p = realloc(l->parts.p, now + len);
	if (!p) {
		l->group->up->no_memory(l, "no memory for a message that came in parts");
		return;
	}
	memcpy(p + now, body, len);
	l->parts.p = p;
	l->parts.len = now + len;
}

bool link_whole(struct link *l, const struct frame_head *h, const void **body, size_t *len)
{
	if (h->type > FRAME_AM || !(h->flags & FRAME_PARTED)) {
		link_breach(l, "a frame of type %u between the parts of a body", h->type);
		return false;
	}
	size_t whole = l->parts.len + *len;
	struct frame_head part = {.type = FRAME_PART, .tag = l->parts.len};
	if (*len)
		link_part(l, &part, *body, *len);
	*body = l->parts.p;
	*len = l->parts.len;
	return l->parts.len == whole;
}

void link_parts_free(struct link *l)
{
	free(l->parts.p);
	l->parts.p = NULL;
	l->parts.len = 0;
}
