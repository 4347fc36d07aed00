/* SPDX-License-Identifier: BSD-3-Clause */
/* part.c - the requests that an operation is made of: one, or those of a batch; and their ends. */
#include "core.h"

/* From inside of the library; no Python here. */
static void part_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct part *part = arg;
	Operation *op = part->op;
	part->length = done->length;
	part->tag = done->tag;
	/* the endpoint that was asked, else the one that the library names, if still there */
	if (done->from && (part->from = op->ep ? op->ep->end : rpw_endpoint_user(done->from)))
		end_ref(part->from);
	if (done->status < 0 && op->status >= 0) { /* the first error is the operation's */
		op->status = done->status;
		op->length = done->length;
		op->sentence = strdup(rpw_last_error());
	}
	part->req = NULL;
	rpw_request_destroy(r);
	if (!--op->left && !op->posting)
		ctx_event(op->ctx, &op->event);
}

void part_follow(struct part *part, rpw_request *r)
{
	part->op->left++;
	part->req = r;
	rpw_request_on_done(r, part_done, part);
}

PyObject *part_received(const struct part *part)
{
	return received_new(part->length, part->tag, part->from);
}

void parts_forget(Operation *op)
{
	parts_release(op);
	for (size_t i = 0; i < op->n; i++)
		if (op->parts[i].from)
			end_unref(op->parts[i].from);
	if (op->parts != &op->one)
		free(op->parts);
}

/* Their callbacks wait for the next progress: now, then. */
void parts_collect(Operation *op)
{
	op->posting = true;
	for (size_t i = 0; i < op->n; i++) {
		struct part *part = &op->parts[i];
		if (part->req && rpw_request_test(part->req, NULL) != RPW_IN_PROGRESS)
			rpw_request_on_done(part->req, part_done, part);
	}
	op->posting = false;
}

int parts_cancel(Operation *op)
{
	int rc = 0;
	for (size_t i = 0; i < op->n; i++)
		if (op->parts[i].req && !rc)
			rc = rpw_request_cancel(op->parts[i].req);
	parts_collect(op);
	return rc;
}

PyObject *parts_received(const Operation *op)
{
	PyObject *list = PyList_New((Py_ssize_t)op->n);
	for (size_t i = 0; list && i < op->n; i++) {
		PyObject *r = part_received(&op->parts[i]);
		if (!r || PyList_SetItem(list, (Py_ssize_t)i, r))
			Py_CLEAR(list);
	}
	return list;
}
