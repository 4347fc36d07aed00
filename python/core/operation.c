/* SPDX-License-Identifier: BSD-3-Clause */
/* operation.c - one operation: the library's request and the loop's future in one object. It has
 * what asyncio asks of a future (asyncio.Future's documentation, "future-like"), so tasks wait for
 * it without another object between.
 *
 *   pending    -> finished    its event is handed out, or whoever awaits it finds it complete
 *   pending    -> cancelled   cancel(); bytes that move already go on into the buffer, which is
 *                             held until they have */
#include "core.h"

PyObject *operation_type;

/* ---- made, posted ---- */

static int op_deliver(Context *ctx, struct event *event)
{
	op_finish(OF_LINK(event, Operation, event), false);
	return 0;
}

/* Its context has closed: requests that the library ended without a word, in a forked child, end
 * here. */
static void op_drop(struct event *event, bool quiet)
{
	Operation *op = OF_LINK(event, Operation, event);
	if (op->left)
		op->status = RPW_ERR_CANCELED;
	op->left = 0;
	op->large = false;
	op_finish(op, quiet);
}

static Operation *op_new(void)
{
	Operation *op = object_new(operation_type);
	if (!op)
		return NULL;
	link_init(&op->link);
	link_init(&op->event.link);
	op->event.deliver = op_deliver;
	op->event.drop = op_drop;
	op->one.op = op;
	op->parts = &op->one;
	op->n = 1;
	return op;
}

Operation *op_take(Context *ctx, Endpoint *ep, enum op_kind kind)
{
	Operation *op = ctx->spare;
	ctx->spare = NULL;
	if (!op && !(op = op_new()))
		return NULL;
	Py_INCREF(ctx);
	op->ctx = ctx;
	op->kind = (uint8_t)kind;
	if (ep) {
		Py_INCREF(ep);
		op->ep = ep;
	}
	return op;
}

/* It has the loop in the place of its context, which has it: no circle. */
static PyObject *done_with_none(Context *ctx)
{
	if (!ctx->none) {
		ctx->none = op_new();
		if (!ctx->none)
			return NULL;
		ctx->none->state = OP_FINISHED;
		ctx->none->kind = OP_NONE;
		Py_XINCREF(ctx->loop);
		ctx->none->object = ctx->loop;
	}
	Py_INCREF(ctx->none);
	return (PyObject *)ctx->none;
}

static void buffers_release(Operation *op)
{
	parts_release(op);
	Py_CLEAR(op->key);
	op_not_large(op);
}

PyObject *op_begun(Operation *op)
{
	Context *ctx = op->ctx;
	if (!op->left)
		op_finish(op, false);
	else {
		Py_INCREF(op); /* the context's */
		op->under_way = true;
		link_last(&ctx->under_way, &op->link);
	}
	if (!ctx_turn_soon(ctx))
		return (PyObject *)op;
	Py_DECREF(op);
	return NULL;
}

PyObject *op_posted(Operation *op, int rc, rpw_request *req)
{
	Context *ctx = op->ctx;
	if (rc < 0) {
		error_raise(rc, op->ep ? endpoint_peer(op->ep) : NULL);
		buffers_release(op);
		Py_DECREF(op);
		return NULL;
	}
	if (!req) { /* RPW_OK: complete already */
		ctx_turn_soon(ctx);
		if (op->kind == OP_NONE) {
			buffers_release(op);
			/* its object goes on as the spare */
			if (!ctx->spare && Py_REFCNT(op) == 1) {
				Py_CLEAR(op->ep);
				op->ctx = NULL;
				ctx->spare = op;
				Py_DECREF(ctx);
			} else
				Py_DECREF(op);
			return done_with_none(ctx);
		}
		op_finish(op, false);
		return (PyObject *)op;
	}
	op_weighed(op, op->one.held.len);
	op->posting = true;
	part_follow(&op->one, req);
	op->posting = false;
	return op_begun(op);
}

/* ---- its end ---- */

static int call_soon(Operation *op, PyObject *fn, PyObject *vars)
{
	Context *ctx = op->ctx;
	PyObject *args, *kw = NULL, *r = NULL, *loop = ctx ? ctx->loop : op->object, *soon;
	if (!loop) {
		r = PyObject_CallFunctionObjArgs(fn, op, NULL);
		if (!r && !ctx)
			return -1;
		Py_INCREF(fn);
		return handler_called(ctx, "a callback of an operation failed", fn, r);
	}
	if (ctx) {
		soon = ctx->call_soon;
		Py_INCREF(soon);
	} else if (!(soon = PyObject_GetAttrString(loop, "call_soon")))
		return -1;
	args = PyTuple_Pack(2, fn, (PyObject *)op);
	if (args) {
		kw = vars ? PyDict_New() : NULL;
		if (!vars || (kw && !PyDict_SetItemString(kw, "context", vars)))
			r = PyObject_Call(soon, args, kw);
	}
	Py_XDECREF(args);
	Py_XDECREF(kw);
	Py_DECREF(soon);
	if (r) {
		Py_DECREF(r);
		return 0;
	}
	PyErr_Clear(); /* the loop is closed: nobody waits any more */
	return 0;
}

static void callbacks_schedule(Operation *op, bool quiet)
{
	PyObject *fn = op->callback, *vars = op->callback_vars, *more = op->callbacks;
	op->callback = op->callback_vars = op->callbacks = NULL;
	if (fn && !quiet && call_soon(op, fn, vars) < 0)
		PyErr_WriteUnraisable(fn);
	Py_XDECREF(fn);
	Py_XDECREF(vars);
	for (Py_ssize_t i = 0; more && !quiet && i < PyList_Size(more); i++) {
		PyObject *pair = PyList_GetItem(more, i);
		PyObject *v = PyTuple_GetItem(pair, 1);
		if (call_soon(op, PyTuple_GetItem(pair, 0), v == Py_None ? NULL : v) < 0)
			PyErr_WriteUnraisable(PyTuple_GetItem(pair, 0));
	}
	Py_XDECREF(more);
}

/* Of the endpoint that it is on, or that the message came from; borrowed, or NULL. */
static PyObject *peer_of(Operation *op)
{
	const struct end *from = op->one.from;
	if (op->ep)
		return endpoint_peer(op->ep);
	return from && from->py ? endpoint_peer(from->py) : NULL;
}

static void error_keep(Operation *op)
{
	if (op->error) /* the allocator's own exception */
		return;
	PyObject *length = op->status == RPW_ERR_TRUNCATED ? PyLong_FromSize_t(op->length) : NULL;
	struct raised r = raised_take();
	op->error = error_make(op->status,
		op->sentence ? op->sentence : rpw_status_name(op->status), peer_of(op), length);
	if (!op->error)
		PyErr_Clear(); /* no memory: result() says so */
	raised_again(r);
	Py_XDECREF(length);
}

/* Borrowed; NULL with a MemoryError. */
static PyObject *error_get(Operation *op)
{
	if (!op->error)
		error_keep(op);
	return op->error ? op->error : PyErr_NoMemory();
}

void op_finish(Operation *op, bool quiet)
{
	if (!link_alone(&op->event.link))
		link_out(&op->event.link);
	if (op->state == OP_PENDING) {
		op->state = OP_FINISHED;
		if (op->status < 0 && !quiet)
			error_keep(op);
		else if (op->kind == OP_VIEW && op->object)
			view_filled(op->object, &op->one);
		if (op->status >= 0 && (op->kind == OP_OBJECT || op->kind == OP_VIEW) &&
			op->object) {
			op->result = op->object;
			op->object = NULL;
		}
	}
	buffers_release(op);
	Py_CLEAR(op->object);
	Py_CLEAR(op->allocator);
	if (op->callback)
		callbacks_schedule(op, quiet);
	if (op->under_way) {
		op->under_way = false;
		link_out(&op->link);
		Py_DECREF(op);
	}
}

/* ---- results ---- */

static PyObject *result_make(Operation *op)
{
	switch (op->kind) {
	case OP_RECV:
		return part_received(&op->one);
	case OP_NUMBER:
		return PyLong_FromUnsignedLongLong(op->before);
	case OP_RECVS:
		return parts_received(op);
	default:
		Py_RETURN_NONE;
	}
}

static PyObject *cancelled_make(Operation *op)
{
	PyObject *msg = op->cancel_msg;
	return msg && msg != Py_None ? PyObject_CallFunctionObjArgs(cancelled_error, msg, NULL)
				     : PyObject_CallFunctionObjArgs(cancelled_error, NULL);
}

/* Its result, a new reference; NULL with what it failed with. */
static PyObject *outcome(Operation *op)
{
	if (op->state == OP_PENDING)
		return PyErr_Format(invalid_state, "the operation is still under way");
	if (op->state == OP_CANCELLED) {
		PyObject *e = cancelled_make(op);
		if (e) {
			error_set(e);
			Py_DECREF(e);
		}
		return NULL;
	}
	if (op->status < 0) {
		if (error_get(op))
			error_set(op->error);
		return NULL;
	}
	if (!op->result && !(op->result = result_make(op)))
		return NULL;
	Py_INCREF(op->result);
	return op->result;
}

/* ---- awaiting ---- */

/* Is it complete after a look, or a short spin? Then no turn of the loop is needed. Only where
 * nothing else waits to be handed out before it, and not too often in a row. */
static int inline_try(Operation *op)
{
	Context *ctx = op->ctx;
	if (!ctx->c || ctx->busy || !ctx_is_mine(ctx) || ctx->in_a_row >= INLINE_MAX) {
		ctx->in_a_row = 0;
		return 0;
	}
	uint64_t until = 0;
	for (;;) {
		if (!link_alone(&ctx->events)) {
			if (ctx->events.next != &op->event.link)
				return 0;
			ctx->in_a_row++;
			op_finish(op, false);
			return 0;
		}
		if (until == 1)
			return 0;
		for (int i = 0; i < 8 && link_alone(&ctx->events); i++)
			if (ctx_poll(ctx) < 0)
				return -1;
		if (!link_alone(&ctx->events))
			continue;
		uint64_t now = ctx->spin_ns ? clock_now() : 0;
		if (!until)
			until = ctx_spin_allowed(ctx) ? now + ctx->spin_ns : 1;
		else if (now >= until)
			until = 1;
	}
}

enum awaited { AWAIT_RETURN, AWAIT_YIELD, AWAIT_ERROR };

static enum awaited await_step(Operation *op)
{
	if (op->state == OP_PENDING && !op->blocking) {
		if (inline_try(op) < 0)
			return AWAIT_ERROR;
		if (op->state == OP_PENDING) {
			op->ctx->in_a_row = 0;
			op->blocking = true;
			if (ctx_turn_soon(op->ctx))
				return AWAIT_ERROR;
			return AWAIT_YIELD;
		}
	}
	if (op->state == OP_PENDING) {
		PyErr_SetString(PyExc_RuntimeError, "await wasn't used with the operation");
		return AWAIT_ERROR;
	}
	return AWAIT_RETURN;
}

static PySendResult operation_send(PyObject *self, PyObject *arg, PyObject **result)
{
	Operation *op = (Operation *)self;
	switch (await_step(op)) {
	case AWAIT_YIELD:
		Py_INCREF(self);
		*result = self;
		return PYGEN_NEXT;
	case AWAIT_RETURN:
		*result = outcome(op);
		return *result ? PYGEN_RETURN : PYGEN_ERROR;
	default:
		*result = NULL;
		return PYGEN_ERROR;
	}
}

static PyObject *operation_next(PyObject *self)
{
	PyObject *r;
	switch (operation_send(self, Py_None, &r)) {
	case PYGEN_NEXT:
		return r;
	case PYGEN_RETURN:
		if (r != Py_None) { /* StopIteration would take a tuple as its arguments */
			PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, r, NULL);
			if (stop) {
				PyErr_SetObject(PyExc_StopIteration, stop);
				Py_DECREF(stop);
			}
		}
		Py_DECREF(r);
		return NULL;
	default:
		return NULL;
	}
}

/* ---- methods ---- */

static PyObject *operation_done(PyObject *self, PyObject *unused)
{
	return PyBool_FromLong(((Operation *)self)->state != OP_PENDING);
}

static PyObject *operation_cancelled(PyObject *self, PyObject *unused)
{
	return PyBool_FromLong(((Operation *)self)->state == OP_CANCELLED);
}

static PyObject *operation_result(PyObject *self, PyObject *unused)
{
	return outcome((Operation *)self);
}

static PyObject *operation_exception(PyObject *self, PyObject *unused)
{
	Operation *op = (Operation *)self;
	if (op->state == OP_FINISHED && op->status < 0)
		return Py_XNewRef(error_get(op));
	if (op->state != OP_FINISHED)
		return outcome(op); /* which raises */
	Py_RETURN_NONE;
}

static PyObject *operation_cancel(FAST_ARGS)
{
	static const char *const names[] = {"msg"};
	PyObject *msg;
	Operation *op = (Operation *)self;
	if (args_get("cancel", names, 1, 0, args, nargs, kwnames, &msg))
		return NULL;
	if (op->state != OP_PENDING)
		Py_RETURN_FALSE;
	if (!ctx_enter(op->ctx))
		return NULL;
	parts_collect(op);
	if (!op->left) {
		op_finish(op, false); /* it came before */
		Py_RETURN_FALSE;
	}
	ref_set(&op->cancel_msg, msg);
	op->state = OP_CANCELLED;
	int rc = parts_cancel(op);
	if (rc < 0)
		return error_raise(rc, NULL);
	Py_INCREF(op);
	if (!op->left)
		op_finish(op, false); /* its buffer goes */
	else
		callbacks_schedule(op, false);
	ctx_turn_soon(op->ctx);
	Py_DECREF(op);
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_TRUE;
}

static PyObject *operation_cancelled_error(PyObject *self, PyObject *unused)
{
	return cancelled_make((Operation *)self);
}

static PyObject *operation_add_done_callback(FAST_ARGS)
{
	static const char *const names[] = {"fn", "context"};
	PyObject *a[2], *vars;
	Operation *op = (Operation *)self;
	if (args_get("add_done_callback", names, 2, 1, args, nargs, kwnames, a))
		return NULL;
	vars = a[1] && a[1] != Py_None ? a[1] : NULL;
	if (vars)
		Py_INCREF(vars);
	else if (!(vars = PyObject_CallFunctionObjArgs(copy_context, NULL)))
		return NULL;
	if (op->state != OP_PENDING) {
		int rc = call_soon(op, a[0], vars);
		Py_DECREF(vars);
		if (rc < 0)
			return NULL;
		Py_RETURN_NONE;
	}
	if (!op->callback) {
		Py_INCREF(a[0]);
		op->callback = a[0];
		op->callback_vars = vars;
		Py_RETURN_NONE;
	}
	int rc = op->callbacks || (op->callbacks = PyList_New(0)) ? 0 : -1;
	PyObject *pair = rc ? NULL : PyTuple_Pack(2, a[0], vars);
	Py_DECREF(vars);
	rc = pair ? PyList_Append(op->callbacks, pair) : -1;
	Py_XDECREF(pair);
	if (rc)
		return NULL;
	Py_RETURN_NONE;
}

/* All (fn, vars) of it, the first one included: a new list. */
static PyObject *callbacks_all(const Operation *op)
{
	PyObject *all = op->callbacks ? PySequence_List(op->callbacks) : PyList_New(0);
	PyObject *first =
		all && op->callback ? PyTuple_Pack(2, op->callback, op->callback_vars) : NULL;
	if (op->callback && (!first || PyList_Insert(all, 0, first)))
		Py_CLEAR(all);
	Py_XDECREF(first);
	return all;
}

static int callbacks_replace(Operation *op, PyObject *list)
{
	PyObject *pair = PyList_Size(list) ? PyList_GetItem(list, 0) : NULL;
	ref_set(&op->callback, pair ? PyTuple_GetItem(pair, 0) : NULL);
	ref_set(&op->callback_vars, pair ? PyTuple_GetItem(pair, 1) : NULL);
	ref_set(&op->callbacks, list);
	return PyList_SetSlice(list, 0, 1, NULL);
}

static PyObject *operation_remove_done_callback(PyObject *self, PyObject *fn)
{
	Operation *op = (Operation *)self;
	/* comparing runs code of the program's, which may change what there is */
	PyObject *all = callbacks_all(op), *keep = all ? PyList_New(0) : NULL;
	int rc = keep ? 0 : -1;
	long n = 0;
	for (Py_ssize_t i = 0; !rc && i < PyList_Size(all); i++) {
		PyObject *pair = PyList_GetItem(all, i);
		int same = PyObject_RichCompareBool(PyTuple_GetItem(pair, 0), fn, Py_EQ);
		if (same > 0)
			n++;
		else
			rc = same < 0 ? -1 : PyList_Append(keep, pair);
	}
	if (!rc && op->state == OP_PENDING)
		rc = callbacks_replace(op, keep);
	Py_XDECREF(all);
	Py_XDECREF(keep);
	return rc ? NULL : PyLong_FromLong(n);
}

static PyObject *operation_get_loop(PyObject *self, PyObject *unused)
{
	Operation *op = (Operation *)self;
	PyObject *loop = op->ctx ? op->ctx->loop : op->object;
	if (!loop)
		return PyErr_Format(PyExc_RuntimeError,
			"the context of this operation has no loop: use wait(), or a context made "
			"with a loop");
	return Py_NewRef(loop);
}

static PyObject *op_run(PyObject *self, PyObject *timeout)
{
	Operation *op = (Operation *)self;
	uint64_t deadline;
	if (op->state == OP_PENDING) {
		if (args_deadline(timeout, &deadline) || !ctx_enter(op->ctx))
			return NULL;
		int rc = ctx_wait(op->ctx, op, deadline);
		if (rc < 0)
			return NULL;
		if (op->state == OP_PENDING)
			return error_raise_text(RPW_ERR_EXPIRED,
				"not done in the time that wait() had; the operation is still "
				"under way: wait again, or cancel it",
				op->ep ? endpoint_peer(op->ep) : NULL);
	}
	return outcome(op);
}

static int operation_clear(PyObject *self);

/* Nobody else has seen it: it is the next one. */
static void recycle(Operation *op)
{
	Context *ctx = op->ctx;
	if (!ctx || !ctx->c || ctx->spare || Py_REFCNT(op) != 1 || op->left || op->under_way ||
		op->state != OP_FINISHED || !link_alone(&op->event.link)) {
		Py_DECREF(op);
		return;
	}
	operation_clear((PyObject *)op);
	Py_CLEAR(op->ep);
	if (op->one.from)
		end_unref(op->one.from);
	op->one.from = NULL;
	free(op->sentence);
	op->sentence = NULL;
	op->state = OP_PENDING;
	op->status = 0;
	op->length = 0;
	op->blocking = op->large = false;
	op->ctx = NULL;
	ctx->spare = op;
	Py_DECREF(ctx);
}

PyObject *op_block(PyObject *self, PyObject *timeout)
{
	Operation *op = (Operation *)self;
	if (!op)
		return NULL;
	PyObject *r = op_run(self, timeout);
	if (!r && op->state == OP_PENDING) { /* time is up, or a signal's handler raised */
		struct raised e = raised_take();
		PyObject *canceled = operation_cancel(self, NULL, 0, NULL);
		if (canceled == Py_False && op->state == OP_FINISHED) { /* in the last moment */
			raised_drop(e);
			r = outcome(op);
		} else {
			PyErr_Clear();
			raised_again(e);
		}
		Py_XDECREF(canceled);
	}
	recycle(op);
	return r;
}

static PyObject *operation_wait(FAST_ARGS)
{
	static const char *const names[] = {"timeout"};
	PyObject *timeout;
	if (args_get("wait", names, 1, 0, args, nargs, kwnames, &timeout))
		return NULL;
	return op_run(self, timeout);
}

/* ---- the type ---- */

static PyObject *get_received(PyObject *self, void *unused)
{
	Operation *op = (Operation *)self;
	if (op->state != OP_FINISHED ||
		(op->kind != OP_RECV && op->kind != OP_OBJECT && op->kind != OP_VIEW))
		Py_RETURN_NONE;
	return part_received(&op->one);
}

static PyObject *operation_repr(PyObject *self)
{
	Operation *op = (Operation *)self;
	static const char *const kinds[] = {
		"", " receive", " receive of an object", " atomic", " batch", " batch"};
	const char *state = op->status < 0 ? rpw_status_name(op->status) : "done";
	if (op->state != OP_FINISHED)
		state = op->state == OP_PENDING ? "pending" : "cancelled";
	return PyUnicode_FromFormat("<ropeway operation%s %s at %p>", kinds[op->kind], state, self);
}

static int operation_traverse(PyObject *self, visitproc visit, void *arg)
{
	Operation *op = (Operation *)self;
	Py_VISIT(op->ep);
	Py_VISIT(op->callback);
	Py_VISIT(op->callback_vars);
	Py_VISIT(op->callbacks);
	Py_VISIT(op->result);
	Py_VISIT(op->error);
	Py_VISIT(op->cancel_msg);
	Py_VISIT(op->allocator);
	Py_VISIT(op->object);
	Py_VISIT(op->key);
	return owner_traverse(self, visit, arg);
}

/* Not the context and the endpoint, which its end needs, and not what the library has. */
static int operation_clear(PyObject *self)
{
	Operation *op = (Operation *)self;
	Py_CLEAR(op->callback);
	Py_CLEAR(op->callback_vars);
	Py_CLEAR(op->callbacks);
	Py_CLEAR(op->result);
	Py_CLEAR(op->error);
	Py_CLEAR(op->cancel_msg);
	return 0;
}

static void operation_dealloc(PyObject *self)
{
	Operation *op = (Operation *)self;
	PyObject_GC_UnTrack(self);
	operation_clear(self);
	parts_forget(op);
	Py_CLEAR(op->key);
	Py_CLEAR(op->allocator);
	Py_CLEAR(op->object);
	free(op->sentence);
	Py_CLEAR(op->ep);
	Py_CLEAR(op->ctx);
	object_free(self);
}

static PyMethodDef operation_methods[] = {
	{"done", operation_done, METH_NOARGS, "True when it is finished, failed or cancelled."},
	{"cancelled", operation_cancelled, METH_NOARGS, "True after a cancel() that gave True."},
	{"cancel", FAST(operation_cancel),
		"cancel(msg=None)\n--\n\nWithdraws it. A receive without a message ends at once, "
		"and "
		"no later message goes to it.\nWhere bytes move already, Python sees the operation "
		"cancelled at once, and the buffer is held until they\nhave moved. Gives False "
		"where "
		"it was complete before; its result is there then."},
	{"result", operation_result, METH_NOARGS,
		"What it gave. Raises asyncio.InvalidStateError while it is under way, "
		"asyncio.CancelledError,\nor the ropeway.Error that it failed with."},
	{"exception", operation_exception, METH_NOARGS,
		"The ropeway.Error that it failed with, or None."},
	{"wait", FAST(operation_wait),
		"wait(timeout=None)\n--\n\nBlocks until it is done, `timeout` seconds at most; "
		"other "
		"Python threads go on. Gives the result.\nRaises ropeway.Timeout (status EXPIRED) "
		"when "
		"it is still under way then."},
	{"add_done_callback", FAST(operation_add_done_callback),
		"add_done_callback(fn, *, context=None)\n--\n\nAs asyncio.Future's."},
	{"remove_done_callback", operation_remove_done_callback, METH_O, "As asyncio.Future's."},
	{"get_loop", operation_get_loop, METH_NOARGS,
		"The loop of its context; RuntimeError where it has none."},
	{"_make_cancelled_error", operation_cancelled_error, METH_NOARGS, NULL},
	{"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, "Operation[int] in types."},
	{NULL, NULL, 0, NULL},
};
static PyMemberDef operation_members[] = {
	{"_asyncio_future_blocking", T_BOOL, offsetof(Operation, blocking), 0, NULL},
	{"context", T_OBJECT, offsetof(Operation, ctx), READONLY, "Whose it is."},
	{NULL, 0, 0, 0, NULL},
};
static PyGetSetDef operation_getset[] = {
	{"received", get_received, NULL,
		"Of a receive that is done: (length, tag) with `endpoint`; else None.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot operation_slots[] = {
	{Py_tp_dealloc, operation_dealloc},
	{Py_tp_traverse, operation_traverse},
	{Py_tp_clear, operation_clear},
	{Py_tp_repr, operation_repr},
	{Py_tp_iter, Py_NewRef},
	{Py_tp_iternext, operation_next},
	{Py_am_await, Py_NewRef},
	{Py_am_send, operation_send},
	{Py_tp_methods, operation_methods},
	{Py_tp_members, operation_members},
	{Py_tp_getset, operation_getset},
	{Py_tp_doc,
		"An operation under way, or done: awaitable, cancellable, and waited for without a "
		"loop by wait()."},
	{0, NULL},
};
PyType_Spec operation_spec = {"ropeway._core.Operation", sizeof(Operation), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	operation_slots};
