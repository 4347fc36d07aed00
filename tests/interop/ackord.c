/* SPDX-License-Identifier: BSD-3-Clause */
/* ackord.c - does the completion of a SEND come before that of the reply to it? RC ping-pong, one
 * CQ on each side, polled for one completion at a time.
 *
 *   ackord -d DEVICE -g GID_INDEX -p TCP_PORT [-n ROUNDS] [-a] [SERVER_ADDRESS]      -b instead of
 *   an address: both sides, in two processes
 *
 * InfiniBand allows either order, but NICs and rxe acknowledge at once, and programs rely on it.
 * Exit status 1 when on this side a hundredth or more came the other way round, in any of the
 * sizes. -a prints the counts only (for comparison). Pure verbs: the same binary runs on rxe, on a
 * NIC and on the software device.
 */
#include <getopt.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BUF = 1 << 16, RECVS = 2, WAIT_S = 40 };
static const uint32_t sizes[] = {1, 0, 64, 1024, 4100, 20000, 40000};

struct hello {
	uint32_t qpn, psn;
	uint8_t gid[16];
};

static struct side {
	const char *device, *port, *server;
	int gid_index, rounds;
	bool only_count;
	struct ibv_context *ctx;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	/* completions seen; SENDs of which the reply was seen first */
	unsigned sent, received, late;
	unsigned posted, expected; /* SENDs; messages that must have come before the next one */
} s = {.port = "18520", .rounds = 500};

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(2);
}

static int tcp_to_peer(void)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM,
				.ai_family = AF_INET,
				.ai_flags = s.server ? 0 : AI_PASSIVE},
			*ai;
	need(!getaddrinfo(s.server, s.port, &hint, &ai), "getaddrinfo");
	for (int i = 0;; i++) {
		int fd = socket(ai->ai_family, SOCK_STREAM, 0), on = 1;
		if (!s.server) {
			setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
			need(!bind(fd, ai->ai_addr, ai->ai_addrlen) && !listen(fd, 1), "listen");
			int in = accept(fd, NULL, NULL);
			need(in >= 0, "accept");
			close(fd);
			freeaddrinfo(ai);
			return in;
		}
		if (!connect(fd, ai->ai_addr, ai->ai_addrlen)) {
			freeaddrinfo(ai);
			return fd;
		}
		need(i < 100, "connect");
		close(fd);
		usleep(100000);
	}
}

static void exchange(int fd, void *mine, void *theirs, size_t n)
{
	need(write(fd, mine, n) == (ssize_t)n, "write");
	for (size_t got = 0; got < n;) {
		ssize_t k = read(fd, (char *)theirs + got, n - got);
		need(k > 0, "read");
		got += (size_t)k;
	}
}

static void make_qp(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n && !s.ctx; i++)
		if (!s.device || !strcmp(ibv_get_device_name(list[i]), s.device))
			s.ctx = ibv_open_device(list[i]);
	need(s.ctx, "the device");
	struct ibv_pd *pd = ibv_alloc_pd(s.ctx);
	s.buf = calloc(1, BUF);
	s.mr = ibv_reg_mr(pd, s.buf, BUF, IBV_ACCESS_LOCAL_WRITE);
	s.cq = ibv_create_cq(s.ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = s.cq,
		.recv_cq = s.cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 4,
			.max_recv_wr = RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	s.qp = ibv_create_qp(pd, &init);
	need(s.mr && s.cq && s.qp, "a queue pair");
}

static void connect_qp(int fd)
{
	struct hello mine = {.qpn = s.qp->qp_num, .psn = (uint32_t)time(NULL) & 0xffffff}, peer;
	need(!ibv_query_gid(s.ctx, 1, s.gid_index, (union ibv_gid *)mine.gid), "ibv_query_gid");
	exchange(fd, &mine, &peer, sizeof(mine));
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	need(!ibv_modify_qp(s.qp, &a,
		     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		"INIT");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer.qpn,
		.rq_psn = peer.psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.sgid_index = (uint8_t)s.gid_index, .hop_limit = 64}}};
	memcpy(a.ah_attr.grh.dgid.raw, peer.gid, 16);
	need(!ibv_modify_qp(s.qp, &a,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		"RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.sq_psn = mine.psn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1};
	need(!ibv_modify_qp(s.qp, &a,
		     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
		"RTS");
}

static void post_recv(void)
{
	struct ibv_sge sge = {.addr = (uintptr_t)s.buf, .length = BUF, .lkey = s.mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	need(!ibv_post_recv(s.qp, &wr, &bad), "ibv_post_recv");
}

static void post_send(uint32_t size)
{
	struct ibv_sge sge = {.addr = (uintptr_t)s.buf, .length = size, .lkey = s.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	need(!ibv_post_send(s.qp, &wr, &bad), "ibv_post_send");
	s.posted++;
}

/* Until all that were posted are complete, and so many messages have come as are expected. */
static void catch_up(void)
{
	time_t end = time(NULL) + WAIT_S;
	while (s.sent < s.posted || s.received < s.expected) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(s.cq, 1, &wc);
		if (!n) {
			need(time(NULL) < end, "a completion");
			continue;
		}
		need(n == 1 && wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		if (wc.opcode == IBV_WC_SEND) {
			s.sent++;
			continue;
		}
		s.received++;
		s.late += s.sent < s.posted;
		post_recv();
	}
}

/* One size. The client sends first, so its n-th SEND is answered by the n-th message that comes;
 * the server's n-th by the one after. */
static bool ping_pong(uint32_t size)
{
	s.late = 0;
	for (int i = 0; i < s.rounds; i++) {
		if (s.server)
			post_send(size);
		s.expected++;
		catch_up();
		if (!s.server)
			post_send(size);
	}
	catch_up();
	bool good = s.late * 100 < (unsigned)s.rounds;
	printf("%s, %u bytes: of %d SENDs %u completed after the reply\n",
		s.server ? "client" : "server", size, s.rounds, s.late);
	return good || s.only_count;
}

static int run(void)
{
	char word[2];
	bool good = true;
	int fd = tcp_to_peer();
	make_qp();
	connect_qp(fd);
	for (int i = 0; i < RECVS; i++)
		post_recv();
	exchange(fd, "r", word, 1); /* both have receives posted */
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		good &= ping_pong(sizes[i]);
	exchange(fd, "e", word, 1);
	close(fd);
	return good ? 0 : 1;
}

int main(int argc, char **argv)
{
	bool both = false;
	int o, status = 0;
	while ((o = getopt(argc, argv, "d:g:p:n:ab")) != -1) {
		if (o == 'd')
			s.device = optarg;
		else if (o == 'g')
			s.gid_index = atoi(optarg);
		else if (o == 'p')
			s.port = optarg;
		else if (o == 'n')
			s.rounds = atoi(optarg);
		else if (o == 'a')
			s.only_count = true;
		else if (o == 'b')
			both = true;
		else
			return 2;
	}
	s.server = argv[optind];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!both)
		return run();
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (!pid)
		exit(run());
	s.server = "127.0.0.1";
	int rc = run();
	need(waitpid(pid, &status, 0) == pid, "waitpid");
	return rc ? rc : WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
