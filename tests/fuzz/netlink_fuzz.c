/* SPDX-License-Identifier: BSD-3-Clause */
/* netlink_fuzz.c - what a program sends to a NETLINK_RDMA socket. The first byte says who asks and
 * how many objects there are; the rest is messages. Checked: nothing is read beside them (each is
 * copied to its exact size), answers are whole messages with whole attributes, a list has one end,
 * and no answer is longer than what there is to tell.
 */
#include "fuzz.h"

#include <stdlib.h>

#include "../netlink/world.h"

enum { DATAGRAMS_MAX = 1000 };

struct count {
	unsigned datagrams, ends, room;
};

static int take(void *arg, const void *datagram, size_t len)
{
	struct count *c = arg;
	const char *why = datagram_wrong(datagram, len), *at = datagram;
	if (why)
		fuzz_broken(why);
	fuzz_readable(datagram, len, 1);
	for (const struct nlmsghdr *h; (h = rpwi_nl_message(at, len));
		at += h->nlmsg_len, len -= h->nlmsg_len)
		c->ends += h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR;
	if (++c->datagrams > DATAGRAMS_MAX)
		fuzz_broken("an answer without an end");
	return c->datagrams > c->room ? -105 /* -ENOBUFS */ : 0;
}

static void message(const struct rpwi_nl_world *w, const struct nlmsghdr *from, unsigned room)
{
	static struct rpwi_nl_out out;
	struct count c = {.room = room};
	struct nlmsghdr *h = malloc(from->nlmsg_len);
	if (!h)
		return;
	memcpy(h, from, from->nlmsg_len);
	memset(&out, 0, sizeof(out));
	out.send = take;
	out.arg = &c;
	enum rpwi_nl_side side = rpwi_nl_side(w, h);
	int rc = rpwi_nl_answer(w, h, &out);
	if (rc != out.rc)
		fuzz_broken("an error that is not told");
	if (side == RPWI_NL_BOTH && !rc && c.ends != 1)
		fuzz_broken("a list without an end, or with two");
	free(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static _Alignas(8) uint8_t copy[4096];
	struct rpwi_nl_world w = world;
	if (!size)
		return 0;
	w.admin = data[0] & 1;
	w.explains = data[0] & 2;
	world_objects = data[0] >> 3;
	size_t len = RPWI_MIN(size - 1, sizeof(copy)), at = 0;
	memcpy(copy, data + 1, len);
	for (const struct nlmsghdr *h; (h = rpwi_nl_message(copy + at, len - at));
		at += RPWI_MIN((size_t)NLMSG_ALIGN(h->nlmsg_len), len - at))
		message(&w, h, data[0] & 4 ? 1 : DATAGRAMS_MAX);
	return 0;
}
