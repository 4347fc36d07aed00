/* SPDX-License-Identifier: BSD-3-Clause */
/* hello_test.c - what has no socket: the codec of the hello, addresses as people write them. */
#include "pair.h"

#include "boot/addr.h"

static struct tran_facts facts_of(unsigned seed)
{
	struct tran_facts f = {.pid = 1 + seed % INT32_MAX, .uid = seed * 2654435761u};
	for (unsigned i = 0; i < sizeof(f.host_id); i++)
		f.host_id[i] = pattern_byte(seed, i);
	snprintf(f.hostname, sizeof(f.hostname), "%.*s", (int)(seed % sizeof(f.hostname)),
		"a-host-name.with-all-the-characters-that-it-may-have.example.org.0123");
	snprintf(f.transports, sizeof(f.transports), "%.*s", (int)(seed / 3 % sizeof(f.transports)),
		"shm,verbs,tcp,shm,verbs,tcp,shm,verbs,tcp,shm,verbs,tcp,shm,verbs");
	return f;
}

static void test_round_trip(void **state)
{
	for (unsigned seed = 0; seed < 2000; seed++) {
		IN_CASE("facts", seed);
		struct tran_facts in = facts_of(seed), out;
		uint8_t bytes[BOOT_HELLO_MAX];
		struct boot_prelude_fields f;
		const char *why = NULL;
		size_t len = boot_hello_encode(BOOT_HELLO_LISTENER, &in, bytes);
		assert_int_equal(boot_prelude_decode(bytes, len, &f), BOOT_PRELUDE_GOOD);
		assert_int_equal(f.kind, BOOT_HELLO_LISTENER);
		assert_int_equal(f.version, BOOT_VERSION);
		assert_int_equal(f.byte_order, BOOT_LITTLE_ENDIAN);
		assert_int_equal(f.body_len + BOOT_PRELUDE_LEN, len);
		assert_int_equal(
			boot_hello_decode(bytes + BOOT_PRELUDE_LEN, f.body_len, &out, &why), 0);
		assert_memory_equal(&in, &out, sizeof(in));
	}
}

/* The copy has exactly the bytes: ASan sees a read behind them. */
static int decode_exact(const uint8_t *p, size_t len)
{
	struct tran_facts out;
	const char *why = NULL;
	uint8_t *copy = malloc(len ? len : 1);
	memcpy(copy, p, len);
	int rc = boot_hello_decode(copy, len, &out, &why);
	free(copy);
	if (rc)
		assert_non_null(why);
	return rc;
}

static void test_every_truncation(void **state)
{
	struct tran_facts in = facts_of(63);
	uint8_t bytes[BOOT_HELLO_MAX];
	struct boot_prelude_fields f;
	size_t len = boot_hello_encode(BOOT_HELLO_CONNECTOR, &in, bytes) - BOOT_PRELUDE_LEN;
	for (size_t n = 0; n < len; n++)
		assert_int_equal(decode_exact(bytes + BOOT_PRELUDE_LEN, n), -1);
	assert_int_equal(decode_exact(bytes + BOOT_PRELUDE_LEN, len), 0);
	for (size_t n = 0; n < BOOT_PRELUDE_LEN; n++)
		assert_int_equal(boot_prelude_decode(bytes, n, &f), BOOT_PRELUDE_MORE);
}

static void test_hostile_fields(void **state)
{
	struct tran_facts in = facts_of(63), out;
	uint8_t bytes[BOOT_HELLO_MAX], *body = bytes + BOOT_PRELUDE_LEN;
	const char *why = NULL;
	struct boot_prelude_fields f;
	size_t len = boot_hello_encode(BOOT_HELLO_CONNECTOR, &in, bytes) - BOOT_PRELUDE_LEN;

	/* Any length byte but the right one. */
	for (size_t at = 0; at < len; at += 2 + (size_t)body[at + 1])
		for (unsigned wrong = 0; wrong < 256; wrong++) {
			uint8_t was = body[at + 1];
			if (wrong == was)
				continue;
			body[at + 1] = (uint8_t)wrong;
			int rc = boot_hello_decode(body, len, &out, &why);
			body[at + 1] = was;
			/* A shorter text may be followed by what looks like a field: never more
			 * than it has room for. */
			if (!rc)
				assert_true(strnlen(out.hostname, sizeof(out.hostname)) <
					    sizeof(out.hostname));
		}
	memcpy(body + len, body, 18); /* the host ID twice */
	assert_int_equal(decode_exact(body, len + 18), -1);
	body[len] = 200; /* unknown tags are for later versions */
	assert_int_equal(decode_exact(body, len + 18), 0);
	uint8_t *pid = body + 18 + 2, *name = body + 18 + 6 + 6 + 2;
	memset(pid, 0, 4);
	assert_int_equal(decode_exact(body, len), -1);
	memset(pid, 0xff, 4);
	assert_int_equal(decode_exact(body, len), -1);
	rpwi_put_be32(pid, 77);
	static const uint8_t unprintable[] = {0, '\n', 27, ' ', 0x7f, 0x80, 0xff};
	for (unsigned i = 0; i < sizeof(unprintable); i++) {
		name[3] = unprintable[i];
		assert_int_equal(decode_exact(body, len), -1);
	}
	/* The prelude: a body that is too long, kinds and byte orders that are none, another
	 * magic. */
	boot_hello_encode(BOOT_HELLO_CONNECTOR, &in, bytes);
	rpwi_put_be32(bytes + 12, BOOT_HELLO_BODY_MAX + 1);
	assert_int_equal(boot_prelude_decode(bytes, BOOT_PRELUDE_LEN, &f), BOOT_PRELUDE_BAD);
	rpwi_put_be32(bytes + 12, UINT32_MAX);
	assert_int_equal(boot_prelude_decode(bytes, BOOT_PRELUDE_LEN, &f), BOOT_PRELUDE_BAD);
	rpwi_put_be32(bytes + 12, 0);
	assert_int_equal(boot_prelude_decode(bytes, BOOT_PRELUDE_LEN, &f), BOOT_PRELUDE_GOOD);
	for (unsigned v = 0; v < 256; v++) {
		bytes[8] = (uint8_t)v;
		assert_int_equal(boot_prelude_decode(bytes, BOOT_PRELUDE_LEN, &f),
			v == 1 || v == 2 ? BOOT_PRELUDE_GOOD : BOOT_PRELUDE_BAD);
	}
	bytes[8] = 1;
	for (unsigned i = 0; i < 8; i++) {
		bytes[i] ^= 0x20;
		for (size_t n = i + 1; n <= BOOT_PRELUDE_LEN; n++)
			assert_int_equal(boot_prelude_decode(bytes, n, &f), BOOT_PRELUDE_STRANGER);
		bytes[i] ^= 0x20;
	}
}

/* Names of ours that are no plain text do not make our hello one that is refused. */
static void test_own_name_is_made_plain(void **state)
{
	struct tran_facts in = facts_of(5), out;
	uint8_t bytes[BOOT_HELLO_MAX];
	const char *why;
	strcpy(in.hostname, "a b\n\xc3\xa4");
	size_t len = boot_hello_encode(BOOT_HELLO_CONNECTOR, &in, bytes);
	assert_int_equal(
		boot_hello_decode(bytes + BOOT_PRELUDE_LEN, len - BOOT_PRELUDE_LEN, &out, &why), 0);
	assert_string_equal(out.hostname, "a?b???");
}

static const struct {
	const char *text, *host;
	int port;
} addresses[] = {
	{"host:1", "host", 1},
	{"10.0.0.1:65535", "10.0.0.1", 65535},
	{"[fe80::1%eth0]:4711", "fe80::1%eth0", 4711},
	{"[::]:0", "::", 0},
	{":80", "", 80},
	{"host", NULL, 0},
	{"", NULL, 0},
	{":", NULL, 0},
	{"host:", NULL, 0},
	{"host:65536", NULL, 0},
	{"host:-1", NULL, 0},
	{"host:+1", NULL, 0},
	{"host: 1", NULL, 0},
	{"host:1x", NULL, 0},
	{"host:000001", NULL, 0},
	{"::1:80", NULL, 0},
	{"[::1]", NULL, 0},
	{"[::1:80", NULL, 0},
	{"[:80", NULL, 0},
	{"[::1]x:80", NULL, 0},
};

static void test_addresses(void **state)
{
	char host[BOOT_HOST_MAX], longest[BOOT_HOST_MAX + 8];
	uint16_t port = 0;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(addresses); i++) {
		IN_CASE("row", i);
		int rc = boot_addr_split(addresses[i].text, host, &port);
		assert_int_equal(rc, addresses[i].host ? 0 : RPW_ERR_INVALID);
		if (rc) {
			assert_non_null(strchr(rpwi_last_error()->text, '"'));
			continue;
		}
		assert_string_equal(host, addresses[i].host);
		assert_int_equal(port, addresses[i].port);
	}
	memset(longest, 'a', sizeof(longest));
	strcpy(longest + BOOT_HOST_MAX - 1, ":1");
	assert_int_equal(boot_addr_split(longest, host, &port), 0);
	strcpy(longest + BOOT_HOST_MAX, ":1");
	assert_int_equal(boot_addr_split(longest, host, &port), RPW_ERR_INVALID);
}

static void test_address_text(void **state)
{
	static const struct {
		const char *host, *text, *where;
	} cases[] = {
		{"10.1.2.3", "10.1.2.3", "10.1.2.3:9"},
		{"::ffff:10.1.2.3", "10.1.2.3", "10.1.2.3:9"},
		{"fd00::7", "fd00::7", "[fd00::7]:9"},
		{"fe80::7%lo", "fe80::7%lo", "[fe80::7%lo]:9"},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		struct boot_addrs a;
		char host[64], where[BOOT_WHERE_MAX];
		assert_int_equal(boot_addr_numeric(cases[i].host, 9, false, &a), 1);
		boot_addr_text(&a.at[0], host, sizeof(host), where, sizeof(where));
		assert_string_equal(host, cases[i].text);
		assert_string_equal(where, cases[i].where);
	}
}

static void test_own_facts(void **state)
{
	struct tran_facts a, b;
	boot_own_facts(&a);
	boot_own_facts(&b);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(a.pid, getpid());
	assert_true(a.hostname[0]);
	int status;
	pid_t pid = fork();
	if (!pid) { /* another network namespace is another host */
		ns_enter();
		boot_own_facts(&b);
		_exit(memcmp(a.host_id, b.host_id, 16) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_every_truncation),
		cmocka_unit_test(test_hostile_fields),
		cmocka_unit_test(test_own_name_is_made_plain),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_address_text),
		cmocka_unit_test(test_own_facts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
