/* SPDX-License-Identifier: BSD-3-Clause */
/* polled.c - a receive buffer that is looked at while it is filled, as NCCL's kernels do with LL
 * and LL128, which never wait for test: of each 128-byte line the last 8 bytes are a flag, and once
 * it is new, the first 120 are read. A thread of the receiver's does that, whatever the plugin does
 * meanwhile. The receive comes first, and then the send. */
#include <pthread.h>
#include <sched.h>

#include "base/hash.h"
#include "ncclnet/check/conform_priv.h"

enum {
	LINE_WORDS = 16,
	MESSAGES = 100,
	LARGE = 256 * 1024,
	LARGE_SHARE = 10,
	SPINS = 1 << 16,
	TAG = 5
};

struct polled {
	struct conform *c;
	struct side own; /* the thread's */
	const uint64_t *at;
	size_t words;
	_Atomic uint64_t asked, checked;
	_Atomic bool stop;
	uint64_t lines; /* that were not there when their flag was */
	size_t wrong;   /* the first word that was not */
};

/* Differs in each place and with each message, in the lower half and in the upper. */
static uint64_t word_of(uint64_t message, size_t i) { return rpwi_scatter(message << 24 ^ i) | 1; }

__attribute__((no_sanitize("thread"))) static uint64_t look(const struct polled *p, size_t i)
{
	return __atomic_load_n(&p->at[i], __ATOMIC_ACQUIRE);
}

static void check_line(struct polled *p, uint64_t message, size_t flag)
{
	uint64_t new = word_of(message, flag), seen[LINE_WORDS - 1];
	size_t first = flag + 1 - LINE_WORDS;
	bool wrong = false;
	for (unsigned spins = 1; look(p, flag) != new; spins++)
		if (spins % SPINS == 0) {
			if (p->stop)
				return;
			sched_yield();
		}
	/* at once: the missing bytes may be there in some nanoseconds */
	for (size_t i = 0; i < LINE_WORDS - 1; i++)
		seen[i] = look(p, first + i);
	for (size_t i = 0; i < LINE_WORDS - 1; i++)
		if (seen[i] != word_of(message, first + i)) {
			p->wrong = p->lines || wrong ? p->wrong : first + i;
			wrong = true;
		}
	p->lines += wrong;
}

/* All lines, upwards, as they come; of some messages another one first, so that later ones are
 * waited for, too. */
static void *poller(void *arg)
{
	struct polled *p = arg;
	for (uint64_t message = 1; !p->stop; message++) {
		for (unsigned spins = 1; p->asked != message && !p->stop; spins++)
			if (spins % SPINS == 0)
				sched_yield();
		size_t lines = p->words / LINE_WORDS;
		if (p->stop || !lines)
			break;
		if (message % 4 == 0)
			check_line(
				p, message, (rpwi_scatter(message) % lines + 1) * LINE_WORDS - 1);
		for (size_t line = 1; line <= lines && !p->stop; line++)
			check_line(p, message, line * LINE_WORDS - 1);
		p->checked = message;
	}
	return NULL;
}

static bool finish(struct side *s, struct end *e, size_t bytes, void *request)
{
	int done = 0, sizes[NCCL_NET_GROUP_MAX] = {0};
	unsigned looks = 0;
	while (!done) {
		if (!side_result(s, end_test(s, request, &done, sizes), "test of %zu bytes", bytes))
			return false;
		if (!done && !s->idle(s, &looks))
			return side_fail(s, "%zu bytes are not done", bytes);
	}
	void *data = e->memory;
	return e->sends || end_received(s, e, request, 1, &data, &bytes);
}

static bool send_one(
	struct conform *c, struct end *e, uint64_t message, size_t bytes, bool receive_first)
{
	void *request;
	uint64_t *to = (uint64_t *)(void *)e->memory;
	for (size_t i = 0; i < bytes / 8; i++)
		to[i] = word_of(message, i);
	if (receive_first && !side_meet_spinning(c->s))
		return false;
	if (!end_post_all(c->s, e, e->memory, bytes, TAG, &request))
		return false;
	return (receive_first || side_meet_spinning(c->s)) && finish(c->s, e, bytes, request);
}

static bool receive_one(struct conform *c, struct end *e, struct polled *p, uint64_t message,
	size_t bytes, bool receive_first)
{
	void *request;
	unsigned looks = 0;
	p->words = bytes / 8;
	if (!receive_first && !side_meet_spinning(c->s))
		return false;
	p->asked = message;
	if (!end_post_all(c->s, e, e->memory, bytes, TAG, &request) ||
		(receive_first && !side_meet_spinning(c->s)) || !finish(c->s, e, bytes, request))
		return false;
	while (p->checked != message)
		if (!c->s->idle(c->s, &looks))
			return conform_fail(
				c, "%zu bytes are said to be done, and are not there", bytes);
	return true;
}

/* Of one size: each second message is sent before its receive. */
static bool size_run(
	struct conform *c, struct end *e, struct polled *p, size_t bytes, uint64_t *message)
{
	uint64_t n = bytes > LARGE ? MESSAGES / LARGE_SHARE : MESSAGES;
	n = c->o->messages ? c->o->messages : n;
	for (uint64_t i = 0; i < 2 * n; i++) {
		++*message;
		side_step(c->s);
		if (!(e->sends ? send_one(c, e, *message, bytes, i % 2)
			       : receive_one(c, e, p, *message, bytes, i % 2)))
			return false;
	}
	if (!p->lines)
		return true;
	return conform_fail(c,
		"of %llu messages of %zu bytes %llu lines showed their last 8 bytes before the "
		"others (first at byte %zu): with LL128 NCCL computes with what "
		"was there before; NCCL_PROTO=^LL128 "
		"avoids it",
		2ull * n, bytes, (unsigned long long)p->lines, p->wrong * 8);
}

void case_polled(struct conform *c)
{
	static const size_t sizes[] = {
		128, 512, 1024, 4096, 39936, 128 * 1024, 512 * 1024, 1 << 20, 4 << 20};
	struct end e = {0};
	struct polled p = {.c = c};
	pthread_t thread;
	uint64_t message = 0;
	bool ok = true;
	size_t most = RPWI_MIN(c->o->size_most, sizes[RPWI_ARRAY_LEN(sizes) - 1]);
	if (!end_open(c->s, &e, 0, most))
		return;
	bool looks = !e.sends;
	p.at = (const uint64_t *)(const void *)e.memory;
	if (looks && pthread_create(&thread, NULL, poller, &p)) {
		conform_fail(c, "no thread to look at the buffer");
		return;
	}
	for (unsigned i = 0; ok && i < RPWI_ARRAY_LEN(sizes) && sizes[i] <= most; i++)
		ok = size_run(c, &e, &p, sizes[i], &message);
	p.stop = true;
	if (looks)
		pthread_join(thread, NULL);
	if (ok && side_meet(c->s))
		end_close(c->s, &e);
}
