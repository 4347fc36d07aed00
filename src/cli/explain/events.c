/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c - `ropeway explain-events`, which the preloaded library starts (explain/trace.h): its
 * standard input is the socket of a program, whose events become an account. The program waits
 * for the answers to its words. */
#include "cli/explain/explain.h"

#include "near/memory.h"
#include "near/process.h"
#include "near/rights.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

/* After the first line others come soon: one turn on a CPU for all of them. The program's next word
 * ends the pause. */
enum { PAUSE_MS = 10 };

/* The log, NULL: none came. */
static struct rpwi_explain_log *take_log(void)
{
	char word = 0;
	struct iovec to = {&word, 1};
	int fds[RPWI_RIGHTS_MAX];
	struct rpwi_explain_log *log = NULL;
	if (rpwi_rights_recv(STDIN_FILENO, &to, 1, fds) == 1 && word == RPWI_EXPLAIN_BEGIN &&
		fds[0] >= 0)
		log = rpwi_memory_take(fds[0], sizeof(*log), RPWI_MEMORY_WRITE);
	rpwi_rights_close(fds, RPWI_RIGHTS_MAX);
	return log && log->layout == RPWI_EXPLAIN_LAYOUT ? log : NULL;
}

static void answer(void) { send(STDIN_FILENO, "", 1, MSG_NOSIGNAL); }

/* RPWI_EXPLAIN_END also where the program has ended, and nothing of it is left to be read. */
static char next_word(int program)
{
	char word;
	struct pollfd p[] = {
		{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = program, .events = POLLIN}};
	while (poll(p, 2, -1) < 0)
		if (errno != EINTR)
			return RPWI_EXPLAIN_END;
	if (!p[0].revents || recv(STDIN_FILENO, &word, 1, 0) != 1)
		return RPWI_EXPLAIN_END;
	return word;
}

int rpwi_cli_explain_events(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	struct rpwi_explain_log *log = take_log();
	struct ex_account *a = log ? rpwi_explain_account(stdout, log) : NULL;
	if (!a)
		return rpwi_cli_fail(CLI_FAILED, "ropeway explain-events",
			"for the library: standard input is no socket of a program");
	int program = rpwi_process_open(log->pid);
	fflush(stdout);
	answer();
	char word;
	while ((word = next_word(program)) != RPWI_EXPLAIN_END) {
		struct pollfd more = {.fd = STDIN_FILENO, .events = POLLIN};
		if (word == RPWI_EXPLAIN_SHOW)
			poll(&more, 1, PAUSE_MS);
		rpwi_explain_account_show(a);
		if (word == RPWI_EXPLAIN_WAIT)
			answer();
	}
	rpwi_explain_account_end(a);
	clearerr(stdout);
	answer();
	return CLI_OK;
}
