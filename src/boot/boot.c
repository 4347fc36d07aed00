/* SPDX-License-Identifier: BSD-3-Clause */
/* boot.c - the control path of a context: made and freed, and progress, which asks the epoll set
 * and the timers and hands on what they say. Nothing of boot calls it. It takes no lock: a struct
 * boot belongs to one thread at a time.
 */
#include "boot/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"
#include "ropeway.h"

enum { EVENTS = 64 };

int boot_new(const struct boot_up *up, void *user, const struct tran_facts *own,
	const char *key_file, struct boot **out)
{
	struct boot *b = calloc(1, sizeof(*b));
	if (!b)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for the control path");
	b->up = up;
	b->user = user;
	b->own = *own;
	boot_make_ours(b);
	b->deadline_ns = RPWI_NEVER;
	b->random = (uint32_t)rpwi_now_ns() | 1;
	rpwi_list_init(&b->conns);
	rpwi_list_init(&b->timed);
	rpwi_list_init(&b->listeners);
	rpwi_list_init(&b->dead_conns);
	rpwi_list_init(&b->dead_listeners);
	rpwi_list_init(&b->turns);
	rpwi_list_init(&b->turn_queue);
	b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	int rc = b->epoll_fd < 0 ? -errno : boot_names_new(b, &b->names);
	if (rc) {
		boot_free(b);
		return rpwi_fail(
			RPW_ERR_SYSTEM, "the control path cannot be set up: %s", strerror(-rc));
	}
	rc = key_file ? boot_key_load(key_file, &b->key) : 0;
	if (rc) {
		boot_free(b);
		return rc;
	}
	*out = b;
	return 0;
}

static void bury_the_dead(struct boot *b)
{
	while (!rpwi_list_empty(&b->dead_conns))
		boot_conn_free(RPWI_CONTAINER_OF(b->dead_conns.next, struct boot_conn, link));
	while (!rpwi_list_empty(&b->dead_listeners)) {
		struct boot_listener *l =
			RPWI_CONTAINER_OF(b->dead_listeners.next, struct boot_listener, link);
		rpwi_list_del(&l->link);
		free(l);
	}
}

void boot_free(struct boot *b)
{
	if (!b)
		return;
	assert(!b->busy);
	b->busy = true; /* freed below, all at once */
	while (!rpwi_list_empty(&b->listeners))
		boot_listener_bury(
			RPWI_CONTAINER_OF(b->listeners.next, struct boot_listener, link));
	while (!rpwi_list_empty(&b->conns))
		boot_conn_bury(RPWI_CONTAINER_OF(b->conns.next, struct boot_conn, link));
	bury_the_dead(b);
	boot_names_free(b->names, boot_is_ours(b));
	boot_key_free(b->key);
	if (b->epoll_fd >= 0)
		close(b->epoll_fd);
	free(b);
}

/* Those that are due are taken out first: an up-call may close any of them, or set a new timer. */
static unsigned run_timers(struct boot *b, uint64_t now_ns)
{
	struct rpwi_list due;
	unsigned did = 0;
	rpwi_list_init(&due);
	b->deadline_ns = RPWI_NEVER;
	RPWI_LIST_EACH_SAFE (struct boot_conn, c, next, &b->timed, timer) {
		if (c->deadline_ns > now_ns) {
			boot_deadline_lower(b, c->deadline_ns);
			continue;
		}
		rpwi_list_del(&c->timer);
		rpwi_list_add_tail(&due, &c->timer);
	}
	while (!rpwi_list_empty(&due)) {
		struct boot_conn *c = RPWI_CONTAINER_OF(due.next, struct boot_conn, timer);
		rpwi_list_del(&c->timer);
		did += boot_conn_timeout(c, now_ns);
	}
	boot_listener_timers(b, now_ns);
	return did;
}

static unsigned dispatch(
	struct boot *b, struct boot_source *source, uint32_t events, bool listeners)
{
	if (listeners != (source->kind == SOURCE_LISTENER))
		return 0;
	switch (source->kind) {
	case SOURCE_NAMES:
		return boot_names_progress(b->names);
	case SOURCE_LISTENER:
		return boot_listener_accept((struct boot_listener_socket *)source);
	case SOURCE_CONN:
		return boot_conn_event((struct boot_conn *)source, events);
	}
	return 0;
}

unsigned boot_progress(struct boot *b)
{
	struct epoll_event ev[EVENTS];
	unsigned did = 0;
	assert(!b->busy);
	if (!boot_is_ours(b))
		return 0;
	int n = epoll_wait(b->epoll_fd, ev, EVENTS, 0);
	b->busy = true;
	/* Hellos before new connections: a good peer makes room before the next stranger comes. */
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < n; i++)
			if (ev[i].data.u64 && !(ev[i].data.u64 & 1)) /* else it is others' */
				did += dispatch(b, ev[i].data.ptr, ev[i].events, pass);
	if (b->deadline_ns != RPWI_NEVER) {
		uint64_t now = rpwi_now_ns();
		if (b->deadline_ns <= now)
			did += run_timers(b, now);
	}
	if (!rpwi_list_empty(&b->turn_queue))
		boot_dial_turns(b);
	b->busy = false;
	bury_the_dead(b);
	return did;
}

int boot_fd(struct boot *b) { return b->epoll_fd; }
uint64_t boot_deadline(const struct boot *b) { return b->deadline_ns; }
bool boot_has_key(const struct boot *b) { return b->key; }
uint64_t boot_strangers(const struct boot *b) { return b->strangers; }
