/* SPDX-License-Identifier: BSD-3-Clause */
/* write.c - messages and attributes into datagrams. Once something has failed, nothing more is
 * written, and out->rc says what it was. */
#include "netlink/write.h"

/* Whole messages go; the unfinished one moves to the front. */
static void flush(struct rpwi_nl_out *o)
{
	if (o->message && !o->rc)
		o->rc = o->send(o->arg, o->buf, o->message);
	memmove(o->buf, o->buf + o->message, o->len - o->message);
	o->len -= o->message;
	o->message = 0;
}

static void *room(struct rpwi_nl_out *o, size_t len)
{
	len = NLMSG_ALIGN(len);
	if (o->len + len > sizeof(o->buf))
		flush(o);
	if (!o->rc && o->len + len > sizeof(o->buf))
		o->rc = -EMSGSIZE;
	if (o->rc)
		return NULL;
	void *p = o->buf + o->len;
	memset(p, 0, len);
	o->len += len;
	return p;
}

struct nlmsghdr *rpwi_nl_message_begin(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	struct rpwi_nl_out *o, unsigned type, unsigned flags)
{
	o->message = o->len;
	struct nlmsghdr *m = room(o, NLMSG_HDRLEN);
	if (m)
		*m = (struct nlmsghdr){.nlmsg_type = (uint16_t)type,
			.nlmsg_flags = (uint16_t)flags,
			.nlmsg_seq = h->nlmsg_seq,
			.nlmsg_pid = w->port};
	return m;
}

void rpwi_nl_message_end(struct rpwi_nl_out *o)
{
	if (o->rc)
		return;
	struct nlmsghdr *m = (void *)(o->buf + o->message);
	m->nlmsg_len = (uint32_t)(o->len - o->message);
	o->message = o->len;
}

/* Of a datagram: the next message begins one of its own. */
int rpwi_nl_finish(struct rpwi_nl_out *o)
{
	flush(o);
	return o->rc;
}

void rpwi_nl_put(struct rpwi_nl_out *o, unsigned type, const void *data, size_t len)
{
	struct nlattr *a = room(o, NLA_HDRLEN + len);
	if (!a)
		return;
	*a = (struct nlattr){.nla_len = (uint16_t)(NLA_HDRLEN + len), .nla_type = (uint16_t)type};
	memcpy((char *)a + NLA_HDRLEN, data, len);
}
void rpwi_nl_put_u8(struct rpwi_nl_out *o, unsigned type, uint8_t v)
{
	rpwi_nl_put(o, type, &v, 1);
}
void rpwi_nl_put_u32(struct rpwi_nl_out *o, unsigned type, uint32_t v)
{
	rpwi_nl_put(o, type, &v, 4);
}
void rpwi_nl_put_u64(struct rpwi_nl_out *o, unsigned type, uint64_t v)
{
	rpwi_nl_put(o, type, &v, 8);
}
void rpwi_nl_put_text(struct rpwi_nl_out *o, unsigned type, const char *s)
{
	rpwi_nl_put(o, type, s, strlen(s) + 1);
}

/* Where it begins in its message, which may move. */
size_t rpwi_nl_nest_begin(struct rpwi_nl_out *o, unsigned type)
{
	size_t before = o->len - o->message;
	rpwi_nl_put(o, type, "", 0);
	return before;
}

void rpwi_nl_nest_end(struct rpwi_nl_out *o, size_t nest)
{
	if (o->rc)
		return;
	struct nlattr *a = (void *)(o->buf + o->message + nest);
	a->nla_len = (uint16_t)(o->len - o->message - nest);
}

int rpwi_nl_done(
	const struct rpwi_nl_world *w, const struct nlmsghdr *h, int err, struct rpwi_nl_out *o)
{
	if (rpwi_nl_message_begin(w, h, o, NLMSG_DONE, NLM_F_MULTI)) {
		int32_t *e = room(o, sizeof(*e));
		if (e)
			*e = err;
		rpwi_nl_message_end(o);
	}
	return rpwi_nl_finish(o);
}

/* Capped: of the request only its header comes back, whether NETLINK_CAP_ACK was set or not; the
 * flag says so. */
int rpwi_nl_error(const struct rpwi_nl_world *w, const struct nlmsghdr *h, int err, const char *why,
	struct rpwi_nl_out *o)
{
	bool says = why && w->explains;
	if (rpwi_nl_message_begin(
		    w, h, o, NLMSG_ERROR, NLM_F_CAPPED | (says ? NLM_F_ACK_TLVS : 0u))) {
		struct nlmsgerr *e = room(o, sizeof(*e));
		if (e) {
			e->error = err;
			e->msg = *h;
		}
		if (says)
			rpwi_nl_put_text(o, NLMSGERR_ATTR_MSG, why);
		rpwi_nl_message_end(o);
	}
	return rpwi_nl_finish(o);
}
