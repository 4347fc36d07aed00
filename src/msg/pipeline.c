/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline.c - memory of GPUs: what transports cannot reach goes through page-locked host memory,
 * in pieces, so that the copies of one side, the transport, and the copies of the other side
 * overlap. Here is how stretches move; pipeline_ask.c has what this side wants to have moved,
 * pipeline_serve.c what its peers want.
 *
 * A message from or to a GPU is offered by an RTS as any large one is; one from a GPU describes no
 * memory. Whoever cannot fetch it as described (it is in a GPU, or is to get there) answers PULL.
 * Then the sender sends CHUNKs, each an offer of PIPELINE_BYTES that the receiver fetches: out of
 * page-locked memory or out of the program's, into page-locked memory or into the program's. A
 * chunk's DONE frees its piece of page-locked memory; the message's DONE ends it all. a DONE of the
 * chunks says that no more follow, and why. CHUNKs cost no credit (the receiver asked for them) and
 * wait for nobody's receive, so a message that was pulled always gets on.
 *
 * A put into a GPU, and a get out of one, are such messages too: PUT and GET name the peer's
 * region, an RTS that says "got" answers GET. A put or a get between a GPU here and host memory
 * there is a row of the transport's puts or gets.
 *
 * Page-locked pieces belong to an endpoint and a direction: a peer that does not fetch holds up
 * itself only. Pieces for receiving are taken when a chunk has come, so that those who wait for
 * each other never hold what the other needs. */
#include "msg/pipeline_priv.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/transfer.h"

#include <stdlib.h>

enum {
	BOUNCES = 4,        /* page-locked, of an endpoint and direction */
	SMALL_BYTES = 4096, /* up to here a copy at once is cheaper than the conversation */
};

/* A stretch of memory that is being moved: page-locked (`mine`), or of the program. */
struct bounce {
	struct rpwi_list link; /* free, or being copied */
	struct pipeline *s;
	char *host;
	bool mine;
	char *device;       /* where it goes to or came from; NULL: nowhere */
	size_t len, counts; /* bytes, and of the message */
	struct gpu *gpu;    /* that made `host` and `event` */
	void *event;
};

/* ---- what is a GPU's ---- */

void pipeline_gpus_free(rpw_context *c)
{
	while (!rpwi_list_empty(&c->gpus))
		gpu_free(RPWI_CONTAINER_OF(c->gpus.next, struct gpu, all));
}

struct gpu *pipeline_gpu_find(rpw_context *c, const void *p, size_t len)
{
	RPWI_LIST_EACH (const rpw_memory, m, &c->memories, all) {
		uintptr_t at = (uintptr_t)p, from = (uintptr_t)m->addr;
		if (m->gpu && len && at >= from && at - from < m->len)
			return m->gpu;
	}
	return NULL;
}

int pipeline_local_find(rpw_request *r)
{
	rpw_context *c = r->c;
	for (int i = 0; r->iovcnt != 1 && i < r->iovcnt; i++)
		if (pipeline_gpu_find(c, r->iov[i].iov_base, r->iov[i].iov_len))
			return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
				"piece %d of the scatter list is in a GPU: send or receive GPU "
				"memory in one piece",
				i);
	r->plain = false;
	if (r->iovcnt == 1)
		r->gpu = pipeline_gpu_find(c, r->buf, r->len);
	return 0;
}

int pipeline_outgoing_find(rpw_request *r)
{
	int rc = pipeline_local_find(r);
	if (rc || !r->gpu || r->len > SMALL_BYTES || direct_sends(r))
		return rc;
	r->bounce = malloc(r->len);
	if (!r->bounce)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for %zu bytes out of a GPU", r->len);
	rc = gpu_copy(r->gpu, GPU_OUT, r->buf, r->bounce, r->len);
	r->buf = r->bounce;
	r->gpu = NULL;
	return rc;
}

/* ---- the endpoint's share ---- */

struct pipelines *pipelines_of(rpw_endpoint *ep)
{
	if (ep->pipelines)
		return ep->pipelines;
	struct pipelines *g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	struct rpwi_list *lists[] = {
		&g->list, &g->free[0], &g->free[1], &g->copying[0], &g->copying[1]};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	g->c = ep->c;
	g->ep = ep;
	rpwi_list_add_tail(&ep->c->pipelines, &g->in_context);
	return ep->pipelines = g;
}

static void bounce_free(struct bounce *p)
{
	if (p->event)
		gpu_event_free(p->gpu, p->event);
	if (p->mine)
		gpu_pinned_free(p->gpu, p->host);
	free(p);
}

static void pipelines_release(struct pipelines *g)
{
	if (g->ep || g->busy)
		return;
	for (int way = 0; way < 2; way++)
		while (!rpwi_list_empty(&g->free[way])) {
			struct bounce *p =
				RPWI_CONTAINER_OF(g->free[way].next, struct bounce, link);
			rpwi_list_del(&p->link);
			bounce_free(p);
		}
	rpwi_list_del(&g->in_context);
	free(g);
}

void pipeline_endpoint_gone(rpw_endpoint *ep)
{
	struct pipelines *g = ep->pipelines;
	if (!g)
		return;
	g->ep = NULL;
	ep->pipelines = NULL;
	pipelines_release(g);
}

/* ---- pieces ---- */

/* Page-locked; NULL: all are in use (or there is no memory, and none is). */
/* status: 0, or of the last error. The first one counts. */
static void fault(struct pipeline *s, int status)
{
	if (!status || s->worst)
		return;
	s->worst = status;
	if (s->r)
		req_note(s->r, rpwi_last_error());
}

/* A request of our own has come to that: its error is the last. */
static int child_failed(const rpw_request *child, int status)
{
	if (status < 0)
		req_say_why(child);
	return status;
}

static struct bounce *bounce_take(struct pipeline *s, enum gpu_direction way)
{
	struct pipelines *g = s->of;
	struct bounce *p = NULL;
	if (!rpwi_list_empty(&g->free[way])) {
		p = RPWI_CONTAINER_OF(g->free[way].next, struct bounce, link);
		rpwi_list_del(&p->link);
		if (p->gpu != s->gpu) {
			g->made[way]--;
			bounce_free(p);
			p = NULL;
		}
	}
	if (!p && g->made[way] < BOUNCES) {
		p = calloc(1, sizeof(*p));
		char *host = p ? gpu_pinned_new(s->gpu, PIPELINE_BYTES) : NULL;
		if (!host) {
			free(p);
			if (!g->made[way])
				fault(s, rpwi_fail(RPW_ERR_NO_MEMORY,
						 "the CUDA driver gave no page-locked memory: is "
						 "`ulimit -l` large enough?"));
			return NULL;
		}
		p->mine = true;
		p->host = host;
		p->gpu = s->gpu;
		g->made[way]++;
	}
	if (p) {
		rpwi_list_init(&p->link);
		p->s = s;
	}
	return p;
}

static struct bounce *bounce_of_program(struct pipeline *s, char *host)
{
	struct bounce *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	rpwi_list_init(&p->link);
	p->s = s;
	p->host = host;
	return p;
}

static void bounce_put(struct bounce *p)
{
	struct pipeline *s = p->s;
	rpwi_list_del(&p->link);
	p->s = NULL;
	if (!p->mine) {
		free(p);
		return;
	}
	rpwi_list_add_tail(&s->of->free[pipeline_direction(s)], &p->link);
	if (s->of->ep && s->of->list.next != s->of->list.prev)
		msg_todo(s->of->ep, TODO_SEND); /* another may wait for it */
}

/* ---- the life of a pipeline ---- */

struct pipeline *pipeline_new(rpw_endpoint *ep, rpw_request *r, enum pipeline_kind way, char *base,
	size_t len, size_t room)
{
	struct pipelines *g = pipelines_of(ep);
	struct pipeline *s = g ? calloc(1, sizeof(*s)) : NULL;
	if (!s)
		return NULL;
	s->of = g;
	s->r = r;
	s->way = way;
	s->gpu = r->gpu;
	s->base = base;
	s->len = len;
	s->room = room;
	rpwi_list_init(&s->ready);
	rpwi_list_init(&s->parked);
	rpwi_list_add_tail(&g->list, &s->all);
	g->busy++;
	r->pipeline = s;
	return s;
}

/* True, and s is gone: nothing of it is under way any more, and its request has ended. */
static bool release(struct pipeline *s)
{
	if (s->r || s->under_way)
		return false;
	struct pipelines *g = s->of;
	if (g->next_to_work == &s->all)
		g->next_to_work = s->all.next;
	rpwi_list_del(&s->all);
	free(s);
	g->busy--;
	pipelines_release(g);
	return true;
}

/* The copies of s are waited for: the program may do with its memory what it likes from now on. */
static void copies_end(struct pipeline *s)
{
	struct rpwi_list *list = &s->of->copying[pipeline_direction(s)];
	bool waited = false;
	RPWI_LIST_EACH_SAFE (struct bounce, p, next, list, link) {
		if (p->s != s)
			continue;
		if (!waited)
			gpu_copy_wait(s->gpu, pipeline_direction(s));
		waited = true;
		s->under_way--;
		bounce_put(p);
	}
}

/* What waits to begin never does. */
static void ready_drop(struct pipeline *s)
{
	while (!rpwi_list_empty(&s->ready)) {
		rpw_request *child = RPWI_CONTAINER_OF(s->ready.next, rpw_request, active);
		rpwi_list_del(&child->active);
		req_complete(child, RPW_ERR_CANCELED);
	}
}

/* r completes (it may be by failure): from here on no memory of the program's is touched. */
void pipeline_request_ends(rpw_request *r)
{
	struct pipeline *s = r->pipeline;
	r->pipeline = NULL;
	s->r = NULL;
	if (s->gpu)
		copies_end(s);
	ready_drop(s);
	release(s);
}

/* Everything that was to come has come. */
static void pipeline_finish(struct pipeline *s)
{
	rpw_request *r = s->r;
	if (!r || s->under_way || s->way == PIPELINE_SEND) /* a SEND is ended by the peer's DONE */
		return;
	size_t all = s->stopped ? s->announced : s->len;
	if (!rpwi_list_empty(&s->parked) ||
		(s->landed < all && !(s->worst && s->way != PIPELINE_RECV)))
		return;
	r->worst = s->worst;
	if (s->way != PIPELINE_RECV) {
		transfer_over(r);
		return;
	}
	rpwi_list_del(&r->link);
	r->where = AT_NONE;
	rndv_fetched(r);
}

/* status: 0, or of the last error. */
static void landed(struct bounce *p, int status)
{
	struct pipeline *s = p->s;
	fault(s, status);
	s->under_way--;
	s->landed += p->counts;
	bounce_put(p);
	if (!release(s))
		pipeline_go(s);
}

/* ---- requests of our own ---- */

static void child_done(rpw_request *child, const rpw_completion *done, void *arg)
{
	struct bounce *p = arg;
	struct pipeline *s = p->s;
	/* what there is no room for is dropped on purpose */
	int status = done->status == RPW_ERR_TRUNCATED ? RPW_OK : child_failed(child, done->status);
	if (!status && s->r && !s->worst && p->device && pipeline_direction(s) == GPU_IN) {
		status = gpu_copy_begin(s->gpu, GPU_IN, p->device, p->host, p->len, &p->event);
		if (!status) {
			rpwi_list_add_tail(&s->of->copying[GPU_IN], &p->link);
			return;
		}
	}
	landed(p, status);
}

static rpw_request *child_new(struct bounce *p, enum req_kind kind)
{
	rpw_endpoint *ep = p->s->of->ep;
	rpw_request *child = req_new(ep->c, ep, kind, false);
	if (!child)
		return NULL;
	child->buf = p->host;
	child->len = child->done.length = p->len;
	child->fn = child_done;
	child->arg = p;
	return child;
}

/* Begin those that wait, in order. */
static void ready_go(struct pipeline *s)
{
	rpw_endpoint *ep = s->of->ep;
	while (s->r && ep && ep->state == EP_UP && !rpwi_list_empty(&s->ready)) {
		rpw_request *child = RPWI_CONTAINER_OF(s->ready.next, rpw_request, active);
		rpwi_list_del(&child->active);
		rpwi_list_add_tail(&ep->active_list, &child->active);
		if (proto_of(child)->begin(child) != RPWI_LATER)
			continue;
		rpwi_list_del(&child->active);
		child->active.next = s->ready.next;
		child->active.prev = &s->ready;
		s->ready.next->prev = &child->active;
		s->ready.next = &child->active;
		return;
	}
}

/* The piece is in host memory: on with it. */
static void bounce_out(struct bounce *p)
{
	struct pipeline *s = p->s;
	rpw_request *child = child_new(p, s->way == PIPELINE_SEND ? REQ_CHUNK : REQ_RMA);
	if (!child) {
		landed(p, RPW_ERR_NO_MEMORY); /* req_new has said so */
		return;
	}
	if (s->way == PIPELINE_SEND)
		child->tag = s->r->number;
	else {
		child->one = (struct xfer){.local = p->host,
			.offset = s->offset + (size_t)(p->device - s->base),
			.len = p->len,
			.key = s->key,
			.is_put = s->way == PIPELINE_PUT};
		child->xfer = &child->one;
		child->xfers = 1;
	}
	rpwi_list_add_tail(&s->ready, &child->active);
}

int pipeline_chunk_begin(rpw_request *child)
{
	return rndv_offer_as(child, FRAME_RTS, RTS_CHUNK, child->tag, "", 0);
}

/* ---- the ways ---- */

static void out_go(struct pipeline *s)
{
	while (!s->worst && s->at < s->len && s->under_way < CHUNKS_UNDER_WAY) {
		size_t n = RPWI_MIN(s->len - s->at, (size_t)PIPELINE_BYTES);
		struct bounce *p = s->gpu ? bounce_take(s, pipeline_direction(s))
					  : bounce_of_program(s, s->base + s->at);
		if (!p)
			return;
		p->len = p->counts = n;
		p->device = s->gpu ? s->base + s->at : NULL;
		s->at += n;
		s->under_way++;
		if (!s->gpu || s->way == PIPELINE_GET) {
			bounce_out(p);
			continue;
		}
		int status = gpu_copy_begin(s->gpu, GPU_OUT, p->device, p->host, n, &p->event);
		if (status) {
			fault(s, status);
			s->under_way--;
			bounce_put(p);
			return;
		}
		rpwi_list_add_tail(&s->of->copying[GPU_OUT], &p->link);
	}
}

static void recv_go(struct pipeline *s)
{
	while (!rpwi_list_empty(&s->parked)) {
		rpw_request *child = RPWI_CONTAINER_OF(s->parked.next, rpw_request, active);
		size_t n = child->rts->len,
		       fit = s->worst || s->at >= s->room ? 0 : RPWI_MIN(n, s->room - s->at);
		struct bounce *p =
			s->gpu && fit ? bounce_take(s, GPU_IN) : bounce_of_program(s, NULL);
		if (!p) {
			if (fit && s->worst)
				continue; /* to be dropped, then */
			return;
		}
		if (fit && !s->gpu && req_set_slice(child, s->r, s->at, fit)) {
			s->worst = RPW_ERR_NO_MEMORY;
			fit = 0;
		}
		rpwi_list_del(&child->active);
		p->len = fit;
		p->counts = n;
		p->device = s->gpu && fit ? s->base + s->at : NULL;
		s->at += n;
		s->under_way++;
		if (p->host)
			child->buf = p->host;
		child->len = fit;
		child->fn = child_done;
		child->arg = p;
		rndv_fetch_parked(child, fit);
	}
}

void pipeline_go(struct pipeline *s)
{
	rpw_endpoint *ep = s->of->ep;
	if (!s->r || !ep || ep->state != EP_UP)
		return;
	if (s->way == PIPELINE_RECV)
		recv_go(s);
	else if (s->way != PIPELINE_BATCH)
		out_go(s);
	if (s->way == PIPELINE_SEND && s->worst && !s->stopped) {
		s->stopped = true;
		ready_drop(s); /* after this DONE a chunk is a breach */
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_CHUNKS, s->worst), s->r->number,
			NULL, 0);
	}
	ready_go(s);
	pipeline_finish(s);
}

/* Copies that have ended, in the order begun. How many. */
static int copies_look(struct pipelines *g)
{
	int n = 0;
	for (int way = 0; way < 2; way++)
		while (!rpwi_list_empty(&g->copying[way])) {
			struct bounce *p =
				RPWI_CONTAINER_OF(g->copying[way].next, struct bounce, link);
			struct pipeline *s = p->s;
			int status = gpu_copy_look(s->gpu, p->event);
			if (status > 0)
				break;
			(void)rpwi_list_pop(&g->copying[way]);
			n++;
			if (way == GPU_IN || status || s->worst || !s->r || !g->ep ||
				g->ep->state == EP_FAILED) {
				landed(p, status);
				continue;
			}
			bounce_out(p);
			pipeline_go(s);
		}
	return n;
}

int pipeline_progress(rpw_context *c)
{
	int n = 0;
	RPWI_LIST_EACH_SAFE (struct pipelines, g, next, &c->pipelines, in_context) {
		g->busy++; /* stays while it is looked at */
		n += copies_look(g);
		g->busy--;
		pipelines_release(g);
	}
	return n;
}

void pipeline_end(rpw_context *c)
{
	RPWI_LIST_EACH_SAFE (rpw_request, r, next, &c->callbacks, link) {
		if (r->fn != child_done && r->fn != pipeline_member_done)
			continue;
		rpwi_list_del(&r->link);
		req_call(r, r->fn, r->arg);
		r->fn = NULL;
		req_drop(r);
	}
	pipeline_progress(c);
}

bool pipeline_copying(const rpw_context *c)
{
	RPWI_LIST_EACH (const struct pipelines, g, &c->pipelines, in_context)
		if (!rpwi_list_empty(&g->copying[GPU_OUT]) || !rpwi_list_empty(&g->copying[GPU_IN]))
			return true;
	return false;
}

void pipeline_work(rpw_endpoint *ep)
{
	struct pipelines *g = ep->pipelines;
	if (!g)
		return;
	g->busy++;
	/* One may end others: a flush is of all puts at once. */
	for (g->next_to_work = g->list.next; g->next_to_work != &g->list;) {
		struct pipeline *s = RPWI_CONTAINER_OF(g->next_to_work, struct pipeline, all);
		g->next_to_work = s->all.next;
		pipeline_go(s);
	}
	g->next_to_work = NULL;
	g->busy--;
}

/* What waits to be offered was registered with that path. */
void pipeline_path_gone(rpw_endpoint *ep)
{
	for (struct rpwi_list *l = ep->pipelines ? ep->pipelines->list.next : NULL;
		l && l != &ep->pipelines->list; l = l->next) {
		struct pipeline *s = RPWI_CONTAINER_OF(l, struct pipeline, all);
		RPWI_LIST_EACH (rpw_request, child, &s->ready, active)
			if (child->rndv)
				rndv_unregister(child);
	}
}

void pipeline_member_done(rpw_request *child, const rpw_completion *done, void *arg)
{
	struct pipeline *s = arg;
	fault(s, child_failed(child, done->status));
	s->under_way--;
	s->landed++;
	if (!release(s))
		pipeline_go(s);
}
