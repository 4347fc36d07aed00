/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_op.c - operations on the peer's memory: those that wait, those under way, their ends. How
 * they are posted is verbs_rma.c's. */
#include "tran/verbs/verbs_priv.h"

#include "base/copy.h"

#include <stdlib.h>

struct verbs_op *rpwi_verbs_op_new(struct verbs_ep *ep, enum verbs_op_kind kind, void *cookie)
{
	struct verbs *t = ep->t;
	struct verbs_op *op = t->free_ops;
	if (op) {
		t->free_ops = (struct verbs_op *)(void *)op->link.next;
		t->free_op_count--;
	} else if (!(op = malloc(sizeof(*op)))) {
		return NULL;
	}
	*op = (struct verbs_op){.kind = kind, .cookie = cookie};
	rpwi_list_add_tail(&ep->ops, &op->link);
	ep->op_count++;
	return op;
}

static void op_free(struct verbs_ep *ep, struct verbs_op *op)
{
	struct verbs *t = ep->t;
	rpwi_list_del(&op->link);
	ep->op_count--;
	if (op->mr)
		ep->p->v->ibv_dereg_mr(op->mr);
	if (op->slot)
		verbs_slot_put(&ep->p->tx, op->slot);
	if (t->free_op_count >= VERBS_OPS_KEPT) {
		free(op);
		return;
	}
	op->link.next = (struct rpwi_list *)(void *)t->free_ops;
	t->free_ops = op;
	t->free_op_count++;
}

void rpwi_verbs_ops_free(struct verbs *t)
{
	while (t->free_ops) {
		struct verbs_op *op = t->free_ops;
		t->free_ops = (struct verbs_op *)(void *)op->link.next;
		free(op);
	}
}

void rpwi_verbs_ops_drop(struct verbs_ep *ep)
{
	struct rpwi_list *lists[] = {&ep->ops, &ep->inflight};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		while (!rpwi_list_empty(lists[i]))
			op_free(ep,
				RPWI_CONTAINER_OF(rpwi_list_pop(lists[i]), struct verbs_op, link));
}

void rpwi_verbs_op_done(struct verbs_ep *ep, struct verbs_op *op, int status)
{
	void *cookie = op->cookie;
	/* it is short, and the program may poll it */
	if (status == RPW_OK && op->slot && op->kind == VERBS_OP_GET)
		rpwi_copy_up(op->local, op->slot->buf, op->len);
	if (status == RPW_OK && op->slot && op->before)
		memcpy(op->before, op->slot->buf, 8);
	if (status == RPW_OK && op->kind == VERBS_OP_FLUSH)
		ep->flushed = op->changes;
	op_free(ep, op);
	ep->t->base.up->done(ep->base.user, cookie, status ? rpwi_last_error() : NULL);
}

void rpwi_verbs_op_retired(struct verbs_ep *ep, struct verbs_op *op, int status)
{
	op->out--;
	if (status != RPW_OK)
		op->out = 0;
	if (status != RPW_OK || (!op->out && op->posted == op->len))
		rpwi_verbs_op_done(ep, op, status);
}

void rpwi_verbs_op_refused(
	struct verbs_ep *ep, const struct verbs_op *op, enum ibv_wc_status status)
{
	bool ours = status == IBV_WC_LOC_PROT_ERR;
	const char *device = ours ? "our own device" : "the peer's device ";
	rpwi_fail(RPW_ERR_ACCESS,
		"verbs: %s%s refused the access to %llu bytes (%s): outside of what is registered, "
		"or the memory was released",
		device, ours ? "" : ep->remote.name, (unsigned long long)op->len,
		ep->p->v->ibv_wc_status_str(status));
}

bool rpwi_verbs_ops_again(struct verbs_ep *ep, bool certain)
{
	if (!rpwi_list_empty(&ep->ops)) {
		struct verbs_op *first = RPWI_CONTAINER_OF(ep->ops.next, struct verbs_op, link);
		first->posted = first->out = 0; /* it may have been posted in part */
	}
	while (!rpwi_list_empty(&ep->inflight)) {
		struct verbs_op *op = RPWI_CONTAINER_OF(ep->inflight.prev, struct verbs_op, link);
		if (!certain && (op->kind == VERBS_OP_ADD || op->kind == VERBS_OP_SWAP)) {
			rpwi_verbs_ep_fail(ep, RPW_ERR_SYSTEM,
				"the peer broke the queue pair with an access that was refused, "
				"and whether an atomic operation of ours took effect is not "
				"known");
			return false;
		}
		op->posted = op->out = 0;
		rpwi_list_del(&op->link);
		rpwi_list_add_tail(ep->ops.next, &op->link); /* before the first one */
	}
	return true;
}
