/* SPDX-License-Identifier: BSD-3-Clause */
/* set.c - what all files of boot stand on: the epoll set, the next deadline, whose process it is,
 * and how many lines about strangers are logged. It knows no connection and calls no other file of
 * boot. It takes no lock: a struct boot belongs to one thread at a time.
 */
#include "boot/boot_priv.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>

/* A forked child has its parent's descriptors: sending, shutting down or changing the epoll set
 * there would do it to the parent's. So a child only closes them. */
static struct {
	pthread_once_t once;
	unsigned generation;
} process = {PTHREAD_ONCE_INIT, 0};
static void forked(void) { process.generation++; }
static void at_fork(void) { pthread_atfork(NULL, NULL, forked); }

void boot_make_ours(struct boot *b)
{
	pthread_once(&process.once, at_fork);
	b->generation = process.generation;
}

bool boot_is_ours(const struct boot *b) { return b->generation == process.generation; }

int boot_watch(struct boot *b, int fd, struct boot_source *source, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = source};
	return epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

void boot_deadline_lower(struct boot *b, uint64_t deadline_ns)
{
	b->deadline_ns = RPWI_MIN(b->deadline_ns, deadline_ns);
}

bool boot_may_log(struct boot *b, unsigned *left_out)
{
	uint64_t now = rpwi_now_ns();
	if (now >= b->log_window_ns) {
		b->log_window_ns = now + RPWI_NS_PER_S;
		b->log_lines = 0;
	}
	if (b->log_lines >= LOG_LINES_MAX) {
		b->log_left_out++;
		return false;
	}
	b->log_lines++;
	*left_out = b->log_left_out;
	b->log_left_out = 0;
	return true;
}
