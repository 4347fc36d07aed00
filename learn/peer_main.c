/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_main.c - rdma-server, rdma-client, rdma-send-recv-server and rdma-send-recv-client: their
 * options, and one loop over everything that can happen: events of rdma_cm, completions of each
 * connection, deadlines, signals.
 *
 * Nothing in it blocks but epoll_wait(): the event channel and the completion channels are
 * descriptors, and all are non-blocking. So a peer that is slow, silent or hostile costs the others
 * nothing, and no connection needs a thread. */
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "peer.h"

/* ---- start and stop ---- */

static void loop_start(struct loop *loop)
{
	struct epoll_event watch = {.events = EPOLLIN};
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, NULL); /* they are read, as everything else is */
	loop->signals = signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	loop->channel = rdma_create_event_channel();
	if (!loop->channel)
		die("this machine has no rdma_cm (%s): start this program with \"ropeway run --\", "
		    "or as root load the kernel's (modprobe rdma_ucm)",
			strerror(errno));
	fcntl(loop->channel->fd, F_SETFL, O_NONBLOCK);
	epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->channel->fd, &watch);
	epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->signals, &watch);
	if (loop->options->server)
		server_start(loop);
	else
		client_start(loop);
}

static void stop_if_asked(struct loop *loop)
{
	struct signalfd_siginfo info;

	if (read(loop->signals, &info, sizeof(info)) < 0)
		return;
	for (struct peer *p = loop->peers; p; p = p->next) {
		if (loop->stopping) /* asked twice: at once */
			p->phase = PHASE_OVER;
		else if (p->phase != PHASE_END) /* which ends by itself */
			peer_abort(p, "is left alone: this program was asked to end");
	}
	loop->stopping = loop->asked = true;
}

/* ---- the loop ---- */

/* Ends those that are late, frees those that are over. Milliseconds until the first deadline; a
 * minute where there is none. */
static int look_after_peers(struct loop *loop)
{
	uint64_t now = now_ms(), first = now + 60000;
	struct peer **at = &loop->peers, *p;

	while ((p = *at)) {
		if (p->phase != PHASE_OVER && p->deadline_ms <= now)
			take_lateness(p);
		if (p->phase == PHASE_OVER) {
			*at = p->next;
			loop->over++;
			loop->failed += p->failed;
			peer_free(p);
			continue;
		}
		if (p->deadline_ms < first)
			first = p->deadline_ms;
		at = &p->next;
	}
	return (int)(first - now);
}

static bool nothing_left(const struct loop *loop)
{
	unsigned count = loop->options->count;

	if (loop->peers)
		return false;
	return !loop->listener || loop->stopping || (count && loop->over >= count);
}

static int loop_run(const struct peer_options *options)
{
	struct loop loop = {.options = options};
	struct epoll_event events[64];
	bool excused;

	for (loop_start(&loop);;) {
		int ms = look_after_peers(&loop), n;

		if (nothing_left(&loop))
			break;
		n = epoll_wait(loop.epoll, events, sizeof(events) / sizeof(events[0]), ms);
		/* Completions before events: first what a peer sent before it left. */
		for (int i = 0; i < n; i++)
			if (events[i].data.ptr)
				take_completions(events[i].data.ptr);
		take_events(&loop);
		stop_if_asked(&loop);
	}
	/* A server that was asked to end has done its work, whatever became of single clients. */
	excused = loop.listener && loop.asked;
	if (loop.listener)
		rdma_destroy_id(loop.listener);
	rdma_destroy_event_channel(loop.channel);
	close(loop.signals);
	close(loop.epoll);
	return loop.failed && !excused;
}

/* ---- options ---- */

enum {
	MEMORY = 1 << RDMA_SERVER | 1 << RDMA_CLIENT,
	SERVERS = 1 << RDMA_SERVER | 1 << TEXT_SERVER,
	CLIENTS = 1 << RDMA_CLIENT | 1 << TEXT_CLIENT,
	ALL = SERVERS | CLIENTS,
};

static const struct program programs[] = {
	{1 << RDMA_SERVER, "rdma-server", N_("<write|read> [port]"),
		N_("With each client: write to the other's memory, or read from it, by RDMA.\n")},
	{1 << RDMA_CLIENT, "rdma-client", N_("<write|read> <server address> [port]"),
		N_("Write to the server's memory, or read from it, by RDMA, while the server does "
		   "the same.\n")},
	{1 << TEXT_SERVER, "rdma-send-recv-server", N_("[port]"),
		N_("Send a greeting to each client, and print what it sends.\n")},
	{1 << TEXT_CLIENT, "rdma-send-recv-client", N_("<server address> [port]"),
		N_("Send a text to the server, and print its greeting.\n")},
};

int peer_main(enum which which, int argc, char **argv)
{
	const char *const mode_missing =
		N_("the first argument must be \"write\" or \"read\", the same on both sides");
	const char *mode = "read";
	struct peer_options opt = {
		.server = SERVERS & 1 << which,
		.port = 22222,
		.wait_s = 15,
	};
	const struct flag flags[] = {
		{MEMORY, 0, "write|read", .help = N_("what both sides do"), .text = &mode,
			.missing = mode_missing},
		{CLIENTS, 0, "server address", .help = N_("address of the server"),
			.text = &opt.address, .missing = N_("the server's address is missing")},
		{CLIENTS, 0, "port", .help = N_("port of rdma_cm"), .number = &opt.port, .min = 1,
			.max = 65535},
		{SERVERS, 0, "port", .help = N_("port of rdma_cm; 0: any that is free"),
			.number = &opt.port, .max = 65535},
		{ALL, 'w', "wait", "N", N_("seconds that any wait may take"), .number = &opt.wait_s,
			.min = 1, .max = 3600},
		{SERVERS, 'b', "bind", "ADDR", N_("listen on this address alone (all)"),
			.text = &opt.address},
		{SERVERS, 'n', "count", "N", N_("end after N clients (never)"),
			.number = &opt.count, .min = 1, .max = 1000000},
		{1 << TEXT_SERVER, 's', "silent",
			.help = N_("never send the greeting, to see what becomes of a client that "
				   "waits for it"),
			.yes = &opt.silent},
		{ALL, 'v', "verbose", .help = N_("print the status of each completion"),
			.yes = &opt.verbose},
		{0},
	};

	options_parse(&programs[which], flags, argc, argv);
	if (strcmp(mode, "read") != 0 && strcmp(mode, "write") != 0)
		die("%s (--help shows the order)", _(mode_missing));
	if (MEMORY & 1 << which)
		opt.mode = strcmp(mode, "read") ? MODE_WRITE : MODE_READ;
	else
		opt.mode = MODE_TEXT;
	return loop_run(&opt);
}
