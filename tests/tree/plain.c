/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.c - lists what lies below each path: kind, path, a link's end, a file's contents or the
 * number of the error. Built twice, statically linked and not. plain.go says the same. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void show_file(const char *path)
{
	char text[4096];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	if (n < 0)
		printf("- %s ! %d\n", path, errno);
	else
		printf("- %s = ", path);
	for (ssize_t i = 0; i < n; i++)
		if (text[i] == '\n')
			fputs("\\n", stdout);
		else
			putchar(text[i]);
	if (n >= 0)
		putchar('\n');
	if (fd >= 0)
		close(fd);
}

static void show(const char *path)
{
	char to[PATH_MAX], below[PATH_MAX];
	struct stat st;
	struct dirent **e;
	if (lstat(path, &st)) {
		printf("? %s ! %d\n", path, errno);
	} else if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlink(path, to, sizeof(to) - 1);
		printf("l %s -> %.*s\n", path, n < 0 ? 0 : (int)n, to);
	} else if (S_ISREG(st.st_mode)) {
		show_file(path);
	} else if (!S_ISDIR(st.st_mode)) {
		printf("c %s\n", path);
	} else {
		int n = scandir(path, &e, NULL, alphasort);
		printf("d %s\n", path);
		for (int i = 0; i < n; i++) {
			snprintf(below, sizeof(below), "%s/%s", path, e[i]->d_name);
			if (strcmp(e[i]->d_name, ".") != 0 && strcmp(e[i]->d_name, "..") != 0)
				show(below);
		}
	}
}

int main(int argc, char **argv)
{
	char path[PATH_MAX];
	for (int i = 1; i < argc; i++) {
		if (realpath(argv[i], path))
			show(path);
		else
			printf("? %s ! %d\n", argv[i], errno);
	}
	return 0;
}
