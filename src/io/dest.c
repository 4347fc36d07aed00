/* SPDX-License-Identifier: BSD-3-Clause */
/* dest.c - the abstract Unix names by which ropeway processes of one network namespace find each
 * other: that of a slot, of a claimed service, of a lock. The kernel frees a name when the last
 * descriptor goes (unix(7)): nothing of a killed process is left to be cleaned up, and no mount
 * namespace or environment variable hides a name from anyone in the network namespace.
 *
 * A name proves nothing: anyone may bind any of them. So behind each is a listener, whoever
 * connects asks the kernel whose it is (who.c), and what is said goes over that connection. A
 * stranger who takes a name denies it to us; he gets nothing.
 */
#include "io/io_priv.h"
#include "base/lock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

/* what a process has not read is charged to its sender */
enum { SNDBUF_BYTES = 8 << 20 };

bool rpwi_dest_eq(const struct io_dest *a, const struct io_dest *b)
{
	return a->slot == b->slot &&
	       (a->slot ||
		       (a->service_id == b->service_id && a->shared == b->shared &&
			       rpwi_addr_eq(&a->addr, &b->addr) && a->addr.scope == b->addr.scope));
}

/* Slots are numbered for all users of the network namespace, whatever numbers a user namespace
 * gives to them: two processes of one port group never have the same. Services are each user's own,
 * but those of users who share. */
const char *rpwi_dest_name(const struct io_dest *d, char name[IO_NAME_MAX])
{
	char text[IO_ADDR_TEXT] = "*", scope[16] = "", whose[16] = "shared";
	if (d->slot) {
		snprintf(name, IO_NAME_MAX, "ropeway/slot/%u", d->slot);
		return name;
	}
	if (d->addr.family)
		rpwi_addr_text(&d->addr, text);
	if (d->addr.scope)
		snprintf(scope, sizeof(scope), "%%%u", d->addr.scope);
	if (!d->shared)
		snprintf(whose, sizeof(whose), "%u", rpwi_who_uid());
	snprintf(name, IO_NAME_MAX, "ropeway/%s/service/%llx/%s%s", whose,
		(unsigned long long)d->service_id, text, scope);
	return name;
}

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

/* Landlock (LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, Linux 6.12) and other security modules refuse it,
 * and nothing else does (unix(7)). Once: what is behind it goes wrong in many ways. */
static void refused(const char *name)
{
	static bool told;
	if (__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		return;
	rpwi_warn(
		"another process of this host cannot be reached: connect to its abstract socket "
		"@%s was refused (EPERM), as Landlock does (LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET). "
		"Packets that the kernel gives to the wrong process are lost then, and a request "
		"may end with status 12 (retries exceeded). Leave that scope out of the sandbox, "
		"or run the processes of one host in one sandbox, begun before they start",
		name);
}

int rpwi_name_connect(const char *name, struct io_who *who)
{
	rpwi_shield();
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
		*who = (struct io_who){.uid = rpwi_who_uid(), .pid = -1, .us = true};
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}
