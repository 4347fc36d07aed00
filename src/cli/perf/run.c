/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - both sides of `ropeway perf`: what is sent, who waits for what, what is checked, and
 * where the clock is read.
 *
 * The client asks for a job in a control message with its remote key; the server answers with its
 * own; the job runs; FINISH and RESULT end it. A job sends most messages from one buffer into one
 * buffer, as other programs that measure do, and a few, spread over the job, from buffers of their
 * own whose patterns no other message has: these are checked after the clock has stopped (of an
 * active message, whose data lives only during the handler, words here and there are checked at
 * once). With `verify` each message has its own pattern, and all of it is checked.
 *
 * Waiting is polling, since that is what is measured; but who polls in vain for SPIN_NS goes to
 * sleep, and after PERF_DEADLINE_MS gives up. */
#include "cli/perf/perf.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/perf/hist.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum {
	MAGIC = 0x72707066, /* "rppf" */
	VERSION = 4,
	FLAG_VERIFY = 1,
	FLAG_MALLOC = 2,
	SPIN_NS = 5000000,
	FEW = 8, /* messages that are checked, unless all are */
	FEW_LARGE = 2,
	LARGE = 1 << 20,
	LAT_MOST = 1 << 20, /* round trips of one job: each keeps its time until the job ends */
	CLIENTS_MAX = 64,   /* of a server */
	AM_ID = 17,
	SERVER_LOOKS_MS = 200, /* for clients that have gone */
};
#define MEMORY_MOST (5ull << 30) /* that a job may ask of a server, for each kind of buffer */
enum {
	TAG_REQUEST = 0x7200,
	TAG_READY,
	TAG_DATA,
	TAG_REPLY,
	TAG_ACK,
	TAG_FINISH,
	TAG_RESULT,
	TAG_GO
};
/* Not of the table: the bare line between the two sides. */
enum { OP_DISTANCE = 0x100 };

const char *const rpwi_perf_op_name[PERF_OPS + 1] = {
	[PERF_TAG] = "tag", [PERF_PUT] = "put", [PERF_GET] = "get", [PERF_AM] = "am"};

/* Control messages: little-endian. */
struct request_wire {
	uint32_t magic, version;
	uint64_t op, mode, size, n, window, buffers, seed, flags, key_len;
	uint8_t key[RPW_RKEY_BYTES_MAX];
};
struct answer_wire { /* READY and RESULT */
	int64_t status;
	uint64_t checked, wrong, key_len;
	uint8_t key[RPW_RKEY_BYTES_MAX];
};
_Static_assert(
	sizeof(struct request_wire) == 80 + RPW_RKEY_BYTES_MAX, "the layout is the protocol");
_Static_assert(sizeof(struct answer_wire) == 32 + RPW_RKEY_BYTES_MAX, "the layout is the protocol");

struct offer_wire { /* READY of OP_DISTANCE; fd of none: there is no line */
	uint64_t pid, fd;
	uint8_t nonce[PERF_NONCE_LEN];
};
#define FD_NONE UINT64_MAX

struct flight {
	rpw_request *req;
};

struct perf_side {
	rpw_context *c;
	rpw_endpoint *ep; /* of the job; the client's only one */
	bool client, closed;
	int closed_status;
	struct perf_job job;
	uint64_t slots, pitch; /* buffers beside the plain one, and bytes from one to the next */
	/* of the messages, each 2^few_shift-th has such a buffer: no division while the clock
	 * runs */
	unsigned few_shift;
	char *out, *in;      /* of our own */
	rpw_memory *memory;  /* what the peer writes and reads */
	rpw_memory *sending; /* where `out` is; NULL: malloc'ed */
	rpw_rkey *key;       /* the peer's */
	struct flight *flight, *flight_in;
	uint64_t got, last_ns; /* active messages and notifications; when something came last */
	uint64_t checked, wrong;
	uint32_t *ticks; /* of each round trip */
};

/* ---- patterns: a word depends on the job, the message, its direction and its place ---- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint64_t word_of(const struct perf_job *j, uint64_t message, bool from_client, uint64_t at)
{
	return htole64(
		mix(j->seed + message * 2 + from_client) + mix(at + 1) * 0x9e3779b97f4a7c15ull);
}

static void fill(const struct perf_job *j, char *buf, uint64_t message, bool from_client)
{
	for (uint64_t at = 0; at < j->size; at += 8) {
		uint64_t w = word_of(j, message, from_client, at / 8);
		memcpy(buf + at, &w, RPWI_MIN(j->size - at, (uint64_t)8));
	}
}

/* every: 8 checks all of it, more a part of it; the last bytes always. */
static void check(
	struct perf_side *s, const char *buf, uint64_t message, bool from_client, uint64_t every)
{
	const struct perf_job *j = &s->job;
	bool wrong = false;
	for (uint64_t at = 0; buf && at < j->size; at += every) {
		uint64_t w = word_of(j, message, from_client, at / 8);
		wrong |= memcmp(buf + at, &w, RPWI_MIN(j->size - at, (uint64_t)8)) != 0;
	}
	if (buf && j->size > 8) {
		uint64_t at = (j->size - 1) / 8 * 8, w = word_of(j, message, from_client, at / 8);
		wrong |= memcmp(buf + at, &w, j->size - at) != 0;
	}
	s->checked++;
	s->wrong += wrong;
}

/* ---- buffers ---- */

static uint64_t few(const struct perf_job *j) { return j->size > LARGE ? FEW_LARGE : FEW; }

/* Which buffer a message has: 0 the plain one (or one of several in turn), else one of its own for
 * as long as that matters. */
static uint64_t slot_of(const struct perf_side *s, uint64_t message)
{
	const struct perf_job *j = &s->job;
	if (j->verify)
		return 1 + message % RPWI_MAX(j->window, 1u);
	if (!(message & ((1ull << s->few_shift) - 1)))
		return 1 + (message >> s->few_shift);
	uint64_t turn = RPWI_LIKELY(j->buffers == 1) ? 0 : message % j->buffers;
	return turn ? s->slots + 1 + turn : 0; /* behind those of their own */
}

static char *buffer(const struct perf_side *s, char *base, uint64_t slot)
{
	return base + slot * s->pitch;
}

/* As the peers' programs have them: in huge pages, where the kernel gives any. */
static char *pages(uint64_t bytes)
{
	enum { HUGE = 2 << 20 };
	uint64_t align = bytes >= HUGE ? HUGE : 4096, len = (bytes + align - 1) & ~(align - 1);
	char *p = aligned_alloc(align, len);
	if (p && align == HUGE)
		madvise(p, len, MADV_HUGEPAGE);
	if (p)
		memset(p, 0x5a, bytes); /* no page faults while the clock runs */
	return p;
}

static void buffers_free(struct perf_side *s)
{
	rpw_rkey_destroy(s->key);
	rpw_memory_destroy(s->memory);
	if (!s->sending)
		free(s->out);
	rpw_memory_destroy(s->sending);
	free(s->in);
	free(s->flight);
	free(s->flight_in);
	free(s->ticks);
	s->key = NULL;
	s->memory = s->sending = NULL;
	s->out = s->in = NULL;
	s->flight = s->flight_in = NULL;
	s->ticks = NULL;
}

static bool one_sided(const struct perf_job *j) { return j->op == PERF_PUT || j->op == PERF_GET; }

/* What messages are sent from: memory that the library allocated, as ucx_perftest has its
 * buffers. */
static char *sending_make(struct perf_side *s, uint64_t bytes)
{
	if (s->job.malloc || one_sided(&s->job))
		return pages(bytes);
	if (rpw_memory_allocate(s->c, bytes, RPW_REMOTE_READ, &s->sending))
		return NULL;
	return memset(rpw_memory_address(s->sending), 0x5a, bytes);
}

static int buffers_make(struct perf_side *s)
{
	const struct perf_job *j = &s->job;
	s->slots = j->verify ? j->window : few(j);
	for (s->few_shift = 0; few(j) << s->few_shift < j->n;)
		s->few_shift++;
	/* a page of its own, and room between: nothing is shared, nothing is written beyond
	 * unseen */
	s->pitch = (j->size + 4159) & ~4095ull;
	if (j->size <= 64)
		s->pitch = 64;
	uint64_t bytes = (s->slots + 1 + j->buffers) * s->pitch + s->pitch;
	s->out = sending_make(s, bytes);
	s->in = pages(bytes);
	s->flight = calloc(j->window, sizeof(*s->flight));
	s->flight_in = calloc(j->window, sizeof(*s->flight));
	if (s->client && j->mode == PERF_LAT)
		s->ticks = malloc(j->n * sizeof(*s->ticks));
	if (!s->out || !s->in || !s->flight || !s->flight_in ||
		(s->client && j->mode == PERF_LAT && !s->ticks))
		return RPW_ERR_NO_MEMORY;
	for (uint64_t slot = 1; slot <= s->slots && !j->verify; slot++)
		fill(j, buffer(s, s->out, slot), slot, s->client);
	if (!one_sided(j))
		return 0;
	int rc = rpw_memory_allocate(s->c, bytes, RPW_REMOTE_WRITE | RPW_REMOTE_READ, &s->memory);
	if (rc)
		return rc;
	char *m = rpw_memory_address(s->memory);
	memset(m, 0, bytes);
	for (uint64_t slot = 0; slot <= s->slots + 1 && j->op == PERF_GET && !s->client; slot++)
		fill(j, buffer(s, m, slot), slot, false);
	return 0;
}

/* The message's bytes to send; its pattern is its slot's, unless each message has one. */
static const char *outgoing(struct perf_side *s, uint64_t message)
{
	uint64_t slot = slot_of(s, message);
	char *b = buffer(s, s->out, slot);
	if (s->job.verify)
		fill(&s->job, b, message + 1, s->client);
	return b;
}

static uint64_t pattern_of(const struct perf_side *s, uint64_t message, uint64_t slot)
{
	return s->job.verify ? message + 1 : slot;
}

/* After message i has arrived: check it now where its buffer will be used again. */
static void arrived(struct perf_side *s, char *base, uint64_t message)
{
	if (s->job.verify)
		check(s, buffer(s, base, slot_of(s, message)), message + 1, !s->client, 8);
}

/* After the clock: those with buffers of their own. */
static void check_few(struct perf_side *s, const char *base, bool from_client)
{
	const struct perf_job *j = &s->job;
	for (uint64_t message = 0; message < j->n && !j->verify; message += 1ull << s->few_shift) {
		uint64_t slot = slot_of(s, message);
		check(s, base + slot * s->pitch, slot, from_client, 8);
	}
}

/* ---- waiting ---- */

static int gone(const struct perf_side *s)
{
	return s->closed ? (s->closed_status < 0 ? s->closed_status : RPW_ERR_PEER_GONE) : 0;
}

/* A request under way: poll, then sleep. Frees it. */
static int wait_for(struct perf_side *s, rpw_request *r)
{
	uint64_t until = 0;
	int rc = rpw_request_test(r, NULL);
	while (rc == RPW_IN_PROGRESS) {
		for (unsigned k = 0; k < 256 && rc == RPW_IN_PROGRESS; k++) {
			rpw_context_progress(s->c);
			rc = rpw_request_test(r, NULL);
		}
		if (rc != RPW_IN_PROGRESS)
			break;
		uint64_t now = rpwi_now_ns();
		until = until ? until : now + SPIN_NS;
		if (now > until) {
			rc = rpw_request_wait(r, PERF_DEADLINE_MS, NULL);
			break;
		}
	}
	rpw_request_destroy(r);
	return rc;
}

static inline int finish(struct perf_side *s, struct flight *f)
{
	rpw_request *r = f->req;
	if (!r)
		return 0;
	f->req = NULL;
	int rc = rpw_request_test(r, NULL);
	if (rc == RPW_IN_PROGRESS)
		return wait_for(s, r);
	rpw_request_destroy(r);
	return rc;
}

static int finish_all(struct perf_side *s, struct flight *f)
{
	int rc = 0;
	for (uint64_t i = 0; i < s->job.window && !rc; i++)
		rc = finish(s, &f[i]);
	return rc;
}

/* A call that may have posted. */
static inline int posted(int rc) { return rc == RPW_IN_PROGRESS ? 0 : rc; }

/* Nothing to poll for a while: sleep until the context has something to do. */
static void doze(rpw_context *c, int ms)
{
	struct pollfd p = {.fd = rpw_context_fd(c), .events = POLLIN};
	if (rpw_context_arm(c) == 0)
		poll(&p, 1, ms);
}

/* Until so many active messages or notifications of this job have come. */
static int wait_until_got(struct perf_side *s, uint64_t target)
{
	uint64_t seen = s->got, since = 0;
	while (s->got < target) {
		for (unsigned k = 0; k < 256 && s->got < target; k++)
			rpw_context_progress(s->c);
		if (s->got >= target)
			break;
		uint64_t now = rpwi_now_ns();
		if (!since || seen != s->got) {
			since = now;
			seen = s->got;
		}
		if (gone(s))
			return gone(s);
		if (now - since > PERF_DEADLINE_MS * 1000000ull)
			return RPW_ERR_TIMEOUT;
		if (now - since > SPIN_NS)
			doze(s->c, 100);
	}
	return 0;
}

static int now_send(struct perf_side *s, const void *buf, size_t len, uint64_t tag)
{
	rpw_request *r;
	int rc = rpw_send(s->ep, buf, len, tag, &r);
	return rc == RPW_IN_PROGRESS ? wait_for(s, r) : rc;
}

static int now_recv(struct perf_side *s, void *buf, size_t len, uint64_t tag)
{
	rpw_request *r;
	int rc = rpw_recv(s->c, s->ep, buf, len, tag, ~0ull, &r);
	return rc == RPW_IN_PROGRESS ? wait_for(s, r) : rc;
}

/* ---- what the callbacks count ---- */

static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct perf_side *s = arg;
	if (ep != s->ep || s->job.op != PERF_AM)
		return;
	uint64_t message = s->got++, slot;
	if (len != s->job.size) {
		s->wrong++;
		return;
	}
	slot = s->slots ? slot_of(s, message) : 0;
	if (slot)
		check(s, data, pattern_of(s, message, slot), !s->client,
			s->job.verify || len <= 4096 ? 8 : 4096);
}

static void on_notify(rpw_endpoint *ep, uint64_t data, size_t len, void *arg)
{
	struct perf_side *s = arg;
	if (ep == s->ep && s->job.op == PERF_PUT) {
		s->wrong += data != s->got || len != s->job.size;
		s->got++;
	}
}

static void on_close(rpw_endpoint *ep, int status, void *arg)
{
	struct perf_side *s = arg;
	rpw_endpoint_set_user(ep, s); /* marks it for the server, which may not close it here */
	if (ep == s->ep) {
		s->closed = true;
		s->closed_status = status;
	}
}

/* ---- the jobs ---- */

static uint64_t ticks_now(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return rpwi_now_ns();
#endif
}

static inline void tick(struct perf_side *s, uint64_t i, uint64_t *last)
{
	uint64_t now = ticks_now(), took = now - *last;
	s->ticks[i] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
	*last = now;
}

static inline int post_send(struct perf_side *s, uint64_t i, struct flight *f)
{
	const struct perf_job *j = &s->job;
	if (j->op == PERF_AM)
		return posted(rpw_am_send(s->ep, AM_ID, NULL, 0, outgoing(s, i), j->size, &f->req));
	return posted(rpw_send(
		s->ep, outgoing(s, i), j->size, s->client ? TAG_DATA : TAG_REPLY, &f->req));
}

static inline int post_recv(struct perf_side *s, uint64_t i, struct flight *f)
{
	return posted(rpw_recv(s->c, s->ep, buffer(s, s->in, slot_of(s, i)), s->job.size,
		s->client ? TAG_REPLY : TAG_DATA, ~0ull, &f->req));
}

static int tag_lat_client(struct perf_side *s)
{
	uint64_t last = ticks_now();
	int rc = 0;
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		rc = post_send(s, i, s->flight);
		rc = rc ? rc : post_recv(s, i, s->flight_in);
		rc = rc ? rc : finish(s, s->flight_in);
		rc = rc ? rc : finish(s, s->flight);
		tick(s, i, &last);
		arrived(s, s->in, i);
	}
	return rc;
}

static int tag_lat_server(struct perf_side *s)
{
	int rc = post_recv(s, 0, s->flight_in);
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		rc = finish(s, s->flight_in);
		if (rc)
			break;
		arrived(s, s->in, i);
		rc = post_send(s, i, s->flight);
		if (!rc && i + 1 < s->job.n)
			rc = post_recv(s, i + 1, s->flight_in);
		rc = rc ? rc : finish(s, s->flight);
	}
	return rc;
}

static int am_lat(struct perf_side *s)
{
	uint64_t last = ticks_now();
	int rc = 0;
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		if (!s->client)
			rc = wait_until_got(s, i + 1);
		rc = rc ? rc : post_send(s, i, s->flight);
		if (s->client) {
			rc = rc ? rc : wait_until_got(s, i + 1);
			tick(s, i, &last);
		}
		rc = rc ? rc : finish(s, s->flight);
	}
	return rc;
}

/* A put whose arrival the other side is told, and the same back. */
static int put_lat(struct perf_side *s)
{
	uint64_t last = ticks_now();
	int rc = 0;
	char *memory = rpw_memory_address(s->memory);
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		if (!s->client) {
			rc = wait_until_got(s, i + 1);
			arrived(s, memory, i);
		}
		rc = rc ? rc
			: posted(rpw_put_notify(s->ep, outgoing(s, i), s->job.size, s->key,
				  slot_of(s, i) * s->pitch, i, &s->flight->req));
		if (s->client) {
			rc = rc ? rc : wait_until_got(s, i + 1);
			tick(s, i, &last);
			if (!rc)
				arrived(s, memory, i);
		}
		rc = rc ? rc : finish(s, s->flight);
	}
	return rc;
}

static int send_many(struct perf_side *s)
{
	uint64_t window = s->job.window, at = 0;
	int rc = 0;
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		rc = finish(s, &s->flight[at]);
		rc = rc ? rc : post_send(s, i, &s->flight[at]);
		at = at + 1 == window ? 0 : at + 1;
	}
	rc = rc ? rc : finish_all(s, s->flight);
	char ack;
	return rc ? rc : now_recv(s, &ack, 1, TAG_ACK);
}

static int recv_many(struct perf_side *s)
{
	uint64_t window = s->job.window, n = s->job.n, at = 0;
	int rc = 0;
	if (s->job.op == PERF_AM)
		rc = wait_until_got(s, n);
	else
		for (uint64_t i = 0; i < n + window && !rc; i++) {
			if (i >= window && i - window < n) {
				rc = finish(s, &s->flight_in[at]);
				if (!rc)
					arrived(s, s->in, i - window);
			}
			if (i < n && !rc)
				rc = post_recv(s, i, &s->flight_in[at]);
			at = at + 1 == window ? 0 : at + 1;
		}
	return rc ? rc : now_send(s, "a", 1, TAG_ACK);
}

static int put_many(struct perf_side *s)
{
	uint64_t at = 0;
	int rc = 0;
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		rc = finish(s, &s->flight[at]);
		rc = rc ? rc
			: posted(rpw_put(s->ep, outgoing(s, i), s->job.size, s->key,
				  slot_of(s, i) * s->pitch, &s->flight[at].req));
		at = at + 1 == s->job.window ? 0 : at + 1;
	}
	rc = rc ? rc : finish_all(s, s->flight);
	rc = rc ? rc : posted(rpw_endpoint_flush(s->ep, &s->flight->req));
	return rc ? rc : finish(s, s->flight);
}

/* With `verify` what a buffer gets is never what it had: there is one more of them there than
 * here. */
static uint64_t got_from(const struct perf_side *s, uint64_t i)
{
	return s->job.verify ? 1 + i % (s->slots + 1) : slot_of(s, i);
}

static int get_one(struct perf_side *s, uint64_t i, struct flight *f)
{
	return posted(rpw_get(s->ep, buffer(s, s->in, slot_of(s, i)), s->job.size, s->key,
		got_from(s, i) * s->pitch, &f->req));
}

static void got_one(struct perf_side *s, uint64_t i)
{
	if (s->job.verify)
		check(s, buffer(s, s->in, slot_of(s, i)), got_from(s, i), false, 8);
}

static int get_lat(struct perf_side *s)
{
	uint64_t last = ticks_now();
	int rc = 0;
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		rc = get_one(s, i, s->flight);
		rc = rc ? rc : finish(s, s->flight);
		tick(s, i, &last);
		if (!rc)
			got_one(s, i);
	}
	return rc;
}

static int get_many(struct perf_side *s)
{
	uint64_t window = s->job.window, n = s->job.n, at = 0;
	int rc = 0;
	for (uint64_t i = 0; i < n + window && !rc; i++) {
		if (i >= window && i - window < n) {
			rc = finish(s, &s->flight[at]);
			if (!rc)
				got_one(s, i - window);
		}
		if (i < n && !rc)
			rc = get_one(s, i, &s->flight[at]);
		at = at + 1 == window ? 0 : at + 1;
	}
	return rc;
}

static int nothing(struct perf_side *s) { return 0; }

/* Before the clock runs, as ucx_perftest -w: the peer's memory is mapped, and its pages are
 * touched. Once to have it mapped, once by that mapping. What is put here is not what is checked
 * later. */
static int warm_up(struct perf_side *s)
{
	int rc = 0;
	for (uint64_t i = 0; i < 2 * (s->slots + 1) && !rc; i++) {
		uint64_t at = i % (s->slots + 1) * s->pitch;
		if (s->job.op == PERF_PUT)
			rc = posted(
				rpw_put(s->ep, s->out, s->job.size, s->key, at, &s->flight->req));
		else
			rc = posted(
				rpw_get(s->ep, s->in, s->job.size, s->key, at, &s->flight->req));
		rc = rc ? rc : finish(s, s->flight);
	}
	rc = rc ? rc : posted(rpw_endpoint_flush(s->ep, &s->flight->req));
	return rc ? rc : finish(s, s->flight);
}

static const struct {
	int (*client)(struct perf_side *s), (*server)(struct perf_side *s);
} runs[PERF_OPS][PERF_MODES] = {
	[PERF_TAG] = {{tag_lat_client, tag_lat_server}, {send_many, recv_many}},
	[PERF_PUT] = {{put_lat, put_lat}, {put_many, nothing}},
	[PERF_GET] = {{get_lat, nothing}, {get_many, nothing}},
	[PERF_AM] = {{am_lat, am_lat}, {send_many, recv_many}},
};

/* What this side still has to look at when the job is over. */
static void check_after(struct perf_side *s)
{
	const struct perf_job *j = &s->job;
	const char *memory = s->memory ? rpw_memory_address(s->memory) : NULL;
	if (j->op == PERF_TAG && (j->mode == PERF_LAT || !s->client))
		check_few(s, s->in, !s->client);
	if (j->op == PERF_GET && s->client)
		check_few(s, s->in, false);
	if (j->op != PERF_PUT || (j->mode == PERF_BW && s->client))
		return;
	check_few(s, memory, !s->client);
	/* Puts alone are not seen to arrive: the client asks for no more than a window of them when
	 * each is to be checked. */
	for (uint64_t i = 0; i < j->n && j->verify && j->mode == PERF_BW; i++)
		check(s, memory + slot_of(s, i) * s->pitch, i + 1, true, 8);
}

/* ---- one job, both sides of the control messages ---- */

static int key_pack(struct perf_side *s, uint8_t *key, uint64_t *len)
{
	int rc = s->memory ? rpw_rkey_pack(s->memory, key, RPW_RKEY_BYTES_MAX) : 0;
	*len = htole64(rc > 0 ? (uint64_t)rc : 0);
	return rc < 0 ? rc : 0;
}

static int key_unpack(struct perf_side *s, const uint8_t *key, uint64_t len)
{
	len = le64toh(len);
	if (!one_sided(&s->job))
		return 0;
	return len > RPW_RKEY_BYTES_MAX ? RPW_ERR_PROTOCOL
					: rpw_rkey_unpack(s->ep, key, len, &s->key);
}

static int job_asked(struct perf_side *s, struct answer_wire *answer)
{
	const struct perf_job *j = &s->job;
	struct request_wire q = {.magic = htole32(MAGIC),
		.version = htole32(VERSION),
		.op = htole64(j->op),
		.mode = htole64(j->mode),
		.size = htole64(j->size),
		.n = htole64(j->n),
		.window = htole64(j->window),
		.buffers = htole64(j->buffers),
		.seed = htole64(j->seed),
		.flags = htole64((j->verify ? FLAG_VERIFY : 0) | (j->malloc ? FLAG_MALLOC : 0))};
	int rc = key_pack(s, q.key, &q.key_len);
	rc = rc ? rc : now_send(s, &q, sizeof(q), TAG_REQUEST);
	rc = rc ? rc : now_recv(s, answer, sizeof(*answer), TAG_READY);
	if (!rc && (int64_t)le64toh((uint64_t)answer->status))
		rc = rpwi_cli_fail(RPW_ERR_REFUSED, PERF_NAME,
			"the server cannot do this job (%s); its standard error says why",
			rpw_status_name((int)le64toh((uint64_t)answer->status)));
	return rc ? rc : key_unpack(s, answer->key, answer->key_len);
}

/* Runs s->job once; *took_ns is the clock's. */
static int job_client(struct perf_side *s, uint64_t *took_ns, uint64_t *took_ticks)
{
	struct answer_wire answer;
	s->got = s->wrong = s->checked = 0;
	int rc = buffers_make(s);
	rc = rc ? rc : job_asked(s, &answer);
	if (!rc && one_sided(&s->job) && s->job.mode == PERF_BW)
		rc = warm_up(s);
	if (rc)
		return rc;
	uint64_t begin_ns = rpwi_now_ns(), begin_ticks = ticks_now();
	rc = runs[s->job.op][s->job.mode].client(s);
	*took_ticks = ticks_now() - begin_ticks;
	*took_ns = rpwi_now_ns() - begin_ns;
	rc = rc ? rc : now_send(s, "f", 1, TAG_FINISH);
	rc = rc ? rc : now_recv(s, &answer, sizeof(answer), TAG_RESULT);
	if (rc)
		return rc;
	check_after(s);
	s->checked += le64toh(answer.checked);
	s->wrong += le64toh(answer.wrong);
	if (s->wrong)
		return rpwi_cli_fail(RPW_ERR_PROTOCOL, PERF_NAME,
			"%llu of %llu messages that were checked are not what was sent (%s, %llu "
			"bytes)",
			(unsigned long long)s->wrong, (unsigned long long)s->checked,
			rpwi_perf_op_name[s->job.op], (unsigned long long)s->job.size);
	return rc;
}

/* The histogram counts ticks; what a tick is, the clock over the whole job says. */
static int latency_of(
	const struct perf_side *s, uint64_t ns, uint64_t ticks, struct perf_latency *l)
{
	struct perf_hist *h = calloc(1, sizeof(*h));
	if (!h)
		return RPW_ERR_NO_MEMORY;
	for (uint64_t i = 0; i < s->job.n; i++)
		perf_hist_add(h, s->ticks[i]);
	double each_s = (double)ns / 1e9 / (double)(ticks ? ticks : 1);
	each_s = s->job.op == PERF_GET ? each_s : each_s / 2;
	*l = (struct perf_latency){.least = h->least * each_s,
		.p50 = perf_hist_at(h, 0.5) * each_s,
		.p90 = perf_hist_at(h, 0.9) * each_s,
		.p99 = perf_hist_at(h, 0.99) * each_s,
		.p999 = perf_hist_at(h, 0.999) * each_s,
		.most = h->most * each_s,
		.mean = (double)h->sum / (double)h->n * each_s};
	free(h);
	return 0;
}

static uint64_t most_messages(const struct perf_job *j)
{
	if (j->verify && j->op == PERF_PUT && j->mode == PERF_BW)
		return j->window;
	return j->mode == PERF_LAT ? LAT_MOST : UINT32_MAX;
}

/* Once to see how long a message takes (and to warm up), then as many as the time allows. */
int rpwi_perf_measure(
	struct perf_side *s, struct perf_job *job, double seconds, struct perf_row *row)
{
	uint64_t asked = job->n, ns = 1, ticks = 1;
	int rc = 0;
	for (unsigned turn = asked ? 1 : 0; turn < 3 && !rc; turn++) {
		s->job = *job;
		s->job.seed = mix(job->seed + turn);
		if (asked)
			s->job.n = asked;
		else if (!turn)
			s->job.n = job->size >= LARGE ? 4 : 64;
		else /* the second look is longer: the first was cold */
			s->job.n = (uint64_t)((double)s->job.n + (turn == 1 ? 0.1 : 1) * seconds /
									 ((double)ns / 1e9) *
									 row->messages);
		s->job.n = RPWI_MAX(RPWI_MIN(s->job.n, most_messages(job)), (uint64_t)1);
		rc = job_client(s, &ns, &ticks);
		row->messages = s->job.n;
		row->checked = s->checked;
		if (!rc && job->mode == PERF_LAT)
			rc = latency_of(s, ns, ticks, &row->latency);
		row->messages_s = job->mode == PERF_BW ? (double)s->job.n / ((double)ns / 1e9)
						       : row->messages_s;
		buffers_free(s);
		if (asked)
			break;
	}
	row->has[job->mode] = !rc;
	if (rc && rc != RPW_ERR_PROTOCOL && rc != RPW_ERR_REFUSED)
		rpwi_cli_fail(CLI_FAILED, PERF_NAME, "%s of %llu bytes: %s: %s",
			rpwi_perf_op_name[job->op], (unsigned long long)job->size,
			rpw_status_name(rc), rpw_last_error());
	return rc;
}

/* ---- the distance ---- */

/* The server offers a line, the client says whether it could take it (GO), then both are at it. */
int rpwi_perf_distance(struct perf_side *s, struct perf_distance *out)
{
	struct request_wire q = {
		.magic = htole32(MAGIC), .version = htole32(VERSION), .op = htole64(OP_DISTANCE)};
	struct offer_wire offer;
	*out = (struct perf_distance){.core = {-1, -1}};
	int rc = now_send(s, &q, sizeof(q), TAG_REQUEST);
	rc = rc ? rc : now_recv(s, &offer, sizeof(offer), TAG_READY);
	if (rc)
		return rpwi_cli_fail(rc, PERF_NAME,
			"the server does not say how near it is (%s): run the same ropeway on both "
			"sides",
			rpw_status_name(rc));
	struct perf_line *l =
		rpwi_perf_line_take(le64toh(offer.pid), le64toh(offer.fd), offer.nonce);
	rc = now_send(s, l ? "y" : "n", 1, TAG_GO);
	if (l && !rc)
		out->half_trip_s = rpwi_perf_line_ask(l, out->core);
	rpwi_perf_line_free(l);
	return rc;
}

static int distance_server(struct perf_side *s)
{
	int fd;
	char taken = 'n';
	struct offer_wire offer = {.pid = htole64((uint64_t)getpid())};
	struct perf_line *l = rpwi_perf_line_offer(&fd, offer.nonce);
	offer.fd = htole64(l ? (uint64_t)fd : FD_NONE);
	int rc = now_send(s, &offer, sizeof(offer), TAG_READY);
	rc = rc ? rc : now_recv(s, &taken, 1, TAG_GO);
	if (!rc && l && taken == 'y')
		rpwi_perf_line_answer(l);
	rpwi_perf_line_free(l);
	if (fd >= 0)
		close(fd);
	return rc;
}

/* ---- the client ---- */

static int side_make(const char *transport, struct perf_side **out)
{
	struct perf_side *s = calloc(1, sizeof(*s));
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	int rc = s ? rpw_context_create(&o, &s->c) : RPW_ERR_NO_MEMORY;
	if (rc) {
		free(s);
		return rpwi_cli_fail(
			rc, PERF_NAME, "%s: %s", rpw_status_name(rc), rpw_last_error());
	}
	rpw_context_on_am(s->c, AM_ID, on_am, s);
	rpw_context_on_notify(s->c, on_notify, s);
	*out = s;
	return 0;
}

int rpwi_perf_connect(const char *address, const char *transport, struct perf_side **out)
{
	struct perf_side *s = NULL;
	rpw_request *r = NULL;
	int rc = side_make(transport, &s);
	if (rc || !s)
		return rc;
	s->client = true;
	rc = rpw_endpoint_create(s->c, address, NULL, &s->ep, &r);
	if (rc == RPW_IN_PROGRESS) {
		rc = rpw_request_wait(r, -1, NULL);
		rpw_request_destroy(r);
	}
	if (rc) {
		rpwi_cli_fail(rc, PERF_NAME, "%s: %s: %s", address, rpw_status_name(rc),
			rpw_last_error());
		rpwi_perf_close(s);
		return rc;
	}
	rpw_endpoint_on_close(s->ep, on_close, s);
	*out = s;
	return 0;
}

rpw_endpoint *rpwi_perf_endpoint(struct perf_side *s) { return s->ep; }

void rpwi_perf_close(struct perf_side *s)
{
	if (!s)
		return;
	buffers_free(s);
	rpw_context_destroy(s->c);
	free(s);
}

/* ---- the server ---- */

struct server {
	struct perf_side *s;
	rpw_endpoint *client[CLIENTS_MAX];
	unsigned clients;
	bool had_one;
};

static void on_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	struct server *v = arg;
	rpw_endpoint_on_close(ep, on_close, v->s);
	if (v->clients == CLIENTS_MAX) {
		/* the main loop closes what is marked; this one it cannot know */
		fprintf(stderr,
			PERF_NAME ": a client came when %d were there already; it will wait\n",
			CLIENTS_MAX);
		return;
	}
	v->client[v->clients++] = ep;
	v->had_one = true;
}

static void close_the_gone(struct server *v)
{
	for (unsigned i = 0; i < v->clients;) {
		if (!rpw_endpoint_user(v->client[i])) {
			i++;
			continue;
		}
		rpw_endpoint_destroy(v->client[i]);
		v->client[i] = v->client[--v->clients];
	}
}

/* What a client asks for is as much as this server would do for anybody. */
static int job_accept(const struct request_wire *q, struct perf_job *j)
{
	if (le32toh(q->magic) != MAGIC || le32toh(q->version) != VERSION)
		return rpwi_cli_fail(RPW_ERR_PROTOCOL, PERF_NAME,
			"a client of another version came (%u, here is %d): run the same ropeway "
			"on both sides",
			le32toh(q->version), VERSION);
	uint64_t op = le64toh(q->op), mode = le64toh(q->mode), size = le64toh(q->size),
		 n = le64toh(q->n), window = le64toh(q->window);
	uint64_t turns = le64toh(q->buffers);
	bool verify = le64toh(q->flags) & FLAG_VERIFY;
	if (op >= PERF_OPS || mode >= PERF_MODES || size > PERF_SIZE_MOST || !n || n > UINT32_MAX ||
		!window || window > PERF_WINDOW_MOST || !turns || turns > PERF_BUFFERS_MOST)
		return rpwi_cli_fail(RPW_ERR_INVALID, PERF_NAME,
			"a client asked for an unknown job (operation %llu, %llu bytes, "
			"%llu messages)",
			(unsigned long long)op, (unsigned long long)size, (unsigned long long)n);
	uint64_t buffers = (verify ? window : size > LARGE ? FEW_LARGE : FEW) + turns;
	if ((buffers + 2) * (size + 8192) > MEMORY_MOST)
		return rpwi_cli_fail(RPW_ERR_LIMIT, PERF_NAME,
			"a client asked for a job that takes more than %llu GiB: use a smaller "
			"--window",
			MEMORY_MOST >> 30);
	*j = (struct perf_job){.op = (enum perf_op)op,
		.mode = (enum perf_mode)mode,
		.size = size,
		.n = n,
		.window = window,
		.buffers = turns,
		.seed = le64toh(q->seed),
		.verify = verify,
		.malloc = le64toh(q->flags) & FLAG_MALLOC};
	return 0;
}

static int job_server(struct perf_side *s, const struct request_wire *q)
{
	struct answer_wire answer = {0};
	char finish_byte;
	s->got = s->wrong = s->checked = 0;
	s->closed = false;
	int refused = job_accept(q, &s->job);
	refused = refused ? refused : buffers_make(s);
	refused = refused ? refused : key_unpack(s, q->key, q->key_len);
	refused = refused ? refused : key_pack(s, answer.key, &answer.key_len);
	answer.status = (int64_t)htole64((uint64_t)(int64_t)refused);
	int rc = now_send(s, &answer, sizeof(answer), TAG_READY);
	if (rc || refused)
		return rc;
	rc = runs[s->job.op][s->job.mode].server(s);
	rc = rc ? rc : now_recv(s, &finish_byte, 1, TAG_FINISH);
	if (rc)
		return rc;
	check_after(s);
	answer = (struct answer_wire){.checked = htole64(s->checked), .wrong = htole64(s->wrong)};
	return now_send(s, &answer, sizeof(answer), TAG_RESULT);
}

/* Who asks next? Looked at rather than received: a receive that is complete at once does not say
 * from whom. NULL: nobody for a while. */
static rpw_endpoint *next_to_ask(struct perf_side *s)
{
	rpw_completion what = RPW_COMPLETION_INIT;
	for (unsigned turn = 0; turn < 2; turn++) {
		while (rpw_context_progress(s->c) > 0)
			;
		if (rpw_probe(s->c, NULL, TAG_REQUEST, ~0ull, &what) == RPW_OK)
			return what.from;
		if (!turn)
			doze(s->c, SERVER_LOOKS_MS);
	}
	return NULL;
}

/* false: nothing more to do. */
static bool serve_one(struct server *v, bool once)
{
	struct perf_side *s = v->s;
	struct request_wire q = {0};
	s->ep = next_to_ask(s);
	if (s->ep) {
		int rc = now_recv(s, &q, sizeof(q), TAG_REQUEST);
		s->closed = false;
		if (!rc && le64toh(q.op) == OP_DISTANCE && le32toh(q.version) == VERSION)
			rc = distance_server(s);
		else
			rc = rc ? rc : job_server(s, &q);
		buffers_free(s);
		if (rc && !rpw_endpoint_user(s->ep)) {
			/* out of step with us: its client shall see that */
			fprintf(stderr, PERF_NAME ": %s: %s\n", rpw_status_name(rc),
				rpw_last_error());
			rpw_endpoint_set_user(s->ep, s);
		}
	}
	s->ep = NULL;
	close_the_gone(v);
	return !once || !v->had_one || v->clients;
}

int rpwi_perf_serve(const char *address, const char *transport, bool once, int ready_fd)
{
	struct server v = {0};
	rpw_listener *l;
	if (side_make(transport, &v.s) || !v.s)
		return CLI_FAILED;
	int rc = rpw_listener_create(v.s->c, address, on_accept, &v, &l);
	if (rc) {
		rpwi_perf_close(v.s);
		return rpwi_cli_fail(CLI_FAILED, PERF_NAME, "%s: %s: %s", address,
			rpw_status_name(rc), rpw_last_error());
	}
	if (ready_fd >= 0)
		dprintf(ready_fd, "%d\n", rpw_listener_port(l));
	else {
		printf("listening on port %d; on the other side: ropeway perf THIS_HOST:%d\n",
			rpw_listener_port(l), rpw_listener_port(l));
		fflush(stdout);
	}
	while (serve_one(&v, once))
		;
	rpw_listener_destroy(l);
	rpwi_perf_close(v.s);
	return CLI_OK;
}
