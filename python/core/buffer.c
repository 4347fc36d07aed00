/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.c - memory of the program's, without a copy: the buffer protocol, else
 * __cuda_array_interface__, else DLPack. It has to be in one piece. */
#include "core.h"

void held_release(struct held *h)
{
	if (h->cuda)
		rpw_memory_destroy(h->cuda);
	h->cuda = NULL;
	if (h->view.obj)
		PyBuffer_Release(&h->view);
	h->view.obj = NULL;
	Py_CLEAR(h->owner);
}

static int not_contiguous(PyObject *o)
{
	return fail(PyExc_BufferError,
		"ropeway moves memory that is in one piece, and this %R is not contiguous: give a "
		"copy (numpy.ascontiguousarray for what is sent), or its pieces one by one",
		Py_TYPE(o));
}

static int read_only(PyObject *o)
{
	return fail(PyExc_BufferError,
		"received bytes have to go to writable memory, and this %R is read-only: give a "
		"bytearray, or a writable array",
		Py_TYPE(o));
}

/* The buffer protocol said no: why, in words. */
static int refused(PyObject *o, bool writable)
{
	if (!PyErr_ExceptionMatches(PyExc_BufferError) &&
		!PyErr_ExceptionMatches(PyExc_ValueError) &&
		!PyErr_ExceptionMatches(PyExc_TypeError))
		return -1;
	struct raised r = raised_take();
	Py_buffer any;
	/* Would it give anything at all? */
	if (!PyObject_GetBuffer(o, &any, PyBUF_FULL_RO)) {
		bool ro = any.readonly, whole = PyBuffer_IsContiguous(&any, 'A');
		PyBuffer_Release(&any);
		if (!whole || (writable && ro)) {
			raised_drop(r);
			return whole ? read_only(o) : not_contiguous(o);
		}
	} else
		PyErr_Clear();
	raised_again(r);
	return -1;
}

static int buffer_get(PyObject *o, bool writable, struct held *h)
{
	int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
	if (PyObject_GetBuffer(o, &h->view, flags)) {
		if (!PyErr_ExceptionMatches(PyExc_BufferError) &&
			!PyErr_ExceptionMatches(PyExc_ValueError))
			return -1;
		/* Fortran's order is one piece, too. */
		struct raised r = raised_take();
		if (PyObject_GetBuffer(o, &h->view, flags | PyBUF_ANY_CONTIGUOUS)) {
			PyErr_Clear();
			raised_again(r);
			h->view.obj = NULL;
			return refused(o, writable);
		}
		raised_drop(r);
	}
	h->ptr = h->view.buf;
	h->len = (size_t)h->view.len;
	return 0;
}

/* ---- strides in bytes, NULL: C order ---- */

static bool one_piece(
	Py_ssize_t n, const int64_t *shape, const int64_t *strides, int64_t item, bool fortran)
{
	int64_t expected = item;
	for (Py_ssize_t k = 0; k < n; k++) {
		Py_ssize_t i = fortran ? k : n - 1 - k;
		if (shape[i] == 0)
			return true;
		if (shape[i] != 1 && strides[i] != expected)
			return false;
		expected *= shape[i];
	}
	return true;
}

enum { DIMENSIONS_MAX = 64 };

static int numbers(PyObject *tuple, const char *what, int64_t *out)
{
	if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) > DIMENSIONS_MAX)
		return fail(PyExc_TypeError,
			"__cuda_array_interface__: '%s' has to be a tuple of at most %d", what,
			DIMENSIONS_MAX);
	Py_ssize_t n = PyTuple_Size(tuple);
	for (Py_ssize_t i = 0; i < n; i++) {
		out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
		if (out[i] == -1 && PyErr_Occurred())
			return -1;
	}
	return (int)n;
}

/* "<f4" has 4. */
static int64_t item_bytes(PyObject *typestr)
{
	const char *s =
		typestr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, NULL) : NULL;
	long n = s && strlen(s) > 2 ? strtol(s + 2, NULL, 10) : 0;
	if (n <= 0 && !PyErr_Occurred())
		PyErr_SetString(PyExc_TypeError,
			"__cuda_array_interface__: 'typestr' has to be as numpy's, such as '<f4'");
	return n > 0 ? n : -1;
}

static int total(Py_ssize_t n, const int64_t *shape, int64_t item, size_t *len)
{
	size_t bytes = (size_t)item;
	for (Py_ssize_t i = 0; i < n; i++)
		if (shape[i] < 0 || __builtin_mul_overflow(bytes, (size_t)shape[i], &bytes))
			return fail(PyExc_ValueError, "the shape of this array cannot be");
	*len = bytes;
	return 0;
}

static int cuda_register(Context *ctx, struct held *h)
{
	if (!h->len)
		return 0;
	int rc = rpw_memory_register(ctx->c, h->ptr, h->len, RPW_MEMORY_CUDA, 0, &h->cuda);
	if (rc < 0)
		return fail_status(rc);
	return 0;
}

static int cuda_get(Context *ctx, PyObject *o, PyObject *cai, bool writable, struct held *h)
{
	if (!PyDict_Check(cai))
		return fail(PyExc_TypeError, "__cuda_array_interface__ has to be a dict");
	PyObject *data = PyDict_GetItemString(cai, "data");
	PyObject *shape = PyDict_GetItemString(cai, "shape");
	PyObject *strides = PyDict_GetItemString(cai, "strides");
	PyObject *mask = PyDict_GetItemString(cai, "mask");
	int64_t dims[DIMENSIONS_MAX], steps[DIMENSIONS_MAX];
	if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2 || !shape)
		return fail(PyExc_TypeError,
			"__cuda_array_interface__ needs 'data' (pointer, read-only) and 'shape'");
	if (mask && mask != Py_None)
		return fail(PyExc_BufferError, "arrays with a mask are not supported");
	int n = numbers(shape, "shape", dims);
	int64_t item = n < 0 ? -1 : item_bytes(PyDict_GetItemString(cai, "typestr"));
	if (item < 0)
		return -1;
	if (strides && strides != Py_None) {
		int m = numbers(strides, "strides", steps);
		if (m < 0)
			return -1;
		if (m != n || (!one_piece(n, dims, steps, item, false) &&
				      !one_piece(n, dims, steps, item, true)))
			return not_contiguous(o);
	}
	int ro = PyObject_IsTrue(PyTuple_GetItem(data, 1));
	if (ro < 0)
		return -1;
	if (ro && writable)
		return read_only(o);
	h->ptr = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
	if ((!h->ptr && PyErr_Occurred()) || total(n, dims, item, &h->len))
		return -1;
	Py_INCREF(o);
	h->owner = o;
	return cuda_register(ctx, h);
}

/* ---- DLPack: https://dmlc.github.io/dlpack, the part of it that does not change ---- */

static int dlpack_get(Context *ctx, PyObject *o, struct held *h)
{
	/* The unversioned form has no word on being read-only; exporters refuse such arrays. */
	PyObject *capsule = PyObject_CallMethod(o, "__dlpack__", NULL);
	if (!capsule)
		return -1;
	struct dl_tensor *t = PyCapsule_GetPointer(capsule, "dltensor");
	if (!t)
		goto fail;
	int64_t item = ((int64_t)t->dtype.bits * t->dtype.lanes + 7) / 8, steps[DIMENSIONS_MAX];
	if (t->ndim < 0 || t->ndim > DIMENSIONS_MAX) {
		PyErr_Format(PyExc_ValueError, "DLPack: a tensor of %d dimensions", (int)t->ndim);
		goto fail;
	}
	if (t->strides) {
		for (int32_t i = 0; i < t->ndim; i++)
			steps[i] = t->strides[i] * item;
		if (!one_piece(t->ndim, t->shape, steps, item, false) &&
			!one_piece(t->ndim, t->shape, steps, item, true)) {
			not_contiguous(o);
			goto fail;
		}
	}
	if (total(t->ndim, t->shape, item, &h->len))
		goto fail;
	h->ptr = (char *)t->data + t->byte_offset;
	/* Not consumed: dropping the capsule gives the tensor back. */
	h->owner = capsule;
	switch (t->device.type) {
	case DL_CPU:
	case DL_CUDA_HOST:
		return 0;
	case DL_CUDA:
	case DL_CUDA_MANAGED:
		return cuda_register(ctx, h);
	default:
		return fail(PyExc_BufferError,
			"DLPack: memory of a device of type %d; ropeway moves the host's and "
			"CUDA's",
			(int)t->device.type);
	}
fail:
	Py_DECREF(capsule);
	return -1;
}

int held_get(Context *ctx, PyObject *o, bool writable, struct held *h)
{
	h->view.obj = NULL;
	h->owner = NULL;
	h->cuda = NULL;
	h->ptr = NULL;
	h->len = 0;
	if (PyObject_CheckBuffer(o))
		return buffer_get(o, writable, h);
	PyObject *cai = PyObject_GetAttrString(o, "__cuda_array_interface__");
	if (!cai && !PyErr_ExceptionMatches(PyExc_AttributeError))
		return -1;
	int rc;
	if (cai) {
		rc = cuda_get(ctx, o, cai, writable, h);
		Py_DECREF(cai);
	} else {
		PyErr_Clear();
		if (!PyObject_HasAttrString(o, "__dlpack__"))
			return fail(PyExc_TypeError,
				"a buffer is needed (bytes, bytearray, memoryview, a numpy array, "
				"or "
				"what has __cuda_array_interface__ or __dlpack__), not %R",
				Py_TYPE(o));
		rc = dlpack_get(ctx, o, h);
	}
	if (rc)
		held_release(h);
	return rc;
}
