/* SPDX-License-Identifier: BSD-3-Clause */
/* rc_peer.c - one side of a plain RC connection, made over TCP, of which one side ends in the way
 * that it is told, and the other says what it learns, and when. No rdma_cm, no messaging library:
 * what a plain verbs program sees.
 *
 *   rc_peer serve ADDRESS PORT dies HOW | survives WHAT
 *   rc_peer connect=SERVER ADDRESS PORT dies HOW | survives WHAT
 *
 * ADDRESS is its own, of the device.
 *
 * HOW: wait (until a signal comes), exit, _exit, abort, segv, exec, fork (waits, with a child that
 * holds copies of everything), daemon (the child goes on, the parent has ended), close (in order,
 * and waits). WHAT: idle, posted (receives are posted), sent (a SEND was acknowledged, its
 * answer is waited for), sending (SENDs one after the other). The survivor prints a line for each
 * thing that it learns: milliseconds since the TCP connection broke, or (daemon) since it was made.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	BYTES = 4096,
	RECVS = 8,
	LIMIT_MS = 20000,
	LOOK_MS = 20, /* between two looks: 64 such processes at once share two cores */
};

struct card {
	uint32_t qpn, psn;
	uint8_t gid[16];
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t memory[BYTES];
static int gid_index, sock;
static struct card mine, theirs;

static void die(const char *what)
{
	fprintf(stderr, "rc_peer: %s: %s\n", what, strerror(errno));
	exit(2);
}

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The device and the index of the GID that is `address`. */
static void open_device(const char *address)
{
	int n;
	uint8_t want[16] = {[10] = 0xff, [11] = 0xff};
	if (inet_pton(AF_INET, address, want + 12) != 1)
		die(address);
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; list && i < n; i++) {
		ctx = ibv_open_device(list[i]);
		for (gid_index = 0; ctx && gid_index < 16; gid_index++) {
			union ibv_gid gid;
			if (!ibv_query_gid(ctx, 1, gid_index, &gid) && !memcmp(gid.raw, want, 16)) {
				memcpy(mine.gid, gid.raw, 16);
				ibv_free_device_list(list);
				return;
			}
		}
		if (ctx)
			ibv_close_device(ctx);
	}
	errno = ENODEV;
	die(address);
}

static void meet(bool serve, const char *address, const char *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	inet_pton(AF_INET, address, &a.sin_addr);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	if (serve) {
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, 1))
			die("listen");
		sock = accept4(s, NULL, NULL, SOCK_CLOEXEC);
		close(s);
	} else {
		for (int i = 0; i < 500 && connect(s, (struct sockaddr *)&a, sizeof(a)); i++)
			usleep(10000);
		sock = s;
	}
	if (sock < 0)
		die("accept");
	if (write(sock, &mine, sizeof(mine)) != sizeof(mine) ||
		recv(sock, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs))
		die("cards");
}

static void make_qp(void)
{
	pd = ibv_alloc_pd(ctx);
	cq = pd ? ibv_create_cq(ctx, 64, NULL, NULL, 0) : NULL;
	mr = cq ? ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE) : NULL;
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	qp = mr ? ibv_create_qp(pd, &init) : NULL;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	if (!qp || ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("QP");
	mine.qpn = qp->qp_num;
	mine.psn = (uint32_t)getpid() & 0xffffff;
}

static void connect_qp(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = theirs.qpn,
		.rq_psn = theirs.psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};
	attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
	memcpy(attr.ah_attr.grh.dgid.raw, theirs.gid, 16);
	if (ibv_modify_qp(qp, &attr,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.timeout = 20, /* 4.3 s each: minutes, if nobody says anything */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = mine.psn,
		.max_rd_atomic = 1};
	if (ibv_modify_qp(qp, &attr,
		    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

static void post_recv(void)
{
	struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	if (ibv_post_recv(qp, &wr, &bad))
		die("post_recv");
}

static void post_send(void)
{
	struct ibv_sge sge = {(uintptr_t)memory, 64, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	if (ibv_post_send(qp, &wr, &bad))
		die("post_send");
}

static void dies(const char *how)
{
	char c;
	for (int i = 0; i < RECVS; i++)
		post_recv();
	if (write(sock, "r", 1) != 1 || read(sock, &c, 1) != 1) /* ready; go */
		die("ready");
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	usleep(300000);
	if (!strcmp(how, "exit"))
		exit(0);
	if (!strcmp(how, "_exit"))
		_exit(0);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "segv"))
		raise(SIGSEGV);
	if (!strcmp(how, "exec"))
		execlp("sleep", "sleep", "30", NULL);
	if (!strcmp(how, "fork") && !fork())
		for (;;) {
			close(sock);
			sleep(30);
			_exit(0);
		}
	if (!strcmp(how, "daemon") && fork())
		_exit(0);
	if (!strcmp(how, "close")) {
		ibv_destroy_qp(qp);
		ibv_dereg_mr(mr);
		ibv_destroy_cq(cq);
		ibv_dealloc_pd(pd);
		ibv_close_device(ctx);
	}
	for (int left = 60000 / LOOK_MS; left > 0 && !strcmp(how, "daemon"); left--) {
		struct ibv_wc wc; /* it goes on */
		if (ibv_poll_cq(cq, 1, &wc) == 1)
			post_recv();
		usleep(LOOK_MS * 1000);
	}
	sleep(60);
}

static void say_event(double since)
{
	struct ibv_async_event ev;
	if (ibv_get_async_event(ctx, &ev))
		die("async event");
	printf("event %s %.0f\n", ibv_event_type_str(ev.event_type), now_ms() - since);
	ibv_ack_async_event(&ev);
}

static void survives(const char *what)
{
	struct ibv_wc wc;
	bool heard = false, flushed = false, wants_recv = strcmp(what, "idle") != 0;
	bool sending = !strcmp(what, "sending");
	char c;
	for (int i = 0; wants_recv && i < RECVS; i++)
		post_recv();
	if (read(sock, &c, 1) != 1 || write(sock, "g", 1) != 1)
		die("go");
	if (!strcmp(what, "sent") || sending)
		post_send();
	double began = now_ms(), since = began, end = began + LIMIT_MS;
	bool broken = false;
	while (now_ms() < end && !(heard && (flushed || !wants_recv))) {
		struct pollfd p[2] = {
			{.fd = sock, .events = POLLIN}, {.fd = ctx->async_fd, .events = POLLIN}};
		poll(p, 2, 0);
		if (!broken && p[0].revents) {
			broken = true;
			since = now_ms();
			printf("broken %.0f\n", since - began);
		}
		if (p[1].revents) {
			say_event(since);
			heard = true;
		}
		if (ibv_poll_cq(cq, 1, &wc) != 1) {
			usleep(LOOK_MS * 1000);
			continue;
		}
		if (wc.status == IBV_WC_SUCCESS) {
			if (sending)
				post_send();
			continue;
		}
		if (!flushed)
			printf("completion %s %.0f\n", ibv_wc_status_str(wc.status),
				now_ms() - since);
		flushed = true;
	}
	printf("%s\n", heard ? "heard" : "silent");
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	open_device(argv[2]);
	make_qp();
	bool serve = !strcmp(argv[1], "serve");
	if (!serve && strncmp(argv[1], "connect=", 8))
		return 2;
	meet(serve, serve ? argv[2] : argv[1] + 8, argv[3]);
	connect_qp();
	if (!strcmp(argv[4], "dies"))
		dies(argv[5]);
	else
		survives(argv[5]);
	return 0;
}
