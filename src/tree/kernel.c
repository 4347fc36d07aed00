/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel.c - what is asked of the kernel itself, past the drop-in's hooks. */
#include "tree/tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

__thread int rpwi_inside_real __attribute__((tls_model("initial-exec")));

void rpwi_raw_close(int fd) { syscall(SYS_close, fd); }

/* Documentation/admin-guide/devices.txt; a minor number that no real device has */
enum { MISC_MAJOR = 10, RDMA_CM_MINOR = 0xff000 };

int rpwi_raw_stat(const char *path, struct stat *st, int flags)
{
	return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, flags);
}

/* Where the kernel has an rdma_cm device, librdmacm compares its number (which it learns by
 * netlink) with that of the file it has opened. */
dev_t rpwi_rdma_cm_rdev(void)
{
	struct stat st;
	dev_t d = makedev(MISC_MAJOR, RDMA_CM_MINOR);
	RPWI_KEEP_ERRNO({
		/* number 0 is none: the one of `ropeway run --namespace` */
		if (!rpwi_raw_stat("/dev/infiniband/rdma_cm", &st, 0) && st.st_rdev)
			d = st.st_rdev;
	});
	return d;
}

bool rpwi_kernel_name(int fd, char path[RPWI_TREE_PATH_MAX])
{
	char link[40];
	if (fd == AT_FDCWD)
		snprintf(link, sizeof(link), "/proc/self/cwd");
	else
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, RPWI_TREE_PATH_MAX - 1);
	if (n <= 0 || n == RPWI_TREE_PATH_MAX - 1)
		return false;
	path[n] = '\0';
	return true;
}

bool rpwi_tree_disabled(void)
{
	const char *v = getenv("ROPEWAY_DISABLE");
	return rpwi_inside_real || (v && !strcmp(v, "1"));
}
