/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault injection: the same seed does the same harm, in the asked measure, and wrong settings are
 * named. */
#include "lib/test.h"

#include <errno.h>

#include "io/io.h"

static struct rpwi_fault *must_parse(const char *spec)
{
	struct rpwi_fault *f;
	char why[300] = "";
	assert_int_equal(rpwi_fault_parse(spec, &f, why, sizeof(why)), 0);
	assert_non_null(f);
	return f;
}

static bool same(const struct rpwi_fault_verdict *a, const struct rpwi_fault_verdict *b)
{
	return a->drop == b->drop && a->dup == b->dup && a->corrupt == b->corrupt &&
	       a->hold == b->hold && a->corrupt_bit == b->corrupt_bit && a->delay_ns == b->delay_ns;
}

static void a_seed_replays(void **state)
{
	struct rpwi_fault *a =
		must_parse("drop=0.1,dup=0.2,reorder=0.3,corrupt=0.4,delay=1.5,seed=42");
	struct rpwi_fault *b =
		must_parse("seed=42,delay=1.5,corrupt=0.4,reorder=0.3,dup=0.2,drop=0.1");
	struct rpwi_fault *c =
		must_parse("drop=0.1,dup=0.2,reorder=0.3,corrupt=0.4,delay=1.5,seed=43");
	int differ = 0;
	for (int i = 0; i < 10000; i++) {
		struct rpwi_fault_verdict x = rpwi_fault_next(a, 1000),
					  y = rpwi_fault_next(b, 1000),
					  z = rpwi_fault_next(c, 1000);
		assert_true(same(&x, &y));
		assert_int_equal(x.delay_ns, 1500000);
		differ += !same(&x, &z);
	}
	assert_in_range(differ, 5000, 10000);
	rpwi_fault_free(a), rpwi_fault_free(b), rpwi_fault_free(c);
}

static void rates_are_as_asked(void **state)
{
	enum { N = 100000 };
	struct rpwi_fault *f = must_parse("drop=0.01,dup=0.05,reorder=0.1,corrupt=0.2");
	int drop = 0, dup = 0, hold = 0, corrupt = 0;
	for (int i = 0; i < N; i++) {
		struct rpwi_fault_verdict v = rpwi_fault_next(f, 1 + i % 500);
		drop += v.drop, dup += v.dup, hold += v.hold, corrupt += v.corrupt;
		assert_false(v.drop && (v.dup || v.hold || v.corrupt));
		assert_in_range(v.corrupt_bit, 0, 8 * (1 + i % 500) - 1);
		assert_int_equal(v.delay_ns, 0);
	}
	assert_in_range(drop, N / 100 * 0.85, N / 100 * 1.15);
	assert_in_range(dup, N / 20 * 0.9, N / 20 * 1.1);
	assert_in_range(hold, N / 10 * 0.9, N / 10 * 1.1);
	assert_in_range(corrupt, N / 5 * 0.9, N / 5 * 1.1);
	rpwi_fault_free(f);
}

/* Turning duplication on must not change which packets are lost: runs stay comparable. */
static void kinds_draw_apart(void **state)
{
	struct rpwi_fault *a = must_parse("drop=0.1,seed=7"),
			  *b = must_parse("drop=0.1,dup=0.5,corrupt=1,seed=7");
	for (int i = 0; i < 5000; i++)
		assert_int_equal(rpwi_fault_next(a, 100).drop, rpwi_fault_next(b, 60).drop);
	rpwi_fault_free(a), rpwi_fault_free(b);
}

static void never_and_always(void **state)
{
	struct rpwi_fault *never = must_parse(""), *always = must_parse("drop=1"),
			  *all = must_parse("corrupt=1,dup=1,reorder=1");
	bool bits[8] = {false};
	for (int i = 0; i < 1000; i++) {
		struct rpwi_fault_verdict v = rpwi_fault_next(never, 100);
		assert_false(v.drop || v.dup || v.hold || v.corrupt || v.delay_ns);
		assert_true(rpwi_fault_next(always, 100).drop);
		v = rpwi_fault_next(all, 1);
		assert_true(v.corrupt && v.dup && v.hold);
		assert_in_range(v.corrupt_bit, 0, 7);
		bits[v.corrupt_bit] = true;
		assert_false(rpwi_fault_next(all, 0).corrupt); /* no bit to flip */
	}
	for (int i = 0; i < 8; i++)
		assert_true(bits[i]);
	rpwi_fault_free(never), rpwi_fault_free(always), rpwi_fault_free(all);
}

static void wrong_settings_are_named(void **state)
{
	static const char *const wrong[] = {
		"drop=2",
		"drop=-0.1",
		"drop=",
		"drop",
		"drop=x",
		"drop=0.1x",
		"drop=nan",
		"lose=0.1",
		"delay=-1",
		"delay=10001",
		"delay=inf",
		"seed=abc",
		"seed=-1",
		"seed=99999999999999999999",
		"dup=0.1,reorder=1.01",
		"=1",
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(wrong); i++) {
		IN_CASE("row", i);
		struct rpwi_fault *f = (void *)1;
		char why[300] = "";
		assert_int_equal(rpwi_fault_parse(wrong[i], &f, why, sizeof(why)), -EINVAL);
		assert_null(f);
		const char *last = strrchr(wrong[i], ',');
		assert_non_null(strstr(why, last ? last + 1 : wrong[i]));
		assert_non_null(strstr(why, "drop=P,dup=P,reorder=P,corrupt=P"));
	}
	rpwi_fault_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_seed_replays),
		cmocka_unit_test(rates_are_as_asked),
		cmocka_unit_test(kinds_draw_apart),
		cmocka_unit_test(never_and_always),
		cmocka_unit_test(wrong_settings_are_named),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
