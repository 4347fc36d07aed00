/* SPDX-License-Identifier: BSD-3-Clause */
/* Each way to a CRC-32 that this processor has, against one bit at a time; and the choice. */
#include "wire/crc32.h"

#include "bitwise.h"
#include "lib/rng.h"
#include "lib/test.h"

enum { MOST = 5000, ROUNDS = 3000 };

static uint32_t bitwise(uint32_t crc, const uint8_t *data, size_t len)
{
	return ~bitwise_crc(~crc, data, len);
}

static void each_way_gives_the_same(void **state)
{
	static uint8_t data[MOST + 64];
	(void)state;
	for (unsigned w = 0; w < RPWI_CRC32_WAYS; w++) {
		const struct rpwi_crc32_way *way = &rpwi_crc32_ways[w];
		struct rng r = {w + 1};
		if (!way->is_possible()) {
			print_message("%s: this processor lacks it\n", way->name);
			continue;
		}
		for (int i = 0; i < ROUNDS; i++) {
			/* each short length comes first, then any */
			size_t len = i < 700 ? (size_t)i : rng_below(&r, MOST);
			uint8_t *at = data + rng_below(&r, 64);
			uint32_t crc = (uint32_t)rng_next(&r);
			for (size_t k = 0; k < len; k++)
				at[k] = (uint8_t)rng_next(&r);
			assert_int_equal(way->of(crc, at, len), bitwise(crc, at, len));
			/* a way goes on from what it gave */
			size_t first = len ? rng_below(&r, (uint32_t)len) : 0;
			assert_int_equal(way->of(way->of(crc, at, first), at + first, len - first),
				bitwise(crc, at, len));
		}
	}
}

static struct {
	unsigned calls, fast; /* asked for; the way that takes no time */
	uint64_t now;
} fake;

/* Asked before and after each way that is possible, in turn. */
static uint64_t fake_ns(void)
{
	unsigned possible[RPWI_CRC32_WAYS] = {RPWI_CRC32_ISAL}, n = 1; /* always */
	for (unsigned w = 1; w < RPWI_CRC32_WAYS; w++)
		if (rpwi_crc32_ways[w].is_possible())
			possible[n++] = w;
	unsigned call = fake.calls++;
	fake.now += call % 2 && possible[call / 2 % n] != fake.fast ? 100 : 1;
	return fake.now;
}

static void the_fastest_is_chosen(void **state)
{
	(void)state;
	for (unsigned w = 0; w < RPWI_CRC32_WAYS; w++) {
		if (!rpwi_crc32_ways[w].is_possible())
			continue;
		memset(&fake, 0, sizeof(fake));
		fake.fast = w;
		assert_string_equal(rpwi_crc32_choose(fake_ns), rpwi_crc32_ways[w].name);
		assert_ptr_equal(rpwi_crc32_chosen, rpwi_crc32_ways[w].of);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_way_gives_the_same),
		cmocka_unit_test(the_fastest_is_chosen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
