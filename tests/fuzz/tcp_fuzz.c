/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_fuzz.c - endpoints of tran_tcp in the hands of their peer: one is attached, another one waits
 * for that on the same bundle; or both are just started, and the peer comes to their port, or is
 * come to, greets, and asks for them or answers. The input is what the peer sends on one or two
 * streams, raw or as headers with some sense (ids that were asked for, numbers, nonces and keys
 * that are right), and what the program does meanwhile. Checked all along: each operation is told
 * once, and its buffer not touched after (ASan); frames within bounds; memory around what was
 * registered as it was; one failure at most, and nothing after it; and who did not show an
 * endpoint's nonce does not get it.
 */
#include "../tran/emulated_frames.h"
#include "fuzz.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tran/tcp/tcp_priv.h"

enum { COMMANDS_MAX = 400, OPS_MAX = 64, REGION = 4096, GUARD = 64, LOCAL_MAX = 600 * 1024 };

struct op {
	bool posted, done;
	uint8_t *local;
	uint64_t before;
};
static struct fuzz_run {
	struct fuzz_input in;
	struct tran *t;
	struct tran_ep *ep, *second;
	struct end {
		bool ready, failed;
		void *place; /* of a long frame that comes: freed with it, or with its endpoint */
	} first_end, second_end;
	struct tran_mem *mem;
	uint8_t *region; /* of the registered memory, with guards around it */
	bool strangers;  /* nobody has greeted yet */
	bool shown;      /* an endpoint's nonce has been, in a word that asks for it or answers */
	int peer[2];
	unsigned ops;
	struct op op[OPS_MAX];
} run;

static void on_ready(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	struct end *e = user;
	if (e->ready || e->failed)
		fuzz_broken("ready twice");
	if (!status && run.strangers && !run.shown)
		fuzz_broken("ready for a peer that showed no nonce");
	e->ready = status == 0;
	e->failed = status < 0;
}
static void place_free(struct end *e)
{
	free(e->place); /* nobody may touch it from now on */
	e->place = NULL;
}
static bool on_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct end *e = user;
	struct tran_ep *ep = e == &run.first_end ? run.ep : run.second;
	if (!e->ready || e->failed || !ep)
		fuzz_broken("a frame after the end, or before the beginning");
	if (head_len && *(const uint8_t *)head >= TRAN_OWN_HEADS)
		fuzz_broken("a frame of the emulation");
	if (head_len > TRAN_HEAD_MAX || body_len > TCP_LONG_MAX || (uintptr_t)head % 8)
		fuzz_broken("a frame beyond its limits");
	if (e->place && body != e->place)
		fuzz_broken("a long frame that is not in its place");
	fuzz_readable(head, head_len, 1);
	fuzz_readable(body, body_len, 61);
	if (fuzz_u8(&run.in) < 32)
		tran_tcp.send(
			ep, head, head_len, &(struct iovec){(void *)body, body_len}, 1, body_len);
	place_free(e);
	return true;
}
static void *on_place(void *user, const void *head, size_t head_len, size_t body_len)
{
	struct end *e = user;
	if (e->place || e->failed || body_len > TCP_LONG_MAX)
		fuzz_broken("a place for what has none");
	fuzz_readable(head, head_len, 1);
	uint8_t way = fuzz_u8(&run.in);
	if (way >= 224)
		return TRAN_PLACE_LATER;
	return e->place = way < 128 ? malloc(body_len) : NULL;
}
static void on_room(void *user) {}
static void on_done(void *user, void *cookie, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	struct op *op = cookie;
	if (run.first_end.failed || !op->posted || op->done)
		fuzz_broken("an operation was told twice, or after the end");
	if (status != RPW_OK && status != RPW_ERR_ACCESS && status != RPW_ERR_SYSTEM)
		fuzz_broken("a status that no peer can cause");
	op->done = true;
	free(op->local);
	op->local = NULL;
}
static void on_failed(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	const char *why = err ? err->text : "";
	struct end *e = user;
	if (!e->ready || e->failed || status >= 0 || !why[0])
		fuzz_broken("failed twice, or without a reason");
	e->failed = true;
	place_free(e);
}
static const struct tran_up up = {on_ready, on_frame, on_place, on_room, on_done, on_failed, NULL};

static int listener = -1;
static struct sockaddr_in listener_at = {.sin_family = AF_INET};

static void listen_here(void)
{
	socklen_t len = sizeof listener_at;
	if (listener >= 0)
		return;
	listener_at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(listener, (struct sockaddr *)&listener_at, len) || listen(listener, 8) ||
		getsockname(listener, (struct sockaddr *)&listener_at, &len))
		abort();
}

/* A reset leaves nothing in TIME_WAIT: thousands of these come a second. */
static int ends_by_reset(int fd)
{
	if (fd >= 0)
		setsockopt(
			fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
	return fd;
}

static void cannot(const char *what)
{
	perror(what);
	abort();
}

static int connect_to(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), tries = 0;
	/* thousands a second may use up the ports for a moment */
	while (connect(fd, (const struct sockaddr *)a, sizeof *a)) {
		if (errno == EISCONN) /* after EINTR, by the fuzzer's own clock */
			break;
		if (errno == EINTR || errno == EALREADY)
			continue;
		if (errno != EADDRNOTAVAIL || ++tries > 1000 || poll(NULL, 0, 10))
			cannot("connect");
	}
	return fd;
}

static void tcp_pair(int fd[2])
{
	fd[0] = connect_to(&listener_at);
	poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 10000);
	fd[1] = ends_by_reset(accept(listener, NULL, NULL));
	if (fd[1] < 0)
		cannot("accept");
	tcp_stream_set_options(fd[0], true);
}

static void mem_add(void)
{
	run.region = malloc(REGION + 2 * GUARD);
	memset(run.region, 0xa5, REGION + 2 * GUARD);
	if (tran_tcp.mem->add(
		    run.t, run.region + GUARD, REGION, 1 + fuzz_u8(&run.in) % 7, &run.mem))
		abort();
}
static void mem_del(void)
{
	for (int i = 0; i < GUARD; i++)
		if (run.region[i] != 0xa5 || run.region[GUARD + REGION + i] != 0xa5)
			fuzz_broken("bytes beside the registered memory were written");
	tran_tcp.mem->del(run.t, run.mem);
	free(run.region);
}

/* Both are one side of an endpoint whose other side has the same number, and a nonce of its own. */
static void start(struct tran_ep *tran_ep, bool active)
{
	const struct tcp_ep *ep = (const struct tcp_ep *)tran_ep;
	uint8_t handle[TRAN_HANDLE_MAX];
	struct tcp_handle h = {
		.number = ep->number, .port = active ? ntohs(listener_at.sin_port) : 0};
	memset(h.nonce, 0x11, sizeof h.nonce);
	if (tran_tcp.ep_start(tran_ep, handle, tcp_put_handle(handle, &h), 60000))
		abort();
}

static void attach_first(bool active)
{
	struct tcp *t = tcp_of(run.t);
	struct tcp_ep *ep = (struct tcp_ep *)run.ep, *second = (struct tcp_ep *)run.second;
	struct tcp_bundle *b = tcp_bundle_new(t);
	for (uint16_t i = 0; i < 2; i++) {
		int fd[2];
		tcp_pair(fd);
		run.peer[i] = fd[1];
		b->stream[i] = tcp_stream_new(t, fd[0], TCP_UP, EPOLLIN);
		b->stream[i]->bundle = b;
		b->stream[i]->index = i;
	}
	b->state = TCP_BUNDLE_UP;
	b->connector = active;
	b->founder[0].number = b->founder[1].number = ep->number;
	ep->state = TCP_EP_UP;
	ep->was_up = run.first_end.ready = true;
	second->state = TCP_EP_STARTED;
	second->deadline_ns = RPWI_NEVER;
	ep->peer.number = ep->number;
	second->peer.number = second->number;
	ep->bundle = b;
	rpwi_list_add_tail(&b->members, &ep->member);
	if (active) {
		second->bundle = b;
		rpwi_list_add_tail(&b->members, &second->member);
	}
}

static void begin(void)
{
	struct tran_facts facts = {.transports = "tcp", .address = "127.0.0.1"};
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t len;
	uint8_t how = fuzz_u8(&run.in);
	bool active = how & 1;
	listen_here();
	if (tran_tcp.open(&up, &facts, &run.t) ||
		tran_tcp.ep_make(run.t, &(struct tran_control){.peer = &facts, .active = active},
			&run.first_end, &run.ep, handle, &len) ||
		tran_tcp.ep_make(run.t, &(struct tran_control){.peer = &facts, .active = active},
			&run.second_end, &run.second, handle, &len))
		abort();
	tcp_of(run.t)->streams_max = 2;
	run.peer[0] = run.peer[1] = -1;
	run.strangers = (how & 6) == 6;
	if (!run.strangers) {
		attach_first(active);
	} else {
		start(run.ep, active);
		if (how & 8) /* or it is asked for before it is started */
			start(run.second, active);
	}
	mem_add();
}

static void say(unsigned stream, const void *p, size_t len)
{
	while (len) {
		ssize_t r = send(run.peer[stream], p, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (r <= 0)
			return;
		p = (const char *)p + r;
		len -= (size_t)r;
	}
}

/* Of bulk data that may come, or of a request. */
static uint32_t some_id(void)
{
	const struct tcp_ep *ep = (const struct tcp_ep *)run.ep;
	uint8_t n = fuzz_u8(&run.in);
	if (ep && n < 128) {
		const struct rpwi_list *l = ep->expected.next;
		for (unsigned i = 0; i < n % 16u && l != &ep->expected; i++)
			l = l->next;
		if (l != &ep->expected)
			return RPWI_CONTAINER_OF(l, struct tran_bulk, link)->id;
	}
	return (n % 64u + 1) << 7 | fuzz_u8(&run.in) % 84u; /* emulate_ask.c numbers them so */
}
static uint32_t some_len(uint32_t id)
{
	const struct tcp_ep *ep = (const struct tcp_ep *)run.ep;
	uint8_t n = fuzz_u8(&run.in);
	for (const struct rpwi_list *l = ep ? ep->expected.next : NULL;
		l && n < 160 && l != &ep->expected; l = l->next)
		if (RPWI_CONTAINER_OF(l, struct tran_bulk, link)->id == id)
			return (uint32_t)RPWI_CONTAINER_OF(l, struct tran_bulk, link)->len;
	return n < 240 ? n : fuzz_u16(&run.in) * (uint32_t)n;
}

/* The peer comes, or is come to, once more: a greeting that may be wrong in one place. */
static void knock(unsigned stream)
{
	const struct tcp_ep *ep =
		(const struct tcp_ep *)(run.second && fuzz_u8(&run.in) & 1 ? run.second : run.ep);
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(tcp_of(run.t)->listener[0].port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint8_t bytes[TCP_GREETING_LEN];
	if (!ep || !run.strangers)
		return;
	int fd = ends_by_reset(
		ep->active ? accept(listener, NULL, NULL)
			   : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return;
	if (!ep->active && connect(fd, (const struct sockaddr *)&to, sizeof to) &&
		poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 0) != 1) {
		close(fd); /* too many wait to be accepted */
		return;
	}
	if (run.peer[stream] >= 0)
		close(run.peer[stream]);
	run.peer[stream] = fd;
	struct tcp_greeting g = {.stream = (uint16_t)stream, .number = ep->number};
	memcpy(g.nonce, ep->nonce, sizeof g.nonce);
	tcp_put_greeting(bytes, &g);
	uint16_t change = fuzz_u16(&run.in);
	if (change & 0x8000)
		bytes[(change >> 3 & 0xfff) % sizeof bytes] ^= (uint8_t)(1u << (change & 7));
	if (!ep->active || stream) /* who was connected to greets back on streams for bulk data */
		say(stream, bytes, change & 0x4000 ? change % sizeof bytes : sizeof bytes);
}

/* A frame of the emulation, as emulate.c has it: a request, or an answer. Its length. */
static size_t put_emulation(uint8_t *p, struct tcp_header *h)
{
	struct ask ask = {
		.kind = (uint8_t)(TRAN_OWN_HEADS + fuzz_u8(&run.in) % 5), .id = some_id()};
	struct {
		uint32_t magic, slot;
		uint64_t key;
	} desc;
	uint8_t where = fuzz_u8(&run.in), body = fuzz_u8(&run.in);
	memcpy(&desc, run.mem->desc.bytes, sizeof desc);
	ask.slot = desc.slot;
	ask.key = desc.key;
	ask.offset = where < 128   ? where * 32u
		     : where < 250 ? REGION - (where - 128u)
				   : UINT64_MAX - where;
	ask.bulk = body >= 192;
	ask.len = ask.kind >= TRAN_OWN_HEADS + 2 ? 8
		  : body < 128                   ? body
		  : body < 192                   ? REGION
						 : some_len(ask.id);
	h->head_len = ask.kind == TRAN_OWN_HEADS + 4 ? 16 : sizeof ask;
	h->len = ask.kind == TRAN_OWN_HEADS || ask.bulk || h->head_len == 16 ? 0
		 : ask.kind == TRAN_OWN_HEADS + 1                            ? (uint32_t)ask.len
									     : 16;
	if (h->head_len == 16 && body < 64)
		h->len = some_len(ask.id);
	if (h->head_len == 16)
		ask.bulk = body % 3;
	memcpy(p, &ask, sizeof ask);
	return h->head_len + (size_t)h->len;
}

/* A header with what follows it, all of which may be wrong in one place. */
static void say_sense(unsigned stream)
{
	static uint8_t bytes[TCP_HEADER_LEN + TRAN_HEAD_MAX + LOCAL_MAX];
	uint8_t what = fuzz_u8(&run.in) % 12;
	struct tcp_header h = {.kind = what < 4 ? TCP_FRAME : (uint8_t)(TCP_FRAME + what - 3)};
	const struct tcp_ep *to =
		(const struct tcp_ep *)(run.second && fuzz_u8(&run.in) & 1 ? run.second : run.ep);
	size_t len = TCP_HEADER_LEN, more = 0;
	h.id = h.kind == TCP_OPEN ? 0 : to ? to->number : fuzz_u8(&run.in);
	if (h.kind == TCP_FRAME || h.kind == TCP_LONG) {
		if (what < 3) {
			more = put_emulation(bytes + len, &h);
		} else {
			h.head_len = fuzz_u8(&run.in);
			h.len = some_len(0);
			more = h.head_len + (size_t)h.len;
			bytes[len] &= 0x7f;
		}
	} else if (h.kind == TCP_BULK) {
		uint32_t id = some_id();
		rpwi_put_be32(bytes + len, id);
		h.len = some_len(id);
		h.answer = !h.len;
		more = TCP_BULK_ID_LEN + (size_t)h.len;
	} else if (h.kind >= TCP_ATTACH && to) {
		rpwi_put_be32(bytes + len, to->number);
		memcpy(bytes + len + (h.kind == TCP_ATTACH ? 4 : 0), to->nonce, TCP_NONCE_LEN);
		more = tcp_more_len(&h);
	} else if (h.kind == TCP_END) {
		h.answer = fuzz_u8(&run.in) % 8 == 0;
	}
	tcp_put_header(bytes, &h);
	len += RPWI_MIN(more, sizeof bytes - len - TCP_HEADER_LEN);
	if (h.kind == TCP_BULK && !h.answer && fuzz_u8(&run.in) < 200) { /* mostly with its end */
		tcp_put_header(bytes + len,
			&(struct tcp_header){
				.kind = TCP_END, .id = h.id, .answer = fuzz_u8(&run.in) % 8 == 0});
		len += TCP_HEADER_LEN;
	}
	uint16_t change = fuzz_u16(&run.in);
	if (change & 0x8000)
		bytes[(change >> 3 & 0xfff) % RPWI_MIN(len, (size_t)64)] ^=
			(uint8_t)(1u << (change & 7));
	else
		run.shown |= h.kind == TCP_ATTACHED || h.kind == TCP_ATTACH;
	say(stream, bytes, len);
}

static void post(void)
{
	uint8_t what = fuzz_u8(&run.in);
	if (!run.ep || run.ops == OPS_MAX || !run.first_end.ready)
		return;
	struct op *op = &run.op[run.ops];
	struct tran_desc d = run.mem->desc;
	size_t len = what & 0x40 ? fuzz_u8(&run.in) * 2300u : fuzz_u8(&run.in);
	op->posted = true;
	op->local = calloc(1, len + 1);
	run.ops++;
	int rc;
	if (what % 8 == 0)
		rc = tran_tcp.rma->flush(run.ep, op);
	else if (what % 8 == 1)
		rc = tran_tcp.rma->atomic(run.ep, what & 0x80 ? TRAN_FETCH_ADD : TRAN_COMPARE_SWAP,
			&d, len, 1, 2, &op->before, op);
	else
		rc = tran_tcp.rma->transfer(run.ep, what & 0x80, &d, 7, op->local, len, NULL, op);
	if (rc && op->posted && !op->done) {
		free(op->local);
		op->local = NULL;
		op->done = true;
	}
}

static void drain(void)
{
	static uint8_t sink[1 << 16];
	for (int i = 0; i < 2; i++)
		while (recv(run.peer[i], sink, sizeof sink, MSG_DONTWAIT) > 0)
			;
}

static void close_second(void)
{
	if (run.second)
		tran_tcp.ep_close(run.second);
	place_free(&run.second_end);
	run.second = NULL;
}

static void close_ep(void)
{
	if (!run.ep)
		return;
	tran_tcp.ep_close(run.ep);
	place_free(&run.first_end);
	run.ep = NULL;
	for (unsigned i = 0; i < run.ops; i++)
		free(run.op[i].local); /* nobody may touch them from now on */
	run.ops = 0;
}

static void command(void)
{
	uint8_t raw[64], n;
	uint8_t what = fuzz_u8(&run.in);
	unsigned stream = what >> 7;
	switch (what & 15) {
	case 0:
		n = fuzz_u8(&run.in) % sizeof raw;
		for (unsigned i = 0; i < n; i++)
			raw[i] = fuzz_u8(&run.in);
		say(stream, raw, n);
		break;
	case 1 ... 5:
		say_sense(stream);
		break;
	case 6:
	case 7:
		post();
		break;
	case 8:
		mem_del();
		mem_add();
		break;
	case 9:
		drain();
		break;
	case 10:
		if (run.ep && run.first_end.ready)
			tran_tcp.send(
				run.ep, raw, 0, &(struct iovec){run.region, REGION}, 1, REGION);
		break;
	case 11:
		if (fuzz_u8(&run.in) < 16)
			shutdown(run.peer[stream], SHUT_RDWR);
		break;
	case 12:
		n = fuzz_u8(&run.in);
		if (n < 16)
			close_ep();
		else if (n < 32)
			close_second();
		break;
	case 13:
		if (run.strangers && fuzz_u8(&run.in) < 128)
			knock(stream);
		else if (run.second && ((const struct tcp_ep *)run.second)->state == TCP_EP_MADE)
			start(run.second, ((const struct tcp_ep *)run.second)->active);
		tran_tcp.progress(run.t);
		break;
	default:
		tran_tcp.progress(run.t);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof run);
	run.in = (struct fuzz_input){data, len};
	begin();
	for (unsigned i = 0; run.in.left && i < COMMANDS_MAX; i++)
		command();
	for (int i = 0; i < 4; i++) {
		tran_tcp.progress(run.t);
		drain();
	}
	close_ep();
	close_second();
	mem_del();
	for (int i = 0; i < 2; i++)
		close(run.peer[i]);
	for (int fd; (fd = ends_by_reset(accept(listener, NULL, NULL))) >= 0;)
		close(fd);
	for (int i = 0; i < 2; i++)
		tran_tcp.progress(run.t);
	tran_tcp.close(run.t);
	return 0;
}
