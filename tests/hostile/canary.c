/* SPDX-License-Identifier: BSD-3-Clause */
/* canary.c - a library that says that it was loaded, and by whose rights: a file beside it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void sing(void)
{
	char path[4096];
	Dl_info info;
	if (!dladdr((void *)sing, &info) ||
		snprintf(path, sizeof(path), "%s.loaded", info.dli_fname) >= (int)sizeof(path))
		return;
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}
