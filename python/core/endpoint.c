/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - the Python type of endpoints: their operations and their ends. */
#include "core.h"

static void endpoint_shut(Endpoint *ep)
{
	struct end *e = ep->end;
	if (!e || !e->handle.p)
		return;
	endpoint_peer(ep);
	endpoint_tags_keep(ep);
	end_destroy(e);
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

static PyObject *endpoint_on_close(PyObject *self, PyObject *fn)
{
	Endpoint *ep = (Endpoint *)self;
	if (!handler_check("on_close", fn) || !ctx_enter(ep->ctx))
		return NULL;
	handler_set(&ep->on_close, fn);
	/* told already, of an earlier function or of none: again, for this one */
	if (ep->on_close && ep->end->ended && link_alone(&ep->end->closed.link)) {
		ctx_event(ep->ctx, &ep->end->closed);
		if (ctx_turn_soon(ep->ctx))
			return NULL;
	}
	Py_RETURN_NONE;
}

/* ---- what is posted ---- */

static PyObject *send_post(Endpoint *ep, PyObject *buf, PyObject *tag_given)
{
	uint64_t tag = 0;
	rpw_request *r = NULL;
	Operation *op = args_u64(tag_given, "the tag", &tag)
				? NULL
				: post_begin(ep->ctx, ep, OP_NONE, buf, false);
	if (!op)
		return NULL;
	int rc = rpw_send(end_ep(ep->end), op->one.held.ptr, op->one.held.len, tag, &r);
	return op_posted(op, rc, r);
}

static PyObject *endpoint_send(FAST_ARGS)
{
	static const char *const names[] = {"buf", "tag"};
	PyObject *a[2];
	if (args_get("send", names, 2, 1, args, nargs, kwnames, a))
		return NULL;
	return send_post((Endpoint *)self, a[0], a[1]);
}

/* Of ropeway.blocking: in one call. */
static PyObject *endpoint_send_block(FAST_ARGS)
{
	static const char *const names[] = {"buf", "tag", "timeout"};
	PyObject *a[3];
	if (args_get("send", names, 3, 1, args, nargs, kwnames, a))
		return NULL;
	return op_block(send_post((Endpoint *)self, a[0], a[1]), a[2]);
}

static PyObject *endpoint_recv_block(FAST_ARGS)
{
	static const char *const names[] = {"buf", "tag", "mask", "timeout"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[4];
	if (args_get("recv", names, 4, 1, args, nargs, kwnames, a))
		return NULL;
	return op_block(recv_post(ep->ctx, ep, a), a[3]);
}

static PyObject *endpoint_send_obj(FAST_ARGS)
{
	static const char *const names[] = {"buf"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[1];
	rpw_request *r = NULL;
	if (args_get("send_obj", names, 1, 1, args, nargs, kwnames, a))
		return NULL;
	Operation *op = post_begin(ep->ctx, ep, OP_NONE, a[0], false);
	if (!op)
		return NULL;
	int rc = rpw_send_obj(end_ep(ep->end), op->one.held.ptr, op->one.held.len, &r);
	return op_posted(op, rc, r);
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
		args_u64(a[0], "the id", &id) || !endpoint_usable(ep) ||
		(a[2] && held_get(ep->ctx, a[2], false, &header)))
		return NULL;
	Operation *op = post_begin(ep->ctx, ep, OP_NONE, a[1], false);
	if (!op) {
		held_release(&header);
		return NULL;
	}
	int rc = rpw_am_send(end_ep(ep->end), id > RPW_AM_IDS ? RPW_AM_IDS : (unsigned)id,
		header.ptr, header.len, op->one.held.ptr, op->one.held.len, &r);
	held_release(&header); /* copied */
	return op_posted(op, rc, r);
}

/* ---- remote memory ---- */

static Key *key_of(PyObject *o, Endpoint *ep)
{
	if (!PyObject_TypeCheck(o, (PyTypeObject *)key_type))
		return (Key *)PyErr_Format(PyExc_TypeError,
			"a RemoteKey is needed, as Endpoint.unpack gives, not %R", Py_TYPE(o));
	Key *k = (Key *)o;
	if (k->ep != ep || !k->handle || !k->handle->p)
		return (Key *)PyErr_Format(PyExc_ValueError,
			k->ep != ep ? "this RemoteKey was unpacked by another endpoint"
				    : "this RemoteKey is of a context that was closed");
	return k;
}

enum remote { PUT, GET, PUT_NOTIFY, FETCH_ADD, COMPARE_SWAP };
static const struct {
	const char *name, *args[4];
	int n;
	enum op_kind kind;
} remotes[] = {
	[PUT] = {"put", {"rkey", "offset", "buf"}, 3, OP_NONE},
	[GET] = {"get", {"rkey", "offset", "buf"}, 3, OP_NONE},
	[PUT_NOTIFY] = {"put_notify", {"rkey", "offset", "buf", "data"}, 4, OP_NONE},
	[FETCH_ADD] = {"fetch_add", {"rkey", "offset", "add"}, 3, OP_NUMBER},
	[COMPARE_SWAP] = {"compare_swap", {"rkey", "offset", "compare", "swap"}, 4, OP_NUMBER},
};

static PyObject *remote_post(
	Operation *op, enum remote what, uint64_t offset, uint64_t x, uint64_t y)
{
	rpw_endpoint *ep = end_ep(op->ep->end);
	rpw_rkey *key = ((Key *)op->key)->handle->p;
	const struct held *h = &op->one.held;
	rpw_request *r = NULL;
	int rc = RPW_OK;
	switch (what) {
	case PUT:
		rc = rpw_put(ep, h->ptr, h->len, key, offset, &r);
		break;
	case GET:
		rc = rpw_get(ep, h->ptr, h->len, key, offset, &r);
		break;
	case PUT_NOTIFY:
		rc = rpw_put_notify(ep, h->ptr, h->len, key, offset, y, &r);
		break;
	case FETCH_ADD:
		rc = rpw_fetch_add(ep, x, key, offset, &op->before, &r);
		break;
	case COMPARE_SWAP:
		rc = rpw_compare_swap(ep, x, y, key, offset, &op->before, &r);
		break;
	}
	return op_posted(op, rc, r);
}

static PyObject *remote(PyObject *self, enum remote what, PyObject *const *args, Py_ssize_t nargs,
	PyObject *kwnames)
{
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[4] = {NULL};
	uint64_t offset = 0, x = 0, y = 0;
	int n = remotes[what].n;
	bool number = remotes[what].kind == OP_NUMBER;
	if (args_get(remotes[what].name, remotes[what].args, n, n, args, nargs, kwnames, a) ||
		args_u64(a[1], "the offset", &offset) ||
		(number && args_u64(a[2], "the value", &x)) ||
		args_u64(a[3], number ? "the value" : "data", &y))
		return NULL;
	Operation *op =
		post_begin(ep->ctx, ep, remotes[what].kind, number ? NULL : a[2], what == GET);
	Key *k = op ? key_of(a[0], ep) : NULL;
	if (!k) {
		Py_XDECREF(op);
		return NULL;
	}
	ref_set(&op->key, a[0]);
	return remote_post(op, what, offset, x, y);
}
#define REMOTE(name, what) \
	static PyObject *name(FAST_ARGS) { return remote(self, what, args, nargs, kwnames); }
REMOTE(endpoint_put, PUT)
REMOTE(endpoint_get, GET)
REMOTE(endpoint_put_notify, PUT_NOTIFY)
REMOTE(endpoint_fetch_add, FETCH_ADD)
REMOTE(endpoint_compare_swap, COMPARE_SWAP)

static PyObject *endpoint_unpack(PyObject *self, PyObject *packed)
{
	Endpoint *ep = (Endpoint *)self;
	struct held h;
	if (!endpoint_usable(ep) || held_get(ep->ctx, packed, false, &h))
		return NULL;
	rpw_rkey *key;
	int rc = endpoint_open(ep) ? rpw_rkey_unpack(end_ep(ep->end), h.ptr, h.len, &key) : 1;
	held_release(&h);
	if (rc)
		return rc < 0 ? error_raise(rc, endpoint_peer(ep)) : NULL;
	return key_make(ep, key);
}

static PyObject *flush_or_shutdown(PyObject *self, bool shutdown)
{
	Endpoint *ep = (Endpoint *)self;
	rpw_request *r = NULL;
	Operation *op = post_begin(ep->ctx, ep, OP_NONE, NULL, false);
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
	if (!endpoint_usable(ep))
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
	if (!endpoint_usable(ep))
		return NULL;
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	int rc = rpw_endpoint_info(end_ep(ep->end), &i);
	if (rc < 0)
		return error_raise(rc, NULL);
#define TEXT(s) ((s) ? (s) : "")
	return Py_BuildValue("ssssOininnn", TEXT(i.transport), TEXT(i.path), TEXT(i.why),
		TEXT(i.peer), i.connected ? Py_True : Py_False, i.status,
		(Py_ssize_t)i.eager_bytes_max, (int)i.protection, (Py_ssize_t)i.loan_bytes,
		(Py_ssize_t)i.loan_bytes_max, (Py_ssize_t)i.view_bytes);
}

static PyObject *get_closed(PyObject *self, void *unused)
{
	Endpoint *ep = (Endpoint *)self;
	return PyBool_FromLong(ep->closed || !end_ep(ep->end) || ep->end->ended);
}

static PyObject *get_tag(PyObject *self, void *which)
{
	Endpoint *ep = (Endpoint *)self;
	endpoint_tags_keep(ep);
	return PyLong_FromUnsignedLongLong(ep->tags[(intptr_t)which]);
}

static PyObject *get_handle(PyObject *self, void *unused)
{
	return PyLong_FromVoidPtr(end_ep(((Endpoint *)self)->end));
}

static int endpoint_traverse(PyObject *self, visitproc visit, void *arg)
{
	Endpoint *ep = (Endpoint *)self;
	Py_VISIT(ep->user);
	Py_VISIT(ep->on_close);
	return owner_traverse(self, visit, arg);
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
	object_free(self);
}

static PyMethodDef endpoint_methods[] = {
	{"send", FAST(endpoint_send),
		"send(buf, tag=0)\n--\n\nSends the bytes of `buf`. Done when the buffer can be "
		"used "
		"again; flush() says when they are there.\nMessages of one tag are received in the "
		"order sent. Raises ropeway.Error when the endpoint has ended."},
	{"recv", FAST(post_recv),
		"recv(buf, tag=0, mask=ALL)\n--\n\nReceives a message whose tag is `tag` in the "
		"bits of "
		"`mask`, into `buf` (writable, one piece).\nGives Received(length in bytes, tag). "
		"Fails with status TRUNCATED where it is longer than the buffer."},
	{"loan", FAST(endpoint_loan),
		"loan(nbytes, writable=False)\n--\n\nMemory for one message, which the peer can "
		"see: "
		"a Loan, to be filled and given to send_loan. writable: the\nreceiver may write "
		"into "
		"its view. Fails with status LIMIT where all is out; the error says who holds "
		"what."},
	{"send_loan", FAST(endpoint_send_loan),
		"send_loan(loan, tag=0, nbytes=None)\n--\n\nSends the bytes of a loan of this "
		"endpoint, "
		"all or the first `nbytes`. It is the receiver's then.\nBufferError while "
		"memoryviews "
		"or arrays of it live."},
	{"recv_view", FAST(post_recv_view),
		"recv_view(tag=0, mask=ALL)\n--\n\nReceives a message where it lies; gives a View, "
		"whose memory is given back when it and all that was made\nof it have gone. The "
		"sender "
		"of a loan can change it: copy what must not change."},
	{"send_many", FAST(post_send_many),
		"send_many(bufs, tags=0)\n--\n\nA send of each buffer, as one operation. tags: one "
		"for all, or a sequence of as many."},
	{"recv_many", FAST(post_recv_many),
		"recv_many(bufs, tags=0, mask=ALL)\n--\n\nA receive into each buffer, as one "
		"operation; gives a list of Received. The first error is its error,\nwhen all have "
		"ended."},
	{"send_obj", FAST(endpoint_send_obj),
		"send_obj(buf)\n--\n\nSends an object: the receiver learns its size first, and its "
		"allocator gives the memory. Done when it\nhas been taken, or refused (status "
		"NO_MEMORY). Objects have an order of their own, apart from tags."},
	{"recv_obj", FAST(post_recv_obj),
		"recv_obj(allocator=bytearray)\n--\n\nReceives the next object, into what "
		"allocator(size in bytes) gives; gives that. Where the allocator\nraises, the "
		"object "
		"is refused on both sides (status NO_MEMORY there), and this raises the same."},
	{"probe", FAST(post_probe),
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
static PyMemberDef endpoint_members[] = {
	{"context", T_OBJECT, offsetof(Endpoint, ctx), READONLY, "Whose it is."},
	{"user", T_OBJECT, offsetof(Endpoint, user), 0, "The program's: ropeway only keeps it."},
	{NULL, 0, 0, 0, NULL},
};
static PyGetSetDef endpoint_getset[] = {
	{"closed", get_closed, NULL, "True when this side closed it, or when it has ended.", NULL},
	{"message_tag", get_tag, NULL,
		"Of 64 bits, unique to this endpoint; the peer sees it as peer_message_tag.",
		(void *)0},
	{"control_tag", get_tag, NULL, "Likewise.", (void *)1},
	{"peer_message_tag", get_tag, NULL, "The peer's; 0 until connected.", (void *)2},
	{"peer_control_tag", get_tag, NULL, "The peer's; 0 until connected.", (void *)3},
	{"_handle", get_handle, NULL, "The address of its C object, for logs.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot endpoint_slots[] = {
	{Py_tp_dealloc, endpoint_dealloc},
	{Py_tp_traverse, endpoint_traverse},
	{Py_tp_clear, endpoint_clear},
	{Py_tp_methods, endpoint_methods},
	{Py_tp_members, endpoint_members},
	{Py_tp_getset, endpoint_getset},
	{Py_tp_doc, "One end of a connection."},
	{0, NULL},
};
PyType_Spec endpoint_spec = {"ropeway._core.Endpoint", sizeof(Endpoint), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
		Py_TPFLAGS_DISALLOW_INSTANTIATION,
	endpoint_slots};
