/* SPDX-License-Identifier: BSD-3-Clause */
/* two_test.c - two processes: what they do to each other while both sleep, work, or die. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

#define ALL UINT64_MAX
enum { PATIENCE_MS = 5000 };

static const char *transport;

struct here {
	rpw_context *c;
	rpw_endpoint *ep;
};
static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg) { *(rpw_endpoint **)arg = ep; }

static void expect(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "pid %d: %s: %s\n", getpid(), what, rpw_last_error());
		_exit(1);
	}
}

/* Forks; the child connects to the parent and runs fn. The child's PID. */
static pid_t two(struct here *h, void (*child)(struct here *h))
{
	int port[2];
	assert_int_equal(pipe(port), 0);
	fflush(NULL);
	pid_t pid = fork();
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	int n = 0;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		char address[64];
		rpw_request *r;
		expect(read(port[0], &n, sizeof(n)) == sizeof(n), "port");
		snprintf(address, sizeof(address), "127.0.0.1:%d", n);
		expect(!rpw_context_create(&o, &h->c), "context");
		expect(rpw_endpoint_create(h->c, address, NULL, &h->ep, &r) == RPW_IN_PROGRESS,
			"connect");
		expect(rpw_request_wait(r, PATIENCE_MS, NULL) == RPW_OK, "connected");
		rpw_request_destroy(r);
		child(h);
		rpw_context_destroy(h->c);
		_exit(0);
	}
	rpw_listener *l;
	assert_int_equal(rpw_context_create(&o, &h->c), 0);
	h->ep = NULL;
	assert_int_equal(rpw_listener_create(h->c, "127.0.0.1:0", accepted, &h->ep, &l), 0);
	n = rpw_listener_port(l);
	assert_int_equal(write(port[1], &n, sizeof(n)), sizeof(n));
	close(port[0]);
	close(port[1]);
	while (!h->ep) {
		struct pollfd p = {rpw_context_fd(h->c), POLLIN, 0};
		if (rpw_context_arm(h->c) == 0)
			assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		rpw_context_progress(h->c);
	}
	rpw_listener_destroy(l);
	return pid;
}

static void ended_well(pid_t pid)
{
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A process that stops to progress answers nobody: so it goes on until the peer has closed. */
static void until_closed(struct here *h)
{
	for (rpw_endpoint_information i = {.size = sizeof(i), .connected = true}; i.connected;
		rpw_endpoint_info(h->ep, &i)) {
		struct pollfd p = {rpw_context_fd(h->c), POLLIN, 0};
		if (rpw_context_arm(h->c) == 0)
			poll(&p, 1, 100);
		rpw_context_progress(h->c);
	}
}

/* ---- both sleep between messages: each wait is longer than any spinning ---- */

enum { ROUNDS = 60 };
static void slow_pong(struct here *h)
{
	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t in = 0;
		rpw_request *r;
		rpw_recv(h->c, h->ep, &in, 8, i, ALL, &r);
		expect(rpw_request_wait(r, PATIENCE_MS, NULL) == RPW_OK, "pong");
		expect(in == rng_mix(i), "what came");
		rpw_request_destroy(r);
		if (i % 3 == 0)
			usleep(2000);
		in = ~in;
		int rc = rpw_send(h->ep, &in, 8, i, &r);
		expect(rc >= 0 && (!r || rpw_request_wait(r, PATIENCE_MS, NULL) == RPW_OK), "send");
		rpw_request_destroy(r);
	}
	rpw_request *f;
	rpw_endpoint_flush(h->ep, &f);
	expect(!f || rpw_request_wait(f, PATIENCE_MS, NULL) == RPW_OK, "flush");
	rpw_request_destroy(f);
}
static void sleepers_are_woken(void **state)
{
	struct here h;
	pid_t pid = two(&h, slow_pong);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t out = rng_mix(i), in = 0;
		rpw_request *r, *s;
		rpw_recv(h.c, NULL, &in, 8, i, ALL, &r);
		if (i % 4 == 0)
			usleep(3000);
		assert_true(rpw_send(h.ep, &out, 8, i, &s) >= 0);
		/* By epoll, as a program with a loop of its own does. */
		for (int idle = 0; rpw_request_test(r, NULL) == RPW_IN_PROGRESS && idle < 100;) {
			struct pollfd p = {rpw_context_fd(h.c), POLLIN, 0};
			if (rpw_context_arm(h.c) == 0 && !poll(&p, 1, PATIENCE_MS))
				idle = 100;
			rpw_context_progress(h.c);
		}
		assert_int_equal(rpw_request_test(r, NULL), RPW_OK);
		assert_int_equal(in, ~out);
		rpw_request_destroy(r);
		rpw_request_destroy(s);
	}
	until_closed(&h);
	ended_well(pid);
	rpw_context_destroy(h.c);
}

/* ---- both send and receive all sizes at once, a window of each under way ---- */

enum { STREAM = 1500, WINDOW = 16 };
static size_t size_of(uint64_t side, uint64_t i)
{
	uint64_t x = rng_mix(side * 1000003 + i);
	return x % 5 == 0 ? x % 300000 : x % 5 == 1 ? x % 10000 : x % 200;
}
static void stream(struct here *h, uint64_t own)
{
	static char *out[WINDOW], *in[WINDOW];
	rpw_request *s[WINDOW] = {0}, *r[WINDOW] = {0};
	for (uint64_t i = 0; i < STREAM + WINDOW; i++) {
		uint64_t k = i % WINDOW;
		if (i >= WINDOW) {
			uint64_t was = i - WINDOW;
			rpw_completion done = RPW_COMPLETION_INIT;
			expect(rpw_request_wait(r[k], PATIENCE_MS, &done) == RPW_OK, "receive");
			expect(done.length == size_of(!own, was), "its length");
			expect(pattern_wrong(in[k], done.length, rng_mix(was) + !own) ==
					done.length,
				"its bytes");
			expect(!s[k] || rpw_request_wait(s[k], PATIENCE_MS, NULL) == RPW_OK,
				"send");
			rpw_request_destroy(r[k]);
			rpw_request_destroy(s[k]);
			free(in[k]);
			free(out[k]);
		}
		if (i >= STREAM)
			continue;
		out[k] = malloc(300000);
		in[k] = malloc(300000);
		pattern_fill(out[k], size_of(own, i), rng_mix(i) + own);
		expect(rpw_recv(h->c, h->ep, in[k], 300000, i % 3, 3, &r[k]) == RPW_IN_PROGRESS,
			"post");
		expect(rpw_send(h->ep, out[k], size_of(own, i), i % 3, &s[k]) >= 0, "send");
	}
	rpw_request *f;
	expect(rpw_endpoint_flush(h->ep, &f) >= 0 &&
			(!f || rpw_request_wait(f, PATIENCE_MS, NULL) == RPW_OK),
		"flush");
	rpw_request_destroy(f);
}
static void stream_child(struct here *h)
{
	stream(h, 1);
	/* The other side's flush needs us until it is done. */
	char bye;
	rpw_request *r;
	rpw_recv(h->c, h->ep, &bye, 1, 99, ALL, &r);
	rpw_request_wait(r, PATIENCE_MS, NULL);
	rpw_request_destroy(r);
}
static void streams_both_ways(void **state)
{
	struct here h;
	pid_t pid = two(&h, stream_child);
	stream(&h, 0);
	assert_true(rpw_send(h.ep, "b", 1, 99, NULL) >= 0);
	until_closed(&h); /* its flush needs our answer */
	ended_well(pid);
	rpw_context_destroy(h.c);
}

/* ---- the peer is killed in the middle of everything: each operation ends, and says so ---- */

static void doomed(struct here *h)
{
	static char region[1 << 20], sink[1 << 20];
	rpw_memory *m;
	rpw_memory_register(h->c, region, sizeof(region), RPW_MEMORY_HOST, 7, &m);
	uint8_t key[RPW_RKEY_BYTES_MAX];
	int n = rpw_rkey_pack(m, key, sizeof(key));
	expect(n > 0, "pack");
	rpw_send(h->ep, key, (size_t)n, 1, NULL);
	for (int i = 0;; i++) {
		rpw_request *r;
		rpw_recv(h->c, h->ep, sink, sizeof(sink), 2, ALL, &r);
		rpw_request_wait(r, 100, NULL);
		rpw_request_cancel(r);
		rpw_request_destroy(r);
	}
}
static void a_peer_is_killed(void **state)
{
	struct here h;
	pid_t pid = two(&h, doomed);
	uint8_t key[RPW_RKEY_BYTES_MAX];
	rpw_request *r;
	rpw_completion done = RPW_COMPLETION_INIT;
	rpw_recv(h.c, h.ep, key, sizeof(key), 1, ALL, &r);
	assert_int_equal(rpw_request_wait(r, PATIENCE_MS, &done), RPW_OK);
	rpw_request_destroy(r);
	rpw_rkey *k;
	assert_int_equal(rpw_rkey_unpack(h.ep, key, done.length, &k), RPW_OK);
	static char big[1 << 20], in[64][8];
	static uint64_t before[64];
	pattern_fill(big, sizeof(big), 5);
	enum { N = 64 };
	rpw_request *all[N * 5];
	size_t n = 0;
	for (int i = 0; i < N; i++) {
		if (i == N / 2)
			kill(pid, SIGKILL);
		rpw_request *got[5] = {0};
		rpw_send(h.ep, big, sizeof(big), 2, &got[0]);
		rpw_put(h.ep, big, sizeof(big), k, 0, &got[1]);
		rpw_fetch_add(h.ep, 1, k, 0, &before[i], &got[2]);
		rpw_recv(h.c, h.ep, in[i], 8, 3, ALL, &got[3]);
		rpw_endpoint_flush(h.ep, &got[4]);
		for (int q = 0; q < 5; q++)
			if (got[q])
				all[n++] = got[q];
		rpw_context_progress(h.c);
	}
	int status;
	waitpid(pid, &status, 0);
	rpw_request_wait_all(h.c, all, n, PATIENCE_MS);
	int failed = 0;
	for (size_t i = 0; i < n; i++) {
		status = rpw_request_test(all[i], NULL);
		assert_int_not_equal(status, RPW_IN_PROGRESS);
		failed += status != RPW_OK;
		rpw_request_destroy(all[i]);
	}
	assert_true(failed > 0);
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(h.ep, &info);
	assert_false(info.connected);
	assert_true(strlen(info.why) > 0);
	rpw_rkey_destroy(k);
	rpw_context_destroy(h.c);
}

/* ---- strangers at the listener: a real peer gets through all the same ---- */

static void strangers(void **state)
{
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	rpw_context *a, *b;
	rpw_listener *l;
	rpw_endpoint *ep = NULL, *mine;
	assert_int_equal(rpw_context_create(&o, &a), 0);
	assert_int_equal(rpw_context_create(&o, &b), 0);
	assert_int_equal(rpw_listener_create(b, "127.0.0.1:0", accepted, &ep, &l), 0);
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)rpw_listener_port(l)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd[20];
	for (int i = 0; i < 20; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd[i], (struct sockaddr *)&to, sizeof(to)), 0);
		if (i % 3)
			assert_int_equal(
				send(fd[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 18);
		rpw_context_progress(b);
	}
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(l));
	rpw_request *r;
	rpw_endpoint_create(a, address, NULL, &mine, &r);
	while (rpw_request_test(r, NULL) == RPW_IN_PROGRESS) {
		rpw_context_progress(a);
		rpw_context_progress(b);
	}
	assert_int_equal(rpw_request_test(r, NULL), RPW_OK);
	rpw_request_destroy(r);
	rpw_statistics s = {.size = sizeof(s)};
	rpw_context_statistics(b, &s);
	assert_true(s.strangers_refused > 0);
	for (int i = 0; i < 20; i++)
		close(fd[i]);
	rpw_context_destroy(a);
	rpw_context_destroy(b);
}

static void nobody_listens(void **state)
{
	rpw_context *c;
	rpw_endpoint *ep;
	rpw_request *r;
	assert_int_equal(rpw_context_create(NULL, &c), 0);
	rpw_endpoint_options o = {.size = sizeof(o), .timeout_ms = 300};
	assert_int_equal(rpw_endpoint_create(c, "127.0.0.1:9", &o, &ep, &r), RPW_IN_PROGRESS);
	int status = rpw_request_wait(r, PATIENCE_MS, NULL);
	assert_true(status == RPW_ERR_UNREACHABLE || status == RPW_ERR_TIMEOUT);
	rpw_request_destroy(r);
	rpw_context_destroy(c);
}

/* ---- the owner of memory takes it back while the other side, with its own hands maybe, reads or
 * writes it ---- */

enum { TAKEN_LEN = 1 << 20, TAKEN_ROUNDS = 200 };
static struct {
	_Atomic uint64_t ready, began, over; /* rounds */
	char key[RPW_RKEY_BYTES_MAX];
	int key_len;
} * taken;

static uint64_t now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}
static void spin_until(_Atomic uint64_t *what, uint64_t n, struct here *progressing)
{
	for (uint64_t end = now_ms() + PATIENCE_MS; *what < n;) {
		expect(now_ms() < end, "the other side is late");
		if (progressing)
			rpw_context_progress(progressing->c);
		else
			sched_yield();
	}
}
static void takes_back(struct here *h)
{
	char *buf = malloc(TAKEN_LEN);
	for (uint64_t i = 1; i <= TAKEN_ROUNDS; i++) {
		rpw_memory *m;
		pattern_fill(buf, TAKEN_LEN, i);
		expect(!rpw_memory_register(h->c, buf, TAKEN_LEN, RPW_MEMORY_HOST,
			       RPW_REMOTE_READ | RPW_REMOTE_WRITE, &m),
			"register");
		taken->key_len = rpw_rkey_pack(m, taken->key, sizeof(taken->key));
		expect(taken->key_len > 0, "pack");
		taken->ready = i;
		spin_until(&taken->began, i, NULL);
		for (uint64_t spins = rng_mix(i) % 40000; spins; spins--) {
			atomic_signal_fence(memory_order_seq_cst);
			if (i & 2 && !(spins % 128))
				rpw_context_progress(h->c);
		}
		rpw_memory_destroy(m);
		pattern_fill(buf, TAKEN_LEN, i + TAKEN_ROUNDS);
		spin_until(&taken->over, i, h);
		expect(pattern_wrong(buf, TAKEN_LEN, i + TAKEN_ROUNDS) == TAKEN_LEN,
			"memory that was taken back is as its owner left it");
	}
	free(buf);
}
static void memory_is_taken_back(void **state)
{
	struct here h;
	taken = mmap(
		NULL, sizeof(*taken), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(taken != MAP_FAILED);
	pid_t pid = two(&h, takes_back);
	char *buf = malloc(TAKEN_LEN);
	for (uint64_t i = 1; i <= TAKEN_ROUNDS; i++) {
		rpw_rkey *key;
		rpw_request *r = NULL;
		spin_until(&taken->ready, i, &h);
		assert_int_equal(
			rpw_rkey_unpack(h.ep, taken->key, (size_t)taken->key_len, &key), RPW_OK);
		pattern_fill(buf, TAKEN_LEN, 3 * TAKEN_ROUNDS + i);
		taken->began = i;
		int rc = i & 1 ? rpw_get(h.ep, buf, TAKEN_LEN, key, 0, &r)
			       : rpw_put(h.ep, buf, TAKEN_LEN, key, 0, &r);
		rc = rc == RPW_IN_PROGRESS ? rpw_request_wait(r, PATIENCE_MS, NULL) : rc;
		if (rc != RPW_ERR_ACCESS)
			assert_int_equal(rc, RPW_OK);
		if (!rc && i & 1)
			assert_int_equal(pattern_wrong(buf, TAKEN_LEN, i), TAKEN_LEN);
		taken->over = i;
		rpw_request_destroy(r);
		rpw_rkey_destroy(key);
	}
	free(buf);
	until_closed(&h);
	ended_well(pid);
	rpw_context_destroy(h.c);
	munmap(taken, sizeof(*taken));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sleepers_are_woken),
		cmocka_unit_test(streams_both_ways),
		cmocka_unit_test(a_peer_is_killed),
		cmocka_unit_test(strangers),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(memory_is_taken_back),
	};
	static const char *const transports[] = {"shm", "tcp", NULL};
	const char *filter = getenv("MSG_TEST"), *const named[] = {getenv("MSG_TRANSPORT"), NULL};
	if (filter)
		cmocka_set_test_filter(filter);
	int failed = 0;
	for (const char *const *t = named[0] ? named : transports; *t; t++) {
		transport = *t;
		failed += cmocka_run_group_tests_name(transport, tests, NULL, NULL);
	}
	return failed ? 1 : 0;
}
