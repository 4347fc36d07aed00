/* SPDX-License-Identifier: BSD-3-Clause */
/* cm_cases - the behaviour of rdma_cm, case by case: two processes, each of which tells what it
 * saw.
 *
 *   cm_cases [-a ADDRESS] [-t SECONDS] CASE...     run these and print their accounts: "server:
 *                                                  ..." lines, then "client: ..." lines
 *   cm_cases --list
 *
 * ADDRESS is this host's, and belongs to an RDMA device; 127.0.0.1 if not given.
 * tests/programs/cm.py compares the accounts with those of kernel rxe.
 */
#include "side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
	const char *role;
	pid_t pid;
	int out;
	char text[65536];
	size_t len;
};

static const struct cm_case *find_case(const char *name)
{
	for (const struct cm_case *c = cm_cases; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	fprintf(stderr, "cm_cases: no case '%s'; --list shows them\n", name);
	exit(2);
}

static bool parse_address(const char *text, struct sockaddr_storage *out)
{
	struct sockaddr_in *in = (struct sockaddr_in *)out;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

	*out = (struct sockaddr_storage){0};
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		return true;
	}
	in6->sin6_family = AF_INET6;
	return inet_pton(AF_INET6, text, &in6->sin6_addr) == 1;
}

/* The process of one side: begun anew, so that nothing of the parent's device is in it. */
static int be_side(const char *role, const char *address, const struct cm_case *c)
{
	struct side s = {.is_server = !strcmp(role, "server"), .other = 3};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	parse_address(address, &s.address);
	s.channel = rdma_create_event_channel();
	if (!s.channel)
		give_up("rdma_create_event_channel: %s", errno_name(errno));
	(s.is_server ? c->server : c->client)(&s);
	rdma_destroy_event_channel(s.channel);
	return 0;
}

static void begin(struct child *child, const char *role, const char *address, const char *name,
	int meeting, int not_mine)
{
	int out[2];

	*child = (struct child){.role = role};
	if (pipe(out)) {
		perror("cm_cases: pipe");
		exit(1);
	}
	child->pid = fork();
	if (!child->pid) {
		setpgid(0, 0);
		close(not_mine);
		close(out[0]);
		dup2(out[1], 1);
		dup2(out[1], 2);
		close(out[1]);
		if (meeting != 3) {
			dup2(meeting, 3);
			close(meeting);
		}
		execl("/proc/self/exe", "cm_cases", "--side", role, address, name, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	child->out = out[0];
}

/* True while it may say more. */
static bool take(struct child *child)
{
	ssize_t n =
		read(child->out, child->text + child->len, sizeof(child->text) - 1 - child->len);

	if (n > 0)
		child->len += (size_t)n;
	return n > 0;
}

static void print_account(struct child *child)
{
	int status = 0;
	char *line, *rest = child->text;

	waitpid(child->pid, &status, 0);
	child->text[child->len] = 0;
	while ((line = strsep(&rest, "\n")) && *line)
		printf("%s: %s\n", child->role, line);
	if (WIFSIGNALED(status))
		printf("%s: (ended by signal %d)\n", child->role, WTERMSIG(status));
	else if (WEXITSTATUS(status))
		printf("%s: (ended with %d)\n", child->role, WEXITSTATUS(status));
}

static void run_case(const char *address, const char *name, int limit_s)
{
	struct child child[2];
	int meeting[2];
	bool open[2] = {true, true};

	find_case(name);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, meeting)) {
		perror("cm_cases: socketpair");
		exit(1);
	}
	begin(&child[0], "server", address, name, meeting[0], meeting[1]);
	begin(&child[1], "client", address, name, meeting[1], meeting[0]);
	close(meeting[0]);
	close(meeting[1]);
	while (open[0] || open[1]) {
		struct pollfd p[2] = {{.fd = open[0] ? child[0].out : -1, .events = POLLIN},
			{.fd = open[1] ? child[1].out : -1, .events = POLLIN}};
		int n = poll(p, 2, limit_s * 1000);

		if (n <= 0) {
			printf("TIME OUT: nothing said for %d s\n", limit_s);
			kill(-child[0].pid, SIGKILL);
			kill(-child[1].pid, SIGKILL);
			break;
		}
		for (int i = 0; i < 2; i++)
			if (p[i].revents)
				open[i] = take(&child[i]);
	}
	for (int i = 0; i < 2; i++) {
		print_account(&child[i]);
		close(child[i].out);
	}
	fflush(stdout);
}

static void list_cases(void)
{
	for (const struct cm_case *c = cm_cases; c->name; c++)
		printf("%s|%s|%s\n", c->name, c->not_on_rxe ? "own" : "rxe", c->what);
}

int main(int argc, char **argv)
{
	const char *address = "127.0.0.1";
	struct sockaddr_storage parsed;
	int option, limit_s = 45;

	if (argc == 5 && !strcmp(argv[1], "--side"))
		return be_side(argv[2], argv[3], find_case(argv[4]));
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		list_cases();
		return 0;
	}
	while ((option = getopt(argc, argv, "a:t:")) != -1) {
		if (option == 'a')
			address = optarg;
		else if (option == 't')
			limit_s = atoi(optarg);
		else
			return 2;
	}
	if (!parse_address(address, &parsed)) {
		fprintf(stderr, "cm_cases: '%s' is no address\n", address);
		return 2;
	}
	for (int i = optind; i < argc; i++) {
		if (argc - optind > 1)
			printf("[%s]\n", argv[i]);
		run_case(address, argv[i], limit_s);
	}
	return 0;
}
