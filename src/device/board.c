/* SPDX-License-Identifier: BSD-3-Clause */
/* board.c - see board.h.
 *
 * A READ without the peer's help is three looks and a copy: is there such a QP, connected to ours,
 * that takes READs? such a key, of its protection domain, with that right, around those bytes? Then
 * the copy, through a descriptor of the peer's memory; then the same two again. If anything changed
 * meanwhile (the region was deregistered, the QP destroyed, the process forked and went on as its
 * child), the bytes are thrown away and the READ goes by packets, whose answer says what is wrong.
 * So nothing has to be announced, nobody waits for anybody, and a reader that is stopped in the
 * middle harms nobody.
 *
 * The descriptor is /proc/PID/mem, opened when the lane is made. It belongs to the address space,
 * not to the number: after the process has ended, or has executed another program, it reads nothing
 * (proc(5)). That it is the right one from the beginning a nonce shows, which lies in the peer's
 * private memory at a place that its board names. Long READs use process_vm_readv(2), which is
 * faster and goes by number: the same call reads the nonce, of the same address space, and where it
 * is another one what was read is thrown away.
 *
 * WRITEs are not done so while the peer runs: the kernel's copy promises no order within the
 * message, and programs poll memory that WRITEs fill (base/copy.h). A process that is stopped polls
 * nothing, and nobody else does its WRITEs: there they are (rc/stopped.c), through the descriptor
 * alone. A late WRITE would do harm, so the writer announces it (lane_ring.h, `over`), and
 * ibv_dereg_mr and what changes a QP wait for its end, should the process go on in the middle.
 */
#include "device/board.h"
#include "device/qp_path.h"

#include "base/copy.h"
#include "base/guard.h"
#include "near/memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	BOARD_MAGIC = 0x626f6172,
	BOARD_VERSION = 3,
	BOARD_KEYS = 4096, /* regions beyond that, and those whose place is taken, are not on it */
	LONG_READ = 8192,  /* from here on by process_vm_readv */
	LAST_BYTES = 64,
	BOUNCE_BYTES = RPWI_PEER_READ_MAX + 4096,
	WRITER_MS = 1000, /* is waited for */
	SEEN_LAST = 8,
};
_Static_assert(RPWI_COPY_WAY_MORE <= 4096 && BOUNCE_BYTES % 4096 == 0, "whole pages");

struct board_key {
	_Atomic uint32_t turn; /* odd while it is written */
	uint32_t key;          /* 0: none */
	uint32_t pd, access;
	uint64_t iova, length, addr;
};

/* What a QP's word says. 0: none that takes either. */
#define BOARD_QP_TAKES_READS (1ull << 63)
#define BOARD_QP_TAKES_WRITES (1ull << 62)
static uint64_t qp_word(uint64_t takes, uint32_t pd, uint32_t peer_qpn)
{
	return takes ? takes | (uint64_t)pd << 24 | (peer_qpn & RPWI_QPN_MASK) : 0;
}

/* What is known of a number. IS_DEAF: a QP in ERR, or of another type than RC. */
enum { IS_NONE, IS_QP, IS_DEAF };

static uint32_t word_pd(uint64_t word) { return (uint32_t)(word >> 24); }
static uint32_t word_peer(uint64_t word) { return (uint32_t)(word & RPWI_QPN_MASK); }

struct board {
	struct rpwi_board_head head;
	uint32_t slot; /* QPNs of this one alone */
	_Atomic uint64_t qp[RPWI_SLOT_QPNS];
	_Atomic uint8_t is[RPWI_SLOT_QPNS]; /* IS_* */
	struct board_key key[BOARD_KEYS];
};

/* Of our own; the nonce is what a peer finds in our memory. */
static struct board *own;
static int own_fd = -1;
static _Atomic uint64_t own_nonce;

/* Those over which boards come and go. */
static struct rpwi_lanes *lanes;

/* ---- our own ---- */

void board_open(struct rpwi_lanes *by, uint16_t slot)
{
	struct board *b;
	qplock_take_all();
	lanes = by;
	rpwi_lanes_on_change(by, qp_path_changes);
	void *at;
	int fd = rpwi_memory_make("ropeway-board", sizeof(*b), RPWI_MEMORY_READ, &at);
	if (fd < 0)
		return;
	own = b = at;
	own_fd = fd;
	own_nonce = rpwi_random64();
	b->slot = slot;
	b->head = (struct rpwi_board_head){.magic = BOARD_MAGIC,
		.version = BOARD_VERSION,
		.bytes = sizeof(*b),
		.nonce_at = (uint64_t)(uintptr_t)&own_nonce};
	atomic_store(&b->head.nonce, own_nonce);
	rpwi_lanes_show_board(by, fd);
}

void board_close(void)
{
	if (own)
		atomic_store(&own->head.nonce, 0);
	board_left_to_parent();
}

void board_left_to_parent(void)
{
	if (own) {
		munmap(own, sizeof(*own));
		close(own_fd);
	}
	own = NULL;
	own_fd = -1;
	qplock_take_all();
	lanes = NULL;
}

/* The board is both processes', the nonce is not. */
void board_is_forked(void)
{
	if (!own)
		return;
	own_nonce = rpwi_random64();
	atomic_store(&own->head.nonce, own_nonce);
}

bool board_is_the_childs(void)
{
	return own && atomic_load_explicit(&own->head.nonce, memory_order_relaxed) != own_nonce;
}

static struct board_key *key_place(struct board *b, uint32_t key)
{
	return &b->key[key >> 8 & (BOARD_KEYS - 1)];
}

static void key_set(struct board_key *at, const struct board_key *to)
{
	uint32_t turn = atomic_load_explicit(&at->turn, memory_order_relaxed);
	atomic_store_explicit(&at->turn, turn + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	at->key = to->key;
	at->pd = to->pd;
	at->access = to->access;
	at->iova = to->iova;
	at->length = to->length;
	at->addr = to->addr;
	atomic_store_explicit(&at->turn, turn + 2, memory_order_release);
}

void board_key_add(const struct dkey *k)
{
	struct board_key *at = own ? key_place(own, k->key) : NULL;
	if (!at || at->key || k->is_mw)
		return;
	key_set(at, &(struct board_key){.key = k->key,
			    .pd = k->pd->id,
			    .access = (uint32_t)k->access,
			    .iova = k->iova,
			    .length = k->length,
			    .addr = (uint64_t)(uintptr_t)k->addr});
}

/* When it returns, no reader takes bytes of it any more for good. */
void board_key_del(const struct dkey *k)
{
	struct board_key *at = own ? key_place(own, k->key) : NULL;
	if (at && at->key == k->key)
		key_set(at, &(struct board_key){0});
	atomic_thread_fence(memory_order_seq_cst);
}

static _Atomic uint64_t *qp_place(const struct dqp *q)
{
	return own && q->t.qpn >> RPWI_SLOT_SHIFT == own->slot
		       ? &own->qp[q->t.qpn & (RPWI_SLOT_QPNS - 1)]
		       : NULL;
}

static uint64_t what_it_takes(const struct rpwi_qp *t)
{
	unsigned flags = t->attr.qp_access_flags;
	if (t->type != IBV_QPT_RC || !t->av.loopback_zone ||
		(t->state != IBV_QPS_RTR && t->state != IBV_QPS_RTS && t->state != IBV_QPS_SQD))
		return 0;
	/* packets are counted and measured, copies of memory are not */
	if (t->bounds.message < RPWI_MSG_MAX)
		return 0;
	uint64_t takes = flags & IBV_ACCESS_REMOTE_WRITE ? BOARD_QP_TAKES_WRITES : 0;
	if (flags & IBV_ACCESS_REMOTE_READ && t->attr.max_dest_rd_atomic)
		takes |= BOARD_QP_TAKES_READS;
	return takes;
}

bool board_writers_end(void)
{
	const struct timespec a_while = {.tv_nsec = 50000};
	uint64_t until_ns = 0;
	for (pid_t pid; RPWI_UNLIKELY(pid = rpwi_lanes_over(lanes)); nanosleep(&a_while, NULL)) {
		uint64_t now_ns = rpwi_now_ns();
		until_ns = until_ns ? until_ns : now_ns + WRITER_MS * RPWI_NS_PER_MS;
		if (now_ns < until_ns)
			continue;
		rpwi_warn("process %d, a peer, was stopped while it wrote into the memory of this "
			  "one, and does not go on",
			(int)pid);
		return false;
	}
	return true;
}

void board_qp(struct dqp *q)
{
	uint64_t word = qp_word(what_it_takes(&q->t), q->pd->id, q->t.attr.dest_qp_num);
	_Atomic uint64_t *at;
	if (RPWI_LIKELY(word == q->board_word) || !(at = qp_place(q)))
		return;
	bool had = q->board_word;
	q->board_word = word;
	board_qp_is(q);
	atomic_store_explicit(at, word, memory_order_seq_cst);
	if (had)
		board_writers_end();
}

void board_qp_gone(struct dqp *q)
{
	_Atomic uint64_t *at = qp_place(q);
	if (at) {
		atomic_store_explicit(at, 0, memory_order_seq_cst);
		atomic_store(&own->is[at - own->qp], IS_NONE);
	}
	if (q->board_word)
		board_writers_end();
	q->board_word = 0;
}

static uint8_t what_it_is(const struct dqp *q)
{
	return q->t.type != IBV_QPT_RC || q->t.state == IBV_QPS_ERR ? IS_DEAF : IS_QP;
}

void board_qp_is(const struct dqp *q)
{
	_Atomic uint64_t *at = qp_place(q);
	if (at)
		atomic_store(&own->is[at - own->qp], what_it_is(q));
}

/* ---- a peer's ---- */

static bool is_board(const struct board *b, size_t bytes)
{
	return bytes == sizeof(*b) && b->head.magic == BOARD_MAGIC &&
	       b->head.version == BOARD_VERSION && b->head.bytes == sizeof(*b);
}

/* The region around [addr, addr + len) that a QP of `pd` has that right to: where in the peer's
 * memory, and the turn of its entry. 0: none. */
static uint64_t region(const struct board *b, int right, uint32_t rkey, uint32_t pd, uint64_t addr,
	uint64_t len, uint32_t *turn)
{
	const struct board_key *at = key_place((struct board *)(uintptr_t)b, rkey);
	*turn = atomic_load_explicit(&at->turn, memory_order_acquire);
	struct board_key k = {.key = at->key,
		.pd = at->pd,
		.access = at->access,
		.iova = at->iova,
		.length = at->length,
		.addr = at->addr};
	atomic_thread_fence(memory_order_acquire);
	if ((*turn & 1) || atomic_load_explicit(&at->turn, memory_order_relaxed) != *turn)
		return 0;
	if (k.key != rkey || k.pd != pd || !(k.access & (uint32_t)right) || addr < k.iova ||
		len > k.length || addr - k.iova > k.length - len)
		return 0;
	return k.addr + (addr - k.iova);
}

/* By way of a buffer, where the kernel's copy to `to` would be slow. */
static bool copy_by(const struct rpwi_lane_peer *p, uint8_t *to, uint64_t from, uint32_t len,
	uint8_t last[LAST_BYTES], uint8_t *bounce)
{
	uint8_t *by = rpwi_copy_way(bounce, to, (const void *)(uintptr_t)from);
	for (uint32_t n; len; to += n, from += n, len -= n) {
		n = RPWI_MIN(len, (uint32_t)RPWI_PEER_READ_MAX);
		if (n < len && len - n < LAST_BYTES) /* those are of one piece */
			n -= LAST_BYTES;
		struct iovec here[2] = {{by, n}}, there[2] = {{(void *)(uintptr_t)from, n}};
		uint32_t apart = n == len ? LAST_BYTES : 0;
		if (!rpwi_lane_peer_readv(p, here, 1, there, 1, n) ||
			rpwi_guard_copy(to, by, n - apart))
			return false;
		memcpy(last, by + n - apart, apart);
	}
	return true;
}

/* A long one, whose last bytes are kept apart: see settle. */
static bool copy(const struct rpwi_lane_peer *p, uint8_t *to, uint64_t from, uint32_t len,
	uint8_t last[LAST_BYTES], uint8_t *bounce)
{
	if (len < LONG_READ) {
		rpwi_shield();
		return pread(p->mem_fd, to, len, (off_t)from) == (ssize_t)len;
	}
	if (RPWI_UNLIKELY(rpwi_copy_is_slow(to, (const void *)(uintptr_t)from, len)))
		return copy_by(p, to, from, len, last, bounce);
	struct iovec here[3] = {{to, len - LAST_BYTES}, {last, LAST_BYTES}},
		     there[2] = {{(void *)(uintptr_t)from, len}};
	return rpwi_lane_peer_readv(p, here, 2, there, 1, len);
}

/* The kernel's copy has no order, and the program may poll the end: it comes when the rest is there
 * and is known to be right. */
static bool settle(uint8_t *to, uint32_t len, const uint8_t last[LAST_BYTES])
{
	return len < LONG_READ || !rpwi_guard_copy_up(to + len - LAST_BYTES, last, LAST_BYTES);
}

bool board_reaches(const struct dqp *q)
{
	struct rpwi_lane *lane =
		q->t.av.loopback_zone ? rpwi_lane_up(lanes, q->t.attr.dest_qp_num) : NULL;
	return lane && rpwi_lane_peer(lane);
}

void board_qp_fails(const struct dqp *q)
{
	_Atomic uint64_t *at = qp_place(q);
	if (at)
		atomic_store(&own->is[at - own->qp], IS_DEAF);
}

bool board_rejects(const struct dqp *q)
{
	uint32_t qpn = q->t.attr.dest_qp_num, slot = qpn >> RPWI_SLOT_SHIFT;
	if (!q->t.av.loopback_zone)
		return false;
	if (rpwi_steer_owns(hca_here.steer, qpn)) {
		const struct dqp *peer = qp_lookup(qpn);
		return !peer || what_it_is(peer) != IS_QP;
	}
	struct rpwi_lane *lane = rpwi_lane_up(lanes, qpn);
	struct rpwi_lane_peer *p = lane ? rpwi_lane_peer(lane) : NULL;
	const struct board *b = p ? p->board : NULL;
	return b && is_board(b, p->bytes) && b->slot == slot && atomic_load(&b->head.nonce) &&
	       atomic_load(&b->is[qpn & (RPWI_SLOT_QPNS - 1)]) != IS_QP;
}

static uint8_t *bounces[RPWI_QPS_LOCKS]; /* one for each lock of QPs, from its first use on */

/* NULL and errno: no memory. */
static uint8_t *bounce_of(const struct dqp *q)
{
	uint8_t **at = &bounces[qplock_is_split() ? q->lock - RPWI_LOCK_QPS : 0];
	if (RPWI_UNLIKELY(!*at))
		*at = aligned_alloc(4096, BOUNCE_BYTES);
	return *at;
}

/* What the board of a QP's peer says of the QP at the other end. */
struct view {
	struct rpwi_lane *lane;
	struct rpwi_lane_peer *peer;
	const struct board *board;
	const _Atomic uint64_t *word_at;
	uint64_t nonce, word;
};

/* False: there is none, or the QP is another's or does not take that. */
static inline bool look(struct rpwi_qp *t, uint64_t takes, struct view *v)
{
	uint32_t qpn = t->attr.dest_qp_num;
	v->lane = qp_lane(dqp_of(t));
	v->peer = v->lane ? rpwi_lane_peer(v->lane) : NULL;
	if (!v->peer || rpwi_port_is_watched(t->av.port) ||
		!is_board(v->peer->board, v->peer->bytes))
		return false;
	v->board = v->peer->board;
	v->word_at = &v->board->qp[qpn & (RPWI_SLOT_QPNS - 1)];
	v->nonce = atomic_load_explicit(&v->board->head.nonce, memory_order_acquire);
	v->word = atomic_load_explicit(v->word_at, memory_order_acquire);
	return v->board->slot == qpn >> RPWI_SLOT_SHIFT && v->word & takes &&
	       word_peer(v->word) == t->qpn;
}

enum board_tells board_key_look(
	struct rpwi_qp *t, uint32_t rkey, uint64_t *iova, uint64_t *len, int *access)
{
	struct rpwi_lane *lane = qp_lane(dqp_of(t));
	struct rpwi_lane_peer *p = lane ? rpwi_lane_peer(lane) : NULL;
	const struct board *b = p ? p->board : NULL;
	if (!b || !is_board(b, p->bytes) || !atomic_load(&b->head.nonce) ||
		b->slot != t->attr.dest_qp_num >> RPWI_SLOT_SHIFT)
		return BOARD_TELLS_NOTHING;
	const struct board_key *at = key_place((struct board *)(uintptr_t)b, rkey);
	uint32_t turn = atomic_load_explicit(&at->turn, memory_order_acquire), key = at->key;
	*iova = at->iova;
	*len = at->length;
	*access = (int)at->access;
	atomic_thread_fence(memory_order_acquire);
	if ((turn & 1) || atomic_load_explicit(&at->turn, memory_order_relaxed) != turn)
		return BOARD_TELLS_NOTHING;
	if (key == rkey)
		return BOARD_TELLS_REGION;
	return key ? BOARD_TELLS_NOTHING : BOARD_TELLS_NONE; /* the place may be another's */
}

const uint8_t *board_read(struct rpwi_qp *t, uint32_t rkey, uint64_t addr, uint32_t len, void *into)
{
	struct view v;
	if ((!into && len > RPWI_PEER_READ_MAX) || !look(t, BOARD_QP_TAKES_READS, &v))
		return NULL;
	struct rpwi_lane_peer *p = v.peer;
	const struct board *b = v.board;
	const _Atomic uint64_t *word_at = v.word_at;
	uint64_t nonce = v.nonce, word = v.word;
	uint32_t turn, again;
	uint8_t *bounce = bounce_of(dqp_of(t));
	if (!bounce)
		return NULL;
	uint64_t from = region(b, IBV_ACCESS_REMOTE_READ, rkey, word_pd(word), addr, len, &turn);
	if (!from)
		return NULL;
	const void *there = (const void *)(uintptr_t)from;
	uint8_t *to = into ? into : rpwi_copy_way(bounce, there, there);
	/* Once, and again when it has forked. */
	if (nonce != atomic_load_explicit(&p->trusted, memory_order_relaxed)) {
		if (!rpwi_lane_peer_is_there(p))
			return NULL;
		atomic_store_explicit(&p->trusted, nonce, memory_order_relaxed);
	}
	uint8_t last[LAST_BYTES];
	if (!copy(p, to, from, len, last, bounce))
		return NULL;
	atomic_thread_fence(memory_order_seq_cst);
	if (!region(b, IBV_ACCESS_REMOTE_READ, rkey, word_pd(word), addr, len, &again) ||
		again != turn || atomic_load_explicit(word_at, memory_order_acquire) != word ||
		atomic_load_explicit(&b->head.nonce, memory_order_acquire) != nonce)
		return NULL;
	return settle(to, len, last) ? to : NULL;
}

/* ---- a peer that is stopped ---- */

_Static_assert((int)LANE_NONE == (int)RPWI_NO_PSN, "no PSN, here and there");

static struct view over; /* from take_over to give_over */

bool board_take_over(struct rpwi_qp *t, uint32_t una, uint32_t *from)
{
	return look(t, BOARD_QP_TAKES_WRITES, &over) && rpwi_lane_peer_is_there(over.peer) &&
	       rpwi_lane_take_over(over.lane, t->attr.dest_qp_num, una, from);
}

static bool put(uint64_t to, const void *from, size_t len)
{
	for (ssize_t n; len; to += (uint64_t)n, from = (const uint8_t *)from + n, len -= (size_t)n)
		if ((n = pwrite(over.peer->mem_fd, from, len, (off_t)to)) <= 0)
			return false;
	return true;
}

/* All but the last few bytes, which go in one piece. */
static bool put_all(uint64_t to, const struct rpwi_iov *parts, unsigned n, uint64_t len)
{
	uint8_t last[SEEN_LAST];
	uint64_t first = len - RPWI_MIN(len, (uint64_t)SEEN_LAST), at = 0;
	for (unsigned i = 0; i < n; at += parts[i++].len) {
		uint64_t now = at < first ? RPWI_MIN(first - at, (uint64_t)parts[i].len) : 0;
		const uint8_t *base = parts[i].base;
		if (!put(to + at, base, now) ||
			(now < parts[i].len && rpwi_guard_copy(last + (at + now - first),
						       base + now, parts[i].len - now)))
			return false;
	}
	return put(to + first, last, len - first);
}

bool board_write(
	struct rpwi_qp *t, uint32_t rkey, uint64_t addr, const struct rpwi_iov *parts, unsigned n)
{
	uint64_t len = 0;
	uint32_t turn, again, pd = word_pd(over.word);
	for (unsigned i = 0; i < n; i++)
		len += parts[i].len;
	uint64_t to = region(over.board, IBV_ACCESS_REMOTE_WRITE, rkey, pd, addr, len, &turn);
	return to && put_all(to, parts, n, len) &&
	       region(over.board, IBV_ACCESS_REMOTE_WRITE, rkey, pd, addr, len, &again) &&
	       turn == again && rpwi_lane_peer_is_there(over.peer) &&
	       atomic_load_explicit(over.word_at, memory_order_acquire) == over.word;
}

void board_give_over(struct rpwi_qp *t, uint32_t upto)
{
	rpwi_lane_give_over(over.lane, t->attr.dest_qp_num, upto);
}
