/* SPDX-License-Identifier: BSD-3-Clause */
/* loan.c - loans and views as Python objects: buffers, and DLPack tensors of bytes. What a program
 * makes of them (memoryviews, arrays) counts as an export; memory that has exports is neither sent
 * nor given back, so nothing can read or write it afterwards. A view whose last export and last
 * reference have gone is released. */
#include "core.h"

PyObject *loan_type, *view_type;

/* The library's half: it outlives its context, and its Python half in ctx->graves. */
struct lent {
	struct handle handle; /* p: this */
	rpw_loaned loan;
	rpw_view view;
};

typedef struct {
	PyObject_HEAD Context *ctx;
	struct handle *handle; /* NULL: sent, or given back */
	Endpoint *ep;          /* of loans */
	Py_ssize_t exports;
	size_t len;
	uint64_t tag;
	bool is_view;
} Lent;

static void lent_gone(struct handle *h)
{
	struct lent *l = (struct lent *)h;
	if (l->loan.data)
		rpw_loan_return(&l->loan);
	if (l->view.data)
		rpw_view_release(&l->view);
	free(l);
}

static Lent *lent_new(PyObject *type, Context *ctx)
{
	struct lent *l = calloc(1, sizeof(*l));
	Lent *o = l ? object_new(type) : NULL;
	if (!o) {
		free(l);
		PyErr_NoMemory();
		return NULL;
	}
	*l = (struct lent){.handle = {.gone = lent_gone, .p = l},
		.loan = RPW_LOANED_INIT,
		.view = RPW_VIEW_INIT};
	link_last(&ctx->handles, &l->handle.link);
	Py_INCREF(ctx);
	o->ctx = ctx;
	o->handle = &l->handle;
	o->is_view = type == view_type;
	return o;
}

static struct lent *lent_of(const Lent *o) { return (struct lent *)o->handle; }

static void *lent_data(const Lent *o)
{
	if (!o->handle)
		return NULL;
	return o->is_view ? lent_of(o)->view.data : lent_of(o)->loan.data;
}

static bool lent_writable(const Lent *o) { return !o->is_view || lent_of(o)->view.writable; }

/* It is there, and nothing is made of it: else false with an exception. */
static bool lent_alone(Lent *o, const char *what)
{
	const char *name = o->is_view ? "view" : "loan";
	if (!lent_data(o)) {
		PyErr_Format(PyExc_ValueError, "this %s was sent or given back before", name);
		return false;
	}
	if (o->exports) {
		PyErr_Format(PyExc_BufferError,
			"this %s cannot be %s while %zd of its memoryviews or arrays live: delete "
			"them first",
			name, what, o->exports);
		return false;
	}
	return true;
}

static void lent_drop(Lent *o)
{
	struct handle *h = o->handle;
	o->handle = NULL;
	if (h)
		handle_drop(o->ctx, h);
}

/* ---- calls of endpoints ---- */

PyObject *endpoint_loan(FAST_ARGS)
{
	static const char *const names[] = {"nbytes", "writable"};
	Endpoint *ep = (Endpoint *)self;
	PyObject *a[2];
	if (args_get("loan", names, 2, 1, args, nargs, kwnames, a) || !endpoint_usable(ep))
		return NULL;
	Py_ssize_t n = PyNumber_AsSsize_t(a[0], PyExc_OverflowError);
	int writable = a[1] ? PyObject_IsTrue(a[1]) : 0;
	if ((n == -1 && PyErr_Occurred()) || writable < 0)
		return NULL;
	if (n < 0)
		return PyErr_Format(PyExc_ValueError, "a number of bytes cannot be negative");
	Lent *o = endpoint_open(ep) ? lent_new(loan_type, ep->ctx) : NULL;
	if (!o)
		return NULL;
	int rc = rpw_loan(
		end_ep(ep->end), (size_t)n, writable ? RPW_LOAN_WRITABLE : 0, 0, &lent_of(o)->loan);
	if (rc < 0) {
		error_raise(rc, endpoint_peer(ep));
		Py_DECREF(o);
		return NULL;
	}
	o->len = (size_t)n;
	Py_INCREF(ep);
	o->ep = ep;
	return (PyObject *)o;
}

rpw_loaned *loan_of(PyObject *loan, size_t *len)
{
	if (!PyObject_TypeCheck(loan, (PyTypeObject *)loan_type)) {
		PyErr_Format(PyExc_TypeError, "a Loan is needed, as Endpoint.loan gives, not %R",
			Py_TYPE(loan));
		return NULL;
	}
	Lent *o = (Lent *)loan;
	*len = o->len;
	return lent_alone(o, "sent") ? &lent_of(o)->loan : NULL;
}

void loan_sent(PyObject *loan) { lent_drop((Lent *)loan); }

/* ---- views ---- */

PyObject *view_begin(Context *ctx, rpw_view **out)
{
	Lent *o = lent_new(view_type, ctx);
	if (o)
		*out = &lent_of(o)->view;
	return (PyObject *)o;
}

void view_filled(PyObject *view, const struct part *part)
{
	Lent *o = (Lent *)view;
	o->len = part->length;
	o->tag = part->tag;
}

static PyObject *lent_close(PyObject *self, PyObject *unused)
{
	Lent *o = (Lent *)self;
	if (!lent_data(o))
		Py_RETURN_NONE;
	if (!lent_alone(o, o->is_view ? "released" : "returned"))
		return NULL;
	if (o->ctx->c && !ctx_enter(o->ctx))
		return NULL;
	lent_drop(o);
	Py_RETURN_NONE;
}

static PyObject *lent_enter(PyObject *self, PyObject *unused) { return Py_NewRef(self); }
static PyObject *lent_exit(PyObject *self, PyObject *args) { return lent_close(self, NULL); }

/* ---- buffers ---- */

static int lent_buffer(PyObject *self, Py_buffer *view, int flags)
{
	Lent *o = (Lent *)self;
	if (!lent_data(o))
		return fail(PyExc_BufferError, "this %s was sent or given back before",
			o->is_view ? "view" : "loan");
	int rc = PyBuffer_FillInfo(
		view, self, lent_data(o), (Py_ssize_t)o->len, !lent_writable(o), flags);
	if (!rc)
		o->exports++;
	return rc;
}

static void lent_buffer_release(PyObject *self, Py_buffer *view) { ((Lent *)self)->exports--; }

static Py_ssize_t lent_len(PyObject *self) { return (Py_ssize_t)((Lent *)self)->len; }

/* ---- DLPack: a vector of uint8 on the CPU ---- */

enum { DL_UINT = 1, DL_READ_ONLY = 1 };
struct dl_managed {
	struct dl_tensor tensor;
	void *ctx;
	void (*deleter)(struct dl_managed *self);
};
struct dl_versioned {
	uint32_t major, minor;
	void *ctx;
	void (*deleter)(struct dl_versioned *self);
	uint64_t flags;
	struct dl_tensor tensor;
};
/* Both forms; only one is shown. */
struct dl_out {
	union {
		struct dl_managed old;
		struct dl_versioned now;
	};
	Lent *of;
	int64_t shape[1], strides[1];
};

static void dl_end(struct dl_out *d)
{
	PyGILState_STATE gil = PyGILState_Ensure();
	Lent *of = d->of;
	free(d);
	of->exports--;
	Py_DECREF(of);
	PyGILState_Release(gil);
}
static void dl_old_delete(struct dl_managed *m) { dl_end(m->ctx); }
static void dl_now_delete(struct dl_versioned *m) { dl_end(m->ctx); }

/* One that nobody has taken. */
static void dl_capsule_free(PyObject *capsule)
{
	static const char *const names[] = {"dltensor", "dltensor_versioned"};
	struct raised r = raised_take();
	for (int i = 0; i < 2; i++)
		if (PyCapsule_IsValid(capsule, names[i])) {
			void *p = PyCapsule_GetPointer(capsule, names[i]);
			if (i)
				dl_now_delete(p);
			else
				dl_old_delete(p);
		}
	raised_again(r);
}

static PyObject *dl_make(Lent *o, bool versioned)
{
	struct dl_out *d = calloc(1, sizeof(*d));
	if (!d)
		return PyErr_NoMemory();
	d->of = o;
	d->shape[0] = (int64_t)o->len;
	d->strides[0] = 1;
	struct dl_tensor t = {.data = lent_data(o),
		.device = {DL_CPU, 0},
		.ndim = 1,
		.dtype = {DL_UINT, 8, 1},
		.shape = d->shape,
		.strides = d->strides};
	if (versioned)
		d->now = (struct dl_versioned){.major = 1,
			.ctx = d,
			.deleter = dl_now_delete,
			.flags = lent_writable(o) ? 0 : DL_READ_ONLY,
			.tensor = t};
	else
		d->old = (struct dl_managed){.tensor = t, .ctx = d, .deleter = dl_old_delete};
	Py_INCREF(o);
	o->exports++;
	PyObject *capsule = PyCapsule_New(versioned ? (void *)&d->now : (void *)&d->old,
		versioned ? "dltensor_versioned" : "dltensor", dl_capsule_free);
	if (!capsule)
		dl_end(d);
	return capsule;
}

static PyObject *lent_dlpack(FAST_ARGS)
{
	static const char *const names[] = {"stream", "max_version", "dl_device", "copy"};
	Lent *o = (Lent *)self;
	PyObject *a[4];
	long major = 0;
	if (args_get("__dlpack__", names, 4, 0, args, nargs, kwnames, a))
		return NULL;
	if (a[1] && a[1] != Py_None) {
		PyObject *first = PySequence_GetItem(a[1], 0);
		major = first ? PyLong_AsLong(first) : -1;
		Py_XDECREF(first);
		if (major == -1 && PyErr_Occurred())
			return NULL;
	}
	if (a[3] && a[3] != Py_None && PyObject_IsTrue(a[3]))
		return PyErr_Format(PyExc_BufferError, "a view has no copy: copy the array");
	if (!lent_data(o))
		return PyErr_Format(PyExc_BufferError, "this %s was sent or given back before",
			o->is_view ? "view" : "loan");
	if (!major && !lent_writable(o))
		return PyErr_Format(PyExc_BufferError,
			"this view is read-only memory, which DLPack can say from version 1.0 on: "
			"use "
			"numpy.frombuffer, or ask the sender for writable loans");
	return dl_make(o, major >= 1);
}

static PyObject *lent_dlpack_device(PyObject *self, PyObject *unused)
{
	return Py_BuildValue("ii", DL_CPU, 0);
}

/* ---- the types ---- */

static PyObject *get_closed(PyObject *self, void *unused)
{
	return PyBool_FromLong(!lent_data((Lent *)self));
}
static PyObject *get_readonly(PyObject *self, void *unused)
{
	return PyBool_FromLong(((Lent *)self)->handle && !lent_writable((Lent *)self));
}
static PyObject *get_loaned(PyObject *self, void *unused)
{
	Lent *o = (Lent *)self;
	return PyBool_FromLong(o->handle && lent_of(o)->view.loaned);
}
static PyObject *get_tag(PyObject *self, void *unused)
{
	return PyLong_FromUnsignedLongLong(((Lent *)self)->tag);
}

static int lent_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(((Lent *)self)->ep);
	return owner_traverse(self, visit, arg);
}

static void lent_dealloc(PyObject *self)
{
	Lent *o = (Lent *)self;
	PyObject *ep = (PyObject *)o->ep;
	PyObject_GC_UnTrack(self);
	owner_dealloc(self);
	Py_XDECREF(ep);
}

static PyMethodDef loan_methods[] = {
	{"close", lent_close, METH_NOARGS,
		"Gives it back unsent. BufferError while arrays of it live."},
	{"__enter__", lent_enter, METH_NOARGS, NULL},
	{"__exit__", lent_exit, METH_VARARGS, NULL},
	{"__dlpack__", FAST(lent_dlpack), NULL},
	{"__dlpack_device__", lent_dlpack_device, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};
static PyMethodDef view_methods[] = {
	{"release", lent_close, METH_NOARGS,
		"Gives it back to its sender. BufferError while arrays of it live."},
	{"__enter__", lent_enter, METH_NOARGS, NULL},
	{"__exit__", lent_exit, METH_VARARGS, NULL},
	{"__dlpack__", FAST(lent_dlpack), NULL},
	{"__dlpack_device__", lent_dlpack_device, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};
static PyGetSetDef loan_getset[] = {
	{"closed", get_closed, NULL, "True when it was sent or given back.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
static PyGetSetDef view_getset[] = {
	{"closed", get_closed, NULL, "True after release().", NULL},
	{"readonly", get_readonly, NULL, "It is read-only memory.", NULL},
	{"loaned", get_loaned, NULL, "It lies in the sender's memory, which can change it.", NULL},
	{"tag", get_tag, NULL, "Of the message.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
#define LENT_SLOTS(methods, getset, doc) \
	{ \
		{Py_tp_dealloc, lent_dealloc}, {Py_tp_traverse, lent_traverse}, \
			{Py_tp_methods, methods}, {Py_tp_getset, getset}, \
			{Py_sq_length, lent_len}, {Py_bf_getbuffer, lent_buffer}, \
			{Py_bf_releasebuffer, lent_buffer_release}, {Py_tp_doc, doc}, {0, NULL}, \
	}
static PyType_Slot loan_slots[] = LENT_SLOTS(loan_methods, loan_getset,
	"Memory for one message, a writable buffer: its length is in bytes.");
static PyType_Slot view_slots[] =
	LENT_SLOTS(view_methods, view_getset, "A message where it lies: its length is in bytes.");
PyType_Spec loan_spec = {"ropeway._core.Loan", sizeof(Lent), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, loan_slots};
PyType_Spec view_spec = {"ropeway._core.View", sizeof(Lent), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, view_slots};
