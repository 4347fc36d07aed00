/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - one connection: its verbs objects, posting, and leaving. */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/epoll.h>

#include <rdma/rdma_verbs.h>

#include "peer.h"

/* ---- birth ---- */

void peer_enter(struct peer *p, enum phase phase)
{
	p->phase = phase;
	p->deadline_ms = now_ms() + (uint64_t)p->loop->wait_s * 1000;
}

static void set_name(struct peer *p)
{
	char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
	const struct sockaddr *a = rdma_get_peer_addr(p->id);
	const char *who = p->loop->server ? "client" : "server";
	bool v6 = a->sa_family == AF_INET6;
	socklen_t bytes = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	getnameinfo(
		a, bytes, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(p->name, sizeof(p->name), v6 ? "%s [%.50s]:%s" : "%s %.50s:%s", who, host, port);
}

struct peer *peer_new(struct loop *loop, struct rdma_cm_id *id)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		die("there is no memory for one more connection");
	p->loop = loop;
	p->number = ++loop->made;
	p->next = loop->peers;
	loop->peers = p;
	p->id = id;
	id->context = p; /* comes back with each event of this connection */
	set_name(p);
	peer_enter(p, loop->server ? PHASE_ACCEPT : PHASE_ADDRESS);
	return p;
}

/* Each region allows exactly what its mode needs: whoever knows an rkey can use it. */
static bool register_memory(struct peer *p)
{
	enum mode mode = p->loop->mode;
	int source = mode == MODE_READ ? IBV_ACCESS_REMOTE_READ : 0;
	int target = IBV_ACCESS_LOCAL_WRITE | (mode == MODE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);

	/* On iWARP the answer to a READ is a write of the peer (RFC 5040, 5.1). */
	if (p->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP)
		target |= IBV_ACCESS_REMOTE_WRITE;
	p->message_mr =
		ibv_reg_mr(p->pd, p->out, sizeof(p->out) + sizeof(p->in), IBV_ACCESS_LOCAL_WRITE);
	p->source_mr = ibv_reg_mr(p->pd, p->source, sizeof(p->source), source);
	p->target_mr = ibv_reg_mr(p->pd, p->target, sizeof(p->target), target);
	return p->message_mr && p->source_mr && p->target_mr;
}

/* A completion channel is a descriptor like any other: here it must never block, since one loop
 * serves all. */
static bool make_completion_queue(struct peer *p)
{
	struct epoll_event watch = {.events = EPOLLIN, .data.ptr = p};

	p->channel = ibv_create_comp_channel(p->id->verbs);
	if (!p->channel || fcntl(p->channel->fd, F_SETFL, O_NONBLOCK))
		return false;
	p->cq = ibv_create_cq(p->id->verbs, 1 + PEER_RECEIVES, p, p->channel, 0);
	return p->cq && succeeded(ibv_req_notify_cq(p->cq, 0)) &&
	       !epoll_ctl(p->loop->epoll, EPOLL_CTL_ADD, p->channel->fd, &watch);
}

/* rdma_create_qp also takes the queue pair to INIT, rdma_connect and rdma_accept take it on to RTR
 * and RTS: what rdma_server of this folder does by hand. */
static bool make_queue_pair(struct peer *p)
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

	return !rdma_create_qp(p->id, p->pd, &attr);
}

/* wr_id: the kind of work, and of a receive the number of its buffer. */
static void *work_id(enum work work, unsigned slot)
{
	return (void *)(uintptr_t)((uint64_t)work << 32 | slot);
}

bool peer_prepare(struct peer *p)
{
	/* One for each message that comes, and one more. */
	unsigned receives = p->loop->mode == MODE_TEXT ? 2 : PEER_RECEIVES;

	p->pd = ibv_alloc_pd(p->id->verbs);
	if (!p->pd || !register_memory(p) || !make_completion_queue(p) || !make_queue_pair(p))
		return false;
	/* Before connect or accept: a message that finds no receive is turned away (RNR NAK, IB
	 * 9.7.5.2.8). */
	for (; p->receives_out < receives; p->receives_out++)
		if (rdma_post_recv(p->id, work_id(WORK_RECEIVE, p->receives_out),
			    p->in[p->receives_out], RECEIVE_BYTES, p->message_mr))
			return false;
	return true;
}

/* ---- the talk ----
 * rdma_post_send() and its kind fill in the work request that steps.c shows field by field. */

static void posted(struct peer *p, int error)
{
	if (error) {
		peer_abort(p, "a work request cannot be posted (%s)", strerror(errno));
		return;
	}
	p->posted++;
	p->sends_out++;
	peer_enter(p, p->phase);
}

void peer_send(struct peer *p, enum work work, size_t bytes)
{
	posted(p, rdma_post_send(p->id, work_id(work, 0), p->out, bytes, p->message_mr, 0));
}

void peer_post_rdma(struct peer *p)
{
	void *id = work_id(WORK_RDMA, 0);
	const struct remote_memory *r = &p->remote;

	if (p->loop->mode == MODE_READ) {
		printf("    reading %d bytes of the peer's memory\n", REGION_BYTES);
		posted(p, rdma_post_read(p->id, id, p->target, REGION_BYTES, p->target_mr, 0,
				  r->address, r->rkey));
	} else {
		printf("    writing %d bytes to the peer's memory\n", REGION_BYTES);
		posted(p, rdma_post_write(p->id, id, p->source, REGION_BYTES, p->source_mr, 0,
				  r->address, r->rkey));
	}
}

/* ---- the end ---- */

void peer_leave(struct peer *p, enum ended who)
{
	if (p->ended == ENDED_NOT)
		p->ended = who;
	peer_enter(p, PHASE_END);
	/* This also takes our queue pair to the error state, so that all that is posted comes back.
	 * After the peer's DREQ it is our DREP. */
	rdma_disconnect(p->id);
}

void peer_abort(struct peer *p, const char *fmt, ...)
{
	char text[sizeof(p->cause)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	warnx("%s: %s", p->name, text);
	if (!p->failed)
		memcpy(p->cause, text, sizeof(text));
	p->failed = true;
	if (p->phase == PHASE_TALK)
		peer_leave(p, ENDED_BY_US);
	else if (p->phase != PHASE_END) /* never established: nothing to take leave of */
		p->phase = PHASE_OVER;
}

/* In reverse order: nothing may be closed while something still uses it. */
void peer_free(struct peer *p)
{
	struct ibv_mr *const mrs[] = {p->message_mr, p->source_mr, p->target_mr};

	if (p->id->qp)
		rdma_destroy_qp(p->id);
	if (p->cq)
		ibv_destroy_cq(p->cq);
	if (p->channel)
		ibv_destroy_comp_channel(p->channel);
	for (size_t i = 0; i < sizeof(mrs) / sizeof(mrs[0]); i++)
		if (mrs[i])
			ibv_dereg_mr(mrs[i]);
	if (p->pd)
		ibv_dealloc_pd(p->pd);
	rdma_destroy_id(p->id);
	free(p);
}
