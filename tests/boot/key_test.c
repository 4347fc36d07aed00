/* SPDX-License-Identifier: BSD-3-Clause */
/* key_test.c - the pre-shared key: right, wrong, missing on either side; files that are no keys. */
#include "lib/descriptors.h"
#include "pair.h"

#include <sys/stat.h>

static char folder[] = "/tmp/boot-key-XXXXXX";
static char one[64], same[64], two[64], made[64];

static const char *key_write(
	char *path, size_t room, const char *name, const char *text, mode_t mode)
{
	snprintf(path, room, "%s/%s", folder, name);
	unlink(path);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	chmod(path, mode);
	return path;
}

static bool ended(void *arg)
{
	struct peer *p = arg;
	return p->gone || (p->connected && p->messages);
}

/* One connection; the connecting side's status, its words in `why`. */
static int meet(const char *key_a, const char *key_b, char *why, uint64_t *strangers)
{
	unsigned before = open_descriptors();
	struct side *a = side_new(key_a), *b = side_new(key_b);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	struct peer *pa = side_connect(a, "127.0.0.1", boot_listener_port(l), 20000);
	for (int i = 0; i < 20000 && !pa->gone && !(pa->connected && b->accepted); i++) {
		boot_progress(a->b);
		boot_progress(b->b);
		usleep(500);
	}
	int status = pa->status;
	strcpy(why, pa->why);
	if (pa->connected) {
		struct peer *pb = &b->peer[0];
		for (unsigned type = 0; type < 40; type++) {
			assert_int_equal(
				send_pattern(pb->c, type, type * 211 % (BOOT_MESSAGE_MAX + 1)), 0);
			assert_int_equal(
				send_pattern(pa->c, 1000 + type, BOOT_MESSAGE_MAX - type), 0);
			while (pa->messages <= type || pb->messages <= type)
				boot_progress(a->b), boot_progress(b->b);
		}
		assert_int_equal(pa->bad + pb->bad, 0);
		/* closing sends what is queued first */
		assert_int_equal(send_pattern(pa->c, 7, 5000), 0);
		boot_close(pa->c);
		pa->c = NULL;
		assert_true(until(a, b, ended, pb));
		while (!pb->gone)
			boot_progress(a->b), boot_progress(b->b);
		assert_int_equal(pb->messages, 41);
		assert_int_equal(pb->status, RPW_ERR_PEER_GONE);
	} else {
		assert_int_equal(b->accepted, 0);
	}
	*strangers = boot_strangers(b->b);
	side_free(a);
	side_free(b);
	assert_int_equal(open_descriptors(), before);
	return status;
}

static void test_same_key(void **state)
{
	char why[512];
	uint64_t strangers;
	assert_int_equal(meet(one, same, why, &strangers), 0);
	assert_int_equal(strangers, 0);
}

static void test_other_key(void **state)
{
	char why[512];
	uint64_t strangers;
	log_begin(RPWI_LOG_WARN);
	int status = meet(one, two, why, &strangers);
	const char *log = log_end();
	assert_int_equal(status, RPW_ERR_REFUSED);
	assert_non_null(strstr(why, one)); /* each side names its own file */
	assert_non_null(strstr(log, two));
	assert_null(strchr(strchr(log, '\n') + 1, '\n')); /* one line */
	assert_non_null(strstr(why, "refused the key"));
	assert_int_equal(strangers, 1);
}

static void test_key_on_one_side(void **state)
{
	char why[512];
	uint64_t strangers;
	assert_int_equal(meet(NULL, one, why, &strangers), RPW_ERR_REFUSED);
	assert_non_null(strstr(why, "ROPEWAY_KEY_FILE"));
	assert_int_equal(strangers, 1);
	assert_int_equal(meet(one, NULL, why, &strangers), RPW_ERR_REFUSED);
	assert_non_null(strstr(why, one));
	assert_non_null(strstr(why, "it has no key"));
	assert_int_equal(strangers, 1);
}

static int load(const char *name, const char *text, mode_t mode)
{
	struct boot *b = NULL;
	static const struct boot_up nothing;
	struct tran_facts own;
	boot_own_facts(&own);
	int rc =
		boot_new(&nothing, NULL, &own, key_write(made, sizeof(made), name, text, mode), &b);
	if (rc)
		assert_non_null(strstr(rpwi_last_error()->text, made));
	else
		boot_free(b);
	return rc;
}

static void test_key_files(void **state)
{
	static char big[2000];
	memset(big, 'k', sizeof(big) - 1);
	assert_int_equal(load("hex", "00112233445566778899aabbccddeeff", 0600), 0);
	assert_int_equal(load("text", "a long pass phrase, no hex\r\n", 0400), 0);
	assert_int_equal(load("group", "a long pass phrase, no hex\n", 0640), 0);
	assert_int_equal(load("others", "a long pass phrase, no hex\n", 0604), RPW_ERR_INVALID);
	assert_non_null(strstr(rpwi_last_error()->text, "chmod 600"));
	assert_int_equal(
		load("others-write", "a long pass phrase, no hex\n", 0602), RPW_ERR_INVALID);
	assert_int_equal(
		load("group-write", "a long pass phrase, no hex\n", 0660), RPW_ERR_INVALID);
	assert_int_equal(load("short", "0123456789abcde\n", 0600), RPW_ERR_INVALID);
	assert_int_equal(load("empty", "", 0600), RPW_ERR_INVALID);
	assert_int_equal(load("blank", "\n\n  \n", 0600), RPW_ERR_INVALID);
	assert_int_equal(load("lines", "a long pass phrase, no hex\nand another line\n", 0600),
		RPW_ERR_INVALID);
	assert_int_equal(load("big", big, 0600), RPW_ERR_INVALID);
	struct boot *b = NULL;
	static const struct boot_up nothing;
	struct tran_facts own;
	boot_own_facts(&own);
	assert_int_equal(boot_new(&nothing, NULL, &own, folder, &b), RPW_ERR_INVALID);
	snprintf(made, sizeof(made), "%s/not-there", folder);
	assert_int_equal(boot_new(&nothing, NULL, &own, made, &b), RPW_ERR_SYSTEM);
	assert_non_null(strstr(rpwi_last_error()->text, made));
}

/* More at once than a listener has places for strangers, each with several turns of a handshake:
 * all come in. */
static void test_many_at_once(void **state)
{
	enum { MANY = 300 };
	struct side *a = side_new(one), *b = side_new(same);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	for (int i = 0; i < MANY; i++)
		side_connect(a, "127.0.0.1", boot_listener_port(l), 60000);
	for (int i = 0; i < 60000 && (a->connected < MANY || b->accepted < MANY); i++)
		if (!(boot_progress(a->b) + boot_progress(b->b)))
			usleep(1000);
	assert_int_equal(a->connected, MANY);
	assert_int_equal(a->ended, 0);
	side_free(a);
	side_free(b);
}

/* The other way round: what the connecting side says to whoever answers at that port. */
static void test_connecting_side_says_nothing_in_the_clear(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	uint8_t got[4096];
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(l, (struct sockaddr *)&at, sizeof(at)) | listen(l, 5) |
				 getsockname(l, (struct sockaddr *)&at, &len),
		0);
	struct side *a = side_new(one);
	struct peer *pa = side_connect(a, "127.0.0.1", ntohs(at.sin_port), 20000);
	for (int i = 0; i < 50; i++, usleep(1000))
		boot_progress(a->b);
	int fd = accept(l, NULL, NULL);
	ssize_t n = recv(fd, got, sizeof(got), 0);
	assert_true(n > 50);
	assert_memory_equal(got, "\x16\x03", 2);
	assert_null(memmem(got, (size_t)n, "\x93ropeway", 8));
	assert_null(memmem(got, (size_t)n, a->own.hostname, strlen(a->own.hostname)));
	assert_true(raw_send(fd, "HTTP/1.1 400 Bad Request\r\n", 26));
	while (!pa->gone)
		boot_progress(a->b);
	assert_int_equal(pa->status, RPW_ERR_PROTOCOL);
	close(fd);
	close(l);
	side_free(a);
}

/* Strangers of all kinds at a listener with a key: none is given a hello. */
static void test_strangers_learn_nothing(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} say[] = {{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27}, {"\x16\x03\x01\x00\x05hello", 10},
		{"\x16\x03\x01\xff\xff", 5}, {"\x15\x03\x03\x00\x02\x02\x28", 7},
		{"\x17\x03\x03\x00\x02\x02\x28", 7},
		{"\x93ropeway\x01\x01\x00\x01\x00\x00\x00\x00", 16}, {"", 0}};
	struct side *b = side_new(one);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	for (size_t i = 0; i < RPWI_ARRAY_LEN(say); i++) {
		IN_CASE("row", i);
		uint8_t got[512];
		int fd = raw_connect(boot_listener_port(l));
		assert_true(raw_send(fd, say[i].bytes, say[i].len));
		if (i % 2 || !say[i].len)
			shutdown(fd, SHUT_WR);
		size_t n = raw_drain(fd, b, got, sizeof(got));
		assert_true(n <= 16); /* an alert at most */
		for (size_t k = 0; k + 7 <= n; k++)
			assert_memory_not_equal(got + k, "ropeway", 7);
		close(fd);
		assert_int_equal(boot_strangers(b->b), i + 1);
	}
	assert_int_equal(b->accepted, 0);
	side_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_key),
		cmocka_unit_test(test_other_key),
		cmocka_unit_test(test_key_on_one_side),
		cmocka_unit_test(test_key_files),
		cmocka_unit_test(test_many_at_once),
		cmocka_unit_test(test_connecting_side_says_nothing_in_the_clear),
		cmocka_unit_test(test_strangers_learn_nothing),
	};
	ns_enter();
	assert_non_null(mkdtemp(folder));
	key_write(one, sizeof(one), "one", "6b1f0c2d9e8f7a6b5c4d3e2f1a0b9c8d\n", 0600);
	key_write(same, sizeof(same), "same", "6B1F0C2D9E8F7A6B5C4D3E2F1A0B9C8D", 0600);
	key_write(two, sizeof(two), "two", "7b1f0c2d9e8f7a6b5c4d3e2f1a0b9c8d\n", 0600);
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	char command[64];
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) ? 1 : rc;
}
