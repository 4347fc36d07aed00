/* SPDX-License-Identifier: BSD-3-Clause */
/* file.c - see top.h: `--file`: a page for node_exporter's textfile collector, which takes the
 * place of the last one whole. The last one goes when this command ends: it would be old. */
#include "cli/top/top.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);
		if (n < 0 && errno != EINTR)
			return -errno;
		text += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* The collector takes *.prom alone, so not this one. */
static int replace(const char *path, const char *text, size_t len)
{
	char next[PATH_MAX];
	int n = snprintf(next, sizeof(next), "%s.%d", path, (int)getpid());
	if (n < 0 || n >= (int)sizeof(next))
		return -ENAMETOOLONG;
	unlink(next); /* of one that was killed and had our number */
	int fd = open(next, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	int rc = write_all(fd, text, len);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc && rename(next, path))
		rc = -errno;
	if (rc)
		unlink(next);
	return rc;
}

static int write_page(const char *path, enum top_level level)
{
	struct top_look l;
	char *text = NULL;
	size_t len;
	int rc = top_look(&l, NULL);
	if (!rc)
		rc = top_page(&l, level, &text, &len);
	top_free(&l);
	if (!rc)
		rc = replace(path, text, len);
	free(text);
	return rc;
}

static int fail(const char *path, int rc)
{
	return rpwi_cli_fail(CLI_FAILED, TOP_NAME, "cannot write '%s': %s", path, strerror(-rc));
}

int top_file(const struct top_options *o, enum top_level level)
{
	sigset_t ends;
	const struct timespec every = {.tv_sec = (time_t)o->interval_s,
		.tv_nsec = (long)((o->interval_s - (double)(time_t)o->interval_s) * RPWI_NS_PER_S)};
	int rc = 0, sig = -1;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	if (!o->once) {
		/* before the first page: it, too, is removed at the end */
		sigprocmask(SIG_BLOCK, &ends, NULL);
		rpwi_counters_hold();
	}
	rc = write_page(o->file, level);
	if (rc || o->once)
		return rc ? fail(o->file, rc) : CLI_OK;
	while (!rc && sig < 0) {
		sig = sigtimedwait(&ends, NULL, &every);
		if (sig < 0) {
			rpwi_counters_hold();
			rc = write_page(o->file, level);
		}
	}
	unlink(o->file);
	return rc ? fail(o->file, rc) : CLI_OK;
}
