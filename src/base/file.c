/* SPDX-License-Identifier: BSD-3-Clause */
/* file.c - see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t rpwi_file_limit(void)
{
	struct rlimit r;
	return getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY ? UINT64_MAX : r.rlim_cur;
}

struct quiet {
	bool limited, pending;
	sigset_t was;
};

static struct quiet quiet_begin(void)
{
	struct quiet q = {.limited = rpwi_file_limit() != UINT64_MAX};
	sigset_t one;
	if (!q.limited)
		return q;
	sigpending(&one);
	q.pending = sigismember(&one, SIGXFSZ);
	sigemptyset(&one);
	sigaddset(&one, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &one, &q.was);
	return q;
}

/* Keeps errno. */
static void quiet_end(const struct quiet *q)
{
	static const struct timespec at_once;
	int error = errno;
	sigset_t one;
	if (!q->limited)
		return;
	sigemptyset(&one);
	sigaddset(&one, SIGXFSZ);
	if (error == EFBIG && !q->pending)
		while (sigtimedwait(&one, NULL, &at_once) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &q->was, NULL);
	errno = error;
}

int rpwi_file_truncate(int fd, size_t len)
{
	struct quiet q = quiet_begin();
	int rc = ftruncate(fd, (off_t)len);
	quiet_end(&q);
	return rc;
}

ssize_t rpwi_file_write(int fd, const void *buf, size_t len)
{
	struct quiet q = quiet_begin();
	ssize_t n = syscall(SYS_write, fd, buf, len);
	quiet_end(&q);
	return n;
}

ssize_t rpwi_file_pwrite(int fd, const void *buf, size_t len, off_t at)
{
	struct quiet q = quiet_begin();
	ssize_t n = syscall(SYS_pwrite64, fd, buf, len, at);
	quiet_end(&q);
	return n;
}

ssize_t rpwi_file_read(const char *path, char *to, size_t most)
{
	size_t n = 0;
	ssize_t got = 1;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	while (n < most && got) {
		got = syscall(SYS_read, fd, to + n, most - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		n += (size_t)got;
	}
	int rc = got < 0 ? -errno : 0;
	syscall(SYS_close, fd);
	return rc ? rc : (ssize_t)n;
}
