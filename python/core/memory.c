/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - registered memory, and keys of peers' memory. */
#include "core.h"

PyObject *memory_type, *key_type;

static void memory_gone(struct handle *h)
{
	rpw_memory_destroy(h->p);
	free(h);
}

/* What a call that makes memory has given. */
static PyObject *memory_ready(Memory *m, int rc, rpw_memory *c_m)
{
	if (rc < 0) {
		error_raise(rc, NULL);
		Py_DECREF(m);
		return NULL;
	}
	m->handle->p = c_m;
	m->ptr = rpw_memory_address(c_m);
	m->len = rpw_memory_length(c_m);
	return (PyObject *)m;
}

PyObject *context_register(PyObject *self, PyObject *args)
{
	Context *ctx = (Context *)self;
	PyObject *buf;
	int access;
	if (!PyArg_ParseTuple(args, "Oi", &buf, &access) || !ctx_enter(ctx))
		return NULL;
	Memory *m = owner_new(memory_type, ctx, memory_gone);
	if (!m)
		return NULL;
	bool writes = access & (RPW_REMOTE_WRITE | RPW_REMOTE_ATOMIC);
	if (held_get(ctx, buf, writes, &m->held) || !ctx_enter(ctx)) {
		Py_DECREF(m);
		return NULL;
	}
	bool cuda = m->held.cuda;
	if (cuda) { /* as held_get registered it, nobody else may reach it */
		rpw_memory_destroy(m->held.cuda);
		m->held.cuda = NULL;
	}
	rpw_memory *c_m;
	int rc = rpw_memory_register(ctx->c, m->held.ptr, m->held.len,
		cuda ? RPW_MEMORY_CUDA : RPW_MEMORY_HOST, (unsigned)access, &c_m);
	return memory_ready(m, rc, c_m);
}

PyObject *context_allocate(PyObject *self, PyObject *args)
{
	Context *ctx = (Context *)self;
	Py_ssize_t size;
	int access;
	if (!PyArg_ParseTuple(args, "ni", &size, &access) || !ctx_enter(ctx))
		return NULL;
	if (size < 0)
		return PyErr_Format(PyExc_ValueError, "a size cannot be negative");
	Memory *m = owner_new(memory_type, ctx, memory_gone);
	if (!m)
		return NULL;
	m->allocated = true;
	rpw_memory *c_m;
	int rc = rpw_memory_allocate(ctx->c, (size_t)size, (unsigned)access, &c_m);
	return memory_ready(m, rc, c_m);
}

static bool memory_open(Memory *m)
{
	if (m->handle && m->handle->p)
		return true;
	PyErr_SetString(PyExc_ValueError,
		m->ctx->c ? "this memory was closed" : "the context of this memory was closed");
	return false;
}

static PyObject *memory_rkey(PyObject *self, PyObject *unused)
{
	Memory *m = (Memory *)self;
	char packed[RPW_RKEY_BYTES_MAX];
	if (!ctx_enter(m->ctx) || !memory_open(m))
		return NULL;
	int n = rpw_rkey_pack(m->handle->p, packed, sizeof(packed));
	return n < 0 ? error_raise(n, NULL) : PyBytes_FromStringAndSize(packed, n);
}

static PyObject *memory_close(PyObject *self, PyObject *unused)
{
	Memory *m = (Memory *)self;
	if (m->exports)
		return PyErr_Format(PyExc_BufferError,
			"this memory has %zd views (memoryview, numpy arrays, operations under "
			"way): it cannot go before they do",
			m->exports);
	if (owner_close(self))
		return NULL;
	held_release(&m->held);
	Py_RETURN_NONE;
}

static PyObject *memory_enter(PyObject *self, PyObject *unused) { return Py_NewRef(self); }

static PyObject *memory_exit(PyObject *self, PyObject *args) { return memory_close(self, NULL); }

static int memory_buffer(PyObject *self, Py_buffer *view, int flags)
{
	Memory *m = (Memory *)self;
	if (!memory_open(m)) {
		PyErr_Clear();
		return fail(PyExc_BufferError, "this memory was closed");
	}
	if (m->held.owner)
		return fail(PyExc_BufferError,
			"memory of a device, or of another array, has no view of its own: use the "
			"array that was registered");
	bool ro = !m->allocated && m->held.view.readonly;
	int rc = PyBuffer_FillInfo(view, self, m->ptr, (Py_ssize_t)m->len, ro, flags);
	if (!rc)
		m->exports++;
	return rc;
}

static void memory_buffer_release(PyObject *self, Py_buffer *view) { ((Memory *)self)->exports--; }

static Py_ssize_t memory_len(PyObject *self) { return (Py_ssize_t)((Memory *)self)->len; }

static PyObject *get_address(PyObject *self, void *unused)
{
	return PyLong_FromVoidPtr(((Memory *)self)->ptr);
}

static void memory_dealloc(PyObject *self)
{
	Memory *m = (Memory *)self;
	PyObject_GC_UnTrack(self);
	if (m->handle && m->held.view.obj && m->ctx->c && !ctx_is_mine(m->ctx)) {
		/* Another thread's collector: the registration goes when its own thread comes by,
		 * and until then its bytes have to be there. They stay. */
		m->held.view.obj = NULL;
		m->held.owner = NULL;
	}
	if (m->handle)
		handle_drop(m->ctx, m->handle);
	m->handle = NULL;
	held_release(&m->held); /* after its registration */
	owner_dealloc(self);
}

static PyMethodDef memory_methods[] = {
	{"rkey", memory_rkey, METH_NOARGS,
		"rkey()\n--\n\nBytes (at most 512) that a peer needs to reach it, for its "
		"Endpoint.unpack. Who has them, and an endpoint,\nhas the rights of the "
		"registration."},
	{"close", memory_close, METH_NOARGS,
		"Takes it back: what peers still move of it ends with status ACCESS at theirs. "
		"BufferError while there are\nviews of memory that was allocated."},
	{"__enter__", memory_enter, METH_NOARGS, NULL},
	{"__exit__", memory_exit, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};
static PyGetSetDef memory_getset[] = {
	{"address", get_address, NULL, "Where it begins.", NULL},
	{"closed", owner_closed, NULL, "True after close().", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot memory_slots[] = {
	{Py_tp_dealloc, memory_dealloc},
	{Py_tp_traverse, owner_traverse},
	{Py_tp_methods, memory_methods},
	{Py_tp_getset, memory_getset},
	{Py_sq_length, memory_len},
	{Py_bf_getbuffer, memory_buffer},
	{Py_bf_releasebuffer, memory_buffer_release},
	{Py_tp_doc, "Registered memory: its length is in bytes."},
	{0, NULL},
};
PyType_Spec memory_spec = {"ropeway._core.Memory", sizeof(Memory), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

/* ---- keys ---- */

static void key_gone(struct handle *h)
{
	rpw_rkey_destroy(h->p);
	free(h);
}

PyObject *key_make(Endpoint *ep, rpw_rkey *key)
{
	Key *k = owner_new(key_type, ep->ctx, key_gone);
	if (!k) {
		rpw_rkey_destroy(key);
		return NULL;
	}
	k->handle->p = key;
	Py_INCREF(ep);
	k->ep = ep;
	return (PyObject *)k;
}

static int key_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(((Key *)self)->ep);
	return owner_traverse(self, visit, arg);
}

static void key_dealloc(PyObject *self)
{
	PyObject *ep = (PyObject *)((Key *)self)->ep;
	PyObject_GC_UnTrack(self);
	owner_dealloc(self);
	Py_XDECREF(ep); /* after its key */
}

static PyMemberDef key_members[] = {
	{"endpoint", T_OBJECT, offsetof(Key, ep), READONLY, "The one that unpacked it."},
	{NULL, 0, 0, 0, NULL},
};
static PyType_Slot key_slots[] = {
	{Py_tp_dealloc, key_dealloc},
	{Py_tp_traverse, key_traverse},
	{Py_tp_members, key_members},
	{Py_tp_doc, "A peer's memory, as one endpoint reaches it."},
	{0, NULL},
};
PyType_Spec key_spec = {"ropeway._core.RemoteKey", sizeof(Key), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, key_slots};
