/* SPDX-License-Identifier: BSD-3-Clause */
/* grow_test.c - a thousand endpoints of one process with those of four others: each carries
 * messages of its own both ways, some are closed in the middle, one of the processes is killed in
 * the middle, and the others go on as if nothing had happened. With a key, too. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"

#define ALL UINT64_MAX
enum {
	PEERS = 4,
	EACH = 250,
	ROUNDS = 4,
	KILLED = 2,
	LARGE = 100000,
	PATIENCE_S = 100,
	PATIENCE_MS = PATIENCE_S * 1000
};
#define TAG_WHO 0xfff0ull

static const char *transport, *key_file;

/* Of peer p, endpoint e, in round r: what goes one way and the other. */
static uint64_t seed_of(unsigned p, unsigned e, unsigned r, bool back)
{
	return ((uint64_t)p << 40 | (uint64_t)e << 20 | r << 1 | back) + 1;
}
static size_t size_of(unsigned e, unsigned r)
{
	return e % 50 == 7 ? LARGE : rng_mix(e * 64ull + r) % 3000;
}
static bool is_closed_early(unsigned e) { return e % 7 == 3; }

static rpw_context *context(void)
{
	rpw_context_options o = {.size = sizeof(o), .transports = transport, .key_file = key_file};
	rpw_context *c = NULL;
	if (rpw_context_create(&o, &c)) {
		fprintf(stderr, "a context: %s\n", rpw_last_error());
		_exit(1);
	}
	return c;
}

/* ---- a peer ---- */

static struct peer_end {
	rpw_endpoint *ep;
	rpw_request *r;
	char *in, *out;
} mine[EACH];

static void expect(int ok, const char *what, unsigned e)
{
	if (!ok) {
		fprintf(stderr, "pid %d, endpoint %u: %s: %s\n", getpid(), e, what,
			rpw_last_error());
		_exit(1);
	}
}

static void sent(rpw_request *r, unsigned e)
{
	expect(!r || rpw_request_wait(r, PATIENCE_MS, NULL) == RPW_OK, "a send", e);
	rpw_request_destroy(r);
}

static void peer_round(rpw_context *c, unsigned p, unsigned round)
{
	static rpw_request *out[EACH];
	for (unsigned e = 0; e < EACH; e++) {
		struct peer_end *m = &mine[e];
		out[e] = NULL;
		if (!m->ep)
			continue;
		/* half of its endpoints have sent, none has its answer for certain */
		if (p == KILLED && round == 2 && e == EACH / 2)
			raise(SIGKILL);
		expect(rpw_recv(c, m->ep, m->in, LARGE, round, ALL, &m->r) >= 0, "a receive", e);
		pattern_fill(m->out, size_of(e, round), seed_of(p, e, round, false));
		expect(rpw_send(m->ep, m->out, size_of(e, round), round, &out[e]) >= 0, "a send",
			e);
	}
	for (unsigned e = EACH; e-- > 0;) {
		struct peer_end *m = &mine[e];
		rpw_completion done = RPW_COMPLETION_INIT;
		if (!m->ep)
			continue;
		expect(rpw_request_wait(m->r, PATIENCE_MS, &done) == RPW_OK, "an answer", e);
		rpw_request_destroy(m->r);
		sent(out[e], e);
		expect(done.length == size_of(e, round) && done.from == m->ep,
			"its length and sender", e);
		expect(pattern_wrong(m->in, done.length, seed_of(p, e, round, true)) == done.length,
			"its bytes", e);
		if (round == 1 && is_closed_early(e)) {
			rpw_endpoint_destroy(m->ep);
			m->ep = NULL;
		}
	}
}

static void peer_main(unsigned p, int port)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(PATIENCE_S);
	rpw_context *c = context();
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	rpw_endpoint_options o = {.size = sizeof(o), .timeout_ms = PATIENCE_MS};
	for (unsigned e = 0; e < EACH; e++) {
		uint32_t who[2] = {p, e};
		rpw_request *s;
		mine[e].in = malloc(LARGE);
		mine[e].out = malloc(LARGE);
		expect(mine[e].in && mine[e].out &&
				rpw_endpoint_create(c, address, &o, &mine[e].ep, &mine[e].r) ==
					RPW_IN_PROGRESS,
			"connect", e);
		expect(rpw_send(mine[e].ep, who, sizeof(who), TAG_WHO, &s) >= 0, "who", e);
		sent(s, e);
		expect(rpw_request_wait(mine[e].r, PATIENCE_MS, NULL) == RPW_OK, "connected", e);
		rpw_request_destroy(mine[e].r);
	}
	for (unsigned round = 0; round < ROUNDS; round++)
		peer_round(c, p, round);
	for (unsigned e = 0; e < EACH; e++) {
		rpw_request *f = NULL;
		expect(!mine[e].ep || rpw_endpoint_flush(mine[e].ep, &f) >= 0, "flush", e);
		sent(f, e);
	}
	rpw_context_destroy(c);
	_exit(0);
}

/* ---- the one with a thousand ---- */

struct end {
	rpw_endpoint *ep;
	rpw_context *c;
	uint32_t who[2];
	bool known, ended, told;
	unsigned round;
	int status;
	char *in, *out;
};
static struct end ends[PEERS * EACH];
static unsigned accepted, ended, wrong;

static void end_receive(struct end *x);

static void on_closed(rpw_endpoint *ep, int status, void *arg)
{
	struct end *x = arg;
	wrong += !x->ended || x->told; /* the last word: its receive has been told before */
	x->told = true;
	rpw_endpoint_destroy(ep);
}

static void on_message(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct end *x = arg;
	rpw_request_destroy(r);
	if (done->status) {
		wrong += x->ended;
		x->ended = true;
		x->status = done->status;
		ended++;
		return;
	}
	if (!x->known) {
		wrong += done->length != sizeof(x->who) || x->who[0] >= PEERS || x->who[1] >= EACH;
		x->known = true;
		end_receive(x);
		return;
	}
	size_t n = size_of(x->who[1], x->round);
	wrong += done->length != n ||
		 pattern_wrong(x->in, n, seed_of(x->who[0], x->who[1], x->round, false)) != n;
	pattern_fill(x->out, n, seed_of(x->who[0], x->who[1], x->round, true));
	/* fails when the peer is gone, which its receive tells, too */
	rpw_send(x->ep, x->out, n, x->round, NULL);
	x->round++;
	end_receive(x);
}

static void end_receive(struct end *x)
{
	rpw_request *r = NULL;
	int rc = x->known ? rpw_recv(x->c, x->ep, x->in, LARGE, x->round, ALL, &r)
			  : rpw_recv(x->c, x->ep, x->who, sizeof(x->who), TAG_WHO, ALL, &r);
	if (rc < 0) {
		on_message(NULL, &(rpw_completion){.status = rc}, x);
		return;
	}
	rpw_request_on_done(r, on_message, x);
}

static void on_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	if (accepted == PEERS * EACH) {
		wrong++;
		return;
	}
	struct end *x = &ends[accepted++];
	*x = (struct end){.ep = ep, .c = arg, .in = malloc(LARGE), .out = malloc(LARGE)};
	rpw_endpoint_on_close(ep, on_closed, x);
	end_receive(x);
}

/* Which do not end, and what is known of them. */
static void tell_the_rest(void)
{
	fprintf(stderr, "%s: %u endpoints came, %u ended, %u things wrong\n", transport, accepted,
		ended, wrong);
	for (unsigned i = 0, n = 0; i < accepted && n < 5; i++) {
		struct end *x = &ends[i];
		rpw_endpoint_information k = {.size = sizeof(k)};
		if (x->told)
			continue;
		rpw_endpoint_info(x->ep, &k);
		fprintf(stderr,
			"peer %u, endpoint %u (known %d, ended %d), round %u: connected %d, status "
			"%d, %s, because %s\n",
			x->who[0], x->who[1], x->known, x->ended, x->round, k.connected, k.status,
			k.path, k.why);
		n++;
	}
}

static void a_thousand(void **state)
{
	pid_t pid[PEERS];
	int port[PEERS][2];
	memset(ends, 0, sizeof(ends));
	accepted = ended = wrong = 0;
	for (unsigned p = 0; p < PEERS; p++) {
		assert_int_equal(pipe(port[p]), 0);
		fflush(NULL);
		pid[p] = fork();
		if (!pid[p]) {
			int n;
			expect(read(port[p][0], &n, sizeof(n)) == sizeof(n), "port", 0);
			peer_main(p, n);
		}
	}
	rpw_context *c = context();
	rpw_listener *l;
	assert_int_equal(rpw_listener_create(c, "127.0.0.1:0", on_accept, c, &l), 0);
	int n = rpw_listener_port(l);
	for (unsigned p = 0; p < PEERS; p++) {
		assert_int_equal(write(port[p][1], &n, sizeof(n)), sizeof(n));
		close(port[p][0]);
		close(port[p][1]);
	}
	/* Everything ends: peers close, or are killed. */
	rpw_statistics s = {.size = sizeof(s), .endpoints = 1};
	const char *patience = getenv("MSG_PATIENCE_S");
	for (time_t until = time(NULL) + (patience ? atoi(patience) : PATIENCE_S);
		!wrong && (accepted < PEERS * EACH || s.endpoints);) {
		wrong += time(NULL) > until;
		struct pollfd p = {rpw_context_fd(c), POLLIN, 0};
		if (rpw_context_progress(c) <= 0 && rpw_context_arm(c) == 0)
			poll(&p, 1, 100);
		rpw_context_statistics(c, &s);
	}
	if (wrong)
		tell_the_rest();
	for (unsigned p = 0; p < PEERS && wrong; p++)
		kill(pid[p], SIGKILL);
	for (unsigned p = 0; p < PEERS; p++) {
		int status;
		assert_int_equal(waitpid(pid[p], &status, 0), pid[p]);
		if (wrong)
			continue;
		if (p == KILLED)
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	}
	assert_int_equal(wrong, 0);
	assert_int_equal(ended, PEERS * EACH);
	bool seen[PEERS][EACH] = {{false}};
	for (unsigned i = 0; i < PEERS * EACH; i++) {
		struct end *x = &ends[i];
		assert_true(x->known && x->told && !seen[x->who[0]][x->who[1]]);
		seen[x->who[0]][x->who[1]] = true;
		assert_int_equal(x->status, RPW_ERR_PEER_GONE);
		if (is_closed_early(x->who[1]))
			assert_int_equal(x->round, 2);
		else if (x->who[0] == KILLED)
			assert_true(x->round == 2 || (x->round == 3 && x->who[1] < EACH / 2));
		else
			assert_int_equal(x->round, ROUNDS);
		free(x->in);
		free(x->out);
	}
	rpw_listener_destroy(l);
	rpw_context_destroy(c);
}

static void a_thousand_with_a_key(void **state)
{
	char file[] = "/tmp/ropeway-grow-XXXXXX";
	int fd = mkstemp(file);
	assert_true(fd >= 0);
	assert_true(dprintf(fd, "%016llx%016llx%016llx\n",
			    (unsigned long long)rng_mix((uint64_t)getpid()), 0x0123456789abcdefull,
			    0xfedcba9876543210ull) > 0);
	close(fd);
	key_file = file;
	a_thousand(state);
	key_file = NULL;
	unlink(file);
}

static void on_accept_one_more(rpw_listener *l, rpw_endpoint *ep, void *arg) { accepted++; }

/* More than may arrive at once (ARRIVING_MAX): the next wait, and none is refused. */
static void all_at_once(void **state)
{
	enum { MANY = 2500 };
	static rpw_endpoint *ep[MANY];
	static rpw_request *r[MANY];
	rpw_context *a = context(), *b = context();
	rpw_endpoint_options o = {.size = sizeof(o), .timeout_ms = PATIENCE_MS};
	rpw_listener *l;
	char address[64];
	accepted = 0;
	assert_int_equal(
		rpw_listener_create(b, "127.0.0.1:0", on_accept_one_more, NULL, &l), RPW_OK);
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(l));
	for (unsigned i = 0; i < MANY; i++)
		assert_true(rpw_endpoint_create(a, address, &o, &ep[i], &r[i]) >= 0);
	for (unsigned done = 0; done < MANY;) {
		rpw_context_progress(a);
		rpw_context_progress(b);
		int rc = rpw_request_test(r[done], NULL);
		if (rc == RPW_IN_PROGRESS)
			continue;
		assert_int_equal(rc, RPW_OK);
		rpw_request_destroy(r[done++]);
	}
	while (accepted < MANY)
		rpw_context_progress(b);
	rpw_context_destroy(a);
	rpw_context_destroy(b);
}

int main(void)
{
	static const char *const transports[] = {"shm", "tcp"};
	static const struct CMUnitTest tests[] = {cmocka_unit_test(a_thousand),
		cmocka_unit_test(a_thousand_with_a_key), cmocka_unit_test(all_at_once)};
	const char *only = getenv("MSG_TRANSPORT");
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	int failed = 0;
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++) {
		transport = transports[i];
		if (only && strcmp(only, transport))
			continue;
		failed += cmocka_run_group_tests_name(transport, tests, NULL, NULL);
	}
	return failed ? 1 : 0;
}
