/* SPDX-License-Identifier: BSD-3-Clause */
/* many.c - many receives or sends as one operation of Python's: how they complete. */
#include "core.h"

static void one_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct many_one *one = arg;
	Operation *op = one->op;
	one->length = done->length;
	one->tag = done->tag;
	if (done->from && (one->from = op->ep ? op->ep->end : rpw_endpoint_user(done->from)))
		end_ref(one->from);
	if (done->status < 0 && op->status >= 0) { /* the first error is its own */
		op->status = done->status;
		op->length = done->length;
		op->sentence = strdup(rpw_last_error());
	}
	one->req = NULL;
	rpw_request_destroy(r);
	if (!--op->many->left && !op->posting)
		ctx_event(op->ctx, &op->event);
}

void many_follow(struct many_one *one, rpw_request *r)
{
	one->op->many->left++;
	one->req = r;
	rpw_request_on_done(r, one_done, one);
}

void many_release(struct many *m)
{
	for (size_t i = 0; i < m->n; i++)
		held_release(&m->one[i].held);
}

void many_free(struct many *m)
{
	many_release(m);
	for (size_t i = 0; i < m->n; i++)
		if (m->one[i].from)
			end_unref(m->one[i].from);
	free(m->one);
	free(m);
}

void many_collect(struct many *m)
{
	for (size_t i = 0; i < m->n; i++) {
		struct many_one *one = &m->one[i];
		if (!one->req || rpw_request_test(one->req, NULL) == RPW_IN_PROGRESS)
			continue;
		one->op->posting = true;
		rpw_request_on_done(one->req, one_done, one);
		one->op->posting = false;
	}
}

void many_cancel(struct many *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->one[i].req)
			rpw_request_cancel(m->one[i].req);
	many_collect(m);
}

PyObject *many_result(struct many *m)
{
	if (!m->receives)
		Py_RETURN_NONE;
	PyObject *list = PyList_New((Py_ssize_t)m->n);
	for (size_t i = 0; list && i < m->n; i++) {
		struct many_one *one = &m->one[i];
		PyObject *r = received_new(one->length, one->tag, one->from);
		if (!r || PyList_SetItem(list, (Py_ssize_t)i, r))
			Py_CLEAR(list);
	}
	return list;
}
