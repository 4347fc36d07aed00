/* dest.c - the abstract Unix names by which ropeway processes of one network namespace find each other: that of a slot, that of a claimed service. A name belongs to whoever bound it
 * first, and the kernel frees it when the last descriptor goes (unix(7)): so nothing of a killed process is left to be cleaned up.
 */
#include "io/io_priv.h"

#include <errno.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

enum { SNDBUF_BYTES = 8 << 20 }; /* a message to a Unix socket is charged to its sender until it is read */

bool rpwi_dest_eq(const struct io_dest *a, const struct io_dest *b)
{
	return a->slot == b->slot && (a->slot || (a->service_id == b->service_id && rpwi_addr_eq(&a->addr, &b->addr) && a->addr.scope == b->addr.scope));
}

static socklen_t dest_name(struct sockaddr_un *un, const struct io_dest *d)
{
	char text[IO_ADDR_TEXT] = "*";
	char *at = un->sun_path + 1;
	size_t room = sizeof(un->sun_path) - 1;
	int n;
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	if (d->addr.family)
		rpwi_addr_text(&d->addr, text);
	if (d->slot)
		n = snprintf(at, room, "ropeway/slot/%u", d->slot);
	else if (d->addr.scope)
		n = snprintf(at, room, "ropeway/service/%llx/%s%%%u", (unsigned long long)d->service_id, text, d->addr.scope);
	else
		n = snprintf(at, room, "ropeway/service/%llx/%s", (unsigned long long)d->service_id, text);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int rpwi_dest_bind(const struct io_dest *d)
{
	struct sockaddr_un un;
	int one = 1, sndbuf = SNDBUF_BYTES;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) || bind(fd, (struct sockaddr *)&un, dest_name(&un, d))) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

int rpwi_dest_send(int fd, const struct io_dest *to, struct msghdr *h)
{
	struct sockaddr_un un;
	h->msg_name = &un;
	h->msg_namelen = dest_name(&un, to);
	return sendmsg(fd, h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

bool rpwi_dest_exists(const struct io_dest *d)
{
	struct sockaddr_un un;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return true; /* nobody can tell: nothing is to be given up for that */
	socklen_t len = dest_name(&un, d);
	bool gone = connect(fd, (struct sockaddr *)&un, len) && errno == ECONNREFUSED;
	close(fd);
	return !gone;
}
