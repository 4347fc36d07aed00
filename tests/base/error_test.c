/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors: the last one of a thread, made of itself, of an errno; kept beyond it. */
#include "lib/test.h"

#include <errno.h>
#include <pthread.h>

#include "base/error.h"
#include "ropeway.h"

static void *of_another_thread(void *arg)
{
	*(int *)arg = rpwi_last_error()->status;
	rpwi_fail(RPW_ERR_ACCESS, "there");
	return NULL;
}

static void each_thread_has_its_own(void **state)
{
	pthread_t t;
	int seen = 1;
	assert_int_equal(rpwi_last_error()->status, 0);
	assert_string_equal(rpwi_last_error()->text, "no error");
	assert_int_equal(rpwi_fail(RPW_ERR_LIMIT, "%d are too %s", 7, "many"), RPW_ERR_LIMIT);
	assert_int_equal(
		pthread_create(&t, NULL, of_another_thread, &seen) | pthread_join(t, NULL), 0);
	assert_int_equal(seen, 0);
	assert_int_equal(rpwi_last_error()->status, RPW_ERR_LIMIT);
	assert_int_equal(rpwi_last_error()->sys, 0);
	assert_string_equal(rpwi_last_error()->text, "7 are too many");
}

static void it_may_be_made_of_the_one_before(void **state)
{
	rpwi_fail(RPW_ERR_SYSTEM, "first");
	rpwi_fail(RPW_ERR_REFUSED, "second, after %s", rpwi_last_error()->text);
	assert_string_equal(rpwi_last_error()->text, "second, after first");
	assert_int_equal(rpwi_fail_errno(EPIPE, "third, after %s", rpwi_last_error()->text),
		RPW_ERR_PEER_GONE);
	assert_int_equal(rpwi_last_error()->sys, EPIPE);
	assert_string_equal(
		rpwi_last_error()->text, "third, after second, after first: Broken pipe");
	assert_int_equal(
		rpwi_fail_errno(EXDEV, "an errno that stands for nothing"), RPW_ERR_SYSTEM);
}

static void what_is_too_long_ends_sooner(void **state)
{
	char text[2000];
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = 0;
	rpwi_fail(RPW_ERR_SYSTEM, "%s", text);
	assert_int_equal(strlen(rpwi_last_error()->text), 511);
	rpwi_fail_errno(ENOSPC, "%s", text); /* its reason is there */
	assert_non_null(strstr(rpwi_last_error()->text, strerror(ENOSPC)));
}

static void one_is_kept_beyond_the_next(void **state)
{
	struct rpwi_error kept = {0};
	rpwi_error_keep(&kept, &(struct rpwi_error){RPW_ERR_TIMEOUT, ETIMEDOUT, "late"});
	rpwi_fail(RPW_ERR_SYSTEM, "something else");
	assert_string_equal(kept.text, "late");
	rpwi_error_keep(&kept, &kept);
	assert_string_equal(kept.text, "late");
	rpwi_fail_again(&kept);
	assert_int_equal(rpwi_last_error()->status, RPW_ERR_TIMEOUT);
	assert_int_equal(rpwi_last_error()->sys, ETIMEDOUT);
	rpwi_error_keep(&kept, rpwi_last_error());
	rpwi_error_say(&kept, RPW_ERR_LIMIT, "%s, and %s", kept.text, "more");
	assert_string_equal(kept.text, "late, and more");
	rpwi_error_say(&kept, RPW_ERR_LIMIT, "%s", "");
	assert_string_equal(kept.text, "");
	rpwi_error_drop(&kept);
	assert_int_equal(kept.status, 0);
	rpwi_error_drop(&kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_thread_has_its_own),
		cmocka_unit_test(it_may_be_made_of_the_one_before),
		cmocka_unit_test(what_is_too_long_ends_sooner),
		cmocka_unit_test(one_is_kept_beyond_the_next),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
