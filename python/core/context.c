/* SPDX-License-Identifier: BSD-3-Clause */
/* context.c - contexts: their users, progress, events into Python, waiting, the end. Kinds of
 * events and handles are unknown here: each carries the functions that deliver or end it.
 *
 * With a loop: its descriptor is a reader of the loop, whose callback is a Turn. A turn polls,
 * hands out, and arms the descriptor; calls that post ask for one by call_soon, so none is
 * forgotten. The loop holds the Turn, and that the context: when the loop is closed or collected,
 * the Turn goes, and closes the context. */
#include "core.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

PyObject *turn_type;

static struct link all_contexts = {&all_contexts, &all_contexts};

/* ---- who may use it ---- */

bool ctx_is_mine(const Context *ctx)
{
	return ctx->thread == PyThread_get_thread_ident() || (!ctx->loop && !ctx->busy);
}

bool ctx_enter(Context *ctx)
{
	if (!ctx->c)
		return error_raise_text(
			RPW_ERR_INVALID, "this context was closed: make another one", NULL);
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

static void handle_end(struct handle *h)
{
	link_out(&h->link);
	h->gone(h);
}

void handle_drop(Context *ctx, struct handle *h)
{
	if (!ctx->c)
		h->p = NULL;
	if (!ctx->c || ctx_is_mine(ctx)) {
		handle_end(h);
		if (ctx->c && ctx->loop && !ctx->busy) {
			struct raised r = raised_take(); /* this may be a dealloc */
			if (ctx_turn_soon(ctx))
				PyErr_Clear();
			raised_again(r);
		}
		return;
	}
	link_out(&h->link);
	link_last(&ctx->graves, &h->link);
	rpw_context_wake(ctx->c);
}

void *owner_new(PyObject *type, Context *ctx, void (*gone)(struct handle *h))
{
	struct handle *h = calloc(1, sizeof(*h));
	Owner *o = h ? object_new(type) : NULL;
	if (!o) {
		free(h);
		return PyErr_NoMemory();
	}
	h->gone = gone;
	link_last(&ctx->handles, &h->link);
	Py_INCREF(ctx);
	o->ctx = ctx;
	o->handle = h;
	return o;
}

int owner_close(PyObject *self)
{
	Owner *o = (Owner *)self;
	struct handle *h = o->handle;
	if (!h || !h->p)
		return 0;
	if (!ctx_enter(o->ctx))
		return -1;
	o->handle = NULL;
	handle_drop(o->ctx, h);
	return 0;
}

PyObject *owner_closed(PyObject *self, void *unused)
{
	const struct handle *h = ((Owner *)self)->handle;
	return PyBool_FromLong(!h || !h->p);
}

int owner_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((Owner *)self)->ctx);
	return 0;
}

void owner_dealloc(PyObject *self)
{
	Owner *o = (Owner *)self;
	if (o->handle)
		handle_drop(o->ctx, o->handle);
	Py_CLEAR(o->ctx);
	object_free(self);
}

static void graves_empty(Context *ctx)
{
	while (!link_alone(&ctx->graves))
		handle_end(OF_LINK(ctx->graves.next, struct handle, link));
}

/* ---- progress ---- */

void ctx_event(Context *ctx, struct event *e) { link_last(&ctx->events, &e->link); }

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
	if (ctx->busy)
		return fail(PyExc_RuntimeError,
			"progress from inside of an allocator: return from it first");
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
	if (n < 0)
		return fail_status(n);
	return n;
}

/* ---- events into Python ---- */

int ctx_hand_out(Context *ctx, int max)
{
	int n = 0, rc = 0;
	for (; n < max && !rc && !link_alone(&ctx->events); n++) {
		struct event *e = OF_LINK(ctx->events.next, struct event, link);
		link_out(&e->link);
		rc = e->deliver(ctx, e);
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
		/* The program's tasks first: they may wait for an event that was just handed out.
		 * The loop will not sleep, so arming, a system call here and in the peer, can
		 * wait. */
		if (ctx->ready && others_ready(ctx) > 0)
			break;
		if (look_again(ctx, n > 0 || out > 0))
			break;
		int rc = rpw_context_arm(ctx->c);
		if (rc < 0)
			return fail_status(rc);
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
	PyObject_GC_UnTrack(self);
	Context *ctx = t->ctx;
	if (ctx) {
		struct raised r = raised_take();
		t->ctx = NULL;
		ctx->turn = NULL;
		if (ctx->attached)
			loop_forget(ctx);
		else if (!ctx->busy)
			ctx_close(ctx, true);
		Py_DECREF(ctx);
		raised_again(r);
	}
	object_free(self);
}

static PyType_Slot turn_slots[] = {
	{Py_tp_dealloc, turn_dealloc},
	{Py_tp_traverse, owner_traverse},
	{Py_tp_call, turn_call},
	{0, NULL},
};
PyType_Spec turn_spec = {"ropeway._core.Turn", sizeof(Turn), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, turn_slots};

static int loop_join(Context *ctx, PyObject *loop)
{
	ctx->call_soon = PyObject_GetAttrString(loop, "call_soon");
	if (!ctx->call_soon)
		return -1;
	/* asyncio's own loops have it; without: look_again */
	ctx->ready = PyObject_GetAttrString(loop, "_ready");
	if (!ctx->ready || PyObject_Size(ctx->ready) < 0) {
		PyErr_Clear();
		Py_CLEAR(ctx->ready);
	}
	Turn *turn = object_new(turn_type);
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

int ctx_attach(Context *ctx, PyObject *loop)
{
	Py_INCREF(ctx); /* the Turn's reference may be the last one */
	loop_detach(ctx);
	ctx->thread = PyThread_get_thread_ident();
	int rc = loop_join(ctx, loop);
	if (rc)
		loop_detach(ctx);
	else
		ctx->attached = true;
	Py_DECREF(ctx);
	return rc;
}

void ctx_detach(Context *ctx)
{
	Py_INCREF(ctx);
	loop_detach(ctx);
	Py_DECREF(ctx);
}

/* ---- waiting without a loop ---- */

static int doze(Context *ctx, uint64_t now, uint64_t deadline)
{
	int rc = rpw_context_arm(ctx->c);
	if (rc < 0)
		return fail_status(rc);
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
	if (ctx->busy)
		return fail(PyExc_RuntimeError,
			"waiting from inside of an allocator: return from it first");
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

/* The rest of ctx_close, also where nobody holds it any more. */
void ctx_end(Context *ctx, bool quiet)
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
		for (size_t i = 0; i < op->n; i++)
			op->parts[i].held.cuda = NULL; /* destroyed with the context */
	}
	rpw_context_destroy(c);
	ctx->busy = false;
	ctx->c = NULL;
	link_out(&ctx->all);
	for (struct link *l = ctx->handles.next; l != &ctx->handles; l = l->next)
		OF_LINK(l, struct handle, link)->p = NULL;
	ctx->large = 0;
	while (!link_alone(&ctx->under_way)) {
		struct event *e = &OF_LINK(ctx->under_way.next, Operation, link)->event;
		e->drop(e, quiet);
	}
	while (!link_alone(&ctx->events)) {
		struct event *e = OF_LINK(ctx->events.next, struct event, link);
		link_out(&e->link);
		e->drop(e, true);
	}
	Py_CLEAR(ctx->none);
	Py_CLEAR(ctx->spare);
}

int ctx_close(Context *ctx, bool quiet)
{
	Py_INCREF(ctx);
	if (!quiet)
		loop_leave(ctx); /* its Turn may go, and close it */
	ctx_end(ctx, quiet);
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

int ctx_open(Context *ctx, const rpw_context_options *o, PyObject *loop)
{
	int rc = rpw_context_create(o, &ctx->c);
	if (rc < 0) {
		ctx->c = NULL;
		error_raise(rc, NULL);
		return -1;
	}
	ctx->fd = rpw_context_fd(ctx->c);
	ctx->thread = PyThread_get_thread_ident();
	link_last(&all_contexts, &ctx->all);
	if (loop && loop_join(ctx, loop)) {
		ctx_close(ctx, true);
		return -1;
	}
	return 0;
}
