/* SPDX-License-Identifier: BSD-3-Clause */
/* core.h - the objects of the C extension `ropeway._core`. It sees include/ropeway.h and nothing
 * else of ropeway.
 *
 * The C library calls back into C only: what it says becomes an event in the context's list, and
 * ctx_hand_out() turns events into Python when the library has returned. The one exception is the
 * allocator of a received object, whose memory the library fills.
 *
 * The GIL: held wherever a PyObject is touched. ctx_poll() lets it go while much is copied, and
 * marks the context as busy, so that no other thread enters it. Objects that another thread's
 * garbage collection frees leave their C half in ctx->graves.
 *
 * Lifetimes: a context holds one reference to each operation under way, and the operation its
 * buffer; so a buffer lives until the C library is through with it, whoever drops the operation.
 * Endpoints, listeners, memories, keys and operations hold their context. */
#ifndef ROPEWAY_PYTHON_CORE_H
#define ROPEWAY_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ropeway.h"

/* As Python.h has them without the limited API of 3.11: with a cast. */
#undef Py_INCREF
#undef Py_DECREF
#undef Py_XINCREF
#undef Py_XDECREF
#undef Py_REFCNT
#define Py_INCREF(o) Py_INCREF((PyObject *)(o))
#define Py_DECREF(o) Py_DECREF((PyObject *)(o))
#define Py_XINCREF(o) Py_XINCREF((PyObject *)(o))
#define Py_XDECREF(o) Py_XDECREF((PyObject *)(o))
#define Py_REFCNT(o) Py_REFCNT((PyObject *)(o))

/* From 3.12 on Python.h takes these objects for immortal, whatever the limited API: built there,
 * 3.11 would free them. */
#undef Py_RETURN_NONE
#undef Py_RETURN_TRUE
#undef Py_RETURN_FALSE
#define Py_RETURN_NONE return Py_NewRef(Py_None)
#define Py_RETURN_TRUE return Py_NewRef(Py_True)
#define Py_RETURN_FALSE return Py_NewRef(Py_False)

enum {
	LARGE = 256 * 1024,      /* an operation of so many bytes: progress lets the GIL go */
	INLINE_MAX = 32,         /* awaits in a row that may end without a turn of the loop */
	BATCH_MAX = 4096,        /* events that one turn of the loop hands out */
	AM_BYTES_MAX = 4096,     /* data of an active message is bytes up to here, then a view */
	LARGE_TURN_NS = 2000000, /* of large operations before tasks have their turn */
	BLOCKING_SPIN_NS = 30000,
};

/* ---- lists: a ring with a head ---- */

struct link {
	struct link *prev, *next;
};
static inline void link_init(struct link *l) { l->prev = l->next = l; }
static inline bool link_alone(const struct link *l) { return l->next == l; }
static inline void link_last(struct link *list, struct link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}
static inline void link_out(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	link_init(l);
}
#define OF_LINK(l, type, member) ((type *)(void *)((char *)(l)-offsetof(type, member)))

typedef struct Context Context;
typedef struct Endpoint Endpoint;
typedef struct Listener Listener;
typedef struct Operation Operation;

/* ---- what happened ---- */

struct event {
	struct link link;                              /* in ctx->events; alone: it is in no list */
	int (*deliver)(Context *ctx, struct event *e); /* into Python: 0, or -1 with an exception */
	void (*drop)(struct event *e, bool quiet);     /* of a context that has closed */
};

/* ---- what the library has for a Python object: it may outlive that one in ctx->graves ---- */

struct handle {
	struct link link;               /* ctx->handles or ctx->graves */
	void (*gone)(struct handle *h); /* destroys both */
	void *p; /* rpw_endpoint * and so on; NULL: closed, or gone with its context */
};

/* An endpoint's C half: events may name it when the Python half has gone. */
struct end {
	struct handle handle;
	Context *ctx;  /* borrowed: an end that is in use has an object that holds it */
	Endpoint *py;  /* borrowed; NULL: not yet, or no more */
	unsigned refs; /* of the Python half, the library, events, completions */
	bool ended;
	int status; /* it ended with */
	char *sentence;
	struct event closed;
};
static inline rpw_endpoint *end_ep(const struct end *e) { return e ? e->handle.p : NULL; }

/* ---- a buffer that is lent to the library ---- */

struct held {
	Py_buffer view;   /* view.obj NULL: none */
	PyObject *owner;  /* what else has to live: a DLPack capsule, an object with CUDA memory */
	rpw_memory *cuda; /* registered for this operation */
	void *ptr;
	size_t len;
};
/* 0, or -1 with a Python exception. */
int held_get(Context *ctx, PyObject *o, bool writable, struct held *h);
void held_release(struct held *h);

/* ---- DLPack: https://dmlc.github.io/dlpack, the part of it that does not change ---- */

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
struct dl_tensor {
	void *data;
	struct {
		int32_t type, id;
	} device;
	int32_t ndim;
	struct {
		uint8_t code, bits;
		uint16_t lanes;
	} dtype;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};

/* ---- objects ---- */

/* Who takes active messages of one id. */
struct am_slot {
	Context *ctx;
	unsigned id;
	PyObject *fn;
};

struct Context {
	PyObject_HEAD rpw_context *c; /* NULL: closed */
	PyObject *loop, *call_soon, *turn, *ready, *endpoint_class;
	Operation *spare;   /* for the next operation that is not done at once */
	Operation *none;    /* done, with None: of all that are done at once */
	struct am_slot *am; /* RPW_AM_IDS of them, or NULL */
	unsigned am_lost;   /* for want of memory */
	PyObject *on_notify;
	unsigned long thread; /* with a loop: whose it is; without: who is inside */
	bool busy;            /* inside of the library's progress */
	bool turn_soon, woken, looking;
	bool attached; /* by attach(): it outlives its loop */
	unsigned large, in_a_row;
	uint64_t spin_ns, look_until;
	PyThreadState *released; /* while the GIL is not held */
	struct link events, under_way, handles, graves, all;
	int fd;
};

enum op_state { OP_PENDING, OP_FINISHED, OP_CANCELLED };
enum op_kind { OP_NONE, OP_RECV, OP_OBJECT, OP_NUMBER, OP_SENDS, OP_RECVS, OP_VIEW };

/* One request of the library's, and the buffer that is lent to it. */
struct part {
	Operation *op;
	struct held held;
	rpw_request *req; /* NULL: complete, or never posted */
	size_t length;    /* of the message that came */
	uint64_t tag;
	struct end *from;
};

struct Operation {
	PyObject_HEAD Context *ctx;
	Endpoint *ep; /* NULL: any, or none */
	struct event event;
	struct link link; /* ctx->under_way */
	uint8_t state, kind;
	bool blocking, under_way, posting, large;
	int status;    /* of the first part that failed */
	size_t length; /* of its message, where that was too long */
	char *sentence;
	struct part *parts, one;                        /* `one`, or those of a batch */
	size_t n, left;                                 /* of them, and under way */
	PyObject *callback, *callback_vars, *callbacks; /* the first, and a list of (fn, vars) */
	PyObject *result, *error, *cancel_msg;
	PyObject *key;       /* a RemoteKey in use */
	PyObject *allocator; /* OP_OBJECT; NULL: bytearray */
	PyObject *object;
	void *object_buf;
	size_t object_len;
	uint64_t before;
};

struct Endpoint {
	PyObject_HEAD Context *ctx;
	struct end *end;
	PyObject *user, *on_close, *peer;
	uint64_t tags[4];
	bool closed, told;
};

/* Listeners, memories and keys begin so; all other objects of a context with its first half. */
typedef struct {
	PyObject_HEAD Context *ctx;
	struct handle *handle; /* NULL: closed */
} Owner;

struct Listener {
	PyObject_HEAD Context *ctx;
	struct handle *handle;
	PyObject *accepted, *address;
	int port;
};

typedef struct {
	PyObject_HEAD Context *ctx;
	struct handle *handle;
	struct held held; /* of memory that was registered */
	Py_ssize_t exports;
	bool allocated;
	void *ptr;
	size_t len;
} Memory;

typedef struct {
	PyObject_HEAD Context *ctx;
	struct handle *handle;
	Endpoint *ep;
} Key;

extern PyObject *context_type, *endpoint_type, *listener_type, *operation_type, *memory_type,
	*key_type, *block_type, *turn_type, *loan_type, *view_type;
extern PyTypeObject *received_type;
extern PyType_Spec context_spec, endpoint_spec, listener_spec, operation_spec, memory_spec,
	key_spec, block_spec, turn_spec, loan_spec, view_spec;
int received_type_make(PyObject *module);

/* Of a type of ours, or of a subclass; NULL with an exception. */
static inline void *object_new(PyObject *type)
{
	PyTypeObject *t = (PyTypeObject *)type;
	return ((allocfunc)PyType_GetSlot(t, Py_tp_alloc))(t, 0);
}
/* Ends a dealloc. */
static inline void object_free(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* ---- errors.c ---- */

/* From `_core._setup`: classes that are written in Python. */
extern PyObject *error_new;       /* (status, sentence, peer, length) -> exception */
extern PyObject *cancelled_error; /* asyncio.CancelledError */
extern PyObject *invalid_state;   /* asyncio.InvalidStateError */
extern PyObject *copy_context;    /* contextvars.copy_context */
PyObject *core_setup(PyObject *module, PyObject *args);
/* A new exception object. */
PyObject *error_make(int status, const char *sentence, PyObject *peer, PyObject *length);
/* Raises it, with rpw_last_error. Gives NULL. */
PyObject *error_raise(int status, PyObject *peer);
PyObject *error_raise_text(int status, const char *sentence, PyObject *peer);
void error_set(PyObject *error);
/* The same for functions that give an int: PyErr_Format, or error_raise. -1. */
int fail(PyObject *kind, const char *form, ...);
int fail_status(int status);
/* An exception set aside: for good, or while other calls may raise theirs. */
struct raised {
	PyObject *type, *value, *trace;
};
static inline struct raised raised_take(void)
{
	struct raised r;
	PyErr_Fetch(&r.type, &r.value, &r.trace);
	return r;
}
static inline void raised_again(struct raised r) { PyErr_Restore(r.type, r.value, r.trace); }
void raised_drop(struct raised r);
PyObject *raised_value(void); /* the one that is raised now, as an object with its trace */
/* An exception of a handler of the program's: told to the loop. -1 where it has to go on upwards
 * (KeyboardInterrupt, SystemExit). */
int error_of_handler(Context *ctx, const char *message, PyObject *handler);
/* A handler was called, and gave `r`; consumes both references. As error_of_handler. */
int handler_called(Context *ctx, const char *message, PyObject *handler, PyObject *r);
/* Puts a new reference into the place of an old one. */
void ref_set(PyObject **place, PyObject *o);
/* A function, or None: false with a TypeError of what `call` needs. */
bool handler_check(const char *call, PyObject *fn);
void handler_set(PyObject **place, PyObject *fn); /* None: NULL */

/* ---- args.c ---- */

/* Arguments by position or name into out[n], borrowed, NULL where not given. */
int args_get(const char *fn, const char *const *names, int n, int required, PyObject *const *args,
	Py_ssize_t nargs, PyObject *kwnames, PyObject **out);
int args_u64(PyObject *o, const char *what, uint64_t *out); /* o NULL: leaves *out */
/* Seconds or None: a deadline by clock_now; UINT64_MAX: none. */
int args_deadline(PyObject *o, uint64_t *deadline_ns);
static inline uint64_t clock_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- context.c ---- */

/* This thread may use it now, else RuntimeError; it is open, else Error. */
bool ctx_enter(Context *ctx);
bool ctx_is_mine(const Context *ctx);
void ctx_event(Context *ctx, struct event *e);
/* After a call that may have left something to do: the loop has a turn for it. 0 or -1. */
int ctx_turn_soon(Context *ctx);
int ctx_poll(Context *ctx);              /* rpw_context_progress */
int ctx_hand_out(Context *ctx, int max); /* how many, or -1 with an exception */
bool ctx_spin_allowed(Context *ctx);
/* Until `op` is done (NULL: anything was handed out). 1: it is; 0: time is up or woken; -1. */
int ctx_wait(Context *ctx, Operation *op, uint64_t deadline_ns);
/* Begins it, with a loop or without (NULL). 0, or -1 with an exception. */
int ctx_open(Context *ctx, const rpw_context_options *o, PyObject *loop);
int ctx_attach(Context *ctx, PyObject *loop);
void ctx_detach(Context *ctx);
int ctx_close(Context *ctx, bool quiet);
void ctx_end(Context *ctx, bool quiet); /* the rest of it, also where nobody holds it any more */
void ctx_all_close(void);
/* The Python half goes: so does the other, now or when its thread comes by. */
void handle_drop(Context *ctx, struct handle *h);
/* With a handle, whose p the caller sets. */
void *owner_new(PyObject *type, Context *ctx, void (*gone)(struct handle *h));
int owner_close(PyObject *self); /* drops its handle: 0, or -1 in another thread */
PyObject *owner_closed(PyObject *self, void *unused);
int owner_traverse(PyObject *self, visitproc visit, void *arg); /* its type, its context */
void owner_dealloc(PyObject *self);                             /* the rest of a dealloc */

/* ---- end.c ---- */

struct end *end_new(Context *ctx, rpw_endpoint *ep);
void end_ref(struct end *e);
void end_unref(struct end *e);
void end_destroy(struct end *e); /* the library's half; it calls nobody back from now on */
PyObject *endpoint_make(Context *ctx, struct end *e);
bool endpoint_open(Endpoint *ep);      /* else false with an Error */
bool endpoint_usable(Endpoint *ep);    /* by this thread */
PyObject *endpoint_peer(Endpoint *ep); /* borrowed, or NULL */
void endpoint_tags_keep(Endpoint *ep);
PyObject *received_new(size_t length, uint64_t tag, struct end *from);

/* ---- part.c ---- */

void part_follow(struct part *part, rpw_request *r); /* it is under way */
PyObject *part_received(const struct part *part);    /* a receive's result */
void parts_collect(Operation *op);                   /* what the library has complete */
int parts_cancel(Operation *op);                     /* 0, or the first error's status */
PyObject *parts_received(const Operation *op);       /* a list */
void parts_forget(Operation *op);                    /* what they have, in a dealloc */
static inline void parts_release(Operation *op)      /* buffers */
{
	for (size_t i = 0; i < op->n; i++)
		held_release(&op->parts[i].held);
}

/* ---- operation.c ---- */

Operation *op_take(Context *ctx, Endpoint *ep, enum op_kind kind);
/* What a call that posts has given: the operation for Python, a new reference; `op` is consumed.
 * NULL with an exception. */
PyObject *op_posted(Operation *op, int rc, rpw_request *req);
/* The same where its parts are posted: those that are not complete are under way. */
PyObject *op_begun(Operation *op);
void op_finish(Operation *op, bool quiet);
/* Counts it as large if its buffer has LARGE bytes: progress lets the GIL go then. */
static inline void op_weighed(Operation *op, size_t len)
{
	if (len < LARGE || op->large)
		return;
	op->large = true;
	op->ctx->large++;
}
static inline void op_not_large(Operation *op)
{
	if (op->large)
		op->ctx->large--;
	op->large = false;
}
/* Waits, and withdraws it where that ends without it. Consumes the reference; NULL passes. */
PyObject *op_block(PyObject *op, PyObject *timeout);

/* ---- post.c; ep NULL: of any endpoint ---- */

#define FAST_ARGS PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames
#define FAST(name) (PyCFunction)(void (*)(void)) name, METH_FASTCALL | METH_KEYWORDS
/* The operation of a call, with its buffer (NULL: none); NULL with an exception. */
Operation *post_begin(Context *ctx, Endpoint *ep, enum op_kind kind, PyObject *buf, bool writable);
PyObject *recv_post(Context *ctx, Endpoint *ep, PyObject *const a[3]); /* buf, tag, mask */

/* Methods of contexts and of endpoints. */
PyObject *post_recv(FAST_ARGS);
PyObject *post_recv_many(FAST_ARGS);
PyObject *post_send_many(FAST_ARGS);
PyObject *post_recv_obj(FAST_ARGS);
PyObject *post_probe(FAST_ARGS);
PyObject *endpoint_send_loan(FAST_ARGS);

PyObject *post_recv_view(FAST_ARGS);

/* ---- loan.c ---- */

PyObject *endpoint_loan(FAST_ARGS);
/* Of a Loan of which nothing is made; NULL with an exception. */
rpw_loaned *loan_of(PyObject *loan, size_t *len);
void loan_sent(PyObject *loan);
/* An empty View, and what the library is to fill; then what it says of the message. */
PyObject *view_begin(Context *ctx, rpw_view **out);
void view_filled(PyObject *view, const struct part *part);

/* ---- memory.c, listener.c, am.c: methods of a context ---- */

PyObject *context_register(PyObject *self, PyObject *args);
PyObject *context_allocate(PyObject *self, PyObject *args);
PyObject *key_make(Endpoint *ep, rpw_rkey *key); /* which is consumed */
PyObject *context_listen(PyObject *self, PyObject *args);
PyObject *context_on_am(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *context_on_notify(PyObject *self, PyObject *fn);

#endif
