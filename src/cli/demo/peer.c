/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - the two processes of a demo: a plain verbs program, that would do the same on a NIC.
 *
 *   receiver                                     sender
 *   open, PD, MR of the output file, CQ, QP      open, PD, MR of the input file, CQ, QP
 *   <------------------- hello: QPN, PSN, GID, MTU (and address, rkey of the file)
 *   ------------------->
 *   INIT -> RTR -> RTS                           INIT -> RTR -> RTS
 *   posts a receive, "ready" ------------------>
 *                                                RDMA WRITEs of 1 MiB, the last one with immediate
 *   sees the immediate in its own CQ, "bye" --->  has every completion
 *   <---------------------------------- "done": only now may the QPs go away
 *
 * The hello goes over a socket pair that the orchestrator made; two hosts would use TCP, as
 * rdma_server and rdma_client do. Every wait has a deadline, and the other side's end is seen as
 * the end of that socket.
 */
#include "cli/demo/demo.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, OUTSTANDING = 16, PORT = 1, BAR_CELLS = 30 };
enum { PACE_AFTER_NS = 20 * 1000 * 1000 };
/* The last resort against a call that does not return; the deadlines of waits are shorter, and tell
 * more. */
enum { SILENCE_S = 40 };
#define STALL_NS (15 * RPWI_NS_PER_S)

/* Between the peers: both are this program. */
struct hello {
	uint32_t qpn, psn, rkey;
	enum ibv_mtu mtu;
	uint64_t addr;
	union ibv_gid gid;
};

struct peer {
	bool sender, quiet;
	int talk, fd; /* the other peer, the file */
	struct ibv_context *ctx;
	struct ibv_port_attr port;
	struct cli_gid gid;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *file;
	uint64_t len;
	struct ibv_mr *mr;
	struct hello mine, theirs;
	uint64_t start_ns, beat_ns;
	unsigned quarter; /* of the progress, where it is not drawn */
};

/* ---- what is said ---- */

void rpwi_demo_step(const char *who, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("%s  %-9s %s\n", isatty(STDOUT_FILENO) ? "\r\033[K" : "", who, text);
	fflush(stdout);
}

#define step(...) \
	do { \
		alarm(SILENCE_S); \
		if (!p->quiet) \
			rpwi_demo_step(p->sender ? "sender" : "receiver", __VA_ARGS__); \
	} while (0)
/* Evaluates to -1, for `return fail(...)`. */
#define fail(...) \
	rpwi_cli_fail( \
		-1, p->sender ? "ropeway demo: sender" : "ropeway demo: receiver", __VA_ARGS__)

/* 0, or -1: a call has failed, with errno. */
static int need(const struct peer *p, bool ok, const char *call)
{
	return ok ? 0 : fail("%s: %s", call, strerror(errno));
}

/* A bar on a terminal; in a log, a line at each quarter. */
static void show_progress(struct peer *p, uint64_t moved)
{
	static const char full[] = "##############################",
			  empty[] = "..............................";
	int cells = (int)(moved * BAR_CELLS / p->len);
	unsigned quarter = (unsigned)(moved * 4 / p->len);
	uint64_t ns = rpwi_now_ns() - p->start_ns;
	char pace[32] = "";

	alarm(SILENCE_S);
	if (p->quiet)
		return;
	if (ns > PACE_AFTER_NS) /* the first sample is of no time at all */
		snprintf(pace, sizeof(pace), "  %.2f GB/s", (double)moved / (double)ns);
	if (isatty(STDOUT_FILENO))
		printf("\r  %-9s [%.*s%.*s] %3u%%%s%s", "", cells, full, BAR_CELLS - cells, empty,
			(unsigned)(moved * 100 / p->len), pace, moved == p->len ? "\n" : "");
	else if (quarter > p->quarter)
		printf("  %-9s %3u%% moved\n", "", quarter * 25);
	p->quarter = RPWI_MAX(quarter, p->quarter);
	fflush(stdout);
}

/* ---- the socket pair between the peers ---- */

static const char *other(const struct peer *p) { return p->sender ? "receiver" : "sender"; }

static int peer_send(const struct peer *p, const void *data, size_t len)
{
	if (send(p->talk, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		return fail("the %s is gone: its socket says: %s", other(p), strerror(errno));
	return 0;
}

static int peer_recv(const struct peer *p, void *data, size_t len, const char *what)
{
	struct pollfd pfd = {.fd = p->talk, .events = POLLIN};

	if (poll(&pfd, 1, (int)(STALL_NS / RPWI_NS_PER_MS)) <= 0)
		return fail("the %s has not sent its %s in %d s", other(p), what,
			(int)(STALL_NS / RPWI_NS_PER_S));
	if (recv(p->talk, data, len, 0) != (ssize_t)len)
		return fail("the %s left before it sent its %s", other(p), what);
	return 0;
}

static int exchange(struct peer *p)
{
	if (peer_send(p, &p->mine, sizeof(p->mine)) ||
		peer_recv(p, &p->theirs, sizeof(p->theirs), "hello"))
		return -1;
	step("sent the %s QPN 0x%06x, PSN 0x%06x and GID; got QPN 0x%06x, PSN 0x%06x", other(p),
		p->mine.qpn, p->mine.psn, p->theirs.qpn, p->theirs.psn);
	return 0;
}

/* ---- verbs objects ---- */

static struct ibv_device *find_device(struct ibv_device **list, const char *name)
{
	for (struct ibv_device **d = list; *d; d++)
		if (!strcmp(ibv_get_device_name(*d), name))
			return *d;
	return NULL;
}

static int open_device(struct peer *p, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device *dev = list ? find_device(list, name) : NULL;
	struct cli_gid gids[CLI_GIDS_MAX];
	char gid[CLI_GID_LEN];

	if (dev)
		p->ctx = ibv_open_device(dev);
	int err = errno;
	if (list)
		ibv_free_device_list(list);
	if (!dev)
		return fail("there is no device '%s'; `ropeway devices` lists them", name);
	if (!p->ctx)
		return fail("cannot open %s: %s; `ropeway devices` says why it cannot be used",
			name, strerror(err));
	err = ibv_query_port(p->ctx, PORT, &p->port);
	if (err)
		return fail("cannot query port %d of %s: %s", PORT, name, strerror(err));
	if (p->port.state != IBV_PORT_ACTIVE)
		return fail("port %d of %s is %s, not active", PORT, name,
			rpwi_cli_port_state(p->port.state));
	int count = rpwi_cli_gid_table(p->ctx, PORT, gids);
	int best = rpwi_cli_gid_pick(gids, count);
	if (best < 0)
		return fail("%s has no GID: does its interface have an address?", name);
	p->gid = gids[best];
	step("pid %d opened %s: port %s, MTU %u, GID %u %s (%s)", getpid(), name,
		rpwi_cli_port_state(p->port.state), rpwi_cli_mtu_bytes(p->port.active_mtu),
		p->gid.index, rpwi_cli_gid_text(&p->gid.gid, gid), rpwi_cli_gid_type(p->gid.type));
	return 0;
}

/* Map and register the file. Pages are made present first: the demo times RDMA, not page faults. */
static int register_file(struct peer *p)
{
	char size[CLI_SIZE_LEN];
	/* The sender only reads; but kernel rxe 6.1 pins pages for writing whatever the access, and
	 * refuses a read-only mapping with EFAULT. */
	void *map = mmap(NULL, p->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, p->fd, 0);
	/* What is only sent from needs no right; what the other side writes to needs both (IB
	 * 10.6.3.1). */
	int access = p->sender ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	if (need(p, map != MAP_FAILED, "cannot map the file"))
		return -1;
	p->file = map;
	p->pd = ibv_alloc_pd(p->ctx);
	if (need(p, p->pd, "ibv_alloc_pd"))
		return -1;
	p->mr = ibv_reg_mr(p->pd, p->file, p->len, access);
	if (need(p, p->mr, "ibv_reg_mr"))
		return -1;
	uint32_t key = p->sender ? p->mr->lkey : p->mr->rkey;
	step("mapped and registered its file: %s at %s, %s 0x%x", rpwi_cli_size(p->len, size),
		RPWI_AT(p->file), p->sender ? "lkey" : "rkey", key);
	return 0;
}

static int make_qp(struct peer *p)
{
	p->channel = p->sender ? NULL : ibv_create_comp_channel(p->ctx);
	if (need(p, p->sender || p->channel, "ibv_create_comp_channel"))
		return -1;
	p->cq = ibv_create_cq(p->ctx, OUTSTANDING + 1, NULL, p->channel, 0);
	if (need(p, p->cq, "ibv_create_cq"))
		return -1;
	struct ibv_qp_init_attr attr = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = OUTSTANDING,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	uint32_t psn;
	p->qp = ibv_create_qp(p->pd, &attr);
	if (need(p, p->qp, "ibv_create_qp") ||
		need(p, getrandom(&psn, sizeof(psn), 0) == sizeof(psn), "getrandom"))
		return -1;
	p->mine = (struct hello){.qpn = p->qp->qp_num,
		.psn = psn & 0xffffff,
		.rkey = p->mr->rkey,
		.mtu = p->port.active_mtu,
		.addr = (uintptr_t)p->file,
		.gid = p->gid.gid};
	return 0;
}

/* The three transitions of IB 10.3.1, with the attributes that each requires. */
static int modify(struct peer *p, struct ibv_qp_attr *attr, int mask, const char *state)
{
	int err = ibv_modify_qp(p->qp, attr, mask);

	if (!err)
		return 0;
	return fail("QP 0x%06x does not go to %s: %s%s", p->qp->qp_num, state, strerror(err),
		err == EADDRINUSE ? "; `ropeway devices` says who holds the port" : "");
}

static int connect_qp(struct peer *p)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = p->sender ? 0 : IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = p->theirs.qpn,
		.rq_psn = p->theirs.psn,
		.min_rnr_timer = 12,
		.path_mtu = RPWI_MIN(p->theirs.mtu, p->port.active_mtu),
		.ah_attr = {.is_global = 1,
			.port_num = PORT,
			.grh = {.dgid = p->theirs.gid,
				.sgid_index = (uint8_t)p->gid.index,
				.hop_limit = 1}},
	};
	/* 4.096 us * 2^14 = 67 ms, 7 retries: a dead peer is noticed in seconds. */
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
		.sq_psn = p->mine.psn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7};

	if (modify(p, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		    "INIT") ||
		modify(p, &rtr,
			IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			"RTR") ||
		modify(p, &rts,
			IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
			"RTS"))
		return -1;
	step("RC QP 0x%06x: RESET -> INIT -> RTR -> RTS, path MTU %u", p->qp->qp_num,
		rpwi_cli_mtu_bytes(rtr.path_mtu));
	return 0;
}

/* Accepts a half-made peer. */
static void peer_fini(struct peer *p)
{
	if (p->qp)
		ibv_destroy_qp(p->qp);
	if (p->cq)
		ibv_destroy_cq(p->cq);
	if (p->channel)
		ibv_destroy_comp_channel(p->channel);
	if (p->mr)
		ibv_dereg_mr(p->mr);
	if (p->pd)
		ibv_dealloc_pd(p->pd);
	if (p->file)
		munmap(p->file, p->len);
	if (p->ctx)
		ibv_close_device(p->ctx);
}

static int completion_failed(const struct peer *p, const struct ibv_wc *wc)
{
	const char *hint = "";

	if (wc->status == IBV_WC_RETRY_EXC_ERR)
		hint = p->sender ? ": the receiver no longer answers" : "";
	else if (wc->status == IBV_WC_REM_ACCESS_ERR)
		hint = ": the receiver refused the rkey, bounds or access";
	return fail("work request %" PRIu64 " failed with status %d, %s%s", wc->wr_id, wc->status,
		ibv_wc_status_str(wc->status), hint);
}

/* ---- sender ---- */

static int post_write(struct peer *p, uint64_t index, uint64_t chunks)
{
	uint64_t off = index * CHUNK;
	struct ibv_sge sge = {.addr = (uintptr_t)p->file + off,
		.length = (uint32_t)RPWI_MIN((uint64_t)CHUNK, p->len - off),
		.lkey = p->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = index,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {.remote_addr = p->theirs.addr + off, .rkey = p->theirs.rkey},
		};

	if (index + 1 == chunks) {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htonl((uint32_t)chunks);
	}
	int err = ibv_post_send(p->qp, &wr, &bad);

	return err ? fail("ibv_post_send of WRITE %" PRIu64 ": %s", index, strerror(err)) : 0;
}

/* Ten times a second: progress, and a sign of life to the receiver (which may be asleep: then it is
 * lost, not waited for). */
static int sender_heartbeat(struct peer *p, uint64_t now_ns, uint64_t bytes)
{
	if (now_ns - p->beat_ns < 100 * RPWI_NS_PER_MS)
		return 0;
	p->beat_ns = now_ns;
	show_progress(p, bytes);
	if (send(p->talk, "h", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
		return fail("the %s is gone: its socket says: %s", other(p), strerror(errno));
	return 0;
}

static int write_file(struct peer *p, uint64_t *elapsed_ns)
{
	uint64_t chunks = (p->len + CHUNK - 1) / CHUNK, posted = 0, done = 0;
	uint64_t last_done_ns = rpwi_now_ns();
	struct ibv_wc wc[OUTSTANDING];

	p->start_ns = p->beat_ns = last_done_ns;
	while (done < chunks) {
		for (; posted < chunks && posted - done < OUTSTANDING; posted++)
			if (post_write(p, posted, chunks))
				return -1;
		int n = ibv_poll_cq(p->cq, OUTSTANDING, wc);
		if (n < 0)
			return fail("ibv_poll_cq: %d", n);
		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				return completion_failed(p, &wc[i]);
		done += (uint64_t)n;
		uint64_t now_ns = rpwi_now_ns();
		if (n)
			last_done_ns = now_ns;
		else if (now_ns - last_done_ns > STALL_NS)
			return fail("no WRITE completed in %d s (%" PRIu64 " of %" PRIu64
				    " are done)",
				(int)(STALL_NS / RPWI_NS_PER_S), done, chunks);
		if (sender_heartbeat(p, now_ns, RPWI_MIN(done * CHUNK, p->len)))
			return -1;
	}
	*elapsed_ns = last_done_ns - p->start_ns;
	show_progress(p, p->len);
	return 0;
}

static int run_sender(struct peer *p, int result)
{
	uint64_t chunks = (p->len + CHUNK - 1) / CHUNK, elapsed_ns = 0;
	char c;

	if (peer_recv(p, &c, 1, "ready"))
		return -1;
	const char *of = chunks > 1 ? "1 MiB" : "the whole file";
	step("posts %" PRIu64
	     " RDMA WRITE%s of %s, %d outstanding, the last with immediate %" PRIu64,
		chunks, rpwi_cli_plural(chunks), of, (int)RPWI_MIN(chunks, (uint64_t)OUTSTANDING),
		chunks);
	if (write_file(p, &elapsed_ns) || peer_recv(p, &c, 1, "confirmation") ||
		peer_send(p, "d", 1))
		return -1;
	return need(p, write(result, &elapsed_ns, sizeof(elapsed_ns)) > 0, "the result");
}

/* ---- receiver ---- */

/* The sender's heartbeats; its end before the last WRITE is an error. 1 when one came. */
static int receiver_hear(const struct peer *p)
{
	char c[64];
	ssize_t n = recv(p->talk, c, sizeof(c), MSG_DONTWAIT);

	if (n > 0)
		return 1;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	return fail(
		"the sender left in the middle of the transfer; what has arrived is incomplete");
}

/* Sleeps until the CQ says something: the data itself is placed without this thread. */
static int await_immediate(struct peer *p, struct ibv_wc *wc)
{
	struct pollfd pfd[] = {
		{.fd = p->channel->fd, .events = POLLIN}, {.fd = p->talk, .events = POLLIN}};
	uint64_t heard_ns = rpwi_now_ns();

	for (;;) {
		int n = ibv_poll_cq(p->cq, 1, wc);
		if (n)
			return n < 0 ? fail("ibv_poll_cq: %d", n) : 0;
		if (poll(pfd, 2, 1000) < 0 && errno != EINTR)
			return fail("poll: %s", strerror(errno));
		if (pfd[0].revents) {
			struct ibv_cq *cq;
			void *cq_context;
			if (ibv_get_cq_event(p->channel, &cq, &cq_context))
				return fail("ibv_get_cq_event: %s", strerror(errno));
			ibv_ack_cq_events(cq, 1);
			if (ibv_req_notify_cq(p->cq, 0))
				return fail("ibv_req_notify_cq: %s", strerror(errno));
			continue;
		}
		int heard = pfd[1].revents ? receiver_hear(p) : 0;
		uint64_t now_ns = rpwi_now_ns();
		if (heard < 0)
			return -1;
		if (heard) {
			heard_ns = now_ns;
			alarm(SILENCE_S);
		} else if (now_ns - heard_ns > STALL_NS * 2)
			return fail("nothing heard from the sender in %d s",
				(int)(STALL_NS * 2 / RPWI_NS_PER_S));
	}
}

/* The QP stays until the sender has its last acknowledgement: it may have been lost, and then the
 * sender asks again (IB 9.9.2.4.2). */
static int await_done(const struct peer *p)
{
	char c = 0;

	while (c != 'd')
		if (peer_recv(p, &c, 1, "end of transfer"))
			return -1;
	return 0;
}

static int run_receiver(struct peer *p)
{
	/* takes the immediate; the data goes to the address in the WRITE */
	struct ibv_recv_wr *bad, wr = {.wr_id = 1};
	struct ibv_wc wc = {0};
	int err = ibv_post_recv(p->qp, &wr, &bad);

	if (err)
		return fail("ibv_post_recv: %s", strerror(err));
	err = ibv_req_notify_cq(p->cq, 0);
	if (err)
		return fail("ibv_req_notify_cq: %s", strerror(err));
	step("posted a receive for the immediate, and sleeps: the data needs no help from this "
	     "process");
	if (peer_send(p, "r", 1) || await_immediate(p, &wc))
		return -1;
	if (wc.status != IBV_WC_SUCCESS)
		return completion_failed(p, &wc);
	if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || !(wc.wc_flags & IBV_WC_WITH_IMM) ||
		ntohl(wc.imm_data) != (uint32_t)((p->len + CHUNK - 1) / CHUNK))
		return fail("unexpected completion: opcode %d, immediate %u", wc.opcode,
			ntohl(wc.imm_data));
	step("its CQ has the completion: immediate %u, so all data is there", ntohl(wc.imm_data));
	if (peer_send(p, "b", 1) || await_done(p))
		return -1;
	return 0;
}

static int run_peer(struct peer *p, const char *device, int result)
{
	if (open_device(p, device) || register_file(p) || make_qp(p) || exchange(p) ||
		connect_qp(p))
		return -1;
	return p->sender ? run_sender(p, result) : run_receiver(p);
}

/* argv: ROLE DEVICE BYTES ORCHESTRATOR-PID, three descriptors, "quiet" or "" */
int rpwi_cli_demo_peer(int argc, char **argv)
{
	struct peer p = {0};

	if (argc != 9 || rpwi_cli_parse_size(argv[3], &p.len))
		return rpwi_cli_fail(CLI_USAGE, "ropeway demo-peer",
			"this is a part of `ropeway demo`; run that instead");
	/* If the orchestrator is killed, so are we; it may have happened already. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != atoi(argv[4]))
		return CLI_FAILED;
	p.sender = !strcmp(argv[1], "sender");
	p.talk = atoi(argv[5]);
	p.fd = atoi(argv[6]);
	p.quiet = *argv[8];
	int ret = run_peer(&p, argv[2], atoi(argv[7]));
	peer_fini(&p);
	return ret ? CLI_FAILED : CLI_OK;
}
