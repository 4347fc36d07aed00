/* SPDX-License-Identifier: BSD-3-Clause */
/* repoll.c - what rsockets has since rdma-core 61 for epoll: repoll_create, repoll_ctl,
 * repoll_wait. A server of one thread serves CLIENTS processes by them, and sends back what it
 * receives; each client compares BYTES bytes. Exit status 0, and a line, if all is as it ought to
 * be. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 4, BYTES = 1 << 20, PIECE = 48 * 1024, PORT = 7493, LIMIT_MS = 30000 };

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
			exit(1); \
		} \
	} while (0)

static struct sockaddr_in at(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}
static uint8_t byte_of(int client, size_t i)
{
	return (uint8_t)((i * 2654435761u >> 11) + (size_t)client * 37);
}

static void client(int number)
{
	static uint8_t in[BYTES], out[BYTES];
	struct sockaddr_in a = at();
	int s = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(s >= 0);
	for (size_t i = 0; i < BYTES; i++)
		out[i] = byte_of(number, i);
	CHECK(!rconnect(s, (struct sockaddr *)&a, sizeof(a)));
	for (size_t done = 0; done < BYTES;) {
		size_t piece = BYTES - done < PIECE ? BYTES - done : PIECE;
		for (size_t n = 0; n < piece;) {
			ssize_t rc = rsend(s, out + done + n, piece - n, 0);
			CHECK(rc > 0);
			n += (size_t)rc;
		}
		for (size_t n = 0; n < piece;) {
			ssize_t rc = rrecv(s, in + done + n, piece - n, 0);
			CHECK(rc > 0);
			n += (size_t)rc;
		}
		done += piece;
	}
	CHECK(!memcmp(in, out, BYTES));
	rshutdown(s, SHUT_RDWR);
	rclose(s);
	_exit(0);
}

/* What a client sent and did not get back yet. */
struct served {
	int fd;
	uint8_t kept[PIECE];
	size_t n;
	uint32_t waits_for;
};

static void wait_for(int ep, struct served *c, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = c};
	if (c->waits_for == events)
		return;
	CHECK(!repoll_ctl(ep, c->waits_for ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &e));
	c->waits_for = events;
}

/* False: the client has ended. */
static int serve(int ep, struct served *c, uint32_t events)
{
	if (events & EPOLLIN && !c->n) {
		ssize_t rc = rrecv(c->fd, c->kept, sizeof(c->kept), 0);
		if (!rc)
			return 0;
		CHECK(rc > 0 || errno == EAGAIN);
		c->n = rc > 0 ? (size_t)rc : 0;
	}
	if (c->n) {
		ssize_t rc = rsend(c->fd, c->kept, c->n, 0);
		CHECK(rc > 0 || errno == EAGAIN);
		if (rc > 0) {
			memmove(c->kept, c->kept + rc, c->n - (size_t)rc);
			c->n -= (size_t)rc;
		}
	}
	if (events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN))
		return 0;
	wait_for(ep, c, c->n ? EPOLLOUT : EPOLLIN);
	return 1;
}

/* The guess was -1 with errno, as epoll_ctl(2) has it. */
static void mistakes_are_error_numbers(int ep, int fd)
{
	struct epoll_event e = {.events = EPOLLIN};
	CHECK(repoll_ctl(ep, EPOLL_CTL_MOD, fd, &e) == ENOENT);
	CHECK(repoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) == ENOENT);
	CHECK(!repoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
	CHECK(repoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == EEXIST);
	CHECK(!repoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL));
	CHECK(repoll_ctl(fd, EPOLL_CTL_ADD, ep, &e) == EINVAL);
}

static long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(void)
{
	struct sockaddr_in a = at();
	struct epoll_event e = {.events = EPOLLIN}, got[CLIENTS + 1];
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), ep = repoll_create(0), left = CLIENTS,
	    status;
	long until = now_ms() + LIMIT_MS, before;

	for (int i = 0; i < CLIENTS; i++)
		if (!fork()) {
			usleep(300 * 1000);
			client(i);
		}
	CHECK(listener >= 0 && ep >= 0);
	CHECK(!rbind(listener, (struct sockaddr *)&a, sizeof(a)) && !rlisten(listener, 8));
	CHECK(!rfcntl(listener, F_SETFL, O_NONBLOCK));
	mistakes_are_error_numbers(ep, listener);
	before = now_ms();
	CHECK(!repoll_wait(ep, got, CLIENTS, 20) && now_ms() - before >= 20);
	CHECK(!repoll_ctl(ep, EPOLL_CTL_ADD, listener, &e));
	while (left) {
		CHECK(now_ms() < until);
		int n = repoll_wait(ep, got, CLIENTS + 1, 1000);
		for (int i = 0; i < n; i++) {
			struct served *c = got[i].data.ptr;
			if (!c) {
				int fd = raccept(listener, NULL, NULL);
				CHECK(fd >= 0 || errno == EAGAIN);
				if (fd < 0)
					continue;
				CHECK(!rfcntl(fd, F_SETFL, O_NONBLOCK));
				c = calloc(1, sizeof(*c));
				c->fd = fd;
				wait_for(ep, c, EPOLLIN);
			} else if (!serve(ep, c, got[i].events)) {
				CHECK(!repoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL));
				rclose(c->fd);
				free(c);
				left--;
			}
		}
	}
	for (int i = 0; i < CLIENTS; i++) {
		CHECK(wait(&status) > 0);
		CHECK(!status);
	}
	CHECK(!repoll_ctl(ep, EPOLL_CTL_DEL, listener, NULL));
	CHECK(!rclose(ep));
	printf("repoll: %d clients, %d bytes each way, equal\n", CLIENTS, BYTES);
	return 0;
}
