/* SPDX-License-Identifier: BSD-3-Clause */
/* boot_fuzz.c - the control connection in the hands of its peer: the input is what the peer sends,
 * in pieces, before, in and after its hello, to the listening or the connecting side, with a key or
 * without, and what the callee does in its up-calls. Checked all along: up-calls only for what is
 * open, in order; messages within bounds; memory within bounds; and everything can be closed.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot/tls.h"
#include "ropeway.h"

enum { PIECES_MAX = 64 };

static struct fuzz_run {
	struct fuzz_input in;
	struct boot *b;
	struct boot_conn *c; /* NULL: closed */
	bool listening, told, ended;
	unsigned messages;
} run;

static void act(void)
{
	uint8_t what = fuzz_u8(&run.in);
	if (what < 16) {
		struct boot_conn *c = run.c;
		run.c = NULL;
		boot_close(c);
	} else if (what < 64 && !run.ended) {
		static const uint8_t data[BOOT_MESSAGE_MAX] = {1, 2, 3};
		boot_send(run.c, what, data, what * 128u);
	}
}

static void on_accepted(void *user, void *listener_user, struct boot_conn *c)
{
	if (!run.listening || run.told || c != run.c)
		fuzz_broken("accepted, but nobody came");
	run.told = true;
	boot_set_user(c, &run);
	act();
}

static void on_connected(void *user, const struct rpwi_error *e)
{
	int status = e ? e->status : 0;
	const char *why = e ? e->text : "";
	if (run.listening || run.told || !run.c || (status && !why[0]))
		fuzz_broken("connected, but it was not asked");
	run.told = true;
	run.ended = status != 0;
	act();
}

static void on_message(void *user, unsigned type, const uint8_t *data, size_t len)
{
	static uint8_t copy[BOOT_MESSAGE_MAX];
	if (!run.told || run.ended || !run.c || len > BOOT_MESSAGE_MAX)
		fuzz_broken("a message that cannot be");
	memcpy(copy, data, len);
	run.messages++;
	act();
}

static void on_gone(void *user, const struct rpwi_error *e)
{
	int status = e ? e->status : 0;
	const char *why = e ? e->text : "";
	if (!run.told || run.ended || !run.c || status >= 0 || !why[0])
		fuzz_broken("an end that cannot be");
	run.ended = true;
	act();
}

static const struct boot_up up = {
	.accepted = on_accepted, .connected = on_connected, .message = on_message, .gone = on_gone};

static struct boot_key *key(void)
{
	static struct boot_key *k;
	char path[64];
	if (k)
		return k;
	int fd = memfd_create("key", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fchmod(fd, 0600) || write(fd, "00112233445566778899aabbccddeeff", 32) != 32 ||
		boot_key_load(path, &k))
		fuzz_broken("no key");
	close(fd);
	return k;
}

/* As listen.c and dial.c make them, on one end of a socket pair. */
static void connection(struct boot_listener *l, int fd)
{
	struct boot_conn *c = run.c = boot_conn_new(run.b, run.listening ? NULL : &run);
	if (!c)
		fuzz_broken("no memory");
	c->state = CONN_CONNECTING;
	strcpy(c->where, "10.0.0.2:4711");
	if (boot_conn_attach(c, fd, EPOLLIN))
		fuzz_broken("no epoll");
	if (run.listening) {
		c->listener = l;
		l->nstrangers++;
		rpwi_list_add_tail(&l->strangers, &c->stranger);
	} else {
		c->dial = calloc(1, sizeof(*c->dial));
		if (!c->dial)
			fuzz_broken("no memory");
		c->dial->c = c;
		rpwi_list_init(&c->dial->turn_link);
		strcpy(c->dial->text, "host:4711");
		c->dial->backoff_ms = 1000; /* not within this run */
		c->dial->give_up_ns = RPWI_NEVER;
	}
	run.b->busy = true; /* it is as from inside progress */
	boot_conn_begin(c);
	run.b->busy = false;
}

static void check(struct boot_listener *l)
{
	for (struct rpwi_list *i = run.b->conns.next; i != &run.b->conns; i = i->next) {
		struct boot_conn *c = RPWI_CONTAINER_OF(i, struct boot_conn, link);
		if (c->in.room > BOOT_FRAME_HEAD + BOOT_MESSAGE_MAX ||
			c->out.room > BOOT_QUEUE_MAX + 4096)
			fuzz_broken("more memory than a connection may have");
		return;
	}
	run.c = NULL; /* it was a stranger, and is gone */
	if (l->nstrangers)
		fuzz_broken("a stranger is counted that is not there");
}

static void drain(int fd)
{
	static uint8_t bytes[65536];
	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/* The peer's bytes; with `hello` a good one before them. */
static void peer(struct boot_listener *l, int fd, bool hello)
{
	static uint8_t bytes[BOOT_HELLO_MAX + 4096];
	if (hello) {
		struct tran_facts facts = {.pid = 7, .hostname = "peer", .transports = "tcp"};
		size_t len = boot_hello_encode(
			run.listening ? BOOT_HELLO_CONNECTOR : BOOT_HELLO_LISTENER, &facts, bytes);
		if (send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			fuzz_broken("a socket pair that takes nothing");
	}
	for (int n = 0; n < PIECES_MAX && run.in.left; n++) {
		size_t len = fuzz_u16(&run.in) % 4096;
		len = RPWI_MIN(len, run.in.left);
		memcpy(bytes, run.in.p, len);
		run.in.p += len;
		run.in.left -= len;
		if (len && send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		boot_progress(run.b);
		drain(fd);
		check(l);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct tran_facts own = {.pid = 1, .hostname = "own", .transports = "tcp"};
	struct boot_listener l = {.paused_until_ns = RPWI_NEVER};
	int fd[2];
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	uint8_t how = fuzz_u8(&run.in);
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	if (boot_new(&up, NULL, &own, NULL, &run.b) ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd))
		fuzz_broken("no descriptors");
	l.b = run.b;
	rpwi_list_init(&l.strangers);
	run.listening = how & 1;
	run.b->key = how & 4 ? key() : NULL;
	connection(&l, fd[0]);
	peer(&l, fd[1], how & 2);
	if (how & 8)
		shutdown(fd[1], SHUT_WR);
	else
		close(fd[1]);
	for (int i = 0; i < 4; i++)
		boot_progress(run.b);
	check(&l);
	if (how & 16 && run.c)
		boot_close(run.c);
	run.b->key = NULL;
	boot_free(run.b);
	if (how & 8)
		close(fd[1]);
	return 0;
}
