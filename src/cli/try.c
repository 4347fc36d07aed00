/* SPDX-License-Identifier: BSD-3-Clause */
/* try.c - can the real devices of this machine make a queue pair? Some list themselves, answer
 * queries and can not: the devices of hosted CI runners, a NIC without its RDMA functions.
 *
 * A driver may crash, or wait for hardware that does not answer. So another process asks it, whose
 * parent waits for it and says what became of it (a supervisor); this process reads what they say
 * until the deadline, and then kills both. One that not even SIGKILL ends has no parent here any
 * more: nobody waits for it.
 */
#include "base/choice.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_S = 2, ANSWER_MAX = 8192 };

struct trial {
	pid_t supervisor; /* 0: none could be started */
	int fd;
};

/* ---- the other process ---- */

/* What a driver prints is none of this command's output, and its crash leaves no file. */
static void quiet(void)
{
	const struct rlimit none_of_core = {0};
	int none = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (none >= 0) {
		dup2(none, STDOUT_FILENO);
		dup2(none, STDERR_FILENO);
	}
	setrlimit(RLIMIT_CORE, &none_of_core);
	alarm(DEADLINE_S + 1); /* if whoever began this is gone */
}

static void supervise(pid_t child, int fd)
{
	int status = 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		dprintf(fd, "the attempt ended with signal %d (%s)\n", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	_exit(0);
}

/* `run` writes lines to fd. */
static struct trial begin(void (*run)(int fd, const char *name), const char *name)
{
	struct trial t = {0};
	int p[2];
	if (pipe2(p, O_CLOEXEC))
		return t;
	t.supervisor = fork();
	if (t.supervisor < 0)
		t.supervisor = 0;
	else if (!t.supervisor) {
		setsid();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		quiet();
		close(p[0]);
		pid_t child = fork();
		if (!child) {
			quiet();
			setenv("ROPEWAY_DEVICES", "first", 1); /* hidden ones, too */
			run(p[1], name);
			_exit(0);
		}
		if (child > 0)
			supervise(child, p[1]);
		_exit(1);
	}
	close(p[1]);
	t.fd = p[0];
	if (!t.supervisor)
		close(p[0]);
	return t;
}

/* All that it writes, at most until then. False: it did not end in time. */
static bool end(struct trial *t, uint64_t until_ns, char answer[ANSWER_MAX])
{
	size_t used = 0;
	bool ended = false;
	while (t->supervisor && !ended) {
		uint64_t now_ns = rpwi_now_ns();
		struct pollfd p = {.fd = t->fd, .events = POLLIN};
		int left_ms = now_ns < until_ns ? (int)((until_ns - now_ns) / 1000000) + 1 : 0;
		int ready = poll(&p, 1, left_ms);
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			break;
		ssize_t n = read(t->fd, answer + used, ANSWER_MAX - 1 - used);
		ended = n <= 0;
		used += n > 0 ? (size_t)n : 0;
	}
	answer[used] = '\0';
	if (!t->supervisor)
		return true;
	bool full = used == ANSWER_MAX - 1;
	if ((!ended || full) && kill(-t->supervisor, SIGKILL))
		kill(t->supervisor, SIGKILL);
	close(t->fd);
	while (waitpid(t->supervisor, NULL, 0) < 0 && errno == EINTR)
		;
	return ended;
}

/* ---- what is tried ---- */

static bool is_real(struct ibv_device *d) { return !rpwi_choice_is_ours(ibv_get_device_name(d)); }

static void say_names(int fd, const char *unused)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	(void)unused;
	for (int i = 0; list && list[i]; i++)
		if (is_real(list[i]))
			dprintf(fd, "%s\n", ibv_get_device_name(list[i]));
}

static void cannot(int fd, const char *call)
{
	dprintf(fd, "%s: %s\n", call, errno ? strerror(errno) : "it fails and gives no reason");
}

/* One type is enough: some NICs have no RC (EFA), others UC alone. */
static void try_qp(int fd, struct ibv_pd *pd, struct ibv_cq *cq)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_UC};
	int first = 0;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(types); i++) {
		struct ibv_qp_init_attr a = {.send_cq = cq,
			.recv_cq = cq,
			.qp_type = types[i],
			.cap = {.max_send_wr = 1,
				.max_recv_wr = 1,
				.max_send_sge = 1,
				.max_recv_sge = 1}};
		errno = 0;
		if (ibv_create_qp(pd, &a)) {
			dprintf(fd, "%s", "works\n");
			return;
		}
		if (!i)
			first = errno;
	}
	errno = first;
	cannot(fd, "ibv_create_qp");
}

static void try_one(int fd, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **d = list;
	while (d && *d && strcmp(ibv_get_device_name(*d), name) != 0)
		d++;
	errno = d && *d ? 0 : ENODEV;
	struct ibv_context *ctx = d && *d ? ibv_open_device(*d) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_cq *cq = pd ? ibv_create_cq(ctx, 4, NULL, NULL, 0) : NULL;
	if (cq)
		try_qp(fd, pd, cq);
	else if (pd)
		cannot(fd, "ibv_create_cq");
	else
		cannot(fd, ctx ? "ibv_alloc_pd" : "ibv_open_device");
}

/* ---- all of them ---- */

static void judge(struct cli_tried *t, bool ended, char *answer)
{
	answer[strcspn(answer, "\n")] = '\0';
	t->works = !strcmp(answer, "works");
	t->unsafe = !ended || !*answer || strstr(answer, "ended with signal");
	if (!t->works && !ended)
		snprintf(t->why, sizeof(t->why), "no answer in %d s", DEADLINE_S);
	else if (!t->works)
		snprintf(t->why, sizeof(t->why), "%.120s",
			*answer ? answer : "the attempt ended without an answer");
}

int rpwi_cli_reals(struct cli_tried tried[CLI_TRIED_MAX], char *why, size_t why_len)
{
	struct trial names = begin(say_names, NULL);
	char text[ANSWER_MAX], *line = text, *next;
	int n = 0;
	if (!names.supervisor) {
		snprintf(why, why_len, "no other process can be started to list them");
		return -EAGAIN;
	}
	if (!end(&names, rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S, text)) {
		snprintf(why, why_len, "listing them took more than %d s", DEADLINE_S);
		return -ETIMEDOUT;
	}
	if (strstr(text, "ended with signal")) {
		text[strcspn(text, "\n")] = '\0';
		snprintf(why, why_len, "libibverbs cannot list them: %s", text);
		return -EIO;
	}
	for (; n < CLI_TRIED_MAX && (next = strchr(line, '\n')); line = next + 1, n++) {
		*next = '\0';
		tried[n] = (struct cli_tried){0};
		snprintf(tried[n].name, sizeof(tried[n].name), "%.63s", line);
	}
	return n;
}

int rpwi_cli_try(struct cli_tried tried[CLI_TRIED_MAX], char *why, size_t why_len)
{
	struct trial t[CLI_TRIED_MAX];
	char answer[ANSWER_MAX];
	int n = rpwi_cli_reals(tried, why, why_len);
	uint64_t until_ns = rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S;
	for (int i = 0; i < n; i++)
		t[i] = begin(try_one, tried[i].name);
	for (int i = 0; i < n; i++) {
		bool ended = end(&t[i], until_ns, answer);
		judge(&tried[i], ended, answer);
	}
	return n;
}
