/* tcp_test.c - what is special to tran_tcp: strangers, impostors, peers that break the rules, resets, sockets that take little at a time, memory that goes away.
 * Both sides are in this process; where the peer has to misbehave, it is a bare socket that knows the nonce.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"
#include "tran/tcp/tcp_priv.h"

enum { DEADLINE_S = 20, LARGE = 3 << 20 };

struct op {
	bool done;
	int status;
};
struct half {
	struct tran *t;
	struct tran_ep *ep;
	bool ready, room;
	unsigned failures, frames;
	int status;
	char why[300];
	uint64_t seed;
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t handle_len;
};
static struct half side[2]; /* 0 connects, 1 listens */

static void up_ready(void *user, int status, const char *why)
{
	struct half *h = user;
	assert_false(h->ready);
	h->ready = true;
	h->status = status;
	snprintf(h->why, sizeof h->why, "%s", why);
}
static size_t nth_len(unsigned n) { return (size_t)n * 7919 % 70000; }
static void *mapped(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static bool up_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct half *h = user;
	uint64_t n = h->frames++;
	assert_int_equal(head_len, 24);
	assert_int_equal(body_len, nth_len((unsigned)n));
	assert_true(pattern_check(head, head_len, h->seed + 2 * n, 0) < 0);
	assert_true(pattern_check(body, body_len, h->seed + 2 * n + 1, 0) < 0);
	return true;
}
static void up_room(void *user) { ((struct half *)user)->room = true; }
static void up_done(void *user, void *cookie, int status)
{
	struct op *op = cookie;
	assert_false(op->done);
	*op = (struct op){true, status};
}
static void up_failed(void *user, int status, const char *why)
{
	struct half *h = user;
	h->failures++;
	h->status = status;
	snprintf(h->why, sizeof h->why, "%s", why);
}
static const struct tran_up up = {up_ready, up_frame, up_room, up_done, up_failed};

static void progress(void)
{
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

static struct tcp *tcp(int i) { return (struct tcp *)side[i].t; }
static struct tcp_ep *ep(int i) { return (struct tcp_ep *)side[i].ep; }

static void make(int i)
{
	struct tran_facts peer = {.address = "127.0.0.1", .transports = "tcp"};
	struct tran *t = side[i].t;
	side[i] = (struct half){.t = t, .seed = 1000000 * (uint64_t)(1 + !i)};
	assert_int_equal(
		tran_tcp.ep_make(t, &(struct tran_control){.peer = &peer, .active = i == 0},
			&side[i], &side[i].ep, side[i].handle, &side[i].handle_len),
		0);
}
static void start(int i, unsigned timeout_ms)
{
	assert_int_equal(
		tran_tcp.ep_start(side[i].ep, side[!i].handle, side[!i].handle_len, timeout_ms), 0);
}
static void connect_both(void)
{
	make(0);
	make(1);
	start(0, 5000);
	start(1, 5000);
	UNTIL(side[0].ready && side[1].ready);
	assert_int_equal(side[0].status, 0);
	assert_int_equal(side[1].status, 0);
}
static void close_both(void)
{
	for (int i = 0; i < 2; i++)
		if (side[i].ep)
			tran_tcp.ep_close(side[i].ep);
	side[0].ep = side[1].ep = NULL;
}

static int setup(void **state)
{
	struct tran_facts own = {.transports = "tcp"};
	memset(side, 0, sizeof side);
	return tran_tcp.open(&up, &own, &side[0].t) || tran_tcp.open(&up, &own, &side[1].t);
}
static int teardown(void **state)
{
	close_both();
	tran_tcp.close(side[0].t);
	tran_tcp.close(side[1].t);
	return 0;
}

/* Takes it or says so. */
static bool send_nth(int from, unsigned n)
{
	static uint8_t head[24], body[70000];
	uint64_t seed = side[!from].seed;
	pattern_fill(head, sizeof head, seed + 2 * (uint64_t)n, 0);
	pattern_fill(body, nth_len(n), seed + 2 * (uint64_t)n + 1, 0);
	struct iovec iov = {body, nth_len(n)};
	int rc = tran_tcp.send(side[from].ep, head, sizeof head, &iov, 1, nth_len(n));
	assert_true(rc == 0 || rc == -EAGAIN || rc == -EPIPE);
	return rc == 0;
}

static int bare_connect(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	return fd;
}
static bool was_closed(int fd)
{
	char c;
	ssize_t r = recv(fd, &c, 1, MSG_DONTWAIT);
	return r == 0 || (r < 0 && errno != EAGAIN);
}

/* ---- strangers ---- */

static void strangers_are_dropped_and_counted(void **state)
{
	uint8_t good[TCP_GREETING_LEN], bad[TCP_GREETING_LEN];
	make(0);
	make(1);
	struct tcp_greeting g = {.number = ep(1)->number};
	memcpy(g.nonce, ep(1)->nonce, TCP_NONCE_LEN);
	tcp_put_greeting(good, &g);
	uint64_t refused = 0;
	struct {
		const char *what;
		unsigned at, len;
		uint8_t change;
	} rows[] = {{"another protocol", 0, 4, 0x20}, {"another version", 5, TCP_GREETING_LEN, 3},
		{"a number that is not there", 8, TCP_GREETING_LEN, 0x7f},
		{"an earlier endpoint of that slot", 9, TCP_GREETING_LEN, 0x10},
		{"a wrong nonce, first byte", 12, TCP_GREETING_LEN, 1},
		{"a wrong nonce, last byte", TCP_GREETING_LEN - 1, TCP_GREETING_LEN, 0x80},
		{"a stream that cannot be", 7, TCP_GREETING_LEN, TCP_STREAMS_MAX},
		{"a bulk stream too early", 7, TCP_GREETING_LEN, 1}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		memcpy(bad, good, sizeof bad);
		bad[rows[i].at] ^= rows[i].change;
		int fd = bare_connect(tcp(1)->listener[0].port);
		assert_int_equal(send(fd, bad, rows[i].len, 0), rows[i].len);
		print_message("%s\n", rows[i].what);
		UNTIL(was_closed(fd));
		assert_int_equal(tcp(1)->strangers_refused, ++refused);
		close(fd);
	}
	/* Half a greeting, then the end; and silence, more of it than there is room for. */
	int fd = bare_connect(tcp(1)->listener[0].port);
	assert_int_equal(send(fd, good, 20, 0), 20);
	close(fd);
	UNTIL(tcp(1)->strangers_refused == refused + 1);
	int silent[TCP_STRANGERS_MAX + 20];
	for (size_t i = 0; i < RPWI_ARRAY_LEN(silent); i++) {
		silent[i] = bare_connect(tcp(1)->listener[0].port);
		progress();
	}
	UNTIL(tcp(1)->strangers_refused == refused + 1 + 20);
	assert_int_equal(tcp(1)->stranger_count, TCP_STRANGERS_MAX);
	assert_true(was_closed(silent[0]) && was_closed(silent[19]) && !was_closed(silent[20]));
	/* With all of them there, who is awaited comes in. */
	start(0, 5000);
	start(1, 5000);
	UNTIL(side[0].ready && side[1].ready);
	assert_int_equal(side[0].status | side[1].status, 0);
	/* The silent ones cost a bounded time. */
	UNTIL(tcp(1)->stranger_count == 0);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(silent); i++)
		close(silent[i]);
	assert_true(send_nth(0, 0));
	UNTIL(side[1].frames == 1);
}

/* What was shown once is of no use a second time. */
static void a_nonce_that_is_in_use_lets_nobody_in(void **state)
{
	uint8_t good[TCP_GREETING_LEN];
	connect_both();
	struct tcp_greeting g = {.number = ep(1)->number};
	memcpy(g.nonce, ep(1)->nonce, TCP_NONCE_LEN);
	tcp_put_greeting(good, &g);
	int fd = bare_connect(tcp(1)->listener[0].port);
	assert_int_equal(send(fd, good, sizeof good, 0), sizeof good);
	UNTIL(was_closed(fd));
	close(fd);
	assert_true(send_nth(0, 0));
	UNTIL(side[1].frames == 1);
	assert_int_equal(side[0].failures + side[1].failures, 0);
}

/* Somebody else listens at the port of the handle: it cannot know our nonce. */
static void an_impostor_is_no_peer(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a) | listen(listener, 4) |
				 getsockname(listener, (struct sockaddr *)&a, &len),
		0);
	make(0);
	make(1);
	struct tcp_handle h = {.port = ntohs(a.sin_port)};
	side[1].handle_len = tcp_put_handle(side[1].handle, &h);
	start(0, 5000);
	int fd = accept(listener, NULL, NULL);
	uint8_t bytes[TCP_GREETING_LEN];
	UNTIL(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) == sizeof bytes);
	assert_int_equal(
		send(fd, bytes, sizeof bytes, 0), sizeof bytes); /* an echo: all that it knows */
	UNTIL(side[0].ready);
	assert_int_equal(side[0].status, RPW_ERR_PROTOCOL);
	assert_non_null(strstr(side[0].why, "nonce"));
	close(fd);
	close(listener);
}

static void handles_are_checked(void **state)
{
	struct tcp_handle h = {.port = 7,
				  .number = 3,
				  .count = 2,
				  .address = {{.family = 4, .bytes = {10, 0, 0, 1}},
					  {.family = 6, .bytes = {0xfd, [15] = 9}}}},
			  back;
	for (unsigned i = 0; i < TCP_NONCE_LEN; i++)
		h.nonce[i] = (uint8_t)(i * 17 + 3);
	uint8_t bytes[TRAN_HANDLE_MAX];
	char why[200];
	size_t len = tcp_put_handle(bytes, &h);
	assert_int_equal(tcp_get_handle(bytes, len, &back, why, sizeof why), 0);
	assert_memory_equal(&h, &back, sizeof h);
	for (size_t n = 0; n < len; n++)
		assert_int_equal(tcp_get_handle(bytes, n, &back, why, sizeof why), -1);
	bytes[TCP_HANDLE_FIXED] = 5;
	assert_int_equal(tcp_get_handle(bytes, len, &back, why, sizeof why), -1);
	assert_non_null(strstr(why, "family 5"));
	bytes[5] = TCP_VERSION + 1;
	assert_int_equal(tcp_get_handle(bytes, len, &back, why, sizeof why), -1);
	assert_non_null(strstr(why, "version"));
}

/* ---- peers that break the rules ---- */

static void send_header(int fd, struct tcp_header h, const void *more, size_t more_len)
{
	uint8_t bytes[TCP_HEADER_LEN];
	tcp_put_header(bytes, &h);
	assert_int_equal(send(fd, bytes, sizeof bytes, more_len ? MSG_MORE : 0), sizeof bytes);
	if (more_len)
		assert_int_equal(send(fd, more, more_len, 0), more_len);
}
static struct tcp_header hear_header(int fd)
{
	uint8_t bytes[TCP_HEADER_LEN];
	struct tcp_header h;
	const char *why;
	UNTIL(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK) == sizeof bytes);
	assert_int_equal(recv(fd, bytes, sizeof bytes, 0), sizeof bytes);
	assert_int_equal(tcp_get_header(bytes, &h, &why), 0);
	return h;
}
static void say_attach(int fd, int to, uint32_t claim)
{
	uint8_t more[TCP_ATTACH_LEN];
	rpwi_put_be32(more, claim);
	memcpy(more + 4, ep(to)->nonce, TCP_NONCE_LEN);
	send_header(fd, (struct tcp_header){.kind = TCP_ATTACH, .id = ep(to)->number}, more,
		sizeof more);
}

/* The peer of side 1, as a bare socket that has greeted; side 1 is up. */
static int bare_peer(void)
{
	uint8_t bytes[TCP_GREETING_LEN];
	make(0);
	make(1);
	start(1, 5000);
	struct tcp_greeting g = {.number = ep(1)->number};
	memcpy(g.nonce, ep(1)->nonce, TCP_NONCE_LEN);
	tcp_put_greeting(bytes, &g);
	int fd = bare_connect(tcp(1)->listener[0].port);
	assert_int_equal(send(fd, bytes, TCP_GREETING_LEN, 0), TCP_GREETING_LEN);
	say_attach(fd, 1, ep(0)->number);
	UNTIL(side[1].ready);
	assert_int_equal(side[1].status, 0);
	struct tcp_header h = hear_header(fd);
	assert_true(h.kind == TCP_ATTACHED && h.id == ep(0)->number);
	assert_int_equal(recv(fd, bytes, TCP_NONCE_LEN, MSG_WAITALL), TCP_NONCE_LEN);
	assert_memory_equal(bytes, ep(0)->nonce, TCP_NONCE_LEN);
	return fd;
}
static void what_is_against_the_rules_fails_the_endpoint_with_a_sentence(void **state)
{
	static const struct {
		struct tcp_header h;
		const char *why;
	} rows[] = {
		{{.kind = 0}, "unknown kind"},
		{{.kind = TCP_LEAVE + 1}, "unknown kind"},
		{{.kind = TCP_FRAME, .head_len = TRAN_HEAD_MAX + 1}, "head longer"},
		{{.kind = TCP_FRAME, .len = TCP_FRAME_MAX + 1}, "length beyond"},
		{{.kind = TCP_GET, .len = UINT32_MAX}, "length beyond"},
		{{.kind = TCP_GET, .head_len = 1}, "head longer"},
		{{.kind = TCP_PUT, .len = TCP_CHUNK_MAX + 1}, "length beyond"},
		{{.kind = TCP_DATA, .id = 16, .len = 8}, "nobody asked"},
		{{.kind = TCP_DONE, .id = 16}, "what was not asked"},
		{{.kind = TCP_DONE, .id = 16, .answer = 2}, "unknown answer"},
		{{.kind = TCP_OPEN, .len = 1}, "length beyond"},
		{{.kind = TCP_OPEN, .id = 1}, "an id where"},
		{{.kind = TCP_LEAVE, .id = 1, .answer = 2}, "unknown answer"},
		{{.kind = TCP_ATTACHED, .id = 1}, "does not ask"},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		int fd = bare_peer();
		static const uint8_t zeros[TCP_NONCE_LEN];
		send_header(
			fd, rows[i].h, zeros, rows[i].h.kind == TCP_ATTACHED ? sizeof zeros : 0);
		UNTIL(side[1].failures);
		assert_int_equal(side[1].status, RPW_ERR_PROTOCOL);
		if (!strstr(side[1].why, rows[i].why))
			fail_msg("row %zu: %s", i, side[1].why);
		UNTIL(was_closed(fd));
		close(fd);
		close_both();
	}
}

/* Forged keys, bounds, rights: an answer, not a byte, and the endpoint lives. */
static void a_forged_target_gets_no_access(void **state)
{
	static uint64_t region[64], was[64];
	struct tran_mem *m, *read_only;
	struct tcp_key key;
	pattern_fill(region, sizeof region, 5, 0);
	memcpy(was, region, sizeof was);
	int fd = bare_peer();
	assert_int_equal(tran_tcp.mem->add(side[1].t, region, sizeof region,
				 TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &m),
		0);
	assert_int_equal(
		tran_tcp.mem->add(side[1].t, region, sizeof region, TRAN_READ, &read_only), 0);
	tcp_get_desc(&m->desc, &key);
	uint32_t ro = ((struct tcp_mem *)read_only)->slot;
	uint64_t ro_key = ((struct tcp_mem *)read_only)->key;
	struct {
		uint8_t kind;
		uint32_t len;
		struct tcp_target at;
	} rows[] = {
		{TCP_GET, 8, {key.slot, key.key ^ 1, 0}},
		{TCP_GET, 8, {key.slot + 1000, key.key, 0}},
		{TCP_GET, 8, {UINT32_MAX, key.key, 0}},
		{TCP_GET, 513, {key.slot, key.key, 0}},
		{TCP_GET, 8, {key.slot, key.key, 505}},
		{TCP_GET, 8, {key.slot, key.key, UINT64_MAX - 3}},
		{TCP_PUT, 32, {key.slot, key.key, 500}},
		{TCP_PUT, 32, {ro, ro_key, 0}},
		{TCP_PUT, 32, {key.slot, ~key.key, 0}},
		{TCP_ADD, 8, {ro, ro_key, 0}},
		{TCP_SWAP, 8, {key.slot, key.key, 505}},
		{TCP_ADD, 8, {key.slot, key.key, 4}},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		uint8_t more[TCP_ATOMIC_LEN + 32] = {0};
		tcp_put_target(more, &rows[i].at);
		memset(more + TCP_TARGET_LEN, 0x5a, sizeof more - TCP_TARGET_LEN);
		size_t len = rows[i].kind == TCP_GET   ? TCP_TARGET_LEN
			     : rows[i].kind == TCP_PUT ? TCP_TARGET_LEN + 32
						       : TCP_ATOMIC_LEN;
		send_header(fd,
			(struct tcp_header){
				.kind = rows[i].kind, .id = (uint32_t)i, .len = rows[i].len},
			more, len);
		struct tcp_header h = hear_header(fd);
		if (h.kind != TCP_DONE || h.answer != TCP_NO_ACCESS || h.id != i)
			fail_msg("row %zu: kind %x, answer %u, id %u", i, h.kind, h.answer, h.id);
	}
	assert_memory_equal(region, was, sizeof was);
	assert_int_equal(side[1].failures, 0);
	/* And the same with a good one. */
	uint8_t more[TCP_TARGET_LEN];
	tcp_put_target(more, &(struct tcp_target){key.slot, key.key, 504});
	send_header(
		fd, (struct tcp_header){.kind = TCP_GET, .id = 77, .len = 8}, more, sizeof more);
	assert_int_equal(hear_header(fd).kind, TCP_DATA);
	uint64_t got;
	assert_int_equal(recv(fd, &got, 8, MSG_WAITALL), 8);
	assert_int_equal(got, was[63]);
	assert_int_equal(hear_header(fd).answer, TCP_OK);
	close(fd);
	tran_tcp.mem->del(side[1].t, m);
	tran_tcp.mem->del(side[1].t, read_only);
}

/* A peer that asks and never listens costs a bounded memory, then the endpoint. */
static void a_peer_that_only_asks_is_stopped(void **state)
{
	struct tran_mem *m;
	struct tcp_key key;
	uint8_t more[TCP_TARGET_LEN];
	int fd = bare_peer();
	assert_int_equal(
		tran_tcp.mem->add(side[1].t, mapped(TCP_CHUNK_MAX), TCP_CHUNK_MAX, TRAN_READ, &m),
		0);
	tcp_get_desc(&m->desc, &key);
	tcp_put_target(more, &(struct tcp_target){key.slot, key.key, 0});
	for (unsigned i = 0; i < 100 && !side[1].failures; i++) {
		send_header(fd, (struct tcp_header){.kind = TCP_GET, .id = i, .len = TCP_CHUNK_MAX},
			more, sizeof more);
		for (int k = 0; k < 20; k++)
			progress();
	}
	assert_int_equal(side[1].failures, 1);
	assert_non_null(strstr(side[1].why, "more gets"));
	close(fd);
	tran_tcp.mem->del(side[1].t, m);
}

/* A put that is "done" before it was sent would free a buffer that is still read. */
static void an_answer_before_the_data_is_against_the_rules(void **state)
{
	struct op op = {0};
	struct tran_desc d;
	int fd = bare_peer();
	tcp_put_desc(&d, &(struct tcp_key){.slot = 1, .key = 2, .len = LARGE});
	uint8_t *local = malloc(LARGE);
	pattern_fill(local, LARGE, 1, 0);
	setsockopt(ep(1)->bundle->stream[0]->fd, SOL_SOCKET, SO_SNDBUF, &(int){4608}, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){4608}, sizeof(int));
	assert_int_equal(
		tran_tcp.rma->transfer(side[1].ep, true, &d, 0, local, LARGE, NULL, &op), 0);
	progress();
	send_header(fd,
		(struct tcp_header){.kind = TCP_DONE, .id = ep(1)->bundle->stream[0]->chunk[1].id},
		NULL, 0);
	UNTIL(side[1].failures);
	assert_int_equal(side[1].status, RPW_ERR_PROTOCOL);
	assert_false(op.done);
	free(local);
	close(fd);
}

/* ---- endpoints that share their streams ---- */

enum { SHARERS = 50 };

static unsigned count(struct rpwi_list *list)
{
	unsigned n = 0;
	for (struct rpwi_list *l = list->next; l != list; l = l->next)
		n++;
	return n;
}

/* A further pair between the two; its halves are at h[0] and h[1]. */
static void connect_more(struct half *h)
{
	struct half were[2] = {side[0], side[1]};
	connect_both();
	for (int i = 0; i < 2; i++) {
		h[i] = side[i];
		((struct tcp_ep *)h[i].ep)->base.user = &h[i];
		side[i] = were[i];
	}
}

static void send_from(struct half *h, int from)
{
	static uint8_t body[70000];
	uint8_t head[24];
	unsigned n = h[!from].frames;
	pattern_fill(head, sizeof head, h[!from].seed + 2 * (uint64_t)n, 0);
	pattern_fill(body, nth_len(n), h[!from].seed + 2 * (uint64_t)n + 1, 0);
	struct iovec iov = {body, nth_len(n)};
	assert_int_equal(tran_tcp.send(h[from].ep, head, sizeof head, &iov, 1, nth_len(n)), 0);
	UNTIL(h[!from].frames == n + 1);
}

/* One socket for all of them; each has its frames; one that is closed leaves the others theirs, and its slot to another one. */
static void endpoints_between_two_contexts_share_a_stream(void **state)
{
	static struct half h[SHARERS][2];
	connect_both();
	for (int i = 0; i < SHARERS; i++)
		connect_more(h[i]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(count(&tcp(i)->bundles), 1);
	assert_int_equal(count(&ep(0)->bundle->members), SHARERS + 1);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < SHARERS; i++)
			send_from(h[i], (i + round) % 2);
	for (int i = 0; i < SHARERS; i += 2) {
		int closer = i / 2 % 2;
		tran_tcp.ep_close(h[i][closer].ep);
		UNTIL(h[i][!closer].failures == 1);
		assert_int_equal(h[i][!closer].status, RPW_ERR_UNREACHABLE);
		assert_non_null(strstr(h[i][!closer].why, "closed"));
		tran_tcp.ep_close(h[i][!closer].ep);
		connect_more(h[i]);
	}
	for (int i = 0; i < SHARERS; i++) {
		send_from(h[i], i % 2);
		assert_int_equal(h[i][0].failures + h[i][1].failures, 0);
	}
	assert_int_equal(count(&tcp(0)->bundles), 1);
	close_both();
	for (int i = 0; i < SHARERS; i++)
		for (int k = 0; k < 2; k++)
			tran_tcp.ep_close(h[i][k].ep);
	for (int i = 0; i < 2; i++)
		assert_int_equal(count(&tcp(i)->bundles), 0);
}

/* When the stream breaks, all are told, once; and whoever connects next has a new one. */
static void a_shared_stream_that_breaks_fails_all(void **state)
{
	static struct half h[SHARERS][2];
	connect_both();
	for (int i = 0; i < SHARERS; i++)
		connect_more(h[i]);
	connect(ep(0)->bundle->stream[0]->fd, &(struct sockaddr){.sa_family = AF_UNSPEC},
		sizeof(struct sockaddr));
	for (int i = 0; i < SHARERS; i++)
		UNTIL(h[i][0].failures && h[i][1].failures);
	UNTIL(side[0].failures && side[1].failures);
	close_both();
	connect_both();
	assert_true(send_nth(0, 0));
	UNTIL(side[1].frames == 1);
	for (int i = 0; i < SHARERS; i++)
		for (int k = 0; k < 2; k++) {
			assert_int_equal(h[i][k].failures, 1);
			tran_tcp.ep_close(h[i][k].ep);
		}
}

/* A stream for bulk data has broken, and that a moment later all will: nobody who comes in between puts that off, or the transfers on that stream would never end. */
static void who_comes_to_a_bundle_that_is_about_to_end_ends_with_it(void **state)
{
	struct op op = {0};
	struct tran_mem *m;
	struct half late[2];
	uint8_t *local = malloc(LARGE);
	connect_both();
	assert_int_equal(tran_tcp.mem->add(side[0].t, mapped(LARGE), LARGE, TRAN_READ, &m), 0);
	assert_int_equal(
		tran_tcp.rma->transfer(side[1].ep, false, &m->desc, 0, local, LARGE, NULL, &op), 0);
	UNTIL(op.done && ep(1)->bundle->stream[1] && ep(1)->bundle->stream[1]->state == TCP_UP);
	struct tcp_bundle *b = ep(1)->bundle;
	tcp_bundle_lost(b->stream[1], RPW_ERR_UNREACHABLE, "cut by the test");
	assert_true(b->fail_status && b->state == TCP_BUNDLE_UP);
	struct half were[2] = {side[0], side[1]};
	make(0);
	make(1);
	start(0, 5000);
	start(1, 5000);
	for (int i = 0; i < 2; i++) {
		late[i] = side[i];
		((struct tcp_ep *)late[i].ep)->base.user = &late[i];
		side[i] = were[i];
		((struct tcp_ep *)side[i].ep)->base.user = &side[i];
	}
	/* The other side does not look meanwhile: it would see the end of the stream, and end everything by itself. */
	for (uint64_t end_ns = rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S;
		!late[1].ready && rpwi_now_ns() < end_ns;)
		tran_tcp.progress(side[1].t);
	assert_true(late[1].ready && !late[1].status && ((struct tcp_ep *)late[1].ep)->bundle == b);
	for (uint64_t end_ns = rpwi_now_ns() + DEADLINE_S * RPWI_NS_PER_S;
		(!side[1].failures || !late[1].failures) && rpwi_now_ns() < end_ns;)
		tran_tcp.progress(side[1].t);
	assert_int_equal(side[1].failures, 1);
	assert_int_equal(late[1].failures, 1);
	for (int i = 0; i < 2; i++)
		tran_tcp.ep_close(late[i].ep);
	close_both();
	tran_tcp.mem->del(side[0].t, m);
	free(local);
}

/* A forked child has its parent's sockets, too. They end all the same when the parent closes them, and are heard of no more. */
static void a_socket_that_somebody_else_has_too_is_closed_for_all(void **state)
{
	connect_both();
	int copy = dup(ep(1)->bundle->stream[0]->fd);
	assert_true(copy >= 0);
	tran_tcp.ep_close(side[1].ep);
	side[1].ep = NULL;
	UNTIL(side[0].failures);
	tran_tcp.ep_close(side[0].ep);
	side[0].ep = NULL;
	UNTIL(rpwi_list_empty(&tcp(1)->lingering));
	struct epoll_event e;
	while (epoll_wait(tcp(1)->epoll, &e, 1, 0) > 0)
		assert_ptr_equal(e.data.ptr, tcp(1)); /* the listener */
	connect_both();
	int copy_of_broken = dup(ep(1)->bundle->stream[0]->fd);
	tcp_bundle_fail(ep(1)->bundle, RPW_ERR_UNREACHABLE, "cut by the test");
	UNTIL(side[1].failures && side[0].failures);
	assert_int_equal(epoll_wait(tcp(1)->epoll, &e, 1, 0), 0);
	close(copy);
	close(copy_of_broken);
}

/* Who is in by one endpoint's nonce gets no other endpoint without its own; nor does it see the frames of one that is not its own. */
static void a_shared_stream_lets_nobody_in_twice(void **state)
{
	static struct half h[2];
	uint8_t zeros[TCP_NONCE_LEN] = {0}, more[TCP_ATTACH_LEN];
	struct tcp_header answer;
	int fd = bare_peer();
	struct half were[2] = {side[0], side[1]};
	make(0);
	make(1);
	start(1, 5000);
	rpwi_put_be32(more, 4711);
	memcpy(more + 4, ep(1)->nonce, TCP_NONCE_LEN);
	more[TCP_ATTACH_LEN - 1] ^= 1;
	send_header(fd, (struct tcp_header){.kind = TCP_ATTACH, .id = ep(1)->number}, more,
		sizeof more);
	answer = hear_header(fd);
	assert_true(
		answer.kind == TCP_LEAVE && answer.id == 4711 && answer.answer == TCP_NO_ACCESS);
	/* The right nonce, but not for the endpoint that boot's handle told of. */
	more[TCP_ATTACH_LEN - 1] ^= 1;
	send_header(fd, (struct tcp_header){.kind = TCP_ATTACH, .id = ep(1)->number}, more,
		sizeof more);
	answer = hear_header(fd);
	assert_true(answer.kind == TCP_LEAVE && answer.id == 4711);
	assert_false(side[1].ready);
	/* Frames to one that is not attached find nobody. */
	send_header(fd,
		(struct tcp_header){.kind = TCP_FRAME, .id = ep(1)->number, .len = sizeof zeros},
		zeros, sizeof zeros);
	say_attach(fd, 1, ep(0)->number);
	answer = hear_header(fd);
	assert_true(answer.kind == TCP_ATTACHED && answer.id == ep(0)->number && side[1].ready &&
		    !side[1].status);
	assert_int_equal(side[1].frames, 0);
	close_both();
	for (int i = 0; i < 2; i++) {
		h[i] = were[i];
		((struct tcp_ep *)h[i].ep)->base.user = &h[i];
		assert_int_equal(h[i].failures, 0);
		tran_tcp.ep_close(h[i].ep);
	}
	close(fd);
}

/* A peer whose address boot could not tell still has a name where something is told of it. */
static void a_peer_without_an_address_has_a_name(void **state)
{
	struct tran_facts peer = {.hostname = "quince", .transports = "tcp"};
	make(0);
	side[1] = (struct half){.t = side[1].t};
	assert_int_equal(tran_tcp.ep_make(side[1].t, &(struct tran_control){.peer = &peer},
				 &side[1], &side[1].ep, side[1].handle, &side[1].handle_len),
		0);
	start(1, 50);
	UNTIL(side[1].ready);
	assert_int_equal(side[1].status, RPW_ERR_TIMEOUT);
	assert_non_null(strstr(side[1].why, "the peer (quince) did not connect"));
}

/* ---- resets, small sockets, vanishing memory ---- */

/* In the middle of frames and transfers, one stream is reset: both sides are told once, and what was reported done is right. */
static void resets_are_told_once_and_nothing_wrong_is_done(void **state)
{
	enum { OPS = 6 };
	uint8_t *region = malloc(LARGE), *local = malloc(OPS * LARGE);
	pattern_fill(region, LARGE, 5, 0);
	for (unsigned round = 0; round < 24; round++) {
		struct op op[OPS] = {{0}};
		struct tran_mem *m;
		connect_both();
		assert_int_equal(tran_tcp.mem->add(side[1].t, region, LARGE, TRAN_READ, &m), 0);
		memset(local, 0xee, OPS * LARGE);
		for (int i = 0; i < OPS; i++)
			assert_int_equal(tran_tcp.rma->transfer(side[0].ep, false, &m->desc, 0,
						 local + i * LARGE, LARGE, NULL, &op[i]),
				0);
		unsigned sent[2] = {0};
		for (unsigned i = 0; i < round * 4; i++) {
			sent[0] += send_nth(0, sent[0]);
			sent[1] += send_nth(1, sent[1]);
			progress();
		}
		unsigned which =
			round / 2 %
			2; /* the bulk stream only once it is up: before, one can do without it */
		if (which)
			UNTIL(ep(0)->bundle->stream[1] &&
				ep(0)->bundle->stream[1]->state == TCP_UP &&
				ep(1)->bundle->stream[1]);
		struct tcp_stream *s = ep(round % 2)->bundle->stream[which]
					       ? ep(round % 2)->bundle->stream[which]
					       : ep(round % 2)->bundle->stream[0];
		connect(s->fd, &(struct sockaddr){.sa_family = AF_UNSPEC},
			sizeof(struct sockaddr)); /* ip(7): dissolves it, by a reset */
		UNTIL(side[0].failures && side[1].failures);
		for (int i = 0; i < 50; i++)
			progress();
		assert_int_equal(side[0].failures, 1);
		assert_int_equal(side[1].failures, 1);
		assert_int_equal(side[0].status, RPW_ERR_UNREACHABLE);
		assert_true(side[0].frames <= sent[1] && side[1].frames <= sent[0]);
		for (int i = 0; i < OPS; i++)
			if (op[i].done) {
				assert_int_equal(op[i].status, RPW_OK);
				assert_true(pattern_check(local + i * LARGE, LARGE, 5, 0) < 0);
			}
		assert_int_equal(tran_tcp.rma->transfer(
					 side[0].ep, false, &m->desc, 0, local, 8, NULL, &op[0]),
			-EPIPE);
		close_both();
		tran_tcp.mem->del(side[1].t, m);
	}
	free(region);
	free(local);
}

/* Sockets that take a few KiB at a time: everything is cut anywhere. */
static void partial_writes_lose_nothing(void **state)
{
	enum { FRAMES = 300, OPS = 8, LEN = 700001 };
	struct op get[OPS] = {{0}}, put[OPS] = {{0}};
	struct tran_mem *m;
	uint8_t *region = malloc(2 * OPS * LEN), *local = malloc(2 * OPS * LEN);
	pattern_fill(region, OPS * LEN, 31, 0);
	pattern_fill(local, OPS * LEN, 32, 0);
	connect_both();
	assert_int_equal(
		tran_tcp.mem->add(side[1].t, region, 2 * OPS * LEN, TRAN_READ | TRAN_WRITE, &m), 0);
	unsigned sent[2] = {0};
	for (unsigned i = 0; sent[0] < FRAMES || sent[1] < FRAMES || side[0].frames < FRAMES ||
			     side[1].frames < FRAMES;
		i++) {
		for (int k = 0; k < 2; k++) {
			for (unsigned n = 0; n < TCP_STREAMS_MAX; n++)
				if (ep(k)->bundle->stream[n])
					setsockopt(ep(k)->bundle->stream[n]->fd, SOL_SOCKET,
						SO_SNDBUF, &(int){4608}, sizeof(int));
			if (sent[k] < FRAMES)
				sent[k] += send_nth(k, sent[k]);
		}
		if (i < OPS) {
			assert_int_equal(
				tran_tcp.rma->transfer(side[0].ep, false, &m->desc, i * LEN,
					local + (OPS + i) * LEN, LEN, NULL, &get[i]),
				0);
			assert_int_equal(
				tran_tcp.rma->transfer(side[0].ep, true, &m->desc, (OPS + i) * LEN,
					local + i * LEN, LEN, NULL, &put[i]),
				0);
		}
		progress();
		assert_int_equal(side[0].failures + side[1].failures, 0);
		assert_true(i < 50000000);
	}
	for (int i = 0; i < OPS; i++) {
		UNTIL(get[i].done && put[i].done);
		assert_int_equal(get[i].status | put[i].status, 0);
	}
	assert_true(pattern_check(local + OPS * LEN, OPS * LEN, 31, 0) < 0);
	assert_true(pattern_check(region + OPS * LEN, OPS * LEN, 32, 0) < 0);
	tran_tcp.mem->del(side[1].t, m);
	free(region);
	free(local);
}

/* Registered memory that is withdrawn, or unmapped, in the middle of being read and written: the transfer fails, or is right; frames go on. */
static void memory_that_goes_away_fails_its_transfers_only(void **state)
{
	uint8_t *local = malloc(2 * LARGE);
	connect_both();
	for (unsigned round = 0; round < 30; round++) {
		struct op op[2] = {{0}};
		struct tran_mem *m;
		uint8_t *region = mmap(
			NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pattern_fill(region, LARGE, round, 0);
		assert_int_equal(
			tran_tcp.mem->add(side[1].t, region, LARGE, TRAN_READ | TRAN_WRITE, &m), 0);
		struct tran_desc d = m->desc;
		assert_int_equal(tran_tcp.rma->transfer(
					 side[0].ep, false, &d, 0, local, LARGE / 2, NULL, &op[0]),
			0);
		assert_int_equal(tran_tcp.rma->transfer(side[0].ep, true, &d, LARGE / 2,
					 local + LARGE, LARGE / 2, NULL, &op[1]),
			0);
		for (unsigned i = 0; i < round / 2; i++)
			progress();
		if (round % 2)
			tran_tcp.mem->del(side[1].t, m);
		munmap(region, LARGE);
		/* Whatever is there next is none of the peer's business. */
		uint8_t *next = mmap(region, LARGE, round % 3 ? PROT_NONE : PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		UNTIL(op[0].done && op[1].done);
		for (int i = 0; i < 2; i++)
			assert_true(op[i].status == RPW_OK || op[i].status == RPW_ERR_ACCESS);
		if (op[0].status == RPW_OK && round % 2)
			assert_true(pattern_check(local, LARGE / 2, round, 0) < 0);
		if (round % 2 == 0)
			tran_tcp.mem->del(side[1].t, m);
		munmap(next, LARGE);
		assert_int_equal(side[0].failures + side[1].failures, 0);
		unsigned frames = side[1].frames;
		UNTIL(send_nth(0, frames));
		UNTIL(side[1].frames == frames + 1);
	}
	free(local);
}

/* Large transfers by both sides bring up a stream of their own, and the path says so. */
static void bulk_has_a_stream_of_its_own(void **state)
{
	for (int asks = 0; asks < 2; asks++) {
		struct tran_mem *m;
		uint8_t *local = malloc(LARGE);
		connect_both();
		assert_string_equal(side[asks].ep->path, "1 stream to 127.0.0.1");
		assert_int_equal(
			tran_tcp.mem->add(side[!asks].t, mapped(LARGE), LARGE, TRAN_READ, &m), 0);
		pattern_fill(m->addr, LARGE, 3, 0);
		for (int i = 0; i < 2; i++) {
			struct op op = {0};
			assert_int_equal(tran_tcp.rma->transfer(side[asks].ep, false, &m->desc, 0,
						 local, LARGE, NULL, &op),
				0);
			UNTIL(op.done && ep(0)->bundle->stream[1] &&
				ep(0)->bundle->stream[1]->state == TCP_UP);
			assert_true(op.status == RPW_OK && pattern_check(local, LARGE, 3, 0) < 0);
		}
		assert_string_equal(side[0].ep->path, "2 streams to 127.0.0.1");
		tran_tcp.mem->del(side[!asks].t, m);
		free(local);
		close_both();
	}
}

int main(void)
{
	unsetenv("ROPEWAY_TCP_STREAMS");
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(strangers_are_dropped_and_counted),
		TEST(a_nonce_that_is_in_use_lets_nobody_in),
		TEST(an_impostor_is_no_peer),
		TEST(handles_are_checked),
		TEST(what_is_against_the_rules_fails_the_endpoint_with_a_sentence),
		TEST(a_forged_target_gets_no_access),
		TEST(a_peer_that_only_asks_is_stopped),
		TEST(an_answer_before_the_data_is_against_the_rules),
		TEST(endpoints_between_two_contexts_share_a_stream),
		TEST(a_shared_stream_that_breaks_fails_all),
		TEST(who_comes_to_a_bundle_that_is_about_to_end_ends_with_it),
		TEST(a_socket_that_somebody_else_has_too_is_closed_for_all),
		TEST(a_shared_stream_lets_nobody_in_twice),
		TEST(a_peer_without_an_address_has_a_name),
		TEST(resets_are_told_once_and_nothing_wrong_is_done),
		TEST(partial_writes_lose_nothing),
		TEST(memory_that_goes_away_fails_its_transfers_only),
		TEST(bulk_has_a_stream_of_its_own),
	};
	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
