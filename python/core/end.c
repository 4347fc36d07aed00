/* SPDX-License-Identifier: BSD-3-Clause */
/* end.c - the C half of an endpoint: events may name it after the Python half has gone. Also the
 * questions about endpoints that the files above share, and the result of a receive. */
#include "core.h"

PyObject *endpoint_type;
PyTypeObject *received_type;

/* ---- what a receive got ---- */

int received_type_make(PyObject *module)
{
	PyStructSequence_Field fields[] = {
		{"length", "bytes of the message"},
		{"tag", "its tag"},
		{"endpoint", "where it came from; None where that has gone"},
		{NULL, NULL},
	};
	PyStructSequence_Desc desc = {"ropeway.Received",
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
		ctx_event(e->ctx, &e->closed);
}

void end_destroy(struct end *e)
{
	rpw_endpoint *ep = e->handle.p;
	e->handle.p = NULL;
	if (!ep)
		return;
	rpw_endpoint_set_user(ep, NULL);
	rpw_endpoint_on_close(ep, NULL, NULL);
	rpw_endpoint_destroy(ep);
}

static void end_gone(struct handle *h)
{
	struct end *e = OF_LINK(h, struct end, handle);
	end_destroy(e);
	end_unref(e);
}

static int told(Context *ctx, struct event *event)
{
	struct end *e = OF_LINK(event, struct end, closed);
	Endpoint *ep = e->py;
	if (!ep || !ep->on_close || ep->closed)
		return 0;
	end_ref(e); /* the function may drop it */
	PyObject *fn = ep->on_close;
	ep->on_close = NULL;
	PyObject *r = PyObject_CallFunction(fn, "is", e->status, e->sentence ? e->sentence : "");
	int rc = handler_called(ctx, "on_close of an endpoint failed", fn, r);
	end_unref(e);
	return rc;
}

static void untold(struct event *event, bool quiet) {}

struct end *end_new(Context *ctx, rpw_endpoint *ep)
{
	struct end *e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->refs = 1;
	e->ctx = ctx;
	e->handle.gone = end_gone;
	e->handle.p = ep;
	link_last(&ctx->handles, &e->handle.link);
	link_init(&e->closed.link);
	e->closed.deliver = told;
	e->closed.drop = untold;
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
	Endpoint *ep = object_new(ctx->endpoint_class);
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
	return error_raise_text(RPW_ERR_INVALID,
		ep->ctx->c ? "this endpoint was closed by this side"
			   : "the context of this endpoint was closed",
		ep->peer);
}

bool endpoint_usable(Endpoint *ep) { return ctx_enter(ep->ctx) && endpoint_open(ep); }

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

void endpoint_tags_keep(Endpoint *ep)
{
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	if (end_ep(ep->end) && !ep->tags[2] && rpw_endpoint_info(end_ep(ep->end), &i) == RPW_OK) {
		ep->tags[0] = i.message_tag;
		ep->tags[1] = i.control_tag;
		ep->tags[2] = i.peer_message_tag;
		ep->tags[3] = i.peer_control_tag;
	}
}
