/* SPDX-License-Identifier: BSD-3-Clause */
/* errors.c - ropeway.Error from a status and its sentence; exceptions of handlers. */
#include "core.h"

PyObject *error_new, *cancelled_error, *invalid_state, *copy_context;

PyObject *core_setup(PyObject *module, PyObject *args)
{
	PyObject *e, *c, *i, *v;
	if (!PyArg_ParseTuple(args, "OOOO", &e, &c, &i, &v))
		return NULL;
	PyObject **to[] = {&error_new, &cancelled_error, &invalid_state, &copy_context};
	PyObject *from[] = {e, c, i, v};
	for (int n = 0; n < 4; n++)
		ref_set(to[n], from[n]);
	Py_RETURN_NONE;
}

static PyObject *or_none(PyObject *o) { return o ? o : Py_None; }

PyObject *error_make(int status, const char *sentence, PyObject *peer, PyObject *length)
{
	if (!error_new)
		return PyErr_Format(PyExc_RuntimeError, "ropeway._core is used without ropeway");
	PyObject *text = PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace");
	if (!text)
		return NULL;
	PyObject *e = PyObject_CallFunction(
		error_new, "iOOO", status, text, or_none(peer), or_none(length));
	Py_DECREF(text);
	return e;
}

void error_set(PyObject *error) { PyErr_SetObject((PyObject *)Py_TYPE(error), error); }

PyObject *error_raise_text(int status, const char *sentence, PyObject *peer)
{
	PyObject *e = error_make(status, sentence, peer, NULL);
	if (e) {
		error_set(e);
		Py_DECREF(e);
	}
	return NULL;
}

PyObject *error_raise(int status, PyObject *peer)
{
	return error_raise_text(status, rpw_last_error(), peer);
}

int fail(PyObject *kind, const char *form, ...)
{
	va_list args;
	va_start(args, form);
	PyErr_FormatV(kind, form, args);
	va_end(args);
	return -1;
}

int fail_status(int status)
{
	error_raise(status, NULL);
	return -1;
}

void raised_drop(struct raised r)
{
	Py_XDECREF(r.type);
	Py_XDECREF(r.value);
	Py_XDECREF(r.trace);
}

PyObject *raised_value(void)
{
	struct raised r = raised_take();
	PyErr_NormalizeException(&r.type, &r.value, &r.trace);
	if (r.trace && r.value)
		PyException_SetTraceback(r.value, r.trace);
	Py_XDECREF(r.type);
	Py_XDECREF(r.trace);
	return r.value;
}

int error_of_handler(Context *ctx, const char *message, PyObject *handler)
{
	if (!PyErr_ExceptionMatches(PyExc_Exception))
		return -1;
	if (ctx->loop) {
		PyObject *value = raised_value();
		PyObject *r = PyObject_CallMethod(ctx->loop, "call_exception_handler",
			"({s:s,s:O,s:O})", "message", message, "exception", or_none(value),
			"handler", or_none(handler));
		Py_XDECREF(value);
		if (r) {
			Py_DECREF(r);
			return 0;
		}
		if (!PyErr_ExceptionMatches(PyExc_Exception))
			return -1;
	}
	PyErr_WriteUnraisable(handler);
	return 0;
}

int handler_called(Context *ctx, const char *message, PyObject *handler, PyObject *r)
{
	int rc = r ? 0 : error_of_handler(ctx, message, handler);
	Py_XDECREF(r);
	Py_DECREF(handler);
	return rc;
}

void ref_set(PyObject **place, PyObject *o)
{
	PyObject *old = *place;
	Py_XINCREF(o);
	*place = o;
	Py_XDECREF(old);
}

bool handler_check(const char *call, PyObject *fn)
{
	if (fn == Py_None || PyCallable_Check(fn))
		return true;
	PyErr_Format(PyExc_TypeError, "%s() needs a function, or None", call);
	return false;
}

void handler_set(PyObject **place, PyObject *fn) { ref_set(place, fn == Py_None ? NULL : fn); }
