/* SPDX-License-Identifier: BSD-3-Clause */
/* args.c - arguments of the calls that are too hot for PyArg_Parse. */
#include "core.h"

#include <math.h>

int args_get(const char *fn, const char *const *names, int n, int required, PyObject *const *args,
	Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
	if (nargs > n)
		return fail(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", fn, n,
			nargs);
	for (int i = 0; i < n; i++)
		out[i] = i < nargs ? args[i] : NULL;
	Py_ssize_t named = kwnames ? PyTuple_Size(kwnames) : 0;
	for (Py_ssize_t k = 0; k < named; k++) {
		PyObject *name = PyTuple_GetItem(kwnames, k);
		int i = 0;
		while (i < n && PyUnicode_CompareWithASCIIString(name, names[i]))
			i++;
		if (i == n)
			return fail(
				PyExc_TypeError, "%s() got an unexpected argument '%U'", fn, name);
		if (out[i])
			return fail(PyExc_TypeError, "%s() got '%U' twice", fn, name);
		out[i] = args[nargs + k];
	}
	for (int i = 0; i < required; i++)
		if (!out[i])
			return fail(PyExc_TypeError, "%s() needs the argument '%s'", fn, names[i]);
	return 0;
}

int args_u64(PyObject *o, const char *what, uint64_t *out)
{
	if (!o)
		return 0;
	unsigned long long v;
	if (PyLong_Check(o))
		v = PyLong_AsUnsignedLongLong(o);
	else {
		PyObject *i = PyNumber_Index(o);
		if (!i)
			return -1;
		v = PyLong_AsUnsignedLongLong(i);
		Py_DECREF(i);
	}
	if (v == (unsigned long long)-1 && PyErr_Occurred()) {
		if (PyErr_ExceptionMatches(PyExc_OverflowError) ||
			PyErr_ExceptionMatches(PyExc_TypeError)) {
			PyErr_Clear();
			PyErr_Format(PyExc_OverflowError,
				"%s has to be from 0 to 2**64 - 1, not %R", what, o);
		}
		return -1;
	}
	*out = v;
	return 0;
}

int args_deadline(PyObject *o, uint64_t *deadline_ns)
{
	*deadline_ns = UINT64_MAX;
	if (!o || o == Py_None)
		return 0;
	double s = PyFloat_AsDouble(o);
	if (s == -1.0 && PyErr_Occurred())
		return -1;
	if (isnan(s))
		return fail(PyExc_ValueError, "the timeout is not a number (NaN)");
	if (s < 0)
		s = 0;
	if (s < 1e9)
		*deadline_ns = clock_now() + (uint64_t)(s * 1e9);
	return 0;
}
