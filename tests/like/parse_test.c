/* SPDX-License-Identifier: BSD-3-Clause */
/* parse_test.c - profiles: what is read, what of it holds, and every mistake with its place. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/test.h"
#include "like/like.h"
#include "like/own.h"

static char why[RPWI_WHY_LEN];

static struct rpwi_like read_text(const char *text)
{
	struct rpwi_like l;
	if (rpwi_like_parse(text, strlen(text), &l, why, sizeof(why)))
		fail_msg("%s: %s", text, why);
	return l;
}

static uint64_t one(const char *text, enum rpwi_like_key key) { return read_text(text).has[key]; }

static void values_are_read(void **state)
{
	assert_int_equal(one("max_qp = 10", RPWI_LIKE_MAX_QP), 10);
	assert_int_equal(one("\n# a comment\n  max_qp=0x10 # why\r\n", RPWI_LIKE_MAX_QP), 16);
	assert_int_equal(one("max_cqe = 10^3", RPWI_LIKE_MAX_CQE), 1000);
	assert_int_equal(one("max_mr_size = 64K", RPWI_LIKE_MAX_MR_SIZE), 65536);
	assert_int_equal(one("max_mtu = 1024", RPWI_LIKE_MAX_MTU), 1024);
	assert_int_equal(one("atomic_cap = none", RPWI_LIKE_ATOMIC_CAP), IBV_ATOMIC_NONE);
	assert_int_equal(one("transports = UC", RPWI_LIKE_TRANSPORTS), 1 << IBV_QPT_UC);
	assert_int_equal(one("transports = NONE", RPWI_LIKE_TRANSPORTS), 0);
	assert_int_equal(
		one("device_cap_flags = IBV_DEVICE_MEM_WINDOW 0x2", RPWI_LIKE_DEVICE_CAP_FLAGS),
		IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_BAD_PKEY_CNTR);
	assert_int_equal(one("optional = null_mr import", RPWI_LIKE_OPTIONAL),
		RPWI_LIKE_NULL_MR | RPWI_LIKE_IMPORT);
	struct rpwi_like l = read_text("about = a device of mine  # not this\nmax_sge = 1");
	assert_string_equal(l.about, "a device of mine");
	assert_int_equal(l.given, 1ull << RPWI_LIKE_MAX_SGE);
}

static void a_profile_only_narrows(void **state)
{
	char more[512];
	struct rpwi_like l = read_text("max_qp = 10^9\nmax_mr_size = 0xffffffffffffffff\n"
				       "atomic_cap = GLOB\ntransports = RC XRC\n"
				       "device_cap_flags = XRC MEM_WINDOW 0x8000000000\n"
				       "max_sge = 4\ngid_first = 3\n");
	assert_int_equal(l.has[RPWI_LIKE_MAX_QP], DEV_QP_MAX);
	assert_int_equal(l.has[RPWI_LIKE_MAX_MR_SIZE], UINT64_MAX >> 1);
	assert_int_equal(l.has[RPWI_LIKE_ATOMIC_CAP], IBV_ATOMIC_HCA);
	assert_int_equal(l.has[RPWI_LIKE_TRANSPORTS], 1 << IBV_QPT_RC);
	assert_int_equal(l.has[RPWI_LIKE_DEVICE_CAP_FLAGS], IBV_DEVICE_MEM_WINDOW);
	assert_int_equal(l.has[RPWI_LIKE_GID_FIRST], 3);
	/* and what the other device has beyond this one can be listed */
	assert_true(rpwi_like_more(&l, RPWI_LIKE_MAX_QP, more, sizeof(more)));
	assert_string_equal(more, "1000000000, here 65536");
	assert_true(rpwi_like_more(&l, RPWI_LIKE_ATOMIC_CAP, more, sizeof(more)));
	assert_string_equal(more, "GLOB, here HCA");
	assert_true(rpwi_like_more(&l, RPWI_LIKE_TRANSPORTS, more, sizeof(more)));
	assert_string_equal(more, "XRC");
	assert_true(rpwi_like_more(&l, RPWI_LIKE_DEVICE_CAP_FLAGS, more, sizeof(more)));
	assert_string_equal(more, "XRC FLUSH_PERSISTENT");
	assert_false(rpwi_like_more(&l, RPWI_LIKE_MAX_SGE, more, sizeof(more)));
	assert_false(rpwi_like_more(&l, RPWI_LIKE_MAX_CQ, more, sizeof(more)));
	assert_false(rpwi_like_more(&l, RPWI_LIKE_GID_FIRST, more, sizeof(more)));
}

static void what_is_not_named_is_the_devices(void **state)
{
	struct rpwi_like l = read_text("max_sge = 4\n");
	for (int k = 0; k < RPWI_LIKE_KEYS; k++)
		if (k != RPWI_LIKE_MAX_SGE)
			assert_int_equal(l.has[k], rpwi_like_whole.has[k]);
}

static void a_profile_may_go_on_from_another(void **state)
{
	struct rpwi_like base, l = read_text("like = efa-limits\nmax_sge = 7\n");
	assert_int_equal(rpwi_like_read("efa-limits", &base, why, sizeof(why)), 0);
	for (int k = 0; k < RPWI_LIKE_KEYS; k++)
		assert_int_equal(l.has[k], k == RPWI_LIKE_MAX_SGE ? 7 : base.has[k]);
	assert_int_equal(read_text("like = rxe\n").has[RPWI_LIKE_MAX_SRQ_SGE], 27);
}

static void mistakes_have_a_place(void **state)
{
	static const struct {
		const char *text, *said;
	} cases[] = {
		{"max_qp = 10\nmax_qq = 3\n",
			"2:1: expected a key, not 'max_qq': did you mean max_qp?"},
		{"speed = 3",
			"1:1: expected a key, as in max_qp (docs/like.md lists them), not 'speed'"},
		{"max_qp 10", "1:8: expected '=', not '10'"},
		{"max_qp =", "1:9: expected a value, and the line ends"},
		{"max_qp = # ten", "1:10: expected a value, and the line ends"},
		{"  max_qp = ten",
			"1:12: expected a number, as in 16, 0x10, 10^6 or 64K, not 'ten'"},
		{"max_qp = -1", "1:10: expected a number, as in 16, 0x10, 10^6 or 64K, not '-1'"},
		{"max_qp = 1 2", "1:12: expected the end of the line, not '2'"},
		{"max_qp = 99999999999999999999", "1:10: expected a number, as in 16, 0x10, 10^6 "
						  "or 64K, not '99999999999999999999'"},
		{"max_mr_size = 0x1ffffffffffffffff", "1:15: expected a number, as in 16, 0x10, "
						      "10^6 or 64K, not '0x1ffffffffffffffff'"},
		{"max_qp = 1\nmax_qp = 2", "2:1: 'max_qp' has a value already"},
		{"max_mtu = 1500", "1:11: expected 256, 512, 1024, 2048 or 4096, not '1500'"},
		{"max_mtu = 0", "1:11: expected 256, 512, 1024, 2048 or 4096, not '0'"},
		{"gid_first = 16", "1:13: expected a number from 0 to 15, not '16'"},
		{"gid_step = 0", "1:12: expected a number from 1 to 16, not '0'"},
		{"atomic_cap = SOME", "1:14: expected NONE, HCA or GLOB, not 'SOME'"},
		{"transports = RC UQ",
			"1:17: expected words, as in docs/like.md, a number, or NONE, not 'UQ'"},
		{"transports = NONE RC", "1:19: expected the end of the line, not 'RC'"},
		{"device_cap_flags = MEM_WINDOWS", "1:20: expected a word of device_cap_flags, not "
						   "'MEM_WINDOWS': did you mean MEM_WINDOW?"},
		{"like = mlx9", "1:8: expected the name of a profile (`ropeway devices --help` "
				"lists them), not 'mlx9'"},
		{"max_qp = 1\nlike = rxe", "2:1: 'like' stands before all other keys, and once"},
		{"like = rxe\nlike = rxe", "2:1: 'like' stands before all other keys, and once"},
		{"about =",
			"1:8: expected what the profile is of, in a few words, and the line ends"},
		{"max_qp = \x01", "1:10: a character that is not printable ASCII (0x01)"},
		{"max_qp = 1\xff", "1:10: a character that is not printable ASCII (0xff)"},
		{"", "1:1: expected lines of KEY = VALUE, and there is none"},
		{"# nothing\n\n", "3:1: expected lines of KEY = VALUE, and there is none"},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		struct rpwi_like l = rpwi_like_whole;
		int rc =
			rpwi_like_parse(cases[i].text, strlen(cases[i].text), &l, why, sizeof(why));
		if (rc != -EINVAL || strcmp(why, cases[i].said))
			fail_msg("%s\n: %d %s, not %s", cases[i].text, rc, why, cases[i].said);
		assert_memory_equal(&l, &rpwi_like_whole, sizeof(l)); /* nothing was taken */
	}
}

/* Any bytes: an end, and no memory of others (under the sanitizers). */
static void no_bytes_do_harm(void **state)
{
	enum { LEN = 4096, ROUNDS = 2000 };
	static const char *const pieces[] = {"max_qp", "=", " ", "\n", "#", "10", "0x", "^", "like",
		"about", "device_cap_flags", "NONE", "rxe", "\xff", "optional", "\t", "transports"};
	struct rpwi_like l;
	unsigned seed = 7;
	for (int r = 0; r < ROUNDS; r++) {
		char *text = malloc(LEN);
		size_t n = 0, want = (size_t)rand_r(&seed) % 200;
		assert_non_null(text);
		while (n < want) {
			const char *piece = pieces[rand_r(&seed) % RPWI_ARRAY_LEN(pieces)];
			for (; *piece; piece++)
				text[n++] = *piece;
		}
		char *exact = malloc(n ? n : 1);
		assert_non_null(exact);
		memcpy(exact, text, n);
		int rc = rpwi_like_parse(exact, n, &l, why, sizeof(why));
		assert_true(!rc || (rc == -EINVAL && strchr(why, ':')));
		free(exact);
		free(text);
	}
	char *long_one = malloc(RPWI_LIKE_FILE_MAX + 1);
	memset(long_one, 'x', RPWI_LIKE_FILE_MAX + 1);
	assert_int_equal(
		rpwi_like_parse(long_one, RPWI_LIKE_FILE_MAX, &l, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "1:1: a word of more than 63 characters");
	assert_int_equal(
		rpwi_like_parse(long_one, RPWI_LIKE_FILE_MAX + 1, &l, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "1:1: a profile of more than 16384 bytes");
	free(long_one);
}

static void each_profile_that_is_built_in_is_right(void **state)
{
	struct rpwi_like l;
	unsigned n = 0;
	for (; rpwi_like_names[n]; n++) {
		if (rpwi_like_read(rpwi_like_names[n], &l, why, sizeof(why)))
			fail_msg("%s: %s", rpwi_like_names[n], why);
		assert_string_equal(l.name, rpwi_like_names[n]);
		assert_true(*l.about && l.given);
		assert_true(rpwi_like_is_name(rpwi_like_names[n]));
	}
	assert_int_equal(n, 4);
	assert_false(rpwi_like_is_name("mlx"));
}

static void files_are_read_or_say_why_not(void **state)
{
	char dir[] = "/tmp/ropeway-like-XXXXXX", path[64];
	struct rpwi_like l;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(rpwi_like_read(dir, &l, why, sizeof(why)), -EISDIR);
	assert_non_null(strstr(why, "Is a directory (a profile was expected: docs/like.md)"));
	assert_int_equal(rpwi_like_read("mlx9", &l, why, sizeof(why)), -ENOENT);
	assert_string_equal(why, "there is no profile 'mlx9'; there are efa-limits, mlx5, rxe, "
				 "thunderbolt, and no such file");
	snprintf(path, sizeof(path), "%s/mine", dir);
	assert_int_equal(rpwi_like_read(path, &l, why, sizeof(why)), -ENOENT);
	/* nobody writes: it is not waited for */
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(rpwi_like_read(path, &l, why, sizeof(why)), -EINVAL);
	assert_int_equal(unlink(path), 0);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs("max_sge = 2\nmax_inline = 3\n", f);
	fclose(f);
	char want[192];
	snprintf(want, sizeof(want),
		"%s:2:1: expected a key, not 'max_inline': did you mean "
		"max_inline_data?",
		path);
	assert_int_equal(rpwi_like_read(path, &l, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, want);
	assert_int_equal(truncate(path, 12), 0);
	assert_int_equal(rpwi_like_read(path, &l, why, sizeof(why)), 0);
	assert_string_equal(l.name, "mine");
	assert_int_equal(l.has[RPWI_LIKE_MAX_SGE], 2);
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_read),
		cmocka_unit_test(a_profile_only_narrows),
		cmocka_unit_test(what_is_not_named_is_the_devices),
		cmocka_unit_test(a_profile_may_go_on_from_another),
		cmocka_unit_test(mistakes_have_a_place),
		cmocka_unit_test(no_bytes_do_harm),
		cmocka_unit_test(each_profile_that_is_built_in_is_right),
		cmocka_unit_test(files_are_read_or_say_why_not),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
