/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_pair.h - two comms that are connected with each other through a plugin, both in this
 * process; messages between them with patterns of their own. */
#ifndef ROPEWAY_TESTS_NCCL_PAIR_H
#define ROPEWAY_TESTS_NCCL_PAIR_H

#include "ncclnet/host/host.h"

#include "lib/pattern.h"
#include <fnmatch.h>
#include <pthread.h>
#include <sched.h>

#include "lib/test.h"

enum { PAIR_WAIT_S = 60 };

extern const char *plugin_path; /* the first argument (pair_main) */

struct pair {
	struct ncclnet *n;
	void *ctx, *listen_comm, *send, *recv;
	char handle[NCCL_NET_HANDLE_BYTES];
	unsigned seed;
};

#define OK(call) \
	do { \
		int rc_ = (call); \
		if (rc_) \
			fail_msg("%s: %d (%s)", #call, rc_, ncclnet_result_name(rc_)); \
	} while (0)

static inline uint64_t pair_deadline(void) { return rpwi_now_ns() + PAIR_WAIT_S * RPWI_NS_PER_S; }
static inline void pair_breathe(uint64_t until)
{
	assert_true(rpwi_now_ns() < until);
	sched_yield();
}

static inline void pair_verify(const uint8_t *p, size_t n, unsigned seed)
{
	size_t i = pattern_wrong(p, n, seed);
	if (i < n)
		fail_msg("byte %zu of %zu is 0x%02x, sent was 0x%02x", i, n, p[i],
			pattern_byte(seed, i));
}

/* What it warned of last; all that it says goes to stderr where PAIR_LOG is set. */
static char pair_warned[1200];
static pthread_mutex_t pair_log_lock = PTHREAD_MUTEX_INITIALIZER;
static inline void __attribute__((format(printf, 5, 6)))
pair_log(int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
	char text[sizeof(pair_warned)];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&pair_log_lock);
	if (level == NCCL_LOG_WARN)
		snprintf(pair_warned, sizeof(pair_warned), "%s", text);
	if (getenv("PAIR_LOG"))
		fprintf(stderr, "# %s %s:%d %s\n", level == NCCL_LOG_WARN ? "WARN" : "INFO", file,
			line, text);
	pthread_mutex_unlock(&pair_log_lock);
}

/* The call failed as it had to, and said why. */
static inline void pair_said(int rc, int expected, const char *word, const char *what)
{
	if (rc != expected || !strstr(pair_warned, word))
		fail_msg("%s gave %d (%s), expected was %d (%s) and a line with \"%s\": %s", what,
			rc, ncclnet_result_name(rc), expected, ncclnet_result_name(expected), word,
			pair_warned);
	*pair_warned = 0;
}
#define REFUSED(call, expected, word) pair_said(call, expected, word, #call)

static inline void pair_load(struct pair *p, int abi)
{
	char why[300];
	int ndev = 0;
	memset(p, 0, sizeof(*p));
	if (ncclnet_load(plugin_path, abi, &p->n, why, sizeof(why)))
		fail_msg("%s", why);
	OK(ncclnet_init(p->n, &p->ctx, pair_log));
	OK(ncclnet_devices(p->n, &ndev));
	assert_true(ndev > 0);
}

/* Alternating, as NCCL does it: neither blocks. */
static inline void pair_connect(struct pair *p)
{
	uint64_t until = pair_deadline();
	OK(ncclnet_listen(p->n, p->ctx, 0, p->handle, &p->listen_comm));
	assert_non_null(p->listen_comm);
	while (!p->send || !p->recv) {
		if (!p->send)
			OK(ncclnet_connect(p->n, p->ctx, 0, p->handle, &p->send, NULL));
		if (!p->recv)
			OK(ncclnet_accept(p->n, p->listen_comm, &p->recv, NULL));
		pair_breathe(until);
	}
}

static inline void pair_open(struct pair *p, int abi)
{
	pair_load(p, abi);
	pair_connect(p);
}

static inline void pair_close(struct pair *p)
{
	if (p->send)
		OK(ncclnet_close_send(p->n, p->send));
	if (p->recv)
		OK(ncclnet_close_recv(p->n, p->recv));
	if (p->listen_comm)
		OK(ncclnet_close_listen(p->n, p->listen_comm));
	if (p->ctx)
		OK(ncclnet_finalize(p->n, p->ctx));
	ncclnet_unload(p->n);
}

/* NULL with success: not now. */
static inline void *pair_isend(struct pair *p, void *data, size_t size, int tag)
{
	void *request = NULL;
	for (uint64_t until = pair_deadline(); !request; pair_breathe(until))
		OK(ncclnet_isend(p->n, p->send, data, size, tag, NULL, &request));
	return request;
}

static inline void *pair_irecv(struct pair *p, void *data, size_t size, int tag)
{
	void *request = NULL, *mhandle = NULL;
	for (uint64_t until = pair_deadline(); !request; pair_breathe(until))
		OK(ncclnet_irecv(p->n, p->recv, 1, &data, &size, &tag, &mhandle, &request));
	return request;
}

/* The result of the test that said done. */
static inline int pair_wait(struct pair *p, void *request, int *sizes)
{
	int done = 0, rc = 0;
	for (uint64_t until = pair_deadline(); !done && !rc; pair_breathe(until))
		rc = ncclnet_test(p->n, request, &done, sizes);
	return rc;
}

/* Both requests; sides that sleep do not hear of each other. */
static inline void pair_wait_two(struct pair *p, void *a, void *b, int *a_size, int *b_size)
{
	int a_done = 0, b_done = 0;
	for (uint64_t until = pair_deadline(); !a_done || !b_done; pair_breathe(until)) {
		if (!a_done)
			OK(ncclnet_test(p->n, a, &a_done, a_size));
		if (!b_done)
			OK(ncclnet_test(p->n, b, &b_done, b_size));
	}
}

/* One message, and what is there after it. */
static inline void pair_message(struct pair *p, size_t size, int tag)
{
	int sent[NCCL_NET_GROUP_MAX] = {-1}, got[NCCL_NET_GROUP_MAX] = {-1};
	uint8_t *from = malloc(size + 1), *to = malloc(size + 1);
	unsigned seed = ++p->seed;
	pattern_fill(from, size, seed);
	memset(to, 0x5a, size + 1);
	void *r = pair_irecv(p, to, size, tag), *s = pair_isend(p, from, size, tag);
	pair_wait_two(p, s, r, sent, got);
	assert_int_equal(sent[0], (int)size);
	assert_int_equal(got[0], (int)size);
	pair_verify(to, size, seed);
	assert_int_equal(to[size], 0x5a);
	free(from);
	free(to);
}

/* PLUGIN [GLOB]... */
static inline int pair_main(int argc, char **argv, const struct CMUnitTest *all, size_t n)
{
	struct CMUnitTest chosen[64];
	size_t count = 0;
	if (argc < 2 || n > RPWI_ARRAY_LEN(chosen)) {
		fprintf(stderr, "usage: %s PLUGIN.so [TEST]...\n", argv[0]);
		return 2;
	}
	plugin_path = argv[1];
	for (size_t i = 0; i < n; i++) {
		bool wanted = argc == 2;
		for (int k = 2; k < argc; k++)
			wanted |= !fnmatch(argv[k], all[i].name, 0);
		if (wanted)
			chosen[count++] = all[i];
	}
	return _cmocka_run_group_tests("plugin", chosen, count, NULL, NULL);
}

#endif
