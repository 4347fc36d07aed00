/* SPDX-License-Identifier: BSD-3-Clause */
/* rtnl.h - rtnetlink(7) as netdev.c and neighbor.c ask it. */
#ifndef ROPEWAY_IO_RTNL_H
#define ROPEWAY_IO_RTNL_H

#include "io/io.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

typedef void (*rpwi_rtnl_visit)(const struct nlmsghdr *h, void *arg);

/* A socket, subscribed to those groups (0: none). fd or -errno. */
int rpwi_rtnl_open(uint32_t groups);
/* Visit each message of the answer. 0, or -errno (the kernel's own error for the request
 * included). */
int rpwi_rtnl_answers(int fd, uint32_t seq, rpwi_rtnl_visit visit, void *arg);
/* The attributes after a family header of `hdr` bytes, by type; a later one of the same type
 * wins. */
void rpwi_rtnl_attrs(const struct nlmsghdr *h, size_t hdr, const struct rtattr **at, unsigned max);

#endif
