/* SPDX-License-Identifier: BSD-3-Clause */
/* walk.c - follows a path, part by part, through the kernel's files and ours: path_resolution(7).
 * The kernel's own come first, but for those that programs are not shown (hides.c). */
#include "tree/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINKS_MAX = 40 }; /* path_resolution(7) */

struct walk {
	struct rpwi_place *p;
	char todo[2 * RPWI_TREE_PATH_MAX]; /* what is left to follow */
	size_t at;                         /* of p->path */
	unsigned links;
	bool touched; /* went through something of ours */
	bool kernel_alone;
};

/* Puts a link's target before what is left: 1, or -errno. */
static int redirect(struct walk *w, const char *to, const char *rest)
{
	char all[sizeof(w->todo)];
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	int n = snprintf(all, sizeof(all), "%s%s%s", to, *rest ? "/" : "", rest);
	if (n < 0 || (size_t)n >= sizeof(all))
		return -ENAMETOOLONG;
	memcpy(w->todo, all, (size_t)n + 1);
	if (*to == '/')
		w->at = 0;
	return 1;
}

/* One part more. */
static int down(struct walk *w, const char *part, size_t len)
{
	char *path = w->p->path;
	if (w->at + 1 + len >= sizeof(w->p->path))
		return -ENAMETOOLONG;
	path[w->at++] = '/';
	memcpy(path + w->at, part, len);
	w->at += len;
	path[w->at] = '\0';
	return 0;
}

static void up(struct walk *w)
{
	while (w->at && w->p->path[--w->at] != '/')
		;
	w->p->path[w->at] = '\0';
}

/* Is there such a file of the kernel's that programs may see? *n: the length of its target in `to`;
 * negative: it is no link. */
static bool kernel_has(struct walk *w, char *to, size_t room, long *n)
{
	*n = syscall(SYS_readlinkat, AT_FDCWD, w->p->path, to, room);
	bool there = *n >= 0 || errno == EINVAL;
	if (there && rpwi_tree_hides(w->p->path)) {
		there = false;
		w->touched = true;
	}
	if (!there && !w->kernel_alone)
		rpwi_tree_open(&w->p->tree);
	return there;
}

/* One part: 1 go on with w->todo, 0 it was the last, or -errno. */
static int step(struct walk *w, int flags)
{
	struct rpwi_place *p = w->p;
	char to[RPWI_TREE_PATH_MAX], token[RPWI_TREE_PATH_MAX];
	char *part = w->todo + strspn(w->todo, "/");
	size_t len = strcspn(part, "/");
	char *rest = part + len + strspn(part + len, "/");
	bool wants_folder = part[len] == '/', last = !*rest;
	if (!len)
		return 0;
	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	if (p->node.kind != RPWI_NODE_NONE && p->node.kind != RPWI_NODE_DIR)
		return -ENOTDIR;
	if (len == 1 && part[0] == '.') {
		memmove(w->todo, rest, strlen(rest) + 1);
		return 1;
	}
	size_t before = w->at;
	if (len == 2 && part[0] == '.' && part[1] == '.') {
		up(w);
		p->node = (struct rpwi_node){0};
		memmove(w->todo, rest, strlen(rest) + 1);
		return 1;
	}
	if (down(w, part, len))
		return -ENAMETOOLONG;
	bool keep = last && (flags & RPWI_NOFOLLOW) && !wants_folder;

	long n;
	bool there = kernel_has(w, to, sizeof(to) - 1, &n);
	struct rpwi_node ours = rpwi_tree_node(&p->tree, p->path);
	if (there && !rpwi_tree_is_first(&ours)) {
		p->node = (struct rpwi_node){0};
		if (n < 0 || keep) {
			memmove(w->todo, rest, strlen(rest) + 1);
			return !last;
		}
		if ((size_t)n == sizeof(to) - 1)
			return -ENAMETOOLONG;
		to[n] = '\0';
		w->at = before;
		p->path[before] = '\0';
		return redirect(w, rpwi_token_path(to, token) ? token : to, rest);
	}
	p->node = ours;
	if (ours.kind == RPWI_NODE_NONE)
		return -ENOENT;
	w->touched = true;
	if (ours.kind == RPWI_NODE_LINK && !keep) {
		int rc = rpwi_tree_target(&ours, p->path, to, sizeof(to));
		w->at = before;
		p->path[before] = '\0';
		p->node = (struct rpwi_node){.kind = RPWI_NODE_DIR};
		return rc < 0 ? rc : redirect(w, to, rest);
	}
	if (ours.kind != RPWI_NODE_DIR && ours.kind != RPWI_NODE_LINK && wants_folder)
		return -ENOTDIR;
	memmove(w->todo, rest, strlen(rest) + 1);
	return !last;
}

static int base(struct walk *w, int dir)
{
	char name[RPWI_TREE_PATH_MAX];
	if (!rpwi_kernel_name(dir, name))
		return -EBADF;
	if (rpwi_token_path(name, w->todo)) {
		w->touched = true;
		return 0;
	}
	if (!rpwi_is_below_sys(name))
		return -EBADF;
	memcpy(w->todo, name, sizeof(name));
	return 0;
}

static int find(struct rpwi_place *p, int dir, const char *path, int flags)
{
	struct walk w = {.p = p};
	if (rpwi_tree_disabled())
		return RPWI_PASS;
	if (!*path && !(flags & RPWI_EMPTY))
		return RPWI_PASS;
	if (*path != '/' && base(&w, dir))
		return RPWI_PASS;
	size_t len = strlen(w.todo), more = strnlen(path, sizeof(w.todo));
	if (len + 1 + more >= sizeof(w.todo))
		return w.touched ? -ENAMETOOLONG : RPWI_PASS;
	if (more) {
		w.todo[len] = '/';
		memcpy(w.todo + len + 1, path, more + 1);
	}
	int rc;
	while ((rc = step(&w, flags)) > 0)
		;
	if (rc)
		return w.touched ? rc : RPWI_PASS;
	if (!w.at)
		memcpy(p->path, "/", 2);
	/* after "..": a folder; where the kernel has one, too, it is the kernel's */
	if (w.touched && p->node.kind == RPWI_NODE_NONE)
		p->node.kind = RPWI_NODE_DIR;
	if (p->node.kind == RPWI_NODE_DIR) {
		rpwi_tree_open(&p->tree);
		p->node = syscall(SYS_faccessat, AT_FDCWD, p->path, F_OK)
				  ? rpwi_tree_node(&p->tree, p->path)
				  : (struct rpwi_node){0};
	}
	if (p->node.kind != RPWI_NODE_NONE)
		return RPWI_OURS;
	return w.touched ? RPWI_REAL : RPWI_PASS;
}

int rpwi_place_find(struct rpwi_place *p, int dir, const char *path, int flags)
{
	int err = errno;
	p->tree = (struct rpwi_tree){0};
	p->node = (struct rpwi_node){0};
	p->path[0] = '\0';
	int rc = find(p, dir, path, flags);
	errno = err;
	return rc;
}

void rpwi_place_done(struct rpwi_place *p)
{
	if (p->tree.open)
		RPWI_KEEP_ERRNO(rpwi_tree_close(&p->tree));
}

int rpwi_place_of_fd(struct rpwi_place *p, int fd)
{
	char name[RPWI_TREE_PATH_MAX], path[RPWI_TREE_PATH_MAX];
	int err = errno, rc = RPWI_PASS;
	p->tree = (struct rpwi_tree){0};
	if (rpwi_kernel_name(fd, name) && rpwi_token_path(name, path))
		rc = rpwi_place_find(p, AT_FDCWD, path, RPWI_NOFOLLOW);
	errno = err;
	return rc == RPWI_OURS ? RPWI_OURS : RPWI_PASS;
}

/* Folders of the kernel's with something of ours in them, without asking for interfaces first: the
 * few that everyone has, and an interface's device. */
static bool may_be_merged(const char *path)
{
	static const char *const some[] = {"/sys", "/sys/class", "/sys/class/infiniband",
		"/sys/class/infiniband_verbs", "/sys/class/infiniband_mad", "/sys/class/misc",
		"/sys/devices", "/sys/devices/virtual", "/sys/devices/virtual/misc", "/dev",
		"/dev/infiniband"};
	char net[RPWI_TREE_PATH_MAX + 8];
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(some); i++)
		if (!strcmp(path, some[i]))
			return true;
	const char *last = strrchr(path, '/');
	if (strncmp(path, "/sys/devices/", 13) != 0)
		return false;
	if (last && !strncmp(last, "/infiniband", 11))
		return true;
	snprintf(net, sizeof(net), "%s/net", path);
	return !syscall(SYS_faccessat, AT_FDCWD, net, F_OK);
}

static bool is_merged(struct rpwi_place *p, int dir, const char *path)
{
	struct walk w = {.p = p};
	size_t more = strnlen(path, RPWI_TREE_PATH_MAX);
	if (rpwi_tree_disabled() || more == RPWI_TREE_PATH_MAX)
		return false;
	if (*path != '/' && base(&w, dir))
		return false;
	size_t len = strlen(w.todo);
	w.todo[len] = '/';
	memcpy(w.todo + len + 1, path, more + 1);
	/* the kernel's files alone, at first: without asking for the interfaces */
	w.kernel_alone = true;
	int rc;
	while ((rc = step(&w, 0)) > 0)
		;
	if (rc || p->node.kind != RPWI_NODE_NONE || !may_be_merged(p->path))
		return false;
	rpwi_tree_open(&p->tree);
	return rpwi_tree_node(&p->tree, p->path).kind == RPWI_NODE_DIR ||
	       rpwi_tree_may_hide(p->path);
}

bool rpwi_place_is_merged(struct rpwi_place *p, int dir, const char *path)
{
	int err = errno;
	memset(p, 0, sizeof(*p));
	bool merged = is_merged(p, dir, path);
	errno = err;
	return merged;
}
