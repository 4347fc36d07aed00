/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c - what happens to a connection: TCP stands, its socket is ready, its time is over. It
 * hands each to the file that knows what to do; it keeps nothing of its own. It takes no lock: a
 * struct boot belongs to one thread at a time.
 */
#include "boot/tls.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "ropeway.h"

enum { READS_MAX = 4 };

void boot_conn_begin(struct boot_conn *c)
{
	if (c->b->key) {
		boot_conn_move(c, CONN_TLS);
		if (boot_tls_start(c))
			boot_conn_broken(c, RPW_ERR_NO_MEMORY, "no memory for TLS");
		return;
	}
	boot_conn_move(c, CONN_HELLO);
	if (c->dial)
		boot_greet(c);
}

static bool reads(const struct boot_conn *c)
{
	return c->fd >= 0 && c->state >= CONN_TLS && c->state != CONN_ENDED;
}

unsigned boot_conn_read(struct boot_conn *c)
{
	for (int i = 0; i < READS_MAX && reads(c); i++) {
		ssize_t n = recv(c->fd, c->b->scratch, sizeof(c->b->scratch), MSG_DONTWAIT);
		if (n > 0) {
			if (c->tls)
				boot_tls_feed(c, c->b->scratch, (size_t)n);
			else
				boot_conn_take(c, c->b->scratch, (size_t)n);
			if ((size_t)n < sizeof(c->b->scratch))
				break;
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			boot_conn_lost(c, n ? errno : 0);
			break;
		} else if (errno == EAGAIN) {
			break;
		}
	}
	return 1;
}

unsigned boot_conn_event(struct boot_conn *c, uint32_t events)
{
	if (c->state == CONN_CONNECTING) {
		if (boot_dial_established(c))
			boot_conn_begin(c);
		return 1;
	}
	if (events & EPOLLOUT && reads(c)) {
		boot_conn_flush(c);
		if (c->state == CONN_LINGER)
			boot_conn_linger(c);
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		boot_conn_read(c);
	return 1;
}

/* This side may be late itself: messages that have come count, before anybody is judged. */
static bool came_in_time(struct boot_conn *c)
{
	if (c->state != CONN_TLS && c->state != CONN_HELLO)
		return false;
	boot_conn_read(c);
	return c->state != CONN_TLS && c->state != CONN_HELLO;
}

unsigned boot_conn_timeout(struct boot_conn *c, uint64_t now_ns)
{
	if (came_in_time(c))
		return 1;
	if (c->dial)
		return boot_dial_timeout(c, now_ns);
	if (c->state == CONN_OPEN && c->send_errno) {
		boot_conn_read(c); /* what came before the end comes first */
		if (c->state == CONN_OPEN)
			boot_conn_lost(c, c->send_errno);
	} else if (c->state == CONN_LINGER) {
		boot_conn_bury(c);
	} else if (c->listener) {
		boot_stranger_count(
			c, false, c->in.len ? "its hello is not complete in time" : "it is silent");
		boot_conn_bury(c);
	}
	return 1;
}
