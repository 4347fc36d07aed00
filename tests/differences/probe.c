/* SPDX-License-Identifier: BSD-3-Clause */
/* probe.c - asks the device of an address more than 600 questions. One program for every device:
 * on kernel rxe it runs as it is, on ours with the drop-in preloaded.
 *
 *   probe -a ADDRESS -x ABSENT [-j N] [NAME...]    `name<TAB>answer`, a line each; a NAME may be
 *                                                  the beginning of several
 *   probe --list                                   `name<TAB>what it asks`
 *
 * ABSENT is an address of the same subnet that nobody has. Each question is asked by a process of
 * its own, N at a time: a crash is the answer `CRASH signal`, and one that has not ended after its
 * deadline `HANG`. tests/differences/run.py compares the answers.
 */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER = 1000, DEADLINE_S = 60, AT_ONCE = 16 };

struct sockaddr_in host, absent;

static const struct question *const subjects[] = {device_questions, object_questions,
	memory_questions, state_questions, post_questions, data_questions, fault_questions,
	datagram_questions, cm_questions};

/* ---- the answer: in the process that asks ---- */

static char answer[ANSWER];
static int answer_fd = -1;

void say(const char *format, ...)
{
	size_t len = strlen(answer);
	va_list args;

	if (len && len + 2 < sizeof(answer)) {
		memcpy(answer + len, "; ", 3);
		len += 2;
	}
	va_start(args, format);
	vsnprintf(answer + len, sizeof(answer) - len, format, args);
	va_end(args);
}

/* What has been said counts also where the process then crashes. */
static void send_answer(void)
{
	if (write(answer_fd, answer, strlen(answer)) < 0)
		_exit(1);
}

void give_up(const char *what, const char *file, int line)
{
	const char *name = strrchr(file, '/');
	int code = errno;

	answer[0] = 0;
	say("SETUP %s:%d: %s: %s", name ? name + 1 : file, line, what, errno_word(code));
	send_answer();
	_exit(0);
}

void wrong_bytes(const char *where)
{
	answer[0] = 0;
	say("WRONG BYTES: %s", where);
	send_answer();
	_exit(0);
}

const char *errno_word(int rc)
{
	static char number[24];
	int code = rc < 0 ? errno : rc;
	const char *name = strerrorname_np(code);

	if (code == EOPNOTSUPP) /* ENOTSUP has the same number */
		return "EOPNOTSUPP";
	/* ENOTSUPP, 524, is the kernel's own, and has no name here. */
	snprintf(number, sizeof(number), "errno %d", code);
	return rc == 0 ? "0" : name ? name : number;
}

void say_rc(const char *name, int rc) { say("%s: %s", name, errno_word(rc)); }

void say_made(const char *name, const void *object)
{
	say("%s: %s", name, object ? "made" : errno_word(-1));
}

const char *status_word(enum ibv_wc_status status)
{
	static const char *const words[] = {"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR",
		"LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR",
		"LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR",
		"RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR",
		"REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR",
		"RESP_TIMEOUT_ERR", "GENERAL_ERR"};

	return status < sizeof(words) / sizeof(*words) ? words[status] : "?";
}

const char *opcode_word(enum ibv_wc_opcode opcode)
{
	static const char *const words[] = {"SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP",
		"FETCH_ADD", "BIND_MW", "LOCAL_INV", "TSO"};

	return opcode == IBV_WC_RECV                     ? "RECV"
	       : opcode == IBV_WC_RECV_RDMA_WITH_IMM     ? "RECV_RDMA_WITH_IMM"
	       : opcode < sizeof(words) / sizeof(*words) ? words[opcode]
							 : "?";
}

const char *state_word(enum ibv_qp_state state)
{
	static const char *const words[] = {
		"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN"};

	return state < sizeof(words) / sizeof(*words) ? words[state] : "?";
}

const char *event_word(enum ibv_event_type type)
{
	static const char *const words[] = {"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR",
		"COMM_EST", "SQ_DRAINED", "PATH_MIG", "PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE",
		"PORT_ERR", "LID_CHANGE", "PKEY_CHANGE", "SM_CHANGE", "SRQ_ERR",
		"SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER", "GID_CHANGE"};

	return type < sizeof(words) / sizeof(*words) ? words[type] : "?";
}

/* ---- the questions, each in a child ---- */

struct child {
	const struct question *q;
	pid_t pid;
	int fd;
	double began;
	char text[2 * ANSWER];
	size_t len;
	bool done;
};

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void sleep_ms(int ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

static void ask(const struct question *q, int fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	answer_fd = fd;
	q->ask(q);
	send_answer();
	/* Without the exit handlers: whether an end in good order works is not what was asked. */
	_exit(0);
}

static void begin(struct child *c, const struct question *q)
{
	int out[2];

	*c = (struct child){.q = q, .began = now()};
	if (pipe(out)) {
		perror("probe: pipe");
		exit(1);
	}
	c->pid = fork();
	if (c->pid < 0) {
		perror("probe: fork");
		exit(1);
	}
	if (!c->pid) {
		close(out[0]);
		ask(q, out[1]);
	}
	close(out[1]);
	c->fd = out[0];
}

/* One that ended, or that ends now since its time is over. */
static void finish(struct child *c, bool hangs)
{
	int status = 0;

	if (hangs)
		kill(c->pid, SIGKILL);
	waitpid(c->pid, &status, 0);
	close(c->fd);
	c->text[c->len] = 0;
	c->done = true;
	if (hangs)
		strcpy(c->text, "HANG");
	else if (WIFSIGNALED(status))
		snprintf(c->text, sizeof(c->text), "CRASH %s", sigabbrev_np(WTERMSIG(status)));
}

static void serve(struct child *c, short revents)
{
	if (revents) {
		ssize_t n = read(c->fd, c->text + c->len, sizeof(c->text) - 1 - c->len);

		if (n > 0) {
			c->len += (size_t)n;
			return;
		}
		finish(c, false);
	} else if (now() - c->began > DEADLINE_S) {
		finish(c, true);
	}
}

/* Asked several at a time, told in their order. */
static void ask_all(const struct question *const *list, size_t n, size_t at_once)
{
	struct child *children = calloc(n + 1, sizeof(*children));
	size_t begun = 0, told = 0;

	if (!children)
		exit(1);
	while (told < n) {
		struct pollfd fds[AT_ONCE];
		struct child *of[AT_ONCE];
		nfds_t live = 0;

		for (size_t i = told; i < begun; i++)
			live += !children[i].done;
		while (begun < n && live < at_once) {
			begin(&children[begun], list[begun]);
			begun++;
			live++;
		}
		live = 0;
		for (size_t i = told; i < begun && live < AT_ONCE; i++) {
			if (children[i].done)
				continue;
			fds[live] = (struct pollfd){.fd = children[i].fd, .events = POLLIN};
			of[live++] = &children[i];
		}
		poll(fds, live, 200);
		for (nfds_t i = 0; i < live; i++)
			serve(of[i], fds[i].revents);
		for (; told < begun && children[told].done; told++)
			printf("%s\t%s\n", children[told].q->name, children[told].text);
		fflush(stdout);
	}
	free(children);
}

static bool is_wanted(const struct question *q, char **names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strncmp(q->name, names[i], strlen(names[i])))
			return true;
	return n == 0;
}

static void list_all(void)
{
	for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
		for (const struct question *q = subjects[i]; q->name; q++)
			printf("%s\t%s\n", q->name, q->what);
}

static void parse_address(const char *text, struct sockaddr_in *out)
{
	out->sin_family = AF_INET;
	if (inet_pton(AF_INET, text, &out->sin_addr) == 1)
		return;
	fprintf(stderr, "probe: '%s' is no IPv4 address\n", text);
	exit(2);
}

int main(int argc, char **argv)
{
	const struct question *wanted[1000];
	size_t n = 0, at_once = 4;
	int option;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		list_all();
		return 0;
	}
	while ((option = getopt(argc, argv, "a:x:j:")) != -1) {
		if (option == 'a')
			parse_address(optarg, &host);
		else if (option == 'x')
			parse_address(optarg, &absent);
		else if (option == 'j')
			at_once = (size_t)atoi(optarg);
		else
			return 2;
	}
	if (!host.sin_family || !absent.sin_family || at_once < 1 || at_once > AT_ONCE) {
		fprintf(stderr, "usage: probe -a ADDRESS -x ABSENT [-j N] [NAME...] | --list\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
		for (const struct question *q = subjects[i]; q->name; q++)
			if (is_wanted(q, argv + optind, argc - optind) && n < 1000)
				wanted[n++] = q;
	ask_all(wanted, n, at_once);
	return 0;
}
