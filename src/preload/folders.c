/* SPDX-License-Identifier: BSD-3-Clause */
/* folders.c - streams of folders that have something of ours: opendir, readdir and their kin,
 * scandir, glob, getdents64. A stream holds the names as they were when it was opened or rewound:
 * the kernel's own, then ours.
 *
 * Our streams lie in one array, so that each call sees by the address alone whose it is. As with
 * the C library's, a stream is one thread's at a time.
 */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include "preload/next.h"
#include "preload/preload.h"
#include "tree/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "64-bit machines");

enum { STREAMS = 256, NAMES_MAX = 1 << 20 };

struct name {
	ino_t ino;
	unsigned char type;
	char *text;
};
struct stream {
	_Atomic bool used;
	DIR *real; /* the kernel's folder, if it has one */
	int fd;    /* ours, else */
	char path[RPWI_TREE_PATH_MAX];
	struct name *names;
	size_t n, room, at;
	struct dirent entry;
};
static struct stream streams[STREAMS];

static struct stream *stream_of(DIR *d)
{
	uintptr_t at = (uintptr_t)d - (uintptr_t)streams;
	return RPWI_UNLIKELY(at < sizeof(streams)) ? (struct stream *)(void *)d : NULL;
}

/* ---- names ---- */

static void names_clear(struct stream *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->names[i].text);
	free(s->names);
	s->names = NULL;
	s->n = s->room = s->at = 0;
}

static void name_add(struct stream *s, const char *text, unsigned char type, ino_t ino)
{
	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 32;
		struct name *more =
			room > NAMES_MAX ? NULL : realloc(s->names, room * sizeof(*more));
		if (!more)
			return;
		s->names = more;
		s->room = room;
	}
	char *copy = strdup(text);
	if (copy)
		s->names[s->n++] = (struct name){ino, type, copy};
}

static unsigned char type_of(enum rpwi_kind kind)
{
	switch (kind) {
	case RPWI_NODE_DIR:
		return DT_DIR;
	case RPWI_NODE_LINK:
		return DT_LNK;
	case RPWI_NODE_FILE:
		return DT_REG;
	default:
		return DT_CHR;
	}
}

static void name_ours(void *arg, const char *name, enum rpwi_kind kind)
{
	struct stream *s = arg;
	char path[RPWI_TREE_PATH_MAX];
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->names[i].text, name))
			return;
	int len = snprintf(path, sizeof(path), "%s/%s", s->path, name);
	if (len > 0 && (size_t)len < sizeof(path))
		name_add(s, name, type_of(kind), rpwi_ours_number(path));
}

/* One of the kernel's own, unless programs are not shown it. */
static void name_real(struct stream *s, const struct dirent *e)
{
	char path[RPWI_TREE_PATH_MAX];
	int len = snprintf(path, sizeof(path), "%s/%s", s->path, e->d_name);
	bool whole = len > 0 && (size_t)len < sizeof(path);
	if (!whole || !rpwi_tree_hides(path))
		name_add(s, e->d_name, e->d_type, e->d_ino);
}

static void fill(struct stream *s, const struct rpwi_place *p)
{
	names_clear(s);
	if (s->real) {
		const struct dirent *e;
		while ((e = RPWI_NEXT(readdir, readdir)(s->real)))
			name_real(s, e);
	} else {
		char above[RPWI_TREE_PATH_MAX];
		memcpy(above, s->path, sizeof(above));
		*strrchr(above, '/') = '\0';
		name_add(s, ".", DT_DIR, rpwi_ours_number(s->path));
		name_add(s, "..", DT_DIR, rpwi_ours_number(above));
	}
	rpwi_tree_list(&p->tree, s->path, name_ours, s);
}

static struct stream *stream_new(const struct rpwi_place *p, DIR *real, int fd)
{
	for (unsigned i = 0; i < STREAMS; i++) {
		struct stream *s = &streams[i];
		bool no = false;
		if (!atomic_compare_exchange_strong(&s->used, &no, true))
			continue;
		s->real = real;
		s->fd = fd;
		memcpy(s->path, p->path, sizeof(s->path));
		RPWI_KEEP_ERRNO(fill(s, p));
		return s;
	}
	return rpwi_none(EMFILE);
}

/* ---- open ---- */

/* A stream of ours for a place that was found, whose tree is open; or NULL with errno. */
static DIR *open_ours(const struct rpwi_place *p)
{
	if (p->node.kind != RPWI_NODE_DIR)
		return rpwi_none(ENOTDIR);
	int fd = rpwi_token_open(p->path, NULL, 0, O_CLOEXEC);
	struct stream *s = fd < 0 ? NULL : stream_new(p, NULL, fd);
	if (!s && fd >= 0)
		RPWI_KEEP_ERRNO(rpwi_raw_close(fd));
	return (DIR *)s;
}

/* The kernel's stream, with ours behind it. Without room for that it stays as it is. */
static DIR *merge(const struct rpwi_place *p, DIR *real)
{
	struct stream *s = real ? stream_new(p, real, -1) : NULL;
	if (real)
		rpwi_fd_is(RPWI_NEXT(dirfd, dirfd)(real), RPWI_FD_SYS);
	return s ? (DIR *)s : real;
}

static bool is_worth_it(const char *path)
{
	__asm__("" : "+r"(path));
	return path && (path[0] == '/' ? rpwi_is_below_sys(path) || rpwi_maybe(path)
				       : rpwi_cwd_state != RPWI_CWD_OTHER);
}

RPWI_HOOK(DIR *, hook_opendir, opendir, (const char *path))
{
	struct rpwi_place p;
	DIR *d = NULL;
	if (!RPWI_UNLIKELY(is_worth_it(path)))
		return RPWI_NEXT(hook_opendir, opendir)(path);
	int found = rpwi_place_find(&p, AT_FDCWD, path, 0);
	if (found == RPWI_OURS) {
		d = open_ours(&p);
	} else if (found < 0) {
		errno = -found;
	} else {
		const char *real = found == RPWI_REAL ? p.path : path;
		struct rpwi_place m;
		bool merged = rpwi_place_is_merged(&m, AT_FDCWD, real);
		d = RPWI_NEXT(hook_opendir, opendir)(real);
		if (merged)
			d = merge(&m, d);
		else if (d)
			rpwi_fd_is(RPWI_NEXT(dirfd, dirfd)(d), RPWI_FD_SYS);
		rpwi_place_done(&m);
	}
	rpwi_place_done(&p);
	return d;
}

RPWI_HOOK(DIR *, hook_fdopendir, fdopendir, (int fd))
{
	struct rpwi_place p;
	DIR *d = NULL;
	char name[RPWI_TREE_PATH_MAX];
	int state = rpwi_fd_state(fd);
	if (RPWI_UNLIKELY(state == RPWI_FD_TOKEN)) {
		int found = rpwi_place_of_fd(&p, fd);
		if (found == RPWI_OURS && p.node.kind != RPWI_NODE_DIR)
			errno = ENOTDIR;
		else if (found == RPWI_OURS)
			d = (DIR *)stream_new(&p, NULL, fd);
		rpwi_place_done(&p);
		if (found == RPWI_OURS)
			return d;
	}
	d = RPWI_NEXT(hook_fdopendir, fdopendir)(fd);
	if (d && RPWI_UNLIKELY(state == RPWI_FD_SYS) && rpwi_kernel_name(fd, name)) {
		if (rpwi_place_is_merged(&p, AT_FDCWD, name))
			d = merge(&p, d);
		rpwi_place_done(&p);
	}
	return d;
}

/* ---- read ---- */

static struct dirent *read_ours(struct stream *s)
{
	if (s->at >= s->n)
		return NULL;
	const struct name *n = &s->names[s->at++];
	s->entry = (struct dirent){.d_ino = n->ino,
		.d_off = (off_t)s->at,
		.d_reclen = sizeof(s->entry),
		.d_type = n->type};
	memcpy(s->entry.d_name, n->text, strnlen(n->text, sizeof(s->entry.d_name) - 1));
	return &s->entry;
}

#define HOOK_READDIR(hook, name) \
	RPWI_HOOK(struct dirent *, hook, name, (DIR * d)) \
	{ \
		struct stream *s = stream_of(d); \
		return s ? read_ours(s) : RPWI_NEXT(hook, name)(d); \
	}
HOOK_READDIR(hook_readdir, readdir)
HOOK_READDIR(hook_readdir64, readdir64)

#define HOOK_READDIR_R(hook, name) \
	RPWI_HOOK(int, hook, name, (DIR * d, struct dirent * e, struct dirent * *out)) \
	{ \
		struct stream *s = stream_of(d); \
		if (!s) \
			return RPWI_NEXT(hook, name)(d, e, out); \
		const struct dirent *got = read_ours(s); \
		if (got) \
			memcpy(e, got, sizeof(*e)); \
		*out = got ? e : NULL; \
		return 0; \
	}
HOOK_READDIR_R(hook_readdir_r, readdir_r)
HOOK_READDIR_R(hook_readdir64_r, readdir64_r)

RPWI_HOOK(int, hook_closedir, closedir, (DIR * d))
{
	struct stream *s = stream_of(d);
	int rc;
	if (!s)
		return RPWI_NEXT(hook_closedir, closedir)(d);
	names_clear(s);
	rc = s->real ? RPWI_NEXT(hook_closedir, closedir)(s->real) : (int)syscall(SYS_close, s->fd);
	s->real = NULL;
	s->fd = -1;
	atomic_store(&s->used, false);
	return rc;
}

RPWI_HOOK(int, hook_dirfd, dirfd, (DIR * d))
{
	struct stream *s = stream_of(d);
	if (s && !s->real)
		return s->fd;
	return RPWI_NEXT(dirfd, dirfd)(s ? s->real : d);
}

RPWI_HOOK(void, hook_rewinddir, rewinddir, (DIR * d))
{
	struct stream *s = stream_of(d);
	struct rpwi_place p;
	if (!s || s->real)
		RPWI_NEXT(hook_rewinddir, rewinddir)(s ? s->real : d);
	if (!s)
		return;
	memset(&p, 0, sizeof(p));
	rpwi_tree_open(&p.tree);
	RPWI_KEEP_ERRNO(fill(s, &p));
	rpwi_place_done(&p);
}

RPWI_HOOK(long, hook_telldir, telldir, (DIR * d))
{
	struct stream *s = stream_of(d);
	return s ? (long)s->at : RPWI_NEXT(hook_telldir, telldir)(d);
}

RPWI_HOOK(void, hook_seekdir, seekdir, (DIR * d, long at))
{
	struct stream *s = stream_of(d);
	if (!s)
		RPWI_NEXT(hook_seekdir, seekdir)(d, at);
	else
		s->at = at < 0 || (size_t)at > s->n ? s->n : (size_t)at;
}

/* The position is the descriptor's, as with the kernel's folders. */
RPWI_HOOK(ssize_t, hook_getdents, getdents64, (int fd, void *buf, size_t size))
{
	struct rpwi_place p;
	if (!RPWI_UNLIKELY(rpwi_fd_state(fd) == RPWI_FD_TOKEN))
		return RPWI_NEXT(hook_getdents, getdents64)(fd, buf, size);
	int found = rpwi_place_of_fd(&p, fd);
	struct stream *s = found == RPWI_OURS && p.node.kind == RPWI_NODE_DIR
				   ? stream_new(&p, NULL, fd)
				   : NULL;
	rpwi_place_done(&p);
	if (!s)
		return RPWI_NEXT(hook_getdents, getdents64)(fd, buf, size);
	size_t used = 0;
	off_t at = lseek(fd, 0, SEEK_CUR);
	s->at = at < 0 ? s->n : (size_t)at;
	for (const struct dirent *e; (e = read_ours(s));) {
		struct dirent *to = (struct dirent *)(void *)((char *)buf + used);
		size_t len = (offsetof(struct dirent, d_name) + strlen(e->d_name) + 8) & ~7ul;
		if (used + len > size) {
			s->at--;
			break;
		}
		memcpy(to, e, len);
		to->d_reclen = (unsigned short)len;
		used += len;
	}
	bool more = s->at < s->n;
	lseek(fd, (off_t)s->at, SEEK_SET);
	names_clear(s);
	atomic_store(&s->used, false);
	return !used && more ? rpwi_minus(EINVAL) : (ssize_t)used;
}

/* ---- scandir, by the calls above ---- */

typedef int filter_fn(const struct dirent *e);
typedef int compare_fn(const struct dirent **a, const struct dirent **b);

static int scan(DIR *d, struct dirent ***list, filter_fn *filter, compare_fn *compare)
{
	struct dirent **all = NULL;
	size_t n = 0;
	if (!d)
		return -1;
	for (const struct dirent *e; (e = hook_readdir(d));) {
		if (filter && !filter(e))
			continue;
		struct dirent **more = realloc(all, (n + 1) * sizeof(*all));
		struct dirent *copy = more ? malloc(sizeof(*copy)) : NULL;
		if (more)
			all = more;
		if (!copy) {
			while (n)
				free(all[--n]);
			free(all);
			hook_closedir(d);
			return rpwi_minus(ENOMEM);
		}
		memcpy(copy, e, offsetof(struct dirent, d_name) + strlen(e->d_name) + 1);
		all[n++] = copy;
	}
	hook_closedir(d);
	if (compare && n)
		qsort(all, n, sizeof(*all), (int (*)(const void *, const void *))compare);
	*list = all ? all : malloc(sizeof(*all)); /* the caller frees it, empty or not */
	return (int)n;
}

#define HOOK_SCANDIR(hook, name) \
	RPWI_HOOK(int, hook, name, \
		(const char *path, struct dirent ***list, filter_fn *filter, compare_fn *compare)) \
	{ \
		return RPWI_UNLIKELY(is_worth_it(path)) \
			       ? scan(hook_opendir(path), list, filter, compare) \
			       : RPWI_NEXT(hook, name)(path, list, filter, compare); \
	}
HOOK_SCANDIR(hook_scandir, scandir)
HOOK_SCANDIR(hook_scandir64, scandir64)

#define HOOK_SCANDIRAT(hook, name) \
	RPWI_HOOK(int, hook, name, \
		(int dir, const char *path, struct dirent ***list, filter_fn *filter, \
			compare_fn *compare)) \
	{ \
		bool worth = path && (path[0] == '/' || dir == AT_FDCWD \
						     ? is_worth_it(path) \
						     : rpwi_fd_state(dir) != RPWI_FD_OTHER); \
		if (!RPWI_UNLIKELY(worth)) \
			return RPWI_NEXT(hook, name)(dir, path, list, filter, compare); \
		int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); \
		return fd < 0 ? -1 : scan(hook_fdopendir(fd), list, filter, compare); \
	}
HOOK_SCANDIRAT(hook_scandirat, scandirat)
HOOK_SCANDIRAT(hook_scandirat64, scandirat64)

/* ---- glob: the C library lets a program bring its own calls ---- */

static void *glob_opendir(const char *path) { return hook_opendir(path); }
static struct dirent *glob_readdir(void *d) { return hook_readdir(d); }
static void glob_closedir(void *d) { hook_closedir(d); }

static int glob_ours(__typeof__(glob) *next, const char *pattern, int flags,
	int (*failed)(const char *, int), glob_t *g)
{
	__asm__("" : "+r"(pattern));
	if (!pattern || !is_worth_it(pattern) || flags & GLOB_ALTDIRFUNC)
		return next(pattern, flags, failed, g);
	g->gl_opendir = glob_opendir;
	g->gl_readdir = glob_readdir;
	g->gl_closedir = glob_closedir;
	g->gl_stat = stat;
	g->gl_lstat = lstat;
	int rc = next(pattern, flags | GLOB_ALTDIRFUNC, failed, g);
	g->gl_flags &= ~GLOB_ALTDIRFUNC;
	return rc;
}

#define HOOK_GLOB(hook, name) \
	RPWI_HOOK(int, hook, name, \
		(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *g)) \
	{ \
		return glob_ours(RPWI_NEXT(hook, name), pattern, flags, failed, g); \
	}
HOOK_GLOB(hook_glob, glob)
HOOK_GLOB(hook_glob64, glob64)
