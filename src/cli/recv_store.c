/* recv_store.c - what `ropeway recv` does on the disk.
 *
 * Names come from a peer of whom nothing is known. A name is checked as text first; then its directory is opened by openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, by the kernel
 * and in one step, so that nothing that changes meanwhile can lead outside; and its last component is only used relative to that descriptor, never followed.
 */
#include "cli/recv_store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fail(struct store_why *why, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(struct store_why *why, const char *name, const char *fmt, ...)
{
	char shown[200], reason[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	snprintf(why->text, sizeof(why->text), "'%s': %s", rpwi_cli_printable(name, shown, sizeof(shown)), reason);
	return -1;
}

static int open_beneath(int dir, const char *name, uint64_t flags, uint64_t mode)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};

	return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

int store_open(const char *dir, struct store_why *why)
{
	int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return fail(why, dir, "cannot be opened as a directory: %s", strerror(errno));
	int probe = open_beneath(root, ".", O_PATH | O_DIRECTORY, 0);
	if (probe < 0) {
		fail(why, dir, "openat2 does not work here (%s), and without it no name from a peer is safe: Linux 5.6 or later is needed", strerror(errno));
		close(root);
		return -1;
	}
	close(probe);
	if (faccessat(root, ".", W_OK | X_OK, AT_EACCESS)) {
		fail(why, dir, "cannot be written to: %s", strerror(errno));
		close(root);
		return -1;
	}
	return root;
}

/* The directory that holds `name`, and the last component. */
static int open_parent(int root, const char *name, char leaf[FILES_COMPONENT_MAX + 1], struct store_why *why)
{
	char path[FILES_TEXT_MAX + 1];
	const char *wrong = files_name_check(name);

	if (wrong)
		return fail(why, name, "refused: %s", wrong);
	snprintf(path, sizeof(path), "%s", name);
	char *slash = strrchr(path, '/');
	snprintf(leaf, FILES_COMPONENT_MAX + 1, "%.*s", FILES_COMPONENT_MAX, slash ? slash + 1 : path); /* as long as a component may be */
	if (slash)
		*slash = '\0';
	int fd = open_beneath(root, slash ? path : ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd >= 0)
		return fd;
	if (errno == ELOOP || errno == EXDEV)
		return fail(why, name, "refused: there is a symbolic link in its path, and links are never followed");
	return fail(why, name, "its directory cannot be opened: %s", strerror(errno));
}

/* ---- directories and links ---- */

int store_dir(int root, const struct files_message *m, struct store_why *why)
{
	char leaf[FILES_COMPONENT_MAX + 1];
	struct stat st = {0};
	int parent = open_parent(root, m->name, leaf, why), ret = 0;

	if (parent < 0)
		return -1;
	if (mkdirat(parent, leaf, 0700) && errno != EEXIST)
		ret = fail(why, m->name, "the directory cannot be made: %s", strerror(errno));
	else if (fstatat(parent, leaf, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
		ret = fail(why, m->name, "refused: it is there already, and is not a directory");
	int fd = ret ? -1 : open_beneath(parent, leaf, O_RDONLY | O_DIRECTORY, 0);
	if (fd >= 0 && (st.st_mode & 0700) != 0700)
		fchmod(fd, (st.st_mode & 0777) | 0700); /* ours to write until DIR_END; where it is not ours, making files in it will tell */
	if (fd >= 0)
		close(fd);
	close(parent);
	return ret;
}

int store_dir_end(int root, const struct files_message *m, struct store_why *why)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = m->mtime_s, .tv_nsec = m->mtime_ns}};
	const char *wrong = files_name_check(m->name);

	if (wrong)
		return fail(why, m->name, "refused: %s", wrong);
	int fd = open_beneath(root, m->name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fail(why, m->name, "the directory cannot be opened: %s", strerror(errno));
	int ret = 0;
	if (fchmod(fd, m->mode & 0777) || futimens(fd, times))
		ret = fail(why, m->name, "mode or time of the directory cannot be set: %s", strerror(errno));
	close(fd);
	return ret;
}

static void part_name(const char *leaf, char part[FILES_COMPONENT_MAX + 1])
{
	size_t len = strlen(leaf);

	if (len + strlen(FILES_PART) <= FILES_COMPONENT_MAX)
		snprintf(part, FILES_COMPONENT_MAX + 1, "%.*s" FILES_PART, (int)len, leaf);
	else
		snprintf(part, FILES_COMPONENT_MAX + 1, "%016llx" FILES_PART, (unsigned long long)XXH3_64bits(leaf, len));
}

/* By way of a part, so that an older link is replaced in one step. */
static int make_link(int parent, const char *leaf, const struct files_message *m, struct store_why *why)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = m->mtime_s, .tv_nsec = m->mtime_ns}};
	char part[FILES_COMPONENT_MAX + 1];
	struct stat st;

	if (!fstatat(parent, leaf, &st, AT_SYMLINK_NOFOLLOW) && !S_ISLNK(st.st_mode))
		return fail(why, m->name, "refused: it is there already, and is not a link");
	part_name(leaf, part);
	if (symlinkat(m->text, parent, part) && errno == EEXIST && !fstatat(parent, part, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode)) {
		unlinkat(parent, part, 0);
		errno = symlinkat(m->text, parent, part) ? errno : 0;
	}
	if (renameat(parent, part, parent, leaf))
		return fail(why, m->name, "the link cannot be made: %s", strerror(errno));
	utimensat(parent, leaf, times, AT_SYMLINK_NOFOLLOW); /* not every file system has times of links */
	return 0;
}

int store_link(int root, const struct files_message *m, struct store_why *why)
{
	char leaf[FILES_COMPONENT_MAX + 1];
	int parent = open_parent(root, m->name, leaf, why);

	if (parent < 0)
		return -1;
	const char *wrong = files_link_check(m->name, m->text);
	int ret = wrong ? fail(why, m->name, "refused: the link is not safe: %s", wrong) : make_link(parent, leaf, m, why);
	close(parent);
	return ret;
}

/* ---- files ---- */

/* Only a plain file with one name: not a device, a pipe, or something that has another name elsewhere. */
static int open_plain(int parent, const char *leaf, uint64_t flags, struct stat *st)
{
	int fd = open_beneath(parent, leaf, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, flags & O_CREAT ? 0600 : 0);

	if (fd < 0)
		return -errno;
	if (!fstat(fd, st) && S_ISREG(st->st_mode) && st->st_nlink == 1)
		return fd;
	close(fd);
	return -EMLINK;
}

/* The file is there, and looks like the one that is offered: its checksum will tell. */
static bool open_complete(struct store_file *f)
{
	struct stat st = {0};
	int fd = open_plain(f->parent, f->leaf, O_RDONLY, &st);

	if (fd < 0)
		return false;
	f->is_there = (uint64_t)st.st_size == f->size && st.st_mtim.tv_sec == f->mtime.tv_sec && st.st_mtim.tv_nsec == f->mtime.tv_nsec;
	if (f->is_there)
		f->fd = fd;
	else
		close(fd);
	return f->is_there;
}

static int open_part(struct store_file *f, const char *name, uint64_t *there, struct store_why *why)
{
	struct stat st = {0}, named;

	part_name(f->leaf, f->part);
	int fd = open_plain(f->parent, f->part, O_RDWR | O_CREAT, &st);
	if (fd < 0)
		return fail(why, name, "its part cannot be opened for writing: %s", fd == -EMLINK ? "it is not a plain file" : strerror(-fd));
	f->fd = fd;
	/* With the lock it must still have its name: another one may have completed it meanwhile. */
	if (flock(fd, LOCK_EX | LOCK_NB) || fstatat(f->parent, f->part, &named, AT_SYMLINK_NOFOLLOW) || named.st_ino != st.st_ino || fstat(fd, &st)) {
		f->part[0] = '\0';
		return fail(why, name, "another sender is sending it at this moment");
	}
	*there = (uint64_t)st.st_size <= f->size ? (uint64_t)st.st_size : 0;
	return 0;
}

/* Room for all of it, so that a disk that is too small is noticed at once; the length stays what has been written. */
static int reserve(struct store_file *f, const char *name, struct store_why *why)
{
	struct statvfs fs;
	char need[CLI_SIZE_LEN], have[CLI_SIZE_LEN];

	if (!f->size || !fallocate(f->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)f->size) || (errno != ENOSPC && errno != EFBIG && errno != EDQUOT))
		return 0;
	int err = errno;
	uint64_t left = fstatvfs(f->fd, &fs) ? 0 : (uint64_t)fs.f_bavail * fs.f_frsize;
	return fail(why, name, "no room for %s: %s; %s are free", rpwi_cli_size(f->size, need), strerror(err), rpwi_cli_size(left, have));
}

static int begin(struct store_file *f, const struct files_message *m, struct files_message *have, struct store_why *why)
{
	struct stat st;
	uint64_t there = f->size;

	if (m->size > INT64_MAX)
		return fail(why, m->name, "refused: no file has %llu bytes", (unsigned long long)m->size);
	if (!fstatat(f->parent, f->leaf, &st, AT_SYMLINK_NOFOLLOW) && !S_ISREG(st.st_mode))
		return fail(why, m->name, "refused: it is there already, and is not a plain file");
	if (!open_complete(f) && (open_part(f, m->name, &there, why) || reserve(f, m->name, why)))
		return -1;
	f->hash = XXH3_createState();
	if (!f->hash)
		return fail(why, m->name, "out of memory");
	XXH3_128bits_reset(f->hash);
	int err = files_hash_prefix(f->fd, there, f->hash);
	if (err)
		return fail(why, m->name, "what is there of it cannot be read: %s", strerror(-err));
	f->written = there;
	have->type = FILES_HAVE;
	have->number = m->number;
	have->size = there;
	files_hash_end(f->hash, have->hash);
	return 0;
}

int store_file_begin(int root, const struct files_message *m, struct store_file *f, struct files_message *have, struct store_why *why)
{
	*f = (struct store_file){.fd = -1, .size = m->size, .mode = m->mode & 0777, .mtime = {.tv_sec = m->mtime_s, .tv_nsec = m->mtime_ns}};
	f->parent = open_parent(root, m->name, f->leaf, why);
	if (f->parent < 0)
		return -1;
	int ret = begin(f, m, have, why);
	if (ret)
		store_file_close(f);
	return ret;
}

int store_file_start(struct store_file *f, uint64_t from, struct store_why *why)
{
	uint64_t there;

	if (from == f->written)
		return 0;
	if (from)
		return fail(why, f->leaf, "refused: it is to begin at byte %llu, neither 0 nor where this side is", (unsigned long long)from);
	/* What is there is of another file. A complete one stays until the new one is. */
	if (f->is_there) {
		close(f->fd);
		f->fd = -1;
		f->is_there = false;
		if (open_part(f, f->leaf, &there, why))
			return -1;
	}
	if (ftruncate(f->fd, 0))
		return fail(why, f->leaf, "%s", strerror(errno));
	f->written = 0;
	XXH3_128bits_reset(f->hash);
	return reserve(f, f->leaf, why);
}

int store_file_write(struct store_file *f, const void *bytes, size_t len, struct store_why *why)
{
	const uint8_t *p = bytes;

	XXH3_128bits_update(f->hash, bytes, len);
	for (size_t left = len; left;) {
		ssize_t n = pwrite(f->fd, p, left, (off_t)f->written);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(why, f->leaf, "writing failed after %llu of %llu bytes: %s. They are kept: send it again when that is mended",
				(unsigned long long)f->written, (unsigned long long)f->size, strerror(errno));
		p += n;
		left -= (size_t)n;
		f->written += (uint64_t)n;
	}
	return 0;
}

int store_file_end(struct store_file *f, const uint8_t hash[FILES_HASH_BYTES], struct store_why *why)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, f->mtime};
	uint8_t ours[FILES_HASH_BYTES];

	files_hash_end(f->hash, ours);
	if (memcmp(ours, hash, FILES_HASH_BYTES) != 0) {
		f->written = 0; /* so that it is removed */
		return fail(why, f->leaf,
			"the checksum of what came is not the sender's: the file changed while it was sent, or bytes were damaged. Nothing of it is kept");
	}
	if (fchmod(f->fd, f->mode) || futimens(f->fd, times))
		return fail(why, f->leaf, "mode or time cannot be set: %s", strerror(errno));
	if (!f->is_there && renameat(f->parent, f->part, f->parent, f->leaf))
		return fail(why, f->leaf, "%s cannot be given its name: %s", f->part, strerror(errno));
	f->part[0] = '\0';
	return 0;
}

void store_file_close(struct store_file *f)
{
	if (f->fd >= 0 && f->part[0] && !f->written)
		unlinkat(f->parent, f->part, 0); /* a part without a byte is of no use */
	if (f->fd >= 0)
		close(f->fd);
	if (f->parent >= 0)
		close(f->parent);
	XXH3_freeState(f->hash);
	f->fd = f->parent = -1;
	f->hash = NULL;
}
