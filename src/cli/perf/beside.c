/* SPDX-License-Identifier: BSD-3-Clause */
/* beside.c - what is left to Python: curves, and the programs that others measure with (beside.py,
 * installed with the command). */
#include "cli/perf/perf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

static int find_script(char path[PATH_MAX])
{
	static const char *const places[] = {"/src/cli", "/" ROPEWAY_LIBEXEC_FROM_BINDIR};
	if (!rpwi_cli_find(places, "beside.py", path))
		return 0;
	return rpwi_cli_fail(-1, PERF_NAME, "beside.py is not where this command was installed");
}

/* argv: python3, the script, what it is given. The script names /usr/bin/python3; an image that has
 * Python for a wheel may have it elsewhere. Returns if there is none. */
static int become(char *const argv[])
{
	execv(argv[1], argv + 1);
	if (errno == ENOENT)
		execvp(argv[0], argv);
	return rpwi_cli_fail(CLI_FAILED, PERF_NAME, "%s cannot be run: %s; it needs python3",
		argv[1], strerror(errno));
}

int rpwi_perf_plot(const char *file, const char *title, json_t *rows)
{
	char path[PATH_MAX];
	int in[2], status = -1;
	if (find_script(path) || pipe2(in, O_CLOEXEC))
		return CLI_FAILED;
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		dup2(in[0], 0);
		_exit(become(
			(char *[]){"python3", path, "plot", (char *)file, (char *)title, NULL}));
	}
	close(in[0]);
	json_dumpfd(rows, in[1], 0);
	close(in[1]);
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status ? CLI_OK : CLI_FAILED;
}

int rpwi_perf_against(json_t *asked)
{
	char path[PATH_MAX], self[PATH_MAX] = "", *text = json_dumps(asked, 0);
	json_decref(asked);
	if (find_script(path) || readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return CLI_FAILED;
	rpwi_cli_file_limit_as_before();
	return become((char *[]){"python3", path, "against", self, text, NULL});
}
