/* SPDX-License-Identifier: BSD-3-Clause */
/* mcast_cm_test.c - the commands of the rdma_cm device for multicast, written by hand: what
 * librdmacm writes, what it never writes, and whether the host is a member of the group. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include "lib/test.h"

enum { UID = 4711, PS_TCP = RDMA_PS_TCP, PS_UDP = RDMA_PS_UDP, JOINED = 12, QKEY = 0x01234567 };
#define GROUP "239.7.7.80"

static int channel;

static int command(int fd, uint32_t number, const void *body, size_t len, size_t out)
{
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		uint8_t body[512];
	} m = {.hdr = {.cmd = number, .in = (uint16_t)len, .out = (uint16_t)out}};
	memcpy(m.body, body, len);
	return write(fd, &m, sizeof(m.hdr) + len) < 0 ? -errno : 0;
}

static uint32_t create(uint16_t ps)
{
	struct rdma_ucm_create_id_resp resp;
	struct rdma_ucm_create_id cmd = {.uid = 1, .response = (uintptr_t)&resp, .ps = ps};
	assert_int_equal(
		command(channel, RDMA_USER_CM_CMD_CREATE_ID, &cmd, sizeof(cmd), sizeof(resp)), 0);
	return resp.id;
}

static void destroy(uint32_t id)
{
	struct rdma_ucm_destroy_id_resp resp;
	struct rdma_ucm_destroy_id cmd = {.response = (uintptr_t)&resp, .id = id};
	assert_int_equal(
		command(channel, RDMA_USER_CM_CMD_DESTROY_ID, &cmd, sizeof(cmd), sizeof(resp)), 0);
}

static void bind_loopback(uint32_t id)
{
	struct rdma_ucm_bind_ip cmd = {.id = id};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	memcpy(&cmd.addr, &in, sizeof(in));
	assert_int_equal(command(channel, RDMA_USER_CM_CMD_BIND_IP, &cmd, sizeof(cmd), 0), 0);
}

static int join(uint32_t id, const char *group, uint16_t flags, uint32_t *handle)
{
	struct rdma_ucm_create_id_resp resp = {0};
	struct rdma_ucm_join_mcast cmd = {.response = (uintptr_t)&resp,
		.uid = UID,
		.id = id,
		.addr_size = sizeof(struct sockaddr_in),
		.join_flags = flags};
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
	if (strchr(group, ':')) {
		inet_pton(AF_INET6, group, &in6.sin6_addr);
		memcpy(&cmd.addr, &in6, sizeof(in6));
		cmd.addr_size = sizeof(in6);
	} else {
		inet_pton(AF_INET, group, &in.sin_addr);
		memcpy(&cmd.addr, &in, sizeof(in));
	}
	int rc = command(channel, RDMA_USER_CM_CMD_JOIN_MCAST, &cmd, sizeof(cmd), sizeof(resp));
	*handle = resp.id;
	return rc;
}

static int leave(int fd, uint32_t handle, uint32_t *events)
{
	struct rdma_ucm_destroy_id_resp resp = {0};
	struct rdma_ucm_destroy_id cmd = {.response = (uintptr_t)&resp, .id = handle};
	int rc = command(fd, RDMA_USER_CM_CMD_LEAVE_MCAST, &cmd, sizeof(cmd), sizeof(resp));
	*events = resp.events_reported;
	return rc;
}

static int next_event(struct rdma_ucm_event_resp *resp)
{
	struct rdma_ucm_get_event cmd = {.response = (uintptr_t)resp};
	return command(channel, RDMA_USER_CM_CMD_GET_EVENT, &cmd, sizeof(cmd), sizeof(*resp));
}

static bool host_is_member(const char *group)
{
	uint32_t want;
	unsigned got;
	char line[256];
	bool found = false;
	assert_int_equal(inet_pton(AF_INET, group, &want), 1);
	FILE *f = fopen("/proc/net/igmp", "r");
	while (f && fgets(line, sizeof(line), f))
		found |= line[0] == '\t' && sscanf(line, " %x", &got) == 1 && got == want;
	if (f)
		fclose(f);
	return found;
}

static int open_channel(void **state)
{
	channel = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK);
	return channel < 0 ? -1 : 0;
}

static int close_channel(void **state) { return close(channel); }

static void a_full_member_is_one_until_it_leaves(void **state)
{
	struct rdma_ucm_event_resp ev;
	uint32_t id = create(PS_UDP), first, second, events;
	bind_loopback(id);
	assert_false(host_is_member(GROUP));
	assert_int_equal(join(id, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &first), 0);
	assert_int_equal(join(id, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &second), 0);
	assert_true(host_is_member(GROUP));
	assert_int_equal(next_event(&ev), 0);
	assert_int_equal(ev.event, JOINED);
	assert_int_equal(ev.uid, UID);
	assert_int_equal(ev.id, first);
	assert_int_equal(ev.param.ud.qp_num, 0xffffff);
	assert_int_equal(ev.param.ud.qkey, QKEY);
	assert_int_equal(ev.param.ud.ah_attr.is_global, 1);
	assert_int_equal(ev.param.ud.ah_attr.grh.sgid_index, 1);
	assert_memory_equal(ev.param.ud.ah_attr.grh.dgid + 12, "\xef\x07\x07\x50", 4);
	assert_int_equal(leave(channel, first, &events), 0);
	assert_int_equal(events, 1);
	assert_true(host_is_member(GROUP));
	assert_int_equal(leave(channel, second, &events), 0); /* and its event goes with it */
	assert_int_equal(events, 0);
	assert_int_equal(next_event(&ev), -EAGAIN);
	assert_false(host_is_member(GROUP));
	destroy(id);
}

static void a_send_only_member_is_none_of_igmp(void **state)
{
	struct rdma_ucm_event_resp ev;
	uint32_t id = create(PS_UDP), handle, events;
	bind_loopback(id);
	assert_int_equal(join(id, GROUP, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, &handle), 0);
	assert_false(host_is_member(GROUP));
	assert_int_equal(next_event(&ev), 0);
	assert_int_equal(ev.event, JOINED);
	assert_int_equal(leave(channel, handle, &events), 0);
	assert_int_equal(events, 1);
	destroy(id);
}

static void ids_and_channels_that_end_leave(void **state)
{
	uint32_t id = create(PS_UDP), handle, events;
	bind_loopback(id);
	assert_int_equal(join(id, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), 0);
	destroy(id);
	assert_false(host_is_member(GROUP));
	assert_int_equal(leave(channel, handle, &events), -ENOENT);
	id = create(PS_UDP);
	bind_loopback(id);
	assert_int_equal(join(id, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), 0);
	assert_true(host_is_member(GROUP));
	close_channel(NULL);
	assert_false(host_is_member(GROUP));
	assert_int_equal(open_channel(NULL), 0);
}

static void what_is_wrong_is_refused(void **state)
{
	uint32_t id = create(PS_UDP), tcp = create(PS_TCP), handle, events;
	int other = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK);
	assert_true(other >= 0);
	assert_int_equal(join(id, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), -EINVAL);
	bind_loopback(id);
	bind_loopback(tcp);
	assert_int_equal(join(tcp, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), -EINVAL);
	assert_int_equal(join(id, GROUP, 2, &handle), -EINVAL);
	assert_int_equal(join(id, GROUP, 0xffff, &handle), -EINVAL);
	assert_int_equal(join(id, "127.0.0.1", RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), -EINVAL);
	assert_int_equal(join(id, "0.0.0.0", RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), -EINVAL);
	assert_int_equal(join(id, "ff0e::7", RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), -EINVAL);
	assert_int_equal(leave(channel, 0, &events), -ENOENT);
	assert_int_equal(leave(channel, UINT32_MAX, &events), -ENOENT);
	assert_int_equal(join(id, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), 0);
	assert_int_equal(leave(other, handle, &events), -EINVAL); /* another channel's */
	assert_true(host_is_member(GROUP));
	assert_int_equal(leave(channel, handle, &events), 0);
	close(other);
	destroy(id);
	destroy(tcp);
}

static void joins_have_a_bound(void **state)
{
	enum { MORE_THAN_ALL = 1 << 15 };
	uint32_t id = create(PS_UDP), handle;
	int rc = 0, n = 0;
	bind_loopback(id);
	while (!rc && n < MORE_THAN_ALL) {
		rc = join(id, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle);
		n += !rc;
	}
	assert_int_equal(rc, -ENOMEM);
	print_message("# %d joins\n", n);
	destroy(id);
	assert_false(host_is_member(GROUP));
	id = create(PS_UDP); /* and all are free again */
	bind_loopback(id);
	assert_int_equal(join(id, GROUP, RDMA_MC_JOIN_FLAG_FULLMEMBER, &handle), 0);
	destroy(id);
}

int main(void)
{
	setenv("ROPEWAY_DEVICES", "lo",
		1); /* groups are joined on lo: beside others it is hidden */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_member_is_one_until_it_leaves),
		cmocka_unit_test(a_send_only_member_is_none_of_igmp),
		cmocka_unit_test(ids_and_channels_that_end_leave),
		cmocka_unit_test(what_is_wrong_is_refused),
		cmocka_unit_test(joins_have_a_bound),
	};
	return cmocka_run_group_tests_name("mcast_cm", tests, open_channel, close_channel);
}
