/* SPDX-License-Identifier: BSD-3-Clause */
/* stranger_test.c - who comes to a listener and does not belong there: each is counted, costs a
 * bounded time, and good peers connect all the while. And what a connecting side says of a service
 * that is none of ropeway's. */
#include "lib/descriptors.h"
#include "pair.h"

#include <netinet/in.h>
#include <sys/resource.h>

static struct side *a, *b;
static struct boot_listener *l;
static unsigned before;

static int begin(void **state)
{
	before = open_descriptors();
	a = side_new(NULL);
	b = side_new(NULL);
	l = side_listen(b, "127.0.0.1:0");
	return 0;
}

static int finish(void **state)
{
	side_free(a);
	side_free(b);
	assert_int_equal(open_descriptors(), before);
	return 0;
}

static bool all_strangers(void *arg) { return boot_strangers(b->b) >= *(uint64_t *)arg; }
static void wait_for_strangers(uint64_t n)
{
	if (!until(a, b, all_strangers, &n))
		fail_msg("%llu strangers were counted, %llu came",
			(unsigned long long)boot_strangers(b->b), (unsigned long long)n);
}

static bool connected(void *arg)
{
	unsigned n = *(unsigned *)arg;
	return a->connected >= n && b->accepted >= n;
}

/* As many more as n; each is heard. */
static void good_peers(unsigned n)
{
	unsigned first = a->n, all = a->connected + n;
	for (unsigned i = 0; i < n; i++)
		side_connect(a, "127.0.0.1", boot_listener_port(l), 20000);
	assert_true(until(a, b, connected, &all));
	for (unsigned i = first; i < a->n; i++)
		assert_int_equal(a->peer[i].status, 0);
}

/* A hello of ours with some bytes changed. */
struct change {
	const char *name;
	unsigned at;
	const char *bytes;
	unsigned len;
	enum boot_refusal refusal; /* what the listener answers */
};
static const struct change changes[] = {
	{"another version", 10, "\x00\x02", 2, BOOT_REFUSED_VERSION},
	{"a version of the far future", 10, "\xff\xff", 2, BOOT_REFUSED_VERSION},
	{"another version that says more", 10, "\x00\x02\x00\x10\x00\x00", 6, BOOT_REFUSED_VERSION},
	{"big-endian", 8, "\x02", 1, BOOT_REFUSED_BYTE_ORDER},
	{"no byte order at all", 8, "\x00", 1, BOOT_REFUSED_HELLO},
	{"a listener's hello", 9, "\x02", 1, BOOT_REFUSED_HELLO},
	{"a refusal", 9, "\x03", 1, BOOT_REFUSED_HELLO},
	{"a long body", 12, "\x00\x00\x02\x01", 4, BOOT_REFUSED_HELLO},
	{"a very long body", 12, "\xff\xff\xff\xff", 4, BOOT_REFUSED_HELLO},
	{"no body", 12, "\x00\x00\x00\x00", 4, BOOT_REFUSED_HELLO},
	{"a field beyond the end", 17, "\xff", 1, BOOT_REFUSED_HELLO},
};

static size_t changed_hello(const struct change *c, enum boot_hello_kind kind, uint8_t *out)
{
	size_t len = boot_hello_encode(kind, &a->own, out);
	memcpy(out + c->at, c->bytes, c->len);
	return len;
}

static void test_hellos_that_are_refused(void **state)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(changes); i++) {
		IN_CASE("row", i);
		uint8_t hello[BOOT_HELLO_MAX], got[BOOT_HELLO_MAX];
		struct boot_prelude_fields f;
		int fd = raw_connect(boot_listener_port(l));
		assert_true(raw_send(
			fd, hello, changed_hello(&changes[i], BOOT_HELLO_CONNECTOR, hello)));
		shutdown(fd, SHUT_WR);
		size_t n = raw_drain(fd, b, got, sizeof(got));
		close(fd);
		if (n < BOOT_PRELUDE_LEN + 2 ||
			boot_prelude_decode(got, n, &f) != BOOT_PRELUDE_GOOD ||
			f.kind != BOOT_HELLO_REFUSAL)
			fail_msg("%s: no refusal", changes[i].name);
		assert_int_equal(rpwi_get_be16(got + BOOT_PRELUDE_LEN), changes[i].refusal);
		assert_int_equal(boot_strangers(b->b), i + 1);
	}
	assert_int_equal(b->accepted, 0);
	good_peers(3);
}

/* Other protocols, garbage, and the beginning of a hello that goes away: none is answered. */
static void test_other_protocols(void **state)
{
	static const struct {
		const char *bytes;
		size_t len, answer_max;
	} say[] = {{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, 0}, {"SSH-2.0-OpenSSH_9.2\r\n", 21, 0},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11, 7}, {"\x00", 1, 0},
		{"\xff\xff\xff\xff\xff\xff\xff\xff", 8, 0}, {"\x93ropewax", 8, 0},
		{"\x93ropeway", 8, 0}, {"\x93ropeway\x01\x01\x00\x01\x00\x00\x00\x10 field", 22, 0},
		{"", 0, 0}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(say); i++) {
		IN_CASE("row", i);
		uint8_t got[64];
		int fd = raw_connect(boot_listener_port(l));
		assert_true(raw_send(fd, say[i].bytes, say[i].len));
		shutdown(fd, SHUT_WR);
		assert_true(raw_drain(fd, b, got, sizeof(got)) <= say[i].answer_max);
		close(fd);
		wait_for_strangers(i + 1);
		good_peers(1);
	}
	assert_int_equal(boot_strangers(b->b), RPWI_ARRAY_LEN(say));
}

static unsigned lines(const char *text)
{
	unsigned n = 0;
	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* One that was refused and stays, until others push it out, was one stranger. */
static void test_counted_once(void **state)
{
	uint8_t hello[BOOT_HELLO_MAX], got[64];
	int fd[BOOT_STRANGERS_MAX], refused = raw_connect(boot_listener_port(l));
	assert_true(
		raw_send(refused, hello, changed_hello(&changes[0], BOOT_HELLO_CONNECTOR, hello)));
	wait_for_strangers(1);
	for (unsigned i = 0; i < BOOT_STRANGERS_MAX; i++)
		fd[i] = raw_connect(boot_listener_port(l));
	for (int i = 0; i < 100; i++) /* they are many: accepted in turns */
		boot_progress(b->b);
	assert_int_equal(boot_strangers(b->b), 1);
	assert_true(raw_drain(refused, b, got, sizeof(got)) > 0);
	close(refused);
	for (unsigned i = 0; i < BOOT_STRANGERS_MAX; i++)
		close(fd[i]);
	wait_for_strangers(1 + BOOT_STRANGERS_MAX);
	good_peers(1);
	assert_int_equal(boot_strangers(b->b), 1 + BOOT_STRANGERS_MAX);
}

/* A line for each, but no flood of them. */
static void test_lines_of_the_log(void **state)
{
	enum { FLOOD = 60 };
	uint8_t got[64];
	log_begin(RPWI_LOG_INFO);
	for (unsigned i = 0; i < 3; i++) {
		int fd = raw_connect(boot_listener_port(l));
		raw_send(fd, "GET \x1b[2J\n", 10);
		raw_drain(fd, b, got, sizeof(got));
		close(fd);
	}
	const char *log = log_end();
	assert_int_equal(lines(log), 3);
	assert_null(strchr(log, 27)); /* what strangers send is not written to terminals */
	assert_non_null(strstr(log, "HTTP"));
	log_begin(RPWI_LOG_INFO);
	uint64_t begun = rpwi_now_ns();
	for (unsigned i = 0; i < FLOOD; i++)
		close(raw_connect(boot_listener_port(l)));
	wait_for_strangers(3 + FLOOD);
	unsigned n = lines(log_end()),
		 seconds = (unsigned)((rpwi_now_ns() - begun) / RPWI_NS_PER_S);
	assert_true(n >= 7 && n <= 10 * (seconds + 2));
}

/* No descriptor is left for a while: the listener is still there afterwards. */
static void test_no_descriptor_left(void **state)
{
	struct rlimit was, few;
	int fd[40];
	unsigned n = 0;
	getrlimit(RLIMIT_NOFILE, &was);
	for (; n < 10; n++)
		fd[n] = raw_connect(boot_listener_port(l));
	int top = fcntl(0, F_DUPFD_CLOEXEC, 3);
	few = (struct rlimit){(rlim_t)top + 3, was.rlim_max};
	close(top);
	setrlimit(RLIMIT_NOFILE, &few);
	log_begin(RPWI_LOG_ERROR); /* it warns */
	for (uint64_t end = rpwi_now_ns() + 300 * RPWI_NS_PER_MS; rpwi_now_ns() < end; usleep(1000))
		boot_progress(b->b);
	log_end();
	setrlimit(RLIMIT_NOFILE, &was);
	good_peers(5);
	while (n)
		close(fd[--n]);
	wait_for_strangers(10);
}

/* Silent ones, more than a listener bears, and some that say a byte now and then: all are gone
 * after a time, and good peers come in at every moment. */
static void test_silence_and_slowness(void **state)
{
	enum { SILENT = BOOT_STRANGERS_MAX + 50, SLOW = 4 };
	uint8_t hello[BOOT_HELLO_MAX];
	int fd[SILENT], slow[SLOW];
	size_t len = boot_hello_encode(BOOT_HELLO_CONNECTOR, &a->own, hello), at = 0;
	for (int i = 0; i < SILENT; i++)
		fd[i] = raw_connect(boot_listener_port(l));
	for (int i = 0; i < SLOW; i++)
		slow[i] = raw_connect(boot_listener_port(l));
	uint64_t all = SILENT + SLOW, next_ns = 0;
	good_peers(10);
	assert_true(boot_strangers(b->b) >= 50); /* the oldest had to go */
	assert_true(
		open_descriptors() < before + 4 + 1 + 20 + SILENT + SLOW + BOOT_STRANGERS_MAX + 1);
	while (boot_strangers(b->b) < all) {
		boot_progress(a->b);
		boot_progress(b->b);
		usleep(1000);
		if (rpwi_now_ns() < next_ns || at + 1 >= len)
			continue;
		next_ns = rpwi_now_ns() + 100 * RPWI_NS_PER_MS;
		for (int i = 0; i < SLOW; i++)
			raw_send(slow[i], hello + at, 1);
		at++;
		good_peers(1);
	}
	assert_int_equal(boot_strangers(b->b), all);
	for (int i = 0; i < SILENT; i++)
		close(fd[i]);
	for (int i = 0; i < SLOW; i++)
		close(slow[i]);
}

/* After a good hello: messages that cannot be. Only that connection ends. */
static void test_hostile_messages(void **state)
{
	static const uint32_t lengths[] = {
		BOOT_MESSAGE_MAX + 1, 0x7fffffff, 0x80000000, 0xffffffff};
	good_peers(1);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lengths); i++) {
		IN_CASE("bytes", lengths[i]);
		uint8_t bytes[BOOT_HELLO_MAX + BOOT_FRAME_HEAD], got[BOOT_HELLO_MAX];
		size_t len = boot_hello_encode(BOOT_HELLO_CONNECTOR, &a->own, bytes);
		rpwi_put_be32(bytes + len, lengths[i]);
		rpwi_put_be32(bytes + len + 4, 1);
		int fd = raw_connect(boot_listener_port(l));
		assert_true(raw_send(fd, bytes, len + BOOT_FRAME_HEAD));
		raw_drain(fd, b, got, sizeof(got));
		close(fd);
		struct peer *p = &b->peer[b->n - 1];
		assert_true(p->gone);
		assert_int_equal(p->status, RPW_ERR_PROTOCOL);
		assert_int_equal(p->messages, 0);
	}
	assert_int_equal(b->ended, RPWI_ARRAY_LEN(lengths));
	assert_int_equal(send_pattern(a->peer[0].c, 3, 300), 0);
	while (!b->peer[0].messages)
		boot_progress(a->b), boot_progress(b->b);
	assert_int_equal(b->peer[0].bad, 0);
}

/* ---- services that are none of ours, from the connecting side ---- */

static int serve(int *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)) | listen(fd, 5) |
				 getsockname(fd, (struct sockaddr *)&at, &len),
		0);
	*port = ntohs(at.sin_port);
	return fd;
}

/* Answers with these bytes; NULL: with what it gets. The peer's end. */
static struct peer *meet_service(const void *bytes, size_t len, unsigned timeout_ms)
{
	int port, listener = serve(&port), fd = -1;
	unsigned n = a->connected + 1;
	struct peer *p = side_connect(a, "127.0.0.1", port, timeout_ms);
	uint8_t got[1024];
	while (a->connected < n) {
		boot_progress(a->b);
		int more = accept(listener, NULL, NULL);
		if (more >= 0) {
			if (fd >= 0)
				close(fd);
			fd = more;
			raw_send(fd, bytes, bytes ? len : 0);
		}
		ssize_t k = bytes || fd < 0 ? 0 : recv(fd, got, sizeof(got), MSG_DONTWAIT);
		if (k > 0)
			raw_send(fd, got, (size_t)k);
		usleep(1000);
	}
	close(fd);
	close(listener);
	return p;
}

static void test_services_that_are_not_ropeway(void **state)
{
	struct peer *p = meet_service("SSH-2.0-OpenSSH_9.2\r\n", 21, 20000);
	assert_int_equal(p->status, RPW_ERR_PROTOCOL);
	assert_non_null(strstr(p->why, "SSH"));
	p = meet_service("HTTP/1.1 400 Bad Request\r\n\r\n", 28, 20000);
	assert_int_equal(p->status, RPW_ERR_PROTOCOL);
	assert_non_null(strstr(p->why, "HTTP"));
	p = meet_service("\x01\x02\x03\x04", 4, 20000);
	assert_int_equal(p->status, RPW_ERR_PROTOCOL);
	assert_non_null(strstr(p->why, "01 02 03 04"));
	p = meet_service("\x15\x03\x03\x00\x02\x02\x28", 7, 20000);
	assert_int_equal(p->status, RPW_ERR_REFUSED);
	assert_non_null(strstr(p->why, "ROPEWAY_KEY_FILE"));
	p = meet_service(NULL, 0, 20000); /* an echo service */
	assert_int_equal(p->status, RPW_ERR_REFUSED);
	assert_non_null(strstr(p->why, "does it echo"));
}

static void test_listeners_of_other_kinds(void **state)
{
	uint8_t bytes[BOOT_HELLO_MAX];
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(changes); i++) {
		IN_CASE("row", i);
		size_t len = changed_hello(&changes[i], BOOT_HELLO_LISTENER, bytes);
		if (changes[i].at == 9)
			bytes[9] = BOOT_HELLO_CONNECTOR;
		struct peer *p = meet_service(bytes, len, 20000);
		if (p->status != RPW_ERR_REFUSED)
			fail_msg("%s: %d, %s", changes[i].name, p->status, p->why);
	}
	static const char *const words[] = {"?", "version", "byte order", "refused our hello"};
	for (unsigned reason = 1; reason <= 3; reason++) {
		size_t len = boot_refusal_encode(reason, bytes);
		struct peer *p = meet_service(bytes, len, 20000);
		assert_int_equal(p->status, RPW_ERR_REFUSED);
		assert_non_null(strstr(p->why, words[reason]));
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)
	const struct CMUnitTest tests[] = {
		TEST(test_hellos_that_are_refused),
		TEST(test_other_protocols),
		TEST(test_counted_once),
		TEST(test_lines_of_the_log),
		TEST(test_no_descriptor_left),
		TEST(test_silence_and_slowness),
		TEST(test_hostile_messages),
		TEST(test_services_that_are_not_ropeway),
		TEST(test_listeners_of_other_kinds),
	};
	ns_enter();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
