/* SPDX-License-Identifier: BSD-3-Clause */
/* space.c - see space.h. Nothing of it is kept anywhere: a namespace lives as long as a process in
 * it, and is found by that process. */
#include "cli/run/space.h"

#include "base/base.h"
#include "near/name.h"
#include "near/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- this process ---- */

static int number_of(int dir, const char *name, ino_t *number)
{
	struct stat st;
	if (fstatat(dir, name, &st, 0))
		return -errno;
	*number = st.st_ino;
	return 0;
}

static bool can(unsigned capability)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	return !syscall(SYS_capget, &head, data) &&
	       data[capability / 32].effective >> capability % 32 & 1;
}

/* The mounts of the process of this folder of /proc (proc_pid_mountinfo(5)). */
static FILE *open_mounts(int dir)
{
	int fd = openat(dir, "mountinfo", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* Has the process of this folder of /proc mounts of ours, and one with just this source? */
static bool has_mounts(int dir, const char *source, bool *same)
{
	char *line = NULL;
	size_t room = 0;
	bool any = false;
	FILE *f = open_mounts(dir);
	*same = false;
	while (f && !*same && getline(&line, &room, f) > 0) {
		/* "... - type source options" */
		char *at = strstr(line, " - tmpfs " RPWI_SPACE_PREFIX);
		if (!at)
			continue;
		any = true;
		at += strlen(" - tmpfs ");
		at[strcspn(at, " \n")] = '\0';
		*same = source && !strcmp(at, source);
	}
	free(line);
	if (f)
		fclose(f);
	return any;
}

int rpwi_space_self(struct rpwi_space_self *s)
{
	bool same;
	int dir = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	*s = (struct rpwi_space_self){.uid = geteuid()};
	if (dir < 0)
		return -errno;
	int rc = number_of(dir, "ns/user", &s->user);
	if (!rc)
		rc = number_of(dir, "ns/mnt", &s->mnt);
	if (!rc)
		rc = number_of(dir, "ns/net", &s->net);
	s->privileged = can(CAP_SYS_ADMIN) && can(CAP_SYS_CHROOT);
	s->inside = has_mounts(dir, NULL, &same);
	close(dir);
	return rc;
}

/* ---- those of others ---- */

/* The number of the namespace that `ioctl` gives for one; 0: none, or none of our business. */
static ino_t related(int fd, unsigned long request)
{
	struct stat st = {0};
	int to = ioctl(fd, request);
	if (to < 0)
		return 0;
	if (fstat(to, &st))
		st.st_ino = 0;
	close(to);
	return st.st_ino;
}

/* The mount namespace belongs to the user namespace, and that is ours: the one we are in, or one
 * that our user made in it. */
static bool is_ours(const struct rpwi_space_self *me, const struct rpwi_space *s)
{
	struct stat user;
	uid_t owner;
	if (fstat(s->user, &user) || related(s->mnt, NS_GET_USERNS) != user.st_ino)
		return false;
	if (me->privileged)
		return user.st_ino == me->user;
	return related(s->user, NS_GET_PARENT) == me->user &&
	       !ioctl(s->user, NS_GET_OWNER_UID, &owner) && owner == me->uid;
}

void rpwi_space_close(struct rpwi_space *s)
{
	int *fd[] = {&s->user, &s->mnt, &s->root};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(fd); i++) {
		if (*fd[i] >= 0)
			close(*fd[i]);
		*fd[i] = -1;
	}
}

/* Everything is asked of one folder of /proc, which stays the process's though its number may be
 * another's by now. */
static bool look(const struct rpwi_space_self *me, int dir, const char *source, const char *last,
	struct rpwi_space *found)
{
	bool same;
	if (!has_mounts(dir, source, &same))
		return false;
	struct rpwi_space s = {
		.user = openat(dir, "ns/user", O_RDONLY | O_CLOEXEC),
		.mnt = openat(dir, "ns/mnt", O_RDONLY | O_CLOEXEC),
		.root = openat(dir, "root", O_PATH | O_DIRECTORY | O_CLOEXEC),
	};
	bool whole = s.user >= 0 && s.mnt >= 0 && s.root >= 0 && is_ours(me, &s);
	struct stat here, there;
	/* It may be in a chroot, or we. */
	if (same && (!whole || stat("/", &here) || fstat(s.root, &there) ||
			    here.st_dev != there.st_dev || here.st_ino != there.st_ino))
		same = false;
	if (same && fstatat(s.root, last + 1, &there, AT_SYMLINK_NOFOLLOW))
		same = false; /* it is being made */
	if (!whole || (!same && (me->privileged || found->user >= 0))) {
		rpwi_space_close(&s);
		return false;
	}
	if (!same) {
		close(s.mnt);
		close(s.root);
		s.mnt = s.root = -1;
	}
	rpwi_space_close(found);
	*found = s;
	return same;
}

void rpwi_space_find(const struct rpwi_space_self *me, const char *source, const char *last,
	struct rpwi_space *found)
{
	enum { SEEN = 64 };
	ino_t mnt = 0, seen[SEEN];
	unsigned n = 0;
	*found = (struct rpwi_space){-1, -1, -1};
	DIR *proc = opendir("/proc");
	bool done = false;
	for (struct dirent *e; proc && !done && (e = readdir(proc));) {
		struct stat st;
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		int dir = openat(dirfd(proc), e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0)
			continue;
		bool worth = !fstat(dir, &st) && st.st_uid == me->uid &&
			     !number_of(dir, "ns/mnt", &mnt) && mnt != me->mnt;
		for (unsigned i = 0; i < n && worth; i++)
			worth = seen[i] != mnt;
		if (worth && !(done = look(me, dir, source, last, found)) && n < SEEN)
			seen[n++] = mnt;
		close(dir);
	}
	if (proc)
		closedir(proc);
}

/* Has the process of this folder of /proc a mount of that file system? */
static bool has_mounted(int dir, dev_t dev)
{
	char *line = NULL;
	size_t room = 0;
	unsigned major, minor;
	bool has = false;
	FILE *f = open_mounts(dir);
	while (f && !has && getline(&line, &room, f) > 0)
		has = sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 &&
		      makedev(major, minor) == dev;
	free(line);
	if (f)
		fclose(f);
	return has;
}

int rpwi_space_other(dev_t dev)
{
	char self[16] = "";
	int found = -ESRCH;
	DIR *proc = opendir("/proc");
	if (readlink("/proc/self", self, sizeof(self) - 1) < 0)
		self[0] = '\0';
	for (struct dirent *e; proc && found < 0 && (e = readdir(proc));) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || !strcmp(e->d_name, self))
			continue;
		int dir = openat(dirfd(proc), e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dir >= 0 && has_mounted(dir, dev)) {
			found = rpwi_process_open(atoi(e->d_name));
			/* Its number is nobody else's while the folder still shows it. */
			if (found >= 0 && !has_mounted(dir, dev)) {
				close(found);
				found = -1;
			}
			found = found < 0 ? -EAGAIN : found;
		}
		if (dir >= 0)
			close(dir);
	}
	if (proc)
		closedir(proc);
	return found;
}

/* ---- turns ---- */

enum { TURN_NAMES = 4, TURN_MS = 10000, TURN_AGAIN_MS = 5 };

/* Until the holder's end, if it is of our user: its listener closes, and so do the connections that
 * wait there. False: another user's. */
static bool turn_wait(uid_t uid, const char *name, uint64_t until_ns)
{
	struct rpwi_who who;
	int fd = rpwi_name_connect(name, &who);
	if (fd < 0) { /* gone by now, not yet listening, or many wait */
		poll(NULL, 0, TURN_AGAIN_MS);
		return fd == -ECONNREFUSED || fd == -EAGAIN;
	}
	uint64_t now_ns = rpwi_now_ns();
	struct pollfd p = {.fd = fd};
	if (who.uid == uid && now_ns < until_ns)
		poll(&p, 1, (int)((until_ns - now_ns) / RPWI_NS_PER_MS));
	close(fd);
	return who.uid == uid;
}

int rpwi_space_turn(uid_t uid)
{
	uint64_t until_ns = rpwi_now_ns() + TURN_MS * RPWI_NS_PER_MS;
	for (unsigned i = 0; i < TURN_NAMES && rpwi_now_ns() < until_ns;) {
		char name[RPWI_NAME_MAX];
		snprintf(name, sizeof(name), "ropeway/%u/namespace/%u", (unsigned)uid, i);
		int fd = rpwi_name_listen(name);
		if (fd >= 0)
			return fd;
		if (fd != -EADDRINUSE)
			break;
		if (!turn_wait(uid, name, until_ns))
			i++;
	}
	return -1;
}
