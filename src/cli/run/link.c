/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c - see link.h.
 *
 * The link stays when the program ends: `ropeway run` becomes the program, whose children need the
 * preload as long as they start others. One user has one link for each folder, so they do not grow
 * in number. It leads to the folder, not to the library, since the drop-in looks for what belongs
 * to it beside itself. What was not taken, and why:
 *   - a name without a slash, found by LD_LIBRARY_PATH, which spaces do not split: scripts that set
 *     LD_LIBRARY_PATH take the device from every program that they start
 *   - /proc/self/fd/N: lost in a program that closes what it did not open, and in its children
 *   - $XDG_RUNTIME_DIR: removed when the user logs out, while programs run on
 */
#include "cli/run/link.h"

#include "base/base.h"
#include "base/hash.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether nobody else can remove or replace what we make in it. */
static bool is_safe(const char *place)
{
	struct stat st;
	if (lstat(place, &st) || !S_ISDIR(st.st_mode))
		return false;
	return st.st_mode & S_ISVTX || (st.st_uid == geteuid() && !(st.st_mode & 022));
}

/* Whether `path` is a link of ours to `folder`: anybody may have made one of its name. */
static bool leads_to(const char *path, const char *folder)
{
	char target[PATH_MAX];
	struct stat st;
	if (lstat(path, &st) || !S_ISLNK(st.st_mode) || st.st_uid != geteuid())
		return false;
	ssize_t n = readlink(path, target, sizeof(target));
	return n == (ssize_t)strlen(folder) && !memcmp(target, folder, (size_t)n);
}

static int make(const char *folder, const char *path)
{
	int err = symlink(folder, path) ? -errno : 0;
	return err == -EEXIST && leads_to(path, folder) ? 0 : err;
}

/* In one place: 0, with its path in `out`, or -errno. A name may be somebody else's: of a user, or
 * of root outside of a user namespace of our own, where our number is his. The last name is one
 * that nobody can have taken. */
static int link_in(const char *place, const char *folder, char *out, size_t len)
{
	enum { NAMES = 8 };
	unsigned long long hash = rpwi_hash(RPWI_HASH, folder, strlen(folder));
	int n = snprintf(out, len, "%s/ropeway-%u-%016llx", place, geteuid(), hash);
	if (n < 0 || (size_t)n + 18 >= len)
		return -ENAMETOOLONG;
	int err = make(folder, out);
	for (unsigned i = 1; i <= NAMES && err == -EEXIST; i++) {
		sprintf(out + n, "-%llx", i < NAMES ? i : (unsigned long long)rpwi_random64());
		err = make(folder, out);
	}
	return err;
}

int rpwi_link_folder(const char *folder, const char *splits, char *out, size_t len)
{
	static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm"};
	int err = -EACCES;

	if (!strpbrk(folder, splits))
		return (size_t)snprintf(out, len, "%s", folder) < len ? 0 : -ENAMETOOLONG;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(places) && err && err != -ENAMETOOLONG; i++)
		if (is_safe(places[i]))
			err = link_in(places[i], folder, out, len);
	return err;
}
