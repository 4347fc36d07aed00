/* SPDX-License-Identifier: BSD-3-Clause */
/* mcast_test.c - multicast groups: who is attached gets each datagram once, nobody else does; what
 * is not as it should be is dropped; the process is a member of the IP group just as long as
 * somebody is attached. On the loopback device; forged datagrams come from a plain UDP socket. */
#include <errno.h>
#include <sys/wait.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"
#include "wire/icrc.h"
#include "wire/packet.h"

enum { QKEY = 0x11112222, GRH = 40, BYTES = 700, SLOT = 4096, RECVS = 16, ALL_QPS = 0xffffff };
#define GROUP "239.7.7.70"

struct member {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf; /* RECVS slots of SLOT bytes, and one to send from */
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;

static union ibv_gid gid_of(const char *group)
{
	union ibv_gid g = {.raw = {[10] = 0xff, [11] = 0xff}};
	assert_int_equal(inet_pton(AF_INET, group, g.raw + 12), 1);
	return g;
}

static void post(struct member *m, uint64_t slot)
{
	struct ibv_sge sge = {(uintptr_t)(m->buf + slot * SLOT), SLOT, m->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
	assert_int_equal(ibv_post_recv(m->qp, &wr, &bad), 0);
}

static void make(struct member *m, uint32_t create_flags)
{
	m->buf = calloc(RECVS + 1, SLOT);
	m->mr = ibv_reg_mr(pd, m->buf, (size_t)(RECVS + 1) * SLOT, IBV_ACCESS_LOCAL_WRITE);
	m->cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex init = {.send_cq = m->cq,
		.recv_cq = m->cq,
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = pd,
		.create_flags = create_flags};
	m->qp = ibv_create_qp_ex(ctx, &init);
	assert_non_null(m->qp);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	assert_int_equal(ibv_modify_qp(m->qp, &a,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		0);
	a.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(m->qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(m->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	for (uint64_t i = 0; i < RECVS; i++)
		post(m, i);
}

static void drop(struct member *m)
{
	assert_int_equal(ibv_destroy_qp(m->qp), 0);
	assert_int_equal(ibv_destroy_cq(m->cq), 0);
	assert_int_equal(ibv_dereg_mr(m->mr), 0);
	free(m->buf);
}

static int attach(struct member *m, const char *group)
{
	union ibv_gid g = gid_of(group);
	return ibv_attach_mcast(m->qp, &g, 0);
}

static int detach(struct member *m, const char *group)
{
	union ibv_gid g = gid_of(group);
	return ibv_detach_mcast(m->qp, &g, 0);
}

static struct ibv_ah *ah_to(const char *group)
{
	struct ibv_ah_attr a = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = gid_of(group), .sgid_index = 1, .hop_limit = 7}};
	struct ibv_ah *ah = ibv_create_ah(pd, &a);
	assert_non_null(ah);
	return ah;
}

/* One datagram of a pattern; its completion is waited for, and whether others came before it is
 * kept for take(). */
static void send_to(struct member *m, const char *group, uint64_t seed)
{
	struct ibv_ah *ah = ah_to(group);
	uint8_t *at = m->buf + RECVS * SLOT;
	pattern_fill(at, BYTES, seed);
	struct ibv_sge sge = {(uintptr_t)at, BYTES, m->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.wr_id = 1000,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND_WITH_IMM,
			.imm_data = htonl((uint32_t)seed),
			.wr.ud = {.ah = ah, .remote_qpn = ALL_QPS, .remote_qkey = QKEY}};
	assert_int_equal(ibv_post_send(m->qp, &wr, &bad), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

/* Of its send completions and receptions within the time: one reception, or none. */
static bool take(struct member *m, struct ibv_wc *wc, int ms)
{
	while (pair_poll(m->cq, wc, ms)) {
		assert_int_equal(wc->status, IBV_WC_SUCCESS);
		if (wc->opcode == IBV_WC_RECV)
			return true;
	}
	return false;
}

static void gets(struct member *m, uint64_t seed, uint32_t from_qpn)
{
	struct ibv_wc wc;
	assert_true(take(m, &wc, 5000));
	const uint8_t *at = m->buf + wc.wr_id * SLOT, *ip = at + GRH - 20;
	assert_int_equal(wc.byte_len, GRH + BYTES);
	assert_true(wc.wc_flags & IBV_WC_GRH);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), seed);
	assert_true(pattern_holds(at + GRH, BYTES, seed));
	assert_int_equal(wc.src_qp, from_qpn);
	assert_int_equal(ip[8], 7); /* the hop limit of its AH */
	assert_memory_equal(ip + 12, "\x7f\x00\x00\x01", 4);
	union ibv_gid g = gid_of(GROUP);
	assert_memory_equal(ip + 16, g.raw + 12, 4);
	post(m, wc.wr_id);
}

static void gets_nothing(struct member *m)
{
	struct ibv_wc wc;
	assert_false(take(m, &wc, 50));
}

/* Is this host a member on lo (proc_net_igmp: the group as a little-endian number)? */
static bool host_is_member(const char *group)
{
	uint32_t want;
	char line[256];
	bool found = false, lo = false;
	assert_int_equal(inet_pton(AF_INET, group, &want), 1);
	FILE *f = fopen("/proc/net/igmp", "r");
	while (f && fgets(line, sizeof(line), f)) {
		unsigned got;
		if (line[0] != '\t')
			lo = strstr(line, "lo ") || strstr(line, "lo\t") || strstr(line, "lo:");
		else if (lo && sscanf(line, " %x", &got) == 1)
			found |= got == want;
	}
	if (f)
		fclose(f);
	return found;
}

static int open_all(void **state)
{
	ctx = pair_open_loopback();
	pd = ibv_alloc_pd(ctx);
	return pd ? 0 : -1;
}

static int close_all(void **state)
{
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	return 0;
}

/* ---- who gets what ---- */

static void each_attached_qp_gets_each_datagram_once(void **state)
{
	struct member a, b, c;
	make(&a, 0);
	make(&b, 0);
	make(&c, 0);
	assert_int_equal(attach(&a, GROUP), 0);
	assert_int_equal(attach(&b, GROUP), 0);
	assert_int_equal(attach(&b, GROUP), 0); /* and that is no second attachment */
	for (uint64_t seed = 1; seed <= 40; seed++) {
		IN_CASE("message", seed);
		send_to(&a, GROUP, seed);
		gets(&a, seed, a.qp->qp_num); /* its own, as on rxe and NICs */
		gets(&b, seed, a.qp->qp_num);
	}
	send_to(&c, GROUP, 99); /* a sender need not be attached */
	gets(&a, 99, c.qp->qp_num);
	gets(&b, 99, c.qp->qp_num);
	gets_nothing(&a);
	gets_nothing(&b);
	gets_nothing(&c);
	assert_int_equal(detach(&a, GROUP), 0);
	send_to(&c, GROUP, 100);
	gets(&b, 100, c.qp->qp_num);
	gets_nothing(&a);
	assert_int_equal(detach(&b, GROUP), 0);
	send_to(&c, GROUP, 101);
	gets_nothing(&b);
	drop(&a);
	drop(&b);
	drop(&c);
}

static void groups_are_apart(void **state)
{
	struct member a, b;
	make(&a, 0);
	make(&b, 0);
	assert_int_equal(attach(&a, "239.7.7.71"), 0);
	assert_int_equal(attach(&b, GROUP), 0);
	assert_int_equal(attach(&b, "239.7.7.72"), 0);
	send_to(&a, GROUP, 5);
	gets(&b, 5, a.qp->qp_num);
	gets_nothing(&a);
	gets_nothing(&b);
	assert_int_equal(detach(&a, "239.7.7.71"), 0);
	assert_int_equal(detach(&b, GROUP), 0);
	assert_int_equal(detach(&b, "239.7.7.72"), 0);
	drop(&a);
	drop(&b);
}

static void a_qp_that_blocks_its_own_gets_only_others(void **state)
{
	struct member a, b;
	make(&a, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
	make(&b, 0);
	assert_int_equal(attach(&a, GROUP), 0);
	assert_int_equal(attach(&b, GROUP), 0);
	send_to(&a, GROUP, 6);
	gets(&b, 6, a.qp->qp_num);
	gets_nothing(&a);
	send_to(&b, GROUP, 7);
	gets(&a, 7, b.qp->qp_num);
	gets(&b, 7, b.qp->qp_num);
	assert_int_equal(detach(&a, GROUP), 0);
	assert_int_equal(detach(&b, GROUP), 0);
	drop(&a);
	drop(&b);
}

/* ---- what is not as it should be ---- */

/* `opcode`: in the place of the right one, unless it is 0. */
static void forge_as(
	const char *to, const struct rpwi_pkt *head, uint8_t opcode, uint32_t icrc_xor, size_t cut)
{
	uint8_t out[RPWI_PACKET_MAX], evil[64];
	struct rpwi_pkt p = *head;
	struct sockaddr_in src = {.sin_family = AF_INET},
			   dst = {.sin_family = AF_INET, .sin_port = htons(RPWI_UDP_PORT)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), df = IP_PMTUDISC_DO;
	pattern_fill(evil, sizeof(evil), 666);
	inet_pton(AF_INET, "127.0.0.1", &src.sin_addr);
	inet_pton(AF_INET, to, &dst.sin_addr);
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &df, sizeof(df)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&src, sizeof(src)), 0);
	socklen_t sl = sizeof(src);
	getsockname(fd, (struct sockaddr *)&src, &sl);
	struct rpwi_flow flow = {.src.family = 4,
		.dst.family = 4,
		.sport = ntohs(src.sin_port),
		.dport = RPWI_UDP_PORT};
	memcpy(flow.src.bytes, &src.sin_addr, 4);
	memcpy(flow.dst.bytes, &dst.sin_addr, 4);
	p.payload_len = sizeof(evil);
	size_t n = rpwi_pkt_encode(&p, out);
	out[0] = opcode ? opcode : out[0];
	struct rpwi_iov part = {evil, sizeof(evil)};
	uint32_t icrc = rpwi_icrc(&flow, 0, out, n, &part, 1, 0) ^ icrc_xor;
	memcpy(out + n, evil, sizeof(evil));
	rpwi_put_le32(out + n + sizeof(evil), icrc);
	n += sizeof(evil) + RPWI_ICRC_LEN;
	assert_true(sendto(fd, out, n - cut, 0, (struct sockaddr *)&dst, sizeof(dst)) > 0);
	close(fd);
}

static void forge(const char *to, const struct rpwi_pkt *head, uint32_t icrc_xor, size_t cut)
{
	forge_as(to, head, 0, icrc_xor, cut);
}

static struct rpwi_pkt good(void)
{
	return (struct rpwi_pkt){.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
		.migreq = true,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = ALL_QPS,
		.qkey = QKEY,
		.sqpn = 0x123456};
}

static void what_is_wrong_is_dropped(void **state)
{
	struct member a;
	struct ibv_wc wc;
	make(&a, 0);
	assert_int_equal(attach(&a, GROUP), 0);
	struct rpwi_pkt p = good();
	forge(GROUP, &p, 0, 0); /* this program's forgery is good otherwise */
	assert_true(take(&a, &wc, 5000));
	assert_int_equal(wc.src_qp, 0x123456);
	assert_int_equal(wc.byte_len, GRH + 64);
	post(&a, wc.wr_id);
	p.dqpn = a.qp->qp_num; /* its own number, but to the group */
	forge(GROUP, &p, 0, 0);
	p.dqpn = 1;
	forge(GROUP, &p, 0, 0);
	p = good(); /* the group's number, but to a host */
	forge("127.0.0.1", &p, 0, 0);
	p.qkey++;
	forge(GROUP, &p, 0, 0);
	p = good();
	p.pkey = 0x1234;
	forge(GROUP, &p, 0, 0);
	p = good();
	forge(GROUP, &p, 1, 0);
	forge(GROUP, &p, 0x80000000, 0);
	for (size_t cut = 1; cut < 64 + 8 + 12; cut += 5)
		forge(GROUP, &p, 0, cut);
	static const uint8_t opcodes[] = {RPWI_SVC_RC | RPWI_OP_SEND_ONLY,
		RPWI_SVC_RC | RPWI_OP_WRITE_ONLY, RPWI_SVC_RC | RPWI_OP_ACK,
		RPWI_SVC_UC | RPWI_OP_SEND_ONLY, RPWI_SVC_UD | RPWI_OP_SEND_FIRST,
		RPWI_SVC_UD | RPWI_OP_WRITE_ONLY, RPWI_SVC_UD | RPWI_OP_READ_REQ, 0xff};
	for (size_t i = 0; i < sizeof(opcodes); i++) {
		p = good();
		forge_as(GROUP, &p, opcodes[i], 0, 0);
	}
	gets_nothing(&a);
	send_to(&a, GROUP, 8); /* and the group lives on */
	gets(&a, 8, a.qp->qp_num);
	gets_nothing(&a);
	assert_int_equal(detach(&a, GROUP), 0);
	drop(&a);
}

/* ---- what is answered ---- */

static void wrong_calls_are_answered_as_by_the_kernel(void **state)
{
	struct pair p;
	struct member a;
	union ibv_gid group = gid_of(GROUP), host = gid_of("127.0.0.1");
	make(&a, 0);
	pair_make(&p, 14, 7, 7);
	assert_int_equal(ibv_attach_mcast(p.a.qp, &group, 0), EINVAL);
	assert_int_equal(ibv_attach_mcast(a.qp, &host, 0), EINVAL);
	assert_int_equal(detach(&a, GROUP), EINVAL);
	assert_int_equal(attach(&a, GROUP), 0);
	assert_int_equal(detach(&a, "239.7.7.71"), EINVAL);
	assert_int_equal(ibv_destroy_qp(a.qp), EBUSY);
	assert_int_equal(detach(&a, GROUP), 0);
	assert_int_equal(detach(&a, GROUP), EINVAL);
	/* only UD sends to a group */
	struct ibv_qp_init_attr init = {
		.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp *rc = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	assert_int_equal(
		ibv_modify_qp(rc, &attr,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = ALL_QPS,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = group, .sgid_index = 1, .hop_limit = 1}}};
	assert_int_equal(
		ibv_modify_qp(rc, &attr,
			IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		EINVAL);
	assert_int_equal(ibv_destroy_qp(rc), 0);
	pair_free(&p);
	drop(&a);
}

static void groups_and_attachments_have_the_bounds_that_the_device_tells(void **state)
{
	struct ibv_device_attr attr;
	struct member a;
	char text[32];
	assert_int_equal(ibv_query_device(ctx, &attr), 0);
	assert_true(attr.max_mcast_grp > 0 && attr.max_mcast_qp_attach > 0);
	assert_int_equal(
		attr.max_total_mcast_qp_attach, attr.max_mcast_grp * attr.max_mcast_qp_attach);
	make(&a, 0);
	for (int i = 0; i <= attr.max_mcast_grp; i++) {
		snprintf(text, sizeof(text), "239.8.%d.%d", i / 250, i % 250);
		assert_int_equal(attach(&a, text), i < attr.max_mcast_grp ? 0 : ENOMEM);
	}
	for (int i = 0; i < attr.max_mcast_grp; i++) {
		snprintf(text, sizeof(text), "239.8.%d.%d", i / 250, i % 250);
		assert_int_equal(detach(&a, text), 0);
	}
	struct ibv_qp_init_attr init = {
		.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_UD, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp **qps = calloc((size_t)attr.max_mcast_qp_attach + 1, sizeof(struct ibv_qp *));
	union ibv_gid group = gid_of(GROUP);
	for (int i = 0; i <= attr.max_mcast_qp_attach; i++) {
		qps[i] = ibv_create_qp(pd, &init);
		assert_non_null(qps[i]);
		assert_int_equal(ibv_attach_mcast(qps[i], &group, 0),
			i < attr.max_mcast_qp_attach ? 0 : ENOMEM);
	}
	for (int i = 0; i <= attr.max_mcast_qp_attach; i++) {
		if (i < attr.max_mcast_qp_attach)
			assert_int_equal(ibv_detach_mcast(qps[i], &group, 0), 0);
		assert_int_equal(ibv_destroy_qp(qps[i]), 0);
	}
	free(qps);
	assert_false(host_is_member(GROUP));
	drop(&a);
}

/* ---- membership, and processes ---- */

static void the_host_is_a_member_while_a_qp_is_attached(void **state)
{
	struct member a, b;
	make(&a, 0);
	make(&b, 0);
	assert_false(host_is_member(GROUP));
	assert_int_equal(attach(&a, GROUP), 0);
	assert_int_equal(attach(&b, GROUP), 0);
	assert_true(host_is_member(GROUP));
	/* a child has copies of the sockets, and holds nothing by them */
	int hold[2];
	char byte;
	assert_int_equal(pipe(hold), 0);
	pid_t child = fork();
	if (!child) {
		close(hold[1]);
		_exit(read(hold[0], &byte, 1) != 0);
	}
	assert_int_equal(detach(&a, GROUP), 0);
	assert_true(host_is_member(GROUP));
	assert_int_equal(detach(&b, GROUP), 0);
	assert_false(host_is_member(GROUP));
	close(hold[0]);
	close(hold[1]);
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	drop(&a);
	drop(&b);
}

/* In a child, which leaves behind what nobody can destroy after the context. */
static void a_context_that_is_closed_leaves_its_groups(void **state)
{
#ifdef __SANITIZE_THREAD__
	print_message("# SKIPPED: ThreadSanitizer ends a forked child that starts a thread\n");
	skip();
#endif
	int status = -1;
	pid_t child = fork();
	if (!child) {
		struct member a;
		open_all(NULL);
		make(&a, 0);
		bool joined = !attach(&a, GROUP) && host_is_member(GROUP);
		bool closed = !ibv_close_device(ctx);
		_exit(!joined || !closed || host_is_member(GROUP));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* In the child: a device of its own. 0: it got both datagrams, each once. */
static int child_main(int from_parent, int to_parent)
{
	struct member m;
	char byte = 0;
	open_all(NULL);
	make(&m, 0);
	if (attach(&m, GROUP) || write(to_parent, &byte, 1) != 1 ||
		read(from_parent, &byte, 1) != 1)
		return 2;
	struct ibv_wc wc;
	for (uint64_t seed = 20; seed < 22; seed++) {
		if (!take(&m, &wc, 5000))
			return 3;
		if (!pattern_holds(m.buf + wc.wr_id * SLOT + GRH, BYTES, seed))
			return 4;
	}
	if (take(&m, &wc, 100))
		return 5;
	/* killed as a member: the kernel ends it */
	return write(to_parent, &byte, 1) == 1 ? 0 : 6;
}

static void processes_get_copies_of_their_own(void **state)
{
#ifdef __SANITIZE_THREAD__
	print_message("# SKIPPED: ThreadSanitizer ends a forked child that starts a thread\n");
	skip();
#endif
	enum { CHILDREN = 3 };
	struct member a;
	pid_t pid[CHILDREN];
	int to[CHILDREN][2], from[CHILDREN][2];
	char byte = 0;
	make(&a, 0);
	assert_int_equal(attach(&a, GROUP), 0);
	for (int i = 0; i < CHILDREN; i++) {
		assert_int_equal(pipe(to[i]) | pipe(from[i]), 0);
		pid[i] = fork();
		if (!pid[i])
			_exit(child_main(to[i][0], from[i][1]));
		close(to[i][0]);
		close(from[i][1]); /* so that the end of a child is seen */
		assert_int_equal(read(from[i][0], &byte, 1), 1);
	}
	send_to(&a, GROUP, 20);
	send_to(&a, GROUP, 21);
	gets(&a, 20, a.qp->qp_num);
	gets(&a, 21, a.qp->qp_num);
	for (int i = 0; i < CHILDREN; i++)
		assert_int_equal(write(to[i][1], &byte, 1), 1);
	for (int i = 0; i < CHILDREN; i++) {
		int status = -1;
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
		close(to[i][1]);
		close(from[i][0]);
	}
	gets_nothing(&a);
	assert_int_equal(detach(&a, GROUP), 0);
	assert_false(host_is_member(GROUP));
	drop(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_attached_qp_gets_each_datagram_once),
		cmocka_unit_test(groups_are_apart),
		cmocka_unit_test(a_qp_that_blocks_its_own_gets_only_others),
		cmocka_unit_test(what_is_wrong_is_dropped),
		cmocka_unit_test(wrong_calls_are_answered_as_by_the_kernel),
		cmocka_unit_test(groups_and_attachments_have_the_bounds_that_the_device_tells),
		cmocka_unit_test(the_host_is_a_member_while_a_qp_is_attached),
		cmocka_unit_test(a_context_that_is_closed_leaves_its_groups),
		cmocka_unit_test(processes_get_copies_of_their_own),
	};
	return cmocka_run_group_tests_name("mcast", tests, open_all, close_all);
}
