/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - handles, listening, connecting and registration: nothing here sends a message that
 * matters. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ncclnet/check/conform_priv.h"

enum { ALL_WELL = 'w', REFUSED = 'r', NOTHING = 'n', COMM = 'c', FORGED = 3, MIXED_MOST = 2 };

/* ---- handles ---- */

void case_handle(struct conform *c)
{
	struct side *s = c->s;
	struct link a = {0}, b = {0};
	if (!link_listen(s, &a) || !link_listen(s, &b))
		return;
	if (!link_guarded(s, &a) || !link_guarded(s, &b))
		conform_fail(c,
			"listen writes past the %zu bytes of the handle: NCCL has something else "
			"there",
			s->n->handle_bytes);
	else if (!memcmp(a.handle, b.handle, s->n->handle_bytes))
		conform_fail(c,
			"two listens give the same handle: a peer cannot tell which one is meant");
	link_close(s, &a);
	link_close(s, &b);
}

/* Both for the other side: one that first waits until the plugin's call has come back, or, if it
 * does not, goes on so that it can. */
static bool await_return(struct conform *c, const char *call)
{
	char told;
	bool came_back = side_heard(c->s, conform_linger_ms(c));
	if (!came_back)
		conform_quirk(c, NCCLNET_BLOCKS, "%s waits for the other side%s", call,
			c->s->n->abi > 4 ? ": NCCL's thread stands still meanwhile"
					 : ", as it may in v4");
	return came_back ? side_take(c->s, &told, 1) : true;
}

static bool take_late(struct conform *c, bool was_heard)
{
	char told;
	return was_heard || side_take(c->s, &told, 1);
}

/* Role 0 by accept, role 1 by connect. */
static bool link_finish(struct side *s, struct link *l)
{
	return s->role ? link_connect(s, l) : link_accept(s, l);
}

/* Role `first` calls accept or connect once, before the other one has done anything. */
static void returns_at_once(struct conform *c, int first)
{
	struct side *s = c->s;
	struct link l = {0};
	char back = ALL_WELL;
	const char *call = first ? "connect" : "accept";
	int rc;
	l.device = &l.device_memory;
	if (s->role ? !link_take(s, &l) : !link_offer(s, &l))
		return;
	if (s->role != first) {
		bool heard = await_return(c, call), was_quirk = c->verdict == CONFORM_QUIRK;
		if (heard && link_finish(s, &l) && take_late(c, !was_quirk))
			side_meet(s);
		link_close(s, &l);
		return;
	}
	if (first)
		rc = SIDE_CALL(s, call,
			ncclnet_connect(s->n, s->ctx, s->device, l.handle, &l.send, &l.device));
	else
		rc = SIDE_CALL(s, call, ncclnet_accept(s->n, l.listen, &l.recv, &l.device));
	side_give(s, &back, 1);
	if (rc)
		conform_fail(c,
			"%s gives %d (%s) where %s yet: a NULL comm and success are expected", call,
			rc, ncclnet_result_name(rc),
			first ? "the peer has not accepted" : "nobody has connected");
	else if (l.recv || l.send || link_finish(s, &l))
		side_meet(s);
	link_close(s, &l);
}

void case_accept(struct conform *c) { returns_at_once(c, 0); }
void case_connect(struct conform *c) { returns_at_once(c, 1); }

void case_handle_copy(struct conform *c)
{
	struct side *s = c->s;
	struct link l = {0};
	unsigned char before[NCCL_NET_HANDLE_BYTES];
	l.device = &l.device_memory;
	if (s->role ? !link_take(s, &l) : !link_offer(s, &l))
		return;
	/* What listen gave has gone to the peer: NCCL's memory for it is used again. */
	if (!s->role)
		memset(l.handle, 0xdd, s->n->handle_bytes);
	memcpy(before, l.handle, s->n->handle_bytes);
	if (!link_finish(s, &l) || !side_meet(s))
		return;
	if (s->role && !link_guarded(s, &l))
		conform_fail(
			c, "connect writes past the %zu bytes of the handle", s->n->handle_bytes);
	else if (s->role && memcmp(before, l.handle, s->n->handle_bytes) != 0)
		conform_quirk(c, NCCLNET_STATE_IN_HANDLE,
			"connect keeps its state in the caller's copy, which NCCL leaves where it "
			"is");
	link_close(s, &l);
}

/* The caller gives none, as newer NCCL: what it is without may be an error, or a crash. */
void case_device_handle(struct conform *c)
{
	struct side *s = c->s;
	struct link l = {0};
	if ((s->role ? !link_take(s, &l) : !link_offer(s, &l)) || !link_finish(s, &l)) {
		conform_quirk(c, NCCLNET_DEVICE_HANDLE, "without one %s", s->text);
		s->why = NULL;
		return;
	}
	if (l.device && l.device->type != NCCL_NET_DEVICE_HOST)
		conform_quirk(c, NCCLNET_DEVICE_TYPE,
			"%s gives a device handle of type %d: kernels of GPUs take part",
			s->role ? "connect" : "accept", l.device->type);
	if (side_meet(s))
		link_close(s, &l);
	s->why = NULL; /* the other one has said it */
}

/* ---- registration ---- */

static struct {
	char bytes[20000];
} memory;

void case_reg(struct conform *c)
{
	struct side *s = c->s;
	struct end e;
	void *mhandle[3] = {NULL};
	const size_t at[3] = {0, 1, 4096}, size[3] = {sizeof(memory.bytes), 1, 9001};
	if (!end_open(s, &e, 0, 4096))
		return;
	for (unsigned i = 0; i < 3; i++)
		side_result(s, end_reg(s, &e, memory.bytes + at[i], size[i], &mhandle[i]),
			"regMr of %zu bytes of host memory, where others overlap,", size[i]);
	for (unsigned i = 0; i < 3 && !s->why; i++)
		side_result(s, end_dereg(s, &e, mhandle[i]), "deregMr");
	if (!e.mhandle)
		conform_quirk(c, NCCLNET_NULL_MHANDLE,
			"regMr gives a NULL mhandle, which NCCL passes on");
	if (side_meet(s))
		end_close(s, &e);
}

void case_reg_bad(struct conform *c)
{
	static const int types[] = {0, NCCL_PTR_CUDA, NCCL_PTR_DMABUF, 8, 1 << 20, -1};
	struct side *s = c->s;
	struct end e;
	if (!end_open(s, &e, 0, 4096))
		return;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(types); i++) {
		void *mhandle = NULL;
		/* What is CUDA's it may try, and dma-buf is a call of its own. */
		if (types[i] > 0 && (types[i] & s->p.ptr_support) != 0)
			continue;
		int rc = SIDE_CALL(s, "regMr",
			ncclnet_reg(s->n, end_comm(&e), memory.bytes, 4096, types[i], &mhandle));
		if (!rc)
			conform_fail(c,
				"regMr takes memory of type %d, and its properties say 0x%x (1 "
				"host, 2 CUDA, 4 dma-buf)",
				types[i], s->p.ptr_support);
	}
	if (side_meet(s))
		end_close(s, &e);
}

/* ---- handles that are none ---- */

/* 0: no bits, 1: the true one with all bits turned that 0x5a has, 2: what NCCL's own Socket
 * transport gives, an address (where nobody is) and a magic number. */
static const char *forge(
	unsigned which, const unsigned char *handle, unsigned char *out, size_t len)
{
	struct {
		struct sockaddr_in6 address;
		uint64_t magic;
	} socket_handle = {.magic = 0x564ab9f2fc4b9d6cull};
	struct sockaddr_in loopback = {.sin_family = AF_INET,
		.sin_port = htons(1),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	memset(out, 0, len);
	if (which == 0)
		return "of zeros";
	if (which == 1) {
		for (size_t i = 0; i < len; i++)
			out[i] = handle[i] ^ 0x5a;
		return "with its bits turned";
	}
	memcpy(&socket_handle.address, &loopback, sizeof(loopback));
	memcpy(out, &socket_handle, RPWI_MIN(len, sizeof(socket_handle)));
	return "of another plugin";
}

/* REFUSED, NOTHING (NULL comms until it was waited for long enough) or COMM. */
static char try_connect(struct conform *c, struct link *l)
{
	struct side *s = c->s;
	uint64_t until = rpwi_now_ns() + conform_linger_ms(c) * RPWI_NS_PER_MS;
	do {
		int rc = SIDE_CALL(s, "connect",
			ncclnet_connect(s->n, s->ctx, s->device, l->handle, &l->send, &l->device));
		if (rc || l->send)
			return rc ? REFUSED : COMM;
		usleep(500);
	} while (rpwi_now_ns() < until);
	return NOTHING;
}

/* A comm of an invalid handle may still fail at its first message. */
static bool fails_later(struct conform *c, const struct link *l)
{
	struct side *s = c->s;
	struct end e = {.link = *l, .sends = true};
	void *request = NULL;
	uint64_t until = rpwi_now_ns() + conform_linger_ms(c) * RPWI_NS_PER_MS;
	if (end_reg(s, &e, memory.bytes, 1, &e.mhandle))
		return true;
	while (!request && rpwi_now_ns() < until)
		if (end_post(s, &e, memory.bytes, 1, 0, &request))
			return true;
	return request && end_wait(s, request, NULL, conform_linger_ms(c)) < 0;
}

static bool try_forged(struct conform *c, const unsigned char *handle)
{
	struct side *s = c->s;
	for (unsigned i = 0; i < FORGED; i++) {
		struct link l = {0};
		l.device = &l.device_memory;
		const char *name = forge(i, handle, l.handle, s->n->handle_bytes);
		link_guard(s, &l);
		char outcome = try_connect(c, &l);
		if (outcome == NOTHING)
			conform_quirk(c, -1,
				"a handle %s is not refused, and never connects: NCCL waits for "
				"ever",
				name);
		if (outcome == COMM && fails_later(c, &l))
			conform_quirk(c, -1,
				"a handle %s gives a comm, which fails at its first message", name);
		else if (outcome == COMM)
			return conform_fail(c, "a handle %s gives a comm", name);
		link_close(s, &l);
	}
	return true;
}

void case_wrong_handle(struct conform *c)
{
	struct side *s = c->s;
	struct link l = {0};
	char told = ALL_WELL;
	l.device = &l.device_memory;
	s->until += 3ull * conform_linger_ms(c) * RPWI_NS_PER_MS * FORGED;
	if (s->role == 1) {
		if (!link_take(s, &l))
			return;
		/* The true one still connects after that. */
		if (try_forged(c, l.handle) && side_give(s, &told, 1) && link_connect(s, &l) &&
			side_meet(s))
			link_close(s, &l);
		return;
	}
	if (!link_offer(s, &l))
		return;
	while (!side_heard(s, 0)) {
		int rc = SIDE_CALL(s, "accept", ncclnet_accept(s->n, l.listen, &l.recv, &l.device));
		if (!rc && l.recv && side_heard(s, 0)) /* it was waiting for the true one */
			break;
		if (rc || l.recv) {
			conform_fail(c,
				rc ? "accept gives %d (%s) because of a peer with an invalid handle"
				   : "accept gives a comm for an invalid handle",
				rc, ncclnet_result_name(rc));
			return;
		}
		usleep(500);
	}
	if (side_take(s, &told, 1) && (l.recv || link_accept(s, &l)) && side_meet(s))
		link_close(s, &l);
}

/* ---- handles of another version ---- */

/* Both have a comm: does it carry anything? */
static bool carries(struct conform *c, const struct link *l)
{
	static const size_t sizes[] = {24, 5000};
	struct side *s = c->s;
	struct end e = {.link = *l, .sends = s->role}; /* the link is the caller's to close */
	struct stream t = {.e = &e, .n = 4, .window = 4, .sizes = sizes, .sizes_n = 2, .salt = 90};
	bool ok = end_memory(s, &e, stream_bytes(&t)) && streams_run(s, &t, 1) && side_meet(s);
	if (ok)
		end_dereg(s, &e, e.mhandle);
	return ok;
}

static bool connect_mixed(struct conform *c, int other)
{
	struct side *s = c->s;
	struct link l = {0};
	char outcome, accepted = NOTHING, usable = 0;
	l.device = &l.device_memory;
	side_step(s);
	if (!side_take(s, &usable, 1) || usable != ALL_WELL)
		return !s->why;
	if (!side_take(s, l.handle, sizeof(l.handle)))
		return false;
	link_guard(s, &l);
	outcome = try_connect(c, &l);
	if (!side_give(s, &outcome, 1) || !side_take(s, &accepted, 1))
		return false;
	if (outcome == REFUSED)
		conform_note(c, "v%d's is refused", other);
	else if (outcome == NOTHING)
		conform_quirk(c, -1,
			"v%d's is not refused, and never connects: NCCL would wait for ever, and "
			"never mixes them",
			other);
	else if (accepted != COMM)
		return conform_fail(c,
			"v%d's handle gives a send comm, and its listener accepts none: the "
			"connection that carries nothing",
			other);
	else if (carries(c, &l))
		conform_quirk(c, -1,
			"v%d's handle is taken, and works; NCCL and ropeway never mix versions",
			other);
	else
		return conform_fail(
			c, "v%d's handle gives comms on both sides that carry nothing", other);
	return true;
}

static bool accept_mixed(struct conform *c, int other)
{
	struct side *s = c->s;
	struct ncclnet *own = s->n, *n = NULL;
	void *own_ctx = s->ctx, *ctx = NULL;
	struct link l = {0};
	char why[300], outcome = 0, accepted;
	l.device = &l.device_memory;
	char usable =
		ncclnet_load(c->o->path, other, &n, why, sizeof(why)) || !side_init(s, n, &ctx)
			? NOTHING
			: ALL_WELL;
	s->why = NULL;
	if (!side_give(s, &usable, 1))
		return false;
	if (usable != ALL_WELL) {
		conform_quirk(c, NCCLNET_ONE_INIT,
			"its v%d does not initialize beside v%d: not tried", other, own->abi);
		return true;
	}
	s->n = n;
	s->ctx = ctx;
	side_step(s);
	memset(l.handle, 0, sizeof(l.handle));
	bool ok = link_listen(s, &l);
	memset(l.handle + n->handle_bytes, 0, sizeof(l.handle) - n->handle_bytes);
	ok = ok && side_give(s, l.handle, sizeof(l.handle));
	for (uint64_t until = RPWI_NEVER; ok && !l.recv && rpwi_now_ns() < until;) {
		if (!outcome && side_heard(s, 0)) {
			ok = side_take(s, &outcome, 1);
			until = rpwi_now_ns() +
				(outcome == COMM ? conform_linger_ms(c) * RPWI_NS_PER_MS : 0);
		}
		if (SIDE_CALL(s, "accept", ncclnet_accept(n, l.listen, &l.recv, &l.device)))
			break;
		usleep(500);
	}
	accepted = l.recv ? COMM : NOTHING;
	if (ok && !outcome)
		ok = side_take(s, &outcome, 1);
	ok = ok && side_give(s, &accepted, 1);
	if (ok && outcome == COMM)
		ok = l.recv && carries(c, &l);
	link_close(s, &l);
	s->n = own;
	s->ctx = own_ctx;
	return ok;
}

void case_mixed(struct conform *c)
{
	unsigned others = c->s->n->exported & ~(1u << c->s->n->abi);
	if (!others) {
		conform_skip(c, "it has no other");
		return;
	}
	/* The nearest of those before, and the highest. */
	unsigned before = others & ((1u << c->s->n->abi) - 1);
	int pick[MIXED_MOST] = {
		before ? 31 - __builtin_clz(before) : 0, 31 - __builtin_clz(others)};
	for (unsigned i = 0; i < MIXED_MOST; i++) {
		if (!pick[i] || (i && pick[i] == pick[0]))
			continue;
		if (c->s->role ? !connect_mixed(c, pick[i]) : !accept_mixed(c, pick[i]))
			return;
	}
}
