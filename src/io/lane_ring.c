/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_ring.c - see lane_ring.h. */
#include "io/lane_ring.h"

#include "base/guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TELL_EVERY = 32 /* slots */ };

static uint32_t lap(uint64_t pos) { return (uint32_t)(pos / LANE_SLOTS) + 1; }
static uint64_t whole_lines(uint64_t n) { return (n + LANE_LINE - 1) & ~(uint64_t)(LANE_LINE - 1); }

/* ---- the writer's end ---- */

void rpwi_lane_writer_init(struct lane_writer *w, struct lane_mem *mem)
{
	memset(w, 0, sizeof(*w));
	w->mem = mem;
	mem->version = LANE_VERSION;
	mem->slots = LANE_SLOTS;
	mem->bulk_bytes = LANE_BULK_BYTES;
	mem->magic = LANE_MAGIC;
}

void rpwi_lane_writer_look(struct lane_writer *w)
{
	uint64_t taken = atomic_load_explicit(&w->mem->taken, memory_order_acquire);
	if (RPWI_UNLIKELY(taken > w->pos || taken < w->taken)) {
		w->broken = true;
		return;
	}
	if (taken == w->taken)
		return;
	w->taken = taken;
	w->bulk_taken = w->bulk_end[(taken - 1) % LANE_SLOTS];
}

/* Packets of that size that fit. The part left out where the area ends is less than one of them,
 * and each finds room for two (one_fits). */
static unsigned fitting(const struct lane_writer *w, uint32_t bytes)
{
	uint64_t slots = LANE_SLOTS - (w->pos - w->taken);
	if (bytes <= LANE_DATA_BYTES)
		return (unsigned)slots;
	uint64_t each = whole_lines(bytes), left = LANE_BULK_BYTES - (w->bulk_pos - w->bulk_taken);
	uint64_t bulk = left / each;
	return (unsigned)RPWI_MIN(slots, bulk > 2 ? bulk - 2 : 0);
}

/* As far as is known: rpwi_lane_writer_look may find more. */
static bool slot_is_free(const struct lane_writer *w)
{
	return w->pos - w->taken < LANE_SLOTS && !w->broken;
}

static bool one_fits(struct lane_writer *w, uint32_t bytes)
{
	for (int look = 0; look < 2; look++) {
		if (look)
			rpwi_lane_writer_look(w);
		if (w->pos - w->taken < LANE_SLOTS &&
			LANE_BULK_BYTES - (w->bulk_pos - w->bulk_taken) >= 2 * whole_lines(bytes))
			return !w->broken;
	}
	return false;
}

unsigned rpwi_lane_writer_room(struct lane_writer *w, unsigned want, uint32_t bytes)
{
	unsigned n = fitting(w, bytes);
	if (n < want) {
		rpwi_lane_writer_look(w);
		n = fitting(w, bytes);
	}
	return w->broken ? 0 : RPWI_MIN(n, want);
}

/* The place of a pair of addresses in the table; -1: it is full. */
static int flow_of(struct lane_writer *w, const struct rpwi_flow *f)
{
	struct lane_flow *t = w->mem->flow;
	/* The table is the writer's to write, and what a reader does to it harms itself: it has
	 * copies of its own. */
	for (unsigned i = 0; i < w->nflows; i++)
		if (rpwi_addr_eq(&t[i].src, &f->src) && rpwi_addr_eq(&t[i].dst, &f->dst))
			return (int)i;
	if (w->nflows == LANE_FLOWS)
		return -1;
	t[w->nflows] = (struct lane_flow){f->src, f->dst};
	return (int)w->nflows++;
}

bool rpwi_lane_writer_way(struct lane_writer *w, const struct rpwi_flow *flow, uint16_t sport,
	uint8_t ttl, uint8_t tos, struct lane_way *out)
{
	int f = flow_of(w, flow);
	*out = (struct lane_way){.flow = (uint8_t)f, .ttl = ttl, .tos = tos, .sport = sport};
	return f >= 0;
}

/* To be written: of __builtin_prefetch GCC makes a prefetch to read, unless it may assume a
 * processor newer than the first of x86-64. Those take this for a no-op. */
static inline void fetch_to_write(const void *line)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* The reader had them last: asked for together they come sooner than by stores, one after the other
 * (a bare ring of 512 KiB: 12 -> 16 GB/s). */
static void lines_to_write(const uint8_t *at, uint32_t len)
{
	for (uint32_t i = 0; i < len; i += LANE_LINE)
		fetch_to_write(at + i);
}

void rpwi_lane_writer_expects(const struct lane_writer *w, unsigned n)
{
	for (uint64_t at = w->pos; at != w->pos + n; at++)
		fetch_to_write(&w->mem->slot[at % LANE_SLOTS]);
}

/* Where `len` bytes lie in one piece; *pos is moved past them. */
static uint32_t bulk_place(uint64_t *pos, uint32_t len)
{
	uint32_t at = (uint32_t)(*pos % LANE_BULK_BYTES);
	if (at + (uint64_t)len > LANE_BULK_BYTES) {
		*pos += LANE_BULK_BYTES - at;
		at = 0;
	}
	*pos += whole_lines(len);
	return at;
}

static void written(struct lane_writer *w, uint64_t bulk_pos, struct lane_ref ref)
{
	w->bulk_pos = bulk_pos;
	w->bulk_end[w->pos % LANE_SLOTS] = bulk_pos;
	w->ref[w->pos % LANE_SLOTS] = ref;
	w->pos++;
}

/* The last first: who sees the first sees all. */
void rpwi_lane_writer_publish(struct lane_writer *w)
{
	for (uint64_t at = w->pos; at-- != w->held;)
		atomic_store_explicit(
			&w->mem->slot[at % LANE_SLOTS].seq, lap(at), memory_order_release);
	w->held = w->pos;
}

static void gather(uint8_t *to, const struct rpwi_iov *parts, unsigned n)
{
	for (unsigned i = 0; i < n; to += parts[i++].len)
		if (parts[i].len <= LANE_DATA_BYTES)
			rpwi_copy_small(to, parts[i].base, parts[i].len);
		else
			rpwi_copy(to, parts[i].base, parts[i].len);
}

static void head(struct lane_slot *s, const struct lane_way *way, unsigned hdr_len, uint32_t len)
{
	s->flow = way->flow;
	s->hdr_len = (uint8_t)hdr_len;
	s->ttl = way->ttl;
	s->tos = way->tos;
	s->sport = way->sport;
	s->len = len;
	atomic_store_explicit(&s->said, LANE_STANDS, memory_order_relaxed);
}

/* Most are of at most 28 bytes, a BTH and a RETH: so many at once is less than to ask how many. */
static void copy_headers(struct lane_slot *s, const struct rpwi_txpkt *t)
{
	enum { MOST = RPWI_BTH_LEN + 16 };
	memcpy(s->data, t->hdr, MOST);
	if (RPWI_UNLIKELY(t->hdr_len > MOST))
		memcpy(s->data + MOST, t->hdr + MOST, t->hdr_len - MOST);
}

bool rpwi_lane_writer_may_refer(struct lane_writer *w, const struct rpwi_txb *b)
{
	uint32_t bytes = 0;
	for (unsigned i = 0; w->refs && i < b->npkt; i++)
		bytes += b->pkt[i].stays ? b->pkt[i].payload_len : 0;
	if (bytes < LANE_REF_MIN_BYTES)
		return false;
	/* what the reader says is in a line that it writes at each turn: not for short messages */
	w->refs = !atomic_load_explicit(&w->mem->copies, memory_order_relaxed);
	if (!w->refs || w->choice != LANE_MEASURED)
		return w->refs && w->choice == LANE_FETCHED;
	uint32_t fetched = atomic_load_explicit(&w->mem->fetched_ns, memory_order_relaxed);
	uint32_t copied = atomic_load_explicit(&w->mem->copied_ns, memory_order_relaxed);
	uint32_t copy = copied && w->fill_ns ? RPWI_MAX(copied, w->fill_ns) : 0;
	return rpwi_cost_second(copy, fetched, w->asked++);
}

/* Into the slot written last, which is of the same batch: it is not published yet. */
static bool shares_slot(struct lane_writer *w, const struct rpwi_txpkt *t, uint64_t addr)
{
	struct lane_run *run = &w->run;
	uint64_t at = (w->pos - 1) % LANE_SLOTS;
	uint8_t bth[RPWI_BTH_LEN];
	memcpy(bth, t->hdr, sizeof(bth));
	bool ack = rpwi_pkt_ask_ack(bth, false);
	if (w->held == w->pos || w->ref_end != w->pos || addr != run->addr ||
		t->payload_len != run->len || t->hdr_len != RPWI_BTH_LEN ||
		memcmp(bth, run->bth, sizeof(bth)) || w->ref[at].len + run->len > LANE_REF_BYTES)
		return false;
	rpwi_pkt_follow(run->bth, 1);
	run->addr += run->len;
	w->ref[at].len += run->len;
	w->mem->slot[at].bulk = (w->mem->slot[at].bulk + 1) | (ack ? LANE_REF_ACK : 0);
	run->len = ack ? 0 : run->len;
	return true;
}

static void run_begins(struct lane_writer *w, const struct rpwi_txpkt *t, uint64_t addr)
{
	memcpy(w->run.bth, t->hdr, RPWI_BTH_LEN);
	bool alone = !rpwi_opcode_may_have_more(t->hdr[0]) || rpwi_pkt_ask_ack(w->run.bth, false);
	w->run.len = alone ? 0 : t->payload_len;
	w->run.addr = addr + t->payload_len;
	rpwi_pkt_follow(w->run.bth, 1);
}

bool rpwi_lane_writer_reference(struct lane_writer *w, const struct lane_way *way,
	const struct rpwi_txpkt *t, const struct rpwi_iov *part)
{
	struct lane_slot *s = &w->mem->slot[w->pos % LANE_SLOTS];
	const struct lane_ref ref = {.addr = (uint64_t)(uintptr_t)part->base,
		.len = t->payload_len,
		.dqpn = rpwi_get_be24(t->hdr + 5)};
	if (shares_slot(w, t, ref.addr))
		return true;
	if (!one_fits(w, 0))
		return false;
	head(s, way, t->hdr_len, t->payload_len);
	copy_headers(s, t);
	s->kind = LANE_REF;
	s->bulk = 0;
	memcpy(s->data + LANE_REF_HDR_BYTES, &ref.addr, sizeof(ref.addr));
	run_begins(w, t, ref.addr);
	written(w, w->bulk_pos, ref);
	w->ref_end = w->pos;
	return true;
}

/* Those to `dqpn`, or where len is not 0 those from that memory. */
static void revoke_some(struct lane_writer *w, uint32_t dqpn, uint64_t addr, uint64_t len)
{
	if (w->ref_end <= w->taken)
		return;
	rpwi_lane_writer_look(w);
	for (uint64_t at = w->taken; at < w->ref_end; at++) {
		const struct lane_ref *ref = &w->ref[at % LANE_SLOTS];
		_Atomic uint8_t *said = &w->mem->slot[at % LANE_SLOTS].said;
		if (ref->len && atomic_load_explicit(said, memory_order_relaxed) != LANE_PLACED &&
			(len ? ref->addr < addr + len && addr < ref->addr + ref->len
			     : ref->dqpn == dqpn))
			atomic_store_explicit(said, LANE_REVOKED, memory_order_relaxed);
	}
	atomic_thread_fence(memory_order_seq_cst);
}

void rpwi_lane_writer_revoke_qp(struct lane_writer *w, uint32_t dqpn)
{
	revoke_some(w, dqpn, 0, 0);
}

void rpwi_lane_writer_revoke_memory(struct lane_writer *w, uint64_t addr, uint64_t len)
{
	if (len)
		revoke_some(w, 0, addr, len);
}

bool rpwi_lane_writer_packet(struct lane_writer *w, const struct lane_way *way,
	const struct rpwi_txpkt *t, const struct rpwi_iov *parts, const uint8_t *ack,
	unsigned follow)
{
	struct lane_slot *s = &w->mem->slot[w->pos % LANE_SLOTS];
	uint64_t bulk_pos = w->bulk_pos;
	bool beside = t->hdr_len + t->payload_len <= LANE_DATA_BYTES;
	assert(!ack || rpwi_lane_ack_may_lead(t));
	if (!(beside && RPWI_LIKELY(slot_is_free(w))) && !one_fits(w, t->payload_len))
		return false;
	head(s, way, t->hdr_len, t->payload_len);
	copy_headers(s, t);
	if (beside) {
		s->kind = LANE_BESIDE |
			  (uint8_t)(RPWI_MIN(follow, (unsigned)LANE_FOLLOW_MAX) << LANE_KIND_BITS);
		s->bulk = 0;
		gather(s->data + t->hdr_len, parts, t->iov_count);
		if (ack) {
			s->bulk = LANE_LED_BY_ACK | rpwi_get_be24(ack + RPWI_BTH_LEN - 3);
			memcpy(s->data + LANE_AETH_AT, ack + RPWI_BTH_LEN, 4);
		}
	} else {
		s->kind = LANE_BULK;
		s->bulk = bulk_place(&bulk_pos, t->payload_len);
		lines_to_write(w->mem->bulk + s->bulk, t->payload_len);
		gather(w->mem->bulk + s->bulk, parts, t->iov_count);
	}
	written(w, bulk_pos, (struct lane_ref){0});
	rpwi_lane_writer_publish(w);
	return true;
}

int rpwi_lane_writer_short(
	struct lane_writer *w, const struct lane_way *way, const struct rpwi_short *s)
{
	struct lane_slot *at = &w->mem->slot[w->pos % LANE_SLOTS];
	if (RPWI_UNLIKELY(!slot_is_free(w)))
		return -ENOSPC;
	memcpy(at->data, s->hdr, sizeof(s->hdr));
	int rc = rpwi_guard_copy(at->data + s->hdr_len, s->data, s->len);
	if (RPWI_UNLIKELY(rc))
		return rc;
	head(at, way, s->hdr_len, s->len);
	at->kind = LANE_BESIDE;
	at->bulk = s->led ? LANE_LED_BY_ACK | s->ack_psn : 0;
	if (s->led)
		memcpy(at->data + LANE_AETH_AT, s->aeth, sizeof(s->aeth));
	written(w, w->bulk_pos, (struct lane_ref){0});
	rpwi_lane_writer_publish(w);
	return 0;
}

bool rpwi_lane_writer_datagram(
	struct lane_writer *w, const struct lane_way *way, const void *data, uint32_t len)
{
	struct lane_slot *s = &w->mem->slot[w->pos % LANE_SLOTS];
	uint64_t bulk_pos = w->bulk_pos;
	if (!one_fits(w, len))
		return false;
	head(s, way, 0, len);
	s->kind = LANE_DATAGRAM;
	s->bulk = bulk_place(&bulk_pos, len);
	memcpy(w->mem->bulk + s->bulk, data, len);
	written(w, bulk_pos, (struct lane_ref){0});
	rpwi_lane_writer_publish(w);
	return true;
}

bool rpwi_lane_writer_wakes(struct lane_writer *w)
{
	atomic_thread_fence(memory_order_seq_cst);
	return RPWI_UNLIKELY(atomic_load_explicit(&w->mem->sleeps, memory_order_relaxed)) &&
	       atomic_exchange_explicit(&w->mem->sleeps, 0, memory_order_relaxed);
}

bool rpwi_lane_writer_stalls(struct lane_writer *w, uint32_t bytes)
{
	atomic_store_explicit(&w->mem->stalled, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return rpwi_lane_writer_room(w, 1, bytes);
}

/* ---- the reader's end ---- */

int rpwi_lane_reader_init(struct lane_reader *r, struct lane_mem *mem)
{
	memset(r, 0, sizeof(*r));
	r->mem = mem;
	return mem->magic == LANE_MAGIC && mem->version == LANE_VERSION &&
			       mem->slots == LANE_SLOTS && mem->bulk_bytes == LANE_BULK_BYTES
		       ? 0
		       : -EPROTO;
}

bool rpwi_lane_reader_ready(const struct lane_reader *r)
{
	const struct lane_slot *s = &r->mem->slot[r->pos % LANE_SLOTS];
	return atomic_load_explicit(&s->seq, memory_order_acquire) == lap(r->pos);
}

/* The addresses of a pair, as they were when they were first named. */
static struct rpwi_flow *reader_flow(struct lane_reader *r, unsigned i)
{
	if (RPWI_LIKELY(i < r->nflows))
		return &r->flow[i];
	if (i >= LANE_FLOWS || i != r->nflows)
		return NULL;
	struct lane_flow f = r->mem->flow[i];
	if (f.src.family != f.dst.family || (f.src.family != 4 && f.src.family != 6))
		return NULL;
	r->flow[i] = (struct rpwi_flow){.src = f.src, .dst = f.dst, .dport = RPWI_UDP_PORT};
	r->nflows++;
	return &r->flow[i];
}

static bool in_bulk(uint32_t at, uint32_t len, uint32_t max)
{
	return len && len <= max && at <= LANE_BULK_BYTES - len;
}

static uint32_t more_of(const struct lane_slot *s) { return s->bulk & ~LANE_REF_ACK; }

static bool is_ref(const struct lane_slot *s)
{
	return s->kind == LANE_REF && s->len && s->len <= RPWI_MTU_MAX &&
	       more_of(s) < LANE_REF_BYTES / s->len && s->hdr_len >= RPWI_BTH_LEN &&
	       s->hdr_len <= LANE_REF_HDR_BYTES;
}

/* What is to be pulled, and where to: pieces of the same length on both sides. */
struct pull {
	struct lane_span from[LANE_PULL_SLOTS], to[LANE_PULL_SLOTS];
	unsigned n;
};

/* The references from pos on, as many as there are, of which the first is one. */
static void run_of(struct lane_reader *r, struct pull *x)
{
	unsigned n = 0;
	uint8_t *bounce = r->bounce;
	for (uint32_t bytes = 0, len; n < LANE_PULL_SLOTS; n++) {
		uint64_t pos = r->pos + n;
		struct lane_slot *at = &r->mem->slot[pos % LANE_SLOTS], s;
		if (atomic_load_explicit(&at->seq, memory_order_acquire) != lap(pos))
			break;
		memcpy(&s, at, sizeof(s));
		if (!is_ref(&s) || (len = s.len * (1 + more_of(&s))) > LANE_PULL_BYTES - bytes ||
			s.said >= LANE_PLACING)
			break;
		memcpy(&x->from[n].addr, s.data + LANE_REF_HDR_BYTES, sizeof(x->from[n].addr));
		const void *from = (const void *)(uintptr_t)x->from[n].addr;
		const struct lane_headers h = {s.data, s.hdr_len, more_of(&s), s.len, from};
		uint8_t *place = r->place ? r->place(r->place_arg, !n, &h) : NULL;
		if (!place || RPWI_UNLIKELY(rpwi_copy_is_slow(place, from, len))) {
			bounce = rpwi_copy_way(bounce, place, from);
			r->pulled[n].at = bounce;
			bounce += len;
		} else {
			r->pulled[n].at = place;
		}
		r->pulled[n].len = len;
		r->pulled[n].lost = false;
		x->to[n].addr = (uint64_t)(uintptr_t)r->pulled[n].at;
		x->from[n].len = x->to[n].len = len;
		bytes += len;
	}
	r->pull_pos = r->pos;
	r->npulled = x->n = n;
}

/* All at once did not do: one of them may be at fault, or a place of this process's program. */
static void pull_each(struct lane_reader *r, const struct pull *x)
{
	uint8_t *to = r->bounce;
	for (unsigned i = 0; i < x->n; to += x->to[i++].len) {
		const struct lane_span at = {(uint64_t)(uintptr_t)to, x->to[i].len};
		r->pulled[i].at = to;
		r->pulled[i].lost = !r->pull(r->pull_arg, &at, &x->from[i], 1);
		if (r->pulled[i].lost)
			atomic_store_explicit(&r->mem->copies, 1, memory_order_relaxed);
	}
}

static bool bounce_is_there(struct lane_reader *r)
{
	if (!r->bounce)
		r->bounce = aligned_alloc(4096, LANE_BOUNCE_BYTES);
	return r->bounce;
}

/* False: no memory. */
static bool pull_run(struct lane_reader *r)
{
	struct pull x;
	if (!bounce_is_there(r))
		return false;
	run_of(r, &x);
	if (RPWI_UNLIKELY(!r->pull(r->pull_arg, x.to, x.from, x.n)))
		pull_each(r, &x);
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < x.n; i++)
		r->pulled[i].lost |=
			atomic_load_explicit(&r->mem->slot[(r->pos + i) % LANE_SLOTS].said,
				memory_order_relaxed) == LANE_REVOKED;
	return true;
}

unsigned rpwi_lane_reader_fetched(const struct lane_reader *r)
{
	uint64_t gone = r->pos - r->pull_pos;
	return gone < r->npulled ? r->npulled - (unsigned)gone : 0;
}

static int reference(struct lane_reader *r, const struct lane_slot *s, struct lane_packet *p)
{
	if (!r->pull || !is_ref(s))
		return -EPROTO;
	if (RPWI_UNLIKELY(p->placed)) {
		if (!bounce_is_there(r))
			return -ENODATA;
		p->kind = LANE_BULK;
		p->more = more_of(s);
		p->more_ack = s->bulk & LANE_REF_ACK;
		p->payload = r->bounce; /* anything: nobody looks at it but a capture */
		return 1;
	}
	if (!rpwi_lane_reader_fetched(r) && RPWI_UNLIKELY(!pull_run(r))) {
		atomic_store_explicit(&r->mem->copies, 1, memory_order_relaxed);
		return -ENODATA;
	}
	const struct lane_pulled *got = &r->pulled[r->pos - r->pull_pos];
	if (!r->npulled || got->len != s->len * (1 + more_of(s))) /* it has been changed since */
		return -EPROTO;
	p->kind = LANE_BULK;
	p->more = more_of(s);
	p->more_ack = s->bulk & LANE_REF_ACK;
	p->fetched = true;
	p->payload = got->at;
	return got->lost ? -ENODATA : 1;
}

int rpwi_lane_reader_next(struct lane_reader *r, struct lane_packet *p)
{
	const struct lane_slot *at = &r->mem->slot[r->pos % LANE_SLOTS];
	struct lane_slot s; /* all but its data */
	uint32_t room;
	if (!rpwi_lane_reader_ready(r))
		return 0;
	memcpy(&s, at, offsetof(struct lane_slot, data));
	memcpy(p->data, at->data, sizeof(p->data));
	struct rpwi_flow *flow = reader_flow(r, s.flow);
	if (RPWI_UNLIKELY(!flow || s.hdr_len > LANE_DATA_BYTES))
		return -EPROTO;
	if (RPWI_UNLIKELY(s.said == LANE_PLACING))
		return 0;
	p->placed = s.said == LANE_PLACED;
	p->kind = s.kind & ((1 << LANE_KIND_BITS) - 1);
	if (s.kind >> LANE_KIND_BITS >= LANE_AHEAD)
		__builtin_prefetch(&r->mem->slot[(r->pos + LANE_AHEAD) % LANE_SLOTS]);
	p->fetched = false;
	p->more = 0;
	p->more_ack = p->led = false;
	flow->sport = s.sport;
	p->flow = flow;
	p->ttl = s.ttl;
	p->tos = s.tos;
	p->hdr_len = s.hdr_len;
	p->len = s.len;
	switch (p->kind) {
	case LANE_BESIDE:
		p->payload = p->data + p->hdr_len;
		p->led = s.bulk & LANE_LED_BY_ACK;
		p->ack_psn = s.bulk & RPWI_PSN_MASK;
		room = p->led ? LANE_AETH_AT : LANE_DATA_BYTES;
		return p->hdr_len <= room && p->len <= room - p->hdr_len ? 1 : -EPROTO;
	case LANE_REF:
		return reference(r, &s, p);
	case LANE_BULK:
	case LANE_DATAGRAM:
		if (!in_bulk(s.bulk, s.len, p->kind == LANE_BULK ? RPWI_MTU_MAX : RPWI_PACKET_MAX))
			return -EPROTO;
		p->payload = r->mem->bulk + s.bulk;
		return 1;
	}
	return -EPROTO;
}

/* Plain stores: who looks at it does so while this process is stopped, and a thread that does not
 * run has no store that others do not see. */
void rpwi_lane_reader_turns(struct lane_reader *r, bool begins)
{
	uint32_t turn = atomic_load_explicit(&r->mem->turn, memory_order_relaxed);
	if ((turn & 1) == begins)
		return;
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&r->mem->turn, turn + 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

void rpwi_lane_packet_ack(const struct lane_packet *p, struct rpwi_pkt *ack)
{
	const uint8_t *aeth = p->data + LANE_AETH_AT;
	rpwi_pkt_clear(ack);
	ack->opcode = RPWI_SVC_RC | RPWI_OP_ACK;
	ack->pkey = RPWI_PKEY_DEFAULT;
	ack->dqpn = rpwi_get_be24(p->data + 5);
	ack->psn = p->ack_psn;
	ack->syndrome = aeth[0];
	ack->msn = rpwi_get_be24(aeth + 1);
	ack->hdr_len = LANE_ACK_HDR_LEN;
}

static void only_ack(struct lane_packet *p)
{
	struct rpwi_pkt ack;
	uint8_t hdr[RPWI_HDR_MAX];
	rpwi_lane_packet_ack(p, &ack);
	p->hdr_len = (uint8_t)rpwi_pkt_encode(&ack, hdr);
	p->len = 0;
	p->led = false;
	memcpy(p->data, hdr, p->hdr_len);
	p->payload = p->data + p->hdr_len;
}

void rpwi_lane_packet_nth(struct lane_packet *p, unsigned n)
{
	if (p->led && !n) {
		only_ack(p);
		return;
	}
	n -= p->led;
	p->led = false;
	if (p->kind == LANE_BESIDE) { /* a copy has its own */
		p->payload = p->data + p->hdr_len;
		return;
	}
	p->payload += n * (size_t)p->len;
	if (n) {
		rpwi_pkt_follow(p->data, n);
		p->hdr_len = RPWI_BTH_LEN;
	}
	if (n == p->more && p->more_ack)
		rpwi_pkt_ask_ack(p->data, true);
	p->more = 0;
	p->more_ack = false;
}

static void say_taken(struct lane_reader *r)
{
	atomic_store_explicit(&r->mem->taken, r->pos, memory_order_release);
	r->told = r->pos;
}

void rpwi_lane_reader_done(struct lane_reader *r)
{
	if (++r->pos - r->told >= TELL_EVERY)
		say_taken(r);
}

/* Once for each of its stalls. */
static bool writer_stalls(struct lane_reader *r)
{
	return RPWI_UNLIKELY(atomic_load_explicit(&r->mem->stalled, memory_order_relaxed)) &&
	       atomic_exchange_explicit(&r->mem->stalled, 0, memory_order_relaxed);
}

bool rpwi_lane_reader_tell(struct lane_reader *r)
{
	if (r->pos != r->told)
		say_taken(r);
	r->owes_fence = true;
	return writer_stalls(r);
}

bool rpwi_lane_reader_settle(struct lane_reader *r)
{
	r->owes_fence = false;
	atomic_thread_fence(memory_order_seq_cst);
	return writer_stalls(r);
}

bool rpwi_lane_reader_sleeps(struct lane_reader *r)
{
	atomic_store_explicit(&r->mem->sleeps, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return !rpwi_lane_reader_ready(r);
}

void rpwi_lane_reader_wakes(struct lane_reader *r)
{
	atomic_store_explicit(&r->mem->sleeps, 0, memory_order_relaxed);
}
