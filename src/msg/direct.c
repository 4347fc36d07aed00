/* SPDX-License-Identifier: BSD-3-Clause */
/* direct.c - memory of GPUs that the path's transport reaches by itself (TRAN_GPU): which that is,
 * its registrations, and how far to believe a device that says that it has written there. Where it
 * cannot be reached so, it is staged (pipeline.c): every call here says which of the two it is to
 * be, and a direct transfer on one path may have to be staged on the next. */
#include <stdio.h>
#include <unistd.h>

#include "msg/choice.h"
#include "msg/pipeline.h"
#include "msg/request.h"

/* ---- registrations ---- */

static int add(rpw_context *c, int i, const struct tran_gpu_memory *what, unsigned access,
	struct tran_mem **out)
{
	int rc = c->t[i].ops->mem->add_gpu(c->t[i].tran, what, access, out);
	if (rc)
		*out = NULL;
	return rc;
}

/* By a dma-buf (the program's, or one that the driver gives), else by its address. The descriptor
 * is kept: parts of the memory may have to be registered with other rights later. */
static int add_either(rpw_memory *m, int i, unsigned access)
{
	struct tran_gpu_memory what = {
		.addr = m->addr, .len = m->len, .dmabuf = m->dmabuf, .offset = m->dmabuf_offset};
	if (what.dmabuf < 0)
		what.dmabuf = m->dmabuf = gpu_dmabuf(m->gpu, m->addr, m->len, &m->dmabuf_offset);
	what.offset = m->dmabuf_offset;
	int rc = what.dmabuf < 0 ? RPW_ERR_NOT_SUPPORTED : add(m->c, i, &what, access, &m->mem[i]);
	if (!rc)
		return 0;
	if (m->dmabuf >= 0) {
		rpwi_debug("%zu bytes of a GPU at %s: %s", m->len, RPWI_AT(m->addr),
			rpwi_last_error()->text);
		close(m->dmabuf);
	}
	m->dmabuf = what.dmabuf = -1;
	return add(m->c, i, &what, access, &m->mem[i]);
}

bool direct_memory(rpw_memory *m, int i)
{
	rpw_context *c = m->c;
	char why[256];
	if (m->mem[i])
		return true;
	if (i < 0 || !(c->t[i].ops->caps & TRAN_GPU) || !m->gpu->direct || m->staged[i] ||
		!msg_tran(c, i, why, sizeof(why)))
		return false;
	m->staged[i] = add_either(m, i, memory_tran_access(m->access)) != 0;
	if (m->staged[i])
		rpwi_debug("%zu bytes of a GPU at %s are staged: %s", m->len, RPWI_AT(m->addr),
			rpwi_last_error()->text);
	else
		m->mem[i]->kept = true;
	return !m->staged[i];
}

static rpw_memory *memory_of(rpw_context *c, const void *p, size_t len)
{
	RPWI_LIST_EACH (rpw_memory, m, &c->memories, all) {
		uintptr_t offset = (uintptr_t)p - (uintptr_t)m->addr;
		if (m->gpu && (uintptr_t)p >= (uintptr_t)m->addr && offset < m->len &&
			len <= m->len - offset)
			return m;
	}
	return NULL;
}

static rpw_memory *direct_of(const rpw_endpoint *ep, const void *p, size_t len)
{
	rpw_memory *m =
		ep->tran >= 0 && ep->link.ops->caps & TRAN_GPU ? memory_of(ep->c, p, len) : NULL;
	return m && direct_memory(m, ep->tran) ? m : NULL;
}

static int stretch_add(
	rpw_endpoint *ep, const void *p, size_t len, unsigned access, struct tran_mem **out)
{
	rpw_memory *m = direct_of(ep, p, len);
	*out = NULL;
	if (!m)
		return RPW_ERR_NOT_SUPPORTED;
	struct tran_gpu_memory what = {.addr = (void *)p,
		.len = len,
		.dmabuf = m->dmabuf,
		.offset = m->dmabuf_offset + (uint64_t)((char *)p - (char *)m->addr)};
	return add(ep->c, ep->tran, &what, access, out);
}

void direct_drop(rpw_request *r)
{
	if (r->direct)
		r->c->t[r->direct_tran].ops->mem->del(r->c->t[r->direct_tran].tran, r->direct);
	r->direct = NULL;
}

/* ---- what is sent ---- */

/* Short ones, too: calls of the CUDA driver may wait for whatever the program's other threads do
 * there, so what moves messages had better do without. */
bool direct_sends(const rpw_request *r)
{
	return r->ep->state == EP_UP && r->len && direct_of(r->ep, r->buf, r->len);
}

bool direct_offer(rpw_request *r, struct tran_mem **out)
{
	return proto_of(r)->message && !r->pipeline &&
	       !stretch_add(r->ep, r->buf, r->len, TRAN_READ, out);
}

/* ---- what is received, put and got ---- */

static int local_make(rpw_request *r, rpw_endpoint *ep, const void *p, size_t len, unsigned access)
{
	if (r->direct && r->direct_tran != ep->tran) /* made while there was no path */
		direct_drop(r);
	if (r->direct || r->rtr_mem)
		return 0;
	r->direct_tran = ep->tran;
	return stretch_add(ep, p, len, access, &r->direct);
}

bool direct_fetch(rpw_request *r, rpw_endpoint *ep)
{
	size_t len = RPWI_MIN(r->len, r->rts->len);
	bool plain = r->kind == REQ_RECV || r->kind == REQ_RECV_OBJECT;
	return r->rts->pieces && plain && len && !local_make(r, ep, r->buf, len, TRAN_WRITE);
}

bool direct_rma(rpw_request *r)
{
	const struct xfer *x = r->xfer;
	rpw_endpoint *ep = r->ep;
	if (ep->tran < 0 || r->xfers != 1 || !x->len || (x->key->device && !x->key->has[ep->tran]))
		return false;
	if (r->gpu && local_make(r, ep, x->local, x->len, x->is_put ? 0 : TRAN_WRITE))
		return false;
	r->xfer->mem = r->direct;
	return true;
}

void direct_path_gone(rpw_request *r)
{
	direct_drop(r);
	bool direct =
		r->kind == REQ_RMA && r->xfer && !r->rts && !r->parked && (r->gpu || r->rma.to_gpu);
	if (!direct || (r->where != AT_FETCH && r->where != AT_SETTLE))
		return;
	/* It may have to be staged on the next path: so it is begun anew, before what waits in the
	 * queue. */
	rpwi_list_del(&r->link);
	r->where = AT_QUEUE;
	r->at_xfer = r->under_way = 0;
	r->at_byte = 0;
	r->worst = 0;
	rpwi_list_add_tail(r->ep->link.queue.next, &r->link);
}

/* ---- what devices have written ---- */

int direct_landed(rpw_request *r, int status)
{
	return status || !r->gpu ? status : req_noted(r, gpu_flush(r->gpu));
}

int direct_flush(rpw_context *c)
{
	int status = 0;
	RPWI_LIST_EACH (struct gpu, g, &c->gpus, all) {
		int rc = g->exposed ? gpu_flush(g) : 0;
		status = rc ? rc : status;
	}
	return status;
}

/* ---- what the devices here can ---- */

/* One way, with one transport; false: `why` says what is missing. */
static bool can(
	rpw_context *c, int i, const struct tran_gpu_memory *what, char *why, size_t why_len)
{
	struct tran_mem *m;
	if (add(c, i, what, TRAN_READ | TRAN_WRITE, &m)) {
		snprintf(why, why_len, "%s", rpwi_last_error()->text);
		return false;
	}
	c->t[i].ops->mem->del(c->t[i].tran, m);
	return true;
}

static int ask(rpw_context *c, int i, struct gpu *g, const struct gpu_sample *s)
{
	char by_address[512] = "",
	     by_dmabuf[512] = "the CUDA driver gives no dma-buf of its memory";
	struct tran_gpu_memory what = {.addr = s->addr, .len = s->len, .dmabuf = -1};
	int ways = can(c, i, &what, by_address, sizeof(by_address)) ? RPW_DIRECT_PEER : 0;
	what.dmabuf = gpu_dmabuf(g, s->addr, s->len, &what.offset);
	if (what.dmabuf >= 0) {
		ways |= can(c, i, &what, by_dmabuf, sizeof(by_dmabuf)) ? RPW_DIRECT_DMABUF : 0;
		close(what.dmabuf);
	}
	if (!ways)
		rpwi_fail(RPW_ERR_NOT_SUPPORTED, "%s; %s", by_address, by_dmabuf);
	return ways;
}

static int ask_with_memory(rpw_context *c, int i)
{
	struct gpu_sample s;
	struct rpwi_list gpus;
	struct gpu *g;
	int ways = 0;
	if (gpu_sample(&s))
		return 0;
	rpwi_list_init(&gpus);
	if (!gpu_of(&gpus, s.addr, s.len, &g)) {
		if (g->direct)
			ways = ask(c, i, g, &s);
		else
			rpwi_fail(RPW_ERR_NOT_SUPPORTED,
				"the CUDA driver cannot say when what a device has written into a "
				"GPU is there: it is older than 11.3, or "
				"this GPU has no GPUDirect RDMA");
		gpu_free(g);
	}
	gpu_sample_free(&s);
	return ways;
}

int rpw_memory_direct(rpw_context *c)
{
	char why[256] = "the context leaves it out";
	if (!c)
		return msg_wrong("rpw_memory_direct", "the context is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	for (int i = 0; i < c->tn; i++)
		if (c->t[i].ops->caps & TRAN_GPU && choice_wanted(c, i) &&
			msg_tran(c, i, why, sizeof(why)))
			return ask_with_memory(c, i);
	rpwi_fail(RPW_ERR_NOT_SUPPORTED,
		"memory of a GPU is reached by RDMA devices only, that is by verbs, which is not "
		"there: %s",
		why);
	return 0;
}
