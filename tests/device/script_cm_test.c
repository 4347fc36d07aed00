/* SPDX-License-Identifier: BSD-3-Clause */
/* script_cm_test.c - fault scripts and rdma_cm: a client and a server by the distribution's
 * librdmacm, in a process each, so each case has a script for the one or the other.
 *
 * What each saw is a word: the call that failed and its errno, or the event that ended it.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"

enum { PORT = 18631, EVENT_MS = 30000 };

static void load(const char *script)
{
	char path[64];
	int fd = memfd_create("script", 0);
	if (fd < 0 || write(fd, script, strlen(script)) != (ssize_t)strlen(script))
		_exit(3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	setenv("ROPEWAY_FAULT", path, 1);
}

/* What one side saw: written to its pipe, at its end. */
static int report_fd;
static void end(const char *word, int number)
{
	char line[80];
	int n = snprintf(line, sizeof(line), "%s %d", word, number);
	if (write(report_fd, line, (size_t)n) != n)
		_exit(3);
	exit(0); /* as a program ends: its peers are told */
}
static void need(int failed, const char *call)
{
	if (failed)
		end(call, errno);
}

static struct rdma_event_channel *channel;
/* The next event, acknowledged; its id in *id. */
static enum rdma_cm_event_type next(struct rdma_cm_id **id, int *status)
{
	struct rdma_cm_event *e;
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	if (poll(&p, 1, EVENT_MS) != 1)
		end("silence", 0);
	need(rdma_get_cm_event(channel, &e), "get_cm_event");
	enum rdma_cm_event_type type = e->event;
	*id = e->id;
	*status = e->status;
	rdma_ack_cm_event(e);
	return type;
}
static struct rdma_cm_id *wait_for(enum rdma_cm_event_type type)
{
	struct rdma_cm_id *id;
	int status;
	enum rdma_cm_event_type got = next(&id, &status);
	if (got != type)
		end(rdma_event_str(got), status < 0 ? -status : status);
	return id;
}

static void qp_make(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	need(rdma_create_qp(id, NULL, &a), "create_qp");
}

static void server(int ready)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(PORT),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *l, *id;
	need(!(channel = rdma_create_event_channel()), "create_event_channel");
	need(rdma_create_id(channel, &l, NULL, RDMA_PS_TCP), "create_id");
	need(rdma_bind_addr(l, (struct sockaddr *)&a), "bind_addr");
	need(rdma_listen(l, 4), "listen");
	if (write(ready, "r", 1) != 1)
		_exit(3);
	id = wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
	qp_make(id);
	need(rdma_accept(id, &param), "accept");
	wait_for(RDMA_CM_EVENT_ESTABLISHED);
	wait_for(RDMA_CM_EVENT_DISCONNECTED);
	need(rdma_disconnect(id), "disconnect");
	end("done", 0);
}

static void client(int ready)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(PORT),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	struct rdma_cm_id *id;
	char r;
	if (read(ready, &r, 1) != 1)
		end("no server", 0);
	need(!(channel = rdma_create_event_channel()), "create_event_channel");
	need(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "create_id");
	need(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), "resolve_addr");
	wait_for(RDMA_CM_EVENT_ADDR_RESOLVED);
	need(rdma_resolve_route(id, 1000), "resolve_route");
	wait_for(RDMA_CM_EVENT_ROUTE_RESOLVED);
	qp_make(id);
	need(rdma_connect(id, &param), "connect");
	wait_for(RDMA_CM_EVENT_ESTABLISHED);
	need(rdma_disconnect(id), "disconnect");
	wait_for(RDMA_CM_EVENT_DISCONNECTED);
	end("done", 0);
}

static pid_t start(void (*side)(int), int ready, int close_fd, const char *script, int *from)
{
	int p[2];
	assert_int_equal(pipe(p), 0);
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(p[0]);
		close(close_fd);
		report_fd = p[1];
		alarm(90);
		load(script);
		side(ready);
	}
	close(p[1]);
	*from = p[0];
	return pid;
}

static void told(int fd, char out[80])
{
	ssize_t n = read(fd, out, 79);
	out[n > 0 ? n : 0] = 0;
	close(fd);
}

static const struct {
	const char *client, *server;         /* scripts */
	const char *saw_client, *saw_server; /* how it begins; NULL: does not matter */
} rows[] = {
	{"# nothing\n", "# nothing\n", "done", "done"},
	/* calls */
	{"rdma_create_id: ENOMEM", "", "create_id 12", NULL},
	{"", "rdma_bind_addr 1: EADDRINUSE", "no server", "bind_addr 98"},
	{"", "rdma_listen: ENOSPC", "no server", "listen 28"},
	{"rdma_resolve_addr: EHOSTUNREACH", "", "resolve_addr 113", NULL},
	{"rdma_resolve_addr 1: event ADDR_ERROR", "", "RDMA_CM_EVENT_ADDR_ERROR 110", NULL},
	{"rdma_resolve_route: EINVAL", "", "resolve_route 22", NULL},
	{"rdma_resolve_route: event ROUTE_ERROR", "", "RDMA_CM_EVENT_ROUTE_ERROR 110", NULL},
	{"rdma_connect: ENODEV", "", "connect 19", NULL},
	{"rdma_connect: event UNREACHABLE", "", "RDMA_CM_EVENT_UNREACHABLE 110", NULL},
	{"rdma_connect: event CONNECT_ERROR", "", "RDMA_CM_EVENT_CONNECT_ERROR 110", NULL},
	{"rdma_connect: event DEVICE_REMOVAL", "", "RDMA_CM_EVENT_DEVICE_REMOVAL", NULL},
	{"", "rdma_accept 1: ENOMEM", "RDMA_CM_EVENT_REJECTED", "accept 12"},
	{"rdma_disconnect 1: EINVAL", "", "disconnect 22", "done"},
	{"create_qp 1: ENOMEM", "", "create_qp 12", NULL},
	{"modify_qp RTR 1: EINVAL", "", "RDMA_CM_EVENT_CONNECT_ERROR", NULL},
	/* messages: what is lost is sent again, what comes twice or late does no harm */
	{"cm REQ 1: lose", "", "done", "done"},
	/* only the second of the two gets there */
	{"cm REQ 1: dup\ncm REQ 2..: lose", "cm REQ received 1: lose", "done", "done"},
	{"cm REQ 1: delay 300 ms\ncm REQ 2..: lose", "", "done", "done"},
	{"", "cm REQ received 1: lose", "done", "done"},
	{"", "cm REP 1: lose", "done", "done"},
	{"", "cm REP 1: dup", "done", "done"},
	{"cm REP received 1..2: lose", "", "done", "done"},
	{"cm RTU 1: lose", "", "done", "done"},
	{"cm DREQ 1: lose", "", "done", "done"},
	{"", "cm DREP 1: lose", "done", "done"},
	{"", "cm DREQ received 1: delay 300 ms\ncm DREQ received 2..: lose", "done", "done"},
	/* refused, by the peer and as if by the peer */
	{"cm REQ: reject NO_RESOURCES", "", "RDMA_CM_EVENT_REJECTED 3", NULL},
	{"", "cm REQ received 1: reject CONSUMER_DEFINED", "RDMA_CM_EVENT_REJECTED 28", NULL},
	{"", "cm REQ received 1: reject 4", "RDMA_CM_EVENT_REJECTED 4", NULL},
};

static void rdma_cm_meets_faults(void **state)
{
	unsigned bad = 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		IN_CASE("row", i);
		char saw[2][80];
		int ready[2], from[2], status;
		assert_int_equal(pipe(ready), 0);
		pid_t s = start(server, ready[1], ready[0], rows[i].server, &from[1]);
		close(ready[1]);
		pid_t c = start(client, ready[0], from[1], rows[i].client, &from[0]);
		close(ready[0]);
		told(from[0], saw[0]);
		assert_int_equal(waitpid(c, &status, 0), c);
		if (!rows[i].saw_server)
			kill(s, SIGKILL); /* one whose client never came */
		told(from[1], saw[1]);
		assert_int_equal(waitpid(s, &status, 0), s);
		bool good = !strncmp(saw[0], rows[i].saw_client, strlen(rows[i].saw_client)) &&
			    (!rows[i].saw_server || !strncmp(saw[1], rows[i].saw_server,
							    strlen(rows[i].saw_server)));
		if (!good)
			print_error("client '%s', server '%s': they saw '%s', '%s'\n",
				rows[i].client, rows[i].server, saw[0], saw[1]);
		bad += !good;
	}
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(rdma_cm_meets_faults)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
