/* SPDX-License-Identifier: BSD-3-Clause */
/* names_test.c - where there is no libibverbs, values have the words and the rates that it gives
 * them: the tables, against the library of this machine. */
#include <dlfcn.h>

#include "lib/test.h"
#include "preload/names.c"

static struct rpwi_real none; /* found: false */
const struct rpwi_real *rpwi_real(void) { return &none; }

static void *library;

static void words(const char *call, const char *(*ours)(int), int end)
{
	const char *(*theirs)(int) = (const char *(*)(int))dlsym(library, call);
	assert_non_null(theirs);
	for (int i = 0; i < end; i++)
		assert_string_equal(ours(i), theirs(i));
}

static const char *node(int i) { return ibv_node_type_str(i); }
static const char *state(int i) { return ibv_port_state_str(i); }
static const char *event(int i) { return ibv_event_type_str(i); }
static const char *status(int i) { return ibv_wc_status_str(i); }

static void words_are_the_librarys(void **unused)
{
	words("ibv_node_type_str", node, IBV_NODE_UNSPECIFIED + 1);
	words("ibv_port_state_str", state, 9);
	words("ibv_event_type_str", event, IBV_EVENT_WQ_FATAL + 1);
	words("ibv_wc_status_str", status, 30);
}

static void numbers(const char *call, int (*ours)(int), int end)
{
	int (*theirs)(int) = (int (*)(int))dlsym(library, call);
	assert_non_null(theirs);
	for (int i = -1; i < end; i++)
		if (ours(i) != theirs(i))
			fail_msg("%s(%d) is %d, not %d", call, i, ours(i), theirs(i));
}

static int to_mult(int i) { return ibv_rate_to_mult(i); }
static int of_mult(int i) { return mult_to_ibv_rate(i); }
static int to_mbps(int i) { return ibv_rate_to_mbps(i); }
static int of_mbps(int i) { return mbps_to_ibv_rate(i); }

static void rates_are_the_librarys(void **unused)
{
	numbers("ibv_rate_to_mult", to_mult, 64);
	numbers("mult_to_ibv_rate", of_mult, 600);
	numbers("ibv_rate_to_mbps", to_mbps, 64);
	numbers("mbps_to_ibv_rate", of_mbps, 1300000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_the_librarys),
		cmocka_unit_test(rates_are_the_librarys),
	};
	library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		puts("1..0 # SKIP no libibverbs.so.1 to compare with");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
