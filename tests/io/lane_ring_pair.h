/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_ring_pair.h - a lane's memory with both of its ends, for the tests of lane_ring.c; and
 * chance. */
#ifndef ROPEWAY_TESTS_IO_LANE_RING_PAIR_H
#define ROPEWAY_TESTS_IO_LANE_RING_PAIR_H

#include <sys/mman.h>

#include "lib/pattern.h"
#include "lib/test.h"
#include "io/lane_ring.h"

static struct rng rng;
static __attribute__((unused)) uint32_t chance(uint32_t n) { return (uint32_t)rng_below(&rng, n); }

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
	rng.state = test_seed_any();
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

/* Its place in the table of the lane. */
static __attribute__((unused)) struct lane_way way_no(
	struct lane_writer *w, unsigned i, uint8_t ttl, uint8_t tos)
{
	const struct rpwi_flow *f = flow_no(i);
	struct lane_way way;
	assert_true(rpwi_lane_writer_way(w, f, f->sport, ttl, tos, &way));
	return way;
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

static __attribute__((unused)) bool write_packet(struct lane_writer *w, uint64_t number)
{
	static __thread uint8_t bytes[RPWI_MTU_MAX];
	uint32_t len = len_of(number), cut = len / 3;
	struct rpwi_txpkt t = {.hdr_len = hdr_len_of(number), .payload_len = len, .iov_count = 2};
	const struct rpwi_iov parts[2] = {{bytes, cut}, {bytes + cut, len - cut}};
	for (unsigned i = 0; i < t.hdr_len; i++)
		t.hdr[i] = pattern_byte(number, 10000 + i);
	for (uint32_t i = 0; i < len; i++)
		bytes[i] = pattern_byte(number, i);
	struct lane_way way = way_no(w, number % LANE_FLOWS, (uint8_t)number, 7);
	return rpwi_lane_writer_packet(w, &way, &t, parts, NULL, 0);
}

static __attribute__((unused)) bool is_packet(const struct lane_packet *p, uint64_t number)
{
	const struct rpwi_flow *f = flow_no(number % LANE_FLOWS);
	bool good = p->len == len_of(number) && p->hdr_len == hdr_len_of(number) &&
		    p->ttl == (uint8_t)number && p->tos == 7 && p->flow->sport == f->sport &&
		    rpwi_addr_eq(&p->flow->dst, &f->dst) && rpwi_addr_eq(&p->flow->src, &f->src);
	for (unsigned i = 0; good && i < p->hdr_len; i++)
		good = p->data[i] == pattern_byte(number, 10000 + i);
	for (uint32_t i = 0; good && i < p->len; i++)
		good = p->payload[i] == pattern_byte(number, i);
	return good;
}

#define RING_TEST(f) cmocka_unit_test_setup_teardown(f, ring_new, ring_free)

#endif
