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
	if (loop->server)
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
	loop->stopping = true;
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
	if (loop->peers)
		return false;
	return !loop->listener || loop->stopping || (loop->count && loop->over >= loop->count);
}

static int loop_run(struct loop *loop)
{
	struct epoll_event events[64];
	int ms, n;

	loop_start(loop);
	while (ms = look_after_peers(loop), !nothing_left(loop)) {
		n = epoll_wait(loop->epoll, events, sizeof(events) / sizeof(events[0]), ms);
		/* Completions before events: first what a peer sent before it left. */
		for (int i = 0; i < n; i++)
			if (events[i].data.ptr)
				take_completions(events[i].data.ptr);
		take_events(loop);
		stop_if_asked(loop);
	}
	if (loop->listener)
		rdma_destroy_id(loop->listener);
	rdma_destroy_event_channel(loop->channel);
	close(loop->signals);
	close(loop->epoll);
	/* A server that was asked to end has done its work, whatever became of single clients. */
	return loop->failed && !(loop->server && loop->stopping);
}

/* ---- options ---- */

enum {
	MEMORY = 1 << RDMA_SERVER | 1 << RDMA_CLIENT,
	SERVERS = 1 << RDMA_SERVER | 1 << TEXT_SERVER,
	CLIENTS = 1 << RDMA_CLIENT | 1 << TEXT_CLIENT,
	ALL = SERVERS | CLIENTS,
};

static const struct program programs[] = {
	{1 << RDMA_SERVER, "rdma-server", "<write|read> [port]",
		"With each client: write to the other's memory, or read from it, by RDMA."},
	{1 << RDMA_CLIENT, "rdma-client", "<write|read> <server address> [port]",
		"Write to the server's memory, or read from it, while the server does the same."},
	{1 << TEXT_SERVER, "rdma-send-recv-server", "[port]",
		"Send a greeting to each client, and print what it sends."},
	{1 << TEXT_CLIENT, "rdma-send-recv-client", "<server address> [port]",
		"Send a text to the server, and print its greeting."},
};

int peer_main(enum which which, int argc, char **argv)
{
	const char *mode = "read";
	struct loop loop = {.server = SERVERS & 1 << which, .port = 22222, .wait_s = 15};
	const struct flag flags[] = {
		{MEMORY, 0, "write|read", "what both sides do (\"write\" or \"read\")",
			.text = &mode, .required = true},
		{CLIENTS, 0, "server address", "the server's address", .text = &loop.address,
			.required = true},
		{CLIENTS, 0, "port", "port of rdma_cm", .number = &loop.port, .min = 1,
			.max = 65535},
		{SERVERS, 0, "port", "port of rdma_cm; 0: any that is free", .number = &loop.port,
			.max = 65535},
		{ALL, 'w', "wait", "seconds that any wait may take", .number = &loop.wait_s,
			.min = 1, .max = 3600},
		{SERVERS, 'b', "bind", "listen on this address alone (all)", .text = &loop.address},
		{SERVERS, 'n', "count", "end after so many clients (never)", .number = &loop.count,
			.min = 1, .max = 1000000},
		{1 << TEXT_SERVER, 's', "silent",
			"never send the greeting: what becomes of a client that waits for it?",
			.yes = &loop.silent},
		{ALL, 'v', "verbose", "print the status of each completion", .yes = &loop.verbose},
		{0},
	};

	options_parse(&programs[which], flags, argc, argv);
	if (strcmp(mode, "read") != 0 && strcmp(mode, "write") != 0)
		die("\"%s\" must be \"write\" or \"read\" (--help shows the order)", mode);
	loop.mode = strcmp(mode, "read") ? MODE_WRITE : MODE_READ;
	if (!(MEMORY & 1 << which))
		loop.mode = MODE_TEXT;
	return loop_run(&loop);
}
