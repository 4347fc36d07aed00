/* SPDX-License-Identifier: BSD-3-Clause */
/* The index of memory that the device may write (check/owned.h), against a list that is gone
 * through: ranges of all sizes, many at one place, posted and polled in turn. */
#include "lib/test.h"

#include "check/freed.h"
#include "check/keys.h"
#include "check/overlap.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 20000, KEY = 0x10000100 };
static const uint64_t base = 0x100000000000;
static const uint64_t all = 1ull << 36;

static struct rpwi_qp transport = {.qpn = 0x11, .type = IBV_QPT_RC};
static struct ibv_qp qp = {.qp_num = 0x11, .qp_type = IBV_QPT_RC};
static uint64_t seed = 1;

static uint64_t draw(uint64_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 20) % below;
}

static int begin(void **state)
{
	struct ibv_mr mr = {.lkey = KEY, .length = all};
	struct ibv_qp_cap cap = {.max_recv_wr = DEPTH, .max_send_wr = 1, .max_recv_sge = 2};
	check_mr_made(&mr, (void *)(uintptr_t)base, base, IBV_ACCESS_LOCAL_WRITE);
	check_qp_made(&qp, &transport, &cap, &cap);
	return 0;
}

static int end(void **state)
{
	check_qp_gone(&qp);
	check_mr_gone(KEY);
	return 0;
}

static void post(uint64_t addr, uint32_t len, uint64_t id)
{
	struct ibv_sge sge = {addr, len, KEY};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	check_recvs_begin(&qp, &wr);
	check_recvs_end(&qp, NULL);
}

static void poll_oldest(uint64_t id)
{
	struct ibv_wc wc = {.wr_id = id, .qp_num = 0x11, .opcode = IBV_WC_RECV};
	check_completes(&transport, true, &wc);
	check_polled(NULL, &wc, 1);
}

static bool count(struct check_qp *q, struct check_queue *of, struct check_wr *w, void *arg)
{
	++*(unsigned *)arg;
	return true;
}

struct range {
	uint64_t addr;
	uint32_t len;
};

/* From 1 byte to 1 GiB, often at a place that others have. */
static struct range draw_range(void)
{
	struct range r = {.len = 1 + (uint32_t)draw(1ull << draw(31))};
	r.addr = base + (draw(2) ? draw(1 << 22) : draw(all - r.len));
	if (!draw(4))
		r = (struct range){base + 4096 * draw(4), 4096};
	return r;
}

static unsigned brute(const struct range *r, uint64_t from, uint64_t to, struct range of)
{
	unsigned n = 0;
	for (uint64_t i = from; i < to; i++)
		n += r[i].addr < of.addr + of.len && of.addr < r[i].addr + r[i].len;
	return n;
}

static void as_a_list(void **state)
{
	enum { ROUNDS = 4000, OUT = 300 };
	static struct range r[ROUNDS];
	unsigned hits = 0;
	uint64_t polled = 0;
	for (uint64_t i = 0; i < ROUNDS; i++) {
		r[i] = draw_range();
		post(r[i].addr, r[i].len, i);
		while (i - polled >= OUT || (i > polled && draw(3) == 0))
			poll_oldest(polled++);
		struct range of = draw_range();
		unsigned found = 0, is = brute(r, polled, i + 1, of);
		assert_true(rpwi_check_lock());
		check_owners_each(of.addr, of.len, count, &found);
		rpwi_check_unlock();
		assert_int_equal(found, is);
		hits += is > 0;
	}
	assert_in_range(hits, ROUNDS / 10, ROUNDS);
	for (; polled < ROUNDS; polled++)
		poll_oldest(polled);
	unsigned left = 0;
	check_owners_each(base, all, count, &left);
	assert_int_equal(left, 0);
}

/* Said, not judged: the machine is others', too. */
static void many_in_flight(void **state)
{
	enum { TURNS = 100000 };
	static const uint32_t lens[] = {8, 4096, 1 << 20};
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(lens); k++) {
		const uint32_t len = lens[k];
		uint64_t id = 0, polled = 0;
		for (; id < DEPTH - 1; id++)
			post(base + id * len, len, id);
		uint64_t t = rpwi_now_ns();
		for (unsigned i = 0; i < TURNS; i++, id++) {
			poll_oldest(polled++);
			post(base + id % DEPTH * len, len, id);
		}
		t = (rpwi_now_ns() - t) / TURNS;
		printf("# %u bytes, %u in flight: %llu ns for a post, a completion and a poll\n",
			len, DEPTH - 1, (unsigned long long)t);
		for (; polled < id; polled++)
			poll_oldest(polled);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(as_a_list, begin, end),
		cmocka_unit_test_setup_teardown(many_in_flight, begin, end),
	};
	return cmocka_run_group_tests_name("owned", tests, NULL, NULL);
}
