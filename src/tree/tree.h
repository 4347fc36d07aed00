/* SPDX-License-Identifier: BSD-3-Clause */
/* tree.h - the files that the kernel would have for our devices, and how a path of the program
 * becomes one of them.
 *
 * tree.c has the table of paths; walk.c follows a path through it and the kernel's own files. The
 * drop-in's hooks answer calls with it. Nothing of the tree is on a disk, and nothing is kept
 * between calls: each asks the interfaces as they are. What open(2) gives for a file or a folder of
 * ours is a memfd whose name is its path (token.c).
 *
 * All of it may be called in signal handlers and in a vfork's child: no malloc, no lock; memory is
 * mapped for the length of a call. It calls nothing that the drop-in has a hook for.
 */
#ifndef ROPEWAY_TREE_H
#define ROPEWAY_TREE_H

#include "base/base.h"

#include <sys/stat.h>
#include <sys/types.h>

/* For what may run before a sanitizer's runtime has started: see resolve.c. Such a function may
 * call only its like. */
#if defined(__has_attribute) && __has_attribute(disable_sanitizer_instrumentation)
#define RPWI_BARE __attribute__((disable_sanitizer_instrumentation))
#else
#define RPWI_BARE __attribute__((no_sanitize("address", "undefined", "thread")))
#endif

/* Longer paths are none of ours. */
enum { RPWI_TREE_PATH_MAX = 512, RPWI_SYSFS_FILE_MAX = 1024 };

/* ---- kernel.c: past the hooks ---- */

/* Set while this thread is inside a real library on our account: it sees real devices only, and
 * its dlsym calls are left alone. */
extern __thread int rpwi_inside_real __attribute__((tls_model("initial-exec")));
bool rpwi_tree_disabled(void); /* so, or ROPEWAY_DISABLE=1 */
/* The device number of /dev/infiniband/rdma_cm. */
dev_t rpwi_rdma_cm_rdev(void);
int rpwi_raw_stat(const char *path, struct stat *st, int flags);
void rpwi_raw_close(int fd);
/* readlink(2) of /proc/self/fd/N or, for AT_FDCWD, /proc/self/cwd. False: it says nothing. */
bool rpwi_kernel_name(int fd, char path[RPWI_TREE_PATH_MAX]);

/* ---- tree.c ---- */

enum rpwi_kind {
	RPWI_NODE_NONE, /* not ours */
	RPWI_NODE_DIR,
	RPWI_NODE_FILE,
	RPWI_NODE_LINK,
	RPWI_NODE_CHARDEV,
	RPWI_NODE_RDMA_CM,
};

struct rpwi_tree_row;
struct rpwi_tree_dev;
/* The devices at this moment. */
struct rpwi_tree {
	struct rpwi_netdev *nets;
	size_t nets_bytes, devs_bytes;
	struct rpwi_tree_dev *devs;
	unsigned n;
	bool open;
};
void rpwi_tree_open(struct rpwi_tree *t); /* once; without memory or netlink it has no device */
void rpwi_tree_close(struct rpwi_tree *t);

struct rpwi_node {
	enum rpwi_kind kind;
	const struct rpwi_tree_row *row; /* these two NULL for a folder */
	const struct rpwi_tree_dev *dev;
	unsigned index; /* of a numbered file */
};
/* What an absolute path without links, "." and ".." is in the tree. It says nothing of what the
 * kernel has there. */
struct rpwi_node rpwi_tree_node(const struct rpwi_tree *t, const char *path);
/* The kernel's own of that name comes before ours, except rdma_cm's. */
bool rpwi_tree_is_first(const struct rpwi_node *n);
/* A counter: its contents are another number in each moment. */
bool rpwi_tree_counts(const struct rpwi_node *n);
/* The i-th of a device's hw_counters; *name is static. False: there is none, or nobody can say. */
bool rpwi_tree_hw_counter(
	const struct rpwi_netdev *net, unsigned i, const char **name, uint64_t *value);
/* A file's contents; *len bytes of RPWI_SYSFS_FILE_MAX. 0, or what read(2) would fail with:
 * -EINVAL, -EIO. */
int rpwi_tree_show(const struct rpwi_node *n, char *buf, size_t *len);
/* A link's target, relative as the kernel's are. Its length, or -ENAMETOOLONG. */
int rpwi_tree_target(const struct rpwi_node *n, const char *path, char *buf, size_t size);
unsigned rpwi_tree_minor(const struct rpwi_node *n); /* of a CHARDEV */
/* The names in a folder, some more than once. */
typedef void rpwi_tree_visit(void *arg, const char *name, enum rpwi_kind kind);
void rpwi_tree_list(
	const struct rpwi_tree *t, const char *folder, rpwi_tree_visit *visit, void *arg);

/* ---- hides.c ---- */

/* Is the kernel's file of that canonical path a real device's that programs are not shown? */
bool rpwi_tree_hides(const char *path);
/* May such be in that folder? */
bool rpwi_tree_may_hide(const char *folder);

/* ---- walk.c ---- */

enum rpwi_found {
	RPWI_PASS, /* the call goes on as it is */
	RPWI_REAL, /* a file of the kernel's, reached through ours: ask for place.path instead */
	RPWI_OURS, /* place.node, at place.path */
};
struct rpwi_place {
	struct rpwi_tree tree;
	struct rpwi_node node;
	char path[RPWI_TREE_PATH_MAX];
};
enum { RPWI_NOFOLLOW = 1, RPWI_EMPTY = 2 /* "" is the descriptor itself */ };
/* Where a path leads: an enum rpwi_found, or -errno as the kernel would say it. errno is kept. End
 * with rpwi_place_done. */
int rpwi_place_find(struct rpwi_place *p, int dir, const char *path, int flags);
void rpwi_place_done(struct rpwi_place *p);
/* The same for a descriptor of the program's: ours, or RPWI_PASS. */
int rpwi_place_of_fd(struct rpwi_place *p, int fd);
/* Its canonical path, if it is a folder of the kernel's with something of ours in it, or something
 * that programs are not shown. */
bool rpwi_place_is_merged(struct rpwi_place *p, int dir, const char *path);

/* ---- token.c ---- */

/* What is known of a descriptor's number. */
enum rpwi_fd_state {
	RPWI_FD_UNKNOWN,
	RPWI_FD_OTHER,
	RPWI_FD_SYS,     /* opened below /sys or /dev: names of ours may follow */
	RPWI_FD_TOKEN,   /* was one of ours; the kernel knows whether it is */
	RPWI_FD_NETLINK, /* likewise a NETLINK_RDMA socket (preload/netlink.c) */
};
enum { RPWI_FDS = 1 << 16 };
extern uint8_t rpwi_fd_states[RPWI_FDS];
/* The working directory: elsewhere; below /sys or /dev; maybe one of ours. */
enum rpwi_cwd_state { RPWI_CWD_OTHER, RPWI_CWD_SYS, RPWI_CWD_TOKEN };
extern uint8_t rpwi_cwd_state;
/* Ours have been given out in this process: paths of /proc may lead to them. */
extern bool rpwi_tokens_given;

/* A descriptor for a node at `path` with these contents, or -1 with errno. */
int rpwi_token_open(const char *path, const char *text, size_t len, int flags);
/* The path in what the kernel says of a descriptor or of the working directory; false: not ours. */
bool rpwi_token_path(const char *shown, char path[RPWI_TREE_PATH_MAX]);
/* Makes a folder of ours the working directory. 0 or -1 with errno. */
int rpwi_token_chdir(const char *path);
static inline bool rpwi_is_below_sys(const char *p)
{
	return p[0] == '/' &&
	       ((p[1] == 's' && p[2] == 'y' && p[3] == 's') ||
		       (p[1] == 'd' && p[2] == 'e' && p[3] == 'v')) &&
	       (p[4] == '/' || !p[4]);
}
static inline void rpwi_fd_is(int fd, enum rpwi_fd_state s)
{
	if ((unsigned)fd < RPWI_FDS && rpwi_fd_states[fd] != s)
		rpwi_fd_states[fd] = (uint8_t)s;
}
static inline int rpwi_fd_state(int fd)
{
	return (unsigned)fd < RPWI_FDS ? rpwi_fd_states[fd] : RPWI_FD_UNKNOWN;
}

/* ---- maybe.c: is it worth a look? ---- */

bool rpwi_absolute_maybe(const char *path);
bool rpwi_relative_maybe(int dir, const char *path);
/* The compiler may believe that a path is never NULL, since the C library declares so; the kernel
 * says EFAULT. */
static inline bool rpwi_maybe(const char *path)
{
	__asm__("" : "+r"(path));
	if (!path)
		return false;
	if (path[0] == '/')
		return (path[1] == 's' || path[1] == 'd' || path[1] == '/' || path[1] == '.' ||
			       path[1] == 'p') &&
		       rpwi_absolute_maybe(path);
	return RPWI_UNLIKELY(rpwi_cwd_state) && rpwi_relative_maybe(-100 /* AT_FDCWD */, path);
}
static inline bool rpwi_maybe_at(int dir, const char *path)
{
	__asm__("" : "+r"(path));
	if (!path || path[0] == '/' || dir == -100)
		return rpwi_maybe(path);
	return rpwi_fd_state(dir) != RPWI_FD_OTHER && rpwi_relative_maybe(dir, path);
}

/* ---- ours.c ---- */

/* What stat(2) says of a place of ours. */
void rpwi_ours_stat(const struct rpwi_place *p, struct stat *st);
ino_t rpwi_ours_number(const char *path); /* st_ino */
/* Saves errno over what a hook does beside the call itself. */
#define RPWI_KEEP_ERRNO(...) \
	do { \
		int kept_ = errno; \
		__VA_ARGS__; \
		errno = kept_; \
	} while (0)

#endif
