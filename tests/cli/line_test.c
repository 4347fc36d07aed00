/* SPDX-License-Identifier: BSD-3-Clause */
/* The line that the two sides of `ropeway perf` measure their distance by: what is taken for one,
 * and that it is measured. No duration is judged. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/test.h"
#include "cli/perf/perf.h"

/* The child's status: 0; 2: not taken; 3: taken, and not measured. */
static int taken_by_a_child(void)
{
	uint8_t nonce[PERF_NONCE_LEN];
	int fd, core[2], status;
	struct perf_line *l = rpwi_perf_line_offer(&fd, nonce);
	pid_t owner = getpid(), child;

	assert_non_null(l);
	child = fork();
	if (!child) { /* by the number alone, as a stranger would */
		close(fd);
		struct perf_line *taken = rpwi_perf_line_take((uint64_t)owner, (uint64_t)fd, nonce);
		if (!taken)
			_exit(2);
		_exit(rpwi_perf_line_ask(taken, core) > 0 && core[1] >= 0 ? 0 : 3);
	}
	rpwi_perf_line_answer(l);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	rpwi_perf_line_free(l);
	close(fd);
	return WEXITSTATUS(status);
}

static void what_was_offered_is_taken_and_measured(void **state)
{
	int status = 3;

	/* others may have one of the cores */
	for (int i = 0; i < 20 && status == 3; i++)
		status = taken_by_a_child();
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		assert_int_equal(status, 0);
}

static void without_the_nonce_it_is_somebody_elses(void **state)
{
	uint8_t nonce[PERF_NONCE_LEN];
	int fd;
	struct perf_line *l = rpwi_perf_line_offer(&fd, nonce);

	assert_non_null(l);
	nonce[PERF_NONCE_LEN - 1] ^= 1;
	assert_null(rpwi_perf_line_take((uint64_t)getpid(), (uint64_t)fd, nonce));
	rpwi_perf_line_free(l);
	close(fd);
}

static void what_can_shrink_is_not_taken(void **state)
{
	uint8_t page[4096] = "sixteen bytes...";
	char file[] = "/tmp/ropeway-line-XXXXXX";
	int plain = memfd_create("line", MFD_CLOEXEC | MFD_ALLOW_SEALING), disk = mkstemp(file),
	    all[] = {plain, disk};

	unlink(file);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(write(all[i], page, sizeof(page)), sizeof(page));
		assert_null(rpwi_perf_line_take((uint64_t)getpid(), (uint64_t)all[i], page));
	}
	assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	struct perf_line *l = rpwi_perf_line_take((uint64_t)getpid(), (uint64_t)plain, page);
	assert_non_null(l); /* so it was the seal */
	rpwi_perf_line_free(l);
	close(plain);
	close(disk);
}

static void what_is_no_file_of_a_page_is_not_taken(void **state)
{
	uint8_t nonce[PERF_NONCE_LEN] = {0};
	int ends[2], folder = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t own = (uint64_t)getpid();

	assert_int_equal(pipe(ends), 0);
	const uint64_t wrong[][2] = {{own, (uint64_t)ends[0]}, {own, (uint64_t)folder},
		{own, 1000000}, {own, UINT64_MAX}, {UINT64_MAX, 3}, {0, 0}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(wrong); i++) {
		IN_CASE("row", i);
		assert_null(rpwi_perf_line_take(wrong[i][0], wrong[i][1], nonce));
	}
	close(ends[0]);
	close(ends[1]);
	close(folder);
}

static void nobody_answers(void **state)
{
	uint8_t nonce[PERF_NONCE_LEN];
	int fd, core[2];
	struct perf_line *l = rpwi_perf_line_offer(&fd, nonce);

	assert_non_null(l);
	assert_true(rpwi_perf_line_ask(l, core) <= 0);
	rpwi_perf_line_answer(l); /* the other side has given up: it ends */
	rpwi_perf_line_free(l);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_offered_is_taken_and_measured),
		cmocka_unit_test(without_the_nonce_it_is_somebody_elses),
		cmocka_unit_test(what_can_shrink_is_not_taken),
		cmocka_unit_test(what_is_no_file_of_a_page_is_not_taken),
		cmocka_unit_test(nobody_answers),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
