/* SPDX-License-Identifier: BSD-3-Clause */
/* epoll_loop.c - ropeway in a program that has a loop of its own: a chat. What you type goes to the
 * other side, what it types is printed.
 *
 *   epoll_loop listen ADDRESS      for example  epoll_loop listen :7474
 *   epoll_loop connect ADDRESS                  epoll_loop connect 127.0.0.1:7474
 *
 * One epoll set waits for the keyboard and for the context. Before it sleeps, the context is armed:
 * only then does its descriptor become readable. Lines go as active messages, which call a function
 * at the receiver; no receive is posted. End of input (Ctrl-D) says goodbye; it is over when both
 * have said so. */
#include "example.h"

#include <sys/epoll.h>
#include <unistd.h>

enum { LINE = 1, BYE = 2 }; /* active messages, and what each calls */

static rpw_endpoint *peer;
static int said_bye, heard_bye, closed;

static void line_came(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	(void)ep, (void)header, (void)header_len, (void)arg;
	/* `data` is ours only during the call. It may hold anything: here it is only copied. */
	fwrite(data, 1, len, stdout);
	fflush(stdout);
}

static void bye_came(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	(void)ep, (void)header, (void)header_len, (void)data, (void)len, (void)arg;
	heard_bye = 1;
}

static void peer_left(rpw_endpoint *ep, int status, void *arg)
{
	(void)ep, (void)arg;
	if (!heard_bye)
		fprintf(stderr, "the other side is gone without a goodbye (%s)\n",
			rpw_status_name(status));
	closed = 1;
}

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	(void)l, (void)arg;
	if (peer) {
		rpw_endpoint_destroy(ep);
		return;
	}
	peer = ep;
	rpw_endpoint_on_close(ep, peer_left, NULL);
	print_path(ep);
}

/* Called when the keyboard has something. Sending never blocks: what cannot go now is kept until
 * the request is complete, so its bytes are, too. */
static void sent(rpw_request *req, const rpw_completion *done, void *bytes)
{
	(void)done;
	free(bytes);
	rpw_request_destroy(req);
}

static void send_typed(void)
{
	char *bytes = malloc(4096);
	rpw_request *req = NULL;

	if (!bytes)
		exit(1);
	ssize_t n = read(STDIN_FILENO, bytes, 4096);
	if (n <= 0) {
		said_bye = 1;
		must(rpw_am_send(peer, BYE, NULL, 0, NULL, 0, NULL), "rpw_am_send");
		free(bytes);
		return;
	}
	if (must(rpw_am_send(peer, LINE, NULL, 0, bytes, (size_t)n, &req), "rpw_am_send") ==
		RPW_IN_PROGRESS)
		rpw_request_on_done(req, sent, bytes);
	else
		free(bytes);
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) {
		perror("epoll_ctl (a plain file cannot be waited for: cat it into a pipe)");
		exit(1);
	}
}

static void loop(rpw_context *c)
{
	struct epoll_event ready[2];
	int epoll = epoll_create1(0), typing = 0;

	watch(epoll, rpw_context_fd(c));
	while (!closed && !(said_bye && heard_bye)) {
		if (peer && !typing) { /* from now on somebody is there to read it */
			watch(epoll, STDIN_FILENO);
			typing = 1;
		}
		if (rpw_context_progress(c) ||
			must(rpw_context_arm(c), "rpw_context_arm") == RPW_IN_PROGRESS)
			continue;
		int n = epoll_wait(epoll, ready, 2, -1);
		for (int i = 0; i < n; i++) {
			if (ready[i].data.fd != STDIN_FILENO)
				continue; /* rpw_context_progress, in the next round */
			send_typed();
			if (said_bye)
				epoll_ctl(epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
		}
	}
	close(epoll);
}

int main(int argc, char **argv)
{
	rpw_context *c;
	rpw_listener *l = NULL;
	rpw_request *req;

	if (argc < 3 || (strcmp(argv[1], "listen") != 0 && strcmp(argv[1], "connect") != 0)) {
		fprintf(stderr, "Usage: epoll_loop listen|connect ADDRESS\n");
		return 2;
	}
	must(rpw_context_create(NULL, &c), "rpw_context_create");
	must(rpw_context_on_am(c, LINE, line_came, NULL), "rpw_context_on_am");
	must(rpw_context_on_am(c, BYE, bye_came, NULL), "rpw_context_on_am");
	if (!strcmp(argv[1], "listen")) {
		l = listen_on(c, argv[2], accepted, NULL);
	} else {
		must(rpw_finish(rpw_endpoint_create(c, argv[2], NULL, &peer, &req), &req,
			     TIMEOUT_MS, NULL),
			"rpw_endpoint_create");
		rpw_endpoint_on_close(peer, peer_left, NULL);
		print_path(peer);
	}
	loop(c);
	/* Our goodbye has to arrive before the endpoint is closed. */
	if (!closed && rpw_endpoint_flush(peer, &req) == RPW_IN_PROGRESS) {
		rpw_request_wait(req, TIMEOUT_MS, NULL);
		rpw_request_destroy(req);
	}
	rpw_endpoint_destroy(peer);
	rpw_listener_destroy(l);
	rpw_context_destroy(c);
	return heard_bye ? 0 : 1;
}
