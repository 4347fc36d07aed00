/* SPDX-License-Identifier: BSD-3-Clause */
/* namespace.c - see namespace.h.
 *
 * All runs of a user are in one user namespace, so that the kernel lets them read each other's
 * memory as it would outside; and in one mount namespace as long as a new one would show the same.
 * What a namespace shows never changes: where there is something new to show, the next run makes
 * another one beside it.
 */
#include "cli/run/namespace.h"

#include "base/base.h"
#include "cli/run/keeper.h"
#include "cli/run/plan.h"
#include "cli/run/space.h"
#include "tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- why not ---- */

/* The number in a file, or `none`. */
static long setting(const char *path, long none)
{
	FILE *f = fopen(path, "re");
	long n;
	if (!f || fscanf(f, "%ld", &n) != 1)
		n = none;
	if (f)
		fclose(f);
	return n;
}

static bool is_filtered(void)
{
	char line[128];
	bool filtered = false;
	FILE *f = fopen("/proc/self/status", "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "Seccomp:\t2", 10))
			filtered = true;
	if (f)
		fclose(f);
	return filtered;
}

/* Who forbids it, and what to do. */
static const char *remedy(int err)
{
	bool denied = err == -EPERM || err == -EACCES;
	if (denied && geteuid() && !setting("/proc/sys/kernel/unprivileged_userns_clone", 1))
		return "kernel.unprivileged_userns_clone is 0; ask root for "
		       "'sysctl kernel.unprivileged_userns_clone=1'";
	if (denied && geteuid() &&
		setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0))
		return "AppArmor forbids it to programs without a profile; ask root for 'sysctl "
		       "kernel.apparmor_restrict_unprivileged_userns=0', or for a profile for "
		       "ropeway with 'userns,'";
	if (err == -ENOSPC || err == -EUSERS)
		return "no more namespaces may be made, or none at all; ask root for "
		       "a larger user.max_user_namespaces and user.max_mnt_namespaces (sysctl)";
	if (denied && is_filtered())
		return "a seccomp filter forbids it, as containers have one; start the container "
		       "with --cap-add SYS_ADMIN, or --security-opt seccomp=unconfined";
	if (denied)
		return "a chroot, a security module or a container forbids it; outside of that it "
		       "works, or as root";
	return NULL;
}

static int fail(int err, char *why, size_t why_len, const char *what)
{
	const char *then = remedy(err);
	if (then)
		snprintf(why, why_len, "%s: %s (%s)", what, strerror(-err), then);
	else
		snprintf(why, why_len, "%s: %s", what, strerror(-err));
	return err;
}

/* ---- new namespaces ---- */

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = write(fd, text, strlen(text));
	int rc = n < 0 ? -errno : 0;
	close(fd);
	return rc;
}

/* The user is itself; a map for one's group needs setgroups to be given up (user_namespaces(7)). */
static int map_self(uid_t uid, gid_t gid)
{
	char map[64];
	snprintf(map, sizeof(map), "%u %u 1\n", (unsigned)uid, (unsigned)uid);
	int rc = write_text("/proc/self/uid_map", map);
	if (!rc)
		rc = write_text("/proc/self/setgroups", "deny");
	if (rc == -ENOENT) /* before Linux 3.19 */
		rc = 0;
	snprintf(map, sizeof(map), "%u %u 1\n", (unsigned)gid, (unsigned)gid);
	return rc ? rc : write_text("/proc/self/gid_map", map);
}

static int new_user(char *why, size_t why_len)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int rc = unshare(CLONE_NEWUSER) ? -errno : 0;
	if (rc == -EINVAL) {
		snprintf(why, why_len,
			"this kernel has no user namespaces, or this process has several threads");
		return rc;
	}
	if (rc)
		return fail(rc, why, why_len, "cannot make a user namespace");
	rc = map_self(uid, gid);
	return rc ? fail(rc, why, why_len, "cannot map the user into a user namespace") : 0;
}

/* What is mounted outside later appears here too, and nothing the other way. Of a new user
 * namespace the kernel sees to it. */
static int new_mounts(char *why, size_t why_len)
{
	if (unshare(CLONE_NEWNS))
		return fail(-errno, why, why_len, "cannot make a mount namespace");
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		return fail(-errno, why, why_len,
			"cannot keep mounts apart from those outside (is / no mount point?)");
	return 0;
}

/* ---- going there ---- */

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The working directory, of which a mount namespace has its own. */
struct place {
	char path[PATH_MAX]; /* or "" */
	int fd;
};

static int place_get(struct place *p)
{
	p->fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!getcwd(p->path, sizeof(p->path)) || p->path[0] != '/')
		p->path[0] = '\0';
	return p->fd < 0 ? -errno : 0;
}

/* By its name where that leads to the same folder, so that it is this namespace's, or to a folder
 * that may have got something. */
static int place_go(const struct place *p)
{
	struct stat was, is;
	if (p->path[0] && !chdir(p->path) &&
		(rpwi_is_below_sys(p->path) ||
			(!fstat(p->fd, &was) && !stat(".", &is) && is_same(&was, &is))))
		return 0;
	return fchdir(p->fd) ? -errno : 0;
}

/* Into the mount namespace of another run. */
static int join(const struct rpwi_space *s, const struct place *cwd, char *why, size_t why_len)
{
	int rc = 0;
	if (setns(s->mnt, CLONE_NEWNS) || fchdir(s->root) || chroot("."))
		rc = -errno;
	else
		rc = place_go(cwd);
	return rc ? fail(rc, why, why_len, "cannot join the mount namespace of another run") : 0;
}

/* Into one of its own, which gets the files. */
static int make(const struct rpwi_plan *plan, const char *source, const struct place *cwd,
	char *why, size_t why_len)
{
	char what[PATH_MAX + 64];
	int rc = new_mounts(why, why_len);
	if (rc)
		return rc;
	rc = rpwi_plan_lay(plan, source, what, sizeof(what));
	if (rc == -ENOSPC) { /* no namespace is missing: those are there */
		snprintf(why, why_len,
			"%s: %s (the namespace has as many mounts as it may: ask root for a larger "
			"fs.mount-max (sysctl); or the host has no memory left for the files)",
			what, strerror(-rc));
		return rc;
	}
	if (rc)
		return fail(rc, why, why_len, what);
	if (rpwi_is_below_sys(cwd->path) && chdir(cwd->path))
		return fail(-errno, why, why_len, "cannot stay in the working directory");
	return 0;
}

/* With what was found: joined as far as it goes, and the rest made. */
static int go(const struct rpwi_space_self *me, const struct rpwi_plan *plan, const char *source,
	const struct rpwi_space *found, char *why, size_t why_len)
{
	struct place cwd;
	int rc = place_get(&cwd);
	if (rc)
		return fail(rc, why, why_len, "cannot open the working directory");
	if (!me->privileged && found->user < 0)
		rc = new_user(why, why_len);
	else if (!me->privileged && setns(found->user, CLONE_NEWUSER))
		rc = fail(-errno, why, why_len, "cannot join the user namespace of another run");
	if (!rc)
		rc = found->mnt >= 0 ? join(found, &cwd, why, why_len)
				     : make(plan, source, &cwd, why, why_len);
	close(cwd.fd);
	return rc;
}

static int enter(const struct rpwi_space_self *me, char *why, size_t why_len)
{
	struct rpwi_plan plan;
	struct rpwi_space found = {-1, -1, -1};
	char source[96];
	int turn = -1, rc = rpwi_plan_make(&plan, why, why_len);
	if (rc || !plan.n)
		goto out;
	/* What it shows, of which files, and whose interfaces. */
	snprintf(source, sizeof(source), RPWI_SPACE_PREFIX "%016llx-%lx-%lx",
		(unsigned long long)plan.hash, (unsigned long)me->mnt, (unsigned long)me->net);
	rpwi_space_find(me, source, rpwi_plan_last(&plan), &found);
	if (found.mnt < 0) {
		rpwi_space_close(&found);
		turn = rpwi_space_turn(me->uid);
		rpwi_space_find(me, source, rpwi_plan_last(&plan), &found);
	}
	rc = go(me, &plan, source, &found, why, why_len);
	int kept = rc ? 0 : rpwi_keeper_start(&plan);
	if (kept)
		rpwi_warn("--namespace: no process that keeps the counters could be started: %s; "
			  "their files do not change",
			strerror(-kept));
out:
	if (turn >= 0)
		close(turn);
	rpwi_space_close(&found);
	rpwi_plan_free(&plan);
	return rc;
}

int rpwi_namespace_enter(char *why, size_t why_len)
{
	struct rpwi_space_self me;
	int rc = rpwi_space_self(&me);
	if (rc)
		return fail(rc, why, why_len, "cannot see the namespaces of this process in /proc");
	if (me.inside)
		return 0;
	/* This command, too, sees the tree by the drop-in: it is linked with it. Here it looks at
	 * what the kernel has. */
	const char *was = getenv("ROPEWAY_DISABLE");
	char *kept = was ? strdup(was) : NULL;
	setenv("ROPEWAY_DISABLE", "1", 1);
	rc = enter(&me, why, why_len);
	if (kept)
		setenv("ROPEWAY_DISABLE", kept, 1);
	else
		unsetenv("ROPEWAY_DISABLE");
	free(kept);
	return rc;
}
