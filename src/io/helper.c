/* SPDX-License-Identifier: BSD-3-Clause */
/* helper.c - see helper.h. */
#include "io/helper.h"
#include "base/lock.h"
#include "base/orphan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/io_priv.h"

#ifndef ROPEWAY_LIBEXECDIR
#define ROPEWAY_LIBEXECDIR "/usr/libexec/ropeway"
#endif

enum { WORD_MAGIC = 0x68656c70, WORD_VERSION = 1 };
enum word_type { WORD_HELLO = 1, WORD_NUDGE, WORD_SLOT };
struct word {
	uint32_t magic;
	uint8_t version, type;
	uint16_t slot;
};

bool rpwi_helper_is_off(void)
{
	const char *v = getenv("ROPEWAY_HELPER");
	return v && !strcmp(v, "0");
}

static const char *name_of(char name[RPWI_NAME_MAX])
{
	snprintf(name, RPWI_NAME_MAX, "ropeway/%u/helper", rpwi_who_uid());
	return name;
}

int rpwi_helper_connect(void)
{
	rpwi_shield();
	char name[RPWI_NAME_MAX], text[RPWI_WHO_TEXT];
	struct rpwi_who who;
	int fd = rpwi_name_connect(name_of(name), &who);
	if (fd < 0 || who.us)
		return fd;
	rpwi_debug("@%s is held by %s, which is not our helper", name, rpwi_who_text(&who, text));
	close(fd);
	return -EPERM;
}

bool rpwi_helper_is_there(void)
{
	char name[RPWI_NAME_MAX], want[RPWI_NAME_MAX + 4], line[512];
	bool found = false;
	snprintf(want, sizeof(want), " @%s\n", name_of(name));
	FILE *f = fopen("/proc/net/unix", "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, want);
	if (f)
		fclose(f);
	return found;
}

/* ---- starting ---- */

int rpwi_helper_start(void)
{
	/* Beside the library that this is part of (a build folder), or where it is installed, as
	 * seen also from the versioned library's own folder. */
	static const char *const places[] = {"ropeway-helper", "../libexec/ropeway/ropeway-helper",
		"../../libexec/ropeway/ropeway-helper", "../../../libexec/ropeway/ropeway-helper",
		"../../ropeway-helper", (ROPEWAY_LIBEXECDIR "/ropeway-helper")};
	char path[PATH_MAX], log[64] = "", share[64] = "";
	char *argv[] = {(char[]){"ropeway-helper"}, NULL};
	char *envp[] = {(char[]){"ROPEWAY_HELPER=0"}, NULL, NULL, NULL};
	const char *want = getenv("ROPEWAY_LOG");
	unsigned n = 1;
	if (!rpwi_orphan_find(places, RPWI_ARRAY_LEN(places), path))
		return -ENOENT;
	if (want && snprintf(log, sizeof(log), "ROPEWAY_LOG=%s", want) < (int)sizeof(log))
		envp[n++] = log;
	if (rpwi_who_shares() && snprintf(share, sizeof(share), "ROPEWAY_SHARE_PORT=1") > 0)
		envp[n++] = share;
	struct rpwi_orphan helper = {.path = path, .argv = argv, .envp = envp, .in = -1, .out = -1};
	return rpwi_orphan_start(&helper);
}

/* ---- what is said ---- */

static int say(int fd, enum word_type type, uint16_t slot, const int *fds, unsigned nfds)
{
	rpwi_shield();
	struct word w = {WORD_MAGIC, WORD_VERSION, (uint8_t)type, slot};
	return rpwi_rights_send(fd, &w, sizeof(w), fds, nfds);
}

/* 1 with *w and descriptors (those that came, or -1), 0 nothing there, or -errno. */
static int hear(int fd, struct word *w, int fds[RPWI_RIGHTS_MAX])
{
	struct iovec to = {w, sizeof(*w)};
	ssize_t n = rpwi_rights_recv(fd, &to, 1, fds);
	if (n == sizeof(*w) && w->magic == WORD_MAGIC && w->version == WORD_VERSION)
		return 1;
	rpwi_rights_close(fds, RPWI_RIGHTS_MAX);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (!n)
		return -EPIPE;
	return n > 0 || n == -EMSGSIZE ? -EBADMSG : (int)n;
}

int rpwi_helper_hello(int fd, int ledger_fd)
{
	int fds[2] = {ledger_fd, rpwi_process_open(getpid())};
	int rc = say(fd, WORD_HELLO, 0, fds, fds[1] < 0 ? 1 : 2);
	if (fds[1] >= 0)
		close(fds[1]);
	return rc;
}

int rpwi_helper_nudge(int fd) { return say(fd, WORD_NUDGE, 0, NULL, 0); }
int rpwi_helper_tell_slot(int fd, uint16_t slot) { return say(fd, WORD_SLOT, slot, NULL, 0); }

int rpwi_helper_hear(int fd, uint16_t *slot)
{
	struct word w;
	int fds[RPWI_RIGHTS_MAX], rc = hear(fd, &w, fds);
	rpwi_rights_close(fds, RPWI_RIGHTS_MAX);
	if (rc <= 0)
		return rc;
	if (w.type == WORD_SLOT && w.slot >= 1 && w.slot <= RPWI_SLOT_MAX)
		*slot = w.slot;
	return 1;
}

/* ---- the other end ---- */

int rpwi_helper_listen(void)
{
	char name[RPWI_NAME_MAX];
	return rpwi_name_listen(name_of(name));
}

int rpwi_helper_accept(int listener)
{
	struct rpwi_who who;
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!rpwi_who_of(fd, &who) && who.us)
		return fd;
	close(fd);
	return -EPERM;
}

int rpwi_helper_heard(int fd, struct rpwi_helper_heard *got)
{
	struct word w;
	int fds[RPWI_RIGHTS_MAX], rc = hear(fd, &w, fds);
	rpwi_rights_close(&fds[2], RPWI_RIGHTS_MAX - 2);
	*got = (struct rpwi_helper_heard){
		.hello = rc > 0 && w.type == WORD_HELLO, .ledger_fd = fds[0], .pid_fd = fds[1]};
	return rc;
}
