/* SPDX-License-Identifier: BSD-3-Clause */
/* post.c - operations that contexts and endpoints both have: receives, batches, objects, probes. */
#include "core.h"

/* The methods here belong to both types. For a context `ep` is NULL: any endpoint. */
static Context *owner_of(PyObject *self, Endpoint **ep)
{
	*ep = PyObject_TypeCheck(self, (PyTypeObject *)endpoint_type) ? (Endpoint *)self : NULL;
	return *ep ? (*ep)->ctx : (Context *)self;
}

static rpw_endpoint *c_endpoint(const Endpoint *ep) { return ep ? end_ep(ep->end) : NULL; }

static bool is_open(Context *ctx, Endpoint *ep)
{
	return ctx_enter(ctx) && (!ep || endpoint_open(ep));
}

Operation *post_begin(Context *ctx, Endpoint *ep, enum op_kind kind, PyObject *buf, bool writable)
{
	Operation *op = is_open(ctx, ep) ? op_take(ctx, ep, kind) : NULL;
	if (!op || !buf)
		return op;
	/* what gives the buffer is the program's, and may close them */
	if (!held_get(ctx, buf, writable, &op->one.held) &&
		(ep ? endpoint_open(ep) : ctx_enter(ctx)))
		return op;
	Py_DECREF(op);
	return NULL;
}

PyObject *recv_post(Context *ctx, Endpoint *ep, PyObject *const a[3])
{
	uint64_t tag = 0, mask = UINT64_MAX;
	rpw_request *r = NULL;
	if (args_u64(a[1], "the tag", &tag) || args_u64(a[2], "the mask", &mask))
		return NULL;
	Operation *op = post_begin(ctx, ep, OP_RECV, a[0], true);
	if (!op)
		return NULL;
	int rc =
		rpw_recv(ctx->c, c_endpoint(ep), op->one.held.ptr, op->one.held.len, tag, mask, &r);
	return op_posted(op, rc, r);
}

PyObject *post_recv(FAST_ARGS)
{
	static const char *const names[] = {"buf", "tag", "mask"};
	PyObject *a[3];
	Endpoint *ep;
	Context *ctx = owner_of(self, &ep);
	if (args_get("recv", names, 3, 1, args, nargs, kwnames, a))
		return NULL;
	return recv_post(ctx, ep, a);
}

PyObject *post_recv_view(FAST_ARGS)
{
	static const char *const names[] = {"tag", "mask"};
	PyObject *a[2];
	uint64_t tag = 0, mask = UINT64_MAX;
	rpw_request *r = NULL;
	rpw_view *view = NULL;
	Endpoint *ep;
	Context *ctx = owner_of(self, &ep);
	if (args_get("recv_view", names, 2, 0, args, nargs, kwnames, a) ||
		args_u64(a[0], "the tag", &tag) || args_u64(a[1], "the mask", &mask))
		return NULL;
	Operation *op = post_begin(ctx, ep, OP_VIEW, NULL, false);
	if (!op)
		return NULL;
	op->object = view_begin(ctx, &view);
	if (!op->object) {
		Py_DECREF(op);
		return NULL;
	}
	int rc = rpw_recv_view(ctx->c, c_endpoint(ep), tag, mask, view, &r);
	return op_posted(op, rc, r);
}

/* ---- several at once ---- */

static int part_post(struct part *part, uint64_t mask)
{
	const Operation *op = part->op;
	const struct held *h = &part->held;
	rpw_endpoint *ep = c_endpoint(op->ep);
	rpw_request *r = NULL;
	int rc = op->kind == OP_RECVS
			 ? rpw_recv(op->ctx->c, ep, h->ptr, h->len, part->tag, mask, &r)
			 : rpw_send(ep, h->ptr, h->len, part->tag, &r);
	if (rc >= 0 && r)
		part_follow(part, r);
	return rc;
}

static int parts_fill(Operation *op, PyObject *bufs, PyObject *tags)
{
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
	struct part *parts = calloc(n ? n : 1, sizeof(*parts));
	if (parts)
		op->parts = parts;
	else
		PyErr_NoMemory();
	int rc = parts ? 0 : -1;
	op->n = 0;
	for (Py_ssize_t i = 0; !rc && i < (Py_ssize_t)n; i++) {
		struct part *part = &parts[i];
		part->op = op;
		part->tag = tag;
		if ((list && args_u64(PyTuple_GetItem(list, i), "the tag", &part->tag)) ||
			held_get(op->ctx, PyList_GetItem(bufs, i), op->kind == OP_RECVS,
				&part->held)) {
			rc = -1;
			break;
		}
		op->n++;
		op_weighed(op, part->held.len);
	}
	Py_XDECREF(list);
	return rc;
}

static PyObject *post_many(
	PyObject *self, bool receives, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"bufs", "tags", "mask"};
	PyObject *a[3];
	uint64_t mask = UINT64_MAX;
	Endpoint *ep;
	Context *ctx = owner_of(self, &ep);
	const char *call = receives ? "recv_many" : "send_many";
	if (args_get(call, names, receives ? 3 : 2, 1, args, nargs, kwnames, a) ||
		(receives && args_u64(a[2], "the mask", &mask)) || !is_open(ctx, ep))
		return NULL;
	PyObject *bufs = PySequence_List(a[0]);
	if (!bufs)
		return NULL;
	Operation *op = op_take(ctx, ep, receives ? OP_RECVS : OP_SENDS);
	int rc = op ? parts_fill(op, bufs, a[1]) : -1;
	Py_DECREF(bufs);
	/* what parts_fill ran of the program's may have closed it */
	if (rc || !is_open(ctx, ep)) {
		if (op)
			op_not_large(op);
		Py_XDECREF(op);
		return NULL;
	}
	op->posting = true;
	for (size_t i = 0; i < op->n && rc >= 0; i++)
		rc = part_post(&op->parts[i], mask);
	op->posting = false;
	if (rc < 0) {
		op->status = rc;
		free(op->sentence);
		op->sentence = strdup(rpw_last_error());
		parts_cancel(op);
	}
	return op_begun(op);
}

PyObject *post_recv_many(FAST_ARGS) { return post_many(self, true, args, nargs, kwnames); }
PyObject *post_send_many(FAST_ARGS) { return post_many(self, false, args, nargs, kwnames); }

/* ---- objects ---- */

static void *object_room(Operation *op, size_t len)
{
	Context *ctx = op->ctx;
	PyObject *o = op->allocator ? PyObject_CallFunction(op->allocator, "n", (Py_ssize_t)len)
				    : PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)len);
	if (!o || held_get(ctx, o, true, &op->one.held)) {
		Py_XDECREF(o);
		return NULL;
	}
	op->object = o;
	if (op->one.held.len < len)
		return PyErr_Format(PyExc_ValueError,
			"the allocator was asked for %zu bytes, and gave a buffer of %zu", len,
			op->one.held.len);
	op_weighed(op, len);
	return op->one.held.ptr ? op->one.held.ptr : op; /* any place will do for no bytes */
}

/* From inside of the library, which fills what this gives: the one place where it calls Python. */
static void *object_alloc(size_t len, void *arg)
{
	Operation *op = arg;
	Context *ctx = op->ctx;
	PyThreadState *released = ctx->released;
	if (released) {
		ctx->released = NULL;
		PyEval_RestoreThread(released);
	}
	void *room = op->state == OP_PENDING ? object_room(op, len) : NULL;
	if (!room && PyErr_Occurred()) {
		Py_XDECREF(op->error);
		op->error = raised_value();
	}
	if (released)
		ctx->released = PyEval_SaveThread();
	return room;
}

PyObject *post_recv_obj(FAST_ARGS)
{
	static const char *const names[] = {"allocator"};
	PyObject *allocator;
	rpw_request *r = NULL;
	Endpoint *ep;
	Context *ctx = owner_of(self, &ep);
	if (args_get("recv_obj", names, 1, 0, args, nargs, kwnames, &allocator))
		return NULL;
	if (allocator == Py_None || allocator == (PyObject *)&PyByteArray_Type)
		allocator = NULL;
	if (allocator && !PyCallable_Check(allocator))
		return PyErr_Format(
			PyExc_TypeError, "the allocator has to be a function of a size");
	Operation *op = post_begin(ctx, ep, OP_OBJECT, NULL, false);
	if (!op)
		return NULL;
	ref_set(&op->allocator, allocator);
	bool busy = ctx->busy;
	ctx->busy = true; /* the allocator may be called now, and may let other threads run */
	ctx->thread = PyThread_get_thread_ident();
	int rc = rpw_recv_obj(
		ctx->c, c_endpoint(ep), object_alloc, op, &op->object_buf, &op->object_len, &r);
	ctx->busy = busy;
	return op_posted(op, rc, r);
}

/* ---- loans ---- */

PyObject *endpoint_send_loan(FAST_ARGS)
{
	static const char *const names[] = {"loan", "tag", "nbytes"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[3];
	uint64_t tag = 0, n = 0;
	rpw_request *r = NULL;
	if (args_get("send_loan", names, 3, 1, args, nargs, kwnames, a) ||
		args_u64(a[1], "the tag", &tag) ||
		(a[2] && a[2] != Py_None && args_u64(a[2], "nbytes", &n)))
		return NULL;
	size_t len;
	if (!loan_of(a[0], &len))
		return NULL;
	if (!a[2] || a[2] == Py_None)
		n = len;
	if (n > len)
		return PyErr_Format(PyExc_ValueError, "%llu bytes of a loan of %zu",
			(unsigned long long)n, len);
	Operation *op = post_begin(ep->ctx, ep, OP_NONE, NULL, false);
	/* once more: to begin may run other code of the program */
	rpw_loaned *loan = op ? loan_of(a[0], &len) : NULL;
	if (!loan) {
		Py_XDECREF(op);
		return NULL;
	}
	int rc = rpw_send_loan(end_ep(ep->end), loan, (size_t)n, tag, &r);
	if (rc >= 0)
		loan_sent(a[0]);
	return op_posted(op, rc, r);
}

/* ---- a look ---- */

PyObject *post_probe(FAST_ARGS)
{
	static const char *const names[] = {"tag", "mask"};
	PyObject *a[2];
	uint64_t tag = 0, mask = UINT64_MAX;
	rpw_completion what = RPW_COMPLETION_INIT;
	Endpoint *ep;
	Context *ctx = owner_of(self, &ep);
	if (args_get("probe", names, 2, 0, args, nargs, kwnames, a) ||
		args_u64(a[0], "the tag", &tag) || args_u64(a[1], "the mask", &mask) ||
		!is_open(ctx, ep))
		return NULL;
	int rc = rpw_probe(ctx->c, c_endpoint(ep), tag, mask, &what);
	if (rc == RPW_IN_PROGRESS) { /* perhaps it has come, and nobody has looked */
		if (!ctx->busy && ctx_poll(ctx) < 0)
			return NULL;
		if (ctx_turn_soon(ctx))
			return NULL;
		rc = rpw_probe(ctx->c, c_endpoint(ep), tag, mask, &what);
	}
	if (rc < 0)
		return error_raise(rc, ep ? endpoint_peer(ep) : NULL);
	if (rc == RPW_IN_PROGRESS)
		Py_RETURN_NONE;
	return received_new(what.length, what.tag, what.from ? rpw_endpoint_user(what.from) : NULL);
}
