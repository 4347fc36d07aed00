/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_tran.c - figures of a raw transport between two processes on two cores, beside what those
 * cores can do bare: bench_tran [shm|tcp|verbs] [ENDPOINTS].
 *
 * Nothing is asserted. Each figure is the median of several runs, with the best, since other
 * programs may use the cores.
 */
#include "pair.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUNS = 41, HEAD = 24 }; /* many short runs: most fall between two interruptions */

static int the_side;

static void die(const char *what)
{
	fprintf(stderr, "side %d: %s\n", the_side, what);
	_exit(1);
}

static void pin(int nth)
{
	cpu_set_t have, want;
	sched_getaffinity(0, sizeof have, &have);
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &have) && nth-- == 0) {
			CPU_ZERO(&want);
			CPU_SET(c, &want);
			sched_setaffinity(0, sizeof want, &want);
			return;
		}
}

static int less(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void report(const char *what, double *v, const char *unit, bool more_is_better)
{
	qsort(v, RUNS, sizeof *v, less);
	if (!the_side)
		printf("%-44s %9.3f %-10s best %9.3f\n", what, v[RUNS / 2], unit,
			v[more_is_better ? RUNS - 1 : 0]);
}

/* ---- bare ---- */

struct bare {
	_Alignas(64) _Atomic uint64_t there;
	_Alignas(64) _Atomic uint64_t back;
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void bare_ping_pong(struct side *s, struct bare *b, bool pauses)
{
	enum { ROUNDS = 3000 };
	double us[RUNS];
	uint64_t n = atomic_load(&b->back); /* where the last one ended */
	pair_sync(s);
	for (int run = 0; run < RUNS; run++) {
		uint64_t began = rpwi_now_ns();
		for (int i = 0; i < ROUNDS; i++) {
			n++;
			_Atomic uint64_t *mine = s->which ? &b->back : &b->there,
					 *other = s->which ? &b->there : &b->back;
			if (!s->which)
				atomic_store_explicit(mine, n, memory_order_release);
			while (atomic_load_explicit(other, memory_order_acquire) != n)
				if (pauses)
					relax();
			if (s->which)
				atomic_store_explicit(mine, n, memory_order_release);
		}
		us[run] = (double)(rpwi_now_ns() - began) / ROUNDS / 2000;
	}
	report(pauses ? "the same, with a pause in the loop" : "bare cache-line ping-pong, one way",
		us, "us", false);
}

static void bare_memcpy(size_t len)
{
	uint8_t *a = malloc(len), *b = malloc(len);
	double gbs[RUNS];
	char what[64];
	pattern_fill(a, len, 1);
	memset(b, 1, len);
	for (int run = 0; run < RUNS; run++) {
		size_t rounds = ((size_t)8 << 20) / len + 1;
		uint64_t began = rpwi_now_ns();
		for (size_t i = 0; i < rounds; i++) {
			memcpy(b, a, len);
			__asm__ volatile("" ::: "memory");
		}
		gbs[run] = (double)rounds * (double)len / (double)(rpwi_now_ns() - began);
	}
	snprintf(what, sizeof what, "bare memcpy of %zu KiB", len >> 10);
	report(what, gbs, "GB/s", true);
	free(a);
	free(b);
}

/* ---- the transport ---- */

/* Bodies are copied out, as they are into a user's buffer. */
static void frame_count(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	static uint8_t buffer[65536];
	memcpy(buffer, body, RPWI_MIN(body_len, sizeof buffer));
	++*(uint64_t *)e->arg;
}

static void spin_until(struct side *s, const uint64_t *count, uint64_t at_least)
{
	while (*count < at_least)
		s->ops->progress(s->t);
}

static void send_now(struct end *e, const void *head, const void *body, size_t len)
{
	struct iovec iov = {(void *)body, len};
	int rc;
	while ((rc = e->side->ops->send(e->ep, head, HEAD, &iov, 1, len)) == RPWI_LATER)
		e->side->ops->progress(e->side->t);
	if (rc)
		die("send");
}

static void latency(struct side *s, struct end *e, uint64_t *count, size_t len)
{
	enum { ROUNDS = 2000 };
	double us[RUNS];
	char what[64];
	static uint8_t head[HEAD], body[65536];
	for (int run = 0; run < RUNS; run++) {
		uint64_t from = *count; /* before the other side can have gone on */
		pair_sync(s);
		uint64_t began = rpwi_now_ns();
		for (uint64_t i = 1; i <= ROUNDS; i++) {
			if (!s->which)
				send_now(e, head, body, len);
			spin_until(s, count, from + i);
			if (s->which)
				send_now(e, head, body, len);
		}
		us[run] = (double)(rpwi_now_ns() - began) / ROUNDS / 2000;
	}
	snprintf(what, sizeof what, "%zu-byte frame, one way", len);
	report(what, us, "us", false);
	pair_sync(s);
}

static void rate(struct side *s, struct end *ends, unsigned n, uint64_t *count, size_t len)
{
	const uint64_t frames = len > 8192 ? 3000 : len >= 1024 ? 10000 : 50000;
	double v[RUNS];
	char what[80];
	static uint8_t head[HEAD], body[65536];
	for (int run = 0; run < RUNS; run++) {
		uint64_t from = *count;
		pair_sync(s);
		uint64_t began = rpwi_now_ns();
		if (!s->which) {
			for (uint64_t i = 0, at = 0; i < frames; i++) {
				send_now(&ends[at], head, body, len);
				if (++at == n)
					at = 0;
			}
			spin_until(s, count, from + 1);
		} else {
			spin_until(s, count, from + frames);
			send_now(&ends[0], head, body, 8);
		}
		v[run] = (double)frames * 1000 / (double)(rpwi_now_ns() - began);
	}
	snprintf(what, sizeof what, "%zu-byte frames, %u endpoint%s, one direction", len, n,
		n > 1 ? "s" : "");
	report(what, v, "M/s", true);
	if (len >= 1024) {
		for (int i = 0; i < RUNS; i++)
			v[i] *= (double)len / 1000;
		report("  the same", v, "GB/s", true);
	}
	pair_sync(s);
}

struct window {
	uint64_t done;
	int status;
};
static void rma_done(struct end *e, void *cookie, int status)
{
	struct window *w = cookie;
	w->done++;
	if (status)
		w->status = status;
}

/* len bytes at a time, `window` under way; the peer progresses, or sleeps in the kernel. */
static void transfer(struct side *s, struct end *e, bool is_put, bool mapped, bool peer_idle,
	size_t len, unsigned window)
{
	double v[RUNS];
	struct tran_mem *m = NULL;
	struct tran_desc d;
	size_t got, total = RPWI_MAX(len * 2, len > 4096 ? (size_t)16 << 20 : (size_t)2 << 20),
		    room = len * window;
	uint8_t *local =
		mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pattern_fill(local, room, 3);
	char what[96];
	if (s->which) {
		if (mapped ? s->ops->mem->alloc(s->t, room, TRAN_READ | TRAN_WRITE, &m)
			   : s->ops->mem->add(s->t, local, room, TRAN_READ | TRAN_WRITE, &m))
			die("mem_add");
		pattern_fill(m->addr, room, 4);
		pair_say(s, &m->desc, sizeof m->desc);
	} else {
		pair_hear(s, &d, sizeof d, &got);
	}
	for (int run = 0; run < RUNS + 1; run++) { /* the first warms up, and is not counted */
		uint64_t frames = *(uint64_t *)e->arg;
		pair_sync(s);
		if (s->which) {
			char c;
			if (peer_idle) {
				if (read(s->talk, &c, 1) != 1)
					die("read");
			} else {
				spin_until(s, e->arg, frames + 1);
			}
			continue;
		}
		if (peer_idle)
			usleep(1000);
		struct window w = {0};
		uint64_t posted = 0, n = total / len, began = rpwi_now_ns();
		while (w.done < n) {
			while (posted < n && posted - w.done < window) {
				size_t at = posted % window * len;
				if (s->ops->rma->transfer(
					    e->ep, is_put, &d, at, local + at, len, NULL, &w))
					die("rma");
				posted++;
			}
			s->ops->progress(s->t);
		}
		if (w.status)
			die("rma refused");
		if (run)
			v[run - 1] = (double)total / (double)(rpwi_now_ns() - began);
		if (peer_idle)
			pair_say(s, "d", 1);
		else
			send_now(e, (uint8_t[HEAD]){0}, "done", 4);
	}
	snprintf(what, sizeof what, "%s %zu KiB, %u at a time%s%s", is_put ? "put" : "get",
		len >> 10, window, mapped ? ", mapped" : "", peer_idle ? ", peer idle" : "");
	report(what, v, "GB/s", true);
	pair_sync(s);
	if (m)
		s->ops->mem->del(s->t, m);
	munmap(local, room);
	pair_sync(s);
}

/* A message of len bytes as msg moves it, eager (a frame) and fetched (a frame that announces it, a
 * get, a frame that says so): where the two cross is eager_max. */
static void crossing(struct side *s, struct end *e, uint64_t *count, size_t len)
{
	enum { ROUNDS = 500 };
	double eager[RUNS], fetched[RUNS];
	char what[64];
	static uint8_t head[HEAD], body[1 << 17], here[1 << 17];
	struct tran_mem *m;
	struct tran_desc d;
	size_t got;
	if (s->ops->mem->add(s->t, body, sizeof body, TRAN_READ, &m))
		die("mem_add");
	pair_say(s, &m->desc, sizeof m->desc);
	pair_hear(s, &d, sizeof d, &got);
	for (int run = 0; run < RUNS; run++) {
		for (int fetch = len > e->ep->limits.frame_max; fetch < 2; fetch++) {
			struct window w = {0};
			uint64_t from = *count;
			pair_sync(s);
			uint64_t began = rpwi_now_ns();
			for (uint64_t i = 1; i <= ROUNDS; i++) {
				if (!s->which) {
					send_now(e, head, body, fetch ? 32 : len);
					spin_until(s, count, from + i);
					continue;
				}
				spin_until(s, count, from + i);
				if (fetch) {
					if (s->ops->rma->transfer(
						    e->ep, false, &d, 0, here, len, NULL, &w))
						die("rma");
					spin_until(s, &w.done, i);
				}
				send_now(e, head, body, 8);
			}
			(fetch ? fetched : eager)[run] =
				(double)(rpwi_now_ns() - began) / ROUNDS / 1000;
		}
	}
	snprintf(what, sizeof what, "%zu bytes and an answer, eager", len);
	if (len <= e->ep->limits.frame_max)
		report(what, eager, "us", false);
	snprintf(what, sizeof what, "%zu bytes and an answer, fetched", len);
	report(what, fetched, "us", false);
	pair_sync(s);
	s->ops->mem->del(s->t, m);
}

/* The receiver sleeps in poll. */
static void waking(struct side *s, struct end *e, uint64_t *count)
{
	enum { ROUNDS = 50 };
	double us[RUNS];
	static uint8_t head[HEAD];
	for (int run = 0; run < RUNS; run++) {
		uint64_t from = *count;
		pair_sync(s);
		uint64_t began = rpwi_now_ns();
		for (uint64_t i = 1; i <= ROUNDS; i++) {
			if (!s->which)
				send_now(e, head, head, 8);
			while (*count < from + i) {
				pair_sleep(s, 1000);
				s->ops->progress(s->t);
			}
			if (s->which)
				send_now(e, head, head, 8);
		}
		us[run] = (double)(rpwi_now_ns() - began) / ROUNDS / 2000;
	}
	report("8-byte frame, one way, both sleep", us, "us", false);
	pair_sync(s);
}

static double resident_kib(void)
{
	long pages = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1024;
}

int main(int argc, char **argv)
{
	const struct tran_ops *ops = NULL;
	const char *name = argc > 1 ? argv[1] : "shm";
	unsigned many = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
	for (size_t i = 0; tran_all[i]; i++)
		if (!strcmp(tran_all[i]->name, name))
			ops = tran_all[i];
	if (!ops || !many) {
		fprintf(stderr, "usage: bench_tran [TRANSPORT] [ENDPOINTS]\n");
		return 2;
	}
	struct bare *bare =
		mmap(NULL, sizeof *bare, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct side s;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (pair_fork(&s, ops))
		die("fork");
	the_side = s.which;
	pin(s.which);
	alarm(300);
	bare_ping_pong(&s, bare, false);
	bare_ping_pong(&s, bare, true);
	if (!s.which)
		for (size_t len = 64 << 10; len <= 8 << 20; len <<= 7)
			bare_memcpy(len);
	if (pair_open(&s))
		die("open");
	uint64_t count = 0;
	struct end *ends = calloc(many, sizeof *ends);
	for (unsigned i = 0; i < many; i++)
		ends[i] = (struct end){.frame = frame_count, .done = rma_done, .arg = &count};
	if (!pair_connect(&s, &ends[0]))
		die(ends[0].why);
	if (!s.which)
		printf("path: %s\n", ends[0].ep->path);
	latency(&s, &ends[0], &count, 8);
	latency(&s, &ends[0], &count, 256);
	latency(&s, &ends[0], &count, 4096);
	waking(&s, &ends[0], &count);
	for (size_t len = 1024; len <= 131072; len *= 2)
		crossing(&s, &ends[0], &count, len);
	rate(&s, ends, 1, &count, 8);
	rate(&s, ends, 1, &count, 256);
	rate(&s, ends, 1, &count, 1024);
	rate(&s, ends, 1, &count, RPWI_MIN(ends[0].ep->limits.frame_max, (size_t)32768));
	static const size_t sizes[] = {4096, 65536, 8 << 20};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(sizes); i++) {
		transfer(&s, &ends[0], false, false, false, sizes[i], 1);
		transfer(&s, &ends[0], false, false, false, sizes[i], 4);
		transfer(&s, &ends[0], true, false, false, sizes[i], 4);
	}
	transfer(&s, &ends[0], false, false, true, 65536, 1);
	transfer(&s, &ends[0], false, false, true, 8 << 20, 1);
	transfer(&s, &ends[0], true, true, false, 65536, 1);
	transfer(&s, &ends[0], true, true, false, 8 << 20, 1);
	transfer(&s, &ends[0], true, true, true, 8 << 20, 1);
	double kib = resident_kib();
	uint64_t began = rpwi_now_ns();
	for (unsigned i = 1; i < many; i++)
		if (!pair_connect(&s, &ends[i]))
			die(ends[i].why);
	if (!s.which)
		printf("%-44s %9.3f ms\n", "connecting the other endpoints",
			(double)(rpwi_now_ns() - began) / 1e6);
	if (!s.which && many > 1)
		printf("%-44s %9.3f KiB\n", "resident memory of each of them",
			(resident_kib() - kib) / (many - 1));
	rate(&s, ends, many, &count, 8);
	for (unsigned i = 0; i < many; i++)
		s.ops->ep_close(ends[i].ep);
	pair_sync(&s);
	pair_close(&s);
	if (!s.which)
		waitpid(s.child, NULL, 0);
	return 0;
}
