/* SPDX-License-Identifier: BSD-3-Clause */
/* context.c - contexts: who may use them now, progress, events into Python, waiting, the end.
 *
 * With a loop: its descriptor is a reader of the loop, whose callback is a Turn. A turn polls,
 * hands out, and arms the descriptor; calls that post ask for one by call_soon, so none is
 * forgotten. The loop holds the Turn, and that the context: when the loop is closed or collected,
 * the Turn goes, and closes the context. */
#include "core.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

PyObject *context_type, *turn_type;

static struct link all_contexts = {&all_contexts, &all_contexts};

/* ---- who may use it ---- */

bool ctx_is_mine(const Context *ctx)
{
	return ctx->thread == PyThread_get_thread_ident() || (!ctx->loop && !ctx->busy);
}

bool ctx_enter(Context *ctx)
{
	if (!ctx->c) {
		PyObject *e = error_make(
			RPW_ERR_INVALID, "this context was closed: make another one", NULL, NULL);
		if (e) {
			error_set(e);
			Py_DECREF(e);
		}
		return false;
	}
	if (ctx_is_mine(ctx))
		return true;
	PyErr_Format(PyExc_RuntimeError,
		"this ropeway context is used by thread %lu%s, and this is thread %lu: a context "
		"belongs to one thread at a time (Context.wake and loop.call_soon_threadsafe reach "
		"it)",
		ctx->thread, ctx->loop ? ", whose loop it serves" : " now",
		PyThread_get_thread_ident());
	return false;
}

/* ---- handles ---- */

struct handle *handle_new(Context *ctx, enum handle_kind kind, void *p)
{
	struct handle *h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->kind = kind;
	h->p = p;
	link_last(&ctx->handles, &h->link);
	return h;
}

static void handle_end(struct handle *h)
{
	void *p = h->p;
	h->p = NULL;
	link_out(&h->link);
	switch (h->kind) {
	case HANDLE_END:
		if (p) {
			rpw_endpoint_set_user(p, NULL);
			rpw_endpoint_on_close(p, NULL, NULL);
			rpw_endpoint_destroy(p);
		}
		end_unref((struct end *)(void *)h);
		return;
	case HANDLE_LISTENER:
		rpw_listener_destroy(p);
		break;
	case HANDLE_MEMORY:
		rpw_memory_destroy(p);
		break;
	case HANDLE_KEY:
		rpw_rkey_destroy(p);
		break;
	}
	free(h);
}

void handle_drop(Context *ctx, struct handle *h)
{
	if (!ctx->c)
		h->p = NULL;
	if (!ctx->c || ctx_is_mine(ctx)) {
		handle_end(h);
		if (ctx->c && ctx->loop && !ctx->busy) {
			PyObject *type, *value, *trace; /* this may be a dealloc */
			PyErr_Fetch(&type, &value, &trace);
			if (ctx_turn_soon(ctx))
				PyErr_Clear();
			PyErr_Restore(type, value, trace);
		}
		return;
	}
	link_out(&h->link);
	link_last(&ctx->graves, &h->link);
	rpw_context_wake(ctx->c);
}

static void graves_empty(Context *ctx)
{
	while (!link_alone(&ctx->graves))
		handle_end(OF_LINK(ctx->graves.next, struct handle, link));
}

/* ---- progress ---- */

void ctx_event(Context *ctx, struct event *e, enum event_kind kind)
{
	e->kind = kind;
	link_last(&ctx->events, &e->link);
}

/* Bytes move between two processes in pieces that both copy: each turn of the loop for a piece
 * would cost more than the piece. So it goes on while something happens, for as long as tasks may
 * wait, or until an operation is complete; and where no task is ready (`alone`), it looks on a
 * little longer for the peer's next piece. */
static int progress_large(Context *ctx, bool alone)
{
	uint64_t begin = clock_now(), idle = 0;
	for (int total = 0;;) {
		int n = rpw_context_progress(ctx->c);
		if (n < 0)
			return n;
		total += n;
		if (!link_alone(&ctx->events))
			return total;
		uint64_t now = clock_now();
		if (now - begin >= LARGE_TURN_NS)
			return total;
		if (n)
			idle = 0;
		else if (!alone)
			return total;
		else if (!idle)
			idle = now;
		else if (now - idle >= ctx->spin_ns)
			return total;
	}
}

int ctx_poll(Context *ctx)
{
	int n;
	if (ctx->busy) {
		PyErr_SetString(PyExc_RuntimeError,
			"progress from inside of an allocator: return from it first");
		return -1;
	}
	graves_empty(ctx);
	ctx->busy = true;
	ctx->thread = PyThread_get_thread_ident();
	if (ctx->large) {
		bool alone = ctx_spin_allowed(ctx);
		ctx->released = PyEval_SaveThread();
		n = progress_large(ctx, alone);
		PyEval_RestoreThread(ctx->released);
		ctx->released = NULL;
	} else
		n = rpw_context_progress(ctx->c);
	ctx->busy = false;
	if (n < 0) {
		error_raise(n, NULL);
		return -1;
	}
	return n;
}

/* ---- events into Python ---- */

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
		PyObject *r = PyObject_CallFunctionObjArgs(fn, ep, NULL);
		if (!r)
			rc = error_of_handler(ctx, "the callback of a listener failed", fn);
		Py_XDECREF(r);
		Py_DECREF(fn);
	}
	Py_DECREF(ep);
	return rc;
}

/* Drops an event of a context that closes. */
static void event_drop(Context *ctx, struct event *e)
{
	switch (e->kind) {
	case EV_DONE:
		op_finish(OF_LINK(e, Operation, event), true);
		break;
	case EV_ACCEPT:
		handle_drop(ctx, &((struct accept_event *)(void *)e)->end->handle);
		free(e);
		break;
	case EV_AM:
	case EV_NOTIFY:
		am_drop(e);
		break;
	case EV_CLOSED:
		break;
	}
}

int ctx_hand_out(Context *ctx, int max)
{
	int n = 0, rc = 0;
	for (; n < max && !rc && !link_alone(&ctx->events); n++) {
		struct event *e = OF_LINK(ctx->events.next, struct event, link);
		link_out(&e->link);
		switch (e->kind) {
		case EV_DONE:
			op_finish(OF_LINK(e, Operation, event), false);
			break;
		case EV_ACCEPT:
			rc = accept_deliver(ctx, e);
			break;
		case EV_AM:
		case EV_NOTIFY:
			rc = am_deliver(ctx, e);
			break;
		case EV_CLOSED: {
			struct end *end = OF_LINK(e, struct end, closed);
			end_ref(end);
			rc = endpoint_told(end);
			end_unref(end);
			break;
		}
		}
	}
	return rc ? -1 : n;
}

/* ---- the loop ---- */

typedef struct {
	PyObject_HEAD Context *ctx;
} Turn;

/* How many callbacks of others are ready: the turn that a post has asked for waits there, too. */
static Py_ssize_t others_ready(Context *ctx)
{
	return PyObject_Size(ctx->ready) - (ctx->turn_soon ? 1 : 0);
}

bool ctx_spin_allowed(Context *ctx) { return ctx->spin_ns && ctx->ready && others_ready(ctx) <= 0; }

int ctx_turn_soon(Context *ctx)
{
	if (!ctx->loop || ctx->turn_soon || !ctx->turn || !ctx->c)
		return 0;
	/* the argument tells this turn from the reader's */
	PyObject *r = PyObject_CallFunctionObjArgs(ctx->call_soon, ctx->turn, Py_True, NULL);
	if (!r)
		return -1;
	Py_DECREF(r);
	ctx->turn_soon = true;
	return 0;
}

/* On a loop that does not show what is ready (uvloop), instead of a spin: a look in each of its
 * iterations for as long, so that others' callbacks run in between. `fresh`: something happened,
 * and tasks may run for it. */
static bool look_again(Context *ctx, bool fresh)
{
	if (ctx->ready || !ctx->spin_ns)
		return false;
	uint64_t now = clock_now();
	if (fresh || !ctx->looking)
		ctx->look_until = now + ctx->spin_ns;
	ctx->looking = now < ctx->look_until && (fresh || !link_alone(&ctx->under_way));
	return ctx->looking;
}

static int turn_now(Context *ctx)
{
	ctx->in_a_row = 0;
	for (int i = 0; i < 4; i++) {
		int n = 0;
		/* what waits to be handed out goes first: events have a bound, so */
		if (link_alone(&ctx->events) && (n = ctx_poll(ctx)) < 0)
			return -1;
		int out = ctx_hand_out(ctx, BATCH_MAX);
		if (out < 0)
			return ctx_turn_soon(ctx), -1;
		if (!ctx->c)
			return 0;
		if (!link_alone(&ctx->events))
			break;
		/* The program's tasks first: what was handed out may be what they wait for. The
		 * loop will not sleep, so arming, a system call here and in the peer, can wait. */
		if (ctx->ready && others_ready(ctx) > 0)
			break;
		if (look_again(ctx, n > 0 || out > 0))
			break;
		int rc = rpw_context_arm(ctx->c);
		if (rc < 0) {
			error_raise(rc, NULL);
			return -1;
		}
		if (rc == RPW_OK)
			return 0;
		ctx->woken = false;
	}
	return ctx_turn_soon(ctx);
}

static PyObject *turn_call(PyObject *self, PyObject *args, PyObject *kw)
{
	Context *ctx = ((Turn *)self)->ctx;
	int rc = 0;
	if (!ctx || !ctx->c)
		Py_RETURN_NONE;
	Py_INCREF(ctx);
	if (PyTuple_Size(args))
		ctx->turn_soon = false;
	if (!ctx->busy) { /* else a loop inside of an allocator: nothing can be done there */
		ctx->thread = PyThread_get_thread_ident(); /* the loop's, wherever it runs now */
		rc = turn_now(ctx);
	}
	Py_DECREF(ctx);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}

static int turn_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((Turn *)self)->ctx);
	return 0;
}

/* It is a context without a loop again. The Turn, where it lives on, does nothing any more. */
static void loop_forget(Context *ctx)
{
	ctx->turn = NULL;
	ctx->turn_soon = ctx->attached = false;
	Py_CLEAR(ctx->none); /* it names the loop */
	Py_CLEAR(ctx->call_soon);
	Py_CLEAR(ctx->ready);
	Py_CLEAR(ctx->loop);
}

/* The loop is closed, or has been collected. */
static void turn_dealloc(PyObject *self)
{
	Turn *t = (Turn *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	Context *ctx = t->ctx;
	if (ctx) {
		PyObject *kind, *value, *trace;
		PyErr_Fetch(&kind, &value, &trace);
		t->ctx = NULL;
		ctx->turn = NULL;
		if (ctx->attached)
			loop_forget(ctx);
		else if (!ctx->busy)
			ctx_close(ctx, true);
		Py_DECREF(ctx);
		PyErr_Restore(kind, value, trace);
	}
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyType_Slot turn_slots[] = {
	{Py_tp_dealloc, turn_dealloc},
	{Py_tp_traverse, turn_traverse},
	{Py_tp_call, turn_call},
	{0, NULL},
};
PyType_Spec turn_spec = {"ropeway._core.Turn", sizeof(Turn), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, turn_slots};

static int loop_join(Context *ctx, PyObject *loop)
{
	PyTypeObject *type = (PyTypeObject *)turn_type;
	ctx->call_soon = PyObject_GetAttrString(loop, "call_soon");
	if (!ctx->call_soon)
		return -1;
	/* asyncio's own loops have it; without: look_again */
	ctx->ready = PyObject_GetAttrString(loop, "_ready");
	if (!ctx->ready || PyObject_Size(ctx->ready) < 0) {
		PyErr_Clear();
		Py_CLEAR(ctx->ready);
	}
	Turn *turn = (Turn *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!turn)
		return -1;
	PyObject *r = PyObject_CallMethod(loop, "add_reader", "iO", ctx->fd, turn);
	if (r) {
		Py_DECREF(r);
		Py_INCREF(loop);
		ctx->loop = loop;
		Py_INCREF(ctx);
		turn->ctx = ctx;
		ctx->turn = (PyObject *)turn;
	}
	Py_DECREF(turn); /* the loop's now */
	return r ? ctx_turn_soon(ctx) : -1;
}

static void loop_leave(Context *ctx)
{
	if (!ctx->loop || !ctx->turn)
		return;
	PyObject *r = PyObject_CallMethod(ctx->loop, "remove_reader", "i", ctx->fd);
	if (!r)
		PyErr_Clear();
	Py_XDECREF(r);
}

static void loop_detach(Context *ctx)
{
	Turn *turn = (Turn *)ctx->turn;
	if (turn) {
		Py_INCREF(turn);
		loop_leave(ctx);
		turn->ctx = NULL;
	}
	loop_forget(ctx);
	if (turn) {
		Py_DECREF(turn);
		Py_DECREF(ctx); /* the Turn's */
	}
}

/* ---- waiting without a loop ---- */

static int doze(Context *ctx, uint64_t now, uint64_t deadline)
{
	int rc = rpw_context_arm(ctx->c);
	if (rc < 0) {
		error_raise(rc, NULL);
		return -1;
	}
	if (rc == RPW_IN_PROGRESS) {
		if (!ctx->woken)
			return 0;
		ctx->woken = false;
		return 1;
	}
	uint64_t ns = deadline == UINT64_MAX ? 3600000000000u : deadline - now;
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	struct pollfd p = {ctx->fd, POLLIN, 0};
	ctx->busy = true;
	ctx->thread = PyThread_get_thread_ident();
	ctx->released = PyEval_SaveThread();
	/* a signal that Python handles ends it */
	rc = ppoll(&p, 1, &t, NULL);
	PyEval_RestoreThread(ctx->released);
	ctx->released = NULL;
	ctx->busy = false;
	return PyErr_CheckSignals() ? -1 : 0;
}

int ctx_wait(Context *ctx, Operation *op, uint64_t deadline)
{
	if (ctx->busy) {
		PyErr_SetString(PyExc_RuntimeError,
			"waiting from inside of an allocator: return from it first");
		return -1;
	}
	uint64_t now = 0, spin_until = 0;
	for (unsigned idle = 0;;) {
		int n = ctx_poll(ctx), out = 0;
		if (n >= 0 && !link_alone(&ctx->events))
			out = ctx_hand_out(ctx, BATCH_MAX);
		if (n < 0 || out < 0)
			return -1;
		if (op ? op->state != OP_PENDING : out > 0)
			return 1;
		if (!ctx->c)
			return ctx_enter(ctx) ? 0 : -1;
		if (n)
			spin_until = 0;
		if (!n && ++idle & 15 && now)
			continue;
		now = clock_now();
		if (!spin_until) {
			spin_until = now + BLOCKING_SPIN_NS;
			if (n && PyErr_CheckSignals())
				return -1;
		}
		if (now >= deadline)
			return 0;
		if (now < spin_until || n)
			continue;
		int rc = doze(ctx, now, deadline);
		if (rc < 0)
			return -1;
		if (rc && !op)
			return 0;
		spin_until = 0;
	}
}

/* ---- made, and closed ---- */

static int context_init(PyObject *self, PyObject *args, PyObject *kw)
{
	static char *names[] = {"loop", "transports", "key_file", "unexpected_bytes_max",
		"eager_bytes_max", "rdma_devices", "polled", "spin_us", NULL};
	Context *ctx = (Context *)self;
	PyObject *loop = Py_None;
	const char *transports = NULL, *key_file = NULL, *devices = NULL;
	Py_ssize_t unexpected = 0, eager = 0;
	int polled = 0, spin_us = 20;
	if (!PyArg_ParseTupleAndKeywords(args, kw, "|Ozz$nnzpi", names, &loop, &transports,
		    &key_file, &unexpected, &eager, &devices, &polled, &spin_us))
		return -1;
	if (ctx->fd) {
		PyErr_SetString(PyExc_RuntimeError, "__init__ of a context, a second time");
		return -1;
	}
	if (unexpected < 0 || eager < 0 || spin_us < 0 || spin_us > 20) {
		PyErr_SetString(PyExc_ValueError,
			spin_us < 0 || spin_us > 20
				? "spin_us is from 0 to 20 microseconds"
				: "a number of bytes cannot be negative (0: the default)");
		return -1;
	}
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	o.transports = transports;
	o.key_file = key_file;
	o.unexpected_bytes_max = (size_t)unexpected;
	o.eager_bytes_max = (size_t)eager;
	o.rdma_devices = devices && *devices ? devices : NULL;
	o.polled = polled;
	rpw_context *c;
	int rc = rpw_context_create(&o, &c);
	if (rc < 0) {
		error_raise(rc, NULL);
		return -1;
	}
	ctx->c = c;
	ctx->fd = rpw_context_fd(c);
	ctx->spin_ns = (uint64_t)spin_us * 1000;
	ctx->thread = PyThread_get_thread_ident();
	link_last(&all_contexts, &ctx->all);
	if (loop != Py_None && loop_join(ctx, loop)) {
		ctx_close(ctx, true);
		return -1;
	}
	return 0;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
	Context *ctx = (Context *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!ctx)
		return NULL;
	link_init(&ctx->events);
	link_init(&ctx->under_way);
	link_init(&ctx->handles);
	link_init(&ctx->graves);
	link_init(&ctx->all);
	Py_INCREF(endpoint_type);
	ctx->endpoint_class = endpoint_type;
	return (PyObject *)ctx;
}

/* The rest of ctx_close, also where nobody holds it any more. */
static void context_end(Context *ctx, bool quiet)
{
	rpw_context *c = ctx->c;
	if (!c)
		return;
	graves_empty(ctx);
	/* What holds a registration for the time of an operation gives it back before it goes. */
	ctx->busy = true;
	ctx->thread = PyThread_get_thread_ident();
	for (struct link *l = ctx->under_way.next; l != &ctx->under_way; l = l->next) {
		Operation *op = OF_LINK(l, Operation, link);
		op->held.cuda = NULL; /* destroyed with the context */
		for (size_t i = 0; op->many && i < op->many->n; i++)
			op->many->one[i].held.cuda = NULL;
	}
	rpw_context_destroy(c);
	ctx->busy = false;
	ctx->c = NULL;
	link_out(&ctx->all);
	for (struct link *l = ctx->handles.next; l != &ctx->handles; l = l->next)
		OF_LINK(l, struct handle, link)->p = NULL;
	ctx->large = 0;
	/* Requests that the library ended without a word, in a forked child: they end here. */
	while (!link_alone(&ctx->under_way)) {
		Operation *op = OF_LINK(ctx->under_way.next, Operation, link);
		if (op->req || (op->many && op->many->left)) {
			op->req = NULL;
			op->status = RPW_ERR_CANCELED;
			if (op->many)
				op->many->left = 0;
		}
		op->large = false;
		op_finish(op, quiet);
	}
	while (!link_alone(&ctx->events)) {
		struct event *e = OF_LINK(ctx->events.next, struct event, link);
		link_out(&e->link);
		event_drop(ctx, e);
	}
	Py_CLEAR(ctx->none);
	Py_CLEAR(ctx->spare);
}

int ctx_close(Context *ctx, bool quiet)
{
	Py_INCREF(ctx);
	if (!quiet)
		loop_leave(ctx); /* its Turn may go, and close it */
	context_end(ctx, quiet);
	Py_DECREF(ctx);
	return 0;
}

/* At the interpreter's exit: those that no thread is inside of. */
void ctx_all_close(void)
{
	struct link *l = all_contexts.next;
	while (l != &all_contexts) {
		Context *ctx = OF_LINK(l, Context, all);
		l = l->next;
		if (!ctx->busy)
			ctx_close(ctx, true);
	}
}

static void context_finalize(PyObject *self)
{
	PyObject *type, *value, *trace;
	PyErr_Fetch(&type, &value, &trace);
	if (!((Context *)self)->busy)
		ctx_close((Context *)self, true);
	PyErr_Restore(type, value, trace);
}

static int context_traverse(PyObject *self, visitproc visit, void *arg)
{
	Context *ctx = (Context *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(ctx->loop);
	Py_VISIT(ctx->call_soon);
	Py_VISIT(ctx->ready);
	Py_VISIT(ctx->endpoint_class);
	Py_VISIT(ctx->spare);
	Py_VISIT(ctx->none);
	Py_VISIT(ctx->on_notify);
	for (int i = 0; ctx->am && i < RPW_AM_IDS; i++)
		Py_VISIT(ctx->am[i].fn);
	for (struct link *l = ctx->under_way.next; l && l != &ctx->under_way; l = l->next)
		Py_VISIT(OF_LINK(l, Operation, link));
	return 0;
}

static int context_clear(PyObject *self)
{
	Context *ctx = (Context *)self;
	Py_CLEAR(ctx->on_notify);
	for (int i = 0; ctx->am && i < RPW_AM_IDS; i++)
		Py_CLEAR(ctx->am[i].fn);
	Py_CLEAR(ctx->call_soon);
	Py_CLEAR(ctx->ready);
	Py_CLEAR(ctx->loop);
	return 0;
}

static void context_dealloc(PyObject *self)
{
	Context *ctx = (Context *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	context_end(ctx, true); /* of a subclass's it has ended: tp_finalize */
	context_clear(self);
	free(ctx->am);
	Py_CLEAR(ctx->endpoint_class);
	Py_CLEAR(ctx->memory_door);
	Py_CLEAR(ctx->spare);
	Py_CLEAR(ctx->none);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* ---- methods ---- */

static PyObject *context_close(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	if (!ctx->c)
		Py_RETURN_NONE;
	if (!ctx_enter(ctx))
		return NULL;
	if (ctx->busy) {
		PyErr_SetString(PyExc_RuntimeError,
			"close() of a context from inside of an allocator: return from it first");
		return NULL;
	}
	if (ctx_close(ctx, false))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *context_attach(PyObject *self, PyObject *loop)
{
	Context *ctx = (Context *)self;
	if (!ctx->c)
		return ctx_enter(ctx), NULL;
	if (ctx->loop == loop)
		Py_RETURN_NONE;
	if (ctx->busy || (ctx->loop && !ctx->attached)) {
		PyErr_SetString(PyExc_RuntimeError,
			ctx->busy ? "attach() while another thread, or an allocator, is inside"
				  : "attach() of a context that was made with a loop: make it "
				    "without one");
		return NULL;
	}
	Py_INCREF(ctx); /* the Turn's reference may be the last one */
	loop_detach(ctx);
	ctx->thread = PyThread_get_thread_ident();
	int rc = loop_join(ctx, loop);
	if (rc)
		loop_detach(ctx);
	else
		ctx->attached = true;
	Py_DECREF(ctx);
	if (rc)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *context_detach(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	if (!ctx->c || !ctx->attached)
		Py_RETURN_NONE;
	Py_INCREF(ctx);
	loop_detach(ctx);
	Py_DECREF(ctx);
	Py_RETURN_NONE;
}

static PyObject *context_progress(
	PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"max"};
	Context *ctx = (Context *)self;
	PyObject *a;
	uint64_t max = BATCH_MAX;
	if (args_get("progress", names, 1, 0, args, nargs, kwnames, &a) ||
		args_u64(a, "max", &max) || !ctx_enter(ctx))
		return NULL;
	int n = ctx_poll(ctx),
	    out = n < 0 ? -1 : ctx_hand_out(ctx, max > BATCH_MAX ? BATCH_MAX : (int)max);
	if (out < 0)
		return NULL;
	if (ctx->c && ctx_turn_soon(ctx))
		return NULL;
	return PyLong_FromLong(n > out ? n : out);
}

static PyObject *context_arm(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	if (!ctx_enter(ctx))
		return NULL;
	int rc = link_alone(&ctx->events) ? rpw_context_arm(ctx->c) : RPW_IN_PROGRESS;
	if (rc < 0)
		return error_raise(rc, NULL);
	if (rc)
		ctx->woken = false;
	return PyBool_FromLong(rc == RPW_OK);
}

static PyObject *context_wait(
	PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"timeout"};
	Context *ctx = (Context *)self;
	PyObject *a;
	uint64_t deadline;
	if (args_get("wait", names, 1, 0, args, nargs, kwnames, &a) ||
		args_deadline(a, &deadline) || !ctx_enter(ctx))
		return NULL;
	int rc = ctx_wait(ctx, NULL, deadline);
	return rc < 0 ? NULL : PyBool_FromLong(rc);
}

static PyObject *context_wake(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	if (ctx->c) {
		ctx->woken = true;
		rpw_context_wake(ctx->c);
	}
	Py_RETURN_NONE;
}

static PyObject *context_connect(
	PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const char *const names[] = {"address", "transports", "timeout", "retry"};
	Context *ctx = (Context *)self;
	PyObject *a[4];
	if (args_get("_connect", names, 4, 1, args, nargs, kwnames, a) || !ctx_enter(ctx))
		return NULL;
	const char *address = PyUnicode_AsUTF8AndSize(a[0], NULL);
	rpw_endpoint_options o = RPW_ENDPOINT_OPTIONS_INIT;
	if (!address)
		return NULL;
	if (a[1] && a[1] != Py_None && !(o.transports = PyUnicode_AsUTF8AndSize(a[1], NULL)))
		return NULL;
	double timeout = a[2] && a[2] != Py_None ? PyFloat_AsDouble(a[2]) : 10;
	if (timeout == -1 && PyErr_Occurred())
		return NULL;
	if (!(timeout > 0) || timeout > 4e6) {
		PyErr_Format(PyExc_ValueError,
			"the timeout of a connection is more than 0 and at most 4,000,000 s, not "
			"%R",
			a[2]);
		return NULL;
	}
	int retry = a[3] ? PyObject_IsTrue(a[3]) : 1;
	if (retry < 0)
		return NULL;
	o.once = !retry;
	o.timeout_ms = (unsigned)(timeout * 1e3);
	if (!o.timeout_ms)
		o.timeout_ms = 1;
	Operation *op = op_take(ctx, NULL, OP_NONE);
	if (!op)
		return NULL;
	rpw_endpoint *c_ep;
	rpw_request *r = NULL;
	int rc = rpw_endpoint_create(ctx->c, address, &o, &c_ep, &r);
	if (rc < 0)
		return op_posted(op, rc, NULL);
	struct end *e = end_new(ctx, c_ep);
	PyObject *ep = e ? endpoint_make(ctx, e) : NULL;
	if (!ep) {
		rpw_request_destroy(r);
		if (e)
			handle_drop(ctx, &e->handle);
		else
			rpw_endpoint_destroy(c_ep);
		Py_DECREF(op);
		return e ? NULL : PyErr_NoMemory();
	}
	Py_INCREF(ep);
	op->ep = (Endpoint *)ep;
	PyObject *posted = op_posted(op, rc, r);
	PyObject *pair = posted ? PyTuple_Pack(2, ep, posted) : NULL;
	Py_XDECREF(posted);
	Py_DECREF(ep);
	return pair;
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
	ctx_event(ctx, &e->event, EV_ACCEPT);
}

static void listener_forget(Context *ctx, const Listener *l)
{
	for (struct link *i = ctx->events.next; i != &ctx->events; i = i->next) {
		struct event *e = OF_LINK(i, struct event, link);
		if (e->kind == EV_ACCEPT && ((struct accept_event *)(void *)e)->listener == l)
			((struct accept_event *)(void *)e)->listener = NULL;
	}
}

void listener_gone(Listener *l) { listener_forget(l->ctx, l); }

static PyObject *context_listen(PyObject *self, PyObject *args)
{
	Context *ctx = (Context *)self;
	const char *address;
	PyObject *fn;
	if (!PyArg_ParseTuple(args, "sO", &address, &fn) || !ctx_enter(ctx))
		return NULL;
	PyTypeObject *type = (PyTypeObject *)listener_type;
	Listener *l = (Listener *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!l)
		return NULL;
	Py_INCREF(ctx);
	l->ctx = ctx;
	Py_INCREF(fn);
	l->accepted = fn;
	rpw_listener *c_l;
	int rc = rpw_listener_create(ctx->c, address, accepted, l, &c_l);
	if (rc < 0) {
		Py_DECREF(l);
		return error_raise(rc, NULL);
	}
	l->handle = handle_new(ctx, HANDLE_LISTENER, c_l);
	char text[RPW_ADDRESS_MAX];
	l->port = rpw_listener_port(c_l);
	rc = rpw_listener_address(c_l, text, sizeof(text));
	if (!l->handle) {
		rpw_listener_destroy(c_l);
		Py_DECREF(l);
		return PyErr_NoMemory();
	}
	if (rc < 0 || ctx_turn_soon(ctx)) {
		if (rc < 0)
			error_raise(rc, NULL);
		Py_DECREF(l);
		return NULL;
	}
	l->address = PyUnicode_DecodeUTF8(text, rc, "replace");
	if (!l->address) {
		Py_DECREF(l);
		return NULL;
	}
	return (PyObject *)l;
}

#define FAST_ARGS PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames
static PyObject *context_recv(FAST_ARGS)
{
	return recv_post((Context *)self, NULL, "recv", args, nargs, kwnames);
}
static PyObject *context_recv_many(FAST_ARGS)
{
	return ctx_enter((Context *)self)
		       ? many_post((Context *)self, NULL, true, args, nargs, kwnames)
		       : NULL;
}
static PyObject *context_recv_obj(FAST_ARGS)
{
	return recv_object_post((Context *)self, NULL, args, nargs, kwnames);
}
static PyObject *context_probe(FAST_ARGS)
{
	return probe_now((Context *)self, NULL, args, nargs, kwnames);
}
static PyObject *context_am(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	return context_on_am((Context *)self, args, nargs);
}
static PyObject *context_notify(PyObject *self, PyObject *fn)
{
	return context_on_notify((Context *)self, fn);
}

static PyObject *context_statistics(PyObject *self, PyObject *unused)
{
	Context *ctx = (Context *)self;
	rpw_statistics s = RPW_STATISTICS_INIT;
	if (!ctx_enter(ctx))
		return NULL;
	int rc = rpw_context_statistics(ctx->c, &s);
	if (rc < 0)
		return error_raise(rc, NULL);
	typedef unsigned long long u64;
	return Py_BuildValue("KKKKKKKKKIIII", (u64)s.sent, (u64)s.received, (u64)s.bytes_sent,
		(u64)s.bytes_received, (u64)s.unexpected, (u64)s.unexpected_bytes,
		(u64)s.waited_for_room, (u64)s.strangers_refused, (u64)s.path_changes, s.endpoints,
		s.listeners, s.requests, s.unsent);
}

static PyObject *get_loop(PyObject *self, void *unused)
{
	PyObject *o = ((Context *)self)->loop;
	if (!o)
		o = Py_None;
	Py_INCREF(o);
	return o;
}
static PyObject *get_closed(PyObject *self, void *unused)
{
	return PyBool_FromLong(!((Context *)self)->c);
}
static PyObject *get_fd(PyObject *self, void *unused)
{
	Context *ctx = (Context *)self;
	return ctx->c ? PyLong_FromLong(ctx->fd) : (ctx_enter(ctx), NULL);
}
static PyObject *get_class(PyObject *self, void *unused)
{
	PyObject *o = ((Context *)self)->endpoint_class;
	Py_INCREF(o);
	return o;
}
static int set_class(PyObject *self, PyObject *value, void *unused)
{
	Context *ctx = (Context *)self;
	if (!value || !PyType_Check(value) ||
		!PyType_IsSubtype((PyTypeObject *)value, (PyTypeObject *)endpoint_type)) {
		PyErr_SetString(PyExc_TypeError, "endpoint_class has to be a subclass of Endpoint");
		return -1;
	}
	PyObject *old = ctx->endpoint_class;
	Py_INCREF(value);
	ctx->endpoint_class = value;
	Py_DECREF(old);
	return 0;
}

#define FAST(name) (PyCFunction)(void (*)(void)) name, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef context_methods[] = {
	{"close", context_close, METH_NOARGS,
		"Closes what is left in it without waiting for anybody: flush() or shutdown() "
		"first "
		"where that matters."},
	{"attach", context_attach, METH_O,
		"attach(loop)\n--\n\nFrom now on this loop moves it, and the calling thread is its "
		"own. For a context that was made without a loop, again and again: it outlives "
		"each. "
		"Call it in the loop's thread, when the loop before does not run any more."},
	{"detach", context_detach, METH_NOARGS,
		"Undoes attach(): it has no loop until the next one."},
	{"progress", FAST(context_progress),
		"progress(max=4096)\n--\n\nMoves things on and hands out what is complete; never "
		"blocks. Gives how many things happened."},
	{"arm", context_arm, METH_NOARGS,
		"Before sleeping on `fd`. True: it is armed; False: there is something to do, "
		"progress() first."},
	{"wait", FAST(context_wait),
		"wait(timeout=None)\n--\n\nBlocks until something was handed out, `timeout` "
		"seconds at "
		"most. False: time is up, or wake() was called."},
	{"wake", context_wake, METH_NOARGS,
		"Ends a wait of the context's thread. From any thread."},
	{"recv", FAST(context_recv),
		"recv(buf, tag=0, mask=ALL)\n--\n\nAs Endpoint.recv, from any endpoint; "
		"Received.endpoint says from which."},
	{"recv_many", FAST(context_recv_many),
		"recv_many(bufs, tags=0, mask=ALL)\n--\n\nAs Endpoint.recv_many, from any "
		"endpoint."},
	{"recv_obj", FAST(context_recv_obj),
		"recv_obj(allocator=bytearray)\n--\n\nAs Endpoint.recv_obj, from any endpoint; the "
		"operation's `received.endpoint` says from which."},
	{"probe", FAST(context_probe),
		"probe(tag=0, mask=ALL)\n--\n\nAs Endpoint.probe, of any endpoint."},
	{"on_am", (PyCFunction)(void (*)(void))context_am, METH_FASTCALL,
		"on_am(id, fn)\n--\n\nfn(endpoint, header, data) is called for active messages of "
		"this "
		"id (0 to 255), in the order sent.\ndata: bytes up to 4 KiB, else a read-only "
		"memoryview. None: they are dropped, as without one."},
	{"on_notify", context_notify, METH_O,
		"on_notify(fn)\n--\n\nfn(endpoint, data, length in bytes) is called when the bytes "
		"of a "
		"peer's put_notify are there."},
	{"_connect", FAST(context_connect), NULL},
	{"_listen", context_listen, METH_VARARGS, NULL},
	{"_register", context_register, METH_VARARGS, NULL},
	{"_allocate", context_allocate, METH_VARARGS, NULL},
	{"_statistics", context_statistics, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};
static PyGetSetDef context_getset[] = {
	{"loop", get_loop, NULL, "Its asyncio loop, or None.", NULL},
	{"closed", get_closed, NULL, "True after close(), or when its loop has gone.", NULL},
	{"fd", get_fd, NULL, "Readable, after arm() gave True, when there is something to do.",
		NULL},
	{"endpoint_class", get_class, set_class, "Of what connect and listen give.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot context_slots[] = {
	{Py_tp_new, context_new},
	{Py_tp_init, context_init},
	{Py_tp_dealloc, context_dealloc},
	{Py_tp_finalize, context_finalize},
	{Py_tp_traverse, context_traverse},
	{Py_tp_clear, context_clear},
	{Py_tp_methods, context_methods},
	{Py_tp_getset, context_getset},
	{Py_tp_doc, "All that one thread has: listeners, endpoints, operations."},
	{0, NULL},
};
PyType_Spec context_spec = {"ropeway._core.Context", sizeof(Context), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, context_slots};
