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
#include <endian.h>
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
#include <sys/stat.h>
#include <unistd.h>

enum { HELLO_MAGIC = 0x72707764, HELLO_VERSION = 1, CHUNK = 1 << 20, OUTSTANDING = 16, PORT = 1 };

/* On the wire between the peers: network order. */
struct hello {
	uint32_t magic, version;
	uint32_t qpn, psn, mtu; /* mtu: enum ibv_mtu */
	uint32_t rkey;
	uint64_t addr, len;
	uint8_t gid[16];
};
_Static_assert(sizeof(struct hello) == 56, "no padding between processes");

struct peer {
	bool sender;
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
	struct hello mine, theirs; /* host order */
	uint64_t last_report_ns;
};

/* ---- reports ---- */

static void report(enum demo_report_type type, uint64_t value, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void report(enum demo_report_type type, uint64_t value, const char *fmt, ...)
{
	struct demo_report r = {.type = type, .value = value};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r.text, sizeof(r.text), fmt, ap);
	va_end(ap);
	/* If nobody listens, the orchestrator is gone, and PR_SET_PDEATHSIG ends us. */
	ssize_t ignored = send(DEMO_FD_REPORT, &r, sizeof(r), MSG_NOSIGNAL);
	(void)ignored;
}

#define step(...) report(DEMO_STEP, 0, __VA_ARGS__)
/* Evaluates to -1, for `return fail(...)`. */
#define fail(...) (report(DEMO_FAIL, 0, __VA_ARGS__), -1)

static const char *other(const struct peer *p) { return p->sender ? "receiver" : "sender"; }

/* ---- the socket pair between the peers ---- */

static int peer_send(const struct peer *p, const void *data, size_t len)
{
	if (send(DEMO_FD_PEER, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		return fail("the %s is gone: its socket says: %s", other(p), strerror(errno));
	return 0;
}

static int peer_recv(const struct peer *p, void *data, size_t len, const char *what)
{
	struct pollfd pfd = {.fd = DEMO_FD_PEER, .events = POLLIN};
	int n = poll(&pfd, 1, (int)(DEMO_STALL_NS / RPWI_NS_PER_MS));

	if (n < 0)
		return fail("waiting for the %s's %s: %s", other(p), what, strerror(errno));
	if (!n)
		return fail("the %s has not sent its %s in %d s", other(p), what,
			(int)(DEMO_STALL_NS / RPWI_NS_PER_S));
	ssize_t got = recv(DEMO_FD_PEER, data, len, 0);
	if (got == 0 || (got < 0 && errno == ECONNRESET))
		return fail("the %s left before it sent its %s", other(p), what);
	if (got != (ssize_t)len)
		return fail("the %s's %s is not as expected (%zd bytes, %zu wanted)", other(p),
			what, got, len);
	return 0;
}

static void hello_swap(struct hello *h)
{
	uint32_t *words[] = {&h->magic, &h->version, &h->qpn, &h->psn, &h->mtu, &h->rkey};

	for (size_t i = 0; i < RPWI_ARRAY_LEN(words); i++)
		*words[i] = htonl(*words[i]);
	h->addr = htobe64(h->addr);
	h->len = htobe64(h->len);
}

static int exchange(struct peer *p)
{
	struct hello out = p->mine;

	hello_swap(&out);
	if (peer_send(p, &out, sizeof(out)) || peer_recv(p, &p->theirs, sizeof(p->theirs), "hello"))
		return -1;
	hello_swap(&p->theirs);
	if (p->theirs.magic != HELLO_MAGIC || p->theirs.version != HELLO_VERSION)
		return fail("the %s speaks another version of this demo", other(p));
	if (p->theirs.len != p->len)
		return fail("the %s has a file of %" PRIu64 " bytes, not %" PRIu64, other(p),
			p->theirs.len, p->len);
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
	struct stat st;
	char size[CLI_SIZE_LEN];

	if (fstat(DEMO_FD_FILE, &st))
		return fail("the file: %s", strerror(errno));
	if (!p->len || (uint64_t)st.st_size < p->len)
		return fail("the file has %jd bytes, %" PRIu64 " are to be moved",
			(intmax_t)st.st_size, p->len);
	/* The sender only reads; but kernel rxe 6.1 pins pages for writing whatever the access, and
	 * refuses a read-only mapping with EFAULT. */
	void *map = mmap(
		NULL, p->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, DEMO_FD_FILE, 0);
	if (map == MAP_FAILED)
		return fail("cannot map the file: %s", strerror(errno));
	p->file = map;
	p->pd = ibv_alloc_pd(p->ctx);
	if (!p->pd)
		return fail("ibv_alloc_pd: %s", strerror(errno));
	/* What is only sent from needs no right; what the other side writes to needs both (IB
	 * 10.6.3.1). */
	p->mr = ibv_reg_mr(p->pd, p->file, p->len,
		p->sender ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!p->mr)
		return fail("ibv_reg_mr of %s: %s", rpwi_cli_size(p->len, size), strerror(errno));
	step("mapped and registered its file: %s at %p, %s 0x%x", rpwi_cli_size(p->len, size),
		(void *)p->file, p->sender ? "lkey" : "rkey",
		p->sender ? p->mr->lkey : p->mr->rkey);
	return 0;
}

static int make_qp(struct peer *p)
{
	if (!p->sender)
		p->channel = ibv_create_comp_channel(p->ctx);
	if (!p->sender && !p->channel)
		return fail("ibv_create_comp_channel: %s", strerror(errno));
	p->cq = ibv_create_cq(p->ctx, OUTSTANDING + 1, NULL, p->channel, 0);
	if (!p->cq)
		return fail("ibv_create_cq: %s", strerror(errno));
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
	p->qp = ibv_create_qp(p->pd, &attr);
	if (!p->qp)
		return fail("ibv_create_qp: %s", strerror(errno));
	uint32_t psn;
	if (getrandom(&psn, sizeof(psn), 0) != sizeof(psn))
		return fail("getrandom: %s", strerror(errno));
	p->mine = (struct hello){
		.magic = HELLO_MAGIC,
		.version = HELLO_VERSION,
		.qpn = p->qp->qp_num,
		.psn = psn & 0xffffff,
		.mtu = p->port.active_mtu,
		.rkey = p->sender ? 0 : p->mr->rkey,
		.addr = p->sender ? 0 : (uintptr_t)p->file,
		.len = p->len,
	};
	memcpy(p->mine.gid, p->gid.gid.raw, sizeof(p->mine.gid));
	return 0;
}

/* The three transitions of IB 10.3.1, with the attributes that each requires. */
static int modify(struct peer *p, struct ibv_qp_attr *attr, int mask, const char *state)
{
	int err = ibv_modify_qp(p->qp, attr, mask);

	return err ? fail("QP 0x%06x does not go to %s: %s%s", p->qp->qp_num, state, strerror(err),
			     err == EADDRINUSE ? "; `ropeway devices` says who holds the port" : "")
		   : 0;
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
		.path_mtu = RPWI_MIN((enum ibv_mtu)p->theirs.mtu, p->port.active_mtu),
		.ah_attr = {.is_global = 1,
			.port_num = PORT,
			.grh = {.sgid_index = (uint8_t)p->gid.index, .hop_limit = 1}},
	};
	/* 4.096 us * 2^14 = 67 ms, 7 retries: a dead peer is noticed in seconds. */
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
		.sq_psn = p->mine.psn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7};

	memcpy(rtr.ah_attr.grh.dgid.raw, p->theirs.gid, sizeof(p->theirs.gid));
	if (modify(p, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		    "INIT"))
		return -1;
	if (modify(p, &rtr,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		    "RTR"))
		return -1;
	if (modify(p, &rts,
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
	bool last = index + 1 == chunks;
	struct ibv_sge sge = {.addr = (uintptr_t)p->file + off,
		.length = (uint32_t)RPWI_MIN((uint64_t)CHUNK, p->len - off),
		.lkey = p->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = index,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
			.imm_data = last ? htonl((uint32_t)chunks) : 0,
			.wr.rdma = {.remote_addr = p->theirs.addr + off, .rkey = p->theirs.rkey},
		};
	int err = ibv_post_send(p->qp, &wr, &bad);

	return err ? fail("ibv_post_send of WRITE %" PRIu64 ": %s", index, strerror(err)) : 0;
}

/* Ten times a second: progress to the orchestrator, and a sign of life to the receiver (which may
 * be asleep: then it is lost, not waited for). */
static int sender_heartbeat(struct peer *p, uint64_t now_ns, uint64_t bytes)
{
	if (now_ns - p->last_report_ns < 100 * RPWI_NS_PER_MS)
		return 0;
	p->last_report_ns = now_ns;
	report(DEMO_PROGRESS, bytes, "%s", "");
	if (send(DEMO_FD_PEER, "h", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
		return fail("the %s is gone: its socket says: %s", other(p), strerror(errno));
	return 0;
}

static int write_file(struct peer *p, uint64_t *elapsed_ns)
{
	uint64_t chunks = (p->len + CHUNK - 1) / CHUNK, posted = 0, done = 0;
	uint64_t start_ns = rpwi_now_ns(), last_done_ns = start_ns;
	struct ibv_wc wc[OUTSTANDING];

	p->last_report_ns = start_ns;
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
		else if (now_ns - last_done_ns > DEMO_STALL_NS)
			return fail("no WRITE completed in %d s (%" PRIu64 " of %" PRIu64
				    " are done)",
				(int)(DEMO_STALL_NS / RPWI_NS_PER_S), done, chunks);
		if (sender_heartbeat(p, now_ns, RPWI_MIN(done * CHUNK, p->len)))
			return -1;
	}
	*elapsed_ns = last_done_ns - start_ns;
	report(DEMO_PROGRESS, p->len, "%s", "");
	return 0;
}

static int run_sender(struct peer *p)
{
	uint64_t chunks = (p->len + CHUNK - 1) / CHUNK, elapsed_ns = 0;
	char c;

	if (peer_recv(p, &c, 1, "ready"))
		return -1;
	step("posts %" PRIu64
	     " RDMA WRITE%s of %s, %d outstanding, the last with immediate %" PRIu64,
		chunks, chunks > 1 ? "s" : "", chunks > 1 ? "1 MiB" : "the whole file",
		(int)RPWI_MIN(chunks, (uint64_t)OUTSTANDING), chunks);
	if (write_file(p, &elapsed_ns) || peer_recv(p, &c, 1, "confirmation") ||
		peer_send(p, "d", 1))
		return -1;
	report(DEMO_DONE, elapsed_ns, "%s", "");
	return 0;
}

/* ---- receiver ---- */

/* The sender's heartbeats; its end before the last WRITE is an error. 1 when one came. */
static int receiver_hear(void)
{
	char c[64];
	ssize_t n = recv(DEMO_FD_PEER, c, sizeof(c), MSG_DONTWAIT);

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
		{.fd = p->channel->fd, .events = POLLIN}, {.fd = DEMO_FD_PEER, .events = POLLIN}};
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
		int heard = pfd[1].revents ? receiver_hear() : 0;
		uint64_t now_ns = rpwi_now_ns();
		if (heard < 0)
			return -1;
		if (heard)
			heard_ns = now_ns;
		else if (now_ns - heard_ns > DEMO_STALL_NS * 2)
			return fail("nothing heard from the sender in %d s",
				(int)(DEMO_STALL_NS * 2 / RPWI_NS_PER_S));
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
	report(DEMO_DONE, 0, "%s", "");
	return 0;
}

static int run_peer(struct peer *p, const char *device)
{
	if (open_device(p, device) || register_file(p) || make_qp(p) || exchange(p) ||
		connect_qp(p))
		return -1;
	return p->sender ? run_sender(p) : run_receiver(p);
}

/* argv: ROLE DEVICE BYTES ORCHESTRATOR-PID */
int rpwi_cli_demo_peer(int argc, char **argv)
{
	struct peer p = {0};

	if (argc != 5 || rpwi_cli_parse_size(argv[3], &p.len))
		return rpwi_cli_fail(CLI_USAGE, "ropeway demo-peer",
			"this is a part of `ropeway demo`; run that instead");
	/* If the orchestrator is killed, so are we; it may have happened already. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != atoi(argv[4]))
		return CLI_FAILED;
	p.sender = !strcmp(argv[1], "sender");
	int ret = run_peer(&p, argv[2]);
	peer_fini(&p);
	return ret ? CLI_FAILED : CLI_OK;
}
