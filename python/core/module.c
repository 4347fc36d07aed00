/* SPDX-License-Identifier: BSD-3-Clause */
/* module.c - the module: its types and constants. */
#include "core.h"

static PyObject *status_name(PyObject *self, PyObject *o)
{
	long status = PyLong_AsLong(o);
	return status == -1 && PyErr_Occurred()
		       ? NULL
		       : PyUnicode_FromString(rpw_status_name((int)status));
}

static PyObject *address(PyObject *self, PyObject *o)
{
	Py_buffer view;
	if (PyObject_GetBuffer(o, &view, PyBUF_FULL_RO))
		return NULL;
	PyObject *where = PyLong_FromVoidPtr(view.buf);
	PyBuffer_Release(&view);
	return where;
}

static PyObject *core_exit(PyObject *self, PyObject *unused)
{
	ctx_all_close();
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{"status_name", status_name, METH_O, "\"RPW_ERR_TIMEOUT\" of -3."},
	{"_address", address, METH_O, "Where a buffer begins in this process."},
	{"_setup", core_setup, METH_VARARGS, NULL},
	{"_exit", core_exit, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "ropeway._core",
	"The C half of ropeway. Programs import ropeway.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
	static const struct {
		const char *name;
		PyType_Spec *spec;
		PyObject **type;
	} types[] = {
		{"Context", &context_spec, &context_type},
		{"Endpoint", &endpoint_spec, &endpoint_type},
		{"Listener", &listener_spec, &listener_type},
		{"Operation", &operation_spec, &operation_type},
		{"Memory", &memory_spec, &memory_type},
		{"RemoteKey", &key_spec, &key_type},
		{"Block", &block_spec, &block_type},
		{"Turn", &turn_spec, &turn_type},
		{"Loan", &loan_spec, &loan_type},
		{"View", &view_spec, &view_type},
	};
	PyObject *m = PyModule_Create(&definition);
	if (!m)
		return NULL;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		*types[i].type = PyType_FromSpec(types[i].spec);
		if (!*types[i].type || PyModule_AddObjectRef(m, types[i].name, *types[i].type))
			goto fail;
	}
	PyObject *all = PyLong_FromUnsignedLongLong(UINT64_MAX);
	if (!all || PyModule_AddObjectRef(m, "ALL", all) || received_type_make(m) ||
		PyModule_AddIntConstant(m, "INLINE_MAX", INLINE_MAX) ||
		PyModule_AddStringConstant(m, "VERSION", rpw_version())) {
		Py_XDECREF(all);
		goto fail;
	}
	Py_DECREF(all);
	return m;
fail:
	Py_DECREF(m);
	return NULL;
}
