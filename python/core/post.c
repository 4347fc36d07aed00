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

PyObject *recv_post(Context *ctx, Endpoint *ep, PyObject *const a[3])
{
	uint64_t tag = 0, mask = UINT64_MAX;
	rpw_request *r = NULL;
	if (args_u64(a[1], "the tag", &tag) || args_u64(a[2], "the mask", &mask) ||
		!is_open(ctx, ep))
		return NULL;
	Operation *op = op_take(ctx, ep, OP_RECV);
	if (!op)
		return NULL;
	/* the buffer comes from the program's code, which may close them */
	if (held_get(ctx, a[0], true, &op->held) || !is_open(ctx, ep)) {
		held_release(&op->held);
		Py_DECREF(op);
		return NULL;
	}
	int rc = rpw_recv(ctx->c, c_endpoint(ep), op->held.ptr, op->held.len, tag, mask, &r);
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

/* ---- several at once ---- */

static int post_one(Context *ctx, Endpoint *ep, struct many_one *one, uint64_t mask, bool receive)
{
	rpw_request *r = NULL;
	int rc = receive ? rpw_recv(ctx->c, c_endpoint(ep), one->held.ptr, one->held.len, one->tag,
				   mask, &r)
			 : rpw_send(end_ep(ep->end), one->held.ptr, one->held.len, one->tag, &r);
	if (rc < 0)
		return rc;
	if (r)
		many_follow(one, r);
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
		op_weighed(op, one->held.len);
	}
	Py_XDECREF(list);
	return 0;
}

static PyObject *post_many(
	PyObject *self, bool receives, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"bufs", "tags", "mask"};
	PyObject *a[3];
	uint64_t mask = UINT64_MAX;
	Endpoint *ep;
	Context *ctx = owner_of(self, &ep);
	if (args_get(receives ? "recv_many" : "send_many", names, receives ? 3 : 2, 1, args, nargs,
		    kwnames, a) ||
		(receives && args_u64(a[2], "the mask", &mask)) || !is_open(ctx, ep))
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
	if (rc || !is_open(ctx, ep))
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
	op_not_large(op);
	many_release(op->many);
	Py_DECREF(op);
	return NULL;
}

PyObject *post_recv_many(FAST_ARGS) { return post_many(self, true, args, nargs, kwnames); }
PyObject *post_send_many(FAST_ARGS) { return post_many(self, false, args, nargs, kwnames); }

/* ---- objects ---- */

static void *object_room(Operation *op, size_t len)
{
	Context *ctx = op->ctx;
	PyObject *o = op->allocator ? PyObject_CallFunction(op->allocator, "n", (Py_ssize_t)len)
				    : PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)len);
	if (!o || held_get(ctx, o, true, &op->held)) {
		Py_XDECREF(o);
		return NULL;
	}
	op->object = o;
	if (op->held.len < len) {
		PyErr_Format(PyExc_ValueError,
			"the allocator was asked for %zu bytes, and gave a buffer of %zu", len,
			op->held.len);
		return NULL;
	}
	op_weighed(op, len);
	return op->held.ptr ? op->held.ptr : op; /* any place will do for no bytes */
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
	if (args_get("recv_obj", names, 1, 0, args, nargs, kwnames, &allocator) ||
		!is_open(ctx, ep))
		return NULL;
	if (allocator == Py_None || allocator == (PyObject *)&PyByteArray_Type)
		allocator = NULL;
	if (allocator && !PyCallable_Check(allocator)) {
		PyErr_SetString(PyExc_TypeError, "the allocator has to be a function of a size");
		return NULL;
	}
	Operation *op = op_take(ctx, ep, OP_OBJECT);
	if (!op)
		return NULL;
	Py_XINCREF(allocator);
	op->allocator = allocator;
	bool busy = ctx->busy;
	ctx->busy = true; /* the allocator may be called now, and may let other threads run */
	ctx->thread = PyThread_get_thread_ident();
	int rc = rpw_recv_obj(
		ctx->c, c_endpoint(ep), object_alloc, op, &op->object_buf, &op->object_len, &r);
	ctx->busy = busy;
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
