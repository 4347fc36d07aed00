/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - endpoints and listeners: what is posted on them, their ends. */
#include "core.h"

PyObject *endpoint_type, *listener_type;
PyTypeObject *received_type;

/* ---- what a receive got ---- */

int received_type_make(PyObject *module)
{
	static PyStructSequence_Field fields[] = {
		{"length", "bytes of the message"},
		{"tag", "its tag"},
		{"endpoint", "where it came from; None where that has gone"},
		{NULL, NULL},
	};
	static PyStructSequence_Desc desc = {"ropeway.Received",
		"What a receive got: (length in bytes, tag), and .endpoint", fields, 2};
	received_type = PyStructSequence_NewType(&desc);
	return received_type ? PyModule_AddObjectRef(module, "Received", (PyObject *)received_type)
			     : -1;
}

PyObject *received_new(size_t length, uint64_t tag, struct end *from)
{
	PyObject *r = PyStructSequence_New(received_type);
	if (!r)
		return NULL;
	PyObject *n = PyLong_FromSize_t(length), *t = PyLong_FromUnsignedLongLong(tag),
		 *ep = from && from->py ? (PyObject *)from->py : Py_None;
	Py_INCREF(ep);
	PyStructSequence_SetItem(r, 0, n);
	PyStructSequence_SetItem(r, 1, t);
	PyStructSequence_SetItem(r, 2, ep);
	if (n && t)
		return r;
	Py_DECREF(r);
	return NULL;
}

/* ---- ends: the C half ---- */

/* From inside of the library. */
static void end_closed(rpw_endpoint *ep, int status, void *arg)
{
	struct end *e = arg;
	e->ended = true;
	e->status = status;
	e->sentence = strdup(status < 0 ? rpw_last_error() : "");
	if (e->ctx)
		ctx_event(e->ctx, &e->closed, EV_CLOSED);
}

struct end *end_new(Context *ctx, rpw_endpoint *ep)
{
	struct end *e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->refs = 1;
	e->ctx = ctx;
	e->handle.kind = HANDLE_END;
	e->handle.p = ep;
	link_last(&ctx->handles, &e->handle.link);
	link_init(&e->closed.link);
	rpw_endpoint_set_user(ep, e);
	rpw_endpoint_on_close(ep, end_closed, e);
	return e;
}

void end_ref(struct end *e) { e->refs++; }

void end_unref(struct end *e)
{
	if (--e->refs)
		return;
	if (!link_alone(&e->closed.link))
		link_out(&e->closed.link);
	if (!link_alone(&e->handle.link))
		link_out(&e->handle.link);
	free(e->sentence);
	free(e);
}

/* ---- endpoints ---- */

PyObject *endpoint_make(Context *ctx, struct end *e)
{
	PyTypeObject *type = (PyTypeObject *)ctx->endpoint_class;
	Endpoint *ep = (Endpoint *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!ep)
		return NULL;
	Py_INCREF(ctx);
	ep->ctx = ctx;
	ep->end = e; /* its first reference */
	e->py = ep;
	return (PyObject *)ep;
}

bool endpoint_open(Endpoint *ep)
{
	if (end_ep(ep->end))
		return true;
	PyObject *e = error_make(RPW_ERR_INVALID,
		ep->ctx->c ? "this endpoint was closed by this side"
			   : "the context of this endpoint was closed",
		ep->peer, NULL);
	if (e) {
		error_set(e);
		Py_DECREF(e);
	}
	return false;
}

static bool usable(Endpoint *ep) { return ctx_enter(ep->ctx) && endpoint_open(ep); }

PyObject *endpoint_peer(Endpoint *ep)
{
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	if (!ep->peer && end_ep(ep->end) && rpw_endpoint_info(end_ep(ep->end), &i) == RPW_OK &&
		i.peer && *i.peer)
		ep->peer = PyUnicode_DecodeUTF8(i.peer, (Py_ssize_t)strlen(i.peer), "replace");
	if (!ep->peer)
		PyErr_Clear();
	return ep->peer;
}

static void tags_keep(Endpoint *ep)
{
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	if (end_ep(ep->end) && !ep->tags[2] && rpw_endpoint_info(end_ep(ep->end), &i) == RPW_OK) {
		ep->tags[0] = i.message_tag;
		ep->tags[1] = i.control_tag;
		ep->tags[2] = i.peer_message_tag;
		ep->tags[3] = i.peer_control_tag;
	}
}

static void endpoint_shut(Endpoint *ep)
{
	struct end *e = ep->end;
	if (!e || !e->handle.p)
		return;
	endpoint_peer(ep);
	tags_keep(ep);
	rpw_endpoint *c_ep = e->handle.p;
	e->handle.p = NULL;
	rpw_endpoint_set_user(c_ep, NULL);
	rpw_endpoint_on_close(c_ep, NULL, NULL);
	rpw_endpoint_destroy(c_ep);
}

static PyObject *endpoint_close(PyObject *self, PyObject *unused)
{
	Endpoint *ep = (Endpoint *)self;
	ep->closed = true;
	if (!end_ep(ep->end))
		Py_RETURN_NONE;
	if (!ctx_enter(ep->ctx))
		return NULL;
	endpoint_shut(ep);
	if (ctx_turn_soon(ep->ctx))
		return NULL;
	Py_RETURN_NONE;
}

int endpoint_told(struct end *e)
{
	Endpoint *ep = e->py;
	if (!ep || !ep->on_close || ep->closed)
		return 0;
	PyObject *fn = ep->on_close;
	ep->on_close = NULL;
	PyObject *r = PyObject_CallFunction(fn, "is", e->status, e->sentence ? e->sentence : "");
	int rc = r ? 0 : error_of_handler(ep->ctx, "on_close of an endpoint failed", fn);
	Py_XDECREF(r);
	Py_DECREF(fn);
	return rc;
}

static PyObject *endpoint_on_close(PyObject *self, PyObject *fn)
{
	Endpoint *ep = (Endpoint *)self;
	if (fn != Py_None && !PyCallable_Check(fn)) {
		PyErr_SetString(PyExc_TypeError, "on_close() needs a function, or None");
		return NULL;
	}
	if (!ctx_enter(ep->ctx))
		return NULL;
	PyObject *old = ep->on_close;
	ep->on_close = NULL;
	if (fn != Py_None) {
		Py_INCREF(fn);
		ep->on_close = fn;
	}
	Py_XDECREF(old);
	/* told already, of an earlier function or of none: again, for this one */
	if (ep->on_close && ep->end->ended && link_alone(&ep->end->closed.link)) {
		ctx_event(ep->ctx, &ep->end->closed, EV_CLOSED);
		if (ctx_turn_soon(ep->ctx))
			return NULL;
	}
	Py_RETURN_NONE;
}

/* ---- what is posted ---- */

#define FAST_ARGS PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames

/* The operation of a call on `ep`, with its buffer; NULL with an exception. */
static Operation *begin(Endpoint *ep, enum op_kind kind, PyObject *buf, bool writable)
{
	if (!usable(ep))
		return NULL;
	Operation *op = op_take(ep->ctx, ep, kind);
	if (!op)
		return NULL;
	if (!buf || !held_get(ep->ctx, buf, writable, &op->held)) {
		/* what gave the buffer is the program's, and may have closed the endpoint */
		if (!buf || endpoint_open(ep))
			return op;
		held_release(&op->held);
	}
	Py_DECREF(op);
	return NULL;
}

static PyObject *endpoint_send(FAST_ARGS)
{
	static const char *const names[] = {"buf", "tag"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[2];
	uint64_t tag = 0;
	rpw_request *r = NULL;
	if (args_get("send", names, 2, 1, args, nargs, kwnames, a) ||
		args_u64(a[1], "the tag", &tag))
		return NULL;
	Operation *op = begin(ep, OP_NONE, a[0], false);
	if (!op)
		return NULL;
	int rc = rpw_send(end_ep(ep->end), op->held.ptr, op->held.len, tag, &r);
	return op_posted(op, rc, r);
}

/* Of ropeway.blocking: in one call. */
static PyObject *endpoint_send_block(FAST_ARGS)
{
	static const char *const names[] = {"buf", "tag", "timeout"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[3];
	uint64_t tag = 0;
	rpw_request *r = NULL;
	if (args_get("send", names, 3, 1, args, nargs, kwnames, a) ||
		args_u64(a[1], "the tag", &tag))
		return NULL;
	Operation *op = begin(ep, OP_NONE, a[0], false);
	if (!op)
		return NULL;
	int rc = rpw_send(end_ep(ep->end), op->held.ptr, op->held.len, tag, &r);
	return op_block(op_posted(op, rc, r), a[2]);
}

static PyObject *endpoint_recv_block(FAST_ARGS)
{
	static const char *const names[] = {"buf", "tag", "mask", "timeout"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[4];
	if (args_get("recv", names, 4, 1, args, nargs, kwnames, a))
		return NULL;
	int n = a[2] ? 3 : a[1] ? 2 : 1;
	PyObject *tag = a[1] ? a[1] : NULL;
	if (n == 3 && !tag) { /* a mask without a tag: of tag 0 */
		tag = PyLong_FromLong(0);
		if (!tag)
			return NULL;
	} else
		Py_XINCREF(tag);
	PyObject *posted[3] = {a[0], tag, a[2]};
	PyObject *op = recv_post(ep->ctx, ep, "recv", posted, n, NULL);
	Py_XDECREF(tag);
	return op_block(op, a[3]);
}

PyObject *recv_post(Context *ctx, Endpoint *ep, const char *fn, PyObject *const *args,
	Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"buf", "tag", "mask"};
	PyObject *a[3];
	uint64_t tag = 0, mask = UINT64_MAX;
	rpw_request *r = NULL;
	if (args_get(fn, names, 3, 1, args, nargs, kwnames, a) || args_u64(a[1], "the tag", &tag) ||
		args_u64(a[2], "the mask", &mask) || !ctx_enter(ctx) || (ep && !endpoint_open(ep)))
		return NULL;
	Operation *op = op_take(ctx, ep, OP_RECV);
	if (!op)
		return NULL;
	if (held_get(ctx, a[0], true, &op->held) || !ctx_enter(ctx) || (ep && !endpoint_open(ep))) {
		held_release(&op->held);
		Py_DECREF(op);
		return NULL;
	}
	int rc = rpw_recv(
		ctx->c, ep ? end_ep(ep->end) : NULL, op->held.ptr, op->held.len, tag, mask, &r);
	return op_posted(op, rc, r);
}

static PyObject *endpoint_recv(FAST_ARGS)
{
	Endpoint *ep = (Endpoint *)self;
	return recv_post(ep->ctx, ep, "recv", args, nargs, kwnames);
}

static PyObject *endpoint_send_many(FAST_ARGS)
{
	Endpoint *ep = (Endpoint *)self;
	return usable(ep) ? many_post(ep->ctx, ep, false, args, nargs, kwnames) : NULL;
}

static PyObject *endpoint_recv_many(FAST_ARGS)
{
	Endpoint *ep = (Endpoint *)self;
	return usable(ep) ? many_post(ep->ctx, ep, true, args, nargs, kwnames) : NULL;
}

static PyObject *endpoint_send_obj(FAST_ARGS)
{
	static const char *const names[] = {"buf"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[1];
	rpw_request *r = NULL;
	if (args_get("send_obj", names, 1, 1, args, nargs, kwnames, a))
		return NULL;
	Operation *op = begin(ep, OP_NONE, a[0], false);
	if (!op)
		return NULL;
	int rc = rpw_send_obj(end_ep(ep->end), op->held.ptr, op->held.len, &r);
	return op_posted(op, rc, r);
}

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
	if (len >= LARGE && !op->large) {
		op->large = true;
		ctx->large++;
	}
	static char nothing;
	return op->held.ptr ? op->held.ptr : &nothing;
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
		PyObject *type, *value, *trace;
		PyErr_Fetch(&type, &value, &trace);
		PyErr_NormalizeException(&type, &value, &trace);
		if (trace && value)
			PyException_SetTraceback(value, trace);
		Py_XDECREF(type);
		Py_XDECREF(trace);
		Py_XDECREF(op->error);
		op->error = value;
	}
	if (released)
		ctx->released = PyEval_SaveThread();
	return room;
}

PyObject *recv_object_post(
	Context *ctx, Endpoint *ep, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"allocator"};
	PyObject *a[1];
	rpw_request *r = NULL;
	if (args_get("recv_obj", names, 1, 0, args, nargs, kwnames, a) || !ctx_enter(ctx) ||
		(ep && !endpoint_open(ep)))
		return NULL;
	if (a[0] && a[0] != Py_None && a[0] != (PyObject *)&PyByteArray_Type &&
		!PyCallable_Check(a[0])) {
		PyErr_SetString(PyExc_TypeError, "the allocator has to be a function of a size");
		return NULL;
	}
	Operation *op = op_take(ctx, ep, OP_OBJECT);
	if (!op)
		return NULL;
	if (a[0] && a[0] != Py_None && a[0] != (PyObject *)&PyByteArray_Type) {
		Py_INCREF(a[0]);
		op->allocator = a[0];
	}
	bool busy = ctx->busy;
	ctx->busy = true; /* the allocator may be called now, and may let other threads run */
	ctx->thread = PyThread_get_thread_ident();
	int rc = rpw_recv_obj(ctx->c, ep ? end_ep(ep->end) : NULL, object_alloc, op,
		&op->object_buf, &op->object_len, &r);
	ctx->busy = busy;
	return op_posted(op, rc, r);
}

static PyObject *endpoint_recv_obj(FAST_ARGS)
{
	Endpoint *ep = (Endpoint *)self;
	return recv_object_post(ep->ctx, ep, args, nargs, kwnames);
}

PyObject *probe_now(
	Context *ctx, Endpoint *ep, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"tag", "mask"};
	PyObject *a[2];
	uint64_t tag = 0, mask = UINT64_MAX;
	rpw_completion what = RPW_COMPLETION_INIT;
	if (args_get("probe", names, 2, 0, args, nargs, kwnames, a) ||
		args_u64(a[0], "the tag", &tag) || args_u64(a[1], "the mask", &mask) ||
		!ctx_enter(ctx) || (ep && !endpoint_open(ep)))
		return NULL;
	rpw_endpoint *c_ep = ep ? end_ep(ep->end) : NULL;
	int rc = rpw_probe(ctx->c, c_ep, tag, mask, &what);
	if (rc == RPW_IN_PROGRESS) { /* perhaps it has come, and nobody has looked */
		if (!ctx->busy && ctx_poll(ctx) < 0)
			return NULL;
		if (ctx_turn_soon(ctx))
			return NULL;
		rc = rpw_probe(ctx->c, c_ep, tag, mask, &what);
	}
	if (rc < 0)
		return error_raise(rc, ep ? endpoint_peer(ep) : NULL);
	if (rc == RPW_IN_PROGRESS)
		Py_RETURN_NONE;
	return received_new(what.length, what.tag, what.from ? rpw_endpoint_user(what.from) : NULL);
}

static PyObject *endpoint_probe(FAST_ARGS)
{
	Endpoint *ep = (Endpoint *)self;
	return probe_now(ep->ctx, ep, args, nargs, kwnames);
}

static PyObject *endpoint_am_send(FAST_ARGS)
{
	static const char *const names[] = {"id", "data", "header"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[3];
	uint64_t id = 0;
	rpw_request *r = NULL;
	struct held header = {0};
	if (args_get("am_send", names, 3, 2, args, nargs, kwnames, a) ||
		args_u64(a[0], "the id", &id) || !usable(ep) ||
		(a[2] && held_get(ep->ctx, a[2], false, &header)))
		return NULL;
	Operation *op = begin(ep, OP_NONE, a[1], false);
	if (!op) {
		held_release(&header);
		return NULL;
	}
	int rc = rpw_am_send(end_ep(ep->end), id > RPW_AM_IDS ? RPW_AM_IDS : (unsigned)id,
		header.ptr, header.len, op->held.ptr, op->held.len, &r);
	held_release(&header); /* copied */
	return op_posted(op, rc, r);
}

/* ---- remote memory ---- */

static Key *key_of(PyObject *o, Endpoint *ep)
{
	if (!PyObject_TypeCheck(o, (PyTypeObject *)key_type)) {
		PyErr_Format(PyExc_TypeError,
			"a RemoteKey is needed, as Endpoint.unpack gives, not %R", Py_TYPE(o));
		return NULL;
	}
	Key *k = (Key *)o;
	if (k->ep != ep || !k->handle || !k->handle->p) {
		PyErr_SetString(PyExc_ValueError,
			k->ep != ep ? "this RemoteKey was unpacked by another endpoint"
				    : "this RemoteKey is of a context that was closed");
		return NULL;
	}
	return k;
}

enum transfer { PUT, GET, PUT_NOTIFY };

static PyObject *transfer(PyObject *self, enum transfer what, PyObject *const *args,
	Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"rkey", "offset", "buf", "data"};
	static const char *const calls[] = {"put", "get", "put_notify"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[4];
	uint64_t offset = 0, data = 0;
	rpw_request *r = NULL;
	int n = what == PUT_NOTIFY ? 4 : 3, rc;
	a[3] = NULL;
	if (args_get(calls[what], names, n, n, args, nargs, kwnames, a) ||
		args_u64(a[1], "the offset", &offset) || args_u64(a[3], "data", &data))
		return NULL;
	Operation *op = begin(ep, OP_NONE, a[2], what == GET);
	Key *k = op ? key_of(a[0], ep) : NULL;
	if (!k) {
		if (op)
			held_release(&op->held);
		Py_XDECREF(op);
		return NULL;
	}
	Py_INCREF(k);
	op->key = (PyObject *)k;
	if (what == GET)
		rc = rpw_get(end_ep(ep->end), op->held.ptr, op->held.len, k->handle->p, offset, &r);
	else if (what == PUT)
		rc = rpw_put(end_ep(ep->end), op->held.ptr, op->held.len, k->handle->p, offset, &r);
	else
		rc = rpw_put_notify(end_ep(ep->end), op->held.ptr, op->held.len, k->handle->p,
			offset, data, &r);
	return op_posted(op, rc, r);
}
static PyObject *endpoint_put(FAST_ARGS) { return transfer(self, PUT, args, nargs, kwnames); }
static PyObject *endpoint_get(FAST_ARGS) { return transfer(self, GET, args, nargs, kwnames); }
static PyObject *endpoint_put_notify(FAST_ARGS)
{
	return transfer(self, PUT_NOTIFY, args, nargs, kwnames);
}

static PyObject *atomic(
	PyObject *self, bool swap, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const add_names[] = {"rkey", "offset", "add"};
	static const char *const swap_names[] = {"rkey", "offset", "compare", "swap"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[4];
	uint64_t offset = 0, x = 0, y = 0;
	rpw_request *r = NULL;
	int n = swap ? 4 : 3;
	a[3] = NULL;
	if (args_get(swap ? "compare_swap" : "fetch_add", swap ? swap_names : add_names, n, n, args,
		    nargs, kwnames, a) ||
		args_u64(a[1], "the offset", &offset) || args_u64(a[2], "the value", &x) ||
		args_u64(a[3], "the value", &y))
		return NULL;
	Operation *op = begin(ep, OP_NUMBER, NULL, false);
	Key *k = op ? key_of(a[0], ep) : NULL;
	if (!k) {
		Py_XDECREF(op);
		return NULL;
	}
	Py_INCREF(k);
	op->key = (PyObject *)k;
	int rc = swap ? rpw_compare_swap(
				end_ep(ep->end), x, y, k->handle->p, offset, &op->before, &r)
		      : rpw_fetch_add(end_ep(ep->end), x, k->handle->p, offset, &op->before, &r);
	return op_posted(op, rc, r);
}
static PyObject *endpoint_fetch_add(FAST_ARGS) { return atomic(self, false, args, nargs, kwnames); }
static PyObject *endpoint_compare_swap(FAST_ARGS)
{
	return atomic(self, true, args, nargs, kwnames);
}

static PyObject *endpoint_unpack(PyObject *self, PyObject *packed)
{
	Endpoint *ep = (Endpoint *)self;
	struct held h;
	if (!usable(ep) || held_get(ep->ctx, packed, false, &h))
		return NULL;
	rpw_rkey *key;
	int rc = endpoint_open(ep) ? rpw_rkey_unpack(end_ep(ep->end), h.ptr, h.len, &key) : 1;
	held_release(&h);
	if (rc)
		return rc < 0 ? error_raise(rc, endpoint_peer(ep)) : NULL;
	PyTypeObject *type = (PyTypeObject *)key_type;
	Key *k = (Key *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	struct handle *handle = k ? handle_new(ep->ctx, HANDLE_KEY, key) : NULL;
	if (!handle) {
		rpw_rkey_destroy(key);
		Py_XDECREF(k);
		return PyErr_NoMemory();
	}
	Py_INCREF(ep->ctx);
	Py_INCREF(ep);
	k->ctx = ep->ctx;
	k->ep = ep;
	k->handle = handle;
	return (PyObject *)k;
}

static PyObject *flush_or_shutdown(PyObject *self, bool shutdown)
{
	Endpoint *ep = (Endpoint *)self;
	rpw_request *r = NULL;
	Operation *op = begin(ep, OP_NONE, NULL, false);
	if (!op)
		return NULL;
	int rc = shutdown ? rpw_endpoint_shutdown(end_ep(ep->end), &r)
			  : rpw_endpoint_flush(end_ep(ep->end), &r);
	return op_posted(op, rc, r);
}
static PyObject *endpoint_flush(PyObject *self, PyObject *unused)
{
	return flush_or_shutdown(self, false);
}
static PyObject *endpoint_shutdown(PyObject *self, PyObject *unused)
{
	return flush_or_shutdown(self, true);
}

static PyObject *endpoint_fence(PyObject *self, PyObject *unused)
{
	Endpoint *ep = (Endpoint *)self;
	if (!usable(ep))
		return NULL;
	int rc = rpw_endpoint_fence(end_ep(ep->end));
	if (rc < 0)
		return error_raise(rc, endpoint_peer(ep));
	Py_RETURN_NONE;
}

/* ---- what it is ---- */

static PyObject *endpoint_info(PyObject *self, PyObject *unused)
{
	Endpoint *ep = (Endpoint *)self;
	if (!usable(ep))
		return NULL;
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	int rc = rpw_endpoint_info(end_ep(ep->end), &i);
	if (rc < 0)
		return error_raise(rc, NULL);
#define TEXT(s) ((s) ? (s) : "")
	return Py_BuildValue("ssssOini", TEXT(i.transport), TEXT(i.path), TEXT(i.why), TEXT(i.peer),
		i.connected ? Py_True : Py_False, i.status, (Py_ssize_t)i.eager_bytes_max,
		(int)i.protection);
}

static PyObject *get_closed(PyObject *self, void *unused)
{
	Endpoint *ep = (Endpoint *)self;
	return PyBool_FromLong(ep->closed || !end_ep(ep->end) || ep->end->ended);
}

static PyObject *get_tag(PyObject *self, void *which)
{
	Endpoint *ep = (Endpoint *)self;
	tags_keep(ep);
	return PyLong_FromUnsignedLongLong(ep->tags[(intptr_t)which]);
}

static PyObject *get_context(PyObject *self, void *unused)
{
	PyObject *o = (PyObject *)((Endpoint *)self)->ctx;
	Py_INCREF(o);
	return o;
}

static PyObject *get_user(PyObject *self, void *unused)
{
	PyObject *o = ((Endpoint *)self)->user;
	if (!o)
		o = Py_None;
	Py_INCREF(o);
	return o;
}

static int set_user(PyObject *self, PyObject *value, void *unused)
{
	Endpoint *ep = (Endpoint *)self;
	PyObject *old = ep->user;
	Py_XINCREF(value);
	ep->user = value;
	Py_XDECREF(old);
	return 0;
}

static PyObject *get_handle(PyObject *self, void *unused)
{
	return PyLong_FromVoidPtr(end_ep(((Endpoint *)self)->end));
}

static int endpoint_traverse(PyObject *self, visitproc visit, void *arg)
{
	Endpoint *ep = (Endpoint *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(ep->ctx);
	Py_VISIT(ep->user);
	Py_VISIT(ep->on_close);
	return 0;
}

static int endpoint_clear(PyObject *self)
{
	Endpoint *ep = (Endpoint *)self;
	Py_CLEAR(ep->user);
	Py_CLEAR(ep->on_close);
	return 0;
}

static void endpoint_dealloc(PyObject *self)
{
	Endpoint *ep = (Endpoint *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	endpoint_clear(self);
	Py_CLEAR(ep->peer);
	struct end *e = ep->end;
	if (e) {
		ep->end = NULL;
		e->py = NULL;
		handle_drop(ep->ctx, &e->handle);
	}
	Py_CLEAR(ep->ctx);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

#define FAST(name) (PyCFunction)(void (*)(void)) name, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef endpoint_methods[] = {
	{"send", FAST(endpoint_send),
		"send(buf, tag=0)\n--\n\nSends the bytes of `buf`. Done when the buffer can be "
		"used "
		"again; flush() says when they are there.\nMessages of one tag are received in the "
		"order sent. Raises ropeway.Error when the endpoint has ended."},
	{"recv", FAST(endpoint_recv),
		"recv(buf, tag=0, mask=ALL)\n--\n\nReceives a message whose tag is `tag` in the "
		"bits of "
		"`mask`, into `buf` (writable, one piece).\nGives Received(length in bytes, tag). "
		"Fails with status TRUNCATED where it is longer than the buffer."},
	{"send_many", FAST(endpoint_send_many),
		"send_many(bufs, tags=0)\n--\n\nA send of each buffer, as one operation. tags: one "
		"for all, or a sequence of as many."},
	{"recv_many", FAST(endpoint_recv_many),
		"recv_many(bufs, tags=0, mask=ALL)\n--\n\nA receive into each buffer, as one "
		"operation; gives a list of Received. The first error is its error,\nwhen all have "
		"ended."},
	{"send_obj", FAST(endpoint_send_obj),
		"send_obj(buf)\n--\n\nSends an object: the receiver learns its size first, and its "
		"allocator gives the memory. Done when it\nhas been taken, or refused (status "
		"NO_MEMORY). Objects have an order of their own, apart from tags."},
	{"recv_obj", FAST(endpoint_recv_obj),
		"recv_obj(allocator=bytearray)\n--\n\nReceives the next object, into what "
		"allocator(size in bytes) gives; gives that. Where the allocator\nraises, the "
		"object "
		"is refused on both sides (status NO_MEMORY there), and this raises the same."},
	{"probe", FAST(endpoint_probe),
		"probe(tag=0, mask=ALL)\n--\n\nReceived of a message that waits for such a "
		"receive, or "
		"None. It stays."},
	{"am_send", FAST(endpoint_am_send),
		"am_send(id, data, header=b'')\n--\n\nAn active message, for the peer's "
		"Context.on_am(id). The header has at most 256 bytes, and is copied.\nDone when "
		"`data` can be used again."},
	{"put", FAST(endpoint_put),
		"put(rkey, offset, buf)\n--\n\nWrites to the peer's memory, `offset` bytes from "
		"its "
		"beginning. Done when the buffer can be used again;\nflush() says when it has "
		"taken "
		"effect. Fails with status ACCESS outside of it, or without the right."},
	{"put_notify", FAST(endpoint_put_notify),
		"put_notify(rkey, offset, buf, data)\n--\n\nA put that calls the peer's "
		"Context.on_notify with `data` (64 bits), when its bytes are there."},
	{"get", FAST(endpoint_get),
		"get(rkey, offset, buf)\n--\n\nReads len(buf) bytes of the peer's memory. Done "
		"when "
		"they are here."},
	{"fetch_add", FAST(endpoint_fetch_add),
		"fetch_add(rkey, offset, add)\n--\n\nAdds to 8 aligned bytes of the peer's, "
		"atomically; gives the value that was there."},
	{"compare_swap", FAST(endpoint_compare_swap),
		"compare_swap(rkey, offset, compare, swap)\n--\n\nSets 8 aligned bytes of the "
		"peer's "
		"to `swap` where they are `compare`; gives the value that was there."},
	{"unpack", endpoint_unpack, METH_O,
		"unpack(rkey)\n--\n\nThe peer's memory, from the bytes that its Memory.rkey() "
		"gave."},
	{"flush", endpoint_flush, METH_NOARGS,
		"Done when everything posted before is done on the peer's side, too; so the peer "
		"has "
		"to run its loop."},
	{"fence", endpoint_fence, METH_NOARGS,
		"What is posted after it takes effect at the peer after what was posted before: of "
		"puts and atomics."},
	{"shutdown", endpoint_shutdown, METH_NOARGS,
		"The orderly end: a flush, then the peer hears that nothing more comes. Only "
		"receives "
		"can be posted after it."},
	{"close", endpoint_close, METH_NOARGS,
		"Closes at once. Operations under way fail with status CANCELED, the peer's with "
		"PEER_GONE: flush()\nor shutdown() first where that matters."},
	{"on_close", endpoint_on_close, METH_O,
		"on_close(fn)\n--\n\nfn(status, sentence) is called once when the peer has ended "
		"(status 0: in order) or cannot be reached\nany more; not for this side's close(). "
		"At "
		"the loop's next turn where that was so already."},
	{"_info", endpoint_info, METH_NOARGS, NULL},
	{"_send_block", FAST(endpoint_send_block),
		"send(buf, tag=0, timeout=None)\n--\n\nUntil the buffer can be used again, "
		"`timeout` "
		"seconds at most."},
	{"_recv_block", FAST(endpoint_recv_block),
		"recv(buf, tag=0, mask=ALL, timeout=None)\n--\n\nGives Received(length in bytes, "
		"tag). ropeway.Timeout where none came within `timeout` seconds."},
	{NULL, NULL, 0, NULL},
};
static PyGetSetDef endpoint_getset[] = {
	{"context", get_context, NULL, "Whose it is.", NULL},
	{"closed", get_closed, NULL, "True when this side closed it, or when it has ended.", NULL},
	{"message_tag", get_tag, NULL,
		"Of 64 bits, unique to this endpoint; the peer sees it as peer_message_tag.",
		(void *)0},
	{"control_tag", get_tag, NULL, "Likewise.", (void *)1},
	{"peer_message_tag", get_tag, NULL, "The peer's; 0 until connected.", (void *)2},
	{"peer_control_tag", get_tag, NULL, "The peer's; 0 until connected.", (void *)3},
	{"user", get_user, set_user, "The program's: ropeway only keeps it.", NULL},
	{"_handle", get_handle, NULL, "The address of its C object, for logs.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot endpoint_slots[] = {
	{Py_tp_dealloc, endpoint_dealloc},
	{Py_tp_traverse, endpoint_traverse},
	{Py_tp_clear, endpoint_clear},
	{Py_tp_methods, endpoint_methods},
	{Py_tp_getset, endpoint_getset},
	{Py_tp_doc, "One end of a connection."},
	{0, NULL},
};
PyType_Spec endpoint_spec = {"ropeway._core.Endpoint", sizeof(Endpoint), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
		Py_TPFLAGS_DISALLOW_INSTANTIATION,
	endpoint_slots};

/* ---- listeners ---- */

static PyObject *listener_close(PyObject *self, PyObject *unused)
{
	Listener *l = (Listener *)self;
	if (l->handle && l->handle->p) {
		if (!ctx_enter(l->ctx))
			return NULL;
		rpw_listener *c_l = l->handle->p;
		l->handle->p = NULL;
		rpw_listener_destroy(c_l);
		if (ctx_turn_soon(l->ctx))
			return NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *listener_closed(PyObject *self, void *unused)
{
	Listener *l = (Listener *)self;
	return PyBool_FromLong(!l->handle || !l->handle->p);
}

static PyObject *listener_context(PyObject *self, void *unused)
{
	PyObject *o = (PyObject *)((Listener *)self)->ctx;
	Py_INCREF(o);
	return o;
}

static int listener_traverse(PyObject *self, visitproc visit, void *arg)
{
	Listener *l = (Listener *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(l->ctx);
	Py_VISIT(l->accepted);
	return 0;
}

static int listener_clear(PyObject *self)
{
	Py_CLEAR(((Listener *)self)->accepted);
	return 0;
}

static void listener_dealloc(PyObject *self)
{
	Listener *l = (Listener *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	listener_clear(self);
	Py_CLEAR(l->address);
	if (l->ctx)
		listener_gone(l);
	if (l->handle)
		handle_drop(l->ctx, l->handle);
	Py_CLEAR(l->ctx);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef listener_methods[] = {
	{"close", listener_close, METH_NOARGS,
		"Ends it. Connections that are not complete yet are refused; accepted endpoints "
		"stay."},
	{NULL, NULL, 0, NULL},
};
static PyMemberDef listener_members[] = {
	{"port", T_INT, offsetof(Listener, port), READONLY, "The TCP port that it listens at."},
	{"address", T_OBJECT_EX, offsetof(Listener, address), READONLY,
		"Text that connect() takes in any process, on any host."},
	{NULL, 0, 0, 0, NULL},
};
static PyGetSetDef listener_getset[] = {
	{"closed", listener_closed, NULL, "True after close().", NULL},
	{"context", listener_context, NULL, "Whose it is.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot listener_slots[] = {
	{Py_tp_dealloc, listener_dealloc},
	{Py_tp_traverse, listener_traverse},
	{Py_tp_clear, listener_clear},
	{Py_tp_methods, listener_methods},
	{Py_tp_members, listener_members},
	{Py_tp_getset, listener_getset},
	{0, NULL},
};
PyType_Spec listener_spec = {"ropeway._core.Listener", sizeof(Listener), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	listener_slots};
