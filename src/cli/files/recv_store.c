/* SPDX-License-Identifier: BSD-3-Clause */
/* recv_store.c - what `ropeway recv` does on the disk.
 *
 * Names come from a peer of whom nothing is known. A name is checked as text first; then its
 * directory is opened by openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, by the kernel and in
 * one step, so that nothing that changes meanwhile can lead outside; and its last component is only
 * used relative to that descriptor, never followed.
 *
 * What was there before is another's: without --overwrite nothing of it changes, neither contents
 * nor modes. The kernel decides that too, at the last moment (RENAME_NOREPLACE, symlinkat): what
 * appears while a file is received is not replaced either.
 */
#include "cli/files/recv_store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static void tell(struct store_why *why, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void tell(struct store_why *why, const char *name, const char *fmt, ...)
{
	char shown[200], reason[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	snprintf(why->text, sizeof(why->text), "'%s': %s",
		rpwi_cli_printable(name, shown, sizeof(shown)), reason);
}
#define fail(why, name, ...) (tell(why, name, __VA_ARGS__), STORE_REFUSED)

static enum store_result keep(struct store_why *why, const char *name)
{
	tell(why, name,
		"a different file of this name exists, and stays: ropeway recv --overwrite "
		"replaces it");
	return STORE_KEPT;
}

static int open_beneath(int dir, const char *name, uint64_t flags, uint64_t mode)
{
	struct open_how how = {.flags = flags | O_CLOEXEC,
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};

	return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

int store_open(struct store *s, const char *dir, struct store_why *why)
{
	s->root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->root < 0)
		return fail(why, dir, "cannot be opened as a directory: %s%s", strerror(errno),
			errno == ENOENT ? ": create it first, with mkdir" : "");
	int probe = open_beneath(s->root, ".", O_PATH | O_DIRECTORY, 0), ret = 0;
	if (probe < 0)
		ret = fail(why, dir,
			"openat2 does not work here (%s), and without it no name from a peer is "
			"safe: Linux 5.6 or later is needed",
			strerror(errno));
	else if (faccessat(s->root, ".", W_OK | X_OK, AT_EACCESS))
		ret = fail(why, dir, "cannot be written to: %s", strerror(errno));
	if (probe >= 0)
		close(probe);
	if (ret)
		close(s->root);
	return ret;
}

/* The directory that holds `name`, and the last component. */
static int open_parent(
	int root, const char *name, char leaf[FILES_COMPONENT_MAX + 1], struct store_why *why)
{
	char path[FILES_TEXT_MAX + 1];
	const char *wrong = files_name_check(name);

	if (wrong)
		return fail(why, name, "refused: %s", wrong);
	snprintf(path, sizeof(path), "%s", name);
	char *slash = strrchr(path, '/');
	/* as long as a component may be */
	snprintf(leaf, FILES_COMPONENT_MAX + 1, "%.*s", FILES_COMPONENT_MAX,
		slash ? slash + 1 : path);
	if (slash)
		*slash = '\0';
	int fd = open_beneath(root, slash ? path : ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd >= 0)
		return fd;
	if (errno == ELOOP || errno == EXDEV)
		return fail(why, name,
			"refused: there is a symbolic link in its path, and links are never "
			"followed");
	return fail(why, name, "its directory cannot be opened: %s", strerror(errno));
}

/* ---- directories ---- */

/* Is `name` in the innermost directory, or at the top? So each DIR has its DIR_END, and a bounded
 * number of them is remembered. */
static bool is_inside(const struct store_dirs *d, const char *name)
{
	size_t len = strlen(d->path);

	return d->depth < FILES_DEPTH_MAX && !strncmp(name, d->path, len) &&
	       (!len || name[len] == '/') && !strchr(name + len + !!len, '/');
}

static enum store_result make_dir(int parent, const char *leaf, struct store_dirs *d,
	const struct files_message *m, struct store_why *why)
{
	bool is_made = !mkdirat(parent, leaf, 0700);
	enum store_result ret = STORE_OK;
	struct stat st;

	if (!is_made && errno != EEXIST)
		return fail(why, m->name, "the directory cannot be made: %s", strerror(errno));
	if (fstatat(parent, leaf, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
		return fail(why, m->name, "refused: it exists, and is not a directory");
	int fd = is_made ? open_beneath(parent, leaf, O_RDONLY | O_DIRECTORY, 0) : -1;
	/* Ours to write until DIR_END; else as it will be, so that a transfer that breaks leaves it
	 * right. */
	if (fd >= 0 && fchmod(fd, (m->mode & 0777) | 0700))
		ret = fail(
			why, m->name, "mode of the directory cannot be set: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	if (ret)
		return ret;
	snprintf(d->path, sizeof(d->path), "%s", m->name);
	d->level[d->depth].is_made = is_made;
	d->level[d->depth].dev = st.st_dev;
	d->level[d->depth].ino = st.st_ino;
	d->depth++;
	if (!is_made && (st.st_mode & 0777) != (m->mode & 0777))
		tell(why, m->name,
			"the directory exists: its mode %03o stays, the sender's is %03o",
			st.st_mode & 0777, m->mode & 0777);
	return STORE_OK;
}

enum store_result store_dir(const struct store *s, struct store_dirs *d,
	const struct files_message *m, struct store_why *why)
{
	char leaf[FILES_COMPONENT_MAX + 1];
	int parent = open_parent(s->root, m->name, leaf, why);

	if (parent < 0)
		return STORE_REFUSED;
	enum store_result ret =
		is_inside(d, m->name)
			? make_dir(parent, leaf, d, m, why)
			: fail(why, m->name,
				  "refused: it is not in the directory that was begun last");
	close(parent);
	return ret;
}

enum store_result store_dir_end(const struct store *s, struct store_dirs *d,
	const struct files_message *m, struct store_why *why)
{
	struct timespec times[2] = {
		{.tv_nsec = UTIME_OMIT}, {.tv_sec = m->mtime_s, .tv_nsec = m->mtime_ns}};
	const char *wrong = files_name_check(m->name);
	enum store_result ret = STORE_OK;
	struct stat st;

	if (wrong)
		return fail(why, m->name, "refused: %s", wrong);
	if (!d->depth || strcmp(m->name, d->path) != 0)
		return fail(why, m->name, "refused: it is not the directory that was begun last");
	d->depth--;
	d->path[d->depth ? strrchr(d->path, '/') - d->path : 0] = '\0';
	int fd = open_beneath(s->root, m->name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fail(why, m->name, "the directory cannot be opened: %s", strerror(errno));
	bool is_ours = !fstat(fd, &st) && d->level[d->depth].is_made &&
		       d->level[d->depth].dev == st.st_dev && d->level[d->depth].ino == st.st_ino;
	if (is_ours && fchmod(fd, m->mode & 0777))
		ret = fail(
			why, m->name, "mode of the directory cannot be set: %s", strerror(errno));
	if (futimens(fd, times) && is_ours)
		ret = fail(
			why, m->name, "time of the directory cannot be set: %s", strerror(errno));
	close(fd);
	return ret;
}

/* ---- links ---- */

static void part_name(const char *leaf, char part[FILES_COMPONENT_MAX + 1])
{
	size_t len = strlen(leaf);

	if (len + strlen(FILES_PART) <= FILES_COMPONENT_MAX)
		snprintf(part, FILES_COMPONENT_MAX + 1, "%.*s" FILES_PART, (int)len, leaf);
	else
		snprintf(part, FILES_COMPONENT_MAX + 1, "%016llx" FILES_PART,
			(unsigned long long)XXH3_64bits(leaf, len));
}

static bool is_link_to(int parent, const char *leaf, const char *target)
{
	char there[FILES_TEXT_MAX + 1];
	ssize_t n = readlinkat(parent, leaf, there, sizeof(there));

	return n >= 0 && (size_t)n == strlen(target) && !memcmp(there, target, (size_t)n);
}

/* By way of a part, so that an older link is replaced in one step. */
static enum store_result replace_link(
	int parent, const char *leaf, const struct files_message *m, struct store_why *why)
{
	char part[FILES_COMPONENT_MAX + 1];
	struct stat st;

	if (!fstatat(parent, leaf, &st, AT_SYMLINK_NOFOLLOW) && !S_ISLNK(st.st_mode))
		return fail(why, m->name, "refused: it exists, and is not a link");
	part_name(leaf, part);
	if (symlinkat(m->text, parent, part) && errno == EEXIST &&
		!fstatat(parent, part, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode)) {
		unlinkat(parent, part, 0);
		errno = symlinkat(m->text, parent, part) ? errno : 0;
	}
	return renameat(parent, part, parent, leaf)
		       ? fail(why, m->name, "the link cannot be made: %s", strerror(errno))
		       : STORE_OK;
}

static enum store_result make_link(const struct store *s, int parent, const char *leaf,
	const struct files_message *m, struct store_why *why)
{
	struct timespec times[2] = {
		{.tv_nsec = UTIME_OMIT}, {.tv_sec = m->mtime_s, .tv_nsec = m->mtime_ns}};
	enum store_result ret = STORE_OK;

	if (symlinkat(m->text, parent, leaf)) {
		if (errno != EEXIST)
			return fail(why, m->name, "the link cannot be made: %s", strerror(errno));
		if (is_link_to(parent, leaf, m->text))
			return STORE_OK;
		ret = s->overwrite ? replace_link(parent, leaf, m, why) : keep(why, m->name);
	}
	/* not every file system has times of links */
	if (ret == STORE_OK)
		utimensat(parent, leaf, times, AT_SYMLINK_NOFOLLOW);
	return ret;
}

enum store_result store_link(
	const struct store *s, bool any, const struct files_message *m, struct store_why *why)
{
	char leaf[FILES_COMPONENT_MAX + 1];
	int parent = open_parent(s->root, m->name, leaf, why);

	if (parent < 0)
		return STORE_REFUSED;
	const char *wrong =
		any && s->any_links && *m->text ? NULL : files_link_check(m->name, m->text);
	enum store_result ret =
		wrong ? fail(why, m->name, "refused: the link is not safe: %s", wrong)
		      : make_link(s, parent, leaf, m, why);
	close(parent);
	return ret;
}

/* ---- files ---- */

static int open_plain(int parent, const char *leaf, uint64_t flags, struct stat *st)
{
	int fd = open_beneath(parent, leaf, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
		flags & O_CREAT ? 0600 : 0);

	if (fd < 0)
		return -errno;
	if (!fstat(fd, st) && S_ISREG(st->st_mode))
		return fd;
	close(fd);
	return -EMLINK;
}

/* A file of this name and size is there: its contents will tell. It is only read. */
static enum store_result open_complete(
	struct store_file *f, const char *name, struct store_why *why)
{
	struct stat st = {0};
	int fd = open_plain(f->parent, f->leaf, O_RDONLY, &st);

	if (fd < 0)
		return fail(why, name,
			"it is there already, and cannot be opened to compare it: %s",
			fd == -EMLINK ? "it is not a plain file" : strerror(-fd));
	if ((uint64_t)st.st_size != f->size) {
		close(fd);
		return keep(why, name);
	}
	f->fd = fd;
	f->is_there = true;
	f->is_kept = !f->overwrite;
	f->has_other_names = st.st_nlink > 1;
	f->there = f->size;
	return STORE_OK;
}

/* A part of ours with one name: not a device, a pipe, something that has another name elsewhere, or
 * another user's, who could write to it later. */
static enum store_result open_part(struct store_file *f, const char *name, struct store_why *why)
{
	struct stat st = {0}, named;

	part_name(f->leaf, f->part);
	int fd = open_plain(f->parent, f->part, O_RDWR | O_CREAT, &st);
	if (fd >= 0 && (st.st_nlink != 1 || st.st_uid != geteuid())) {
		close(fd);
		fd = -EMLINK;
	}
	if (fd < 0) {
		f->part[0] = '\0';
		return fail(why, name, "its part cannot be opened for writing: %s",
			fd == -EMLINK ? "it is not a plain file of ours with one name"
				      : strerror(-fd));
	}
	f->fd = fd;
	/* With the lock it must still have its name: another one may have completed it
	 * meanwhile. */
	if (flock(fd, LOCK_EX | LOCK_NB) ||
		fstatat(f->parent, f->part, &named, AT_SYMLINK_NOFOLLOW) ||
		named.st_ino != st.st_ino || fstat(fd, &st)) {
		f->part[0] = '\0';
		return fail(why, name, "another sender is sending it at this moment");
	}
	/* Checksums are of chunks: it goes on after the last whole one. */
	uint64_t len = (uint64_t)st.st_size;
	if (len != f->size)
		len = len < f->size ? len - len % FILES_CHUNK : 0;
	f->there = len;
	return STORE_OK;
}

/* A disk that is too small is reported at once. Nothing is reserved: a sender who only announces
 * takes nothing away. */
static enum store_result room(
	const struct store_file *f, uint64_t data, const char *name, struct store_why *why)
{
	char need[CLI_SIZE_LEN], have[CLI_SIZE_LEN];
	struct statvfs fs;
	struct stat st;

	if (ftruncate(f->fd, (off_t)f->there))
		return fail(why, name, "its part cannot be cut: %s", strerror(errno));
	if (fstat(f->fd, &st) || fstatvfs(f->fd, &fs) || !fs.f_blocks)
		return STORE_OK;
	uint64_t left = (uint64_t)(geteuid() ? fs.f_bavail : fs.f_bfree) * fs.f_frsize,
		 has = (uint64_t)st.st_blocks * 512;
	data = RPWI_MIN(data, f->size);
	if (data <= has || data - has <= left)
		return STORE_OK;
	return fail(why, name, "no room for %s: %s; %s are free", rpwi_cli_size(data - has, need),
		strerror(ENOSPC), rpwi_cli_size(left, have));
}

static enum store_result begin(
	struct store_file *f, const struct files_message *m, struct store_why *why)
{
	struct stat st;
	bool exists = !fstatat(f->parent, f->leaf, &st, AT_SYMLINK_NOFOLLOW);

	if (m->size > INT64_MAX)
		return fail(why, m->name, "refused: no file has %llu bytes",
			(unsigned long long)m->size);
	if (exists && !S_ISREG(st.st_mode))
		return fail(why, m->name, "refused: it exists, and is not a plain file");
	if (files_sum_open(&f->sum))
		return fail(why, m->name, "out of memory");
	enum store_result ret = exists && (!f->overwrite || (uint64_t)st.st_size == f->size)
					? open_complete(f, m->name, why)
					: STORE_OK;
	if (ret == STORE_OK && !f->is_there)
		ret = open_part(f, m->name, why);
	if (ret == STORE_OK && !f->is_there)
		ret = room(f, m->data, m->name, why);
	f->is_reading = f->there;
	return ret;
}

enum store_result store_file_begin(const struct store *s, const struct files_message *m,
	struct store_file *f, struct store_why *why)
{
	*f = (struct store_file){.fd = -1,
		.overwrite = s->overwrite,
		.size = m->size,
		.mode = m->mode & 0777,
		.mtime = {.tv_sec = m->mtime_s, .tv_nsec = m->mtime_ns}};
	snprintf(f->name, sizeof(f->name), "%s", m->name);
	f->parent = open_parent(s->root, m->name, f->leaf, why);
	if (f->parent < 0)
		return STORE_REFUSED;
	enum store_result ret = begin(f, m, why);
	if (ret != STORE_OK)
		store_file_close(f);
	return ret;
}

enum store_result store_file_read(struct store_file *f, struct store_why *why)
{
	enum { BUDGET = 8 << 20 }; /* so long the others wait */
	int rc = files_sum_file(&f->sum, f->fd, f->there, BUDGET);

	if (rc < 0)
		return fail(
			why, f->name, "the existing part of it cannot be read: %s", strerror(-rc));
	f->is_reading = rc;
	f->written = f->sum.at;
	return STORE_OK;
}

enum store_result store_file_start(struct store_file *f, uint64_t from, struct store_why *why)
{
	if (from == f->there)
		return STORE_OK;
	if (from || f->is_kept)
		return fail(why, f->name,
			"refused: it is to begin at byte %llu, neither 0 nor where this side is",
			(unsigned long long)from);
	/* What is there is of another file. A complete one stays until the new one is. */
	if (f->is_there) {
		close(f->fd);
		f->fd = -1;
		f->is_there = f->has_other_names = false;
		if (open_part(f, f->name, why))
			return STORE_REFUSED;
	}
	if (ftruncate(f->fd, 0))
		return fail(why, f->name, "%s", strerror(errno));
	f->written = f->there = 0;
	files_sum_reset(&f->sum);
	return STORE_OK;
}

static void hole_until(struct store_file *f, uint64_t offset)
{
	files_sum_hole(&f->sum, offset - f->written);
	f->written = offset;
}

enum store_result store_file_write(
	struct store_file *f, uint64_t offset, const void *bytes, size_t len, struct store_why *why)
{
	const uint8_t *p = bytes;

	if (f->is_there || offset < f->written || offset > f->size || len > f->size - offset)
		return fail(why, f->name,
			"refused: %zu bytes came for offset %llu, and at %llu of %llu bytes this "
			"is wrong",
			len, (unsigned long long)offset, (unsigned long long)f->written,
			(unsigned long long)f->size);
	hole_until(f, offset);
	files_sum_bytes(&f->sum, bytes, len);
	for (size_t left = len; left;) {
		ssize_t n = pwrite(f->fd, p, left, (off_t)f->written);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(why, f->name,
				"writing failed after %llu of %llu bytes: %s. Whole MiB of them "
				"are kept: send it again when that is fixed",
				(unsigned long long)f->written, (unsigned long long)f->size,
				strerror(errno));
		p += n;
		left -= (size_t)n;
		f->written += (uint64_t)n;
	}
	return STORE_OK;
}

/* Where the file system has no rename that does not replace (NFS), a second name does the same. */
static enum store_result name_it(struct store_file *f, struct store_why *why)
{
	int rc = renameat2(
		f->parent, f->part, f->parent, f->leaf, f->overwrite ? 0 : RENAME_NOREPLACE);

	if (rc && !f->overwrite && (errno == EINVAL || errno == ENOSYS) &&
		!(rc = linkat(f->parent, f->part, f->parent, f->leaf, 0)))
		unlinkat(f->parent, f->part, 0);
	if (rc && errno == EEXIST) {
		tell(why, f->name,
			"something of that name has appeared meanwhile, and stays; what came is %s",
			f->part);
		f->part[0] = '\0';
		return STORE_KEPT;
	}
	if (rc)
		return fail(
			why, f->name, "%s cannot be given its name: %s", f->part, strerror(errno));
	f->part[0] = '\0';
	return STORE_OK;
}

/* An identical file with another mode. Its time is no matter for a line. */
static enum store_result leave_as_it_is(const struct store_file *f, struct store_why *why)
{
	struct stat st;

	if (!fstat(f->fd, &st) && (st.st_mode & 0777) != f->mode)
		tell(why, f->name,
			"the same file exists: its mode %03o stays, the sender's is %03o",
			st.st_mode & 0777, f->mode);
	return STORE_OK;
}

enum store_result store_file_end(
	struct store_file *f, const uint8_t hash[FILES_HASH_BYTES], struct store_why *why)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, f->mtime};
	uint8_t ours[FILES_HASH_BYTES];

	hole_until(f, f->size);
	files_sum_end(&f->sum, ours);
	if (memcmp(ours, hash, FILES_HASH_BYTES) != 0) {
		if (f->is_kept)
			return keep(why, f->name);
		f->written = f->there = 0; /* so that it is removed */
		return fail(why, f->name,
			"the checksum of the received data is not the sender's: the file changed "
			"while it was sent, or bytes were damaged. None of it is kept");
	}
	if (f->is_kept || f->has_other_names)
		return leave_as_it_is(f, why);
	if (!f->is_there && ftruncate(f->fd, (off_t)f->size))
		return fail(why, f->name, "its length cannot be set: %s", strerror(errno));
	if (fchmod(f->fd, f->mode) || futimens(f->fd, times))
		return fail(why, f->name, "mode or time cannot be set: %s", strerror(errno));
	return f->is_there ? STORE_OK : name_it(f, why);
}

void store_file_close(struct store_file *f)
{
	/* less than a chunk is of no use to the next sender */
	if (f->fd >= 0 && f->part[0] && f->written < FILES_CHUNK && f->there < FILES_CHUNK)
		unlinkat(f->parent, f->part, 0);
	if (f->fd >= 0)
		close(f->fd);
	if (f->parent >= 0)
		close(f->parent);
	files_sum_close(&f->sum);
	f->fd = f->parent = -1;
	f->is_reading = false;
}
