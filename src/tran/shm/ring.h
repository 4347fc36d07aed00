/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.h - one direction of a link: a single-producer, single-consumer ring of 64-byte cells, and a
 * second ring of bytes for what does not fit into a cell.
 *
 * A cell is one cache line. Its first word is written last, with release, and says everything that
 * the consumer must know: the lap (so the consumer needs no tail), the kind, the lengths, the
 * endpoint. A frame of up to RING_INLINE bytes lies wholly in its cell: one line moves from core to
 * core. Longer ones have their body, and a head that is too long as well, in the bulk ring,
 * contiguous; the place is not written down, since both sides compute it from the lengths of all
 * frames before. So the consumer trusts nothing but one word, which it reads once and checks. It
 * tells the producer only now and then how far it is (a line of its own), because every such store
 * costs both sides a transfer of that line.
 *
 * The memory may be written by a hostile peer at any time: a wrong length or position gives
 * -EPROTO, and the caller fails the link.
 */
#ifndef ROPEWAY_TRAN_SHM_RING_H
#define ROPEWAY_TRAN_SHM_RING_H

#include <errno.h>
#include <stdatomic.h>

#include "tran/tran.h"

enum {
	RING_CELLS = 1024, /* 64 KiB: in the L2 cache of both cores; measured, see bench_tran */
	RING_INLINE = 56,
	/* of four links at once in the L2 cache: they moved 512 KiB messages half again as fast as
	 * with twice as much; one link alone is at most 2% slower */
	RING_BULK = 256 * 1024,
	RING_BODY_MAX = 64 * 1024,
	RING_SPARE_MAX = 64 * 1024, /* what ring_tx_room may be asked to leave */
	RING_CELLS_LAZY = RING_CELLS / 4,
	RING_BULK_LAZY = RING_BULK / 8,
};
_Static_assert(
	2 * (RING_BODY_MAX + TRAN_HEAD_MAX + 64) + RING_SPARE_MAX + RING_BULK_LAZY <= RING_BULK,
	"a frame, the skip before it and what is spared fit beside what the consumer has not told "
	"yet: else a sender would wait for ever");

struct ring_cell {
	/* lap:8 kind:4 head:9 body:23 endpoint:20, from the top */
	_Alignas(64) _Atomic uint64_t word;
	uint8_t bytes[RING_INLINE];
};
_Static_assert(sizeof(struct ring_cell) == 64, "a cell is a cache line");

/* What the two sides say to each other besides: written by the consumer, and by the producer. */
struct ring_shared {
	_Alignas(64) _Atomic uint64_t cells_done; /* consumed, counted from the beginning */
	_Atomic uint64_t bulk_done;
	/* What 64 KiB cost the consumer (near/cost.h): out of this ring; by process_vm, out of the
	 * producer's memory; out of memory of the producer's that it has mapped */
	_Atomic uint32_t out_ns, fetch_ns, mapped_ns;
	_Alignas(64) _Atomic uint32_t producer_waits; /* the producer sleeps until there is room */
	_Atomic uint32_t in_ns; /* what 64 KiB cost the producer, into this ring */
};

struct ring_tx {
	struct ring_cell *cells;
	uint8_t *bulk;
	struct ring_shared *shared;
	uint64_t tail, bulk_tail;       /* produced */
	unsigned lap;                   /* of `tail`: how often it has come round */
	uint64_t cells_done, bulk_done; /* what the consumer said last */
};

struct ring_rx {
	struct ring_cell *cells;
	uint8_t *bulk;
	struct ring_shared *shared;
	uint64_t head, bulk_head;      /* consumed */
	unsigned lap;                  /* of `head` */
	uint64_t told_head, told_bulk; /* as the producer knows it */
};

/* A frame as the consumer sees it. `line` is a copy of the cell behind its word, which the peer can
 * not change any more; aligned so that a head of 16 bytes is within one of the stores that made
 * it. */
struct ring_frame {
	unsigned kind, endpoint;
	size_t head_len, body_len;
	const uint8_t *head, *body;
	size_t bulk_used;
	_Alignas(16) uint8_t line[RING_INLINE];
	uint8_t long_head[TRAN_HEAD_MAX];
};

/* Laps are counted modulo 255, and a cell says one more: never 0, which is what is there at
 * first. */
enum { RING_LAPS = 255 };
static inline unsigned ring_lap_after(uint64_t position, unsigned lap)
{
	if (RPWI_LIKELY(position % RING_CELLS))
		return lap;
	return lap + 1 == RING_LAPS ? 0 : lap + 1;
}

static inline uint64_t ring_word(
	unsigned lap, unsigned kind, size_t head_len, size_t body_len, unsigned endpoint)
{
	return (uint64_t)(lap + 1) << 56 | (uint64_t)kind << 52 | (uint64_t)head_len << 43 |
	       (uint64_t)body_len << 20 | endpoint;
}

/* Bytes of the bulk ring for a frame: whole lines, the head in front when it is too long for the
 * cell. */
static inline size_t ring_bulk_need(size_t head_len, size_t body_len)
{
	if (head_len + body_len <= RING_INLINE)
		return 0;
	size_t head = head_len > RING_INLINE ? (head_len + 63) & ~(size_t)63 : 0;
	return head + ((body_len + 63) & ~(size_t)63);
}

static inline size_t ring_bulk_skip(uint64_t position, size_t need)
{
	size_t at = position % RING_BULK;
	return at + need > RING_BULK ? RING_BULK - at : 0;
}

/* Ask how far the consumer is. -EPROTO: it says what cannot be. */
static inline int ring_tx_refresh(struct ring_tx *tx)
{
	uint64_t cells = atomic_load_explicit(&tx->shared->cells_done, memory_order_acquire);
	uint64_t bulk = atomic_load_explicit(&tx->shared->bulk_done, memory_order_acquire);
	if (cells < tx->cells_done || cells > tx->tail || bulk < tx->bulk_done ||
		bulk > tx->bulk_tail)
		return -EPROTO;
	tx->cells_done = cells;
	tx->bulk_done = bulk;
	return 0;
}

static inline bool ring_tx_fits(const struct ring_tx *tx, size_t need, size_t spare)
{
	return tx->tail - tx->cells_done < RING_CELLS &&
	       (!need || tx->bulk_tail + ring_bulk_skip(tx->bulk_tail, need) + need + spare -
					 tx->bulk_done <=
				 RING_BULK);
}

/* Is there room for a frame that needs so much of the bulk ring, and `spare` bytes beside? 0,
 * -EAGAIN, -EPROTO. */
static inline int ring_tx_room(struct ring_tx *tx, size_t need, size_t spare)
{
	if (RPWI_LIKELY(ring_tx_fits(tx, need, spare)))
		return 0;
	if (ring_tx_refresh(tx))
		return -EPROTO;
	return ring_tx_fits(tx, need, spare) ? 0 : -EAGAIN;
}

/* After ring_tx_room said 0: where head and body go; then write them, then ring_tx_publish with the
 * same lengths. */
static inline void ring_tx_place(
	struct ring_tx *tx, size_t head_len, size_t body_len, uint8_t **head, uint8_t **body)
{
	struct ring_cell *cell = &tx->cells[tx->tail % RING_CELLS];
	size_t need = ring_bulk_need(head_len, body_len);
	*head = cell->bytes;
	if (!need) {
		*body = cell->bytes + head_len;
		return;
	}
	uint64_t at = tx->bulk_tail + ring_bulk_skip(tx->bulk_tail, need);
	*body = tx->bulk + at % RING_BULK;
	if (head_len > RING_INLINE) {
		*head = *body;
		*body += (head_len + 63) & ~(size_t)63;
	}
}

static inline void ring_tx_step(struct ring_tx *tx)
{
	tx->lap = ring_lap_after(++tx->tail, tx->lap);
}

static inline void ring_tx_publish(
	struct ring_tx *tx, unsigned kind, unsigned endpoint, size_t head_len, size_t body_len)
{
	size_t need = ring_bulk_need(head_len, body_len);
	if (need)
		tx->bulk_tail += ring_bulk_skip(tx->bulk_tail, need) + need;
	struct ring_cell *cell = &tx->cells[tx->tail % RING_CELLS];
	atomic_store_explicit(&cell->word, ring_word(tx->lap, kind, head_len, body_len, endpoint),
		memory_order_release);
	ring_tx_step(tx);
}

static inline bool ring_rx_waiting(const struct ring_rx *rx)
{
	uint64_t word =
		atomic_load_explicit(&rx->cells[rx->head % RING_CELLS].word, memory_order_acquire);
	return word >> 56 == rx->lap + 1;
}

/* The next frame: 1, 0 when there is none, -EPROTO. */
static inline int ring_rx_next(struct ring_rx *rx, struct ring_frame *f)
{
	struct ring_cell *cell = &rx->cells[rx->head % RING_CELLS];
	uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);
	if (word >> 56 != rx->lap + 1)
		return 0;
	__builtin_memcpy(f->line, cell->bytes, RING_INLINE);
	f->kind = word >> 52 & 15;
	f->head_len = word >> 43 & 511;
	f->body_len = word >> 20 & 0x7fffff;
	f->endpoint = word & 0xfffff;
	f->head = f->line;
	f->bulk_used = 0;
	if (RPWI_LIKELY(f->head_len + f->body_len <= RING_INLINE)) {
		f->body = f->head + f->head_len;
		return 1;
	}
	if (f->head_len > TRAN_HEAD_MAX || f->body_len > RING_BODY_MAX)
		return -EPROTO;
	size_t need = ring_bulk_need(f->head_len, f->body_len);
	size_t skip = ring_bulk_skip(rx->bulk_head, need);
	f->bulk_used = skip + need;
	f->body = rx->bulk + (rx->bulk_head + skip) % RING_BULK;
	if (f->head_len > RING_INLINE) {
		memcpy(f->long_head, f->body, f->head_len);
		f->head = f->long_head;
		f->body += (f->head_len + 63) & ~(size_t)63;
	}
	return 1;
}

/* The frame has been dealt with. True when the producer was told (and may have to be woken). */
static inline bool ring_rx_release(struct ring_rx *rx, const struct ring_frame *f)
{
	rx->lap = ring_lap_after(++rx->head, rx->lap);
	rx->bulk_head += f->bulk_used;
	if (RPWI_LIKELY(rx->head - rx->told_head < RING_CELLS_LAZY &&
			rx->bulk_head - rx->told_bulk < RING_BULK_LAZY))
		return false;
	rx->told_head = rx->head;
	rx->told_bulk = rx->bulk_head;
	atomic_store_explicit(&rx->shared->bulk_done, rx->bulk_head, memory_order_release);
	atomic_store_explicit(&rx->shared->cells_done, rx->head, memory_order_release);
	return true;
}

#endif
