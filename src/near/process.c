/* SPDX-License-Identifier: BSD-3-Clause */
/* process.c - see process.h. That a process is stopped, all of it, is read from
 * /proc/PID/task/TID/stat (proc(5)). */
#include "near/process.h"

#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __x86_64__
#include <linux/membarrier.h>
#endif

int rpwi_process_open(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? -errno : fd;
}

/* The letter behind the name, which may have any; '?': there is none. */
static char state_of(int dir_fd, const char *path)
{
	char text[256];
	int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[RPWI_MAX(n, (ssize_t)0)] = '\0';
	const char *end = strrchr(text, ')');
	return end && end[1] == ' ' && end[2] ? end[2] : '?';
}

/* By a signal or a debugger; or it has ended. */
static bool is_at_rest(char state) { return state && strchr("TtZX", state); }

/* Of a thread that has just stopped: on x86 before its state is, since stores are seen in order;
 * elsewhere when it has been through the scheduler, which this waits for. */
static bool stores_are_seen(void)
{
#ifdef __x86_64__
	return true;
#else
	return !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
#endif
}

bool rpwi_process_seems_stopped(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	char leader = pid > 0 ? state_of(AT_FDCWD, path) : '?';
	return leader == 'T' || leader == 't';
}

bool rpwi_process_is_stopped(pid_t pid)
{
	char path[64];
	if (!rpwi_process_seems_stopped(pid)) /* as it mostly is: cheap */
		return false;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	bool all = d != NULL;
	for (const struct dirent *e; all && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%.20s/stat", e->d_name);
		all = is_at_rest(state_of(dirfd(d), path));
	}
	if (d)
		closedir(d);
	return all && stores_are_seen();
}

ssize_t rpwi_process_read(pid_t pid, void *to, const void *from, size_t n)
{
	struct iovec here = {to, n}, there = {(void *)(uintptr_t)from, n};
	ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
	return got < 0 ? -errno : got;
}

ssize_t rpwi_process_write(pid_t pid, void *to, const void *from, size_t n)
{
	struct iovec here = {(void *)(uintptr_t)from, n}, there = {to, n};
	ssize_t got = process_vm_writev(pid, &here, 1, &there, 1, 0);
	return got < 0 ? -errno : got;
}

bool rpwi_process_readv(pid_t pid, struct iovec *to, unsigned nto, struct iovec *from,
	unsigned nfrom, size_t bytes, const void *word_at, uint64_t word)
{
	uint64_t found;
	to[nto] = (struct iovec){&found, sizeof(found)};
	from[nfrom] = (struct iovec){(void *)(uintptr_t)word_at, sizeof(found)};
	ssize_t got = process_vm_readv(pid, to, nto + 1, from, nfrom + 1, 0);
	to[nto].iov_base = NULL; /* `found` ends here */
	return got == (ssize_t)(bytes + sizeof(found)) && found == word;
}
