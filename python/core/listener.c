/* SPDX-License-Identifier: BSD-3-Clause */
/* listener.c - listeners: each peer that connects becomes an event, and the event an endpoint. */
#include "core.h"

PyObject *listener_type;

struct accept_event {
	struct event event;
	Listener *listener; /* borrowed; NULL: it has gone */
	struct end *end;
};

static int accept_deliver(Context *ctx, struct event *event)
{
	struct accept_event *e = (struct accept_event *)(void *)event;
	PyObject *ep = endpoint_make(ctx, e->end), *fn = NULL;
	if (!ep) {
		handle_drop(ctx, &e->end->handle);
		free(e);
		return -1;
	}
	if (e->listener)
		fn = e->listener->accepted;
	free(e);
	int rc = 0;
	if (fn) {
		Py_INCREF(fn);
		rc = handler_called(ctx, "the callback of a listener failed", fn,
			PyObject_CallFunctionObjArgs(fn, ep, NULL));
	}
	Py_DECREF(ep);
	return rc;
}

static void accept_drop(struct event *event, bool quiet)
{
	struct accept_event *e = (struct accept_event *)(void *)event;
	handle_drop(e->end->ctx, &e->end->handle);
	free(e);
}

/* From inside of the library. */
static void accepted(rpw_listener *c_l, rpw_endpoint *ep, void *arg)
{
	Listener *l = arg;
	Context *ctx = l->ctx;
	struct accept_event *e = calloc(1, sizeof(*e));
	if (e)
		e->end = end_new(ctx, ep);
	if (!e || !e->end) {
		free(e);
		rpw_endpoint_destroy(ep);
		return;
	}
	e->listener = l;
	e->event.deliver = accept_deliver;
	e->event.drop = accept_drop;
	ctx_event(ctx, &e->event);
}

/* Endpoints that it accepted and nobody was given close. */
static void listener_forget(const Listener *l)
{
	struct link *events = &l->ctx->events;
	for (struct link *i = events->next; i != events; i = i->next) {
		struct event *e = OF_LINK(i, struct event, link);
		if (e->deliver == accept_deliver &&
			((struct accept_event *)(void *)e)->listener == l)
			((struct accept_event *)(void *)e)->listener = NULL;
	}
}

static void listener_ended(struct handle *h)
{
	rpw_listener_destroy(h->p);
	free(h);
}

PyObject *context_listen(PyObject *self, PyObject *args)
{
	Context *ctx = (Context *)self;
	const char *address;
	PyObject *fn;
	if (!PyArg_ParseTuple(args, "sO", &address, &fn) || !ctx_enter(ctx))
		return NULL;
	Listener *l = owner_new(listener_type, ctx, listener_ended);
	if (!l)
		return NULL;
	ref_set(&l->accepted, fn);
	rpw_listener *c_l;
	char text[RPW_ADDRESS_MAX];
	int rc = rpw_listener_create(ctx->c, address, accepted, l, &c_l);
	if (rc >= 0) {
		l->handle->p = c_l;
		l->port = rpw_listener_port(c_l);
		rc = rpw_listener_address(c_l, text, sizeof(text));
	}
	if (rc < 0)
		error_raise(rc, NULL);
	else if (!ctx_turn_soon(ctx))
		l->address = PyUnicode_DecodeUTF8(text, rc, "replace");
	if (!l->address)
		Py_CLEAR(l);
	return (PyObject *)l;
}

static PyObject *listener_close(PyObject *self, PyObject *unused)
{
	if (owner_close(self))
		return NULL;
	Py_RETURN_NONE;
}

static int listener_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(((Listener *)self)->accepted);
	return owner_traverse(self, visit, arg);
}

static int listener_clear(PyObject *self)
{
	Py_CLEAR(((Listener *)self)->accepted);
	return 0;
}

static void listener_dealloc(PyObject *self)
{
	Listener *l = (Listener *)self;
	PyObject_GC_UnTrack(self);
	listener_clear(self);
	Py_CLEAR(l->address);
	if (l->ctx)
		listener_forget(l);
	owner_dealloc(self);
}

static PyMethodDef listener_methods[] = {
	{"close", listener_close, METH_NOARGS,
		"Ends it. Connections that are not complete yet are refused; accepted endpoints "
		"stay."},
	{NULL, NULL, 0, NULL},
};
static PyMemberDef listener_members[] = {
	{"context", T_OBJECT, offsetof(Listener, ctx), READONLY, "Whose it is."},
	{"port", T_INT, offsetof(Listener, port), READONLY, "The TCP port that it listens at."},
	{"address", T_OBJECT_EX, offsetof(Listener, address), READONLY,
		"Text that connect() takes in any process, on any host."},
	{NULL, 0, 0, 0, NULL},
};
static PyGetSetDef listener_getset[] = {
	{"closed", owner_closed, NULL, "True after close().", NULL},
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
