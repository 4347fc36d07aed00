/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.c - bytes moved between two processes by the least that does it: what a lane is held
 * against.
 *
 *   -m double  a ring of shared memory: one side copies in, the other copies out
 *   -m single  the same ring, but the receiver uses the bytes where they are: it loads each line
 *   -m readv   process_vm_readv from a process that sleeps
 *
 * Messages use -b buffers in turn on each side (1): with 1 they stay in the caches. The ring has 16
 * slots of 8 KiB. Each message carries its number, which the receiver checks. The
 * figures are the receiver's: bytes a second, and, of readv, the median of one call.
 */
#include <stdatomic.h>
#include <sys/uio.h>

#include "bench.h"

enum { SLOTS = 16, SLOT_BYTES = 8192, LINE_BYTES = 64, CALLS_MAX = 200000, SPARE_S = 20 };

enum mode { MODE_DOUBLE, MODE_SINGLE, MODE_READV, MODES };
static const char *const mode_name[MODES] = {"double", "single", "readv"};

struct ring {
	_Alignas(LINE_BYTES) _Atomic uint64_t filled; /* slots, ever */
	_Alignas(LINE_BYTES) _Atomic uint64_t emptied;
	_Alignas(LINE_BYTES) atomic_bool over;
	_Alignas(4096) uint8_t slot[SLOTS][SLOT_BYTES];
};

struct plan {
	enum mode mode;
	unsigned bytes, buffers;
	uint64_t run_ns;
	int cpu[2]; /* of the sender, or the process that is read; of the receiver */
};

struct figure {
	uint64_t messages, elapsed_ns;
	double median_us;
};

static uint8_t *buffers(const struct plan *p)
{
	size_t bytes = (size_t)p->bytes * p->buffers;
	/* no page faults while the clock runs */
	return memset(memory(bytes, MAP_PRIVATE), 0x5a, bytes);
}

static uint8_t *buffer_of(uint8_t *all, const struct plan *p, uint64_t number)
{
	return all + number % p->buffers * p->bytes;
}

static void check(const uint8_t *message, uint64_t number)
{
	uint64_t got;

	memcpy(&got, message, sizeof got);
	if (got == number)
		return;
	fprintf(stderr, "copy: message %llu carries the number %llu\n", (unsigned long long)number,
		(unsigned long long)got);
	exit(1);
}

static void send_all(struct ring *r, const struct plan *p)
{
	uint8_t *all = buffers(p);
	uint64_t filled = 0;

	for (uint64_t number = 0;; number++) {
		uint8_t *from = buffer_of(all, p, number);
		memcpy(from, &number, sizeof number);
		for (size_t at = 0; at < p->bytes; at += SLOT_BYTES) {
			size_t n = p->bytes - at < SLOT_BYTES ? p->bytes - at : SLOT_BYTES;

			while (filled - atomic_load_explicit(&r->emptied, memory_order_acquire) ==
				SLOTS)
				if (atomic_load_explicit(&r->over, memory_order_relaxed))
					return;
			memcpy(r->slot[filled % SLOTS], from + at, n);
			atomic_store_explicit(&r->filled, ++filled, memory_order_release);
		}
	}
}

static uint64_t use_in_place(const uint8_t *slot, size_t n)
{
	uint64_t sum = 0;

	for (size_t at = 0; at + sizeof sum <= n; at += LINE_BYTES)
		sum += *(const volatile uint64_t *)(const void *)(slot + at);
	return sum;
}

static void receive_one(
	struct ring *r, const struct plan *p, uint8_t *all, uint64_t number, uint64_t *emptied)
{
	uint8_t *to = buffer_of(all, p, number);
	for (size_t at = 0; at < p->bytes; at += SLOT_BYTES) {
		size_t n = p->bytes - at < SLOT_BYTES ? p->bytes - at : SLOT_BYTES;
		const uint8_t *slot = r->slot[*emptied % SLOTS];

		while (atomic_load_explicit(&r->filled, memory_order_acquire) == *emptied)
			;
		if (p->mode == MODE_DOUBLE)
			memcpy(to + at, slot, n);
		else
			use_in_place(slot, n);
		if (!at)
			check(p->mode == MODE_DOUBLE ? to : slot, number);
		atomic_store_explicit(&r->emptied, ++*emptied, memory_order_release);
	}
}

static struct figure receive_all(struct ring *r, const struct plan *p)
{
	uint8_t *to = buffers(p);
	uint64_t emptied = 0, number = 0, begin, looks = 65536 / p->bytes + 1;
	struct figure f = {0};

	for (; number < looks; number++) /* warm */
		receive_one(r, p, to, number, &emptied);
	begin = now_ns();
	do {
		for (uint64_t i = 0; i < looks; i++)
			receive_one(r, p, to, number++, &emptied);
		f.messages += looks;
		f.elapsed_ns = now_ns() - begin;
	} while (f.elapsed_ns < p->run_ns);
	atomic_store_explicit(&r->over, true, memory_order_relaxed);
	return f;
}

/* The memory is at the same place in the child: it was made before the fork. */
static struct figure read_all(pid_t pid, uint8_t *from, const struct plan *p)
{
	uint64_t *call_ns = memory(CALLS_MAX * sizeof *call_ns, MAP_PRIVATE);
	uint8_t *to = buffers(p);
	uint64_t begin = now_ns(), before = begin;
	struct figure f = {0};
	unsigned n = 0, middle;

	while (f.elapsed_ns < p->run_ns) {
		struct iovec here = {buffer_of(to, p, f.messages), p->bytes},
			     there = {buffer_of(from, p, f.messages), p->bytes};
		uint64_t after;

		if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)p->bytes)
			die("process_vm_readv");
		check(here.iov_base, 0);
		after = now_ns();
		call_ns[n++ % CALLS_MAX] = after - before;
		before = after;
		f.messages++;
		f.elapsed_ns = after - begin;
	}
	n = n < CALLS_MAX ? n : CALLS_MAX;
	qsort(call_ns, n, sizeof *call_ns, compare_u64);
	middle = n / 2;
	f.median_us = (double)call_ns[middle] / 1000.0;
	return f;
}

static void parse(int argc, char **argv, struct plan *p)
{
	static const char usage[] = "[-m double|single|readv] [-s bytes] [-b buffers] [-t seconds] "
				    "[-c sender core,receiver core]";
	const char *mode = mode_name[MODE_DOUBLE];

	*p = (struct plan){.bytes = 65536, .buffers = 1, .run_ns = 200000000, .cpu = {-1, -1}};
	const struct flag flags[] = {{'m', TEXT, &mode}, {'s', NUMBER, &p->bytes},
		{'b', NUMBER, &p->buffers}, {'t', DURATION, &p->run_ns}, {'c', CPUS, p->cpu}, {0}};
	take_flags(argc, argv, flags, usage);
	while (p->mode < MODES && strcmp(mode, mode_name[p->mode]))
		p->mode++;
	need_usage(p->mode < MODES && p->bytes >= sizeof(uint64_t) && p->bytes <= 1u << 30 &&
			   p->buffers && p->buffers <= 1024 && p->run_ns,
		usage);
}

int main(int argc, char **argv)
{
	struct figure f;
	struct plan p;
	int status;

	parse(argc, argv, &p);
	struct ring *r = memory(sizeof *r, MAP_SHARED);
	uint8_t *source = buffers(&p);
	for (unsigned i = 0; i < p.buffers; i++)
		memset(buffer_of(source, &p, i), 0, sizeof(uint64_t));
	pid_t sender = child(p.cpu[0]);
	alarm((unsigned)(p.run_ns / 1000000000ull) + SPARE_S);
	if (!sender) {
		memset(source, 0, (size_t)p.bytes * p.buffers); /* pages of its own */
		if (p.mode == MODE_READV)
			for (;;)
				pause();
		send_all(r, &p);
		_exit(0);
	}
	pin(p.cpu[1]);
	if (p.mode == MODE_READV) {
		f = read_all(sender, source, &p);
		kill(sender, SIGKILL);
		waitpid(sender, &status, 0);
	} else {
		f = receive_all(r, &p);
		join_child(sender);
	}
	printf("{\"name\": \"copy\", \"mode\": \"%s\", \"bytes\": %u, \"messages\": %llu, "
	       "\"mib_per_s\": %.2f, \"median_us\": %.3f}\n",
		mode_name[p.mode], p.bytes, (unsigned long long)f.messages,
		(double)f.messages * (double)p.bytes / 1048576.0 / ((double)f.elapsed_ns / 1e9),
		f.median_us);
	return 0;
}
