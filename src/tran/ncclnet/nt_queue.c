/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_queue.c - one comm of a plugin: requests in the order in which they were posted, and the
 * memory registered with it.
 *
 * Only the oldest request is tested, since some plugins know only that (NCCLNET_FIFO_TEST). A
 * receive is done when the plugin has been told that it is consumed, and the flush is done where it
 * asks for one.
 */
#include "tran/ncclnet/nt_priv.h"

#include <limits.h>
#include <stdlib.h>

static struct nt_request *at(struct nt_queue *l, uint32_t n) { return &l->ring[n % NT_REQUESTS]; }

static void broken(struct nt_queue *l, int rc, const char *call)
{
	if (l->error)
		return;
	l->error = rc;
	l->error_call = call;
}

void nt_queue_open(
	struct nt_queue *l, const struct nt_load *load, const struct nt_comm *c, bool sends)
{
	*l = (struct nt_queue){.load = load, .comm = c->comm, .device = c->device, .sends = sends};
	rpwi_list_init(&l->regs);
}

void nt_queue_close(struct nt_queue *l)
{
	if (!l->comm)
		return;
	nt_closing = true;
	while (!rpwi_list_empty(&l->regs))
		nt_queue_deregister(
			RPWI_CONTAINER_OF(rpwi_list_pop(&l->regs), struct nt_reg, of_queue));
	int rc = l->sends ? ncclnet_close_send(l->load->n, l->comm)
			  : ncclnet_close_recv(l->load->n, l->comm);
	if (rc)
		rpwi_debug("ncclnet: plugin %s v%d: closing a comm gave %d (%s)", l->load->name,
			l->load->n->abi, rc, ncclnet_result_name(rc));
	nt_closing = false;
	free(l->device);
	l->device = NULL;
	l->comm = NULL;
	l->posted = l->finished = l->taken = 0;
}

/* ---- requests ---- */

struct nt_request *nt_queue_post(struct nt_queue *l, void *data, size_t len, void *mhandle)
{
	if (l->error || !l->comm || nt_queue_under_way(l) == NT_REQUESTS)
		return NULL;
	int tag = 0;
	void *request;
	int rc = l->sends ? ncclnet_isend(l->load->n, l->comm, data, len, tag, mhandle, &request)
			  : ncclnet_irecv(
				    l->load->n, l->comm, 1, &data, &len, &tag, &mhandle, &request);
	if (rc)
		broken(l, rc, l->sends ? "isend" : "irecv");
	if (rc || !request)
		return NULL;
	struct nt_request *r = at(l, l->posted++);
	*r = (struct nt_request){.request = request, .data = data, .len = len, .mhandle = mhandle};
	return r;
}

/* What a receive needs before its bytes can be used. False: it has begun, and has to be waited
 * for. */
static bool received(struct nt_queue *l, struct nt_request *r)
{
	const struct nt_load *load = l->load;
	if (!r->flushing) {
		int rc = ncclnet_irecv_consumed(load->n, l->comm, 1, r->request);
		if (rc && rc != NCCLNET_ABSENT)
			broken(l, rc, "irecvConsumed");
	}
	if (r->flushing || !load->props.force_flush || l->error)
		return true;
	int size = (int)r->len;
	int rc = ncclnet_iflush(load->n, l->comm, 1, &r->data, &size, &r->mhandle, &r->request);
	if (rc)
		broken(l, rc, "iflush");
	r->flushing = !rc && r->request;
	return !r->flushing;
}

/* Another one can be looked at. */
static bool finish(struct nt_queue *l, struct nt_request *r)
{
	int done = 0, sizes[NCCL_NET_GROUP_MAX] = {0},
	    rc = ncclnet_test(l->load->n, r->request, &done, sizes);
	if (rc)
		broken(l, rc, "test");
	if (rc || !done)
		return false;
	if (!l->sends) {
		if (!r->flushing)
			r->size = sizes[0];
		if (!received(l, r))
			return finish(l, r);
	}
	l->finished += !l->error;
	return !l->error;
}

unsigned nt_queue_poll(struct nt_queue *l, unsigned most)
{
	unsigned n = 0;
	while (n < most && l->finished != l->posted && !l->error && finish(l, at(l, l->finished)))
		n++;
	return n;
}

struct nt_request *nt_queue_oldest(struct nt_queue *l)
{
	return l->taken != l->finished ? at(l, l->taken) : NULL;
}

/* ---- registrations ---- */

struct nt_reg *nt_queue_register(struct nt_queue *l, struct tran_home *home, void *data, size_t len)
{
	if (l->error || !l->comm) {
		rpwi_fail(RPW_ERR_SYSTEM,
			"plugin %s v%d: nothing can be registered with a connection that is gone",
			l->load->name, l->load->n->abi);
		return NULL;
	}
	if (home && home->len > INT_MAX && l->load->n->abi < 8)
		home = NULL; /* a size of an int: only pieces of it */
	for (struct rpwi_list *i = l->regs.next; home && i != &l->regs; i = i->next) {
		struct nt_reg *r = RPWI_CONTAINER_OF(i, struct nt_reg, of_queue);
		if (r->home == home)
			return r;
	}
	struct nt_reg *r = calloc(1, sizeof *r);
	if (!r) {
		rpwi_fail(RPW_ERR_NO_MEMORY, "ncclnet: no memory for a registration");
		return NULL;
	}
	if (home) {
		data = home->addr;
		len = home->len;
	}
	int rc = ncclnet_reg(l->load->n, l->comm, data, len, NCCL_PTR_HOST, &r->mhandle);
	if (rc) {
		rpwi_fail(RPW_ERR_SYSTEM,
			"plugin %s v%d: %zu bytes of host memory at %s cannot be registered: %d "
			"(%s)",
			l->load->name, l->load->n->abi, len, RPWI_AT(data), rc,
			ncclnet_result_name(rc));
		free(r);
		return NULL;
	}
	r->queue = l;
	r->home = home;
	rpwi_list_init(&r->of_home);
	rpwi_list_init(&r->of_queue);
	rpwi_list_add_tail(&l->regs, &r->of_queue);
	if (home)
		rpwi_list_add_tail(&home->regs, &r->of_home);
	return r;
}

void nt_queue_deregister(struct nt_reg *r)
{
	struct nt_queue *l = r->queue;
	int rc = ncclnet_dereg(l->load->n, l->comm, r->mhandle);
	if (rc)
		rpwi_debug("ncclnet: plugin %s v%d: deregMr gave %d (%s)", l->load->name,
			l->load->n->abi, rc, ncclnet_result_name(rc));
	rpwi_list_del(&r->of_home);
	rpwi_list_del(&r->of_queue);
	free(r);
}

void nt_queue_used(struct nt_reg *r)
{
	if (r && !r->home)
		nt_queue_deregister(r);
}
