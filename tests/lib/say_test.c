/* SPDX-License-Identifier: BSD-3-Clause */
/* say_test.c - what a test says that fails: this program once more, with the name of a test that
 * must fail, and what comes on its stderr. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/pattern.h"
#include "lib/test.h"

static void fails_in_a_loop(void **state)
{
	for (unsigned i = 0; i < 5; i++) {
		IN_CASE("bytes", 10 * i);
		assert_true(i < 3);
	}
}
static void fails_with_a_seed(void **state)
{
	FOR_SEEDS (s, 10)
		for (unsigned i = 0; i < 3; i++) {
			IN_CASE("round", i);
			assert_false(s.seed == 4 && i == 1);
		}
}
static void fails_after_its_loops(void **state)
{
	FOR_SEEDS (s, 10)
		if (s.seed == 4)
			break;
	fail_msg("after them");
}
static void aborts(void **state)
{
	FOR_SEEDS_FROM (s, 700, 10)
		if (s.seed == 702)
			abort();
}
static void is_stopped_by_meson(void **state)
{
	IN_CASE("step", test_seed(12));
	raise(SIGTERM);
}
static void crashes(void **state)
{
	IN_CASE("step", 8);
	raise(SIGSEGV);
}

static const struct CMUnitTest failing[] = {cmocka_unit_test(fails_in_a_loop),
	cmocka_unit_test(fails_with_a_seed), cmocka_unit_test(fails_after_its_loops),
	cmocka_unit_test(aborts), cmocka_unit_test(is_stopped_by_meson), cmocka_unit_test(crashes)};

/* What it says, but for cmocka's own lines. */
static void says(const char *name, const char *seed, const char *wanted)
{
	static char text[4000];
	char *at = text;
	int to[2];
	assert_int_equal(pipe(to), 0);
	pid_t pid = fork();
	if (!pid) {
		dup2(to[1], STDERR_FILENO);
		if (!freopen("/dev/null", "w", stdout) || setenv("TEST_SEED", seed, 1))
			_exit(99);
		execl("/proc/self/exe", "say_test", name, NULL);
		_exit(99);
	}
	close(to[1]);
	for (ssize_t n; (n = read(to[0], at, (size_t)(text + sizeof(text) - 1 - at))) > 0;)
		at += n;
	*at = 0;
	close(to[0]);
	int status = 0;
	waitpid(pid, &status, 0);
	assert_int_not_equal(status, 0);
	const char *line = strstr(text, "# case: ");
	line = line ? line : strstr(text, "# again");
	at = line ? strchr(line, '\n') : NULL;
	if (at)
		*at = 0;
	assert_string_equal(line ? line : "nothing", wanted);
}

static void a_failure_says_its_case_and_seed(void **state)
{
	says("fails_in_a_loop", "", "# case: bytes 30");
	says("fails_with_a_seed", "", "# case: seed 4, round 1; again with TEST_SEED=4");
	says("fails_with_a_seed", "4", "# case: seed 4, round 1; again with TEST_SEED=4");
	says("fails_after_its_loops", "", "nothing");
}

static void so_does_the_end_by_a_signal(void **state)
{
#ifdef __SANITIZE_THREAD__
	fprintf(stderr, "SKIPPED: ThreadSanitizer handles signals later, and by itself\n");
	return;
#endif
	says("aborts", "", "# case: seed 702; again with TEST_SEED=702");
	says("is_stopped_by_meson", "", "# case: step 12; again with TEST_SEED=12");
	says("crashes", "", "# case: step 8");
}

static void a_pattern_is_the_same_from_anywhere(void **state)
{
	uint8_t whole[200], part[200];
	pattern_fill(whole, sizeof(whole), 5);
	for (size_t from = 0; from < 20; from++)
		for (size_t len = 0; len < 60; len++) {
			IN_CASE("from", from);
			IN_CASE("len", len);
			pattern_fill_from(part, len, 5, from);
			assert_memory_equal(part, whole + from, len);
			assert_true(pattern_holds_from(part, len, 5, from));
			for (size_t i = 0; i < len; i++) {
				part[i] ^= 1;
				assert_int_equal(pattern_wrong_from(part, len, 5, from), i);
				part[i] ^= 1;
			}
		}
	assert_false(pattern_holds(whole, sizeof(whole), 6));
}

static void numbers_are_those_of_splitmix64(void **state)
{
	struct rng r = {0}; /* as published with it: seed 0 */
	assert_true(rng_next(&r) == 0xe220a8397b1dcdafull);
	assert_true(rng_next(&r) == 0x6e789e6aa1b965f4ull);
	for (unsigned n = 1; n < 1000; n++)
		assert_in_range(rng_below(&r, n), 0, n - 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_failure_says_its_case_and_seed),
		cmocka_unit_test(so_does_the_end_by_a_signal),
		cmocka_unit_test(a_pattern_is_the_same_from_anywhere),
		cmocka_unit_test(numbers_are_those_of_splitmix64)};
	if (argc > 1) {
		cmocka_set_test_filter(argv[1]);
		return cmocka_run_group_tests(failing, NULL, NULL);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
