/* SPDX-License-Identifier: BSD-3-Clause */
/* netlink_test.c - requests and what is answered, byte by byte where it matters. What rxe in a
 * kernel says beside it is in tests/interop/beside.py. */
#include "lib/test.h"

#include <errno.h>

#include "world.h"

static struct {
	_Alignas(8) char bytes[1 << 20];
	size_t len;
	unsigned datagrams, room; /* so many are taken */
} got;

static int take(void *arg, const void *datagram, size_t len)
{
	const char *why = datagram_wrong(datagram, len);
	if (why)
		fail_msg("%s", why);
	if (got.datagrams == got.room)
		return -ENOBUFS;
	assert_true(got.len + len <= sizeof(got.bytes));
	memcpy(got.bytes + got.len, datagram, len);
	got.len += len;
	got.datagrams++;
	return 0;
}

static struct {
	_Alignas(8) char bytes[512];
} request;

static struct nlmsghdr *begin(unsigned command, unsigned flags)
{
	struct nlmsghdr *h = (void *)request.bytes;
	*h = (struct nlmsghdr){.nlmsg_len = NLMSG_HDRLEN,
		.nlmsg_type = (uint16_t)RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command),
		.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
		.nlmsg_seq = 0x5e0,
		.nlmsg_pid = 77};
	return h;
}

static void with(struct nlmsghdr *h, unsigned type, const void *v, size_t len)
{
	struct nlattr *a = (void *)((char *)h + h->nlmsg_len);
	*a = (struct nlattr){.nla_len = (uint16_t)(NLA_HDRLEN + len), .nla_type = (uint16_t)type};
	memcpy((char *)a + NLA_HDRLEN, v, len);
	h->nlmsg_len += (uint32_t)NLA_ALIGN(a->nla_len);
}
static void with_u32(struct nlmsghdr *h, unsigned type, uint32_t v) { with(h, type, &v, 4); }

static int answer_of(const struct rpwi_nl_world *w, const struct nlmsghdr *h, unsigned room)
{
	static struct rpwi_nl_out out;
	memset(&out, 0, sizeof(out));
	out.send = take;
	got.len = got.datagrams = 0;
	got.room = room;
	return rpwi_nl_answer(w, h, &out);
}
static void answer(const struct nlmsghdr *h) { assert_int_equal(answer_of(&world, h, 1000), 0); }

/* The n-th message of the answer, or NULL. */
static const struct nlmsghdr *message(unsigned n)
{
	const char *at = got.bytes;
	for (; at < got.bytes + got.len; n--) {
		const struct nlmsghdr *h = (const void *)at;
		if (!n)
			return h;
		at += h->nlmsg_len;
	}
	return NULL;
}

static unsigned messages(void)
{
	unsigned n = 0;
	while (message(n))
		n++;
	return n;
}

static const struct nlattr *attr_in(const char *at, const char *end, unsigned type, unsigned nth)
{
	while (at < end) {
		const struct nlattr *a = (const void *)at;
		if (a->nla_type == type && !nth--)
			return a;
		at += NLA_ALIGN(a->nla_len);
	}
	return NULL;
}
static const struct nlattr *attr_of(const struct nlmsghdr *h, unsigned type)
{
	return attr_in((const char *)NLMSG_DATA(h), (const char *)h + h->nlmsg_len, type, 0);
}
static const struct nlattr *attr_within(const struct nlattr *a, unsigned type, unsigned nth)
{
	return attr_in((const char *)a + NLA_HDRLEN, (const char *)a + a->nla_len, type, nth);
}
static uint64_t number(const struct nlattr *a)
{
	uint64_t v = 0;
	assert_non_null(a);
	assert_in_range(a->nla_len, NLA_HDRLEN + 1, NLA_HDRLEN + 8);
	memcpy(&v, (const char *)a + NLA_HDRLEN, a->nla_len - (size_t)NLA_HDRLEN);
	return v;
}
static const char *text(const struct nlattr *a)
{
	assert_non_null(a);
	const char *s = (const char *)a + NLA_HDRLEN;
	assert_int_equal(s[a->nla_len - NLA_HDRLEN - 1], '\0');
	return s;
}

static int error_of(const struct nlmsghdr *h)
{
	assert_non_null(h);
	assert_int_equal(h->nlmsg_type, NLMSG_ERROR);
	return ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
}
static int done_of(const struct nlmsghdr *h)
{
	assert_non_null(h);
	assert_int_equal(h->nlmsg_type, NLMSG_DONE);
	return *(const int *)NLMSG_DATA(h);
}
static void expect_error(const struct nlmsghdr *h, int err)
{
	answer(h);
	assert_int_equal(messages(), 1);
	assert_int_equal(error_of(message(0)), err);
	const struct nlmsgerr *e = NLMSG_DATA(message(0));
	assert_memory_equal(&e->msg, h, sizeof(*h));
}

static void a_list_of_devices(void **state)
{
	answer(begin(RDMA_NLDEV_CMD_GET, NLM_F_DUMP | NLM_F_ACK));
	assert_int_equal(messages(), 3);
	const struct nlmsghdr *m = message(0);
	assert_int_equal(m->nlmsg_type, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET));
	assert_int_equal(m->nlmsg_flags, NLM_F_MULTI);
	assert_int_equal(m->nlmsg_seq, 0x5e0);
	assert_int_equal(number(attr_of(m, RDMA_NLDEV_ATTR_DEV_INDEX)), ETH0);
	assert_string_equal(text(attr_of(m, RDMA_NLDEV_ATTR_DEV_NAME)), "rpw_eth0");
	assert_int_equal(number(attr_of(m, RDMA_NLDEV_ATTR_PORT_INDEX)), 1);
	assert_int_equal(number(attr_of(m, RDMA_NLDEV_ATTR_CAP_FLAGS)), 0x1234);
	assert_string_equal(text(attr_of(m, RDMA_NLDEV_ATTR_FW_VERSION)), "1.2.3");
	/* in the host's order, and that of the GID table's first address */
	assert_int_equal(number(attr_of(m, RDMA_NLDEV_ATTR_NODE_GUID)), 0x000000fffe000005);
	assert_int_equal(number(attr_of(m, RDMA_NLDEV_ATTR_SYS_IMAGE_GUID)), 0x000000fffe000005);
	assert_int_equal(number(attr_of(m, RDMA_NLDEV_ATTR_DEV_NODE_TYPE)), 1);
	assert_string_equal(text(attr_of(m, RDMA_NLDEV_ATTR_DEV_PROTOCOL)), "roce");
	assert_string_equal(text(attr_of(message(1), RDMA_NLDEV_ATTR_DEV_NAME)), "rpw_lo");
	assert_int_equal(done_of(message(2)), 0);
}

static void one_device_and_its_acknowledgement(void **state)
{
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_GET, 0);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, LO);
	answer(h);
	assert_int_equal(messages(), 1);
	assert_int_equal(message(0)->nlmsg_flags, 0);
	assert_string_equal(text(attr_of(message(0), RDMA_NLDEV_ATTR_DEV_NAME)), "rpw_lo");
	h->nlmsg_flags |= NLM_F_ACK;
	answer(h);
	assert_int_equal(messages(), 2);
	assert_int_equal(got.datagrams, 2);
	assert_int_equal(error_of(message(1)), 0);
}

static void ports(void **state)
{
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_PORT_GET, 0);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
	expect_error(h, -EINVAL); /* which port? */
	with_u32(h, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	answer(h);
	assert_int_equal(messages(), 1);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_PORT_STATE)), 4);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_PORT_PHYS_STATE)), 5);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_NDEV_INDEX)), 2);
	assert_string_equal(text(attr_of(message(0), RDMA_NLDEV_ATTR_NDEV_NAME)), "eth0");

	h = begin(RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP);
	expect_error(h, -EINVAL); /* of which device? */
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, LO);
	answer(h);
	assert_int_equal(messages(), 2);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_PORT_STATE)), 1);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_PORT_PHYS_STATE)), 3);
	assert_int_equal(done_of(message(1)), 0);
	world_nets[1].no_carrier = true; /* up, but for the cable */
	answer(h);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_PORT_STATE)), 1);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_PORT_PHYS_STATE)), 2);
	world_nets[1].no_carrier = false;

	h = begin(RDMA_NLDEV_CMD_PORT_GET, 0);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
	with_u32(h, RDMA_NLDEV_ATTR_PORT_INDEX, 2);
	expect_error(h, -EINVAL);
}

static void the_system_and_character_devices(void **state)
{
	answer(begin(RDMA_NLDEV_CMD_SYS_GET, 0));
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_SYS_ATTR_NETNS_MODE)), 0);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK)), 1);

	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_GET_CHARDEV, 0);
	expect_error(h, -EINVAL);
	with(h, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "rdma_cm", 8);
	assert_int_equal(rpwi_nl_side(&world, h), RPWI_NL_OURS);
	answer(h);
	assert_string_equal(text(attr_of(message(0), RDMA_NLDEV_ATTR_CHARDEV_NAME)), "rdma_cm");
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_CHARDEV)), 0xabcd);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_CHARDEV_ABI)), 4);

	h = begin(RDMA_NLDEV_CMD_GET_CHARDEV, 0);
	with(h, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs", 7);
	expect_error(h, -EINVAL);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
	answer(h);
	assert_string_equal(text(attr_of(message(0), RDMA_NLDEV_ATTR_CHARDEV_NAME)), "uverbs1002");
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_CHARDEV)),
		(1002 & 0xff) | 231 << 8 | (1002 & ~0xff) << 12);

	h = begin(RDMA_NLDEV_CMD_GET_CHARDEV, 0);
	with(h, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "umad", 5);
	expect_error(h, -ENOENT);
}

static void a_summary_of_objects(void **state)
{
	answer(begin(RDMA_NLDEV_CMD_RES_GET, NLM_F_DUMP));
	assert_int_equal(messages(), 3);
	for (unsigned d = 0; d < 2; d++) {
		static const char *const names[] = {"pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"};
		const struct nlattr *all = attr_of(message(d), RDMA_NLDEV_ATTR_RES_SUMMARY);
		assert_non_null(all);
		for (unsigned i = 0; i < RPWI_ARRAY_LEN(names); i++) {
			IN_CASE("row", i);
			const struct nlattr *e =
				attr_within(all, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY, i);
			assert_string_equal(
				text(attr_within(e, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, 0)),
				names[i]);
			assert_int_equal(
				number(attr_within(e, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, 0)),
				d ? 0 : 3);
		}
	}
}

static const struct {
	unsigned command, list, entry, id;
} kinds[] = {
	{RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY,
		RDMA_NLDEV_ATTR_RES_LQPN},
	{RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY,
		RDMA_NLDEV_ATTR_RES_CQN},
	{RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY,
		RDMA_NLDEV_ATTR_RES_MRN},
	{RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY,
		RDMA_NLDEV_ATTR_RES_PDN},
	{RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
		RDMA_NLDEV_ATTR_RES_CM_IDN},
	{RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY,
		RDMA_NLDEV_ATTR_RES_CTXN},
	{RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY,
		RDMA_NLDEV_ATTR_RES_SRQN},
};

/* Every object of a list is told once, in however many messages and datagrams. */
static void lists_of_objects_of_any_length(void **state)
{
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(kinds); k++)
		for (world_objects = 0; world_objects < 400; world_objects += 133) {
			IN_CASE("row", k);
			struct nlmsghdr *h = begin(kinds[k].command, NLM_F_DUMP | NLM_F_ACK);
			with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
			answer(h);
			unsigned n = messages(), found = 0;
			assert_int_equal(done_of(message(n - 1)), 0);
			for (unsigned m = 0; m < n - 1; m++) {
				const struct nlattr *list = attr_of(message(m), kinds[k].list), *e;
				assert_non_null(list);
				for (unsigned i = 0; (e = attr_within(list, kinds[k].entry, i));
					i++, found++) {
					assert_int_equal(number(attr_within(e, kinds[k].id, 0)),
						100 + found);
					assert_int_equal(
						number(attr_within(e, RDMA_NLDEV_ATTR_RES_PID, 0)),
						4242);
				}
			}
			assert_int_equal(found, world_objects);
		}
	world_objects = 3;
}

static void one_object(void **state)
{
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(kinds); k++) {
		IN_CASE("row", k);
		struct nlmsghdr *h = begin(kinds[k].command, 0);
		with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
		expect_error(h, -EINVAL);
		with_u32(h, kinds[k].id, 102);
		answer(h);
		assert_int_equal(messages(), 1);
		assert_int_equal(number(attr_of(message(0), kinds[k].id)), 102);

		h = begin(kinds[k].command, 0);
		with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
		with_u32(h, kinds[k].id, 500);
		expect_error(h, -ENOENT);
	}
}

static void keys_are_shown_to_the_administrator_alone(void **state)
{
	struct rpwi_nl_world w = world;
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_RES_MR_GET, 0);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
	with_u32(h, RDMA_NLDEV_ATTR_RES_MRN, 101);
	answer(h);
	assert_null(attr_of(message(0), RDMA_NLDEV_ATTR_RES_RKEY));
	w.admin = true;
	assert_int_equal(answer_of(&w, h, 10), 0);
	assert_int_equal(number(attr_of(message(0), RDMA_NLDEV_ATTR_RES_RKEY)), 0x22);
}

static void counters(void **state)
{
	struct rpwi_nl_world w = world;
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_STAT_GET, 0);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
	expect_error(h, -EINVAL);
	with_u32(h, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	answer(h);
	const struct nlattr *all = attr_of(message(0), RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	const struct nlattr *e = attr_within(all, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, 1);
	assert_string_equal(
		text(attr_within(e, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, 0)), "rcvd_pkts");
	assert_int_equal(number(attr_within(e, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, 0)),
		2ull << 32 | 1);
	w.counter = NULL;
	assert_int_equal(answer_of(&w, h, 10), 0);
	all = attr_of(message(0), RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	assert_int_equal(all->nla_len, NLA_HDRLEN);
}

static void nothing_can_be_changed(void **state)
{
	static const unsigned all[] = {RDMA_NLDEV_CMD_SET, RDMA_NLDEV_CMD_NEWLINK,
		RDMA_NLDEV_CMD_DELLINK, RDMA_NLDEV_CMD_SYS_SET, RDMA_NLDEV_CMD_STAT_SET,
		RDMA_NLDEV_CMD_STAT_DEL};
	struct rpwi_nl_world w = world;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(all); i++) {
		IN_CASE("row", i);
		struct nlmsghdr *h = begin(all[i], NLM_F_ACK);
		with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, LO);
		expect_error(h, -EPERM);
		w.admin = true;
		assert_int_equal(answer_of(&w, h, 10), 0);
		assert_int_equal(error_of(message(0)), -EOPNOTSUPP);
		/* the remedy, behind the header */
		const struct nlmsghdr *m = message(0);
		assert_int_equal(m->nlmsg_flags, NLM_F_CAPPED | NLM_F_ACK_TLVS);
		const char *at = (const char *)m + NLMSG_LENGTH(sizeof(struct nlmsgerr));
		const struct nlattr *why =
			attr_in(at, (const char *)m + m->nlmsg_len, NLMSGERR_ATTR_MSG, 0);
		assert_non_null(strstr(text(why), "ip link"));
		w.explains = false;
		assert_int_equal(answer_of(&w, h, 10), 0);
		assert_int_equal(message(0)->nlmsg_len, NLMSG_LENGTH(sizeof(struct nlmsgerr)));
		w = world;
	}
}

static void whose_answer_it_is(void **state)
{
	static const struct {
		unsigned command, flags;
		uint32_t device; /* 0: none */
		enum rpwi_nl_side side;
	} cases[] = {
		{RDMA_NLDEV_CMD_GET, NLM_F_DUMP, 0, RPWI_NL_BOTH},
		{RDMA_NLDEV_CMD_RES_GET, NLM_F_DUMP, 0, RPWI_NL_BOTH},
		{RDMA_NLDEV_CMD_GET, NLM_F_DUMP, 3, RPWI_NL_BOTH},
		{RDMA_NLDEV_CMD_STAT_GET, NLM_F_DUMP, 0, RPWI_NL_KERNELS},
		{RDMA_NLDEV_CMD_GET, 0, ETH0, RPWI_NL_OURS},
		{RDMA_NLDEV_CMD_GET, 0, 0, RPWI_NL_KERNELS},
		{RDMA_NLDEV_CMD_GET, 0, 3, RPWI_NL_KERNELS},
		{RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, ETH0, RPWI_NL_OURS},
		{RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, 0, RPWI_NL_KERNELS},
		{RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP, 3, RPWI_NL_KERNELS},
		{RDMA_NLDEV_CMD_SYS_GET, 0, 0, RPWI_NL_KERNELS},
		{RDMA_NLDEV_CMD_NEWLINK, 0, 0, RPWI_NL_KERNELS},
		{RDMA_NLDEV_CMD_SET, 0, LO, RPWI_NL_OURS},
		{RDMA_NLDEV_CMD_STAT_GET_STATUS, 0, LO, RPWI_NL_OURS},
		{200, 0, 0, RPWI_NL_KERNELS},
	};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		struct nlmsghdr *h = begin(cases[i].command, cases[i].flags);
		if (cases[i].device)
			with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, cases[i].device);
		if (rpwi_nl_side(&world, h) != cases[i].side)
			fail_msg("case %u: side %d", i, rpwi_nl_side(&world, h));
	}
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	h->nlmsg_flags = NLM_F_DUMP | NLM_F_ACK; /* no request: one acknowledgement */
	assert_int_equal(rpwi_nl_side(&world, h), RPWI_NL_KERNELS);
	h = begin(RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	h->nlmsg_type = (uint16_t)RDMA_NL_GET_TYPE(RDMA_NL_LS, RDMA_NLDEV_CMD_GET);
	assert_int_equal(rpwi_nl_side(&world, h), RPWI_NL_KERNELS);
}

/* Of what the kernel says, some is about devices that programs are not shown. */
static void which_device_a_message_is_about(void **state)
{
	char name[16];
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_GET, 0);
	assert_false(rpwi_nl_device(h, name, sizeof(name)));
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, 7);
	assert_false(rpwi_nl_device(h, name, sizeof(name)));
	with(h, RDMA_NLDEV_ATTR_DEV_NAME, "mana_0", 7);
	assert_true(rpwi_nl_device(h, name, sizeof(name)));
	assert_string_equal(name, "mana_0");
	h->nlmsg_type = NLMSG_ERROR;
	assert_false(rpwi_nl_device(h, name, sizeof(name)));
	/* longer than the room, without an end, cut short, or none at all */
	h = begin(RDMA_NLDEV_CMD_GET, 0);
	with(h, RDMA_NLDEV_ATTR_DEV_NAME, "mana_0_with_a_long_name", 23);
	assert_true(rpwi_nl_device(h, name, sizeof(name)));
	assert_string_equal(name, "mana_0_with_a_l");
	h->nlmsg_len -= 4;
	assert_false(rpwi_nl_device(h, name, sizeof(name)));
	h->nlmsg_len = NLMSG_HDRLEN + 2;
	assert_false(rpwi_nl_device(h, name, sizeof(name)));
}

static void requests_that_are_none(void **state)
{
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_GET, 0);
	expect_error(h, -EINVAL);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, 999);
	expect_error(h, -ENODEV);
	h = begin(RDMA_NLDEV_CMD_GET, 0);
	with(h, RDMA_NLDEV_ATTR_DEV_INDEX, "ab", 2);
	expect_error(h, -ERANGE);
	h = begin(RDMA_NLDEV_CMD_GET_CHARDEV, 0);
	with(h, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "a name that is far too long", 27);
	expect_error(h, -ERANGE);
	expect_error(begin(RDMA_NLDEV_CMD_UNSPEC, 0), -EINVAL);
	expect_error(begin(8, 0), -EINVAL);
	expect_error(begin(1023, NLM_F_DUMP), -EINVAL);
	h = begin(RDMA_NLDEV_CMD_GET, 0);
	h->nlmsg_type = (uint16_t)RDMA_NL_GET_TYPE(RDMA_NL_IWCM, 1);
	expect_error(h, -EINVAL);

	/* an attribute that says more, or less, than there is */
	h = begin(RDMA_NLDEV_CMD_GET, 0);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
	struct nlattr *a = NLMSG_DATA(h);
	for (unsigned len = 0; len < 70; len++) {
		IN_CASE("len", len);
		a->nla_len = (uint16_t)len;
		answer(h);
		if (len != 8)
			assert_int_equal(
				error_of(message(0)), len >= 4 && len < 8 ? -ERANGE : -EINVAL);
	}
	/* what is no request, or a control message, is passed over */
	h = begin(RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	h->nlmsg_flags = NLM_F_DUMP;
	answer(h);
	assert_int_equal(messages(), 0);
	h->nlmsg_flags |= NLM_F_ACK;
	expect_error(h, 0);
	h = begin(RDMA_NLDEV_CMD_GET, NLM_F_ACK);
	h->nlmsg_type = NLMSG_NOOP;
	expect_error(h, 0);
}

static void messages_that_are_cut(void **state)
{
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_GET, 0);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
	for (size_t len = 0; len < h->nlmsg_len; len++)
		assert_null(rpwi_nl_message(h, len));
	assert_non_null(rpwi_nl_message(h, h->nlmsg_len));
	for (uint32_t len = 0; len < NLMSG_HDRLEN; len++) {
		IN_CASE("len", len);
		h->nlmsg_len = len;
		assert_null(rpwi_nl_message(h, 512));
	}
	h->nlmsg_len = UINT32_MAX;
	assert_null(rpwi_nl_message(h, 512));
}

static void a_reader_that_takes_no_more(void **state)
{
	world_objects = 200;
	struct nlmsghdr *h = begin(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP);
	with_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, ETH0);
	answer(h);
	unsigned all = got.datagrams;
	assert_in_range(all, 4, 100);
	for (unsigned room = 0; room < all; room++) {
		assert_int_equal(answer_of(&world, h, room), -ENOBUFS);
		assert_int_equal(got.datagrams, room);
	}
	world_objects = 3;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_of_devices),
		cmocka_unit_test(one_device_and_its_acknowledgement),
		cmocka_unit_test(ports),
		cmocka_unit_test(the_system_and_character_devices),
		cmocka_unit_test(a_summary_of_objects),
		cmocka_unit_test(lists_of_objects_of_any_length),
		cmocka_unit_test(one_object),
		cmocka_unit_test(keys_are_shown_to_the_administrator_alone),
		cmocka_unit_test(counters),
		cmocka_unit_test(nothing_can_be_changed),
		cmocka_unit_test(whose_answer_it_is),
		cmocka_unit_test(which_device_a_message_is_about),
		cmocka_unit_test(requests_that_are_none),
		cmocka_unit_test(messages_that_are_cut),
		cmocka_unit_test(a_reader_that_takes_no_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
