/* plugin_test.c - our own NCCL plugin, loaded as NCCL loads it and called through the tables of each version of the API: its promises, one a test. The path of the plugin is the first argument; the rest are names of
 * tests (globs). Both ends are in this process, each with a comm of its own, unless a test says otherwise. */
#include "nccl_pair.h"

/* ---- connecting ---- */

static void all_versions(void **unused)
{
	for (int v = 5; v <= 12; v++) {
		struct pair p;
		pair_open(&p, v);
		assert_string_equal(ncclnet_name(p.n), "ropeway");
		pair_message(&p, 24, 7);
		pair_message(&p, 0, 8);
		pair_message(&p, 3 << 20, 9);
		pair_close(&p);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_versions),
	};
	return pair_main(argc, argv, tests, RPWI_ARRAY_LEN(tests));
}
