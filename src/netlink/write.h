/* SPDX-License-Identifier: BSD-3-Clause */
/* write.h - messages and attributes into datagrams (netlink(7)). Private to netlink/. */
#ifndef ROPEWAY_NETLINK_WRITE_H
#define ROPEWAY_NETLINK_WRITE_H

#include "netlink/netlink.h"

/* A message to the asker; NULL: there is no room any more. */
struct nlmsghdr *rpwi_nl_message_begin(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	struct rpwi_nl_out *o, unsigned type, unsigned flags);
void rpwi_nl_message_end(struct rpwi_nl_out *o);
void rpwi_nl_put(struct rpwi_nl_out *o, unsigned type, const void *data, size_t len);
void rpwi_nl_put_u8(struct rpwi_nl_out *o, unsigned type, uint8_t v);
void rpwi_nl_put_u32(struct rpwi_nl_out *o, unsigned type, uint32_t v);
void rpwi_nl_put_u64(struct rpwi_nl_out *o, unsigned type, uint64_t v);
void rpwi_nl_put_text(struct rpwi_nl_out *o, unsigned type, const char *s);
/* An attribute of attributes: where it begins in its message, for its end. */
size_t rpwi_nl_nest_begin(struct rpwi_nl_out *o, unsigned type);
void rpwi_nl_nest_end(struct rpwi_nl_out *o, size_t nest);
/* Whole messages go: the next one is in a datagram of its own. out->rc */
int rpwi_nl_finish(struct rpwi_nl_out *o);

#endif
