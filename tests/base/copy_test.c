/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy that is seen upwards. Its stores are taken one by one: the destination faults, the
 * handler lets one instruction through, and what has changed is what that instruction wrote. So the
 * order is checked without chance, memcpy's too, which must fail. Then a thread polls, as NCCL's
 * kernels and programs of RDMA WRITE do. */
#include "lib/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/base.h"
#include "base/copy.h"

typedef void copy_fn(void *dst, const void *src, size_t n);
static void by_memcpy(void *dst, const void *src, size_t n) { memcpy(dst, src, n); }
static copy_fn *volatile plain = by_memcpy; /* so that the compiler does not know what it is */

static struct rng rng;
static uint64_t draw(void) { return rng_next(&rng); }

static uint8_t *room(size_t n)
{
	uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	return p;
}

static void the_bytes_are_those_of_memcpy(void **state)
{
	enum { MOST = 1200, AROUND = 256 };
	static uint8_t src[MOST + AROUND], dst[MOST + 2 * AROUND], want[MOST + 2 * AROUND];
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i * 31 + i / 249 + 1);
	for (size_t to = 0; to < 144; to += to < 20 ? 1 : 7)
		for (size_t from = 0; from < 17; from += 5)
			for (size_t n = 0; n < MOST; n += n < 300 ? 1 : 61) {
				memset(dst, 0xee, sizeof(dst));
				memset(want, 0xee, sizeof(want));
				memcpy(want + to, src + from, n);
				rpwi_copy_up(dst + to, src + from, n);
				assert_memory_equal(dst, want, sizeof(dst));
			}
}

static void every_distance_within_a_page_is_copied(void **state)
{
	enum { LEN = 3 * RPWI_STRING_MIN, PAGES = 4 * 4096 };
	uint8_t *src = room(PAGES), *dst = room(PAGES);
	unsigned slow = 0;
	for (size_t i = 0; i < LEN + 100; i++)
		src[i] = (uint8_t)draw();
	for (size_t from = 0; from < 100; from += 33)
		for (size_t to = 0; to < 4096; to += to < 140 ? 1 : 97)
			for (size_t n = RPWI_STRING_MIN - 1; n <= LEN; n = n * 2 + 1) {
				size_t ahead = (to - from) % 4096;
				bool is = n >= RPWI_STRING_MIN && ahead && ahead < 32;
				memset(dst, 0xee, PAGES);
				assert_int_equal(rpwi_copy_is_slow(dst + to, src + from, n), is);
				rpwi_copy(dst + to, src + from, n);
				assert_memory_equal(dst + to, src + from, n);
				assert_true(!to || dst[to - 1] == 0xee);
				assert_int_equal(dst[to + n], 0xee);
				slow += is;
			}
	assert_true(slow > 100);
}

static void there_is_always_a_way(void **state)
{
	static uint8_t buffer[4096 + 64 + RPWI_COPY_WAY_MORE];
	for (unsigned i = 0; i < 1000000; i++) {
		uintptr_t at = draw() % 4096, near = draw() % 256 - 128;
		uint8_t *b = buffer + draw() % 64;
		const void *src = (const void *)(i % 2 ? (uintptr_t)b + near : at << 12 | at),
			   *dst = (const void *)((uintptr_t)src + draw() % 256 - 128);
		uint8_t *by = rpwi_copy_way(b, dst, src);
		assert_true(by >= b && by <= b + RPWI_COPY_WAY_MORE);
		assert_false(rpwi_copy_is_slow(by, src, RPWI_STRING_MIN));
		assert_false(rpwi_copy_is_slow(dst, by, RPWI_STRING_MIN));
	}
}

static void whole_lines_end_where_a_line_ends(void **state)
{
	const char *at = (const char *)(uintptr_t)(5 * RPWI_LINE);
	assert_int_equal(rpwi_whole_lines(at, 1000), 896);
	assert_int_equal(rpwi_whole_lines(at + 100, 1000), 28 + 896);
	assert_int_equal(rpwi_whole_lines(at + 100, 28), 28);
	assert_int_equal(rpwi_whole_lines(at + 100, 27), 27); /* no line ends here */
	assert_int_equal(rpwi_whole_lines(at, 4 * RPWI_LINE), 4 * RPWI_LINE);
}

#if defined(__x86_64__)

/* ---- store by store ---- */

enum { STORES_MAX = 20000, TRAP_FLAG = 0x100 };
struct store {
	size_t at, bytes;
};
static struct {
	uint8_t *dst, *before;
	size_t room;
	unsigned n;
	struct store store[STORES_MAX];
} seen;

/* past a sanitizer's */
extern int __sigaction(int signo, const struct sigaction *act, struct sigaction *old);

static void on_store(int signo, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	uint8_t *at = info->si_addr;
	if (at < seen.dst || at >= seen.dst + seen.room || seen.n == STORES_MAX)
		abort();
	seen.store[seen.n].at = (size_t)(at - seen.dst);
	mprotect(seen.dst, seen.room, PROT_READ | PROT_WRITE);
	u->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_step(int signo, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	struct store *s = &seen.store[seen.n++];
	size_t end = s->at;
	for (size_t i = s->at; i < RPWI_MIN(seen.room, s->at + 128); i++)
		if (seen.dst[i] != seen.before[i])
			end = i + 1;
	s->bytes = end - s->at;
	memcpy(seen.before + s->at, seen.dst + s->at, s->bytes);
	u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
	mprotect(seen.dst, seen.room, PROT_READ);
}

/* Every byte changes: what a store wrote is what differs afterwards. */
static void take(copy_fn *copy, size_t to, size_t from, size_t n)
{
	static struct sigaction segv, trap;
	struct sigaction fault = {.sa_sigaction = on_store, .sa_flags = SA_SIGINFO},
			 step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
	uint8_t *src = room(16384);
	for (size_t i = 0; i < 16384; i++)
		src[i] = (uint8_t)(i % 250 + 1);
	seen.room = 16384;
	seen.dst = room(seen.room);
	seen.before = room(seen.room);
	seen.n = 0;
	__sigaction(SIGSEGV, &fault, &segv);
	__sigaction(SIGTRAP, &step, &trap);
	mprotect(seen.dst, seen.room, PROT_READ);
	copy(seen.dst + to, src + from, n);
	__sigaction(SIGSEGV, &segv, NULL);
	__sigaction(SIGTRAP, &trap, NULL);
	assert_memory_equal(seen.dst + to, src + from, n);
	munmap(src, 16384);
	munmap(seen.dst, seen.room);
	munmap(seen.before, seen.room);
}

/* What is wrong with the stores of a copy to [to, to+n), or NULL. */
static const char *judge(size_t to, size_t n)
{
	size_t at = to, end = to + n;
	for (unsigned i = 0; i < seen.n; i++) {
		const struct store *s = &seen.store[i];
		size_t next = s->at + s->bytes;
		if (s->at != at || !s->bytes)
			return "not the bytes that follow those before";
		if (s->bytes > 16 || s->bytes & (s->bytes - 1) || s->at % s->bytes)
			return "more than 16 bytes, or not aligned to as many";
		if (s->bytes < 8 && s->at / 8 * 8 >= to && s->at / 8 * 8 + 8 <= end)
			return "a part of 8 aligned bytes";
		if (s->bytes > 8 && (next % RPWI_LINE == 0 || next == end))
			return "the last 8 bytes of a line, or of the message, with what is before "
			       "them";
		at = next;
	}
	return at == end ? NULL : "not to the end";
}

static void stores_go_upwards(void **state)
{
	static const size_t sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 96,
		120, 127, 128, 129, 136, 200, 255, 256, 257, 1000, 1024, 4096, 5003};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(sizes); i++)
		for (size_t to = 0; to<130; to += sizes[i]> 1000 ? 43 : i % 3 + 1) {
			take(rpwi_copy_up, to, draw() % 16, sizes[i]);
			if (judge(to, sizes[i]))
				fail_msg("%zu bytes to offset %zu, after %u stores: %s", sizes[i],
					to, seen.n, judge(to, sizes[i]));
		}
}

/* So the judge can fail. */
static void those_of_memcpy_do_not(void **state)
{
	unsigned wrong = 0;
	for (size_t n = 512; n <= 4096; n *= 2) {
		take(plain, 0, 0, n);
		wrong += judge(0, n) != NULL;
	}
	assert_int_equal(wrong, 4);
}

#endif

/* ---- seen by another thread ---- */

enum { WORDS_MAX = 8192 / 8 };
static struct {
	_Alignas(128) uint64_t dst[WORDS_MAX];
	_Alignas(64) _Atomic uint64_t asked, checked;
	_Atomic size_t words;
	uint64_t wrong;
} shared;

static uint64_t look(size_t word) { return __atomic_load_n(&shared.dst[word], __ATOMIC_ACQUIRE); }

/* One place is polled, then all that lies before it has to be there: from the top down, which is
 * what was stored last. */
static void *poller(void *arg)
{
	for (uint64_t now = 1; now <= *(uint64_t *)arg; now++) {
		while (atomic_load(&shared.asked) != now)
			;
		size_t words = shared.words, at = draw() % 2 ? words - 1 : draw() % words;
		while (look(at) >> 32 != now)
			;
		for (size_t i = at; i--;)
			shared.wrong += look(i) >> 32 != now;
		atomic_store(&shared.checked, now);
	}
	return NULL;
}

static uint64_t polled(copy_fn *copy, uint64_t messages)
{
	static uint64_t src[WORDS_MAX];
	static const size_t sizes[] = {8, 128, 1024, 4096, 8192};
	pthread_t thread;
	memset(&shared, 0, sizeof(shared));
	pthread_create(&thread, NULL, poller, &messages);
	for (uint64_t now = 1; now <= messages; now++) {
		shared.words = sizes[now % RPWI_ARRAY_LEN(sizes)] / 8;
		for (size_t i = 0; i < shared.words; i++)
			src[i] = now << 32 | i;
		atomic_store(&shared.asked, now);
		copy(shared.dst, src, shared.words * 8);
		while (atomic_load(&shared.checked) != now)
			;
	}
	pthread_join(thread, NULL);
	return shared.wrong;
}

static void nothing_is_seen_before_what_lies_before_it(void **state)
{
	assert_int_equal(polled(rpwi_copy_up, test_rounds(3000)), 0);
}

int main(int argc, char **argv)
{
	rng.state = test_seed_any();
	if (argc > 1 && !strcmp(argv[1], "memcpy")) { /* by hand: does the poller see it? */
		printf("memcpy: %llu words were not there\n",
			(unsigned long long)polled(plain, 20000));
		return 0;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bytes_are_those_of_memcpy),
		cmocka_unit_test(every_distance_within_a_page_is_copied),
		cmocka_unit_test(there_is_always_a_way),
		cmocka_unit_test(whole_lines_end_where_a_line_ends),
#if defined(__x86_64__)
		cmocka_unit_test(stores_go_upwards),
		cmocka_unit_test(those_of_memcpy_do_not),
#endif
		cmocka_unit_test(nothing_is_seen_before_what_lies_before_it),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
