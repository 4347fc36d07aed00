/* SPDX-License-Identifier: BSD-3-Clause */
/* maybe.c - could a path lead to one of ours? Every open, stat and readlink of the program asks, so
 * it is a look at the text: what begins with /sys or /dev and has a part that begins with a word of
 * ours, or is relative to a folder there. Links elsewhere that lead to us are not followed.
 *
 * Runs before everything: see resolve.c.
 */
#include "tree/tree.h"

#include "base/choice.h"

#include <fcntl.h>

RPWI_BARE static const char *after(const char *path, const char *prefix)
{
	while (*prefix && *path == *prefix)
		path++, prefix++;
	return *prefix ? NULL : path;
}

RPWI_BARE static bool is_word(const char *part)
{
	switch (part[0]) {
	case 'i':
		return after(part, "infiniband") != NULL;
	case 'r':
		return after(part, "rdma_cm") || after(part, "ropeway") || after(part, "rpw_");
	case 'u':
		return after(part, "uverbs") != NULL;
	default:
		return false;
	}
}

RPWI_BARE static bool has_word(const char *path)
{
	if (is_word(path))
		return true;
	for (; *path; path++)
		if (*path == '/' && is_word(path + 1))
			return true;
	return false;
}

/* /proc/self/fd/7/ports, /proc/self/cwd, and of another process or thread. */
RPWI_BARE static bool is_descriptor(const char *path)
{
	for (; *path; path++)
		if (*path == '/' && (after(path, "/fd/") || after(path, "/cwd")))
			return true;
	return false;
}

RPWI_BARE bool rpwi_absolute_maybe(const char *path)
{
	const char *p;
	if ((p = after(path, "/sys/")))
		return has_word(p);
	if ((p = after(path, "/dev/")))
		return is_word(p) || (rpwi_tokens_given && after(p, "fd/"));
	if (path[1] == '/' || path[1] == '.')
		return has_word(path);
	return rpwi_tokens_given && after(path, "/proc/") && is_descriptor(path);
}

/* By the kernel's name of it. */
static int state_by_name(int fd)
{
	char name[RPWI_TREE_PATH_MAX], path[RPWI_TREE_PATH_MAX];
	if (!rpwi_kernel_name(fd, name))
		return RPWI_FD_OTHER;
	if (rpwi_token_path(name, path))
		return RPWI_FD_TOKEN;
	return rpwi_is_below_sys(name) ? RPWI_FD_SYS : RPWI_FD_OTHER;
}

/* A descriptor whose number was never seen (inherited, or sent) is asked for once. */
static int state_of(int fd)
{
	int s = rpwi_fd_state(fd);
	if (s == RPWI_FD_UNKNOWN) {
		RPWI_KEEP_ERRNO(s = state_by_name(fd));
		rpwi_fd_is(fd, (enum rpwi_fd_state)s);
	}
	return s;
}

bool rpwi_relative_maybe(int dir, const char *path)
{
	/* a hidden device has any name */
	if (dir == AT_FDCWD)
		return rpwi_cwd_state == RPWI_CWD_TOKEN || has_word(path) ||
		       rpwi_choice_hides_any();
	if (dir < 0)
		return false;
	int s = state_of(dir);
	return s == RPWI_FD_TOKEN ||
	       (s == RPWI_FD_SYS && (has_word(path) || rpwi_choice_hides_any()));
}
