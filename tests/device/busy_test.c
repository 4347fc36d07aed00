/* SPDX-License-Identifier: BSD-3-Clause */
/* busy_test.c - while packets come by a lane without a pause, those that come by UDP are found,
 * too, at each address of the device: here from a plain socket, which a lane cannot serve. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"
#include "wire/icrc.h"
#include "wire/packet.h"

/* FOUND_WITHIN: messages by the lane, each of which takes a few rounds of progress. */
enum { QKEY = 0x11111111, QUIET = 5000, FOUND_WITHIN = 2000, GRH = 40, LEN = 32 };

static struct ibv_qp *ud_make(struct pair *p, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = 1, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	struct ibv_qp *qp = ibv_create_qp(p->pd, &init);
	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
		0);
	a.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	return qp;
}

static void expect_one(struct pair *p, struct ibv_qp *qp)
{
	struct ibv_sge sge = {(uintptr_t)p->b.buf + PAIR_BUF / 2, GRH + LEN, p->b.mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}

/* One datagram from that address to itself, as a peer without a lane would send it. */
static void send_datagram(const char *at, uint32_t qpn, uint64_t seed)
{
	uint8_t out[RPWI_PACKET_MAX], payload[LEN];
	bool v6 = strchr(at, ':');
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr *sa = v6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
	socklen_t sl = v6 ? sizeof(six) : sizeof(four);
	assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, at,
				 v6 ? (void *)&six.sin6_addr : (void *)&four.sin_addr),
		1);
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0), one = IP_PMTUDISC_DO;
	assert_true(fd >= 0);
	if (!v6)
		setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &one, sizeof(one));
	assert_int_equal(bind(fd, sa, sl), 0);
	assert_int_equal(getsockname(fd, sa, &sl), 0);
	struct rpwi_flow flow = {.src.family = v6 ? 6 : 4,
		.sport = ntohs(v6 ? six.sin6_port : four.sin_port),
		.dport = RPWI_UDP_PORT};
	memcpy(flow.src.bytes, v6 ? (void *)&six.sin6_addr : (void *)&four.sin_addr, v6 ? 16 : 4);
	flow.dst = flow.src;
	struct rpwi_pkt h = {.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = qpn,
		.sqpn = 0x1234,
		.qkey = QKEY,
		.payload_len = LEN};
	size_t n = rpwi_pkt_encode(&h, out);
	const struct rpwi_iov part = {payload, LEN};
	pattern_fill(payload, LEN, seed);
	rpwi_put_le32(out + n + LEN, rpwi_icrc(&flow, 0, out, n, &part, 1, 0));
	memcpy(out + n, payload, LEN);
	if (v6)
		six.sin6_port = htons(RPWI_UDP_PORT);
	else
		four.sin_port = htons(RPWI_UDP_PORT);
	assert_true(sendto(fd, out, n + LEN + 4, 0, sa, sl) > 0);
	close(fd);
}

static void one_message(struct pair *p, uint64_t seed)
{
	pattern_fill(p->a.buf, 64, seed);
	assert_int_equal(
		pair_send(&p->a, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)p->b.buf, p->b.mr->rkey), 0);
	assert_int_equal(side_done(&p->a), IBV_WC_SUCCESS);
	assert_true(pattern_holds(p->b.buf, 64, seed));
}

static bool has_ipv6(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof(a));
	if (!has)
		fprintf(stderr, "SKIPPED: no IPv6 here (%s): IPv4 alone\n", strerror(errno));
	if (fd >= 0)
		close(fd);
	return has;
}

static void test_sockets_are_not_forgotten(void **state)
{
	static const char *const addresses[] = {"127.0.0.1", "::1"};
	unsigned count = has_ipv6() ? 2 : 1;
	struct pair p;
	struct ibv_wc wc;
	uint64_t seed = 0;
	pair_make(&p, 14, 7, 7);
	struct ibv_cq *cq = ibv_create_cq(p.ctx, 16, NULL, NULL, 0);
	struct ibv_qp *qp = ud_make(&p, cq);
	for (unsigned round = 0; round < 6; round++) {
		IN_CASE("round", round);
		for (unsigned i = 0; i < QUIET; i++)
			one_message(&p, ++seed);
		expect_one(&p, qp);
		send_datagram(addresses[round % count], qp->qp_num, round + 1);
		/* No other poll than those of the lane's traffic before it is looked for. */
		for (unsigned i = 0; i < FOUND_WITHIN; i++)
			one_message(&p, ++seed);
		assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, GRH + LEN);
		assert_true(pattern_holds(p.b.buf + PAIR_BUF / 2 + GRH, LEN, round + 1));
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sockets_are_not_forgotten)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
