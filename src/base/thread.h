/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h - a thread of ours in somebody else's program: it handles none of the program's signals.
 *
 * Threads: any. */
#ifndef ROPEWAY_THREAD_H
#define ROPEWAY_THREAD_H

#include <pthread.h>
#include <signal.h>

/* As pthread_create: 0, or what errno would be. */
static inline int rpwi_thread_start(
	pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(thread, attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

#endif
