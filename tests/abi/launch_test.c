/* SPDX-License-Identifier: BSD-3-Clause */
/* launch_test.c - what `ropeway run` learns of an executable. */
#include "lib/test.h"
#include "cli/run/launch.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/ropeway-launch-XXXXXX";

static const char *make(const char *name, const void *data, size_t len, mode_t mode)
{
	static char path[128];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	fclose(f);
	chmod(path, mode);
	return path;
}

static int make_dir(void **state) { return mkdtemp(dir) ? 0 : -1; }
static int remove_dir(void **state)
{
	char command[160];
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void test_finds_in_path(void **state)
{
	struct rpwi_launch l;
	assert_int_equal(rpwi_launch_inspect("sh", &l), 0);
	assert_true(l.is_elf && !l.is_static && !l.is_privileged);
	assert_string_equal(strrchr(l.program, '/'), "/sh");
	assert_int_equal(rpwi_launch_inspect("no-such-program-here", &l), -ENOENT);
	assert_int_equal(rpwi_launch_inspect("", &l), -ENOENT);
	assert_int_equal(rpwi_launch_inspect("/no/such/program", &l), -ENOENT);
}

static void test_follows_scripts_to_their_interpreter(void **state)
{
	struct rpwi_launch l;
	char second[256];
	const char *first = make("first", "#! /bin/sh -e\nexit 0\n", 21, 0755);
	assert_int_equal(rpwi_launch_inspect(first, &l), 0);
	assert_string_equal(l.program, "/bin/sh");
	assert_true(l.is_elf);
	snprintf(second, sizeof(second), "#!%s\n", first);
	assert_int_equal(rpwi_launch_inspect(make("second", second, strlen(second), 0755), &l), 0);
	assert_string_equal(l.program, "/bin/sh");
	snprintf(second, sizeof(second), "#!%s/loop\n", dir);
	assert_int_equal(
		rpwi_launch_inspect(make("loop", second, strlen(second), 0755), &l), -ELOOP);
	assert_int_equal(
		rpwi_launch_inspect(make("gone", "#!/no/such/interpreter", 22, 0755), &l), -ENOENT);
}

static void test_refuses_what_cannot_run(void **state)
{
	struct rpwi_launch l;
	if (geteuid()) /* root may execute only what has some x bit, too, but reads everything */
		assert_int_equal(rpwi_launch_inspect(make("secret", "x", 1, 0111), &l), 0);
	assert_int_equal(rpwi_launch_inspect(make("data", "x", 1, 0644), &l), -EACCES);
	assert_int_equal(rpwi_launch_inspect(dir, &l), -EACCES);
}

static size_t read_file(const char *path, uint8_t *buf, size_t len)
{
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	size_t n = fread(buf, 1, len, f);
	fclose(f);
	return n;
}

/* The offsets of the 64-bit header that matter here. */
enum { E_PHOFF = 32, E_PHENTSIZE = 54, E_PHNUM = 56, P_TYPE_INTERP = 3 };

static void test_static_and_broken_elf(void **state)
{
	struct rpwi_launch l;
	static uint8_t elf[1 << 20];
	size_t len = read_file("/proc/self/exe", elf, sizeof(elf));
	assert_int_equal(rpwi_launch_inspect(make("whole", elf, len, 0755), &l), 0);
	assert_true(l.is_elf && !l.is_static);
	/* Cut anywhere, a header points beyond the end: nothing is known, nothing is read
	 * outside. */
	for (size_t cut = 0; cut < 1024; cut += 17)
		assert_int_equal(rpwi_launch_inspect(make("cut", elf, cut, 0755), &l), 0);
	static const uint64_t far[] = {UINT64_MAX, UINT64_MAX - 63, 1ull << 62, 3};
	uint8_t header[64];
	memcpy(header, elf, sizeof(header));
	for (unsigned i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
		IN_CASE("row", i);
		memcpy(elf + E_PHOFF, &far[i], 8);
		assert_int_equal(rpwi_launch_inspect(make("far", elf, len, 0755), &l), 0);
		assert_false(l.is_elf);
	}
	memcpy(elf, header, sizeof(header));
	/* Without an interpreter it is static. */
	uint64_t phoff;
	uint16_t size, n;
	memcpy(&phoff, elf + E_PHOFF, 8);
	memcpy(&size, elf + E_PHENTSIZE, 2);
	memcpy(&n, elf + E_PHNUM, 2);
	for (unsigned i = 0; i < n; i++)
		if (elf[phoff + (size_t)i * size] == P_TYPE_INTERP)
			elf[phoff + (size_t)i * size] = 0;
	assert_int_equal(rpwi_launch_inspect(make("static", elf, len, 0755), &l), 0);
	assert_true(l.is_elf && l.is_static);
	assert_int_equal(rpwi_launch_inspect(make("setuid", elf, len, 04755), &l), 0);
	assert_true(l.is_privileged);
}

static void test_environment(void **state)
{
	char out[64];
	assert_int_equal(rpwi_launch_preload("/x/lib.so", NULL, out, sizeof(out)), 0);
	assert_string_equal(out, "/x/lib.so");
	assert_int_equal(rpwi_launch_preload("/x/lib.so", "", out, sizeof(out)), 0);
	assert_string_equal(out, "/x/lib.so");
	assert_int_equal(
		rpwi_launch_preload("/x/lib.so", "libfirst.so other.so", out, sizeof(out)), 0);
	assert_string_equal(out, "libfirst.so other.so:/x/lib.so");
	assert_int_equal(rpwi_launch_preload("/x/lib.so", "libfirst.so", out, 12), -ENAMETOOLONG);
	assert_int_equal(rpwi_launch_asan_options(NULL, out, sizeof(out)), 0);
	assert_string_equal(out, "verify_asan_link_order=0");
	assert_int_equal(rpwi_launch_asan_options("verbosity=1", out, sizeof(out)), 0);
	assert_string_equal(out, "verify_asan_link_order=0:verbosity=1");
	assert_int_equal(rpwi_launch_asan_options("verbosity=1", out, 30), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds_in_path),
		cmocka_unit_test(test_follows_scripts_to_their_interpreter),
		cmocka_unit_test(test_refuses_what_cannot_run),
		cmocka_unit_test(test_static_and_broken_elf),
		cmocka_unit_test(test_environment),
	};
	return cmocka_run_group_tests_name("launch", tests, make_dir, remove_dir);
}
