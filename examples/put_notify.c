/* SPDX-License-Identifier: BSD-3-Clause */
/* put_notify.c - one side writes into the other's memory, which is told when the bytes are there.
 *
 *   put_notify listen ADDRESS [BLOCKS]     for example  put_notify listen :7473
 *   put_notify connect ADDRESS [BLOCKS]                 put_notify connect 127.0.0.1:7473
 *
 * The listening side has the memory; it sends a packed remote key, by which the other one can reach
 * it. From then on it takes no part: it posts no receives. */
#include "example.h"

enum { BLOCK_BYTES = 100 * 1000, BLOCKS_MAX = 1000 };
#define TAG_KEY 1

static rpw_endpoint *peer;
static unsigned char *memory, has_come[BLOCKS_MAX];
static unsigned long blocks = 20, arrived;

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	(void)l, (void)arg;
	if (peer)
		rpw_endpoint_destroy(ep); /* one is enough */
	else
		peer = ep;
}

/* A put has arrived: its bytes are in our memory. `block` is the number that the peer gave with it,
 * which may be anything. Puts have no order among each other (rpw_endpoint_fence would give them
 * one), so neither have these calls. */
static void notified(rpw_endpoint *ep, uint64_t block, size_t len, void *arg)
{
	(void)ep, (void)arg;
	if (block >= blocks || has_come[block] || len != BLOCK_BYTES) {
		fprintf(stderr, "told of %zu bytes in block %llu, after %lu blocks\n", len,
			(unsigned long long)block, arrived);
		exit(1);
	}
	has_come[block] = 1;
	check(memory + block * BLOCK_BYTES, BLOCK_BYTES, block);
	arrived++;
}

static void be_written_to(rpw_context *c, const char *address)
{
	unsigned char key[RPW_RKEY_BYTES_MAX];
	rpw_memory *m;
	rpw_request *req;

	/* Memory of ropeway's own, since a process on the same host can map that;
	 * rpw_memory_register would take any of ours. */
	must(rpw_memory_allocate(c, blocks * BLOCK_BYTES, RPW_REMOTE_WRITE, &m),
		"rpw_memory_allocate");
	memory = rpw_memory_address(m);
	rpw_context_on_notify(c, notified, NULL);
	rpw_listener *l = listen_on(c, address, accepted, NULL);
	while (!peer)
		turn(c);
	print_path(peer);
	int key_len = must(rpw_rkey_pack(m, key, sizeof(key)), "rpw_rkey_pack");
	must(rpw_finish(
		     rpw_send(peer, key, (size_t)key_len, TAG_KEY, &req), &req, TIMEOUT_MS, NULL),
		"rpw_send");

	while (arrived < blocks)
		turn(c);
	printf("%lu blocks of %d bytes arrived, each as it should be\n", arrived, BLOCK_BYTES);
	/* The writer waits for this: an empty message, which says that all is well. */
	must(rpw_finish(rpw_send(peer, NULL, 0, TAG_KEY, &req), &req, TIMEOUT_MS, NULL),
		"rpw_send");
	wait_until_closed(c, peer);
	rpw_endpoint_destroy(peer);
	rpw_listener_destroy(l);
	rpw_memory_destroy(m);
}

static void write_to(rpw_context *c, const char *address)
{
	static unsigned char key_bytes[RPW_RKEY_BYTES_MAX];
	unsigned char *block = malloc(blocks * BLOCK_BYTES);
	rpw_request *req, **put = calloc(blocks, sizeof(*put));
	rpw_rkey *key;

	if (!block || !put)
		exit(1);
	must(rpw_finish(rpw_endpoint_create(c, address, NULL, &peer, &req), &req, TIMEOUT_MS, NULL),
		"rpw_endpoint_create");
	print_path(peer);
	rpw_completion done = RPW_COMPLETION_INIT;

	must(rpw_finish(
		     rpw_recv(c, peer, key_bytes, sizeof(key_bytes), TAG_KEY, ~(uint64_t)0, &req),
		     &req, TIMEOUT_MS, &done),
		"rpw_recv");
	must(rpw_rkey_unpack(peer, key_bytes, done.length, &key), "rpw_rkey_unpack");

	/* All are under way at once, so each needs a buffer of its own until it is complete. */
	for (unsigned long i = 0; i < blocks; i++) {
		fill(block + i * BLOCK_BYTES, BLOCK_BYTES, i);
		must(rpw_put_notify(peer, block + i * BLOCK_BYTES, BLOCK_BYTES, key,
			     i * BLOCK_BYTES, i, &put[i]),
			"rpw_put_notify");
	}
	must(rpw_request_wait_all(c, put, blocks, TIMEOUT_MS), "rpw_request_wait_all");
	for (unsigned long i = 0; i < blocks; i++)
		rpw_request_destroy(put[i]); /* NULL for one that was complete at once */
	must(rpw_finish(rpw_recv(c, peer, NULL, 0, TAG_KEY, ~(uint64_t)0, &req), &req, TIMEOUT_MS,
		     NULL),
		"rpw_recv");
	printf("%lu blocks were put, and the peer has checked them\n", blocks);
	rpw_rkey_destroy(key);
	rpw_endpoint_destroy(peer);
	free(put);
	free(block);
}

int main(int argc, char **argv)
{
	rpw_context *c;

	if (argc < 3 || (strcmp(argv[1], "listen") != 0 && strcmp(argv[1], "connect") != 0)) {
		fprintf(stderr, "Usage: put_notify listen|connect ADDRESS [BLOCKS]\n");
		return 2;
	}
	if (argc > 3)
		blocks = strtoul(argv[3], NULL, 10);
	if (blocks > BLOCKS_MAX) {
		fprintf(stderr, "put_notify: at most %d blocks\n", BLOCKS_MAX);
		return 2;
	}
	must(rpw_context_create(NULL, &c), "rpw_context_create");
	if (!strcmp(argv[1], "listen"))
		be_written_to(c, argv[2]);
	else
		write_to(c, argv[2]);
	rpw_context_destroy(c);
	return 0;
}
