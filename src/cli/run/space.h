/* SPDX-License-Identifier: BSD-3-Clause */
/* space.h - the namespaces of this process, those that other runs of this user live in, and turns:
 * who makes new ones. */
#ifndef ROPEWAY_CLI_SPACE_H
#define ROPEWAY_CLI_SPACE_H

#include <stdbool.h>
#include <sys/types.h>

struct rpwi_space_self {
	uid_t uid;
	ino_t user, mnt, net; /* of the namespaces */
	/* may make mount namespaces without a user namespace, and join such */
	bool privileged;
	bool inside; /* in a namespace of ours already */
};
/* 0 or -errno: no /proc. */
int rpwi_space_self(struct rpwi_space_self *s);

/* What our mounts have as their source. The rest of it says what they show, and where. */
#define RPWI_SPACE_PREFIX "ropeway-"

/* Namespaces of other runs of this user, or -1 each. Privileged, a user namespace is none of
 * them. */
struct rpwi_space {
	int user, mnt, root; /* root: the root folder of the process, in mnt */
};
/* Looks through /proc for a process of this user in a namespace with this source where `last` is
 * there, since without it is still being made; and for one in any user namespace that a run made in
 * this one. Whose it is, the kernel says: the owner of the namespaces, never a name. */
void rpwi_space_find(const struct rpwi_space_self *me, const char *source, const char *last,
	struct rpwi_space *found);
void rpwi_space_close(struct rpwi_space *s);

/* Another process that has that file system mounted, for whom it is still wanted: a pidfd of it;
 * -ESRCH: there is none; -EAGAIN: there is, or was a moment ago, but it cannot be waited for. */
int rpwi_space_other(dev_t dev);

/* Waits until no other run of this user is making a namespace, up to some seconds; a turn that
 * other users have taken is none. A descriptor to close when done, or -1: without a turn. */
int rpwi_space_turn(uid_t uid);

#endif
