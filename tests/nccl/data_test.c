/* SPDX-License-Identifier: BSD-3-Clause */
/* data_test.c - what goes over a comm: lengths, groups, bounds; many comms and threads at once. */
#include "plugin_test.h"

#include <unistd.h>

void truncation_is_an_error(void **unused)
{
	static const size_t sizes[][2] = {
		{64, 63}, {1, 0}, {200000, 100}, {4 << 20, (4 << 20) - 1}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(sizes); i++) {
		IN_CASE("bytes", sizes[i]);
		struct pair p;
		char word[100];
		uint8_t *from = malloc(sizes[i][0]), *to = malloc(sizes[i][1] + 16);
		pair_open(&p, 8);
		pattern_fill(from, sizes[i][0], 3);
		memset(to, 0x77, sizes[i][1] + 16);
		void *r = pair_irecv(&p, to, sizes[i][1], 3),
		     *s = pair_isend(&p, from, sizes[i][0], 3);
		int done = 0, rc = 0;
		for (uint64_t until = pair_deadline(); !rc; pair_breathe(until)) {
			rc = ncclnet_test(p.n, r, &done, NULL);
			assert_true(rc || !done);
			if (s) {
				int sent = 0;
				OK(ncclnet_test(p.n, s, &sent, NULL));
				s = sent ? NULL : s;
			}
		}
		snprintf(word, sizeof(word), "sent %zu bytes with tag 3, the receive was for %zu",
			sizes[i][0], sizes[i][1]);
		REFUSED(rc, NCCL_INVALID_USAGE, word);
		for (size_t k = sizes[i][1]; k < sizes[i][1] + 16; k++)
			assert_int_equal(to[k], 0x77);
		REFUSED(ncclnet_test(p.n, r, &done, NULL), NCCL_INVALID_ARGUMENT, "not under way");
		if (s)
			OK(pair_wait(&p, s, NULL));
		pair_message(&p, 5000, 3); /* the next one is not harmed */
		pair_close(&p);
		free(from);
		free(to);
	}
}

enum { GROUPS = NCCL_NET_MAX_REQUESTS, MEMBERS = PLUGIN_RECVS_MAX };

static size_t group_size(int g, int m)
{
	return (size_t)((g * 37 + m * 911) % 9 ? (g * 1237 + m * 10007) % 30000 : 0);
}

/* 32 groups of 8 at once; the sender goes through each group's tags in another order; tests in yet
 * another. The buffers are longer than the messages. */
void groups_in_any_order(void **unused)
{
	for (size_t k = 0; k < RPWI_ARRAY_LEN(some_versions); k++) {
		IN_CASE("row", k);
		struct pair p;
		static uint8_t from[GROUPS][MEMBERS][30000], to[GROUPS][MEMBERS][30000];
		void *recvs[GROUPS], *sends[GROUPS * MEMBERS];
		pair_open(&p, some_versions[k]);
		for (int g = 0; g < GROUPS; g++) {
			void *data[MEMBERS], *mhandles[MEMBERS] = {NULL};
			size_t rooms[MEMBERS];
			int tags[MEMBERS];
			for (int m = 0; m < MEMBERS; m++) {
				data[m] = to[g][m];
				rooms[m] = sizeof(to[g][m]);
				tags[m] = 100 + m;
				pattern_fill(
					from[g][m], group_size(g, m), (unsigned)(g * MEMBERS + m));
			}
			recvs[g] = NULL;
			for (uint64_t until = pair_deadline(); !recvs[g]; pair_breathe(until))
				OK(ncclnet_irecv(p.n, p.recv, MEMBERS, data, rooms, tags, mhandles,
					&recvs[g]));
		}
		for (int g = 0; g < GROUPS; g++)
			for (int m = 0; m < MEMBERS; m++) {
				/* 3 and 8 have no common divisor */
				int who = (m * 3 + g) % MEMBERS;
				sends[g * MEMBERS + m] =
					pair_isend(&p, from[g][who], group_size(g, who), 100 + who);
			}
		unsigned left = GROUPS + GROUPS * MEMBERS;
		for (uint64_t until = pair_deadline(); left; pair_breathe(until)) {
			for (int i = GROUPS * MEMBERS - 1; i >= 0; i--) {
				int done = 0, size = -1;
				if (!sends[i])
					continue;
				OK(ncclnet_test(p.n, sends[i], &done, &size));
				if (!done)
					continue;
				int g = i / MEMBERS, who = (i % MEMBERS * 3 + g) % MEMBERS;
				assert_int_equal(size, (int)group_size(g, who));
				sends[i] = NULL;
				left--;
			}
			for (int i = 0; i < GROUPS; i++) {
				int g = (i * 5 + 7) % GROUPS, done = 0, sizes[MEMBERS] = {0};
				if (!recvs[g])
					continue;
				OK(ncclnet_test(p.n, recvs[g], &done, sizes));
				if (!done)
					continue;
				for (int m = 0; m < MEMBERS; m++) {
					assert_int_equal(sizes[m], (int)group_size(g, m));
					pair_verify(to[g][m], group_size(g, m),
						(unsigned)(g * MEMBERS + m));
				}
				recvs[g] = NULL;
				left--;
			}
		}
		pair_close(&p);
	}
}

/* As many as there may be: one more is not now, and overwrites what the pointer had. */
void bound_of_requests(void **unused)
{
	struct pair p;
	static uint8_t from[PLUGIN_REQUESTS][8], to[PLUGIN_REQUESTS][8];
	void *sends[PLUGIN_REQUESTS], *recvs[PLUGIN_REQUESTS], *stale = (void *)0x5157a1e0;
	void *mhandle = NULL, *data = to;
	size_t size = 8;
	int tag = 1;
	pair_open(&p, 9);
	for (int i = 0; i < PLUGIN_REQUESTS; i++) {
		pattern_fill(from[i], 8, (unsigned)i);
		recvs[i] = pair_irecv(&p, to[i], 8, 1);
		sends[i] = pair_isend(&p, from[i], 8, 1);
	}
	OK(p.n->calls->isend(p.n->table, p.send, from, 8, 1, NULL, &stale));
	assert_null(stale);
	stale = NCCL_NET_OPTIONAL_RECV_COMPLETION;
	OK(p.n->calls->irecv(p.n->table, p.recv, 1, &data, &size, &tag, &mhandle, &stale));
	assert_null(stale);
	for (int i = PLUGIN_REQUESTS - 1; i >= 0; i--) {
		pair_wait_two(&p, recvs[i], sends[i], &(int){0}, &(int){0});
		pair_verify(to[i], 8, (unsigned)i);
	}
	/* Outputs are written where a call fails, too. */
	stale = (void *)0x5157a1e0;
	assert_int_not_equal(p.n->calls->isend(p.n->table, p.recv, from, 8, 1, NULL, &stale), 0);
	assert_null(stale);
	stale = (void *)0x5157a1e0;
	assert_int_not_equal(p.n->calls->reg(p.n->table, p.recv, from, 8, 77, &stale), 0);
	assert_null(stale);
	stale = (void *)0x5157a1e0;
	assert_int_not_equal(
		p.n->calls->connect(p.n->table, p.ctx, 0, (char[NCCL_NET_HANDLE_BYTES]){"x"},
			&stale, &(struct nccl_net_device_handle *){NULL}),
		0);
	assert_null(stale);
	stale = (void *)0x5157a1e0;
	OK(p.n->calls->accept(
		p.n->table, p.listen_comm, &stale, &(struct nccl_net_device_handle *){NULL}));
	assert_null(stale);
	stale = (void *)0x5157a1e0;
	OK(p.n->calls->iflush(p.n->table, p.recv, 1, &data, &(int){8}, &mhandle, &stale));
	assert_null(stale);
	pair_message(&p, 9, 1);
	pair_close(&p);
}

void sizes_of_all_kinds(void **unused)
{
	static const size_t sizes[] = {
		1, 8, 63, 4096, 8191, 65535, 65536, 65537, 131073, 1 << 20, (8 << 20) + 5};
	for (size_t k = 0; k < RPWI_ARRAY_LEN(some_versions); k++) {
		struct pair p;
		pair_open(&p, some_versions[k]);
		for (size_t i = 0; i < RPWI_ARRAY_LEN(sizes); i++) {
			IN_CASE("bytes", sizes[i]);
			pair_message(&p, sizes[i], (int)i - 3); /* any int is a tag */
		}
		pair_close(&p);
	}
}

/* What was taken goes on by itself, though the sender never calls again: here 8 MiB of messages,
 * which neither socket buffers nor windows hold; and a long one whose receive comes late. */
void quiet_sender(void **unused)
{
	enum { COUNT = 128, BYTES = 64 << 10 };
	struct pair p;
	uint8_t *from = malloc((size_t)COUNT * BYTES), *to = malloc(BYTES);
	pair_open(&p, 12);
	pattern_fill(from, (size_t)COUNT * BYTES, 11);
	for (int i = 0; i < COUNT; i++)
		pair_isend(&p, from + (size_t)i * BYTES, BYTES, i);
	usleep(100000);
	for (int i = 0; i < COUNT; i++) {
		int size = 0;
		OK(pair_wait(&p, pair_irecv(&p, to, BYTES, i), &size));
		assert_int_equal(size, BYTES);
		for (int k = 0; k < BYTES; k += 97)
			assert_int_equal(to[k], pattern_byte(11, (size_t)i * BYTES + (size_t)k));
	}
	pair_close(&p);
	free(from);
	free(to);
}

/* ---- threads ---- */

enum { PAIRS = 4, ROUNDS = 200, DEPTH = 8 };

static size_t round_size(int i) { return (size_t)(i % 16 ? i * 131 % 9000 : 200000); }

static void *send_many(void *arg)
{
	struct pair *p = arg;
	static const unsigned seed = 77;
	uint8_t *from = malloc(200000);
	pattern_fill(from, 200000, seed);
	void *requests[DEPTH] = {NULL};
	for (int i = 0; i < ROUNDS + DEPTH; i++) {
		IN_CASE("round", i);
		if (requests[i % DEPTH])
			OK(pair_wait(p, requests[i % DEPTH], NULL));
		requests[i % DEPTH] = i < ROUNDS ? pair_isend(p, from, round_size(i), i) : NULL;
	}
	free(from);
	return NULL;
}

static void *recv_many(void *arg)
{
	struct pair *p = arg;
	uint8_t *to[DEPTH];
	void *requests[DEPTH] = {NULL};
	for (int i = 0; i < DEPTH; i++)
		to[i] = malloc(200000);
	for (int i = 0; i < ROUNDS + DEPTH; i++) {
		IN_CASE("round", i);
		if (requests[i % DEPTH]) {
			int size = -1;
			OK(pair_wait(p, requests[i % DEPTH], &size));
			assert_int_equal(size, (int)round_size(i - DEPTH));
			pair_verify(to[i % DEPTH], round_size(i - DEPTH), 77);
		}
		requests[i % DEPTH] =
			i < ROUNDS ? pair_irecv(p, to[i % DEPTH], round_size(i), i) : NULL;
	}
	for (int i = 0; i < DEPTH; i++)
		free(to[i]);
	return NULL;
}

/* NCCL's service thread: registers on comms that others use, connects, closes. */
static _Atomic bool service_stop;
static void *service(void *arg)
{
	struct pair *pairs = arg;
	char data[100];
	for (int i = 0; !service_stop; i++) {
		void *mhandle = NULL, *comm = i & 1 ? pairs[i % PAIRS].send : pairs[i % PAIRS].recv;
		OK(ncclnet_reg(pairs[0].n, comm, data, sizeof(data), NCCL_PTR_HOST, &mhandle));
		OK(ncclnet_dereg(pairs[0].n, comm, mhandle));
		if (i % 100)
			continue;
		struct pair p = {.n = pairs[0].n, .ctx = pairs[0].ctx};
		pair_connect(&p);
		pair_message(&p, 1000, i);
		OK(ncclnet_close_send(p.n, p.send) | ncclnet_close_recv(p.n, p.recv) |
			ncclnet_close_listen(p.n, p.listen_comm));
	}
	return NULL;
}

void comms_and_threads_at_once(void **unused)
{
	struct pair pairs[PAIRS];
	pthread_t senders[PAIRS], receivers[PAIRS], server;
	pair_load(&pairs[0], 12);
	for (int i = 0; i < PAIRS; i++) {
		if (i)
			pairs[i] = (struct pair){.n = pairs[0].n, .ctx = pairs[0].ctx};
		pair_connect(&pairs[i]);
	}
	service_stop = false;
	assert_int_equal(pthread_create(&server, NULL, service, pairs), 0);
	for (int i = 0; i < PAIRS; i++) {
		assert_int_equal(pthread_create(&senders[i], NULL, send_many, &pairs[i]), 0);
		assert_int_equal(pthread_create(&receivers[i], NULL, recv_many, &pairs[i]), 0);
	}
	for (int i = 0; i < PAIRS; i++) {
		pthread_join(senders[i], NULL);
		pthread_join(receivers[i], NULL);
	}
	service_stop = true;
	pthread_join(server, NULL);
	for (int i = PAIRS - 1; i > 0; i--)
		OK(ncclnet_close_send(pairs[i].n, pairs[i].send) |
			ncclnet_close_recv(pairs[i].n, pairs[i].recv) |
			ncclnet_close_listen(pairs[i].n, pairs[i].listen_comm));
	pair_close(&pairs[0]);
}
