/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_test.c - every public call's contract, both sides in one thread, by subject in the files that
 * it runs. Linked twice: with the fakes (transports in memory, which can be made to misbehave) and
 * with the real ones; MSG_TRANSPORTS names what to go over. */

#include "msg_test.h"

#ifdef MSG_FAKE
static const char *const default_transports[] = {"fake_a", "fake_b", NULL};
#else
static const char *const default_transports[] = {"shm", "tcp", NULL};
#endif

const char *transport;

int quiet(void **state)
{
#ifdef MSG_FAKE
	fake = (struct fake_knobs){.rng = {0x5eed}, .eager_max = 2048, .frame_max = 8192};
#endif
	return 0;
}

int main(int argc, char **argv)
{
	static int (*const subjects[])(void) = {
		send_tests,
		memory_tests,
		endpoint_tests,
		request_tests,
		loan_tests,
		soak_tests,
#ifdef MSG_FAKE
		hostile_tests,
#endif
	};
	const char *filter = getenv("MSG_TEST"), *const named[] = {getenv("MSG_TRANSPORT"), NULL};
	if (filter)
		cmocka_set_test_filter(filter);
	int failed = 0;
	for (const char *const *t = named[0] ? named : default_transports; *t; t++) {
		transport = *t;
		for (size_t i = 0; i < RPWI_ARRAY_LEN(subjects); i++)
			failed += subjects[i]();
	}
	return failed ? 1 : 0;
}
