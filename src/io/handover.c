/* handover.c - packets that landed at a process that does not own their QPN: on their way out to their owner, and on their way in.
 *
 * A message carries records, each a run of segments of one flow. What the owner's socket has no room for waits here, bounded, gathered into large messages: the queue of a
 * Unix datagram socket counts messages (net.unix.max_dgram_qlen, 10 by default), not bytes.
 *
 * Trust. Anyone on this host can send to an abstract socket, as anyone can send UDP packets to port 4791; but a handed-over packet names its own source address.
 * So it is taken, on the kernel's word (SCM_CREDENTIALS, unix(7)), only from
 *   - our own user and root, and
 *   - the user whose socket is bound to the packet's destination address: the kernel gives that user all packets for it anyway.
 * It is then trusted like one from the network: ICRC, peer and PSN are checked above.
 */
#include "io/io_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	MESSAGE_MAX = 2 * IO_GRO_BYTES_MAX,
	GATHER_MAX = IO_GRO_BYTES_MAX, /* a waiting message grows up to this */
	WAITING_BYTES_MAX = 8 << 20,
	RETRY_NS = 200000,
	HOLDER_FRESH_MS = 100,
};

struct waiting {
	struct waiting *next;
	uint16_t slot;
	size_t len, room;
	uint8_t *data;
};

struct rpwi_handover {
	/* out */
	struct waiting *first;
	struct waiting **last;
	size_t waiting_bytes;
	uint64_t retry_at_ns, lost;
	/* in: records not yet taken lie in buf[at..end) */
	uint8_t *buf;
	size_t at, end;
	uid_t uid;
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
	h->last = &h->first;
	h->retry_at_ns = RPWI_NEVER;
	h->buf = malloc(MESSAGE_MAX);
	if (!h->buf) {
		free(h);
		return NULL;
	}
	return h;
}

static void waiting_drop(struct rpwi_handover *h, struct waiting **at)
{
	struct waiting *w = *at;
	*at = w->next;
	if (h->last == &w->next)
		h->last = at;
	h->waiting_bytes -= w->room;
	free(w->data);
	free(w);
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
	while (h->first)
		waiting_drop(h, &h->first);
	h->retry_at_ns = RPWI_NEVER;
	h->at = h->end = 0;
}

/* ---- out ---- */

static bool is_full(int rc) { return rc == -EAGAIN || rc == -ENOBUFS; }

static int send_message(struct rpwi_steer *s, uint16_t slot, const struct iovec *parts, unsigned n)
{
	struct io_msg m = {.type = IO_MSG_PACKETS};
	return rpwi_steer_tell(s, slot, &m, parts, n, -1);
}

/* Make room for one more record in a message that waits for that slot; the last one alone may grow, so that order is kept. */
static uint8_t *waiting_room(struct rpwi_handover *h, uint16_t slot, size_t need)
{
	struct waiting *w = NULL;
	for (struct waiting *i = h->first; i; i = i->next)
		if (i->slot == slot)
			w = i;
	if (!w || w->len + need > w->room) {
		size_t room = RPWI_MAX(need, (size_t)(w ? GATHER_MAX : 4096)); /* many wait: a large one */
		if (h->waiting_bytes + room > WAITING_BYTES_MAX || !(w = calloc(1, sizeof(*w))))
			return NULL;
		w->data = malloc(room);
		if (!w->data) {
			free(w);
			return NULL;
		}
		w->slot = slot;
		w->room = room;
		*h->last = w;
		h->last = &w->next;
		h->waiting_bytes += room;
	}
	w->len += need;
	return w->data + w->len - need;
}

static bool waits(const struct rpwi_handover *h, uint16_t slot)
{
	for (const struct waiting *w = h->first; w; w = w->next)
		if (w->slot == slot)
			return true;
	return false;
}

void rpwi_handover_pass(struct rpwi_handover *h, struct rpwi_steer *s, uint16_t slot, const struct io_packet *pkt, const void *data)
{
	const struct iovec parts[2] = {{(void *)(uintptr_t)pkt, sizeof(*pkt)}, {(void *)(uintptr_t)data, pkt->len}};
	int rc = waits(h, slot) ? -EAGAIN : send_message(s, slot, parts, 2);
	if (!rc)
		return;
	uint8_t *at = is_full(rc) ? waiting_room(h, slot, sizeof(*pkt) + pkt->len) : NULL;
	if (!at) {
		h->lost += (pkt->len + pkt->seg_len - 1) / pkt->seg_len;
		rpwi_debug("packets for slot %u are lost: %s", slot, strerror(-rc)); /* ECONNREFUSED: no process has that slot */
		return;
	}
	memcpy(at, pkt, sizeof(*pkt));
	memcpy(at + sizeof(*pkt), data, pkt->len);
	if (h->retry_at_ns == RPWI_NEVER)
		h->retry_at_ns = rpwi_now_ns() + RETRY_NS;
}

/* In order for each slot; an owner that does not read holds up nobody else. */
void rpwi_handover_retry(struct rpwi_handover *h, struct rpwi_steer *s)
{
	uint64_t full[64] = {0};
	for (struct waiting **at = &h->first; *at;) {
		struct waiting *w = *at;
		const struct iovec part = {w->data, w->len};
		uint64_t bit = 1ull << w->slot % 64;
		if ((full[w->slot / 64] & bit) || is_full(send_message(s, w->slot, &part, 1))) {
			full[w->slot / 64] |= bit;
			at = &w->next;
		} else {
			waiting_drop(h, at);
		}
	}
	h->retry_at_ns = h->first ? rpwi_now_ns() + RETRY_NS : RPWI_NEVER;
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

void rpwi_handover_arrived(struct rpwi_handover *h, uid_t uid, size_t len)
{
	h->at = 0;
	h->end = len;
	h->uid = uid;
}

/* Who holds the port of `a` now, asked at most every 100 ms for one address. */
static bool is_holder(struct rpwi_handover *h, const struct rpwi_addr *a, uid_t uid)
{
	uint64_t now = rpwi_now_ns();
	if (!rpwi_addr_eq(&h->holder.addr, a) || now - h->holder.at_ns > HOLDER_FRESH_MS * RPWI_NS_PER_MS) {
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
	return k->len && k->seg_len && k->seg_len <= k->len && f->dport == RPWI_UDP_PORT && f->src.family == f->dst.family &&
	       (f->dst.family == 4 || f->dst.family == 6);
}

bool rpwi_handover_next(struct rpwi_handover *h, struct rpwi_rx *rx)
{
	struct io_packet k;
	while (h->end - h->at >= sizeof(k)) {
		memcpy(&k, h->buf + h->at, sizeof(k));
		h->at += sizeof(k);
		if (!well_formed(&k) || k.len > h->end - h->at) {
			rpwi_debug("a message of user %u with packets is malformed", h->uid);
			break;
		}
		uint8_t *data = h->buf + h->at;
		h->at += k.len;
		if (h->uid != geteuid() && h->uid != 0 && !is_holder(h, &k.flow.dst, h->uid)) {
			h->distrusted++;
			rpwi_debug("a packet handed over by user %u is not taken: that user does not hold our port", h->uid);
			continue;
		}
		*rx = (struct rpwi_rx){.flow = k.flow, .ttl = k.ttl, .tos = k.tos, .data = data, .len = k.len, .seg_len = k.seg_len, .ip_id = k.ip_id};
		h->taken += (rx->len + rx->seg_len - 1) / rx->seg_len;
		return true;
	}
	h->at = h->end = 0;
	return false;
}
