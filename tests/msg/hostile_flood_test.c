/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile_flood_test.c - what a peer offers without end, over each transport: messages announced
 * beyond what it was granted, invitations and descriptions of what nobody sends, large messages for
 * which nobody has a receive, endpoints that come and go. hostile_flood_test [TRANSPORT].
 *
 * Both sides are of this process; the peer's frames are put on its path by hand. What is allocated
 * stays bounded (mostly the bounds of docs/trust.md), and what was honest arrives.
 */
#include <errno.h>
#include <time.h>

#include "msg/objects.h"
#include "msg/rndv.h"
#include "lib/descriptors.h"
#include "allocated.h"
#include "pair.h"

#define ALL UINT64_MAX
enum {
	POOL = 1 << 20,
	FRAMES = 40000,
	PATIENCE_S = 60,
	OFFERS = 300,
	OFFER_BYTES = 600 * 1024,
	ROUNDS = 60
};

static const char *transport;

static void open_pair(struct pair *p)
{
	rpw_context_options o = {.size = sizeof(o), .unexpected_bytes_max = POOL};
	pair_open_with(p, transport, &o);
}

static int status_of(rpw_endpoint *ep)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	rpw_endpoint_info(ep, &i);
	return i.status;
}

/* ---- frames that nobody of good will sends ---- */

static const struct flood {
	const char *name;
	uint8_t type, flags;
	bool described; /* the body: a description of one piece */
	/* MAY_END: a breach where it does not take the answers */
	enum { GOES_ON, MAY_END, ENDS } verdict;
} floods[] = {
	{"large messages announced", FRAME_RTS, RTS_TAG, true, ENDS},
	{"large objects announced", FRAME_RTS, RTS_OBJECT, true, ENDS},
	{"invitations", FRAME_RTR, 0, true, MAY_END},
	{"descriptions", FRAME_RTS, RTS_AGAIN, true, GOES_ON},
	{"messages said to be placed", FRAME_DONE, DONE_PLACED << DONE_STATUS_BITS, false, GOES_ON},
	{"messages said to be fetched", FRAME_DONE, 0, false, GOES_ON},
	{"messages withdrawn", FRAME_WITHDRAW, 0, false, GOES_ON},
};

/* 0; RPWI_LATER: the path takes no more now. */
static int flood_one(struct pair *p, const struct flood *f, uint64_t i)
{
	uint8_t body[RTS_BODY_MAX];
	struct tran_desc desc = {.len = 40};
	for (unsigned k = 0; k < desc.len; k++)
		desc.bytes[k] = (uint8_t)rng_mix(i * 64 + k);
	struct frame_head h = frame_head_make(f->type, f->flags, p->ea->link.rx_count,
		p->ea->link.rx_limit, f->type == FRAME_RTS ? 77 : i % 4096 << 32 | i % 64);
	struct iovec iov = {
		body, f->described ? rndv_describe_one(body, i + 1, 1 << 20, &desc) : 0};
	int rc = p->ea->link.ops->send(p->ea->link.te, &h, sizeof(h), &iov, 1, iov.iov_len);
	p->ea->link.tx_count += !rc && f->type <= FRAME_COUNTED_LAST;
	return rc;
}

static void floods_are_refused_or_forgotten(void **state)
{
	for (size_t k = 0; k < RPWI_ARRAY_LEN(floods); k++) {
		IN_CASE("row", k);
		const struct flood *f = &floods[k];
		struct pair p;
		open_pair(&p);
		size_t before = allocated(), most = 0;
		time_t until = time(NULL) + PATIENCE_S;
		uint64_t sent = 0;
		while (sent < FRAMES && !status_of(p.eb) && !status_of(p.ea) &&
			time(NULL) < until) {
			int rc = flood_one(&p, f, sent);
			sent += !rc;
			if (rc || !(sent % 16))
				both(&p);
			if (rc && rc != RPWI_LATER)
				break; /* the other side has closed the path */
			most = RPWI_MAX(most, grown(before));
		}
		for (int i = 0; i < 1000 && f->verdict == ENDS && !status_of(p.eb); i++)
			both(&p);
		int status = status_of(p.eb);
		bool ended = status == RPW_ERR_PROTOCOL,
		     right = f->verdict == ENDS ? ended
						: (!status && sent == FRAMES) ||
							  (ended && f->verdict == MAY_END);
		if (!right)
			fail_msg("%s by %s: %llu were sent, then %s", f->name, transport,
				(unsigned long long)sent, rpw_status_name(status));
		if (most > 2 * POOL)
			fail_msg("%s by %s: %zu bytes were allocated", f->name, transport, most);
		pair_close(&p);
	}
}

/* ---- large messages without a receive ---- */

static void offers_without_end_wait_and_arrive(void **state)
{
	static uint8_t out[4][OFFER_BYTES], in[OFFER_BYTES];
	static rpw_request *sent[OFFERS];
	struct pair p;
	open_pair(&p);
	for (unsigned i = 0; i < 4; i++)
		pattern_fill(out[i], OFFER_BYTES, i);
	for (unsigned i = 0; i < OFFERS; i++)
		assert_int_equal(
			rpw_send(p.ea, out[i % 4], OFFER_BYTES, i, &sent[i]), RPW_IN_PROGRESS);
	size_t before = allocated();
	for (unsigned i = 0; i < 20000; i++)
		both(&p);
	/* Of both sides: the sender registers what it offers, the receiver keeps the offers. */
	if (grown(before) > 3 * POOL)
		fail_msg("%zu bytes were allocated for %d offers", grown(before), OFFERS);
	rpw_statistics s = {.size = sizeof(s)};
	rpw_context_statistics(p.b, &s);
	assert_true(s.unexpected_bytes <= POOL);
	for (unsigned i = 0; i < OFFERS; i++) {
		rpw_request *r = NULL;
		rpw_completion done = RPW_COMPLETION_INIT;
		memset(in, 0x11, sizeof(in));
		int rc = rpw_recv(p.b, p.eb, in, sizeof(in), i, ALL, &r);
		assert_int_equal(rc == RPW_IN_PROGRESS ? finish(&p, r, &done) : rc, RPW_OK);
		assert_int_equal(pattern_wrong(in, OFFER_BYTES, i % 4), OFFER_BYTES);
	}
	for (unsigned i = 0; i < OFFERS; i++)
		assert_int_equal(finish(&p, sent[i], NULL), RPW_OK);
	pair_close(&p);
}

/* ---- endpoints ---- */

static void one_comes_and_goes(struct pair *p)
{
	char address[64];
	rpw_endpoint *listening = p->eb, *ep = NULL;
	rpw_request *r = NULL;
	rpw_memory *m = NULL;
	uint8_t packed[RPW_RKEY_BYTES_MAX];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p->l));
	p->eb = NULL;
	assert_int_equal(rpw_endpoint_create(p->a, address, NULL, &ep, &r), RPW_IN_PROGRESS);
	assert_int_equal(finish(p, r, NULL), RPW_OK);
	WHILE_IN_TIME (!p->eb)
		both(p);
	assert_non_null(p->eb);
	assert_int_equal(
		rpw_memory_allocate(p->a, 1 << 16, RPW_REMOTE_READ | RPW_REMOTE_WRITE, &m), RPW_OK);
	assert_true(rpw_rkey_pack(m, packed, sizeof(packed)) > 0);
	rpw_endpoint_destroy(ep);
	rpw_endpoint_destroy(p->eb);
	rpw_memory_destroy(m);
	p->eb = listening;
	for (int i = 0; i < 200; i++)
		both(p);
}

static void endpoints_and_registrations_that_come_and_go_leave_nothing(void **state)
{
	struct pair p;
	open_pair(&p);
	for (int i = 0; i < ROUNDS; i++)
		one_comes_and_goes(&p);
	size_t before = allocated();
	unsigned open_before = open_descriptors();
	for (int i = 0; i < ROUNDS; i++)
		one_comes_and_goes(&p);
	if (grown(before) > POOL || open_descriptors() > open_before + ROUNDS / 2)
		fail_msg("%d endpoints left %zu bytes and %d descriptors", ROUNDS, grown(before),
			(int)(open_descriptors() - open_before));
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(floods_are_refused_or_forgotten),
		cmocka_unit_test(offers_without_end_wait_and_arrive),
		cmocka_unit_test(endpoints_and_registrations_that_come_and_go_leave_nothing)};
	static const char *const transports[] = {"shm", "tcp"};
	int failed = 0;
	for (size_t i = 0; i < (argc > 1 ? 1 : 2); i++) {
		transport = argc > 1 ? argv[1] : transports[i];
		failed += cmocka_run_group_tests_name(transport, tests, NULL, NULL);
	}
	return failed;
}
