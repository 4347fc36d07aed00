/* SPDX-License-Identifier: BSD-3-Clause */
/* alive_test.c - who is missed, and after how long (device/alive.h), in a world of the test's: one
 * peer on another host, time as it is told. */
#include "lib/test.h"
#include "device/alive.h"

enum { OWN = 5, PEER = 77, HELPER = 99 };
#define SECOND RPWI_NS_PER_S

static const struct rpwi_addr here = {.family = 4, .bytes = {10, 0, 0, 1}},
			      there = {.family = 4, .bytes = {10, 0, 0, 2}};
static struct {
	uint64_t now_ns, heard_ns;
	bool connected, answers, by_helper, peer_there;
	bool is_neighbor; /* the peer is on this host */
	uint64_t emptied;
	unsigned asked, ended;
	uint64_t silent_ns;
	struct rpwi_ask last;
} w;

static void each(void (*fn)(const struct alive_peer *p, void *arg), void *arg)
{
	const struct alive_peer p = {.local = &here,
		.remote = w.is_neighbor ? &here : &there,
		.slot = PEER,
		.seen = w.heard_ns,
		.heard_ns = w.heard_ns};
	if (w.connected)
		fn(&p, arg);
}
static bool is_here(const struct rpwi_addr *a) { return rpwi_addr_eq(a, &here); }
static bool is_own(unsigned slot) { return slot == OWN; }
static bool exists(unsigned slot) { return slot == OWN || (w.is_neighbor && w.peer_there); }
static uint64_t emptied(void) { return w.emptied; }
static uint16_t own_slot(void) { return OWN; }
static uint16_t helper_slot(bool *is_us)
{
	*is_us = false;
	return 0;
}
static void sent(const struct rpwi_addr *local, const struct rpwi_addr *remote, uint32_t dqpn,
	const uint8_t *mad)
{
	assert_int_equal(rpwi_ask_decode(mad, RPWI_MAD_LEN, &w.last), 0);
	w.asked++;
}
static unsigned gone(const struct alive_gone *g)
{
	assert_int_equal(g->slot, PEER);
	w.ended++;
	w.silent_ns = g->silent_ns;
	w.connected = false;
	return 1;
}
static const struct alive_world world = {
	each, is_here, is_own, exists, emptied, sent, gone, own_slot, helper_slot};

static void answer_as(uint64_t tid, bool is_there)
{
	struct rpwi_ask a = w.last;
	uint8_t mad[RPWI_MAD_LEN];
	a.answer = true;
	a.tid = tid;
	a.by_helper = w.by_helper;
	a.helper_slot = w.by_helper ? HELPER : 0;
	memset(a.there, is_there ? 0xff : 0, sizeof(a.there));
	rpwi_ask_encode(&a, mad);
	assert_true(alive_rx(&here, &there, mad, sizeof(mad), w.now_ns));
}

/* Time goes on, and whoever is asked answers, or not. */
static void pass(uint64_t ns)
{
	uint64_t end = w.now_ns + ns;
	while (alive_deadline() <= end) {
		unsigned was = w.asked;
		w.now_ns = alive_deadline();
		alive_timer(w.now_ns);
		if (w.answers && w.asked != was)
			answer_as(w.last.tid, w.peer_there);
	}
	w.now_ns = end;
}

static int begin(void **state)
{
	memset(&w, 0, sizeof(w));
	w.now_ns = 1000 * SECOND;
	w.connected = w.answers = w.peer_there = true;
	alive_begin(&world);
	alive_wanted(w.now_ns);
	return 0;
}
static int end(void **state)
{
	alive_forget();
	return 0;
}

static void a_peer_that_is_there_is_left_alone(void **state)
{
	pass(3600 * SECOND);
	assert_int_equal(w.ended, 0);
	assert_in_range(w.asked, 3590, 3610); /* once a second */
}

static void one_that_speaks_is_not_asked_about(void **state)
{
	w.by_helper = true;
	for (int i = 0; i < 100; i++) {
		w.heard_ns = w.now_ns;
		pass(SECOND / 2);
	}
	assert_in_range(w.asked, 1, 5); /* whether there is a helper */
	assert_true(alive_answers(&there));
}

/* As a NIC's host does not; nor is a forged answer one. */
static void who_has_not_answered_is_not_known_as_a_ropeway(void **state)
{
	w.answers = false;
	pass(5 * SECOND);
	assert_in_range(w.asked, 1, 5);
	answer_as(w.last.tid ^ 1, true);
	assert_false(alive_answers(&there));
	answer_as(w.last.tid, true);
	assert_true(alive_answers(&there));
	assert_false(alive_answers(&here));
}

static void its_end_is_noticed_by_an_answer(void **state)
{
	pass(5 * SECOND);
	w.peer_there = false;
	uint64_t since = w.now_ns;
	while (!w.ended && w.now_ns - since < 10 * SECOND)
		pass(SECOND / 10);
	assert_int_equal(w.ended, 1);
	assert_in_range(w.now_ns - since, 0, 2 * SECOND);
	assert_true(w.silent_ns == RPWI_NEVER);
}

/* What it said last may not have been read yet. */
static void a_neighbor_that_has_ended_is_told_when_all_has_been_read(void **state)
{
	w.is_neighbor = true;
	pass(3 * SECOND);
	w.peer_there = false;
	pass(SECOND);
	assert_int_equal(w.ended, 0);
	w.emptied++;
	pass(SECOND / 10);
	assert_int_equal(w.ended, 1);
}

static void a_neighbor_that_has_ended_is_told_though_others_never_cease(void **state)
{
	w.is_neighbor = true;
	pass(3 * SECOND);
	w.peer_there = false;
	pass(3 * SECOND);
	assert_int_equal(w.ended, 1);
}

static void one_that_was_never_there_is_not_missed(void **state)
{
	w.peer_there = false;
	pass(60 * SECOND);
	alive_refused(&there, w.now_ns);
	alive_refused(&there, w.now_ns);
	pass(60 * SECOND);
	assert_int_equal(w.ended, 0);
}

static void a_forged_answer_is_none(void **state)
{
	pass(5 * SECOND);
	answer_as(w.last.tid + 1, false);
	assert_int_equal(w.ended, 0);
	answer_as(w.last.tid, false);
	assert_int_equal(w.ended, 1);
}

static void silence_means_nothing(void **state)
{
	pass(5 * SECOND);
	w.answers = false;
	pass(3600 * SECOND);
	assert_int_equal(w.ended, 0);
}

static void silence_of_a_helper_means_the_host(void **state)
{
	w.by_helper = true;
	pass(5 * SECOND);
	w.answers = false;
	pass(7 * SECOND);
	assert_int_equal(w.ended, 0);
	pass(4 * SECOND);
	assert_int_equal(w.ended, 1);
	assert_in_range(w.silent_ns, 8 * SECOND, 11 * SECOND);
}

static void a_refusal_counts_with_the_second(void **state)
{
	w.by_helper = true;
	pass(5 * SECOND);
	alive_refused(&there, w.now_ns);
	pass(5 * SECOND); /* an answer came in between */
	alive_refused(&there, w.now_ns);
	w.answers = false;
	pass(SECOND);
	assert_int_equal(w.ended, 0);
	alive_refused(&there, w.now_ns);
	pass(SECOND);
	assert_int_equal(w.ended, 1);
}

static void who_never_answers_is_asked_seldom(void **state)
{
	w.answers = false;
	w.heard_ns = w.now_ns;
	pass(600 * SECOND);
	assert_int_equal(w.ended, 0);
	assert_in_range(w.asked, 20, 30);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		T(a_peer_that_is_there_is_left_alone),
		T(one_that_speaks_is_not_asked_about),
		T(who_has_not_answered_is_not_known_as_a_ropeway),
		T(its_end_is_noticed_by_an_answer),
		T(a_neighbor_that_has_ended_is_told_when_all_has_been_read),
		T(a_neighbor_that_has_ended_is_told_though_others_never_cease),
		T(one_that_was_never_there_is_not_missed),
		T(a_forged_answer_is_none),
		T(silence_means_nothing),
		T(silence_of_a_helper_means_the_host),
		T(a_refusal_counts_with_the_second),
		T(who_never_answers_is_asked_seldom),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
