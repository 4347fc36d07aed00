/* SPDX-License-Identifier: BSD-3-Clause */
/* checked.c - see checked.h. A table of the requests that the program holds, by address. */
#include "msg/checked.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/hash.h"
#include "check/sum.h"

enum { BUCKETS = 1024, FIRST_ID = 2001 };

struct held {
	struct held *next;
	const rpw_request *r;
	const rpw_context *c;
	struct rpwi_site at;
	uint32_t sum;
	bool summed;
};
static struct held *held[BUCKETS]; /* under RPWI_LOCK_CHECK */

/* Loans that were sent, by address, as they were then. */
struct sent {
	struct sent *next;
	const void *data;
	size_t len;
	struct rpwi_site at;
	uint32_t sum;
};
static struct sent *sent[BUCKETS]; /* under RPWI_LOCK_CHECK */

void checked_init(void)
{
	rpwi_check_first_id = FIRST_ID;
	rpwi_check_init();
}

static struct held **place_of(const rpw_request *r)
{
	struct held **at = &held[rpwi_mix(0, (uintptr_t)r) >> 32 & (BUCKETS - 1)];
	while (*at && (*at)->r != r)
		at = &(*at)->next;
	return at;
}

static uint32_t crc(uint32_t sum, const void *data, size_t len)
{
	return (uint32_t)crc32_z(sum, data, len);
}

/* Memory of a GPU is not the processor's to read. */
static bool sum(const rpw_request *r, uint32_t *out)
{
	bool reads = r->kind == REQ_SEND || r->kind == REQ_OBJECT || r->kind == REQ_AM,
	     puts = r->kind == REQ_RMA && r->xfer == &r->one && r->one.is_put;
	*out = 0;
	if ((!reads && !puts) || r->gpu)
		return false;
	if (puts)
		*out = check_sum(crc, 0, r->one.local, r->len);
	else if (r->iovcnt == 1)
		*out = check_sum(crc, 0, r->buf, r->len);
	for (int i = 0; r->iovcnt > 1 && i < r->iovcnt; i++)
		*out = check_sum(crc, *out, r->iov[i].iov_base, r->iov[i].iov_len);
	return true;
}

void checked_begins(const rpw_request *r)
{
	struct held *h = calloc(1, sizeof(*h));
	if (!rpwi_check_lock()) {
		free(h);
		return;
	}
	struct held **at = place_of(r), *old = *at;
	if (old)
		*at = old->next;
	if (h) {
		*h = (struct held){*at, r, r->c, rpwi_check_site, 0, false};
		h->summed = rpwi_check_wants(RPWI_RULE_MSG_BUFFER) && sum(r, &h->sum);
		*at = h;
	}
	rpwi_check_unlock();
	free(old);
}

void checked_ends(const rpw_request *r)
{
	uint32_t now;
	if (!rpwi_check_lock())
		return;
	struct held *h = *place_of(r);
	if (h && h->summed && r->done.status == RPW_OK && sum(r, &now) && now != h->sum) {
		struct rpwi_finding f = {.rule = RPWI_RULE_MSG_BUFFER,
			.has_memory = true,
			.addr = (uintptr_t)r->buf,
			.len = r->len};
		rpwi_finding_site(&f, "posted here", &h->at);
		rpwi_check_say(&f,
			"%s of %zu bytes with tag 0x%llx: the bytes were other ones when it was "
			"posted than now that it is done",
			proto_of(r)->name, r->len, (unsigned long long)r->tag);
	}
	if (h)
		h->summed = false;
	rpwi_check_unlock();
}

void checked_gone(const rpw_request *r)
{
	if (!rpwi_check_lock())
		return;
	struct held **at = place_of(r), *h = *at;
	if (h)
		*at = h->next;
	rpwi_check_unlock();
	free(h);
}

void checked_thread(const rpw_context *c, pid_t other, pid_t self)
{
	if (!rpwi_check_lock())
		return;
	struct rpwi_finding f = {.rule = RPWI_RULE_MSG_THREAD};
	rpwi_finding_site(&f, "called here", &rpwi_check_site);
	rpwi_check_say(&f,
		"thread %d calls context %s while thread %d is inside rpw_context_progress of it",
		(int)self, RPWI_AT(c), (int)other);
	rpwi_check_unlock();
}

static struct sent **sent_at(const void *data)
{
	struct sent **at = &sent[rpwi_mix(0, (uintptr_t)data) >> 32 & (BUCKETS - 1)];
	while (*at && (*at)->data != data)
		at = &(*at)->next;
	return at;
}

void checked_loan_sent(const void *data, size_t len)
{
	struct sent *s = malloc(sizeof(*s));
	if (!rpwi_check_lock()) {
		free(s);
		return;
	}
	if (s) {
		struct sent **at = sent_at(data);
		*s = (struct sent){*at, data, len, rpwi_check_site, check_sum(crc, 0, data, len)};
		*at = s;
	}
	rpwi_check_unlock();
}

void checked_loan_taken(const void *data)
{
	if (!rpwi_check_lock())
		return;
	struct sent **at = sent_at(data), *s = *at;
	if (s) {
		*at = s->next;
		struct rpwi_finding f = {.rule = RPWI_RULE_MSG_LOAN,
			.has_memory = true,
			.addr = (uintptr_t)data,
			.len = s->len};
		rpwi_finding_site(&f, "sent here", &s->at);
		if (check_sum(crc, 0, data, s->len) != s->sum)
			rpwi_check_say(&f,
				"a loan of %zu bytes was sent, and has other bytes now that its "
				"memory is free again",
				s->len);
	}
	rpwi_check_unlock();
	free(s);
}

void checked_loans_gone(const void *pool, size_t len)
{
	if (!rpwi_check_lock())
		return;
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct sent **at = &sent[i]; *at;) {
			struct sent *s = *at;
			if ((uintptr_t)s->data - (uintptr_t)pool >= len) {
				at = &s->next;
				continue;
			}
			*at = s->next;
			free(s);
		}
	rpwi_check_unlock();
}

void checked_loans_left(unsigned n, size_t bytes)
{
	if (!rpwi_check_lock())
		return;
	struct rpwi_finding f = {.rule = RPWI_RULE_MSG_LOANS_LEFT};
	rpwi_finding_site(&f, "the endpoint is destroyed here", &rpwi_check_site);
	rpwi_check_say(&f, "%u loan%s (%zu bytes) of an endpoint %s neither sent nor returned", n,
		rpwi_plural(n), bytes, n == 1 ? "was" : "were");
	rpwi_check_unlock();
}

void checked_context_ends(const rpw_context *c)
{
	const struct held *first = NULL;
	unsigned n = 0;
	if (!rpwi_check_lock())
		return;
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct held *h = held[i]; h; h = h->next)
			if (h->c == c && h->r->held) {
				n++;
				first = h;
			}
	if (n) {
		struct rpwi_finding f = {.rule = RPWI_RULE_MSG_LEAK};
		rpwi_finding_site(&f, "one of them, posted here", &first->at);
		rpwi_finding_site_when(
			&f, "the context is destroyed here", &rpwi_check_site, RPWI_SITE_AFTER);
		rpwi_check_say(&f,
			"%u request%s of the context %s never given to rpw_request_destroy", n,
			rpwi_plural(n), n == 1 ? "was" : "were");
	}
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct held **at = &held[i]; *at;) {
			struct held *h = *at;
			if (h->c != c) {
				at = &h->next;
				continue;
			}
			*at = h->next;
			free(h);
		}
	rpwi_check_unlock();
}
