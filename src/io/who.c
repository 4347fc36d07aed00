/* who.c - whose a process of this host is: ourselves, or a stranger. Decided on the connection that it is about (SO_PEERCRED, unix(7)), by what the kernel noted when the peer called connect or
 * listen; never by a name, and never by what was true a moment ago.
 */
#include "io/io_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OVERFLOW_UID_DEFAULT = 65534 };

static struct {
	bool known;
	uid_t uid;       /* under which our sockets are made */
	uid_t nobody;    /* what every user that has no number here looks like (user_namespaces(7)) */
	bool all_mapped; /* every user has a number here: then it is a user like any other */
	bool shares;     /* ROPEWAY_SHARE_PORT */
} self;

static bool every_user_has_a_number(void)
{
	unsigned long long inside, outside, count, sum = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	if (!f)
		return errno == ENOENT; /* a kernel without user namespaces, or no /proc at all: then nothing says otherwise */
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

int rpwi_who_of(int fd, struct io_who *w)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	*w = (struct io_who){.uid = cred.uid, .pid = cred.pid, .us = rpwi_who_is_us(cred.uid)};
	return 0;
}

/* "process 4711 (ib_write_bw) of user 1001": the name where /proc shows it. */
const char *rpwi_who_text(const struct io_who *w, char text[IO_WHO_TEXT])
{
	char path[32], comm[24] = "";
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)w->pid);
	FILE *f = w->pid > 0 ? fopen(path, "re") : NULL;
	if (f && fgets(comm, sizeof(comm), f))
		comm[strcspn(comm, "\n")] = 0;
	if (f)
		fclose(f);
	for (char *c = comm; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	if (w->pid > 0)
		snprintf(text, IO_WHO_TEXT, "process %d%s%s%s of user %u", (int)w->pid, *comm ? " (" : "", comm, *comm ? ")" : "", w->uid);
	else
		snprintf(text, IO_WHO_TEXT, "a process of user %u, in another PID namespace", w->uid);
	return text;
}
