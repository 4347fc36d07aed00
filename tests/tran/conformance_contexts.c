/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance_contexts.c - many endpoints, several contexts, one process, another user. */
#include "conformance.h"
#include "lib/users.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Many endpoints between two contexts: each has its own frames, in any order of use. */
static void many_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	uint64_t which = (uint64_t)(uintptr_t)e->arg;
	REQUIRE(head_len == 8 && body_len == 100 && head_right(head, 8, which) &&
			pattern_holds_from(body, 100, which, 8),
		"endpoint %llu", (unsigned long long)which);
}
static void case_many(struct side *s)
{
	enum { MANY = 200, FRAMES = 20 };
	static struct end e[MANY];
	uint8_t text[108];
	for (uint64_t i = 0; i < MANY; i++) {
		e[i] = (struct end){.frame = many_frame, .arg = (void *)(uintptr_t)i};
		REQUIRE(pair_connect(s, &e[i]), "endpoint %llu: %s", (unsigned long long)i,
			e[i].why);
	}
	for (int f = 0; f < FRAMES; f++)
		for (uint64_t i = 0; i < MANY; i++) {
			pattern_fill(text, sizeof text, i);
			head_fill(text, 8, i);
			REQUIRE(pair_send(&e[i], text, 8, text + 8, 100));
		}
	for (int i = 0; i < MANY; i++)
		REQUIRE(pair_until_count(s, &e[i].frames, FRAMES), "endpoint %d has %llu", i,
			(unsigned long long)e[i].frames);
	REQUIRE(pair_sync(s));
	for (int i = 0; i < MANY; i++)
		s->ops->ep_close(e[i].ep);
	REQUIRE(pair_sync(s));
}

/* One context with endpoints to many others: all are heard, however many there are, and each end is
 * told to its own endpoint only. */
struct other {
	struct side side;
	struct end end;
};
static void contexts_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	uint64_t which = (uint64_t)(uintptr_t)e->arg;
	REQUIRE(head_len == 16 && head_right(head, 16, which) &&
			pattern_holds_from(body, body_len, which, 16),
		"context %llu", (unsigned long long)which);
}
enum { CONTEXTS = 40 };

/* One waits for one of them; all progress meanwhile, since the other side may wait for another. */
static void contexts_round(struct side *s, struct other *o, uint64_t end_ns)
{
	if (!s->which)
		s->ops->progress(s->t);
	for (int i = 0; s->which && i < CONTEXTS; i++)
		if (o[i].side.t)
			s->ops->progress(o[i].side.t);
	sched_yield();
	REQUIRE(rpwi_now_ns() < end_ns, "waited too long");
}

static void contexts_until(
	struct side *s, struct other *o, const uint64_t *count, uint64_t at_least)
{
	uint64_t end_ns = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	while (*count < at_least)
		contexts_round(s, o, end_ns);
}

static void contexts_sync(struct side *s, struct other *o)
{
	uint64_t end_ns = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	char c = 's';
	REQUIRE(pair_say(s, &c, 1));
	while (recv(s->talk, &c, 1, MSG_DONTWAIT) != 1)
		contexts_round(s, o, end_ns);
}

static void contexts_send(struct side *s, struct other *o, uint64_t which, size_t len)
{
	uint8_t text[600];
	struct iovec iov = {text + 16, len};
	uint64_t end_ns = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	int rc;
	pattern_fill(text, sizeof text, which);
	head_fill(text, 16, which);
	while ((rc = s->ops->send(o[which].end.ep, text, 16, &iov, 1, len)) == RPWI_LATER)
		contexts_round(s, o, end_ns);
	REQUIRE(!rc, "context %llu: %d, %s", (unsigned long long)which, rc, o[which].end.why);
}

static void case_contexts(struct side *s)
{
	enum { FRAMES = 60 };
	struct other *o = calloc(CONTEXTS, sizeof *o);
	uint8_t a[TRAN_HANDLE_MAX], b[TRAN_HANDLE_MAX];
	for (uint64_t i = 0; i < CONTEXTS; i++) {
		size_t len, their_len;
		o[i].side = *s;
		struct side *mine = &o[i].side;
		if (s->which)
			REQUIRE(!s->ops->open(s->t->up, &s->facts, &mine->t));
		o[i].end = (struct end){
			.side = mine, .frame = contexts_frame, .arg = (void *)(uintptr_t)i};
		REQUIRE(!s->ops->ep_make(mine->t,
			&(struct tran_control){.peer = &s->peer_facts,
				.active = s->which == 0,
				.secret = pair_secret()},
			&o[i].end, &o[i].end.ep, a, &len));
		REQUIRE(pair_say(mine, a, len) && pair_hear(mine, b, sizeof b, &their_len) &&
			!s->ops->ep_start(o[i].end.ep, b, their_len, PAIR_DEADLINE_MS));
		REQUIRE(pair_until(mine, &o[i].end.is_ready) && !o[i].end.status,
			"context %llu: %s", (unsigned long long)i, o[i].end.why);
	}
	for (uint64_t f = 0; f < FRAMES; f++)
		for (uint64_t i = 0; i < CONTEXTS; i++) {
			if (f % 3 == 0 && i % 4)
				continue; /* some are quiet for a while */
			contexts_send(s, o, i, f * 8 % 500);
			s->ops->progress(o[i].side.t);
		}
	for (uint64_t i = 0; i < CONTEXTS; i++)
		contexts_until(s, o, &o[i].end.frames, i % 4 ? FRAMES - FRAMES / 3 : FRAMES);
	contexts_sync(s, o);
	/* Every other context goes. */
	for (uint64_t i = 0; i < CONTEXTS && s->which; i += 2) {
		s->ops->ep_close(o[i].end.ep);
		s->ops->close(o[i].side.t);
		o[i].side.t = NULL;
	}
	for (uint64_t i = 0; i < CONTEXTS && !s->which; i += 2) {
		REQUIRE(pair_until(s, &o[i].end.is_failed) && o[i].end.status < 0,
			"the end of context %llu", (unsigned long long)i);
		s->ops->ep_close(o[i].end.ep);
	}
	REQUIRE(pair_sync(s));
	for (uint64_t i = 1; i < CONTEXTS; i += 2)
		contexts_send(s, o, i, 99);
	for (uint64_t i = 1; i < CONTEXTS; i += 2) {
		contexts_until(s, o, &o[i].end.frames, FRAMES - FRAMES / 3 + 1);
		REQUIRE(!o[i].end.is_failed, "context %llu: %s", (unsigned long long)i,
			o[i].end.why);
	}
	contexts_sync(s, o);
	for (uint64_t i = 1; i < CONTEXTS; i += 2) {
		s->ops->ep_close(o[i].end.ep);
		if (s->which)
			s->ops->close(o[i].side.t);
	}
	free(o);
}

static unsigned count_entries(const char *path)
{
	unsigned n = 0;
	DIR *d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* What AddressSanitizer holds back of freed memory; it finds leaks itself. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUARANTINE_KIB (256 * 1024)
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define QUARANTINE_KIB (256 * 1024)
#endif
#ifndef QUARANTINE_KIB
#define QUARANTINE_KIB 0
#endif

static long resident_kib(void)
{
	long pages = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Contexts and endpoints, again and again: what was there before is there after, descriptors,
 * memory, names in /dev/shm. */
static void case_leaks(struct side *s)
{
	enum { ROUNDS = 60 };
	static uint8_t region[1 << 16], local[1 << 16];
	unsigned fds = 0, names = 0;
	long kib = 0;
	s->ops->close(s->t);
	s->t = NULL;
	for (int round = 0; round < ROUNDS; round++) {
		if (round == 10) {
			fds = count_entries("/proc/self/fd");
			names = count_entries("/dev/shm");
			kib = resident_kib();
		}
		REQUIRE(!pair_open(s));
		struct end e[4] = {{.done = rma_done}, {.done = rma_done}, {.done = rma_done},
			{.done = rma_done}};
		struct tran_mem *m, *own;
		struct tran_desc d;
		size_t len;
		for (int i = 0; i < 4; i++)
			REQUIRE(pair_connect(s, &e[i]), "round %d: %s", round, e[i].why);
		REQUIRE(!pair_memory(s, s->t, sizeof region, TRAN_READ | TRAN_WRITE, &m) &&
			!s->ops->mem->add(s->t, region, sizeof region, TRAN_READ, &own));
		REQUIRE(pair_say(s, &m->desc, sizeof m->desc) && pair_hear(s, &d, sizeof d, &len));
		for (int i = 0; i < 4; i++)
			REQUIRE(rma(&e[i], i % 2, &d, 0, local, sizeof local) == RPW_OK);
		REQUIRE(pair_sync(s));
		for (int i = 0; i < 4; i++)
			s->ops->ep_close(e[i].ep);
		pair_memory_free(s, s->t, m);
		s->ops->mem->del(s->t, own);
		REQUIRE(pair_sync(s)); /* neither may meet the other's next context early */
		s->ops->close(s->t);
		s->t = NULL;
	}
	REQUIRE(count_entries("/proc/self/fd") == fds, "%u descriptors, %u before",
		count_entries("/proc/self/fd"), fds);
	/* others use it, too */
	REQUIRE(count_entries("/dev/shm") <= names + 2, "%u names in /dev/shm, %u before",
		count_entries("/dev/shm"), names);
	REQUIRE(resident_kib() < kib + 2048 + QUARANTINE_KIB, "%ld KiB resident, %ld before",
		resident_kib(), kib);
}

/* As another user, who may not look into the other process: the ways that need no permission. Root
 * only. */
static void case_no_permission(struct side *s)
{
	if (!users_can_be_others("the ways that need no permission"))
		return;
	s->ops->close(s->t);
	s->t = NULL;
	setenv("ROPEWAY_SHARE_PORT", "1", 1); /* two users, one address */
	REQUIRE(!setresuid(65534 - (uid_t)s->which, 65534 - (uid_t)s->which,
			65534 - (uid_t)s->which) &&
		!prctl(PR_SET_DUMPABLE, 0));
	REQUIRE(pair_sync(s) && !pair_open(s));
	conformance_run("rma", s);
	rma_case(s, true, true);
	conformance_run("rma-stops", s);
	conformance_run("rma-mixed", s);
	conformance_run("access", s);
	conformance_run("close", s);
}

/* Both contexts are progressed by one thread. By the clock: what is done by threads of the
 * transport takes its time on a busy machine. */
#define BOTH_UNTIL(x) \
	for (uint64_t end_ns = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS; \
		!(x) && rpwi_now_ns() < end_ns;) { \
		s->ops->progress(ta); \
		s->ops->progress(tb); \
	}

/* An endpoint to one's own context, and to another context of the same process. */
static void case_same_process(struct side *s)
{
	struct side second = *s;
	uint8_t a[TRAN_HANDLE_MAX], b[TRAN_HANDLE_MAX], local[300];
	size_t a_len, b_len;
	if (s->ops->open(s->t->up, &s->facts, &second.t))
		REQUIRE(false, "a second context");
	for (int own = 0; own < 2; own++) {
		struct tran *ta = s->t, *tb = own ? s->t : second.t;
		struct stream to_x = {.seed = 2000000}, to_y = {.seed = 1000000};
		struct end x = {.side = s, .frame = stream_frame, .done = rma_done, .arg = &to_x},
			   y = {.side = &second,
				   .frame = stream_frame,
				   .done = rma_done,
				   .arg = &to_y};
		/* as boot sees it: our own facts have no address, and interfaces but loopback need
		 * not be there */
		struct tran_facts peer = s->facts;
		snprintf(peer.address, sizeof peer.address, "127.0.0.1");
		REQUIRE(!s->ops->ep_make(ta,
				&(struct tran_control){
					.peer = &peer, .active = true, .secret = pair_secret()},
				&x, &x.ep, a, &a_len) &&
			!s->ops->ep_make(tb,
				&(struct tran_control){
					.peer = &peer, .active = false, .secret = pair_secret()},
				&y, &y.ep, b, &b_len));
		REQUIRE(!s->ops->ep_start(x.ep, b, b_len, 5000) &&
			!s->ops->ep_start(y.ep, a, a_len, 5000));
		BOTH_UNTIL(x.is_ready && y.is_ready)
		REQUIRE(x.is_ready && y.is_ready && !x.status && !y.status, "%s %s", x.why, y.why);
		for (uint64_t n = 0; n < 500; n++) {
			stream_send(&x, 1000000, n);
			stream_send(&y, 2000000, n);
			BOTH_UNTIL(x.frames > n && y.frames > n)
			REQUIRE(x.frames == n + 1 && y.frames == n + 1);
		}
		struct tran_mem *m;
		REQUIRE(!pair_memory(s, tb, 4096, TRAN_READ | TRAN_WRITE, &m));
		pattern_fill(m->addr, 4096, 9);
		struct result r = {0};
		REQUIRE(!s->ops->rma->transfer(
			x.ep, false, &m->desc, 33, local, sizeof local, NULL, &r));
		BOTH_UNTIL(r.done)
		REQUIRE(r.done && !r.status && pattern_holds_from(local, sizeof local, 9, 33));
		pair_memory_free(s, tb, m);
		s->ops->ep_close(x.ep);
		BOTH_UNTIL(y.is_failed)
		REQUIRE(y.is_failed);
		s->ops->ep_close(y.ep);
	}
	s->ops->close(second.t);
}

const struct conformance_case context_cases[] = {
	{"many", case_many, false},
	{"contexts", case_contexts, false},
	{"leaks", case_leaks, false},
	{"same-process", case_same_process, false},
	{"no-permission", case_no_permission, false},
	{0},
};
