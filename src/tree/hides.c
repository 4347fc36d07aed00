/* SPDX-License-Identifier: BSD-3-Clause */
/* hides.c - files of the kernel's that are of a real device which programs are not shown
 * (base/choice.h): its entries in the classes of sysfs, in its parent's folder and in
 * /dev/infiniband. To programs there are none of that name; what lies below is reached by no other
 * path. */
#include "tree/tree.h"

#include "base/choice.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Which device an uverbsN, umadN or issmN is of. */
static bool is_of_hidden(const char *folder, const char *entry)
{
	char path[RPWI_TREE_PATH_MAX + 8], name[64];
	int len = snprintf(path, sizeof(path), "%s/%s/ibdev", folder, entry);
	if (len < 0 || (size_t)len >= sizeof(path))
		return false;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long n = fd < 0 ? -1 : syscall(SYS_read, fd, name, sizeof(name) - 1);
	if (fd >= 0)
		rpwi_raw_close(fd);
	if (n <= 0)
		return false;
	name[n] = '\0';
	name[strcspn(name, "\n")] = '\0';
	return rpwi_choice_hides(name);
}

static bool is_word(const char *text, size_t len, const char *word)
{
	return len == strlen(word) && !memcmp(text, word, len);
}

/* One entry of a folder that ends with /infiniband, /infiniband_verbs or /infiniband_mad. */
static bool hides(const char *path, const char *folder, size_t len, const char *entry)
{
	char above[RPWI_TREE_PATH_MAX];
	if (!strncmp(path, "/dev/", 5)) {
		/* udev's by-path and by-ibdev: links to real devices alone */
		if (!strncmp(entry, "by-", 3))
			return rpwi_choice_software();
		bool mad = entry[0] == 'i' || !strncmp(entry, "umad", 4);
		return is_of_hidden(
			mad ? "/sys/class/infiniband_mad" : "/sys/class/infiniband_verbs", entry);
	}
	if (is_word(folder, len, "infiniband"))
		return rpwi_choice_hides(entry);
	size_t above_len = (size_t)(folder - path) + len;
	memcpy(above, path, above_len);
	above[above_len] = '\0';
	return is_of_hidden(above, entry);
}

bool rpwi_tree_may_hide(const char *folder)
{
	const char *last = strrchr(folder, '/');
	return last && !strncmp(last, "/infiniband", 11) && rpwi_choice_hides_any();
}

bool rpwi_tree_hides(const char *path)
{
	const char *entry = strrchr(path, '/'), *folder = entry;
	if (!entry || entry == path || (size_t)(entry - path) >= RPWI_TREE_PATH_MAX)
		return false;
	while (folder > path && folder[-1] != '/')
		folder--;
	size_t len = (size_t)(entry - folder);
	bool maybe = is_word(folder, len, "infiniband") ||
		     is_word(folder, len, "infiniband_verbs") ||
		     is_word(folder, len, "infiniband_mad");
	return maybe && rpwi_is_below_sys(path) && rpwi_choice_hides_any() &&
	       hides(path, folder, len, entry + 1);
}
