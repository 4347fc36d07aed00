/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_peer.c - processes of this host, watched by a pidfd each: a device reports a peer's end
 * only after seconds of retries, and only if something was sent. */
#include "tran/verbs/verbs_priv.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "near/process.h"

struct verbs_peer *rpwi_verbs_peer_get(struct verbs *t, uint32_t pid)
{
	struct verbs_peer *p;
	struct epoll_event ev = {.events = EPOLLIN};
	if (!pid || pid > INT_MAX || pid == (uint32_t)getpid())
		return NULL;
	RPWI_LIST_EACH (struct verbs_peer, known, &t->peers, link)
		if (known->pid == pid && !known->ended) {
			known->refs++;
			return known;
		}
	int fd = rpwi_process_open((pid_t)pid);
	if (fd < 0 || !(p = calloc(1, sizeof(*p)))) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	*p = (struct verbs_peer){.pid = pid, .fd = fd, .refs = 1};
	/* without it, its end is noticed a little later */
	epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
	rpwi_list_add_tail(&t->peers, &p->link);
	return p;
}

void rpwi_verbs_peer_put(struct verbs *t, struct verbs_peer *p)
{
	if (!p || --p->refs)
		return;
	epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
	rpwi_list_del(&p->link);
	close(p->fd);
	free(p);
}

bool rpwi_verbs_peer_ended(struct verbs_peer *p)
{
	struct pollfd f = {.fd = p->fd, .events = POLLIN};
	if (!p->ended)
		p->ended = poll(&f, 1, 0) > 0; /* a zombie has ended, too */
	return p->ended;
}
