/* SPDX-License-Identifier: BSD-3-Clause */
/* many.c - many receives, or sends, as one operation: one object of Python's for all of them. */
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
		ctx_event(op->ctx, &op->event, EV_DONE);
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

static int post_one(Context *ctx, Endpoint *ep, struct many_one *one, uint64_t mask, bool receive)
{
	rpw_request *r = NULL;
	int rc = receive ? rpw_recv(ctx->c, ep ? end_ep(ep->end) : NULL, one->held.ptr,
				   one->held.len, one->tag, mask, &r)
			 : rpw_send(end_ep(ep->end), one->held.ptr, one->held.len, one->tag, &r);
	if (rc < 0)
		return rc;
	one->op->many->left++;
	if (!r)
		one->op->many->left--;
	else {
		one->req = r;
		rpw_request_on_done(r, one_done, one);
	}
	return 0;
}

static int ones_fill(Context *ctx, Operation *op, PyObject *bufs, PyObject *tags)
{
	struct many *m = op->many;
	size_t n = (size_t)PyList_Size(bufs);
	uint64_t tag = 0;
	PyObject *list = NULL;
	if (tags && !PyLong_Check(tags)) {
		list = PySequence_Tuple(tags);
		if (!list)
			return -1;
		if ((size_t)PyTuple_Size(list) != n) {
			PyErr_Format(PyExc_ValueError, "%zu buffers, and %zd tags", n,
				PyTuple_Size(list));
			Py_DECREF(list);
			return -1;
		}
	} else if (args_u64(tags, "the tag", &tag))
		return -1;
	m->one = calloc(n ? n : 1, sizeof(*m->one));
	if (!m->one) {
		Py_XDECREF(list);
		PyErr_NoMemory();
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		struct many_one *one = &m->one[i];
		one->op = op;
		one->tag = tag;
		if ((list &&
			    args_u64(PyTuple_GetItem(list, (Py_ssize_t)i), "the tag", &one->tag)) ||
			held_get(ctx, PyList_GetItem(bufs, (Py_ssize_t)i), m->receives,
				&one->held)) {
			Py_XDECREF(list);
			return -1;
		}
		m->n = i + 1;
		if (one->held.len >= LARGE && !op->large) {
			op->large = true;
			ctx->large++;
		}
	}
	Py_XDECREF(list);
	return 0;
}

PyObject *many_post(Context *ctx, Endpoint *ep, bool receives, PyObject *const *args,
	Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"bufs", "tags", "mask"};
	PyObject *a[3];
	uint64_t mask = UINT64_MAX;
	if (args_get(receives ? "recv_many" : "send_many", names, receives ? 3 : 2, 1, args, nargs,
		    kwnames, a) ||
		(receives && args_u64(a[2], "the mask", &mask)))
		return NULL;
	PyObject *bufs = PySequence_List(a[0]);
	if (!bufs)
		return NULL;
	Operation *op = op_take(ctx, ep, OP_MANY);
	if (!op || !(op->many = calloc(1, sizeof(*op->many)))) {
		Py_XDECREF(op);
		Py_DECREF(bufs);
		return PyErr_NoMemory();
	}
	op->many->receives = receives;
	int rc = ones_fill(ctx, op, bufs, a[1]);
	Py_DECREF(bufs);
	/* what ones_fill ran of the program's may have closed it */
	if (rc || !ctx_enter(ctx) || (ep && !endpoint_open(ep)))
		goto fail;
	struct many *m = op->many;
	op->posting = true;
	for (size_t i = 0; i < m->n && rc >= 0; i++)
		rc = post_one(ctx, ep, &m->one[i], mask, receives);
	op->posting = false;
	if (rc < 0) {
		op->status = rc;
		free(op->sentence);
		op->sentence = strdup(rpw_last_error());
		if (m->left == 0) { /* nothing is under way */
			op_finish(op, false);
			return (PyObject *)op;
		}
		many_cancel(m);
	}
	if (!m->left) {
		op_finish(op, false);
		ctx_turn_soon(ctx);
		return (PyObject *)op;
	}
	Py_INCREF(op);
	op->under_way = true;
	link_last(&ctx->under_way, &op->link);
	if (!ctx_turn_soon(ctx))
		return (PyObject *)op;
	Py_DECREF(op);
	return NULL;
fail:
	if (op->large) {
		op->large = false;
		ctx->large--;
	}
	many_release(op->many);
	Py_DECREF(op);
	return NULL;
}
