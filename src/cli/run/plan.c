/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c - see plan.h. The caller keeps the drop-in's tree out of it (ROPEWAY_DISABLE): the files
 * looked at here are the kernel's own. */
#include "cli/run/plan.h"

#include "base/hash.h"
#include "tree/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum step_kind {
	COVER,       /* a tmpfs over a folder of the kernel's */
	KEEP_FOLDER, /* what the covered folder has */
	KEEP_FILE,
	LINK, /* the kernel's or ours */
	FOLDER,
	FILE_TEXT,
	FILE_COUNTER, /* a text that the hash leaves out: the keeper writes it anew */
	FILE_MUTE,    /* cannot be read: the kernel's would answer with an error */
	NODE,         /* a character device that cannot be opened */
};
struct rpwi_plan_step {
	enum step_kind kind;
	char *path, *text; /* text: a link's target, a file's contents, or NULL */
	size_t len;        /* of the text */
};

static int no_memory(char *why, size_t why_len)
{
	snprintf(why, why_len, "no memory");
	return -ENOMEM;
}

/* ---- making ---- */

struct maker {
	struct rpwi_plan *plan;
	struct rpwi_tree tree;
	char *why;
	size_t why_len;
	unsigned depth;
};

static uint64_t mix_text(uint64_t h, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		h = rpwi_mix(h, (uint8_t)text[i]);
	return rpwi_mix(h, len);
}

static int add(struct maker *m, enum step_kind kind, const char *path, const char *text, size_t len)
{
	struct rpwi_plan *p = m->plan;
	struct rpwi_plan_step *more = realloc(p->step, (p->n + 1) * sizeof(*more));
	if (!more)
		return no_memory(m->why, m->why_len);
	p->step = more;
	struct rpwi_plan_step *s = &p->step[p->n];
	*s = (struct rpwi_plan_step){kind, strdup(path), text ? strndup(text, len) : NULL, len};
	p->n++;
	if (!s->path || (text && !s->text))
		return no_memory(m->why, m->why_len);
	p->hash = mix_text(rpwi_mix(p->hash, kind), path, strlen(path));
	if (kind != FILE_COUNTER)
		p->hash = mix_text(p->hash, text ? text : "", len);
	return 0;
}

static int below(struct maker *m, const char *folder, const char *name, char *path, size_t size)
{
	int n = snprintf(path, size, "%s/%s", folder, name);
	if (n >= 0 && (size_t)n < size)
		return 0;
	snprintf(m->why, m->why_len, "%s/%s: the path is too long", folder, name);
	return -ENAMETOOLONG;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* One of the names in a folder that is covered: stays as it is. One that has gone by now is left
 * out, and so is a real device's that programs are not shown. */
static int keep(struct maker *m, const char *path)
{
	struct stat st;
	char to[RPWI_TREE_PATH_MAX * 2];
	if (lstat(path, &st) || rpwi_tree_hides(path))
		return 0;
	if (S_ISDIR(st.st_mode))
		return add(m, KEEP_FOLDER, path, NULL, 0);
	if (!S_ISLNK(st.st_mode))
		return add(m, KEEP_FILE, path, NULL, 0);
	ssize_t n = readlink(path, to, sizeof(to));
	return n > 0 && (size_t)n < sizeof(to) ? add(m, LINK, path, to, (size_t)n) : 0;
}

static int cover(struct maker *m, const char *folder)
{
	struct dirent **e;
	char path[RPWI_TREE_PATH_MAX * 2];
	int n = scandir(folder, &e, NULL, by_name);
	if (n < 0) {
		int err = errno;
		snprintf(m->why, m->why_len, "cannot list %s: %s", folder, strerror(err));
		return -err;
	}
	int rc = add(m, COVER, folder, NULL, 0);
	for (int i = 0; i < n; i++) {
		const char *name = e[i]->d_name;
		if (!rc && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
			rc = below(m, folder, name, path, sizeof(path));
			rc = rc ? rc : keep(m, path);
		}
		free(e[i]);
	}
	free(e);
	return rc;
}

/* Our names in a folder, each once. */
struct names {
	char **name;
	unsigned n;
	bool failed;
};

static void name_take(void *arg, const char *name, enum rpwi_kind kind)
{
	struct names *l = arg; /* a folder's kind says nothing of what it is in the kernel */
	for (unsigned i = 0; i < l->n; i++)
		if (!strcmp(l->name[i], name))
			return;
	char **more = realloc(l->name, (l->n + 1) * sizeof(*more));
	l->name = more ? more : l->name;
	if (more && (more[l->n] = strdup(name)))
		l->n++;
	else
		l->failed = true;
}

static void names_free(struct names *l)
{
	for (unsigned i = 0; i < l->n; i++)
		free(l->name[i]);
	free(l->name);
}

static int folder(struct maker *m, const char *path, bool ours);

static int leaf(struct maker *m, const char *path, const struct rpwi_node *n)
{
	char text[RPWI_SYSFS_FILE_MAX] = "", to[RPWI_TREE_PATH_MAX];
	size_t len = 0;
	int rc;
	switch (n->kind) {
	case RPWI_NODE_FILE:
		rc = rpwi_tree_show(n, text, &len);
		if (rpwi_tree_counts(n))
			/* where nobody can count, nobody is told a 0 */
			return rc ? 0 : add(m, FILE_COUNTER, path, text, len);
		if (rc)
			return add(m, FILE_MUTE, path, "", 0);
		return add(m, FILE_TEXT, path, text, len);
	case RPWI_NODE_LINK:
		rc = rpwi_tree_target(n, path, to, sizeof(to));
		return rc < 0 ? rc : add(m, LINK, path, to, (size_t)rc);
	case RPWI_NODE_CHARDEV:
	case RPWI_NODE_RDMA_CM:
		return add(m, NODE, path, NULL, 0);
	default:
		return 0;
	}
}

/* One name of ours: the kernel's own comes first, as for a preloaded program. */
static int entry(struct maker *m, const char *path, bool ours)
{
	struct stat st;
	if (!ours && !lstat(path, &st))
		return S_ISDIR(st.st_mode) ? folder(m, path, false) : 0;
	struct rpwi_node n = rpwi_tree_node(&m->tree, path);
	if (n.kind != RPWI_NODE_DIR)
		return leaf(m, path, &n);
	int rc = add(m, FOLDER, path, NULL, 0);
	return rc ? rc : folder(m, path, true);
}

/* Everything below a folder, the kernel's or ours. */
static int folder(struct maker *m, const char *path, bool ours)
{
	struct names l = {0};
	struct stat st;
	char name[RPWI_TREE_PATH_MAX];
	bool missing = false;
	int rc = 0;
	rpwi_tree_list(&m->tree, path, name_take, &l);
	if (l.failed)
		rc = no_memory(m->why, m->why_len);
	for (unsigned i = 0; i < l.n && !rc && !ours && !missing; i++) {
		rc = below(m, path, l.name[i], name, sizeof(name));
		missing = !rc && lstat(name, &st);
	}
	if (!rc && missing)
		rc = cover(m, path);
	for (unsigned i = 0; i < l.n && !rc; i++) {
		rc = below(m, path, l.name[i], name, sizeof(name));
		rc = rc ? rc : entry(m, name, ours);
	}
	names_free(&l);
	return rc;
}

int rpwi_plan_make(struct rpwi_plan *p, char *why, size_t why_len)
{
	static const char *const tops[] = {"/sys", "/dev"};
	struct maker m = {.plan = p, .why = why, .why_len = why_len};
	struct stat st;
	int rc = 0;
	*p = (struct rpwi_plan){0};
	rpwi_tree_open(&m.tree);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(tops) && !rc; i++) {
		if (stat(tops[i], &st) || !S_ISDIR(st.st_mode)) {
			snprintf(why, why_len, "there is no folder %s", tops[i]);
			rc = -ENOENT;
		} else {
			rc = folder(&m, tops[i], false);
		}
	}
	rpwi_tree_close(&m.tree);
	return rc;
}

/* A NODE may be left out. */
const char *rpwi_plan_last(const struct rpwi_plan *p)
{
	for (unsigned i = p->n; i-- > 0;)
		if (p->step[i].kind != NODE)
			return p->step[i].path;
	return NULL;
}

const char *rpwi_plan_counter(const struct rpwi_plan *p, unsigned *at)
{
	while (*at < p->n) {
		const struct rpwi_plan_step *s = &p->step[(*at)++];
		if (s->kind == FILE_COUNTER)
			return s->path;
	}
	return NULL;
}

void rpwi_plan_free(struct rpwi_plan *p)
{
	for (unsigned i = 0; i < p->n; i++) {
		free(p->step[i].path);
		free(p->step[i].text);
	}
	free(p->step);
	*p = (struct rpwi_plan){0};
}

/* ---- laying ---- */

int rpwi_plan_write(const char *path, const char *text, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	ssize_t n = len ? write(fd, text, len) : 0;
	int rc = n < 0 ? -errno : 0;
	if (!rc && (size_t)n < len)
		rc = -ENOSPC;
	if (!rc && fchmod(fd, mode)) /* whatever the umask */
		rc = -errno;
	close(fd);
	return rc;
}

static int make_folder(const char *path)
{
	return mkdir(path, 0755) || chmod(path, 0755) ? -errno : 0;
}

/* What a tmpfs takes at most that has all of the plan: a page for each name, and those of the
 * texts; and room for what a program makes there. It takes only what is used. */
static void cover_room(const struct rpwi_plan *p, char options[64])
{
	enum { SPARE_BYTES = 4 << 20, SPARE_NAMES = 1024 };
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = SPARE_BYTES;
	for (unsigned i = 0; i < p->n; i++)
		bytes += page + (p->step[i].len + page - 1) / page * page;
	snprintf(options, 64, "mode=0755,size=%llu,nr_inodes=%u", (unsigned long long)bytes,
		p->n + SPARE_NAMES);
}

/* `*real` becomes the folder beneath, which has no path any more. */
static int lay_cover(const struct rpwi_plan *p, const char *path, const char *source, int *real)
{
	char options[64];
	cover_room(p, options);
	if (*real >= 0)
		close(*real);
	*real = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*real < 0)
		return -errno;
	return mount(source, path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) ? -errno : 0;
}

/* What was there, at its old name: with all that is mounted below it, since the kernel lets nobody
 * look beneath a mount of another's. */
static int lay_kept(const struct rpwi_plan_step *s, int real)
{
	char from[RPWI_TREE_PATH_MAX * 2 + 32];
	snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", real, strrchr(s->path, '/') + 1);
	int rc = s->kind == KEEP_FOLDER ? make_folder(s->path)
					: rpwi_plan_write(s->path, "", 0, 0444);
	if (!rc && mount(from, s->path, NULL, MS_BIND | MS_REC, NULL)) {
		rc = -errno;
		if (rc == -ENOENT && !remove(s->path)) /* unplugged in this moment */
			return 0;
	}
	return rc;
}

static int lay_step(
	const struct rpwi_plan *p, const struct rpwi_plan_step *s, const char *source, int *real)
{
	switch (s->kind) {
	case COVER:
		return lay_cover(p, s->path, source, real);
	case KEEP_FOLDER:
	case KEEP_FILE:
		return lay_kept(s, *real);
	case LINK:
		return symlink(s->text, s->path) ? -errno : 0;
	case FOLDER:
		return make_folder(s->path);
	case FILE_TEXT:
	case FILE_COUNTER:
		return rpwi_plan_write(s->path, s->text, s->len, 0444);
	case FILE_MUTE:
		return rpwi_plan_write(s->path, "", 0, 0);
	case NODE:
		/* The one device number that everyone may give a name; the older kernels that do
		 * not let him have no such file. */
		if (mknod(s->path, S_IFCHR | 0666, 0))
			return errno == EPERM ? 0 : -errno;
		return chmod(s->path, 0666) ? -errno : 0;
	}
	return -EINVAL;
}

static const char *cannot(enum step_kind kind)
{
	if (kind == COVER)
		return "cannot mount over";
	return kind <= KEEP_FILE ? "cannot mount again" : "cannot make";
}

int rpwi_plan_lay(const struct rpwi_plan *p, const char *source, char *what, size_t what_len)
{
	int real = -1, rc = 0;
	for (unsigned i = 0; i < p->n && !rc; i++) {
		rc = lay_step(p, &p->step[i], source, &real);
		if (rc)
			snprintf(what, what_len, "%s %s", cannot(p->step[i].kind), p->step[i].path);
	}
	if (real >= 0)
		close(real);
	return rc;
}
