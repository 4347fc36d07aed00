/* SPDX-License-Identifier: BSD-3-Clause */
/* no_tls_test.c - a host without GnuTLS, or with one that lacks a call: a key is an error before
 * there is a socket, and without a key everything works. SHA-256, which needs no library. */
#include "pair.h"

#include <dlfcn.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <sys/stat.h>

#include "boot/sha256.h"

static bool is_there;
static const char *lacks = "";
static unsigned opened, sockets;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
	if (!name || strcmp(name, "libgnutls.so.30") != 0)
		return __real_dlopen(name, flags);
	opened++;
	return __real_dlopen(is_there ? name : "libgnutls-that-is-not-there.so.30", flags);
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
	return strcmp(name, lacks) ? __real_dlsym(library, name) : NULL;
}

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
	sockets++;
	return __real_socket(domain, type, protocol);
}

static char key[] = "/tmp/boot-no-tls-XXXXXX";

static int with_key(void)
{
	struct boot *b = NULL;
	static const struct boot_up nothing;
	struct tran_facts own;
	boot_own_facts(&own);
	sockets = 0;
	int rc = boot_new(&nothing, NULL, &own, key, &b);
	assert_int_equal(rc != 0, b == NULL);
	assert_int_equal(sockets, 0);
	boot_free(b);
	return rc;
}

static void test_without_a_key_it_is_not_opened(void **state)
{
	struct side *a = side_new(NULL), *b = side_new(NULL);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	struct peer *pa = side_connect(a, "127.0.0.1", boot_listener_port(l), 20000);
	while (!pa->connected && !pa->gone)
		boot_progress(a->b), boot_progress(b->b);
	assert_true(pa->connected);
	assert_int_equal(opened, 0);
	side_free(a);
	side_free(b);
}

static void test_a_key_without_the_library_is_an_error(void **state)
{
	is_there = false;
	assert_int_equal(with_key(), RPW_ERR_NOT_SUPPORTED);
	const char *text = rpwi_last_error()->text;
	assert_non_null(strstr(text, key));
	assert_non_null(strstr(text, "libgnutls-that-is-not-there.so.30: cannot open"));
	assert_non_null(strstr(text, "install it (Debian"));
}

static void test_a_key_with_an_older_library_is_an_error(void **state)
{
	is_there = true;
	lacks = "gnutls_prf_rfc5705";
	assert_int_equal(with_key(), RPW_ERR_NOT_SUPPORTED);
	assert_non_null(strstr(rpwi_last_error()->text, "libgnutls.so.30 has no gnutls_prf_rfc57"));
	lacks = "";
}

static void test_installed_meanwhile_it_is_used(void **state)
{
	unsigned before = opened;
	is_there = true;
	assert_int_equal(with_key(), 0);
	assert_int_equal(with_key(), 0);
	assert_int_equal(opened, before + 1); /* once */
}

static void test_sha256_is_that_of_gnutls(void **state)
{
	uint8_t data[300], ours[32], theirs[32];
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37 + 11);
	for (size_t len = 0; len <= sizeof(data); len++) {
		boot_sha256(data, len, ours);
		assert_int_equal(gnutls_hash_fast(GNUTLS_DIG_SHA256, data, len, theirs), 0);
		assert_memory_equal(ours, theirs, 32);
	}
	boot_sha256("abc", 3, ours); /* of FIPS 180-4's examples */
	assert_memory_equal(ours, "\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde", 12);
}

int main(void)
{
	ns_enter();
	int fd = mkstemp(key);
	if (fd < 0 || write(fd, "a long pass phrase, no hex\n", 27) != 27)
		return 1;
	close(fd);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_a_key_it_is_not_opened),
		cmocka_unit_test(test_a_key_without_the_library_is_an_error),
		cmocka_unit_test(test_a_key_with_an_older_library_is_an_error),
		cmocka_unit_test(test_installed_meanwhile_it_is_used),
		cmocka_unit_test(test_sha256_is_that_of_gnutls),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(key);
	return rc;
}
