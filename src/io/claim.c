/* claim.c - the services that this process has claimed: each a bound abstract socket, to which others hand over the requests that land at them. Their sockets are gathered in an
 * epoll of their own, so that a process that listens on a thousand ports asks one descriptor whether there is anything.
 *
 * A claim on all addresses and one on a single address exclude each other. Each has a name of its own, so the kernel cannot see to it: whoever claims binds first, then looks
 * for the other kind, and gives way. Two who do so at the same moment may both give way; never do both stay.
 */
#include "io/io_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { CLAIMS_MAX = 65536 };

struct claim {
	struct io_dest name;
	int fd;
};

struct rpwi_claims {
	int epoll_fd;
	struct claim *at;
	unsigned n, room;
};

struct rpwi_claims *rpwi_claims_new(void)
{
	struct rpwi_claims *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (c->epoll_fd < 0) {
		free(c);
		return NULL;
	}
	return c;
}

void rpwi_claims_free(struct rpwi_claims *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < c->n; i++)
		close(c->at[i].fd);
	close(c->epoll_fd);
	free(c->at);
	free(c);
}

int rpwi_claims_fd(const struct rpwi_claims *c) { return c->epoll_fd; }

int rpwi_claims_ready(const struct rpwi_claims *c)
{
	struct epoll_event ev;
	return c->n && epoll_wait(c->epoll_fd, &ev, 1, 0) == 1 ? ev.data.fd : -1;
}

/* Is the service claimed on some single address? Nobody keeps a list of names but the kernel. */
static bool claimed_on_one(uint64_t service_id)
{
	char line[512], want[64];
	bool found = false;
	int n = snprintf(want, sizeof(want), " @ropeway/service/%llx/", (unsigned long long)service_id);
	FILE *f = fopen("/proc/net/unix", "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, want);
		found = at && at[n] != '*';
	}
	if (f)
		fclose(f);
	return found;
}

static bool other_kind_claimed(const struct io_dest *d)
{
	return d->addr.family ? rpwi_dest_exists(&(struct io_dest){.service_id = d->service_id}) : claimed_on_one(d->service_id);
}

static int room_for_one(struct rpwi_claims *c)
{
	if (c->n < c->room)
		return 0;
	if (c->n == CLAIMS_MAX)
		return -ENOSPC;
	unsigned room = c->room ? c->room * 2 : 8;
	struct claim *at = realloc(c->at, room * sizeof(*at));
	if (!at)
		return -ENOMEM;
	c->at = at;
	c->room = room;
	return 0;
}

int rpwi_claims_add(struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr)
{
	struct claim k = {.name = {.service_id = service_id, .addr = *addr}};
	struct epoll_event ev = {.events = EPOLLIN};
	int rc = room_for_one(c);
	if (rc)
		return rc;
	k.fd = rpwi_dest_bind(&k.name);
	if (k.fd < 0)
		return k.fd;
	ev.data.fd = k.fd;
	if (other_kind_claimed(&k.name))
		rc = -EADDRNOTAVAIL; /* as the kernel calls it */
	else if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, k.fd, &ev))
		rc = -errno;
	if (rc)
		close(k.fd);
	else
		c->at[c->n++] = k;
	return rc;
}

static struct claim *find(const struct rpwi_claims *c, const struct io_dest *name)
{
	for (unsigned i = 0; i < c->n; i++)
		if (rpwi_dest_eq(&c->at[i].name, name))
			return &c->at[i];
	return NULL;
}

void rpwi_claims_del(struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr)
{
	struct claim *k = find(c, &(struct io_dest){.service_id = service_id, .addr = *addr});
	if (!k)
		return;
	/* By hand: epoll forgets a descriptor only with its last copy (epoll(7)), and a fork's child may have one. */
	epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, k->fd, NULL);
	close(k->fd);
	*k = c->at[--c->n];
}

bool rpwi_claims_cover(const struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr)
{
	return find(c, &(struct io_dest){.service_id = service_id, .addr = *addr}) || find(c, &(struct io_dest){.service_id = service_id});
}
