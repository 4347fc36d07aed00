/* SPDX-License-Identifier: BSD-3-Clause */
/* cancel_cm_test.c - a thread that is canceled while it waits for an event of rdma_cm, as servers
 * end theirs (rping): the channel, and all others, go on, and nothing of it is left behind. */
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <unistd.h>

#include "lib/test.h"
#include "lib/descriptors.h"

/* librdmacm allocates the event before it waits for it, and has no handler of cancellation. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:rdma_get_cm_event\n"; }

enum { PORT = 18651, ROUNDS = 20, LIMIT_S = 30 };

static void *waits(void *channel)
{
	struct rdma_cm_event *e;
	while (!rdma_get_cm_event(channel, &e))
		rdma_ack_cm_event(e);
	return NULL;
}

static void one_round(int i)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(PORT),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	pthread_t t;
	assert_non_null(ch);
	assert_int_equal(pthread_create(&t, NULL, waits, ch), 0);
	usleep((unsigned)(i * 200));
	assert_int_equal(pthread_cancel(t), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

static void a_thread_that_waits_for_an_event_ends(void **state)
{
	alarm(LIMIT_S);
	one_round(1);
	unsigned before = open_descriptors();
	for (int i = 0; i < ROUNDS; i++)
		one_round(i);
	/* a channel that is left has three; the device's own connections come and go */
	assert_true(open_descriptors() < before + ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_that_waits_for_an_event_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
