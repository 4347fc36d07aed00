/* SPDX-License-Identifier: BSD-3-Clause */
/* talk_test.c - two sides that mean well: connecting early, late and often, messages of all sizes,
 * queues, ends of all kinds. */
#include "lib/descriptors.h"
#include "pair.h"

#include <sys/mman.h>

#include "boot/boot_priv.h"

static struct side *a, *b;
static unsigned before;

static int begin(void **state)
{
	loopback_set(true);
	before = open_descriptors();
	a = side_new(NULL);
	b = side_new(NULL);
	return 0;
}

static int finish(void **state)
{
	side_free(a);
	side_free(b);
	for (int i = 0; i < 10000 && open_descriptors() > before; i++)
		usleep(1000); /* getaddrinfo, which nobody waits for, has some of its own */
	assert_int_equal(open_descriptors(), before);
	return 0;
}

struct want {
	const unsigned *what;
	unsigned at_least;
};
static bool reached(void *arg)
{
	struct want *w = arg;
	return *w->what >= w->at_least;
}
static void wait_for(const unsigned *what, unsigned at_least)
{
	struct want w = {what, at_least};
	if (!until(a, b, reached, &w))
		fail_msg("waited for %u, have %u", at_least, *what);
}

/* pa of a to pb of b. */
static void connect_pair(struct peer **pa, struct peer **pb)
{
	unsigned connected = a->connected, accepted = b->accepted;
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	*pa = side_connect(a, "127.0.0.1", boot_listener_port(l), 10000);
	wait_for(&a->connected, connected + 1);
	wait_for(&b->accepted, accepted + 1);
	assert_int_equal((*pa)->status, 0);
	*pb = &b->peer[b->n - 1];
	boot_listener_free(l);
}

static void test_hello(void **state)
{
	struct peer *pa, *pb;
	char text[128];
	connect_pair(&pa, &pb);
	assert_memory_equal(boot_peer(pa->c)->host_id, b->own.host_id, 16);
	assert_int_equal(boot_peer(pb->c)->pid, getpid());
	assert_int_equal(boot_peer(pb->c)->uid, geteuid());
	assert_string_equal(boot_peer(pa->c)->transports, "shm,tcp");
	assert_string_equal(boot_peer(pb->c)->address, "127.0.0.1");
	snprintf(text, sizeof(text), "%s:%d 127.0.0.1:", a->own.hostname, getpid());
	assert_memory_equal(boot_peer_text(pa->c), text, strlen(text));
	assert_int_equal(boot_strangers(b->b), 0);
}

static void test_messages_of_all_sizes(void **state)
{
	struct peer *pa, *pb;
	size_t sent = 0;
	unsigned n = 0;
	connect_pair(&pa, &pb);
	for (unsigned len = 0; len <= BOOT_MESSAGE_MAX; len += len < 40 ? 1 : 97) {
		IN_CASE("len", len);
		assert_int_equal(send_pattern(pa->c, len, len), 0);
		assert_int_equal(send_pattern(pb->c, len ^ 0xffffffff, len), 0);
		sent += len;
		wait_for(&pa->messages, ++n);
		wait_for(&pb->messages, n);
		assert_int_equal(pb->last_type, len);
		assert_int_equal(pa->last_type, len ^ 0xffffffff);
	}
	assert_int_equal(send_pattern(pa->c, 3, BOOT_MESSAGE_MAX), 0);
	assert_int_equal(send_pattern(pa->c, 4, BOOT_MESSAGE_MAX + 1), RPW_ERR_INVALID);
	wait_for(&pb->messages, n + 1);
	assert_int_equal(pb->bytes, sent + BOOT_MESSAGE_MAX);
	assert_int_equal(pa->bytes, sent);
	assert_int_equal(pa->bad + pb->bad, 0);
}

/* One byte at a time, hello and messages: nothing is ever assumed to come whole. */
static void test_dribble(void **state)
{
	static const unsigned sizes[] = {
		0, 1, 2, 7, 8, 9, 255, 256, 4096, BOOT_MESSAGE_MAX - 1, BOOT_MESSAGE_MAX};
	static uint8_t bytes[BOOT_FRAME_HEAD + BOOT_MESSAGE_MAX];
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	int fd = raw_connect(boot_listener_port(l));
	size_t total = 0, len = boot_hello_encode(BOOT_HELLO_CONNECTOR, &a->own, bytes);
	for (size_t i = 0; i < len; i++) {
		assert_int_equal(b->accepted, 0);
		assert_true(raw_send(fd, bytes + i, 1));
		boot_progress(b->b);
	}
	wait_for(&b->accepted, 1);
	struct peer *pb = &b->peer[0];
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(sizes); k++) {
		IN_CASE("bytes", sizes[k]);
		rpwi_put_be32(bytes, sizes[k]);
		rpwi_put_be32(bytes + 4, k);
		for (size_t i = 0; i < sizes[k]; i++)
			bytes[BOOT_FRAME_HEAD + i] = pattern_byte(k, i);
		for (size_t i = 0; i < BOOT_FRAME_HEAD + sizes[k]; i++) {
			assert_int_equal(pb->messages, k);
			assert_true(raw_send(fd, bytes + i, 1));
			boot_progress(b->b);
		}
		total += sizes[k];
		wait_for(&pb->messages, k + 1);
	}
	assert_int_equal(pb->bad, 0);
	assert_int_equal(pb->bytes, total);
	close(fd);
	wait_for(&b->ended, 1);
}

/* The listener comes later than who connects to it. */
static void test_connect_before_listen(void **state)
{
	char address[32];
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	int port = boot_listener_port(l);
	boot_listener_free(l);
	struct peer *pa = side_connect(a, "127.0.0.1", port, 20000);
	for (uint64_t end = rpwi_now_ns() + 200 * RPWI_NS_PER_MS; rpwi_now_ns() < end;
		usleep(1000)) {
		boot_progress(a->b);
		boot_progress(b->b);
	}
	assert_int_equal(a->connected, 0);
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	side_listen(b, address);
	wait_for(&b->accepted, 1);
	wait_for(&a->connected, 1);
	assert_int_equal(pa->status, 0);
}

static void test_deadline(void **state)
{
	struct peer *pa = side_connect(a, "127.0.0.1", 9, 150);
	uint64_t begun = rpwi_now_ns();
	wait_for(&a->connected, 1);
	assert_int_equal(pa->status, RPW_ERR_UNREACHABLE);
	/* not before the deadline: it may yet come */
	assert_true(rpwi_now_ns() - begun >= 140 * RPWI_NS_PER_MS);
	assert_non_null(strstr(pa->why, "127.0.0.1:9"));
	assert_non_null(strstr(pa->why, "Connection refused"));
	/* Somebody takes the connection, and says nothing: the same deadline. */
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)) | listen(fd, 5) |
				 getsockname(fd, (struct sockaddr *)&at, &len),
		0);
	pa = side_connect(a, "127.0.0.1", ntohs(at.sin_port), 150);
	wait_for(&a->connected, 2);
	assert_int_equal(pa->status, RPW_ERR_TIMEOUT);
	assert_non_null(strstr(pa->why, "no hello"));
	close(fd);
}

static void test_bad_addresses(void **state)
{
	struct boot_conn *c = NULL;
	struct boot_listener *l = NULL;
	assert_int_equal(boot_connect(a->b, "127.0.0.1", 100, NULL, &c), RPW_ERR_INVALID);
	assert_int_equal(boot_connect(a->b, "127.0.0.1:0", 100, NULL, &c), RPW_ERR_INVALID);
	assert_int_equal(boot_listen(b->b, "127.0.0.1", b, &l), RPW_ERR_INVALID);
	/* not this host's */
	assert_int_equal(boot_listen(b->b, "192.0.2.1:0", b, &l), RPW_ERR_SYSTEM);
	assert_non_null(strstr(rpwi_last_error()->text, "192.0.2.1"));
	char address[32];
	snprintf(address, sizeof(address), "127.0.0.1:%d",
		boot_listener_port(side_listen(b, "127.0.0.1:0")));
	assert_int_equal(boot_listen(a->b, address, a, &l), RPW_ERR_SYSTEM); /* taken */
	assert_non_null(strstr(rpwi_last_error()->text, "in use"));
}

/* Every way to write a listener's address, and who reaches it. */
static void test_families_and_names(void **state)
{
	static const struct {
		const char *listen, *connect;
	} ways[] = {{":0", "127.0.0.1"}, {":0", "[::1]"}, {":0", ""}, {"[::1]:0", "[::1]"},
		{"0.0.0.0:0", "127.0.0.1"}, {"localhost:0", "localhost"},
		{"127.0.0.1:0", "localhost"}, {"localhost:0", "127.0.0.1"}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(ways); i++) {
		IN_CASE("row", i);
		struct boot_listener *l = side_listen(b, ways[i].listen);
		assert_true(boot_listener_port(l) > 0);
		struct peer *pa = side_connect(a, ways[i].connect, boot_listener_port(l), 10000);
		wait_for(&a->connected, i + 1);
		if (pa->status)
			fail_msg("%s to %s: %s", ways[i].connect, ways[i].listen, pa->why);
		wait_for(&b->accepted, i + 1);
		assert_null(strstr(boot_peer(b->peer[i].c)->address, "::ffff:"));
		boot_listener_free(l);
	}
}

static void test_name_that_is_none(void **state)
{
	struct peer *pa = side_connect(a, "no-such-host.invalid", 4711, 300);
	wait_for(&a->connected, 1);
	assert_int_equal(pa->status, RPW_ERR_UNREACHABLE);
	assert_non_null(strstr(pa->why, "no-such-host.invalid"));
	for (int i = 0; i < 20; i++) {
		/* given up while they are looked up: nobody waits for the answers */
		struct peer *p =
			side_connect(a, i % 2 ? "localhost" : "also.none.invalid", 4711, 10000);
		if (i % 3)
			boot_progress(a->b);
		if (i < 10) {
			boot_close(p->c);
			p->c = NULL;
		}
	}
}

static void test_many_at_once(void **state)
{
	enum { MANY = 500 };
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	for (int i = 0; i < MANY; i++)
		side_connect(a, "127.0.0.1", boot_listener_port(l), 30000);
	wait_for(&a->connected, MANY);
	wait_for(&b->accepted, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(a->peer[i].status, 0);
		assert_int_equal(send_pattern(a->peer[i].c, i, i * 7), 0);
	}
	size_t bytes = 0;
	for (unsigned i = 0; i < MANY; i++) {
		wait_for(&b->peer[i].messages, 1);
		assert_int_equal(b->peer[i].bad, 0);
		assert_int_equal(b->peer[i].bytes, b->peer[i].last_type * 7);
		bytes += b->peer[i].bytes;
	}
	assert_int_equal(bytes, MANY * (MANY - 1) / 2 * 7);
}

/* Until not even the kernel takes more. How many. */
static unsigned fill(struct peer *p)
{
	unsigned sent = 0;
	for (int idle = 0; idle < 20; idle++) {
		for (; !send_pattern(p->c, sent, BOOT_MESSAGE_MAX - sent % 100); idle = 0)
			assert_true(++sent < 3000);
		usleep(1000);
		boot_progress(a->b);
	}
	return sent;
}

/* The peer takes nothing: the queue has a bound, and all that was accepted arrives. */
static void test_queue_limit(void **state)
{
	struct peer *pa, *pb;
	connect_pair(&pa, &pb);
	unsigned sent = fill(pa);
	assert_int_equal(send_pattern(pa->c, 1, BOOT_MESSAGE_MAX), RPW_ERR_LIMIT);
	wait_for(&pb->messages, sent);
	assert_int_equal(pb->bad, 0);
	assert_int_equal(send_pattern(pa->c, sent, 10), 0);
	wait_for(&pb->messages, sent + 1);
}

/* What is queued when one side closes arrives before the end is told, though the other is sending,
 * too. */
static void test_close_sends_first(void **state)
{
	struct peer *pa, *pb;
	connect_pair(&pa, &pb);
	int small = 8192; /* less than the queue: what is closed at once would be lost */
	assert_int_equal(setsockopt(pa->c->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	unsigned sent = fill(pa);
	assert_true(pa->c->out.len > BOOT_QUEUE_MAX / 2);
	for (int i = 0; i < 5; i++)
		assert_int_equal(send_pattern(pb->c, 1, 1000), 0);
	boot_close(pa->c);
	pa->c = NULL;
	wait_for(&b->ended, 1);
	assert_int_equal(pb->messages, sent);
	assert_int_equal(pb->bad, 0);
	assert_int_equal(pb->status, RPW_ERR_PEER_GONE);
	assert_int_equal(pa->messages, 0); /* no up-calls after closing */
}

static void test_both_close(void **state)
{
	struct peer *pa, *pb;
	connect_pair(&pa, &pb);
	assert_int_equal(send_pattern(pa->c, 1, 100), 0);
	assert_int_equal(send_pattern(pb->c, 1, 100), 0);
	boot_close(pa->c);
	boot_close(pb->c);
	for (int i = 0; i < 100; i++)
		boot_progress(a->b), boot_progress(b->b);
	assert_int_equal(a->ended + b->ended, 0);
	assert_int_equal(pa->messages + pb->messages, 0);
	/* two epoll sets, two eventfds: the sockets are closed */
	assert_true(open_descriptors() <= before + 4);
}

/* From inside each kind of up-call. */
static void test_close_in_upcalls(void **state)
{
	struct peer *pa, *pb;
	connect_pair(&pa, &pb);
	pb->close_in_message = true;
	for (int i = 0; i < 5; i++)
		assert_int_equal(send_pattern(pa->c, (unsigned)i, 10), 0);
	wait_for(&a->ended, 1); /* closes in its up-call, too */
	assert_int_equal(pb->messages, 1);
	b->close_in_accepted = true;
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	pa = side_connect(a, "127.0.0.1", boot_listener_port(l), 10000);
	wait_for(&a->ended, 2);
	assert_int_equal(pa->status, RPW_ERR_PEER_GONE);
}

/* Before anything has happened, in the middle of everything. */
static void test_free_at_any_moment(void **state)
{
	for (int steps = 0; steps < 60; steps++) {
		struct side *x = side_new(NULL), *y = side_new(NULL);
		struct boot_listener *l = side_listen(y, ":0");
		for (int i = 0; i < 8; i++)
			side_connect(
				x, i % 2 ? "127.0.0.1" : "localhost", boot_listener_port(l), 1000);
		for (int i = 0; i < steps; i++) {
			boot_progress(x->b);
			if (steps % 3)
				boot_progress(y->b);
			for (unsigned k = 0; k < 8; k++)
				if (x->peer[k].c && x->peer[k].connected)
					send_pattern(x->peer[k].c, 5, 3000);
		}
		if (steps % 2)
			boot_listener_free(l);
		side_free(steps % 4 < 2 ? x : y);
		side_free(steps % 4 < 2 ? y : x);
	}
}

/* ---- a peer in a process of its own ---- */

struct shared {
	volatile int port, go;
};

static pid_t peer_process(struct shared *s)
{
	pid_t pid = fork();
	if (pid)
		return pid;
	/* The parent's are left alone. */
	side_free(a);
	side_free(b);
	struct side *own = side_new(NULL);
	s->port = boot_listener_port(side_listen(own, "127.0.0.1:0"));
	for (;;) {
		boot_progress(own->b);
		usleep(500);
	}
}

static struct shared *shared_new(void)
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(s, MAP_FAILED);
	return s;
}

static void test_peer_killed(void **state)
{
	struct shared *s = shared_new();
	struct peer *other_a, *other_b;
	connect_pair(&other_a, &other_b);
	pid_t pid = peer_process(s);
	while (!s->port)
		usleep(1000);
	struct peer *pa = side_connect(a, "127.0.0.1", s->port, 10000);
	wait_for(&a->connected, 2);
	assert_int_equal(boot_peer(pa->c)->pid, pid);
	/* The fork shut down nothing of ours. */
	assert_int_equal(send_pattern(other_a->c, 1, 100), 0);
	wait_for(&other_b->messages, 1);
	kill(pid, SIGKILL);
	wait_for(&a->ended, 1);
	assert_true(pa->gone);
	assert_int_equal(pa->status, RPW_ERR_PEER_GONE);
	waitpid(pid, NULL, 0);
	munmap(s, sizeof(*s));
}

/* A stopped process is not a dead one. */
static void test_peer_stopped(void **state)
{
	struct shared *s = shared_new();
	pid_t pid = peer_process(s);
	while (!s->port)
		usleep(1000);
	struct peer *pa = side_connect(a, "127.0.0.1", s->port, 10000);
	wait_for(&a->connected, 1);
	kill(pid, SIGSTOP);
	assert_int_equal(send_pattern(pa->c, 1, 100), 0);
	/* Who connects meanwhile waits for its hello, until it goes on. */
	struct peer *late = side_connect(a, "127.0.0.1", s->port, 20000);
	for (uint64_t end = rpwi_now_ns() + 4 * RPWI_NS_PER_S; rpwi_now_ns() < end; usleep(5000))
		boot_progress(a->b);
	assert_false(pa->gone);
	assert_false(late->connected || late->gone);
	kill(pid, SIGCONT);
	wait_for(&a->connected, 2);
	assert_true(late->connected);
	assert_int_equal(a->ended, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	wait_for(&a->ended, 2);
	munmap(s, sizeof(*s));
}

/* The host is gone, or the cable: nothing comes, not even an end. Idle, and with something sent;
 * and who connects meanwhile. */
static void test_host_dead(void **state)
{
	struct peer *pa, *pb, *pc, *pd;
	connect_pair(&pa, &pb);
	connect_pair(&pc, &pd);
	loopback_set(false);
	send_pattern(pc->c, 1, 100);
	struct peer *late = side_connect(a, "127.0.0.1", 9, 300);
	wait_for(&a->connected, 3);
	assert_int_equal(late->status, RPW_ERR_UNREACHABLE);
	wait_for(&a->ended, 3);
	wait_for(&b->ended, 2);
	loopback_set(true);
	assert_int_equal(pa->status, RPW_ERR_PEER_GONE);
	assert_int_equal(pb->status, RPW_ERR_PEER_GONE);
	assert_int_equal(pc->status, RPW_ERR_PEER_GONE);
	assert_int_equal(pd->status, RPW_ERR_PEER_GONE);
	assert_int_equal(pd->messages, 0);
}

static void ports_set(const char *range)
{
	int fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, range, strlen(range)) < 0)
		fail_msg("the port range of the namespace cannot be set: %s", strerror(errno));
	close(fd);
}

/* Nobody listens at a port that sockets get when they connect: TCP lets one meet itself. */
static void test_no_meeting_with_itself(void **state)
{
	ports_set("41000 41001");
	struct peer *p[2] = {
		side_connect(a, "127.0.0.1", 41000, 300), side_connect(a, "127.0.0.1", 41001, 300)};
	wait_for(&a->connected, 2);
	ports_set("32768 60999");
	for (int i = 0; i < 2; i++)
		if (p[i]->status != RPW_ERR_UNREACHABLE)
			fail_msg("%d: %s", p[i]->status, p[i]->why);
}

/* Nothing is inherited by a program that is executed. */
static void test_descriptors_do_not_leak_into_programs(void **state)
{
	struct peer *pa, *pb;
	connect_pair(&pa, &pb);
	side_listen(b, ":0");
	FILE *f = popen("ls /proc/self/fd | wc -l", "r");
	unsigned n = 99;
	assert_int_equal(fscanf(f, "%u", &n), 1);
	pclose(f);
	assert_true(n <= before); /* `before` counts ., .. and the folder's own */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hello),
		TEST(test_messages_of_all_sizes),
		TEST(test_dribble),
		TEST(test_connect_before_listen),
		TEST(test_deadline),
		TEST(test_bad_addresses),
		TEST(test_families_and_names),
		TEST(test_name_that_is_none),
		TEST(test_many_at_once),
		TEST(test_queue_limit),
		TEST(test_close_sends_first),
		TEST(test_both_close),
		TEST(test_close_in_upcalls),
		TEST(test_free_at_any_moment),
		TEST(test_peer_killed),
		TEST(test_peer_stopped),
		TEST(test_host_dead),
		TEST(test_no_meeting_with_itself),
		TEST(test_descriptors_do_not_leak_into_programs),
	};
	/* no name server is there: the tests need not wait for it */
	setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);
	ns_enter();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
