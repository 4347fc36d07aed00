/* SPDX-License-Identifier: BSD-3-Clause */
/* link_test.c - a folder whose path the loader would split gets one that it takes. */
#include "lib/test.h"
#include "lib/users.h"
#include "cli/run/link.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/ropeway link:XXXXXX";

static int make_dir(void **state) { return mkdtemp(dir) ? 0 : -1; }
static int remove_dir(void **state) { return rmdir(dir); }

static bool leads_to(const char *link, const char *folder)
{
	char target[PATH_MAX] = "";
	return readlink(link, target, sizeof(target) - 1) > 0 && !strcmp(target, folder);
}

static void test_a_path_that_is_not_split_stays(void **state)
{
	char out[PATH_MAX];
	assert_int_equal(rpwi_link_folder("/opt/a;b", RPWI_LINK_PRELOAD, out, sizeof(out)), 0);
	assert_string_equal(out, "/opt/a;b");
	assert_int_equal(rpwi_link_folder("/opt/a b", RPWI_LINK_LIBRARY_PATH, out, sizeof(out)), 0);
	assert_string_equal(out, "/opt/a b");
	assert_int_equal(
		rpwi_link_folder("/opt/a b", RPWI_LINK_LIBRARY_PATH, out, 8), -ENAMETOOLONG);
}

static void test_one_link_for_each_folder(void **state)
{
	char first[PATH_MAX], second[PATH_MAX], other[PATH_MAX], folder[PATH_MAX];
	assert_int_equal(rpwi_link_folder(dir, RPWI_LINK_PRELOAD, first, sizeof(first)), 0);
	assert_null(strpbrk(first, RPWI_LINK_PRELOAD RPWI_LINK_LIBRARY_PATH));
	assert_true(leads_to(first, dir));
	assert_int_equal(rpwi_link_folder(dir, RPWI_LINK_LIBRARY_PATH, second, sizeof(second)), 0);
	assert_string_equal(first, second);
	snprintf(folder, sizeof(folder), "%s/x", dir);
	assert_int_equal(rpwi_link_folder(folder, RPWI_LINK_PRELOAD, other, sizeof(other)), 0);
	assert_string_not_equal(first, other);
	assert_int_equal(rpwi_link_folder(dir, RPWI_LINK_PRELOAD, second, 24), -ENAMETOOLONG);
	unlink(first);
	unlink(other);
}

/* What has the name already: a link to elsewhere, or (of another user) one to the same place, or a
 * folder. It stays as it is. */
static void test_a_name_that_is_taken_is_not_followed(void **state)
{
	enum { ELSEWHERE, STRANGER, FOLDER, CASES };
	char name[PATH_MAX], out[PATH_MAX];
	for (unsigned i = 0; i < CASES; i++) {
		assert_int_equal(rpwi_link_folder(dir, RPWI_LINK_PRELOAD, name, sizeof(name)), 0);
		if (i == STRANGER && !users_can_be_others("another user's link")) {
			unlink(name);
			continue;
		}
		if (i == STRANGER)
			assert_int_equal(lchown(name, 65534, 65534), 0);
		else
			unlink(name);
		if (i == ELSEWHERE)
			assert_int_equal(symlink("/usr", name), 0);
		if (i == FOLDER)
			assert_int_equal(mkdir(name, 0700), 0);
		assert_int_equal(rpwi_link_folder(dir, RPWI_LINK_PRELOAD, out, sizeof(out)), 0);
		assert_string_not_equal(out, name);
		assert_true(leads_to(out, dir));
		/* and the next run takes the same */
		char again[PATH_MAX];
		assert_int_equal(rpwi_link_folder(dir, RPWI_LINK_PRELOAD, again, sizeof(again)), 0);
		assert_string_equal(out, again);
		unlink(out);
		if (i == ELSEWHERE)
			assert_true(leads_to(name, "/usr"));
		remove(name);
	}
}

static void test_when_all_names_are_taken_there_is_another(void **state)
{
	char name[PATH_MAX], taken[16][PATH_MAX], out[PATH_MAX];
	unsigned n = 0;
	do { /* links to elsewhere, as long as the names can be known */
		assert_int_equal(rpwi_link_folder(dir, RPWI_LINK_PRELOAD, name, sizeof(name)), 0);
		assert_int_equal(rpwi_link_folder(dir, RPWI_LINK_PRELOAD, out, sizeof(out)), 0);
		unlink(name);
		if (!strcmp(name, out)) {
			assert_int_equal(symlink("/usr", name), 0);
			strcpy(taken[n++], name);
		}
	} while (!strcmp(name, out) && n < 16);
	assert_in_range(n, 2, 15);
	unlink(out);
	while (n)
		unlink(taken[--n]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_path_that_is_not_split_stays),
		cmocka_unit_test(test_one_link_for_each_folder),
		cmocka_unit_test(test_a_name_that_is_taken_is_not_followed),
		cmocka_unit_test(test_when_all_names_are_taken_there_is_another),
	};
	return cmocka_run_group_tests_name("link", tests, make_dir, remove_dir);
}
