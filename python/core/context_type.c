/* SPDX-License-Identifier: BSD-3-Clause */
/* context_type.c - the Python type of contexts. It calls all the other files, and none calls it. */
#include "core.h"

PyObject *context_type;

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
	Context *ctx = object_new((PyObject *)type);
	if (!ctx)
		return NULL;
	link_init(&ctx->events);
	link_init(&ctx->under_way);
	link_init(&ctx->handles);
	link_init(&ctx->graves);
	link_init(&ctx->all);
	Py_INCREF(endpoint_type);
	ctx->endpoint_class = endpoint_type;
	return (PyObject *)ctx;
}

static int context_init(PyObject *self, PyObject *args, PyObject *kw)
{
	char *names[] = {"loop", "transports", "key_file", "unexpected_bytes_max",
		"eager_bytes_max", "rdma_devices", "polled", "spin_us", "loan_bytes_max", NULL};
	Context *ctx = (Context *)self;
	PyObject *loop = Py_None;
	const char *transports = NULL, *key_file = NULL, *devices = NULL;
	Py_ssize_t unexpected = 0, eager = 0, loans = 0;
	int polled = 0, spin_us = 20;
	if (!PyArg_ParseTupleAndKeywords(args, kw, "|Ozz$nnzpin", names, &loop, &transports,
		    &key_file, &unexpected, &eager, &devices, &polled, &spin_us, &loans))
		return -1;
	if (ctx->fd)
		return fail(PyExc_RuntimeError, "__init__ of a context, a second time");
	if (unexpected < 0 || eager < 0 || loans < 0 || spin_us < 0 || spin_us > 20)
		return fail(PyExc_ValueError,
			spin_us < 0 || spin_us > 20
				? "spin_us is from 0 to 20 microseconds"
				: "a number of bytes cannot be negative (0: the default)");
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	o.transports = transports;
	o.key_file = key_file;
	o.unexpected_bytes_max = (size_t)unexpected;
	o.eager_bytes_max = (size_t)eager;
	o.rdma_devices = devices && *devices ? devices : NULL;
	o.polled = polled;
	o.loan_bytes_max = (size_t)loans;
	ctx->spin_ns = (uint64_t)spin_us * 1000;
	return ctx_open(ctx, &o, loop != Py_None ? loop : NULL);
}

static void context_finalize(PyObject *self)
{
	struct raised r = raised_take();
	if (!((Context *)self)->busy)
		ctx_close((Context *)self, true);
	raised_again(r);
}

static int context_traverse(PyObject *self, visitproc visit, void *arg)
{
	Context *ctx = (Context *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(ctx->loop);
	Py_VISIT(ctx->call_soon);
	Py_VISIT(ctx->ready);
	Py_VISIT(ctx->endpoint_class);
	Py_VISIT(ctx->spare);
	Py_VISIT(ctx->none);
	Py_VISIT(ctx->on_notify);
	for (int i = 0; ctx->am && i < RPW_AM_IDS; i++)
		Py_VISIT(ctx->am[i].fn);
	for (struct link *l = ctx->under_way.next; l && l != &ctx->under_way; l = l->next)
		Py_VISIT(OF_LINK(l, Operation, link));
	return 0;
}

static int context_clear(PyObject *self)
{
	Context *ctx = (Context *)self;
	Py_CLEAR(ctx->on_notify);
	for (int i = 0; ctx->am && i < RPW_AM_IDS; i++)
		Py_CLEAR(ctx->am[i].fn);
	Py_CLEAR(ctx->call_soon);
	Py_CLEAR(ctx->ready);
	Py_CLEAR(ctx->loop);
	return 0;
}

static void context_dealloc(PyObject *self)
{
	Context *ctx = (Context *)self;
	PyObject_GC_UnTrack(self);
	ctx_end(ctx, true); /* of a subclass's it has ended: tp_finalize */
	context_clear(self);
	free(ctx->am);
	Py_CLEAR(ctx->endpoint_class);
	Py_CLEAR(ctx->spare);
	Py_CLEAR(ctx->none);
	object_free(self);
}

/* ---- methods ---- */

static PyObject *context_close(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	if (!ctx->c)
		Py_RETURN_NONE;
	if (!ctx_enter(ctx))
		return NULL;
	if (ctx->busy)
		return PyErr_Format(PyExc_RuntimeError,
			"close() of a context from inside of an allocator: return from it first");
	if (ctx_close(ctx, false))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *context_attach(PyObject *self, PyObject *loop)
{
	Context *ctx = (Context *)self;
	if (!ctx->c)
		return ctx_enter(ctx), NULL;
	if (ctx->loop == loop)
		Py_RETURN_NONE;
	if (ctx->busy || (ctx->loop && !ctx->attached))
		return PyErr_Format(PyExc_RuntimeError,
			ctx->busy ? "attach() while another thread, or an allocator, is inside"
				  : "attach() of a context that was made with a loop: make it "
				    "without one");
	if (ctx_attach(ctx, loop))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *context_detach(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	if (ctx->c && ctx->attached)
		ctx_detach(ctx);
	Py_RETURN_NONE;
}

static PyObject *context_progress(FAST_ARGS)
{
	static const char *const names[] = {"max"};
	Context *ctx = (Context *)self;
	PyObject *a;
	uint64_t max = BATCH_MAX;
	if (args_get("progress", names, 1, 0, args, nargs, kwnames, &a) ||
		args_u64(a, "max", &max) || !ctx_enter(ctx))
		return NULL;
	if (max > BATCH_MAX)
		max = BATCH_MAX;
	int n = ctx_poll(ctx);
	int out = n < 0 ? -1 : ctx_hand_out(ctx, (int)max);
	if (out < 0)
		return NULL;
	if (ctx->c && ctx_turn_soon(ctx))
		return NULL;
	return PyLong_FromLong(n > out ? n : out);
}

static PyObject *context_arm(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	if (!ctx_enter(ctx))
		return NULL;
	int rc = link_alone(&ctx->events) ? rpw_context_arm(ctx->c) : RPW_IN_PROGRESS;
	if (rc < 0)
		return error_raise(rc, NULL);
	if (rc)
		ctx->woken = false;
	return PyBool_FromLong(rc == RPW_OK);
}

static PyObject *context_wait(FAST_ARGS)
{
	static const char *const names[] = {"timeout"};
	Context *ctx = (Context *)self;
	PyObject *a;
	uint64_t deadline;
	if (args_get("wait", names, 1, 0, args, nargs, kwnames, &a) ||
		args_deadline(a, &deadline) || !ctx_enter(ctx))
		return NULL;
	int rc = ctx_wait(ctx, NULL, deadline);
	return rc < 0 ? NULL : PyBool_FromLong(rc);
}

static PyObject *context_wake(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	if (ctx->c) {
		ctx->woken = true;
		rpw_context_wake(ctx->c);
	}
	Py_RETURN_NONE;
}

static PyObject *context_connect(FAST_ARGS)
{
	static const char *const names[] = {"address", "transports", "timeout", "retry"};
	Context *ctx = (Context *)self;
	PyObject *a[4];
	if (args_get("_connect", names, 4, 1, args, nargs, kwnames, a) || !ctx_enter(ctx))
		return NULL;
	const char *address = PyUnicode_AsUTF8AndSize(a[0], NULL);
	rpw_endpoint_options o = RPW_ENDPOINT_OPTIONS_INIT;
	if (!address)
		return NULL;
	if (a[1] && a[1] != Py_None && !(o.transports = PyUnicode_AsUTF8AndSize(a[1], NULL)))
		return NULL;
	double timeout = a[2] && a[2] != Py_None ? PyFloat_AsDouble(a[2]) : 10;
	if (timeout == -1 && PyErr_Occurred())
		return NULL;
	if (!(timeout > 0) || timeout > 4e6)
		return PyErr_Format(PyExc_ValueError,
			"the timeout of a connection is more than 0 and at most 4,000,000 s, not "
			"%R",
			a[2]);
	int retry = a[3] ? PyObject_IsTrue(a[3]) : 1;
	if (retry < 0)
		return NULL;
	o.once = !retry;
	o.timeout_ms = (unsigned)(timeout * 1e3);
	if (!o.timeout_ms)
		o.timeout_ms = 1;
	Operation *op = op_take(ctx, NULL, OP_NONE);
	if (!op)
		return NULL;
	rpw_endpoint *c_ep;
	rpw_request *r = NULL;
	int rc = rpw_endpoint_create(ctx->c, address, &o, &c_ep, &r);
	if (rc < 0)
		return op_posted(op, rc, NULL);
	struct end *e = end_new(ctx, c_ep);
	PyObject *ep = e ? endpoint_make(ctx, e) : NULL;
	if (!ep) {
		rpw_request_destroy(r);
		if (e)
			handle_drop(ctx, &e->handle);
		else
			rpw_endpoint_destroy(c_ep);
		Py_DECREF(op);
		return e ? NULL : PyErr_NoMemory();
	}
	Py_INCREF(ep);
	op->ep = (Endpoint *)ep;
	PyObject *posted = op_posted(op, rc, r);
	PyObject *pair = posted ? PyTuple_Pack(2, ep, posted) : NULL;
	Py_XDECREF(posted);
	Py_DECREF(ep);
	return pair;
}

static PyObject *context_statistics(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	rpw_statistics s = RPW_STATISTICS_INIT;
	if (!ctx_enter(ctx))
		return NULL;
	int rc = rpw_context_statistics(ctx->c, &s);
	if (rc < 0)
		return error_raise(rc, NULL);
	typedef unsigned long long u64;
	return Py_BuildValue("KKKKKKKKKIIII", (u64)s.sent, (u64)s.received, (u64)s.bytes_sent,
		(u64)s.bytes_received, (u64)s.unexpected, (u64)s.unexpected_bytes,
		(u64)s.waited_for_room, (u64)s.strangers_refused, (u64)s.path_changes, s.endpoints,
		s.listeners, s.requests, s.unsent);
}

static PyObject *get_closed(PyObject *self, void *unused)
{
	return PyBool_FromLong(!((Context *)self)->c);
}
static PyObject *get_fd(PyObject *self, void *unused)
{
	Context *ctx = (Context *)self;
	return ctx->c ? PyLong_FromLong(ctx->fd) : (ctx_enter(ctx), NULL);
}
static PyObject *get_class(PyObject *self, void *unused)
{
	return Py_NewRef(((Context *)self)->endpoint_class);
}
static int set_class(PyObject *self, PyObject *value, void *unused)
{
	Context *ctx = (Context *)self;
	if (!value || !PyType_Check(value) ||
		!PyType_IsSubtype((PyTypeObject *)value, (PyTypeObject *)endpoint_type))
		return fail(PyExc_TypeError, "endpoint_class has to be a subclass of Endpoint");
	ref_set(&ctx->endpoint_class, value);
	return 0;
}

static PyMethodDef context_methods[] = {
	{"close", context_close, METH_NOARGS,
		"Closes what is left in it without waiting for anybody: flush() or shutdown() "
		"first "
		"where that matters."},
	{"attach", context_attach, METH_O,
		"attach(loop)\n--\n\nFrom now on this loop moves it, and the calling thread is its "
		"own. For a context that was made without a loop, again and again: it outlives "
		"each. "
		"Call it in the loop's thread, when the loop before does not run any more."},
	{"detach", context_detach, METH_NOARGS,
		"Undoes attach(): it has no loop until the next one."},
	{"progress", FAST(context_progress),
		"progress(max=4096)\n--\n\nMoves things on and hands out what is complete; never "
		"blocks. Gives how many things happened."},
	{"arm", context_arm, METH_NOARGS,
		"Before sleeping on `fd`. True: it is armed; False: there is something to do, "
		"progress() first."},
	{"wait", FAST(context_wait),
		"wait(timeout=None)\n--\n\nBlocks until something was handed out, `timeout` "
		"seconds at "
		"most. False: time is up, or wake() was called."},
	{"wake", context_wake, METH_NOARGS,
		"Ends a wait of the context's thread. From any thread."},
	{"recv", FAST(post_recv),
		"recv(buf, tag=0, mask=ALL)\n--\n\nAs Endpoint.recv, from any endpoint; "
		"Received.endpoint says from which."},
	{"recv_view", FAST(post_recv_view),
		"recv_view(tag=0, mask=ALL)\n--\n\nFrom any endpoint; see Endpoint.recv_view."},
	{"recv_many", FAST(post_recv_many),
		"recv_many(bufs, tags=0, mask=ALL)\n--\n\nAs Endpoint.recv_many, from any "
		"endpoint."},
	{"recv_obj", FAST(post_recv_obj),
		"recv_obj(allocator=bytearray)\n--\n\nAs Endpoint.recv_obj, from any endpoint; the "
		"operation's `received.endpoint` says from which."},
	{"probe", FAST(post_probe),
		"probe(tag=0, mask=ALL)\n--\n\nAs Endpoint.probe, of any endpoint."},
	{"on_am", (PyCFunction)(void (*)(void))context_on_am, METH_FASTCALL,
		"on_am(id, fn)\n--\n\nfn(endpoint, header, data) is called for active messages of "
		"this "
		"id (0 to 255), in the order sent.\ndata: bytes up to 4 KiB, else a read-only "
		"memoryview. None: they are dropped, as without one."},
	{"on_notify", context_on_notify, METH_O,
		"on_notify(fn)\n--\n\nfn(endpoint, data, length in bytes) is called when the bytes "
		"of a "
		"peer's put_notify are there."},
	{"_connect", FAST(context_connect), NULL},
	{"_listen", context_listen, METH_VARARGS, NULL},
	{"_register", context_register, METH_VARARGS, NULL},
	{"_allocate", context_allocate, METH_VARARGS, NULL},
	{"_statistics", context_statistics, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};
static PyMemberDef context_members[] = {
	{"loop", T_OBJECT, offsetof(Context, loop), READONLY, "Its asyncio loop, or None."},
	{NULL, 0, 0, 0, NULL},
};
static PyGetSetDef context_getset[] = {
	{"closed", get_closed, NULL, "True after close(), or when its loop has gone.", NULL},
	{"fd", get_fd, NULL, "Readable, after arm() gave True, when there is something to do.",
		NULL},
	{"endpoint_class", get_class, set_class, "Of what connect and listen give.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot context_slots[] = {
	{Py_tp_new, context_new},
	{Py_tp_init, context_init},
	{Py_tp_dealloc, context_dealloc},
	{Py_tp_finalize, context_finalize},
	{Py_tp_traverse, context_traverse},
	{Py_tp_clear, context_clear},
	{Py_tp_methods, context_methods},
	{Py_tp_members, context_members},
	{Py_tp_getset, context_getset},
	{Py_tp_doc, "All that one thread has: listeners, endpoints, operations."},
	{0, NULL},
};
PyType_Spec context_spec = {"ropeway._core.Context", sizeof(Context), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, context_slots};
