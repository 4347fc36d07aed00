/* SPDX-License-Identifier: BSD-3-Clause */
/* keys_test.c - the keys of memory regions, from inside: each is found by its own key alone, and no
 * key tells another. */
#include "lib/test.h"
#include "device/hca.h"
#include "device/mem.h"

enum { REGIONS = 5000, BYTES = 64 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static uint8_t memory[BYTES];

static int open_any(void **state)
{
	int n;
	struct ibv_device **list = rpwi_dev_get_list(&n);
	ctx = list && n ? rpwi_dev_open_device(list[0]) : NULL;
	pd = ctx ? rpwi_dev_alloc_pd(ctx) : NULL;
	free(list);
	return pd ? 0 : -1;
}

static int close_it(void **state)
{
	rpwi_dev_dealloc_pd(pd);
	rpwi_dev_close_device(ctx);
	return 0;
}

static struct ibv_mr *region(void)
{
	struct ibv_mr *mr = rpwi_dev_reg_mr(pd, memory, BYTES, (uintptr_t)memory,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(mr);
	return mr;
}

static bool is_found(uint32_t key)
{
	hca_lock();
	bool found = mr_find(key);
	hca_unlock();
	return found;
}

/* Who knows one key, and how they are made, tries a million others: those beside it, those of small
 * numbers, those that differ in one byte, and any. */
static void a_million_guesses_hit_nothing(void **state)
{
	enum { BESIDE = 1 << 18, SMALL = 1 << 18, ANY = 1 << 19 };
	struct ibv_mr *known = region(), *secret = region();
	struct rng rng = {test_seed_any()};
	unsigned hits = 0;
	for (uint32_t i = 1; i < BESIDE; i++)
		hits += is_found(known->rkey + i) + is_found(known->rkey - i);
	for (uint32_t i = 0; i < SMALL; i++)
		hits += is_found(i) + is_found(i * 0x101);
	for (unsigned byte = 0; byte < 4; byte++)
		for (uint32_t v = 1; v < 256; v++)
			hits += is_found(known->rkey ^ v << 8 * byte);
	for (uint32_t i = 0; i < ANY; i++) {
		uint32_t x = (uint32_t)rng_next(&rng);
		hits += x != known->rkey && is_found(x);
	}
	assert_int_equal(hits, 0);
	assert_true(is_found(known->rkey) && is_found(secret->rkey));
	assert_int_equal(rpwi_dev_dereg_mr(known) | rpwi_dev_dereg_mr(secret), 0);
}

static void each_is_found_by_its_own_key(void **state)
{
	static struct ibv_mr *mr[REGIONS];
	for (unsigned i = 0; i < REGIONS; i++)
		mr[i] = region();
	for (unsigned i = 0; i < REGIONS; i += 2) {
		uint32_t key = mr[i]->rkey;
		assert_int_equal(rpwi_dev_dereg_mr(mr[i]), 0);
		assert_false(is_found(key));
	}
	for (unsigned i = 1; i < REGIONS; i += 2) {
		uint32_t was = mr[i]->rkey;
		assert_int_equal(mr[i]->lkey, was);
		/* Other rights keep the key, other memory does not. */
		assert_int_equal(rpwi_dev_rereg_mr(mr[i], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					 IBV_ACCESS_LOCAL_WRITE),
			0);
		assert_int_equal(mr[i]->rkey, was);
		assert_true(is_found(was));
		assert_int_equal(rpwi_dev_rereg_mr(mr[i], IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
					 mr[i]->addr, mr[i]->length, 0),
			0);
		assert_int_not_equal(mr[i]->rkey, was);
		assert_false(is_found(was));
		hca_lock();
		assert_ptr_equal(
			mr_find(mr[i]->rkey), &RPWI_CONTAINER_OF(mr[i], struct dmr, ibv)->k);
		hca_unlock();
		assert_int_equal(rpwi_dev_dereg_mr(mr[i]), 0);
	}
	assert_int_equal(hca_here.keys_used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_million_guesses_hit_nothing),
		cmocka_unit_test(each_is_found_by_its_own_key),
	};
	return cmocka_run_group_tests(tests, open_any, close_it);
}
