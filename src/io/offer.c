/* SPDX-License-Identifier: BSD-3-Clause */
/* offer.c - which of our devices programs are shown: those of ROPEWAY_DEVICES (base/choice.h), else
 * all, but the loopback interface's only where nothing else would be of use.
 *
 * UCX, NCCL, MPI and Mooncake take each active device for one that reaches every peer, and give it
 * a part of the data. The loopback interface's reaches this host alone. docs/decisions/devices.md
 * has the rules that were tried, with what each program made of them.
 *
 * Asked in signal handlers, too: system calls, and no memory of malloc's.
 */
#include "io/io.h"

#include "base/choice.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- ROPEWAY_DEVICES ---- */

static bool names(const struct rpwi_choice_word *w, const struct rpwi_netdev *d)
{
	return rpwi_choice_is(w, d->name) || rpwi_choice_is(w, d->ifname);
}

/* What the list says of a device: it hides it by name, or it names it, and whether it names any. */
struct said {
	bool hidden, chosen, choice;
};

static struct said said_of(const struct rpwi_netdev *d)
{
	const char *list = rpwi_choice();
	struct rpwi_choice_word w;
	struct said s = {0};
	while (list && rpwi_choice_next(&list, &w)) {
		bool is = w.kind == RPWI_CHOICE_ALL || names(&w, d);
		if (w.kind == RPWI_CHOICE_EXCEPT)
			s.hidden |= is;
		else if (w.kind == RPWI_CHOICE_ALL || w.kind == RPWI_CHOICE_NAME)
			s.chosen |= is;
		s.choice |= w.kind == RPWI_CHOICE_ALL || w.kind == RPWI_CHOICE_NAME;
	}
	return s;
}

bool rpwi_netdev_unknown(const struct rpwi_netdev *devs, unsigned n, char *name, size_t room)
{
	const char *list = rpwi_choice();
	struct rpwi_choice_word w;
	while (list && rpwi_choice_next(&list, &w)) {
		/* ^NAME may be a real device's */
		bool known = w.kind != RPWI_CHOICE_NAME;
		for (unsigned i = 0; i < n && !known; i++)
			known = names(&w, &devs[i]);
		if (!known) {
			snprintf(name, room, "%.*s", (int)w.len, w.name);
			return true;
		}
	}
	return false;
}

/* ---- the loopback interface's device ---- */

/* Can it carry data to another host? A link-local address alone comes with the link, before
 * anybody has given the interface one. */
static bool reaches_others(const struct rpwi_netdev *d)
{
	if (d->loopback || !d->up)
		return false;
	for (unsigned i = 0; i < d->gid_count; i++)
		if (d->gid[i].usable && !rpwi_addr_is_link_local6(&d->gid[i].addr))
			return true;
	return false;
}

/* A process that has the loopback interface's device open since it was shown for want of another
 * holds a socket: as long as one of this user does, the device is shown beside those that came
 * later, to all of the user's processes. Otherwise an interface that comes up would take the device
 * away from a job that runs, whose later processes would not find it.
 *
 * The address is the user's own, in 127.128.0.0/9; who else takes it is not believed, since the
 * kernel tells the owner (/proc/net/udp). A holder's socket is connected, which tells it from one
 * of this function's. */
enum { HOLD_PORT = 14791, HOLD_TRIES = 100 };

static struct sockaddr_in hold_address(void)
{
	uint32_t user = (uint32_t)geteuid() * 2654435761u >> 9;
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons(HOLD_PORT),
		.sin_addr.s_addr = htonl(0x7f800000u | user)};
}

static int hold_bind(bool shared)
{
	struct sockaddr_in a = hold_address();
	int on = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (shared)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	if (!bind(fd, (struct sockaddr *)&a, sizeof(a)))
		return fd;
	int rc = -errno;
	close(fd);
	return rc;
}

int rpwi_loopback_hold(void)
{
	struct sockaddr_in a = hold_address();
	int fd = -EADDRINUSE;
	/* one that asks has the address for some microseconds */
	for (int i = 0; i < HOLD_TRIES && fd == -EADDRINUSE; i++) {
		fd = hold_bind(true);
		if (fd == -EADDRINUSE)
			usleep(100);
	}
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		close(fd);
		fd = -errno;
	}
	return fd;
}

/* A line of /proc/net/udp (Documentation/networking/proc_net_tcp.rst has the same columns): is it a
 * holder's socket? */
static bool is_holder(const char *line)
{
	struct sockaddr_in a = hold_address();
	unsigned local, port, remote, remote_port, state, uid;
	return sscanf(line, " %*[0-9]: %8X:%4X %8X:%4X %2X %*[0-9A-F:] %*[0-9A-F:] %*8X %u", &local,
		       &port, &remote, &remote_port, &state, &uid) == 6 &&
	       local == a.sin_addr.s_addr && port == HOLD_PORT && remote == local &&
	       uid == geteuid();
}

static bool holder_is_listed(void)
{
	char buf[4096 + 1];
	size_t used = 0;
	bool found = false;
	int fd = open("/proc/net/udp", O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && !found) {
		ssize_t n = read(fd, buf + used, sizeof(buf) - 1 - used);
		if (n <= 0)
			break;
		used += (size_t)n;
		buf[used] = '\0';
		char *line = buf, *end;
		for (; !found && (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			found = is_holder(line);
		}
		used = strlen(line);
		memmove(buf, line, used);
		if (used == sizeof(buf) - 1)
			used = 0; /* no line of this file is so long */
	}
	if (fd >= 0)
		close(fd);
	return found;
}

static bool is_held(void)
{
	int fd = hold_bind(false);
	if (fd >= 0)
		close(fd);
	return fd == -EADDRINUSE && holder_is_listed();
}

/* ---- both ---- */

/* Is d the loopback interface's, and not to be seen for that? *held is asked for once: -1. */
static bool is_in_the_way(const struct rpwi_netdev *d, bool others, int *held)
{
	if (!d->loopback || !others)
		return false;
	if (*held < 0)
		*held = is_held();
	return !*held;
}

void rpwi_netdev_offer(struct rpwi_netdev *devs, unsigned n)
{
	bool others = false;
	int held = -1;
	for (unsigned i = 0; i < n && !others; i++)
		others = reaches_others(&devs[i]) && !said_of(&devs[i]).hidden;
	for (unsigned i = 0; i < n; i++) {
		struct rpwi_netdev *d = &devs[i];
		struct said s = said_of(d);
		d->hidden = RPWI_NOT_HIDDEN;
		d->for_want = !s.choice && d->loopback && !others;
		if (s.hidden || (s.choice && !s.chosen))
			d->hidden = RPWI_HIDDEN_BY_CHOICE;
		else if (!s.choice && is_in_the_way(d, others, &held))
			d->hidden = RPWI_HIDDEN_LOOPBACK;
	}
}

void rpwi_netdev_why_hidden(const struct rpwi_netdev *d, char *why, size_t why_len)
{
	if (d->hidden == RPWI_HIDDEN_LOOPBACK)
		snprintf(why, why_len,
			"it reaches this host alone; `ropeway run --devices %s` (or all) shows it",
			d->ifname);
	else
		snprintf(why, why_len, "ROPEWAY_DEVICES=%.64s %s it", rpwi_choice(),
			said_of(d).hidden ? "hides" : "does not name");
}
