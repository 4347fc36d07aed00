/* SPDX-License-Identifier: BSD-3-Clause */
/* netlink.h - what the kernel would answer on a NETLINK_RDMA socket, if our devices were its own
 * (<rdma/rdma_netlink.h>; the meaning of each command is nldev.c's of Linux 6.1).
 *
 * A pure layer: a request and the devices go in, datagrams come out. It makes no system call, keeps
 * nothing, allocates nothing, and reads the request only within its length: the program's bytes are
 * as good as a stranger's. The drop-in's socket calls (preload/netlink.c) are above it.
 */
#ifndef ROPEWAY_NETLINK_H
#define ROPEWAY_NETLINK_H

#include "base/base.h"
#include "device/resource.h"
#include "io/io.h"

#include <linux/netlink.h>

/* One datagram fits the 4 KiB that libmnl has room for, as the kernel's do. */
enum { RPWI_NL_DATAGRAM = 3584 };

/* What answers are made of: the devices at this moment, and who asks. */
struct rpwi_nl_world {
	const struct rpwi_netdev *nets;
	unsigned n;
	uint64_t caps;        /* enum ibv_device_cap_flags */
	const char *firmware; /* version */
	uint64_t rdma_cm;     /* the device number of /dev/infiniband/rdma_cm */
	uint32_t port;        /* the asker's nl_pid, which answers carry */
	bool explains;        /* NETLINK_EXT_ACK: errors may have a sentence */
	bool admin;           /* CAP_NET_ADMIN: sees keys, and is told EOPNOTSUPP for EPERM */
	/* Objects of a kind on a device: as rpwi_dev_resources. NULL: there are none. */
	int (*resources)(const char *device, enum rpwi_resource_kind kind,
		rpwi_resource_visit *visit, void *arg);
	/* How many objects of a kind a device has, those of other processes too; false: only
	 * `resources` tells. NULL: likewise. */
	bool (*count)(const char *device, enum rpwi_resource_kind kind, uint64_t *n);
	/* The i-th counter of a device's port; false: there is none. NULL: no device has any. */
	bool (*counter)(
		const struct rpwi_netdev *d, unsigned i, const char **name, uint64_t *value);
};

/* Where datagrams go. `send` takes one: 0, or -errno, which ends the answer. */
struct rpwi_nl_out {
	int (*send)(void *arg, const void *datagram, size_t len);
	void *arg;
	int rc; /* the first error of send; -EMSGSIZE: one message is larger than a datagram */
	size_t message, len; /* the message that is being written begins here; bytes in all */
	_Alignas(8) uint8_t buf[RPWI_NL_DATAGRAM];
};

/* Is there a whole message of at most `len` bytes? Its header, else NULL. */
const struct nlmsghdr *rpwi_nl_message(const void *buf, size_t len);

/* The device that a whole message of the kernel's is about; false: it names none. */
bool rpwi_nl_device(const struct nlmsghdr *h, char *name, size_t room);

/* Whose the answer is, where the kernel has RDMA devices of its own. */
enum rpwi_nl_side {
	RPWI_NL_OURS,
	RPWI_NL_KERNELS,
	RPWI_NL_BOTH, /* a list: the kernel's, then ours, then one end */
};
enum rpwi_nl_side rpwi_nl_side(const struct rpwi_nl_world *w, const struct nlmsghdr *h);

/* The whole answer to a message that rpwi_nl_message has found: 0, or out->rc. */
int rpwi_nl_answer(
	const struct rpwi_nl_world *w, const struct nlmsghdr *h, struct rpwi_nl_out *out);
/* The end of a list, as an answer has it: err 0 or negative. */
int rpwi_nl_done(
	const struct rpwi_nl_world *w, const struct nlmsghdr *h, int err, struct rpwi_nl_out *out);
/* NLMSG_ERROR of a message: err 0 (an acknowledgement) or negative; why may be NULL. */
int rpwi_nl_error(const struct rpwi_nl_world *w, const struct nlmsghdr *h, int err, const char *why,
	struct rpwi_nl_out *out);

#endif
