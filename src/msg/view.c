/* SPDX-License-Identifier: BSD-3-Clause */
/* view.c - views: messages that the program reads where they are. A loan's header is checked
 * here, from memory of this process's own, and once. */
#include "msg/endpoint.h"
#include "msg/loan.h"
#include "msg/request.h"

#include <stdlib.h>

enum { VIEW_SIZE_MIN = sizeof(rpw_view), IDLE_MOST = 64 };

/* What a view of the program's refers to. It goes with the view, or lives on among the idle ones:
 * then its number is 0, so that a view that is released twice is noticed. */
struct view {
	struct rpwi_list in; /* c->views; idle: c->idle_views */
	rpw_context *c;      /* NULL: it was destroyed */
	rpw_endpoint *ep;    /* likewise */
	uint64_t number, born;
	struct loan_come loan; /* seen NULL: not loaned */
	void *owned;
};

/* ---- what came ---- */

int loan_come_make(rpw_endpoint *ep, const void *body, size_t len, struct loan_come *out)
{
	struct loan_body b;
	if (len != sizeof(b))
		return rpwi_fail(RPW_ERR_PROTOCOL, "a loan with a body of %zu bytes", len);
	memcpy(&b, body, sizeof(b));
	const struct tran_loan_ops *ops = ep->link.ops->loan;
	if (!ops)
		return rpwi_fail(
			RPW_ERR_PROTOCOL, "a loan, which %s cannot carry", ep->link.ops->name);
	struct tran_seen *seen = NULL;
	int rc = ops->find(ep->link.te, b.pool, b.generation, &seen);
	if (rc)
		return rc;
	if (b.slot >= seen->slots || b.len > seen->slot_bytes || !b.number)
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"a loan of %llu bytes in slot %u of a pool of %u slots of %zu bytes",
			(unsigned long long)b.len, b.slot, seen->slots, seen->slot_bytes);
	seen->refs++;
	*out = (struct loan_come){
		.seen = seen, .ops = ops, .number = b.number, .len = b.len, .slot = b.slot};
	return 0;
}

static void loan_come_forget(const struct loan_come *m)
{
	if (!--m->seen->refs)
		m->ops->forget(m->seen);
}

/* Everything that was read of it, was read before. */
void loan_come_give_back(const struct loan_come *m)
{
	atomic_store_explicit(&m->seen->returned[m->slot], m->number, memory_order_release);
	loan_come_forget(m);
}

/* ---- views ---- */

int view_check(const rpw_view *v, const char *call)
{
	if (!v)
		return msg_wrong(call, "the view is NULL");
	if (v->size < VIEW_SIZE_MIN)
		return rpwi_fail(RPW_ERR_INVALID,
			"%s: rpw_view.size is %zu, at least %d is needed: begin with RPW_VIEW_INIT",
			call, v->size, VIEW_SIZE_MIN);
	return RPW_OK;
}

static struct view *view_new(rpw_endpoint *ep)
{
	rpw_context *c = ep->c;
	struct view *v;
	if (RPWI_LIKELY(!rpwi_list_empty(&c->idle_views))) {
		v = RPWI_CONTAINER_OF(c->idle_views.next, struct view, in);
		rpwi_list_del(&v->in);
		c->idle_view_count--;
	} else {
		v = malloc(sizeof(*v));
		if (!v)
			return NULL;
		rpwi_list_init(&v->in);
		v->born = c->born_here;
	}
	v->c = c;
	v->ep = ep;
	v->number = ++c->loan_numbers;
	v->loan.seen = NULL;
	v->owned = NULL;
	rpwi_list_add_tail(&c->views, &v->in);
	return v;
}

static void view_give(
	rpw_view *out, struct view *v, void *data, size_t len, bool loaned, bool writable)
{
	out->data = data;
	out->length = len;
	out->loaned = loaned;
	out->writable = writable;
	out->holder = v;
	out->number = v->number;
}

void view_wanted(rpw_endpoint *ep, size_t len, bool view)
{
	if (RPWI_LIKELY(ep->views_said == view) || len <= EAGER_SMALL || len > ep->eager_max ||
		!ep->link.te || !ep->link.ops->loan)
		return;
	const struct frame f = {.type = FRAME_CREDIT, .flags = view ? CREDIT_VIEWS : CREDIT_COPIES};
	if (!link_send(&ep->link, &f)) /* else with the next message */
		ep->views_said = view;
}

bool view_of_loan(rpw_endpoint *ep, rpw_view *out, const struct loan_come *m)
{
	struct view *v = view_new(ep);
	if (RPWI_UNLIKELY(!v))
		return false;
	v->loan = *m;
	ep->view_bytes += m->seen->slot_bytes;
	view_give(out, v, loan_come_data(m), m->len, true, m->seen->writable);
	return true;
}

bool view_of_memory(rpw_endpoint *ep, rpw_view *out, void *owned, void *data, size_t len)
{
	struct view *v = view_new(ep);
	view_wanted(ep, len, true);
	if (!v)
		return false;
	v->owned = owned;
	view_give(out, v, data, len, false, true);
	return true;
}

bool view_room(rpw_request *r, size_t len)
{
	enum { ALIGN = TRAN_LOAN_ALIGN };
	rpw_view *view = (rpw_view *)r->buf;
	size_t whole = (len + ALIGN) & ~(size_t)(ALIGN - 1);
	void *p = len <= SIZE_MAX / 2 ? aligned_alloc(ALIGN, whole) : NULL;
	if (!p)
		return false;
	r->view = view;
	r->bounce = r->buf = p;
	r->len = len;
	return true;
}

bool view_own(rpw_request *r, rpw_endpoint *ep, size_t len)
{
	void *p = r->bounce;
	r->bounce = NULL;
	if (view_of_memory(ep, r->view, p, p, len))
		return true;
	free(p);
	return false;
}

int rpw_view_release(rpw_view *view)
{
	if (view_check(view, "rpw_view_release"))
		return RPW_ERR_INVALID;
	struct view *v = view->holder;
	if (!v || v->number != view->number)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_view_release: this view was released before, or never filled");
	view->data = view->holder = NULL;
	v->number = 0;
	if (RPWI_LIKELY(v->loan.seen != NULL)) {
		if (v->ep)
			v->ep->view_bytes -= v->loan.seen->slot_bytes;
		/* in a forked child it is the parent's to give back */
		if (RPWI_LIKELY(rpwi_is_ours(v->born)))
			loan_come_give_back(&v->loan);
		else
			loan_come_forget(&v->loan);
	}
	free(v->owned);
	rpwi_list_del(&v->in);
	if (v->c && v->c->idle_view_count < IDLE_MOST) {
		v->c->idle_view_count++;
		rpwi_list_add_tail(v->c->idle_views.next, &v->in);
	} else
		free(v);
	return RPW_OK;
}

void view_endpoint_gone(rpw_endpoint *ep)
{
	RPWI_LIST_EACH (struct view, v, &ep->c->views, in)
		if (v->ep == ep)
			v->ep = NULL;
}

void view_context_gone(rpw_context *c)
{
	RPWI_LIST_EACH_SAFE (struct view, v, next, &c->views, in) {
		rpwi_list_del(&v->in);
		v->c = NULL;
		v->ep = NULL;
	}
	while (!rpwi_list_empty(&c->idle_views)) {
		struct view *v = RPWI_CONTAINER_OF(c->idle_views.next, struct view, in);
		rpwi_list_del(&v->in);
		free(v);
	}
}
