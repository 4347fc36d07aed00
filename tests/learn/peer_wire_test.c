/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_wire_test.c - the messages of the write/read programs, and the content of their regions:
 * what is right is taken, all else is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../learn/peer_wire.h"

static const struct remote_memory memory = {
	.address = 0x0123456789abcdefull, .rkey = 0xfedcba98, .length = REGION_BYTES};

/* The layout, byte by byte, written down a second time. */
static void an_mr_is_these_bytes(void **state)
{
	static const uint8_t expected[] = {'R', 'P', 'W', 'M', 0, 1, 0, 1, 0, 0, 0, 16, 0x01, 0x23,
		0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0, 0, 0x10, 0};
	uint8_t out[WIRE_MESSAGE_BYTES_MAX];
	struct message m;

	assert_int_equal(wire_put_mr(out, &memory), sizeof(expected));
	assert_memory_equal(out, expected, sizeof(expected));
	assert_int_equal(wire_get(out, sizeof(expected), &m), FAULT_NONE);
	assert_int_equal(m.type, WIRE_MR);
	assert_true(m.memory.address == memory.address && m.memory.rkey == memory.rkey &&
		    m.memory.length == memory.length);
}

static void done_and_text_come_back(void **state)
{
	uint8_t out[WIRE_MESSAGE_BYTES_MAX];
	char longest[WIRE_TEXT_BYTES_MAX + 50];
	struct message m;

	assert_int_equal(wire_get(out, wire_put_done(out), &m), FAULT_NONE);
	assert_int_equal(m.type, WIRE_DONE);
	assert_int_equal(wire_get(out, wire_put_text(out, "a text, 1 ~"), &m), FAULT_NONE);
	assert_int_equal(m.type, WIRE_TEXT);
	assert_string_equal(m.text, "a text, 1 ~");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(wire_get(out, wire_put_text(out, longest), &m), FAULT_NONE);
	assert_int_equal(strlen(m.text), WIRE_TEXT_BYTES_MAX);
}

static enum wire_fault mr_with(int at, uint8_t value)
{
	uint8_t out[WIRE_MESSAGE_BYTES_MAX];
	struct message m;
	size_t bytes = wire_put_mr(out, &memory);

	out[at] = value;
	return wire_get(out, bytes, &m);
}

static void each_field_is_checked(void **state)
{
	for (int i = 0; i < 4; i++)
		assert_int_equal(mr_with(i, 'x'), FAULT_MAGIC);
	assert_int_equal(mr_with(4, 1), FAULT_VERSION);
	assert_int_equal(mr_with(5, 2), FAULT_VERSION);
	assert_int_equal(mr_with(6, 1), FAULT_TYPE);
	assert_int_equal(mr_with(7, 0), FAULT_TYPE);
	assert_int_equal(mr_with(7, 4), FAULT_TYPE);
	assert_int_equal(mr_with(7, WIRE_DONE), FAULT_LENGTH);
	for (int i = 8; i < 12; i++)
		assert_int_equal(mr_with(i, 0xff), FAULT_LENGTH);
	for (int i = 24; i < 28; i++)
		assert_int_equal(mr_with(i, 0xff), FAULT_MEMORY);
	assert_int_equal(mr_with(26, 0), FAULT_MEMORY); /* no memory at all */
}

static void memory_may_not_wrap_around(void **state)
{
	static const struct {
		uint64_t address;
		enum wire_fault fault;
	} cases[] = {{0, FAULT_NONE}, {UINT64_MAX - REGION_BYTES, FAULT_NONE},
		{UINT64_MAX - REGION_BYTES + 1, FAULT_MEMORY}, {UINT64_MAX, FAULT_MEMORY}};
	uint8_t out[WIRE_MESSAGE_BYTES_MAX];
	struct message m;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct remote_memory r = {
			.address = cases[i].address, .rkey = 1, .length = REGION_BYTES};
		assert_int_equal(wire_get(out, wire_put_mr(out, &r), &m), cases[i].fault);
	}
}

static void every_other_length_is_refused(void **state)
{
	uint8_t out[WIRE_MESSAGE_BYTES_MAX + 300] = {0};
	struct message m;
	size_t whole = wire_put_mr(out, &memory);

	for (size_t n = 0; n < sizeof(out); n++)
		assert_int_equal(wire_get(out, n, &m) == FAULT_NONE, n == whole);
	for (size_t n = 0; n < WIRE_HEADER_BYTES; n++)
		assert_int_equal(wire_get(out, n, &m), FAULT_TOO_SHORT);
	/* Lengths that agree with themselves but not with the type. */
	out[10] = 1;
	out[11] = 0;
	assert_int_equal(wire_get(out, WIRE_HEADER_BYTES + 256, &m), FAULT_LENGTH);
	out[7] = WIRE_TEXT;
	assert_int_equal(wire_get(out, WIRE_HEADER_BYTES + 256, &m), FAULT_LENGTH);
	out[10] = out[11] = 0;
	assert_int_equal(wire_get(out, WIRE_HEADER_BYTES, &m), FAULT_LENGTH);
}

static void a_text_cannot_command_a_terminal(void **state)
{
	uint8_t out[WIRE_MESSAGE_BYTES_MAX];
	struct message m;

	for (int c = 0; c < 256; c++) {
		size_t bytes = wire_put_text(out, "ab?de");

		out[WIRE_HEADER_BYTES + 2] = (uint8_t)c;
		assert_int_equal(
			wire_get(out, bytes, &m), c >= 0x20 && c <= 0x7e ? FAULT_NONE : FAULT_TEXT);
	}
}

static void a_hello_comes_back(void **state)
{
	static const uint8_t expected[] = {'R', 'P', 'W', 'H', 0, 1, MODE_READ, REASON_MODE};
	uint8_t out[WIRE_HELLO_BYTES + 48] = {0};
	struct hello h;

	wire_put_hello(out, MODE_READ, REASON_MODE);
	assert_memory_equal(out, expected, sizeof(expected));
	assert_true(wire_get_hello(out, WIRE_HELLO_BYTES, &h));
	assert_true(h.version == WIRE_VERSION && h.mode == MODE_READ && h.reason == REASON_MODE);
	assert_true(wire_get_hello(out, sizeof(out), &h)); /* filled up by the CM */
	out[5] = 9;
	/* another version is still a hello: it has to be answered */
	assert_true(wire_get_hello(out, sizeof(out), &h));
	assert_int_equal(h.version, 9);
	for (size_t n = 0; n < WIRE_HELLO_BYTES; n++)
		assert_false(wire_get_hello(out, n, &h));
	assert_false(wire_get_hello(NULL, 0, &h));
	out[3] = 'M';
	assert_false(wire_get_hello(out, sizeof(out), &h));
	assert_string_equal(mode_name(MODE_WRITE), "write");
	assert_string_equal(mode_name((enum mode)0), "?");
	assert_string_equal(mode_name((enum mode)200), "?");
}

static void every_byte_of_a_region_counts(void **state)
{
	static uint8_t region[REGION_BYTES];
	uint64_t filled = region_fill(region, "a text", 4711), checksum;

	assert_true(region_check(region, &checksum));
	assert_true(filled == checksum);
	assert_string_equal((const char *)region, "a text");
	for (int i = 0; i < REGION_BYTES; i++) {
		region[i] ^= 1;
		assert_false(region_check(region, &checksum));
		region[i] ^= 1;
	}
	assert_true(region_check(region, &checksum));
	memset(region, 0, sizeof(region));
	assert_false(region_check(region, &checksum)); /* nothing was written */
}

static void no_two_regions_are_alike(void **state)
{
	static uint8_t a[REGION_BYTES], b[REGION_BYTES];

	assert_true(region_fill(a, "the same text", 1) != region_fill(b, "the same text", 2));
	assert_memory_not_equal(a + 1024, b + 1024, 1024);
	assert_true(random_number() != random_number());
}

/* A checksum that is right does not make a text that a terminal would obey. */
static void a_region_with_control_characters_is_refused(void **state)
{
	static uint8_t region[REGION_BYTES];
	char longest[300];
	uint64_t checksum;

	region_fill(region, "\033[2J", 3);
	assert_false(region_check(region, &checksum));
	region_fill(region, "", 3);
	assert_false(region_check(region, &checksum));
	memset(longest, 'y', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	region_fill(region, longest, 3);
	assert_true(region_check(region, &checksum));
	assert_int_equal(strlen((const char *)region), 255);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_mr_is_these_bytes),
		cmocka_unit_test(done_and_text_come_back),
		cmocka_unit_test(each_field_is_checked),
		cmocka_unit_test(memory_may_not_wrap_around),
		cmocka_unit_test(every_other_length_is_refused),
		cmocka_unit_test(a_text_cannot_command_a_terminal),
		cmocka_unit_test(a_hello_comes_back),
		cmocka_unit_test(every_byte_of_a_region_counts),
		cmocka_unit_test(no_two_regions_are_alike),
		cmocka_unit_test(a_region_with_control_characters_is_refused),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
