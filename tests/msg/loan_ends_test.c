/* SPDX-License-Identifier: BSD-3-Clause */
/* loan_ends_test.c - a peer that loans, receives and keeps views is killed, again and again, at a
 * random moment. What is counted: everything that this side has on loan is either its own or the
 * peer's; views stay as they were read until they are released; afterwards nothing is left, in
 * memory or descriptors. LOAN_ENDS: how often (200; by hand 10000). */
#include "lib/test.h"
#define PAIR_MUST(condition) assert_true(condition)
#include "base/base.h"
#include "lib/pair.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/rng.h"

#define ALL UINT64_MAX
enum { VIEWS = 8, LEN = 70000, LEFT_IN_ALL = 1 << 20 };

static size_t some_length(struct rng *rng) { return rng_below(rng, LEN - 8) + 8; }

static bool loan_one(rpw_endpoint *ep, struct rng *rng)
{
	rpw_loaned l = RPW_LOANED_INIT;
	size_t n = some_length(rng);
	if (rpw_loan(ep, n, 0, 0, &l))
		return false;
	pattern_fill(l.data, n, n);
	return rpw_send_loan(ep, &l, n, 1, NULL) >= 0;
}

/* The peer: it never ends by itself. */
static void peer(const char *address, uint64_t seed)
{
	struct rng rng = {seed};
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	rpw_context *c = NULL;
	rpw_endpoint *ep = NULL;
	rpw_view v[VIEWS];
	rpw_request *r[VIEWS] = {NULL};
	o.transports = "shm";
	o.loan_bytes_max = LEFT_IN_ALL;
	if (rpw_context_create(&o, &c) || rpw_endpoint_create(c, address, NULL, &ep, NULL) < 0)
		_exit(1);
	for (;;) {
		unsigned i = rng_next(&rng) % VIEWS;
		rpw_context_progress(c);
		if (rng_next(&rng) % 2)
			loan_one(ep, &rng);
		else if (!r[i]) {
			v[i] = (rpw_view)RPW_VIEW_INIT;
			rpw_recv_view(c, ep, 1, ALL, &v[i], &r[i]);
		} else if (rpw_request_test(r[i], NULL) == RPW_OK) {
			rpw_view_release(&v[i]);
			rpw_request_destroy(r[i]);
			r[i] = NULL;
		}
	}
}

static void reads_as_it_was_sent(const rpw_view *v)
{
	assert_int_equal(pattern_wrong(v->data, v->length, v->length), v->length);
}

/* Until the endpoint has ended; some views outlive it. */
static void one_end(rpw_context *c, rpw_listener *l, rpw_endpoint **ep, struct rng *rng)
{
	char address[64];
	rpw_view v[VIEWS];
	rpw_request *r[VIEWS] = {NULL};
	rpw_endpoint_information i = RPW_ENDPOINT_INFORMATION_INIT;
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(l));
	uint64_t seed = rng_next(rng);
	*ep = NULL;
	pid_t pid = fork();
	if (!pid)
		peer(address, seed);
	WHILE_IN_TIME (!*ep)
		rpw_context_progress(c);
	assert_non_null(*ep);
	uint64_t lives = rng_below(rng, 300), turns = 0;
	WHILE_IN_TIME (!i.status) {
		unsigned k = rng_next(rng) % VIEWS;
		rpw_context_progress(c);
		if (turns++ == lives)
			kill(pid, SIGKILL);
		if (rng_next(rng) % 3 == 0)
			loan_one(*ep, rng);
		if (!r[k]) {
			v[k] = (rpw_view)RPW_VIEW_INIT;
			rpw_recv_view(c, *ep, 1, ALL, &v[k], &r[k]);
		} else if (rpw_request_test(r[k], NULL) == RPW_OK && rng_next(rng) % 4 == 0) {
			reads_as_it_was_sent(&v[k]);
			assert_int_equal(rpw_view_release(&v[k]), RPW_OK);
			rpw_request_destroy(r[k]);
			r[k] = NULL;
		}
		assert_int_equal(rpw_endpoint_info(*ep, &i), RPW_OK);
		assert_true(i.loan_bytes <= i.loan_bytes_max);
	}
	assert_int_equal(i.status, RPW_ERR_PEER_GONE);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	rpw_endpoint_destroy(*ep);
	for (unsigned k = 0; k < VIEWS; k++) {
		if (r[k] && rpw_request_test(r[k], NULL) == RPW_OK) {
			reads_as_it_was_sent(&v[k]);
			assert_int_equal(rpw_view_release(&v[k]), RPW_OK);
		}
		rpw_request_destroy(r[k]);
	}
}

static unsigned count_of(const char *path, const char *text)
{
	unsigned n = 0;
	char line[512];
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		n += !text || strstr(line, text);
	if (f)
		fclose(f);
	return n;
}

static unsigned descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void nothing_is_left_however_often_the_peer_dies(void **state)
{
	const char *asked = getenv("LOAN_ENDS");
	unsigned ends = asked ? (unsigned)atoi(asked) : 200, before = 0;
	struct rng rng = {0xe11d5};
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	rpw_context *c = NULL;
	rpw_endpoint *ep = NULL;
	char address[64];
	o.transports = "shm";
	o.loan_bytes_max = LEFT_IN_ALL;
	assert_int_equal(rpw_context_create(&o, &c), RPW_OK);
	rpw_listener *l = pair_listen(c, &ep, address);
	for (unsigned i = 0; i < ends; i++) {
		IN_CASE("end", i);
		one_end(c, l, &ep, &rng);
		for (int k = 0; k < 100; k++)
			rpw_context_progress(c);
		if (i == 2)
			before = descriptors();
	}
	assert_int_equal(count_of("/proc/self/maps", "ropeway-loans"), 0);
	assert_int_equal(count_of("/proc/self/maps", "ropeway-returns"), 0);
	assert_true(descriptors() <= before + 4);
	rpw_listener_destroy(l);
	rpw_context_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_left_however_often_the_peer_dies)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
