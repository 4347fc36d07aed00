/* SPDX-License-Identifier: BSD-3-Clause */
/* grow.c - what many endpoints cost, and many receives: grow [-t LIST] [-n ENDPOINTS] [-r ROUNDS]
 * [-s SECONDS] [-o TEXT] [-c A,B] [-j].
 *
 * Two processes, each on a core of its own, a fresh pair for each transport, with and without a
 * key. The client connects all endpoints at once (the clock runs until both sides have all of
 * them); then both look at their own memory: pages that became resident since the contexts were
 * made, shared pages too, or what malloc has given out, whichever is more. Then 8-byte messages in
 * turn over one endpoint and over all, round-robin, and in the same way over one while 100,000
 * receives or messages are in the way. Each message has a tag and 8 bytes of its own, which are
 * checked.
 *
 * A row: {"name", "ours", "peer", "unit", "better", "ratio", "goal", "peer_name"}, as `ropeway perf
 * --against` has them; here the peer is one endpoint, or as many as asked for.
 */
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "bench.h"
#include "ropeway.h"

enum {
	WINDOW = 512,
	CROWD = 100000,
	ENDPOINTS_MAX = 100000,
	ROUNDS_MAX = 101,
	DEADLINE_S = 150,
	PATIENCE_MS = 60000,
	IDLE_MS = 300,
	SPREAD = 50
};
#define EXACT UINT64_MAX
#define WILD 0x00ffffffffffffffull      /* the top byte does not matter */
#define TAG_CROWD 0x0100000000000000ull /* exact: in the way */
#define TAG_WILD 0x0000000100000000ull  /* by mask: in the way */
#define TAG_EARLY 0x0000000200000000ull /* messages that nobody asks for */
#define TAG_DONE 0x00000003fffffffffull

enum op {
	OP_COUNT,
	OP_MEMORY,
	OP_RATE,
	OP_POST,
	OP_CANCEL,
	OP_EARLY,
	OP_EARLY_TAKE,
	OP_ORDER,
	OP_QUIT
};
struct order {
	enum op op;
	uint64_t n, k, mask; /* messages, endpoints */
};

static struct {
	const char *transports, *only;
	unsigned n, rounds;
	uint64_t run_ns;
	int cpu[2];
	bool json;
} opt = {.transports = "shm,tcp",
	.only = "",
	.n = 1000,
	.rounds = 5,
	.run_ns = 300000000,
	.cpu = {0, 1}};

static const char *who;
static rpw_context *ctx;
static rpw_endpoint *ep[ENDPOINTS_MAX];
static unsigned accepted;
static int talk; /* to the other process */
static rpw_request *crowd[CROWD];
_Static_assert(CROWD >= ENDPOINTS_MAX, "connect_all has its requests there, too");
static struct {
	rpw_request *r;
	uint64_t v;
} window[WINDOW]; /* messages under way */
static uint64_t crowd_in;

static void fail(const char *what)
{
	fprintf(stderr, "grow: %s: %s: %s\n", who, what, rpw_last_error());
	_exit(1);
}
static void need(bool ok, const char *what)
{
	if (!ok)
		fail(what);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* Until there is something to do; at most a little while. */
static void doze(void)
{
	struct pollfd p[2] = {{rpw_context_fd(ctx), POLLIN, 0}, {talk, POLLIN, 0}};
	if (rpw_context_arm(ctx) == 0)
		poll(p, 2, 10);
}

static void say(const void *what, size_t len)
{
	need(write(talk, what, len) == (ssize_t)len, "the other process does not listen");
}

static void hear(void *what, size_t len)
{
	for (unsigned idle = 0;;) {
		ssize_t got = recv(talk, what, len, MSG_DONTWAIT);
		if (got == (ssize_t)len)
			return;
		need(got < 0 && errno == EAGAIN, "the other process has ended");
		if (rpw_context_progress(ctx) > 0)
			idle = 0;
		else if (++idle > 100)
			doze();
	}
}

/* ---- memory ---- */

static uint64_t resident(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	unsigned long long kb = 0;
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Rss: %llu kB", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb * 1024;
}

static uint64_t allocated(void)
{
	struct mallinfo2 m = mallinfo2();
	return m.uordblks + m.hblkhd;
}

static uint64_t resident_before, allocated_before;
static void memory_begin(void)
{
	resident_before = resident();
	allocated_before = allocated();
}
static uint64_t memory_more(void)
{
	uint64_t r = resident() - resident_before, a = allocated() - allocated_before;
	return r > a ? r : a;
}

static void idle_for(unsigned ms)
{
	for (uint64_t until = now_ns() + ms * 1000000ull; now_ns() < until;)
		if (rpw_context_progress(ctx) <= 0)
			doze();
}

/* ---- a stream of messages ---- */

static void finish(rpw_request **r, const char *what)
{
	if (!*r)
		return;
	int rc = rpw_request_test(*r, NULL);
	if (rc == RPW_IN_PROGRESS)
		rc = rpw_request_wait(*r, PATIENCE_MS, NULL);
	need(rc == RPW_OK, what);
	rpw_request_destroy(*r);
	*r = NULL;
}

/* Receives are posted a window ahead; when all have come, one message goes back. */
static void receive_all(uint64_t n, uint64_t k, uint64_t mask)
{
	uint64_t posted = 0, e = 0;
	for (uint64_t i = 0; i < n; i++) {
		for (; posted < n && posted < i + WINDOW; posted++, e = e + 1 == k ? 0 : e + 1)
			need(rpw_recv(ctx, ep[e], &window[posted % WINDOW].v, 8, posted, mask,
				     &window[posted % WINDOW].r) >= 0,
				"a receive");
		finish(&window[i % WINDOW].r, "a message");
		if (window[i % WINDOW].v != mix(i)) {
			fprintf(stderr, "grow: message %llu of %llu is not what was sent\n",
				(unsigned long long)i, (unsigned long long)n);
			_exit(1);
		}
	}
	rpw_request *done;
	need(rpw_send(ep[0], &n, 8, TAG_DONE, &done) >= 0, "the last message");
	finish(&done, "the last message");
}

static double send_all(uint64_t n, uint64_t k, uint64_t mask)
{
	uint64_t heard = 0, e = 0, top = mask == EXACT ? 0 : TAG_CROWD * 7;
	rpw_request *done;
	need(rpw_recv(ctx, ep[0], &heard, 8, TAG_DONE, EXACT, &done) >= 0, "a receive");
	uint64_t began = now_ns();
	for (uint64_t i = 0; i < n; i++, e = e + 1 == k ? 0 : e + 1) {
		finish(&window[i % WINDOW].r, "a send");
		window[i % WINDOW].v = mix(i);
		need(rpw_send(ep[e], &window[i % WINDOW].v, 8, i | top, &window[i % WINDOW].r) >= 0,
			"a send");
		if (i % 64 == 63)
			rpw_context_progress(ctx);
	}
	for (unsigned i = 0; i < WINDOW; i++)
		finish(&window[i].r, "a send");
	finish(&done, "the answer to all");
	return (double)(now_ns() - began) / 1e9;
}

/* ---- obstacles ---- */

static void crowd_post(uint64_t n, uint64_t mask)
{
	uint64_t tag = mask == EXACT ? TAG_CROWD : TAG_WILD;
	for (uint64_t i = 0; i < n; i++)
		need(rpw_recv(ctx, ep[0], &crowd_in, 8, tag + i, mask, &crowd[i]) ==
				RPW_IN_PROGRESS,
			"a receive in the way");
}

static void crowd_cancel(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		rpw_request_cancel(crowd[i]);
		need(rpw_request_test(crowd[i], NULL) == RPW_ERR_CANCELED, "cancel");
		rpw_request_destroy(crowd[i]);
	}
}

static void early_send(uint64_t n, uint64_t k)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t v = mix(i);
		rpw_request *r;
		need(rpw_send(ep[i % k], &v, 8, TAG_EARLY + i, &r) >= 0, "an early message");
		finish(&r, "an early message");
	}
}

static void early_wait(uint64_t n)
{
	rpw_statistics s = {.size = sizeof(s)};
	for (unsigned idle = 0; idle < PATIENCE_MS; idle++) {
		idle_for(1);
		rpw_context_statistics(ctx, &s);
		if (s.unexpected_bytes >= n * 8)
			return;
	}
	fail("the early messages did not come");
}

static void early_take(uint64_t n, uint64_t k)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t v = 0;
		rpw_request *r;
		need(rpw_recv(ctx, ep[i % k], &v, 8, TAG_EARLY + i, EXACT, &r) >= 0,
			"an early message");
		finish(&r, "an early message");
		need(v == mix(i), "an early message has other bytes");
	}
}

/* ---- the server ---- */

static void on_accept(rpw_listener *l, rpw_endpoint *e, void *arg)
{
	if (accepted < ENDPOINTS_MAX)
		ep[accepted++] = e;
}

/* Endpoints come to a listener in any order: the tags that were exchanged tell which is which, so
 * that round-robin is the same round on both sides. */
static uint64_t tag_of(rpw_endpoint *e, bool peers)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	rpw_endpoint_info(e, &i);
	return peers ? i.peer_message_tag : i.message_tag;
}

static void order_take(uint64_t n)
{
	for (uint64_t i = 0, tag; i < n; i++) {
		uint64_t at = i;
		hear(&tag, sizeof(tag));
		while (at < n && tag_of(ep[at], true) != tag)
			at++;
		need(at < n, "an endpoint of the client's is not here");
		rpw_endpoint *e = ep[i];
		ep[i] = ep[at];
		ep[at] = e;
	}
}

static void order_say(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t tag = tag_of(ep[i], false);
		say(&tag, sizeof(tag));
	}
}

static void serve(const char *transport, const char *key)
{
	rpw_listener *l;
	/* holds the early messages */
	rpw_context_options o = {.size = sizeof(o),
		.transports = transport,
		.key_file = key,
		.unexpected_bytes_max = 1u << 30};
	need(!rpw_context_create(&o, &ctx), "a context");
	need(!rpw_listener_create(ctx, "127.0.0.1:0", on_accept, NULL, &l), "a listener");
	memory_begin();
	int port = rpw_listener_port(l);
	say(&port, sizeof(port));
	for (;;) {
		struct order w;
		uint64_t answer = 0;
		hear(&w, sizeof(w));
		switch (w.op) {
		case OP_COUNT:
			while (accepted < w.n)
				if (rpw_context_progress(ctx) <= 0)
					doze();
			break;
		case OP_MEMORY:
			idle_for(IDLE_MS);
			answer = memory_more();
			break;
		case OP_RATE:
			receive_all(w.n, w.k, w.mask);
			break;
		case OP_POST:
			crowd_post(w.n, w.mask);
			break;
		case OP_CANCEL:
			crowd_cancel(w.n);
			break;
		case OP_EARLY:
			early_wait(w.n);
			break;
		case OP_EARLY_TAKE:
			early_take(w.n, w.k);
			break;
		case OP_ORDER:
			order_take(w.n);
			break;
		case OP_QUIT:
			_exit(0);
		}
		say(&answer, sizeof(answer));
	}
}

/* ---- the client ---- */

static uint64_t ask(struct order w)
{
	uint64_t answer;
	say(&w, sizeof(w));
	hear(&answer, sizeof(answer));
	return answer;
}

static double rate(uint64_t n, uint64_t k, uint64_t mask)
{
	struct order w = {OP_RATE, n, k, mask};
	uint64_t answer;
	say(&w, sizeof(w));
	double took = send_all(n, k, mask);
	hear(&answer, sizeof(answer));
	return (double)n / took;
}

static unsigned *rows; /* shared by all processes */
static void row(const char *name, double ours, double peer, double ratio, const char *unit,
	bool lower, double goal, const char *peer_name)
{
	const char *bound = lower ? "at most " : "at least";
	const char *before = *rows ? ",\n " : " ";
	bool pass = lower ? ratio <= goal : ratio >= goal;
	if (opt.json) {
		printf("%s{\"name\": \"%s\", \"ours\": %.6g, \"peer\": %.6g, \"unit\": \"%s\", "
		       "\"better\": \"%s\", \"ratio\": %.4g, \"goal\": %g, "
		       "\"peer_name\": \"%s\"}",
			before, name, ours, peer, unit, lower ? "lower" : "higher", ratio, goal,
			peer_name);
	} else
		printf("%-22s %12.4g %12.4g %-6s %7.3f  %s %-5g %-6s %s\n", name, ours, peer, unit,
			ratio, bound, goal, pass ? "pass" : "short", peer_name);
	fflush(stdout);
	++*rows;
}

static bool wanted(const char *name) { return strstr(name, opt.only) != NULL; }

/* The two ways in turn; the ratio is the median of each pair's. */
static void compare(const char *name, uint64_t k, uint64_t mask, void (*begin)(void),
	void (*end)(void), bool per_message, double goal, const char *peer_name)
{
	double ours[ROUNDS_MAX], peer[ROUNDS_MAX], ratio[ROUNDS_MAX];
	if (!wanted(name))
		return;
	rate(10000, k, mask);
	uint64_t n = (uint64_t)(rate(50000, 1, mask) * (double)opt.run_ns / 1e9);
	for (unsigned i = 0; i < opt.rounds; i++) {
		peer[i] = rate(n, 1, mask);
		if (begin)
			begin();
		ours[i] = rate(n, k, mask);
		if (end)
			end();
		if (per_message) {
			ours[i] = 1e9 / ours[i];
			peer[i] = 1e9 / peer[i];
		} else {
			ours[i] /= 1e6;
			peer[i] /= 1e6;
		}
		ratio[i] = ours[i] / peer[i];
	}
	row(name, median(ours, opt.rounds), median(peer, opt.rounds), median(ratio, opt.rounds),
		per_message ? "ns" : "M/s", per_message, goal, peer_name);
}

static void posted_begin(void) { ask((struct order){OP_POST, CROWD, 1, EXACT}); }
static void wild_begin(void) { ask((struct order){OP_POST, CROWD, 1, WILD}); }
static void posted_end(void) { ask((struct order){OP_CANCEL, CROWD, 1, EXACT}); }
static unsigned spread(void) { return opt.n < SPREAD ? opt.n : SPREAD; }
static void early_begin(void)
{
	early_send(CROWD, spread());
	ask((struct order){OP_EARLY, CROWD, spread(), EXACT});
}
static void early_end(void) { ask((struct order){OP_EARLY_TAKE, CROWD, spread(), EXACT}); }

static void connect_all(int port, unsigned n)
{
	rpw_request **r = crowd; /* nobody is in the way yet */
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	rpw_endpoint_options o = {.size = sizeof(o), .timeout_ms = PATIENCE_MS};
	for (unsigned i = 0; i < n; i++)
		need(rpw_endpoint_create(ctx, address, &o, &ep[i], &r[i]) >= 0, "connect");
	need(rpw_request_wait_all(ctx, r, n, PATIENCE_MS) == RPW_OK, "connected");
	for (unsigned i = 0; i < n; i++)
		rpw_request_destroy(r[i]);
	ask((struct order){OP_COUNT, n, n, 0});
}

static void measure(const char *transport, const char *key)
{
	char name[64], prefix[32], allowed[32];
	double allowed_s = opt.n * 0.002;
	int port;
	rpw_context_options o = {.size = sizeof(o), .transports = transport, .key_file = key};
	need(!rpw_context_create(&o, &ctx), "a context");
	memory_begin();
	hear(&port, sizeof(port));
	uint64_t began = now_ns();
	connect_all(port, opt.n);
	double connect_s = (double)(now_ns() - began) / 1e9;
	idle_for(IDLE_MS);
	uint64_t mine = memory_more(), theirs = ask((struct order){OP_MEMORY, 0, 0, 0});
	struct order order = {OP_ORDER, opt.n, opt.n, 0};
	uint64_t nothing;
	say(&order, sizeof(order));
	order_say(opt.n);
	hear(&nothing, sizeof(nothing));
	snprintf(allowed, sizeof(allowed), "%g s", allowed_s);
	snprintf(prefix, sizeof(prefix), "%s%s_%u", transport, key ? "_key" : "", opt.n);
	snprintf(name, sizeof(name), "%s_connect", prefix);
	if (wanted(name))
		row(name, connect_s, allowed_s, connect_s / allowed_s, "s", true, 1, allowed);
	snprintf(name, sizeof(name), "%s_bytes", prefix);
	/* with a key: the TLS sessions */
	double bytes = (double)(mine > theirs ? mine : theirs) / opt.n;
	double most = key ? 49152 : 16384;
	if (!opt.json)
		printf("# %s: %.0f bytes an endpoint here, %.0f at the listener's side\n", prefix,
			(double)mine / opt.n, (double)theirs / opt.n);
	if (wanted(name))
		row(name, bytes, most, bytes / most, "B", true, 1, key ? "48 KiB" : "16 KiB");
	snprintf(name, sizeof(name), "%s_rate", prefix);
	if (!key)
		compare(name, opt.n, EXACT, NULL, NULL, false, 0.7, "one endpoint");
	if (!key && !strcmp(transport, "shm")) {
		static const struct {
			const char *name;
			uint64_t mask;
			void (*begin)(void), (*end)(void);
		} crowds[] = {{"match_posted_100k", EXACT, posted_begin, posted_end},
			{"match_wild_100k", WILD, wild_begin, posted_end},
			{"match_mixed_100k", EXACT, wild_begin, posted_end},
			{"match_early_100k", EXACT, early_begin, early_end},
			{"match_early_wild_100k", WILD, early_begin, early_end}};
		for (unsigned i = 0; i < sizeof(crowds) / sizeof(*crowds); i++)
			compare(crowds[i].name, 1, crowds[i].mask, crowds[i].begin, crowds[i].end,
				true, 2, "none in the way");
	}
	say(&(struct order){OP_QUIT, 0, 0, 0}, sizeof(struct order));
	_exit(0);
}

/* The client is a child too: each pair begins with fresh memory. */
static int run(const char *transport, const char *key)
{
	int pair[2], status, bad = 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		die("socketpair");
	fflush(stdout);
	pid_t pid[2];
	for (int side = 0; side < 2; side++) {
		pid[side] = child(opt.cpu[side]);
		if (pid[side])
			continue;
		alarm(DEADLINE_S);
		talk = pair[side];
		close(pair[!side]);
		who = side ? "server" : "client";
		if (side)
			serve(transport, key);
		measure(transport, key);
	}
	close(pair[0]);
	close(pair[1]);
	for (int side = 0; side < 2; side++) {
		waitpid(pid[side], &status, 0);
		bad |= !WIFEXITED(status) || WEXITSTATUS(status);
	}
	return bad;
}

static void key_make(char *file)
{
	int fd = mkstemp(file), random = open("/dev/urandom", 0);
	uint8_t b[32];
	if (fd < 0 || random < 0 || read(random, b, sizeof(b)) != sizeof(b))
		die(file);
	for (unsigned i = 0; i < sizeof(b); i++)
		dprintf(fd, "%02x", b[i]);
	close(fd);
	close(random);
}

static const char usage[] =
	"[-t LIST] [-n ENDPOINTS] [-r ROUNDS] [-s SECONDS] [-o TEXT] [-c A,B] [-j]\n"
	"  -t shm,tcp,verbs  transports, each also with a key (default shm,tcp)\n"
	"  -o TEXT           only rows whose name has this in it";

int main(int argc, char **argv)
{
	const struct flag flags[] = {{'t', TEXT, &opt.transports}, {'n', NUMBER, &opt.n},
		{'r', NUMBER, &opt.rounds}, {'s', DURATION, &opt.run_ns}, {'o', TEXT, &opt.only},
		{'c', CPUS, opt.cpu}, {'j', FLAG, &opt.json}, {0}};

	take_flags(argc, argv, flags, usage);
	need_usage(opt.n && opt.n <= ENDPOINTS_MAX && opt.rounds && opt.rounds <= ROUNDS_MAX &&
			   opt.run_ns,
		usage);
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	char key[] = "/tmp/ropeway-grow-key-XXXXXX", list[64], *at = list, *transport;
	key_make(key);
	snprintf(list, sizeof(list), "%s", opt.transports);
	int bad = 0;
	rows = memory(sizeof(*rows), MAP_SHARED);
	if (opt.json)
		puts("[");
	while ((transport = strsep(&at, ","))) {
		bad |= run(transport, NULL);
		bad |= run(transport, key);
	}
	unlink(key);
	if (opt.json)
		puts("\n]");
	return bad;
}
