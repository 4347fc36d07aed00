/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_ring_test.c - the memory of a lane: what is written is read, in order, once; room; sleeps;
 * and a process at the other end that writes anything anywhere. What goes by
 * reference is lane_ring_refs_test.c's. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "lane_ring_pair.h"

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

/* A SEND ONLY of `len` bytes behind an ACK, in its slot. */
static bool write_led(struct lane_writer *w, uint32_t len, uint32_t psn)
{
	static uint8_t bytes[64];
	uint8_t ack[RPWI_HDR_MAX];
	const struct rpwi_pkt a = {.opcode = RPWI_SVC_RC | RPWI_OP_ACK,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = 0x123456,
		.psn = psn,
		.syndrome = 0x1f,
		.msn = psn + 5};
	const struct rpwi_pkt h = {.opcode = RPWI_SVC_RC | RPWI_OP_SEND_ONLY,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = 0x123456,
		.psn = psn + 100,
		.payload_len = len,
		.pad = (uint8_t)(-len & 3)};
	struct rpwi_txpkt t = {.payload_len = len, .iov_count = 1};
	const struct rpwi_iov part = {bytes, len};
	for (uint32_t i = 0; i < len; i++)
		bytes[i] = pattern_byte(psn, i);
	assert_int_equal(rpwi_pkt_encode(&a, ack), LANE_ACK_HDR_LEN);
	t.hdr_len = (uint16_t)rpwi_pkt_encode(&h, t.hdr);
	bool leads = rpwi_lane_ack_may_lead(&t);
	struct lane_way way = way_no(w, 0, 1, 2);
	assert_true(rpwi_lane_writer_packet(w, &way, &t, &part, leads ? ack : NULL, psn % 70));
	return leads;
}

static void an_ack_leads_a_short_packet(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p, one;
	struct rpwi_pkt got, ack;
	for (uint32_t len = 0; len <= LANE_DATA_BYTES; len++) {
		IN_CASE("len", len);
		uint32_t psn = len * 7919;
		bool led = write_led(&g->w, len, psn);
		assert_int_equal(led, len + RPWI_BTH_LEN <= LANE_AETH_AT);
		assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 1);
		assert_int_equal(p.led, led);
		assert_int_equal(rpwi_lane_packet_parts(&p), 1 + led);
		if (led) {
			rpwi_lane_packet_ack(&p, &ack);
			one = p;
			rpwi_lane_packet_nth(&one, 0);
			assert_int_equal(rpwi_pkt_decode_parts(
						 one.data, one.hdr_len, one.payload, one.len, &got),
				0);
			assert_int_equal(rpwi_lane_packet_parts(&one), 1);
			assert_int_equal(got.opcode, RPWI_SVC_RC | RPWI_OP_ACK);
			assert_int_equal(got.dqpn, 0x123456);
			assert_int_equal(got.psn, psn);
			assert_int_equal(got.syndrome, 0x1f);
			assert_int_equal(got.msn, psn + 5);
			assert_int_equal(got.payload_len, 0);
			/* decoded at once it is the same, but for the bit that is always sent, and
			 * where a payload would be */
			ack.migreq = got.migreq;
			ack.payload = got.payload;
			assert_memory_equal(&ack, &got, sizeof(ack));
		}
		one = p;
		rpwi_lane_packet_nth(&one, led);
		memset(p.data, 0, sizeof(p.data)); /* a copy has its own */
		assert_int_equal(
			rpwi_pkt_decode_parts(one.data, one.hdr_len, one.payload, one.len, &got),
			0);
		assert_int_equal(got.opcode, RPWI_SVC_RC | RPWI_OP_SEND_ONLY);
		assert_int_equal(got.psn, psn + 100);
		assert_int_equal(got.payload_len, len);
		for (uint32_t i = 0; i < len; i++)
			assert_int_equal(one.payload[i], pattern_byte(psn, i));
		rpwi_lane_reader_done(&g->r);
	}
}

static void room_is_what_can_be_written(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	const uint8_t bytes[RPWI_PACKET_MAX] = {1};
	struct lane_way way = way_no(&g->w, 0, 1, 2);
	for (unsigned round = 0; round < 2000; round++) {
		IN_CASE("round", round);
		uint32_t len = 1 + chance(RPWI_PACKET_MAX);
		unsigned room = rpwi_lane_writer_room(&g->w, 64, len), n = chance(65);
		assert_true(room <= 64);
		for (unsigned i = 0; i < n; i++) {
			bool written = rpwi_lane_writer_datagram(&g->w, &way, bytes, len);
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
	struct lane_way way;
	for (unsigned i = 0; i < LANE_FLOWS; i++)
		assert_int_equal(way_no(&g->w, i, 1, 2).flow, i);
	assert_false(rpwi_lane_writer_way(&g->w, flow_no(LANE_FLOWS), 1, 1, 2, &way));
	assert_int_equal(way_no(&g->w, 3, 1, 2).flow, 3);
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
			if (n++ % 7 == 0 && rpwi_lane_reader_tell(&g->r))
				ring_bell(&door.writer_woken);
			continue;
		}
		if (rpwi_lane_reader_tell(&g->r) || rpwi_lane_reader_settle(&g->r))
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
		IN_CASE("round", round);
		struct lane_reader r = g->r;
		struct lane_packet p;
		struct lane_slot *s = &g->mem->slot[r.pos % LANE_SLOTS];
		uint8_t *b = (uint8_t *)s;
		s->kind = (uint8_t)(1 + chance(4));
		s->flow = 0;
		s->hdr_len = (uint8_t)chance(50);
		s->len = chance(3) ? chance(RPWI_PACKET_MAX + 64) : (uint32_t)rng_next(&rng);
		s->bulk = chance(3) ? chance(LANE_BULK_BYTES + 64) : (uint32_t)rng_next(&rng);
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
		if (rc == -ENODATA || (!rc && s->said == LANE_PLACING))
			continue;
		assert_int_equal(rc, 1);
		taken++;
		assert_true(p.flow->src.family == 4 || p.flow->src.family == 6);
		assert_true(p.hdr_len <= LANE_DATA_BYTES);
		const uint8_t *end = p.payload + p.len;
		if (p.kind == LANE_BESIDE)
			assert_true(end <= p.data + LANE_DATA_BYTES);
		else if (s->kind == LANE_REF)
			assert_true(p.payload >= r.bounce && end <= r.bounce + LANE_BOUNCE_BYTES &&
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		RING_TEST(what_is_written_is_read_once_and_in_order),
		RING_TEST(an_ack_leads_a_short_packet),
		RING_TEST(room_is_what_can_be_written),
		RING_TEST(addresses_beyond_its_table_are_refused),
		RING_TEST(neither_side_misses_that_the_other_sleeps),
		RING_TEST(a_writer_that_lies_is_caught),
		RING_TEST(a_reader_that_lies_stops_the_writer),
		RING_TEST(another_build_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
