/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile_frames_test.c - a peer of bad will, over the fakes: frames and words of every type at the
 * wrong time, with wrong counts, and garbled ones. */
#include <zlib.h>

#include "msg/wire.h"
#include "msg_test.h"

/* Loans that were never made, beside one that was: wrong pools, slots, lengths and numbers, also of
 * pools that are there. At worst the endpoint fails; no view reaches beyond its pool. */
static void hostile_loans(void **state)
{
	FOR_SEEDS (seeds, 300) {
		struct pair p;
		rpw_view v[8];
		rpw_request *r[8];
		static char in[64];
		fake.rng = seeds.rng;
		pair_open(&p, transport);
		rpw_loaned l = RPW_LOANED_INIT;
		assert_int_equal(rpw_loan(p.ea, 4096, 0, 0, &l), RPW_OK);
		for (int i = 0; i < 8; i++) {
			v[i] = (rpw_view)RPW_VIEW_INIT;
			assert_true(
				(fake_random() & 1
						? rpw_recv_view(p.b, NULL, 0, 0, &v[i], &r[i])
						: rpw_recv(p.b, NULL, in, 64, 0, 0, &r[i])) >= 0);
		}
		for (int i = 0; i < 12; i++) {
			struct frame_head h = {.type = FRAME_LOAN, .tag = fake_random() % 8};
			struct loan_body b = {.slot = (uint32_t)(fake_random() % 70),
				.number = fake_random() % 4,
				.len = fake_random() % 3 ? fake_random() % 4200 : fake_random()};
			fake_pool(fake_made_by(true), &b.pool, &b.generation);
			b.pool += fake_random() % 8 == 0;
			b.generation ^= fake_random() % 8 == 0;
			fake_inject(fake_last_made(), &h, sizeof(h), &b,
				(unsigned)(fake_random() % 8 ? sizeof(b)
							     : fake_random() % sizeof(b)));
			both(&p);
		}
		for (int i = 0; i < 30; i++)
			both(&p);
		for (int i = 0; i < 8; i++) {
			for (size_t k = 0, n = v[i].data ? v[i].length : 0; k < n; k++)
				in[k % 64] ^= ((char *)v[i].data)[k];
			if (v[i].data && fake_random() & 1)
				assert_int_equal(rpw_view_release(&v[i]), RPW_OK);
		}
		rpw_loan_return(&l);
		pair_close(&p);
		for (int i = 0; i < 8; i++)
			if (v[i].data)
				assert_int_equal(rpw_view_release(&v[i]), RPW_OK);
		assert_int_equal(fake_pools(), 0);
	}
}

/* The one that listens is the last made. A peer of bad will may fail its endpoint, and nothing
 * else. */
static void hostile_frames(void **state)
{
	static char region[4096];
	FOR_SEEDS (seeds, 400) {
		struct pair p;
		fake.rng = seeds.rng;
		pair_open(&p, transport);
		rpw_memory *m;
		rpw_memory_register(p.b, region, sizeof(region), RPW_MEMORY_HOST, 7, &m);
		rpw_request *r[8];
		static char in[8][64];
		void *obj = NULL;
		size_t obj_len;
		for (int i = 0; i < 8; i++)
			rpw_recv(p.b, p.eb, in[i], sizeof(in[i]), (uint64_t)i, 7, &r[i]);
		if (seeds.seed & 1)
			rpw_recv_obj(p.b, p.eb, NULL, NULL, &obj, &obj_len, NULL);
		rpw_send_obj(p.eb, region, sizeof(region), NULL);
		rpw_send(p.eb, region, sizeof(region), 1, NULL);
		rpw_endpoint_flush(p.eb, NULL);
		for (int i = 0; i < 30; i++) {
			struct frame_head h = {(uint8_t)(fake_random() % (FRAME_TYPES + 2)),
				(uint8_t)(fake_random() % 3 ? fake_random() % 7 : fake_random()),
				(uint16_t)(fake_random() % 3), (uint32_t)fake_random(),
				fake_random() % 4 ? fake_random() % 8
						  : (uint64_t)1 << 32 | fake_random() % 4};
			uint8_t body[600];
			size_t len = fake_random() % 3 ? fake_random() % 64
						       : fake_random() % sizeof(body);
			for (size_t k = 0; k < len; k++)
				body[k] = fake_random() % 2 ? 0 : (uint8_t)fake_random();
			struct rts_body *rts = (struct rts_body *)(void *)body;
			if (h.type == FRAME_RTS && fake_random() % 4) {
				uint64_t piece = fake_random() % 3 ? 5000 : fake_random();
				*rts = (struct rts_body){.number = fake_random() % 8,
					.len = piece,
					.pieces = 1,
					.am_header_len = fake_random() % 8 ? 0 : 4};
				memcpy(body + 24, &piece, 8);
				body[32] = 8;
				len = 24 + 9 + 8 + rts->am_header_len;
				h.tag &= 0xff;
			}
			if (h.type == FRAME_ATOMIC)
				len = sizeof(struct atomic_body);
			if (h.type == FRAME_NOTIFY)
				len = 8;
			fake_inject(fake_last_made(), &h,
				fake_random() % 16 ? sizeof(h)
						   : (unsigned)(fake_random() % sizeof(h)),
				body, (unsigned)len);
			both(&p);
		}
		for (int i = 0; i < 20; i++)
			both(&p);
		for (int i = 0; i < 8; i++)
			rpw_request_destroy(r[i]);
		rpw_memory_destroy(m);
		pair_close(&p);
		free(obj);
	}
}

/* Well-formed words at the wrong time, with wrong counts, and garbled ones. */
static void hostile_words(void **state)
{
	FOR_SEEDS (seeds, 400) {
		struct pair p;
		fake.rng = seeds.rng;
		pair_open(&p, transport);
		rpw_request *r;
		rpw_recv(p.b, p.eb, &(uint64_t){0}, 8, 1, ALL, &r);
		rpw_send(p.ea, "eight..", 8, 2, NULL);
		for (int i = 0; i < 10; i++) {
			uint8_t m[400] = {0};
			unsigned type = (unsigned)(fake_random() % 9);
			size_t text = fake_random() % 50, n;
			if (type <= SAY_ANSWER) {
				struct say_path w = {.version = fake_random() % 8 ? SAY_VERSION : 9,
					.attempt = (uint16_t)(fake_random() % 4),
					.status = -(int)(fake_random() % 3),
					.received = fake_random() % 3,
					.credit = (uint32_t)fake_random(),
					.text_len = (uint16_t)text,
					.handle_len = (uint16_t)(fake_random() % 3 * 8)};
				memcpy(w.transport, fake_random() % 3 ? transport : "pigeon", 6);
				memcpy(m, &w, sizeof(w));
				n = sizeof(w) + text + w.handle_len;
			} else {
				struct say_word w = {.version = SAY_VERSION,
					.attempt = (uint16_t)(fake_random() % 4),
					.text_len = (uint16_t)text,
					.sent = fake_random() % 4};
				memcpy(m, &w, sizeof(w));
				n = sizeof(w) + text;
			}
			n -= fake_random() % 10 ? 0 : 3;
			uint32_t crc =
				(uint32_t)crc32(0, m, (uInt)n) ^ (fake_random() % 10 ? 0 : 1);
			memcpy(m + n, &crc, 4);
			fake_say(fake_random() % 2, type, m, (unsigned)n + 4);
			both(&p);
		}
		for (int i = 0; i < 20; i++)
			both(&p);
		rpw_request_destroy(r);
		pair_close(&p);
	}
}

int hostile_tests(void)
{
	static const struct CMUnitTest tests[] = {
		CASE(hostile_frames),
		CASE(hostile_loans),
		CASE(hostile_words),
	};
	return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
