/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_test.c - remote memory: puts, gets, atomics, batches, notifications, keys; flush. */
#include "msg_test.h"

static struct {
	int n;
	uint64_t data[64];
	size_t len[64];
} told;
static void on_notify(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	/* What was put is there already. */
	const char *region = arg;
	assert_int_equal(pattern_wrong(region, len, data), len);
	told.data[told.n] = data;
	told.len[told.n++] = len;
}

static void remote_memory(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	for (int mapped = 0; mapped < 2; mapped++) {
		enum { LEN = 3 << 20 };
		char *own = malloc(LEN), *region;
		rpw_memory *m;
		if (mapped)
			assert_int_equal(rpw_memory_allocate(p.b, LEN, 7, &m), 0);
		else
			assert_int_equal(rpw_memory_register(
						 p.b, calloc(1, LEN), LEN, RPW_MEMORY_HOST, 7, &m),
				0);
		region = rpw_memory_address(m);
		assert_int_equal(rpw_memory_length(m), LEN);
		uint8_t packed[RPW_RKEY_BYTES_MAX];
		int n = rpw_rkey_pack(m, packed, sizeof(packed));
		assert_true(n > 0);
		assert_int_equal(rpw_rkey_pack(m, packed, 10), RPW_ERR_LIMIT);
		rpw_rkey *k;
		assert_int_equal(rpw_rkey_unpack(p.ea, packed, (size_t)n, &k), RPW_OK);
		rpw_request *r;
		for (int i = 0; i < 6; i++) {
			static const size_t lengths[] = {8, 1, 4096, 100000, LEN - 999, 0};
			pattern_fill(own, lengths[i], (uint64_t)i + 3);
			assert_true(rpw_put(p.ea, own, lengths[i], k, 999, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_true(rpw_endpoint_flush(p.ea, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(pattern_wrong(region + 999, lengths[i], (uint64_t)i + 3),
				lengths[i]);
			memset(own, 0, lengths[i]);
			assert_true(rpw_get(p.ea, own, lengths[i], k, 999, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			assert_int_equal(
				pattern_wrong(own, lengths[i], (uint64_t)i + 3), lengths[i]);
		}
		/* Atomics. */
		*(uint64_t *)(void *)(region + 64) = 40;
		uint64_t before = 0;
		assert_true(rpw_fetch_add(p.ea, 2, k, 64, &before, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(before, 40);
		assert_true(rpw_compare_swap(p.ea, 42, 7, k, 64, &before, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(before, 42);
		assert_true(rpw_compare_swap(p.ea, 42, 8, k, 64, &before, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(before, 7);
		assert_int_equal(*(uint64_t *)(void *)(region + 64), 7);
		/* A batch: two puts, then what they put. */
		char x[100], y[5000], back[5000];
		pattern_fill(x, sizeof(x), 70);
		pattern_fill(y, sizeof(y), 71);
		rpw_transfer batch[] = {{sizeof(rpw_transfer), false, x, sizeof(x), k, 0},
			{sizeof(rpw_transfer), false, y, sizeof(y), k, 100000}};
		assert_true(rpw_transfer_batch(p.ea, batch, 2, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(rpw_endpoint_fence(p.ea), RPW_OK);
		assert_true(rpw_get(p.ea, back, sizeof(back), k, 100000, &r) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		assert_int_equal(pattern_wrong(back, sizeof(back), 71), sizeof(back));
		assert_int_equal(pattern_wrong(region, sizeof(x), 70), sizeof(x));
		/* Notifications come after their bytes, in order. */
		told.n = 0;
		rpw_context_on_notify(p.b, on_notify, region);
		for (int i = 0; i < 20; i++) {
			pattern_fill(own, 5000, 900 + (uint64_t)i);
			assert_true(
				rpw_put_notify(p.ea, own, 5000, k, 0, 900 + (uint64_t)i, &r) >= 0);
			assert_int_equal(finish(&p, r, NULL), RPW_OK);
			for (int w = 0; w < 2000000 && told.n <= i; w++)
				both(&p);
			assert_int_equal(told.n, i + 1);
			assert_int_equal(told.data[i], 900 + i);
			assert_int_equal(told.len[i], 5000);
		}
		rpw_context_on_notify(p.b, NULL, NULL);
		/* Outside, and without the right. */
		assert_int_equal(rpw_put(p.ea, own, 2, k, LEN - 1, NULL), RPW_ERR_ACCESS);
		assert_int_equal(rpw_get(p.ea, own, 1, k, UINT64_MAX, NULL), RPW_ERR_ACCESS);
		assert_int_equal(rpw_fetch_add(p.ea, 1, k, 4, &before, NULL), RPW_ERR_INVALID);
		rpw_rkey_destroy(k);
		/* Garbled, of another version, of somebody else. */
		for (int i = 0; i < n; i++) {
			packed[i] ^= 0x10;
			assert_true(rpw_rkey_unpack(p.ea, packed, (size_t)n, &k) < 0);
			packed[i] ^= 0x10;
			assert_true(rpw_rkey_unpack(p.ea, packed, (size_t)i, &k) < 0);
		}
		assert_int_equal(rpw_rkey_unpack(p.eb, packed, (size_t)n, &k), RPW_ERR_ACCESS);
		rpw_memory_destroy(m);
		if (!mapped)
			free(region);
		free(own);
	}
	pair_close(&p);
}

/* The peer has taken everything, and closes before it answers the flush, or before there is one:
 * that is no failure. What it had not taken is one. */
static void a_flush_and_the_peers_close(void **state)
{
	for (int early = 0; early < 3; early++) {
		struct pair p;
		char in[8];
		rpw_request *r, *s, *f = NULL;
		pair_open(&p, transport);
		rpw_recv(p.b, p.eb, in, 8, 1, ALL, &r);
		assert_true(rpw_send(p.ea, "answer!", 8, 1, &s) >= 0);
		assert_int_equal(finish(&p, r, NULL), RPW_OK);
		finish(&p, s, NULL);
		if (early == 2) { /* never looked at by the peer */
			assert_true(rpw_send(p.ea, "another", 8, 2, NULL) >= 0);
		}
		if (early != 1)
			assert_int_equal(rpw_endpoint_flush(p.ea, &f), RPW_IN_PROGRESS);
		rpw_endpoint_destroy(p.eb);
		rpw_endpoint_information info = {.size = sizeof(info), .connected = true};
		WHILE_IN_TIME (info.connected) {
			both(&p);
			rpw_endpoint_info(p.ea, &info);
		}
		assert_false(info.connected);
		if (early == 1)
			assert_true(rpw_endpoint_flush(p.ea, &f) >= 0);
		assert_int_equal(finish(&p, f, NULL), early == 2 ? RPW_ERR_PEER_GONE : RPW_OK);
		p.eb = NULL;
		pair_close(&p);
	}
}

int memory_tests(void)
{
	static const struct CMUnitTest tests[] = {
		CASE(remote_memory),
		CASE(a_flush_and_the_peers_close),
	};
	return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
