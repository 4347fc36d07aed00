/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_half.c - see tcp_half.h. */
#include "tcp_half.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/mman.h>

struct half side[2];
uint8_t *long_place;
unsigned long_asked, long_came;
const uint8_t *long_body;

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
size_t nth_len(unsigned n) { return (size_t)n * 7919 % 70000; }
void *mapped(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static bool up_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct half *h = user;
	if (body_len > TCP_FRAME_MAX) {
		long_came++;
		long_body = body;
		assert_true(pattern_holds(body, body_len, 5));
		return true;
	}
	uint64_t n = h->frames++;
	assert_int_equal(head_len, 24);
	assert_int_equal(body_len, nth_len((unsigned)n));
	assert_true(
		pattern_holds_from((const uint8_t *)head + 1, head_len - 1, h->seed + 2 * n, 1));
	assert_true(pattern_holds(body, body_len, h->seed + 2 * n + 1));
	return true;
}
static void *up_place(void *user, const void *head, size_t head_len, size_t body_len)
{
	long_asked++;
	return long_place;
}
static void up_room(void *user) { ((struct half *)user)->room = true; }
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
static const struct tran_up up = {up_ready, up_frame, up_place, up_room, up_done, up_failed, NULL};

void progress(void)
{
	for (int i = 0; i < 2; i++)
		if (side[i].t)
			tran_tcp.progress(side[i].t);
}

struct tcp *tcp(int i) { return (struct tcp *)side[i].t; }
struct tcp_ep *ep(int i) { return (struct tcp_ep *)side[i].ep; }

void make(int i)
{
	struct tran_facts peer = {.address = "127.0.0.1", .transports = "tcp"};
	struct tran *t = side[i].t;
	side[i] = (struct half){.t = t, .seed = 1000000 * (uint64_t)(1 + !i)};
	assert_int_equal(
		tran_tcp.ep_make(t, &(struct tran_control){.peer = &peer, .active = i == 0},
			&side[i], &side[i].ep, side[i].handle, &side[i].handle_len),
		0);
}
void start(int i, unsigned timeout_ms)
{
	assert_int_equal(
		tran_tcp.ep_start(side[i].ep, side[!i].handle, side[!i].handle_len, timeout_ms), 0);
}
void connect_both(void)
{
	make(0);
	make(1);
	start(0, 5000);
	start(1, 5000);
	UNTIL(side[0].ready && side[1].ready);
	assert_int_equal(side[0].status, 0);
	assert_int_equal(side[1].status, 0);
}
void close_both(void)
{
	for (int i = 0; i < 2; i++)
		if (side[i].ep)
			tran_tcp.ep_close(side[i].ep);
	side[0].ep = side[1].ep = NULL;
}

int setup(void **state)
{
	struct tran_facts own = {.transports = "tcp"};
	memset(side, 0, sizeof side);
	return tran_tcp.open(&up, &own, &side[0].t) || tran_tcp.open(&up, &own, &side[1].t);
}
int teardown(void **state)
{
	close_both();
	tran_tcp.close(side[0].t);
	tran_tcp.close(side[1].t);
	return 0;
}

static uint8_t nth_head[24], nth_body[70000];
void fill_nth(int from, unsigned n)
{
	uint64_t seed = side[!from].seed;
	pattern_fill(nth_head, sizeof nth_head, seed + 2 * (uint64_t)n);
	nth_head[0] = 1; /* not the emulation's */
	pattern_fill(nth_body, nth_len(n), seed + 2 * (uint64_t)n + 1);
}
/* Takes it or says so. */
bool send_filled(int from, unsigned n)
{
	struct iovec iov = {nth_body, nth_len(n)};
	int rc = tran_tcp.send(side[from].ep, nth_head, sizeof nth_head, &iov, 1, nth_len(n));
	assert_true(rc == 0 || rc == RPWI_LATER || rc == RPW_ERR_PEER_GONE);
	return rc == 0;
}
bool send_nth(int from, unsigned n)
{
	fill_nth(from, n);
	return send_filled(from, n);
}

int bare_connect(uint16_t port)
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
bool was_closed(int fd)
{
	char c;
	ssize_t r = recv(fd, &c, 1, MSG_DONTWAIT);
	return r == 0 || (r < 0 && errno != EAGAIN);
}

/* ---- a bare peer ---- */

void send_header(int fd, struct tcp_header h, const void *more, size_t more_len)
{
	uint8_t bytes[TCP_HEADER_LEN];
	tcp_put_header(bytes, &h);
	assert_int_equal(send(fd, bytes, sizeof bytes, more_len ? MSG_MORE : 0), sizeof bytes);
	if (more_len)
		assert_int_equal(send(fd, more, more_len, 0), more_len);
}
struct tcp_header hear_header(int fd)
{
	uint8_t bytes[TCP_HEADER_LEN];
	struct tcp_header h;
	const char *why;
	UNTIL(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK) == sizeof bytes);
	assert_int_equal(recv(fd, bytes, sizeof bytes, 0), sizeof bytes);
	assert_int_equal(tcp_get_header(bytes, &h, &why), 0);
	return h;
}
void say_attach(int fd, int to, uint32_t claim)
{
	uint8_t more[TCP_ATTACH_LEN];
	rpwi_put_be32(more, claim);
	memcpy(more + 4, ep(to)->nonce, TCP_NONCE_LEN);
	send_header(fd, (struct tcp_header){.kind = TCP_ATTACH, .id = ep(to)->number}, more,
		sizeof more);
}

/* The peer of side 1, as a bare socket that has greeted; side 1 is up. */
int bare_peer(void)
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
