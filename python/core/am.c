/* SPDX-License-Identifier: BSD-3-Clause */
/* am.c - active messages and notifications: copied while the library calls back, told to Python
 * when it has returned. */
#include "core.h"

PyObject *block_type;

struct am_event {
	struct event event;
	struct end *from;
	unsigned id;
	uint64_t data; /* a notification's */
	size_t header_len, len;
	char bytes[]; /* header, data */
};

static void am_drop(struct event *event, bool quiet)
{
	struct am_event *e = (struct am_event *)(void *)event;
	if (e->from)
		end_unref(e->from);
	free(e);
}

static struct am_event *am_event_new(rpw_endpoint *ep, size_t bytes)
{
	struct am_event *e = malloc(sizeof(*e) + bytes);
	if (!e)
		return NULL;
	memset(e, 0, sizeof(*e));
	e->event.drop = am_drop;
	e->from = rpw_endpoint_user(ep);
	if (e->from)
		end_ref(e->from);
	return e;
}

/* ---- memory of a long message, which views of it keep alive ---- */

typedef struct {
	PyObject_HEAD struct am_event *event;
} Block;

static int block_buffer(PyObject *self, Py_buffer *view, int flags)
{
	struct am_event *e = ((Block *)self)->event;
	return PyBuffer_FillInfo(
		view, self, e->bytes + e->header_len, (Py_ssize_t)e->len, 1, flags);
}

static void block_dealloc(PyObject *self)
{
	free(((Block *)self)->event);
	object_free(self);
}

static PyType_Slot block_slots[] = {
	{Py_tp_dealloc, block_dealloc},
	{Py_bf_getbuffer, block_buffer},
	{0, NULL},
};
PyType_Spec block_spec = {"ropeway._core.Block", sizeof(Block), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, block_slots};

/* The event is consumed. */
static PyObject *long_data(struct am_event *e)
{
	Block *b = object_new(block_type);
	if (!b) {
		free(e);
		return NULL;
	}
	b->event = e;
	PyObject *view = PyMemoryView_FromObject((PyObject *)b);
	Py_DECREF(b);
	return view;
}

/* ---- told to Python ---- */

static int deliver(Context *ctx, struct am_event *e, PyObject *fn, bool am)
{
	PyObject *r = NULL;
	struct end *from = e->from;
	PyObject *ep = from && from->py ? (PyObject *)from->py : NULL;
	/* An endpoint that the program dropped, or closed: nobody wants it. */
	if (!fn || !ep || from->py->closed) {
		am_drop(&e->event, false);
		return 0;
	}
	Py_INCREF(fn);
	Py_INCREF(ep);
	if (!am) {
		r = PyObject_CallFunction(
			fn, "OKn", ep, (unsigned long long)e->data, (Py_ssize_t)e->len);
		free(e);
	} else {
		PyObject *header = PyBytes_FromStringAndSize(e->bytes, (Py_ssize_t)e->header_len),
			 *data;
		if (e->len > AM_BYTES_MAX)
			data = long_data(e);
		else {
			data = PyBytes_FromStringAndSize(
				e->bytes + e->header_len, (Py_ssize_t)e->len);
			free(e);
		}
		if (header && data)
			r = PyObject_CallFunctionObjArgs(fn, ep, header, data, NULL);
		Py_XDECREF(header);
		Py_XDECREF(data);
	}
	end_unref(from);
	int rc = handler_called(ctx,
		am ? "the handler of an active message failed"
		   : "the handler of a notification failed",
		fn, r);
	Py_DECREF(ep);
	return rc;
}

static int am_deliver(Context *ctx, struct event *event)
{
	struct am_event *e = (struct am_event *)(void *)event;
	return deliver(ctx, e, ctx->am[e->id].fn, true);
}

static int notify_deliver(Context *ctx, struct event *event)
{
	return deliver(ctx, (struct am_event *)(void *)event, ctx->on_notify, false);
}

/* ---- from inside of the library ---- */

static void am_came(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	const struct am_slot *slot = arg;
	struct am_event *e = am_event_new(ep, header_len + len);
	if (!e) {
		slot->ctx->am_lost++;
		return;
	}
	e->id = slot->id;
	e->header_len = header_len;
	e->len = len;
	if (header_len)
		memcpy(e->bytes, header, header_len);
	if (len)
		memcpy(e->bytes + header_len, data, len);
	e->event.deliver = am_deliver;
	ctx_event(slot->ctx, &e->event);
}

static void notified(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	Context *ctx = arg;
	struct am_event *e = am_event_new(ep, 0);
	if (!e) {
		ctx->am_lost++;
		return;
	}
	e->data = data;
	e->len = len;
	e->event.deliver = notify_deliver;
	ctx_event(ctx, &e->event);
}

/* ---- methods of a context ---- */

PyObject *context_on_am(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	Context *ctx = (Context *)self;
	uint64_t id = 0;
	if (nargs != 2)
		return PyErr_Format(PyExc_TypeError, "on_am() takes an id and a function, or None");
	if (args_u64(args[0], "the id", &id) || !ctx_enter(ctx))
		return NULL;
	if (!handler_check("on_am", args[1]))
		return NULL;
	if (!ctx->am && !(ctx->am = calloc(RPW_AM_IDS, sizeof(*ctx->am))))
		return PyErr_NoMemory();
	struct am_slot *slot = &ctx->am[id < RPW_AM_IDS ? id : 0];
	unsigned known = id < RPW_AM_IDS ? (unsigned)id : RPW_AM_IDS; /* which is refused */
	int rc = rpw_context_on_am(ctx->c, known, args[1] == Py_None ? NULL : am_came, slot);
	if (rc < 0)
		return error_raise(rc, NULL);
	slot->ctx = ctx;
	slot->id = (unsigned)id;
	handler_set(&slot->fn, args[1]);
	if (ctx_turn_soon(ctx))
		return NULL;
	Py_RETURN_NONE;
}

PyObject *context_on_notify(PyObject *self, PyObject *fn)
{
	Context *ctx = (Context *)self;
	if (!ctx_enter(ctx) || !handler_check("on_notify", fn))
		return NULL;
	rpw_context_on_notify(ctx->c, fn == Py_None ? NULL : notified, ctx);
	handler_set(&ctx->on_notify, fn);
	Py_RETURN_NONE;
}
