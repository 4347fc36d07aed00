/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine: communication IDs and deadlines, many of them. */
#include "peer.h"

static void ids_do_not_come_back_soon(void **state)
{
	enum { TRIES = 200000 }; /* three times round the indices */
	uint32_t *seen = calloc(1 << 20, sizeof(*seen));
	for (unsigned i = 1; i <= TRIES; i++) {
		assert_int_equal(sidr_ask(&mine, 10, 1), 0);
		assert_int_equal(mine.local_id >> 20, PREFIX);
		assert_int_equal(seen[mine.local_id & 0xfffff], 0);
		seen[mine.local_id & 0xfffff] = i;
		rpwi_cm_destroy(&mine, now);
		rpwi_cm_conn_init(cm, &mine, NULL);
	}
	free(seen);
	/* Another process that gets the same prefix begins elsewhere. */
	assert_int_equal(sidr_ask(&mine, 10, 1), 0);
	uint32_t first = mine.local_id;
	again();
	random_next = 999;
	peer_end(NULL);
	assert_int_equal(rpwi_cm_new(&cm, &ops, NULL, PREFIX), 0);
	rpwi_cm_conn_init(cm, &mine, NULL);
	assert_int_equal(sidr_ask(&mine, 10, 1), 0);
	assert_int_not_equal(first, mine.local_id);
	rpwi_cm_set_prefix(cm, 0xfed);
	rpwi_cm_destroy(&mine, now);
	assert_int_equal(sidr_ask(&mine, 10, 1), 0);
	assert_int_equal(mine.local_id >> 20, 0xfed);
}

/* Of IDs in a row, no two are as far apart as the two before: none tells the next. */
static void an_id_does_not_tell_the_next(void **state)
{
	enum { IDS = 64 };
	uint32_t last = 0, last_step = 0;
	unsigned same = 0;
	for (unsigned i = 0; i < IDS; i++) {
		assert_int_equal(sidr_ask(&mine, 10, 1), 0);
		uint32_t step = mine.local_id - last;
		same += step == last_step || step < 32;
		last_step = step;
		last = mine.local_id;
		rpwi_cm_destroy(&mine, now);
		rpwi_cm_conn_init(cm, &mine, NULL);
	}
	assert_in_range(same, 0, 3);
}

static unsigned counted;
static void count(struct rpwi_cm_conn *c, void *arg) { counted++; }

static void ids_run_out_and_come_back(void **state)
{
	enum { MANY = 70000 };
	struct rpwi_cm_conn *c = calloc(MANY, sizeof(*c));
	unsigned made = 0;
	for (unsigned i = 0; i < MANY; i++) {
		rpwi_cm_conn_init(cm, &c[i], NULL);
		int rc = connect_with(&c[i], i + 1);
		if (rc) {
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(c[i].state, RPWI_CM_IDLE);
			break;
		}
		made++;
	}
	assert_in_range(made, 60000, RPWI_CM_CONNS_MAX);
	counted = 0;
	rpwi_cm_each(cm, count, NULL);
	assert_int_equal(counted, made);
	/* Nobody else can come in, and hears why. */
	nsent = 0;
	rx_attr(&c[0], RPWI_CM_REQ);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_NO_RESOURCES);
	run_until(now + 100 * SECOND);
	counted = 0;
	rpwi_cm_each(cm, count, NULL);
	assert_int_equal(counted, 0);
	assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
	assert_int_equal(connect_with(&c[0], 1), 0);
	rpwi_cm_destroy(&c[0], now);
	free(c);
}

static void many_timers_fire_in_time(void **state)
{
	enum { N = 3000 };
	struct rpwi_cm_conn *c = calloc(N, sizeof(*c));
	uint64_t *due_ns = calloc(N, sizeof(*due_ns));
	for (unsigned i = 0; i < N; i++) {
		unsigned timeout_ms = 1 + (op_random(NULL) >> 8) % 240;
		rpwi_cm_conn_init(cm, &c[i], &due_ns[i]);
		assert_int_equal(sidr_ask(&c[i], timeout_ms, 0), 0);
		due_ns[i] = now + timeout_ms * RPWI_NS_PER_MS;
		unsigned k = (op_random(NULL) >> 8) % (i + 1);
		if (i % 3 == 0 && c[k].state != RPWI_CM_IDLE) {
			rpwi_cm_destroy(&c[k], now);
			due_ns[k] = 0;
		}
	}
	due_first = due_ns;
	run_until(now + SECOND);
	due_first = NULL;
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(c[i].state, RPWI_CM_IDLE);
	assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
	assert_true(rpwi_cm_stats(cm)->timeouts > N / 2);
	free(due_ns);
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ids_do_not_come_back_soon),
		TEST(an_id_does_not_tell_the_next),
		TEST(ids_run_out_and_come_back),
		TEST(many_timers_fire_in_time),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
