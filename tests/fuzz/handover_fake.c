/* SPDX-License-Identifier: BSD-3-Clause */
/* handover_fake.c - see handover_fake.h. */
#include "handover_fake.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

enum { PLACES_MAX = 512 };

struct fuzz_run run;

/* ---- users, names, time ---- */

uid_t uid_of(enum who w) { return w == COUSIN ? run.us : w == STRANGER ? 1001 : NOBODY; }
bool is_trusted(enum who w) { return uid_of(w) == run.us && (run.us != NOBODY || run.all_mapped); }
bool is_for_sharing(const struct io_dest *d)
{
	return d->slot ? rpwi_slot_is_shared(d->slot) : d->shared && run.shares;
}

static const char *prefix(void)
{
	static char text[24];
	if (!*text)
		snprintf(text, sizeof(text), "fz%d/", (int)getpid());
	return text;
}

/* The same name, where no other process of this host looks for one. */
static socklen_t move_name(const struct sockaddr *from, socklen_t len, struct sockaddr_un *to)
{
	size_t at = offsetof(struct sockaddr_un, sun_path) + 1, n = len > at ? len - at : 0,
	       head = strlen(prefix());
	const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)from;
	*to = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(to->sun_path + 1, prefix(), head);
	n = RPWI_MIN(n, sizeof(to->sun_path) - 1 - head);
	memcpy(to->sun_path + 1 + head, un->sun_path + 1, n);
	return (socklen_t)(at + head + n);
}

int __wrap_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	struct sockaddr_un un;
	union io_sockaddr in;
	if (sa->sa_family == AF_UNIX) {
		len = move_name(sa, len, &un);
		return __real_bind(fd, (struct sockaddr *)&un, len);
	}
	if (run.port_taken) {
		errno = EADDRINUSE;
		return -1;
	}
	memcpy(&in, sa, RPWI_MIN((size_t)len, sizeof(in)));
	in.in.sin_port = 0; /* any */
	return __real_bind(fd, &in.sa, len);
}

int __real_connect(int fd, const struct sockaddr *sa, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	struct sockaddr_un un;
	len = move_name(sa, len, &un);
	return __real_connect(fd, (struct sockaddr *)&un, len);
}

/* Who that is says the name at the other end: of a listener, or of somebody who has connected
 * (connect_as). */
static enum who who_is_at(int fd)
{
	struct sockaddr_un un = {0};
	socklen_t len = sizeof(un);
	unsigned w;
	if (getpeername(fd, (struct sockaddr *)&un, &len))
		return COUSIN;
	const char *text = un.sun_path + 1 + strlen(prefix());
	if (sscanf(text, "who/%u/", &w) == 1 && w < WHOS)
		return (enum who)w;
	for (unsigned i = 0; i < NAMES; i++)
		if (run.name[i].used && !strncmp(run.name[i].text, text,
						sizeof(un.sun_path) - 1 - strlen(prefix())))
			return run.name[i].who;
	return COUSIN;
}

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	if (level != SOL_SOCKET || name != SO_PEERCRED)
		return __real_getsockopt(fd, level, name, value, len);
	*(struct ucred *)value = (struct ucred){.uid = uid_of(who_is_at(fd))};
	return 0;
}

static bool told(unsigned slot) { return run.told[slot / 64] >> slot % 64 & 1; }

/* A steering program: behind the fixed part a comparison and a place for each slot. */
static void check_program(const struct sock_fprog *p)
{
	for (int i = p->len - 3; i > 0 && p->filter[i + 1].code == (BPF_RET | BPF_K) &&
				 p->filter[i].code == (BPF_JMP | BPF_JEQ | BPF_K);
		i -= 2) {
		uint32_t slot = p->filter[i].k, place = p->filter[i + 1].k;
		if (!slot || slot > RPWI_SLOT_MAX || place >= PLACES_MAX)
			fuzz_broken(
				"the steering program has a slot or a place that there is none of");
		if (!told(slot) && !rpwi_steer_owns(run.steer, slot << RPWI_SLOT_SHIFT))
			fuzz_broken("the steering program has a slot that our user has not told");
	}
}

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (level == SOL_SOCKET && name == SO_ATTACH_REUSEPORT_CBPF && run.steer)
		check_program(value);
	return __real_setsockopt(fd, level, name, value, len);
}

uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void) { return run.us; }

/* ---- /proc ---- */

FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);

/* Who listens, as the kernel says it. Not read from there: it may skip one while other processes
 * come and go. */
static size_t unix_sockets(char *out, size_t room)
{
	enum { DESCRIPTORS_MAX = 256 };
	size_t n = 0, head = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(prefix());
	for (int fd = 3; fd < DESCRIPTORS_MAX && n < room; fd++) {
		struct sockaddr_un un = {0};
		socklen_t len = sizeof(un), size = sizeof(int);
		int listens = 0;
		if (getsockname(fd, (struct sockaddr *)&un, &len) || un.sun_family != AF_UNIX ||
			len < head ||
			__real_getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size))
			continue;
		n += (size_t)snprintf(out + n, room - n,
			"0: 00000002 00000000 %08x 0005 01 1 @%.*s\n", listens << 16,
			(int)(len - head), (char *)&un + head);
	}
	return RPWI_MIN(n, room);
}

static size_t udp_sockets(char *out, size_t room, const char *addr)
{
	int n = 0;
	for (unsigned i = 0; run.holder.who >= 0 && i < run.holder.sockets; i++)
		n += snprintf(out + n, room - (size_t)n,
			" %u: %s:12B7 0:0 07 00000000:00000000 00:00000000 00000000 %u 0 4711\n", i,
			addr, uid_of((enum who)run.holder.who));
	return (size_t)n;
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	static char text[1 << 18];
	size_t n;
	if (!strcmp(path, "/proc/net/unix"))
		n = unix_sockets(text, sizeof(text));
	else if (!strcmp(path, "/proc/net/udp"))
		n = udp_sockets(text, sizeof(text), "0100007F");
	else if (!strcmp(path, "/proc/net/udp6"))
		n = udp_sockets(text, sizeof(text), "00000000000000000000000001000000");
	else if (!strcmp(path, "/proc/self/uid_map"))
		n = (size_t)snprintf(
			text, sizeof(text), "0 0 %u\n", run.all_mapped ? UINT32_MAX : 1);
	else if (!strcmp(path, "/proc/sys/kernel/overflowuid"))
		n = (size_t)snprintf(text, sizeof(text), "%u\n", NOBODY);
	else
		return __real_fopen64(path, mode);
	return n ? fmemopen(text, n, "r") : __real_fopen64("/dev/null", "re");
}

DIR *__wrap_opendir(const char *path)
{
	return strcmp(path, "/proc") ? __real_opendir(path) : NULL;
}

/* ---- the sending side of a port (tx.c) ---- */

int rpwi_tx_open(struct rpwi_port *p, char *why, size_t why_len) { return 0; }
void rpwi_tx_close(struct rpwi_port *p) {}
uint64_t rpwi_tx_deadline(const struct rpwi_port *p) { return RPWI_NEVER; }
void rpwi_tx_timer(struct rpwi_port *p, uint64_t now_ns) {}
int rpwi_port_send(struct rpwi_port *p, const struct rpwi_txb *b, unsigned *sent)
{
	return -ENETDOWN;
}
bool rpwi_port_is_watched(const struct rpwi_port *p) { return true; }
int rpwi_port_send_short(struct rpwi_port *p, struct rpwi_lane *l, const struct rpwi_av *av,
	const struct rpwi_short *s)
{
	return -ENETDOWN;
}
int rpwi_port_send_by_lane(
	struct rpwi_port *p, struct rpwi_lane *l, const struct rpwi_txb *b, unsigned *sent)
{
	return -ENETDOWN;
}
int rpwi_port_send_to_self(struct rpwi_port *p, const void *data, size_t len)
{
	enum { PROBE_COOKIE = 24 };
	run.probe_cookie = rpwi_get_be64((const uint8_t *)data + PROBE_COOKIE);
	return 0;
}
