/* SPDX-License-Identifier: BSD-3-Clause */
/* side.c - what both sides of a job have: see side.h. */
#include "cli/perf/side.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "cli/cli.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* ---- patterns: a word depends on the job, the message, its direction and its place ---- */

static uint64_t word_of(const struct perf_job *j, uint64_t message, bool from_client, uint64_t at)
{
	return htole64(rpwi_scatter(j->seed + message * 2 + from_client) +
		       rpwi_scatter(at + 1) * 0x9e3779b97f4a7c15ull);
}

void perf_fill(const struct perf_job *j, char *buf, uint64_t message, bool from_client)
{
	for (uint64_t at = 0; at < j->size; at += 8) {
		uint64_t w = word_of(j, message, from_client, at / 8);
		memcpy(buf + at, &w, RPWI_MIN(j->size - at, (uint64_t)8));
	}
}

/* every: 8 checks all of it, more a part of it; the last bytes always. */
void perf_check_from(struct perf_side *s, const char *buf, uint64_t message, bool from_client,
	uint64_t every, uint64_t from)
{
	const struct perf_job *j = &s->job;
	bool wrong = false;
	for (uint64_t at = from; buf && at < j->size; at += every) {
		uint64_t w = word_of(j, message, from_client, at / 8);
		wrong |= memcmp(buf + at, &w, RPWI_MIN(j->size - at, (uint64_t)8)) != 0;
	}
	if (buf && j->size > RPWI_MAX(from, (uint64_t)8)) {
		uint64_t at = (j->size - 1) / 8 * 8, w = word_of(j, message, from_client, at / 8);
		wrong |= memcmp(buf + at, &w, j->size - at) != 0;
	}
	s->checked++;
	s->wrong += wrong;
}

void perf_check(
	struct perf_side *s, const char *buf, uint64_t message, bool from_client, uint64_t every)
{
	perf_check_from(s, buf, message, from_client, every, 0);
}

/* ---- loans ---- */

/* Memory that the library hands out for the first time is filled; of the rest it is known where it
 * is. */
void perf_fill_once(struct perf_side *s, char *data)
{
	uint64_t at = rpwi_scatter((uintptr_t)data) % PERF_FILLED;
	for (unsigned n = 0; n < PERF_FILLED; n++, at = at + 1 == PERF_FILLED ? 0 : at + 1) {
		if (s->filled[at] == data)
			return;
		if (!s->filled[at])
			break;
	}
	s->filled[at] = data;
	perf_fill(&s->job, data, PERF_PATTERN, s->client);
}

static bool views_make(struct perf_side *s)
{
	s->view = calloc(perf_views(s), sizeof(*s->view));
	for (uint64_t i = 0; s->view && i < perf_views(s); i++)
		s->view[i] = (rpw_view)RPW_VIEW_INIT;
	return s->view;
}

static int loans_make(struct perf_side *s)
{
	const struct perf_job *j = &s->job;
	/* As many as can be out, of which two windows are under way: others would be filled while
	 * the clock runs. One window is enough where there is no memory for two. */
	uint64_t window = j->mode == PERF_BW ? j->window : 0, got = 0,
		 fewest = perf_views(s) + 2 + window, n = fewest + window;
	rpw_loaned *l = calloc(n, sizeof(*l));
	int rc = 0;
	s->filled = calloc(PERF_FILLED, sizeof(*s->filled));
	if (!l || !views_make(s) || !s->filled)
		rc = RPW_ERR_NO_MEMORY;
	for (; got < n && !rc; got++) {
		l[got] = (rpw_loaned)RPW_LOANED_INIT;
		rc = rpw_loan(s->ep, j->size, 0, 0, &l[got]);
		if (rc) {
			rc = rc == RPW_ERR_LIMIT && got >= fewest ? RPW_OK : rc;
			break;
		}
		perf_fill_once(s, l[got].data);
	}
	while (got)
		rpw_loan_return(&l[--got]);
	free(l);
	return rc;
}

static void loans_free(struct perf_side *s)
{
	for (uint64_t i = 0; s->view && i < perf_views(s); i++)
		if (s->view[i].data) /* a second release would be told as the last error */
			rpw_view_release(&s->view[i]);
	free(s->view);
	free(s->filled);
	s->view = NULL;
	s->filled = NULL;
}

/* ---- buffers ---- */

static uint64_t few(const struct perf_job *j) { return j->size > LARGE ? FEW_LARGE : FEW; }

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

void perf_buffers_free(struct perf_side *s)
{
	loans_free(s);
	rpw_rkey_destroy(s->key);
	rpw_memory_destroy(s->memory);
	free(s->registered);
	if (!s->sending)
		free(s->out);
	rpw_memory_destroy(s->sending);
	free(s->in);
	free(s->flight);
	free(s->flight_in);
	free(s->ticks);
	s->key = NULL;
	s->memory = s->sending = NULL;
	s->out = s->in = s->registered = NULL;
	s->flight = s->flight_in = NULL;
	s->ticks = NULL;
}

/* What messages are sent from: memory that the library allocated, as ucx_perftest has its
 * buffers. */
static char *sending_make(struct perf_side *s, uint64_t bytes)
{
	if (s->job.malloc || perf_one_sided(&s->job))
		return pages(bytes);
	if (rpw_memory_allocate(s->c, bytes, RPW_REMOTE_READ, &s->sending))
		return NULL;
	return memset(rpw_memory_address(s->sending), 0x5a, bytes);
}

int perf_buffers_make(struct perf_side *s)
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
	if (j->op == PERF_LOAN)
		s->pitch = 64; /* of buffers that it has no use for */
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
	if (j->op == PERF_LOAN)
		return loans_make(s);
	if (j->op == PERF_VIEW && !views_make(s))
		return RPW_ERR_NO_MEMORY;
	for (uint64_t slot = 1; slot <= s->slots && !j->verify; slot++)
		perf_fill(j, perf_buffer(s, s->out, slot), slot, s->client);
	if (!perf_one_sided(j))
		return 0;
	unsigned access = RPW_REMOTE_WRITE | RPW_REMOTE_READ;
	if (j->malloc && !(s->registered = pages(bytes)))
		return RPW_ERR_NO_MEMORY;
	int rc = j->malloc ? rpw_memory_register(s->c, s->registered, bytes, RPW_MEMORY_HOST,
				     access, &s->memory)
			   : rpw_memory_allocate(s->c, bytes, access, &s->memory);
	if (rc)
		return rc;
	char *m = rpw_memory_address(s->memory);
	memset(m, 0, bytes);
	for (uint64_t slot = 0; slot <= s->slots + 1 && j->op == PERF_GET && !s->client; slot++)
		perf_fill(j, perf_buffer(s, m, slot), slot, false);
	return 0;
}

static uint64_t pattern_of(const struct perf_side *s, uint64_t message, uint64_t slot)
{
	return s->job.verify ? message + 1 : slot;
}

/* After the clock: those with buffers of their own. */
void perf_check_few(struct perf_side *s, const char *base, bool from_client)
{
	const struct perf_job *j = &s->job;
	for (uint64_t message = 0; message < j->n && !j->verify; message += 1ull << s->few_shift) {
		uint64_t slot = perf_slot(s, message);
		perf_check(s, base + slot * s->pitch, slot, from_client, 8);
	}
}

/* ---- waiting ---- */

uint64_t rpwi_perf_ticks(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return rpwi_now_ns();
#endif
}

static int gone(const struct perf_side *s)
{
	if (!s->closed)
		return 0;
	return s->closed_status < 0 ? s->closed_status : RPW_ERR_PEER_GONE;
}

/* A request under way: poll, then sleep. Frees it. */
int perf_wait(struct perf_side *s, rpw_request *r)
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

/* Nothing to poll for a while: sleep until the context has something to do. */
void perf_doze(rpw_context *c, int ms)
{
	struct pollfd p = {.fd = rpw_context_fd(c), .events = POLLIN};
	if (rpw_context_arm(c) == 0)
		poll(&p, 1, ms);
}

/* Until so many active messages or notifications of this job have come. */
int perf_until_got(struct perf_side *s, uint64_t target)
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
			perf_doze(s->c, 100);
	}
	return 0;
}

int perf_send(struct perf_side *s, const void *buf, size_t len, uint64_t tag)
{
	rpw_request *r;
	int rc = rpw_send(s->ep, buf, len, tag, &r);
	return rc == RPW_IN_PROGRESS ? perf_wait(s, r) : rc;
}

int perf_recv(struct perf_side *s, void *buf, size_t len, uint64_t tag)
{
	rpw_request *r;
	int rc = rpw_recv(s->c, s->ep, buf, len, tag, ~0ull, &r);
	return rc == RPW_IN_PROGRESS ? perf_wait(s, r) : rc;
}

int perf_key_pack(struct perf_side *s, uint8_t *key, uint64_t *len)
{
	int rc = s->memory ? rpw_rkey_pack(s->memory, key, RPW_RKEY_BYTES_MAX) : 0;
	*len = htole64(rc > 0 ? (uint64_t)rc : 0);
	return rc < 0 ? rc : 0;
}

int perf_key_unpack(struct perf_side *s, const uint8_t *key, uint64_t len)
{
	len = le64toh(len);
	if (!perf_one_sided(&s->job))
		return 0;
	return len > RPW_RKEY_BYTES_MAX ? RPW_ERR_PROTOCOL
					: rpw_rkey_unpack(s->ep, key, len, &s->key);
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
	slot = s->slots ? perf_slot(s, message) : 0;
	if (slot)
		perf_check(s, data, pattern_of(s, message, slot), !s->client,
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

void perf_on_close(rpw_endpoint *ep, int status, void *arg)
{
	struct perf_side *s = arg;
	rpw_endpoint_set_user(ep, s); /* marks it for the server, which may not close it here */
	if (ep == s->ep) {
		s->closed = true;
		s->closed_status = status;
	}
}

/* ---- made, and closed ---- */

int perf_side_make(const char *transport, struct perf_side **out)
{
	struct perf_side *s = calloc(1, sizeof(*s));
	rpw_context_options o = {
		.size = sizeof(o), .transports = transport, .loan_bytes_max = LOANS_MOST};
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

void rpwi_perf_close(struct perf_side *s)
{
	if (!s)
		return;
	perf_buffers_free(s);
	rpw_context_destroy(s->c);
	free(s);
}
