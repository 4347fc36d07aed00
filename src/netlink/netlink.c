/* SPDX-License-Identifier: BSD-3-Clause */
/* netlink.c - see netlink.h. One table of commands, one of what each kind of object shows. */
#include "netlink/write.h"

#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_cm.h>
#include <stdio.h>

/* Values of the kernel's that no header of its user ABI has: RDMA_NODE_IB_CA; a port's physical
 * states (IB 14.2.5.6); the rxe driver's version of uverbs. */
enum {
	NODE_CA = 1,
	PHYS_POLLING = 2,
	PHYS_DISABLED = 3,
	PHYS_LINK_UP = 5,
	STATE_DOWN = 1,
	STATE_ACTIVE = 4
};
enum { RXE_ABI = 2, PORTS = 1, NETNS_EXCLUSIVE = 0 };
/* Room that the longest entry of a list, or the end of a message, may need. */
enum { ENTRY_MAX = 640 };
/* Later than some headers: Debian 12's have them all, older ones not. */
_Static_assert(RDMA_NLDEV_ATTR_MAX > RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, "rdma_netlink.h of 5.19");

static const char unchangeable[] = "ropeway: a software device is what its network interface is; "
				   "it cannot be made, renamed or "
				   "removed. Change the interface (ip link) instead";

/* ---- requests ---- */

const struct nlmsghdr *rpwi_nl_message(const void *buf, size_t len)
{
	const struct nlmsghdr *h = buf;
	return len >= NLMSG_HDRLEN && h->nlmsg_len >= NLMSG_HDRLEN && h->nlmsg_len <= len ? h
											  : NULL;
}

static bool is_nldev(const struct nlmsghdr *h)
{
	return RDMA_NL_GET_CLIENT(h->nlmsg_type) == RDMA_NL_NLDEV;
}

/* What a request says of what it wants. */
struct wanted {
	const struct rpwi_netdev *dev; /* NULL: none of ours */
	bool has_dev, has_port, has_id, has_chardev;
	uint32_t port, id;
	char chardev[16];
};

static bool is_id(unsigned type)
{
	return type == RDMA_NLDEV_ATTR_RES_LQPN || type == RDMA_NLDEV_ATTR_RES_PDN ||
	       type == RDMA_NLDEV_ATTR_RES_CQN || type == RDMA_NLDEV_ATTR_RES_MRN ||
	       type == RDMA_NLDEV_ATTR_RES_CM_IDN || type == RDMA_NLDEV_ATTR_RES_CTXN ||
	       type == RDMA_NLDEV_ATTR_RES_SRQN;
}

static const struct rpwi_netdev *device_of(const struct rpwi_nl_world *w, uint32_t index)
{
	for (unsigned i = 0; i < w->n; i++)
		if (rpwi_netdev_uverbs(&w->nets[i]) == index)
			return &w->nets[i];
	return NULL;
}

static int want_u32(const struct nlattr *a, uint32_t *v, bool *has)
{
	if (a->nla_len < NLA_HDRLEN + sizeof(*v))
		return -ERANGE;
	memcpy(v, (const char *)a + NLA_HDRLEN, sizeof(*v));
	*has = true;
	return 0;
}

static int want_attr(const struct rpwi_nl_world *w, const struct nlattr *a, struct wanted *q)
{
	unsigned type = a->nla_type & NLA_TYPE_MASK;
	uint32_t index;
	int rc = 0;
	if (type == RDMA_NLDEV_ATTR_DEV_INDEX) {
		rc = want_u32(a, &index, &q->has_dev);
		q->dev = rc ? NULL : device_of(w, index);
	} else if (type == RDMA_NLDEV_ATTR_PORT_INDEX) {
		rc = want_u32(a, &q->port, &q->has_port);
	} else if (is_id(type)) {
		rc = want_u32(a, &q->id, &q->has_id);
	} else if (type == RDMA_NLDEV_ATTR_CHARDEV_TYPE) {
		size_t len = a->nla_len - NLA_HDRLEN;
		if (len > sizeof(q->chardev))
			return -ERANGE;
		memcpy(q->chardev, (const char *)a + NLA_HDRLEN, len);
		q->chardev[RPWI_MIN(len, sizeof(q->chardev) - 1)] = '\0';
		q->has_chardev = true;
	}
	return rc;
}

/* 0; -EINVAL: attributes that are none; -ERANGE: one that is too short or too long. */
static int want(const struct rpwi_nl_world *w, const struct nlmsghdr *h, struct wanted *q)
{
	const char *at = (const char *)h + NLMSG_HDRLEN, *end = (const char *)h + h->nlmsg_len;
	*q = (struct wanted){0};
	while ((size_t)(end - at) >= NLA_HDRLEN) {
		struct nlattr a; /* read once: another thread of the program may write there */
		memcpy(&a, at, sizeof(a));
		if (a.nla_len < NLA_HDRLEN || a.nla_len > (size_t)(end - at))
			return -EINVAL;
		int rc = want_attr(w, (const struct nlattr *)at, q);
		if (rc)
			return rc;
		at += RPWI_MIN((size_t)NLA_ALIGN(a.nla_len), (size_t)(end - at));
	}
	return 0;
}

bool rpwi_nl_device(const struct nlmsghdr *h, char *name, size_t room)
{
	const char *at = (const char *)h + NLMSG_HDRLEN, *end = (const char *)h + h->nlmsg_len;
	while (is_nldev(h) && end - at >= NLA_HDRLEN) {
		const struct nlattr *a = (const void *)at;
		if (a->nla_len < NLA_HDRLEN || a->nla_len > (size_t)(end - at))
			return false;
		if ((a->nla_type & NLA_TYPE_MASK) == RDMA_NLDEV_ATTR_DEV_NAME) {
			snprintf(name, room, "%.*s", (int)(a->nla_len - NLA_HDRLEN),
				at + NLA_HDRLEN);
			return true;
		}
		at += RPWI_MIN((size_t)NLA_ALIGN(a->nla_len), (size_t)(end - at));
	}
	return false;
}

/* ---- devices and ports ---- */

static uint64_t guid_of(const struct rpwi_netdev *d)
{
	uint8_t g[8];
	rpwi_netdev_guid(d, g);
	return rpwi_get_be64(g);
}

static void put_handle(struct rpwi_nl_out *o, const struct rpwi_netdev *d)
{
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_DEV_INDEX, rpwi_netdev_uverbs(d));
	rpwi_nl_put_text(o, RDMA_NLDEV_ATTR_DEV_NAME, d->name);
}

static void put_device(
	const struct rpwi_nl_world *w, struct rpwi_nl_out *o, const struct rpwi_netdev *d)
{
	put_handle(o, d);
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_PORT_INDEX, PORTS);
	rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_CAP_FLAGS, w->caps);
	rpwi_nl_put_text(o, RDMA_NLDEV_ATTR_FW_VERSION, w->firmware);
	rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_NODE_GUID, guid_of(d));
	rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, guid_of(d));
	rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_DEV_NODE_TYPE, NODE_CA);
	rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_DEV_DIM, 0);
	rpwi_nl_put_text(o, RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce");
}

static void put_port(
	const struct rpwi_nl_world *w, struct rpwi_nl_out *o, const struct rpwi_netdev *d)
{
	(void)w;
	put_handle(o, d);
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_PORT_STATE, d->up ? STATE_ACTIVE : STATE_DOWN);
	uint8_t down = d->no_carrier ? PHYS_POLLING : PHYS_DISABLED;
	rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_PORT_PHYS_STATE, d->up ? PHYS_LINK_UP : down);
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_NDEV_INDEX, (uint32_t)d->ifindex);
	rpwi_nl_put_text(o, RDMA_NLDEV_ATTR_NDEV_NAME, d->ifname);
}

/* ---- objects ---- */

static bool count_one(void *arg, const struct rpwi_resource *r)
{
	(void)r;
	++*(uint64_t *)arg;
	return true;
}

static void put_summary(
	const struct rpwi_nl_world *w, struct rpwi_nl_out *o, const struct rpwi_netdev *d)
{
	static const char *const names[RPWI_RES_KINDS] = {
		"pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"};
	put_handle(o, d);
	size_t all = rpwi_nl_nest_begin(o, RDMA_NLDEV_ATTR_RES_SUMMARY);
	for (unsigned k = 0; k < RPWI_RES_KINDS; k++) {
		uint64_t n = 0;
		bool told = w->count && w->count(d->name, k, &n);
		int rc = !told && w->resources ? w->resources(d->name, k, count_one, &n) : 0;
		if (rc && !o->rc)
			o->rc = rc;
		size_t one = rpwi_nl_nest_begin(o, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
		rpwi_nl_put_text(o, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, names[k]);
		rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, n);
		rpwi_nl_nest_end(o, one);
	}
	rpwi_nl_nest_end(o, all);
}

static void put_peer(struct rpwi_nl_out *o, const struct rpwi_resource *r)
{
	if (r->connects) {
		rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_RQPN, r->remote_qpn);
		rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_RQ_PSN, r->rq_psn);
	}
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_SQ_PSN, r->sq_psn);
	if (r->connects)
		rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, 0);
	rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_RES_TYPE, r->type);
	rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_RES_STATE, r->state);
}

static void put_keys(struct rpwi_nl_out *o, const struct rpwi_resource *r, bool admin)
{
	if (admin) {
		rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_RKEY, r->rkey);
		rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_LKEY, r->lkey);
	}
	rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_RES_MRLEN, r->length);
}

static void put_cm(struct rpwi_nl_out *o, const struct rpwi_resource *r)
{
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	if (r->qpn) {
		rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_LQPN, r->qpn);
		rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_RES_TYPE, r->type);
	}
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_PS, r->port_space);
	rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_RES_STATE, r->state);
	if (r->src.ss_family)
		rpwi_nl_put(o, RDMA_NLDEV_ATTR_RES_SRC_ADDR, &r->src, sizeof(r->src));
	if (r->dst.ss_family)
		rpwi_nl_put(o, RDMA_NLDEV_ATTR_RES_DST_ADDR, &r->dst, sizeof(r->dst));
}

/* What a kind is called by: the list, an entry of it, its number; does it say its PD, its context?
 */
static const struct shown {
	uint16_t list, entry, id;
	bool pd, ctx;
} shown[RPWI_RES_KINDS] = {
	[RPWI_RES_PD] = {RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY,
		RDMA_NLDEV_ATTR_RES_PDN, false, true},
	[RPWI_RES_CQ] = {RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY,
		RDMA_NLDEV_ATTR_RES_CQN, false, true},
	[RPWI_RES_QP] = {RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY,
		RDMA_NLDEV_ATTR_RES_LQPN, true, false},
	[RPWI_RES_CM_ID] = {RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
		RDMA_NLDEV_ATTR_RES_CM_IDN, false, false},
	[RPWI_RES_MR] = {RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY,
		RDMA_NLDEV_ATTR_RES_MRN, true, false},
	[RPWI_RES_CTX] = {RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY,
		RDMA_NLDEV_ATTR_RES_CTXN, false, false},
	[RPWI_RES_SRQ] = {RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY,
		RDMA_NLDEV_ATTR_RES_SRQN, true, false},
};

static void put_resource(
	const struct rpwi_nl_world *w, struct rpwi_nl_out *o, const struct rpwi_resource *r)
{
	const struct shown *s = &shown[r->kind];
	if (r->kind == RPWI_RES_QP)
		put_peer(o, r);
	else if (r->kind == RPWI_RES_MR)
		put_keys(o, r, w->admin);
	else if (r->kind == RPWI_RES_CM_ID)
		put_cm(o, r);
	else if (r->kind == RPWI_RES_CQ)
		rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_CQE, r->cqe);
	else if (r->kind == RPWI_RES_SRQ)
		rpwi_nl_put_u8(o, RDMA_NLDEV_ATTR_RES_TYPE, 0 /* IB_SRQT_BASIC */);
	if (r->kind == RPWI_RES_CQ || r->kind == RPWI_RES_PD)
		rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_RES_USECNT, r->users);
	rpwi_nl_put_u32(o, s->id, r->id);
	if (s->pd)
		rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_PDN, r->pd);
	if (s->ctx)
		rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_CTXN, r->ctx);
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_RES_PID, r->pid);
}

/* A list of a device's objects, in as many messages as it needs. */
struct listing {
	const struct rpwi_nl_world *w;
	const struct nlmsghdr *h;
	struct rpwi_nl_out *o;
	const struct rpwi_netdev *d;
	enum rpwi_resource_kind kind;
	uint32_t id; /* of one: which object */
	bool met;    /* one was, in this message */
	size_t list;
};

static void listing_begin(struct listing *l)
{
	rpwi_nl_message_begin(l->w, l->h, l->o, l->h->nlmsg_type, NLM_F_MULTI);
	put_handle(l->o, l->d);
	l->list = rpwi_nl_nest_begin(l->o, shown[l->kind].list);
	l->met = false;
}

/* As the kernel's: no message for no object. */
static void listing_end(struct listing *l)
{
	if (!l->met) {
		l->o->len = l->o->message;
		return;
	}
	rpwi_nl_nest_end(l->o, l->list);
	rpwi_nl_message_end(l->o);
}

static bool list_one(void *arg, const struct rpwi_resource *r)
{
	struct listing *l = arg;
	if (l->o->len - l->o->message + ENTRY_MAX > sizeof(l->o->buf)) {
		listing_end(l);
		listing_begin(l);
	}
	size_t entry = rpwi_nl_nest_begin(l->o, shown[l->kind].entry);
	put_resource(l->w, l->o, r);
	rpwi_nl_nest_end(l->o, entry);
	l->met = true;
	return !l->o->rc;
}

static bool answer_one(void *arg, const struct rpwi_resource *r)
{
	struct listing *l = arg;
	if (r->id != l->id)
		return true;
	l->met = true;
	if (rpwi_nl_message_begin(l->w, l->h, l->o, l->h->nlmsg_type, 0)) {
		put_handle(l->o, l->d);
		put_resource(l->w, l->o, r);
		rpwi_nl_message_end(l->o);
	}
	return false;
}

/* ---- commands ---- */

struct command;
typedef int command_fn(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	const struct command *c, const struct wanted *q, struct rpwi_nl_out *o);

typedef void put_fn(
	const struct rpwi_nl_world *w, struct rpwi_nl_out *o, const struct rpwi_netdev *d);

struct command {
	command_fn *one, *list;
	put_fn *put; /* of the commands about devices, the description of one */
	enum rpwi_resource_kind kind;
	bool needs_dev;  /* also for a list */
	bool needs_port; /* for one; checked where it is given */
	bool changes;
};

static void say_device(const struct rpwi_nl_world *w, const struct nlmsghdr *h, unsigned flags,
	const struct command *c, const struct rpwi_netdev *d, struct rpwi_nl_out *o)
{
	if (rpwi_nl_message_begin(w, h, o, h->nlmsg_type, flags)) {
		c->put(w, o, d);
		rpwi_nl_message_end(o);
	}
}

static int one_device(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	const struct command *c, const struct wanted *q, struct rpwi_nl_out *o)
{
	say_device(w, h, 0, c, q->dev, o);
	return 0;
}

static int list_devices(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	const struct command *c, const struct wanted *q, struct rpwi_nl_out *o)
{
	for (unsigned i = 0; i < w->n && !o->rc; i++)
		if (!c->needs_dev || &w->nets[i] == q->dev)
			say_device(w, h, NLM_F_MULTI, c, &w->nets[i], o);
	return 0;
}

static int one_resource(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	const struct command *c, const struct wanted *q, struct rpwi_nl_out *o)
{
	struct listing l = {.w = w, .h = h, .o = o, .d = q->dev, .kind = c->kind, .id = q->id};
	if (!q->has_id)
		return -EINVAL;
	int rc = w->resources ? w->resources(q->dev->name, c->kind, answer_one, &l) : 0;
	if (!rc && !l.met)
		rc = -ENOENT;
	return rc;
}

static int list_resources(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	const struct command *c, const struct wanted *q, struct rpwi_nl_out *o)
{
	struct listing l = {.w = w, .h = h, .o = o, .d = q->dev, .kind = c->kind};
	listing_begin(&l);
	int rc = w->resources ? w->resources(q->dev->name, c->kind, list_one, &l) : 0;
	listing_end(&l);
	return rc;
}

static void put_counters(
	const struct rpwi_nl_world *w, struct rpwi_nl_out *o, const struct rpwi_netdev *d)
{
	const char *name;
	uint64_t value;
	put_handle(o, d);
	rpwi_nl_put_u32(o, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	size_t all = rpwi_nl_nest_begin(o, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	for (unsigned i = 0; w->counter && w->counter(d, i, &name, &value); i++) {
		size_t one = rpwi_nl_nest_begin(o, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
		rpwi_nl_put_text(o, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
		rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value);
		rpwi_nl_nest_end(o, one);
	}
	rpwi_nl_nest_end(o, all);
}

/* RES asks for counters that are bound to objects, of which there are none. */
static int list_nothing(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	const struct command *c, const struct wanted *q, struct rpwi_nl_out *o)
{
	return 0;
}

static int system_get(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	const struct command *c, const struct wanted *q, struct rpwi_nl_out *o)
{
	if (rpwi_nl_message_begin(w, h, o, h->nlmsg_type, 0)) {
		/* a device is that of an interface, and is seen where that is */
		rpwi_nl_put_u8(o, RDMA_NLDEV_SYS_ATTR_NETNS_MODE, NETNS_EXCLUSIVE);
		/* nothing is pinned, so that a fork takes nothing away (IBV_FORK_UNNEEDED) */
		rpwi_nl_put_u8(o, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
		rpwi_nl_message_end(o);
	}
	return 0;
}

static bool is_rdma_cm(const struct wanted *q) { return !strcmp(q->chardev, "rdma_cm"); }

/* A device number as the kernel hands it out, and as stat(2) of a 64-bit system has it. */
static uint64_t uverbs_number(const struct rpwi_netdev *d)
{
	enum { UVERBS_MAJOR = 231, MINOR_MAX = 0xfffff };
	uint64_t minor = rpwi_netdev_uverbs(d) & MINOR_MAX;
	return (minor & 0xff) | UVERBS_MAJOR << 8 | (minor & ~0xffull) << 12;
}

static int chardev_get(const struct rpwi_nl_world *w, const struct nlmsghdr *h,
	const struct command *c, const struct wanted *q, struct rpwi_nl_out *o)
{
	char name[32] = "rdma_cm";
	if (!q->has_chardev)
		return -EINVAL;
	if (!is_rdma_cm(q) && strcmp(q->chardev, "uverbs") != 0)
		return -ENOENT;
	if (!is_rdma_cm(q) && !q->dev)
		return q->has_dev ? -ENODEV : -EINVAL;
	if (!is_rdma_cm(q))
		snprintf(name, sizeof(name), "uverbs%u", rpwi_netdev_uverbs(q->dev));
	if (rpwi_nl_message_begin(w, h, o, h->nlmsg_type, 0)) {
		rpwi_nl_put_text(o, RDMA_NLDEV_ATTR_CHARDEV_NAME, name);
		rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_CHARDEV_ABI,
			is_rdma_cm(q) ? RDMA_USER_CM_ABI_VERSION : RXE_ABI);
		rpwi_nl_put_u64(o, RDMA_NLDEV_ATTR_CHARDEV,
			is_rdma_cm(q) ? w->rdma_cm : uverbs_number(q->dev));
		rpwi_nl_message_end(o);
	}
	return 0;
}

#define RESOURCES(of) \
	{ \
		.one = one_resource, .list = list_resources, .kind = (of), .needs_dev = true \
	}
static const struct command commands[RDMA_NLDEV_NUM_OPS] = {
	[RDMA_NLDEV_CMD_GET] = {.one = one_device, .list = list_devices, .put = put_device},
	[RDMA_NLDEV_CMD_SET] = {.changes = true},
	[RDMA_NLDEV_CMD_NEWLINK] = {.changes = true},
	[RDMA_NLDEV_CMD_DELLINK] = {.changes = true},
	[RDMA_NLDEV_CMD_PORT_GET] = {.one = one_device,
		.list = list_devices,
		.put = put_port,
		.needs_dev = true,
		.needs_port = true},
	[RDMA_NLDEV_CMD_SYS_GET] = {.one = system_get},
	[RDMA_NLDEV_CMD_SYS_SET] = {.changes = true},
	[RDMA_NLDEV_CMD_RES_GET] = {.one = one_device, .list = list_devices, .put = put_summary},
	[RDMA_NLDEV_CMD_RES_QP_GET] = RESOURCES(RPWI_RES_QP),
	[RDMA_NLDEV_CMD_RES_CM_ID_GET] = RESOURCES(RPWI_RES_CM_ID),
	[RDMA_NLDEV_CMD_RES_CQ_GET] = RESOURCES(RPWI_RES_CQ),
	[RDMA_NLDEV_CMD_RES_MR_GET] = RESOURCES(RPWI_RES_MR),
	[RDMA_NLDEV_CMD_RES_PD_GET] = RESOURCES(RPWI_RES_PD),
	[RDMA_NLDEV_CMD_RES_CTX_GET] = RESOURCES(RPWI_RES_CTX),
	[RDMA_NLDEV_CMD_RES_SRQ_GET] = RESOURCES(RPWI_RES_SRQ),
	[RDMA_NLDEV_CMD_GET_CHARDEV] = {.one = chardev_get},
	[RDMA_NLDEV_CMD_STAT_SET] = {.changes = true},
	[RDMA_NLDEV_CMD_STAT_GET] = {.one = one_device,
		.list = list_nothing,
		.put = put_counters,
		.needs_dev = true,
		.needs_port = true},
	[RDMA_NLDEV_CMD_STAT_DEL] = {.changes = true},
};

static const struct command *command_find(const struct nlmsghdr *h)
{
	unsigned n = RDMA_NL_GET_OP(h->nlmsg_type);
	bool known = is_nldev(h) && n < RPWI_ARRAY_LEN(commands) &&
		     (commands[n].one || commands[n].list || commands[n].changes);
	return known ? &commands[n] : NULL;
}

static bool is_list(const struct nlmsghdr *h, const struct command *c)
{
	return h->nlmsg_flags & NLM_F_DUMP && c->list;
}

enum rpwi_nl_side rpwi_nl_side(const struct rpwi_nl_world *w, const struct nlmsghdr *h)
{
	struct wanted q;
	const struct command *c = command_find(h);
	if (!is_nldev(h) || !(h->nlmsg_flags & NLM_F_REQUEST) || want(w, h, &q))
		return RPWI_NL_KERNELS;
	/* whichever device it names, as in the kernel */
	if (c && is_list(h, c) && !c->needs_dev)
		return RPWI_NL_BOTH;
	/* A command that we do not have, but about a device of ours: its error is ours to say. */
	if (q.dev || (c && c->one == chardev_get && is_rdma_cm(&q)))
		return RPWI_NL_OURS;
	return RPWI_NL_KERNELS;
}

/* What is wrong with the request, before anything is answered. */
static int check(const struct rpwi_nl_world *w, const struct command *c, const struct nlmsghdr *h,
	const struct wanted *q)
{
	bool list = is_list(h, c);
	if (c->changes)
		return w->admin ? -EOPNOTSUPP : -EPERM;
	if (list ? c->needs_dev : c->put || c->needs_dev) {
		if (!q->has_dev)
			return -EINVAL;
		if (!q->dev)
			return -ENODEV;
	}
	if (c->needs_port && !list && !q->has_port)
		return -EINVAL;
	return q->has_port && q->port != 1 ? -EINVAL : 0;
}

int rpwi_nl_answer(const struct rpwi_nl_world *w, const struct nlmsghdr *h, struct rpwi_nl_out *o)
{
	struct wanted q = {0};
	const struct command *c = command_find(h);
	/* As the kernel: a message that is no request, or a control message, has no answer. */
	bool request = h->nlmsg_flags & NLM_F_REQUEST && h->nlmsg_type >= NLMSG_MIN_TYPE;
	int rc = request && !c ? -EINVAL : 0;
	if (request && !rc)
		rc = want(w, h, &q);
	if (request && !rc)
		rc = check(w, c, h, &q);
	if (request && !rc && is_list(h, c)) {
		rc = c->list(w, h, c, &q, o);
		return o->rc ? o->rc : rpwi_nl_done(w, h, rc, o);
	}
	if (request && !rc)
		rc = c->one ? c->one(w, h, c, &q, o) : 0;
	if (rpwi_nl_finish(o))
		return o->rc;
	if (!rc && !(h->nlmsg_flags & NLM_F_ACK))
		return 0;
	return rpwi_nl_error(w, h, rc, rc && c && c->changes ? unchangeable : NULL, o);
}
