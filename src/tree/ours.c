/* SPDX-License-Identifier: BSD-3-Clause */
/* ours.c - what stat(2) says of a file of ours: as of sysfs's and devtmpfs's. */
#include "tree/tree.h"

#include "base/hash.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Documentation/admin-guide/devices.txt */
enum { UVERBS_MAJOR = 231 };

/* The same number for the same path, above those that sysfs counts up. */
ino_t rpwi_ours_number(const char *path)
{
	return (rpwi_hash(RPWI_HASH, path, strlen(path)) & 0x3fffffffffffffff) | 1ull << 62;
}

/* Folders in a folder; above so many different ones it counts some twice. */
struct folders {
	nlink_t n;
	unsigned seen;
	ino_t names[64];
};

static void count_folder(void *arg, const char *name, enum rpwi_kind kind)
{
	struct folders *c = arg;
	ino_t this = kind == RPWI_NODE_DIR ? rpwi_ours_number(name) : 0;
	if (!this)
		return;
	for (unsigned i = 0; i < c->seen; i++)
		if (c->names[i] == this)
			return;
	if (c->seen < RPWI_ARRAY_LEN(c->names))
		c->names[c->seen++] = this;
	c->n++;
}

void rpwi_ours_stat(const struct rpwi_place *p, struct stat *st)
{
	struct folders folders = {.n = 2};
	struct stat root = {0};
	bool dev = p->path[1] == 'd';
	RPWI_KEEP_ERRNO(rpwi_raw_stat(dev ? "/dev" : "/sys", &root, 0));
	*st = (struct stat){.st_nlink = 1,
		.st_blksize = 4096,
		.st_dev = root.st_dev,
		.st_ino = rpwi_ours_number(p->path),
		.st_atim = root.st_mtim,
		.st_mtim = root.st_mtim,
		.st_ctim = root.st_mtim};
	switch (p->node.kind) {
	case RPWI_NODE_CHARDEV:
	case RPWI_NODE_RDMA_CM:
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = p->node.kind == RPWI_NODE_RDMA_CM
				      ? rpwi_rdma_cm_rdev()
				      : makedev(UVERBS_MAJOR, rpwi_tree_minor(&p->node));
		break;
	case RPWI_NODE_DIR:
		rpwi_tree_list(&p->tree, p->path, count_folder, &folders);
		st->st_mode = S_IFDIR | 0755;
		st->st_nlink = folders.n;
		break;
	case RPWI_NODE_LINK:
		st->st_mode = S_IFLNK | 0777;
		break;
	default:
		st->st_mode = S_IFREG | 0444;
		st->st_size = 4096; /* as sysfs files show */
	}
}
