/* SPDX-License-Identifier: BSD-3-Clause */
/* tls_test.c - what a connection with a key says after the handshake is TLS 1.3 as others speak it:
 * a client made of GnuTLS alone talks with a listener, in records of all sizes, changes a byte,
 * asks for new keys, exports, says goodbye. */
#include "pair.h"

#include <gnutls/gnutls.h>
#include <malloc.h>
#include <sys/stat.h>

static char folder[] = "/tmp/boot-tls-XXXXXX", file[64];
static const unsigned char key_bytes[16] = {0x6b, 0x1f, 0x0c, 0x2d, 0x9e, 0x8f, 0x7a, 0x6b, 0x5c,
	0x4d, 0x3e, 0x2f, 0x1a, 0x0b, 0x9c, 0x8d};

struct stock {
	gnutls_session_t s;
	gnutls_psk_client_credentials_t cred;
	struct side *b; /* makes progress while this side waits */
	int fd;
	bool spoil; /* a bit of the next thing that is sent */
};

static ssize_t stock_push(gnutls_transport_ptr_t ptr, const void *p, size_t len)
{
	struct stock *k = ptr;
	uint8_t bytes[20000];
	assert_true(len <= sizeof(bytes));
	memcpy(bytes, p, len);
	bytes[len / 2] ^= k->spoil;
	return raw_send(k->fd, bytes, len) ? (ssize_t)len : -1;
}

static ssize_t stock_pull(gnutls_transport_ptr_t ptr, void *to, size_t room)
{
	struct stock *k = ptr;
	for (int i = 0; i < 20000; i++) {
		ssize_t n = recv(k->fd, to, room, MSG_DONTWAIT);
		if (n >= 0 || errno != EAGAIN)
			return n;
		if (!boot_progress(k->b->b))
			usleep(500);
	}
	fail_msg("nothing comes");
	return -1;
}

static int stock_timeout(gnutls_transport_ptr_t ptr, unsigned ms) { return 1; }

static void stock_read(struct stock *k, uint8_t *out, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = gnutls_record_recv(k->s, out + at, len - at);
		if (n == GNUTLS_E_AGAIN) /* new keys came */
			continue;
		assert_true(n > 0);
		at += (size_t)n;
	}
}

static void stock_write(struct stock *k, const uint8_t *p, size_t len, size_t piece)
{
	for (size_t at = 0; at < len; at += RPWI_MIN(piece, len - at))
		assert_true(gnutls_record_send(k->s, p + at, RPWI_MIN(piece, len - at)) > 0);
}

/* Handshake, hellos. The listener's end of it. */
static struct peer *stock_open(struct stock *k, struct side *b, struct boot_listener *l)
{
	static const char *const ciphers[] = {
		"NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK:-CIPHER-ALL:+AES-128-GCM",
		"NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK:-CIPHER-ALL:+CHACHA20-POLY1305"};
	static unsigned turn;
	gnutls_datum_t key = {(unsigned char *)key_bytes, sizeof(key_bytes)};
	*k = (struct stock){.b = b, .fd = raw_connect(boot_listener_port(l))};
	assert_int_equal(gnutls_init(&k->s, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL), 0);
	assert_int_equal(gnutls_priority_set_direct(k->s, ciphers[turn++ % 2], NULL), 0);
	assert_int_equal(gnutls_psk_allocate_client_credentials(&k->cred), 0);
	assert_int_equal(
		gnutls_psk_set_client_credentials(k->cred, "ropeway", &key, GNUTLS_PSK_KEY_RAW), 0);
	assert_int_equal(gnutls_credentials_set(k->s, GNUTLS_CRD_PSK, k->cred), 0);
	gnutls_transport_set_ptr(k->s, k);
	gnutls_transport_set_push_function(k->s, stock_push);
	gnutls_transport_set_pull_function(k->s, stock_pull);
	gnutls_transport_set_pull_timeout_function(k->s, stock_timeout);
	int rc;
	while ((rc = gnutls_handshake(k->s)) < 0 && !gnutls_error_is_fatal(rc))
		;
	assert_int_equal(rc, 0);
	uint8_t hello[BOOT_HELLO_MAX], theirs[BOOT_HELLO_MAX];
	struct boot_prelude_fields f;
	stock_write(k, hello, boot_hello_encode(BOOT_HELLO_CONNECTOR, &b->own, hello), 7);
	stock_read(k, theirs, BOOT_PRELUDE_LEN);
	assert_int_equal(boot_prelude_decode(theirs, BOOT_PRELUDE_LEN, &f), BOOT_PRELUDE_GOOD);
	assert_int_equal(f.kind, BOOT_HELLO_LISTENER);
	stock_read(k, theirs + BOOT_PRELUDE_LEN, f.body_len);
	assert_true(b->n > 0);
	return &b->peer[b->n - 1];
}

static void stock_close(struct stock *k)
{
	gnutls_deinit(k->s);
	gnutls_psk_free_client_credentials(k->cred);
	close(k->fd);
}

static void stock_say(struct stock *k, unsigned type, size_t len, size_t piece)
{
	uint8_t m[BOOT_FRAME_HEAD + BOOT_MESSAGE_MAX];
	rpwi_put_be32(m, (uint32_t)len);
	rpwi_put_be32(m + 4, type);
	for (size_t i = 0; i < len; i++)
		m[BOOT_FRAME_HEAD + i] = pattern_byte(type, i);
	stock_write(k, m, BOOT_FRAME_HEAD + len, piece);
}

static void until_gone(struct side *b, const struct peer *p)
{
	for (int i = 0; i < 20000 && !p->gone; i++)
		if (!boot_progress(b->b))
			usleep(500);
	assert_true(p->gone);
}

static void test_talks_with_gnutls(void **state)
{
	static const size_t pieces[] = {1, 3, 8, 1000, 16384};
	struct side *b = side_new(file);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	for (unsigned round = 0; round < 4; round++) {
		IN_CASE("round", round);
		struct stock k;
		struct peer *p = stock_open(&k, b, l);
		for (unsigned type = 0; type < RPWI_ARRAY_LEN(pieces); type++) {
			IN_CASE("row", type);
			size_t len = type < 2 ? 100 + type : BOOT_MESSAGE_MAX - type;
			uint8_t m[BOOT_FRAME_HEAD + BOOT_MESSAGE_MAX];
			stock_say(&k, type, len, pieces[type]);
			for (int i = 0; i < 20000 && p->messages <= type; i++)
				if (!boot_progress(b->b))
					usleep(500);
			assert_int_equal(p->messages, type + 1);
			assert_int_equal(send_pattern(p->c, 50 + type, len), 0);
			stock_read(&k, m, BOOT_FRAME_HEAD + len);
			assert_int_equal(rpwi_get_be32(m), len);
			for (size_t i = 0; i < len; i++)
				assert_int_equal(
					m[BOOT_FRAME_HEAD + i], pattern_byte(50 + type, i));
		}
		assert_int_equal(p->bad, 0);
		assert_int_equal(gnutls_bye(k.s, GNUTLS_SHUT_WR), 0);
		until_gone(b, p);
		assert_int_equal(p->status, RPW_ERR_PEER_GONE);
		stock_close(&k);
	}
	side_free(b);
}

static void test_a_changed_bit(void **state)
{
	struct side *b = side_new(file);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	struct stock k;
	struct peer *p = stock_open(&k, b, l);
	k.spoil = true;
	stock_say(&k, 1, 500, 16384);
	until_gone(b, p);
	assert_int_equal(p->status, RPW_ERR_PROTOCOL);
	assert_int_equal(p->messages, 0);
	stock_close(&k);
	side_free(b);
}

/* Either side may ask for new keys at any time; what was said before and what is said after comes
 * through. */
static void test_new_keys_are_taken(void **state)
{
	struct side *b = side_new(file);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	struct stock k;
	struct peer *p = stock_open(&k, b, l);
	for (unsigned type = 0; type < 6; type++) {
		uint8_t m[BOOT_FRAME_HEAD + BOOT_MESSAGE_MAX];
		size_t len = 1000 * type + 1;
		assert_int_equal(gnutls_session_key_update(k.s, type % 2 ? GNUTLS_KU_PEER : 0), 0);
		stock_say(&k, type, len, 16384);
		for (int i = 0; i < 20000 && p->messages <= type; i++)
			if (!boot_progress(b->b))
				usleep(500);
		assert_int_equal(p->messages, type + 1);
		assert_int_equal(send_pattern(p->c, 90 + type, len), 0);
		stock_read(&k, m, BOOT_FRAME_HEAD + len);
		for (size_t i = 0; i < len; i++)
			assert_int_equal(m[BOOT_FRAME_HEAD + i], pattern_byte(90 + type, i));
	}
	assert_int_equal(p->bad, 0);
	stock_close(&k);
	side_free(b);
}

static void test_no_records(void **state)
{
	static const uint8_t wrong[][106] = {{22, 3, 3, 0, 100, 0}, {23, 3, 1, 0, 100, 0},
		{23, 3, 3, 0, 3, 0}, {23, 3, 3, 0xff, 0xff, 0}, {20, 3, 3, 0, 1, 1},
		{99, 3, 3, 0, 100, 0}};
	struct side *b = side_new(file);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	for (size_t i = 0; i < RPWI_ARRAY_LEN(wrong); i++) {
		IN_CASE("row", i);
		struct stock k;
		struct peer *p = stock_open(&k, b, l);
		assert_true(raw_send(k.fd, wrong[i], sizeof(wrong[i])));
		until_gone(b, p);
		assert_int_equal(p->status, RPW_ERR_PROTOCOL);
		assert_int_equal(p->messages, 0);
		stock_close(&k);
	}
	side_free(b);
}

/* What the two ends of a connection export is the same, and another label's, another context's and
 * another connection's is not. Without a key there is nothing. */
static void test_both_ends_export_the_same(void **state)
{
	uint8_t ours[32], again[32], theirs[32];
	struct side *b = side_new(file), *plain = side_new(NULL), *caller = side_new(NULL);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0"),
			     *m = side_listen(plain, "127.0.0.1:0");
	struct stock k, k2;
	struct peer *p = stock_open(&k, b, l);
	assert_int_equal(
		boot_export(p->c, "EXPORTER-ropeway-test", "ab", 2, ours, sizeof(ours)), 0);
	assert_int_equal(gnutls_prf_rfc5705(k.s, 21, "EXPORTER-ropeway-test", 2, "ab",
				 sizeof(theirs), (char *)theirs),
		0);
	assert_memory_equal(ours, theirs, sizeof(ours));
	assert_int_equal(
		boot_export(p->c, "EXPORTER-ropeway-tesu", "ab", 2, again, sizeof(again)), 0);
	assert_memory_not_equal(ours, again, sizeof(ours));
	assert_int_equal(
		boot_export(p->c, "EXPORTER-ropeway-test", "ac", 2, again, sizeof(again)), 0);
	assert_memory_not_equal(ours, again, sizeof(ours));
	p = stock_open(&k2, b, l);
	assert_int_equal(
		boot_export(p->c, "EXPORTER-ropeway-test", "ab", 2, again, sizeof(again)), 0);
	assert_memory_not_equal(ours, again, sizeof(ours));
	stock_close(&k);
	stock_close(&k2);
	p = side_connect(caller, "127.0.0.1", boot_listener_port(m), 20000);
	while (!p->connected && !p->gone)
		boot_progress(caller->b), boot_progress(plain->b);
	assert_true(p->connected);
	assert_int_equal(boot_export(p->c, "EXPORTER-ropeway-test", "ab", 2, again, sizeof(again)),
		RPW_ERR_INVALID);
	side_free(caller);
	side_free(plain);
	side_free(b);
}

/* What an idle connection with a key takes. */
static void test_an_idle_connection_takes_48_kib_at_most(void **state)
{
	enum { MANY = 64 };
	static struct stock k[MANY];
	struct side *b = side_new(file);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	struct peer *p = stock_open(&k[0], b, l);
	size_t before = mallinfo2().uordblks;
	for (unsigned i = 1; i < MANY; i++) {
		p = stock_open(&k[i], b, l);
		assert_int_equal(send_pattern(p->c, i, 5000), 0);
		uint8_t m[BOOT_FRAME_HEAD + 5000];
		stock_read(&k[i], m, sizeof(m));
		stock_say(&k[i], i, 7000, 16384);
		while (!p->messages)
			boot_progress(b->b);
	}
	/* both ends: the stock one is a session, too */
	size_t each = (mallinfo2().uordblks - before) / (MANY - 1);
	printf("an idle connection with a key, both its ends: %zu bytes\n", each);
	assert_true(each < 2 * 48 * 1024);
	for (unsigned i = 0; i < MANY; i++)
		stock_close(&k[i]);
	side_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_talks_with_gnutls),
		cmocka_unit_test(test_a_changed_bit),
		cmocka_unit_test(test_new_keys_are_taken),
		cmocka_unit_test(test_no_records),
		cmocka_unit_test(test_both_ends_export_the_same),
		cmocka_unit_test(test_an_idle_connection_takes_48_kib_at_most),
	};
	ns_enter();
	signal(SIGPIPE, SIG_IGN);
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/key", folder);
	FILE *f = fopen(file, "w");
	assert_non_null(f);
	for (size_t i = 0; i < sizeof(key_bytes); i++)
		fprintf(f, "%02x", key_bytes[i]);
	fclose(f);
	chmod(file, 0600);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(file);
	rmdir(folder);
	return failed;
}
