/* SPDX-License-Identifier: BSD-3-Clause */
/* side.h - one side of `ropeway perf`, as its four files share it.
 *
 * side.c    its memory, patterns, waiting, what callbacks count
 * jobs.c    the jobs: messages and waits of both sides, where the clock is read
 * lend.c    those of loaned messages, and of views of others
 * client.c  the side that decides, and makes the figures
 * serve.c   the side that answers
 *
 * The client asks for a job in a control message with its remote key; the server answers with its
 * own; the job runs; FINISH and RESULT end it. A job sends most messages from one buffer into one
 * buffer, as other programs that measure do, and a few, spread over the job, from buffers of their
 * own whose patterns no other message has: these are checked after the clock has stopped (of an
 * active message, whose data lives only during the handler, words here and there are checked at
 * once). With `verify` each message has its own pattern, and all of it is checked.
 *
 * Waiting is polling, since that is what is measured; but a side that has polled in vain for
 * SPIN_NS goes to sleep, and after PERF_DEADLINE_MS gives up. */
#ifndef ROPEWAY_CLI_PERF_SIDE_H
#define ROPEWAY_CLI_PERF_SIDE_H

#include <endian.h>

#include "cli/perf/perf.h"

enum {
	MAGIC = 0x72707066, /* "rppf" */
	VERSION = 6,
	FLAG_VERIFY = 1,
	FLAG_MALLOC = 2,
	FLAG_TOUCH = 4,
	SPIN_NS = 5000000,
	FEW = 8, /* messages that are checked, unless all are */
	FEW_LARGE = 2,
	LARGE = 1 << 20,
	LAT_MOST = 1 << 20, /* round trips of one job: each keeps its time until the job ends */
	CLIENTS_MAX = 64,   /* of a server */
	AM_ID = 17,
	PERF_FILLED = 8191,
	SERVER_LOOKS_MS = 200, /* for clients that have gone */
};
#define MEMORY_MOST (5ull << 30) /* that a job may ask of a server, for each kind of buffer */
#define LOANS_MOST (8ull << 30)  /* of each endpoint; pages are there when they are written to */
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
	char *out, *in;                    /* of our own */
	rpw_memory *memory;                /* what the peer writes and reads */
	char *registered;                  /* where it is, with --malloc */
	rpw_memory *sending;               /* where `out` is; NULL: malloc'ed */
	rpw_rkey *key;                     /* the peer's */
	rpw_request **flight, **flight_in; /* under way, or NULL */
	uint64_t got, last_ns; /* active messages and notifications; when something came last */
	uint64_t checked, wrong;
	uint32_t *ticks; /* of each round trip */
	rpw_view *view;  /* those that are kept */
	void **filled;   /* PERF_FILLED: addresses of loans that are */
	uint64_t sum;    /* of what was read, so that it is */
};

/* ---- side.c ---- */
/* A context with what counts; an endpoint is the caller's to make. A negative status. */
int perf_side_make(const char *transport, struct perf_side **out);
void perf_on_close(rpw_endpoint *ep, int status, void *side);
/* What s->job needs; a negative status. */
int perf_buffers_make(struct perf_side *s);
void perf_buffers_free(struct perf_side *s);
void perf_fill(const struct perf_job *j, char *buf, uint64_t message, bool from_client);
/* every: 8 checks all of it, more a part of it; the last bytes always. */
void perf_check(
	struct perf_side *s, const char *buf, uint64_t message, bool from_client, uint64_t every);
/* The same from a byte on, a multiple of 8. */
void perf_check_from(struct perf_side *s, const char *buf, uint64_t message, bool from_client,
	uint64_t every, uint64_t from);
/* After the clock: those with buffers of their own. */
void perf_check_few(struct perf_side *s, const char *base, bool from_client);
/* Memory of a loan that the library hands out for the first time gets PERF_PATTERN. */
enum { PERF_PATTERN = 1 };
void perf_fill_once(struct perf_side *s, char *data);
/* The processor's own clock. */
uint64_t rpwi_perf_ticks(void);
/* A request under way: poll, then sleep. Frees it. */
int perf_wait(struct perf_side *s, rpw_request *r);
/* Until so many active messages or notifications of this job have come. */
int perf_until_got(struct perf_side *s, uint64_t target);
/* Nothing to poll for a while: sleep until the context has something to do. */
void perf_doze(rpw_context *c, int ms);
int perf_send(struct perf_side *s, const void *buf, size_t len, uint64_t tag);
int perf_recv(struct perf_side *s, void *buf, size_t len, uint64_t tag);
int perf_key_pack(struct perf_side *s, uint8_t *key, uint64_t *len);
int perf_key_unpack(struct perf_side *s, const uint8_t *key, uint64_t len);

/* ---- jobs.c ---- */
/* This side of s->job, from when both are ready; and what it still has to look at then. */
int perf_job_run(struct perf_side *s);
/* Before it; the clock does not run yet. */
int perf_warm_up(struct perf_side *s);
void perf_job_check(struct perf_side *s);

/* ---- lend.c: loaned messages, and views ---- */
void perf_loans_check(struct perf_side *s);
int perf_loan_lat(struct perf_side *s);
int perf_loan_send_many(struct perf_side *s);
int perf_loan_recv_many(struct perf_side *s);
/* Every byte. */
void perf_read(struct perf_side *s, const void *data, uint64_t bytes);
/* An ordinary message, where it lies; and that it was. */
int perf_view_post(struct perf_side *s, uint64_t i, rpw_request **f);
void perf_view_came(struct perf_side *s, uint64_t i);

/* ---- what the jobs do between two looks at the clock ---- */

static inline bool perf_one_sided(const struct perf_job *j)
{
	return j->op == PERF_PUT || j->op == PERF_GET;
}

/* Which buffer a message has: 0 the plain one (or one of several in turn), else one of its own for
 * as long as that matters. */
static inline uint64_t perf_slot(const struct perf_side *s, uint64_t message)
{
	const struct perf_job *j = &s->job;
	if (j->verify)
		return 1 + message % RPWI_MAX(j->window, 1u);
	if (!(message & ((1ull << s->few_shift) - 1)))
		return 1 + (message >> s->few_shift);
	uint64_t turn = RPWI_LIKELY(j->buffers == 1) ? 0 : message % j->buffers;
	return turn ? s->slots + 1 + turn : 0; /* behind those of their own */
}

/* Views that a receiver keeps. */
static inline uint64_t perf_views(const struct perf_side *s)
{
	return s->job.op == PERF_VIEW ? s->job.window : s->job.buffers;
}

static inline char *perf_buffer(const struct perf_side *s, char *base, uint64_t slot)
{
	return base + slot * s->pitch;
}

/* The message's bytes to send; its pattern is its slot's, unless each message has one. */
static inline const char *perf_outgoing(struct perf_side *s, uint64_t message)
{
	uint64_t slot = perf_slot(s, message);
	char *b = perf_buffer(s, s->out, slot);
	if (s->job.verify)
		perf_fill(&s->job, b, message + 1, s->client);
	else if (RPWI_UNLIKELY(s->job.touch) && (!slot || slot > s->slots) &&
		 (s->job.op == PERF_TAG || s->job.op == PERF_VIEW))
		memset(b, (int)message, s->job.size);
	return b;
}

/* After message i has arrived: check it now where its buffer will be used again. */
static inline void perf_arrived(struct perf_side *s, char *base, uint64_t message)
{
	if (s->job.verify)
		perf_check(
			s, perf_buffer(s, base, perf_slot(s, message)), message + 1, !s->client, 8);
}

static inline int perf_finish(struct perf_side *s, rpw_request **f)
{
	rpw_request *r = *f;
	if (!r)
		return 0;
	*f = NULL;
	int rc = rpw_request_test(r, NULL);
	if (rc == RPW_IN_PROGRESS)
		return perf_wait(s, r);
	rpw_request_destroy(r);
	return rc;
}

static inline void perf_tick(struct perf_side *s, uint64_t i, uint64_t *last)
{
	uint64_t now = rpwi_perf_ticks(), took = now - *last;
	s->ticks[i] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
	*last = now;
}

/* A call that may have posted. */
static inline int perf_posted(int rc) { return rc == RPW_IN_PROGRESS ? 0 : rc; }

#endif
