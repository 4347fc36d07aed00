/* SPDX-License-Identifier: BSD-3-Clause */
/* who.c - whose a process of this host is: ourselves, or a stranger. Decided on the connection that
 * it is about (SO_PEERCRED, unix(7)), by what the kernel noted when the peer called connect or
 * listen; never by a name, and never by what was true a moment ago. But for a listener whose queue
 * is full, so that nobody gets a connection: of that the kernel says the user (sock_diag(7)), which
 * decides only whether its name counts as taken by us.
 */
#include "near/who.h"

#include "base/base.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OVERFLOW_UID_DEFAULT = 65534, DIAG_BYTES = 16 << 10 };

static struct {
	_Atomic bool known; /* set last */
	_Atomic uid_t uid;  /* under which our sockets are made */
	/* what every user that has no number here looks like (user_namespaces(7)) */
	_Atomic uid_t nobody;
	_Atomic bool
		all_mapped;  /* every user has a number here: then it is a user like any other */
	_Atomic bool shares; /* ROPEWAY_SHARE_PORT */
} self;

static bool every_user_has_a_number(void)
{
	unsigned long long inside, outside, count, sum = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	/* a kernel without user namespaces, or no /proc at all: then nothing says otherwise */
	if (!f)
		return errno == ENOENT;
	while (fscanf(f, "%llu %llu %llu", &inside, &outside, &count) == 3)
		sum += count;
	fclose(f);
	return sum >= UINT32_MAX;
}

static uid_t overflow_uid(void)
{
	unsigned uid = OVERFLOW_UID_DEFAULT;
	FILE *f = fopen("/proc/sys/kernel/overflowuid", "re");
	if (f && fscanf(f, "%u", &uid) != 1)
		uid = OVERFLOW_UID_DEFAULT;
	if (f)
		fclose(f);
	return uid;
}

void rpwi_who_begin(void)
{
	const char *share = secure_getenv("ROPEWAY_SHARE_PORT");
	self.uid = geteuid();
	self.nobody = overflow_uid();
	self.all_mapped = every_user_has_a_number();
	self.shares = share && *share && strcmp(share, "0") != 0;
	self.known = true;
}

static void begin_once(void)
{
	if (!self.known)
		rpwi_who_begin();
}

uid_t rpwi_who_uid(void)
{
	begin_once();
	return self.uid;
}

bool rpwi_who_shares(void)
{
	begin_once();
	return self.shares;
}

bool rpwi_who_is_us(uid_t uid)
{
	begin_once();
	return uid == self.uid && (uid != self.nobody || self.all_mapped);
}

int rpwi_who_of(int fd, struct rpwi_who *w)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	*w = (struct rpwi_who){.uid = cred.uid, .pid = cred.pid, .us = rpwi_who_is_us(cred.uid)};
	return 0;
}

/* One listener of the kernel's list: is it that of the name? */
static bool is_listener(const struct nlmsghdr *h, const char *name, uint32_t *uid)
{
	const struct unix_diag_msg *m = NLMSG_DATA(h);
	bool named = false, owned = false;
	if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return false;
	int left = (int)(h->nlmsg_len - NLMSG_LENGTH(sizeof(*m)));
	for (const struct rtattr *a = (const void *)(m + 1); RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == UNIX_DIAG_NAME) {
			named = RTA_PAYLOAD(a) == strlen(name) + 1 && !*(const char *)RTA_DATA(a) &&
				!memcmp((const char *)RTA_DATA(a) + 1, name, strlen(name));
		} else if (a->rta_type == UNIX_DIAG_UID && RTA_PAYLOAD(a) == sizeof(*uid)) {
			memcpy(uid, RTA_DATA(a), sizeof(*uid));
			owned = true;
		}
	return named && owned;
}

int rpwi_who_listens(const char *name, struct rpwi_who *w)
{
	const struct {
		struct nlmsghdr h;
		struct unix_diag_req r;
	} ask = {.h = {.nlmsg_len = sizeof(ask),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		.r = {.sdiag_family = AF_UNIX,
			.udiag_states = 1 << TCP_LISTEN,
			.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID}};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), rc = -ENOENT;
	char *buf = malloc(DIAG_BYTES);
	bool more = fd >= 0 && buf && send(fd, &ask, sizeof(ask), 0) == sizeof(ask);
	while (more) {
		/* a dump is made by the call that reads it: nothing is waited for */
		ssize_t n = recv(fd, buf, DIAG_BYTES, MSG_DONTWAIT);
		more = n > 0;
		for (const struct nlmsghdr *h = (const void *)buf; more && NLMSG_OK(h, n);
			h = NLMSG_NEXT(h, n)) {
			uint32_t uid = 0;
			more = h->nlmsg_type == SOCK_DIAG_BY_FAMILY;
			if (more && rc && is_listener(h, name, &uid)) {
				*w = (struct rpwi_who){
					.uid = uid, .pid = -1, .us = rpwi_who_is_us(uid)};
				rc = 0;
			}
		}
	}
	free(buf);
	if (fd >= 0)
		close(fd);
	return rc;
}

/* "process 4711 (ib_write_bw) of user 1001": the name where /proc shows it. */
const char *rpwi_who_text(const struct rpwi_who *w, char text[RPWI_WHO_TEXT])
{
	char path[32], comm[24] = "", name[32] = "";
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)w->pid);
	FILE *f = w->pid > 0 ? fopen(path, "re") : NULL;
	if (f && fgets(comm, sizeof(comm), f))
		comm[strcspn(comm, "\n")] = 0;
	if (f)
		fclose(f);
	for (char *c = comm; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	if (*comm)
		snprintf(name, sizeof(name), " (%s)", comm);
	if (w->pid > 0)
		snprintf(text, RPWI_WHO_TEXT, "process %d%s of user %u", (int)w->pid, name, w->uid);
	else
		snprintf(text, RPWI_WHO_TEXT, "a process of user %u%s", w->uid,
			w->pid ? "" : ", in another PID namespace");
	return text;
}
