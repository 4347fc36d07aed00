/* talk_test.c - two sides that mean well: connecting, messages of all sizes, queues, ends. */
#include "pair.h"

static bool both_connected(void *arg)
{
	struct peer **p = arg;
	return p[0]->connected && p[1]->side->accepted;
}

static void test_hello_and_messages(void **state)
{
	unsigned before = descriptors();
	struct side *a = side_new(NULL), *b = side_new(NULL);
	struct boot_listener *l = side_listen(b, "127.0.0.1:0");
	struct peer *pa = side_connect(a, "127.0.0.1", boot_listener_port(l), 10000), *both[2] = {pa, &b->peer[0]};
	b->peer[0].side = b;
	assert_true(until(a, b, both_connected, both));
	struct peer *pb = &b->peer[0];
	assert_memory_equal(boot_peer(pa->c)->host_id, b->own.host_id, 16);
	assert_int_equal(boot_peer(pb->c)->pid, getpid());
	assert_string_equal(boot_peer(pa->c)->transports, "shm,tcp");
	assert_string_equal(boot_peer(pb->c)->address, "127.0.0.1");
	assert_non_null(strstr(boot_peer_text(pa->c), " 127.0.0.1:"));
	assert_int_equal(send_pattern(pa->c, 7, 100), 0);
	while (!pb->messages)
		boot_progress(a->b), boot_progress(b->b);
	assert_int_equal(pb->bad, 0);
	assert_int_equal(pb->bytes, 100);
	side_free(a);
	while (!pb->gone)
		boot_progress(b->b);
	assert_int_equal(pb->status, RPW_ERR_PEER_GONE);
	side_free(b);
	assert_int_equal(descriptors(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_hello_and_messages)};
	ns_enter();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
