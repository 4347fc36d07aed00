/* SPDX-License-Identifier: BSD-3-Clause */
/* spin_test.c - when the service thread waits awake (device/spin.h): by the times that it is told,
 * no clock. */
#include "lib/test.h"
#include "device/spin.h"

enum { ROUND_NS = 1000, US = 1000, MS = 1000000 };

/* Time goes on without a packet, round by round. How long was it awake? */
static uint64_t silence(struct spin *s, uint64_t *now_ns, uint64_t ns)
{
	uint64_t end = *now_ns + ns, awake = 0;
	for (; *now_ns < end; *now_ns += ROUND_NS)
		awake += spin_goes_on(s, *now_ns) ? ROUND_NS : 0;
	return awake;
}

/* n packets, each after gap_ns of silence; how long was it awake in all? */
static uint64_t packets(struct spin *s, uint64_t *now_ns, unsigned n, uint64_t gap_ns)
{
	uint64_t awake = 0;
	while (n--) {
		awake += silence(s, now_ns, gap_ns);
		spin_packet(s, *now_ns);
	}
	return awake;
}

static void test_an_idle_process_sleeps(void **state)
{
	struct spin s = {0};
	uint64_t now = 1000 * (uint64_t)MS;
	assert_int_equal(silence(&s, &now, 100 * MS), 0);
	spin_packet(&s, now);
	assert_int_equal(silence(&s, &now, 100 * MS), 0);
	/* and so does one whose packets come far apart */
	assert_int_equal(packets(&s, &now, 1000, MS), 0);
}

static void test_close_packets_keep_it_awake(void **state)
{
	struct spin s = {0};
	uint64_t now = 1000 * (uint64_t)MS;
	packets(&s, &now, 3, 10 * US);
	assert_int_equal(packets(&s, &now, 1000, 10 * US), 1000 * 10 * US);
	/* the end of them costs eight gaps, once */
	uint64_t after = silence(&s, &now, 100 * MS);
	assert_in_range(after, 20 * US, 100 * US);
	assert_int_equal(silence(&s, &now, 100 * MS), 0);
}

/* Bursts between silences: what it waits in vain stays small. */
static void test_short_bursts_cost_little(void **state)
{
	struct spin s = {0};
	uint64_t now = 1000 * (uint64_t)MS, awake = 0;
	for (int i = 0; i < 1000; i++) {
		awake += packets(&s, &now, 8, 5 * US);
		awake += silence(&s, &now, 5 * MS);
	}
	/* of 5 s awake a fiftieth at most, which is less than as many wake-ups take */
	assert_in_range(awake, 1, 100 * (uint64_t)MS);
	/* a longer run is waited for all the same */
	packets(&s, &now, 100, 5 * US);
	assert_int_equal(packets(&s, &now, 100, 5 * US), 100 * 5 * US);
}

static void test_it_gives_way(void **state)
{
	struct spin s = {0};
	uint64_t now = 1000 * (uint64_t)MS, awake = 0;
	packets(&s, &now, 100, 5 * US);
	assert_true(spin_goes_on(&s, now));
	spin_yielded(&s, now, now + 500);
	assert_true(spin_goes_on(&s, now));
	/* Somebody computes on this core: each yield takes a slice of his. */
	for (int i = 0; i < 100000; i++) {
		now += 5 * US;
		spin_packet(&s, now);
		if (spin_goes_on(&s, now)) {
			awake++;
			spin_yielded(&s, now, now + 3 * MS);
			now += 3 * MS;
		}
	}
	assert_in_range(awake, 1, 10);
	/* When he has gone it is awake again, in a second. */
	now += 1000 * (uint64_t)MS;
	packets(&s, &now, 100, 5 * US);
	assert_int_equal(packets(&s, &now, 100, 5 * US), 100 * 5 * US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_idle_process_sleeps),
		cmocka_unit_test(test_close_packets_keep_it_awake),
		cmocka_unit_test(test_short_bursts_cost_little),
		cmocka_unit_test(test_it_gives_way),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
