/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint_test.c - endpoints: how they come up, by which path and why, how they end, and a
 * thousand of them. */
#include <poll.h>
#include <sys/resource.h>

#include "msg_test.h"

static void what_is_known_of_an_endpoint(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	rpw_endpoint_information a = {.size = sizeof(a)}, b = {.size = sizeof(b)};
	assert_int_equal(rpw_endpoint_info(p.ea, &a), 0);
	assert_int_equal(rpw_endpoint_info(p.eb, &b), 0);
	size_t name_len = strcspn(transport, ":"); /* as in ncclnet:PATH */
	assert_int_equal(strlen(a.transport), name_len);
	assert_memory_equal(a.transport, transport, name_len);
	assert_string_equal(a.transport, b.transport);
	assert_true(strlen(a.path) > 0 && strlen(a.why) > 0 && strlen(a.peer) > 0);
	assert_string_equal(a.why, b.why);
	assert_int_equal(a.message_tag, b.peer_message_tag);
	assert_int_equal(a.control_tag, b.peer_control_tag);
	assert_int_equal(b.message_tag, a.peer_message_tag);
	assert_int_equal(b.control_tag, a.peer_control_tag);
	assert_true(a.message_tag != b.message_tag && a.message_tag != a.control_tag);
	assert_true(a.connected && b.connected && a.eager_bytes_max > 0);
	rpw_endpoint_set_user(p.ea, &a);
	assert_ptr_equal(rpw_endpoint_user(p.ea), &a);
	rpw_statistics s = {.size = sizeof(s)};
	assert_int_equal(rpw_context_statistics(p.a, &s), 0);
	assert_int_equal(s.endpoints, 1);
	assert_int_equal(s.requests, 0);
	pair_close(&p);
}

static int closed_status, completions, completions_at_close;
static void on_close(rpw_endpoint *ep, int status, void *arg)
{
	closed_status = status;
	completions_at_close = completions;
	++*(int *)arg;
}
static void on_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	completions++;
	*(int *)arg = done->status;
}

static void the_end_of_an_endpoint(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	int closes = 0, status_a = 1, status_b = 1;
	char in[8], kept[8] = "";
	char *big = malloc(1 << 20);
	pattern_fill(big, 1 << 20, 4);
	rpw_endpoint_on_close(p.ea, on_close, &closes);
	rpw_request *ra, *sa, *rb, *r;
	/* Sent before the close: it arrives all the same. */
	for (int i = 0; i < 20; i++)
		assert_true(rpw_send(p.eb, "before!", 8, 100 + (uint64_t)i, &r) >= 0),
			finish(&p, r, NULL);
	rpw_recv(p.a, p.ea, in, 8, 1, ALL, &ra);
	rpw_recv(p.b, p.eb, in, 8, 1, ALL, &rb);
	assert_int_equal(rpw_send(p.ea, big, 1 << 20, 2, &sa), RPW_IN_PROGRESS);
	completions = 0;
	rpw_request_on_done(ra, on_done, &status_a);
	rpw_request_on_done(rb, on_done, &status_b);
	rpw_endpoint_destroy(p.eb);
	assert_int_equal(rpw_request_test(rb, NULL), RPW_ERR_CANCELED);
	assert_int_equal(finish(&p, ra, NULL), RPW_ERR_PEER_GONE);
	assert_int_equal(finish(&p, sa, NULL), RPW_ERR_PEER_GONE);
	both(&p);
	both(&p);
	assert_int_equal(closes, 1);
	assert_int_equal(closed_status, RPW_ERR_PEER_GONE);
	assert_int_equal(completions, 2);
	assert_int_equal(completions_at_close, 2); /* the last word */
	assert_int_equal(status_a, RPW_ERR_PEER_GONE);
	assert_int_equal(status_b, RPW_ERR_CANCELED);
	rpw_request_destroy(rb);
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(p.ea, &info);
	assert_false(info.connected);
	assert_int_equal(info.status, RPW_ERR_PEER_GONE);
	for (int i = 0; i < 20; i++) {
		memset(kept, 0, 8);
		assert_int_equal(
			rpw_recv(p.a, p.ea, kept, 8, 100 + (uint64_t)i, ALL, NULL), RPW_OK);
		assert_string_equal(kept, "before!");
	}
	assert_int_equal(rpw_recv(p.a, p.ea, kept, 8, 100, ALL, &r), RPW_ERR_PEER_GONE);
	assert_int_equal(rpw_send(p.ea, "x", 1, 1, &r), RPW_ERR_PEER_GONE);
	assert_non_null(strstr(rpw_last_error(), "closed"));
	p.eb = NULL;
	free(big);
	pair_close(&p);
}

#ifndef MSG_FAKE
/* Progress, arm, poll, as a program that sleeps does: true when at last nothing wakes it any
 * more. */
static bool falls_asleep(rpw_context *c, rpw_context *other)
{
	for (int i = 0; i < 2000; i++) {
		struct pollfd fd = {.fd = rpw_context_fd(c), .events = POLLIN};
		rpw_context_progress(other);
		if (rpw_context_progress(c) > 0 || rpw_context_arm(c) == RPW_IN_PROGRESS)
			continue;
		if (poll(&fd, 1, 50) == 0)
			return true;
	}
	return false;
}

/* Where the last endpoint was closed nothing is left that keeps a sleeper awake. */
static void a_context_without_endpoints_sleeps(void **state)
{
	for (int first = 0; first < 2; first++) {
		struct pair p;
		pair_open(&p, transport);
		rpw_endpoint_destroy(first ? p.eb : p.ea);
		assert_true(falls_asleep(p.a, p.b) && falls_asleep(p.b, p.a));
		rpw_endpoint_destroy(first ? p.ea : p.eb);
		p.ea = p.eb = NULL;
		assert_true(falls_asleep(p.a, p.b) && falls_asleep(p.b, p.a));
		pair_close(&p);
	}
}
#endif

static void posted_before_connected(void **state)
{
	struct pair p = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	assert_int_equal(rpw_context_create(&o, &p.a), 0);
	assert_int_equal(rpw_context_create(&o, &p.b), 0);
	assert_int_equal(rpw_listener_create(p.b, "127.0.0.1:0", pair_accept, &p.eb, &p.l), 0);
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	assert_int_equal(rpw_endpoint_create(p.a, address, NULL, &p.ea, NULL), RPW_IN_PROGRESS);
	uint64_t in = 0, out = 0x0123456789abcdef;
	char *big = malloc(300000), *got = malloc(300000);
	pattern_fill(big, 300000, 6);
	rpw_request *s1, *s2, *f, *r1, *r2;
	assert_int_equal(rpw_send(p.ea, &out, 8, 1, &s1), RPW_IN_PROGRESS);
	assert_int_equal(rpw_send(p.ea, big, 300000, 1, &s2), RPW_IN_PROGRESS);
	assert_int_equal(rpw_endpoint_flush(p.ea, &f), RPW_IN_PROGRESS);
	rpw_recv(p.b, NULL, &in, 8, 1, ALL, &r1);
	rpw_recv(p.b, NULL, got, 300000, 1, ALL, &r2);
	assert_int_equal(finish(&p, f, NULL), RPW_OK);
	assert_int_equal(rpw_request_test(s1, NULL), RPW_OK);
	assert_int_equal(rpw_request_test(s2, NULL), RPW_OK);
	assert_int_equal(finish(&p, r1, NULL), RPW_OK);
	assert_int_equal(finish(&p, r2, NULL), RPW_OK);
	assert_int_equal(in, out);
	assert_int_equal(pattern_wrong(got, 300000, 6), 300000);
	rpw_request_destroy(s1);
	rpw_request_destroy(s2);
	free(big);
	free(got);
	/* Destroyed with everything under way: nothing leaks (ASan), nothing is waited for. */
	for (int i = 0; i < 100; i++) {
		static char sink[8], bulk[100000];
		rpw_recv(p.a, i & 1 ? p.ea : NULL, sink, 8, (uint64_t)i, ALL, NULL);
		rpw_send(p.ea, bulk, i & 2 ? 8 : sizeof(bulk), 1, NULL);
		rpw_send_obj(p.ea, bulk, i & 2 ? 8 : sizeof(bulk), NULL);
	}
	both(&p);
	rpw_context_destroy(p.a);
	rpw_context_destroy(p.b);
}

static void the_next_path_when_one_does_not_come_up(void **state)
{
#ifdef MSG_FAKE
	for (int how = 0; how < 2; how++) {
		struct pair p;
		fake.no_ready = how == 0;
		fake.refuse_make = how == 1;
		pair_timeout_ms = 1000; /* of which the first path gets a part */
		pair_open(&p, NULL);
		pair_timeout_ms = 0;
		rpw_endpoint_information a = {.size = sizeof(a)};
		rpw_endpoint_info(p.ea, &a);
		assert_string_equal(a.transport, "fake_b");
		assert_non_null(strstr(a.why, "fake_a"));
		pair_close(&p);
	}
	/* None left: refused by name. */
	fake.refuse_make = true;
	struct pair p = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = "fake_a"};
	rpw_context_create(&o, &p.a);
	rpw_context_create(&o, &p.b);
	rpw_listener_create(p.b, ":0", pair_accept, &p.eb, &p.l);
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	rpw_request *r;
	rpw_endpoint_create(p.a, address, NULL, &p.ea, &r);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_UNREACHABLE);
	rpw_endpoint_information a = {.size = sizeof(a)};
	rpw_endpoint_info(p.ea, &a);
	assert_int_equal(a.status, RPW_ERR_UNREACHABLE);
	assert_non_null(strstr(a.why, "fake_a"));
	pair_close(&p);
#endif
}

/* Both ends of a path fail, and the peer's word of it comes in the round in which this side's own
 * end says why: both are told. */
static void the_own_reason_stands_beside_the_peers(void **state)
{
#ifdef MSG_FAKE
	struct pair p = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = "fake_b"};
	fake.break_young = 2;
	rpw_context_create(&o, &p.a);
	rpw_context_create(&o, &p.b);
	rpw_listener_create(p.b, ":0", pair_accept, &p.eb, &p.l);
	char address[64], own[64], other[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	rpw_request *r;
	rpw_endpoint_create(p.a, address, NULL, &p.ea, &r);
	WHILE_IN_TIME (rpw_request_test(r, NULL) == RPW_IN_PROGRESS) {
		rpw_context_progress(p.b);
		rpw_context_progress(p.a);
	}
	assert_int_equal(rpw_request_test(r, NULL), RPW_ERR_UNREACHABLE);
	rpw_request_destroy(r);
	rpw_endpoint_information a = {.size = sizeof(a)};
	rpw_endpoint_info(p.ea, &a);
	snprintf(
		own, sizeof(own), "fake_b: end %llu broke", (unsigned long long)fake_made_by(true));
	snprintf(other, sizeof(other), "failed: end %llu broke",
		(unsigned long long)fake_made_by(false));
	if (!strstr(a.why, own) || !strstr(a.why, other))
		fail_msg("neither \"%s\" nor \"%s\" may be missing in: %s", own, other, a.why);
	pair_close(&p);
#endif
}

static struct {
	rpw_endpoint *ep[1000];
	int n;
} crowd;
static void crowd_accept(rpw_listener *l, rpw_endpoint *ep, void *arg) { crowd.ep[crowd.n++] = ep; }

static void a_thousand_endpoints(void **state)
{
	enum { N = 1000 };
	if (!strcmp(transport, "tcp"))
		return; /* both ends in one process: more descriptors than a test may have */
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	struct pair p = {0};
	rpw_context_options o = {.size = sizeof(o), .transports = transport};
	assert_int_equal(rpw_context_create(&o, &p.a), 0);
	assert_int_equal(rpw_context_create(&o, &p.b), 0);
	crowd.n = 0;
	assert_int_equal(rpw_listener_create(p.b, "127.0.0.1:0", crowd_accept, NULL, &p.l), 0);
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	static rpw_endpoint *ep[N];
	static rpw_request *r[N];
	for (int i = 0; i < N; i++) {
		assert_int_equal(
			rpw_endpoint_create(p.a, address, NULL, &ep[i], &r[i]), RPW_IN_PROGRESS);
		if (i % 50 == 49)
			for (int k = i - 49; k <= i; k++)
				assert_int_equal(finish(&p, r[k], NULL), RPW_OK);
	}
	WHILE_IN_TIME (crowd.n < N)
		both(&p);
	assert_int_equal(crowd.n, N);
	static uint64_t in[N];
	for (int i = 0; i < N; i++) {
		uint64_t v = rng_mix((uint64_t)i);
		rpw_request *s;
		assert_true(rpw_send(ep[i], &v, 8, 7, &s) >= 0);
		assert_int_equal(finish(&p, s, NULL), RPW_OK);
	}
	/* From each its own, whatever the order in which they are asked. */
	for (int i = N - 1; i >= 0; i--) {
		rpw_completion done = RPW_COMPLETION_INIT;
		assert_int_equal(
			rpw_recv(p.b, crowd.ep[i], &in[i], 8, 7, ALL, &r[i]), RPW_IN_PROGRESS);
		assert_int_equal(finish(&p, r[i], &done), RPW_OK);
		assert_ptr_equal(done.from, crowd.ep[i]);
	}
	uint64_t sum = 0, expect = 0;
	for (int i = 0; i < N; i++) {
		sum += in[i];
		expect += rng_mix((uint64_t)i);
	}
	assert_int_equal(sum, expect);
	rpw_context_destroy(p.a);
	rpw_context_destroy(p.b);
}

int endpoint_tests(void)
{
	static const struct CMUnitTest tests[] = {
		CASE(what_is_known_of_an_endpoint),
		CASE(the_end_of_an_endpoint),
#ifndef MSG_FAKE
		CASE(a_context_without_endpoints_sleeps),
#endif
		CASE(posted_before_connected),
		CASE(the_next_path_when_one_does_not_come_up),
		CASE(the_own_reason_stands_beside_the_peers),
		CASE(a_thousand_endpoints),
	};
	return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
