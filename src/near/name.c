/* SPDX-License-Identifier: BSD-3-Clause */
/* name.c - see name.h. */
#include "near/name.h"

#include "base/base.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* what a process has not read is charged to its sender */
enum { SNDBUF_BYTES = 8 << 20 };

static socklen_t sockaddr_of(struct sockaddr_un *un, const char *name)
{
	size_t n = strnlen(name, sizeof(un->sun_path) - 1);
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path + 1, name, n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int make_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
	    sndbuf = SNDBUF_BYTES;
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	return fd;
}

int rpwi_name_listen(const char *name)
{
	struct sockaddr_un un;
	socklen_t len = sockaddr_of(&un, name);
	int fd = make_socket();
	if (fd >= 0 && (bind(fd, (struct sockaddr *)&un, len) || listen(fd, RPWI_NAME_BACKLOG))) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static struct {
	bool of_refusal;
} warned;

/* Landlock (LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, Linux 6.12) and other security modules refuse it,
 * and nothing else does (unix(7)). Once: the cause shows in many ways later. */
static void refused(const char *name)
{
	if (__atomic_exchange_n(&warned.of_refusal, true, __ATOMIC_RELAXED))
		return;
	rpwi_warn(
		"another process of this host cannot be reached: connect to its abstract socket "
		"@%s was refused (EPERM), as Landlock does (LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET). "
		"Packets that the kernel gives to the wrong process are lost then, and a request "
		"may end with status 12 (retries exceeded). Leave that scope out of the sandbox, "
		"or run the processes of one host in one sandbox, begun before they start",
		name);
}

int rpwi_name_connect(const char *name, struct rpwi_who *who)
{
	struct sockaddr_un un;
	socklen_t len = sockaddr_of(&un, name);
	int fd = make_socket();
	if (fd < 0)
		return fd;
	int rc = connect(fd, (struct sockaddr *)&un, len) ? -errno : rpwi_who_of(fd, who);
	if (rc == -EPERM)
		refused(name);
	/* the kernel does not say (before Linux 5.3): one of ours that is slow */
	if (rc == -EAGAIN && rpwi_who_listens(name, who))
		*who = (struct rpwi_who){.uid = rpwi_who_uid(), .pid = -1, .us = true};
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}
