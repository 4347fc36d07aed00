/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_ring.h - packets from one process to another through memory that both have mapped: one
 * writer, one reader, no system call. Pure memory: its owners, and waking them, are lane.c's.
 *
 * A packet is one slot, a cache line: what kind it is, its headers, and a payload that fits beside
 * them. A longer payload lies in the bulk area, in one piece, and is given back with its slot. The
 * writer fills a slot and then writes its `seq`, the lap of the ring; the reader compares that with
 * the lap that it is in, so a slot is read as often as it was written, and nothing has to be
 * cleared. No payload ever lies where a `seq` does.
 *
 * A payload by reference stays where it is in the writer's process: the slot has its address, and
 * the reader fetches a run of them at once into memory of its own (`pull`). So the bytes cross from
 * core to core once. And the lines of slots are few: packets of one message whose headers follow
 * from those of the one before (rpwi_pkt_follow) and whose bytes, as many, lie behind its bytes,
 * share its slot; the last of them may ask for an ACK. (So does a plain ACK with the short packet
 * behind it: a reply is one line.) The writer promises that the bytes stay as they are until the
 * packets are acknowledged; where that ends early (its QP fails, the region is deregistered) it
 * revokes the slot first. The reader looks at that after it has fetched: a packet not revoked by
 * then was whole. One that was revoked, or could not be fetched, is lost, as on a wire; after the
 * latter the writer copies.
 *
 * Trust: the other process can write anything anywhere in it at any time. The reader copies a slot
 * before it looks at it, checks every number against the bounds, and keeps its own positions; the
 * writer checks what the reader says that it has taken. A bulk payload is read once, by the copy to
 * where it goes.
 *
 * Order (C11): the contents of a slot and its payload happen before its seq (release, acquire);
 * what the reader has taken happens before `taken` (likewise), and only then it is written again.
 * Before it sleeps the reader sets `sleeps` and looks again; the writer publishes and then looks at
 * `sleeps`; with a full fence between the two in both, one of them sees the other (Dekker). The
 * same of `stalled`, with the roles exchanged, and of `said` of a slot: the writer revokes it, and
 * then the program may change its memory; the reader fetches, and then looks.
 *
 * Over (lane_over.c): while the reader's process is stopped, the writer does its WRITEs for it, in
 * the reader's memory, and says of their slots that they are placed: the reader takes them when it
 * goes on, all but the bytes.
 */
#ifndef ROPEWAY_IO_LANE_RING_H
#define ROPEWAY_IO_LANE_RING_H

#include <stdatomic.h>

#include "base/copy.h"
#include "near/cost.h"
#include "wire/packet.h"

enum {
	LANE_SLOTS = 512,
	LANE_BULK_BYTES = 1 << 19,
	LANE_LINE = 64,
	LANE_DATA_BYTES = 44,
	LANE_FLOWS = 16, /* pairs of addresses */
	LANE_MAGIC = 0x6c616e65,
	LANE_VERSION = 6,
	LANE_REF_HDR_BYTES = 36,   /* headers beside an address */
	LANE_REF_BYTES = 1 << 16,  /* of one slot, all of its packets */
	LANE_PULL_BYTES = 1 << 18, /* at once */
	LANE_PULL_SLOTS = 64,      /* likewise */
	LANE_BOUNCE_BYTES = LANE_PULL_BYTES + LANE_PULL_SLOTS * RPWI_COPY_WAY_MORE,
	LANE_REF_MIN_BYTES = 1 << 14, /* a batch with less is copied */
};

/* In a reference's `bulk`: the last of its packets asks for an ACK. */
#define LANE_REF_ACK 0x80000000u
/* In the `bulk` of a payload beside its headers: a plain ACK to the same QP comes before it, of the
 * PSN in the low bits; its AETH ends `data`. */
#define LANE_LED_BY_ACK 0x80000000u
enum { LANE_AETH_AT = LANE_DATA_BYTES - 4, LANE_ACK_HDR_LEN = RPWI_BTH_LEN + 4 };

enum lane_kind {
	LANE_BESIDE = 1, /* headers and payload in the slot */
	LANE_BULK,       /* headers in the slot, the payload in the bulk area */
	LANE_DATAGRAM,   /* a whole UDP payload with its ICRC, in the bulk area */
	LANE_REF,        /* headers and an address in the slot, payloads in the writer's memory */
};

/* REVOKED: not to be fetched. PLACING: the writer is about to place its bytes; the slot waits.
 * PLACED: it has. */
enum lane_said { LANE_STANDS, LANE_REVOKED, LANE_PLACING, LANE_PLACED };

/* In `kind` of a payload beside its headers, above the kind: how many of its batch follow it, at
 * most so many. Where there are as many, the reader asks for the line that is so far ahead. Beyond
 * the batch's end it would take a line away that the writer has just asked for. */
enum { LANE_KIND_BITS = 3, LANE_FOLLOW_MAX = (1 << (8 - LANE_KIND_BITS)) - 1, LANE_AHEAD = 2 };

struct lane_slot {
	_Atomic uint32_t seq;
	uint8_t kind, flow, hdr_len;
	_Atomic uint8_t said; /* by the writer, afterwards: enum lane_said */
	uint32_t len;         /* of the payload, or of the datagram */
	/* where it begins in the bulk area; LANE_REF: packets more in this slot; LANE_BESIDE:
	 * whether an ACK leads */
	uint32_t bulk;
	uint8_t ttl, tos;
	uint16_t sport;                /* what the UDP header would have; the ICRC covers it */
	uint8_t data[LANE_DATA_BYTES]; /* LANE_REF: the address in the last 8 bytes */
};
_Static_assert(sizeof(struct lane_slot) == LANE_LINE, "a packet of 8 bytes is one line");
_Static_assert(LANE_BOUNCE_BYTES % 4096 == 0, "whole pages");

struct lane_mem {
	uint32_t magic, version, slots, bulk_bytes;
	/* written before the first slot that names it */
	struct lane_flow {
		struct rpwi_addr src, dst;
	} flow[LANE_FLOWS];
	_Alignas(LANE_LINE) _Atomic uint64_t taken; /* by the reader: slots given back */
	_Atomic uint32_t turn;                      /* by the reader: odd while it takes some */
	_Atomic uint32_t copies;                    /* by the reader: it cannot fetch */
	/* by the reader, what 64 KiB take it that were copied, and that it fetched; 0: not known */
	_Atomic uint32_t copied_ns, fetched_ns;
	_Alignas(LANE_LINE) _Atomic uint32_t sleeps;  /* by the reader; the writer takes it back */
	_Alignas(LANE_LINE) _Atomic uint32_t stalled; /* by the writer; the reader takes it back */
	/* by the writer: odd while it may write into the reader's memory */
	_Atomic uint32_t over;
	_Alignas(LANE_LINE) struct lane_slot slot[LANE_SLOTS];
	_Alignas(LANE_LINE) uint8_t bulk[LANE_BULK_BYTES];
};

/* ---- the writer's end ---- */

struct lane_writer {
	struct lane_mem *mem;
	uint64_t pos, taken;           /* slots: written, and known to be given back */
	uint64_t bulk_pos;             /* bytes of the bulk area, those left out at its end too */
	uint64_t bulk_taken;           /* likewise */
	uint64_t bulk_end[LANE_SLOTS]; /* bulk_pos after each slot */
	unsigned nflows;
	bool broken; /* the reader said what cannot be */
	bool refs;   /* the reader can fetch from this process's memory */
	enum lane_choice { LANE_MEASURED, LANE_FETCHED, LANE_COPIED } choice;
	unsigned asked;
	_Atomic uint32_t fill_ns; /* what it takes to copy 64 KiB here; 0: not known */
	struct lane_ref {
		uint64_t addr;
		uint32_t len, dqpn;
	} ref[LANE_SLOTS]; /* len 0: that slot has none */
	uint64_t ref_end;  /* pos after the last one */
	struct lane_run {  /* what would share the slot before that; len 0: nothing */
		uint8_t bth[RPWI_BTH_LEN];
		uint64_t addr;
		uint32_t len;
	} run;
	uint64_t held; /* from here on to pos they are not published yet */
};
/* mem is zeroed, and the writer's alone until now */
void rpwi_lane_writer_init(struct lane_writer *w, struct lane_mem *mem);
/* How many packets of up to `bytes` bytes, at most `want`, have room now. */
unsigned rpwi_lane_writer_room(struct lane_writer *w, unsigned want, uint32_t bytes);
/* So many packets come next: their slots, which the reader had last, may be fetched meanwhile. */
void rpwi_lane_writer_expects(const struct lane_writer *w, unsigned n);
/* What the headers of IP and UDP would say, for all packets of a batch. False: more pairs of
 * addresses than the lane has room for. */
struct lane_way {
	uint8_t flow, ttl, tos;
	uint16_t sport;
};
bool rpwi_lane_writer_way(struct lane_writer *w, const struct rpwi_flow *flow, uint16_t sport,
	uint8_t ttl, uint8_t tos, struct lane_way *out);
/* False: no room. Reads the pieces once; call it under the guard (base/guard.h). `ack`: NULL, or
 * the headers of a plain ACK that comes before it, if rpwi_lane_ack_may_lead says so. `follow`: so
 * many of the batch come behind it. */
bool rpwi_lane_writer_packet(struct lane_writer *w, const struct lane_way *way,
	const struct rpwi_txpkt *t, const struct rpwi_iov *parts, const uint8_t *ack,
	unsigned follow);
static inline bool rpwi_lane_ack_may_lead(const struct rpwi_txpkt *t)
{
	return t->hdr_len + t->payload_len <= LANE_AETH_AT;
}
/* A packet of at most LANE_SHORT_BYTES, without a batch and under a guard of its own. 0; -ENOSPC:
 * no room; -EFAULT: its payload is not mapped. */
enum { LANE_SHORT_BYTES = LANE_AETH_AT - RPWI_SHORT_HDR_MAX };
int rpwi_lane_writer_short(
	struct lane_writer *w, const struct lane_way *way, const struct rpwi_short *s);
/* Is a batch to go by reference? Copied, it takes as long as the slower side needs for its copy;
 * fetched, as long as the reader needs for both. Which is less depends on where the two run: it is
 * measured, and now and then the other way is taken, so that it stays known. Then each packet of
 * the batch whose payload stays is written so, and at the end all of them are published at once, so
 * that the reader fetches them together. */
bool rpwi_lane_writer_may_refer(struct lane_writer *w, const struct rpwi_txb *b);
bool rpwi_lane_writer_reference(struct lane_writer *w, const struct lane_way *way,
	const struct rpwi_txpkt *t, const struct rpwi_iov *part);
void rpwi_lane_writer_publish(struct lane_writer *w);
/* When it returns, no packet to that QP, or from that memory, is taken that has not been fetched by
 * now. */
void rpwi_lane_writer_revoke_qp(struct lane_writer *w, uint32_t dqpn);
void rpwi_lane_writer_revoke_memory(struct lane_writer *w, uint64_t addr, uint64_t len);
bool rpwi_lane_writer_datagram(
	struct lane_writer *w, const struct lane_way *way, const void *data, uint32_t len);
/* After the last of some: is the reader to be woken? Once for each of its sleeps. */
bool rpwi_lane_writer_wakes(struct lane_writer *w);
/* No room: the reader is to say when there is. True: there is some by now. */
bool rpwi_lane_writer_stalls(struct lane_writer *w, uint32_t bytes);

/* Takes back how far the reader is. */
void rpwi_lane_writer_look(struct lane_writer *w);

/* The WRITEs to that QP that the reader has not begun to take, from PSN `una` on (24 bits), are the
 * writer's to do, if `stopped` says that no thread of the reader's process runs: then *from is the
 * PSN of the first, or LANE_NONE, and until rpwi_lane_writer_give_over the writer may write into
 * the reader's memory. False: nothing has changed. */
enum { LANE_NONE = 1 << 24 };
bool rpwi_lane_writer_take_over(struct lane_writer *w, uint32_t dqpn, uint32_t una, uint32_t *from,
	bool (*stopped)(void *arg), void *arg);
/* Those before PSN `upto` are done; LANE_NONE: none is. */
void rpwi_lane_writer_give_over(struct lane_writer *w, uint32_t dqpn, uint32_t upto);
/* In the reader's process: does the writer write into its memory? */
static inline bool rpwi_lane_is_over(const struct lane_mem *m)
{
	return atomic_load_explicit(&m->over, memory_order_acquire) & 1;
}

/* ---- the reader's end ---- */

/* A packet with these headers, and `more` that follow it, each with `len` bytes, all of them at
 * `from` in the writer's memory. */
struct lane_headers {
	const uint8_t *hdr;
	unsigned hdr_len, more;
	uint32_t len;
	const void *from;
};
/* Where their payloads belong, in one piece of this process's memory, if they may be put there
 * before they are known to be whole: they are taken before anything else happens there, or sent
 * again. NULL: in the bounce buffer, from where they are copied upwards. `first`: of a run, whose
 * packets come here in turn. */
typedef void *lane_place_fn(void *arg, bool first, const struct lane_headers *h);

struct lane_span {
	uint64_t addr;
	uint32_t len;
};
struct lane_reader {
	struct lane_mem *mem;
	/* All of `from`, of the writer's memory, one after the other, to `to`, as many and as long
	 * in this process's; false: not so. NULL: it cannot be read, and nobody was told that it
	 * could. */
	bool (*pull)(
		void *arg, const struct lane_span *to, const struct lane_span *from, unsigned n);
	void *pull_arg;
	lane_place_fn *place; /* NULL: all to the bounce buffer */
	void *place_arg;
	uint8_t *bounce; /* LANE_BOUNCE_BYTES */
	struct lane_pulled {
		const uint8_t *at;
		uint32_t len; /* of all its packets */
		bool lost;
	} pulled[LANE_PULL_SLOTS]; /* of the slots from pull_pos on */
	uint64_t pull_pos;
	unsigned npulled;
	uint64_t pos, told; /* slots taken; of those, `taken` in the memory says so many */
	bool owes_fence;    /* between what it said and a look whether the writer waits for it */
	unsigned nflows;
	struct rpwi_flow flow[LANE_FLOWS]; /* copies, checked */
};
/* 0, or -EPROTO: not made by a build like this one. Its bounce buffer, which comes with the first
 * fetch, is free()d by whoever has the reader. */
int rpwi_lane_reader_init(struct lane_reader *r, struct lane_mem *mem);

/* A packet; the slot is copied, a payload in the bulk area is where the writer can still change
 * it. */
struct lane_packet {
	enum lane_kind kind;
	const struct rpwi_flow *flow; /* the reader's, until the next packet */
	uint8_t ttl, tos;
	uint8_t hdr_len;
	uint32_t len;
	unsigned more; /* that follow it, with `len` bytes each, behind its payload */
	bool more_ack; /* the last of those asks for an ACK */
	bool led;      /* by a plain ACK of ack_psn, whose AETH ends `data` */
	uint32_t ack_psn;
	bool fetched;           /* from the writer's memory */
	bool placed;            /* the writer has put the payload where it belongs */
	const uint8_t *payload; /* or the datagram */
	uint8_t data[LANE_DATA_BYTES];
};
/* How many packets it is: the ACK that leads, itself, and `more`. */
static inline unsigned rpwi_lane_packet_parts(const struct lane_packet *p)
{
	return p->led + 1 + p->more;
}
/* That of them which is the n-th, alone. */
void rpwi_lane_packet_nth(struct lane_packet *p, unsigned n);
/* The ACK that leads, decoded. */
void rpwi_lane_packet_ack(const struct lane_packet *p, struct rpwi_pkt *ack);
bool rpwi_lane_reader_ready(const struct lane_reader *r);
/* Before the first of a turn, and when the last of it has been dealt with. */
void rpwi_lane_reader_turns(struct lane_reader *r, bool begins);
/* 1 with *p filled, 0: nothing there, -EPROTO: the writer wrote what cannot be, -ENODATA: this one
 * is lost (rpwi_lane_reader_done, and on). A payload by reference comes as LANE_BULK. */
int rpwi_lane_reader_next(struct lane_reader *r, struct lane_packet *p);
/* What rpwi_lane_reader_next gave is dealt with: its slot is free. */
void rpwi_lane_reader_done(struct lane_reader *r);
/* Slots from this one on that have been fetched. */
unsigned rpwi_lane_reader_fetched(const struct lane_reader *r);
/* No more for now: says what has been taken. True: the writer waits for that: wake it. One that
 * begins to wait at this very instant may not be seen: who finds nothing the next time has time for
 * a fence, and settles. */
bool rpwi_lane_reader_tell(struct lane_reader *r);
static inline bool rpwi_lane_reader_owes(const struct lane_reader *r) { return r->owes_fence; }
bool rpwi_lane_reader_settle(struct lane_reader *r); /* likewise */
/* Before a sleep. False: something is there. */
bool rpwi_lane_reader_sleeps(struct lane_reader *r);
void rpwi_lane_reader_wakes(struct lane_reader *r);

#endif
