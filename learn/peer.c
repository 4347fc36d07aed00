/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - one connection: its verbs objects, what is posted on it, what comes back, and how it
 * ends. 一个连接：它的 verbs 对象、投递的工作、返回的完成事件，以及它如何结束。
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

/* A receive takes the longest message that we know, and more: then a message that is too long is
 * refused by a sentence that says so instead of a local length error. /
 * 接收缓冲区比最长的消息还大，这样过长的消息能得到明确的说明，而不是一个长度错误。 */
enum { RECEIVE_BYTES = 512, MEMORY_BYTES = 2 * REGION_BYTES + RECEIVE_BYTES * (1 + PEER_RECEIVES) };
_Static_assert((int)RECEIVE_BYTES > (int)WIRE_MESSAGE_BYTES_MAX,
	"a receive takes more than the longest message");

/* ---- birth / 创建 ---- */

struct peer *peer_new(const struct peer_options *options, struct rdma_cm_id *id, unsigned number)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->options = options;
	p->talk = options->mode == MODE_TEXT ? &text_talk : &memory_talk;
	p->number = number;
	p->id = id;
	/* comes back with each event of this connection / 随该连接的每个事件带回 */
	id->context = p;
	peer_set_name(p);
	peer_restart_clock(p);
	return p;
}

void peer_set_name(struct peer *p)
{
	char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
	const struct sockaddr *a = rdma_get_peer_addr(p->id);
	socklen_t bytes =
		a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	if (!getnameinfo(a, bytes, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(p->name, sizeof(p->name),
			a->sa_family == AF_INET6 ? "%s [%.50s]:%s" : "%s %.50s:%s",
			p->options->server ? _("client") : _("server"), host, port);
	else
		snprintf(p->name, sizeof(p->name), "%s",
			p->options->server ? _("client") : _("server"));
}

void peer_restart_clock(struct peer *p)
{
	p->deadline_ms = now_ms() + (uint64_t)p->options->wait_s * 1000;
}

static int make_memory(struct peer *p)
{
	void *block = NULL;

	if (posix_memalign(&block, 4096, MEMORY_BYTES)) {
		errno = ENOMEM;
		return -1;
	}
	p->memory = memset(block, 0, MEMORY_BYTES);
	p->source = p->memory;
	p->target = p->source + REGION_BYTES;
	p->message_out = p->target + REGION_BYTES;
	p->message_in = p->message_out + RECEIVE_BYTES;
	return 0;
}

/* Each region allows exactly what its mode needs: whoever knows an rkey can use it. /
 * 只授予该模式所需的权限：知道 rkey 的人就能使用它。 */
static int register_memory(struct peer *p)
{
	int source = p->options->mode == MODE_READ ? IBV_ACCESS_REMOTE_READ : 0;
	int target = IBV_ACCESS_LOCAL_WRITE |
		     (p->options->mode == MODE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);

	/* On iWARP the answer to a READ is a write of the peer (RFC 5040, 5.1). / 在 iWARP 上，READ
	 * 的应答是对端的写入。 */
	if (p->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP)
		target |= IBV_ACCESS_REMOTE_WRITE;
	p->message_mr = ibv_reg_mr(
		p->pd, p->message_out, RECEIVE_BYTES * (1 + PEER_RECEIVES), IBV_ACCESS_LOCAL_WRITE);
	p->source_mr = p->message_mr ? ibv_reg_mr(p->pd, p->source, REGION_BYTES, source) : NULL;
	p->target_mr = p->source_mr ? ibv_reg_mr(p->pd, p->target, REGION_BYTES, target) : NULL;
	return p->target_mr ? 0 : -1;
}

static int make_queue_pair(struct peer *p)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = {.max_send_wr = 1,
			.max_recv_wr = PEER_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	/* rdma_create_qp also takes the queue pair to INIT, rdma_connect and rdma_accept take it on
	 * to RTR and RTS: what rdma_server of this folder does by hand. / rdma_create_qp
	 * 还会把队列对带到 INIT，rdma_connect 和 rdma_accept 再带到 RTR、RTS。 */
	return rdma_create_qp(p->id, p->pd, &attr);
}

static int post_receive(struct peer *p, unsigned slot)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(p->message_in + (size_t)slot * RECEIVE_BYTES),
		.length = RECEIVE_BYTES,
		.lkey = p->message_mr->lkey};
	struct ibv_recv_wr wr = {
		.wr_id = (uint64_t)WORK_RECEIVE << 32 | slot, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int error = ibv_post_recv(p->id->qp, &wr, &bad);

	if (error) {
		errno = error > 0 ? error : errno;
		return -1;
	}
	p->receives_out++;
	return 0;
}

/* A completion channel is a descriptor like any other: here it must never block, since one loop
 * serves all. 完成通道与其他描述符一样；一个循环服务所有连接，因此它绝不能阻塞。 */
static int make_completion_queue(struct peer *p)
{
	p->channel = ibv_create_comp_channel(p->id->verbs);
	if (!p->channel ||
		fcntl(p->channel->fd, F_SETFL, fcntl(p->channel->fd, F_GETFL) | O_NONBLOCK))
		return -1;
	p->cq = ibv_create_cq(p->id->verbs, 1 + PEER_RECEIVES, p, p->channel, 0);
	if (!p->cq)
		return -1;
	return ibv_req_notify_cq(p->cq, 0) ? -1 : 0;
}

int peer_prepare(struct peer *p)
{
	/* One for the message that comes, one more than will come. /
	 * 比将要收到的消息多投递一个。 */
	unsigned receives = p->options->mode == MODE_TEXT ? 2 : PEER_RECEIVES;

	p->pd = ibv_alloc_pd(p->id->verbs);
	if (!p->pd || make_memory(p) || register_memory(p) || make_completion_queue(p) ||
		make_queue_pair(p))
		return -1;
	/* Before connect or accept: a message that finds no receive is turned away (RNR NAK, IB
	 * 9.7.5.2.8). 必须在 connect 或 accept 之前：找不到接收的消息会被拒收（RNR NAK）。 */
	for (unsigned i = 0; i < receives; i++)
		if (post_receive(p, i))
			return -1;
	return 0;
}

void peer_free(struct peer *p)
{
	/* In reverse order: nothing may be closed while something still uses it. / 逆序关闭。 */
	if (p->id->qp)
		rdma_destroy_qp(p->id);
	if (p->cq)
		ibv_destroy_cq(p->cq);
	if (p->channel)
		ibv_destroy_comp_channel(p->channel);
	if (p->target_mr)
		ibv_dereg_mr(p->target_mr);
	if (p->source_mr)
		ibv_dereg_mr(p->source_mr);
	if (p->message_mr)
		ibv_dereg_mr(p->message_mr);
	if (p->pd)
		ibv_dealloc_pd(p->pd);
	rdma_destroy_id(p->id);
	free(p->memory);
	free(p);
}

/* ---- posting / 投递 ---- */

static int post(struct peer *p, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(p->id->qp, wr, &bad);

	if (error)
		return peer_abort(p, _("a work request cannot be posted (%s)"),
			strerror(error > 0 ? error : errno));
	p->sends_out++;
	peer_restart_clock(p);
	return 0;
}

int peer_post_send(struct peer *p, enum work work, size_t bytes)
{
	struct ibv_sge sge = {.addr = (uintptr_t)p->message_out,
		.length = (uint32_t)bytes,
		.lkey = p->message_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uint64_t)work << 32,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND};

	return post(p, &wr);
}

int peer_post_rdma(struct peer *p)
{
	bool read = p->options->mode == MODE_READ;
	struct ibv_sge sge = {
		.addr = (uintptr_t)(read ? p->target : p->source),
		.length = REGION_BYTES,
		.lkey = read ? p->target_mr->lkey : p->source_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = (uint64_t)WORK_RDMA << 32,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = p->remote.address, .rkey = p->remote.rkey},
	};

	return post(p, &wr);
}

/* ---- completions / 完成事件 ---- */

static const char *work_text(enum work work)
{
	static const char *const texts[] = {
		[WORK_RECEIVE] = N_("a receive"),
		[WORK_MR] = N_("the send of our MR"),
		[WORK_RDMA] = N_("the RDMA operation on the peer's memory"),
		[WORK_DONE] = N_("the send of our DONE"),
		[WORK_TEXT] = N_("the send of our text"),
	};

	return _(texts[work]);
}

static void print_status(const struct ibv_wc *wc)
{
	printf("wc->status = %d (%s)\n", wc->status, ibv_wc_status_str(wc->status));
}

/* A work request that was not carried out since the queue pair is in the error state. Never passed
 * over in silence: whoever sees status 5 has to know what took the queue pair there. /
 * 因队列对处于错误状态而未执行的工作请求。绝不默默略过：看到状态 5 的人需要知道原因。 */
static void flushed(struct peer *p, const struct ibv_wc *wc, enum work work)
{
	print_status(wc);
	if (p->ended == ENDED_NOT)
		peer_abort(p,
			_("%s was flushed, but no side has disconnected and nothing failed before: "
			  "the device took the queue pair to the error state"),
			work_text(work));
	else if (p->failed || !flush_is_normal(p->ended, !p->left_early))
		say(_("%s was flushed, because: %s"), work_text(work), p->cause);
}

static void work_failed(struct peer *p, const struct ibv_wc *wc, enum work work)
{
	enum ended was = p->ended;

	print_status(wc);
	peer_abort(p, _("%s failed (%s)"), work_text(work), ibv_wc_status_str(wc->status));
	/* what is flushed now is so because of this / 此后的冲刷都由它引起 */
	if (was == ENDED_NOT)
		p->ended = ENDED_BY_ERROR;
}

static void take_message(struct peer *p, const struct ibv_wc *wc)
{
	const uint8_t *in = p->message_in + (size_t)(uint32_t)wc->wr_id * RECEIVE_BYTES;
	struct message m;
	enum wire_fault fault = wire_get(in, wc->byte_len, &m);

	if (fault)
		peer_abort(p, _("a message of %u bytes was refused: %s"), wc->byte_len,
			_(wire_fault_text(fault)));
	else
		p->talk->received(p, &m);
}

static void take_completion(struct peer *p, const struct ibv_wc *wc)
{
	enum work work = (enum work)(wc->wr_id >> 32);

	if (work == WORK_RECEIVE)
		p->receives_out--;
	else
		p->sends_out--;
	/* Only wr_id and status count in a completion that failed (ibv_poll_cq(3)). /
	 * 失败的完成事件中只有 wr_id 和 status 有效。 */
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		flushed(p, wc, work);
		return;
	}
	if (wc->status != IBV_WC_SUCCESS) {
		work_failed(p, wc, work);
		return;
	}
	if (p->options->verbose)
		print_status(wc);
	if (work == WORK_RECEIVE) {
		take_message(p, wc);
	} else {
		if (work != WORK_RDMA)
			printf("%s\n", _("send completed successfully."));
		p->talk->sent(p, work);
	}
}

/* Do what the states allow now. Not before ESTABLISHED: on the side that accepts, a receive may
 * complete earlier, since the peer's first message serves the device as well as the RTU that it
 * overtook (IB 12.9.7, Communication Established); its content counts, but this side sends nothing
 * yet (rdma_accept(3)). 按状态进行下一步，但不早于 ESTABLISHED：在被动方，接收可能更早完成，
 * 因为对端的第一条消息可能超过 RTU；内容有效，但我方尚不发送。 */
static void advance(struct peer *p)
{
	if (p->phase == PHASE_TALK)
		p->talk->advance(p);
}

void peer_completions(struct peer *p)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(p->cq, 1, &wc)) > 0) {
		take_completion(p, &wc);
		advance(p);
	}
	if (n < 0)
		peer_abort(p, _("its completion queue cannot be read: the device is at fault"));
	peer_look_for_end(p);
}

/* ---- the end / 结束 ---- */

void peer_established(struct peer *p)
{
	p->phase = PHASE_TALK;
	peer_restart_clock(p);
	printf("%s\n", _("connected. posting send..."));
	advance(p);
}

static void begin_end(struct peer *p, enum ended who)
{
	if (p->ended == ENDED_NOT)
		p->ended = who;
	p->phase = PHASE_END;
	peer_restart_clock(p);
	/* This also takes our queue pair to the error state, so that all that is posted comes back.
	 * After the peer's DREQ it is our DREP. 这也使我方队列对进入错误状态，
	 * 从而收回所有已投递的请求。若对端已发 DREQ，则这是我方的 DREP。 */
	rdma_disconnect(p->id);
}

void peer_leave(struct peer *p)
{
	if (!p->talk->conclude(p))
		begin_end(p, ENDED_BY_US);
}

int peer_abort(struct peer *p, const char *fmt, ...)
{
	char text[sizeof(p->cause)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fail("%s: %s", p->name, text);
	if (!p->failed)
		memcpy(p->cause, text, sizeof(text));
	p->failed = true;
	if (p->phase == PHASE_TALK)
		begin_end(p, ENDED_BY_US);
	/* nothing was established: nothing to take leave of / 尚未建立连接，无需告别 */
	else if (p->phase != PHASE_END)
		p->phase = PHASE_OVER;
	return -1;
}

/* Who speaks of it depends on who began: as a rule the client leaves and the server notices. /
 * 通常是客户端断开，服务器察觉。 */
static const char *end_text(const struct peer *p)
{
	bool by_us = p->left_early || p->failed ? p->ended != ENDED_BY_PEER : !p->options->server;

	return by_us ? _("disconnected.") : _("peer disconnected.");
}

/* The peer was faster. Either it had all that it wanted of us, and then so have we of it; or it
 * broke off. 对端先行断开：要么双方都已完成，要么它中途退出。 */
static void peer_has_left(struct peer *p)
{
	p->ended = ENDED_BY_PEER;
	p->left_early = !p->talk->may_leave(p);
	if (p->left_early)
		peer_abort(p,
			_("the peer disconnected too early (RDMA_CM_EVENT_DISCONNECTED): this side "
			  "was waiting for %s"),
			p->talk->waits_for(p));
	else
		p->talk->conclude(p);
}

void peer_disconnected(struct peer *p)
{
	/* What was completed before counts, though its note may still lie in the queue. /
	 * 此前已完成的仍然有效，尽管通知可能还在队列中。 */
	peer_completions(p);
	p->disconnected = true;
	if (p->phase != PHASE_END)
		peer_has_left(p);
	printf("%s\n", end_text(p));
	begin_end(p, ENDED_BY_PEER);
	peer_look_for_end(p);
}

void peer_look_for_end(struct peer *p)
{
	if (p->phase == PHASE_END && p->disconnected && !p->sends_out && !p->receives_out)
		p->phase = PHASE_OVER;
}

static void end_is_late(struct peer *p)
{
	if (!p->disconnected)
		peer_abort(p,
			_("no answer to our disconnect within %u s (no "
			  "RDMA_CM_EVENT_DISCONNECTED)"),
			p->options->wait_s);
	else
		peer_abort(p,
			_("%u work requests were not flushed within %u s: the device is at fault"),
			p->sends_out + p->receives_out, p->options->wait_s);
	p->phase = PHASE_OVER;
}

void peer_late(struct peer *p)
{
	static const char *const awaited[] = {
		[PHASE_ADDRESS] = N_("the device that leads there (RDMA_CM_EVENT_ADDR_RESOLVED)"),
		[PHASE_ROUTE] = N_("the route (RDMA_CM_EVENT_ROUTE_RESOLVED)"),
		[PHASE_CONNECT] = N_("an answer to our connection request "
				     "(RDMA_CM_EVENT_ESTABLISHED or REJECTED)"),
		[PHASE_ACCEPT] = N_("the last step of the handshake, after we accepted "
				    "(RDMA_CM_EVENT_ESTABLISHED)"),
	};

	if (p->phase == PHASE_END)
		end_is_late(p);
	else
		peer_abort(p, _("waited %u s in vain for %s"), p->options->wait_s,
			p->phase == PHASE_TALK ? p->talk->waits_for(p) : _(awaited[p->phase]));
}
