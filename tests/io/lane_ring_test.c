/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_ring_test.c - the memory of a lane: what is written is read, in order, once; room; sleeps;
 * and a process at the other end that writes anything anywhere. The seed of a failing run is
 * printed; LANE_SEED runs it again. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "io/lane_ring.h"

static uint64_t seed, state;
static uint32_t chance(uint32_t n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((state >> 33) % n);
}

struct ring {
	struct lane_mem *mem;
	struct lane_writer w;
	struct lane_reader r;
};

static int ring_new(void **out)
{
	struct ring *g = calloc(1, sizeof(*g));
	g->mem = mmap(
		NULL, sizeof(*g->mem), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (g->mem == MAP_FAILED)
		return -1;
	rpwi_lane_writer_init(&g->w, g->mem);
	if (rpwi_lane_reader_init(&g->r, g->mem))
		return -1;
	state = seed;
	*out = g;
	return 0;
}

static int ring_free(void **in)
{
	struct ring *g = *in;
	munmap(g->mem, sizeof(*g->mem));
	free(g);
	return 0;
}

static const struct rpwi_flow *flow_no(unsigned i)
{
	static __thread struct rpwi_flow f;
	f = (struct rpwi_flow){.src = {.family = 4, .bytes = {127, 0, 0, 1}},
		.dst = {.family = 4, .bytes = {127, 0, 0, (uint8_t)(2 + i)}},
		.sport = (uint16_t)(0xc000 + i),
		.dport = RPWI_UDP_PORT};
	return &f;
}

static uint8_t pattern(uint64_t number, uint32_t at)
{
	return (uint8_t)((number * 0x9e3779b97f4a7c15ull >> 32) + at * 131u + (at >> 8));
}

/* Packet `number`: its sizes follow from it, and so does each byte. */
static uint32_t len_of(uint64_t number)
{
	uint32_t h = (uint32_t)(number * 2654435761u);
	switch (h >> 30) {
	case 0:
		return h % 64;
	case 1:
		return h % 300;
	default:
		return h % (RPWI_MTU_MAX + 1);
	}
}
static uint8_t hdr_len_of(uint64_t number) { return (uint8_t)(12 + number % 8 * 4); }

static bool write_packet(struct lane_writer *w, uint64_t number)
{
	static __thread uint8_t bytes[RPWI_MTU_MAX];
	uint32_t len = len_of(number), cut = len / 3;
	struct rpwi_txpkt t = {.hdr_len = hdr_len_of(number), .payload_len = len, .iov_count = 2};
	const struct rpwi_iov parts[2] = {{bytes, cut}, {bytes + cut, len - cut}};
	for (unsigned i = 0; i < t.hdr_len; i++)
		t.hdr[i] = pattern(number, 10000 + i);
	for (uint32_t i = 0; i < len; i++)
		bytes[i] = pattern(number, i);
	return rpwi_lane_writer_packet(
		w, flow_no(number % LANE_FLOWS), (uint8_t)number, 7, &t, parts);
}

static bool is_packet(const struct lane_packet *p, uint64_t number)
{
	const struct rpwi_flow *f = flow_no(number % LANE_FLOWS);
	bool good = p->len == len_of(number) && p->hdr_len == hdr_len_of(number) &&
		    p->ttl == (uint8_t)number && p->tos == 7 && p->flow.sport == f->sport &&
		    rpwi_addr_eq(&p->flow.dst, &f->dst) && rpwi_addr_eq(&p->flow.src, &f->src);
	for (unsigned i = 0; good && i < p->hdr_len; i++)
		good = p->data[i] == pattern(number, 10000 + i);
	for (uint32_t i = 0; good && i < p->len; i++)
		good = p->payload[i] == pattern(number, i);
	return good;
}

static void what_is_written_is_read_once_and_in_order(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	uint64_t written = 0, read = 0;
	while (read < 200000) {
		for (unsigned n = chance(600); n && write_packet(&g->w, written); n--)
			written++;
		for (unsigned n = chance(600); n && read < written; n--) {
			assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 1);
			assert_true(is_packet(&p, read));
			rpwi_lane_reader_done(&g->r);
			read++;
		}
		if (read == written)
			assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 0);
		rpwi_lane_reader_tell(&g->r);
	}
}

/* ---- by reference ---- */

/* What the writer's process has, and whether it can be read. */
static struct {
	uint8_t bytes[1 << 20];
	uint64_t gone_from, gone_to;
	unsigned calls, packets;
} far;

/* Places of the reader's process for some of the runs, with gaps, and not always for all of one. */
static struct {
	uint8_t bytes[2 * LANE_PULL_BYTES];
	uint32_t end;
	bool wanted;
	unsigned taken;
} near;

static void *near_place(void *arg, bool first, const struct lane_headers *h)
{
	uint32_t len = h->len * (1 + h->more);
	assert_ptr_equal(arg, &near);
	assert_int_equal(h->hdr_len, 12 + 16);
	assert_int_equal(h->more, 0);
	if (first) {
		near.wanted = chance(3);
		near.end = 0;
	}
	if (!near.wanted || !chance(50))
		return NULL;
	uint32_t at = near.end + chance(64);
	near.end = at + len;
	near.taken++;
	return near.bytes + at;
}

static bool far_pull(
	void *arg, const struct lane_span *to, const struct lane_span *from, unsigned n)
{
	assert_ptr_equal(arg, &far);
	far.calls++;
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(to[i].len, from[i].len);
		uint64_t at = from[i].addr - (uint64_t)(uintptr_t)far.bytes;
		if (at > sizeof(far.bytes) || from[i].len > sizeof(far.bytes) - at ||
			(at < far.gone_to && far.gone_from < at + from[i].len))
			return false;
		memcpy((void *)(uintptr_t)to[i].addr, far.bytes + at, from[i].len);
	}
	far.packets += n;
	return true;
}

static void far_begins(struct ring *g)
{
	memset(&far, 0, sizeof(far));
	for (uint32_t i = 0; i < sizeof(far.bytes); i++)
		far.bytes[i] = pattern(7, i);
	g->r.pull = far_pull;
	g->r.pull_arg = &far;
	g->r.place = near_place;
	g->r.place_arg = &near;
	g->w.refs = true;
}

static uint32_t far_at(uint64_t number)
{
	return (uint32_t)(number * 40503u % (sizeof(far.bytes) - RPWI_MTU_MAX));
}
enum { QPS = 5 };
static bool refer(struct lane_writer *w, uint64_t number)
{
	uint32_t len = len_of(number) ? len_of(number) : 1;
	struct rpwi_txpkt t = {
		.hdr_len = 12 + 16, .payload_len = len, .iov_count = 1, .stays = true};
	const struct rpwi_iov part = {far.bytes + far_at(number), len};
	t.hdr[7] = (uint8_t)(number % QPS);
	memcpy(t.hdr + 12, &number, sizeof(number));
	return rpwi_lane_writer_reference(w, flow_no(0), 1, 2, &t, &part);
}

/* Copied and referred to in turn; the QP of each fifth reference fails while it is under way, and
 * its memory changes. `revoked`: the numbers up to which those of a QP must not come any more,
 * unless they were fetched before. */
static void what_is_referred_to_arrives_or_was_revoked(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	static uint8_t kind[1 << 19]; /* 1 copied, 2 referred to, 3 revoked */
	uint64_t written = 0, read = 0, lost = 0, late = 0;
	far_begins(g);
	while (read < 200000) {
		for (unsigned n = chance(100); n; n--) {
			bool ref = chance(3);
			if (!(ref ? refer(&g->w, written) : write_packet(&g->w, written)))
				break;
			kind[written++] = ref ? 2 : 1;
		}
		rpwi_lane_writer_publish(&g->w);
		if (!chance(4)) {
			uint32_t qp = chance(QPS);
			rpwi_lane_writer_revoke_qp(&g->w, qp);
			for (uint64_t i = read; i < written; i++)
				kind[i] = kind[i] == 2 && i % QPS == qp ? 3 : kind[i];
		}
		for (unsigned n = chance(100); n && read < written; n--, read++) {
			bool before = rpwi_lane_reader_fetched(&g->r);
			int rc = rpwi_lane_reader_next(&g->r, &p);
			rpwi_lane_reader_done(&g->r);
			if (rc == -ENODATA) {
				assert_int_equal(kind[read], 3);
				lost++;
				continue;
			}
			assert_int_equal(rc, 1);
			if (kind[read] == 1) {
				assert_true(is_packet(&p, read));
				continue;
			}
			assert_true(kind[read] == 2 || before);
			late += kind[read] == 3;
			assert_memory_equal(p.data + 12, &read, sizeof(read));
			assert_memory_equal(p.payload, far.bytes + far_at(read), p.len);
		}
		rpwi_lane_reader_tell(&g->r);
	}
	assert_true(lost > 1000 && far.packets > 2 * far.calls);
	assert_true(near.taken > 1000);
	print_message("# %u fetched in %u calls, %llu revoked, %llu fetched before\n", far.packets,
		far.calls, (unsigned long long)lost, (unsigned long long)late);
	free(g->r.bounce);
}

/* A packet of a message with 1 KiB packets: opcode, PSN, where its payload is. */
static bool refer_at(
	struct lane_writer *w, uint8_t opcode, uint32_t psn, bool ack, uint64_t at, uint32_t len)
{
	const struct rpwi_pkt h = {.opcode = opcode,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = 0x123456,
		.psn = psn & RPWI_PSN_MASK,
		.ackreq = ack,
		.va = 0x1000,
		.rkey = 5,
		.dma_len = 1 << 20};
	struct rpwi_txpkt t = {.payload_len = len, .iov_count = 1, .stays = true};
	const struct rpwi_iov part = {far.bytes + at, len};
	t.hdr_len = (uint16_t)rpwi_pkt_encode(&h, t.hdr);
	return rpwi_lane_writer_reference(w, flow_no(0), 1, 2, &t, &part);
}

/* The next slot has so many; each of them is what refer_at was given; does the last want an ACK? */
static void expect_shared(
	struct ring *g, uint8_t opcode, uint32_t psn, uint64_t at, unsigned n, bool ack)
{
	struct lane_packet p, one;
	struct rpwi_pkt got;
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 1);
	assert_int_equal(p.more + 1, n);
	for (unsigned i = 0; i < n; i++) {
		one = p;
		rpwi_lane_packet_nth(&one, i);
		assert_int_equal(
			rpwi_pkt_decode_parts(one.data, one.hdr_len, one.payload, one.len, &got),
			0);
		assert_int_equal(got.psn, (psn + i) & RPWI_PSN_MASK);
		assert_int_equal(got.dqpn, 0x123456);
		assert_int_equal(got.ackreq, ack && i + 1 == n);
		assert_int_equal(
			got.opcode, i && opcode == RPWI_OP_WRITE_FIRST  ? RPWI_OP_WRITE_MIDDLE
				    : i && opcode == RPWI_OP_SEND_FIRST ? RPWI_OP_SEND_MIDDLE
									: opcode);
		assert_memory_equal(one.payload, far.bytes + at + i * 1024, one.len);
	}
	rpwi_lane_reader_done(&g->r);
}

static void packets_of_one_message_share_a_slot(void **arg)
{
	struct ring *g = *arg;
	struct lane_writer *w = &g->w;
	const uint32_t psn = RPWI_PSN_MASK - 3; /* it wraps */
	far_begins(g);
	g->r.place = NULL;
	assert_true(refer_at(w, RPWI_OP_WRITE_FIRST, psn, false, 0, 1024));
	for (unsigned i = 1; i < 70; i++) /* one that is fetched has 64 KiB at most */
		assert_true(refer_at(w, RPWI_OP_WRITE_MIDDLE, psn + i, false, i * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_WRITE_LAST, psn + 70, true, 70 * 1024, 1024));
	/* the next message, behind it in memory; another place; a gap of PSNs; after an ACK;
	 * another length */
	assert_true(refer_at(w, RPWI_OP_SEND_FIRST, 7, false, 71 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 8, false, 72 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 9, false, 80 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 11, false, 81 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 12, true, 82 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 13, false, 83 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 14, false, 84 * 1024, 1000));
	/* messages of one packet each */
	assert_true(refer_at(w, RPWI_OP_SEND_ONLY, 20, false, 0, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_ONLY, 21, false, 1024, 1024));
	/* seen already */
	assert_true(refer_at(w, RPWI_OP_SEND_FIRST, 30, false, 0, 1024));
	rpwi_lane_writer_publish(w);
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 31, false, 1024, 1024));
	rpwi_lane_writer_publish(w);
	expect_shared(g, RPWI_OP_WRITE_FIRST, psn, 0, 64, false);
	expect_shared(g, RPWI_OP_WRITE_MIDDLE, psn + 64, 64 * 1024, 6, false);
	expect_shared(g, RPWI_OP_WRITE_LAST, psn + 70, 70 * 1024, 1, true);
	expect_shared(g, RPWI_OP_SEND_FIRST, 7, 71 * 1024, 2, false);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 9, 80 * 1024, 1, false);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 11, 81 * 1024, 2, true);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 13, 83 * 1024, 1, false);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 14, 84 * 1024, 1, false);
	expect_shared(g, RPWI_OP_SEND_ONLY, 20, 0, 1, false);
	expect_shared(g, RPWI_OP_SEND_ONLY, 21, 1024, 1, false);
	expect_shared(g, RPWI_OP_SEND_FIRST, 30, 0, 1, false);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 31, 1024, 1, false);
	free(g->r.bounce);
}

/* Any byte of what a slot refers to that goes back to the program takes all of it along. */
static void a_shared_slot_is_revoked_as_a_whole(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	far_begins(g);
	g->r.place = NULL;
	assert_true(refer_at(&g->w, RPWI_OP_SEND_FIRST, 0, false, 0, 1024));
	for (unsigned i = 1; i < 10; i++)
		assert_true(refer_at(&g->w, RPWI_OP_SEND_MIDDLE, i, false, i * 1024, 1024));
	rpwi_lane_writer_publish(&g->w);
	rpwi_lane_writer_revoke_memory(&g->w, (uint64_t)(uintptr_t)far.bytes + 10 * 1024 - 1, 1);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -ENODATA);
	rpwi_lane_reader_done(&g->r);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 0);
	free(g->r.bounce);
}

static void a_slot_that_has_too_many_is_refused(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	const uint32_t more[] = {64, 65, 1 << 22, INT32_MAX, UINT32_MAX - 1, UINT32_MAX};
	far_begins(g);
	g->r.place = NULL;
	assert_true(refer_at(&g->w, RPWI_OP_SEND_FIRST, 0, false, 0, 1024));
	rpwi_lane_writer_publish(&g->w);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(more); i++) {
		g->mem->slot[0].bulk = more[i];
		assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -EPROTO);
	}
	assert_int_equal(far.calls, 0);
	g->mem->slot[0].bulk = 63;
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 1);
	assert_int_equal(p.more, 63);
	g->mem->slot[0].bulk = 62; /* changed since */
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -EPROTO);
	free(g->r.bounce);
}

static void what_cannot_be_fetched_takes_no_other_along(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	struct rpwi_txb *b = calloc(1, sizeof(*b));
	far_begins(g);
	for (b->npkt = 0; b->npkt < 20; b->npkt++)
		b->pkt[b->npkt] = (struct rpwi_txpkt){.payload_len = 1024, .stays = true};
	g->w.choice = LANE_FETCHED;
	assert_true(rpwi_lane_writer_may_refer(&g->w, b));
	for (uint64_t n = 0; n < 20; n++)
		assert_true(refer(&g->w, n));
	assert_false(rpwi_lane_reader_ready(&g->r)); /* all at once */
	rpwi_lane_writer_publish(&g->w);
	far.gone_from = far_at(7);
	far.gone_to = far.gone_from + 1;
	for (uint64_t n = 0; n < 20; n++) {
		uint32_t at = far_at(n), len = len_of(n) ? len_of(n) : 1;
		bool gone = at < far.gone_to && far.gone_from < at + len;
		assert_int_equal(rpwi_lane_reader_next(&g->r, &p), gone ? -ENODATA : 1);
		rpwi_lane_reader_done(&g->r);
	}
	assert_false(rpwi_lane_writer_may_refer(&g->w, b)); /* from now on it copies */
	/* and memory that is deregistered, by any byte of it */
	far.gone_to = 0;
	assert_true(refer(&g->w, 20) && refer(&g->w, 21));
	rpwi_lane_writer_publish(&g->w);
	rpwi_lane_writer_revoke_memory(&g->w, (uint64_t)(uintptr_t)far.bytes + far_at(20), 1);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -ENODATA);
	rpwi_lane_reader_done(&g->r);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 1);
	free(g->r.bounce);
	free(b);
}

static void a_reference_that_nobody_asked_for_is_refused(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	far_begins(g);
	g->r.pull = NULL;
	assert_true(refer(&g->w, 0));
	rpwi_lane_writer_publish(&g->w);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -EPROTO);
}

static void room_is_what_can_be_written(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	const uint8_t bytes[RPWI_PACKET_MAX] = {1};
	for (unsigned round = 0; round < 2000; round++) {
		uint32_t len = 1 + chance(RPWI_PACKET_MAX);
		unsigned room = rpwi_lane_writer_room(&g->w, 64, len), n = chance(65);
		assert_true(room <= 64);
		for (unsigned i = 0; i < n; i++) {
			bool written =
				rpwi_lane_writer_datagram(&g->w, flow_no(0), 1, 2, bytes, len);
			assert_true(written || i >= room);
		}
		for (unsigned i = chance(80); i && rpwi_lane_reader_next(&g->r, &p) == 1; i--)
			rpwi_lane_reader_done(&g->r);
		rpwi_lane_reader_tell(&g->r);
	}
}

static void addresses_beyond_its_table_are_refused(void **arg)
{
	struct ring *g = *arg;
	const uint8_t bytes[16] = {3};
	for (unsigned i = 0; i < LANE_FLOWS; i++)
		assert_true(rpwi_lane_writer_datagram(&g->w, flow_no(i), 1, 2, bytes, 16));
	assert_false(rpwi_lane_writer_datagram(&g->w, flow_no(LANE_FLOWS), 1, 2, bytes, 16));
	assert_true(rpwi_lane_writer_datagram(&g->w, flow_no(3), 1, 2, bytes, 16));
}

/* Two threads, and neither misses the other's sleep: a condition stands for the descriptors. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool reader_woken, writer_woken;
} door = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
static uint64_t sleeps;

static void ring_bell(bool *which)
{
	pthread_mutex_lock(&door.lock);
	*which = true;
	pthread_cond_broadcast(&door.cond);
	pthread_mutex_unlock(&door.lock);
}
static void wait_bell(bool *which)
{
	pthread_mutex_lock(&door.lock);
	while (!*which)
		pthread_cond_wait(&door.cond, &door.lock);
	*which = false;
	pthread_mutex_unlock(&door.lock);
}

enum { RACE = 300000 };

static void *race_writer(void *arg)
{
	struct ring *g = arg;
	for (uint64_t n = 0; n < RACE;) {
		if (write_packet(&g->w, n)) {
			n++;
			if (rpwi_lane_writer_wakes(&g->w))
				ring_bell(&door.reader_woken);
		} else if (!rpwi_lane_writer_stalls(&g->w, RPWI_MTU_MAX)) {
			wait_bell(&door.writer_woken);
		}
	}
	return NULL;
}

static void neither_side_misses_that_the_other_sleeps(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, race_writer, g), 0);
	for (uint64_t n = 0; n < RACE;) {
		int rc = rpwi_lane_reader_next(&g->r, &p);
		assert_true(rc >= 0);
		if (rc) {
			assert_true(is_packet(&p, n));
			rpwi_lane_reader_done(&g->r);
			n++;
			continue;
		}
		if (rpwi_lane_reader_tell(&g->r))
			ring_bell(&door.writer_woken);
		if (rpwi_lane_reader_sleeps(&g->r)) {
			sleeps++;
			wait_bell(&door.reader_woken);
		}
		rpwi_lane_reader_wakes(&g->r);
	}
	pthread_join(t, NULL);
	print_message(
		"# %d packets, %llu sleeps of the reader\n", RACE, (unsigned long long)sleeps);
}

/* Every byte of the room that it is told of. */
static bool lies_pull(
	void *arg, const struct lane_span *to, const struct lane_span *from, unsigned n)
{
	uint32_t len = 0;
	for (unsigned i = 0; i < n; i++) {
		len += from[i].len;
		assert_true(len <= LANE_PULL_BYTES);
		memset((void *)(uintptr_t)to[i].addr, 1, from[i].len);
	}
	return chance(4);
}

/* Anything in a slot: the reader gives a packet that lies within the memory, or says -EPROTO. */
static void a_writer_that_lies_is_caught(void **arg)
{
	struct ring *g = *arg;
	unsigned caught = 0, taken = 0;
	for (unsigned round = 0; round < 300000; round++) {
		struct lane_reader r = g->r;
		struct lane_packet p;
		struct lane_slot *s = &g->mem->slot[r.pos % LANE_SLOTS];
		uint8_t *b = (uint8_t *)s;
		s->kind = (uint8_t)(1 + chance(4));
		s->flow = 0;
		s->hdr_len = (uint8_t)chance(50);
		s->len = chance(3) ? chance(RPWI_PACKET_MAX + 64) : (uint32_t)state;
		s->bulk = chance(3) ? chance(LANE_BULK_BYTES + 64) : (uint32_t)state;
		for (unsigned n = chance(4); n; n--)
			b[4 + chance(sizeof(*s) - 4)] = (uint8_t)chance(256);
		g->mem->flow[0].src.family = g->mem->flow[0].dst.family = (uint8_t)(4 + chance(4));
		s->seq = (uint32_t)(r.pos / LANE_SLOTS) + 1;
		r.pull = lies_pull;
		int rc = rpwi_lane_reader_next(&r, &p);
		g->r.bounce = r.bounce;
		if (rc == -EPROTO) {
			caught++;
			continue;
		}
		if (rc == -ENODATA)
			continue;
		assert_int_equal(rc, 1);
		taken++;
		assert_true(p.flow.src.family == 4 || p.flow.src.family == 6);
		assert_true(p.hdr_len <= LANE_DATA_BYTES);
		const uint8_t *end = p.payload + p.len;
		if (p.kind == LANE_BESIDE)
			assert_true(end <= p.data + LANE_DATA_BYTES);
		else if (s->kind == LANE_REF)
			assert_true(p.payload >= r.bounce && end <= r.bounce + LANE_PULL_BYTES &&
				    p.len <= RPWI_MTU_MAX);
		else
			assert_true(p.payload >= g->mem->bulk &&
				    end <= g->mem->bulk + LANE_BULK_BYTES &&
				    p.len <= RPWI_PACKET_MAX);
	}
	assert_true(caught > 1000 && taken > 1000);
	free(g->r.bounce);
}

static void a_reader_that_lies_stops_the_writer(void **arg)
{
	struct ring *g = *arg;
	for (uint64_t n = 0; n < 10; n++)
		assert_true(write_packet(&g->w, n));
	while (write_packet(&g->w, 2))
		;
	atomic_store(&g->mem->taken, g->w.pos + 1); /* more than there was */
	assert_false(write_packet(&g->w, 2));
	assert_true(g->w.broken);
	assert_int_equal(rpwi_lane_writer_room(&g->w, 1, 8), 0);
	atomic_store(&g->mem->taken, g->w.pos);
	assert_false(write_packet(&g->w, 2)); /* and is not believed again */
}

static void another_build_is_refused(void **arg)
{
	struct ring *g = *arg;
	g->mem->version++;
	assert_int_equal(rpwi_lane_reader_init(&g->r, g->mem), -EPROTO);
	g->mem->version--;
	g->mem->bulk_bytes *= 2;
	assert_int_equal(rpwi_lane_reader_init(&g->r, g->mem), -EPROTO);
}

#define RING_TEST(f) cmocka_unit_test_setup_teardown(f, ring_new, ring_free)

int main(void)
{
	const char *given = getenv("LANE_SEED");
	const struct CMUnitTest tests[] = {
		RING_TEST(what_is_written_is_read_once_and_in_order),
		RING_TEST(what_is_referred_to_arrives_or_was_revoked),
		RING_TEST(packets_of_one_message_share_a_slot),
		RING_TEST(a_shared_slot_is_revoked_as_a_whole),
		RING_TEST(a_slot_that_has_too_many_is_refused),
		RING_TEST(what_cannot_be_fetched_takes_no_other_along),
		RING_TEST(a_reference_that_nobody_asked_for_is_refused),
		RING_TEST(room_is_what_can_be_written),
		RING_TEST(addresses_beyond_its_table_are_refused),
		RING_TEST(neither_side_misses_that_the_other_sleeps),
		RING_TEST(a_writer_that_lies_is_caught),
		RING_TEST(a_reader_that_lies_stops_the_writer),
		RING_TEST(another_build_is_refused),
	};
	seed = given ? strtoull(given, NULL, 0) : rpwi_random64();
	fprintf(stderr, "# LANE_SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
