/* SPDX-License-Identifier: BSD-3-Clause */
/* break_test.c - two processes whose verbs path is lost while much is under way: they go on by TCP,
 * and nothing is lost, doubled or out of order.
 *
 * The path is lost as by a firewall: socket filters drop all that comes to UDP port 4791 of one of
 * the two processes, or of both, and what the other's device hands over. What the deaf one sent has
 * arrived, but it never learns so: that is what must not be delivered twice. Runs in a network
 * namespace of its own (tests/tran/verbs_test.c). */
#include <linux/filter.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum {
	ROUNDS = 300,
	DEAF_AT = 100,
	SLOTS = 8,
	BYTES_MAX = 900000,
	REGION_BYTES = 64 + SLOTS * BYTES_MAX,
	PATIENCE_MS = 60000,
	TAG = 7,
	TAG_KEY = 8,
	TAG_END = 9,
	AM_ID = 3
};

enum who { LISTENER = 1, CONNECTOR = 2, EITHER = LISTENER | CONNECTOR };

struct here {
	rpw_context *c;
	rpw_endpoint *ep;
	enum who who;
	rpw_memory *region;
	rpw_rkey *key;
	uint64_t ams;
	bool am_wrong;
};

static void expect(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "pid %d: %s: %s\n", getpid(), what, rpw_last_error());
		_exit(1);
	}
}

static void wait_for(rpw_request *r, rpw_completion *done, const char *what)
{
	if (!r)
		return;
	expect(rpw_request_wait(r, PATIENCE_MS, done) == RPW_OK, what);
	rpw_request_destroy(r);
}

/* Packets that land at the other process's device are handed over by such a socket, one that may
 * be opened at any time: io/dest.c. */
static bool takes_packets_of_this_host(int fd, int family)
{
	int type = 0;
	socklen_t len = sizeof(type);
	return family == AF_UNIX && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) &&
	       type == SOCK_SEQPACKET;
}

/* Nothing more arrives at the sockets that there are; how many of them are the device's port. */
static unsigned stop_ears(void)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog prog = {.len = 1, .filter = &drop};
	unsigned found = 0;
	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_in6 a = {0};
		socklen_t len = sizeof(a);
		if (getsockname(fd, (struct sockaddr *)&a, &len))
			continue;
		bool device = (a.sin6_family == AF_INET || a.sin6_family == AF_INET6) &&
			      ntohs(a.sin6_port) == 4791;
		if (device || takes_packets_of_this_host(fd, a.sin6_family))
			found += !setsockopt(
					 fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) &&
				 device;
	}
	return found;
}

static _Noreturn void *stay_deaf(void *unused)
{
	for (;;) {
		stop_ears();
		usleep(1000);
	}
}

/* From now on nothing that is sent to this process's device arrives. */
static void go_deaf(void)
{
	pthread_t thread;
	expect(stop_ears() > 0, "no socket on port 4791: is this the software device?");
	expect(!pthread_create(&thread, NULL, stay_deaf, NULL), "thread");
}

/* What the n-th message of a side is. */
static uint64_t seed_of(enum who who, uint64_t n) { return (uint64_t)who << 32 | n; }
static size_t size_of(enum who who, uint64_t n)
{
	static const size_t most[] = {1, 64, 4096, 20000, 300000, BYTES_MAX};
	uint64_t r = rng_mix(seed_of(who, n) + 99);
	return (size_t)(rng_mix(r) % most[r % 6]);
}

static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct here *h = arg;
	uint64_t n = h->ams++, seed = seed_of(EITHER - h->who, n) + (1ull << 40);
	h->am_wrong |= header_len != 8 || memcmp(header, &n, 8) ||
		       len != size_of(EITHER - h->who, n) || pattern_wrong(data, len, seed) != len;
}

struct slot {
	char *out, *in, *put, *got, *am;
	rpw_request *send, *recv, *rma, *get, *add, *am_req;
	uint64_t before;
	bool used;
};

static void slot_end(struct here *h, struct slot *s, uint64_t n)
{
	rpw_completion done = RPW_COMPLETION_INIT;
	enum who peer = EITHER - h->who;
	size_t len = size_of(peer, n), put = size_of(h->who, n);
	if (!s->used)
		return;
	wait_for(s->send, NULL, "send");
	wait_for(s->recv, &done, "receive");
	expect(done.length == len && pattern_wrong(s->in, len, seed_of(peer, n)) == len,
		"a message is not the one that was to come next");
	wait_for(s->am_req, NULL, "active message");
	wait_for(s->add, NULL, "fetch and add");
	wait_for(s->rma, NULL, "put");
	wait_for(s->get, NULL, "get");
	expect(pattern_wrong(s->got, put, seed_of(h->who, n)) == put,
		"what was put is not what is got");
	s->used = false;
}

static void slot_begin(struct here *h, struct slot *s, uint64_t n)
{
	size_t len = size_of(h->who, n), at = 64 + n % SLOTS * BYTES_MAX;
	uint64_t seed = seed_of(h->who, n);
	pattern_fill(s->out, len, seed);
	pattern_fill(s->am, len, seed + (1ull << 40));
	memcpy(s->put, s->out, len);
	memset(s->got, 0, len);
	expect(rpw_recv(h->c, h->ep, s->in, BYTES_MAX, TAG, UINT64_MAX, &s->recv) >= 0, "recv");
	expect(rpw_send(h->ep, s->out, len, TAG, &s->send) >= 0, "send");
	expect(rpw_am_send(h->ep, AM_ID, &n, 8, s->am, len, &s->am_req) >= 0, "am");
	expect(rpw_fetch_add(h->ep, 1, h->key, 0, &s->before, &s->add) >= 0, "add");
	expect(rpw_put(h->ep, s->put, len, h->key, at, &s->rma) >= 0, "put");
	expect(rpw_endpoint_fence(h->ep) == RPW_OK, "fence");
	expect(rpw_get(h->ep, s->got, len, h->key, at, &s->get) >= 0, "get");
	s->used = true;
}

static void keys_exchange(struct here *h)
{
	uint8_t own[RPW_RKEY_BYTES_MAX], peer[RPW_RKEY_BYTES_MAX];
	rpw_request *s, *r;
	rpw_completion done = RPW_COMPLETION_INIT;
	expect(!rpw_memory_allocate(h->c, REGION_BYTES,
		       RPW_REMOTE_READ | RPW_REMOTE_WRITE | RPW_REMOTE_ATOMIC, &h->region),
		"memory");
	memset(rpw_memory_address(h->region), 0, 8);
	int n = rpw_rkey_pack(h->region, own, sizeof(own));
	expect(n > 0, "pack");
	expect(rpw_recv(h->c, h->ep, peer, sizeof(peer), TAG_KEY, UINT64_MAX, &r) >= 0, "recv");
	expect(rpw_send(h->ep, own, (size_t)n, TAG_KEY, &s) >= 0, "send");
	wait_for(r, &done, "the peer's key");
	wait_for(s, NULL, "our key");
	expect(!rpw_rkey_unpack(h->ep, peer, done.length, &h->key), "unpack");
}

static bool is_over(struct here *h, const char *transport)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(h->ep, &info);
	return info.connected && info.transport && !strcmp(info.transport, transport);
}

static void converse(struct here *h, enum who deaf)
{
	struct slot slot[SLOTS] = {0};
	char end;
	rpw_request *r;
	rpw_statistics stat = {.size = sizeof(stat)};
	rpw_context_on_am(h->c, AM_ID, on_am, h);
	expect(is_over(h, "verbs"), "it begins on verbs");
	keys_exchange(h);
	for (int i = 0; i < SLOTS; i++) {
		char **buf[] = {&slot[i].out, &slot[i].in, &slot[i].put, &slot[i].got, &slot[i].am};
		for (size_t k = 0; k < 5; k++)
			expect((*buf[k] = malloc(BYTES_MAX)) != NULL, "memory");
	}
	for (uint64_t n = 0; n < ROUNDS + SLOTS; n++) {
		struct slot *s = &slot[n % SLOTS];
		/* the other one may have been first */
		if (n == DEAF_AT && (deaf & h->who) && is_over(h, "verbs"))
			go_deaf();
		slot_end(h, s, n - SLOTS);
		if (n < ROUNDS)
			slot_begin(h, s, n);
	}
	expect(is_over(h, "tcp"), "it goes on by tcp");
	rpw_context_statistics(h->c, &stat);
	expect(stat.path_changes == 1, "the path has changed once");
	/* Both have everything, and nothing twice. */
	expect(rpw_recv(h->c, h->ep, &end, 1, TAG_END, UINT64_MAX, &r) >= 0, "recv");
	expect(rpw_send(h->ep, "e", 1, TAG_END, NULL) >= 0, "send");
	wait_for(r, NULL, "the end");
	expect(h->ams == ROUNDS && !h->am_wrong, "active messages");
	expect(*(uint64_t *)rpw_memory_address(h->region) == ROUNDS,
		"each fetch and add was done once");
	expect(rpw_probe(h->c, NULL, 0, 0, NULL) == RPW_IN_PROGRESS, "nothing more has come");
	rpw_rkey_destroy(h->key);
	for (int i = 0; i < SLOTS; i++) {
		free(slot[i].out);
		free(slot[i].in);
		free(slot[i].put);
		free(slot[i].got);
		free(slot[i].am);
	}
}

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg) { *(rpw_endpoint **)arg = ep; }

static void until(struct here *h, bool (*done)(struct here *h), const char *what)
{
	for (int i = 0; !done(h); i++) {
		expect(i < PATIENCE_MS, what);
		rpw_context_progress(h->c);
		usleep(1000);
	}
}
static bool has_come(struct here *h) { return h->ep != NULL; }
static bool has_gone(struct here *h)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(h->ep, &info);
	return !info.connected;
}

static void listener(int port_fd, enum who deaf)
{
	struct here h = {.who = LISTENER};
	rpw_context_options o = {.size = sizeof(o), .transports = "verbs,tcp"};
	rpw_listener *l;
	expect(!rpw_context_create(&o, &h.c), "context");
	expect(!rpw_listener_create(h.c, "127.0.0.1:0", accepted, &h.ep, &l), "listener");
	int port = rpw_listener_port(l);
	expect(write(port_fd, &port, sizeof(port)) == sizeof(port), "port");
	until(&h, has_come, "nobody connects");
	converse(&h, deaf);
	until(&h, has_gone, "the peer does not close");
	rpw_context_destroy(h.c);
}

static void connector(int port_fd, enum who deaf)
{
	struct here h = {.who = CONNECTOR};
	rpw_context_options o = {.size = sizeof(o), .transports = "verbs,tcp"};
	rpw_request *r;
	char address[64];
	int port = 0;
	expect(read(port_fd, &port, sizeof(port)) == sizeof(port), "port");
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	expect(!rpw_context_create(&o, &h.c), "context");
	expect(rpw_endpoint_create(h.c, address, NULL, &h.ep, &r) == RPW_IN_PROGRESS, "connect");
	wait_for(r, NULL, "connected");
	converse(&h, deaf);
	expect(rpw_endpoint_flush(h.ep, &r) >= 0, "flush");
	wait_for(r, NULL, "flush");
	rpw_context_destroy(h.c);
}

/* Each in a process that never had a device before. */
static pid_t start(void (*fn)(int port_fd, enum who deaf), int port_fd, enum who deaf)
{
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn(port_fd, deaf);
		_exit(0);
	}
	return pid;
}

static void path_is_lost(enum who deaf)
{
	int port[2], status[2];
	assert_int_equal(pipe(port), 0);
	pid_t a = start(listener, port[1], deaf), b = start(connector, port[0], deaf);
	close(port[0]);
	close(port[1]);
	assert_int_equal(waitpid(a, &status[0], 0), a);
	assert_int_equal(waitpid(b, &status[1], 0), b);
	assert_int_equal(status[0] | status[1], 0);
}

static void the_listening_side_is_deaf(void **state) { path_is_lost(LISTENER); }
static void the_connecting_side_is_deaf(void **state) { path_is_lost(CONNECTOR); }
static void both_are_deaf(void **state) { path_is_lost(EITHER); }

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_listening_side_is_deaf),
		cmocka_unit_test(the_connecting_side_is_deaf),
		cmocka_unit_test(both_are_deaf),
	};
	setenv("ROPEWAY_WIRE", "udp", 1); /* memory has no firewall */
	return cmocka_run_group_tests_name("verbs, then tcp", tests, NULL, NULL);
}
