/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - names to addresses. getaddrinfo blocks, for half a minute when name servers are silent,
 * and cannot be cancelled: so it runs in threads, which nobody waits for. They are made when there
 * is something to look up, end when there is nothing, and share only what is in struct boot_names;
 * the last to leave it frees it. Their lock is held for a few instructions, never during a look-up
 * nor while the asker is told; it never calls the file that asks, but the function that came with
 * the question.
 */
#include "boot/boot_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

enum { THREADS_MAX = 4, STACK_BYTES = 512 * 1024 };

struct boot_names {
	struct boot_source source;
	pthread_mutex_t lock;
	pthread_cond_t answered;
	struct rpwi_list asked, done; /* look-ups; one that a thread works on is in neither */
	unsigned threads;
	bool closed; /* boot is gone: questions are thrown away */
	struct boot *b;
	int fd; /* eventfd: something is in `done`; -1: nothing was ever asked */
	bool watched;
};

struct boot_lookup {
	struct rpwi_list link;
	struct boot_names *names;
	struct boot_conn *c; /* NULL: nobody wants to know any more */
	boot_names_resolved *resolved;
	char host[BOOT_HOST_MAX];
	uint16_t port;
	bool done;
	int gai_error;
	struct boot_addrs addrs;
};

int boot_names_new(struct boot *b, struct boot_names **out)
{
	struct boot_names *n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->source.kind = SOURCE_NAMES;
	pthread_mutex_init(&n->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&n->answered, &attr);
	pthread_condattr_destroy(&attr);
	rpwi_list_init(&n->asked);
	rpwi_list_init(&n->done);
	n->b = b;
	n->fd = -1;
	*out = n;
	return 0;
}

static void names_destroy(struct boot_names *n)
{
	pthread_cond_destroy(&n->answered);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

static void throw_away(struct rpwi_list *list)
{
	while (!rpwi_list_empty(list)) {
		struct boot_lookup *l = RPWI_CONTAINER_OF(list->next, struct boot_lookup, link);
		rpwi_list_del(&l->link);
		free(l);
	}
}

void boot_names_free(struct boot_names *n, bool ours)
{
	if (!n)
		return;
	if (!ours) {
		/* after a fork the threads are not here, and one of them may have held the lock:
		 * what they share stays as it is */
		if (n->fd >= 0)
			close(n->fd);
		return;
	}
	pthread_mutex_lock(&n->lock);
	n->closed = true;
	throw_away(&n->asked);
	throw_away(&n->done);
	if (n->fd >= 0)
		close(n->fd);
	bool last = n->threads == 0;
	pthread_mutex_unlock(&n->lock);
	if (last)
		names_destroy(n);
}

static void look_up(struct boot_lookup *l)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV},
			*ai = NULL;
	char service[8];
	snprintf(service, sizeof(service), "%u", l->port);
	l->gai_error = getaddrinfo(l->host, service, &hints, &ai);
	if (l->gai_error)
		return;
	boot_addr_take(ai, &l->addrs);
	freeaddrinfo(ai);
	if (!l->addrs.n)
		l->gai_error = EAI_NONAME;
}

static void *thread(void *arg)
{
	struct boot_names *n = arg;
	uint64_t one = 1;
	pthread_mutex_lock(&n->lock);
	while (!n->closed && !rpwi_list_empty(&n->asked)) {
		struct boot_lookup *l = RPWI_CONTAINER_OF(n->asked.next, struct boot_lookup, link);
		rpwi_list_del(&l->link);
		pthread_mutex_unlock(&n->lock);
		look_up(l);
		pthread_mutex_lock(&n->lock);
		if (n->closed) {
			free(l);
			break;
		}
		l->done = true;
		rpwi_list_add_tail(&n->done, &l->link);
		ssize_t ignored = write(n->fd, &one, sizeof(one));
		(void)ignored;
		pthread_cond_broadcast(&n->answered);
	}
	bool last = --n->threads == 0 && n->closed;
	pthread_mutex_unlock(&n->lock);
	if (last)
		names_destroy(n);
	return NULL;
}

/* With the first name: most contexts only meet numbers. */
static bool fd_open(struct boot_names *n)
{
	if (n->fd < 0)
		n->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (n->fd >= 0 && !n->watched)
		n->watched = !boot_watch(n->b, n->fd, &n->source, EPOLLIN);
	return n->watched;
}

/* With the lock held. Signals are the program's: none is taken by a thread that it does not
 * know. */
static int thread_start(struct boot_names *n)
{
	pthread_t id;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	n->threads++;
	int rc = rpwi_thread_start(&id, &attr, thread, n);
	if (rc)
		n->threads--;
	pthread_attr_destroy(&attr);
	return -rc;
}

struct boot_lookup *boot_names_ask(struct boot_names *n, const char *host, uint16_t port,
	struct boot_conn *c, boot_names_resolved *resolved)
{
	struct boot_lookup *l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->names = n;
	l->c = c;
	l->resolved = resolved;
	l->port = port;
	snprintf(l->host, sizeof(l->host), "%s", host);
	pthread_mutex_lock(&n->lock);
	rpwi_list_add_tail(&n->asked, &l->link);
	int rc = fd_open(n) ? 0 : -errno;
	if (!rc && n->threads < THREADS_MAX)
		rc = thread_start(n);
	if (rc && (!n->threads || !n->watched)) {
		rpwi_list_del(&l->link);
		free(l);
		l = NULL;
	}
	pthread_mutex_unlock(&n->lock);
	return l;
}

void boot_names_forget(struct boot_lookup *l)
{
	struct boot_names *n = l->names;
	pthread_mutex_lock(&n->lock);
	l->c = NULL;
	pthread_mutex_unlock(&n->lock);
}

int boot_names_wait(struct boot_names *n, const char *host, uint16_t port, unsigned timeout_ms,
	struct boot_addrs *out)
{
	struct boot_lookup *l = boot_names_ask(n, host, port, NULL, NULL);
	uint64_t until_ns = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	struct timespec until = {.tv_sec = (time_t)(until_ns / RPWI_NS_PER_S),
		.tv_nsec = (long)(until_ns % RPWI_NS_PER_S)};
	int rc = EAI_AGAIN;
	if (!l)
		return EAI_MEMORY;
	pthread_mutex_lock(&n->lock);
	while (!l->done && pthread_cond_timedwait(&n->answered, &n->lock, &until) != ETIMEDOUT)
		;
	if (l->done) {
		rc = l->gai_error;
		*out = l->addrs;
		rpwi_list_del(&l->link);
		free(l);
	}
	pthread_mutex_unlock(&n->lock);
	return rc;
}

static struct boot_lookup *next_done(struct boot_names *n)
{
	struct boot_lookup *l = NULL;
	pthread_mutex_lock(&n->lock);
	if (!rpwi_list_empty(&n->done)) {
		l = RPWI_CONTAINER_OF(n->done.next, struct boot_lookup, link);
		rpwi_list_del(&l->link);
	}
	pthread_mutex_unlock(&n->lock);
	return l;
}

unsigned boot_names_progress(struct boot_names *n)
{
	uint64_t count;
	unsigned did = 0;
	ssize_t ignored = read(n->fd, &count, sizeof(count));
	(void)ignored;
	for (struct boot_lookup *l; (l = next_done(n)); did++) {
		if (l->c)
			l->resolved(l->c, &l->addrs, l->gai_error);
		free(l);
	}
	return did;
}
