/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_tls_test.c - streams of tran_tcp whose endpoints have a secret, with somebody between the two
 * who reads everything, and changes one byte. Both sides and the relay are in this process.
 */
#include <errno.h>
#include <fcntl.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"
#include "tran/tcp/tcp_priv.h"

enum {
	DEADLINE_S = 60,
	STALL_MS = 150,
	BULK = 300 * 1024,
	HOLE = 152 * 1024,
	CONNS_MAX = 8,
	SPY_MAX = 4 << 20
};
static const char text[] = "what is sealed is not to be read by anybody in between";
static const uint8_t secret[2][TRAN_SECRET_LEN] = {{1, 2, 3, 0xfe}, {1, 2, 3, 0xff}};

/* ---- the two sides ---- */

struct half {
	struct tran *t;
	struct tran_ep *ep;
	bool ready;
	int status;
	unsigned failures, frames;
	char why[300];
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t handle_len;
};
static struct half side[2]; /* 0 connects, 1 listens */
static struct op {
	bool done;
	int status;
} ops[3];
static uint8_t *theirs, *ours;
static struct tran_mem *mem;

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
	struct half *h = user;
	assert_int_equal(head_len, 16);
	assert_int_equal(body_len, sizeof text);
	assert_memory_equal(body, text, sizeof text);
	h->frames++;
	return true;
}
static void up_room(void *user) {}
static void up_done(void *user, void *cookie, const struct rpwi_error *e)
{
	*(struct op *)cookie = (struct op){true, e ? e->status : 0};
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

/* ---- the one in between ---- */

static struct {
	int listener, to_port;
	unsigned conns;
	struct conn {
		int fd[2]; /* 0: towards the side that connected */
		size_t count[2];
		struct record {
			uint8_t type;
			unsigned head; /* bytes of its head that went by */
			size_t len;    /* ... and bytes that are still to come */
		} record[2];
	} conn[CONNS_MAX];
	int flip_conn, flip_way; /* -1: only looks */
	size_t flip_at;
	bool flipped,
		/* in_nothing: in the version of a record, or in a change of cipher: RFC 8446 says
		 * that both mean nothing; or the label of an encrypted one becomes "handshake"
		 * or "alert", which GnuTLS takes during the handshake: what it is is inside */
		in_nothing;
	uint8_t *spy;
	size_t spied;
} relay;

static int loopback_socket(uint16_t *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a) | listen(fd, 16) |
				 getsockname(fd, (struct sockaddr *)&a, &len),
		0);
	*port = ntohs(a.sin_port);
	return fd;
}

static int bare_connect(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	return fd;
}

/* Where in a record the next byte is; true: where it means nothing. */
static bool record_step(struct record *r, uint8_t byte, uint8_t flip)
{
	bool nothing = r->head == 1 || r->head == 2 || (r->head && r->type == 0x14);
	nothing |= !r->head && byte == 0x17 && ((byte ^ flip) == 0x16 || (byte ^ flip) == 0x15);
	if (r->head < 5) {
		r->type = r->head ? r->type : byte;
		r->len = r->head >= 3 ? r->len << 8 | byte : 0;
		r->head++;
	} else {
		r->len--;
	}
	if (r->head == 5 && !r->len)
		r->head = 0;
	return nothing;
}

static void relay_way(unsigned n, int way)
{
	static uint8_t bytes[65536];
	struct conn *c = &relay.conn[n];
	if (c->fd[way] < 0)
		return;
	ssize_t r = recv(c->fd[way], bytes, sizeof bytes, MSG_DONTWAIT);
	if (r < 0 && errno == EAGAIN)
		return;
	if (r <= 0) {
		close(c->fd[0]);
		close(c->fd[1]);
		c->fd[0] = c->fd[1] = -1;
		return;
	}
	for (ssize_t i = 0; i < r; i++)
		if (record_step(&c->record[way], bytes[i], (uint8_t)(1u << relay.flip_at % 8)) &&
			relay.flip_at == c->count[way] + (size_t)i && (int)n == relay.flip_conn &&
			way == relay.flip_way)
			relay.in_nothing = true;
	if ((int)n == relay.flip_conn && way == relay.flip_way && relay.flip_at >= c->count[way] &&
		relay.flip_at < c->count[way] + (size_t)r) {
		bytes[relay.flip_at - c->count[way]] ^= (uint8_t)(1u << relay.flip_at % 8);
		relay.flipped = true;
	}
	c->count[way] += (size_t)r;
	size_t kept = RPWI_MIN((size_t)r, SPY_MAX - relay.spied);
	memcpy(relay.spy + relay.spied, bytes, kept);
	relay.spied += kept;
	for (ssize_t at = 0, w; at<r; at += w> 0 ? w : 0) {
		w = send(c->fd[!way], bytes + at, (size_t)(r - at), MSG_NOSIGNAL | MSG_DONTWAIT);
		if (w < 0 && errno != EAGAIN)
			return;
		if (w < 0)
			for (int i = 0; i < 2; i++)
				tran_tcp.progress(side[i].t);
	}
}

static void progress(void)
{
	int fd = relay.listener < 0 ? -1 : accept4(relay.listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0) {
		assert_true(relay.conns < CONNS_MAX);
		relay.conn[relay.conns++] = (struct conn){.fd = {fd, bare_connect(relay.to_port)}};
	}
	for (unsigned n = 0; n < relay.conns; n++)
		for (int way = 0; way < 2; way++)
			relay_way(n, way);
	for (int i = 0; i < 2; i++)
		if (side[i].t)
			tran_tcp.progress(side[i].t);
}
#define UNTIL(x) \
	do { \
		uint64_t end_ns = rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S; \
		while (!(x)) { \
			progress(); \
			if (rpwi_now_ns() > end_ns) \
				fail_msg("never: %s", #x); \
		} \
	} while (0)

/* ---- */

static void make(int i, const uint8_t *with)
{
	struct tran_facts peer = {.address = "127.0.0.1", .transports = "tcp"};
	struct tran *t = side[i].t;
	side[i] = (struct half){.t = t};
	struct tran_control control = {
		.peer = &peer, .active = i == 0, .local = "127.0.0.1", .secret = with};
	assert_int_equal(tran_tcp.ep_make(t, &control, &side[i], &side[i].ep, side[i].handle,
				 &side[i].handle_len),
		0);
}

static void start(unsigned timeout_ms)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(tran_tcp.ep_start(side[i].ep, side[!i].handle, side[!i].handle_len,
					 timeout_ms),
			0);
}

/* Between them stands the relay: its port is in the handle. */
static void relay_begin(void)
{
	uint16_t port;
	relay.listener = loopback_socket(&port);
	relay.to_port = rpwi_get_be16(side[1].handle + 8);
	relay.conns = 0;
	relay.spied = 0;
	relay.flipped = relay.in_nothing = false;
	rpwi_put_be16(side[1].handle + 8, port);
}

static void relay_end(void)
{
	for (unsigned n = 0; n < relay.conns; n++)
		for (int way = 0; way < 2; way++)
			if (relay.conn[n].fd[way] >= 0)
				close(relay.conn[n].fd[way]);
	close(relay.listener);
	relay.listener = -1;
	relay.conns = 0;
}

static int setup(void **state)
{
	struct tran_facts own = {.transports = "tcp"};
	memset(side, 0, sizeof side);
	relay.listener = relay.flip_conn = -1;
	relay.conns = 0;
	relay.spy = relay.spy ? relay.spy : malloc(SPY_MAX);
	theirs = mmap(NULL, BULK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ours = malloc(BULK);
	if (tran_tcp.open(&up, &own, &side[0].t) || tran_tcp.open(&up, &own, &side[1].t))
		return -1;
	pattern_fill(theirs, BULK, 7);
	memcpy(theirs + BULK / 2, text, sizeof text);
	return tran_tcp.mem->add(side[1].t, theirs, BULK, TRAN_READ | TRAN_WRITE, &mem);
}
static void close_both(void)
{
	for (int i = 0; i < 2; i++)
		if (side[i].ep)
			tran_tcp.ep_close(side[i].ep);
	side[0].ep = side[1].ep = NULL;
}
static int teardown(void **state)
{
	close_both();
	tran_tcp.mem->del(side[1].t, mem);
	tran_tcp.close(side[0].t);
	tran_tcp.close(side[1].t);
	munmap(theirs, BULK);
	free(ours);
	return 0;
}

static bool broken(void)
{
	return side[0].failures || side[1].failures || side[0].status || side[1].status;
}

/* A frame each way, then bulk data each way. True: all of it has come. */
static bool talk(void)
{
	uint64_t moved_ns = rpwi_now_ns();
	size_t moved = 0;
	int step = 0;
	memset(ops, 0, sizeof ops);
	memset(ours, 0, BULK);
	while (!broken()) {
		struct iovec iov = {(void *)text, sizeof text};
		if (step == 0 && side[0].ready && side[1].ready) {
			for (int i = 0; i < 2; i++)
				assert_int_equal(tran_tcp.send(side[i].ep, "the head, 16 byte", 16,
							 &iov, 1, sizeof text),
					0);
			assert_int_equal(tran_tcp.rma->transfer(side[0].ep, false, &mem->desc, 0,
						 ours, BULK, NULL, &ops[0]),
				0);
			step++;
		} else if (step == 1 && ops[0].done && side[0].frames && side[1].frames) {
			assert_int_equal(ops[0].status, 0);
			assert_memory_equal(ours, theirs, BULK);
			assert_int_equal(tran_tcp.rma->transfer(side[0].ep, true, &mem->desc, 0,
						 ours, BULK, NULL, &ops[1]),
				0);
			step++;
		} else if (step == 2 && ops[1].done) {
			assert_int_equal(ops[1].status, 0);
			assert_memory_equal(ours, theirs, BULK);
			return true;
		}
		progress();
		size_t now = 0;
		for (unsigned n = 0; n < relay.conns; n++)
			now += relay.conn[n].count[0] + relay.conn[n].count[1];
		if (now != moved || !relay.flipped)
			moved_ns = rpwi_now_ns();
		moved = now;
		if (rpwi_now_ns() - moved_ns > STALL_MS * RPWI_NS_PER_MS)
			return false; /* a length was changed: the rest of a record is waited for */
	}
	return false;
}

static bool meet_by_relay(int conn, int way, size_t at)
{
	make(0, secret[0]);
	make(1, secret[0]);
	relay.flip_conn = conn;
	relay.flip_way = way;
	relay.flip_at = at;
	relay_begin();
	start(5000);
	return talk();
}

static void test_who_only_relays_can_read_nothing(void **state)
{
	assert_true(meet_by_relay(-1, 0, 0));
	assert_true(relay.spied > 2 * BULK);
	assert_null(memmem(relay.spy, relay.spied, text, 16));
	assert_null(memmem(relay.spy, relay.spied, "the head, 16 byte", 16));
	assert_null(memmem(relay.spy, relay.spied, theirs + 1000, 16));
	assert_null(memmem(relay.spy, relay.spied, "RPTG", 4)); /* the greeting */
	assert_true(strstr(((struct tcp_ep *)side[0].ep)->base.path, "TLS 1.3") != NULL);
	close_both();
	relay_end();
}

/* In the handshake, in greeting and words, in frames, in bulk data, in the length of a record:
 * nothing wrong ever comes up, and what was to come does not. */
static void test_a_changed_byte_is_never_taken(void **state)
{
	size_t total[2][2];
	struct rng rng = {test_seed_any()};
	unsigned flips = 0;
	assert_true(meet_by_relay(-1, 0, 0));
	assert_int_equal(relay.conns, 2);
	for (int n = 0; n < 2; n++)
		memcpy(total[n], relay.conn[n].count, sizeof total[n]);
	close_both();
	relay_end();
	for (int n = 0; n < 2; n++)
		for (int way = 0; way < 2; way++)
			for (size_t at = rng_below(&rng, 13); at < total[n][way];
				at += at < 900 ? 13 + rng_below(&rng, 13) : 20011) {
				bool all = meet_by_relay(n, way, at);
				/* A further stream that does not come up is not needed: what came
				 * is right. */
				if (all && relay.flipped && !relay.in_nothing &&
					!(n == 1 && relay.conn[n].count[1] < 1000))
					fail_msg("stream %d, way %d, byte %zu of %zu: it was "
						 "changed, and nobody noticed",
						n, way, at, total[n][way]);
				flips += relay.flipped;
				close_both();
				relay_end();
			}
	printf("%u bytes changed\n", flips);
	assert_true(flips > 50);
}

/* One side with a secret and the other without, or with another: they do not meet. */
static void test_both_have_the_same_secret_or_they_do_not_meet(void **state)
{
	static const struct {
		const uint8_t *a, *b;
	} pairs[] = {{NULL, secret[0]}, {secret[0], NULL}, {secret[0], secret[1]}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(pairs); i++) {
		IN_CASE("row", i);
		make(0, pairs[i].a);
		make(1, pairs[i].b);
		start(1500);
		UNTIL(side[0].ready);
		assert_true(side[0].status < 0);
		close_both();
	}
	for (int i = 0; i < 2; i++) { /* and then those that do */
		make(0, i ? secret[1] : NULL);
		make(1, i ? secret[1] : NULL);
		start(5000);
		UNTIL(side[0].ready && side[1].ready);
		assert_int_equal(side[0].status | side[1].status, 0);
		close_both();
	}
}

/* Who knows everything but the secret, the nonce too, and speaks in the clear. */
static void test_nothing_in_the_clear_is_taken(void **state)
{
	make(0, secret[0]);
	make(1, secret[0]);
	int fd = bare_connect(rpwi_get_be16(side[1].handle + 8));
	struct tcp_greeting g = {.number = ((struct tcp_ep *)side[1].ep)->number};
	uint8_t bytes[TCP_GREETING_LEN], c;
	memcpy(g.nonce, ((struct tcp_ep *)side[1].ep)->nonce, TCP_NONCE_LEN);
	tcp_put_greeting(bytes, &g);
	assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
	UNTIL(recv(fd, &c, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
	assert_int_equal(((struct tcp *)side[1].t)->strangers_refused, 1);
	close(fd);
	/* The stranger has not spoiled it for the one who has the secret. */
	start(5000);
	UNTIL(side[0].ready && side[1].ready);
	assert_int_equal(side[0].status | side[1].status, 0);
}

/* Strangers that begin a handshake and are silent, or say nonsense in it: they go, and others come
 * in. */
static void test_strangers_in_the_handshake(void **state)
{
	static const uint8_t hellos[][8] = {{0x16}, {0x16, 3, 1, 0x40, 0},
		{0x16, 3, 3, 0, 3, 1, 2, 3}, {0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
	int fd[RPWI_ARRAY_LEN(hellos)];
	make(0, secret[0]);
	make(1, secret[0]);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(hellos); i++) {
		IN_CASE("row", i);
		fd[i] = bare_connect(rpwi_get_be16(side[1].handle + 8));
		assert_int_equal(send(fd[i], hellos[i], i ? sizeof hellos[i] : 1, MSG_NOSIGNAL),
			i ? sizeof hellos[i] : 1);
		progress();
	}
	start(5000);
	UNTIL(side[0].ready && side[1].ready);
	assert_int_equal(side[0].status | side[1].status, 0);
	/* the silent one within TCP_STRANGER_MS */
	UNTIL(((struct tcp *)side[1].t)->strangers_refused == RPWI_ARRAY_LEN(hellos));
	for (size_t i = 0; i < RPWI_ARRAY_LEN(hellos); i++)
		close(fd[i]);
}

/* Registered memory that the program has unmapped: a get of it and a put into it are refused, and
 * nobody crashes. */
static void test_unmapped_memory(void **state)
{
	make(0, secret[0]);
	make(1, secret[0]);
	start(5000);
	UNTIL(side[0].ready && side[1].ready);
	assert_ptr_equal(mmap(theirs + HOLE, 4096, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		theirs + HOLE);
	memset(ops, 0, sizeof ops);
	for (int put = 0; put < 2; put++) {
		assert_int_equal(tran_tcp.rma->transfer(side[0].ep, put, &mem->desc, 0, ours, BULK,
					 NULL, &ops[put]),
			0);
		UNTIL(ops[put].done);
		assert_int_equal(ops[put].status, RPW_ERR_ACCESS);
	}
	assert_int_equal(
		tran_tcp.rma->transfer(side[0].ep, false, &mem->desc, 0, ours, 4096, NULL, &ops[2]),
		0);
	UNTIL(ops[2].done);
	assert_int_equal(ops[2].status, 0);
}

/* A listener is at the address that the control connection came to, and at no other; several have
 * one each. */
static void test_listens_where_the_peer_came_to(void **state)
{
	static const char *const local[] = {"127.0.0.1", "127.0.0.2", "::1", "127.0.0.2", ""};
	static const struct {
		const char *to;
		bool at[5];
	} others[] = {{"127.0.0.1", {true, false, false, false, true}},
		{"127.0.0.2", {false, true, false, true, true}},
		{"127.0.0.3", {false, false, false, false, true}}};
	struct tran_ep *ep[RPWI_ARRAY_LEN(local)];
	uint16_t port[RPWI_ARRAY_LEN(local)];
	for (size_t i = 0; i < RPWI_ARRAY_LEN(local); i++) {
		IN_CASE("row", i);
		struct tran_facts peer = {.address = "127.0.0.1", .transports = "tcp"};
		struct tran_control control = {.peer = &peer, .local = local[i]};
		uint8_t handle[TRAN_HANDLE_MAX];
		size_t len;
		int rc = tran_tcp.ep_make(side[1].t, &control, &side[1], &ep[i], handle, &len);
		if (rc && rpwi_last_error()->sys == EADDRNOTAVAIL && strchr(local[i], ':')) {
			/* a host without IPv6 */
			ep[i] = NULL;
			port[i] = 0;
			continue;
		}
		assert_int_equal(rc, 0);
		port[i] = rpwi_get_be16(handle + 8);
		for (size_t k = 0; k < RPWI_ARRAY_LEN(others); k++) {
			IN_CASE("row", k);
			struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port[i])};
			inet_pton(AF_INET, others[k].to, &a.sin_addr);
			int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			assert_int_equal(
				connect(fd, (struct sockaddr *)&a, sizeof a) == 0, others[k].at[i]);
			close(fd);
		}
	}
	assert_int_equal(port[1], port[3]);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(local); i++)
		if (ep[i])
			tran_tcp.ep_close(ep[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_who_only_relays_can_read_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_changed_byte_is_never_taken, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_both_have_the_same_secret_or_they_do_not_meet, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_nothing_in_the_clear_is_taken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_strangers_in_the_handshake, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unmapped_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_listens_where_the_peer_came_to, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
