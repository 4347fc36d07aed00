/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c - what the tracer knows of the plugin's comms, registrations and requests, and the rules
 * about them. See trace.h. */
#include "base/hash.h"
#include "check/check.h"
#include "ncclnet/trace/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum kind { COMM, MHANDLE, REQUEST, HANDLE, CONTEXT, KINDS };
enum { BUCKETS = 4096, DEVICES = 64, FAMILIES = 3 /* of tables: network, RMA, GIN */ };

struct object {
	struct object *next;
	const void *key; /* the plugin's pointer */
	enum kind kind;
	int v;
	struct rpwi_site made;
	struct object *comm; /* of a registration, a request or a context */
	union {
		struct {
			enum trace_comm kind;
			int dev;
			unsigned requests, regs, contexts;
			int ranks;     /* of a coll comm */
			uint64_t hash; /* of a listen's handle */
			long thread;   /* that is inside a call of the data path, or 0 */
			bool failed;   /* the peer is gone, say: requests may stay */
		} c;
		struct {
			uintptr_t at;
			size_t size;
		} m;
		struct {
			bool is_recv, sizes_unknown;
			int n;
			size_t room[NCCL_NET_GROUP_MAX];
		} r;
		uint64_t hash; /* of a handle's bytes after the last call */
	};
};

struct device {
	bool known, is_global;
	int types, max_recvs;
};
static struct {
	struct object *bucket[BUCKETS];
	unsigned objects;
	int v[FAMILIES]; /* of the first listen or connect */
	struct device device[FAMILIES][DEVICES];
	/* requests that were done last: told apart from ones that never were */
	const void *done[256];
	unsigned ndone;
} state; /* under RPWI_LOCK_CHECK */

/* ---- objects ---- */

static struct object **place_of(enum kind kind, const void *key)
{
	struct object **at =
		&state.bucket[rpwi_mix((uint64_t)kind + 1, (uintptr_t)key) >> 32 & (BUCKETS - 1)];
	while (*at && ((*at)->key != key || (*at)->kind != kind))
		at = &(*at)->next;
	return at;
}

static struct object *find(enum kind kind, const void *key) { return *place_of(kind, key); }

static void del(enum kind kind, const void *key)
{
	struct object **at = place_of(kind, key), *o = *at;
	if (!o)
		return;
	*at = o->next;
	state.objects--;
	free(o);
}

static struct object *add(const struct trace_call *c, enum kind kind, const void *key)
{
	del(kind, key);
	struct object *o = state.objects < TRACE_OBJECTS ? calloc(1, sizeof(*o)) : NULL;
	if (!o) {
		rpwi_check_unwatched("there were too many objects of the plugin to watch all");
		return NULL;
	}
	struct object **at = place_of(kind, key);
	o->key = key;
	o->kind = kind;
	o->v = c->v;
	o->made = rpwi_check_site;
	*at = o;
	state.objects++;
	return o;
}

/* ---- findings ---- */

__attribute__((format(printf, 4, 5))) static void say(enum rpwi_check_rule rule,
	const struct trace_call *c, const struct object *about, const char *fmt, ...)
{
	struct rpwi_finding f = {.rule = rule};
	va_list ap;
	char table[16];
	size_t n = (size_t)snprintf(
		f.text, sizeof(f.text), "%s (%s): ", c->name, trace_table_name(c->v, table));
	va_start(ap, fmt);
	vsnprintf(f.text + n, sizeof(f.text) - n, fmt, ap);
	va_end(ap);
	rpwi_finding_site(&f, "called here", &(struct rpwi_site){{(uintptr_t)c->from}});
	if (about) {
		static const char *const what[KINDS] = {[COMM] = "the comm was made here",
			[MHANDLE] = "it was registered here",
			[REQUEST] = "the request was posted here",
			[HANDLE] = "the call before, here",
			[CONTEXT] = "the context was made here"};
		rpwi_finding_site(&f, what[about->kind], &about->made);
	}
	rpwi_check_report(&f);
}

static void version_look(const struct trace_call *c, const struct object *o)
{
	char table[16];
	if (o && o->v != c->v)
		say(RPWI_RULE_PLUGIN_VERSION, c, o, "it is of the table of %s",
			trace_table_name(o->v, table));
}

static int family(int table) { return table / TRACE_RMA; }

/* ---- devices and connections ---- */

void trace_device(int v, int dev, int ptr_support, int max_recvs, bool reg_is_global)
{
	if (dev < 0 || dev >= DEVICES || !rpwi_check_lock())
		return;
	state.device[family(v)][dev] = (struct device){true, reg_is_global, ptr_support, max_recvs};
	rpwi_check_unlock();
}

static uint64_t hash_of(const void *handle)
{
	return rpwi_hash(RPWI_HASH, handle, NCCL_NET_HANDLE_BYTES);
}

/* What other processes do with it, `ropeway check` compares (cli/check/handles.c). */
static void handle_event(const struct trace_call *c, const char *what, const void *handle)
{
	const char *half = handle;
	const size_t n = NCCL_NET_HANDLE_BYTES / 2;
	rpwi_check_event(what, 0, 0, "v%d %016" PRIx64 " %016" PRIx64, c->v,
		rpwi_hash(RPWI_HASH, half, n), rpwi_hash(RPWI_HASH, half + n, n));
}

static void connects(const struct trace_call *c)
{
	int *first = &state.v[family(c->v)];
	char table[16];
	if (!*first)
		*first = c->v;
	else if (*first != c->v)
		say(RPWI_RULE_PLUGIN_VERSION, c, NULL,
			"the first listen or connect of this process was of %s",
			trace_table_name(*first, table));
}

static struct object *comm_made(
	const struct trace_call *c, void *comm, enum trace_comm kind, int dev)
{
	struct object *o = add(c, COMM, comm);
	if (o) {
		o->c.kind = kind;
		o->c.dev = dev;
	}
	return o;
}

void trace_listen_done(const struct trace_call *c, int rc, int dev, const void *handle, void *comm)
{
	if (rc || !rpwi_check_on || !rpwi_check_lock())
		return;
	connects(c);
	struct object *o = comm ? comm_made(c, comm, TRACE_LISTEN, dev) : NULL;
	if (!comm)
		say(RPWI_RULE_PLUGIN_RESULT, c, NULL, "success, and no comm");
	if (o)
		o->c.hash = hash_of(handle);
	handle_event(c, "handle-given", handle);
	rpwi_check_unlock();
}

void trace_connect_begin(const struct trace_call *c, const void *handle)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	connects(c);
	const struct object *before = find(HANDLE, handle);
	uint64_t now = hash_of(handle);
	version_look(c, before);
	if (!before)
		handle_event(c, "handle-used", handle);
	else if (before->hash != now)
		say(RPWI_RULE_PLUGIN_HANDLE, c, before,
			"the bytes are not those that the plugin's last call for this connection "
			"left");
	rpwi_check_unlock();
}

void trace_connect_done(const struct trace_call *c, int rc, int dev, const void *handle, void *comm)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	if (rc || comm) {
		del(HANDLE, handle);
		if (!rc)
			comm_made(c, comm, TRACE_SEND, dev);
	} else {
		/* not yet: the plugin keeps its state in it */
		struct object *o = add(c, HANDLE, handle);
		if (o)
			o->hash = hash_of(handle);
	}
	rpwi_check_unlock();
}

void trace_accept_done(const struct trace_call *c, int rc, void *comm)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	const struct object *listen = find(COMM, c->comm);
	version_look(c, listen);
	if (!listen || listen->c.kind != TRACE_LISTEN)
		say(RPWI_RULE_PLUGIN_CLOSE, c, listen, "%s is not a comm of a listen that is open",
			RPWI_AT(c->comm));
	if (!rc && comm)
		comm_made(c, comm, TRACE_RECV, listen ? listen->c.dev : -1);
	rpwi_check_unlock();
}

/* ---- registrations ---- */

static const struct device *device_of(const struct object *comm)
{
	int dev = comm ? comm->c.dev : -1;
	const struct device *d =
		dev >= 0 && dev < DEVICES ? &state.device[family(comm->v)][dev] : NULL;
	return d && d->known ? d : NULL;
}

/* The comm of a call that takes one. */
static struct object *comm_of(const struct trace_call *c)
{
	struct object *o = find(COMM, c->comm);
	version_look(c, o);
	if (!o)
		say(RPWI_RULE_PLUGIN_CLOSE, c, NULL, "%s is not an open comm", RPWI_AT(c->comm));
	return o;
}

void trace_reg_begin(const struct trace_call *c, int type)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	const struct device *d = device_of(comm_of(c));
	if (d && !(d->types & type))
		say(RPWI_RULE_PLUGIN_MEMORY, c, NULL, "type %d, and the device's ptrSupport is %d",
			type, d->types);
	rpwi_check_unlock();
}

void trace_reg_done(const struct trace_call *c, int rc, const void *data, size_t size, int type,
	const void *mhandle)
{
	/* without a handle there is nothing that a send could be held against */
	if (rc || !mhandle || !rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *comm = find(COMM, c->comm), *o = add(c, MHANDLE, mhandle);
	if (o) {
		o->comm = comm;
		o->m.at = (uintptr_t)data;
		o->m.size = size;
	}
	if (comm)
		comm->c.regs++;
	rpwi_check_unlock();
}

void trace_dereg_begin(const struct trace_call *c, const void *mhandle)
{
	if (!mhandle || !rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *o = find(MHANDLE, mhandle);
	version_look(c, o);
	if (!o)
		say(RPWI_RULE_PLUGIN_MHANDLE, c, NULL, "mhandle %s is not registered",
			RPWI_AT(mhandle));
	else if (c->v >= TRACE_RMA && o->comm && o->comm->key != c->comm)
		say(RPWI_RULE_PLUGIN_MHANDLE, c, o, "mhandle %s is of comm %s, not of %s",
			RPWI_AT(mhandle), RPWI_AT(o->comm->key), RPWI_AT(c->comm));
	if (o && o->comm && o->comm->c.regs)
		o->comm->c.regs--;
	del(MHANDLE, mhandle);
	rpwi_check_unlock();
}

static void buffer_look(const struct trace_call *c, const struct object *comm, const void *data,
	size_t size, const void *mhandle)
{
	const struct object *o = mhandle ? find(MHANDLE, mhandle) : NULL;
	const struct device *d = device_of(comm);
	if (!mhandle || !size)
		return; /* plugins may need no registration */
	version_look(c, o);
	if (!o) {
		say(RPWI_RULE_PLUGIN_MHANDLE, c, NULL, "mhandle %s is not registered",
			RPWI_AT(mhandle));
		return;
	}
	if (o->comm != comm && !(d && d->is_global))
		say(RPWI_RULE_PLUGIN_MHANDLE, c, o, "mhandle %s is of comm %s, not of %s",
			RPWI_AT(mhandle), RPWI_AT(o->comm ? o->comm->key : NULL), RPWI_AT(c->comm));
	uintptr_t at = (uintptr_t)data;
	/* of a dma-buf there may be no address */
	if (o->m.at && (at < o->m.at || size > o->m.size || at - o->m.at > o->m.size - size))
		say(RPWI_RULE_PLUGIN_MEMORY, c, o,
			"%zu bytes at %s, and mhandle %s is of %zu bytes at 0x%" PRIxPTR, size,
			RPWI_AT(data), RPWI_AT(mhandle), o->m.size, o->m.at);
}

/* ---- the data path ---- */

static void enter(const struct trace_call *c, struct object *comm)
{
	long me = syscall(SYS_gettid);
	if (!comm)
		return;
	if (comm->c.thread && comm->c.thread != me)
		say(RPWI_RULE_PLUGIN_THREAD, c, comm,
			"thread %ld is inside a call for comm %s, and so is thread %ld",
			comm->c.thread, RPWI_AT(comm->key), me);
	comm->c.thread = me;
}

static void leave(struct object *comm)
{
	if (comm)
		comm->c.thread = 0;
}

void trace_send_begin(
	const struct trace_call *c, const void *data, size_t size, const void *mhandle)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *comm = comm_of(c);
	enter(c, comm);
	buffer_look(c, comm, data, size, mhandle);
	rpwi_check_unlock();
}

void trace_recv_begin(const struct trace_call *c, int n, void *const *data, const size_t *sizes,
	void *const *mhandles)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *comm = comm_of(c);
	const struct device *d = device_of(comm);
	enter(c, comm);
	if (n < 1 || n > NCCL_NET_GROUP_MAX || (d && n > d->max_recvs))
		say(RPWI_RULE_PLUGIN_MEMORY, c, comm,
			"a group of %d receives, and the device's maxRecvs is %d", n,
			d ? d->max_recvs : NCCL_NET_GROUP_MAX);
	for (int i = 0; i < RPWI_MIN(n, (int)NCCL_NET_GROUP_MAX); i++)
		buffer_look(c, comm, data[i], sizes[i], mhandles ? mhandles[i] : NULL);
	rpwi_check_unlock();
}

void trace_posted(const struct trace_call *c, int rc, const void *request, bool is_recv, int n,
	const size_t *sizes, bool may_be_1)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *comm = find(COMM, c->comm);
	leave(comm);
	if (comm && rc)
		comm->c.failed = true;
	struct object *o = rc || !request ? NULL : add(c, REQUEST, request);
	if (o) {
		o->comm = comm;
		o->r.is_recv = is_recv;
		o->r.n = RPWI_MAX(RPWI_MIN(n, (int)NCCL_NET_GROUP_MAX), 0);
		for (int i = 0; i < o->r.n; i++)
			o->r.room[i] = sizes[i];
	}
	const struct device *d = device_of(comm);
	unsigned most =
		NCCL_NET_MAX_REQUESTS *
		(unsigned)(d && (is_recv || c->v >= TRACE_RMA) ? RPWI_MAX(d->max_recvs, 1) : 1);
	if (comm && comm->c.kind == TRACE_COLL)
		most *= (unsigned)comm->c.ranks;
	if (o && comm && ++comm->c.requests == most + 1)
		say(RPWI_RULE_PLUGIN_REQUESTS, c, comm, "%u requests are under way on comm %s",
			comm->c.requests, RPWI_AT(comm->key));
	rpwi_check_unlock();
}

static bool was_done(const void *request)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(state.done); i++)
		if (state.done[i] == request)
			return true;
	return false;
}

void trace_test_begin(const struct trace_call *c, const void *request)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *o = find(REQUEST, request);
	version_look(c, o);
	if (!o)
		say(RPWI_RULE_PLUGIN_REQUEST, c, NULL,
			was_done(request) ? "request %s was done already"
					  : "request %s is none that isend, irecv or iflush gave",
			RPWI_AT(request));
	else if (c->v >= TRACE_RMA && o->comm && o->comm->key != c->comm)
		say(RPWI_RULE_PLUGIN_REQUEST, c, o, "request %s is of comm %s, not of %s",
			RPWI_AT(request), RPWI_AT(o->comm->key), RPWI_AT(c->comm));
	else if (c->v < TRACE_RMA)
		enter(c, o->comm);
	rpwi_check_unlock();
}

void trace_test_done(
	const struct trace_call *c, int rc, const void *request, int done, const int *sizes)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *o = find(REQUEST, request);
	if (o)
		leave(o->comm);
	if (o && o->comm && rc)
		o->comm->c.failed = true;
	for (int i = 0; o && !rc && done && sizes && o->r.is_recv && i < o->r.n; i++) {
		if (sizes[i] < 0)
			say(RPWI_RULE_PLUGIN_RESULT, c, o, "receive %d is done with %d bytes", i,
				sizes[i]);
		else if ((size_t)sizes[i] > o->r.room[i])
			say(RPWI_RULE_PLUGIN_SIZE, c, o,
				"receive %d is done with %d bytes and had room for %zu", i,
				sizes[i], o->r.room[i]);
	}
	if (o && (rc || done)) {
		if (o->comm && o->comm->c.requests)
			o->comm->c.requests--;
		state.done[state.ndone++ % RPWI_ARRAY_LEN(state.done)] = request;
		del(REQUEST, request);
	}
	rpwi_check_unlock();
}

/* ---- closing ---- */

static void close_begin(const struct trace_call *c, enum trace_comm kind)
{
	static const char *const name[] = {"listen", "send", "recv", "coll"};
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	const struct object *o = comm_of(c);
	if (o && o->c.kind != kind)
		say(RPWI_RULE_PLUGIN_CLOSE, c, o, "%s is a %s comm", RPWI_AT(c->comm),
			name[o->c.kind]);
	else if (o && kind != TRACE_LISTEN && !o->c.failed && (o->c.requests || o->c.regs))
		say(RPWI_RULE_PLUGIN_CLOSE, c, o,
			"%u requests are under way on it, and %u registrations are left",
			o->c.requests, o->c.regs);
	else if (o && o->c.contexts)
		say(RPWI_RULE_PLUGIN_CLOSE, c, o, "%u contexts of it are left", o->c.contexts);
	rpwi_check_unlock();
}

/* What belonged to the comm is nobody's. */
static void forget(struct object *comm)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct object **at = &state.bucket[i]; *at;) {
			struct object *o = *at;
			if (o->comm == comm && (o->kind == REQUEST || o->kind == CONTEXT)) {
				*at = o->next;
				state.objects--;
				free(o);
				continue;
			}
			if (o->comm == comm)
				o->comm = NULL;
			at = &o->next;
		}
}

static void closed(const struct trace_call *c)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *o = find(COMM, c->comm);
	if (o) {
		forget(o);
		del(COMM, c->comm);
	}
	rpwi_check_unlock();
}

int trace_close(struct trace_call *c, enum trace_comm kind, int (*plugin)(void *), void *comm)
{
	close_begin(c, kind);
	int rc = plugin(comm);
	closed(c);
	return trace_end(c, rc, "comm %s", RPWI_AT(comm));
}

/* ---- one-sided operations ---- */

void *trace_coll_of(void *ctx)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return ctx;
	const struct object *o = find(CONTEXT, ctx);
	void *coll = o && o->comm ? (void *)(uintptr_t)o->comm->key : ctx;
	rpwi_check_unlock();
	return coll;
}

void trace_coll_begin(
	const struct trace_call *c, void *const *handles, int ranks, int rank, const void *listen)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	connects(c);
	const struct object *o = find(COMM, listen);
	version_look(c, o);
	if (!o || o->c.kind != TRACE_LISTEN)
		say(RPWI_RULE_PLUGIN_CLOSE, c, o, "%s is not a comm of a listen that is open",
			RPWI_AT(listen));
	else if (rank >= 0 && rank < ranks && o->c.hash != hash_of(handles[rank]))
		say(RPWI_RULE_PLUGIN_HANDLE, c, o,
			"the bytes of handle %d, of this rank, are not those that listen gave",
			rank);
	for (int i = 0; i < ranks; i++)
		if (i != rank)
			handle_event(c, "handle-used", handles[i]);
	rpwi_check_unlock();
}

void trace_coll_done(const struct trace_call *c, int rc, int ranks, const void *listen, void *coll)
{
	if (rc || !rpwi_check_on || !rpwi_check_lock())
		return;
	const struct object *from = find(COMM, listen);
	if (!coll)
		say(RPWI_RULE_PLUGIN_RESULT, c, NULL, "success, and no comm");
	struct object *o = coll ? comm_made(c, coll, TRACE_COLL, from ? from->c.dev : -1) : NULL;
	if (o)
		o->c.ranks = ranks;
	rpwi_check_unlock();
}

void trace_context_done(const struct trace_call *c, int rc, const void *ctx)
{
	if (rc || !ctx || !rpwi_check_on || !rpwi_check_lock())
		return;
	struct object *coll = comm_of(c), *o = add(c, CONTEXT, ctx);
	if (o)
		o->comm = coll;
	if (o && coll)
		coll->c.contexts++;
	rpwi_check_unlock();
}

void trace_context_end(const struct trace_call *c, const void *ctx)
{
	if (!ctx || !rpwi_check_on || !rpwi_check_lock())
		return;
	const struct object *o = find(CONTEXT, ctx);
	version_look(c, o);
	if (!o)
		say(RPWI_RULE_PLUGIN_CLOSE, c, NULL, "%s is not a context that is open",
			RPWI_AT(ctx));
	else if (o->comm && o->comm->c.contexts)
		o->comm->c.contexts--;
	del(CONTEXT, ctx);
	rpwi_check_unlock();
}

/* A registration that an operation names; `size` at `at` of it, if it is this rank's part. */
static void region_look(const struct trace_call *c, const struct object *coll, const void *mhandle,
	bool here, uint64_t at, size_t size)
{
	const struct object *o = find(MHANDLE, mhandle);
	version_look(c, o);
	if (!o)
		say(RPWI_RULE_PLUGIN_MHANDLE, c, NULL, "mhandle %s is not registered",
			RPWI_AT(mhandle));
	else if (o->comm != coll)
		say(RPWI_RULE_PLUGIN_MHANDLE, c, o, "mhandle %s is of comm %s, not of %s",
			RPWI_AT(mhandle), RPWI_AT(o->comm ? o->comm->key : NULL), RPWI_AT(c->comm));
	else if (here && (size > o->m.size || at > o->m.size - size))
		say(RPWI_RULE_PLUGIN_MEMORY, c, o,
			"%zu bytes at offset %" PRIu64 ", and mhandle %s is of %zu bytes", size, at,
			RPWI_AT(mhandle), o->m.size);
}

void trace_op_begin(const struct trace_call *c, const struct trace_op *op)
{
	if (!rpwi_check_on || !rpwi_check_lock())
		return;
	const struct object *coll = comm_of(c);
	if (coll && op->rank >= (uint32_t)coll->c.ranks)
		say(RPWI_RULE_PLUGIN_MEMORY, c, coll, "rank %u, and the comm has %d", op->rank,
			coll->c.ranks);
	if (coll && op->size) {
		region_look(c, coll, op->from, !op->gets, op->from_at, op->size);
		region_look(c, coll, op->to, op->gets, op->to_at, op->size);
	}
	if (coll && op->signal)
		region_look(c, coll, op->signal, false, 0, 0);
	rpwi_check_unlock();
}

void trace_op_posted(const struct trace_call *c, int rc, const void *request)
{
	if (!rpwi_check_on)
		return;
	trace_posted(c, rc, request, false, 0, NULL, false);
	if (rc || request || !rpwi_check_lock())
		return;
	say(RPWI_RULE_PLUGIN_RESULT, c, find(COMM, c->comm), "success, and no request");
	rpwi_check_unlock();
}

static void never_closed(void)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (const struct object *o = state.bucket[i]; o; o = o->next) {
			struct trace_call c = {
				.name = "exit", .v = o->v, .from = (const void *)o->made.pc[0]};
			if (o->kind == COMM)
				say(RPWI_RULE_PLUGIN_CLOSE, &c, o, "comm %s was never closed",
					RPWI_AT(o->key));
		}
}

__attribute__((constructor)) static void begin(void) { rpwi_check_at_end(never_closed); }
