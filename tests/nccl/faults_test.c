/* SPDX-License-Identifier: BSD-3-Clause */
/* faults_test.c - the plugin when things go wrong around it: peers that are killed or stopped at
 * each moment, strangers on its port, listeners that go. Whatever happens, each call and each
 * request ends within its deadline, a WARN line says who, what and what to do, and no descriptor or
 * thread stays.
 *
 * faults_test PLUGIN TRANSPORT: its host.h-side here is one process, the peer another
 * (faults_side.h). */
#include "faults_side.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/test.h"
#include "lib/descriptors.h"

enum { EAGER = 512, LONG = BYTES_MAX };
static const size_t kinds[] = {EAGER, LONG};
static const char *plugin;
static struct side me;
static struct peer peer = {.fd = -1};
static unsigned descriptors_before, threads_before;

static unsigned threads(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/task");
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static struct answer heard(void)
{
	struct answer a = {.rc = STILL_WAITS};
	assert_true(peer_hear(&peer, &a));
	return a;
}

static struct answer ask(struct order o)
{
	peer_tell(&peer, o);
	return heard();
}

static void ask_well(struct order o) { assert_int_equal(ask(o).rc, NCCL_SUCCESS); }

static bool is_error(int rc) { return rc > 0; }

/* Who, and what to do: an address or a process, and a variable or a question that somebody can
 * follow. */
static void assert_warned_of(const char *text, const char *what)
{
	if (!strstr(text, what))
		fail_msg("a warning with \"%s\" was expected; there was: %s", what,
			*text ? text : "none");
}

static void assert_warned(const char *what) { assert_warned_of(warned(), what); }

/* ---- how they begin ---- */

static void i_send(void)
{
	peer_start(&peer, plugin);
	struct answer a = ask((struct order){.op = LISTEN});
	peer_tell(&peer, (struct order){.op = ACCEPT, .timeout_ms = PATIENCE_MS});
	assert_int_equal(side_connect(&me, a.handle, 0, PATIENCE_MS), NCCL_SUCCESS);
	assert_int_equal(heard().rc, NCCL_SUCCESS);
}

static void i_receive(void)
{
	peer_start(&peer, plugin);
	assert_int_equal(side_listen(&me), NCCL_SUCCESS);
	struct order o = {.op = CONNECT, .timeout_ms = PATIENCE_MS};
	memcpy(o.handle, me.handle, sizeof(o.handle));
	peer_tell(&peer, o);
	assert_int_equal(side_accept(&me, PATIENCE_MS), NCCL_SUCCESS);
	assert_int_equal(heard().rc, NCCL_SUCCESS);
	assert_int_equal(side_close_listen(&me), NCCL_SUCCESS);
}

/* The connection works. */
static void a_few_messages(void)
{
	peer_tell(&peer, (struct order){.op = STREAM, .n = 20, .size = EAGER});
	assert_int_equal(side_stream(&me, 20, EAGER), NCCL_SUCCESS);
	struct answer a = heard();
	assert_int_equal(a.rc, NCCL_SUCCESS);
	assert_int_equal(a.good, 20);
}

/* ---- connecting ---- */

/* Where nobody is there to answer: the default is for machines that are slow. */
static void soon_given_up(void) { setenv("ROPEWAY_NCCL_TIMEOUT_MS", "700", 1); }

static void listener_died_before(void **state)
{
	soon_given_up();
	peer_start(&peer, plugin);
	struct answer a = ask((struct order){.op = LISTEN});
	peer_kill(&peer);
	assert_true(is_error(side_connect(&me, a.handle, 0, PATIENCE_MS)));
	assert_warned("127.0.0.1");
	assert_warned("NCCL_SOCKET_IFNAME");
}

/* What came of it may be a comm: what is sent over it then fails. */
static void assert_no_way(int rc)
{
	if (!rc)
		rc = side_stream(&me, 1000, LONG);
	assert_true(is_error(rc));
	assert_true(*warned());
	side_close(&me);
}

/* Without any time-out of the environment: its host refuses, and that is enough. */
static void listener_that_died_is_not_waited_for(void **state)
{
	enum { SOON_MS = PATIENCE_MS / 3 };
	unsetenv("ROPEWAY_NCCL_TIMEOUT_MS");
	for (unsigned calls = 0; calls <= 25; calls += 5) {
		peer_start(&peer, plugin);
		struct answer a = ask((struct order){.op = LISTEN});
		int rc = calls ? side_connect(&me, a.handle, calls, SOON_MS) : STILL_WAITS;
		peer_kill(&peer);
		uint64_t began = rpwi_now_ns();
		if (rc == STILL_WAITS)
			rc = side_connect(&me, calls ? me.handle : a.handle, 0, SOON_MS);
		assert_int_not_equal(rc, STILL_WAITS);
		printf("# killed after %u calls: noticed after %.2f s\n", calls,
			(double)(rpwi_now_ns() - began) / 1e9);
		assert_no_way(rc);
	}
}

static void listener_dies_in_the_middle(void **state)
{
	soon_given_up();
	for (unsigned calls = 1; calls <= 25; calls += 8) {
		peer_start(&peer, plugin);
		struct answer a = ask((struct order){.op = LISTEN});
		int rc = side_connect(&me, a.handle, calls, PATIENCE_MS);
		peer_kill(&peer);
		if (rc == STILL_WAITS)
			rc = side_connect(&me, me.handle, 0, PATIENCE_MS);
		assert_no_way(rc);
	}
}

static void listener_is_stopped(void **state)
{
	soon_given_up();
	peer_start(&peer, plugin);
	struct answer a = ask((struct order){.op = LISTEN});
	peer_signal(&peer, SIGSTOP);
	assert_true(is_error(side_connect(&me, a.handle, 0, PATIENCE_MS)));
	assert_warned("127.0.0.1");
	assert_warned("ROPEWAY_NCCL_T"); /* how long, or another transport */
}

static void listener_is_closed(void **state)
{
	soon_given_up(); /* the peer, by its environment */
	peer_start(&peer, plugin);
	assert_int_equal(side_listen(&me), NCCL_SUCCESS);
	struct order o = {.op = CONNECT, .timeout_ms = PATIENCE_MS};
	memcpy(o.handle, me.handle, sizeof(o.handle));
	peer_tell(&peer, o);
	usleep(3000);
	assert_int_equal(side_close_listen(&me), NCCL_SUCCESS);
	struct answer a = heard();
	if (!a.rc)
		a = ask((struct order){.op = STREAM, .n = 1000, .size = LONG});
	assert_true(is_error(a.rc));
	assert_warned_of(a.warned, "127.0.0.1");
}

/* One that dies on the way never becomes a comm that lasts, and the next one is served. */
static void connector_dies(void **state)
{
	struct order o = {.op = CONNECT, .timeout_ms = PATIENCE_MS};
	assert_int_equal(side_listen(&me), NCCL_SUCCESS);
	memcpy(o.handle, me.handle, sizeof(o.handle));
	for (o.n = 1; o.n <= 17; o.n += 8) {
		peer_start(&peer, plugin);
		ask(o);
		peer_kill(&peer);
	}
	peer_start(&peer, plugin);
	o.n = 0;
	peer_tell(&peer, o);
	peer_tell(&peer, (struct order){.op = STREAM, .n = 20, .size = EAGER});
	int rc = STILL_WAITS;
	for (unsigned i = 0; i < 4 && rc; i++) {
		/* of those that died on the way accept may say so, or give a comm that is over */
		rc = side_accept(&me, PATIENCE_MS);
		assert_int_not_equal(rc, STILL_WAITS);
		if (!rc && (rc = side_stream(&me, 20, EAGER)) != 0)
			assert_int_equal(side_close(&me), NCCL_SUCCESS);
		if (rc)
			assert_warned("127.0.0.1");
	}
	assert_int_equal(rc, NCCL_SUCCESS);
	assert_int_equal(heard().rc, NCCL_SUCCESS);
	assert_int_equal(heard().rc, NCCL_SUCCESS);
	assert_int_equal(side_close(&me), NCCL_SUCCESS);
	assert_int_equal(side_close_listen(&me), NCCL_SUCCESS);
}

/* ---- requests in flight ---- */

/* Nothing can be begun any more, either. */
static void assert_over(void)
{
	for (unsigned i = 0; i < 1000; i++) {
		int rc = side_post(&me, 1, EAGER);
		if (!rc)
			rc = side_wait(&me, PATIENCE_MS);
		if (rc) {
			assert_true(is_error(rc));
			return;
		}
	}
	fail_msg("a comm whose peer is dead takes one send after the other");
}

static void killed_while_i_send(void **state)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(kinds); i++) {
		IN_CASE("row", i);
		i_send();
		a_few_messages();
		assert_int_equal(side_post(&me, FLIGHTS, kinds[i]), NCCL_SUCCESS);
		peer_kill(&peer);
		int rc = side_wait(&me, PATIENCE_MS);
		/* those may have gone before */
		assert_true(is_error(rc) || (!rc && kinds[i] == EAGER));
		assert_over();
		assert_warned("127.0.0.1");
		assert_int_equal(side_close(&me), NCCL_SUCCESS);
	}
}

static void killed_while_i_receive(void **state)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(kinds); i++) {
		IN_CASE("row", i);
		i_receive();
		a_few_messages();
		assert_int_equal(side_post(&me, FLIGHTS, kinds[i]), NCCL_SUCCESS);
		/* the first of them whole, in part, or not at all */
		ask_well((struct order){.op = POST, .n = 3, .size = kinds[i]});
		peer_kill(&peer);
		assert_int_equal(side_wait(&me, PATIENCE_MS), NCCL_REMOTE_ERROR);
		assert_true(me.good <= 20 + 3);
		assert_over();
		assert_warned("127.0.0.1");
		assert_int_equal(side_close(&me), NCCL_SUCCESS);
	}
}

/* In the middle of a stream, wherever that is. */
static void killed_in_a_stream(void **state)
{
	i_receive();
	peer_tell(&peer, (struct order){.op = STREAM, .n = 1000000, .size = LONG});
	assert_int_equal(side_stream(&me, 30, LONG), NCCL_SUCCESS);
	side_post(&me, FLIGHTS - (unsigned)(me.posted - me.ended), LONG);
	usleep(1000);
	peer_kill(&peer);
	assert_int_equal(side_wait(&me, PATIENCE_MS), NCCL_REMOTE_ERROR);
	assert_int_equal(side_close(&me), NCCL_SUCCESS);
}

/* One that goes on later has lost nothing. */
static void stopped_for_a_while(void **state)
{
	i_send();
	peer_tell(&peer, (struct order){.op = STREAM, .n = FLIGHTS, .size = LONG});
	usleep(1000);
	peer_signal(&peer, SIGSTOP);
	assert_int_equal(side_post(&me, FLIGHTS, LONG), NCCL_SUCCESS);
	int rc = side_wait(&me, 200);
	assert_true(rc == STILL_WAITS || rc == NCCL_SUCCESS);
	peer_signal(&peer, SIGCONT);
	assert_int_equal(side_wait(&me, PATIENCE_MS), NCCL_SUCCESS);
	assert_int_equal(heard().rc, NCCL_SUCCESS);
	assert_int_equal(side_close(&me), NCCL_SUCCESS);
}

/* ---- closing ---- */

static void close_bounded(void)
{
	uint64_t begin = now_ms();
	assert_int_equal(side_close(&me), NCCL_SUCCESS);
	assert_true(now_ms() - begin < PATIENCE_MS);
}

static void closed_before_the_stopped(void **state)
{
	for (unsigned posts = 0; posts <= FLIGHTS; posts += FLIGHTS) {
		i_send();
		a_few_messages();
		peer_signal(&peer, SIGSTOP);
		assert_int_equal(side_post(&me, posts, LONG), NCCL_SUCCESS);
		close_bounded();
		peer_kill(&peer);
		i_receive();
		peer_signal(&peer, SIGSTOP);
		assert_int_equal(side_post(&me, posts, LONG), NCCL_SUCCESS);
		close_bounded();
		peer_kill(&peer);
	}
}

static void *kill_soon(void *arg)
{
	usleep(20000);
	peer_signal(&peer, SIGKILL);
	return NULL;
}

static void killed_while_i_close(void **state)
{
	for (unsigned posts = 0; posts <= FLIGHTS; posts += FLIGHTS) {
		pthread_t killer;
		i_send();
		assert_int_equal(side_post(&me, posts, EAGER), NCCL_SUCCESS);
		peer_signal(&peer, SIGSTOP); /* so that the close has to wait, if it ever does */
		assert_int_equal(pthread_create(&killer, NULL, kill_soon, NULL), 0);
		close_bounded();
		pthread_join(killer, NULL);
		peer_kill(&peer);
	}
}

/* ---- strangers ---- */

/* Where this process listens, of all that it has open. */
static uint16_t listening_port(void)
{
	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_storage a = {0};
		socklen_t len = sizeof(a), n = sizeof(int);
		int listens = 0;
		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) || !listens ||
			getsockname(fd, (struct sockaddr *)&a, &len))
			continue;
		if (a.ss_family == AF_INET)
			return ((struct sockaddr_in *)&a)->sin_port;
		if (a.ss_family == AF_INET6)
			return ((struct sockaddr_in6 *)&a)->sin6_port;
	}
	fail_msg("no listening socket");
	return 0;
}

static int stranger(uint16_t port, const void *says, size_t len)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	if (len)
		assert_true(send(fd, says, len, MSG_NOSIGNAL) > 0 || errno == EPIPE ||
			    errno == ECONNRESET);
	return fd;
}

static void port_scanner(void **state)
{
	enum { SILENT = 200, TALKERS = 4 };
	static const char tls[] = "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
			  http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	static char garbage[5000];
	const struct {
		const void *says;
		size_t len;
	} lines[TALKERS] = {{tls, sizeof(tls) - 1}, {http, sizeof(http) - 1},
		{garbage, sizeof(garbage)}, {"\0", 1}};
	int silent[SILENT], talker[TALKERS];
	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (char)(i * 131 >> 3);
	peer_start(&peer, plugin);
	assert_int_equal(side_listen(&me), NCCL_SUCCESS);
	uint16_t port = listening_port();
	for (unsigned i = 0; i < 50; i++)
		close(stranger(port, NULL, 0));
	for (unsigned i = 0; i < SILENT; i++)
		silent[i] = stranger(port, NULL, 0);
	for (unsigned i = 0; i < TALKERS; i++)
		talker[i] = stranger(port, lines[i].says, lines[i].len);
	assert_int_equal(side_accept(&me, 100), STILL_WAITS);
	struct order o = {.op = CONNECT, .timeout_ms = PATIENCE_MS};
	memcpy(o.handle, me.handle, sizeof(o.handle));
	peer_tell(&peer, o);
	for (unsigned i = 0; i < TALKERS; i++)
		close(stranger(port, lines[i].says, lines[i].len));
	assert_int_equal(side_accept(&me, PATIENCE_MS), NCCL_SUCCESS);
	assert_int_equal(heard().rc, NCCL_SUCCESS);
	a_few_messages();
	void *real = me.comm;
	assert_int_equal(side_accept(&me, 100), STILL_WAITS); /* and nobody else became one */
	me.comm = real;
	for (unsigned i = 0; i < SILENT; i++)
		close(silent[i]);
	for (unsigned i = 0; i < TALKERS; i++)
		close(talker[i]);
	assert_int_equal(side_close(&me), NCCL_SUCCESS);
	assert_int_equal(side_close_listen(&me), NCCL_SUCCESS);
}

/* ---- nothing stays ---- */

static int begin(void **state)
{
	unsetenv("ROPEWAY_NCCL_TIMEOUT_MS");
	warned_reset();
	descriptors_before = open_descriptors();
	threads_before = threads();
	return 0;
}

static int end(void **state)
{
	bool left = true;
	peer_kill(&peer);
	for (uint64_t until = now_ms() + PATIENCE_MS; left && now_ms() < until; usleep(5000))
		left = open_descriptors() > descriptors_before || threads() > threads_before;
	if (left)
		print_error("%u descriptors and %u threads at the beginning, %u and %u after it\n",
			descriptors_before, threads_before, open_descriptors(), threads());
	return left;
}

/* The plugin's own thread and what it keeps are there from the first connection on. */
static int open_all(void **state)
{
	if (side_open(&me, plugin))
		return 1;
	i_send();
	side_close(&me);
	peer_kill(&peer);
	usleep(100000);
	return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
int main(int argc, char **argv)
{
	const struct CMUnitTest cases[] = {
		CASE(listener_died_before),
		CASE(listener_dies_in_the_middle),
		CASE(listener_is_stopped),
		CASE(listener_is_closed),
		CASE(listener_that_died_is_not_waited_for),
		CASE(connector_dies),
		CASE(killed_while_i_send),
		CASE(killed_while_i_receive),
		CASE(killed_in_a_stream),
		CASE(stopped_for_a_while),
		CASE(closed_before_the_stopped),
		CASE(killed_while_i_close),
		CASE(port_scanner),
	};
	if (argc == 4 && !strcmp(argv[1], "peer"))
		return peer_main(atoi(argv[2]), argv[3]);
	if (argc < 3) {
		fprintf(stderr, "faults_test PLUGIN.so TRANSPORT [CASE]\n");
		return 2;
	}
	plugin = argv[1];
	setenv("ROPEWAY_NCCL_TRANSPORT", argv[2], 1);
	unsetenv("ROPEWAY_NCCL_TIMEOUT_MS");
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	unsetenv("NCCL_DEBUG");
	if (argc > 3)
		cmocka_set_test_filter(argv[3]);
	return cmocka_run_group_tests_name(argv[2], cases, open_all, NULL);
}
