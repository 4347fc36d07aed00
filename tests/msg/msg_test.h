/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_test.h - what the files of msg_test share: the transport of the group that runs, and the
 * tests of each file. */
#ifndef TESTS_MSG_MSG_TEST_H
#define TESTS_MSG_MSG_TEST_H

#include "pair.h"
#ifdef MSG_FAKE
#include "fake.h"
#endif

#define ALL UINT64_MAX

extern const char *transport; /* of the group under test */

int quiet(void **state); /* the set-up of each test: transports that do not misbehave */
#define CASE(test) cmocka_unit_test_setup(test, quiet)

/* Each runs its tests over `transport`; the number of those that failed. */
int send_tests(void), memory_tests(void), endpoint_tests(void), request_tests(void),
	loan_tests(void), hostile_tests(void), soak_tests(void);

#endif
