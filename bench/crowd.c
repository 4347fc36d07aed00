/* SPDX-License-Identifier: BSD-3-Clause */
/* crowd.c - many processes that send to one: crowd [-t LIST] [-n SENDERS] [-r ROUNDS] [-s SECONDS]
 * [-c A,B] [-j].
 *
 * All senders run on the first core, the receiver on the second. Each sender connects one endpoint
 * and sends messages of 8 bytes when the receiver asks for them: one sender alone, then all of
 * them, in turn. The receiver takes them by receives from any endpoint; each message says its
 * sender and its number, and both are checked. The clock runs from the request to the last message.
 *
 * A row: {"name", "ours", "peer", "unit", "better", "ratio", "goal", "peer_name"}, as grow has
 * them.
 */
#include "bench.h"
#include "ropeway.h"

enum { WINDOW = 512, SENDERS_MAX = 1024, ROUNDS_MAX = 101, DEADLINE_S = 150, PATIENCE_MS = 60000 };
enum { TAG_HELLO = 1, TAG_ASK, TAG_DATA };
#define EXACT UINT64_MAX

static struct {
	const char *transports;
	unsigned n, rounds;
	uint64_t run_ns;
	int cpu[2];
	bool json;
} opt = {.transports = "shm,tcp", .n = 64, .rounds = 5, .run_ns = 300000000, .cpu = {0, 1}};

static rpw_context *ctx;
static struct {
	uint64_t v;
	rpw_request *r;
} window[WINDOW];

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "crowd: %s: %s\n", what, rpw_last_error());
	_exit(1);
}

static void finish(int posted, rpw_request **r, const char *what)
{
	need(rpw_finish(posted, r, PATIENCE_MS, NULL) == RPW_OK, what);
}

static uint64_t word(uint64_t sender, uint64_t i) { return sender << 48 | i; }

/* ---- a sender ---- */

static void answer(rpw_endpoint *ep, uint64_t me, uint64_t *sent, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		unsigned at = i % WINDOW;
		finish(RPW_IN_PROGRESS, &window[at].r, "a message");
		window[at].v = word(me, (*sent)++);
		need(rpw_send(ep, &window[at].v, 8, TAG_DATA, &window[at].r) >= 0, "a message");
	}
	for (unsigned at = 0; at < WINDOW; at++)
		finish(RPW_IN_PROGRESS, &window[at].r, "a message");
}

static void send_when_asked(uint64_t me, int port)
{
	rpw_endpoint *ep;
	rpw_request *r;
	uint64_t sent = 0, n;
	char address[64];
	rpw_endpoint_options o = {.size = sizeof(o), .timeout_ms = PATIENCE_MS};
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	int rc = rpw_endpoint_create(ctx, address, &o, &ep, &r);
	finish(rc, &r, "a connection");
	rc = rpw_send(ep, &me, 8, TAG_HELLO, &r);
	finish(rc, &r, "the first message");
	do {
		rc = rpw_recv(ctx, ep, &n, 8, TAG_ASK, EXACT, &r);
		finish(rc, &r, "the request for messages");
		answer(ep, me, &sent, n);
	} while (n);
	_exit(0);
}

/* ---- the receiver ---- */

static rpw_endpoint *ep[SENDERS_MAX]; /* by the sender's number */
static uint64_t taken[SENDERS_MAX];   /* messages */

static void on_accept(rpw_listener *l, rpw_endpoint *e, void *arg) {}

static void post(unsigned at)
{
	need(rpw_recv(ctx, NULL, &window[at].v, 8, TAG_DATA, EXACT, &window[at].r) >= 0,
		"a receive");
}

static void take(unsigned at)
{
	rpw_completion done = RPW_COMPLETION_INIT;
	int rc = rpw_request_test(window[at].r, &done);
	if (rc == RPW_IN_PROGRESS)
		rc = rpw_request_wait(window[at].r, PATIENCE_MS, &done);
	need(rc == RPW_OK, "a message");
	rpw_request_destroy(window[at].r);
	uint64_t v = window[at].v, sender = v >> 48;
	if (sender < opt.n && done.from == ep[sender] && v == word(sender, taken[sender])) {
		taken[sender]++;
		return;
	}
	fprintf(stderr, "crowd: message %llx is not the next one of its sender\n",
		(unsigned long long)v);
	_exit(1);
}

static void ask(unsigned sender, uint64_t n)
{
	rpw_request *r;
	int rc = rpw_send(ep[sender], &n, 8, TAG_ASK, &r);
	finish(rc, &r, "a request for messages");
}

/* Messages in a second, `each` of every one of so many senders. */
static double rate(unsigned senders, uint64_t each)
{
	uint64_t n = each * senders, posted = 0, began = now_ns();
	for (; posted < n && posted < WINDOW; posted++)
		post((unsigned)posted);
	for (unsigned i = 0; i < senders; i++)
		ask(i, each);
	for (uint64_t i = 0; i < n; i++) {
		take(i % WINDOW);
		if (posted < n)
			post(posted++ % WINDOW);
	}
	return (double)n * 1e9 / (double)(now_ns() - began);
}

static void know_all(void)
{
	for (unsigned i = 0; i < opt.n; i++) {
		uint64_t who;
		rpw_completion done = RPW_COMPLETION_INIT;
		rpw_request *r;
		int rc = rpw_recv(ctx, NULL, &who, 8, TAG_HELLO, EXACT, &r);
		need(rpw_finish(rc, &r, PATIENCE_MS, &done) == RPW_OK, "a first message");
		need(who < opt.n && !ep[who], "a sender that is not known");
		ep[who] = done.from;
	}
}

static void receive(const char *transport, int told)
{
	double ours[ROUNDS_MAX], peer[ROUNDS_MAX], ratio[ROUNDS_MAX];
	rpw_statistics s = RPW_STATISTICS_INIT;
	rpw_listener *l;
	need(!rpw_listener_create(ctx, "127.0.0.1:0", on_accept, NULL, &l), "a listener");
	int port = rpw_listener_port(l);
	for (unsigned i = 0; i < opt.n; i++)
		need(write(told, &port, sizeof(port)) == sizeof(port), "the port");
	know_all();
	rate(opt.n, 1000);
	uint64_t n = (uint64_t)(rate(1, 50000) * (double)opt.run_ns / 1e9) / opt.n + 1;
	for (unsigned i = 0; i < opt.rounds; i++) {
		peer[i] = rate(1, n * opt.n) / 1e6;
		ours[i] = rate(opt.n, n) / 1e6;
		ratio[i] = ours[i] / peer[i];
	}
	double us = median(ours, opt.rounds), it = median(peer, opt.rounds),
	       by = median(ratio, opt.rounds);
	if (opt.json)
		printf(" {\"name\": \"%s_%u_to_1\", \"ours\": %.6g, \"peer\": %.6g, "
		       "\"unit\": \"M/s\", \"better\": \"higher\", \"ratio\": %.4g, "
		       "\"goal\": null, \"peer_name\": \"one process\"}",
			transport, opt.n, us, it, by);
	else
		printf("%s: %u processes send to one: %.4g M/s, one process %.4g, ratio %.3f\n",
			transport, opt.n, us, it, by);
	fflush(stdout);
	for (unsigned i = 0; i < opt.n; i++)
		ask(i, 0);
	while (rpw_context_statistics(ctx, &s) == RPW_OK && s.unsent)
		rpw_context_progress(ctx);
}

/* ---- both ---- */

static void context(const char *transport)
{
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	alarm(DEADLINE_S);
	need(!rpw_context_create(&o, &ctx), "a context");
}

/* This process only waits, so that each transport begins with fresh processes. */
static int run(const char *transport, bool first)
{
	int told[2], status, bad = 0;
	if (pipe(told))
		die("pipe");
	if (opt.json && !first)
		puts(",");
	fflush(stdout);
	for (unsigned i = 0; i <= opt.n; i++) {
		int port;
		if (child(opt.cpu[i == opt.n]))
			continue;
		context(transport);
		if (i == opt.n) {
			receive(transport, told[1]);
			_exit(0);
		}
		need(read(told[0], &port, sizeof(port)) == sizeof(port), "the port");
		send_when_asked(i, port);
	}
	close(told[0]);
	close(told[1]);
	while (wait(&status) > 0)
		bad |= !WIFEXITED(status) || WEXITSTATUS(status);
	return bad;
}

static const char usage[] = "[-t LIST] [-n SENDERS] [-r ROUNDS] [-s SECONDS] [-c A,B] [-j]\n"
			    "  -t shm,tcp,verbs  transports (default shm,tcp)";

int main(int argc, char **argv)
{
	const struct flag flags[] = {{'t', TEXT, &opt.transports}, {'n', NUMBER, &opt.n},
		{'r', NUMBER, &opt.rounds}, {'s', DURATION, &opt.run_ns}, {'c', CPUS, opt.cpu},
		{'j', FLAG, &opt.json}, {0}};
	char list[64], *at = list, *transport;
	int bad = 0;

	take_flags(argc, argv, flags, usage);
	need_usage(opt.n && opt.n <= SENDERS_MAX && opt.rounds && opt.rounds <= ROUNDS_MAX &&
			   opt.run_ns,
		usage);
	snprintf(list, sizeof(list), "%s", opt.transports);
	if (opt.json)
		puts("[");
	while ((transport = strsep(&at, ",")))
		bad |= run(transport, transport == list);
	if (opt.json)
		puts("\n]");
	return bad;
}
