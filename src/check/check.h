/* SPDX-License-Identifier: BSD-3-Clause */
/* check.h - `ropeway run --check` inside the program: findings, and the site of the call that is
 * under way. The rules are in queue.h and the files beside it.
 *
 * Data path: nothing of it runs without --check. With it, the tables of calls that contexts and QPs
 * get have checked functions in them (device/checked.c), which note a request before the device
 * takes it and a completion before the program gets it. So the device's own code has no branch for
 * it but where something goes wrong.
 *
 * Threads: any. The state of the checker is under RPWI_LOCK_CHECK, the innermost lock, which
 * is held for moments and never over a call of the device. A signal handler that interrupts
 * such a moment checks nothing. Nothing is allocated but when an object is made.
 *
 * Bounds: 256 bytes for each request that can be in flight, 64 for each registration, and
 * RPWI_CHECK_KINDS kinds of findings in a process.
 */
#ifndef ROPEWAY_CHECK_CHECK_H
#define ROPEWAY_CHECK_CHECK_H

#include "base/base.h"
#include "base/lock.h"
#include "check/finding.h"
#include "check/options.h"

enum { RPWI_CHECK_KINDS = 256 };

extern bool rpwi_check_on;                       /* set by rpwi_check_init */
extern struct rpwi_check_options rpwi_check_how; /* read once */

/* Reads ROPEWAY_CHECK, before the first call; idempotent. A second library of the process that
 * checks, too, has other numbers for its findings. */
void rpwi_check_init(void);
extern uint32_t rpwi_check_first_id;
/* The process uses a device: it stands in the report from now on, with findings or without. */
void rpwi_check_begins(void);

/* ---- the call that is under way in this thread ---- */

/* RPWI_CHECK_PLAIN: in a library that programs load when they like, which may have no static thread
 * memory (tests/check_symbols.py), and takes no part in what base/lock.h does at fork. */
#ifdef RPWI_CHECK_PLAIN
extern __thread struct rpwi_site rpwi_check_site;
#else
extern __thread struct rpwi_site rpwi_check_site __attribute__((tls_model("initial-exec")));
/* While it is set, calls that another library makes for the program do not change the site. */
extern __thread bool rpwi_check_site_kept __attribute__((tls_model("initial-exec")));
#endif
void rpwi_check_site_note(const void *pc, const void *frame);
int rpwi_check_sites_init(void); /* after rpwi_check_init, before the first note; 0 or -errno */
/* At the top of each function that programs call. */
#define RPWI_CHECK_HERE() \
	do { \
		if (RPWI_UNLIKELY(rpwi_check_on)) \
			rpwi_check_site_note( \
				__builtin_return_address(0), __builtin_frame_address(0)); \
	} while (0)

/* ---- the lock ---- */

/* Notes of freed memory (freed.h), which each section begins with. */
extern struct rpwi_check_notes {
	_Atomic uint32_t made, read;
	void (*look)(void);
} rpwi_check_notes;

/* False in a signal handler that interrupted a section: then nothing is checked. */
#ifdef RPWI_CHECK_PLAIN
extern pthread_mutex_t rpwi_check_mutex;
static inline bool rpwi_check_lock(void) { return !pthread_mutex_lock(&rpwi_check_mutex); }
static inline void rpwi_check_unlock(void) { pthread_mutex_unlock(&rpwi_check_mutex); }
#else
static inline bool rpwi_check_lock(void)
{
	if (RPWI_UNLIKELY(rpwi_lock_is_mine(RPWI_LOCK_CHECK)))
		return false;
	rpwi_lock(RPWI_LOCK_CHECK);
	if (RPWI_UNLIKELY(rpwi_check_notes.made != rpwi_check_notes.read))
		rpwi_check_notes.look();
	return true;
}
static inline void rpwi_check_unlock(void) { rpwi_unlock(RPWI_LOCK_CHECK); }
#endif

/* ---- findings; the lock is held ---- */

static inline bool rpwi_check_wants(enum rpwi_check_rule r) { return rpwi_check_how.on[r]; }
/* Reports it, or counts it where the same rule was found at the same sites. With halt=1 it does not
 * return, unless it is a note. */
void rpwi_check_report(struct rpwi_finding *f);
/* The same, with its text. */
void rpwi_check_say(struct rpwi_finding *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* No finding, but something that the first cause of a failure is found by: of the file alone. */
void rpwi_check_event(const char *what, uint32_t qpn, uint32_t peer_qpn, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Something is not checked from now on: a sentence for the end of the report, the last one. */
void rpwi_check_unwatched(const char *why);

/* Called at the end of the process, before the report ends: for what is left. */
void rpwi_check_at_end(void (*fn)(void));

#endif
