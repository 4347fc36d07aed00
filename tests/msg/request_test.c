/* SPDX-License-Identifier: BSD-3-Clause */
/* request_test.c - requests: canceled, waited for, called back; what is refused at once. */
#include "msg_test.h"

static void cancels(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	char *big = malloc(1 << 20), small[8];
	pattern_fill(big, 1 << 20, 1);
	/* A send that nobody has taken: withdrawn, and the receiver never sees it. */
	rpw_request *s, *r;
	assert_int_equal(rpw_send(p.ea, big, 1 << 20, 1, &s), RPW_IN_PROGRESS);
	rpw_completion c = RPW_COMPLETION_INIT;
	while (rpw_probe(p.b, NULL, 1, ALL, &c))
		both(&p);
	rpw_request_cancel(s);
	assert_int_equal(finish(&p, s, NULL), RPW_ERR_CANCELED);
	assert_int_equal(rpw_probe(p.b, NULL, 1, ALL, NULL), RPW_IN_PROGRESS);
	/* A canceled receive does not take the next message. */
	rpw_recv(p.b, NULL, big, 8, 2, ALL, &r);
	rpw_request_cancel(r);
	assert_int_equal(finish(&p, r, NULL), RPW_ERR_CANCELED);
	rpw_send(p.ea, "unique!", 8, 2, &s);
	rpw_recv(p.b, NULL, small, 8, 2, ALL, &r);
	assert_int_equal(finish(&p, r, NULL), RPW_OK);
	assert_string_equal(small, "unique!");
	finish(&p, s, NULL);
	free(big);
	pair_close(&p);
}

static int called;

/* Callbacks may post and close, and may not progress, wait or destroy. */
static void in_callback(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct pair *p = arg;
	called++;
	assert_int_equal(rpw_context_progress(p->b), RPW_ERR_INVALID);
	assert_int_equal(rpw_request_wait(r, 10, NULL), RPW_OK);
	rpw_request *other;
	static char buf[8];
	rpw_recv(p->b, p->eb, buf, 8, 555, ALL, &other);
	assert_int_equal(rpw_request_wait(other, 10, NULL), RPW_ERR_INVALID);
	rpw_request_destroy(other);
	rpw_context_destroy(p->b);
	rpw_endpoint_destroy(p->eb);
	rpw_request_destroy(r);
}
static void calls_from_inside_callbacks(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	char in[8];
	rpw_request *r, *s;
	called = 0;
	rpw_recv(p.b, p.eb, in, 8, 1, ALL, &r);
	rpw_request_on_done(r, in_callback, &p);
	rpw_send(p.ea, "unique!", 8, 1, &s);
	finish(&p, s, NULL);
	WHILE_IN_TIME (!called)
		both(&p);
	assert_int_equal(called, 1);
	rpw_statistics st = {.size = sizeof(st)};
	rpw_context_statistics(p.b, &st);
	assert_int_equal(st.endpoints, 0); /* when the progress that called has returned */
	p.eb = NULL;
	pair_close(&p);
}

static void arguments_are_checked(void **state)
{
	rpw_context *c;
	rpw_context_options o = {.size = sizeof(o), .transports = "pigeon"};
	assert_int_equal(rpw_context_create(&o, &c), RPW_ERR_INVALID);
	assert_non_null(strstr(rpw_last_error(), "pigeon"));
	o.size = 0;
	assert_int_equal(rpw_context_create(&o, &c), RPW_ERR_INVALID);
	assert_int_equal(rpw_context_create(NULL, NULL), RPW_ERR_INVALID);
	assert_string_equal(rpw_status_name(RPW_ERR_TRUNCATED), "RPW_ERR_TRUNCATED");
	assert_string_equal(rpw_status_name(-99), "unknown status");
	assert_string_equal(rpw_status_name(RPW_IN_PROGRESS), "RPW_IN_PROGRESS");
	assert_int_equal(rpw_request_wait(NULL, 0, NULL), RPW_ERR_INVALID);
	rpw_request_destroy(NULL);
	rpw_endpoint_destroy(NULL);
	rpw_context_destroy(NULL);
}

/* What was wrong is named; NULL is never written as an address. */
static void a_missing_buffer_is_named(void **state)
{
	struct pair p;
	rpw_request *r;
	rpw_memory *m;
	const struct iovec two[] = {{(void *)"ab", 2}, {NULL, 3}};
	pair_open(&p, transport);
	assert_int_equal(rpw_send(p.ea, NULL, 5, 1, &r), RPW_ERR_INVALID);
	assert_string_equal(rpw_last_error(), "a buffer of 5 bytes: its address is NULL");
	assert_int_equal(rpw_send_iov(p.ea, two, 2, 1, &r), RPW_ERR_INVALID);
	assert_string_equal(
		rpw_last_error(), "piece 1 of the scatter list has 3 bytes: its address is NULL");
	assert_int_equal(
		rpw_memory_register(p.a, NULL, 8, RPW_MEMORY_HOST, 0, &m), RPW_ERR_INVALID);
	assert_string_equal(rpw_last_error(), "rpw_memory_register: the address is NULL");
	pair_close(&p);
}

static void a_wait_times_out_and_goes_on(void **state)
{
	struct pair p;
	pair_open(&p, transport);
	uint64_t in = 0, out = 0xfeedface12345678;
	rpw_request *r, *s;
	rpw_recv(p.b, NULL, &in, 8, 1, ALL, &r);
	assert_int_equal(rpw_request_wait(r, 20, NULL), RPW_ERR_EXPIRED);
	assert_int_equal(rpw_request_test(r, NULL), RPW_IN_PROGRESS);
	rpw_send(p.ea, &out, 8, 1, &s);
	finish(&p, s, NULL);
	assert_int_equal(rpw_request_wait(r, 5000, NULL), RPW_OK);
	assert_int_equal(in, out);
	rpw_request_destroy(r);
	pair_close(&p);
}

int request_tests(void)
{
	static const struct CMUnitTest tests[] = {
		CASE(cancels),
		CASE(calls_from_inside_callbacks),
		CASE(arguments_are_checked),
		CASE(a_missing_buffer_is_named),
		CASE(a_wait_times_out_and_goes_on),
	};
	return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
