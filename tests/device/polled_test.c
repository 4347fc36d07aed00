/* SPDX-License-Identifier: BSD-3-Clause */
/* polled_test.c - programs that look at their memory instead of asking for completions. A thread
 * polls as they do: the last byte of a message (ib_write_lat, HERD), the last 8 bytes of each
 * 128-byte line (NCCL's LL128), any word. Then all that lies before it has to be there.
 * TEST_ROUNDS: how many of each kind; a tenth as many of 1 MiB. */
#include <stdatomic.h>

#include <pthread.h>

#include "lib/test.h"
#include "pair.h"

enum { LINE_WORDS = 16 };
enum pattern { LAST_BYTE, LINES, ANY_WORD };

static struct {
	const uint8_t *at; /* the message, in the memory that is polled */
	size_t words;
	enum pattern pattern;
	_Alignas(64) _Atomic uint64_t asked, checked, until;
	uint64_t missing;
	struct rng rng;
} poll_;

/* Differs in each place, and the highest byte, which is stored last, with each message. */
static uint64_t word_of(uint64_t message, size_t i)
{
	return message << 56 | (message & 0xffffffff) << 24 | i;
}

static uint64_t look(size_t i)
{
	return __atomic_load_n((const uint64_t *)(const void *)poll_.at + i, __ATOMIC_ACQUIRE);
}

static void check(uint64_t message, size_t from, size_t to)
{
	for (size_t i = to; i-- > from;) /* what was stored last is looked at first */
		poll_.missing += look(i) != word_of(message, i);
}

static void poll_one(uint64_t message)
{
	size_t last = poll_.words - 1;
	if (poll_.pattern == LAST_BYTE) {
		const uint8_t *end = poll_.at + poll_.words * 8 - 1;
		while (__atomic_load_n(end, __ATOMIC_ACQUIRE) != (uint8_t)message)
			;
		check(message, 0, poll_.words);
		return;
	}
	if (poll_.pattern == ANY_WORD) {
		size_t at = rng_below(&poll_.rng, poll_.words);
		while (look(at) != word_of(message, at))
			;
		check(message, 0, at);
	}
	for (size_t flag = LINE_WORDS - 1; flag <= last; flag += LINE_WORDS) {
		while (look(flag) != word_of(message, flag))
			;
		check(message, flag + 1 - LINE_WORDS, flag);
	}
	while (look(last) != word_of(message, last))
		;
}

static void *poller(void *arg)
{
	for (uint64_t message = 1; message <= poll_.until; message++) {
		while (poll_.asked != message)
			;
		poll_one(message);
		poll_.checked = message;
	}
	return NULL;
}

static void post(struct pair *p, enum ibv_wr_opcode op, uint32_t len)
{
	if (op == IBV_WR_SEND)
		pair_recv(&p->b, 0, len, 1);
	assert_int_equal(pair_send(&p->a, op, 0, len, (uintptr_t)p->b.buf, p->b.mr->rkey), 0);
}

static void completed(struct pair *p, enum ibv_wr_opcode op)
{
	struct ibv_wc wc;
	assert_true(pair_poll(p->a.cq, &wc, 20000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	if (op == IBV_WR_SEND)
		assert_true(pair_poll(p->b.cq, &wc, 20000));
}

/* A READ's source was read by another thread before its completion came, by a packet: which TSan
 * does not follow. */
__attribute__((noinline, no_sanitize("thread"))) static void fill(uint64_t *from, uint64_t message)
{
	for (size_t i = 0; i < poll_.words; i++)
		from[i] = word_of(message, i);
}

/* Of each pattern, in turn. */
static void polled(enum ibv_wr_opcode op, enum ibv_mtu mtu, uint32_t bytes, uint64_t messages)
{
	struct pair p;
	pthread_t thread;
	pair_make_mtu(&p, mtu);
	bool reads = op == IBV_WR_RDMA_READ;
	uint64_t *from = (uint64_t *)(void *)(reads ? p.b.buf : p.a.buf);
	memset(p.a.buf, 0, PAIR_BUF);
	memset(p.b.buf, 0, PAIR_BUF);
	memset(&poll_, 0, sizeof(poll_));
	poll_.at = reads ? p.a.buf : p.b.buf;
	poll_.words = bytes / 8;
	poll_.until = messages;
	poll_.rng.state = test_seed_any();
	assert_int_equal(pthread_create(&thread, NULL, poller, NULL), 0);
	for (uint64_t message = 1; message <= messages; message++) {
		fill(from, message);
		poll_.pattern = (enum pattern)(message % 3);
		poll_.asked = message;
		post(&p, op, bytes);
		completed(&p, op);
		while (poll_.checked != message)
			;
	}
	pthread_join(thread, NULL);
	if (poll_.missing)
		print_error("%u bytes, MTU %d: of %llu messages %llu words were not there when "
			    "what lies behind them was\n",
			bytes, 128 << mtu, (unsigned long long)messages,
			(unsigned long long)poll_.missing);
	assert_int_equal(poll_.missing, 0);
	pair_free(&p);
}

static void all_sizes(enum ibv_wr_opcode op)
{
	static const uint32_t sizes[] = {8, 64, 128, 1024, 4096, 39936, 1 << 20};
	uint64_t messages = test_rounds(300);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		IN_CASE("bytes", sizes[i]);
		polled(op, IBV_MTU_4096, sizes[i],
			sizes[i] < 1 << 20 ? messages : (messages + 9) / 10);
		if (sizes[i] == 39936)
			polled(op, IBV_MTU_1024, sizes[i], messages);
	}
}

static void a_write_is_seen_upwards(void **state) { all_sizes(IBV_WR_RDMA_WRITE); }
static void a_send_is_seen_upwards_in_the_receive(void **state) { all_sizes(IBV_WR_SEND); }
static void a_read_is_seen_upwards(void **state) { all_sizes(IBV_WR_RDMA_READ); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_is_seen_upwards),
		cmocka_unit_test(a_send_is_seen_upwards_in_the_receive),
		cmocka_unit_test(a_read_is_seen_upwards),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
