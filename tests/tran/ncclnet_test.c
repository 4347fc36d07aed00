/* SPDX-License-Identifier: BSD-3-Clause */
/* ncclnet_test.c - what is special to tran_ncclnet: peers that break the rules, garbled handles,
 * strangers whom the plugin lets in, an accept that never comes back, memory that is released under
 * the plugin's hands. ncclnet_test ONESTREAM QUIRK, the plugins of tests/nccl. Both sides are here,
 * in one thread. */
#include "emulated_frames.h"
#include "lib/test.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"
#include "tran/ncclnet/nt_priv.h"

enum { DEADLINE_S = 30, REGION = 4096 };

struct op {
	bool done;
	int status;
};
struct half {
	struct tran *t;
	struct tran_ep *ep;
	bool ready;
	unsigned failures, frames;
	int status;
	char why[400];
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t handle_len;
};
static struct half side[2]; /* 0 breaks the rules, 1 suffers it */
static char onestream[256], quirk[256];

static void up_ready(void *user, const struct rpwi_error *e)
{
	int status = e ? e->status : 0;
	const char *why = e ? e->text : "";
	struct half *h = user;
	assert_false(h->ready);
	h->ready = true;
	h->status = status;
	snprintf(h->why, sizeof h->why, "%s", why);
}
static bool up_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	assert_true(head_len <= TRAN_HEAD_MAX && body_len <= NT_FRAME_MAX);
	((struct half *)user)->frames++;
	return true;
}
static void up_room(void *user) {}
static void up_done(void *user, void *cookie, const struct rpwi_error *e)
{
	int status = e ? e->status : 0;
	struct op *op = cookie;
	assert_false(op->done);
	*op = (struct op){true, status};
}
static void up_failed(void *user, const struct rpwi_error *e)
{
	int status = e ? e->status : 0;
	const char *why = e ? e->text : "";
	struct half *h = user;
	h->failures++;
	h->status = status;
	snprintf(h->why, sizeof h->why, "%s", why);
}
static const struct tran_up up = {up_ready, up_frame, NULL, up_room, up_done, up_failed, NULL};

static void progress(void)
{
	for (int i = 0; i < 2; i++)
		tran_ncclnet.progress(side[i].t);
}
#define UNTIL(x) \
	do { \
		uint64_t end_ns = rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S; \
		while (!(x)) { \
			progress(); \
			if (rpwi_now_ns() > end_ns) \
				fail_msg("never: %s (%s, %s)", #x, side[0].why, side[1].why); \
		} \
	} while (0)

static void make(int i)
{
	struct tran_facts peer = {.address = "127.0.0.1", .transports = "ncclnet"};
	side[i] = (struct half){.t = side[i].t};
	assert_int_equal(tran_ncclnet.ep_make(side[i].t,
				 &(struct tran_control){.peer = &peer, .active = i == 0}, &side[i],
				 &side[i].ep, side[i].handle, &side[i].handle_len),
		0);
}
static void start(int i, unsigned timeout_ms)
{
	assert_int_equal(
		tran_ncclnet.ep_start(side[i].ep, side[!i].handle, side[!i].handle_len, timeout_ms),
		0);
}
static void close_both(void)
{
	for (int i = 0; i < 2; i++)
		if (side[i].ep)
			tran_ncclnet.ep_close(side[i].ep);
	side[0].ep = side[1].ep = NULL;
}
static void connect_both(void)
{
	close_both();
	make(0);
	make(1);
	start(0, 20000);
	start(1, 20000);
	UNTIL(side[0].ready && side[1].ready);
	assert_int_equal(side[0].status, 0);
	assert_int_equal(side[1].status, 0);
}

static int open_with(const char *plugin)
{
	struct tran_facts own = {.transports = "ncclnet"};
	snprintf(own.plugin, sizeof own.plugin, "%s", plugin);
	memset(side, 0, sizeof side);
	return tran_ncclnet.open(&up, &own, &side[0].t) || tran_ncclnet.open(&up, &own, &side[1].t);
}
static void quirk_use(const char *list)
{
	struct nt_load *l = (struct nt_load *)((struct nt *)side[0].t)->load;
	void (*use)(const char *) = (void (*)(const char *))dlsym(l->n->library, "quirk_use");
	assert_non_null(use);
	use(list);
}
static int setup(void **state) { return open_with(onestream); }
static int setup_quirk(void **state) { return open_with(quirk); }
static int teardown(void **state)
{
	close_both();
	tran_ncclnet.close(side[0].t);
	tran_ncclnet.close(side[1].t);
	return 0;
}

/* ---- frames ---- */

/* As side 0 would send it, whatever it is. */
static void send_raw(const uint8_t *batch, size_t len)
{
	struct nt_ep *ep = (struct nt_ep *)side[0].ep;
	assert_true(ep->fill == ep->post && !ep->filled && len <= NT_SLOT_LEN);
	uint8_t *slot = ep->buffers + (size_t)(ep->fill % NT_REQUESTS) * NT_SLOT_LEN;
	memcpy(slot, batch, len);
	assert_non_null(nt_queue_post(&ep->out, slot, len, ep->out_reg->mhandle));
	ep->fill = ++ep->post;
}

static size_t item(uint8_t *p, size_t at, uint8_t kind, uint8_t answer, uint16_t head_len,
	uint32_t id, uint64_t value)
{
	nt_put_item(p + at, &(struct nt_item){.kind = kind,
				    .answer = answer,
				    .head_len = head_len,
				    .id = id,
				    .len = value});
	return at + NT_ITEM_LEN;
}

static void seal(uint8_t *p, size_t len, uint32_t number)
{
	rpwi_put_be32(p, (uint32_t)len);
	rpwi_put_be32(p + 4, number);
}

static void peers_that_break_the_rules(void **state)
{
	static const struct {
		uint32_t len, number; /* len 0: what it is */
		uint8_t kind, answer;
		uint16_t head_len;
		uint64_t value;
		size_t more;
		unsigned times;
		const char *says;
	} bad[] = {
		{7, 0, 0, 0, 0, 0, 0, 0, "not as long as it says"},
		{1 << 20, 0, 0, 0, 0, 0, 0, 0, "not as long as it says"},
		{9, 0, NT_FRAME, 0, 0, 0, 0, 1, "not as long as it says"},
		{0, 1, NT_FRAME, 0, 0, 0, 0, 1, "out of order"},
		{0, 0, 0xb0, 0, 0, 0, 0, 1, "unknown kind"},
		{0, 0, NT_LEAVE + 1, 0, 0, 0, 0, 1, "unknown kind"},
		{0, 0, NT_FRAME, 0, TRAN_HEAD_MAX + 1, 0, TRAN_HEAD_MAX + 1, 1, "head longer"},
		{0, 0, NT_FRAME, 0, 4, 5, 8, 1, "beyond its batch"},
		{0, 0, NT_FRAME, 0, 0, NT_FRAME_MAX + 1, 100, 1, "beyond the limit"},
		{0, 0, NT_FRAME, 0, 0, UINT64_MAX, 0, 1, "beyond the limit"},
		{0, 0, NT_FRAME, 1, 0, 0, 0, 1, "unknown answer"},
		{0, 0, NT_BULK, 0, 0, NT_CHUNK_MAX + 1, 0, 1, "beyond the limit"},
		{0, 0, NT_BULK, 0, 0, UINT64_MAX, 0, 1, "beyond the limit"},
		{0, 0, NT_BULK, NT_NO_ACCESS + 1, 0, 0, 0, 1, "unknown answer"},
		{0, 0, NT_BULK, 0, 1, 0, 0, 1, "head longer"},
		{0, 0, NT_BULK, 0, 0, 100000, 0, 1, "that was not requested"},
		{0, 0, NT_BULK, NT_NO_ACCESS, 0, 0, 0, 1, "that was not requested"},
		{0, 0, NT_LEAVE, 0, 0, 1, 0, 1, "beyond the limit"},
	};
	static uint8_t p[NT_SLOT_LEN];
	for (size_t i = 0; i < RPWI_ARRAY_LEN(bad); i++) {
		IN_CASE("row", i);
		connect_both();
		size_t at = NT_BATCH_LEN;
		memset(p, 0, sizeof p);
		for (unsigned k = 0; k < bad[i].times; k++)
			at = item(p, at, bad[i].kind, bad[i].answer, bad[i].head_len, k + 1,
				     bad[i].value) +
			     bad[i].more;
		seal(p, bad[i].len ? bad[i].len : at, bad[i].number);
		send_raw(p, at);
		UNTIL(side[1].failures);
		if (side[1].status != RPW_ERR_PROTOCOL || !strstr(side[1].why, bad[i].says))
			fail_msg("case %zu: \"%s\" was expected: %d, %s", i, bad[i].says,
				side[1].status, side[1].why);
		assert_int_equal(side[1].failures, 1);
	}
}

enum { FRAME = 1, GET = TRAN_OWN_HEADS, PUT, ADD, SWAP };

/* Good batches with some bytes turned: taken or refused, and nothing is written where the peer may
 * not. */
static void garbled_frames_do_no_harm(void **state)
{
	static uint8_t memory[3 * REGION], before[3 * REGION], p[NT_SLOT_LEN];
	struct tran_mem *m, *read_only;
	pattern_fill(before, sizeof before, 4);
	memcpy(memory, before, sizeof memory);
	assert_int_equal(tran_ncclnet.mem->add(side[1].t, memory + REGION, REGION / 2,
				 TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &m),
		0);
	assert_int_equal(tran_ncclnet.mem->add(side[1].t, memory + REGION + REGION / 2, REGION / 2,
				 TRAN_READ, &read_only),
		0);
	unsigned refused = 0, rounds = 300;
	for (unsigned round = 0; round < rounds; round++) {
		IN_CASE("round", round);
		struct rng rng = {round};
		IN_CASE("round", round);
		connect_both();
		size_t at = NT_BATCH_LEN;
		memset(p, 0, sizeof p);
		static const uint8_t kinds[] = {FRAME, PUT, GET, ADD, SWAP, PUT};
		for (unsigned k = 0; k < 6; k++) {
			bool wrong = round % 3 == 0 && k == 5;
			size_t len = kinds[k] == ADD || kinds[k] == SWAP ? 8 : 200 + k,
			       body = kinds[k] == GET ? 0
				      : len == 8      ? 16
						      : len;
			struct ask a = {.kind = kinds[k],
				.id = (k + 1) << 7 | k,
				.offset = wrong ? 8 : 64 * k,
				.len = len};
			const uint8_t *desc = (wrong ? read_only : m)->desc.bytes;
			memcpy(&a.slot, desc + 4, 4);
			memcpy(&a.key, desc + 8, 8);
			at = item(p, at, NT_FRAME, 0, sizeof a, 0, body);
			memcpy(p + at, &a, sizeof a);
			at += sizeof a + body;
		}
		seal(p, at, 0);
		for (unsigned k = 0; k < 1 + round % 4; k++)
			p[NT_BATCH_LEN + rng_below(&rng, at - NT_BATCH_LEN)] ^=
				(uint8_t)(1 + rng_below(&rng, 255));
		send_raw(p, at);
		struct nt_ep *victim = (struct nt_ep *)side[1].ep;
		UNTIL(side[1].failures || victim->in_number);
		for (int i = 0; i < 20; i++)
			progress();
		refused += side[1].failures;
		assert_true(!side[1].failures || side[1].status == RPW_ERR_PROTOCOL ||
			    side[1].status == RPW_ERR_UNREACHABLE);
		assert_memory_equal(memory, before, REGION);
		assert_memory_equal(memory + REGION + REGION / 2, before + REGION + REGION / 2,
			REGION + REGION / 2);
	}
	assert_true(refused > 0 && refused < rounds);
	close_both();
	tran_ncclnet.mem->del(side[1].t, m);
	tran_ncclnet.mem->del(side[1].t, read_only);
}

/* ---- handles ---- */

static void garbled_handles_are_refused(void **state)
{
	uint8_t bad[TRAN_HANDLE_MAX];
	for (size_t i = 0;; i++) {
		make(0);
		make(1);
		memcpy(bad, side[0].handle, sizeof bad);
		size_t len = side[0].handle_len;
		if (i < len)
			bad[i] ^= (uint8_t)(1 + i % 255);
		else if (i < len + 3)
			len = i == len ? 0 : i == len + 1 ? len - 1 : len + 1;
		else
			break;
		assert_int_equal(tran_ncclnet.ep_start(side[1].ep, bad, len, 20000), 0);
		progress();
		assert_true(side[1].ready);
		assert_int_equal(side[1].status, RPW_ERR_PROTOCOL);
		assert_non_null(strstr(side[1].why, "the peer's"));
		close_both();
	}
	close_both();
}

static void other_plugins_and_versions_are_refused_by_name(void **state)
{
	for (int i = 0; i < 3; i++) {
		struct nt_handle h;
		char why[200];
		make(0);
		make(1);
		assert_int_equal(
			nt_get_handle(side[0].handle, side[0].handle_len, &h, why, sizeof why), 0);
		if (i == 0)
			h.abi = 5;
		else if (i == 1)
			snprintf(h.name, sizeof h.name, "Foreign\x1b[2J");
		else
			h.bytes = 64;
		size_t len = nt_put_handle(side[0].handle, &h);
		assert_int_equal(tran_ncclnet.ep_start(side[1].ep, side[0].handle, len, 20000), 0);
		progress();
		assert_int_equal(side[1].status, RPW_ERR_REFUSED);
		assert_non_null(strstr(
			side[1].why, i == 0   ? "OneStream with API v5, this side OneStream with v8"
				     : i == 1 ? "Foreign?[2J with API v8"
					      : "OneStream with API v8"));
		close_both();
	}
}

/* ---- connecting ---- */

/* onestream's handle has its port at 16. */
static uint16_t port_of(const struct half *h, int which)
{
	struct nt_handle parts;
	char why[200];
	uint32_t port;
	assert_int_equal(nt_get_handle(h->handle, h->handle_len, &parts, why, sizeof why), 0);
	memcpy(&port, parts.plugin[which] + 16, 4);
	return (uint16_t)port;
}

static int stranger(uint16_t port, const void *says, size_t len)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(send(fd, says, len, MSG_NOSIGNAL), len);
	return fd;
}

/* The plugin takes everybody, so who somebody is shows in what he says first. */
static void strangers_are_shown_out(void **state)
{
	struct {
		uint64_t hello[2], len;
		uint8_t text[NT_HELLO_LEN];
	} words = {.len = NT_HELLO_LEN};
	quirk_use("anybody");
	make(0);
	make(1);
	pattern_fill(words.hello, sizeof words.hello, 8);
	nt_put_hello(words.text, 8, 0, (uint8_t[NT_NONCE_LEN]){1}, (uint8_t[NT_NONCE_LEN]){2});
	int fds[] = {stranger(port_of(&side[1], 0), &words, sizeof words),
		stranger(port_of(&side[1], 0), "", 0),
		stranger(port_of(&side[1], 1), "GET / HTTP/1.1\r\n\r\n        ", 26)};
	close(fds[1]);
	start(0, 20000);
	start(1, 20000);
	UNTIL(side[0].ready && side[1].ready);
	assert_int_equal(side[0].status, 0);
	assert_int_equal(side[1].status, 0);
	assert_int_equal(tran_ncclnet.send(side[0].ep, "head", 4, NULL, 0, 0), 0);
	UNTIL(side[1].frames == 1);
	close(fds[0]);
	close(fds[2]);
}

/* Closing does not wait for it. */
static void an_accept_that_does_not_come_back(void **state)
{
	static const char *const how[] = {"blocks", "stuck"};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(how); i++) {
		IN_CASE("row", i);
		quirk_use(how[i]);
		make(0);
		make(1);
		start(1, 300); /* and nobody comes */
		UNTIL(side[1].ready);
		assert_int_equal(side[1].status, RPW_ERR_TIMEOUT);
		assert_non_null(strstr(side[1].why, "is still in accept"));
		close_both();
		make(0);
		make(1);
		start(1, 20000);
		for (int k = 0; k < 100; k++)
			progress();
		close_both();
	}
}

/* ---- memory ---- */

/* The peer asked for it and does not take it: after a while the endpoint goes, the memory is free,
 * and no byte of it is read any more. */
static void memory_that_the_peer_does_not_take(void **state)
{
	enum { LEN = 24 << 20 };
	uint8_t *mine = malloc(LEN), *theirs = malloc(LEN);
	struct tran_mem *m;
	struct op op = {0}, second = {0};
	connect_both();
	pattern_fill(theirs, LEN, 1);
	assert_int_equal(tran_ncclnet.mem->add(side[1].t, theirs, LEN, TRAN_READ, &m), 0);
	assert_int_equal(
		tran_ncclnet.rma->transfer(side[0].ep, false, &m->desc, 0, mine, LEN, NULL, &op),
		0);
	const struct nt_ep *victim = (const struct nt_ep *)side[1].ep;
	for (int i = 0; i < 1000 && rpwi_list_empty(&victim->bulks); i++)
		progress();
	for (int i = 0; i < 1000; i++)
		tran_ncclnet.progress(side[1].t);
	assert_false(rpwi_list_empty(&victim->bulks));
	tran_ncclnet.mem->del(side[1].t, m);
	free(theirs);
	UNTIL(side[1].failures);
	assert_non_null(strstr(side[1].why,
		"memory was released while plugin OneStream v8 still read it for the peer"));
	UNTIL(side[0].failures);
	assert_false(op.done);
	assert_true(tran_ncclnet.rma->transfer(side[0].ep, false, &(struct tran_desc){0}, 0, mine,
			    8, NULL, &second) < 0);
	close_both();
	free(mine);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	snprintf(onestream, sizeof onestream, "%s@v8", argv[1]);
	snprintf(quirk, sizeof quirk, "%s@v8", argv[2]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(peers_that_break_the_rules, setup, teardown),
		cmocka_unit_test_setup_teardown(garbled_frames_do_no_harm, setup, teardown),
		cmocka_unit_test_setup_teardown(garbled_handles_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			other_plugins_and_versions_are_refused_by_name, setup, teardown),
		cmocka_unit_test_setup_teardown(strangers_are_shown_out, setup_quirk, teardown),
		cmocka_unit_test_setup_teardown(
			an_accept_that_does_not_come_back, setup_quirk, teardown),
		cmocka_unit_test_setup_teardown(
			memory_that_the_peer_does_not_take, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
