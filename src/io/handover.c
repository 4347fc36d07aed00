/* SPDX-License-Identifier: BSD-3-Clause */
/* handover.c - packets that landed at a process that does not own their QPN: on their way out to
 * their owner, and on their way in.
 *
 * A message carries records, each a run of segments of one flow. What the owner's socket has no
 * room for waits here, bounded, gathered into large messages: the queue of a Unix datagram socket
 * counts messages (net.unix.max_dgram_qlen, 10 by default), not bytes.
 *
 * Trust. A handed-over packet names its own source address, which the kernel vouches for of one
 * that comes by UDP. So it is taken only
 *   - over a connection from our own user (who.c), and
 *   - if we have asked for it (ROPEWAY_SHARE_PORT), from the user whose socket is bound to the
 *     packet's destination address: the kernel gives that user all packets for it anyway.
 * It is then trusted like one from the network: ICRC, peer and PSN are checked above.
 */
#include "io/io_priv.h"

#include <stdlib.h>
#include <unistd.h>

enum {
	MESSAGE_MAX = 2 * IO_GRO_BYTES_MAX,
	FIRST_ROOM = 4096,
	GATHER_MAX = IO_GRO_BYTES_MAX, /* a waiting message grows up to this */
	WAITING_BYTES_MAX = 8 << 20,
	RETRY_NS = 200000,
	HOLDER_FRESH_MS = 100,
};

struct waiting {
	struct waiting *next;
	size_t len, room;
	uint8_t *data;
};

/* What waits for one owner, in order. */
struct queue {
	struct queue *next;
	struct io_dest to;
	struct waiting *first, *last; /* never empty but while it is made */
};

struct rpwi_handover {
	/* out */
	struct queue *queues;
	size_t waiting_bytes;
	uint64_t retry_at_ns, lost;
	/* in: records not yet taken lie in buf[at..end) */
	uint8_t *buf;
	size_t at, end;
	struct rpwi_who from;
	uint64_t taken, distrusted;
	struct {
		struct rpwi_addr addr;
		uid_t uid;
		uint64_t at_ns;
		bool known;
	} holder; /* the last that was asked about */
};

struct rpwi_handover *rpwi_handover_new(void)
{
	struct rpwi_handover *h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->retry_at_ns = RPWI_NEVER;
	h->buf = malloc(MESSAGE_MAX);
	if (!h->buf) {
		free(h);
		return NULL;
	}
	return h;
}

/* The first of a queue. False: it was the last as well, and the queue is gone. */
static bool waiting_drop(struct rpwi_handover *h, struct queue **at)
{
	struct queue *q = *at;
	struct waiting *w = q->first;
	q->first = w->next;
	h->waiting_bytes -= w->room;
	free(w->data);
	free(w);
	if (q->first)
		return true;
	*at = q->next;
	free(q);
	return false;
}

void rpwi_handover_free(struct rpwi_handover *h)
{
	if (!h)
		return;
	rpwi_handover_forget(h);
	free(h->buf);
	free(h);
}

void rpwi_handover_forget(struct rpwi_handover *h)
{
	while (h->queues)
		waiting_drop(h, &h->queues);
	h->retry_at_ns = RPWI_NEVER;
	h->at = h->end = 0;
}

/* ---- out ---- */

static bool is_full(int rc) { return rc == -EAGAIN || rc == -ENOBUFS; }

static int send_message(
	struct rpwi_steer *s, const struct io_dest *to, const struct iovec *parts, unsigned n)
{
	struct io_msg m = {.type = IO_MSG_PACKETS};
	return rpwi_steer_tell(s, to, &m, parts, n);
}

static struct queue *queue_of(const struct rpwi_handover *h, const struct io_dest *to)
{
	for (struct queue *q = h->queues; q; q = q->next)
		if (rpwi_dest_eq(&q->to, to))
			return q;
	return NULL;
}

static struct waiting *waiting_new(struct rpwi_handover *h, size_t room)
{
	struct waiting *w =
		h->waiting_bytes + room <= WAITING_BYTES_MAX ? calloc(1, sizeof(*w)) : NULL;
	if (!w)
		return NULL;
	w->data = malloc(room);
	if (!w->data) {
		free(w);
		return NULL;
	}
	w->room = room;
	h->waiting_bytes += room;
	return w;
}

static struct queue *queue_new(struct rpwi_handover *h, const struct io_dest *to, size_t room)
{
	struct queue *q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->first = q->last = waiting_new(h, room);
	if (!q->first) {
		free(q);
		return NULL;
	}
	q->to = *to;
	q->next = h->queues;
	h->queues = q;
	return q;
}

/* Make room for one more record in a message that waits for that owner; the last one alone may
 * grow, so that order is kept. */
static uint8_t *waiting_room(struct rpwi_handover *h, const struct io_dest *to, size_t need)
{
	struct queue *q = queue_of(h, to);
	if (!q)
		q = queue_new(h, to, RPWI_MAX(need, (size_t)FIRST_ROOM));
	if (!q)
		return NULL;
	if (q->last->len + need > q->last->room) {
		/* many wait: a large one */
		struct waiting *w = waiting_new(h, RPWI_MAX(need, (size_t)GATHER_MAX));
		if (!w)
			return NULL;
		q->last->next = w;
		q->last = w;
	}
	q->last->len += need;
	return q->last->data + q->last->len - need;
}

int rpwi_handover_now(struct rpwi_handover *h, struct rpwi_steer *s, const struct io_dest *to,
	const struct io_packet *pkt, const void *data)
{
	const struct iovec parts[2] = {
		{(void *)(uintptr_t)pkt, sizeof(*pkt)}, {(void *)(uintptr_t)data, pkt->len}};
	return queue_of(h, to) ? -EAGAIN : send_message(s, to, parts, 2);
}

void rpwi_handover_pass(struct rpwi_handover *h, struct rpwi_steer *s, const struct io_dest *to,
	const struct io_packet *pkt, const void *data)
{
	int rc = rpwi_handover_now(h, s, to, pkt, data);
	if (!rc)
		return;
	uint8_t *at = is_full(rc) ? waiting_room(h, to, sizeof(*pkt) + pkt->len) : NULL;
	if (!at) {
		h->lost += (pkt->len + pkt->seg_len - 1) / pkt->seg_len;
		/* ECONNREFUSED: no process has that slot, or that service any more; EPERM: a
		 * stranger has. */
		rpwi_debug("packets for slot %u (0: for service 0x%llx) are lost: %s", to->slot,
			(unsigned long long)to->service_id, strerror(-rc));
		return;
	}
	memcpy(at, pkt, sizeof(*pkt));
	memcpy(at + sizeof(*pkt), data, pkt->len);
	if (h->retry_at_ns == RPWI_NEVER)
		h->retry_at_ns = rpwi_now_ns() + RETRY_NS;
}

/* What goes to that owner now. True: there is more; false: the queue is gone. */
static bool retry_queue(struct rpwi_handover *h, struct rpwi_steer *s, struct queue **at)
{
	for (;;) {
		const struct queue *q = *at;
		const struct iovec part = {q->first->data, q->first->len};
		if (is_full(send_message(s, &q->to, &part, 1)))
			return true;
		if (!waiting_drop(h, at))
			return false;
	}
}

/* In order for each owner; one that does not read holds up nobody else. */
void rpwi_handover_retry(struct rpwi_handover *h, struct rpwi_steer *s)
{
	for (struct queue **at = &h->queues; *at;) {
		if (retry_queue(h, s, at))
			at = &(*at)->next;
	}
	h->retry_at_ns = h->queues ? rpwi_now_ns() + RETRY_NS : RPWI_NEVER;
}

uint64_t rpwi_handover_retry_at(const struct rpwi_handover *h) { return h->retry_at_ns; }
uint64_t rpwi_handover_taken(const struct rpwi_handover *h) { return h->taken; }
uint64_t rpwi_handover_lost(const struct rpwi_handover *h) { return h->lost; }

/* ---- in ---- */

uint8_t *rpwi_handover_buf(struct rpwi_handover *h, size_t *room)
{
	*room = MESSAGE_MAX;
	return h->buf;
}

void rpwi_handover_arrived(struct rpwi_handover *h, const struct rpwi_who *who, size_t len)
{
	h->at = 0;
	h->end = len;
	h->from = *who;
}

/* Who holds the port of `a` now, asked at most every 100 ms for one address. */
static bool is_holder(struct rpwi_handover *h, const struct rpwi_addr *a, uid_t uid)
{
	uint64_t now = rpwi_now_ns();
	if (!rpwi_addr_eq(&h->holder.addr, a) ||
		now - h->holder.at_ns > HOLDER_FRESH_MS * RPWI_NS_PER_MS) {
		struct io_holder who;
		h->holder.known = !rpwi_holder_find(a, &who) && who.sockets;
		h->holder.uid = h->holder.known ? who.uid : 0;
		h->holder.addr = *a;
		h->holder.at_ns = now;
	}
	return h->holder.known && h->holder.uid == uid;
}

bool rpwi_handover_pending(const struct rpwi_handover *h) { return h->at < h->end; }

static bool well_formed(const struct io_packet *k)
{
	const struct rpwi_flow *f = &k->flow;
	return k->len && k->seg_len && k->seg_len <= k->len && f->dport == RPWI_UDP_PORT &&
	       f->src.family == f->dst.family && (f->dst.family == 4 || f->dst.family == 6);
}

bool rpwi_handover_next(struct rpwi_handover *h, struct rpwi_rx *rx)
{
	struct io_packet k;
	while (h->end - h->at >= sizeof(k)) {
		memcpy(&k, h->buf + h->at, sizeof(k));
		h->at += sizeof(k);
		if (!well_formed(&k) || k.len > h->end - h->at) {
			rpwi_debug("a message of user %u with packets is malformed", h->from.uid);
			break;
		}
		uint8_t *data = h->buf + h->at;
		h->at += k.len;
		if (!h->from.us && !(rpwi_who_shares() && is_holder(h, &k.flow.dst, h->from.uid))) {
			h->distrusted++;
			rpwi_debug("a packet handed over by user %u is rejected: that user does "
				   "not hold our port",
				h->from.uid);
			continue;
		}
		*rx = (struct rpwi_rx){.flow = k.flow,
			.ttl = k.ttl,
			.tos = k.tos,
			.data = data,
			.len = k.len,
			.seg_len = k.seg_len,
			.ip_id = k.ip_id};
		h->taken += (rx->len + rx->seg_len - 1) / rx->seg_len;
		return true;
	}
	h->at = h->end = 0;
	return false;
}
